/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one table of error bounds. Tests measure against it, and the README shows it.
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

/* The error of an output is at most `portable` u times the reference, plus what an underflow costs. In the native mode
 * tanh and q may be 4 ULP off, which allows DyT and DyISRU twice the bound. The sleef mode has the bounds of the
 * portable one. */
struct bound {
    dynnorm_operation operation;
    enum buffer_index output;
    double portable;
    double native;
    const char *reference; /* what oracle.c computes as such */
};

static const struct bound bounds[] = {
    {DYNNORM_LAYERNORM, BUFFER_Y, 4, 4, "abs(w) max(abs(n), 1) + abs(b)"},
    {DYNNORM_LAYERNORM, BUFFER_MEAN, 2, 2, "max(abs(mean), deviation)"},
    {DYNNORM_LAYERNORM, BUFFER_RSTD, 3, 3, "rstd"},
    {DYNNORM_LAYERNORM, BUFFER_DX, 8, 8,
     "largest abs(r h), abs(r n mean(h n)) of the row; with rstd given, abs(r n) mean(abs(h n))"},
    {DYNNORM_LAYERNORM, BUFFER_DWEIGHT, 4, 4, "sum(abs(dy) max(abs(n), 1))"},
    {DYNNORM_LAYERNORM, BUFFER_DBIAS, 4, 4, "sum(abs(dy))"},

    {DYNNORM_RMSNORM, BUFFER_Y, 4, 4, "abs(w n)"},
    {DYNNORM_RMSNORM, BUFFER_RSTD, 3, 3, "rstd"},
    {DYNNORM_RMSNORM, BUFFER_DX, 8, 8,
     "largest abs(r h), abs(r n mean(h n)) of the row; with rstd given, abs(r n) mean(abs(h n))"},
    {DYNNORM_RMSNORM, BUFFER_DWEIGHT, 4, 4, "sum(abs(dy n))"},

    {DYNNORM_DYT, BUFFER_Y, 8, 16, "abs(w s t) + abs(b)"},
    {DYNNORM_DYT, BUFFER_DX, 8, 16, "largest abs(s alpha h) of the row"},
    {DYNNORM_DYT, BUFFER_DWEIGHT, 4, 8, "sum(abs(dy s t))"},
    {DYNNORM_DYT, BUFFER_DBIAS, 4, 4, "sum(abs(dy))"},
    {DYNNORM_DYT, BUFFER_DALPHA, 1, 2, "sum((6 + 3 abs(alpha x)) abs(s h x (1 - t^2)))"},

    {DYNNORM_DYISRU, BUFFER_Y, 8, 16, "abs(w s q) + abs(b)"},
    {DYNNORM_DYISRU, BUFFER_DX, 8, 16, "largest abs(s h / sqrt(beta)) of the row"},
    {DYNNORM_DYISRU, BUFFER_DWEIGHT, 4, 8, "sum(abs(dy s q))"},
    {DYNNORM_DYISRU, BUFFER_DBIAS, 4, 4, "sum(abs(dy))"},
    {DYNNORM_DYISRU, BUFFER_DBETA, 10, 20, "sum(abs(s h x (beta + x^2)^(-3/2) / 2))"},

    /* An error of 2^-46 max(abs(mean), deviation) in x - mean(x) changes the result. The oracle adds that change, in
       units of the factor times u, to each reference. */
    {DYNNORM_CENTERED_DYISRU, BUFFER_Y, 8, 16, "abs(w s) + abs(b)"},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DX, 8, 16, "largest abs(s h / sqrt(beta)) of the row"},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DWEIGHT, 4, 8, "sum(abs(dy s))"},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DBIAS, 4, 4, "sum(abs(dy))"},
    {DYNNORM_CENTERED_DYISRU, BUFFER_DBETA, 10, 20, "sum(abs(s h u (beta + u^2)^(-3/2) / 2)), u = x - mean(x)"},
};
enum { BOUND_COUNT = sizeof bounds / sizeof *bounds };

/* The two functions themselves, in ULP of the exact result. SLEEF promises 1.0 ULP and means at most one float off;
 * where tanh(x) is a little less than x that is 1 ULP and 2 * 10^-8. */
enum scalar_function { FUNCTION_TANH, FUNCTION_ISRU, SCALAR_FUNCTIONS };

struct ulp_bound {
    const char *name;
    double ulp[DYNNORM_SLEEF + 1]; /* by mode */
};

static const struct ulp_bound ulp_bounds[SCALAR_FUNCTIONS] = {
    [FUNCTION_TANH] = {"tanh(x)", {[DYNNORM_PORTABLE] = 2.5, [DYNNORM_NATIVE] = 4, [DYNNORM_SLEEF] = 1 + 0x1p-20}},
    [FUNCTION_ISRU] = {"x / sqrt(beta + x^2)", {[DYNNORM_PORTABLE] = 2, [DYNNORM_NATIVE] = 4, [DYNNORM_SLEEF] = 2}},
};

/* NULL if the table lacks it. */
static inline const struct bound *find_bound(dynnorm_operation operation, enum buffer_index output) {
    for (int i = 0; i < BOUND_COUNT; i++)
        if (bounds[i].operation == operation && bounds[i].output == output)
            return &bounds[i];
    return NULL;
}

/* The bound in u times the reference. A term of dweight is a product of a rounded f, and takes part in up to three sums
 * of floats. Contrived rows and dy, in which all these roundings go the same way, may double the error. */
static inline double bound_factor(const struct bound *bound, dynnorm_mode mode, int contrived) {
    double factor = mode == DYNNORM_NATIVE ? bound->native : bound->portable;
    return contrived && bound->output == BUFFER_DWEIGHT ? 2 * factor : factor;
}

#endif
