/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary, AVX2 with FMA; src/scalar/vec.h says what each operation does.
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

enum { LANES = 8, VEC_REGISTERS = 16 };
typedef __m256 vec;
typedef struct {
    __m256d low;
    __m256d high;
} wide;

INLINE __m256i as_integers(vec a) {
    return _mm256_castps_si256(a);
}

INLINE vec as_floats(__m256i a) {
    return _mm256_castsi256_ps(a);
}

/* A mask with all bits of the first n lanes set. */
INLINE __m256i first_lanes(ptrdiff_t n) {
    int count = n < LANES ? (int)n : LANES;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* ---- Memory ---- */

INLINE vec vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}

INLINE vec vec_load_n(const float *p, ptrdiff_t n, vec fill) {
    __m256i mask = first_lanes(n);
    return _mm256_blendv_ps(fill, _mm256_maskload_ps(p, mask), as_floats(mask));
}

INLINE vec vec_in_register(vec a) {
    __asm__("" : "+x"(a));
    return a;
}

INLINE void vec_store(float *p, vec a) {
    _mm256_storeu_ps(p, a);
}

/* Piece by piece, since a Zen 3 takes ten cycles for a store with a mask; and by a call, since it takes more code. */
OUTLINED void vec_store_n(float *p, vec a, ptrdiff_t n) {
    __m128 left = _mm256_castps256_ps128(a);
    if (n >= LANES) {
        vec_store(p, a);
        return;
    }
    if (n <= 0)
        return;
    if (n & 4) {
        _mm_storeu_ps(p, left);
        left = _mm256_extractf128_ps(a, 1);
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(p + (n & 4)), left);
        left = _mm_movehl_ps(left, left);
    }
    if (n & 1)
        _mm_store_ss(p + n - 1, left);
}

enum { VEC_CAN_STREAM = 1 };

INLINE void vec_stream(float *p, vec a) {
    _mm256_stream_ps(p, a);
}

INLINE void vec_end_streaming(void) {
    _mm_sfence();
}

INLINE vec vec_set(float a) {
    return _mm256_set1_ps(a);
}

/* ---- Arithmetic ---- */

INLINE vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}

INLINE vec vec_accumulate(vec sum, vec a) {
    return vec_add(sum, a);
}

INLINE vec vec_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}

INLINE vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}

INLINE vec vec_div(vec a, vec b) {
    return _mm256_div_ps(a, b);
}

INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vec vec_fms(vec a, vec b, vec c) {
    return _mm256_fmsub_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c) {
    return _mm256_fnmadd_ps(a, b, c);
}

/* ---- Comparison, sign, bits ---- */

INLINE vec vec_min(vec a, vec b) {
    return _mm256_min_ps(a, b);
}

INLINE vec vec_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}

INLINE vec vec_abs(vec a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

INLINE vec vec_with_sign(vec magnitude, vec sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

INLINE vec vec_lesser_with_sign(vec magnitude, vec sign) {
    return vec_with_sign(_mm256_min_ps(vec_abs(sign), magnitude), sign);
}

INLINE int vec_any_nan(vec a) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}

INLINE int vec_any_not_finite(vec a) {
    return vec_any_nan(vec_sub(a, a));
}

INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return as_floats(_mm256_sub_epi32(as_integers(a), _mm256_set1_epi32((int)low)));
}

INLINE vec vec_max_bits(vec a, vec b) {
    return as_floats(_mm256_max_epu32(as_integers(a), as_integers(b)));
}

INLINE vec vec_greater_magnitude(vec a, vec b) {
    return vec_max_bits(a, vec_abs(b));
}

INLINE uint32_t vec_greatest_bits(vec a) {
    const __m256i bits = as_integers(a);
    __m128i greatest = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    greatest = _mm_max_epu32(greatest, _mm_shuffle_epi32(greatest, _MM_SHUFFLE(1, 0, 3, 2)));
    greatest = _mm_max_epu32(greatest, _mm_shuffle_epi32(greatest, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(greatest);
}

/* AVX2 compares only signed integers, so both sides are shifted by 2^31. */
INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    const uint32_t shift = 0x80000000;
    __m256i shifted = _mm256_xor_si256(as_integers(a), _mm256_set1_epi32((int)shift));
    return _mm256_movemask_ps(as_floats(_mm256_cmpgt_epi32(shifted, _mm256_set1_epi32((int)(limit ^ shift))))) != 0;
}

/* Both sides are shifted by 2^31 for the same reason. */
INLINE vec lanes_outside(vec a, uint32_t low, uint32_t span) {
    const uint32_t shift = 0x80000000;
    __m256i above = _mm256_sub_epi32(as_integers(a), _mm256_set1_epi32((int)(low + shift)));
    return as_floats(_mm256_cmpgt_epi32(above, _mm256_set1_epi32((int)(span + shift))));
}

INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return _mm256_blendv_ps(y, x, lanes_outside(a, low, span));
}

INLINE vec vec_join(ptrdiff_t n, vec a, vec b) {
    return _mm256_blendv_ps(b, a, as_floats(first_lanes(n)));
}

INLINE vec vec_power_of_two(vec a) {
    return as_floats(_mm256_slli_epi32(as_integers(a), 23));
}

INLINE vec vec_place(vec a) {
    return as_floats(_mm256_and_si256(_mm256_srli_epi32(as_integers(a), 20), _mm256_set1_epi32(31)));
}

INLINE vec vec_lookup(const float table[32], vec place) {
    return _mm256_i32gather_ps(table, as_integers(place), sizeof(float));
}

INLINE vec vec_rsqrt_guess(vec a, uint32_t magic) {
    return as_floats(_mm256_sub_epi32(_mm256_set1_epi32((int)magic), _mm256_srli_epi32(as_integers(a), 1)));
}

/* ---- Estimate ---- */

enum { VEC_RSQRT_ESTIMATE_BITS = 11 };

INLINE vec vec_rsqrt_estimate(vec a) {
    return _mm256_rsqrt_ps(a);
}

/* ---- SLEEF ---- */

#ifdef DYNNORM_HAVE_SLEEF
#define VEC_HAVE_SLEEF
INLINE vec vec_tanh_sleef(vec a) {
    return Sleef_finz_tanhf8_u10avx2(a);
}
#endif

/* ---- Doubles ---- */

INLINE wide wide_set(double a) {
    return (wide){_mm256_set1_pd(a), _mm256_set1_pd(a)};
}

INLINE wide wide_load(const double *p) {
    return (wide){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)};
}

INLINE void wides_in_registers(wide *a, wide *b) {
    __asm__("" : "+x"(a->low), "+x"(a->high), "+x"(b->low), "+x"(b->high));
}

INLINE void wide_store(double *p, wide a) {
    _mm256_storeu_pd(p, a.low);
    _mm256_storeu_pd(p + 4, a.high);
}

INLINE wide vec_widen(vec a) {
    return (wide){_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))};
}

INLINE wide wide_load_floats(const float *p) {
    return (wide){_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4))};
}

INLINE vec wide_narrow(wide a) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.low)), _mm256_cvtpd_ps(a.high), 1);
}

INLINE wide wide_add(wide a, wide b) {
    return (wide){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}

/* By fma: on Zen 4 additions share their units with conversions. */
INLINE wide wide_accumulate(wide sum, wide a) {
    __m256d one = _mm256_set1_pd(1);
    __asm__("" : "+x"(one));
    return (wide){_mm256_fmadd_pd(a.low, one, sum.low), _mm256_fmadd_pd(a.high, one, sum.high)};
}

INLINE wide wide_sub(wide a, wide b) {
    return (wide){_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)};
}

INLINE wide wide_mul(wide a, wide b) {
    return (wide){_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
}

INLINE wide wide_fma(wide a, wide b, wide c) {
    return (wide){_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
}

INLINE wide wide_add_product(wide a, wide b, wide c) {
    return wide_fma(a, b, c);
}

/* See rows/subnormals.h. The sum is rounded to nearest, and what it lacks is found (Knuth). If that is not 0, the
 * neighbours are the sum and the next one on that side; of these the one nearer to 0 becomes odd by setting its last
 * bit. */
#define VEC_SUBNORMALS_ARE_SLOW
INLINE __m256d add_to_odd(__m256d a, __m256d b) {
    const __m256d sum = _mm256_add_pd(a, b), of_b = _mm256_sub_pd(sum, a), of_a = _mm256_sub_pd(sum, of_b);
    const __m256d lack = _mm256_add_pd(_mm256_sub_pd(a, of_a), _mm256_sub_pd(b, of_b));
    const __m256i bits = _mm256_castpd_si256(sum);
    const __m256i is_inexact = _mm256_castpd_si256(_mm256_cmp_pd(lack, _mm256_setzero_pd(), _CMP_NEQ_OQ));
    const __m256i is_less = _mm256_srli_epi64(_mm256_xor_si256(bits, _mm256_castpd_si256(lack)), 63);
    const __m256i nearer = _mm256_sub_epi64(bits, _mm256_and_si256(is_less, is_inexact));
    return _mm256_castsi256_pd(_mm256_or_si256(nearer, _mm256_srli_epi64(is_inexact, 63)));
}

INLINE wide wide_add_to_odd(wide a, wide b) {
    return (wide){add_to_odd(a.low, b.low), add_to_odd(a.high, b.high)};
}

/* ---- Eight doubles ---- */

typedef wide eight;

INLINE eight eight_set(double a) {
    return wide_set(a);
}

INLINE eight eight_of_two(double first, double second, double others) {
    return (eight){_mm256_set_pd(others, others, second, first), _mm256_set1_pd(others)};
}

INLINE eight eight_load(const double *p) {
    return wide_load(p);
}

INLINE void eight_store(double *p, eight a) {
    wide_store(p, a);
}

INLINE eight eight_load_floats(const float *p) {
    return wide_load_floats(p);
}

INLINE void eight_store_floats(float *p, eight a) {
    vec_store(p, wide_narrow(a));
}

INLINE eight eight_abs(eight a) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    return (eight){_mm256_andnot_pd(sign, a.low), _mm256_andnot_pd(sign, a.high)};
}

INLINE eight eight_add(eight a, eight b) {
    return wide_add(a, b);
}

INLINE eight eight_sub(eight a, eight b) {
    return wide_sub(a, b);
}

INLINE eight eight_mul(eight a, eight b) {
    return wide_mul(a, b);
}

INLINE eight eight_div(eight a, eight b) {
    return (eight){_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)};
}

INLINE eight eight_sqrt(eight a) {
    return (eight){_mm256_sqrt_pd(a.low), _mm256_sqrt_pd(a.high)};
}

INLINE unsigned eight_at_most(eight a, eight b) {
    int low = _mm256_movemask_pd(_mm256_cmp_pd(a.low, b.low, _CMP_LE_OQ));
    int high = _mm256_movemask_pd(_mm256_cmp_pd(a.high, b.high, _CMP_LE_OQ));
    return (unsigned)(low | high << 4);
}

INLINE eight vec_fold(const vec lanes[16 / LANES]) {
    return vec_widen(vec_add(lanes[0], lanes[1]));
}

INLINE void vec_store_folded(float p[8], const vec lanes[16 / LANES]) {
    vec_store(p, vec_add(lanes[0], lanes[1]));
}

INLINE eight wide_fold(const wide lanes[16 / LANES]) {
    return wide_add(lanes[0], lanes[1]);
}

INLINE double eight_sum(eight a) {
    __m256d four = _mm256_add_pd(a.low, a.high);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

INLINE eight merge_4(eight a, eight b) {
    return (eight){_mm256_add_pd(a.low, a.high), _mm256_add_pd(b.low, b.high)};
}

/* [a0 + a2, a1 + a3, b0 + b2, b1 + b3] */
INLINE __m256d merge_halves_2(__m256d a, __m256d b) {
    return _mm256_add_pd(_mm256_blend_pd(a, b, 0xc), _mm256_permute2f128_pd(a, b, 0x21));
}

INLINE eight merge_2(eight a, eight b) {
    return (eight){merge_halves_2(a.low, b.low), merge_halves_2(a.high, b.high)};
}

/* [a0 + a1, b0 + b1, a2 + a3, b2 + b3] */
INLINE __m256d merge_halves_1(__m256d a, __m256d b) {
    return _mm256_add_pd(_mm256_blend_pd(a, b, 0xa), _mm256_shuffle_pd(a, b, 5));
}

INLINE eight merge_1(eight a, eight b) {
    return (eight){merge_halves_1(a.low, b.low), merge_halves_1(a.high, b.high)};
}

INLINE eight eight_reordered(eight a) {
    return (eight){_mm256_unpacklo_pd(a.low, a.high), _mm256_unpackhi_pd(a.low, a.high)};
}

#endif
