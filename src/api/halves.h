/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Forward passes by the kernels for x and y of the same type of 16 bits, which need no buffers.
 */
#ifndef DYNNORM_API_HALVES_H
#define DYNNORM_API_HALVES_H

#include "api/passes.h"
#include "api/residual.h"
#include "dispatch/caches.h"
#include "element_types.h"
#include "operations.h"

/* Whether a call is for them as far as its types are concerned, if the operation has such a kernel. */
int dynnorm_forward_is_fused(const dynnorm_descriptor *call);

/* The brief mode is for calls without a residual or a rounding before the weight: see dynnorm.h. */
static inline dynnorm_mode dynnorm_mode_of_halves(const dynnorm_descriptor *call) {
    const int is_not_brief = call->residual.data || dynnorm_rounds_before_weight(call);
    return call->mode == DYNNORM_BRIEF && is_not_brief ? DYNNORM_PORTABLE : call->mode;
}

/* Whether something is rounded before the weight, and the kernel knows neither of the weight nor of the bias: that of
 * an elementwise operation. Others round by themselves. */
static inline int dynnorm_halves_are_weighed_later(const dynnorm_descriptor *call) {
    return dynnorm_rounds_before_weight(call) && dynnorm_operations[call->operation].has_scale;
}

/* The arguments of such a kernel for all rows on one axis without gaps: without x, y, statistics, and alpha or beta. An
 * absent bias is -0: see reader.h. */
static inline struct halves_call dynnorm_halves_call(const dynnorm_descriptor *call) {
    const dynnorm_vector absent = {NULL, DYNNORM_F32};
    const int is_later = dynnorm_halves_are_weighed_later(call);
    const dynnorm_vector weight = is_later ? absent : call->weight, bias = is_later ? absent : call->bias;
    return (struct halves_call){.x_stride = HALF_BYTES * call->channels,
                                .y_stride = HALF_BYTES * call->channels,
                                .weight = {weight.data, weight.type, weight.data ? call->weight_offset : 1},
                                .bias = {bias.data, bias.type, bias.data ? 0 : -0.0f},
                                .eps = call->eps,
                                .scale = call->scale,
                                .channels = call->channels,
                                .type = call->x.type,
                                .rounds_before_weight = dynnorm_rounds_before_weight(call),
                                .rounds_by_instruction = dynnorm_rounds_by_instruction()};
}

/* Whether the kernel can run the pass; if there is a residual, once its sums are made. */
int dynnorm_can_run_halves_kernel(const struct forward_pass *pass);

/* Computes rows [row, end), on as many axes as they lie. x has them from row_of_x on; if they are summed, it is where
 * their sums go. */
void dynnorm_run_halves_kernel(const struct forward_pass *pass, const struct tensor *x, size_t row_of_x, size_t row,
                               size_t end, const struct summed_rows *summed);

/* Computes rows of a prepared call without buffers and without a copy of the pass, and returns 1. Returns 0, and has
 * done nothing, if that cannot be done. */
int dynnorm_run_prepared_halves(const struct forward_pass *pass, void *y, const void *x,
                                const struct prepared_rows *rows);

#endif
