/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of elementwise operations: y = (w s) f(x) + b. The centered DyISRU is one of them once
 * the mean of each row is known, which is then subtracted from x.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_H
#define DYNNORM_FORWARD_ELEMENTWISE_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/reader.h"
#include "rows/row_means.h"
#include "rows/writer.h"

/* ---- The factors of a block of channels ---- */

/* A block's weights times scale and forward_factor, made once for some rows. */
struct factors {
    const float *values;
    const float *weight; /* without scale, for channels where the product is not finite */
    int overflow;        /* whether there are such channels */
    float *buffer;       /* of BLOCK floats */
};

/* The product with scale is the one that may overflow: forward_factor is at most 1. */
INLINE void make_factors(struct factors *factors, const float *weight, size_t count, const struct call_constants *call,
                         const struct elements *elements) {
    vec scale = vec_set(call->scale), forward_factor = vec_set(elements->forward_factor);
    vec largest = vec_set(0);
    factors->values = factors->weight = weight;
    factors->overflow = 0;
    if (call->scale * elements->forward_factor == 1)
        return;
    for (size_t i = 0; i < count; i += LANES) {
        ptrdiff_t left = (ptrdiff_t)(count - i);
        vec values = left >= LANES ? vec_load(weight + i) : vec_load_n(weight + i, left, vec_set(0));
        vec product = vec_mul(values, scale);
        largest = vec_max_bits(largest, vec_abs(product));
        vec_store(factors->buffer + i, elements->forward_factor == 1 ? product : vec_mul(product, forward_factor));
    }
    factors->values = factors->buffer;
    factors->overflow = vec_any_bits_above(largest, FLOAT_MAX_BITS);
}

/* ---- A block of a row ---- */

struct elementwise_block {
    float *y;
    const float *x;
    const float *bias;
    const struct factors *factors;
    float mean; /* of the row, as in row_means.h. Where none is subtracted it means nothing. */
    float mean_correction;
};

/* How a block is computed and stored, as constants. */
struct elementwise_loop {
    int way;
    int past_caches; /* y begins at a cache line and has whole ones */
};

/* Where some vectors begin: one after the other from first on, but for the last of them. */
struct places {
    size_t first;
    size_t last;
};

/* x, less the mean of the row if the operation takes it out. */
INLINE void take_mean_out(vec *x, int count, const struct mean_vectors *mean, const struct elements *elements) {
    if (elements->is_centered)
        EACH(x[k] = take_mean_from(x[k], mean));
}

/* Some vectors side by side. The last may overlap the one before it: all are read before any is written. */
INLINE void forward_side_by_side(const struct elementwise_block *block, struct places places, int count,
                                 const struct elementwise_loop *loop, const struct call_constants *call,
                                 const struct elements *elements) {
    vec x[SIDE_BY_SIDE], f[SIDE_BY_SIDE];
    size_t i[SIDE_BY_SIDE];
    const struct mean_vectors mean = mean_vectors(block->mean, block->mean_correction);
    EACH(i[k] = k == count - 1 ? places.last : places.first + LANES * k);
    EACH(x[k] = vec_load(block->x + i[k]));
    take_mean_out(x, count, &mean, elements);
    elements->forward_vectors(f, x, count, loop->way, call, elements);
    EACH(f[k] = vec_fma(f[k], vec_load(block->factors->values + i[k]), vec_load(block->bias + i[k])));
    if (loop->past_caches)
        EACH(vec_stream(block->y + i[k], f[k]))
    else
        EACH(vec_store(block->y + i[k], f[k]))
}

/* Up to LANES channels. Where weight times scale overflows f is multiplied by scale first. */
INLINE void forward_some_channels(const struct elementwise_block *block, size_t i, size_t count, int way,
                                  const struct call_constants *call, const struct elements *elements) {
    ptrdiff_t n = (ptrdiff_t)count;
    const struct mean_vectors mean = mean_vectors(block->mean, block->mean_correction);
    vec zero = vec_set(0), f, x = vec_load_n(block->x + i, n, zero);
    vec bias = vec_load_n(block->bias + i, n, zero), factor = vec_load_n(block->factors->values + i, n, zero);
    take_mean_out(&x, 1, &mean, elements);
    elements->forward_vectors(&f, &x, 1, way, call, elements);
    vec y = vec_fma(f, factor, bias);
    if (block->factors->overflow) {
        vec scaled = vec_mul(vec_mul(f, vec_set(elements->forward_factor)), vec_set(call->scale));
        vec weight = vec_load_n(block->factors->weight + i, n, zero);
        y = vec_select_outside(vec_abs(factor), 0, FLOAT_MAX_BITS, vec_fma(scaled, weight, bias), y);
    }
    vec_store_n(block->y + i, y, n);
}

INLINE void forward_elementwise_block(const struct elementwise_block *block, size_t count,
                                      const struct elementwise_loop *loop, const struct call_constants *call,
                                      const struct elements *elements) {
    const int at_once = elements->vectors_at_once;
    size_t i = 0, vectors = (count + LANES - 1) / LANES;
    if (vectors < 2 || block->factors->overflow) {
        for (; i < count; i += LANES)
            forward_some_channels(block, i, count - i, loop->way, call, elements);
        return;
    }
    const size_t end = count - LANES; /* where the last one begins */
    for (; vectors >= (size_t)at_once && vectors != (size_t)at_once + 1; vectors -= (size_t)at_once) {
        size_t last = i + LANES * (at_once - 1);
        forward_side_by_side(block, (struct places){i, last < end ? last : end}, at_once, loop, call, elements);
        MODEL_PASS("y", 0, at_once * LANES);
        i += LANES * at_once;
    }
    if (vectors % 2) { /* three or five */
        size_t last = i + LANES * 2;
        forward_side_by_side(block, (struct places){i, last < end ? last : end}, 3, loop, call, elements);
        i += LANES * 3;
        vectors -= 3;
    }
    if (at_once > 2 && vectors)
        forward_side_by_side(block, (struct places){i, end}, 2, loop, call, elements);
}

/* ---- Rows ---- */

enum { ROWS_AT_ONCE = ROWS_OF_MEANS };

/* So many rows that they stay in the second-level cache until y is computed, where their means are needed first. */
INLINE size_t rows_at_once(size_t channels, const struct elements *elements) {
    const size_t most_channels = 16384;
    return elements->is_centered && channels > most_channels ? 2 : ROWS_AT_ONCE;
}

INLINE void find_means_of_group(struct row_means *means, const struct rows *x, size_t first, size_t count,
                                size_t channels) {
    const float *rows[ROWS_OF_MEANS];
    for (size_t i = 0; i < count; i++)
        rows[i] = row_of(x, first + i);
    find_row_means(means, rows, count, channels);
}

/* Some rows at a time in blocks of channels, so that factors and bias of a block are read from the nearest cache. */
INLINE void forward_elementwise_rows(const struct forward_arguments *arguments, size_t first, size_t rows, int way,
                                     const struct call_constants *call, const struct elements *elements) {
    const size_t channels = arguments->channels, at_once = rows_at_once(channels, elements);
    _Alignas(64) float factor_buffer[BLOCK], weight_buffer[BLOCK], bias_buffer[BLOCK];
    struct write_buffer buffers[ROWS_AT_ONCE];
    const struct rows x = rows_of(&arguments->x);
    const int may_be_direct = way == 0 && channels % FLOATS_OF_LINE == 0;
    const struct output y = may_be_direct ? write_tensor_directly(&arguments->y, channels, arguments->streams)
                                          : write_tensor(&arguments->y, channels, 0, arguments->streams);
    const struct reader weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer);
    const struct reader bias = read_bias(arguments->bias, bias_buffer);
    const int has_prefetch = is_beyond_caches(&y) && channels >= BLOCK; /* the CPU itself fetches short rows ahead */
    struct factors factors = {.buffer = factor_buffer};
    struct row_means means;
    for (size_t i = 0; i < ROWS_AT_ONCE; i++)
        buffers[i].held = 0;
    for (size_t group = first; group < first + rows; group += at_once) {
        size_t end = first + rows - group < at_once ? first + rows : group + at_once;
        if (elements->is_centered)
            find_means_of_group(&means, &x, group, end - group, channels);
        for (size_t channel = 0; channel < channels; channel += BLOCK) {
            struct block block = block_at(channel, channels);
            if (group == first || channels > BLOCK)
                make_factors(&factors, read_block(&weight, block), block.count, call, elements);
            const float *b = read_block(&bias, block);
            for (size_t row = group; row < end; row++) {
                struct reader input = read_row(&x, row);
                if (has_prefetch)
                    prefetch_row(&input, &x, row + at_once, first + rows);
                struct write_buffer *buffer = &buffers[row - group];
                struct elementwise_block part = {.y = block_to_write(&y, row, block, buffer),
                                                 .x = read_block(&input, block),
                                                 .bias = b,
                                                 .factors = &factors};
                if (elements->is_centered) {
                    part.mean = means.mean[row - group];
                    part.mean_correction = means.correction[row - group];
                }
                if (way == 0 && y.is_direct)
                    forward_elementwise_block(&part, block.count, &(const struct elementwise_loop){way, 1}, call,
                                              elements);
                else
                    forward_elementwise_block(&part, block.count, &(const struct elementwise_loop){way, 0}, call,
                                              elements);
                block_is_written(&y, row, block, buffer);
            }
        }
    }
    end_writing(&y);
}

INLINE void forward_elementwise(const struct forward_arguments *arguments, size_t first, size_t rows,
                                const struct operation *operation) {
    if (!arguments->y.data)
        return;
    const struct call_constants call =
        operation->begin_call(arguments->channels, 0, arguments->parameter, arguments->scale);
    const struct elements *elements = operation->elements;
    if (elements->ways < 2 || call.way == 0) {
        forward_elementwise_rows(arguments, first, rows, 0, &call, elements);
    } else if (call.way == 1) {
        MODEL_UNUSUAL();
        forward_elementwise_rows(arguments, first, rows, 1, &call, elements);
    } else {
        MODEL_UNUSUAL();
        forward_elementwise_rows(arguments, first, rows, 2, &call, elements);
    }
}

/* The same for an operation that takes the mean of each row out. */
INLINE void forward_centered(const struct forward_arguments *arguments, size_t first, size_t rows,
                             const struct operation *operation) {
    forward_elementwise(arguments, first, rows, operation);
}

#endif
