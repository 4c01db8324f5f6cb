/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares every kernel of every table with the oracle, by the table of bounds.
 *
 *     accuracy [--markdown | --bounds] [OPERATION...]
 *
 * --markdown prints the greatest errors as a table instead of test results, --bounds the table of bounds.
 */
#include "call.h"
#include "measure.h"
#include "random.h"
#include "row_patterns.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum group {
    CHANNEL_COUNTS,
    HARD_ROWS,
    REPETITIVE_ROWS,
    PARAMETERS,
    MANY_TOKENS,
    CONTRIVED_SUMS,
    WRONG_MEANS,
    BIASED_MEANS,
    GROUPS
};
static const char *const group_names[GROUPS] = {"channel counts", "hard rows",      "repetitive rows", "parameters",
                                                "many tokens",    "contrived sums", "wrong means",     "biased means"};

enum { TABLES_AT_MOST = 8, KERNELS_AT_MOST = 64 };
static struct tally tallies[TABLES_AT_MOST][KERNELS_AT_MOST][GROUPS];
static int tables_available[TABLES_AT_MOST];

static uint64_t seed;

/* ---- Problems ---- */

static const struct pattern *pattern_named(const char *name) {
    for (size_t p = 0; p < pattern_count; p++)
        if (!strcmp(patterns[p].name, name))
            return &patterns[p];
    abort();
}

static const struct pattern *random_pattern(struct random *random) {
    return &patterns[random_below(random, pattern_count)];
}

static void fill_vector(struct random *random, float *vector, size_t channels) {
    static const float magnitudes[] = {1, 1, 1, 1e3f, 1e-3f};
    float magnitude = magnitudes[random_below(random, 5)];
    int sparse = random_below(random, 8) == 0;
    for (size_t c = 0; c < channels; c++)
        vector[c] = sparse && random_below(random, 2) ? 0 : magnitude * random_normal(random);
}

static float pick(struct random *random, const float *values, size_t count) {
    return values[random_below(random, count)];
}
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PICK(random, values) pick(random, values, COUNT(values))

static const float epsilons[] = {1e-5f, 1e-6f, 1e-12f, 1, 0};
static const float alphas[] = {0.5f, 1, 2, -0.7f, 1e-3f, 50, 0, 1e-30f, 1e30f};
static const float betas[] = {1, 0.3f, 100, 1e-5f, 0, 1e-45f, 1e-30f, 1e10f, 1e30f, FLT_MAX};
static const float scales[] = {1, -3, 1e-10f, 1e10f, 0};

/* Chooses everything except x, dy and the statistics at random. */
static void choose_parameters(struct random *random, struct problem *problem, int without_eps) {
    dynnorm_descriptor *call = &problem->inputs.call;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    size_t channels = call->channels;
    if (random_below(random, 4)) {
        fill_vector(random, call->weight.data, channels);
        call->weight_offset = random_below(random, 3) ? 0 : 1;
    } else {
        call->weight.data = NULL;
    }
    if (facts->has_bias && random_below(random, 3))
        fill_vector(random, call->bias.data, channels);
    else
        call->bias.data = NULL;
    call->eps = without_eps ? 0 : PICK(random, epsilons);
    if (random_below(random, 4) == 0) {
        for (int i = 0; i < BUFFERS; i++)
            if (buffers[i].accumulate_field)
                set_accumulate(call, &buffers[i], 1);
        problem->accumulated = random_normal(random);
    }
    switch (random_below(random, 4)) {
    case 0:
        call->scale = dynnorm_scale_rmsnorm(channels);
        break;
    case 1:
        call->scale = dynnorm_scale_layernorm(channels);
        break;
    case 2:
        call->scale = PICK(random, scales);
        break;
    default:
        break;
    }
    /* Half of the time, choose the parameter so that x lies in the interesting range of the function. */
    double typical = fabs((double)float_at(call->x.data, random_below(random, call->tokens * channels)));
    if (facts->parameter == offsetof(dynnorm_descriptor, alpha))
        set_parameter(call, random_below(random, 2) && typical > 1e-37 ? (float)(1 / typical) : PICK(random, alphas));
    else
        set_parameter(call,
                      random_below(random, 2) && typical < 1e19 ? (float)(typical * typical) : PICK(random, betas));
}

static void take_statistics(struct problem *problem) {
    problem->inputs.call.mean = problem->inputs.call.rstd = NULL;
}

/* Gives the problem the exact statistics, off by a few u, as a forward call elsewhere might have computed them. It gets
 * none if they are beyond the range of floats. */
static void give_statistics(struct random *random, struct problem *problem) {
    dynnorm_descriptor without = problem->inputs.call;
    without.mean = without.rstd = NULL;
    struct expectation exact = expect(&without);
    float *mean = problem->inputs.call.mean, *rstd = problem->inputs.call.rstd;
    int possible = 1;
    for (size_t t = 0; t < without.tokens; t++) {
        double exact_mean = mean ? exact.outputs[BUFFER_MEAN][t].exact : 0;
        double given_mean = exact_mean * random_between(random, 1 - 0x1p-23, 1 + 0x1p-23);
        if (mean)
            mean[t] = (float)given_mean;
        rstd[t] = (float)(exact.outputs[BUFFER_RSTD][t].exact * random_between(random, 1 - 0x1p-23, 1 + 0x1p-23));
        possible &= isfinite((float)given_mean) && isfinite(rstd[t]);
    }
    free_expectation(&exact);
    if (!possible)
        take_statistics(problem);
}

static void fill_rows(struct random *random, float *tensor, size_t tokens, size_t channels,
                      const struct pattern *pattern) {
    for (size_t t = 0; t < tokens; t++)
        pattern->fill(random, tensor + t * channels, channels, pattern->argument);
}

static struct problem make_problem(dynnorm_operation operation, const struct pattern *pattern, size_t tokens,
                                   size_t channels, uint64_t problem_seed) {
    struct random random = random_start(problem_seed);
    struct problem problem = new_problem(operation, tokens, channels);
    float *x = problem.inputs.call.x.data, *dy = problem.inputs.call.dy.data;
    problem.name = pattern->name;
    problem.seed = problem_seed;
    fill_rows(&random, x, tokens, channels, pattern);
    switch (random_below(&random, 8)) {
    case 0: /* a gradient along n, which cancels in dx */
        memcpy(dy, x, tokens * channels * sizeof *dy);
        break;
    case 1: /* a constant gradient, which cancels in LayerNorm's dx */
        fill_rows(&random, dy, tokens, channels, pattern_named("constant"));
        break;
    case 2:
    case 3:
        fill_rows(&random, dy, tokens, channels, random_pattern(&random));
        break;
    default:
        fill_rows(&random, dy, tokens, channels, patterns);
        break;
    }
    choose_parameters(&random, &problem, pattern->without_eps);
    if (dynnorm_operations[operation].has_rstd && random_below(&random, 4) == 0)
        give_statistics(&random, &problem);
    else
        take_statistics(&problem);
    return problem;
}

/* Solves the problem by every table and mode, and frees it. */
static void check(struct problem *problem, enum group group) {
    struct expectation expected = expect(&problem->inputs.call);
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        tables_available[i] = table_is_wanted(isa) && use_table(isa);
        for (size_t k = 0; k < listed_kernel_count; k++)
            if (tables_available[i] && listed_kernels[k].operation == problem->inputs.call.operation &&
                !why_kernel_is_unavailable(isa, &listed_kernels[k]))
                measure(problem, &expected, isa, &listed_kernels[k], &tallies[i][k][group]);
    }
    use_table(NULL);
    free_expectation(&expected);
    free_problem(problem);
}

static void check_channel_counts(dynnorm_operation operation) {
    static const size_t large[] = {100, 128, 255, 256, 257, 300, 511, 768, 1000, 1024, 4096, 65536};
    for (size_t channels = 1; channels <= 70; channels++) {
        struct problem problem = make_problem(operation, patterns, 3, channels, seed + channels);
        check(&problem, CHANNEL_COUNTS);
    }
    for (size_t i = 0; i < COUNT(large); i++) {
        struct problem problem = make_problem(operation, patterns, large[i] < 65536 ? 3 : 1, large[i], seed + large[i]);
        check(&problem, CHANNEL_COUNTS);
    }
}

static void check_hard_rows(dynnorm_operation operation) {
    static const size_t few[] = {1, 2, 3, 5, 16, 17, 31, 64, 65, 100, 257};
    static const size_t many[] = {768, 1029, 4096, 65536};
    for (size_t p = 0; p < pattern_count; p++) {
        for (size_t i = 0; i < COUNT(few); i++) {
            struct problem problem = make_problem(operation, &patterns[p], 4, few[i], seed ^ (p << 32 | few[i]));
            check(&problem, HARD_ROWS);
        }
        for (size_t i = 0; i < COUNT(many); i++) {
            /* An elementwise operation has nothing to lose in long rows. */
            if ((thinned() && (p + i) % 8) || (is_elementwise(operation) && many[i] > 5000 && p % 8))
                continue;
            struct problem problem = make_problem(operation, &patterns[p], 1, many[i], seed ^ (p << 32 | many[i]));
            check(&problem, HARD_ROWS);
        }
    }
}

/* Rows that consist of a few values, or of one that outweighs the others: there rounding errors add up instead of
 * cancelling. */
static void check_repetitive_rows(dynnorm_operation operation) {
    static const char *const names[] = {"random period up to 8", "two random values", "spike of 1000",
                                        "spike of 10^30 anywhere"};
    enum { TOKENS = 8 };
    size_t repetitions = thinned() ? 80 : 1600;
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        struct random random = random_start(seed ^ (repetition + 1) << 44);
        const struct pattern *pattern = pattern_named(names[repetition % 4]);
        size_t channels = 1 + repetition / 16 * 7 % 100; /* in the end, all from 1 to 100 */
        struct problem problem = make_problem(operation, pattern, TOKENS, channels, random.state);
        const float *x = problem.inputs.call.x.data;
        float *dy = problem.inputs.call.dy.data;
        for (size_t i = 0; i < TOKENS * channels; i++)
            switch (repetition / 4 % 4) {
            case 0:
                dy[i] = x[i];
                break;
            case 1:
                dy[i] = 3;
                break;
            default:
                break;
            }
        check(&problem, REPETITIVE_ROWS);
    }
}

static void check_one_setting(dynnorm_operation operation, float eps, float parameter, float scale, size_t number) {
    struct random random = random_start(seed ^ number << 40);
    const struct pattern *pattern = random_pattern(&random);
    struct problem problem = make_problem(operation, pattern, 3, 1 + random_below(&random, 200), random.state);
    problem.inputs.call.eps = eps;
    problem.inputs.call.scale = scale;
    set_parameter(&problem.inputs.call, parameter);
    take_statistics(&problem);
    check(&problem, PARAMETERS);
}

static void check_parameters(dynnorm_operation operation) {
    size_t number = 0;
    size_t repetitions = thinned() ? 1 : 10;
    const struct operation_facts *facts = &dynnorm_operations[operation];
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        if (facts->has_eps) {
            static const float extreme_epsilons[] = {0, 1e-45f, 1e-30f, 1e-12f, 1e-5f, 1, 1e10f, 1e30f, FLT_MAX};
            for (size_t i = 0; i < COUNT(extreme_epsilons); i++)
                check_one_setting(operation, extreme_epsilons[i], 1, 1, number++);
        }
        if (facts->parameter == NO_FIELD)
            continue;
        int has_alpha = facts->parameter == offsetof(dynnorm_descriptor, alpha);
        for (size_t i = 0; i < (has_alpha ? COUNT(alphas) : COUNT(betas)); i++)
            for (size_t j = 0; j < COUNT(scales); j++)
                check_one_setting(operation, 0, has_alpha ? alphas[i] : betas[i], scales[j], number++);
    }
}

/* The errors of the sums over tokens must not grow with the number of tokens. */
static void check_many_tokens(dynnorm_operation operation) {
    static const struct {
        size_t tokens, channels;
    } shapes[] = {{100000, 1}, {100000, 3}, {1000, 65}, {100, 300}, {5, 4096}};
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t variant = 0; variant < 6; variant++) {
            size_t tokens = thinned() && shapes[i].tokens > 1000 ? 3000 : shapes[i].tokens;
            size_t channels = shapes[i].channels;
            struct random random = random_start(seed ^ (i << 32 | variant << 40));
            const struct pattern *pattern = variant < 3 ? patterns : random_pattern(&random);
            struct problem problem = make_problem(operation, pattern, tokens, channels, random.state);
            float *x = problem.inputs.call.x.data, *dy = problem.inputs.call.dy.data;
            size_t values = tokens * channels;
            switch (variant) {
            case 1: /* all tokens are equal */
                for (size_t j = channels; j < values; j++) {
                    x[j] = x[j - channels];
                    dy[j] = dy[j - channels];
                }
                break;
            case 2: /* all values have one sign, so that the sums keep growing */
                for (size_t j = 0; j < values; j++) {
                    x[j] = fabsf(x[j]);
                    dy[j] = fabsf(dy[j]);
                }
                break;
            case 3: /* from the third token on, each cancels the one before it */
                for (size_t j = channels; j < values; j++) {
                    x[j] = x[j - channels];
                    dy[j] = j < 2 * channels ? dy[j] : -dy[j - channels];
                }
                break;
            default:
                break;
            }
            take_statistics(&problem);
            check(&problem, MANY_TOKENS);
        }
}

/* Sums over five equal tokens. The terms of the first outweigh the others, which are just large enough that each moves
 * a sum of floats by one rounding, all of them in one direction. */
static void check_contrived_sums(dynnorm_operation operation) {
    enum { TOKENS = 5 };
    size_t repetitions = thinned() ? 20 : 400;
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        struct random random = random_start(seed ^ (repetition + 1) << 50);
        size_t channels = 4 + repetition % 13;
        struct problem problem = new_problem(operation, TOKENS, channels);
        float *x = problem.inputs.call.x.data, *dy = problem.inputs.call.dy.data;
        problem.name = "contrived sums over tokens";
        problem.seed = random.state;
        problem.inputs.call.weight.data = problem.inputs.call.bias.data = NULL;
        take_statistics(&problem);
        fill_rows(&random, x, 1, channels, patterns);
        for (size_t c = 0; c < channels; c++) {
            /* Just above a power of two, where a rounding is largest relative to the value. */
            float first = 1 + (float)random_between(&random, 0, 1.0 / (double)(1 << repetition % 12));
            float other = (repetition & 16 ? -1 : 1) * 0.995f * 0x1p-24f * first;
            const float of_tokens[TOKENS] = {first, other, other, 0, other};
            for (size_t t = 0; t < TOKENS; t++) {
                x[t * channels + c] = x[c];
                dy[t * channels + c] = of_tokens[t];
            }
        }
        check(&problem, CONTRIVED_SUMS);
    }
}

/* A given mean serves as a shift: however far off it is, the bounds hold. dy is along x in one half of the row, and
 * against it in the other, so that mean(h n) cancels, and an outlier has a large n, which multiplies its error. */
static void check_wrong_means(dynnorm_operation operation) {
    static const size_t channels[] = {100, 1024, 1025, 2048, 5000, 65536};
    static const float deviations[] = {1e-6f, 2.4e-4f, -2.4e-4f, 1e-3f, 0.1f, 0.3f, -1, 8, -30, 1000, 1e4f};
    for (size_t i = 0; i < COUNT(channels) - (thinned() ? 1 : 0); i++)
        for (size_t d = 0; d < COUNT(deviations); d++) {
            struct random random = random_start(seed ^ (i << 32 | d << 40));
            struct problem problem = new_problem(operation, 1, channels[i]);
            float *x = problem.inputs.call.x.data, *dy = problem.inputs.call.dy.data;
            problem.name = "wrong means";
            problem.seed = random.state;
            problem.inputs.call.weight.data = problem.inputs.call.bias.data = NULL;
            fill_rows(&random, x, 1, channels[i], patterns);
            for (size_t c = 0; c < channels[i]; c++)
                dy[c] = copysignf((float)random_between(&random, 1, 1.2), c < channels[i] / 2 ? x[c] : -x[c]);
            x[0] = sqrtf((float)channels[i]) / 2;
            dy[0] = 0;
            give_statistics(&random, &problem);
            /* the mean stays as it is where the row can move instead, so that x - mean is large, but mean is not */
            for (size_t c = 0; c < channels[i] && d % 2; c++)
                x[c] += deviations[d];
            if (d % 2 == 0)
                *problem.inputs.call.mean += deviations[d];
            check(&problem, WRONG_MEANS);
        }
}

/* Sums of x - mean in float would be off by all of their roundings, and dx by as much as these rows can make of it. */
static void check_biased_means(dynnorm_operation operation) {
    static const size_t channels[] = {128, 192, 256, 448, 512, 1000, 1024, 4096, 16384};
    for (size_t i = 0; i < COUNT(channels) - (thinned() ? 2 : 0); i++)
        for (int repetition = 0; repetition < 12; repetition++) {
            struct random random = random_start(seed ^ (i << 32 | (uint64_t)repetition << 40));
            struct problem problem = new_problem(operation, 9, channels[i]);
            float *x = problem.inputs.call.x.data, *dy = problem.inputs.call.dy.data;
            problem.name = "biased means";
            problem.seed = random.state;
            problem.inputs.call.weight.data = problem.inputs.call.bias.data = NULL;
            problem.inputs.call.eps = 0;
            for (size_t t = 0; t < problem.inputs.call.tokens; t++)
                fill_biased_sum(&random, x + t * channels[i], dy + t * channels[i], channels[i]);
            give_statistics(&random, &problem);
            check(&problem, BIASED_MEANS);
        }
}

/* ---- Results ---- */

static void report(const struct isa *isa, size_t table, size_t k) {
    const struct listed_kernel *kernel = &listed_kernels[k];
    const char *why = table_is_wanted(isa) ? why_kernel_is_unavailable(isa, kernel) : TABLE_IS_NOT_WANTED;
    if (why) {
        char name[100];
        snprintf(name, sizeof name, "%s, %s", kernel->name, isa->identifier);
        tap_skip(name, why);
        return;
    }
    for (int group = 0; group < GROUPS; group++) {
        struct errors all = all_errors(&tallies[table][k][group]);
        if (group >= WRONG_MEANS && !dynnorm_operations[kernel->operation].has_mean)
            continue;
        tap_check(all.values > 0 && all.failures == 0,
                  "%s, %s: %s: %zu of %zu values within their bounds; at most %.3f of it", kernel->name,
                  isa->identifier, group_names[group], all.values - all.failures, all.values, all.in_bounds);
    }
}

/* A table's errors in one mode, over all groups. */
static struct errors errors_of(size_t table, const struct bound *bound, dynnorm_mode mode) {
    struct errors errors = {0, 0, 0, 0};
    for (size_t k = 0; k < listed_kernel_count; k++)
        if (listed_kernels[k].operation == bound->operation && listed_kernels[k].mode == mode)
            for (int group = 0; group < GROUPS; group++)
                add_errors(&errors, &tallies[table][k][group].outputs[bound->output]);
    return errors;
}

static void print_markdown(void) {
    static const char *const mode_names[MODES] = {"portable", "native", "sleef", "brief"};
    printf("Greatest errors, as multiples of the bound (in u times the reference)\n\n");
    printf("| operation | output | mode |");
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        if (tables_available[i])
            printf(" %s |", dynnorm_isa_list[i].identifier);
    printf(" values for each |\n|---|---|---|");
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        if (tables_available[i])
            printf("---|");
    printf("---|\n");
    for (int b = 0; b < BOUND_COUNT; b++)
        for (int mode = 0; mode < MODES; mode++) {
            size_t values = 0;
            for (size_t i = 0; i < dynnorm_isa_count; i++)
                if (errors_of(i, &bounds[b], (dynnorm_mode)mode).values)
                    values = errors_of(i, &bounds[b], (dynnorm_mode)mode).values;
            if (values == 0)
                continue;
            printf("| %s | %s | %s |", dynnorm_operations[bounds[b].operation].title, buffers[bounds[b].output].name,
                   mode_names[mode]);
            for (size_t i = 0; i < dynnorm_isa_count; i++) {
                if (!tables_available[i])
                    continue;
                struct errors errors = errors_of(i, &bounds[b], (dynnorm_mode)mode);
                if (errors.values)
                    printf(" %.3f (%.3f) |", errors.in_bounds, errors.in_u);
                else
                    printf(" - |");
            }
            printf(" %zu |\n", values);
        }
    printf("\n");
}

static void print_bounds(void) {
    printf("| operation | output | error in u, at most | times |\n|---|---|---|---|\n");
    for (int b = 0; b < BOUND_COUNT; b++) {
        printf("| %s | %s | %g", dynnorm_operations[bounds[b].operation].title, buffers[bounds[b].output].name,
               bounds[b].portable);
        if (bounds[b].native != bounds[b].portable)
            printf(" (native: %g)", bounds[b].native);
        printf(" | %s", bounds[b].reference);
        if (bounds[b].native_reference)
            printf(" (native: %s)", bounds[b].native_reference);
        printf(" |\n");
    }
}

static int is_operation(const char *name) {
    for (int operation = 0; operation < OPERATIONS; operation++)
        if (!strcmp(dynnorm_operations[operation].name, name))
            return 1;
    return 0;
}

int main(int count, char **arguments) {
    int markdown = count > 1 && !strcmp(arguments[1], "--markdown");
    if (count > 1 && !strcmp(arguments[1], "--bounds")) {
        print_bounds();
        return 0;
    }
    if (dynnorm_isa_count > TABLES_AT_MOST || listed_kernel_count > KERNELS_AT_MOST)
        abort();
    int first = 1 + markdown;
    seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);

    int chosen[OPERATIONS];
    for (int operation = 0; operation < OPERATIONS; operation++) {
        chosen[operation] = first >= count;
        for (int i = first; i < count; i++)
            chosen[operation] |= !strcmp(arguments[i], dynnorm_operations[operation].name);
    }
    for (int i = first; i < count; i++)
        if (!is_operation(arguments[i])) {
            fprintf(stderr, "there is no operation %s\n", arguments[i]);
            return 2;
        }
    for (int operation = 0; operation < OPERATIONS; operation++) {
        if (!chosen[operation])
            continue;
        check_channel_counts((dynnorm_operation)operation);
        check_hard_rows((dynnorm_operation)operation);
        check_repetitive_rows((dynnorm_operation)operation);
        check_parameters((dynnorm_operation)operation);
        check_many_tokens((dynnorm_operation)operation);
        check_contrived_sums((dynnorm_operation)operation);
        if (dynnorm_operations[operation].has_mean) {
            check_wrong_means((dynnorm_operation)operation);
            check_biased_means((dynnorm_operation)operation);
        }
    }

    int failures = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            for (int group = 0; group < GROUPS; group++)
                failures |= all_errors(&tallies[i][k][group]).failures > 0;
            if (!markdown && chosen[listed_kernels[k].operation])
                report(&dynnorm_isa_list[i], i, k);
        }
    if (!markdown)
        return tap_done();
    print_markdown();
    return failures;
}
