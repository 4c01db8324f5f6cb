/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What kernels know of types of 16 bits whose elements they read and write without buffers of floats: how many a vector
 * has, and what the functions of convert.h that widen and narrow them look like.
 */
#ifndef DYNNORM_HALVES_H
#define DYNNORM_HALVES_H

#include "convert.h"
#include "element_types.h"

enum { HALVES = 2 * LANES };

/* Near rows come from the caches, and y stays there. Forward passes have loops of their own for usual ones, which do
 * not ask for each vector what is prefetched, and where y goes. On a Zen 3 with AVX2 they took 0.75 to 0.99 times as
 * long, on a Zen 4 with AVX-512 0.88 to 1 times. For NEON instructions were counted: 18 instead of 23 for a vector of
 * y. Rows whose weight and bias are widened like x are long ones, mostly: with AVX-512 they gained nothing, and only
 * have one for sums and y together. */
enum { HAS_NEAR_LOOPS = LANES > 1, HAS_NEAR_LOOPS_LIKE_X = LANES == 4 || LANES == 8 };

/* The CPU's instruction that rounds to bfloat16 takes denormals for 0. y = f w + b, a fused operation, is none if b is
 * this power of 2 or more. Where f w is less than half of b y is half of b or more; elsewhere f w is a multiple of
 * 2^-108, and b of 2^-83, and so is y, unless it is 0. */
#define LEAST_BIAS_BY_INSTRUCTION 0x1p-60f

#ifdef HALVES_HAVE_BF16_INSTRUCTION
enum { HAS_BF16_INSTRUCTION = 1 };
#else
enum { HAS_BF16_INSTRUCTION = 0 };

INLINE int any_tiny_bf16(halves a, halves b) {
    (void)a, (void)b;
    return 1;
}

INLINE halves bf16_of_normal_vecs(vec low, vec high) {
    return bf16_of_vecs(low, high);
}

INLINE halves bf16_of_normal_pairs(vec even, vec odd) {
    return bf16_of_pairs(even, odd);
}
#endif

/* LANES elements in double, from memory. An instruction set that defines these functions by itself may have elements of
 * bfloat16 in another order, for which wide_fold_of_bf16 then makes up. */
#ifndef HALVES_DEFINE_DOUBLES
INLINE wide wide_of_f16(const void *p) {
    return vec_widen(vec_of_f16(p));
}

INLINE wide wide_of_bf16(const void *p) {
    return vec_widen(vec_of_bf16(p));
}

INLINE eight wide_fold_of_bf16(const wide lanes[16 / LANES]) {
    return wide_fold(lanes);
}
#endif

/* Past the caches their place is a multiple of their size. */
INLINE void write_halves(void *to, halves a, int past_caches) {
    if (VEC_CAN_STREAM && past_caches)
        halves_stream(to, a);
    else
        halves_store(to, a);
}

/* Two vectors that are in the order in which elements of the type are widened: see convert.h. */
INLINE halves halves_in_order(vec first, vec second, int is_bf16) {
    return is_bf16 ? bf16_of_pairs(first, second) : f16_of_vecs(first, second);
}

INLINE void write_halves_in_order(void *to, vec first, vec second, int is_bf16, int past_caches) {
    if (is_bf16)
        write_halves(to, bf16_of_pairs(first, second), past_caches);
    else
        f16_write(to, first, second, past_caches);
}

typedef vec load_halves(const void *p); /* LANES of them */
typedef wide load_wide_halves(const void *p);
typedef void vecs_of_halves(vec *low, vec *high, halves a);
typedef halves halves_of_vecs(vec low, vec high);

#endif
