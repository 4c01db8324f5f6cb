/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Tanh: y = w s tanh(alpha x) + b. In the backward pass f = tanh(alpha x), and the factor s of the sums over
 * tokens is left to the end.
 */
#ifndef DYNNORM_DYT_H
#define DYNNORM_DYT_H

#include "functions/brief.h"
#include "operations/elementwise.h"
#include "operations/operation.h"
#include "rows/backward/elementwise.h"
#include "rows/forward/elementwise.h"
#include "rows/forward/elementwise_halves.h"

#include <float.h>
#include <math.h>

INLINE struct call_constants dyt_begin_call(size_t channels, float eps, float alpha, float scale) {
    (void)eps;
    return (struct call_constants){.channels = channels, .parameter = alpha, .scale = scale};
}

OUTLINED void dyt_channel_parameters(struct channel_parameters *made, const float *alphas, size_t count, int is_one) {
    size_t i = 0;
    for (; i < ELEMENTWISE_BLOCK && i < count; i += LANES) {
        const vec alpha = parameters_at(alphas, i, count, is_one);
        vec_store(made->parameter + i, vec_select_outside(vec_abs(alpha), 0, FLOAT_MAX_BITS, vec_set(NAN), alpha));
    }
    end_parameters(made, i);
    made->are_unusual = 0;
    made->are_ready = 1;
    made->least = 0; /* which is not needed */
}

INLINE void dyt_vectors(vec *f, const vec *x, const vec *alpha, int count, tanh_function *tanh) {
    vec z[SIDE_BY_SIDE];
    EACH(z[k] = vec_mul(x[k], alpha[k]));
    tanh(f, z, count);
}

#define DYT_VECTORS(mode)                                                                                              \
    INLINE void dyt_##mode##_vectors(vec *f, const vec *x, const vec *alpha, int count) {                              \
        dyt_vectors(f, x, alpha, count, tanh_##mode);                                                                  \
    }
DYT_VECTORS(portable)
DYT_VECTORS(brief_bf16)
DYT_VECTORS(brief_f16)

/* A tiny z, of which the square may be subnormal or below, is f itself, but for what the portable mode loses of a
 * subnormal one: it computes half of it. */
enum { BITS_OF_TINY_Z = BITS_OF_POWER(-60) };

/* tanh z: z itself where it is tiny, else f. A mode computes a part of it, and multiplies that by the rest. */
INLINE vec dyt_unless_tiny(vec f, vec z, float part, float rest) {
    const vec tiny = vec_mul_by_doubles(vec_mul_by_doubles(z, vec_set(part)), vec_set(rest));
    return vec_select_outside(vec_abs(z), 0, BITS_OF_TINY_Z, f, tiny);
}

INLINE vec dyt_unusual_vector(vec x, vec alpha, float part, tanh_function *tanh) {
    const vec z = vec_mul_by_doubles(x, alpha);
    const vec not_tiny = vec_select_outside(vec_abs(z), 0, BITS_OF_TINY_Z, z, vec_set(0));
    vec f;
    tanh(&f, &not_tiny, 1);
    return dyt_unless_tiny(f, z, part, 1 / part);
}

#define DYT_UNUSUAL_VECTORS(mode, part)                                                                                \
    OUTLINED void dyt_##mode##_unusual_vectors(vec *f, const vec *x, const struct channel_parameters *parameters,      \
                                               size_t channel) {                                                       \
        ONE_AFTER_ANOTHER(k)                                                                                           \
        f[k] = dyt_unusual_vector(x[k], vec_load(parameters->parameter + channel + LANES * k), part, tanh_##mode);     \
    }

/* These do a tiny x, too. */
#define DYT_UNUSUAL(mode, limit)                                                                                       \
    .forward_unusual_vectors = dyt_##mode##_unusual_vectors,                                                           \
    .forward_tiny_vectors = SUBNORMALS_ARE_SLOW ? dyt_##mode##_unusual_vectors : NULL,                                 \
    .bits_of_tiny_x = SUBNORMALS_ARE_SLOW ? limit : 0

/* ---- The backward pass: first is the derivative, term is x, and there is no second ---- */

/* Beyond a |z| of 32 the derivative is below 2^-90. There it counts as 0, since no bound depends on it, and h times it
 * would soon be subnormal, which takes an Intel CPU 150 cycles. */
enum { BITS_OF_DERIVATIVE_LIMIT = BITS_OF_POWER(6) /* of |2 z| */ };

OUTLINED void dyt_begin_with(struct elementwise_call *call, float alpha, float scale, uint32_t rare_limit) {
    dynnorm_dyt_constants(&call->constants, alpha, scale);
    set_parameter_factor(call, dyt_parameter_factor(call->constants.x_factor, call->constants.slope), (double)scale);
    /* What h times the derivative loses to underflow is multiplied by x, which a small alpha lets be large. With a
       tiny one ordinary sums would be below such a limit, too. */
    if (fabsf(alpha) < 0x1p-3f && fabsf(alpha) >= 0x1p-60f) {
        const double least_sum = 0x1p-100 / fabs((double)alpha);
        call->least_sum = least_sum > call->least_sum ? least_sum : call->least_sum;
    }
    call->rare_limit = rare_limit;
    call->far_step_limit = INFINITY_BITS;
    call->far_bits = 0xffffffff;
    call->all_are_rare = 0;
}

INLINE void dyt_begin(struct elementwise_call *call, float alpha, float scale) {
    dyt_begin_with(call, alpha, scale, BITS_OF_DERIVATIVE_LIMIT);
}

INLINE vec dyt_z(vec x, const struct elementwise_lanes *lanes, int by_doubles) {
    return product_of(x, vec_mul(lanes->parameter, vec_set(1.0f / DYT_PARAMETER_MULTIPLE)), by_doubles);
}

INLINE vec dyt_twice_z(vec x, const struct elementwise_lanes *lanes, int by_doubles) {
    return product_of(x, lanes->parameter, by_doubles);
}

INLINE vec dyt_rare_bits(vec x, const struct elementwise_lanes *lanes) {
    return dyt_twice_z(x, lanes, 0);
}

/* z keeps its sign, and f need not be given one at the end. In return f is not odd to its last bit. Fused operations,
 * which tanh_portable avoids, took 0.94 to 0.98 of the time here on an Emerald Rapids. */
INLINE void dyt_factors_of(struct gradient_factors *factors, const vec *twice_z, int count) {
    struct tanh_exponential of[SIDE_BY_SIDE];
    vec numerator[SIDE_BY_SIDE], exponential[SIDE_BY_SIDE], reciprocal[SIDE_BY_SIDE];
    tanh_exponentials(of, twice_z, 1, count);
    EACH(numerator[k] = vec_sub(vec_set(0.25f), of[k].quarter));
    EACH(numerator[k] = vec_fma(of[k].power, of[k].complement, numerator[k]));
    EACH(exponential[k] = vec_fnma(of[k].power, of[k].complement, of[k].quarter));
    EACH(reciprocal[k] = vec_div(vec_set(1), vec_add(vec_set(0.25f), exponential[k])));
    EACH(factors[k].f = vec_mul(numerator[k], reciprocal[k]));
    EACH(factors[k].first = vec_mul(exponential[k], reciprocal[k]));
    EACH(factors[k].first = vec_mul(factors[k].first, reciprocal[k]));
}

INLINE void dyt_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                        int count) {
    vec twice_z[SIDE_BY_SIDE];
    EACH(twice_z[k] = dyt_twice_z(x[k], &lanes[k], 0));
    dyt_factors_of(factors, twice_z, count);
}

INLINE void dyt_end_factors(struct gradient_factors *factors, vec x) {
    factors->term = x;
}

/* Far out f is a sign, and the derivative counts as 0. A NaN stays. */
INLINE void dyt_any_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                            int count, int by_doubles) {
    const uint32_t first_far = BITS_OF_DERIVATIVE_LIMIT + 1, span = INFINITY_BITS - first_far;
    const vec zero = vec_set(0);
    vec twice_z[SIDE_BY_SIDE], magnitude[SIDE_BY_SIDE], not_far[SIDE_BY_SIDE], sign[SIDE_BY_SIDE];
    EACH(twice_z[k] = dyt_twice_z(x[k], &lanes[k], by_doubles));
    EACH(magnitude[k] = vec_abs(twice_z[k]));
    EACH(not_far[k] = vec_select_outside(magnitude[k], first_far, span, twice_z[k], zero));
    if (by_doubles)
        EACH(not_far[k] = vec_select_outside(magnitude[k], 0, BITS_OF_TINY_Z, not_far[k], zero))
    dyt_factors_of(factors, not_far, count);
    if (by_doubles)
        EACH(factors[k].f = dyt_unless_tiny(factors[k].f, twice_z[k], 0.25f, 2))
    EACH(sign[k] = vec_with_sign(vec_set(1), twice_z[k]));
    EACH(factors[k].f = vec_select_outside(magnitude[k], first_far, span, factors[k].f, sign[k]));
    EACH(factors[k].first = vec_select_outside(magnitude[k], first_far, span, factors[k].first, zero));
    EACH(factors[k].term = vec_select_outside(magnitude[k], first_far, span, x[k], zero));
    EACH(factors[k].second = vec_set(1));
}

/* Two at a time took 1.1 times as long with AVX2 where all is saturated. With DyISRU they took no longer. SLEEF's tanh
 * takes much longer anyway, and in the native mode only an infinite x is far. */
enum { DYT_FAR_ROWS_AT_ONCE = LANES == 1 ? 2 : 4 };

#define DYT_ELEMENTWISE                                                                                                \
    .end_factors = dyt_end_factors, .rare_bits = dyt_rare_bits, .bits_have_signs = 1, .side_by_side = 4

#define DYT_ELEMENTS .has_bias = dyt_has_bias, .channel_parameters = dyt_channel_parameters, .forward_factor = 1

DYT_UNUSUAL_VECTORS(portable, 0.5f)
static const struct elements dyt_portable_elements = {DYT_ELEMENTS, DYT_UNUSUAL(portable, BITS_OF_TINY_Z)};
static const struct forward_loops dyt_portable_loops = {&dyt_portable_elements, dyt_portable_vectors, NULL};
DEFINE_ELEMENTWISE(dyt, portable, dyt_begin, ALL_LOOPS, dyt_portable_far_rows, BITS_OF_TINY_Z, 0, DYT_ELEMENTWISE,
                   .factors = dyt_factors, .any_factors = dyt_any_factors, .far_factors = dyt_any_factors,
                   .far_rows_at_once = DYT_FAR_ROWS_AT_ONCE)
DEFINE_FAR_ROWS(dyt, portable)
ONE_ROW_OF(dyt_portable, dyt_begin_call)
DEFINE_FORWARD(dyt, portable, dyt_begin_call, .one_row = dyt_portable_one_row)
HALVES_LIKE_FLOATS(dyt, portable)
static const struct operation dyt_portable = {.begin_call = dyt_begin_call,
                                              .forward = &dyt_portable_forward,
                                              .elements = &dyt_portable_elements,
                                              .of_halves = OF_HALVES_LIKE_FLOATS(dyt, portable, 1),
                                              .elementwise = &dyt_portable_functions};

BRIEF_HALVES(dyt, 1)

#ifdef VEC_HAVE_FAST_LOOKUP
DYT_VECTORS(native)
DYT_UNUSUAL_VECTORS(native, 1)
static const struct elements dyt_native_elements = {DYT_ELEMENTS, DYT_UNUSUAL(native, BITS_OF_TINIER)};
static const struct forward_loops dyt_native_loops = {&dyt_native_elements, dyt_native_vectors, NULL};

/* From tanh alone: the derivative is 1 - tanh^2, which may cancel. Only an infinite x is rare. */
INLINE void dyt_begin_native(struct elementwise_call *call, float alpha, float scale) {
    dyt_begin_with(call, alpha, scale, INFINITY_BITS - 1);
}

INLINE vec dyt_rare_bits_native(vec x, const struct elementwise_lanes *lanes) {
    (void)lanes;
    return vec_abs(x);
}

INLINE void dyt_factors_native(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                               int count) {
    vec f[SIDE_BY_SIDE], z[SIDE_BY_SIDE];
    EACH(z[k] = dyt_z(x[k], &lanes[k], 0));
    tanh_native(f, z, count);
    EACH(factors[k].f = f[k]);
    EACH(factors[k].first = vec_fnma(f[k], f[k], vec_set(1)));
}

INLINE void dyt_any_factors_native(struct gradient_factors *factors, const vec *x,
                                   const struct elementwise_lanes *lanes, int count, int by_doubles) {
    vec z[SIDE_BY_SIDE], not_tiny[SIDE_BY_SIDE], f[SIDE_BY_SIDE];
    EACH(z[k] = not_tiny[k] = dyt_z(x[k], &lanes[k], by_doubles));
    if (by_doubles)
        EACH(not_tiny[k] = vec_select_outside(vec_abs(z[k]), 0, BITS_OF_TINY_Z, z[k], vec_set(0)))
    tanh_native(f, not_tiny, count);
    EACH(factors[k].f = by_doubles ? dyt_unless_tiny(f[k], z[k], 1, 1) : f[k]);
    EACH(factors[k].first = vec_fnma(f[k], f[k], vec_set(1)));
    EACH(factors[k].term = vec_max(vec_set(-FLT_MAX), vec_min(vec_set(FLT_MAX), x[k]))); /* a NaN stays */
    EACH(factors[k].second = vec_set(1));
}

DEFINE_ELEMENTWISE(dyt, native, dyt_begin_native, ALL_LOOPS, dyt_native_far_rows, BITS_OF_TINIER, 0,
                   .factors = dyt_factors_native, .end_factors = dyt_end_factors, .any_factors = dyt_any_factors_native,
                   .far_factors = dyt_any_factors_native, .rare_bits = dyt_rare_bits_native, .sums_tell = 1,
                   .side_by_side = 4, .far_rows_at_once = 2)
DEFINE_FAR_ROWS(dyt, native)
DEFINE_FORWARD(dyt, native, dyt_begin_call, .one_row = NULL)
HALVES_LIKE_FLOATS(dyt, native)
static const struct operation dyt_native = {.begin_call = dyt_begin_call,
                                            .forward = &dyt_native_forward,
                                            .elements = &dyt_native_elements,
                                            .of_halves = OF_HALVES_LIKE_FLOATS(dyt, native, 1),
                                            .elementwise = &dyt_native_functions};
#endif

#ifdef VEC_HAVE_SLEEF
DYT_VECTORS(sleef)
OUTLINED void dyt_sleef_unusual_vectors(vec *f, const vec *x, const struct channel_parameters *parameters,
                                        size_t channel) {
    ONE_AFTER_ANOTHER(k) {
        const vec alpha = vec_load(parameters->parameter + channel + LANES * k);
        dyt_sleef_vectors(&f[k], &x[k], &alpha, 1);
    }
}

static const struct elements dyt_sleef_elements = {DYT_ELEMENTS, .forward_unusual_vectors = dyt_sleef_unusual_vectors};
static const struct forward_loops dyt_sleef_loops = {&dyt_sleef_elements, dyt_sleef_vectors, NULL};

INLINE void dyt_factors_sleef(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                              int count) {
    dyt_factors(factors, x, lanes, count);
    EACH(factors[k].f = vec_tanh_sleef(dyt_z(x[k], &lanes[k], 0)));
}

INLINE void dyt_any_factors_sleef(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                                  int count, int by_doubles) {
    vec magnitude[SIDE_BY_SIDE], z[SIDE_BY_SIDE], f[SIDE_BY_SIDE];
    (void)by_doubles; /* SLEEF's function takes denormal numbers anyway */
    dyt_any_factors(factors, x, lanes, count, 0);
    /* Far out f is the same sign in any case, and SLEEF's function takes longer. */
    EACH(magnitude[k] = vec_abs(dyt_rare_bits(x[k], &lanes[k])));
    EACH(z[k] = dyt_z(x[k], &lanes[k], 0));
    EACH(z[k] = vec_select_outside(magnitude[k], 0, BITS_OF_DERIVATIVE_LIMIT, vec_set(0), z[k]));
    EACH(f[k] = vec_tanh_sleef(z[k]));
    EACH(factors[k].f = vec_select_outside(magnitude[k], 0, BITS_OF_DERIVATIVE_LIMIT, factors[k].f, f[k]));
}

DEFINE_ELEMENTWISE(dyt, sleef, dyt_begin, ONE_LOOP, dyt_sleef_far_rows, 0, 0, DYT_ELEMENTWISE,
                   .factors = dyt_factors_sleef, .any_factors = dyt_any_factors_sleef,
                   .far_factors = dyt_any_factors_sleef, .far_rows_at_once = 2)
DEFINE_FAR_ROWS(dyt, sleef)
DEFINE_FORWARD(dyt, sleef, dyt_begin_call, .one_row = NULL)
static const struct operation dyt_sleef = {.begin_call = dyt_begin_call,
                                           .forward = &dyt_sleef_forward,
                                           .elements = &dyt_sleef_elements,
                                           .elementwise = &dyt_sleef_functions};
#endif

#endif
