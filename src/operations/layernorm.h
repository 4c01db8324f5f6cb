/* SPDX-License-Identifier: BSD-2-Clause
 *
 * LayerNorm: n = (x - mean) rstd.
 */
#ifndef DYNNORM_LAYERNORM_H
#define DYNNORM_LAYERNORM_H

#include "operations/normalization.h"
#include "operations/statistics.h"
#include "rows/forward_normalization.h"

/* ---- Forward ---- */

INLINE unsigned layernorm_finish_row(struct eight_rows *rows, int row, double x, double xx,
                                     const struct call_constants *call) {
    return finish_row(rows, row, x, xx, call, 1);
}

INLINE unsigned layernorm_finish_rows(struct eight_rows *rows, const struct folded_sums *sums,
                                      const struct call_constants *call) {
    return finish_rows_together(rows, sums, call, 1);
}

RARE void layernorm_finish_unusual_row(struct eight_rows *rows, int row, struct reader x,
                                       const struct call_constants *call) {
    finish_unusual_row(rows, row, x, call, 1);
}

INLINE vec layernorm_normalize(vec x, const struct row_vectors *row) {
    return vec_fma(x, row->rstd, row->offset);
}

INLINE vec layernorm_normalize_shifted(vec x, const struct row_vectors *row) {
    return vec_fma(vec_sub(x, row->shift), row->rstd, row->offset);
}

static const struct normalization layernorm_normalization;

OUTLINED void layernorm_write_block(const struct forward_call *call, size_t row, struct block at,
                                    const struct eight_rows *rows, struct write_buffer *buffer) {
    write_block_of_row(call, row, at, rows, buffer, &layernorm_normalization);
}

SHORT_GROUPS(layernorm)

static const struct normalization layernorm_normalization = {
    .has_bias = layernorm_has_bias,
    .sums_in = ROW_SUMS_IN_DOUBLE,
    .finish_row = layernorm_finish_row,
    .finish_rows = layernorm_finish_rows,
    .finish_unusual_row = layernorm_finish_unusual_row,
    .normalize = layernorm_normalize,
    .normalize_shifted = layernorm_normalize_shifted,
    .short_groups = layernorm_short_groups,
    .any_short_group = layernorm_any_short_group,
    .write_block = layernorm_write_block,
};

/* ---- Backward ---- */

/* x - mean is exact, or within one rounding, since mean is a float near the row's values. The fused operations bring in
 * what rounding took from the mean and from rstd. So n suffers two roundings only. */
INLINE vec layernorm_forward(vec x, const struct row_constants *row, const struct call_constants *call,
                             const struct elements *elements) {
    (void)call, (void)elements;
    vec deviation = vec_sub(x, vec_set(row->mean));
    vec correction = vec_fma(deviation, vec_set(row->rstd_correction), vec_set(row->mean_correction));
    return vec_fma(deviation, vec_set(row->rstd), correction);
}

OUTLINED void layernorm_recompute(struct row_constants *row, const struct backward_row *inputs,
                                  const struct call_constants *call) {
    const struct backward_statistics known = recompute_statistics(inputs, call, 1);
    begin_backward_row(row, inputs, call, 1, &known);
}

INLINE void layernorm_begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                                         const struct call_constants *call, const struct elements *elements) {
    (void)elements;
    if (!inputs->mean || !inputs->rstd) {
        layernorm_recompute(row, inputs, call);
        return;
    }
    struct backward_statistics known;
    float shift = load_float(inputs->mean);
    for (int again = 0; again < 2; again++) {
        known = take_statistics(inputs, shift, call, 1);
        const struct statistics *statistics = &known.found.statistics;
        if (!known.found.hold || !(fabs((statistics->mean - (double)shift) * statistics->rstd) > 4))
            break;
        /* With a shift that far from the mean a sum of floats would lose digits: once more, with the mean itself. */
        shift = (float)statistics->mean;
    }
    begin_backward_row(row, inputs, call, 1, &known);
}

INLINE struct gradient layernorm_gradient(vec x, const struct row_constants *row, const struct call_constants *call,
                                          const struct elements *elements) {
    return (struct gradient){layernorm_forward(x, row, call, elements), vec_set(0), vec_set(0)};
}

/* dx = rstd h - rstd mean(h) - n rstd mean(h n) */
INLINE vec layernorm_dx(vec h, const struct gradient *gradient, const struct row_constants *row,
                        const struct call_constants *call) {
    (void)call;
    vec terms = vec_fma(gradient->f, vec_set(row->n_term), vec_set(row->h_term));
    return vec_fma(h, vec_set(row->rstd), terms);
}

static const struct elements layernorm_elements = {
    .has_bias = layernorm_has_bias,
    .forward = layernorm_forward,
    .gradient = layernorm_gradient,
    .dx = layernorm_dx,
    .forward_in_double = normalize_in_double,
    .gradient_in_double = normalize_gradient_in_double,
};

static const struct operation layernorm_portable = {
    .begin_call = begin_normalization,
    .begin_backward_row = layernorm_begin_backward_row,
    .normalization = &layernorm_normalization,
    .elements = &layernorm_elements,
};

#endif
