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

/* What a plain call with one token runs. After other work has been through the caches such a call takes as long as
 * fetching its code, so these functions lie side by side, on one page if the first of them begins one. */
#define OF_ONE_TOKEN __attribute__((hot, aligned(64)))
#define FIRST_OF_ONE_TOKEN __attribute__((hot, aligned(4096)))

#endif
