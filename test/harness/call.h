/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The tests' model of a call: a descriptor, and the memory that its buffers lie in. Tests place, fill, compare and
 * break the buffers one by one; which of them an operation has follows from src/operations.def.
 *
 * Buffers are handled as bytes, since some tests place them at odd addresses.
 */
#ifndef DYNNORM_TEST_CALL_H
#define DYNNORM_TEST_CALL_H

#include "each_kernel.h"
#include "elements.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- The buffers of a descriptor --------------------------------------------------------------------------------- */

enum buffer_index {
    BUFFER_X,
    BUFFER_Y,
    BUFFER_DY,
    BUFFER_DX,
    BUFFER_WEIGHT,
    BUFFER_BIAS,
    BUFFER_MEAN,
    BUFFER_RSTD,
    BUFFER_DWEIGHT,
    BUFFER_DBIAS,
    BUFFER_DALPHA,
    BUFFER_DBETA,
    BUFFERS, /* those of a norm by itself; with what may stand around it there are more */
    BUFFER_RESIDUAL = BUFFERS,
    BUFFER_RESIDUAL_BIAS,
    BUFFER_SUM,
    BUFFER_DSUM,
    BUFFER_ALPHAS,
    BUFFER_BETAS,
    EVERY_BUFFER
};

enum buffer_shape { ROWS_OF_CHANNELS, ONE_PER_CHANNEL, ONE_PER_ROW, ONE_OR_PER_CHANNEL };

/* Which operations have a buffer. */
enum buffer_owner { OF_EVERY_OPERATION, OF_A_BIAS, OF_A_MEAN, OF_AN_RSTD, OF_ITS_PARAMETER, OF_ITS_PARAMETERS };

enum { IN_FORWARD = 1 << FORWARD_PASS, IN_BACKWARD = 1 << BACKWARD_PASS, IN_BOTH = IN_FORWARD | IN_BACKWARD };

struct buffer {
    const char *name;
    size_t data_field;       /* offset of its pointer in the descriptor */
    size_t type_field;       /* offset of its element type; 0: it is of floats */
    size_t stride_field;     /* offset of its row stride; 0: it has none */
    size_t axes_field;       /* offset of its axis strides; 0: it has none */
    size_t accumulate_field; /* offset of its accumulate_ flag; 0: it has none */
    enum buffer_shape shape;
    enum buffer_owner owner;
    int read;     /* in which directions */
    int required; /* in which directions */
    int written;  /* in which directions */
};

extern const struct buffer buffers[EVERY_BUFFER];

/* Ends the program if there is none of this name. */
const struct buffer *buffer_named(const char *name);

int has_buffer(dynnorm_operation operation, const struct buffer *buffer);
int reads(dynnorm_operation operation, enum direction direction, const struct buffer *buffer);
int writes(dynnorm_operation operation, enum direction direction, const struct buffer *buffer);
int uses(dynnorm_operation operation, enum direction direction, const struct buffer *buffer);

unsigned char *buffer_data(const dynnorm_descriptor *call, const struct buffer *buffer);
void set_buffer_data(dynnorm_descriptor *call, const struct buffer *buffer, const void *data);

/* How many outputs the call asks for. */
int outputs_given(const dynnorm_descriptor *call, enum direction direction);

size_t buffer_rows(const dynnorm_descriptor *call, const struct buffer *buffer);

/* DYNNORM_F32 where the buffer has no type of its own. */
dynnorm_type buffer_type(const dynnorm_descriptor *call, const struct buffer *buffer);
void set_buffer_type(dynnorm_descriptor *call, const struct buffer *buffer, dynnorm_type type);

/* Elements in a row. */
size_t buffer_columns(const dynnorm_descriptor *call, const struct buffer *buffer);

/* Where a row begins. Nothing else in the tests computes that from a descriptor. */
unsigned char *buffer_row(const dynnorm_descriptor *call, const struct buffer *buffer, size_t row);

/* Bytes of a row. */
size_t buffer_row_bytes(const dynnorm_descriptor *call, const struct buffer *buffer);

/* Bytes from the first element to the end of the last. */
size_t buffer_bytes(const dynnorm_descriptor *call, const struct buffer *buffer);

/* Elements from one row to the next. */
void set_buffer_stride(dynnorm_descriptor *call, const struct buffer *buffer, size_t stride);

/* Elements from one row to the next on each axis, or NULL. The call keeps the pointer. */
void set_axis_strides(dynnorm_descriptor *call, const struct buffer *buffer, const size_t *strides);

int accumulates(const dynnorm_descriptor *call, const struct buffer *buffer);
void set_accumulate(dynnorm_descriptor *call, const struct buffer *buffer, int accumulate);

static inline float float_at(const void *data, size_t index) {
    float value;
    memcpy(&value, (const char *)data + index * sizeof value, sizeof value);
    return value;
}

static inline void set_float_at(void *data, size_t index, float value) {
    memcpy((char *)data + index * sizeof value, &value, sizeof value);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* Whether each element of y depends on one element of x alone. */
int is_elementwise(dynnorm_operation operation);

/* Sets alpha or beta, whichever the operation has, if any. */
void set_parameter(dynnorm_descriptor *call, float parameter);

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Memory that a call's buffers share. Free it with free(memory.start). */
struct memory {
    unsigned char *start;
    size_t bytes;
};

enum { UNTOUCHED = 0xa5 }; /* every byte of memory that nobody has written; as a float -2.87e-16 */

struct memory allocate_memory(size_t bytes);

/* Gives every buffer for which selected has the bit 1 << index a place in new memory: at misalignment bytes beyond a
 * multiple of 64, with at least 64 unused bytes on both sides. AddressSanitizer reports whoever touches those, until
 * allow_gaps is called. */
struct memory allocate_selected(dynnorm_descriptor *call, unsigned selected, size_t misalignment);
void allow_gaps(const struct memory *memory);

/* The same for every buffer that the operation uses by itself in this direction. */
struct memory allocate_buffers(dynnorm_descriptor *call, enum direction direction, size_t misalignment);

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

/* A call, and the memory that its buffers lie in. */
struct test_call {
    dynnorm_descriptor call;
    struct memory memory;
};

/* A descriptor of a kernel with parameters that are none of the defaults, and no buffers yet. */
dynnorm_descriptor describe(const struct listed_kernel *kernel, size_t tokens, size_t channels);

/* A call that has all buffers of its kernel, the inputs filled. */
struct test_call new_call(const struct listed_kernel *kernel, size_t tokens, size_t channels, uint64_t seed);
void free_call(struct test_call *test);

dynnorm_status run_call(enum direction direction, const dynnorm_descriptor *call);

/* Fills every input that the call has: weights with values between 1/2 and 3/2, mean and rstd with what a forward pass
 * computes, all else with values of mean 0 and deviation 1. The same seed and shape give the same values, wherever the
 * buffers lie. */
void fill_inputs(const dynnorm_descriptor *call, enum direction direction, uint64_t seed);

/* Of a backward pass that is given mean and rstd: fills them with what a forward pass computes of x, as callers do; or
 * with values that have nothing to do with x. */
void compute_statistics(const dynnorm_descriptor *call);
void fill_statistics(const dynnorm_descriptor *call, uint64_t seed);

/* Makes every NaN in the outputs the same one: the library promises a NaN, but not which. */
void unify_nans(const dynnorm_descriptor *call, enum direction direction);

/* Room for a sentence about a difference. */
struct difference {
    char text[160];
};

/* Compares one buffer of two calls of the same shape bit for bit, whatever their strides. Returns 1, and describes the
 * first difference, if they differ. */
int buffer_differs(const dynnorm_descriptor *got, const dynnorm_descriptor *expected, const struct buffer *buffer,
                   struct difference *difference);

/* The same for all outputs that both calls have. */
int outputs_differ(const dynnorm_descriptor *got, const dynnorm_descriptor *expected, enum direction direction,
                   struct difference *difference);

#endif
