/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Tanh: y = w s tanh(alpha x) + b.
 */
#ifndef DYNNORM_DYT_H
#define DYNNORM_DYT_H

struct dyt {
    float alpha;
    float scale;
    struct slope slope; /* scale alpha */
};

INLINE struct dyt dyt_constants(float alpha, float scale) {
    double slope = (double)scale * (double)alpha;
    return (struct dyt){alpha, scale, split_slope(slope, slope)};
}

/* ---- Forward: f = s tanh(alpha x) ---- */

INLINE vec dyt_function(vec x, const void *context, tanh_function *tanh_of) {
    const struct dyt *dyt = context;
    return vec_mul(tanh_of(vec_mul(x, vec_set(dyt->alpha))), vec_set(dyt->scale));
}

INLINE void dyt_forward(const struct forward_arguments *arguments, size_t first, size_t rows,
                        forward_function *function) {
    struct dyt dyt = dyt_constants(arguments->parameter, arguments->scale);
    elementwise_forward(arguments, first, rows, function, &dyt);
}

/* ---- Backward: f = tanh(alpha x), p = h x (1 - f^2); the factor s of their sums is left to the end ---- */

/* Elements whose |alpha x| is beyond the limit, infinities among them, are computed in double. */
RARE struct gradient dyt_rare_gradient(vec x, struct gradient gradient, const struct dyt *dyt) {
    float element[LANES], f[LANES], dx[LANES], factor[LANES];
    vec_store(element, x);
    vec_store(f, gradient.f);
    vec_store(dx, gradient.dx);
    vec_store(factor, gradient.factor);
    for (int lane = 0; lane < LANES; lane++) {
        double z = (double)element[lane] * (double)dyt->alpha;
        if (!(fabs((double)(float)z) > (double)TANH_LIMIT))
            continue;
        double derivative = 4 * dynnorm_wide_exponential(-2 * fabs(z));
        f[lane] = z > 0 ? 1 : -1;
        dx[lane] = (float)(derivative * (double)dyt->slope.value);
        factor[lane] = derivative == 0 ? 0 : (float)(derivative * (double)element[lane]);
    }
    return (struct gradient){vec_load(f), vec_load(dx), vec_load(factor)};
}

INLINE struct gradient dyt_gradient(vec x, vec dy, vec weight, const void *context, tanh_derivative_function *tanh_of) {
    const struct dyt *dyt = context;
    (void)dy, (void)weight;
    vec alpha = vec_set(dyt->alpha);
    vec z = vec_mul(x, alpha);
    vec z_rest = vec_fms(x, alpha, z);
    struct tanh_and_derivative tanh = tanh_of(z, z_rest);
    struct gradient gradient = {tanh.value, vec_mul(tanh.derivative, vec_set(dyt->slope.value)),
                                vec_mul(tanh.derivative, x)};
    if (vec_any_outside(vec_abs(z), 0, 0x422e0000)) /* the bits of the limit */
        gradient = dyt_rare_gradient(x, gradient, dyt);
    return gradient;
}

INLINE void dyt_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                         const struct partial_sums *sums, gradient_function *gradient) {
    struct dyt dyt = dyt_constants(arguments->parameter, arguments->scale);
    elementwise_backward(arguments, first, rows, sums, gradient, NULL, dyt.slope.power, &dyt);
}

/* ---- The kernels of a mode ---- */

#define DYT_FORWARD(mode)                                                                                              \
    INLINE vec dyt_function_##mode(vec x, const void *context) {                                                       \
        return dyt_function(x, context, tanh_##mode);                                                                  \
    }                                                                                                                  \
    static void dyt_forward_##mode(const struct forward_arguments *arguments, size_t first, size_t rows) {             \
        dyt_forward(arguments, first, rows, dyt_function_##mode);                                                      \
    }

#define DYT_BACKWARD(mode)                                                                                             \
    INLINE struct gradient dyt_gradient_##mode(vec x, vec dy, vec weight, const void *context) {                       \
        return dyt_gradient(x, dy, weight, context, tanh_with_derivative_##mode);                                      \
    }                                                                                                                  \
    static void dyt_backward_##mode(const struct backward_arguments *arguments, size_t first, size_t rows,             \
                                    const struct partial_sums *sums) {                                                 \
        dyt_backward(arguments, first, rows, sums, dyt_gradient_##mode);                                               \
    }

DYT_FORWARD(portable)
DYT_BACKWARD(portable)
DYT_BACKWARD(native)
#ifdef VEC_HAVE_SLEEF
#define tanh_sleef vec_tanh_sleef
DYT_FORWARD(sleef)
DYT_BACKWARD(sleef)
#endif

#endif
