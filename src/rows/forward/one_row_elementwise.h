/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The plain calls with one token of elementwise operations, for the reasons told in forward/one_row.h. What they spare
 * is the descriptor, and the code for more than one row.
 */
#ifndef DYNNORM_FORWARD_ONE_ROW_ELEMENTWISE_H
#define DYNNORM_FORWARD_ONE_ROW_ELEMENTWISE_H

#include "inlining.h"
#include "kernel_names.h"
#include "kernels.h"
#include "rows/blocks.h"
#include "rows/forward/elementwise.h"

/* The kernel of an operation, defined by kernels.def. */
#define ONE_ELEMENTWISE_ROW(operation)                                                                                 \
    DYNNORM_INTERNAL operation##_call ONE_ROW_KERNEL(operation);                                                       \
    OF_ONE_TOKEN                                                                                                       \
    dynnorm_status ONE_ROW_KERNEL(operation)(float *y, const float *x, const float *weight, const float *bias,         \
                                             float parameter, float scale, size_t tokens, size_t channels) {           \
        const struct one_elementwise_row row = {y, x, weight, bias, parameter, scale, channels};                       \
        return operation##_portable_one_row(&row)                                                                      \
                   ? DYNNORM_OK                                                                                        \
                   : dynnorm_##operation##_any(y, x, weight, bias, parameter, scale, tokens, channels);                \
    }

#endif
