/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of normalizations whose x and y are of the same type of 16 bits. It computes what
 * forward_normalization computes from the widened x, rounded to the type: to the last bit, since the sums have the same
 * order. But x is widened in registers, each of the two times that it is read, and y is rounded there. A pass through
 * buffers of floats would take longer.
 *
 * Rows go in groups, which end together. The sums of one group go along with y of the group before it.
 *
 * This is for ordinary rows only: the driver ends at a row that is shifted, or whose sums cannot be trusted. So the
 * sums of a row tell that its x are finite. Weight and bias are finite as well, or the driver is not called. Then no y
 * is a NaN.
 */
#ifndef DYNNORM_FORWARD_HALVES_H
#define DYNNORM_FORWARD_HALVES_H

#include "kernels.h"
#include "rows/forward_short_rows.h"
#include "rows/halves.h"
#include "rows/normalized_channels.h"

/* Rows that are summed, and rows whose y is computed. Strides and distances are in bytes. */
struct halves_step {
    const unsigned char *summed;
    size_t summed_count;
    const unsigned char *x;
    unsigned char *y;
    size_t written_count;
    const struct eight_rows *constants; /* of the latter */
    const float *weight;
    const float *bias;
    size_t x_stride;
    size_t y_stride;
    size_t ahead;    /* as far behind the rows that are summed others are prefetched, or 0: none are */
    int past_caches; /* y goes there; it begins at a cache line */
};

/* What is known when compiling. */
struct halves_form {
    const struct normalization *normalization;
    const struct halves_type *type;
};

/* ---- Some channels ---- */

/* A row whose y is computed. */
struct row_of_halves {
    const unsigned char *x;
    unsigned char *y;
    const float *weight;
    const float *bias;
    struct row_vectors constants;
    int past_caches;
};

INLINE vec y_of_halves(const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form) {
    const vec n = normalize(form->type->load.all(row->x + HALF_BYTES * i), &row->constants, form->normalization, 0);
    return weigh(n, vec_load(row->weight + i), form->normalization->has_bias ? vec_load(row->bias + i) : n,
                 form->normalization);
}

INLINE void write_halves(const struct row_of_halves *row, ptrdiff_t i, const struct halves_form *form) {
    const halves y = form->type->narrow_numbers(y_of_halves(row, i, form), y_of_halves(row, i + LANES, form));
    if (VEC_CAN_STREAM && row->past_caches)
        halves_stream(row->y + HALF_BYTES * i, y);
    else
        halves_store(row->y + HALF_BYTES * i, y);
}

/* The first count of them, fewer than HALVES. */
INLINE void write_last_halves(const struct row_of_halves *row, ptrdiff_t i, ptrdiff_t count,
                              const struct halves_form *form) {
    const vec zero = vec_set(0);
    vec y[2];
    form->type->widen(&y[0], &y[1], halves_load_n(row->x + HALF_BYTES * i, count));
    for (int k = 0; k < 2; k++) {
        const ptrdiff_t first = i + k * LANES, left = count - k * LANES;
        const vec n = normalize(y[k], &row->constants, form->normalization, 0),
                  weight = vec_load_n(row->weight + first, left, zero);
        y[k] = weigh(n, weight, form->normalization->has_bias ? vec_load_n(row->bias + first, left, zero) : n,
                     form->normalization);
    }
    halves_store_n(row->y + HALF_BYTES * i, form->type->narrow_numbers(y[0], y[1]), count);
}

/* ---- Blocks of channels ---- */

/* Of each span to come two cache lines are fetched: sums begin with one of them, and y with the other. So fetching,
   storing and arithmetic are evenly mixed. */
INLINE void prefetch_line(const unsigned char *x, size_t ahead) {
    if (ahead)
        __builtin_prefetch(x + ahead, 0, 2);
}

/* The last channels, fewer than a span, are summed with zeros after them. */
INLINE void sum_halves(struct row_sums *sums, const unsigned char *x, ptrdiff_t channels, size_t ahead,
                       const struct halves_form *form) {
    unsigned char last[HALF_BYTES * ROW_SPAN];
    clear_row_sums(sums, form->normalization->sums_in);
    for (ptrdiff_t left = channels; left > 0; left -= ROW_SPAN, x += sizeof last) {
        prefetch_line(x, ahead);
        if (left < ROW_SPAN) {
            memset(last, 0, sizeof last);
            memcpy(last, x, HALF_BYTES * (size_t)left % sizeof last);
            x = last;
        }
        const struct span span = {(const float *)x, ROW_SPAN, 4, 4, 0, NULL, &form->type->load};
        add_span(sums, form->normalization->sums_in, &span);
    }
}

/* Channels [first, end) of the rows that are summed. */
INLINE void sum_rows_of_halves(struct sums_of_group *to, const struct halves_step *step, ptrdiff_t first, ptrdiff_t end,
                               const struct halves_form *form) {
    const unsigned char *x = step->summed + HALF_BYTES * first;
    for (size_t i = 0; i < step->summed_count; i++, x += step->x_stride) {
        struct row_sums sums;
        struct folded_sums folded;
        sum_halves(&sums, x, end - first, step->ahead, form);
        fold_row_sums(&folded, &sums, form->normalization->sums_in);
        keep_sums(to, i, &folded, form->normalization);
    }
}

/* And of those whose y is computed. */
INLINE void write_rows_of_halves(const struct halves_step *of, ptrdiff_t first, ptrdiff_t end,
                                 const struct halves_form *form) {
    const struct halves_step step = *of; /* which stores to y do not change */
    struct row_of_halves row = {
        .x = step.x, .y = step.y, .weight = step.weight, .bias = step.bias, .past_caches = step.past_caches};
    const size_t ahead = step.ahead ? (size_t)(step.summed - step.x) + step.ahead + 64 : 0;
    for (size_t lane = 0; lane < step.written_count; lane++) {
        ptrdiff_t i = first;
        row.constants = vectors_of_row(step.constants, lane);
        for (; i + ROW_SPAN <= end; i += ROW_SPAN) {
            prefetch_line(row.x + HALF_BYTES * i, ahead);
#pragma GCC unroll 8
            for (int k = 0; k < ROW_SPAN; k += HALVES)
                write_halves(&row, i + k, form);
        }
        for (; i + HALVES <= end; i += HALVES)
            write_halves(&row, i, form);
        if (i < end)
            write_last_halves(&row, i, end - i, form);
        row.x += step.x_stride;
        row.y += step.y_stride;
    }
}

/* ---- Rows ---- */

/* A row that is longer than a block by itself. Its blocks' sums are added; they are left in the first lanes. */
INLINE void take_long_row(struct sums_of_group *sums, const struct halves_step *step, ptrdiff_t channels,
                          const struct functions_of_halves *functions) {
    _Alignas(64) double x[8] = {0}, xx[8] = {0};
    for (ptrdiff_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const ptrdiff_t end = channels - first < SUMMED_BLOCK ? channels : first + SUMMED_BLOCK;
        sums->x[0] = eight_set(0);
        functions->sum(sums, step, first, end);
        x[0] += eight_sum(sums->x[0]);
        xx[0] += eight_sum(sums->xx[0]);
        functions->write(step, first, end);
    }
    sums->x[0] = eight_load(x);
    sums->xx[0] = eight_load(xx);
}

/* ---- The driver ---- */

/* Rows whose sums have been made, and how many of them. */
struct halves_group {
    struct eight_rows constants;
    size_t count;
};

/* Makes the constants of a group. Nonzero if there is an unusual row among them, which then ends it. */
INLINE int finish_halves_group(struct halves_group *group, const struct sums_of_group *sums,
                               const struct call_constants *constants, const struct normalization *normalization) {
    struct folded_sums totals;
    group->constants.shifted = 0;
    add_sums_of_group(&totals, sums, normalization);
    unsigned unusual = finish_rows_together(&group->constants, &totals, constants, normalization->is_centered);
    unusual = (unusual | group->constants.shifted) & ((1u << group->count) - 1);
    if (!unusual)
        return 0;
    group->count = (size_t)__builtin_ctz(unusual);
    return 1;
}

/* Eight short rows stay in the nearest cache from the first time they are read to the second, but not eight long ones.
   Others are prefetched that lie so far behind them, if all rows lie close to one another. */
INLINE size_t forward_rows_of_halves(const struct forward_arguments *arguments, size_t first, size_t rows,
                                     const struct operation *operation, const struct functions_of_halves *functions) {
    const struct normalization *normalization = operation->normalization;
    const size_t channels = arguments->channels, most = channels <= SUMMED_BLOCK ? 8 : 1;
    const struct call_constants constants = operation->begin_call(channels, arguments->eps, 0, 0);
    struct halves_group groups[2], *written = &groups[0], *summed = &groups[1], *other;
    struct halves_step step = {.weight = arguments->weight,
                               .bias = arguments->bias,
                               .x_stride = HALF_BYTES * arguments->x.strides[0],
                               .y_stride = HALF_BYTES * arguments->y.strides[0],
                               .past_caches = arguments->streams};
    struct sums_of_group sums;
    size_t done = 0; /* rows whose constants have been made */
    int is_end = 0;
    if (!HAS_SPECIAL_LOOPS)
        return 0;
    step.summed = step.x = (const unsigned char *)arguments->x.data + first * step.x_stride;
    step.y = (unsigned char *)arguments->y.data + first * step.y_stride;
    step.ahead = arguments->streams ? most * step.x_stride : 0;
    for (int i = 0; i < 8; i++) /* those of a group that has fewer rows count for nothing */
        sums.x[i] = sums.xx[i] = eight_set(0);
    written->count = 0;
    for (;;) {
        step.summed_count = summed->count = is_end ? 0 : rows - done < most ? rows - done : most;
        step.written_count = written->count;
        step.constants = &written->constants;
        if (!summed->count && !written->count)
            break;
        if (channels > SUMMED_BLOCK) {
            take_long_row(&sums, &step, (ptrdiff_t)channels, functions);
        } else {
            functions->sum(&sums, &step, 0, (ptrdiff_t)channels);
            functions->write(&step, 0, (ptrdiff_t)channels);
        }
        step.x += written->count * step.x_stride;
        step.y += written->count * step.y_stride;
        step.summed += summed->count * step.x_stride;
        if (summed->count) {
            is_end = finish_halves_group(summed, &sums, &constants, normalization);
            hand_out(arguments->mean ? arguments->mean + first + done : NULL, summed->constants.mean, summed->count);
            hand_out(arguments->rstd ? arguments->rstd + first + done : NULL, summed->constants.rstd, summed->count);
            done += summed->count;
        }
        other = written, written = summed, summed = other;
    }
    if (arguments->streams)
        vec_end_streaming();
    return done;
}

INLINE size_t forward_halves(const struct forward_arguments *arguments, size_t first, size_t rows,
                             const struct operation *operation, const struct halves_type *type) {
    const struct normalization *normalization = operation->normalization;
    return normalization->rows_of_halves(arguments, first, rows, &normalization->of_halves[type->type]);
}

/* An operation's own functions of this, which are not inlined. */
#define HALVES_OF(operation, type)                                                                                     \
    OUTLINED void operation##_sum_##type(struct sums_of_group *sums, const struct halves_step *step, ptrdiff_t first,  \
                                         ptrdiff_t end) {                                                              \
        if (HAS_SPECIAL_LOOPS)                                                                                         \
            sum_rows_of_halves(sums, step, first, end,                                                                 \
                               &(const struct halves_form){&operation##_normalization, &halves_of_##type});            \
    }                                                                                                                  \
    OUTLINED void operation##_write_##type(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end) {           \
        if (HAS_SPECIAL_LOOPS)                                                                                         \
            write_rows_of_halves(step, first, end,                                                                     \
                                 &(const struct halves_form){&operation##_normalization, &halves_of_##type});          \
    }
#define FORWARD_ROWS_OF_HALVES(operation)                                                                              \
    OUTLINED size_t operation##_rows_of_halves(const struct forward_arguments *arguments, size_t first, size_t rows,   \
                                               const struct functions_of_halves *functions) {                          \
        return forward_rows_of_halves(arguments, first, rows, &operation##_portable, functions);                       \
    }
#ifdef DYNNORM_WITHOUT_TYPES
#define ROWS_OF_HALVES(operation) FORWARD_ROWS_OF_HALVES(operation)
#define FUNCTIONS_OF_HALVES(operation)                                                                                 \
    {                                                                                                                  \
        { NULL, NULL }                                                                                                 \
    }
#else
#define ROWS_OF_HALVES(operation) HALVES_OF(operation, bf16) HALVES_OF(operation, f16) FORWARD_ROWS_OF_HALVES(operation)
#define FUNCTIONS_OF_HALVES(operation)                                                                                 \
    {                                                                                                                  \
        [type_bf16] = {operation##_sum_bf16, operation##_write_bf16}, [type_f16] = {                                   \
            operation##_sum_f16,                                                                                       \
            operation##_write_f16                                                                                      \
        }                                                                                                              \
    }
#endif

#endif
