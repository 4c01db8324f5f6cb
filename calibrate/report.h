/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shows the results of a calibration: as text, as JSON, as a plot.
 */
#ifndef DYNNORM_CALIBRATE_REPORT_H
#define DYNNORM_CALIBRATE_REPORT_H

#include "calibration.h"
#include "gnuplot.h"

void print_text(const struct calibration *calibration);
void print_json(const struct calibration *calibration);

/* Draws the data, the curves and the residuals, before weight and bias. */
enum gnuplot_outcome draw_plot(const struct calibration *calibration, const char *path);

#endif
