/* SPDX-License-Identifier: BSD-2-Clause */
#include "engine_calls.h"
#include "calls.h"
#include "plain_adds.h"
#include "tensors.h"

#include "element_types.h"

#include <math.h>
#include <string.h>

enum { FORWARD = 1, BACKWARD = 2, BOTH = FORWARD | BACKWARD };
enum { F32 = 1 << DYNNORM_F32, BF16 = 1 << DYNNORM_BF16, F16 = 1 << DYNNORM_F16 };

const struct way_facts way_facts[WAYS] = {
    [WAY_CALL] = {"", ENGINE_TYPES | ENGINE_INT8, BOTH, F32 | BF16 | F16, 0},
    [WAY_RESIDUAL] = {"residual", ENGINE_RESIDUAL, BOTH, F32 | BF16, 0},
    [WAY_RESIDUAL_APART] = {"residual_apart", ENGINE_RESIDUAL, BOTH, F32 | BF16, 0},
    [WAY_RESIDUAL_BY_ROWS] = {"residual_by_rows", ENGINE_RESIDUAL, FORWARD, F32 | BF16, 0},
    [WAY_I8_ROWS] = {"i8_rows", ENGINE_INT8, FORWARD, F32 | BF16, 0},
    [WAY_I8_GIVEN] = {"i8_given", ENGINE_INT8, FORWARD, F32 | BF16, 0},
    [WAY_ONE_THREAD] = {"one_thread", ENGINE_EXECUTOR, BOTH, F32 | BF16, 1},
    [WAY_THREADS] = {"threads", ENGINE_EXECUTOR, BOTH, F32 | BF16, 1},
    [WAY_ROW_PLAIN] = {"row_plain", ENGINE_PREPARED, FORWARD, F32, 0},
    [WAY_ROW_DESCRIPTOR] = {"row_descriptor", ENGINE_PREPARED, FORWARD, F32 | BF16, 0},
    [WAY_ROW_PREPARED] = {"row_prepared", ENGINE_PREPARED, FORWARD, F32 | BF16, 0},
};

int way_exists(enum way way, dynnorm_operation operation) {
    return way != WAY_ROW_PLAIN || operation != DYNNORM_CENTERED_DYISRU;
}

size_t way_bytes(enum way way, dynnorm_type type, int backward, struct shape shape) {
    const size_t elements = shape.tokens * shape.channels, bytes = dynnorm_element_bytes(type);
    switch (way) {
    case WAY_RESIDUAL:
    case WAY_RESIDUAL_APART:
    case WAY_RESIDUAL_BY_ROWS:
        return 4 * bytes * elements;
    case WAY_I8_ROWS:
    case WAY_I8_GIVEN:
        return (bytes + 1) * elements;
    default:
        return (backward ? 3 : 2) * bytes * elements;
    }
}

/* ---- What a call needs besides ----------------------------------------------------------------------------------- */

static struct shape shape_of(const dynnorm_descriptor *call) {
    return (struct shape){call->tokens, call->channels};
}

static dynnorm_tensor tensor(const dynnorm_descriptor *call, enum which_tensor which) {
    return (dynnorm_tensor){tensor_of(shape_of(call), call->x.type, which), 0, call->x.type};
}

static void note(struct engine_call *made, dynnorm_status status) {
    if (status)
        made->status = status;
}

static void add_residual(struct engine_call *made) {
    made->norm = made->whole;
    if (made->backward) {
        made->whole.dsum = tensor(&made->whole, TENSOR_RESIDUAL);
    } else {
        made->whole.residual = tensor(&made->whole, TENSOR_RESIDUAL);
        made->whole.sum = tensor(&made->whole, TENSOR_SUM);
        made->norm.x = made->whole.sum;
        made->prepared = (dynnorm_prepared)DYNNORM_PREPARED_INIT;
        note(made, dynnorm_prepare_forward(&made->norm, &made->prepared));
    }
}

/* The greatest |y| that the call can make or, where that depends on x, makes here: a scale from a calibration. */
static float largest_output(struct engine_call *made) {
    float largest = 0;
    dynnorm_descriptor call = made->whole;
    const dynnorm_status status = dynnorm_largest_output(&call, &largest);
    if (status != DYNNORM_ERROR_OPERATION) {
        note(made, status);
        return largest;
    }
    const float *y = tensors_of(shape_of(&call))->output;
    call.y = (dynnorm_tensor){(void *)y, 0, DYNNORM_F32};
    note(made, dynnorm_forward(&call));
    for (size_t i = 0; i < call.tokens * call.channels; i++)
        largest = fmaxf(largest, fabsf(y[i]));
    return largest;
}

static void give_integers(struct engine_call *made) {
    if (made->way == WAY_I8_GIVEN)
        made->whole.y_scale = largest_output(made) / 127;
    else
        made->whole.y_scales = tensors_of(shape_of(&made->whole))->mean; /* forward passes keep no means here */
    made->whole.y = (dynnorm_tensor){tensor_of(shape_of(&made->whole), DYNNORM_I8, TENSOR_OUTPUT), 0, DYNNORM_I8};
}

void engine_prepare(struct engine_call *made, enum way way, int backward) {
    made->way = way;
    made->backward = backward;
    switch (way) {
    case WAY_RESIDUAL:
    case WAY_RESIDUAL_APART:
    case WAY_RESIDUAL_BY_ROWS:
        add_residual(made);
        break;
    case WAY_I8_ROWS:
    case WAY_I8_GIVEN:
        give_integers(made);
        break;
    case WAY_ROW_PREPARED:
        made->prepared = (dynnorm_prepared)DYNNORM_PREPARED_INIT;
        note(made, dynnorm_prepare_forward(&made->whole, &made->prepared));
        break;
    default:
        break;
    }
}

/* ---- Running it -------------------------------------------------------------------------------------------------- */

static void add_apart(struct engine_call *made) {
    const dynnorm_descriptor *whole = &made->whole;
    const size_t elements = whole->tokens * whole->channels;
    if (made->backward) {
        note(made, dynnorm_backward(&made->norm));
        plain_add_to(whole->x.type, whole->dx.data, whole->dsum.data, elements);
    } else {
        plain_add(whole->x.type, whole->sum.data, whole->x.data, whole->residual.data, elements);
        note(made, dynnorm_forward(&made->norm));
    }
}

static void add_by_rows(struct engine_call *made) {
    const dynnorm_descriptor *whole = &made->whole;
    const size_t row = whole->channels * dynnorm_element_bytes(whole->x.type);
    for (size_t t = 0; t < whole->tokens; t++) {
        plain_add(whole->x.type, (char *)whole->sum.data + t * row, (const char *)whole->x.data + t * row,
                  (const char *)whole->residual.data + t * row, whole->channels);
        note(made, dynnorm_forward_prepared(&made->prepared, whole->y.data, whole->sum.data, t, 1, 1));
    }
}

static void call_rows_plainly(struct engine_call *made) {
    const dynnorm_descriptor *call = &made->whole;
    const size_t channels = call->channels;
    const float *x = call->x.data, *weight = call->weight.data, *bias = call->bias.data;
    float *y = call->y.data;
    for (size_t t = 0; t < call->tokens; t++, x += channels, y += channels)
        switch (call->operation) {
        case DYNNORM_LAYERNORM:
            note(made, dynnorm_layernorm_forward_f32(y, NULL, NULL, x, weight, bias, call->eps, 1, channels));
            break;
        case DYNNORM_RMSNORM:
            note(made, dynnorm_rmsnorm_forward_f32(y, NULL, x, weight, call->eps, 1, channels));
            break;
        case DYNNORM_DYT:
            note(made, dynnorm_dyt_forward_f32(y, x, weight, bias, call->alpha, call->scale, 1, channels));
            break;
        case DYNNORM_DYISRU:
            note(made, dynnorm_dyisru_forward_f32(y, x, weight, bias, call->beta, call->scale, 1, channels));
            break;
        case DYNNORM_CENTERED_DYISRU:
            note(made, DYNNORM_ERROR_OPERATION);
            break;
        }
}

void engine_run(void *context) {
    struct engine_call *made = context;
    switch (made->way) {
    case WAY_RESIDUAL_APART:
        add_apart(made);
        break;
    case WAY_RESIDUAL_BY_ROWS:
        add_by_rows(made);
        break;
    case WAY_ROW_PLAIN:
        call_rows_plainly(made);
        break;
    case WAY_ROW_DESCRIPTOR:
        for (size_t t = 0; t < made->whole.tokens; t++)
            note(made, dynnorm_forward_rows(&made->whole, t, 1));
        break;
    case WAY_ROW_PREPARED:
        for (size_t t = 0; t < made->whole.tokens; t++)
            note(made, dynnorm_forward_prepared(&made->prepared, made->whole.y.data, made->whole.x.data, t, 1, 1));
        break;
    default:
        note(made, made->backward ? dynnorm_backward(&made->whole) : dynnorm_forward(&made->whole));
    }
}
