/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one table of error bounds. Tests measure against it, and include/dynnorm.h states it.
 */
#ifndef DYNNORM_TEST_BOUNDS_H
#define DYNNORM_TEST_BOUNDS_H

#include "call.h"

#include <math.h>

#define UNIT_ROUNDOFF 0x1p-24    /* u */
#define UNDERFLOW_ERROR 0x1p-149 /* what an underflow costs */

/* abs(mean) / deviation up to which the bounds hold where a mean is subtracted. Beyond it the tests let the error grow
 * in proportion. */
#define BOUNDS_MEAN_LIMIT 1e6

/* The reference of a result for which nothing is promised. Any reference beyond FLT_MAX means the same. */
#define BOUNDS_NONE HUGE_VAL

/* The error of an output is at most `portable` u times the reference, plus what an underflow costs. The native mode has
 * its own factor, and for dalpha its own reference. The sleef mode has the bounds of the portable one. docs/bounds.md
 * derives them. */
struct bound {
    dynnorm_operation operation;
    enum buffer_index output;
    double portable;
    double native;
    const char *reference;        /* what oracle.c computes as such */
    const char *native_reference; /* NULL: the same */
};

static const struct bound bounds[] = {
    {DYNNORM_LAYERNORM, BUFFER_Y, 4, 4, "abs(w) max(abs(n), 1) + abs(b)", NULL},
    {DYNNORM_LAYERNORM, BUFFER_MEAN, 1.1, 1.1, "max(abs(mean), deviation)", NULL},
    {DYNNORM_LAYERNORM, BUFFER_RSTD, 3, 3, "rstd", NULL},
    {DYNNORM_LAYERNORM, BUFFER_DX, 16, 16, "largest abs(r h), abs(r n) mean(abs(h n)) of the row", NULL},
    {DYNNORM_LAYERNORM, BUFFER_DWEIGHT, 11, 11, "sum(abs(dy) max(abs(n), 1))", NULL},
    {DYNNORM_LAYERNORM, BUFFER_DBIAS, 4, 4, "sum(abs(dy))", NULL},

    {DYNNORM_RMSNORM, BUFFER_Y, 5, 5, "abs(w n)", NULL},
    {DYNNORM_RMSNORM, BUFFER_RSTD, 3, 3, "rstd", NULL},
    {DYNNORM_RMSNORM, BUFFER_DX, 12, 12, "largest abs(r h), abs(r n) mean(abs(h n)) of the row", NULL},
    {DYNNORM_RMSNORM, BUFFER_DWEIGHT, 7, 7, "sum(abs(dy n))", NULL},

    {DYNNORM_DYT, BUFFER_Y, 6, 12, "abs(w s t) + abs(b)", NULL},
    {DYNNORM_DYT, BUFFER_DX, 10, 20, "largest abs(s alpha h) of the row", NULL},
    {DYNNORM_DYT, BUFFER_DWEIGHT, 10, 20, "sum(abs(dy s t))", NULL},
    {DYNNORM_DYT, BUFFER_DBIAS, 4, 4, "sum(abs(dy))", NULL},
    {DYNNORM_DYT, BUFFER_DALPHA, 1, 16, "sum(((12 + 4 abs(alpha x)) (1 - t^2) + 2^-66) abs(s h x))", "sum(abs(s h x))"},

    {DYNNORM_DYISRU, BUFFER_Y, 5, 10, "abs(w s q) + abs(b)", NULL},
    {DYNNORM_DYISRU, BUFFER_DX, 10, 20, "largest abs(s h / sqrt(beta)) of the row", NULL},
    {DYNNORM_DYISRU, BUFFER_DWEIGHT, 8, 16, "sum(abs(dy s q))", NULL},
    {DYNNORM_DYISRU, BUFFER_DBIAS, 4, 4, "sum(abs(dy))", NULL},
    {DYNNORM_DYISRU, BUFFER_DBETA, 13, 26, "sum(abs(s h x (beta + x^2)^(-3/2) / 2))", NULL},

    /* An error of 2^-46 max(abs(mean), deviation) in x - mean(x) changes the result. The oracle adds that change, in
       units of the factor times u, to each reference. */
    {DYNNORM_CENTERED_DYISRU, BUFFER_Y, 5, 10, "abs(w s) + abs(b)", NULL},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DX, 20, 40, "largest abs(s h / sqrt(beta)) of the row", NULL},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DWEIGHT, 8, 16, "sum(abs(dy s))", NULL},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DBIAS, 4, 4, "sum(abs(dy))", NULL},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DBETA, 13, 26, "sum(abs(s h u (beta + u^2)^(-3/2) / 2)), u = x - mean(x)", NULL},
};
enum { BOUND_COUNT = sizeof bounds / sizeof *bounds };

/* The two functions themselves, in ULP of the exact result, and in u times the result, which docs/bounds.md goes on
 * from. SLEEF promises 1.0 ULP and means at most one float off; where tanh(x) is a little less than x that is 1 ULP and
 * 2 * 10^-8. */
enum scalar_function { FUNCTION_TANH, FUNCTION_ISRU, SCALAR_FUNCTIONS };

struct ulp_bound {
    const char *name;
    double ulp[DYNNORM_SLEEF + 1]; /* by mode */
    double in_u[DYNNORM_SLEEF + 1];
};

static const struct ulp_bound ulp_bounds[SCALAR_FUNCTIONS] = {
    [FUNCTION_TANH] = {"tanh(x)", {2.5, 4, 1 + 0x1p-20}, {3, 8, 2 + 0x1p-19}},
    [FUNCTION_ISRU] = {"x / sqrt(beta + x^2)", {2, 4, 2}, {2.5, 8, 2.5}},
};

/* Of what DyT's backward pass computes of z = alpha x, in u, with what the rounding of z may add: of tanh(z), and of
 * its derivative less 4 |z|. */
#define BOUND_OF_BACKWARD_TANH 5.0
#define BOUND_OF_BACKWARD_DERIVATIVE 3.5

/* NULL if the table lacks it. */
static inline const struct bound *find_bound(dynnorm_operation operation, enum buffer_index output) {
    for (int i = 0; i < BOUND_COUNT; i++)
        if (bounds[i].operation == operation && bounds[i].output == output)
            return &bounds[i];
    return NULL;
}

/* The bound in u times the reference. */
static inline double bound_factor(const struct bound *bound, dynnorm_mode mode) {
    return mode == DYNNORM_NATIVE ? bound->native : bound->portable;
}

#endif
