/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass: dx of each row, and a block of rows' share of the sums over tokens. dweight gets
 * dy f, dbias gets dy, dalpha or dbeta gets h parameter_term.
 *
 * Whole vectors of four rows, or of a single one, are computed in the kernel. Everything else goes through
 * backward_any: the rest of a row, groups of two or three rows, rows and elements that float cannot hold, and sums that
 * overflow.
 */
#ifndef DYNNORM_BACKWARD_H
#define DYNNORM_BACKWARD_H

#include "kernels.h"
#include "operations/operation.h"
#include "rows/floats.h"
#include "rows/reader.h"
#include "rows/token_sums.h"
#include "rows/writer.h"

#include <float.h>
#include <math.h>

/* Where the rows of a call are read and written. */
struct backward_tensors {
    struct tensor x;
    struct tensor dy;
    struct output dx; /* its tensor has no data where dx is not asked for */
    struct reader weight;
};

/* Some channels of a group of rows. */
struct group_place {
    size_t first_row;
    struct block channels;
    struct group_order order;
};

/* Where these channels lie. */
struct group_block {
    const float *weight;
    const float *x[GROUP];
    const float *dy[GROUP];
    float *dx[GROUP]; /* each NULL where dx is not asked for */
};

/* A kernel's work on a block of rows, as backward_any needs it. It lives in memory: a kernel keeps in registers what
 * its own loops need. */
struct backward_pass {
    struct backward_tensors tensors;
    struct call_constants call;
    struct partial_sums sums;
    const struct elements *elements;
    struct row_constants constants[GROUP]; /* of the rows of the group at hand */
    struct write_buffer buffers[GROUP];
};

/* Up to LANES of the channels. */
INLINE struct group_place part_of_group(const struct group_place *group, struct place place) {
    struct group_place part = *group;
    part.channels.first += (size_t)place.channel;
    part.channels.count = place.count < LANES ? (size_t)place.count : LANES;
    return part;
}

INLINE void find_block(struct group_block *block, struct backward_pass *pass, const struct group_place *place,
                       int rows) {
    const struct backward_tensors *tensors = &pass->tensors;
    block->weight = read_block(&tensors->weight, place->channels);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        size_t row = place->first_row + (size_t)i;
        const struct reader x = read_row(&tensors->x, row), dy = read_row(&tensors->dy, row);
        block->x[i] = read_block(&x, place->channels);
        block->dy[i] = read_block(&dy, place->channels);
        block->dx[i] = NULL;
        if (tensors->dx.tensor.data)
            block->dx[i] = block_to_write(&tensors->dx, row, place->channels, &pass->buffers[i]);
    }
}

INLINE void deliver_sums(const struct partial_sums *sums, struct group_order group, struct place place, vec dweight,
                         vec dbias) {
    const struct token_gradient *gradients = sums->gradients;
    if (sums->dweight)
        deliver_sum(sums->dweight, gradients, place, dweight, group);
    if (sums->dbias)
        deliver_sum(sums->dbias, gradients ? gradients + 1 : NULL, place, dbias, group);
}

/* The sums of a group at LANES channels. Those that are not asked for are 0. */
struct step_sums {
    vec dweight;
    vec dbias;
    vec parameter;
};

/* Whether a sum is not finite: 0 times such a sum is NaN. */
INLINE int any_overflow(struct step_sums sums, const struct elements *elements) {
    vec zero = vec_set(0);
    vec check = vec_fma(sums.dbias, zero, vec_mul(sums.dweight, zero));
    if (elements->has_parameter)
        check = vec_fma(sums.parameter, zero, check);
    return vec_any_nan(check);
}

/* ---- Any rows, of any kind ---- */

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
    const struct backward_pass *pass;
};

RARE void compute_gradients(struct gradient_arrays *arrays, const struct any_rows *any, int row) {
    const struct group_block *block = &any->block;
    const struct row_constants *constants = &any->pass->constants[row];
    const struct call_constants *call = &any->pass->call;
    const struct elements *elements = any->pass->elements;
    float *f = arrays->f[row], *dx = arrays->dx[row], *parameter_term = arrays->parameter_term[row];
    if (!elements->is_elementwise && constants->is_in_double) {
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
        if (elements->rare_gradient &&
            vec_any_bits_above(elements->rare_gradient_bits(x, constants, call), call->rare_span))
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

INLINE double sum_of_four(const double terms[GROUP]) {
    return (terms[0] + terms[1]) + (terms[2] + terms[3]);
}

/* The dx of an element whose h overflowed in float, where dx does not. */
RARE float elementwise_dx_in_double(float x, double h, const struct backward_pass *pass) {
    float slope[LANES];
    const struct row_constants no_row = {0};
    vec_store(slope, pass->elements->rare_gradient(vec_set(x), &no_row, &pass->call, pass->elements).slope);
    return (float)(h * (double)slope[0] * (double)pass->call.slope.power);
}

/* The sums of channel `first + lane` of the block, term by term in double: h, a parameter_term or a sum of four terms
 * may overflow in float where the result does not. */
RARE void sum_lane_terms_in_double(struct step_in_double *sums, struct gradient_arrays *arrays,
                                   const struct any_rows *any, size_t first, size_t lane) {
    const struct group_block *block = &any->block;
    const struct backward_pass *pass = any->pass;
    const struct elements *elements = pass->elements;
    double dweight[GROUP] = {0}, dbias[GROUP] = {0}, parameter[GROUP] = {0};
    size_t i = first + lane;
    for (int row = 0; row < any->rows; row++) {
        float x = load_float(block->x[row] + i), weight = load_float(block->weight + i);
        float dy = load_float(block->dy[row] + i);
        double h = (double)weight * (double)dy;
        double parameter_term = (double)arrays->parameter_term[row][i];
        if (elements->parameter_term_in_double)
            parameter_term = elements->parameter_term_in_double(x, &pass->constants[row], &pass->call);
        dweight[row] = (double)dy * (double)arrays->f[row][i];
        dbias[row] = (double)dy;
        parameter[row] = h * parameter_term;
        /* A row's dx must not depend on the other rows: only an h that overflowed counts. */
        if (elements->is_elementwise && !(fabsf(weight * dy) <= FLT_MAX))
            arrays->dx[row][i] = elementwise_dx_in_double(x, h, pass);
    }
    sums->dweight[lane] = sum_of_four(dweight);
    sums->dbias[lane] = sum_of_four(dbias);
    sums->parameter[lane] = sum_of_four(parameter);
}

/* Those lanes of the sums in which one of them overflowed, in double. */
RARE void sum_overflows_in_double(struct step_in_double *result, struct step_sums sums, struct gradient_arrays *arrays,
                                  const struct any_rows *any, size_t first) {
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
    const struct partial_sums *sums = &any->pass->sums;
    vec zero = vec_set(0);
    struct group_sum dweight = {zero, zero}, dbias = {zero, zero}, parameter = {zero, zero};
    for (int row = 0; row < any->rows; row++) {
        vec dy = load_vector(block->dy[row], place, zero);
        vec h = vec_mul(load_vector(block->weight, place, zero), dy);
        add_row_product(&dweight, dy, vec_load(arrays->f[row] + place.channel), row, any->rows);
        add_row(&dbias, dy, row, any->rows);
        add_row_product(&parameter, h, vec_load(arrays->parameter_term[row] + place.channel), row, any->rows);
    }
    return (struct step_sums){sums->dweight ? dweight.sum : zero, sums->dbias ? dbias.sum : zero,
                              any->pass->elements->has_parameter ? parameter.sum : zero};
}

/* Gives the new sum for the parameter. */
OUTLINED struct parameter_sum backward_any(struct backward_pass *pass, struct group_place place, int rows,
                                           struct parameter_sum parameter) {
    struct gradient_arrays arrays;
    struct any_rows any = {.rows = rows, .count = place.channels.count, .pass = pass};
    const struct partial_sums *sums = &pass->sums;
    find_block(&any.block, pass, &place, rows);
    memset(&arrays, 0, sizeof arrays);
    for (int row = 0; row < rows; row++)
        compute_gradients(&arrays, &any, row);
    for (size_t i = 0; i < any.count; i += LANES) {
        size_t channel = place.channels.first + i;
        struct place in_block = {(ptrdiff_t)i, (ptrdiff_t)(any.count - i), 0};
        struct place in_row = {(ptrdiff_t)channel, in_block.count, 0};
        struct step_sums step = sum_arrays(&arrays, &any, in_block);
        wide *parameter_lanes = &parameter.lanes[channel / LANES % PARTS];
        if (!any_overflow(step, pass->elements)) {
            deliver_sums(sums, place.order, in_row, step.dweight, step.dbias);
            *parameter_lanes = wide_add(*parameter_lanes, vec_widen(step.parameter));
        } else {
            struct step_in_double in_double;
            const struct token_gradient *gradients = sums->gradients;
            sum_overflows_in_double(&in_double, step, &arrays, &any, i);
            if (sums->dweight)
                deliver_wide_sum(sums->dweight, gradients, in_row, wide_load(in_double.dweight), place.order);
            if (sums->dbias)
                deliver_wide_sum(sums->dbias, gradients ? gradients + 1 : NULL, in_row, wide_load(in_double.dbias),
                                 place.order);
            *parameter_lanes = wide_add(*parameter_lanes, wide_load(in_double.parameter));
        }
        for (int row = 0; row < rows; row++)
            if (any.block.dx[row])
                vec_store_n(any.block.dx[row] + i, vec_load(arrays.dx[row] + i), in_block.count);
    }
    return parameter;
}

/* ---- Whole vectors of four rows, or of one ---- */

/* What a kernel has at hand. */
struct kernel_state {
    struct backward_pass *pass;
    const struct call_constants *call; /* the kernel's own copies of the pass's */
    const struct partial_sums *sums;
};

/* Of LANES channels of the block, at the given place in it. Gives 0, and has written nothing, where that must be done
 * by backward_any. */
INLINE int backward_step(const struct group_block *block, struct place place, int rows,
                         const struct kernel_state *kernel, const struct elements *elements, struct step_sums *step) {
    const struct call_constants *call = kernel->call;
    vec zero = vec_set(0), rare_bits = zero, dx[GROUP];
    vec weight = load_vector(block->weight, place, zero);
    struct group_sum dweight = {zero, zero}, dbias = {zero, zero}, parameter = {zero, zero};
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++) {
        const struct row_constants *constants = &kernel->pass->constants[row];
        vec x = load_vector(block->x[row], place, zero), dy = load_vector(block->dy[row], place, zero);
        vec h = vec_mul(weight, dy);
        struct gradient gradient = elements->gradient(x, constants, call, elements);
        if (elements->rare_gradient) {
            vec bits = elements->rare_gradient_bits(x, constants, call);
            rare_bits = row ? vec_max_bits(rare_bits, bits) : bits;
        }
        dx[row] = elements->dx(h, &gradient, constants, call);
        add_row_product(&dweight, dy, gradient.f, row, rows);
        add_row(&dbias, dy, row, rows);
        if (elements->has_parameter)
            add_row_product(&parameter, h, gradient.parameter_term, row, rows);
    }
    step->dweight = kernel->sums->dweight ? dweight.sum : zero;
    step->dbias = kernel->sums->dbias ? dbias.sum : zero;
    step->parameter = parameter.sum;
    if (any_overflow(*step, elements) || (elements->rare_gradient && vec_any_bits_above(rare_bits, call->rare_span)))
        return 0;
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++)
        if (block->dx[row])
            store_vector(block->dx[row], place, dx[row]);
    return 1;
}

/* One block of channels of a group of rows. */
INLINE struct parameter_sum backward_block(const struct kernel_state *kernel, const struct group_place *group, int rows,
                                           const struct elements *elements, struct parameter_sum parameter) {
    const ptrdiff_t first = (ptrdiff_t)group->channels.first, count = (ptrdiff_t)group->channels.count;
    struct group_block block;
    struct step_sums step;
    find_block(&block, kernel->pass, group, rows);
    ptrdiff_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int part = 0; part < PARTS; part++) {
            const struct place place = {i + LANES * part, LANES, 1};
            const struct place in_row = {first + place.channel, LANES, 1};
            if (!backward_step(&block, place, rows, kernel, elements, &step)) {
                parameter = backward_any(kernel->pass, part_of_group(group, place), rows, parameter);
                continue;
            }
            deliver_sums(kernel->sums, group->order, in_row, step.dweight, step.dbias);
            if (elements->has_parameter)
                parameter.lanes[part] = wide_add(parameter.lanes[part], vec_widen(step.parameter));
        }
    for (int part = 0; i < count; part++, i += LANES) {
        const struct place place = {i, count - i, 0};
        const struct place in_row = {first + i, count - i, 0};
        if (rows == 1 || !backward_step(&block, place, rows, kernel, elements, &step)) {
            parameter = backward_any(kernel->pass, part_of_group(group, place), rows, parameter);
            continue;
        }
        deliver_sums(kernel->sums, group->order, in_row, step.dweight, step.dbias);
        if (elements->has_parameter)
            parameter.lanes[part] = wide_add(parameter.lanes[part], vec_widen(step.parameter));
    }
    return parameter;
}

/* ---- The driver ---- */

INLINE void begin_row_of_group(struct row_constants *constants, const struct backward_tensors *tensors, size_t row,
                               const struct backward_arguments *arguments, const struct call_constants *call,
                               const struct operation *operation) {
    const struct backward_row inputs = {.x = read_row(&tensors->x, row),
                                        .dy = read_row(&tensors->dy, row),
                                        .weight = tensors->weight,
                                        .mean = arguments->mean ? arguments->mean + row : NULL,
                                        .rstd = arguments->rstd ? arguments->rstd + row : NULL};
    operation->begin_backward_row(constants, &inputs, call, operation->elements);
}

INLINE void backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                     const struct partial_sums *partial_sums, const struct operation *operation) {
    const struct elements *elements = operation->elements;
    const struct call_constants call =
        operation->begin_call(arguments->channels, arguments->eps, arguments->parameter, arguments->scale);
    const struct partial_sums sums = *partial_sums;
    float weight_buffer[BLOCK];
    struct backward_pass pass;
    pass.tensors.x = arguments->x;
    pass.tensors.dy = arguments->dy;
    pass.tensors.dx = write_tensor(&arguments->dx, call.channels, arguments->accumulate_dx, arguments->streams);
    pass.tensors.weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer);
    pass.call = call;
    pass.sums = sums;
    pass.elements = elements;
    for (int i = 0; i < GROUP; i++)
        pass.buffers[i].held = 0;
    const struct kernel_state kernel = {&pass, &call, &sums};
    struct parameter_sum parameter;
    for (int part = 0; part < PARTS; part++)
        parameter.lanes[part] = wide_set(0);
    begin_partial_sums(&sums, call.channels);
    for (size_t done = 0; done < rows; done += GROUP) {
        int count = rows - done < GROUP ? (int)(rows - done) : GROUP, in_double = 0;
        for (int i = 0; i < count && operation->begin_backward_row; i++) {
            begin_row_of_group(&pass.constants[i], &pass.tensors, first + done + (size_t)i, arguments, &call,
                               operation);
            in_double |= pass.constants[i].is_in_double;
        }
        struct group_place group = {first + done, {0, 0}, {done == 0, done + GROUP >= rows}};
        for (size_t channel = 0; channel < call.channels; channel += BLOCK) {
            group.channels = block_at(channel, call.channels);
            if (!in_double && count == GROUP)
                parameter = backward_block(&kernel, &group, GROUP, elements, parameter);
            else if (!in_double && count == 1)
                parameter = backward_block(&kernel, &group, 1, elements, parameter);
            else
                parameter = backward_any(&pass, group, count, parameter);
            for (int i = 0; i < count && pass.tensors.dx.is_buffered; i++)
                block_is_written(&pass.tensors.dx, group.first_row + (size_t)i, group.channels, &pass.buffers[i]);
        }
    }
    end_writing(&pass.tensors.dx);
    if (sums.dparameter && elements->has_parameter)
        *sums.dparameter = wide_sum(parameter.lanes);
}

#endif
