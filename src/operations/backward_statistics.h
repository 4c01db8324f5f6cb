/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm need of a row in the backward pass: with h = w dy, and v = x - mean, the sums of h, h v
 * and x, and the constants that they give.
 *
 *   dx = g w + (v p + q),  g = dy rstd,  p = -rstd^3 cov,  q = -rstd mean(h) - residual p
 *
 * Here mean is a float, residual is what it lacks of the row's mean, and cov = mean(h v) - residual mean(h). RMSNorm
 * has neither a mean nor a q.
 *
 * The sums of h and h v are floats over up to 256 channels: in each span of 64 channels two chains of two vectors of 16
 * lanes are added; then spans are added pairwise, and lane k + 8 to lane k; what is left goes to 8 doubles. The sum of
 * x is in double from the first term on. An error in it changes dx by residual rstd^2 n mean(h), in which n may be as
 * large as the square root of the number of channels.
 */
#ifndef DYNNORM_BACKWARD_STATISTICS_H
#define DYNNORM_BACKWARD_STATISTICS_H

#include "kernels.h"
#include "model_marks.h"
#include "rows/blocks.h"
#include "rows/places.h"
#include "vec.h"

/* The sums of a row so far. */
struct lanes_of_row {
    eight h;
    eight hv;
    eight x;
};

/* Sums begin as -0, to which the first term can be added without being changed. */
INLINE void begin_lanes_of_row(struct lanes_of_row *row, wide x_sum[PARTS]) {
    row->h = row->hv = eight_set(-0.0);
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++)
        x_sum[part] = wide_set(-0.0);
}

/* Some channels of a row. */
struct reduction_block {
    const float *x;
    const float *dy;
    const float *weight;
    float mean;
};

/* The terms of one vector's lanes, and their sums. */
struct lane_sums {
    vec h;
    vec hv;
};

INLINE void add_vector(struct lane_sums *sums, wide *x_sum, const struct reduction_block *block, struct place place,
                       int is_centered, int is_first) {
    vec zero = vec_set(0), minus_mean = vec_set(-block->mean);
    vec x = load_vector(block->x, place, zero), v = x;
    vec h = vec_mul(load_vector(block->weight, place, zero), load_vector(block->dy, place, zero));
    if (is_centered) {
        const float *again = block->x + place.channel;
        FORGET_LOADS(again);
        *x_sum = wide_accumulate(*x_sum, place.whole ? wide_load_floats(again) : vec_widen(x));
        v = vec_add(x, minus_mean); /* x may come from memory, which a subtraction would take last */
        sums->h = is_first ? h : vec_add(sums->h, h);
    }
    sums->hv = is_first ? vec_mul(h, v) : vec_fma(h, v, sums->hv);
}

enum { CHANNELS_OF_SPAN = 64 };

INLINE struct lane_sums sum_chains(const struct lane_sums chains[2], int count, int is_centered) {
    struct lane_sums sums = chains[0];
    if (count > 1) {
        sums.hv = vec_add(sums.hv, chains[1].hv);
        if (is_centered)
            sums.h = vec_add(sums.h, chains[1].h);
    }
    return sums;
}

/* What is known when compiling of the sixteens of a span: how many there may be, and how many of these are whole. */
struct span_kind {
    int sixteens; /* 0: it is found out; -1: there is no span */
    int whole_sixteens;
};

static const struct span_kind whole_span = {4, 4}, unknown_span = {4, 0};

/* How many sixteens a span has is found out, which takes more code, and less time where rows are short. */
static const struct span_kind counted_span = {0, 0};

/* There is none, since all spans are whole. */
static const struct span_kind no_span = {-1, 0};

/* One vector of lanes over a span that begins at the given channel. */
INLINE struct lane_sums sum_span(wide *x_sum, const struct reduction_block *block, struct place span,
                                 struct span_kind kind, int is_centered) {
    struct lane_sums chains[2];
#pragma GCC unroll 2
    for (int chain = 0; chain < 2; chain++) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int sixteen = 2 * chain + i, later = 16 * sixteen;
            const struct place place = {span.channel + later, span.count - later, sixteen < kind.whole_sixteens};
            if (sixteen >= kind.sixteens)
                return sum_chains(chains, chain + i, is_centered);
            add_vector(&chains[chain], x_sum, block, place, is_centered, i == 0);
        }
    }
    return sum_chains(chains, 2, is_centered);
}

/* A span of count channels, less than 64. */
INLINE struct lane_sums sum_counted_span(wide *x_sum, const struct reduction_block *block, struct place span,
                                         ptrdiff_t count, int is_centered) {
    switch ((count - 1) / 16) {
    case 0:
        return sum_span(x_sum, block, span, (struct span_kind){1, 0}, is_centered);
    case 1:
        return sum_span(x_sum, block, span, (struct span_kind){2, 1}, is_centered);
    case 2:
        return sum_span(x_sum, block, span, (struct span_kind){3, 2}, is_centered);
    default:
        return sum_span(x_sum, block, span, (struct span_kind){4, 3}, is_centered);
    }
}

INLINE void add_lane_sums(struct lane_sums *sums, struct lane_sums more, int is_centered, int is_first) {
    if (is_centered)
        sums->h = is_first ? more.h : vec_add(sums->h, more.h);
    sums->hv = is_first ? more.hv : vec_add(sums->hv, more.hv);
}

/* Adds a block of count channels. Of what kind the last span is means something if that has less than 64 of them. */
INLINE void add_spans_of_row(struct lanes_of_row *row, wide x_sum[PARTS], const struct reduction_block *block,
                             ptrdiff_t count, struct span_kind last, int is_centered) {
    vec h[PARTS], hv[PARTS];
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        struct lane_sums sums = {vec_set(0), vec_set(0)}, pair = sums;
        ptrdiff_t span = 0;
        /* Not unrolled any further: the compiler would make all terms first, more than there are registers. */
#pragma GCC unroll 1
        for (; span + 2 * CHANNELS_OF_SPAN <= count; span += 2 * CHANNELS_OF_SPAN) {
            const struct place place = {span + LANES * part, CHANNELS_OF_SPAN, 1};
            const struct place next = {place.channel + CHANNELS_OF_SPAN, CHANNELS_OF_SPAN, 1};
            pair = sum_span(&x_sum[part], block, place, whole_span, is_centered);
            add_lane_sums(&pair, sum_span(&x_sum[part], block, next, whole_span, is_centered), is_centered, 0);
            add_lane_sums(&sums, pair, is_centered, span == 0);
            MODEL_PASS("sums", 0, 2 * CHANNELS_OF_SPAN / PARTS);
        }
        if (span < count) {
            ptrdiff_t left = count - span;
            struct place place = {span + LANES * part, left - LANES * part, 1};
            const int is_alone = last.sixteens >= 0 && left < CHANNELS_OF_SPAN;
            if (!is_alone) {
                pair = sum_span(&x_sum[part], block, place, whole_span, is_centered);
                place.channel += CHANNELS_OF_SPAN;
                place.count -= CHANNELS_OF_SPAN;
                left -= CHANNELS_OF_SPAN;
            }
            if (left > 0 && last.sixteens >= 0) {
                const struct lane_sums of_last = last.sixteens
                                                     ? sum_span(&x_sum[part], block, place, last, is_centered)
                                                     : sum_counted_span(&x_sum[part], block, place, left, is_centered);
                add_lane_sums(&pair, of_last, is_centered, is_alone);
            }
            add_lane_sums(&sums, pair, is_centered, span == 0);
        }
        h[part] = is_centered ? sums.h : sums.hv;
        hv[part] = sums.hv;
    }
    if (is_centered)
        row->h = eight_add(row->h, vec_fold(h));
    row->hv = eight_add(row->hv, vec_fold(hv));
}

#endif
