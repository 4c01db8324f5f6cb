/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where the rows of a tensor lie.
 */
#ifndef DYNNORM_TENSOR_H
#define DYNNORM_TENSOR_H

#include "inlining.h"

#include <stddef.h>
#include <stdint.h>

enum { MOST_AXES = 3 };

/* The most floats that a tensor may extend over. Everything that is as large as a tensor, the workspace in doubles
 * included, then stays addressable as a difference of pointers. */
#define MOST_FLOATS ((size_t)PTRDIFF_MAX / (4 * sizeof(double)))

/* The rows of a tensor lie on one to three axes, the first of which is the innermost: row r is at index r % rows[0] of
 * the first axis, r / rows[0] % rows[1] of the second, and so on. Axes that continue one another are merged before a
 * kernel sees them, so that nearly every tensor has one axis. */
struct tensor {
    float *data;          /* NULL: there is no such tensor. An input is only read. No alignment is required. */
    size_t element_bytes; /* of float, for kernels */
    size_t axes;
    size_t rows[MOST_AXES];
    size_t strides[MOST_AXES]; /* elements from one row to the next on each axis */
};

/* How many elements after the first row a row begins that lies on several axes. */
#ifdef __GNUC__
__attribute__((noinline, unused))
#endif
static size_t
offset_on_axes(const struct tensor *tensor, size_t row) {
    size_t offset = 0;
    for (size_t axis = 0; axis + 1 < tensor->axes; axis++) {
        offset += row % tensor->rows[axis] * tensor->strides[axis];
        row /= tensor->rows[axis];
    }
    return offset + row * tensor->strides[tensor->axes - 1];
}

INLINE size_t offset_of_row(const struct tensor *tensor, size_t row) {
    return tensor->axes == 1 ? row * tensor->strides[0] : offset_on_axes(tensor, row);
}

/* Of elements of any type. */
OUTLINED unsigned char *address_of_row(const struct tensor *tensor, size_t row) {
    return (unsigned char *)tensor->data + offset_of_row(tensor, row) * tensor->element_bytes;
}

/* What a driver keeps of a tensor in registers. */
struct rows {
    float *data;
    size_t stride;               /* of the first axis */
    const struct tensor *tensor; /* NULL if there is only one axis */
};

INLINE struct rows rows_of(const struct tensor *tensor) {
    return (struct rows){tensor->data, tensor->strides[0], tensor->axes == 1 ? NULL : tensor};
}

/* How many rows from the given one on are equally far apart. */
INLINE size_t rows_on_first_axis(const struct tensor *tensor, size_t row) {
    return tensor->axes == 1 ? SIZE_MAX : tensor->rows[0] - row % tensor->rows[0];
}

/* These rows, counted from 0. */
INLINE struct rows rows_from(const struct tensor *tensor, size_t row) {
    float *data = tensor->data;
    if (data)
        data += offset_of_row(tensor, row);
    return (struct rows){data, tensor->strides[0], NULL};
}

/* Whether every row begins at a multiple of so many bytes. */
INLINE int rows_are_aligned(const struct tensor *tensor, size_t bytes) {
    uintptr_t offsets = (uintptr_t)tensor->data;
    for (size_t axis = 0; axis < tensor->axes; axis++)
        offsets |= tensor->strides[axis] * tensor->element_bytes;
    return offsets % bytes == 0;
}

/* The first channel of a row. */
INLINE float *row_of(const struct rows *rows, size_t row) {
    return rows->data + (rows->tensor ? offset_on_axes(rows->tensor, row) : row * rows->stride);
}

#endif
