/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Include this last in a translation unit of kernels. It defines the kernels of the unit's family (kernels.def). Each
 * of them is a driver of src/rows/ with the functions of the operation inlined.
 */
#include "kernel_names.h"
#include "kernels.h"
#include "rows/backward/centered.h"
#include "rows/backward/elementwise.h"
#include "rows/backward/normalization.h"
#include "rows/forward/elementwise.h"
#include "rows/forward/elementwise_halves.h"
#include "rows/forward/halves.h"
#include "rows/forward/normalization.h"
#include "rows/forward/one_row_elementwise.h"
#include "rows/forward/one_row_normalization.h"

#define ONE_FAMILY
#define FORWARD(operation, mode, driver)                                                                               \
    IF_TABLE_HAS_##mode(DYNNORM_INTERNAL forward_kernel FORWARD_KERNEL(operation, mode); void FORWARD_KERNEL(          \
                            operation, mode)(const struct forward_arguments *arguments, size_t first, size_t rows) {   \
        driver(arguments, first, rows, &operation##_##mode);                                                           \
    })
#define FORWARD_HALVES(operation, mode, driver)                                                                        \
    IF_TABLE_HAS_##mode(DYNNORM_INTERNAL halves_kernel HALVES_KERNEL(operation, mode);                                 \
                        void HALVES_KERNEL(operation, mode)(const struct halves_call *call, size_t rows) {             \
                            driver(call, rows, &operation##_##mode);                                                   \
                        })
#define BACKWARD(operation, mode, driver)                                                                              \
    IF_TABLE_HAS_##mode(                                                                                               \
        DYNNORM_INTERNAL backward_kernel BACKWARD_KERNEL(operation, mode); void BACKWARD_KERNEL(operation, mode)(      \
            const struct backward_arguments *arguments, size_t first, size_t rows, const struct partial_sums *sums) {  \
            driver(arguments, first, rows, sums, &operation##_##mode);                                                 \
        })
#define ONE_ROW(operation, define) define(operation)
#include "kernels.def"
