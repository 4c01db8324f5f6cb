/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What DyT and DyISRU make of alpha or beta, and scale, in their backward pass: see elementwise.h. Kernels do this for
 * the one that all channels have in common; src/api/channel_constants.c does it for that of each channel.
 */
#ifndef DYNNORM_CHANNEL_CONSTANTS_H
#define DYNNORM_CHANNEL_CONSTANTS_H

#include "inlining.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

struct constants_of_parameter {
    float parameter;
    float x_factor;
    float slope;
    float dx_factor;
    float given; /* the parameter itself; for the centered DyISRU only */
};

/* This parameter, with which all elements are rare, stands for a beta of 0 among those of the channels; in the centered
 * DyISRU for a huge one. */
#define PARAMETER_OF_SIGN 0x1p126f
#define BITS_OF_PARAMETER_OF_SIGN 0x7e800000

/* That of 2^exponent <= |a|, for a normal a. */
INLINE int exponent_of(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return (int)(bits >> 52 & 0x7ff) - 1023;
}

INLINE double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* The slope as a float times a power of two, which is 1 where the float alone will do. What is left of a small slope is
 * just below 1/2, lest h, or its product with a derivative that rounding carried beyond 1, overflows where that of
 * weight and dy does not. What is left of a large one is large, lest terms of the sum for the parameter underflow. */
INLINE void set_slope(struct constants_of_parameter *constants, double slope, double least) {
    const int most = 40;
    int exponent = slope == 0 ? 0 : exponent_of(slope);
    exponent = exponent > most ? exponent - most : fabs(slope) < least ? exponent + 2 : 0;
    exponent = exponent < -149 ? -149 : exponent > 127 ? 127 : exponent;
    constants->slope = (float)(slope * power_of_two(-exponent));
    constants->dx_factor = (float)power_of_two(exponent);
    if (constants->slope == 0) { /* the sum for the parameter does not depend on it */
        constants->slope = 0.5f;
        constants->dx_factor = 0;
    }
}

/* The parameter is twice alpha, unless float does not hold that. */
enum { DYT_PARAMETER_MULTIPLE = 2 };

INLINE struct constants_of_parameter dyt_constants(float alpha, float scale) {
    const float x_factor = fabsf(alpha) >= 0x1p127f ? DYT_PARAMETER_MULTIPLE : 1;
    struct constants_of_parameter constants = {.parameter = alpha * (DYT_PARAMETER_MULTIPLE / x_factor),
                                               .x_factor = x_factor};
    set_slope(&constants, (double)scale * (double)alpha, fabsf(alpha) >= 0x1p-3f ? 0x1p-40 : HUGE_VAL);
    return constants;
}

INLINE double dyt_parameter_factor(float x_factor, float slope) {
    return 1 / ((double)x_factor * (double)slope);
}

INLINE struct constants_of_parameter dyisru_constants(float beta, float scale) {
    struct constants_of_parameter constants = {.parameter = beta, .x_factor = 1};
    if (beta == 0) {
        constants.parameter = PARAMETER_OF_SIGN;
    } else if (!(beta >= 0x1p-2f && beta <= 0x1p40f)) {
        int exponent = exponent_of((double)beta);
        exponent = exponent < -126 ? -63 : (exponent - (exponent < 0)) / 2;
        constants.parameter = (float)((double)beta * power_of_two(-2 * exponent));
        constants.x_factor = (float)power_of_two(-exponent);
    }
    set_slope(&constants, beta == 0 ? 0 : (double)scale * (double)constants.parameter * (double)constants.x_factor,
              0x1p-40);
    if (scale == 0)
        constants.slope = 0x1p-64f; /* lest dx overflows before it is multiplied by 0 */
    return constants;
}

/* The same for the centered DyISRU, at u = x - mean(x). x_factor is for rare elements only, and dx is multiplied by
 * dx_factor last. That is chosen such that no intermediate result before overflows or loses digits unless dx does: what
 * is left of the largest derivative is about 1 if it was greater than 1, and neither that nor the slope is near the
 * lower end of float's range if it was tiny. */
INLINE void set_centered_slope(struct constants_of_parameter *constants, double slope, double largest_derivative) {
    int exponent = largest_derivative == 0 || isnan(largest_derivative) ? 0 : exponent_of(largest_derivative);
    if (exponent < 0)
        exponent = exponent < -100 ? exponent + 100 : 0;
    if (slope != 0 && exponent_of(slope) - exponent < -100)
        exponent = exponent_of(slope) + 100;
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    constants->slope = (float)(slope * power_of_two(-exponent));
    constants->dx_factor = (float)power_of_two(exponent);
}

/* With a huge beta all elements are rare. */
INLINE struct constants_of_parameter centered_constants(float beta, float scale) {
    struct constants_of_parameter constants = {.parameter = beta, .x_factor = 1, .given = beta};
    /* Some C libraries' sqrt sets errno for a NaN. */
    const double largest = beta > 0 ? (double)scale / sqrt((double)beta) : (double)beta;
    set_centered_slope(&constants, (double)scale * (double)beta, largest);
    if (beta > 0x1p96f || fabsf(constants.slope) > 0x1p120f) {
        const float rare_scale = 0x1p-34f, rare_parameter = beta * rare_scale * rare_scale;
        set_centered_slope(&constants, (double)scale * (double)rare_parameter * (double)rare_scale, largest);
        constants.parameter = PARAMETER_OF_SIGN;
        constants.x_factor = rare_scale;
    }
    return constants;
}

INLINE double dyisru_parameter_factor(float x_factor, float slope) {
    return (double)x_factor * (double)x_factor / (double)slope;
}

#endif
