/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of elementwise operations: a single row, where it is all there is. The gradients are written at
 * once. See backward/elementwise.h.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_ONE_ROW_H
#define DYNNORM_BACKWARD_ELEMENTWISE_ONE_ROW_H

#include "rows/backward/elementwise_block.h"

/* Of a single row, some vectors side by side that have something rare. */
DYNNORM_INTERNAL void RARE_SINGLE_ROW_STEP(const struct gradient_block *block, struct place place, int count,
                                           const struct elementwise_call *call,
                                           const struct elementwise_functions *operation,
                                           struct parameter_sum *parameter);

/* Where a single row is read and written, and what its channels have in common: copies of what a block has, which stay
 * in registers. */
struct single_row {
    const float *x;
    const float *dy;
    const float *weight;
    float *dx;
    float *dweight;
    float *dbias;
    float factor; /* of dweight */
    struct elementwise_lanes lanes;
};

/* Whether the check is not finite, or what is greatest tells of a rare element. With AVX2 one test takes less time. */
INLINE int any_rare(vec check, vec greatest, const struct elementwise_call *call, const struct elementwise *operation) {
    if (operation->sums_tell)
        return vec_any_not_finite(check);
    if (LANES < 16)
        return vec_any_not_finite(nan_if_rare(check, greatest, call));
    return vec_any_not_finite(check) || vec_any_bits_above(greatest, call->rare_limit);
}

/* A few vectors side by side, the first of which is at the place. */
INLINE void single_row_step(const struct gradient_block *block, const struct single_row *row, struct place place,
                            int count, const struct elementwise_call *call, const struct elementwise *operation,
                            struct parameter_sum *parameter) {
    const int part = count % PARTS ? (int)(place.channel / LANES % PARTS) : 0;
    const float *x[SIDE_BY_SIDE], *dy[SIDE_BY_SIDE];
    struct elementwise_lanes lanes[SIDE_BY_SIDE];
    struct vector_gradients results[SIDE_BY_SIDE];
    vec zero = vec_set(0), check = vec_set(1), greatest = zero, weights[SIDE_BY_SIDE], terms[SIDE_BY_SIDE],
        rare_bits[SIDE_BY_SIDE];
    const struct vectors vectors = {x, dy, weights, lanes, place, count, 0, DYNNORM_F32, NULL};
    EACH(x[k] = row->x + LANES * k);
    EACH(dy[k] = row->dy + LANES * k);
    EACH(lanes[k] = row->lanes);
    EACH(weights[k] = folded_weight(row->weight + LANES * k, place, &lanes[k]));
    if (!operation->sums_tell)
        rare_bits_of(rare_bits, &vectors, operation);
    compute_vectors(results, &vectors, operation);
    UNROLL_UP_TO_4
    for (int k = 0; k < count; k++) {
        vec product = vec_mul(results[k].dy, results[k].f);
        terms[k] = vec_mul(results[k].h, results[k].term);
        /* A product may overflow where its term does not. The check may overflow where neither does, but the rare step
           gives the same. */
        check = vec_fma(product, terms[k], check);
        greatest = operation->sums_tell ? greatest : greater_rare_bits(greatest, rare_bits[k], operation);
        store_vector(row->dx + LANES * k, place, results[k].dx);
        store_vector(row->dweight + LANES * k, place, direct_gradient(product, row->factor));
        store_vector(row->dbias + LANES * k, place, vec_add(zero, results[k].dy));
    }
    if (!any_rare(check, greatest, call, operation) && !any_subnormal(weights, count)) {
        UNROLL_UP_TO_4
        for (int k = 0; k < count; k++) {
            wide *to = &parameter->lanes[(part + k) % PARTS];
            *to = wide_add(*to, widen_by_memory(terms[k]));
        }
        return;
    }
    struct parameter_sum rare = *parameter; /* a copy, lest the loop keeps its own in memory */
    RARE_SINGLE_ROW_STEP(block, place, count, call, operation->functions, &rare);
    *parameter = rare;
}

INLINE void single_row(const struct gradient_block *block, const struct elementwise_call *call,
                       const struct elementwise *operation, struct parameter_sum *parameter) {
    const struct single_row row = {block->x[0],
                                   block->dy[0],
                                   block->weight,
                                   block->dx[0],
                                   block->gradients[0].values,
                                   block->gradients[1].values,
                                   block->factor,
                                   lanes_at(block, (struct place){0, LANES, 1}, call)};
    struct parameter_sum sum = *parameter;
    ptrdiff_t end = (ptrdiff_t)block->channels, i = 0;
    for (; !ONE_BY_ONE && operation->loops == ALL_LOOPS && i + SIDE_BY_SIDE * LANES <= end; i += SIDE_BY_SIDE * LANES) {
        const struct place place = {i, SIDE_BY_SIDE * LANES, 1};
        single_row_step(block, &row, place, SIDE_BY_SIDE, call, operation, &sum);
    }
    struct parameter_sum rest = sum; /* whose parts are told apart at run time, and so lie in memory */
    for (; i < end; i += LANES) {
        const struct place place = {i, end - i, 0};
        single_row_step(block, &row, place, 1, call, operation, &rest);
    }
    *parameter = rest;
}

#endif
