/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of DyISRU, which the centered DyISRU has in common with it: q = x / sqrt(beta + x^2).
 *
 * x is limited to +-2^62: for a beta of at most 2^60 q is +-1 there. Any other beta is unusual. It is brought between
 * 2^-60 and 2^60 by a power of two, and x by its root, but for a beta of 0, where q is the sign of x.
 */
#ifndef DYNNORM_DYISRU_VECTORS_H
#define DYNNORM_DYISRU_VECTORS_H

#include "functions/inverse_square_root.h"
#include "kernel_names.h"
#include "operations/operation.h"

/* A beta of 2^-60 to 2^60. */
INLINE int dyisru_is_usual(float beta) {
    return beta >= 0x1p-60f && beta <= 0x1p60f;
}

INLINE struct call_constants dyisru_begin_call(size_t channels, float eps, float beta, float scale) {
    (void)eps;
    return (struct call_constants){
        .channels = channels, .parameter = beta, .scale = scale, .is_unusual = !dyisru_is_usual(beta)};
}

INLINE void dyisru_vectors(vec *f, const vec *x, const vec *beta, int count, quotients_function *quotients) {
    vec v[SIDE_BY_SIDE], a[SIDE_BY_SIDE];
    EACH(v[k] = vec_max(vec_set(-0x1p62f), vec_min(vec_set(0x1p62f), x[k]))); /* a NaN stays */
    EACH(a[k] = vec_fma(v[k], v[k], beta[k]));
    quotients(f, a, v, count);
}

/* The square of a tiny x does not count beside a usual beta. */
INLINE vec dyisru_unless_tiny(vec x) {
    return vec_select_outside(vec_abs(x), 0, BITS_OF_TINY, x, vec_set(0));
}

/* A tiny x, and any other beside it: see rows/subnormals.h, and dyisru_unusual.h. The native mode's arithmetic has
 * factors near 1 with AVX-512. */
#ifdef VEC_SUBNORMALS_ARE_SLOW
DYNNORM_INTERNAL void DYISRU_TINY_VECTORS(portable)(vec *f, const vec *x, const struct channel_parameters *parameters,
                                                    size_t channel);
DYNNORM_INTERNAL void DYISRU_TINY_VECTORS(native)(vec *f, const vec *x, const struct channel_parameters *parameters,
                                                  size_t channel);
#define DYISRU_TINY_PORTABLE .forward_tiny_vectors = DYISRU_TINY_VECTORS(portable), .bits_of_tiny_x = BITS_OF_TINY
#define DYISRU_TINY_NATIVE                                                                                             \
    .forward_tiny_vectors = DYISRU_TINY_VECTORS(native),                                                               \
    .bits_of_tiny_x = VEC_RSQRT_ESTIMATE_BITS < 14 ? BITS_OF_TINY : BITS_OF_TINIER
#else
#define DYISRU_TINY_PORTABLE .forward_tiny_vectors = NULL
#define DYISRU_TINY_NATIVE .forward_tiny_vectors = NULL
#endif

/* What is done with betas of channels, and where one of them is unusual: see dyisru_unusual.h. */
DYNNORM_INTERNAL void DYISRU_CHANNEL_PARAMETERS(struct channel_parameters *made, const float *betas, size_t count,
                                                int is_one);
DYNNORM_INTERNAL void DYISRU_UNUSUAL_VECTORS(portable)(vec *f, const vec *x,
                                                       const struct channel_parameters *parameters, size_t channel);
IF_TABLE_HAS_native(DYNNORM_INTERNAL void DYISRU_UNUSUAL_VECTORS(native)(vec *f, const vec *x,
                                                                         const struct channel_parameters *parameters,
                                                                         size_t channel);)

#endif
