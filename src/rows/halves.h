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

#define LOAD_HALVES(type)                                                                                              \
    INLINE vec some_##type(const void *p, ptrdiff_t n) {                                                               \
        vec low, high;                                                                                                 \
        if (n >= LANES)                                                                                                \
            return vec_of_##type(p);                                                                                   \
        vecs_of_##type(&low, &high, halves_load_n(p, n > 0 ? n : 0));                                                  \
        return low;                                                                                                    \
    }                                                                                                                  \
    static const struct load_halves load_##type = {vec_of_##type, some_##type};
LOAD_HALVES(bf16)
LOAD_HALVES(f16)

#endif
