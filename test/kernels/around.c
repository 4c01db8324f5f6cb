/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What stands around a norm: the residual and its sum, the rounding before the weight, 8-bit outputs, the gradient that
 * arrives at the sum. For every kernel and table, random calls give the bits of a scalar statement: the float call of
 * the same kernel on contiguous rows, and the additions, products and roundings of dynnorm.h before and after it.
 * Nothing but the elements of the outputs changes.
 */
#include "call.h"
#include "elements.h"
#include "random.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- The arguments of a call --------------------------------------------------------------------------------------
 */

enum argument_index {
    ARG_X,
    ARG_RESIDUAL,
    ARG_SUM,
    ARG_Y,
    ARG_DY,
    ARG_DSUM,
    ARG_DX,
    TENSORS,
    ARG_WEIGHT = TENSORS,
    ARG_BIAS,
    ARG_RESIDUAL_BIAS,
    ARG_DWEIGHT,
    ARG_DBIAS,
    VECTORS_END,
    ARG_MEAN = VECTORS_END,
    ARG_RSTD,
    ARG_Y_SCALES,
    ARG_PARAMETER_GRADIENT,
    ARGUMENTS
};

static const char *const argument_names[ARGUMENTS] = {
    "x",    "residual",      "sum",     "y",     "dy",   "dsum", "dx",       "weight",
    "bias", "residual_bias", "dweight", "dbias", "mean", "rstd", "y_scales", "dalpha or dbeta"};

/* Bytes before and after an argument that nothing may change. */
enum { GUARD = 96 };

/* Elements of some type at any address, in rows that lie apart in any way. */
struct argument {
    int is_given;
    dynnorm_type type;
    size_t rows;
    size_t columns;
    size_t axes;             /* 0: rows lie strides[0] apart */
    const size_t *axis_rows; /* how many there are on each axis */
    size_t strides[3];       /* in elements */
    struct argument *in_place_of;
    unsigned char *memory; /* NULL if it is in place of another argument */
    unsigned char *before; /* what the memory held before the call */
    size_t bytes;
    unsigned char *data;
    uint32_t *expected; /* of an output, row by row; NULL otherwise */
};

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        exit(2);
    return memory;
}

/* The place of a row's first element, in elements. */
static size_t row_offset(const struct argument *argument, size_t row) {
    size_t offset = 0;
    if (!argument->axes)
        return row * argument->strides[0];
    for (size_t axis = 0; axis < argument->axes; axis++) {
        offset += row % argument->axis_rows[axis] * argument->strides[axis];
        row /= argument->axis_rows[axis];
    }
    return offset;
}

static uint32_t bits_at(const struct argument *argument, size_t row, size_t column) {
    return load_element(argument->data, argument->type, row_offset(argument, row) + column);
}

static double value_at(const struct argument *argument, size_t row, size_t column) {
    return element_at(argument->data, argument->type, row_offset(argument, row) + column);
}

static void set_value_at(struct argument *argument, size_t row, size_t column, double value) {
    set_element_at(argument->data, argument->type, row_offset(argument, row) + column, value);
}

/* Its values as floats, row by row; NULL if it is not given. */
static float *gather(const struct argument *argument) {
    if (!argument->is_given)
        return NULL;
    float *floats = allocate(argument->rows * argument->columns * sizeof *floats);
    for (size_t row = 0; row < argument->rows; row++)
        for (size_t column = 0; column < argument->columns; column++)
            floats[row * argument->columns + column] = (float)value_at(argument, row, column);
    return floats;
}

static void place_argument(struct argument *argument, struct random *random) {
    if (argument->in_place_of) {
        const dynnorm_type type = argument->type;
        struct argument *place = argument->in_place_of;
        *argument = *place;
        argument->in_place_of = place;
        argument->memory = argument->before = NULL;
        argument->type = type;
        return;
    }
    size_t elements = 0;
    for (size_t row = 0; row < argument->rows; row++) {
        const size_t end = row_offset(argument, row) + argument->columns;
        elements = end > elements ? end : elements;
    }
    argument->bytes = elements * dynnorm_element_bytes(argument->type) + 2 * GUARD;
    argument->memory = allocate(argument->bytes);
    argument->before = allocate(argument->bytes);
    argument->data = argument->memory + GUARD - random_below(random, 64);
    memset(argument->memory, UNTOUCHED, argument->bytes);
}

static void free_argument(struct argument *argument) {
    free(argument->memory);
    free(argument->before);
    free(argument->expected);
}

/* ---- Calls ---------------------------------------------------------------------------------------------------------
 */

struct around {
    const struct listed_kernel *kernel;
    struct argument arguments[ARGUMENTS];
    dynnorm_descriptor call; /* with all but its buffers */
    int by_ranges;
    int streams;
};

static const struct operation_facts *facts_of(const struct around *around) {
    return &dynnorm_operations[around->kernel->operation];
}

static int is_backward(const struct around *around) {
    return around->kernel->direction == BACKWARD_PASS;
}

static int is_given(const struct around *around, enum argument_index index) {
    return around->arguments[index].is_given;
}

/* The call with its buffers. */
static dynnorm_descriptor complete(const struct around *around) {
    dynnorm_descriptor call = around->call;
    dynnorm_tensor *const tensors[TENSORS] = {&call.x,  &call.residual, &call.sum, &call.y,
                                              &call.dy, &call.dsum,     &call.dx};
    const size_t **const axis_strides[TENSORS] = {
        &call.x_axis_strides,  &call.residual_axis_strides, &call.sum_axis_strides, &call.y_axis_strides,
        &call.dy_axis_strides, &call.dsum_axis_strides,     &call.dx_axis_strides};
    dynnorm_vector *const vectors[VECTORS_END - TENSORS] = {&call.weight, &call.bias, &call.residual_bias,
                                                            &call.dweight, &call.dbias};
    for (int i = 0; i < TENSORS; i++) {
        const struct argument *argument = &around->arguments[i];
        if (!argument->is_given)
            continue;
        tensors[i]->data = argument->data;
        tensors[i]->type = argument->type;
        if (argument->axes)
            *axis_strides[i] = argument->strides;
        else
            tensors[i]->row_stride = argument->strides[0];
    }
    for (int i = TENSORS; i < VECTORS_END; i++)
        if (is_given(around, (enum argument_index)i)) {
            vectors[i - TENSORS]->data = around->arguments[i].data;
            vectors[i - TENSORS]->type = around->arguments[i].type;
        }
    float **const floats[ARGUMENTS - VECTORS_END] = {
        &call.mean, &call.rstd, &call.y_scales,
        facts_of(around)->parameter_gradient == offsetof(dynnorm_descriptor, dalpha) ? &call.dalpha : &call.dbeta};
    for (int i = VECTORS_END; i < ARGUMENTS; i++)
        if (is_given(around, (enum argument_index)i))
            memcpy(floats[i - VECTORS_END], &around->arguments[i].data, sizeof(float *));
    return call;
}

static dynnorm_status run_by_ranges(const struct around *around, dynnorm_descriptor *call, struct random *random) {
    const int backward = is_backward(around);
    size_t step = 1;
    if (backward && (call->dweight.data || call->dbias.data || call->dalpha || call->dbeta)) {
        dynnorm_block_rows(call, &step);
        dynnorm_workspace_size(call, &call->workspace_size);
        call->workspace = allocate(call->workspace_size);
    }
    dynnorm_status status = DYNNORM_OK;
    for (size_t first = 0; first < call->tokens && !status;) {
        size_t rows = step * (1 + random_below(random, 20));
        rows = rows < call->tokens - first ? rows : call->tokens - first;
        status = backward ? dynnorm_backward_rows(call, first, rows) : dynnorm_forward_rows(call, first, rows);
        first += rows;
    }
    if (backward && !status)
        status = dynnorm_backward_finish(call);
    free(call->workspace);
    return status;
}

static void run_last_task_first(void *pool, dynnorm_task *task, void *context, size_t tasks) {
    (void)pool;
    while (tasks--)
        task(context, tasks);
}

static dynnorm_status run_on_executor(const struct around *around, dynnorm_descriptor *call, struct random *random) {
    call->executor = (dynnorm_executor){run_last_task_first, NULL, 2 + random_below(random, 6), 1};
    return run_call(around->kernel->direction, call);
}

/* Its rows in some steps. x and y are only told when rows are run. */
static dynnorm_status run_prepared(const dynnorm_descriptor *call, struct random *random) {
    const size_t step = 1 + random_below(random, 4), tokens = call->tokens;
    dynnorm_descriptor without = *call;
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
    without.x.data = without.y.data = NULL;
    dynnorm_status status = dynnorm_prepare_forward(&without, &prepared);
    for (size_t first = 0; first < step && first < tokens && !status; first++)
        status = dynnorm_forward_prepared(&prepared, call->y.data, call->x.data, first,
                                          (tokens - first + step - 1) / step, step);
    return status;
}

/* Its rows in pieces, made in some way. */
static dynnorm_status run_in_pieces(const struct around *around, dynnorm_descriptor *call, struct random *random) {
    const size_t way = random_below(random, 3);
    if (way == 0)
        return run_by_ranges(around, call, random);
    return way == 1 && !is_backward(around) ? run_prepared(call, random) : run_on_executor(around, call, random);
}

static dynnorm_status run(const struct around *around, struct random *random) {
    dynnorm_descriptor call = complete(around);
    pretend_level2_cache(around->streams ? 0 : SIZE_MAX / 2);
    const dynnorm_status status =
        around->by_ranges ? run_in_pieces(around, &call, random) : run_call(around->kernel->direction, &call);
    pretend_level2_cache(SIZE_MAX);
    return status;
}

/* ---- The scalar statement -----------------------------------------------------------------------------------------
 */

/* The inputs of the float call, and what it gave. */
struct floats {
    float *of[ARGUMENTS];
};

static size_t elements_of(const struct around *around) {
    return around->call.tokens * around->call.channels;
}

static void expect_elements(struct argument *argument, const float *values) {
    const size_t count = argument->rows * argument->columns;
    argument->expected = allocate(count * sizeof *argument->expected);
    for (size_t i = 0; i < count; i++)
        argument->expected[i] = narrowed(argument->type, (double)values[i]);
}

/* The float call of the same kernel: contiguous rows, nothing around it. */
static dynnorm_status run_floats(const struct around *around, const struct floats *floats) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    const dynnorm_descriptor *like = &around->call;
    call.operation = like->operation, call.mode = like->mode;
    call.tokens = like->tokens, call.channels = like->channels;
    call.eps = like->eps, call.alpha = like->alpha, call.beta = like->beta, call.scale = like->scale;
    call.weight_offset = like->weight_offset;
    call.accumulate_dweight = like->accumulate_dweight, call.accumulate_dbias = like->accumulate_dbias;
    call.accumulate_dalpha = like->accumulate_dalpha, call.accumulate_dbeta = like->accumulate_dbeta;
    call.x.data = floats->of[ARG_X], call.y.data = floats->of[ARG_Y];
    call.dy.data = floats->of[ARG_DY], call.dx.data = floats->of[ARG_DX];
    call.weight.data = floats->of[ARG_WEIGHT], call.bias.data = floats->of[ARG_BIAS];
    call.dweight.data = floats->of[ARG_DWEIGHT], call.dbias.data = floats->of[ARG_DBIAS];
    call.mean = floats->of[ARG_MEAN], call.rstd = floats->of[ARG_RSTD];
    if (facts_of(around)->parameter_gradient == offsetof(dynnorm_descriptor, dalpha))
        call.dalpha = floats->of[ARG_PARAMETER_GRADIENT];
    else
        call.dbeta = floats->of[ARG_PARAMETER_GRADIENT];
    return run_call(around->kernel->direction, &call);
}

/* r in place of x: what is normalized. */
static void add_residual(struct around *around, struct floats *floats) {
    const size_t channels = around->call.channels;
    struct argument *sum = &around->arguments[ARG_SUM];
    const dynnorm_type type = sum->is_given ? sum->type : around->arguments[ARG_X].type;
    float *x = floats->of[ARG_X];
    for (size_t i = 0; i < elements_of(around); i++) {
        x[i] = x[i] + floats->of[ARG_RESIDUAL][i];
        if (floats->of[ARG_RESIDUAL_BIAS])
            x[i] = x[i] + floats->of[ARG_RESIDUAL_BIAS][i % channels];
    }
    if (sum->is_given)
        expect_elements(sum, x);
    for (size_t i = 0; i < elements_of(around) && !around->call.normalize_unrounded_sum; i++)
        x[i] = (float)rounded(type, (double)x[i]);
}

/* y = round(round(round(n) w) + b) of an n in place of y. */
static void weigh_rounded(const struct around *around, const struct floats *floats) {
    const dynnorm_type y_type = around->arguments[ARG_Y].type, type = y_type == DYNNORM_I8 ? DYNNORM_F32 : y_type;
    float *y = floats->of[ARG_Y];
    for (size_t i = 0; i < elements_of(around); i++) {
        const size_t channel = i % around->call.channels;
        y[i] = (float)rounded(type, (double)y[i]);
        if (floats->of[ARG_WEIGHT]) {
            const float weight = floats->of[ARG_WEIGHT][channel] + around->call.weight_offset;
            const float product = y[i] * weight;
            y[i] = (float)rounded(type, (double)product);
        }
        if (floats->of[ARG_BIAS]) {
            const float sum = y[i] + floats->of[ARG_BIAS][channel];
            y[i] = (float)rounded(type, (double)sum);
        }
    }
}

/* Integers of one row, and its scale. */
static float quantize(const struct around *around, const float *v, uint32_t *integers) {
    float greatest = 0, factor = 1 / around->call.y_scale, scale = around->call.y_scale;
    if (scale == 0) {
        for (size_t i = 0; i < around->call.channels && !isnan(greatest); i++)
            greatest = fabsf(v[i]) <= greatest ? greatest : fabsf(v[i]);
        scale = greatest < 0x1p-120f ? 0 : greatest / 127;
        factor = scale > 0 && scale <= FLT_MAX ? 127 / greatest : 0;
    }
    for (size_t i = 0; i < around->call.channels; i++) {
        const float product = v[i] * factor;
        integers[i] = factor > 0 ? narrowed(DYNNORM_I8, (double)product) : 0;
    }
    return scale;
}

static void expect_integers(struct around *around, const float *v) {
    struct argument *y = &around->arguments[ARG_Y], *scales = &around->arguments[ARG_Y_SCALES];
    float *expected_scales = allocate(y->rows * sizeof *expected_scales);
    y->expected = allocate(elements_of(around) * sizeof *y->expected);
    for (size_t row = 0; row < y->rows; row++)
        expected_scales[row] = quantize(around, v + row * y->columns, y->expected + row * y->columns);
    if (scales->is_given)
        expect_elements(scales, expected_scales);
    free(expected_scales);
}

static dynnorm_status expect_forward(struct around *around, struct floats *floats) {
    struct floats of_n = *floats;
    if (is_given(around, ARG_RESIDUAL))
        add_residual(around, floats);
    if (!is_given(around, ARG_Y) && !is_given(around, ARG_MEAN) && !is_given(around, ARG_RSTD))
        return DYNNORM_OK;
    if (around->call.round_before_weight)
        of_n.of[ARG_WEIGHT] = of_n.of[ARG_BIAS] = NULL;
    const dynnorm_status status = run_floats(around, &of_n);
    if (is_given(around, ARG_Y) && around->call.round_before_weight)
        weigh_rounded(around, floats);
    if (is_given(around, ARG_Y) && around->arguments[ARG_Y].type == DYNNORM_I8)
        expect_integers(around, floats->of[ARG_Y]);
    else if (is_given(around, ARG_Y))
        expect_elements(&around->arguments[ARG_Y], floats->of[ARG_Y]);
    for (int i = ARG_MEAN; i <= ARG_RSTD; i++)
        if (is_given(around, (enum argument_index)i))
            expect_elements(&around->arguments[i], floats->of[i]);
    return status;
}

static dynnorm_status expect_backward(struct around *around, struct floats *floats) {
    static const enum argument_index sums[] = {ARG_DWEIGHT, ARG_DBIAS, ARG_PARAMETER_GRADIENT};
    float *before = gather(&around->arguments[ARG_DX]), *dx = floats->of[ARG_DX];
    const dynnorm_status status = run_floats(around, floats);
    for (size_t i = 0; dx && i < elements_of(around); i++) {
        if (around->call.accumulate_dx)
            dx[i] = before[i] + dx[i];
        if (floats->of[ARG_DSUM])
            dx[i] = dx[i] + floats->of[ARG_DSUM][i];
    }
    if (dx)
        expect_elements(&around->arguments[ARG_DX], dx);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (is_given(around, sums[i]))
            expect_elements(&around->arguments[sums[i]], floats->of[sums[i]]);
    free(before);
    return status;
}

static dynnorm_status expect_outputs(struct around *around) {
    struct floats floats;
    for (int i = 0; i < ARGUMENTS; i++)
        floats.of[i] = gather(&around->arguments[i]);
    const dynnorm_status status =
        is_backward(around) ? expect_backward(around, &floats) : expect_forward(around, &floats);
    for (int i = 0; i < ARGUMENTS; i++)
        free(floats.of[i]);
    return status;
}

/* ---- What a call is about -----------------------------------------------------------------------------------------
 */

enum theme { RESIDUAL, ROUNDING, INTEGERS, SUM_GRADIENT, SUM_GRADIENT_IN_PLACE };

static const struct {
    const char *name;
    enum direction direction;
    size_t calls;
} themes[] = {
    [RESIDUAL] = {"a residual before it", FORWARD_PASS, 60},
    [ROUNDING] = {"rounding before the weight", FORWARD_PASS, 24},
    [INTEGERS] = {"to integers of 8 bits", FORWARD_PASS, 36},
    [SUM_GRADIENT] = {"a gradient of the sum added", BACKWARD_PASS, 36},
    [SUM_GRADIENT_IN_PLACE] = {"a gradient added to what is there", BACKWARD_PASS, 18},
};

static const struct {
    size_t channels;
    size_t axis_rows[3]; /* as many tokens as their product */
} shapes[] = {
    {1, {1, 1, 1}},   {5, {3, 1, 1}},    {64, {8, 1, 1}},   {64, {4, 3, 1}},   {64, {1, 1, 33}},  {100, {7, 10, 1}},
    {128, {8, 2, 1}}, {128, {41, 1, 1}}, {33, {16, 3, 1}},  {96, {3, 2, 2}},   {17, {5, 2, 3}},   {256, {9, 2, 1}},
    {777, {1, 3, 1}}, {1024, {8, 1, 1}}, {1024, {3, 1, 3}}, {4096, {2, 1, 1}}, {4100, {3, 1, 1}}, {9001, {1, 1, 1}},
};

static dynnorm_type random_type(struct random *random) {
    return (dynnorm_type)random_below(random, TYPES);
}

/* One type for all, or any for each. */
static void choose_types(struct around *around, struct random *random) {
    const dynnorm_type all = random_type(random);
    const int is_mixed = random_below(random, 2) == 0;
    for (int i = 0; i < VECTORS_END; i++)
        around->arguments[i].type = is_mixed ? random_type(random) : all;
    if (random_below(random, 3) == 0)
        for (int i = ARG_WEIGHT; i < VECTORS_END; i++)
            around->arguments[i].type = DYNNORM_F32;
}

static int one_in(struct random *random, size_t count) {
    return random_below(random, count) == 0;
}

static void choose_buffers(struct around *around, enum theme theme, struct random *random) {
    struct argument *arguments = around->arguments;
    const struct operation_facts *facts = facts_of(around);
    const int backward = is_backward(around);
    arguments[ARG_X].is_given = 1;
    arguments[ARG_WEIGHT].is_given = !one_in(random, 4);
    arguments[ARG_MEAN].is_given = facts->has_mean && random_below(random, 2);
    arguments[ARG_RSTD].is_given = facts->has_rstd && random_below(random, 2);
    if (!backward) {
        arguments[ARG_RESIDUAL].is_given = theme == RESIDUAL || random_below(random, 2);
        if (arguments[ARG_RESIDUAL].is_given) {
            arguments[ARG_SUM].is_given = !one_in(random, 4);
            arguments[ARG_RESIDUAL_BIAS].is_given = (int)random_below(random, 2);
        }
        arguments[ARG_Y].is_given = theme != RESIDUAL || !arguments[ARG_SUM].is_given || !one_in(random, 8);
        arguments[ARG_BIAS].is_given = facts->has_bias && random_below(random, 2);
    } else {
        arguments[ARG_DY].is_given = arguments[ARG_DSUM].is_given = arguments[ARG_DX].is_given = 1;
        arguments[ARG_DWEIGHT].is_given = (int)random_below(random, 2);
        arguments[ARG_DBIAS].is_given = facts->has_bias && random_below(random, 2);
        arguments[ARG_PARAMETER_GRADIENT].is_given = facts->parameter_gradient != NO_FIELD && random_below(random, 2);
    }
    if (theme == INTEGERS) {
        arguments[ARG_Y].type = DYNNORM_I8;
        arguments[ARG_Y_SCALES].is_given = (int)random_below(random, 2);
        if (!arguments[ARG_Y_SCALES].is_given)
            around->call.y_scale = one_in(random, 6)   ? 0x1p-120f
                                   : one_in(random, 2) ? (float)random_between(random, 0.01, 0.3)
                                                       : ldexpf(1, -2 - (int)random_below(random, 6));
    }
}

/* As programs that train call it: rows without axes, of one type, with all that forward has left, whose dx is added to
 * what is there. */
static void choose_in_place(struct around *around, struct random *random) {
    static const size_t channels[] = {64, 320, 512};
    struct argument *arguments = around->arguments;
    dynnorm_descriptor *call = &around->call;
    const dynnorm_type type = random_type(random);
    call->channels = channels[random_below(random, sizeof channels / sizeof *channels)];
    call->tokens = call->axis_rows[0] = 30 + random_below(random, 10);
    call->axis_rows[1] = call->axis_rows[2] = 1;
    call->axes = 0;
    call->weight_offset = 0;
    call->accumulate_dx = one_in(random, 2);
    for (int i = 0; i < TENSORS; i++)
        arguments[i].type = type;
    arguments[ARG_WEIGHT].is_given = 1;
    arguments[ARG_MEAN].is_given = facts_of(around)->has_mean;
    arguments[ARG_RSTD].is_given = facts_of(around)->has_rstd;
    arguments[ARG_DSUM].is_given = !call->accumulate_dx;
    if (!call->accumulate_dx)
        arguments[ARG_DX].in_place_of = &arguments[ARG_DSUM];
}

/* A single row of floats, so long that its gradients as floats do not fit on the stack. */
static void choose_long_row(struct around *around) {
    struct argument *arguments = around->arguments;
    dynnorm_descriptor *call = &around->call;
    call->channels = 9001;
    call->tokens = call->axis_rows[0] = call->axis_rows[1] = call->axis_rows[2] = 1;
    for (int i = 0; i < TENSORS; i++)
        arguments[i].type = DYNNORM_F32;
    arguments[ARG_DWEIGHT].is_given = 1;
    arguments[ARG_DBIAS].is_given = facts_of(around)->has_bias;
    arguments[ARG_DWEIGHT].type = arguments[ARG_DBIAS].type = DYNNORM_BF16;
}

/* Makes an input the same tensor as x, sometimes. */
static void share_x(struct around *around, enum argument_index input, struct random *random) {
    struct argument *shared = &around->arguments[input], *x = &around->arguments[ARG_X];
    if (shared->is_given && one_in(random, 8)) {
        shared->in_place_of = x;
        shared->type = x->type;
    }
}

/* Puts an output in the place of one of the inputs, or leaves it a place of its own. */
static void choose_place(struct around *around, enum argument_index output, const enum argument_index inputs[3],
                         struct random *random) {
    struct argument *arguments = around->arguments, *out = &arguments[output];
    struct argument *place = &arguments[inputs[random_below(random, 3)]];
    place = place->in_place_of ? place->in_place_of : place;
    if (out->is_given && place->is_given && place != out && arguments[ARG_SUM].in_place_of != place &&
        dynnorm_element_bytes(place->type) == dynnorm_element_bytes(out->type) && random_below(random, 3))
        out->in_place_of = place;
}

static void choose_layout(struct around *around, enum argument_index index, struct random *random) {
    struct argument *argument = &around->arguments[index];
    const size_t *rows = around->call.axis_rows, channels = around->call.channels;
    int is_output = index == ARG_SUM || index == ARG_Y || index == ARG_DX;
    for (int i = 0; i < TENSORS; i++)
        is_output = is_output || around->arguments[i].in_place_of == argument;
    const size_t stride = channels + (random_below(random, 2) ? random_below(random, 5) : 0);
    argument->strides[0] = stride;
    if (!around->call.axes || one_in(random, 3))
        return;
    argument->axes = around->call.axes;
    argument->axis_rows = around->call.axis_rows;
    if (random_below(random, 2)) { /* the axes in the other order, which are two or three */
        argument->strides[2] = stride;
        argument->strides[1] = stride * rows[2] + random_below(random, 3);
        argument->strides[0] = argument->strides[1] * rows[1];
    } else {
        argument->strides[1] = stride * rows[0] + random_below(random, 3);
        argument->strides[2] = argument->strides[1] * rows[1];
    }
    if (!is_output && one_in(random, 3)) /* one batch for all, or one row for some */
        argument->strides[random_below(random, around->call.axes)] = 0;
}

static void choose_layouts(struct around *around, struct random *random) {
    for (int i = 0; i < ARGUMENTS; i++) {
        struct argument *argument = &around->arguments[i];
        argument->rows = i < TENSORS ? around->call.tokens : 1;
        argument->columns = i < VECTORS_END              ? around->call.channels
                            : i < ARG_PARAMETER_GRADIENT ? around->call.tokens
                                                         : 1;
        if (i < TENSORS)
            choose_layout(around, (enum argument_index)i, random);
    }
    /* a place of another argument is that argument's, so that it is chosen first */
    for (int is_in_place = 0; is_in_place < 2; is_in_place++)
        for (int i = 0; i < ARGUMENTS; i++)
            if (around->arguments[i].is_given && !around->arguments[i].in_place_of == !is_in_place)
                place_argument(&around->arguments[i], random);
}

/* ---- Values --------------------------------------------------------------------------------------------------------
 */

static double random_value(int index, struct random *random) {
    const double value = (double)random_normal(random) * (index < TENSORS ? 3 : 1) + (index < TENSORS ? 1 : 0);
    switch (index < TENSORS ? random_below(random, 9000) : 9) {
    case 0:
        return 1e30;
    case 1:
        return 3e-7;
    case 2:
        return -0.0;
    case 3:
        return (double)NAN;
    case 4:
        return (double)INFINITY;
    default:
        return value;
    }
}

static void fill(struct argument *argument, int index, struct random *random) {
    if (!argument->is_given || argument->in_place_of)
        return;
    for (size_t row = 0; row < argument->rows; row++)
        for (size_t column = 0; column < argument->columns; column++)
            set_value_at(argument, row, column,
                         index == ARG_RSTD ? random_between(random, 0.25, 0.75) : random_value(index, random));
}

static void fill_with(struct argument *argument, double value) {
    for (size_t row = 0; argument->is_given && row < argument->rows; row++)
        for (size_t column = 0; column < argument->columns; column++)
            set_value_at(argument, row, column, value);
}

/* Outputs that lie half way between integers, and some beyond 127: the bias alone, or rows of 1 and -1 times the
 * weight.
 */
static void make_ties(struct around *around, struct random *random) {
    struct argument *values = &around->arguments[ARG_WEIGHT], *x = &around->arguments[ARG_X];
    around->call.weight_offset = 0;
    if (is_given(around, ARG_BIAS)) {
        fill_with(values, 0);
        values = &around->arguments[ARG_BIAS];
    } else if (around->kernel->operation == DYNNORM_RMSNORM && !is_given(around, ARG_RESIDUAL)) {
        around->call.eps = 0;
        for (size_t row = 0; row < x->rows; row++)
            for (size_t column = 0; column < x->columns; column++)
                set_value_at(x, row, column, random_below(random, 2) ? 1 : -1);
    } else {
        return;
    }
    if (!values->is_given)
        return;
    float factor = 1 / around->call.y_scale;
    if (around->call.y_scale == 0) { /* the first is the greatest of each row */
        set_value_at(values, 0, 0, one_in(random, 2) ? 32 : random_between(random, 20, 40));
        factor = 127 / (float)value_at(values, 0, 0);
    }
    for (size_t column = around->call.y_scale == 0; column < values->columns; column++) {
        /* not many beyond 64, where bf16 has no halves */
        const size_t all = around->call.y_scale != 0 && one_in(random, 8) ? 600 : 128;
        set_value_at(values, 0, column, ((double)random_below(random, all) - 64.5) / (double)factor);
    }
}

/* Rows of zeros, of next to nothing, or of numbers that overflow. */
static void make_extreme(struct around *around, struct random *random) {
    struct argument *arguments = around->arguments;
    around->call.weight_offset = 0;
    fill_with(&arguments[ARG_BIAS], 0);
    switch (random_below(random, 3)) {
    case 0:
        for (size_t row = 0; row < arguments[ARG_X].rows; row++)
            for (size_t column = 0; one_in(random, 2) && column < arguments[ARG_X].columns; column++)
                set_value_at(&arguments[ARG_X], row, column, 0);
        fill_with(&arguments[ARG_RESIDUAL], 0);
        fill_with(&arguments[ARG_RESIDUAL_BIAS], 0);
        break;
    case 1:
        fill_with(&arguments[ARG_WEIGHT], ldexp(0.75, -120 - (int)random_below(random, 3)));
        break;
    default:
        fill_with(&arguments[ARG_WEIGHT], 1.5e38);
    }
}

/* Some rows whose squares float cannot hold, and some whose mean is far from 0. */
static void make_unusual(struct around *around, struct random *random) {
    struct argument *x = &around->arguments[ARG_X];
    for (size_t row = 0; row < x->rows; row++) {
        const int is_large = x->type != DYNNORM_F16 && one_in(random, 2), is_usual = one_in(random, 3);
        for (size_t column = 0; column < x->columns && !is_usual; column++) {
            const double value = value_at(x, row, column);
            set_value_at(x, row, column, is_large ? 0x1p120 * value : 200 + value);
        }
    }
}

/* ---- Random calls -------------------------------------------------------------------------------------------------
 */

static void make(struct around *around, const struct listed_kernel *kernel, enum theme theme, struct random *random) {
    static const enum argument_index places[][3] = {{ARG_X, ARG_RESIDUAL, ARG_X}, {ARG_DY, ARG_DSUM, ARG_X}};
    const size_t shape = random_below(random, sizeof shapes / sizeof *shapes);
    memset(around, 0, sizeof *around);
    around->kernel = kernel;
    dynnorm_descriptor *call = &around->call;
    *call = (dynnorm_descriptor)DYNNORM_DESCRIPTOR_INIT;
    call->operation = kernel->operation, call->mode = kernel->mode;
    call->channels = shapes[shape].channels;
    memcpy(call->axis_rows, shapes[shape].axis_rows, sizeof call->axis_rows);
    call->tokens = call->axis_rows[0] * call->axis_rows[1] * call->axis_rows[2];
    call->axes = random_below(random, 2) ? 3 : 0;
    call->eps = 1e-5f, call->alpha = 0.7f, call->beta = 1.3f, call->scale = 1.25f;
    call->weight_offset = random_below(random, 2) ? 1 : 0;
    call->round_before_weight = theme == ROUNDING || (theme < SUM_GRADIENT && one_in(random, 4));
    call->normalize_unrounded_sum = (int)random_below(random, 2);
    call->keep_output_in_cache = (int)random_below(random, 2);
    around->by_ranges = (int)random_below(random, 2);
    around->streams = (int)random_below(random, 2);
    choose_types(around, random);
    choose_buffers(around, theme, random);
    if (theme == SUM_GRADIENT && one_in(random, 12))
        choose_long_row(around);
    if (theme == SUM_GRADIENT_IN_PLACE)
        choose_in_place(around, random);
    else
        share_x(around, is_backward(around) ? ARG_DSUM : ARG_RESIDUAL, random);
    if (is_backward(around)) {
        call->accumulate_dweight = (int)random_below(random, 2), call->accumulate_dbias = (int)random_below(random, 2);
        call->accumulate_dalpha = call->accumulate_dbeta = (int)random_below(random, 2);
        if (theme == SUM_GRADIENT)
            call->accumulate_dx = one_in(random, 3);
        if (theme == SUM_GRADIENT && !call->accumulate_dx)
            choose_place(around, ARG_DX, places[1], random);
    } else {
        choose_place(around, ARG_SUM, places[0], random);
        choose_place(around, ARG_Y, places[0], random);
    }
    choose_layouts(around, random);
    for (int i = 0; i < ARGUMENTS; i++)
        fill(&around->arguments[i], i, random);
    if (theme == INTEGERS && one_in(random, 3))
        make_ties(around, random);
    else if (theme == INTEGERS && one_in(random, 3))
        make_extreme(around, random);
    else if (theme == ROUNDING && one_in(random, 2))
        make_unusual(around, random);
    for (int i = 0; i < ARGUMENTS; i++)
        if (around->arguments[i].memory)
            memcpy(around->arguments[i].before, around->arguments[i].memory, around->arguments[i].bytes);
}

static void free_around(struct around *around) {
    for (int i = 0; i < ARGUMENTS; i++)
        free_argument(&around->arguments[i]);
}

static void append(char *text, size_t size, const char *format, ...) {
    const size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, size - length, format, arguments);
    va_end(arguments);
}

static void describe_around(const struct around *around, char *text, size_t size) {
    const dynnorm_descriptor *call = &around->call;
    *text = 0;
    append(text, size, "%zu x %zu:", call->tokens, call->channels);
    for (int i = 0; i < ARGUMENTS; i++) {
        const struct argument *argument = &around->arguments[i];
        if (!argument->is_given)
            continue;
        append(text, size, " %s %s", argument_names[i], element_name(argument->type));
        if (argument->in_place_of)
            append(text, size, " in %s", argument_names[argument->in_place_of - around->arguments]);
        if (argument->axes)
            append(text, size, " by %zu %zu %zu", argument->strides[0], argument->strides[1], argument->strides[2]);
        append(text, size, ",");
    }
    append(text, size, " offset %g, scale %g%s%s%s%s%s", (double)call->weight_offset, (double)call->y_scale,
           call->round_before_weight ? ", rounded before the weight" : "",
           call->normalize_unrounded_sum ? ", unrounded sum" : "", call->accumulate_dx ? ", dx accumulated" : "",
           around->by_ranges ? ", by ranges" : "", around->streams ? ", past the caches" : "");
}

/* Compares an output with what is expected, and forgets that it has changed. */
static int is_expected(struct argument *argument, const char *name) {
    struct argument before = *argument;
    const struct argument *owner = argument->in_place_of ? argument->in_place_of : argument;
    before.data = owner->before + (owner->data - owner->memory);
    for (size_t row = 0; row < argument->rows; row++)
        for (size_t column = 0; column < argument->columns; column++) {
            const uint32_t got = bits_at(argument, row, column);
            const uint32_t expected = argument->expected[row * argument->columns + column];
            if (!same_element(argument->type, got, expected)) {
                printf("# %s[%zu][%zu]: got %x (%a), expected %x (%a)\n", name, row, column, got,
                       widened(argument->type, got), expected, widened(argument->type, expected));
                return 0;
            }
            store_element(before.data, argument->type, row_offset(argument, row) + column, got);
        }
    return 1;
}

/* Returns 1 if the call gives what is expected, and changes nothing else. */
static int check_call(struct around *around, struct random *random) {
    const dynnorm_status expected = expect_outputs(around), status = run(around, random);
    int passed = expected == DYNNORM_OK && status == DYNNORM_OK;
    if (!passed)
        printf("# %s\n", dynnorm_status_string(status ? status : expected));
    for (int i = 0; i < ARGUMENTS && passed; i++)
        if (around->arguments[i].expected)
            passed = is_expected(&around->arguments[i], argument_names[i]);
    for (int i = 0; i < ARGUMENTS && passed; i++) {
        const struct argument *argument = &around->arguments[i];
        passed = !argument->memory || !memcmp(argument->memory, argument->before, argument->bytes);
        if (!passed)
            printf("# %s is changed where nothing should be written\n", argument_names[i]);
    }
    return passed;
}

static void check_theme(const struct isa *isa, const struct listed_kernel *kernel, enum theme theme) {
    const size_t calls = themes[theme].calls / (thinned() ? 4 : 1);
    uint64_t seed = random_seed() + 1000 * (uint64_t)(kernel - listed_kernels) + 100000 * (uint64_t)theme;
    seed += 1000000 * (uint64_t)(isa - dynnorm_isa_list);
    int passed = 1;
    for (size_t i = 0; i < calls && passed; i++) {
        struct random random = random_start(seed + i);
        struct around around;
        make(&around, kernel, theme, &random);
        passed = check_call(&around, &random);
        if (!passed) {
            char text[600];
            describe_around(&around, text, sizeof text);
            printf("# seed %llu: %s\n", (unsigned long long)(seed + i), text);
        }
        free_around(&around);
    }
    tap_check(passed, "%s %s: %s", isa->identifier, kernel->name, themes[theme].name);
}

/* ---- The largest output -------------------------------------------------------------------------------------------
 */

/* A kernel without statistics, rows of large and small x, and weights of some size. */
struct bounded {
    const struct listed_kernel *kernel;
    dynnorm_descriptor call;
    struct argument weight, bias;
    float *x, *y;
};

enum { BOUNDED_ROWS = 12 };

static void make_bounded(struct bounded *bounded, const struct listed_kernel *kernel, struct random *random) {
    static const size_t channels[] = {1, 3, 16, 64, 67, 257, 1000};
    static const float scales[] = {1, -1.5f, 0.1f, 3e5f, 1e-30f, 0};
    memset(bounded, 0, sizeof *bounded);
    bounded->kernel = kernel;
    dynnorm_descriptor *call = &bounded->call;
    *call = (dynnorm_descriptor)DYNNORM_DESCRIPTOR_INIT;
    call->operation = kernel->operation, call->mode = kernel->mode;
    call->tokens = BOUNDED_ROWS;
    call->channels = channels[random_below(random, sizeof channels / sizeof *channels)];
    call->alpha = 0.7f, call->beta = 1.3f;
    call->scale = scales[random_below(random, sizeof scales / sizeof *scales)];
    call->weight_offset = random_below(random, 2) ? 0.9f : 0;
    call->round_before_weight = (int)random_below(random, 2);
    const int has_denormals = one_in(random, 3); /* weight and bias, whose roundings then are large */
    if (has_denormals)
        call->scale = (float)random_between(random, 1, 2), call->weight_offset = 0;
    struct argument *const vectors[] = {&bounded->weight, &bounded->bias};
    for (int i = 0; i < 2; i++) {
        *vectors[i] = (struct argument){.type = random_type(random), .rows = 1, .columns = call->channels};
        vectors[i]->is_given = !one_in(random, 3);
        if (has_denormals)
            vectors[i]->type = DYNNORM_F32, vectors[i]->is_given = 1;
        place_argument(vectors[i], random);
        double size = one_in(random, 5) ? 1e-39 : ldexp(1, (int)random_below(random, 8));
        if (has_denormals)
            size = 1e-42;
        for (size_t column = 0; column < call->channels; column++)
            set_value_at(vectors[i], 0, column, size * (double)random_normal(random));
    }
    dynnorm_vector *const fields[] = {&call->weight, &call->bias};
    for (int i = 0; i < 2; i++)
        if (vectors[i]->is_given) {
            fields[i]->data = vectors[i]->data;
            fields[i]->type = vectors[i]->type;
        }
    const size_t count = BOUNDED_ROWS * call->channels;
    call->x.data = bounded->x = allocate(count * sizeof(float));
    call->y.data = bounded->y = allocate(count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        static const float large[] = {9, 12, 20, 1e4f, 1e10f, 1e30f, FLT_MAX / 4};
        const float size = i < count / 2 ? large[random_below(random, sizeof large / sizeof *large)] : 3;
        bounded->x[i] = random_below(random, 2) ? size : -size;
    }
}

static void free_bounded(struct bounded *bounded) {
    free_argument(&bounded->weight);
    free_argument(&bounded->bias);
    free(bounded->x);
    free(bounded->y);
}

/* The greatest |w s| + |b|, exact to a few units of double. */
static double greatest_of(const struct bounded *bounded) {
    double greatest = 0;
    for (size_t i = 0; i < bounded->call.channels; i++) {
        float weight = 1;
        if (bounded->weight.is_given)
            weight = (float)value_at(&bounded->weight, 0, i) + bounded->call.weight_offset;
        const double bias = bounded->bias.is_given ? value_at(&bounded->bias, 0, i) : 0;
        greatest = fmax(greatest, fabs((double)weight * (double)bounded->call.scale) + fabs(bias));
    }
    return greatest;
}

/* Returns 1 if no y is beyond the bound, and the bound is not far from the greatest y that there could be. */
static int check_bounded(const struct bounded *bounded) {
    dynnorm_descriptor call = bounded->call;
    float bound = -1;
    const double exact = greatest_of(bounded);
    dynnorm_status status = dynnorm_largest_output(&call, &bound);
    if (status || !((double)bound >= exact && (double)bound <= exact * (1 + 0x1p-19) + 0x1p-145)) {
        printf("# bound %a, expected %a or a little more; %s\n", (double)bound, exact, dynnorm_status_string(status));
        return 0;
    }
    status = dynnorm_forward(&call);
    for (size_t i = 0; i < call.tokens * call.channels; i++)
        if (status || !(fabsf(bounded->y[i]) <= bound)) {
            printf("# %a is beyond the bound %a; %s\n", (double)bounded->y[i], (double)bound,
                   dynnorm_status_string(status));
            return 0;
        }
    /* as a scale, it keeps all integers in range and each within half of the scale */
    call.y_scale = bound / 127;
    if (call.y_scale < 0x1p-120f)
        return 1;
    signed char *integers = allocate(call.tokens * call.channels);
    call.y.data = integers;
    call.y.type = DYNNORM_I8;
    status = dynnorm_forward(&call);
    int passed = status == DYNNORM_OK;
    for (size_t i = 0; i < call.tokens * call.channels; i++) {
        const double scale = (double)call.y_scale, error = integers[i] * scale - (double)bounded->y[i];
        passed = passed && fabs(error) <= 0.5001 * scale && (double)fabsf(bounded->y[i]) / scale < 127.001;
    }
    if (!passed)
        printf("# a scale of %a for %a: %s\n", (double)call.y_scale, (double)bound, dynnorm_status_string(status));
    free(integers);
    return passed;
}

static void check_largest_output(const struct isa *isa, const struct listed_kernel *kernel) {
    int passed = 1;
    for (uint64_t i = 0; i < (thinned() ? 20 : 60) && passed; i++) {
        const uint64_t seed = random_seed() + i;
        struct random random = random_start(seed);
        struct bounded bounded;
        make_bounded(&bounded, kernel, &random);
        passed = check_bounded(&bounded);
        if (!passed)
            printf("# seed %llu: %zu channels, scale %g, offset %g\n", (unsigned long long)seed, bounded.call.channels,
                   (double)bounded.call.scale, (double)bounded.call.weight_offset);
        free_bounded(&bounded);
    }
    tap_check(passed, "%s %s: the largest output", isa->identifier, kernel->name);
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *kernel) {
    for (size_t theme = 0; theme < sizeof themes / sizeof *themes; theme++)
        if (kernel->direction == themes[theme].direction)
            check_theme(isa, kernel, (enum theme)theme);
    if (kernel->direction == FORWARD_PASS && !dynnorm_operations[kernel->operation].has_eps)
        check_largest_output(isa, kernel);
}

int main(void) {
    check_each_kernel(check_kernel);
    use_table(NULL);
    return tap_done();
}
