/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Plain calls with one token or few, which have ways of their own, and calls with a descriptor that are no more than
 * these and take the same ways, or that have few rows of 16 bits or with a residual. They must do what the descriptor's
 * calls do in the general way, to the last bit and the last mistake.
 */
#include "call.h"
#include "float_bits.h"
#include "random.h"
#include "row_patterns.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- A plain call ------------------------------------------------------------------------------------------------ */

struct plain {
    dynnorm_operation operation;
    float *y, *mean, *rstd, *x, *weight, *bias; /* NULL if the operation does not have it */
    float parameter;                            /* eps, alpha or beta */
    float scale;
    size_t tokens, channels;
};

static int has_bias(dynnorm_operation operation) {
    return operation != DYNNORM_RMSNORM;
}

static int has_rstd(dynnorm_operation operation) {
    return operation == DYNNORM_LAYERNORM || operation == DYNNORM_RMSNORM;
}

static dynnorm_status run_plain(const struct plain *p) {
    switch (p->operation) {
    case DYNNORM_LAYERNORM:
        return dynnorm_layernorm_forward_f32(p->y, p->mean, p->rstd, p->x, p->weight, p->bias, p->parameter, p->tokens,
                                             p->channels);
    case DYNNORM_RMSNORM:
        return dynnorm_rmsnorm_forward_f32(p->y, p->rstd, p->x, p->weight, p->parameter, p->tokens, p->channels);
    case DYNNORM_DYT:
        return dynnorm_dyt_forward_f32(p->y, p->x, p->weight, p->bias, p->parameter, p->scale, p->tokens, p->channels);
    default:
        return dynnorm_dyisru_forward_f32(p->y, p->x, p->weight, p->bias, p->parameter, p->scale, p->tokens,
                                          p->channels);
    }
}

static dynnorm_descriptor describe_plain(const struct plain *p) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = p->operation;
    call.y.data = p->y;
    call.mean = p->mean;
    call.rstd = p->rstd;
    call.x.data = p->x;
    call.weight.data = p->weight;
    call.bias.data = p->bias;
    call.eps = call.alpha = call.beta = p->parameter;
    call.scale = p->scale;
    call.tokens = p->tokens;
    call.channels = p->channels;
    return call;
}

/* A range of rows takes the general way. */
static dynnorm_status run_descriptor(const struct plain *p) {
    const dynnorm_descriptor call = describe_plain(p);
    return dynnorm_forward_rows(&call, 0, p->tokens);
}

/* ---- What a plain call has not ----------------------------------------------------------------------------------- */

#define FIELD(name) offsetof(dynnorm_descriptor, name)
static const size_t int_fields[] = {FIELD(mode),
                                    FIELD(x.type),
                                    FIELD(y.type),
                                    FIELD(dy.type),
                                    FIELD(dx.type),
                                    FIELD(weight.type),
                                    FIELD(bias.type),
                                    FIELD(dweight.type),
                                    FIELD(dbias.type),
                                    FIELD(residual.type),
                                    FIELD(residual_bias.type),
                                    FIELD(sum.type),
                                    FIELD(dsum.type),
                                    FIELD(alphas.type),
                                    FIELD(betas.type),
                                    FIELD(round_before_weight),
                                    FIELD(parameter_per_channel)};
static const size_t size_fields[] = {FIELD(axes), FIELD(executor.threads), FIELD(executor.least_elements)};
static const size_t float_fields[] = {FIELD(weight_offset), FIELD(y_scale)};
static const size_t pointer_fields[] = {FIELD(x_axis_strides),
                                        FIELD(y_axis_strides),
                                        FIELD(dy_axis_strides),
                                        FIELD(dx_axis_strides),
                                        FIELD(residual_axis_strides),
                                        FIELD(sum_axis_strides),
                                        FIELD(dsum_axis_strides),
                                        FIELD(residual.data),
                                        FIELD(residual_bias.data),
                                        FIELD(sum.data),
                                        FIELD(dbias.data),
                                        FIELD(dalpha),
                                        FIELD(dbeta),
                                        FIELD(y_scales),
                                        FIELD(alphas.data),
                                        FIELD(betas.data),
                                        FIELD(executor.pool)};
#define LENGTH(array) (sizeof(array) / sizeof *(array))
enum { ADDITIONS = LENGTH(int_fields) + LENGTH(size_fields) + LENGTH(float_fields) + LENGTH(pointer_fields) };

/* Sets one of these fields; what a pointer points to is given. Gives its offset. */
static size_t add_to_call(dynnorm_descriptor *call, size_t which, void *pointer) {
    unsigned char *bytes = (unsigned char *)call;
    const int one = 1;
    const size_t size = 1;
    const float half = 0.5f;
    if (which < LENGTH(int_fields))
        return memcpy(bytes + int_fields[which], &one, sizeof one), int_fields[which];
    which -= LENGTH(int_fields);
    if (which < LENGTH(size_fields))
        return memcpy(bytes + size_fields[which], &size, sizeof size), size_fields[which];
    which -= LENGTH(size_fields);
    if (which < LENGTH(float_fields))
        return memcpy(bytes + float_fields[which], &half, sizeof half), float_fields[which];
    which -= LENGTH(float_fields);
    return memcpy(bytes + pointer_fields[which], &pointer, sizeof pointer), pointer_fields[which];
}

/* ---- Calls of all kinds ------------------------------------------------------------------------------------------ */

enum { ARENA = 1 << 12, MOST_ELEMENTS = 80 };
static _Alignas(64) unsigned char arena[ARENA], filled[ARENA], expected[ARENA];

/* A pointer into the arena's first bytes; some are NULL, and some are not aligned. */
static float *choose_place(struct random *random, size_t bytes) {
    size_t at = random_below(random, bytes / sizeof(float)) * sizeof(float);
    if (!random_below(random, 16))
        at += random_below(random, sizeof(float));
    return random_below(random, 16) ? (float *)(void *)(arena + at) : NULL;
}

static struct plain choose_call(struct random *random, dynnorm_operation operation) {
    static const float parameters[] = {1e-5f, 0, -0.0f, -1e-5f, INFINITY, NAN, 0x1p-149f, 3e38f};
    static const float scales[] = {1, 2.5f, 0, -3, 0x1p127f, -0x1p-149f, INFINITY, NAN};
    static const size_t mistaken_channels[] = {0, MOST_FLOATS + 1, SIZE_MAX / 4 + 2, SIZE_MAX / 8 + 2, SIZE_MAX};
    struct plain p = {.operation = operation, .tokens = 1, .parameter = 0.5f, .scale = 1};
    /* In much room most calls are right, in little room most are not. */
    size_t bytes = random_below(random, 2) ? ARENA - MOST_ELEMENTS * sizeof(float) - 4 : 64;
    p.channels = 1 + random_below(random, random_below(random, 2) ? 4 : MOST_ELEMENTS);
    p.y = choose_place(random, bytes);
    p.rstd = has_rstd(operation) ? choose_place(random, bytes) : NULL;
    p.x = random_below(random, 4) ? choose_place(random, bytes) : p.y;
    p.weight = choose_place(random, bytes);
    p.mean = operation == DYNNORM_LAYERNORM ? choose_place(random, bytes) : NULL;
    p.bias = has_bias(operation) ? choose_place(random, bytes) : NULL;
    if (!p.y && random_below(random, 2)) /* no output at all, which would be rare otherwise */
        p.mean = p.rstd = NULL;
    if (!random_below(random, 8))
        p.parameter = parameters[random_below(random, sizeof parameters / sizeof *parameters)];
    if (!has_rstd(operation) && !random_below(random, 8))
        p.scale = scales[random_below(random, sizeof scales / sizeof *scales)];
    if (!random_below(random, 16))
        p.channels = mistaken_channels[random_below(random, sizeof mistaken_channels / sizeof *mistaken_channels)];
    if (!random_below(random, 32))
        p.tokens = 0;
    return p;
}

/* Of a call without strides: one, some, or far too many. */
static size_t choose_tokens(struct random *random, const struct plain *p) {
    static const size_t mistaken_tokens[] = {SIZE_MAX / 4 + 2, SIZE_MAX};
    if (!random_below(random, 64))
        return mistaken_tokens[random_below(random, 2)];
    return p->tokens && p->channels - 1 < MOST_ELEMENTS && !random_below(random, 4)
               ? 1 + random_below(random, MOST_ELEMENTS / p->channels)
               : p->tokens;
}

static void check_calls(const struct isa *isa, dynnorm_operation operation) {
    struct random random = random_start(random_seed());
    size_t count = thinned_for(isa) ? 4000 : 400000, by_status[64] = {0}, differ = 0;
    for (size_t i = 0; i < ARENA / sizeof(float); i++)
        set_float_at(filled, i, random_normal(&random));
    for (size_t i = 0; i < count && !differ; i++) {
        struct plain p = choose_call(&random, operation);
        p.tokens = choose_tokens(&random, &p);
        memcpy(arena, filled, ARENA);
        dynnorm_status status = run_descriptor(&p);
        memcpy(expected, arena, ARENA);
        memcpy(arena, filled, ARENA);
        dynnorm_status got = run_plain(&p);
        by_status[(unsigned)got % 64]++;
        differ = got != status || memcmp(arena, expected, ARENA);
        if (!differ) {
            memcpy(arena, filled, ARENA);
            const dynnorm_descriptor call = describe_plain(&p);
            got = dynnorm_forward(&call);
            differ = got != status || memcmp(arena, expected, ARENA);
        }
        if (differ)
            printf(
                "# call %zu: y %p, mean %p, rstd %p, x %p, weight %p, bias %p, %g, scale %g, %zu tokens, %zu channels: "
                "status %d, by the descriptor %d\n",
                i, (void *)p.y, (void *)p.mean, (void *)p.rstd, (void *)p.x, (void *)p.weight, (void *)p.bias,
                (double)p.parameter, (double)p.scale, p.tokens, p.channels, (int)got, (int)status);
    }
    tap_check(!differ, "%s, %s: any call does what the descriptor's does", isa->identifier,
              dynnorm_operations[operation].name);
    static const dynnorm_status mistakes[] = {[DYNNORM_LAYERNORM] = DYNNORM_ERROR_EPS,
                                              [DYNNORM_RMSNORM] = DYNNORM_ERROR_EPS,
                                              [DYNNORM_DYT] = DYNNORM_ERROR_ALPHA,
                                              [DYNNORM_DYISRU] = DYNNORM_ERROR_BETA};
    tap_check(by_status[DYNNORM_OK] > count / 10 && by_status[DYNNORM_ERROR_OVERLAP] > count / 10 &&
                  by_status[mistakes[operation]] && (has_rstd(operation) || by_status[DYNNORM_ERROR_SCALE]) &&
                  by_status[DYNNORM_ERROR_NULL_POINTER] && by_status[DYNNORM_ERROR_NO_OUTPUT] &&
                  by_status[DYNNORM_ERROR_ZERO_CHANNELS] && by_status[DYNNORM_ERROR_SIZE_OVERFLOW],
              "%s, %s: there were calls of all kinds", isa->identifier, dynnorm_operations[operation].name);
}

/* Whether a call does something else than the same rows by a range, which takes the general way. */
static int differs_from_general_way(const dynnorm_descriptor *call, dynnorm_status *got) {
    memcpy(arena, filled, ARENA);
    const dynnorm_status status = dynnorm_forward_rows(call, 0, call->tokens);
    memcpy(expected, arena, ARENA);
    memcpy(arena, filled, ARENA);
    *got = dynnorm_forward(call);
    if (*got == status && !memcmp(arena, expected, ARENA))
        return 0;
    printf("# y %p, mean %p, rstd %p, x %p, weight %p, bias %p, residual %p, sum %p, types %d %d %d %d "
           "%d %d, mode %d, offset %g, %zu tokens, %zu channels: status %d, by rows %d\n",
           call->y.data, (void *)call->mean, (void *)call->rstd, call->x.data, call->weight.data, call->bias.data,
           call->residual.data, call->sum.data, (int)call->x.type, (int)call->y.type, (int)call->weight.type,
           (int)call->bias.type, (int)call->residual.type, (int)call->sum.type, (int)call->mode,
           (double)call->weight_offset, call->tokens, call->channels, (int)*got, (int)status);
    return 1;
}

/* With something that a plain call has not. */
static void check_additions(const struct isa *isa, dynnorm_operation operation) {
    struct random random = random_start(random_seed());
    size_t count = thinned_for(isa) ? 2000 : 100000, differ = 0;
    for (size_t i = 0; i < count && !differ; i++) {
        const struct plain p = choose_call(&random, operation);
        dynnorm_descriptor call = describe_plain(&p);
        const size_t field = add_to_call(&call, i % ADDITIONS, arena + ARENA / 2);
        dynnorm_status got;
        differ = (size_t)differs_from_general_way(&call, &got);
        if (differ)
            printf("# call %zu, with the field at %zu\n", i, field);
    }
    tap_check(!differ, "%s, %s: a descriptor with more than a plain call has", isa->identifier,
              dynnorm_operations[operation].name);
}

static const size_t stride_fields[] = {FIELD(x.row_stride), FIELD(y.row_stride), FIELD(residual.row_stride),
                                       FIELD(sum.row_stride)};

static void set_size(dynnorm_descriptor *call, size_t field, size_t value) {
    memcpy((unsigned char *)call + field, &value, sizeof value);
}

/* Mostly one that is summed in one pass. */
static void add_residual(struct random *random, dynnorm_descriptor *call) {
    void *const places[] = {call->x.data, call->y.data, choose_place(random, ARENA / 2),
                            choose_place(random, ARENA / 2), choose_place(random, ARENA / 2)};
    call->residual.data = places[random_below(random, LENGTH(places))];
    call->sum.data = random_below(random, 4) ? places[random_below(random, LENGTH(places))] : call->residual.data;
    call->residual.type = call->sum.type = call->x.type;
    if (!random_below(random, 8))
        call->residual.type = (dynnorm_type)random_below(random, TYPES + 2);
    if (!random_below(random, 8))
        call->sum.type = (dynnorm_type)random_below(random, TYPES + 2);
    call->normalize_unrounded_sum = !random_below(random, 8);
    if (!random_below(random, 8))
        call->residual.data = call->sum.data = NULL;
}

/* Few rows of 16 bits, or with a residual, and calls that are nearly such. They have what the operation does not use
 * now and then. */
static dynnorm_descriptor choose_rows(struct random *random, dynnorm_operation operation) {
    static const float offsets[] = {0.5f, -0.0f, 1, -2.5f, INFINITY, NAN};
    static const size_t mistaken_tokens[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1, SIZE_MAX / 64 + 1};
    const struct plain p = choose_call(random, operation);
    dynnorm_descriptor call = describe_plain(&p);
    if (call.channels && call.channels <= MOST_ELEMENTS / 2 && random_below(random, 2))
        call.tokens = 1 + random_below(random, MOST_ELEMENTS / (call.channels + 1));
    if (!random_below(random, 64))
        call.tokens = mistaken_tokens[random_below(random, LENGTH(mistaken_tokens))];
    for (size_t i = 0; i < LENGTH(stride_fields) && call.tokens > 1; i++)
        if (!random_below(random, 8))
            set_size(&call, stride_fields[i], call.channels + random_below(random, 2));
    call.x.type = call.y.type = (dynnorm_type)random_below(random, TYPES);
    if (!random_below(random, 16))
        call.y.type = (dynnorm_type)random_below(random, TYPES + 2);
    if (call.x.type != DYNNORM_F32 || !random_below(random, 4)) {
        call.weight.type = (dynnorm_type)random_below(random, random_below(random, 8) ? TYPES : TYPES + 2);
        call.bias.type = (dynnorm_type)random_below(random, random_below(random, 8) ? TYPES : TYPES + 2);
    }
    if (random_below(random, 2))
        add_residual(random, &call);
    if (!random_below(random, 4))
        call.mode = (dynnorm_mode)random_below(random, MODES + 1);
    if (!random_below(random, 4))
        call.weight_offset = offsets[random_below(random, LENGTH(offsets))];
    if (!random_below(random, 16))
        call.mean = choose_place(random, ARENA / 2);
    if (!random_below(random, 16))
        call.rstd = choose_place(random, ARENA / 2);
    if (!random_below(random, 16))
        call.bias.data = choose_place(random, ARENA / 2);
    if (!random_below(random, 16))
        call.operation = random_below(random, 4) ? DYNNORM_CENTERED_DYISRU : (dynnorm_operation)OPERATIONS;
    return call;
}

static void check_rows(const struct isa *isa, dynnorm_operation operation) {
    struct random random = random_start(random_seed());
    size_t count = thinned_for(isa) ? 6000 : 200000, differ = 0, halves = 0, sums[TYPES] = {0};
    for (size_t i = 0; i < count && !differ; i++) {
        dynnorm_descriptor call = choose_rows(&random, operation);
        if (!random_below(&random, 4))
            add_to_call(&call, random_below(&random, ADDITIONS), arena + ARENA / 2);
        dynnorm_status got;
        differ = (size_t)differs_from_general_way(&call, &got);
        if (got == DYNNORM_OK && call.x.type != DYNNORM_F32)
            halves++;
        if (got == DYNNORM_OK && call.residual.data)
            sums[call.x.type]++;
    }
    tap_check(!differ && halves > count / 30 && sums[DYNNORM_F32] > count / 200 && sums[DYNNORM_BF16] > count / 200 &&
                  sums[DYNNORM_F16] > count / 200,
              "%s, %s: few rows of 16 bits, or with a residual, do what the general way does", isa->identifier,
              dynnorm_operations[operation].name);
}

/* ---- The bits of a row alone, and of the same row among others --------------------------------------------------- */

enum { ROWS = 11, LONGEST = 4100 };

struct answers {
    float y[ROWS * LONGEST], mean[ROWS], rstd[ROWS];
};
static struct answers among_others, alone;
static float rows[ROWS * LONGEST], weights[LONGEST], biases[LONGEST];
static unsigned char shifted[LONGEST * sizeof(float) + 64]; /* for a row at any alignment */

static int same(float a, float b) {
    return bits_of_float(a) == bits_of_float(b) || (isnan(a) && isnan(b));
}

static void fill_rows(struct random *random, const struct pattern *pattern, size_t channels) {
    for (size_t row = 0; row < ROWS; row++)
        pattern->fill(random, rows + row * channels, channels, pattern->argument);
    for (size_t c = 0; c < channels; c++) {
        weights[c] = random_normal(random);
        biases[c] = random_normal(random);
    }
}

/* Every other row is computed in place. */
static void run_alone(struct plain p, size_t row) {
    const size_t bytes = p.channels * sizeof(float);
    float *place = (float *)(void *)(shifted + 4 * row + (row == 5));
    memcpy(place, rows + row * p.channels, bytes);
    p.tokens = 1;
    p.x = place;
    p.y = row % 2 ? place : alone.y + row * p.channels;
    p.mean = p.mean ? alone.mean + row : NULL;
    p.rstd = p.rstd ? alone.rstd + row : NULL;
    run_plain(&p);
    if (row % 2)
        memcpy(alone.y + row * p.channels, place, bytes);
}

static int row_differs(const struct plain *p, size_t row) {
    for (size_t c = row * p->channels; c < (row + 1) * p->channels; c++)
        if (!same(among_others.y[c], alone.y[c]))
            return 1;
    return (p->mean && !same(among_others.mean[row], alone.mean[row])) ||
           (p->rstd && !same(among_others.rstd[row], alone.rstd[row]));
}

static void check_bits_of(const struct isa *isa, dynnorm_operation operation, const struct pattern *pattern) {
    static const size_t all_channels[] = {1,   2,   3,   5,   8,   15,  16,  17,   23,   31,   32,
                                          33,  47,  48,  49,  63,  64,  65,  71,   100,  127,  128,
                                          129, 255, 256, 257, 288, 300, 768, 1000, 1024, 4096, LONGEST};
    struct random random = random_start(random_seed());
    size_t differ = 0, compared = 0;
    for (size_t i = 0; i < sizeof all_channels / sizeof *all_channels; i++) {
        if (thinned_for(isa) && (i % 4 || all_channels[i] == LONGEST))
            continue;
        struct plain p = {.operation = operation,
                          .y = among_others.y,
                          .mean = operation == DYNNORM_LAYERNORM ? among_others.mean : NULL,
                          .rstd = has_rstd(operation) ? among_others.rstd : NULL,
                          .x = rows,
                          .weight = weights,
                          .bias = has_bias(operation) ? biases : NULL,
                          .parameter = pattern->without_eps ? 0 : 1e-5f,
                          .scale = has_rstd(operation) || i % 2 ? 1 : 1.75f,
                          .tokens = ROWS,
                          .channels = all_channels[i]};
        fill_rows(&random, pattern, p.channels);
        run_plain(&p);
        for (size_t row = 0; row < ROWS; row++) {
            run_alone(p, row);
            compared++;
            if (row_differs(&p, row) && !differ++)
                printf("# row %zu of %zu channels\n", row, p.channels);
        }
    }
    tap_check(!differ, "%s, %s, %s: %zu of %zu rows differ alone and among others", isa->identifier,
              dynnorm_operations[operation].name, pattern->name, differ, compared);
}

/* ---- Which way a call goes --------------------------------------------------------------------------------------- */

static int calls_of_kernel;

static layernorm_call watched_layernorm;
static dynnorm_status watched_layernorm(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                        const float *bias, float eps, size_t tokens, size_t channels) {
    calls_of_kernel++;
    return dynnorm_layernorm_any(y, mean, rstd, x, weight, bias, eps, tokens, channels);
}

static rmsnorm_call watched_rmsnorm;
static dynnorm_status watched_rmsnorm(float *y, float *rstd, const float *x, const float *weight, float eps,
                                      size_t tokens, size_t channels) {
    calls_of_kernel++;
    return dynnorm_rmsnorm_any(y, rstd, x, weight, eps, tokens, channels);
}

static dyt_call watched_dyt;
static dynnorm_status watched_dyt(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                  float scale, size_t tokens, size_t channels) {
    calls_of_kernel++;
    return dynnorm_dyt_any(y, x, weight, bias, alpha, scale, tokens, channels);
}

static dyisru_call watched_dyisru;
static dynnorm_status watched_dyisru(float *y, const float *x, const float *weight, const float *bias, float beta,
                                     float scale, size_t tokens, size_t channels) {
    calls_of_kernel++;
    return dynnorm_dyisru_any(y, x, weight, bias, beta, scale, tokens, channels);
}

static void expect_way(const struct plain *p, int is_short, const char *what) {
    calls_of_kernel = 0;
    dynnorm_status status = run_plain(p);
    tap_check(status == DYNNORM_OK && calls_of_kernel == is_short, "%s, %s: %s way",
              dynnorm_operations[p->operation].name, what, is_short ? "the short" : "the general");
}

/* A descriptor that is no more than a plain call goes the same way, others do not. */
static void expect_ways_of_descriptor(const struct plain *p) {
    const dynnorm_descriptor usual = describe_plain(p);
    calls_of_kernel = 0;
    tap_check(dynnorm_forward(&usual) == DYNNORM_OK && calls_of_kernel == 1, "%s: the short way of a descriptor",
              dynnorm_operations[p->operation].name);
    for (size_t i = 0; i < ADDITIONS; i++) {
        dynnorm_descriptor call = usual;
        const size_t field = add_to_call(&call, i, arena + ARENA / 2);
        calls_of_kernel = 0;
        dynnorm_forward(&call);
        tap_check(!calls_of_kernel, "%s: the general way with the field at %zu", dynnorm_operations[p->operation].name,
                  field);
    }
    dynnorm_descriptor call = usual;
    call.size = offsetof(dynnorm_descriptor, axes);
    calls_of_kernel = 0;
    tap_check(dynnorm_forward(&call) == DYNNORM_OK && !calls_of_kernel, "%s: the general way of an earlier version",
              dynnorm_operations[p->operation].name);
}

/* A kernel for one row need not understand what is unusual, and must be called for all else. */
static void check_ways(dynnorm_operation operation) {
    struct kernels watched = *dynnorm_active_kernels();
    watched.layernorm_row = watched_layernorm;
    watched.rmsnorm_row = watched_rmsnorm;
    watched.dyt_row = watched_dyt;
    watched.dyisru_row = watched_dyisru;
    dynnorm_use_kernels(&watched);
    float *floats = (float *)(void *)arena;
    memcpy(arena, filled, ARENA);
    const int is_layernorm = operation == DYNNORM_LAYERNORM;
    const struct plain usual = {.operation = operation,
                                .y = floats,
                                .x = floats + 100,
                                .weight = floats + 200,
                                .bias = has_bias(operation) ? floats + 300 : NULL,
                                .mean = is_layernorm ? floats + 400 : NULL,
                                .rstd = has_rstd(operation) ? floats + 402 : NULL,
                                .parameter = 1e-5f,
                                .scale = 1,
                                .tokens = 1,
                                .channels = 100};
    struct plain p = usual;
    expect_way(&p, 1, "all buffers, side by side");
    expect_ways_of_descriptor(&p);
    p.mean = p.rstd = NULL;
    expect_way(&p, 1, "no statistics");
    p.x = p.y;
    expect_way(&p, 1, "in place");
    p.parameter = 0;
    expect_way(&p, 1, "eps, alpha or beta 0");
    dynnorm_descriptor with_residual = describe_plain(&usual);
    with_residual.residual.data = floats + 500;
    with_residual.sum.data = floats + 600;
    calls_of_kernel = 0;
    tap_check(dynnorm_forward(&with_residual) == DYNNORM_OK && calls_of_kernel == 1,
              "%s: the short way with a residual", dynnorm_operations[operation].name);
    p = usual;
    p.tokens = 2;
    p.channels = 50;
    expect_way(&p, 0, "two tokens");
    if (has_rstd(operation)) {
        p = usual;
        p.y = NULL;
        expect_way(&p, 0, "no y");
    }
    p = usual;
    p.weight = NULL;
    expect_way(&p, 0, "no weight");
    if (has_bias(operation)) {
        p = usual;
        p.bias = NULL;
        expect_way(&p, 0, "no bias");
    }
    use_table(NULL);
}

int main(void) {
    printf("# seed %llu\n", (unsigned long long)random_seed());
    static const dynnorm_operation operations[] = {DYNNORM_LAYERNORM, DYNNORM_RMSNORM, DYNNORM_DYT, DYNNORM_DYISRU};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        for (size_t table = 0; table < dynnorm_isa_count; table++)
            if (use_table(&dynnorm_isa_list[table])) {
                check_calls(&dynnorm_isa_list[table], operations[i]);
                check_additions(&dynnorm_isa_list[table], operations[i]);
                check_rows(&dynnorm_isa_list[table], operations[i]);
                for (size_t pattern = 0; pattern < (table_is_wanted(&dynnorm_isa_list[table]) ? pattern_count : 1);
                     pattern++)
                    check_bits_of(&dynnorm_isa_list[table], operations[i], &patterns[pattern]);
            } else {
                tap_skip(dynnorm_isa_list[table].identifier, TABLE_IS_UNAVAILABLE);
            }
        use_table(NULL);
        check_ways(operations[i]);
    }
    return tap_done();
}
