/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of elementwise operations where f is not computed in the usual way, where weight times scale
 * overflows, or of rows of tiny x. It is compiled once for each table, and calls the operation's functions through
 * their pointers.
 */
#ifndef DYNNORM_FORWARD_UNUSUAL_ROWS_H
#define DYNNORM_FORWARD_UNUSUAL_ROWS_H

#include "rows/forward/elementwise.h"

/* A block whose parameters are ready. */
OUTLINED void forward_unusual_channels(const struct elementwise_block *block, size_t count,
                                       const struct call_constants *call, const struct elements *elements) {
    const int is_tiny = block->is_tiny;
    forward_unusual_function *const vectors =
        SUBNORMALS_ARE_SLOW && is_tiny ? elements->forward_tiny_vectors : elements->forward_unusual_vectors;
    const struct mean_vectors mean = mean_vectors(block->mean, block->mean_correction);
    const struct factors factors = *block->factors;
    const vec zero = vec_set(0);
    for (size_t i = 0; i < count; i += SIDE_BY_SIDE * LANES) {
        vec x[SIDE_BY_SIDE], f[SIDE_BY_SIDE];
        const ptrdiff_t left = (ptrdiff_t)(count - i);
        const int whole = left >= SIDE_BY_SIDE * LANES;
        if (whole) { /* which stay in registers */
            UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++) x[k] = vec_load(block->x + i + LANES * k);
        } else {
            for (int k = 0; k < SIDE_BY_SIDE; k++)
                x[k] = vec_load_n(block->x + i + LANES * k, left - LANES * k, zero);
        }
        take_mean_out(x, SIDE_BY_SIDE, &mean, elements);
        vectors(f, x, block->parameters, i);
        if (whole && !factors.overflow && !is_tiny) {
            UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++)
                vec_store(block->y + i + LANES * k, vec_fma(f[k], vec_load(factors.values + i + LANES * k),
                                                            vec_load(block->bias + i + LANES * k)));
            continue;
        }
        for (int k = 0; k < SIDE_BY_SIDE && LANES * k < left; k++) {
            const struct place place = {(ptrdiff_t)i + LANES * k, left - LANES * k, whole};
            const vec factor = load_vector(factors.values, place, zero), bias = load_vector(block->bias, place, zero);
            vec y = sum_with_product(f[k], factor, bias, is_tiny);
            if (factors.overflow)
                y = forward_with_overflow(f[k], factor, load_vector(factors.weight, place, zero), bias, call, elements);
            store_vector(block->y, place, y);
        }
    }
}

/* The block of some rows, whose parameters are made if they are not ready. */
INLINE struct elementwise_block unusual_block(const struct rows_of_block *rows, struct channel_parameters *made,
                                              const struct call_constants *call, const struct elements *elements) {
    struct elementwise_block block = rows->first;
    if (!block.parameters || !block.parameters->are_ready) {
        elements->channel_parameters(made, &call->parameter, rows->count, 1);
        block.parameters = made;
    }
    return block;
}

void FORWARD_UNUSUAL_ROWS(const struct rows_of_block *rows, const struct call_constants *call,
                          const struct elements *elements) {
    struct channel_parameters made;
    struct elementwise_block block = unusual_block(rows, &made, call, elements);
    for (size_t row = 0; row < rows->rows; row++) {
        take_row(&block, rows, row, elements->is_centered);
        forward_unusual_channels(&block, rows->count, call, elements);
    }
}

void FORWARD_TINY_ROW(const struct rows_of_block *rows, size_t row, const struct call_constants *call,
                      const struct elements *elements) {
    struct channel_parameters made;
    struct elementwise_block block = unusual_block(rows, &made, call, elements);
    block.is_tiny = 1;
    take_row(&block, rows, row, elements->is_centered);
    forward_unusual_channels(&block, rows->count, call, elements);
}

#endif
