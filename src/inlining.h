/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which functions of the kernels are inlined.
 */
#ifndef DYNNORM_INLINING_H
#define DYNNORM_INLINING_H

/* Always. */
#define INLINE static inline __attribute__((always_inline))

/* Never, because the copies would cost more than the calls. */
#define OUTLINED static __attribute__((noinline, unused))

/* Never, because it is hardly ever called. */
#define RARE static __attribute__((noinline, cold, unused))

#endif
