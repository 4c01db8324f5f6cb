/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The plain calls, which fill in a descriptor.
 */
#include "dynnorm.h"

#include <float.h>
#include <math.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must not be carried out in a wider type");

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

dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                             const float *bias, float eps, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.mean = mean;
    call.rstd = rstd;
    call.bias.data = input(bias);
    call.eps = eps;
    return dynnorm_forward(&call);
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

dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight, float eps,
                                           size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_RMSNORM;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.rstd = rstd;
    call.eps = eps;
    return dynnorm_forward(&call);
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

dynnorm_status dynnorm_dyt_forward_f32(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                       float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYT;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.bias.data = input(bias);
    call.alpha = alpha;
    call.scale = scale;
    return dynnorm_forward(&call);
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

dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias, float beta,
                                          float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_DYISRU;
    plain_call(&call, x, weight, tokens, channels);
    call.y.data = y;
    call.bias.data = input(bias);
    call.beta = beta;
    call.scale = scale;
    return dynnorm_forward(&call);
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
