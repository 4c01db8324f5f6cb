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

#include "model_marks.h"

#include <float.h>

/* ---- Forward ---- */

/* f of the formula above; context holds the row's constants. */
typedef vec forward_function(vec x, const void *context);

enum { FORWARD_VECTORS = 4 };

/* Some vectors of channels side by side: the arithmetic of one fills the other's waits. */
INLINE void forward_vectors(float *y, const float *x, const float *weight, const float *bias, int count, int streams,
                            forward_function *function, const void *context) {
    vec value[FORWARD_VECTORS];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) {
        vec w = vec_load(weight + LANES * k);
        value[k] = function(vec_load(x + LANES * k), context);
        value[k] = bias ? vec_fma(value[k], w, vec_load(bias + LANES * k)) : vec_mul(value[k], w);
    }
    if (streams)
#pragma GCC unroll 4
        for (int k = 0; k < count; k++)
            vec_stream(y + LANES * k, value[k]);
    else {
        MODEL_USUAL();
#pragma GCC unroll 4
        for (int k = 0; k < count; k++)
            vec_store(y + LANES * k, value[k]);
    }
}

/* Into the second-level cache. Worth it for rows that come from beyond it, in a loop with too much arithmetic for the
 * CPU itself to look as far ahead. */
INLINE void prefetch_block(const float *p, size_t n) {
    enum { FLOATS_OF_LINE = 16 };
    for (size_t i = 0; i < n; i += FLOATS_OF_LINE)
        __builtin_prefetch(p + i, 0, 2);
}

/* Up to LANES channels. */
INLINE void forward_some(float *y, const float *x, const float *weight, const float *bias, size_t n,
                         forward_function *function, const void *context) {
    ptrdiff_t count = (ptrdiff_t)n;
    vec zero = vec_set(0);
    vec value = function(vec_load_n(x, count, zero), context), w = vec_load_n(weight, count, zero);
    value = bias ? vec_fma(value, w, vec_load_n(bias, count, zero)) : vec_mul(value, w);
    vec_store_n(y, value, count);
}

/* How far y lies behind the last address to which vectors can be streamed, in floats; 0 where nothing is streamed. */
INLINE size_t floats_past_boundary(const float *y, int streams) {
    return streams ? (uintptr_t)y / sizeof(float) % LANES : 0;
}

/* n <= BLOCK channels; bias is NULL for an operation that has none. */
INLINE void forward_channels(float *y, const float *x, const float *weight, const float *bias, size_t n, int streams,
                             forward_function *function, const void *context) {
    size_t i = 0, past = floats_past_boundary(y, streams);
    if (n == BLOCK &&
        !past) { /* a constant number of times, for the compiler to unroll if the function is a short one */
        for (; i < BLOCK; i += FORWARD_VECTORS * LANES) {
            forward_vectors(y + i, x + i, weight + i, bias ? bias + i : NULL, FORWARD_VECTORS, streams, function,
                            context);
            MODEL_PASS("y", 0, FORWARD_VECTORS * LANES);
        }
        return;
    }
    if (past) {
        i = LANES - past < n ? LANES - past : n;
        forward_some(y, x, weight, bias, i, function, context);
    }
    for (; i + FORWARD_VECTORS * LANES <= n; i += FORWARD_VECTORS * LANES)
        forward_vectors(y + i, x + i, weight + i, bias ? bias + i : NULL, FORWARD_VECTORS, streams, function, context);
    for (; i + LANES <= n; i += LANES)
        forward_vectors(y + i, x + i, weight + i, bias ? bias + i : NULL, 1, streams, function, context);
    if (i < n)
        forward_some(y + i, x + i, weight + i, bias ? bias + i : NULL, n - i, function, context);
}

/* Some channels of a row. */
struct channel_block {
    size_t first;
    size_t n;
};

/* Cuts a row of y into blocks of channels: the one for c = 0, BLOCK, 2 BLOCK, ... up to channels + shift, less shift.
 * With floats_past_boundary as the shift, streaming is not interrupted by a partial vector at each end of a block.
 * (Rows taken together share the cuts of the first: those that are aligned otherwise are interrupted.) */
INLINE struct channel_block block_of_y(size_t c, size_t shift, size_t channels) {
    size_t first = c < shift ? 0 : c - shift, end = c + BLOCK - shift;
    return (struct channel_block){first, (end < channels ? end : channels) - first};
}

INLINE void forward_row(float *y, const float *x, struct parameter *weight, struct parameter *bias, size_t channels,
                        int streams, forward_function *function, const void *context) {
    size_t shift = floats_past_boundary(y, streams);
    for (size_t c = 0; c < channels + shift; c += BLOCK) {
        struct channel_block block = block_of_y(c, shift, channels);
        forward_channels(y + block.first, x + block.first, parameter_block(weight, block.first, block.n),
                         bias ? parameter_block(bias, block.first, block.n) : NULL, block.n, streams, function,
                         context);
    }
}

/* A whole forward kernel of an elementwise operation: all rows have one context. Some rows at a time in blocks of
 * channels, so that weight and bias of a block are read from the nearest cache. */
INLINE void elementwise_forward(const struct forward_arguments *arguments, size_t first, size_t rows,
                                forward_function *function, const void *context) {
    enum { ROWS_AT_ONCE = 4 };
    if (!arguments->y.data)
        return;
    struct parameter weight, bias;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    bias_init(&bias, arguments->bias);
    size_t channels = arguments->channels, end = first + rows;
    int streams = arguments->streams;
    for (size_t group = first; group < end; group += ROWS_AT_ONCE) {
        size_t shift = floats_past_boundary(row_of(&arguments->y, group), streams);
        for (size_t c = 0; c < channels + shift; c += BLOCK) {
            struct channel_block block = block_of_y(c, shift, channels);
            const float *w = parameter_block(&weight, block.first, block.n);
            const float *b = parameter_block(&bias, block.first, block.n);
            for (size_t row = group; row < group + ROWS_AT_ONCE && row < end; row++)
                forward_channels(row_of(&arguments->y, row) + block.first, row_of(&arguments->x, row) + block.first, w,
                                 b, block.n, streams, function, context);
        }
    }
    if (streams)
        vec_end_streaming();
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
    int is_first; /* in its block of rows */
    int is_last;
    int streams;
};

/* The sum of a group's terms, row after row. */
struct group_sum {
    vec sum;
    vec pair;
};

INLINE void end_pair(struct group_sum *sum, int row, int rows) {
    if (row % 2 || row == rows - 1)
        sum->sum = row < 2 ? sum->pair : vec_add(sum->sum, sum->pair);
}

INLINE void add_row(struct group_sum *sum, vec a, int row, int rows) {
    sum->pair = row % 2 ? vec_add(sum->pair, a) : a;
    end_pair(sum, row, rows);
}

INLINE void add_row_product(struct group_sum *sum, vec a, vec b, int row, int rows) {
    sum->pair = row % 2 ? vec_fma(a, b, sum->pair) : vec_mul(a, b);
    end_pair(sum, row, rows);
}

/* Gradients of a group's rows in one block of channels, where they do not come from the operation's function. */
struct gradient_arrays {
    float f[4][BLOCK];
    float dx[4][BLOCK];
    float factor[4][BLOCK];
};

/* What there is at channels [c, c + LANES) of one row of a group, n of which exist. */
struct row_step {
    vec dy;
    vec h;
    struct gradient gradient; /* with the final dx, but for what it is to be added to */
};

INLINE struct row_step row_step(const struct row_group *group, int row, size_t c, ptrdiff_t n, int whole, vec weight,
                                const struct backward_operation *operation, const struct gradient_arrays *arrays) {
    vec zero = vec_set(0);
    struct row_step step;
    step.dy = load_terms(group->dy[row] + c, n, zero, whole);
    step.h = vec_mul(weight, step.dy);
    if (arrays) {
        size_t i = c % BLOCK;
        step.gradient = (struct gradient){vec_load(arrays->f[row] + i), vec_load(arrays->dx[row] + i),
                                          vec_load(arrays->factor[row] + i)};
    } else {
        step.gradient =
            operation->gradient(load_terms(group->x[row] + c, n, zero, whole), step.dy, weight, group->context[row]);
    }
    if (operation->is_elementwise)
        step.gradient.dx = vec_mul(vec_mul(step.h, step.gradient.dx), vec_set(operation->power));
    return step;
}

/* The sums of a step, one for each lane. */
struct step_sums {
    wide dweight;
    wide dbias;
    wide p;
};

/* The sums, and an elementwise dx, in double, for those lanes in which a sum in float overflowed: as h may do, or a
 * factor, or the sum of four terms, where the outcome does not. All is computed again from the rows, which no dx has
 * replaced yet. */
RARE struct step_sums backward_step_in_double(vec result[4], const struct row_group *group, int rows, size_t c,
                                              ptrdiff_t n, vec weight, const struct backward_operation *operation,
                                              const struct gradient_arrays *arrays, vec dweight, vec dbias, vec p) {
    const vec sums[3] = {dweight, dbias, p};
    float w[LANES], in_float[3][LANES], x[4][LANES], dy[4][LANES], f[4][LANES], derivative[4][LANES], factor[4][LANES],
        dx[4][LANES];
    double in_double[3][LANES];
    vec_store(w, weight);
    for (int sum = 0; sum < 3; sum++)
        vec_store(in_float[sum], sums[sum]);
    struct backward_operation no_h = *operation; /* for the derivative without h */
    no_h.is_elementwise = 0;
    for (int row = 0; row < rows; row++) {
        struct row_step step = row_step(group, row, c, n, 0, weight, operation, arrays);
        vec_store(x[row], vec_load_n(group->x[row] + c, n, vec_set(0)));
        vec_store(dy[row], step.dy);
        vec_store(f[row], step.gradient.f);
        vec_store(factor[row], step.gradient.factor);
        vec_store(dx[row], step.gradient.dx);
        vec_store(derivative[row], row_step(group, row, c, n, 0, weight, &no_h, arrays).gradient.dx);
    }
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
            double of_dy = (double)dy[row][lane], h = (double)w[lane] * of_dy;
            terms[0][row] = of_dy * (double)f[row][lane];
            terms[1][row] = of_dy;
            terms[2][row] = h * (operation->wide_factor ? operation->wide_factor(x[row][lane], group->context[row])
                                                        : (double)factor[row][lane]);
            /* A row's dx is not to depend on the other rows: only an h that overflowed counts. */
            if (operation->is_elementwise && !(fabsf(w[lane] * dy[row][lane]) <= FLT_MAX))
                dx[row][lane] = (float)(h * (double)derivative[row][lane] * (double)operation->power);
        }
        for (int sum = 0; sum < 3; sum++)
            in_double[sum][lane] = (terms[sum][0] + terms[sum][1]) + (terms[sum][2] + terms[sum][3]);
    }
    for (int row = 0; row < rows; row++)
        result[row] = vec_load(dx[row]);
    return (struct step_sums){wide_load(in_double[0]), wide_load(in_double[1]), wide_load(in_double[2])};
}

INLINE void add_to_doubles(double *sums, wide a) {
    wide_store(sums, wide_add(wide_load(sums), a));
}

/* Of n channels from c on, sum being that over all tokens. */
INLINE void finish_sum(const struct token_gradient *gradient, size_t c, ptrdiff_t n, wide sum) {
    float *to = gradient->values + c;
    sum = wide_mul(sum, wide_set(gradient->factor));
    if (gradient->accumulate)
        sum = wide_add(vec_widen(vec_load_n(to, n, vec_set(0))), sum);
    vec_store_n(to, wide_narrow(sum), n);
}

/* A group's sum at channels [c, c + LANES), n of which exist: in float, or, if given, in double. gradient is where it
 * goes if this is the last group of all; otherwise it is added to the block's sums. What these were before the first
 * group means nothing. */
INLINE void deliver_sum(const struct row_group *group, double *sums, const struct token_gradient *gradient, size_t c,
                        ptrdiff_t n, int whole, vec in_float, const wide *in_double) {
    wide zero = wide_set(0);
    if (gradient && group->is_first && !gradient->accumulate && !in_double) {
        /* Exact in double, and rounded once: as a product of floats is. */
        vec sum = vec_mul(vec_add(vec_set(0), in_float), vec_set((float)gradient->factor));
        if (whole)
            vec_store(gradient->values + c, sum);
        else
            vec_store_n(gradient->values + c, sum, n);
        return;
    }
    wide sum = in_double ? *in_double : vec_widen(in_float);
    if (!group->is_first) {
        MODEL_USUAL();
        sum = wide_add(wide_load(sums + c), sum);
    }
    if (gradient)
        finish_sum(gradient, c, n, wide_add(zero, sum));
    else
        wide_store(sums + c, sum);
}

/* Channels [c, c + LANES) of a group, n of which exist; w points to their weights. Gradients come from the operation's
 * function, or, if given, from the arrays. */
INLINE void backward_step(const struct row_group *group, int rows, size_t c, ptrdiff_t n, int whole, const float *w,
                          const struct backward_operation *operation, int accumulate, const struct partial_sums *sums,
                          wide *p_sum, const struct gradient_arrays *arrays) {
    vec zero = vec_set(0);
    vec weight = load_terms(w, n, zero, whole);
    vec dx[4] = {zero, zero, zero, zero};
    struct group_sum dweight = {zero, zero}, dbias = {zero, zero}, p = {zero, zero};
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        struct row_step step = row_step(group, row, c, n, whole, weight, operation, arrays);
        dx[row] = step.gradient.dx;
        add_row_product(&dweight, step.dy, step.gradient.f, row, rows);
        add_row(&dbias, step.dy, row, rows);
        if (operation->is_elementwise || operation->has_p)
            add_row_product(&p, step.h, step.gradient.factor, row, rows);
    }
    if (!sums->dweight)
        dweight.sum = zero;
    if (!sums->dbias)
        dbias.sum = zero;
    /* 0 times what is not finite is NaN. */
    vec check = vec_fma(dbias.sum, zero, vec_mul(dweight.sum, zero));
    if (operation->is_elementwise || operation->has_p)
        check = vec_fma(p.sum, zero, check);
    struct step_sums in_double;
    int is_rare = vec_any_nan(check);
    if (is_rare) {
        vec result[4]; /* not dx itself, which would then live in memory */
        in_double = backward_step_in_double(result, group, rows, c, n, weight, operation, arrays, dweight.sum,
                                            dbias.sum, p.sum);
        for (int row = 0; row < rows; row++)
            dx[row] = result[row];
    }
    const struct token_gradient *gradients = group->is_last ? sums->gradients : NULL;
    if (sums->dweight)
        deliver_sum(group, sums->dweight, gradients, c, n, whole, dweight.sum, is_rare ? &in_double.dweight : NULL);
    if (sums->dbias)
        deliver_sum(group, sums->dbias, gradients ? gradients + 1 : NULL, c, n, whole, dbias.sum,
                    is_rare ? &in_double.dbias : NULL);
    if (operation->has_p) {
        MODEL_USUAL();
        *p_sum = wide_add(*p_sum, is_rare ? in_double.p : vec_widen(p.sum));
    }

#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        float *to = group->dx[row];
        if (!to)
            continue;
        if (accumulate)
            dx[row] = vec_add(load_terms(to + c, n, zero, whole), dx[row]);
        if (!whole)
            vec_store_n(to + c, dx[row], n);
        else if (group->streams)
            vec_stream(to + c, dx[row]);
        else {
            MODEL_USUAL();
            vec_store(to + c, dx[row]);
        }
    }
    if (whole)
        MODEL_PASS("dx", 0, rows * LANES);
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
    struct gradient_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        const float *w = parameter_block(weight, first, n);
        for (int row = 0; row < rows; row++) {
            const float *x = group->x[row] + first, *dy = group->dy[row] + first;
            float *f = arrays.f[row], *dx = arrays.dx[row], *factor = arrays.factor[row];
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
                          p_sums + i / LANES % (16 / LANES), &arrays);
    }
}

/* One group of rows, their contexts ready. */
INLINE void backward_rows_of_group(const struct backward_arguments *arguments, size_t row, int rows, int is_first,
                                   int is_last, const void *contexts, struct parameter *weight,
                                   const struct backward_operation *operation, const struct partial_sums *sums,
                                   wide p_sums[16 / LANES]) {
    struct row_group group = {.is_first = is_first, .is_last = is_last, .streams = arguments->streams};
    int wide_rows = 0;
    for (int i = 0; i < rows; i++) {
        group.x[i] = row_of(&arguments->x, row + (size_t)i);
        group.dy[i] = row_of(&arguments->dy, row + (size_t)i);
        group.dx[i] = arguments->dx.data ? row_of(&arguments->dx, row + (size_t)i) : NULL;
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

/* The first group sets the sums over tokens; what is left is their padding, and the sum of p. */
INLINE void begin_partial_sums(const struct partial_sums *sums, size_t channels, wide p_sums[16 / LANES]) {
    size_t padded = PARTIAL_SUMS_CHANNELS(channels) - PARTIAL_SUMS_CHANNELS(1);
    size_t bytes = PARTIAL_SUMS_CHANNELS(1) * sizeof(double);
    if (sums->dweight)
        memset(sums->dweight + padded, 0, bytes);
    if (sums->dbias)
        memset(sums->dbias + padded, 0, bytes);
    if (sums->dparameter)
        memset(sums->dparameter, 0, bytes);
    for (int part = 0; part < 16 / LANES; part++)
        p_sums[part] = wide_set(0);
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
    begin_partial_sums(sums, arguments->channels, p_sums);
    for (size_t done = 0; done < rows; done += 4)
        backward_rows_of_group(arguments, first + done, rows - done < 4 ? (int)(rows - done) : 4, done == 0,
                               done + 4 >= rows, context, &weight, &operation, sums, p_sums);
    if (arguments->streams)
        vec_end_streaming();
    if (sums->dparameter)
        *sums->dparameter = wide_sum(p_sums);
}

/* ---- Sums over blocks of rows ---- */

/* total += sums; count is a multiple of 16. */
static void add_sums(double *total, const double *sums, size_t count) {
    for (size_t i = 0; i < count; i += LANES)
        add_to_doubles(total + i, wide_load(sums + i));
}

static void finish_sums(const struct token_gradient *gradient, size_t count, const double *sums, size_t slots,
                        size_t slot_size) {
    struct token_gradient result = *gradient;
    if (!slots)
        result.factor = 1; /* a negative one would make the 0 that there is to write -0 */
    for (size_t i = 0; i < count; i += LANES) {
        wide sum = wide_set(0);
        for (size_t slot = 0; slot < slots; slot++)
            sum = wide_add(sum, wide_load(sums + slot * slot_size + i));
        finish_sum(&result, i, (ptrdiff_t)(count - i), sum);
    }
}

/* A factor of all derivatives, less a power of two that brings the largest derivative to 1 or so where it is greater,
 * and away from the lower end of float's range where it is tiny. */
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
