/* SPDX-License-Identifier: BSD-2-Clause
 *
 * oneDNN's LayerNorm, through the C interface of its version 2, in one thread. oneDNN has no RMSNorm before version 3,
 * and its elementwise operations have no weight. x, y, dy and dx may be of 16 bits where it has that for this CPU; its
 * weights are floats.
 */
#include "peers.h"
#include "tensors.h"

#include "dispatch/dispatch.h"

#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

#include <stdlib.h>

#if DNNL_VERSION_MAJOR != 2
#error "another interface"
#endif

enum { MOST_ARGUMENTS = 9 };

struct prepared {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t arguments[MOST_ARGUMENTS];
    int argument_count;
    int good;
    float *variance;
    float *weight, *bias;
};

static int computes(dynnorm_operation operation, int backward, dynnorm_type type) {
    (void)backward, (void)type;
    return operation == DYNNORM_LAYERNORM;
}

static void add_argument(struct prepared *prepared, int argument, const dnnl_memory_desc_t *description,
                         const void *data) {
    dnnl_memory_t memory = NULL;
    prepared->good &= dnnl_memory_create(&memory, description, prepared->engine, (void *)data) == dnnl_success;
    prepared->arguments[prepared->argument_count++] = (dnnl_exec_arg_t){argument, memory};
}

static void create_primitive(struct prepared *prepared, const dnnl_layer_normalization_desc_t *operation,
                             const dnnl_layer_normalization_desc_t *forward_operation) {
    dnnl_primitive_desc_t hint = NULL, description = NULL;
    if (forward_operation)
        prepared->good &=
            dnnl_primitive_desc_create(&hint, forward_operation, NULL, prepared->engine, NULL) == dnnl_success;
    prepared->good &= dnnl_primitive_desc_create(&description, operation, NULL, prepared->engine, hint) == dnnl_success;
    prepared->good &= dnnl_primitive_create(&prepared->primitive, description) == dnnl_success;
    dnnl_primitive_desc_destroy(description);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
}

static void prepare_forward(struct prepared *prepared, const dynnorm_descriptor *call, const dnnl_memory_desc_t *data,
                            const dnnl_memory_desc_t *statistics, const dnnl_memory_desc_t *vector) {
    dnnl_layer_normalization_desc_t operation;
    prepared->good &=
        dnnl_layer_normalization_forward_desc_init(&operation, dnnl_forward_inference, data, statistics, call->eps,
                                                   dnnl_use_scale | dnnl_use_shift) == dnnl_success;
    create_primitive(prepared, &operation, NULL);
    add_argument(prepared, DNNL_ARG_SRC, data, call->x.data);
    add_argument(prepared, DNNL_ARG_SCALE, vector, prepared->weight);
    add_argument(prepared, DNNL_ARG_SHIFT, vector, prepared->bias);
    add_argument(prepared, DNNL_ARG_DST, data, call->y.data);
}

static void prepare_backward(struct prepared *prepared, const dynnorm_descriptor *call, const dnnl_memory_desc_t *data,
                             const dnnl_memory_desc_t *statistics, const dnnl_memory_desc_t *vector) {
    dnnl_layer_normalization_desc_t forward, operation;
    unsigned flags = dnnl_use_scale | dnnl_use_shift;
    prepared->good &= dnnl_layer_normalization_forward_desc_init(&forward, dnnl_forward_training, data, statistics,
                                                                 call->eps, flags) == dnnl_success;
    prepared->good &= dnnl_layer_normalization_backward_desc_init(&operation, dnnl_backward, data, data, statistics,
                                                                  call->eps, flags) == dnnl_success;
    create_primitive(prepared, &operation, &forward);
    /* Its backward pass takes the variance, where the library takes rstd = 1 / sqrt(variance + eps). */
    prepared->variance = allocate_pages(call->tokens * sizeof(float));
    for (size_t t = 0; t < call->tokens; t++)
        prepared->variance[t] = 1 / (call->rstd[t] * call->rstd[t]) - call->eps;
    add_argument(prepared, DNNL_ARG_SRC, data, call->x.data);
    add_argument(prepared, DNNL_ARG_DIFF_DST, data, call->dy.data);
    add_argument(prepared, DNNL_ARG_MEAN, statistics, call->mean);
    add_argument(prepared, DNNL_ARG_VARIANCE, statistics, prepared->variance);
    add_argument(prepared, DNNL_ARG_SCALE, vector, prepared->weight);
    add_argument(prepared, DNNL_ARG_SHIFT, vector, prepared->weight); /* required, but not used */
    add_argument(prepared, DNNL_ARG_DIFF_SRC, data, call->dx.data);
    add_argument(prepared, DNNL_ARG_DIFF_SCALE, vector, call->dweight.data);
    add_argument(prepared, DNNL_ARG_DIFF_SHIFT, vector, call->dbias.data);
}

static void release(void *context) {
    struct prepared *prepared = context;
    for (int i = 0; i < prepared->argument_count; i++)
        dnnl_memory_destroy(prepared->arguments[i].memory);
    dnnl_primitive_destroy(prepared->primitive);
    dnnl_stream_destroy(prepared->stream);
    dnnl_engine_destroy(prepared->engine);
    free(prepared->variance);
    free(prepared->weight);
    free(prepared->bias);
    free(prepared);
}

static float *floats_of(const dynnorm_vector *vector, size_t count) {
    float *floats = allocate_pages(count * sizeof *floats);
    if (vector->data)
        dynnorm_active_kernels()->conversions[vector->type].widen(floats, vector->data, count);
    return floats;
}

static void *prepare(const dynnorm_descriptor *call, int backward) {
    const dnnl_data_type_t type = call->x.type == DYNNORM_BF16  ? dnnl_bf16
                                  : call->x.type == DYNNORM_F16 ? dnnl_f16
                                                                : dnnl_f32;
    struct prepared *prepared = allocate_pages(sizeof *prepared);
    omp_set_num_threads(1);
    prepared->good = dnnl_engine_create(&prepared->engine, dnnl_cpu, 0) == dnnl_success &&
                     dnnl_stream_create(&prepared->stream, prepared->engine, dnnl_stream_default_flags) == dnnl_success;
    prepared->weight = floats_of(&call->weight, call->channels);
    prepared->bias = floats_of(&call->bias, call->channels);

    dnnl_dim_t tokens = (dnnl_dim_t)call->tokens, channels = (dnnl_dim_t)call->channels;
    dnnl_memory_desc_t data, statistics, vector;
    prepared->good &=
        dnnl_memory_desc_init_by_tag(&data, 2, (dnnl_dims_t){tokens, channels}, type, dnnl_ab) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&statistics, 1, (dnnl_dims_t){tokens}, dnnl_f32, dnnl_a) == dnnl_success &&
        dnnl_memory_desc_init_by_tag(&vector, 1, (dnnl_dims_t){channels}, dnnl_f32, dnnl_a) == dnnl_success;
    if (prepared->good)
        (backward ? prepare_backward : prepare_forward)(prepared, call, &data, &statistics, &vector);
    if (prepared->good)
        return prepared;
    release(prepared);
    return NULL;
}

static void run(void *context) {
    struct prepared *prepared = context;
    dnnl_primitive_execute(prepared->primitive, prepared->stream, prepared->argument_count, prepared->arguments);
    dnnl_stream_wait(prepared->stream);
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
const struct peer peer_onednn = {
    "onednn",
    "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH) ", in one thread",
    computes,
    prepare,
    run,
    release,
};
