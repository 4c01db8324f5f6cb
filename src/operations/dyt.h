/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Tanh: y = w s tanh(alpha x) + b. In the backward pass f = tanh(alpha x), and the factor s of the sums over
 * tokens is left to the end.
 */
#ifndef DYNNORM_DYT_H
#define DYNNORM_DYT_H

#include "operations/elementwise.h"
#include "operations/operation.h"
#include "rows/backward_elementwise.h"

#include <float.h>
#include <math.h>

INLINE struct call_constants dyt_begin_call(size_t channels, float eps, float alpha, float scale) {
    (void)eps;
    return (struct call_constants){.channels = channels, .parameter = alpha, .scale = scale};
}

INLINE void dyt_forward_vectors(vec *f, const vec *x, int count, int way, const struct call_constants *call,
                                const struct elements *elements) {
    (void)way;
    vec z[SIDE_BY_SIDE];
    EACH(z[k] = vec_mul(x[k], vec_set(call->parameter)));
    elements->tanh(f, z, count);
}

/* ---- The backward pass: second is E / (1 + E)^2, a quarter of the derivative ---- */

INLINE struct elementwise_call dyt_begin(float alpha, float scale) {
    const uint32_t bits_of_limit = 0x422e0000; /* TANH_LIMIT */
    struct elementwise_call call = {.parameter = alpha, .x_factor = 1, .rare_limit = bits_of_limit};
    set_slope(&call, 4 * (double)scale * (double)alpha, fabsf(alpha) >= 0x1p-8f ? 0x1p-40 : HUGE_VAL);
    call.parameter_factor = 4 / (double)call.slope;
    call.far_bits = 0xffffffff;
    call.far_limit = INFINITY;
    return call;
}

INLINE vec dyt_rare_bits(vec x, const struct elementwise_call *call) {
    return vec_abs(vec_mul(x, vec_set(call->parameter)));
}

INLINE void dyt_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_call *call,
                        const struct elementwise *operation, int count) {
    (void)operation;
    struct tanh_parts parts[SIDE_BY_SIDE];
    vec z[SIDE_BY_SIDE], magnitude[SIDE_BY_SIDE], reciprocal[SIDE_BY_SIDE];
    EACH(z[k] = vec_mul(x[k], vec_set(call->parameter)));
    EACH(magnitude[k] = vec_abs(z[k]));
    tanh_parts_of(parts, magnitude, TANH_LIMIT, count);
    EACH(reciprocal[k] = vec_div(vec_set(1), parts[k].denominator));
    EACH(factors[k].f = vec_mul(parts[k].numerator, reciprocal[k]));
    EACH(factors[k].f = vec_with_sign(factors[k].f, z[k]));
    EACH(factors[k].second = vec_mul(parts[k].exponential, reciprocal[k]));
    EACH(factors[k].second = vec_mul(factors[k].second, reciprocal[k]));
    EACH(factors[k].term = vec_mul(factors[k].second, x[k]));
}

/* Where |z| is beyond TANH_LIMIT the derivative is 4 F^2, F = exp(-|z|). That is a normal float up to twice the limit;
 * from there on it counts as 0. */
INLINE void dyt_factors_of_all(struct gradient_factors *factors, vec x, const struct elementwise_call *call,
                               const struct elementwise *operation) {
    const uint32_t limit = 0x422e0000, infinity = 0x7f800000; /* TANH_LIMIT */
    operation->factors(factors, &x, call, operation, 1);
    vec magnitude = dyt_rare_bits(x, call), half = vec_mul(magnitude, vec_set(0.5f)), zero = vec_set(0);
    vec root = tanh_parts(half).exponential;
    root = vec_select_outside(half, limit + 1, infinity - limit - 1, root, zero); /* a NaN stays */
    vec finite = vec_max(vec_set(-FLT_MAX), vec_min(vec_set(FLT_MAX), x));
    factors->first = vec_select_outside(magnitude, 0, limit, root, vec_set(1));
    factors->second = vec_select_outside(magnitude, 0, limit, root, factors->second);
    factors->term = vec_select_outside(magnitude, 0, limit, vec_mul(finite, root), factors->term);
}

#define DYT_ELEMENTWISE                                                                                                \
    .begin = dyt_begin, .factors_of_all = dyt_factors_of_all, .rare_bits = dyt_rare_bits, .has_second = 1,             \
    .rows_side_by_side = 4

#define DYT_ELEMENTS                                                                                                   \
    .has_bias = dyt_has_bias, .forward_vectors = dyt_forward_vectors, .forward_factor = 1, .vectors_at_once = 4

static const struct elements dyt_portable_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_portable,
};
DEFINE_ELEMENTWISE(dyt_portable, DYT_ELEMENTWISE, .factors = dyt_factors)
static const struct operation dyt_portable = {
    .begin_call = dyt_begin_call, .elements = &dyt_portable_elements, .elementwise = &dyt_portable_elementwise};

static const struct elements dyt_native_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_native,
};
DEFINE_ELEMENTWISE(dyt_native, DYT_ELEMENTWISE, .factors = dyt_factors)
static const struct operation dyt_native = {
    .begin_call = dyt_begin_call, .elements = &dyt_native_elements, .elementwise = &dyt_native_elementwise};

#ifdef VEC_HAVE_SLEEF
static const struct elements dyt_sleef_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_sleef,
};
INLINE void dyt_factors_sleef(struct gradient_factors *factors, const vec *x, const struct elementwise_call *call,
                              const struct elementwise *operation, int count) {
    dyt_factors(factors, x, call, operation, count);
    EACH(factors[k].f = vec_tanh_sleef(vec_mul(x[k], vec_set(call->parameter))));
}
DEFINE_ELEMENTWISE(dyt_sleef, DYT_ELEMENTWISE, .factors = dyt_factors_sleef)
static const struct operation dyt_sleef = {
    .begin_call = dyt_begin_call, .elements = &dyt_sleef_elements, .elementwise = &dyt_sleef_elementwise};
#endif

#endif
