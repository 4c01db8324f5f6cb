/* SPDX-License-Identifier: BSD-2-Clause
 *
 * tanh, and 1 - tanh^2 without cancellation, from one exponential:
 *
 *   E = exp(-2 |z|), tanh |z| = (1 - E) / (1 + E), 1 - tanh^2 = 4 E / (1 + E)^2
 *
 * With n = round(-2 |z| log2(e)), r = |z| + n ln(2) / 2 and P = (1 - exp(-2 r)) / 2, E = 2^n (1 - 2 P). So
 * 1 - E = (1 - 2^n) + 2^(n + 1) P and 1 + E = (1 + 2^n) - 2^(n + 1) P are rounded once each, and no digits cancel. The
 * coefficients are derived in coefficients.sollya.
 *
 * A quarter of each of these is what is computed. With 4 / (1 + E) tanh |z| then takes one multiplication, and
 * 1 - tanh^2 two. A part of 1 - tanh^2 in place of all of it would make more of what is lost where its product with x
 * underflows.
 */
#ifndef DYNNORM_TANH_H
#define DYNNORM_TANH_H

#include "functions/tanh_segments.h"
#include "vec.h"

#include <math.h>

/* Each is a quarter of it. */
struct tanh_parts {
    vec numerator;   /* 1 - E */
    vec denominator; /* 1 + E */
    vec exponential; /* E */
};

/* magnitude: |z|, which is limited to the limit. Without a limit, INFINITY, the results mean nothing beyond 42.5, up to
 * where a quarter of E is a normal float. Some vectors side by side: see inverse_square_root.h. The sums with 2^n are
 * made by additions and subtractions of a product that is exact: CPUs have units for these that stand idle otherwise,
 * while every fused operation has to wait for another unit. */
INLINE void tanh_parts_of(struct tanh_parts *parts, const vec *magnitude, float limit, int count) {
    const float magic = 0x1.8p23f + 126; /* adding this rounds to an integer, and leaves n + 126 in the low bits */
    const uint32_t one_exponent = 0x00800000;
    vec limited[SIDE_BY_SIDE], shifted[SIDE_BY_SIDE], n[SIDE_BY_SIDE], r[SIDE_BY_SIDE], polynomial[SIDE_BY_SIDE];
    vec power[SIDE_BY_SIDE], half_power[SIDE_BY_SIDE], product[SIDE_BY_SIDE];
    EACH(limited[k] = limit == INFINITY ? magnitude[k] : vec_min(vec_set(limit), magnitude[k])); /* a NaN stays */
    EACH(shifted[k] = vec_fnma(limited[k], vec_set(0x1.715476p1f), vec_set(magic)));
    EACH(n[k] = vec_sub(shifted[k], vec_set(magic)));
    EACH(r[k] = vec_fma(n[k], vec_set(0x1.62e43p-2f), limited[k])); /* in +-ln(2) / 4 */

    EACH(polynomial[k] = vec_fma(vec_set(0x1.6b71a8p-5f), r[k], vec_set(-0x1.1227c2p-3f)));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(0x1.555718p-2f)));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(-0x1.5554bp-1f)));
    EACH(polynomial[k] = vec_fma(polynomial[k], r[k], vec_set(0x1.fffffep-1f)));
    EACH(product[k] = vec_mul(r[k], r[k]));
    EACH(product[k] = vec_fnma(product[k], polynomial[k], r[k])); /* P */

    EACH(power[k] = vec_power_of_two(shifted[k])); /* 2^(n - 1) */
    EACH(half_power[k] = vec_bits_minus(power[k], one_exponent));
    EACH(product[k] = vec_mul(power[k], product[k]));
    EACH(parts[k].numerator = vec_sub(vec_set(0.25f), half_power[k]));
    EACH(parts[k].denominator = vec_add(vec_set(0.25f), half_power[k]));
    EACH(parts[k].numerator = vec_add(parts[k].numerator, product[k]));
    EACH(parts[k].denominator = vec_sub(parts[k].denominator, product[k]));
    EACH(parts[k].exponential = vec_sub(half_power[k], product[k]));
}

/* Of some vectors side by side. */
typedef void tanh_function(vec *results, const vec *z, int count);

INLINE void tanh_portable(vec *results, const vec *z, int count) {
    struct tanh_parts parts[SIDE_BY_SIDE];
    EACH(results[k] = vec_abs(z[k]));
    tanh_parts_of(parts, results, 16, count); /* tanh is 1 there, and no product subnormal, which would be slow */
    EACH(results[k] = vec_div(parts[k].numerator, parts[k].denominator));
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
