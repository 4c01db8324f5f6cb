/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Element types: a call with other types than float gives the bits of the same call in float, between exact conversions
 * of its inputs and one rounding of its outputs. And in every type what one channel has leaves the others alone.
 */
#include "call.h"
#include "each_kernel.h"
#include "elements.h"
#include "float_bits.h"
#include "random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Conversions ---------------------------------------------------------------------------------------------------
 */

static int widens(const struct kernels *kernels, dynnorm_type type) {
    enum { COUNT = 1 << 16 };
    static uint16_t halves[COUNT];
    static float floats[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        halves[i] = (uint16_t)i;
    kernels->conversions[type].widen(floats, halves, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        const double expected = widened(type, i);
        if (isnan(expected) ? !isnan(floats[i]) : bits_of_float((float)expected) != bits_of_float(floats[i])) {
            printf("# %s %04x: got %a, expected %a\n", element_name(type), i, (double)floats[i], expected);
            return 0;
        }
    }
    return 1;
}

static int narrows_to(const struct kernels *kernels, dynnorm_type type, const float *floats, size_t count) {
    static uint16_t halves[1 << 10];
    kernels->conversions[type].narrow(halves, floats, count, 0);
    for (size_t i = 0; i < count; i++) {
        const uint32_t expected = narrowed(type, (double)floats[i]);
        if (!same_element(type, expected, halves[i])) {
            printf("# %a to %s: got %04x, expected %04x\n", (double)floats[i], element_name(type), halves[i], expected);
            return 0;
        }
    }
    return 1;
}

/* Every number of the type, the floats beside it, those half way to the next one, and those beside these; and one float
   in 10007. */
static int narrows(const struct kernels *kernels, dynnorm_type type) {
    float floats[1 << 10];
    size_t count = 0;
    for (uint32_t i = 0; i < 1 << 16; i++) {
        const float value = (float)widened(type, i), next = (float)widened(type, i + 1);
        const float half_way = isfinite(next) ? value + (next - value) / 2 : value * 1.0004f;
        const float tried[] = {value,    nextafterf(value, -INFINITY),    nextafterf(value, INFINITY),
                               half_way, nextafterf(half_way, -INFINITY), nextafterf(half_way, INFINITY)};
        memcpy(floats + count, tried, sizeof tried);
        count += sizeof tried / sizeof *tried;
        if (count > 1000 || i == 0xffff) {
            if (!narrows_to(kernels, type, floats, count))
                return 0;
            count = 0;
        }
    }
    for (uint64_t bits = 0; bits <= 0xffffffff;) {
        for (count = 0; count < 1000 && bits <= 0xffffffff; bits += 10007)
            floats[count++] = float_of_bits((uint32_t)bits);
        if (!narrows_to(kernels, type, floats, count))
            return 0;
    }
    return 1;
}

/* Past the caches, from any element of a cache line on. */
static int streams(const struct kernels *kernels, dynnorm_type type) {
    enum { COUNT = 100, ROOM = 256 };
    _Alignas(64) unsigned char memory[ROOM + 64], expected[ROOM + 64];
    float floats[COUNT];
    for (int i = 0; i < COUNT; i++)
        floats[i] = (float)i + 0.25f;
    for (size_t offset = 0; offset < 64; offset += dynnorm_element_bytes(type))
        for (size_t count = 0; count < 40; count++) {
            memset(memory, 0xa5, sizeof memory);
            memset(expected, 0xa5, sizeof expected);
            for (size_t i = 0; i < count; i++)
                store_element(expected + offset, type, i, narrowed(type, (double)floats[i]));
            kernels->conversions[type].narrow(memory + offset, floats, count, 1);
            if (memcmp(memory, expected, sizeof memory))
                return 0;
        }
    return 1;
}

static void check_conversions(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (!use_table(isa)) {
            tap_skip(isa->identifier, TABLE_IS_UNAVAILABLE);
            continue;
        }
        for (int type = DYNNORM_F32 + 1; type < TYPES; type++) {
            tap_check(widens(isa->kernels, (dynnorm_type)type), "%s: every %s becomes float", isa->identifier,
                      element_name((dynnorm_type)type));
            tap_check(narrows(isa->kernels, (dynnorm_type)type), "%s: floats are rounded to %s", isa->identifier,
                      element_name((dynnorm_type)type));
            tap_check(streams(isa->kernels, (dynnorm_type)type), "%s: %s past the caches", isa->identifier,
                      element_name((dynnorm_type)type));
        }
    }
}

/* ---- Calls ----------------------------------------------------------------------------------------------------------
 */

/* The types of a call: of its tensors, of what it reads besides, and of the gradients of the channels. */
struct call_types {
    dynnorm_type input;
    dynnorm_type output;
    dynnorm_type vector;
    dynnorm_type gradient;
};

static const struct call_types call_types[] = {
    {DYNNORM_BF16, DYNNORM_BF16, DYNNORM_BF16, DYNNORM_BF16}, {DYNNORM_F16, DYNNORM_F16, DYNNORM_F16, DYNNORM_F16},
    {DYNNORM_BF16, DYNNORM_BF16, DYNNORM_F32, DYNNORM_F32},   {DYNNORM_F32, DYNNORM_F16, DYNNORM_BF16, DYNNORM_F32},
    {DYNNORM_F16, DYNNORM_F32, DYNNORM_F32, DYNNORM_BF16},    {DYNNORM_F32, DYNNORM_F32, DYNNORM_F16, DYNNORM_F16},
    {DYNNORM_BF16, DYNNORM_F16, DYNNORM_F16, DYNNORM_F32},    {DYNNORM_BF16, DYNNORM_BF16, DYNNORM_F16, DYNNORM_F32},
};

/* What x is. */
enum numbers { ORDINARY, FAR_FROM_ZERO, GREATEST, NUMBERS };

struct shape {
    size_t tokens;
    size_t channels;
    size_t padding; /* elements between rows */
    int is_in_place;
    int accumulates;
    int has_statistics;
    size_t heads; /* rows on the first of two axes; 0: there is one axis */
    enum numbers x;
    int has_plain_weight; /* without an offset */
};

static const struct shape shapes[] = {
    {.tokens = 1, .channels = 1, .has_statistics = 1},
    {.tokens = 3, .channels = 5, .accumulates = 1},
    {.tokens = 9, .channels = 64, .is_in_place = 1, .has_statistics = 1},
    {.tokens = 70, .channels = 100, .has_statistics = 1},
    {.tokens = 41, .channels = 128, .padding = 3, .accumulates = 1, .has_statistics = 1},
    {.tokens = 19, .channels = 777, .has_statistics = 1},
    {.tokens = 40, .channels = 1024, .has_statistics = 1},
    {.tokens = 3, .channels = 5000, .padding = 1, .is_in_place = 1, .has_statistics = 1},
    {.tokens = 2, .channels = 9001, .has_statistics = 1},
    {.tokens = 12, .channels = 96, .padding = 1, .has_statistics = 1, .heads = 3},
    {.tokens = 9, .channels = 4096, .has_statistics = 1},
    {.tokens = 48, .channels = 33, .accumulates = 1, .has_statistics = 1, .heads = 16},
    {.tokens = 70, .channels = 128, .is_in_place = 1, .has_statistics = 1, .x = FAR_FROM_ZERO},
    {.tokens = 17, .channels = 128, .is_in_place = 1, .has_statistics = 1, .x = GREATEST},
    {.tokens = 70, .channels = 128, .is_in_place = 1, .has_statistics = 1, .x = GREATEST, .has_plain_weight = 1},
    {.tokens = 9, .channels = 2112, .has_statistics = 1, .has_plain_weight = 1},
    {.tokens = 40, .channels = 2048, .has_statistics = 1, .has_plain_weight = 1},
    {.tokens = 1, .channels = 1152, .has_statistics = 1, .has_plain_weight = 1},
};

/* Elements behind an argument that nothing may change. */
enum { BEHIND = 32 };

/* What arguments are made of: the same numbers as elements of a type and as floats. */
enum { POOL = 1 << 17 };
static struct pool {
    unsigned char elements[POOL * 4];
    float floats[POOL];
} pools[NUMBERS][TYPES];

/* Sets an element of an array, and its value in one of floats. */
static void set_both(unsigned char *elements, float *floats, dynnorm_type type, size_t i, double value) {
    set_element_at(elements, type, i, value);
    floats[i] = (float)element_at(elements, type, i);
}

/* LayerNorm takes the mean of those that are far from 0 out of a row first. The squares of the greatest overflow, and 1
   over their root mean square is subnormal. With them there are no rare values, so that no row is of another kind. */
static void fill_pools(void) {
    static const double rare_values[] = {1e30, 3e-7, -0.0, (double)NAN};
    static const struct {
        double mean, deviation;
    } of_numbers[NUMBERS] = {[ORDINARY] = {1, 3}, [FAR_FROM_ZERO] = {1000, 3}, [GREATEST] = {2e38, 3e37}};
    for (int numbers = 0; numbers < NUMBERS; numbers++) {
        struct random random = random_start(random_seed());
        for (size_t i = 0; i < POOL; i++) {
            const uint64_t rare = random_below(&random, 4000);
            const double usual =
                (double)random_normal(&random) * of_numbers[numbers].deviation + of_numbers[numbers].mean;
            const int is_rare = numbers != GREATEST && rare < sizeof rare_values / sizeof *rare_values;
            const double value = is_rare ? rare_values[rare] : usual;
            for (int type = 0; type < TYPES; type++)
                set_both(pools[numbers][type].elements, pools[numbers][type].floats, (dynnorm_type)type, i, value);
        }
    }
}

/* One argument of a call: as the caller has it, and as floats. */
struct argument {
    dynnorm_type type;
    size_t count;
    const struct pool *pool;
    size_t in_pool;
    unsigned char *elements;
    float *floats;
};

static struct argument make_argument(dynnorm_type type, const struct pool *pool, size_t count, struct random *random) {
    const size_t in_pool = random_below(random, POOL - count), bytes = dynnorm_element_bytes(type);
    struct argument made = {type, count, pool, in_pool, malloc(count * bytes), malloc(count * sizeof(float))};
    memcpy(made.elements, pool->elements + in_pool * bytes, count * bytes);
    memcpy(made.floats, pool->floats + in_pool, count * sizeof(float));
    return made;
}

/* All bits of such a NaN but the sign are 1, so that rounding makes 0 of it if it is taken for a number. */
static void set_to_greatest_nan(struct argument *argument, size_t i) {
    store_element(argument->elements, argument->type, i, argument->type == DYNNORM_F32 ? 0x7fffffff : 0x7fff);
    argument->floats[i] = (float)element_at(argument->elements, argument->type, i);
}

static void free_argument(struct argument *argument) {
    free(argument->elements);
    free(argument->floats);
}

/* What was computed as floats, rounded, is what was computed in the type; also where nothing should have been written.
 */
static int is_rounded(const char *name, const struct argument *argument) {
    for (size_t i = 0; i < argument->count; i++) {
        const struct pool *pool = argument->pool;
        const uint32_t got = load_element(argument->elements, argument->type, i);
        if (got == load_element(pool->elements, argument->type, argument->in_pool + i) &&
            bits_of_float(argument->floats[i]) == bits_of_float(pool->floats[argument->in_pool + i]))
            continue; /* untouched */
        const uint32_t expected = narrowed(argument->type, (double)argument->floats[i]);
        if (!same_element(argument->type, expected, got)) {
            printf("# %s, element %zu: got %x, expected %x\n", name, i, got, expected);
            return 0;
        }
    }
    return 1;
}

static void set_tensor(dynnorm_tensor *tensor, const struct argument *argument, int typed, const struct shape *shape) {
    tensor->data = typed ? (void *)argument->elements : (void *)argument->floats;
    tensor->type = typed ? argument->type : DYNNORM_F32;
    tensor->row_stride = shape->channels + shape->padding;
}

static void set_vector(dynnorm_vector *vector, const struct argument *argument, int typed) {
    vector->data = typed ? (void *)argument->elements : (void *)argument->floats;
    vector->type = typed ? argument->type : DYNNORM_F32;
}

enum { ARG_X, ARG_OUT, ARG_DY, ARG_WEIGHT, ARG_BIAS, ARG_DWEIGHT, ARG_DBIAS, ARGUMENTS };

static int check_call(const struct listed_kernel *kernel, const struct call_types *of, const struct shape *shape,
                      int by_ranges) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    const dynnorm_type of_argument[ARGUMENTS] = {of->input,  of->output,   of->input,   of->vector,
                                                 of->vector, of->gradient, of->gradient};
    static float mean[2][128], rstd[2][128];
    static double workspace[1 << 16];
    float parameter_gradient[2] = {1.5f, 1.5f};
    struct argument arguments[ARGUMENTS];
    struct random random = random_start(random_seed() + shape->channels);
    for (int i = 0; i < ARGUMENTS; i++) {
        const dynnorm_type type = of_argument[i];
        const struct pool *pool = &pools[i == ARG_X ? shape->x : ORDINARY][type];
        const size_t rows = i < ARG_WEIGHT ? shape->tokens : 1;
        arguments[i] = make_argument(type, pool, rows * (shape->channels + shape->padding) + BEHIND, &random);
    }
    /* Rows of [heads x tokens / heads], the heads beside one another: those of a tensor are its own, but on two axes.
     */
    const size_t stride = shape->channels + shape->padding, heads = shape->heads;
    const size_t strides[2] = {stride * (heads ? shape->tokens / heads : 1), stride};
    const int backward = kernel->direction == BACKWARD_PASS;
    const int is_in_place = shape->is_in_place && of->input == of->output;
    if (!backward && shape->channels > 2) { /* backward it would make all of dx NaN */
        set_to_greatest_nan(&arguments[ARG_WEIGHT], shape->channels / 2);
        set_to_greatest_nan(&arguments[ARG_BIAS], shape->channels / 3);
    }
    dynnorm_status status[2] = {DYNNORM_OK, DYNNORM_OK};
    for (int typed = 0; typed < 2; typed++) {
        dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
        call.operation = kernel->operation;
        call.mode = kernel->mode;
        call.tokens = shape->tokens;
        call.channels = shape->channels;
        call.eps = 1e-5f, call.alpha = 0.7f, call.beta = 1.3f, call.scale = facts->has_scale ? 1.25f : 1;
        call.weight_offset = shape->has_plain_weight ? 0 : 0.5f;
        set_tensor(&call.x, &arguments[ARG_X], typed, shape);
        set_vector(&call.weight, &arguments[ARG_WEIGHT], typed);
        if (facts->has_mean && shape->has_statistics)
            call.mean = mean[typed];
        if (facts->has_rstd && shape->has_statistics)
            call.rstd = rstd[typed];
        if (heads) {
            call.axes = 2;
            call.axis_rows[0] = heads, call.axis_rows[1] = shape->tokens / heads;
            call.x_axis_strides = strides;
        }
        struct argument *in_place = &arguments[backward ? ARG_DY : ARG_X];
        struct argument *out = is_in_place ? in_place : &arguments[ARG_OUT];
        if (!backward) {
            set_tensor(&call.y, out, typed, shape);
            call.y_axis_strides = heads ? strides : NULL;
            if (facts->has_bias)
                set_vector(&call.bias, &arguments[ARG_BIAS], typed);
        } else {
            set_tensor(&call.dy, &arguments[ARG_DY], typed, shape);
            set_tensor(&call.dx, out, typed, shape);
            call.dy_axis_strides = call.dx_axis_strides = heads ? strides : NULL;
            set_vector(&call.dweight, &arguments[ARG_DWEIGHT], typed);
            if (facts->has_bias)
                set_vector(&call.dbias, &arguments[ARG_DBIAS], typed);
            for (size_t i = 0; i < shape->tokens; i++)
                mean[typed][i] = 0.25f, rstd[typed][i] = 0.5f;
            if (facts->parameter_gradient == offsetof(dynnorm_descriptor, dalpha))
                call.dalpha = &parameter_gradient[typed];
            if (facts->parameter_gradient == offsetof(dynnorm_descriptor, dbeta))
                call.dbeta = &parameter_gradient[typed];
            call.accumulate_dx = shape->accumulates && !is_in_place;
            call.accumulate_dweight = call.accumulate_dbias = shape->accumulates;
            call.accumulate_dalpha = call.dalpha && shape->accumulates;
            call.accumulate_dbeta = call.dbeta && shape->accumulates;
        }
        if (!typed || !by_ranges) {
            status[typed] = backward ? dynnorm_backward(&call) : dynnorm_forward(&call);
            continue;
        }
        size_t rows = 5;
        call.workspace = workspace;
        call.workspace_size = sizeof workspace;
        if (backward)
            dynnorm_block_rows(&call, &rows);
        for (size_t first = 0; first < shape->tokens && !status[1]; first += rows) {
            const size_t some = shape->tokens - first < rows ? shape->tokens - first : rows;
            status[1] = backward ? dynnorm_backward_rows(&call, first, some) : dynnorm_forward_rows(&call, first, some);
        }
        if (backward && !status[1])
            status[1] = dynnorm_backward_finish(&call);
    }
    int same = !status[0] && !status[1] && parameter_gradient[0] == parameter_gradient[1];
    same = same || (isnan(parameter_gradient[0]) && isnan(parameter_gradient[1]) && !status[0] && !status[1]);
    if (!backward && shape->has_statistics)
        for (size_t i = 0; i < shape->tokens; i++)
            same = same && (!facts->has_rstd || !memcmp(&rstd[0][i], &rstd[1][i], 4) || isnan(rstd[0][i])) &&
                   (!facts->has_mean || !memcmp(&mean[0][i], &mean[1][i], 4) || isnan(mean[0][i]));
    static const char *const names[ARGUMENTS] = {"x", "output", "dy", "weight", "bias", "dweight", "dbias"};
    for (int i = 0; i < ARGUMENTS; i++) {
        same = same && is_rounded(names[i], &arguments[i]);
        free_argument(&arguments[i]);
    }
    return same;
}

static void check_kernel(const struct isa *isa, const struct listed_kernel *kernel) {
    const int thin = thinned_for(isa);
    for (size_t t = 0; t < sizeof call_types / sizeof *call_types; t++) {
        const struct call_types *of = &call_types[t];
        int same = 1;
        for (size_t s = thin ? t % 3 : 0; s < sizeof shapes / sizeof *shapes; s += thin ? 3 : 1)
            for (int by_ranges = 0; by_ranges < 2; by_ranges++)
                if (!check_call(kernel, of, &shapes[s], by_ranges)) {
                    printf("# %zu x %zu%s\n", shapes[s].tokens, shapes[s].channels, by_ranges ? ", by ranges" : "");
                    same = 0;
                }
        tap_check(same, "%s %s: %s to %s, weight %s, gradients %s", isa->identifier, kernel->name,
                  element_name(of->input), element_name(of->output), element_name(of->vector),
                  element_name(of->gradient));
    }
}

/* ---- Gradients of rows of any kind ----------------------------------------------------------------------------------
 */

enum { MOST_TOKENS_OF_GRADIENTS = 41, MOST_CHANNELS_OF_GRADIENTS = 20001, GRADIENT_ELEMENTS = 36993 };
_Static_assert((GRADIENT_ELEMENTS * 4 + 60) % STREAM_ALIGNMENT == 0, "so that the elements of each tensor are aligned");

/* What is unusual about the rows: nothing; one of some groups has an rstd that may lose sums over tokens, or an n_term
   that float cannot hold; one channel has sums that overflow, or that underflow; the means that are given are a few
   roundings off; all means are nearly 0, where what should be x less the mean might pass for x; one row of the first
   group has no gradient, and in later groups one channel has none; h of most rows has one sign, so that its mean is
   large; in some rows one element is far out, or a NaN; the last third of all rows but the first is far out. */
enum row_kind {
    USUAL_ROWS,
    LEAST_RSTD,
    GREATEST_TERM,
    SUM_OVERFLOWS,
    SUM_UNDERFLOWS,
    MEAN_IS_OFF,
    MEAN_IS_NEAR_ZERO,
    NO_GRADIENT,
    ONE_SIGN,
    FAR_ELEMENTS,
    NAN_ELEMENT,
    NAN_WEIGHT, /* that rounding to bfloat16 might make a number of */
    FAR_CHANNELS,
    ROW_KINDS,
    /* The rows are usual, and alpha, beta or the scale is not. */
    NEGATIVE_ALPHA = ROW_KINDS,
    GREAT_PARAMETER,
    SMALL_PARAMETER,
    LEAST_SCALE,
    NO_PARAMETER,
    LEAST_SUM, /* and an alpha or beta by which it is divided */
    PARAMETER_PER_CHANNEL,
    GRADIENT_KINDS
};

/* What becomes of dx. */
enum dx_way {
    DX_ALONE,
    DX_PAST_CACHES,
    DX_OF_FLOAT_DY, /* which is not of the type */
    DX_ADDED,
    DX_WITH_DSUM,
    DX_WITH_DSUM_PAST_CACHES,
    DX_WITH_FLOAT_DSUM, /* which is not of the type */
    DX_ADDED_WITH_DSUM,
    DX_IN_DSUM,
    DX_IN_DY,
    DX_IN_X,
    DX_WAYS
};

/* x, dy, dx and dsum as floats that are numbers of the type. */
enum { OF_X, OF_DY, OF_DX, OF_DSUM, GRADIENT_TENSORS };

/* One tensor may have its rows apart from the others': some elements more between them, or on two axes, with a gap
   after every four rows. */
enum { SET_APART = 32, ROWS_WITHOUT_GAP = 4 };
struct gradient_shape {
    size_t tokens, channels, padding;
    int more_between, has_gaps; /* tensors, or 0, which x is not */
    int x_has_gaps;
    int has_offset, lacks_statistics; /* of the weight; mean and rstd */
};

/* The strides of a tensor on two axes. */
struct strides {
    size_t of[2];
};

static struct strides strides_of(const struct gradient_shape *shape, int tensor) {
    const size_t stride = shape->channels + shape->padding + (tensor && tensor == shape->more_between ? SET_APART : 0);
    const int has_gaps = tensor ? tensor == shape->has_gaps : shape->x_has_gaps;
    return (struct strides){{stride, ROWS_WITHOUT_GAP * stride + (has_gaps ? SET_APART : 0)}};
}

static size_t place_of_row(const struct gradient_shape *shape, int tensor, size_t row) {
    const struct strides strides = strides_of(shape, tensor);
    return row % ROWS_WITHOUT_GAP * strides.of[0] + row / ROWS_WITHOUT_GAP * strides.of[1];
}

/* All that a tensor may take. */
static size_t elements_of_gradients(const struct gradient_shape *shape) {
    return shape->tokens * (shape->channels + shape->padding + SET_APART);
}

static struct gradient_data {
    float floats[GRADIENT_TENSORS][GRADIENT_ELEMENTS];
    _Alignas(STREAM_ALIGNMENT) unsigned char elements[GRADIENT_TENSORS][GRADIENT_ELEMENTS * 4 + 60]; /* whole lines */
    float weight[MOST_CHANNELS_OF_GRADIENTS];
    float mean[MOST_TOKENS_OF_GRADIENTS];
    float rstd[MOST_TOKENS_OF_GRADIENTS];
    float parameters[MOST_CHANNELS_OF_GRADIENTS];
    /* Of the call in float and that in the type: dweight, dbias, and dalpha or dbeta. */
    float gradients[2][3][MOST_CHANNELS_OF_GRADIENTS];
} of_gradients;

static void set_gradient_element(int tensor, dynnorm_type type, size_t i, double value) {
    set_both(of_gradients.elements[tensor], of_gradients.floats[tensor], type, i, value);
}

/* Tensors of usual rows. They are the same for each kernel and shape, and made once. */
static struct usual_gradients {
    int are_made;
    float floats[GRADIENT_TENSORS][GRADIENT_ELEMENTS];
    unsigned char elements[GRADIENT_TENSORS][GRADIENT_ELEMENTS * 2];
} usual_gradients[2]; /* of bf16 and f16 */

static const struct usual_gradients *find_usual_gradients(dynnorm_type type) {
    struct usual_gradients *made = &usual_gradients[type == DYNNORM_F16];
    struct random random = random_start(random_seed());
    for (int tensor = 0; tensor < GRADIENT_TENSORS && !made->are_made; tensor++)
        for (size_t i = 0; i < GRADIENT_ELEMENTS; i++)
            set_both(made->elements[tensor], made->floats[tensor], type, i, (double)random_normal(&random) * 2);
    made->are_made = 1;
    return made;
}

static void make_gradient_data(const struct gradient_shape *shape, dynnorm_type type, enum row_kind kind) {
    struct gradient_data *data = &of_gradients;
    const struct usual_gradients *usual = find_usual_gradients(type);
    const size_t special = shape->channels * 2 / 3, elements = elements_of_gradients(shape);
    struct random random = random_start(random_seed() + shape->channels);
    for (int tensor = 0; tensor < GRADIENT_TENSORS; tensor++) {
        memcpy(data->floats[tensor], usual->floats[tensor], elements * sizeof(float));
        memcpy(data->elements[tensor], usual->elements[tensor], elements * dynnorm_element_bytes(type));
    }
    for (size_t i = 0; i < shape->channels; i++)
        data->weight[i] = random_normal(&random), data->parameters[i] = fabsf(random_normal(&random)) + 0.2f;
    if (kind == NAN_WEIGHT)
        memcpy(&data->weight[special], &(const uint32_t){0x7fffffff}, sizeof(float));
    for (size_t row = 0; row < shape->tokens; row++) {
        const size_t of_x = place_of_row(shape, OF_X, row), of_dy = place_of_row(shape, OF_DY, row);
        double sum = 0, squares = 0;
        if (kind == SUM_OVERFLOWS) { /* in bf16; f16 has no such numbers */
            set_gradient_element(OF_X, type, of_x + special, 4);
            set_gradient_element(OF_DY, type, of_dy + special, type == DYNNORM_BF16 ? 1e38 : 6e4);
            data->weight[special] = 1e-20f;
        }
        if (kind == SUM_UNDERFLOWS) {
            set_gradient_element(OF_X, type, of_x + special, 0x1p-24);
            set_gradient_element(OF_DY, type, of_dy + special, 0x1p-24);
        }
        for (size_t i = 0; kind == MEAN_IS_NEAR_ZERO && i < shape->channels; i++)
            if (i + 1 == shape->channels)
                set_gradient_element(OF_X, type, of_x + i, 0x1p-18);
            else if (i % 2)
                set_gradient_element(OF_X, type, of_x + i, -(double)data->floats[OF_X][of_x + i - 1]);
            else if (i + 2 == shape->channels)
                set_gradient_element(OF_X, type, of_x + i, 0);
        for (size_t i = 0; kind == NO_GRADIENT && i < shape->channels; i++)
            if (row == 2 || (row >= 8 && i == special))
                set_gradient_element(OF_DY, type, of_dy + i, 0);
        if (kind == FAR_ELEMENTS && row % 3 == 1)
            set_gradient_element(OF_X, type, of_x + special, type == DYNNORM_BF16 ? -1e30 : -6e4);
        if (kind == NAN_ELEMENT && row % 5 == 1)
            set_gradient_element(row % 2 ? OF_X : OF_DY, type, (row % 2 ? of_x : of_dy) + special, (double)NAN);
        for (size_t i = special; kind == FAR_CHANNELS && row && i < shape->channels; i++)
            set_gradient_element(OF_X, type, of_x + i, i % 2 ? 3e4 : -5e4);
        for (size_t i = 0; kind == ONE_SIGN && row % 3 && i < shape->channels; i++)
            set_gradient_element(OF_DY, type, of_dy + i,
                                 copysign((double)data->floats[OF_DY][of_dy + i], (double)data->weight[i]));
        for (size_t i = 0; kind == LEAST_SUM && i < shape->channels; i++)
            set_gradient_element(OF_DY, type, of_dy + i,
                                 type == DYNNORM_BF16 ? (i % 7 ? 0x1p-120 : -0x1p-121) : 0x1p-24);
        for (size_t i = 0; i < shape->channels; i++) {
            const double x = (double)data->floats[OF_X][of_x + i];
            sum += x, squares += x * x;
        }
        data->mean[row] = (float)(sum / (double)shape->channels) + (kind == MEAN_IS_OFF ? 0x1p-21f : 0);
        data->rstd[row] = (float)(1 / sqrt(squares / (double)shape->channels + 1e-5));
        if (kind == SUM_UNDERFLOWS)
            data->rstd[row] = 0x1p-30f;
        if (row == 5 ? shape->tokens < 32 : row % 8 == 2 && row / 8 % 3 != 0)
            data->rstd[row] = kind == LEAST_RSTD ? 0x1p-50f : kind == GREATEST_TERM ? 0x1p45f : data->rstd[row];
    }
}

static dynnorm_descriptor gradient_call(const struct listed_kernel *kernel, const struct gradient_shape *shape,
                                        enum row_kind kind, int typed) {
    const struct operation_facts *facts = &dynnorm_operations[kernel->operation];
    struct gradient_data *data = &of_gradients;
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = kernel->operation;
    call.mode = kernel->mode;
    call.tokens = shape->tokens;
    call.channels = shape->channels;
    call.eps = facts->has_eps ? 1e-5f : 0;
    call.alpha = 0.7f, call.beta = 1.3f, call.scale = facts->has_scale ? 1.25f : 1;
    if (kind == NEGATIVE_ALPHA)
        call.alpha = -0.7f;
    if (kind == GREAT_PARAMETER)
        call.alpha = 0x1p90f, call.beta = 0x1p126f;
    if (kind == SMALL_PARAMETER)
        call.alpha = 0x1p-130f, call.beta = 0x1p-126f;
    if (kind == LEAST_SCALE)
        call.scale = 0x1p-140f;
    if (kind == NO_PARAMETER)
        call.alpha = call.beta = 0;
    if (kind == LEAST_SUM)
        call.alpha = 0.2f, call.beta = 0.3f;
    if (kind == PARAMETER_PER_CHANNEL) {
        call.parameter_per_channel = 1;
        call.alphas.data = facts->parameters == offsetof(dynnorm_descriptor, alphas) ? data->parameters : NULL;
        call.betas.data = facts->parameters == offsetof(dynnorm_descriptor, betas) ? data->parameters : NULL;
    }
    call.weight.data = data->weight;
    call.weight_offset = shape->has_offset ? 0.5f : 0;
    call.mean = facts->has_mean && !shape->lacks_statistics ? data->mean : NULL;
    call.rstd = facts->has_rstd && !shape->lacks_statistics ? data->rstd : NULL;
    call.dweight.data = data->gradients[typed][0];
    call.dbias.data = facts->has_bias ? data->gradients[typed][1] : NULL;
    if (facts->parameter_gradient == offsetof(dynnorm_descriptor, dalpha))
        call.dalpha = data->gradients[typed][2];
    if (facts->parameter_gradient == offsetof(dynnorm_descriptor, dbeta))
        call.dbeta = data->gradients[typed][2];
    return call;
}

/* Strides are told as axes where a tensor has gaps. */
struct axis_strides {
    struct strides x, dy, dx, dsum;
};

static void set_gradient_strides(dynnorm_descriptor *call, struct axis_strides *strides,
                                 const struct gradient_shape *shape, int to) {
    strides->x = strides_of(shape, OF_X), strides->dy = strides_of(shape, OF_DY);
    strides->dx = strides_of(shape, to), strides->dsum = strides_of(shape, OF_DSUM);
    call->x.row_stride = strides->x.of[0], call->dy.row_stride = strides->dy.of[0];
    call->dx.row_stride = strides->dx.of[0], call->dsum.row_stride = call->dsum.data ? strides->dsum.of[0] : 0;
    if (!shape->has_gaps && !shape->x_has_gaps)
        return;
    call->axes = 2;
    call->axis_rows[0] = ROWS_WITHOUT_GAP, call->axis_rows[1] = shape->tokens / ROWS_WITHOUT_GAP;
    call->x_axis_strides = shape->x_has_gaps ? strides->x.of : NULL;
    call->dy_axis_strides = shape->has_gaps == OF_DY ? strides->dy.of : NULL;
    call->dsum_axis_strides = call->dsum.data && shape->has_gaps == OF_DSUM ? strides->dsum.of : NULL;
    call->dx_axis_strides = shape->has_gaps == to || (to == OF_X && shape->x_has_gaps) ? strides->dx.of : NULL;
}

/* The call in float, which has only dx itself; what is added to it is added here. */
static int check_gradients(const struct listed_kernel *kernel, const struct gradient_shape *shape, dynnorm_type type,
                           enum row_kind kind, enum dx_way way) {
    static float dx[GRADIENT_ELEMENTS], expected[GRADIENT_ELEMENTS];
    static unsigned char before[GRADIENT_ELEMENTS * 2];
    struct gradient_data *data = &of_gradients;
    struct axis_strides strides;
    const int to = way == DX_IN_DY ? OF_DY : way == DX_IN_X ? OF_X : way == DX_IN_DSUM ? OF_DSUM : OF_DX;
    const size_t elements = elements_of_gradients(shape), bytes = elements * dynnorm_element_bytes(type);
    for (int i = 0; i < 6; i++)
        memset(data->gradients[i / 3][i % 3], 0, shape->channels * sizeof(float));
    memcpy(before, data->elements[to], bytes);
    dynnorm_descriptor call = gradient_call(kernel, shape, kind, 0);
    call.x.data = data->floats[OF_X];
    call.dy.data = data->floats[OF_DY];
    call.dx.data = dx;
    set_gradient_strides(&call, &strides, shape, to);
    if (dynnorm_backward(&call))
        return 0;
    call = gradient_call(kernel, shape, kind, 1);
    call.x.type = call.dy.type = call.dx.type = call.dsum.type = type;
    call.x.data = data->elements[OF_X];
    call.dy.data = data->elements[OF_DY];
    call.dx.data = data->elements[to];
    if (way == DX_OF_FLOAT_DY)
        call.dy.data = data->floats[OF_DY], call.dy.type = DYNNORM_F32;
    call.accumulate_dx = way == DX_ADDED || way == DX_ADDED_WITH_DSUM;
    if (way == DX_WITH_DSUM || way == DX_WITH_DSUM_PAST_CACHES || way == DX_ADDED_WITH_DSUM || way == DX_IN_DSUM)
        call.dsum.data = data->elements[OF_DSUM];
    if (way == DX_WITH_FLOAT_DSUM)
        call.dsum.data = data->floats[OF_DSUM], call.dsum.type = DYNNORM_F32;
    set_gradient_strides(&call, &strides, shape, to);
    if (way == DX_PAST_CACHES || way == DX_WITH_DSUM_PAST_CACHES)
        pretend_level2_cache(0);
    const dynnorm_status status = dynnorm_backward(&call);
    pretend_level2_cache(SIZE_MAX);
    if (status)
        return 0;
    memcpy(expected, data->floats[to], elements * sizeof(float)); /* what is between the rows stays there */
    for (size_t row = 0; row < shape->tokens; row++) {
        const size_t of_dx = place_of_row(shape, to, row), of_dsum = place_of_row(shape, OF_DSUM, row);
        for (size_t i = 0; i < shape->channels; i++) {
            float sum = dx[of_dx + i];
            if (call.accumulate_dx)
                sum = data->floats[OF_DX][of_dx + i] + sum;
            expected[of_dx + i] = call.dsum.data ? sum + data->floats[OF_DSUM][of_dsum + i] : sum;
        }
    }
    for (size_t i = 0; i < elements; i++) {
        const uint32_t got = load_element(data->elements[to], type, i);
        if (!same_element(type, narrowed(type, (double)expected[i]), got)) {
            printf("# dx, element %zu: got %x, expected %a\n", i, got, (double)expected[i]);
            return 0;
        }
    }
    memcpy(data->elements[to], before, bytes); /* for the next way */
    int same = 1;
    for (int i = 0; i < 3; i++)
        same = same && same_elements(DYNNORM_F32, data->gradients[0][i], data->gradients[1][i], shape->channels);
    return same;
}

static void check_rows_of_gradients(const struct isa *isa, const struct listed_kernel *kernel) {
    const int thin = thinned_for(isa);
    static const struct gradient_shape some[] = {
        {.tokens = 19, .channels = 100},
        {.tokens = 11, .channels = 300},
        {.tokens = 10, .channels = 600, .padding = 3},
        {.tokens = 8, .channels = 768},
        {.tokens = 11, .channels = 1024},
        {.tokens = 9, .channels = 2051},
        {.tokens = 1, .channels = 700},
        {.tokens = 1, .channels = 768},
        {.tokens = 17, .channels = 64, .padding = 1},
        {.tokens = 1, .channels = 2049},
        {.tokens = 1, .channels = 19969},
        {.tokens = 16, .channels = 288},
        {.tokens = 16, .channels = 64, .more_between = OF_DY},
        {.tokens = 16, .channels = 64, .more_between = OF_DX},
        {.tokens = 16, .channels = 96, .has_gaps = OF_DY},
        {.tokens = 16, .channels = 96, .has_gaps = OF_DX},
        {.tokens = 16, .channels = 96, .x_has_gaps = 1},
        {.tokens = 16, .channels = 64, .more_between = OF_DSUM},
        {.tokens = 16, .channels = 128, .has_gaps = OF_DSUM},
        {.tokens = 17, .channels = 64},
        {.tokens = 17, .channels = 65},
        {.tokens = 17, .channels = 128},
        {.tokens = 17, .channels = 129},
        {.tokens = 16, .channels = 768},
        {.tokens = 19, .channels = 96, .padding = 16},
        {.tokens = 8, .channels = 2048},
        {.tokens = 17, .channels = 2112, .padding = 32},
        {.tokens = 16, .channels = 320, .more_between = OF_DY},
        {.tokens = 16, .channels = 320, .has_gaps = OF_DX},
        {.tokens = 17, .channels = 320},
        {.tokens = 16, .channels = 512},
        {.tokens = 9, .channels = 448, .padding = 64},
        {.tokens = 9, .channels = 64, .padding = 480},
        {.tokens = 41, .channels = 64},
        {.tokens = 41, .channels = 33},
        {.tokens = 8, .channels = 320, .has_offset = 1},
        {.tokens = 8, .channels = 320, .lacks_statistics = 1},
    };
    enum { SHAPES = sizeof some / sizeof *some };
    const int is_elementwise = dynnorm_operations[kernel->operation].has_scale;
    if (kernel->direction != BACKWARD_PASS ||
        (kernel->mode != DYNNORM_PORTABLE && !(is_elementwise && kernel->mode == DYNNORM_NATIVE)))
        return;
    for (int type = DYNNORM_BF16; type <= DYNNORM_F16; type++)
        for (int kind = 0; kind < (is_elementwise ? GRADIENT_KINDS : ROW_KINDS); kind++) {
            const int is_of_statistics =
                kind == LEAST_RSTD || kind == GREATEST_TERM || kind == MEAN_IS_OFF || kind == MEAN_IS_NEAR_ZERO;
            int same = 1;
            if (is_elementwise && is_of_statistics)
                continue;
            for (int s = thin ? (kind + type) % 6 : 0; s < SHAPES; s += thin ? 6 : 1) {
                make_gradient_data(&some[s], (dynnorm_type)type, (enum row_kind)kind);
                for (int way = thin ? (s / 6 + kind) % 4 : 0; way < DX_WAYS; way += thin ? 4 : 1) {
                    if ((kernel->mode != DYNNORM_PORTABLE || kind >= ROW_KINDS) && way > DX_PAST_CACHES)
                        break; /* what adds to dx does not depend on these */
                    if (check_gradients(kernel, &some[s], (dynnorm_type)type, (enum row_kind)kind, (enum dx_way)way))
                        continue;
                    printf("# %zu x %zu, kind %d, way %d\n", some[s].tokens, some[s].channels, kind, way);
                    same = 0;
                }
            }
            tap_check(same, "%s %s: gradients of %s, rows of kind %d", isa->identifier, kernel->name,
                      element_name((dynnorm_type)type), kind);
        }
}

/* ---- A channel by itself --------------------------------------------------------------------------------------------
 */

enum { TOKENS_OF_CHANNELS = 11, MOST_OF_CHANNELS = 2100 };

/* What a channel may have. Some have the bits of a NaN that no operation makes. */
static const uint32_t special_bits[] = {0x7fffffff, 0xffffffff, 0x7fa00000, 0x7f800000, 0xff800000, 0x7f7fffff,
                                        0xff7fffff, 0x00000001, 0x00000000, 0x7149f2ca, 0x0da24260};
enum { SPECIALS = sizeof special_bits / sizeof *special_bits };

/* The vectors of a call, one of which has a special element. */
struct channel_vectors {
    float weight[MOST_OF_CHANNELS];
    float bias[MOST_OF_CHANNELS];
    float parameters[MOST_OF_CHANNELS];
};

static struct channel_vectors of_channels;

static dynnorm_descriptor call_of_channels(dynnorm_operation operation, dynnorm_mode mode, dynnorm_type type) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.mode = mode;
    call.tokens = TOKENS_OF_CHANNELS;
    call.channels = MOST_OF_CHANNELS - (type == DYNNORM_BF16);
    call.x.type = call.y.type = type;
    call.eps = facts->has_eps ? 1e-5f : 0;
    call.scale = facts->has_scale ? 3 : 1;
    call.weight.data = of_channels.weight;
    call.bias.data = facts->has_bias ? of_channels.bias : NULL;
    call.parameter_per_channel = facts->parameters != NO_FIELD;
    if (facts->parameters == offsetof(dynnorm_descriptor, alphas))
        call.alphas.data = of_channels.parameters;
    else if (call.parameter_per_channel)
        call.betas.data = of_channels.parameters;
    return call;
}

/* Whether y has these bits in all channels but one, which has a NaN if that is expected. */
static int is_alone(const unsigned char *y, const unsigned char *usual, const dynnorm_descriptor *call, size_t channel,
                    int is_nan) {
    const dynnorm_type type = call->y.type;
    const size_t bytes = dynnorm_element_bytes(type);
    for (size_t row = 0; row < call->tokens; row++) {
        const size_t begin = row * call->channels, behind = begin + channel + 1;
        if (!same_elements(type, y + begin * bytes, usual + begin * bytes, channel) ||
            !same_elements(type, y + behind * bytes, usual + behind * bytes, call->channels - channel - 1) ||
            (is_nan && !isnan(element_at(y, type, begin + channel))))
            return 0;
    }
    return 1;
}

/* A special weight, bias, alpha or beta leaves the bits of all other channels alone. */
static void check_channels(const struct isa *isa, dynnorm_operation operation, dynnorm_mode mode, dynnorm_type type) {
    static unsigned char y[2][TOKENS_OF_CHANNELS * MOST_OF_CHANNELS * sizeof(float)];
    float *const vectors[] = {of_channels.weight, of_channels.bias, of_channels.parameters};
    struct random random = random_start(random_seed());
    int same = 1;
    dynnorm_descriptor call = call_of_channels(operation, mode, type);
    for (size_t i = 0; i < MOST_OF_CHANNELS; i++) {
        of_channels.weight[i] = random_normal(&random);
        of_channels.bias[i] = random_normal(&random);
        of_channels.parameters[i] = fabsf(random_normal(&random)) + 0.1f;
    }
    const size_t elements = call.tokens * call.channels;
    struct argument x = make_argument(type, &pools[ORDINARY][type], elements, &random);
    for (size_t i = 0; i < elements; i++)
        set_element_at(x.elements, type, i, (double)random_normal(&random));
    call.x.data = x.elements;
    call.y.data = y[0];
    const dynnorm_status status = dynnorm_forward(&call);
    call.y.data = y[1];
    for (int v = 0; v < 3 && !status; v++) {
        if ((v == 1 && !call.bias.data) || (v == 2 && !call.parameter_per_channel))
            continue;
        for (size_t s = 0; s < SPECIALS; s++) {
            const size_t channel = random_below(&random, call.channels);
            const float before = vectors[v][channel], special = float_of_bits(special_bits[s]);
            vectors[v][channel] = special;
            same = same && !dynnorm_forward(&call) && is_alone(y[1], y[0], &call, channel, isnan(special));
            vectors[v][channel] = before;
            if (!same) {
                printf("# %s of %08x in channel %zu\n",
                       v == 0   ? "weight"
                       : v == 1 ? "bias"
                                : "parameter",
                       special_bits[s], channel);
                s = SPECIALS, v = 2;
            }
        }
    }
    free_argument(&x);
    if (status != DYNNORM_ERROR_MODE_UNAVAILABLE && status != DYNNORM_ERROR_LEFT_OUT)
        tap_check(same && !status, "%s %s, mode %d, %s: what one channel has counts for it alone", isa->identifier,
                  dynnorm_operations[operation].title, (int)mode, element_name(type));
}

static void check_all_channels(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        if (!table_is_wanted(&dynnorm_isa_list[i]) || !use_table(&dynnorm_isa_list[i]))
            continue;
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int mode = 0; mode < MODES; mode++)
                for (int type = 0; type < TYPES; type++)
                    check_channels(&dynnorm_isa_list[i], (dynnorm_operation)operation, (dynnorm_mode)mode,
                                   (dynnorm_type)type);
    }
}

/* ---- Rows of every kind ---------------------------------------------------------------------------------------------
 *
 * Kernels for 16 bits compute rows that are not ordinary in other ways: those with a large mean, or beyond what float
 * can hold; and few rows otherwise than many. Large and small numbers that cancel tell in which order they were added.
 */

enum { KINDS = 8, KIND_THAT_CANCELS = 7, MOST_TOKENS = 21, MOST_CHANNELS = 2100 };

static double value_of_kind(size_t kind, dynnorm_type type, size_t channel, struct random *random) {
    const double normal = (double)random_normal(random);
    const double huge = type == DYNNORM_F16 ? 1.5e4 : 5e37, tiny = type == DYNNORM_F16 ? 1e-7 : 1e-39;
    switch (kind) {
    case 0:
        return normal;
    case 1:
        return 256 + normal;
    case 2:
        return normal * huge;
    case 3:
        return normal * tiny;
    case 4:
        return channel % 2 ? 0.0 : -0.0;
    case 5:
        return channel == 7 ? (double)NAN : normal;
    case 6:
        return channel == 9 ? (double)INFINITY : normal;
    default: /* KIND_THAT_CANCELS, which has a function of its own */
        return normal;
    }
}

/* Most numbers of the first half of a row are large or small, and those of the second half have the same with the
 * opposite sign. The others are ordinary, and do not cancel. */
static double value_that_cancels(const unsigned char *row, dynnorm_type type, size_t channel, size_t channels,
                                 struct random *random) {
    const size_t mirrored = channels - 1 - channel, first = channel < mirrored ? channel : mirrored;
    const int most = type == DYNNORM_F16 ? 10 : 40;
    if (first % 4 == 3)
        return (double)random_normal(random);
    if (channel > first)
        return -element_at(row, type, first);
    return ldexp((double)random_normal(random), (int)random_below(random, 2 * (uint64_t)most + 1) - most);
}

/* How a call is made. */
enum way { AS_A_WHOLE, PAST_CACHES, PREPARED, PREPARED_WITH_STEP, WITH_RESIDUAL, WITH_RESIDUAL_ALONE, WAYS };

struct rows_of_kinds {
    unsigned char x[MOST_TOKENS * MOST_CHANNELS * 2];
    _Alignas(64) unsigned char y[MOST_TOKENS * MOST_CHANNELS * 2]; /* so that it can go past the caches */
    unsigned char sum[MOST_TOKENS * MOST_CHANNELS * 2];
    unsigned char zeros[MOST_TOKENS * MOST_CHANNELS * 2];
    float widened_x[MOST_TOKENS * MOST_CHANNELS];
    float floats[MOST_TOKENS * MOST_CHANNELS];
    unsigned char weight[MOST_CHANNELS * 4];
    float widened_weight[MOST_CHANNELS];
    float mean[2][MOST_TOKENS];
    float rstd[2][MOST_TOKENS];
};
static struct rows_of_kinds of_kinds;

static void fill_rows_of_kinds(dynnorm_type type, dynnorm_type weight_type, size_t tokens, size_t channels) {
    struct rows_of_kinds *of = &of_kinds;
    struct random random = random_start(random_seed() + tokens * channels);
    for (size_t row = 0; row < tokens; row++)
        for (size_t i = 0; i < channels; i++) {
            const size_t at = row * channels + i, kind = (row + tokens) % KINDS;
            const unsigned char *of_row = of->x + row * channels * dynnorm_element_bytes(type);
            set_element_at(of->x, type, at,
                           kind == KIND_THAT_CANCELS ? value_that_cancels(of_row, type, i, channels, &random)
                                                     : value_of_kind(kind, type, i, &random));
            of->widened_x[at] = (float)element_at(of->x, type, at);
        }
    memset(of->y, 0xa5, sizeof of->y);
    for (size_t i = 0; i < channels; i++) {
        set_element_at(of->weight, weight_type, i, (double)random_normal(&random));
        if (weight_type == DYNNORM_F32 && i % 40 == 11) /* a NaN that is not to be rounded as a number */
            store_element(of->weight, weight_type, i, i % 80 == 11 ? 0x7fffffff : 0xff800001);
        of->widened_weight[i] = weight_type == DYNNORM_F32 ? float_of_bits(load_element(of->weight, weight_type, i))
                                                           : (float)element_at(of->weight, weight_type, i);
    }
}

static dynnorm_descriptor call_of_kinds(dynnorm_operation operation, size_t tokens, size_t channels, int typed) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.tokens = tokens, call.channels = channels;
    call.alpha = 0.7f, call.beta = 1.3f, call.scale = facts->has_scale ? 1.25f : 1;
    call.mean = facts->has_mean ? of_kinds.mean[typed] : NULL;
    call.rstd = facts->has_rstd ? of_kinds.rstd[typed] : NULL;
    return call;
}

static dynnorm_status run_prepared_rows(const dynnorm_descriptor *call, size_t step) {
    dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
    dynnorm_status status = dynnorm_prepare_forward(call, &prepared);
    for (size_t first = 0; first < step && first < call->tokens && !status; first++)
        status = dynnorm_forward_prepared(&prepared, call->y.data, call->x.data, first,
                                          (call->tokens - first + step - 1) / step, step);
    return status;
}

static dynnorm_status run_rows_of_kinds(dynnorm_descriptor *call, dynnorm_type type, enum way way) {
    const int has_residual = way == WITH_RESIDUAL || way == WITH_RESIDUAL_ALONE;
    if (has_residual)
        call->residual.data = of_kinds.zeros, call->residual.type = type;
    if (way == WITH_RESIDUAL)
        call->sum.data = of_kinds.sum, call->sum.type = type;
    if (way == PAST_CACHES)
        pretend_level2_cache(0);
    if (way == PREPARED_WITH_STEP)
        call->mean = call->rstd = NULL;
    const dynnorm_status status =
        way == PREPARED || way == PREPARED_WITH_STEP ? run_prepared_rows(call, way == PREPARED ? 1 : 3)
        : way == PAST_CACHES ? dynnorm_forward_rows(call, 0, call->tokens) /* calls with few elements never go there */
                             : dynnorm_forward(call);
    pretend_level2_cache(SIZE_MAX);
    return status;
}

static int statistics_are_same(const float *a, const float *b, size_t tokens) {
    for (size_t i = 0; i < tokens; i++)
        if (!(isnan(a[i]) && isnan(b[i])) && bits_of_float(a[i]) != bits_of_float(b[i]))
            return 0;
    return 1;
}

/* Whether y is what the call in float gave, narrowed. */
static int is_y_narrowed(dynnorm_type type, size_t tokens, size_t channels) {
    for (size_t i = 0; i < tokens * channels; i++) {
        const uint32_t got = load_element(of_kinds.y, type, i), expected = narrowed(type, (double)of_kinds.floats[i]);
        if (!same_element(type, expected, got)) {
            printf("# %zu x %zu, element %zu: got %x, expected %x\n", tokens, channels, i, got, expected);
            return 0;
        }
    }
    return 1;
}

static int check_rows_of_kinds(dynnorm_operation operation, dynnorm_type type, dynnorm_type weight_type, size_t tokens,
                               size_t channels) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    struct rows_of_kinds *of = &of_kinds;
    for (int way = 0; way < WAYS; way++) {
        fill_rows_of_kinds(type, weight_type, tokens, channels);
        /* The sum with a zero is that: -0 becomes 0. */
        for (size_t i = 0; i < tokens * channels && way >= WITH_RESIDUAL; i++)
            of->widened_x[i] += 0;
        dynnorm_descriptor floats = call_of_kinds(operation, tokens, channels, 0);
        floats.x.data = of->widened_x, floats.y.data = of->floats;
        floats.weight.data = of->widened_weight;
        dynnorm_descriptor typed = call_of_kinds(operation, tokens, channels, 1);
        typed.x.data = of->x, typed.y.data = of->y, typed.x.type = typed.y.type = type;
        typed.weight.data = of->weight, typed.weight.type = weight_type;
        if (facts->has_bias && way % 2) /* and otherwise none */
            floats.bias.data = of->widened_weight, typed.bias.data = of->weight, typed.bias.type = weight_type;
        if (dynnorm_forward(&floats) || run_rows_of_kinds(&typed, type, (enum way)way))
            return 0;
        if (!is_y_narrowed(type, tokens, channels)) {
            printf("# way %d\n", way);
            return 0;
        }
        if ((typed.mean && !statistics_are_same(of->mean[0], of->mean[1], tokens)) ||
            (typed.rstd && !statistics_are_same(of->rstd[0], of->rstd[1], tokens)))
            return 0;
    }
    return 1;
}

static void check_kinds(const struct isa *isa, const struct listed_kernel *kernel) {
    const int thin = thinned_for(isa);
    static const struct shape_of_kinds {
        size_t tokens, channels;
    } some[] = {{1, 40}, {2, 2 * MOST_CHANNELS / 3}, {7, 100}, {1, MOST_CHANNELS}, {2, 256}, {21, 64}, {9, 1030}};
    if (kernel->direction == BACKWARD_PASS || kernel->mode != DYNNORM_PORTABLE)
        return;
    for (int type = DYNNORM_BF16; type <= DYNNORM_F16; type++)
        for (int weight_type = DYNNORM_F32; weight_type < TYPES; weight_type++) {
            int same = 1;
            for (size_t s = thin ? (size_t)(type + weight_type) % 3 : 0; s < sizeof some / sizeof *some;
                 s += thin ? 3 : 1)
                for (size_t tokens = some[s].tokens; tokens < (some[s].tokens == 1 ? 8 : some[s].tokens + 1); tokens++)
                    same = same && check_rows_of_kinds(kernel->operation, (dynnorm_type)type, (dynnorm_type)weight_type,
                                                       tokens, some[s].channels);
            tap_check(same, "%s %s: rows of every kind of %s, weight %s", isa->identifier, kernel->name,
                      element_name((dynnorm_type)type), element_name((dynnorm_type)weight_type));
        }
}

/* ---- The smallest results -------------------------------------------------------------------------------------------
 *
 * An instruction that rounds to bfloat16 takes denormals for 0. Where there may be one it must not be used, be it that
 * an x, the weight or rstd is too small: one of them is, and no more than necessary. In few rows, and in those that go
 * past the caches, y itself is looked at.
 */

static const size_t tokens_of_smallest[] = {1, 5, MOST_TOKENS};
enum { COUNTS_OF_TOKENS = sizeof tokens_of_smallest / sizeof *tokens_of_smallest };

static const struct smallest {
    const char *name;
    double x; /* of most elements, which decide rstd */
    double small_x;
    double weight;
    int has_zeros;
} smallest[] = {{"nothing", 1, 0x1p-62, 0x1p-30, 0},
                {"nothing, with zeros", 1, 0x1p-62, 0x1p-30, 1},
                {"x", 0x1p29, 0x1p-70, 0x1p-29, 0},
                {"weight", 0x1p29, 0x1p-62, 0x1p-37, 0},
                {"rstd", 0x1p36, 0x1p-62, 0x1p-30, 0}};

static void fill_smallest(const struct smallest *of, dynnorm_type weight_type, size_t tokens, size_t channels) {
    struct random random = random_start(random_seed() + tokens * channels);
    for (size_t i = 0; i < tokens * channels; i++) {
        const double magnitude = i % 23 == 5 ? of->small_x : of->x, sign = i % 3 ? 1 : -1;
        const double x = of->has_zeros && i % 100 == 1 ? 0 : magnitude * random_between(&random, 1, 2);
        set_element_at(of_kinds.x, DYNNORM_BF16, i, sign * x);
        of_kinds.widened_x[i] = (float)element_at(of_kinds.x, DYNNORM_BF16, i);
    }
    for (size_t i = 0; i < channels; i++) {
        set_element_at(of_kinds.weight, weight_type, i, of->weight * random_between(&random, 1, 2));
        of_kinds.widened_weight[i] = weight_type == DYNNORM_F32
                                         ? float_of_bits(load_element(of_kinds.weight, weight_type, i))
                                         : (float)element_at(of_kinds.weight, weight_type, i);
    }
}

static int smallest_are_exact(const struct smallest *of, dynnorm_type weight_type, size_t tokens, size_t channels,
                              int rounds, enum way way) {
    fill_smallest(of, weight_type, tokens, channels);
    dynnorm_descriptor floats = call_of_kinds(DYNNORM_RMSNORM, tokens, channels, 0);
    dynnorm_descriptor typed = call_of_kinds(DYNNORM_RMSNORM, tokens, channels, 1);
    floats.x.data = of_kinds.widened_x, floats.y.data = of_kinds.floats;
    floats.weight.data = rounds ? NULL : of_kinds.widened_weight;
    typed.x.data = of_kinds.x, typed.y.data = of_kinds.y, typed.x.type = typed.y.type = DYNNORM_BF16;
    typed.weight.data = of_kinds.weight, typed.weight.type = weight_type;
    typed.round_before_weight = rounds;
    if (dynnorm_forward(&floats) || run_rows_of_kinds(&typed, DYNNORM_BF16, way))
        return 0;
    for (size_t i = 0; i < tokens * channels && rounds; i++) {
        const double n = widened(DYNNORM_BF16, narrowed(DYNNORM_BF16, (double)of_kinds.floats[i]));
        of_kinds.floats[i] = (float)n * of_kinds.widened_weight[i % channels];
    }
    return is_y_narrowed(DYNNORM_BF16, tokens, channels);
}

/* With a bias y of the other operations is no denormal unless the bias is small itself. The last channel has a weight
 * and a bias of its own. */
static const struct smallest_bias {
    const char *name;
    double bias;
    double last;
} smallest_biases[] = {
    {"nothing", 0x1p-60, 0x1p-60}, {"all biases", 0x1.8p-127, 0x1.8p-127}, {"the last bias", 0.5, 0x1.8p-127}};

static int smallest_biases_are_exact(dynnorm_operation operation, const struct smallest_bias *of, dynnorm_type type,
                                     size_t tokens, size_t channels, enum way way) {
    const struct smallest ordinary = {"", 1, 1, 1, 0};
    float widened_bias[MOST_CHANNELS];
    unsigned char biases[MOST_CHANNELS * 4];
    fill_smallest(&ordinary, DYNNORM_F32, tokens, channels);
    for (size_t i = 0; i < channels; i++) {
        const double bias = i + 1 < channels ? of->bias : of->last;
        const double weight = bias * (double)of_kinds.widened_weight[i] * 0.75;
        set_both(of_kinds.weight, of_kinds.widened_weight, type, i, weight);
        set_both(biases, widened_bias, type, i, i % 2 ? bias : -bias);
    }
    dynnorm_descriptor floats = call_of_kinds(operation, tokens, channels, 0), typed = floats;
    floats.x.data = of_kinds.widened_x, floats.y.data = of_kinds.floats;
    typed.x.data = of_kinds.x, typed.y.data = of_kinds.y, typed.x.type = typed.y.type = DYNNORM_BF16;
    floats.weight.data = of_kinds.widened_weight, floats.bias.data = widened_bias;
    typed.weight.data = of_kinds.weight, typed.bias.data = biases;
    typed.weight.type = typed.bias.type = type;
    if (dynnorm_forward(&floats) || run_rows_of_kinds(&typed, DYNNORM_BF16, way))
        return 0;
    return is_y_narrowed(DYNNORM_BF16, tokens, channels);
}

static void check_smallest_biases(const struct isa *isa, const struct listed_kernel *kernel) {
    static const size_t channels[] = {64, 100, 1024, 1100};
    if (kernel->operation == DYNNORM_RMSNORM || kernel->direction == BACKWARD_PASS || kernel->mode != DYNNORM_PORTABLE)
        return;
    for (size_t i = 0; i < sizeof smallest_biases / sizeof *smallest_biases; i++) {
        int exact = 1;
        for (size_t c = 0; c < sizeof channels / sizeof *channels; c++)
            for (size_t t = 0; t < COUNTS_OF_TOKENS; t++)
                for (int type = DYNNORM_F32; type <= DYNNORM_BF16; type++)
                    for (int way = AS_A_WHOLE; way <= PAST_CACHES; way++)
                        exact = exact &&
                                smallest_biases_are_exact(kernel->operation, &smallest_biases[i], (dynnorm_type)type,
                                                          tokens_of_smallest[t], channels[c], (enum way)way);
        tap_check(exact, "%s %s: bfloat16, too small for an instruction: %s", isa->identifier, kernel->name,
                  smallest_biases[i].name);
    }
}

static void check_smallest(const struct isa *isa, const struct listed_kernel *kernel) {
    static const size_t channels[] = {64, 100, 1024, 1088};
    if (kernel->operation != DYNNORM_RMSNORM || kernel->direction == BACKWARD_PASS || kernel->mode != DYNNORM_PORTABLE)
        return;
    for (size_t i = 0; i < sizeof smallest / sizeof *smallest; i++)
        for (int rounds = 0; rounds < 2; rounds++) {
            int exact = 1;
            for (size_t c = 0; c < sizeof channels / sizeof *channels; c++)
                for (int weight_type = DYNNORM_F32; weight_type <= DYNNORM_BF16; weight_type++)
                    for (size_t t = 0; t < COUNTS_OF_TOKENS; t++)
                        for (int way = AS_A_WHOLE; way <= PAST_CACHES; way++)
                            exact =
                                exact && smallest_are_exact(&smallest[i], (dynnorm_type)weight_type,
                                                            tokens_of_smallest[t], channels[c], rounds, (enum way)way);
            tap_check(exact, "%s %s: bfloat16%s, too small for an instruction: %s", isa->identifier, kernel->name,
                      rounds ? " rounded before the weight" : "", smallest[i].name);
        }
}

int main(void) {
    fill_pools();
    check_conversions();
    check_all_channels();
    check_each_kernel(check_kernel);
    check_each_kernel(check_rows_of_gradients);
    check_each_kernel(check_kinds);
    check_each_kernel(check_smallest);
    check_each_kernel(check_smallest_biases);
    use_table(NULL);
    return tap_done();
}
