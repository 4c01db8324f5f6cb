/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The outlier experiment gives the published numbers with every table: the outlier after the norms, and the fits of DyT
 * and DyISRU.
 */
#include "outliers.h"

#include "each_kernel.h"
#include "tap.h"

#include <math.h>

enum { LAST = OUTLIER_CHANNELS - 1 };

/* The outlier after LayerNorm, as the author's notebook prints it. */
static const double published_y[OUTLIER_STEPS] = {
    2.40069777656419,  4.715458692519567, 6.344581148008157, 7.414185131923001, 8.1100135128233,
    8.571591081005568, 8.886944326366176, 9.109168615543917, 9.270383271697186, 9.390432522317097,
};

/* The published fits. The last row is Theorem 3: beta is the squared norm of the other elements, and the residual is 0.
 * The parameters and DyT's residual must agree to five digits, DyISRU's residual as far as data in float allow. */
static const struct {
    enum norm norm;
    enum curve curve;
    double parameter;
    double parameter_tolerance; /* half a unit of the fifth digit */
    double residual;
    double residual_tolerance;
} published[] = {
    {LAYERNORM, CURVE_DYT, 0.0486101, 5e-7, 0.327877, 5e-6},
    {LAYERNORM, CURVE_DYISRU, 301.060, 5e-3, 0.0048142, 5e-6},
    {RMSNORM, CURVE_DYT, 0.0490115, 5e-7, 0.333823, 5e-6},
    {RMSNORM, CURVE_DYISRU, 295.7618, 5e-3, 0, 1e-5},
};

/* The library's bound on y, and the error that rounding x to float causes: the sum of |dy / dx_j| u |x_j|. */
static double tolerance_of_y(const float *x, double y) {
    const double u = 0x1p-24;
    double sum = 0, squares = 0;
    for (int j = 0; j < OUTLIER_CHANNELS; j++)
        sum += (double)x[j];
    double mean = sum / OUTLIER_CHANNELS;
    for (int j = 0; j < OUTLIER_CHANNELS; j++)
        squares += ((double)x[j] - mean) * ((double)x[j] - mean);
    double deviation = sqrt(squares / OUTLIER_CHANNELS);
    double tolerance = 4 * u * fmax(fabs(y), 1);
    for (int j = 0; j < OUTLIER_CHANNELS; j++) {
        double n = ((double)x[j] - mean) / deviation;
        double derivative = ((j == LAST) - (1 + n * y) / OUTLIER_CHANNELS) / deviation;
        tolerance += fabs(derivative) * u * fabs((double)x[j]);
    }
    return tolerance;
}

static void test_table(const struct isa *isa) {
    static struct outliers outliers[NORMS];
    for (int norm = 0; norm < NORMS; norm++)
        compute_outliers(&outliers[norm], (enum norm)norm);

    for (int step = 0; step < OUTLIER_STEPS; step++) {
        double y = (double)outliers[LAYERNORM].y[step][LAST];
        double tolerance = tolerance_of_y(outliers[LAYERNORM].x[step], published_y[step]);
        tap_check(fabs(y - published_y[step]) <= tolerance, "%s: S = %d: y = %.9g, published %.9g, tolerance %.2g",
                  isa->identifier, step, y, published_y[step], tolerance);
    }
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const char *name = published[i].norm == LAYERNORM ? "LayerNorm" : "RMSNorm";
        double parameter = (double)outliers[published[i].norm].fits[published[i].curve].parameter;
        double residual = outliers[published[i].norm].fits[published[i].curve].mean_abs_residual;
        tap_check(fabs(parameter - published[i].parameter) <= published[i].parameter_tolerance,
                  "%s: %s, %s: %s = %.9g, published %g", isa->identifier, name, curve_names[published[i].curve],
                  parameter_names[published[i].curve], parameter, published[i].parameter);
        tap_check(fabs(residual - published[i].residual) <= published[i].residual_tolerance,
                  "%s: %s, %s: mean |residual| = %.9g, published %g", isa->identifier, name,
                  curve_names[published[i].curve], residual, published[i].residual);
    }
}

int main(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (use_table(isa))
            test_table(isa);
        else
            tap_skip(isa->identifier, TABLE_IS_UNAVAILABLE);
    }
    return tap_done();
}
