/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of elementwise operations whose x and y are of the same type of 16 bits. In the
 * portable mode it computes what forward_elementwise computes from the widened x, rounded to the type, to the last bit.
 * But x is widened in registers, and y rounded there.
 *
 * One loop serves both types, to be little code: what differs is chosen each time around by a branch that always goes
 * the same way.
 */
#ifndef DYNNORM_FORWARD_ELEMENTWISE_HALVES_H
#define DYNNORM_FORWARD_ELEMENTWISE_HALVES_H

#include "kernels.h"
#include "rows/forward_elementwise.h"
#include "rows/halves.h"
#include "rows/normalized_channels.h"

#include <math.h>
#include <string.h>

#ifndef DYNNORM_WITHOUT_TYPES

/* What a loop takes together, in plain C less than elsewhere; and the channels whose factors and bias stay in the
 * nearest cache. */
enum { HALVES_AT_ONCE = LANES == 1 ? 1 : SIDE_BY_SIDE / 2, WIDENED_AT_ONCE = 2 * HALVES_AT_ONCE };
enum { NUMBERS_AT_ONCE = WIDENED_AT_ONCE * LANES, BLOCK_OF_HALVES = 4 * BLOCK };

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
    const float *factors;
    const float *bias;
    int is_bf16;
    int past_caches; /* y goes there, as far as there are whole vectors; its rows begin at cache lines */
};

/* f(x) of some vectors, computed in the usual way */
typedef void usual_vectors_function(vec *f, const vec *x, const vec *parameter, int count);

INLINE void widen_numbers(vec *x, const unsigned char *from, int is_bf16) {
    UNROLL_UP_TO_4
    for (size_t k = 0; k < HALVES_AT_ONCE; k++) {
        const halves a = halves_load(from + k * sizeof a);
        if (is_bf16)
            pairs_of_bf16(&x[2 * k], &x[2 * k + 1], a);
        else
            vecs_of_f16(&x[2 * k], &x[2 * k + 1], a);
    }
}

INLINE void narrow_numbers(unsigned char *to, const vec *y, int is_bf16, int past_caches) {
    UNROLL_UP_TO_4
    for (size_t k = 0; k < HALVES_AT_ONCE; k++) {
        const halves a = is_bf16 ? bf16_of_pairs(y[2 * k], y[2 * k + 1]) : f16_of_vecs(y[2 * k], y[2 * k + 1]);
        if (VEC_CAN_STREAM && past_caches)
            halves_stream(to + k * sizeof a, a);
        else
            halves_store(to + k * sizeof a, a);
    }
}

/* A copy of the block stays in registers. */
INLINE void forward_block_of_halves(const struct block_of_halves *given, usual_vectors_function *usual_vectors,
                                    int is_bf16) {
    const struct block_of_halves block = *given;
    const int count = WIDENED_AT_ONCE;
    for (size_t row = 0; row < block.rows; row++) {
        const unsigned char *x = block.x + row * block.x_stride;
        unsigned char *y = block.y + row * block.y_stride;
        for (size_t i = 0; i < block.count; i += NUMBERS_AT_ONCE) {
            vec values[WIDENED_AT_ONCE], parameter[WIDENED_AT_ONCE], f[WIDENED_AT_ONCE];
            if (block.ahead)
                for (size_t k = 0; k < HALF_BYTES * NUMBERS_AT_ONCE; k += STREAM_ALIGNMENT)
                    __builtin_prefetch(x + HALF_BYTES * i + block.ahead + k, 0, 2);
            widen_numbers(values, x + HALF_BYTES * i, is_bf16);
            EACH(parameter[k] = vec_load(block.parameters + i + LANES * k));
            usual_vectors(f, values, parameter, count);
            EACH(f[k] = vec_fma(f[k], vec_load(block.factors + i + LANES * k), vec_load(block.bias + i + LANES * k)));
            narrow_numbers(y + HALF_BYTES * i, f, is_bf16, block.past_caches);
        }
    }
}

/* An operation's own functions of this, which are not inlined. Plain C has no use for the portable one. */
#define PORTABLE_HALVES(name)                                                                                          \
    OUTLINED void name##_portable_block_of_halves(const struct block_of_halves *block) {                               \
        if (HAS_SPECIAL_LOOPS)                                                                                         \
            forward_block_of_halves(block, name##_portable_vectors, block->is_bf16);                                   \
    }

/* The brief mode's arithmetic depends on the type. What is unusual is computed as in the portable mode. */
#define BRIEF_HALVES(name, bf16_factor)                                                                                \
    OUTLINED void name##_brief_bf16_block_of_halves(const struct block_of_halves *block) {                             \
        forward_block_of_halves(block, name##_brief_bf16_vectors, 1);                                                  \
    }                                                                                                                  \
    OUTLINED void name##_brief_f16_block_of_halves(const struct block_of_halves *block) {                              \
        forward_block_of_halves(block, name##_brief_f16_vectors, 0);                                                   \
    }                                                                                                                  \
    static const struct operation name##_brief = {                                                                     \
        .begin_call = name##_begin_call,                                                                               \
        .elements = &name##_portable_elements,                                                                         \
        .of_halves = {[type_bf16] = {name##_brief_bf16_block_of_halves, bf16_factor},                                  \
                      [type_f16] = {name##_brief_f16_block_of_halves, 1}}};

#define HALVES_OF_PORTABLE(name)                                                                                       \
    {                                                                                                                  \
        [type_bf16] = {name##_portable_block_of_halves, 1}, [type_f16] = { name##_portable_block_of_halves, 1 }        \
    }

/* ---- What channels have ---- */

struct vectors_of_halves {
    _Alignas(64) float parameters[BLOCK_OF_HALVES];
    _Alignas(64) float factors[BLOCK_OF_HALVES];
    _Alignas(64) float bias[BLOCK_OF_HALVES];
};

/* A vector of a block times a factor, in the order in which elements are widened, and zeros as far as a loop reads
 * beyond it. Nonzero if one of the products is not finite. */
OUTLINED int order_vector(float *to, const float *from, size_t count, float factor, int is_bf16) {
    vec largest = vec_set(0);
    for (size_t i = 0; i < (count + NUMBERS_AT_ONCE - 1) / NUMBERS_AT_ONCE * NUMBERS_AT_ONCE; i += HALVES) {
        const ptrdiff_t left = (ptrdiff_t)(count - i);
        vec low = vec_load_n(from + i, left, vec_set(0)), high = vec_load_n(from + i + LANES, left - LANES, vec_set(0));
        low = vec_mul(low, vec_set(factor));
        high = vec_mul(high, vec_set(factor));
        largest = vec_max_bits(largest, vec_max_bits(vec_abs(low), vec_abs(high)));
        if (is_bf16)
            pairs_of_vecs(&low, &high, low, high);
        vec_store(to + i, low);
        vec_store(to + i + LANES, high);
    }
    return vec_any_bits_above(largest, FLOAT_MAX_BITS);
}

/* The block's alphas or betas. Nonzero if one of them is unusual. */
OUTLINED int order_parameters(float *to, const float *parameters, size_t count, int is_one, int is_bf16,
                              const struct elements *elements) {
    struct channel_parameters made;
    int are_unusual = 0;
    for (size_t i = 0; i < count; i += BLOCK) {
        const struct block block = block_at(i, count);
        elements->channel_parameters(&made, is_one ? parameters : parameters + i, block.count, is_one);
        are_unusual |= made.are_unusual;
        order_vector(to + i, made.parameter, block.count, 1, is_bf16);
    }
    return are_unusual;
}

/* ---- Rows ---- */

/* So many channels from one on, whose elements have been copied to a buffer, where they become y. */
INLINE struct block_of_halves block_in_buffer(const struct block_of_halves *block, size_t first,
                                              unsigned char *buffer) {
    struct block_of_halves in_buffer = *block;
    in_buffer.x = in_buffer.y = buffer;
    in_buffer.x_stride = in_buffer.y_stride = HALF_BYTES * NUMBERS_AT_ONCE;
    in_buffer.count = NUMBERS_AT_ONCE;
    in_buffer.parameters += first;
    in_buffer.factors += first;
    in_buffer.bias += first;
    in_buffer.past_caches = 0;
    in_buffer.ahead = 0;
    return in_buffer;
}

/* The last channels of some rows, which are too few for a loop. They are computed in a buffer. */
OUTLINED void forward_last_halves(const struct block_of_halves *block, size_t count,
                                  block_of_halves_function *function) {
    enum { ROW_BYTES = HALF_BYTES * NUMBERS_AT_ONCE };
    _Alignas(64) unsigned char buffer[ROWS_IN_BUFFER * ROW_BYTES];
    const struct block_of_halves in_buffer = block_in_buffer(block, block->count, buffer);
    const size_t before = HALF_BYTES * block->count, bytes = HALF_BYTES * count;
    memset(buffer, 0, block->rows * ROW_BYTES);
    for (size_t row = 0; row < block->rows; row++)
        memcpy(buffer + row * ROW_BYTES, block->x + row * block->x_stride + before, bytes);
    function(&in_buffer);
    for (size_t row = 0; row < block->rows; row++)
        memcpy(block->y + row * block->y_stride + before, buffer + row * ROW_BYTES, bytes);
}

/* The call's vectors, from a channel on. */
struct channels_of_halves {
    const float *weight;
    const float *bias;
    const float *parameters; /* NULL: all have the call's parameter */
};

/* Which channels of a part are not computed in the usual way. What another channel has does not count. */
OUTLINED void find_unusual_channels(unsigned char *are_unusual, const struct channels_of_halves *channels, size_t count,
                                    const struct call_constants *call, const struct operation *operation,
                                    float factor) {
    struct channel_parameters made;
    for (size_t k = 0; k < count; k++) {
        operation->elements->channel_parameters(
            &made, channels->parameters ? channels->parameters + k : &call->parameter, 1, 1);
        are_unusual[k] = made.are_unusual || !isfinite(channels->weight[k] * factor) || !isfinite(channels->bias[k]);
    }
}

/* A block of any number of channels, some of which are not computed in the usual way, but through floats; some of them
 * at a time. */
OUTLINED void forward_unusual_halves(const struct block_of_halves *block, const struct channels_of_halves *channels,
                                     const struct call_constants *call, const struct operation *operation,
                                     const struct elementwise_halves *of_type) {
    const struct elements *elements = operation->elements;
    _Alignas(64) float factor_buffer[NUMBERS_AT_ONCE], x[NUMBERS_AT_ONCE], y[NUMBERS_AT_ONCE] = {0};
    _Alignas(64) unsigned char usual[HALF_BYTES * NUMBERS_AT_ONCE], unusual[HALF_BYTES * NUMBERS_AT_ONCE];
    unsigned char are_unusual[NUMBERS_AT_ONCE];
    struct channel_parameters parameters;
    for (size_t i = 0, count; i < block->count; i += count) {
        struct factors factors = {.buffer = factor_buffer};
        const struct channels_of_halves some = {channels->weight + i, channels->bias + i,
                                                channels->parameters ? channels->parameters + i : NULL};
        const struct elementwise_block part = {
            .y = y, .x = x, .bias = some.bias, .factors = &factors, .parameters = &parameters};
        struct block_of_halves in_usual_way = block_in_buffer(block, i, usual);
        count = block->count - i < NUMBERS_AT_ONCE ? block->count - i : NUMBERS_AT_ONCE;
        make_factors(&factors, some.weight, count, call, elements);
        elements->channel_parameters(&parameters, some.parameters ? some.parameters : &call->parameter, count,
                                     !some.parameters);
        find_unusual_channels(are_unusual, &some, count, call, operation, of_type->factor * call->scale);
        in_usual_way.rows = 1;
        for (size_t row = 0; row < block->rows; row++) {
            unsigned char *element = unusual, *to = block->y + row * block->y_stride + HALF_BYTES * i;
            memset(usual, 0, sizeof usual);
            memcpy(usual, block->x + row * block->x_stride + HALF_BYTES * i, HALF_BYTES * count);
            for (int k = 0; k < NUMBERS_AT_ONCE; k += HALVES) {
                vec low, high;
                if (block->is_bf16)
                    vecs_of_bf16(&low, &high, halves_load(usual + HALF_BYTES * k));
                else
                    vecs_of_f16(&low, &high, halves_load(usual + HALF_BYTES * k));
                vec_store(x + k, low);
                vec_store(x + k + LANES, high);
            }
            forward_unusual_block(&part, count, call, elements);
            for (int k = 0; k < NUMBERS_AT_ONCE; k += HALVES, element += sizeof(halves)) {
                const vec low = vec_load(y + k), high = vec_load(y + k + LANES);
                halves_store(element, block->is_bf16 ? bf16_of_vecs(low, high) : f16_of_vecs(low, high));
            }
            of_type->block(&in_usual_way);
            for (size_t k = 0; k < count; k++, to += HALF_BYTES)
                memcpy(to, (are_unusual[k] ? unusual : usual) + HALF_BYTES * k, HALF_BYTES);
        }
    }
}

/* Makes the vectors of a block. Nonzero if something of it is unusual. */
INLINE int make_vectors_of_halves(struct vectors_of_halves *made, const struct channels_of_halves *channels,
                                  const struct block_of_halves *block, float factor, const struct call_constants *call,
                                  const struct elements *elements) {
    const size_t count = block->count;
    const int is_bf16 = block->is_bf16;
    int is_unusual = order_vector(made->factors, channels->weight, count, factor, is_bf16);
    is_unusual |= order_vector(made->bias, channels->bias, count, 1, is_bf16);
    return is_unusual |
           order_parameters(made->parameters, channels->parameters ? channels->parameters : &call->parameter, count,
                            !channels->parameters, is_bf16, elements);
}

/* Blocks of some rows at a time. */
OUTLINED void forward_elementwise_rows_of_halves(const struct forward_arguments *arguments, size_t first, size_t rows,
                                                 const struct operation *operation, dynnorm_type type) {
    const struct elements *elements = operation->elements;
    const struct elementwise_halves *of_type = &operation->of_halves[type];
    const size_t channels = arguments->channels;
    const size_t at_once = channels <= BLOCK_OF_HALVES && channels % NUMBERS_AT_ONCE == 0 ? rows : ROWS_IN_BUFFER;
    const struct call_constants call = operation->begin_call(channels, 0, arguments->parameter, arguments->scale);
    struct vectors_of_halves vectors;
    struct block_of_halves block = {.parameters = vectors.parameters,
                                    .factors = vectors.factors,
                                    .bias = vectors.bias,
                                    .is_bf16 = type == DYNNORM_BF16};
    int is_unusual = 0;
    block.x_stride = HALF_BYTES * arguments->x.strides[0];
    block.y_stride = HALF_BYTES * arguments->y.strides[0];
    block.past_caches = arguments->streams && rows_are_aligned(&arguments->y, STREAM_ALIGNMENT);
    for (size_t row = first, end = first + rows; row < end; row += at_once) {
        block.rows = end - row < at_once ? end - row : at_once;
        block.ahead = arguments->streams && end - row > at_once ? at_once * block.x_stride : 0;
        for (size_t channel = 0; channel < channels; channel += BLOCK_OF_HALVES) {
            const struct channels_of_halves vectors_from = {arguments->weight + channel, arguments->bias + channel,
                                                            arguments->parameters ? arguments->parameters + channel
                                                                                  : NULL};
            block.x = (const unsigned char *)arguments->x.data + row * block.x_stride + HALF_BYTES * channel;
            block.y = (unsigned char *)arguments->y.data + row * block.y_stride + HALF_BYTES * channel;
            block.count = channels - channel < BLOCK_OF_HALVES ? channels - channel : BLOCK_OF_HALVES;
            if (row == first || channels > BLOCK_OF_HALVES)
                is_unusual = make_vectors_of_halves(&vectors, &vectors_from, &block, of_type->factor * call.scale,
                                                    &call, elements);
            if (is_unusual) {
                forward_unusual_halves(&block, &vectors_from, &call, operation, of_type);
                continue;
            }
            const size_t last = block.count % NUMBERS_AT_ONCE;
            block.count -= last;
            of_type->block(&block);
            if (last)
                forward_last_halves(&block, last, of_type->block);
        }
    }
    if (block.past_caches)
        vec_end_streaming();
}

/* ---- The driver ---- */

INLINE size_t forward_elementwise_halves(const struct forward_arguments *arguments, size_t first, size_t rows,
                                         const struct operation *operation, const struct halves_type *type) {
    forward_elementwise_rows_of_halves(arguments, first, rows, operation, (dynnorm_type)type->type);
    return rows;
}

#else
#define PORTABLE_HALVES(name)
#define BRIEF_HALVES(name, bf16_factor)
#define HALVES_OF_PORTABLE(name)                                                                                       \
    {                                                                                                                  \
        { NULL, 0 }                                                                                                    \
    }
#endif

#endif
