/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Gradients against finite differences. The oracle's forward pass alone gives the loss, sum(dy y), and central
 * differences of it the derivative by every input. They show that the oracle's own gradients, which the accuracy tests
 * rely on, are right; and the library's are compared with them too, by the table of bounds.
 */
#include "call.h"
#include "measure.h"
#include "tap.h"

#include <math.h>

enum { TOKENS = 4, CHANNELS_AT_MOST = 9 };

/* A problem in doubles, whose inputs can be moved. */
struct movable {
    struct oracle_problem problem;
    double x[TOKENS * CHANNELS_AT_MOST];
    double dy[TOKENS * CHANNELS_AT_MOST];
    double weight[CHANNELS_AT_MOST];
    double bias[CHANNELS_AT_MOST];
};

static double loss(const struct movable *movable) {
    struct expected y[TOKENS * CHANNELS_AT_MOST];
    struct oracle_results results = {.y = y};
    oracle(&movable->problem, &results);
    double sum = 0;
    for (size_t i = 0; i < movable->problem.tokens * movable->problem.channels; i++)
        sum += movable->dy[i] * y[i].exact;
    return sum;
}

/* The derivative of the loss by one of its inputs: central differences of four steps, extrapolated to a step of 0
 * (Richardson), so that an error of the order of step^8 is left. */
static double difference(const struct movable *movable, double *input) {
    enum { STEPS = 4 };
    double table[STEPS];
    double centre = *input;
    double step = 0x1p-6;
    for (int i = 0; i < STEPS; i++, step /= 2) {
        *input = centre + step;
        double above = loss(movable);
        *input = centre - step;
        double below = loss(movable);
        table[i] = (above - below) / (2 * step);
    }
    *input = centre;
    double power = 1;
    for (int level = 1; level < STEPS; level++) {
        power *= 4;
        for (int i = 0; i < STEPS - level; i++)
            table[i] = (power * table[i + 1] - table[i]) / (power - 1);
    }
    return table[0];
}

static void to_doubles(double *doubles, const float *floats, size_t count) {
    for (size_t i = 0; i < count; i++)
        doubles[i] = (double)floats[i];
}

/* What the differences make of every gradient, with the references of the oracle. */
static struct oracle_results differences(const struct problem *problem, const struct oracle_results *gradients) {
    size_t values = problem->tokens * problem->channels;
    struct movable movable = {.problem = {.operation = problem->operation,
                                          .tokens = problem->tokens,
                                          .channels = problem->channels,
                                          .weight_offset = (double)problem->weight_offset,
                                          .eps = (double)problem->eps,
                                          .parameter = (double)problem->parameter,
                                          .scale = (double)problem->scale}};
    /* Where the problem has no weight, the derivative is taken at a weight of 1: it is the same. */
    for (size_t c = 0; c < problem->channels; c++)
        movable.weight[c] = 1;
    if (problem->weight)
        to_doubles(movable.weight, problem->weight, problem->channels);
    else
        movable.problem.weight_offset = 0;
    if (problem->bias)
        to_doubles(movable.bias, problem->bias, problem->channels);
    to_doubles(movable.x, problem->x, values);
    to_doubles(movable.dy, problem->dy, values);
    movable.problem.x = movable.x;
    movable.problem.weight = movable.weight;
    movable.problem.bias = movable.bias;

    struct oracle_results results = expect(problem);
    for (size_t i = 0; i < values; i++) {
        results.dx[i] = gradients->dx[i];
        results.dx[i].exact = difference(&movable, &movable.x[i]);
    }
    for (size_t c = 0; c < problem->channels; c++) {
        results.dweight[c].exact = difference(&movable, &movable.weight[c]);
        results.dbias[c].exact = difference(&movable, &movable.bias[c]);
    }
    results.dparameter->exact = difference(&movable, &movable.problem.parameter);
    return results;
}

/* The greatest difference of two answers, in u times the reference. */
static double disagreement(const struct expected *a, const struct expected *b, size_t count) {
    double worst = 0;
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, error_in_u(a[i].exact, b[i]));
    return worst;
}

static struct problem random_problem(struct random *random, dynnorm_operation operation) {
    size_t channels = 2 + random_below(random, CHANNELS_AT_MOST - 1);
    struct problem problem = new_problem(operation, 1 + random_below(random, TOKENS), channels);
    problem.name = "smooth";
    problem.seed = random->state;
    for (size_t i = 0; i < problem.tokens * channels; i++) {
        /* Not nearly constant: there the step would have to be smaller. */
        problem.x[i] = (i % channels % 2 ? 2 : -2) + random_normal(random) / 2 + (i / channels == 1 ? 10 : 0);
        problem.dy[i] = random_normal(random);
    }
    if (random_below(random, 3)) {
        problem.weight = allocate_floats(channels);
        for (size_t c = 0; c < channels; c++)
            problem.weight[c] = random_normal(random);
        problem.weight_offset = random_below(random, 2) ? 0 : 1;
    }
    if (operation != DYNNORM_RMSNORM && random_below(random, 3)) {
        problem.bias = allocate_floats(channels);
        for (size_t c = 0; c < channels; c++)
            problem.bias[c] = random_normal(random);
    }
    problem.eps = random_below(random, 2) ? 1e-5f : 1;
    problem.parameter = (float)random_between(random, 0.5, 1.5);
    problem.scale = random_below(random, 2) ? 1 : dynnorm_scale_rmsnorm(channels);
    return problem;
}

int main(void) {
    uint64_t seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    size_t repetitions = thinned() ? 5 : 100;
    /* Differences of doubles are good to a small part of u. */
    const double agreement = 1e-3;

    for (int operation = 0; operation < OPERATIONS; operation++) {
        struct random random = random_start(seed + (uint64_t)operation);
        double worst = 0;
        struct tally tallies[16][64];
        memset(tallies, 0, sizeof tallies);
        for (size_t repetition = 0; repetition < repetitions; repetition++) {
            struct problem problem = random_problem(&random, (dynnorm_operation)operation);
            struct oracle_results gradients = expect(&problem);
            struct oracle_results moved = differences(&problem, &gradients);
            worst = fmax(worst, disagreement(moved.dx, gradients.dx, problem.tokens * problem.channels));
            worst = fmax(worst, disagreement(moved.dweight, gradients.dweight, problem.channels));
            worst = fmax(worst, disagreement(moved.dbias, gradients.dbias, problem.channels));
            if (find_bound(problem.operation, OUTPUT_DPARAMETER))
                worst = fmax(worst, disagreement(moved.dparameter, gradients.dparameter, 1));
            for (size_t i = 0; i < dynnorm_isa_count; i++)
                for (size_t k = 0; k < listed_kernel_count; k++)
                    if (listed_kernels[k].operation == problem.operation &&
                        listed_kernels[k].direction == BACKWARD_PASS &&
                        !why_kernel_is_unavailable(&dynnorm_isa_list[i], &listed_kernels[k]))
                        measure(&problem, &moved, &dynnorm_isa_list[i], &listed_kernels[k], &tallies[i][k]);
            use_table(NULL);
            free_expectation(&gradients);
            free_expectation(&moved);
            free_problem(&problem);
        }
        for (size_t k = 0, named = 0; k < listed_kernel_count; k++) {
            if (listed_kernels[k].operation != (dynnorm_operation)operation ||
                listed_kernels[k].direction != BACKWARD_PASS)
                continue;
            if (!named++)
                tap_check(worst <= agreement, "%s: the oracle's gradients are those of finite differences: %.1e u",
                          listed_kernels[k].operation_name, worst);
            for (size_t i = 0; i < dynnorm_isa_count; i++) {
                const struct isa *isa = &dynnorm_isa_list[i];
                const char *why = why_kernel_is_unavailable(isa, &listed_kernels[k]);
                if (why) {
                    tap_skip(listed_kernels[k].name, why);
                    continue;
                }
                struct errors all = {0, 0, 0, 0};
                for (int output = 0; output < OUTPUTS; output++)
                    add_errors(&all, &tallies[i][k].outputs[output]);
                tap_check(all.values > 0 && all.failures == 0,
                          "%s, %s: as finite differences: at most %.3f of the bound", listed_kernels[k].name,
                          isa->identifier, all.in_bounds);
            }
        }
    }
    return tap_done();
}
