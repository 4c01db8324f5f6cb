/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The rare cases, in double: rows and elements whose squares, sums or products leave the range of float, or lose too
 * much to cancellation. Plain C, one copy for all instruction sets, which is also why the bits agree. In double nothing
 * that comes from floats can overflow or underflow: squares reach 10^77, their inverse square roots 10^45.
 */
#ifndef DYNNORM_WIDE_H
#define DYNNORM_WIDE_H

#include <stddef.h>

struct wide_statistics {
    double mean;
    double rstd; /* 0 for a row without deviation where eps is 0; NaN for a row that is not finite, and so is mean */
};

/* Of one row. centered: LayerNorm's; else RMSNorm's, with mean 0. */
struct wide_statistics dynnorm_wide_statistics(const float *x, size_t channels, double eps, int centered);

/* What the backward pass needs besides: mean(h) (0 unless centered) and mean(h n). */
struct wide_means {
    double h;
    double hn;
};

/* weight may be NULL. */
struct wide_means dynnorm_wide_means(const float *x, const float *dy, const float *weight, float weight_offset,
                                     size_t channels, struct wide_statistics statistics, int centered);

/* y = weight (x - mean) rstd + bias; bias may be NULL. The arrays are blocks of a row, n channels each. */
void dynnorm_wide_norm(float *y, const float *x, const float *weight, const float *bias, size_t n,
                       struct wide_statistics statistics);

/* n, and dx = rstd (h - means.h - n means.hn), to float. */
void dynnorm_wide_norm_gradient(float *normalized, float *dx, const float *x, const float *dy, const float *weight,
                                size_t n, struct wide_statistics statistics, struct wide_means means);

/* Whether all are equal to value. */
int dynnorm_all_equal(const float *values, size_t count, float value);

/* exp(x) for x <= 0, within 10^-10 of itself; 0 below -600. */
double dynnorm_wide_exponential(double x);

/* DyISRU of one element: q = x / sqrt(beta + x^2), its derivative, and p = x (beta + x^2)^(-3/2). derivative and p are
 * 0 at an infinite x, and where x and beta are 0. */
struct wide_isru {
    double q;
    double derivative;
    double p;
};
struct wide_isru dynnorm_wide_isru(double x, double beta);

/* The same on u = x - mean, blocks of a row: y = weight scale q + bias. */
void dynnorm_wide_centered_isru(float *y, const float *x, const float *weight, const float *bias, size_t n, double mean,
                                double beta, double scale);

/* The mean of du = scale h derivative over a whole row; weight may be NULL. */
double dynnorm_wide_centered_isru_mean(const float *x, const float *dy, const float *weight, float weight_offset,
                                       size_t channels, double mean, double beta, double scale);

/* q, dx = du - mean_du, and factor = u (beta + u^2)^(-3/2), to float; blocks of a row. */
void dynnorm_wide_centered_isru_gradient(float *q, float *dx, float *factor, const float *x, const float *dy,
                                         const float *weight, size_t n, double mean, double beta, double scale,
                                         double mean_du);

#endif
