/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The plain calls of LayerNorm and RMSNorm with one token, for the reasons told in forward/one_row.h.
 */
#ifndef DYNNORM_FORWARD_ONE_ROW_NORMALIZATION_H
#define DYNNORM_FORWARD_ONE_ROW_NORMALIZATION_H

#include "inlining.h"
#include "kernel_names.h"
#include "kernels.h"
#include "rows/forward/one_row.h"

/* The kernels, defined by kernels.def. */

#define ONE_LAYERNORM_ROW(operation)                                                                                   \
    DYNNORM_INTERNAL operation##_call ONE_ROW_KERNEL(operation);                                                       \
    OF_ONE_TOKEN                                                                                                       \
    dynnorm_status ONE_ROW_KERNEL(operation)(float *y, float *mean, float *rstd, const float *x, const float *weight,  \
                                             const float *bias, float eps, size_t tokens, size_t channels) {           \
        const struct one_row row = {y, mean, rstd, x, weight, bias, eps, (ptrdiff_t)tokens, (ptrdiff_t)channels};      \
        return one_row(&row, 1) ? DYNNORM_OK                                                                           \
                                : dynnorm_##operation##_any(y, mean, rstd, x, weight, bias, eps, tokens, channels);    \
    }

#define ONE_RMSNORM_ROW(operation)                                                                                     \
    DYNNORM_INTERNAL operation##_call ONE_ROW_KERNEL(operation);                                                       \
    OF_ONE_TOKEN                                                                                                       \
    dynnorm_status ONE_ROW_KERNEL(operation)(float *y, float *rstd, const float *x, const float *weight, float eps,    \
                                             size_t tokens, size_t channels) {                                         \
        const struct one_row row = {y, NULL, rstd, x, weight, NULL, eps, (ptrdiff_t)tokens, (ptrdiff_t)channels};      \
        return one_row(&row, 0) ? DYNNORM_OK : dynnorm_##operation##_any(y, rstd, x, weight, eps, tokens, channels);   \
    }

#endif
