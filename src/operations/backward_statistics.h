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
 * The sum of v is one of floats over the four vectors of a span, and then of doubles. An error in it changes dx by its
 * share of rstd^2 n mean(h), in which n may be as large as the square root of the number of channels. That is small
 * enough in rows of up to 128 channels, and in those where mean(h) is no more than twice what mean(abs(h n)) is known
 * to be at least: docs/bounds.md counts it. In other rows v is summed once more, in double.
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

/* Sums begin as -0, to which the first term can be added without being changed. */
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
    ptrdiff_t x_ahead; /* from elements that are summed to those that are prefetched; 0: none are, of dy neither */
    ptrdiff_t dy_ahead;
};

/* The terms of one vector's lanes, and their sums. Those of h and v mean something only where the mean is taken out. */
struct lane_sums {
    vec h;
    vec hv;
    vec v; /* of one span */
};

/* Makes gcc compute a sum where it stands. Otherwise it keeps terms until later, more than AVX2 has registers for. */
INLINE vec summed_now(vec sum) {
    return LANES == 8 ? vec_in_register(sum) : sum;
}

/* Rows of up to so many channels need no test of their sum of v: see above. */
enum { MOST_UNTESTED_CHANNELS = 128 };

/* How sums are made. */
struct summing {
    int is_centered;    /* is known when compiling */
    int begins_v;       /* there is no sum of v yet to which the first term could be added */
    int is_whole_block; /* of channels, which then is a loop: gcc writes a known number of them out */
    int prefetches;     /* if the block has what to prefetch */
};

INLINE void add_to_v_sum(wide *v_sum, wide more, struct summing how) {
    *v_sum = how.begins_v ? more : wide_accumulate(*v_sum, more);
}

/* Where there are no channels v is 0. x may come from memory, which a subtraction would take last. */
INLINE vec load_v(const struct reduction_block *block, struct place place) {
    const vec minus_mean = vec_set(-block->mean);
    if (block->type == DYNNORM_F32)
        return vec_add(load_vector(block->x, place, vec_set(block->mean)), minus_mean);
    const vec x = load_elements(block->x, place, block->type);
    if (place.whole)
        return vec_add(x, minus_mean);
    float lanes[LANES];
    vec_store(lanes, minus_mean);
    return vec_add(x, vec_load_n(lanes, place.count, vec_set(0)));
}

/* LayerNorm has more to add here than to multiply. So some of its additions are left to the units that multiply, with
 * which rows of 512, 768 and 1024 floats took 0.97 to 0.98 times as long on a Zen 4 with AVX-512, and others 0.98 to
 * 1.02 times. Rows of 16 bits were not measured. */
INLINE vec add_h(vec sum, vec h, dynnorm_type type) {
    return type == DYNNORM_F32 ? vec_accumulate(sum, h) : vec_add(sum, h);
}

INLINE void add_vector(struct lane_sums *sums, const struct reduction_block *block, struct place place, int is_first,
                       int is_centered) {
    const vec zero = vec_set(0);
    const vec h = vec_mul(load_vector(block->weight, place, zero), load_elements(block->dy, place, block->type));
    const vec v = is_centered ? load_v(block, place) : load_elements(block->x, place, block->type);
    if (is_centered) {
        sums->h = is_first ? h : summed_now(add_h(sums->h, h, block->type));
        sums->v = is_first ? v : summed_now(vec_add(sums->v, v));
    }
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

/* The elements to be summed later that lie so far ahead of a channel's, and the others of their cache lines. */
INLINE void prefetch_later(const struct reduction_block *block, ptrdiff_t channel) {
    __builtin_prefetch(elements_after(block->x, block->x_ahead + channel, block->type), 0, 2);
    __builtin_prefetch(elements_after(block->dy, block->dy_ahead + channel, block->type), 0, 2);
}

/* One vector of lanes over a span that begins at the given channel. */
INLINE struct lane_sums sum_span(wide *v_sum, const struct reduction_block *block, struct place span,
                                 struct span_kind kind, struct summing how) {
    struct lane_sums chains[2];
#pragma GCC unroll 2
    for (int chain = 0; chain < 2; chain++) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int sixteen = 2 * chain + i;
            if (sixteen >= kind.sixteens)
                break;
            /* One line at a time, among the arithmetic: sixteen at once took 1.01 to 1.10 times as long on a Zen 4. */
            if (how.prefetches && block->x_ahead && (block->type == DYNNORM_F32 || i == 0))
                prefetch_later(block, span.channel + 16 * sixteen);
            add_vector(&chains[chain], block, place_in_span(span, sixteen, kind), i == 0, how.is_centered);
        }
    }
    if (kind.sixteens > 2) {
        add_lane_sums(&chains[0], chains[1], how);
        if (how.is_centered)
            chains[0].v = summed_now(vec_add(chains[0].v, chains[1].v));
    }
    if (how.is_centered)
        add_to_v_sum(v_sum, vec_widen(chains[0].v), how);
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
    struct lane_sums sums = {vec_set(0), vec_set(0), vec_set(0)};
    ptrdiff_t span = 0;
    how.prefetches &= part == 0; /* which has all lines */
    /* Not unrolled any further: the compiler would make all terms first, more than there are registers. */
#pragma GCC unroll 1
    for (; span + 2 * CHANNELS_OF_SPAN <= count; span += 2 * CHANNELS_OF_SPAN) {
        if (how.is_whole_block)
            KEEP_IN_REGISTER(span);
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
    if (how.prefetches && block->type == DYNNORM_F32 && block->x_ahead) /* of what is left at once: it is less code */
#pragma GCC unroll 1
        for (ptrdiff_t i = span; i < count; i += FLOATS_OF_LINE)
            prefetch_later(block, i);
    how.prefetches = 0;
    if (!how.is_whole_block && span < count) {
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
