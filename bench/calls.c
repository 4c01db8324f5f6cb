/* SPDX-License-Identifier: BSD-2-Clause */
#include "calls.h"
#include "tensors.h"

#include "operations.h"

#include <string.h>

static struct shape shape_of(const dynnorm_descriptor *call) {
    return (struct shape){call->tokens, call->channels};
}

/* A tensor of the type that the call uses. */
static dynnorm_tensor tensor(const dynnorm_descriptor *call, enum which_tensor which) {
    return (dynnorm_tensor){tensor_of(shape_of(call), call->x.type, which), 0, call->x.type};
}

static dynnorm_vector vector(const dynnorm_descriptor *call, enum which_tensor which) {
    return (dynnorm_vector){tensor_of(shape_of(call), call->x.type, which), call->x.type};
}

dynnorm_descriptor describe_call(dynnorm_operation operation, struct shape shape) {
    const struct tensors *tensors = tensors_of(shape);
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.tokens = shape.tokens;
    call.channels = shape.channels;
    call.x.data = tensors->x;
    call.weight.data = tensors->weight;
    call.eps = 1e-5f;
    call.alpha = 0.5f;
    call.beta = (float)shape.channels;
    /* beta stands for a row's sum of squares: with this scale, y is about as large as x. */
    if (dynnorm_operations[operation].parameter == offsetof(dynnorm_descriptor, beta))
        call.scale = dynnorm_scale_rmsnorm(shape.channels);
    return call;
}

void use_type(dynnorm_descriptor *call, dynnorm_type type) {
    call->x.type = type;
    call->x = tensor(call, TENSOR_X);
    call->weight = vector(call, TENSOR_WEIGHT);
}

void complete_forward(dynnorm_descriptor *call) {
    call->y = tensor(call, TENSOR_OUTPUT);
    if (dynnorm_operations[call->operation].has_bias)
        call->bias = vector(call, TENSOR_BIAS);
}

dynnorm_status complete_backward(dynnorm_descriptor *call) {
    static float parameter_gradient;
    float *address = &parameter_gradient;
    const struct tensors *tensors = tensors_of(shape_of(call));
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    dynnorm_status status = DYNNORM_OK;
    if (facts->has_mean)
        call->mean = tensors->mean;
    if (facts->has_rstd) {
        call->rstd = tensors->rstd;
        status = dynnorm_forward(call);
    }
    call->dy = tensor(call, TENSOR_DY);
    call->dx = tensor(call, TENSOR_OUTPUT);
    call->dweight.data = tensors->dweight;
    if (facts->has_bias)
        call->dbias.data = tensors->dbias;
    if (facts->parameter_gradient != NO_FIELD)
        memcpy((char *)call + facts->parameter_gradient, &address, sizeof address);
    return status;
}
