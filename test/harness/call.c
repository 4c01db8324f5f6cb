/* SPDX-License-Identifier: BSD-2-Clause */
#include "call.h"
#include "random.h"
#include "sanitizers.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The buffers of a descriptor --------------------------------------------------------------------------------- */

#define FIELD(name) offsetof(dynnorm_descriptor, name)
#define TENSOR(name) #name, FIELD(name.data), FIELD(name.type), FIELD(name.row_stride), FIELD(name##_axis_strides)
#define VECTOR(name) #name, FIELD(name.data), FIELD(name.type), 0, 0
#define FLOATS(name) #name, FIELD(name), 0, 0, 0
#define ACCUMULATED(name) FIELD(accumulate_##name)
const struct buffer buffers[EVERY_BUFFER] = {
    [BUFFER_X] = {TENSOR(x), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, IN_BOTH, IN_BOTH, 0},
    [BUFFER_Y] = {TENSOR(y), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, 0, 0, IN_FORWARD},
    [BUFFER_DY] = {TENSOR(dy), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, IN_BACKWARD, IN_BACKWARD, 0},
    [BUFFER_DX] = {TENSOR(dx), ACCUMULATED(dx), ROWS_OF_CHANNELS, OF_EVERY_OPERATION, 0, 0, IN_BACKWARD},
    [BUFFER_WEIGHT] = {VECTOR(weight), 0, ONE_PER_CHANNEL, OF_EVERY_OPERATION, IN_BOTH, 0, 0},
    [BUFFER_BIAS] = {VECTOR(bias), 0, ONE_PER_CHANNEL, OF_A_BIAS, IN_FORWARD, 0, 0},
    [BUFFER_MEAN] = {FLOATS(mean), 0, ONE_PER_ROW, OF_A_MEAN, IN_BACKWARD, 0, IN_FORWARD},
    [BUFFER_RSTD] = {FLOATS(rstd), 0, ONE_PER_ROW, OF_AN_RSTD, IN_BACKWARD, 0, IN_FORWARD},
    [BUFFER_DWEIGHT] = {VECTOR(dweight), ACCUMULATED(dweight), ONE_PER_CHANNEL, OF_EVERY_OPERATION, 0, 0, IN_BACKWARD},
    [BUFFER_DBIAS] = {VECTOR(dbias), ACCUMULATED(dbias), ONE_PER_CHANNEL, OF_A_BIAS, 0, 0, IN_BACKWARD},
    [BUFFER_DALPHA] = {FLOATS(dalpha), ACCUMULATED(dalpha), ONE_OR_PER_CHANNEL, OF_ITS_PARAMETER, 0, 0, IN_BACKWARD},
    [BUFFER_DBETA] = {FLOATS(dbeta), ACCUMULATED(dbeta), ONE_OR_PER_CHANNEL, OF_ITS_PARAMETER, 0, 0, IN_BACKWARD},
    [BUFFER_RESIDUAL] = {TENSOR(residual), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, IN_FORWARD, 0, 0},
    [BUFFER_RESIDUAL_BIAS] = {VECTOR(residual_bias), 0, ONE_PER_CHANNEL, OF_EVERY_OPERATION, IN_FORWARD, 0, 0},
    [BUFFER_SUM] = {TENSOR(sum), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, 0, 0, IN_FORWARD},
    [BUFFER_DSUM] = {TENSOR(dsum), 0, ROWS_OF_CHANNELS, OF_EVERY_OPERATION, IN_BACKWARD, 0, 0},
    [BUFFER_ALPHAS] = {VECTOR(alphas), 0, ONE_OR_PER_CHANNEL, OF_ITS_PARAMETERS, IN_BOTH, 0, 0},
    [BUFFER_BETAS] = {VECTOR(betas), 0, ONE_OR_PER_CHANNEL, OF_ITS_PARAMETERS, IN_BOTH, 0, 0},
};
#undef FIELD
#undef TENSOR
#undef VECTOR
#undef FLOATS
#undef ACCUMULATED

const struct buffer *buffer_named(const char *name) {
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (!strcmp(buffers[i].name, name))
            return &buffers[i];
    fprintf(stderr, "no buffer is named %s\n", name);
    abort();
}

int has_buffer(dynnorm_operation operation, const struct buffer *buffer) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    switch (buffer->owner) {
    case OF_A_BIAS:
        return facts->has_bias;
    case OF_A_MEAN:
        return facts->has_mean;
    case OF_AN_RSTD:
        return facts->has_rstd;
    case OF_ITS_PARAMETER:
        return facts->parameter_gradient == buffer->data_field;
    case OF_ITS_PARAMETERS:
        return facts->parameters == buffer->data_field;
    default:
        return 1;
    }
}

int reads(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return buffer->read >> direction & has_buffer(operation, buffer);
}

int writes(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return buffer->written >> direction & has_buffer(operation, buffer);
}

int uses(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return reads(operation, direction, buffer) || writes(operation, direction, buffer);
}

unsigned char *buffer_data(const dynnorm_descriptor *call, const struct buffer *buffer) {
    void *data;
    memcpy(&data, (const char *)call + buffer->data_field, sizeof data);
    return data;
}

void set_buffer_data(dynnorm_descriptor *call, const struct buffer *buffer, const void *data) {
    memcpy((char *)call + buffer->data_field, &data, sizeof data);
}

int outputs_given(const dynnorm_descriptor *call, enum direction direction) {
    int count = 0;
    for (int i = 0; i < EVERY_BUFFER; i++)
        count += writes(call->operation, direction, &buffers[i]) && buffer_data(call, &buffers[i]);
    return count;
}

size_t buffer_rows(const dynnorm_descriptor *call, const struct buffer *buffer) {
    return buffer->shape == ROWS_OF_CHANNELS ? call->tokens : 1;
}

size_t buffer_columns(const dynnorm_descriptor *call, const struct buffer *buffer) {
    return buffer->shape == ONE_OR_PER_CHANNEL ? dynnorm_parameter_count(call)
           : buffer->shape == ONE_PER_ROW      ? call->tokens
                                               : call->channels;
}

dynnorm_type buffer_type(const dynnorm_descriptor *call, const struct buffer *buffer) {
    dynnorm_type type = DYNNORM_F32;
    if (buffer->type_field)
        memcpy(&type, (const char *)call + buffer->type_field, sizeof type);
    return type;
}

void set_buffer_type(dynnorm_descriptor *call, const struct buffer *buffer, dynnorm_type type) {
    memcpy((char *)call + buffer->type_field, &type, sizeof type);
}

size_t buffer_row_bytes(const dynnorm_descriptor *call, const struct buffer *buffer) {
    return buffer_columns(call, buffer) * dynnorm_element_bytes(buffer_type(call, buffer));
}

/* NULL where the buffer has none. */
static const size_t *axis_strides(const dynnorm_descriptor *call, const struct buffer *buffer) {
    const size_t *strides = NULL;
    if (buffer->axes_field)
        memcpy(&strides, (const char *)call + buffer->axes_field, sizeof strides);
    return strides;
}

static size_t row_offset(const dynnorm_descriptor *call, const struct buffer *buffer, size_t row) {
    const size_t element_bytes = dynnorm_element_bytes(buffer_type(call, buffer));
    const size_t *strides = axis_strides(call, buffer);
    if (strides) {
        size_t offset = 0;
        for (size_t axis = 0; axis < call->axes; axis++) {
            offset += row % call->axis_rows[axis] * strides[axis];
            row /= call->axis_rows[axis];
        }
        return offset * element_bytes;
    }
    size_t stride = 0;
    if (buffer->stride_field)
        memcpy(&stride, (const char *)call + buffer->stride_field, sizeof stride);
    return row * (stride ? stride : buffer_columns(call, buffer)) * element_bytes;
}

unsigned char *buffer_row(const dynnorm_descriptor *call, const struct buffer *buffer, size_t row) {
    return buffer_data(call, buffer) + row_offset(call, buffer, row);
}

size_t buffer_bytes(const dynnorm_descriptor *call, const struct buffer *buffer) {
    size_t rows = buffer_rows(call, buffer);
    return rows ? row_offset(call, buffer, rows - 1) + buffer_row_bytes(call, buffer) : 0;
}

void set_buffer_stride(dynnorm_descriptor *call, const struct buffer *buffer, size_t stride) {
    memcpy((char *)call + buffer->stride_field, &stride, sizeof stride);
}

void set_axis_strides(dynnorm_descriptor *call, const struct buffer *buffer, const size_t *strides) {
    memcpy((char *)call + buffer->axes_field, &strides, sizeof strides);
}

int accumulates(const dynnorm_descriptor *call, const struct buffer *buffer) {
    int accumulate = 0;
    if (buffer->accumulate_field)
        memcpy(&accumulate, (const char *)call + buffer->accumulate_field, sizeof accumulate);
    return accumulate;
}

void set_accumulate(dynnorm_descriptor *call, const struct buffer *buffer, int accumulate) {
    memcpy((char *)call + buffer->accumulate_field, &accumulate, sizeof accumulate);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

int is_elementwise(dynnorm_operation operation) {
    enum { forward_centered, forward_normalization, forward_elementwise };
#define FORWARD(name, mode, driver)                                                                                    \
    if (operation == (dynnorm_operation)operation_##name)                                                              \
        return driver == forward_elementwise;
#include "kernels.def"
    return 0;
}

void set_parameter(dynnorm_descriptor *call, float parameter) {
    size_t field = dynnorm_operations[call->operation].parameter;
    if (field != NO_FIELD)
        memcpy((char *)call + field, &parameter, sizeof parameter);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

struct memory allocate_memory(size_t bytes) {
    struct memory memory = {malloc(bytes), bytes};
    if (!memory.start) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        exit(2);
    }
    memset(memory.start, UNTOUCHED, bytes);
    return memory;
}

#if ADDRESS_SANITIZED
#include <sanitizer/asan_interface.h>

static void forbid(const unsigned char *begin, const unsigned char *end) {
    __asan_poison_memory_region(begin, (size_t)(end - begin));
}

void allow_gaps(const struct memory *memory) {
    __asan_unpoison_memory_region(memory->start, memory->bytes);
}
#else
static void forbid(const unsigned char *begin, const unsigned char *end) {
    (void)begin, (void)end;
}

void allow_gaps(const struct memory *memory) {
    (void)memory;
}
#endif

struct memory allocate_selected(dynnorm_descriptor *call, unsigned selected, size_t misalignment) {
    size_t bytes = 128;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (selected >> i & 1)
            bytes += (buffer_bytes(call, &buffers[i]) + 255) / 64 * 64;
    struct memory memory = allocate_memory(bytes);
    unsigned char *place = memory.start + 128 - ((uintptr_t)memory.start & 63) + misalignment;
    unsigned char *end_of_last = memory.start;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (selected >> i & 1) {
            set_buffer_data(call, &buffers[i], place);
            forbid(end_of_last, place);
            end_of_last = place + buffer_bytes(call, &buffers[i]);
            place += (buffer_bytes(call, &buffers[i]) + 191) / 64 * 64;
        }
    forbid(end_of_last, memory.start + bytes);
    return memory;
}

struct memory allocate_buffers(dynnorm_descriptor *call, enum direction direction, size_t misalignment) {
    unsigned used = 0;
    for (int i = 0; i < BUFFERS; i++)
        used |= (unsigned)uses(call->operation, direction, &buffers[i]) << i;
    return allocate_selected(call, used, misalignment);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

dynnorm_descriptor describe(const struct listed_kernel *kernel, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = kernel->operation;
    call.mode = kernel->mode;
    call.tokens = tokens;
    call.channels = channels;
    call.eps = 1e-5f;
    call.alpha = 0.75f;
    call.beta = 0.625f;
    call.scale = 1.5f;
    return call;
}

struct test_call new_call(const struct listed_kernel *kernel, size_t tokens, size_t channels, uint64_t seed) {
    struct test_call made = {.call = describe(kernel, tokens, channels)};
    made.memory = allocate_buffers(&made.call, kernel->direction, 0);
    fill_inputs(&made.call, kernel->direction, seed);
    return made;
}

void free_call(struct test_call *test) {
    free(test->memory.start);
}

dynnorm_status run_call(enum direction direction, const dynnorm_descriptor *call) {
    return direction == FORWARD_PASS ? dynnorm_forward(call) : dynnorm_backward(call);
}

/* What a buffer is filled with from a seed on. The first of these numbers are kept, because every kernel is given the
 * same ones: making them anew would take a good part of the time of the tests. */
struct numbers {
    uint64_t seed;
    struct random random; /* makes those after the ones that are kept */
    size_t count;
    double *kept;
};

enum { MOST_KEPT = 1 << 17 };

static double next_number(struct random *random, const struct buffer *buffer) {
    const int is_positive =
        buffer == &buffers[BUFFER_WEIGHT] || buffer == &buffers[BUFFER_RSTD] || buffer->owner == OF_ITS_PARAMETERS;
    return is_positive ? random_between(random, 0.5, 1.5) : (double)random_normal(random);
}

static void keep_numbers(struct numbers *numbers, const struct buffer *buffer, uint64_t seed, size_t count) {
    if (!numbers->kept && !(numbers->kept = malloc(MOST_KEPT * sizeof *numbers->kept)))
        exit(2);
    if (!numbers->count || numbers->seed != seed) {
        numbers->seed = seed;
        numbers->random = random_start(seed + (uint64_t)(buffer - buffers));
        numbers->count = 0;
    }
    for (; numbers->count < count && numbers->count < MOST_KEPT; numbers->count++)
        numbers->kept[numbers->count] = next_number(&numbers->random, buffer);
}

static void fill_buffer(const dynnorm_descriptor *call, const struct buffer *buffer, uint64_t seed) {
    static atomic_flag are_in_use = ATOMIC_FLAG_INIT;
    static struct numbers kept[EVERY_BUFFER];
    /* A thread that finds another one here makes its own. */
    const int keeps = !atomic_flag_test_and_set(&are_in_use);
    struct numbers made = {seed, random_start(seed + (uint64_t)(buffer - buffers)), 0, NULL}, *numbers = &made;
    const size_t rows = buffer_rows(call, buffer), columns = buffer_columns(call, buffer);
    const dynnorm_type type = buffer_type(call, buffer);
    if (keeps) {
        numbers = &kept[buffer - buffers];
        keep_numbers(numbers, buffer, seed, rows * columns);
    }
    struct random random = numbers->random;
    for (size_t row = 0, n = 0; row < rows; row++) {
        unsigned char *data = buffer_row(call, buffer, row);
        for (size_t i = 0; i < columns; i++, n++)
            set_element_at(data, type, i, n < numbers->count ? numbers->kept[n] : next_number(&random, buffer));
    }
    if (keeps)
        atomic_flag_clear(&are_in_use);
}

void fill_statistics(const dynnorm_descriptor *call, uint64_t seed) {
    static const enum buffer_index statistics[] = {BUFFER_MEAN, BUFFER_RSTD};
    for (int i = 0; i < 2; i++)
        if (buffer_data(call, &buffers[statistics[i]]))
            fill_buffer(call, &buffers[statistics[i]], seed);
}

void compute_statistics(const dynnorm_descriptor *call) {
    dynnorm_descriptor forward = *call;
    forward.mode = DYNNORM_PORTABLE;
    forward.y.data = NULL;
    if (call->mean || call->rstd)
        dynnorm_forward(&forward);
}

void fill_inputs(const dynnorm_descriptor *call, enum direction direction, uint64_t seed) {
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (reads(call->operation, direction, &buffers[i]) && buffer_data(call, &buffers[i]))
            fill_buffer(call, &buffers[i], seed);
    if (direction == BACKWARD_PASS)
        compute_statistics(call);
}

void unify_nans(const dynnorm_descriptor *call, enum direction direction) {
    for (int i = 0; i < EVERY_BUFFER; i++) {
        if (!writes(call->operation, direction, &buffers[i]) || !buffer_data(call, &buffers[i]))
            continue;
        const dynnorm_type type = buffer_type(call, &buffers[i]);
        for (size_t row = 0; row < buffer_rows(call, &buffers[i]); row++) {
            unsigned char *data = buffer_row(call, &buffers[i], row);
            for (size_t column = 0; column < buffer_columns(call, &buffers[i]); column++)
                if (isnan(element_at(data, type, column)))
                    set_element_at(data, type, column, (double)NAN);
        }
    }
}

int buffer_differs(const dynnorm_descriptor *got, const dynnorm_descriptor *expected, const struct buffer *buffer,
                   struct difference *difference) {
    const dynnorm_type type = buffer_type(got, buffer);
    for (size_t row = 0; row < buffer_rows(got, buffer); row++) {
        const unsigned char *a = buffer_row(got, buffer, row), *b = buffer_row(expected, buffer, row);
        if (!memcmp(a, b, buffer_row_bytes(got, buffer)))
            continue;
        for (size_t i = 0; i < buffer_columns(got, buffer); i++)
            if (load_element(a, type, i) != load_element(b, type, i)) {
                snprintf(difference->text, sizeof difference->text, "%s[%zu][%zu]: got %.9g (%a), expected %.9g (%a)",
                         buffer->name, row, i, element_at(a, type, i), element_at(a, type, i), element_at(b, type, i),
                         element_at(b, type, i));
                return 1;
            }
    }
    return 0;
}

int outputs_differ(const dynnorm_descriptor *got, const dynnorm_descriptor *expected, enum direction direction,
                   struct difference *difference) {
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(got->operation, direction, &buffers[i]) && buffer_data(got, &buffers[i]) &&
            buffer_data(expected, &buffers[i]) && buffer_differs(got, expected, &buffers[i], difference))
            return 1;
    for (size_t row = 0; got->y_scales && expected->y_scales && row < got->tokens; row++) {
        const float a = float_at(got->y_scales, row), b = float_at(expected->y_scales, row);
        if (memcmp(&a, &b, sizeof a) && !(isnan(a) && isnan(b))) {
            snprintf(difference->text, sizeof difference->text, "y_scales[%zu]: got %.9g (%a), expected %.9g (%a)", row,
                     (double)a, (double)a, (double)b, (double)b);
            return 1;
        }
    }
    return 0;
}
