/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations whose x and y are of the same type of 16 bits: the loops over some rows, which are
 * compiled once for each operation. Some loops make the sums of rows, some compute y of rows whose sums are known, and
 * one does both, with different rows. See forward/halves.h.
 *
 * Weight and bias have been brought into the order in which x is widened, or are of the type of x and need only be
 * widened alike. Otherwise there is a loop for floats, which widens x in their order, and one that serves all other
 * usual vectors: they are brought into the order of x in registers, and what differs is chosen each time around by
 * branches that always go the same way. Usual rows of whole spans in the caches have loops of their own, with less
 * to choose, and rows whose mean is taken from x first have one, too. Where something is rounded before the
 * weight one loop serves all.
 */
#ifndef DYNNORM_FORWARD_HALVES_LOOPS_H
#define DYNNORM_FORWARD_HALVES_LOOPS_H

#include "kernels.h"
#include "rows/forward/normalized_channels.h"
#include "rows/forward/short_rows.h"
#include "rows/halves.h"
#include "rows/subnormals.h"
#include "rows/typed_vectors.h"

#ifndef DYNNORM_WITHOUT_TYPES

/* Rows that are summed, and rows whose y is computed. Strides and distances are in bytes. */
struct halves_step {
    const unsigned char *summed;
    size_t summed_count;
    const unsigned char *x;
    unsigned char *y;
    size_t written_count;
    const struct eight_rows *constants; /* of the latter */
    unsigned shifted;                   /* one bit for each of these whose mean is taken from x first */
    unsigned in_double;                 /* and for each that is computed in double */
    struct typed_vector weight;
    struct typed_vector bias;
    size_t x_stride;
    size_t y_stride;
    size_t ahead;        /* as far behind the rows that are summed others are prefetched, or 0: none are */
    size_t to_sum_ahead; /* and so far behind what is summed they are once more, or 0 */
    int past_caches;     /* y goes there; it begins at a cache line */
    int is_bf16;
    int is_ordered;     /* weight and bias are floats in the order in which x is widened, otherwise common vectors */
    int by_instruction; /* see LEAST_BY_INSTRUCTION */
    const struct halves_call *call;
};

/* Whether some channels of the rows are whole spans, and none of them comes from memory, or goes there. */
INLINE int are_near_spans(const struct halves_step *step, ptrdiff_t channels) {
    return HAS_NEAR_LOOPS && channels % ROW_SPAN == 0 && !step->ahead && !step->past_caches;
}

/* ---- Sums ---- */

/* Of each span to come two cache lines are fetched: sums begin with one of them, and y with the other. So fetching,
   storing and arithmetic are evenly mixed. Where spans are fetched once more, sums leave the first of them to y. */
INLINE void prefetch_line_of_span(const unsigned char *x, size_t ahead) {
    if (ahead)
        prefetch_line(x, ahead);
}

/* AVX2 makes doubles of floats in memory: to bring halves of a vector into place for that takes more time than to store
 * it and to load them. In registers, as with AVX-512, LayerNorm took 1.0 to 1.25 times as long on a Zen 4. */
enum { MAKES_DOUBLES_IN_MEMORY = LANES == 8 };

INLINE void add_whole_span_of_halves(struct row_sums *sums, const unsigned char *x, int is_bf16,
                                     const struct normalization *normalization) {
    if (MAKES_DOUBLES_IN_MEMORY && normalization->sums_in == ROW_SUMS_IN_DOUBLE) {
        _Alignas(64) float widened[ROW_SPAN];
        UNROLL_UP_TO_4
        for (ptrdiff_t i = 0; i < ROW_SPAN; i += LANES)
            vec_store(widened + i, is_bf16 ? vec_of_bf16(x + HALF_BYTES * i) : vec_of_f16(x + HALF_BYTES * i));
        KEEP_IN_MEMORY(widened);
        add_whole_span(sums, ROW_SUMS_IN_DOUBLE, widened);
        return;
    }
    add_span(sums, normalization->sums_in,
             &(const struct span){.x = (const float *)x,
                                  .count = ROW_SPAN,
                                  .sixteens = 4,
                                  .whole_sixteens = 4,
                                  .load = is_bf16 ? vec_of_bf16 : vec_of_f16,
                                  .load_wide = is_bf16 ? wide_of_bf16 : wide_of_f16});
}

INLINE void fold_sums_of_halves(struct folded_sums *folded, const struct row_sums *sums, int is_bf16,
                                const struct normalization *normalization) {
    if (normalization->sums_in == ROW_SQUARES_IN_FLOAT || !is_bf16) {
        fold_row_sums(folded, sums, normalization->sums_in);
        return;
    }
    folded->x = wide_fold_of_bf16(sums->x);
    folded->xx = wide_fold_of_bf16(sums->xx);
}

/* The last channels, fewer than a span, and zeros after them. They are stored whole vectors at a time, from which those
 * that are loaded then can be forwarded. */
OUTLINED void pad_with_zeros(unsigned char *span, const unsigned char *x, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < ROW_SPAN; i += HALVES, x += sizeof(halves), span += sizeof(halves)) {
        const ptrdiff_t left = count - i;
        halves_store(span, left >= HALVES ? halves_load(x) : halves_load_n(x, left > 0 ? left : 0));
    }
}

/* Of sums in double each span takes so long that only rows of a single one gain by a loop of their own. */
INLINE int has_near_sums(const struct halves_step *step, ptrdiff_t channels,
                         const struct normalization *normalization) {
    return are_near_spans(step, channels) && (normalization->sums_in != ROW_SUMS_IN_DOUBLE || channels == ROW_SPAN);
}

/* So many channels, from one on, of such rows; at least a span. */
INLINE void sum_near_rows(struct sums_of_group *to, const struct halves_step *step, ptrdiff_t first, ptrdiff_t channels,
                          int is_bf16, const struct normalization *normalization) {
    const unsigned char *row = step->summed + HALF_BYTES * first;
    const size_t stride = step->x_stride;
    for (size_t left = step->summed_count; left > 0; to++) {
        const size_t count = left < 8 ? left : 8;
        for (size_t i = 0; i < count; i++, row += stride) {
            const unsigned char *x = row, *const end = row + HALF_BYTES * channels;
            struct row_sums sums;
            struct folded_sums folded;
            clear_row_sums(&sums, normalization->sums_in);
            do {
                add_whole_span_of_halves(&sums, x, is_bf16, normalization);
                x += HALF_BYTES * ROW_SPAN;
            } while (normalization->sums_in != ROW_SUMS_IN_DOUBLE && x < end); /* in double there is a single one */
            fold_sums_of_halves(&folded, &sums, is_bf16, normalization);
            keep_sums(to, i, &folded, normalization);
        }
        left -= count;
    }
}

/* Channels [first, end) of the rows that are summed. */
INLINE void sum_rows_of_halves(struct sums_of_group *to, const struct halves_step *step, ptrdiff_t first, ptrdiff_t end,
                               int is_bf16, const struct normalization *normalization) {
    const unsigned char *row = step->summed + HALF_BYTES * first;
    const size_t rows = step->summed_count, stride = step->x_stride, ahead = step->ahead;
    const size_t to_sum_ahead = step->to_sum_ahead;
    _Alignas(64) unsigned char last[HALF_BYTES * ROW_SPAN];
    if (has_near_sums(step, end - first, normalization)) {
        sum_near_rows(to, step, first, end - first, is_bf16, normalization);
        return;
    }
    for (size_t i = 0; i < rows; i++, row += stride) {
        const unsigned char *x = row;
        ptrdiff_t channels = end - first;
        struct row_sums sums;
        struct folded_sums folded;
        clear_row_sums(&sums, normalization->sums_in);
        for (; channels > 0; channels -= ROW_SPAN, x += HALF_BYTES * ROW_SPAN) {
            if (to_sum_ahead)
                prefetch_lines(x, HALF_BYTES * ROW_SPAN, to_sum_ahead);
            else
                prefetch_line_of_span(x, ahead);
            if (channels < ROW_SPAN) {
                pad_with_zeros(last, x, channels);
                x = last;
            }
            add_whole_span_of_halves(&sums, x, is_bf16, normalization);
        }
        fold_sums_of_halves(&folded, &sums, is_bf16, normalization);
        keep_sums(&to[i / 8], i % 8, &folded, normalization);
    }
}

/* ---- y ---- */

/* A row whose y is computed. */
struct row_of_halves {
    const unsigned char *x;
    unsigned char *y;
    struct common_vector weight;
    struct common_vector bias;
    struct row_vectors constants;
    size_t ahead;
    int past_caches;
    int may_be_by_instruction; /* y is rounded, where a look at it finds no denormal */
};

/* What is known when compiling. */
struct halves_form {
    int is_bf16;
    int is_ordered; /* weight and bias are: see halves_step */
    int are_like_x; /* or these are like x: see typed_vectors.h */
    int are_floats; /* or they are floats, and x is widened in their order */
    int is_shifted; /* the rows are */
    int by_instruction;
};

/* Whether there is code to look at y for denormals: where nothing is known of them, but not in rare loops. */
INLINE int looks_at_y(const struct halves_form *form) {
    const int is_usual = (form->is_ordered || form->are_like_x || form->are_floats) && !form->is_shifted;
    return HAS_BF16_INSTRUCTION && form->is_bf16 && is_usual && !form->by_instruction;
}

INLINE void load_weights(vec to[2], const struct common_vector *from, ptrdiff_t i, const struct halves_form *form) {
    if (form->is_ordered || form->are_floats)
        to[0] = vec_load((const float *)from->data + i), to[1] = vec_load((const float *)from->data + i + LANES);
    else if (form->are_like_x)
        load_in_order(to, from->data + HALF_BYTES * i, form->is_bf16);
    else
        load_vectors(to, from, (size_t)i, form->is_bf16);
}

/* y of two vectors, in place of x. */
INLINE void weigh_halves(vec x[2], const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form,
                         const struct normalization *normalization) {
    vec weight[2], bias[2];
    load_weights(weight, &row->weight, i, form);
    if (normalization->has_bias)
        load_weights(bias, &row->bias, i, form);
    for (int k = 0; k < 2; k++)
        x[k] = weigh(normalize(x[k], &row->constants, normalization, form->is_shifted ? SHIFTED : 0), weight[k],
                     normalization->has_bias ? bias[k] : weight[k], normalization);
}

INLINE void write_vector_of_halves(const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form,
                                   const struct normalization *normalization) {
    prefetch_line_of_span(row->x + HALF_BYTES * i, row->ahead);
    const unsigned char *const from = row->x + HALF_BYTES * i;
    unsigned char *const to = row->y + HALF_BYTES * i;
    vec x[2];
    if (form->is_bf16 && form->are_floats)
        vecs_of_bf16(&x[0], &x[1], halves_load(from));
    else
        load_in_order(x, from, form->is_bf16);
    weigh_halves(x, row, i, form, normalization);
    if (looks_at_y(form) && row->may_be_by_instruction && !any_subnormal(x, 2))
        write_halves(to, form->are_floats ? bf16_of_normal_vecs(x[0], x[1]) : bf16_of_normal_pairs(x[0], x[1]),
                     row->past_caches);
    else if (form->is_bf16 && form->are_floats)
        write_halves(to, bf16_of_vecs(x[0], x[1]), row->past_caches);
    else
        write_halves_in_order(to, x[0], x[1], form->is_bf16, row->past_caches);
}

/* y in bfloat16 is rounded by the CPU's instruction if it has one, and if there are no denormals: in LayerNorm if the
 * bias is LEAST_BIAS_BY_INSTRUCTION or more, in RMSNorm if x, which is looked at by spans, is 2^-63 or more, and rstd
 * and the weight this power of 2 or more. Where that is not known y itself may be looked at, which takes more time. */
#define LEAST_BY_INSTRUCTION 0x1p-31f

/* Gives 0, and has written nothing, if an x is less. */
INLINE int write_span_by_instruction(const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form,
                                     const struct normalization *normalization) {
    enum { COUNT = ROW_SPAN / HALVES };
    _Static_assert(!HAS_BF16_INSTRUCTION || COUNT == 2, "any_tiny_bf16 looks at two");
    halves x[COUNT];
#pragma GCC unroll 2
    for (int k = 0; k < COUNT; k++)
        x[k] = halves_load(row->x + HALF_BYTES * (i + HALVES * k));
    if (!normalization->has_bias && __builtin_expect(any_tiny_bf16(x[0], x[COUNT - 1]), 0))
        return 0;
#pragma GCC unroll 2
    for (int k = 0; k < COUNT; k++) {
        vec y[2];
        const ptrdiff_t channel = i + HALVES * k;
        widen_in_order(y, x[k], 1);
        weigh_halves(y, row, channel, form, normalization);
        halves_store(row->y + HALF_BYTES * channel, bf16_of_normal_pairs(y[0], y[1]));
    }
    return 1;
}

/* A whole span of a row that goes to the caches. */
INLINE void write_span_of_halves(const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form,
                                 const struct normalization *normalization) {
    if (form->by_instruction && write_span_by_instruction(row, i, form, normalization))
        return;
    if (form->by_instruction) {
#pragma GCC unroll 1
        for (int k = 0; k < ROW_SPAN; k += HALVES)
            write_vector_of_halves(row, i + k, form, normalization);
        return;
    }
#pragma GCC unroll 8
    for (int k = 0; k < ROW_SPAN; k += HALVES)
        write_vector_of_halves(row, i + k, form, normalization);
}

/* Channels [first, end) of a row. Where weight and bias are ordered the last ones read these beyond the end; where they
   are not, the last ones, fewer than HALVES, are left out. */
INLINE void write_row_of_halves(const struct row_of_halves *row, ptrdiff_t first, ptrdiff_t end,
                                const struct halves_form *form, const struct normalization *normalization) {
    ptrdiff_t i = first;
    for (; form->by_instruction && i + ROW_SPAN <= end; i += ROW_SPAN)
        write_span_of_halves(row, i, form, normalization);
    /* Of float16 it takes 1 to 3 percent less time, but more code. */
    if (!HAS_NEAR_LOOPS_LIKE_X && form->are_like_x && form->is_bf16)
#pragma GCC unroll 2
        for (; i + HALVES <= end; i += HALVES)
            write_vector_of_halves(row, i, form, normalization);
#pragma GCC unroll 1
    for (; i + HALVES <= end; i += HALVES)
        write_vector_of_halves(row, i, form, normalization);
    if (form->is_ordered && i < end) {
        vec x[2];
        widen_in_order(x, halves_load_n(row->x + HALF_BYTES * i, end - i), form->is_bf16);
        weigh_halves(x, row, i, form, normalization);
        halves_store_n(row->y + HALF_BYTES * i, halves_in_order(x[0], x[1], form->is_bf16), end - i);
    }
}

/* The first of the rows whose y is computed, as if they came from the caches and y stayed there. */
INLINE struct row_of_halves first_row_to_write(const struct halves_step *step, const struct halves_form *form) {
    return (struct row_of_halves){.x = step->x,
                                  .y = step->y,
                                  .weight = common_vector(&step->weight),
                                  .bias = common_vector(&step->bias),
                                  .ahead = 0,
                                  .past_caches = 0,
                                  .may_be_by_instruction = looks_at_y(form) && step->call->rounds_by_instruction};
}

/* Each form has a loop over the rows by itself, in whose registers the constants of conversions stay. */
INLINE void write_rows_in_form(const struct halves_step *of, ptrdiff_t first, ptrdiff_t end,
                               const struct halves_form *form, const struct normalization *normalization) {
    const struct halves_step step = *of; /* which stores to y do not change */
    struct row_of_halves row = first_row_to_write(&step, form);
    const unsigned left_out = form->is_shifted ? ~step.shifted : step.shifted | step.in_double;
    row.past_caches = step.past_caches;
    row.ahead = step.ahead ? (size_t)(step.summed - step.x) + step.ahead + 64 : 0;
#pragma GCC unroll 1
    for (size_t i = 0; i < step.written_count; i++, row.x += step.x_stride, row.y += step.y_stride) {
        if (left_out >> i & 1)
            continue;
        row.constants = vectors_of_row(&step.constants[i / 8], i % 8);
        write_row_of_halves(&row, first, end, form, normalization);
    }
}

/* So many channels, from one on and at least a span, of near rows whose y is computed, none of which is left out. */
INLINE void write_near_rows(const struct halves_step *of, ptrdiff_t first, ptrdiff_t channels,
                            const struct halves_form *form, const struct normalization *normalization) {
    const struct halves_step step = *of; /* which stores to y do not change */
    const struct eight_rows *constants = step.constants;
    struct row_of_halves row = first_row_to_write(&step, form);
    for (size_t left = step.written_count; left > 0; constants++) {
        const size_t count = left < 8 ? left : 8;
        for (size_t i = 0; i < count; i++, row.x += step.x_stride, row.y += step.y_stride) {
            ptrdiff_t channel = first;
            row.constants = vectors_of_row(constants, i);
            do {
                write_span_of_halves(&row, channel, form, normalization);
                channel += ROW_SPAN;
            } while (channel < first + channels);
        }
        left -= count;
    }
}

/* ---- y of rows whose n is rounded before the weight, and the product before the bias ---- */

/* What differs among such rows. It is chosen each time around a loop, by branches that always go the same way. */
enum { ARE_ORDERED = 1, HAVE_BIAS = 2, GO_PAST_CACHES = 4, ARE_SHIFTED = 8 };

INLINE unsigned ways_of_rounded_rows(const struct halves_step *step, const struct normalization *normalization) {
    return (step->is_ordered ? ARE_ORDERED : 0) | (normalization->has_bias && step->call->bias.data ? HAVE_BIAS : 0) |
           (VEC_CAN_STREAM && step->past_caches ? GO_PAST_CACHES : 0);
}

INLINE vec vec_rounded(vec a, int is_bf16) {
    return is_bf16 ? vec_rounded_to_bf16(a) : vec_rounded_to_f16(a);
}

/* Of a weight or bias that is ordered or like x. */
INLINE void load_later(vec to[2], const struct typed_vector *from, ptrdiff_t i, unsigned ways, int is_bf16) {
    const unsigned char *data = from->data;
    if (ways & ARE_ORDERED)
        to[0] = vec_load((const float *)data + i), to[1] = vec_load((const float *)data + i + LANES);
    else
        load_in_order(to, data + HALF_BYTES * i, is_bf16);
}

/* y of two vectors, in place of x. */
INLINE void round_y(vec x[2], const struct halves_step *step, ptrdiff_t i, const struct row_vectors *row, unsigned ways,
                    int is_bf16, const struct normalization *normalization) {
    vec by[2];
    load_later(by, &step->weight, i, ways, is_bf16);
    if (normalization->is_centered && ways & ARE_SHIFTED)
        for (int k = 0; k < 2; k++)
            x[k] = normalize(x[k], row, normalization, SHIFTED);
    else
        for (int k = 0; k < 2; k++)
            x[k] = normalize(x[k], row, normalization, 0);
    for (int k = 0; k < 2; k++)
        x[k] = vec_mul(vec_rounded(x[k], is_bf16), by[k]);
    if (normalization->has_bias && ways & HAVE_BIAS) {
        load_later(by, &step->bias, i, ways, is_bf16);
        for (int k = 0; k < 2; k++)
            x[k] = vec_add(vec_rounded(x[k], is_bf16), by[k]);
    }
}

/* Channels [first, end) of a row, as far as there are whole vectors of them, of bfloat16 by the CPU's instruction.
 * Returns where they end. */
INLINE ptrdiff_t round_row_by_instruction(unsigned char *to, const unsigned char *x, const struct halves_step *step,
                                          ptrdiff_t first, ptrdiff_t end, const struct row_vectors *row, unsigned ways,
                                          const struct normalization *normalization) {
    ptrdiff_t i = first;
#pragma GCC unroll 1
    for (; i + HALVES <= end; i += HALVES) {
        const halves numbers = halves_load(x + HALF_BYTES * i);
        vec y[2], by[2];
        widen_in_order(y, numbers, 1);
        if (__builtin_expect(any_tiny_bf16(numbers, numbers), 0)) {
            round_y(y, step, i, row, ways, 1, normalization);
            halves_store(to + HALF_BYTES * i, bf16_of_pairs(y[0], y[1]));
            continue;
        }
        KEEP_IN_REGISTER(ways);
        load_later(by, &step->weight, i, ways, 1);
        for (int k = 0; k < 2; k++)
            y[k] = normalize(y[k], row, normalization, 0);
        widen_in_order(y, bf16_of_normal_pairs(y[0], y[1]), 1);
        halves_store(to + HALF_BYTES * i, bf16_of_normal_pairs(vec_mul(y[0], by[0]), vec_mul(y[1], by[1])));
    }
    return i;
}

/* Channels [first, end) of the rows that are not in double, also of those that are shifted. If weight and bias are like
 * x the last ones, fewer than HALVES, are left out. */
INLINE void write_rounded_rows(const struct halves_step *of, ptrdiff_t first, ptrdiff_t end, int is_bf16,
                               const struct normalization *normalization) {
    const struct halves_step step = *of; /* which stores to y do not change */
    const size_t ahead = step.ahead ? (size_t)(step.summed - step.x) + step.ahead + 64 : 0;
    const unsigned char *x = step.x;
    unsigned char *y = step.y;
    const unsigned ways_of_all = ways_of_rounded_rows(&step, normalization);
    const int by_instruction = HAS_BF16_INSTRUCTION && is_bf16 && !normalization->has_bias && step.by_instruction;
    for (size_t row = 0; row < step.written_count; row++, x += step.x_stride, y += step.y_stride) {
        const struct row_vectors constants = vectors_of_row(&step.constants[row / 8], row % 8);
        unsigned ways = ways_of_all | (step.shifted >> row & 1 ? ARE_SHIFTED : 0);
        ptrdiff_t i = step.in_double >> row & 1 ? end : first;
        vec both[2];
        if (by_instruction)
            i = round_row_by_instruction(y, x, &step, i, end, &constants, ways, normalization);
#pragma GCC unroll 1
        for (; i + HALVES <= end; i += HALVES) {
            KEEP_IN_REGISTER(ways);
            load_in_order(both, x + HALF_BYTES * i, is_bf16);
            prefetch_line(x + HALF_BYTES * i, ahead); /* a line of x where none is to be fetched */
            round_y(both, &step, i, &constants, ways, is_bf16, normalization);
            write_halves_in_order(y + HALF_BYTES * i, both[0], both[1], is_bf16, ways & GO_PAST_CACHES);
        }
        if (ways & ARE_ORDERED && i < end) {
            widen_in_order(both, halves_load_n(x + HALF_BYTES * i, end - i), is_bf16);
            round_y(both, &step, i, &constants, ways, is_bf16, normalization);
            halves_store_n(y + HALF_BYTES * i, halves_in_order(both[0], both[1], is_bf16), end - i);
        }
    }
}

/* ---- Either ---- */

/* Whichever loop does it. */
INLINE void write_rows_of_form(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end, struct halves_form form,
                               const struct normalization *normalization) {
    const int may_be_near = form.is_ordered || (HAS_NEAR_LOOPS_LIKE_X && form.are_like_x); /* others are not usual */
    const int is_near = may_be_near && !step->shifted && !step->in_double && are_near_spans(step, end - first);
    if (HAS_BF16_INSTRUCTION && form.is_bf16 && !form.are_floats && step->by_instruction) {
        form.by_instruction = 1;
        if (is_near)
            write_near_rows(step, first, end - first, &form, normalization);
        else
            write_rows_in_form(step, first, end, &form, normalization);
        return;
    }
    if (is_near)
        write_near_rows(step, first, end - first, &form, normalization);
    else
        write_rows_in_form(step, first, end, &form, normalization);
}

INLINE int are_like_x(const struct halves_step *step, const struct normalization *normalization) {
    return is_like_x(&step->weight, step->is_bf16) &&
           (!normalization->has_bias || is_like_x(&step->bias, step->is_bf16));
}

INLINE int are_floats(const struct halves_step *step, const struct normalization *normalization) {
    return is_of_floats(&step->weight) && (!normalization->has_bias || is_of_floats(&step->bias));
}

/* Channels [first, end) of the rows whose y is computed. */
INLINE void write_rows_of_halves(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end,
                                 const struct normalization *normalization) {
    if (step->call->rounds_before_weight && step->is_bf16)
        write_rounded_rows(step, first, end, 1, normalization);
    else if (step->call->rounds_before_weight)
        write_rounded_rows(step, first, end, 0, normalization);
    else if (step->is_ordered && step->is_bf16)
        write_rows_of_form(step, first, end, (struct halves_form){.is_bf16 = 1, .is_ordered = 1}, normalization);
    else if (step->is_ordered)
        write_rows_of_form(step, first, end, (struct halves_form){.is_ordered = 1}, normalization);
    else if (step->is_bf16 && are_like_x(step, normalization))
        write_rows_of_form(step, first, end, (struct halves_form){.is_bf16 = 1, .are_like_x = 1}, normalization);
    else if (are_like_x(step, normalization))
        write_rows_of_form(step, first, end, (struct halves_form){.are_like_x = 1}, normalization);
    else if (step->is_bf16 && are_floats(step, normalization))
        write_rows_of_form(step, first, end, (struct halves_form){.is_bf16 = 1, .are_floats = 1}, normalization);
    else
        write_rows_of_form(step, first, end, (struct halves_form){.is_bf16 = step->is_bf16}, normalization);
}

/* ---- Both ---- */

/* Channels [first, end), whole spans, of as many near rows that are summed as there are others whose y is computed,
 * none of which is left out. */
INLINE void sum_and_write_rows(struct sums_of_group *to, const struct halves_step *of, ptrdiff_t first, ptrdiff_t end,
                               const struct halves_form *form, const struct normalization *normalization) {
    const struct halves_step step = *of; /* which stores to y do not change */
    const unsigned char *summed = step.summed;
    struct row_of_halves row = first_row_to_write(&step, form);
#pragma GCC unroll 1
    for (size_t i = 0; i < step.written_count; i++) {
        struct row_sums sums;
        struct folded_sums folded;
        row.constants = vectors_of_row(&step.constants[i / 8], i % 8);
        clear_row_sums(&sums, normalization->sums_in);
        for (ptrdiff_t channel = first; channel < end; channel += ROW_SPAN) {
            add_whole_span_of_halves(&sums, summed + HALF_BYTES * channel, form->is_bf16, normalization);
            write_span_of_halves(&row, channel, form, normalization);
        }
        fold_sums_of_halves(&folded, &sums, form->is_bf16, normalization);
        keep_sums(&to[i / 8], i % 8, &folded, normalization);
        summed += step.x_stride, row.x += step.x_stride, row.y += step.y_stride;
    }
}

/* On a Zen 4, where y of bfloat16 is rounded by the instruction, LayerNorm took 0.87 to 0.94 times as long so as with
 * sums first, and RMSNorm, which sums squares alone, 0.91 to 0.97 times over rows of 192 channels and more, but 0.99 to
 * 1.06 times over shorter ones. A bare loop for binary16 gained nothing. */
enum { MOST_SQUARES_SUMMED_APART = 128 };

/* The same where that takes less time. Elsewhere it gives 0, and has done nothing. */
INLINE int sum_and_write_rows_of_halves(struct sums_of_group *to, const struct halves_step *step, ptrdiff_t first,
                                        ptrdiff_t end, const struct normalization *normalization) {
    const int is_usual =
        step->by_instruction && !step->call->rounds_before_weight && !step->shifted && !step->in_double;
    const int has_sums_in_double = normalization->sums_in == ROW_SUMS_IN_DOUBLE;
    if (!HAS_BF16_INSTRUCTION || !is_usual || step->summed_count != step->written_count ||
        !are_near_spans(step, end - first) || !(has_sums_in_double || end - first > MOST_SQUARES_SUMMED_APART))
        return 0;
    if (step->is_ordered)
        sum_and_write_rows(to, step, first, end,
                           &(const struct halves_form){.is_bf16 = 1, .is_ordered = 1, .by_instruction = 1},
                           normalization);
    else if (are_like_x(step, normalization))
        sum_and_write_rows(to, step, first, end,
                           &(const struct halves_form){.is_bf16 = 1, .are_like_x = 1, .by_instruction = 1},
                           normalization);
    else
        return 0;
    return 1;
}

/* An operation's own functions of this, which are not inlined. */
#define ROWS_OF_HALVES(operation)                                                                                      \
    OUTLINED void operation##_sum_halves(struct sums_of_group *sums, const struct halves_step *step, ptrdiff_t first,  \
                                         ptrdiff_t end) {                                                              \
        if (step->is_bf16)                                                                                             \
            sum_rows_of_halves(sums, step, first, end, 1, &operation##_normalization);                                 \
        else                                                                                                           \
            sum_rows_of_halves(sums, step, first, end, 0, &operation##_normalization);                                 \
    }                                                                                                                  \
    OUTLINED void operation##_write_halves(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end) {           \
        write_rows_of_halves(step, first, end, &operation##_normalization);                                            \
    }                                                                                                                  \
    OUTLINED int operation##_sum_and_write_halves(struct sums_of_group *sums, const struct halves_step *step,          \
                                                  ptrdiff_t first, ptrdiff_t end) {                                    \
        return sum_and_write_rows_of_halves(sums, step, first, end, &operation##_normalization);                       \
    }                                                                                                                  \
    OUTLINED void operation##_write_shifted_halves(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end) {   \
        if (operation##_normalization.is_centered)                                                                     \
            write_rows_in_form(                                                                                        \
                step, first, end,                                                                                      \
                &(const struct halves_form){.is_bf16 = step->is_bf16, .is_ordered = 1, .is_shifted = 1},               \
                &operation##_normalization);                                                                           \
    }
#define FUNCTIONS_OF_HALVES(operation)                                                                                 \
    {                                                                                                                  \
        SPECIAL_LOOP(operation##_sum_halves), SPECIAL_LOOP(operation##_write_halves),                                  \
            SPECIAL_LOOP(operation##_sum_and_write_halves), SPECIAL_LOOP(operation##_write_shifted_halves)             \
    }

#else
#define ROWS_OF_HALVES(operation)
#define FUNCTIONS_OF_HALVES(operation)                                                                                 \
    { NULL, NULL, NULL, NULL }
#endif

#endif
