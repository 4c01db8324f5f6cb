/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm need of a row in the backward pass: with h = w dy, and v = x - mean, the sums of h, h v
 * and v, and the constants that they give.
 *
 *   dx = g w + (v p + q),  g = dy rstd,  p = -rstd^3 cov,  q = -rstd mean(h) - residual p
 *
 * Here mean is a float, residual is what it lacks of the row's mean, and cov = mean(h v) - residual mean(h). RMSNorm
 * has neither a mean nor a q.
 *
 * The sums of h and h v are floats over up to 256 channels: in each span of 64 channels two chains of two vectors of 16
 * lanes are added; then spans are added pairwise, and lane k + 8 to lane k; what is left goes to 8 doubles.
 *
 * An error in the sum of v changes dx by residual rstd^2 n mean(h), in which n may be as large as the square root of
 * the number of channels. So it comes from the sum of x, which is in double from the first term on, and from which the
 * mean is subtracted later. Only in a row of up to 128 channels, where n is small enough, v is added in float over the
 * four vectors of a span, and then in double: see docs/bounds.md.
 */
#ifndef DYNNORM_BACKWARD_STATISTICS_H
#define DYNNORM_BACKWARD_STATISTICS_H

#include "kernels.h"
#include "model_marks.h"
#include "rows/blocks.h"
#include "rows/elements.h"
#include "rows/places.h"
#include "vec.h"

/* The sums of a row so far. */
struct lanes_of_row {
    eight h;
    eight hv;
};

/* Sums begin as -0, to which the first term can be added without being changed. That of v is one of x, if that is what
 * it comes from. */
INLINE void begin_lanes_of_row(struct lanes_of_row *row, wide v_sum[PARTS]) {
    row->h = row->hv = eight_set(-0.0);
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++)
        v_sum[part] = wide_set(-0.0);
}

/* Some channels of a row. */
struct reduction_block {
    const float *x;
    const float *dy;
    const float *weight;
    float mean;
    dynnorm_type type; /* of x and dy */
    int takes_v;       /* v itself is summed, if that is not known when compiling */
};

/* The terms of one vector's lanes, and their sums. */
struct lane_sums {
    vec h;
    vec hv;
};

/* Makes gcc compute a sum where it stands. Otherwise it keeps terms until later, more than AVX2 has registers for. */
INLINE vec summed_now(vec sum) {
    return LANES == 8 ? vec_in_register(sum) : sum;
}

/* Of what the sum of v is made: of x, of v itself, or of what the block tells, which takes less code than a loop for
 * each. Rows of up to so many channels have v summed, longer ones x. */
enum sum_of_v { FROM_X, FROM_V, FROM_EITHER };
enum { MOST_CHANNELS_OF_V = 128 };

/* How sums are made. */
struct summing {
    int is_centered; /* is known when compiling, as is the next one */
    enum sum_of_v sum_of_v;
    int begins_v; /* there is no sum of x, or v, yet to which the first term could be added */
};

INLINE void add_to_v_sum(wide *v_sum, wide more, struct summing how) {
    *v_sum = how.begins_v ? more : wide_accumulate(*v_sum, more);
}

/* v: x may come from memory, which a subtraction would take last. */
INLINE vec less_mean(vec x, const struct reduction_block *block) {
    return vec_add(x, vec_set(-block->mean));
}

/* Where there are no channels v is 0. Vectors of 16 bits are whole here: see are_even_halves. */
INLINE vec load_v(const struct reduction_block *block, struct place place) {
    return less_mean(block->type == DYNNORM_F32 ? load_vector(block->x, place, vec_set(block->mean))
                                                : load_elements(block->x, place, block->type),
                     block);
}

/* x in double, which floats are from where they lie, lest they are kept in registers until then. */
INLINE wide widen_again(const struct reduction_block *block, struct place place, vec x) {
    const float *again = block->x + place.channel;
    FORGET_LOADS(again);
    return place.whole && block->type == DYNNORM_F32 ? wide_load_floats(again) : vec_widen(x);
}

INLINE void add_vector(struct lane_sums *sums, wide *v_sum, const struct reduction_block *block, struct place place,
                       int is_first, struct summing how) {
    const vec zero = vec_set(0);
    const vec h = vec_mul(load_vector(block->weight, place, zero), load_elements(block->dy, place, block->type));
    vec v;
    if (how.is_centered && how.sum_of_v != FROM_X) {
        v = load_v(block, place);
    } else {
        v = load_elements(block->x, place, block->type);
        if (how.is_centered) {
            add_to_v_sum(v_sum, widen_again(block, place, v), how);
            v = less_mean(v, block);
        }
    }
    if (how.is_centered)
        sums->h = is_first ? h : summed_now(vec_add(sums->h, h));
    sums->hv = summed_now(is_first ? vec_mul(h, v) : vec_fma(h, v, sums->hv));
}

INLINE void add_lane_sums(struct lane_sums *sums, struct lane_sums more, struct summing how) {
    if (how.is_centered)
        sums->h = summed_now(vec_add(sums->h, more.h));
    sums->hv = summed_now(vec_add(sums->hv, more.hv));
}

enum { CHANNELS_OF_SPAN = 64 };

/* What is known when compiling of the sixteens of a span: how many there may be, and how many of these are whole. */
struct span_kind {
    int sixteens; /* 0: it is found out; -1: there is no span */
    int whole_sixteens;
};

static const struct span_kind whole_span = {4, 4}, unknown_span = {4, 0};

/* How many sixteens a span has is found out, which takes more code, and less time where rows are short. All of them may
 * be known to be whole. */
static const struct span_kind counted_span = {0, 0}, span_of_whole_sixteens = {0, 4};

/* There is none, since all spans are whole. */
static const struct span_kind no_span = {-1, 0};

INLINE struct place place_in_span(struct place span, int sixteen, struct span_kind kind) {
    const int later = 16 * sixteen;
    return (struct place){span.channel + later, span.count - later, sixteen < kind.whole_sixteens};
}

/* The sum of v itself over a span. */
INLINE wide sum_v(const struct reduction_block *block, struct place span, struct span_kind kind) {
    vec sum = vec_set(0);
#pragma GCC unroll 2
    for (int sixteen = 0; sixteen < kind.sixteens; sixteen += 2) {
        vec chain = load_v(block, place_in_span(span, sixteen, kind));
        if (sixteen + 1 < kind.sixteens)
            chain = vec_add(chain, load_v(block, place_in_span(span, sixteen + 1, kind)));
        sum = sixteen ? vec_add(sum, chain) : chain;
    }
    return vec_widen(sum);
}

/* Where the block tells of what the sum is made. */
INLINE void add_x_or_v(wide *v_sum, const struct reduction_block *block, struct place span, struct span_kind kind,
                       struct summing how) {
    if (how.sum_of_v == FROM_V || block->takes_v) {
        add_to_v_sum(v_sum, sum_v(block, span, kind), how);
        return;
    }
#pragma GCC unroll 4
    for (int sixteen = 0; sixteen < kind.sixteens; sixteen++) {
        const struct place place = place_in_span(span, sixteen, kind);
        add_to_v_sum(v_sum, widen_again(block, place, load_elements(block->x, place, block->type)), how);
        how.begins_v = 0;
    }
}

/* One vector of lanes over a span that begins at the given channel. */
INLINE struct lane_sums sum_span(wide *v_sum, const struct reduction_block *block, struct place span,
                                 struct span_kind kind, struct summing how) {
    const int begins_v = how.begins_v;
    struct lane_sums chains[2];
    const int is_apart = how.is_centered && how.sum_of_v != FROM_X;
    /* AVX2 has too few registers to do it later: on a Zen 4 that took up to 1.08 times as long. */
    if (is_apart && LANES == 8)
        add_x_or_v(v_sum, block, span, kind, how);
#pragma GCC unroll 2
    for (int chain = 0; chain < 2; chain++) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int sixteen = 2 * chain + i;
            if (sixteen >= kind.sixteens)
                break;
            add_vector(&chains[chain], v_sum, block, place_in_span(span, sixteen, kind), i == 0, how);
            how.begins_v = 0;
        }
    }
    if (kind.sixteens > 2)
        add_lane_sums(&chains[0], chains[1], how);
    how.begins_v = begins_v;
    if (is_apart && LANES != 8)
        add_x_or_v(v_sum, block, span, kind, how);
    return chains[0];
}

/* A span of count channels, less than 64. Of its kind only counts whether all sixteens are whole. */
INLINE struct lane_sums sum_counted_span(wide *v_sum, const struct reduction_block *block, struct place span,
                                         ptrdiff_t count, struct span_kind kind, struct summing how) {
    const int all = kind.whole_sixteens != 0;
    switch ((count - 1) / 16) {
    case 0:
        return sum_span(v_sum, block, span, (struct span_kind){1, all}, how);
    case 1:
        return sum_span(v_sum, block, span, (struct span_kind){2, 1 + all}, how);
    case 2:
        return sum_span(v_sum, block, span, (struct span_kind){3, 2 + all}, how);
    default:
        return sum_span(v_sum, block, span, (struct span_kind){4, 3 + all}, how);
    }
}

/* One vector of lanes over a block of count channels. Of what kind the last span is means something if that has less
 * than 64 of them. */
INLINE struct lane_sums sum_spans(wide *v_sum, const struct reduction_block *block, int part, ptrdiff_t count,
                                  struct span_kind last, struct summing how) {
    struct lane_sums sums = {vec_set(0), vec_set(0)};
    ptrdiff_t span = 0;
    /* Not unrolled any further: the compiler would make all terms first, more than there are registers. */
#pragma GCC unroll 1
    for (; span + 2 * CHANNELS_OF_SPAN <= count; span += 2 * CHANNELS_OF_SPAN) {
        const struct place place = {span + LANES * part, CHANNELS_OF_SPAN, 1};
        const struct place next = {place.channel + CHANNELS_OF_SPAN, CHANNELS_OF_SPAN, 1};
        struct lane_sums pair = sum_span(v_sum, block, place, whole_span, how);
        how.begins_v = 0;
        add_lane_sums(&pair, sum_span(v_sum, block, next, whole_span, how), how);
        if (span)
            add_lane_sums(&sums, pair, how);
        else
            sums = pair;
        MODEL_PASS("sums", 0, 2 * CHANNELS_OF_SPAN / PARTS);
    }
    if (span < count) {
        struct lane_sums pair;
        ptrdiff_t left = count - span;
        struct place place = {span + LANES * part, left - LANES * part, 1};
        const int is_alone = last.sixteens >= 0 && left < CHANNELS_OF_SPAN;
        if (!is_alone) {
            pair = sum_span(v_sum, block, place, whole_span, how);
            how.begins_v = 0;
            place.channel += CHANNELS_OF_SPAN;
            place.count -= CHANNELS_OF_SPAN;
            left -= CHANNELS_OF_SPAN;
        }
        if (left > 0 && last.sixteens >= 0) {
            if (block->type != DYNNORM_F32 && how.sum_of_v == FROM_EITHER)
                how.sum_of_v = FROM_X; /* of 16 bits only longer rows have a last span that is not whole */
            const struct lane_sums of_last = last.sixteens ? sum_span(v_sum, block, place, last, how)
                                                           : sum_counted_span(v_sum, block, place, left, last, how);
            if (is_alone)
                pair = of_last;
            else
                add_lane_sums(&pair, of_last, how);
        }
        if (span)
            add_lane_sums(&sums, pair, how);
        else
            sums = pair;
    }
    return sums;
}

/* The sums of all lanes over a block of count channels. */
struct sums_of_lanes {
    vec h[PARTS]; /* means something only where the mean is taken out */
    vec hv[PARTS];
};

INLINE void sum_lanes(struct sums_of_lanes *lanes, wide v_sum[PARTS], const struct reduction_block *block,
                      ptrdiff_t count, struct span_kind last, struct summing how) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        const struct lane_sums sums = sum_spans(&v_sum[part], block, part, count, last, how);
        lanes->h[part] = how.is_centered ? sums.h : sums.hv;
        lanes->hv[part] = sums.hv;
    }
}

INLINE void add_to_lanes_of_row(struct lanes_of_row *row, const struct sums_of_lanes *lanes, int is_centered) {
    if (is_centered)
        row->h = eight_add(row->h, vec_fold(lanes->h));
    row->hv = eight_add(row->hv, vec_fold(lanes->hv));
}

/* Adds a block of count channels, whose last span is of the given kind. */
INLINE void add_spans_of_row(struct lanes_of_row *row, wide v_sum[PARTS], const struct reduction_block *block,
                             ptrdiff_t count, struct span_kind last, struct summing how) {
    struct sums_of_lanes lanes;
    sum_lanes(&lanes, v_sum, block, count, last, how);
    add_to_lanes_of_row(row, &lanes, how.is_centered);
}

#endif
