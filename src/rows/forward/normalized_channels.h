/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the loops of the forward pass of normalizations have in common: the call, y of some channels of a row whose
 * constants are known, and what is rare.
 */
#ifndef DYNNORM_FORWARD_NORMALIZED_CHANNELS_H
#define DYNNORM_FORWARD_NORMALIZED_CHANNELS_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/normalization.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/row_sums.h"
#include "rows/split_rows.h"
#include "rows/writer.h"

/* Loops made for short rows, and those that make the sums of some rows along with y of others, are the most code of
 * LayerNorm and RMSNorm. Plain C is as fast row by row. */
enum { HAS_SPECIAL_LOOPS = HAS_ROWS_ONE_BY_ONE && LANES > 1 };

/* The most channels of rows that go in groups of eight: at most a summed block, since the sums of such a row are
 * finished once. With AVX2 such rows of 320 to 768 channels took 0.70 to 0.95 times as long on a Zen 3 as by the loops
 * for long rows. Those of 1024 channels took 0.95 to 1 times with a bias, and without one 0.95 to 1.18. With AVX-512
 * those of 257 to 480 channels took 0.70 to 1.0 times with a bias on a Zen 4, but 1.04 to 1.12 times with 448 channels
 * from the third-level cache; those of 500 and 512 took 0.95 to 1.17 times; without a bias, those of 384 to 512
 * took 1.1 to 1.25 times. */
enum { MOST_SHORT_CHANNELS = !HAS_SPECIAL_LOOPS ? BLOCK : LANES == 16 ? 480 : SUMMED_BLOCK };
enum { MOST_SHORT_WITHOUT_BIAS = LANES == 16 || !HAS_SPECIAL_LOOPS ? BLOCK : 3 * BLOCK };
#define MOST_SHORT(has_bias) ((has_bias) ? MOST_SHORT_CHANNELS : MOST_SHORT_WITHOUT_BIAS)

#define SPECIAL_LOOP(function) (HAS_SPECIAL_LOOPS ? (function) : NULL)

struct shared_line;

/* Some rows of a call that are equally far apart, and what they have in common. */
struct forward_call {
    struct rows x;
    struct output y;
    struct reader weight;
    struct reader bias;
    float *mean; /* either may be NULL */
    float *rstd;
    size_t rows;
    const struct call_constants *constants;
    const struct operation *operation;
    const struct split_rows *split; /* NULL: rows are whole */
    size_t split_row;
    const struct summed_rows *summed; /* NULL: x is there */
    int fetches_to_write;             /* as in forward_arguments */
    struct shared_line *line;         /* set if y goes past the caches, but rows need not begin or end with lines */
};

/* ---- y of some channels ---- */

/* Where they lie. Without a bias, bias means nothing. */
struct y_block {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
    int fetches_to_write; /* lines of y */
};

/* How they are computed and stored, as constants. SHIFTED takes the shift from x, which is 0 in most rows. Loops in
 * which a subtraction for each vector would count ask for each span whether it is needed: MAY_BE_SHIFTED. */
enum { SHIFTED = 1, MAY_BE_SHIFTED = 2, PAST_CACHES = 4 };

INLINE struct row_vectors vectors_of_row(const struct eight_rows *rows, size_t row) {
    return (struct row_vectors){vec_set(rows->rstd[row]), vec_set(rows->offset[row]), &rows->shift[row], rows->shifted};
}

INLINE vec weigh(vec n, vec weight, vec bias, const struct normalization *normalization) {
    return normalization->has_bias ? vec_fma(n, weight, bias) : vec_mul(n, weight);
}

INLINE vec normalize(vec x, const struct row_vectors *row, const struct normalization *normalization, int how) {
    const int is_shifted = normalization->is_centered && how & SHIFTED;
    return normalization->normalize(is_shifted ? vec_sub(x, vec_set(*row->shift)) : x, row);
}

/* y of a whole vector of x. */
INLINE vec y_of_vector(vec x, const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                       const struct normalization *normalization, int how) {
    vec n = normalize(x, row, normalization, how), weight = vec_load(block->weight + i);
    return weigh(n, weight, normalization->has_bias ? vec_load(block->bias + i) : n, normalization);
}

INLINE void write_whole_vector(const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                               const struct normalization *normalization, int how) {
    vec y = y_of_vector(vec_load(block->x + i), block, i, row, normalization, how);
    if (how & PAST_CACHES)
        vec_stream(block->y + i, y);
    else
        vec_store(block->y + i, y);
}

INLINE void write_last_vector(const struct y_block *block, ptrdiff_t i, ptrdiff_t count, const struct row_vectors *row,
                              const struct normalization *normalization, int how) {
    vec zero = vec_set(0);
    vec n = normalize(vec_load_n(block->x + i, count, zero), row, normalization, how);
    vec weight = vec_load_n(block->weight + i, count, zero);
    vec bias = normalization->has_bias ? vec_load_n(block->bias + i, count, zero) : n;
    vec_store_n(block->y + i, weigh(n, weight, bias, normalization), count);
}

INLINE void write_span(const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                       const struct normalization *normalization, int how) {
    if (MAY_FETCH_WHAT_IS_WRITTEN && !(how & PAST_CACHES) && block->fetches_to_write) {
#pragma GCC unroll 16
        for (int k = 0; k < ROW_SPAN; k += FLOATS_OF_LINE)
            fetch_to_write(block->y + i + k, 0);
    }
    if (normalization->is_centered && how & MAY_BE_SHIFTED && __builtin_expect(row->shifted != 0, 0)) {
        MODEL_UNUSUAL();
#pragma GCC unroll 1
        for (int k = 0; k < ROW_SPAN; k += LANES)
            write_whole_vector(block, i + k, row, normalization, how | SHIFTED);
        return;
    }
#pragma GCC unroll 16
    for (int k = 0; k < ROW_SPAN; k += LANES)
        write_whole_vector(block, i + k, row, normalization, how);
}

/* What is less than a span from a channel on. The shift is always taken, which takes less code than to ask. */
INLINE void write_rest(const struct y_block *block, ptrdiff_t i, ptrdiff_t count, const struct row_vectors *row,
                       const struct normalization *normalization, int how) {
    const ptrdiff_t last = count - LANES;
#pragma GCC unroll 1
    for (; i <= last; i += LANES)
        write_whole_vector(block, i, row, normalization, how | SHIFTED);
    if (LANES > 1 && i < count)
        write_last_vector(block, i, count - i, row, normalization, how | SHIFTED);
}

INLINE void write_y(const struct y_block *block, ptrdiff_t count, const struct row_vectors *row,
                    const struct normalization *normalization, int how) {
    ptrdiff_t i = 0;
    for (; i + ROW_SPAN <= count; i += ROW_SPAN)
        write_span(block, i, row, normalization, how);
    write_rest(block, i, count, row, normalization, how);
}

INLINE void write_whole_span(const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                             const struct normalization *normalization, int how) {
    write_span(block, i, row, normalization, how);
    MODEL_PASS("y", 0, ROW_SPAN);
}

/* A block of a row that float can hold. An operation makes a function of its own of this, which is not inlined. */
INLINE void write_block_of_row(const struct forward_call *call, size_t row, struct block at,
                               const struct eight_rows *rows, struct write_buffer *buffer,
                               const struct normalization *normalization) {
    const struct reader x = read_row(&call->x, row);
    const struct y_block block = {block_to_write(&call->y, row, at, buffer), read_block(&x, at),
                                  read_block(&call->weight, at),
                                  normalization->has_bias ? read_block(&call->bias, at) : NULL, call->fetches_to_write};
    const size_t lane = row % 8;
    const struct row_vectors vectors = vectors_of_row(rows, lane);
    const ptrdiff_t count = (ptrdiff_t)at.count;
    if (VEC_CAN_STREAM && call->y.is_direct && !call->line)
        write_y(&block, count, &vectors, normalization, SHIFTED | PAST_CACHES);
    else /* plain C computes every row so */
        write_y(&block, count, &vectors, normalization, LANES > 1 ? SHIFTED : MAY_BE_SHIFTED);
    block_is_written(&call->y, row, at, buffer);
}

/* A row that float cannot hold, in double: y = weight n + bias, each operation rounded to double. */
RARE void write_row_in_double(const struct forward_call *call, const struct eight_rows *rows, size_t row,
                              struct write_buffer *buffer) {
    const int has_bias = call->operation->normalization->has_bias;
    const size_t channels = call->constants->channels, lane = row % 8;
    const wide mean = wide_set(rows->mean_in_double[lane]), rstd = wide_set(rows->rstd_in_double[lane]);
    const vec zero = vec_set(0);
    const struct reader x = read_row(&call->x, row);
    for (size_t first = 0; first < channels; first += BLOCK) {
        const struct block block = block_at(first, channels);
        const float *values = read_block(&x, block), *weight = read_block(&call->weight, block);
        const float *bias = has_bias ? read_block(&call->bias, block) : NULL;
        float *y = block_to_write(&call->y, row, block, buffer);
        for (size_t i = 0; i < block.count; i += LANES) {
            const struct place place = place_at(i, block.count);
            wide n = wide_mul(wide_sub(vec_widen(load_vector(values, place, zero)), mean), rstd);
            n = wide_mul(vec_widen(load_vector(weight, place, zero)), n);
            if (has_bias)
                n = wide_add(n, vec_widen(load_vector(bias, place, zero)));
            store_vector(y, place, wide_narrow(n));
        }
        block_is_written(&call->y, row, block, buffer);
    }
}

/* ---- Rows whose sums cannot be trusted ---- */

RARE void sum_unusual_split_row(struct unusual_row *row, const struct split_rows *split, size_t number,
                                int is_centered) {
    struct split_block block = before_split_blocks();
    *row = (struct unusual_row){0, 0, 0, 0};
    while (next_split_block(&block, split, number, FORWARD_SPLIT_DOUBLES(is_centered))) {
        struct totals sums = {0, block.sums[SPLIT_XX]}, trusted = {0, block.sums[SPLIT_TRUSTED_XX]};
        if (is_centered) {
            sums.x = block.sums[SPLIT_X];
            trusted.x = block.sums[SPLIT_TRUSTED_X];
        }
        add_block_to_unusual_row(row, block.channels, sums, trusted, is_centered);
    }
}

RARE void finish_unusual_row_of(const struct forward_call *call, struct eight_rows *rows, size_t row,
                                struct totals sums) {
    const int is_centered = call->operation->normalization->is_centered;
    struct unusual_row unusual;
    if (HAS_SPLIT_ROWS && call->split)
        sum_unusual_split_row(&unusual, call->split, call->split_row + row, is_centered);
    else
        sum_unusual_row(&unusual, row_of(&call->x, row), call->constants->channels, sums, is_centered);
    finish_unusual_row(rows, (int)(row % 8), &unusual, call->constants, is_centered);
}

RARE void finish_unusual_rows(const struct forward_call *call, struct eight_rows *rows, size_t group, unsigned unusual,
                              const struct folded_sums *sums) {
    double x[8], xx[8];
    eight_store(x, sums->x);
    eight_store(xx, sums->xx);
    for (size_t row = 0; row < 8; row++)
        if (unusual >> row & 1)
            finish_unusual_row_of(call, rows, group + row, (struct totals){x[row], xx[row]});
}

#endif
