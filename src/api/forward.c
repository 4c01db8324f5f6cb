/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass.
 */
#include "api/buffered_forward.h"
#include "api/halves.h"
#include "api/descriptor.h"
#include "api/few_rows.h"
#include "api/memory.h"
#include "api/passes.h"
#include "api/residual.h"
#include "api/tasks.h"
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"
#include "inlining.h"
#include "rows/floats.h"

#include <math.h>

/* The call's descriptor is of this version. */
static dynnorm_status begin(const dynnorm_descriptor *call, int is_prepared, const struct split_rows *split,
                            struct forward_pass *pass, struct mistake *mistake) {
    struct forward_arguments *arguments = &pass->arguments;
    arguments->split = split;
    arguments->split_row = 0;
    arguments->summed = NULL;
    dynnorm_status status = dynnorm_check_forward(call, is_prepared, pass, mistake);
    if (status)
        return status;
    pass->call = call;
    const struct kernels *kernels = pass->kernels = dynnorm_active_kernels();
    pass->is_buffered = HAS_TYPES && dynnorm_forward_is_buffered(call);
    pass->kernel = dynnorm_forward_kernel(kernels, call->operation, call->mode);
    arguments->rows_behind = 0;
    pass->halves_kernel = pass->is_buffered && !split && dynnorm_forward_is_fused(call)
                              ? dynnorm_halves_kernel(kernels, call->operation, dynnorm_mode_of_halves(call))
                              : NULL;
    arguments->mean = call->mean;
    arguments->rstd = call->rstd;
    arguments->weight = call->weight.data;
    arguments->bias = call->bias.data;
    arguments->weight_offset = call->weight_offset;
    arguments->eps = call->eps;
    arguments->parameter = dynnorm_parameter_of(call);
    arguments->parameters = call->parameter_per_channel ? dynnorm_parameters_of(call).data : NULL;
    arguments->scale = call->scale;
    arguments->channels = call->channels;
    /* The loops for split rows store parts of lines by way of buffers, which is slow. */
    arguments->streams =
        dynnorm_streams_y(call, &arguments->y) && (!split || rows_are_aligned(&arguments->y, STREAM_ALIGNMENT));
    arguments->rows_are_far = dynnorm_rows_are_far(call, &arguments->y, call->tokens);
    arguments->fetches_to_write = dynnorm_fetches_to_write();
    arguments->nearest_is_large = HAS_ROWS_ONE_BY_ONE && dynnorm_nearest_cache_is_large();
    arguments->avoids_subnormals = dynnorm_subnormals_are_slow();
    pass->streams_sum = HAS_TYPES && dynnorm_sum_goes_past_caches(pass, call->tokens);
    if (pass->kernel) /* a prepared call reads the parameter whenever it is run */
        return is_prepared ? DYNNORM_OK : dynnorm_read_parameter(call, kernels, &arguments->parameter, mistake);
    return kernels->forward[call->operation][DYNNORM_PORTABLE] ? DYNNORM_ERROR_MODE_UNAVAILABLE
                                                               : DYNNORM_ERROR_LEFT_OUT;
}

dynnorm_status dynnorm_begin_forward(const dynnorm_descriptor *call, const struct split_rows *split,
                                     struct forward_pass *pass, struct mistake *mistake) {
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(&call, &pass->completed);
    return status ? status : begin(call, 0, split, pass, mistake);
}

dynnorm_status dynnorm_begin_prepared(const dynnorm_descriptor *call, struct forward_pass *pass,
                                      struct mistake *mistake) {
    static float anywhere; /* x and y will be given, but where they are is not known yet */
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(&call, &pass->completed);
    if (status)
        return status;
    if (call != &pass->completed)
        pass->completed = *call;
    pass->completed.x.data = pass->completed.y.data = &anywhere;
    return begin(&pass->completed, 1, NULL, pass, mistake);
}

static void run_in(const struct forward_pass *pass, void *buffers, size_t first, size_t rows) {
    if (HAS_TYPES && pass->is_buffered)
        dynnorm_buffered_forward(pass, buffers, first, rows);
    else
        pass->kernel(&pass->arguments, first, rows);
}

/* With its own buffers, if it needs any. */
static dynnorm_status run_buffered(const struct forward_pass *pass, size_t first, size_t rows, size_t step) {
    const size_t bytes = dynnorm_forward_buffer_bytes(pass, step == 1 ? rows : 1);
    void *buffers = bytes ? dynnorm_allocate(bytes) : NULL;
    if (bytes && !buffers)
        return DYNNORM_ERROR_OUT_OF_MEMORY;
    if (step == 1)
        dynnorm_buffered_forward(pass, buffers, first, rows);
    else
        for (size_t i = 0; i < rows; i++)
            dynnorm_buffered_forward(pass, buffers, first + i * step, 1);
    if (buffers)
        dynnorm_release(buffers);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_run_forward(const struct forward_pass *pass, size_t first, size_t rows, size_t step) {
    if (!rows)
        return DYNNORM_OK;
    if (HAS_TYPES && pass->is_buffered)
        return run_buffered(pass, first, rows, step);
    if (step == 1)
        pass->kernel(&pass->arguments, first, rows);
    else
        for (size_t i = 0; i < rows; i++)
            pass->kernel(&pass->arguments, first + i * step, 1);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_forward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_forward(call, NULL, &pass, &mistake);
    if (status)
        return status;
    size_t tokens = pass.call->tokens;
    if (first_row > tokens || rows > tokens - first_row)
        return DYNNORM_ERROR_ROW_RANGE;
    return dynnorm_run_forward(&pass, first_row, rows, 1);
}

/* ---- All rows at once ---- */

/* A pass whose rows are shared among the tasks of an executor. */
struct shared_pass {
    const struct forward_pass *pass;
    size_t unit; /* tasks begin at multiples of so many rows */
    size_t tasks;
    char *buffers; /* those of all tasks, one after the other */
    size_t buffer_bytes;
};

static void run_task(void *context, size_t task) {
    const struct shared_pass *shared = context;
    struct portion rows = dynnorm_portion_of_elements(shared->pass->call->tokens, shared->unit, shared->tasks, task);
    run_in(shared->pass, shared->buffers ? shared->buffers + task * shared->buffer_bytes : NULL, rows.first,
           rows.count);
}

/* Out of line, so that a call without an executor does not make room for it. */
RARE dynnorm_status run_on_executor(const struct forward_pass *pass) {
    const size_t tokens = pass->call->tokens;
    const dynnorm_executor *executor = &pass->call->executor;
    struct shared_pass shared = {.pass = pass, .unit = 1};
    shared.tasks = dynnorm_tasks(executor, tokens * pass->call->channels, tokens);
    if (shared.tasks == 1)
        return dynnorm_run_forward(pass, 0, tokens, 1);
    /* Kernels compute short rows in groups. */
    if (tokens / shared.tasks >= 2 * GROUP)
        shared.unit = GROUP;
    const size_t units = dynnorm_units(tokens, shared.unit), most_of_task = dynnorm_units(units, shared.tasks);
    if (HAS_TYPES && pass->is_buffered)
        shared.buffer_bytes = dynnorm_forward_buffer_bytes(pass, most_of_task * shared.unit);
    if (shared.buffer_bytes) {
        shared.buffers = dynnorm_allocate(shared.tasks * shared.buffer_bytes);
        if (!shared.buffers)
            return DYNNORM_ERROR_OUT_OF_MEMORY;
    }
    executor->parallel_for(executor->pool, run_task, &shared, shared.tasks);
    if (shared.buffers)
        dynnorm_release(shared.buffers);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_run_whole_forward(const struct forward_pass *pass) {
    return pass->call->executor.parallel_for ? run_on_executor(pass)
                                             : dynnorm_run_forward(pass, 0, pass->call->tokens, 1);
}

dynnorm_status dynnorm_forward_any(const dynnorm_descriptor *call) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_forward(call, NULL, &pass, &mistake);
    return status ? status : dynnorm_run_whole_forward(&pass);
}

/* ---- A call with few tokens ---- */

/* Whether the call has nothing that a plain call has not, and takes nothing for granted that must be checked, but for
   what the next functions look at. These are conditions for all operations at once, joined without branches: nearly all
   calls have zeros there. */
static int has_plain_fields(const dynnorm_descriptor *call) {
    const size_t types = (size_t)call->dy.type | (size_t)call->dx.type | (size_t)call->dweight.type |
                         (size_t)call->dbias.type | (size_t)call->residual_bias.type | (size_t)call->dsum.type |
                         (size_t)call->alphas.type | (size_t)call->betas.type;
    const size_t buffers = bits_of_address(call->dbias.data) | bits_of_address(call->dalpha) |
                           bits_of_address(call->dbeta) | bits_of_address(call->y_scales);
    return !(types | buffers | bits_of_float(call->y_scale) | bits_of_unusual_fields(call));
}

static int has_plain_rows(const dynnorm_descriptor *call) {
    return !((size_t)call->x.type | (size_t)call->y.type | (size_t)call->weight.type | (size_t)call->bias.type |
             (size_t)call->residual.type | (size_t)call->sum.type | bits_of_address(call->residual.data) |
             bits_of_address(call->sum.data) | bits_of_float(call->weight_offset) | (size_t)call->round_before_weight);
}

dynnorm_status dynnorm_forward(const dynnorm_descriptor *call) {
    if (!call || call->size != sizeof *call || !has_few_rows(call) || !has_plain_fields(call))
        return dynnorm_forward_any(call);
    const float *x = call->x.data, *weight = call->weight.data, *bias = call->bias.data;
    const size_t tokens = call->tokens, channels = call->channels;
    float *y = call->y.data;
    if (!has_plain_rows(call)) {
        const enum what_is_done done = HAS_TYPES ? dynnorm_forward_few_rows(call) : NOTHING_IS_DONE;
        if (done != SUM_IS_DONE)
            return done == ROWS_ARE_DONE ? DYNNORM_OK : dynnorm_forward_any(call);
        x = call->sum.data;
    } else if (tokens != 1 && !(is_in_one_piece(call, &call->x) && is_in_one_piece(call, &call->y))) {
        return dynnorm_forward_any(call);
    } else if (call->mode != DYNNORM_PORTABLE) {
        return dynnorm_forward_few_native_rows(call);
    }
    if (call->operation == DYNNORM_LAYERNORM)
        return dynnorm_layernorm_forward_f32(y, call->mean, call->rstd, x, weight, bias, call->eps, tokens, channels);
    if (call->operation == DYNNORM_RMSNORM && !call->mean && !bias)
        return dynnorm_rmsnorm_forward_f32(y, call->rstd, x, weight, call->eps, tokens, channels);
    if (call->operation == DYNNORM_DYT && !call->mean && !call->rstd)
        return dynnorm_dyt_forward_f32(y, x, weight, bias, call->alpha, call->scale, tokens, channels);
    if (call->operation == DYNNORM_DYISRU && !call->mean && !call->rstd)
        return dynnorm_dyisru_forward_f32(y, x, weight, bias, call->beta, call->scale, tokens, channels);
    return dynnorm_forward_any(call);
}

/* ---- The range of y ---- */

static float magnitude(const dynnorm_vector *vector, const struct kernels *kernels, size_t channel, float offset) {
    const unsigned char *data = vector->data;
    float value;
    kernels->conversions[vector->type].widen(&value, data + channel * dynnorm_element_bytes(vector->type), 1);
    return fabsf(value + offset);
}

FOR_SIZE dynnorm_status dynnorm_largest_output(const dynnorm_descriptor *call, float *bound) {
    dynnorm_descriptor completed;
    struct mistake mistake;
    dynnorm_status status = dynnorm_check_query(&call, &completed, &mistake);
    if (status)
        return status;
    if (!HAS_TYPES)
        return DYNNORM_ERROR_LEFT_OUT;
    if (!dynnorm_operations[call->operation].has_scale)
        return DYNNORM_ERROR_OPERATION;
    if (!bound)
        return DYNNORM_ERROR_NULL_POINTER;
    const struct kernels *kernels = dynnorm_active_kernels();
    if (!kernels->conversions) /* no table of this build can be used */
        return DYNNORM_ERROR_LEFT_OUT;
    const double scale = fabs((double)call->scale);
    double greatest = 0;
    for (size_t i = 0; i < (call->weight.data || call->bias.data ? call->channels : 1); i++) {
        const float weight = call->weight.data ? magnitude(&call->weight, kernels, i, call->weight_offset) : 1;
        const float bias = call->bias.data ? magnitude(&call->bias, kernels, i, 0) : 0;
        const double most = (double)weight * scale + (double)bias;
        greatest = most > greatest || isnan(most) ? most : greatest;
    }
    /* Besides relative errors: DyISRU in the native mode doubles the rounding of a denormal w s. */
    *bound = (float)(greatest * (1 + 0x1p-20) + (greatest > 0 ? 0x1p-149 : 0));
    return DYNNORM_OK;
}
