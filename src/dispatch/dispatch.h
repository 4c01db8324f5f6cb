/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The tables of this build, and the one in use.
 */
#ifndef DYNNORM_DISPATCH_H
#define DYNNORM_DISPATCH_H

#include "kernels.h"

/* All tables that were compiled in, best first. Two may share a public name ("scalar" with and without hardware fused
 * multiply-add); identifier then tells them apart. */
struct isa {
    const char *identifier;        /* "avx512", "avx2", "scalar_fma", "scalar", "neon" */
    unsigned needs;                /* CPU features, see cpu.h */
    const struct kernels *kernels; /* immutable */
};
extern const struct isa dynnorm_isa_list[];
extern const size_t dynnorm_isa_count;

/* Whether this machine can run it. */
int dynnorm_isa_runs_here(const struct isa *isa);

/* The table in use; chosen at first use. */
const struct kernels *dynnorm_active_kernels(void);

/* The kernel of a mode, or that of the portable mode where the mode has none of its own; NULL where SLEEF is asked for
 * but not available to this table. */
forward_kernel *dynnorm_forward_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode);
backward_kernel *dynnorm_backward_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode);

#endif
