/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Overlapping buffers: what the library says of many small random layouts, compared with a map of the bytes that each
 * row covers. No overlap may be missed. Where the header promises an exact answer, none may be imagined.
 */
#include "call.h"
#include "random.h"
#include "tap.h"

#include <stdio.h>
#include <string.h>

enum { ARENA = 1 << 14, MOST_ROWS = 6, MOST_STRIDE = 40, MOST_ROW_STRIDE = 12, MOST_CHANNELS = 4 };
static _Alignas(64) unsigned char arena[ARENA];

/* ---- What a buffer covers ---------------------------------------------------------------------------------------- */

struct cover {
    unsigned char bytes[ARENA]; /* how many of its rows cover each byte */
    size_t first, end, count;   /* the first byte, the end of the last, and how many are covered */
    int rows_overlap;
};

static void cover_buffer(struct cover *cover, const dynnorm_descriptor *call, const struct buffer *buffer) {
    memset(cover, 0, sizeof *cover);
    cover->first = ARENA;
    if (!buffer_data(call, buffer))
        return;
    for (size_t row = 0; row < buffer_rows(call, buffer); row++) {
        size_t begin = (size_t)(buffer_row(call, buffer, row) - arena);
        size_t end = begin + buffer_row_bytes(call, buffer);
        for (size_t at = begin; at < end; at++) {
            cover->rows_overlap |= cover->bytes[at] > 0;
            cover->count += !cover->bytes[at];
            cover->bytes[at] = 1;
        }
        cover->first = begin < cover->first ? begin : cover->first;
        cover->end = end > cover->end ? end : cover->end;
    }
}

static int in_one_piece(const struct cover *cover) {
    return cover->end - cover->first == cover->count;
}

static int extents_meet(const struct cover *a, const struct cover *b) {
    return a->count && b->count && a->first < b->end && b->first < a->end;
}

static int share_bytes(const struct cover *a, const struct cover *b) {
    for (size_t at = a->first; extents_meet(a, b) && at < a->end; at++)
        if (a->bytes[at] && b->bytes[at])
            return 1;
    return 0;
}

/* Every row at the same place, of elements of the same size. */
static int is_in_place(const dynnorm_descriptor *call) {
    if (dynnorm_element_bytes(call->x.type) != dynnorm_element_bytes(call->y.type))
        return 0;
    for (size_t row = 0; row < call->tokens; row++)
        if (buffer_row(call, &buffers[BUFFER_X], row) != buffer_row(call, &buffers[BUFFER_Y], row))
            return 0;
    return 1;
}

/* ---- Random calls ------------------------------------------------------------------------------------------------ */

struct random_call {
    dynnorm_descriptor call;
    size_t x_strides[3], y_strides[3];
};

/* One half of the calls is wild. In the other half all is a small multiple of a row, so that rows often just fit into
 * gaps, and x is often a single row that is repeated. */
static void choose_strides(struct random *random, size_t unit, size_t strides[3]) {
    for (int axis = 0; axis < 3; axis++)
        strides[axis] = unit ? unit * random_below(random, 9) : random_below(random, MOST_STRIDE + 1);
}

static unsigned char *choose_place(struct random *random, size_t unit) {
    if (unit)
        return arena + unit * random_below(random, 30) * sizeof(float);
    size_t bytes = random_below(random, 600) * sizeof(float);
    return arena + bytes + (random_below(random, 4) ? 0 : random_below(random, sizeof(float)));
}

/* RMSNorm from x to y, often with rstd, somewhere in the arena. */
static void make_random_call(struct random_call *made, struct random *random) {
    dynnorm_descriptor *call = &made->call;
    *call = (dynnorm_descriptor)DYNNORM_DESCRIPTOR_INIT;
    call->operation = DYNNORM_RMSNORM;
    call->eps = 1;
    call->channels = 1 + random_below(random, MOST_CHANNELS);
    if (random_below(random, 2)) {
        call->x.type = (dynnorm_type)random_below(random, TYPES);
        call->y.type = (dynnorm_type)random_below(random, TYPES);
    }
    size_t unit = random_below(random, 2) ? call->channels : 0;
    call->axes = 1 + random_below(random, 3);
    call->tokens = 1;
    for (size_t axis = 0; axis < call->axes; axis++)
        call->tokens *= call->axis_rows[axis] = 1 + random_below(random, unit ? MOST_ROWS / 2 : MOST_ROWS);
    choose_strides(random, unit, made->x_strides);
    choose_strides(random, unit, made->y_strides);
    if (random_below(random, 2))
        memcpy(made->y_strides, made->x_strides, sizeof made->y_strides);
    else if (unit && random_below(random, 2))
        memset(made->x_strides, 0, sizeof made->x_strides);
    if (random_below(random, 8))
        call->x_axis_strides = made->x_strides;
    if (random_below(random, 8))
        call->y_axis_strides = made->y_strides;
    call->x.row_stride = random_below(random, MOST_ROW_STRIDE + 1);
    call->y.row_stride = random_below(random, MOST_ROW_STRIDE + 1);
    call->x.data = choose_place(random, unit);
    call->y.data = random_below(random, 8) ? choose_place(random, unit) : call->x.data;
    if (random_below(random, 2)) {
        void *place = choose_place(random, unit);
        memcpy(&call->rstd, &place, sizeof place);
    }
}

/* Whether both tensors have the same stride in bytes on every axis on which there is more than one row. */
static int has_equal_strides(const dynnorm_descriptor *call) {
    const size_t x_bytes = dynnorm_element_bytes(call->x.type), y_bytes = dynnorm_element_bytes(call->y.type);
    int equal = call->x_axis_strides && call->y_axis_strides;
    for (size_t axis = 0; equal && axis < call->axes; axis++)
        equal =
            call->axis_rows[axis] == 1 || call->x_axis_strides[axis] * x_bytes == call->y_axis_strides[axis] * y_bytes;
    if (!call->x_axis_strides && !call->y_axis_strides) {
        size_t x_stride = call->x.row_stride ? call->x.row_stride : call->channels;
        equal = x_stride * x_bytes == (call->y.row_stride ? call->y.row_stride : call->channels) * y_bytes;
    }
    return equal;
}

/* ---- The comparison ---------------------------------------------------------------------------------------------- */

static struct cover x, y, rstd;

/* The status that the call must have; DYNNORM_ERROR_OVERLAP in *also where that is allowed as well. */
static dynnorm_status expect(const dynnorm_descriptor *call, dynnorm_status *also) {
    cover_buffer(&x, call, &buffers[BUFFER_X]);
    cover_buffer(&y, call, &buffers[BUFFER_Y]);
    cover_buffer(&rstd, call, &buffers[BUFFER_RSTD]);
    *also = DYNNORM_OK;
    if (y.rows_overlap)
        return *also = DYNNORM_ERROR_STRIDE;
    if (share_bytes(&rstd, &x) || share_bytes(&rstd, &y))
        return *also = DYNNORM_ERROR_OVERLAP;
    if (is_in_place(call))
        return DYNNORM_OK;
    if (share_bytes(&x, &y))
        return *also = DYNNORM_ERROR_OVERLAP;
    int is_exact = has_equal_strides(call) || in_one_piece(&x) || in_one_piece(&y);
    if (!is_exact && extents_meet(&x, &y))
        *also = DYNNORM_ERROR_OVERLAP;
    return DYNNORM_OK;
}

static void describe_call(const dynnorm_descriptor *call, char *text, size_t size) {
    snprintf(
        text, size,
        "%zu channels, rows %zu %zu %zu on %zu axes, x of %s at %td by %zu %zu %zu, y of %s at %td by %zu %zu %zu, row "
        "strides %zu and %zu, rstd at %td",
        call->channels, call->axis_rows[0], call->axis_rows[1], call->axis_rows[2], call->axes,
        element_name(call->x.type), (unsigned char *)call->x.data - arena,
        call->x_axis_strides ? call->x_axis_strides[0] : 0, call->x_axis_strides ? call->x_axis_strides[1] : 0,
        call->x_axis_strides ? call->x_axis_strides[2] : 0, element_name(call->y.type),
        (unsigned char *)call->y.data - arena, call->y_axis_strides ? call->y_axis_strides[0] : 0,
        call->y_axis_strides ? call->y_axis_strides[1] : 0, call->y_axis_strides ? call->y_axis_strides[2] : 0,
        call->x.row_stride, call->y.row_stride, call->rstd ? (unsigned char *)call->rstd - arena : -1);
}

int main(void) {
    enum { CALLS = 60000 };
    const uint64_t seed = random_seed();
    size_t correct = 0, in_gaps = 0, overlapping = 0, strides = 0, inexact = 0;
    for (uint64_t i = 0; i < (thinned() ? CALLS / 20 : CALLS); i++) {
        struct random random = random_start(seed + i);
        struct random_call made;
        make_random_call(&made, &random);
        dynnorm_status also, expected = expect(&made.call, &also), got = dynnorm_forward(&made.call);
        if (got != expected && got != also) {
            char text[400];
            describe_call(&made.call, text, sizeof text);
            tap_check(0, "seed %llu: %s: expected \"%s\", got \"%s\"", (unsigned long long)(seed + i), text,
                      dynnorm_status_string(expected), dynnorm_status_string(got));
            return tap_done();
        }
        correct += got == DYNNORM_OK;
        in_gaps += got == DYNNORM_OK && extents_meet(&x, &y);
        overlapping += got == DYNNORM_ERROR_OVERLAP;
        strides += got == DYNNORM_ERROR_STRIDE;
        inexact += got != expected;
    }
    tap_check(correct > 500 && in_gaps > 100 && overlapping > 500 && strides > 500,
              "from seed %llu on: %zu correct calls, %zu of them with rows among those of another tensor, %zu that "
              "overlap, %zu whose outputs overlap themselves, %zu that only seem to overlap",
              (unsigned long long)seed, correct, in_gaps, overlapping, strides, inexact);
    return tap_done();
}
