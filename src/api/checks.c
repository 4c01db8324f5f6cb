/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/checks.h"
#include "api/buffered_forward.h"
#include "element_types.h"
#include "api/descriptor.h"
#include "api/overlap.h"
#include "api/passes.h"
#include "api/sums.h"
#include "api/tensors.h"
#include "inlining.h"
#include "kernels.h"
#include "rows/blocks.h"
#include "rows/floats.h"

#include <math.h>
#include <stddef.h>

#define FIELD(name) offsetof(dynnorm_descriptor, name)

/* ---- What both passes have in common ---- */

/* A call with few rows takes hardly longer than its checks. So these are conditions one after the other, and not tables
   of fields. */
static dynnorm_status check_operation(const dynnorm_descriptor *call, struct mistake *mistake) {
    if ((unsigned)call->operation >= OPERATIONS)
        return DYNNORM_ERROR_OPERATION;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    const char *unused = call->bias.data && !facts->has_bias                            ? "bias"
                         : call->dbias.data && !facts->has_bias                         ? "dbias"
                         : call->mean && !facts->has_mean                               ? "mean"
                         : call->rstd && !facts->has_rstd                               ? "rstd"
                         : call->dalpha && facts->parameter_gradient != FIELD(dalpha)   ? "dalpha"
                         : call->dbeta && facts->parameter_gradient != FIELD(dbeta)     ? "dbeta"
                         : call->alphas.data && facts->parameters != FIELD(alphas)      ? "alphas"
                         : call->betas.data && facts->parameters != FIELD(betas)        ? "betas"
                         : call->parameter_per_channel && facts->parameters == NO_FIELD ? "parameter_per_channel"
                                                                                        : NULL;
    return unused ? found(mistake, DYNNORM_ERROR_UNUSED_BUFFER, "%s is given, but %s does not use it", unused,
                          facts->title)
                  : DYNNORM_OK;
}

static int is_unknown(dynnorm_type type) {
    return (unsigned)type >= TYPES;
}

static dynnorm_status check_types(const dynnorm_descriptor *call, struct mistake *mistake) {
    const int y_is_known = !is_unknown(call->y.type) || call->y.type == DYNNORM_I8;
    const char *other = is_unknown(call->x.type)               ? "x"
                        : !y_is_known                          ? "y"
                        : is_unknown(call->dy.type)            ? "dy"
                        : is_unknown(call->dx.type)            ? "dx"
                        : is_unknown(call->weight.type)        ? "weight"
                        : is_unknown(call->bias.type)          ? "bias"
                        : is_unknown(call->dweight.type)       ? "dweight"
                        : is_unknown(call->dbias.type)         ? "dbias"
                        : is_unknown(call->residual.type)      ? "residual"
                        : is_unknown(call->residual_bias.type) ? "residual_bias"
                        : is_unknown(call->sum.type)           ? "sum"
                        : is_unknown(call->dsum.type)          ? "dsum"
                        : is_unknown(call->alphas.type)        ? "alphas"
                        : is_unknown(call->betas.type)         ? "betas"
                                                               : NULL;
    return other ? found(mistake, DYNNORM_ERROR_TYPE, "%s.type is none of the types that it may have: see dynnorm_type",
                         other, NULL)
                 : DYNNORM_OK;
}

static dynnorm_status check_axes(const dynnorm_descriptor *call, struct mistake *mistake) {
    if (!call->axes) {
        const char *given = call->x_axis_strides          ? "x_axis_strides"
                            : call->y_axis_strides        ? "y_axis_strides"
                            : call->dy_axis_strides       ? "dy_axis_strides"
                            : call->dx_axis_strides       ? "dx_axis_strides"
                            : call->residual_axis_strides ? "residual_axis_strides"
                            : call->sum_axis_strides      ? "sum_axis_strides"
                            : call->dsum_axis_strides     ? "dsum_axis_strides"
                                                          : NULL;
        return given ? found(mistake, DYNNORM_ERROR_AXES, "%s is given, but axes is 0", given, NULL) : DYNNORM_OK;
    }
    if (call->axes > MOST_AXES)
        return found(mistake, DYNNORM_ERROR_AXES, "axes is more than 3", NULL, NULL);
    /* Dividing the tokens by the rows of one axis after the other, so that no product can overflow. */
    size_t left = call->tokens;
    int is_product = 1, has_rows = 1;
    for (size_t axis = 0; axis < call->axes; axis++) {
        size_t rows = call->axis_rows[axis];
        has_rows = has_rows && rows;
        is_product = is_product && (!rows || left % rows == 0);
        left = rows ? left / rows : left;
    }
    is_product = call->tokens ? is_product && has_rows && left == 1 : !has_rows;
    return is_product ? DYNNORM_OK
                      : found(mistake, DYNNORM_ERROR_AXES, "the product of axis_rows is not tokens", NULL, NULL);
}

static int is_nonnegative(float value) {
    return isfinite(value) && value >= 0;
}

/* Whether it can be the operation's alpha or beta. */
static int is_parameter(const dynnorm_descriptor *call, float value) {
    return dynnorm_operations[call->operation].parameter == FIELD(beta) ? is_nonnegative(value) : isfinite(value);
}

static dynnorm_status check_parameters(const dynnorm_descriptor *call) {
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    if (facts->has_eps && !is_nonnegative(call->eps))
        return DYNNORM_ERROR_EPS;
    if (!dynnorm_parameters_of(call).data && !is_parameter(call, dynnorm_parameter_of(call)))
        return facts->parameter == FIELD(alpha) ? DYNNORM_ERROR_ALPHA : DYNNORM_ERROR_BETA;
    if (facts->has_scale && !isfinite(call->scale))
        return DYNNORM_ERROR_SCALE;
    if (call->weight.data && !isfinite(call->weight_offset))
        return DYNNORM_ERROR_WEIGHT_OFFSET;
    return DYNNORM_OK;
}

static dynnorm_status check_executor(const dynnorm_executor *executor, struct mistake *mistake) {
    if (executor->parallel_for)
        return executor->threads ? DYNNORM_OK
                                 : found(mistake, DYNNORM_ERROR_EXECUTOR, "executor.threads is 0", NULL, NULL);
    const char *given = executor->pool             ? "pool"
                        : executor->threads        ? "threads"
                        : executor->least_elements ? "least_elements"
                                                   : NULL;
    return given ? found(mistake, DYNNORM_ERROR_EXECUTOR, "executor.%s is given, but executor.parallel_for is NULL",
                         given, NULL)
                 : DYNNORM_OK;
}

FOR_SIZE static dynnorm_status check_call(const dynnorm_descriptor *call, struct mistake *mistake) {
    if (!call->channels)
        return DYNNORM_ERROR_ZERO_CHANNELS;
    dynnorm_status status = check_operation(call, mistake);
    if (status)
        return status;
    if ((unsigned)call->mode >= MODES)
        return DYNNORM_ERROR_MODE;
    status = check_types(call, mistake);
    if (status)
        return status;
    if (call->channels > MOST_FLOATS || (call->tokens && call->channels > MOST_FLOATS / call->tokens))
        return found(mistake, DYNNORM_ERROR_SIZE_OVERFLOW, "a tensor of tokens x channels exceeds the address space",
                     NULL, NULL);
    status = check_axes(call, mistake);
    if (!status)
        status = check_executor(&call->executor, mistake);
    return status ? status : check_parameters(call);
}

dynnorm_status dynnorm_check_query(const dynnorm_descriptor **call, dynnorm_descriptor *completed,
                                   struct mistake *mistake) {
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(call, completed);
    return status ? status : check_call(*call, mistake);
}

/* ---- A pass ---- */

dynnorm_status dynnorm_read_parameter(const dynnorm_descriptor *call, const struct kernels *kernels, float *parameter,
                                      struct mistake *mistake) {
    const dynnorm_vector vector = dynnorm_parameters_of(call);
    const int is_alpha = dynnorm_operations[call->operation].parameters == FIELD(alphas);
    *parameter = vector.data ? 1 : dynnorm_parameter_of(call);
    if (!vector.data || call->parameter_per_channel || !call->tokens)
        return DYNNORM_OK;
    if (!HAS_TYPES && vector.type != DYNNORM_F32)
        return DYNNORM_ERROR_LEFT_OUT;
    if (HAS_TYPES)
        kernels->conversions[vector.type].widen(parameter, vector.data, 1);
    else
        *parameter = load_float(vector.data);
    if (is_parameter(call, *parameter))
        return DYNNORM_OK;
    return is_alpha
               ? found(mistake, DYNNORM_ERROR_ALPHA, "the element of alphas is infinite or NaN", NULL, NULL)
               : found(mistake, DYNNORM_ERROR_BETA, "the element of betas is negative, infinite or NaN", NULL, NULL);
}

/* The vector of alphas or betas. */
static struct buffer parameter_vector(const dynnorm_descriptor *call) {
    const dynnorm_vector vector = dynnorm_parameters_of(call);
    return dynnorm_buffer_in_one_piece(dynnorm_operations[call->operation].parameters == FIELD(alphas) ? "alphas"
                                                                                                       : "betas",
                                       vector.data, dynnorm_parameter_count(call) * dynnorm_element_bytes(vector.type));
}

static dynnorm_status check_presence_of_parameters(const dynnorm_descriptor *call, struct mistake *mistake) {
    if (!call->parameter_per_channel || !call->tokens || dynnorm_parameters_of(call).data)
        return DYNNORM_OK;
    return found(mistake, DYNNORM_ERROR_NULL_POINTER, "%s is NULL, and parameter_per_channel needs it",
                 parameter_vector(call).name, NULL);
}

static dynnorm_status place_rows(const dynnorm_descriptor *call, const char *name, const dynnorm_tensor *described,
                                 const size_t *axis_strides, struct tensor *tensor, struct mistake *mistake) {
    return dynnorm_place_rows(call, described, axis_strides, tensor)
               ? DYNNORM_OK
               : found(mistake, DYNNORM_ERROR_SIZE_OVERFLOW, "with its strides %s exceeds the address space", name,
                       NULL);
}

static struct buffer vector(const char *name, const dynnorm_vector *described, size_t channels) {
    return dynnorm_buffer_in_one_piece(name, described->data, channels * dynnorm_element_bytes(described->type));
}

static struct buffer floats(const char *name, const float *data, size_t count) {
    return dynnorm_buffer_in_one_piece(name, data, count * sizeof(float));
}

/* The sums of rows that are split: those of the part that are written, or of all parts, which are read. */
static struct buffer sums_of_split(const struct split_rows *split, size_t doubles_of_block, int tells) {
    if (!split || split->tells != tells)
        return dynnorm_buffer_in_one_piece("sums", NULL, 0);
    const size_t doubles = split->tokens * doubles_of_block;
    const size_t first = tells ? split->first_block : 0;
    const size_t blocks = tells ? SUMMED_BLOCKS(split->channels[split->part]) : split->blocks;
    return dynnorm_buffer_in_one_piece("sums", split->sums + first * doubles, blocks * doubles * sizeof(double));
}

struct buffers {
    const struct buffer *outputs; /* tensors first; at the end the workspace, if there is one */
    size_t output_tensors;
    size_t output_count; /* without the workspace */
    size_t workspace_count;
    const struct buffer *inputs; /* those that the pass needs; then other tensors; then the rest */
    size_t needed_count;
    size_t input_tensors;
    size_t input_count;
    int may_be_in_place; /* whether an output tensor may take the place of an input tensor */
    int come_later;      /* whether the first output and the inputs that are needed are given later */
};

/* There must be at least one output, and the inputs that it needs. */
static dynnorm_status check_presence(const struct buffers *buffers, struct mistake *mistake) {
    size_t asked = 0;
    while (asked < buffers->output_count && !buffers->outputs[asked].begin)
        asked++;
    if (asked == buffers->output_count)
        return found(mistake, DYNNORM_ERROR_NO_OUTPUT, "%s is NULL, and so are all other outputs",
                     buffers->outputs[0].name, NULL);
    for (size_t i = 0; i < buffers->needed_count; i++)
        if (!buffers->inputs[i].begin)
            return found(mistake, DYNNORM_ERROR_NULL_POINTER, "%s is NULL, and a pass that computes %s needs it",
                         buffers->inputs[i].name, buffers->outputs[asked].name);
    return DYNNORM_OK;
}

/* Whether the extent of an output meets that of another buffer. Nearly every call has no such output, and is done with
   this. */
static inline int some_extents_meet(const struct buffers *buffers) {
    const struct buffer *outputs = buffers->outputs, *inputs = buffers->inputs;
    const size_t output_count = buffers->output_count + buffers->workspace_count;
    int meet = 0;
    for (size_t i = 0; i < output_count; i++) {
        if (!outputs[i].begin)
            continue;
        for (size_t j = i + 1; j < output_count; j++)
            meet |= (outputs[i].begin < outputs[j].end) & (outputs[j].begin < outputs[i].end);
        for (size_t j = 0; j < buffers->input_count; j++)
            meet |= (outputs[i].begin < inputs[j].end) & (inputs[j].begin < outputs[i].end);
    }
    return meet;
}

/* An output must not overlap another buffer, unless it is computed in place of an input. */
RARE dynnorm_status check_overlap(const struct buffers *buffers, struct mistake *mistake) {
    const struct buffer *outputs = buffers->outputs, *inputs = buffers->inputs;
    size_t output_count = buffers->output_count + buffers->workspace_count;
    for (size_t i = 0; i < output_count; i++) {
        if (!outputs[i].begin)
            continue;
        for (size_t j = i + 1; j < output_count; j++)
            if (dynnorm_overlap(&outputs[i], &outputs[j]))
                return found(mistake, DYNNORM_ERROR_OVERLAP, "%s overlaps %s", outputs[i].name, outputs[j].name);
        for (size_t j = 0; j < buffers->input_count; j++) {
            if (!dynnorm_overlap(&outputs[i], &inputs[j]))
                continue;
            const int are_tensors = i < buffers->output_tensors && j < buffers->input_tensors;
            const int is_in_place = are_tensors && dynnorm_same_rows(outputs[i].tensor, inputs[j].tensor);
            if (!is_in_place && are_tensors && outputs[i].begin == inputs[j].begin)
                return found(mistake, DYNNORM_ERROR_OVERLAP,
                             "%s begins where %s does, but its rows lie elsewhere or its elements have another size",
                             outputs[i].name, inputs[j].name);
            if (!is_in_place)
                return found(mistake, DYNNORM_ERROR_OVERLAP, "%s overlaps %s", outputs[i].name, inputs[j].name);
            if (!buffers->may_be_in_place)
                return found(mistake, DYNNORM_ERROR_OVERLAP, "%s, which is added to, is in the place of %s",
                             outputs[i].name, inputs[j].name);
        }
    }
    return DYNNORM_OK;
}

static inline dynnorm_status check_buffers(const dynnorm_descriptor *call, const struct buffers *buffers,
                                           struct mistake *mistake) {
    dynnorm_status status = call->tokens && !buffers->come_later ? check_presence(buffers, mistake) : DYNNORM_OK;
    if (status)
        return status;
    for (size_t i = 0; i < buffers->output_tensors; i++) {
        struct buffer rows = buffers->outputs[i];
        if (i == 0 && buffers->come_later)
            rows.begin = 1; /* they overlap one another or not, wherever they lie */
        if (dynnorm_rows_overlap(&rows))
            return found(mistake, DYNNORM_ERROR_STRIDE, "rows of %s overlap one another", rows.name, NULL);
    }
    return some_extents_meet(buffers) ? check_overlap(buffers, mistake) : DYNNORM_OK;
}

static dynnorm_status check_y_scale(const dynnorm_descriptor *call, struct mistake *mistake) {
    const float least_scale = 0x1p-120f;
    if (call->y_scale == 0 || (isfinite(call->y_scale) && call->y_scale >= least_scale))
        return DYNNORM_OK;
    return found(mistake, DYNNORM_ERROR_OUTPUT_SCALE, "y_scale is not a finite number of at least 2^-120", NULL, NULL);
}

/* What a residual needs, and the scales of integers. */
static dynnorm_status check_surroundings(const dynnorm_descriptor *call, struct mistake *mistake) {
    const int scales = (call->y_scale != 0) + (call->y_scales != NULL);
    if (!call->residual.data && call->sum.data)
        return found(mistake, DYNNORM_ERROR_NULL_POINTER, "residual is NULL, and %s needs it", "sum", NULL);
    if (!call->residual.data && call->residual_bias.data)
        return found(mistake, DYNNORM_ERROR_NULL_POINTER, "residual is NULL, and %s needs it", "residual_bias", NULL);
    if (call->y.type != DYNNORM_I8)
        return scales ? found(mistake, DYNNORM_ERROR_OUTPUT_SCALE, "%s is given, but y is not of DYNNORM_I8",
                              call->y_scales ? "y_scales" : "y_scale", NULL)
                      : DYNNORM_OK;
    if (call->y.data && scales != 1)
        return found(mistake, DYNNORM_ERROR_OUTPUT_SCALE,
                     "y is of DYNNORM_I8, which needs one of y_scale and y_scales, and not both", NULL, NULL);
    return call->y_scales && !call->y.data
               ? found(mistake, DYNNORM_ERROR_NULL_POINTER, "y is NULL, and y_scales needs it", NULL, NULL)
               : DYNNORM_OK;
}

FOR_SIZE dynnorm_status dynnorm_check_forward(const dynnorm_descriptor *call, int is_prepared,
                                              struct forward_pass *pass, struct mistake *mistake) {
    struct forward_arguments *arguments = &pass->arguments;
    dynnorm_status status = check_call(call, mistake);
    if (!status)
        status = check_y_scale(call, mistake);
    if (!status && call->tokens)
        status = check_surroundings(call, mistake);
    if (!status)
        status = check_presence_of_parameters(call, mistake);
    if (!status)
        status = place_rows(call, "x", &call->x, call->x_axis_strides, &arguments->x, mistake);
    if (!status)
        status = place_rows(call, "y", &call->y, call->y_axis_strides, &arguments->y, mistake);
    if (!HAS_TYPES) {
        status = status ? status : dynnorm_forward_is_buffered(call) ? DYNNORM_ERROR_LEFT_OUT : DYNNORM_OK;
        pass->residual = pass->sum = (struct tensor){.data = NULL};
    }
    if (HAS_TYPES && !status)
        status = place_rows(call, "residual", &call->residual, call->residual_axis_strides, &pass->residual, mistake);
    if (HAS_TYPES && !status)
        status = place_rows(call, "sum", &call->sum, call->sum_axis_strides, &pass->sum, mistake);
    if (status)
        return status;
    if (is_prepared)
        arguments->x.data = arguments->y.data = NULL;
    const size_t split_doubles = FORWARD_SPLIT_DOUBLES(dynnorm_operations[call->operation].has_mean);
    const struct buffer outputs[] = {
        dynnorm_buffer_of_tensor("y", &arguments->y, call->channels),
        dynnorm_buffer_of_tensor("sum", &pass->sum, call->channels),
        floats("mean", call->mean, call->tokens),
        floats("rstd", call->rstd, call->tokens),
        floats("y_scales", call->y_scales, call->tokens),
        sums_of_split(arguments->split, split_doubles, 1),
    };
    const struct buffer inputs[] = {
        dynnorm_buffer_of_tensor("x", &arguments->x, call->channels),
        dynnorm_buffer_of_tensor("residual", &pass->residual, call->channels),
        vector("weight", &call->weight, call->channels),
        vector("bias", &call->bias, call->channels),
        vector("residual_bias", &call->residual_bias, call->channels),
        parameter_vector(call),
        sums_of_split(arguments->split, split_doubles, 0),
    };
    const struct buffers buffers = {outputs, 2, 6, 0, inputs, 1, 2, 7, 1, is_prepared};
    return check_buffers(call, &buffers, mistake);
}

/* Backward takes the sum as x. A descriptor with a residual serves both passes if the sum is where x is. */
static dynnorm_status check_residual_of_backward(const dynnorm_descriptor *call, const struct tensor *x,
                                                 struct mistake *mistake) {
    const char *given = call->residual.data        ? "residual"
                        : call->residual_bias.data ? "residual_bias"
                        : call->sum.data           ? "sum"
                                                   : NULL;
    struct tensor sum;
    if (!given)
        return DYNNORM_OK;
    if (call->sum.data && call->sum.type == call->x.type &&
        dynnorm_place_rows(call, &call->sum, call->sum_axis_strides, &sum) && dynnorm_same_rows(&sum, x))
        return DYNNORM_OK;
    if (!call->sum.data)
        return found(mistake, DYNNORM_ERROR_RESIDUAL,
                     "%s is given, but sum is NULL: have forward write it, and set x to it", given, NULL);
    return found(mistake, DYNNORM_ERROR_RESIDUAL,
                 "%s is given, but x is not the sum, which is what was normalized: set x to it, and its type and "
                 "strides to those of sum",
                 given, NULL);
}

FOR_SIZE dynnorm_status dynnorm_check_backward(const dynnorm_descriptor *call, struct backward_pass *pass,
                                               struct mistake *mistake) {
    struct backward_arguments *arguments = &pass->arguments;
    dynnorm_status status = check_call(call, mistake);
    if (!status)
        status = check_presence_of_parameters(call, mistake);
    if (!status)
        status = place_rows(call, "dy", &call->dy, call->dy_axis_strides, &arguments->dy, mistake);
    if (!status)
        status = place_rows(call, "x", &call->x, call->x_axis_strides, &arguments->x, mistake);
    if (!status)
        status = place_rows(call, "dx", &call->dx, call->dx_axis_strides, &arguments->dx, mistake);
    if (!status)
        status = place_rows(call, "dsum", &call->dsum, call->dsum_axis_strides, &pass->dsum, mistake);
    if (!status && call->tokens)
        status = check_residual_of_backward(call, &arguments->x, mistake);
    if (status)
        return status;
    struct sums_layout layout = dynnorm_sums_layout(call);
    size_t workspace_bytes = dynnorm_workspace_bytes(&layout, dynnorm_blocks(call));
    if (call->workspace && call->workspace_size < workspace_bytes)
        return DYNNORM_ERROR_WORKSPACE_TOO_SMALL;
    const size_t split_doubles = BACKWARD_SPLIT_DOUBLES(dynnorm_operations[call->operation].has_mean);
    const struct buffer outputs[] = {
        dynnorm_buffer_of_tensor("dx", &arguments->dx, call->channels),
        vector("dweight", &call->dweight, call->channels),
        vector("dbias", &call->dbias, call->channels),
        floats("dalpha", call->dalpha, dynnorm_parameter_count(call)),
        floats("dbeta", call->dbeta, dynnorm_parameter_count(call)),
        sums_of_split(arguments->split, split_doubles, 1),
        dynnorm_buffer_in_one_piece("workspace", call->workspace, workspace_bytes),
    };
    const struct buffer inputs[] = {
        dynnorm_buffer_of_tensor("dy", &arguments->dy, call->channels),
        dynnorm_buffer_of_tensor("x", &arguments->x, call->channels),
        dynnorm_buffer_of_tensor("dsum", &pass->dsum, call->channels),
        vector("weight", &call->weight, call->channels),
        floats("mean", call->mean, call->tokens),
        floats("rstd", call->rstd, call->tokens),
        parameter_vector(call),
        sums_of_split(arguments->split, split_doubles, 0),
    };
    const struct buffers buffers = {outputs, 1, 6, 1, inputs, 2, 3, 8, !call->accumulate_dx, 0};
    status = check_buffers(call, &buffers, mistake);
    return !status && call->tokens && call->dsum.data && !call->dx.data
               ? found(mistake, DYNNORM_ERROR_NULL_POINTER, "dx is NULL, and dsum needs it", NULL, NULL)
               : status;
}
