/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The fit of one parameter: points that lie on a curve give back its parameter; and whatever the points, no width of a
 * fine grid has a lower loss than the one found.
 */
#include "fit.h"

#include "random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { POINTS = 200, PARTS = 7 };

struct sample {
    float x[POINTS];
    float y[POINTS];
};

/* In unequal parts, the first one empty; from the whole range of widths, or from the wide part of it. */
static struct fit run_fit(enum curve curve, float scale, const struct sample *sample, int begin_wide) {
    float smallest = INFINITY, largest = 0;
    for (int i = 0; i < POINTS; i++) {
        float size = fabsf(sample->x[i]);
        smallest = size != 0 && size < smallest ? size : smallest;
        largest = size > largest ? size : largest;
    }
    static float scratch[POINTS];
    struct fit fit;
    int rounds = 0;
    fit_begin(&fit, curve, scale, smallest, begin_wide ? largest : smallest, largest);
    do {
        for (int part = 0; part < PARTS; part++) {
            size_t begin = (size_t)(POINTS * part * part / (PARTS * PARTS));
            size_t end = (size_t)(POINTS * (part + 1) * (part + 1) / (PARTS * PARTS));
            struct points points = {
                .tokens = end - begin, .channels = 1, .x = sample->x + begin, .y = sample->y + begin};
            fit_add(&fit, &points, scratch);
        }
        rounds++;
    } while (fit_next(&fit) && rounds < 100);
    if (rounds > 30) /* three for each halving of the ends' distance would be 75 */
        tap_check(0, "%s: %d rounds", curve_names[curve], rounds);
    return fit;
}

static struct loss loss_at(enum curve curve, float scale, const struct sample *sample, double log_width) {
    static float scratch[POINTS];
    struct fit fit = {.curve = curve, .scale = scale, .asked = 1, .losses = {{.log_width = log_width}}};
    fit_add(&fit, &(struct points){.tokens = POINTS, .channels = 1, .x = sample->x, .y = sample->y}, scratch);
    return fit.losses[0];
}

/* Points on a curve, of sizes over five decades. Values are right to 8 u |y|, those of the data as those of the fit. To
 * first order that moves log(parameter), by which y has the derivative d, by sum(|d| 16 u |y|) / sum(d^2) at most; two
 * u more are the fit's own error of the width, four of its square. */
static void test_curve(enum curve curve, struct random *random, float parameter) {
    static struct sample sample;
    const float scale = 8;
    const float width = curve == CURVE_DYT ? 1 / parameter : sqrtf(parameter);
    for (int i = 0; i < POINTS; i++)
        sample.x[i] = width * (i % 2 ? 1.0f : -1.0f) * (float)pow(10, random_between(random, -3, 2));
    static const float zeros[POINTS];
    curve_residuals(sample.y, curve, parameter, scale,
                    &(struct points){.tokens = POINTS, .channels = 1, .x = sample.x, .y = zeros});
    struct fit fit = run_fit(curve, scale, &sample, 1);
    double found = (double)curve_parameter(curve, fit.log_width);

    double moved = 0, squares = 0;
    for (int i = 0; i < POINTS; i++) {
        double x = (double)sample.x[i], y = (double)sample.y[i], t = y / (double)scale;
        double derivative =
            curve == CURVE_DYT ? (double)parameter * x * (double)scale * (1 - t * t) : -y / 2 * (1 - t * t);
        moved += fabs(derivative) * 16 * fabs(y);
        squares += derivative * derivative;
    }
    double error = fabs(found / (double)parameter - 1) * 0x1p24, tolerance = moved / squares + 4;
    tap_check(fit.edge == 0 && error <= tolerance, "%s: %s = %.9g found as %.9g: %.1f u, tolerance %.1f u",
              curve_names[curve], parameter_names[curve], (double)parameter, found, error, tolerance);
}

/* Points of a few sizes that lie on no curve: losses with hills, several minima, or none. */
static void test_any_points(enum curve curve, struct random *random, int number) {
    static struct sample sample;
    const float scale = 3;
    size_t clusters = 1 + random_below(random, 4);
    double log_size[4], slope[4];
    for (size_t k = 0; k < clusters; k++) {
        log_size[k] = random_between(random, -6, 6);
        slope[k] = random_between(random, -2, 3.5);
    }
    for (int i = 0; i < POINTS; i++) {
        size_t k = random_below(random, clusters);
        double sign = i % 2 ? 1 : -1;
        sample.x[i] = (float)(sign * pow(10, log_size[k]) * random_between(random, 0.9, 1.1));
        sample.y[i] = (float)(sign * slope[k] + 0.1 * (double)random_normal(random));
    }
    struct fit fit = run_fit(curve, scale, &sample, 0);
    double found = loss_at(curve, scale, &sample, fit.log_width).squares;
    double lowest = (double)INFINITY, lowest_at = 0;
    for (double log_width = -18; log_width <= 36; log_width += 0x1p-3) {
        double squares = loss_at(curve, scale, &sample, log_width).squares;
        if (squares < lowest)
            lowest = squares, lowest_at = log_width;
    }
    /* The residuals' norm at an edge: there the curve is a part in 500 of the scale from its limit, in each point. */
    double slack = fit.edge == 0 ? 0 : sqrt(POINTS) * (double)scale / 500;
    tap_check(sqrt(found) <= sqrt(lowest) * (1 + 1e-6) + slack,
              "%s: points %d: a loss of %.9g at %.4f, edge %d; on the grid %.9g at %.4f", curve_names[curve], number,
              found, fit.log_width, fit.edge, lowest, lowest_at);
}

int main(void) {
    const uint64_t seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    struct random random = random_start(seed);
    static const float alphas[] = {1e-18f, 0.05f, 0.5f, 1, 33, 1e18f};
    static const float betas[] = {1e-30f, 1e-5f, 0.5f, 301, 1e6f, 1e30f};
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        test_curve(CURVE_DYT, &random, alphas[i]);
        test_curve(CURVE_DYISRU, &random, betas[i]);
    }
    for (int number = 0; number < 50; number++)
        for (int curve = 0; curve < CURVES; curve++)
            test_any_points((enum curve)curve, &random, number);
    return tap_done();
}
