/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Conditions under which a call with one token, or few, need not go the general way, whose checks would take longer
 * than the arithmetic. Most are joined bit by bit, so that there is one branch for all of them; casts to int tell clang
 * that this is meant. They may send a correct call the general way, which then finds nothing wrong with it.
 */
#ifndef DYNNORM_API_FEW_ROWS_H
#define DYNNORM_API_FEW_ROWS_H

#include "dispatch/caches.h"
#include "dynnorm.h"
#include "inlining.h"
#include "rows/floats.h"

#include <math.h>
#include <stdint.h>

/* Whether a and b, which have bytes each and at least one, share any; or one of them wraps around the address space. */
INLINE int meet(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (uintptr_t)a - (uintptr_t)b + (a_bytes - 1) < a_bytes + b_bytes - 1;
}

/* Whether a tensor's rows lie one after the other. */
INLINE int is_in_one_piece(const dynnorm_descriptor *call, const dynnorm_tensor *tensor) {
    return !tensor->row_stride || tensor->row_stride == call->channels;
}

/* Whether a call has so few tokens. The product of both numbers cannot overflow then. */
INLINE int has_few_rows(const dynnorm_descriptor *call) {
    enum { MOST_TOKENS = 1 << 12 };
    return call->tokens <= MOST_TOKENS && call->channels <= FEW_ELEMENTS &&
           call->tokens * call->channels <= FEW_ELEMENTS;
}

/* 0 if it is NULL. */
INLINE size_t bits_of_address(const void *address) {
    return (size_t)address;
}

/* Some bits, unless a call has no axes, executor, residual_bias, alphas or betas, and no parameter_per_channel. */
INLINE size_t bits_of_unusual_fields(const dynnorm_descriptor *call) {
    const size_t axes = call->axes | bits_of_address(call->x_axis_strides) | bits_of_address(call->y_axis_strides) |
                        bits_of_address(call->dy_axis_strides) | bits_of_address(call->dx_axis_strides) |
                        bits_of_address(call->residual_axis_strides) | bits_of_address(call->sum_axis_strides) |
                        bits_of_address(call->dsum_axis_strides);
    const size_t pool = (size_t)(call->executor.parallel_for != NULL) | bits_of_address(call->executor.pool) |
                        call->executor.threads | call->executor.least_elements;
    const size_t vectors = bits_of_address(call->residual_bias.data) | bits_of_address(call->alphas.data) |
                           bits_of_address(call->betas.data);
    return axes | pool | vectors | (size_t)call->parameter_per_channel;
}

/* Whether a parameter is finite and its sign bit is 0. */
INLINE int is_finite_and_not_negative(float parameter) {
    return bits_of_float(parameter) < INFINITY_BITS;
}

INLINE int is_finite(float parameter) {
    return is_finite_and_not_negative(fabsf(parameter));
}

/* What has been done of a call. */
enum what_is_done {
    NOTHING_IS_DONE, /* something about it is unusual */
    SUM_IS_DONE,     /* what is left is a plain call whose x is the sum */
    ROWS_ARE_DONE
};

/* Computes the sum with the residual, if there is one, and rows of 16 bits. The call has so few elements that nobody
 * wants them past the caches. It has no axes, executor, residual_bias, alphas or betas, y_scale or y_scales, or
 * parameter_per_channel; fields that forward ignores may be anything. */
enum what_is_done dynnorm_forward_few_rows(const dynnorm_descriptor *call);

/* Whether nothing is wrong with a backward call, which may be anything: it has few tokens, no axes, executor, residual,
 * alphas or betas, its tensors have no gaps between rows, and its buffers share nothing, but for dx in the place of an
 * input. */
int dynnorm_backward_is_usual(const dynnorm_descriptor *call);

/* A call with few tokens that is plain but for its mode, with rows of floats that lie one after the other. DyT and
 * DyISRU in the native mode go straight to a kernel, all else the general way. It is one of plain.c's ways. */
dynnorm_status dynnorm_forward_few_native_rows(const dynnorm_descriptor *call);

#endif
