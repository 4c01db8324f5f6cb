/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What DyT and DyISRU make of alpha or beta, and scale, in their backward pass: see elementwise.h. Kernels do this for
 * the one that all channels have in common; src/api/channel_constants.c does it for that of each channel. One copy
 * serves all instruction sets.
 */
#ifndef DYNNORM_CHANNEL_CONSTANTS_H
#define DYNNORM_CHANNEL_CONSTANTS_H

#include "inlining.h"

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

/* They are written where they are needed: a copy would wait for what was just stored, which took a call with one token
 * of 288 channels 5 percent more time on a Zen 3. */
void dynnorm_dyt_constants(struct constants_of_parameter *constants, float alpha, float scale);
void dynnorm_dyisru_constants(struct constants_of_parameter *constants, float beta, float scale);
void dynnorm_centered_constants(struct constants_of_parameter *constants, float beta, float scale);

/* The parameter is twice alpha, unless float does not hold that. */
enum { DYT_PARAMETER_MULTIPLE = 2 };

INLINE double dyt_parameter_factor(float x_factor, float slope) {
    return 1 / ((double)x_factor * (double)slope);
}

INLINE double dyisru_parameter_factor(float x_factor, float slope) {
    return (double)x_factor * (double)x_factor / (double)slope;
}

#endif
