/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass, by blocks of rows.
 */
#include "api/descriptor.h"
#include "api/memory.h"
#include "api/passes.h"
#include "api/sums.h"
#include "api/buffered_rows.h"
#include "dispatch/dispatch.h"
#include "dispatch/streaming.h"

/* Where it is 0 the compiler leaves out what follows. */
#ifdef DYNNORM_WITHOUT_BACKWARD
enum { HAS_BACKWARD = 0 };
#else
enum { HAS_BACKWARD = 1 };
#endif

/* Checks the call and fills in the arguments of the kernels. */
static dynnorm_status check(const dynnorm_descriptor *call, struct backward_pass *pass, struct mistake *mistake) {
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(&call, &pass->completed);
    if (status)
        return status;
    if (!HAS_BACKWARD)
        return call->channels ? DYNNORM_ERROR_LEFT_OUT : DYNNORM_ERROR_ZERO_CHANNELS;
    struct backward_arguments *arguments = &pass->arguments;
    status = dynnorm_check_backward(call, pass, mistake);
    if (status)
        return status;
    pass->call = call;
    pass->kernels = dynnorm_active_kernels();
    pass->is_buffered = dynnorm_backward_is_buffered(call);
    arguments->weight = call->weight.data;
    arguments->weight_offset = call->weight_offset;
    arguments->mean = call->mean;
    arguments->rstd = call->rstd;
    arguments->eps = call->eps;
    arguments->parameter = dynnorm_parameter_of(call);
    arguments->scale = call->scale;
    arguments->channels = call->channels;
    arguments->accumulate_dx = call->accumulate_dx;
    arguments->streams = dynnorm_streams_dx(call, &arguments->dx);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_begin_backward(const dynnorm_descriptor *call, struct backward_pass *pass,
                                      struct mistake *mistake) {
    dynnorm_status status = check(call, pass, mistake);
    if (status)
        return status;
    const dynnorm_operation operation = pass->call->operation;
    pass->kernel = dynnorm_backward_kernel(pass->kernels, operation, pass->call->mode);
    if (pass->kernel)
        return DYNNORM_OK;
    return pass->kernels->backward[operation][DYNNORM_PORTABLE] ? DYNNORM_ERROR_MODE_UNAVAILABLE
                                                                : DYNNORM_ERROR_LEFT_OUT;
}

/* ---- Rows, and the buffers that they may need ---- */

dynnorm_status dynnorm_begin_rows(struct backward_pass *pass) {
    pass->buffers = pass->is_buffered ? dynnorm_allocate(dynnorm_buffer_bytes(pass)) : NULL;
    return pass->is_buffered && !pass->buffers ? DYNNORM_ERROR_OUT_OF_MEMORY : DYNNORM_OK;
}

void dynnorm_run_backward(const struct backward_pass *pass, size_t first, size_t rows,
                          const struct partial_sums *sums) {
    if (pass->is_buffered)
        dynnorm_buffered_backward(pass, pass->buffers, first, rows, sums);
    else
        pass->kernel(&pass->arguments, first, rows, sums);
}

void dynnorm_end_rows(struct backward_pass *pass) {
    if (pass->buffers)
        dynnorm_release(pass->buffers);
}

/* ---- Ranges of rows: every block has its own slot in the workspace ---- */

dynnorm_status dynnorm_backward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, &pass, &mistake);
    if (status || !HAS_BACKWARD)
        return status;
    size_t tokens = pass.call->tokens, block = dynnorm_rows_per_block(pass.call);
    if (first_row > tokens || rows > tokens - first_row)
        return DYNNORM_ERROR_ROW_RANGE;
    if (!rows)
        return DYNNORM_OK;
    struct sums_layout layout = dynnorm_sums_layout(pass.call);
    size_t end = first_row + rows;
    if (layout.slot && (first_row % block || (end % block && end != tokens)))
        return DYNNORM_ERROR_ROW_BLOCK;
    if (layout.slot && !pass.call->workspace)
        return DYNNORM_ERROR_WORKSPACE_MISSING;
    status = dynnorm_begin_rows(&pass);
    if (status)
        return status;
    double *first_slot = dynnorm_first_slot(pass.call->workspace);
    for (size_t begin = first_row; begin < end; begin += block) {
        const struct partial_sums sums =
            dynnorm_sums_in_slot(&layout, layout.slot ? first_slot + begin / block * layout.slot : NULL);
        dynnorm_run_backward(&pass, begin, end - begin < block ? end - begin : block, &sums);
    }
    dynnorm_end_rows(&pass);
    return DYNNORM_OK;
}

dynnorm_status dynnorm_backward_finish(const dynnorm_descriptor *call) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, &pass, &mistake);
    if (status || !HAS_BACKWARD)
        return status;
    struct sums_layout layout = dynnorm_sums_layout(pass.call);
    if (layout.slot && pass.call->tokens && !pass.call->workspace)
        return DYNNORM_ERROR_WORKSPACE_MISSING;
    const struct token_gradients gradients = dynnorm_token_gradients(pass.call);
    const struct slots slots = {&layout, dynnorm_first_slot(pass.call->workspace), dynnorm_blocks(pass.call)};
    dynnorm_finish_channels(&gradients, pass.call->channels, pass.kernels, &slots);
    dynnorm_finish_parameter(&gradients, pass.kernels, &slots);
    return DYNNORM_OK;
}

/* ---- All rows at once: two slots are enough, one for the sum of all blocks so far, one for the next block ---- */

enum { SLOTS_OF_WHOLE_PASS = 2 };

static void run_whole(const struct backward_pass *pass, const struct sums_layout *layout, size_t blocks,
                      double *total) {
    int is_one_block = blocks == 1, is_direct = is_one_block && !pass->is_buffered;
    size_t tokens = pass->call->tokens, block = is_one_block ? tokens : dynnorm_rows_per_block(pass->call);
    const struct token_gradients gradients = dynnorm_token_gradients(pass->call);
    for (size_t begin = 0; begin < tokens; begin += block) {
        double *slot = begin && layout->slot ? total + layout->slot : total;
        struct partial_sums sums = dynnorm_sums_in_slot(layout, slot);
        sums.gradients = is_direct ? gradients.of_channels : NULL;
        dynnorm_run_backward(pass, begin, tokens - begin < block ? tokens - begin : block, &sums);
        if (begin && layout->slot)
            pass->kernels->add_sums(total, slot, layout->slot);
    }
    const struct slots slots = {layout, total, tokens != 0};
    if (!is_direct)
        dynnorm_finish_channels(&gradients, pass->call->channels, pass->kernels, &slots);
    dynnorm_finish_parameter(&gradients, pass->kernels, &slots);
}

dynnorm_status dynnorm_backward(const dynnorm_descriptor *call) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, &pass, &mistake);
    if (status || !HAS_BACKWARD)
        return status;
    struct sums_layout layout = dynnorm_sums_layout(pass.call);
    size_t blocks = dynnorm_blocks(pass.call);
    size_t bytes = dynnorm_workspace_bytes(&layout, blocks < SLOTS_OF_WHOLE_PASS ? blocks : SLOTS_OF_WHOLE_PASS);
    double small_workspace[1024];
    void *allocated = NULL, *workspace = pass.call->workspace ? pass.call->workspace : small_workspace;
    if (!pass.call->workspace && bytes > sizeof small_workspace) {
        workspace = allocated = dynnorm_allocate(bytes);
        if (!workspace)
            return DYNNORM_ERROR_OUT_OF_MEMORY;
    }
    status = dynnorm_begin_rows(&pass);
    if (!status) {
        run_whole(&pass, &layout, blocks, dynnorm_first_slot(workspace));
        dynnorm_end_rows(&pass);
    }
    if (allocated)
        dynnorm_release(allocated);
    return status;
}

/* ---- Queries ---- */

static dynnorm_status check_query(const dynnorm_descriptor **call, dynnorm_descriptor *completed) {
    struct mistake mistake;
    dynnorm_status status = dynnorm_read_descriptor(call, completed);
    return status ? status : dynnorm_check_call(*call, &mistake);
}

dynnorm_status dynnorm_workspace_size(const dynnorm_descriptor *call, size_t *bytes) {
    dynnorm_descriptor completed;
    dynnorm_status status = check_query(&call, &completed);
    if (status)
        return status;
    if (!bytes)
        return DYNNORM_ERROR_NULL_POINTER;
    struct sums_layout layout = dynnorm_sums_layout(call);
    *bytes = dynnorm_workspace_bytes(&layout, dynnorm_blocks(call));
    return DYNNORM_OK;
}

dynnorm_status dynnorm_block_rows(const dynnorm_descriptor *call, size_t *rows) {
    dynnorm_descriptor completed;
    dynnorm_status status = check_query(&call, &completed);
    if (status)
        return status;
    if (!rows)
        return DYNNORM_ERROR_NULL_POINTER;
    *rows = dynnorm_rows_per_block(call);
    return DYNNORM_OK;
}
