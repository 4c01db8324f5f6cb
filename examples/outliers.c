/* SPDX-License-Identifier: BSD-2-Clause */
#include "outliers.h"

#include "outlier_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void normalize(struct outliers *outliers, enum norm norm) {
    dynnorm_status status;
    if (norm == LAYERNORM)
        status = dynnorm_layernorm_forward_f32(outliers->y[0], NULL, NULL, outliers->x[0], NULL, NULL, 0, OUTLIER_STEPS,
                                               OUTLIER_CHANNELS);
    else
        status =
            dynnorm_rmsnorm_forward_f32(outliers->y[0], NULL, outliers->x[0], NULL, 0, OUTLIER_STEPS, OUTLIER_CHANNELS);
    if (status != DYNNORM_OK) {
        fprintf(stderr, "%s\n", dynnorm_status_string(status));
        exit(EXIT_FAILURE);
    }
}

static void fit_curve(struct outliers *outliers, enum curve curve) {
    const struct points points = {
        .tokens = 1, .channels = OUTLIER_POINTS, .x = outliers->point_x, .y = outliers->point_y};
    float *residuals = outliers->fits[curve].residuals;
    struct fit fit;
    float smallest = outliers->x[1][OUTLIER_CHANNELS - 1],
          largest = outliers->x[OUTLIER_STEPS - 1][OUTLIER_CHANNELS - 1];
    fit_begin(&fit, curve, outliers->scale, smallest, smallest, largest);
    do
        fit_add(&fit, &points, residuals);
    while (fit_next(&fit));

    float parameter = curve_parameter(curve, fit.log_width);
    outliers->fits[curve].parameter = parameter;
    curve_residuals(residuals, curve, parameter, outliers->scale, &points);
    double sum = 0;
    for (int i = 0; i < OUTLIER_POINTS; i++)
        sum += fabs((double)residuals[i]);
    outliers->fits[curve].mean_abs_residual = sum / OUTLIER_POINTS;
}

void compute_outliers(struct outliers *outliers, enum norm norm) {
    outliers->scale = (norm == LAYERNORM ? dynnorm_scale_layernorm : dynnorm_scale_rmsnorm)(OUTLIER_CHANNELS);
    for (int step = 0; step < OUTLIER_STEPS; step++) {
        for (int channel = 0; channel < OUTLIER_CHANNELS; channel++)
            outliers->x[step][channel] = (float)outlier_sample[channel];
        outliers->x[step][OUTLIER_CHANNELS - 1] = (float)(outlier_sample[OUTLIER_CHANNELS - 1] + 5 * step);
    }
    normalize(outliers, norm);

    const int middle = OUTLIER_POINTS / 2;
    for (int step = 1; step < OUTLIER_STEPS; step++) {
        float x = outliers->x[step][OUTLIER_CHANNELS - 1], y = outliers->y[step][OUTLIER_CHANNELS - 1];
        outliers->point_x[middle + step - 1] = x, outliers->point_x[middle - step] = -x;
        outliers->point_y[middle + step - 1] = y, outliers->point_y[middle - step] = -y;
    }
    for (int curve = 0; curve < CURVES; curve++)
        fit_curve(outliers, (enum curve)curve);
}
