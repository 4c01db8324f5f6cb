/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The node tests of ONNX for LayerNormalization and RMSNormalization (see data/onnx/README.md), against their exact
 * results; the file is the argument.
 */
#include "measure.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tolerance of ONNX's own test runner. */
static const double onnx_relative_tolerance = 1e-3;
static const double onnx_absolute_tolerance = 1e-7;

/* A case: the problem, what ONNX got, and the exact y. */
struct onnx_case {
    char name[80];
    struct problem problem;
    float *y;
    float *mean;
    float *rstd;
    double *exact;
};

static void fail(const char *what) {
    printf("Bail out! %s\n", what);
    exit(1);
}

static void read_value(FILE *file, const char *format, void *value) {
    if (fscanf(file, format, value) != 1)
        fail("a value is missing");
}

static float *read_floats(FILE *file, size_t count) {
    float *floats = allocate_floats(count);
    for (size_t i = 0; i < count; i++)
        read_value(file, "%f", &floats[i]);
    return floats;
}

/* Reads a case whose keyword "case" has been read, and the keyword after it; gives whether there is another case. */
static int read_case(FILE *file, struct onnx_case *onnx) {
    memset(onnx, 0, sizeof *onnx);
    struct problem *problem = &onnx->problem;
    problem->name = onnx->name;
    problem->scale = 1;
    read_value(file, "%79s", onnx->name);
    char keyword[20];
    while (fscanf(file, "%19s", keyword) == 1) {
        if (!strcmp(keyword, "case"))
            return 1;
        if (!strcmp(keyword, "operation")) {
            char operation[20];
            read_value(file, "%19s", operation);
            problem->operation = !strcmp(operation, "layernorm") ? DYNNORM_LAYERNORM : DYNNORM_RMSNORM;
        } else if (!strcmp(keyword, "tokens"))
            read_value(file, "%zu", &problem->tokens);
        else if (!strcmp(keyword, "channels"))
            read_value(file, "%zu", &problem->channels);
        else if (!strcmp(keyword, "eps"))
            read_value(file, "%f", &problem->eps);
        else if (!strcmp(keyword, "x"))
            problem->x = read_floats(file, problem->tokens * problem->channels);
        else if (!strcmp(keyword, "weight"))
            problem->weight = read_floats(file, problem->channels);
        else if (!strcmp(keyword, "bias"))
            problem->bias = read_floats(file, problem->channels);
        else if (!strcmp(keyword, "y"))
            onnx->y = read_floats(file, problem->tokens * problem->channels);
        else if (!strcmp(keyword, "mean"))
            onnx->mean = read_floats(file, problem->tokens);
        else if (!strcmp(keyword, "rstd"))
            onnx->rstd = read_floats(file, problem->tokens);
        else if (!strcmp(keyword, "y_exact")) {
            onnx->exact = malloc(problem->tokens * problem->channels * sizeof(double));
            for (size_t i = 0; onnx->exact && i < problem->tokens * problem->channels; i++)
                read_value(file, "%lf", &onnx->exact[i]);
        } else
            fail("an unknown keyword");
    }
    return 0;
}

static void free_case(struct onnx_case *onnx) {
    free_problem(&onnx->problem);
    free(onnx->y);
    free(onnx->mean);
    free(onnx->rstd);
    free(onnx->exact);
}

/* Whether ONNX's own values agree with the expected ones, by ONNX's tolerance. */
static int agrees(const float *onnx, const struct expected *expected, size_t count) {
    for (size_t i = 0; onnx && i < count; i++) {
        double tolerance = onnx_absolute_tolerance + onnx_relative_tolerance * fabs(expected[i].exact);
        if (!(fabs((double)onnx[i] - expected[i].exact) <= tolerance))
            return 0;
    }
    return 1;
}

static void check_case(struct onnx_case *onnx) {
    struct problem *problem = &onnx->problem;
    if (!problem->x || !onnx->y || !onnx->exact)
        fail("a tensor is missing");
    size_t values = problem->tokens * problem->channels;
    problem->dy = allocate_floats(values);
    struct oracle_results expected = expect(problem);
    double oracle_error = 0;
    for (size_t i = 0; i < values; i++) {
        oracle_error = fmax(oracle_error, error_in_u(onnx->exact[i], expected.y[i]));
        expected.y[i].exact = onnx->exact[i];
    }
    tap_check(oracle_error < 1e-4, "%s: the oracle's result is the exact one: %.1e u", onnx->name, oracle_error);
    tap_check(agrees(onnx->y, expected.y, values) && agrees(onnx->mean, expected.mean, problem->tokens) &&
                  agrees(onnx->rstd, expected.rstd, problem->tokens),
              "%s: ONNX's own results agree, by its tolerance", onnx->name);

    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != problem->operation || kernel->direction != FORWARD_PASS)
                continue;
            const char *why = why_kernel_is_unavailable(&dynnorm_isa_list[i], kernel);
            if (why) {
                tap_skip(onnx->name, why);
                continue;
            }
            struct tally tally;
            memset(&tally, 0, sizeof tally);
            measure(problem, &expected, &dynnorm_isa_list[i], kernel, &tally);
            struct errors all = {0, 0, 0, 0};
            for (int output = 0; output < OUTPUTS; output++)
                add_errors(&all, &tally.outputs[output]);
            tap_check(all.failures == 0 && tally.outputs[OUTPUT_Y].values == values,
                      "%s: %s, %s: at most %.3f of the bounds", onnx->name, kernel->name,
                      dynnorm_isa_list[i].identifier, all.in_bounds);
        }
    use_table(NULL);
    free_expectation(&expected);
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
    if (!file)
        fail("the argument must name data/onnx/node-tests.txt");
    char line[200];
    char keyword[20];
    int another = fgets(line, sizeof line, file) && line[0] == '#' && fscanf(file, "%19s", keyword) == 1 &&
                  !strcmp(keyword, "case");
    int cases = 0;
    while (another) {
        struct onnx_case onnx;
        another = read_case(file, &onnx);
        check_case(&onnx);
        free_case(&onnx);
        cases++;
    }
    fclose(file);
    tap_check(cases == 38, "%d cases were read", cases);
    return tap_done();
}
