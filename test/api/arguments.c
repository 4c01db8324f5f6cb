/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Each kind of bad input gets its own status, and leaves outputs, workspace, errno and rounding mode as they were. Some
 * input looks bad but is allowed: no tokens, adjacent buffers, inputs that overlap inputs, tensors whose rows take
 * turns, parameters that the operation does not have.
 */
#include "call.h"
#include "tap.h"

#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 6, CHANNELS = 10, ERRNO_BEFORE = 4711 };

/* ---- A good call, and what breaks it ----------------------------------------------------------------------------- */

static const struct listed_kernel *kernel;
static dynnorm_descriptor good;     /* has all buffers, and in a backward pass a workspace */
static struct memory arena;         /* where the buffers lie, far from one another */
static unsigned char *arena_before; /* a copy of what it held */
enum { SLOT = 2048 };               /* bytes of the arena for each buffer, which lies in the middle */

static void make_good_call(void) {
    good = describe(kernel, TOKENS, CHANNELS);
    unsigned char *slot = arena.start;
    memset(arena.start, UNTOUCHED, arena.bytes);
    for (int i = 0; i < EVERY_BUFFER; i++, slot += SLOT)
        if (uses(kernel->operation, kernel->direction, &buffers[i]) && buffers[i].owner != OF_ITS_PARAMETERS)
            set_buffer_data(&good, &buffers[i], slot + SLOT / 2);
    if (kernel->direction == BACKWARD_PASS) {
        dynnorm_workspace_size(&good, &good.workspace_size);
        good.workspace = slot + SLOT / 2;
    }
    fill_inputs(&good, kernel->direction, 1);
}

/* Runs a call and watches errno, the rounding mode and the arena. Returns the call's status, or -1 if the call changed
 * what it must not. */
static int run_watched(dynnorm_status (*function)(const dynnorm_descriptor *), const dynnorm_descriptor *call) {
    memcpy(arena_before, arena.start, arena.bytes);
    int rounding = fegetround();
    errno = ERRNO_BEFORE;
    dynnorm_status status = function(call);
    if (errno != ERRNO_BEFORE || fegetround() != rounding)
        return -1;
    if (status != DYNNORM_OK && memcmp(arena_before, arena.start, arena.bytes))
        return -1;
    return (int)status;
}

static dynnorm_status whole(const dynnorm_descriptor *call) {
    return run_call(kernel->direction, call);
}

static dynnorm_status all_rows(const dynnorm_descriptor *call) {
    size_t tokens = call && call->size >= sizeof *call ? call->tokens : 0;
    return kernel->direction == FORWARD_PASS ? dynnorm_forward_rows(call, 0, tokens)
                                             : dynnorm_backward_rows(call, 0, tokens);
}

/* Whether the words for a call agree with its status. */
static int words_agree(const dynnorm_descriptor *call, dynnorm_status status) {
    char words[200];
    size_t length = kernel->direction == FORWARD_PASS ? dynnorm_explain_forward(call, words, sizeof words)
                                                      : dynnorm_explain_backward(call, words, sizeof words);
    return length && length < sizeof words && !strcmp(words, "the call is correct") == (status == DYNNORM_OK);
}

/* Both the whole call and a range of all rows must give the status, and the words for it must agree. */
static int expect(const dynnorm_descriptor *call, dynnorm_status expected, const char *what) {
    int got = run_watched(whole, call), got_rows = run_watched(all_rows, call);
    return tap_check(got == (int)expected && got_rows == (int)expected && words_agree(call, expected),
                     "%s, %s: expected status %d, got %d, by rows %d", kernel->name, what, (int)expected, got,
                     got_rows);
}

/* dynnorm_backward_finish must give the status too. */
static void expect_backward(const dynnorm_descriptor *call, dynnorm_status expected, const char *what) {
    expect(call, expected, what);
    if (kernel->direction == BACKWARD_PASS) {
        int got = run_watched(dynnorm_backward_finish, call);
        tap_check(got == (int)expected, "%s, %s: expected status %d from dynnorm_backward_finish, got %d", kernel->name,
                  what, (int)expected, got);
    }
}

/* ---- Descriptor, enumerations, shape ----------------------------------------------------------------------------- */

static void check_descriptor(void) {
    expect_backward(NULL, DYNNORM_ERROR_NULL_DESCRIPTOR, "no descriptor");
    static const size_t sizes[] = {
        0, 1, sizeof(size_t), sizeof(dynnorm_descriptor) - 1, sizeof(dynnorm_descriptor) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dynnorm_descriptor call = good;
        call.size = sizes[i];
        expect_backward(&call, DYNNORM_ERROR_DESCRIPTOR, "a descriptor of another size");
        call.channels = 0;
        expect_backward(&call, DYNNORM_ERROR_DESCRIPTOR, "a descriptor of another size, and no channels");
    }
    /* The first one that does not exist is among them. */
    static const int operations[] = {-1, OPERATIONS, 1000}, modes[] = {-1, MODES, 1000};
    static const int types[] = {-1, DYNNORM_I8 + 1, 1000};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        dynnorm_descriptor call = good;
        call.operation = (dynnorm_operation)operations[i];
        expect_backward(&call, DYNNORM_ERROR_OPERATION, "an unknown operation");
        call = good;
        call.mode = (dynnorm_mode)modes[i];
        expect_backward(&call, DYNNORM_ERROR_MODE, "an unknown mode");
        for (int b = 0; b < EVERY_BUFFER; b++)
            if (buffers[b].type_field) {
                call = good;
                set_buffer_type(&call, &buffers[b], (dynnorm_type)types[i]);
                char what[80];
                snprintf(what, sizeof what, "%s of an unknown type", buffers[b].name);
                expect_backward(&call, DYNNORM_ERROR_TYPE, what);
            }
    }
    /* Outputs and a bias that the operation does not have. */
    float elsewhere[CHANNELS + TOKENS] = {0};
    for (int i = 0; i < EVERY_BUFFER; i++) {
        int other_has = buffers[i].written >> kernel->direction & 1 || !strcmp(buffers[i].name, "bias");
        if (other_has && !has_buffer(kernel->operation, &buffers[i])) {
            dynnorm_descriptor call = good;
            set_buffer_data(&call, &buffers[i], elsewhere);
            char what[80];
            snprintf(what, sizeof what, "%s given", buffers[i].name);
            expect_backward(&call, DYNNORM_ERROR_UNUSED_BUFFER, what);
        }
    }
}

/* Every type of every buffer, but integers for y only. */
static void check_types(void) {
    for (int b = 0; b < EVERY_BUFFER; b++)
        for (int type = DYNNORM_F32; buffers[b].type_field && type <= DYNNORM_I8; type++) {
            dynnorm_descriptor call = good;
            set_buffer_type(&call, &buffers[b], (dynnorm_type)type);
            call.y_scale = type == DYNNORM_I8 && b == BUFFER_Y ? 0.5f : 0;
            char what[80];
            snprintf(what, sizeof what, "%s of %s", buffers[b].name, element_name((dynnorm_type)type));
            expect_backward(&call, type == DYNNORM_I8 && b != BUFFER_Y ? DYNNORM_ERROR_TYPE : DYNNORM_OK, what);
        }
}

static void check_shape(void) {
    dynnorm_descriptor call = good;
    call.channels = 0;
    expect_backward(&call, DYNNORM_ERROR_ZERO_CHANNELS, "no channels");

    /* This is reported before all other errors. */
    dynnorm_descriptor broken = DYNNORM_DESCRIPTOR_INIT;
    broken.operation = (dynnorm_operation)77;
    broken.mode = (dynnorm_mode)77;
    broken.x.type = (dynnorm_type)77;
    broken.tokens = SIZE_MAX;
    broken.eps = broken.alpha = broken.beta = broken.scale = NAN;
    broken.x.row_stride = SIZE_MAX;
    expect_backward(&broken, DYNNORM_ERROR_ZERO_CHANNELS, "no channels and all else wrong");

    static const struct {
        size_t tokens, channels, stride;
    } too_large[] = {
        {SIZE_MAX, 1, 0},
        {1, SIZE_MAX, 0},
        {SIZE_MAX / 4, 8, 0},
        {8, SIZE_MAX / 4, 0},
        {SIZE_MAX, SIZE_MAX, 0},
        {(size_t)1 << (4 * sizeof(size_t)), (size_t)1 << (4 * sizeof(size_t)), 0},
        {SIZE_MAX / 2 + 1, 2, 0},
        {SIZE_MAX / 4 + 1, 1, 0},
        {TOKENS, CHANNELS, SIZE_MAX},
        {TOKENS, CHANNELS, SIZE_MAX / TOKENS},
        {SIZE_MAX / 8, 1, 4},
        {3, 1, SIZE_MAX / 2},
    };
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        call = good;
        call.tokens = too_large[i].tokens;
        call.channels = too_large[i].channels;
        char what[120];
        snprintf(what, sizeof what, "%zu tokens, %zu channels, stride %zu", call.tokens, call.channels,
                 too_large[i].stride);
        if (!too_large[i].stride)
            expect_backward(&call, DYNNORM_ERROR_SIZE_OVERFLOW, what);
        for (int b = 0; b < EVERY_BUFFER && too_large[i].stride; b++)
            if (uses(kernel->operation, kernel->direction, &buffers[b]) && buffers[b].stride_field) {
                dynnorm_descriptor strided = call;
                set_buffer_stride(&strided, &buffers[b], too_large[i].stride);
                expect_backward(&strided, DYNNORM_ERROR_SIZE_OVERFLOW, what);
            }
    }

    /* Rows of an input may overlap, as in a window that moves on; rows of an output may not. */
    for (int b = 0; b < EVERY_BUFFER; b++)
        if (uses(kernel->operation, kernel->direction, &buffers[b]) && buffers[b].stride_field)
            for (size_t stride = 1; stride <= CHANNELS; stride += stride == 1 ? CHANNELS - 2 : 1) {
                call = good;
                set_buffer_stride(&call, &buffers[b], stride);
                int overlap = writes(kernel->operation, kernel->direction, &buffers[b]) && stride < CHANNELS;
                char what[80];
                snprintf(what, sizeof what, "%s with a stride of %zu for %d channels", buffers[b].name, stride,
                         CHANNELS);
                expect_backward(&call, overlap ? DYNNORM_ERROR_STRIDE : DYNNORM_OK, what);
                call.tokens = 1;
                expect_backward(&call, DYNNORM_OK, "a small stride for one row");
                set_buffer_stride(&call, &buffers[b], SIZE_MAX);
                expect_backward(&call, DYNNORM_OK, "a large stride for one row");
            }
}

static void check_axes(void) {
    static const size_t strides[] = {CHANNELS, 2 * CHANNELS, 6 * CHANNELS, 6 * CHANNELS};
    const struct {
        size_t tokens, axes, rows[3];
        dynnorm_status status;
    } cases[] = {
        {TOKENS, 1, {6, 0, 0}, DYNNORM_OK},
        {TOKENS, 2, {2, 3, 0}, DYNNORM_OK},
        {TOKENS, 3, {2, 3, 1}, DYNNORM_OK},
        {TOKENS, 3, {1, 1, 6}, DYNNORM_OK},
        {1, 3, {1, 1, 1}, DYNNORM_OK},
        {0, 3, {8, 0, 2}, DYNNORM_OK},
        {0, 1, {0, 7, 7}, DYNNORM_OK},
        {TOKENS, 4, {2, 3, 1}, DYNNORM_ERROR_AXES},
        {TOKENS, SIZE_MAX, {2, 3, 1}, DYNNORM_ERROR_AXES},
        {TOKENS, 1, {2, 3, 1}, DYNNORM_ERROR_AXES},
        {TOKENS, 2, {3, 3, 0}, DYNNORM_ERROR_AXES},
        {TOKENS, 2, {4, 1, 0}, DYNNORM_ERROR_AXES},
        {TOKENS, 3, {2, 3, 0}, DYNNORM_ERROR_AXES},
        {TOKENS, 2, {TOKENS + 1, 1, 0}, DYNNORM_ERROR_AXES},
        {0, 3, {8, 1, 2}, DYNNORM_ERROR_AXES},
        /* Products that are tokens modulo the size of a size_t. */
        {TOKENS, 2, {SIZE_MAX / 2 + 4, 2, 0}, DYNNORM_ERROR_AXES},
        {0, 2, {SIZE_MAX / 2 + 1, 2, 0}, DYNNORM_ERROR_AXES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int strided = 0; strided < 2; strided++) {
            dynnorm_descriptor call = good;
            call.tokens = cases[i].tokens;
            call.axes = cases[i].axes;
            memcpy(call.axis_rows, cases[i].rows, sizeof call.axis_rows);
            call.x_axis_strides = strided ? strides : NULL;
            char what[120];
            snprintf(what, sizeof what, "%zu tokens on %zu axes of %zu, %zu and %zu rows%s", call.tokens, call.axes,
                     call.axis_rows[0], call.axis_rows[1], call.axis_rows[2], strided ? ", with strides" : "");
            expect_backward(&call, cases[i].status, what);
        }
    for (int b = 0; b < EVERY_BUFFER; b++)
        if (buffers[b].axes_field) {
            dynnorm_descriptor call = good;
            set_axis_strides(&call, &buffers[b], strides);
            expect_backward(&call, DYNNORM_ERROR_AXES, "strides without axes");
        }
    /* A tensor may be too large on any axis, and on all of them together. */
    static const size_t too_large[][3] = {{SIZE_MAX, 1, 1},
                                          {SIZE_MAX / 2, 1, 1},
                                          {1, SIZE_MAX, 1},
                                          {CHANNELS, PTRDIFF_MAX / 64, 1},
                                          {PTRDIFF_MAX / 64, PTRDIFF_MAX / 128, CHANNELS}};
    for (int b = 0; b < EVERY_BUFFER; b++)
        if (uses(kernel->operation, kernel->direction, &buffers[b]) && buffers[b].axes_field)
            for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
                dynnorm_descriptor call = good;
                call.axes = 3;
                call.axis_rows[0] = 2, call.axis_rows[1] = 3, call.axis_rows[2] = 1;
                set_axis_strides(&call, &buffers[b], too_large[i]);
                expect_backward(&call, DYNNORM_ERROR_SIZE_OVERFLOW, "strides beyond the address space");
            }
    /* Rows of an output that overlap on one axis, or between axes. */
    static const struct {
        size_t rows[3], strides[3];
        int overlap;
    } layouts[] = {
        {{2, 3, 1}, {CHANNELS, 2 * CHANNELS, 0}, 0},
        {{2, 3, 1}, {3 * CHANNELS, CHANNELS, 0}, 0},
        {{2, 3, 1}, {CHANNELS, 2 * CHANNELS - 1, 0}, 1},
        {{2, 3, 1}, {CHANNELS, CHANNELS, 0}, 1},
        {{2, 3, 1}, {CHANNELS, 0, 0}, 1},
        {{2, 3, 1}, {0, CHANNELS, 0}, 1},
        {{2, 1, 3}, {CHANNELS - 1, 0, 2 * CHANNELS}, 1},
        {{2, 1, 3}, {CHANNELS, 0, 2 * CHANNELS}, 0},
        /* Rows of one axis that lie between those of the other: at 0, 3, 6 and 5, 8, 11; at 0, 2, 4 and 4, 6, 8. */
        {{3, 2, 1}, {3 * CHANNELS, 5 * CHANNELS, 0}, 0},
        {{3, 2, 1}, {2 * CHANNELS, 4 * CHANNELS, 0}, 1},
        {{3, 2, 1}, {2 * CHANNELS, 5 * CHANNELS, 0}, 0},
        {{3, 2, 1}, {2 * CHANNELS, 3 * CHANNELS + 1, 0}, 1},
    };
    const struct buffer *output = &buffers[kernel->direction == FORWARD_PASS ? BUFFER_Y : BUFFER_DX];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        dynnorm_descriptor call = good;
        call.axes = 3;
        memcpy(call.axis_rows, layouts[i].rows, sizeof call.axis_rows);
        set_axis_strides(&call, output, layouts[i].strides);
        char what[80];
        snprintf(what, sizeof what, "layout %zu of an output on axes", i);
        expect_backward(&call, layouts[i].overlap ? DYNNORM_ERROR_STRIDE : DYNNORM_OK, what);
    }
}

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void check_number(size_t field, float value, dynnorm_status expected, const char *name) {
    dynnorm_descriptor call = good;
    memcpy((char *)&call + field, &value, sizeof value);
    char what[80];
    snprintf(what, sizeof what, "%s %g", name, (double)value);
    expect_backward(&call, expected, what);
}

/* What a NaN for the operation's own number, eps, alpha or beta, must give. */
static dynnorm_status status_of_bad_number(void) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    if (facts->has_eps)
        return DYNNORM_ERROR_EPS;
    return facts->parameter == offsetof(dynnorm_descriptor, alpha) ? DYNNORM_ERROR_ALPHA : DYNNORM_ERROR_BETA;
}

static void check_numbers(void) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    const size_t alpha = offsetof(dynnorm_descriptor, alpha), beta = offsetof(dynnorm_descriptor, beta);
    static const float not_finite[] = {INFINITY, -INFINITY, NAN, -NAN};
    static const float negative[] = {-1, -FLT_MIN, -0x1p-149f, -FLT_MAX};
    static const float fine[] = {0, -0.0f, 0x1p-149f, 1, FLT_MAX};
    const struct {
        const char *name;
        size_t field;
        int has; /* whether the operation looks at it */
        int may_be_negative;
        dynnorm_status status;
    } numbers[] = {
        {"eps", offsetof(dynnorm_descriptor, eps), facts->has_eps, 0, DYNNORM_ERROR_EPS},
        {"alpha", alpha, facts->parameter == alpha, 1, DYNNORM_ERROR_ALPHA},
        {"beta", beta, facts->parameter == beta, 0, DYNNORM_ERROR_BETA},
        {"scale", offsetof(dynnorm_descriptor, scale), facts->has_scale, 1, DYNNORM_ERROR_SCALE},
        {"weight_offset", offsetof(dynnorm_descriptor, weight_offset), 1, 1, DYNNORM_ERROR_WEIGHT_OFFSET},
    };
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        int has = numbers[n].has;
        for (size_t i = 0; i < sizeof not_finite / sizeof *not_finite; i++)
            check_number(numbers[n].field, not_finite[i], has ? numbers[n].status : DYNNORM_OK, numbers[n].name);
        for (size_t i = 0; i < sizeof negative / sizeof *negative; i++)
            check_number(numbers[n].field, negative[i],
                         has && !numbers[n].may_be_negative ? numbers[n].status : DYNNORM_OK, numbers[n].name);
        for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
            check_number(numbers[n].field, fine[i], DYNNORM_OK, numbers[n].name);
    }
    dynnorm_descriptor call = good;
    call.weight.data = NULL;
    call.weight_offset = NAN;
    expect_backward(&call, DYNNORM_OK, "a weight offset of NaN, ignored without a weight");
}

/* ---- Null pointers ----------------------------------------------------------------------------------------------- */

static void check_null_pointers(void) {
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (uses(kernel->operation, kernel->direction, &buffers[i])) {
            dynnorm_descriptor call = good;
            set_buffer_data(&call, &buffers[i], NULL);
            char what[80];
            snprintf(what, sizeof what, "%s NULL", buffers[i].name);
            int required = buffers[i].required >> kernel->direction & 1 || i == BUFFER_RESIDUAL || i == BUFFER_DX;
            /* the last two because sum is given, and dsum */
            expect_backward(&call,
                            required                                       ? DYNNORM_ERROR_NULL_POINTER
                            : outputs_given(&call, kernel->direction) == 0 ? DYNNORM_ERROR_NO_OUTPUT
                                                                           : DYNNORM_OK,
                            what);
        }
    dynnorm_descriptor call = good;
    call.residual.data = call.sum.data = NULL;
    expect_backward(&call, kernel->direction == FORWARD_PASS ? DYNNORM_ERROR_NULL_POINTER : DYNNORM_OK,
                    "a residual_bias without a residual");
    call.residual_bias.data = NULL;
    call.normalize_unrounded_sum = 1;
    expect_backward(&call, DYNNORM_OK, "no residual, and a sum that would not be rounded");
    call = good;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(kernel->operation, kernel->direction, &buffers[i]) && i != BUFFER_SUM)
            set_buffer_data(&call, &buffers[i], NULL);
    expect_backward(&call, kernel->direction == FORWARD_PASS ? DYNNORM_OK : DYNNORM_ERROR_NO_OUTPUT,
                    "no output but a sum");
    call = good;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(kernel->operation, kernel->direction, &buffers[i]))
            set_buffer_data(&call, &buffers[i], NULL);
    expect_backward(&call, DYNNORM_ERROR_NO_OUTPUT, "no output at all");
    call.x.data = call.dy.data = NULL;
    expect_backward(&call, DYNNORM_ERROR_NO_OUTPUT, "no output at all, and no input");
}

/* One descriptor serves both passes: each leaves alone what only the other one uses, even a pointer to nowhere, but
 * that x of backward is the sum. */
static void check_other_direction(void) {
    static const size_t everywhere[] = {SIZE_MAX, SIZE_MAX};
    dynnorm_descriptor call = good;
    for (int b = 0; b < EVERY_BUFFER; b++)
        if (!uses(kernel->operation, kernel->direction, &buffers[b]) && has_buffer(kernel->operation, &buffers[b]))
            set_buffer_data(&call, &buffers[b], &errno);
    call.axes = 2;
    call.axis_rows[0] = 1, call.axis_rows[1] = call.tokens;
    if (kernel->direction == BACKWARD_PASS) {
        call.sum = call.x;
        call.y.type = DYNNORM_I8;
        call.y_scales = (float *)call.dx.data;
        call.y_scale = NAN;
        call.y.row_stride = 1;
        call.y_axis_strides = call.residual_axis_strides = everywhere;
        call.normalize_unrounded_sum = call.round_before_weight = 1;
    } else {
        call.accumulate_dx = call.accumulate_dweight = call.accumulate_dbias = 1;
        call.accumulate_dalpha = call.accumulate_dbeta = 1;
        call.dx.row_stride = 1;
        call.dx_axis_strides = call.dsum_axis_strides = everywhere;
        call.workspace_size = 0;
    }
    expect_backward(&call, DYNNORM_OK, "the buffers of the other pass");
    /* a flag that adds to a gradient that is not asked for */
    call = good;
    call.accumulate_dx = call.accumulate_dweight = call.accumulate_dbias = 1;
    call.accumulate_dalpha = call.accumulate_dbeta = 1;
    call.dweight.data = call.dbias.data = call.dalpha = call.dbeta = NULL;
    expect_backward(&call, DYNNORM_OK, "gradients to add to that are not asked for");
}

/* A residual in a backward call: x has to be the sum. */
static void check_residual_of_backward(void) {
    static const struct {
        const char *what;
        int residual, bias, sum;
    } given[] = {{"residual", 1, 0, 0}, {"residual_bias", 0, 1, 0}, {"sum", 0, 0, 1}, {"residual and sum", 1, 0, 1}};
    if (kernel->direction != BACKWARD_PASS)
        return;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        dynnorm_descriptor call = good;
        call.residual.data = given[i].residual ? arena.start : NULL;
        call.residual_bias.data = given[i].bias ? arena.start : NULL;
        call.sum.data = given[i].sum ? arena.start : NULL;
        expect_backward(&call, DYNNORM_ERROR_RESIDUAL, given[i].what);
        call.tokens = 0;
        expect_backward(&call, DYNNORM_OK, "a residual without tokens");
        call = good;
        call.sum = call.x;
        call.residual.data = given[i].residual ? &errno : NULL;
        call.residual_bias.data = given[i].bias ? &errno : NULL;
        expect_backward(&call, DYNNORM_OK, "a sum in the place of x");
        call.sum.type = DYNNORM_BF16;
        expect_backward(&call, DYNNORM_ERROR_RESIDUAL, "a sum of another type in the place of x");
        call.sum.type = call.x.type;
        call.sum.row_stride = call.channels + 1;
        expect_backward(&call, DYNNORM_ERROR_RESIDUAL, "a sum with another stride in the place of x");
        call.sum.row_stride = SIZE_MAX;
        expect_backward(&call, DYNNORM_ERROR_RESIDUAL, "a sum beyond the address space");
        call.sum = call.x;
        call.sum.data = (unsigned char *)call.x.data + sizeof(float);
        expect_backward(&call, DYNNORM_ERROR_RESIDUAL, "a sum one element behind x");
    }
    dynnorm_descriptor call = good;
    call.dx.data = NULL;
    expect_backward(&call, DYNNORM_ERROR_NULL_POINTER, "dsum without dx");
    call.tokens = 0;
    expect_backward(&call, DYNNORM_OK, "dsum without dx and tokens");
}

/* ---- Overlap ----------------------------------------------------------------------------------------------------- */

/* The buffers of the call by index. The workspace has the index after the last. */
enum { WORKSPACE = EVERY_BUFFER };

static unsigned char *data_of(const dynnorm_descriptor *call, int index) {
    return index == WORKSPACE ? call->workspace : buffer_data(call, &buffers[index]);
}

static void set_data_of(dynnorm_descriptor *call, int index, unsigned char *data) {
    if (index == WORKSPACE)
        call->workspace = data;
    else
        set_buffer_data(call, &buffers[index], data);
}

static size_t bytes_of(const dynnorm_descriptor *call, int index) {
    return index == WORKSPACE ? call->workspace_size : buffer_bytes(call, &buffers[index]);
}

static const char *name_of(int index) {
    return index == WORKSPACE ? "workspace" : buffers[index].name;
}

static int is_used(int index) {
    return index == WORKSPACE ? kernel->direction == BACKWARD_PASS
                              : uses(kernel->operation, kernel->direction, &buffers[index]) &&
                                    buffers[index].owner != OF_ITS_PARAMETERS;
}

static int is_written(int index) {
    return index == WORKSPACE || writes(kernel->operation, kernel->direction, &buffers[index]);
}

static int may_be_same(int a, int b) {
    static const char *const pairs[][2] = {{"y", "x"},   {"y", "residual"}, {"sum", "x"},  {"sum", "residual"},
                                           {"dx", "dy"}, {"dx", "x"},       {"dx", "dsum"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((!strcmp(name_of(a), pairs[i][0]) && !strcmp(name_of(b), pairs[i][1])) ||
            (!strcmp(name_of(b), pairs[i][0]) && !strcmp(name_of(a), pairs[i][1])))
            return 1;
    return 0;
}

/* Runs the call with buffer a moved to a distance in bytes from the beginning of b. */
static void expect_moved(int a, int b, ptrdiff_t distance, dynnorm_status expected) {
    dynnorm_descriptor call = good;
    make_good_call();
    set_data_of(&call, a, data_of(&good, b) + distance);
    char what[80];
    snprintf(what, sizeof what, "%s (%zu bytes) %td bytes after the beginning of %s (%zu bytes)", name_of(a),
             bytes_of(&good, a), distance, name_of(b), bytes_of(&good, b));
    expect(&call, expected, what);
}

static void check_overlap(void) {
    for (int a = 0; a <= WORKSPACE; a++)
        for (int b = 0; b <= WORKSPACE; b++) {
            if (a == b || !is_used(a) || !is_used(b))
                continue;
            dynnorm_status overlap = is_written(a) || is_written(b) ? DYNNORM_ERROR_OVERLAP : DYNNORM_OK;
            ptrdiff_t a_bytes = (ptrdiff_t)bytes_of(&good, a), b_bytes = (ptrdiff_t)bytes_of(&good, b);
            expect_moved(a, b, 0, may_be_same(a, b) ? DYNNORM_OK : overlap);
            expect_moved(a, b, b_bytes - 1, overlap);
            expect_moved(a, b, 1 - a_bytes, overlap);
            expect_moved(a, b, b_bytes, DYNNORM_OK);
            expect_moved(a, b, -a_bytes, DYNNORM_OK);
            if (b_bytes > 8) {
                expect_moved(a, b, 4, overlap);
                expect_moved(a, b, b_bytes - 4, overlap);
            }
        }
    make_good_call();
}

static void check_strided_overlap(void) {
    int output = (int)(buffer_named(kernel->direction == FORWARD_PASS ? "y" : "dx") - buffers);
    int input = (int)(buffer_named("x") - buffers);
    static const struct {
        const char *what;
        size_t output_stride, input_stride;
        ptrdiff_t distance; /* floats, from the input to the output */
        int allowed;
    } cases[] = {
        {"rows in the gaps between rows", 2 * CHANNELS, 2 * CHANNELS, CHANNELS, 1},
        {"rows in the gaps between rows, first", 2 * CHANNELS, 2 * CHANNELS, -CHANNELS, 1},
        {"rows in wider gaps", 2 * CHANNELS + 7, 2 * CHANNELS + 7, CHANNELS + 3, 1},
        {"rows one float too early", 2 * CHANNELS, 2 * CHANNELS, CHANNELS - 1, 0},
        {"rows one float too late", 2 * CHANNELS, 2 * CHANNELS, CHANNELS + 1, 0},
        {"rows in gaps a float too narrow", 2 * CHANNELS - 1, 2 * CHANNELS - 1, CHANNELS, 0},
        {"rows two rows further", 2 * CHANNELS, 2 * CHANNELS, 5 * CHANNELS, 1},
        {"in place, of equal strides", 2 * CHANNELS, 2 * CHANNELS, 0, 1},
        {"in place, of other strides", 2 * CHANNELS, 2 * CHANNELS + 1, 0, 0},
        {"one row further in place", 2 * CHANNELS, 2 * CHANNELS, 2 * CHANNELS, 0},
        {"in the last gap, in one piece", CHANNELS, 20 * CHANNELS, 81 * CHANNELS, 1},
        {"into the last row, in one piece", CHANNELS, 20 * CHANNELS, 94 * CHANNELS + 1, 0},
        {"of other strides, one among the rows of the other", 3 * CHANNELS, 2 * CHANNELS, CHANNELS, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int swapped = 0; swapped < 2; swapped++) {
            dynnorm_descriptor call = good;
            make_good_call();
            int moved = swapped ? input : output, still = swapped ? output : input;
            set_buffer_stride(&call, &buffers[moved], cases[i].output_stride);
            set_buffer_stride(&call, &buffers[still], cases[i].input_stride);
            set_data_of(&call, moved, data_of(&good, still) + cases[i].distance * (ptrdiff_t)sizeof(float));
            char what[100];
            snprintf(what, sizeof what, "%s and %s: %s", buffers[moved].name, buffers[still].name, cases[i].what);
            expect(&call, cases[i].allowed ? DYNNORM_OK : DYNNORM_ERROR_OVERLAP, what);
        }
    make_good_call();
    dynnorm_descriptor single = good;
    single.tokens = 1;
    set_buffer_stride(&single, &buffers[output], 2 * CHANNELS);
    set_data_of(&single, output, data_of(&good, input));
    expect(&single, DYNNORM_OK, "one row in place, which no stride concerns");
    if (kernel->direction == BACKWARD_PASS) {
        dynnorm_descriptor call = good;
        call.accumulate_dx = 1;
        call.dx.data = call.dy.data;
        expect(&call, DYNNORM_ERROR_OVERLAP, "dx, accumulated, in place of dy");
        call.dx.data = call.x.data;
        expect(&call, DYNNORM_ERROR_OVERLAP, "dx, accumulated, in place of x");
        call.dx.data = call.dsum.data;
        expect(&call, DYNNORM_ERROR_OVERLAP, "dx, accumulated, in place of dsum");
    }
}

/* An output may be in the place of an input of another type, if its elements have the same size. */
static void check_overlap_of_types(void) {
    static const int pairs[][2] = {{BUFFER_Y, BUFFER_X},    {BUFFER_Y, BUFFER_RESIDUAL},   {BUFFER_SUM, BUFFER_X},
                                   {BUFFER_DX, BUFFER_DY},  {BUFFER_SUM, BUFFER_RESIDUAL}, {BUFFER_DX, BUFFER_X},
                                   {BUFFER_DX, BUFFER_DSUM}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int out = DYNNORM_F32; out <= DYNNORM_I8; out++)
            for (int in = DYNNORM_F32; in < DYNNORM_I8; in++) {
                const struct buffer *output = &buffers[pairs[i][0]], *input = &buffers[pairs[i][1]];
                if (!is_written(pairs[i][0]) || (out == DYNNORM_I8 && pairs[i][0] != BUFFER_Y))
                    continue;
                dynnorm_descriptor call = good;
                make_good_call();
                set_buffer_type(&call, output, (dynnorm_type)out);
                set_buffer_type(&call, input, (dynnorm_type)in);
                set_buffer_data(&call, output, buffer_data(&good, input));
                call.y_scale = out == DYNNORM_I8 ? 1 : 0;
                const int equal = dynnorm_element_bytes((dynnorm_type)out) == dynnorm_element_bytes((dynnorm_type)in);
                char what[80];
                snprintf(what, sizeof what, "%s of %s in the place of %s of %s", output->name,
                         element_name((dynnorm_type)out), input->name, element_name((dynnorm_type)in));
                expect(&call, equal ? DYNNORM_OK : DYNNORM_ERROR_OVERLAP, what);
                /* beside one another, counted in their own bytes */
                set_buffer_data(&call, output, buffer_data(&good, input) + buffer_bytes(&call, input));
                expect(&call, DYNNORM_OK, "right behind the input");
                set_buffer_data(&call, output, buffer_data(&good, input) + buffer_bytes(&call, input) - 1);
                expect(&call, DYNNORM_ERROR_OVERLAP, "a byte before the end of the input");
                set_buffer_data(&call, output, buffer_data(&good, input) - buffer_bytes(&call, output));
                expect(&call, DYNNORM_OK, "right before the input");
                set_buffer_data(&call, output, buffer_data(&good, input) - buffer_bytes(&call, output) + 1);
                expect(&call, DYNNORM_ERROR_OVERLAP, "a byte behind the beginning of the input");
            }
    make_good_call();
}

/* ---- Integers of 8 bits -------------------------------------------------------------------------------------------
 */

static void expect_scaled(dynnorm_type type, float y_scale, float *y_scales, dynnorm_status expected,
                          const char *what) {
    dynnorm_descriptor call = good;
    call.y.type = type;
    call.y_scale = y_scale;
    call.y_scales = y_scales;
    /* a backward pass takes the descriptor of its forward pass */
    expect_backward(&call, kernel->direction == FORWARD_PASS ? expected : DYNNORM_OK, what);
}

static void check_output_scale(void) {
    static float scales[TOKENS];
    static const float bad[] = {-1, -0x1p-149f, -INFINITY, INFINITY, NAN, -NAN, 0x1p-149f, 0x1.fffffep-121f};
    static const float fine[] = {0x1p-120f, 1, FLT_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char what[80];
        snprintf(what, sizeof what, "y_scale %g", (double)bad[i]);
        for (int type = DYNNORM_F32; type <= DYNNORM_I8; type++) {
            expect_scaled((dynnorm_type)type, bad[i], NULL, DYNNORM_ERROR_OUTPUT_SCALE, what);
            expect_scaled((dynnorm_type)type, bad[i], scales, DYNNORM_ERROR_OUTPUT_SCALE, what);
        }
    }
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        expect_scaled(DYNNORM_I8, fine[i], NULL, DYNNORM_OK, "a y_scale");
    expect_scaled(DYNNORM_I8, 0, scales, DYNNORM_OK, "y_scales");
    expect_scaled(DYNNORM_I8, -0.0f, scales, DYNNORM_OK, "y_scales, and a y_scale of -0");
    expect_scaled(DYNNORM_I8, 0, NULL, DYNNORM_ERROR_OUTPUT_SCALE, "integers without a scale");
    expect_scaled(DYNNORM_I8, 1, scales, DYNNORM_ERROR_OUTPUT_SCALE, "y_scale and y_scales");
    for (int type = DYNNORM_F32; type < DYNNORM_I8; type++) {
        expect_scaled((dynnorm_type)type, 1, NULL, DYNNORM_ERROR_OUTPUT_SCALE, "y_scale without integers");
        expect_scaled((dynnorm_type)type, 0, scales, DYNNORM_ERROR_OUTPUT_SCALE, "y_scales without integers");
    }
    if (kernel->direction == BACKWARD_PASS)
        return;
    /* y_scales is an output like the others. */
    dynnorm_descriptor call = good;
    call.y.type = DYNNORM_I8;
    for (int b = 0; b < EVERY_BUFFER; b++)
        if (is_used(b)) {
            float *place;
            unsigned char *data = data_of(&good, b);
            memcpy(&place, &data, sizeof place);
            call.y_scales = place;
            char what[80];
            snprintf(what, sizeof what, "y_scales in the place of %s", buffers[b].name);
            expect(&call, DYNNORM_ERROR_OVERLAP, what);
        }
    call = good;
    call.y.type = DYNNORM_I8;
    call.y_scales = scales;
    call.y.data = NULL;
    expect(&call, DYNNORM_ERROR_NULL_POINTER, "scales without integers");
    call.y_scales = NULL;
    expect(&call, DYNNORM_OK, "no y, of integers without a scale");
    call.y_scales = scales;
    call.tokens = 0;
    call.x.data = call.y.data = call.residual.data = call.sum.data = NULL;
    expect(&call, DYNNORM_OK, "no tokens, and scales for them");
    call.y_scales = NULL;
    expect(&call, DYNNORM_OK, "no tokens, and no pointers");
    call.y_scale = NAN;
    expect(&call, DYNNORM_ERROR_OUTPUT_SCALE, "no tokens, and a y_scale of NaN");
}

/* Every entry of a descriptor for the largest output that is wrong. */
static void check_largest_output(void) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    dynnorm_descriptor call = good;
    float bound = 77;
    dynnorm_status status = dynnorm_largest_output(&call, &bound);
    if (facts->has_eps) {
        tap_check(status == DYNNORM_ERROR_OPERATION && bound == 77, "%s, the largest output: status %d", kernel->name,
                  (int)status);
        return;
    }
    tap_check(status == DYNNORM_OK && bound > 0 && bound < 77, "%s, the largest output %g: status %d", kernel->name,
              (double)bound, (int)status);
    /* It takes nothing else from the descriptor. */
    call.x.data = call.y.data = call.dy.data = call.dx.data = call.dweight.data = NULL;
    call.tokens = 0;
    float bare = 77;
    status = dynnorm_largest_output(&call, &bare);
    tap_check(status == DYNNORM_OK && (bare == bound || kernel->direction == BACKWARD_PASS),
              "%s, the largest output without tensors: status %d", kernel->name, (int)status);
    const struct {
        const char *what;
        dynnorm_status expected;
    } wrong[] = {
        {"no descriptor", DYNNORM_ERROR_NULL_DESCRIPTOR}, {"another size", DYNNORM_ERROR_DESCRIPTOR},
        {"no channels", DYNNORM_ERROR_ZERO_CHANNELS},     {"an unknown operation", DYNNORM_ERROR_OPERATION},
        {"an unknown type", DYNNORM_ERROR_TYPE},          {"scale infinite", DYNNORM_ERROR_SCALE},
        {"offset infinite", DYNNORM_ERROR_WEIGHT_OFFSET}, {"no place for it", DYNNORM_ERROR_NULL_POINTER},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        call = good;
        bound = 77;
        call.size -= i == 1;
        call.channels = i == 2 ? 0 : call.channels;
        call.operation = i == 3 ? (dynnorm_operation)OPERATIONS : call.operation;
        call.weight.type = i == 4 ? DYNNORM_I8 : call.weight.type;
        call.scale = i == 5 ? INFINITY : call.scale;
        call.weight_offset = i == 6 ? INFINITY : call.weight_offset;
        status = dynnorm_largest_output(i == 0 ? NULL : &call, i == 7 ? NULL : &bound);
        tap_check(status == wrong[i].expected && bound == 77, "%s, the largest output, %s: expected status %d, got %d",
                  kernel->name, wrong[i].what, (int)wrong[i].expected, (int)status);
    }
}

/* ---- Workspace and ranges of rows -------------------------------------------------------------------------------- */

static void check_workspace(void) {
    if (kernel->direction == FORWARD_PASS)
        return;
    dynnorm_descriptor call = good;
    call.workspace_size--;
    expect_backward(&call, DYNNORM_ERROR_WORKSPACE_TOO_SMALL, "a workspace one byte too small");
    call.workspace_size = 0;
    expect_backward(&call, DYNNORM_ERROR_WORKSPACE_TOO_SMALL, "a workspace of no bytes");
    call.workspace_size = SIZE_MAX;
    call.workspace = call.dweight.data;
    expect_backward(&call, DYNNORM_ERROR_OVERLAP, "a workspace that is dweight, and as large as can be said");
    call = good;
    call.workspace = NULL;
    int got = run_watched(all_rows, &call), got_finish = run_watched(dynnorm_backward_finish, &call);
    tap_check(got == DYNNORM_ERROR_WORKSPACE_MISSING && got_finish == DYNNORM_ERROR_WORKSPACE_MISSING,
              "%s, ranges without a workspace: status %d, finishing %d", kernel->name, got, got_finish);

    size_t bytes = SIZE_MAX;
    call = good;
    call.dweight.data = call.dbias.data = call.dalpha = call.dbeta = NULL;
    tap_check(dynnorm_workspace_size(&call, &bytes) == DYNNORM_OK && bytes == 0,
              "%s, no workspace needed without sums over tokens: %zu bytes", kernel->name, bytes);
    call.workspace = NULL;
    call.workspace_size = 0;
    expect_backward(&call, DYNNORM_OK, "no workspace and no sums over tokens");

    dynnorm_status status = dynnorm_workspace_size(&good, NULL);
    tap_check(status == DYNNORM_ERROR_NULL_POINTER, "dynnorm_workspace_size into NULL: status %d", (int)status);
    status = dynnorm_block_rows(&good, NULL);
    tap_check(status == DYNNORM_ERROR_NULL_POINTER, "dynnorm_block_rows into NULL: status %d", (int)status);
    call = good;
    call.channels = 0;
    bytes = 77;
    tap_check(dynnorm_workspace_size(&call, &bytes) == DYNNORM_ERROR_ZERO_CHANNELS && bytes == 77,
              "dynnorm_workspace_size without channels");
    tap_check(dynnorm_block_rows(&call, &bytes) == DYNNORM_ERROR_ZERO_CHANNELS && bytes == 77,
              "dynnorm_block_rows without channels");
    tap_check(dynnorm_block_rows(NULL, &bytes) == DYNNORM_ERROR_NULL_DESCRIPTOR && bytes == 77,
              "dynnorm_block_rows without a descriptor");
}

/* The range of the next call of run_range. */
static size_t range_first, range_rows;

static dynnorm_status run_range(const dynnorm_descriptor *call) {
    return kernel->direction == FORWARD_PASS ? dynnorm_forward_rows(call, range_first, range_rows)
                                             : dynnorm_backward_rows(call, range_first, range_rows);
}

static void expect_range(const dynnorm_descriptor *call, size_t first, size_t rows, dynnorm_status expected) {
    range_first = first;
    range_rows = rows;
    int got = run_watched(run_range, call);
    tap_check(got == (int)expected, "%s, rows %zu + %zu of %zu: expected status %d, got %d", kernel->name, first, rows,
              call->tokens, (int)expected, got);
}

static void check_row_ranges(void) {
    expect_range(&good, 0, TOKENS + 1, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, TOKENS, 1, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, TOKENS + 1, 1, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, 0, SIZE_MAX, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, 1, SIZE_MAX, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, SIZE_MAX, 1, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, SIZE_MAX, SIZE_MAX, DYNNORM_ERROR_ROW_RANGE);
    expect_range(&good, 0, 0, DYNNORM_OK);
    expect_range(&good, TOKENS, 0, DYNNORM_OK);
    if (kernel->direction == FORWARD_PASS)
        return;

    dynnorm_descriptor call = describe(kernel, 1, CHANNELS);
    size_t block = 1;
    while (call.tokens < ((size_t)1 << 24) && dynnorm_block_rows(&call, &block) == DYNNORM_OK &&
           call.tokens < 2 * block + 2)
        call.tokens *= 2;
    struct memory memory = allocate_buffers(&call, kernel->direction, 0);
    fill_inputs(&call, kernel->direction, 1);
    dynnorm_workspace_size(&call, &call.workspace_size);
    struct memory workspace = allocate_memory(call.workspace_size);
    call.workspace = workspace.start;
    size_t last_block = (call.tokens - 1) / block * block;
    expect_range(&call, 0, block, DYNNORM_OK);
    expect_range(&call, block, block, DYNNORM_OK);
    expect_range(&call, 0, 2 * block, DYNNORM_OK);
    expect_range(&call, last_block, call.tokens - last_block, DYNNORM_OK);
    expect_range(&call, block, 0, DYNNORM_OK);
    expect_range(&call, 1, block, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, 1, call.tokens - 1, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, block + 1, block - 1, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, 0, 1, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, 0, block - 1, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, 0, block + 1, DYNNORM_ERROR_ROW_BLOCK);
    expect_range(&call, last_block, call.tokens - last_block + 1, DYNNORM_ERROR_ROW_RANGE);
    /* Where no sum is asked for, nothing depends on blocks. */
    call.dweight.data = call.dbias.data = call.dalpha = call.dbeta = NULL;
    expect_range(&call, 1, block, DYNNORM_OK);
    expect_range(&call, block + 1, block - 1, DYNNORM_OK);
    expect_range(&call, 0, 1, DYNNORM_OK);
    expect_range(&call, 1, call.tokens, DYNNORM_ERROR_ROW_RANGE);
    call.workspace = NULL;
    expect_range(&call, 1, call.tokens - 1, DYNNORM_OK);
    free(workspace.start);
    free(memory.start);
}

/* ---- Alpha or beta by pointer -------------------------------------------------------------------------------------
 */

static void expect_words(const dynnorm_descriptor *call, const char *words) {
    char text[200];
    (kernel->direction == FORWARD_PASS ? dynnorm_explain_forward : dynnorm_explain_backward)(call, text, sizeof text);
    tap_check(!strcmp(text, words), "%s: \"%s\"", kernel->name, text);
}

static void check_parameters_by_pointer(void) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    float elements[CHANNELS];
    dynnorm_descriptor call = good;
    for (int i = 0; i < CHANNELS; i++)
        elements[i] = 0.5f;
    call.parameter_per_channel = 1;
    if (facts->parameters == NO_FIELD) {
        expect(&call, DYNNORM_ERROR_UNUSED_BUFFER, "a parameter for each channel");
        return;
    }
    const int is_alpha = facts->parameters == offsetof(dynnorm_descriptor, alphas);
    const struct buffer *used = &buffers[is_alpha ? BUFFER_ALPHAS : BUFFER_BETAS];
    const struct buffer *other = &buffers[is_alpha ? BUFFER_BETAS : BUFFER_ALPHAS];
    set_buffer_data(&call, other, elements);
    expect(&call, DYNNORM_ERROR_UNUSED_BUFFER, "the parameter of another operation");
    call = good;
    call.parameter_per_channel = 1;
    expect(&call, DYNNORM_ERROR_NULL_POINTER, "a parameter for each channel, without pointer");
    expect_words(&call, is_alpha ? "alphas is NULL, and parameter_per_channel needs it"
                                 : "betas is NULL, and parameter_per_channel needs it");
    call = good;
    set_buffer_data(&call, used, elements);
    expect(&call, DYNNORM_OK, "one element");
    call.alpha = call.beta = NAN;
    expect(&call, DYNNORM_OK, "one element, and fields that are not read");
    static const float bad[] = {NAN, INFINITY, -INFINITY, -1};
    for (int i = 0; i < (is_alpha ? 3 : 4); i++) {
        elements[0] = bad[i];
        expect(&call, is_alpha ? DYNNORM_ERROR_ALPHA : DYNNORM_ERROR_BETA, "an element that is none");
        expect_words(&call, is_alpha ? "the element of alphas is infinite or NaN"
                                     : "the element of betas is negative, infinite or NaN");
    }
    size_t bytes;
    tap_check(dynnorm_workspace_size(&call, &bytes) == DYNNORM_OK, "%s: a query does not read the element",
              kernel->name);
    call.tokens = 0;
    expect(&call, DYNNORM_OK, "no tokens, and an element that is not read");
    elements[0] = 0.5f;
    /* No output may overlap them: of one element, and of as many as there are channels. */
    for (int per_channel = 0; per_channel < 2; per_channel++)
        for (int b = 0; b < EVERY_BUFFER; b++) {
            make_good_call();
            call = good;
            call.parameter_per_channel = per_channel;
            dynnorm_workspace_size(&call, &call.workspace_size);
            if (!is_used(b) || !is_written(b))
                continue;
            char what[80];
            const ptrdiff_t last = (ptrdiff_t)(buffer_columns(&call, used) - 1) * (ptrdiff_t)sizeof(float);
            snprintf(what, sizeof what, "%s at the end of %s", used->name, buffers[b].name);
            set_buffer_data(&call, used, data_of(&call, b) - last);
            expect(&call, DYNNORM_ERROR_OVERLAP, what);
            snprintf(what, sizeof what, "%s before %s", used->name, buffers[b].name);
            set_buffer_data(&call, used, data_of(&call, b) - last - sizeof(float));
            set_float_at(data_of(&call, b) - last - sizeof(float), 0, 0.5f);
            expect(&call, DYNNORM_OK, what);
        }
    make_good_call();
    call = good;
    call.tokens = 0;
    call.parameter_per_channel = 1;
    call.workspace = NULL;
    expect(&call, DYNNORM_OK, "no tokens, and no parameters of the channels");
}

/* ---- No tokens --------------------------------------------------------------------------------------------------- */

static void expect_zeroed_sums(const dynnorm_descriptor *call, dynnorm_status (*function)(const dynnorm_descriptor *),
                               float before, float expected, const char *what) {
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(kernel->operation, kernel->direction, &buffers[i]) && buffers[i].accumulate_field &&
            !buffers[i].stride_field)
            for (size_t at = 0; at < buffer_columns(call, &buffers[i]); at++)
                set_float_at(buffer_data(call, &buffers[i]), at, before);
    int status = run_watched(function, call), right = 1;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(kernel->operation, kernel->direction, &buffers[i]) && buffers[i].accumulate_field &&
            !buffers[i].stride_field)
            for (size_t at = 0; at < buffer_columns(call, &buffers[i]); at++)
                right = right && float_at(buffer_data(call, &buffers[i]), at) == expected;
    tap_check(status == DYNNORM_OK && right, "%s, no tokens, %s: status %d, sums %s", kernel->name, what, status,
              right ? "right" : "wrong");
}

static dynnorm_status rows_and_finish(const dynnorm_descriptor *call) {
    dynnorm_status status = all_rows(call);
    return status != DYNNORM_OK || kernel->direction == FORWARD_PASS ? status : dynnorm_backward_finish(call);
}

static void check_no_tokens(void) {
    dynnorm_descriptor call = good;
    call.tokens = 0;
    expect_backward(&call, DYNNORM_OK, "no tokens");

    dynnorm_descriptor bare = describe(kernel, 0, CHANNELS);
    expect_backward(&bare, DYNNORM_OK, "no tokens and no pointers");

    /* Without tokens, errors are still errors. */
    bare.mode = (dynnorm_mode)9;
    expect_backward(&bare, DYNNORM_ERROR_MODE, "no tokens and an unknown mode");
    bare = describe(kernel, 0, CHANNELS);
    bare.eps = bare.beta = bare.alpha = NAN;
    expect_backward(&bare, status_of_bad_number(), "no tokens and bad numbers");
    if (kernel->direction == FORWARD_PASS)
        return;

    /* The sums are 0, even if all data pointers are NULL and there is no workspace, since none is needed. */
    call.workspace = NULL;
    call.workspace_size = 0;
    call.x.data = call.dy.data = call.dx.data = call.weight.data = call.mean = call.rstd = NULL;
    expect_zeroed_sums(&call, whole, 3, 0, "whole");
    expect_zeroed_sums(&call, rows_and_finish, 3, 0, "by rows");
    call.workspace = good.workspace;
    tap_check(dynnorm_workspace_size(&call, &call.workspace_size) == DYNNORM_OK, "workspace for no tokens: %zu bytes",
              call.workspace_size);
    expect_zeroed_sums(&call, whole, 3, 0, "whole, with a workspace");
    expect_zeroed_sums(&call, rows_and_finish, 3, 0, "by rows, with a workspace");
    call.accumulate_dweight = call.accumulate_dbias = call.accumulate_dalpha = call.accumulate_dbeta = 1;
    expect_zeroed_sums(&call, whole, 3, 3, "accumulated");
    expect_zeroed_sums(&call, rows_and_finish, 3, 3, "accumulated by rows");
}

/* ---- The plain calls --------------------------------------------------------------------------------------------- */

/* The memory of a plain call. */
struct plain {
    float x[TOKENS * CHANNELS], dy[TOKENS * CHANNELS], y[TOKENS * CHANNELS], weight[CHANNELS], bias[CHANNELS];
    float mean[TOKENS], rstd[TOKENS], dweight[CHANNELS], dbias[CHANNELS], dparameter[1];
};

struct plain_arguments {
    float *out, *x, *dy; /* y or dx */
    float *dweight, *dbias, *dparameter;
    float parameter; /* eps, alpha or beta */
    float scale;
    size_t tokens, channels;
};

static dynnorm_status call_plain_forward(struct plain *v, const struct plain_arguments *a) {
    switch (kernel->operation) {
    case DYNNORM_LAYERNORM:
        return dynnorm_layernorm_forward_f32(a->out, v->mean, v->rstd, a->x, v->weight, v->bias, a->parameter,
                                             a->tokens, a->channels);
    case DYNNORM_RMSNORM:
        return dynnorm_rmsnorm_forward_f32(a->out, v->rstd, a->x, v->weight, a->parameter, a->tokens, a->channels);
    case DYNNORM_DYT:
        return dynnorm_dyt_forward_f32(a->out, a->x, v->weight, v->bias, a->parameter, a->scale, a->tokens,
                                       a->channels);
    case DYNNORM_DYISRU:
        return dynnorm_dyisru_forward_f32(a->out, a->x, v->weight, v->bias, a->parameter, a->scale, a->tokens,
                                          a->channels);
    case DYNNORM_CENTERED_DYISRU:
        break;
    }
    return DYNNORM_ERROR_OPERATION;
}

static dynnorm_status call_plain_backward(struct plain *v, const struct plain_arguments *a) {
    switch (kernel->operation) {
    case DYNNORM_LAYERNORM:
        return dynnorm_layernorm_backward_f32(a->out, a->dweight, a->dbias, a->dy, a->x, v->weight, NULL, NULL,
                                              a->parameter, a->tokens, a->channels);
    case DYNNORM_RMSNORM:
        return dynnorm_rmsnorm_backward_f32(a->out, a->dweight, a->dy, a->x, v->weight, NULL, a->parameter, a->tokens,
                                            a->channels);
    case DYNNORM_DYT:
        return dynnorm_dyt_backward_f32(a->out, a->dweight, a->dbias, a->dparameter, a->dy, a->x, v->weight,
                                        a->parameter, a->scale, a->tokens, a->channels);
    case DYNNORM_DYISRU:
        return dynnorm_dyisru_backward_f32(a->out, a->dweight, a->dbias, a->dparameter, a->dy, a->x, v->weight,
                                           a->parameter, a->scale, a->tokens, a->channels);
    case DYNNORM_CENTERED_DYISRU:
        break;
    }
    return DYNNORM_ERROR_OPERATION;
}

static struct plain plain_before, plain;

static void expect_plain(const struct plain_arguments *arguments, dynnorm_status expected, const char *what) {
    memset(&plain, UNTOUCHED, sizeof plain);
    for (int i = 0; i < TOKENS * CHANNELS; i++)
        plain.x[i] = plain.dy[i] = (float)(i % 7 - 3);
    for (int i = 0; i < CHANNELS; i++)
        plain.weight[i] = plain.bias[i] = 1;
    plain_before = plain;
    errno = ERRNO_BEFORE;
    dynnorm_status got = kernel->direction == FORWARD_PASS ? call_plain_forward(&plain, arguments)
                                                           : call_plain_backward(&plain, arguments);
    int untouched = !memcmp(&plain, &plain_before, sizeof plain);
    tap_check(got == expected && errno == ERRNO_BEFORE && (expected == DYNNORM_OK || untouched),
              "%s by the plain call, %s: expected status %d, got %d", kernel->name, what, (int)expected, (int)got);
}

static void check_plain_calls(void) {
    const struct plain_arguments fine = {.out = plain.y,
                                         .x = plain.x,
                                         .dy = plain.dy,
                                         .dweight = plain.dweight,
                                         .dbias = plain.dbias,
                                         .dparameter = plain.dparameter,
                                         .parameter = 0.5f,
                                         .scale = 1,
                                         .tokens = TOKENS,
                                         .channels = CHANNELS};
    int norm = dynnorm_operations[kernel->operation].has_eps;
    dynnorm_status parameter_error = status_of_bad_number();
    struct plain_arguments call = fine;
    expect_plain(&call, DYNNORM_OK, "as it should be");
    call.out = plain.x;
    expect_plain(&call, DYNNORM_OK, "in place");
    call.out = plain.x + 1;
    expect_plain(&call, DYNNORM_ERROR_OVERLAP, "one float beside its place");
    call = fine;
    call.x = NULL;
    expect_plain(&call, DYNNORM_ERROR_NULL_POINTER, "x NULL");
    call = fine;
    call.parameter = NAN;
    call.scale = NAN;
    call.x = call.out = NULL;
    call.channels = 0;
    expect_plain(&call, DYNNORM_ERROR_ZERO_CHANNELS, "no channels and all else wrong");
    call = fine;
    call.out = call.dweight = call.dbias = call.dparameter = NULL;
    if (kernel->direction == BACKWARD_PASS || !norm)
        expect_plain(&call, DYNNORM_ERROR_NO_OUTPUT, "no output");
    call = fine;
    call.tokens = SIZE_MAX / 4;
    expect_plain(&call, DYNNORM_ERROR_SIZE_OVERFLOW, "too many tokens");
    call = fine;
    call.parameter = NAN;
    expect_plain(&call, parameter_error, "eps, alpha or beta NaN");
    call.parameter = INFINITY;
    expect_plain(&call, parameter_error, "eps, alpha or beta infinite");
    call.parameter = -1;
    expect_plain(&call, parameter_error == DYNNORM_ERROR_ALPHA ? DYNNORM_OK : parameter_error,
                 "eps, alpha or beta negative");
    if (!norm) {
        call = fine;
        call.scale = INFINITY;
        expect_plain(&call, DYNNORM_ERROR_SCALE, "scale infinite");
    }
    if (kernel->direction == BACKWARD_PASS) {
        call = fine;
        call.dy = NULL;
        expect_plain(&call, DYNNORM_ERROR_NULL_POINTER, "dy NULL");
        call = fine;
        call.out = plain.dy;
        expect_plain(&call, DYNNORM_OK, "dx in place of dy");
        call.out = plain.y;
        call.dweight = plain.weight;
        expect_plain(&call, DYNNORM_ERROR_OVERLAP, "dweight in place of weight");
    }
    call = (struct plain_arguments){.scale = 1, .channels = CHANNELS};
    expect_plain(&call, DYNNORM_OK, "no tokens and no pointers");
    if (kernel->direction == BACKWARD_PASS) {
        call.dweight = plain.dweight;
        call.dbias = plain.dbias;
        call.dparameter = plain.dparameter;
        expect_plain(&call, DYNNORM_OK, "no tokens");
        int zero = 1;
        for (int i = 0; i < CHANNELS; i++)
            zero = zero && plain.dweight[i] == 0 && (plain.dbias[i] == 0 || kernel->operation == DYNNORM_RMSNORM);
        tap_check(zero && (plain.dparameter[0] == 0 || norm), "%s by the plain call, no tokens: sums of 0",
                  kernel->name);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

#ifdef DYNNORM_TEST_WRAP_MALLOC

/* The linker's --wrap=malloc sends every call of malloc to __wrap_malloc, and gives malloc the name __real_malloc. */
void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);

static int memory_is_out;
static size_t allocations;

void *__wrap_malloc(size_t bytes) {
    allocations++;
    if (!memory_is_out)
        return __real_malloc(bytes);
    errno = ENOMEM;
    return NULL;
}

/* A workspace of so many bytes is not allocated: SMALL_WORKSPACE of src/api/backward.c. */
enum { WORKSPACE_ON_STACK = (2 * 1024 + 16 + 8) * sizeof(double) };

static void check_allocation_of(size_t channels, dynnorm_type type, int has_residual) {
    dynnorm_descriptor call = describe(kernel, TOKENS, channels);
    unsigned selected = 0;
    for (int b = 0; b < (has_residual ? EVERY_BUFFER : BUFFERS); b++) {
        selected |= (unsigned)is_used(b) << b;
        if (buffers[b].type_field)
            set_buffer_type(&call, &buffers[b], type);
    }
    struct memory memory = allocate_selected(&call, selected, 0);
    fill_inputs(&call, kernel->direction, 1);
    allow_gaps(&memory);
    unsigned char *before = malloc(memory.bytes);
    memcpy(before, memory.start, memory.bytes);
    memory_is_out = 1;
    errno = ERRNO_BEFORE;
    dynnorm_status got = whole(&call);
    memory_is_out = 0;
    int backward = kernel->direction == BACKWARD_PASS;
    size_t workspace_size = 0; /* of the one block that these tokens are */
    dynnorm_status asked = backward ? dynnorm_workspace_size(&call, &workspace_size) : DYNNORM_OK;
    /* long rows of other types, or with a residual, may need a buffer, and in a backward pass short ones too */
    int may_allocate = (type != DYNNORM_F32 || has_residual) && (backward || channels > 2000);
    dynnorm_status expected = got;
    if (!may_allocate || got != DYNNORM_ERROR_OUT_OF_MEMORY)
        expected = workspace_size > WORKSPACE_ON_STACK ? DYNNORM_ERROR_OUT_OF_MEMORY : DYNNORM_OK;
    const char *residual = has_residual ? ", with a residual" : "";
    tap_check(!asked && got == expected && errno == ERRNO_BEFORE &&
                  (got == DYNNORM_OK || !memcmp(before, memory.start, memory.bytes)),
              "%s of %zu channels of %s%s, out of memory: expected status %d, got %d, errno %d", kernel->name, channels,
              element_name(type), residual, (int)expected, (int)got, errno);
    if (backward) {
        call.workspace_size = workspace_size;
        call.workspace = malloc(workspace_size);
    }
    allocations = 0;
    got = whole(&call);
    size_t made = allocations;
    tap_check(got == DYNNORM_OK && (made == 0 || may_allocate),
              "%s of %zu channels of %s%s, with a workspace if it needs one: %zu allocations, status %d", kernel->name,
              channels, element_name(type), residual, made, (int)got);
    free(call.workspace);
    free(before);
    free(memory.start);
}

static void check_allocation(void) {
    static const size_t channels[] = {1024, 2000, 3000, 50000};
    for (size_t i = 0; i < sizeof channels / sizeof *channels - (thinned() ? 1 : 0); i++)
        for (int type = DYNNORM_F32; type < DYNNORM_I8; type++)
            for (int has_residual = 0; has_residual < 2; has_residual++)
                check_allocation_of(channels[i], (dynnorm_type)type, has_residual);
}

#else

static void check_allocation(void) {
    tap_skip(kernel->name, "this linker cannot redirect malloc");
}

#endif

/* ---- Without a kernel -------------------------------------------------------------------------------------------- */

static void check_status_strings(void) {
    for (int status = DYNNORM_OK; status <= DYNNORM_ERROR_RESIDUAL; status++) {
        const char *text = dynnorm_status_string((dynnorm_status)status);
        int distinct = text && *text;
        for (int other = DYNNORM_OK; other < status && distinct; other++)
            distinct = strcmp(text, dynnorm_status_string((dynnorm_status)other)) != 0;
        tap_check(distinct, "status %d has a sentence of its own: %s", status, text ? text : "NULL");
    }
    static const int unknown[] = {-1, DYNNORM_ERROR_RESIDUAL + 1, 1 << 20};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const char *text = dynnorm_status_string((dynnorm_status)unknown[i]);
        tap_check(text && *text, "status %d, unknown, has a sentence: %s", unknown[i], text ? text : "NULL");
    }
}

static void check_scales(void) {
    static const size_t channels[] = {0, 1, 2, 3, 4, 5, 17, 768, 1000, 4096, 65536, 65537, (size_t)1 << 31};
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        double c = (double)channels[i];
        float rmsnorm = dynnorm_scale_rmsnorm(channels[i]), layernorm = dynnorm_scale_layernorm(channels[i]);
        tap_check(rmsnorm == (float)sqrt(c) && layernorm == (float)sqrt(c > 0 ? c - 1 : 0),
                  "scales of %zu channels: %.9g, %.9g", channels[i], (double)rmsnorm, (double)layernorm);
    }
}

/* A mode that the table lacks has its own status, whatever the operation. */
static void check_mode_availability(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *table = &dynnorm_isa_list[i];
        if (!use_table(table))
            continue;
        int has_sleef = dynnorm_forward_kernel(table->kernels, DYNNORM_DYT, DYNNORM_SLEEF) != NULL;
        for (size_t k = 0; k < listed_kernel_count; k++) {
            if (listed_kernels[k].mode != DYNNORM_PORTABLE)
                continue;
            kernel = &listed_kernels[k];
            make_good_call();
            dynnorm_descriptor call = good;
            call.mode = DYNNORM_SLEEF;
            int got = run_watched(whole, &call);
            tap_check(got == (has_sleef ? DYNNORM_OK : DYNNORM_ERROR_MODE_UNAVAILABLE),
                      "%s %s in the sleef mode, which the table %s: status %d", table->identifier, kernel->name,
                      has_sleef ? "has" : "lacks", got);
            call.mode = DYNNORM_NATIVE;
            got = run_watched(whole, &call);
            tap_check(got == DYNNORM_OK, "%s %s in the native mode: status %d", table->identifier, kernel->name, got);
        }
    }
    use_table(NULL);
}

int main(void) {
    arena = allocate_memory((EVERY_BUFFER + 1) * SLOT);
    arena_before = malloc(arena.bytes);
    if (!arena_before)
        return 2;
    check_status_strings();
    check_scales();
    for (size_t k = 0; k < listed_kernel_count; k++) {
        kernel = &listed_kernels[k];
        if (kernel->mode != DYNNORM_PORTABLE)
            continue;
        make_good_call();
        expect_backward(&good, DYNNORM_OK, "as it should be");
        check_descriptor();
        check_types();
        check_shape();
        check_axes();
        check_numbers();
        check_output_scale();
        check_largest_output();
        check_parameters_by_pointer();
        check_null_pointers();
        check_other_direction();
        check_residual_of_backward();
        check_overlap();
        check_strided_overlap();
        check_overlap_of_types();
        check_workspace();
        check_row_ranges();
        check_no_tokens();
        check_allocation();
        if (kernel->operation != DYNNORM_CENTERED_DYISRU) /* which has no plain calls */
            check_plain_calls();
    }
    check_mode_availability();
    free(arena_before);
    free(arena.start);
    return tap_done();
}
