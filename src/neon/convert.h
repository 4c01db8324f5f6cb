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

INLINE void halves_store(void *p, halves a) {
    memcpy(p, &a, sizeof a);
}

INLINE void halves_stream(void *p, halves a) {
    halves_store(p, a);
}

INLINE void vecs_of_bf16(vec *low, vec *high, halves a) {
    *low = as_floats(vshll_n_u16(vget_low_u16(a), 16));
    *high = as_floats(vshll_high_n_u16(a, 16));
}

INLINE uint32x4_t round_to_upper_half(vec a) {
    const uint32x4_t bits = as_integers(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vbslq_u32(vceqq_f32(a, a), rounded, quiet);
}

INLINE halves bf16_of_vecs(vec low, vec high) {
    return vshrn_high_n_u32(vshrn_n_u32(round_to_upper_half(low), 16), round_to_upper_half(high), 16);
}

INLINE void vecs_of_f16(vec *low, vec *high, halves a) {
    *low = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(a)));
    *high = vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(a)));
}

INLINE halves f16_of_vecs(vec low, vec high) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high));
}

INLINE void store_low_bytes(void *p, vec a) {
    const uint16x4_t shorts = vmovn_u32(as_integers(a));
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(shorts, shorts));
    memcpy(p, &bytes, LANES);
}

#endif
