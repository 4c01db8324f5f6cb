/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Weight, bias and alpha or beta of kernels for elements of 16 bits: vectors of any type, which are read beside x, in
 * the order in which x is widened. That of bfloat16 is by pairs: see convert.h.
 */
#ifndef DYNNORM_TYPED_VECTORS_H
#define DYNNORM_TYPED_VECTORS_H

#include "kernel_names.h"
#include "kernels.h"
#include "rows/floats.h"
#include "rows/halves.h"

#ifndef DYNNORM_WITHOUT_TYPES

/* What a loop takes together, in plain C less than elsewhere. */
enum { HALVES_AT_ONCE = LANES == 1 ? 1 : SIDE_BY_SIDE / 2, WIDENED_AT_ONCE = 2 * HALVES_AT_ONCE };
enum { NUMBERS_AT_ONCE = WIDENED_AT_ONCE * LANES };

/* The elements from a channel on. */
INLINE struct typed_vector from_channel(const struct typed_vector *vector, size_t channel) {
    struct typed_vector rest = *vector;
    if (rest.data)
        rest.data = (const unsigned char *)rest.data + channel * dynnorm_element_bytes(rest.type);
    return rest;
}

/* Writes count elements times a factor, and others as far as a loop reads beyond them: up to a multiple of
 * NUMBERS_AT_ONCE. Nonzero if a product is not finite. NaNs are those that bf16_of_pairs takes. Neither is this
 * inlined.
 */
DYNNORM_INTERNAL int ORDER_VECTOR(float *to, const struct typed_vector *from, size_t count, float factor, int is_bf16);

/* bf16_of_pairs would round some NaNs to numbers. They are rare. */
INLINE vec usual_nan(vec a) {
    return vec_select_outside(vec_abs(a), 0, INFINITY_BITS, vec_set(NAN), a);
}

INLINE void widen_in_order(vec to[2], halves elements, int is_bf16) {
    if (is_bf16)
        pairs_of_bf16(&to[0], &to[1], elements);
    else
        vecs_of_f16(&to[0], &to[1], elements);
}

/* The same from memory, where they all exist. x86's instruction for binary16 takes the elements of one vector from
 * there, which have to be shuffled if they are in a register. */
INLINE void load_in_order(vec to[2], const unsigned char *from, int is_bf16) {
    if (is_bf16) {
        widen_in_order(to, halves_load(from), 1);
        return;
    }
    to[0] = vec_of_f16(from);
    to[1] = vec_of_f16(from + HALF_BYTES * LANES);
}

INLINE int has_type_of_x(const struct typed_vector *vector, int is_bf16) {
    return vector->type == (is_bf16 ? DYNNORM_BF16 : DYNNORM_F16);
}

/* Whether a vector can be read by load_vectors: those that x can be expected to come with. */
INLINE int is_common_vector(const struct typed_vector *vector, int is_bf16) {
    return !vector->data || vector->type == DYNNORM_F32 || has_type_of_x(vector, is_bf16);
}

/* Whether its elements need only be widened. */
INLINE int is_like_x(const struct typed_vector *vector, int is_bf16) {
    return vector->data && has_type_of_x(vector, is_bf16) && vector->offset == 0;
}

INLINE int is_of_floats(const struct typed_vector *vector) {
    return vector->data && vector->type == DYNNORM_F32 && vector->offset == 0;
}

/* Whether a vector is of bfloat16 or floats, LANES of them or more, none of which has bits from first up to, and
 * without, those of least. */
INLINE int has_none_between(const struct typed_vector *vector, size_t channels, uint32_t first, float least) {
    const vec zero = vec_set(0), one = vec_set(1);
    vec found = zero;
    if (channels < LANES || !(is_like_x(vector, 1) || is_of_floats(vector)))
        return 0;
    for (size_t i = 0; i < channels; i += LANES) {
        const size_t place = channels - i < LANES ? channels - LANES : i;
        const unsigned char *data = vector->data;
        const vec value = vector->type == DYNNORM_F32 ? vec_load((const float *)vector->data + place)
                                                      : vec_of_bf16(data + HALF_BYTES * place);
        found =
            vec_max_bits(found, vec_select_outside(vec_abs(value), first, bits_of_float(least) - 1 - first, zero, one));
    }
    return !vec_any_bits_above(found, 0);
}

INLINE void load_floats_in_order(vec to[2], const float *from, int is_bf16) {
    to[0] = vec_load(from);
    to[1] = vec_load(from + LANES);
    if (is_bf16) {
        if (__builtin_expect(vec_any_nan(vec_add(to[0], to[1])), 0)) /* or infinities of both signs */
            to[0] = usual_nan(to[0]), to[1] = usual_nan(to[1]);
        pairs_of_vecs(&to[0], &to[1], to[0], to[1]);
    }
}

/* One of these, for a loop. */
struct common_vector {
    const unsigned char *data;
    int is_absent;
    int is_of_floats;
    int has_offset;
    float offset;
};

INLINE struct common_vector common_vector(const struct typed_vector *vector) {
    return (struct common_vector){vector->data, !vector->data, vector->type == DYNNORM_F32, vector->offset != 0,
                                  vector->offset};
}

/* Two vectors of whole ones, from a channel on. */
INLINE void load_vectors(vec to[2], const struct common_vector *from, size_t i, int is_bf16) {
    const unsigned char *data = from->data;
    if (from->is_absent) {
        to[0] = to[1] = vec_set(from->offset);
        return;
    }
    if (!from->is_of_floats) {
        load_in_order(to, data + HALF_BYTES * i, is_bf16);
    } else {
        load_floats_in_order(to, (const float *)data + i, is_bf16);
    }
    if (from->has_offset) {
        to[0] = vec_add(to[0], vec_set(from->offset));
        to[1] = vec_add(to[1], vec_set(from->offset));
    }
}

#endif
#endif
