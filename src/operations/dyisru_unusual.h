/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the forward passes of DyISRU and the centered DyISRU make of the betas of channels, and their vectors where one
 * of these is unusual. It is compiled once for each table.
 */
#ifndef DYNNORM_DYISRU_UNUSUAL_H
#define DYNNORM_DYISRU_UNUSUAL_H

#include "operations/dyisru_vectors.h"

#include <math.h>

/* The scaled betas, and what x is multiplied by. */
void DYISRU_CHANNEL_PARAMETERS(struct channel_parameters *made, const float *betas, size_t count, int is_one) {
    const uint32_t least = 0x21800000, greatest = 0x5d800000; /* 2^-60 and 2^60 */
    const vec one = vec_set(1);
    vec unusual = vec_set(0), before_zero = vec_set(0), least_beta = vec_set(INFINITY);
    size_t i = 0;
    for (; i < ELEMENTWISE_BLOCK && i < count; i += LANES) {
        vec beta = vec_add(parameters_at(betas, i, count, is_one), vec_set(0)); /* without a -0 */
        least_beta = vec_min(beta, least_beta);
        before_zero = vec_max_bits(before_zero, vec_bits_minus(beta, 1)); /* of 0 the greatest bits there are */
        vec scale = vec_select_outside(beta, 0, least - 1, vec_set(0x1p-34f), vec_set(0x1p60f));
        scale = vec_select_outside(beta, least, greatest - least, scale, one);
        unusual = vec_max_bits(unusual, vec_bits_minus(beta, least));
        beta = vec_select_outside(beta, 0, FLOAT_MAX_BITS, vec_set(NAN), beta);
        vec_store(made->parameter + i, vec_mul(vec_mul(beta, scale), scale));
        vec_store(made->input_scale + i, scale);
    }
    end_parameters(made, i);
    made->are_ready = 1;
    made->are_unusual = vec_any_bits_above(unusual, greatest - least);
    made->has_zero = vec_any_bits_above(before_zero, UINT32_MAX - 1);
    made->are_zero = is_one && made->has_zero;
    float lanes[LANES];
    vec_store(lanes, least_beta);
    made->least = lanes[0];
#pragma GCC unroll 1
    for (int lane = 1; lane < LANES; lane++)
        made->least = lanes[lane] < made->least ? lanes[lane] : made->least;
}

INLINE void unusual_vectors_of(vec *f, const vec *x, const struct channel_parameters *parameters, size_t channel,
                               float most, quotients_function *quotients) {
    const int count = SIDE_BY_SIDE;
    vec beta[SIDE_BY_SIDE], v[SIDE_BY_SIDE], sign[SIDE_BY_SIDE];
    EACH(beta[k] = vec_load(parameters->parameter + channel + LANES * k));
    EACH(f[k] = v[k] = vec_mul(x[k], vec_load(parameters->input_scale + channel + LANES * k)));
    if (!parameters->are_zero)
        dyisru_vectors(f, v, beta, count, quotients);
    if (!parameters->has_zero)
        return;
    /* With a beta of 0 a subnormal x is beyond the limit, too. */
    EACH(sign[k] = vec_mul(vec_mul(x[k], vec_set(0x1p100f)), vec_set(0x1p100f)));
    EACH(sign[k] = vec_max(vec_set(-most), vec_min(vec_set(most), sign[k])));
    EACH(f[k] = vec_select_outside(beta[k], 0, 0, f[k], sign[k]));
}

/* most: the greatest f */
#define DEFINE_UNUSUAL_VECTORS(mode, most)                                                                             \
    FOR_SIZE void DYISRU_UNUSUAL_VECTORS(mode)(vec * f, const vec *x, const struct channel_parameters *parameters,     \
                                               size_t channel) {                                                       \
        unusual_vectors_of(f, x, parameters, channel, most, quotients_##mode);                                         \
    }
DEFINE_UNUSUAL_VECTORS(portable, 1)
IF_TABLE_HAS_native(DEFINE_UNUSUAL_VECTORS(native, QUOTIENTS_NATIVE_FACTOR))
#undef DEFINE_UNUSUAL_VECTORS

#ifdef VEC_SUBNORMALS_ARE_SLOW
    INLINE vec dyisru_tiny_vector(vec x, vec beta, quotients_function *quotients) {
    const vec v = vec_max(vec_set(-0x1p62f), vec_min(vec_set(0x1p62f), x));
    const vec root = dyisru_unless_tiny(v), a = vec_fma(root, root, beta);
    vec f;
    quotients(&f, &a, &v, 1);
    return f;
}

#define DEFINE_TINY_VECTORS(mode)                                                                                      \
    void DYISRU_TINY_VECTORS(mode)(vec * f, const vec *x, const struct channel_parameters *parameters,                 \
                                   size_t channel) {                                                                   \
        ONE_AFTER_ANOTHER(k)                                                                                           \
        f[k] = dyisru_tiny_vector(x[k], vec_load(parameters->parameter + channel + LANES * k), tiny_quotients_##mode); \
    }
DEFINE_TINY_VECTORS(portable)
DEFINE_TINY_VECTORS(native)
#undef DEFINE_TINY_VECTORS
#endif

#endif
