/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass, by blocks of rows.
 */
#include "api/buffered_backward.h"
#include "api/channel_constants.h"
#include "api/descriptor.h"
#include "api/few_rows.h"
#include "api/memory.h"
#include "api/passes.h"
#include "api/sums.h"
#include "api/tasks.h"
#include "api/tensors.h"
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"
#include "inlining.h"

/* Where it is 0 the compiler leaves out what follows. */
#ifdef DYNNORM_WITHOUT_BACKWARD
enum { HAS_BACKWARD = 0 };
#else
enum { HAS_BACKWARD = 1 };
#endif

/* Checks the call and fills in the arguments of the kernels. */
static dynnorm_status check(const dynnorm_descriptor *call, const struct split_rows *split, struct backward_pass *pass,
                            struct mistake *mistake) {
    *mistake = (struct mistake){NULL, NULL, NULL};
    dynnorm_status status = dynnorm_read_descriptor(&call, &pass->completed);
    if (status)
        return status;
    if (!HAS_BACKWARD)
        return call->channels ? DYNNORM_ERROR_LEFT_OUT : DYNNORM_ERROR_ZERO_CHANNELS;
    struct backward_arguments *arguments = &pass->arguments;
    arguments->split = split;
    arguments->split_row = 0;
    const int is_usual = !split && dynnorm_backward_is_usual(call);
    if (is_usual) {
        dynnorm_place_close_rows(call, &call->dy, &arguments->dy);
        dynnorm_place_close_rows(call, &call->x, &arguments->x);
        dynnorm_place_close_rows(call, &call->dx, &arguments->dx);
        dynnorm_place_close_rows(call, &call->dsum, &pass->dsum);
    } else {
        status = dynnorm_check_backward(call, pass, mistake);
    }
    if (status)
        return status;
    pass->call = call;
    pass->kernels = dynnorm_active_kernels();
    pass->is_buffered = dynnorm_backward_is_buffered(call);
    if (!HAS_TYPES && pass->is_buffered)
        return DYNNORM_ERROR_LEFT_OUT;
    arguments->weight = call->weight.data;
    arguments->weight_offset = call->weight_offset;
    arguments->mean = call->mean;
    arguments->rstd = call->rstd;
    arguments->eps = call->eps;
    arguments->constants = call->parameter_per_channel ? &pass->constants : NULL;
    arguments->scale = call->scale;
    arguments->channels = call->channels;
    arguments->accumulate_dx = call->accumulate_dx;
    arguments->most_pair_channels = dynnorm_most_pair_channels();
    arguments->sums_two_rows = dynnorm_sums_two_rows(call);
    arguments->overlaps_groups = dynnorm_overlaps_groups(call);
    arguments->streams = !is_usual && dynnorm_streams_dx(call, &arguments->dx);
    arguments->prefetches_far_rows = arguments->streams && dynnorm_prefetches_far_rows();
    arguments->fetches_ahead = dynnorm_fetches_ahead(call);
    arguments->fetches_to_write = dynnorm_fetches_to_write();
    arguments->avoids_subnormals = dynnorm_subnormals_are_slow();
    arguments->typed = NULL;
    arguments->dsum = NULL;
    return DYNNORM_OK;
}

dynnorm_status dynnorm_begin_backward(const dynnorm_descriptor *call, const struct split_rows *split,
                                      struct backward_pass *pass, struct mistake *mistake) {
    dynnorm_status status = check(call, split, pass, mistake);
    if (status)
        return status;
    const dynnorm_operation operation = pass->call->operation;
    pass->kernel = dynnorm_backward_kernel(pass->kernels, operation, pass->call->mode);
    if (pass->kernel)
        return dynnorm_read_parameter(pass->call, pass->kernels, &pass->arguments.parameter, mistake);
    return pass->kernels->backward[operation][DYNNORM_PORTABLE] ? DYNNORM_ERROR_MODE_UNAVAILABLE
                                                                : DYNNORM_ERROR_LEFT_OUT;
}

/* ---- Rows, and the buffers that they may need ---- */

/* The C library of GNU gives what is free at the end of its memory back to the system once that is 128 KB, and each
 * call would have to get its pages anew. After one allocation of more than that it keeps twice as much. Pages that
 * nobody writes to cost nothing. */
enum { LEAST_BYTES_OF_BUFFERS = 1 << 18 };

/* Buffers for so many tasks, one after the other; NULL if the pass does not need any, or has them on the stack. */
static dynnorm_status allocate_buffers(const struct backward_pass *pass, size_t tasks, void **buffers) {
    const size_t bytes = HAS_TYPES && pass->is_buffered ? tasks * dynnorm_backward_buffer_bytes(pass) : 0;
    *buffers = bytes ? dynnorm_allocate(bytes < LEAST_BYTES_OF_BUFFERS ? LEAST_BYTES_OF_BUFFERS : bytes) : NULL;
    return bytes && !*buffers ? DYNNORM_ERROR_OUT_OF_MEMORY : DYNNORM_OK;
}

/* The constants of each channel; NULL if there are none. */
static dynnorm_status allocate_constants(struct backward_pass *pass, void **memory) {
    const size_t bytes = dynnorm_channel_constants_bytes(pass->call);
    *memory = bytes ? dynnorm_allocate(bytes) : NULL;
    if (*memory)
        dynnorm_make_channel_constants(&pass->constants, *memory, pass->call, pass->kernels);
    return bytes && !*memory ? DYNNORM_ERROR_OUT_OF_MEMORY : DYNNORM_OK;
}

static void release(void *memory) {
    if (memory)
        dynnorm_release(memory);
}

/* A block of rows, or the beginning of one. */
static void run_block(const struct backward_pass *pass, void *buffers, struct portion rows,
                      const struct partial_sums *sums) {
    if (HAS_TYPES && pass->is_buffered)
        dynnorm_buffered_backward(pass, buffers, rows.first, rows.count, sums);
    else
        pass->kernel(&pass->arguments, rows.first, rows.count, sums);
}

/* ---- Every block of rows has its own slot in the workspace ---- */

/* A pass, and the slots of all blocks. first_slot may be NULL if no sum is asked for. */
struct pass_in_slots {
    const struct backward_pass *pass;
    const struct sums_layout *layout;
    double *first_slot;
};

static void run_rows(const struct pass_in_slots *in, void *buffers, struct portion rows) {
    size_t block = dynnorm_rows_per_block(in->pass->call), end = rows.first + rows.count;
    for (size_t begin = rows.first; begin < end; begin += block) {
        double *slot = in->layout->slot ? in->first_slot + begin / block * in->layout->slot : NULL;
        const struct partial_sums sums = dynnorm_sums_in_slot(in->layout, slot);
        run_block(in->pass, buffers, (struct portion){begin, end - begin < block ? end - begin : block}, &sums);
    }
}

/* The gradients of the parameter and of some channels. */
static void finish_channels(const struct pass_in_slots *in, struct portion channels) {
    const struct token_gradients gradients = dynnorm_token_gradients(in->pass->call);
    const struct slots slots = {in->layout, in->first_slot, dynnorm_blocks(in->pass->call)};
    dynnorm_finish_channels(&gradients, channels, in->pass->kernels, &slots);
    if (!channels.first)
        dynnorm_finish_parameter(&gradients, in->pass->kernels, &slots);
}

dynnorm_status dynnorm_backward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, NULL, &pass, &mistake);
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
    void *buffers, *constants;
    status = allocate_buffers(&pass, 1, &buffers);
    if (status)
        return status;
    status = allocate_constants(&pass, &constants);
    if (!status)
        run_rows(&(const struct pass_in_slots){&pass, &layout, dynnorm_first_slot(pass.call->workspace)}, buffers,
                 (struct portion){first_row, rows});
    release(buffers);
    release(constants);
    return status;
}

dynnorm_status dynnorm_backward_finish(const dynnorm_descriptor *call) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, NULL, &pass, &mistake);
    if (status || !HAS_BACKWARD)
        return status;
    struct sums_layout layout = dynnorm_sums_layout(pass.call);
    if (layout.slot && pass.call->tokens && !pass.call->workspace)
        return DYNNORM_ERROR_WORKSPACE_MISSING;
    finish_channels(&(const struct pass_in_slots){&pass, &layout, dynnorm_first_slot(pass.call->workspace)},
                    (struct portion){0, pass.call->channels});
    return DYNNORM_OK;
}

/* ---- All rows at once, on an executor ---- */

/* What the tasks share: rows, and then channels of the sums over tokens. */
struct shared_work {
    struct pass_in_slots in;
    size_t unit; /* tasks begin at multiples of so many rows; those of the channels at UNIT_OF_CHANNELS */
    size_t tasks;
    char *buffers; /* those of all tasks, one after the other */
};

static size_t count_tasks(const struct backward_pass *pass, const struct sums_layout *layout) {
    const dynnorm_descriptor *call = pass->call;
    return dynnorm_tasks(&call->executor, call->tokens * call->channels,
                         layout->slot ? dynnorm_blocks(call) : dynnorm_units(call->tokens, GROUP));
}

static void run_task(void *context, size_t task) {
    const struct shared_work *work = context;
    const struct backward_pass *pass = work->in.pass;
    run_rows(&work->in, work->buffers ? work->buffers + task * dynnorm_backward_buffer_bytes(pass) : NULL,
             dynnorm_portion_of_elements(pass->call->tokens, work->unit, work->tasks, task));
}

static void finish_task(void *context, size_t task) {
    const struct shared_work *work = context;
    finish_channels(&work->in,
                    dynnorm_portion_of_elements(work->in.pass->call->channels, UNIT_OF_CHANNELS, work->tasks, task));
}

RARE void run_on_executor(const struct backward_pass *pass, const struct sums_layout *layout, size_t tasks,
                          double *first_slot, void *buffers) {
    const dynnorm_descriptor *call = pass->call;
    const dynnorm_executor *executor = &call->executor;
    struct shared_work work = {
        {pass, layout, first_slot}, layout->slot ? dynnorm_rows_per_block(call) : GROUP, tasks, buffers};
    executor->parallel_for(executor->pool, run_task, &work, work.tasks);
    size_t sums = layout->slot * dynnorm_blocks(call);
    work.tasks = dynnorm_tasks(executor, sums, dynnorm_units(call->channels, UNIT_OF_CHANNELS));
    if (work.tasks > 1)
        executor->parallel_for(executor->pool, finish_task, &work, work.tasks);
    else
        finish_channels(&work.in, (struct portion){0, call->channels});
}

/* ---- All rows at once, on one thread: two slots are enough, one for the sum of all blocks so far, one for the next
        block ---- */

enum { SLOTS_OF_ONE_THREAD = 2 };

/* So many doubles lie on the stack: the sums of one block of rows over 2048 channels, or over 1024 with a bias, the
 * lanes of one for alpha or beta, and what alignment takes. To allocate these took LayerNorm and RMSNorm 1 to 3 percent
 * of the time of 8 rows of 1024 channels. */
enum { SMALL_WORKSPACE = 2 * 1024 + PARTIAL_SUMS_CHANNELS(1) + 8 };

static void run_whole(const struct backward_pass *pass, const struct sums_layout *layout, double *total,
                      void *buffers) {
    const int is_one_block = dynnorm_blocks(pass->call) == 1;
    const int can_be_direct = !pass->is_buffered || (HAS_TYPES && dynnorm_backward_is_of_one_row(pass->call));
    const int is_direct = is_one_block && can_be_direct && !pass->call->parameter_per_channel;
    size_t tokens = pass->call->tokens, block = is_one_block ? tokens : dynnorm_rows_per_block(pass->call);
    const struct token_gradients gradients = dynnorm_token_gradients(pass->call);
    for (size_t begin = 0; begin < tokens; begin += block) {
        double *slot = begin && layout->slot ? total + layout->slot : total;
        struct partial_sums sums = dynnorm_sums_in_slot(layout, slot);
        sums.gradients = is_direct ? gradients.of_channels : NULL;
        run_block(pass, buffers, (struct portion){begin, tokens - begin < block ? tokens - begin : block}, &sums);
        if (begin && layout->slot)
            pass->kernels->add_sums(total, slot, layout->slot);
    }
    const struct slots slots = {layout, total, tokens != 0};
    if (!is_direct)
        dynnorm_finish_channels(&gradients, (struct portion){0, pass->call->channels}, pass->kernels, &slots);
    dynnorm_finish_parameter(&gradients, pass->kernels, &slots);
}

dynnorm_status dynnorm_run_whole_backward(struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    struct sums_layout layout = dynnorm_sums_layout(call);
    size_t tasks = call->executor.parallel_for ? count_tasks(pass, &layout) : 1;
    size_t slots = dynnorm_blocks(call);
    if (tasks == 1 && slots > SLOTS_OF_ONE_THREAD)
        slots = SLOTS_OF_ONE_THREAD;
    size_t bytes = dynnorm_workspace_bytes(&layout, slots);
    double small_workspace[SMALL_WORKSPACE];
    void *allocated = NULL, *workspace = call->workspace ? call->workspace : small_workspace;
    if (!call->workspace && bytes > sizeof small_workspace) {
        workspace = allocated = dynnorm_allocate(bytes);
        if (!workspace)
            return DYNNORM_ERROR_OUT_OF_MEMORY;
    }
    void *buffers, *constants = NULL;
    dynnorm_status status = allocate_buffers(pass, tasks, &buffers);
    if (!status)
        status = allocate_constants(pass, &constants);
    if (!status && tasks > 1)
        run_on_executor(pass, &layout, tasks, dynnorm_first_slot(workspace), buffers);
    else if (!status)
        run_whole(pass, &layout, dynnorm_first_slot(workspace), buffers);
    release(buffers);
    release(constants);
    release(allocated);
    return status;
}

dynnorm_status dynnorm_backward(const dynnorm_descriptor *call) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, NULL, &pass, &mistake);
    return status || !HAS_BACKWARD ? status : dynnorm_run_whole_backward(&pass);
}

/* ---- Queries ---- */

FOR_SIZE dynnorm_status dynnorm_workspace_size(const dynnorm_descriptor *call, size_t *bytes) {
    dynnorm_descriptor completed;
    struct mistake mistake;
    dynnorm_status status = dynnorm_check_query(&call, &completed, &mistake);
    if (status)
        return status;
    if (!bytes)
        return DYNNORM_ERROR_NULL_POINTER;
    struct sums_layout layout = dynnorm_sums_layout(call);
    *bytes = dynnorm_workspace_bytes(&layout, dynnorm_blocks(call));
    return DYNNORM_OK;
}

FOR_SIZE dynnorm_status dynnorm_block_rows(const dynnorm_descriptor *call, size_t *rows) {
    dynnorm_descriptor completed;
    struct mistake mistake;
    dynnorm_status status = dynnorm_check_query(&call, &completed, &mistake);
    if (status)
        return status;
    if (!rows)
        return DYNNORM_ERROR_NULL_POINTER;
    *rows = dynnorm_rows_per_block(call);
    return DYNNORM_OK;
}
