/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tensors and vectors of any type as kernels see them: as floats, in the caller's own memory if that serves, else in
 * buffers.
 */
#ifndef DYNNORM_API_BUFFERS_H
#define DYNNORM_API_BUFFERS_H

#include "kernels.h"
#include "rows/blocks.h"
#include "rows/tensor.h"

#include <stdint.h>

/* As many rows are in the buffers at a time as have so many floats together, but at least one, or, in the backward
   pass, a group. */
enum { FLOATS_AT_A_TIME = 8192 };

enum { ALIGNMENT = 64 };

static inline float *dynnorm_aligned(void *memory) {
    return (float *)((char *)memory + (-(uintptr_t)memory & (ALIGNMENT - 1)));
}

/* A tensor of a pass. Kernels compute on the caller's own memory if that serves, else in a buffer. */
struct passed_tensor {
    const struct tensor *tensor;
    struct conversion conversion;
    float *buffer; /* NULL: there is none */
    size_t stride;
    size_t channels;
};

static inline struct passed_tensor dynnorm_pass_tensor(const struct tensor *tensor, dynnorm_type type, size_t channels,
                                                       const struct kernels *kernels) {
    const dynnorm_type known = type == DYNNORM_I8 ? DYNNORM_F32 : type; /* that is not converted, but quantized */
    return (struct passed_tensor){tensor, kernels->conversions[known], NULL, stride_of_whole_lines(channels), channels};
}

/* Takes rows of a buffer from the memory that is left. */
static inline void dynnorm_give_buffer(struct passed_tensor *passed, size_t rows, float **memory) {
    passed->buffer = *memory;
    *memory += rows * passed->stride;
}

/* Rows [first, first + rows) as the kernels are to see them, counted from 0. They lie on one axis. */
struct tensor dynnorm_seen_by_kernel(const struct passed_tensor *passed, size_t first, size_t rows);

/* How many rows from the given one on, at most that many, are equally far apart. */
static inline size_t dynnorm_rows_on_one_axis(const struct tensor *tensor, size_t first, size_t most) {
    const size_t rows = rows_on_first_axis(tensor, first);
    return rows < most ? rows : most;
}

static inline int dynnorm_has_no_gaps(const struct tensor *tensor, size_t channels) {
    return tensor->axes == 1 && tensor->strides[0] == channels;
}

static inline void dynnorm_narrow_row(const struct passed_tensor *passed, size_t row, const float *floats,
                                      int streams) {
    passed->conversion.narrow(address_of_row(passed->tensor, row), floats, passed->channels, streams);
}

/* Convert rows to the buffer, and from there. */
void dynnorm_widen_rows(const struct passed_tensor *passed, size_t first, size_t rows);
void dynnorm_narrow_rows(const struct passed_tensor *passed, size_t first, size_t rows, int streams);

/* Have rows fetched while others are computed. */
void dynnorm_prefetch_row(const struct passed_tensor *passed, size_t row);
void dynnorm_prefetch_rows(const struct passed_tensor *passed, size_t first, size_t rows, size_t end);

static inline int dynnorm_has_other_type(dynnorm_type type, const void *data) {
    return data && type != DYNNORM_F32;
}

static inline size_t dynnorm_floats_of_vector(const dynnorm_vector *vector, size_t channels) {
    return dynnorm_has_other_type(vector->type, vector->data) ? stride_of_whole_lines(channels) : 0;
}

/* A vector as floats, in the caller's own memory or in what is taken from the given one. */
const float *dynnorm_floats_of(const dynnorm_vector *vector, size_t channels, const struct kernels *kernels,
                               float **memory);

#endif
