/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Inverse Square Root Unit: y = w s q + b, q = x / sqrt(beta + x^2). In the backward pass f = q, and the
 * factors of the sums over tokens, s and -s / 2, are left to the end.
 */
#ifndef DYNNORM_DYISRU_H
#define DYNNORM_DYISRU_H

#include "functions/brief.h"
#include "operations/dyisru_vectors.h"
#include "operations/elementwise.h"
#include "operations/operation.h"
#include "rows/backward/elementwise.h"
#include "rows/forward/elementwise.h"
#include "rows/forward/elementwise_halves.h"

#include <math.h>

#define DYISRU_VECTORS(mode)                                                                                           \
    INLINE void dyisru_##mode##_vectors(vec *f, const vec *x, const vec *beta, int count) {                            \
        dyisru_vectors(f, x, beta, count, quotients_##mode);                                                           \
    }
DYISRU_VECTORS(portable)
DYISRU_VECTORS(native)
DYISRU_VECTORS(brief_bf16)
DYISRU_VECTORS(brief_f16)

/* Where a is below 2^124 x needs no limits, and where it is not much greater than beta the quotient needs none. */
INLINE vec near_vectors_of(vec *f, const vec *x, const vec *beta, int count, quotients_function *quotients) {
    vec a[SIDE_BY_SIDE];
    EACH(a[k] = vec_fma(x[k], x[k], beta[k]));
    vec greatest = a[0];
    UNROLL_UP_TO_4
    for (int k = 1; k < count; k++)
        greatest = vec_max_bits(greatest, a[k]);
    quotients(f, a, x, count);
    return greatest;
}

INLINE vec dyisru_near_portable_vectors(vec *f, const vec *x, const vec *beta, int count) {
    return near_vectors_of(f, x, beta, count, quotients_portable);
}

INLINE vec dyisru_near_native_vectors(vec *f, const vec *x, const vec *beta, int count) {
    return near_vectors_of(f, x, beta, count, near_quotients_native);
}

INLINE uint32_t dyisru_near_limit(float least, const struct elements *elements) {
    const uint32_t below_square = 0x7d7fffff; /* the float before 2^124 */
    return elements->quotients_limit == 0 ? below_square : bits_of_float(least * elements->quotients_limit);
}

INLINE void far_vectors_of(vec *f, const struct far_vectors *vectors, quotients_function *quotients) {
    vec x[SIDE_BY_SIDE], beta[SIDE_BY_SIDE];
    for (int k = 0; k < SIDE_BY_SIDE; k++) {
        const size_t i = k < vectors->count - 1 ? vectors->first + (size_t)k * LANES : vectors->last;
        x[k] = vec_load(vectors->x + i);
        beta[k] = parameters_at(vectors->parameters, i, i + LANES, vectors->has_one_parameter);
    }
    dyisru_vectors(f, x, beta, SIDE_BY_SIDE, quotients);
}

/* Where it is faster, as measured: it takes more registers. */
enum { HAS_NEAR_PORTABLE = LANES >= 16, HAS_NEAR_NATIVE = LANES >= 8 };

#define DYISRU_FAR_VECTORS(mode)                                                                                       \
    OUTLINED void dyisru_##mode##_far_vectors(vec *f, const struct far_vectors *vectors) {                             \
        far_vectors_of(f, vectors, quotients_##mode);                                                                  \
    }
DYISRU_FAR_VECTORS(portable)
DYISRU_FAR_VECTORS(native)

#define DYISRU_ELEMENTS                                                                                                \
    .has_bias = dyisru_has_bias, .channel_parameters = DYISRU_CHANNEL_PARAMETERS, .one_row_makes_factors = 1

/* ---- The backward pass: first is 1 / a, second 1 / sqrt(a), a = beta + x^2, and term is q ---- */

FOR_SIZE OUTLINED void dyisru_begin_with(struct elementwise_call *call, float beta, float scale,
                                         float factor_of_slope) {
    const uint32_t bits_of_square = 0x7d800000, bits_of_far = 0x5e800000; /* 2^124 and 2^62 */
    dynnorm_dyisru_constants(&call->constants, beta, scale);
    call->rare_limit = bits_of_square;
    call->far_step_limit = 0;
    call->far_bits = bits_of_far;
    call->all_are_rare = beta == 0;
    if (beta == 0) {
        call->constants.parameter = 1;
        call->constants.slope *= factor_of_slope;
        call->rare_limit = 0;
        call->far_bits = 0xffffffff;
    }
    set_parameter_factor(call, dyisru_parameter_factor(call->constants.x_factor, call->constants.slope),
                         (double)scale / 2);
}

INLINE void dyisru_begin(struct elementwise_call *call, float beta, float scale) {
    dyisru_begin_with(call, beta, scale, 1);
}

/* With a beta of 0 dx is multiplied by 0 last. Before that h must not overflow, as it might by a root of 1 that is a
 * bit more than 1: half of h does not. x times the root of 2^126 and beyond is not finite if the root takes one step,
 * so that the sums tell what is rare. */
INLINE void dyisru_begin_native(struct elementwise_call *call, float beta, float scale) {
    const uint32_t bits_of_square = 0x7e800000, bits_of_far = 0x5f000000; /* 2^126 and 2^63 */
    dyisru_begin_with(call, beta, scale, 0.5f);
    if (HAS_ROOTS_OF_ONE_STEP && !call->all_are_rare) {
        call->rare_limit = bits_of_square - 1;
        call->far_bits = bits_of_far - 1;
    }
}

INLINE vec dyisru_square_of(vec x, const struct elementwise_lanes *lanes) {
    return vec_fma(x, x, lanes->parameter);
}

INLINE vec dyisru_bits(vec x, const struct elementwise_lanes *lanes) {
    return dyisru_square_of(x, lanes);
}

INLINE void dyisru_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                           roots_function *roots, int count) {
    vec square[SIDE_BY_SIDE], root[SIDE_BY_SIDE];
    EACH(square[k] = dyisru_square_of(x[k], &lanes[k]));
    roots(root, square, count);
    EACH(factors[k].second = root[k]);
}

INLINE void dyisru_end_factors_by(struct gradient_factors *factors, vec x, int by_doubles) {
    factors->f = product_of(x, factors->second, by_doubles);
    factors->first = vec_mul(factors->second, factors->second);
    factors->term = factors->f;
}

INLINE void dyisru_end_factors(struct gradient_factors *factors, vec x) {
    dyisru_end_factors_by(factors, x, 0);
}

INLINE void dyisru_factors_portable(struct gradient_factors *factors, const vec *x,
                                    const struct elementwise_lanes *lanes, int count) {
    dyisru_factors(factors, x, lanes, roots_portable, count);
}

INLINE void dyisru_factors_native(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                                  int count) {
    dyisru_factors(factors, x, lanes, roots_native, count);
}

/* Of 1 / x. That of a smaller number might overflow, as the term then does for any h that is not denormal itself. */
INLINE vec dyisru_reciprocal(vec x, vec magnitude) {
    return vec_div(vec_set(1), vec_with_sign(vec_max(vec_set(0x1p-125f), magnitude), x));
}

/* Far out q is a sign, and beta does not matter any more. With beta = 0 that is so everywhere but at 0. */
INLINE void dyisru_any_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                               roots_function *roots, int count, int by_doubles) {
    const uint32_t far_bits = lanes[0].call->far_bits, limit = lanes[0].call->all_are_rare ? 0 : far_bits,
                   of_sign = BITS_OF_PARAMETER_OF_SIGN;
    vec zero = vec_set(0), one = vec_set(1);
    vec magnitude[SIDE_BY_SIDE], far[SIDE_BY_SIDE], reciprocal[SIDE_BY_SIDE], sign[SIDE_BY_SIDE], v[SIDE_BY_SIDE];
    EACH(magnitude[k] = vec_abs(x[k]));
    EACH(far[k] = vec_select_outside(magnitude[k], 0, 0, vec_max_bits(magnitude[k], vec_set(INFINITY)), zero));
    EACH(far[k] = vec_select_outside(lanes[k].parameter, of_sign, 0, magnitude[k], far[k]));
    EACH(v[k] = vec_select_outside(far[k], 0, limit, one, x[k]));
    if (by_doubles)
        EACH(v[k] = dyisru_unless_tiny(v[k]));
    dyisru_factors(factors, v, lanes, roots, count);
    /* The root of that parameter may be NaN. All but 0 is far then. */
    EACH(factors[k].second = vec_select_outside(lanes[k].parameter, of_sign, 0, factors[k].second, one));
    EACH(dyisru_end_factors_by(&factors[k], x[k], by_doubles));
    EACH(reciprocal[k] = dyisru_reciprocal(x[k], magnitude[k]));
    EACH(sign[k] = vec_select_outside(magnitude[k], 0, INFINITY_BITS, x[k], vec_with_sign(one, x[k])));
    EACH(factors[k].f = vec_select_outside(far[k], 0, limit, sign[k], factors[k].f));
    EACH(factors[k].first = vec_select_outside(far[k], 0, limit, vec_abs(reciprocal[k]), factors[k].first));
    EACH(factors[k].second = vec_select_outside(far[k], 0, limit, zero, factors[k].second));
    /* What exceeds far_bits is summed in double, from x. Its terms in float, which do not count, would be subnormal. */
    EACH(reciprocal[k] = vec_select_outside(magnitude[k], 0, far_bits, vec_mul(sign[k], zero), reciprocal[k]));
    EACH(factors[k].term = vec_select_outside(far[k], 0, limit, reciprocal[k], factors[k].term));
}

#define DYISRU_ANY_FACTORS(mode)                                                                                       \
    INLINE void dyisru_any_factors_##mode(struct gradient_factors *factors, const vec *x,                              \
                                          const struct elementwise_lanes *lanes, int count, int by_doubles) {          \
        dyisru_any_factors(factors, x, lanes, roots_##mode, count, by_doubles);                                        \
    }
DYISRU_ANY_FACTORS(portable)
DYISRU_ANY_FACTORS(native)

/* The far step does calls with a beta of 0. There dx of an x of 0 is multiplied by 0, too, and its term is 0. */
INLINE void dyisru_far_factors(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                               int count, int by_doubles) {
    (void)by_doubles;
    const vec one = vec_set(1);
    vec magnitude[SIDE_BY_SIDE], reciprocal[SIDE_BY_SIDE];
    (void)lanes;
    EACH(magnitude[k] = vec_abs(x[k]));
    EACH(reciprocal[k] = dyisru_reciprocal(x[k], magnitude[k]));
    EACH(factors[k].f = vec_select_outside(magnitude[k], 1, INFINITY_BITS - 1, x[k], vec_with_sign(one, x[k])));
    EACH(factors[k].first = vec_select_outside(magnitude[k], 0, 0, vec_abs(reciprocal[k]), one));
    EACH(factors[k].second = vec_set(0));
    EACH(factors[k].term = vec_select_outside(magnitude[k], 0, 0, reciprocal[k], x[k]));
}

/* The far step computes the same in both modes. */
#define DYISRU_ELEMENTWISE                                                                                             \
    .end_factors = dyisru_end_factors, .far_factors = dyisru_far_factors, .rare_bits = dyisru_bits,                    \
    .far_rows_at_once = 2

static const struct elements dyisru_portable_elements = {DYISRU_ELEMENTS,
                                                         .forward_factor = 1,
                                                         .near_limit = HAS_NEAR_PORTABLE ? dyisru_near_limit : NULL,
                                                         .far_vectors =
                                                             HAS_NEAR_PORTABLE ? dyisru_portable_far_vectors : NULL,
                                                         .forward_unusual_vectors = DYISRU_UNUSUAL_VECTORS(portable),
                                                         DYISRU_TINY_PORTABLE};
static const struct forward_loops dyisru_portable_loops = {&dyisru_portable_elements, dyisru_portable_vectors,
                                                           HAS_NEAR_PORTABLE ? dyisru_near_portable_vectors : NULL};
DEFINE_ELEMENTWISE(dyisru, portable, dyisru_begin, ALL_LOOPS, dyisru_portable_far_rows, BITS_OF_TINIER, 1,
                   DYISRU_ELEMENTWISE, .factors = dyisru_factors_portable, .any_factors = dyisru_any_factors_portable,
                   .side_by_side = LANES == 1 ? 2 : 4)
DEFINE_FAR_ROWS(dyisru, portable)
ONE_ROW_OF(dyisru_portable, dyisru_begin_call)
DEFINE_FORWARD(dyisru, portable, dyisru_begin_call, .one_row = dyisru_portable_one_row)
HALVES_LIKE_FLOATS(dyisru, portable)
static const struct operation dyisru_portable = {.begin_call = dyisru_begin_call,
                                                 .forward = &dyisru_portable_forward,
                                                 .elements = &dyisru_portable_elements,
                                                 .of_halves = OF_HALVES_LIKE_FLOATS(dyisru, portable, 1),
                                                 .elementwise = &dyisru_portable_functions};

BRIEF_HALVES(dyisru, 0.5f)

static const struct elements dyisru_native_elements = {
    DYISRU_ELEMENTS,
    .forward_factor = 1 / QUOTIENTS_NATIVE_FACTOR,
    .near_limit = HAS_NEAR_NATIVE ? dyisru_near_limit : NULL,
    .far_vectors = HAS_NEAR_NATIVE ? dyisru_native_far_vectors : NULL,
    .quotients_limit = QUOTIENTS_NATIVE_LIMIT,
    DYISRU_TINY_NATIVE,
    IF_TABLE_HAS_native(.forward_unusual_vectors = DYISRU_UNUSUAL_VECTORS(native))};
static const struct forward_loops dyisru_native_loops = {&dyisru_native_elements, dyisru_native_vectors,
                                                         HAS_NEAR_NATIVE ? dyisru_near_native_vectors : NULL};
DEFINE_ELEMENTWISE(dyisru, native, dyisru_begin_native, ALL_LOOPS, dyisru_portable_far_rows, BITS_OF_TINIER, 1,
                   DYISRU_ELEMENTWISE, .factors = dyisru_factors_native, .any_factors = dyisru_any_factors_native,
                   .side_by_side = VEC_REGISTERS < 32 ? 2 : 4, .sums_tell = HAS_ROOTS_OF_ONE_STEP)
ONE_ROW_OF(dyisru_native, dyisru_begin_call)
DEFINE_FORWARD(dyisru, native, dyisru_begin_call, .one_row = dyisru_native_one_row)
HALVES_LIKE_FLOATS(dyisru, native)
static const struct operation dyisru_native = {.begin_call = dyisru_begin_call,
                                               .forward = &dyisru_native_forward,
                                               .elements = &dyisru_native_elements,
                                               .of_halves =
                                                   OF_HALVES_LIKE_FLOATS(dyisru, native, 1 / QUOTIENTS_NATIVE_FACTOR),
                                               .elementwise = &dyisru_native_functions};

#endif
