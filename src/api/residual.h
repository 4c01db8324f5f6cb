/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The sum of x and the residual, which is what is normalized, where both have one type.
 */
#ifndef DYNNORM_API_RESIDUAL_H
#define DYNNORM_API_RESIDUAL_H

#include "api/passes.h"

/* Whether x, the residual and their rounded sum, which is what is normalized, have one type. */
static inline int dynnorm_has_sum_of_one_type(const dynnorm_descriptor *call) {
    return call->x.type == call->residual.type && (!call->sum.data || call->x.type == call->sum.type) &&
           (call->x.type == DYNNORM_F32 || !call->normalize_unrounded_sum);
}

/* Whether such a sum can be made by one function: past the caches, it stores whole vectors. */
int dynnorm_makes_sum_of_one_type(const struct forward_pass *pass);

/* Whether it has a buffer. Otherwise it is where the caller wants it. */
static inline int dynnorm_sums_need_buffer(const struct forward_pass *pass) {
    return pass->call->residual.data && (!pass->sum.data || pass->streams_sum);
}

/* Whether the sum of so many rows is stored past the caches. */
int dynnorm_sum_goes_past_caches(const struct forward_pass *pass, size_t rows);

/* Makes the sums of rows [first, first + rows), from the given row of to on. */
void dynnorm_sum_rows(const struct forward_pass *pass, size_t first, size_t rows, const struct tensor *to,
                      size_t row_of_to, const float *bias);

/* Rows of a prepared call. */
struct prepared_rows {
    size_t first;
    size_t count;
    size_t step;
};

/* Makes the sums of rows of a prepared call, and returns 1. Returns 0, and has done nothing, unless the sum is asked
 * for, the rows lie on one axis each, there is no residual_bias, and the rows have so few elements that nobody wants
 * them past the caches. */
int dynnorm_sum_few_rows(const struct forward_pass *pass, const void *x, const struct prepared_rows *rows);

/* Whether the kernel itself makes the sums of so many rows. */
int dynnorm_kernel_makes_sums(const struct forward_pass *pass, size_t rows, int of_halves);

/* The sums from a row on, for such a kernel. */
struct summed_rows dynnorm_summed_rows(const struct forward_pass *pass, size_t first, const float *bias);

#endif
