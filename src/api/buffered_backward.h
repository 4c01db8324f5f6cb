/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Backward passes whose elements are not all floats, or to whose dx something is added. Their kernels read and write
 * rows of other types by themselves, with buffers that they are given: see rows/typed_rows.h. Only the centered
 * DyISRU's does not know them: it gets some rows at a time in buffers of floats.
 */
#ifndef DYNNORM_API_BUFFERED_BACKWARD_H
#define DYNNORM_API_BUFFERED_BACKWARD_H

#include "api/passes.h"
#include "api/sums.h"

/* Whether a pass needs this, which is left out without HAS_TYPES. */
int dynnorm_backward_is_buffered(const dynnorm_descriptor *call);

/* How many bytes of buffers a pass needs; of any alignment. A pass whose buffers are small has them on the stack, and
 * needs 0. */
size_t dynnorm_backward_buffer_bytes(const struct backward_pass *pass);

/* Whether a buffered backward pass takes the gradients of the channels along with its sums: see struct partial_sums. */
static inline int dynnorm_backward_is_of_one_row(const dynnorm_descriptor *call) {
    return call->tokens == 1 && call->operation != DYNNORM_CENTERED_DYISRU;
}

/* Computes a block of rows, or the beginning of one, and its sums over tokens. */
void dynnorm_buffered_backward(const struct backward_pass *pass, void *buffers, size_t first, size_t rows,
                               const struct partial_sums *sums);

#endif
