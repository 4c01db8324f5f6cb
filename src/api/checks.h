/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The checks of a call's arguments. A check gives a status for the program that called, and tells a person's words for
 * it besides; dynnorm_explain_forward and dynnorm_explain_backward hand these on.
 */
#ifndef DYNNORM_API_CHECKS_H
#define DYNNORM_API_CHECKS_H

#include "dynnorm.h"
#include "kernels.h"

/* What a check found. It is only filled in where the words tell more than dynnorm_status_string does. */
struct problem {
    const char *words; /* a format for printf, with up to two %s for the names of fields; NULL: those of the status */
    const char *first;
    const char *second;
};

/* What concerns no single pass: operation, mode, types, shape and parameters. */
dynnorm_status dynnorm_check_call(const dynnorm_descriptor *call, struct problem *problem);

/* All checks of a pass but those of ranges of rows. They fill in where the rows of the kernel's tensors lie. */
dynnorm_status dynnorm_check_forward(const dynnorm_descriptor *call, struct forward_arguments *arguments,
                                     struct problem *problem);
dynnorm_status dynnorm_check_backward(const dynnorm_descriptor *call, struct backward_arguments *arguments,
                                      struct problem *problem);

#endif
