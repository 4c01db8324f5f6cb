/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The loops of the forward pass of elementwise operations whose x and y are of the same type of 16 bits. Their driver
 * is in forward/elementwise_rows_of_halves.h. But in the brief mode they compute what forward_elementwise computes from
 * the widened x, rounded to the type, to the last bit. x is widened in registers, and y rounded there.
 *
 * Several rows use factors and bias that are made once for them, as floats in the order of the elements. A row by
 * itself, as programs have it that generate text, makes them in registers.
 *
 * Several near rows have a loop for each type. For others one loop serves both types, to be little code: what differs
 * is chosen each time around by a branch that always goes the same way.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_HALVES_H
#define DYNNORM_FORWARD_ELEMENTWISE_HALVES_H

#include "kernels.h"
#include "rows/forward/elementwise.h"
#include "rows/forward/normalized_channels.h"
#include "rows/halves.h"
#include "rows/typed_vectors.h"

#ifndef DYNNORM_WITHOUT_TYPES

/* So many rows go together, lest x comes from memory twice, or factors and bias are made too often. */
enum { ROWS_IN_BUFFER = 16 };

/* Some rows, and a block of their channels. What channels have is in the order in which elements are widened: those of
 * bfloat16 by pairs. */
struct block_of_halves {
    const unsigned char *x;
    unsigned char *y;
    size_t x_stride; /* bytes */
    size_t y_stride;
    size_t rows;
    size_t count; /* channels, a multiple of NUMBERS_AT_ONCE but where something else is said */
    size_t ahead; /* bytes from x to what is prefetched meanwhile, or 0 */
    const float *parameters;
    size_t parameter_mask; /* of a channel, to find its parameter: 0 where all have those of the first vectors */
    const float *factors;
    const float *bias;
    int makes_factors; /* of these, and the bias, in place of those above */
    struct common_vector weight;
    struct common_vector common_bias;
    float multiplier;
    int is_bf16;
    int past_caches;    /* y goes there, as far as there are whole vectors; its rows begin at cache lines */
    int by_instruction; /* see LEAST_BIAS_BY_INSTRUCTION */
};

INLINE void widen_numbers(vec *x, const unsigned char *from, int is_bf16) {
    UNROLL_UP_TO_4
    for (size_t k = 0; k < HALVES_AT_ONCE; k++, from += sizeof(halves))
        load_in_order(x + 2 * k, from, is_bf16);
}

INLINE void narrow_numbers(unsigned char *to, const vec *y, int is_bf16, int past_caches, int by_instruction) {
    UNROLL_UP_TO_4
    for (size_t k = 0; k < HALVES_AT_ONCE; k++) {
        unsigned char *const place = to + k * sizeof(halves);
        if (is_bf16 && by_instruction)
            write_halves(place, bf16_of_normal_pairs(y[2 * k], y[2 * k + 1]), past_caches);
        else
            write_halves_in_order(place, y[2 * k], y[2 * k + 1], is_bf16, past_caches);
    }
}

struct vectors_at_once {
    _Alignas(64) float factors[NUMBERS_AT_ONCE];
    _Alignas(64) float bias[NUMBERS_AT_ONCE];
};

/* Makes factors and bias of as many vectors as a loop takes together. Nonzero if one of them is not finite, or their
   sum is not: with huge ones that may happen, too. */
INLINE int make_factors_and_bias(struct vectors_at_once *made, const struct block_of_halves *block, size_t i,
                                 int is_bf16) {
    const vec multiplier = vec_set(block->multiplier);
    vec sum = vec_set(0);
#pragma GCC unroll 1
    for (size_t k = 0; k < HALVES_AT_ONCE; k++) {
        float *factors = made->factors + k * HALVES, *biases = made->bias + k * HALVES;
        vec factor[2], bias[2];
        load_vectors(factor, &block->weight, i + k * HALVES, is_bf16);
        load_vectors(bias, &block->common_bias, i + k * HALVES, is_bf16);
        factor[0] = vec_mul(factor[0], multiplier);
        factor[1] = vec_mul(factor[1], multiplier);
        sum = vec_add(sum, vec_add(vec_add(factor[0], factor[1]), vec_add(bias[0], bias[1])));
        vec_store(factors, factor[0]);
        vec_store(factors + LANES, factor[1]);
        vec_store(biases, bias[0]);
        vec_store(biases + LANES, bias[1]);
    }
    return vec_any_bits_above(vec_abs(sum), FLOAT_MAX_BITS);
}

/* What is known when compiling. */
struct block_form {
    int is_bf16;
    int is_near;          /* x and y are in the caches */
    int may_make_factors; /* otherwise factors and bias have been made before */
    int by_instruction;
};

/* Returns how many channels are done, of the last row: fewer than all if factors or bias are unusual, which are made
   here. A copy of the block stays in registers. */
INLINE size_t forward_block_of_halves(const struct block_of_halves *given, forward_vectors_function *vectors,
                                      struct block_form form) {
    const struct block_of_halves block = *given;
    const int count = WIDENED_AT_ONCE, is_bf16 = form.is_bf16;
    struct vectors_at_once made;
    for (size_t row = 0; row < block.rows; row++) {
        const unsigned char *x = block.x + row * block.x_stride;
        unsigned char *y = block.y + row * block.y_stride;
        for (size_t i = 0; i < block.count; i += NUMBERS_AT_ONCE) {
            vec values[WIDENED_AT_ONCE], parameter[WIDENED_AT_ONCE], f[WIDENED_AT_ONCE];
            const float *parameters = block.parameters + (i & block.parameter_mask), *factors = block.factors + i,
                        *bias = block.bias + i;
            if (form.may_make_factors && block.makes_factors) {
                factors = made.factors, bias = made.bias;
                if (make_factors_and_bias(&made, &block, i, is_bf16))
                    return i;
            }
            if (!form.is_near && block.ahead)
                for (size_t k = 0; k < HALF_BYTES * NUMBERS_AT_ONCE; k += STREAM_ALIGNMENT)
                    __builtin_prefetch(x + HALF_BYTES * i + block.ahead + k, 0, 2);
            widen_numbers(values, x + HALF_BYTES * i, is_bf16);
            EACH(parameter[k] = vec_load(parameters + LANES * k));
            vectors(f, values, parameter, count);
            EACH(f[k] = vec_fma(f[k], vec_load(factors + LANES * k), vec_load(bias + LANES * k)));
            narrow_numbers(y + HALF_BYTES * i, f, is_bf16, !form.is_near && block.past_caches, form.by_instruction);
        }
    }
    return block.count;
}

INLINE size_t forward_any_block_of_halves(const struct block_of_halves *block, forward_vectors_function *vectors) {
    const int is_near = HAS_NEAR_LOOPS && !block->ahead && !block->past_caches && !block->makes_factors;
    if (!HAS_SPECIAL_LOOPS)
        return 0;
    if (!is_near)
        return forward_block_of_halves(block, vectors,
                                       (struct block_form){.is_bf16 = block->is_bf16, .may_make_factors = 1});
    if (HAS_BF16_INSTRUCTION && block->by_instruction)
        return forward_block_of_halves(block, vectors,
                                       (struct block_form){.is_bf16 = 1, .is_near = 1, .by_instruction = 1});
    if (block->is_bf16)
        return forward_block_of_halves(block, vectors, (struct block_form){.is_bf16 = 1, .is_near = 1});
    return forward_block_of_halves(block, vectors, (struct block_form){.is_near = 1});
}

/* The functions that compute what the loops of floats do, of an operation in one of its modes, which are not inlined.
 * Plain C has no use for them. */
#define HALVES_LIKE_FLOATS(name, mode)                                                                                 \
    OUTLINED size_t name##_##mode##_block_of_halves(const struct block_of_halves *block) {                             \
        return forward_any_block_of_halves(block, name##_##mode##_vectors);                                            \
    }

/* The brief mode's arithmetic depends on the type. What is unusual is computed as in the portable mode. */
#define BRIEF_HALVES(name, bf16_factor)                                                                                \
    OUTLINED size_t name##_brief_bf16_block_of_halves(const struct block_of_halves *block) {                           \
        if (HAS_BF16_INSTRUCTION && block->by_instruction)                                                             \
            return forward_block_of_halves(block, name##_brief_bf16_vectors,                                           \
                                           (struct block_form){.is_bf16 = 1, .by_instruction = 1});                    \
        return forward_block_of_halves(block, name##_brief_bf16_vectors, (struct block_form){.is_bf16 = 1});           \
    }                                                                                                                  \
    OUTLINED size_t name##_brief_f16_block_of_halves(const struct block_of_halves *block) {                            \
        return forward_block_of_halves(block, name##_brief_f16_vectors, (struct block_form){.is_bf16 = 0});            \
    }                                                                                                                  \
    static const struct operation name##_brief = {                                                                     \
        .begin_call = name##_begin_call,                                                                               \
        .elements = &name##_portable_elements,                                                                         \
        .of_halves = {[type_bf16] = {name##_brief_bf16_block_of_halves, bf16_factor, 0},                               \
                      [type_f16] = {name##_brief_f16_block_of_halves, 1, 0}}};

#define OF_HALVES_LIKE_FLOATS(name, mode, factor)                                                                      \
    {                                                                                                                  \
        [type_bf16] = {name##_##mode##_block_of_halves, factor, 1}, [type_f16] = {                                     \
            name##_##mode##_block_of_halves,                                                                           \
            factor,                                                                                                    \
            1                                                                                                          \
        }                                                                                                              \
    }

/* ---- The driver ---- */

/* Compiled once for each table: see forward/elementwise_rows_of_halves.h. */
DYNNORM_INTERNAL void ELEMENTWISE_ROWS_OF_HALVES(const struct halves_call *call, size_t rows,
                                                 const struct operation *operation);

INLINE void forward_elementwise_halves(const struct halves_call *call, size_t rows, const struct operation *operation) {
    ELEMENTWISE_ROWS_OF_HALVES(call, rows, operation);
}

#else
#define HALVES_LIKE_FLOATS(name, mode)
#define BRIEF_HALVES(name, bf16_factor)
#define OF_HALVES_LIKE_FLOATS(name, mode, factor)                                                                      \
    {                                                                                                                  \
        { NULL, 0, 0 }                                                                                                 \
    }
#endif

#endif
