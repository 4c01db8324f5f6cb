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

/* A row whose y is computed. */
struct halves_step {
    const unsigned char *x;
    unsigned char *y;
    const float *weight;
    const float *bias;
    ptrdiff_t channels;
    const struct eight_rows *constants;
    size_t lane;     /* which of these rows it is */
    int past_caches; /* y goes there; it begins at a cache line */
};

/* What is known when compiling. */
struct halves_form {
    const struct normalization *normalization;
    const struct halves_type *type;
};

/* ---- Some channels ---- */

INLINE vec y_of_halves(vec x, const struct halves_step *step, ptrdiff_t i, const struct row_vectors *row,
                       const struct halves_form *form) {
    const vec n = normalize(x, row, form->normalization, 0);
    return weigh(n, vec_load(step->weight + i), form->normalization->has_bias ? vec_load(step->bias + i) : n,
                 form->normalization);
}

INLINE void write_halves(const struct halves_step *step, ptrdiff_t i, const struct row_vectors *row,
                         const struct halves_form *form) {
    const unsigned char *x = step->x + HALF_BYTES * i;
    const vec low = y_of_halves(form->type->load.all(x), step, i, row, form);
    const vec high = y_of_halves(form->type->load.all(x + HALF_BYTES * LANES), step, i + LANES, row, form);
    const halves y = form->type->narrow_numbers(low, high);
    if (VEC_CAN_STREAM && step->past_caches)
        halves_stream(step->y + HALF_BYTES * i, y);
    else
        halves_store(step->y + HALF_BYTES * i, y);
}

/* The first count of them, fewer than HALVES. */
INLINE void write_last_halves(const struct halves_step *step, ptrdiff_t i, ptrdiff_t count,
                              const struct row_vectors *row, const struct halves_form *form) {
    const vec zero = vec_set(0);
    vec y[2];
    form->type->widen(&y[0], &y[1], halves_load_n(step->x + HALF_BYTES * i, count));
    for (int k = 0; k < 2; k++) {
        const ptrdiff_t first = i + k * LANES, left = count - k * LANES;
        const vec n = normalize(y[k], row, form->normalization, 0),
                  weight = vec_load_n(step->weight + first, left, zero);
        y[k] = weigh(n, weight, form->normalization->has_bias ? vec_load_n(step->bias + first, left, zero) : n,
                     form->normalization);
    }
    halves_store_n(step->y + HALF_BYTES * i, form->type->narrow_numbers(y[0], y[1]), count);
}

INLINE void write_span_of_halves(const struct halves_step *step, ptrdiff_t i, const struct row_vectors *row,
                                 const struct halves_form *form) {
#pragma GCC unroll 8
    for (int k = 0; k < ROW_SPAN; k += HALVES)
        write_halves(step, i + k, row, form);
}

/* ---- Rows ---- */

/* The last channels, fewer than a span, are summed with zeros after them. */
INLINE void sum_halves(struct row_sums *sums, const unsigned char *x, ptrdiff_t channels,
                       const struct halves_form *form) {
    unsigned char last[HALF_BYTES * ROW_SPAN];
    clear_row_sums(sums, form->normalization->sums_in);
    for (ptrdiff_t left = channels; left > 0; left -= ROW_SPAN, x += HALF_BYTES * ROW_SPAN) {
        if (left < ROW_SPAN) {
            memset(last, 0, sizeof last);
            memcpy(last, x, HALF_BYTES * (size_t)left % sizeof last);
            x = last;
        }
        const struct span span = {(const float *)x, ROW_SPAN, 4, 4, 0, NULL, &form->type->load};
        add_span(sums, form->normalization->sums_in, &span);
    }
}

INLINE void write_row_of_halves(const struct halves_step *step, const struct halves_form *form) {
    const ptrdiff_t channels = step->channels;
    const struct row_vectors row = vectors_of_row(step->constants, step->lane);
    ptrdiff_t i = 0;
    for (; i + ROW_SPAN <= channels; i += ROW_SPAN)
        write_span_of_halves(step, i, &row, form);
    for (; i + HALVES <= channels; i += HALVES)
        write_halves(step, i, &row, form);
    if (i < channels)
        write_last_halves(step, i, channels - i, &row, form);
}

/* ---- The driver ---- */

/* Where eight rows would not stay in the nearest cache from the first time they are read to the second, groups have
   fewer rows. */
INLINE size_t rows_of_group(size_t channels) {
    return channels <= 1024 ? 8 : 1;
}

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

INLINE void prefetch_halves(const unsigned char *x, size_t channels) {
    for (size_t i = 0; i < HALF_BYTES * channels; i += FLOATS_OF_LINE * sizeof(float))
        __builtin_prefetch(x + i, 0, 2);
}

/* The sums of a row; of a long one, whose blocks have been added, in the first lanes. */
INLINE void sum_row_of_halves(struct folded_sums *folded, const unsigned char *x, size_t channels,
                              const struct functions_of_halves *functions) {
    _Alignas(64) double sum[8] = {0}, squares[8] = {0};
    if (channels <= SUMMED_BLOCK) {
        functions->sum(folded, x, (ptrdiff_t)channels);
        return;
    }
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        functions->sum(folded, x + HALF_BYTES * first, (ptrdiff_t)channels_of_summed_block(first, channels));
        sum[0] += eight_sum(folded->x);
        squares[0] += eight_sum(folded->xx);
    }
    folded->x = eight_load(sum);
    folded->xx = eight_load(squares);
}

INLINE size_t forward_rows_of_halves(const struct forward_arguments *arguments, size_t first, size_t rows,
                                     const struct operation *operation, const struct functions_of_halves *functions) {
    const struct normalization *normalization = operation->normalization;
    const size_t channels = arguments->channels, most = rows_of_group(channels);
    const size_t x_stride = HALF_BYTES * arguments->x.strides[0], y_stride = HALF_BYTES * arguments->y.strides[0];
    const struct call_constants constants = operation->begin_call(channels, arguments->eps, 0, 0);
    const unsigned char *x = (const unsigned char *)arguments->x.data + first * x_stride;
    struct halves_group groups[2], *written = &groups[0], *summed = &groups[1], *other;
    struct halves_step step = {.x = x,
                               .y = (unsigned char *)arguments->y.data + first * y_stride,
                               .weight = arguments->weight,
                               .bias = arguments->bias,
                               .channels = (ptrdiff_t)channels,
                               .past_caches = arguments->streams};
    size_t done = 0; /* rows whose constants have been made */
    int is_end = 0;
    if (!HAS_SPECIAL_LOOPS)
        return 0;
    written->count = 0;
    for (;;) {
        struct sums_of_group sums;
        struct folded_sums folded;
        summed->count = is_end ? 0 : rows - done < most ? rows - done : most;
        if (!summed->count && !written->count)
            break;
        folded.x = folded.xx = eight_set(0);
        step.constants = &written->constants;
        for (size_t i = 0; i < 8; i++) {
            if (i < summed->count) {
                if (arguments->streams && done + most + i < rows)
                    prefetch_halves(x + most * x_stride, channels);
                sum_row_of_halves(&folded, x, channels, functions);
                x += x_stride;
            }
            keep_sums(&sums, i, &folded, normalization);
            if (i < written->count) {
                step.lane = i;
                functions->write(&step);
                step.x += x_stride;
                step.y += y_stride;
            }
        }
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
    OUTLINED void operation##_sum_##type(struct folded_sums *folded, const unsigned char *x, ptrdiff_t channels) {     \
        const struct halves_form form = {&operation##_normalization, &halves_of_##type};                               \
        struct row_sums sums;                                                                                          \
        if (!HAS_SPECIAL_LOOPS)                                                                                        \
            return;                                                                                                    \
        sum_halves(&sums, x, channels, &form);                                                                         \
        fold_row_sums(folded, &sums, operation##_normalization.sums_in);                                               \
    }                                                                                                                  \
    OUTLINED void operation##_write_##type(const struct halves_step *step) {                                           \
        const struct halves_form form = {&operation##_normalization, &halves_of_##type};                               \
        if (HAS_SPECIAL_LOOPS)                                                                                         \
            write_row_of_halves(step, &form);                                                                          \
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
