/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What kernels know of a type of 16 bits whose elements they read and write without buffers of floats: one constant
 * structure of functions, which are inlined into them.
 */
#ifndef DYNNORM_HALVES_H
#define DYNNORM_HALVES_H

#include "convert.h"
#include "element_types.h"
#include "rows/row_sums.h"

enum { HALVES = 2 * LANES, HALF_BYTES = 2 };

typedef void vecs_of_halves(vec *low, vec *high, halves a);
typedef halves halves_of_vecs(vec low, vec high);

struct halves_type {
    int type; /* of element_types.h */
    struct load_halves load;
    vecs_of_halves *widen;
    halves_of_vecs *narrow;
    halves_of_vecs *narrow_numbers; /* of vectors without a NaN */
};

#define HALVES_TYPE(type)                                                                                              \
    INLINE vec some_##type(const void *p, ptrdiff_t n) {                                                               \
        vec low, high;                                                                                                 \
        if (n >= LANES)                                                                                                \
            return vec_of_##type(p);                                                                                   \
        vecs_of_##type(&low, &high, halves_load_n(p, n > 0 ? n : 0));                                                  \
        return low;                                                                                                    \
    }
HALVES_TYPE(bf16)
HALVES_TYPE(f16)

static const struct halves_type halves_of_bf16 = {
    .type = type_bf16,
    .load = {vec_of_bf16, some_bf16},
    .widen = vecs_of_bf16,
    .narrow = bf16_of_vecs,
    .narrow_numbers = bf16_of_numbers,
};

static const struct halves_type halves_of_f16 = {
    .type = type_f16,
    .load = {vec_of_f16, some_f16},
    .widen = vecs_of_f16,
    .narrow = f16_of_vecs,
    .narrow_numbers = f16_of_vecs,
};

#endif
