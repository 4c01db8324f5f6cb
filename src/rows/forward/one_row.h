/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver for one row by itself, as a program that generates text token by token has it. Such a call takes tens of
 * nanoseconds, or, after other work has been through the caches, as long as it takes to fetch its code and data. So
 * this is little code, which needs no data but the call's own. It computes what forward_normalization computes, to the
 * last bit.
 */
#ifndef DYNNORM_FORWARD_ONE_ROW_H
#define DYNNORM_FORWARD_ONE_ROW_H

#include "inlining.h"
#include "rows/floats.h"
#include "rows/row_sums.h"
#include "vec.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct one_row {
    float *y;
    float
        *mean; /* NULL: not asked for, and so below. It means nothing where the mean is not taken out, nor does bias. */
    float *rstd;
    const float *x;
    const float *weight;
    const float *bias;
    float eps;
    ptrdiff_t tokens; /* 1. Where a register holds that, none needs to be loaded from memory. */
    ptrdiff_t channels;
};

/* ---- Sums ---- */

/* A CPU may convert to double where it adds. Then it adds elsewhere: x one + sum is x + sum to the last bit. */
enum { ADDS_PRODUCTS = LANES > 4 };

INLINE void add_sixteen_of_one_row(struct row_sums *sums, const float *x, ptrdiff_t count, int whole, const wide *one) {
    const struct span span = {
        .x = x, .count = count, .sixteens = 1, .whole_sixteens = whole, .one = ADDS_PRODUCTS ? one : NULL};
    add_span(sums, ROW_SUMS_IN_DOUBLE, &span);
}

/* one is 1, which the compiler must not know. */
INLINE struct totals sum_block_of_one_row(enum row_sums_in in, const float *x, ptrdiff_t channels, double one) {
    const wide ones = wide_set(one);
    struct row_sums sums;
    clear_row_sums(&sums, in);
    const ptrdiff_t rest = (ptrdiff_t)((size_t)channels % (in == ROW_SQUARES_IN_FLOAT ? ROW_SPAN : 16));
    const float *const end = x + (channels - rest);
    if (in == ROW_SQUARES_IN_FLOAT) {
        for (; x < end; x += ROW_SPAN)
            add_whole_span(&sums, in, x);
        if (rest)
            add_last_channels(&sums, in, x, rest);
    } else {
        for (; x < end; x += 16)
            add_sixteen_of_one_row(&sums, x, 16, 1, &ones);
        if (rest)
            add_sixteen_of_one_row(&sums, x, rest, 0, &ones);
    }
    return totals_of_block(&sums, in);
}

/* Vectors of 16 floats are four chains of additions, which take as long as each addition waits for the one before it.
 * Two blocks at once, of which neither waits for the other, are twice as many. */
enum { SUMS_TWO_BLOCKS = LANES == 16 };

INLINE void add_two_blocks_of_one_row(struct totals *totals, const float *x, double one) {
    const wide ones = wide_set(one);
    const float *const end = x + SUMMED_BLOCK;
    struct row_sums sums[2];
    clear_row_sums(&sums[0], ROW_SUMS_IN_DOUBLE);
    clear_row_sums(&sums[1], ROW_SUMS_IN_DOUBLE);
    for (; x < end; x += 16) {
        add_sixteen_of_one_row(&sums[0], x, 16, 1, &ones);
        add_sixteen_of_one_row(&sums[1], x + SUMMED_BLOCK, 16, 1, &ones);
    }
    add_totals(totals, totals_of_block(&sums[0], ROW_SUMS_IN_DOUBLE));
    add_totals(totals, totals_of_block(&sums[1], ROW_SUMS_IN_DOUBLE));
}

/* A row of any number of blocks, in code that shorter rows need not fetch. */
INLINE struct totals sum_blocks_of_one_row(enum row_sums_in in, const float *x, ptrdiff_t channels, double one) {
    struct totals sums = {0, 0};
    ptrdiff_t left = channels;
    if (SUMS_TWO_BLOCKS && in == ROW_SUMS_IN_DOUBLE)
        for (; left >= 2 * SUMMED_BLOCK; left -= 2 * SUMMED_BLOCK, x += 2 * SUMMED_BLOCK)
            add_two_blocks_of_one_row(&sums, x, one);
    for (; left > 0; left -= SUMMED_BLOCK, x += SUMMED_BLOCK)
        add_totals(&sums, sum_block_of_one_row(in, x, left < SUMMED_BLOCK ? left : SUMMED_BLOCK, one));
    return sums;
}

OUTLINED struct totals sum_long_row_in_double(const float *x, ptrdiff_t channels, double one) {
    return sum_blocks_of_one_row(ROW_SUMS_IN_DOUBLE, x, channels, one);
}

OUTLINED struct totals sum_long_row_of_squares(const float *x, ptrdiff_t channels, double one) {
    return sum_blocks_of_one_row(ROW_SQUARES_IN_FLOAT, x, channels, one);
}

INLINE struct totals sum_one_row(enum row_sums_in in, const float *x, ptrdiff_t channels, double one) {
    if (__builtin_expect(channels <= SUMMED_BLOCK, 1))
        return sum_block_of_one_row(in, x, channels, one);
    return in == ROW_SUMS_IN_DOUBLE ? sum_long_row_in_double(x, channels, one)
                                    : sum_long_row_of_squares(x, channels, one);
}

/* ---- The end of the sums ---- */

/* Whether 2^low <= value <= 2^high, by a comparison of bits, whose limits are part of the code. Not so if it is NaN. */
INLINE int is_between(double value, int low, int high) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits - ((uint64_t)(1023 + low) << 52) <= (uint64_t)(high - low) << 52;
}

struct row_end {
    double mean;
    double shift; /* a float */
    double rstd;
    int is_usual;
};

INLINE struct row_end end_with_mean(struct totals sums, double one, double reciprocal, ptrdiff_t channels, double eps) {
    double mean = sums.x * reciprocal, square = sums.xx * reciprocal;
    double variance = square - mean * mean, under_root = variance + eps, shift = 0;
    if (!(square <= variance + variance)) { /* as finish_row in operations/normalization.h, with its quotient */
        mean = sums.x / (double)channels;
        shift = (double)(float)mean;
    }
    return (struct row_end){mean, shift, one / sqrt(under_root),
                            is_between(under_root, -200, 200) & (square <= SQUARE_LIMIT * under_root)};
}

INLINE struct row_end end_without_mean(struct totals sums, double one, double reciprocal, double eps) {
    double under_root = sums.xx * reciprocal + eps;
    return (struct row_end){0, 0, one / sqrt(under_root), is_between(under_root, -110, 200)};
}

/* ---- y ---- */

struct row_scale {
    int has_mean;
    vec shift;
    vec rstd;
    vec offset;
};

INLINE vec load_of_row(const float *values, ptrdiff_t i, ptrdiff_t count, int whole) {
    return whole ? vec_load(values + i) : vec_load_n(values + i, count - i, vec_set(0));
}

/* y of up to LANES channels from i on; whole tells, when compiling, that there are as many. Where the mean is taken
   out, n = (x - shift) rstd + offset; shift is 0 unless the mean is larger than the deviation. */
INLINE void write_vector_of_one_row(const struct one_row *row, ptrdiff_t i, const struct row_scale *scale, int whole) {
    const ptrdiff_t count = row->channels;
    vec y, x = load_of_row(row->x, i, count, whole), weight = load_of_row(row->weight, i, count, whole);
    if (scale->has_mean)
        y = vec_fma(vec_fma(vec_sub(x, scale->shift), scale->rstd, scale->offset), weight,
                    load_of_row(row->bias, i, count, whole));
    else
        y = vec_mul(vec_mul(x, scale->rstd), weight);
    if (whole)
        vec_store(row->y + i, y);
    else
        vec_store_n(row->y + i, y, count - i);
}

INLINE void write_one_row(const struct one_row *row, const struct row_scale *scale) {
    const ptrdiff_t whole_sixteens = (ptrdiff_t)((size_t)row->channels / 16 * 16);
    ptrdiff_t i = 0;
    for (; i < whole_sixteens; i += 16)
        UNROLL_PARTS
    for (ptrdiff_t k = 0; k < 16; k += LANES)
        write_vector_of_one_row(row, i + k, scale, 1);
    for (; LANES < 16 && i + LANES <= row->channels; i += LANES)
        write_vector_of_one_row(row, i, scale, 1);
    if (LANES > 1 && i < row->channels)
        write_vector_of_one_row(row, i, scale, 0);
}

/* ---- The driver ---- */

/* Makes the sums of a row, its statistics, and what y is made with. Returns 0, and has written nothing, if the row is
 * one that only the kernel for any rows understands. */
INLINE int find_row_scale(struct row_scale *scale, const struct one_row *row, int has_mean) {
    const double one = (double)row->tokens, reciprocal = one / (double)row->channels;
    const struct totals sums =
        sum_one_row(has_mean ? ROW_SUMS_IN_DOUBLE : ROW_SQUARES_IN_FLOAT, row->x, row->channels, one);
    const struct row_end end = has_mean ? end_with_mean(sums, one, reciprocal, row->channels, (double)row->eps)
                                        : end_without_mean(sums, one, reciprocal, (double)row->eps);
    if (__builtin_expect(!end.is_usual, 0))
        return 0;
    const float rstd = (float)end.rstd;
    *scale = (struct row_scale){has_mean, vec_set((float)end.shift), vec_set(rstd),
                                vec_set((float)((end.shift - end.mean) * (double)rstd))};
    if (has_mean && row->mean)
        store_float(row->mean, (float)end.mean);
    if (row->rstd)
        store_float(row->rstd, rstd);
    return 1;
}

/* The same, and y. */
INLINE int one_row(const struct one_row *row, int has_mean) {
    struct row_scale scale;
    if (!find_row_scale(&scale, row, has_mean))
        return 0;
    write_one_row(row, &scale);
    return 1;
}

#endif
