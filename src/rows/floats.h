/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Single floats of the caller's, at any address: no alignment is required of them.
 */
#ifndef DYNNORM_FLOATS_H
#define DYNNORM_FLOATS_H

#include "inlining.h"

#include <stdint.h>
#include <string.h>

/* The bits of the greatest finite float. Those of infinities and NaNs are greater. */
#define FLOAT_MAX_BITS 0x7f7fffffu
#define INFINITY_BITS 0x7f800000u

/* Those of 2^exponent. */
#define BITS_OF_POWER(exponent) ((uint32_t)(127 + (exponent)) << 23)

INLINE float load_float(const float *p) {
    float value;
    memcpy(&value, p, sizeof value);
    return value;
}

INLINE uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE void store_float(float *p, float value) {
    memcpy(p, &value, sizeof value);
}

#endif
