/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Alpha and beta by pointer. One element gives the bits of the field; an element for each channel, if all are equal,
 * the bits of a call with one of them, but for dalpha and dbeta; and if they differ, for DyT and DyISRU the bits of
 * calls of single channels, which the accuracy tests hold to the bounds, and for the centered DyISRU what the oracle
 * says of each channel. Ranges, executors, types, strides and places of the arguments change nothing.
 */
#include "bounds.h"
#include "call.h"
#include "executors.h"
#include "measure.h"
#include "oracle.h"
#include "random.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct isa *table;
static const struct listed_kernel *kernel;

static enum buffer_index parameters_index(void) {
    return kernel->operation == DYNNORM_DYT ? BUFFER_ALPHAS : BUFFER_BETAS;
}

static const struct buffer *parameters(void) {
    return &buffers[parameters_index()];
}

static enum buffer_index gradient_index(void) {
    return kernel->operation == DYNNORM_DYT ? BUFFER_DALPHA : BUFFER_DBETA;
}

/* What a call is like besides its shape. */
struct way {
    int per_channel;
    int accumulates;
    int is_in_place;
    dynnorm_type type; /* of the parameters */
    size_t misalignment;
    dynnorm_type tensor_type;
};

/* A call with all buffers of its kernel and the parameters, the inputs filled. */
static struct test_call make_call(size_t tokens, size_t channels, const struct way *way) {
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    unsigned used = 1u << parameters_index();
    for (int i = 0; i < BUFFERS; i++)
        used |= (unsigned)uses(kernel->operation, kernel->direction, &buffers[i]) << i;
    made.call.parameter_per_channel = way->per_channel;
    set_buffer_type(&made.call, parameters(), way->type);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].stride_field)
            set_buffer_type(&made.call, &buffers[i], way->tensor_type);
    made.memory = allocate_selected(&made.call, used, way->misalignment);
    fill_inputs(&made.call, kernel->direction, 7);
    for (int i = 0; i < BUFFERS; i++)
        if (way->accumulates && buffers[i].accumulate_field &&
            writes(kernel->operation, kernel->direction, &buffers[i]))
            set_accumulate(&made.call, &buffers[i], 1);
    if (way->is_in_place && kernel->direction == FORWARD_PASS)
        made.call.y.data = made.call.x.data;
    if (way->is_in_place && kernel->direction == BACKWARD_PASS && !way->accumulates)
        made.call.dx.data = made.call.dy.data;
    return made;
}

static void set_parameter_at(struct test_call *test, size_t i, double value) {
    set_element_at(buffer_data(&test->call, parameters()), buffer_type(&test->call, parameters()), i, value);
}

static double parameter_at(const struct test_call *test, size_t i) {
    return element_at(buffer_data(&test->call, parameters()), buffer_type(&test->call, parameters()), i);
}

/* Parameters of all magnitudes; those of the first kind are usual. */
static double random_parameter(struct random *random, int kind) {
    const int is_alpha = kernel->operation == DYNNORM_DYT;
    static const double unusual[] = {
        0,   0x1p-149, 0x1p-126, 0x1p-70, 0x1p-61, 1e-10,   0x1p-4,          0.1249, 0x1p-3, 0.25,    0.24, 1.5,
        1e3, 0x1p41,   0x1p61,   0x1p96,  0x1p100, 0x1p126, (double)FLT_MAX, -0.0,   -0.3,   -0x1p-7, -1e5, -0x1p80};
    if (kind == 0)
        return random_between(random, 0.5, 2);
    const double value = unusual[random_below(random, sizeof unusual / sizeof *unusual)];
    return is_alpha ? value : fabs(value);
}

static void check(int same, const char *what, const struct difference *difference) {
    tap_check(same, "%s %s, %s%s%s", table->identifier, kernel->name, what, same ? "" : ": ",
              same ? "" : difference->text);
}

static const struct shape {
    size_t tokens;
    size_t channels;
} shapes[] = {{1, 1}, {1, 40}, {3, 5}, {5, 64}, {40, 17}, {9, 300}, {70, 330}, {33, 1040}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int shape_count(void) {
    return thinned_for(table) ? SHAPES - 3 : SHAPES;
}

/* ---- The bits of the field alpha or beta ---- */

/* Outputs but for the parameter's gradient. */
static int channels_differ(const struct test_call *got, const struct test_call *expected,
                           struct difference *difference) {
    dynnorm_descriptor a = got->call;
    a.dalpha = a.dbeta = NULL;
    return outputs_differ(&a, &expected->call, kernel->direction, difference);
}

static int gives_bits_of_field(const struct shape *shape, const struct way *way, double value,
                               struct difference *difference) {
    struct test_call got = make_call(shape->tokens, shape->channels, way);
    struct way plain = *way;
    plain.per_channel = 0;
    struct test_call expected = make_call(shape->tokens, shape->channels, &plain);
    for (size_t i = 0; i < dynnorm_parameter_count(&got.call); i++)
        set_parameter_at(&got, i, value);
    set_parameter(&expected.call, (float)parameter_at(&got, 0));
    set_parameter(&got.call, NAN); /* which is ignored */
    set_buffer_data(&expected.call, parameters(), NULL);
    int same = run_call(kernel->direction, &expected.call) == DYNNORM_OK;
    const dynnorm_status status = run_call(kernel->direction, &got.call);
    snprintf(difference->text, sizeof difference->text, "status %d", (int)status);
    unify_nans(&got.call, kernel->direction);
    unify_nans(&expected.call, kernel->direction);
    same = same && status == DYNNORM_OK &&
           !(way->per_channel ? channels_differ(&got, &expected, difference)
                              : outputs_differ(&got.call, &expected.call, kernel->direction, difference));
    if (!same)
        printf("# %zu x %zu, parameter %a of type %d, accumulates %d, in place %d, misalignment %zu\n", shape->tokens,
               shape->channels, value, (int)way->type, way->accumulates, way->is_in_place, way->misalignment);
    free_call(&got);
    free_call(&expected);
    return same;
}

static void check_bits_of_field(int per_channel) {
    struct random random = random_start(random_seed());
    struct difference difference;
    int same = 1;
    for (int s = 0; s < shape_count(); s++)
        for (int i = 0; i < (thinned_for(table) ? 12 : 24); i++) {
            const struct way way = {per_channel,   i % 5 == 1,
                                    i % 3 == 2,    (dynnorm_type)(i % TYPES),
                                    i % 2 ? 1 : 0, i % 4 == 3 ? (dynnorm_type)(i / 4 % TYPES) : DYNNORM_F32};
            const double value = random_parameter(&random, i < 6 ? 0 : 1);
            /* of a type that may not hold it */
            const double held = rounded(way.type, value);
            same = same && gives_bits_of_field(&shapes[s], &way, isfinite(held) ? held : 1, &difference);
        }
    check(same, per_channel ? "equal elements" : "one element", &difference);
}

/* ---- The bits of single channels ---- */

/* What the first table gave, as a hash. */
enum { KINDS = 4 };
static uint64_t hashes[64][SHAPES][KINDS];

static int hash_differs(const dynnorm_descriptor *call, uint64_t *expected) {
    uint64_t hash = 1469598103934665603u;
    for (int b = 0; b < BUFFERS; b++)
        for (size_t row = 0;
             writes(kernel->operation, kernel->direction, &buffers[b]) && row < buffer_rows(call, &buffers[b]); row++)
            for (size_t i = 0; i < buffer_row_bytes(call, &buffers[b]); i++)
                hash = (hash ^ buffer_row(call, &buffers[b], row)[i]) * 1099511628211u;
    if (!*expected)
        *expected = hash;
    return kernel->mode != DYNNORM_NATIVE && hash != *expected;
}

/* The call of one channel of another call, whose rows lie as far apart, and with gradients of its own. */
static int channel_differs(const struct test_call *all, size_t channel, struct difference *difference) {
    const size_t tokens = all->call.tokens, stride = all->call.channels;
    const int backward = kernel->direction == BACKWARD_PASS;
    dynnorm_descriptor call = describe(kernel, tokens, 1);
    float dweight, dbias, gradient, *out = malloc(tokens * sizeof *out);
    set_parameter(&call, (float)parameter_at(all, channel));
    call.x.data = (float *)all->call.x.data + channel;
    call.x.row_stride = call.dy.row_stride = stride;
    call.weight.data = (float *)all->call.weight.data + channel;
    if (backward) {
        call.dy.data = (float *)all->call.dy.data + channel;
        call.dx.data = out;
        call.dweight.data = &dweight;
        call.dbias.data = &dbias;
        *(kernel->operation == DYNNORM_DYT ? &call.dalpha : &call.dbeta) = &gradient;
    } else {
        call.bias.data = (float *)all->call.bias.data + channel;
        call.y.data = out;
    }
    int differs = run_call(kernel->direction, &call) != DYNNORM_OK;
    unify_nans(&call, kernel->direction);
    const struct buffer *output = &buffers[backward ? BUFFER_DX : BUFFER_Y];
    for (size_t row = 0; row < tokens; row++) {
        const float got = float_at(buffer_row(&all->call, output, row), channel);
        if (memcmp(&got, &out[row], sizeof got)) {
            snprintf(difference->text, sizeof difference->text, "%s[%zu][%zu] is %a, not %a", output->name, row,
                     channel, (double)got, (double)out[row]);
            differs = 1;
        }
    }
    const struct {
        enum buffer_index index;
        const float *expected;
    } sums[] = {{BUFFER_DWEIGHT, &dweight}, {BUFFER_DBIAS, &dbias}, {gradient_index(), &gradient}};
    for (int i = 0; i < 3 && backward; i++) {
        const float got = float_at(buffer_data(&all->call, &buffers[sums[i].index]), channel);
        /* Near 0, and far out with a beta of 0, one of the two may be made in double. */
        const double least = i == 2 ? 0x1p-146 + 0x1p-20 * fabs((double)got) : 0;
        const int is_close = fabs((double)got - (double)*sums[i].expected) <= least;
        if (!is_close && memcmp(&got, sums[i].expected, sizeof got)) {
            snprintf(difference->text, sizeof difference->text, "%s[%zu] is %a, not %a, with %a",
                     buffers[sums[i].index].name, channel, (double)got, (double)*sums[i].expected,
                     parameter_at(all, channel));
            differs = 1;
        }
    }
    free(out);
    return differs;
}

/* Rows of one block, since blocks of rows are as long as there are channels. Elements that are far out, infinite or NaN
   are among them; and, in the forward pass, parameters that are NaN beside a beta of 0. */
static void check_single_channels(void) {
    struct random random = random_start(random_seed() + 1);
    struct difference difference;
    int same = 1;
    for (int s = 0; s < shape_count(); s++)
        for (int kind = 0; kind < KINDS - (kernel->direction == BACKWARD_PASS); kind++) {
            const size_t tokens = shapes[s].tokens < 32 ? shapes[s].tokens : 32;
            struct test_call test = make_call(tokens, shapes[s].channels, &(const struct way){.per_channel = 1});
            for (size_t i = 0; i < shapes[s].channels; i++)
                set_parameter_at(&test, i, random_parameter(&random, kind && random_below(&random, 3) == 0));
            /* A 0 and a NaN in the same lane of 4, 8 or 16 */
            for (size_t i = 0; kind == 3 && i < shapes[s].channels; i++)
                set_parameter_at(&test, i, i == 1 ? 0 : i == 5 || i == 9 || i == 17 ? (double)NAN : 1);
            for (size_t i = 0; kind >= 2 && i < shapes[s].channels; i++) {
                static const float far[] = {INFINITY, -INFINITY, NAN, 1e20f, -3e38f, 60, 0, -0x1p-140f, 200, -0.0f};
                const size_t row = random_below(&random, tokens);
                set_float_at(buffer_row(&test.call, &buffers[BUFFER_X], row), i, far[random_below(&random, 10)]);
            }
            if (kind == 3 && shapes[s].channels > 1)
                set_float_at(buffer_row(&test.call, &buffers[BUFFER_X], 0), 1, 0x1p-140f);
            same = same && run_call(kernel->direction, &test.call) == DYNNORM_OK;
            unify_nans(&test.call, kernel->direction);
            if (hash_differs(&test.call, &hashes[kernel - listed_kernels][s][kind])) {
                snprintf(difference.text, sizeof difference.text, "other bits than the first table's");
                same = 0;
            }
            for (size_t channel = 0; channel < shapes[s].channels && same; channel++)
                same = isnan(parameter_at(&test, channel)) || !channel_differs(&test, channel, &difference);
            free_call(&test);
        }
    check(same, "channels have the bits of calls of their own", &difference);
}

/* ---- The oracle ---- */

static void check_oracle(void) {
    struct random random = random_start(random_seed() + 2);
    int right = 1;
    for (int s = 0; s < shape_count(); s++) {
        struct problem problem = new_problem(kernel->operation, shapes[s].tokens, shapes[s].channels);
        struct way way = {.per_channel = 1};
        struct test_call test = make_call(shapes[s].tokens, shapes[s].channels, &way);
        dynnorm_descriptor *call = &problem.inputs.call;
        struct tally tally = {0};
        problem.name = "a parameter for each channel";
        call->scale = test.call.scale;
        call->parameter_per_channel = 1;
        set_buffer_data(call, parameters(), buffer_data(&test.call, parameters()));
        fill_inputs(call, kernel->direction, random_seed());
        for (size_t i = 0; i < shapes[s].channels; i++)
            set_parameter_at(&test, i, random_between(&random, 0.01, 3));
        struct expectation expected = expect(call);
        measure(&problem, &expected, table, kernel, &tally);
        right = right && all_errors(&tally).failures == 0;
        free_expectation(&expected);
        free_call(&test);
        free_problem(&problem);
    }
    tap_check(right, "%s %s, as the oracle says", table->identifier, kernel->name);
}

/* ---- Ranges, executors, fewer outputs ---- */

static int by_ranges(struct test_call *test, struct difference *difference) {
    dynnorm_descriptor *call = &test->call;
    size_t rows = 3;
    dynnorm_status status = DYNNORM_OK;
    if (kernel->direction == BACKWARD_PASS) {
        dynnorm_block_rows(call, &rows);
        dynnorm_workspace_size(call, &call->workspace_size);
        call->workspace = malloc(call->workspace_size);
    }
    for (size_t first = 0; first < call->tokens && !status; first += rows) {
        const size_t some = call->tokens - first < rows ? call->tokens - first : rows;
        status = kernel->direction == FORWARD_PASS ? dynnorm_forward_rows(call, first, some)
                                                   : dynnorm_backward_rows(call, first, some);
    }
    if (!status && kernel->direction == BACKWARD_PASS)
        status = dynnorm_backward_finish(call);
    free(call->workspace);
    call->workspace = NULL;
    snprintf(difference->text, sizeof difference->text, "status %d", (int)status);
    return !status;
}

static int on_an_executor(struct test_call *test, struct difference *difference) {
    struct test_pool pool = {.order = LAST_TASK_FIRST, .threads = 3};
    test->call.executor = test_executor(&pool, 1);
    const dynnorm_status status = run_call(kernel->direction, &test->call);
    snprintf(difference->text, sizeof difference->text, "status %d", (int)status);
    return !status;
}

/* Only the gradient of the parameter; or all but that. */
static int with_one_output(struct test_call *test, struct difference *difference) {
    (void)difference;
    if (kernel->direction == BACKWARD_PASS)
        test->call.dx.data = test->call.dweight.data = test->call.dbias.data = NULL;
    return run_call(kernel->direction, &test->call) == DYNNORM_OK;
}

static int without_gradient(struct test_call *test, struct difference *difference) {
    (void)difference;
    test->call.dalpha = test->call.dbeta = NULL;
    return run_call(kernel->direction, &test->call) == DYNNORM_OK;
}

static int prepared(struct test_call *test, struct difference *difference) {
    (void)difference;
    if (kernel->direction == BACKWARD_PASS)
        return run_call(kernel->direction, &test->call) == DYNNORM_OK;
    dynnorm_prepared made = DYNNORM_PREPARED_INIT;
    const double first = parameter_at(test, 0);
    set_parameter_at(test, 0, 17); /* it is read when the call is run */
    int right = dynnorm_prepare_forward(&test->call, &made) == DYNNORM_OK;
    set_parameter_at(test, 0, first);
    for (size_t row = 0; row < 2; row++) /* the even rows, and then the odd ones */
        right = right &&
                dynnorm_forward_prepared(&made, test->call.y.data, test->call.x.data, row < test->call.tokens ? row : 0,
                                         (test->call.tokens + 1 - row) / 2, 2) == DYNNORM_OK;
    return right;
}

static void check_way(const char *name, int (*run)(struct test_call *test, struct difference *difference)) {
    struct difference difference;
    int same = 1;
    for (int s = 0; s < shape_count(); s++)
        for (int i = 0; i < 4; i++) {
            const struct way way = {i < 3, i % 2, 0, (dynnorm_type)(s % TYPES), 0, DYNNORM_F32};
            struct test_call got = make_call(shapes[s].tokens, shapes[s].channels, &way);
            struct test_call expected = make_call(shapes[s].tokens, shapes[s].channels, &way);
            same = same && run_call(kernel->direction, &expected.call) == DYNNORM_OK && run(&got, &difference) &&
                   !outputs_differ(&got.call, &expected.call, kernel->direction, &difference);
            free_call(&got);
            free_call(&expected);
        }
    check(same, name, &difference);
}

/* ---- Elements that are none ---- */

/* Of the channels, only those with a bad element are NaN. With the centered DyISRU all of dx is. */
static void check_bad_elements(void) {
    static const double bad[] = {(double)INFINITY, (double)-INFINITY, (double)NAN, -1, -0x1p-149};
    const int is_alpha = kernel->operation == DYNNORM_DYT, count = is_alpha ? 3 : 5;
    struct difference difference = {""};
    int right = 1;
    for (int i = 0; i < count; i++) {
        enum { TOKENS = 19, CHANNELS = 37, BAD = 5 };
        struct test_call got = make_call(TOKENS, CHANNELS, &(const struct way){.per_channel = 1});
        struct test_call expected = make_call(TOKENS, CHANNELS, &(const struct way){.per_channel = 1});
        set_parameter_at(&got, BAD, bad[i]);
        right = right && run_call(kernel->direction, &got.call) == DYNNORM_OK &&
                run_call(kernel->direction, &expected.call) == DYNNORM_OK;
        for (int b = 0; b < BUFFERS && right; b++) {
            const struct buffer *buffer = &buffers[b];
            const int all_are = kernel->operation == DYNNORM_CENTERED_DYISRU && b == BUFFER_DX;
            for (size_t row = 0;
                 writes(kernel->operation, kernel->direction, buffer) && row < buffer_rows(&got.call, buffer); row++)
                for (size_t c = 0; c < CHANNELS; c++) {
                    const float value = float_at(buffer_row(&got.call, buffer, row), c);
                    const float other = float_at(buffer_row(&expected.call, buffer, row), c);
                    const int is_nan = (c == BAD || all_are) && b != BUFFER_DBIAS;
                    if (is_nan ? !isnan(value) : memcmp(&value, &other, sizeof value)) {
                        right = 0;
                        snprintf(difference.text, sizeof difference.text, "%s[%zu][%zu] is %g with %g", buffer->name,
                                 row, c, (double)value, bad[i]);
                    }
                }
        }
        free_call(&got);
        free_call(&expected);
    }
    check(right, "elements that are no parameters make NaN of their channels", &difference);
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *listed) {
    table = isa;
    kernel = listed;
    if (dynnorm_operations[kernel->operation].parameters == NO_FIELD)
        return;
    check_bits_of_field(0);
    check_bits_of_field(1);
    if (is_elementwise(kernel->operation))
        check_single_channels();
    check_oracle();
    check_way("by ranges", by_ranges);
    check_way("on an executor", on_an_executor);
    check_way("with one output", with_one_output);
    check_way("without the parameter's gradient", without_gradient);
    check_way("prepared", prepared);
    check_bad_elements();
}

int main(void) {
    check_each_kernel(check_kernel);
    use_table(NULL);
    return tap_done();
}
