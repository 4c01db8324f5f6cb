/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The public functions: check the arguments, call the active kernels, combine the sums over tokens.
 */
#include "dispatch/dispatch.h"
#include "dispatch/streaming.h"
#include "rows/floats.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must not be carried out in a wider type");

const char *dynnorm_version(void) {
    return DYNNORM_VERSION_STRING;
}

const char *dynnorm_status_string(dynnorm_status status) {
    switch (status) {
    case DYNNORM_OK:
        return "success";
    case DYNNORM_ERROR_ZERO_CHANNELS:
        return "channels is 0";
    case DYNNORM_ERROR_DESCRIPTOR:
        return "the descriptor is NULL, or its size is unknown to this version of the library";
    case DYNNORM_ERROR_OPERATION:
        return "unknown operation, or one without an output or a bias that was given";
    case DYNNORM_ERROR_MODE:
        return "unknown numerics mode";
    case DYNNORM_ERROR_MODE_UNAVAILABLE:
        return "the numerics mode is not available in this build or on this CPU";
    case DYNNORM_ERROR_TYPE:
        return "unknown or unsupported element type";
    case DYNNORM_ERROR_SIZE_OVERFLOW:
        return "the tensor does not fit the address space";
    case DYNNORM_ERROR_STRIDE:
        return "a row stride is smaller than the channels";
    case DYNNORM_ERROR_EPS:
        return "eps is negative, infinite or NaN";
    case DYNNORM_ERROR_ALPHA:
        return "alpha is infinite or NaN";
    case DYNNORM_ERROR_BETA:
        return "beta is negative, infinite or NaN";
    case DYNNORM_ERROR_SCALE:
        return "scale or weight offset is infinite or NaN";
    case DYNNORM_ERROR_NULL_POINTER:
        return "a required pointer is NULL";
    case DYNNORM_ERROR_OVERLAP:
        return "two buffers overlap that must not";
    case DYNNORM_ERROR_ROW_RANGE:
        return "the range of rows exceeds the tokens, or is not made of whole blocks";
    case DYNNORM_ERROR_WORKSPACE_TOO_SMALL:
        return "the workspace is missing or too small";
    case DYNNORM_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case DYNNORM_ERROR_ISA_UNKNOWN:
        return "unknown instruction set";
    case DYNNORM_ERROR_ISA_UNAVAILABLE:
        return "the instruction set is not available in this build, or on this CPU or operating system";
    }
    return "unknown status";
}

float dynnorm_scale_rmsnorm(size_t channels) {
    return (float)sqrt((double)channels);
}

float dynnorm_scale_layernorm(size_t channels) {
    return channels ? (float)sqrt((double)(channels - 1)) : 0;
}

/* ---- Overlap ---- */

/* A buffer: rows of row_bytes each, stride bytes apart. */
struct buffer {
    const void *data;
    size_t rows;
    size_t row_bytes;
    size_t stride;
};

static int is_empty(struct buffer a) {
    return !a.data || !a.rows;
}

static uintptr_t begin_of(struct buffer a) {
    return (uintptr_t)a.data;
}

static uintptr_t end_of(struct buffer a) {
    return begin_of(a) + (a.rows - 1) * a.stride + a.row_bytes;
}

static int is_one_piece(struct buffer a) {
    return a.rows == 1 || a.stride == a.row_bytes;
}

/* Exact where both have the same stride or one is in one piece; else whether their extents overlap. */
static int overlap(struct buffer a, struct buffer b) {
    if (is_empty(a) || is_empty(b) || end_of(a) <= begin_of(b) || end_of(b) <= begin_of(a))
        return 0;
    if (begin_of(a) > begin_of(b)) {
        struct buffer swap = a;
        a = b;
        b = swap;
    }
    /* b begins within a: in a gap between two of its rows? */
    size_t offset = (begin_of(b) - begin_of(a)) % a.stride;
    size_t piece = is_one_piece(b) ? end_of(b) - begin_of(b) : b.row_bytes;
    int in_gap = offset >= a.row_bytes && piece <= a.stride - offset;
    return is_one_piece(a) || !in_gap || (!is_one_piece(b) && a.stride != b.stride);
}

static int is_same(struct buffer a, struct buffer b) {
    return a.data == b.data && (a.stride == b.stride || a.rows == 1);
}

static struct buffer tensor_buffer(const dynnorm_descriptor *call, dynnorm_tensor tensor) {
    size_t stride = tensor.row_stride ? tensor.row_stride : call->channels;
    return (struct buffer){tensor.data, call->tokens, call->channels * sizeof(float), stride * sizeof(float)};
}

static struct buffer array_buffer(const void *data, size_t count, size_t element) {
    return (struct buffer){data, count ? 1 : 0, count * element, count * element};
}

/* ---- The sums over tokens ---- */

/* Which of them are asked for, and how the workspace holds them: one slot of doubles per block of rows. */
struct sums_layout {
    size_t channels; /* rounded up to whole vectors */
    size_t dweight;  /* where in a slot they begin; SIZE_MAX: not asked for */
    size_t dbias;
    size_t dparameter;
    size_t slot; /* doubles in a slot; 0 where no sum is asked for */
};

static struct sums_layout layout_of(const dynnorm_descriptor *call) {
    struct sums_layout layout = {PARTIAL_SUMS_CHANNELS(call->channels), SIZE_MAX, SIZE_MAX, SIZE_MAX, 0};
    if (call->dweight.data) {
        layout.dweight = layout.slot;
        layout.slot += layout.channels;
    }
    if (call->dbias.data) {
        layout.dbias = layout.slot;
        layout.slot += layout.channels;
    }
    if (call->dalpha || call->dbeta) {
        layout.dparameter = layout.slot;
        layout.slot += PARTIAL_SUMS_CHANNELS(1);
    }
    return layout;
}

static double *part_of(double *slot, size_t part) {
    return !slot || part == SIZE_MAX ? NULL : slot + part;
}

enum { WORKSPACE_ALIGNMENT = 64 };

static double *align_workspace(void *workspace) {
    uintptr_t address = (uintptr_t)workspace;
    return !workspace ? NULL : (double *)((char *)workspace + (-address & (WORKSPACE_ALIGNMENT - 1)));
}

/* Few enough blocks that the workspace stays small against the tensors, enough of them to occupy many threads, each
   large enough that its own sums cost little. */
static size_t block_rows_of(const dynnorm_descriptor *call) {
    enum { MOST_BLOCKS = 128, LEAST_ROWS = 32, LEAST_ELEMENTS = 16384, GROUP = 4 };
    size_t rows = LEAST_ROWS;
    if (rows < LEAST_ELEMENTS / call->channels)
        rows = LEAST_ELEMENTS / call->channels;
    if (rows < call->tokens / MOST_BLOCKS + 1)
        rows = call->tokens / MOST_BLOCKS + 1;
    return (rows + GROUP - 1) / GROUP * GROUP;
}

static size_t blocks_of(const dynnorm_descriptor *call) {
    size_t rows = block_rows_of(call);
    return call->tokens / rows + (call->tokens % rows != 0);
}

static size_t workspace_bytes(const struct sums_layout *layout, size_t slots) {
    return slots && layout->slot ? slots * layout->slot * sizeof(double) + WORKSPACE_ALIGNMENT - 1 : 0;
}

/* The gradients that are sums over tokens, with the factors that the kernels leave out. */
struct token_gradients {
    struct token_gradient of_channels[2]; /* dweight, dbias */
    struct token_gradient parameter;
};

static struct token_gradients gradients_of(const dynnorm_descriptor *call) {
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    double scale = facts->has_scale ? (double)call->scale : 1;
    return (struct token_gradients){
        {{call->dweight.data, scale, call->accumulate_dweight}, {call->dbias.data, 1, call->accumulate_dbias}},
        {dynnorm_parameter_gradient_of(call), facts->parameter_gradient_factor * scale,
         dynnorm_parameter_accumulates(call)},
    };
}

/* are_written: those of the channels are there already. */
static void finish_gradients(const dynnorm_descriptor *call, const struct kernels *kernels,
                             const struct token_gradients *gradients, int are_written, const struct sums_layout *layout,
                             double *workspace, size_t slots) {
    const size_t parts[] = {layout->dweight, layout->dbias};
    for (size_t i = 0; i < 2 && !are_written; i++)
        if (gradients->of_channels[i].values)
            kernels->finish_sums(&gradients->of_channels[i], call->channels, part_of(workspace, parts[i]), slots,
                                 layout->slot);
    if (gradients->parameter.values)
        kernels->finish_sums(&gradients->parameter, 1, part_of(workspace, layout->dparameter), slots, layout->slot);
}

/* ---- Checks ---- */

static int is_nonnegative(float value) {
    return isfinite(value) && value >= 0;
}

/* Operation, mode, types, shape and parameters: all but the buffers. */
static dynnorm_status check_descriptor(const dynnorm_descriptor *call) {
    if (!call || call->size != sizeof *call)
        return DYNNORM_ERROR_DESCRIPTOR;
    if (!call->channels)
        return DYNNORM_ERROR_ZERO_CHANNELS;

    if ((unsigned)call->operation >= OPERATIONS)
        return DYNNORM_ERROR_OPERATION;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    if ((call->mean && !facts->has_mean) || (call->rstd && !facts->has_rstd) ||
        (call->dalpha && facts->parameter_gradient != offsetof(dynnorm_descriptor, dalpha)) ||
        (call->dbeta && facts->parameter_gradient != offsetof(dynnorm_descriptor, dbeta)) ||
        ((call->bias.data || call->dbias.data) && !facts->has_bias))
        return DYNNORM_ERROR_OPERATION;

    if ((unsigned)call->mode >= MODES)
        return DYNNORM_ERROR_MODE;

    const dynnorm_type types[] = {call->x.type,      call->y.type,    call->dy.type,      call->dx.type,
                                  call->weight.type, call->bias.type, call->dweight.type, call->dbias.type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] != DYNNORM_F32)
            return DYNNORM_ERROR_TYPE;

    /* Everything, the workspace included, is to stay addressable as a difference of pointers. */
    const size_t strides[] = {call->x.row_stride, call->y.row_stride, call->dy.row_stride, call->dx.row_stride};
    const size_t most = PTRDIFF_MAX / (4 * sizeof(double));
    if (call->channels > most || (call->tokens && call->channels > most / call->tokens))
        return DYNNORM_ERROR_SIZE_OVERFLOW;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        if (strides[i] && strides[i] < call->channels)
            return DYNNORM_ERROR_STRIDE;
        if (call->tokens && strides[i] > most / call->tokens)
            return DYNNORM_ERROR_SIZE_OVERFLOW;
    }

    if (facts->has_eps && !is_nonnegative(call->eps))
        return DYNNORM_ERROR_EPS;
    if (facts->parameter == offsetof(dynnorm_descriptor, alpha) && !isfinite(call->alpha))
        return DYNNORM_ERROR_ALPHA;
    if (facts->parameter == offsetof(dynnorm_descriptor, beta) && !is_nonnegative(call->beta))
        return DYNNORM_ERROR_BETA;
    if ((facts->has_scale && !isfinite(call->scale)) || (call->weight.data && !isfinite(call->weight_offset)))
        return DYNNORM_ERROR_SCALE;
    return DYNNORM_OK;
}

/* Whether one of the outputs overlaps another buffer. Of the first output, the inputs that it may replace are left out
   where they are the same buffer. */
static int any_overlap(const struct buffer *outputs, size_t output_count, const struct buffer *inputs,
                       size_t input_count, size_t replaceable) {
    for (size_t i = 0; i < output_count; i++) {
        if (is_empty(outputs[i]))
            continue;
        for (size_t j = i + 1; j < output_count; j++)
            if (overlap(outputs[i], outputs[j]))
                return 1;
        for (size_t j = 0; j < input_count; j++)
            if (!(i == 0 && j < replaceable && is_same(outputs[0], inputs[j])) && overlap(outputs[i], inputs[j]))
                return 1;
    }
    return 0;
}

static dynnorm_status check_forward(const dynnorm_descriptor *call) {
    dynnorm_status status = check_descriptor(call);
    if (status)
        return status;
    if (call->tokens && !call->x.data && (call->y.data || call->mean || call->rstd))
        return DYNNORM_ERROR_NULL_POINTER;
    const struct buffer outputs[] = {tensor_buffer(call, call->y),
                                     array_buffer(call->mean, call->tokens, sizeof(float)),
                                     array_buffer(call->rstd, call->tokens, sizeof(float))};
    const struct buffer inputs[] = {tensor_buffer(call, call->x),
                                    array_buffer(call->weight.data, call->channels, sizeof(float)),
                                    array_buffer(call->bias.data, call->channels, sizeof(float))};
    return any_overlap(outputs, 3, inputs, 3, 1) ? DYNNORM_ERROR_OVERLAP : DYNNORM_OK;
}

static dynnorm_status check_backward(const dynnorm_descriptor *call) {
    dynnorm_status status = check_descriptor(call);
    if (status)
        return status;
    struct sums_layout layout = layout_of(call);
    size_t workspace_size = workspace_bytes(&layout, blocks_of(call));
    if (call->tokens && (!call->x.data || !call->dy.data) && (call->dx.data || layout.slot))
        return DYNNORM_ERROR_NULL_POINTER;
    if (call->workspace && call->workspace_size < workspace_size)
        return DYNNORM_ERROR_WORKSPACE_TOO_SMALL;
    const struct buffer outputs[] = {tensor_buffer(call, call->dx),
                                     array_buffer(call->dweight.data, call->channels, sizeof(float)),
                                     array_buffer(call->dbias.data, call->channels, sizeof(float)),
                                     array_buffer(call->dalpha, 1, sizeof(float)),
                                     array_buffer(call->dbeta, 1, sizeof(float)),
                                     array_buffer(call->workspace, workspace_size, 1)};
    const struct buffer inputs[] = {tensor_buffer(call, call->dy), tensor_buffer(call, call->x),
                                    array_buffer(call->weight.data, call->channels, sizeof(float)),
                                    array_buffer(call->mean, call->tokens, sizeof(float)),
                                    array_buffer(call->rstd, call->tokens, sizeof(float))};
    return any_overlap(outputs, 6, inputs, 5, call->accumulate_dx ? 0 : 2) ? DYNNORM_ERROR_OVERLAP : DYNNORM_OK;
}

/* ---- Forward ---- */

static struct tensor tensor_of(const dynnorm_descriptor *call, dynnorm_tensor tensor) {
    size_t stride = tensor.row_stride ? tensor.row_stride : call->channels;
    return (struct tensor){tensor.data, 1, {call->tokens, 1, 1}, {stride, 0, 0}};
}

dynnorm_status dynnorm_forward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    dynnorm_status status = check_forward(call);
    if (status)
        return status;
    if (first_row > call->tokens || rows > call->tokens - first_row)
        return DYNNORM_ERROR_ROW_RANGE;
    forward_kernel *kernel = dynnorm_forward_kernel(dynnorm_active_kernels(), call->operation, call->mode);
    if (!kernel)
        return DYNNORM_ERROR_MODE_UNAVAILABLE;
    if (!rows || (!call->y.data && !call->mean && !call->rstd))
        return DYNNORM_OK;
    const struct forward_arguments arguments = {
        .x = tensor_of(call, call->x),
        .y = tensor_of(call, call->y),
        .mean = call->mean,
        .rstd = call->rstd,
        .weight = call->weight.data,
        .bias = call->bias.data,
        .weight_offset = call->weight_offset,
        .eps = call->eps,
        .parameter = dynnorm_parameter_of(call),
        .scale = call->scale,
        .channels = call->channels,
        .streams = dynnorm_streams_y(call),
    };
    kernel(&arguments, first_row, rows);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_forward(const dynnorm_descriptor *call) {
    return dynnorm_forward_rows(call, 0, call ? call->tokens : 0);
}

/* ---- Backward ---- */

static struct backward_arguments backward_arguments_of(const dynnorm_descriptor *call) {
    return (struct backward_arguments){
        .dy = tensor_of(call, call->dy),
        .x = tensor_of(call, call->x),
        .dx = tensor_of(call, call->dx),
        .weight = call->weight.data,
        .weight_offset = call->weight_offset,
        .mean = call->mean,
        .rstd = call->rstd,
        .eps = call->eps,
        .parameter = dynnorm_parameter_of(call),
        .scale = call->scale,
        .channels = call->channels,
        .accumulate_dx = call->accumulate_dx,
        .streams = dynnorm_streams_dx(call),
    };
}

static struct partial_sums sums_in_slot(const struct sums_layout *layout, double *slot) {
    return (struct partial_sums){part_of(slot, layout->dweight), part_of(slot, layout->dbias),
                                 part_of(slot, layout->dparameter), NULL};
}

/* Rows [first, first + rows), which begin at a block. Each block's sums are left in a slot of its own; or, with
   one_total, all are added up in the first slot, and the second serves for the block at hand. gradients: see struct
   partial_sums. */
static void run_backward(const dynnorm_descriptor *call, const struct kernels *kernels, size_t first, size_t rows,
                         const struct sums_layout *layout, double *workspace, int one_total,
                         const struct token_gradient *gradients) {
    backward_kernel *kernel = dynnorm_backward_kernel(kernels, call->operation, call->mode);
    const struct backward_arguments arguments = backward_arguments_of(call);
    size_t block_rows = block_rows_of(call);
    for (size_t begin = first; begin < first + rows; begin += block_rows) {
        size_t n = first + rows - begin < block_rows ? first + rows - begin : block_rows;
        size_t slot = one_total ? begin > first : begin / block_rows;
        double *values = layout->slot ? workspace + slot * layout->slot : NULL;
        struct partial_sums sums = sums_in_slot(layout, values);
        sums.gradients = gradients;
        kernel(&arguments, begin, n, &sums);
        if (values && one_total && slot)
            kernels->add_sums(workspace, values, layout->slot);
    }
}

/* The checks of a call that runs kernels; and the table that it keeps to, if another thread changes the one in use. */
static dynnorm_status begin_backward(const dynnorm_descriptor *call, const struct kernels **kernels) {
    dynnorm_status status = check_backward(call);
    if (status)
        return status;
    *kernels = dynnorm_active_kernels();
    return dynnorm_backward_kernel(*kernels, call->operation, call->mode) ? DYNNORM_OK : DYNNORM_ERROR_MODE_UNAVAILABLE;
}

dynnorm_status dynnorm_backward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    const struct kernels *kernels;
    dynnorm_status status = begin_backward(call, &kernels);
    if (status)
        return status;
    size_t tokens = call->tokens, block_rows = block_rows_of(call);
    if (first_row > tokens || rows > tokens - first_row)
        return DYNNORM_ERROR_ROW_RANGE;
    if (!rows)
        return DYNNORM_OK;
    if (first_row % block_rows || (rows % block_rows && first_row + rows != tokens))
        return DYNNORM_ERROR_ROW_RANGE;
    struct sums_layout layout = layout_of(call);
    if (layout.slot && !call->workspace)
        return DYNNORM_ERROR_WORKSPACE_TOO_SMALL;
    if (call->dx.data || layout.slot)
        run_backward(call, kernels, first_row, rows, &layout, align_workspace(call->workspace), 0, NULL);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_backward_finish(const dynnorm_descriptor *call) {
    dynnorm_status status = check_backward(call);
    if (status)
        return status;
    struct sums_layout layout = layout_of(call);
    if (!layout.slot)
        return DYNNORM_OK;
    if (call->tokens && !call->workspace)
        return DYNNORM_ERROR_WORKSPACE_TOO_SMALL;
    const struct token_gradients gradients = gradients_of(call);
    finish_gradients(call, dynnorm_active_kernels(), &gradients, 0, &layout, align_workspace(call->workspace),
                     blocks_of(call));
    return DYNNORM_OK;
}

dynnorm_status dynnorm_backward(const dynnorm_descriptor *call) {
    const struct kernels *kernels;
    dynnorm_status status = begin_backward(call, &kernels);
    if (status)
        return status;
    struct sums_layout layout = layout_of(call);
    if (!call->dx.data && !layout.slot)
        return DYNNORM_OK;

    double small_workspace[1024];
    void *workspace = call->workspace, *allocated = NULL;
    if (!workspace) {
        size_t bytes = workspace_bytes(&layout, blocks_of(call) < 2 ? blocks_of(call) : 2);
        workspace = small_workspace;
        if (bytes > sizeof small_workspace) {
            volatile int saved_errno = errno; /* clang takes it that malloc leaves errno alone */
            workspace = allocated = malloc(bytes);
            errno = saved_errno;
            if (!workspace)
                return DYNNORM_ERROR_OUT_OF_MEMORY;
        }
    }
    double *aligned = align_workspace(workspace);
    const struct token_gradients gradients = gradients_of(call);
    int is_one_block = blocks_of(call) == 1;
    run_backward(call, kernels, 0, call->tokens, &layout, aligned, 1, is_one_block ? gradients.of_channels : NULL);
    finish_gradients(call, kernels, &gradients, is_one_block, &layout, aligned, call->tokens != 0);
    if (allocated) {
        int saved_errno = errno;
        free(allocated);
        errno = saved_errno;
    }
    return DYNNORM_OK;
}

dynnorm_status dynnorm_workspace_size(const dynnorm_descriptor *call, size_t *bytes) {
    dynnorm_status status = check_descriptor(call);
    if (status)
        return status;
    if (!bytes)
        return DYNNORM_ERROR_NULL_POINTER;
    struct sums_layout layout = layout_of(call);
    *bytes = workspace_bytes(&layout, blocks_of(call));
    return DYNNORM_OK;
}

dynnorm_status dynnorm_block_rows(const dynnorm_descriptor *call, size_t *rows) {
    dynnorm_status status = check_descriptor(call);
    if (status)
        return status;
    if (!rows)
        return DYNNORM_ERROR_NULL_POINTER;
    *rows = block_rows_of(call);
    return DYNNORM_OK;
}

/* ---- The plain calls ---- */

/* The descriptor's pointers serve for inputs, which are only read, and for outputs. */
static void *input(const float *data) {
    union {
        const float *constant;
        void *variable;
    } pointer = {data};
    return pointer.variable;
}

static dynnorm_descriptor plain_call(dynnorm_operation operation, size_t tokens, size_t channels, const float *x,
                                     const float *weight) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.tokens = tokens;
    call.channels = channels;
    call.x.data = input(x);
    call.weight.data = input(weight);
    return call;
}

static void plain_gradients(dynnorm_descriptor *call, float *dx, float *dweight, float *dbias, const float *dy) {
    call->dx.data = dx;
    call->dweight.data = dweight;
    call->dbias.data = dbias;
    call->dy.data = input(dy);
}

dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                             const float *bias, float eps, size_t tokens, size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_LAYERNORM, tokens, channels, x, weight);
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
    dynnorm_descriptor call = plain_call(DYNNORM_LAYERNORM, tokens, channels, x, weight);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.mean = input(mean);
    call.rstd = input(rstd);
    call.eps = eps;
    return dynnorm_backward(&call);
}

dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight, float eps,
                                           size_t tokens, size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_RMSNORM, tokens, channels, x, weight);
    call.y.data = y;
    call.rstd = rstd;
    call.eps = eps;
    return dynnorm_forward(&call);
}

dynnorm_status dynnorm_rmsnorm_backward_f32(float *dx, float *dweight, const float *dy, const float *x,
                                            const float *weight, const float *rstd, float eps, size_t tokens,
                                            size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_RMSNORM, tokens, channels, x, weight);
    plain_gradients(&call, dx, dweight, NULL, dy);
    call.rstd = input(rstd);
    call.eps = eps;
    return dynnorm_backward(&call);
}

dynnorm_status dynnorm_dyt_forward_f32(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                       float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_DYT, tokens, channels, x, weight);
    call.y.data = y;
    call.bias.data = input(bias);
    call.alpha = alpha;
    call.scale = scale;
    return dynnorm_forward(&call);
}

dynnorm_status dynnorm_dyt_backward_f32(float *dx, float *dweight, float *dbias, float *dalpha, const float *dy,
                                        const float *x, const float *weight, float alpha, float scale, size_t tokens,
                                        size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_DYT, tokens, channels, x, weight);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.dalpha = dalpha;
    call.alpha = alpha;
    call.scale = scale;
    return dynnorm_backward(&call);
}

dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias, float beta,
                                          float scale, size_t tokens, size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_DYISRU, tokens, channels, x, weight);
    call.y.data = y;
    call.bias.data = input(bias);
    call.beta = beta;
    call.scale = scale;
    return dynnorm_forward(&call);
}

dynnorm_status dynnorm_dyisru_backward_f32(float *dx, float *dweight, float *dbias, float *dbeta, const float *dy,
                                           const float *x, const float *weight, float beta, float scale, size_t tokens,
                                           size_t channels) {
    dynnorm_descriptor call = plain_call(DYNNORM_DYISRU, tokens, channels, x, weight);
    plain_gradients(&call, dx, dweight, dbias, dy);
    call.dbeta = dbeta;
    call.beta = beta;
    call.scale = scale;
    return dynnorm_backward(&call);
}
