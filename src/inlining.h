/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which functions of the kernels are inlined, and which loops are unrolled.
 */
#ifndef DYNNORM_INLINING_H
#define DYNNORM_INLINING_H

/* Always. */
#define INLINE static inline __attribute__((always_inline))

/* Never, because the copies would cost more than the calls. */
#define OUTLINED static __attribute__((noinline, unused))

/* Never, because it is hardly ever called. */
#define RARE static __attribute__((noinline, cold, unused))

/* Does something for each k below count, a few vectors side by side: EACH(a[k] = vec_add(a[k], b[k])). Where count is
 * constant the loop disappears, and the vectors stay in registers. */
enum { SIDE_BY_SIDE = 4 };
#define EACH(...)                                                                                                      \
    _Pragma("GCC unroll 4") for (int k = 0; k < count; k++) {                                                          \
        __VA_ARGS__;                                                                                                   \
    }

#endif
