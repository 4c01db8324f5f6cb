/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Plain calls with one token, which have a way of their own. They must do what the descriptor's calls do, to the last
 * bit and the last mistake.
 */
#include "call.h"
#include "random.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- A plain call ------------------------------------------------------------------------------------------------ */

struct plain {
    dynnorm_operation operation;
    float *y, *mean, *rstd, *x, *weight, *bias; /* mean and bias are NULL for RMSNorm */
    float eps;
    size_t tokens, channels;
};

static dynnorm_status run_plain(const struct plain *p) {
    return p->operation == DYNNORM_LAYERNORM
               ? dynnorm_layernorm_forward_f32(p->y, p->mean, p->rstd, p->x, p->weight, p->bias, p->eps, p->tokens,
                                               p->channels)
               : dynnorm_rmsnorm_forward_f32(p->y, p->rstd, p->x, p->weight, p->eps, p->tokens, p->channels);
}

static dynnorm_status run_descriptor(const struct plain *p) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = p->operation;
    call.y.data = p->y;
    call.mean = p->mean;
    call.rstd = p->rstd;
    call.x.data = p->x;
    call.weight.data = p->weight;
    call.bias.data = p->bias;
    call.eps = p->eps;
    call.tokens = p->tokens;
    call.channels = p->channels;
    return dynnorm_forward(&call);
}

/* ---- Calls of all kinds ------------------------------------------------------------------------------------------ */

enum { ARENA = 1 << 12, MOST_CHANNELS = 80 };
static _Alignas(64) unsigned char arena[ARENA], filled[ARENA], expected[ARENA];

/* A pointer into the arena's first bytes; some are NULL, and some are not aligned. */
static float *choose_place(struct random *random, size_t bytes) {
    size_t at = random_below(random, bytes / sizeof(float)) * sizeof(float);
    if (!random_below(random, 16))
        at += random_below(random, sizeof(float));
    return random_below(random, 16) ? (float *)(void *)(arena + at) : NULL;
}

static struct plain choose_call(struct random *random, dynnorm_operation operation) {
    static const float all_eps[] = {1e-5f, 0, -0.0f, -1e-5f, INFINITY, NAN, 0x1p-149f, 3e38f};
    static const size_t mistaken_channels[] = {0, MOST_FLOATS + 1, SIZE_MAX / 4 + 2, SIZE_MAX / 8 + 2, SIZE_MAX};
    struct plain p = {.operation = operation, .tokens = 1, .eps = 1e-5f};
    /* In much room most calls are right, in little room most are not. */
    size_t bytes = random_below(random, 2) ? ARENA - MOST_CHANNELS * sizeof(float) - 4 : 64;
    p.channels = 1 + random_below(random, random_below(random, 2) ? 4 : MOST_CHANNELS);
    p.y = choose_place(random, bytes);
    p.rstd = choose_place(random, bytes);
    p.x = random_below(random, 4) ? choose_place(random, bytes) : p.y;
    p.weight = choose_place(random, bytes);
    if (operation == DYNNORM_LAYERNORM) {
        p.mean = choose_place(random, bytes);
        p.bias = choose_place(random, bytes);
    }
    if (!random_below(random, 8))
        p.eps = all_eps[random_below(random, sizeof all_eps / sizeof *all_eps)];
    if (!random_below(random, 16))
        p.channels = mistaken_channels[random_below(random, sizeof mistaken_channels / sizeof *mistaken_channels)];
    if (!random_below(random, 32))
        p.tokens = 0;
    return p;
}

static void check_calls(const struct isa *isa, dynnorm_operation operation) {
    struct random random = random_start(random_seed());
    size_t count = thinned() ? 4000 : 400000, by_status[64] = {0}, differ = 0;
    for (size_t i = 0; i < ARENA / sizeof(float); i++)
        set_float_at(filled, i, random_normal(&random));
    for (size_t i = 0; i < count && !differ; i++) {
        struct plain p = choose_call(&random, operation);
        memcpy(arena, filled, ARENA);
        dynnorm_status status = run_descriptor(&p);
        memcpy(expected, arena, ARENA);
        memcpy(arena, filled, ARENA);
        dynnorm_status got = run_plain(&p);
        by_status[(unsigned)got % 64]++;
        differ = got != status || (status && memcmp(arena, filled, ARENA));
        if (differ)
            printf("# call %zu: y %p, mean %p, rstd %p, x %p, weight %p, bias %p, eps %g, %zu tokens, %zu channels: "
                   "status %d, by the descriptor %d\n",
                   i, (void *)p.y, (void *)p.mean, (void *)p.rstd, (void *)p.x, (void *)p.weight, (void *)p.bias,
                   (double)p.eps, p.tokens, p.channels, (int)got, (int)status);
    }
    tap_check(!differ, "%s, %s: any call does what the descriptor's does", isa->identifier,
              dynnorm_operations[operation].name);
    tap_check(by_status[DYNNORM_OK] > count / 10 && by_status[DYNNORM_ERROR_OVERLAP] > count / 10 &&
                  by_status[DYNNORM_ERROR_EPS] && by_status[DYNNORM_ERROR_NULL_POINTER] &&
                  by_status[DYNNORM_ERROR_NO_OUTPUT] && by_status[DYNNORM_ERROR_ZERO_CHANNELS] &&
                  by_status[DYNNORM_ERROR_SIZE_OVERFLOW],
              "%s, %s: there were calls of all kinds", isa->identifier, dynnorm_operations[operation].name);
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

static void expect_way(const struct plain *p, int is_short, const char *what) {
    calls_of_kernel = 0;
    dynnorm_status status = run_plain(p);
    tap_check(status == DYNNORM_OK && calls_of_kernel == is_short, "%s, %s: %s way",
              dynnorm_operations[p->operation].name, what, is_short ? "the short" : "the general");
}

/* A kernel for one row need not understand what is unusual, and must be called for all else. */
static void check_ways(dynnorm_operation operation) {
    struct kernels watched = *dynnorm_active_kernels();
    watched.layernorm_row = watched_layernorm;
    watched.rmsnorm_row = watched_rmsnorm;
    dynnorm_use_kernels(&watched);
    float *floats = (float *)(void *)arena;
    memcpy(arena, filled, ARENA);
    const int is_layernorm = operation == DYNNORM_LAYERNORM;
    const struct plain usual = {.operation = operation,
                                .y = floats,
                                .x = floats + 100,
                                .weight = floats + 200,
                                .bias = is_layernorm ? floats + 300 : NULL,
                                .mean = is_layernorm ? floats + 400 : NULL,
                                .rstd = floats + 402,
                                .eps = 1e-5f,
                                .tokens = 1,
                                .channels = 100};
    struct plain p = usual;
    expect_way(&p, 1, "all buffers, side by side");
    p.mean = p.rstd = NULL;
    expect_way(&p, 1, "no statistics");
    p.x = p.y;
    expect_way(&p, 1, "in place");
    p.eps = 0;
    expect_way(&p, 1, "eps 0");
    p = usual;
    p.tokens = 2;
    p.channels = 50;
    expect_way(&p, 0, "two tokens");
    p = usual;
    p.y = NULL;
    expect_way(&p, 0, "no y");
    p = usual;
    p.weight = NULL;
    expect_way(&p, 0, "no weight");
    if (is_layernorm) {
        p = usual;
        p.bias = NULL;
        expect_way(&p, 0, "no bias");
    }
    use_table(NULL);
}

int main(void) {
    printf("# seed %llu\n", (unsigned long long)random_seed());
    static const dynnorm_operation operations[] = {DYNNORM_LAYERNORM, DYNNORM_RMSNORM};
    for (int i = 0; i < 2; i++) {
        for (size_t table = 0; table < dynnorm_isa_count; table++)
            if (use_table(&dynnorm_isa_list[table]))
                check_calls(&dynnorm_isa_list[table], operations[i]);
            else
                tap_skip(dynnorm_isa_list[table].identifier, TABLE_IS_UNAVAILABLE);
        use_table(NULL);
        check_ways(operations[i]);
    }
    return tap_done();
}
