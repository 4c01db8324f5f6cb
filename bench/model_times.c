/* SPDX-License-Identifier: BSD-2-Clause
 *
 * For bench/model --measured. model_times ISA... times the kernels of these tables, those of them that run here, on
 * rows that stay in the nearest cache, and prints lines "ISA KERNEL nanoseconds", per element. It is the difference
 * between rows of two blocks of channels and of one: what a row costs, however long it is, drops out.
 */
#define _POSIX_C_SOURCE 200809L

#include "dispatch/dispatch.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SHORT = 256, LONG = 512, ROWS = 64, RUNS = 400, ROUNDS = 8 };

/* All rows are one, so that few lines of the cache are in use; and no two buffers begin at one place of a page, lest a
 * load wait for an earlier store to another. */
static struct {
    float x[LONG + 96], dy[LONG + 96], output[LONG + 96], weight[LONG + 96], bias[LONG + 96];
    double dweight[LONG + 48], dbias[LONG + 48], dparameter[16];
    float mean[ROWS], rstd[ROWS];
} data;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void run(forward_kernel *forward, backward_kernel *backward, size_t channels) {
    if (forward) {
        const struct forward_arguments arguments = {.x = data.x,
                                                    .y = data.output,
                                                    .weight = data.weight,
                                                    .bias = data.bias,
                                                    .eps = 1e-5f,
                                                    .parameter = 0.5f,
                                                    .scale = 1,
                                                    .channels = channels};
        forward(&arguments, 0, ROWS);
    } else {
        const struct backward_arguments arguments = {.dy = data.dy,
                                                     .x = data.x,
                                                     .dx = data.output,
                                                     .weight = data.weight,
                                                     .mean = data.mean,
                                                     .rstd = data.rstd,
                                                     .eps = 1e-5f,
                                                     .parameter = 0.5f,
                                                     .scale = 1,
                                                     .channels = channels};
        const struct partial_sums sums = {data.dweight, data.dbias, data.dparameter};
        backward(&arguments, 0, ROWS, &sums);
    }
}

/* A kernel of this machine, and its shortest times for rows of two blocks and of one. */
struct kernel_case {
    const char *isa;
    const char *name;
    forward_kernel *forward;
    backward_kernel *backward;
    double nanoseconds[2];
};

static void measure(struct kernel_case *this) {
    static const size_t channels[2] = {LONG, SHORT};
    for (int i = 0; i < RUNS; i++)
        for (int length = 0; length < 2; length++) {
            double begin = now();
            run(this->forward, this->backward, channels[length]);
            double taken = now() - begin;
            if (!this->nanoseconds[length] || taken < this->nanoseconds[length])
                this->nanoseconds[length] = taken;
        }
}

static int is_among(const char *name, char **names) {
    while (*names && strcmp(name, *names))
        names++;
    return *names != NULL;
}

/* In GHz, by additions of which each waits for the one before: one a cycle. */
static double clock_frequency(void) {
    enum { STEPS = 10000 };
    size_t sum = 0, one = 1;
    double shortest = 1e300;
    for (int i = 0; i < 1000; i++) {
        double begin = now();
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                sum += one;
                __asm__ volatile("" : "+r"(sum), "+r"(one));
            }
        }
        double taken = now() - begin;
        shortest = taken < shortest ? taken : shortest;
    }
    return 8 * STEPS / shortest;
}

int main(int argc, char **argv) {
    (void)argc;
    unsigned random = 1;
    for (int i = 0; i < LONG; i++) {
        data.x[i] = (float)((random = random * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
        data.dy[i] = (float)((random = random * 1664525 + 1013904223) >> 8) * 0x1p-23f - 1;
        data.weight[i] = 1;
    }
    for (int i = 0; i < ROWS; i++)
        data.rstd[i] = 1;

    static struct kernel_case cases[8 * 2 * OPERATIONS * MODES];
    size_t count = 0;
    for (const struct isa *isa = dynnorm_isa_list; isa < dynnorm_isa_list + dynnorm_isa_count; isa++) {
        if (!is_among(isa->identifier, argv + 1) || !dynnorm_isa_runs_here(isa))
            continue;
        const struct kernels *table = isa->kernels;
#define FORWARD(operation, mode, ...)                                                                                       \
    cases[count++] = (struct kernel_case){                                                                             \
        isa->identifier, #operation "_forward_" #mode, table->forward[operation_##operation][mode_##mode], NULL, {0}};
#define BACKWARD(operation, mode, ...)                                                                                      \
    cases[count++] = (struct kernel_case){isa->identifier,                                                             \
                                          #operation "_backward_" #mode,                                               \
                                          NULL,                                                                        \
                                          table->backward[operation_##operation][mode_##mode],                         \
                                          {0}};
#include "kernels.def"
    }
    /* In rounds, since a machine that others use too is slower for seconds at a time. */
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < count; i++)
            if (cases[i].forward || cases[i].backward)
                measure(&cases[i]);
    printf("clock %.3f\n", clock_frequency());
    for (size_t i = 0; i < count; i++)
        if (cases[i].forward || cases[i].backward)
            printf("%s %s %.5f\n", cases[i].isa, cases[i].name,
                   (cases[i].nanoseconds[0] - cases[i].nanoseconds[1]) / (ROWS * (LONG - SHORT)));
    return 0;
}
