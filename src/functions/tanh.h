/* SPDX-License-Identifier: BSD-2-Clause
 *
 * tanh, and 1 - tanh^2 without cancellation, from one exponential:
 *
 *   E = exp(-2 z), tanh z = (1 - E) / (1 + E), 1 - tanh^2 = 4 E / (1 + E)^2
 *
 * With n = round(-2 z log2(e)), r = 2 z + n ln(2) and P = 1 - exp(-r), E = 2^n (1 - P). So 1 - E = (1 - 2^n) + 2^n P is
 * rounded twice, and no digits cancel. The coefficients are derived in coefficients.sollya.
 *
 * A quarter of E and of what is made of it is what is computed. With 4 / (1 + E) tanh then takes one multiplication,
 * and 1 - tanh^2 two. A part of 1 - tanh^2 in place of all of it would make more of what is lost where its product with
 * h underflows.
 */
#ifndef DYNNORM_TANH_H
#define DYNNORM_TANH_H

#include "functions/tanh_segments.h"
#include "vec.h"

/* E / 4 = quarter - power complement */
struct tanh_exponential {
    vec quarter;    /* of 2^n */
    vec power;      /* the same; twice that if complement is half of P */
    vec complement; /* P, or half of it */
};

/* argument: 2 z if it is doubled, which is known when compiling, and z otherwise; then complement is half of P, and one
 * operation more makes the quarter. |z| is at most 42.5: beyond it the results mean nothing. Some vectors side by side:
 * see inverse_square_root.h. */
INLINE void tanh_exponentials(struct tanh_exponential *results, const vec *argument, int is_doubled, int count) {
    /* Adding this rounds to an integer, and leaves it in the low bits, plus what makes an exponent of power of it. */
    const float magic = 0x1.8p23f + (is_doubled ? 125 : 126);
    const float part = is_doubled ? 0.5f : 1;
    const float coefficients[5] = {0x1.fffffep-1f * part, -0x1.5554bp-1f * part * part,
                                   0x1.555718p-2f * part * part * part, -0x1.1227c2p-3f * part * part * part * part,
                                   0x1.6b71a8p-5f * part * part * part * part * part};
    const uint32_t one_exponent = 0x00800000;
    vec shifted[SIDE_BY_SIDE], n[SIDE_BY_SIDE], r[SIDE_BY_SIDE], polynomial[SIDE_BY_SIDE], square[SIDE_BY_SIDE];
    EACH(shifted[k] = vec_fnma(argument[k], vec_set(0x1.715476p1f * part), vec_set(magic)));
    EACH(n[k] = vec_sub(shifted[k], vec_set(magic)));
    EACH(r[k] = vec_fma(n[k], vec_set(0x1.62e43p-2f / part), argument[k])); /* r, or half of it */

    EACH(polynomial[k] = vec_fma(vec_set(coefficients[4]), r[k], vec_set(coefficients[3])));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(coefficients[2])));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(coefficients[1])));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(coefficients[0])));
    EACH(square[k] = vec_mul(r[k], r[k]));
    EACH(results[k].complement = vec_fnma(square[k], polynomial[k], r[k]));

    EACH(results[k].power = vec_power_of_two(shifted[k]));
    EACH(results[k].quarter = is_doubled ? results[k].power : vec_bits_minus(results[k].power, one_exponent));
}

/* Of some vectors side by side. */
typedef void tanh_function(vec *results, const vec *z, int count);

/* The sums are made by additions and subtractions of a product that is exact: CPUs have units for these that stand idle
 * otherwise, while every fused operation has to wait for another unit. From |z| = 16 on tanh is 1, and up to there no
 * product is subnormal, which would be slow. */
INLINE void tanh_portable(vec *results, const vec *z, int count) {
    struct tanh_exponential of[SIDE_BY_SIDE];
    vec product[SIDE_BY_SIDE], numerator[SIDE_BY_SIDE], denominator[SIDE_BY_SIDE];
    EACH(results[k] = vec_abs(z[k]));
    EACH(results[k] = vec_min(vec_set(16), results[k])); /* a NaN stays */
    tanh_exponentials(of, results, 0, count);
    EACH(product[k] = vec_mul(of[k].power, of[k].complement));
    EACH(numerator[k] = vec_sub(vec_set(0.25f), of[k].quarter));
    EACH(denominator[k] = vec_add(vec_set(0.25f), of[k].quarter));
    EACH(numerator[k] = vec_add(numerator[k], product[k]));
    EACH(denominator[k] = vec_sub(denominator[k], product[k]));
    EACH(results[k] = vec_div(numerator[k], denominator[k]));
    EACH(results[k] = vec_with_sign(results[k], z[k]));
}

#ifdef VEC_HAVE_FAST_LOOKUP
/* By segments, whose coefficients are looked up: no division. Below 1.4 ULP, and monotone. */
INLINE void tanh_native(vec *results, const vec *z, int count) {
    vec limited[SIDE_BY_SIDE], place[SIDE_BY_SIDE], r[SIDE_BY_SIDE];
    const float(*coefficients)[32] = tanh_segments + TANH_COEFFICIENTS;
    EACH(limited[k] = vec_abs(z[k]));
    EACH(limited[k] = vec_min(vec_set(0x1.205966p3f), limited[k])); /* tanh is 1 there; a NaN stays */
    EACH(place[k] = vec_place(vec_add(limited[k], vec_set(0.75f))));
    EACH(r[k] = vec_sub(limited[k], vec_lookup(tanh_segments[TANH_CENTER], place[k])));
    EACH(results[k] = vec_fma(vec_lookup(coefficients[4], place[k]), r[k], vec_lookup(coefficients[3], place[k])));
    EACH(results[k] = vec_fma(results[k], r[k], vec_lookup(coefficients[2], place[k])));
    EACH(results[k] = vec_fma(results[k], r[k], vec_lookup(coefficients[1], place[k])));
    EACH(results[k] = vec_fma(results[k], r[k], vec_lookup(coefficients[0], place[k])));
    /* It is at most |z| anyway. */
    EACH(results[k] = vec_lesser_with_sign(results[k], z[k]));
}
#else
#define tanh_native tanh_portable
#endif

#ifdef VEC_HAVE_SLEEF
/* SLEEF's function takes ten times as long where an exponential underflows. It is 1 from 8.67 on. */
INLINE void tanh_sleef(vec *results, const vec *z, int count) {
    EACH(results[k] = vec_max(vec_set(-16), vec_min(vec_set(16), z[k]))); /* a NaN stays */
    EACH(results[k] = vec_tanh_sleef(results[k]));
}
#endif

#endif
