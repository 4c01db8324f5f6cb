/* SPDX-License-Identifier: BSD-2-Clause */
#include "operations/channel_constants.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* That of 2^exponent <= |a|, for a normal a. */
static int exponent_of(double a) {
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    return (int)(bits >> 52 & 0x7ff) - 1023;
}

static double power_of_two(int exponent) {
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
    int exponent = 0;
    if (!(fabs(slope) >= least && fabs(slope) < 0x1p41)) {
        exponent = slope == 0 ? 0 : exponent_of(slope);
        exponent = exponent > most ? exponent - most : exponent + 2;
        exponent = exponent < -149 ? -149 : exponent > 127 ? 127 : exponent;
    }
    constants->slope = (float)(slope * power_of_two(-exponent));
    constants->dx_factor = (float)power_of_two(exponent);
    if (constants->slope == 0) { /* the sum for the parameter does not depend on it */
        constants->slope = 0.5f;
        constants->dx_factor = 0;
    }
}

/* x and 1 / alpha multiply what h times the derivative loses to underflow in a term of dalpha. So a tiny alpha does not
 * take part in h. Models train with an alpha of 0.05, where dx takes no power of two: with one, all took 1.2 to 1.36
 * times as long on a Zen 3. */
void dynnorm_dyt_constants(struct constants_of_parameter *constants, float alpha, float scale) {
    const float x_factor = fabsf(alpha) >= 0x1p127f ? DYT_PARAMETER_MULTIPLE : 1;
    constants->parameter = alpha * (DYT_PARAMETER_MULTIPLE / x_factor);
    constants->x_factor = x_factor;
    constants->given = 0;
    set_slope(constants, (double)scale * (double)alpha, fabsf(alpha) >= 0x1p-8f ? 0x1p-40 : HUGE_VAL);
}

/* Where dx has a factor, the inverse square root of beta is not greater than 1, lest dx overflows by that alone, which
 * no sum tells. */
void dynnorm_dyisru_constants(struct constants_of_parameter *constants, float beta, float scale) {
    const double least_slope = 0x1p-40;
    const float least = fabs((double)scale * (double)beta) < least_slope ? 1 : 0x1p-2f;
    constants->parameter = beta;
    constants->x_factor = 1;
    constants->given = 0;
    if (beta == 0) {
        constants->parameter = PARAMETER_OF_SIGN;
    } else if (!(beta >= least && beta <= 0x1p40f)) {
        int exponent = exponent_of((double)beta);
        exponent = exponent < -126 ? -63 : (exponent - (exponent < 0)) / 2;
        constants->parameter = (float)((double)beta * power_of_two(-2 * exponent));
        constants->x_factor = (float)power_of_two(-exponent);
    }
    set_slope(constants, beta == 0 ? 0 : (double)scale * (double)constants->parameter * (double)constants->x_factor,
              least_slope);
}

/* The same for the centered DyISRU, at u = x - mean(x). x_factor is for rare elements only, and dx is multiplied by
 * dx_factor last. That is chosen such that no intermediate result before overflows or loses digits unless dx does: what
 * is left of the largest derivative is about 1 if it was greater than 1, and neither that nor the slope is near the
 * lower end of float's range if it was tiny. */
static void set_centered_slope(struct constants_of_parameter *constants, double slope, double largest_derivative) {
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
void dynnorm_centered_constants(struct constants_of_parameter *constants, float beta, float scale) {
    constants->parameter = constants->given = beta;
    constants->x_factor = 1;
    /* Some C libraries' sqrt sets errno for a NaN. */
    const double largest = beta > 0 ? (double)scale / sqrt((double)beta) : (double)beta;
    set_centered_slope(constants, (double)scale * (double)beta, largest);
    if (beta > 0x1p96f || fabsf(constants->slope) > 0x1p120f) {
        const float rare_scale = 0x1p-34f, rare_parameter = beta * rare_scale * rare_scale;
        set_centered_slope(constants, (double)scale * (double)rare_parameter * (double)rare_scale, largest);
        constants->parameter = PARAMETER_OF_SIGN;
        constants->x_factor = rare_scale;
    }
}
