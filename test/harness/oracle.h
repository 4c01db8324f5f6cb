/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the library ought to compute: the formulas of dynnorm.h as textbook loops in double, with compensated sums, and
 * a mean of two doubles. That is exact to about 2^-50 of the magnitudes that the error bounds speak of, on every
 * machine (long double is not: on some it is double). It shares no code with the library.
 */
#ifndef DYNNORM_TEST_ORACLE_H
#define DYNNORM_TEST_ORACLE_H

#include "dynnorm.h"

/* One result. Its error may be `factor` u times the reference, where bounds.h has the factor, plus 2^-149 times the
 * underflow: the factors that multiply an intermediate result that may have underflowed. */
struct expected {
    double exact;
    double reference;
    double underflow;
};

/* Inputs are doubles, so that finite differences can move them a little; they hold floats otherwise, which keeps all
 * squares in range. Tensors are contiguous. */
struct oracle_problem {
    dynnorm_operation operation;
    size_t tokens;
    size_t channels;
    const double *x;
    const double *dy;     /* may be NULL if no gradient is asked for */
    const double *weight; /* may be NULL */
    const double *bias;   /* may be NULL */
    const double *rstd;   /* NULL, or for backward, to be used as it is */
    double weight_offset;
    double eps;
    double parameter; /* alpha or beta */
    double scale;
};

/* Each may be NULL: then it is not computed. mean, rstd and deviation are those of the row before eps is added. */
struct oracle_results {
    struct expected *y;          /* [tokens x channels] */
    struct expected *mean;       /* [tokens] */
    struct expected *rstd;       /* [tokens] */
    struct expected *dx;         /* [tokens x channels] */
    struct expected *dweight;    /* [channels] */
    struct expected *dbias;      /* [channels] */
    struct expected *dparameter; /* one */
    double *deviation;           /* [tokens], of operations that subtract the mean, else 0 */
};

void oracle(const struct oracle_problem *problem, const struct oracle_results *results);

#endif
