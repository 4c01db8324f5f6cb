/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The kernels of src/kernels.def as a list.
 */
#ifndef DYNNORM_BENCH_LISTED_KERNELS_H
#define DYNNORM_BENCH_LISTED_KERNELS_H

#include "dynnorm.h"
#include "kernels.h"

#include <stddef.h>

struct listed_kernel {
    const char *name; /* operation_name, an underscore and the direction */
    const char *operation_name;
    const char *mode_name;
    dynnorm_operation operation;
    dynnorm_mode mode;
    int backward;
};

extern const struct listed_kernel listed_kernels[];
extern const size_t listed_kernel_count;

/* Of 16-bit elements, in modes that no kernel of floats has: such a mode is measured with these types only. */
struct listed_halves {
    struct listed_kernel kernel;
    dynnorm_type type;
};

extern const struct listed_halves listed_halves[];
extern const size_t listed_halves_count;

/* A mode without a kernel of its own runs the portable kernel, which is measured under its own name. */
int has_own_kernel(const struct kernels *table, const struct listed_kernel *kernel);

#endif
