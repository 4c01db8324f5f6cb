/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations for short rows, in groups of eight: see forward/normalization.h.
 */
#ifndef DYNNORM_FORWARD_SHORT_ROWS_H
#define DYNNORM_FORWARD_SHORT_ROWS_H

#include "rows/floats.h"
#include "rows/forward/normalized_channels.h"
#include "rows/forward/shared_lines.h"
#include "rows/reader.h"

#include <string.h>

/* ---- The end of eight rows ---- */

/* Eight rows, the last ones of a call fewer. */
struct short_rows {
    struct eight_rows constants;
    size_t first;
    size_t count;
};

INLINE void hand_out(float *to, const float *from, size_t count) {
    if (!to)
        return;
    if (count == 8)
        memcpy(to, from, 8 * sizeof *to);
    else
        for (size_t i = 0; i < count; i++)
            store_float(to + i, from[i]);
}

/* Makes the constants of some rows from their sums, and hands out the statistics that the caller asked for. */
INLINE void finish_rows(const struct forward_call *call, struct short_rows *of, const struct folded_sums *sums,
                        const struct normalization *normalization) {
    struct eight_rows *rows = &of->constants;
    const size_t group = of->first, count = of->count;
    rows->shifted = rows->in_double = 0;
    unsigned unusual = finish_rows_together(rows, sums, call->constants, normalization->is_centered);
    unusual &= 0xffu >> (8 - count);
    if (unusual)
        finish_unusual_rows(call, rows, group, unusual, sums);
    hand_out(call->mean ? call->mean + group : NULL, rows->mean, count);
    hand_out(call->rstd ? call->rstd + group : NULL, rows->rstd, count);
}

/* ---- The loops ---- */

/* There are loops made for a number of sixteens, the last of which may have less than 16 channels, for rows that have
   no more channels than that, if half of the registers can hold weight and bias. */
enum { MOST_SIXTEENS = 8 };

INLINE int can_be_held(int sixteens, const struct normalization *normalization) {
    return sixteens * PARTS * (normalization->has_bias ? 2 : 1) <= VEC_REGISTERS / 2;
}

struct short_loop {
    int has_spans; /* any number of them, and no sixteens of a known number */
    int sixteens;
    int is_whole;  /* the last of either */
    int fetches_y; /* of 128 channels without a bias: those of 64 always do, others ask fetches_to_write */
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
    int only_shifted; /* the loop of spans leaves groups without a shifted row to a better one */
};

INLINE size_t groups_ahead(size_t channels) {
    return channels >= 64 ? 1 : 2;
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

/* The last eight lanes of the sums of a row. ahead: NULL, or how many floats ahead x is fetched meanwhile. */
INLINE void sum_short_row(struct folded_sums *folded, const float *x, const size_t *ahead, ptrdiff_t channels,
                          const struct short_loop *loop, const struct normalization *normalization) {
    struct row_sums sums;
#pragma GCC unroll 4
    for (int sixteen = 0; sixteen < loop->sixteens; sixteen += 4) {
        int count = loop->sixteens - sixteen < 4 ? loop->sixteens - sixteen : 4;
        int has_last = !loop->is_whole && sixteen + count == loop->sixteens;
        const struct span span = {.x = x + 16 * sixteen,
                                  .count = channels - 16 * sixteen,
                                  .sixteens = count,
                                  .whole_sixteens = count - has_last,
                                  .is_first = sixteen == 0,
                                  .ahead = ahead};
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
    const struct y_block *y = &spans->y;
    ptrdiff_t i = 0;
    clear_row_sums(&sums, normalization->sums_in);
    for (; i < spans->whole; i += ROW_SPAN) {
        add_whole_span(&sums, normalization->sums_in, spans->summed + i);
        write_whole_span(y, i, row, normalization, MAY_BE_SHIFTED);
    }
    if (!loop->is_whole) {
        add_last_sixteens(&sums, normalization->sums_in, spans->summed + i, spans->rest);
        write_rest(y, i, i + spans->rest, row, normalization, 0);
    }
    fold_row_sums(folded, &sums, normalization->sums_in);
}

/* y of eight rows that the loop of short rows cannot do. */
OUTLINED void write_short_rows(const struct forward_call *call, const struct short_rows *rows) {
    const size_t channels = call->constants->channels;
    struct write_buffer buffer;
    buffer.held = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const size_t row = rows->first + i;
        if (rows->constants.in_double >> i & 1) {
            write_row_in_double(call, &rows->constants, row, &buffer);
            continue;
        }
        for (size_t first = 0; first < channels; first += BLOCK)
            call->operation->normalization->write_block(call, row, block_at(first, channels), &rows->constants,
                                                        &buffer);
    }
}

INLINE void sum_any_row(struct folded_sums *folded, const float *x, ptrdiff_t channels,
                        const struct normalization *normalization) {
    struct row_sums sums;
    sum_channels(&sums, normalization->sums_in, x, channels);
    fold_row_sums(folded, &sums, normalization->sums_in);
}

/* y of the last row of the group whose y was computed before the given one may still wait for the next row. */
INLINE void end_line_before(struct short_work *work, size_t group) {
    end_shared_line(work->call, 8 * group - 1, &work->ring[(group - 1) % SHORT_RING].constants);
}

/* A group of any number of rows of any number of channels; the rows of either kind may all be absent. Where y is stored
 * past the caches all groups are such ones. */
INLINE void forward_any_short_group(struct short_work *work, size_t done, const struct normalization *normalization) {
    const struct forward_call *call = work->call;
    const ptrdiff_t channels = (ptrdiff_t)call->constants->channels;
    const size_t ahead = groups_ahead(call->constants->channels);
    const size_t rows_ahead = rows_prefetched_ahead(call->constants->channels);
    const int is_from_memory = VEC_CAN_STREAM && is_beyond_caches(&call->y);
    struct short_rows *summed = &work->ring[done % SHORT_RING];
    const struct short_rows *written = &work->ring[(done - ahead) % SHORT_RING];
    summed->first = 8 * done;
    summed->count = summed->first >= call->rows ? 0 : call->rows - summed->first < 8 ? call->rows - summed->first : 8;
    size_t written_count = done >= ahead && call->y.rows.data ? written->count : 0;
    if (written_count && (call->y.is_buffered || written->constants.in_double)) {
        end_line_before(work, done - ahead);
        write_short_rows(call, written);
        written_count = 0;
    }
    const float *summed_x = work->x + summed->first * call->x.stride;
    struct y_block y = {work->y, work->x, work->weight, work->bias, call->fetches_to_write};
    if (written_count) {
        y.x += written->first * call->x.stride;
        y.y += written->first * call->y.rows.stride;
    }
    struct sums_of_group sums;
    struct folded_sums folded;
    folded.x = folded.xx = eight_set(0);
    for (size_t i = 0; i < 8; i++) {
        if (is_from_memory && summed->first + i + rows_ahead < call->rows)
            prefetch_block(summed_x + (i + rows_ahead) * call->x.stride, (struct block){0, (size_t)channels});
        if (i < summed->count)
            sum_any_row(&folded, summed_x + i * call->x.stride, channels, normalization);
        if (summed->count) /* a row that does not exist has the sums of the one before, which count for nothing */
            keep_sums(&sums, i, &folded, normalization);
        if (i >= written_count)
            continue;
        const struct row_vectors constants = vectors_of_row(&written->constants, i);
        if (VEC_CAN_STREAM && call->line)
            write_lines(call, written->first + i,
                        normalization->lines_of_row(call, written->first + i, &written->constants), &constants,
                        normalization);
        else if (VEC_CAN_STREAM && call->y.is_direct)
            write_y(&y, channels, &constants, normalization, SHIFTED | PAST_CACHES);
        else
            write_y(&y, channels, &constants, normalization, SHIFTED);
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
    int fetches_to_write;
    const struct eight_rows *constants;
};

/* What is known of a loop when compiling. */
struct short_form {
    const struct short_loop *loop;
    const struct normalization *normalization;
};

/* How many rows of the group before are left until the sums of a group have been finished. Their y is computed while
   the finish waits for its own results, which takes about as long as half of a group of 64 channels. Being two groups
   ahead would hide the wait as well; but then more comes between the two times when a row is read, which is slower
   where rows come from beyond the second-level cache. */
INLINE size_t rows_after_sums(const struct short_form *form) {
    const int has_few_sums = form->loop->is_whole && form->normalization->sums_in == ROW_SQUARES_IN_FLOAT;
    return has_few_sums && form->loop->sixteens == 4 ? 4 : 0;
}

/* y of a row of a group whose weight and bias are in registers. Meanwhile the lines of a later row are fetched if all
   vectors are whole: those of 128 channels where that pays, those of 64, which are too short to ask, always, and with
   AVX-512 two rows before. Of other rows this took up to 1.2 times as long with AVX-512 on a Zen 5, where it does not
   pay; with NEON neither was measured. */
INLINE void write_held_row(struct short_place *place, size_t row, const struct short_vectors *vectors,
                           const struct short_form *form) {
    const struct row_vectors constants = vectors_of_row(place->constants, row);
    const int is_shortest = form->loop->is_whole && form->loop->sixteens == 4;
    const int asks_call = form->loop->is_whole && form->normalization->has_bias;
    const int is_fetched = is_shortest || form->loop->fetches_y || (asks_call && place->fetches_to_write);
    const size_t ahead = LANES == 16 && is_shortest ? 2 : 1;
    for (ptrdiff_t i = 0; MAY_FETCH_WHAT_IS_WRITTEN && is_fetched && i < 16 * form->loop->sixteens; i += FLOATS_OF_LINE)
        fetch_to_write(place->y + i, ahead * place->y_stride);
    write_short_row(place->y, place->x, &constants, vectors, form->loop, form->normalization);
    place->x += place->x_stride;
    place->y += place->y_stride;
    KEEP_IN_REGISTER(place->x);
    KEEP_IN_REGISTER(place->y);
}

INLINE void sum_held_row(struct folded_sums *sums, const float *summed, const size_t *ahead,
                         const struct short_vectors *vectors, const struct short_form *form) {
    KEEP_IN_REGISTER(summed);
    sum_short_row(sums, summed, ahead, vectors->channels, form->loop, form->normalization);
}

INLINE void write_rows_after_sums(struct short_place *place, const struct short_vectors *vectors,
                                  const struct short_form *form) {
#pragma GCC unroll 8
    for (size_t i = 8 - rows_after_sums(form); i < 8; i++)
        write_held_row(place, i, vectors, form);
}

/* Half of such a group: y of rows 4 half and on, and the sums of these rows of the next group. Sums are merged as soon
   as there are two of them, so that they need few registers: not of rows r and r + 4, which would come first, but of
   neighbours, lest rows are read in another order than they lie in, which took up to 1.9 times as long from memory. So
   in the end they are put in order: see eight_reordered. */
INLINE void forward_half_group(struct folded_sums *merged, struct short_place *place, size_t half,
                               const struct short_vectors *vectors, const struct short_form *form) {
    struct folded_sums sums[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        sum_held_row(&sums[i], place->summed + i * place->x_stride, NULL, vectors, form);
        write_held_row(place, 4 * half + i, vectors, form);
    }
    place->summed += 4 * place->x_stride;
    merged->xx = merge_2(merge_4(sums[0].xx, sums[1].xx), merge_4(sums[2].xx, sums[3].xx));
    if (form->normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        merged->x = merge_2(merge_4(sums[0].x, sums[1].x), merge_4(sums[2].x, sums[3].x));
}

/* A row of a group that is summed, and y of a row of the one before. With AVX-512 the next row to be summed is fetched
   meanwhile. The CPU fetches ahead of what is read by itself, but y reads x once more, a group behind, which misleads
   it: on a Zen 4, from the third-level cache, a loop of nothing but such loads and stores took 5.6 cycles for each
   line, 4.9 if y was made of something else, and 5.1 with the next eight lines fetched. */
INLINE void forward_held_row(struct sums_of_group *sums, struct short_place *place, size_t row,
                             const struct short_vectors *vectors, const struct short_form *form) {
    struct folded_sums folded;
    sum_held_row(&folded, place->summed, LANES == 16 ? &place->x_stride : NULL, vectors, form);
    if (row >= rows_after_sums(form))
        write_held_row(place, row - rows_after_sums(form), vectors, form);
    keep_sums(sums, row, &folded, form->normalization);
    place->summed += place->x_stride;
}

/* Where all vectors are whole, and registers have room for the sums of all rows, since these are of one kind, copies of
   a row are faster than a loop. Where y of 128 channels is fetched a loop takes less code, and on a Zen 5 it took 0.93
   to 0.96 times as long as copies. With sums of two kinds, copies of half a group took 0.97 to 1.0 times as long as a
   loop on a Zen 4, and nearly twice as much code. */
INLINE void forward_held_group(struct folded_sums *totals, struct short_place *place,
                               const struct short_vectors *vectors, const struct short_form *form) {
    struct folded_sums before, merged = {eight_set(0), eight_set(0)};
    if (form->loop->is_whole && form->normalization->sums_in == ROW_SQUARES_IN_FLOAT) {
        struct sums_of_group sums;
        if (form->loop->fetches_y) {
#pragma GCC unroll 1
            for (size_t i = 0; i < 8; i++)
                forward_held_row(&sums, place, i, vectors, form);
        } else {
#pragma GCC unroll 8
            for (size_t i = 0; i < 8; i++)
                forward_held_row(&sums, place, i, vectors, form);
        }
        add_sums_of_group(totals, &sums, form->normalization);
        return;
    }
    for (size_t half = 0; half < 2; half++) {
        before = merged;
        forward_half_group(&merged, place, half, vectors, form);
    }
    totals->xx = eight_reordered(merge_1(before.xx, merged.xx));
    if (form->normalization->sums_in == ROW_SUMS_IN_DOUBLE)
        totals->x = eight_reordered(merge_1(before.x, merged.x));
}

/* A group of rows with whole spans. */
INLINE void forward_group_of_spans(struct folded_sums *totals, struct short_place *place, const struct short_work *work,
                                   const struct short_loop *loop, const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)work->call->constants->channels, rest = channels % ROW_SPAN;
    const float *weight = work->weight, *bias = work->bias;
    struct sums_of_group sums;
    for (size_t i = 0; i < 8; i++) {
        const struct row_vectors row = vectors_of_row(place->constants, i);
        const struct short_spans spans = {
            place->summed, {place->y, place->x, weight, bias, place->fetches_to_write}, channels - rest, rest};
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
   ordinary one, which the loop of spans has for shifted ones, too. Returns the first group that is left. All of them in
   one function, since the call for a group of 64 channels would cost more than a row. */
INLINE size_t forward_short_groups(struct short_work *work, size_t done, const struct short_loop *loop,
                                   const struct normalization *normalization) {
    const struct forward_call *call = work->call;
    const size_t groups = call->rows / 8, ahead = groups_ahead(call->constants->channels);
    struct short_vectors vectors;
    const struct short_form form = {loop, normalization};
    if (!loop->has_spans)
        load_short_vectors(&vectors, work, loop, normalization);
    struct short_place place;
    place.x_stride = call->x.stride;
    place.y_stride = call->y.rows.stride;
    place.fetches_to_write = call->fetches_to_write;
    place.summed = work->x + 8 * done * place.x_stride;
    place.x = work->x + 8 * (done - ahead) * place.x_stride;
    place.y = work->y + 8 * (done - ahead) * place.y_stride;
    for (; done < groups; done++) {
        struct short_rows *finished = &work->ring[done % SHORT_RING];
        struct folded_sums totals;
        place.constants = &work->ring[(done - ahead) % SHORT_RING].constants;
        const unsigned shifted = place.constants->shifted;
        if (place.constants->in_double || (loop->has_spans ? work->only_shifted && !shifted : shifted != 0))
            break;
        if (loop->has_spans)
            forward_group_of_spans(&totals, &place, work, loop, normalization);
        else
            forward_held_group(&totals, &place, &vectors, &form);
        finished->first = 8 * done;
        finished->count = 8;
        finish_rows(call, finished, &totals, normalization);
        if (!loop->has_spans)
            write_rows_after_sums(&place, &vectors, &form);
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
    SHORT_GROUPS_OF(operation, 1, .sixteens = 1)                                                                       \
    SHORT_GROUPS_OF(operation, 2, .sixteens = 2)                                                                       \
    SHORT_GROUPS_OF(operation, 3, .sixteens = 3)                                                                       \
    SHORT_GROUPS_OF(operation, 4, .sixteens = 4)                                                                       \
    SHORT_GROUPS_OF(operation, 5, .sixteens = 5)                                                                       \
    SHORT_GROUPS_OF(operation, 6, .sixteens = 6)                                                                       \
    SHORT_GROUPS_OF(operation, 7, .sixteens = 7)                                                                       \
    SHORT_GROUPS_OF(operation, 8, .sixteens = 8)                                                                       \
    SHORT_GROUPS_OF(operation, whole_4, .sixteens = 4, .is_whole = 1)                                                  \
    SHORT_GROUPS_OF(operation, whole_8, .sixteens = 8, .is_whole = 1)                                                  \
    SHORT_GROUPS_OF(operation, whole_8_fetched, .sixteens = 8, .is_whole = 1, .fetches_y = 1)                          \
    SHORT_GROUPS_OF(operation, whole_spans, .has_spans = 1, .is_whole = 1)                                             \
    SHORT_GROUPS_OF(operation, spans, .has_spans = 1)                                                                  \
    INLINE short_groups_function *operation##_short_groups(size_t channels, int fetches_y) {                           \
        IF_CHANNELS_ARE_HELD(channels == 64, 4, operation, whole_4)                                                    \
        IF_CHANNELS_ARE_HELD(channels == 128 && fetches_y && !operation##_has_bias, 8, operation, whole_8_fetched)     \
        IF_CHANNELS_ARE_HELD(channels == 128, 8, operation, whole_8)                                                   \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 1, 1, operation, 1)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 2, 2, operation, 2)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 3, 3, operation, 3)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 4, 4, operation, 4)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 5, 5, operation, 5)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 6, 6, operation, 6)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 7, 7, operation, 7)                                               \
        IF_CHANNELS_ARE_HELD((channels + 15) / 16 == 8, 8, operation, 8)                                               \
        return channels % ROW_SPAN ? operation##_short_groups_spans : operation##_short_groups_whole_spans;            \
    }

INLINE void forward_short_rows(const struct forward_call *call, const struct normalization *normalization) {
    const struct block whole = {0, call->constants->channels};
    const size_t groups = (call->rows + 7) / 8, ahead = groups_ahead(whole.count);
    const int is_plain = call->y.rows.data && !(VEC_CAN_STREAM && call->y.streams);
    short_groups_function *short_groups =
        is_plain ? normalization->short_groups(whole.count, call->fetches_to_write) : NULL;
    struct short_work work;
    work.call = call;
    work.weight = read_block(&call->weight, whole);
    work.bias = normalization->has_bias ? read_block(&call->bias, whole) : NULL;
    work.x = row_of(&call->x, 0);
    work.y = call->y.rows.data ? row_of(&call->y.rows, 0) : NULL;
    for (size_t done = 0; done < groups + ahead;) {
        const size_t first = done;
        if (short_groups && done >= ahead) {
            work.only_shifted = 0;
            done = short_groups(&work, done);
            work.only_shifted = 1;
            if (normalization->is_centered)
                done = normalization->groups_of_spans(&work, done);
        }
        if (done == first)
            normalization->any_short_group(&work, done++);
    }
    end_shared_line(call, call->rows - 1, &work.ring[(groups - 1) % SHORT_RING].constants);
}

#endif
