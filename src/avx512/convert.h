/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors of 16-bit numbers, and their conversion, AVX-512; src/scalar/convert.h says what each function does.
 */
#ifndef DYNNORM_CONVERT_H
#define DYNNORM_CONVERT_H

#include "vec.h"

typedef __m512i halves;

INLINE halves halves_load(const void *p) {
    return _mm512_loadu_si512(p);
}

INLINE __mmask32 first_halves(ptrdiff_t n) {
    return (__mmask32)((1ull << n) - 1);
}

INLINE halves halves_load_n(const void *p, ptrdiff_t n) {
    return _mm512_maskz_loadu_epi16(first_halves(n), p);
}

INLINE void halves_store(void *p, halves a) {
    _mm512_storeu_si512(p, a);
}

INLINE void halves_store_n(void *p, halves a, ptrdiff_t n) {
    _mm512_mask_storeu_epi16(p, first_halves(n), a);
}

INLINE void halves_stream(void *p, halves a) {
    _mm512_stream_si512((__m512i *)p, a);
}

/* The upper 16 bits of each lane come from these places, beginning at first; the lower ones are 0. */
INLINE vec upper_halves(halves a, int first) {
    const __m512i places =
        _mm512_setr_epi32(0 << 16, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 5 << 16, 6 << 16, 7 << 16, 8 << 16, 9 << 16,
                          10 << 16, 11 << 16, 12 << 16, 13 << 16, 14 << 16, 15 << 16);
    const __m512i from_first = _mm512_add_epi32(places, _mm512_set1_epi32(first << 16));
    return as_floats(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, from_first, a));
}

INLINE vec vec_of_bf16(const void *p) {
    return upper_halves(_mm512_castsi256_si512(_mm256_loadu_si256(p)), 0);
}

INLINE void vecs_of_bf16(vec *low, vec *high, halves a) {
    *low = upper_halves(a, 0);
    *high = upper_halves(a, LANES);
}

/* In integers, since the instruction for this takes denormals for 0. */
INLINE __m512i round_to_upper_half(vec a) {
    const __m512i bits = as_integers(a), even = _mm512_set1_epi32(0x7fff), odd = _mm512_set1_epi32(0x8000);
    const __mmask16 is_odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    return _mm512_add_epi32(bits, _mm512_mask_blend_epi32(is_odd, even, odd));
}

INLINE __m512i keep_nan(__m512i rounded, vec a) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, is_nan, as_integers(a), _mm512_set1_epi32(0x400000));
}

INLINE halves upper_halves_of(__m512i low, __m512i high) {
    const __m512i odd_places =
        _mm512_setr_epi32(0x30001, 0x70005, 0xb0009, 0xf000d, 0x130011, 0x170015, 0x1b0019, 0x1f001d, 0x230021,
                          0x270025, 0x2b0029, 0x2f002d, 0x330031, 0x370035, 0x3b0039, 0x3f003d);
    return _mm512_permutex2var_epi16(low, odd_places, high);
}

INLINE halves bf16_of_numbers(vec low, vec high) {
    return upper_halves_of(round_to_upper_half(low), round_to_upper_half(high));
}

INLINE halves bf16_of_vecs(vec low, vec high) {
    __m512i a = round_to_upper_half(low), b = round_to_upper_half(high);
    if (_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q)) {
        a = keep_nan(a, low);
        b = keep_nan(b, high);
    }
    return upper_halves_of(a, b);
}

INLINE vec vec_of_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE void vecs_of_f16(vec *low, vec *high, halves a) {
    *low = _mm512_cvtph_ps(_mm512_castsi512_si256(a));
    *high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1));
}

INLINE halves f16_of_vecs(vec low, vec high) {
    const __m256i a = _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i b = _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

/* Two stores take less time than to bring both into one register. */
INLINE void f16_write(void *p, vec low, vec high, int past_caches) {
    const __m256i first = _mm512_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i second = _mm512_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i *const sixteens = p;
    if (past_caches) {
        _mm256_stream_si256(sixteens, first);
        _mm256_stream_si256(sixteens + 1, second);
    } else {
        _mm256_storeu_si256(sixteens, first);
        _mm256_storeu_si256(sixteens + 1, second);
    }
}

INLINE vec vec_rounded_to_bf16(vec a) {
    return as_floats(_mm512_and_si512(round_to_upper_half(a), _mm512_set1_epi32((int)0xffff0000)));
}

INLINE vec vec_rounded_to_f16(vec a) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* ---- In double ---- */

#define HALVES_DEFINE_DOUBLES

/* Without a mask the instruction would be that of F16C, which this table does without. */
INLINE __m512d eight_of_f16(const void *p) {
    return _mm512_cvtps_pd(_mm256_maskz_cvtph_ps(0xff, _mm_loadu_si128(p)));
}

INLINE wide wide_of_f16(const void *p) {
    return (wide){eight_of_f16(p), eight_of_f16((const unsigned char *)p + 16)};
}

/* The elements with even numbers come first. */
INLINE wide wide_of_bf16(const void *p) {
    const __m256i a = _mm256_loadu_si256(p);
    const __m256i even = _mm256_slli_epi32(a, 16), odd = _mm256_and_si256(a, _mm256_set1_epi32((int)0xffff0000));
    return (wide){_mm512_cvtps_pd(_mm256_castsi256_ps(even)), _mm512_cvtps_pd(_mm256_castsi256_ps(odd))};
}

INLINE eight wide_fold_of_bf16(const wide lanes[16 / LANES]) {
    const __m512i places = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    const __m512d first = _mm512_shuffle_f64x2(lanes[0].low, lanes[0].high, 0x44);
    const __m512d second = _mm512_shuffle_f64x2(lanes[0].low, lanes[0].high, 0xee);
    return _mm512_permutexvar_pd(places, _mm512_add_pd(first, second));
}

/* ---- By pairs ---- */

INLINE void pairs_of_vecs(vec *even, vec *odd, vec low, vec high) {
    const __m512i places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(low, places, high);
    *odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(places, _mm512_set1_epi32(1)), high);
}

INLINE void vecs_of_pairs(vec *low, vec *high, vec even, vec odd) {
    const __m512i places = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = _mm512_permutex2var_ps(even, places, odd);
    *high = _mm512_permutex2var_ps(even, _mm512_add_epi32(places, _mm512_set1_epi32(8)), odd);
}

INLINE void pairs_of_bf16(vec *even, vec *odd, halves a) {
    *even = as_floats(_mm512_slli_epi32(a, 16));
    *odd = as_floats(_mm512_and_si512(a, _mm512_set1_epi32((int)0xffff0000)));
}

INLINE halves bf16_of_pairs(vec even, vec odd) {
    const __m512i low = _mm512_srli_epi32(round_to_upper_half(even), 16), high = round_to_upper_half(odd);
    return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi32((int)0xffff0000), 0xf8); /* low | high & mask */
}

/* ---- By the CPU's instruction for bfloat16, which takes denormals for 0 ---- */

/* Compilers since then come with assemblers that know it. They need not be allowed to use it themselves. */
#if defined __clang__ ? __clang_major__ >= 9 : __GNUC__ >= 10
#define HALVES_HAVE_BF16_INSTRUCTION

/* Whether one of these numbers is less than 2^-63, but not 0. */
INLINE int any_tiny_bf16(halves a, halves b) {
    const __m512i upper_exponent = _mm512_set1_epi16(0x6000), magnitude = _mm512_set1_epi16(0x7fff);
    const __mmask32 of_a = _mm512_testn_epi16_mask(a, upper_exponent),
                    of_b = _mm512_testn_epi16_mask(b, upper_exponent);
    if (__builtin_expect(_kortestz_mask32_u8(of_a, of_b), 1))
        return 0;
    return of_a != _mm512_testn_epi16_mask(a, magnitude) || of_b != _mm512_testn_epi16_mask(b, magnitude);
}

/* Of numbers that are not denormal. */
INLINE halves bf16_of_normal_vecs(vec low, vec high) {
    __m512i rounded;
    __asm__("vcvtne2ps2bf16 {%2, %1, %0|%0, %1, %2}" : "=v"(rounded) : "v"(high), "v"(low));
    return rounded;
}

INLINE halves bf16_of_normal_pairs(vec even, vec odd) {
    const __m512i places =
        _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
                          0x190009, 0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
    return _mm512_permutexvar_epi16(places, bf16_of_normal_vecs(even, odd));
}
#endif

INLINE void store_low_bytes(void *p, vec a) {
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(as_integers(a)));
}

INLINE void store_low_bytes_of_four(void *p, const vec a[4]) {
    for (int k = 0; k < 4; k++)
        store_low_bytes((unsigned char *)p + k * LANES, a[k]);
}

#endif
