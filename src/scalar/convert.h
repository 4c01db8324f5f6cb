/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors of 16-bit numbers, and their conversion, in plain C. Every instruction set has the same functions. Conversion
 * to 16 bits rounds to nearest, ties to even; it keeps denormals, makes an infinity of what is too large, and a NaN of
 * a NaN.
 *
 *   halves   2 LANES numbers of 16 bits, which two vectors make
 */
#ifndef DYNNORM_CONVERT_H
#define DYNNORM_CONVERT_H

#include "vec.h"

typedef struct {
    uint16_t low;
    uint16_t high;
} halves;

INLINE halves halves_load(const void *p) {
    halves a;
    memcpy(&a, p, sizeof a);
    return a;
}

/* The first n of them, 0 <= n < 2 LANES; the others are 0. */
INLINE halves halves_load_n(const void *p, ptrdiff_t n) {
    halves a = {0, 0};
    memcpy(&a, p, (size_t)n % 2 * 2);
    return a;
}

INLINE void halves_store(void *p, halves a) {
    memcpy(p, &a, sizeof a);
}

INLINE void halves_store_n(void *p, halves a, ptrdiff_t n) {
    memcpy(p, &a, (size_t)n % 2 * 2);
}

/* Past the caches, if vec_stream does that. p is then a multiple of the size of halves. */
INLINE void halves_stream(void *p, halves a) {
    halves_store(p, a);
}

/* LANES of them, from memory */
INLINE vec vec_of_bf16(const void *p) {
    uint16_t a;
    memcpy(&a, p, sizeof a);
    return float_of((uint32_t)a << 16);
}

INLINE void vecs_of_bf16(vec *low, vec *high, halves a) {
    *low = float_of((uint32_t)a.low << 16);
    *high = float_of((uint32_t)a.high << 16);
}

/* What is cut off is more than half of the last bit that stays, or half of it and that bit is odd: then the sum carries
 * into that bit. The upper bits of a NaN might all be 0, so a NaN is made a quiet one. */
INLINE uint16_t bf16_of(float a) {
    const uint32_t bits = bits_of(a);
    return (uint16_t)((a != a ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

INLINE halves bf16_of_vecs(vec low, vec high) {
    return (halves){bf16_of(low), bf16_of(high)};
}

/* The same of vectors without a NaN */
INLINE halves bf16_of_numbers(vec low, vec high) {
    return bf16_of_vecs(low, high);
}

/* The exponent of binary16 has a bias of 15, that of float one of 127. Multiplying by 2^112 makes up for this, also for
 * denormals. Its greatest exponent stands for infinities and NaNs. */
INLINE float float_of_f16(uint32_t a) {
    const uint32_t sign = (a & 0x8000u) << 16, magnitude = (a & 0x7fffu) << 13;
    if (magnitude < 31u << 23)
        return float_of(bits_of(float_of(magnitude) * 0x1p112f) | sign);
    return float_of(magnitude | INFINITY_BITS | (magnitude > 31u << 23 ? 0x400000 : 0) | sign);
}

INLINE vec vec_of_f16(const void *p) {
    uint16_t a;
    memcpy(&a, p, sizeof a);
    return float_of_f16(a);
}

INLINE void vecs_of_f16(vec *low, vec *high, halves a) {
    *low = float_of_f16(a.low);
    *high = float_of_f16(a.high);
}

INLINE uint16_t f16_of(float a) {
    const uint32_t sign = bits_of(a) >> 16 & 0x8000, magnitude = bits_of(a) & 0x7fffffff;
    uint32_t result;
    if (magnitude > INFINITY_BITS) { /* a NaN */
        result = 0x7e00 | (magnitude >> 13 & 0x3ff);
    } else if (magnitude < (uint32_t)(127 - 14) << 23) {
        /* A denormal, or 0. Floats from 1/2 to 1 lie as far apart as binary16's denormals, 2^-24. */
        result = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    } else {
        result = (magnitude - ((127u - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
        result = result < 0x7c00 ? result : 0x7c00;
    }
    return (uint16_t)(result | sign);
}

INLINE halves f16_of_vecs(vec low, vec high) {
    return (halves){f16_of(low), f16_of(high)};
}

/* Stores what f16_of_vecs makes of these; if past_caches is set, as halves_stream does. */
INLINE void f16_write(void *p, vec low, vec high, int past_caches) {
    (void)past_caches;
    halves_store(p, f16_of_vecs(low, high));
}

/* A vector, rounded to the type. The lower 16 bits of a NaN are 0 if that is bfloat16. */
INLINE vec vec_rounded_to_bf16(vec a) {
    return float_of((uint32_t)bf16_of(a) << 16);
}

INLINE vec vec_rounded_to_f16(vec a) {
    return float_of_f16(f16_of(a));
}

/* ---- By pairs: the vectors have the elements of even and those of odd numbers, or, where these are not faster, the
   first and the last ones ---- */

/* Vectors that are not by pairs become that. */
INLINE void pairs_of_vecs(vec *even, vec *odd, vec low, vec high) {
    *even = low;
    *odd = high;
}

/* The other way round. */
INLINE void vecs_of_pairs(vec *low, vec *high, vec even, vec odd) {
    *low = even;
    *high = odd;
}

INLINE void pairs_of_bf16(vec *even, vec *odd, halves a) {
    vecs_of_bf16(even, odd, a);
}

/* The lower 16 bits of a NaN are 0, as they are if it was made of one in bfloat16, or by the CPU. */
INLINE halves bf16_of_pairs(vec even, vec odd) {
    return bf16_of_numbers(even, odd);
}

/* The low 8 bits of each lane, LANES bytes */
INLINE void store_low_bytes(void *p, vec a) {
    unsigned char byte = (unsigned char)bits_of(a);
    memcpy(p, &byte, 1);
}

INLINE void store_low_bytes_of_four(void *p, const vec a[4]) {
    for (int k = 0; k < 4; k++)
        store_low_bytes((unsigned char *)p + k * LANES, a[k]);
}

#endif
