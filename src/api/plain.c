/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The plain calls, which fill in a descriptor. The arithmetic of one token takes less time than that, so such a call
 * is checked here and goes straight to a kernel for one row; unless anything about it is unusual.
 */
#include "api/few_rows.h"
#include "api/passes.h"
#include "dispatch/dispatch.h"
#include "rows/tensor.h"

#include <float.h>
#include <math.h>

/* 16: a CPU has operations on numbers of 16 bits, and those alone are computed as such. */
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,
               "float arithmetic must not be carried out in a wider type");

float dynnorm_scale_rmsnorm(size_t channels) {
    return (float)sqrt((double)channels);
}

float dynnorm_scale_layernorm(size_t channels) {
    return channels ? (float)sqrt((double)(channels - 1)) : 0;
}

/* The descriptor's pointers serve for inputs, which are only read, and for outputs. */
static void *input(const float *data) {
    union {
        const float *constant;
        void *variable;
    } pointer = {data};
    return pointer.variable;
}

static void plain_call(dynnorm_descriptor *call, const float *x, const float *weight, size_t tokens, size_t channels) {
    call->tokens = tokens;
    call->channels = channels;
    call->x.data = input(x);
    call->weight.data = input(weight);
}

static void plain_gradients(dynnorm_descriptor *call, float *dx, float *dweight, float *dbias, const float *dy) {
    call->dx.data = dx;
    call->dweight.data = dweight;
    call->dbias.data = dbias;
    call->dy.data = input(dy);
}

/* ---- One token ---- */

/* What all operations have in common. A statistic that is absent lies at 0, where no row does. */
INLINE int is_usual_row(const float *y, const float *rstd, const float *x, const float *weight, size_t channels) {
    const size_t bytes = channels * sizeof(float);
    return (int)(channels - 1 < MOST_FLOATS) & (int)(y != NULL) & (int)(x != NULL) & (int)(weight != NULL) &
           ((int)(y == x) | (int)!meet(y, bytes, x, bytes)) & (int)!meet(y, bytes, weight, bytes) &
           (int)!float_meets(rstd, y, bytes) & (int)!float_meets(rstd, x, bytes) &
           (int)!float_meets(rstd, weight, bytes);
}

/* What some have besides. */
INLINE int is_usual_mean(const float *mean, const float *y, const float *rstd, const float *x, const float *weight,
                         size_t channels) {
    const size_t bytes = channels * sizeof(float);
    return (int)!float_meets(mean, y, bytes) & (int)!float_meets(mean, x, bytes) &
           (int)!float_meets(mean, weight, bytes) &
           ((int)(mean == NULL) | (int)!float_meets(mean, rstd, sizeof(float)));
}

INLINE int is_usual_bias(const float *bias, const float *y, const float *mean, const float *rstd, size_t channels) {
    const size_t bytes = channels * sizeof(float);
    return (int)(bias != NULL) & (int)!meet(y, bytes, bias, bytes) & (int)!float_meets(mean, bias, bytes) &
           (int)!float_meets(rstd, bias, bytes);
}

/* Begins to fetch what the kernel needs. On a cold call this goes on while the code is fetched. */
INLINE void fetch_row(const float *y, const float *x, const float *weight) {
    __builtin_prefetch(x);
    __builtin_prefetch(weight);
    __builtin_prefetch(y, 1);
}

/* ---- LayerNorm ---- */

dynnorm_status dynnorm_layernorm_any(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                     const float *bias, float eps, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.mean = mean;
    call.rstd = rstd;
    call.bias.data = input(bias);
    call.eps = eps;
    return dynnorm_forward_any(&call);
}

FIRST_OF_ONE_TOKEN
dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                             const float *bias, float eps, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = (tokens == 1) & is_finite_and_not_negative(eps) & is_usual_row(y, rstd, x, weight, channels) &
                   is_usual_mean(mean, y, rstd, x, weight, channels) & is_usual_bias(bias, y, mean, rstd, channels);
    if (!is_usual)
        return dynnorm_layernorm_any(y, mean, rstd, x, weight, bias, eps, tokens, channels);
    layernorm_call *kernel = atomic_load_explicit(&dynnorm_rows_in_use.layernorm, memory_order_acquire);
    return kernel(y, mean, rstd, x, weight, bias, eps, tokens, channels);
}

dynnorm_status dynnorm_layernorm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy, const float *x,
                                              const float *weight, const float *mean, const float *rstd, float eps,
                                              size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    plain_call(&call, x, weight, tokens, channels);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.mean = input(mean);
    call.rstd = input(rstd);
    call.eps = eps;
    return dynnorm_backward(&call);
}

/* ---- RMSNorm ---- */

dynnorm_status dynnorm_rmsnorm_any(float *y, float *rstd, const float *x, const float *weight, float eps, size_t tokens,
                                   size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_RMSNORM;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.rstd = rstd;
    call.eps = eps;
    return dynnorm_forward_any(&call);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight, float eps,
                                           size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    int is_usual = (tokens == 1) & is_finite_and_not_negative(eps) & is_usual_row(y, rstd, x, weight, channels);
    if (!is_usual)
        return dynnorm_rmsnorm_any(y, rstd, x, weight, eps, tokens, channels);
    rmsnorm_call *kernel = atomic_load_explicit(&dynnorm_rows_in_use.rmsnorm, memory_order_acquire);
    return kernel(y, rstd, x, weight, eps, tokens, channels);
}

dynnorm_status dynnorm_rmsnorm_backward_f32(float *dx, float *dweight, const float *dy, const float *x,
                                            const float *weight, const float *rstd, float eps, size_t tokens,
                                            size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_RMSNORM;
    plain_call(&call, x, weight, tokens, channels);
    plain_gradients(&call, dx, dweight, NULL, dy);
    call.rstd = input(rstd);
    call.eps = eps;
    return dynnorm_backward(&call);
}

/* ---- DyT and DyISRU ---- */

dynnorm_status dynnorm_dyt_any(float *y, const float *x, const float *weight, const float *bias, float alpha,
                               float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYT;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.bias.data = input(bias);
    call.alpha = alpha;
    call.scale = scale;
    return dynnorm_forward_any(&call);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_dyt_forward_f32(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                       float scale, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = (tokens == 1) & is_finite(alpha) & is_finite(scale) & is_usual_row(y, NULL, x, weight, channels) &
                   is_usual_bias(bias, y, NULL, NULL, channels);
    if (!is_usual)
        return dynnorm_dyt_any(y, x, weight, bias, alpha, scale, tokens, channels);
    dyt_call *kernel = atomic_load_explicit(&dynnorm_rows_in_use.dyt, memory_order_acquire);
    return kernel(y, x, weight, bias, alpha, scale, tokens, channels);
}

dynnorm_status dynnorm_dyt_backward_f32(float *dx, float *dweight, float *dbias, float *dalpha, const float *dy,
                                        const float *x, const float *weight, float alpha, float scale, size_t tokens,
                                        size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYT;
    plain_call(&call, x, weight, tokens, channels);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.dalpha = dalpha;
    call.alpha = alpha;
    call.scale = scale;
    return dynnorm_backward(&call);
}

dynnorm_status dynnorm_dyisru_any(float *y, const float *x, const float *weight, const float *bias, float beta,
                                  float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYISRU;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.bias.data = input(bias);
    call.beta = beta;
    call.scale = scale;
    return dynnorm_forward_any(&call);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias, float beta,
                                          float scale, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = (tokens == 1) & is_finite_and_not_negative(beta) & is_finite(scale) &
                   is_usual_row(y, NULL, x, weight, channels) & is_usual_bias(bias, y, NULL, NULL, channels);
    if (!is_usual)
        return dynnorm_dyisru_any(y, x, weight, bias, beta, scale, tokens, channels);
    dyisru_call *kernel = atomic_load_explicit(&dynnorm_rows_in_use.dyisru, memory_order_acquire);
    return kernel(y, x, weight, bias, beta, scale, tokens, channels);
}

dynnorm_status dynnorm_dyisru_backward_f32(float *dx, float *dweight, float *dbias, float *dbeta, const float *dy,
                                           const float *x, const float *weight, float beta, float scale, size_t tokens,
                                           size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYISRU;
    plain_call(&call, x, weight, tokens, channels);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.dbeta = dbeta;
    call.beta = beta;
    call.scale = scale;
    return dynnorm_backward(&call);
}
