/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Defines the table of an instruction set (kernels.h) from kernels.def. Define ISA_NAME as its public name first.
 */
#include "kernel_names.h"
#include "kernels.h"
#include "operations/dyisru_unusual.h"
#include "rows/backward/careful_reduction.h"
#include "rows/backward/token_sums.h"
#include "rows/forward/normalized_channels.h"
#include "rows/forward/unusual_rows.h"
#if !SHARES_DRIVERS
#include "rows/backward/centered_any.h"
#include "rows/backward/elementwise_any.h"
#include "rows/backward/elementwise_rows.h"
#include "rows/forward/elementwise_rows.h"
#include "rows/write_buffers.h"
#endif
#ifndef DYNNORM_WITHOUT_TYPES
#include "rows/forward/elementwise_rows_of_halves.h"
#include "rows/order_vector.h"
#if !SHARES_CONVERSIONS
#include "rows/conversions.h"
#endif
#if !SHARES_DRIVERS
#include "rows/typed_rows_of_table.h"
#endif
#endif

#define FORWARD(operation, mode, driver) IF_TABLE_HAS_##mode(extern forward_kernel FORWARD_KERNEL(operation, mode);)
#define BACKWARD(operation, mode, driver) IF_TABLE_HAS_##mode(extern backward_kernel BACKWARD_KERNEL(operation, mode);)
#define FORWARD_HALVES(operation, mode, driver)                                                                        \
    IF_TABLE_HAS_##mode(extern halves_kernel HALVES_KERNEL(operation, mode);)
#define ONE_ROW(operation, define) extern operation##_call ONE_ROW_KERNEL(operation);
#include "kernels.def"

/* Whether flags made the compiler fuse a product and a sum, though no fma is written there, or add in another order, or
 * neglect the sign of a zero. No macro tells of such flags. */
OUTLINED int results_are_changed(void) {
    volatile float hidden = 1 + 0x1p-12f; /* its square lies between two floats, and is rounded to the lesser one */
    volatile float minus_zero = -0.0f;    /* 0 more is 0 */
    vec x = vec_set(hidden), large = vec_set(0x1p25f), zero = vec_add(vec_set(minus_zero), vec_set(0));
    vec product = vec_sub(vec_mul(x, x), vec_set(1 + 0x1p-11f)), sum = vec_sub(vec_add(x, large), large);
    return vec_any_bits_above(vec_max_bits(vec_max_bits(product, sum), zero), 0); /* all are 0 */
}

#ifndef DYNNORM_WITHOUT_TYPES
OUTLINED void end_streaming(void) {
    vec_end_streaming();
}
#endif

DYNNORM_INTERNAL const struct kernels IN_TABLE(_kernels);
DYNNORM_INTERNAL const struct kernels IN_TABLE(_kernels) = {
    .isa = ISA_NAME,
    .lanes = LANES,
    .changes_results = results_are_changed,
#ifndef DYNNORM_WITHOUT_BACKWARD
    .add_sums = add_partial_sums,
    .finish_sums = finish_partial_sums,
#endif
#ifndef DYNNORM_WITHOUT_TYPES
    .conversions = CONVERSIONS,
    .end_streaming = end_streaming,
    .quantize = QUANTIZE,
#endif
#define FORWARD(operation, mode, driver)                                                                               \
    IF_TABLE_HAS_##mode(.forward[operation_##operation][mode_##mode] = FORWARD_KERNEL(operation, mode), )
#define BACKWARD(operation, mode, driver)                                                                              \
    IF_TABLE_HAS_##mode(.backward[operation_##operation][mode_##mode] = BACKWARD_KERNEL(operation, mode), )
#define FORWARD_HALVES(operation, mode, driver)                                                                        \
    IF_TABLE_HAS_##mode(.halves[operation_##operation][mode_##mode] =                                                  \
                            (int)mode_##mode == (int)mode_brief || HAS_SPECIAL_LOOPS ? HALVES_KERNEL(operation, mode)  \
                                                                                     : NULL, )
#define ONE_ROW(operation, define) .operation##_row = ONE_ROW_KERNEL(operation),
#include "kernels.def"
};
