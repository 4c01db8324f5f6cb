/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The alpha and the beta that make DyT and DyISRU stand in best for a norm, on all elements and on outliers, and what
 * is then left over.
 *
 * The file is read several times: twice for the deciles of |x|, some ten times for the fits, once for what is left.
 */
#ifndef DYNNORM_CALIBRATE_CALIBRATION_H
#define DYNNORM_CALIBRATE_CALIBRATION_H

#include "deciles.h"
#include "stream.h"

/* The y of some elements. Their spread is computed from their distances to the first one, for its digits' sake. */
struct spread {
    uint64_t count;
    double first;
    double sum;
    double squares;
};

/* What a curve leaves of them. */
struct residuals {
    double sum; /* of the absolute values */
    double largest;
    double squares;
};

enum {
    TOTAL = DECILES, /* comes after the deciles */
    PLOTTED = 3000   /* points at most */
};

struct fitted {
    double best;
    int edge; /* not 0: there is no best one, the fit gets better towards an end, as in struct fit */
    int constant;
    struct residuals residuals[DECILES + 1];
};

struct calibration {
    struct stream stream;
    float scale;
    uint64_t far_off_tokens; /* whose mean is larger than their deviation */
    struct {
        int wanted;
        int fitted; /* wanted, and there are elements other than 0 */
        struct deciles *deciles;
        struct spread spreads[DECILES + 1];
        struct fitted curves[CURVES];

        /* Some of the points, for a plot. */
        size_t plotted;
        float x[PLOTTED];
        float normalized[PLOTTED];
    } sets[SETS];
};

/* For a stream that is allocated, and the sets that are wanted. */
void calibrate(struct calibration *calibration);
void calibration_free(struct calibration *calibration);

/* 1 - the residuals' squares / those of y - mean(y); NaN where all y are the same. */
double r_squared(const struct spread *spread, const struct residuals *residuals);

/* Whether a curve is of next to no use in place of the norm: its R^2 is below 0.1. */
int is_poor(const struct spread *spread, const struct residuals *residuals);

#endif
