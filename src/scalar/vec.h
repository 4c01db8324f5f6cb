/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary with one lane: plain C. Every instruction set has the same operations in the same order. They
 * work on three types:
 *
 *   vec    LANES floats
 *   wide   LANES doubles, for long sums
 *   eight  eight doubles on every instruction set
 *
 * There are VEC_REGISTERS registers for vec.
 *
 * Functions whose names end in _n touch only the first n lanes in memory: none if n <= 0, all if n >= LANES. A load
 * fills the other lanes with those of fill.
 */
#ifndef DYNNORM_VEC_H
#define DYNNORM_VEC_H

#include "../inlining.h"
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

/* Where there is an instruction for fused operations the portable mode takes hardly longer than a square root and a
 * division would. Where there is none, as on x86-64 before 2013, few would gain from kernels that take less. */
#define VEC_WITHOUT_NATIVE

enum { LANES = 1, VEC_REGISTERS = 16 };
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

/* a, which the compiler has to keep in a register: it may not load a second time what is used twice. That pays where
 * the CPU computes more vectors in a cycle than it loads. */
INLINE vec vec_in_register(vec a) {
    return a;
}

INLINE void vec_store(float *p, vec a) {
    store_float(p, a);
}

INLINE void vec_store_n(float *p, vec a, ptrdiff_t n) {
    if (n > 0)
        store_float(p, a);
}

/* Whether vec_stream stores past the caches. If not, it is the same as vec_store. */
enum { VEC_CAN_STREAM = 0 };

/* p must be a multiple of the vector's size. Call vec_end_streaming after the last of these stores. */
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

/* sum + a, in a loop that adds more than it multiplies */
INLINE vec vec_accumulate(vec sum, vec a) {
    return sum + a;
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
/* sum = a + b and *error = what the rounding lost, exactly (Knuth's TwoSum); *error is NaN if sum is infinite. */
INLINE double add_with_error(double a, double b, double *error) {
    const double sum = a + b, back = sum - a;
    *error = (a - (sum - back)) + (b - back);
    return sum;
}

/* a + b rounded to odd: if it is not exact, it becomes that of the two neighbouring doubles whose last bit is odd.
   Rounding that once more, to at least two bits less, gives what rounding the exact sum gives (Boldo, Melquiond,
   "Emulation of a FMA and correctly rounded sums", 2008). */
INLINE double add_to_odd(double a, double b) {
    double error, sum = add_with_error(a, b, &error);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((error > 0 || error < 0) && !(bits & 1))
        bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* The product is exact in double, and double has more than 24 + 2 bits. */
OUTLINED float fused_multiply_add(float a, float b, float c) {
    return (float)add_to_odd((double)a * (double)b, (double)c);
}

INLINE int is_within(double a, double least, double greatest) {
    return fabs(a) >= least && fabs(a) <= greatest;
}

/* The same in double, from the same article. That of Windows's C library rounds twice, so it is left with
   what is too large or too small here. The product is the sum of two
   doubles (Dekker), made of halves of a and b. */
OUTLINED double fused_multiply_add_in_double(double a, double b, double c) {
    if (!is_within(a, 0x1p-480, 0x1p480) || !is_within(b, 0x1p-480, 0x1p480) || !is_within(c, 0, 0x1p1000))
        return fma(a, b, c);
    const double a_split = a * 0x8000001p0, b_split = b * 0x8000001p0;
    const double a_high = a_split - (a_split - a), b_high = b_split - (b_split - b);
    const double a_low = a - a_high, b_low = b - b_high;
    const double product = a * b;
    const double rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    double low_error, error;
    const double low = add_with_error(c, rest, &low_error);
    const double sum = add_with_error(product, low, &error);
    return sum + add_to_odd(low_error, error);
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

/* ---- Comparison, sign, bits. In vec_min and vec_max a is neither NaN nor 0; if b is NaN, they give b. ---- */

INLINE vec vec_min(vec a, vec b) {
    return a < b ? a : b;
}

INLINE vec vec_max(vec a, vec b) {
    return a > b ? a : b;
}

INLINE vec vec_abs(vec a) {
    return float_of(bits_of(a) & 0x7fffffff);
}

/* magnitude, whose sign bit is 0, with the sign of sign */
INLINE vec vec_with_sign(vec magnitude, vec sign) {
    return float_of(bits_of(magnitude) | (bits_of(sign) & 0x80000000));
}

/* The lesser of magnitude and |sign|, with the sign of sign. magnitude's sign bit is 0. If both are NaN, so is this. */
INLINE vec vec_lesser_with_sign(vec magnitude, vec sign) {
    vec other = vec_abs(sign);
    return vec_with_sign(other < magnitude ? other : magnitude, sign);
}

/* Whether any lane is NaN */
INLINE int vec_any_nan(vec a) {
    return a != a;
}

/* Whether any lane is NaN or infinite */
INLINE int vec_any_not_finite(vec a) {
    return vec_any_nan(vec_sub(a, a));
}

/* The bits as an unsigned integer, minus low */
INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return float_of(bits_of(a) - low);
}

/* The one whose bits are greater as an unsigned integer */
INLINE vec vec_max_bits(vec a, vec b) {
    return bits_of(a) > bits_of(b) ? a : b;
}

/* The greater of a, whose sign bit is 0, and |b|; one of them if one is NaN */
INLINE vec vec_greater_magnitude(vec a, vec b) {
    return vec_max_bits(a, vec_abs(b));
}

/* The greatest bits of any lane as an unsigned integer */
INLINE uint32_t vec_greatest_bits(vec a) {
    return bits_of(a);
}

/* Whether the bits of any lane exceed limit as an unsigned integer */
INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    return bits_of(a) > limit;
}

/* x in the lanes where the bits of a, minus low, exceed span as an unsigned integer; y in the others */
INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return bits_of(a) - low > span ? x : y;
}

/* The first n lanes of a, and the others of b; n need not be a number of lanes */
INLINE vec vec_join(ptrdiff_t n, vec a, vec b) {
    return n > 0 ? a : b;
}

/* 2^k as a float, if the low bits of a's representation hold k + 127, with 0 <= k + 127 < 256 */
INLINE vec vec_power_of_two(vec a) {
    return float_of(bits_of(a) << 23);
}

/* What bits 20 to 24 of a's representation hold, for vec_lookup */
INLINE vec vec_place(vec a) {
    return float_of(bits_of(a) >> 20 & 31);
}

/* The float of a table that has this place. The table is aligned to 64 bytes. */
INLINE vec vec_lookup(const float table[32], vec place) {
    return table[bits_of(place)];
}

/* A first guess at 1 / sqrt(a), for a positive and normal a: a magic number less half of the bits of a. With 0x5f30c000
 * it is too small by up to 6.2 %. */
INLINE vec vec_rsqrt_guess(vec a, uint32_t magic) {
    return float_of(magic - (bits_of(a) >> 1));
}

/* ---- The CPU's estimate, for the native mode only. Its relative error is at most 2^-8. ---- */

/* It is at most 2^-VEC_RSQRT_ESTIMATE_BITS. */
enum { VEC_RSQRT_ESTIMATE_BITS = 23 };

/* 1 / sqrt(a) */
INLINE vec vec_rsqrt_estimate(vec a) {
    return 1 / sqrtf(a);
}

/* ---- SLEEF ---- */

#if defined DYNNORM_HAVE_SLEEF && defined HARDWARE_FMA
#define VEC_HAVE_SLEEF
#ifndef FP_FAST_FMAF
float Sleef_finz_tanhf1_u10purecfma(float); /* sleef.h declares it only for compilers that define FP_FAST_FMAF */
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

/* Where registers are few: the compiler has to compute both of them before what follows, so that they are in registers
 * then, and what follows has not begun to take any. */
INLINE void wides_in_registers(wide *a, wide *b) {
    (void)a, (void)b;
}

INLINE void wide_store(double *p, wide a) {
    *p = a;
}

/* a, exactly */
INLINE wide vec_widen(vec a) {
    return (double)a;
}

/* LANES floats from memory, exactly. Most instruction sets do this without the shuffle that vec_widen takes. */
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

/* sum + a, in a loop that converts what is added */
INLINE wide wide_accumulate(wide sum, wide a) {
    return sum + a;
}

INLINE wide wide_sub(wide a, wide b) {
    return a - b;
}

INLINE wide wide_mul(wide a, wide b) {
    return a * b;
}

/* a b + c where the product is exact, as that of two floats is: rounded once */
INLINE wide wide_add_product(wide a, wide b, wide c) {
    return a * b + c;
}

/* a b + c, rounded once */
INLINE wide wide_fma(wide a, wide b, wide c) {
#ifdef HARDWARE_FMA
    return fma(a, b, c);
#else
    return fused_multiply_add_in_double(a, b, c);
#endif
}

/* ---- Eight doubles: the sums of a row before they become one, or one number of each of eight rows ---- */

typedef struct {
    double lane[8];
} eight;

INLINE eight eight_set(double a) {
    return (eight){{a, a, a, a, a, a, a, a}};
}

INLINE eight eight_of_two(double first, double second, double others) {
    return (eight){{first, second, others, others, others, others, others, others}};
}

INLINE eight eight_load(const double *p) {
    eight a;
    memcpy(&a, p, sizeof a);
    return a;
}

INLINE void eight_store(double *p, eight a) {
    memcpy(p, &a, sizeof a);
}

/* Eight floats from memory, exactly */
INLINE eight eight_load_floats(const float *p) {
    eight a;
    for (int k = 0; k < 8; k++)
        a.lane[k] = (double)load_float(p + k);
    return a;
}

/* a, rounded, to eight floats in memory */
INLINE void eight_store_floats(float *p, eight a) {
    for (int k = 0; k < 8; k++)
        store_float(p + k, (float)a.lane[k]);
}

INLINE eight eight_abs(eight a) {
    for (int k = 0; k < 8; k++)
        a.lane[k] = fabs(a.lane[k]);
    return a;
}

INLINE eight eight_add(eight a, eight b) {
    for (int k = 0; k < 8; k++)
        a.lane[k] += b.lane[k];
    return a;
}

INLINE eight eight_sub(eight a, eight b) {
    for (int k = 0; k < 8; k++)
        a.lane[k] -= b.lane[k];
    return a;
}

INLINE eight eight_mul(eight a, eight b) {
    for (int k = 0; k < 8; k++)
        a.lane[k] *= b.lane[k];
    return a;
}

INLINE eight eight_div(eight a, eight b) {
    for (int k = 0; k < 8; k++)
        a.lane[k] /= b.lane[k];
    return a;
}

INLINE eight eight_sqrt(eight a) {
    for (int k = 0; k < 8; k++)
        a.lane[k] = sqrt(a.lane[k]);
    return a;
}

/* Bit k tells whether a <= b in lane k */
INLINE unsigned eight_at_most(eight a, eight b) {
    unsigned bits = 0;
    for (int k = 0; k < 8; k++)
        bits |= (unsigned)(a.lane[k] <= b.lane[k]) << k;
    return bits;
}

/* Of 16 lanes: lane k + 8 is added to lane k, and the sums are widened */
INLINE eight vec_fold(const vec lanes[16 / LANES]) {
    eight a;
    for (int k = 0; k < 8; k++)
        a.lane[k] = (double)(lanes[k] + lanes[k + 8]);
    return a;
}

/* The same, stored as floats */
INLINE void vec_store_folded(float p[8], const vec lanes[16 / LANES]) {
    for (int k = 0; k < 8; k++)
        p[k] = lanes[k] + lanes[k + 8];
}

/* vec_fold of 16 doubles */
INLINE eight wide_fold(const wide lanes[16 / LANES]) {
    eight a;
    for (int k = 0; k < 8; k++)
        a.lane[k] = lanes[k] + lanes[k + 8];
    return a;
}

/* The sum of the lanes in a fixed order: lane k + 4 is added to lane k, then k + 2, then k + 1 */
INLINE double eight_sum(eight a) {
    for (int half = 4; half; half /= 2)
        for (int k = 0; k < half; k++)
            a.lane[k] += a.lane[k + half];
    return a.lane[0];
}

/* The sums of eight rows at once, each made in that order: merge_4 takes the lanes of two rows r and r + 4; merge_2
   takes two of its results, for rows r and r + 2; merge_1 two of those, for rows r and r + 1. What they give in between
   is the instruction set's own business; in the end lane r holds the sum of row r. */
INLINE eight merge_4(eight a, eight b) {
    return (eight){{eight_sum(a), eight_sum(b)}};
}

INLINE eight merge_2(eight a, eight b) {
    return (eight){{a.lane[0], a.lane[1], b.lane[0], b.lane[1]}};
}

INLINE eight merge_1(eight a, eight b) {
    return (eight){{a.lane[0], b.lane[0], a.lane[2], b.lane[2], a.lane[1], b.lane[1], a.lane[3], b.lane[3]}};
}

/* Lane k is put where the number is that has the three bits of k in the opposite order. So, if merge_4 took rows r and
   r + 1, and merge_1 those four apart, lane r holds the sum of row r nevertheless. */
INLINE eight eight_reordered(eight a) {
    return (eight){{a.lane[0], a.lane[4], a.lane[2], a.lane[6], a.lane[1], a.lane[5], a.lane[3], a.lane[7]}};
}

#endif
