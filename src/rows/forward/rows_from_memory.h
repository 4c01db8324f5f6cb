/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations for rows that come from memory, one by one: see forward/normalization.h.
 *
 * What takes longest is to read them. Stores of y past the caches take the buffers that prefetched lines need, so that
 * the CPU drops many of these. Each line is therefore asked for twice: while y of a row before it is computed, and once
 * more shortly before its own row is summed. On a Zen 4, with AVX-512 and AVX2, rows of 320 to 8192 channels took 0.73
 * to 0.95 times as long as by the loops for rows in the caches, which had asked for each line once, and RMSNorm's of
 * 8192 channels 0.95 to 1.0 times. LayerNorm's rows that go in groups of eight (see are_short_rows) took 1.0 to 1.1
 * times as long by this loop.
 *
 * A row that is made before it is summed is not prefetched, but what it is made of is, likewise. Such rows of 512
 * channels took 0.65 to 0.92 times as long as by those loops, and with AVX2 rows of 1024 to 8192 channels 0.76 to 1.03
 * times. For AVX-512 see kernel_should_sum_floats in api/residual.c.
 */
#ifndef DYNNORM_FORWARD_ROWS_FROM_MEMORY_H
#define DYNNORM_FORWARD_ROWS_FROM_MEMORY_H

#include "rows/forward/long_rows.h"
#include "rows/forward/shared_lines.h"

enum { BYTES_OF_SPAN = ROW_SPAN * sizeof(float) };

INLINE struct totals sum_row_from_memory(const struct forward_call *call, size_t row, size_t bytes_ahead,
                                         const struct normalization *normalization) {
    const size_t channels = call->constants->channels;
    struct totals totals = {0, 0};
    float *x = row_of(&call->x, row);
    /* Where there are no gaps the end of the row before is in this line, too. */
    if (call->line && !call->line->is_shared)
        fetch_to_write(row_of(&call->y.rows, row), 0);
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK, x += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        struct row_sums sums;
        size_t i = 0;
        if (call->summed)
            make_sums(call->summed, x - first, row, block);
        clear_row_sums(&sums, normalization->sums_in);
        for (; i + ROW_SPAN <= block.count; i += ROW_SPAN) {
            if (bytes_ahead)
                prefetch_lines(x + i, BYTES_OF_SPAN, bytes_ahead);
            add_whole_span(&sums, normalization->sums_in, x + i);
        }
        if (bytes_ahead && i < block.count)
            prefetch_lines(x + i, BYTES_OF_SPAN, bytes_ahead);
        add_last_channels(&sums, normalization->sums_in, x + i, (ptrdiff_t)(block.count - i));
        add_totals(&totals, totals_of_block(&sums, normalization->sums_in));
    }
    return totals;
}

/* What is prefetched while y of a row is computed: x of a later one, or the two rows of which that will be made. */
struct later_row {
    const void *a;
    const void *b; /* or NULL */
};

INLINE struct later_row later_row(const struct forward_call *call, size_t row, size_t rows_ahead) {
    const struct summed_rows *summed = call->summed;
    const size_t later = smaller(row + rows_ahead, call->rows - 1);
    if (!summed)
        return (struct later_row){row_of(&call->x, later), NULL};
    return (struct later_row){address_of_row(&summed->a, summed->first + later),
                              address_of_row(&summed->b, summed->first + later)};
}

INLINE void prefetch_span_of_later_row(const struct later_row *row, size_t channel) {
    prefetch_lines(row->a, BYTES_OF_SPAN, channel * sizeof(float));
    if (row->b)
        prefetch_lines(row->b, BYTES_OF_SPAN, channel * sizeof(float));
}

/* Some channels of a row, from one on that is at the beginning of a cache line of y, which goes past the caches where
 * vectors can. */
INLINE void write_channels_past_caches(const struct y_block *y, struct block channels, const struct row_vectors *row,
                                       const struct later_row *later, const struct normalization *normalization) {
    enum { HOW = VEC_CAN_STREAM ? PAST_CACHES : 0 };
    size_t i = 0;
    for (; i + ROW_SPAN <= channels.count; i += ROW_SPAN) {
        prefetch_span_of_later_row(later, channels.first + i);
        write_span(y, (ptrdiff_t)i, row, normalization, MAY_BE_SHIFTED | HOW);
    }
    if (i < channels.count)
        prefetch_span_of_later_row(later, channels.first + i);
    write_rest(y, (ptrdiff_t)i, (ptrdiff_t)channels.count, row, normalization, HOW);
}

INLINE void write_row_past_caches(const struct forward_call *call, struct long_rows *rows, size_t row,
                                  size_t rows_ahead, const struct normalization *normalization) {
    const struct eight_rows *constants = constants_of(rows, row);
    struct block lines = {0, call->constants->channels};
    if (constants->in_double >> row % 8 & 1) {
        end_shared_line(call, row - 1, constants_of(rows, row - 1));
        write_row_in_double(call, constants, row, &rows->buffer);
        return;
    }
    if (VEC_CAN_STREAM && call->line)
        lines = normalization->lines_of_row(call, row, constants);
    const struct row_vectors vectors = vectors_of_row(constants, row % 8);
    const struct later_row later = later_row(call, row, rows_ahead);
    const size_t end = lines.first + lines.count;
    for (size_t first = lines.first; first < end; first += rows->most) {
        const struct block block = {first, smaller(rows->most, end - first)};
        const struct y_block y = {
            row_of(&call->y.rows, row) + first, row_of(&call->x, row) + first, read_block(&call->weight, block),
            normalization->has_bias ? read_block(&call->bias, block) : NULL, call->fetches_to_write};
        write_channels_past_caches(&y, block, &vectors, &later, normalization);
    }
}

INLINE void forward_rows_from_memory(const struct forward_call *call, struct long_rows *rows,
                                     const struct normalization *normalization) {
    enum { BYTES_AHEAD = 8192 };
    const size_t bytes_of_row = call->constants->channels * sizeof(float), stride = call->x.stride * sizeof(float);
    const size_t rows_ahead = (BYTES_AHEAD + bytes_of_row - 1) / bytes_of_row;
    const int is_long = bytes_of_row >= 2 * BYTES_AHEAD;
    const size_t ahead = is_long ? BYTES_AHEAD : prefetch_distance(BYTES_AHEAD, bytes_of_row, stride);
    const size_t ahead_of_sums = call->summed ? 0 : ahead;
    for (size_t row = 0; row < call->rows; row++) {
        finish_long_row(call, rows, sum_row_from_memory(call, row, ahead_of_sums, normalization), row, normalization);
        write_row_past_caches(call, rows, row, rows_ahead, normalization);
    }
}

/* An operation's own function of this, which is not inlined. */
#define ROWS_FROM_MEMORY(operation)                                                                                    \
    OUTLINED void operation##_forward_rows_from_memory(const struct forward_call *call, struct long_rows *rows) {      \
        forward_rows_from_memory(call, rows, &operation##_normalization);                                              \
    }

#endif
