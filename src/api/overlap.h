/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Whether buffers share memory.
 */
#ifndef DYNNORM_API_OVERLAP_H
#define DYNNORM_API_OVERLAP_H

#include "api/tensors.h"

#include <stdint.h>

/* A buffer that is absent or holds nothing begins and ends at 0. */
struct buffer {
    const char *name; /* of its field in the descriptor */
    uintptr_t begin;
    uintptr_t end;
    const struct tensor *tensor; /* where its rows lie between begin and end; NULL: it is in one piece */
    size_t row_bytes;
};

/* The data may be NULL. */
static inline struct buffer dynnorm_buffer_of_tensor(const char *name, const struct tensor *tensor, size_t channels) {
    struct buffer buffer = {name, 0, 0, tensor, channels * tensor->element_bytes};
    if (tensor->data && tensor->rows[0]) {
        buffer.begin = (uintptr_t)tensor->data;
        buffer.end = buffer.begin + dynnorm_last_row(tensor) * tensor->element_bytes + buffer.row_bytes;
    }
    return buffer;
}

static inline struct buffer dynnorm_buffer_in_one_piece(const char *name, const void *data, size_t bytes) {
    uintptr_t begin = data && bytes ? (uintptr_t)data : 0;
    return (struct buffer){name, begin, begin ? begin + bytes : 0, NULL, bytes};
}

/* Whether two buffers whose extents meet share a byte. */
int dynnorm_share_bytes(const struct buffer *a, const struct buffer *b);

/* Whether two buffers share a byte. The answer is exact where the strides of one are among those of the other, after
 * axes are merged: in particular where both have the same strides, or one is in one piece. Otherwise buffers whose
 * extents meet count as overlapping. */
static inline int dynnorm_overlap(const struct buffer *a, const struct buffer *b) {
    return a->begin < b->end && b->begin < a->end && dynnorm_share_bytes(a, b);
}

/* Whether two rows of a tensor with several axes share a byte. */
int dynnorm_rows_share_bytes(const struct buffer *buffer);

/* Whether two rows of a tensor share a byte; exact. */
static inline int dynnorm_rows_overlap(const struct buffer *buffer) {
    const struct tensor *tensor = buffer->tensor;
    if (!buffer->begin)
        return 0;
    if (tensor->axes == 1)
        return tensor->rows[0] > 1 && tensor->strides[0] * tensor->element_bytes < buffer->row_bytes;
    return dynnorm_rows_share_bytes(buffer);
}

#endif
