/* SPDX-License-Identifier: BSD-2-Clause */
#include "calibration.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static size_t size_of(const struct points *points) {
    return points->tokens * points->channels;
}

static void find_deciles(struct calibration *calibration) {
    struct stream *stream = &calibration->stream;
    for (int set = 0; set < SETS; set++) {
        calibration->sets[set].deciles = allocate(1, sizeof(struct deciles));
        deciles_begin(calibration->sets[set].deciles);
    }
    stream_begin(stream, "deciles");
    while (stream_next(stream))
        for (int set = 0; set < SETS; set++)
            deciles_add_first(calibration->sets[set].deciles, stream->sets[set].x, size_of(&stream->sets[set].points));
    for (int set = 0; set < SETS; set++)
        deciles_between(calibration->sets[set].deciles);
    stream_begin(stream, "deciles");
    while (stream_next(stream))
        for (int set = 0; set < SETS; set++)
            deciles_add_second(calibration->sets[set].deciles, stream->sets[set].x, size_of(&stream->sets[set].points));
    for (int set = 0; set < SETS; set++) {
        deciles_finish(calibration->sets[set].deciles);
        calibration->sets[set].fitted = calibration->sets[set].wanted && calibration->sets[set].deciles->largest > 0;
    }
}

/* ---- Fits -------------------------------------------------------------------------------------------------------- */

/* From here on x is multiplied by a power of 2 that brings its largest value near 1. No digit of x changes, and the
 * gradients stay within the range of float. */
static void choose_unit(struct calibration *calibration) {
    int exponent;
    frexp((double)calibration->sets[ALL].deciles->largest, &exponent);
    exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
    calibration->stream.unit = (float)ldexp(1, -exponent);
}

/* An |x| that all but a tenth of the elements exceed. A curve that is flat at all of those, a fraction f = 0.9 of the
 * elements, has a loss of at least the number of elements times f s^2 - 2 s, because sum(n^2) <= elements and
 * sum(|n|) <= sqrt(elements sum(n^2)). Without any curve the loss is sum(n^2), which is lower if s > 2.7. So such a
 * curve is not the best one, unless weights make it so. */
static float small(const struct calibration *calibration, int set) {
    const struct deciles *deciles = calibration->sets[set].deciles;
    return set == ALL && calibration->scale > 2.7f ? fmaxf(deciles->borders[0], deciles->smallest) : deciles->smallest;
}

/* All fits run side by side, so that each reading of the file serves all of them. */
static void fit_curves(struct calibration *calibration, struct fit fits[SETS][CURVES], float *scratch) {
    struct stream *stream = &calibration->stream;
    int unfinished[SETS][CURVES] = {{0}}, left = 0;
    for (int set = 0; set < SETS; set++)
        for (int curve = 0; calibration->sets[set].fitted && curve < CURVES; curve++) {
            const struct deciles *deciles = calibration->sets[set].deciles;
            fit_begin(&fits[set][curve], (enum curve)curve, calibration->scale,
                      fmaxf(deciles->smallest * stream->unit, FLT_MIN),
                      fmaxf(small(calibration, set) * stream->unit, FLT_MIN), deciles->largest * stream->unit);
            unfinished[set][curve] = 1;
            left++;
        }
    while (left > 0) {
        stream_begin(stream, "fits");
        while (stream_next(stream))
            for (int set = 0; set < SETS; set++)
                for (int curve = 0; curve < CURVES; curve++)
                    if (unfinished[set][curve] && size_of(&stream->sets[set].points) > 0)
                        fit_add(&fits[set][curve], &stream->sets[set].points, scratch);
        for (int set = 0; set < SETS; set++)
            for (int curve = 0; curve < CURVES; curve++)
                if (unfinished[set][curve] && !fit_next(&fits[set][curve])) {
                    unfinished[set][curve] = 0;
                    left--;
                }
    }
}

/* ---- What is left over ------------------------------------------------------------------------------------------- */

static void add_to_spread(struct spread *spread, double y) {
    if (spread->count++ == 0)
        spread->first = y;
    double distance = y - spread->first;
    spread->sum += distance;
    spread->squares += distance * distance;
}

static void add_to_residuals(struct residuals *residuals, double residual) {
    residuals->sum += fabs(residual);
    residuals->largest = fmax(residuals->largest, fabs(residual));
    residuals->squares += residual * residual;
}

double r_squared(const struct spread *spread, const struct residuals *residuals) {
    double squares = spread->squares - spread->sum * spread->sum / (double)spread->count;
    return squares > 0 ? 1 - residuals->squares / squares : (double)NAN;
}

int is_poor(const struct spread *spread, const struct residuals *residuals) {
    return r_squared(spread, residuals) < 0.1;
}

static uint64_t count_far_off(const struct points *points) {
    uint64_t count = 0;
    for (size_t token = 0; token < points->tokens; token++) {
        const float *x = points->x + token * points->channels;
        double sum = 0, squares = 0;
        for (size_t i = 0; i < points->channels; i++)
            sum += (double)x[i];
        double mean = sum / (double)points->channels;
        for (size_t i = 0; i < points->channels; i++)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        count += mean * mean > squares / (double)points->channels;
    }
    return count;
}

/* Chooses the points to plot. They are spread evenly, with random distances, so that they do not fall on the same
 * channels again and again. */
struct selection {
    uint64_t seen;
    uint64_t next;
    uint64_t random;
};

static int select_point(struct selection *selection, uint64_t all) {
    if (selection->seen++ < selection->next)
        return 0;
    uint64_t stride = (all - 1) / PLOTTED + 1;
    selection->random = selection->random * 6364136223846793005u + 1442695040888963407u;
    selection->next += 1 + (selection->random >> 33) % (2 * stride - 1);
    return 1;
}

static void measure(struct calibration *calibration, struct fit fits[SETS][CURVES], float *scratch) {
    struct stream *stream = &calibration->stream;
    struct selection selections[SETS] = {{0, 0, 0}};
    stream_begin(stream, "residuals");
    while (stream_next(stream)) {
        calibration->far_off_tokens += count_far_off(&stream->sets[ALL].points);
        for (int set = 0; set < SETS; set++) {
            const struct points *points = &stream->sets[set].points;
            const float *values = stream->sets[set].x;
            const struct deciles *deciles = calibration->sets[set].deciles;
            if (!calibration->sets[set].fitted || size_of(points) == 0)
                continue;
            for (size_t i = 0; i < size_of(points); i++) {
                add_to_spread(&calibration->sets[set].spreads[decile_of(deciles, values[i])], (double)points->y[i]);
                add_to_spread(&calibration->sets[set].spreads[TOTAL], (double)points->y[i]);
                size_t plotted = calibration->sets[set].plotted;
                if (select_point(&selections[set], deciles->count) && plotted < PLOTTED) {
                    calibration->sets[set].x[plotted] = values[i];
                    calibration->sets[set].normalized[plotted] = stream->sets[set].normalized[i];
                    calibration->sets[set].plotted++;
                }
            }
            for (int curve = 0; curve < CURVES; curve++) {
                struct residuals *residuals = calibration->sets[set].curves[curve].residuals;
                float parameter = curve_parameter((enum curve)curve, fits[set][curve].log_width);
                curve_residuals(scratch, (enum curve)curve, parameter, calibration->scale, points);
                for (size_t i = 0; i < size_of(points); i++) {
                    int decile = decile_of(deciles, values[i]);
                    add_to_residuals(&residuals[decile], (double)scratch[i]);
                    add_to_residuals(&residuals[TOTAL], (double)scratch[i]);
                }
            }
        }
    }
}

void calibrate(struct calibration *calibration) {
    struct stream *stream = &calibration->stream;
    float *scratch = allocate(stream->chunk_tokens * stream->channels, sizeof(float));
    struct fit(*fits)[CURVES] = allocate(SETS, sizeof *fits);

    stream->unit = 1;
    calibration->scale =
        (stream->norm == LAYERNORM ? dynnorm_scale_layernorm : dynnorm_scale_rmsnorm)(stream->channels);
    find_deciles(calibration);
    choose_unit(calibration);
    fit_curves(calibration, fits, scratch);
    measure(calibration, fits, scratch);

    const double unit = (double)stream->unit;
    for (int set = 0; set < SETS; set++)
        for (int curve = 0; curve < CURVES; curve++) {
            double parameter = (double)curve_parameter((enum curve)curve, fits[set][curve].log_width);
            calibration->sets[set].curves[curve].best = parameter * (curve == CURVE_DYT ? unit : 1 / (unit * unit));
            calibration->sets[set].curves[curve].edge = fits[set][curve].edge;
            calibration->sets[set].curves[curve].constant = fits[set][curve].constant;
        }
    free(fits);
    free(scratch);
}

void calibration_free(struct calibration *calibration) {
    for (int set = 0; set < SETS; set++)
        free(calibration->sets[set].deciles);
    stream_free(&calibration->stream);
}
