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
#include "rows/writer.h"
#include "rows/halves.h"

/* ---- 16 bits ---- */

/* Of the last vectors only some exist. They are converted in a buffer; % tells the compiler that it has room. */
struct last_halves {
    _Alignas(64) unsigned char elements[sizeof(halves)];
    _Alignas(64) float floats[HALVES];
};

INLINE void widen_last(struct last_halves *last, const unsigned char *from, size_t count, vecs_of_halves *convert) {
    vec low, high;
    memset(last->elements, 0, sizeof last->elements);
    memcpy(last->elements, from, count % HALVES * 2);
    convert(&low, &high, halves_load(last->elements));
    vec_store(last->floats, low);
    vec_store(last->floats + LANES, high);
}

INLINE void widen_halves(float *to, const void *from, size_t count, vecs_of_halves *convert) {
    const unsigned char *p = from;
    size_t i = 0;
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves)) {
        vec low, high;
        convert(&low, &high, halves_load(p));
        vec_store(to + i, low);
        vec_store(to + i + LANES, high);
    }
    if (i < count) {
        struct last_halves last;
        widen_last(&last, p, count - i, convert);
        memcpy(to + i, last.floats, (count - i) % HALVES * sizeof(float));
    }
}

INLINE void add_halves(float *to, const float *a, const void *b, size_t count, vecs_of_halves *convert) {
    const unsigned char *p = b;
    size_t i = 0;
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves)) {
        vec low, high;
        convert(&low, &high, halves_load(p));
        vec_store(to + i, vec_add(vec_load(a + i), low));
        vec_store(to + i + LANES, vec_add(vec_load(a + i + LANES), high));
    }
    if (i < count) {
        struct last_halves last;
        widen_last(&last, p, count - i, convert);
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
        for (; i + HALVES <= count; i += HALVES, p += sizeof(halves))
            halves_stream(p, convert(vec_load(from + i), vec_load(from + i + LANES)));
    }
    for (; i + HALVES <= count; i += HALVES, p += sizeof(halves))
        halves_store(p, convert(vec_load(from + i), vec_load(from + i + LANES)));
    if (i < count)
        narrow_some(p, from + i, count - i, convert);
}

#define CONVERSIONS_OF_HALVES(type)                                                                                    \
    OUTLINED void widen_##type(float *to, const void *from, size_t count) {                                            \
        widen_halves(to, from, count, vecs_of_##type);                                                                 \
    }                                                                                                                  \
    OUTLINED void add_##type(float *to, const float *a, const void *b, size_t count) {                                 \
        add_halves(to, a, b, count, vecs_of_##type);                                                                   \
    }                                                                                                                  \
    OUTLINED void narrow_##type(void *to, const float *from, size_t count, int streams) {                              \
        narrow_halves(to, from, count, streams, type##_of_vecs);                                                       \
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

OUTLINED void narrow_f32(void *to, const float *from, size_t count, int streams) {
    enum { LINE = FLOATS_OF_LINE * sizeof(float) };
    float *p = to;
    size_t i = 0;
    if (VEC_CAN_STREAM && streams && (uintptr_t)p % sizeof(float) == 0) {
        const size_t past_line = (uintptr_t)p % LINE / sizeof(float),
                     to_line = past_line ? FLOATS_OF_LINE - past_line : 0;
        i = to_line < count ? to_line : count;
        memcpy(p, from, i * sizeof(float));
        for (; i + LANES <= count; i += LANES)
            vec_stream(p + i, vec_load(from + i));
    }
    memcpy(p + i, from + i, (count - i) * sizeof(float));
}

/* ---- Rows of floats ---- */

OUTLINED void end_streaming(void) {
    vec_end_streaming();
}

OUTLINED void multiply_by_floats(float *to, const float *by, size_t count) {
    for (size_t i = 0; i < count; i += LANES) {
        const ptrdiff_t n = (ptrdiff_t)(count - i);
        vec_store_n(to + i, vec_mul(vec_load_n(to + i, n, vec_set(0)), vec_load_n(by + i, n, vec_set(0))), n);
    }
}

OUTLINED float greatest_of_floats(const float *from, size_t count) {
    vec greatest = vec_set(0);
    float lanes[LANES], result = 0;
    for (size_t i = 0; i < count; i += LANES)
        greatest = vec_max_bits(greatest, vec_abs(vec_load_n(from + i, (ptrdiff_t)(count - i), vec_set(0))));
    vec_store(lanes, greatest);
    for (int k = 0; k < LANES; k++)
        result = lanes[k] > result || lanes[k] != lanes[k] ? lanes[k] : result;
    return result;
}

/* A float plus 3 2^22 is rounded to an integer, which stands in its low bits. */
OUTLINED void quantize_floats(void *to, const float *from, size_t count, float factor) {
    unsigned char *p = to, last[LANES];
    for (size_t i = 0; i < count; i += LANES) {
        const size_t n = count - i < LANES ? count - i : LANES;
        vec a = vec_mul(vec_load_n(from + i, (ptrdiff_t)n, vec_set(0)), vec_set(factor));
        a = vec_select_outside(vec_abs(a), 0, INFINITY_BITS, vec_set(0), a); /* a NaN becomes 0 */
        a = vec_max(vec_set(-127), vec_min(vec_set(127), a));
        a = vec_add(a, vec_set(0x1.8p23f));
        if (n == LANES) {
            store_low_bytes(p + i, a);
        } else {
            store_low_bytes(last, a);
            memcpy(p + i, last, n);
        }
    }
}

#endif
