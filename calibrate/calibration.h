/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Finds the alpha and the betas with which DyT, DyISRU and the centered DyISRU replace a norm best, on all elements and
 * on outliers, and measures the residuals that remain.
 *
 * The file is read several times: twice for the deciles of |x|, about fifteen times for the fits, once for the
 * residuals.
 */
#ifndef DYNNORM_CALIBRATE_CALIBRATION_H
#define DYNNORM_CALIBRATE_CALIBRATION_H

#include "deciles.h"
#include "stream.h"

#include <stddef.h>
#include <stdint.h>

/* What can replace a norm: a curve, and what it is applied to. */
enum { DYT, DYISRU, CENTERED_DYISRU, REPLACEMENTS };

struct replacement {
    const char *name; /* as in "DyISRU" */
    const char *key;  /* as in "dyisru" */
    enum curve curve;
    enum input input;
};

extern const struct replacement replacements[REPLACEMENTS];

/* The outputs y of some elements. Their variance is computed from the distances to the first one, which keeps more
 * digits than the values themselves. */
struct spread {
    uint64_t count;
    double first;
    double sum;
    double squares;
};

/* What remains of those y when the values of a replacement are subtracted. */
struct residuals {
    double sum; /* sum of the absolute values */
    double largest;
    double squares;
};

enum {
    TOTAL = DECILES, /* index of the sums over all deciles */
    PLOTTED = 3000   /* the most points in a plot */
};

struct fitted {
    double best;
    int edge; /* not 0 if there is no best parameter because the fit gets better towards one end, as in struct fit */
    int constant;
    struct residuals residuals[DECILES + 1];
};

struct calibration {
    struct stream stream;
    float scale;
    uint64_t far_off_tokens; /* tokens whose mean is larger than their deviation */
    struct {
        int wanted;
        int fitted; /* set if wanted is, and some element is not 0 */
        struct deciles *deciles[INPUTS];
        struct spread spreads[INPUTS][DECILES + 1]; /* by the deciles of that input */
        struct fitted fits[REPLACEMENTS];           /* their residuals by the deciles of the replacement's input */

        /* A sample of the points, for a plot. */
        size_t plotted;
        float inputs[INPUTS][PLOTTED];
        float normalized[PLOTTED];
    } sets[SETS];
};

/* Before this call, stream_allocate must have been called and the wanted sets must have been chosen. */
void calibrate(struct calibration *calibration);
void calibration_free(struct calibration *calibration);

/* 1 - sum of the squared residuals / sum of (y - mean(y))^2. NaN if all y are equal. */
double r_squared(const struct spread *spread, const struct residuals *residuals);

/* Whether a replacement for the norm is nearly useless: its R^2 is below 0.1. */
int is_poor(const struct spread *spread, const struct residuals *residuals);

#endif
