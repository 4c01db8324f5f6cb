/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Tanh: y = w s tanh(alpha x) + b. In the backward pass f = tanh(alpha x), and the factor s of the sums over
 * tokens is left to the end.
 */
#ifndef DYNNORM_DYT_H
#define DYNNORM_DYT_H

#include "operations/elementwise.h"
#include "operations/operation.h"

#include <math.h>

INLINE struct call_constants dyt_begin_call(size_t channels, float eps, float alpha, float scale) {
    const uint32_t bits_of_limit = 0x422e0000; /* TANH_LIMIT */
    double slope = (double)scale * (double)alpha;
    (void)eps;
    return (struct call_constants){.channels = channels,
                                   .parameter = alpha,
                                   .scale = scale,
                                   .slope = split_slope(slope, slope),
                                   .rare_low = 0,
                                   .rare_span = bits_of_limit};
}

INLINE void dyt_forward_vectors(vec *f, const vec *x, int count, int way, const struct call_constants *call,
                                const struct elements *elements) {
    (void)way;
    vec z[SIDE_BY_SIDE];
    EACH(z[k] = vec_mul(x[k], vec_set(call->parameter)));
    elements->tanh(f, z, count);
}

INLINE struct gradient dyt_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                    const struct elements *elements) {
    (void)row;
    vec alpha = vec_set(call->parameter);
    vec z = vec_mul(x, alpha);
    vec z_error = vec_fms(x, alpha, z); /* what rounding took from z */
    struct tanh_and_derivative tanh = elements->tanh_with_derivative(z, z_error);
    return (struct gradient){tanh.value, vec_mul(tanh.derivative, vec_set(call->slope.value)),
                             vec_mul(tanh.derivative, x)};
}

INLINE vec dyt_rare_gradient_bits(vec x, const struct row_constants *row, const struct call_constants *call) {
    (void)row;
    return vec_abs(vec_mul(x, vec_set(call->parameter)));
}

/* Elements whose |alpha x| is beyond the limit of the derivative, infinities among them, are computed in double. */
INLINE struct gradient dyt_rare_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                         const struct elements *elements) {
    struct gradient gradient = dyt_gradient(x, row, call, elements);
    float values[LANES], f[LANES], slope[LANES], parameter_term[LANES];
    vec_store(values, x);
    vec_store(f, gradient.f);
    vec_store(slope, gradient.slope);
    vec_store(parameter_term, gradient.parameter_term);
    for (int lane = 0; lane < LANES; lane++) {
        double z = (double)values[lane] * (double)call->parameter;
        if (!(fabs((double)(float)z) > (double)TANH_LIMIT))
            continue;
        double derivative = 4 * dynnorm_exponential(-2 * fabs(z));
        f[lane] = z > 0 ? 1 : -1;
        slope[lane] = (float)(derivative * (double)call->slope.value);
        parameter_term[lane] = derivative == 0 ? 0 : (float)(derivative * (double)values[lane]);
    }
    return (struct gradient){vec_load(f), vec_load(slope), vec_load(parameter_term)};
}

#define DYT_ELEMENTS                                                                                                   \
    .is_elementwise = 1, .has_bias = dyt_has_bias, .has_parameter = 1, .forward_vectors = dyt_forward_vectors,         \
    .forward_factor = 1, .vectors_at_once = 4, .gradient = dyt_gradient, .rare_gradient = dyt_rare_gradient,           \
    .rare_gradient_bits = dyt_rare_gradient_bits, .dx = elementwise_dx

static const struct elements dyt_portable_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_portable,
    .tanh_with_derivative = tanh_with_derivative_portable,
};
static const struct operation dyt_portable = {.begin_call = dyt_begin_call, .elements = &dyt_portable_elements};

static const struct elements dyt_native_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_native,
    .tanh_with_derivative = tanh_with_derivative_native,
};
static const struct operation dyt_native = {.begin_call = dyt_begin_call, .elements = &dyt_native_elements};

#ifdef VEC_HAVE_SLEEF
static const struct elements dyt_sleef_elements = {
    DYT_ELEMENTS,
    .tanh = tanh_sleef,
    .tanh_with_derivative = tanh_with_derivative_sleef,
};
static const struct operation dyt_sleef = {.begin_call = dyt_begin_call, .elements = &dyt_sleef_elements};
#endif

#endif
