/* SPDX-License-Identifier: BSD-2-Clause */
#include "measure.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Problems and answers ---- */

static void fill(const dynnorm_descriptor *call, const struct buffer *buffer, float value) {
    size_t columns = buffer_columns(call, buffer);
    for (size_t row = 0; row < buffer_rows(call, buffer); row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        for (size_t column = 0; column < columns; column++)
            set_float_at(data, column, value);
    }
}

struct problem new_problem(dynnorm_operation operation, size_t tokens, size_t channels) {
    struct problem problem = {.name = "", .inputs = {.call = DYNNORM_DESCRIPTOR_INIT}};
    dynnorm_descriptor *call = &problem.inputs.call;
    call->operation = operation;
    call->tokens = tokens;
    call->channels = channels;
    set_parameter(call, 1);
    unsigned selected = 0;
    for (int i = 0; i < BUFFERS; i++)
        if (reads(operation, FORWARD_PASS, &buffers[i]) || reads(operation, BACKWARD_PASS, &buffers[i]))
            selected |= 1u << i;
    problem.inputs.memory = allocate_selected(call, selected, 0);
    for (int i = 0; i < BUFFERS; i++)
        if (selected >> i & 1)
            fill(call, &buffers[i], 0);
    return problem;
}

void free_problem(struct problem *problem) {
    free_call(&problem->inputs);
}

struct answer solve(const struct problem *problem, enum direction direction, dynnorm_mode mode) {
    struct answer answer = {.outputs = {.call = problem->inputs.call}};
    dynnorm_descriptor *call = &answer.outputs.call;
    call->mode = mode;
    unsigned written = 0;
    for (int i = 0; i < BUFFERS; i++) {
        if (writes(call->operation, direction, &buffers[i]))
            written |= 1u << i;
        if (!reads(call->operation, direction, &buffers[i]))
            set_buffer_data(call, &buffers[i], NULL);
    }
    answer.outputs.memory = allocate_selected(call, written, 0);
    for (int i = 0; i < BUFFERS; i++)
        if (written >> i & 1)
            fill(call, &buffers[i], accumulates(call, &buffers[i]) ? problem->accumulated : NAN);
    answer.status = run_call(direction, call);
    return answer;
}

void free_answer(struct answer *answer) {
    free_call(&answer->outputs);
}

/* ---- Errors ---- */

double error_in_u(double got, struct expected expected) {
    if (isnan(expected.exact))
        return isnan(got) ? 0 : HUGE_VAL;
    if (!(expected.reference <= (double)FLT_MAX))
        return 0; /* nothing is promised */
    if (isnan(got))
        return HUGE_VAL;
    if (got == expected.exact)
        return 0;
    double error = fabs(got - expected.exact);
    if (isinf(got)) {
        /* An infinity stands for everything that rounds to it. */
        const double smallest = 0x1p128 - 0x1p103;
        error = fmax(0, smallest - (got > 0 ? expected.exact : -expected.exact));
    }
    error -= UNDERFLOW_ERROR * expected.underflow;
    return error <= 0 ? 0 : error / (UNIT_ROUNDOFF * expected.reference);
}

struct expected expected_in_mode(const struct bound *bound, dynnorm_mode mode, struct expected expected) {
    if (mode == DYNNORM_NATIVE && bound->native_reference)
        expected.reference = expected.native_reference;
    return expected;
}

void add_errors(struct errors *sum, const struct errors *errors) {
    sum->values += errors->values;
    sum->failures += errors->failures;
    sum->in_u = fmax(sum->in_u, errors->in_u);
    sum->in_bounds = fmax(sum->in_bounds, errors->in_bounds);
}

struct errors all_errors(const struct tally *tally) {
    struct errors all = {0, 0, 0, 0};
    for (int i = 0; i < BUFFERS; i++)
        add_errors(&all, &tally->outputs[i]);
    return all;
}

static void print_failure(const struct problem *problem, const struct isa *isa, const struct listed_kernel *kernel,
                          const struct answer *answer) {
    const dynnorm_descriptor *call = &answer->outputs.call;
    int is_accumulating = 0;
    for (int i = 0; i < BUFFERS; i++)
        is_accumulating |= accumulates(call, &buffers[i]);
    printf("# %s, %s: %s, seed %llu, %zu tokens x %zu channels\n", kernel->name, isa->identifier, problem->name,
           (unsigned long long)problem->seed, call->tokens, call->channels);
    printf("#   weight %s, bias %s, weight offset %g, eps %g, alpha or beta %g, scale %g, statistics %s, %s, "
           "status: %s\n",
           call->weight.data ? "yes" : "no", call->bias.data ? "yes" : "no", (double)call->weight_offset,
           (double)call->eps, (double)dynnorm_parameter_of(call), (double)call->scale,
           problem->inputs.call.rstd ? "given" : "recomputed", is_accumulating ? "accumulating" : "overwriting",
           dynnorm_status_string(answer->status));
}

/* The errors of one output; describes the first failure in text if there is any. */
static struct errors errors_of_output(const struct problem *problem, const struct expected *expected,
                                      const struct answer *answer, const struct bound *bound, char text[160]) {
    const dynnorm_descriptor *call = &answer->outputs.call;
    const struct buffer *buffer = &buffers[bound->output];
    double factor = bound_factor(bound, call->mode);
    int is_accumulated = accumulates(call, buffer);
    size_t columns = buffer_columns(call, buffer);
    struct errors errors = {0, 0, 0, 0};
    for (size_t row = 0; row < buffer_rows(call, buffer); row++) {
        const unsigned char *data = buffer_row(call, buffer, row);
        for (size_t column = 0; column < columns; column++) {
            struct expected value = expected_in_mode(bound, call->mode, expected[errors.values++]);
            if (is_accumulated) {
                value.exact += (double)problem->accumulated;
                value.underflow += UNIT_ROUNDOFF * fabs(value.exact) / UNDERFLOW_ERROR; /* the sum is rounded, once */
            }
            double got = (double)float_at(data, column);
            double in_u = answer->status == DYNNORM_OK ? error_in_u(got, value) : HUGE_VAL;
            errors.in_u = fmax(errors.in_u, in_u);
            if (in_u > factor && errors.failures++ == 0)
                snprintf(text, 160, "%s[%zu][%zu]: got %.9g, expected %.17g; %.3g times the bound", buffer->name, row,
                         column, got, value.exact, in_u / factor);
        }
    }
    errors.in_bounds = errors.in_u / factor;
    return errors;
}

void measure_answer(const struct problem *problem, const struct expectation *expected, const struct isa *isa,
                    const struct listed_kernel *kernel, const struct answer *answer, struct tally *tally) {
    const dynnorm_descriptor *call = &answer->outputs.call;
    for (int i = 0; i < BUFFERS; i++) {
        if (!writes(call->operation, kernel->direction, &buffers[i]))
            continue;
        const struct bound *bound = find_bound(call->operation, (enum buffer_index)i);
        if (!bound) {
            fprintf(stderr, "%s: %s has no bound\n", kernel->name, buffers[i].name);
            abort();
        }
        char text[160];
        struct errors errors = errors_of_output(problem, expected->outputs[i], answer, bound, text);
        if (errors.failures > 0 && tally->outputs[i].failures < 3) {
            print_failure(problem, isa, kernel, answer);
            printf("#   %s\n", text);
        }
        add_errors(&tally->outputs[i], &errors);
    }
}

void measure(const struct problem *problem, const struct expectation *expected, const struct isa *isa,
             const struct listed_kernel *kernel, struct tally *tally) {
    struct answer answer = solve(problem, kernel->direction, kernel->mode);
    measure_answer(problem, expected, isa, kernel, &answer, tally);
    free_answer(&answer);
}
