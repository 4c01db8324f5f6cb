/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RMSNorm: n = x rstd.
 */
#ifndef DYNNORM_RMSNORM_H
#define DYNNORM_RMSNORM_H

#include "operations/statistics.h"

INLINE void rmsnorm_begin_row(struct row_constants *row, const struct channel_sums *sums, const struct reader *x,
                              const struct call_constants *call) {
    begin_row(row, sums, x, call, 0);
}

INLINE vec rmsnorm_forward(vec x, const struct row_constants *row, const struct call_constants *call,
                           const struct elements *elements) {
    (void)call, (void)elements;
    return vec_fma(x, vec_set(row->rstd), vec_mul(x, vec_set(row->rstd_correction)));
}

OUTLINED void rmsnorm_recompute(struct row_constants *row, const struct backward_row *inputs,
                                const struct call_constants *call) {
    const struct backward_statistics known = recompute_statistics(inputs, call, 0);
    begin_backward_row(row, inputs, call, 0, &known);
}

INLINE void rmsnorm_begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                                       const struct call_constants *call, const struct elements *elements) {
    (void)elements;
    if (!inputs->rstd) {
        rmsnorm_recompute(row, inputs, call);
        return;
    }
    const struct backward_statistics known = take_statistics(inputs, 0, call, 0);
    begin_backward_row(row, inputs, call, 0, &known);
}

INLINE struct gradient rmsnorm_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                        const struct elements *elements) {
    (void)call, (void)elements;
    return (struct gradient){vec_mul(x, vec_set(row->rstd)), vec_set(0), vec_set(0)};
}

/* dx = rstd h - n rstd mean(h n) */
INLINE vec rmsnorm_dx(vec h, const struct gradient *gradient, const struct row_constants *row,
                      const struct call_constants *call) {
    (void)call;
    return vec_fma(gradient->f, vec_set(row->n_term), vec_mul(h, vec_set(row->rstd)));
}

static const struct elements rmsnorm_elements = {
    .has_bias = rmsnorm_has_bias,
    .forward = rmsnorm_forward,
    .gradient = rmsnorm_gradient,
    .dx = rmsnorm_dx,
    .forward_in_double = normalize_in_double,
    .gradient_in_double = normalize_gradient_in_double,
};

static const struct operation rmsnorm_portable = {
    .begin_call = begin_normalization,
    .add_sums = add_float_squares,
    .begin_row = rmsnorm_begin_row,
    .begin_backward_row = rmsnorm_begin_backward_row,
    .elements = &rmsnorm_elements,
};

#endif
