/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the library ought to compute: the formulas of dynnorm.h as textbook loops in double, with compensated sums, and
 * a mean of two doubles. That is exact to about 2^-50 of the magnitudes that the error bounds speak of, on every
 * machine (long double is not: on some it is double). It shares no code with the library.
 */
#ifndef DYNNORM_TEST_ORACLE_H
#define DYNNORM_TEST_ORACLE_H

#include "call.h"

/* One result. Its error may be `factor` u times the reference, where bounds.h has the factor, plus 2^-149 times the
 * underflow: the factors that multiply an intermediate result that may have underflowed. */
struct expected {
    double exact;
    double reference;
    double native_reference; /* where bounds.h has one for the native mode */
    double underflow;
};

/* The inputs of a call. They are doubles, so that finite differences can move them a little; otherwise they hold
 * floats, which keeps all squares in range. Tensors are contiguous. */
struct question {
    dynnorm_operation operation;
    size_t tokens;
    size_t channels;
    double *x;
    double *dy;     /* may be NULL if no gradient is asked for */
    double *weight; /* may be NULL */
    double *bias;   /* may be NULL */
    double *rstd;   /* NULL, or for backward, to be used as it is */
    double weight_offset;
    double eps;
    double parameter;   /* alpha or beta */
    double *parameters; /* NULL, or those of each channel */
    double scale;
};

/* A copy of the descriptor's inputs; a given mean does not change what is exact. Free it with free_question. */
struct question question_of(const dynnorm_descriptor *call);
void free_question(struct question *question);

/* The results by buffer. What is NULL is not computed. mean and rstd are those of the row before eps is added. */
struct expectation {
    struct expected *outputs[BUFFERS];
};

void oracle(const struct question *question, const struct expectation *results);

/* What the call ought to compute: every output of both directions that its operation has. With an rstd given, the
 * forward pass still computes its own. Free it with free_expectation. */
struct expectation expect(const dynnorm_descriptor *call);
void free_expectation(struct expectation *expectation);

#endif
