/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums over the channels of a row: the one order in which every instruction set adds.
 *
 * There are 64 virtual lanes: lane k takes channels k, k + 64, k + 128 and so on. A row is cut into blocks of 256
 * channels, in which each lane has up to four terms. These are added pairwise; then lane k + 32 is added to lane k, and
 * then lane k + 16. The 16 sums that are left are added to 16 doubles. At the end of the row these are added up in the
 * same way: lane k + 8 to lane k, then k + 4, k + 2, k + 1. Channels beyond the end of a row count as zeros.
 *
 * There are three ways to make the sums of a block. In double from the first term on: they are then exact to their own
 * rounding, whatever the row. In float within the block, where the bounds leave room for it. And sums of squares in
 * float over the four terms of a lane, which costs three roundings.
 */
#ifndef DYNNORM_CHANNEL_SUMS_H
#define DYNNORM_CHANNEL_SUMS_H

#include "model_marks.h"
#include "rows/blocks.h"
#include "rows/places.h"
#include "vec.h"

enum channel_sums_in { SUMS_IN_DOUBLE, SUMS_IN_FLOAT, SQUARES_IN_FLOAT };

/* The sums are those of x - shift, of its square, of h = a b, and of h (x - shift). */
enum { SUM_X = 1, SUM_XX = 2, SUM_H = 4, SUM_HX = 8 };

/* A row's values in one block. */
struct summed_block {
    int wanted; /* which sums; a constant, so that the others cost nothing. They stay 0. */
    const float *x;
    float shift;
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

INLINE vec load_product(const struct summed_block *block, struct place place) {
    vec zero = vec_set(0);
    if (!block->a)
        return zero;
    vec a = load_vector(block->a, place, zero);
    return block->b ? vec_mul(a, load_vector(block->b, place, zero)) : a;
}

/* A block is cut into up to four spans, of which a lane has one term each. Channels that are missing in the last span
 * count as terms of 0. */
enum { SPAN = BLOCK / 4 };

struct spans {
    struct summed_block block;
    int count;
    ptrdiff_t channels; /* of the block */
    int are_whole;      /* tells, when compiling, that no channels are missing */
};

/* A vector in one of the spans. */
INLINE struct place place_in_span(const struct spans *spans, int span, int channel, int is_last) {
    ptrdiff_t first = SPAN * span + channel;
    return (struct place){first, spans->channels - first, spans->are_whole || !is_last};
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
    vec shift = vec_set(block->shift);
    wide x = place.whole ? wide_load_floats(block->x + place.channel)
                         : vec_widen(vec_load_n(block->x + place.channel, place.count, shift));
    return (struct wide_terms){wide_sub(x, vec_widen(shift)), vec_widen(load_product(block, place))};
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

/* The terms of a vector's lanes. */
INLINE struct wide_terms wide_terms_in_span(const struct spans *spans, int span, int channel, int is_last) {
    return wide_terms_at(&spans->block, place_in_span(spans, span, channel, is_last));
}

INLINE struct wide_sums sum_lanes_in_double(const struct spans *spans, int channel) {
    if (spans->count == 1)
        return wide_single(wide_terms_in_span(spans, 0, channel, 1));
    if (spans->count == 2)
        return wide_pair(wide_terms_in_span(spans, 0, channel, 0), wide_terms_in_span(spans, 1, channel, 1));
    struct wide_sums sum =
        wide_pair(wide_terms_in_span(spans, 0, channel, 0), wide_terms_in_span(spans, 1, channel, 0));
    if (spans->count == 3)
        return add_wide_sums(sum, wide_single(wide_terms_in_span(spans, 2, channel, 1)));
    return add_wide_sums(sum,
                         wide_pair(wide_terms_in_span(spans, 2, channel, 0), wide_terms_in_span(spans, 3, channel, 1)));
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
    vec shift = vec_set(block->shift);
    return (struct float_terms){vec_sub(load_vector(block->x, place, shift), shift), load_product(block, place)};
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

INLINE struct float_terms float_terms_in_span(const struct spans *spans, int span, int channel, int is_last) {
    return float_terms_at(&spans->block, place_in_span(spans, span, channel, is_last));
}

INLINE struct float_sums sum_lanes_in_float(const struct spans *spans, int channel) {
    if (spans->count == 1)
        return float_single(float_terms_in_span(spans, 0, channel, 1));
    if (spans->count == 2)
        return float_pair(float_terms_in_span(spans, 0, channel, 0), float_terms_in_span(spans, 1, channel, 1));
    struct float_sums sum =
        float_pair(float_terms_in_span(spans, 0, channel, 0), float_terms_in_span(spans, 1, channel, 0));
    if (spans->count == 3)
        return add_float_sums(sum, float_single(float_terms_in_span(spans, 2, channel, 1)));
    return add_float_sums(
        sum, float_pair(float_terms_in_span(spans, 2, channel, 0), float_terms_in_span(spans, 3, channel, 1)));
}

/* ---- A block ---- */

INLINE void add_spans(struct channel_sums *sums, enum channel_sums_in in, const struct spans *spans) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        struct wide_sums quarters[4], sum;
        struct float_sums float_quarters[4];
#pragma GCC unroll 4
        for (int quarter = 0; quarter < 4; quarter++) {
            int channel = 16 * quarter + LANES * part;
            if (in == SUMS_IN_DOUBLE)
                quarters[quarter] = sum_lanes_in_double(spans, channel);
            else
                float_quarters[quarter] = sum_lanes_in_float(spans, channel);
            if (in == SQUARES_IN_FLOAT)
                quarters[quarter] = widen_sums(float_quarters[quarter]);
        }
        if (in == SUMS_IN_FLOAT)
            sum = widen_sums(add_float_sums(add_float_sums(float_quarters[0], float_quarters[2]),
                                            add_float_sums(float_quarters[1], float_quarters[3])));
        else
            sum = add_wide_sums(add_wide_sums(quarters[0], quarters[2]), add_wide_sums(quarters[1], quarters[3]));
        const int wanted = spans->block.wanted;
        if (wanted & SUM_X)
            sums->x[part] = wide_add(sums->x[part], sum.x);
        if (wanted & SUM_XX)
            sums->xx[part] = wide_add(sums->xx[part], sum.xx);
        if (wanted & SUM_H)
            sums->h[part] = wide_add(sums->h[part], sum.h);
        if (wanted & SUM_HX)
            sums->hx[part] = wide_add(sums->hx[part], sum.hx);
    }
}

/* A block of count <= BLOCK channels; fewer only at the end of a row. */
INLINE void add_block_sums(struct channel_sums *sums, enum channel_sums_in in, const struct summed_block *block,
                           size_t count) {
    const struct spans spans = {*block, (int)((count + SPAN - 1) / SPAN), (ptrdiff_t)count, 0};
    add_spans(sums, in, &spans);
}

/* The same, with more code that makes whole blocks and whole spans faster. */
INLINE void add_block_sums_fast(struct channel_sums *sums, enum channel_sums_in in, const struct summed_block *block,
                                size_t count) {
    const struct spans whole_block = {*block, 4, BLOCK, 1}, whole_spans = {*block, (int)(count / SPAN), BLOCK, 1};
    if (count == BLOCK) {
        add_spans(sums, in, &whole_block);
        MODEL_PASS("sums", in, BLOCK);
    } else if (count % SPAN == 0)
        add_spans(sums, in, &whole_spans);
    else
        add_block_sums(sums, in, block, count);
}

#endif
