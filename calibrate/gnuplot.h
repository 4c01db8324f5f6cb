/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Draws figures with gnuplot (http://www.gnuplot.info), which need not be installed until a figure is drawn:
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

/* Begins a script with the look that all figures share. Returns NULL and sets errno if no temporary file can be
 * created. */
FILE *gnuplot_begin(void);

/* Whether a file of this name is one that can be drawn: .svg or .png. */
int gnuplot_draws(const char *path);

/* Finds out whether gnuplot can draw into such a file, and the file can be written, but leaves the file as it is. So a
 * program can do this before long work. If not, stderr has been told why, except that gnuplot is missing. */
enum gnuplot_outcome gnuplot_try(const char *path);

/* Draws a script into such a file, of the given size in pixels. The script can be drawn again. If gnuplot fails, stderr
 * has been told why. */
enum gnuplot_outcome gnuplot_draw(FILE *script, const char *path, int width, int height);

/* Whether a byte of a text is an ASCII control character. */
int is_control(char character);

/* Writes text in gnuplot's quotes. Control characters become '?', because the end of a line would end the quotes and
 * gnuplot would run the rest as commands. */
void gnuplot_quote(FILE *script, const char *text);

#endif
