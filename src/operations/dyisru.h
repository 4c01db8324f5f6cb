/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dynamic Inverse Square Root Unit: y = w s q + b, q = x / sqrt(beta + x^2); and its general form, on x - mean(x).
 *
 * Elements whose beta + x^2 lies outside of 2^-60 to 2^60 are computed in double, one by one (wide.h).
 */
#ifndef DYNNORM_DYISRU_H
#define DYNNORM_DYISRU_H

struct dyisru {
    float beta;
    float scale;
    struct slope slope; /* scale beta; its power is that of the largest derivative, scale / sqrt(beta) */
    uint32_t low;       /* the bits of the least beta + x^2 that is computed in float, */
    uint32_t span;      /* and how much further the greatest one's are */
};

INLINE struct dyisru dyisru_constants(float beta, float scale) {
    const uint32_t low = 0x21800000, high = 0x5d800000; /* the bits of 2^-60 and 2^60 */
    double slope = (double)scale * (double)beta, largest = (double)scale / sqrt((double)beta);
    struct dyisru dyisru = {beta, scale, split_slope(slope, largest), low, high - low};
    if (beta == 0) /* q is to be exactly a sign: no element is computed in float */
        dyisru.low = 0xffffffff, dyisru.span = 0;
    return dyisru;
}

/* ---- q ---- */

INLINE vec dyisru_root(vec x, const struct dyisru *dyisru) {
    return vec_fma(x, x, vec_set(dyisru->beta));
}

/* Rounding may carry q beyond +-1. */
INLINE vec dyisru_limit(vec q) {
    return vec_max(vec_set(-1), vec_min(vec_set(1), q));
}

/* q with the lanes that float cannot hold computed in double. */
RARE vec dyisru_rare_q(vec x, vec square, vec q, const struct dyisru *dyisru) {
    float elements[LANES];
    vec_store(elements, x);
    for (int lane = 0; lane < LANES; lane++)
        elements[lane] = (float)dynnorm_wide_isru((double)elements[lane], (double)dyisru->beta).q;
    return vec_select_outside(square, dyisru->low, dyisru->span, vec_load(elements), q);
}

INLINE vec dyisru_q(vec x, const struct dyisru *dyisru, inverse_square_root_function *inverse_square_root) {
    vec square = dyisru_root(x, dyisru);
    vec q = dyisru_limit(inverse_square_root(square, x).product);
    if (vec_any_outside(square, dyisru->low, dyisru->span))
        q = dyisru_rare_q(x, square, q, dyisru);
    return q;
}

/* ---- The gradient: f = q, its derivative, and factor = x (beta + x^2)^(-3/2). The sums' factors, s and -s / 2, are
   left to the end. ---- */

RARE struct gradient dyisru_rare_gradient(vec x, vec square, struct gradient gradient, const struct dyisru *dyisru) {
    float f[LANES], dx[LANES], factor[LANES];
    vec_store(f, x);
    for (int lane = 0; lane < LANES; lane++) {
        struct wide_isru isru = dynnorm_wide_isru((double)f[lane], (double)dyisru->beta);
        f[lane] = (float)isru.q;
        dx[lane] = (float)(isru.derivative * (double)dyisru->scale / (double)dyisru->slope.power);
        factor[lane] = (float)isru.p;
    }
    gradient.f = vec_select_outside(square, dyisru->low, dyisru->span, vec_load(f), gradient.f);
    gradient.dx = vec_select_outside(square, dyisru->low, dyisru->span, vec_load(dx), gradient.dx);
    gradient.factor = vec_select_outside(square, dyisru->low, dyisru->span, vec_load(factor), gradient.factor);
    return gradient;
}

/* dx is the derivative of s q, but for slope.power. */
INLINE struct gradient dyisru_gradient(vec x, const struct dyisru *dyisru,
                                       inverse_square_root_function *inverse_square_root) {
    vec square = dyisru_root(x, dyisru);
    struct inverse_square_root parts = inverse_square_root(square, x);
    vec root_2 = vec_mul(parts.root, parts.root);
    struct gradient gradient;
    gradient.f = dyisru_limit(parts.product);
    gradient.dx = vec_mul(root_2, vec_mul(parts.root, vec_set(dyisru->slope.value)));
    gradient.factor = vec_mul(root_2, gradient.f);
    if (vec_any_outside(square, dyisru->low, dyisru->span))
        gradient = dyisru_rare_gradient(x, square, gradient, dyisru);
    return gradient;
}

/* ---- DyISRU ---- */

INLINE vec dyisru_function(vec x, const void *context, inverse_square_root_function *inverse_square_root) {
    const struct dyisru *dyisru = context;
    return vec_mul(dyisru_q(x, dyisru, inverse_square_root), vec_set(dyisru->scale));
}

INLINE void dyisru_forward(const struct forward_arguments *arguments, size_t first, size_t rows,
                           forward_function *function) {
    struct dyisru dyisru = dyisru_constants(arguments->parameter, arguments->scale);
    elementwise_forward(arguments, first, rows, function, &dyisru);
}

INLINE double dyisru_wide_factor(float x, const void *context) {
    return dynnorm_wide_isru((double)x, (double)((const struct dyisru *)context)->beta).p;
}

INLINE void dyisru_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                            const struct partial_sums *sums, gradient_function *gradient) {
    struct dyisru dyisru = dyisru_constants(arguments->parameter, arguments->scale);
    elementwise_backward(arguments, first, rows, sums, gradient, dyisru_wide_factor, dyisru.slope.power, &dyisru);
}

/* ---- The general DyISRU, on u = x - mean(x); dx = du - mean(du) ---- */

struct centered_row {
    struct norm_row norm; /* for its mean, and whether float can hold the row */
    struct dyisru dyisru;
    float mean_du;
    double wide_mean_du;
};

/* The mean of a row alone. With deviations so small that float cannot hold those from the mean, the row is wide. */
INLINE void prepare_centered(struct centered_row *row, const float *x, size_t channels, struct dyisru dyisru) {
    row->dyisru = dyisru;
    float one = load_float(x);
    int is_constant = one == load_float(x + channels - 1) && dynnorm_all_equal(x, channels, one);
    float eps = is_constant ? 1 : 0; /* what lets a row without deviation pass */
    struct norm norm = norm_of(channels, eps);
    prepare_statistics(&row->norm, x, &norm, 1);
    row->norm.mean_rest = (float)((double)row->norm.mean - row->norm.statistics.mean);
}

INLINE vec center(vec x, const struct centered_row *row) {
    return vec_add(vec_sub(x, vec_set(row->norm.mean)), vec_set(row->norm.mean_rest));
}

INLINE vec centered_dyisru_function(vec x, const void *context, inverse_square_root_function *inverse_square_root) {
    const struct centered_row *row = context;
    return dyisru_function(center(x, row), &row->dyisru, inverse_square_root);
}

INLINE void centered_dyisru_forward(const struct forward_arguments *arguments, size_t first, size_t rows,
                                    forward_function *function) {
    if (!arguments->y.data)
        return;
    struct dyisru dyisru = dyisru_constants(arguments->parameter, arguments->scale);
    struct parameter weight, bias;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    bias_init(&bias, arguments->bias);
    size_t channels = arguments->channels;
    for (size_t index = first; index < first + rows; index++) {
        const float *x = row_of(&arguments->x, index);
        float *y = row_of(&arguments->y, index);
        struct centered_row row;
        prepare_centered(&row, x, channels, dyisru);
        if (!row.norm.is_wide) {
            forward_row(y, x, &weight, &bias, channels, arguments->streams, function, &row);
            continue;
        }
        for (size_t block = 0; block < channels; block += BLOCK) {
            size_t n = channels - block < BLOCK ? channels - block : BLOCK;
            dynnorm_wide_centered_isru(y + block, x + block, parameter_block(&weight, block, n),
                                       parameter_block(&bias, block, n), n, row.norm.statistics.mean,
                                       (double)dyisru.beta, (double)dyisru.scale);
        }
    }
    if (arguments->streams)
        vec_end_streaming();
}

/* du = s h times the derivative of q. */
INLINE vec du_from_derivative(vec derivative, vec h, const struct dyisru *dyisru) {
    return vec_mul(vec_mul(h, derivative), vec_set(dyisru->slope.power));
}

/* Provides du in blocks, for its mean. */
struct centered_du {
    const float *x;
    const float *dy;
    struct parameter *weight;
    const struct centered_row *row;
    float buffer[BLOCK];
};

INLINE const float *centered_du_block(void *provider, size_t first, size_t n,
                                      inverse_square_root_function *inverse_square_root) {
    struct centered_du *from = provider;
    const struct dyisru *dyisru = &from->row->dyisru;
    const float *weight = parameter_block(from->weight, first, n);
    vec zero = vec_set(0);
    for (size_t i = 0; i < n; i += LANES) {
        ptrdiff_t rest = (ptrdiff_t)(n - i);
        vec u = center(vec_load_n(from->x + first + i, rest, zero), from->row);
        vec h = vec_mul(vec_load_n(weight + i, rest, zero), vec_load_n(from->dy + first + i, rest, zero));
        vec_store(from->buffer + i, du_from_derivative(dyisru_gradient(u, dyisru, inverse_square_root).dx, h, dyisru));
        MODEL_PASS("du", 0, LANES);
    }
    return from->buffer;
}

INLINE vec centered_du_term(const void *context, const float *block, size_t first, size_t i, ptrdiff_t n, int whole) {
    (void)context, (void)first;
    return load_terms(block + i, n, vec_set(0), whole);
}

INLINE struct gradient centered_gradient(vec x, vec dy, vec weight, const void *context,
                                         inverse_square_root_function *inverse_square_root) {
    const struct centered_row *row = context;
    struct gradient gradient = dyisru_gradient(center(x, row), &row->dyisru, inverse_square_root);
    gradient.dx = vec_sub(du_from_derivative(gradient.dx, vec_mul(weight, dy), &row->dyisru), vec_set(row->mean_du));
    return gradient;
}

INLINE double centered_wide_factor(float x, const void *context) {
    const struct centered_row *row = context;
    return dynnorm_wide_isru((double)x - row->norm.statistics.mean, (double)row->dyisru.beta).p;
}

INLINE int centered_is_wide(const void *context) {
    return ((const struct centered_row *)context)->norm.is_wide;
}

INLINE void centered_wide_gradient(float *f, float *dx, float *factor, const float *x, const float *dy,
                                   const float *weight, size_t n, const void *context) {
    const struct centered_row *row = context;
    dynnorm_wide_centered_isru_gradient(f, dx, factor, x, dy, weight, n, row->norm.statistics.mean,
                                        (double)row->dyisru.beta, (double)row->dyisru.scale, row->wide_mean_du);
}

INLINE void centered_dyisru_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                                     const struct partial_sums *sums, block_function *du_block,
                                     gradient_function *gradient) {
    const struct backward_operation operation = {.gradient = gradient,
                                                 .wide_factor = centered_wide_factor,
                                                 .is_wide = centered_is_wide,
                                                 .wide_gradient = centered_wide_gradient,
                                                 .context_size = sizeof(struct centered_row),
                                                 .has_p = sums->dparameter != NULL};
    struct dyisru dyisru = dyisru_constants(arguments->parameter, arguments->scale);
    struct parameter weight;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    size_t channels = arguments->channels;
    wide p_sums[16 / LANES];
    begin_partial_sums(sums, channels, p_sums);
    for (size_t done = 0; done < rows; done += 4) {
        int group = rows - done < 4 ? (int)(rows - done) : 4;
        struct centered_row contexts[4];
        for (int i = 0; i < group; i++) {
            size_t index = first + done + (size_t)i;
            struct centered_row *row = &contexts[i];
            const float *x = row_of(&arguments->x, index);
            const float *dy = row_of(&arguments->dy, index);
            prepare_centered(row, x, channels, dyisru);
            double mean_du = 0;
            if (!row->norm.is_wide) {
                struct centered_du from = {.x = x, .dy = dy, .weight = &weight, .row = row};
                const struct summed_row summed = {.h = centered_du_term};
                mean_du = sum_row(SUM_H | IN_FLOATS, &summed, du_block, &from, channels).h / (double)channels;
                row->norm.is_wide = !(fabs(mean_du) <= 0x1p200);
            }
            row->mean_du = (float)mean_du;
            if (row->norm.is_wide)
                row->wide_mean_du = dynnorm_wide_centered_isru_mean(x, dy, arguments->weight, arguments->weight_offset,
                                                                    channels, row->norm.statistics.mean,
                                                                    (double)dyisru.beta, (double)dyisru.scale);
        }
        backward_rows_of_group(arguments, first + done, group, done == 0, done + 4 >= rows, contexts, &weight,
                               &operation, sums, p_sums);
    }
    if (arguments->streams)
        vec_end_streaming();
    if (sums->dparameter)
        *sums->dparameter = wide_sum(p_sums);
}

/* ---- The kernels of a mode ---- */

#define DYISRU_KERNELS(mode)                                                                                           \
    INLINE vec dyisru_function_##mode(vec x, const void *context) {                                                    \
        return dyisru_function(x, context, inverse_square_root_##mode);                                                \
    }                                                                                                                  \
    INLINE struct gradient dyisru_gradient_##mode(vec x, vec dy, vec weight, const void *context) {                    \
        (void)dy, (void)weight;                                                                                        \
        return dyisru_gradient(x, context, inverse_square_root_##mode);                                                \
    }                                                                                                                  \
    static void dyisru_forward_##mode(const struct forward_arguments *arguments, size_t first, size_t rows) {          \
        dyisru_forward(arguments, first, rows, dyisru_function_##mode);                                                \
    }                                                                                                                  \
    static void dyisru_backward_##mode(const struct backward_arguments *arguments, size_t first, size_t rows,          \
                                       const struct partial_sums *sums) {                                              \
        dyisru_backward(arguments, first, rows, sums, dyisru_gradient_##mode);                                         \
    }                                                                                                                  \
    INLINE vec centered_dyisru_function_##mode(vec x, const void *context) {                                           \
        return centered_dyisru_function(x, context, inverse_square_root_##mode);                                       \
    }                                                                                                                  \
    INLINE const float *centered_du_block_##mode(void *provider, size_t first, size_t n) {                             \
        return centered_du_block(provider, first, n, inverse_square_root_##mode);                                      \
    }                                                                                                                  \
    INLINE struct gradient centered_gradient_##mode(vec x, vec dy, vec weight, const void *context) {                  \
        return centered_gradient(x, dy, weight, context, inverse_square_root_##mode);                                  \
    }                                                                                                                  \
    static void centered_dyisru_forward_##mode(const struct forward_arguments *arguments, size_t first, size_t rows) { \
        centered_dyisru_forward(arguments, first, rows, centered_dyisru_function_##mode);                              \
    }                                                                                                                  \
    static void centered_dyisru_backward_##mode(const struct backward_arguments *arguments, size_t first, size_t rows, \
                                                const struct partial_sums *sums) {                                     \
        centered_dyisru_backward(arguments, first, rows, sums, centered_du_block_##mode, centered_gradient_##mode);    \
    }

DYISRU_KERNELS(portable)
DYISRU_KERNELS(native)

#endif
