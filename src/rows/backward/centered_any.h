/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The general way of the backward pass of the centered DyISRU: any rows of any kind, by way of arrays and through the
 * pointers of the operation's functions. It is compiled once for each table, for all modes.
 */
#ifndef DYNNORM_BACKWARD_CENTERED_ANY_H
#define DYNNORM_BACKWARD_CENTERED_ANY_H

#include "rows/backward/centered.h"
#include "rows/floats.h"

#include <float.h>
#include <math.h>
#include <string.h>

void FIND_CENTERED_BLOCK(struct group_block *block, struct backward_work *work, const struct group_place *place,
                         int rows) {
    const struct backward_tensors *tensors = &work->tensors;
    block->weight = read_block(&tensors->weight, place->channels);
    block->first = place->channels.first;
    for (int i = 0; i < rows; i++) {
        size_t row = place->first_row + (size_t)i;
        const struct reader x = read_row(&tensors->x, row), dy = read_row(&tensors->dy, row);
        block->x[i] = read_block(&x, place->channels);
        block->dy[i] = read_block(&dy, place->channels);
        block->dx[i] = NULL;
        if (tensors->dx.rows.data)
            block->dx[i] = block_to_write(&tensors->dx, row, place->channels, &work->buffers[i]);
    }
}

/* What the operation makes of one vector of each row. */
struct any_gradients {
    vec f[GROUP];
    vec dx[GROUP];
    vec parameter_term[GROUP];
};

struct any_rows {
    struct group_block block;
    int rows;
    int has_subnormals; /* one of them is */
    const struct backward_work *work;
};

INLINE vec any_h(const struct group_block *block, struct place place, int row, int by_doubles) {
    return product_of(load_vector(block->weight, place, vec_set(0)), load_vector(block->dy[row], place, vec_set(0)),
                      by_doubles);
}

INLINE wide any_h_in_double(const struct group_block *block, struct place place, int row) {
    return wide_mul(vec_widen(load_vector(block->weight, place, vec_set(0))),
                    vec_widen(load_vector(block->dy[row], place, vec_set(0))));
}

RARE void compute_far_gradients(struct any_gradients *gradients, const struct any_rows *any, struct place place,
                                int row) {
    const struct group_block *block = &any->block;
    float f[LANES] = {0}, dx[LANES] = {0}, parameter_term[LANES] = {0};
    const struct block_in_double values = {
        .count = place.count < LANES ? (size_t)place.count : LANES,
        .x = block->x[row] + place.channel,
        .weight = block->weight + place.channel,
        .dy = block->dy[row] + place.channel,
        .betas = centered_betas_from(&any->work->call, block->first + (size_t)place.channel),
        .f = f,
        .dx = dx,
        .parameter_term = parameter_term};
    any->work->elements->gradient_in_double(&values, &any->work->constants[row], &any->work->call);
    gradients->f[row] = vec_load(f);
    gradients->dx[row] = vec_load(dx);
    gradients->parameter_term[row] = vec_load(parameter_term);
}

/* Of an element that may be rare. */
INLINE struct gradient any_gradient(vec x, const struct row_constants *constants, const struct centered_lanes *lanes,
                                    const struct elements *elements) {
    const int has_subnormals = SUBNORMALS_ARE_SLOW && constants->has_subnormals;
    if (vec_any_bits_above(elements->rare_gradient_bits(x, constants, lanes, has_subnormals), SPAN_OF_SQUARES))
        return elements->rare_gradient(x, constants, lanes);
    return elements->gradient(x, constants, lanes, has_subnormals);
}

/* du is dx without a mean of du. There are no such rows where subnormals are not slow. */
void DU_OF_SLOW_ROW(float du[BLOCK], const struct du_block *inputs, const struct row_constants *row,
                    const struct call_constants *call, const struct elements *elements) {
    const size_t count = inputs->channels.count;
    struct row_constants constants = *row;
    constants.mean_du = 0;
    for (size_t i = 0; SUBNORMALS_ARE_SLOW && i < count; i += LANES) {
        const struct centered_lanes lanes = centered_lanes_at(call, inputs->channels.first + i);
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        const vec zero = vec_set(0), weight = load_vector(inputs->weight, place, zero);
        const struct gradient gradient =
            any_gradient(load_vector(inputs->x, place, zero), &constants, &lanes, elements);
        const vec h = product_of(weight, load_vector(inputs->dy, place, zero), row->has_subnormals);
        vec_store(du + i, elements->dx(h, &gradient, &constants, &lanes, row->has_subnormals));
    }
}

INLINE void compute_gradients(struct any_gradients *gradients, const struct any_rows *any, struct place place,
                              int row) {
    const struct group_block *block = &any->block;
    const struct row_constants *constants = &any->work->constants[row];
    const struct centered_lanes lanes = centered_lanes_at(&any->work->call, block->first + (size_t)place.channel);
    const struct elements *elements = any->work->elements;
    if (constants->kind == ROW_IS_NAN) {
        gradients->f[row] = gradients->dx[row] = gradients->parameter_term[row] = vec_set(NAN);
        return;
    }
    if (constants->kind == ROW_IS_FAR) {
        compute_far_gradients(gradients, any, place, row);
        return;
    }
    const vec x = load_vector(block->x[row], place, vec_set(0));
    const struct gradient gradient = any_gradient(x, constants, &lanes, elements);
    gradients->f[row] = gradient.f;
    gradients->parameter_term[row] = gradient.parameter_term;
    gradients->dx[row] = constants->kind == ROW_OVERFLOWS
                             ? elements->dx_in_double(any_h_in_double(block, place, row), &gradient, constants, &lanes)
                             : elements->dx(any_h(block, place, row, constants->has_subnormals), &gradient, constants,
                                            &lanes, constants->has_subnormals);
}

INLINE void sum_gradients(struct step_sums *sums, const struct any_gradients *gradients, const struct any_rows *any,
                          struct place place) {
    const vec zero = vec_set(0);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    for (int row = 0; row < any->rows; row++) {
        const vec dy = load_vector(any->block.dy[row], place, zero),
                  h = any_h(&any->block, place, row, any->has_subnormals);
        add_row(&dbias, dy, row, any->rows);
        if (SUBNORMALS_ARE_SLOW && any->has_subnormals) {
            add_row_product_by_doubles(&dweight, dy, gradients->f[row], row, any->rows);
            add_row_product_by_doubles(&parameter, h, gradients->parameter_term[row], row, any->rows);
        } else {
            add_row_product(&dweight, dy, gradients->f[row], row, any->rows);
            add_row_product(&parameter, h, gradients->parameter_term[row], row, any->rows);
        }
    }
    sums->dweight = dweight.sum;
    sums->dbias = dbias.sum;
    sums->parameter = parameter.sum;
}

/* ---- Sums that are not finite ---- */

/* The greatest bits of what a step's sums are made of, which are above INFINITY_BITS in the lanes of a NaN: there a sum
 * is NaN, too, and nothing overflowed. */
struct nan_bits {
    vec dy;
    vec all;
};

INLINE void find_nan_bits(struct nan_bits *bits, const struct any_gradients *gradients, const struct any_rows *any,
                          struct place place) {
    bits->dy = vec_set(0);
    bits->all = vec_abs(load_vector(any->block.weight, place, vec_set(0)));
    for (int row = 0; row < any->rows; row++) {
        bits->dy = vec_max_bits(bits->dy, vec_abs(load_vector(any->block.dy[row], place, vec_set(0))));
        bits->all = vec_max_bits(bits->all, vec_abs(gradients->f[row]));
    }
    bits->all = vec_max_bits(bits->all, bits->dy);
}

/* The greatest float where a sum overflowed, 0 elsewhere. */
INLINE vec overflow_of(vec sum, vec nan_bits) {
    const vec zero = vec_set(0);
    vec overflow = vec_select_outside(vec_abs(sum), 0, INFINITY_BITS - 1, vec_set(FLT_MAX), zero);
    return vec_select_outside(nan_bits, 0, INFINITY_BITS, zero, overflow);
}

/* Of the sum in float and the one in double, the one that the lanes ask for. Beyond the row it is 0, where a term may
 * be 0 times infinity. */
INLINE wide mended_sum(vec sum, wide in_double, vec overflow, struct place place) {
    double chosen[LANES], doubles[LANES];
    float overflows[LANES];
    wide_store(chosen, vec_widen(sum));
    wide_store(doubles, in_double);
    vec_store(overflows, overflow);
    for (int lane = 0; lane < LANES; lane++)
        chosen[lane] = lane >= place.count ? 0 : overflows[lane] != 0 ? doubles[lane] : chosen[lane];
    return wide_load(chosen);
}

/* Terms of the sum for beta that are not floats themselves, near the pole that they have if beta is 0. */
RARE wide sum_infinite_terms(wide sum, const struct any_gradients *gradients, const struct any_rows *any,
                             struct place place) {
    const struct group_block *block = &any->block;
    const struct elements *elements = any->work->elements;
    float terms[GROUP][LANES];
    double parameter[LANES];
    wide_store(parameter, sum);
    for (int row = 0; row < any->rows; row++)
        vec_store(terms[row], gradients->parameter_term[row]);
    for (int lane = 0; lane < LANES && lane < place.count; lane++) {
        double exact[GROUP] = {0};
        int are_infinite = 0;
        const ptrdiff_t i = place.channel + lane;
        const struct betas betas = centered_betas_from(&any->work->call, block->first + (size_t)i);
        const float beta = load_float(betas.values);
        for (int row = 0; row < any->rows; row++) {
            const double h = (double)load_float(block->weight + i) * (double)load_float(block->dy[row] + i);
            are_infinite |= isinf(terms[row][lane]) != 0;
            exact[row] =
                h * elements->parameter_term_in_double(load_float(block->x[row] + i), beta, &any->work->constants[row]);
        }
        if (are_infinite)
            parameter[lane] =
                ((exact[0] + exact[1]) + (exact[2] + exact[3])) + ((exact[4] + exact[5]) + (exact[6] + exact[7]));
    }
    return wide_load(parameter);
}

/* A step's sums: what overflowed in double. */
struct wide_sums {
    wide dweight;
    wide dbias;
    wide parameter;
};

RARE void mend_sums(struct wide_sums *result, const struct step_sums *sums, const struct any_gradients *gradients,
                    const struct any_rows *any, struct place place) {
    wide dweight[GROUP], dbias[GROUP], parameter[GROUP];
    struct nan_bits nan;
    vec infinite = vec_set(0);
    find_nan_bits(&nan, gradients, any, place);
    for (int row = 0; row < GROUP; row++)
        dweight[row] = dbias[row] = parameter[row] = wide_set(0);
    for (int row = 0; row < any->rows; row++) {
        dbias[row] = vec_widen(load_vector(any->block.dy[row], place, vec_set(0)));
        dweight[row] = wide_mul(dbias[row], vec_widen(gradients->f[row]));
        parameter[row] = wide_mul(any_h_in_double(&any->block, place, row), vec_widen(gradients->parameter_term[row]));
        infinite = vec_max_bits(infinite, vec_abs(gradients->parameter_term[row]));
    }
    wide parameter_sum = sum_of_rows(parameter);
    if (vec_any_bits_above(infinite, INFINITY_BITS - 1))
        parameter_sum = sum_infinite_terms(parameter_sum, gradients, any, place);
    result->dweight = mended_sum(sums->dweight, sum_of_rows(dweight), overflow_of(sums->dweight, nan.all), place);
    result->dbias = mended_sum(sums->dbias, sum_of_rows(dbias), overflow_of(sums->dbias, nan.dy), place);
    result->parameter = mended_sum(sums->parameter, parameter_sum, overflow_of(sums->parameter, nan.all), place);
}

/* Whether a sum overflowed. */
INLINE int has_overflow(const struct step_sums *sums, const struct any_gradients *gradients, const struct any_rows *any,
                        struct place place) {
    struct nan_bits nan;
    if (!any_overflow(*sums))
        return 0;
    find_nan_bits(&nan, gradients, any, place);
    vec overflow = vec_max_bits(overflow_of(sums->dweight, nan.all), overflow_of(sums->dbias, nan.dy));
    overflow = vec_max_bits(overflow, overflow_of(sums->parameter, nan.all));
    return vec_any_bits_above(overflow, 0);
}

struct parameter_sum BACKWARD_ANY(struct backward_work *work, struct group_place place, int rows,
                                  struct parameter_sum parameter) {
    struct any_gradients gradients;
    struct any_rows any = {.rows = rows, .work = work};
    const struct partial_sums *sums = &work->sums;
    const size_t count = place.channels.count;
    for (int row = 0; row < rows; row++)
        any.has_subnormals |= SUBNORMALS_ARE_SLOW && work->constants[row].has_subnormals;
    FIND_CENTERED_BLOCK(&any.block, work, &place, rows);
    for (size_t i = 0; i < count; i += LANES) {
        const struct place in_block = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        const struct place in_row = {(ptrdiff_t)(place.channels.first + i), in_block.count, 0};
        wide *parameter_lanes = &parameter.lanes[(place.channels.first + i) / LANES % PARTS];
        struct step_sums step;
        for (int row = 0; row < rows; row++)
            compute_gradients(&gradients, &any, in_block, row);
        sum_gradients(&step, &gradients, &any, in_block);
        struct wide_sums in_double = {vec_widen(step.dweight), vec_widen(step.dbias), vec_widen(step.parameter)};
        if (has_overflow(&step, &gradients, &any, in_block))
            mend_sums(&in_double, &step, &gradients, &any, in_block);
        if (sums->dweight)
            add_to_partial_sum(sums->dweight, in_row, in_double.dweight, place.is_first);
        if (sums->dbias)
            add_to_partial_sum(sums->dbias, in_row, in_double.dbias, place.is_first);
        if (work->call.channel_mask && sums->dparameter)
            add_to_partial_sum(sums->dparameter, in_row, in_double.parameter, place.is_first);
        *parameter_lanes = wide_add(*parameter_lanes, in_double.parameter);
        if (work->writes_gradients)
            finish_channels(sums, in_row);
        for (int row = 0; row < rows; row++)
            if (any.block.dx[row])
                vec_store_n(any.block.dx[row] + i, gradients.dx[row], in_block.count);
    }
    return parameter;
}

#endif
