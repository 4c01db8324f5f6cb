/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The plain calls, which fill in a descriptor. The arithmetic of few tokens takes less time than that. So forward calls
 * with these are checked here, unless anything about them is unusual, and go straight to a kernel; with one token, to a
 * kernel for one row.
 */
#include "api/few_rows.h"
#include "api/passes.h"
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
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

/* ---- Few tokens ---- */

/* The operations that have a kernel for one row. A call of one that is left out is not looked at here. */
enum { ROW_OF_layernorm = 1, ROW_OF_rmsnorm = 2, ROW_OF_dyt = 4, ROW_OF_dyisru = 8 };
#define ONE_ROW(operation, define) | ROW_OF_##operation
enum {
    ROWS_AT_HAND = 0
#include "kernels.def"
};
#define HAS_ROW_OF(operation) ((ROWS_AT_HAND & ROW_OF_##operation) != 0)

/* Where code is to be small, calls with one token alone are spared the descriptor. */
#ifdef DYNNORM_WITHOUT_SPECIAL_LOOPS
enum { SPARES_FEW_ROWS = 0 };
#else
enum { SPARES_FEW_ROWS = 1 };
#endif

/* What all operations have in common. */
INLINE int are_usual_rows(const float *y, const float *x, const float *weight, size_t tokens, size_t channels) {
    const size_t bytes = channels * sizeof(float), all = tokens * bytes;
    return (int)(channels - 1 < MOST_FLOATS) & (int)(y != NULL) & (int)(x != NULL) & (int)(weight != NULL) &
           ((int)(y == x) | (int)!meet(y, all, x, all)) & (int)!meet(y, all, weight, bytes);
}

/* What some have besides. A statistic that is absent lies at 0, where no row does. */
INLINE int is_usual_statistic(const float *statistic, const float *y, const float *x, const float *weight,
                              size_t tokens, size_t channels) {
    const size_t bytes = channels * sizeof(float), all = tokens * bytes, of_rows = tokens * sizeof(float);
    return (int)!meet(statistic, of_rows, y, all) & (int)!meet(statistic, of_rows, x, all) &
           (int)!meet(statistic, of_rows, weight, bytes);
}

INLINE int are_usual_statistics(const float *mean, const float *rstd, const float *y, const float *x,
                                const float *weight, size_t tokens, size_t channels) {
    const size_t of_rows = tokens * sizeof(float);
    return is_usual_statistic(mean, y, x, weight, tokens, channels) &
           is_usual_statistic(rstd, y, x, weight, tokens, channels) &
           ((int)(mean == NULL) | (int)!meet(mean, of_rows, rstd, of_rows));
}

INLINE int is_usual_bias(const float *bias, const float *y, size_t tokens, size_t channels) {
    const size_t bytes = channels * sizeof(float);
    return (int)(bias != NULL) & (int)!meet(y, tokens * bytes, bias, bytes);
}

INLINE int are_apart_from_bias(const float *mean, const float *rstd, const float *bias, size_t tokens,
                               size_t channels) {
    const size_t bytes = channels * sizeof(float), of_rows = tokens * sizeof(float);
    return (int)!meet(mean, of_rows, bias, bytes) & (int)!meet(rstd, of_rows, bias, bytes);
}

/* Begins to fetch what the kernel needs. On a cold call this goes on while the code is fetched. */
INLINE void fetch_row(const float *y, const float *x, const float *weight) {
    __builtin_prefetch(x);
    __builtin_prefetch(weight);
    __builtin_prefetch(y, 1);
}

/* Whether there are so few elements that nobody wants them past the caches. */
INLINE int are_few(size_t tokens, size_t channels) {
    enum { MOST_TOKENS = 1 << 12 }; /* lest the product overflows */
    return tokens - 1 < MOST_TOKENS && channels - 1 < FEW_ELEMENTS && tokens * channels <= FEW_ELEMENTS;
}

static void set_plain_tensor(struct tensor *tensor, float *data, size_t tokens, size_t channels) {
    tensor->data = data;
    tensor->element_bytes = sizeof(float);
    tensor->axes = 1;
    tensor->rows[0] = tokens;
    tensor->strides[0] = channels;
}

/* What a kernel takes of a plain call, but for what only some operations have. Field by field: a compiler may set a
 * whole structure to 0 by an instruction that takes longer than a row. */
OUTLINED void set_plain_arguments(struct forward_arguments *arguments, float *y, const float *x, const float *weight,
                                  size_t tokens, size_t channels) {
    set_plain_tensor(&arguments->x, input(x), tokens, channels);
    set_plain_tensor(&arguments->y, y, tokens, channels);
    arguments->mean = arguments->rstd = NULL;
    arguments->weight = weight;
    arguments->bias = NULL;
    arguments->weight_offset = arguments->eps = arguments->parameter = arguments->scale = 0;
    arguments->parameters = NULL;
    arguments->channels = channels;
    arguments->streams = arguments->rows_are_far = 0;
    arguments->fetches_to_write = 0; /* few elements are near */
    arguments->nearest_is_large = HAS_ROWS_ONE_BY_ONE && dynnorm_nearest_cache_is_large();
    arguments->avoids_subnormals = dynnorm_subnormals_are_slow();
    arguments->rows_behind = 0;
    arguments->split = NULL;
    arguments->split_row = 0;
    arguments->summed = NULL;
}

/* Whether the call is right, and nobody wants y past the caches. Mostly nobody asks for the statistics. */
static int is_usual_call(dynnorm_operation operation, const struct forward_arguments *of, size_t tokens) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    const size_t channels = of->channels;
    const float *x = of->x.data, *y = of->y.data, *weight = of->weight, *bias = of->bias;
    const int is_beta = facts->parameter == offsetof(dynnorm_descriptor, beta), has_no_bias = !facts->has_bias;
    if (!are_few(tokens, channels))
        return 0;
    int is_usual = is_finite_and_not_negative(of->eps) & is_finite(of->scale) &
                   (is_beta ? is_finite_and_not_negative(of->parameter) : is_finite(of->parameter)) &
                   are_usual_rows(y, x, weight, tokens, channels) &
                   (has_no_bias | is_usual_bias(bias, y, tokens, channels));
    if (of->mean || of->rstd)
        is_usual &= are_usual_statistics(of->mean, of->rstd, y, x, weight, tokens, channels) &
                    (has_no_bias | are_apart_from_bias(of->mean, of->rstd, bias, tokens, channels));
    return is_usual;
}

OUTLINED dynnorm_status forward_by_descriptor(dynnorm_operation operation, const struct forward_arguments *of,
                                              size_t tokens) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    plain_call(&call, of->x.data, of->weight, tokens, of->channels);
    call.y.data = of->y.data;
    call.mean = of->mean;
    call.rstd = of->rstd;
    call.bias.data = input(of->bias);
    call.eps = of->eps;
    call.alpha = call.beta = of->parameter;
    call.scale = of->scale;
    return dynnorm_forward_any(&call);
}

/* Nonzero if the call was usual, and has been done. What a kernel takes besides is not looked at. */
OUTLINED int forward_usual_call(dynnorm_operation operation, dynnorm_mode mode, const struct forward_arguments *of,
                                size_t tokens) {
    forward_kernel *kernel = NULL;
    if (SPARES_FEW_ROWS && is_usual_call(operation, of, tokens))
        kernel = dynnorm_forward_kernel(dynnorm_active_kernels(), operation, mode);
    if (kernel)
        kernel(of, 0, tokens);
    return kernel != NULL;
}

/* Any plain forward call. */
OUTLINED dynnorm_status forward(dynnorm_operation operation, const struct forward_arguments *of, size_t tokens) {
    return forward_usual_call(operation, DYNNORM_PORTABLE, of, tokens) ? DYNNORM_OK
                                                                       : forward_by_descriptor(operation, of, tokens);
}

dynnorm_status dynnorm_forward_few_native_rows(const dynnorm_descriptor *call) {
    struct forward_arguments arguments;
    if ((call->operation != DYNNORM_DYT && call->operation != DYNNORM_DYISRU) || call->mode != DYNNORM_NATIVE ||
        call->mean || call->rstd)
        return dynnorm_forward_any(call);
    set_plain_arguments(&arguments, call->y.data, call->x.data, call->weight.data, call->tokens, call->channels);
    arguments.bias = call->bias.data;
    arguments.parameter = dynnorm_parameter_of(call);
    arguments.scale = call->scale;
    return forward_usual_call(call->operation, call->mode, &arguments, call->tokens) ? DYNNORM_OK
                                                                                     : dynnorm_forward_any(call);
}

/* ---- LayerNorm ---- */

NOT_INLINED dynnorm_status dynnorm_layernorm_any(float *y, float *mean, float *rstd, const float *x,
                                                 const float *weight, const float *bias, float eps, size_t tokens,
                                                 size_t channels) {
    struct forward_arguments arguments;
    set_plain_arguments(&arguments, y, x, weight, tokens, channels);
    arguments.mean = mean;
    arguments.rstd = rstd;
    arguments.bias = bias;
    arguments.eps = eps;
    return forward(DYNNORM_LAYERNORM, &arguments, tokens);
}

FIRST_OF_ONE_TOKEN
dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                             const float *bias, float eps, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = HAS_ROW_OF(layernorm) & (tokens == 1) & is_finite_and_not_negative(eps) &
                   are_usual_rows(y, x, weight, 1, channels) & is_usual_bias(bias, y, 1, channels);
    if (mean || rstd)
        is_usual &= are_usual_statistics(mean, rstd, y, x, weight, 1, channels) &
                    are_apart_from_bias(mean, rstd, bias, 1, channels);
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

NOT_INLINED dynnorm_status dynnorm_rmsnorm_any(float *y, float *rstd, const float *x, const float *weight, float eps,
                                               size_t tokens, size_t channels) {
    struct forward_arguments arguments;
    set_plain_arguments(&arguments, y, x, weight, tokens, channels);
    arguments.rstd = rstd;
    arguments.eps = eps;
    return forward(DYNNORM_RMSNORM, &arguments, tokens);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight, float eps,
                                           size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    int is_usual = HAS_ROW_OF(rmsnorm) & (tokens == 1) & is_finite_and_not_negative(eps) &
                   are_usual_rows(y, x, weight, 1, channels) & is_usual_statistic(rstd, y, x, weight, 1, channels);
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

NOT_INLINED dynnorm_status dynnorm_dyt_any(float *y, const float *x, const float *weight, const float *bias,
                                           float alpha, float scale, size_t tokens, size_t channels) {
    struct forward_arguments arguments;
    set_plain_arguments(&arguments, y, x, weight, tokens, channels);
    arguments.bias = bias;
    arguments.parameter = alpha;
    arguments.scale = scale;
    return forward(DYNNORM_DYT, &arguments, tokens);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_dyt_forward_f32(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                       float scale, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = HAS_ROW_OF(dyt) & (tokens == 1) & is_finite(alpha) & is_finite(scale) &
                   are_usual_rows(y, x, weight, 1, channels) & is_usual_bias(bias, y, 1, channels);
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

NOT_INLINED dynnorm_status dynnorm_dyisru_any(float *y, const float *x, const float *weight, const float *bias,
                                              float beta, float scale, size_t tokens, size_t channels) {
    struct forward_arguments arguments;
    set_plain_arguments(&arguments, y, x, weight, tokens, channels);
    arguments.bias = bias;
    arguments.parameter = beta;
    arguments.scale = scale;
    return forward(DYNNORM_DYISRU, &arguments, tokens);
}

OF_ONE_TOKEN
dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias, float beta,
                                          float scale, size_t tokens, size_t channels) {
    fetch_row(y, x, weight);
    __builtin_prefetch(bias);
    int is_usual = HAS_ROW_OF(dyisru) & (tokens == 1) & is_finite_and_not_negative(beta) & is_finite(scale) &
                   are_usual_rows(y, x, weight, 1, channels) & is_usual_bias(bias, y, 1, channels);
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
