/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The centered DyISRU: DyISRU of u = x - mean(x), and dx = du - mean(du).
 */
#ifndef DYNNORM_CENTERED_DYISRU_H
#define DYNNORM_CENTERED_DYISRU_H

#include "model_marks.h"
#include "operations/dyisru.h"
#include "operations/operation.h"
#include "rows/backward/centered.h"
#include "rows/elements.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/row_means.h"

#include <math.h>

INLINE vec center(vec x, const struct row_constants *row) {
    const struct mean_vectors mean = mean_vectors(row->mean, row->mean_correction);
    return take_mean_from(x, &mean);
}

/* ---- The gradient of DyISRU, at u ----
 *
 * Elements whose beta + u^2 lies outside of 2^-80 to 2^124 are rare, and with a huge beta all are. For these beta and u
 * are multiplied by powers of two; far out q is a sign. What is left, a beta + u^2 that is tiny but not 0, is computed
 * in double. */

/* By doubles without the square of a tiny u, which does not count beside a beta with which u is not rare. */
INLINE vec square_under_root(vec u, const struct centered_lanes *lanes, int by_doubles) {
    const vec v = by_doubles ? dyisru_unless_tiny(u) : u;
    return vec_fma(v, v, lanes->parameter);
}

INLINE vec centered_rare_bits(vec x, const struct row_constants *row, const struct centered_lanes *lanes,
                              int by_doubles) {
    return vec_bits_minus(square_under_root(center(x, row), lanes, by_doubles), BITS_OF_LEAST_SQUARE);
}

/* At u, from what beta + u^2 makes of it. */
INLINE struct gradient centered_gradient_of(vec u, vec square, const struct centered_lanes *lanes, int by_doubles) {
    struct inverse_square_root parts;
    if (lanes->is_native)
        inverse_square_roots_native(&parts, &square, &u, 1, by_doubles);
    else
        inverse_square_roots_portable(&parts, &square, &u, 1, by_doubles);
    vec root_2 = vec_mul(parts.root, parts.root);
    vec q = vec_max(vec_set(-1), vec_min(vec_set(1), parts.product)); /* rounding may carry it beyond +-1 */
    return (struct gradient){q, vec_mul(root_2, vec_mul(parts.root, lanes->slope)), product_of(root_2, q, by_doubles)};
}

INLINE struct gradient centered_gradient(vec x, const struct row_constants *row, const struct centered_lanes *lanes,
                                         int by_doubles) {
    vec u = center(x, row);
    return centered_gradient_of(u, square_under_root(u, lanes, by_doubles), lanes, by_doubles);
}

/* Puts the values that were computed in double where the square is tiny. */
INLINE vec select_in_double(vec square, const float in_double[LANES], vec in_float) {
    return vec_select_outside(square, BITS_OF_LEAST_SQUARE, 0x7fffffff, vec_load(in_double), in_float);
}

RARE void set_tiny_gradients(struct gradient *gradient, vec u, vec square, const struct centered_lanes *lanes) {
    float f[LANES], slope[LANES], parameter_term[LANES], beta[LANES], power[LANES];
    vec_store(f, u);
    vec_store(beta, lanes->beta);
    vec_store(power, lanes->power);
    for (int lane = 0; lane < LANES; lane++) {
        struct isru isru = dynnorm_isru((double)f[lane], (double)beta[lane]);
        f[lane] = (float)isru.q;
        slope[lane] = (float)(isru.derivative * (double)lanes->scale / (double)power[lane]);
        parameter_term[lane] = (float)isru.parameter_term;
    }
    gradient->f = select_in_double(square, f, gradient->f);
    gradient->slope = select_in_double(square, slope, gradient->slope);
    gradient->parameter_term = select_in_double(square, parameter_term, gradient->parameter_term);
}

/* The terms of the sum for beta far out are 1 / u / |u|. These products may be subnormal, which is slow: they are left
 * out where they are not wanted. */
INLINE struct gradient rare_gradient_of(vec u, const struct centered_lanes *lanes, int wants_term) {
    const uint32_t limit = 0x5e800000; /* 2^62 */
    const vec zero = vec_set(0), one = vec_set(1), scale = lanes->rare_scale;
    const vec scaled = vec_mul(u, scale), far = vec_abs(scaled);
    const vec limited = vec_select_outside(far, 0, limit, one, scaled);
    vec square = vec_fma(limited, limited, vec_mul(vec_mul(lanes->beta, scale), scale));
    struct gradient gradient = centered_gradient_of(limited, square, lanes, 0);
    gradient.f = vec_select_outside(far, 0, limit, vec_with_sign(one, u), gradient.f);
    gradient.slope = vec_select_outside(far, 0, limit, zero, gradient.slope);
    if (wants_term) {
        const vec reciprocal = vec_div(one, u), term = vec_mul(gradient.parameter_term, vec_mul(scale, scale));
        gradient.parameter_term =
            vec_select_outside(far, 0, limit, vec_mul_by_doubles(reciprocal, vec_abs(reciprocal)), term);
    }
    /* Where u and beta are 0. */
    const vec zero_bits = vec_select_outside(square, 0, 0, one, vec_abs(u));
    gradient.f = vec_select_outside(zero_bits, 0, 0, gradient.f, u);
    gradient.slope = vec_select_outside(zero_bits, 0, 0, gradient.slope, zero);
    gradient.parameter_term = vec_select_outside(zero_bits, 0, 0, gradient.parameter_term, zero);
    square = vec_select_outside(zero_bits, 0, 0, square, one);
    if (vec_any_bits_above(vec_bits_minus(square, BITS_OF_LEAST_SQUARE), 0x7fffffff))
        set_tiny_gradients(&gradient, u, square, lanes);
    return gradient;
}

INLINE struct gradient centered_rare_gradient(vec x, const struct row_constants *row,
                                              const struct centered_lanes *lanes) {
    return rare_gradient_of(center(x, row), lanes, 1);
}

/* Without the term of the sum for beta. A pointer to them would force the kernel's lanes out of its registers. */
RARE vec centered_rare_slope(vec u, struct centered_lanes lanes) {
    return rare_gradient_of(u, &lanes, 0).slope;
}

/* du is h times the derivative of s q. The slope's power of two comes last. */
INLINE vec centered_du_of(vec h, const struct gradient *gradient, const struct centered_lanes *lanes, int by_doubles) {
    return product_of(product_of(h, gradient->slope, by_doubles), lanes->power, by_doubles);
}

INLINE wide centered_du_in_double(wide h, vec slope, const struct centered_lanes *lanes) {
    return wide_mul(wide_mul(h, vec_widen(slope)), vec_widen(lanes->power));
}

INLINE vec centered_dx(vec h, const struct gradient *gradient, const struct row_constants *row,
                       const struct centered_lanes *lanes, int by_doubles) {
    return vec_sub(centered_du_of(h, gradient, lanes, by_doubles), vec_set(row->mean_du));
}

INLINE vec centered_dx_in_double(wide h, const struct gradient *gradient, const struct row_constants *row,
                                 const struct centered_lanes *lanes) {
    return wide_narrow(wide_sub(centered_du_in_double(h, gradient->slope, lanes), wide_set(row->mean_du_in_double)));
}

/* ---- In double ---- */

INLINE struct centered_isru centered_isru_of(const struct row_constants *row, const struct call_constants *call) {
    return (struct centered_isru){row->statistics.mean, (double)call->scale, row->mean_du_in_double};
}

INLINE void centered_gradient_in_double(const struct block_in_double *block, const struct row_constants *row,
                                        const struct call_constants *call) {
    dynnorm_centered_isru_gradient_in_double(block, centered_isru_of(row, call));
}

INLINE double centered_parameter_term_in_double(float x, float beta, const struct row_constants *row) {
    return dynnorm_isru((double)x - row->statistics.mean, (double)beta).parameter_term;
}

RARE double mean_du_of_far_row(struct backward_row inputs, const struct row_constants *row,
                               const struct call_constants *call) {
    const struct centered_isru isru = centered_isru_of(row, call);
    const size_t channels = call->channels;
    struct double_lanes sum = {{0}};
    double total = 0;
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const struct block_in_double values = {.count = block.count,
                                               .x = read_block(&inputs.x, block),
                                               .weight = read_block(&inputs.weight, block),
                                               .dy = read_block(&inputs.dy, block),
                                               .betas = centered_betas_from(call, first)};
        dynnorm_add_centered_isru_du(&sum, &values, isru);
        if (!ends_summed_block(block, channels))
            continue;
        total += dynnorm_total_of_lanes(&sum);
        sum = (struct double_lanes){{0}};
    }
    return total / (double)channels;
}

/* ---- The backward pass ---- */

/* du of a block, into a buffer. */
INLINE void centered_du(float du[BLOCK], const struct du_block *inputs, const struct row_constants *row,
                        const struct call_constants *call) {
    const size_t count = inputs->channels.count;
    for (size_t i = 0; i < count; i += LANES) {
        const struct centered_lanes lanes = centered_lanes_at(call, inputs->channels.first + i);
        const struct place place = place_at(i, count);
        vec zero = vec_set(0), x = load_vector(inputs->x, place, zero);
        vec h = vec_mul(load_vector(inputs->weight, place, zero), load_vector(inputs->dy, place, zero));
        struct gradient gradient = centered_gradient(x, row, &lanes, 0);
        if (vec_any_bits_above(centered_rare_bits(x, row, &lanes, 0), SPAN_OF_SQUARES))
            gradient.slope = centered_rare_slope(center(x, row), centered_lanes_at(call, inputs->channels.first + i));
        vec_store(du + i, centered_du_of(h, &gradient, &lanes, 0));
        MODEL_PASS("du", 0, LANES);
    }
}

INLINE double mean_of_du(const struct backward_row *inputs, const struct row_constants *row,
                         const struct call_constants *call, const struct elements *elements) {
    eight sum = eight_set(0);
    double total = 0;
    for (size_t first = 0; first < call->channels; first += BLOCK) {
        float du[BLOCK];
        struct block block = block_at(first, call->channels);
        const struct du_block values = {block, read_block(&inputs->x, block), read_block(&inputs->weight, block),
                                        read_block(&inputs->dy, block)};
        if (SUBNORMALS_ARE_SLOW && row->has_subnormals)
            DU_OF_SLOW_ROW(du, &values, row, call, elements);
        else
            centered_du(du, &values, row, call);
        sum = eight_add(sum, lanes_of_block(du, (ptrdiff_t)block.count));
        if (!ends_summed_block(block, call->channels))
            continue;
        total += eight_sum(sum);
        sum = eight_set(0);
    }
    return total / (double)call->channels;
}

/* The same, the products in double. */
RARE double mean_of_du_in_double(struct backward_row inputs, struct row_constants row, struct call_constants call) {
    wide lanes[PARTS];
    double total = 0;
    for (size_t first = 0; first < call.channels; first += BLOCK) {
        if (first % SUMMED_BLOCK == 0)
            for (int part = 0; part < PARTS; part++)
                lanes[part] = wide_set(0);
        const struct block block = block_at(first, call.channels);
        const float *x = read_block(&inputs.x, block), *dy = read_block(&inputs.dy, block);
        const float *weight = read_block(&inputs.weight, block);
        for (size_t i = 0; i < block.count; i += LANES) {
            const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(block.count - i), 0};
            const vec zero = vec_set(0);
            const vec u = center(load_vector(x, place, vec_set(row.mean)), &row);
            const struct centered_lanes here = centered_lanes_at(&call, first + i);
            const vec slope = centered_rare_slope(u, here);
            const wide h =
                wide_mul(vec_widen(load_vector(weight, place, zero)), vec_widen(load_vector(dy, place, zero)));
            wide *sum = &lanes[i / LANES % PARTS];
            *sum = wide_add(*sum, centered_du_in_double(h, slope, &here));
        }
        if (ends_summed_block(block, call.channels))
            total += eight_sum(wide_fold(lanes));
    }
    return total / (double)call.channels;
}

/* Whether |x - mean| is at most 2^126 in all of a row, the mean of which is finite. */
OUTLINED int deviations_hold(const struct row_constants *row, const float *x, size_t channels) {
    const uint32_t bits_of_limit = 0x7e800000;
    vec largest = vec_set(0);
    for (size_t i = 0; i < channels; i += LANES)
        largest =
            vec_max_bits(largest, vec_abs(center(load_vector(x, place_at(i, channels), vec_set(row->mean)), row)));
    return !vec_any_bits_above(largest, bits_of_limit);
}

/* Whether there is a NaN in what h is made of: mean(du) is NaN then, and none of its products is to blame. */
RARE int has_nan(const struct backward_row *inputs, size_t channels) {
    vec bits = vec_set(0);
    for (size_t first = 0; first < channels; first += BLOCK) {
        const struct block block = block_at(first, channels);
        const float *weight = read_block(&inputs->weight, block), *dy = read_block(&inputs->dy, block);
        for (size_t i = 0; i < block.count; i += LANES) {
            const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(block.count - i), 0};
            bits = vec_max_bits(bits, vec_abs(load_vector(weight, place, vec_set(0))));
            bits = vec_max_bits(bits, vec_abs(load_vector(dy, place, vec_set(0))));
        }
    }
    return vec_any_bits_above(bits, INFINITY_BITS);
}

/* Whether a row has subnormal products, to judge by its first elements: of what is tiny, or terms of beta's sum. */
INLINE int begins_with_subnormals(const struct row_constants *row, const float *x, const float *dy) {
    const float u = load_float(x) - row->mean;
    return is_tiny(bits_of_float(u)) || is_tiny_element(dy, DYNNORM_F32) || fabsf(u) >= 0x1p60f;
}

INLINE void centered_begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                                        const struct call_constants *call, const struct elements *elements) {
    const float *x = inputs->x.values;
    struct row_means means;
    find_row_means(&means, &x, 1, call->channels);
    row->kind = ROW_IS_USUAL;
    row->mean = row->mean_du = means.mean[0];
    row->mean_correction = means.correction[0];
    row->statistics.mean = (double)row->mean - (double)row->mean_correction;
    row->mean_du_in_double = 0;
    row->has_subnormals = call->avoids_subnormals && begins_with_subnormals(row, x, inputs->dy.values);
    if (row->mean != row->mean) {
        row->kind = ROW_IS_NAN;
        return;
    }
    if (!deviations_hold(row, x, call->channels)) {
        row->kind = ROW_IS_FAR;
        row->mean_du_in_double = mean_du_of_far_row(*inputs, row, call);
        return;
    }
    const double mean_du = mean_of_du(inputs, row, call, elements);
    row->mean_du = (float)mean_du;
    if (!(fabs(mean_du) <= 0x1p200) && !has_nan(inputs, call->channels)) {
        row->kind = ROW_OVERFLOWS;
        row->mean_du_in_double = mean_of_du_in_double(*inputs, *row, *call);
    }
}

#define CENTERED_ELEMENTS                                                                                              \
    .is_centered = 1, .has_bias = centered_dyisru_has_bias, .channel_parameters = DYISRU_CHANNEL_PARAMETERS,           \
    .gradient = centered_gradient, .rare_gradient = centered_rare_gradient, .rare_gradient_bits = centered_rare_bits,  \
    .dx = centered_dx, .dx_in_double = centered_dx_in_double, .gradient_in_double = centered_gradient_in_double,       \
    .parameter_term_in_double = centered_parameter_term_in_double

/* bench/model knows it by the end of its name. */
#define FIND_MEANS_OF(mode)                                                                                            \
    OUTLINED void means_of_centered_dyisru_forward_##mode(struct row_means *means, const float *const *rows,           \
                                                          size_t count, size_t channels) {                             \
        find_row_means(means, rows, count, channels);                                                                  \
    }

#define CENTERED_OPERATION .begin_call = dyisru_begin_call, .begin_backward_row = centered_begin_backward_row

static const struct elements centered_dyisru_portable_elements = {
    CENTERED_ELEMENTS,
    .forward_factor = 1,
    .forward_unusual_vectors = DYISRU_UNUSUAL_VECTORS(portable),
    DYISRU_TINY_PORTABLE,
};
static const struct forward_loops centered_dyisru_portable_loops = {&centered_dyisru_portable_elements,
                                                                    dyisru_portable_vectors, NULL};
FIND_MEANS_OF(portable)
DEFINE_FORWARD(centered_dyisru, portable, dyisru_begin_call, .find_means = means_of_centered_dyisru_forward_portable)
static const struct operation centered_dyisru_portable = {
    CENTERED_OPERATION, .forward = &centered_dyisru_portable_forward, .elements = &centered_dyisru_portable_elements};

static const struct elements centered_dyisru_native_elements = {
    CENTERED_ELEMENTS, .forward_factor = 1 / QUOTIENTS_NATIVE_FACTOR, .is_native = 1, DYISRU_TINY_NATIVE,
    IF_TABLE_HAS_native(.forward_unusual_vectors = DYISRU_UNUSUAL_VECTORS(native))};
static const struct forward_loops centered_dyisru_native_loops = {&centered_dyisru_native_elements,
                                                                  dyisru_native_vectors, NULL};
FIND_MEANS_OF(native)
DEFINE_FORWARD(centered_dyisru, native, dyisru_begin_call, .find_means = means_of_centered_dyisru_forward_native)
static const struct operation centered_dyisru_native = {CENTERED_OPERATION, .forward = &centered_dyisru_native_forward,
                                                        .elements = &centered_dyisru_native_elements};

/* One function does both modes: to choose between their square roots in each vector takes up to 1.05 times as long
 * with AVX2, and a loop for each would be 5 KB more code. The operations differ in nothing else that the backward pass
 * needs. */
SHARED_BY_KERNELS void backward_centered(const struct backward_arguments *arguments, size_t first, size_t rows,
                                         const struct partial_sums *partial_sums, const struct operation *operation) {
    backward_centered_rows(arguments, first, rows, partial_sums, &centered_dyisru_portable,
                           operation->elements->is_native);
}

#endif
