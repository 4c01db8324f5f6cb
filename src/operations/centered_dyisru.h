/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The centered DyISRU: DyISRU of u = x - mean(x), and dx = du - mean(du).
 */
#ifndef DYNNORM_CENTERED_DYISRU_H
#define DYNNORM_CENTERED_DYISRU_H

#include "model_marks.h"
#include "operations/dyisru.h"
#include "operations/operation.h"
#include "operations/statistics.h"
#include "rows/places.h"

#include <math.h>

INLINE struct call_constants centered_begin_call(size_t channels, float eps, float beta, float scale) {
    struct call_constants call = dyisru_begin_call(channels, eps, beta, scale);
    call.divisor = (double)channels;
    call.reciprocal = 1 / (double)channels;
    return call;
}

/* Only the mean is needed. A row whose deviations are so small that float cannot hold them is computed in double; but
 * one without any deviation is not: an eps of 1 lets it pass. */
INLINE void centered_begin_row(struct row_constants *row, const struct channel_sums *sums, const struct reader *x,
                               const struct call_constants *call) {
    float one = read_value(x, 0);
    int is_constant = one == read_value(x, call->channels - 1) && all_equal(*x, call->channels, one);
    struct call_constants with_eps = *call;
    with_eps.eps = is_constant ? 1 : 0;
    begin_row(row, sums, x, &with_eps, 1);
    row->mean_correction = (float)((double)row->mean - row->statistics.mean);
    row->mean_du_in_double = 0;
}

INLINE vec center(vec x, const struct row_constants *row) {
    return vec_add(vec_sub(x, vec_set(row->mean)), vec_set(row->mean_correction));
}

INLINE vec centered_forward(vec x, const struct row_constants *row, const struct call_constants *call,
                            const struct elements *elements) {
    return dyisru_forward(center(x, row), row, call, elements);
}

INLINE vec centered_rare_forward(vec x, const struct row_constants *row, const struct call_constants *call,
                                 const struct elements *elements) {
    return dyisru_rare_forward(center(x, row), row, call, elements);
}

INLINE struct gradient centered_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                         const struct elements *elements) {
    return dyisru_gradient(center(x, row), row, call, elements);
}

INLINE struct gradient centered_rare_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                              const struct elements *elements) {
    return dyisru_rare_gradient(center(x, row), row, call, elements);
}

INLINE vec centered_rare_bits(vec x, const struct row_constants *row, const struct call_constants *call) {
    return dyisru_rare_bits(center(x, row), row, call);
}

/* du is h times the derivative of s q. The slope's power of two comes last: see functions/slope.h. */
INLINE vec centered_du_of(vec h, const struct gradient *gradient, const struct call_constants *call) {
    return vec_mul(vec_mul(h, gradient->slope), vec_set(call->slope.power));
}

INLINE vec centered_dx(vec h, const struct gradient *gradient, const struct row_constants *row,
                       const struct call_constants *call) {
    return vec_sub(centered_du_of(h, gradient, call), vec_set(row->mean_du));
}

/* ---- In double ---- */

INLINE struct centered_isru centered_isru_of(const struct row_constants *row, const struct call_constants *call) {
    return (struct centered_isru){row->statistics.mean, (double)call->parameter, (double)call->scale,
                                  row->mean_du_in_double};
}

INLINE void centered_forward_in_double(const struct block_in_double *block, const struct row_constants *row,
                                       const struct call_constants *call) {
    dynnorm_centered_isru_in_double(block, centered_isru_of(row, call));
}

INLINE void centered_gradient_in_double(const struct block_in_double *block, const struct row_constants *row,
                                        const struct call_constants *call) {
    dynnorm_centered_isru_gradient_in_double(block, centered_isru_of(row, call));
}

INLINE double centered_parameter_term_in_double(float x, const struct row_constants *row,
                                                const struct call_constants *call) {
    return dynnorm_isru((double)x - row->statistics.mean, (double)call->parameter).parameter_term;
}

RARE double mean_du_in_double(struct backward_row inputs, size_t channels, struct centered_isru isru) {
    struct double_lanes sum = {{0}};
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const struct block_in_double values = {.count = block.count,
                                               .x = read_block(&inputs.x, block),
                                               .weight = read_block(&inputs.weight, block),
                                               .dy = read_block(&inputs.dy, block)};
        dynnorm_add_centered_isru_du(&sum, &values, isru);
    }
    return dynnorm_total_of_lanes(&sum) / (double)channels;
}

/* ---- The backward pass ---- */

/* du of a block, into a buffer. */
INLINE void centered_du(float du[BLOCK], const struct summed_block *inputs, size_t count,
                        const struct row_constants *row, const struct call_constants *call,
                        const struct elements *elements) {
    for (size_t i = 0; i < count; i += LANES) {
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        vec zero = vec_set(0), x = load_vector(inputs->x, place, zero);
        vec h = vec_mul(load_vector(inputs->a, place, zero), load_vector(inputs->b, place, zero));
        struct gradient gradient = elements->gradient(x, row, call, elements);
        if (vec_any_bits_above(elements->rare_gradient_bits(x, row, call), call->rare_span))
            gradient = rare_gradient(x, *row, *call, elements);
        vec_store(du + i, centered_du_of(h, &gradient, call));
        MODEL_PASS("du", 0, LANES);
    }
}

OUTLINED void add_du(struct channel_sums *sums, const float *du, size_t count) {
    const struct summed_block summed = {.wanted = SUM_X, .x = du, .shift = 0};
    add_block_sums_fast(sums, SUMS_IN_FLOAT, &summed, count);
}

INLINE double mean_of_du(const struct backward_row *inputs, const struct row_constants *row,
                         const struct call_constants *call, const struct elements *elements) {
    struct channel_sums sums;
    clear_sums(&sums);
    for (size_t first = 0; first < call->channels; first += BLOCK) {
        float du[BLOCK];
        struct block block = block_at(first, call->channels);
        const struct summed_block values = {.x = read_block(&inputs->x, block),
                                            .a = read_block(&inputs->weight, block),
                                            .b = read_block(&inputs->dy, block)};
        centered_du(du, &values, block.count, row, call, elements);
        add_du(&sums, du, block.count);
    }
    return wide_sum(sums.x) / call->divisor;
}

INLINE void centered_begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                                        const struct call_constants *call, const struct elements *elements) {
    struct channel_sums sums;
    clear_sums(&sums);
    for (size_t first = 0; first < call->channels; first += BLOCK) {
        struct block block = block_at(first, call->channels);
        add_statistics_outlined(&sums, read_block(&inputs->x, block), block.count);
    }
    centered_begin_row(row, &sums, &inputs->x, call);
    double mean_du = row->is_in_double ? 0 : mean_of_du(inputs, row, call, elements);
    row->is_in_double |= !(fabs(mean_du) <= 0x1p200);
    row->mean_du = (float)mean_du;
    if (row->is_in_double)
        row->mean_du_in_double = mean_du_in_double(*inputs, call->channels, centered_isru_of(row, call));
}

#define CENTERED_ELEMENTS                                                                                              \
    .has_bias = centered_dyisru_has_bias, .has_parameter = 1, .forward = centered_forward,                             \
    .rare_forward = centered_rare_forward, .rare_forward_bits = centered_rare_bits, .gradient = centered_gradient,     \
    .rare_gradient = centered_rare_gradient, .rare_gradient_bits = centered_rare_bits, .dx = centered_dx,              \
    .forward_in_double = centered_forward_in_double, .gradient_in_double = centered_gradient_in_double,                \
    .parameter_term_in_double = centered_parameter_term_in_double

#define CENTERED_OPERATION                                                                                             \
    .begin_call = centered_begin_call, .add_sums = add_statistics_outlined, .begin_row = centered_begin_row,           \
    .begin_backward_row = centered_begin_backward_row

static const struct elements centered_portable_elements = {
    CENTERED_ELEMENTS,
    .inverse_square_root = inverse_square_root_portable,
};
static const struct operation centered_dyisru_portable = {CENTERED_OPERATION, .elements = &centered_portable_elements};

static const struct elements centered_native_elements = {
    CENTERED_ELEMENTS,
    .inverse_square_root = inverse_square_root_native,
};
static const struct operation centered_dyisru_native = {CENTERED_OPERATION, .elements = &centered_native_elements};

#endif
