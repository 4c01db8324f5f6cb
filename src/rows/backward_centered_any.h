/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The general way of the backward pass of the centered DyISRU: any rows of any kind, by way of arrays and through the
 * pointers of the operation's functions. It is compiled once for each table, for all modes.
 */
#ifndef DYNNORM_BACKWARD_CENTERED_ANY_H
#define DYNNORM_BACKWARD_CENTERED_ANY_H

#include "rows/backward_centered.h"
#include "rows/floats.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* What the operation makes of a block of rows. */
struct gradient_arrays {
    float f[GROUP][BLOCK];
    float dx[GROUP][BLOCK];
    float parameter_term[GROUP][BLOCK];
};

struct any_rows {
    struct group_block block;
    int rows;
    size_t count; /* channels */
    const struct backward_work *work;
};

RARE void compute_gradients(struct gradient_arrays *arrays, const struct any_rows *any, int row) {
    const struct group_block *block = &any->block;
    const struct row_constants *constants = &any->work->constants[row];
    const struct call_constants *call = &any->work->call;
    const struct elements *elements = any->work->elements;
    float *f = arrays->f[row], *dx = arrays->dx[row], *parameter_term = arrays->parameter_term[row];
    if (constants->is_in_double) {
        const struct block_in_double values = {.count = any->count,
                                               .x = block->x[row],
                                               .weight = block->weight,
                                               .dy = block->dy[row],
                                               .f = f,
                                               .dx = dx,
                                               .parameter_term = parameter_term};
        elements->gradient_in_double(&values, constants, call);
        return;
    }
    for (size_t i = 0; i < any->count; i += LANES) {
        struct place place = {(ptrdiff_t)i, (ptrdiff_t)(any->count - i), 0};
        vec zero = vec_set(0), x = load_vector(block->x[row], place, zero);
        vec h = vec_mul(load_vector(block->weight, place, zero), load_vector(block->dy[row], place, zero));
        struct gradient gradient = elements->gradient(x, constants, call, elements);
        if (vec_any_bits_above(elements->rare_gradient_bits(x, constants, call), call->rare_span))
            gradient = elements->rare_gradient(x, constants, call, elements);
        vec_store(f + i, gradient.f);
        vec_store(dx + i, elements->dx(h, &gradient, constants, call));
        vec_store(parameter_term + i, gradient.parameter_term);
    }
}

/* The sums of LANES channels in double. */
struct step_in_double {
    double dweight[LANES];
    double dbias[LANES];
    double parameter[LANES];
};

INLINE double sum_of_group(const double terms[GROUP]) {
    return ((terms[0] + terms[1]) + (terms[2] + terms[3])) + ((terms[4] + terms[5]) + (terms[6] + terms[7]));
}

/* The sums of channel `first + lane` of the block, term by term in double: h, a parameter_term or a sum of eight terms
 * may overflow in float where the result does not. */
RARE void sum_lane_terms_in_double(struct step_in_double *sums, const struct gradient_arrays *arrays,
                                   const struct any_rows *any, size_t first, size_t lane) {
    const struct group_block *block = &any->block;
    const struct backward_work *work = any->work;
    const struct elements *elements = work->elements;
    double dweight[GROUP] = {0}, dbias[GROUP] = {0}, parameter[GROUP] = {0};
    size_t i = first + lane;
    for (int row = 0; row < any->rows; row++) {
        float x = load_float(block->x[row] + i), weight = load_float(block->weight + i);
        float dy = load_float(block->dy[row] + i);
        double h = (double)weight * (double)dy;
        double parameter_term = elements->parameter_term_in_double(x, &work->constants[row], &work->call);
        dweight[row] = (double)dy * (double)arrays->f[row][i];
        dbias[row] = (double)dy;
        parameter[row] = h * parameter_term;
    }
    sums->dweight[lane] = sum_of_group(dweight);
    sums->dbias[lane] = sum_of_group(dbias);
    sums->parameter[lane] = sum_of_group(parameter);
}

/* Those lanes of the sums in which one of them overflowed, in double. */
RARE void sum_overflows_in_double(struct step_in_double *result, struct step_sums sums,
                                  const struct gradient_arrays *arrays, const struct any_rows *any, size_t first) {
    float dweight[LANES], dbias[LANES], parameter[LANES];
    vec_store(dweight, sums.dweight);
    vec_store(dbias, sums.dbias);
    vec_store(parameter, sums.parameter);
    for (size_t lane = 0; lane < LANES; lane++) {
        result->dweight[lane] = (double)dweight[lane];
        result->dbias[lane] = (double)dbias[lane];
        result->parameter[lane] = (double)parameter[lane];
        if (first + lane >= any->count) /* beyond the row, where a term may be 0 times infinity */
            result->dweight[lane] = result->dbias[lane] = result->parameter[lane] = 0;
        else if (!(fabsf(dweight[lane]) <= FLT_MAX && fabsf(dbias[lane]) <= FLT_MAX &&
                   fabsf(parameter[lane]) <= FLT_MAX))
            sum_lane_terms_in_double(result, arrays, any, first, lane);
    }
}

INLINE struct step_sums sum_arrays(const struct gradient_arrays *arrays, const struct any_rows *any,
                                   struct place place) {
    const struct group_block *block = &any->block;
    vec zero = vec_set(0);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    for (int row = 0; row < any->rows; row++) {
        vec dy = load_vector(block->dy[row], place, zero);
        vec h = vec_mul(load_vector(block->weight, place, zero), dy);
        add_row_product(&dweight, dy, vec_load(arrays->f[row] + place.channel), row, any->rows);
        add_row(&dbias, dy, row, any->rows);
        add_row_product(&parameter, h, vec_load(arrays->parameter_term[row] + place.channel), row, any->rows);
    }
    return (struct step_sums){dweight.sum, dbias.sum, parameter.sum};
}

struct parameter_sum BACKWARD_ANY(struct backward_work *work, struct group_place place, int rows,
                                  struct parameter_sum parameter) {
    struct gradient_arrays arrays;
    struct any_rows any = {.rows = rows, .count = place.channels.count, .work = work};
    const struct partial_sums *sums = &work->sums;
    find_block(&any.block, work, &place, rows);
    memset(&arrays, 0, sizeof arrays);
    for (int row = 0; row < rows; row++)
        compute_gradients(&arrays, &any, row);
    for (size_t i = 0; i < any.count; i += LANES) {
        size_t channel = place.channels.first + i;
        struct place in_block = {(ptrdiff_t)i, (ptrdiff_t)(any.count - i), 0};
        struct place in_row = {(ptrdiff_t)channel, in_block.count, 0};
        struct step_sums step = sum_arrays(&arrays, &any, in_block);
        wide *parameter_lanes = &parameter.lanes[channel / LANES % PARTS];
        if (!any_overflow(step)) {
            deliver_sums(sums, in_row, step, place.is_first);
            *parameter_lanes = wide_add(*parameter_lanes, vec_widen(step.parameter));
        } else {
            struct step_in_double in_double;
            sum_overflows_in_double(&in_double, step, &arrays, &any, i);
            if (sums->dweight)
                add_to_partial_sum(sums->dweight, in_row, wide_load(in_double.dweight), place.is_first);
            if (sums->dbias)
                add_to_partial_sum(sums->dbias, in_row, wide_load(in_double.dbias), place.is_first);
            *parameter_lanes = wide_add(*parameter_lanes, wide_load(in_double.parameter));
        }
        if (work->writes_gradients)
            finish_channels(sums, in_row);
        for (int row = 0; row < rows; row++)
            if (any.block.dx[row])
                vec_store_n(any.block.dx[row] + i, vec_load(arrays.dx[row] + i), in_block.count);
    }
    return parameter;
}

#endif
