/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums over the channels of a row: the one order in which every instruction set adds.
 *
 * 64 virtual lanes: lane k takes channels k, k + 64, k + 128, ... A row is cut into blocks of 256 channels, the last
 * padded with zeros to a multiple of 64. In a block each lane adds its up to four terms pairwise; lanes k and k + 32,
 * then k and k + 16, are added. The 16 sums that are left are added to 16 doubles; after the last block these are
 * combined: k with k + 8, + 4, + 2, + 1.
 *
 * The sums of x and x x, from which mean and rstd come, are doubles from the first term on: so these two are exact to
 * their own rounding, whatever the row. The sums with h are floats in a block: the bound of dx has room for that.
 */
#ifndef DYNNORM_ROW_SUMS_H
#define DYNNORM_ROW_SUMS_H

/* The terms at some channels: sums of x, x x, h and h x are taken, each where the caller asks for it; x less a shift
 * that is the same for the row. */
struct terms {
    vec x;
    wide x_wide; /* the same */
    vec h;
};

enum { SUM_X = 1, SUM_XX = 2, SUM_H = 4, SUM_HX = 8 };

struct row_sums {
    double x;
    double xx;
    double h;
    double hx;
};

/* Gives the terms of channels [first + i, first + i + LANES), of which only n exist: the others are the shift and 0.
 * block is what the block_function below gave for the block that begins at channel first. whole tells, at compile time,
 * that all of them exist. */
typedef struct terms terms_function(const void *context, const float *block, size_t first, size_t i, ptrdiff_t n,
                                    int whole);

INLINE vec load_terms(const float *p, ptrdiff_t n, vec fill, int whole) {
    return whole ? vec_load(p) : vec_load_n(p, n, fill);
}

INLINE wide load_wide_terms(const float *p, ptrdiff_t n, vec fill, int whole) {
    return whole ? wide_load_floats(p) : vec_widen(vec_load_n(p, n, fill));
}

/* Sums of some lanes. */
struct sum_vectors {
    wide x;
    wide xx;
    vec h;
    vec hx;
};

INLINE struct sum_vectors add_sum_vectors(struct sum_vectors a, struct sum_vectors b) {
    return (struct sum_vectors){wide_add(a.x, b.x), wide_add(a.xx, b.xx), vec_add(a.h, b.h), vec_add(a.hx, b.hx)};
}

/* The terms less the shift. */
struct shifted_terms {
    wide x;
    vec h;
    vec x_float;
};

INLINE struct shifted_terms shift_terms(struct terms terms, vec shift) {
    return (struct shifted_terms){wide_sub(terms.x_wide, vec_widen(shift)), terms.h, vec_sub(terms.x, shift)};
}

INLINE struct sum_vectors sum_single(struct shifted_terms a) {
    return (struct sum_vectors){a.x, wide_mul(a.x, a.x), a.h, vec_mul(a.h, a.x_float)};
}

/* Two terms of the same lanes. */
INLINE struct sum_vectors sum_pair(struct shifted_terms a, struct shifted_terms b) {
    return (struct sum_vectors){wide_add(a.x, b.x), wide_fma(b.x, b.x, wide_mul(a.x, a.x)), vec_add(a.h, b.h),
                                vec_fma(b.h, b.x_float, vec_mul(a.h, a.x_float))};
}

struct sum_lanes {
    wide x[16 / LANES];
    wide xx[16 / LANES];
    wide h[16 / LANES];
    wide hx[16 / LANES];
};

/* One block: n channels from first on, in spans of 64, the last of which may be partly there unless whole. spans and
 * whole are known at compile time; what is not asked for is never computed. */
INLINE void sum_block(struct sum_lanes *lanes, int which, terms_function *terms, const void *context, vec shift,
                      const float *block, size_t first, ptrdiff_t n, int spans, int whole) {
    for (int part = 0; part < 16 / LANES; part++) {
        struct sum_vectors quarter[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            struct shifted_terms term[4];
#pragma GCC unroll 4
            for (int span = 0; span < spans; span++) {
                ptrdiff_t i = 64 * span + 16 * q + LANES * part;
                term[span] =
                    shift_terms(terms(context, block, first, (size_t)i, n - i, whole || span < spans - 1), shift);
            }
            if (spans == 1)
                quarter[q] = sum_single(term[0]);
            else if (spans == 2)
                quarter[q] = sum_pair(term[0], term[1]);
            else if (spans == 3)
                quarter[q] = add_sum_vectors(sum_pair(term[0], term[1]), sum_single(term[2]));
            else
                quarter[q] = add_sum_vectors(sum_pair(term[0], term[1]), sum_pair(term[2], term[3]));
        }
        struct sum_vectors sum =
            add_sum_vectors(add_sum_vectors(quarter[0], quarter[2]), add_sum_vectors(quarter[1], quarter[3]));
        if (which & SUM_X)
            lanes->x[part] = wide_add(lanes->x[part], sum.x);
        if (which & SUM_XX)
            lanes->xx[part] = wide_add(lanes->xx[part], sum.xx);
        if (which & SUM_H)
            lanes->h[part] = wide_add(lanes->h[part], vec_widen(sum.h));
        if (which & SUM_HX)
            lanes->hx[part] = wide_add(lanes->hx[part], vec_widen(sum.hx));
    }
}

/* Gives what the terms of n <= BLOCK channels from first on need, as an array: weights, say. */
typedef const float *block_function(void *provider, size_t first, size_t n);

INLINE const float *weight_block(void *weight, size_t first, size_t n) {
    return parameter_block(weight, first, n);
}

INLINE void clear_sums(struct sum_lanes *lanes) {
    for (int part = 0; part < 16 / LANES; part++)
        lanes->x[part] = lanes->xx[part] = lanes->h[part] = lanes->hx[part] = wide_zero();
}

/* One block of n <= BLOCK channels; n < BLOCK only at the end of a row. */
INLINE void sum_channels(struct sum_lanes *lanes, int which, terms_function *terms, const void *context, float shift,
                         const float *block, size_t first, size_t n) {
    vec shift_all = vec_set(shift);
    ptrdiff_t count = (ptrdiff_t)n;
    if (n == BLOCK)
        sum_block(lanes, which, terms, context, shift_all, block, first, BLOCK, 4, 1);
    else if (n > 192)
        sum_block(lanes, which, terms, context, shift_all, block, first, count, 4, 0);
    else if (n > 128)
        sum_block(lanes, which, terms, context, shift_all, block, first, count, 3, 0);
    else if (n > 64)
        sum_block(lanes, which, terms, context, shift_all, block, first, count, 2, 0);
    else
        sum_block(lanes, which, terms, context, shift_all, block, first, count, 1, 0);
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
INLINE struct row_sums sum_row(int which, terms_function *terms, const void *context, float shift,
                               block_function *block, void *provider, size_t channels) {
    struct sum_lanes lanes;
    clear_sums(&lanes);
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        sum_channels(&lanes, which, terms, context, shift, block(provider, first, n), first, n);
    }
    return total_sums(&lanes, which);
}

#endif
