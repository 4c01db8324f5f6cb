/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Climbs towards the worst case of each output of each kernel, by the table of bounds:
 *
 *     search [--seconds N | --climbs N] [--only TEXT] [--table NAME] [--seed N] [--patience N] [--few]
 *            [--channels N] [--print] [--markdown]
 *
 * A climb begins with rows and parameters that were hard for some kernel before, or with random ones. It changes a few
 * values at a time, keeps what does not lessen the error against its bound, and gives up after so many tries in a row
 * (its patience) that did not increase it. What a climb finds depends on its seed and patience alone, so that both
 * together repeat it.
 *
 * --seconds shares this time among the outputs, 60 by default; --climbs makes this many climbs for each of them.
 * --only selects those whose name contains the text, such as "dyt_backward_native" or "layernorm_backward_portable dx".
 * --seed makes only the climb of this seed. --table takes another table than the best one of this machine; the portable
 * mode has the same bits on all of them. --few tries at most eight tokens of at most four channels, where a sum over
 * tokens has few roundings, but all of them may go one way: more climbs in less time. --channels tries rows of this
 * length alone, without weights, whose extremes a climb would wander off to. --print shows the values of the worst
 * case. --markdown prints a table instead of test results.
 */
#include "bounds.h"
#include "call.h"
#include "float_bits.h"
#include "measure.h"
#include "oracle.h"
#include "random.h"
#include "row_patterns.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What is climbed for: one output of one kernel. */
struct target {
    char name[100];
    const struct listed_kernel *kernel;
    const struct bound *bound;
    int gives_statistics; /* to backward: those that forward computed */
};

/* What a climb found. */
struct find {
    double in_bounds; /* the greatest error, as a multiple of its bound */
    double in_u;
    size_t index; /* of the value with that error, in its output */
    uint64_t seed;
    size_t patience;
    size_t tokens;
    size_t channels;
    size_t tries;
};

/* The inputs at hand. */
struct position {
    struct problem problem;
    int gives_statistics;
    int mean_steps; /* floats between the given mean or rstd and what forward computed */
    int rstd_steps;
};

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory)
        abort();
    return memory;
}

static int one_in(struct random *random, size_t count) {
    return random_below(random, count) == 0;
}

static float move_float(float value, int32_t steps) {
    float moved = float_of_bits(bits_of_float(value) + (uint32_t)steps);
    return isfinite(moved) ? moved : value;
}

static double random_sign(struct random *random) {
    return one_in(random, 2) ? 1 : -1;
}

/* Any sign, any bits in the significand, and most often a magnitude near 1. Every other one is just above or below a
 * power of two. */
static float random_value(struct random *random) {
    double significand = random_between(random, 1, 2);
    if (one_in(random, 2))
        significand = 1 + random_sign(random) * ldexp(random_between(random, 0, 1), -(int)random_below(random, 22));
    int exponent = one_in(random, 3) ? (int)random_below(random, 25) - 12 : (int)random_below(random, 3) - 1;
    return (float)(random_sign(random) * ldexp(significand, exponent));
}

/* ---- Where a climb begins ---- */

static int has_few_values;
static size_t only_channels; /* 0: any number */

static size_t random_channels(struct random *random) {
    if (only_channels)
        return only_channels;
    if (has_few_values)
        return 1 + random_below(random, 4);
    switch (random_below(random, 16)) {
    case 0: /* 1 to 65536, each power of two as likely as another */
        return (size_t)ldexp(random_between(random, 1, 2), (int)random_below(random, 16));
    case 1:
        return (size_t)64 << random_below(random, 5);
    case 2:
    case 3:
    case 4:
        return 1 + random_below(random, 300);
    default:
        return 1 + random_below(random, 24);
    }
}

/* Few tokens are where a sum over them has most to lose; a row needs no others beside it. */
static size_t random_tokens(struct random *random, const struct target *target, size_t channels) {
    enum buffer_shape shape = buffers[target->bound->output].shape;
    if (has_few_values)
        return 1 + random_below(random, 8);
    if (shape == ROWS_OF_CHANNELS || shape == ONE_PER_ROW || channels > 4096)
        return one_in(random, 8) ? 1 + random_below(random, 9) : 1;
    return one_in(random, 8) ? 1 + random_below(random, 100) : 1 + random_below(random, 12);
}

/* A few values, which repeat at every 16 channels or so: then all lanes of a sum have the same roundings. */
static void fill_few_values(struct random *random, float *values, size_t count) {
    float few[4];
    size_t kinds = 1 + random_below(random, 4);
    size_t run = one_in(random, 2) ? 16 : 1 + random_below(random, 70), shift = random_below(random, 64);
    for (size_t i = 0; i < kinds; i++)
        few[i] = random_value(random);
    for (size_t i = 0; i < count; i++)
        values[i] = few[(i + shift) / run % kinds];
}

/* Equal magnitudes, and all signs equal but one. */
static void fill_one_sign_flipped(struct random *random, float *values, size_t count) {
    float value = random_value(random);
    for (size_t i = 0; i < count; i++)
        values[i] = value;
    values[random_below(random, count)] = -value;
}

/* A mean of up to 10^6 deviations. */
static void fill_with_offset(struct random *random, float *values, size_t count) {
    double offset = random_sign(random) * pow(10, random_between(random, -2, 6));
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(offset + (double)random_normal(random));
}

static void fill_with_outlier(struct random *random, float *values, size_t count) {
    int equal_magnitudes = one_in(random, 2);
    for (size_t i = 0; i < count; i++)
        values[i] = equal_magnitudes ? (float)random_sign(random) : random_normal(random);
    values[random_below(random, count)] = (float)(sqrt((double)count) * random_between(random, 0.1, 100));
}

static void fill_positive(struct random *random, float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = fabsf(random_value(random));
}

static void fill_small(struct random *random, float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = ldexpf(random_value(random), -10);
}

static void fill_random(struct random *random, float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = random_value(random);
}

static void fill_constant(struct random *random, float *values, size_t count) {
    float value = random_value(random);
    for (size_t i = 0; i < count; i++)
        values[i] = value;
}

static void fill_pattern(struct random *random, float *values, size_t count) {
    const struct pattern *pattern = &patterns[random_below(random, pattern_count)];
    pattern->fill(random, values, count, pattern->argument);
}

static void fill_row(struct random *random, float *row, size_t channels) {
    static void (*const kinds[])(struct random *, float *, size_t) = {
        fill_few_values, fill_few_values, fill_one_sign_flipped, fill_with_offset, fill_with_outlier,
        fill_positive,   fill_small,      fill_random,           fill_constant,    fill_pattern};
    kinds[random_below(random, sizeof kinds / sizeof *kinds)](random, row, channels);
}

/* A row of dy that has the signs of x, with one magnitude or two. */
static void fill_correlated(struct random *random, float *dy, const float *x, size_t channels) {
    float small = random_value(random), large = random_value(random);
    int cancels = one_in(random, 2);
    size_t run = 1 + random_below(random, channels);
    for (size_t c = 0; c < channels; c++)
        dy[c] = copysignf(c / run % 2 ? large : small, cancels && c % 2 ? -x[c] : x[c]);
}

/* mean(h n) cancels between two halves of the row, each with one magnitude of dy: all roundings of one half may go up,
 * and those of the other down. The outlier has the greatest n, which multiplies the error of mean(h n). */
static void fill_cancelling(struct random *random, float *x, float *dy, size_t channels) {
    float magnitude = random_value(random), other = magnitude * (float)random_between(random, 0.95, 1.05);
    for (size_t c = 0; c < channels; c++) {
        x[c] = c % 2 ? -1 : 1;
        dy[c] = c < channels / 2 ? x[c] * magnitude : -x[c] * other;
    }
    size_t outlier = random_below(random, channels);
    x[outlier] = (float)(sqrt((double)channels) * random_between(random, 0.5, 2));
    dy[outlier] = 0;
}

static void fill_tensors(struct random *random, dynnorm_descriptor *call) {
    size_t channels = call->channels;
    float *x = call->x.data, *dy = call->dy.data;
    int equal_rows = one_in(random, 3);
    for (size_t t = 0; t < call->tokens; t++) {
        float *x_row = x + t * channels, *dy_row = dy + t * channels;
        if (t > 0 && equal_rows) {
            memcpy(x_row, x, channels * sizeof *x);
            memcpy(dy_row, dy, channels * sizeof *dy);
            continue;
        }
        fill_row(random, x_row, channels);
        if (one_in(random, 6))
            fill_cancelling(random, x_row, dy_row, channels);
        else if (channels >= 64 && one_in(random, 3))
            fill_biased_sum(random, x_row, dy_row, channels);
        else if (one_in(random, 3))
            fill_correlated(random, dy_row, x_row, channels);
        else
            fill_row(random, dy_row, channels);
    }
    if (equal_rows && one_in(random, 2)) /* the first row outweighs the others, which move each sum by one rounding */
        for (size_t i = channels; i < call->tokens * channels; i++)
            dy[i] *= 0x1p-24f * (float)random_between(random, 0.5, 0.995);
}

static void choose_parameters(struct random *random, dynnorm_descriptor *call) {
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    size_t channels = call->channels;
    double typical = fabs((double)float_at(call->x.data, random_below(random, call->tokens * channels)));
    typical = typical > 1e-15 && typical < 1e15 ? typical : 1;
    if (only_channels || one_in(random, 3))
        call->weight.data = NULL;
    else if (one_in(random, 2))
        fill_constant(random, call->weight.data, channels);
    else
        fill_row(random, call->weight.data, channels);
    if (!only_channels && one_in(random, 2))
        call->weight_offset = one_in(random, 2) ? 1 : random_value(random);
    if (facts->has_bias && one_in(random, 2))
        fill_row(random, call->bias.data, channels);
    else
        call->bias.data = NULL;
    if (facts->has_eps)
        call->eps = one_in(random, 2) ? 0 : (float)(typical * typical * random_between(random, 0, 2));
    if (facts->has_scale)
        call->scale = one_in(random, 2) ? (float)random_between(random, 1, 2) : random_value(random);
    if (facts->parameter == offsetof(dynnorm_descriptor, alpha))
        set_parameter(call, (float)(random_between(random, 0, 2) / typical));
    else
        set_parameter(call, (float)(typical * typical * random_between(random, 0, 2)));
}

static struct position begin(struct random *random, const struct target *target) {
    size_t channels = random_channels(random), tokens = random_tokens(random, target, channels);
    struct position position = {.problem = new_problem(target->kernel->operation, tokens, channels),
                                .gives_statistics = target->gives_statistics};
    allow_gaps(&position.problem.inputs.memory); /* they are copied together with the values */
    fill_tensors(random, &position.problem.inputs.call);
    choose_parameters(random, &position.problem.inputs.call);
    return position;
}

/* ---- How bad a position is ---- */

static void give_statistics(struct position *position, float *mean, float *rstd) {
    dynnorm_descriptor *call = &position->problem.inputs.call;
    dynnorm_descriptor forward = *call;
    forward.dy.data = forward.weight.data = forward.bias.data = NULL;
    forward.mean = mean;
    forward.rstd = rstd;
    call->mean = call->rstd = NULL;
    if (dynnorm_forward(&forward) != DYNNORM_OK)
        return;
    for (size_t t = 0; t < call->tokens; t++) {
        if (mean)
            mean[t] = move_float(mean[t], position->mean_steps);
        rstd[t] = move_float(rstd[t], position->rstd_steps);
        if ((mean && !isfinite(mean[t])) || !isfinite(rstd[t]))
            return;
    }
    call->mean = mean;
    call->rstd = rstd;
}

/* The place of the statistics in the problem's memory. */
struct given_buffers {
    float *mean;
    float *rstd;
};

static void measure_position(struct position *position, const struct target *target, struct given_buffers given,
                             struct find *find) {
    const dynnorm_descriptor *call = &position->problem.inputs.call;
    const struct buffer *buffer = &buffers[target->bound->output];
    size_t count = buffer_rows(call, buffer) * buffer_columns(call, buffer);
    if (position->gives_statistics)
        give_statistics(position, given.mean, given.rstd);
    else
        position->problem.inputs.call.mean = position->problem.inputs.call.rstd = NULL;

    struct expectation expectation = {{NULL}};
    struct expected *expected = allocate(count * sizeof *expected);
    expectation.outputs[target->bound->output] = expected;
    struct question question = question_of(call);
    oracle(&question, &expectation);
    free_question(&question);
    struct answer answer = solve(&position->problem, target->kernel->direction, target->kernel->mode);
    const unsigned char *got = buffer_data(&answer.outputs.call, buffer);
    find->in_u = answer.status == DYNNORM_OK ? 0 : HUGE_VAL;
    find->index = 0;
    for (size_t i = 0; i < count; i++) {
        double in_u =
            error_in_u((double)float_at(got, i), expected_in_mode(target->bound, target->kernel->mode, expected[i]));
        if (in_u > find->in_u) {
            find->in_u = in_u;
            find->index = i;
        }
    }
    find->in_bounds = find->in_u / bound_factor(target->bound, target->kernel->mode);
    free_answer(&answer);
    free(expected);
}

/* ---- Changes ---- */

/* Some of the values of a tensor: those in a range whose index leaves this remainder, and those that equal another. */
struct selection {
    size_t first;
    size_t last;
    size_t modulus;
    size_t remainder;
    int only_equal;
    float equal;
};

static struct selection random_selection(struct random *random, const float *values, size_t count, size_t channels) {
    size_t one = random_below(random, count);
    struct selection selection = {.first = 0, .last = count - 1, .modulus = 1};
    switch (random_below(random, 8)) {
    case 0: /* all of them, or a row */
        if (one_in(random, 2))
            selection =
                (struct selection){one / channels * channels, one / channels * channels + channels - 1, 1, 0, 0, 0};
        break;
    case 1:
    case 2:
        selection.only_equal = 1;
        selection.equal = values[one];
        break;
    case 3: /* lanes, or a channel */
        selection.modulus = one_in(random, 3) ? channels : (size_t)2 << random_below(random, 6);
        selection.remainder = one % selection.modulus;
        break;
    case 4: {
        size_t length = (size_t)ldexp(random_between(random, 1, 2), (int)random_below(random, 17));
        selection.first = one;
        selection.last = count - one > length ? one + length - 1 : count - 1;
        break;
    }
    default:
        selection.first = selection.last = one;
        break;
    }
    return selection;
}

enum change { STEPS, OWN_STEPS, NEGATE, SCALE, REPLACE, REPLACE_EACH, SHIFT, CHANGES };

static int32_t random_steps(struct random *random) {
    return (int32_t)(random_sign(random) * ldexp(random_between(random, 1, 2), (int)random_below(random, 22)));
}

static void change_values(struct random *random, float *values, size_t count, size_t channels) {
    const struct selection selection = random_selection(random, values, count, channels);
    enum change change = one_in(random, 3) ? (enum change)random_below(random, CHANGES) : STEPS;
    int32_t steps = random_steps(random);
    float factor = ldexpf(1, (int)random_below(random, 5) - 2);
    float other = one_in(random, 2) ? values[random_below(random, count)] : random_value(random);
    if (one_in(random, 8))
        other = 0;
    for (size_t i = selection.first; i <= selection.last; i++) {
        if (i % selection.modulus != selection.remainder || (selection.only_equal && values[i] != selection.equal))
            continue;
        float value = values[i];
        switch (change) {
        case OWN_STEPS:
            value = move_float(value, random_steps(random));
            break;
        case NEGATE:
            value = -value;
            break;
        case SCALE:
            value *= factor;
            break;
        case REPLACE:
            value = other;
            break;
        case REPLACE_EACH:
            value = random_value(random);
            break;
        case SHIFT:
            value += other;
            break;
        default:
            value = move_float(value, steps);
            break;
        }
        if (isfinite(value))
            values[i] = value;
    }
}

static void change_number(struct random *random, float *number, int may_be_negative) {
    float changed = one_in(random, 4) ? *number * ldexpf(1, (int)random_below(random, 5) - 2)
                                      : move_float(*number, random_steps(random));
    if (one_in(random, 8))
        changed = random_value(random);
    *number = may_be_negative ? changed : fabsf(changed);
}

static void change_parameters(struct random *random, struct position *position) {
    dynnorm_descriptor *call = &position->problem.inputs.call;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    float parameter = dynnorm_parameter_of(call);
    switch (random_below(random, 5)) {
    case 0:
        if (facts->has_eps)
            change_number(random, &call->eps, 0);
        break;
    case 1:
        change_number(random, &parameter, facts->parameter == offsetof(dynnorm_descriptor, alpha));
        set_parameter(call, parameter);
        break;
    case 2:
        if (facts->has_scale)
            change_number(random, &call->scale, 1);
        break;
    case 3:
        if (call->weight.data)
            change_number(random, &call->weight_offset, 1);
        break;
    default:
        position->mean_steps = (int)random_below(random, 7) - 3;
        position->rstd_steps = (int)random_below(random, 7) - 3;
        break;
    }
}

static void change_position(struct random *random, struct position *position, enum direction direction) {
    dynnorm_descriptor *call = &position->problem.inputs.call;
    size_t channels = call->channels, values = call->tokens * channels;
    for (int more = 1; more; more = one_in(random, 3))
        switch (random_below(random, 8)) {
        case 0:
            change_parameters(random, position);
            break;
        case 1:
            if (call->weight.data)
                change_values(random, call->weight.data, channels, channels);
            break;
        case 2:
            if (call->bias.data && direction == FORWARD_PASS)
                change_values(random, call->bias.data, channels, channels);
            break;
        case 3:
        case 4:
            if (direction == BACKWARD_PASS)
                change_values(random, call->dy.data, values, channels);
            break;
        default:
            change_values(random, call->x.data, values, channels);
            break;
        }
}

/* ---- A climb ---- */

/* Long rows take longer to try, so that they are tried less often. */
enum { VALUES_FOR_EACH_TRY = 4096 };

static struct find climb(const struct target *target, uint64_t seed, size_t patience, struct position *end) {
    struct random random = random_start(seed);
    struct position position = begin(&random, target);
    dynnorm_descriptor *call = &position.problem.inputs.call;
    const struct given_buffers given = {call->mean, call->rstd};
    const struct memory memory = position.problem.inputs.memory;
    size_t values = call->tokens * call->channels, spent = 0;
    struct find best = {.seed = seed, .patience = patience, .tokens = call->tokens, .channels = call->channels};
    struct position kept = position;
    unsigned char *kept_memory = allocate(memory.bytes);
    memcpy(kept_memory, memory.start, memory.bytes);
    measure_position(&position, target, given, &best);
    for (size_t in_vain = 0; in_vain < patience && spent < patience * VALUES_FOR_EACH_TRY; in_vain++) {
        struct find found = best;
        change_position(&random, &position, target->kernel->direction);
        measure_position(&position, target, given, &found);
        spent += values;
        best.tries++;
        if (found.in_u >= best.in_u) {
            if (found.in_u > best.in_u)
                in_vain = 0;
            found.tries = best.tries;
            best = found;
            kept = position;
            memcpy(kept_memory, memory.start, memory.bytes);
        } else {
            position = kept;
            memcpy(memory.start, kept_memory, memory.bytes);
        }
    }
    free(kept_memory);
    if (end)
        *end = position;
    else
        free_problem(&position.problem);
    return best;
}

/* ---- What is printed ---- */

static void print_values(const char *name, const float *values, size_t count, size_t step) {
    enum { VALUES_AT_MOST = 128 };
    if (!values)
        return;
    printf("#   %s:", name);
    for (size_t i = 0; i < count && i < VALUES_AT_MOST; i++)
        printf(" %a", (double)values[i * step]);
    printf("%s\n", count > VALUES_AT_MOST ? " ..." : "");
}

/* The inputs that matter to the worst value: its row, its channel in every row, or all. */
static void print_worst(const struct target *target, const struct find *find) {
    struct position position;
    climb(target, find->seed, find->patience, &position);
    const dynnorm_descriptor *call = &position.problem.inputs.call;
    const float *x = call->x.data, *dy = target->kernel->direction == BACKWARD_PASS ? call->dy.data : NULL;
    const float *weight = call->weight.data, *bias = call->bias.data;
    size_t channels = call->channels, first = 0, count = call->tokens * channels, step = 1;
    size_t weights = channels;
    switch (buffers[target->bound->output].shape) {
    case ROWS_OF_CHANNELS:
        first = find->index / channels * channels;
        count = channels;
        break;
    case ONE_PER_ROW:
        first = find->index * channels;
        count = channels;
        break;
    case ONE_PER_CHANNEL:
        if (dynnorm_operations[call->operation].has_rstd || call->operation == DYNNORM_CENTERED_DYISRU)
            break;
        first = find->index;
        count = call->tokens;
        step = channels;
        weight = weight ? weight + first : NULL;
        weights = 1;
        break;
    case ONE_OR_PER_CHANNEL:
        break;
    }
    printf("#   value %zu of %s; eps %a, alpha or beta %a, scale %a, weight offset %a\n", find->index,
           buffers[target->bound->output].name, (double)call->eps, (double)dynnorm_parameter_of(call),
           (double)call->scale, (double)call->weight_offset);
    if (buffers[target->bound->output].shape == ROWS_OF_CHANNELS)
        printf("#   there x is %a, dy %a, weight %a, bias %a\n", (double)x[find->index],
               dy ? (double)dy[find->index] : 0, weight ? (double)weight[find->index % channels] : 1,
               bias ? (double)bias[find->index % channels] : 0);
    print_values("x", x + first, count, step);
    print_values("dy", dy ? dy + first : NULL, count, step);
    print_values("weight", weight, weights, 1);
    print_values("bias", target->kernel->direction == FORWARD_PASS ? bias : NULL, channels, 1);
    print_values("mean", call->mean, call->tokens, 1);
    print_values("rstd", call->rstd, call->tokens, 1);
    free_problem(&position.problem);
}

static void print_row(const struct target *target, const struct find *find) {
    printf("| %s | %.3f | %.2f | %zu x %zu |\n", target->name, find->in_bounds, find->in_u, find->tokens,
           find->channels);
    fflush(stdout);
}

static void report(const struct target *target, const struct find *find, int prints) {
    tap_check(find->in_bounds <= 1, "%s: %.3f of the bound (%.2f u), %zu x %zu, --seed %llu --patience %zu",
              target->name, find->in_bounds, find->in_u, find->tokens, find->channels, (unsigned long long)find->seed,
              find->patience);
    if (prints)
        print_worst(target, find);
    fflush(stdout);
}

/* ---- All targets ---- */

enum { TARGETS_AT_MOST = 200, PATIENCE = 100, GREATEST_PATIENCE = 6400, CLIMBS_IN_A_TURN = 4 };

static size_t find_targets(struct target *targets, const char *only) {
    size_t count = 0;
    for (size_t k = 0; k < listed_kernel_count; k++)
        for (int b = 0; b < BOUND_COUNT; b++)
            for (int gives = 0; gives < 2; gives++) {
                const struct listed_kernel *kernel = &listed_kernels[k];
                struct target target = {.kernel = kernel, .bound = &bounds[b], .gives_statistics = gives};
                int can_give = kernel->direction == BACKWARD_PASS && dynnorm_operations[kernel->operation].has_rstd;
                if (bounds[b].operation != kernel->operation ||
                    !writes(kernel->operation, kernel->direction, &buffers[bounds[b].output]) || (gives && !can_give))
                    continue;
                snprintf(target.name, sizeof target.name, "%s %s%s", kernel->name, buffers[bounds[b].output].name,
                         gives ? ", statistics given" : "");
                if (strstr(target.name, only)) {
                    if (count == TARGETS_AT_MOST)
                        abort();
                    targets[count++] = target;
                }
            }
    return count;
}

/* One more climb: every fourth time the best one so far, with more patience. */
static void climb_again(const struct target *target, size_t number, uint64_t first_seed, struct find *best) {
    int goes_on = number % CLIMBS_IN_A_TURN == CLIMBS_IN_A_TURN - 1 && best->patience < GREATEST_PATIENCE;
    uint64_t seed = goes_on ? best->seed : first_seed + number;
    struct find find = climb(target, seed, goes_on ? 4 * best->patience : PATIENCE, NULL);
    if (number == 0 || find.in_u > best->in_u || goes_on)
        *best = find;
}

static double seconds_now(void) {
    return (double)clock() / CLOCKS_PER_SEC;
}

static const struct isa *table_named(const char *name) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (name ? !strcmp(name, isa->identifier) : dynnorm_active_kernels() == isa->kernels)
            return isa;
    }
    return NULL;
}

static int usage(const char *program) {
    fprintf(stderr,
            "usage: %s [--seconds N | --climbs N] [--only TEXT] [--table NAME] [--seed N] [--patience N] [--few] "
            "[--channels N] [--print] [--markdown]\n",
            program);
    return 2;
}

int main(int count, char **arguments) {
    static struct target targets[TARGETS_AT_MOST];
    static struct find finds[TARGETS_AT_MOST];
    double seconds = 60;
    size_t climbs = 0, patience = PATIENCE;
    const char *only = "", *table = NULL;
    uint64_t seed = random_seed();
    int has_seed = 0, prints = 0, markdown = 0, exceeded = 0;
    for (int i = 1; i < count; i++) {
        const char *value = i + 1 < count ? arguments[i + 1] : "";
        if (!strcmp(arguments[i], "--print")) {
            prints = 1;
            continue;
        }
        if (!strcmp(arguments[i], "--few")) {
            has_few_values = 1;
            continue;
        }
        if (!strcmp(arguments[i], "--markdown")) {
            markdown = 1;
            continue;
        }
        if (!*value)
            return usage(arguments[0]);
        if (!strcmp(arguments[i], "--seconds") && strtod(value, NULL) > 0)
            seconds = strtod(value, NULL);
        else if (!strcmp(arguments[i], "--climbs") && strtoull(value, NULL, 10) > 0)
            climbs = (size_t)strtoull(value, NULL, 10);
        else if (!strcmp(arguments[i], "--only"))
            only = value;
        else if (!strcmp(arguments[i], "--table"))
            table = value;
        else if (!strcmp(arguments[i], "--patience") && strtoull(value, NULL, 10) > 0)
            patience = (size_t)strtoull(value, NULL, 10);
        else if (!strcmp(arguments[i], "--channels") && strtoull(value, NULL, 10) > 0)
            only_channels = (size_t)strtoull(value, NULL, 10);
        else if (!strcmp(arguments[i], "--seed")) {
            seed = strtoull(value, NULL, 0);
            has_seed = 1;
        } else
            return usage(arguments[0]);
        i++;
    }
    const struct isa *isa = table_named(table);
    if (!isa || !use_table(isa)) {
        fprintf(stderr, "%s: %s\n", arguments[0], isa ? TABLE_IS_UNAVAILABLE : "there is no such table");
        return 2;
    }
    size_t target_count = find_targets(targets, only);
    if (!target_count) {
        fprintf(stderr, "%s: nothing is named %s\n", arguments[0], only);
        return 2;
    }
    if (markdown)
        printf("| output | of the bound | in u | tokens x channels |\n|---|---|---|---|\n");
    else
        printf("# table %s, first seed %llu\n", isa->identifier, (unsigned long long)seed);
    if (thinned() && climbs > CLIMBS_IN_A_TURN)
        climbs = CLIMBS_IN_A_TURN;
    for (size_t i = 0; i < target_count; i++) {
        if (!kernel_available(isa, targets[i].kernel)) {
            if (!markdown)
                tap_skip(targets[i].name, why_kernel_is_unavailable(isa, targets[i].kernel));
            continue;
        }
        double end = seconds_now() + seconds / (double)target_count;
        if (has_seed)
            finds[i] = climb(&targets[i], seed, patience, NULL);
        for (size_t n = 0; !has_seed && (climbs ? n < climbs : n == 0 || seconds_now() < end); n++)
            climb_again(&targets[i], n, seed, &finds[i]);
        exceeded |= finds[i].in_bounds > 1;
        if (markdown)
            print_row(&targets[i], &finds[i]);
        else
            report(&targets[i], &finds[i], prints);
    }
    return markdown ? exceeded : tap_done();
}
