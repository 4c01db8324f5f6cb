/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What anyone would write first: plain loops. They are compiled with -O3 -march=native -ffast-math, so that
 * the compiler vectorizes them and, where it can, calls the vector tanh of the C library. Each is also compiled with
 * further flags, as a peer of another name, because no flags are the best for all of these loops: gcc 12 unrolls too
 * little for LayerNorm's backward pass, and makes slow loops of 512-bit vectors for DyISRU.
 *
 * PEER_NAME is the name of the table of functions and of the peer. With PLAIN_BF16 the elements of x, y, dy, dx,
 * weight and bias are bfloat16; the loops compute in float all the same.
 */
#include "peers.h"
#include "plain_loops.h"

#include <math.h>
#include <string.h>

/* Computes row t of a call. The outputs are parameters because gcc respects restrict on parameters most reliably. */
typedef void forward_row(const dynnorm_descriptor *call, size_t t, element *restrict y);

/* Returns what row t adds to the gradient of alpha or beta. */
typedef float backward_row(const dynnorm_descriptor *call, size_t t, element *restrict dx, float *restrict dweight,
                           float *restrict dbias);

static inline const element *row_of(const dynnorm_descriptor *call, const void *tensor, size_t t) {
    return (const element *)tensor + t * call->channels;
}

static inline void forward(const dynnorm_descriptor *call, forward_row *row) {
    for (size_t t = 0; t < call->tokens; t++)
        row(call, t, (element *)call->y.data + t * call->channels);
}

static inline float backward(const dynnorm_descriptor *call, backward_row *row) {
    float sum = 0;
    memset(call->dweight.data, 0, call->channels * sizeof(float));
    if (call->dbias.data)
        memset(call->dbias.data, 0, call->channels * sizeof(float));
    for (size_t t = 0; t < call->tokens; t++)
        sum += row(call, t, (element *)call->dx.data + t * call->channels, call->dweight.data, call->dbias.data);
    return sum;
}

/* ---- LayerNorm --------------------------------------------------------------------------------------------------- */

static inline void layernorm_forward_row(const dynnorm_descriptor *call, size_t t, element *restrict y) {
    plain_layernorm(y, NULL, NULL, row_of(call, call->x.data, t), call->weight.data, call->bias.data, call->eps,
                    call->channels);
}

static inline float layernorm_backward_row(const dynnorm_descriptor *call, size_t t, element *restrict dx,
                                           float *restrict dweight, float *restrict dbias) {
    const element *x = row_of(call, call->x.data, t), *dy = row_of(call, call->dy.data, t);
    const element *weight = call->weight.data;
    const float mean = call->mean[t], rstd = call->rstd[t];
    const size_t channels = call->channels;
    float sum_h = 0, sum_hn = 0;
    for (size_t c = 0; c < channels; c++) {
        float h = get(weight[c]) * get(dy[c]), n = (get(x[c]) - mean) * rstd;
        sum_h += h;
        sum_hn += h * n;
    }
    float mean_h = sum_h / (float)channels, mean_hn = sum_hn / (float)channels;
    for (size_t c = 0; c < channels; c++) {
        float n = (get(x[c]) - mean) * rstd;
        dx[c] = put(rstd * (get(weight[c]) * get(dy[c]) - mean_h - n * mean_hn));
        dweight[c] += get(dy[c]) * n;
        dbias[c] += get(dy[c]);
    }
    return 0;
}

/* ---- RMSNorm ----------------------------------------------------------------------------------------------------- */

static inline void rmsnorm_forward_row(const dynnorm_descriptor *call, size_t t, element *restrict y) {
    plain_rmsnorm(y, NULL, row_of(call, call->x.data, t), call->weight.data, call->eps, call->channels);
}

static inline float rmsnorm_backward_row(const dynnorm_descriptor *call, size_t t, element *restrict dx,
                                         float *restrict dweight, float *restrict dbias) {
    const element *x = row_of(call, call->x.data, t), *dy = row_of(call, call->dy.data, t);
    const element *weight = call->weight.data;
    const float rstd = call->rstd[t];
    const size_t channels = call->channels;
    (void)dbias;
    float sum_hn = 0;
    for (size_t c = 0; c < channels; c++)
        sum_hn += get(weight[c]) * get(dy[c]) * get(x[c]) * rstd;
    float mean_hn = sum_hn / (float)channels;
    for (size_t c = 0; c < channels; c++) {
        float n = get(x[c]) * rstd;
        dx[c] = put(rstd * (get(weight[c]) * get(dy[c]) - n * mean_hn));
        dweight[c] += get(dy[c]) * n;
    }
    return 0;
}

/* ---- DyT --------------------------------------------------------------------------------------------------------- */

static inline void dyt_forward_row(const dynnorm_descriptor *call, size_t t, element *restrict y) {
    plain_dyt(y, row_of(call, call->x.data, t), call->weight.data, call->bias.data, call->alpha, call->scale,
              call->channels);
}

static inline float dyt_backward_row(const dynnorm_descriptor *call, size_t t, element *restrict dx,
                                     float *restrict dweight, float *restrict dbias) {
    const element *x = row_of(call, call->x.data, t), *dy = row_of(call, call->dy.data, t);
    const element *weight = call->weight.data;
    const float alpha = call->alpha, scale = call->scale;
    const size_t channels = call->channels;
    float sum = 0;
    for (size_t c = 0; c < channels; c++) {
        float tangent = tanhf(alpha * get(x[c]));
        float slope = scale * get(weight[c]) * get(dy[c]) * (1 - tangent * tangent);
        dx[c] = put(alpha * slope);
        sum += get(x[c]) * slope;
        dweight[c] += get(dy[c]) * scale * tangent;
        dbias[c] += get(dy[c]);
    }
    return sum;
}

/* ---- DyISRU ------------------------------------------------------------------------------------------------------ */

static inline void dyisru_forward_row(const dynnorm_descriptor *call, size_t t, element *restrict y) {
    plain_dyisru(y, row_of(call, call->x.data, t), call->weight.data, call->bias.data, call->beta, call->scale,
                 call->channels);
}

static inline float dyisru_backward_row(const dynnorm_descriptor *call, size_t t, element *restrict dx,
                                        float *restrict dweight, float *restrict dbias) {
    const element *x = row_of(call, call->x.data, t), *dy = row_of(call, call->dy.data, t);
    const element *weight = call->weight.data;
    const float beta = call->beta, scale = call->scale;
    const size_t channels = call->channels;
    float sum = 0;
    for (size_t c = 0; c < channels; c++) {
        float r = 1 / sqrtf(beta + get(x[c]) * get(x[c]));
        float slope = scale * get(weight[c]) * get(dy[c]) * r * r * r;
        dx[c] = put(beta * slope);
        sum += get(x[c]) * slope;
        dweight[c] += get(dy[c]) * scale * get(x[c]) * r;
        dbias[c] += get(dy[c]);
    }
    return -0.5f * sum;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* set_parameter_gradient is a statement that stores the sum of what the rows return. */
#define LOOPS(operation, set_parameter_gradient)                                                                       \
    static void operation##_forward(const dynnorm_descriptor *call) {                                                  \
        forward(call, operation##_forward_row);                                                                        \
    }                                                                                                                  \
    static void operation##_backward(const dynnorm_descriptor *call) {                                                 \
        float sum = backward(call, operation##_backward_row);                                                          \
        set_parameter_gradient;                                                                                        \
    }

LOOPS(layernorm, (void)sum)
LOOPS(rmsnorm, (void)sum)
LOOPS(dyt, *call->dalpha = sum)
LOOPS(dyisru, *call->dbeta = sum)

#define JOIN(a, b) a##b
#define NAME(what, peer) JOIN(what, peer)
const peer_functions NAME(functions_of_, PEER_NAME) = {
    [DYNNORM_LAYERNORM] = {layernorm_forward, layernorm_backward},
    [DYNNORM_RMSNORM] = {rmsnorm_forward, rmsnorm_backward},
    [DYNNORM_DYT] = {dyt_forward, dyt_backward},
    [DYNNORM_DYISRU] = {dyisru_forward, dyisru_backward},
};

#ifdef __clang__
#define COMPILER "" /* clang's __VERSION__ begins with its name */
#else
#define COMPILER "gcc "
#endif
const char NAME(description_of_, PEER_NAME)[] = "plain C loops that compute in float, compiled by " COMPILER __VERSION__
                                                " with " PEER_LOOPS_FLAGS;
