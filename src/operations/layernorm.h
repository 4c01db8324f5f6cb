/* SPDX-License-Identifier: BSD-2-Clause
 *
 * LayerNorm: n = (x - mean) rstd.
 */
#ifndef DYNNORM_LAYERNORM_H
#define DYNNORM_LAYERNORM_H

/* x - mean is exact, or within one rounding, as mean is a float near the row's values; the mean's rest and rstd's are
 * brought in by the fused operations. So two roundings are all that n suffers. */
INLINE vec layernorm_normalize(vec x, const void *context) {
    const struct norm_row *row = context;
    vec deviation = vec_sub(x, vec_set(row->mean));
    vec rest = vec_fma(deviation, vec_set(row->rstd_rest), vec_set(row->mean_rest));
    return vec_fma(deviation, vec_set(row->rstd), rest);
}

/* dx = rstd h - rstd mean(h) - n rstd mean(h n) */
INLINE struct gradient layernorm_gradient(vec x, vec dy, vec weight, const void *context) {
    const struct norm_row *row = context;
    vec n = layernorm_normalize(x, context);
    vec rest = vec_fma(n, vec_set(row->n_term), vec_set(row->h_term));
    vec dx = vec_fma(vec_mul(weight, dy), vec_set(row->rstd), rest);
    return (struct gradient){n, dx, vec_set(0)};
}

static void layernorm_forward_portable(const struct forward_arguments *arguments, size_t first, size_t rows) {
    norm_forward(arguments, first, rows, 1, layernorm_normalize);
}

static void layernorm_backward_portable(const struct backward_arguments *arguments, size_t first, size_t rows,
                                        const struct partial_sums *sums) {
    norm_backward(arguments, first, rows, sums, 1, layernorm_gradient);
}

#endif
