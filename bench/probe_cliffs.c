/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The time that an operation takes for special data, beside the time that it takes for ordinary data, measured in turn.
 * Data that float cannot hold, or that need another formula, are computed in another way, and should not cost much more
 * for it. All tensors stay in the caches.
 */
#include "calls.h"
#include "listed_kernels.h"
#include "probe.h"
#include "tensors.h"

#include "dispatch/dispatch.h"
#include "operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7 };

/* Many rows, and what has code of its own: a row by itself, as a program has it that generates text, and 16 bits. */
static const struct setting {
    struct shape shape;
    dynnorm_type type;
    const char *type_name;
} settings[] = {
    {{64, 1024}, DYNNORM_F32, "f32"},
    {{1, 1024}, DYNNORM_F32, "f32"},
    {{64, 1024}, DYNNORM_BF16, "bf16"},
};
static const struct setting *setting; /* the one at hand */
static struct shape shape;            /* and its shape */

/* The least time of one measurement in nanoseconds. */
static const double at_least = 1e5;

/* ---- The data ---------------------------------------------------------------------------------------------------- */

/* The inputs of a call, which a kind of data changes. */
struct inputs {
    dynnorm_descriptor call;
    float *x, *dy, *weight;
    void *halves; /* x if it is not of floats */
};

static size_t elements(void) {
    return shape.tokens * shape.channels;
}

static void multiply(float *values, size_t count, float factor) {
    for (size_t i = 0; i < count; i++)
        values[i] *= factor;
}

/* Moves every so manyth element so far out that tanh(alpha x) is 1 or -1. */
static void saturate(struct inputs *inputs, size_t every) {
    for (size_t i = 0; i < elements(); i += every)
        inputs->x[i] = copysignf(100 / inputs->call.alpha + fabsf(inputs->x[i]), inputs->x[i]);
}

static void saturate_all(struct inputs *inputs) {
    saturate(inputs, 1);
}

static void saturate_some(struct inputs *inputs) {
    saturate(inputs, 16);
}

/* Some elements are saturated, and others have just begun to be. */
static void spread_out(struct inputs *inputs) {
    multiply(inputs->x, elements(), 100);
}

static void zero_weight(struct inputs *inputs) {
    multiply(inputs->weight, shape.channels, 0);
}

static void tiny_dy(struct inputs *inputs) {
    multiply(inputs->dy, elements(), 1e-30f);
}

static void denormal_dy(struct inputs *inputs) {
    multiply(inputs->dy, elements(), 1e-40f);
}

/* A loss that is the sum of y gives such dy. LayerNorm then needs a more exact sum of x - mean. */
static void one_sign(struct inputs *inputs) {
    for (size_t i = 0; i < elements(); i++)
        inputs->dy[i] = fabsf(inputs->dy[i]);
    for (size_t c = 0; c < shape.channels; c++)
        inputs->weight[c] = fabsf(inputs->weight[c]);
}

/* Padded tokens are like that. */
static void rows_without_dy(struct inputs *inputs) {
    multiply(inputs->dy, elements() / 2, 0);
}

/* Masked channels are like that. Their sums over tokens are 0, and a 0 may be a sum that float has lost. */
static void channels_without_dy(struct inputs *inputs) {
    for (size_t i = 0; i < elements(); i++)
        if (i % shape.channels % 16 == 0)
            inputs->dy[i] = 0;
}

static void move(struct inputs *inputs, float distance) {
    for (size_t i = 0; i < elements(); i++)
        inputs->x[i] += distance;
}

static void mean_of_10(struct inputs *inputs) {
    move(inputs, 10);
}

static void mean_of_1000(struct inputs *inputs) {
    move(inputs, 1000);
}

static void zero_x(struct inputs *inputs) {
    multiply(inputs->x, elements(), 0);
    inputs->call.eps = 0;
}

static void denormal_x(struct inputs *inputs) {
    multiply(inputs->x, elements(), 1e-40f);
    inputs->call.eps = 0;
}

static void far_x(struct inputs *inputs) {
    multiply(inputs->x, elements(), 1e10f);
    inputs->call.beta = 1;
}

static void zero_beta(struct inputs *inputs) {
    inputs->call.beta = 0;
}

static void tiny_beta(struct inputs *inputs) {
    inputs->call.beta = 1e-19f;
}

/* beta + x^2 is then far below 1 in every element. */
static void zero_x_and_tiny_beta(struct inputs *inputs) {
    zero_x(inputs);
    tiny_beta(inputs);
}

static void huge_beta(struct inputs *inputs) {
    inputs->call.beta = 1e20f;
}

static void nan_in_rows(struct inputs *inputs) {
    for (size_t row = 0; row < shape.tokens; row++)
        inputs->x[row * shape.channels + 37 * row % shape.channels] = NAN;
}

static void nan_in_rows_of_dy(struct inputs *inputs) {
    for (size_t row = 0; row < shape.tokens; row++)
        inputs->dy[row * shape.channels + 37 * row % shape.channels] = NAN;
}

static void all_nan(struct inputs *inputs) {
    for (size_t i = 0; i < elements(); i++)
        inputs->x[i] = NAN;
}

/* h = weight dy */
static void overflowing_h(struct inputs *inputs) {
    multiply(inputs->weight, shape.channels, 1e20f);
    multiply(inputs->dy, elements(), 1e20f);
}

static void overflowing_h_in_rows(struct inputs *inputs) {
    inputs->weight[37] = 1e20f;
    for (size_t row = 0; row < shape.tokens; row++)
        inputs->dy[row * shape.channels + 37] = 1e20f;
}

static void rows_of_1e20(struct inputs *inputs) {
    multiply(inputs->x, elements(), 1e20f);
}

static void rows_of_1e33(struct inputs *inputs) {
    multiply(inputs->x, elements(), 1e33f);
}

enum { EVERY_OPERATION = -1, WITH_BETA = -2 };

static const struct kind {
    const char *name;
    int operation; /* whose data they are */
    int backward;  /* whether they matter to the backward pass only */
    int occurs;    /* whether a real model can have them */
    void (*change)(struct inputs *inputs);
} kinds[] = {
    {"saturated", DYNNORM_DYT, 0, 1, saturate_all},
    {"one in 16 saturated", DYNNORM_DYT, 0, 1, saturate_some},
    {"x 100 times as large", EVERY_OPERATION, 0, 1, spread_out},
    {"weight 0", EVERY_OPERATION, 0, 1, zero_weight},
    {"dy of 1e-30", EVERY_OPERATION, 1, 1, tiny_dy},
    {"denormal dy", EVERY_OPERATION, 1, 1, denormal_dy},
    {"w dy of one sign", DYNNORM_LAYERNORM, 1, 1, one_sign},
    {"dy 0 in a 16th of channels", EVERY_OPERATION, 1, 1, channels_without_dy},
    {"dy 0 in half of the rows", EVERY_OPERATION, 1, 1, rows_without_dy},
    {"mean 10", EVERY_OPERATION, 0, 1, mean_of_10},
    {"mean 1000", EVERY_OPERATION, 0, 1, mean_of_1000},
    {"x 0, eps 0", EVERY_OPERATION, 0, 1, zero_x},
    {"denormal x, eps 0", EVERY_OPERATION, 0, 0, denormal_x},
    {"x of 1e10, beta 1", WITH_BETA, 0, 0, far_x},
    {"beta 0", WITH_BETA, 0, 1, zero_beta},
    {"beta 1e-19", WITH_BETA, 0, 1, tiny_beta},
    {"x 0, beta 1e-19", WITH_BETA, 0, 1, zero_x_and_tiny_beta},
    {"beta 1e20", WITH_BETA, 0, 1, huge_beta},
    {"a NaN in each row", EVERY_OPERATION, 0, 1, nan_in_rows},
    {"a NaN in each row of dy", EVERY_OPERATION, 1, 1, nan_in_rows_of_dy},
    {"all NaN", EVERY_OPERATION, 0, 1, all_nan},
    {"h overflows", EVERY_OPERATION, 1, 0, overflowing_h},
    {"one h of a row overflows", EVERY_OPERATION, 1, 0, overflowing_h_in_rows},
    {"x of 1e20", EVERY_OPERATION, 0, 0, rows_of_1e20},
    {"x of 1e33", EVERY_OPERATION, 0, 0, rows_of_1e33},
};

static int concerns(const struct kind *kind, dynnorm_operation operation, int backward) {
    int has_beta = dynnorm_operations[operation].parameter == offsetof(dynnorm_descriptor, beta);
    if (setting != settings && (backward || !kind->occurs))
        return 0;
    return (backward || !kind->backward) && (kind->operation == EVERY_OPERATION || kind->operation == (int)operation ||
                                             (kind->operation == WITH_BETA && has_beta));
}

/* ---- The measurement --------------------------------------------------------------------------------------------- */

static void run_forward(void *call) {
    dynnorm_forward(call);
}

static void run_backward(void *call) {
    dynnorm_backward(call);
}

static float *copy_of(const float *values, size_t count) {
    float *copy = allocate_pages(count * sizeof *copy);
    return memcpy(copy, values, count * sizeof *copy);
}

/* Makes the inputs of a call, changed as the kind of data says, if there is one, and completes the call. */
static dynnorm_status make_inputs(struct inputs *inputs, const struct listed_kernel *kernel, const struct kind *kind) {
    const struct tensors *tensors = tensors_of(shape);
    inputs->call = describe_call(kernel->operation, shape);
    inputs->call.mode = kernel->mode;
    inputs->call.x.data = inputs->x = copy_of(tensors->x, elements());
    inputs->call.weight.data = inputs->weight = copy_of(tensors->weight, shape.channels);
    inputs->dy = copy_of(tensors->dy, elements());
    if (kind)
        kind->change(inputs);
    if (!kernel->backward) {
        complete_forward(&inputs->call);
        if (setting->type != DYNNORM_F32) {
            inputs->halves = allocate_pages(elements() * sizeof(float));
            dynnorm_active_kernels()->conversions[setting->type].narrow(inputs->halves, inputs->x, elements(), 0);
            inputs->call.x.data = inputs->halves;
            inputs->call.x.type = inputs->call.y.type = setting->type;
        }
        return DYNNORM_OK;
    }
    dynnorm_status status = complete_backward(&inputs->call);
    inputs->call.dy.data = inputs->dy;
    /* The next call's statistics will be where this one's are. */
    inputs->call.mean = inputs->call.mean ? copy_of(inputs->call.mean, shape.tokens) : NULL;
    inputs->call.rstd = inputs->call.rstd ? copy_of(inputs->call.rstd, shape.tokens) : NULL;
    if (!status)
        status = dynnorm_workspace_size(&inputs->call, &inputs->call.workspace_size);
    if (!status)
        inputs->call.workspace = allocate_pages(inputs->call.workspace_size);
    return status;
}

static void free_inputs(struct inputs *inputs, int backward) {
    free(inputs->x);
    free(inputs->dy);
    free(inputs->weight);
    free(inputs->halves);
    if (backward) {
        free(inputs->call.mean);
        free(inputs->call.rstd);
        free(inputs->call.workspace);
    }
}

static void probe(const struct listed_kernel *kernel, const struct kind *kind) {
    struct inputs ordinary = {0}, special = {0};
    void (*run)(void *) = kernel->backward ? run_backward : run_forward;
    dynnorm_status status = make_inputs(&ordinary, kernel, NULL);
    if (!status)
        status = make_inputs(&special, kernel, kind);
    double times[2] = {HUGE_VAL, HUGE_VAL};
    for (int round = 0; !status && round < ROUNDS; round++) {
        times[0] = fmin(times[0], probe_time(run, &ordinary.call, at_least));
        times[1] = fmin(times[1], probe_time(run, &special.call, at_least));
    }
    if (status)
        fprintf(stderr, "dynnorm-probe: %s, %s: %s\n", kernel->operation_name, kind->name,
                dynnorm_status_string(status));
    else
        printf("{\"type\": \"%s\", \"tokens\": %zu, \"operation\": \"%s\", \"direction\": \"%s\", \"mode\": \"%s\", "
               "\"data\": \"%s\", "
               "\"occurs\": %s, \"ordinary\": %.0f, \"special\": %.0f}\n",
               setting->type_name, shape.tokens, kernel->operation_name, kernel->backward ? "backward" : "forward",
               kernel->mode_name, kind->name, kind->occurs ? "true" : "false", times[0], times[1]);
    free_inputs(&ordinary, kernel->backward);
    free_inputs(&special, kernel->backward);
}

static void probe_kinds(const struct listed_kernel *kernel) {
    for (const struct kind *kind = kinds; kind < kinds + sizeof kinds / sizeof *kinds; kind++)
        if (concerns(kind, kernel->operation, kernel->backward))
            probe(kernel, kind);
}

/* Of a kernel that is not the portable one, only floats: the others are computed by way of them, but for the brief
 * mode's, which are not among these kernels. */
static int has_kernel(const struct kernels *table, const struct listed_kernel *kernel) {
    return has_own_kernel(table, kernel) && kernel->mode != DYNNORM_SLEEF &&
           (setting->type == DYNNORM_F32 || kernel->mode == DYNNORM_PORTABLE);
}

static int has_brief_kernel(const struct kernels *table, const struct listed_halves *halves) {
    return halves->type == setting->type && halves->kernel.mode == DYNNORM_BRIEF &&
           table->halves[halves->kernel.operation][DYNNORM_BRIEF];
}

void probe_cliffs(void) {
    const struct kernels *table = dynnorm_active_kernels();
    printf("{\"isa\": \"%s\", \"channels\": %zu}\n", table->isa, settings->shape.channels);
    for (setting = settings; setting < settings + sizeof settings / sizeof *settings; setting++) {
        shape = setting->shape;
        for (size_t i = 0; i < listed_kernel_count; i++)
            if (has_kernel(table, &listed_kernels[i]))
                probe_kinds(&listed_kernels[i]);
        for (size_t i = 0; i < listed_halves_count; i++)
            if (has_brief_kernel(table, &listed_halves[i]))
                probe_kinds(&listed_halves[i].kernel);
    }
}
