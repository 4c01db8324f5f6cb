/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Special values: zeros of both signs, denormals, the greatest floats, infinities, NaN, in every lane of a vector and
 * in the tail, as x, dy or weight of one element among ordinary ones; and what needs no special value but is special:
 * rows that are constant, and a beta of 0.
 */
#include "call.h"
#include "measure.h"
#include "tap.h"

#include <float.h>
#include <math.h>

/* One row has the special value; the channels are more than the 64 lanes of a row sum, and no multiple of any vector.
 */
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
static const char *const place_names[PLACES] = {"x", "dy", "weight"};

static uint64_t seed;

static const char *operation_name(dynnorm_operation operation) {
    for (size_t k = 0; k < listed_kernel_count; k++)
        if (listed_kernels[k].operation == operation)
            return listed_kernels[k].operation_name;
    return "";
}

static int is_elementwise(dynnorm_operation operation) {
    return operation == DYNNORM_DYT || operation == DYNNORM_DYISRU;
}

/* Ordinary values. A plain problem has neither weight nor bias nor scale, so that y is the function itself. */
static struct problem ordinary_problem(dynnorm_operation operation, int plain) {
    struct random random = random_start(seed);
    struct problem problem = new_problem(operation, TOKENS, CHANNELS);
    problem.seed = seed;
    for (size_t i = 0; i < TOKENS * CHANNELS; i++) {
        problem.x[i] = random_normal(&random);
        problem.dy[i] = random_normal(&random);
    }
    problem.eps = 1e-5f;
    if (plain)
        return problem;
    problem.weight = allocate_floats(CHANNELS);
    for (size_t c = 0; c < CHANNELS; c++)
        problem.weight[c] = (float)random_between(&random, 0.5, 1.5);
    if (operation != DYNNORM_RMSNORM) {
        problem.bias = allocate_floats(CHANNELS);
        for (size_t c = 0; c < CHANNELS; c++)
            problem.bias[c] = random_normal(&random);
    }
    problem.parameter = 0.75f;
    problem.scale = is_elementwise(operation) ? -1.5f : 1;
    return problem;
}

/* ---- Comparing bits ---- */

static int same_bits(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static size_t output_size(enum output output) {
    return output == OUTPUT_Y || output == OUTPUT_DX            ? TOKENS * CHANNELS
           : output == OUTPUT_MEAN || output == OUTPUT_RSTD     ? TOKENS
           : output == OUTPUT_DWEIGHT || output == OUTPUT_DBIAS ? CHANNELS
                                                                : 1;
}

static int same_answer(const struct answer *a, const struct answer *b) {
    for (int output = 0; output < OUTPUTS; output++)
        for (size_t i = 0; a->outputs[output] && i < output_size((enum output)output); i++)
            if (!same_bits(a->outputs[output][i], b->outputs[output][i]))
                return 0;
    return 1;
}

/* Whether a special value in one row left the others alone, and a special weight the other channels of y. */
static int others_untouched(const struct answer *answer, const struct answer *clean, enum place place, size_t channel) {
    static const enum output tensors[] = {OUTPUT_Y, OUTPUT_DX};
    for (int i = 0; i < 2; i++) {
        const float *got = answer->outputs[tensors[i]];
        const float *before = clean->outputs[tensors[i]];
        for (size_t t = 0; got && t < TOKENS; t++)
            for (size_t c = 0; c < CHANNELS; c++) {
                int touched = place != IN_WEIGHT ? t == SPECIAL_ROW : tensors[i] == OUTPUT_DX || c == channel;
                if (!touched && !same_bits(got[t * CHANNELS + c], before[t * CHANNELS + c]))
                    return 0;
            }
    }
    return 1;
}

/* What a plain elementwise problem gives, to the bit, for a special x. */
static int plain_element_is_exact(const struct answer *answer, float x, size_t channel) {
    size_t i = SPECIAL_ROW * CHANNELS + channel;
    const float *y = answer->outputs[OUTPUT_Y];
    const float *dx = answer->outputs[OUTPUT_DX];
    if (isinf(x))
        return (!y || y[i] == (x > 0 ? 1 : -1)) && (!dx || dx[i] == 0);
    if (x == 0) /* an odd function keeps the sign */
        return !y || same_bits(y[i], x);
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
        if (place == IN_WEIGHT)
            problem.weight[channel] = special->value;
        else
            (place == IN_X ? problem.x : problem.dy)[SPECIAL_ROW * CHANNELS + channel] = special->value;
        struct oracle_results expected = expect(&problem);
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != operation || (place == IN_DY && kernel->direction == FORWARD_PASS))
                continue;
            struct answer first = {{NULL}};
            int is_first = 1;
            for (size_t i = 0; i < dynnorm_isa_count; i++) {
                const struct isa *isa = &dynnorm_isa_list[i];
                if (why_kernel_is_unavailable(isa, kernel))
                    continue;
                struct result *result = &results[i][k];
                struct answer answer;
                dynnorm_status status = solve(&problem, kernel->direction, kernel->mode, &answer);
                struct tally tally;
                memset(&tally, 0, sizeof tally);
                measure_answer(&problem, &expected, isa, kernel, status, &answer, &tally);
                for (int output = 0; output < OUTPUTS; output++) {
                    result->values += tally.outputs[output].values;
                    result->within_bounds &= tally.outputs[output].failures == 0;
                }
                result->untouched &= others_untouched(&answer, &clean[i][k], place, channel);
                if (plain && place == IN_X && is_elementwise(operation))
                    result->exact &= plain_element_is_exact(&answer, special->value, channel);
                if (is_first)
                    first = answer;
                else {
                    if (kernel->mode != DYNNORM_NATIVE)
                        result->same_on_every_table &= same_answer(&first, &answer);
                    free_answer(&answer);
                }
                is_first = 0;
            }
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
                      dynnorm_isa_list[i].identifier, plain ? "plain" : "weighted", special->name, place_names[place],
                      result->within_bounds ? "" : "; not as expected",
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
                solve(&problem, listed_kernels[k].direction, listed_kernels[k].mode, &clean[i][k]);
        }
    for (int place = 0; place < PLACES; place++)
        for (int s = 0; s < SPECIALS; s++)
            /* What an infinite dy or weight gives is left open. */
            if (place == IN_X || (!isinf(specials[s].value) && !(place == IN_WEIGHT && plain)))
                check_value(operation, plain, (enum place)place, &specials[s]);
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++)
            free_answer(&clean[i][k]);
    free_problem(&problem);
}

/* ---- Results that are exact whatever the bounds say ---- */

/* Solves a problem by every table and mode; check tells whether an answer is right. */
static void check_exact(struct problem *problem, const char *what,
                        int (*check)(const struct problem *problem, const struct answer *answer)) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != problem->operation || why_kernel_is_unavailable(&dynnorm_isa_list[i], kernel))
                continue;
            struct answer answer;
            dynnorm_status status = solve(problem, kernel->direction, kernel->mode, &answer);
            tap_check(status == DYNNORM_OK && check(problem, &answer), "%s, %s: %s, %zu channels", kernel->name,
                      dynnorm_isa_list[i].identifier, what, problem->channels);
            free_answer(&answer);
        }
}

static int is_zero(const float *values, size_t count) {
    for (size_t i = 0; values && i < count; i++)
        if (values[i] != 0)
            return 0;
    return 1;
}

/* n is 0 everywhere: y is the bias, dweight 0; and without eps so are rstd and dx. */
static int row_is_constant(const struct problem *problem, const struct answer *answer) {
    size_t values = problem->tokens * problem->channels;
    const float *y = answer->outputs[OUTPUT_Y];
    for (size_t i = 0; y && i < values; i++)
        if (y[i] != (problem->bias ? problem->bias[i % problem->channels] : 0))
            return 0;
    if (!is_zero(answer->outputs[OUTPUT_DWEIGHT], problem->channels))
        return 0;
    return problem->eps > 0 ||
           (is_zero(answer->outputs[OUTPUT_RSTD], problem->tokens) && is_zero(answer->outputs[OUTPUT_DX], values));
}

static void check_constant_rows(dynnorm_operation operation) {
    static const float constants[] = {0,      -0.0f,     1,       0.1f,    -3.3e7f,  1e30f,
                                      1e-30f, 0x1p-149f, -1e-40f, FLT_MAX, -FLT_MAX, 16777215};
    static const size_t counts[] = {1, 2, 3, 5, 7, 16, 17, 63, 64, 65, 100, 128, 129, 1000, 4097, 65536};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int with_eps = 0; with_eps < 2; with_eps++) {
            /* A token for each constant. RMSNorm has n = 0 only for zeros. */
            size_t tokens = operation == DYNNORM_RMSNORM ? 2 : sizeof constants / sizeof *constants;
            if (counts[i] > 60000 && thinned())
                continue;
            size_t channels = counts[i];
            struct problem problem = new_problem(operation, tokens, channels);
            struct random random = random_start(seed);
            for (size_t j = 0; j < tokens * channels; j++) {
                problem.x[j] = constants[j / channels];
                problem.dy[j] = random_normal(&random);
            }
            problem.weight = allocate_floats(channels);
            for (size_t c = 0; c < channels; c++)
                problem.weight[c] = random_normal(&random);
            if (operation != DYNNORM_RMSNORM) {
                problem.bias = allocate_floats(channels);
                for (size_t c = 0; c < channels; c++)
                    problem.bias[c] = random_normal(&random);
            }
            problem.eps = with_eps ? 1e-5f : 0;
            /* Here the general DyISRU has no eps, and dx only vanishes if beta does. */
            problem.parameter = with_eps ? 1 : 0;
            check_exact(&problem,
                        operation == DYNNORM_RMSNORM ? (with_eps ? "rows of zeros" : "rows of zeros without eps")
                                                     : (with_eps ? "constant rows" : "constant rows without eps"),
                        row_is_constant);
            free_problem(&problem);
        }
}

/* q is sign(x), and there is no slope but the one that dbeta sees. */
static int is_sign(const struct problem *problem, const struct answer *answer) {
    const float *y = answer->outputs[OUTPUT_Y];
    for (size_t i = 0; y && i < problem->tokens * problem->channels; i++) {
        float x = problem->x[i];
        if (y[i] != problem->scale * (float)((x > 0) - (x < 0)))
            return 0;
    }
    return is_zero(answer->outputs[OUTPUT_DX], problem->tokens * problem->channels);
}

/* dbeta too is 0 where x is. */
static int is_sign_of_zero(const struct problem *problem, const struct answer *answer) {
    return is_sign(problem, answer) && is_zero(answer->outputs[OUTPUT_DPARAMETER], 1);
}

static void check_beta_of_zero(void) {
    for (size_t channels = 1; channels <= 150; channels += thinned() ? 37 : 3) {
        struct random random = random_start(seed + channels);
        struct problem problem = new_problem(DYNNORM_DYISRU, TOKENS, channels);
        problem.parameter = 0;
        problem.scale = -1.5f;
        for (size_t i = 0; i < TOKENS * channels; i++) {
            problem.dy[i] = random_normal(&random);
            do {
                uint32_t bits = (uint32_t)random_bits(&random); /* of any magnitude, infinities included */
                memcpy(&problem.x[i], &bits, sizeof bits);
            } while (isnan(problem.x[i]));
            if (random_below(&random, 8) == 0)
                problem.x[i] = specials[random_below(&random, SPECIALS - 1)].value;
        }
        check_exact(&problem, "a beta of 0 gives the sign", is_sign);
        for (size_t i = 0; i < TOKENS * channels; i++)
            problem.x[i] = i % 2 ? 0.0f : -0.0f;
        check_exact(&problem, "a beta of 0 gives 0 for zeros", is_sign_of_zero);
        free_problem(&problem);
    }
}

int main(void) {
    seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    if (dynnorm_isa_count > TABLES_AT_MOST || listed_kernel_count > KERNELS_AT_MOST)
        abort();
    for (int operation = 0; operation < OPERATIONS; operation++) {
        printf("# %s\n", operation_name((dynnorm_operation)operation));
        check_special_values((dynnorm_operation)operation, 1);
        check_special_values((dynnorm_operation)operation, 0);
        if (!is_elementwise((dynnorm_operation)operation))
            check_constant_rows((dynnorm_operation)operation);
    }
    check_beta_of_zero();
    use_table(NULL);
    return tap_done();
}
