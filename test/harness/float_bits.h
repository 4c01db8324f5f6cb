/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A number as its bits.
 */
#ifndef DYNNORM_TEST_FLOAT_BITS_H
#define DYNNORM_TEST_FLOAT_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of_bits(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
