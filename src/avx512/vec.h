/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary, AVX-512 (F, BW, DQ, VL); src/scalar/vec.h says what each operation does.
 */
#ifndef DYNNORM_VEC_H
#define DYNNORM_VEC_H

#include "../inlining.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef DYNNORM_HAVE_SLEEF
#include <sleef.h>
#endif

enum { LANES = 16, VEC_REGISTERS = 32 };
typedef __m512 vec;
typedef struct {
    __m512d low;
    __m512d high;
} wide;

INLINE __m512i as_integers(vec a) {
    return _mm512_castps_si512(a);
}

INLINE vec as_floats(__m512i a) {
    return _mm512_castsi512_ps(a);
}

/* The mask of the first n lanes. gcc takes the two conditions for a minimum and a maximum only if they are apart;
   otherwise they are branches, and it makes the same mask again wherever it is used. */
INLINE __mmask16 first_lanes(ptrdiff_t n) {
    const ptrdiff_t at_most_lanes = n < LANES ? n : LANES;
    const ptrdiff_t count = at_most_lanes < 0 ? 0 : at_most_lanes;
    return (__mmask16)((1u << count) - 1);
}

/* ---- Memory ---- */

INLINE vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}

INLINE vec vec_load_n(const float *p, ptrdiff_t n, vec fill) {
    return _mm512_mask_loadu_ps(fill, first_lanes(n), p);
}

INLINE vec vec_in_register(vec a) {
    __asm__("" : "+v"(a));
    return a;
}

INLINE void vec_store(float *p, vec a) {
    _mm512_storeu_ps(p, a);
}

INLINE void vec_store_n(float *p, vec a, ptrdiff_t n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), a);
}

enum { VEC_CAN_STREAM = 1 };

INLINE void vec_stream(float *p, vec a) {
    _mm512_stream_ps(p, a);
}

INLINE void vec_end_streaming(void) {
    _mm_sfence();
}

INLINE vec vec_set(float a) {
    return _mm512_set1_ps(a);
}

/* ---- Arithmetic ---- */

INLINE vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}

/* By fma, which on a Zen 4 other units do than additions. */
INLINE vec vec_accumulate(vec sum, vec a) {
    vec one = _mm512_set1_ps(1);
    __asm__("" : "+v"(one));
    return _mm512_fmadd_ps(a, one, sum);
}

INLINE vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}

INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vec vec_fms(vec a, vec b, vec c) {
    return _mm512_fmsub_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c) {
    return _mm512_fnmadd_ps(a, b, c);
}

/* ---- Comparison, sign, bits ---- */

INLINE vec vec_min(vec a, vec b) {
    return _mm512_min_ps(a, b);
}

INLINE vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}

INLINE vec vec_abs(vec a) {
    return _mm512_abs_ps(a);
}

INLINE vec vec_with_sign(vec magnitude, vec sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

/* 2: the lesser of the absolute values, with the sign of the first operand */
INLINE vec vec_lesser_with_sign(vec magnitude, vec sign) {
    return _mm512_range_ps(sign, magnitude, 2);
}

INLINE int vec_any_nan(vec a) {
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
}

INLINE int vec_any_not_finite(vec a) {
    enum { QUIET_NAN = 0x01, INFINITE = 0x08, MINUS_INFINITE = 0x10, SIGNALING_NAN = 0x80 };
    return _mm512_fpclass_ps_mask(a, QUIET_NAN | INFINITE | MINUS_INFINITE | SIGNALING_NAN) != 0;
}

INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return as_floats(_mm512_sub_epi32(as_integers(a), _mm512_set1_epi32((int)low)));
}

INLINE vec vec_max_bits(vec a, vec b) {
    return as_floats(_mm512_max_epu32(as_integers(a), as_integers(b)));
}

/* 11: the greater of the absolute values */
INLINE vec vec_greater_magnitude(vec a, vec b) {
    return _mm512_range_ps(a, b, 11);
}

INLINE uint32_t vec_greatest_bits(vec a) {
    return _mm512_reduce_max_epu32(as_integers(a));
}

INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    return _mm512_cmpgt_epu32_mask(as_integers(a), _mm512_set1_epi32((int)limit)) != 0;
}

#define VEC_HAVE_CLASSES
INLINE int vec_any_subnormal(const vec *a, int count) {
    enum { SUBNORMAL = 0x20, EXPONENT_BITS = 0x7f800000 };
    __mmask16 others = 0xffff, found = 0; /* others than subnormal, and than 0: one mask tells of all vectors */
    EACH(others = _mm512_mask_test_epi32_mask(others, as_integers(a[k]), _mm512_set1_epi32(EXPONENT_BITS)));
    if (__builtin_expect(others == 0xffff, 1))
        return 0;
    EACH(found |= _mm512_fpclass_ps_mask(a[k], SUBNORMAL));
    return found != 0;
}

INLINE __mmask16 lanes_outside(vec a, uint32_t low, uint32_t span) {
    __m512i above = _mm512_sub_epi32(as_integers(a), _mm512_set1_epi32((int)low));
    return _mm512_cmpgt_epu32_mask(above, _mm512_set1_epi32((int)span));
}

INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return _mm512_mask_blend_ps(lanes_outside(a, low, span), y, x);
}

INLINE vec vec_join(ptrdiff_t n, vec a, vec b) {
    return _mm512_mask_blend_ps(first_lanes(n), b, a);
}

INLINE vec vec_power_of_two(vec a) {
    return as_floats(_mm512_slli_epi32(as_integers(a), 23));
}

/* vec_lookup ignores the bits above. */
INLINE vec vec_place(vec a) {
    return as_floats(_mm512_srli_epi32(as_integers(a), 20));
}

#define VEC_HAVE_FAST_LOOKUP
INLINE vec vec_lookup(const float table[32], vec place) {
    return _mm512_permutex2var_ps(_mm512_load_ps(table), as_integers(place), _mm512_load_ps(table + 16));
}

INLINE vec vec_rsqrt_guess(vec a, uint32_t magic) {
    return as_floats(_mm512_sub_epi32(_mm512_set1_epi32((int)magic), _mm512_srli_epi32(as_integers(a), 1)));
}

/* ---- Estimate ---- */

enum { VEC_RSQRT_ESTIMATE_BITS = 14 };

INLINE vec vec_rsqrt_estimate(vec a) {
    return _mm512_rsqrt14_ps(a);
}

/* ---- SLEEF ---- */

#ifdef DYNNORM_HAVE_SLEEF
#define VEC_HAVE_SLEEF
INLINE vec vec_tanh_sleef(vec a) {
    return Sleef_finz_tanhf16_u10avx512f(a);
}
#endif

/* ---- Doubles ---- */

INLINE wide wide_set(double a) {
    return (wide){_mm512_set1_pd(a), _mm512_set1_pd(a)};
}

INLINE wide wide_load(const double *p) {
    return (wide){_mm512_loadu_pd(p), _mm512_loadu_pd(p + 8)};
}

INLINE void wides_in_registers(wide *a, wide *b) {
    (void)a, (void)b;
}

INLINE void wide_store(double *p, wide a) {
    _mm512_storeu_pd(p, a.low);
    _mm512_storeu_pd(p + 8, a.high);
}

INLINE wide vec_widen(vec a) {
    return (wide){_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1))};
}

INLINE wide wide_load_floats(const float *p) {
    return (wide){_mm512_cvtps_pd(_mm256_loadu_ps(p)), _mm512_cvtps_pd(_mm256_loadu_ps(p + 8))};
}

INLINE vec wide_narrow(wide a) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.low)), _mm512_cvtpd_ps(a.high), 1);
}

INLINE wide wide_add(wide a, wide b) {
    return (wide){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}

/* By fma: on Zen 4 additions share their units with conversions. */
INLINE wide wide_accumulate(wide sum, wide a) {
    __m512d one = _mm512_set1_pd(1);
    __asm__("" : "+v"(one));
    return (wide){_mm512_fmadd_pd(a.low, one, sum.low), _mm512_fmadd_pd(a.high, one, sum.high)};
}

INLINE wide wide_sub(wide a, wide b) {
    return (wide){_mm512_sub_pd(a.low, b.low), _mm512_sub_pd(a.high, b.high)};
}

INLINE wide wide_mul(wide a, wide b) {
    return (wide){_mm512_mul_pd(a.low, b.low), _mm512_mul_pd(a.high, b.high)};
}

INLINE wide wide_fma(wide a, wide b, wide c) {
    return (wide){_mm512_fmadd_pd(a.low, b.low, c.low), _mm512_fmadd_pd(a.high, b.high, c.high)};
}

INLINE wide wide_add_product(wide a, wide b, wide c) {
    return wide_fma(a, b, c);
}

/* See rows/subnormals.h. Of two neighbours one is odd. Where the sum is exact both are the same, but for the sign of 0,
 * and 0 is even. */
#define VEC_SUBNORMALS_ARE_SLOW
INLINE __m512d add_to_odd(__m512d a, __m512d b) {
    const __m512d below = _mm512_add_round_pd(a, b, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC),
                  above = _mm512_add_round_pd(a, b, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const __mmask8 is_odd = _mm512_test_epi64_mask(_mm512_castpd_si512(below), _mm512_set1_epi64(1));
    return _mm512_mask_mov_pd(above, is_odd, below);
}

INLINE wide wide_add_to_odd(wide a, wide b) {
    return (wide){add_to_odd(a.low, b.low), add_to_odd(a.high, b.high)};
}

/* ---- Eight doubles ---- */

typedef __m512d eight;

INLINE eight eight_set(double a) {
    return _mm512_set1_pd(a);
}

INLINE eight eight_of_two(double first, double second, double others) {
    return _mm512_set_pd(others, others, others, others, others, others, second, first);
}

INLINE eight eight_load(const double *p) {
    return _mm512_loadu_pd(p);
}

INLINE void eight_store(double *p, eight a) {
    _mm512_storeu_pd(p, a);
}

INLINE eight eight_load_floats(const float *p) {
    return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}

INLINE void eight_store_floats(float *p, eight a) {
    _mm256_storeu_ps(p, _mm512_cvtpd_ps(a));
}

INLINE eight eight_abs(eight a) {
    return _mm512_abs_pd(a);
}

INLINE eight eight_add(eight a, eight b) {
    return _mm512_add_pd(a, b);
}

INLINE eight eight_sub(eight a, eight b) {
    return _mm512_sub_pd(a, b);
}

INLINE eight eight_mul(eight a, eight b) {
    return _mm512_mul_pd(a, b);
}

INLINE eight eight_div(eight a, eight b) {
    return _mm512_div_pd(a, b);
}

INLINE eight eight_sqrt(eight a) {
    return _mm512_sqrt_pd(a);
}

INLINE unsigned eight_at_most(eight a, eight b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ);
}

INLINE eight eight_fma(eight a, eight b, eight c) {
    return _mm512_fmadd_pd(a, b, c);
}

/* ---- Eight floats ----
 *
 * What rows/group_vectors.h needs, in the order of the operations of whole vectors. */

#define VEC_HAVE_HALVES
typedef __m256 half_vec;

INLINE __m256i half_vec_as_integers(half_vec a) {
    return _mm256_castps_si256(a);
}

INLINE half_vec half_vec_load_n(const float *p, ptrdiff_t n, half_vec fill) {
    return _mm256_mask_loadu_ps(fill, (__mmask8)first_lanes(n), p);
}

INLINE void half_vec_store(float *p, half_vec a) {
    _mm256_storeu_ps(p, a);
}

INLINE half_vec half_vec_set(float a) {
    return _mm256_set1_ps(a);
}

INLINE half_vec half_vec_mul(half_vec a, half_vec b) {
    return _mm256_mul_ps(a, b);
}

INLINE half_vec half_vec_abs(half_vec a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

INLINE half_vec half_vec_bits_minus(half_vec a, uint32_t low) {
    return _mm256_castsi256_ps(_mm256_sub_epi32(half_vec_as_integers(a), _mm256_set1_epi32((int)low)));
}

INLINE half_vec half_vec_max_bits(half_vec a, half_vec b) {
    return _mm256_castsi256_ps(_mm256_max_epu32(half_vec_as_integers(a), half_vec_as_integers(b)));
}

INLINE int half_vec_any_bits_above(half_vec a, uint32_t limit) {
    return _mm256_cmpgt_epu32_mask(half_vec_as_integers(a), _mm256_set1_epi32((int)limit)) != 0;
}

INLINE half_vec half_vec_select_outside(half_vec a, uint32_t low, uint32_t span, half_vec x, half_vec y) {
    const __m256i above = half_vec_as_integers(half_vec_bits_minus(a, low));
    return _mm256_mask_blend_ps(_mm256_cmpgt_epu32_mask(above, _mm256_set1_epi32((int)span)), y, x);
}

INLINE eight half_vec_widen(half_vec a) {
    return _mm512_cvtps_pd(a);
}

INLINE half_vec eight_narrow(eight a) {
    return _mm512_cvtpd_ps(a);
}

/* ---- Sums of sixteen lanes and of eight ---- */

/* The sums of lanes k and k + 8. */
INLINE __m256 halves_added(vec a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}

INLINE eight vec_fold(const vec lanes[16 / LANES]) {
    return _mm512_cvtps_pd(halves_added(lanes[0]));
}

INLINE void vec_store_folded(float p[8], const vec lanes[16 / LANES]) {
    _mm256_storeu_ps(p, halves_added(lanes[0]));
}

INLINE eight wide_fold(const wide lanes[16 / LANES]) {
    return _mm512_add_pd(lanes[0].low, lanes[0].high);
}

INLINE double eight_sum(eight a) {
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* Each takes lanes of a where the bit of the lane's number is 0, and lanes of b where it is 1. */
INLINE eight merge_4(eight a, eight b) {
    return _mm512_add_pd(_mm512_mask_blend_pd(0xf0, a, b), _mm512_shuffle_f64x2(a, b, 0x4e));
}

INLINE eight merge_2(eight a, eight b) {
    eight crossed = _mm512_permutex_pd(_mm512_mask_blend_pd(0x33, a, b), 0x4e);
    return _mm512_add_pd(_mm512_mask_blend_pd(0xcc, a, b), crossed);
}

INLINE eight merge_1(eight a, eight b) {
    return _mm512_add_pd(_mm512_mask_blend_pd(0xaa, a, b), _mm512_shuffle_pd(a, b, 0x55));
}

INLINE eight eight_reordered(eight a) {
    const __m128i lanes = _mm_cvtsi64_si128(0x0703050106020400); /* from the last byte on */
    return _mm512_permutexvar_pd(_mm512_cvtepu8_epi64(lanes), a);
}

#endif
