/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Floats that are subnormal, which 0 is not: products that have lost digits to underflow, and numbers that an
 * instruction takes for 0.
 */
#ifndef DYNNORM_SUBNORMALS_H
#define DYNNORM_SUBNORMALS_H

#include "rows/floats.h"
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

/* AMD's CPUs take little more time for subnormal products. An Intel CPU takes about 150 cycles for a vector of
 * products with a subnormal one, or one of a subnormal float, with fused operations likewise. It takes none for
 * conversions, nor for doubles that hold such a float. So these functions give what vec_mul and vec_fma do by way of
 * doubles. A product of floats is exact in a double. A sum that is then rounded to float must not have been rounded to
 * a float's midpoint before: it is rounded to odd (Boldo, Melquiond, "Emulation of FMA and correctly rounded sums:
 * proved algorithms using rounding to odd", 2008): exact, or to that one of its two neighbours whose last bit is 1. */
#ifdef VEC_SUBNORMALS_ARE_SLOW
enum { SUBNORMALS_ARE_SLOW = 1 };
INLINE vec vec_mul_by_doubles(vec a, vec b) {
    return wide_narrow(wide_mul(vec_widen(a), vec_widen(b)));
}

INLINE vec vec_fma_by_doubles(vec a, vec b, vec c) {
    return wide_narrow(wide_add_to_odd(wide_mul(vec_widen(a), vec_widen(b)), vec_widen(c)));
}
#else
enum { SUBNORMALS_ARE_SLOW = 0 };
#define vec_mul_by_doubles vec_mul
#define vec_fma_by_doubles vec_fma
#endif

/* Either way has the same bits. */
INLINE vec product_of(vec a, vec b, int by_doubles) {
    return SUBNORMALS_ARE_SLOW && by_doubles ? vec_mul_by_doubles(a, b) : vec_mul(a, b);
}

INLINE vec sum_with_product(vec a, vec b, vec c, int by_doubles) {
    return SUBNORMALS_ARE_SLOW && by_doubles ? vec_fma_by_doubles(a, b, c) : vec_fma(a, b, c);
}

/* Whether there are such products with a row, most likely: an element of its x or dy is tiny, but not 0. */
INLINE int is_tinier(uint32_t bits, uint32_t bits_of_limit) {
    return SUBNORMALS_ARE_SLOW && (bits & 0x7fffffff) - 1 < bits_of_limit;
}

#define BITS_OF_TINY BITS_OF_POWER(-112)
#define BITS_OF_TINIER BITS_OF_POWER(-122) /* for arithmetic whose factors are near 1 */
INLINE int is_tiny(uint32_t bits) {
    return is_tinier(bits, BITS_OF_TINY);
}

#endif
