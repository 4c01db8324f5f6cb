/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Passes whose rows go through buffers of floats: because their elements are of another type, a residual is added
 * before, or something is rounded, scaled or added after. Some rows at a time are read into a buffer that stays in the
 * nearest caches, a kernel computes them there as ever, and the results are written as the caller wants them. So the
 * kernels know nothing of all this, and the bits are those of the same call in float, and what is done before and
 * after. Backward kernels but that of the centered DyISRU read and write rows of other types by themselves, with
 * buffers that they are given: see rows/typed_rows.h.
 */
#ifndef DYNNORM_API_BUFFERED_ROWS_H
#define DYNNORM_API_BUFFERED_ROWS_H

#include "api/passes.h"
#include "api/sums.h"
#include "element_types.h"

/* Whether a pass needs this, which is left out without HAS_TYPES. */
int dynnorm_forward_is_buffered(const dynnorm_descriptor *call);
int dynnorm_backward_is_buffered(const dynnorm_descriptor *call);

/* Whether a buffered forward pass can go without buffers, as far as its types are concerned, if the operation has a
 * kernel for them: see halves_kernel. */
int dynnorm_forward_is_fused(const dynnorm_descriptor *call);

/* The brief mode is for calls without a residual: see dynnorm.h. */
static inline dynnorm_mode dynnorm_mode_of_halves(const dynnorm_descriptor *call) {
    return call->mode == DYNNORM_BRIEF && call->residual.data ? DYNNORM_PORTABLE : call->mode;
}

/* The arguments of such a kernel for all rows on one axis without gaps: without x, y, statistics, and alpha or beta. An
 * absent bias is -0: see reader.h. */
static inline struct halves_call dynnorm_halves_call(const dynnorm_descriptor *call) {
    const dynnorm_vector weight = call->weight, bias = call->bias;
    return (struct halves_call){.x_stride = HALF_BYTES * call->channels,
                                .y_stride = HALF_BYTES * call->channels,
                                .weight = {weight.data, weight.type, weight.data ? call->weight_offset : 1},
                                .bias = {bias.data, bias.type, bias.data ? 0 : -0.0f},
                                .eps = call->eps,
                                .scale = call->scale,
                                .channels = call->channels,
                                .type = call->x.type};
}

/* How many bytes of buffers a pass needs for so many of its rows, or fewer; of any alignment. A pass whose buffers are
 * small has them on the stack, and needs 0. */
size_t dynnorm_forward_buffer_bytes(const struct forward_pass *pass, size_t rows);
size_t dynnorm_backward_buffer_bytes(const struct backward_pass *pass);

/* Whether a buffered backward pass takes the gradients of the channels along with its sums: see struct partial_sums. */
int dynnorm_backward_is_of_one_row(const dynnorm_descriptor *call);

/* Rows of a prepared call. */
struct prepared_rows {
    size_t first;
    size_t count;
    size_t step;
};

/* Makes the sums with the residual of rows of a prepared call, and returns 1. Returns 0, and has done nothing, unless
 * the sum is asked for and of the same type as x and the residual, their rows lie on one axis each, there is no
 * residual_bias, and the rows have so few elements that nobody wants them past the caches. */
int dynnorm_sum_few_rows(const struct forward_pass *pass, const void *x, const struct prepared_rows *rows);

/* Computes rows of a prepared call without buffers and without a copy of the pass, and returns 1. Returns 0, and has
 * done nothing, if that cannot be done. */
int dynnorm_run_prepared_halves(const struct forward_pass *pass, void *y, const void *x,
                                const struct prepared_rows *rows);

/* Computes rows [first, first + rows). */
void dynnorm_buffered_forward(const struct forward_pass *pass, void *buffers, size_t first, size_t rows);

/* Computes a block of rows, or the beginning of one, and its sums over tokens. */
void dynnorm_buffered_backward(const struct backward_pass *pass, void *buffers, size_t first, size_t rows,
                               const struct partial_sums *sums);

#endif
