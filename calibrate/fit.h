/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Least squares of one parameter: the alpha of DyT, y = s tanh(alpha x), or the beta of DyISRU,
 * y = s x / sqrt(beta + x^2), that comes nearest to what a norm made of x.
 *
 * A fit asks for the loss at some parameters, and is shown all of the points, in as many parts as there are, before it
 * asks again. So the points need not fit in memory:
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

enum curve { CURVE_DYT, CURVE_DYISRU, CURVES };

extern const char *const curve_names[CURVES];     /* "DyT", "DyISRU" */
extern const char *const parameter_names[CURVES]; /* "alpha", "beta" */

/* The alpha or beta of a curve of this width; a finite float. */
float curve_parameter(enum curve curve, double log_width);

/* Points, or a part of them: the target y is what weight * curve(x) + bias should come to. */
struct points {
    size_t tokens;
    size_t channels;
    const float *x;      /* [tokens x channels] */
    const float *y;      /* [tokens x channels] */
    const float *weight; /* [channels], or NULL */
    const float *bias;   /* [channels], or NULL */
};

/* The curve at the points, minus their y: [tokens x channels]. */
void curve_residuals(float *residuals, enum curve curve, float parameter, float scale, const struct points *points);

/* The loss at one width: the residuals' squares, summed, and the derivative of that by log(width). */
struct loss {
    double log_width;
    double squares;
    double slope;
};

enum { FIT_WIDTHS = 384 }; /* more than a float has powers of 2 */

struct fit {
    enum curve curve;
    float scale;

    /* What is known of the loss, and, behind it, what is asked for. */
    size_t known;
    size_t asked;
    struct loss losses[FIT_WIDTHS];
    double narrowest; /* the logs of how far losses[] may reach */
    double widest;

    /* Once the lowest of them is found: two widths that enclose it. */
    int enclosed;
    int steps;
    int last_moved; /* which end: -1 low, 1 high */
    struct loss low;
    struct loss high;

    /* The result: the best width. Or, where the loss falls towards an edge of the range, that edge, -1 or 1. */
    double log_width;
    int edge;
    int constant; /* the loss is the same everywhere: at an edge too, but no better there */
};

/* For points whose |x|, apart from zeros, lie between smallest and largest; scale is s. Where most of them are beyond
 * small, for which smallest always does, the search begins there and goes on only if that is not narrow enough. */
void fit_begin(struct fit *fit, enum curve curve, float scale, float smallest, float small, float largest);

/* Adds some of the points to the losses that are asked for. scratch: as long as their x. */
void fit_add(struct fit *fit, const struct points *points, float *scratch);

/* All points have been added. Whether more is asked for; if not, the result is there. */
int fit_next(struct fit *fit);

#endif
