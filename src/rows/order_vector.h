/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What of typed_vectors.h is not inlined, compiled once for each table.
 */
#ifndef DYNNORM_ORDER_VECTOR_H
#define DYNNORM_ORDER_VECTOR_H

#include "rows/typed_vectors.h"

/* Two vectors of elements of any type, of which so many are left, and zeros after them. */
OUTLINED void load_any_vectors(vec to[2], const struct typed_vector *from, ptrdiff_t left, int is_bf16) {
    const vec zero = vec_set(0), offset = vec_set(from->offset);
    vec low = offset, high = offset;
    if (from->data && from->type == DYNNORM_F32) {
        low = vec_load_n(from->data, left, zero);
        high = vec_load_n((const float *)from->data + LANES, left - LANES, zero);
    } else if (from->data) {
        const halves elements =
            left >= HALVES ? halves_load(from->data) : halves_load_n(from->data, left > 0 ? left : 0);
        if (from->type == DYNNORM_BF16)
            vecs_of_bf16(&low, &high, elements);
        else
            vecs_of_f16(&low, &high, elements);
    }
    if (from->data && from->type != DYNNORM_BF16) { /* whose NaNs all are such that rounding keeps them */
        low = usual_nan(low);
        high = usual_nan(high);
    }
    if (from->data && from->offset != 0) {
        low = vec_add(low, offset);
        high = vec_add(high, offset);
    }
    if (is_bf16)
        pairs_of_vecs(&low, &high, low, high);
    to[0] = low;
    to[1] = high;
}

/* A number that is not finite, times 0, is a NaN. */
INLINE void store_in_order(float *to, const vec from[2], vec factor, vec found[2]) {
    for (int k = 0; k < 2; k++) {
        const vec product = vec_mul(from[k], factor);
        found[k] = vec_fma(product, vec_set(0), found[k]);
        vec_store(to + k * LANES, product);
    }
}

int ORDER_VECTOR(float *to, const struct typed_vector *from, size_t count, float factor, int is_bf16) {
    const size_t end = (count + NUMBERS_AT_ONCE - 1) / NUMBERS_AT_ONCE * NUMBERS_AT_ONCE;
    const struct typed_vector vector = *from;
    const struct common_vector common = common_vector(&vector);
    const vec factors = vec_set(factor);
    vec found[2] = {vec_set(0), vec_set(0)};
    size_t i = 0;
    if (is_common_vector(&vector, is_bf16))
        for (; i + HALVES <= count; i += HALVES) {
            vec both[2];
            load_vectors(both, &common, i, is_bf16);
            store_in_order(to + i, both, factors, found);
        }
    else if (vector.type == DYNNORM_BF16 && vector.offset == 0) /* in their own order, as unusual rows have them */
        for (; i + HALVES <= count; i += HALVES) {
            vec both[2];
            vecs_of_bf16(&both[0], &both[1], halves_load((const unsigned char *)vector.data + HALF_BYTES * i));
            store_in_order(to + i, both, factors, found);
        }
    for (; i < end; i += HALVES) {
        const struct typed_vector rest = from_channel(&vector, i);
        vec both[2];
        load_any_vectors(both, &rest, (ptrdiff_t)count - (ptrdiff_t)i, is_bf16);
        store_in_order(to + i, both, factors, found);
    }
    return vec_any_nan(vec_add(found[0], found[1]));
}

#endif
