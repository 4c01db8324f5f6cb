/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums over the channels of a row: the one order in which every instruction set adds.
 *
 * There are 64 virtual lanes: lane k takes channels k, k + 64, k + 128, ... A row is cut into blocks of 256 channels,
 * in which each lane has up to four terms. These are added pairwise; then the lanes k and k + 32 are added, then k and
 * k + 16. The 16 sums that are left are added to 16 doubles, which the last block's end combines: k with k + 8, + 4, +
 * 2,
 * + 1. Channels beyond the end of a row count as zeros.
 *
 * There are three ways to make the sums of a block. In double from the first term on: they are then exact to their own
 * rounding, whatever the row. In float within the block, where the bounds leave room for it. And sums of squares in
 * float over the four terms of a lane, which costs three roundings.
 */
#ifndef DYNNORM_CHANNEL_SUMS_H
#define DYNNORM_CHANNEL_SUMS_H

#include "rows/blocks.h"
#include "vec.h"

enum channel_sums_in { SUMS_IN_DOUBLE, SUMS_IN_FLOAT, SQUARES_IN_FLOAT };

/* A row's values in one block: the sums are those of x - shift, of its square, of h = a b, and of h (x - shift). A sum
 * that its user never looks at costs nothing, since the compiler drops it. */
struct summed_block {
    const float *x;
    vec shift;
    const float *a; /* NULL: no h */
    const float *b; /* NULL: h = a */
};

/* The 16 lanes are held in parts of one vector each. They are unrolled to stay in registers: in memory, AVX2's would be
 * cleared by stores too narrow to be forwarded to the loads that follow. Plain C has too many of them. */
enum { PARTS = 16 / LANES, UNROLLED_PARTS = LANES < 8 ? 1 : 4 };

struct channel_sums {
    wide x[PARTS];
    wide xx[PARTS];
    wide h[PARTS];
    wide hx[PARTS];
};

INLINE void clear_sums(struct channel_sums *sums) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++)
        sums->x[part] = sums->xx[part] = sums->h[part] = sums->hx[part] = wide_set(0);
}

/* The vectors at one place of a block. count channels exist from there on; whole tells, when compiling, that all do. */
struct place {
    ptrdiff_t channel;
    ptrdiff_t count;
    int whole;
};

INLINE vec load_vector(const float *values, struct place place, vec fill) {
    return place.whole ? vec_load(values + place.channel) : vec_load_n(values + place.channel, place.count, fill);
}

INLINE void store_vector(float *values, struct place place, vec a) {
    if (place.whole)
        vec_store(values + place.channel, a);
    else
        vec_store_n(values + place.channel, a, place.count);
}

INLINE vec load_product(const struct summed_block *block, struct place place) {
    vec zero = vec_set(0);
    if (!block->a)
        return zero;
    vec a = load_vector(block->a, place, zero);
    return block->b ? vec_mul(a, load_vector(block->b, place, zero)) : a;
}

/* ---- In double ---- */

struct wide_terms {
    wide x;
    wide h;
};

struct wide_sums {
    wide x;
    wide xx;
    wide h;
    wide hx;
};

INLINE struct wide_terms wide_terms_at(const struct summed_block *block, struct place place) {
    wide x = place.whole ? wide_load_floats(block->x + place.channel)
                         : vec_widen(vec_load_n(block->x + place.channel, place.count, block->shift));
    return (struct wide_terms){wide_sub(x, vec_widen(block->shift)), vec_widen(load_product(block, place))};
}

INLINE struct wide_sums wide_single(struct wide_terms a) {
    return (struct wide_sums){a.x, wide_mul(a.x, a.x), a.h, wide_mul(a.h, a.x)};
}

INLINE struct wide_sums wide_pair(struct wide_terms a, struct wide_terms b) {
    return (struct wide_sums){wide_add(a.x, b.x), wide_fma(b.x, b.x, wide_mul(a.x, a.x)), wide_add(a.h, b.h),
                              wide_fma(b.h, b.x, wide_mul(a.h, a.x))};
}

INLINE struct wide_sums add_wide_sums(struct wide_sums a, struct wide_sums b) {
    return (struct wide_sums){wide_add(a.x, b.x), wide_add(a.xx, b.xx), wide_add(a.h, b.h), wide_add(a.hx, b.hx)};
}

/* ---- In float ---- */

struct float_terms {
    vec x;
    vec h;
};

struct float_sums {
    vec x;
    vec xx;
    vec h;
    vec hx;
};

INLINE struct float_terms float_terms_at(const struct summed_block *block, struct place place) {
    return (struct float_terms){vec_sub(load_vector(block->x, place, block->shift), block->shift),
                                load_product(block, place)};
}

INLINE struct float_sums float_single(struct float_terms a) {
    return (struct float_sums){a.x, vec_mul(a.x, a.x), a.h, vec_mul(a.h, a.x)};
}

INLINE struct float_sums float_pair(struct float_terms a, struct float_terms b) {
    return (struct float_sums){vec_add(a.x, b.x), vec_fma(b.x, b.x, vec_mul(a.x, a.x)), vec_add(a.h, b.h),
                               vec_fma(b.h, b.x, vec_mul(a.h, a.x))};
}

INLINE struct float_sums add_float_sums(struct float_sums a, struct float_sums b) {
    return (struct float_sums){vec_add(a.x, b.x), vec_add(a.xx, b.xx), vec_add(a.h, b.h), vec_add(a.hx, b.hx)};
}

INLINE struct wide_sums widen_sums(struct float_sums a) {
    return (struct wide_sums){vec_widen(a.x), vec_widen(a.xx), vec_widen(a.h), vec_widen(a.hx)};
}

/* ---- A block ---- */

/* One to four terms of each of a vector's lanes, which lie 64 channels apart: spans says how many there are. */
INLINE struct wide_sums sum_lane_in_double(const struct summed_block *block, struct place place, int spans) {
    struct place places[4];
#pragma GCC unroll 4
    for (int span = 0; span < 4; span++)
        places[span] = (struct place){place.channel + 64 * span, place.count - 64 * span, place.whole};
    if (spans == 1)
        return wide_single(wide_terms_at(block, places[0]));
    struct wide_sums sum = wide_pair(wide_terms_at(block, places[0]), wide_terms_at(block, places[1]));
    if (spans == 3)
        sum = add_wide_sums(sum, wide_single(wide_terms_at(block, places[2])));
    if (spans == 4)
        sum = add_wide_sums(sum, wide_pair(wide_terms_at(block, places[2]), wide_terms_at(block, places[3])));
    return sum;
}

INLINE struct float_sums sum_lane_in_float(const struct summed_block *block, struct place place, int spans) {
    struct place places[4];
#pragma GCC unroll 4
    for (int span = 0; span < 4; span++)
        places[span] = (struct place){place.channel + 64 * span, place.count - 64 * span, place.whole};
    if (spans == 1)
        return float_single(float_terms_at(block, places[0]));
    struct float_sums sum = float_pair(float_terms_at(block, places[0]), float_terms_at(block, places[1]));
    if (spans == 3)
        sum = add_float_sums(sum, float_single(float_terms_at(block, places[2])));
    if (spans == 4)
        sum = add_float_sums(sum, float_pair(float_terms_at(block, places[2]), float_terms_at(block, places[3])));
    return sum;
}

INLINE void add_spans(struct channel_sums *sums, enum channel_sums_in in, const struct summed_block *block,
                      ptrdiff_t count, int spans, int whole) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        struct wide_sums quarters[4];
        struct float_sums float_quarters[4];
#pragma GCC unroll 4
        for (int quarter = 0; quarter < 4; quarter++) {
            ptrdiff_t channel = 16 * quarter + LANES * part;
            struct place place = {channel, count - channel, whole};
            if (in != SUMS_IN_DOUBLE)
                float_quarters[quarter] = sum_lane_in_float(block, place, spans);
            if (in == SQUARES_IN_FLOAT)
                quarters[quarter] = widen_sums(float_quarters[quarter]);
            else if (in == SUMS_IN_DOUBLE)
                quarters[quarter] = sum_lane_in_double(block, place, spans);
        }
        struct wide_sums sum;
        if (in == SUMS_IN_FLOAT)
            sum = widen_sums(add_float_sums(add_float_sums(float_quarters[0], float_quarters[2]),
                                            add_float_sums(float_quarters[1], float_quarters[3])));
        else
            sum = add_wide_sums(add_wide_sums(quarters[0], quarters[2]), add_wide_sums(quarters[1], quarters[3]));
        sums->x[part] = wide_add(sums->x[part], sum.x);
        sums->xx[part] = wide_add(sums->xx[part], sum.xx);
        sums->h[part] = wide_add(sums->h[part], sum.h);
        sums->hx[part] = wide_add(sums->hx[part], sum.hx);
    }
}

/* A block of count <= BLOCK channels; fewer only at the end of a row. */
INLINE void add_block_sums(struct channel_sums *sums, enum channel_sums_in in, const struct summed_block *block,
                           size_t count) {
    enum { SPAN = BLOCK / 4 };
    if (count == BLOCK)
        add_spans(sums, in, block, BLOCK, 4, 1);
    else
        add_spans(sums, in, block, (ptrdiff_t)count, (int)((count + SPAN - 1) / SPAN), 0);
}

/* The same, with more code that makes blocks of 64, 128 and 192 channels faster. */
INLINE void add_short_block_sums(struct channel_sums *sums, enum channel_sums_in in, const struct summed_block *block,
                                 size_t count) {
    enum { SPAN = BLOCK / 4 };
    if (count < BLOCK && count % SPAN == 0)
        add_spans(sums, in, block, (ptrdiff_t)count, (int)(count / SPAN), 1);
    else
        add_block_sums(sums, in, block, count);
}

#endif
