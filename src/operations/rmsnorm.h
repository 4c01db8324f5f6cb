/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RMSNorm: n = x rstd.
 */
#ifndef DYNNORM_RMSNORM_H
#define DYNNORM_RMSNORM_H

INLINE vec rmsnorm_normalize(vec x, const void *context) {
    const struct norm_row *row = context;
    return vec_fma(x, vec_set(row->rstd), vec_mul(x, vec_set(row->rstd_rest)));
}

/* dx = rstd h - n rstd mean(h n) */
INLINE struct gradient rmsnorm_gradient(vec x, vec dy, vec weight, const void *context) {
    const struct norm_row *row = context;
    vec n = vec_mul(x, vec_set(row->rstd));
    vec dx = vec_fma(n, vec_set(row->n_term), vec_mul(vec_mul(weight, dy), vec_set(row->rstd)));
    return (struct gradient){n, dx, vec_set(0)};
}

static void rmsnorm_forward_portable(const struct forward_arguments *arguments, size_t first, size_t rows) {
    norm_forward(arguments, first, rows, 0, rmsnorm_normalize);
}

static void rmsnorm_backward_portable(const struct backward_arguments *arguments, size_t first, size_t rows,
                                      const struct partial_sums *sums) {
    norm_backward(arguments, first, rows, sums, 0, rmsnorm_gradient);
}

#endif
