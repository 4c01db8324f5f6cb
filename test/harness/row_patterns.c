/* SPDX-License-Identifier: BSD-2-Clause */
#include "row_patterns.h"

#include <float.h>
#include <math.h>

static double sign(struct random *random) {
    return random_bits(random) >> 63 ? 1 : -1;
}

/* Ordinary values times the magnitude. */
static void scaled(struct random *random, float *row, size_t channels, double magnitude) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(magnitude * (double)random_normal(random));
}

/* Ordinary values, of deviation 1, around a mean of this size. */
static void offset(struct random *random, float *row, size_t channels, double mean) {
    mean *= sign(random);
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(mean + (double)random_normal(random));
}

/* The same at a scale between 2^-90 and 2^90. */
static void offset_scaled(struct random *random, float *row, size_t channels, double mean) {
    offset(random, row, channels, mean);
    int exponent = (int)random_below(random, 181) - 90;
    for (size_t c = 0; c < channels; c++)
        row[c] = ldexpf(row[c], exponent);
}

/* Between -FLT_MAX and FLT_MAX, some of them exactly that. */
static void largest(struct random *random, float *row, size_t channels, double smallest_fraction) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(sign(random) * (double)FLT_MAX *
                         (random_below(random, 4) == 0 ? 1 : random_between(random, smallest_fraction, 1)));
}

/* Small multiples of 2^-149. */
static void smallest(struct random *random, float *row, size_t channels, double multiple) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(0x1p-149 * floor(random_between(random, -multiple, multiple + 1)));
}

static void constant(struct random *random, float *row, size_t channels, double value) {
    (void)random;
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)value;
}

static void constant_random(struct random *random, float *row, size_t channels, double magnitude) {
    constant(random, row, channels, magnitude * (double)random_normal(random));
}

static void zeros_of_both_signs(struct random *random, float *row, size_t channels, double unused) {
    (void)unused;
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)copysign(0, sign(random));
}

static void spike_at(struct random *random, float *row, size_t channels, double spike, size_t place) {
    scaled(random, row, channels, 1);
    row[place] = (float)(sign(random) * spike);
}

static void spike_first(struct random *random, float *row, size_t channels, double spike) {
    spike_at(random, row, channels, spike, 0);
}

static void spike_last(struct random *random, float *row, size_t channels, double spike) {
    spike_at(random, row, channels, spike, channels - 1);
}

static void spike_anywhere(struct random *random, float *row, size_t channels, double spike) {
    spike_at(random, row, channels, spike, random_below(random, channels));
}

/* One ordinary value among tiny ones. These do not change the row's statistics, but their own outputs must be right. */
static void spike_among(struct random *random, float *row, size_t channels, double others) {
    scaled(random, row, channels, others);
    row[random_below(random, channels)] = (float)sign(random);
}

static void periodic(struct random *random, float *row, size_t channels, double period) {
    size_t length = (size_t)period;
    for (size_t c = 0; c < channels; c++)
        row[c] = c < length ? random_normal(random) : row[c - length];
}

static void random_period(struct random *random, float *row, size_t channels, double longest) {
    periodic(random, row, channels, (double)(1 + random_below(random, (size_t)longest)));
}

/* About 10^3 in one half of each group of channels, -10^3 in the other, so that the lanes of a vector differ greatly.
 */
static void alternating(struct random *random, float *row, size_t channels, double group) {
    double lean = sign(random);
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)((c % (size_t)group < (size_t)group / 2 ? 1e3 : -1e3) * lean + (double)random_normal(random));
}

static void exactly_alternating(struct random *random, float *row, size_t channels, double value) {
    double lean = sign(random);
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(c % 2 ? -lean * value : lean * value);
}

static void ramp(struct random *random, float *row, size_t channels, double start) {
    double step = sign(random) / 8;
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(start + step * (double)c);
}

/* Either 1 or 1 + step. */
static void two_valued(struct random *random, float *row, size_t channels, double step) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(sign(random) > 0 ? 1 : 1 + step);
}

/* One of two random values. */
static void two_random_values(struct random *random, float *row, size_t channels, double magnitude) {
    float values[2] = {(float)(magnitude * (double)random_normal(random)),
                       (float)(magnitude * (double)random_normal(random))};
    for (size_t c = 0; c < channels; c++)
        row[c] = values[random_bits(random) >> 63];
}

/* One channel in a hundred is that many times as large as the others, as in trained transformers. */
static void outliers(struct random *random, float *row, size_t channels, double factor) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)((random_below(random, 100) == 0 ? factor : 1) * (double)random_normal(random));
}

static void sparse(struct random *random, float *row, size_t channels, double fraction) {
    for (size_t c = 0; c < channels; c++)
        row[c] = random_between(random, 0, 1) < fraction ? random_normal(random) : 0;
}

static void all_magnitudes(struct random *random, float *row, size_t channels, double largest_exponent) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)(sign(random) * pow(10, random_between(random, -largest_exponent, largest_exponent)));
}

/* The first values are far from the others, so that statistics guessed from them are wrong. */
static void untypical_start(struct random *random, float *row, size_t channels, double length) {
    for (size_t c = 0; c < channels; c++)
        row[c] = (float)((c < (size_t)length ? 1e4 : 0) + (double)random_normal(random));
}

/* The beginning is constant, so that code which looks only there takes the row for a constant one. */
static void constant_start(struct random *random, float *row, size_t channels, double length) {
    for (size_t c = 0; c < channels; c++)
        row[c] = c < (size_t)length ? 3 : 3 + random_normal(random);
}

static void untypical_end(struct random *random, float *row, size_t channels, double value) {
    scaled(random, row, channels, 1);
    for (size_t c = channels - (channels + 9) / 10; c < channels; c++)
        row[c] += (float)value;
}

/* Each block of this many channels has a mean of its own. */
static void blocks(struct random *random, float *row, size_t channels, double length) {
    double mean = 0;
    for (size_t c = 0; c < channels; c++) {
        if (c % (size_t)length == 0)
            mean = 1e4 * (double)random_normal(random);
        row[c] = (float)(mean + (double)random_normal(random));
    }
}

/* x, -x, x', -x', ...: the sum is exactly 0 if channels is even. */
static void cancelling(struct random *random, float *row, size_t channels, double magnitude) {
    for (size_t c = 0; c < channels; c++)
        row[c] = c % 2 ? -row[c - 1] : (float)(magnitude * (double)random_normal(random));
}

const struct pattern patterns[] = {
    {"ordinary", scaled, 1, 0},
    {"mean 10^2 deviations", offset, 1e2, 0},
    {"mean 10^3 deviations", offset, 1e3, 0},
    {"mean 10^4 deviations", offset, 1e4, 0},
    {"mean 10^5 deviations", offset, 1e5, 0},
    {"mean 10^6 deviations", offset, 0.9e6, 0},
    {"mean 10^4 deviations, scaled", offset_scaled, 1e4, 1},
    {"mean 10^6 deviations, scaled", offset_scaled, 0.9e6, 1},
    {"10^20", scaled, 1e20, 0},
    {"10^30", scaled, 1e30, 0},
    {"up to FLT_MAX", largest, 0, 0},
    {"near FLT_MAX", largest, 0.99, 0},
    {"10^-20", scaled, 1e-20, 1},
    {"10^-30", scaled, 1e-30, 1},
    {"10^-30 beside eps", scaled, 1e-30, 0},
    {"around FLT_MIN", scaled, 1e-38, 1},
    {"denormals", scaled, 1e-41, 1},
    {"denormals of a few bits", smallest, 3, 1},
    {"denormals of one bit", smallest, 1, 1},
    {"zeros", zeros_of_both_signs, 0, 0},
    {"zeros without eps", zeros_of_both_signs, 0, 1},
    {"constant 0.1", constant, 0.1, 0},
    {"constant 0.1 without eps", constant, 0.1, 1},
    {"constant", constant_random, 1e4, 1},
    {"constant 10^30", constant_random, 1e30, 1},
    {"constant FLT_MAX", constant, (double)FLT_MAX, 1},
    {"constant -FLT_MAX", constant, -(double)FLT_MAX, 0},
    {"constant FLT_TRUE_MIN", constant, 0x1p-149, 1},
    {"spike of 10^30 first", spike_first, 1e30, 0},
    {"spike of 10^30 last", spike_last, 1e30, 0},
    {"spike of 10^30 anywhere", spike_anywhere, 1e30, 0},
    {"spike of 10^30 anywhere, without eps", spike_anywhere, 1e30, 1},
    {"spike of FLT_MAX", spike_anywhere, (double)FLT_MAX, 0},
    {"spike of 1000", spike_anywhere, 1e3, 0},
    {"spike of 1000 first", spike_first, 1e3, 0},
    {"spike among 10^-10", spike_among, 1e-10, 0},
    {"spike among 10^-30", spike_among, 1e-30, 0},
    {"spike among denormals", spike_among, 1e-42, 1},
    {"period 2", periodic, 2, 0},
    {"period 3", periodic, 3, 0},
    {"period 8", periodic, 8, 0},
    {"period 16", periodic, 16, 0},
    {"period 64", periodic, 64, 0},
    {"period 67", periodic, 67, 0},
    {"alternating by 1", alternating, 2, 0},
    {"alternating by 8", alternating, 16, 0},
    {"alternating by 32", alternating, 64, 0},
    {"alternating by 1024", alternating, 2048, 0},
    {"exactly alternating", exactly_alternating, 0.3, 0},
    {"exactly alternating 10^30", exactly_alternating, 1e30, 0},
    {"exactly alternating FLT_MAX", exactly_alternating, (double)FLT_MAX, 0},
    {"ramp", ramp, 0, 0},
    {"ramp from 1000", ramp, 1e3, 0},
    {"1 or 2", two_valued, 1, 0},
    {"1 or 1 + 2^-10", two_valued, 0x1p-10, 1},
    {"1 or 1 + 2^-18", two_valued, 0x1p-18, 1},
    {"1 or the next float", two_valued, 0x1p-23, 1},
    {"random period up to 8", random_period, 8, 1},
    {"two random values", two_random_values, 1, 1},
    {"outliers of 100", outliers, 100, 0},
    {"outliers of 10^5", outliers, 1e5, 0},
    {"one in twenty not 0", sparse, 0.05, 0},
    {"one in a thousand not 0", sparse, 0.001, 1},
    {"10^-5 to 10^5", all_magnitudes, 5, 0},
    {"10^-18 to 10^18", all_magnitudes, 18, 0},
    {"10^-37 to 10^37", all_magnitudes, 37, 1},
    {"untypical first value", untypical_start, 1, 0},
    {"untypical first 64", untypical_start, 64, 0},
    {"untypical first 1000", untypical_start, 1000, 0},
    {"constant first 64", constant_start, 64, 1},
    {"constant first 1024", constant_start, 1024, 1},
    {"untypical end", untypical_end, 1e4, 0},
    {"blocks of 64", blocks, 64, 0},
    {"blocks of 1024", blocks, 1024, 0},
    {"cancelling", cancelling, 1, 0},
    {"cancelling 10^25", cancelling, 1e25, 0},
    {"cancelling denormals", cancelling, 1e-40, 1},
};
const size_t pattern_count = sizeof patterns / sizeof *patterns;

void fill_biased_sum(struct random *random, float *x, float *dy, size_t channels) {
    const size_t sums_up = 0xbf56, pattern = random_below(random, 2) == 0 ? sums_up : random_below(random, 1 << 16);
    const size_t step = channels < 512 ? 16 : 64;
    const size_t biased = (size_t)((double)channels * random_between(random, 0.25, 0.5)) / step * step;
    const size_t negative_lanes = random_below(random, 2) == 0 ? 5 + random_below(random, 7) : 0;
    double sum = 0, squares = 0;
    for (size_t c = 0; c < channels; c++) {
        const size_t span = c / 64, place = c % 64 / 16 + 4 * (span % 2), last_bits = pattern >> 2 * place & 3;
        const float value = 1 + (float)last_bits * 0x1p-23f;
        const int is_negative = negative_lanes ? c % 16 < negative_lanes : span % 2 != 0;
        x[c] = c >= biased ? 0 : is_negative ? -value : value;
        dy[c] = c >= biased;
        sum += (double)x[c];
        squares += (double)x[c] * (double)x[c];
    }
    if (channels - biased < 2)
        return;
    x[biased] = negative_lanes ? 0 : (float)(sqrt(squares / 2) * random_between(random, 0.8, 1.2));
    x[biased + 1] = (float)-(sum + (double)x[biased]);
    dy[biased] = dy[biased + 1] = 0;
}
