/* SPDX-License-Identifier: BSD-2-Clause
 *
 * tanh, and x / sqrt(a) for a from 2^-60 to 2^60, as far as a result of 16 bits shows them: to a quarter of a unit in
 * its last place, 2^-10 of the result for bfloat16 and 2^-13 for float16. The coefficients are derived in brief.sollya.
 */
#ifndef DYNNORM_BRIEF_H
#define DYNNORM_BRIEF_H

#include "vec.h"

/* z within +-limit; a NaN stays. Beyond a limit tanh is 1 but for a part of the error. */
INLINE void limit_to(vec *limited, const vec *z, int count, float limit) {
    EACH(limited[k] = vec_max(vec_set(-limit), vec_min(vec_set(limit), z[k])));
}

/* A polynomial of |z|, times z. */
INLINE void tanh_brief_bf16(vec *results, const vec *z, int count) {
    vec limited[SIDE_BY_SIDE], magnitude[SIDE_BY_SIDE];
    limit_to(limited, z, count, 0x1.cap1f);
    EACH(magnitude[k] = vec_abs(limited[k]));
    EACH(results[k] = vec_fma(vec_set(-0x1.fec77ep-12f), magnitude[k], vec_set(0x1.7df514p-8f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(-0x1.65057ap-6f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(-0x1.2b7f06p-11f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(0x1.97aa52p-3f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(-0x1.c00d0ap-2f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(0x1.2253b2p-6f)));
    EACH(results[k] = vec_fma(results[k], magnitude[k], vec_set(0x1.ffe90ep-1f)));
    EACH(results[k] = vec_mul(results[k], limited[k]));
}

/* A quotient of polynomials of z^2, times z. A polynomial would have to have so many terms that much of it cancels. */
INLINE void tanh_brief_f16(vec *results, const vec *z, int count) {
    vec limited[SIDE_BY_SIDE], square[SIDE_BY_SIDE], denominator[SIDE_BY_SIDE];
    limit_to(limited, z, count, 0x1.3ap2f);
    EACH(square[k] = vec_mul(limited[k], limited[k]));
    EACH(results[k] = vec_fma(vec_set(0x1.644cb4p-11f), square[k], vec_set(0x1.a4aeb6p-4f)));
    EACH(results[k] = vec_fma(results[k], square[k], vec_set(0x1.fff9eap-1f)));
    EACH(denominator[k] = vec_fma(vec_set(0x1.a6fde4p-7f), square[k], vec_set(0x1.be34eep-2f)));
    EACH(denominator[k] = vec_fma(denominator[k], square[k], vec_set(1)));
    EACH(results[k] = vec_mul(results[k], limited[k]));
    EACH(results[k] = vec_div(results[k], denominator[k]));
}

/* Twice x / sqrt(a), by one of Newton's steps: 2 / sqrt(a) = guess (3 - a guess^2), but with a constant that divides
 * the error between both sides. */
INLINE void quotients_brief_bf16(vec *results, const vec *a, const vec *x, int count) {
    vec guess[SIDE_BY_SIDE], step[SIDE_BY_SIDE];
    EACH(guess[k] = vec_rsqrt_guess(a[k], 0x5f3768c0));
    EACH(step[k] = vec_mul(a[k], guess[k]));
    EACH(step[k] = vec_fnma(step[k], guess[k], vec_set(0x1.803998p1f)));
    EACH(results[k] = vec_mul(x[k], guess[k]));
    EACH(results[k] = vec_mul(results[k], step[k]));
}

/* guess (c0 + c1 d + c2 d^2), d = a guess^2 */
INLINE void quotients_brief_f16(vec *results, const vec *a, const vec *x, int count) {
    vec guess[SIDE_BY_SIDE], square[SIDE_BY_SIDE], step[SIDE_BY_SIDE];
    EACH(guess[k] = vec_rsqrt_guess(a[k], 0x5f30c000));
    EACH(square[k] = vec_mul(a[k], guess[k]));
    EACH(square[k] = vec_mul(square[k], guess[k]));
    EACH(step[k] = vec_fma(vec_set(0x1.c12544p-2f), square[k], vec_set(-0x1.5fcfc6p0f)));
    EACH(step[k] = vec_fma(step[k], square[k], vec_set(0x1.ef87ccp0f)));
    EACH(results[k] = vec_mul(x[k], guess[k]));
    EACH(results[k] = vec_mul(results[k], step[k]));
}

#endif
