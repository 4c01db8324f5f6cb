/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of elementwise operations in 16 bits. It knows an operation by its structure only, so
 * that it is compiled once for each table, and calls the operations' loops (forward/elementwise_halves.h) through
 * pointers.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_ROWS_OF_HALVES_H
#define DYNNORM_FORWARD_ELEMENTWISE_ROWS_OF_HALVES_H

#include "rows/forward/elementwise_halves.h"
#include "rows/forward/unusual_rows.h"

#include <math.h>
#include <string.h>

/* Of fewer rows it does not pay to look at the bias. */
enum { LEAST_ELEMENTWISE_ROWS_BY_INSTRUCTION = 8 };

/* ---- What channels have ---- */

struct vectors_of_halves {
    _Alignas(64) float parameters[ELEMENTWISE_BLOCK];
    _Alignas(64) float factors[ELEMENTWISE_BLOCK];
    _Alignas(64) float bias[ELEMENTWISE_BLOCK];
};

/* The alphas or betas of some channels. Nonzero if one of them is unusual. */
RARE int order_parameters(float *to, const struct typed_vector *parameters, size_t count, int is_bf16,
                          const struct elements *elements) {
    struct channel_parameters made;
    float floats[BLOCK];
    int are_unusual = 0;
    for (size_t i = 0; i < count; i += BLOCK) {
        const struct block block = block_at(i, count);
        const struct typed_vector rest = from_channel(parameters, i);
        ORDER_VECTOR(floats, &rest, block.count, 1, 0);
        elements->channel_parameters(&made, floats, block.count, 0);
        are_unusual |= made.are_unusual;
        ORDER_VECTOR(to + i, &(const struct typed_vector){made.parameter, DYNNORM_F32, 0}, block.count, 1, is_bf16);
    }
    return are_unusual;
}

/* The call's vectors, from a channel on, and how they are brought into order. */
struct channels_of_halves {
    struct typed_vector weight;
    struct typed_vector bias;
    struct typed_vector parameters; /* without data: all have the call's parameter */
    const struct call_constants *call;
    const struct elements *elements;
    float multiplier;
};

INLINE struct channels_of_halves channels_from(const struct channels_of_halves *channels, size_t first) {
    struct channels_of_halves rest = *channels;
    rest.weight = from_channel(&channels->weight, first);
    rest.bias = from_channel(&channels->bias, first);
    rest.parameters = from_channel(&channels->parameters, first);
    return rest;
}

/* Makes the vectors of so many channels. Nonzero if something of them is unusual. */
OUTLINED int make_vectors_of_halves(struct vectors_of_halves *made, const struct channels_of_halves *channels,
                                    size_t count, int is_bf16) {
    int is_unusual = ORDER_VECTOR(made->factors, &channels->weight, count, channels->multiplier, is_bf16);
    is_unusual |= ORDER_VECTOR(made->bias, &channels->bias, count, 1, is_bf16);
    if (!channels->parameters.data)
        return is_unusual | channels->call->is_unusual;
    return is_unusual | order_parameters(made->parameters, &channels->parameters, count, is_bf16, channels->elements);
}

/* ---- Rows ---- */

/* So many channels from one on, whose elements have been copied to a buffer, where they become y. */
INLINE struct block_of_halves block_in_buffer(const struct block_of_halves *block, size_t first,
                                              unsigned char *buffer) {
    struct block_of_halves in_buffer = *block;
    in_buffer.x = in_buffer.y = buffer;
    in_buffer.x_stride = in_buffer.y_stride = HALF_BYTES * NUMBERS_AT_ONCE;
    in_buffer.count = NUMBERS_AT_ONCE;
    in_buffer.parameters += first & block->parameter_mask;
    in_buffer.factors += first;
    in_buffer.bias += first;
    in_buffer.past_caches = 0;
    in_buffer.ahead = 0;
    return in_buffer;
}

/* Copies the elements that there are, of as many as a loop takes together. */
INLINE void copy_last_halves(unsigned char *to, const unsigned char *from, size_t count) {
    for (size_t k = 0; k < count; k += HALVES, from += sizeof(halves), to += sizeof(halves))
        if (count - k >= HALVES)
            halves_store(to, halves_load(from));
        else
            halves_store_n(to, halves_load_n(from, (ptrdiff_t)(count - k)), (ptrdiff_t)(count - k));
}

/* The last channels of some rows, which are too few for a loop. They are computed in a buffer, together with zeros. */
OUTLINED void forward_last_halves(const struct block_of_halves *block, size_t count,
                                  block_of_halves_function *function) {
    enum { ROW_BYTES = HALF_BYTES * NUMBERS_AT_ONCE };
    _Alignas(64) unsigned char buffer[ROWS_IN_BUFFER * ROW_BYTES];
    const struct block_of_halves in_buffer = block_in_buffer(block, block->count, buffer);
    const size_t before = HALF_BYTES * block->count;
    memset(buffer, 0, block->rows * ROW_BYTES);
    for (size_t row = 0; row < block->rows; row++)
        copy_last_halves(buffer + row * ROW_BYTES, block->x + row * block->x_stride + before, count);
    function(&in_buffer);
    for (size_t row = 0; row < block->rows; row++)
        copy_last_halves(block->y + row * block->y_stride + before, buffer + row * ROW_BYTES, count);
}

/* ---- Channels that are not computed in the usual way ---- */

/* A block of them, of one row, widened in their own order. */
struct widened_numbers {
    _Alignas(64) float x[BLOCK];
    float y[BLOCK];
    float weight[BLOCK];
    float bias[BLOCK];
    float parameters[BLOCK];
    struct channel_parameters made;
    int all_are_unusual;
    unsigned char are_unusual[BLOCK];
};

/* What another channel has does not count. */
RARE void find_unusual_channels(struct widened_numbers *of, size_t count, const struct channels_of_halves *channels) {
    const int is_one = !channels->parameters.data;
    of->all_are_unusual = is_one && channels->call->is_unusual;
    for (size_t k = 0; !of->all_are_unusual && k < count; k++) {
        channels->elements->channel_parameters(&of->made, is_one ? &channels->call->parameter : of->parameters + k, 1,
                                               1);
        of->are_unusual[k] =
            of->made.are_unusual || !isfinite(of->weight[k] * channels->multiplier) || !isfinite(of->bias[k]);
    }
    channels->elements->channel_parameters(&of->made, is_one ? &channels->call->parameter : of->parameters, count,
                                           is_one);
}

INLINE void widen_unusual_numbers(float *x, const unsigned char *from, size_t count, int is_bf16) {
    for (size_t k = 0; k < count; k += HALVES, from += sizeof(halves)) {
        vec low, high;
        if (is_bf16)
            vecs_of_bf16(&low, &high, halves_load(from));
        else
            vecs_of_f16(&low, &high, halves_load(from));
        vec_store(x + k, low);
        vec_store(x + k + LANES, high);
    }
}

INLINE void narrow_unusual_numbers(unsigned char *to, const float *y, size_t count, int is_bf16) {
    for (size_t k = 0; k < count; k += HALVES, to += sizeof(halves)) {
        const vec low = vec_load(y + k), high = vec_load(y + k + LANES);
        halves_store(to, is_bf16 ? bf16_of_vecs(low, high) : f16_of_vecs(low, high));
    }
}

/* A block of any number of channels, some or all of which are not computed in the usual way, but through floats; a
 * block of them at a time. */
OUTLINED void forward_unusual_halves(const struct block_of_halves *block, const struct channels_of_halves *channels,
                                     block_of_halves_function *function) {
    _Alignas(64) float factor_buffer[BLOCK];
    _Alignas(64) unsigned char usual[HALF_BYTES * BLOCK], unusual[HALF_BYTES * BLOCK];
    struct widened_numbers of;
    memset(of.y, 0, sizeof of.y);
    for (size_t i = 0, count; i < block->count; i += count) {
        const struct channels_of_halves rest = channels_from(channels, i);
        struct block_of_halves in_usual_way = block_in_buffer(block, i, usual);
        struct factors factors = {.buffer = factor_buffer};
        const struct elementwise_block part = {
            .y = of.y, .x = of.x, .bias = of.bias, .factors = &factors, .parameters = &of.made};
        count = block_at(i, block->count).count;
        const size_t whole = (count + NUMBERS_AT_ONCE - 1) / NUMBERS_AT_ONCE * NUMBERS_AT_ONCE;
        in_usual_way.rows = 1;
        in_usual_way.count = whole;
        ORDER_VECTOR(of.weight, &rest.weight, count, 1, 0);
        ORDER_VECTOR(of.bias, &rest.bias, count, 1, 0);
        if (rest.parameters.data)
            ORDER_VECTOR(of.parameters, &rest.parameters, count, 1, 0);
        find_unusual_channels(&of, count, &rest);
        make_factors(&factors, of.weight, count, channels->call, channels->elements);
        for (size_t row = 0; row < block->rows; row++) {
            const unsigned char *from = block->x + row * block->x_stride + HALF_BYTES * i;
            unsigned char *to = block->y + row * block->y_stride + HALF_BYTES * i;
            const int is_direct = of.all_are_unusual && count == whole;
            if (!is_direct) {
                memset(usual + HALF_BYTES * count, 0, HALF_BYTES * (whole - count));
                from = memcpy(usual, from, HALF_BYTES * count);
            }
            widen_unusual_numbers(of.x, from, whole, block->is_bf16);
            forward_unusual_channels(&part, count, channels->call, channels->elements);
            narrow_unusual_numbers(is_direct ? to : unusual, of.y, whole, block->is_bf16);
            if (of.all_are_unusual) {
                if (!is_direct)
                    memcpy(to, unusual, HALF_BYTES * count);
                continue;
            }
            function(&in_usual_way);
            for (size_t k = 0; k < count; k++, to += HALF_BYTES)
                memcpy(to, (of.are_unusual[k] ? unusual : usual) + HALF_BYTES * k, HALF_BYTES);
        }
    }
}

/* Some channels of the block's rows from one on. */
INLINE struct block_of_halves block_from(const struct block_of_halves *block, size_t first, size_t count) {
    struct block_of_halves part = *block;
    part.x += HALF_BYTES * first;
    part.y += HALF_BYTES * first;
    part.count = count;
    return part;
}

/* Channels whose vectors are made. */
INLINE void forward_ordered_halves(struct block_of_halves *block, block_of_halves_function *function) {
    const size_t last = block->count % NUMBERS_AT_ONCE;
    block->count -= last;
    if (block->count)
        function(block);
    if (last)
        forward_last_halves(block, last, function);
}

/* A row by itself, as far as factors and bias are usual. Returns how many channels that are. */
INLINE size_t forward_row_of_halves(const struct block_of_halves *row, const struct channels_of_halves *channels,
                                    block_of_halves_function *function) {
    struct block_of_halves block = *row;
    block.makes_factors = 1;
    block.weight = common_vector(&channels->weight);
    block.common_bias = common_vector(&channels->bias);
    block.multiplier = channels->multiplier;
    block.count -= row->count % NUMBERS_AT_ONCE;
    return block.count ? function(&block) : 0;
}

/* Blocks of some rows at a time. */
FOR_SIZE OUTLINED void forward_rows_of_blocks(const struct halves_call *of, size_t rows,
                                              const struct operation *operation) {
    const struct elements *elements = operation->elements;
    const struct elementwise_halves *of_type = &operation->of_halves[of->type];
    const size_t channels = of->channels;
    const size_t at_once = channels <= ELEMENTWISE_BLOCK && channels % NUMBERS_AT_ONCE == 0 ? rows : ROWS_IN_BUFFER;
    const struct call_constants call = operation->begin_call(channels, 0, of->parameters.offset, of->scale);
    const struct channels_of_halves all = {of->weight, of->bias, of->parameters,
                                           &call,      elements, of_type->factor * call.scale};
    struct vectors_of_halves vectors;
    struct block_of_halves block = {.parameters = vectors.parameters,
                                    .parameter_mask = of->parameters.data ? SIZE_MAX : 0,
                                    .factors = vectors.factors,
                                    .bias = vectors.bias,
                                    .x_stride = of->x_stride,
                                    .y_stride = of->y_stride,
                                    .is_bf16 = of->type == DYNNORM_BF16};
    const int makes_factors = rows == 1 && of_type->makes_factors && !of->parameters.data && !call.is_unusual &&
                              is_common_vector(&of->weight, block.is_bf16) &&
                              is_common_vector(&of->bias, block.is_bf16);
    size_t done = 0; /* channels of a row by itself */
    int is_unusual = 0, by_instruction = 0;
    for (int i = 0; i < NUMBERS_AT_ONCE; i += LANES)
        vec_store(vectors.parameters + i, vec_set(call.parameter));
    const int may_use_instruction = HAS_BF16_INSTRUCTION && of->rounds_by_instruction && block.is_bf16 &&
                                    rows >= LEAST_ELEMENTWISE_ROWS_BY_INSTRUCTION;
    block.past_caches = of->streams && ((uintptr_t)of->y | of->y_stride) % STREAM_ALIGNMENT == 0;
    for (size_t row = 0; row < rows; row += at_once) {
        block.rows = rows - row < at_once ? rows - row : at_once;
        block.ahead = of->streams && rows - row > at_once ? at_once * block.x_stride : 0;
        block.x = of->x + row * block.x_stride;
        block.y = of->y + row * block.y_stride;
        block.count = channels;
        if (makes_factors)
            done = forward_row_of_halves(&block, &all, of_type->block);
        for (size_t channel = done; channel < channels; channel += ELEMENTWISE_BLOCK) {
            const struct channels_of_halves rest = channels_from(&all, channel);
            struct block_of_halves part =
                block_from(&block, channel, block_of(ELEMENTWISE_BLOCK, channel, channels).count);
            if (row == 0 || channels > ELEMENTWISE_BLOCK) {
                is_unusual = make_vectors_of_halves(&vectors, &rest, part.count, block.is_bf16);
                by_instruction =
                    may_use_instruction && has_none_between(&rest.bias, part.count, 0, LEAST_BIAS_BY_INSTRUCTION);
            }
            part.by_instruction = by_instruction;
            if (is_unusual)
                forward_unusual_halves(&part, &rest, of_type->block);
            else
                forward_ordered_halves(&part, of_type->block);
        }
    }
    if (block.past_caches)
        vec_end_streaming();
}

/* ---- Short rows without gaps between them ----
 *
 * Some of them are taken for one row, so that the last channels of fewer rows need a buffer: if possible just so many
 * that none do. */

INLINE size_t rows_to_join(size_t channels) {
    const size_t divisor = channels & (~channels + 1); /* the greatest that is a power of 2 */
    const size_t times = divisor < NUMBERS_AT_ONCE ? NUMBERS_AT_ONCE / divisor : 1;
    return times * channels <= ELEMENTWISE_BLOCK ? times : ELEMENTWISE_BLOCK / channels;
}

struct repeated_vectors {
    _Alignas(float) unsigned char weight[ELEMENTWISE_BLOCK * sizeof(float)];
    _Alignas(float) unsigned char bias[ELEMENTWISE_BLOCK * sizeof(float)];
    _Alignas(float) unsigned char parameters[ELEMENTWISE_BLOCK * sizeof(float)];
};

FOR_SIZE OUTLINED void repeat_vector(struct typed_vector *vector, unsigned char *to, size_t channels, size_t times) {
    const size_t bytes = channels * dynnorm_element_bytes(vector->type);
    if (!vector->data)
        return;
    for (size_t i = 0; i < times; i++)
        memcpy(to + i * bytes, vector->data, bytes);
    vector->data = to;
}

/* Returns how many rows have been computed. */
INLINE size_t forward_joined_halves(const struct halves_call *of, size_t rows, const struct operation *operation) {
    const size_t channels = of->channels, times = rows_to_join(channels), bytes = HALF_BYTES * channels;
    struct repeated_vectors repeated;
    struct halves_call joined = *of;
    if (LANES == 1 || times < 2 || rows < 3 * times || of->x_stride != bytes || of->y_stride != bytes)
        return 0;
    repeat_vector(&joined.weight, repeated.weight, channels, times);
    repeat_vector(&joined.bias, repeated.bias, channels, times);
    repeat_vector(&joined.parameters, repeated.parameters, channels, times);
    joined.channels *= times;
    joined.x_stride *= times;
    joined.y_stride *= times;
    forward_rows_of_blocks(&joined, rows / times, operation);
    return rows / times * times;
}

void ELEMENTWISE_ROWS_OF_HALVES(const struct halves_call *of, size_t rows, const struct operation *operation) {
    const size_t done = forward_joined_halves(of, rows, operation);
    struct halves_call rest = *of;
    rest.x += done * rest.x_stride;
    rest.y += done * rest.y_stride;
    if (done < rows)
        forward_rows_of_blocks(&rest, rows - done, operation);
}

#endif
