/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of operations that normalize a row by its own sums: y = w n + b.
 *
 * A row is read twice, for its sums and for y. What costs time is not so much the arithmetic as the end of a row, from
 * 16 lanes to one sum, a square root and a division, since each of these steps waits for the one before. So y is
 * computed some rows after the sums, side by side with the sums of later rows. Short rows go in groups of eight, which
 * end together: one square root and one division serve eight rows. Of long rows a single one, or eight where weight and
 * bias would not stay in the nearest cache together with a row.
 *
 * The loops differ only in the order in which rows and channels are walked: the bits are the same in all of them.
 */
#ifndef DYNNORM_FORWARD_NORMALIZATION_H
#define DYNNORM_FORWARD_NORMALIZATION_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/normalization.h"
#include "operations/operation.h"
#include "operations/statistics.h"
#include "rows/floats.h"
#include "rows/reader.h"
#include "rows/row_sums.h"
#include "rows/writer.h"

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
};

/* ---- y of some channels ---- */

/* Where they lie. Without a bias, bias means nothing. */
struct y_block {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
};

/* How they are computed and stored, as constants. */
enum { SHIFTED = 1, PAST_CACHES = 2 };

INLINE struct row_vectors vectors_of_row(const struct eight_rows *rows, size_t row) {
    return (struct row_vectors){vec_set(rows->rstd[row]), vec_set(rows->offset[row]), vec_set(rows->shift[row])};
}

INLINE vec weigh(vec n, vec weight, vec bias, const struct normalization *normalization) {
    return normalization->has_bias ? vec_fma(n, weight, bias) : vec_mul(n, weight);
}

INLINE vec normalize(vec x, const struct row_vectors *row, const struct normalization *normalization, int how) {
    return how & SHIFTED ? normalization->normalize_shifted(x, row) : normalization->normalize(x, row);
}

INLINE void write_whole_vector(const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                               const struct normalization *normalization, int how) {
    vec n = normalize(vec_load(block->x + i), row, normalization, how), weight = vec_load(block->weight + i);
    vec y = weigh(n, weight, normalization->has_bias ? vec_load(block->bias + i) : n, normalization);
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

INLINE void write_y(const struct y_block *block, ptrdiff_t count, const struct row_vectors *row,
                    const struct normalization *normalization, int how) {
    ptrdiff_t i = 0;
    for (; i + ROW_SPAN <= count; i += ROW_SPAN)
#pragma GCC unroll 16
        for (int k = 0; k < ROW_SPAN; k += LANES)
            write_whole_vector(block, i + k, row, normalization, how);
    for (; i + LANES <= count; i += LANES)
        write_whole_vector(block, i, row, normalization, how);
    if (LANES > 1 && i < count)
        write_last_vector(block, i, count - i, row, normalization, how);
}

/* A block of a row that float can hold. An operation makes a function of its own of this, which is not inlined. */
INLINE void write_block_of_row(const struct forward_call *call, size_t row, struct block at,
                               const struct eight_rows *rows, struct write_buffer *buffer,
                               const struct normalization *normalization) {
    const struct reader x = read_row(&call->x, row);
    const struct y_block block = {block_to_write(&call->y, row, at, buffer), read_block(&x, at),
                                  read_block(&call->weight, at),
                                  normalization->has_bias ? read_block(&call->bias, at) : NULL};
    const size_t lane = row % 8;
    const struct row_vectors vectors = vectors_of_row(rows, lane);
    const ptrdiff_t count = (ptrdiff_t)at.count;
    if (call->y.is_direct && rows->shifted >> lane & 1)
        write_y(&block, count, &vectors, normalization, SHIFTED | PAST_CACHES);
    else if (call->y.is_direct)
        write_y(&block, count, &vectors, normalization, PAST_CACHES);
    else if (rows->shifted >> lane & 1)
        write_y(&block, count, &vectors, normalization, SHIFTED);
    else
        write_y(&block, count, &vectors, normalization, 0);
    block_is_written(&call->y, row, at, buffer);
}

/* A row that float cannot hold. */
RARE void write_row_in_double(const struct forward_call *call, size_t row, struct write_buffer *buffer) {
    const struct elements *elements = call->operation->elements;
    const size_t channels = call->constants->channels;
    struct row_constants constants = {0};
    const struct reader x = read_row(&call->x, row);
    constants.statistics =
        statistics_in_double(x, channels, call->constants->eps, call->operation->normalization->is_centered);
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const struct block_in_double values = {.count = block.count,
                                               .x = read_block(&x, block),
                                               .weight = read_block(&call->weight, block),
                                               .bias = elements->has_bias ? read_block(&call->bias, block) : NULL,
                                               .y = block_to_write(&call->y, row, block, buffer)};
        elements->forward_in_double(&values, &constants, call->constants);
        block_is_written(&call->y, row, block, buffer);
    }
}

/* ---- Sums and y side by side ---- */

/* What is to be done at once: the sums of one block, and y of another. Either may have no channels. */
struct long_step {
    const float *summed;
    ptrdiff_t summed_count;
    struct y_block y;
    ptrdiff_t y_count;
    int past_caches; /* y goes there; it begins at a cache line */
    struct row_vectors row;
};

INLINE void write_whole_span(const struct y_block *block, ptrdiff_t i, const struct row_vectors *row,
                             const struct normalization *normalization, int how) {
#pragma GCC unroll 16
    for (int k = 0; k < ROW_SPAN; k += LANES)
        write_whole_vector(block, i + k, row, normalization, how);
    MODEL_PASS("y", 0, ROW_SPAN);
}

/* As many spans as there are of both. Returns where they end. */
INLINE ptrdiff_t take_spans(struct row_sums *sums, const struct long_step *step,
                            const struct normalization *normalization, int how) {
    const ptrdiff_t both = step->summed_count < step->y_count ? step->summed_count : step->y_count;
    ptrdiff_t i = 0;
    for (; i + ROW_SPAN <= both; i += ROW_SPAN) {
        add_whole_span(sums, normalization->sums_in, step->summed + i);
        write_whole_span(&step->y, i, &step->row, normalization, how);
    }
    return i;
}

INLINE void take_step(struct row_sums *sums, const struct long_step *step, const struct normalization *normalization) {
    const ptrdiff_t i = VEC_CAN_STREAM && step->past_caches ? take_spans(sums, step, normalization, PAST_CACHES)
                                                            : take_spans(sums, step, normalization, 0);
    ptrdiff_t summed = i;
    for (; summed + ROW_SPAN <= step->summed_count; summed += ROW_SPAN)
        add_whole_span(sums, normalization->sums_in, step->summed + summed);
    add_last_channels(sums, normalization->sums_in, step->summed + summed, step->summed_count - summed);
    const struct y_block rest = {step->y.y + i, step->y.x + i, step->y.weight + i, step->y.bias + i};
    if (VEC_CAN_STREAM && step->past_caches)
        write_y(&rest, step->y_count - i, &step->row, normalization, PAST_CACHES);
    else
        write_y(&rest, step->y_count - i, &step->row, normalization, 0);
}

/* ---- The end of eight rows ---- */

/* Eight rows, the last ones of a call fewer. */
struct short_rows {
    struct eight_rows constants;
    size_t first;
    size_t count;
};

RARE void finish_unusual_rows(const struct forward_call *call, struct eight_rows *rows, size_t group,
                              unsigned unusual) {
    for (int row = 0; row < 8; row++)
        if (unusual >> row & 1)
            finish_unusual_row(rows, row, read_row(&call->x, group + (size_t)row), call->constants,
                               call->operation->normalization->is_centered);
}

INLINE void hand_out(float *to, const float *from, size_t count) {
    if (!to)
        return;
    if (count == 8)
        memcpy(to, from, 8 * sizeof *to);
    else
        for (size_t i = 0; i < count; i++)
            store_float(to + i, from[i]);
}

/* Of rows [group, group + count), from their sums. */
INLINE void finish_rows(const struct forward_call *call, struct short_rows *of, const struct folded_sums *sums,
                        const struct normalization *normalization) {
    struct eight_rows *rows = &of->constants;
    const size_t group = of->first, count = of->count;
    rows->shifted = rows->in_double = 0;
    unsigned unusual = finish_rows_together(rows, sums, call->constants, normalization->is_centered);
    unusual &= 0xffu >> (8 - count);
    if (unusual)
        finish_unusual_rows(call, rows, group, unusual);
    hand_out(call->mean ? call->mean + group : NULL, rows->mean, count);
    hand_out(call->rstd ? call->rstd + group : NULL, rows->rstd, count);
}

/* ---- Short rows ---- */

enum { MOST_SHORT_CHANNELS = BLOCK };

/* There are loops made for a number of sixteens, the last of which may have less than 16 channels: for rows that have
   no more channels than that, if half of the registers can hold weight and bias, and for rows of which it is the rest
   after whole spans. */
enum { MOST_SIXTEENS = 16 };

INLINE int can_be_held(int sixteens, const struct normalization *normalization) {
    return sixteens * PARTS * (normalization->has_bias ? 2 : 1) <= VEC_REGISTERS / 2;
}

struct short_loop {
    int has_spans;
    int sixteens;
    int is_whole; /* the last of the sixteens */
};

/* The sums of a group of eight rows go along with y of a group before it, so many groups ahead of it. What is known of
   the groups in between is kept in a ring. */
enum { SHORT_RING = 4 };

struct short_work {
    struct short_rows ring[SHORT_RING];
    const struct forward_call *call;
    const float *weight; /* of all channels, and the first rows */
    const float *bias;
    const float *x;
    float *y;
};

INLINE size_t groups_ahead(size_t channels) {
    return channels <= 64 ? 2 : 1;
}

/* Weight and bias of all channels. */
struct short_vectors {
    ptrdiff_t channels;
    vec weight[MOST_SIXTEENS * PARTS];
    vec bias[MOST_SIXTEENS * PARTS];
};

/* A vector of channels of a row with so many of them, whose last sixteen may not be whole. */
INLINE vec load_short(const float *from, int vector, ptrdiff_t channels, const struct short_loop *loop) {
    const int is_whole = loop->is_whole || vector < (loop->sixteens - 1) * PARTS;
    return is_whole ? vec_load(from + LANES * vector)
                    : vec_load_n(from + LANES * vector, channels - LANES * vector, vec_set(0));
}

INLINE void store_short(float *to, vec a, int vector, ptrdiff_t channels, const struct short_loop *loop) {
    if (loop->is_whole || vector < (loop->sixteens - 1) * PARTS)
        vec_store(to + LANES * vector, a);
    else
        vec_store_n(to + LANES * vector, a, channels - LANES * vector);
}

/* The last eight lanes of the sums of a row. */
INLINE void sum_short_row(struct folded_sums *folded, const float *x, ptrdiff_t channels, const struct short_loop *loop,
                          const struct normalization *normalization) {
    struct row_sums sums;
#pragma GCC unroll 4
    for (int sixteen = 0; sixteen < loop->sixteens; sixteen += 4) {
        int count = loop->sixteens - sixteen < 4 ? loop->sixteens - sixteen : 4;
        int has_last = !loop->is_whole && sixteen + count == loop->sixteens;
        const struct span span = {x + 16 * sixteen, channels - 16 * sixteen, count, count - has_last, sixteen == 0};
        add_span(&sums, normalization->sums_in, &span);
    }
    fold_row_sums(folded, &sums, normalization->sums_in);
}

INLINE void load_short_vectors(struct short_vectors *vectors, const struct short_work *work,
                               const struct short_loop *loop, const struct normalization *normalization) {
    vectors->channels = (ptrdiff_t)work->call->constants->channels;
#pragma GCC unroll 32
    for (int k = 0; k < loop->sixteens * PARTS; k++) {
        vectors->weight[k] = load_short(work->weight, k, vectors->channels, loop);
        if (normalization->has_bias)
            vectors->bias[k] = load_short(work->bias, k, vectors->channels, loop);
    }
}

INLINE void write_short_row(float *y, const float *x, const struct row_vectors *row,
                            const struct short_vectors *vectors, const struct short_loop *loop,
                            const struct normalization *normalization) {
    const ptrdiff_t channels = vectors->channels;
#pragma GCC unroll 32
    for (int k = 0; k < loop->sixteens * PARTS; k++) {
        vec value = normalize(load_short(x, k, channels, loop), row, normalization, 0);
        value = weigh(value, vectors->weight[k], normalization->has_bias ? vectors->bias[k] : value, normalization);
        store_short(y, value, k, channels, loop);
    }
    MODEL_PASS("y", 0, ROW_SPAN);
}

/* The sums of each row of a group. */
struct sums_of_group {
    eight x[8];
    eight xx[8];
};

INLINE void keep_sums(struct sums_of_group *sums, size_t row, const struct folded_sums *of,
                      const struct normalization *normalization) {
    sums->xx[row] = of->xx;
    if (normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        sums->x[row] = of->x;
}

INLINE void add_sums_of_group(struct folded_sums *totals, const struct sums_of_group *sums,
                              const struct normalization *normalization) {
    totals->xx = eight_sums(sums->xx);
    if (normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        totals->x = eight_sums(sums->x);
}

/* A row that is summed and one whose y is computed. */
struct short_spans {
    const float *summed;
    struct y_block y;
    ptrdiff_t whole; /* channels in whole spans */
    ptrdiff_t rest;
};

/* The same of a row with whole spans, and its y. */
INLINE void forward_spans_of_row(struct folded_sums *folded, const struct short_spans *spans,
                                 const struct row_vectors *row, const struct short_loop *loop,
                                 const struct normalization *normalization) {
    struct row_sums sums;
    ptrdiff_t i = 0;
    clear_row_sums(&sums, normalization->sums_in);
    for (; i < spans->whole; i += ROW_SPAN) {
        add_whole_span(&sums, normalization->sums_in, spans->summed + i);
        write_whole_span(&spans->y, i, row, normalization, 0);
    }
    if (loop->sixteens) {
        const int whole = loop->sixteens - !loop->is_whole;
        const struct span rest = {spans->summed + i, spans->rest, loop->sixteens, whole, 0};
        add_span(&sums, normalization->sums_in, &rest);
#pragma GCC unroll 16
        for (int k = 0; k < 16 * loop->sixteens; k += LANES)
            if (k < 16 * whole)
                write_whole_vector(&spans->y, i + k, row, normalization, 0);
            else
                write_last_vector(&spans->y, i + k, spans->rest - k, row, normalization, 0);
    }
    fold_row_sums(folded, &sums, normalization->sums_in);
}

/* y of eight rows that the loop of short rows cannot do. */
OUTLINED void write_short_rows(const struct forward_call *call, const struct short_rows *rows) {
    const struct block whole = {0, call->constants->channels};
    struct write_buffer buffer;
    buffer.held = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->constants.in_double >> i & 1)
            write_row_in_double(call, rows->first + i, &buffer);
        else
            call->operation->normalization->write_block(call, rows->first + i, whole, &rows->constants, &buffer);
}

INLINE void sum_any_row(struct folded_sums *folded, const float *x, ptrdiff_t channels,
                        const struct normalization *normalization) {
    struct row_sums sums;
    ptrdiff_t i = 0;
    clear_row_sums(&sums, normalization->sums_in);
    for (; i + ROW_SPAN <= channels; i += ROW_SPAN)
        add_whole_span(&sums, normalization->sums_in, x + i);
    add_last_channels(&sums, normalization->sums_in, x + i, channels - i);
    fold_row_sums(folded, &sums, normalization->sums_in);
}

/* A group of any number of rows of any number of channels; the rows of either kind may all be absent. */
INLINE void forward_any_short_group(struct short_work *work, size_t done, const struct normalization *normalization) {
    const struct forward_call *call = work->call;
    const ptrdiff_t channels = (ptrdiff_t)call->constants->channels;
    const size_t ahead = groups_ahead(call->constants->channels);
    struct short_rows *summed = &work->ring[done % SHORT_RING];
    const struct short_rows *written = &work->ring[(done - ahead) % SHORT_RING];
    summed->first = 8 * done;
    summed->count = summed->first >= call->rows ? 0 : call->rows - summed->first < 8 ? call->rows - summed->first : 8;
    size_t written_count = done >= ahead && call->y.rows.data ? written->count : 0;
    if (written_count && (call->y.streams || written->constants.shifted || written->constants.in_double)) {
        write_short_rows(call, written);
        written_count = 0;
    }
    const float *summed_x = work->x + summed->first * call->x.stride;
    struct y_block y = {work->y, work->x, work->weight, work->bias};
    if (written_count) {
        y.x += written->first * call->x.stride;
        y.y += written->first * call->y.rows.stride;
    }
    struct sums_of_group sums;
    struct folded_sums folded;
    folded.x = folded.xx = eight_set(0);
    for (size_t i = 0; i < 8; i++) {
        if (i < summed->count)
            sum_any_row(&folded, summed_x + i * call->x.stride, channels, normalization);
        if (summed->count) /* a row that does not exist has the sums of the one before, which count for nothing */
            keep_sums(&sums, i, &folded, normalization);
        if (i >= written_count)
            continue;
        const struct row_vectors constants = vectors_of_row(&written->constants, i);
        write_y(&y, channels, &constants, normalization, 0);
        y.x += call->x.stride;
        y.y += call->y.rows.stride;
    }
    if (!summed->count)
        return;
    struct folded_sums totals;
    add_sums_of_group(&totals, &sums, normalization);
    finish_rows(call, summed, &totals, normalization);
}

/* The first rows of a group that is summed and of one whose y is computed, and of the latter what is known. */
struct short_place {
    const float *summed;
    const float *x;
    float *y;
    size_t x_stride;
    size_t y_stride;
    const struct eight_rows *constants;
};

/* Half of a group whose weight and bias are in registers: y of rows 4 half and on, and the sums of rows half, half + 4,
   half + 2, half + 6. Sums are merged as soon as there are two of them, so that they need few registers. */
INLINE void forward_half_group(struct folded_sums *merged, struct short_place *place, size_t half,
                               const struct short_vectors *vectors, const struct short_loop *loop,
                               const struct normalization *normalization) {
    static const size_t order[4] = {0, 4, 2, 6};
    struct folded_sums sums[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const struct row_vectors row = vectors_of_row(place->constants, 4 * half + i);
        const float *summed = place->summed + order[i] * place->x_stride;
        KEEP_IN_REGISTER(summed);
        sum_short_row(&sums[i], summed, vectors->channels, loop, normalization);
        write_short_row(place->y, place->x, &row, vectors, loop, normalization);
        place->x += place->x_stride;
        place->y += place->y_stride;
        KEEP_IN_REGISTER(place->x);
        KEEP_IN_REGISTER(place->y);
    }
    place->summed += place->x_stride;
    merged->xx = merge_2(merge_4(sums[0].xx, sums[1].xx), merge_4(sums[2].xx, sums[3].xx));
    if (normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        merged->x = merge_2(merge_4(sums[0].x, sums[1].x), merge_4(sums[2].x, sums[3].x));
}

/* Where all vectors are whole two copies of the half are faster than a loop. */
INLINE void forward_held_group(struct folded_sums *totals, struct short_place *place,
                               const struct short_vectors *vectors, const struct short_loop *loop,
                               const struct normalization *normalization) {
    struct folded_sums before, merged = {eight_set(0), eight_set(0)};
    if (loop->is_whole) {
        forward_half_group(&before, place, 0, vectors, loop, normalization);
        forward_half_group(&merged, place, 1, vectors, loop, normalization);
    } else {
        for (size_t half = 0; half < 2; half++) {
            before = merged;
            forward_half_group(&merged, place, half, vectors, loop, normalization);
        }
    }
    totals->xx = merge_1(before.xx, merged.xx);
    if (normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        totals->x = merge_1(before.x, merged.x);
    place->summed += 6 * place->x_stride;
}

/* A group of rows with whole spans. */
INLINE void forward_group_of_spans(struct folded_sums *totals, struct short_place *place, const struct short_work *work,
                                   const struct short_loop *loop, const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)work->call->constants->channels, rest = channels % ROW_SPAN;
    const float *weight = work->weight, *bias = work->bias;
    struct sums_of_group sums;
    for (size_t i = 0; i < 8; i++) {
        const struct row_vectors row = vectors_of_row(place->constants, i);
        const struct short_spans spans = {place->summed, {place->y, place->x, weight, bias}, channels - rest, rest};
        struct folded_sums folded;
        forward_spans_of_row(&folded, &spans, &row, loop, normalization);
        keep_sums(&sums, i, &folded, normalization);
        place->summed += place->x_stride;
        place->x += place->x_stride;
        place->y += place->y_stride;
    }
    add_sums_of_group(totals, &sums, normalization);
}

/* Whole groups, from group `done` on, as long as there are rows and none of them needs more than the arithmetic of an
   ordinary one. Returns the first group that is left. All of them in one function, since the call for a group of 64
   channels would cost more than a row. */
INLINE size_t forward_short_groups(struct short_work *work, size_t done, const struct short_loop *loop,
                                   const struct normalization *normalization) {
    const struct forward_call *call = work->call;
    const size_t groups = call->rows / 8, ahead = groups_ahead(call->constants->channels);
    struct short_vectors vectors;
    if (!loop->has_spans)
        load_short_vectors(&vectors, work, loop, normalization);
    struct short_place place;
    place.x_stride = call->x.stride;
    place.y_stride = call->y.rows.stride;
    place.summed = work->x + 8 * done * place.x_stride;
    place.x = work->x + 8 * (done - ahead) * place.x_stride;
    place.y = work->y + 8 * (done - ahead) * place.y_stride;
    for (; done < groups; done++) {
        struct short_rows *finished = &work->ring[done % SHORT_RING];
        struct folded_sums totals;
        place.constants = &work->ring[(done - ahead) % SHORT_RING].constants;
        if (place.constants->shifted | place.constants->in_double)
            break;
        if (loop->has_spans)
            forward_group_of_spans(&totals, &place, work, loop, normalization);
        else
            forward_held_group(&totals, &place, &vectors, loop, normalization);
        finished->first = 8 * done;
        finished->count = 8;
        finish_rows(call, finished, &totals, normalization);
    }
    return done;
}

/* The functions of an operation that do this: of rows that registers hold, and of rows of spans. */
#define SHORT_GROUPS_OF(operation, loop, ...)                                                                          \
    OUTLINED size_t operation##_short_groups_##loop(struct short_work *work, size_t done) {                            \
        return forward_short_groups(work, done, &(const struct short_loop){__VA_ARGS__}, &operation##_normalization);  \
    }
#define IF_CHANNELS_ARE_HELD(condition, sixteens, operation, loop)                                                     \
    if ((condition) && can_be_held(sixteens, &operation##_normalization))                                              \
        return operation##_short_groups_##loop;
#define SHORT_GROUPS(operation)                                                                                        \
    OUTLINED void operation##_any_short_group(struct short_work *work, size_t done) {                                  \
        forward_any_short_group(work, done, &operation##_normalization);                                               \
    }                                                                                                                  \
    SHORT_GROUPS_OF(operation, 1, 0, 1, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 2, 0, 2, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 3, 0, 3, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 4, 0, 4, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 5, 0, 5, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 6, 0, 6, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 7, 0, 7, 0)                                                                             \
    SHORT_GROUPS_OF(operation, 8, 0, 8, 0)                                                                             \
    SHORT_GROUPS_OF(operation, whole_4, 0, 4, 1)                                                                       \
    SHORT_GROUPS_OF(operation, whole_8, 0, 8, 1)                                                                       \
    SHORT_GROUPS_OF(operation, whole_16, 0, 16, 1)                                                                     \
    SHORT_GROUPS_OF(operation, spans, 1, 0, 1)                                                                         \
    SHORT_GROUPS_OF(operation, spans_1, 1, 1, 0)                                                                       \
    SHORT_GROUPS_OF(operation, spans_2, 1, 2, 0)                                                                       \
    SHORT_GROUPS_OF(operation, spans_3, 1, 3, 0)                                                                       \
    SHORT_GROUPS_OF(operation, spans_4, 1, 4, 0)                                                                       \
    INLINE short_groups_function *operation##_short_groups(size_t channels) {                                          \
        static short_groups_function *const spans[] = {                                                                \
            operation##_short_groups_spans, operation##_short_groups_spans_1, operation##_short_groups_spans_2,        \
            operation##_short_groups_spans_3, operation##_short_groups_spans_4};                                       \
        IF_CHANNELS_ARE_HELD(channels == 64, 4, operation, whole_4)                                                    \
        IF_CHANNELS_ARE_HELD(channels == 128, 8, operation, whole_8)                                                   \
        IF_CHANNELS_ARE_HELD(channels == 256, 16, operation, whole_16)                                                 \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 1, 1, operation, 1)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 2, 2, operation, 2)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 3, 3, operation, 3)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 4, 4, operation, 4)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 5, 5, operation, 5)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 6, 6, operation, 6)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 7, 7, operation, 7)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 8, 8, operation, 8)                                               \
        return LANES > 1 ? spans[(channels % ROW_SPAN + 15) / 16] : NULL;                                              \
    }

INLINE void forward_short_rows(const struct forward_call *call, const struct normalization *normalization) {
    const struct block whole = {0, call->constants->channels};
    const size_t groups = (call->rows + 7) / 8, ahead = groups_ahead(whole.count);
    const int is_plain = call->y.rows.data && !call->y.streams;
    short_groups_function *short_groups = is_plain ? normalization->short_groups(whole.count) : NULL;
    struct short_work work;
    work.call = call;
    work.weight = read_block(&call->weight, whole);
    work.bias = normalization->has_bias ? read_block(&call->bias, whole) : NULL;
    work.x = row_of(&call->x, 0);
    work.y = call->y.rows.data ? row_of(&call->y.rows, 0) : NULL;
    for (size_t done = 0; done < groups + ahead; done++) {
        if (short_groups && done >= ahead)
            done = short_groups(&work, done);
        normalization->any_short_group(&work, done);
    }
}

/* ---- Long rows ---- */

/* Where weight and bias would not stay in the nearest cache together with a row, eight rows share them. */
enum { MOST_CHANNELS_OF_SINGLE_ROWS = 1024 };

/* What is known of the rows at hand: eight whose sums are being made, and eight before them. */
struct long_rows {
    struct eight_rows constants[2];
    struct write_buffer buffers[8];
    int is_plain; /* y goes to the caller's memory as it is, and weight and bias are read from theirs */
    size_t most;  /* channels that are read at once, as a row of weight and bias */
};

INLINE struct eight_rows *constants_of(struct long_rows *rows, size_t row) {
    return &rows->constants[row / 8 % 2];
}

/* y of some channels of a row that needs more than the arithmetic of an ordinary one. They begin at a block. */
OUTLINED void write_unusual_channels(const struct forward_call *call, struct long_rows *rows, size_t row,
                                     struct block channels) {
    const struct eight_rows *constants = constants_of(rows, row);
    const size_t lane = row % 8, end = channels.first + channels.count;
    if (constants->in_double >> lane & 1) {
        if (!channels.first) /* all of the row at once */
            write_row_in_double(call, row, &rows->buffers[lane]);
        return;
    }
    for (size_t first = channels.first; first < end; first += BLOCK)
        call->operation->normalization->write_block(call, row, block_at(first, end), constants, &rows->buffers[lane]);
}

INLINE void begin_long_rows(struct long_rows *rows, const struct forward_call *call) {
    const int has_bias = call->operation->normalization->has_bias;
    const int is_buffered = !call->weight.values || call->weight.offset != 0 || (has_bias && !call->bias.values);
    rows->is_plain = call->y.rows.data && !call->y.is_buffered && !call->y.is_direct && !is_buffered;
    rows->most = is_buffered ? BLOCK : call->constants->channels;
    for (int i = 0; i < 8; i++)
        rows->buffers[i].held = 0;
    for (int i = 0; i < 2; i++)
        rows->constants[i].shifted = rows->constants[i].in_double = 0;
}

/* Sets y of a step. */
INLINE void begin_y(struct long_step *step, const struct forward_call *call, struct long_rows *rows, size_t row,
                    struct block channels) {
    const struct eight_rows *constants = constants_of(rows, row);
    const size_t lane = row % 8;
    step->y_count = 0;
    if (call->y.is_buffered || (constants->shifted | constants->in_double) >> lane & 1) {
        write_unusual_channels(call, rows, row, channels);
        return;
    }
    step->y.y = row_of(&call->y.rows, row) + channels.first;
    step->y.x = row_of(&call->x, row) + channels.first;
    step->y.weight = read_block(&call->weight, channels);
    step->y.bias = read_block(&call->bias, channels);
    step->y_count = (ptrdiff_t)channels.count;
    step->past_caches = call->y.is_direct;
    step->row = vectors_of_row(constants, lane);
}

/* Sets the sums of a step. */
INLINE void begin_sums(struct long_step *step, const struct forward_call *call, size_t row, struct block channels) {
    const size_t ahead = call->constants->channels <= MOST_CHANNELS_OF_SINGLE_ROWS ? 8 : 1;
    struct reader x = read_row(&call->x, row);
    if (is_beyond_caches(&call->y))
        prefetch_row(&x, &call->x, row + ahead, call->rows);
    step->summed = read_block(&x, channels);
    step->summed_count = (ptrdiff_t)channels.count;
}

INLINE void finish_long_row(const struct forward_call *call, struct long_rows *rows, const struct row_sums *sums,
                            size_t row, const struct normalization *normalization) {
    struct eight_rows *constants = constants_of(rows, row);
    const int lane = (int)(row % 8);
    struct folded_sums folded;
    folded.x = eight_set(0);
    fold_row_sums(&folded, sums, normalization->sums_in);
    constants->shifted &= ~(1u << lane);
    constants->in_double &= ~(1u << lane);
    if (finish_row(constants, lane, eight_sum(folded.x), eight_sum(folded.xx), call->constants,
                   normalization->is_centered))
        finish_unusual_rows(call, constants, row - (size_t)lane, 1u << lane);
    if (call->mean)
        store_float(call->mean + row, constants->mean[lane]);
    if (call->rstd)
        store_float(call->rstd + row, constants->rstd[lane]);
}

INLINE void clear_step(struct long_step *step) {
    step->summed = NULL;
    step->y = (struct y_block){NULL, NULL, NULL, NULL};
    step->row = (struct row_vectors){vec_set(0), vec_set(0), vec_set(0)};
    step->summed_count = step->y_count = 0;
    step->past_caches = 0;
}

/* The sums of some channels of a row, and y of some channels of another one, side by side. */
struct parts {
    size_t summed_row;
    struct block summed;
    size_t written_row;
    struct block written; /* without channels if there is no such row */
};

INLINE void forward_parts(const struct forward_call *call, struct long_rows *rows, struct row_sums *sums,
                          const struct parts *parts, const struct normalization *normalization) {
    struct long_step step;
    clear_step(&step);
    struct block summed = parts->summed, written = parts->written;
    while (summed.count || written.count) {
        const struct block sums_now = {summed.first, summed.count < rows->most ? summed.count : rows->most};
        const struct block y_now = {written.first, written.count < rows->most ? written.count : rows->most};
        step.summed_count = step.y_count = 0;
        if (sums_now.count)
            begin_sums(&step, call, parts->summed_row, sums_now);
        if (y_now.count)
            begin_y(&step, call, rows, parts->written_row, y_now);
        take_step(sums, &step, normalization);
        summed = (struct block){summed.first + sums_now.count, summed.count - sums_now.count};
        written = (struct block){written.first + y_now.count, written.count - y_now.count};
    }
}

/* Whether a row needs nothing but the arithmetic of ordinary ones. */
INLINE int is_plain_row(struct long_rows *rows, size_t row) {
    const struct eight_rows *constants = constants_of(rows, row);
    return rows->is_plain && !((constants->shifted | constants->in_double) >> row % 8 & 1);
}

/* A row of forward_single_rows with two plain ones before it. */
INLINE void forward_plain_row(const struct forward_call *call, struct long_rows *rows, size_t row, size_t late,
                              const struct normalization *normalization) {
    const size_t channels = call->constants->channels;
    const float *weight = call->weight.values, *bias = call->bias.values, *x = row_of(&call->x, row);
    const float *before = row_of(&call->x, row - 1), *last = row_of(&call->x, row - 2) + late;
    float *y_before = row_of(&call->y.rows, row - 1), *y_last = row_of(&call->y.rows, row - 2) + late;
    const struct long_step first = {
        .summed = x,
        .summed_count = BLOCK,
        .y = {y_last, last, weight + late, normalization->has_bias ? bias + late : NULL},
        .y_count = (ptrdiff_t)(channels - late),
        .row = vectors_of_row(constants_of(rows, row - 2), (row - 2) % 8),
    };
    const struct long_step second = {
        .summed = x + BLOCK,
        .summed_count = (ptrdiff_t)channels - BLOCK,
        .y = {y_before, before, weight, bias},
        .y_count = (ptrdiff_t)late,
        .row = vectors_of_row(constants_of(rows, row - 1), (row - 1) % 8),
    };
    struct row_sums sums;
    clear_row_sums(&sums, normalization->sums_in);
    take_step(&sums, &first, normalization);
    take_step(&sums, &second, normalization);
    finish_long_row(call, rows, &sums, row, normalization);
}

/* The sums of a row go along with y of the row before, but for the last channels of that, which wait for the next row:
   so the sums of some channels are made while the end of the row before is still on its way. */
INLINE void forward_single_rows(const struct forward_call *call, struct long_rows *rows,
                                const struct normalization *normalization) {
    const size_t channels = call->constants->channels, has_y = call->y.rows.data != NULL;
    const size_t late = (channels - 1) / BLOCK * BLOCK; /* the channels that wait begin here */
    struct parts first, second;
    for (size_t row = 0; row < call->rows + (has_y ? 2 : 0); row++) {
        const size_t summed = row < call->rows;
        struct row_sums sums;
        if (row >= 2 && summed && is_plain_row(rows, row - 1) && is_plain_row(rows, row - 2)) {
            forward_plain_row(call, rows, row, late, normalization);
            continue;
        }
        clear_row_sums(&sums, normalization->sums_in);
        first.summed_row = second.summed_row = row;
        first.written_row = row - 2;
        second.written_row = row - 1;
        first.summed = (struct block){0, summed ? BLOCK : 0};
        first.written = (struct block){late, has_y && row >= 2 ? channels - late : 0};
        second.summed = (struct block){BLOCK, summed ? channels - BLOCK : 0};
        second.written = (struct block){0, has_y && row >= 1 && row <= call->rows ? late : 0};
        forward_parts(call, rows, &sums, &first, normalization);
        forward_parts(call, rows, &sums, &second, normalization);
        if (summed)
            finish_long_row(call, rows, &sums, row, normalization);
    }
}

/* A group of forward_groups_of_rows of eight rows, with eight plain ones before it. */
INLINE void forward_plain_group(const struct forward_call *call, struct long_rows *rows, size_t group,
                                const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)call->constants->channels;
    const size_t x_stride = call->x.stride, y_stride = call->y.rows.stride;
    const float *weight = call->weight.values, *bias = call->bias.values;
    const float *summed = row_of(&call->x, group), *first_x = row_of(&call->x, group - 8);
    float *first_y = row_of(&call->y.rows, group - 8);
    const struct eight_rows *constants = constants_of(rows, group - 8);
    ptrdiff_t channel = 0; /* where the sums are */
    struct row_sums sums;
    clear_row_sums(&sums, normalization->sums_in);
    for (ptrdiff_t first = 0; first < channels; first += BLOCK) {
        const float *x = first_x + first;
        float *y = first_y + first;
        for (size_t i = 0; i < 8; i++, x += x_stride, y += y_stride) {
            const struct long_step step = {
                .summed = summed + channel,
                .summed_count = channels - channel < BLOCK ? channels - channel : BLOCK,
                .y = {y, x, weight + first, normalization->has_bias ? bias + first : NULL},
                .y_count = channels - first < BLOCK ? channels - first : BLOCK,
                .row = vectors_of_row(constants, i),
            };
            take_step(&sums, &step, normalization);
            channel += BLOCK;
            if (channel >= channels) {
                finish_long_row(call, rows, &sums, group++, normalization);
                clear_row_sums(&sums, normalization->sums_in);
                channel = 0;
                summed += x_stride;
            }
        }
    }
}

/* y of eight rows, block by block, along with the sums of the next eight, row by row. */
INLINE void forward_groups_of_rows(const struct forward_call *call, struct long_rows *rows,
                                   const struct normalization *normalization) {
    const size_t channels = call->constants->channels, end = call->rows;
    struct long_step step;
    clear_step(&step);
    size_t written = 0; /* rows of the group before whose y is to be computed */
    for (size_t group = 0;; group += 8) {
        const size_t summed = group < end ? (end - group < 8 ? end - group : 8) : 0;
        const size_t most = written > summed ? written : summed;
        size_t row = 0, channel = 0; /* where the sums are */
        struct row_sums sums;
        const struct eight_rows *constants = constants_of(rows, group - 8);
        if (!most)
            break;
        if (summed == 8 && written == 8 && rows->is_plain && !(constants->shifted | constants->in_double)) {
            forward_plain_group(call, rows, group, normalization);
            continue;
        }
        clear_row_sums(&sums, normalization->sums_in);
        for (size_t first = 0; first < channels; first += BLOCK)
            for (size_t i = 0; i < most; i++) {
                step.summed_count = step.y_count = 0;
                if (row < summed)
                    begin_sums(&step, call, group + row, block_at(channel, channels));
                if (i < written)
                    begin_y(&step, call, rows, group - 8 + i, block_at(first, channels));
                take_step(&sums, &step, normalization);
                channel += BLOCK;
                if (row < summed && channel >= channels) {
                    finish_long_row(call, rows, &sums, group + row, normalization);
                    clear_row_sums(&sums, normalization->sums_in);
                    channel = 0;
                    row++;
                }
            }
        written = call->y.rows.data ? summed : 0;
    }
}

/* ---- The driver ---- */

INLINE void forward_rows(const struct forward_call *call, const struct normalization *normalization) {
    struct long_rows long_rows;
    if (call->constants->channels <= MOST_SHORT_CHANNELS) {
        forward_short_rows(call, normalization);
        return;
    }
    begin_long_rows(&long_rows, call);
    if (call->constants->channels <= MOST_CHANNELS_OF_SINGLE_ROWS)
        forward_single_rows(call, &long_rows, normalization);
    else
        forward_groups_of_rows(call, &long_rows, normalization);
}

INLINE void forward_normalization(const struct forward_arguments *arguments, size_t first, size_t rows,
                                  const struct operation *operation) {
    const struct normalization *normalization = operation->normalization;
    const struct call_constants constants =
        operation->begin_call(arguments->channels, arguments->eps, arguments->parameter, arguments->scale);
    float weight_buffer[BLOCK], bias_buffer[BLOCK];
    struct forward_call call = {
        .y = write_tensor_directly(&arguments->y, constants.channels, arguments->streams),
        .weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer),
        .bias = read_bias(normalization->has_bias ? arguments->bias : NULL, bias_buffer),
        .constants = &constants,
        .operation = operation,
    };
    for (size_t row = first; row < first + rows; row += call.rows) {
        const size_t x_rows = rows_on_first_axis(&arguments->x, row), y_rows = rows_on_first_axis(&arguments->y, row);
        call.rows = first + rows - row;
        call.rows = call.rows < x_rows ? call.rows : x_rows;
        call.rows = call.rows < y_rows || !arguments->y.data ? call.rows : y_rows;
        call.x = rows_from(&arguments->x, row);
        call.y.rows = rows_from(&arguments->y, row);
        call.mean = arguments->mean ? arguments->mean + row : NULL;
        call.rstd = arguments->rstd ? arguments->rstd + row : NULL;
        forward_rows(&call, normalization);
    }
    end_writing(&call.y);
}

#endif
