/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The loops of the forward pass of elementwise operations: y = (w s) f(x) + b. The centered DyISRU is one of them once
 * the mean of each row is known, which is then subtracted from x. Their driver is in forward/elementwise_rows.h.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_H
#define DYNNORM_FORWARD_ELEMENTWISE_H

#include "kernel_names.h"
#include "kernels.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/row_means.h"
#include "rows/writer.h"

#include <math.h>

/* ---- The factors of a block of channels ---- */

/* A block's weights times scale and forward_factor, made once for some rows. */
struct factors {
    const float *values;
    const float *weight; /* without scale, for channels where the product is not finite */
    int overflow;        /* whether there are such channels */
    float *buffer;       /* for a block */
};

/* forward_factor is a power of two. So the weight is multiplied by a single number, unless that might be denormal. */
INLINE int has_one_factor(const struct call_constants *call, const struct elements *elements) {
    return elements->forward_factor == 1 || fabsf(call->scale) >= 0x1p-100f;
}

INLINE float one_factor(const struct call_constants *call, const struct elements *elements) {
    return call->scale * elements->forward_factor;
}

INLINE void make_factors(struct factors *factors, const float *weight, size_t count, const struct call_constants *call,
                         const struct elements *elements) {
    const int is_one = has_one_factor(call, elements);
    const vec first = vec_set(is_one ? one_factor(call, elements) : call->scale);
    const vec second = vec_set(is_one ? 1 : elements->forward_factor);
    vec largest = vec_set(0);
    factors->values = factors->weight = weight;
    factors->overflow = 0;
    if (one_factor(call, elements) == 1)
        return;
    for (size_t i = 0; i < count; i += LANES) {
        vec product = vec_mul(load_vector(weight, place_at(i, count), vec_set(0)), first);
        if (elements->forward_factor != 1)
            product = vec_mul(product, second);
        largest = vec_max_bits(largest, vec_abs(product));
        vec_store(factors->buffer + i, product);
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
    const struct channel_parameters *parameters; /* of the block; NULL for a row by itself */
    uint32_t near_limit;                         /* see near_vectors in operation.h */
    float multiplier;                            /* makes factors of the weight where the loop does, and ... */
    int may_overflow;                            /* ... whether one of them might be infinite though a weight is not */
    size_t ahead; /* bytes from x to what is prefetched meanwhile, where y is stored past the caches */
    float mean;   /* of the row, as in row_means.h. Where none is subtracted it means nothing. */
    float mean_correction;
    int is_tiny; /* for forward_tiny_vectors, where the block is unusual */
};

/* How a block is computed and stored, as constants. */
struct elementwise_loop {
    int past_caches;   /* y begins at a cache line and has whole ones */
    int is_one_row;    /* all channels have the call's parameter, and no array of it is made */
    int makes_factors; /* of the weight, for each vector by itself, in a single row. Their values are the weight. */
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

/* Where weight times scale overflows f is multiplied by scale first. */
INLINE vec forward_with_overflow(vec f, vec factor, vec weight, vec bias, const struct call_constants *call,
                                 const struct elements *elements) {
    vec scaled = vec_mul(vec_mul(f, vec_set(elements->forward_factor)), vec_set(call->scale));
    vec y = vec_fma(f, factor, bias);
    return vec_select_outside(vec_abs(factor), 0, FLOAT_MAX_BITS, vec_fma(scaled, weight, bias), y);
}

/* Whether any y is not finite, or their sum is not. */
INLINE int any_y_not_finite(const vec *y, int count) {
    vec sum = y[0];
    UNROLL_UP_TO_4
    for (int k = 1; k < count; k++)
        sum = vec_add(sum, y[k]);
    return vec_any_not_finite(sum);
}

INLINE vec parameter_of_vector(const struct elementwise_block *block, size_t i, const struct elementwise_loop *loop,
                               const struct call_constants *call) {
    return loop->is_one_row ? vec_set(call->parameter) : vec_load(block->parameters->parameter + i);
}

/* Gives it copies, as below. */
INLINE void compute_far_vectors(vec *f, const struct elementwise_block *block, struct places places, int count,
                                float one_parameter, const struct elements *elements) {
    const struct channel_parameters *parameters = block->parameters;
    const struct far_vectors vectors = {
        block->x, parameters ? parameters->parameter : &one_parameter, !parameters, count, places.first, places.last};
    vec far_f[SIDE_BY_SIDE];
    elements->far_vectors(far_f, &vectors);
    EACH(f[k] = far_f[k]);
}

/* Some vectors side by side. The last may overlap the one before it: all are read before any is written. Returns 0, and
 * has written nothing, if a factor that was made may have overflowed. */
INLINE int forward_side_by_side(const struct elementwise_block *block, struct places places, int count,
                                const struct elementwise_loop *loop, const struct call_constants *call,
                                const struct forward_loops *loops) {
    const struct elements *elements = loops->elements;
    vec x[SIDE_BY_SIDE], f[SIDE_BY_SIDE], factor[SIDE_BY_SIDE], parameter[SIDE_BY_SIDE], y[SIDE_BY_SIDE];
    size_t i[SIDE_BY_SIDE];
    const struct mean_vectors mean = mean_vectors(block->mean, block->mean_correction);
    EACH(i[k] = k == count - 1 ? places.last : places.first + LANES * k);
    EACH(x[k] = vec_load(block->x + i[k]));
    if (loop->past_caches)
        for (int k = 0; k < count * LANES; k += FLOATS_OF_LINE)
            prefetch_line(block->x + i[0] + k, block->ahead);
    take_mean_out(x, count, &mean, elements);
    EACH(parameter[k] = parameter_of_vector(block, i[k], loop, call));
    if (!loops->near_vectors)
        loops->vectors(f, x, parameter, count);
    else if (__builtin_expect(vec_any_bits_above(loops->near_vectors(f, x, parameter, count), block->near_limit), 0))
        compute_far_vectors(f, block, places, count, call->parameter, elements);
    EACH(factor[k] = vec_load(block->factors->values + i[k]));
    if (loop->makes_factors)
        EACH(factor[k] = vec_mul(factor[k], vec_set(block->multiplier)));
    EACH(y[k] = vec_fma(f[k], factor[k], vec_load(block->bias + i[k])));
    /* Then y is infinite or NaN. */
    if (loop->makes_factors && block->may_overflow && __builtin_expect(any_y_not_finite(y, count), 0))
        return 0;
    if (loop->past_caches)
        EACH(vec_stream(block->y + i[k], y[k]))
    else
        EACH(vec_store(block->y + i[k], y[k]))
    return 1;
}

/* Up to LANES channels. What is returned is the same. */
INLINE int forward_some_channels(const struct elementwise_block *block, ptrdiff_t count,
                                 const struct elementwise_loop *loop, const struct call_constants *call,
                                 const struct forward_loops *loops) {
    const struct elements *elements = loops->elements;
    const struct mean_vectors mean = mean_vectors(block->mean, block->mean_correction);
    vec zero = vec_set(0), f, x = vec_load_n(block->x, count, zero);
    vec bias = vec_load_n(block->bias, count, zero), factor = vec_load_n(block->factors->values, count, zero);
    take_mean_out(&x, 1, &mean, elements);
    const vec parameter = parameter_of_vector(block, 0, loop, call);
    loops->vectors(&f, &x, &parameter, 1);
    if (loop->makes_factors)
        factor = vec_mul(factor, vec_set(block->multiplier));
    vec y = vec_fma(f, factor, bias);
    if (loop->makes_factors && block->may_overflow && any_y_not_finite(&y, 1))
        return 0;
    vec_store_n(block->y, y, count);
    return 1;
}

/* Some channels of some rows, which lie equally far apart. */
struct rows_of_block {
    struct elementwise_block first; /* the first row's */
    size_t count;
    size_t rows;
    size_t x_stride;
    size_t y_stride;
    int past_caches;               /* as in elementwise_loop */
    int avoids_subnormals;         /* see struct forward_arguments */
    const struct row_means *means; /* where the operation takes them out, and which of them the first row's is */
    size_t first_of_means;
};

INLINE void take_row(struct elementwise_block *block, const struct rows_of_block *rows, size_t row, int is_centered) {
    block->x = rows->first.x + row * rows->x_stride;
    block->y = rows->first.y + row * rows->y_stride;
    if (is_centered) {
        block->mean = rows->means->mean[rows->first_of_means + row];
        block->mean_correction = rows->means->correction[rows->first_of_means + row];
    }
}

/* Whether a row is for forward_tiny_vectors, to judge by its first element. */
INLINE int begins_with_tiny(const float *x, const struct elements *elements) {
    return elements->bits_of_tiny_x && is_tinier(bits_of_float(load_float(x)), elements->bits_of_tiny_x);
}

/* Rows whose f is not computed in the usual way, or whose weight times scale overflows: see forward/unusual_rows.h. */
DYNNORM_INTERNAL void FORWARD_UNUSUAL_ROWS(const struct rows_of_block *rows, const struct call_constants *call,
                                           const struct elements *elements);

/* One of some rows, which is for forward_tiny_vectors. */
DYNNORM_INTERNAL void FORWARD_TINY_ROW(const struct rows_of_block *rows, size_t row, const struct call_constants *call,
                                       const struct elements *elements);

/* An unusual row by itself. Gives it copies: a kernel does not keep in registers what it has given pointers to. */
INLINE void forward_unusual_block(const struct elementwise_block *block, size_t count,
                                  const struct call_constants *call, const struct elements *elements) {
    const struct call_constants constants = *call;
    const struct factors factors = *block->factors;
    struct rows_of_block rows = {.first = *block, .count = count, .rows = 1};
    rows.first.factors = &factors;
    MODEL_UNUSUAL();
    FORWARD_UNUSUAL_ROWS(&rows, &constants, elements);
}

/* A block that is not unusual. Returns how many of its channels are done: all, unless a factor that was made may have
 * overflowed. */
INLINE size_t forward_elementwise_block(const struct elementwise_block *block, size_t count,
                                        const struct elementwise_loop *loop, const struct call_constants *call,
                                        const struct forward_loops *loops) {
    enum { AT_ONCE = SIDE_BY_SIDE };
    size_t i = 0, vectors = (count + LANES - 1) / LANES;
    for (; ONE_BY_ONE && i < count; i++) {
        if (!forward_side_by_side(block, (struct places){i, i}, 1, loop, call, loops))
            return i;
        MODEL_PASS("y", 0, LANES);
    }
    if (ONE_BY_ONE)
        return count;
    if (vectors < 2)
        return forward_some_channels(block, (ptrdiff_t)count, loop, call, loops) ? count : 0;
    const size_t end = count - LANES; /* where the last one begins */
    for (; vectors >= AT_ONCE && (loop->past_caches || vectors != AT_ONCE + 1); vectors -= AT_ONCE) {
        size_t last = i + LANES * (AT_ONCE - 1);
        if (!forward_side_by_side(block, (struct places){i, last < end ? last : end}, AT_ONCE, loop, call, loops))
            return i;
        MODEL_PASS("y", 0, AT_ONCE * LANES);
        i += LANES * AT_ONCE;
    }
    if (loop->past_caches) {
        for (; vectors; vectors--, i += LANES)
            forward_side_by_side(block, (struct places){i, i}, 1, loop, call, loops);
        return count;
    }
    if (vectors % 2) { /* three or five */
        size_t last = i + LANES * 2;
        if (!forward_side_by_side(block, (struct places){i, last < end ? last : end}, 3, loop, call, loops))
            return i;
        i += LANES * 3;
        vectors -= 3;
    }
    if (vectors && !forward_side_by_side(block, (struct places){i, end}, 2, loop, call, loops))
        return i;
    return count;
}

/* ---- Rows ---- */

/* With copies of what is given, which stay in registers while y is written. */
INLINE void forward_rows_of_block(const struct rows_of_block *given, const struct call_constants *call,
                                  const struct forward_loops *loops) {
    const struct rows_of_block rows = *given;
    const struct factors factors = *rows.first.factors;
    struct elementwise_block block = rows.first;
    if (block.parameters->are_unusual || factors.overflow) {
        MODEL_UNUSUAL();
        FORWARD_UNUSUAL_ROWS(given, call, loops->elements);
        return;
    }
    block.factors = &factors;
    /* A row is judged before its y is written, which may take the place of x. The inner loop calls nothing, so that its
       constants stay in registers. */
    for (size_t row = 0; row < rows.rows; row++) {
        int is_tiny = 0;
        for (; row < rows.rows; row++) {
            take_row(&block, &rows, row, loops->elements->is_centered);
            is_tiny = rows.avoids_subnormals && begins_with_tiny(block.x, loops->elements);
            if (is_tiny)
                break;
            if (VEC_CAN_STREAM && rows.past_caches)
                forward_elementwise_block(&block, rows.count, &(const struct elementwise_loop){1, 0, 0}, call, loops);
            else
                forward_elementwise_block(&block, rows.count, &(const struct elementwise_loop){0, 0, 0}, call, loops);
        }
        if (is_tiny) {
            MODEL_UNUSUAL();
            FORWARD_TINY_ROW(given, row, call, loops->elements);
        }
    }
}

/* ---- One row by itself ---- */

struct one_elementwise_row {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
    float parameter;
    float scale;
    size_t channels;
};

/* The channels of a row from one on, as if they were among other rows: see forward/elementwise_rows.h. */
DYNNORM_INTERNAL void FORWARD_REST_OF_ROW(const struct one_elementwise_row *row, size_t first,
                                          const struct forward_functions *functions);

/* Returns 0, and has written nothing, if f is to be computed in another way than the usual one, or factors are. So it
 * does for a tiny x on any CPU: whether that is slow the driver is told. */
INLINE int forward_one_row(const struct one_elementwise_row *row, begin_call_function *begin,
                           const struct forward_loops *loops, const struct forward_functions *functions) {
    const struct elements *elements = loops->elements;
    const struct call_constants call = begin(row->channels, 0, row->parameter, row->scale);
    const int makes_factors = elements->one_row_makes_factors;
    _Alignas(64) float factor_buffer[BLOCK];
    struct factors factors = {.values = row->weight, .weight = row->weight, .buffer = factor_buffer};
    struct elementwise_block block = {.y = row->y,
                                      .x = row->x,
                                      .bias = row->bias,
                                      .factors = &factors,
                                      .multiplier = one_factor(&call, elements),
                                      .may_overflow = fabsf(row->scale) != 1};
    block.near_limit = loops->near_vectors ? elements->near_limit(row->parameter, elements) : 0;
    if (call.is_unusual || (makes_factors && !has_one_factor(&call, elements)) || begins_with_tiny(row->x, elements))
        return 0;
    if (makes_factors) {
        const struct elementwise_loop loop = {.is_one_row = 1, .makes_factors = 1};
        const size_t done = forward_elementwise_block(&block, row->channels, &loop, &call, loops);
        if (__builtin_expect(done < row->channels, 0))
            FORWARD_REST_OF_ROW(row, done, functions);
        return 1;
    }
    for (size_t first = 0, count; first < row->channels; first += count) {
        count = block_at(first, row->channels).count;
        make_factors(&factors, row->weight + first, count, &call, elements);
        block.y = row->y + first;
        block.x = row->x + first;
        block.bias = row->bias + first;
        if (factors.overflow)
            forward_unusual_block(&block, count, &call, elements);
        else
            forward_elementwise_block(&block, count, &(const struct elementwise_loop){.is_one_row = 1}, &call, loops);
    }
    return 1;
}

/* An operation's own function of this, for calls with one token as for others. */
#define ONE_ROW_OF(operation, begin)                                                                                   \
    static const struct forward_functions operation##_forward;                                                         \
    OUTLINED OF_ONE_TOKEN int operation##_one_row(const struct one_elementwise_row *row) {                             \
        return forward_one_row(row, begin, &operation##_loops, &operation##_forward);                                  \
    }

/* ---- What the driver calls ---- */

/* Defines OPERATION_MODE_forward from what is made here of OPERATION_MODE_loops, from the function that begins a call,
 * and from more functions, or NULL for one of them. bench/model knows the first of these functions by its name. */
#define DEFINE_FORWARD(operation, mode, begin, ...)                                                                    \
    OUTLINED void rows_of_##operation##_forward_##mode(const struct rows_of_block *rows,                               \
                                                       const struct call_constants *call) {                            \
        forward_rows_of_block(rows, call, &operation##_##mode##_loops);                                                \
    }                                                                                                                  \
    static const struct forward_functions operation##_##mode##_forward = {.begin_call = begin,                         \
                                                                          .elements = &operation##_##mode##_elements,  \
                                                                          .rows_of_block =                             \
                                                                              rows_of_##operation##_forward_##mode,    \
                                                                          __VA_ARGS__};

/* ---- The driver ---- */

/* Compiled once for each table: see forward/elementwise_rows.h. */
DYNNORM_INTERNAL void FORWARD_ELEMENTWISE(const struct forward_arguments *arguments, size_t first, size_t rows,
                                          const struct forward_functions *functions);

INLINE void forward_elementwise(const struct forward_arguments *arguments, size_t first, size_t rows,
                                const struct operation *operation) {
    FORWARD_ELEMENTWISE(arguments, first, rows, operation->forward);
}

/* The same for an operation that takes the mean of each row out. */
INLINE void forward_centered(const struct forward_arguments *arguments, size_t first, size_t rows,
                             const struct operation *operation) {
    forward_elementwise(arguments, first, rows, operation);
}

#endif
