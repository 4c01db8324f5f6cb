/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The rare cases, in double: rows and elements whose squares, sums or products leave the range of float, or lose too
 * many digits to cancellation. This is plain C, one copy for all instruction sets, which is also why the bits agree.
 * Nothing that is made of a few floats can overflow or underflow in double: squares reach 10^77, their inverse square
 * roots 10^45.
 *
 * Rows come in blocks of channels (rows/blocks.h), each one whole but the last of a row.
 */
#ifndef DYNNORM_IN_DOUBLE_H
#define DYNNORM_IN_DOUBLE_H

#include <stddef.h>

/* Betas of the elements of a block, or one for all of them. */
struct betas {
    const float *values;
    size_t step; /* 0: there is one */
};

/* A block of a row: inputs and outputs, of count floats each. Those that a function does not use may be NULL. */
struct block_in_double {
    size_t count;
    const float *x;
    const float *weight;
    const float *bias; /* NULL for an operation without bias */
    const float *dy;
    struct betas betas;
    float *f; /* y without weight, scale and bias */
    float *dx;
    float *parameter_term; /* h times this is a term of the parameter's gradient, but for constant factors */
};

/* ---- Sums over the channels of a row, in lanes of a fixed number ---- */

enum { DOUBLE_LANES = 64 };

/* Begins as {{0}}. */
struct double_lanes {
    double lanes[DOUBLE_LANES];
};

double dynnorm_total_of_lanes(const struct double_lanes *sum);

/* ---- LayerNorm, and RMSNorm, whose mean is 0 ---- */

struct statistics {
    double mean;
    double rstd; /* 0 for a row without deviation where eps is 0; NaN for a row that is not finite, and so is mean */
};

/* What the backward pass needs besides. */
struct means {
    double h; /* 0 for RMSNorm */
    double hn;
};

/* ---- DyISRU ---- */

/* Of one element: q = x / sqrt(beta + x^2), its derivative, and x (beta + x^2)^(-3/2). The latter two are 0 at an
 * infinite x, and where x and beta are 0. */
struct isru {
    double q;
    double derivative;
    double parameter_term;
};
struct isru dynnorm_isru(double x, double beta);

/* DyISRU of x - mean. */
struct centered_isru {
    double mean;
    double scale;
    double mean_du;
};

/* Adds du = scale h q' */
void dynnorm_add_centered_isru_du(struct double_lanes *sum, const struct block_in_double *block,
                                  struct centered_isru isru);

/* f = q, dx = du - mean_du, and parameter_term */
void dynnorm_centered_isru_gradient_in_double(const struct block_in_double *block, struct centered_isru isru);

#endif
