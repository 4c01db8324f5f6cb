/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/buffers.h"

struct tensor dynnorm_seen_by_kernel(const struct passed_tensor *passed, size_t first, size_t rows) {
    struct tensor seen = {passed->buffer, sizeof(float), 1, {rows}, {passed->stride}};
    if (!passed->buffer) {
        const struct rows there = rows_from(passed->tensor, first);
        seen.data = there.data;
        seen.strides[0] = there.stride;
    }
    return seen;
}

static void widen_row(const struct passed_tensor *passed, size_t row, float *floats) {
    passed->conversion.widen(floats, address_of_row(passed->tensor, row), passed->channels);
}

/* Whether rows lie in memory as they do in the buffer, one after the other. */
static int is_contiguous(const struct passed_tensor *passed) {
    return passed->stride == passed->channels && dynnorm_has_no_gaps(passed->tensor, passed->channels);
}

void dynnorm_widen_rows(const struct passed_tensor *passed, size_t first, size_t rows) {
    if (is_contiguous(passed)) {
        passed->conversion.widen(passed->buffer, address_of_row(passed->tensor, first), rows * passed->channels);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        widen_row(passed, first + i, passed->buffer + i * passed->stride);
}

void dynnorm_narrow_rows(const struct passed_tensor *passed, size_t first, size_t rows, int streams) {
    if (is_contiguous(passed)) {
        passed->conversion.narrow(address_of_row(passed->tensor, first), passed->buffer, rows * passed->channels,
                                  streams);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        dynnorm_narrow_row(passed, first + i, passed->buffer + i * passed->stride, streams);
}

void dynnorm_prefetch_row(const struct passed_tensor *passed, size_t row) {
    const unsigned char *const elements = address_of_row(passed->tensor, row);
    const size_t bytes = passed->channels * passed->tensor->element_bytes;
    for (size_t i = 0; i < bytes; i += FLOATS_OF_LINE * sizeof(float))
        __builtin_prefetch(elements + i, 0, 2);
}

void dynnorm_prefetch_rows(const struct passed_tensor *passed, size_t first, size_t rows, size_t end) {
    const size_t last = end - first < rows ? end : first + rows;
    for (size_t row = first; row < last; row++)
        dynnorm_prefetch_row(passed, row);
}

const float *dynnorm_floats_of(const dynnorm_vector *vector, size_t channels, const struct kernels *kernels,
                               float **memory) {
    if (!dynnorm_has_other_type(vector->type, vector->data))
        return vector->data;
    float *floats = *memory;
    kernels->conversions[vector->type].widen(floats, vector->data, channels);
    *memory += stride_of_whole_lines(channels);
    return floats;
}
