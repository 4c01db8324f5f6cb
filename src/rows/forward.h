/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of operations with a reduction: y = w f(x) + b, channel by channel, once a row's
 * constants are known.
 */
#ifndef DYNNORM_FORWARD_H
#define DYNNORM_FORWARD_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/floats.h"
#include "rows/reader.h"
#include "rows/writer.h"

/* ---- A block of a row ---- */

/* Where a block's floats lie. bias is NULL for an operation without one. */
struct forward_block {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
};

INLINE struct forward_block later_in_block(const struct forward_block *block, size_t i) {
    return (struct forward_block){block->y + i, block->x + i, block->weight + i, block->bias ? block->bias + i : NULL};
}

/* Up to LANES channels. */
INLINE void forward_some(const struct forward_block *block, size_t count, vec f) {
    ptrdiff_t n = (ptrdiff_t)count;
    vec zero = vec_set(0);
    vec weight = vec_load_n(block->weight, n, zero);
    vec y = block->bias ? vec_fma(f, weight, vec_load_n(block->bias, n, zero)) : vec_mul(f, weight);
    vec_store_n(block->y, y, n);
}

/* The rest of a block, where some of the elements are rare. */
RARE void forward_rare(struct forward_block block, size_t count, struct row_constants row, struct call_constants call,
                       const struct elements *elements) {
    for (size_t i = 0; i < count; i += LANES) {
        struct forward_block rest = later_in_block(&block, i);
        vec x = vec_load_n(rest.x, (ptrdiff_t)(count - i), vec_set(0));
        int is_rare = vec_any_bits_above(elements->rare_forward_bits(x, &row, &call), call.rare_span);
        forward_function *forward = is_rare ? elements->rare_forward : elements->forward;
        forward_some(&rest, count - i, forward(x, &row, &call, elements));
    }
}

enum { FORWARD_VECTORS = 4 };

/* Some vectors side by side, so that the arithmetic of one fills the waits of another. Gives 0, and has written
 * nothing, where an element is rare. */
INLINE int forward_vectors(struct forward_block block, int count, const struct row_constants *row,
                           const struct call_constants *call, const struct elements *elements) {
    vec y[FORWARD_VECTORS], rare_bits = vec_set(0);
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        vec x = vec_load(block.x + LANES * k), weight = vec_load(block.weight + LANES * k);
        vec f = elements->forward(x, row, call, elements);
        y[k] = block.bias ? vec_fma(f, weight, vec_load(block.bias + LANES * k)) : vec_mul(f, weight);
        if (elements->rare_forward) {
            vec bits = elements->rare_forward_bits(x, row, call);
            rare_bits = k ? vec_max_bits(rare_bits, bits) : bits;
        }
    }
    if (elements->rare_forward && vec_any_bits_above(rare_bits, call->rare_span))
        return 0;
#pragma GCC unroll 4
    for (int k = 0; k < count; k++)
        vec_store(block.y + LANES * k, y[k]);
    return 1;
}

INLINE void forward_block(const struct forward_block *block, size_t count, const struct row_constants *row,
                          const struct call_constants *call, const struct elements *elements) {
    size_t i = 0;
    for (; i + FORWARD_VECTORS * LANES <= count; i += FORWARD_VECTORS * LANES) {
        if (!forward_vectors(later_in_block(block, i), FORWARD_VECTORS, row, call, elements))
            goto rare;
        MODEL_PASS("y", 0, FORWARD_VECTORS * LANES);
    }
    for (; i + LANES <= count; i += LANES)
        if (!forward_vectors(later_in_block(block, i), 1, row, call, elements))
            goto rare;
    if (LANES > 1 && i < count) {
        struct forward_block rest = later_in_block(block, i);
        vec x = vec_load_n(rest.x, (ptrdiff_t)(count - i), vec_set(0));
        if (elements->rare_forward && vec_any_bits_above(elements->rare_forward_bits(x, row, call), call->rare_span))
            goto rare;
        forward_some(&rest, count - i, elements->forward(x, row, call, elements));
    }
    return;
rare:
    forward_rare(later_in_block(block, i), count - i, *row, *call, elements);
}

/* A row's inputs, and where its y goes. */
struct forward_row {
    struct reader x;
    struct reader weight;
    struct reader bias;
    struct output output;
    size_t index;
    struct write_buffer *buffer;
};

/* A row that float cannot hold. */
RARE void forward_row_in_double(struct forward_row row, struct row_constants constants, struct call_constants call,
                                const struct elements *elements) {
    for (size_t first = 0; first < call.channels; first += BLOCK) {
        struct block block = block_at(first, call.channels);
        const struct block_in_double values = {.count = block.count,
                                               .x = read_block(&row.x, block),
                                               .weight = read_block(&row.weight, block),
                                               .bias = elements->has_bias ? read_block(&row.bias, block) : NULL,
                                               .y = block_to_write(&row.output, row.index, block, row.buffer)};
        elements->forward_in_double(&values, &constants, &call);
        block_is_written(&row.output, row.index, block, row.buffer);
    }
}

/* ---- Operations with a reduction ---- */

/* While the sums of one row are made, y of the row before it is computed: the loads of the one go along with the
 * arithmetic of the other. */
INLINE void forward_reduction(const struct forward_arguments *arguments, size_t first, size_t rows,
                              const struct operation *operation) {
    const struct elements *elements = operation->elements;
    const struct call_constants call =
        operation->begin_call(arguments->channels, arguments->eps, arguments->parameter, arguments->scale);
    const struct reader no_reader = {NULL, 0, NULL, NULL};
    float weight_buffer[BLOCK], bias_buffer[BLOCK];
    struct write_buffer buffer;
    buffer.held = 0;
    const struct rows inputs = rows_of(&arguments->x);
    const struct output y = write_tensor(&arguments->y, call.channels, 0, arguments->streams);
    const struct reader weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer);
    const struct reader bias = elements->has_bias ? read_bias(arguments->bias, bias_buffer) : no_reader;
    const size_t end = first + rows;

    struct reader summed = no_reader, x = no_reader; /* the row that is summed, and the one before it */
    struct row_constants row = {0};
    int has_y = 0; /* whether there is a row before, whose y is still to be computed */
    for (size_t index = first;; index++) {
        struct channel_sums sums;
        clear_sums(&sums);
        if (index < end)
            summed = read_row(&inputs, index);
        if (is_beyond_caches(&y))
            prefetch_row(&summed, &inputs, index + 1, end);
        for (size_t channel = 0; channel < call.channels; channel += BLOCK) {
            struct block block = block_at(channel, call.channels);
            if (index < end)
                operation->add_sums(&sums, read_block(&summed, block), block.count);
            if (!has_y)
                continue;
            const struct forward_block part = {block_to_write(&y, index - 1, block, &buffer), read_block(&x, block),
                                               read_block(&weight, block),
                                               elements->has_bias ? read_block(&bias, block) : NULL};
            forward_block(&part, block.count, &row, &call, elements);
            block_is_written(&y, index - 1, block, &buffer);
        }
        if (index >= end)
            break;
        summed.next = NULL;
        operation->begin_row(&row, &sums, &summed, &call);
        if (arguments->mean)
            store_float(arguments->mean + index, row.mean);
        if (arguments->rstd)
            store_float(arguments->rstd + index, row.rstd);
        x = summed;
        has_y = y.rows.data && !row.is_in_double;
        if (y.rows.data && row.is_in_double)
            forward_row_in_double((struct forward_row){x, weight, bias, y, index, &buffer}, row, call, elements);
    }
    end_writing(&y);
}

#endif
