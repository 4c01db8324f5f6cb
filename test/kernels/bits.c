/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One answer everywhere. With every table and on every architecture, the portable and sleef kernels compute the bits
 * whose hashes stand in test/data/bits.txt. And every kernel, the native ones included, computes the same bits wherever
 * its buffers lie, and in place.
 *
 *   bits MANIFEST            compares with the manifest
 *   bits MANIFEST --write    writes it, from the table of plain C
 *
 * A line of the manifest is a kernel, a group of shapes, and the hash of all outputs of that group. Inputs are made of
 * integers and correctly rounded operations only, so they are the same everywhere. All NaNs are hashed alike, because
 * the library promises a NaN, but not which.
 */
#include "call.h"
#include "dispatch/cpu.h"
#include "float_bits.h"
#include "random.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef DYNNORM_HAVE_SLEEF
#include <sleef.h>
#endif

/* ---- Rows, ordinary and hard ------------------------------------------------------------------------------------- */

enum row_kind {
    ORDINARY,
    HUGE_VALUES,
    TINY_VALUES,
    DENORMALS,
    CONSTANT,
    ONE_SPIKE,
    LARGE_MEAN,
    SPECIAL,
    SPREAD,
    SPREAD_DY,
    ONE_CHANNEL,
    ONE_SIGN,
    RARE_ROWS,
    LATE_ROWS,
    LATE_CHANNEL,
    NEAR_LIMITS,
    MEANS,
    LIMIT_OF_MEANS,
    ZERO_DY,
    VANISHING_DY,
    VANISHING_X,
    ZERO_WEIGHT, /* x and dy are ordinary */
    ROW_KINDS
};

static void fill_row(unsigned char *row, size_t channels, enum row_kind kind, struct random *random) {
    static const float constants[] = {0, -0.0f, 0.1f, -3e7f, 1e-40f, 1e38f};
    static const float specials[] = {INFINITY, -INFINITY, NAN, -NAN, 0, -0.0f, 0x1p-149f, -0x1p-149f};
    float constant = constants[random_below(random, sizeof constants / sizeof *constants)];
    float scale = kind == HUGE_VALUES ? (random_below(random, 2) ? 1e20f : 9e37f) : kind == TINY_VALUES ? 1e-30f : 1;
    for (size_t i = 0; i < channels; i++) {
        float value = random_normal(random) * scale;
        if (kind == DENORMALS)
            value = (float)((double)random_below(random, 0x200000) - 0x100000) * 0x1p-149f;
        else if (kind == CONSTANT)
            value = constant;
        else if (kind == LARGE_MEAN)
            value = value + 1e6f;
        else if (kind == ONE_SIGN) /* in weight and dy, so that mean(h) is large */
            value = fabsf(value);
        set_float_at(row, i, value);
    }
    if (kind == ONE_SPIKE)
        set_float_at(row, random_below(random, channels), 1e30f);
    if (kind == SPECIAL)
        for (size_t count = 1 + random_below(random, 3); count > 0; count--) {
            float special = specials[random_below(random, sizeof specials / sizeof *specials)];
            set_float_at(row, random_below(random, channels), special);
        }
}

/* Numbers from 2^-40 to 2^40 whose sums cancel, so that the order of additions shows in the float that is left,
 * although they are made in double. Most values have their negative at the other end of the row. The second half of the
 * rows repeats the first half, with the opposite sign in dy. Every fourth value is an ordinary one that cancels
 * nothing.
 *
 * With SPREAD_DY that is so of dy alone, and x is the same at both ends of the row. Then the terms of the sums for
 * alpha and beta are as large as dy and cancel like it: in a row without weight, and in whole groups of rows. */
static void fill_spread(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                        struct random *random) {
    const size_t channels = call->channels, half = (call->tokens + 1) / 2;
    const uint64_t seed = random->state; /* what it was started with */
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        struct random repeated = random_start(seed + 1 + row % half);
        float sign = row >= half && buffer == &buffers[BUFFER_DY] ? -1 : 1;
        int is_spread = kind == SPREAD || buffer == &buffers[BUFFER_DY];
        for (size_t i = 0; i <= (channels - 1) / 2; i++) {
            int exponent = is_spread ? (int)random_below(&repeated, 81) - 40 : 0;
            float value = sign * ldexpf(random_normal(&repeated), exponent);
            float mirrored = is_spread ? -value : value;
            set_float_at(data, channels - 1 - i, i % 4 == 3 ? random_normal(random) : mirrored);
            set_float_at(data, i, i % 4 == 3 ? random_normal(random) : value);
        }
    }
}

/* In one channel dy is so small, or sometimes so large, that float cannot hold the channel's sum over tokens; all else
 * is ordinary. Kernels that add in float have to notice such a sum wherever the channel lies in a row. With
 * LATE_CHANNEL the first group is ordinary, too. */
static void fill_one_channel(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                             struct random *random) {
    const size_t first_row = kind == LATE_CHANNEL ? GROUP : 0;
    const size_t channel = random_below(random, call->channels);
    const int exponent = random_below(random, 4) ? -140 : 125;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        fill_row(data, call->channels, ORDINARY, random);
        if (buffer == &buffers[BUFFER_DY] && row >= first_row)
            set_float_at(data, channel, ldexpf((float)(1 + random_below(random, 4)), exponent));
    }
}

/* Loops over groups of ordinary rows end where there is another row, and begin again behind it. This has whole groups
 * of both, one after the other: one row in 19 is of some kind, in dy another one than in x. */
static enum row_kind kind_of_rare_row(const struct buffer *buffer, size_t row, struct random *random) {
    const size_t place = buffer == &buffers[BUFFER_DY] ? 5 : 11;
    return row % 19 == place ? (enum row_kind)(1 + random_below(random, SPECIAL)) : ORDINARY;
}

/* The first group is ordinary, so that its sums over tokens may wait for those of the next one. */
static enum row_kind kind_of_late_row(size_t row, struct random *random) {
    return row >= GROUP && row % 5 == 0 ? (enum row_kind)(1 + random_below(random, SPECIAL)) : ORDINARY;
}

/* x is large and dy is small, so that rstd, its powers and their products with sums of a backward pass are about as
 * small as float can hold them: some rows of a group are within the limits, others are not. */
static void fill_near_limits(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                             struct random *random) {
    (void)kind;
    const int least = buffer == &buffers[BUFFER_DY] ? -56 : 30;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        const int exponent = least + (int)random_below(random, 14);
        for (size_t i = 0; i < call->channels; i++)
            set_float_at(data, i, ldexpf(random_normal(random), exponent));
    }
}

/* The means of rows of x are up to some 2^14 deviations: of some rows float may hold x - mean as it is, others need a
 * residual, or more care. */
static void fill_means(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                       struct random *random) {
    (void)kind;
    const int has_mean = buffer == &buffers[BUFFER_X];
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        const float normal = random_normal(random);
        const int exponent = (int)random_below(random, 15);
        const float mean = has_mean ? ldexpf(normal, exponent) : 0;
        for (size_t i = 0; i < call->channels; i++)
            set_float_at(data, i, mean + random_normal(random));
    }
}

/* The means of rows of x are within five roundings of 4096 deviations, a quarter of one after the other. There a
 * backward pass changes from float to double, which must not depend on where a table rounds what it compares. The
 * deviation is the root of eps, since the elements of a row are equal but for a rounding. */
static void fill_limit_of_means(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                                struct random *random) {
    (void)kind;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        float mean = 4096 * sqrtf(call->eps);
        for (int i = 0; i < 5; i++)
            mean = nextafterf(mean, 0);
        for (size_t i = 0; i < row / 4; i++)
            mean = nextafterf(mean, INFINITY);
        for (size_t i = 0; i < call->channels; i++) {
            const float value = i % 4 < row % 4 ? nextafterf(mean, INFINITY) : mean;
            set_float_at(data, i, buffer == &buffers[BUFFER_X] ? value : random_normal(random));
        }
    }
}

/* dy of some rows is 0, of either sign, as that of padded tokens is: of single rows at first, and then of whole groups.
 */
static void fill_zero_dy(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                         struct random *random) {
    (void)kind;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        const int is_zero = row < 2 * GROUP ? row % 3 == 1 : row / 11 % 2 == 1;
        fill_row(data, call->channels, ORDINARY, random);
        for (size_t i = 0; i < call->channels && is_zero && buffer == &buffers[BUFFER_DY]; i++)
            set_float_at(data, i, random_below(random, 2) ? 0.0f : -0.0f);
    }
}

/* dy is tiny, as that of gradients that vanish: in one group of three by one factor, in the next one likewise but for
 * single rows, in the third one by a factor for each row, with some zeros. Some are subnormal, others have products
 * that are. */
static void fill_vanishing_dy(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                              struct random *random) {
    (void)kind;
    int exponent = 0;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        const size_t third = row / GROUP % 3;
        fill_row(data, call->channels, ORDINARY, random);
        if (buffer != &buffers[BUFFER_DY] || (third == 1 && row % 3 == 1))
            continue;
        if (row % GROUP == 0 || third == 2)
            exponent = -95 - (int)random_below(random, 54);
        for (size_t i = 0; i < call->channels; i++) {
            const int is_zero = third == 2 && random_below(random, 4) == 0;
            set_float_at(data, i, is_zero ? 0 : ldexpf(random_normal(random), exponent));
        }
    }
}

/* In two rows of three x is tiny, down to subnormal numbers, with zeros and ordinary numbers among it. In one channel
 * of four it is so in all rows, lest ordinary numbers hide the others in sums over tokens. */
static void fill_vanishing_x(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                             struct random *random) {
    (void)kind;
    for (size_t row = 0; row < call->tokens; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        const int exponent = -40 - (int)random_below(random, 100);
        fill_row(data, call->channels, ORDINARY, random);
        for (size_t i = 0; i < call->channels && buffer == &buffers[BUFFER_X]; i++) {
            const size_t element = random_below(random, 16);
            if (i % 4 == 1 || (row % 3 && element))
                set_float_at(data, i, element == 1 ? 0 : ldexpf(random_normal(random), exponent));
        }
    }
}

/* Every other row of x, and every third of dy, is of the given kind; the rest are ordinary. */
static void fill_rows(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                      struct random *random) {
    size_t every = buffer == &buffers[BUFFER_DY] ? 3 : 2;
    for (size_t row = 0; row < call->tokens; row++) {
        enum row_kind of_row = row % every == 0 ? kind : ORDINARY;
        if (kind == RARE_ROWS)
            of_row = kind_of_rare_row(buffer, row, random);
        if (kind == LATE_ROWS)
            of_row = kind_of_late_row(row, random);
        fill_row(buffer_row(call, buffer, row), call->channels, of_row, random);
    }
}

typedef void fill_function(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                           struct random *random);

/* What fills a tensor with rows of a kind, if that is not fill_rows. */
static fill_function *const fill_of_kind[ROW_KINDS] = {
    [SPREAD] = fill_spread,
    [SPREAD_DY] = fill_spread,
    [ONE_CHANNEL] = fill_one_channel,
    [LATE_CHANNEL] = fill_one_channel,
    [NEAR_LIMITS] = fill_near_limits,
    [MEANS] = fill_means,
    [LIMIT_OF_MEANS] = fill_limit_of_means,
    [ZERO_DY] = fill_zero_dy,
    [VANISHING_DY] = fill_vanishing_dy,
    [VANISHING_X] = fill_vanishing_x,
};

static void fill_tensor(const dynnorm_descriptor *call, const struct buffer *buffer, enum row_kind kind,
                        uint64_t seed) {
    struct random random = random_start(seed ^ (uint64_t)(buffer - buffers) << 32);
    fill_function *const fill = fill_of_kind[kind] ? fill_of_kind[kind] : fill_rows;
    fill(call, buffer, kind, &random);
}

/* ---- Hashes ------------------------------------------------------------------------------------------------------ */

static const uint64_t fnv_start = 0xcbf29ce484222325;

static uint64_t hash_bytes(uint64_t hash, uint32_t bits, size_t bytes) {
    for (size_t byte = 0; byte < bytes; byte++)
        hash = (hash ^ (bits >> 8 * byte & 0xff)) * 0x100000001b3; /* FNV-1a */
    return hash;
}

static uint64_t hash_float(uint64_t hash, float value) {
    return hash_bytes(hash, isnan(value) ? 0x7fc00000 : bits_of_float(value), sizeof value);
}

static uint64_t hash_element(uint64_t hash, const unsigned char *array, dynnorm_type type, size_t i) {
    if (type == DYNNORM_F32)
        return hash_float(hash, float_at(array, i));
    const int is_nan = isnan(element_at(array, type, i));
    return hash_bytes(hash, is_nan ? narrowed(type, (double)NAN) : load_element(array, type, i),
                      dynnorm_element_bytes(type));
}

static uint64_t hash_outputs(uint64_t hash, const dynnorm_descriptor *call, enum direction direction) {
    for (int i = 0; i < EVERY_BUFFER; i++) {
        if (!writes(call->operation, direction, &buffers[i]) || !buffer_data(call, &buffers[i]))
            continue;
        const dynnorm_type type = buffer_type(call, &buffers[i]);
        size_t columns = buffer_columns(call, &buffers[i]);
        for (size_t row = 0; row < buffer_rows(call, &buffers[i]); row++) {
            const unsigned char *data = buffer_row(call, &buffers[i], row);
            for (size_t column = 0; column < columns; column++)
                hash = hash_element(hash, data, type, column);
        }
    }
    for (size_t row = 0; call->y_scales && row < call->tokens; row++)
        hash = hash_float(hash, call->y_scales[row]);
    return hash;
}

/* ---- Groups of shapes -------------------------------------------------------------------------------------------- */

/* How the calls of a group differ from plain ones, besides their shape. */
enum variant {
    PLAIN,              /* statistics recomputed */
    GIVEN_STATISTICS,   /* in a backward pass, mean and rstd given that are not those of x */
    FORWARD_STATISTICS, /* in a backward pass, mean and rstd given, as a forward pass computes them */
    NEAR_STATISTICS,    /* the same, with means that are off by a little more than a rounding, in some rows */
    WEIGHT_OFFSET,      /* 1 + w */
    NO_PARAMETERS,      /* neither weight nor bias */
    READ_AT_ONCE,       /* the output kept in the caches, however large */
    OTHER_COEFFICIENTS, /* eps 0, beta 0, large alpha, scale negative */
    HUGE_WEIGHTS,       /* some of them, whose product with scale float does not hold */
    PER_CHANNEL,        /* an alpha or beta for each channel */
    /* Through buffers of rows: */
    ALL_BF16,
    ALL_F16,
    AROUND, /* of several types, with a residual; in a backward pass, with a dsum */
    /* Forward alone: */
    ROUNDED_BEFORE_WEIGHT,
    INTEGERS,             /* with a scale for each row */
    INTEGERS_OF_ONE_SCALE /* for all rows */
};

struct group {
    const char *name;
    size_t first_channels, last_channels, step;
    size_t tokens; /* 0: from 1 to 9, depending on the channels */
    enum row_kind kind;
    enum variant variant;
    int thin; /* part of the thinned set for emulators */
};

/* Such rows are in the first block of rows of 64 channels, lest they leave something for the next one. Where there are
 * many rows they are not in the first group, so that a loop over groups begins, and has to end. */
enum { END_OF_NEAR_ROWS = 256 };

static size_t first_near_row(size_t tokens) {
    return tokens <= 2 * GROUP + 1 ? 0 : GROUP;
}

static const struct group groups[] = {
    {"channels-1-64", 1, 64, 1, 0, ORDINARY, PLAIN, 1},
    {"channels-65-128", 65, 128, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-129-300", 129, 300, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-257-277", 257, 277, 5, 0, ORDINARY, PLAIN, 1},
    {"channels-512", 512, 512, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-768", 768, 768, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-1000", 1000, 1000, 1, 0, ORDINARY, PLAIN, 1},
    {"channels-1024", 1024, 1024, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-4095", 4095, 4095, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-4096", 4096, 4096, 1, 0, ORDINARY, PLAIN, 0},
    {"channels-4097", 4097, 4097, 1, 0, ORDINARY, PLAIN, 1},
    {"channels-65539", 65539, 65539, 1, 0, ORDINARY, PLAIN, 0},
    {"tokens-999", 5, 47, 42, 999, ORDINARY, PLAIN, 0},
    {"tokens-100-channels-20", 20, 20, 1, 100, ORDINARY, PLAIN, 1},
    {"tokens-600-channels-1023", 1023, 1023, 1, 600, ORDINARY, PLAIN, 0},   /* larger than most caches of one core */
    {"tokens-1200-channels-1024", 1024, 1024, 1, 1200, ORDINARY, PLAIN, 0}, /* its rows can be stored past the caches */
    {"tokens-1200-channels-1024-read-at-once", 1024, 1024, 1, 1200, ORDINARY, READ_AT_ONCE, 0},
    {"huge-values", 1, 300, 23, 7, HUGE_VALUES, PLAIN, 1},
    {"huge-values-channels-65539", 65539, 65539, 1, 3, HUGE_VALUES, PLAIN, 0},
    {"tiny-values", 1, 300, 23, 7, TINY_VALUES, PLAIN, 1},
    {"tiny-values-eps-0", 1, 300, 23, 7, TINY_VALUES, OTHER_COEFFICIENTS, 1},
    {"denormals", 1, 300, 23, 7, DENORMALS, PLAIN, 1},
    {"denormals-eps-0", 1, 300, 23, 7, DENORMALS, OTHER_COEFFICIENTS, 1},
    {"constant-rows", 1, 300, 23, 12, CONSTANT, PLAIN, 1},
    {"constant-rows-eps-0", 1, 300, 23, 12, CONSTANT, OTHER_COEFFICIENTS, 1},
    {"one-spike", 1, 300, 23, 7, ONE_SPIKE, PLAIN, 1},
    {"large-mean", 1, 300, 23, 7, LARGE_MEAN, PLAIN, 1},
    {"large-mean-channels-65539", 65539, 65539, 1, 3, LARGE_MEAN, PLAIN, 0},
    {"large-mean-tokens-40-channels-256-to-4096", 256, 4096, 1280, 40, LARGE_MEAN, PLAIN, 0},
    {"infinities-and-nan", 1, 300, 23, 12, SPECIAL, PLAIN, 1},
    {"spread", 1, 300, 13, 7, SPREAD, PLAIN, 1},
    {"spread-tokens-150", 600, 600, 1, 150, SPREAD, PLAIN, 1},   /* several blocks of rows */
    {"spread-tokens-4200", 513, 513, 1, 4200, SPREAD, PLAIN, 0}, /* the greatest number of blocks */
    {"spread-given-statistics", 1, 300, 23, 14, SPREAD, GIVEN_STATISTICS, 1},
    {"spread-dy-tokens-16", 1, 300, 13, 16, SPREAD_DY, PLAIN, 1},
    {"spread-dy-one-token", 1, 300, 13, 1, SPREAD_DY, NO_PARAMETERS, 1},
    {"one-channel", 1, 112, 1, 9, ONE_CHANNEL, FORWARD_STATISTICS, 1},
    {"one-channel-one-token", 1, 112, 1, 1, ONE_CHANNEL, FORWARD_STATISTICS, 1},
    {"one-channel-257-to-480", 257, 480, 31, 9, ONE_CHANNEL, FORWARD_STATISTICS, 1},
    {"rare-rows", 1, 300, 13, 35, RARE_ROWS, PLAIN, 1},
    {"rare-rows-whole-spans", 64, 320, 64, 35, RARE_ROWS, PLAIN, 1},
    {"near-limits", 1, 600, 13, 14, NEAR_LIMITS, PLAIN, 1},
    {"near-limits-forward-statistics", 1, 600, 13, 14, NEAR_LIMITS, FORWARD_STATISTICS, 0},
    {"means", 1, 600, 13, 19, MEANS, PLAIN, 1},
    {"means-forward-statistics", 1, 600, 13, 19, MEANS, FORWARD_STATISTICS, 1},
    {"means-long", 520, 4180, 1220, 19, MEANS, FORWARD_STATISTICS, 0},
    {"limit-of-means", 16, 600, 73, 41, LIMIT_OF_MEANS, PLAIN, 1},
    {"limit-of-means-forward-statistics", 16, 600, 73, 41, LIMIT_OF_MEANS, FORWARD_STATISTICS, 1},
    {"zero-dy", 1, 600, 13, 45, ZERO_DY, PLAIN, 0},
    {"zero-dy-forward-statistics", 1, 600, 13, 45, ZERO_DY, FORWARD_STATISTICS, 1},
    {"zero-dy-whole-spans", 64, 512, 64, 45, ZERO_DY, FORWARD_STATISTICS, 0},
    {"zero-dy-long", 520, 4180, 1220, 45, ZERO_DY, FORWARD_STATISTICS, 0},
    {"vanishing-dy", 1, 300, 13, 45, VANISHING_DY, PLAIN, 1},
    {"vanishing-dy-forward-statistics", 1, 600, 13, 45, VANISHING_DY, FORWARD_STATISTICS, 0},
    {"vanishing-dy-whole-spans", 64, 1024, 64, 45, VANISHING_DY, FORWARD_STATISTICS, 0},
    {"vanishing-dy-long", 520, 4180, 1220, 45, VANISHING_DY, FORWARD_STATISTICS, 0},
    {"vanishing-dy-given-statistics", 16, 1300, 107, 45, VANISHING_DY, GIVEN_STATISTICS, 1},
    {"vanishing-dy-one-token", 16, 3000, 373, 1, VANISHING_DY, FORWARD_STATISTICS, 0},
    {"vanishing-x", 1, 300, 13, 25, VANISHING_X, PLAIN, 1},
    {"vanishing-x-per-channel", 1, 1200, 109, 25, VANISHING_X, PER_CHANNEL, 1},
    {"vanishing-x-tokens-150", 33, 133, 20, 150, VANISHING_X, OTHER_COEFFICIENTS, 0},
    {"zero-weight", 1, 600, 13, 19, ZERO_WEIGHT, FORWARD_STATISTICS, 1},
    {"zero-weight-near-statistics", 1, 600, 13, 19, ZERO_WEIGHT, NEAR_STATISTICS, 1},
    {"rare-rows-long", 520, 4180, 1220, 35, RARE_ROWS, PLAIN, 0},
    {"given-statistics", 1, 300, 13, 0, ORDINARY, GIVEN_STATISTICS, 1},
    {"given-statistics-long", 520, 4180, 1220, 19, ORDINARY, GIVEN_STATISTICS, 1},
    {"forward-statistics", 1, 300, 13, 17, ORDINARY, FORWARD_STATISTICS, 1},
    {"forward-statistics-channels-1-128", 1, 128, 1, 17, ORDINARY, FORWARD_STATISTICS, 0},
    {"forward-statistics-whole-sixteens", 16, 256, 16, 17, ORDINARY, FORWARD_STATISTICS, 1},
    {"forward-statistics-257-to-511", 257, 511, 14, 17, ORDINARY, FORWARD_STATISTICS, 1},
    {"near-statistics", 1, 500, 17, 17, ORDINARY, NEAR_STATISTICS, 1},
    {"forward-statistics-272-to-512", 272, 512, 48, 17, ORDINARY, FORWARD_STATISTICS, 1},
    {"forward-statistics-1024-to-2048", 1024, 2048, 256, 17, ORDINARY, FORWARD_STATISTICS, 1},
    {"forward-statistics-1025-to-2048", 1025, 2048, 341, 13, ORDINARY, FORWARD_STATISTICS, 0},
    {"forward-statistics-large-mean", 1, 300, 13, 17, LARGE_MEAN, FORWARD_STATISTICS, 0},
    {"forward-statistics-spread", 1, 300, 13, 17, SPREAD, FORWARD_STATISTICS, 0},
    {"forward-statistics-one-sign", 1, 500, 13, 17, ONE_SIGN, FORWARD_STATISTICS, 1},
    {"forward-statistics-one-sign-long", 512, 2560, 256, 9, ONE_SIGN, FORWARD_STATISTICS, 1},
    {"forward-statistics-infinities-and-nan", 1, 300, 13, 17, SPECIAL, FORWARD_STATISTICS, 0},
    {"forward-statistics-rare-rows", 1, 300, 13, 35, RARE_ROWS, FORWARD_STATISTICS, 1},
    {"forward-statistics-rare-rows-long", 520, 4180, 1220, 35, RARE_ROWS, FORWARD_STATISTICS, 0},
    {"forward-statistics-one-token-long", 520, 4180, 1220, 1, ORDINARY, FORWARD_STATISTICS, 1},
    /* rows that go by pairs: several groups, in one block of rows or in some, and groups that are not common */
    {"forward-statistics-tokens-16-channels-512-to-1024", 512, 1024, 128, 16, ORDINARY, FORWARD_STATISTICS, 1},
    {"near-statistics-tokens-35-channels-500-to-1000", 500, 1000, 125, 35, ORDINARY, NEAR_STATISTICS, 1},
    {"rare-rows-tokens-70-channels-500-to-1000", 500, 1000, 250, 70, RARE_ROWS, FORWARD_STATISTICS, 0},
    {"one-channel-tokens-35-channels-500-to-1000", 500, 1000, 250, 35, ONE_CHANNEL, FORWARD_STATISTICS, 1},
    {"late-rows-tokens-16-channels-500-to-1000", 500, 1000, 125, 16, LATE_ROWS, FORWARD_STATISTICS, 1},
    {"late-rows-tokens-40-channels-500-to-1000", 500, 1000, 250, 40, LATE_ROWS, FORWARD_STATISTICS, 0},
    {"late-channel-tokens-16-channels-500-to-1000", 500, 1000, 125, 16, LATE_CHANNEL, FORWARD_STATISTICS, 1},
    {"late-channel-tokens-40-channels-500-to-1000", 500, 1000, 250, 40, LATE_CHANNEL, FORWARD_STATISTICS, 0},
    /* heads: several groups of rows and some rows more, in two blocks or in one */
    {"forward-statistics-tokens-307-channels-64", 64, 64, 1, 307, ORDINARY, FORWARD_STATISTICS, 1},
    {"near-statistics-tokens-51-channels-64", 64, 64, 1, 51, ORDINARY, NEAR_STATISTICS, 1},
    {"one-channel-tokens-51-channels-64", 64, 64, 1, 51, ONE_CHANNEL, FORWARD_STATISTICS, 1},
    {"near-statistics-one-channel-tokens-307-channels-64", 64, 64, 1, 307, ONE_CHANNEL, NEAR_STATISTICS, 1},
    {"rare-rows-tokens-307-channels-64", 64, 64, 1, 307, RARE_ROWS, FORWARD_STATISTICS, 1},
    {"weight-offset", 1, 300, 13, 0, ORDINARY, WEIGHT_OFFSET, 1},
    {"no-parameters", 1, 300, 13, 0, ORDINARY, NO_PARAMETERS, 1},
    {"other-coefficients", 1, 300, 13, 0, ORDINARY, OTHER_COEFFICIENTS, 1},
    {"huge-weights", 1, 300, 13, 0, ORDINARY, HUGE_WEIGHTS, 1},
    {"per-channel", 1, 300, 13, 0, ORDINARY, PER_CHANNEL, 1},
    {"per-channel-spread-tokens-150", 600, 600, 1, 150, SPREAD, PER_CHANNEL, 1},
    {"per-channel-infinities-and-nan", 1, 300, 23, 12, SPECIAL, PER_CHANNEL, 1},
    /* up to so many channels that the buffers are too large for the stack */
    {"bf16", 1, 2097, 262, 0, ORDINARY, ALL_BF16, 1},
    {"f16", 1, 2097, 262, 0, ORDINARY, ALL_F16, 1},
    {"residual", 1, 2097, 262, 0, ORDINARY, AROUND, 1},
    {"rounded-before-weight", 1, 2097, 262, 0, ORDINARY, ROUNDED_BEFORE_WEIGHT, 1},
    {"integers", 1, 2097, 262, 0, ORDINARY, INTEGERS, 1},
    {"integers-of-one-scale", 1, 2097, 262, 0, ORDINARY, INTEGERS_OF_ONE_SCALE, 1},
};
enum { GROUPS = sizeof groups / sizeof *groups };

/* Whether there is such a call of the kernel, in this build. */
static int has_group(const struct listed_kernel *kernel, const struct group *group) {
#ifdef DYNNORM_WITHOUT_TYPES
    if (group->variant >= ALL_BF16)
        return 0;
#endif
    if ((group->variant == FORWARD_STATISTICS || group->variant == NEAR_STATISTICS) &&
        kernel->direction == FORWARD_PASS)
        return 0;
    if (group->variant == NEAR_STATISTICS)
        return kernel->operation == DYNNORM_LAYERNORM;
    if (group->variant == PER_CHANNEL)
        return dynnorm_operations[kernel->operation].parameters != NO_FIELD;
    return group->variant < ROUNDED_BEFORE_WEIGHT || kernel->direction == FORWARD_PASS;
}

static void use_buffer(dynnorm_descriptor *call, unsigned *used, enum buffer_index index, dynnorm_type type) {
    *used |= 1u << index;
    set_buffer_type(call, &buffers[index], type);
}

/* A call that goes through buffers of rows. */
static struct test_call make_buffered_call(const struct listed_kernel *kernel, enum variant variant, size_t tokens,
                                           size_t channels) {
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    dynnorm_descriptor *call = &made.call;
    const int backward = kernel->direction == BACKWARD_PASS;
    unsigned used = 0;
    for (int i = 0; i < BUFFERS; i++) {
        if (!uses(kernel->operation, kernel->direction, &buffers[i]) || (backward && buffers[i].shape == ONE_PER_ROW))
            continue;
        used |= 1u << i;
        if (buffers[i].type_field)
            set_buffer_type(call, &buffers[i], variant == ALL_F16 ? DYNNORM_F16 : DYNNORM_BF16);
    }
    if (variant == AROUND && backward) {
        use_buffer(call, &used, BUFFER_DSUM, DYNNORM_F16);
        use_buffer(call, &used, BUFFER_DX, DYNNORM_F32);
    } else if (variant == AROUND) {
        use_buffer(call, &used, BUFFER_RESIDUAL, DYNNORM_F16);
        use_buffer(call, &used, BUFFER_RESIDUAL_BIAS, DYNNORM_F32);
        use_buffer(call, &used, BUFFER_SUM, DYNNORM_BF16);
        use_buffer(call, &used, BUFFER_Y, DYNNORM_F32);
    }
    call->round_before_weight = variant == ROUNDED_BEFORE_WEIGHT;
    if (variant == INTEGERS || variant == INTEGERS_OF_ONE_SCALE)
        use_buffer(call, &used, BUFFER_Y, DYNNORM_I8);
    if (variant == INTEGERS_OF_ONE_SCALE)
        call->y_scale = 0.015f;
    if (variant == INTEGERS) /* the scales have the place of a dx, which a forward pass lacks */
        use_buffer(call, &used, BUFFER_DX, DYNNORM_F32);
    made.memory = allocate_selected(call, used, 0);
    if (variant == INTEGERS) {
        call->y_scales = call->dx.data;
        call->dx.data = NULL;
    }
    fill_inputs(call, kernel->direction, channels);
    return made;
}

/* A call with alphas or betas of all magnitudes. */
static struct test_call make_per_channel_call(const struct listed_kernel *kernel, size_t tokens, size_t channels) {
    static const float unusual[] = {0, 0x1p-149f, 1e-10f, 0.1f, 1e10f, 0x1p100f, -0.3f, -0.0f, INFINITY, NAN};
    const int is_alpha = kernel->operation == DYNNORM_DYT;
    const struct buffer *parameters = &buffers[is_alpha ? BUFFER_ALPHAS : BUFFER_BETAS];
    /* One NaN makes all dx of a row NaN in the centered DyISRU. */
    const size_t kinds = sizeof unusual / sizeof *unusual - (kernel->operation == DYNNORM_CENTERED_DYISRU ? 4 : 0);
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    unsigned used = 0;
    made.call.parameter_per_channel = 1;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (uses(kernel->operation, kernel->direction, &buffers[i]) && (i < BUFFERS || &buffers[i] == parameters))
            used |= 1u << i;
    made.memory = allocate_selected(&made.call, used, 0);
    fill_inputs(&made.call, kernel->direction, channels);
    for (size_t i = 3; i < channels; i += 7)
        set_float_at(buffer_data(&made.call, parameters), i, unusual[i / 7 % kinds]);
    return made;
}

/* A call of the group at one number of channels, its buffers filled. */
static struct test_call make_call(const struct listed_kernel *kernel, const struct group *group, size_t channels) {
    size_t tokens = group->tokens ? group->tokens : 1 + channels % 9;
    if (group->variant >= ALL_BF16)
        return make_buffered_call(kernel, group->variant, tokens, channels);
    struct test_call made = group->variant == PER_CHANNEL ? make_per_channel_call(kernel, tokens, channels)
                                                          : new_call(kernel, tokens, channels, channels);
    dynnorm_descriptor *call = &made.call;
    if (group->variant == OTHER_COEFFICIENTS) {
        call->eps = 0;
        call->alpha = 40;
        call->beta = 0;
        call->scale = -0.3f;
    }
    if (group->variant == HUGE_WEIGHTS) {
        call->scale = 3;
        for (size_t i = 2; i < channels; i += 5)
            set_float_at(call->weight.data, i, 3e38f);
    }
    if (group->variant == WEIGHT_OFFSET)
        call->weight_offset = 1;
    for (size_t i = 0; group->kind == ZERO_WEIGHT && i < channels; i++)
        set_float_at(call->weight.data, i, i % 3 ? 0.0f : -0.0f);
    for (size_t i = 1; group->kind == VANISHING_X && call->bias.data && i < channels; i += 4)
        set_float_at(call->bias.data, i, 0); /* which would hide what is tiny */

    if (group->kind == LIMIT_OF_MEANS) /* so that the limit lies at various places between two floats */
        call->eps *= 1 + (float)channels * 0x1p-23f;
    call->keep_output_in_cache = group->variant == READ_AT_ONCE;
    fill_tensor(call, &buffers[BUFFER_X], group->kind, channels);
    if (kernel->direction == BACKWARD_PASS) {
        fill_tensor(call, &buffers[BUFFER_DY], group->kind, channels);
        if (group->variant == FORWARD_STATISTICS || group->variant == NEAR_STATISTICS)
            compute_statistics(call);
        else if (group->variant == GIVEN_STATISTICS)
            fill_statistics(call, channels);
        else
            call->mean = call->rstd = NULL;
        /* With such statistics a tiny dy makes sums that are not tiny, in some rows. */
        const int are_inconsistent = group->kind == VANISHING_DY && group->variant == GIVEN_STATISTICS && call->rstd;
        for (size_t row = 0; are_inconsistent && row < tokens; row++)
            call->rstd[row] = ldexpf(call->rstd[row], 2 * (int)row);
        if (group->variant == NEAR_STATISTICS) /* so that sums over tokens need what a mean lacks, in some rows */
            for (size_t row = first_near_row(tokens); row < tokens && row < END_OF_NEAR_ROWS; row += 3)
                call->mean[row] += (float)(row % 7 + 1) * 0x1p-23f / call->rstd[row];
    }
    if (group->variant == NO_PARAMETERS)
        call->weight.data = call->bias.data = NULL;
    return made;
}

static void run_or_exit(const struct listed_kernel *kernel, const dynnorm_descriptor *call) {
    dynnorm_status status = run_call(kernel->direction, call);
    if (status != DYNNORM_OK) {
        fprintf(stderr, "%s, %zu tokens, %zu channels: %s\n", kernel->name, call->tokens, call->channels,
                dynnorm_status_string(status));
        exit(2);
    }
}

/* Sizes of caches, and AMD's family of the CPU, that the library is made to believe in; SIZE_MAX and REAL_FAMILY are
 * the real ones. */
struct caches {
    size_t level1;
    size_t level2;
    size_t level3;
    int family;
};

static int use_caches(const struct caches *caches) {
    return pretend_level1_cache(caches->level1) && pretend_caches(caches->level2, caches->level3) &&
           pretend_amd_family(caches->family);
}

static const struct caches real_caches = {SIZE_MAX, SIZE_MAX, SIZE_MAX, REAL_FAMILY};

enum { CACHES_AT_MOST = 6 };

/* As they were before a call. */
static void make_outputs_untouched(const dynnorm_descriptor *call, enum direction direction) {
    for (int i = 0; i < EVERY_BUFFER; i++) {
        if (!writes(call->operation, direction, &buffers[i]) || !buffer_data(call, &buffers[i]))
            continue;
        for (size_t row = 0; row < buffer_rows(call, &buffers[i]); row++)
            memset(buffer_row(call, &buffers[i], row), UNTOUCHED, buffer_row_bytes(call, &buffers[i]));
    }
    if (call->y_scales)
        memset(call->y_scales, UNTOUCHED, call->tokens * sizeof *call->y_scales);
}

/* The hashes of a group, one for each of some caches. Their inputs are filled once, which takes a good part of
 * the time. */
static void hash_group(const struct listed_kernel *kernel, const struct group *group, const struct caches *caches,
                       size_t count, uint64_t *hashes) {
    for (size_t i = 0; i < count; i++)
        hashes[i] = fnv_start;
    for (size_t channels = group->first_channels; channels <= group->last_channels; channels += group->step) {
        struct test_call made = make_call(kernel, group, channels);
        for (size_t i = 0; i < count; i++) {
            make_outputs_untouched(&made.call, kernel->direction);
            use_caches(&caches[i]);
            run_or_exit(kernel, &made.call);
            hashes[i] = hash_outputs(hashes[i], &made.call, kernel->direction);
        }
        use_caches(&real_caches); /* for what makes the next call, too */
        free_call(&made);
    }
}

/* ---- The manifest ------------------------------------------------------------------------------------------------ */

/* A kernel's name in the manifest. It contains SLEEF's version, because another version may compute other bits. */
static void manifest_name(char *name, size_t size, const struct listed_kernel *kernel) {
#ifdef DYNNORM_HAVE_SLEEF
    if (kernel->mode == DYNNORM_SLEEF) {
        snprintf(name, size, "%s_%d.%d.%d", kernel->name, SLEEF_VERSION_MAJOR, SLEEF_VERSION_MINOR,
                 SLEEF_VERSION_PATCHLEVEL);
        return;
    }
#endif
    snprintf(name, size, "%s", kernel->name);
}

/* The hash in the manifest; 0 if it has no such line. */
static uint64_t manifest_hash(FILE *manifest, const char *kernel, const char *group) {
    char line[200], line_kernel[80], line_group[80];
    unsigned long long hash;
    rewind(manifest);
    while (fgets(line, sizeof line, manifest))
        if (sscanf(line, "%79s %79s %llx", line_kernel, line_group, &hash) == 3 && !strcmp(line_kernel, kernel) &&
            !strcmp(line_group, group))
            return hash;
    return 0;
}

/* The plainest table that runs here and has the kernel; NULL if there is none. */
static const struct isa *plainest_table(const struct listed_kernel *kernel) {
    for (size_t i = dynnorm_isa_count; i-- > 0;)
        if (dynnorm_isa_runs_here(&dynnorm_isa_list[i]) && kernel_available(&dynnorm_isa_list[i], kernel))
            return &dynnorm_isa_list[i];
    return NULL;
}

static int write_manifest(const char *path) {
    FILE *manifest = fopen(path, "w");
    if (!manifest) {
        perror(path);
        return 2;
    }
    fputs("# The bits of the library: a hash of all outputs of each kernel over each group of shapes, the same for\n"
          "# every instruction set (see test/kernels/bits.c). A line changes only with a decision to change the bits.\n"
          "# Written by: test/bits test/data/bits.txt --write\n",
          manifest);
    for (size_t k = 0; k < listed_kernel_count; k++) {
        if (listed_kernels[k].mode == DYNNORM_NATIVE)
            continue;
        const struct isa *table = plainest_table(&listed_kernels[k]);
        if (!table || !use_table(table)) {
            fprintf(stderr, "nothing here can run %s: the manifest would lack it\n", listed_kernels[k].name);
            fclose(manifest);
            return 2;
        }
        char name[80];
        manifest_name(name, sizeof name, &listed_kernels[k]);
        for (int g = 0; g < GROUPS; g++) {
            if (!has_group(&listed_kernels[k], &groups[g]))
                continue;
            uint64_t hash;
            hash_group(&listed_kernels[k], &groups[g], &real_caches, 1, &hash);
            fprintf(manifest, "%s %s %016llx\n", name, groups[g].name, (unsigned long long)hash);
        }
    }
    return fclose(manifest) ? 2 : 0;
}

/* Runs two calls of the same inputs, each by its table, and leaves the first one's in use. Returns 1, and describes the
 * first difference, if their outputs differ. */
static int compare_calls(const struct isa *table, const dynnorm_descriptor *got, const struct isa *other,
                         const dynnorm_descriptor *expected, const struct listed_kernel *kernel,
                         struct difference *difference) {
    use_table(other);
    run_or_exit(kernel, expected);
    use_table(table);
    run_or_exit(kernel, got);
    unify_nans(got, kernel->direction);
    unify_nans(expected, kernel->direction);
    return outputs_differ(got, expected, kernel->direction, difference);
}

/* Describes in text the first shape and output of a group where a table differs from another. */
static void describe_mismatch(const struct isa *table, const struct isa *other, const struct listed_kernel *kernel,
                              const struct group *group, char *text, size_t size) {
    snprintf(text, size,
             "agrees with table %s here: the bits of both have changed, or differ from run to run or between caches",
             other->identifier);
    int differ = 0;
    for (size_t channels = group->first_channels; channels <= group->last_channels && !differ;
         channels += group->step) {
        struct test_call got = make_call(kernel, group, channels), expected = make_call(kernel, group, channels);
        struct difference difference;
        differ = compare_calls(table, &got.call, other, &expected.call, kernel, &difference);
        if (differ)
            snprintf(text, size, "differs from table %s first at %zu tokens, %zu channels: %s", other->identifier,
                     got.call.tokens, channels, difference.text);
        free_call(&got);
        free_call(&expected);
    }
}

/* Whether a table's kernels make products of tiny numbers in another way on some CPUs: VEC_SUBNORMALS_ARE_SLOW. */
static int minds_tiny_numbers(const struct isa *table) {
    return strncmp(table->identifier, "scalar", 6) && strcmp(table->identifier, "neon");
}

/* The caches that a group is computed with, the real ones first. The bits must be the same: the first level decides
 * what rows of LayerNorm's and RMSNorm's backward pass are taken by pairs and, with AVX-512, which of more than 16 rows
 * of their forward pass go one by one; the distance of the last one what both passes store past the caches and, but
 * with AVX2, what they fetch; and a Zen 5, but not another maker's CPU, overlaps the groups of heads. Another maker's
 * CPU makes the products of a tiny x or dy of DyT and DyISRU by way of doubles. */
static size_t list_caches(const struct isa *table, const struct listed_kernel *kernel, const struct group *group,
                          struct caches caches[CACHES_AT_MOST]) {
    static const size_t nearest[] = {0, 1 << 15, SIZE_MAX / 2};
    static const size_t farthest[] = {1 << 20, SIZE_MAX / 2};
    const int is_normalization = kernel->operation == DYNNORM_LAYERNORM || kernel->operation == DYNNORM_RMSNORM;
    const int asks_nearest =
        group->last_channels > 1024 &&
        (kernel->direction == FORWARD_PASS ? group->tokens > 16 : group->variant == FORWARD_STATISTICS);
    const int has_heads = group->first_channels == 64 && group->last_channels == 64 && group->tokens > 48;
    const int has_tiny =
        !is_normalization && minds_tiny_numbers(table) &&
        (group->kind == VANISHING_X || (group->kind == VANISHING_DY && kernel->direction == BACKWARD_PASS));
    size_t count = 0;
    caches[count++] = real_caches;
    /* A table without a public name of its own has the same code as the one that has it. */
    if (!dynnorm_isa_is_reached_by_name(table) || !use_caches(&real_caches))
        return count;
    for (int is_amd = 0; has_tiny && is_amd < 2; is_amd++)
        caches[count++] = (struct caches){SIZE_MAX, SIZE_MAX, SIZE_MAX, is_amd ? FAMILY_OF_ZEN_5 : 0};
    if (!is_normalization)
        return count;
    for (size_t i = 0; asks_nearest && i < sizeof nearest / sizeof *nearest; i++)
        caches[count++] = (struct caches){nearest[i], SIZE_MAX, SIZE_MAX, REAL_FAMILY};
    for (int is_zen_5 = 0; has_heads && is_zen_5 < 2; is_zen_5++)
        caches[count++] = (struct caches){SIZE_MAX, SIZE_MAX, SIZE_MAX, is_zen_5 ? FAMILY_OF_ZEN_5 : 0};
    for (size_t i = 0; i < sizeof farthest / sizeof *farthest; i++)
        caches[count++] = (struct caches){SIZE_MAX, 1 << 20, farthest[i], REAL_FAMILY};
    return count;
}

/* The hash, or with some of the caches another one than the expected, if there is any. */
static uint64_t hash_with_any_cache(const struct isa *table, const struct listed_kernel *kernel,
                                    const struct group *group, uint64_t expected) {
    struct caches caches[CACHES_AT_MOST];
    uint64_t hashes[CACHES_AT_MOST];
    const size_t count = list_caches(table, kernel, group, caches);
    size_t last = 0;
    hash_group(kernel, group, caches, count, hashes);
    while (last + 1 < count && hashes[last] == expected)
        last++;
    return hashes[last];
}

static void check_manifest(const struct isa *table, const struct listed_kernel *kernel, FILE *manifest) {
    char name[80];
    const int is_whole = !thinned() || (getenv("DYNNORM_TEST_WHOLE_MANIFEST") && table_is_wanted(table));
    manifest_name(name, sizeof name, kernel);
    for (int g = 0; g < GROUPS; g++) {
        if (!has_group(kernel, &groups[g]) || (!is_whole && !groups[g].thin))
            continue;
        uint64_t expected = manifest_hash(manifest, name, groups[g].name);
        if (!expected && kernel->mode == DYNNORM_SLEEF) {
            tap_skip(name, "the manifest has no hashes for this version of SLEEF");
            return;
        }
        uint64_t got = hash_with_any_cache(table, kernel, &groups[g], expected);
        char text[400] = "";
        if (got != expected)
            describe_mismatch(table, plainest_table(kernel), kernel, &groups[g], text, sizeof text);
        tap_check(got == expected, "%s %s %s: hash %016llx, expected %016llx%s%s", table->identifier, name,
                  groups[g].name, (unsigned long long)got, (unsigned long long)expected, *text ? ": " : "", text);
    }
}

/* ---- Random calls, table against table --------------------------------------------------------------------------- */

/* A call in which everything is random, its inputs filled. */
static struct test_call make_random_call(const struct listed_kernel *kernel, struct random random) {
    enum direction direction = kernel->direction;
    size_t tokens = random_below(&random, 50);
    size_t most_channels = random_below(&random, 16) == 0 ? 2500 : random_below(&random, 4) ? 100 : 700;
    size_t channels = 1 + random_below(&random, most_channels);
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    dynnorm_descriptor *call = &made.call;
    static const float eps[] = {1e-5f, 0, 1e-12f, 1e30f};
    static const float alphas[] = {1, -0.625f, 0, 1e-45f, -1e-20f, 1e20f, -3e38f, 17};
    static const float betas[] = {1, 0.625f, 0, 1e-45f, 1e-20f, 1e20f, 3e38f, 17};
    static const float scales[] = {1, -0.625f, 0, 22.6f};
    call->eps = eps[random_below(&random, 4)];
    call->alpha = alphas[random_below(&random, 8)];
    call->beta = betas[random_below(&random, 8)];
    call->scale = scales[random_below(&random, 4)];
    call->weight_offset = (float)random_below(&random, 2);
    for (int i = 0; i < BUFFERS; i++)
        if (uses(kernel->operation, direction, &buffers[i])) {
            if (buffers[i].stride_field && random_below(&random, 2))
                set_buffer_stride(call, &buffers[i], call->channels + random_below(&random, 20));
            if (buffers[i].accumulate_field)
                set_accumulate(call, &buffers[i], (int)random_below(&random, 2));
        }
    made.memory = allocate_buffers(call, direction, sizeof(float) * random_below(&random, 16));
    fill_inputs(call, direction, random_bits(&random));
    enum row_kind kind = (enum row_kind)random_below(&random, ROW_KINDS);
    fill_tensor(call, &buffers[BUFFER_X], kind, random_bits(&random));
    if (direction == BACKWARD_PASS)
        fill_tensor(call, &buffers[BUFFER_DY], random_below(&random, 2) ? kind : ORDINARY, random_bits(&random));
    if (direction == BACKWARD_PASS && random_below(&random, 2))
        compute_statistics(call);
    for (int i = 0; i < BUFFERS; i++)
        if (uses(kernel->operation, direction, &buffers[i]) && !(buffers[i].required >> direction & 1) &&
            random_below(&random, 4) == 0) {
            int is_last_output =
                writes(kernel->operation, direction, &buffers[i]) && outputs_given(call, direction) == 1;
            if (!is_last_output)
                set_buffer_data(call, &buffers[i], NULL);
        }
    return made;
}

enum { RANDOM_CALLS = 300, FEW_RANDOM_CALLS = 10 };

static uint64_t hash_random_call(const struct listed_kernel *kernel, uint64_t seed) {
    struct test_call made = make_random_call(kernel, random_start(seed));
    run_or_exit(kernel, &made.call);
    uint64_t hash = hash_outputs(fnv_start, &made.call, kernel->direction);
    free_call(&made);
    return hash;
}

static int count_random_calls(int is_thinned) {
    return is_thinned ? FEW_RANDOM_CALLS : RANDOM_CALLS;
}

/* The hashes of all random calls by the plainest table, computed once for each kernel. */
static const uint64_t *plain_hashes(const struct listed_kernel *kernel) {
    const int calls = count_random_calls(thinned());
    static uint64_t hashes[RANDOM_CALLS];
    static const struct listed_kernel *hashed;
    if (hashed != kernel) {
        use_table(plainest_table(kernel));
        for (int i = 0; i < calls; i++)
            hashes[i] = hash_random_call(kernel, random_seed() + (uint64_t)i);
        hashed = kernel;
    }
    return hashes;
}

static void check_random_calls(const struct isa *table, const struct listed_kernel *kernel) {
    const struct isa *other = plainest_table(kernel);
    int calls = count_random_calls(thinned_for(table));
    const uint64_t *expected_hashes = plain_hashes(kernel);
    use_table(table);
    int wrong = 0;
    while (wrong < calls && hash_random_call(kernel, random_seed() + (uint64_t)wrong) == expected_hashes[wrong])
        wrong++;
    unsigned long long seed = random_seed() + (uint64_t)wrong;
    if (wrong == calls) {
        tap_check(1, "%s %s, %d random calls from seed %llu on: the bits of table %s", table->identifier, kernel->name,
                  calls, (unsigned long long)random_seed(), other->identifier);
        return;
    }
    struct test_call got = make_random_call(kernel, random_start(seed));
    struct test_call expected = make_random_call(kernel, random_start(seed));
    struct difference difference = {"the same when computed again"};
    compare_calls(table, &got.call, other, &expected.call, kernel, &difference);
    tap_check(0, "%s %s, random call with seed %llu, %zu tokens, %zu channels: table %s gives other bits: %s",
              table->identifier, kernel->name, seed, got.call.tokens, got.call.channels, other->identifier,
              difference.text);
    free_call(&got);
    free_call(&expected);
}

/* ---- Where the buffers lie --------------------------------------------------------------------------------------- */

static const size_t placement_channels[] = {1, 3, 16, 17, 63, 64, 100, 259, 1021};
enum { PLACEMENTS = sizeof placement_channels / sizeof *placement_channels };
/* A single row, and whole groups of rows, so many that the loops made for them come into play, and some rows more. */
static const size_t placement_tokens[] = {1, 4 * GROUP + 3};
enum { PLACEMENT_SHAPES = PLACEMENTS * 2 };

struct shape {
    size_t tokens, channels;
};

static struct shape placement_shape(int index) {
    return (struct shape){placement_tokens[index % 2], placement_channels[index / 2]};
}

/* Whether the call gives the bits of expected. */
static int same_bits(const struct isa *table, const struct listed_kernel *kernel, const dynnorm_descriptor *call,
                     const dynnorm_descriptor *expected, const char *how) {
    struct difference difference;
    run_or_exit(kernel, call);
    if (!outputs_differ(call, expected, kernel->direction, &difference))
        return 1;
    tap_check(0, "%s %s, %zu tokens, %zu channels, %s: %s", table->identifier, kernel->name, call->tokens,
              call->channels, how, difference.text);
    return 0;
}

/* A call whose buffers lie at misalignment bytes beyond a multiple of 64; or each at a number of its own, if random. */
static struct test_call make_misaligned(const struct listed_kernel *kernel, struct shape shape, size_t misalignment,
                                        struct random *random) {
    struct test_call made = {.call = describe(kernel, shape.tokens, shape.channels)};
    made.memory = allocate_buffers(&made.call, kernel->direction, misalignment);
    if (random) {
        allow_gaps(&made.memory);
        for (int i = 0; i < BUFFERS; i++)
            if (uses(kernel->operation, kernel->direction, &buffers[i]))
                set_buffer_data(&made.call, &buffers[i],
                                buffer_data(&made.call, &buffers[i]) + random_below(random, 64));
    }
    fill_inputs(&made.call, kernel->direction, 1);
    return made;
}

static void check_alignment(const struct isa *table, const struct listed_kernel *kernel) {
    int same = 1;
    for (int i = 0; i < PLACEMENT_SHAPES && same; i += thinned_for(table) ? 5 : 1) {
        struct shape shape = placement_shape(i);
        struct test_call expected = make_misaligned(kernel, shape, 0, NULL);
        run_or_exit(kernel, &expected.call);
        char how[80];
        for (size_t bytes = 0; bytes < 64 && same; bytes += shape.channels < 100 ? 1 : 5) {
            struct test_call made = make_misaligned(kernel, shape, bytes, NULL);
            snprintf(how, sizeof how, "all buffers misaligned by %zu bytes", bytes);
            same = same_bits(table, kernel, &made.call, &expected.call, how);
            free_call(&made);
        }
        struct random random = random_start(random_seed());
        for (size_t trial = 0; trial < 20 && same; trial++) {
            struct test_call made = make_misaligned(kernel, shape, 0, &random);
            snprintf(how, sizeof how, "each buffer misaligned at random, trial %zu", trial);
            same = same_bits(table, kernel, &made.call, &expected.call, how);
            free_call(&made);
        }
        free_call(&expected);
    }
    if (same)
        tap_check(1, "%s %s: the same bits at every alignment", table->identifier, kernel->name);
}

/* What float cannot hold, for the ways that are chosen by such data. */
enum unusual {
    NOTHING_UNUSUAL,
    INFINITE_X,
    INFINITE_DY,
    OVERFLOWING_SUMS,
    OVERFLOWING_H,
    NAN_IN_X,
    TINY_DY,
    TINY_X, /* of some rows; y of all begins with a tiny element, too */
    UNUSUAL_KINDS
};

static void make_unusual(const dynnorm_descriptor *call, enum unusual unusual) {
    const size_t channel = call->channels * 3 / 4;
    for (size_t row = 0; row < call->tokens; row++) {
        float *x = (float *)call->x.data + row * call->channels, *dy = (float *)call->dy.data + row * call->channels;
        const size_t number =
            call->tokens == 1 ? 1 : row; /* what is done to one of many is done to a single row, too */
        if (unusual == INFINITE_X && number == 1)
            x[channel] = -INFINITY;
        if (unusual == NAN_IN_X && number == 1)
            x[channel] = NAN;
        for (size_t c = 0; unusual == TINY_X && number % 2 && c < call->channels; c++)
            x[c] *= 0x1p-120f;
        if (!call->dy.data)
            continue;
        if (unusual == INFINITE_DY && number == 1)
            dy[channel] = INFINITY;
        if (unusual == OVERFLOWING_SUMS) /* only as long as they are floats */
            dy[channel] = number % 4 < 2 ? 3e38f : -3e38f;
        for (size_t c = 0; c < call->channels; c++) {
            if (unusual == OVERFLOWING_H && number % 2)
                dy[c] *= 0x1p126f;
            if (unusual == TINY_DY)
                dy[c] *= number % 2 ? 0x1p-100f : 0x1p-126f;
        }
    }
    for (size_t c = 0; unusual == OVERFLOWING_H && call->weight.data && c < call->channels; c += 3)
        set_float_at(call->weight.data, c, 0x1p100f);
    if (unusual == TINY_X && call->weight.data)
        set_float_at(call->weight.data, 0, 0x1p-120f);
    if (unusual == TINY_X && call->bias.data)
        set_float_at(call->bias.data, 0, 0);
}

static struct test_call new_unusual_call(const struct listed_kernel *kernel, struct shape shape, enum unusual unusual) {
    struct test_call made = new_call(kernel, shape.tokens, shape.channels, 1);
    make_unusual(&made.call, unusual);
    return made;
}

/* Whether each output has the same bits where the others are not asked for. */
static int alone_agrees(const struct isa *table, const struct listed_kernel *kernel, struct shape shape,
                        enum unusual unusual) {
    struct test_call expected = new_unusual_call(kernel, shape, unusual);
    int same = 1;
    run_or_exit(kernel, &expected.call);
    for (int output = 0; output < BUFFERS && same; output++) {
        if (!writes(kernel->operation, kernel->direction, &buffers[output]) ||
            !buffer_data(&expected.call, &buffers[output]))
            continue;
        struct test_call alone = new_unusual_call(kernel, shape, unusual);
        for (int other = 0; other < BUFFERS; other++) {
            int is_required = buffers[other].required >> kernel->direction & 1;
            if (other != output && !is_required && writes(kernel->operation, kernel->direction, &buffers[other]))
                set_buffer_data(&alone.call, &buffers[other], NULL);
        }
        char how[80];
        snprintf(how, sizeof how, "%s alone, unusual data %d", buffers[output].name, (int)unusual);
        same = same_bits(table, kernel, &alone.call, &expected.call, how);
        free_call(&alone);
    }
    free_call(&expected);
    return same;
}

static void check_outputs_alone(const struct isa *table, const struct listed_kernel *kernel) {
    int same = 1;
    for (int i = 0; i < PLACEMENT_SHAPES && same; i += thinned_for(table) ? 5 : 1)
        for (int unusual = 0; unusual < UNUSUAL_KINDS && same; unusual++)
            same = alone_agrees(table, kernel, placement_shape(i), (enum unusual)unusual);
    if (same)
        tap_check(1, "%s %s: the same bits whichever outputs are asked for", table->identifier, kernel->name);
}

/* Whether the call gives the same bits with the output in the input's place. */
static int in_place_agrees(const struct isa *table, const struct listed_kernel *kernel, enum buffer_index output,
                           enum buffer_index input, struct shape shape, enum unusual unusual) {
    struct test_call expected = new_unusual_call(kernel, shape, unusual);
    struct test_call in_place = new_unusual_call(kernel, shape, unusual);
    run_or_exit(kernel, &expected.call);
    set_buffer_data(&in_place.call, &buffers[output], buffer_data(&in_place.call, &buffers[input]));
    char how[80];
    snprintf(how, sizeof how, "%s in place of %s, unusual data %d", buffers[output].name, buffers[input].name,
             (int)unusual);
    int same = same_bits(table, kernel, &in_place.call, &expected.call, how);
    free_call(&in_place);
    free_call(&expected);
    return same;
}

static void check_in_place(const struct isa *table, const struct listed_kernel *kernel) {
    int same = 1;
    for (int i = 0; i < PLACEMENT_SHAPES * UNUSUAL_KINDS && same; i += thinned_for(table) ? 5 : 1) {
        const struct shape shape = placement_shape(i / UNUSUAL_KINDS);
        const enum unusual unusual = (enum unusual)(i % UNUSUAL_KINDS);
        pretend_amd_family(unusual == TINY_X ? 0 : REAL_FAMILY); /* for AMD's CPUs tiny numbers are nothing special */
        if (kernel->direction == FORWARD_PASS)
            same = in_place_agrees(table, kernel, BUFFER_Y, BUFFER_X, shape, unusual);
        else
            same = in_place_agrees(table, kernel, BUFFER_DX, BUFFER_DY, shape, unusual) &&
                   in_place_agrees(table, kernel, BUFFER_DX, BUFFER_X, shape, unusual);
    }
    pretend_amd_family(REAL_FAMILY);
    if (same)
        tap_check(1, "%s %s: the same bits in place", table->identifier, kernel->name);
}

/* The manifest has no native modes. They too give the same bits on CPUs of each maker with the same instructions, where
 * these compute tiny numbers in another way. */
static void check_makers(const struct isa *table, const struct listed_kernel *kernel) {
    int same = 1;
    for (int g = 0; g < GROUPS; g++) {
        struct caches caches[CACHES_AT_MOST];
        uint64_t hashes[CACHES_AT_MOST];
        if (!has_group(kernel, &groups[g]) || (thinned() && !groups[g].thin) ||
            (groups[g].kind != VANISHING_X && groups[g].kind != VANISHING_DY))
            continue;
        const size_t count = list_caches(table, kernel, &groups[g], caches);
        hash_group(kernel, &groups[g], caches, count, hashes);
        for (size_t i = 1; i < count; i++)
            same &= hashes[i] == hashes[0];
    }
    tap_check(same, "%s %s: the same bits on CPUs of each maker", table->identifier, kernel->name);
}

static void check_kernel(const struct isa *table, const struct listed_kernel *kernel, FILE *manifest) {
    char name[80];
    snprintf(name, sizeof name, "%s %s", table->identifier, kernel->name);
    if (!use_table(table)) {
        tap_skip(name, TABLE_IS_UNAVAILABLE);
        return;
    }
    if (!kernel_available(table, kernel)) {
        tap_skip(name, "this instruction set or build has no such kernel");
        return;
    }
    if (kernel->mode != DYNNORM_NATIVE) {
        check_manifest(table, kernel, manifest);
        check_random_calls(table, kernel);
    } else if (minds_tiny_numbers(table)) {
        check_makers(table, kernel);
    }
    if (!table_is_wanted(table))
        return;
    check_alignment(table, kernel);
    check_in_place(table, kernel);
    check_outputs_alone(table, kernel);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[2], "--write"))
        return write_manifest(argv[1]);
    FILE *manifest = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!manifest) {
        fprintf(stderr, "usage: bits MANIFEST [--write]\n");
        return 2;
    }
    for (size_t k = 0; k < listed_kernel_count; k++)
        for (size_t i = 0; i < dynnorm_isa_count; i++)
            check_kernel(&dynnorm_isa_list[i], &listed_kernels[k], manifest);
    fclose(manifest);
    return tap_done();
}
