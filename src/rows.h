/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The two shapes that every operation has once a row's constants are known.
 *
 * Forward: y = w f(x) + b, channel by channel.
 *
 * Backward: dx, and a row's share of the sums over tokens: dweight gets dy f, dbias gets dy, dalpha or dbeta gets p.
 * Rows are taken in fours from the beginning of a block of rows on; the four terms of a channel are added pairwise in
 * float, (0 + 1) + (2 + 3), and that sum is added to a double: so the error does not grow with the number of rows. The
 * last group may be of one to three rows.
 */
#ifndef DYNNORM_ROWS_H
#define DYNNORM_ROWS_H

#include <float.h>

/* ---- Forward ---- */

/* f of the formula above; context holds the row's constants. */
typedef vec forward_function(vec x, const void *context);

/* n <= BLOCK channels; bias is NULL for an operation that has none. */
INLINE void forward_channels(float *y, const float *x, const float *weight, const float *bias, size_t n,
                             forward_function *function, const void *context) {
    size_t i = 0;
#pragma GCC unroll 4
    for (; i + LANES <= n; i += LANES) {
        vec value = function(vec_load(x + i), context);
        vec_store(y + i, bias ? vec_fma(value, vec_load(weight + i), vec_load(bias + i))
                              : vec_mul(value, vec_load(weight + i)));
    }
    if (i < n) {
        ptrdiff_t rest = (ptrdiff_t)(n - i);
        vec zero = vec_set(0);
        vec value = function(vec_load_n(x + i, rest, zero), context);
        value = bias ? vec_fma(value, vec_load_n(weight + i, rest, zero), vec_load_n(bias + i, rest, zero))
                     : vec_mul(value, vec_load_n(weight + i, rest, zero));
        vec_store_n(y + i, value, rest);
    }
}

INLINE void forward_row(float *y, const float *x, struct parameter *weight, struct parameter *bias, size_t channels,
                        forward_function *function, const void *context) {
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        forward_channels(y + first, x + first, parameter_block(weight, first, n),
                         bias ? parameter_block(bias, first, n) : NULL, n, function, context);
    }
}

/* ---- Backward ---- */

struct gradient {
    vec f; /* forward's f(x) */
    vec dx;
    vec factor; /* p = h factor is the share of the sum for alpha or beta */
};

/* context holds the row's constants. Elementwise operations give the derivative of f as dx: the step below multiplies
 * it by h. */
typedef struct gradient gradient_function(vec x, vec dy, vec weight, const void *context);

/* Whether a row is one of the few that float cannot hold; and its n gradients from one channel on, in double. */
typedef int is_wide_function(const void *context);
typedef void wide_gradient_function(float *f, float *dx, float *factor, const float *x, const float *dy,
                                    const float *weight, size_t n, const void *context);

/* struct gradient's factor of one element, in double. */
typedef double factor_function(float x, const void *context);

/* What one operation brings to the backward pass. */
struct backward_operation {
    gradient_function *gradient;
    factor_function *wide_factor; /* NULL where float always holds the factor */
    is_wide_function *is_wide;
    wide_gradient_function *wide_gradient; /* NULL where no row is wide */
    size_t context_size;                   /* bytes from one row's context to the next; 0: all rows have the same */
    int is_elementwise;
    int has_p;
    float power; /* elementwise: a power of two that was left out of the derivative, lest that leave float's range */
};

/* Up to four rows: pointers to their first channel. */
struct row_group {
    const float *x[4];
    const float *dy[4];
    float *dx[4]; /* each NULL where dx is not asked for */
    const void *context[4];
};

INLINE vec add_four(const vec a[4], int rows) {
    if (rows == 1)
        return a[0];
    vec sum = vec_add(a[0], a[1]);
    if (rows == 3)
        return vec_add(sum, a[2]);
    return rows == 4 ? vec_add(sum, vec_add(a[2], a[3])) : sum;
}

INLINE vec add_four_products(const vec a[4], const vec b[4], int rows) {
    vec first = vec_mul(a[0], b[0]);
    if (rows == 1)
        return first;
    vec sum = vec_fma(a[1], b[1], first);
    if (rows == 2)
        return sum;
    vec second = vec_mul(a[2], b[2]);
    return vec_add(sum, rows == 4 ? vec_fma(a[3], b[3], second) : second);
}

/* The sums of a step, one for each lane. */
struct step_sums {
    wide dweight;
    wide dbias;
    wide p;
};

/* A step's values, for the function below. They are copied here only when it is called, so that all of them can live
 * in registers otherwise. */
struct step_values {
    struct backward_operation operation;
    const void *context[4];
    vec x[4];
    vec dy[4];
    vec weight;
    struct gradient gradient[4];
    vec dx[4];
    vec sums[3]; /* of dweight, dbias and p */
};

/* The sums, and an elementwise dx, in double, for those lanes in which a sum in float overflowed: as h may do, or a
 * factor, or the sum of four terms, where the outcome does not. */
RARE struct step_sums backward_step_in_double(struct step_values *step, int rows) {
    enum { X, DY, F, DX, FACTOR, ARRAYS };
    float values[ARRAYS][4][LANES], result[4][LANES], w[LANES], in_float[3][LANES];
    double in_double[3][LANES];
    vec_store(w, step->weight);
    for (int row = 0; row < rows; row++) {
        vec_store(values[X][row], step->x[row]);
        vec_store(values[DY][row], step->dy[row]);
        vec_store(values[F][row], step->gradient[row].f);
        vec_store(values[DX][row], step->gradient[row].dx);
        vec_store(values[FACTOR][row], step->gradient[row].factor);
        vec_store(result[row], step->dx[row]);
    }
    for (int sum = 0; sum < 3; sum++)
        vec_store(in_float[sum], step->sums[sum]);
    const struct backward_operation *operation = &step->operation;
    for (int lane = 0; lane < LANES; lane++) {
        int overflowed = 0;
        for (int sum = 0; sum < 3; sum++) {
            in_double[sum][lane] = (double)in_float[sum][lane];
            overflowed |= !(fabsf(in_float[sum][lane]) <= FLT_MAX);
        }
        if (!overflowed)
            continue;
        double terms[3][4] = {{0}};
        for (int row = 0; row < rows; row++) {
            double of_dy = (double)values[DY][row][lane], h = (double)w[lane] * of_dy;
            double factor = operation->wide_factor ? operation->wide_factor(values[X][row][lane], step->context[row])
                                                   : (double)values[FACTOR][row][lane];
            terms[0][row] = of_dy * (double)values[F][row][lane];
            terms[1][row] = of_dy;
            terms[2][row] = h * factor;
            /* A row's dx is not to depend on the other rows: only an h that overflowed counts. */
            if (operation->is_elementwise && !(fabsf(w[lane] * values[DY][row][lane]) <= FLT_MAX))
                result[row][lane] = (float)(h * (double)values[DX][row][lane] * (double)operation->power);
        }
        for (int sum = 0; sum < 3; sum++)
            in_double[sum][lane] = (terms[sum][0] + terms[sum][1]) + (terms[sum][2] + terms[sum][3]);
    }
    for (int row = 0; row < rows; row++)
        step->dx[row] = vec_load(result[row]);
    return (struct step_sums){wide_load(in_double[0]), wide_load(in_double[1]), wide_load(in_double[2])};
}

/* Whether a lane is infinite or NaN. */
INLINE int any_not_finite(vec a) {
    return vec_any_outside(vec_abs(a), 0, 0x7f7fffff);
}

INLINE void add_to_doubles(double *sums, wide a) {
    wide_store(sums, wide_add(wide_load(sums), a));
}

/* Channels [c, c + LANES) of a group, n of which exist; w points to their weights. Gradients come from the operation's
 * function, or, if given, from the arrays. */
INLINE void backward_step(const struct row_group *group, int rows, size_t c, ptrdiff_t n, int whole, const float *w,
                          const struct backward_operation *operation, int accumulate, const struct partial_sums *sums,
                          wide *p_sum, const float (*arrays)[4][BLOCK]) {
    int is_elementwise = operation->is_elementwise;
    vec zero = vec_set(0);
    vec weight = load_terms(w, n, zero, whole);
    struct gradient gradient[4];
    vec dy[4] = {zero, zero, zero, zero}, f[4] = {zero, zero, zero, zero}, dx[4] = {zero, zero, zero, zero};
    vec x[4], h[4] = {zero, zero, zero, zero}, factor[4] = {zero, zero, zero, zero};
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        x[row] = load_terms(group->x[row] + c, n, zero, whole);
        dy[row] = load_terms(group->dy[row] + c, n, zero, whole);
        if (arrays) {
            size_t i = c % BLOCK;
            gradient[row] = (struct gradient){vec_load(arrays[0][row] + i), vec_load(arrays[1][row] + i),
                                              vec_load(arrays[2][row] + i)};
        } else {
            gradient[row] = operation->gradient(x[row], dy[row], weight, group->context[row]);
        }
        f[row] = gradient[row].f;
        dx[row] = gradient[row].dx;
        if (is_elementwise || operation->has_p) {
            h[row] = vec_mul(weight, dy[row]);
            factor[row] = gradient[row].factor;
        }
        if (is_elementwise)
            dx[row] = vec_mul(vec_mul(h[row], dx[row]), vec_set(operation->power));
    }

    vec dweight = sums->dweight ? add_four_products(dy, f, rows) : zero;
    vec dbias = sums->dbias ? add_four(dy, rows) : zero;
    vec p = is_elementwise || operation->has_p ? add_four_products(h, factor, rows) : zero;
    struct step_sums wide_sums = {vec_widen(dweight), vec_widen(dbias), vec_widen(p)};
    if (any_not_finite(dweight) | any_not_finite(dbias) | any_not_finite(p)) {
        struct step_values step = {.operation = *operation, .weight = weight, .sums = {dweight, dbias, p}};
        for (int row = 0; row < rows; row++) {
            step.context[row] = group->context[row];
            step.x[row] = x[row], step.dy[row] = dy[row];
            step.gradient[row] = gradient[row], step.dx[row] = dx[row];
        }
        wide_sums = backward_step_in_double(&step, rows);
        for (int row = 0; row < rows; row++)
            dx[row] = step.dx[row];
    }
    if (sums->dweight)
        add_to_doubles(sums->dweight + c, wide_sums.dweight);
    if (sums->dbias)
        add_to_doubles(sums->dbias + c, wide_sums.dbias);
    if (operation->has_p)
        *p_sum = wide_add(*p_sum, wide_sums.p);

#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        float *to = group->dx[row];
        if (!to)
            continue;
        if (accumulate)
            dx[row] = vec_add(load_terms(to + c, n, zero, whole), dx[row]);
        if (whole)
            vec_store(to + c, dx[row]);
        else
            vec_store_n(to + c, dx[row], n);
    }
}

INLINE void backward_group(const struct row_group *group, int rows, size_t channels, struct parameter *weight,
                           const struct backward_operation *operation, int accumulate, const struct partial_sums *sums,
                           wide p_sums[16 / LANES]) {
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        const float *w = parameter_block(weight, first, n);
        size_t i = 0;
        for (; i + 16 <= n; i += 16)
            for (size_t part = 0; part < 16 / LANES; part++)
                backward_step(group, rows, first + i + LANES * part, LANES, 1, w + i + LANES * part, operation,
                              accumulate, sums, p_sums + part, NULL);
        for (size_t part = 0; i < n; part++, i += LANES)
            backward_step(group, rows, first + i, (ptrdiff_t)(n - i), 0, w + i, operation, accumulate, sums,
                          p_sums + part, NULL);
    }
}

/* The same for any number of rows, of which some may be wide: by way of arrays of gradients. Two or three rows come at
 * most once in a block of rows, and are not worth code of their own. */
INLINE void backward_group_by_arrays(const struct row_group *group, int rows, size_t channels, struct parameter *weight,
                                     const struct backward_operation *operation, int accumulate,
                                     const struct partial_sums *sums, wide p_sums[16 / LANES]) {
    float arrays[3][4][BLOCK]; /* struct gradient's members, of the group's rows in one block of channels */
    memset(arrays, 0, sizeof arrays);
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        const float *w = parameter_block(weight, first, n);
        for (int row = 0; row < rows; row++) {
            const float *x = group->x[row] + first, *dy = group->dy[row] + first;
            float *f = arrays[0][row], *dx = arrays[1][row], *factor = arrays[2][row];
            if (operation->wide_gradient && operation->is_wide(group->context[row])) {
                operation->wide_gradient(f, dx, factor, x, dy, w, n, group->context[row]);
                continue;
            }
            for (size_t i = 0; i < n; i += LANES) {
                ptrdiff_t rest = (ptrdiff_t)(n - i);
                struct gradient gradient =
                    operation->gradient(vec_load_n(x + i, rest, vec_set(0)), vec_load_n(dy + i, rest, vec_set(0)),
                                        vec_load_n(w + i, rest, vec_set(0)), group->context[row]);
                vec_store(f + i, gradient.f);
                vec_store(dx + i, gradient.dx);
                vec_store(factor + i, gradient.factor);
            }
        }
        for (size_t i = 0; i < n; i += LANES)
            backward_step(group, rows, first + i, (ptrdiff_t)(n - i), 0, w + i, operation, accumulate, sums,
                          p_sums + i / LANES % (16 / LANES), (const float(*)[4][BLOCK])arrays);
    }
}

/* One group of rows, their contexts ready. */
INLINE void backward_rows_of_group(const struct backward_arguments *arguments, size_t row, int rows,
                                   const void *contexts, struct parameter *weight,
                                   const struct backward_operation *operation, const struct partial_sums *sums,
                                   wide p_sums[16 / LANES]) {
    struct row_group group;
    int wide_rows = 0;
    for (int i = 0; i < rows; i++) {
        group.x[i] = arguments->x + (row + (size_t)i) * arguments->x_stride;
        group.dy[i] = arguments->dy + (row + (size_t)i) * arguments->dy_stride;
        group.dx[i] = arguments->dx ? arguments->dx + (row + (size_t)i) * arguments->dx_stride : NULL;
        group.context[i] = (const char *)contexts + (size_t)i * operation->context_size;
        wide_rows += operation->wide_gradient && operation->is_wide(group.context[i]);
    }
    size_t channels = arguments->channels;
    int accumulate = arguments->accumulate_dx;
    if (!wide_rows && rows == 4)
        backward_group(&group, 4, channels, weight, operation, accumulate, sums, p_sums);
    else if (!wide_rows && rows == 1)
        backward_group(&group, 1, channels, weight, operation, accumulate, sums, p_sums);
    else
        backward_group_by_arrays(&group, rows, channels, weight, operation, accumulate, sums, p_sums);
}

/* Zeroes the sums that are asked for. */
INLINE void clear_partial_sums(const struct partial_sums *sums, size_t channels, wide p_sums[16 / LANES]) {
    channels = PARTIAL_SUMS_CHANNELS(channels);
    if (sums->dweight)
        memset(sums->dweight, 0, channels * sizeof *sums->dweight);
    if (sums->dbias)
        memset(sums->dbias, 0, channels * sizeof *sums->dbias);
    for (int part = 0; part < 16 / LANES; part++)
        p_sums[part] = wide_zero();
}

/* A whole backward kernel of an elementwise operation: all rows have one context. */
INLINE void elementwise_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                                 const struct partial_sums *sums, gradient_function *gradient,
                                 factor_function *wide_factor, float power, const void *context) {
    const struct backward_operation operation = {.gradient = gradient,
                                                 .wide_factor = wide_factor,
                                                 .is_elementwise = 1,
                                                 .has_p = sums->dparameter != NULL,
                                                 .power = power};
    struct parameter weight;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    wide p_sums[16 / LANES];
    clear_partial_sums(sums, arguments->channels, p_sums);
    for (size_t done = 0; done < rows; done += 4)
        backward_rows_of_group(arguments, first + done, rows - done < 4 ? (int)(rows - done) : 4, context, &weight,
                               &operation, sums, p_sums);
    if (sums->dparameter)
        *sums->dparameter = wide_sum(p_sums);
}

/* A factor of all derivatives, less a power of two that is left out of it where it, or the largest derivative, would
 * leave float's range or come near its lower end. */
struct slope {
    float value;
    float power;
};

INLINE struct slope split_slope(double slope, double largest_derivative) {
    int exponent = 0;
    if (largest_derivative != 0 && isfinite(largest_derivative))
        exponent = ilogb(largest_derivative);
    if (exponent < 0)
        exponent = exponent < -100 ? exponent + 100 : 0;
    exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
    return (struct slope){(float)ldexp(slope, -exponent), (float)ldexp(1, exponent)};
}

#endif
