/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shows what a calibration has found.
 */
#ifndef DYNNORM_CALIBRATE_REPORT_H
#define DYNNORM_CALIBRATE_REPORT_H

#include "calibration.h"
#include "gnuplot.h"

void print_text(const struct calibration *calibration);
void print_json(const struct calibration *calibration);

/* Data, curves and residuals, before weight and bias. */
enum gnuplot_outcome draw_plot(const struct calibration *calibration, const char *path);

#endif
