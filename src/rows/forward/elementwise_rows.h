/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of elementwise operations: which rows and channels make a block, and where they are
 * read and written. It is compiled once for each table, for all operations and modes, and calls their loops
 * (forward/elementwise.h) through pointers.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_ROWS_H
#define DYNNORM_FORWARD_ELEMENTWISE_ROWS_H

#include "operations/operation.h"
#include "rows/forward/elementwise.h"
#include "rows/reader.h"
#include "rows/row_means.h"
#include "rows/writer.h"

#include <stdint.h>
#include <string.h>

/* How many rows use a block's factors before they are made anew: those that go by buffers, and others. */
enum { ROWS_AT_ONCE = ROWS_OF_MEANS, PLAIN_ROWS_AT_ONCE = 32 };

/* Where means are needed first, so many rows that they stay in the second-level cache until y is computed. Short rows
 * that need no buffers all use the same factors and bias. */
INLINE size_t rows_at_once(size_t rows, size_t channels, int is_plain, const struct elements *elements) {
    const size_t most_channels = 16384;
    if (elements->is_centered)
        return channels > most_channels ? 2 : ROWS_AT_ONCE;
    if (!is_plain)
        return ROWS_AT_ONCE;
    return channels <= ELEMENTWISE_BLOCK ? rows : PLAIN_ROWS_AT_ONCE;
}

/* Here a block is one of rows. */
INLINE void find_means_of_group(struct row_means *means, const struct rows *x, struct block group, size_t channels,
                                find_means_function *find_means) {
    const float *rows[ROWS_OF_MEANS];
    for (size_t i = 0; i < group.count; i++)
        rows[i] = row_of(x, group.first + i);
    find_means(means, rows, group.count, channels);
}

/* Some rows at a time in blocks of channels, so that factors and bias of a block are read from the nearest cache. */
OUTLINED void forward_elementwise_rows(const struct forward_arguments *arguments, size_t first, size_t rows,
                                       const struct call_constants *call, const struct forward_functions *functions) {
    const struct elements *elements = functions->elements;
    const size_t channels = arguments->channels;
    _Alignas(64) float factor_buffer[ELEMENTWISE_BLOCK], weight_buffer[ELEMENTWISE_BLOCK],
        bias_buffer[ELEMENTWISE_BLOCK];
    struct write_buffer buffers[ROWS_AT_ONCE];
    const struct rows x = rows_of(&arguments->x);
    const struct output y = write_lines_directly(&arguments->y, channels, arguments->streams);
    const size_t rows_behind = arguments->rows_behind;
    /* Where they store past the caches the loops prefetch, too, a line at a time: asked for many lines at once, the CPU
     * is held up. */
    const int loops_prefetch = y.is_direct && !x.tensor;
    const int has_prefetch = !loops_prefetch && (is_beyond_caches(&y) || rows_behind) &&
                             channels >= BLOCK; /* the CPU itself fetches short rows ahead */
    /* Whether there is nothing to do for a row but to compute it, and rows lie equally far apart. */
    const int is_plain = !y.is_buffered && !has_prefetch && !x.tensor && !y.rows.tensor;
    const size_t longest = is_plain ? ELEMENTWISE_BLOCK : BLOCK;
    const struct reader weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer, longest);
    const struct reader bias = read_bias(arguments->bias, bias_buffer, longest);
    const size_t at_once = rows_at_once(rows, channels, is_plain, elements);
    struct factors factors = {.buffer = factor_buffer};
    struct channel_parameters parameters;
    struct row_means means;
    struct rows_of_block some = {.first = {.factors = &factors, .parameters = &parameters},
                                 .past_caches = y.is_direct,
                                 .avoids_subnormals = arguments->avoids_subnormals,
                                 .x_stride = x.stride,
                                 .y_stride = y.rows.stride,
                                 .means = &means};
    some.first.ahead = loops_prefetch ? rows_prefetched_ahead(channels) * x.stride * sizeof(float) : 0;
    for (size_t i = 0; i < ROWS_AT_ONCE; i++)
        buffers[i].held = 0;
    parameters.are_unusual = parameters.are_ready = 0;
    parameters.least = call->parameter;
    if (!arguments->parameters && call->is_unusual)
        elements->channel_parameters(&parameters, &arguments->parameter, channels, 1);
    else if (!arguments->parameters)
        for (size_t i = 0; i < channels && i < longest; i += LANES)
            vec_store(parameters.parameter + i, vec_set(call->parameter));
    for (size_t group = first; group < first + rows; group += at_once) {
        size_t end = first + rows - group < at_once ? first + rows : group + at_once;
        if (elements->is_centered)
            find_means_of_group(&means, &x, (struct block){group, end - group}, channels, functions->find_means);
        for (size_t channel = 0; channel < channels; channel += longest) {
            struct block block = block_of(longest, channel, channels);
            if (group == first || channels > longest) {
                make_factors(&factors, read_block(&weight, block), block.count, call, elements);
                if (arguments->parameters)
                    elements->channel_parameters(&parameters, arguments->parameters + block.first, block.count, 0);
            }
            some.count = block.count;
            some.first.bias = read_block(&bias, block);
            if (elements->near_limit)
                some.first.near_limit = elements->near_limit(parameters.least, elements);
            some.first_of_means = 0;
            if (is_plain) {
                some.rows = end - group;
                some.first.x = row_of(&x, group) + block.first;
                some.first.y = row_of(&y.rows, group) + block.first;
                functions->rows_of_block(&some, call);
                continue;
            }
            some.rows = 1;
            for (size_t row = group; row < end; row++) {
                struct reader input = read_row(&x, row);
                if (has_prefetch)
                    prefetch_row(&input, &x, row + (rows_behind ? rows : at_once), first + rows + rows_behind);
                some.first.x = read_block(&input, block);
                some.first.y = block_to_write(&y, row, block, &buffers[row - group]);
                some.first_of_means = row - group;
                functions->rows_of_block(&some, call);
                block_is_written(&y, row, block, &buffers[row - group]);
            }
        }
    }
    end_writing(&y);
}

void FORWARD_REST_OF_ROW(const struct one_elementwise_row *row, size_t first,
                         const struct forward_functions *functions) {
    const size_t channels = row->channels - first;
    const struct forward_arguments arguments = {
        .x = {(float *)(uintptr_t)(row->x + first), sizeof(float), 1, {1}, {channels}},
        .y = {row->y + first, sizeof(float), 1, {1}, {channels}},
        .weight = row->weight + first,
        .bias = row->bias + first,
        .parameter = row->parameter,
        .scale = row->scale,
        .channels = channels};
    const struct call_constants call = functions->begin_call(channels, 0, row->parameter, row->scale);
    forward_elementwise_rows(&arguments, 0, 1, &call, functions);
}

/* How many rows are done one by one: all long ones without a scale, since memory is then read in its order, unless they
 * are so long that weight and bias do not stay in the second-level cache; and few others, for which it does not pay to
 * make the factors of all channels first. How many was measured on a Zen 3 for AVX2. */
INLINE size_t most_single_rows(const struct forward_arguments *arguments, size_t rows) {
    const size_t channels = arguments->channels, most_channels = 16384;
    if (channels > ELEMENTWISE_BLOCK && channels <= most_channels && arguments->scale == 1)
        return rows;
    if (LANES == 8)
        return channels <= BLOCK ? 6 : 8;
    return channels <= BLOCK ? 4 : 2;
}

/* Returns whether this row could be done so. */
INLINE int forward_single_row(const struct forward_arguments *arguments, size_t number,
                              const struct forward_functions *functions) {
    if (arguments->parameters || !arguments->weight || arguments->weight_offset != 0 || !arguments->bias ||
        arguments->streams || arguments->rows_behind || arguments->x.axes != 1 || arguments->y.axes != 1)
        return 0;
    const struct one_elementwise_row row = {arguments->y.data + number * arguments->y.strides[0],
                                            arguments->x.data + number * arguments->x.strides[0],
                                            arguments->weight,
                                            arguments->bias,
                                            arguments->parameter,
                                            arguments->scale,
                                            arguments->channels};
    return functions->one_row(&row);
}

enum { LEAST_JOINED_ROWS = 64 };

INLINE int rows_follow_each_other(const struct tensor *tensor, size_t channels) {
    return tensor->axes == 1 && tensor->strides[0] == channels;
}

INLINE struct tensor join_rows(const struct tensor *tensor, size_t first, size_t times) {
    struct tensor joined = *tensor;
    joined.data += offset_of_row(tensor, first);
    joined.rows[0] /= times;
    joined.strides[0] *= times;
    return joined;
}

OUTLINED const float *repeat_channels(float *to, const float *from, size_t channels, size_t times) {
    const size_t count = times * channels;
    if (!from)
        return NULL;
    memcpy(to, from, channels * sizeof *to);
    for (size_t done = channels; done < count; done *= 2)
        memcpy(to + done, to, (count - done < done ? count - done : done) * sizeof *to);
    return to;
}

/* Short rows without gaps between them: some of them are taken for one, so that there are fewer ends of rows, which are
 * mostly no whole vectors. Returns how many rows have been computed: none where that would not pay. */
OUTLINED size_t forward_joined_rows(const struct forward_arguments *arguments, size_t first, size_t rows,
                                    const struct forward_functions *functions) {
    const size_t channels = arguments->channels, times = BLOCK / channels;
    float weight[BLOCK], bias[BLOCK], parameters[BLOCK];
    if (LANES == 1 || functions->elements->is_centered || times < 2 || rows < 2 * times || rows < LEAST_JOINED_ROWS ||
        !rows_follow_each_other(&arguments->x, channels) || !rows_follow_each_other(&arguments->y, channels))
        return 0;
    struct forward_arguments joined = *arguments;
    joined.x = join_rows(&arguments->x, first, times);
    joined.y = join_rows(&arguments->y, first, times);
    joined.weight = repeat_channels(weight, arguments->weight, channels, times);
    joined.bias = repeat_channels(bias, arguments->bias, channels, times);
    joined.parameters = repeat_channels(parameters, arguments->parameters, channels, times);
    joined.channels *= times;
    const struct call_constants call = functions->begin_call(joined.channels, 0, joined.parameter, joined.scale);
    forward_elementwise_rows(&joined, 0, rows / times, &call, functions);
    return rows / times * times;
}

void FORWARD_ELEMENTWISE(const struct forward_arguments *arguments, size_t first, size_t rows,
                         const struct forward_functions *functions) {
    if (!arguments->y.data)
        return;
    if (rows <= most_single_rows(arguments, rows) && functions->one_row)
        for (; rows && forward_single_row(arguments, first, functions); rows--)
            first++;
    if (!rows)
        return;
    const size_t joined = forward_joined_rows(arguments, first, rows, functions);
    const struct call_constants call =
        functions->begin_call(arguments->channels, 0, arguments->parameter, arguments->scale);
    if (joined < rows)
        forward_elementwise_rows(arguments, first + joined, rows - joined, &call, functions);
}

#endif
