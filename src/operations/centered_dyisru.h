/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The centered DyISRU: DyISRU of u = x - mean(x), and dx = du - mean(du).
 */
#ifndef DYNNORM_CENTERED_DYISRU_H
#define DYNNORM_CENTERED_DYISRU_H

#include "model_marks.h"
#include "operations/dyisru.h"
#include "operations/operation.h"
#include "rows/places.h"
#include "rows/row_means.h"

#include <math.h>

INLINE vec center(vec x, const struct row_constants *row) {
    const struct mean_vectors mean = mean_vectors(row->mean, row->mean_correction);
    return take_mean_from(x, &mean);
}

/* ---- The gradient of DyISRU, at u. Elements whose beta + u^2 lies outside of 2^-60 to 2^60 are computed in double.
 * ----
 */

INLINE struct call_constants centered_begin_call(size_t channels, float eps, float beta, float scale) {
    const uint32_t bits_of_least = 0x21800000, bits_of_greatest = 0x5d800000; /* 2^-60 and 2^60 */
    struct call_constants call = dyisru_begin_call(channels, eps, beta, scale);
    call.slope = split_slope((double)scale * (double)beta, (double)scale / sqrt((double)beta));
    call.rare_low = bits_of_least;
    call.rare_span = bits_of_greatest - bits_of_least;
    if (beta == 0) /* q is then exactly a sign: no element is computed in float */
        call.rare_low = 0xffffffff, call.rare_span = 0;
    return call;
}

INLINE vec square_under_root(vec u, const struct call_constants *call) {
    return vec_fma(u, u, vec_set(call->parameter));
}

INLINE vec centered_rare_bits(vec x, const struct row_constants *row, const struct call_constants *call) {
    return vec_bits_minus(square_under_root(center(x, row), call), call->rare_low);
}

INLINE struct gradient centered_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                         const struct elements *elements) {
    vec u = center(x, row);
    struct inverse_square_root parts = elements->inverse_square_root(square_under_root(u, call), u);
    vec root_2 = vec_mul(parts.root, parts.root);
    vec q = vec_max(vec_set(-1), vec_min(vec_set(1), parts.product)); /* rounding may carry it beyond +-1 */
    return (struct gradient){q, vec_mul(root_2, vec_mul(parts.root, vec_set(call->slope.value))), vec_mul(root_2, q)};
}

/* Puts the values that were computed in double where float cannot hold them. */
INLINE vec select_in_double(vec u, const struct call_constants *call, const float in_double[LANES], vec in_float) {
    return vec_select_outside(square_under_root(u, call), call->rare_low, call->rare_span, vec_load(in_double),
                              in_float);
}

INLINE struct gradient centered_rare_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                              const struct elements *elements) {
    vec u = center(x, row);
    float f[LANES], slope[LANES], parameter_term[LANES];
    vec_store(f, u);
    for (int lane = 0; lane < LANES; lane++) {
        struct isru isru = dynnorm_isru((double)f[lane], (double)call->parameter);
        f[lane] = (float)isru.q;
        slope[lane] = (float)(isru.derivative * (double)call->scale / (double)call->slope.power);
        parameter_term[lane] = (float)isru.parameter_term;
    }
    struct gradient gradient = centered_gradient(x, row, call, elements);
    gradient.f = select_in_double(u, call, f, gradient.f);
    gradient.slope = select_in_double(u, call, slope, gradient.slope);
    gradient.parameter_term = select_in_double(u, call, parameter_term, gradient.parameter_term);
    return gradient;
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

/* The inputs of a block of a row. */
struct du_block {
    const float *x;
    const float *weight;
    const float *dy;
};

/* du of a block, into a buffer. */
INLINE void centered_du(float du[BLOCK], const struct du_block *inputs, size_t count, const struct row_constants *row,
                        const struct call_constants *call, const struct elements *elements) {
    for (size_t i = 0; i < count; i += LANES) {
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        vec zero = vec_set(0), x = load_vector(inputs->x, place, zero);
        vec h = vec_mul(load_vector(inputs->weight, place, zero), load_vector(inputs->dy, place, zero));
        struct gradient gradient = elements->gradient(x, row, call, elements);
        if (vec_any_bits_above(elements->rare_gradient_bits(x, row, call), call->rare_span))
            gradient = rare_gradient(x, *row, *call, elements);
        vec_store(du + i, centered_du_of(h, &gradient, call));
        MODEL_PASS("du", 0, LANES);
    }
}

INLINE double mean_of_du(const struct backward_row *inputs, const struct row_constants *row,
                         const struct call_constants *call, const struct elements *elements) {
    eight sum = eight_set(0);
    for (size_t first = 0; first < call->channels; first += BLOCK) {
        float du[BLOCK];
        struct block block = block_at(first, call->channels);
        const struct du_block values = {read_block(&inputs->x, block), read_block(&inputs->weight, block),
                                        read_block(&inputs->dy, block)};
        centered_du(du, &values, block.count, row, call, elements);
        sum = eight_add(sum, sum_of_row(du, (ptrdiff_t)block.count));
    }
    return eight_sum(sum) / (double)call->channels;
}

/* Whether |x - mean| is at most 2^100, or NaN, in all of a row. */
OUTLINED int deviations_hold(const struct row_constants *row, const float *x, size_t channels) {
    const uint32_t bits_of_limit = 0x71800000, infinity = 0x7f800000;
    vec largest = vec_set(0);
    for (size_t i = 0; i < channels; i += LANES) {
        vec deviation = vec_abs(center(vec_load_n(x + i, (ptrdiff_t)(channels - i), vec_set(row->mean)), row));
        deviation = vec_select_outside(deviation, 0, infinity, vec_set(0), deviation);
        largest = vec_max_bits(largest, deviation);
    }
    return !vec_any_bits_above(largest, bits_of_limit);
}

INLINE void centered_begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                                        const struct call_constants *call, const struct elements *elements) {
    const float *x = inputs->x.values;
    struct row_means means;
    find_row_means(&means, &x, 1, call->channels);
    row->mean = means.mean[0];
    row->mean_correction = means.correction[0];
    row->statistics.mean = (double)row->mean - (double)row->mean_correction;
    row->mean_du_in_double = 0;
    row->is_in_double = !deviations_hold(row, x, call->channels);
    double mean_du = row->is_in_double ? 0 : mean_of_du(inputs, row, call, elements);
    row->is_in_double |= !(fabs(mean_du) <= 0x1p200);
    row->mean_du = (float)mean_du;
    if (row->is_in_double)
        row->mean_du_in_double = mean_du_in_double(*inputs, call->channels, centered_isru_of(row, call));
}

#define CENTERED_ELEMENTS                                                                                              \
    .is_centered = 1, .has_bias = centered_dyisru_has_bias, .forward_vectors = dyisru_forward_vectors,                 \
    .ways = ISRU_WAYS, .gradient = centered_gradient, .rare_gradient = centered_rare_gradient,                         \
    .rare_gradient_bits = centered_rare_bits, .dx = centered_dx, .gradient_in_double = centered_gradient_in_double,    \
    .parameter_term_in_double = centered_parameter_term_in_double

#define CENTERED_OPERATION .begin_call = centered_begin_call, .begin_backward_row = centered_begin_backward_row

static const struct elements centered_portable_elements = {
    CENTERED_ELEMENTS,
    .forward_factor = 1,
    .vectors_at_once = 4,
    .quotients = quotients_portable,
    .inverse_square_root = inverse_square_root_portable,
};
static const struct operation centered_dyisru_portable = {CENTERED_OPERATION, .elements = &centered_portable_elements};

static const struct elements centered_native_elements = {
    CENTERED_ELEMENTS,
    .forward_factor = 1 / QUOTIENTS_NATIVE_FACTOR,
    .vectors_at_once = LANES < 16 ? 4 : 2,
    .quotients = quotients_native,
    .inverse_square_root = inverse_square_root_native,
};
static const struct operation centered_dyisru_native = {CENTERED_OPERATION, .elements = &centered_native_elements};

#endif
