/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Fits one parameter by least squares: the alpha of DyT, y = s tanh(alpha x), or the beta of DyISRU,
 * y = s x / sqrt(beta + x^2), that comes nearest to what a norm made of x.
 *
 * A fit asks for the loss at some parameters. It then has to be shown all of the points, in any number of parts, before
 * it asks again. So the points need not fit in memory:
 *
 *     struct fit fit;
 *     fit_begin(&fit, CURVE_DYT, scale, smallest, small, largest);
 *     do {
 *         for (each part of the points)
 *             fit_add(&fit, &points, scratch);
 *     } while (fit_next(&fit));
 *     curve_parameter(fit.curve, fit.log_width);
 *
 * Values and gradients are those of the library's own forward and backward passes.
 *
 * Why it finds the right minimum. Both curves have one width, the |x| at which they bend: 1 / alpha and sqrt(beta). The
 * loss and its slope are first computed at widths a factor of 2 apart, over all widths that can matter: from where
 * nearly all points lie far beyond the bend to where the curve is a straight line at all of them. As a function of
 * log(width) the loss is a sum of copies of two smooth functions, shifted by the log|x| of the points, and several such
 * steps wide. So the cubic through two neighbours with their slopes tells how low a minimum lies between them, and the
 * lowest of them is chosen. From there on only the zero of the slope is sought, between two ends that always enclose
 * it, by the Illinois form of the regula falsi, where every third step is a bisection.
 */
#ifndef DYNNORM_CALIBRATE_FIT_H
#define DYNNORM_CALIBRATE_FIT_H

#include <dynnorm.h>

#include <stddef.h>

enum curve { CURVE_DYT, CURVE_DYISRU, CURVES };

extern const char *const curve_names[CURVES];     /* "DyT", "DyISRU" */
extern const char *const parameter_names[CURVES]; /* "alpha", "beta" */

/* The alpha or beta of a curve of this width, as a finite float. */
float curve_parameter(enum curve curve, double log_width);

/* All points or a part of them. The fit brings weight * curve(x) + bias as near to y as it can. */
struct points {
    size_t tokens;
    size_t channels;
    const float *x;      /* [tokens x channels] */
    const float *y;      /* [tokens x channels] */
    const float *weight; /* [channels], or NULL */
    const float *bias;   /* [channels], or NULL */
};

/* Computes weight * curve(x) + bias - y for all points: [tokens x channels]. */
void curve_residuals(float *residuals, enum curve curve, float parameter, float scale, const struct points *points);

/* The loss at one width is the sum of the squared residuals. slope is its derivative by log(width). */
struct loss {
    double log_width;
    double squares;
    double slope;
};

enum { FIT_WIDTHS = 384 }; /* float spans fewer powers of 2 */

struct fit {
    enum curve curve;
    float scale;

    /* The first losses[known] are computed; the next losses[asked] are asked for. */
    size_t known;
    size_t asked;
    struct loss losses[FIT_WIDTHS];
    double narrowest; /* logarithms of the narrowest and the widest width that may be asked for */
    double widest;

    /* Set once the lowest minimum is found: two widths that enclose it. */
    int enclosed;
    int steps;
    int last_moved; /* the end that moved last: -1 is low, 1 is high */
    struct loss low;
    struct loss high;

    /* The result: the best width; or, if the loss falls towards an edge of the range, that edge, -1 or 1. */
    double log_width;
    int edge;
    int constant; /* the loss is the same everywhere; edge is set too, but no width is better than another */
};

/* For points whose |x| lie between smallest and largest, except zeros; scale is s. The search begins at the width that
 * suits small, and goes on to narrower ones only if needed. That saves time if most |x| are beyond small; small =
 * smallest is always correct. */
void fit_begin(struct fit *fit, enum curve curve, float scale, float smallest, float small, float largest);

/* Adds some of the points to the losses that are asked for. scratch is as long as their x. */
void fit_add(struct fit *fit, const struct points *points, float *scratch);

/* Call this when all points have been added. Returns whether more losses are asked for; if not, the result is ready. */
int fit_next(struct fit *fit);

#endif
