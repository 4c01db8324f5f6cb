/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors of 16-bit numbers, and their conversion, AVX2 with F16C; src/scalar/convert.h says what each function does.
 */
#ifndef DYNNORM_CONVERT_H
#define DYNNORM_CONVERT_H

#include "vec.h"

typedef __m256i halves;

INLINE halves halves_load(const void *p) {
    return _mm256_loadu_si256(p);
}

/* Pairs of numbers are loaded and stored by a mask, and the last of an odd count by itself. */
INLINE halves halves_load_n(const void *p, ptrdiff_t n) {
    const __m256i pairs = _mm256_maskload_epi32(p, first_lanes(n / 2));
    const __m256i places = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint16_t last;
    if (n % 2 == 0)
        return pairs;
    memcpy(&last, (const char *)p + 2 * (n - 1), sizeof last);
    return _mm256_or_si256(pairs, _mm256_and_si256(_mm256_set1_epi16((short)last),
                                                   _mm256_cmpeq_epi16(places, _mm256_set1_epi16((short)(n - 1)))));
}

INLINE void halves_store(void *p, halves a) {
    _mm256_storeu_si256(p, a);
}

INLINE void halves_store_n(void *p, halves a, ptrdiff_t n) {
    _mm256_maskstore_epi32(p, first_lanes(n / 2), a);
    if (n % 2) {
        const __m256i last_pair = _mm256_permutevar8x32_epi32(a, _mm256_set1_epi32((int)(n / 2)));
        const uint16_t last = (uint16_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(last_pair));
        memcpy((char *)p + 2 * (n - 1), &last, sizeof last);
    }
}

INLINE void halves_stream(void *p, halves a) {
    _mm256_stream_si256(p, a);
}

/* Both halves of the register have all eight numbers, of which each takes its own. */
INLINE vec vec_of_bf16(const void *p) {
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    const __m256i places = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1, 8, 9, -1,
                                            -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
    return as_floats(_mm256_shuffle_epi8(all, places));
}

INLINE void vecs_of_bf16(vec *low, vec *high, halves a) {
    const __m256i zero = _mm256_setzero_si256(), crossed = _mm256_permute4x64_epi64(a, 0xd8);
    *low = as_floats(_mm256_unpacklo_epi16(zero, crossed));
    *high = as_floats(_mm256_unpackhi_epi16(zero, crossed));
}

/* The result is in the upper half of each lane. */
INLINE __m256i round_to_upper_half_in_place(vec a) {
    const __m256i bits = as_integers(a), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

/* The result is in the lower half. */
INLINE __m256i round_to_upper_half(vec a) {
    return _mm256_srli_epi32(round_to_upper_half_in_place(a), 16);
}

INLINE __m256i keep_nan(__m256i rounded, vec a) {
    const __m256i quiet = _mm256_srli_epi32(_mm256_or_si256(as_integers(a), _mm256_set1_epi32(0x400000)), 16);
    const vec is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    return as_integers(_mm256_blendv_ps(as_floats(rounded), as_floats(quiet), is_nan));
}

INLINE halves halves_of_integers(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

INLINE halves bf16_of_numbers(vec low, vec high) {
    return halves_of_integers(round_to_upper_half(low), round_to_upper_half(high));
}

INLINE halves bf16_of_vecs(vec low, vec high) {
    __m256i a = round_to_upper_half(low), b = round_to_upper_half(high);
    if (_mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_UNORD_Q))) {
        a = keep_nan(a, low);
        b = keep_nan(b, high);
    }
    return halves_of_integers(a, b);
}

INLINE vec vec_of_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE void vecs_of_f16(vec *low, vec *high, halves a) {
    *low = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
    *high = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
}

INLINE halves f16_of_vecs(vec low, vec high) {
    const __m128i a = _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i b = _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_set_m128i(b, a);
}

/* Two stores take less time than to bring both into one register. */
INLINE void f16_write(void *p, vec low, vec high, int past_caches) {
    const __m128i first = _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i second = _mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m128i *const eights = p;
    if (past_caches) {
        _mm_stream_si128(eights, first);
        _mm_stream_si128(eights + 1, second);
    } else {
        _mm_storeu_si128(eights, first);
        _mm_storeu_si128(eights + 1, second);
    }
}

INLINE vec vec_rounded_to_bf16(vec a) {
    return as_floats(_mm256_and_si256(round_to_upper_half_in_place(a), _mm256_set1_epi32((int)0xffff0000)));
}

INLINE vec vec_rounded_to_f16(vec a) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* ---- By pairs ---- */

INLINE void pairs_of_vecs(vec *even, vec *odd, vec low, vec high) {
    const __m256d a = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    const __m256d b = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(a, 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(b, 0xd8));
}

INLINE void vecs_of_pairs(vec *low, vec *high, vec even, vec odd) {
    const vec a = _mm256_unpacklo_ps(even, odd), b = _mm256_unpackhi_ps(even, odd);
    *low = _mm256_permute2f128_ps(a, b, 0x20);
    *high = _mm256_permute2f128_ps(a, b, 0x31);
}

INLINE void pairs_of_bf16(vec *even, vec *odd, halves a) {
    *even = as_floats(_mm256_slli_epi32(a, 16));
    *odd = as_floats(_mm256_and_si256(a, _mm256_set1_epi32((int)0xffff0000)));
}

INLINE halves bf16_of_pairs(vec even, vec odd) {
    return _mm256_blend_epi16(round_to_upper_half(even), round_to_upper_half_in_place(odd), 0xaa);
}

INLINE void store_low_bytes(void *p, vec a) {
    const __m256i low = _mm256_and_si256(as_integers(a), _mm256_set1_epi32(255));
    const __m128i shorts = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64(p, _mm_packus_epi16(shorts, shorts));
}

INLINE void store_low_bytes_of_four(void *p, const vec a[4]) {
    const __m256i low = _mm256_set1_epi32(255);
    const __m256i first =
        _mm256_packus_epi32(_mm256_and_si256(as_integers(a[0]), low), _mm256_and_si256(as_integers(a[1]), low));
    const __m256i second =
        _mm256_packus_epi32(_mm256_and_si256(as_integers(a[2]), low), _mm256_and_si256(as_integers(a[3]), low));
    const __m256i all = _mm256_packus_epi16(first, second); /* in each half four bytes of each vector */
    const __m128i lower = _mm256_castsi256_si128(all), upper = _mm256_extracti128_si256(all, 1);
    _mm_storeu_si128(p, _mm_unpacklo_epi32(lower, upper));
    _mm_storeu_si128((__m128i *)p + 1, _mm_unpackhi_epi32(lower, upper));
}

#endif
