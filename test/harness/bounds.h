/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one table of error bounds. Tests measure against it, and the README shows it.
 */
#ifndef DYNNORM_TEST_BOUNDS_H
#define DYNNORM_TEST_BOUNDS_H

#include "dynnorm.h"

#include <math.h>

#define UNIT_ROUNDOFF 0x1p-24    /* u */
#define UNDERFLOW_ERROR 0x1p-149 /* what an underflow costs */

/* abs(mean) / deviation up to which the bounds hold where a mean is subtracted. Beyond it the tests let the error grow
 * in proportion. */
#define BOUNDS_MEAN_LIMIT 1e6

/* The reference of a result for which nothing is promised; so it is with any reference beyond FLT_MAX. */
#define BOUNDS_NONE HUGE_VAL

enum output { OUTPUT_Y, OUTPUT_MEAN, OUTPUT_RSTD, OUTPUT_DX, OUTPUT_DWEIGHT, OUTPUT_DBIAS, OUTPUT_DPARAMETER, OUTPUTS };

/* The error of an output is at most `portable` u times the reference, plus what an underflow costs. The same in the
 * native mode, but for tanh and q, which may then be 4 ULP off; that grants DyT and DyISRU twice the bound. Bounds of
 * the sleef mode are those of the portable one. */
struct bound {
    dynnorm_operation operation;
    enum output output;
    const char *operation_name;
    const char *output_name;
    double portable;
    double native;
    const char *reference; /* what oracle.c computes as such */
};

static const struct bound bounds[] = {
    {DYNNORM_LAYERNORM, OUTPUT_Y, "LayerNorm", "y", 4, 4, "abs(w) max(abs(n), 1) + abs(b)"},
    {DYNNORM_LAYERNORM, OUTPUT_MEAN, "LayerNorm", "mean", 2, 2, "max(abs(mean), deviation)"},
    {DYNNORM_LAYERNORM, OUTPUT_RSTD, "LayerNorm", "rstd", 3, 3, "rstd"},
    {DYNNORM_LAYERNORM, OUTPUT_DX, "LayerNorm", "dx", 8, 8,
     "largest abs(r h), abs(r n mean(h n)) of the row; with rstd given, abs(r n) mean(abs(h n))"},
    {DYNNORM_LAYERNORM, OUTPUT_DWEIGHT, "LayerNorm", "dweight", 4, 4, "sum(abs(dy) max(abs(n), 1))"},
    {DYNNORM_LAYERNORM, OUTPUT_DBIAS, "LayerNorm", "dbias", 4, 4, "sum(abs(dy))"},

    {DYNNORM_RMSNORM, OUTPUT_Y, "RMSNorm", "y", 4, 4, "abs(w n)"},
    {DYNNORM_RMSNORM, OUTPUT_RSTD, "RMSNorm", "rstd", 3, 3, "rstd"},
    {DYNNORM_RMSNORM, OUTPUT_DX, "RMSNorm", "dx", 8, 8,
     "largest abs(r h), abs(r n mean(h n)) of the row; with rstd given, abs(r n) mean(abs(h n))"},
    {DYNNORM_RMSNORM, OUTPUT_DWEIGHT, "RMSNorm", "dweight", 4, 4, "sum(abs(dy n))"},

    {DYNNORM_DYT, OUTPUT_Y, "DyT", "y", 8, 16, "abs(w s t) + abs(b)"},
    {DYNNORM_DYT, OUTPUT_DX, "DyT", "dx", 8, 16, "largest abs(s alpha h) of the row"},
    {DYNNORM_DYT, OUTPUT_DWEIGHT, "DyT", "dweight", 4, 8, "sum(abs(dy s t))"},
    {DYNNORM_DYT, OUTPUT_DBIAS, "DyT", "dbias", 4, 4, "sum(abs(dy))"},
    {DYNNORM_DYT, OUTPUT_DPARAMETER, "DyT", "dalpha", 1, 2, "sum((6 + 3 abs(alpha x)) abs(s h x (1 - t^2)))"},

    {DYNNORM_DYISRU, OUTPUT_Y, "DyISRU", "y", 8, 16, "abs(w s q) + abs(b)"},
    {DYNNORM_DYISRU, OUTPUT_DX, "DyISRU", "dx", 8, 16, "largest abs(s h / sqrt(beta)) of the row"},
    {DYNNORM_DYISRU, OUTPUT_DWEIGHT, "DyISRU", "dweight", 4, 8, "sum(abs(dy s q))"},
    {DYNNORM_DYISRU, OUTPUT_DBIAS, "DyISRU", "dbias", 4, 4, "sum(abs(dy))"},
    {DYNNORM_DYISRU, OUTPUT_DPARAMETER, "DyISRU", "dbeta", 10, 20, "sum(abs(s h x (beta + x^2)^(-3/2) / 2))"},

    /* To each reference is added, in units of its factor times u, what an error of 2^-46 max(abs(mean), deviation) in
       x - mean(x) makes of the result. */
    {DYNNORM_CENTERED_DYISRU, OUTPUT_Y, "general DyISRU", "y", 8, 16, "abs(w s) + abs(b)"},
    {DYNNORM_CENTERED_DYISRU, OUTPUT_DX, "general DyISRU", "dx", 8, 16, "largest abs(s h / sqrt(beta)) of the row"},
    {DYNNORM_CENTERED_DYISRU, OUTPUT_DWEIGHT, "general DyISRU", "dweight", 4, 8, "sum(abs(dy s))"},
    {DYNNORM_CENTERED_DYISRU, OUTPUT_DBIAS, "general DyISRU", "dbias", 4, 4, "sum(abs(dy))"},
    {DYNNORM_CENTERED_DYISRU, OUTPUT_DPARAMETER, "general DyISRU", "dbeta", 10, 20,
     "sum(abs(s h u (beta + u^2)^(-3/2) / 2)), u = x - mean(x)"},
};
enum { BOUND_COUNT = sizeof bounds / sizeof *bounds };

/* The two functions themselves, in ULP of the exact result. SLEEF's 1.0 ULP means at most one float off, which is 1 ULP
 * and 2 * 10^-8 where tanh(x) is a little less than x. */
enum scalar_function { FUNCTION_TANH, FUNCTION_ISRU, SCALAR_FUNCTIONS };

struct ulp_bound {
    const char *name;
    double ulp[DYNNORM_SLEEF + 1]; /* by mode */
};

static const struct ulp_bound ulp_bounds[SCALAR_FUNCTIONS] = {
    [FUNCTION_TANH] = {"tanh(x)", {[DYNNORM_PORTABLE] = 2.5, [DYNNORM_NATIVE] = 4, [DYNNORM_SLEEF] = 1 + 0x1p-20}},
    [FUNCTION_ISRU] = {"x / sqrt(beta + x^2)", {[DYNNORM_PORTABLE] = 2, [DYNNORM_NATIVE] = 4, [DYNNORM_SLEEF] = 2}},
};

/* NULL where the operation has no such output. */
static inline const struct bound *find_bound(dynnorm_operation operation, enum output output) {
    for (int i = 0; i < BOUND_COUNT; i++)
        if (bounds[i].operation == operation && bounds[i].output == output)
            return &bounds[i];
    return NULL;
}

/* In u times the reference. A term of dweight is a product of a rounded f, and takes part in up to three sums of
 * floats; contrived: rows and dy in which all these roundings go the same way may make an error of twice the bound. */
static inline double bound_factor(const struct bound *bound, dynnorm_mode mode, int contrived) {
    double factor = mode == DYNNORM_NATIVE ? bound->native : bound->portable;
    return contrived && bound->output == OUTPUT_DWEIGHT ? 2 * factor : factor;
}

#endif
