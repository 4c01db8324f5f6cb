/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The constant factor in the derivatives of an elementwise operation, as a float times a power of two: scale alpha for
 * DyT, scale beta for DyISRU.
 */
#ifndef DYNNORM_SLOPE_H
#define DYNNORM_SLOPE_H

#include "vec.h"

#include <math.h>

/* dx is multiplied by the power of two last. The power is chosen such that no intermediate result before overflows or
 * loses digits unless dx does: what is left of the largest derivative is about 1 if it was greater than 1, and neither
 * that nor the value is near the lower end of float's range if it was tiny. */
struct slope {
    float value;
    float power;
};

INLINE struct slope split_slope(double slope, double largest_derivative) {
    int exponent = 0;
    if (largest_derivative != 0 && isfinite(largest_derivative))
        exponent = ilogb(largest_derivative);
    if (exponent < 0)
        exponent = exponent < -100 ? exponent + 100 : 0;
    if (slope != 0 && ilogb(slope) - exponent < -100)
        exponent = ilogb(slope) + 100;
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return (struct slope){(float)ldexp(slope, -exponent), (float)ldexp(1, exponent)};
}

#endif
