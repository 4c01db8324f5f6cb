/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests prepared calls, with every forward kernel and table: whichever rows are run, in whatever order, steps and
 * threads, with other x and y than those of the descriptor, they have the bits of the whole call. And their errors,
 * those of a machine without memory among them.
 */
#include "call.h"
#include "random.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const struct isa *table;
static const struct listed_kernel *kernel;

/* The first failure of a case. */
static char failure[300];

static void fail(const char *what, size_t tokens, size_t channels, const char *why) {
    if (!*failure)
        snprintf(failure, sizeof failure, "%s, %zu tokens, %zu channels: %s", what, tokens, channels, why);
}

/* ---- Variants of a call ------------------------------------------------------------------------------------------ */

static const size_t axis_rows[] = {2, 3, 2};
enum { AXIS_TOKENS = 12 };

/* What may be unusual about a call, as bits. */
enum variant {
    NO_WEIGHT = 1,
    NO_BIAS = 2,
    WEIGHT_OFFSET = 4,
    NO_STATISTICS = 8,
    STATISTICS_ONLY = 16,
    IN_PLACE = 32,
    STRIDES = 64,
    AXES = 128,
    HUGE_ROWS = 256,
};

static const unsigned variants[] = {0,
                                    NO_WEIGHT,
                                    NO_BIAS,
                                    WEIGHT_OFFSET,
                                    NO_STATISTICS,
                                    STATISTICS_ONLY,
                                    IN_PLACE,
                                    STRIDES,
                                    STRIDES | NO_STATISTICS,
                                    STRIDES | NO_STATISTICS | IN_PLACE,
                                    AXES,
                                    AXES | NO_STATISTICS,
                                    HUGE_ROWS,
                                    HUGE_ROWS | NO_STATISTICS | NO_BIAS};

struct strides {
    size_t x[3];
    size_t y[3];
};

static struct test_call make_case(unsigned variant, size_t tokens, size_t channels, struct strides *strides) {
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    dynnorm_descriptor *call = &made.call;
    if (variant & AXES) {
        *strides = (struct strides){{channels + 1, 7 * (channels + 1), 2 * (channels + 1)},
                                    {6 * channels, channels, 3 * channels}};
        call->axes = 3;
        memcpy(call->axis_rows, axis_rows, sizeof axis_rows);
        set_axis_strides(call, &buffers[BUFFER_X], strides->x);
        set_axis_strides(call, &buffers[BUFFER_Y], strides->y);
    }
    if (variant & STRIDES) {
        call->x.row_stride = channels + 3;
        call->y.row_stride = variant & IN_PLACE ? call->x.row_stride : channels + 5;
    }
    made.memory = allocate_buffers(call, FORWARD_PASS, 0);
    fill_inputs(call, FORWARD_PASS, 1);
    for (size_t row = 0; variant & HUGE_ROWS && row < tokens; row += 2)
        for (size_t i = 0; i < channels; i++)
            set_float_at(buffer_row(call, &buffers[BUFFER_X], row), i, (i % 2 ? -2e30f : 1e30f) * (float)(1 + i % 5));
    if (variant & NO_WEIGHT)
        call->weight.data = NULL;
    if (variant & NO_BIAS)
        call->bias.data = NULL;
    if (variant & WEIGHT_OFFSET)
        call->weight_offset = 0.75f;
    if (variant & NO_STATISTICS)
        call->mean = call->rstd = NULL;
    if (variant & STATISTICS_ONLY)
        call->y.data = NULL;
    if (variant & IN_PLACE)
        call->y.data = call->x.data;
    return made;
}

/* Whether a call of this variant computes something. */
static int is_possible(unsigned variant) {
    return !(variant & STATISTICS_ONLY) || has_buffer(kernel->operation, &buffers[BUFFER_RSTD]);
}

/* The call without its x and y, which are given later. */
static dynnorm_status prepare(const dynnorm_descriptor *call, dynnorm_prepared *prepared) {
    dynnorm_descriptor without = *call;
    struct strides strides = {{0}, {0}};
    without.x.data = without.y.data = NULL;
    if (call->axes) {
        memcpy(strides.x, call->x_axis_strides, sizeof strides.x);
        memcpy(strides.y, call->y_axis_strides, sizeof strides.y);
        without.x_axis_strides = strides.x;
        without.y_axis_strides = strides.y;
    }
    dynnorm_status status = dynnorm_prepare_forward(&without, prepared);
    memset(&without, UNTOUCHED, sizeof without); /* it is no longer needed */
    memset(&strides, UNTOUCHED, sizeof strides);
    return status;
}

/* ---- Bits -------------------------------------------------------------------------------------------------------- */

/* A way to run all rows. */
typedef dynnorm_status run_function(const dynnorm_prepared *prepared, const dynnorm_descriptor *call);

static dynnorm_status run(const dynnorm_prepared *prepared, const dynnorm_descriptor *call, size_t first, size_t rows,
                          size_t step) {
    return dynnorm_forward_prepared(prepared, call->y.data, call->x.data, first, rows, step);
}

static dynnorm_status run_all(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    return run(prepared, call, 0, call->tokens, 1);
}

static dynnorm_status run_each(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    dynnorm_status status = DYNNORM_OK;
    for (size_t row = call->tokens; row-- > 0 && !status;)
        status = run(prepared, call, row, 1, row % 3);
    return status;
}

/* Rows that lie this far apart, for each of the first of them. */
static dynnorm_status run_in_steps(const dynnorm_prepared *prepared, const dynnorm_descriptor *call, size_t step) {
    dynnorm_status status = DYNNORM_OK;
    for (size_t first = 0; first < step && first < call->tokens && !status; first++)
        status = run(prepared, call, first, (call->tokens - first + step - 1) / step, step);
    return status;
}

static dynnorm_status run_in_steps_of_2(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    return run_in_steps(prepared, call, 2);
}

static dynnorm_status run_in_steps_of_8(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    return run_in_steps(prepared, call, 8);
}

static dynnorm_status run_ranges(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    struct random random = random_start(call->tokens);
    dynnorm_status status = DYNNORM_OK;
    for (size_t first = 0; first < call->tokens && !status;) {
        size_t rows = random_below(&random, 7), left = call->tokens - first;
        rows = rows < left ? rows : left;
        status = run(prepared, call, first, rows, 1);
        first += rows;
    }
    return status;
}

static void check_run(const char *what, run_function *function, unsigned variant, size_t tokens, size_t channels) {
    struct strides strides;
    struct difference difference;
    struct test_call expected = make_case(variant, tokens, channels, &strides);
    struct test_call made = make_case(variant, tokens, channels, &strides);
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
    dynnorm_status status = dynnorm_forward(&expected.call);
    char name[80];
    snprintf(name, sizeof name, "%s, variant %u", what, variant);
    if (!status)
        status = prepare(&made.call, &prepared);
    const dynnorm_prepared copy = prepared;
    memset(&prepared, UNTOUCHED, sizeof prepared);
    if (!status)
        status = function(&copy, &made.call);
    if (status)
        fail(name, tokens, channels, dynnorm_status_string(status));
    else if (outputs_differ(&made.call, &expected.call, FORWARD_PASS, &difference))
        fail(name, tokens, channels, difference.text);
    free_call(&made);
    free_call(&expected);
}

static void check_bits(void) {
    static const struct {
        const char *name;
        run_function *function;
    } ways[] = {{"all rows", run_all},
                {"each row", run_each},
                {"steps of 2", run_in_steps_of_2},
                {"steps of 8", run_in_steps_of_8},
                {"ranges", run_ranges}};
    static const size_t shapes[][2] = {{1, 5}, {3, 64}, {12, 37}, {50, 130}, {33, 768}};
    const size_t count = sizeof shapes / sizeof *shapes;
    const int thin = thinned_for(table);
    *failure = 0;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
            for (size_t s = 0; s < count - (thin && (way + v) % 4 ? 1 : 0); s += thin ? 2 : 1)
                if (is_possible(variants[v]) && (!(variants[v] & AXES) || shapes[s][0] == AXIS_TOKENS))
                    check_run(ways[way].name, ways[way].function, variants[v], shapes[s][0], shapes[s][1]);
    tap_check(!*failure, "%s %s, prepared: %s", table->identifier, kernel->name, failure);
}

/* Outputs of any size are stored past the caches, except by a row by itself. */
static void check_streaming(void) {
    *failure = 0;
    if (pretend_level2_cache(0)) {
        static const size_t channels[] = {64, 256, 301};
        for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
            check_run("past the caches", run_all, 0, 40, channels[i]);
            check_run("past the caches, in place", run_all, IN_PLACE, 40, channels[i]);
            check_run("past the caches, in steps", run_in_steps_of_2, STRIDES | NO_STATISTICS, 40, channels[i]);
        }
    }
    pretend_level2_cache(SIZE_MAX);
    tap_check(!*failure, "%s %s, prepared, past the caches: %s", table->identifier, kernel->name, failure);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 4 };

struct runner {
    pthread_t thread;
    const dynnorm_prepared *prepared;
    const dynnorm_descriptor *call;
    size_t first;
    dynnorm_status status;
};

static void *run_share(void *argument) {
    struct runner *runner = argument;
    size_t rows = (runner->call->tokens - runner->first + THREADS - 1) / THREADS;
    runner->status = run(runner->prepared, runner->call, runner->first, rows, THREADS);
    return NULL;
}

static dynnorm_status run_on_threads(const dynnorm_prepared *prepared, const dynnorm_descriptor *call) {
    struct runner runners[THREADS];
    dynnorm_status status = DYNNORM_OK;
    for (size_t i = 0; i < THREADS; i++) {
        runners[i] = (struct runner){.prepared = prepared, .call = call, .first = i};
        if (pthread_create(&runners[i].thread, NULL, run_share, &runners[i])) {
            fputs("cannot start a thread\n", stderr);
            exit(2);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(runners[i].thread, NULL);
        status = runners[i].status ? runners[i].status : status;
    }
    return status;
}

static void check_threads(void) {
    *failure = 0;
    check_run("by 4 threads", run_on_threads, 0, 41, 130);
    check_run("by 4 threads", run_on_threads, NO_STATISTICS, 41, 130);
    check_run("by 4 threads", run_on_threads, NO_STATISTICS, 14, 64);
    tap_check(!*failure, "%s %s, prepared, on threads: %s", table->identifier, kernel->name, failure);
}

/* ---- Residuals --------------------------------------------------------------------------------------------------- */

enum { SUM_TOKENS = 12, SUM_CHANNELS = 300, SUM_GAP = 3 };
enum sum_array { SUM_X, SUM_Y, SUM_RESIDUAL, SUM_ALONE, SUM_ARRAYS };

/* What a call reads and writes. */
static struct sum_case {
    _Alignas(64) unsigned char arrays[SUM_ARRAYS][SUM_TOKENS * (SUM_CHANNELS + SUM_GAP) * sizeof(float)];
    float mean[SUM_TOKENS], rstd[SUM_TOKENS];
} sums_before, sums_expected, sums_got;

/* Where y and the sum are: nowhere, or in one of the arrays. */
enum { NOWHERE = SUM_ARRAYS };

static void place_sum_case(dynnorm_descriptor *call, struct sum_case *at, int y_place, int sum_place) {
    *at = sums_before;
    call->x.data = at->arrays[SUM_X];
    call->y.data = y_place == NOWHERE ? NULL : at->arrays[y_place];
    call->residual.data = at->arrays[SUM_RESIDUAL];
    call->sum.data = sum_place == NOWHERE ? NULL : at->arrays[sum_place];
    call->mean = dynnorm_operations[kernel->operation].has_mean ? at->mean : NULL;
    call->rstd = dynnorm_operations[kernel->operation].has_rstd ? at->rstd : NULL;
}

static int sum_cases_differ(const dynnorm_descriptor *call, int y_place, int sum_place) {
    for (int k = 0; k < SUM_ARRAYS; k++) {
        const dynnorm_type type = k == y_place ? call->y.type : k == sum_place ? call->sum.type : call->x.type;
        for (size_t i = 0; i < SUM_TOKENS * (SUM_CHANNELS + SUM_GAP); i++)
            if ((k == y_place || k == sum_place) && !same_element(type, load_element(sums_expected.arrays[k], type, i),
                                                                  load_element(sums_got.arrays[k], type, i)))
                return 1;
    }
    return memcmp(sums_expected.mean, sums_got.mean, sizeof sums_got.mean) ||
           memcmp(sums_expected.rstd, sums_got.rstd, sizeof sums_got.rstd);
}

/* Calls with residuals of all kinds, which are computed by rows in many ways, have the bits of the general way. */
static int check_residual(struct random *random, int *computed) {
    static const size_t lengths[] = {1, 16, 37, 64, 128, 257, SUM_CHANNELS};
    static run_function *const ways[] = {run_all, run_each, run_in_steps_of_2, run_in_steps_of_8, run_ranges};
    static float weight[SUM_CHANNELS], bias[SUM_CHANNELS], residual_bias[SUM_CHANNELS];
    static const int sum_places[] = {NOWHERE, SUM_ALONE, SUM_X, SUM_RESIDUAL};
    static const int y_places[] = {SUM_Y, SUM_Y, SUM_X, SUM_RESIDUAL, NOWHERE};
    const dynnorm_type type = (dynnorm_type)random_below(random, TYPES);
    const size_t channels = lengths[random_below(random, sizeof lengths / sizeof *lengths)];
    const int sum_place = sum_places[random_below(random, sizeof sum_places / sizeof *sum_places)];
    int y_place = y_places[random_below(random, sizeof y_places / sizeof *y_places)];
    y_place = y_place == sum_place ? SUM_Y : y_place; /* where x will be is not known when the call is checked */
    dynnorm_descriptor call = describe(kernel, 1 + random_below(random, SUM_TOKENS), channels);
    for (size_t i = 0; i < SUM_CHANNELS; i++) {
        weight[i] = random_normal(random), bias[i] = random_normal(random);
        residual_bias[i] = random_normal(random);
    }
    call.x.type = call.y.type = call.residual.type = call.sum.type = type;
    if (!random_below(random, 8))
        call.residual.type = (dynnorm_type)random_below(random, TYPES);
    if (sum_place != SUM_X && !random_below(random, 8))
        call.sum.type = (dynnorm_type)random_below(random, TYPES);
    if (y_place == SUM_RESIDUAL)
        call.y.type = call.residual.type;
    else if (y_place != SUM_X && !random_below(random, 8))
        call.y.type = (dynnorm_type)random_below(random, TYPES);
    /* Squares that float does not hold are not for the kernel for one row. */
    const double scale = random_below(random, 4) || type == DYNNORM_F16 ? 1 : 1e25;
    for (size_t i = 0; i < SUM_TOKENS * (SUM_CHANNELS + SUM_GAP); i++) {
        set_element_at(sums_before.arrays[SUM_X], type, i, scale * (double)random_normal(random));
        set_element_at(sums_before.arrays[SUM_RESIDUAL], call.residual.type, i, (double)random_normal(random));
    }
    call.x.row_stride = channels + (random_below(random, 2) ? 0 : SUM_GAP);
    call.residual.row_stride = channels + (random_below(random, 2) ? 0 : SUM_GAP);
    call.y.row_stride = y_place == SUM_X          ? call.x.row_stride
                        : y_place == SUM_RESIDUAL ? call.residual.row_stride
                                                  : channels + (random_below(random, 2) ? 0 : SUM_GAP);
    call.sum.row_stride = sum_place == SUM_X          ? call.x.row_stride
                          : sum_place == SUM_RESIDUAL ? call.residual.row_stride
                                                      : channels + (random_below(random, 2) ? 0 : SUM_GAP);
    call.weight.data = random_below(random, 8) ? weight : NULL;
    call.weight_offset = random_below(random, 8) ? 0 : 1;
    call.bias.data = dynnorm_operations[kernel->operation].has_bias && random_below(random, 8) ? bias : NULL;
    call.residual_bias.data = random_below(random, 4) ? NULL : residual_bias;
    call.normalize_unrounded_sum = !random_below(random, 8);
    call.round_before_weight = !random_below(random, 8);
    place_sum_case(&call, &sums_expected, y_place, sum_place);
    const dynnorm_status expected = dynnorm_forward_rows(&call, 0, call.tokens);
    place_sum_case(&call, &sums_got, y_place, sum_place);
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
    dynnorm_status got = prepare(&call, &prepared);
    if (!got)
        got = ways[random_below(random, sizeof ways / sizeof *ways)](&prepared, &call);
    *computed += !got;
    if (got == expected && (expected || !sum_cases_differ(&call, y_place, sum_place)))
        return 1;
    snprintf(failure, sizeof failure,
             "types %d %d %d, %zu tokens, %zu channels, strides %zu %zu %zu %zu, y %d, sum %d: %s, %s", (int)type,
             (int)call.residual.type, (int)call.y.type, call.tokens, channels, call.x.row_stride, call.y.row_stride,
             call.residual.row_stride, call.sum.row_stride, y_place, sum_place, dynnorm_status_string(expected),
             dynnorm_status_string(got));
    return 0;
}

static void check_residuals(void) {
    struct random random = random_start(random_seed() + (uint64_t)kernel->operation);
    const int trials = thinned_for(table) ? 60 : 300;
    int computed = 0;
    *failure = 0;
    for (int trial = 0; trial < trials && check_residual(&random, &computed); trial++)
        ;
    if (!computed && !*failure)
        tap_skip(kernel->name, "this build of the library leaves residuals out");
    else
        tap_check(!*failure && computed > trials / 2, "%s %s, prepared, with a residual: %s", table->identifier,
                  kernel->name, failure);
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *listed) {
    table = isa;
    kernel = listed;
    if (kernel->direction != FORWARD_PASS)
        return;
    check_bits();
    check_residuals();
    check_streaming();
    check_threads();
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

enum { TOKENS = 10, CHANNELS = 20 };

static void expect_run(const char *what, const dynnorm_prepared *prepared, const struct test_call *test,
                       const size_t rows[3], dynnorm_status expected) {
    unsigned char *before = malloc(test->memory.bytes);
    if (!before)
        exit(2);
    memcpy(before, test->memory.start, test->memory.bytes);
    dynnorm_status status = run(prepared, &test->call, rows[0], rows[1], rows[2]);
    tap_check(status == expected && !memcmp(before, test->memory.start, test->memory.bytes),
              "%s, running %s: expected \"%s\", got \"%s\"", kernel->name, what, dynnorm_status_string(expected),
              dynnorm_status_string(status));
    free(before);
}

static void check_run_errors(void) {
    static const struct {
        const char *what;
        size_t rows[3];
        dynnorm_status expected;
    } ranges[] = {
        {"no rows", {0, 0, 1}, DYNNORM_OK},
        {"no rows anywhere", {SIZE_MAX, 0, 0}, DYNNORM_OK},
        {"a row beyond the last", {TOKENS, 1, 1}, DYNNORM_ERROR_ROW_RANGE},
        {"the last possible row", {SIZE_MAX, 1, 1}, DYNNORM_ERROR_ROW_RANGE},
        {"one row too many", {1, TOKENS, 1}, DYNNORM_ERROR_ROW_RANGE},
        {"as many rows as possible", {0, SIZE_MAX, 1}, DYNNORM_ERROR_ROW_RANGE},
        {"a row too many in steps of 3", {1, 4, 3}, DYNNORM_ERROR_ROW_RANGE},
        {"a step that leads round", {1, 2, SIZE_MAX}, DYNNORM_ERROR_ROW_RANGE},
        {"steps that lead round", {0, 5, SIZE_MAX / 4 + 1}, DYNNORM_ERROR_ROW_RANGE},
        {"two rows in steps of 0", {0, 2, 0}, DYNNORM_ERROR_ROW_RANGE},
    };
    struct strides strides;
    struct test_call test = make_case(0, TOKENS, CHANNELS, &strides);
    allow_gaps(&test.memory);
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT, other;
    const size_t all[] = {0, TOKENS, 1}, one[] = {0, 1, 1};
    expect_run("without a prepared call", NULL, &test, all, DYNNORM_ERROR_PREPARED);
    expect_run("what is not prepared", &prepared, &test, all, DYNNORM_ERROR_PREPARED);
    expect_run("a row of what is not prepared", &prepared, &test, one, DYNNORM_ERROR_PREPARED);
    tap_check(prepare(&test.call, &prepared) == DYNNORM_OK, "%s is prepared", kernel->name);
    other = prepared;
    other.size--;
    expect_run("a prepared call of another size", &other, &test, one, DYNNORM_ERROR_PREPARED);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        expect_run(ranges[i].what, &prepared, &test, ranges[i].rows, ranges[i].expected);
    void *x = test.call.x.data;
    test.call.x.data = NULL;
    expect_run("without x", &prepared, &test, all, DYNNORM_ERROR_NULL_POINTER);
    expect_run("a row without x", &prepared, &test, one, DYNNORM_ERROR_NULL_POINTER);
    test.call.x.data = x;
    test.call.y.data = NULL;
    test.call.mean = test.call.rstd = NULL;
    tap_check(prepare(&test.call, &prepared) == DYNNORM_OK, "%s is prepared without statistics", kernel->name);
    expect_run("without y", &prepared, &test, all, DYNNORM_ERROR_NO_OUTPUT);
    expect_run("a row without y", &prepared, &test, one, DYNNORM_ERROR_NO_OUTPUT);
    free_call(&test);
}

static void expect_prepare(const char *what, const dynnorm_descriptor *call, dynnorm_status expected) {
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT, before;
    memset(prepared.hidden, UNTOUCHED, sizeof prepared.hidden);
    before = prepared;
    dynnorm_status status = dynnorm_prepare_forward(call, &prepared);
    /* A memory checker would object to the padding among what a good call writes. */
    const int is_touched = status == DYNNORM_OK ? prepared.hidden[0] != before.hidden[0]
                                                : memcmp(&prepared, &before, sizeof prepared) != 0;
    tap_check(status == expected && is_touched == (status == DYNNORM_OK),
              "%s, preparing %s: expected \"%s\", got \"%s\"", kernel->name, what, dynnorm_status_string(expected),
              dynnorm_status_string(status));
}

#define EXPECT_PREPARE(what, change, expected)                                                                         \
    do {                                                                                                               \
        dynnorm_descriptor call = good;                                                                                \
        change;                                                                                                        \
        expect_prepare(what, &call, expected);                                                                         \
    } while (0)

static void check_prepare_errors(void) {
    struct strides strides;
    struct test_call test = make_case(0, TOKENS, CHANNELS, &strides);
    const dynnorm_descriptor good = test.call;
    dynnorm_prepared other = DYNNORM_PREPARED_INIT;
    expect_prepare("no descriptor", NULL, DYNNORM_ERROR_NULL_DESCRIPTOR);
    EXPECT_PREPARE("a good call", (void)call, DYNNORM_OK);
    EXPECT_PREPARE("a call without data", call.x.data = call.y.data = NULL, DYNNORM_OK);
    EXPECT_PREPARE("a call whose x and y overlap", call.x.data = (char *)call.y.data + 1, DYNNORM_OK);
    EXPECT_PREPARE("a descriptor of 0.1.0", call.size = offsetof(dynnorm_descriptor, axes), DYNNORM_OK);
    EXPECT_PREPARE("another size", call.size--, DYNNORM_ERROR_DESCRIPTOR);
    EXPECT_PREPARE("no channels", call.channels = 0, DYNNORM_ERROR_ZERO_CHANNELS);
    EXPECT_PREPARE("no tokens", call.tokens = 0, DYNNORM_OK);
    EXPECT_PREPARE("rows of y that overlap", (call.y.data = NULL, call.y.row_stride = 3), DYNNORM_ERROR_STRIDE);
    EXPECT_PREPARE("rows of x that overlap", (call.x.data = NULL, call.x.row_stride = 3), DYNNORM_OK);
    EXPECT_PREPARE("a weight_offset", call.weight_offset = NAN, DYNNORM_ERROR_WEIGHT_OFFSET);
    EXPECT_PREPARE("an executor without threads", call.executor.pool = &call, DYNNORM_ERROR_EXECUTOR);
    EXPECT_PREPARE("huge strides", call.x.row_stride = SIZE_MAX, DYNNORM_ERROR_SIZE_OVERFLOW);
    if (good.rstd)
        EXPECT_PREPARE("rstd over the weight", call.rstd = call.weight.data, DYNNORM_ERROR_OVERLAP);
    if (good.mean)
        EXPECT_PREPARE("mean over rstd", call.mean = call.rstd + 1, DYNNORM_ERROR_OVERLAP);
    other.size++;
    tap_check(dynnorm_prepare_forward(&good, &other) == DYNNORM_ERROR_PREPARED &&
                  dynnorm_prepare_forward(&good, NULL) == DYNNORM_ERROR_PREPARED,
              "%s, preparing what has another size, or nothing", kernel->name);
    free_call(&test);
}

#ifdef DYNNORM_TEST_WRAP_MALLOC

/* The linker's --wrap=malloc sends every call of malloc to __wrap_malloc, and gives malloc the name __real_malloc. */
void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);

static int allocations_left = -1; /* -1: any number of them */

void *__wrap_malloc(size_t bytes) {
    if (!allocations_left)
        return NULL;
    allocations_left -= allocations_left > 0;
    return __real_malloc(bytes);
}

/* Rows that need buffers, a step apart: whichever allocation fails, no row has been written then. */
static void check_allocation(void) {
    enum { LONG = 9000, ROWS = 7 };
    static unsigned short x[ROWS * LONG], weight[LONG], y[ROWS * LONG], before[ROWS * LONG];
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
    call.operation = kernel->operation;
    call.tokens = ROWS, call.channels = LONG, call.alpha = call.beta = 1;
    call.x.type = call.weight.type = DYNNORM_BF16, call.y.type = DYNNORM_F16;
    call.weight.data = weight;
    for (size_t i = 0; i < ROWS * LONG; i++)
        x[i] = (unsigned short)(0x3f80 + i % 100), y[i] = 0x5555;
    for (size_t i = 0; i < LONG; i++)
        weight[i] = 0x3f80;
    memcpy(before, y, sizeof y);
    dynnorm_status status = dynnorm_prepare_forward(&call, &prepared);
    if (status == DYNNORM_ERROR_LEFT_OUT) {
        tap_skip(kernel->name, "this build leaves types out");
        return;
    }
    int failed = 0, is_untouched = 1;
    for (int allowed = 0; allowed < 10; allowed++, failed++) {
        allocations_left = allowed;
        status = dynnorm_forward_prepared(&prepared, y, x, 1, 3, 2);
        allocations_left = -1;
        if (status != DYNNORM_ERROR_OUT_OF_MEMORY)
            break;
        is_untouched = is_untouched && !memcmp(before, y, sizeof y);
    }
    for (size_t row = 0; row < ROWS && !status; row++)
        is_untouched = is_untouched && !memcmp(before, y + row * LONG, sizeof y / ROWS) == (row % 2 == 0);
    tap_check(!status && failed && is_untouched, "%s, prepared, out of memory: %d times, then \"%s\"", kernel->name,
              failed, dynnorm_status_string(status));
}

#else

static void check_allocation(void) {
    tap_skip(kernel->name, "this linker cannot redirect malloc");
}

#endif

/* A prepared call stays with its instruction set. */
static void check_other_isa(void) {
    *failure = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        struct strides strides;
        struct difference difference;
        if (!use_table(&dynnorm_isa_list[i]))
            continue;
        struct test_call made = make_case(HUGE_ROWS, TOKENS, CHANNELS, &strides),
                         expected = make_case(HUGE_ROWS, TOKENS, CHANNELS, &strides);
        dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
        dynnorm_status status = dynnorm_forward(&expected.call);
        status = status ? status : prepare(&made.call, &prepared);
        dynnorm_set_isa("scalar");
        status = status ? status : run_each(&prepared, &made.call);
        if (status)
            fail(dynnorm_isa_list[i].identifier, TOKENS, CHANNELS, dynnorm_status_string(status));
        else if (outputs_differ(&made.call, &expected.call, FORWARD_PASS, &difference))
            fail(dynnorm_isa_list[i].identifier, TOKENS, CHANNELS, difference.text);
        free_call(&made);
        free_call(&expected);
    }
    use_table(NULL);
    tap_check(!*failure, "%s, prepared before another instruction set was chosen: %s", kernel->name, failure);
}

int main(void) {
    check_each_kernel(check_kernel);
    use_table(NULL);
    for (size_t k = 0; k < listed_kernel_count; k++) {
        kernel = &listed_kernels[k];
        if (kernel->direction != FORWARD_PASS || kernel->mode != DYNNORM_PORTABLE)
            continue;
        check_run_errors();
        check_prepare_errors();
        check_allocation();
        check_other_isa();
    }
    return tap_done();
}
