/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where it pays to store an output past the caches. The library decides that in src/dispatch/caches.c. Here each
 * kernel is run both ways at sizes around that choice, alone and with a reader that goes over the output at once, as
 * the next layer of a model does.
 */
#include "calls.h"
#include "probe.h"
#include "tensors.h"

#include "api/passes.h"
#include "dispatch/cpu.h"
#include "operations.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9 };

/* The least time of one measurement in nanoseconds. */
static const double at_least = 1e6;

struct pass {
    struct shape shape;
    int backward;
    size_t block_rows;
    struct forward_pass forward;
    struct backward_pass gradients;
    double *dweight, *dbias, *dparameter;
};

static void set_streams(struct pass *pass, int streams) {
    pass->forward.arguments.streams = pass->gradients.arguments.streams = streams;
}

/* Runs the kernel without the checks before it, which would choose how it stores. */
static void run(void *context) {
    const struct pass *pass = context;
    const struct partial_sums sums = {.dweight = pass->dweight, .dbias = pass->dbias, .dparameter = pass->dparameter};
    size_t tokens = pass->shape.tokens, block = pass->block_rows;
    if (pass->backward)
        for (size_t row = 0; row < tokens; row += block)
            pass->gradients.kernel(&pass->gradients.arguments, row, tokens - row < block ? tokens - row : block, &sums);
    else
        pass->forward.kernel(&pass->forward.arguments, 0, tokens);
}

static volatile uint32_t bits_read;

/* Reads an element of each cache line, which costs what moving the lines costs. */
static void run_and_read(void *context) {
    const struct pass *pass = context;
    const unsigned char *output = (const unsigned char *)tensors_of(pass->shape)->output;
    uint32_t bits = 0, some;
    run(context);
    for (size_t i = 0; i < tensor_bytes(pass->shape); i += 64) {
        memcpy(&some, output + i, sizeof some);
        bits ^= some;
    }
    bits_read = bits;
}

/* Returns what the library chooses, or -1 if the call is wrong. */
static int begin(struct pass *pass, dynnorm_descriptor *call) {
    struct mistake mistake;
    if (!pass->backward) {
        complete_forward(call);
        return dynnorm_begin_forward(call, NULL, &pass->forward, &mistake) ? -1 : pass->forward.arguments.streams != 0;
    }
    if (complete_backward(call) || dynnorm_begin_backward(call, NULL, &pass->gradients, &mistake) ||
        dynnorm_block_rows(call, &pass->block_rows))
        return -1;
    return pass->gradients.arguments.streams != 0;
}

static void probe(dynnorm_operation operation, int backward, struct shape shape) {
    dynnorm_descriptor call = describe_call(operation, shape);
    size_t sums = PARTIAL_SUMS_CHANNELS(shape.channels) * sizeof(double);
    struct pass pass = {.shape = shape,
                        .backward = backward,
                        .dweight = allocate_pages(sums),
                        .dbias = allocate_pages(sums),
                        .dparameter = allocate_pages(sums)};
    call.keep_output_in_cache = 1;
    int chosen_if_kept = begin(&pass, &call);
    call.keep_output_in_cache = 0;
    int chosen = begin(&pass, &call);
    double times[2][2][ROUNDS]; /* left in the caches or streamed, alone or with the reader */
    for (int round = 0; chosen >= 0 && round < ROUNDS; round++)
        for (int streams = 0; streams < 2; streams++)
            for (int reads = 0; reads < 2; reads++) {
                set_streams(&pass, streams);
                (reads ? run_and_read : run)(&pass); /* so that the caches are as it leaves them */
                times[streams][reads][round] = probe_time(reads ? run_and_read : run, &pass, at_least);
            }
    if (chosen >= 0)
        printf("{\"operation\": \"%s\", \"direction\": \"%s\", \"tokens\": %zu, \"channels\": %zu, \"streams\": %d, "
               "\"streams_if_kept\": %d, \"cached\": %.0f, \"streamed\": %.0f, \"cached_and_read\": %.0f, "
               "\"streamed_and_read\": %.0f}\n",
               dynnorm_operations[operation].name, backward ? "backward" : "forward", shape.tokens, shape.channels,
               chosen, chosen_if_kept, quartiles_of(times[0][0], ROUNDS).median,
               quartiles_of(times[1][0], ROUNDS).median, quartiles_of(times[0][1], ROUNDS).median,
               quartiles_of(times[1][1], ROUNDS).median);
    free(pass.dweight);
    free(pass.dbias);
    free(pass.dparameter);
}

void probe_streaming(void) {
    static const struct {
        dynnorm_operation operation;
        int backward;
        size_t channels;
    } probed[] = {{DYNNORM_RMSNORM, 0, 4096},
                  {DYNNORM_RMSNORM, 0, 64},
                  {DYNNORM_DYT, 0, 4096},
                  {DYNNORM_RMSNORM, 1, 4096},
                  {DYNNORM_DYT, 1, 4096}};
    size_t level2 = dynnorm_cache_bytes(2);
    printf("{\"level2\": %zu}\n", level2);
    for (size_t i = 0; i < sizeof probed / sizeof *probed; i++)
        for (size_t bytes = level2 / 2; bytes <= 64 * level2; bytes *= 2) {
            struct shape shape = {bytes / (probed[i].channels * sizeof(float)), probed[i].channels};
            probe(probed[i].operation, probed[i].backward, shape);
        }
}
