/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of operations that normalize a row by its own sums: y = w n + b.
 *
 * A row is read twice, for its sums and for y. What costs time is not so much the arithmetic as the end of a row, from
 * 16 lanes to one sum, a square root and a division, since each of these steps waits for the one before. So y is
 * computed some rows after the sums, side by side with the sums of later rows. Short rows go in groups of eight, which
 * end together: one square root and one division serve eight rows. Of other rows a single one, or eight where weight
 * and bias would not stay in the nearest cache together with a row. A few rows, and some others for which that is
 * faster, go one by one: see count_single, and forward/rows_from_memory.h for those that come from memory.
 *
 * The loops differ only in the order in which rows and channels are walked: the bits are the same in all of them. Those
 * for long rows may make x, a sum, where they read it first: see forward/summed_rows.h.
 */
#ifndef DYNNORM_FORWARD_NORMALIZATION_H
#define DYNNORM_FORWARD_NORMALIZATION_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/forward/rows_from_memory.h"
#include "rows/forward/long_rows.h"
#include "rows/forward/normalized_channels.h"
#include "rows/forward/one_row.h"
#include "rows/forward/short_rows.h"
#include "rows/forward/split.h"
#include "rows/forward/without_special_loops.h"

/* Whether rows go in groups of eight. Rows that are made where they are read first do not, if they may lie in a ring;
   nor do rows with partial lines that they do not share; nor do longer ones that go past the caches: without a bias
   they took up to 1.2 times as long on a Zen 3, and with one, over 768 to 1024 channels with AVX2, 1.3 to 1.7 times on
   a Zen 4. */
INLINE int are_short_rows(const struct forward_call *call, const struct normalization *normalization) {
    enum { MOST_FAR_WITH_BIAS = 640 };
    const size_t channels = call->constants->channels;
    const size_t most_far = normalization->has_bias ? MOST_FAR_WITH_BIAS : BLOCK;
    return channels <= BLOCK ||
           (channels <= MOST_SHORT(normalization->has_bias) && !call->summed &&
            (!call->line || call->line->is_shared) && (channels <= most_far || !is_beyond_caches(&call->y)));
}

INLINE void forward_rows(const struct forward_call *call, const struct normalization *normalization) {
    struct long_rows long_rows;
    if (HAS_SPLIT_ROWS && call->split) {
        forward_split_rows(call);
        return;
    }
    if (!HAS_SPECIAL_LOOPS) {
        forward_rows_simply(call, normalization);
        return;
    }
    if (are_short_rows(call, normalization)) {
        forward_short_rows(call, normalization);
        return;
    }
    begin_long_rows(&long_rows, call);
    if (is_beyond_caches(&call->y))
        normalization->forward_rows_from_memory(call, &long_rows);
    else if (call->constants->channels <= MOST_CHANNELS_OF_SINGLE_ROWS)
        forward_single_rows(call, &long_rows, normalization);
    else
        forward_groups_of_rows(call, &long_rows, normalization);
    end_shared_line(call, call->rows - 1, constants_of(&long_rows, call->rows - 1));
}

/* How many rows, from the first one on, are to be done one by one. Groups of rows take longer to begin and to end than
   a few rows by themselves, and eight rows of many channels do not stay in the nearest cache until their y is computed.
   So all are single where they are few, with some more of the shortest and the longest short rows, or where rows are
   long; and of other long rows those that would leave a group incomplete. As measured: with AVX2 on a Zen 3, with
   AVX-512 on a Zen 4. There RMSNorm's rows of 256 channels took 0.89 to 0.92 times as long as in groups where they came
   from the third-level cache, and 1.03 to 1.05 times from the second; those of 257 to 496 channels took 0.79 to 1.0
   times as long as by the loop for long rows, and those of 500 and 508 channels 1.08 to 1.13 times.

   A nearest cache of 48 KB holds a longer row, and weight and bias of as many channels, until its y is computed. On a
   Zen 5 with AVX-512 RMSNorm took 0.6 to 1.0 times as long one by one over rows of 4096 to 8192 channels; LayerNorm
   0.65 to 1.05 times over rows of 1280 to 2048 channels, and 0.8 to 1.0 times over 16 rows of 4096 to 8192. With 3072
   channels LayerNorm took 0.73 times as long from the second-level cache, and 0.95 to 1.07 times from the third one.

   The CPU fetches rows ahead by itself if they are read in order, and if y is written so, which groups of rows do not.
   Where rows were far and y was stored as usual, RMSNorm took 0.5 to 0.95 times as long one by one, over rows of up to
   1024 channels, but with 64 and 128 channels 1.0 to 1.3 times; with AVX2 over rows of 768 and 1024 channels RMSNorm
   took 0.75 to 0.8 times as long, and LayerNorm 0.67 to 0.84 times, but rows that were not a multiple of 16 channels
   took up to 1.25 times. */
INLINE size_t count_single(const struct forward_arguments *arguments, size_t rows,
                           const struct normalization *normalization) {
    const size_t channels = arguments->channels;
    const int has_bias = normalization->has_bias, is_wide = LANES == 16, are_far = arguments->rows_are_far;
    const int is_large = arguments->nearest_is_large;
    const size_t few = is_wide ? 4 : 5, some = 12, shortest = 128, longest = 768, group = 8;
    const size_t few_long = is_wide ? 15 + is_large : 32, most_with_bias = is_wide && !is_large ? 0 : 2048;
    const size_t most_without_bias = is_wide ? (is_large ? 8192 : 3072) : SIZE_MAX, most_alone = 496;
    if (!HAS_SPECIAL_LOOPS)
        return rows;
    if (are_far && is_wide && !has_bias && channels <= MOST_CHANNELS_OF_SINGLE_ROWS && channels != 64 &&
        channels != 128)
        return rows;
    if (are_far && LANES == 8 && channels >= longest && channels <= MOST_CHANNELS_OF_SINGLE_ROWS && channels % 16 == 0)
        return rows;
    if (is_wide && !has_bias && channels >= BLOCK && channels <= most_alone)
        return rows;
    if (is_wide && has_bias && channels > BLOCK && channels <= MOST_SHORT(1))
        return rows <= few_long ? rows : 0;
    if (is_wide && channels > BLOCK && channels <= MOST_CHANNELS_OF_SINGLE_ROWS)
        return rows <= 4096 / channels ? rows : 0;
    if (channels <= MOST_CHANNELS_OF_SINGLE_ROWS)
        return rows <= few || (rows <= some && (channels <= shortest || channels >= longest)) ? rows : 0;
    return rows <= few_long || channels <= (has_bias ? most_with_bias : most_without_bias) ? rows : rows % group;
}

INLINE void go_to_next_row(struct one_row *row, size_t x_stride, size_t y_stride) {
    row->x += x_stride;
    row->y += y_stride;
    row->mean += row->mean ? 1 : 0;
    row->rstd += row->rstd ? 1 : 0;
}

/* With AVX-512 shorter rows are written while the end of the next row's sums is on its way. This took 0.77 to 1.09
   times as long on a Zen 4, mostly 0.9 to 1; but longer rows leave the nearest cache until then: 1.3 times as long for
   rows of 2048 channels. */
enum { MOST_CHANNELS_BEHIND = LANES == 16 ? 1024 : 0 };

INLINE size_t forward_rows_behind(struct one_row *row, size_t rows, size_t x_stride, size_t y_stride, int is_centered) {
    struct one_row before = *row;
    struct row_scale scale, scale_before;
    size_t done = 0;
    for (; done < rows && find_row_scale(&scale, row, is_centered); done++) {
        if (done)
            write_one_row(&before, &scale_before);
        scale_before = scale;
        before = *row;
        go_to_next_row(row, x_stride, y_stride);
    }
    if (done)
        write_one_row(&before, &scale_before);
    return done;
}

/* Rows one by one, as far as they are usual ones. Returns how many that are. */
INLINE size_t forward_rows_one_by_one(const struct forward_arguments *arguments, size_t first, size_t rows,
                                      const struct normalization *normalization) {
    const struct tensor *x = &arguments->x, *y = &arguments->y;
    ptrdiff_t tokens = 1;
    KEEP_IN_REGISTER(tokens); /* the compiler must not know it */
    if (!y->data || arguments->streams || x->axes != 1 || y->axes != 1 || !arguments->weight ||
        arguments->weight_offset != 0 || (normalization->has_bias && !arguments->bias))
        return 0;
    struct one_row row = {y->data + first * y->strides[0],
                          arguments->mean ? arguments->mean + first : NULL,
                          arguments->rstd ? arguments->rstd + first : NULL,
                          x->data + first * x->strides[0],
                          arguments->weight,
                          arguments->bias,
                          arguments->eps,
                          tokens,
                          (ptrdiff_t)arguments->channels};
    if (MOST_CHANNELS_BEHIND > 0 && arguments->channels <= MOST_CHANNELS_BEHIND)
        return forward_rows_behind(&row, rows, x->strides[0], y->strides[0], normalization->is_centered);
    size_t done = 0;
    for (; done < rows && one_row(&row, normalization->is_centered); done++)
        go_to_next_row(&row, x->strides[0], y->strides[0]);
    return done;
}

/* An operation's own function of this, which is not inlined. */
#define ROWS_ONE_BY_ONE(operation)                                                                                     \
    OUTLINED size_t operation##_rows_one_by_one(const struct forward_arguments *arguments, size_t first,               \
                                                size_t rows) {                                                         \
        return HAS_ROWS_ONE_BY_ONE ? forward_rows_one_by_one(arguments, first, rows, &operation##_normalization) : 0;  \
    }

/* One function for all operations of a unit: the loops that take time are functions of their own. */
SHARED_BY_KERNELS void forward_rows_of_call(const struct forward_arguments *arguments, size_t first, size_t rows,
                                            const struct operation *operation) {
    const struct normalization *normalization = operation->normalization;
    const struct split_rows *split = HAS_SPLIT_ROWS ? arguments->split : NULL;
    const size_t single = HAS_ROWS_ONE_BY_ONE && !split ? count_single(arguments, rows, normalization) : 0;
    if (single) {
        const size_t done = normalization->rows_one_by_one(arguments, first, single);
        first += done;
        rows -= done;
        if (!rows)
            return;
    }
    struct call_constants constants = operation->begin_call(split ? split->row_channels : arguments->channels,
                                                            arguments->eps, arguments->parameter, arguments->scale);
    constants.channels = arguments->channels;
    const int is_read_at_once = HAS_SPECIAL_LOOPS && constants.channels <= MOST_SHORT_CHANNELS;
    const size_t most = is_read_at_once ? constants.channels : BLOCK;
    float weight_buffer[MOST_SHORT_CHANNELS], bias_buffer[MOST_SHORT_CHANNELS];
    struct forward_call call = {
        .y = write_lines_directly(&arguments->y, constants.channels, arguments->streams),
        .weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer, most),
        .constants = &constants,
        .operation = operation,
        .split = split,
        .summed = HAS_SPECIAL_LOOPS ? arguments->summed : NULL,
        .fetches_to_write = arguments->fetches_to_write,
    };
    if (normalization->has_bias)
        call.bias = read_bias(arguments->bias, bias_buffer, most);
    if (is_read_at_once) {
        read_at_once(&call.weight, constants.channels);
        read_at_once(&call.bias, constants.channels);
    }
    struct shared_line line;
    begin_shared_line(&line, &call, arguments->x.strides[0], arguments->y.strides[0]);
    if (VEC_CAN_STREAM && HAS_SPECIAL_LOOPS && !split && (line.is_shared || constants.channels > BLOCK) &&
        takes_partial_lines(&call.y))
        call.line = &line;
    for (size_t row = first; row < first + rows; row += call.rows) {
        const size_t x_rows = rows_on_first_axis(&arguments->x, row), y_rows = rows_on_first_axis(&arguments->y, row);
        call.rows = first + rows - row;
        call.rows = call.rows < x_rows || call.summed ? call.rows : x_rows;
        call.rows = call.rows < y_rows || !arguments->y.data ? call.rows : y_rows;
        call.x = call.summed ? rows_of(&arguments->x) : rows_from(&arguments->x, row);
        call.split_row = arguments->split_row + row;
        call.y.rows = rows_from(&arguments->y, row);
        call.mean = arguments->mean ? arguments->mean + row : NULL;
        call.rstd = arguments->rstd ? arguments->rstd + row : NULL;
        forward_rows(&call, normalization);
    }
    end_writing(&call.y);
}

INLINE void forward_normalization(const struct forward_arguments *arguments, size_t first, size_t rows,
                                  const struct operation *operation) {
    forward_rows_of_call(arguments, first, rows, operation);
}

#endif
