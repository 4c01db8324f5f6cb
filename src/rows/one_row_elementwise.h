/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver for one row of an elementwise operation by itself, for the reasons told in one_row.h. Its loop is that of
 * forward_elementwise.h; what it spares is the descriptor, and the code for more than one row.
 */
#ifndef DYNNORM_ONE_ROW_ELEMENTWISE_H
#define DYNNORM_ONE_ROW_ELEMENTWISE_H

#include "inlining.h"
#include "kernel_names.h"
#include "kernels.h"
#include "rows/blocks.h"
#include "rows/forward_elementwise.h"

struct one_elementwise_row {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
    float parameter;
    float scale;
    size_t channels;
};

/* Returns 0, and has written nothing, if f is to be computed in another way than the usual one. */
INLINE int one_elementwise_row(const struct one_elementwise_row *row, const struct operation *operation) {
    const struct elements *elements = operation->elements;
    const struct call_constants call = operation->begin_call(row->channels, 0, row->parameter, row->scale);
    _Alignas(64) float factor_buffer[BLOCK];
    struct factors factors = {.buffer = factor_buffer};
    if (elements->ways > 1 && call.way != 0)
        return 0;
    for (size_t first = 0; first < row->channels; first += BLOCK) {
        const size_t count = block_at(first, row->channels).count;
        make_factors(&factors, row->weight + first, count, &call, elements);
        const struct elementwise_block block = {
            .y = row->y + first, .x = row->x + first, .bias = row->bias + first, .factors = &factors};
        forward_elementwise_block(&block, count, &(const struct elementwise_loop){0, 0}, &call, elements);
    }
    return 1;
}

/* The kernel of an operation. */
#define ONE_ELEMENTWISE_ROW(operation)                                                                                 \
    operation##_call ONE_ROW_KERNEL(operation);                                                                        \
    OF_ONE_TOKEN                                                                                                       \
    dynnorm_status ONE_ROW_KERNEL(operation)(float *y, const float *x, const float *weight, const float *bias,         \
                                             float parameter, float scale, size_t tokens, size_t channels) {           \
        const struct one_elementwise_row row = {y, x, weight, bias, parameter, scale, channels};                       \
        return one_elementwise_row(&row, &operation##_portable)                                                        \
                   ? DYNNORM_OK                                                                                        \
                   : dynnorm_##operation##_any(y, x, weight, bias, parameter, scale, tokens, channels);                \
    }

#endif
