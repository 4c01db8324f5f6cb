/* SPDX-License-Identifier: BSD-2-Clause */
#include "measure.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        abort();
    }
    return memory;
}

float *allocate_floats(size_t count) {
    return allocate(count, sizeof(float));
}

struct problem new_problem(dynnorm_operation operation, size_t tokens, size_t channels) {
    struct problem problem;
    memset(&problem, 0, sizeof problem);
    problem.name = "";
    problem.operation = operation;
    problem.tokens = tokens;
    problem.channels = channels;
    problem.x = allocate_floats(tokens * channels);
    problem.dy = allocate_floats(tokens * channels);
    problem.parameter = 1;
    problem.scale = 1;
    return problem;
}

void free_problem(struct problem *problem) {
    free(problem->x);
    free(problem->dy);
    free(problem->weight);
    free(problem->bias);
    free(problem->mean);
    free(problem->rstd);
}

static double *to_doubles(const float *values, size_t count) {
    if (!values)
        return NULL;
    double *doubles = allocate(count, sizeof *doubles);
    for (size_t i = 0; i < count; i++)
        doubles[i] = (double)values[i];
    return doubles;
}

static size_t output_count(const struct problem *problem, enum output output) {
    switch (output) {
    case OUTPUT_Y:
    case OUTPUT_DX:
        return problem->tokens * problem->channels;
    case OUTPUT_MEAN:
    case OUTPUT_RSTD:
        return problem->tokens;
    case OUTPUT_DWEIGHT:
    case OUTPUT_DBIAS:
        return problem->channels;
    default:
        return 1;
    }
}

static struct expected *expected_output(const struct oracle_results *results, enum output output) {
    switch (output) {
    case OUTPUT_Y:
        return results->y;
    case OUTPUT_MEAN:
        return results->mean;
    case OUTPUT_RSTD:
        return results->rstd;
    case OUTPUT_DX:
        return results->dx;
    case OUTPUT_DWEIGHT:
        return results->dweight;
    case OUTPUT_DBIAS:
        return results->dbias;
    default:
        return results->dparameter;
    }
}

struct oracle_results expect(const struct problem *problem) {
    size_t values = problem->tokens * problem->channels;
    double *x = to_doubles(problem->x, values);
    double *dy = to_doubles(problem->dy, values);
    double *weight = to_doubles(problem->weight, problem->channels);
    double *bias = to_doubles(problem->bias, problem->channels);
    double *rstd = to_doubles(problem->rstd, problem->tokens);
    struct oracle_problem question = {
        .operation = problem->operation,
        .tokens = problem->tokens,
        .channels = problem->channels,
        .x = x,
        .dy = dy,
        .weight = weight,
        .bias = bias,
        .weight_offset = (double)problem->weight_offset,
        .eps = (double)problem->eps,
        .parameter = (double)problem->parameter,
        .scale = (double)problem->scale,
    };
    struct oracle_results results = {
        .y = allocate(output_count(problem, OUTPUT_Y), sizeof(struct expected)),
        .mean = allocate(output_count(problem, OUTPUT_MEAN), sizeof(struct expected)),
        .rstd = allocate(output_count(problem, OUTPUT_RSTD), sizeof(struct expected)),
        .dx = allocate(output_count(problem, OUTPUT_DX), sizeof(struct expected)),
        .dweight = allocate(output_count(problem, OUTPUT_DWEIGHT), sizeof(struct expected)),
        .dbias = allocate(output_count(problem, OUTPUT_DBIAS), sizeof(struct expected)),
        .dparameter = allocate(1, sizeof(struct expected)),
    };
    if (!rstd)
        oracle(&question, &results);
    else {
        struct oracle_results forward = results;
        struct oracle_results backward = results;
        forward.dx = forward.dweight = forward.dbias = forward.dparameter = NULL;
        backward.y = backward.mean = backward.rstd = NULL;
        oracle(&question, &forward);
        question.rstd = rstd;
        oracle(&question, &backward);
    }
    free(x);
    free(dy);
    free(weight);
    free(bias);
    free(rstd);
    return results;
}

void free_expectation(struct oracle_results *results) {
    for (int output = 0; output < OUTPUTS; output++)
        free(expected_output(results, (enum output)output));
}

static int is_gradient(enum output output) {
    return output >= OUTPUT_DX;
}

dynnorm_status solve(const struct problem *problem, enum direction direction, dynnorm_mode mode,
                     struct answer *answer) {
    for (int output = 0; output < OUTPUTS; output++) {
        answer->outputs[output] = NULL;
        if (!find_bound(problem->operation, (enum output)output) ||
            is_gradient((enum output)output) != (direction == BACKWARD_PASS))
            continue;
        size_t count = output_count(problem, (enum output)output);
        answer->outputs[output] = allocate_floats(count);
        for (size_t i = 0; i < count; i++)
            answer->outputs[output][i] = problem->accumulate ? problem->accumulated : NAN;
    }
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = problem->operation;
    call.mode = mode;
    call.tokens = problem->tokens;
    call.channels = problem->channels;
    call.x.data = problem->x;
    call.weight.data = problem->weight;
    call.weight_offset = problem->weight_offset;
    call.eps = problem->eps;
    call.alpha = call.beta = problem->parameter;
    call.scale = problem->scale;
    if (direction == FORWARD_PASS) {
        call.bias.data = problem->bias;
        call.y.data = answer->outputs[OUTPUT_Y];
        call.mean = answer->outputs[OUTPUT_MEAN];
        call.rstd = answer->outputs[OUTPUT_RSTD];
        return dynnorm_forward(&call);
    }
    call.dy.data = problem->dy;
    call.mean = problem->mean;
    call.rstd = problem->rstd;
    call.dx.data = answer->outputs[OUTPUT_DX];
    call.dweight.data = answer->outputs[OUTPUT_DWEIGHT];
    call.dbias.data = answer->outputs[OUTPUT_DBIAS];
    if (problem->operation == DYNNORM_DYT)
        call.dalpha = answer->outputs[OUTPUT_DPARAMETER];
    else
        call.dbeta = answer->outputs[OUTPUT_DPARAMETER];
    call.accumulate_dx = call.accumulate_dweight = call.accumulate_dbias = call.accumulate_dalpha =
        call.accumulate_dbeta = problem->accumulate;
    return dynnorm_backward(&call);
}

void free_answer(struct answer *answer) {
    for (int output = 0; output < OUTPUTS; output++)
        free(answer->outputs[output]);
}

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
        /* An infinity stands for all that rounds to it. */
        const double smallest = 0x1p128 - 0x1p103;
        error = fmax(0, smallest - (got > 0 ? expected.exact : -expected.exact));
    }
    error -= UNDERFLOW_ERROR * expected.underflow;
    return error <= 0 ? 0 : error / (UNIT_ROUNDOFF * expected.reference);
}

void add_errors(struct errors *sum, const struct errors *errors) {
    sum->values += errors->values;
    sum->failures += errors->failures;
    sum->in_u = fmax(sum->in_u, errors->in_u);
    sum->in_bounds = fmax(sum->in_bounds, errors->in_bounds);
}

void measure_answer(const struct problem *problem, const struct oracle_results *expected, const struct isa *isa,
                    const struct listed_kernel *kernel, dynnorm_status status, const struct answer *answer,
                    struct tally *tally) {
    for (int output = 0; output < OUTPUTS; output++) {
        const float *got = answer->outputs[output];
        if (!got)
            continue;
        const struct bound *bound = find_bound(problem->operation, (enum output)output);
        double factor = bound_factor(bound, kernel->mode, problem->contrived);
        struct errors errors = {output_count(problem, (enum output)output), 0, 0, 0};
        for (size_t i = 0; i < errors.values; i++) {
            struct expected value = expected_output(expected, (enum output)output)[i];
            if (problem->accumulate && is_gradient((enum output)output)) {
                value.exact += (double)problem->accumulated;
                value.underflow += UNIT_ROUNDOFF * fabs(value.exact) / UNDERFLOW_ERROR; /* the sum is rounded, once */
            }
            double in_u = status == DYNNORM_OK ? error_in_u((double)got[i], value) : HUGE_VAL;
            errors.in_u = fmax(errors.in_u, in_u);
            if (in_u <= factor)
                continue;
            if (errors.failures++ == 0 && tally->outputs[output].failures < 3) {
                printf("# %s, %s: %s, seed %llu, %zu tokens x %zu channels, %s[%zu]: got %.9g, expected %.17g; "
                       "%.3g times the bound\n",
                       kernel->name, isa->identifier, problem->name, (unsigned long long)problem->seed, problem->tokens,
                       problem->channels, bound->output_name, i, (double)got[i], value.exact, in_u / factor);
                printf("#   weight %s, bias %s, weight offset %g, eps %g, alpha or beta %g, scale %g, statistics %s, "
                       "%s, status: %s\n",
                       problem->weight ? "yes" : "no", problem->bias ? "yes" : "no", (double)problem->weight_offset,
                       (double)problem->eps, (double)problem->parameter, (double)problem->scale,
                       problem->rstd ? "given" : "recomputed", problem->accumulate ? "accumulating" : "overwriting",
                       dynnorm_status_string(status));
            }
        }
        errors.in_bounds = errors.in_u / factor;
        add_errors(&tally->outputs[output], &errors);
    }
}

void measure(const struct problem *problem, const struct oracle_results *expected, const struct isa *isa,
             const struct listed_kernel *kernel, struct tally *tally) {
    struct answer answer;
    dynnorm_status status = solve(problem, kernel->direction, kernel->mode, &answer);
    measure_answer(problem, expected, isa, kernel, status, &answer, tally);
    free_answer(&answer);
}
