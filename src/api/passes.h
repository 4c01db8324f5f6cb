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
    dynnorm_descriptor completed;  /* where the call is if its descriptor is of an earlier version */
    const struct kernels *kernels; /* the pass stays with them even if another thread calls dynnorm_set_isa */
    forward_kernel *kernel;
    halves_kernel *halves_kernel;       /* for as many rows as it can do; may be NULL */
    struct forward_arguments arguments; /* x and y as the caller has them */
    int is_buffered;                    /* see buffered_forward.h; so are the following */
    struct tensor residual;
    struct tensor sum;
    int streams_sum;
};

struct backward_pass {
    const dynnorm_descriptor *call;
    dynnorm_descriptor completed;
    const struct kernels *kernels;
    backward_kernel *kernel;
    struct backward_arguments arguments; /* dy, x and dx as the caller has them */
    struct channel_constants constants;  /* of each channel, where these have their own */
    int is_buffered;                     /* see buffered_backward.h; so are the following */
    struct tensor dsum;
};

/* These check the call and, if nothing is wrong with it, make the pass ready. split: NULL, or rows that are split. What
 * is pointed to must last as long as the pass. */
dynnorm_status dynnorm_begin_forward(const dynnorm_descriptor *call, const struct split_rows *split,
                                     struct forward_pass *pass, struct mistake *mistake);
dynnorm_status dynnorm_begin_backward(const dynnorm_descriptor *call, const struct split_rows *split,
                                      struct backward_pass *pass, struct mistake *mistake);

/* The same for a forward call whose x and y are given later. The pass has its descriptor in completed. */
dynnorm_status dynnorm_begin_prepared(const dynnorm_descriptor *call, struct forward_pass *pass,
                                      struct mistake *mistake);

/* Compute all rows, on the threads of the executor if there is one; OUT_OF_MEMORY is the only error. */
dynnorm_status dynnorm_run_whole_forward(const struct forward_pass *pass);
dynnorm_status dynnorm_run_whole_backward(struct backward_pass *pass);

/* dynnorm_forward, but never by a plain call, whose general way this is. */
dynnorm_status dynnorm_forward_any(const dynnorm_descriptor *call);

/* Writes what dynnorm_explain_forward and its kin say of a status, and gives the length. */
size_t dynnorm_write_words(dynnorm_status status, const struct mistake *mistake, char *text, size_t capacity);

/* Computes so many rows from the first one on, each a step after the one before; OUT_OF_MEMORY is the only error, and
 * then nothing has been written. */
dynnorm_status dynnorm_run_forward(const struct forward_pass *pass, size_t first, size_t rows, size_t step);

#endif
