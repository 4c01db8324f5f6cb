/* SPDX-License-Identifier: BSD-2-Clause */
#include "tensors.h"

#include "dispatch/dispatch.h"
#include "element_types.h"
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

/* By type. What is also one of the tensors above is NULL here. */
static void *typed[TYPES + 1][TENSORS];

static void free_all(struct tensors *tensors) {
    for (int type = 0; type <= TYPES; type++)
        for (int tensor = 0; tensor < TENSORS; tensor++) {
            free(typed[type][tensor]);
            typed[type][tensor] = NULL;
        }
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

/* The floats of which the tensor is made, or NULL if it is one that only receives values. */
static const float *floats_of(struct shape shape, enum which_tensor tensor) {
    const struct tensors *tensors = tensors_of(shape);
    switch (tensor) {
    case TENSOR_X:
        return tensors->x;
    case TENSOR_DY:
        return tensors->dy;
    case TENSOR_WEIGHT:
        return tensors->weight;
    case TENSOR_BIAS:
        return tensors->bias;
    case TENSOR_RESIDUAL:
        return tensor_of(shape, DYNNORM_F32, TENSOR_RESIDUAL);
    default:
        return NULL;
    }
}

void *tensor_of(struct shape shape, dynnorm_type type, enum which_tensor tensor) {
    const int is_vector = tensor == TENSOR_WEIGHT || tensor == TENSOR_BIAS;
    const size_t count = (is_vector ? 1 : shape.tokens) * shape.channels;
    const struct tensors *tensors = tensors_of(shape);
    void **made = &typed[type][tensor];
    if (type == DYNNORM_F32 && tensor == TENSOR_OUTPUT)
        return tensors->output;
    if (type == DYNNORM_F32 && tensor < TENSOR_RESIDUAL)
        return (void *)floats_of(shape, tensor);
    if (*made)
        return *made;
    if (type == DYNNORM_F32 && tensor == TENSOR_RESIDUAL) {
        *made = normal(count, 0, 1, 5);
        return *made;
    }
    *made = allocate_pages(count * dynnorm_element_bytes(type));
    if (type != DYNNORM_I8 && floats_of(shape, tensor))
        dynnorm_active_kernels()->conversions[type].narrow(*made, floats_of(shape, tensor), count, 0);
    return *made;
}
