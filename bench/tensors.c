/* SPDX-License-Identifier: BSD-2-Clause */
#include "tensors.h"

#include "random.h"

#include <math.h>
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

/* Normally distributed numbers, by Box and Muller's method. */
static float *normal(size_t count, float mean, float deviation, uint64_t seed) {
    float *values = allocate_pages(count * sizeof *values);
    struct random random = random_start(seed);
    for (size_t i = 0; i < count; i += 2) {
        uint64_t bits = random_bits(&random);
        float radius = deviation * sqrtf(-2 * logf(((float)(bits >> 40) + 0.5f) * 0x1p-24f));
        float angle = 6.2831853f * 0x1p-32f * (float)(uint32_t)bits;
        values[i] = mean + radius * cosf(angle);
        if (i + 1 < count)
            values[i + 1] = mean + radius * sinf(angle);
    }
    return values;
}

const struct tensors *tensors_of(struct shape shape) {
    static struct tensors *newest;
    size_t tokens = shape.tokens, channels = shape.channels;
    for (struct tensors *made = newest; made; made = made->older)
        if (made->shape.tokens == tokens && made->shape.channels == channels)
            return made;

    struct tensors *tensors = allocate_pages(sizeof *tensors);
    tensors->older = newest;
    tensors->shape = shape;
    tensors->x = normal(tokens * channels, 0, 1, 1);
    tensors->dy = normal(tokens * channels, 0, 1, 2);
    tensors->output = allocate_pages(tokens * channels * sizeof(float));
    tensors->weight = normal(channels, 1, 0.1f, 3);
    tensors->bias = normal(channels, 0, 0.1f, 4);
    tensors->dweight = allocate_pages(channels * sizeof(float));
    tensors->dbias = allocate_pages(channels * sizeof(float));
    tensors->mean = allocate_pages(tokens * sizeof(float));
    tensors->rstd = allocate_pages(tokens * sizeof(float));
    return newest = tensors;
}
