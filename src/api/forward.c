/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass.
 */
#include "api/descriptor.h"
#include "api/passes.h"
#include "dispatch/dispatch.h"
#include "dispatch/streaming.h"

dynnorm_status dynnorm_begin_forward(const dynnorm_descriptor *call, struct forward_pass *pass,
                                     struct mistake *mistake) {
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(&call, &pass->completed);
    if (status)
        return status;
    struct forward_arguments *arguments = &pass->arguments;
    status = dynnorm_check_forward(call, arguments, mistake);
    if (status)
        return status;
    pass->call = call;
    const struct kernels *kernels = dynnorm_active_kernels();
    pass->kernel = dynnorm_forward_kernel(kernels, call->operation, call->mode);
    arguments->mean = call->mean;
    arguments->rstd = call->rstd;
    arguments->weight = call->weight.data;
    arguments->bias = call->bias.data;
    arguments->weight_offset = call->weight_offset;
    arguments->eps = call->eps;
    arguments->parameter = dynnorm_parameter_of(call);
    arguments->scale = call->scale;
    arguments->channels = call->channels;
    arguments->streams = dynnorm_streams_y(call, &arguments->y);
    if (pass->kernel)
        return DYNNORM_OK;
    return kernels->forward[call->operation][DYNNORM_PORTABLE] ? DYNNORM_ERROR_MODE_UNAVAILABLE
                                                               : DYNNORM_ERROR_LEFT_OUT;
}

dynnorm_status dynnorm_forward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_forward(call, &pass, &mistake);
    if (status)
        return status;
    size_t tokens = pass.call->tokens;
    if (first_row > tokens || rows > tokens - first_row)
        return DYNNORM_ERROR_ROW_RANGE;
    if (rows)
        pass.kernel(&pass.arguments, first_row, rows);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_forward(const dynnorm_descriptor *call) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_forward(call, &pass, &mistake);
    if (!status && pass.call->tokens)
        pass.kernel(&pass.arguments, 0, pass.call->tokens);
    return status;
}
