/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares the library with the oracle: both are given the same inputs, and the table of bounds says how far their
 * outputs may lie apart.
 */
#ifndef DYNNORM_TEST_MEASURE_H
#define DYNNORM_TEST_MEASURE_H

#include "bounds.h"
#include "call.h"
#include "each_kernel.h"
#include "oracle.h"

#include <stddef.h>
#include <stdint.h>

/* The inputs of a call, and what a report says of them. */
struct problem {
    const char *name; /* what its rows look like */
    uint64_t seed;
    struct test_call inputs; /* of both directions; it has no outputs */
    float accumulated;       /* what is in the gradients before the call, where its flags say that it accumulates */
};

/* A problem that has every input its operation can have, all of them 0, and the defaults for everything else, but an
 * alpha or beta of 1. Set the pointers of those that are not wanted to NULL. Free it with free_problem. */
struct problem new_problem(dynnorm_operation operation, size_t tokens, size_t channels);
void free_problem(struct problem *problem);

/* A copy of the problem's call with outputs of its own, as the library computed them; they are NaN where it wrote
 * nothing. Free it with free_answer. */
struct answer {
    struct test_call outputs;
    dynnorm_status status;
};
struct answer solve(const struct problem *problem, enum direction direction, dynnorm_mode mode);
void free_answer(struct answer *answer);

/* What is known of the errors of one output. */
struct errors {
    size_t values;
    size_t failures; /* those beyond the bound */
    double in_u;     /* the greatest one, in u times the reference */
    double in_bounds;
};
struct tally {
    struct errors outputs[BUFFERS];
};
void add_errors(struct errors *sum, const struct errors *errors);
struct errors all_errors(const struct tally *tally);

/* The error of one value in u times the reference; 0 if it is within what an underflow costs. */
double error_in_u(double got, struct expected expected);

/* What the oracle expects of this output, with the reference that applies in this mode. */
struct expected expected_in_mode(const struct bound *bound, dynnorm_mode mode, struct expected expected);

/* Adds the errors of an answer, which this kernel of this table gave, to the tally; prints the first few that are
 * beyond their bounds. */
void measure_answer(const struct problem *problem, const struct expectation *expected, const struct isa *isa,
                    const struct listed_kernel *kernel, const struct answer *answer, struct tally *tally);

/* Solves the problem by the table in use, which is isa's, and measures that. */
void measure(const struct problem *problem, const struct expectation *expected, const struct isa *isa,
             const struct listed_kernel *kernel, struct tally *tally);

#endif
