/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every kernel of every table against the oracle, by the table of bounds.
 *
 *     accuracy [--markdown | --bounds] [OPERATION...]
 *
 * --markdown prints the greatest errors as a table instead of test results, --bounds the table of bounds.
 */
#include "call.h"
#include "measure.h"
#include "row_patterns.h"
#include "tap.h"

#include <float.h>
#include <math.h>

enum group { CHANNEL_COUNTS, HARD_ROWS, REPETITIVE_ROWS, PARAMETERS, MANY_TOKENS, CONTRIVED_SUMS, GROUPS };
static const char *const group_names[GROUPS] = {"channel counts", "hard rows",   "repetitive rows",
                                                "parameters",     "many tokens", "contrived sums"};

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

static float *random_vector(struct random *random, size_t channels) {
    float *vector = allocate_floats(channels);
    static const float magnitudes[] = {1, 1, 1, 1e3f, 1e-3f};
    float magnitude = magnitudes[random_below(random, 5)];
    int sparse = random_below(random, 8) == 0;
    for (size_t c = 0; c < channels; c++)
        vector[c] = sparse && random_below(random, 2) ? 0 : magnitude * random_normal(random);
    return vector;
}

static float pick(struct random *random, const float *values, size_t count) {
    return values[random_below(random, count)];
}
#define PICK(random, values) pick(random, values, sizeof(values) / sizeof *(values))

static const float epsilons[] = {1e-5f, 1e-6f, 1e-12f, 1, 0};
static const float alphas[] = {0.5f, 1, 2, -0.7f, 1e-3f, 50, 0, 1e-30f, 1e30f};
static const float betas[] = {1, 0.3f, 100, 1e-5f, 0, 1e-45f, 1e-30f, 1e10f, 1e30f, FLT_MAX};
static const float scales[] = {1, -3, 1e-10f, 1e10f, 0};

/* Everything but x, dy, and the statistics. */
static void choose_parameters(struct random *random, struct problem *problem, int without_eps) {
    size_t channels = problem->channels;
    if (random_below(random, 4)) {
        problem->weight = random_vector(random, channels);
        problem->weight_offset = random_below(random, 3) ? 0 : 1;
    }
    if (problem->operation != DYNNORM_RMSNORM && random_below(random, 3))
        problem->bias = random_vector(random, channels);
    problem->eps = without_eps ? 0 : PICK(random, epsilons);
    if (random_below(random, 4) == 0) {
        problem->accumulate = 1;
        problem->accumulated = random_normal(random);
    }
    switch (random_below(random, 4)) {
    case 0:
        problem->scale = dynnorm_scale_rmsnorm(channels);
        break;
    case 1:
        problem->scale = dynnorm_scale_layernorm(channels);
        break;
    case 2:
        problem->scale = PICK(random, scales);
        break;
    default:
        break;
    }
    /* Often what brings x into the interesting range of the function. */
    double typical = fabs((double)problem->x[random_below(random, problem->tokens * channels)]);
    if (problem->operation == DYNNORM_DYT)
        problem->parameter = random_below(random, 2) && typical > 1e-37 ? (float)(1 / typical) : PICK(random, alphas);
    else
        problem->parameter =
            random_below(random, 2) && typical < 1e19 ? (float)(typical * typical) : PICK(random, betas);
}

/* The exact statistics give or take a few u, as a forward call elsewhere may have given them. */
static void give_statistics(struct random *random, struct problem *problem) {
    struct oracle_results exact = expect(problem);
    float *mean = allocate_floats(problem->tokens);
    float *rstd = allocate_floats(problem->tokens);
    int possible = 1;
    for (size_t t = 0; t < problem->tokens; t++) {
        mean[t] = (float)(exact.mean[t].exact * random_between(random, 1 - 0x1p-23, 1 + 0x1p-23));
        rstd[t] = (float)(exact.rstd[t].exact * random_between(random, 1 - 0x1p-23, 1 + 0x1p-23));
        possible &= isfinite(mean[t]) && isfinite(rstd[t]);
    }
    free_expectation(&exact);
    if (possible && problem->operation == DYNNORM_LAYERNORM)
        problem->mean = mean;
    else
        free(mean);
    if (possible)
        problem->rstd = rstd;
    else
        free(rstd);
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
    problem.name = pattern->name;
    problem.seed = problem_seed;
    fill_rows(&random, problem.x, tokens, channels, pattern);
    switch (random_below(&random, 8)) {
    case 0: /* a gradient along n, which dx takes away */
        for (size_t i = 0; i < tokens * channels; i++)
            problem.dy[i] = problem.x[i];
        break;
    case 1: /* a constant one, which LayerNorm's dx takes away */
        fill_rows(&random, problem.dy, tokens, channels, pattern_named("constant"));
        break;
    case 2:
    case 3:
        fill_rows(&random, problem.dy, tokens, channels, random_pattern(&random));
        break;
    default:
        fill_rows(&random, problem.dy, tokens, channels, patterns);
        break;
    }
    choose_parameters(&random, &problem, pattern->without_eps);
    int has_statistics = operation == DYNNORM_LAYERNORM || operation == DYNNORM_RMSNORM;
    if (has_statistics && random_below(&random, 4) == 0)
        give_statistics(&random, &problem);
    return problem;
}

/* Solves it by every table and mode. */
static void check(struct problem *problem, enum group group) {
    struct oracle_results expected = expect(problem);
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        tables_available[i] = use_table(isa);
        for (size_t k = 0; k < listed_kernel_count; k++)
            if (listed_kernels[k].operation == problem->operation &&
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
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct problem problem = make_problem(operation, patterns, large[i] < 65536 ? 3 : 1, large[i], seed + large[i]);
        check(&problem, CHANNEL_COUNTS);
    }
}

static void check_hard_rows(dynnorm_operation operation) {
    static const size_t few[] = {1, 2, 3, 5, 16, 17, 31, 64, 65, 100, 257};
    static const size_t many[] = {768, 1029, 4096, 65536};
    for (size_t p = 0; p < pattern_count; p++) {
        for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
            struct problem problem = make_problem(operation, &patterns[p], 4, few[i], seed ^ (p << 32 | few[i]));
            check(&problem, HARD_ROWS);
        }
        for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
            /* An elementwise operation has nothing to lose in long rows. */
            int elementwise = operation == DYNNORM_DYT || operation == DYNNORM_DYISRU;
            if ((thinned() && (p + i) % 8) || (elementwise && many[i] > 5000 && p % 8))
                continue;
            struct problem problem = make_problem(operation, &patterns[p], 1, many[i], seed ^ (p << 32 | many[i]));
            check(&problem, HARD_ROWS);
        }
    }
}

/* Rows of a few values only, or of one that outweighs the rest: there rounding errors do not cancel, but add up. */
static void check_repetitive_rows(dynnorm_operation operation) {
    static const char *const names[] = {"random period up to 8", "two random values", "spike of 1000",
                                        "spike of 10^30 anywhere"};
    size_t repetitions = thinned() ? 80 : 1600;
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        struct random random = random_start(seed ^ (repetition + 1) << 44);
        const struct pattern *pattern = pattern_named(names[repetition % 4]);
        size_t channels = 1 + repetition / 16 * 7 % 100; /* in the end, all from 1 to 100 */
        struct problem problem = make_problem(operation, pattern, 8, channels, random.state);
        for (size_t i = 0; i < problem.tokens * channels; i++)
            switch (repetition / 4 % 4) {
            case 0:
                problem.dy[i] = problem.x[i];
                break;
            case 1:
                problem.dy[i] = 3;
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
    problem.eps = eps;
    problem.parameter = parameter;
    problem.scale = scale;
    if (problem.rstd) {
        free(problem.rstd);
        free(problem.mean);
        problem.rstd = problem.mean = NULL;
    }
    check(&problem, PARAMETERS);
}

static void check_parameters(dynnorm_operation operation) {
    size_t number = 0;
    size_t repetitions = thinned() ? 1 : 10;
    for (size_t repetition = 0; repetition < repetitions; repetition++)
        switch (operation) {
        case DYNNORM_LAYERNORM:
        case DYNNORM_RMSNORM: {
            static const float extreme_epsilons[] = {0, 1e-45f, 1e-30f, 1e-12f, 1e-5f, 1, 1e10f, 1e30f, FLT_MAX};
            for (size_t i = 0; i < sizeof extreme_epsilons / sizeof *extreme_epsilons; i++)
                check_one_setting(operation, extreme_epsilons[i], 1, 1, number++);
            break;
        }
        case DYNNORM_DYT:
            for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++)
                for (size_t j = 0; j < sizeof scales / sizeof *scales; j++)
                    check_one_setting(operation, 0, alphas[i], scales[j], number++);
            break;
        case DYNNORM_DYISRU:
        case DYNNORM_CENTERED_DYISRU:
            for (size_t i = 0; i < sizeof betas / sizeof *betas; i++)
                for (size_t j = 0; j < sizeof scales / sizeof *scales; j++)
                    check_one_setting(operation, 0, betas[i], scales[j], number++);
            break;
        }
}

/* The sums over tokens, whose errors must not grow with their number. */
static void check_many_tokens(dynnorm_operation operation) {
    static const struct {
        size_t tokens, channels;
    } shapes[] = {{100000, 1}, {100000, 3}, {1000, 65}, {100, 300}, {5, 4096}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t variant = 0; variant < 6; variant++) {
            size_t tokens = thinned() && shapes[i].tokens > 1000 ? 3000 : shapes[i].tokens;
            size_t channels = shapes[i].channels;
            struct random random = random_start(seed ^ (i << 32 | variant << 40));
            const struct pattern *pattern = variant < 3 ? patterns : random_pattern(&random);
            struct problem problem = make_problem(operation, pattern, tokens, channels, random.state);
            size_t values = tokens * channels;
            switch (variant) {
            case 1: /* all tokens alike */
                for (size_t j = channels; j < values; j++) {
                    problem.x[j] = problem.x[j - channels];
                    problem.dy[j] = problem.dy[j - channels];
                }
                break;
            case 2: /* of one sign, so that the sums grow and grow */
                for (size_t j = 0; j < values; j++) {
                    problem.x[j] = fabsf(problem.x[j]);
                    problem.dy[j] = fabsf(problem.dy[j]);
                }
                break;
            case 3: /* each token takes away what the last one gave, but for the first */
                for (size_t j = channels; j < values; j++) {
                    problem.x[j] = problem.x[j - channels];
                    problem.dy[j] = j < 2 * channels ? problem.dy[j] : -problem.dy[j - channels];
                }
                break;
            default:
                break;
            }
            if (problem.rstd) {
                free(problem.rstd);
                free(problem.mean);
                problem.rstd = problem.mean = NULL;
            }
            check(&problem, MANY_TOKENS);
        }
}

/* Sums over five tokens alike, of which the first one's terms outweigh the rest; but that is as large as moves each sum
 * of floats by a rounding, and in one direction. */
static void check_contrived_sums(dynnorm_operation operation) {
    size_t repetitions = thinned() ? 20 : 400;
    for (size_t repetition = 0; repetition < repetitions; repetition++) {
        struct random random = random_start(seed ^ (repetition + 1) << 50);
        size_t channels = 4 + repetition % 13;
        struct problem problem = new_problem(operation, 5, channels);
        problem.name = "contrived sums over tokens";
        problem.seed = random.state;
        problem.contrived = 1;
        problem.scale = 1;
        problem.parameter = 1;
        fill_rows(&random, problem.x, 1, channels, patterns);
        for (size_t c = 0; c < channels; c++) {
            /* Many of the floats near a power of two, where a rounding weighs most. */
            float dy = 1 + (float)random_between(&random, 0, 1.0 / (double)(1 << repetition % 12));
            float rest = (repetition & 16 ? -1 : 1) * 0.995f * 0x1p-24f * dy;
            const float of_tokens[5] = {dy, rest, rest, 0, rest};
            for (size_t t = 0; t < 5; t++) {
                problem.x[t * channels + c] = problem.x[c];
                problem.dy[t * channels + c] = of_tokens[t];
            }
        }
        check(&problem, CONTRIVED_SUMS);
    }
}

/* ---- Results ---- */

static void report(const struct isa *isa, size_t table, size_t k) {
    const struct listed_kernel *kernel = &listed_kernels[k];
    const char *why = why_kernel_is_unavailable(isa, kernel);
    if (why) {
        char name[100];
        snprintf(name, sizeof name, "%s, %s", kernel->name, isa->identifier);
        tap_skip(name, why);
        return;
    }
    for (int group = 0; group < GROUPS; group++) {
        struct errors all = {0, 0, 0, 0};
        for (int output = 0; output < OUTPUTS; output++)
            add_errors(&all, &tallies[table][k][group].outputs[output]);
        tap_check(all.values > 0 && all.failures == 0,
                  "%s, %s: %s: %zu of %zu values within their bounds; at most %.3f of it", kernel->name,
                  isa->identifier, group_names[group], all.values - all.failures, all.values, all.in_bounds);
    }
}

/* The sum of a table's errors over the groups, of the kernel that a mode runs. */
static struct errors errors_of(size_t table, const struct bound *bound, dynnorm_mode mode) {
    struct errors errors = {0, 0, 0, 0};
    for (size_t k = 0; k < listed_kernel_count; k++)
        if (listed_kernels[k].operation == bound->operation && listed_kernels[k].mode == mode)
            for (int group = 0; group < GROUPS; group++)
                add_errors(&errors, &tallies[table][k][group].outputs[bound->output]);
    return errors;
}

static void print_markdown(void) {
    static const char *const mode_names[MODES] = {"portable", "native", "sleef"};
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
                values = fmax((double)values, (double)errors_of(i, &bounds[b], (dynnorm_mode)mode).values) > 0
                             ? errors_of(i, &bounds[b], (dynnorm_mode)mode).values
                             : values;
            if (values == 0)
                continue;
            printf("| %s | %s | %s |", bounds[b].operation_name, bounds[b].output_name, mode_names[mode]);
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
        printf("| %s | %s | %g", bounds[b].operation_name, bounds[b].output_name, bounds[b].portable);
        if (bounds[b].native != bounds[b].portable)
            printf(" (native: %g)", bounds[b].native);
        printf(" | %s |\n", bounds[b].reference);
    }
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

    int chosen[OPERATIONS] = {0};
    for (size_t k = 0; k < listed_kernel_count; k++) {
        chosen[listed_kernels[k].operation] |= first >= count;
        for (int i = first; i < count; i++)
            chosen[listed_kernels[k].operation] |= !strcmp(arguments[i], listed_kernels[k].operation_name);
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
    }

    int failures = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            for (int group = 0; group < GROUPS; group++)
                for (int output = 0; output < OUTPUTS; output++)
                    failures |= tallies[i][k][group].outputs[output].failures > 0;
            if (!markdown && chosen[listed_kernels[k].operation])
                report(&dynnorm_isa_list[i], i, k);
        }
    if (!markdown)
        return tap_done();
    print_markdown();
    return failures;
}
