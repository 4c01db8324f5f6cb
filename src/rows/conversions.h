/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Conversion of elements between the types that tensors have in memory and float: see src/element_types.def.
 */
#ifndef DYNNORM_CONVERSIONS_H
#define DYNNORM_CONVERSIONS_H

#include "convert.h"
#include "kernels.h"
#include "rows/blocks.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/writer.h"
#include "rows/halves.h"
#include "rows/typed_vectors.h"

/* ---- 16 bits ---- */

/* Of the last vectors only some exist. They are converted in a buffer; % tells the compiler that it has room. */
struct last_halves {
    _Alignas(64) unsigned char elements[sizeof(halves)];
    _Alignas(64) float floats[HALVES];
};

INLINE void widen_last(struct last_halves *last, const unsigned char *from, size_t count, load_halves *load) {
    memset(last->elements, 0, sizeof last->elements);
    memcpy(last->elements, from, count % HALVES * 2);
    vec_store(last->floats, load(last->elements));
    vec_store(last->floats + LANES, load(last->elements + HALF_BYTES * LANES));
}

/* How many vectors of floats the loops convert in a step, as long as there are so many. */
enum { VECTORS_OF_STEP = LANES == 1 ? 2 : 4, HALVES_OF_STEP = VECTORS_OF_STEP * LANES };

INLINE void widen_vectors(float *to, const unsigned char *from, int count, load_halves *load) {
    UNROLL_UP_TO_4
    for (int k = 0; k < count; k++)
        vec_store(to + k * LANES, load(from + k * HALF_BYTES * LANES));
}

INLINE void widen_halves(float *to, const void *from, size_t count, load_halves *load) {
    const unsigned char *p = from;
    size_t i = 0;
    for (; i + HALVES_OF_STEP <= count; i += HALVES_OF_STEP, p += HALF_BYTES * HALVES_OF_STEP)
        widen_vectors(to + i, p, VECTORS_OF_STEP, load);
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves))
        widen_vectors(to + i, p, 2, load);
    if (i < count) {
        struct last_halves last;
        widen_last(&last, p, count - i, load);
        memcpy(to + i, last.floats, (count - i) % HALVES * sizeof(float));
    }
}

INLINE void add_halves(float *to, const float *a, const void *b, size_t count, load_halves *load) {
    const unsigned char *p = b;
    size_t i = 0;
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves)) {
        vec_store(to + i, vec_add(vec_load(a + i), load(p)));
        vec_store(to + i + LANES, vec_add(vec_load(a + i + LANES), load(p + HALF_BYTES * LANES)));
    }
    if (i < count) {
        struct last_halves last;
        widen_last(&last, p, count - i, load);
        for (size_t k = 0; i + k < count; k++)
            store_float(to + i + k, load_float(a + i + k) + last.floats[k]);
    }
}

INLINE void narrow_some(unsigned char *to, const float *from, size_t count, halves_of_vecs *convert) {
    struct last_halves last;
    memset(last.floats, 0, sizeof last.floats);
    memcpy(last.floats, from, count % HALVES * sizeof(float));
    halves_store(last.elements, convert(vec_load(last.floats), vec_load(last.floats + LANES)));
    memcpy(to, last.elements, count % HALVES * 2);
}

INLINE void narrow_vectors(unsigned char *to, const float *from, int count, halves_of_vecs *convert) {
    UNROLL_UP_TO_4
    for (int k = 0; k < count; k += 2)
        halves_store(to + k * HALF_BYTES * LANES,
                     convert(vec_load(from + k * LANES), vec_load(from + (k + 1) * LANES)));
}

/* Stores past the caches need a whole vector's alignment, and are to fill whole cache lines. */
INLINE void narrow_halves(void *to, const float *from, size_t count, int streams, halves_of_vecs *convert) {
    enum { LINE = FLOATS_OF_LINE * sizeof(float) };
    unsigned char *p = to;
    size_t i = 0;
    if (VEC_CAN_STREAM && streams) {
        while (i < count && (uintptr_t)p % LINE) {
            const size_t to_line = (LINE - (uintptr_t)p % LINE) / 2, most = to_line < HALVES ? to_line : HALVES - 1;
            const size_t some = most < count - i ? most : count - i;
            narrow_some(p, from + i, some, convert);
            i += some, p += some * 2;
        }
        const size_t end = i + (count - i) / (LINE / 2) * (LINE / 2);
        for (; i < end; i += HALVES, p += sizeof(halves))
            halves_stream(p, convert(vec_load(from + i), vec_load(from + i + LANES)));
    }
    for (; i + HALVES_OF_STEP <= count; i += HALVES_OF_STEP, p += HALF_BYTES * HALVES_OF_STEP)
        narrow_vectors(p, from + i, VECTORS_OF_STEP, convert);
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves))
        narrow_vectors(p, from + i, 2, convert);
    if (i < count)
        narrow_some(p, from + i, count - i, convert);
}

INLINE void sum_vectors(vec sum[2], const float *bias, ptrdiff_t count) {
    if (!bias)
        return;
    for (int k = 0; k < 2; k++)
        sum[k] = vec_add(sum[k], vec_load_n(bias + k * LANES, count - k * LANES, vec_set(0)));
}

/* Whether the terms or the sum are far away. All that this needs is behind one condition, for the sake of those in the
   caches. */
INLINE int is_far_sum(const struct sum_of_elements *sum) {
    return sum->past_caches || sum->ahead;
}

INLINE void prefetch_terms(const struct sum_of_elements *sum, size_t at) {
    prefetch_line(sum->a, at + sum->ahead);
    prefetch_line(sum->b, at + sum->ahead);
}

/* Some elements, at most two vectors, and zeros for those that are missing. */
INLINE void load_some(vec to[2], const unsigned char *from, ptrdiff_t count, load_halves *load, vecs_of_halves *widen) {
    if (count >= HALVES)
        to[0] = load(from), to[1] = load(from + HALF_BYTES * LANES);
    else
        widen(&to[0], &to[1], halves_load_n(from, count));
}

/* Stores the sum of whole vectors, where it is to go. */
INLINE void store_sum(const struct sum_of_elements *sum, size_t at, halves rounded, int is_far) {
    halves_store((unsigned char *)sum->to + at, rounded);
    if (!is_far)
        return;
    prefetch_terms(sum, at);
    if (sum->past_caches)
        halves_stream((unsigned char *)sum->past_caches + at, rounded);
}

/* Without a bias elements of bfloat16 may be taken by pairs, and a NaN comes from one of them, or is the CPU's own: so
 * rounding keeps it. */
INLINE void sum_elements_of_halves(const struct sum_of_elements *of, load_halves *load, vecs_of_halves *widen,
                                   halves_of_vecs *narrow, int is_bf16) {
    const struct sum_of_elements sum = *of; /* which stores do not change */
    const unsigned char *a = sum.a, *b = sum.b;
    const int is_far = is_far_sum(&sum);
    size_t i = 0;
    vec both[2], other[2];
    for (; is_bf16 && LANES > 1 && !sum.bias && i + HALVES <= sum.count; i += HALVES) {
        load_in_order(both, a + HALF_BYTES * i, 1);
        load_in_order(other, b + HALF_BYTES * i, 1);
        both[0] = vec_add(both[0], other[0]);
        both[1] = vec_add(both[1], other[1]);
        store_sum(&sum, HALF_BYTES * i, bf16_of_pairs(both[0], both[1]), is_far);
    }
    for (; i < sum.count; i += HALVES) {
        const size_t at = HALF_BYTES * i;
        const ptrdiff_t left = (ptrdiff_t)(sum.count - i);
        load_some(both, a + at, left, load, widen);
        load_some(other, b + at, left, load, widen);
        both[0] = vec_add(both[0], other[0]);
        both[1] = vec_add(both[1], other[1]);
        sum_vectors(both, sum.bias ? sum.bias + i : NULL, left);
        const halves rounded = narrow(both[0], both[1]);
        if (left >= HALVES) {
            store_sum(&sum, at, rounded, is_far);
            continue;
        }
        halves_store_n((unsigned char *)sum.to + at, rounded, left);
        if (sum.past_caches)
            halves_store_n((unsigned char *)sum.past_caches + at, rounded, left);
    }
}

/* The last elements are weighed in buffers, by the same loop. */
INLINE void weigh_halves(void *elements, const float *weight, const float *bias, size_t count, vecs_of_halves *widen,
                         halves_of_vecs *narrow) {
    const float *by = weight ? weight : bias;
    struct last_halves last;
    unsigned char *to = elements, *p = to;
    size_t left = count % HALVES, end = count - left;
    for (;;) {
        for (size_t i = 0; i < end; i += HALVES) {
            vec a[2];
            widen(&a[0], &a[1], halves_load(p + HALF_BYTES * i));
            for (int k = 0; k < 2; k++)
                a[k] =
                    weight ? vec_mul(a[k], vec_load(by + i + k * LANES)) : vec_add(a[k], vec_load(by + i + k * LANES));
            halves_store(p + HALF_BYTES * i, narrow(a[0], a[1]));
        }
        if (p == last.elements)
            memcpy(to, last.elements, HALF_BYTES * left);
        if (p == last.elements || !left)
            return;
        to += HALF_BYTES * end;
        memset(&last, 0, sizeof last);
        memcpy(last.elements, to, HALF_BYTES * left);
        by = memcpy(last.floats, by + end, sizeof(float) * left);
        p = last.elements;
        end = HALVES;
    }
}

#define CONVERSIONS_OF_HALVES(type)                                                                                    \
    OUTLINED void widen_##type(float *to, const void *from, size_t count) {                                            \
        widen_halves(to, from, count, vec_of_##type);                                                                  \
    }                                                                                                                  \
    OUTLINED void add_##type(float *to, const float *a, const void *b, size_t count) {                                 \
        add_halves(to, a, b, count, vec_of_##type);                                                                    \
    }                                                                                                                  \
    OUTLINED void narrow_##type(void *to, const float *from, size_t count, int streams) {                              \
        narrow_halves(to, from, count, streams, type##_of_vecs);                                                       \
    }                                                                                                                  \
    OUTLINED void sum_##type(const struct sum_of_elements *sum) {                                                      \
        sum_elements_of_halves(sum, vec_of_##type, vecs_of_##type, type##_of_vecs, type_##type == type_bf16);          \
    }                                                                                                                  \
    OUTLINED void weigh_##type(void *elements, const float *weight, const float *bias, size_t count) {                 \
        weigh_halves(elements, weight, bias, count, vecs_of_##type, type##_of_vecs);                                   \
    }
CONVERSIONS_OF_HALVES(bf16)
CONVERSIONS_OF_HALVES(f16)

/* ---- Floats, which only have another place ---- */

OUTLINED void widen_f32(float *to, const void *from, size_t count) {
    memcpy(to, from, count * sizeof(float));
}

OUTLINED void add_f32(float *to, const float *a, const void *b, size_t count) {
    ADD_FLOATS(to, a, b, count);
}

OUTLINED void sum_f32(const struct sum_of_elements *of) {
    const struct sum_of_elements sum = *of; /* which stores do not change */
    const float *a = sum.a, *b = sum.b;
    float *to = sum.to, *past_caches = sum.past_caches;
    const int is_far = is_far_sum(&sum);
    const vec zero = vec_set(0);
    size_t i = 0;
    if (!is_far && !sum.bias) {
        ADD_FLOATS(to, a, b, sum.count);
        return;
    }
    for (; i + LANES <= sum.count; i += LANES) {
        vec both = vec_add(vec_load(a + i), vec_load(b + i));
        if (sum.bias)
            both = vec_add(both, vec_load(sum.bias + i));
        if (to)
            vec_store(to + i, both);
        if (!is_far)
            continue;
        if (sum.ahead)
            prefetch_terms(&sum, i * sizeof(float));
        if (past_caches)
            vec_stream(past_caches + i, both);
    }
    if (i == sum.count)
        return;
    const ptrdiff_t left = (ptrdiff_t)(sum.count - i);
    vec both = vec_add(vec_load_n(a + i, left, zero), vec_load_n(b + i, left, zero));
    if (sum.bias)
        both = vec_add(both, vec_load_n(sum.bias + i, left, zero));
    if (to)
        vec_store_n(to + i, both, left);
    if (past_caches)
        vec_store_n(past_caches + i, both, left);
}

OUTLINED void narrow_f32(void *to, const float *from, size_t count, int streams) {
    float *p = to;
    size_t i = 0;
    if (VEC_CAN_STREAM && streams && (uintptr_t)p % sizeof(float) == 0) {
        const size_t to_line = to_next_line(p);
        i = to_line < count ? to_line : count;
        memcpy(p, from, i * sizeof(float));
        const size_t end = i + (count - i) / FLOATS_OF_LINE * FLOATS_OF_LINE;
        for (; i < end; i += LANES)
            vec_stream(p + i, vec_load(from + i));
    }
    memcpy(p + i, from + i, (count - i) * sizeof(float));
}

OUTLINED void weigh_f32(void *elements, const float *weight, const float *bias, size_t count) {
    float *const floats = elements;
    const vec zero = vec_set(0);
    for (size_t i = 0; i < count; i += LANES) {
        const struct place place = place_at(i, count);
        const vec a = load_vector(floats, place, zero), by = load_vector(weight ? weight : bias, place, zero);
        store_vector(floats, place, weight ? vec_mul(a, by) : vec_add(a, by));
    }
}

/* ---- Rows of floats ---- */

/* The bits of the greatest absolute value, which are in the order of these. */
INLINE uint32_t greatest_bits_of_floats(const float *from, size_t count) {
    vec greatest[SIDE_BY_SIDE];
    size_t i = 0;
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        greatest[k] = vec_set(0);
    for (; i + SIDE_BY_SIDE * LANES <= count; i += SIDE_BY_SIDE * LANES)
        UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++) greatest[k] =
            vec_max_bits(greatest[k], vec_abs(vec_load(from + i + k * LANES)));
    for (; i < count; i += LANES)
        greatest[0] = vec_max_bits(greatest[0], vec_abs(vec_load_n(from + i, (ptrdiff_t)(count - i), vec_set(0))));
    return vec_greatest_bits(
        vec_max_bits(vec_max_bits(greatest[0], greatest[1]), vec_max_bits(greatest[2], greatest[3])));
}

/* A float plus 3 2^22 is rounded to an integer, which stands in its low bits. */
INLINE vec rounded_to_integer(vec a) {
    return vec_add(a, vec_set(0x1.8p23f));
}

INLINE void store_quantized(unsigned char *to, vec a) {
    store_low_bytes(to, rounded_to_integer(a));
}

/* What is within the range of the integers. */
INLINE vec in_range(vec a) {
    a = vec_select_outside(vec_abs(a), 0, INFINITY_BITS, vec_set(0), a); /* a NaN becomes 0 */
    return vec_max(vec_set(-127), vec_min(vec_set(127), a));
}

DYNNORM_INTERNAL quantize_function QUANTIZE;
void QUANTIZE(void *to, const float *from, size_t count, float scale, float *row_scale) {
    enum { BITS_OF_127 = 0x42fe0000, LINE = FLOATS_OF_LINE * sizeof(float) };
    const size_t ahead = 1024; /* these lines may come from memory: see fetch_to_write */
    unsigned char *p = to, last[LANES];
    float factor;
    int may_be_outside = 1;
    size_t i = 0;
    if (!row_scale) {
        factor = 1 / scale;
    } else {
        const uint32_t bits = greatest_bits_of_floats(from, count);
        float greatest;
        memcpy(&greatest, &bits, sizeof greatest);
        const int is_zero = greatest < 0x1p-120f;
        factor = is_zero ? 0 : 127 / greatest;
        store_float(row_scale, is_zero ? 0 : greatest / 127);
        may_be_outside = bits >= INFINITY_BITS;
    }
    const vec factors = vec_set(factor);
    for (; i + SIDE_BY_SIDE * LANES <= count; i += SIDE_BY_SIDE * LANES) {
        vec a[SIDE_BY_SIDE], greatest = vec_set(0);
        if (SIDE_BY_SIDE * LANES >= LINE || i % LINE == 0)
            __builtin_prefetch((const void *)((uintptr_t)p + i + ahead), 1, 3);
        UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++) {
            a[k] = vec_mul(vec_load(from + i + k * LANES), factors);
            greatest = vec_max_bits(greatest, vec_abs(a[k]));
        }
        if (may_be_outside && __builtin_expect(vec_any_bits_above(greatest, BITS_OF_127), 0))
            UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++) a[k] = in_range(a[k]);
        UNROLL_UP_TO_4 for (int k = 0; k < SIDE_BY_SIDE; k++) a[k] = rounded_to_integer(a[k]);
        store_low_bytes_of_four(p + i, a); /* so many as are side by side */
    }
    for (; i + LANES <= count; i += LANES)
        store_quantized(p + i, in_range(vec_mul(vec_load(from + i), factors)));
    if (LANES > 1 && i < count) {
        store_quantized(last, in_range(vec_mul(vec_load_n(from + i, (ptrdiff_t)(count - i), vec_set(0)), factors)));
        memcpy(p + i, last, (count - i) % LANES);
    }
}

/* ---- All of them ---- */

DYNNORM_INTERNAL const struct conversion CONVERSIONS[TYPES];
DYNNORM_INTERNAL const struct conversion CONVERSIONS[TYPES] = {
#define ELEMENT_TYPE(name, NAME, bytes, digits)                                                                        \
    [type_##name] = {widen_##name, add_##name, narrow_##name, sum_##name, weigh_##name},
#include "element_types.def"
};

#endif
