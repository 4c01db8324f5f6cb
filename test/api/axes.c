/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows on several axes: for every kernel and table, tensors whose rows lie on up to three axes give the bits of the
 * same tensors gathered into contiguous rows, as a whole and by ranges, and nothing outside their rows is written.
 */
#include "call.h"
#include "random.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

/* A stride in floats: so many times the channels, and so many more. */
struct stride {
    size_t channels;
    size_t more;
};

/* The strides of one tensor. */
struct strides {
    struct stride axis[3];
};

enum { TENSORS = 4 };
static const enum buffer_index tensors[TENSORS] = {BUFFER_X, BUFFER_Y, BUFFER_DY, BUFFER_DX};

struct layout {
    const char *name;
    size_t axes;
    size_t rows[3];
    struct strides strides[TENSORS]; /* of x, y, dy, dx; all 0: none are given, and the rows are contiguous */
};

#define PACKED                                                                                                         \
    {                                                                                                                  \
        {                                                                                                              \
            {1, 0}, {                                                                                                  \
                12, 0                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GGML                                                                                                           \
    {                                                                                                                  \
        {                                                                                                              \
            {1, 4}, {3, 16}, {                                                                                         \
                12, 64                                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }
#define PERMUTED                                                                                                       \
    {                                                                                                                  \
        {                                                                                                              \
            {8, 0}, {1, 0}, {                                                                                          \
                4, 0                                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
#define CONTIGUOUS                                                                                                     \
    {                                                                                                                  \
        {                                                                                                              \
            { 0, 0 }                                                                                                   \
        }                                                                                                              \
    }
static const struct layout layouts[] = {
    {"heads inside a packed qkv", 2, {4, 5}, {PACKED, PACKED, PACKED, PACKED}},
    {"a tensor of ggml", 3, {3, 4, 2}, {GGML, GGML, GGML, GGML}},
    {"a permuted tensor", 3, {3, 4, 2}, {PERMUTED, PERMUTED, PERMUTED, PERMUTED}},
    {"inputs permuted, outputs contiguous", 3, {3, 4, 2}, {PERMUTED, CONTIGUOUS, PERMUTED, CONTIGUOUS}},
    {"inputs contiguous, outputs permuted", 3, {3, 4, 2}, {CONTIGUOUS, PERMUTED, CONTIGUOUS, PERMUTED}},
    {"every tensor in another way", 3, {3, 4, 2}, {GGML, PERMUTED, CONTIGUOUS, {{{1, 0}, {3, 0}, {13, 1}}}}},
    {"inputs broadcast on the first axis", 2, {4, 5}, {{{{0, 0}, {1, 0}}}, PACKED, {{{0, 0}, {2, 3}}}, PACKED}},
    {"inputs broadcast on other axes", 3, {3, 4, 2}, {{{{1, 0}, {0, 0}, {3, 0}}}, GGML, {{{1, 0}, {3, 0}, {0, 0}}}}},
    {"an input whose rows overlap", 2, {4, 5}, {{{{0, 1}, {0, 3}}}, CONTIGUOUS, {{{0, 2}, {1, 0}}}, CONTIGUOUS}},
    {"inputs of equal strides on all axes", 3, {3, 4, 2}, {{{{1, 0}, {1, 0}, {1, 0}}}, GGML, {{{2, 0}, {2, 0}}}, GGML}},
    {"axes of one row", 3, {1, 7, 1}, {{{{9, 9}, {1, 3}, {0, 0}}}, {{{0, 0}, {2, 0}, {5, 5}}}}},
    {"several blocks of rows",
     3,
     {5, 8, 3},
     {GGML, {{{1, 0}, {6, 0}, {48, 1}}}, PERMUTED, {{{8, 8}, {1, 1}, {40, 40}}}}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* The strides of a call, which keeps pointers to them. */
struct axis_strides {
    size_t floats[TENSORS][3];
};

static void lay_out(dynnorm_descriptor *call, const struct layout *layout, struct axis_strides *strides) {
    call->axes = layout->axes;
    call->tokens = 1;
    for (size_t axis = 0; axis < layout->axes; axis++) {
        call->axis_rows[axis] = layout->rows[axis];
        call->tokens *= layout->rows[axis];
    }
    for (int t = 0; t < TENSORS; t++) {
        size_t any = 0;
        for (size_t axis = 0; axis < layout->axes; axis++) {
            struct stride stride = layout->strides[t].axis[axis];
            any |= strides->floats[t][axis] = stride.channels * call->channels + stride.more;
        }
        set_axis_strides(call, &buffers[tensors[t]], any ? strides->floats[t] : NULL);
    }
}

/* The same call with contiguous tensors in memory of their own, whose inputs have the same values. */
static struct test_call gather(const struct listed_kernel *kernel, const dynnorm_descriptor *call) {
    struct test_call gathered = {.call = *call};
    gathered.call.axes = 0;
    for (int t = 0; t < TENSORS; t++)
        set_axis_strides(&gathered.call, &buffers[tensors[t]], NULL);
    gathered.memory = allocate_buffers(&gathered.call, kernel->direction, 0);
    for (int b = 0; b < BUFFERS; b++)
        if (uses(kernel->operation, kernel->direction, &buffers[b]))
            for (size_t row = 0; row < buffer_rows(call, &buffers[b]); row++)
                memcpy(buffer_row(&gathered.call, &buffers[b], row), buffer_row(call, &buffers[b], row),
                       buffer_columns(call, &buffers[b]) * sizeof(float));
    return gathered;
}

/* Whether all of the memory outside the rows is as it was. */
static int gaps_kept(const struct test_call *test, const struct listed_kernel *kernel) {
    unsigned char *used = calloc(test->memory.bytes, 1);
    if (!used)
        exit(2);
    allow_gaps(&test->memory);
    for (int b = 0; b < BUFFERS; b++)
        if (uses(kernel->operation, kernel->direction, &buffers[b]))
            for (size_t row = 0; row < buffer_rows(&test->call, &buffers[b]); row++)
                memset(used + (buffer_row(&test->call, &buffers[b], row) - test->memory.start), 1,
                       buffer_columns(&test->call, &buffers[b]) * sizeof(float));
    int kept = 1;
    for (size_t i = 0; i < test->memory.bytes; i++)
        kept = kept && (used[i] || test->memory.start[i] == UNTOUCHED);
    free(used);
    return kept;
}

/* ---- Ways to compute a call -------------------------------------------------------------------------------------- */

static dynnorm_status run_rows(enum direction direction, const dynnorm_descriptor *call, size_t first, size_t rows) {
    return direction == FORWARD_PASS ? dynnorm_forward_rows(call, first, rows)
                                     : dynnorm_backward_rows(call, first, rows);
}

/* In ranges of so many rows, the last one first. */
static dynnorm_status run_ranges(enum direction direction, const dynnorm_descriptor *call, size_t rows) {
    dynnorm_status status = DYNNORM_OK;
    for (size_t end = call->tokens; end && !status;) {
        size_t first = (end - 1) / rows * rows;
        status = run_rows(direction, call, first, end - first);
        end = first;
    }
    return status;
}

static dynnorm_status run_by_blocks(enum direction direction, const dynnorm_descriptor *call) {
    if (direction == FORWARD_PASS)
        return run_ranges(direction, call, 7);
    dynnorm_descriptor with_workspace = *call;
    size_t block = 0;
    dynnorm_status status = dynnorm_block_rows(call, &block);
    status = status ? status : dynnorm_workspace_size(call, &with_workspace.workspace_size);
    if (status)
        return status;
    struct memory workspace = allocate_memory(with_workspace.workspace_size + 1);
    with_workspace.workspace = workspace.start;
    status = run_ranges(direction, &with_workspace, block);
    status = status ? status : dynnorm_backward_finish(&with_workspace);
    free(workspace.start);
    return status;
}

/* Without the sums over tokens, in ranges that do not begin with a block. */
static dynnorm_status run_without_sums(enum direction direction, const dynnorm_descriptor *call) {
    dynnorm_descriptor without_sums = *call;
    without_sums.dweight.data = without_sums.dbias.data = NULL;
    without_sums.dalpha = without_sums.dbeta = NULL;
    return run_ranges(direction, &without_sums, 5);
}

static const struct {
    const char *name;
    dynnorm_status (*run)(enum direction direction, const dynnorm_descriptor *call);
    int has_sums;
} ways[] = {
    {"whole", run_call, 1},
    {"by blocks", run_by_blocks, 1},
    {"by ranges", run_without_sums, 0},
};

/* ---- One kernel -------------------------------------------------------------------------------------------------- */

/* Fails if the call does not give the bits of expected in each of the ways. */
static int check_ways(const struct listed_kernel *kernel, const struct test_call *strided,
                      const struct test_call *expected, const char *name) {
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        dynnorm_status status = ways[w].run(kernel->direction, &strided->call);
        dynnorm_descriptor compared = strided->call;
        if (!ways[w].has_sums)
            compared.dweight.data = compared.dbias.data = compared.dalpha = compared.dbeta = NULL;
        struct difference difference;
        int differ = !status && outputs_differ(&compared, &expected->call, kernel->direction, &difference);
        if (status || differ)
            return tap_check(0, "%s, %s, %zu channels, %s: %s", kernel->name, name, strided->call.channels,
                             ways[w].name, differ ? difference.text : dynnorm_status_string(status));
    }
    return 1;
}

static int check_layout(const struct listed_kernel *kernel, const struct layout *layout, size_t channels) {
    struct axis_strides strides;
    struct test_call strided = {.call = describe(kernel, 0, channels)};
    lay_out(&strided.call, layout, &strides);
    strided.memory = allocate_buffers(&strided.call, kernel->direction, 0);
    fill_inputs(&strided.call, kernel->direction, channels);
    struct test_call expected = gather(kernel, &strided.call);
    int passed = run_call(kernel->direction, &expected.call) == DYNNORM_OK &&
                 check_ways(kernel, &strided, &expected, layout->name);
    if (passed && !gaps_kept(&strided, kernel))
        passed = tap_check(0, "%s, %s, %zu channels: written outside the rows", kernel->name, layout->name, channels);
    free_call(&expected);
    free_call(&strided);
    return passed;
}

/* Heads of q, k and v in one piece of memory, each of which is one of the tensors; or, in place, y or dx is x. */
static int check_shared(const struct listed_kernel *kernel, size_t channels, int in_place) {
    enum { HEADS = 4, TOKENS = 10 };
    const size_t strides[] = {channels, 3 * HEADS * channels};
    struct memory qkv = allocate_memory(3 * HEADS * TOKENS * channels * sizeof(float));
    struct test_call packed = {.call = describe(kernel, HEADS * TOKENS, channels)};
    packed.memory = allocate_buffers(&packed.call, kernel->direction, 0);
    packed.call.axes = 2;
    packed.call.axis_rows[0] = HEADS, packed.call.axis_rows[1] = TOKENS;
    size_t part = 0;
    for (int t = 0; t < TENSORS; t++)
        if (uses(kernel->operation, kernel->direction, &buffers[tensors[t]])) {
            set_buffer_data(&packed.call, &buffers[tensors[t]], qkv.start + part++ * HEADS * channels * sizeof(float));
            set_axis_strides(&packed.call, &buffers[tensors[t]], strides);
        }
    if (in_place)
        *(kernel->direction == FORWARD_PASS ? &packed.call.y : &packed.call.dx) = packed.call.x;
    fill_inputs(&packed.call, kernel->direction, channels);
    struct test_call expected = gather(kernel, &packed.call);
    dynnorm_status status = run_call(kernel->direction, &packed.call);
    status = status ? status : run_call(kernel->direction, &expected.call);
    struct difference difference;
    int differ = !status && outputs_differ(&packed.call, &expected.call, kernel->direction, &difference);
    int passed = !status && !differ;
    if (!passed)
        tap_check(0, "%s, %zu channels, %s: %s", kernel->name, channels,
                  in_place ? "in place inside a packed qkv" : "from one part of a packed qkv to another",
                  differ ? difference.text : dynnorm_status_string(status));
    free_call(&expected);
    free_call(&packed);
    free(qkv.start);
    return passed;
}

static void check_kernel(const struct isa *table, const struct listed_kernel *kernel) {
    static const size_t channel_counts[] = {1, 5, 16, 64, 131, 515};
    for (size_t c = 0; c < sizeof channel_counts / sizeof *channel_counts; c++) {
        if (thinned_for(table) && c % 2)
            continue;
        for (int streamed = 0; streamed < 2; streamed++) {
            pretend_level2_cache(streamed ? 0 : SIZE_MAX / 2);
            int passed = 1;
            for (int l = 0; l < LAYOUTS && passed; l++)
                passed = check_layout(kernel, &layouts[l], channel_counts[c]);
            for (int in_place = 0; in_place < 2 && passed; in_place++)
                passed = check_shared(kernel, channel_counts[c], in_place);
            pretend_level2_cache(SIZE_MAX);
            if (!passed)
                return;
        }
    }
    tap_check(1, "%s %s: rows on axes give the bits of gathered rows", table->identifier, kernel->name);
}

/* ---- What kernels see -------------------------------------------------------------------------------------------- */

static struct tensor noted;

static void note(const struct forward_arguments *arguments, size_t first, size_t rows) {
    (void)first, (void)rows;
    noted = arguments->x;
}

static int changes_nothing(void) {
    return 0;
}

static const struct kernels noting_kernels = {
    .changes_results = changes_nothing,
    .forward = {[DYNNORM_RMSNORM] = {[DYNNORM_PORTABLE] = note}},
};
static const struct isa noting_table = {"noting", 0, &noting_kernels};

/* Axes of one row are left out, and axes that continue one another are merged: walking along one axis is quicker. */
static void check_merged(void) {
    static const struct {
        size_t rows[3], strides[3];
        struct tensor expected;
    } cases[] = {
        {{6, 5, 4}, {8, 48, 240}, {NULL, 4, 1, {120}, {8}}},
        {{6, 5, 4}, {9, 54, 270}, {NULL, 4, 1, {120}, {9}}},
        {{6, 5, 4}, {8, 48, 241}, {NULL, 4, 2, {30, 4}, {8, 241}}},
        {{6, 5, 4}, {8, 49, 245}, {NULL, 4, 2, {6, 20}, {8, 49}}},
        {{6, 5, 4}, {8, 50, 251}, {NULL, 4, 3, {6, 5, 4}, {8, 50, 251}}},
        {{6, 1, 4}, {8, 50, 48}, {NULL, 4, 1, {24}, {8}}},
        {{1, 5, 4}, {7, 8, 48}, {NULL, 4, 2, {5, 4}, {8, 48}}},
        {{6, 5, 1}, {0, 0, 7}, {NULL, 4, 1, {30}, {0}}},
        {{1, 1, 1}, {1, 2, 3}, {NULL, 4, 1, {1}, {8}}},
    };
    if (!use_table(&noting_table) || !pretend_level2_cache(SIZE_MAX)) {
        tap_skip("merged axes", "the linker cannot redirect the library");
        return;
    }
    static float x[2048], y[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
        call.operation = DYNNORM_RMSNORM;
        call.channels = 8;
        call.tokens = 1;
        call.axes = 3;
        for (int axis = 0; axis < 3; axis++)
            call.tokens *= call.axis_rows[axis] = cases[i].rows[axis];
        call.x.data = x;
        call.y.data = y;
        call.x_axis_strides = cases[i].strides;
        dynnorm_status status = dynnorm_forward(&call);
        int right = status == DYNNORM_OK && noted.axes == cases[i].expected.axes;
        for (size_t axis = 0; right && axis < noted.axes; axis++)
            right = noted.rows[axis] == cases[i].expected.rows[axis] &&
                    noted.strides[axis] == cases[i].expected.strides[axis];
        tap_check(right, "rows %zu %zu %zu by %zu %zu %zu: %zu axes: %s", cases[i].rows[0], cases[i].rows[1],
                  cases[i].rows[2], cases[i].strides[0], cases[i].strides[1], cases[i].strides[2], noted.axes,
                  dynnorm_status_string(status));
    }
    use_table(NULL);
}

int main(void) {
    check_merged();
    check_each_kernel(check_kernel);
    return tap_done();
}
