/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums over the channels of a row: the one order in which every instruction set adds.
 *
 * 64 virtual lanes: lane k takes channels k, k + 64, k + 128, ... A row is cut into blocks of 256 channels, the last
 * padded with zeros to a multiple of 64. In a block each lane adds its up to four terms pairwise; lanes k and k + 32,
 * then k and k + 16, are added. The 16 sums that are left are added to 16 doubles; after the last block these are
 * combined: k with k + 8, + 4, + 2, + 1.
 *
 * Sums are doubles from the first term on, and then exact to their own rounding, whatever the row; or, where the caller
 * has room for it, floats in a block, or over a lane's four terms of a block.
 */
#ifndef DYNNORM_ROW_SUMS_H
#define DYNNORM_ROW_SUMS_H

#include "model_marks.h"

/* The sums that can be asked for, of h and of x less a shift that is the same for the row. IN_FLOATS: as floats in a
 * block, and without SUM_XX. IN_FOURS: as floats over the terms of one lane in a block, which costs a sum of squares
 * three roundings at most. */
enum { SUM_X = 1, SUM_XX = 2, SUM_H = 4, SUM_HX = 8, IN_FLOATS = 16, IN_FOURS = 32 };

struct row_sums {
    double x;
    double xx;
    double h;
    double hx;
};

INLINE vec load_terms(const float *p, ptrdiff_t n, vec fill, int whole) {
    return whole ? vec_load(p) : vec_load_n(p, n, fill);
}

INLINE wide load_wide_terms(const float *p, ptrdiff_t n, vec fill, int whole) {
    return whole ? wide_load_floats(p) : vec_widen(vec_load_n(p, n, fill));
}

/* Gives h at channels [first + i, first + i + LANES), of which only n exist: the others are 0. block is what the
 * block_function below gave for the block that begins at channel first. whole tells, at compile time, that all exist.
 */
typedef vec h_function(const void *context, const float *block, size_t first, size_t i, ptrdiff_t n, int whole);

/* What is summed. */
struct summed_row {
    const float *x; /* NULL where no sum with x is asked for */
    vec shift;
    h_function *h; /* NULL where no sum with h is asked for */
    const void *context;
};

/* The terms at LANES channels, and sums of such: as doubles, or as floats. What is not asked for is not set. */
struct terms {
    wide x;
    wide h;
    vec x_float;
    vec h_float;
};

struct sum_vectors {
    wide x;
    wide xx;
    wide h;
    wide hx;
    vec x_float;
    vec xx_float;
    vec h_float;
    vec hx_float;
};

/* Whether a sum is asked for, as double or as float. */
INLINE int asks(int which, int sum, int in_floats) {
    return (which & sum) && !(which & IN_FLOATS) == !in_floats;
}

INLINE struct terms terms_at(int which, const struct summed_row *row, const float *block, size_t first, size_t i,
                             ptrdiff_t n, int whole) {
    struct terms terms;
    if (asks(which, SUM_X | SUM_XX | SUM_HX, 0))
        terms.x = wide_sub(load_wide_terms(row->x + first + i, n, row->shift, whole), vec_widen(row->shift));
    if (asks(which, SUM_X | SUM_XX | SUM_HX, 1))
        terms.x_float = vec_sub(load_terms(row->x + first + i, n, row->shift, whole), row->shift);
    if (which & (SUM_H | SUM_HX))
        terms.h_float = row->h(row->context, block, first, i, n, whole);
    if (asks(which, SUM_H | SUM_HX, 0))
        terms.h = vec_widen(terms.h_float);
    return terms;
}

INLINE struct sum_vectors sum_single(int which, struct terms a) {
    struct sum_vectors sum;
    if (asks(which, SUM_X, 0))
        sum.x = a.x;
    if (asks(which, SUM_XX, 0))
        sum.xx = wide_mul(a.x, a.x);
    if (asks(which, SUM_H, 0))
        sum.h = a.h;
    if (asks(which, SUM_HX, 0))
        sum.hx = wide_mul(a.h, a.x);
    if (asks(which, SUM_X, 1))
        sum.x_float = a.x_float;
    if (asks(which, SUM_XX, 1))
        sum.xx_float = vec_mul(a.x_float, a.x_float);
    if (asks(which, SUM_H, 1))
        sum.h_float = a.h_float;
    if (asks(which, SUM_HX, 1))
        sum.hx_float = vec_mul(a.h_float, a.x_float);
    return sum;
}

/* Two terms of the same lanes. */
INLINE struct sum_vectors sum_pair(int which, struct terms a, struct terms b) {
    struct sum_vectors sum;
    if (asks(which, SUM_X, 0))
        sum.x = wide_add(a.x, b.x);
    if (asks(which, SUM_XX, 0))
        sum.xx = wide_fma(b.x, b.x, wide_mul(a.x, a.x));
    if (asks(which, SUM_H, 0))
        sum.h = wide_add(a.h, b.h);
    if (asks(which, SUM_HX, 0))
        sum.hx = wide_fma(b.h, b.x, wide_mul(a.h, a.x));
    if (asks(which, SUM_X, 1))
        sum.x_float = vec_add(a.x_float, b.x_float);
    if (asks(which, SUM_XX, 1))
        sum.xx_float = vec_fma(b.x_float, b.x_float, vec_mul(a.x_float, a.x_float));
    if (asks(which, SUM_H, 1))
        sum.h_float = vec_add(a.h_float, b.h_float);
    if (asks(which, SUM_HX, 1))
        sum.hx_float = vec_fma(b.h_float, b.x_float, vec_mul(a.h_float, a.x_float));
    return sum;
}

INLINE struct sum_vectors add_sum_vectors(int which, struct sum_vectors a, struct sum_vectors b) {
    struct sum_vectors sum;
    if (asks(which, SUM_X, 0))
        sum.x = wide_add(a.x, b.x);
    if (asks(which, SUM_XX, 0))
        sum.xx = wide_add(a.xx, b.xx);
    if (asks(which, SUM_H, 0))
        sum.h = wide_add(a.h, b.h);
    if (asks(which, SUM_HX, 0))
        sum.hx = wide_add(a.hx, b.hx);
    if (asks(which, SUM_X, 1))
        sum.x_float = vec_add(a.x_float, b.x_float);
    if (asks(which, SUM_XX, 1))
        sum.xx_float = vec_add(a.xx_float, b.xx_float);
    if (asks(which, SUM_H, 1))
        sum.h_float = vec_add(a.h_float, b.h_float);
    if (asks(which, SUM_HX, 1))
        sum.hx_float = vec_add(a.hx_float, b.hx_float);
    return sum;
}

INLINE struct sum_vectors widen_sums(int which, struct sum_vectors a) {
    struct sum_vectors sum;
    if (which & SUM_X)
        sum.x = vec_widen(a.x_float);
    if (which & SUM_XX)
        sum.xx = vec_widen(a.xx_float);
    if (which & SUM_H)
        sum.h = vec_widen(a.h_float);
    if (which & SUM_HX)
        sum.hx = vec_widen(a.hx_float);
    return sum;
}

/* Lanes are held in parts, of one vector each. Unrolled they stay in registers; in memory, AVX2's would be cleared by
 * stores too narrow to be forwarded to the loads after them. Plain C has too many. */
enum { UNROLLED_PARTS = LANES < 4 ? 1 : 4 };

struct sum_lanes {
    wide x[16 / LANES];
    wide xx[16 / LANES];
    wide h[16 / LANES];
    wide hx[16 / LANES];
};

/* One block: n channels from first on, in spans of 64, the last of which may be partly there unless whole. which, spans
 * and whole are known at compile time. */
INLINE void sum_block(struct sum_lanes *lanes, int which, const struct summed_row *row, const float *block,
                      size_t first, ptrdiff_t n, int spans, int whole) {
    int in_lane = which & IN_FOURS ? which | IN_FLOATS : which;
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < 16 / LANES; part++) {
        struct sum_vectors quarter[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            struct terms term[4];
#pragma GCC unroll 4
            for (int span = 0; span < spans; span++) {
                ptrdiff_t i = 64 * span + 16 * q + LANES * part;
                term[span] = terms_at(in_lane, row, block, first, (size_t)i, n - i, whole || span < spans - 1);
            }
            quarter[q] = spans == 1 ? sum_single(in_lane, term[0]) : sum_pair(in_lane, term[0], term[1]);
            if (spans == 3)
                quarter[q] = add_sum_vectors(in_lane, quarter[q], sum_single(in_lane, term[2]));
            else if (spans == 4)
                quarter[q] = add_sum_vectors(in_lane, quarter[q], sum_pair(in_lane, term[2], term[3]));
            if (which & IN_FOURS)
                quarter[q] = widen_sums(which, quarter[q]);
        }
        struct sum_vectors sum = add_sum_vectors(which, add_sum_vectors(which, quarter[0], quarter[2]),
                                                 add_sum_vectors(which, quarter[1], quarter[3]));
        if (which & IN_FLOATS)
            sum = widen_sums(which, sum);
        if (which & SUM_X)
            lanes->x[part] = wide_add(lanes->x[part], sum.x);
        if (which & SUM_XX)
            lanes->xx[part] = wide_add(lanes->xx[part], sum.xx);
        if (which & SUM_H)
            lanes->h[part] = wide_add(lanes->h[part], sum.h);
        if (which & SUM_HX)
            lanes->hx[part] = wide_add(lanes->hx[part], sum.hx);
        if (whole)
            MODEL_PASS("sums", which, 4 * spans * LANES);
    }
}

/* Gives what h at n <= BLOCK channels from first on needs, as an array: weights, say. */
typedef const float *block_function(void *provider, size_t first, size_t n);

INLINE const float *weight_block(void *weight, size_t first, size_t n) {
    return parameter_block(weight, first, n);
}

INLINE void clear_sums(struct sum_lanes *lanes) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < 16 / LANES; part++)
        lanes->x[part] = lanes->xx[part] = lanes->h[part] = lanes->hx[part] = wide_set(0);
}

/* One block of n <= BLOCK channels; n < BLOCK only at the end of a row. */
INLINE void sum_channels(struct sum_lanes *lanes, int which, const struct summed_row *row, const float *block,
                         size_t first, size_t n) {
    ptrdiff_t count = (ptrdiff_t)n;
    if (n == BLOCK)
        sum_block(lanes, which, row, block, first, BLOCK, 4, 1);
    else if (n > 192)
        sum_block(lanes, which, row, block, first, count, 4, 0);
    else if (n > 128)
        sum_block(lanes, which, row, block, first, count, 3, 0);
    else if (n == 128)
        sum_block(lanes, which, row, block, first, 128, 2, 1);
    else if (n > 64)
        sum_block(lanes, which, row, block, first, count, 2, 0);
    else if (n == 64)
        sum_block(lanes, which, row, block, first, 64, 1, 1);
    else
        sum_block(lanes, which, row, block, first, count, 1, 0);
}

INLINE struct row_sums total_sums(const struct sum_lanes *lanes, int which) {
    struct row_sums sums = {0, 0, 0, 0};
    if (which & SUM_X)
        sums.x = wide_sum(lanes->x);
    if (which & SUM_XX)
        sums.xx = wide_sum(lanes->xx);
    if (which & SUM_H)
        sums.h = wide_sum(lanes->h);
    if (which & SUM_HX)
        sums.hx = wide_sum(lanes->hx);
    return sums;
}

/* The sums of a row. */
INLINE struct row_sums sum_row(int which, const struct summed_row *row, block_function *block, void *provider,
                               size_t channels) {
    struct sum_lanes lanes;
    clear_sums(&lanes);
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        sum_channels(&lanes, which, row, block(provider, first, n), first, n);
    }
    return total_sums(&lanes, which);
}

#endif
