/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Figures are drawn by gnuplot (http://www.gnuplot.info), which is looked for when a figure is wanted:
 *
 *     FILE *script = gnuplot_begin();
 *     fprintf(script, "plot sin(x)\n");
 *     gnuplot_draw(script, "sine.svg", 640, 480);
 *     fclose(script);
 */
#ifndef DYNNORM_CALIBRATE_GNUPLOT_H
#define DYNNORM_CALIBRATE_GNUPLOT_H

#include <stdio.h>

enum gnuplot_outcome { GNUPLOT_DREW, GNUPLOT_MISSING, GNUPLOT_FAILED };

/* A script to write to, with the look that all figures share; NULL, and errno, where no temporary file can be had. */
FILE *gnuplot_begin(void);

/* Draws a script into a file of so many pixels: PNG if its name ends in .png, else SVG. The script can be drawn again.
 * Where it failed, why has been said on stderr. */
enum gnuplot_outcome gnuplot_draw(FILE *script, const char *path, int width, int height);

/* Control characters of ASCII, in bytes of a text. */
int is_control(char character);

/* Text as gnuplot quotes it. Control characters become '?': the end of a line would end the quotes, and what follows
 * would be commands. */
void gnuplot_quote(FILE *script, const char *text);

#endif
