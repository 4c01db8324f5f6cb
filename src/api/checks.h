/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The checks of a call's arguments. A check returns a status for the calling program. It may also describe the mistake
 * in words for a person, which dynnorm_explain_forward and dynnorm_explain_backward pass on.
 */
#ifndef DYNNORM_API_CHECKS_H
#define DYNNORM_API_CHECKS_H

#include "dynnorm.h"
#include "kernels.h"

/* What a check found. It is filled in only if the words say more than dynnorm_status_string does. */
struct mistake {
    const char *words; /* a format for printf, with up to two %s for the names of fields; NULL: those of the status */
    const char *first;
    const char *second;
};

static inline dynnorm_status found(struct mistake *mistake, dynnorm_status status, const char *words, const char *first,
                                   const char *second) {
    *mistake = (struct mistake){words, first, second};
    return status;
}

/* Checks what both passes have in common: operation, mode, types, shape and parameters. This is all that functions
 * check which compute nothing. A descriptor of an earlier version is completed first, and *call then is that. */
dynnorm_status dynnorm_check_query(const dynnorm_descriptor **call, dynnorm_descriptor *completed,
                                   struct mistake *mistake);

/* Gives the alpha or beta that all channels have in common: the field's, or the element that alphas or betas point to,
 * which is checked here. Where each channel has its own, or there are no tokens, it means nothing. */
dynnorm_status dynnorm_read_parameter(const dynnorm_descriptor *call, const struct kernels *kernels, float *parameter,
                                      struct mistake *mistake);

/* All checks of a pass except those of a range of rows. They also fill in where its tensors lie. The data of a prepared
 * call's x and y are not looked at, and its tensors of these get none: they are given later. A split has been checked
 * before; its sums are an output or an input like others. */
struct forward_pass;
struct backward_pass;
dynnorm_status dynnorm_check_forward(const dynnorm_descriptor *call, int is_prepared, struct forward_pass *pass,
                                     struct mistake *mistake);
dynnorm_status dynnorm_check_backward(const dynnorm_descriptor *call, struct backward_pass *pass,
                                      struct mistake *mistake);

#endif
