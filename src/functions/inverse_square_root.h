/* SPDX-License-Identifier: BSD-2-Clause
 *
 * 1 / sqrt(a), and x / sqrt(a), for a from 2^-60 to 2^60. The coefficients are derived in coefficients.sollya.
 */
#ifndef DYNNORM_INVERSE_SQUARE_ROOT_H
#define DYNNORM_INVERSE_SQUARE_ROOT_H

#include "rows/subnormals.h"
#include "vec.h"

struct inverse_square_root {
    vec root;    /* 1 / sqrt(a), within two roundings */
    vec product; /* x / sqrt(a) */
};

/* All functions take some vectors side by side, and each step for every one of them before the next step, since one
 * vector's steps depend on each other: so the CPU has work while it waits. by_doubles is for a tiny x: see
 * rows/subnormals.h. */

/* One step of fifth order improves the first guess: with error = 1 - a guess^2, 1 / sqrt(a) is guess
 * (1 - error)^(-1/2), and the polynomial is fitted to that over the errors of the guess. One fused operation at the end
 * brings the correction in, so that a product suffers from little but the roundings of a, of a guess and of the result:
 * it is within 1.7 ULP. The guess is always too small. So the correction is positive, and a product of 0 keeps its
 * sign. The polynomial aims below the exact value by 2^-28, such that no quotient x / sqrt(beta + x^2) exceeds 1. */
INLINE void inverse_square_roots_portable(struct inverse_square_root *results, const vec *a, const vec *x, int count,
                                          int by_doubles) {
    vec guess[SIDE_BY_SIDE], error[SIDE_BY_SIDE], correction[SIDE_BY_SIDE], product[SIDE_BY_SIDE];
    EACH(guess[k] = vec_rsqrt_guess(a[k], 0x5f30c000));
    EACH(error[k] = vec_mul(a[k], guess[k]));
    EACH(error[k] = vec_fnma(error[k], guess[k], vec_set(1)));
    EACH(correction[k] = vec_fma(vec_set(0x1.1b8e0ep-2f), error[k], vec_set(0x1.1ee192p-2f)));
    EACH(correction[k] = vec_fma(correction[k], error[k], vec_set(0x1.3ea236p-2f)));
    EACH(correction[k] = vec_fma(correction[k], error[k], vec_set(0x1.801318p-2f)));
    EACH(correction[k] = vec_fma(correction[k], error[k], vec_set(0x1.ffffaap-2f)));
    EACH(correction[k] = vec_mul(correction[k], error[k]));
    EACH(product[k] = product_of(x[k], guess[k], by_doubles));
    EACH(product[k] = product_of(product[k], correction[k], by_doubles));
    EACH(results[k].product = sum_with_product(x[k], guess[k], product[k], by_doubles));
    EACH(results[k].root = vec_fma(guess[k], correction[k], guess[k]));
}

/* The CPU's estimate with a correction of third order: (1 - error)^(-1/2) = 1 + error / 2 + 3 error^2 / 8 + ... */
INLINE void inverse_square_roots_native(struct inverse_square_root *results, const vec *a, const vec *x, int count,
                                        int by_doubles) {
    vec guess[SIDE_BY_SIDE], error[SIDE_BY_SIDE], correction[SIDE_BY_SIDE];
    EACH(guess[k] = vec_rsqrt_estimate(a[k]));
    EACH(error[k] = vec_mul(a[k], guess[k]));
    EACH(error[k] = vec_fnma(error[k], guess[k], vec_set(1)));
    EACH(correction[k] = vec_fma(vec_set(0.375f), error[k], vec_set(0.5f)));
    EACH(correction[k] = vec_mul(error[k], correction[k]));
    EACH(results[k].root = vec_fma(guess[k], correction[k], guess[k]));
    EACH(results[k].product = product_of(x[k], results[k].root, by_doubles));
}

/* ---- The root alone, which the backward pass needs ---- */

typedef void roots_function(vec *roots, const vec *a, int count);

INLINE void roots_portable(vec *roots, const vec *a, int count) {
    struct inverse_square_root parts[SIDE_BY_SIDE];
    inverse_square_roots_portable(parts, a, a, count, 0);
    EACH(roots[k] = parts[k].root);
}

/* The root comes from one of Newton's steps. For a number b and a guess of 1 / sqrt(b), guess (3 - b guess^2) is twice
 * a better guess. With b = 4 a that is 1 / sqrt(a) itself, without a multiplication by 1/2. 4 a is made by adding 2 to
 * the exponent of a. From 2^126 on this gives an infinity, a NaN or a negative number, and the root is infinite or NaN.
 * If a is NaN the root may be a number, but x times the root is NaN.
 *
 * If the guess has a relative error of e, the step makes the root smaller by 1.5 e^2. AVX2's estimate has an error of
 * up to 1.5 * 2^-12, which makes that 3.4 u. A constant a little above 3 makes the root larger by 2 u, so that its
 * error is between -3.6 and 4.2 u with all roundings (measured: see docs/bounds.md). NEON's estimate is not good
 * enough. */
enum { HAS_ROOTS_OF_ONE_STEP = VEC_RSQRT_ESTIMATE_BITS >= 11 };

INLINE void roots_native(vec *roots, const vec *a, int count) {
    const uint32_t two_exponents = 0x01000000;
    const float three = VEC_RSQRT_ESTIMATE_BITS < 14 ? 0x1.800002p1f : 3;
    vec guess[SIDE_BY_SIDE], four[SIDE_BY_SIDE], step[SIDE_BY_SIDE];
    if (!HAS_ROOTS_OF_ONE_STEP) {
        struct inverse_square_root parts[SIDE_BY_SIDE];
        inverse_square_roots_native(parts, a, a, count, 0);
        EACH(roots[k] = parts[k].root);
    } else {
        EACH(four[k] = vec_bits_minus(a[k], -two_exponents));
        EACH(guess[k] = vec_rsqrt_estimate(four[k]));
        EACH(step[k] = vec_mul(four[k], guess[k]));
        EACH(step[k] = vec_fnma(step[k], guess[k], vec_set(three)));
        EACH(roots[k] = vec_mul(guess[k], step[k]));
    }
}

/* ---- The product alone, which the forward pass needs ---- */

typedef void quotients_function(vec *results, const vec *a, const vec *x, int count);

INLINE void quotients_by(vec *results, const vec *a, const vec *x, int count, int by_doubles) {
    struct inverse_square_root parts[SIDE_BY_SIDE];
    inverse_square_roots_portable(parts, a, x, count, by_doubles);
    EACH(results[k] = parts[k].product);
}

INLINE void quotients_portable(vec *results, const vec *a, const vec *x, int count) {
    quotients_by(results, a, x, count, 0);
}

INLINE void tiny_quotients_portable(vec *results, const vec *a, const vec *x, int count) {
    quotients_by(results, a, x, count, 1);
}

/* Quotients in the native mode are the product times this factor, since one of Newton's steps gives 2 / sqrt(a) if the
 * estimate is good enough for that. Whoever uses them takes the factor out. */
#define QUOTIENTS_NATIVE_FACTOR (HAS_ROOTS_OF_ONE_STEP ? 2.0f : 1.0f)

/* Rounding may carry a quotient x / sqrt(beta + x^2) beyond +-1, but not if a = beta + x^2 is at most this many times
 * beta: then the quotient is below 1 by 8 u, and has an error of no more than 4 u. */
#define QUOTIENTS_NATIVE_LIMIT 0x1p20f

/* With AVX2's estimate the step is made as a correction, x (2 guess) + x guess (1 - a guess^2), lest its own roundings
 * matter. As in roots_native a constant above 1 makes the product larger by 2 u. Its error is then between -3.3 and 4
 * u, and below 3.5 ULP, with guesses that are off by up to 1.5 * 2^-12 (measured: see docs/bounds.md). Where the guess
 * is too large the correction of -0 is 0, and so is the quotient: to give it the sign of x would take 6 to 20 percent
 * more time. */
INLINE void near_quotients_by(vec *results, const vec *a, const vec *x, int count, int by_doubles) {
    const float three = 3, one = 0x1.000004p0f;
    vec guess[SIDE_BY_SIDE], step[SIDE_BY_SIDE], product[SIDE_BY_SIDE];
    if (!HAS_ROOTS_OF_ONE_STEP) {
        struct inverse_square_root parts[SIDE_BY_SIDE];
        inverse_square_roots_native(parts, a, x, count, by_doubles);
        EACH(results[k] = parts[k].product);
        return;
    }
    EACH(guess[k] = vec_rsqrt_estimate(a[k]));
    EACH(step[k] = vec_mul(a[k], guess[k]));
    EACH(step[k] = vec_fnma(step[k], guess[k], vec_set(VEC_RSQRT_ESTIMATE_BITS < 14 ? one : three)));
    EACH(product[k] = product_of(x[k], guess[k], by_doubles));
    EACH(results[k] = product_of(product[k], step[k], by_doubles));
    if (VEC_RSQRT_ESTIMATE_BITS < 14)
        EACH(results[k] = sum_with_product(x[k], vec_add(guess[k], guess[k]), results[k], by_doubles));
}

INLINE void near_quotients_native(vec *results, const vec *a, const vec *x, int count) {
    near_quotients_by(results, a, x, count, 0);
}

INLINE void limit_quotients_native(vec *results, int count) {
    EACH(results[k] = vec_min(vec_set(QUOTIENTS_NATIVE_FACTOR), results[k]));
    EACH(results[k] = vec_max(vec_set(-QUOTIENTS_NATIVE_FACTOR), results[k]));
}

INLINE void quotients_native(vec *results, const vec *a, const vec *x, int count) {
    near_quotients_native(results, a, x, count);
    limit_quotients_native(results, count);
}

INLINE void tiny_quotients_native(vec *results, const vec *a, const vec *x, int count) {
    near_quotients_by(results, a, x, count, 1);
    limit_quotients_native(results, count);
}

#endif
