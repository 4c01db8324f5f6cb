/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Elements as plain loops convert them. With PLAIN_BF16 those of the plain norms are bfloat16, otherwise floats. There
 * are no loops of float16: gcc 12 converts _Float16 one by one, which says nothing about this library.
 */
#ifndef DYNNORM_BENCH_PLAIN_ELEMENTS_H
#define DYNNORM_BENCH_PLAIN_ELEMENTS_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bf16(uint16_t a) {
    const uint32_t bits = (uint32_t)a << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even; not for NaN, with which compilers need not reckon here. */
static inline uint16_t bf16_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* What is in the arrays, as the float that is computed with. */
#if defined PLAIN_BF16
typedef uint16_t element;
static inline float get(element a) {
    return float_of_bf16(a);
}
static inline element put(float value) {
    return bf16_of_float(value);
}
#else
typedef float element;
static inline float get(element a) {
    return a;
}
static inline element put(float value) {
    return value;
}
#endif

#endif
