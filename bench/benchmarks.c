/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Times every kernel of src/kernels.def, on every instruction set that runs here, at every shape of shapes.h, and at
 * the same shapes the limits of limits.h. Names:
 *
 *   rmsnorm_forward/f32/avx2/portable/tokens:64/channels:4096
 *   limit_copy/f32/tokens:64/channels:4096
 *
 * Bytes per second count each element of x and y once (forward), or of dy, x and dx (backward).
 *
 * Times are those of the CPU, in one thread. The options are Google Benchmark's: see --help.
 */
#include "google_benchmark_shim.h"
#include "limits.h"
#include "tensors.h"

#include "cpu.h"
#include "dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

static void fail(struct benchmark_state *state, const char *why) {
    failed = 1;
    benchmark_fail(state, why);
}

static void set_rates(struct benchmark_state *state, struct shape shape, size_t tensors) {
    size_t bytes = tensors * shape.tokens * shape.channels * sizeof(float);
    benchmark_set_rate(state, "bytes_per_second", (double)bytes);
    benchmark_set_rate(state, "tokens_per_second", (double)shape.tokens);
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

struct limit_case {
    const struct limit *limit;
    struct shape shape;
};

static void run_limit(void *context) {
    const struct limit_case *this = context;
    const struct tensors *tensors = tensors_of(this->shape);
    this->limit->loop(tensors->output, tensors->x, tensors->dy, this->shape.tokens * this->shape.channels);
}

static void measure_limit(struct benchmark_state *state, void *context) {
    const struct limit_case *this = context;
    run_limit(context); /* warms the caches up */
    benchmark_measure(state, run_limit, context);
    set_rates(state, this->shape, this->limit->tensors);
}

static const struct limit *widest_limits(void) {
#ifdef __x86_64__
    unsigned features = dynnorm_cpu_features();
    if (features & CPU_AVX512)
        return limits_64;
    if (features & CPU_AVX2)
        return limits_32;
#endif
    return limits_16;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static const struct kernel {
    const char *operation_name; /* with the direction */
    const char *mode_name;
    dynnorm_operation operation;
    dynnorm_mode mode;
    int backward;
} kernels[] = {
#define FORWARD(operation, mode)                                                                                       \
    {#operation "_forward", #mode, (dynnorm_operation)operation_##operation, (dynnorm_mode)mode_##mode, 0},
#define BACKWARD(operation, mode)                                                                                      \
    {#operation "_backward", #mode, (dynnorm_operation)operation_##operation, (dynnorm_mode)mode_##mode, 1},
#include "kernels.def"
};

enum { KERNELS = sizeof kernels / sizeof *kernels };

struct kernel_case {
    const struct kernel *kernel;
    const char *isa;
    struct shape shape;
};

/* Everything of a call but its outputs, and mean and rstd, which are outputs of forward. */
static dynnorm_descriptor describe(const struct kernel *kernel, struct shape shape) {
    const struct tensors *tensors = tensors_of(shape);
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = kernel->operation;
    call.mode = kernel->mode;
    call.tokens = shape.tokens;
    call.channels = shape.channels;
    call.x.data = tensors->x;
    call.weight.data = tensors->weight;
    call.eps = 1e-5f;
    call.alpha = 0.5f;
    call.beta = (float)shape.channels;
    if (kernel->operation == DYNNORM_DYISRU || kernel->operation == DYNNORM_CENTERED_DYISRU)
        call.scale = dynnorm_scale_rmsnorm(shape.channels);
    return call;
}

static void run_forward(void *call) {
    dynnorm_forward(call);
}

static void run_backward(void *call) {
    dynnorm_backward(call);
}

/* As inference does it: no statistics are kept. */
static dynnorm_status prepare_forward(const struct tensors *tensors, dynnorm_descriptor *call) {
    call->y.data = tensors->output;
    if (call->operation != DYNNORM_RMSNORM)
        call->bias.data = tensors->bias;
    return dynnorm_forward(call); /* warms the caches up */
}

/* As training does it: with the statistics that forward left, a workspace that is kept, and all gradients. */
static dynnorm_status prepare_backward(const struct tensors *tensors, dynnorm_descriptor *call) {
    static float dparameter;
    dynnorm_status status = DYNNORM_OK;
    if (call->operation == DYNNORM_LAYERNORM)
        call->mean = tensors->mean;
    if (call->operation == DYNNORM_LAYERNORM || call->operation == DYNNORM_RMSNORM) {
        call->rstd = tensors->rstd;
        status = dynnorm_forward(call);
    }
    call->dy.data = tensors->dy;
    call->dx.data = tensors->output;
    call->dweight.data = tensors->dweight;
    if (call->operation != DYNNORM_RMSNORM)
        call->dbias.data = tensors->dbias;
    if (call->operation == DYNNORM_DYT)
        call->dalpha = &dparameter;
    if (call->operation == DYNNORM_DYISRU || call->operation == DYNNORM_CENTERED_DYISRU)
        call->dbeta = &dparameter;
    if (!status)
        status = dynnorm_workspace_size(call, &call->workspace_size);
    if (!status) {
        call->workspace = allocate_pages(call->workspace_size);
        status = dynnorm_backward(call); /* warms the caches up */
    }
    return status;
}

static void measure_kernel(struct benchmark_state *state, void *context) {
    const struct kernel_case *this = context;
    const struct tensors *tensors = tensors_of(this->shape);
    int backward = this->kernel->backward;
    dynnorm_descriptor call = describe(this->kernel, this->shape);
    dynnorm_status status = dynnorm_set_isa(this->isa);
    if (!status)
        status = backward ? prepare_backward(tensors, &call) : prepare_forward(tensors, &call);
    if (status) {
        fail(state, dynnorm_status_string(status));
    } else {
        benchmark_measure(state, backward ? run_backward : run_forward, &call);
        set_rates(state, this->shape, backward ? 3 : 2);
    }
    free(call.workspace);
}

/* Whether dynnorm_set_isa reaches this table: of those that share a public name and run here it selects the best, which
 * is the first in the list. */
static int reached_by_name(const struct isa *isa) {
    if (!dynnorm_isa_runs_here(isa))
        return 0;
    for (const struct isa *better = dynnorm_isa_list; better < isa; better++)
        if (dynnorm_isa_runs_here(better) && !strcmp(better->kernels->isa, isa->kernels->isa))
            return 0;
    return 1;
}

/* A mode without a kernel of its own runs the portable one, which is measured under its own name. */
static int has_own_kernel(const struct kernels *table, const struct kernel *kernel) {
    return kernel->backward ? table->backward[kernel->operation][kernel->mode] != NULL
                            : table->forward[kernel->operation][kernel->mode] != NULL;
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

enum { NAME_SIZE = 120 };

static void register_limits(struct shape shape) {
    for (const struct limit *limit = widest_limits(); limit->name; limit++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%s/f32/tokens:%zu/channels:%zu", limit->name, shape.tokens, shape.channels);
        struct limit_case this = {limit, shape};
        benchmark_register(name, measure_limit, &this, sizeof this);
    }
}

static void register_kernels(const struct kernels *table, struct shape shape) {
    for (const struct kernel *kernel = kernels; kernel < kernels + KERNELS; kernel++) {
        if (!has_own_kernel(table, kernel))
            continue;
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%s/f32/%s/%s/tokens:%zu/channels:%zu", kernel->operation_name, table->isa,
                 kernel->mode_name, shape.tokens, shape.channels);
        struct kernel_case this = {kernel, table->isa, shape};
        benchmark_register(name, measure_kernel, &this, sizeof this);
    }
}

int main(int argc, char **argv) {
    if (!benchmark_initialize(&argc, argv))
        return EXIT_FAILURE;
    for (size_t i = 0; i < SHAPES; i++) {
        register_limits(shapes[i]);
        for (const struct isa *isa = dynnorm_isa_list; isa < dynnorm_isa_list + dynnorm_isa_count; isa++)
            if (reached_by_name(isa))
                register_kernels(isa->kernels, shapes[i]);
    }
    int found = benchmark_run() > 0;
    benchmark_shutdown();
    return found && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
