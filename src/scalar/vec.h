/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary, one lane wide: plain C. Every instruction set has the same operations in the same order:
 *
 *   vec    LANES floats
 *   wide   LANES doubles, in which long sums are kept
 *
 * Functions whose name ends in _n touch the first n lanes only, n <= 0 meaning none and n >= LANES all; a load fills
 * the others.
 */
#ifndef DYNNORM_VEC_H
#define DYNNORM_VEC_H

#include "../rows/floats.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef DYNNORM_HAVE_SLEEF
#include <sleef.h>
#endif

/* clang does not define FP_FAST_FMAF. */
#if defined FP_FAST_FMAF || defined __FMA__ || defined __aarch64__
#define HARDWARE_FMA
#endif

#define INLINE static inline __attribute__((always_inline))
/* A function of its own: where inlining would cost more than the call; and where it is rarely called at all. */
#define OUTLINED static __attribute__((noinline, unused))
#define RARE static __attribute__((noinline, cold, unused))

enum { LANES = 1 };
typedef float vec;
typedef double wide;

INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- Memory ---- */

INLINE vec vec_load(const float *p) {
    return load_float(p);
}

INLINE vec vec_load_n(const float *p, ptrdiff_t n, vec fill) {
    return n > 0 ? load_float(p) : fill;
}

INLINE void vec_store(float *p, vec a) {
    store_float(p, a);
}

INLINE void vec_store_n(float *p, vec a, ptrdiff_t n) {
    if (n > 0)
        store_float(p, a);
}

/* Whether vec_stream stores past the caches. */
enum { VEC_CAN_STREAM = 0 };

/* Past the caches, where the instruction set can. p is a multiple of the vector's size, and after the last of such
 * stores comes vec_end_streaming. */
INLINE void vec_stream(float *p, vec a) {
    store_float(p, a);
}

INLINE void vec_end_streaming(void) {
}

INLINE vec vec_set(float a) {
    return a;
}

/* ---- Arithmetic ---- */

INLINE vec vec_add(vec a, vec b) {
    return a + b;
}

INLINE vec vec_sub(vec a, vec b) {
    return a - b;
}

INLINE vec vec_mul(vec a, vec b) {
    return a * b;
}

INLINE vec vec_div(vec a, vec b) {
    return a / b;
}

#ifndef HARDWARE_FMA
/* The product is exact in double. The sum is rounded to odd: to double precision, but to the neighbour with an odd last
   bit where it is not exact. Rounding that to float gives the correctly rounded result (Boldo, Melquiond, "Emulation of
   a FMA and correctly rounded sums", 2008), since double has more than 24 + 2 bits. */
OUTLINED float fused_multiply_add(float a, float b, float c) {
    double product = (double)a * (double)b;
    double sum = product + (double)c;
    double back = sum - product;
    double error = (product - (sum - back)) + ((double)c - back); /* exact (Knuth's TwoSum); NaN if sum is infinite */
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((error > 0 || error < 0) && !(bits & 1))
        bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    memcpy(&sum, &bits, sizeof sum);
    return (float)sum;
}
#endif

/* a b + c, rounded once. */
INLINE vec vec_fma(vec a, vec b, vec c) {
#ifdef HARDWARE_FMA
    return fmaf(a, b, c);
#else
    return fused_multiply_add(a, b, c);
#endif
}

/* a b - c, rounded once. */
INLINE vec vec_fms(vec a, vec b, vec c) {
    return vec_fma(a, b, -c);
}

/* c - a b, rounded once. */
INLINE vec vec_fnma(vec a, vec b, vec c) {
    return vec_fma(-a, b, c);
}

/* ---- Comparison, sign, bits. In min and max a is neither NaN nor 0; they give b where b is NaN. ---- */

INLINE vec vec_min(vec a, vec b) {
    return a < b ? a : b;
}

INLINE vec vec_max(vec a, vec b) {
    return a > b ? a : b;
}

INLINE vec vec_abs(vec a) {
    return float_of(bits_of(a) & 0x7fffffff);
}

/* magnitude, which has no sign, with the sign of sign */
INLINE vec vec_with_sign(vec magnitude, vec sign) {
    return float_of(bits_of(magnitude) | (bits_of(sign) & 0x80000000));
}

/* Whether a lane is NaN */
INLINE int vec_any_nan(vec a) {
    return a != a;
}

/* The bits, as an unsigned integer, less low */
INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return float_of(bits_of(a) - low);
}

/* The one with the greater bits, as unsigned integers */
INLINE vec vec_max_bits(vec a, vec b) {
    return bits_of(a) > bits_of(b) ? a : b;
}

/* Whether the bits of a lane, as an unsigned integer, exceed limit */
INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    return bits_of(a) > limit;
}

/* x where the bits of a, less low, exceed span as unsigned integers; else y */
INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return bits_of(a) - low > span ? x : y;
}

/* 2^k as a float, where the low bits of a's representation hold k + 127, 0 <= k + 127 < 256 */
INLINE vec vec_power_of_two(vec a) {
    return float_of(bits_of(a) << 23);
}

/* A first guess at 1 / sqrt(a), within 3.5 %, for a positive and normal */
INLINE vec vec_rsqrt_guess(vec a) {
    return float_of(0x5f3759df - (bits_of(a) >> 1));
}

/* ---- What the CPU estimates, for the native mode only: with a relative error of at most 2^-8 ---- */

/* 1 / sqrt(a) */
INLINE vec vec_rsqrt_estimate(vec a) {
    return 1 / sqrtf(a);
}

/* ---- SLEEF ---- */

#if defined DYNNORM_HAVE_SLEEF && defined HARDWARE_FMA
#define VEC_HAVE_SLEEF
#ifndef FP_FAST_FMAF
float Sleef_finz_tanhf1_u10purecfma(float); /* sleef.h declares it for compilers that define FP_FAST_FMAF only */
#endif
INLINE vec vec_tanh_sleef(vec a) {
    return Sleef_finz_tanhf1_u10purecfma(a);
}
#endif

/* ---- Doubles ---- */

INLINE wide wide_set(double a) {
    return a;
}

INLINE wide wide_load(const double *p) {
    return *p;
}

INLINE void wide_store(double *p, wide a) {
    *p = a;
}

/* a, exactly */
INLINE wide vec_widen(vec a) {
    return (double)a;
}

/* LANES floats, exactly: where the instruction set can, without a shuffle */
INLINE wide wide_load_floats(const float *p) {
    return (double)load_float(p);
}

/* a, rounded */
INLINE vec wide_narrow(wide a) {
    return (float)a;
}

INLINE wide wide_add(wide a, wide b) {
    return a + b;
}

INLINE wide wide_sub(wide a, wide b) {
    return a - b;
}

INLINE wide wide_mul(wide a, wide b) {
    return a * b;
}

/* a b + c, rounded once */
INLINE wide wide_fma(wide a, wide b, wide c) {
    return fma(a, b, c);
}

/* The sum of 16 lanes in the fixed tree: k with k + 8, + 4, + 2, + 1 */
INLINE double wide_sum(const wide lanes[16 / LANES]) {
    double sum[8];
    for (int k = 0; k < 8; k++)
        sum[k] = lanes[k] + lanes[k + 8];
    for (int half = 4; half; half /= 2)
        for (int k = 0; k < half; k++)
            sum[k] += sum[k + half];
    return sum[0];
}

#endif
