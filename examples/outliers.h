/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The numbers of the outlier experiment: one element of a row is pushed outwards step by step, the row is normalized,
 * and DyT and DyISRU are fitted to what becomes of that element.
 */
#ifndef DYNNORM_OUTLIERS_H
#define DYNNORM_OUTLIERS_H

#include "../calibrate/fit.h"

enum norm { LAYERNORM, RMSNORM, NORMS };

enum {
    OUTLIER_STEPS = 10,                      /* S = 0 to 9 */
    OUTLIER_CHANNELS = 100,                  /* the last channel becomes the outlier */
    OUTLIER_POINTS = 2 * (OUTLIER_STEPS - 1) /* the outliers of S = 1 to 9 and their mirror images (-x, -y) */
};

struct outliers {
    float scale; /* sqrt(99) for LayerNorm, sqrt(100) for RMSNorm */
    float x[OUTLIER_STEPS][OUTLIER_CHANNELS];
    float y[OUTLIER_STEPS][OUTLIER_CHANNELS]; /* the norm of x, with eps 0 */

    /* The points, in ascending order, and the curves fitted to them. */
    float point_x[OUTLIER_POINTS];
    float point_y[OUTLIER_POINTS];
    struct {
        float parameter; /* alpha or beta */
        float residuals[OUTLIER_POINTS];
        double mean_abs_residual;
    } fits[CURVES];
};

void compute_outliers(struct outliers *outliers, enum norm norm);

#endif
