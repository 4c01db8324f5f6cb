/* SPDX-License-Identifier: BSD-2-Clause */
#include "calibration.h"

#include "progress.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

const struct replacement replacements[REPLACEMENTS] = {
    [DYT] = {"DyT", "dyt", CURVE_DYT, RECORDED},
    [DYISRU] = {"DyISRU", "dyisru", CURVE_DYISRU, RECORDED},
    [CENTERED_DYISRU] = {"centered DyISRU", "centered_dyisru", CURVE_DYISRU, CENTERED},
};

/* ---- Work, for the progress bar -----------------------------------------------------------------------------------
 *
 * Its unit is the time that it takes to read all values once and to normalize them. The rest are measured ratios.
 */

static const double deciles_work = 1.7;    /* a pass that counts for the deciles */
static const double loss_work = 0.14;      /* the loss of one width, for all elements */
static const double residuals_work = 5;    /* the last pass */
static const double usual_widths = 18;     /* that the first pass of a fit asks for */
static const double usual_fit_passes = 13; /* after the first */

/* The part of the elements that belong to a set. */
static double share(const struct calibration *calibration, int set) {
    return (double)calibration->sets[set].deciles[RECORDED]->count / (double)calibration->stream.file.count;
}

/* ---- Deciles ----------------------------------------------------------------------------------------------------- */

typedef void add_function(struct deciles *deciles, const float *x, size_t count);

static void add_all(struct calibration *calibration, add_function *add, double work_after) {
    progress_pass(deciles_work, work_after);
    stream_begin(&calibration->stream);
    while (stream_next(&calibration->stream))
        for (int set = 0; set < SETS; set++)
            for (int input = 0; input < INPUTS; input++) {
                const struct part *part = &calibration->stream.sets[set];
                add(calibration->sets[set].deciles[input], part->inputs[input], part->count);
            }
}

static void find_deciles(struct calibration *calibration) {
    const double work_after =
        1 + usual_fit_passes + (usual_widths + usual_fit_passes) * REPLACEMENTS * loss_work + residuals_work;
    for (int set = 0; set < SETS; set++)
        for (int input = 0; input < INPUTS; input++) {
            calibration->sets[set].deciles[input] = allocate(1, sizeof(struct deciles));
            deciles_begin(calibration->sets[set].deciles[input]);
        }
    add_all(calibration, deciles_add_first, deciles_work + work_after);
    for (int set = 0; set < SETS; set++)
        for (int input = 0; input < INPUTS; input++)
            deciles_between(calibration->sets[set].deciles[input]);
    add_all(calibration, deciles_add_second, work_after);
    for (int set = 0; set < SETS; set++) {
        for (int input = 0; input < INPUTS; input++)
            deciles_finish(calibration->sets[set].deciles[input]);
        calibration->sets[set].fitted =
            calibration->sets[set].wanted && calibration->sets[set].deciles[RECORDED]->largest > 0;
    }
}

/* ---- Fits -------------------------------------------------------------------------------------------------------- */

/* From here on x is multiplied by a power of 2 that brings its largest value near 1. No digit of x changes, and the
 * gradients stay within the range of float. */
static void choose_unit(struct calibration *calibration) {
    int exponent;
    frexp((double)calibration->sets[ALL].deciles[RECORDED]->largest, &exponent);
    exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
    calibration->stream.unit = (float)ldexp(1, -exponent);
}

/* An |x| that all but a tenth of the elements exceed. A curve that is flat at all of those, a fraction f = 0.9 of the
 * elements, has a loss of at least the number of elements times f s^2 - 2 s, because sum(n^2) <= elements and
 * sum(|n|) <= sqrt(elements sum(n^2)). Without any curve the loss is sum(n^2), which is lower if s > 2.7. So such a
 * curve is not the best one, unless weights make it so. The same holds for |x - mean(x)|. */
static float small(const struct calibration *calibration, int set, enum input input) {
    const struct deciles *deciles = calibration->sets[set].deciles[input];
    return set == ALL && calibration->scale > 2.7f ? fmaxf(deciles->borders[0], deciles->smallest) : deciles->smallest;
}

/* If x - mean(x) is 0 everywhere, or underflows, the least float stands for its range. */
static void begin_fit(const struct calibration *calibration, struct fit *fit, int set,
                      const struct replacement *replacement) {
    const struct deciles *deciles = calibration->sets[set].deciles[replacement->input];
    const float unit = calibration->stream.unit, largest = fmaxf(deciles->largest, FLT_TRUE_MIN);
    fit_begin(fit, replacement->curve, calibration->scale, fmaxf(fminf(deciles->smallest, largest) * unit, FLT_MIN),
              fmaxf(fminf(small(calibration, set, replacement->input), largest) * unit, FLT_MIN),
              fmaxf(largest * unit, FLT_MIN));
}

/* What is left of a fit when it has taken some passes, the first one included. */
static double work_of_fit_after(const struct calibration *calibration, int set, int passes) {
    return loss_work * share(calibration, set) * fmax(usual_fit_passes - passes, 0);
}

/* All fits run side by side, so that each reading of the file serves all of them. */
static void fit_curves(struct calibration *calibration, struct fit fits[SETS][REPLACEMENTS], float *scratch) {
    struct stream *stream = &calibration->stream;
    int unfinished[SETS][REPLACEMENTS] = {{0}}, left = 0;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; calibration->sets[set].fitted && i < REPLACEMENTS; i++) {
            begin_fit(calibration, &fits[set][i], set, &replacements[i]);
            unfinished[set][i] = 1;
            left++;
        }
    for (int passes = 0; left > 0; passes++) {
        double work = 1, work_after = fmax(usual_fit_passes - passes, 0) + residuals_work;
        for (int set = 0; set < SETS; set++)
            for (int i = 0; i < REPLACEMENTS; i++)
                if (unfinished[set][i]) {
                    work += loss_work * share(calibration, set) * (double)fits[set][i].asked;
                    work_after += work_of_fit_after(calibration, set, passes);
                }
        progress_pass(work, work_after);
        stream_begin(stream);
        while (stream_next(stream))
            for (int set = 0; set < SETS; set++)
                for (int i = 0; i < REPLACEMENTS; i++)
                    if (unfinished[set][i] && stream->sets[set].count > 0)
                        fit_add(&fits[set][i], &stream->sets[set].points[replacements[i].input], scratch);
        for (int set = 0; set < SETS; set++)
            for (int i = 0; i < REPLACEMENTS; i++)
                if (unfinished[set][i] && !fit_next(&fits[set][i])) {
                    unfinished[set][i] = 0;
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

/* Counts the tokens whose mean is larger than their deviation: whose squares add up to more than twice the squares of
 * x - mean(x). */
static uint64_t count_far_off(const struct part *part) {
    const struct points *points = &part->points[RECORDED];
    uint64_t count = 0;
    for (size_t token = 0; token < points->tokens; token++) {
        double squares[INPUTS] = {0};
        for (int input = 0; input < INPUTS; input++)
            for (size_t i = token * points->channels; i < (token + 1) * points->channels; i++)
                squares[input] += (double)part->inputs[input][i] * (double)part->inputs[input][i];
        count += squares[RECORDED] > 2 * squares[CENTERED];
    }
    return count;
}

/* For each element of a part: its residual, and its decile. */
struct scratch {
    float *values;
    unsigned char *deciles;
};

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

static void select_points(struct calibration *calibration, int set, struct selection *selection) {
    const struct part *part = &calibration->stream.sets[set];
    for (size_t i = 0; i < part->count; i++) {
        size_t plotted = calibration->sets[set].plotted;
        if (select_point(selection, calibration->sets[set].deciles[RECORDED]->count) && plotted < PLOTTED) {
            for (int input = 0; input < INPUTS; input++)
                calibration->sets[set].inputs[input][plotted] = part->inputs[input][i];
            calibration->sets[set].normalized[plotted] = part->normalized[i];
            calibration->sets[set].plotted++;
        }
    }
}

/* Adds the current part of a set to the sums by the deciles of one input. */
static void add_part(struct calibration *calibration, int set, int input, const struct fit fits[REPLACEMENTS],
                     struct scratch *scratch) {
    const struct part *part = &calibration->stream.sets[set];
    const struct points *points = &part->points[input];
    struct spread *spreads = calibration->sets[set].spreads[input];
    for (size_t i = 0; i < part->count; i++) {
        scratch->deciles[i] = (unsigned char)decile_of(calibration->sets[set].deciles[input], part->inputs[input][i]);
        add_to_spread(&spreads[scratch->deciles[i]], (double)points->y[i]);
        add_to_spread(&spreads[TOTAL], (double)points->y[i]);
    }
    for (int i = 0; i < REPLACEMENTS; i++) {
        const enum curve curve = replacements[i].curve;
        struct residuals *residuals = calibration->sets[set].fits[i].residuals;
        if (replacements[i].input != (enum input)input)
            continue;
        curve_residuals(scratch->values, curve, curve_parameter(curve, fits[i].log_width), calibration->scale, points);
        for (size_t k = 0; k < part->count; k++) {
            add_to_residuals(&residuals[scratch->deciles[k]], (double)scratch->values[k]);
            add_to_residuals(&residuals[TOTAL], (double)scratch->values[k]);
        }
    }
}

static void measure(struct calibration *calibration, struct fit fits[SETS][REPLACEMENTS], struct scratch *scratch) {
    struct stream *stream = &calibration->stream;
    struct selection selections[SETS] = {{0, 0, 0}};
    progress_pass(residuals_work, 0);
    stream_begin(stream);
    while (stream_next(stream)) {
        calibration->far_off_tokens += count_far_off(&stream->sets[ALL]);
        for (int set = 0; set < SETS; set++) {
            if (!calibration->sets[set].fitted || stream->sets[set].count == 0)
                continue;
            select_points(calibration, set, &selections[set]);
            for (int input = 0; input < INPUTS; input++)
                add_part(calibration, set, input, fits[set], scratch);
        }
    }
    progress_remove();
}

void calibrate(struct calibration *calibration) {
    struct stream *stream = &calibration->stream;
    const size_t values = stream->chunk_tokens * stream->channels;
    struct scratch scratch = {allocate(values, sizeof *scratch.values), allocate(values, sizeof *scratch.deciles)};
    struct fit(*fits)[REPLACEMENTS] = allocate(SETS, sizeof *fits);

    stream->unit = 1;
    calibration->scale =
        (stream->norm == LAYERNORM ? dynnorm_scale_layernorm : dynnorm_scale_rmsnorm)(stream->channels);
    find_deciles(calibration);
    choose_unit(calibration);
    fit_curves(calibration, fits, scratch.values);
    measure(calibration, fits, &scratch);

    const double unit = (double)stream->unit;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < REPLACEMENTS; i++) {
            const enum curve curve = replacements[i].curve;
            double parameter = (double)curve_parameter(curve, fits[set][i].log_width);
            calibration->sets[set].fits[i].best = parameter * (curve == CURVE_DYT ? unit : 1 / (unit * unit));
            calibration->sets[set].fits[i].edge = fits[set][i].edge;
            calibration->sets[set].fits[i].constant = fits[set][i].constant;
        }
    free(fits);
    free(scratch.values);
    free(scratch.deciles);
}

void calibration_free(struct calibration *calibration) {
    for (int set = 0; set < SETS; set++)
        for (int input = 0; input < INPUTS; input++)
            free(calibration->sets[set].deciles[input]);
    stream_free(&calibration->stream);
}
