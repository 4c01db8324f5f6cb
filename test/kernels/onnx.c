/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Runs ONNX's node tests of LayerNormalization and RMSNormalization, and compares with their exact results. The
 * argument is the file of the cases; test/data/onnx/README.md says where they come from and how the file is written.
 *
 * ONNX has these cases in float only. Their inputs, rounded to bf16 and f16, serve once more for what the two operators
 * say of such types: n is computed in float and converted to the type, in which it is multiplied and added to.
 */
#include "bounds.h"
#include "call.h"
#include "elements.h"
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

/* ---- In 16 bits ---------------------------------------------------------------------------------------------------
 */

/* A case in another type. weight and bias are NULL where the case has none. */
struct typed_case {
    const struct onnx_case *onnx;
    dynnorm_type type;
    unsigned char *x, *weight, *bias, *y;
    struct problem of_n; /* the rounded x, and nothing else */
};

/* How many values were compared, and of how many the exact n is so near to the middle between two numbers that it may
 * be rounded to either. */
static size_t typed_values, ambiguous_values;

/* Rounds a buffer of the case. */
static unsigned char *convert(const struct typed_case *typed, enum buffer_index index) {
    const dynnorm_descriptor *call = &typed->onnx->problem.inputs.call;
    const unsigned char *floats = buffer_data(call, &buffers[index]);
    const size_t count = buffer_rows(call, &buffers[index]) * buffer_columns(call, &buffers[index]);
    unsigned char *elements = floats ? malloc(count * dynnorm_element_bytes(typed->type)) : NULL;
    for (size_t i = 0; floats && i < count; i++)
        set_element_at(elements, typed->type, i, (double)float_at(floats, i));
    return elements;
}

static struct typed_case make_typed_case(const struct onnx_case *onnx, dynnorm_type type) {
    const dynnorm_descriptor *call = &onnx->problem.inputs.call;
    const size_t count = call->tokens * call->channels;
    struct typed_case made = {.onnx = onnx, .type = type};
    made.x = convert(&made, BUFFER_X);
    made.weight = convert(&made, BUFFER_WEIGHT);
    made.bias = convert(&made, BUFFER_BIAS);
    made.y = malloc(count * dynnorm_element_bytes(type));
    made.of_n = new_problem(call->operation, call->tokens, call->channels);
    made.of_n.inputs.call.eps = call->eps;
    made.of_n.inputs.call.weight.data = made.of_n.inputs.call.bias.data = NULL;
    for (size_t i = 0; i < count; i++)
        set_float_at(made.of_n.inputs.call.x.data, i, (float)element_at(made.x, type, i));
    return made;
}

static void free_typed_case(struct typed_case *typed) {
    free(typed->x);
    free(typed->weight);
    free(typed->bias);
    free(typed->y);
    free_problem(&typed->of_n);
}

/* The bits of y for this n. */
static uint32_t weigh(const struct typed_case *typed, double n, size_t channel) {
    double value = rounded(typed->type, n);
    if (typed->weight)
        value = rounded(typed->type, value * element_at(typed->weight, typed->type, channel));
    if (typed->bias)
        value = rounded(typed->type, (double)(float)(value + element_at(typed->bias, typed->type, channel)));
    return narrowed(typed->type, value);
}

/* Whether y is right; counts the values. */
static int is_weighed(const struct typed_case *typed, const struct expectation *of_n) {
    const dynnorm_descriptor *call = &typed->of_n.inputs.call;
    const double bound = find_bound(call->operation, BUFFER_Y)->portable * UNIT_ROUNDOFF;
    int right = 1;
    for (size_t i = 0; i < call->tokens * call->channels; i++) {
        const struct expected *n = &of_n->outputs[BUFFER_Y][i];
        const uint32_t got = load_element(typed->y, typed->type, i);
        const uint32_t low = weigh(typed, n->exact - bound * n->reference, i % call->channels);
        const uint32_t high = weigh(typed, n->exact + bound * n->reference, i % call->channels);
        typed_values++;
        ambiguous_values += low != high;
        if (got != low && got != high) {
            printf("# element %zu: got %04x, expected %04x\n", i, got, low);
            right = 0;
        }
    }
    return right;
}

static void check_in_type(const struct onnx_case *onnx, dynnorm_type type) {
    struct typed_case typed = make_typed_case(onnx, type);
    struct expectation of_n = expect(&typed.of_n.inputs.call);
    dynnorm_descriptor call = typed.of_n.inputs.call;
    call.x.data = typed.x, call.y.data = typed.y;
    call.weight.data = typed.weight, call.bias.data = typed.bias;
    call.x.type = call.y.type = call.weight.type = call.bias.type = type;
    call.mean = call.rstd = NULL;
    call.round_before_weight = 1;
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        if (!use_table(&dynnorm_isa_list[i])) {
            tap_skip(onnx->name, TABLE_IS_UNAVAILABLE);
            continue;
        }
        const dynnorm_status status = dynnorm_forward(&call);
        tap_check(status == DYNNORM_OK && is_weighed(&typed, &of_n), "%s: %s, as ONNX rounds in %s: %s", onnx->name,
                  dynnorm_isa_list[i].identifier, element_name(type), dynnorm_status_string(status));
    }
    use_table(NULL);
    free_expectation(&of_n);
    free_typed_case(&typed);
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
        check_in_type(&onnx, DYNNORM_BF16);
        check_in_type(&onnx, DYNNORM_F16);
        free_case(&onnx);
        cases++;
    }
    fclose(file);
    tap_check(cases == 38, "%d cases were read", cases);
    tap_check(ambiguous_values * 200 < typed_values, "%zu of %zu values in 16 bits may be rounded to either side",
              ambiguous_values, typed_values);
    return tap_done();
}
