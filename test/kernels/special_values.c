/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Puts special values (zeros of both signs, denormals, the greatest floats, infinities, NaN) into every lane of a
 * vector and into the tail, as x, dy or weight of one element among ordinary ones. Also tests two special cases of
 * ordinary values, constant rows and a beta of 0, and gradients of tiny values.
 */
#include "call.h"
#include "float_bits.h"
#include "measure.h"
#include "oracle.h"
#include "random.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* One row has the special value. There are more channels than the 64 lanes of a row sum, and they are no multiple of
 * any vector's lanes. */
enum { TOKENS = 3, SPECIAL_ROW = 1, CHANNELS = 71, KERNELS_AT_MOST = 64, TABLES_AT_MOST = 8 };

static const struct special {
    const char *name;
    float value;
} specials[] = {
    {"+0", 0.0f},           {"-0", -0.0f},          {"2^-149", 0x1p-149f},    {"-2^-149", -0x1p-149f},
    {"2^-130", 0x1p-130f},  {"FLT_MIN", FLT_MIN},   {"-FLT_MIN", -FLT_MIN},   {"2^-75", 0x1p-75f},
    {"10^19", 1e19f},       {"-10^20", -1e20f},     {"10^30", 1e30f},         {"FLT_MAX", FLT_MAX},
    {"-FLT_MAX", -FLT_MAX}, {"infinity", INFINITY}, {"-infinity", -INFINITY}, {"NaN", NAN},
};
enum { SPECIALS = sizeof specials / sizeof *specials };

enum place { IN_X, IN_DY, IN_WEIGHT, PLACES };
static const enum buffer_index place_buffers[PLACES] = {BUFFER_X, BUFFER_DY, BUFFER_WEIGHT};

static uint64_t seed;

/* Ordinary values. A plain problem has neither weight nor bias nor scale, so that y is the function itself. */
static struct problem ordinary_problem(dynnorm_operation operation, int plain) {
    struct random random = random_start(seed);
    struct problem problem = new_problem(operation, TOKENS, CHANNELS);
    dynnorm_descriptor *call = &problem.inputs.call;
    problem.seed = seed;
    for (size_t i = 0; i < TOKENS * CHANNELS; i++) {
        set_float_at(call->x.data, i, random_normal(&random));
        set_float_at(call->dy.data, i, random_normal(&random));
    }
    call->mean = call->rstd = NULL;
    call->eps = 1e-5f;
    if (plain) {
        call->weight.data = call->bias.data = NULL;
        return problem;
    }
    for (size_t c = 0; c < CHANNELS; c++)
        set_float_at(call->weight.data, c, (float)random_between(&random, 0.5, 1.5));
    for (size_t c = 0; call->bias.data && c < CHANNELS; c++)
        set_float_at(call->bias.data, c, random_normal(&random));
    set_parameter(call, 0.75f);
    call->scale = is_elementwise(operation) ? -1.5f : 1;
    return problem;
}

/* An answer whose NaNs are all the same, so that answers can be compared bit for bit. */
static struct answer solve_unified(const struct problem *problem, const struct listed_kernel *kernel) {
    struct answer answer = solve(problem, kernel->direction, kernel->mode);
    unify_nans(&answer.outputs.call, kernel->direction);
    return answer;
}

/* Whether a special value in one row left the others alone, and a special weight the other channels of y. */
static int others_untouched(const struct answer *answer, const struct answer *clean, enum place place, size_t channel) {
    static const enum buffer_index tensors[] = {BUFFER_Y, BUFFER_DX};
    for (int i = 0; i < 2; i++) {
        const unsigned char *got = buffer_data(&answer->outputs.call, &buffers[tensors[i]]);
        const unsigned char *before = buffer_data(&clean->outputs.call, &buffers[tensors[i]]);
        for (size_t t = 0; got && t < TOKENS; t++)
            for (size_t c = 0; c < CHANNELS; c++) {
                int touched = place != IN_WEIGHT ? t == SPECIAL_ROW : tensors[i] == BUFFER_DX || c == channel;
                size_t at = (t * CHANNELS + c) * sizeof(float);
                if (!touched && memcmp(got + at, before + at, sizeof(float)))
                    return 0;
            }
    }
    return 1;
}

/* Whether a plain elementwise problem gives the exact bits for a special x, where these are known. */
static int plain_element_is_exact(const struct answer *answer, float x, size_t channel, int zeros_have_signs) {
    size_t i = SPECIAL_ROW * CHANNELS + channel;
    const float *y = answer->outputs.call.y.data, *dx = answer->outputs.call.dx.data;
    if (isinf(x))
        return (!y || y[i] == (x > 0 ? 1 : -1)) && (!dx || dx[i] == 0);
    if (x == 0) /* odd functions keep the sign of a zero, but for DyISRU's in the native mode */
        return !y || (zeros_have_signs ? !memcmp(&y[i], &x, sizeof x) : y[i] == 0);
    return 1;
}

/* ---- A special value in every place ---- */

struct result {
    size_t values;
    int within_bounds;
    int untouched;
    int exact;
    int same_on_every_table;
};

/* The answers to the ordinary problem. */
static struct answer clean[TABLES_AT_MOST][KERNELS_AT_MOST];

static void check_value(dynnorm_operation operation, int plain, enum place place, const struct special *special) {
    struct result results[TABLES_AT_MOST][KERNELS_AT_MOST];
    for (size_t i = 0; i < TABLES_AT_MOST; i++)
        for (size_t k = 0; k < KERNELS_AT_MOST; k++)
            results[i][k] = (struct result){0, 1, 1, 1, 1};

    for (size_t channel = 0; channel < CHANNELS; channel += thinned() ? 6 : place == IN_X ? 1 : 3) {
        struct problem problem = ordinary_problem(operation, plain);
        problem.name = special->name;
        const struct buffer *buffer = &buffers[place_buffers[place]];
        size_t row = place == IN_WEIGHT ? 0 : SPECIAL_ROW;
        set_float_at(buffer_row(&problem.inputs.call, buffer, row), channel, special->value);
        struct expectation expected = expect(&problem.inputs.call);
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != operation || (place == IN_DY && kernel->direction == FORWARD_PASS))
                continue;
            struct answer first;
            int is_first = 1;
            for (size_t i = 0; i < dynnorm_isa_count; i++) {
                const struct isa *isa = &dynnorm_isa_list[i];
                if (why_kernel_is_unavailable(isa, kernel))
                    continue;
                struct result *result = &results[i][k];
                struct answer answer = solve_unified(&problem, kernel);
                struct tally tally;
                memset(&tally, 0, sizeof tally);
                measure_answer(&problem, &expected, isa, kernel, &answer, &tally);
                result->values += all_errors(&tally).values;
                result->within_bounds &= all_errors(&tally).failures == 0;
                result->untouched &= others_untouched(&answer, &clean[i][k], place, channel);
                if (plain && place == IN_X && is_elementwise(operation))
                    result->exact &= plain_element_is_exact(&answer, special->value, channel,
                                                            operation == DYNNORM_DYT || kernel->mode != DYNNORM_NATIVE);
                if (is_first) {
                    first = answer;
                } else {
                    struct difference difference;
                    if (kernel->mode != DYNNORM_NATIVE)
                        result->same_on_every_table &=
                            !outputs_differ(&answer.outputs.call, &first.outputs.call, kernel->direction, &difference);
                    free_answer(&answer);
                }
                is_first = 0;
            }
            if (!is_first)
                free_answer(&first);
        }
        free_expectation(&expected);
        free_problem(&problem);
    }

    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct result *result = &results[i][k];
            if (result->values == 0)
                continue;
            tap_check(result->within_bounds && result->untouched && result->exact && result->same_on_every_table,
                      "%s, %s, %s: %s as %s in any lane%s%s%s%s", listed_kernels[k].name,
                      dynnorm_isa_list[i].identifier, plain ? "plain" : "weighted", special->name,
                      buffers[place_buffers[place]].name, result->within_bounds ? "" : "; not as expected",
                      result->untouched ? "" : "; changes other elements", result->exact ? "" : "; not exact",
                      result->same_on_every_table ? "" : "; other bits than the first table");
        }
}

static void check_special_values(dynnorm_operation operation, int plain) {
    struct problem problem = ordinary_problem(operation, plain);
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            memset(&clean[i][k], 0, sizeof clean[i][k]);
            if (listed_kernels[k].operation != operation)
                continue;
            const char *why = why_kernel_is_unavailable(&dynnorm_isa_list[i], &listed_kernels[k]);
            if (why)
                tap_skip(listed_kernels[k].name, why);
            else
                clean[i][k] = solve_unified(&problem, &listed_kernels[k]);
        }
    for (int place = 0; place < PLACES; place++)
        for (int s = 0; s < SPECIALS; s++)
            /* The library does not promise what an infinite dy or weight gives. */
            if (place == IN_X || (!isinf(specials[s].value) && !(place == IN_WEIGHT && plain)))
                check_value(operation, plain, (enum place)place, &specials[s]);
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++)
            free_answer(&clean[i][k]);
    free_problem(&problem);
}

/* ---- Results that are exact whatever the bounds say ---- */

/* Solves a pass of a problem by every table and mode; check says whether an answer is right. */
static void check_pass(struct problem *problem, enum direction direction, const char *what,
                       int (*check)(const dynnorm_descriptor *call)) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != problem->inputs.call.operation || kernel->direction != direction ||
                why_kernel_is_unavailable(&dynnorm_isa_list[i], kernel))
                continue;
            struct answer answer = solve(problem, direction, kernel->mode);
            tap_check(answer.status == DYNNORM_OK && check(&answer.outputs.call), "%s, %s: %s, %zu channels",
                      kernel->name, dynnorm_isa_list[i].identifier, what, answer.outputs.call.channels);
            free_answer(&answer);
        }
}

static void check_exact(struct problem *problem, const char *what, int (*check)(const dynnorm_descriptor *call)) {
    check_pass(problem, FORWARD_PASS, what, check);
    check_pass(problem, BACKWARD_PASS, what, check);
}

/* Whether an output, if the call has it, holds zeros only. */
static int is_zero(const dynnorm_descriptor *call, enum buffer_index output) {
    const struct buffer *buffer = &buffers[output];
    const void *data = buffer_data(call, buffer);
    for (size_t i = 0; data && i < buffer_rows(call, buffer) * buffer_columns(call, buffer); i++)
        if (float_at(data, i) != 0)
            return 0;
    return 1;
}

/* n is 0 everywhere, so y is the bias and dweight is 0. Without eps, rstd and dx are 0 as well. */
static int row_is_constant(const dynnorm_descriptor *call) {
    const float *y = call->y.data, *bias = call->bias.data;
    for (size_t i = 0; y && i < call->tokens * call->channels; i++)
        if (y[i] != (bias ? bias[i % call->channels] : 0))
            return 0;
    if (!is_zero(call, BUFFER_DWEIGHT))
        return 0;
    return call->eps > 0 || (is_zero(call, BUFFER_RSTD) && is_zero(call, BUFFER_DX));
}

/* Row after row of one of these. RMSNorm has n = 0 only for zeros, which come first. */
static const float constants[] = {0,      -0.0f,     1,       0.1f,    -3.3e7f,  1e30f,   0.01f,
                                  1e-30f, 0x1p-149f, -1e-40f, FLT_MAX, -FLT_MAX, 16777215};

static void check_rows_of(dynnorm_operation operation, const float *values, size_t tokens, size_t channels,
                          int with_eps) {
    struct problem problem = new_problem(operation, tokens, channels);
    dynnorm_descriptor *call = &problem.inputs.call;
    struct random random = random_start(seed);
    char what[100];
    for (size_t i = 0; i < tokens * channels; i++) {
        set_float_at(call->x.data, i, values[i / channels]);
        set_float_at(call->dy.data, i, random_normal(&random));
    }
    for (size_t c = 0; c < channels; c++)
        set_float_at(call->weight.data, c, random_normal(&random));
    for (size_t c = 0; call->bias.data && c < channels; c++) /* any bias but 0 hides an n that is almost 0 */
        set_float_at(call->bias.data, c, c % 3 ? random_normal(&random) : 0);
    call->mean = call->rstd = NULL;
    call->eps = with_eps ? 1e-5f : 0;
    /* The centered DyISRU has no eps; its dx is 0 only if beta is. */
    set_parameter(call, with_eps ? 1 : 0);
    snprintf(what, sizeof what, "%zu constant rows from %g on, eps %g", tokens, (double)values[0], (double)call->eps);
    check_exact(&problem, what, row_is_constant);
    free_problem(&problem);
}

static void check_constant_rows(dynnorm_operation operation) {
    static const size_t counts[] = {1, 2, 3, 5, 7, 16, 17, 63, 64, 65, 100, 128, 129, 1000, 4097, 65536};
    /* A row by itself has a loop of its own. Its mean must come from a division: a product with the reciprocal of
     * such a number does not always give the row's value. */
    static const size_t counts_of_one_row[] = {49, 91, 93, 98, 99, 196, 1000};
    const size_t rows = operation == DYNNORM_RMSNORM ? 2 : sizeof constants / sizeof *constants;
    for (int with_eps = 0; with_eps < 2; with_eps++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (counts[i] <= 60000 || !thinned())
                check_rows_of(operation, constants, rows, counts[i], with_eps);
        for (size_t i = 0; i < sizeof counts_of_one_row / sizeof *counts_of_one_row; i++)
            for (size_t row = 0; row < rows; row++)
                check_rows_of(operation, constants + row, 1, counts_of_one_row[i], with_eps);
    }
}

static double bound_in(const dynnorm_descriptor *call, enum buffer_index output) {
    return bound_factor(find_bound(call->operation, output), call->mode) * UNIT_ROUNDOFF;
}

/* The first element of x is 1, and the others are all the same. So the first n is the root of the others' number. dy is
 * 1 for that element and 0 for the others, so that dweight is the same number. */
static int is_one_among_equals(const dynnorm_descriptor *call) {
    const float *y = call->y.data, *dweight = call->dweight.data;
    double others = (double)(call->channels - 1), channels = (double)call->channels, n = sqrt(others);
    double x = (double)((const float *)call->x.data)[1], mean = x + (1 - x) / channels;
    if (!y)
        return fabs((double)dweight[0] - n) <= bound_in(call, BUFFER_DWEIGHT) * n && dweight[1] == 0;
    return fabs((double)call->mean[0] - mean) <= bound_in(call, BUFFER_MEAN) * mean &&
           fabs((double)call->rstd[0] * (1 - x) * n / channels - 1) <= bound_in(call, BUFFER_RSTD) &&
           fabs((double)y[0] - n) <= bound_in(call, BUFFER_Y) * n &&
           fabs((double)y[1] + 1 / n) <= bound_in(call, BUFFER_Y);
}

/* A row of more than 2^22 channels. Then the sums of x less an element of the row may cancel even in double. */
static void check_one_among_equals(void) {
    size_t channels = ((size_t)65 << 16) + 5;
    struct problem problem = new_problem(DYNNORM_LAYERNORM, 1, channels);
    dynnorm_descriptor *call = &problem.inputs.call;
    call->weight.data = call->bias.data = NULL;
    call->mean = call->rstd = NULL;
    call->eps = 0;
    for (size_t c = 0; c < channels; c++)
        set_float_at(call->x.data, c, c == 0 ? 1 : 0.3f);
    set_float_at(call->dy.data, 0, 1);
    check_exact(&problem, "one among equals", is_one_among_equals);
    free_problem(&problem);
}

/* q is sign(x), whose slope is 0, and so dx is 0. */
static int is_sign(const dynnorm_descriptor *call) {
    const float *y = call->y.data, *x = call->x.data;
    for (size_t i = 0; y && i < call->tokens * call->channels; i++)
        if (y[i] != call->scale * (float)((x[i] > 0) - (x[i] < 0)))
            return 0;
    return is_zero(call, BUFFER_DX);
}

/* Where x is 0, dbeta is 0 as well. */
static int is_sign_of_zero(const dynnorm_descriptor *call) {
    return is_sign(call) && is_zero(call, BUFFER_DBETA);
}

static void check_beta_of_zero(void) {
    for (size_t channels = 1; channels <= 150; channels += thinned() ? 37 : 3) {
        struct random random = random_start(seed + channels);
        struct problem problem = new_problem(DYNNORM_DYISRU, TOKENS, channels);
        dynnorm_descriptor *call = &problem.inputs.call;
        float *x = call->x.data, *dy = call->dy.data;
        call->weight.data = call->bias.data = NULL;
        call->beta = 0;
        call->scale = -1.5f;
        for (size_t i = 0; i < TOKENS * channels; i++) {
            dy[i] = random_normal(&random);
            do {
                x[i] = float_of_bits((uint32_t)random_bits(&random)); /* of any magnitude, infinities included */
            } while (isnan(x[i]));
            if (random_below(&random, 8) == 0)
                x[i] = specials[random_below(&random, SPECIALS - 1)].value;
        }
        check_exact(&problem, "a beta of 0 gives the sign", is_sign);
        for (size_t i = 0; i < TOKENS * channels; i++)
            x[i] = i % 2 ? 0.0f : -0.0f;
        check_exact(&problem, "a beta of 0 gives 0 for zeros", is_sign_of_zero);
        for (size_t i = 0; i < TOKENS * channels; i++)
            dy[i] = i % 3 ? FLT_MAX : -FLT_MAX;
        check_exact(&problem, "a beta of 0 gives 0 for zeros and the greatest gradients", is_sign_of_zero);
        free_problem(&problem);
    }
}

/* None of dweight is infinite: half of dy times q is not, even if rounding carries q beyond 1. */
static int is_dweight_finite(const dynnorm_descriptor *call) {
    const float *dweight = call->dweight.data;
    for (size_t c = 0; dweight && c < call->channels; c++)
        if (!isfinite(dweight[c]))
            return 0;
    return 1;
}

static void check_greatest_dy(size_t tokens) {
    enum { CHANNELS_OF_ROW = 1 << 12 };
    struct problem problem = new_problem(DYNNORM_DYISRU, tokens, CHANNELS_OF_ROW);
    dynnorm_descriptor *call = &problem.inputs.call;
    struct random random = random_start(seed);
    call->scale = 0.5f;
    for (int i = 0; i < (thinned() ? 2 : 8); i++) {
        call->beta = expf(random_normal(&random));
        for (size_t c = 0; c < tokens * CHANNELS_OF_ROW; c++) {
            set_float_at(call->x.data, c, sqrtf(call->beta) * expf(9 + random_normal(&random)));
            set_float_at(call->dy.data, c, c >= CHANNELS_OF_ROW ? 0 : c % 2 ? FLT_MAX : -FLT_MAX);
        }
        check_pass(&problem, BACKWARD_PASS, "the greatest dy, times a q near 1", is_dweight_finite);
    }
    free_problem(&problem);
}

/* y within the bound of DyT and DyISRU, where float holds it and the function. */
static int is_right_y(const dynnorm_descriptor *call) {
    const float *y = call->y.data, *x = call->x.data, *weight = call->weight.data, *bias = call->bias.data;
    double factor = call->mode == DYNNORM_NATIVE ? 2 : 1;
    for (size_t i = 0; y && i < call->tokens * call->channels; i++) {
        size_t c = i % call->channels;
        double value = (double)x[i], beta = (double)call->beta;
        double f = call->operation == DYNNORM_DYT ? tanh((double)call->alpha * value)
                                                  : (value == 0 ? 0 : value / sqrt(beta + value * value));
        double product = (double)weight[c] * (double)call->scale * f, exact = product + (double)bias[c];
        double bound = factor * (8 * 0x1p-24 * (fabs(product) + fabs((double)bias[c])) + 0x1p-149);
        if (fabs(exact) + bound > (double)FLT_MAX || (f != 0 && fabs(f) < 0x1p-120))
            continue;
        if (!(fabs((double)y[i] - exact) <= bound))
            return 0;
    }
    return 1;
}

/* Scales, weights and parameters whose products overflow or underflow, and every magnitude of x. Any part of a vector
 * may hold the channels where they do. */
static void check_hard_factors(dynnorm_operation operation, size_t tokens) {
    static const float scales[] = {1, 1e-24f, 0x1p-149f, 0x3p-149f, 1e-38f, 1e38f, -1e20f};
    static const float weights[] = {1, -1, 1e30f, 1e-30f, 1e10f, FLT_MAX, FLT_MIN, 0};
    static const float parameters[] = {1, 2e-18f, 1e-19f, 1e-45f, 1e20f, FLT_MAX, 0x1p-60f, 0x1p60f, 0};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t p = 0; p < sizeof parameters / sizeof *parameters; p++) {
            struct random random = random_start(seed + 10 * s + p);
            struct problem problem = new_problem(operation, tokens, 1 + random_below(&random, 300));
            dynnorm_descriptor *call = &problem.inputs.call;
            float *x = call->x.data, *weight = call->weight.data, *bias = call->bias.data;
            size_t choice = random_below(&random, 2) ? sizeof weights / sizeof *weights : 2;
            set_parameter(call, parameters[p]);
            call->scale = scales[s];
            for (size_t c = 0; c < call->channels; c++) {
                weight[c] = weights[random_below(&random, choice)] * (float)random_between(&random, 0.5, 1);
                bias[c] = random_below(&random, 2) ? 0 : random_normal(&random);
            }
            for (size_t i = 0; i < tokens * call->channels; i++) {
                ((float *)call->dy.data)[i] = 1;
                do {
                    x[i] = random_below(&random, 2) ? random_normal(&random)
                                                    : float_of_bits((uint32_t)random_bits(&random));
                } while (!isfinite(x[i]));
            }
            char what[100];
            snprintf(what, sizeof what, "%zu rows, scale %g, parameter %g", tokens, (double)call->scale,
                     (double)parameters[p]);
            check_pass(&problem, FORWARD_PASS, what, is_right_y);
            free_problem(&problem);
        }
}

/* A weight and a function whose product with the scale is beyond float's range, whichever of them is multiplied to it
 * first, and a bias that brings y back. */
static void check_bias_against_overflow(dynnorm_operation operation, size_t tokens) {
    struct problem problem = new_problem(operation, tokens, CHANNELS);
    dynnorm_descriptor *call = &problem.inputs.call;
    struct random random = random_start(seed);
    set_parameter(call, 1);
    call->scale = 0x1.cp127f;
    for (size_t c = 0; c < CHANNELS; c++) {
        set_float_at(call->weight.data, c, (float)random_between(&random, 2.5, 3));
        set_float_at(call->bias.data, c, -FLT_MAX);
    }
    for (size_t i = 0; i < tokens * CHANNELS; i++)
        set_float_at(call->x.data, i, (float)random_between(&random, 0.6, 1));
    check_pass(&problem, FORWARD_PASS, "a bias against a product that overflows", is_right_y);
    free_problem(&problem);
}

/* ---- Gradients whose terms, or factors of these, leave float's range though the results do not ---- */

/* Compares a problem's gradients with the oracle's, and frees the problem. */
static void check_gradients(struct problem *problem, const char *what) {
    const dynnorm_descriptor *call = &problem->inputs.call;
    struct expectation expected = expect(call);
    problem->name = what;
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct isa *isa = &dynnorm_isa_list[i];
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != call->operation || kernel->direction != BACKWARD_PASS ||
                why_kernel_is_unavailable(isa, kernel))
                continue;
            struct answer answer = solve(problem, kernel->direction, kernel->mode);
            struct tally tally;
            memset(&tally, 0, sizeof tally);
            measure_answer(problem, &expected, isa, kernel, &answer, &tally);
            struct errors errors = all_errors(&tally);
            tap_check(errors.values > 0 && errors.failures == 0, "%s, %s: %s, %zu x %zu", kernel->name, isa->identifier,
                      what, call->tokens, call->channels);
            free_answer(&answer);
        }
    free_expectation(&expected);
    free_problem(problem);
}

/* A problem without weight and bias, with the same values everywhere, but for the significands of x. */
static struct problem even_problem(dynnorm_operation operation, size_t tokens, size_t channels, float x, float dy) {
    struct problem problem = new_problem(operation, tokens, channels);
    dynnorm_descriptor *call = &problem.inputs.call;
    struct random random = random_start(seed);
    call->weight.data = call->bias.data = NULL;
    for (size_t i = 0; i < tokens * channels; i++) {
        set_float_at(call->x.data, i, x * (float)random_between(&random, 1, 1.5));
        set_float_at(call->dy.data, i, dy);
    }
    return problem;
}

struct isru_case {
    float beta, x, dy, scale;
};

static void check_isru_cases(dynnorm_operation operation, size_t tokens, size_t channels, const struct isru_case *cases,
                             size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct problem problem = even_problem(operation, tokens, channels, cases[i].x, cases[i].dy);
        dynnorm_descriptor *call = &problem.inputs.call;
        char what[100];
        snprintf(what, sizeof what, "beta %g, x %g, dy %g, scale %g", (double)cases[i].beta, (double)cases[i].x,
                 (double)cases[i].dy, (double)cases[i].scale);
        call->beta = cases[i].beta;
        call->scale = cases[i].scale;
        /* What is left of x less its mean is as large as x. */
        for (size_t k = 1; operation == DYNNORM_CENTERED_DYISRU && k < tokens * channels; k += 2)
            set_float_at(call->x.data, k, -float_at(call->x.data, k));
        check_gradients(&problem, what);
    }
}

/* dy / (beta + x^2) leaves float's range once x and beta have been scaled such that beta is near 1. */
static void check_tiny_dbeta(size_t tokens, size_t channels) {
    static const struct isru_case cases[] = {
        {0x1p-100f, 1, 0x1p-100f, 1}, {0x1p-60f, 1, 0x1p-125f, 1},        {0x1p-20f, 1, 0x1p-140f, 1},
        {1e-45f, 1, 0x1p-80f, 1},     {0x1p-100f, 1, 0x1p-100f, 0x1p60f}, {0x1p-100f, 0x1p-149f, 0x1p-120f, 1},
    };
    check_isru_cases(DYNNORM_DYISRU, tokens, channels, cases, sizeof cases / sizeof *cases);
}

/* Factors of the centered DyISRU's gradients leave float's range. */
static void check_centered_factors(size_t tokens, size_t channels) {
    static const struct isru_case cases[] = {
        {0x1p90f, 0x1p45f, 1, 0x1p60f},                  /* scale beta sqrt(beta) */
        {0x1.9abcdep-80f, 0x1p-42f, 1, 0x1.345678p-60f}, /* scale beta */
        {0x1p-140f, 0x1p-70f, 1, 1},                     /* beta + u^2 */
        {0, 0x1p-70f, 0x1p-60f, 1},                      /* 1 / u^2 */
    };
    check_isru_cases(DYNNORM_CENTERED_DYISRU, tokens, channels, cases, sizeof cases / sizeof *cases);
}

static void check_tiny_dalpha(size_t tokens, size_t channels) {
    /* A multiple of x (1 - t^2) would be wrong by that multiple of an underflow, which the scale brings to light. */
    struct problem problem = even_problem(DYNNORM_DYT, tokens, channels, 0, 1);
    for (size_t i = 0; i < tokens * channels; i++)
        set_float_at(problem.inputs.call.x.data, i, 0x1p-148f);
    problem.inputs.call.scale = 0x1p61f;
    check_gradients(&problem, "subnormal x");
    /* alpha x dy underflows, and x dy hardly does. */
    problem = even_problem(DYNNORM_DYT, tokens, channels, 0, 0x1.fcp-73f);
    for (size_t i = 0; i < tokens * channels; i++)
        set_float_at(problem.inputs.call.x.data, i, 0x1p-75f);
    problem.inputs.call.alpha = 0.125f;
    check_gradients(&problem, "subnormal terms of dalpha");
}

/* Every element is so far out that 1 - t^2 is tiny, on either side of where it begins to count as 0. */
static void check_far_dalpha(size_t tokens, size_t channels) {
    static const float z[] = {30.5f, 32, 0x1.000002p5f, 40, 47, 84, 1000};
    for (size_t i = 0; i < sizeof z / sizeof *z; i++) {
        struct problem problem = even_problem(DYNNORM_DYT, tokens, channels, 0, 0x1p30f);
        for (size_t k = 0; k < tokens * channels; k++) { /* all terms of dalpha have the same sign */
            set_float_at(problem.inputs.call.x.data, k, k % 2 ? z[i] : -z[i]);
            set_float_at(problem.inputs.call.dy.data, k, k % 2 ? 0x1p30f : -0x1p30f);
        }
        problem.inputs.call.alpha = 1;
        check_gradients(&problem, "1 - t^2 is tiny");
    }
}

/* The weight times what else is constant in dx underflows, and dx does not. */
static void check_tiny_weight(dynnorm_operation operation, size_t tokens, size_t channels) {
    struct problem problem = even_problem(operation, tokens, channels, 1, 0x1p60f);
    float weight[300];
    for (size_t c = 0; c < channels; c++)
        weight[c] = 0x1.345678p-120f;
    problem.inputs.call.weight.data = weight;
    problem.inputs.call.scale = 0x1.9abcdep-20f;
    check_gradients(&problem, "tiny weight times slope");
}

/* dy rstd underflows where dy n does not: in all of a row, or in every other channel. Then nothing but the sums over
 * tokens tells of it. Beside such channels there may be some whose dy is 0 in all rows, so that float loses nothing;
 * and the others may have terms in the last row alone. */
static void check_tiny_dweight(dynnorm_operation operation, size_t tokens, size_t channels) {
    static const struct {
        float x, dy, other_dy;
        int has_zeros;
    } cases[] = {
        {0x1p46f, 0x1p-111f, 0x1p-111f, 0}, {0x1p46f, 0x1p-111f, 1, 0}, {0x1p38f, 0x1p-111f, 1, 0},
        {0x1p61f, 0x1p-71f, 1, 0},          {0x1p46f, 0x1p-111f, 1, 1}, {0x1p46f, 0x1p-111f, 0x1p-111f, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int are_given = 0; are_given < 2; are_given++) {
            struct problem problem = even_problem(operation, tokens, channels, cases[i].x, cases[i].dy);
            dynnorm_descriptor *call = &problem.inputs.call, forward = *call;
            char what[100];
            for (size_t k = 1; k < tokens * channels; k += 2)
                set_float_at(call->dy.data, k, cases[i].other_dy);
            for (size_t k = 0; cases[i].has_zeros && k < tokens * channels; k++) {
                const size_t channel = k % channels;
                if (channel % 4 == 2 || (channel % 4 == 0 && k / channels + 1 < tokens))
                    set_float_at(call->dy.data, k, 0);
            }
            snprintf(what, sizeof what, "x %g, dy %g and %g%s, statistics %s", (double)cases[i].x, (double)cases[i].dy,
                     (double)cases[i].other_dy, cases[i].has_zeros ? ", some 0" : "",
                     are_given ? "given" : "recomputed");
            if (!are_given)
                call->mean = call->rstd = NULL;
            else if (dynnorm_forward(&forward) != DYNNORM_OK)
                abort();
            check_gradients(&problem, what);
        }
}

/* dy rstd overflows, in all of a row or in every other channel, where neither dx nor dweight does. */
static void check_overflowing_products(dynnorm_operation operation, size_t tokens, size_t channels) {
    static const float other_dy[] = {0x1p120f, 1};
    for (size_t i = 0; i < sizeof other_dy / sizeof *other_dy; i++) {
        struct problem problem = even_problem(operation, tokens, channels, 0x1p-20f, 0x1p120f);
        float weight[300];
        dynnorm_descriptor *call = &problem.inputs.call, forward;
        for (size_t c = 0; c < channels; c++)
            weight[c] = 0x1p-40f;
        for (size_t k = 1; k < tokens * channels; k += 2)
            set_float_at(call->dy.data, k, other_dy[i]);
        call->weight.data = weight;
        call->eps = 0;
        forward = *call;
        if (dynnorm_forward(&forward) != DYNNORM_OK)
            abort();
        check_gradients(&problem, other_dy[i] == 1 ? "some of dy rstd overflow" : "dy rstd overflows");
    }
}

/* The weight of the channel in which dy overflows. Elsewhere it is 1. */
#define WEIGHT_OF_OVERFLOW 0x1p-100f

static size_t channel_of_overflow(const dynnorm_descriptor *call) {
    size_t channel = 0;
    while (float_at(call->weight.data, channel) != WEIGHT_OF_OVERFLOW)
        channel++;
    return channel;
}

/* Where dy is not 1, it adds up to 0 in each four rows. */
static int is_overflowing_dbias_exact(const dynnorm_descriptor *call) {
    static const float sums[] = {0, 1, 2, 1};
    const size_t channel = channel_of_overflow(call);
    for (size_t c = 0; call->dbias.data && c < call->channels; c++) {
        const float sum = sums[call->tokens % 4], dbias = float_at(call->dbias.data, c);
        if (dbias != (c == channel ? sum * 0x1.8p127f : c == channel + 1 ? sum : (float)call->tokens))
            return 0;
    }
    return 1;
}

/* dy of two rows overflow together in a channel, and nothing else does: dweight is small there, and so is the weight.
 * Bounds promise nothing then, but every instruction set gives the same. */
static void check_overflowing_dbias(size_t tokens, size_t channels, size_t channel) {
    struct problem problem = even_problem(DYNNORM_LAYERNORM, tokens, channels, 1, 1);
    float weight[300];
    dynnorm_descriptor *call = &problem.inputs.call, forward;
    char what[100];
    for (size_t c = 0; c < channels; c++)
        weight[c] = c == channel ? WEIGHT_OF_OVERFLOW : 1;
    for (size_t row = 0; row < tokens; row++) {
        const float sign = row % 4 < 2 ? 1 : -1;
        const size_t first = row * channels;
        set_float_at(call->x.data, first + channel, sign * 0x1p-40f);
        for (size_t c = 1; c < channels; c += 2) /* lest the mean has lost anything to rounding */
            set_float_at(call->x.data, first + c, -float_at(call->x.data, first + c - 1));
        if (channels % 2)
            set_float_at(call->x.data, first + channels - 1, 0);
        set_float_at(call->dy.data, first + channel, sign * 0x1.8p127f);
        /* lest its terms of dweight cancel, which leads to another way */
        set_float_at(call->dy.data, first + channel + 1, sign);
    }
    call->weight.data = weight;
    forward = *call;
    if (dynnorm_forward(&forward) != DYNNORM_OK)
        abort();
    snprintf(what, sizeof what, "dbias of two rows overflows in channel %zu", channel);
    check_exact(&problem, what, is_overflowing_dbias_exact);
    free_problem(&problem);
}

static int is_overflow_beside_nan_exact(const dynnorm_descriptor *call) {
    return !call->dx.data || (isfinite(float_at(call->dx.data, channel_of_overflow(call))) &&
                              isnan(float_at(call->dx.data, (call->tokens - 1) * call->channels)));
}

/* dy rstd overflows in the first row, and the last has a NaN. So all sums for dweight are NaN, and none of them tells
 * of the overflow. */
static void check_overflow_beside_nan(dynnorm_operation operation, size_t tokens, size_t channels, size_t channel) {
    struct problem problem = even_problem(operation, tokens, channels, 0x1p-10f, 1);
    float weight[300];
    dynnorm_descriptor *call = &problem.inputs.call, forward;
    char what[100];
    for (size_t c = 0; c < channels; c++)
        weight[c] = c == channel ? WEIGHT_OF_OVERFLOW : 1;
    for (size_t k = 1; k < tokens * channels; k += 2)
        set_float_at(call->x.data, k, -float_at(call->x.data, k));
    set_float_at(call->dy.data, channel, 0x1p122f);
    set_float_at(call->x.data, tokens * channels - 1, NAN);
    call->weight.data = weight;
    forward = *call;
    if (dynnorm_forward(&forward) != DYNNORM_OK)
        abort();
    snprintf(what, sizeof what, "dy rstd overflows in channel %zu beside a row with a NaN", channel);
    check_exact(&problem, what, is_overflow_beside_nan_exact);
    free_problem(&problem);
}

/* Nothing but NaN in x or in dy, which has a way of its own, or all but one element, which has not. */
static void check_nothing_but_nan(dynnorm_operation operation, size_t tokens, size_t channels) {
    static const char *const cases[] = {"all of x is NaN", "all of dy is NaN", "all of x but one is NaN",
                                        "all of dy but one is NaN"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem = even_problem(operation, tokens, channels, 0.5f, 1);
        dynnorm_descriptor *call = &problem.inputs.call;
        void *data = i % 2 ? call->dy.data : call->x.data;
        const size_t other = tokens * channels / 2;
        for (size_t k = 0; k < tokens * channels; k++) {
            if (i % 2 == 0)
                set_float_at(call->dy.data, k, (float)(1 + k % 7));
            if (i < 2 || k != other)
                set_float_at(data, k, NAN);
        }
        set_parameter(call, 0.5f);
        check_gradients(&problem, cases[i]);
    }
}

static int is_dbias_zero(const dynnorm_descriptor *call) {
    return is_zero(call, BUFFER_DBIAS);
}

static int are_sums_of_dy_zero(const dynnorm_descriptor *call) {
    return is_zero(call, BUFFER_DBIAS) && is_zero(call, BUFFER_DWEIGHT);
}

/* dy adds up to 0 in four rows, though not in float. What else is NaN hides nothing of that: an element of x in the
 * same channel, which makes its sum for dweight NaN, or all of x; or a weight, which dweight does not depend on. */
static void check_overflow_beside_other_nan(dynnorm_operation operation, size_t channels, size_t channel) {
    static const char *const cases[] = {"sums of dy overflow beside a NaN in x", "sums of dy overflow, all of x is NaN",
                                        "sums of dy overflow beside a NaN in the weight"};
    for (int i = 0; i < 3; i++) {
        struct problem problem = even_problem(operation, 8, channels, 1, 0);
        dynnorm_descriptor *call = &problem.inputs.call;
        float weight[300];
        for (size_t c = 0; c < channels; c++)
            weight[c] = i == 2 && c == channel ? NAN : 1;
        if (i == 2)
            call->weight.data = weight;
        for (size_t row = 0; row < call->tokens; row++) {
            const float half = row % 4 < 2 ? 1 : -1, x = i == 2 && row % 2 ? -1 : 1; /* then dbias does not overflow */
            set_float_at(call->dy.data, row * channels + channel, half * x * 0x1.8p127f);
            set_float_at(call->x.data, row * channels + channel, i == 0 && row == 0 ? NAN : x);
            for (size_t c = 0; i == 1 && c < channels; c++)
                set_float_at(call->x.data, row * channels + c, NAN);
        }
        set_parameter(call, 0.5f);
        check_exact(&problem, cases[i], i == 2 ? are_sums_of_dy_zero : is_dbias_zero);
        free_problem(&problem);
    }
}

/* A product that leaves the range in one element of a single row, which has a loop of its own where it has a weight.
 * LayerNorm's x has both signs, lest what its mean has lost to rounding leads to another way. */
static void check_products_of_one_row(dynnorm_operation operation) {
    static const struct {
        const char *name;
        float x, dy, weight;
    } cases[] = {{"dy rstd underflows", 0x1p38f, 0x1p-111f, 1}, {"dy rstd overflows", 0x1p-10f, 0x1p120f, 0x1p-100f}};
    static const size_t places[] = {0, 150, 300}; /* in either block of the row, and in a vector that is not whole */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
            struct problem problem = even_problem(operation, 1, 301, cases[i].x, 1);
            float weight[301];
            dynnorm_descriptor *call = &problem.inputs.call, forward;
            char what[100];
            for (size_t c = 0; c < call->channels; c++) {
                weight[c] = cases[i].weight;
                if (c % 2)
                    set_float_at(call->x.data, c, -float_at(call->x.data, c));
            }
            set_float_at(call->dy.data, places[place], cases[i].dy);
            call->weight.data = weight;
            forward = *call;
            if (dynnorm_forward(&forward) != DYNNORM_OK)
                abort();
            snprintf(what, sizeof what, "%s in channel %zu", cases[i].name, places[place]);
            check_gradients(&problem, what);
        }
}

/* All terms of dalpha are alike. h (1 - t^2) is subnormal, and x multiplies it. */
static void check_dalpha_of_small_alpha(const struct isa *isa, const struct listed_kernel *kernel) {
    static const float alphas[] = {0x1p-4f, -0x1p-20f, 0x1p-60f};
    const size_t tokens = 5, channels = 71;
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        struct problem problem = even_problem(DYNNORM_DYT, tokens, channels, 0, 0x1p-105f);
        const double z = 12, x = z / (double)alphas[i];
        for (size_t k = 0; k < tokens * channels; k++)
            set_float_at(problem.inputs.call.x.data, k, (float)x);
        problem.inputs.call.alpha = alphas[i];
        struct answer answer = solve(&problem, BACKWARD_PASS, kernel->mode);
        const double dalpha = (double)*answer.outputs.call.dalpha,
                     exact = (double)(tokens * channels) * 0x1p-105 * x / (cosh(z) * cosh(z));
        tap_check(fabs(dalpha - exact) <= (12 + 4 * z) * 0x1p-24 * fabs(exact), "%s, %s: dalpha with an alpha of %g",
                  kernel->name, isa->identifier, (double)alphas[i]);
        free_answer(&answer);
        free_problem(&problem);
    }
}

/* Rounding may carry 1 - t^2 beyond 1, where dy is the largest float. dx is less, since alpha or the scale is. */
static void check_dx_of_greatest_h(const struct isa *isa, const struct listed_kernel *kernel) {
    static const float alphas_and_scales[][2] = {{1, 0}, {0x1.fffffep-10f, 1}, {1, 0x1.fffffep-50f}};
    for (size_t i = 0; i < sizeof alphas_and_scales / sizeof *alphas_and_scales; i++) {
        struct problem problem = even_problem(DYNNORM_DYT, 16, 300, 0, FLT_MAX);
        struct random random = random_start(seed);
        problem.inputs.call.alpha = alphas_and_scales[i][0], problem.inputs.call.scale = alphas_and_scales[i][1];
        for (size_t k = 0; k < 16 * 300; k++)
            set_float_at(problem.inputs.call.x.data, k,
                         (float)random_between(&random, -0.01, 0.01) / problem.inputs.call.alpha);
        struct answer answer = solve(&problem, BACKWARD_PASS, kernel->mode);
        int are_finite = 1;
        for (size_t k = 0; k < 16 * 300; k++)
            are_finite &= isfinite(float_at(answer.outputs.call.dx.data, k)) != 0;
        tap_check(are_finite, "%s, %s: dx of the greatest h, alpha %g, scale %g", kernel->name, isa->identifier,
                  (double)alphas_and_scales[i][0], (double)alphas_and_scales[i][1]);
        free_answer(&answer);
        free_problem(&problem);
    }
}

static void check_dyt_limits(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != DYNNORM_DYT || kernel->direction != BACKWARD_PASS ||
                why_kernel_is_unavailable(&dynnorm_isa_list[i], kernel))
                continue;
            check_dx_of_greatest_h(&dynnorm_isa_list[i], kernel);
            if (kernel->mode != DYNNORM_NATIVE)
                check_dalpha_of_small_alpha(&dynnorm_isa_list[i], kernel);
        }
}

/* dx of elements that are 0, or of a beta of 0: no other factor of it depends on x. */
static int is_dx_of_zero(const dynnorm_descriptor *call) {
    const double u = 0x1p-24, factor = call->operation == DYNNORM_DYT ? (double)call->scale * (double)call->alpha
                                       : call->beta == 0              ? 0
                                                                      : (double)call->scale / sqrt((double)call->beta);
    for (size_t i = 0; call->dx.data && i < call->tokens * call->channels; i++) {
        const double h = (double)float_at(call->weight.data, i % call->channels) * (double)float_at(call->dy.data, i);
        if (!(fabs((double)float_at(call->dx.data, i) - factor * h) <= 20 * u * fabs(factor * h)))
            return 0;
    }
    return 1;
}

/* h overflows, which scale, alpha or beta make good: dx is 0, or a float. */
static void check_overflow_before_small_factor(size_t tokens, size_t channels) {
    static const struct {
        dynnorm_operation operation;
        float parameter;
        float scale;
        float x;
        float weight;
        const char *what;
    } cases[] = {{DYNNORM_DYT, 0, 1, 0, 0x1p100f, "alpha is 0"},
                 {DYNNORM_DYT, 0x1p-100f, 1, 0, 0x1p100f, "alpha is small"},
                 {DYNNORM_DYT, 1, 0, 0, 0x1p100f, "scale is 0"},
                 {DYNNORM_DYT, 1, -0x1p-100f, 0, 0x1p100f, "scale is small"},
                 {DYNNORM_DYISRU, 0, 1, 1, 0x1p100f, "beta is 0"},
                 {DYNNORM_DYISRU, 0x1p-8f, 0x1p-100f, 0, 0x1p100f, "scale and beta are small"},
                 {DYNNORM_DYISRU, 0x1p-2f, 0x1p-100f, 0, 0x1.8p27f, "only the root of beta makes it overflow"},
                 {DYNNORM_DYISRU, 1, 0, 0, 0x1p100f, "scale is 0"},
                 {DYNNORM_DYISRU, 1, -0x1p-100f, 0, 0x1p100f, "scale is small"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct problem problem = even_problem(cases[i].operation, tokens, channels, cases[i].x, 0x1p100f);
        dynnorm_descriptor *call = &problem.inputs.call;
        float weight[300];
        for (size_t c = 0; c < channels; c++)
            weight[c] = (c + 1) % 3 ? cases[i].weight : 0x1p-100f; /* in a vector, some elements overflow */
        call->weight.data = weight;
        call->scale = cases[i].scale;
        set_parameter(call, cases[i].parameter);
        char what[100];
        snprintf(what, sizeof what, "h overflows in dx, %s", cases[i].what);
        check_pass(&problem, BACKWARD_PASS, what, is_dx_of_zero);
        free_problem(&problem);
    }
}

static void check_intermediate_results(void) {
    static const size_t shapes[][2] = {{1, 1}, {1, 300}, {5, 71}, {8, 64}, {16, 300}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_tiny_dbeta(shapes[i][0], shapes[i][1]);
        check_tiny_dalpha(shapes[i][0], shapes[i][1]);
        check_far_dalpha(shapes[i][0], shapes[i][1]);
        check_centered_factors(shapes[i][0], shapes[i][1]);
        check_overflow_before_small_factor(shapes[i][0], shapes[i][1]);
        check_tiny_weight(DYNNORM_DYT, shapes[i][0], shapes[i][1]);
        check_tiny_weight(DYNNORM_DYISRU, shapes[i][0], shapes[i][1]);
        check_tiny_dweight(DYNNORM_LAYERNORM, shapes[i][0], shapes[i][1]);
        check_tiny_dweight(DYNNORM_RMSNORM, shapes[i][0], shapes[i][1]);
        check_overflowing_products(DYNNORM_LAYERNORM, shapes[i][0], shapes[i][1]);
        check_overflowing_products(DYNNORM_RMSNORM, shapes[i][0], shapes[i][1]);
        check_nothing_but_nan(DYNNORM_DYT, shapes[i][0], shapes[i][1]);
        check_nothing_but_nan(DYNNORM_DYISRU, shapes[i][0], shapes[i][1]);
        check_nothing_but_nan(DYNNORM_CENTERED_DYISRU, shapes[i][0], shapes[i][1]);
        if (shapes[i][1] > 1)
            check_overflowing_dbias(shapes[i][0], shapes[i][1], 0);
    }
    /* Where short rows are done by several vectors at once, these are not the first. */
    check_overflowing_dbias(8, 200, 130);
    check_overflowing_dbias(16, 230, 228);
    for (int operation = DYNNORM_LAYERNORM; operation <= DYNNORM_RMSNORM; operation++) {
        check_overflow_beside_nan((dynnorm_operation)operation, 8, 32, 2);
        check_overflow_beside_nan((dynnorm_operation)operation, 5, 71, 70);
        check_overflow_beside_nan((dynnorm_operation)operation, 8, 300, 258);
    }
    for (size_t channel = 0; channel < 71; channel += 10) {
        check_overflow_beside_other_nan(DYNNORM_DYT, 71, channel);
        check_overflow_beside_other_nan(DYNNORM_DYISRU, 71, channel);
    }
    check_products_of_one_row(DYNNORM_LAYERNORM);
    check_products_of_one_row(DYNNORM_RMSNORM);
}

int main(void) {
    seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    if (dynnorm_isa_count > TABLES_AT_MOST || listed_kernel_count > KERNELS_AT_MOST)
        abort();
    for (int operation = 0; operation < OPERATIONS; operation++) {
        printf("# %s\n", dynnorm_operations[operation].name);
        check_special_values((dynnorm_operation)operation, 1);
        check_special_values((dynnorm_operation)operation, 0);
        if (!is_elementwise((dynnorm_operation)operation))
            check_constant_rows((dynnorm_operation)operation);
    }
    if (!thinned())
        check_one_among_equals();
    check_beta_of_zero();
    for (size_t tokens = 1; tokens <= TOKENS; tokens += TOKENS - 1) {
        check_hard_factors(DYNNORM_DYT, tokens);
        check_hard_factors(DYNNORM_DYISRU, tokens);
        check_bias_against_overflow(DYNNORM_DYT, tokens);
        check_bias_against_overflow(DYNNORM_DYISRU, tokens);
        check_greatest_dy(tokens);
    }
    check_intermediate_results();
    check_dyt_limits();
    use_table(NULL);
    return tap_done();
}
