/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One row of each norm as a plain loop that computes in float, as a program may have it inlined. plain_elements.h says
 * what the elements are. Whoever includes this is compiled with the flags for such loops.
 */
#ifndef DYNNORM_BENCH_PLAIN_LOOPS_H
#define DYNNORM_BENCH_PLAIN_LOOPS_H

#include "plain_elements.h"

#include <math.h>
#include <stddef.h>

/* mean and rstd may be NULL, which the compiler sees, because these functions are inlined. */
static inline void plain_layernorm(element *restrict y, float *mean, float *rstd, const element *x,
                                   const element *weight, const element *bias, float eps, size_t channels) {
    float sum = 0;
    for (size_t c = 0; c < channels; c++)
        sum += get(x[c]);
    float center = sum / (float)channels;
    float squares = 0;
    for (size_t c = 0; c < channels; c++)
        squares += (get(x[c]) - center) * (get(x[c]) - center);
    float factor = 1 / sqrtf(squares / (float)channels + eps);
    for (size_t c = 0; c < channels; c++)
        y[c] = put((get(x[c]) - center) * factor * get(weight[c]) + get(bias[c]));
    if (mean)
        *mean = center;
    if (rstd)
        *rstd = factor;
}

static inline void plain_rmsnorm(element *restrict y, float *rstd, const element *x, const element *weight, float eps,
                                 size_t channels) {
    float squares = 0;
    for (size_t c = 0; c < channels; c++)
        squares += get(x[c]) * get(x[c]);
    float factor = 1 / sqrtf(squares / (float)channels + eps);
    for (size_t c = 0; c < channels; c++)
        y[c] = put(get(x[c]) * factor * get(weight[c]));
    if (rstd)
        *rstd = factor;
}

static inline void plain_dyt(element *restrict y, const element *x, const element *weight, const element *bias,
                             float alpha, float scale, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        y[c] = put(get(weight[c]) * scale * tanhf(alpha * get(x[c])) + get(bias[c]));
}

static inline void plain_dyisru(element *restrict y, const element *x, const element *weight, const element *bias,
                                float beta, float scale, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        y[c] = put(get(weight[c]) * scale * get(x[c]) / sqrtf(beta + get(x[c]) * get(x[c])) + get(bias[c]));
}

#endif
