/* SPDX-License-Identifier: BSD-2-Clause */
#include "elements.h"
#include "float_bits.h"

#include <math.h>
#include <string.h>

struct type {
    const char *name;
    int digits;
    int least_exponent; /* of a normal number */
    int greatest_exponent;
};

static const struct type types[] = {
#define ELEMENT_TYPE(name, NAME, bytes, digits)                                                                        \
    {#name, digits, DYNNORM_##NAME == DYNNORM_F16 ? -14 : -126, DYNNORM_##NAME == DYNNORM_F16 ? 15 : 127},
#include "element_types.def"
};

const char *element_name(dynnorm_type type) {
    return type == DYNNORM_I8 ? "i8" : types[type].name;
}

/* For a normal double. Tests convert so many elements that ldexp and ilogb would take half of their time. */
static double power_of_two(int exponent) {
    return double_of_bits((uint64_t)(exponent + 1023) << 52);
}

double widened(dynnorm_type type, uint32_t bits) {
    if (type == DYNNORM_I8)
        return (double)(int8_t)(uint8_t)bits;
    if (type == DYNNORM_F32)
        return (double)float_of_bits(bits);
    const struct type *of = &types[type];
    const int fraction_bits = of->digits - 1, bias = of->greatest_exponent;
    const uint32_t fraction = bits & ((1u << fraction_bits) - 1), sign = bits >> (8 * dynnorm_element_bytes(type) - 1);
    const int exponent = (int)(bits >> fraction_bits) & (2 * bias + 1);
    double value = exponent ? (double)(fraction | 1u << fraction_bits) * power_of_two(exponent - bias - fraction_bits)
                            : (double)fraction * power_of_two(1 - bias - fraction_bits);
    if (exponent == 2 * bias + 1)
        value = fraction ? (double)NAN : (double)INFINITY;
    return sign ? -value : value;
}

uint32_t narrowed(dynnorm_type type, double value) {
    if (type == DYNNORM_I8)
        return isnan(value) ? 0 : (uint8_t)(int8_t)nearbyint(fmin(fmax(value, -127), 127));
    if (type == DYNNORM_F32 && !isnan(value))
        return bits_of_float((float)value);
    const struct type *of = &types[type];
    const int fraction_bits = of->digits - 1, bias = of->greatest_exponent;
    const uint32_t sign = (uint32_t)(signbit(value) != 0) << (8 * dynnorm_element_bytes(type) - 1);
    const uint32_t infinity = (uint32_t)(2 * bias + 1) << fraction_bits;
    int exponent = (int)(bits_of_double(value) >> 52 & 0x7ff) - 1023;
    if (exponent > of->greatest_exponent)
        return isnan(value) ? infinity | 1u << (fraction_bits - 1) : sign | infinity;
    if (exponent < of->least_exponent) /* subnormal or 0 */
        exponent = of->least_exponent;
    /* In units of the last digit, rounded to nearest, ties to even, as the sum with 2^52 is. A carry goes to the
     * exponent by itself. */
    const double units = fabs(value) * power_of_two(fraction_bits - exponent) + 0x1p52;
    return sign | (((uint32_t)(exponent + bias - 1) << fraction_bits) + (uint32_t)bits_of_double(units));
}

double rounded(dynnorm_type type, double value) {
    return widened(type, narrowed(type, value));
}

int same_element(dynnorm_type type, uint32_t a, uint32_t b) {
    return a == b || (isnan(widened(type, a)) && isnan(widened(type, b)));
}

uint32_t load_element(const unsigned char *array, dynnorm_type type, size_t i) {
    uint32_t bits;
    uint16_t half;
    switch (dynnorm_element_bytes(type)) {
    case 4:
        memcpy(&bits, array + 4 * i, 4);
        return bits;
    case 2:
        memcpy(&half, array + 2 * i, 2);
        return half;
    default:
        return array[i];
    }
}

int same_elements(dynnorm_type type, const void *a, const void *b, size_t count) {
    if (!memcmp(a, b, count * dynnorm_element_bytes(type)))
        return 1;
    for (size_t i = 0; i < count; i++)
        if (!same_element(type, load_element(a, type, i), load_element(b, type, i)))
            return 0;
    return 1;
}

void store_element(unsigned char *array, dynnorm_type type, size_t i, uint32_t bits) {
    const uint16_t half = (uint16_t)bits;
    switch (dynnorm_element_bytes(type)) {
    case 4:
        memcpy(array + 4 * i, &bits, 4);
        break;
    case 2:
        memcpy(array + 2 * i, &half, 2);
        break;
    default:
        array[i] = (unsigned char)bits;
    }
}

double element_at(const unsigned char *array, dynnorm_type type, size_t i) {
    return widened(type, load_element(array, type, i));
}

void set_element_at(unsigned char *array, dynnorm_type type, size_t i, double value) {
    store_element(array, type, i, narrowed(type, value));
}
