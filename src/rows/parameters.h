/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Weight and bias, handed out in blocks of channels as plain arrays of float, whatever the caller gave: a pointer into
 * the caller's memory where that will do, else a small buffer which stays in L1.
 */
#ifndef DYNNORM_PARAMETERS_H
#define DYNNORM_PARAMETERS_H

enum { BLOCK = 256 }; /* channels in a block; also the length of the float sums in row_sums.h */

struct parameter {
    const float *values; /* NULL: absent */
    float offset;        /* added to each value, the sum rounded to float */
    float buffer[BLOCK];
};

INLINE void parameter_init(struct parameter *parameter, const float *values, float offset, float absent) {
    parameter->values = values;
    parameter->offset = offset;
    if (!values)
        for (size_t i = 0; i < BLOCK; i += LANES)
            vec_store(parameter->buffer + i, vec_set(absent));
}

INLINE void weight_init(struct parameter *weight, const float *values, float offset) {
    parameter_init(weight, values, offset, 1);
}

/* fma(a, b, -0.0) is a b to the last bit and the sign of zero; so -0.0 stands for no bias. */
INLINE void bias_init(struct parameter *bias, const float *values) {
    parameter_init(bias, values, 0, -0.0f);
}

/* The n <= BLOCK values from channel first on. */
INLINE const float *parameter_block(struct parameter *parameter, size_t first, size_t n) {
    if (!parameter->values)
        return parameter->buffer;
    if (parameter->offset == 0)
        return parameter->values + first;
    for (size_t i = 0; i < n; i += LANES) {
        vec value = vec_load_n(parameter->values + first + i, (ptrdiff_t)(n - i), vec_set(0));
        vec_store(parameter->buffer + i, vec_add(value, vec_set(parameter->offset)));
    }
    return parameter->buffer;
}

#endif
