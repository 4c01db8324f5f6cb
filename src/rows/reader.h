/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reading: every input, a row of a tensor or a vector of channels, comes to the drivers as blocks of floats. A block is
 * the caller's own memory where that already holds what is wanted, else a small buffer that stays in the nearest cache.
 */
#ifndef DYNNORM_READER_H
#define DYNNORM_READER_H

#include "rows/blocks.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/tensor.h"
#include "vec.h"

#include <stdint.h>

struct reader {
    const float *values; /* NULL: there is no such input, and the buffer holds what stands for it */
    float offset;        /* added to each value, the sum rounded to float */
    float *buffer;       /* for a block; NULL for a row of a tensor */
    const float *next;   /* the row to prefetch meanwhile, or NULL */
};

/* most: the channels of the longest block */
INLINE struct reader read_vector(const float *values, float offset, float absent, float *buffer, size_t most) {
    if (!values)
        for (size_t i = 0; i < most; i += LANES)
            vec_store(buffer + i, vec_set(absent));
    return (struct reader){values, offset, buffer, NULL};
}

/* A weight that is absent counts as 1. */
INLINE struct reader read_weight(const float *values, float offset, float *buffer, size_t most) {
    return read_vector(values, offset, 1, buffer, most);
}

/* A bias that is absent counts as -0, since fma(a, b, -0.0) is a b to the last bit, the sign of zero included. */
INLINE struct reader read_bias(const float *values, float *buffer, size_t most) {
    return read_vector(values, 0, -0.0f, buffer, most);
}

INLINE struct reader read_row(const struct rows *rows, size_t row) {
    return (struct reader){row_of(rows, row), 0, NULL, NULL};
}

/* Into the second-level cache. This pays for rows that come from beyond it, in a loop with too much arithmetic for the
 * CPU to look as far ahead by itself. */
INLINE void prefetch_block(const float *values, struct block block) {
    for (size_t i = 0; i < block.count; i += FLOATS_OF_LINE)
        __builtin_prefetch(values + block.first + i, 0, 2);
}

/* The cache line so many bytes behind a place, likewise. Nothing happens where there is no such line. */
INLINE void prefetch_line(const void *place, size_t bytes_behind) {
    __builtin_prefetch((const void *)((uintptr_t)place + bytes_behind), 0, 2);
}

/* The lines of so many bytes, a constant, likewise. */
INLINE void prefetch_lines(const void *place, size_t bytes, size_t bytes_behind) {
#pragma GCC unroll 16
    for (size_t i = 0; i < bytes; i += FLOATS_OF_LINE * sizeof(float))
        prefetch_line((const unsigned char *)place + i, bytes_behind);
}

/* How far ahead of what is read rows from memory are prefetched: as far as is enough, where rows follow one another
 * without gaps, and otherwise a row. In bytes or elements, as the arguments are. */
INLINE size_t prefetch_distance(size_t enough, size_t row, size_t stride) {
    return stride == row ? enough : stride;
}

/* How many rows before it is read a row that comes from memory is prefetched. A short one is, too, since the CPU by
 * itself begins anew at each page of memory. */
INLINE size_t rows_prefetched_ahead(size_t channels) {
    return channels <= BLOCK ? 16 : 4;
}

/* Has a later row prefetched while this one is read, if it is before the end. */
INLINE void prefetch_row(struct reader *reader, const struct rows *rows, size_t later, size_t end) {
    if (later < end)
        reader->next = row_of(rows, later);
}

/* A single value of a row. */
INLINE float read_value(const struct reader *row, size_t channel) {
    return load_float(row->values + channel);
}

INLINE const float *read_block(const struct reader *reader, struct block block) {
    if (reader->next)
        prefetch_block(reader->next, block);
    if (!reader->values)
        return reader->buffer;
    if (reader->offset == 0)
        return reader->values + block.first;
    float *buffer = reader->buffer + place_in_buffer(block);
    for (size_t i = 0; i < block.count; i += LANES) {
        const vec value = load_vector(reader->values + block.first, place_at(i, block.count), vec_set(0));
        vec_store(buffer + i, vec_add(value, vec_set(reader->offset)));
    }
    return buffer;
}

/* Reads all channels of a vector, whose buffer must have room for them. They are read as they are from then on. */
INLINE void read_at_once(struct reader *vector, size_t channels) {
    vector->values = read_block(vector, (struct block){0, channels});
    vector->offset = 0;
}

#endif
