/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The tables of this build, and the one in use.
 */
#ifndef DYNNORM_DISPATCH_H
#define DYNNORM_DISPATCH_H

#include "kernels.h"

#include <stdatomic.h>

/* All tables that were compiled in, the best one first. Tables of one public name are neighbours: there are two of
 * "scalar", with and without the instruction for fused multiply-add. The identifier tells them apart. */
struct isa {
    const char *identifier;        /* "avx512", "avx2", "scalar_fma", "scalar", "neon" */
    unsigned needs;                /* CPU features, see cpu.h */
    const struct kernels *kernels; /* immutable */
};
extern const struct isa dynnorm_isa_list[];
extern const size_t dynnorm_isa_count;

/* Whether this machine can run it, and it was compiled such that it gives the right bits. */
int dynnorm_isa_runs_here(const struct isa *isa);

/* Whether dynnorm_set_isa can choose it: it runs here, and no better table of its public name does. */
int dynnorm_isa_is_reached_by_name(const struct isa *isa);

/* The kernels of the table in use that plain calls with one token go to. They are copied here since a look into the
 * table would cost such a call a page more, which matters after other work has been through the caches. Before the
 * first call chooses a table, they are the calls that take any arguments. */
struct rows_in_use {
    _Atomic(layernorm_call *) layernorm;
    _Atomic(rmsnorm_call *) rmsnorm;
    _Atomic(dyt_call *) dyt;
    _Atomic(dyisru_call *) dyisru;
};
extern struct rows_in_use dynnorm_rows_in_use;

/* Puts a table in use. */
void dynnorm_use_kernels(const struct kernels *kernels);

/* The table in use, never NULL. The first call chooses it, unless dynnorm_set_isa has done so before. */
const struct kernels *dynnorm_active_kernels(void);

/* The kernel that computes an operation in a mode: the mode's own, or else the portable one. NULL if the mode is
 * DYNNORM_SLEEF and the table was compiled without SLEEF, or if the build leaves the operation or the pass out. */
forward_kernel *dynnorm_forward_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode);
/* The same for x and y of 16 bits. It may be NULL while there is a forward_kernel. */
halves_kernel *dynnorm_halves_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode);
backward_kernel *dynnorm_backward_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode);

#endif
