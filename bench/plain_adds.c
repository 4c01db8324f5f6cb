/* SPDX-License-Identifier: BSD-2-Clause */
#include "plain_adds.h"
#include "plain_elements.h"

/* The arrays are parameters because gcc respects restrict on parameters most reliably. */
#define ADDS(name, type, widened, narrowed)                                                                            \
    static void add_##name(type *restrict to, const type *a, const type *b, size_t count) {                            \
        for (size_t i = 0; i < count; i++)                                                                             \
            to[i] = narrowed(widened(a[i]) + widened(b[i]));                                                           \
    }                                                                                                                  \
    static void add_to_##name(type *restrict to, const type *b, size_t count) {                                        \
        for (size_t i = 0; i < count; i++)                                                                             \
            to[i] = narrowed(widened(to[i]) + widened(b[i]));                                                          \
    }
ADDS(f32, float, , )
ADDS(bf16, uint16_t, float_of_bf16, bf16_of_float)

void plain_add(dynnorm_type type, void *to, const void *a, const void *b, size_t count) {
    if (type == DYNNORM_BF16)
        add_bf16(to, a, b, count);
    else
        add_f32(to, a, b, count);
}

void plain_add_to(dynnorm_type type, void *to, const void *b, size_t count) {
    if (type == DYNNORM_BF16)
        add_to_bf16(to, b, count);
    else
        add_to_f32(to, b, count);
}
