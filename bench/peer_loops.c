/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What one would write: plain loops, in float, compiled with -O3 -march=native -ffast-math, so that the compiler makes
 * vectors of them (and, where it can, calls the vector tanh of the C library).
 */
#include "peers.h"

#include <math.h>
#include <string.h>

static void layernorm_forward(float *restrict y, const float *restrict x, const float *restrict weight,
                              const float *restrict bias, float eps, size_t tokens, size_t channels) {
    for (size_t t = 0; t < tokens; t++, x += channels, y += channels) {
        float sum = 0;
        for (size_t c = 0; c < channels; c++)
            sum += x[c];
        float mean = sum / (float)channels;
        float squares = 0;
        for (size_t c = 0; c < channels; c++)
            squares += (x[c] - mean) * (x[c] - mean);
        float rstd = 1 / sqrtf(squares / (float)channels + eps);
        for (size_t c = 0; c < channels; c++)
            y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
    }
}

static void layernorm_backward(float *restrict dx, float *restrict dweight, float *restrict dbias,
                               const float *restrict dy, const float *restrict x, const float *restrict weight,
                               const float *restrict mean, const float *restrict rstd, size_t tokens, size_t channels) {
    memset(dweight, 0, channels * sizeof *dweight);
    memset(dbias, 0, channels * sizeof *dbias);
    for (size_t t = 0; t < tokens; t++, x += channels, dy += channels, dx += channels) {
        float sum_h = 0, sum_hn = 0;
        for (size_t c = 0; c < channels; c++) {
            float h = weight[c] * dy[c], n = (x[c] - mean[t]) * rstd[t];
            sum_h += h;
            sum_hn += h * n;
        }
        float mean_h = sum_h / (float)channels, mean_hn = sum_hn / (float)channels;
        for (size_t c = 0; c < channels; c++) {
            float n = (x[c] - mean[t]) * rstd[t];
            dx[c] = rstd[t] * (weight[c] * dy[c] - mean_h - n * mean_hn);
            dweight[c] += dy[c] * n;
            dbias[c] += dy[c];
        }
    }
}

static void rmsnorm_forward(float *restrict y, const float *restrict x, const float *restrict weight, float eps,
                            size_t tokens, size_t channels) {
    for (size_t t = 0; t < tokens; t++, x += channels, y += channels) {
        float squares = 0;
        for (size_t c = 0; c < channels; c++)
            squares += x[c] * x[c];
        float rstd = 1 / sqrtf(squares / (float)channels + eps);
        for (size_t c = 0; c < channels; c++)
            y[c] = x[c] * rstd * weight[c];
    }
}

static void rmsnorm_backward(float *restrict dx, float *restrict dweight, const float *restrict dy,
                             const float *restrict x, const float *restrict weight, const float *restrict rstd,
                             size_t tokens, size_t channels) {
    memset(dweight, 0, channels * sizeof *dweight);
    for (size_t t = 0; t < tokens; t++, x += channels, dy += channels, dx += channels) {
        float sum_hn = 0;
        for (size_t c = 0; c < channels; c++)
            sum_hn += weight[c] * dy[c] * x[c] * rstd[t];
        float mean_hn = sum_hn / (float)channels;
        for (size_t c = 0; c < channels; c++) {
            float n = x[c] * rstd[t];
            dx[c] = rstd[t] * (weight[c] * dy[c] - n * mean_hn);
            dweight[c] += dy[c] * n;
        }
    }
}

static void dyt_forward(float *restrict y, const float *restrict x, const float *restrict weight,
                        const float *restrict bias, float alpha, float scale, size_t tokens, size_t channels) {
    for (size_t t = 0; t < tokens; t++, x += channels, y += channels)
        for (size_t c = 0; c < channels; c++)
            y[c] = weight[c] * scale * tanhf(alpha * x[c]) + bias[c];
}

static void dyt_backward(float *restrict dx, float *restrict dweight, float *restrict dbias, float *restrict dalpha,
                         const float *restrict dy, const float *restrict x, const float *restrict weight, float alpha,
                         float scale, size_t tokens, size_t channels) {
    memset(dweight, 0, channels * sizeof *dweight);
    memset(dbias, 0, channels * sizeof *dbias);
    float sum = 0;
    for (size_t t = 0; t < tokens; t++, x += channels, dy += channels, dx += channels) {
        float row_sum = 0;
        for (size_t c = 0; c < channels; c++) {
            float tangent = tanhf(alpha * x[c]);
            float slope = scale * weight[c] * dy[c] * (1 - tangent * tangent);
            dx[c] = alpha * slope;
            row_sum += x[c] * slope;
            dweight[c] += dy[c] * scale * tangent;
            dbias[c] += dy[c];
        }
        sum += row_sum;
    }
    *dalpha = sum;
}

static void dyisru_forward(float *restrict y, const float *restrict x, const float *restrict weight,
                           const float *restrict bias, float beta, float scale, size_t tokens, size_t channels) {
    for (size_t t = 0; t < tokens; t++, x += channels, y += channels)
        for (size_t c = 0; c < channels; c++)
            y[c] = weight[c] * scale * x[c] / sqrtf(beta + x[c] * x[c]) + bias[c];
}

static void dyisru_backward(float *restrict dx, float *restrict dweight, float *restrict dbias, float *restrict dbeta,
                            const float *restrict dy, const float *restrict x, const float *restrict weight, float beta,
                            float scale, size_t tokens, size_t channels) {
    memset(dweight, 0, channels * sizeof *dweight);
    memset(dbias, 0, channels * sizeof *dbias);
    float sum = 0;
    for (size_t t = 0; t < tokens; t++, x += channels, dy += channels, dx += channels) {
        float row_sum = 0;
        for (size_t c = 0; c < channels; c++) {
            float r = 1 / sqrtf(beta + x[c] * x[c]);
            float slope = scale * weight[c] * dy[c] * r * r * r;
            dx[c] = beta * slope;
            row_sum += x[c] * slope;
            dweight[c] += dy[c] * scale * x[c] * r;
            dbias[c] += dy[c];
        }
        sum += row_sum;
    }
    *dbeta = -0.5f * sum;
}

/* ---- The same, as calls of the benchmark --------------------------------------------------------------------------
 */

static void call_layernorm_forward(const dynnorm_descriptor *call) {
    layernorm_forward(call->y.data, call->x.data, call->weight.data, call->bias.data, call->eps, call->tokens,
                      call->channels);
}

static void call_layernorm_backward(const dynnorm_descriptor *call) {
    layernorm_backward(call->dx.data, call->dweight.data, call->dbias.data, call->dy.data, call->x.data,
                       call->weight.data, call->mean, call->rstd, call->tokens, call->channels);
}

static void call_rmsnorm_forward(const dynnorm_descriptor *call) {
    rmsnorm_forward(call->y.data, call->x.data, call->weight.data, call->eps, call->tokens, call->channels);
}

static void call_rmsnorm_backward(const dynnorm_descriptor *call) {
    rmsnorm_backward(call->dx.data, call->dweight.data, call->dy.data, call->x.data, call->weight.data, call->rstd,
                     call->tokens, call->channels);
}

static void call_dyt_forward(const dynnorm_descriptor *call) {
    dyt_forward(call->y.data, call->x.data, call->weight.data, call->bias.data, call->alpha, call->scale, call->tokens,
                call->channels);
}

static void call_dyt_backward(const dynnorm_descriptor *call) {
    dyt_backward(call->dx.data, call->dweight.data, call->dbias.data, call->dalpha, call->dy.data, call->x.data,
                 call->weight.data, call->alpha, call->scale, call->tokens, call->channels);
}

static void call_dyisru_forward(const dynnorm_descriptor *call) {
    dyisru_forward(call->y.data, call->x.data, call->weight.data, call->bias.data, call->beta, call->scale,
                   call->tokens, call->channels);
}

static void call_dyisru_backward(const dynnorm_descriptor *call) {
    dyisru_backward(call->dx.data, call->dweight.data, call->dbias.data, call->dbeta, call->dy.data, call->x.data,
                    call->weight.data, call->beta, call->scale, call->tokens, call->channels);
}

const peer_functions functions_of_loops = {
    [DYNNORM_LAYERNORM] = {call_layernorm_forward, call_layernorm_backward},
    [DYNNORM_RMSNORM] = {call_rmsnorm_forward, call_rmsnorm_backward},
    [DYNNORM_DYT] = {call_dyt_forward, call_dyt_backward},
    [DYNNORM_DYISRU] = {call_dyisru_forward, call_dyisru_backward},
};

#ifdef __clang__
#define COMPILER "" /* its version says the name */
#else
#define COMPILER "gcc "
#endif
const char peer_loops_description[] =
    "plain C loops in float, compiled by " COMPILER __VERSION__ " with " PEER_LOOPS_FLAGS;
