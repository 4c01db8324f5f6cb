/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Calls with one token, as an engine that generates text makes them: the library's plain calls, those with a
 * descriptor, prepared ones, and the same norm as a loop that is inlined here. This file is compiled with
 * PLAIN_LOOPS_FLAGS. All are timed by the same code.
 *
 * A hot call finds its code and its data in the nearest caches. Before a cold one, 64 MiB of other work goes through
 * the caches. Cold calls are timed one by one, so the clock is part of their time. What it takes when there is nothing
 * between its two readings is reported beside them.
 */
#include "calls.h"
#include "plain_loops.h"
#include "probe.h"
#include "tensors.h"

#include "dynnorm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP = 64 << 20, CACHE_LINE = 64, COLD_ROUNDS = 31, HOT_ROUNDS = 100, HOT_CALLS = 200 };

/* What the calls take. */
struct row {
    size_t channels;
    float *x, *y, *weight, *bias;
    float eps, alpha, beta, dyisru_scale;
    float mean, rstd;
    dynnorm_descriptor described[DYNNORM_DYISRU + 1]; /* for each operation */
    dynnorm_prepared prepared[DYNNORM_DYISRU + 1];
};

/* Sends other work through the caches, and leaves the clock's code in them. */
static void sweep(volatile unsigned char *memory) {
    for (size_t i = 0; i < SWEEP; i += CACHE_LINE)
        memory[i]++;
    probe_now();
    probe_now();
}

/* Keeps the compiler from moving work across it. */
static inline void barrier(void) {
    __asm__ volatile("" ::: "memory");
}

/* Two functions for each kind of call: the nanoseconds of one of many calls, and of a single call. */
#define CALL(name, statement)                                                                                          \
    static double hot_##name(struct row *row) {                                                                        \
        for (int i = 0; i < HOT_CALLS / 10; i++) {                                                                     \
            statement;                                                                                                 \
            barrier();                                                                                                 \
        }                                                                                                              \
        double begin = probe_now();                                                                                    \
        for (int i = 0; i < HOT_CALLS; i++) {                                                                          \
            statement;                                                                                                 \
            barrier();                                                                                                 \
        }                                                                                                              \
        return (probe_now() - begin) / HOT_CALLS;                                                                      \
    }                                                                                                                  \
    static double cold_##name(struct row *row) {                                                                       \
        double begin = probe_now();                                                                                    \
        barrier();                                                                                                     \
        statement;                                                                                                     \
        barrier();                                                                                                     \
        return probe_now() - begin;                                                                                    \
    }

CALL(nothing, (void)row)
CALL(layernorm_library, dynnorm_layernorm_forward_f32(row->y, &row->mean, &row->rstd, row->x, row->weight, row->bias,
                                                      row->eps, 1, row->channels))
CALL(layernorm_loop,
     plain_layernorm(row->y, &row->mean, &row->rstd, row->x, row->weight, row->bias, row->eps, row->channels))
CALL(rmsnorm_library, dynnorm_rmsnorm_forward_f32(row->y, &row->rstd, row->x, row->weight, row->eps, 1, row->channels))
CALL(rmsnorm_loop, plain_rmsnorm(row->y, &row->rstd, row->x, row->weight, row->eps, row->channels))
CALL(dyt_library, dynnorm_dyt_forward_f32(row->y, row->x, row->weight, row->bias, row->alpha, 1, 1, row->channels))
CALL(dyt_loop, plain_dyt(row->y, row->x, row->weight, row->bias, row->alpha, 1, row->channels))
CALL(dyisru_library,
     dynnorm_dyisru_forward_f32(row->y, row->x, row->weight, row->bias, row->beta, row->dyisru_scale, 1, row->channels))
CALL(dyisru_loop, plain_dyisru(row->y, row->x, row->weight, row->bias, row->beta, row->dyisru_scale, row->channels))

#define OTHER_CALLS(name, operation)                                                                                   \
    CALL(name##_descriptor, dynnorm_forward(&row->described[operation]))                                               \
    CALL(name##_prepared, dynnorm_forward_prepared(&row->prepared[operation], row->y, row->x, 0, 1, 1))
OTHER_CALLS(layernorm, DYNNORM_LAYERNORM)
OTHER_CALLS(rmsnorm, DYNNORM_RMSNORM)
OTHER_CALLS(dyt, DYNNORM_DYT)
OTHER_CALLS(dyisru, DYNNORM_DYISRU)

static const struct {
    const char *operation, *by;
    double (*hot)(struct row *row);
    double (*cold)(struct row *row);
} calls[] = {
#define ENTRY(operation, by, name)                                                                                     \
    { operation, by, hot_##name, cold_##name }
#define NORM(name)                                                                                                     \
    ENTRY(#name, "library", name##_library), ENTRY(#name, "descriptor", name##_descriptor),                            \
        ENTRY(#name, "prepared", name##_prepared), ENTRY(#name, "loop", name##_loop)
    ENTRY("nothing", "clock", nothing), NORM(layernorm), NORM(rmsnorm), NORM(dyt), NORM(dyisru),
};

enum { CALLS = sizeof calls / sizeof *calls };

/* Lays the tensors one after another. Where they fit into a page, that keeps a load from waiting for an earlier store
 * to the same offset in another page, which can cost more than the rest of so short a call. */
static void lay_out(struct row *row, float *memory, size_t channels) {
    const struct tensors *tensors = tensors_of((struct shape){1, channels});
    size_t bytes = channels * sizeof(float);
    row->channels = channels;
    row->x = memcpy(memory, tensors->x, bytes);
    row->weight = memcpy(memory + channels, tensors->weight, bytes);
    row->y = memory + 2 * channels;
    row->bias = memcpy(memory + 3 * channels, tensors->bias, bytes);

    for (int operation = 0; operation <= DYNNORM_DYISRU; operation++) {
        dynnorm_descriptor *call = &row->described[operation];
        *call = describe_call((dynnorm_operation)operation, (struct shape){1, channels});
        call->x.data = row->x;
        call->y.data = row->y;
        call->weight.data = row->weight;
        call->bias.data = operation == DYNNORM_RMSNORM ? NULL : row->bias;
        call->mean = operation == DYNNORM_LAYERNORM ? &row->mean : NULL;
        call->rstd = operation <= DYNNORM_RMSNORM ? &row->rstd : NULL;
        row->prepared[operation] = (dynnorm_prepared)DYNNORM_PREPARED_INIT;
        dynnorm_status status = dynnorm_prepare_forward(call, &row->prepared[operation]);
        if (status) {
            fprintf(stderr, "dynnorm-probe: %s\n", dynnorm_status_string(status));
            exit(EXIT_FAILURE);
        }
    }
    row->eps = row->described[DYNNORM_LAYERNORM].eps;
    row->alpha = row->described[DYNNORM_DYT].alpha;
    row->beta = row->described[DYNNORM_DYISRU].beta;
    row->dyisru_scale = row->described[DYNNORM_DYISRU].scale;
}

static void probe_row(struct row *row, volatile unsigned char *memory) {
    double hot[CALLS], cold[CALLS][COLD_ROUNDS];
    for (int i = 0; i < CALLS; i++)
        hot[i] = calls[i].hot(row);
    for (int round = 0; round < HOT_ROUNDS; round++)
        for (int i = 0; i < CALLS; i++) {
            double time = calls[i].hot(row);
            hot[i] = time < hot[i] ? time : hot[i];
        }
    for (int round = 0; round < COLD_ROUNDS; round++)
        for (int i = 0; i < CALLS; i++) {
            sweep(memory);
            cold[i][round] = calls[i].cold(row);
        }
    for (int i = 0; i < CALLS; i++) {
        struct quartiles times = quartiles_of(cold[i], COLD_ROUNDS);
        printf("{\"operation\": \"%s\", \"by\": \"%s\", \"channels\": %zu, \"hot\": %.1f, \"cold\": %.0f, "
               "\"cold_low\": %.0f, \"cold_high\": %.0f}\n",
               calls[i].operation, calls[i].by, row->channels, hot[i], times.median, times.low, times.high);
    }
}

void probe_calls(void) {
    static const size_t channels[] = {288, 768, 4096};
    enum { MOST = 4096 };
    printf("{\"flags\": \"%s\"}\n", PLAIN_LOOPS_FLAGS);
    unsigned char *memory = allocate_pages(SWEEP);
    float *floats = allocate_pages(4 * MOST * sizeof(float));
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        struct row row;
        lay_out(&row, floats, channels[i]);
        probe_row(&row, memory);
    }
    free(floats);
    free(memory);
}
