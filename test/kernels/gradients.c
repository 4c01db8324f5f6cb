/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares gradients with finite differences. The loss is sum(dy y), computed by the oracle's forward pass alone. Its
 * central differences are the derivatives by every input. They show that the oracle's own gradients are right, which
 * the accuracy tests rely on; and the library's gradients are compared with them too, by the table of bounds.
 */
#include "call.h"
#include "measure.h"
#include "oracle.h"
#include "random.h"
#include "tap.h"

#include <math.h>

enum { TOKENS = 4, CHANNELS_AT_MOST = 9 };

/* sum(dy y) */
static double loss(const struct question *question) {
    struct expected y[TOKENS * CHANNELS_AT_MOST];
    struct expectation results = {.outputs = {[BUFFER_Y] = y}};
    oracle(question, &results);
    double sum = 0;
    for (size_t i = 0; i < question->tokens * question->channels; i++)
        sum += question->dy[i] * y[i].exact;
    return sum;
}

/* The derivative of the loss by one of its inputs: central differences of four steps, extrapolated to a step of 0
 * (Richardson), so that an error of the order of step^8 is left. */
static double difference(const struct question *question, double *input) {
    enum { STEPS = 4 };
    double table[STEPS];
    double centre = *input;
    double step = 0x1p-6;
    for (int i = 0; i < STEPS; i++, step /= 2) {
        *input = centre + step;
        double above = loss(question);
        *input = centre - step;
        double below = loss(question);
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

/* The oracle's expectation, with each gradient replaced by its finite difference. The references stay the oracle's. */
static struct expectation differences(const dynnorm_descriptor *call) {
    /* Without a weight or bias, the derivative by it is that at a weight of 1 and a bias of 0. */
    double ones[CHANNELS_AT_MOST], zeros[CHANNELS_AT_MOST] = {0};
    for (size_t c = 0; c < call->channels; c++)
        ones[c] = 1;
    struct question question = question_of(call), movable = question;
    /* The oracle rounds weight + offset to float, which must not happen to the steps. */
    for (size_t c = 0; question.weight && c < call->channels; c++)
        movable.weight[c] = (double)(float)(movable.weight[c] + movable.weight_offset);
    movable.weight_offset = 0;
    if (!question.weight)
        movable.weight = ones;
    if (!question.bias)
        movable.bias = zeros;

    struct expectation results = expect(call);
    const struct {
        enum buffer_index gradient;
        double *input;
        size_t count;
    } moved[] = {
        {BUFFER_DX, movable.x, call->tokens * call->channels},
        {BUFFER_DWEIGHT, movable.weight, call->channels},
        {BUFFER_DBIAS, movable.bias, call->channels},
        {BUFFER_DALPHA, &movable.parameter, 1},
        {BUFFER_DBETA, &movable.parameter, 1},
    };
    for (size_t m = 0; m < sizeof moved / sizeof *moved; m++)
        for (size_t i = 0; results.outputs[moved[m].gradient] && i < moved[m].count; i++)
            results.outputs[moved[m].gradient][i].exact = difference(&movable, &moved[m].input[i]);
    free_question(&question);
    return results;
}

/* The greatest difference of two sets of gradients, in u times the reference. */
static double disagreement(const dynnorm_descriptor *call, const struct expectation *a, const struct expectation *b) {
    double worst = 0;
    for (int i = 0; i < BUFFERS; i++) {
        if (!writes(call->operation, BACKWARD_PASS, &buffers[i]))
            continue;
        size_t count = buffer_rows(call, &buffers[i]) * buffer_columns(call, &buffers[i]);
        for (size_t at = 0; at < count; at++)
            worst = fmax(worst, error_in_u(a->outputs[i][at].exact, b->outputs[i][at]));
    }
    return worst;
}

static struct problem random_problem(struct random *random, dynnorm_operation operation) {
    size_t channels = 2 + random_below(random, CHANNELS_AT_MOST - 1);
    struct problem problem = new_problem(operation, 1 + random_below(random, TOKENS), channels);
    dynnorm_descriptor *call = &problem.inputs.call;
    problem.name = "smooth";
    problem.seed = random->state;
    for (size_t i = 0; i < call->tokens * channels; i++) {
        /* No nearly constant rows, which would need a smaller step. */
        set_float_at(call->x.data, i,
                     (i % channels % 2 ? 2 : -2) + random_normal(random) / 2 + (i / channels == 1 ? 10 : 0));
        set_float_at(call->dy.data, i, random_normal(random));
    }
    if (random_below(random, 3)) {
        for (size_t c = 0; c < channels; c++)
            set_float_at(call->weight.data, c, random_normal(random));
        call->weight_offset = random_below(random, 2) ? 0 : 1;
    } else {
        call->weight.data = NULL;
    }
    if (dynnorm_operations[operation].has_bias && random_below(random, 3))
        for (size_t c = 0; c < channels; c++)
            set_float_at(call->bias.data, c, random_normal(random));
    else
        call->bias.data = NULL;
    call->mean = call->rstd = NULL;
    call->eps = random_below(random, 2) ? 1e-5f : 1;
    set_parameter(call, (float)random_between(random, 0.5, 1.5));
    call->scale = random_below(random, 2) ? 1 : dynnorm_scale_rmsnorm(channels);
    return problem;
}

int main(void) {
    uint64_t seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    size_t repetitions = thinned() ? 5 : 100;
    /* The differences are computed in double, so they are exact to a small part of u. */
    const double agreement = 1e-3;

    for (int operation = 0; operation < OPERATIONS; operation++) {
        struct random random = random_start(seed + (uint64_t)operation);
        double worst = 0;
        struct tally tallies[16][64];
        memset(tallies, 0, sizeof tallies);
        for (size_t repetition = 0; repetition < repetitions; repetition++) {
            struct problem problem = random_problem(&random, (dynnorm_operation)operation);
            struct expectation gradients = expect(&problem.inputs.call);
            struct expectation moved = differences(&problem.inputs.call);
            worst = fmax(worst, disagreement(&problem.inputs.call, &moved, &gradients));
            for (size_t i = 0; i < dynnorm_isa_count; i++)
                for (size_t k = 0; k < listed_kernel_count; k++)
                    if (listed_kernels[k].operation == (dynnorm_operation)operation &&
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
                          dynnorm_operations[operation].name, worst);
            for (size_t i = 0; i < dynnorm_isa_count; i++) {
                const struct isa *isa = &dynnorm_isa_list[i];
                const char *why = why_kernel_is_unavailable(isa, &listed_kernels[k]);
                if (why) {
                    tap_skip(listed_kernels[k].name, why);
                    continue;
                }
                struct errors all = all_errors(&tallies[i][k]);
                tap_check(all.values > 0 && all.failures == 0,
                          "%s, %s: as finite differences: at most %.3f of the bound", listed_kernels[k].name,
                          isa->identifier, all.in_bounds);
            }
        }
    }
    return tap_done();
}
