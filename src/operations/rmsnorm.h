/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RMSNorm: n = x rstd.
 */
#ifndef DYNNORM_RMSNORM_H
#define DYNNORM_RMSNORM_H

#include "operations/normalization.h"
#include "operations/statistics.h"
#include "rows/forward_normalization.h"

/* ---- Forward ---- */

INLINE unsigned rmsnorm_finish_row(struct eight_rows *rows, int row, double x, double xx,
                                   const struct call_constants *call) {
    return finish_row(rows, row, x, xx, call, 0);
}

INLINE unsigned rmsnorm_finish_rows(struct eight_rows *rows, const struct folded_sums *sums,
                                    const struct call_constants *call) {
    return finish_rows_together(rows, sums, call, 0);
}

RARE void rmsnorm_finish_unusual_row(struct eight_rows *rows, int row, struct reader x,
                                     const struct call_constants *call) {
    finish_unusual_row(rows, row, x, call, 0);
}

INLINE vec rmsnorm_normalize(vec x, const struct row_vectors *row) {
    return vec_mul(x, row->rstd);
}

static const struct normalization rmsnorm_normalization;

OUTLINED void rmsnorm_write_block(const struct forward_call *call, size_t row, struct block at,
                                  const struct eight_rows *rows, struct write_buffer *buffer) {
    write_block_of_row(call, row, at, rows, buffer, &rmsnorm_normalization);
}

SHORT_GROUPS(rmsnorm)

static const struct normalization rmsnorm_normalization = {
    .has_bias = rmsnorm_has_bias,
    .sums_in = ROW_SQUARES_IN_FLOAT,
    .finish_row = rmsnorm_finish_row,
    .finish_rows = rmsnorm_finish_rows,
    .finish_unusual_row = rmsnorm_finish_unusual_row,
    .normalize = rmsnorm_normalize,
    .normalize_shifted = rmsnorm_normalize,
    .short_groups = rmsnorm_short_groups,
    .any_short_group = rmsnorm_any_short_group,
    .write_block = rmsnorm_write_block,
};

/* ---- Backward ---- */

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
    .begin_backward_row = rmsnorm_begin_backward_row,
    .normalization = &rmsnorm_normalization,
    .elements = &rmsnorm_elements,
};

#endif
