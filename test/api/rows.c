/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests what the descriptor adds to the plain calls, with every kernel and table: ranges of rows in any order and from
 * several threads, executors, workspaces, row strides, interleaved tensors, the weight offset, accumulated gradients,
 * outputs and parameters left out. Each must give the bits of the plain case, unless the header says otherwise.
 */
#define _POSIX_C_SOURCE 200809L
#include "call.h"
#include "executors.h"
#include "random.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Reporting: one line for each kernel and property, with its first failure ------------------------------------ */

static const struct isa *table;
static const struct listed_kernel *kernel;

/* The property that is being checked. text describes the first failure, and is empty if there was none. */
static struct property {
    const char *name;
    int checks;
    char text[400];
} property;

static void begin(const char *name) {
    property = (struct property){.name = name};
}

/* Counts one check of the property. */
__attribute__((format(printf, 2, 3))) static int check(int passed, const char *format, ...) {
    property.checks++;
    if (!passed && !*property.text) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(property.text, sizeof property.text, format, arguments);
        va_end(arguments);
    }
    return passed;
}

static void end(void) {
    if (property.checks)
        tap_check(!*property.text, "%s %s: %s%s%s", table->identifier, kernel->name, property.name,
                  *property.text ? ": " : "", property.text);
}

/* ---- Cases ------------------------------------------------------------------------------------------------------- */

/* Fills the inputs. With an odd number of tokens a backward pass does without the forward pass's statistics. */
static void fill_case(struct test_call *test) {
    if (kernel->direction == BACKWARD_PASS && test->call.tokens % 2)
        test->call.mean = test->call.rstd = NULL;
    fill_inputs(&test->call, kernel->direction, test->call.tokens + test->call.channels);
    /* The first channel of dy is -0: a sum of nothing but -0 must be 0, however it is split. See check_signs. */
    for (size_t row = 0; kernel->direction == BACKWARD_PASS && row < test->call.tokens; row++) {
        set_float_at(buffer_row(&test->call, &buffers[BUFFER_DY], row), 0, -0.0f);
        if (test->call.tokens % 3 == 1) { /* then all products with dy are -0, if no mean is taken out */
            unsigned char *const x = buffer_row(&test->call, &buffers[BUFFER_X], row);
            set_float_at(x, 0, fabsf(float_at(x, 0)));
        }
    }
}

static struct test_call make_case(size_t tokens, size_t channels) {
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    made.memory = allocate_buffers(&made.call, kernel->direction, 0);
    fill_case(&made);
    return made;
}

static void run(const dynnorm_descriptor *call, const char *what) {
    dynnorm_status status = run_call(kernel->direction, call);
    check(status == DYNNORM_OK, "%s, %zu tokens, %zu channels: %s", what, call->tokens, call->channels,
          dynnorm_status_string(status));
}

static int is_output(const struct buffer *buffer) {
    return writes(kernel->operation, kernel->direction, buffer);
}

/* The sums over tokens of a dy of -0 are 0 and not -0. */
static void check_signs(const dynnorm_descriptor *call) {
    static const enum buffer_index sums[] = {BUFFER_DWEIGHT, BUFFER_DBIAS};
    for (int i = 0; kernel->direction == BACKWARD_PASS && i < 2; i++)
        if (is_output(&buffers[sums[i]])) {
            const float first = float_at(buffer_data(call, &buffers[sums[i]]), 0);
            check(first == 0 && !signbit(first), "%zu tokens, %zu channels: %s of dy of -0 is %g", call->tokens,
                  call->channels, buffers[sums[i]].name, (double)first);
        }
}

/* A case that has been run. */
static struct test_call make_expected(size_t tokens, size_t channels) {
    struct test_call made = make_case(tokens, channels);
    run(&made.call, "the plain call");
    check_signs(&made.call);
    return made;
}

static void check_same(const dynnorm_descriptor *call, const dynnorm_descriptor *expected, const char *what) {
    struct difference difference;
    int differ = outputs_differ(call, expected, kernel->direction, &difference);
    check(!differ, "%s, %zu tokens, %zu channels: %s", what, call->tokens, call->channels,
          differ ? difference.text : "");
}

/* Sets the accumulate flags of all outputs and fills them with values to add to: factor times the outputs of from, or
 * random values if from is NULL. */
static void accumulate_on(struct test_call *test, const struct test_call *from, float factor) {
    struct random random = random_start(7);
    for (int i = 0; i < BUFFERS; i++)
        if (is_output(&buffers[i])) {
            set_accumulate(&test->call, &buffers[i], 1);
            for (size_t at = 0; at < buffer_bytes(&test->call, &buffers[i]) / sizeof(float); at++)
                set_float_at(buffer_data(&test->call, &buffers[i]), at,
                             from ? factor * float_at(buffer_data(&from->call, &buffers[i]), at)
                                  : random_normal(&random));
        }
}

/* ---- Ranges of rows ---------------------------------------------------------------------------------------------- */

/* Tokens and channels; from 70 x 515 on, several blocks of rows in a backward pass. */
static const size_t row_shapes[][2] = {
    {1, 5},    {1, 37},   {2, 37},    {3, 64},   {4, 65},   {5, 16},   {6, 1},    {7, 37},  {8, 37},
    {9, 37},   {13, 129}, {16, 37},   {17, 300}, {31, 5},   {32, 37},  {33, 37},  {39, 37}, {40, 37},
    {70, 515}, {100, 20}, {129, 128}, {900, 37}, {997, 20}, {1500, 3}, {5000, 8},
};
enum { ROW_SHAPES = sizeof row_shapes / sizeof *row_shapes };

/* Gives the call a workspace of exactly the size it needs, or none if it needs none. */
static struct memory give_workspace(dynnorm_descriptor *call, size_t misalignment) {
    call->workspace = NULL;
    dynnorm_status status = dynnorm_workspace_size(call, &call->workspace_size);
    check(status == DYNNORM_OK, "dynnorm_workspace_size: %s", dynnorm_status_string(status));
    struct memory memory = allocate_memory(call->workspace_size + 128);
    if (call->workspace_size)
        call->workspace = memory.start + 128 - ((uintptr_t)memory.start & 63) + misalignment - 64;
    return memory;
}

/* Whether the bytes around the workspace are untouched. */
static int workspace_kept(const dynnorm_descriptor *call, const struct memory *memory) {
    const unsigned char *begin_of_use = call->workspace ? call->workspace : memory->start;
    for (size_t i = 0; i < memory->bytes; i++) {
        const unsigned char *byte = memory->start + i;
        if ((byte < begin_of_use || byte >= begin_of_use + call->workspace_size) && *byte != UNTOUCHED)
            return 0;
    }
    return 1;
}

static dynnorm_status run_rows(const dynnorm_descriptor *call, size_t first, size_t rows) {
    return kernel->direction == FORWARD_PASS ? dynnorm_forward_rows(call, first, rows)
                                             : dynnorm_backward_rows(call, first, rows);
}

static dynnorm_status finish(const dynnorm_descriptor *call) {
    return kernel->direction == FORWARD_PASS ? DYNNORM_OK : dynnorm_backward_finish(call);
}

/* Rows that a range may begin at. */
static size_t range_step(const dynnorm_descriptor *call) {
    size_t rows = 1;
    if (kernel->direction == BACKWARD_PASS)
        check(dynnorm_block_rows(call, &rows) == DYNNORM_OK && rows > 0, "dynnorm_block_rows");
    return rows;
}

struct range {
    size_t first;
    size_t rows;
};

/* Cuts the rows into ranges of random lengths up to longest steps, some of them without rows; or into ranges of one
 * step each if longest is 0. Returns how many there are, at most two for each row. */
static size_t cut_rows(struct range *ranges, size_t tokens, size_t step, size_t longest, struct random *random) {
    size_t count = 0;
    for (size_t first = 0; first < tokens;) {
        size_t rows = (longest ? random_below(random, longest + 1) : 1) * step;
        if (rows == 0) {
            ranges[count++] = (struct range){first, 0};
            rows = step;
        }
        if (rows > tokens - first)
            rows = tokens - first;
        ranges[count++] = (struct range){first, rows};
        first += rows;
    }
    return count;
}

static void shuffle(struct range *ranges, size_t count, struct random *random) {
    for (size_t i = count; i > 1; i--) {
        size_t other = random_below(random, i);
        struct range swap = ranges[i - 1];
        ranges[i - 1] = ranges[other];
        ranges[other] = swap;
    }
}

static void check_ranges(size_t tokens, size_t channels) {
    struct test_call expected = make_expected(tokens, channels);
    struct random random = random_start(random_seed() + tokens);
    struct range *ranges = malloc(sizeof *ranges * 2 * tokens);
    if (!ranges)
        exit(2);
    for (size_t trial = 0; trial < 5; trial++) {
        /* First one step after the other, then backwards, then ranges of random lengths in random order. */
        struct test_call split = make_case(tokens, channels);
        struct memory workspace = give_workspace(&split.call, trial);
        size_t step = range_step(&split.call);
        size_t count = cut_rows(ranges, tokens, step, trial < 2 ? 0 : trial * trial, &random);
        if (trial == 1)
            for (size_t i = 0; i < count / 2; i++) {
                struct range swap = ranges[i];
                ranges[i] = ranges[count - 1 - i];
                ranges[count - 1 - i] = swap;
            }
        else if (trial > 1)
            shuffle(ranges, count, &random);
        for (size_t i = 0; i < count; i++) {
            dynnorm_status status = run_rows(&split.call, ranges[i].first, ranges[i].rows);
            check(status == DYNNORM_OK, "rows %zu + %zu of %zu, in blocks of %zu: %s", ranges[i].first, ranges[i].rows,
                  tokens, step, dynnorm_status_string(status));
        }
        check(finish(&split.call) == DYNNORM_OK, "dynnorm_backward_finish failed");
        check_same(&split.call, &expected.call,
                   trial == 0   ? "split into blocks"
                   : trial == 1 ? "split into blocks, last first"
                                : "split at random");
        check(workspace_kept(&split.call, &workspace), "%zu tokens, %zu channels: written beyond the workspace", tokens,
              channels);
        free(workspace.start);
        free_call(&split);
    }
    free(ranges);
    free_call(&expected);
}

/* The same with rows for which the order of adding blocks matters. The second block of rows has gradients of 2^60 and
 * more, and the third has the same rows with the opposite sign. They cancel, but what they are added to first loses
 * digits. */
static void check_order_of_blocks(size_t tokens, size_t channels) {
    struct test_call whole = make_case(tokens, channels), split = make_case(tokens, channels);
    size_t block = range_step(&whole.call), block_bytes = block * channels * sizeof(float);
    if (kernel->direction == BACKWARD_PASS && tokens >= 3 * block) {
        struct memory workspace = give_workspace(&split.call, 0);
        for (int i = 0; i < 2; i++) {
            const dynnorm_descriptor *call = i ? &split.call : &whole.call;
            unsigned char *x = call->x.data, *dy = call->dy.data;
            memcpy(x + 2 * block_bytes, x + block_bytes, block_bytes);
            for (size_t at = block * channels; at < 2 * block * channels; at++) {
                float large = float_at(dy, at) * 0x1p60f;
                set_float_at(dy, at, large);
                set_float_at(dy, at + block * channels, -large);
            }
        }
        run(&whole.call, "the plain call");
        for (size_t first = (tokens - 1) / block * block;; first -= block) {
            size_t rows = tokens - first < block ? tokens - first : block;
            check(run_rows(&split.call, first, rows) == DYNNORM_OK, "rows %zu + %zu of %zu", first, rows, tokens);
            if (first == 0)
                break;
        }
        check(finish(&split.call) == DYNNORM_OK, "dynnorm_backward_finish failed");
        check_same(&split.call, &whole.call, "blocks that cancel, last first");
        free(workspace.start);
    }
    free_call(&split);
    free_call(&whole);
}

/* A range touches no rows but its own. */
static void check_ranges_alone(size_t tokens, size_t channels) {
    struct test_call expected = make_expected(tokens, channels), part = make_case(tokens, channels);
    struct memory workspace = give_workspace(&part.call, 0);
    size_t step = range_step(&part.call);
    size_t first = tokens / 2 / step * step, rows = tokens - first < step ? tokens - first : step;
    check(run_rows(&part.call, first, rows) == DYNNORM_OK, "rows %zu + %zu of %zu", first, rows, tokens);
    for (int i = 0; i < BUFFERS; i++) {
        if (!is_output(&buffers[i]))
            continue;
        const unsigned char *got = buffer_data(&part.call, &buffers[i]);
        const unsigned char *right = buffer_data(&expected.call, &buffers[i]);
        size_t per_row = buffers[i].shape == ROWS_OF_CHANNELS ? channels : buffers[i].shape == ONE_PER_ROW ? 1 : 0;
        for (size_t at = 0; at < buffer_bytes(&part.call, &buffers[i]) / sizeof(float); at++) {
            size_t row = per_row ? at / per_row : 0;
            int inside = per_row && row >= first && row < first + rows;
            static const unsigned char untouched[sizeof(float)] = {UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
            if (memcmp(got + at * sizeof(float), inside ? right + at * sizeof(float) : untouched, sizeof(float)))
                check(0, "rows %zu + %zu of %zu, %zu channels: %s of row %zu, element %zu is %s", first, rows, tokens,
                      channels, buffers[i].name, row, at, inside ? "wrong" : "not untouched");
        }
    }
    free(workspace.start);
    free_call(&part);
    free_call(&expected);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

struct team {
    const dynnorm_descriptor *call;
    size_t step;
    atomic_size_t next;
    atomic_int failures;
};

static void *take_ranges(void *argument) {
    struct team *team = argument;
    for (;;) {
        size_t first = atomic_fetch_add(&team->next, team->step);
        if (first >= team->call->tokens)
            return NULL;
        size_t rows = team->call->tokens - first < team->step ? team->call->tokens - first : team->step;
        if (run_rows(team->call, first, rows) != DYNNORM_OK)
            atomic_fetch_add(&team->failures, 1);
    }
}

static void check_threads(size_t tokens, size_t channels) {
    struct test_call expected = make_expected(tokens, channels), shared = make_case(tokens, channels);
    struct memory workspace = give_workspace(&shared.call, 4);
    struct team team = {.call = &shared.call, .step = range_step(&shared.call)};
    pthread_t threads[4];
    int started = 0;
    while (started < 4 && pthread_create(&threads[started], NULL, take_ranges, &team) == 0)
        started++;
    check(started == 4, "cannot start a thread");
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    check(team.failures == 0 && finish(&shared.call) == DYNNORM_OK, "a thread's call failed");
    check_same(&shared.call, &expected.call, "split among 4 threads");
    free(workspace.start);
    free_call(&shared);
    free_call(&expected);
}

/* ---- Executors --------------------------------------------------------------------------------------------------- */

/* Whether an executor whose tasks may be as small as possible is to get any. */
static int is_shared(const dynnorm_descriptor *call) {
    size_t bytes = 0;
    if (kernel->direction == FORWARD_PASS)
        return call->tokens > 1;
    dynnorm_status status = dynnorm_workspace_size(call, &bytes);
    check(status == DYNNORM_OK, "dynnorm_workspace_size: %s", dynnorm_status_string(status));
    return call->tokens > (bytes ? range_step(call) : GROUP);
}

static void check_executor(const struct test_call *expected, struct test_pool *pool, int accumulates_all) {
    static const char *const orders[] = {"first task first", "last task first", "on threads"};
    struct test_call shared = make_case(expected->call.tokens, expected->call.channels);
    struct memory workspace = {NULL, 0};
    char what[100];
    const int has_workspace = (pool->threads + pool->order) % 2;
    if (has_workspace)
        workspace = give_workspace(&shared.call, pool->threads % 64);
    if (accumulates_all)
        accumulate_on(&shared, NULL, 0);
    snprintf(what, sizeof what, "executor of %zu threads, %s, %s workspace", pool->threads, orders[pool->order],
             has_workspace ? "with a" : "without");
    shared.call.executor = test_executor(pool, 1);
    run(&shared.call, what);
    check_same(&shared.call, &expected->call, what);
    check((pool->calls > 0) == (pool->threads > 1 && is_shared(&shared.call)),
          "%s, %zu tokens, %zu channels: %zu calls of parallel_for", what, shared.call.tokens, shared.call.channels,
          (size_t)pool->calls);
    check(!has_workspace || workspace_kept(&shared.call, &workspace), "%s: written beyond the workspace", what);
    free(workspace.start);
    free_call(&shared);
}

static void check_executors(size_t tokens, size_t channels) {
    static const size_t threads[] = {1, 2, 3, 7, MOST_POOL_THREADS};
    const int accumulates_all = kernel->direction == BACKWARD_PASS && channels % 2;
    struct test_call expected = make_case(tokens, channels);
    if (accumulates_all)
        accumulate_on(&expected, NULL, 0);
    run(&expected.call, "without an executor");
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        for (int order = 0; order < TASK_ORDERS; order++) {
            struct test_pool pool = {.order = (enum task_order)order, .threads = threads[i]};
            check_executor(&expected, &pool, accumulates_all);
        }
    free_call(&expected);
}

/* dx alone needs no sums over tokens, so that its rows are not bound to blocks. */
static void check_executors_of_dx(size_t tokens, size_t channels) {
    if (kernel->direction == FORWARD_PASS)
        return;
    struct test_call expected = make_expected(tokens, channels), shared = make_case(tokens, channels);
    struct test_pool pool = {.order = LAST_TASK_FIRST, .threads = 3};
    for (int i = 0; i < BUFFERS; i++)
        if (is_output(&buffers[i]) && i != BUFFER_DX)
            set_buffer_data(&shared.call, &buffers[i], NULL);
    shared.call.executor = test_executor(&pool, 1);
    run(&shared.call, "dx alone, on an executor");
    check_same(&shared.call, &expected.call, "dx alone, on an executor");
    check((pool.calls == 1) == is_shared(&shared.call), "dx alone, %zu tokens, %zu channels: %zu calls of parallel_for",
          tokens, channels, (size_t)pool.calls);
    free_call(&shared);
    free_call(&expected);
}

/* ---- Workspace --------------------------------------------------------------------------------------------------- */

static void check_workspace(size_t tokens, size_t channels) {
    if (kernel->direction == FORWARD_PASS)
        return;
    struct test_call expected = make_expected(tokens, channels); /* allocates its own */
    for (size_t misalignment = 0; misalignment < 64; misalignment += misalignment < 9 ? 1 : 11) {
        struct test_call given = make_case(tokens, channels);
        struct memory workspace = give_workspace(&given.call, misalignment);
        run(&given.call, "with a workspace");
        check_same(&given.call, &expected.call, "with a workspace");
        check(workspace_kept(&given.call, &workspace), "%zu tokens, %zu channels: written beyond the workspace", tokens,
              channels);
        free(workspace.start);
        free_call(&given);
    }
    free_call(&expected);
}

/* ---- Strides ----------------------------------------------------------------------------------------------------- */

/* Whether all of the memory outside the buffers, gaps between rows included, is as it was. */
static int gaps_kept(const struct test_call *test) {
    unsigned char *used = calloc(test->memory.bytes, 1);
    if (!used)
        return 0;
    allow_gaps(&test->memory);
    for (int i = 0; i < BUFFERS; i++)
        if (uses(kernel->operation, kernel->direction, &buffers[i]) && buffer_data(&test->call, &buffers[i])) {
            for (size_t row = 0; row < buffer_rows(&test->call, &buffers[i]); row++)
                memset(used + (buffer_row(&test->call, &buffers[i], row) - test->memory.start), 1,
                       buffer_columns(&test->call, &buffers[i]) * sizeof(float));
        }
    int kept = 1;
    for (size_t i = 0; i < test->memory.bytes; i++)
        kept = kept && (used[i] || test->memory.start[i] == UNTOUCHED);
    free(used);
    return kept;
}

static void check_strides(size_t tokens, size_t channels) {
    struct test_call expected = make_expected(tokens, channels);
    struct random random = random_start(random_seed() + channels);
    for (int trial = 0; trial < 8; trial++) {
        struct test_call strided = {.call = describe(kernel, tokens, channels)};
        for (int i = 0; i < BUFFERS; i++) {
            /* First each tensor alone, then all together. */
            int chosen = trial > 3 || i == trial;
            if (uses(kernel->operation, kernel->direction, &buffers[i]) && buffers[i].stride_field && chosen)
                set_buffer_stride(&strided.call, &buffers[i],
                                  channels + (trial == 4 ? 0 : 1 + random_below(&random, 40)));
        }
        strided.memory = allocate_buffers(&strided.call, kernel->direction, 0);
        fill_case(&strided);
        run(&strided.call, "with row strides");
        check_same(&strided.call, &expected.call, "with row strides");
        check(gaps_kept(&strided), "%zu tokens, %zu channels, with row strides: written between the rows", tokens,
              channels);
        free_call(&strided);
    }
    free_call(&expected);
}

/* The rows of all tensors take turns in one piece of memory. */
static void check_interleaved(size_t tokens, size_t channels) {
    struct test_call expected = make_expected(tokens, channels), interleaved = make_case(tokens, channels);
    size_t tensors = kernel->direction == FORWARD_PASS ? 2 : 3, stride = tensors * channels, place = 0;
    struct memory memory = allocate_memory(tokens * stride * sizeof(float));
    for (int i = 0; i < BUFFERS; i++)
        if (uses(kernel->operation, kernel->direction, &buffers[i]) && buffers[i].stride_field) {
            set_buffer_data(&interleaved.call, &buffers[i], memory.start + place++ * channels * sizeof(float));
            set_buffer_stride(&interleaved.call, &buffers[i], stride);
        }
    fill_case(&interleaved);
    run(&interleaved.call, "interleaved");
    check_same(&interleaved.call, &expected.call, "interleaved");
    free(memory.start);
    free_call(&interleaved);
    free_call(&expected);
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

/* With an offset the result is that of weights to which it has been added. The weights are multiples of 1/256, so that
 * adding the offset is exact. */
static void check_weight_offset(size_t tokens, size_t channels) {
    struct test_call explicit_sum = make_case(tokens, channels), offset = make_case(tokens, channels);
    offset.call.weight_offset = 1;
    for (size_t i = 0; i < channels; i++) {
        float weight = (float)((int)(i * 37 % 512) - 256) / 256;
        set_float_at(offset.call.weight.data, i, weight);
        set_float_at(explicit_sum.call.weight.data, i, 1 + weight);
    }
    run(&explicit_sum.call, "without a weight offset");
    run(&offset.call, "with a weight offset");
    check_same(&offset.call, &explicit_sum.call, "with a weight offset of 1");
    free_call(&offset);

    /* Without weights the offset is ignored. */
    struct test_call ignored = make_case(tokens, channels), absent = make_case(tokens, channels);
    ignored.call.weight.data = absent.call.weight.data = NULL;
    ignored.call.weight_offset = 1;
    run(&ignored.call, "with a weight offset but no weight");
    run(&absent.call, "without a weight");
    check_same(&ignored.call, &absent.call, "with a weight offset but no weight");
    free_call(&absent);
    free_call(&ignored);
    free_call(&explicit_sum);
}

/* Compares outputs as numbers, so that zeros of both signs are equal. */
static void check_equal_values(const dynnorm_descriptor *call, const dynnorm_descriptor *expected, const char *what) {
    for (int i = 0; i < BUFFERS; i++)
        if (is_output(&buffers[i]))
            for (size_t at = 0; at < buffer_bytes(call, &buffers[i]) / sizeof(float); at++) {
                float got = float_at(buffer_data(call, &buffers[i]), at);
                float right = float_at(buffer_data(expected, &buffers[i]), at);
                check(got == right, "%s, %zu tokens, %zu channels: %s[%zu]: got %.9g, expected %.9g", what,
                      call->tokens, call->channels, buffers[i].name, at, (double)got, (double)right);
            }
}

/* A missing weight counts as ones, a missing bias as zeros, in any combination. */
static void check_absent_parameters(size_t tokens, size_t channels) {
    int has_bias = uses(kernel->operation, kernel->direction, buffer_named("bias"));
    for (int absent = 1; absent < (has_bias ? 4 : 2); absent++) {
        struct test_call without = make_case(tokens, channels), with = make_case(tokens, channels);
        for (size_t i = 0; i < channels; i++) {
            if (absent & 1)
                set_float_at(with.call.weight.data, i, 1);
            if (absent & 2)
                set_float_at(with.call.bias.data, i, 0);
        }
        if (absent & 1)
            without.call.weight.data = NULL;
        if (absent & 2)
            without.call.bias.data = NULL;
        run(&without.call, "without parameters");
        run(&with.call, "with ones and zeros");
        check_equal_values(&without.call, &with.call,
                           absent == 3   ? "no weight, no bias"
                           : absent == 1 ? "no weight"
                                         : "no bias");
        free_call(&with);
        free_call(&without);
    }
}

/* ---- Outputs ----------------------------------------------------------------------------------------------------- */

/* Puts some infinities into x and, where extreme is 2, dy so large that its product with the weight overflows. */
static void make_extreme(const dynnorm_descriptor *call, int extreme) {
    struct random random = random_start(11);
    for (size_t i = 0; extreme && i < 1 + call->tokens / 3; i++) {
        size_t token = random_below(&random, call->tokens), channel = random_below(&random, call->channels);
        if (extreme == 1)
            set_float_at(buffer_row(call, &buffers[BUFFER_X], token), channel, -INFINITY);
        else if (kernel->direction == BACKWARD_PASS) {
            set_float_at(buffer_row(call, &buffers[BUFFER_DY], token), channel, 3e38f);
            set_float_at(call->weight.data, channel, -100);
        }
    }
}

/* Every selection of at least one output gives the same bits as asking for all of them. */
static void check_selected_of(size_t tokens, size_t channels, int extreme) {
    int outputs[BUFFERS], count = 0;
    for (int i = 0; i < BUFFERS; i++)
        if (is_output(&buffers[i]))
            outputs[count++] = i;
    struct test_call expected = make_case(tokens, channels);
    make_extreme(&expected.call, extreme);
    run(&expected.call, "all outputs");
    for (int selection = 1; selection < 1 << count; selection++) {
        struct test_call some = make_case(tokens, channels);
        char names[80] = "only";
        make_extreme(&some.call, extreme);
        for (int i = 0; i < count; i++)
            if (selection >> i & 1)
                snprintf(names + strlen(names), sizeof names - strlen(names), " %s", buffers[outputs[i]].name);
            else
                set_buffer_data(&some.call, &buffers[outputs[i]], NULL);
        run(&some.call, names);
        check_same(&some.call, &expected.call, names);
        free_call(&some);
    }
    free_call(&expected);
}

static void check_selected_outputs(size_t tokens, size_t channels) {
    for (int extreme = 0; extreme < 3; extreme++)
        check_selected_of(tokens, channels, extreme);
}

/* Half the distance from a float to the next larger one. */
static double half_ulp(float value) {
    return (double)(nextafterf(fabsf(value), INFINITY) - fabsf(value)) / 2;
}

/* An accumulated gradient is rounded once: after the sum over tokens, which is held in double, has been added to the
 * old value. With the negative of the rounded sum as the old value, the result shows how the sum differs from its
 * rounding. */
static void check_accumulate(size_t tokens, size_t channels) {
    if (kernel->direction == FORWARD_PASS)
        return;
    struct test_call plain = make_expected(tokens, channels), residue = make_case(tokens, channels);
    struct test_call zero = make_case(tokens, channels), random = make_case(tokens, channels);
    struct test_call old = make_case(tokens, channels);
    accumulate_on(&zero, &plain, 0);
    accumulate_on(&residue, &plain, -1);
    accumulate_on(&random, NULL, 0);
    accumulate_on(&old, NULL, 0);
    run(&zero.call, "accumulating on zeros");
    run(&residue.call, "accumulating on the negated gradients");
    run(&random.call, "accumulating");
    check_equal_values(&zero.call, &plain.call, "accumulated on zeros");

    for (int i = 0; i < BUFFERS; i++) {
        if (!is_output(&buffers[i]))
            continue;
        int residues = 0;
        for (size_t at = 0; at < buffer_bytes(&plain.call, &buffers[i]) / sizeof(float); at++) {
            float rounded = float_at(buffer_data(&plain.call, &buffers[i]), at);
            float rest = float_at(buffer_data(&residue.call, &buffers[i]), at);
            float before = float_at(buffer_data(&old.call, &buffers[i]), at);
            float after = float_at(buffer_data(&random.call, &buffers[i]), at);
            double right = (double)before + ((double)rounded + (double)rest);
            residues += rest != 0;
            check(fabs((double)after - right) <= half_ulp(after) * (1 + 0x1p-20),
                  "%zu tokens, %zu channels: %s[%zu]: %a + (%a + %a): got %a", tokens, channels, buffers[i].name, at,
                  (double)before, (double)rounded, (double)rest, (double)after);
            check(fabs((double)rest) <= half_ulp(rounded),
                  "%zu tokens, %zu channels: %s[%zu]: %a leaves a residue of %a", tokens, channels, buffers[i].name, at,
                  (double)rounded, (double)rest);
        }
        if (buffers[i].shape == ONE_PER_CHANNEL && tokens >= 100 && channels >= 8)
            check(residues > 0, "%zu tokens, %zu channels: %s is rounded before it is added", tokens, channels,
                  buffers[i].name);
    }

    /* With one flag at a time, the other gradients are overwritten. */
    for (int i = 0; i < BUFFERS; i++) {
        if (!is_output(&buffers[i]))
            continue;
        struct test_call one = make_case(tokens, channels);
        accumulate_on(&one, NULL, 0);
        for (int other = 0; other < BUFFERS; other++)
            if (is_output(&buffers[other]) && other != i)
                set_accumulate(&one.call, &buffers[other], 0);
        run(&one.call, "accumulating one gradient");
        struct difference difference;
        for (int other = 0; other < BUFFERS; other++)
            if (is_output(&buffers[other]))
                check(!buffer_differs(&one.call, other == i ? &random.call : &plain.call, &buffers[other], &difference),
                      "%zu tokens, %zu channels, accumulating %s alone: %s", tokens, channels, buffers[i].name,
                      difference.text);
        free_call(&one);
    }
    free_call(&old);
    free_call(&random);
    free_call(&zero);
    free_call(&residue);
    free_call(&plain);
}

/* The sum over tokens is added to what is there before anything is rounded. Here the sum lies a little above half the
 * distance from 1 to the next float: added in double it carries 1 up to that float, but rounded to a float first it
 * would lie exactly halfway, and be lost. */
static void check_rounded_once(size_t channels) {
    enum { TOKENS = 9 };
    if (kernel->direction != BACKWARD_PASS || !dynnorm_operations[kernel->operation].has_bias)
        return;
    float *values = calloc((2 * TOKENS + 1) * channels, sizeof *values);
    float *x = values, *dy = values + TOKENS * channels, *dbias = dy + TOKENS * channels;
    for (size_t i = 0; i < channels; i++) {
        dy[i] = 0x1p-24f;
        dy[8 * channels + i] = 0x1p-50f; /* in another group of rows, lest the two are added in float */
        dbias[i] = 1;
    }
    dynnorm_descriptor call = describe(kernel, TOKENS, channels);
    call.x.data = x;
    call.dy.data = dy;
    call.dbias.data = dbias;
    call.accumulate_dbias = 1;
    dynnorm_status status = dynnorm_backward(&call);
    size_t right = 0;
    while (right < channels && dbias[right] == 1 + 0x1p-23f)
        right++;
    tap_check(status == DYNNORM_OK && right == channels,
              "%s %s: an accumulated gradient is rounded once: dbias[%zu] is %a", table->identifier, kernel->name,
              right, right < channels ? (double)dbias[right] : 0);
    free(values);
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static void for_shapes(const char *name, void (*check_shape)(size_t tokens, size_t channels), int step) {
    begin(name);
    for (int i = 0; i < ROW_SHAPES; i += thinned_for(table) ? 4 * step : step)
        if (!thinned_for(table) || row_shapes[i][0] * row_shapes[i][1] < 20000)
            check_shape(row_shapes[i][0], row_shapes[i][1]);
    end();
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *listed) {
    table = isa;
    kernel = listed;
    for_shapes("rows split into ranges", check_ranges, 1);
    begin("order of blocks");
    check_order_of_blocks(100, 515);
    end();
    for_shapes("a range alone", check_ranges_alone, 1);
    for_shapes("rows split among threads", check_threads, 1);
    for_shapes("an executor", check_executors, 1);
    for_shapes("an executor of dx alone", check_executors_of_dx, 1);
    for_shapes("workspace given", check_workspace, 2);
    for_shapes("row strides", check_strides, 2);
    for_shapes("interleaved tensors", check_interleaved, 2);
    for_shapes("weight offset", check_weight_offset, 3);
    for_shapes("weight or bias absent", check_absent_parameters, 3);
    for_shapes("selected outputs", check_selected_outputs, 3);
    for_shapes("accumulated gradients", check_accumulate, 1);
    check_rounded_once(37);
}

int main(void) {
    check_each_kernel(check_kernel);
    return tap_done();
}
