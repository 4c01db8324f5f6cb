/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Floats that are subnormal, which 0 is not: products that have lost digits to underflow, and numbers that an
 * instruction takes for 0.
 */
#ifndef DYNNORM_SUBNORMALS_H
#define DYNNORM_SUBNORMALS_H

#include "vec.h"

/* The bits of the least normal float. Less so much, those of 0 are ZERO_MINUS_LEAST_NORMAL, those of subnormal floats
 * are greater, and all others are less. */
#define LEAST_NORMAL 0x00800000u
#define ZERO_MINUS_LEAST_NORMAL 0xff800000u

/* Whether any lane of some vectors is subnormal. */
INLINE int any_subnormal(const vec *a, int count) {
#ifdef VEC_HAVE_CLASSES
    return vec_any_subnormal(a, count);
#else
    vec bits[SIDE_BY_SIDE];
    EACH(bits[k] = vec_bits_minus(vec_abs(a[k]), LEAST_NORMAL));
    UNROLL_UP_TO_4
    for (int k = 1; k < count; k++)
        bits[0] = vec_max_bits(bits[0], bits[k]);
    return vec_any_bits_above(bits[0], ZERO_MINUS_LEAST_NORMAL);
#endif
}

#endif
