/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors of 16-bit numbers, and their conversion, NEON of AArch64; src/scalar/convert.h says what each function does.
 */
#ifndef DYNNORM_CONVERT_H
#define DYNNORM_CONVERT_H

#include "vec.h"

typedef uint16x8_t halves;

INLINE halves halves_load(const void *p) {
    halves a;
    memcpy(&a, p, sizeof a);
    return a;
}

INLINE uint16x4_t load_four(const void *p) {
    uint16x4_t a;
    memcpy(&a, p, sizeof a);
    return a;
}

/* From the last to the first: each part moves those up that come after it. */
INLINE halves halves_load_n(const void *p, ptrdiff_t n) {
    const unsigned char *from = p;
    uint32x4_t a = vdupq_n_u32(0);
    if (n & 1) {
        uint16_t one;
        memcpy(&one, from + 2 * (n & 6), sizeof one);
        a = vsetq_lane_u32(one, a, 0);
    }
    if (n & 2) {
        uint32_t two;
        memcpy(&two, from + 2 * (n & 4), sizeof two);
        a = vsetq_lane_u32(two, vextq_u32(a, a, 3), 0);
    }
    if (n & 4)
        a = vcombine_u32(vreinterpret_u32_u16(load_four(from)), vget_low_u32(a));
    return vreinterpretq_u16_u32(a);
}

INLINE void halves_store(void *p, halves a) {
    memcpy(p, &a, sizeof a);
}

INLINE void halves_store_n(void *p, halves a, ptrdiff_t n) {
    unsigned char *to = p;
    if (n & 4) {
        memcpy(to, &a, 8);
        to += 8;
        a = vextq_u16(a, a, 4);
    }
    if (n & 2) {
        memcpy(to, &a, 4);
        to += 4;
        a = vextq_u16(a, a, 2);
    }
    if (n & 1)
        memcpy(to, &a, 2);
}

INLINE void halves_stream(void *p, halves a) {
    halves_store(p, a);
}

INLINE vec vec_of_bf16(const void *p) {
    return as_floats(vshll_n_u16(load_four(p), 16));
}

INLINE void vecs_of_bf16(vec *low, vec *high, halves a) {
    *low = as_floats(vshll_n_u16(vget_low_u16(a), 16));
    *high = as_floats(vshll_high_n_u16(a, 16));
}

INLINE uint32x4_t round_to_upper_half(vec a) {
    const uint32x4_t bits = as_integers(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}

INLINE uint32x4_t keep_nan(uint32x4_t rounded, vec a) {
    return vbslq_u32(vceqq_f32(a, a), rounded, vorrq_u32(as_integers(a), vdupq_n_u32(0x400000)));
}

INLINE halves upper_halves_of(uint32x4_t low, uint32x4_t high) {
    return vshrn_high_n_u32(vshrn_n_u32(low, 16), high, 16);
}

INLINE halves bf16_of_vecs(vec low, vec high) {
    return upper_halves_of(keep_nan(round_to_upper_half(low), low), keep_nan(round_to_upper_half(high), high));
}

INLINE halves bf16_of_numbers(vec low, vec high) {
    return upper_halves_of(round_to_upper_half(low), round_to_upper_half(high));
}

INLINE vec vec_of_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(load_four(p)));
}

INLINE void vecs_of_f16(vec *low, vec *high, halves a) {
    *low = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(a)));
    *high = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(a)));
}

INLINE halves f16_of_vecs(vec low, vec high) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
}

INLINE void f16_write(void *p, vec low, vec high, int past_caches) {
    (void)past_caches;
    halves_store(p, f16_of_vecs(low, high));
}

INLINE vec vec_rounded_to_bf16(vec a) {
    return as_floats(vandq_u32(round_to_upper_half(a), vdupq_n_u32(0xffff0000)));
}

INLINE vec vec_rounded_to_f16(vec a) {
    return vcvt_f32_f16(vcvt_f16_f32(a));
}

/* ---- By pairs, which would not be faster here ---- */

INLINE void pairs_of_vecs(vec *even, vec *odd, vec low, vec high) {
    *even = low;
    *odd = high;
}

INLINE void vecs_of_pairs(vec *low, vec *high, vec even, vec odd) {
    *low = even;
    *high = odd;
}

INLINE void pairs_of_bf16(vec *even, vec *odd, halves a) {
    vecs_of_bf16(even, odd, a);
}

INLINE halves bf16_of_pairs(vec even, vec odd) {
    return bf16_of_numbers(even, odd);
}

INLINE void store_low_bytes(void *p, vec a) {
    const uint16x4_t shorts = vmovn_u32(as_integers(a));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(shorts, shorts));
    memcpy(p, &bytes, LANES);
}

INLINE void store_low_bytes_of_four(void *p, const vec a[4]) {
    const uint16x8_t first = vcombine_u16(vmovn_u32(as_integers(a[0])), vmovn_u32(as_integers(a[1])));
    const uint16x8_t second = vcombine_u16(vmovn_u32(as_integers(a[2])), vmovn_u32(as_integers(a[3])));
    vst1q_u8(p, vcombine_u8(vmovn_u16(first), vmovn_u16(second)));
}

#endif
