/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Runs ONNX's node tests of LayerNormalization and RMSNormalization, and compares with their exact results. The
 * argument is the file of the cases; test/data/onnx/README.md says where they come from and how the file is written.
 */
#include "call.h"
#include "measure.h"
#include "oracle.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tolerance of ONNX's own test runner. */
static const double onnx_relative_tolerance = 1e-3;
static const double onnx_absolute_tolerance = 1e-7;

struct onnx_case {
    char name[80];
    struct problem problem;
    struct test_call outputs; /* the same call with the outputs that ONNX got; NULL where the case has none */
    double *exact;            /* y */
};

static void fail(const char *what) {
    printf("Bail out! %s\n", what);
    exit(1);
}

static void read_value(FILE *file, const char *format, void *value) {
    if (fscanf(file, format, value) != 1)
        fail("a value is missing");
}

static void read_buffer(FILE *file, const dynnorm_descriptor *call, const struct buffer *buffer) {
    for (size_t i = 0; i < buffer_rows(call, buffer) * buffer_columns(call, buffer); i++) {
        float value;
        read_value(file, "%f", &value);
        set_float_at(buffer_data(call, buffer), i, value);
    }
}

/* Reads a case whose keyword "case" has been read, up to the keyword of the next. Returns whether there is a next. */
static int read_case(FILE *file, struct onnx_case *onnx) {
    char operation_name[20];
    size_t tokens, channels;
    float eps;
    if (fscanf(file, "%79s operation %19s tokens %zu channels %zu eps %f", onnx->name, operation_name, &tokens,
               &channels, &eps) != 5)
        fail("a case does not begin with its name, operation, tokens, channels and eps");
    dynnorm_operation operation = !strcmp(operation_name, "layernorm") ? DYNNORM_LAYERNORM : DYNNORM_RMSNORM;
    onnx->problem = new_problem(operation, tokens, channels);
    onnx->problem.name = onnx->name;
    onnx->problem.inputs.call.eps = eps;
    dynnorm_descriptor *inputs = &onnx->problem.inputs.call, *outputs = &onnx->outputs.call;
    *outputs = *inputs;
    onnx->outputs.memory = allocate_selected(outputs, 1u << BUFFER_Y | 1u << BUFFER_MEAN | 1u << BUFFER_RSTD, 0);
    onnx->exact = calloc(tokens * channels, sizeof *onnx->exact);
    if (!onnx->exact)
        fail("out of memory");

    int was_read[BUFFERS] = {0}, exact_was_read = 0, another = 0;
    char keyword[20];
    while (!another && fscanf(file, "%19s", keyword) == 1) {
        if (!strcmp(keyword, "case")) {
            another = 1;
        } else if (!strcmp(keyword, "y_exact")) {
            for (size_t i = 0; i < tokens * channels; i++)
                read_value(file, "%lf", &onnx->exact[i]);
            exact_was_read = 1;
        } else {
            const struct buffer *buffer = buffer_named(keyword);
            read_buffer(file, writes(operation, FORWARD_PASS, buffer) ? outputs : inputs, buffer);
            was_read[buffer - buffers] = 1;
        }
    }
    if (!was_read[BUFFER_X] || !was_read[BUFFER_Y] || !exact_was_read)
        fail("a tensor is missing");
    for (int i = 0; i < BUFFERS; i++) {
        if (!was_read[i] || writes(operation, FORWARD_PASS, &buffers[i]))
            set_buffer_data(inputs, &buffers[i], NULL);
        if (!was_read[i])
            set_buffer_data(outputs, &buffers[i], NULL);
    }
    return another;
}

static void free_case(struct onnx_case *onnx) {
    free_problem(&onnx->problem);
    free_call(&onnx->outputs);
    free(onnx->exact);
}

/* Whether ONNX's own outputs agree with the expected ones, by ONNX's tolerance. */
static int agrees(const dynnorm_descriptor *onnx, const struct expectation *expected) {
    for (int i = 0; i < BUFFERS; i++) {
        if (!writes(onnx->operation, FORWARD_PASS, &buffers[i]) || !buffer_data(onnx, &buffers[i]))
            continue;
        for (size_t at = 0; at < buffer_rows(onnx, &buffers[i]) * buffer_columns(onnx, &buffers[i]); at++) {
            double exact = expected->outputs[i][at].exact;
            double tolerance = onnx_absolute_tolerance + onnx_relative_tolerance * fabs(exact);
            if (!(fabs((double)float_at(buffer_data(onnx, &buffers[i]), at) - exact) <= tolerance))
                return 0;
        }
    }
    return 1;
}

static void check_case(struct onnx_case *onnx) {
    const dynnorm_descriptor *call = &onnx->problem.inputs.call;
    size_t values = call->tokens * call->channels;
    struct expectation expected = expect(call);
    struct expected *y = expected.outputs[BUFFER_Y];
    double oracle_error = 0;
    for (size_t i = 0; i < values; i++) {
        oracle_error = fmax(oracle_error, error_in_u(onnx->exact[i], y[i]));
        y[i].exact = onnx->exact[i];
    }
    tap_check(oracle_error < 1e-4, "%s: the oracle's result is the exact one: %.1e u", onnx->name, oracle_error);
    tap_check(agrees(&onnx->outputs.call, &expected), "%s: ONNX's own results agree, by its tolerance", onnx->name);

    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t k = 0; k < listed_kernel_count; k++) {
            const struct listed_kernel *kernel = &listed_kernels[k];
            if (kernel->operation != call->operation || kernel->direction != FORWARD_PASS)
                continue;
            const char *why = why_kernel_is_unavailable(&dynnorm_isa_list[i], kernel);
            if (why) {
                tap_skip(onnx->name, why);
                continue;
            }
            struct tally tally;
            memset(&tally, 0, sizeof tally);
            measure(&onnx->problem, &expected, &dynnorm_isa_list[i], kernel, &tally);
            struct errors all = all_errors(&tally);
            tap_check(all.failures == 0 && tally.outputs[BUFFER_Y].values == values,
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
