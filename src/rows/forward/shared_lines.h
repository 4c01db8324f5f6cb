/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows of y that go past the caches, but need not begin or end with cache lines, in the forward pass of normalizations.
 *
 * Stores past the caches take whole lines. Where rows follow one another without gaps, and are written in order, the
 * line in which a row ends and the next one begins is computed at once: its first lanes with the constants of the one
 * row, the others with those of the other. Elsewhere what a row has of such a line is stored as usual, which is slow
 * where rows are short: see dispatch/caches.c.
 */
#ifndef DYNNORM_FORWARD_SHARED_LINES_H
#define DYNNORM_FORWARD_SHARED_LINES_H

#include "rows/forward/normalized_channels.h"

#include <string.h>

/* The line in which a row ends and the next one begins. */
struct shared_line {
    struct row_vectors before;        /* of the row that ends */
    float shift_before;               /* its shift, since what is pointed to may be another row's by now */
    float weight[2 * FLOATS_OF_LINE]; /* of the last channels, and of the first ones */
    float bias[2 * FLOATS_OF_LINE];
    int is_shared; /* otherwise both rows store their parts of it as usual */
    int waits;     /* the last channels of the row before are still to be written */
};

INLINE void copy_both_ends(float to[2 * FLOATS_OF_LINE], const float *vector, size_t channels) {
    memcpy(to, vector + channels - FLOATS_OF_LINE, FLOATS_OF_LINE * sizeof(float));
    memcpy(to + FLOATS_OF_LINE, vector, FLOATS_OF_LINE * sizeof(float));
}

/* For rows that have such lines. They are shared if weight and bias are read from their places. */
INLINE void begin_shared_line(struct shared_line *line, const struct forward_call *call, size_t x_stride,
                              size_t y_stride) {
    const int has_bias = call->operation->normalization->has_bias;
    const size_t channels = call->constants->channels;
    line->waits = 0;
    line->is_shared = channels >= FLOATS_OF_LINE && channels <= MOST_CHANNELS_WITH_SHARED_LINES &&
                      x_stride == channels && y_stride == channels && !call->summed && call->weight.values &&
                      call->weight.offset == 0 && (call->bias.values || !has_bias);
    if (!line->is_shared)
        return;
    copy_both_ends(line->weight, call->weight.values, channels);
    if (has_bias)
        copy_both_ends(line->bias, call->bias.values, channels);
}

/* The line before the first whole line of a row. */
INLINE void write_shared_line(const struct shared_line *line, const float *x, float *y, size_t to_line,
                              const struct row_vectors *row, const struct normalization *normalization) {
    const ptrdiff_t waiting = FLOATS_OF_LINE - (ptrdiff_t)to_line;
    const struct y_block block = {y - waiting, x - waiting, line->weight + to_line, line->bias + to_line, 0};
#pragma GCC unroll 2
    for (ptrdiff_t i = 0; i < FLOATS_OF_LINE; i += LANES) {
        const struct row_vectors both = {vec_join(waiting - i, line->before.rstd, row->rstd),
                                         vec_join(waiting - i, line->before.offset, row->offset), NULL, 0};
        vec of_x = vec_load(block.x + i);
        if (normalization->is_centered)
            of_x = vec_sub(of_x, vec_join(waiting - i, vec_set(line->shift_before), vec_set(*row->shift)));
        vec_stream(block.y + i, y_of_vector(of_x, &block, i, &both, normalization, 0));
    }
}

/* Channels [first, end) of a row, fewer than a line has. They are stored as usual. */
INLINE void write_end_of_row(const struct forward_call *call, size_t row, size_t first, size_t end,
                             const struct eight_rows *constants) {
    if (first < end)
        call->operation->normalization->write_block(call, row, (struct block){first, end - first}, constants, NULL);
}

/* All whole lines of a row. */
INLINE void write_lines(const struct forward_call *call, size_t row, struct block lines,
                        const struct row_vectors *vectors, const struct normalization *normalization) {
    const struct y_block block = {row_of(&call->y.rows, row) + lines.first, row_of(&call->x, row) + lines.first,
                                  call->weight.values + lines.first,
                                  normalization->has_bias ? call->bias.values + lines.first : NULL, 0};
    const ptrdiff_t count = (ptrdiff_t)lines.count;
#pragma GCC unroll 2
    for (ptrdiff_t i = 0; i < count; i += FLOATS_OF_LINE)
#pragma GCC unroll 4
        for (ptrdiff_t k = 0; k < FLOATS_OF_LINE; k += LANES)
            write_whole_vector(&block, i + k, vectors, normalization, SHIFTED | PAST_CACHES);
}

/* The part of a row that goes past the caches: from one cache line to another. What is left at the ends of the row is
 * written, or waits for the next row. */
INLINE struct block lines_of_row(const struct forward_call *call, size_t row, const struct eight_rows *constants,
                                 const struct normalization *normalization) {
    struct shared_line *const line = call->line;
    float *const y = row_of(&call->y.rows, row);
    const size_t channels = call->constants->channels, first = to_next_line(y);
    const size_t end = first + (channels - first) / FLOATS_OF_LINE * FLOATS_OF_LINE;
    const struct row_vectors vectors = vectors_of_row(constants, row % 8);
    if (!line->waits)
        write_end_of_row(call, row, 0, first, constants);
    else if (first)
        write_shared_line(line, row_of(&call->x, row), y, first, &vectors, normalization);
    if (!line->is_shared)
        write_end_of_row(call, row, end, channels, constants);
    line->before = vectors;
    line->shift_before = *vectors.shift;
    line->waits = line->is_shared;
    return (struct block){first, end - first};
}

/* What waits of a row, behind which there is none, or one that is not an ordinary one, is stored as usual. */
OUTLINED void end_shared_line(const struct forward_call *call, size_t row, const struct eight_rows *constants) {
    const size_t channels = call->constants->channels;
    if (!VEC_CAN_STREAM || !call->line || !call->line->waits)
        return;
    write_end_of_row(call, row, channels - (channels - to_next_line(row_of(&call->y.rows, row))) % FLOATS_OF_LINE,
                     channels, constants);
    call->line->waits = 0;
}

/* An operation's own function of this, which is not inlined. */
#define SHARED_LINES(operation)                                                                                        \
    OUTLINED struct block operation##_lines_of_row(const struct forward_call *call, size_t row,                        \
                                                   const struct eight_rows *constants) {                               \
        return lines_of_row(call, row, constants, &operation##_normalization);                                         \
    }

#endif
