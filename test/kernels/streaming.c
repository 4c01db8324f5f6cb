/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Stores past the caches: which calls ask their kernels for them, and that they do not change the outputs.
 */
#include "call.h"
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
#include "element_types.h"
#include "elements.h"
#include "operations.h"
#include "random.h"
#include "row_patterns.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which calls ask for them ------------------------------------------------------------------------------------ */

/* A table whose kernels compute nothing and note what they are asked for. */
static int noted, noted_far;

static void note_forward(const struct forward_arguments *arguments, size_t first, size_t rows) {
    (void)first, (void)rows;
    noted = arguments->streams;
    noted_far = arguments->rows_are_far;
}

static void note_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                          const struct partial_sums *sums) {
    (void)first, (void)rows, (void)sums;
    noted = arguments->streams;
}

static int changes_nothing(void) {
    return 0;
}

static const struct kernels noting_kernels = {
    .changes_results = changes_nothing,
    .forward =
        {[DYNNORM_RMSNORM] = {[DYNNORM_PORTABLE] = note_forward}, [DYNNORM_DYT] = {[DYNNORM_PORTABLE] = note_forward}},
    .backward = {[DYNNORM_RMSNORM] = {[DYNNORM_PORTABLE] = note_backward},
                 [DYNNORM_LAYERNORM] = {[DYNNORM_PORTABLE] = note_backward},
                 [DYNNORM_DYT] = {[DYNNORM_PORTABLE] = note_backward}},
};
static const struct isa noting_table = {"noting", 0, &noting_kernels};

/* 2048 rows take exactly eight times the second-level cache, and 1024 rows four times. Where the third-level cache is
 * large, y takes at least 15 % of it, which is 2457.6 rows, or 33 % if it is to be kept, and dx that is to be kept
 * 20 %. */
enum { CACHE = 1 << 18, CHANNELS = 256, STREAMED = 2049, STREAMED_DX = 1025 };
enum { LARGE_CACHE = 64 * CACHE, STREAMED_LARGE = 2458 };
enum { STREAMED_IF_KEPT_LARGE = 5407, STREAMED_DX_IF_KEPT_LARGE = 3277 };
/* Rows that are not aligned have at least so many floats. A few of them are more than the same eight times, or six
 * times of another operation. */
enum { LONG_CHANNELS = 640, LONG_ROWS = 820, LONG_OF_DYT = 2560, LONG_ROWS_OF_DYT = 154 };
/* If they have no gaps, fewer will do. */
enum { SHARING_LEAST = 128 };
/* Rows of dx that are not aligned have so many, and no gaps. */
enum { COLLECTED_LEAST = 129, COLLECTED = 1024, COLLECTED_DX = STREAMED_DX / (COLLECTED / CHANNELS) + 1 };
/* In short rows dx of RMSNorm takes more than six in up to 64 channels, more than five in up to 128, and never is
 * large enough in up to 32, or with LayerNorm in up to 96. */
enum { SHORTEST_ROWS = 32, SHORT_OF_LAYERNORM = 96, LESS_SHORT_ROWS = 128, NEVER = 64 * STREAMED };
enum { STREAMED_DX_OF_LESS_SHORT = 5 * CACHE / 4 / LESS_SHORT_ROWS + 1 };
/* Rows that are just more than six second-level caches, which DyT's y takes, and than seven, if it is to be kept. */
enum { MORE_THAN_SIX = 1537, MORE_THAN_SEVEN = 1793 };
/* DyT's dx takes more than five second-level caches, six if it is to be kept, or 66 % of a large third-level cache. */
enum { STREAMED_DX_OF_DYT = 1281, STREAMED_DX_OF_DYT_IF_KEPT = 1537, STREAMED_DX_OF_DYT_IF_KEPT_LARGE = 10814 };
/* Of a third-level cache 32 MB count. 15 % of these are 4915.2 rows, which is more than eight of these caches. */
enum { LARGER_CACHE = 2 * CACHE, STREAMED_LARGER = 4916 };
enum { SHORT_ROWS = 64, NOT_ASKED_FOR = -1 };

struct decision {
    const char *what;
    enum direction direction;
    size_t tokens;
    size_t channels;
    size_t stride;
    int offset; /* bytes by which the output is misaligned; NOT_ASKED_FOR if the output is NULL */
    int in_place;
    int keep_in_cache;
    int accumulate;
    int expected;
};

static const struct decision decisions[] = {
    {"y, too small", FORWARD_PASS, STREAMED - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"y, just large enough", FORWARD_PASS, STREAMED, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"y, misaligned by a float", FORWARD_PASS, STREAMED, CHANNELS, 0, 4, 0, 0, 0, 1},
    {"y, misaligned by a float, too small", FORWARD_PASS, STREAMED - 1, CHANNELS, 0, 4, 0, 0, 0, 0},
    {"y, of shorter rows, misaligned by a float", FORWARD_PASS, 2 * STREAMED, SHARING_LEAST, 0, 4, 0, 0, 0, 1},
    {"y, of too short rows, misaligned by a float", FORWARD_PASS, 3 * STREAMED, SHARING_LEAST - 1, 0, 4, 0, 0, 0, 0},
    {"y, with an odd stride", FORWARD_PASS, STREAMED, CHANNELS, CHANNELS + 3, 0, 0, 0, 0, 0},
    {"y, of long rows", FORWARD_PASS, LONG_ROWS, LONG_CHANNELS, 0, 0, 0, 0, 0, 1},
    {"y, of long rows, too small", FORWARD_PASS, LONG_ROWS - 1, LONG_CHANNELS, 0, 0, 0, 0, 0, 0},
    {"y, of long rows, misaligned by a float", FORWARD_PASS, LONG_ROWS, LONG_CHANNELS, 0, 4, 0, 0, 0, 1},
    {"y, of long rows with an odd stride", FORWARD_PASS, LONG_ROWS, LONG_CHANNELS, LONG_CHANNELS + 3, 0, 0, 0, 0, 1},
    {"y, of rows not quite as long", FORWARD_PASS, LONG_ROWS + 1, LONG_CHANNELS - 1, LONG_CHANNELS + 3, 0, 0, 0, 0, 0},
    {"y, of long rows, misaligned by a byte", FORWARD_PASS, LONG_ROWS, LONG_CHANNELS, 0, 1, 0, 0, 0, 0},
    {"y, of short rows", FORWARD_PASS, 4 * STREAMED, SHORT_ROWS, 0, 0, 0, 0, 0, 1},
    {"y, of short rows, misaligned by a float", FORWARD_PASS, 4 * STREAMED, SHORT_ROWS, 0, 4, 0, 0, 0, 0},
    {"y, of short rows with an odd stride", FORWARD_PASS, 4 * STREAMED, SHORT_ROWS, 67, 0, 0, 0, 0, 0},
    {"y, not asked for", FORWARD_PASS, STREAMED, CHANNELS, 0, NOT_ASKED_FOR, 0, 0, 0, 0},
    {"y, misaligned by a byte", FORWARD_PASS, STREAMED, CHANNELS, 0, 1, 0, 0, 0, 0},
    {"y, in place", FORWARD_PASS, STREAMED, CHANNELS, 0, 0, 1, 0, 0, 0},
    {"y, kept in the cache", FORWARD_PASS, STREAMED - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"y, too large to be kept in the cache", FORWARD_PASS, STREAMED, CHANNELS, 0, 0, 0, 1, 0, 1},
    {"dx, too small", BACKWARD_PASS, STREAMED_DX - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"dx, just large enough", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"dx, misaligned by a float", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 4, 0, 0, 0, 1},
    {"dx, misaligned by a float, too small", BACKWARD_PASS, STREAMED_DX - 1, CHANNELS, 0, 4, 0, 0, 0, 0},
    {"dx, misaligned by a byte", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 1, 0, 0, 0, 0},
    {"dx, of short rows, misaligned by a float", BACKWARD_PASS, 4 * STREAMED_DX, COLLECTED_LEAST - 1, 0, 4, 0, 0, 0, 0},
    {"dx, of rows just longer, misaligned by a float", BACKWARD_PASS, 2 * STREAMED_DX, COLLECTED_LEAST, 0, 4, 0, 0, 0,
     1},
    {"dx, of longer rows, misaligned by a float", BACKWARD_PASS, COLLECTED_DX, COLLECTED, 0, 4, 0, 0, 0, 1},
    {"dx, of too long ones, misaligned by a float", BACKWARD_PASS, COLLECTED_DX, COLLECTED + 1, 0, 4, 0, 0, 0, 0},
    {"dx, misaligned and accumulated", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 4, 0, 0, 1, 0},
    {"dx, with an odd stride", BACKWARD_PASS, STREAMED_DX, CHANNELS, CHANNELS + 3, 0, 0, 0, 0, 0},
    {"dx, in place", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 1, 0, 0, 0},
    {"dx, kept in the cache", BACKWARD_PASS, STREAMED_DX - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"dx, too large to be kept in the cache", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 0, 1, 0, 1},
    {"dx, accumulated", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 0, 0, 1, 0},
    {"dx of the shortest rows", BACKWARD_PASS, NEVER, SHORTEST_ROWS, 0, 0, 0, 0, 0, 0},
    {"dx of short rows, too small", BACKWARD_PASS, 4 * MORE_THAN_SIX - 4, SHORT_ROWS, 0, 0, 0, 0, 0, 0},
    {"dx of short rows, just large enough", BACKWARD_PASS, 4 * MORE_THAN_SIX - 3, SHORT_ROWS, 0, 0, 0, 0, 0, 1},
    {"dx of less short rows, too small", BACKWARD_PASS, STREAMED_DX_OF_LESS_SHORT - 1, LESS_SHORT_ROWS, 0, 0, 0, 0, 0,
     0},
    {"dx of less short rows", BACKWARD_PASS, STREAMED_DX_OF_LESS_SHORT, LESS_SHORT_ROWS, 0, 0, 0, 0, 0, 1},
};

static const struct decision decisions_of_layernorm[] = {
    {"dx of LayerNorm, short rows", BACKWARD_PASS, NEVER, SHORT_OF_LAYERNORM, 0, 0, 0, 0, 0, 0},
    {"dx of LayerNorm, less short rows", BACKWARD_PASS, STREAMED_DX_OF_LESS_SHORT, LESS_SHORT_ROWS, 0, 0, 0, 0, 0, 1},
    {"dx of LayerNorm, just large enough", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 0, 0, 0, 1},
};

static const struct decision decisions_of_large_cache[] = {
    {"y, too small beside a large cache", FORWARD_PASS, STREAMED_LARGE - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"y, just large enough beside it", FORWARD_PASS, STREAMED_LARGE, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"dx, just large enough", BACKWARD_PASS, STREAMED_DX, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"y, kept in a large cache", FORWARD_PASS, STREAMED_IF_KEPT_LARGE - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"y, too large to be kept in it", FORWARD_PASS, STREAMED_IF_KEPT_LARGE, CHANNELS, 0, 0, 0, 1, 0, 1},
    {"dx, kept in a large cache", BACKWARD_PASS, STREAMED_DX_IF_KEPT_LARGE - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"dx, too large to be kept in it", BACKWARD_PASS, STREAMED_DX_IF_KEPT_LARGE, CHANNELS, 0, 0, 0, 1, 0, 1},
};

static const struct decision decisions_of_dyt[] = {
    {"y of DyT, too small", FORWARD_PASS, MORE_THAN_SIX - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"y of DyT, just large enough", FORWARD_PASS, MORE_THAN_SIX, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"y of DyT, of long rows, misaligned by a float", FORWARD_PASS, LONG_ROWS_OF_DYT, LONG_OF_DYT, 0, 4, 0, 0, 0, 1},
    {"y of DyT, of rows not quite as long", FORWARD_PASS, LONG_ROWS_OF_DYT + 1, LONG_OF_DYT - 1, 0, 4, 0, 0, 0, 0},
    {"y of DyT, kept in the cache", FORWARD_PASS, MORE_THAN_SEVEN - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"y of DyT, too large to be kept in it", FORWARD_PASS, MORE_THAN_SEVEN, CHANNELS, 0, 0, 0, 1, 0, 1},
    {"dx of DyT, too small", BACKWARD_PASS, STREAMED_DX_OF_DYT - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"dx of DyT, just large enough", BACKWARD_PASS, STREAMED_DX_OF_DYT, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"dx of DyT, misaligned by a float", BACKWARD_PASS, STREAMED_DX_OF_DYT, CHANNELS, 0, 4, 0, 0, 0, 0},
    {"dx of DyT, kept in the cache", BACKWARD_PASS, STREAMED_DX_OF_DYT_IF_KEPT - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"dx of DyT, too large to be kept in it", BACKWARD_PASS, STREAMED_DX_OF_DYT_IF_KEPT, CHANNELS, 0, 0, 0, 1, 0, 1},
};

static const struct decision decisions_of_dyt_of_large_cache[] = {
    {"dx of DyT, too small", BACKWARD_PASS, STREAMED_LARGE - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"dx of DyT, just large enough", BACKWARD_PASS, STREAMED_LARGE, CHANNELS, 0, 0, 0, 0, 0, 1},
    {"dx of DyT, kept in it", BACKWARD_PASS, STREAMED_DX_OF_DYT_IF_KEPT_LARGE - 1, CHANNELS, 0, 0, 0, 1, 0, 0},
    {"dx of DyT, too large to be kept", BACKWARD_PASS, STREAMED_DX_OF_DYT_IF_KEPT_LARGE, CHANNELS, 0, 0, 0, 1, 0, 1},
};

static const struct decision decisions_of_larger_cache[] = {
    {"y, too small beside a larger cache", FORWARD_PASS, STREAMED_LARGER - 1, CHANNELS, 0, 0, 0, 0, 0, 0},
    {"y, just large enough beside it", FORWARD_PASS, STREAMED_LARGER, CHANNELS, 0, 0, 0, 0, 0, 1},
};

static void check_decisions(dynnorm_operation operation, const struct decision *list, size_t count) {
    const struct listed_kernel kernels[] = {
        [FORWARD_PASS] = {.direction = FORWARD_PASS, .operation = operation},
        [BACKWARD_PASS] = {.direction = BACKWARD_PASS, .operation = operation},
    };
    for (size_t i = 0; i < count; i++) {
        const struct decision *decision = &list[i];
        dynnorm_descriptor call = describe(&kernels[decision->direction], decision->tokens, decision->channels);
        if (decision->stride)
            for (int b = 0; b < BUFFERS; b++)
                if (buffers[b].stride_field)
                    set_buffer_stride(&call, &buffers[b], decision->stride);
        struct memory memory = allocate_buffers(&call, decision->direction, 0);
        dynnorm_tensor *output = decision->direction == FORWARD_PASS ? &call.y : &call.dx;
        output->data = decision->in_place ? call.x.data : (char *)output->data + decision->offset;
        if (decision->offset == NOT_ASKED_FOR)
            output->data = NULL;
        call.keep_output_in_cache = decision->keep_in_cache;
        call.accumulate_dx = decision->accumulate;
        call.dweight.data = call.dbias.data = NULL;
        call.dalpha = NULL;
        noted = -1;
        dynnorm_status status = run_call(decision->direction, &call);
        tap_check(status == DYNNORM_OK && noted == decision->expected, "%s: %s, %d, expected %d", decision->what,
                  dynnorm_status_string(status), noted, decision->expected);
        free(memory.start);
    }
}

/* Rows on axes begin at multiples of 64 bytes only if every stride is such a multiple. */
static void check_decisions_on_axes(void) {
    const struct listed_kernel rmsnorm = {.direction = FORWARD_PASS, .operation = DYNNORM_RMSNORM};
    static const struct {
        size_t strides[2];
        int expected;
    } cases[] = {{{SHORT_ROWS, 5 * SHORT_ROWS}, 1}, {{SHORT_ROWS, 4 * SHORT_ROWS + 3}, 0}, {{67, 5 * SHORT_ROWS}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dynnorm_descriptor call = describe(&rmsnorm, 4 * STREAMED, SHORT_ROWS);
        call.axes = 2;
        call.axis_rows[0] = 4, call.axis_rows[1] = STREAMED;
        call.y_axis_strides = cases[i].strides;
        struct memory memory = allocate_buffers(&call, FORWARD_PASS, 0);
        noted = -1;
        dynnorm_status status = dynnorm_forward(&call);
        tap_check(status == DYNNORM_OK && noted == cases[i].expected,
                  "y, of short rows, on axes by %zu and %zu: %s, %d", cases[i].strides[0], cases[i].strides[1],
                  dynnorm_status_string(status), noted);
        free(memory.start);
    }
}

/* Rows of 16 bits that are not aligned, which are stored past the caches if there are at least 1280 channels, and norms
 * like other operations. */
static void check_decisions_of_halves(void) {
    const struct listed_kernel rmsnorm = {.direction = FORWARD_PASS, .operation = DYNNORM_RMSNORM};
    enum { LEAST_CHANNELS = 1280, ROWS = 6 * CACHE / 2 / LEAST_CHANNELS + 1 };
    static uint16_t first;
    for (size_t channels = LEAST_CHANNELS - 1; channels <= LEAST_CHANNELS; channels++) {
        const dynnorm_descriptor call = describe(&rmsnorm, ROWS + 1, channels);
        const struct tensor y = {(float *)(void *)&first, sizeof first, 1, {SIZE_MAX}, {channels + 3}};
        const int expected = channels == LEAST_CHANNELS;
        tap_check(dynnorm_streams_y(&call, &y) == expected,
                  "y of 16 bits, %zu channels with an odd stride, expected %d", channels, expected);
        if (expected)
            tap_check(!dynnorm_streams(&call, &y, ROWS - 1), "y of 16 bits, too small");
    }
}

/* With a residual y of norms takes no more than that of other operations, and is as long if it is not aligned. */
static void check_decisions_with_residual(void) {
    const struct listed_kernel rmsnorm = {.direction = FORWARD_PASS, .operation = DYNNORM_RMSNORM};
    static _Alignas(64) float first[3];
    for (int has_residual = 0; has_residual < 2; has_residual++) {
        dynnorm_descriptor call = describe(&rmsnorm, MORE_THAN_SIX, CHANNELS);
        const struct tensor y = {first, sizeof *first, 1, {SIZE_MAX}, {CHANNELS}};
        call.residual.data = has_residual ? first + 2 : NULL;
        tap_check(dynnorm_streams_y(&call, &y) == has_residual, "y of RMSNorm, %d residuals", has_residual);
        call.channels = LONG_CHANNELS, call.tokens = LONG_ROWS;
        const struct tensor misaligned = {first + 1, sizeof *first, 1, {SIZE_MAX}, {LONG_CHANNELS}};
        tap_check(dynnorm_streams_y(&call, &misaligned) != has_residual, "y of RMSNorm, misaligned, %d residuals",
                  has_residual);
    }
}

/* y that is not aligned needs fewer channels where x has no gaps, either, and weight and bias are read from their
 * places or are short. */
static void check_decisions_of_shared_lines(void) {
    enum { SHORT = 256, MORE = SHORT + 16, GAP = 16 };
    static const size_t no_gaps = MORE, gaps = MORE + GAP;
    static const struct listed_kernel layernorm = {.direction = FORWARD_PASS, .operation = DYNNORM_LAYERNORM};
    static _Alignas(64) float first[4];
    static const struct {
        const char *what;
        size_t channels;
        size_t x_stride;
        const size_t *x_axis_strides;
        float weight_offset;
        int lacks; /* 1: a weight, 2: a bias */
        int expected;
    } cases[] = {
        {"all is plain", MORE, 0, NULL, 0, 0, 1},
        {"a stride without gaps", MORE, MORE, NULL, 0, 0, 1},
        {"gaps in x", MORE, MORE + GAP, NULL, 0, 0, 0},
        {"an axis without gaps", MORE, MORE + GAP, &no_gaps, 0, 0, 1},
        {"gaps on an axis of x", MORE, 0, &gaps, 0, 0, 0},
        {"an offset", MORE, 0, NULL, 1, 0, 0},
        {"no weight", MORE, 0, NULL, 0, 1, 0},
        {"no bias", MORE, 0, NULL, 0, 2, 0},
        {"an offset, short", SHORT, 0, NULL, 1, 0, 1},
        {"no weight, short", SHORT, 0, NULL, 0, 1, 1},
        {"no bias, short", SHORT, 0, NULL, 0, 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dynnorm_descriptor call = describe(&layernorm, STREAMED, cases[i].channels);
        const struct tensor y = {first + 1, sizeof *first, 1, {SIZE_MAX}, {cases[i].channels}};
        call.x.row_stride = cases[i].x_stride;
        call.axes = cases[i].x_axis_strides != NULL;
        call.x_axis_strides = cases[i].x_axis_strides;
        call.weight_offset = cases[i].weight_offset;
        call.weight.data = cases[i].lacks == 1 ? NULL : first + 2;
        call.bias.data = cases[i].lacks == 2 ? NULL : first + 3;
        tap_check(dynnorm_streams_y(&call, &y) == cases[i].expected, "y misaligned by a float: %s, expected %d",
                  cases[i].what, cases[i].expected);
    }
}

/* dx that is not aligned goes past the caches if the norm has a weight without an offset, and all tensors are of
 * floats. */
static void check_decisions_of_collected_rows(void) {
    const struct listed_kernel rmsnorm = {.direction = BACKWARD_PASS, .operation = DYNNORM_RMSNORM};
    static _Alignas(64) float first[2];
    const struct tensor dx = {first + 1, sizeof *first, 1, {SIZE_MAX}, {CHANNELS}};
    for (int i = 0; i < 5; i++) {
        dynnorm_descriptor call = describe(&rmsnorm, STREAMED_DX, CHANNELS);
        call.weight.data = i == 1 ? NULL : first;
        call.weight_offset = i == 2;
        call.x.type = i == 3 ? DYNNORM_BF16 : DYNNORM_F32;
        call.dy.type = i == 4 ? DYNNORM_F16 : DYNNORM_F32;
        tap_check(dynnorm_streams_dx(&call, &dx) == !i, "dx of RMSNorm, misaligned, case %d", i);
    }
}

/* Whether rows are far does not depend on where y begins: six second-level caches. */
static void check_far_rows(void) {
    const struct listed_kernel rmsnorm = {.direction = FORWARD_PASS, .operation = DYNNORM_RMSNORM};
    for (size_t tokens = MORE_THAN_SIX - 1; tokens <= MORE_THAN_SIX; tokens++)
        for (int offset = 0; offset < 8; offset += 4) {
            dynnorm_descriptor call = describe(&rmsnorm, tokens, CHANNELS);
            struct memory memory = allocate_buffers(&call, FORWARD_PASS, 0);
            call.y.data = (char *)call.y.data + offset;
            const int expected = tokens == MORE_THAN_SIX;
            noted_far = -1;
            dynnorm_status status = dynnorm_forward(&call);
            tap_check(status == DYNNORM_OK && noted_far == expected, "far rows, %zu tokens: %s, %d, expected %d",
                      tokens, dynnorm_status_string(status), noted_far, expected);
            dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
            status = dynnorm_prepare_forward(&call, &prepared);
            for (size_t part = 1; part <= 2; part++) {
                status = status ? status
                                : dynnorm_forward_prepared(&prepared, call.y.data, call.x.data, 0, tokens / part, 1);
                tap_check(status == DYNNORM_OK && noted_far == (part == 1 && expected),
                          "far rows, %zu tokens, prepared: %s, %d", tokens / part, dynnorm_status_string(status),
                          noted_far);
            }
            free(memory.start);
        }
}

/* ---- The outputs ------------------------------------------------------------------------------------------------- */

static const size_t channel_counts[] = {1, 7, 15, 16, 17, 64, 100, 255, 256, 257, 272, 2573, 513, 1023, 1088};
enum { CHANNEL_COUNTS = sizeof channel_counts / sizeof *channel_counts, EXTRA_STRIDE = 5 };
enum { RARE_TOKENS = 35, MOST_RARE_CHANNELS = 2573, MOST_OF_DSUM = RARE_TOKENS * MOST_RARE_CHANNELS };

/* One row in 19, or three that follow one another, are of any pattern, in dy others than in x. So there are whole
 * groups of ordinary rows, and groups with rows, or pairs of rows, that the loops which store past the caches leave to
 * others. */
static void fill_rare_rows(const dynnorm_descriptor *call, const struct buffer *buffer, uint64_t seed, size_t run) {
    struct random random = random_start(seed);
    for (size_t first = buffer == &buffers[BUFFER_DY] ? 15 : 9; first < call->tokens; first += 19)
        for (size_t row = first; row < first + run && row < call->tokens; row++) {
            const struct pattern *pattern = &patterns[random_below(&random, pattern_count)];
            pattern->fill(&random, (float *)(void *)buffer_row(call, buffer, row), call->channels, pattern->argument);
        }
}

/* Rows whose sums are 0, or would be without rounding: they tell in which order the sums were made. */
#define CANCELLING UINT64_MAX
static void fill_cancelling_rows(const dynnorm_descriptor *call, uint64_t seed) {
    struct random random = random_start(seed);
    for (size_t row = 0; row < call->tokens; row++) {
        float *const x = (float *)(void *)buffer_row(call, &buffers[BUFFER_X], row);
        for (size_t i = 0; i < call->channels; i++)
            x[i] = i % 2 ? -x[i - 1] : ldexpf(random_normal(&random), (int)random_below(&random, 51) - 25);
        for (size_t i = call->channels - 1; i > 0; i--) {
            const size_t other = random_below(&random, i + 1);
            const float swapped = x[i];
            x[i] = x[other], x[other] = swapped;
        }
    }
}

/* A gradient to be added to dx, in rows as far apart as those of dx. */
static void give_dsum(dynnorm_descriptor *call, size_t stride) {
    static float dsum[MOST_OF_DSUM];
    struct random random = random_start(stride);
    for (size_t i = 0; i < call->tokens * stride; i++)
        dsum[i] = random_normal(&random);
    call->dsum.data = dsum;
    call->dsum.row_stride = stride;
}

/* rare_rows: 0, or what chooses such rows; with an odd number something is added to dx. */
static int check_shape(const struct isa *table, const struct listed_kernel *kernel, size_t tokens, size_t channels,
                       size_t misalignment, size_t stride, uint64_t rare_rows) {
    dynnorm_descriptor calls[2];
    struct memory memory[2];
    const size_t caches[2] = {SIZE_MAX / 2, 0}; /* no output is streamed; every output is that can be */
    for (int i = 0; i < 2; i++) {
        calls[i] = describe(kernel, tokens, channels);
        calls[i].weight_offset = (float)(misalignment % 8 / 4); /* weights are read differently with an offset */
        for (int b = 0; b < BUFFERS; b++)
            if (buffers[b].stride_field)
                set_buffer_stride(&calls[i], &buffers[b], stride);
        if (misalignment == 48) /* gaps in x alone */
            set_buffer_stride(&calls[i], &buffers[BUFFER_X], stride + EXTRA_STRIDE);
        memory[i] = allocate_buffers(&calls[i], kernel->direction, misalignment);
        fill_inputs(&calls[i], kernel->direction, tokens + channels);
        if (rare_rows == CANCELLING) {
            fill_cancelling_rows(&calls[i], channels);
        } else if (rare_rows) {
            const size_t run = rare_rows % 2 ? 1 : 3;
            fill_rare_rows(&calls[i], &buffers[BUFFER_X], channels + rare_rows, run);
            if (kernel->direction == BACKWARD_PASS) {
                fill_rare_rows(&calls[i], &buffers[BUFFER_DY], channels - rare_rows, run);
                compute_statistics(&calls[i]);
            }
        }
        /* Without axes a call with so few elements, and no gaps, would be computed without a look at the caches. */
        calls[i].axes = 1, calls[i].axis_rows[0] = tokens;
        if (kernel->direction == BACKWARD_PASS && rare_rows % 2)
            give_dsum(&calls[i], stride);
        if (misalignment % 16 == 8)
            calls[i].weight.data = calls[i].bias.data = NULL;
        pretend_level2_cache(caches[i]);
        dynnorm_status status = run_call(kernel->direction, &calls[i]);
        pretend_level2_cache(SIZE_MAX);
        if (status)
            return tap_check(0, "%s %s: %s", table->identifier, kernel->name, dynnorm_status_string(status));
        if (rare_rows)
            unify_nans(&calls[i], kernel->direction);
    }
    struct difference difference;
    int differ = outputs_differ(&calls[1], &calls[0], kernel->direction, &difference);
    if (differ)
        tap_check(0, "%s %s, %zu tokens, %zu channels, misaligned by %zu, stride %zu: %s", table->identifier,
                  kernel->name, tokens, channels, misalignment, stride, difference.text);
    free(memory[0].start);
    free(memory[1].start);
    return !differ;
}

static void check_kernel(const struct isa *table, const struct listed_kernel *kernel) {
    const int thin = thinned_for(table);
    for (size_t c = 0; c < CHANNEL_COUNTS; c += thin ? 3 : 1)
        for (size_t misalignment = 0; misalignment < 64; misalignment += thin ? 12 : 4)
            for (size_t tokens = 1; tokens <= 9; tokens += 4) {
                size_t channels = channel_counts[c], whole_lines = (channels + 31) / 16 * 16;
                if (!check_shape(table, kernel, tokens, channels, misalignment, channels, 0) ||
                    !check_shape(table, kernel, tokens, channels, misalignment, channels + EXTRA_STRIDE, 0) ||
                    !check_shape(table, kernel, tokens, channels, misalignment, whole_lines, 0))
                    return;
            }
    tap_check(1, "%s %s: the same past the caches", table->identifier, kernel->name);
}

/* Four groups of rows and a few more: of short rows, of some blocks each, and of long ones. */
static void check_rare_rows(const struct isa *table, const struct listed_kernel *kernel) {
    static const struct {
        size_t channels;
        size_t stride;
        size_t trials; /* few patterns are rare to the loops of short rows, which take little time */
    } shapes[] = {{48, 64, 16},  {64, 80, 16},    {100, 112, 4},
                  {144, 144, 8}, {272, 272, 4},   {333, 333, 16},
                  {520, 520, 8}, {1088, 1088, 4}, {MOST_RARE_CHANNELS, MOST_RARE_CHANNELS, 4}};
    enum { COUNT = sizeof shapes / sizeof *shapes, TOKENS = RARE_TOKENS };
    /* y of shorter rows, and dx with gaps or without a weight, are stored so where they are aligned. */
    static const size_t misalignments[] = {0, 16, 16, 8};
    enum { MISALIGNMENTS = sizeof misalignments / sizeof *misalignments };
    for (size_t c = 0; c < COUNT; c += thinned_for(table) ? 2 : 1)
        for (size_t trial = 0; trial < shapes[c].trials; trial++)
            if (!check_shape(table, kernel, TOKENS, shapes[c].channels, misalignments[trial % MISALIGNMENTS],
                             shapes[c].stride, 1 + trial))
                return;
    tap_check(1, "%s %s: the same past the caches, some rows unusual", table->identifier, kernel->name);
}

/* Rows that are computed by several loops, which all make the sums of each 1024 channels by themselves. */
static void check_cancelling_rows(const struct isa *table, const struct listed_kernel *kernel) {
    static const size_t lengths[] = {272, 1024, 1280, 2048, 3000};
    if (kernel->direction != FORWARD_PASS)
        return;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t misalignment = 0; misalignment < 32; misalignment += 16)
            if (!check_shape(table, kernel, RARE_TOKENS, lengths[i], misalignment, lengths[i], CANCELLING))
                return;
    tap_check(1, "%s %s: the same past the caches, sums that cancel out", table->identifier, kernel->name);
}

/* ---- Sums that are made along with the outputs ------------------------------------------------------------------- */

/* The kernels of LayerNorm and RMSNorm over long rows make x + residual themselves, if y goes past the caches.
 * Otherwise sums of some rows are made before, and those of rows without gaps as if they were one row. */

enum { SUM_TOKENS = 75, SUM_CHANNELS = 8208, SUM_GAP = 32 };
enum sum_array { SUM_X, SUM_RESIDUAL, SUM_Y, SUM_ALONE, SUM_ARRAYS };
enum sum_place { IN_ARRAY_OF_ITS_OWN, NOWHERE, IN_PLACE_OF_X, IN_PLACE_OF_RESIDUAL, SUM_PLACES };

/* What a call reads and writes, the first of these as they are before it. */
static struct sum_case {
    _Alignas(64) unsigned char arrays[SUM_ARRAYS][SUM_TOKENS * (SUM_CHANNELS + SUM_GAP) * sizeof(float)];
    float mean[SUM_TOKENS];
    float rstd[SUM_TOKENS];
} before, expected, got;

static void fill_sum_case(const dynnorm_descriptor *call, size_t stride, dynnorm_type type, struct random *random) {
    static float row[SUM_CHANNELS];
    for (size_t token = 0; token < call->tokens; token++)
        for (int i = SUM_X; i <= SUM_RESIDUAL; i++) {
            const struct pattern *pattern =
                &patterns[random_below(random, 9) ? 0 : random_below(random, pattern_count)];
            pattern->fill(random, row, call->channels, pattern->argument);
            for (size_t k = 0; k < call->channels; k++)
                set_element_at(before.arrays[i], type, token * stride + k, (double)row[k]);
        }
}

/* Some rows, and then the others. */
static dynnorm_status run_in_two(const dynnorm_descriptor *call, size_t first) {
    dynnorm_status status = dynnorm_forward_rows(call, 0, first);
    return status ? status : dynnorm_forward_rows(call, first, call->tokens - first);
}

static int check_sum_case(const struct isa *table, const struct listed_kernel *kernel, dynnorm_type type,
                          struct random *random) {
    static const size_t lengths[] = {64, 100, 256, 257, 272, 1024, 1040, 2080, 3000, 4096, 8192, SUM_CHANNELS};
    static const size_t token_counts[] = {1, 9, 31, 32, 33, 40, 48, SUM_TOKENS};
    static float weight[SUM_CHANNELS], bias[SUM_CHANNELS], residual_bias[SUM_CHANNELS];
    const size_t channels = lengths[random_below(random, sizeof lengths / sizeof *lengths)];
    const size_t tokens = token_counts[random_below(random, sizeof token_counts / sizeof *token_counts)];
    const size_t stride = random_below(random, 2) ? channels : channels + SUM_GAP;
    const enum sum_place place = (enum sum_place)random_below(random, SUM_PLACES);
    const size_t sum_stride = place == IN_ARRAY_OF_ITS_OWN && random_below(random, 2) ? channels + SUM_GAP : stride;
    const size_t first = random_below(random, 2) ? random_below(random, tokens) : 0;
    const int in_parts = (int)random_below(random, 2);
    const size_t elements = tokens * (channels + SUM_GAP);
    dynnorm_descriptor call = describe(kernel, tokens, channels);
    for (size_t i = 0; i < channels; i++) {
        weight[i] = random_normal(random), bias[i] = random_normal(random);
        residual_bias[i] = random_normal(random);
    }
    fill_sum_case(&call, stride, type, random);
    call.weight.data = random_below(random, 8) ? weight : NULL;
    call.weight_offset = random_below(random, 4) ? 0 : 1;
    call.bias.data = dynnorm_operations[kernel->operation].has_bias && random_below(random, 8) ? bias : NULL;
    call.residual_bias.data = random_below(random, 2) ? residual_bias : NULL;
    for (int i = 0; i < 2; i++) {
        struct sum_case *of = i ? &got : &expected;
        dynnorm_tensor *const tensors[] = {&call.x, &call.residual, &call.y, &call.sum};
        memset(of->mean, 0, sizeof of->mean);
        for (int k = 0; k < SUM_ARRAYS; k++)
            memcpy(of->arrays[k], before.arrays[k], elements * dynnorm_element_bytes(type));
        for (int k = 0; k < SUM_ARRAYS; k++)
            *tensors[k] = (dynnorm_tensor){.data = of->arrays[k], .type = type, .row_stride = stride};
        call.sum.row_stride = sum_stride;
        call.sum.data = place == NOWHERE                ? NULL
                        : place == IN_PLACE_OF_X        ? call.x.data
                        : place == IN_PLACE_OF_RESIDUAL ? call.residual.data
                                                        : call.sum.data;
        call.mean = dynnorm_operations[kernel->operation].has_mean ? of->mean : NULL;
        call.rstd = dynnorm_operations[kernel->operation].has_rstd ? of->rstd : NULL;
        /* Without stores past the caches all sums are made before, or those of an eighth of the rows at a time. */
        if (i) /* the size of the last-level cache decides how the sums are made */
            pretend_caches(0, random_below(random, 2) ? SIZE_MAX / 2 : 0);
        else
            pretend_level2_cache(in_parts ? tokens * channels * dynnorm_element_bytes(type) : SIZE_MAX / 2);
        const dynnorm_status status = i || in_parts ? run_in_two(&call, first) : dynnorm_forward(&call);
        pretend_level2_cache(SIZE_MAX);
        if (status)
            return tap_check(0, "%s %s, with sums: %s", table->identifier, kernel->name, dynnorm_status_string(status));
    }
    int same = same_elements(DYNNORM_F32, expected.mean, got.mean, tokens) &&
               same_elements(DYNNORM_F32, expected.rstd, got.rstd, tokens);
    for (int k = 0; k < SUM_ARRAYS; k++)
        same = same && same_elements(type, expected.arrays[k], got.arrays[k], elements);
    if (!same)
        tap_check(0,
                  "%s %s, with sums: type %d, %zu tokens, %zu channels, strides %zu and %zu, place %d, "
                  "from %zu on",
                  table->identifier, kernel->name, (int)type, tokens, channels, stride, sum_stride, (int)place, first);
    return same;
}

static void check_sums(const struct isa *table, const struct listed_kernel *kernel) {
    uint64_t seed = random_seed(); /* other cases for each kernel */
    if (kernel->direction != FORWARD_PASS)
        return;
    for (const char *c = kernel->name; *c; c++)
        seed = 31 * seed + (unsigned char)*c;
    struct random random = random_start(seed);
    for (int type = 0; type < TYPES; type++)
        for (int trial = 0; trial < (thinned_for(table) ? 10 : 25); trial++)
            if (!check_sum_case(table, kernel, (dynnorm_type)type, &random))
                return;
    tap_check(1, "%s %s: the same past the caches, with sums", table->identifier, kernel->name);
}

int main(void) {
    if (!pretend_level2_cache(CACHE)) {
        tap_skip("all", "the linker cannot redirect the library");
        return tap_done();
    }
    use_table(&noting_table);
#define DECISIONS(list) list, sizeof list / sizeof *list
    check_decisions(DYNNORM_RMSNORM, DECISIONS(decisions));
    check_decisions(DYNNORM_LAYERNORM, DECISIONS(decisions_of_layernorm));
    check_decisions(DYNNORM_DYT, DECISIONS(decisions_of_dyt));
    for (int is_larger = 0; is_larger < 2; is_larger++) { /* than what counts of it */
        pretend_caches(CACHE, is_larger ? SIZE_MAX / 2 : LARGE_CACHE);
        check_decisions(DYNNORM_RMSNORM, DECISIONS(decisions_of_large_cache));
        check_decisions(DYNNORM_DYT, DECISIONS(decisions_of_dyt_of_large_cache));
    }
    pretend_caches(LARGER_CACHE, SIZE_MAX / 2);
    check_decisions(DYNNORM_RMSNORM, DECISIONS(decisions_of_larger_cache));
    pretend_level2_cache(CACHE);
    check_decisions_on_axes();
    check_decisions_of_halves();
    check_decisions_with_residual();
    check_decisions_of_shared_lines();
    check_decisions_of_collected_rows();
    check_far_rows();
    for (int is_zen_5 = 0; is_zen_5 < 2; is_zen_5++) { /* which prefetches no rows, for instance */
        pretend_amd_family(is_zen_5 ? FAMILY_OF_ZEN_5 : FAMILY_OF_ZEN_5 - 1);
        check_each_kernel(check_kernel);
    }
    pretend_amd_family(REAL_FAMILY);
    check_each_kernel(check_rare_rows);
    check_each_kernel(check_cancelling_rows);
    check_each_kernel(check_sums);
    return tap_done();
}
