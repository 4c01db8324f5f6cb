/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One row of each norm as a plain loop in float, as a program may have it inlined. Whoever includes this is compiled
 * with the flags for such loops.
 */
#ifndef DYNNORM_BENCH_PLAIN_LOOPS_H
#define DYNNORM_BENCH_PLAIN_LOOPS_H

#include <math.h>
#include <stddef.h>

/* mean and rstd may be NULL, which the compiler sees, because these functions are inlined. */
static inline void plain_layernorm(float *restrict y, float *mean, float *rstd, const float *x, const float *weight,
                                   const float *bias, float eps, size_t channels) {
    float sum = 0;
    for (size_t c = 0; c < channels; c++)
        sum += x[c];
    float center = sum / (float)channels;
    float squares = 0;
    for (size_t c = 0; c < channels; c++)
        squares += (x[c] - center) * (x[c] - center);
    float factor = 1 / sqrtf(squares / (float)channels + eps);
    for (size_t c = 0; c < channels; c++)
        y[c] = (x[c] - center) * factor * weight[c] + bias[c];
    if (mean)
        *mean = center;
    if (rstd)
        *rstd = factor;
}

static inline void plain_rmsnorm(float *restrict y, float *rstd, const float *x, const float *weight, float eps,
                                 size_t channels) {
    float squares = 0;
    for (size_t c = 0; c < channels; c++)
        squares += x[c] * x[c];
    float factor = 1 / sqrtf(squares / (float)channels + eps);
    for (size_t c = 0; c < channels; c++)
        y[c] = x[c] * factor * weight[c];
    if (rstd)
        *rstd = factor;
}

static inline void plain_dyt(float *restrict y, const float *x, const float *weight, const float *bias, float alpha,
                             float scale, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        y[c] = weight[c] * scale * tanhf(alpha * x[c]) + bias[c];
}

static inline void plain_dyisru(float *restrict y, const float *x, const float *weight, const float *bias, float beta,
                                float scale, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        y[c] = weight[c] * scale * x[c] / sqrtf(beta + x[c] * x[c]) + bias[c];
}

#endif
