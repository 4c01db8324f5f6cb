/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every kernel of every table: the lists that tests loop over, and a switch that makes the public functions run a
 * table.
 *
 *     for (size_t i = 0; i < dynnorm_isa_count; i++) {
 *         const struct isa *isa = &dynnorm_isa_list[i];
 *         if (!use_table(isa)) {
 *             tap_skip(isa->identifier, why_table_is_unavailable(isa));
 *             continue;
 *         }
 *         for (size_t k = 0; k < listed_kernel_count; k++) {
 *             const struct listed_kernel *kernel = &listed_kernels[k];
 *             if (!kernel_available(isa, kernel))
 *                 ...
 */
#ifndef DYNNORM_TEST_EACH_KERNEL_H
#define DYNNORM_TEST_EACH_KERNEL_H

#include "dispatch/dispatch.h"

enum direction { FORWARD_PASS, BACKWARD_PASS };

/* A row of src/kernels.def. */
struct listed_kernel {
    const char *name; /* as in "dyt_forward_portable" */
    const char *operation_name;
    const char *mode_name;
    enum direction direction;
    dynnorm_operation operation;
    dynnorm_mode mode;
};
extern const struct listed_kernel listed_kernels[];
extern const size_t listed_kernel_count;

/* Whether the table has this kernel; it has not where SLEEF is asked for and missing. */
int kernel_available(const struct isa *isa, const struct listed_kernel *kernel);

/* Makes the public functions run the kernels of this table, whatever dynnorm_set_isa says: it could not tell apart two
 * tables of one public name. NULL goes back to the library's choice. Gives 0, and changes nothing, where this machine
 * cannot run the table, or where the linker cannot redirect the library and the table is out of dynnorm_set_isa's
 * reach. Not for use while other threads are in the library. */
int use_table(const struct isa *isa);

/* Makes the library believe that a core's second-level cache has so many bytes: with 0, every output that can be is
 * stored past the caches. SIZE_MAX goes back to the truth. Gives 0, and changes nothing, where the linker cannot
 * redirect the library. */
int pretend_level2_cache(size_t bytes);

/* Why use_table gave 0. */
const char *why_table_is_unavailable(const struct isa *isa);

/* Why a test cannot run this kernel: of its table or its mode; NULL if it can. Changes the table in use. */
const char *why_kernel_is_unavailable(const struct isa *isa, const struct listed_kernel *kernel);

#endif
