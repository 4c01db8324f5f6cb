/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The list of kernels that tests loop over, and a switch that makes the public functions run the kernels of any table.
 */
#ifndef DYNNORM_TEST_EACH_KERNEL_H
#define DYNNORM_TEST_EACH_KERNEL_H

#include "dispatch/dispatch.h"
#include "tap.h"

enum direction { FORWARD_PASS, BACKWARD_PASS };

/* A row of src/kernels.def. */
struct listed_kernel {
    const char *name; /* as in "dyt_forward_portable" */
    const char *mode_name;
    enum direction direction;
    dynnorm_operation operation;
    dynnorm_mode mode;
};
extern const struct listed_kernel listed_kernels[];
extern const size_t listed_kernel_count;

/* Whether the table has this kernel. A table without SLEEF lacks the kernels of the sleef mode. */
int kernel_available(const struct isa *isa, const struct listed_kernel *kernel);

/* Makes the public functions run the kernels of this table, even where dynnorm_set_isa could not choose it because
 * another table has the same public name. NULL goes back to the library's own choice. Returns 0 and changes nothing if
 * this machine cannot run the table. Do not call it while other threads use the library. */
int use_table(const struct isa *isa);

/* Makes the library believe that a core's second-level cache has this many bytes. With 0, it stores every output past
 * the caches that it can. SIZE_MAX goes back to the real size. Returns 0 and changes nothing if the linker cannot
 * redirect the library. */
int pretend_level2_cache(size_t bytes);

/* The same, with a third-level cache of another size than that. */
int pretend_caches(size_t level2, size_t level3);

/* The same for the first-level cache. */
int pretend_level1_cache(size_t bytes);

/* Makes the library believe in a CPU of this family of AMD's. With 0 it believes in none of AMD's, and REAL_FAMILY goes
 * back to the real one. */
enum { REAL_FAMILY = -1 };
int pretend_amd_family(int family);

/* Why use_table returned 0. */
#define TABLE_IS_UNAVAILABLE "this machine cannot run it"

/* Why a test cannot run this kernel with this table; NULL if it can. Puts the table in use if it can be run. */
const char *why_kernel_is_unavailable(const struct isa *isa, const struct listed_kernel *kernel);

/* Whether a table is to be tested at length. Under an emulator one table takes minutes: the environment variable
 * DYNNORM_TEST_TABLE names the one, or none. What the others compute, the manifest of bits tells for all of them. */
int table_is_wanted(const struct isa *isa);

/* Whether to run a thinned set of shapes, for emulators: the environment variable DYNNORM_TEST_THIN. */
int thinned(void);

/* Like thinned, but also 1 for a table that a better one of its public name, and so of the same code, keeps from being
 * chosen. It does without the instruction for fused multiply-add, and the function in its place takes most of a long
 * test's time. */
int thinned_for(const struct isa *isa);

/* Why table_is_wanted returned 0. */
#define TABLE_IS_NOT_WANTED "DYNNORM_TEST_TABLE names another table"

/* Calls check for each kernel of each table that is wanted, with the table in use. Reports the others as skipped. */
static inline void check_each_kernel(void (*check)(const struct isa *isa, const struct listed_kernel *kernel)) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (!table_is_wanted(isa)) {
            tap_skip(isa->identifier, TABLE_IS_NOT_WANTED);
            continue;
        }
        if (!use_table(isa)) {
            tap_skip(isa->identifier, TABLE_IS_UNAVAILABLE);
            continue;
        }
        for (size_t k = 0; k < listed_kernel_count; k++)
            if (kernel_available(isa, &listed_kernels[k]))
                check(isa, &listed_kernels[k]);
    }
}

#endif
