/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A problem: one call's inputs. The library solves it, with any table, and so does the oracle; what lies between them
 * is measured by the table of bounds.
 */
#ifndef DYNNORM_TEST_MEASURE_H
#define DYNNORM_TEST_MEASURE_H

#include "bounds.h"
#include "each_kernel.h"
#include "oracle.h"

#include <stdint.h>

struct problem {
    const char *name; /* what its rows look like */
    uint64_t seed;
    dynnorm_operation operation;
    size_t tokens;
    size_t channels;
    float *x;
    float *dy;
    float *weight; /* NULL: none */
    float *bias;   /* NULL: none */
    float *mean;   /* given to backward; NULL: none */
    float *rstd;
    float weight_offset;
    float eps;
    float parameter; /* alpha or beta */
    float scale;
    int accumulate;    /* gradients are added to what is there: */
    float accumulated; /* this, everywhere */
    int contrived;     /* see bound_factor */
};

/* An empty problem has room for x and dy, and is released by free_problem. */
struct problem new_problem(dynnorm_operation operation, size_t tokens, size_t channels);
void free_problem(struct problem *problem);

float *allocate_floats(size_t count);

/* The oracle's answer to it, both directions; released by free_expectation. */
struct oracle_results expect(const struct problem *problem);
void free_expectation(struct oracle_results *results);

/* The library's answer. */
struct answer {
    float *outputs[OUTPUTS]; /* NULL where the operation or the direction has none */
};
dynnorm_status solve(const struct problem *problem, enum direction direction, dynnorm_mode mode, struct answer *answer);
void free_answer(struct answer *answer);

/* What is known of the errors of one output. */
struct errors {
    size_t values;
    size_t failures; /* those beyond the bound */
    double in_u;     /* the greatest one, in u times the reference */
    double in_bounds;
};
struct tally {
    struct errors outputs[OUTPUTS];
};
void add_errors(struct errors *sum, const struct errors *errors);

/* The error of one value; 0 if it is within what an underflow costs. In u times the reference. */
double error_in_u(double got, struct expected expected);

/* Adds the errors of an answer, which this kernel of this table gave, to the tally; prints the first few that are
 * beyond their bounds. */
void measure_answer(const struct problem *problem, const struct oracle_results *expected, const struct isa *isa,
                    const struct listed_kernel *kernel, dynnorm_status status, const struct answer *answer,
                    struct tally *tally);

/* Solves the problem by the table in use, which is isa's, and measures that. */
void measure(const struct problem *problem, const struct oracle_results *expected, const struct isa *isa,
             const struct listed_kernel *kernel, struct tally *tally);

#endif
