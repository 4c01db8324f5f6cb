/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows of floats or of 16 bits that a loop reads and writes where they lie. Which of these they are is known when the
 * loop is compiled. A pointer to floats only tells where the elements are.
 */
#ifndef DYNNORM_ELEMENTS_H
#define DYNNORM_ELEMENTS_H

#include "element_types.h"
#include "rows/floats.h"
#include "rows/halves.h"
#include "rows/places.h"
#include "rows/subnormals.h"

/* So many elements later. */
INLINE float *elements_after(const float *row, ptrdiff_t elements, dynnorm_type type) {
    const ptrdiff_t bytes = type == DYNNORM_F32 ? (ptrdiff_t)sizeof(float) : HALF_BYTES;
    return (float *)((uintptr_t)row + (uintptr_t)(elements * bytes));
}

/* Of the first element as a float; of one of float16, which no float is tiny, those of 1. */
INLINE uint32_t bits_of_element(const float *row, dynnorm_type type) {
    uint16_t half;
    if (type == DYNNORM_F32)
        return bits_of_float(load_float(row));
    memcpy(&half, row, sizeof half);
    return type == DYNNORM_BF16 ? (uint32_t)half << 16 : BITS_OF_POWER(0);
}

/* See rows/subnormals.h. */
INLINE int is_tiny_element(const float *row, dynnorm_type type) {
    return is_tiny(bits_of_element(row, type));
}

/* How many of the vector's elements exist, if not all do: none, perhaps. */
INLINE ptrdiff_t count_in_vector(struct place place) {
    return place.count < 0 ? 0 : place.count < LANES ? place.count : LANES;
}

/* Some elements, and zeros for those that are missing. */
INLINE vec load_last_halves(const unsigned char *p, ptrdiff_t count, dynnorm_type type) {
    vec low, high;
    if (type == DYNNORM_BF16)
        vecs_of_bf16(&low, &high, halves_load_n(p, count));
    else
        vecs_of_f16(&low, &high, halves_load_n(p, count));
    return low;
}

/* One vector. Elements that do not exist are 0. */
INLINE vec load_elements(const float *row, struct place place, dynnorm_type type) {
    const unsigned char *const p = (const unsigned char *)row + HALF_BYTES * place.channel;
    if (type == DYNNORM_F32)
        return load_vector(row, place, vec_set(0));
    if (!place.whole)
        return load_last_halves(p, count_in_vector(place), type);
    return type == DYNNORM_BF16 ? vec_of_bf16(p) : vec_of_f16(p);
}

/* For bfloat16 the lower 16 bits of a NaN must be 0, or rounding might carry into its sign. In dx of a group they are:
 * if there is a NaN in x, dy, the weight or the statistics the group does not come here, and the lower bits are 0 in
 * NaNs that the CPU makes, and in those of what is added. */
INLINE halves halves_of(vec low, vec high, dynnorm_type type) {
    return type == DYNNORM_BF16 ? bf16_of_numbers(low, high) : f16_of_vecs(low, high);
}

/* One vector of 16 bits, or what exists of it. */
INLINE void store_as_halves(float *row, struct place place, vec a, dynnorm_type type) {
    unsigned char *const p = (unsigned char *)row + HALF_BYTES * place.channel;
    halves_store_n(p, halves_of(a, a, type), place.whole ? LANES : count_in_vector(place));
}

INLINE void add_two_of_halves(vec to[2], const float *row, ptrdiff_t channel, dynnorm_type type) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        to[i] = vec_add(to[i], load_elements(row, (struct place){channel + LANES * i, LANES, 1}, type));
}

/* Two whole vectors. Past the caches their place is a multiple of the size of halves. */
INLINE void store_two_as_halves(float *row, ptrdiff_t channel, const vec a[2], dynnorm_type type, int past_caches) {
    unsigned char *const p = (unsigned char *)row + HALF_BYTES * channel;
    if (type == DYNNORM_BF16)
        write_halves(p, bf16_of_numbers(a[0], a[1]), past_caches);
    else
        f16_write(p, a[0], a[1], past_caches);
}

/* One of the two vectors that the elements from a channel on make, as many as two vectors have. Those of bfloat16 are
 * by pairs: see convert.h. */
INLINE vec load_ordered(const float *row, ptrdiff_t channel, int part, dynnorm_type type) {
    const unsigned char *const p = (const unsigned char *)row + HALF_BYTES * channel;
    vec even, odd;
    if (type == DYNNORM_F16)
        return vec_of_f16(p + HALF_BYTES * LANES * part);
    pairs_of_bf16(&even, &odd, halves_load(p));
    return part ? odd : even;
}

#endif
