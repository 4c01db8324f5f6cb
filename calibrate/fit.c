/* SPDX-License-Identifier: BSD-2-Clause */
#include "fit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const curve_names[CURVES] = {"DyT", "DyISRU"};
const char *const parameter_names[CURVES] = {"alpha", "beta"};

static void require_ok(dynnorm_status status) {
    if (status != DYNNORM_OK) {
        fprintf(stderr, "fit: %s\n", dynnorm_status_string(status));
        exit(EXIT_FAILURE);
    }
}

/* ---- The curves -------------------------------------------------------------------------------------------------- */

/* d log(parameter) / d log(width), since alpha = 1 / width and beta = width^2. */
static double exponent(enum curve curve) {
    return curve == CURVE_DYT ? -1 : 2;
}

float curve_parameter(enum curve curve, double log_width) {
    double parameter = exp(exponent(curve) * log_width);
    return (float)fmin(fmax(parameter, (double)FLT_MIN), (double)FLT_MAX);
}

void curve_residuals(float *residuals, enum curve curve, float parameter, float scale, const struct points *points) {
    const struct points *p = points;
    if (curve == CURVE_DYT)
        require_ok(
            dynnorm_dyt_forward_f32(residuals, p->x, p->weight, p->bias, parameter, scale, p->tokens, p->channels));
    else
        require_ok(
            dynnorm_dyisru_forward_f32(residuals, p->x, p->weight, p->bias, parameter, scale, p->tokens, p->channels));
    for (size_t i = 0; i < p->tokens * p->channels; i++)
        residuals[i] -= p->y[i];
}

/* The sum of residual times the derivative of the curve by its parameter: half the derivative of the squared residuals.
 */
static double parameter_gradient(enum curve curve, float parameter, float scale, const struct points *points,
                                 const float *residuals) {
    const struct points *p = points;
    float gradient;
    if (curve == CURVE_DYT)
        require_ok(dynnorm_dyt_backward_f32(NULL, NULL, NULL, &gradient, residuals, p->x, p->weight, parameter, scale,
                                            p->tokens, p->channels));
    else
        require_ok(dynnorm_dyisru_backward_f32(NULL, NULL, NULL, &gradient, residuals, p->x, p->weight, parameter,
                                               scale, p->tokens, p->channels));
    return (double)gradient;
}

/* Adds into four sums at a time, so that no addition has to wait for the one before it. */
static double sum_of_squares(const float *values, size_t count) {
    double sums[4] = {0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++)
            sums[k] += (double)values[i + k] * (double)values[i + k];
    for (; i < count; i++)
        sums[0] += (double)values[i] * (double)values[i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

/* ---- The fit ----------------------------------------------------------------------------------------------------- */

/* Asks for the loss at widths that lie a factor of 2 apart, from first to the first one that is not below last. */
static void ask(struct fit *fit, double first, double last) {
    double log_width = first;
    for (int i = 1; fit->known + fit->asked < FIT_WIDTHS; i++) {
        fit->losses[fit->known + fit->asked++] = (struct loss){.log_width = log_width};
        if (log_width >= last)
            break;
        log_width = first + i * log(2);
    }
}

/* The widths that can matter. If the smallest |x| is 16 widths, both curves are flat to within a part in 500. If the
 * largest |x| is 1/32 of the width, both are straight lines, s x / width, to within a part in 2000, and the loss is a
 * parabola in 1 / width: if it does not fall there towards greater widths, it never does. If it does fall, the minimum
 * lies below a width of 2^24 s largest. The deviation of a row of floats is either 0 or at least 2^-24 of its largest
 * value, and the slope of a norm cannot be steeper than that allows. */
void fit_begin(struct fit *fit, enum curve curve, float scale, float smallest, float small, float largest) {
    *fit = (struct fit){.curve = curve, .scale = scale};
    fit->narrowest = log((double)smallest / 16);
    fit->widest = log((double)largest * (double)scale * 0x1p24);
    ask(fit, log((double)small / 16), log((double)largest * 32));
}

void fit_add(struct fit *fit, const struct points *points, float *scratch) {
    for (size_t i = fit->known; i < fit->known + fit->asked; i++) {
        struct loss *loss = &fit->losses[i];
        float parameter = curve_parameter(fit->curve, loss->log_width);
        curve_residuals(scratch, fit->curve, parameter, fit->scale, points);
        loss->squares += sum_of_squares(scratch, points->tokens * points->channels);
        loss->slope += 2 * parameter_gradient(fit->curve, parameter, fit->scale, points, scratch) * (double)parameter *
                       exponent(fit->curve);
    }
}

static int finish(struct fit *fit, double log_width, int edge) {
    fit->log_width = log_width;
    fit->edge = edge;
    return 0;
}

/* The lowest value of the cubic through two losses with their slopes, looked up at every sixteenth of the distance. */
static double lowest_between(const struct loss *low, const struct loss *high) {
    double distance = high->log_width - low->log_width, lowest = low->squares;
    for (int i = 1; i <= 16; i++) {
        double t = i / 16.0, rest = 1 - t;
        double value = rest * rest * ((1 + 2 * t) * low->squares + t * distance * low->slope) +
                       t * t * ((1 + 2 * rest) * high->squares - rest * distance * high->slope);
        if (value < lowest) /* fmin here makes gcc 12 for AArch64 crash */
            lowest = value;
    }
    return lowest;
}

/* Chooses between the two edges and the minima. There is a minimum wherever the loss first falls and then rises. */
static int enclose(struct fit *fit) {
    const struct loss *first = &fit->losses[0], *last = &fit->losses[fit->known - 1];
    int edge = first->squares <= last->squares ? -1 : 1;
    double lowest = fmin(first->squares, last->squares);
    fit->constant = 1;
    for (const struct loss *loss = first; loss <= last; loss++)
        fit->constant &= loss->slope == 0 && loss->squares == first->squares;
    for (const struct loss *loss = first; loss < last; loss++)
        if (loss[0].slope < 0 && loss[1].slope >= 0 && lowest_between(&loss[0], &loss[1]) < lowest) {
            lowest = lowest_between(&loss[0], &loss[1]);
            fit->low = loss[0];
            fit->high = loss[1];
            edge = 0;
        }
    if (edge != 0)
        return finish(fit, (edge < 0 ? first : last)->log_width, edge);
    fit->enclosed = 1;
    return 1;
}

/* Replaces one end of the enclosure by a new loss. */
static void narrow(struct fit *fit, const struct loss *loss) {
    int moved = loss->slope < 0 ? -1 : 1;
    /* Illinois: the slope of an end that stays twice counts half, so that this end moves too. */
    if (moved == fit->last_moved)
        *(moved < 0 ? &fit->high.slope : &fit->low.slope) /= 2;
    *(moved < 0 ? &fit->low : &fit->high) = *loss;
    fit->last_moved = moved;
}

int fit_next(struct fit *fit) {
    /* The error of the logarithm of the width is at most half of this; that of alpha or beta is then a unit or two in
     * the last place of a float. */
    const double tolerance = 0x1p-23;

    fit->known += fit->asked;
    fit->asked = 0;
    if (!fit->enclosed) {
        const struct loss *last = &fit->losses[fit->known - 1];
        if (last->slope < 0 && last->log_width < fit->widest && fit->known < FIT_WIDTHS) {
            ask(fit, last->log_width + log(2), fit->widest);
            return 1;
        }
        if (!enclose(fit)) {
            if (fit->edge > 0 || fit->losses[0].log_width <= fit->narrowest)
                return 0;
            /* Search again, from the narrowest width on. */
            fit->known = 0;
            ask(fit, fit->narrowest, last->log_width);
            return 1;
        }
    } else {
        narrow(fit, &fit->losses[0]);
    }
    double low = fit->low.log_width, high = fit->high.log_width;
    double next = (low + high) / 2;
    if (high - low <= tolerance)
        return finish(fit, next, 0);
    if (++fit->steps % 3 != 0) {
        next = (low * fit->high.slope - high * fit->low.slope) / (fit->high.slope - fit->low.slope);
        /* Stay off the ends by as much as makes a difference, so that the far end moves there. */
        next = fmin(fmax(next, low + tolerance / 2), high - tolerance / 2);
    }
    fit->known = 0;
    ask(fit, next, next);
    return 1;
}
