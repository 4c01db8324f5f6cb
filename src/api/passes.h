/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A forward or backward pass whose arguments are right.
 */
#ifndef DYNNORM_API_PASSES_H
#define DYNNORM_API_PASSES_H

#include "api/checks.h"
#include "kernels.h"

struct forward_pass {
    const dynnorm_descriptor *call;
    dynnorm_descriptor completed; /* where the call is if its descriptor is of an earlier version */
    forward_kernel *kernel;
    struct forward_arguments arguments;
};

struct backward_pass {
    const dynnorm_descriptor *call;
    dynnorm_descriptor completed;
    const struct kernels *kernels; /* the pass stays with them even if another thread calls dynnorm_set_isa */
    backward_kernel *kernel;
    struct backward_arguments arguments;
};

/* These check the call and, if nothing is wrong with it, make the pass ready. */
dynnorm_status dynnorm_begin_forward(const dynnorm_descriptor *call, struct forward_pass *pass,
                                     struct mistake *mistake);
dynnorm_status dynnorm_begin_backward(const dynnorm_descriptor *call, struct backward_pass *pass,
                                      struct mistake *mistake);

#endif
