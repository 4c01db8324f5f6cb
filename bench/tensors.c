/* SPDX-License-Identifier: BSD-2-Clause */
#include "tensors.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

void *allocate_pages(size_t bytes) {
    size_t whole_pages = (bytes / PAGE + 1) * PAGE;
    void *memory = aligned_alloc(PAGE, whole_pages);
    if (!memory) {
        fprintf(stderr, "dynnorm-bench: no memory for %zu bytes\n", whole_pages);
        exit(EXIT_FAILURE);
    }
    return memset(memory, 0, whole_pages);
}

/* Allocates normally distributed numbers. They are copied in runs from a stock, so that filling a tensor takes little
 * longer than copying it. */
static float *normal(size_t count, float mean, float deviation, uint64_t seed) {
    enum { STOCK = 1 << 14, RUN = 256 };
    static float stock[STOCK];
    struct random random = random_start(1);
    if (stock[0] == 0)
        for (size_t i = 0; i < STOCK; i++)
            stock[i] = random_normal(&random);

    float *values = allocate_pages(count * sizeof *values);
    random = random_start(seed);
    for (size_t first = 0; first < count; first += RUN) {
        const float *run = stock + random_below(&random, STOCK - RUN);
        size_t length = count - first < RUN ? count - first : RUN;
        for (size_t i = 0; i < length; i++)
            values[first + i] = mean + deviation * run[i];
    }
    return values;
}

static void free_all(struct tensors *tensors) {
    free(tensors->x);
    free(tensors->dy);
    free(tensors->output);
    free(tensors->weight);
    free(tensors->bias);
    free(tensors->dweight);
    free(tensors->dbias);
    free(tensors->mean);
    free(tensors->rstd);
}

const struct tensors *tensors_of(struct shape shape) {
    static struct tensors kept;
    size_t tokens = shape.tokens, channels = shape.channels;
    if (kept.shape.tokens == tokens && kept.shape.channels == channels)
        return &kept;

    free_all(&kept);
    kept.shape = shape;
    kept.x = normal(tokens * channels, 0, 1, 1);
    kept.dy = normal(tokens * channels, 0, 1, 2);
    kept.output = allocate_pages(tokens * channels * sizeof(float));
    kept.weight = normal(channels, 1, 0.1f, 3);
    kept.bias = normal(channels, 0, 0.1f, 4);
    kept.dweight = allocate_pages(channels * sizeof(float));
    kept.dbias = allocate_pages(channels * sizeof(float));
    kept.mean = allocate_pages(tokens * sizeof(float));
    kept.rstd = allocate_pages(tokens * sizeof(float));
    return &kept;
}
