/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A factor of all derivatives of an elementwise operation, as a float times a power of two.
 */
#ifndef DYNNORM_SLOPE_H
#define DYNNORM_SLOPE_H

#include "vec.h"

#include <math.h>

/* The power of two brings the largest derivative down to about 1 where it is greater, and away from the lower end of
 * float's range where it is tiny. It multiplies dx last, so that no intermediate result overflows or loses digits where
 * dx does not. */
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
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return (struct slope){(float)ldexp(slope, -exponent), (float)ldexp(1, exponent)};
}

#endif
