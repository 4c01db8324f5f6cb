/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Calls of any kernel, with buffers that a test can place, fill, compare or break one by one.
 *
 * Buffers are handled as bytes, since some tests place them at odd addresses.
 */
#ifndef DYNNORM_TEST_CALL_H
#define DYNNORM_TEST_CALL_H

#include "each_kernel.h"
#include "random.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether to run a thinned set of shapes, for emulators. */
static inline int thinned(void) {
    const char *thin = getenv("DYNNORM_TEST_THIN");
    return thin && strcmp(thin, "0") != 0;
}

/* ---- The buffers of a descriptor --------------------------------------------------------------------------------- */

enum buffer_shape { ROWS_OF_CHANNELS, ONE_PER_CHANNEL, ONE_PER_ROW, ONE };

enum { IN_FORWARD = 1 << FORWARD_PASS, IN_BACKWARD = 1 << BACKWARD_PASS, IN_BOTH = IN_FORWARD | IN_BACKWARD };

enum {
    OF_LAYERNORM = 1 << DYNNORM_LAYERNORM,
    OF_RMSNORM = 1 << DYNNORM_RMSNORM,
    OF_DYT = 1 << DYNNORM_DYT,
    OF_DYISRU = 1 << DYNNORM_DYISRU | 1 << DYNNORM_CENTERED_DYISRU,
    OF_ALL = ~0
};

struct buffer {
    const char *name;
    size_t data_field;       /* offset of its pointer in the descriptor */
    size_t stride_field;     /* offset of its row stride; 0: it has none */
    size_t accumulate_field; /* offset of its accumulate_ flag; 0: it has none */
    enum buffer_shape shape;
    int read;       /* in which directions */
    int required;   /* in which directions */
    int written;    /* in which directions */
    int operations; /* the operations that have it */
};

#define FIELD(name) offsetof(dynnorm_descriptor, name)
static const struct buffer buffers[] = {
    {"x", FIELD(x.data), FIELD(x.row_stride), 0, ROWS_OF_CHANNELS, IN_BOTH, IN_BOTH, 0, OF_ALL},
    {"y", FIELD(y.data), FIELD(y.row_stride), 0, ROWS_OF_CHANNELS, 0, 0, IN_FORWARD, OF_ALL},
    {"dy", FIELD(dy.data), FIELD(dy.row_stride), 0, ROWS_OF_CHANNELS, IN_BACKWARD, IN_BACKWARD, 0, OF_ALL},
    {"dx", FIELD(dx.data), FIELD(dx.row_stride), FIELD(accumulate_dx), ROWS_OF_CHANNELS, 0, 0, IN_BACKWARD, OF_ALL},
    {"weight", FIELD(weight.data), 0, 0, ONE_PER_CHANNEL, IN_BOTH, 0, 0, OF_ALL},
    {"bias", FIELD(bias.data), 0, 0, ONE_PER_CHANNEL, IN_FORWARD, 0, 0, OF_ALL & ~OF_RMSNORM},
    {"mean", FIELD(mean), 0, 0, ONE_PER_ROW, IN_BACKWARD, 0, IN_FORWARD, OF_LAYERNORM},
    {"rstd", FIELD(rstd), 0, 0, ONE_PER_ROW, IN_BACKWARD, 0, IN_FORWARD, OF_LAYERNORM | OF_RMSNORM},
    {"dweight", FIELD(dweight.data), 0, FIELD(accumulate_dweight), ONE_PER_CHANNEL, 0, 0, IN_BACKWARD, OF_ALL},
    {"dbias", FIELD(dbias.data), 0, FIELD(accumulate_dbias), ONE_PER_CHANNEL, 0, 0, IN_BACKWARD, OF_ALL & ~OF_RMSNORM},
    {"dalpha", FIELD(dalpha), 0, FIELD(accumulate_dalpha), ONE, 0, 0, IN_BACKWARD, OF_DYT},
    {"dbeta", FIELD(dbeta), 0, FIELD(accumulate_dbeta), ONE, 0, 0, IN_BACKWARD, OF_DYISRU},
};
#undef FIELD
enum { BUFFERS = sizeof buffers / sizeof *buffers };

static inline const struct buffer *buffer_named(const char *name) {
    for (int i = 0; i < BUFFERS; i++)
        if (!strcmp(buffers[i].name, name))
            return &buffers[i];
    fprintf(stderr, "no buffer is named %s\n", name);
    abort();
}

static inline int reads(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return buffer->operations >> operation & buffer->read >> direction & 1;
}

static inline int writes(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return buffer->operations >> operation & buffer->written >> direction & 1;
}

static inline int uses(dynnorm_operation operation, enum direction direction, const struct buffer *buffer) {
    return reads(operation, direction, buffer) || writes(operation, direction, buffer);
}

static inline unsigned char *buffer_data(const dynnorm_descriptor *call, const struct buffer *buffer) {
    void *data;
    memcpy(&data, (const char *)call + buffer->data_field, sizeof data);
    return data;
}

static inline void set_buffer_data(dynnorm_descriptor *call, const struct buffer *buffer, const void *data) {
    memcpy((char *)call + buffer->data_field, &data, sizeof data);
}

static inline size_t buffer_rows(const dynnorm_descriptor *call, const struct buffer *buffer) {
    return buffer->shape == ROWS_OF_CHANNELS ? call->tokens : 1;
}

/* Floats in a row. */
static inline size_t buffer_columns(const dynnorm_descriptor *call, const struct buffer *buffer) {
    return buffer->shape == ONE ? 1 : buffer->shape == ONE_PER_ROW ? call->tokens : call->channels;
}

/* Floats from one row to the next. */
static inline size_t buffer_stride(const dynnorm_descriptor *call, const struct buffer *buffer) {
    size_t stride = 0;
    if (buffer->stride_field)
        memcpy(&stride, (const char *)call + buffer->stride_field, sizeof stride);
    return stride ? stride : buffer_columns(call, buffer);
}

static inline void set_buffer_stride(dynnorm_descriptor *call, const struct buffer *buffer, size_t stride) {
    memcpy((char *)call + buffer->stride_field, &stride, sizeof stride);
}

static inline void set_accumulate(dynnorm_descriptor *call, const struct buffer *buffer, int accumulate) {
    memcpy((char *)call + buffer->accumulate_field, &accumulate, sizeof accumulate);
}

/* Bytes from the first float to the end of the last. */
static inline size_t buffer_bytes(const dynnorm_descriptor *call, const struct buffer *buffer) {
    size_t rows = buffer_rows(call, buffer);
    return rows ? ((rows - 1) * buffer_stride(call, buffer) + buffer_columns(call, buffer)) * sizeof(float) : 0;
}

static inline float load_float(const void *data, size_t index) {
    float value;
    memcpy(&value, (const char *)data + index * sizeof value, sizeof value);
    return value;
}

static inline void store_float(void *data, size_t index, float value) {
    memcpy((char *)data + index * sizeof value, &value, sizeof value);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* A descriptor of a kernel with parameters that are none of the defaults, and no buffers yet. */
static inline dynnorm_descriptor describe(const struct listed_kernel *kernel, size_t tokens, size_t channels) {
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

static inline dynnorm_status run_call(enum direction direction, const dynnorm_descriptor *call) {
    return direction == FORWARD_PASS ? dynnorm_forward(call) : dynnorm_backward(call);
}

/* Memory that a call's buffers share. */
struct memory {
    unsigned char *start;
    size_t bytes;
};

enum { UNTOUCHED = 0xa5 }; /* every byte of memory that nobody has written; as a float -2.87e-16 */

static inline struct memory allocate_memory(size_t bytes) {
    struct memory memory = {malloc(bytes), bytes};
    if (!memory.start) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        exit(2);
    }
    memset(memory.start, UNTOUCHED, bytes);
    return memory;
}

/* Gives every buffer that the kernel uses a place in new memory: at misalignment bytes beyond a multiple of 64, with at
 * least 64 unused bytes on both sides. */
static inline struct memory allocate_buffers(dynnorm_descriptor *call, enum direction direction, size_t misalignment) {
    size_t bytes = 128;
    for (int i = 0; i < BUFFERS; i++)
        if (uses(call->operation, direction, &buffers[i]))
            bytes += (buffer_bytes(call, &buffers[i]) + 255) / 64 * 64;
    struct memory memory = allocate_memory(bytes);
    unsigned char *place = memory.start + 128 - ((uintptr_t)memory.start & 63) + misalignment;
    for (int i = 0; i < BUFFERS; i++)
        if (uses(call->operation, direction, &buffers[i])) {
            set_buffer_data(call, &buffers[i], place);
            place += (buffer_bytes(call, &buffers[i]) + 191) / 64 * 64;
        }
    return memory;
}

/* Fills one buffer: weights and rstd lie between 1/2 and 3/2, all else has mean 0 and deviation 1. */
static inline void fill_buffer(const dynnorm_descriptor *call, const struct buffer *buffer, uint64_t seed) {
    struct random random = random_start(seed + (uint64_t)(buffer - buffers));
    int positive = !strcmp(buffer->name, "weight") || !strcmp(buffer->name, "rstd");
    unsigned char *data = buffer_data(call, buffer);
    size_t stride = buffer_stride(call, buffer);
    for (size_t row = 0; row < buffer_rows(call, buffer); row++)
        for (size_t i = 0; i < buffer_columns(call, buffer); i++)
            store_float(data, row * stride + i,
                        positive ? (float)random_between(&random, 0.5, 1.5) : random_normal(&random));
}

/* Fills every input that the call has; the same values for the same seed and shape, wherever they lie. */
static inline void fill_inputs(const dynnorm_descriptor *call, enum direction direction, uint64_t seed) {
    for (int i = 0; i < BUFFERS; i++)
        if (reads(call->operation, direction, &buffers[i]) && buffer_data(call, &buffers[i]))
            fill_buffer(call, &buffers[i], seed);
}

/* Room for a sentence about a difference. */
struct difference {
    char text[160];
};

/* Compares one buffer of two calls of the same shape bit for bit, whatever their strides; gives 1, and the first
 * difference, if they differ. */
static inline int buffer_differs(const dynnorm_descriptor *got, const dynnorm_descriptor *expected,
                                 const struct buffer *buffer, struct difference *difference) {
    const unsigned char *a = buffer_data(got, buffer), *b = buffer_data(expected, buffer);
    size_t columns = buffer_columns(got, buffer);
    for (size_t row = 0; row < buffer_rows(got, buffer); row++) {
        const unsigned char *a_row = a + row * buffer_stride(got, buffer) * sizeof(float);
        const unsigned char *b_row = b + row * buffer_stride(expected, buffer) * sizeof(float);
        if (!memcmp(a_row, b_row, columns * sizeof(float)))
            continue;
        for (size_t i = 0; i < columns; i++)
            if (memcmp(a_row + i * sizeof(float), b_row + i * sizeof(float), sizeof(float))) {
                snprintf(difference->text, sizeof difference->text, "%s[%zu][%zu]: got %.9g (%a), expected %.9g (%a)",
                         buffer->name, row, i, (double)load_float(a_row, i), (double)load_float(a_row, i),
                         (double)load_float(b_row, i), (double)load_float(b_row, i));
                return 1;
            }
    }
    return 0;
}

/* The same for all outputs that both calls have. */
static inline int outputs_differ(const dynnorm_descriptor *got, const dynnorm_descriptor *expected,
                                 enum direction direction, struct difference *difference) {
    for (int i = 0; i < BUFFERS; i++)
        if (writes(got->operation, direction, &buffers[i]) && buffer_data(got, &buffers[i]) &&
            buffer_data(expected, &buffers[i]) && buffer_differs(got, expected, &buffers[i], difference))
            return 1;
    return 0;
}

#endif
