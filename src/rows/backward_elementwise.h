/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass of elementwise operations: dx of each row, and a block of rows' share of the sums
 * over tokens. Rows are taken in groups of eight, and a step does LANES channels of a group.
 *
 * Each result is the same whichever way it is computed. The fast step gives up before it has written anything if there
 * is something rare in it: elements or weights that its arithmetic does not cover, or a sum that is not finite. Then
 * the rare step does all of it, where each element and each sum is decided upon by itself. The rare step also does
 * groups of two to seven rows.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_H
#define DYNNORM_BACKWARD_ELEMENTWISE_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/elementwise.h"
#include "operations/operation.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/token_sums.h"
#include "rows/writer.h"

#include <float.h>

/* Where a block of channels of a group of rows lies. */
struct gradient_block {
    const float *weight;
    const float *x[GROUP];
    const float *given_x[GROUP]; /* before it was multiplied by x_factor */
    const float *dy[GROUP];
    float *dx[GROUP];
    const double *dweight_before; /* what the group's sums are added to; all of these are of the block, too */
    const double *dbias_before;
    double *dweight;
    double *dbias;
    struct token_gradient gradients[2]; /* dweight and dbias, where they are written at once */
};

/* The sums of a group at LANES channels. */
struct elementwise_sums {
    vec dweight;
    vec dbias;
    vec parameter;
};

struct rare_step {
    const struct gradient_block *block;
    struct place place;
    int rows;
    wide *parameter; /* the sum for the parameter, part of it, to be added to */
};

/* ---- What a step consists of ---- */

/* Whether any of the sums is not finite. */
INLINE int any_not_finite(const struct elementwise_sums *sums) {
    vec sum = vec_add(vec_add(sums->dweight, sums->dbias), sums->parameter);
    return vec_any_nan(vec_sub(sum, sum));
}

/* A weight times the slope that is not 0 and has lost digits to underflow has bits above the limit here. */
enum { LEAST_NORMAL = 0x00800000 };
static const uint32_t folded_weight_limit = 0xff800000;

INLINE vec folded_weight_bits(vec folded) {
    return vec_bits_minus(vec_abs(folded), LEAST_NORMAL);
}

INLINE void add_group_sum(double *sums, const double *before, struct place place, vec sum) {
    wide_store(sums + place.channel, wide_add(wide_load(before + place.channel), vec_widen(sum)));
}

/* Takes the sums of a step to where they belong, but for the parameter's. */
INLINE void take_group_sums(const struct gradient_block *block, struct place place,
                            const struct elementwise_sums *sums) {
    add_group_sum(block->dweight, block->dweight_before, place, sums->dweight);
    add_group_sum(block->dbias, block->dbias_before, place, sums->dbias);
}

/* ---- The fast step ---- */

/* Gives 0 if it has written nothing, because something is rare. */
INLINE int fast_step(const struct gradient_block *block, struct place place, int rows,
                     const struct elementwise_call *call, const struct elementwise *operation,
                     struct elementwise_sums *sums) {
    vec zero = vec_set(0), rare_bits = zero, dx[GROUP];
    vec weight = vec_mul(load_vector(block->weight, place, zero), vec_set(call->slope));
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    const int count = rows < operation->rows_side_by_side ? rows : operation->rows_side_by_side;
#pragma GCC unroll 8
    for (int row = 0; row < rows; row += count) {
        vec x[SIDE_BY_SIDE], dy[SIDE_BY_SIDE], h[SIDE_BY_SIDE];
        struct gradient_factors factors[SIDE_BY_SIDE];
        EACH(x[k] = load_vector(block->x[row + k], place, zero));
        EACH(dy[k] = load_vector(block->dy[row + k], place, zero));
        operation->factors(factors, x, call, operation, count);
        EACH(rare_bits = row + k ? vec_max_bits(rare_bits, operation->rare_bits(x[k], call))
                                 : operation->rare_bits(x[k], call));
        EACH(h[k] = vec_mul(weight, dy[k]));
        if (operation->has_first)
            EACH(h[k] = vec_mul(h[k], factors[k].first));
        EACH(dx[row + k] = operation->has_second ? vec_mul(h[k], factors[k].second) : h[k]);
        EACH(add_row_product(&dweight, dy[k], factors[k].f, row + k, rows));
        EACH(add_row(&dbias, dy[k], row + k, rows));
        EACH(add_row_product(&parameter, h[k], factors[k].term, row + k, rows));
    }
    sums->dweight = dweight.sum;
    sums->dbias = dbias.sum;
    sums->parameter = parameter.sum;
    if (any_not_finite(sums) || vec_any_bits_above(rare_bits, call->rare_limit) ||
        vec_any_bits_above(folded_weight_bits(weight), folded_weight_limit))
        return 0;
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
        store_vector(block->dx[row], place, dx[row]);
    return 1;
}

/* ---- The rare step ---- */

/* The factors of a step's elements, for the sums in double. */
struct rare_factors {
    float f[GROUP][LANES];
    float first[GROUP][LANES];
    float second[GROUP][LANES];
    float term[GROUP][LANES];
    float dx[GROUP][LANES];
};

INLINE double sum_of_rows(const double terms[GROUP]) {
    return ((terms[0] + terms[1]) + (terms[2] + terms[3])) + ((terms[4] + terms[5]) + (terms[6] + terms[7]));
}

INLINE int is_far(double x, const struct elementwise_call *call) {
    return fabs(x) > (double)call->far_limit && fabs(x) <= DBL_MAX;
}

/* The sums of one lane in double, and dx where a factor of it is beyond the range of floats. */
RARE void sum_lane_in_double(double lane_sums[3], struct rare_factors *factors, const struct rare_step *step,
                             const struct elementwise_call *call, int lane) {
    const struct gradient_block *block = step->block;
    const size_t channel = (size_t)step->place.channel + (size_t)lane;
    double terms[3][GROUP] = {{0}, {0}, {0}};
    for (int row = 0; row < step->rows; row++) {
        double dy = (double)load_float(block->dy[row] + channel);
        double h = (double)load_float(block->weight + channel) * (double)call->slope * dy;
        double first = h * (double)factors->first[row][lane], term = (double)factors->term[row][lane];
        double x = (double)load_float(block->given_x[row] + channel) * (double)call->x_factor;
        terms[0][row] = dy * (double)factors->f[row][lane];
        terms[1][row] = dy;
        terms[2][row] = is_far(x, call) ? h / x / fabs(x) : first * term;
        if (!(fabsf(factors->dx[row][lane]) <= FLT_MAX))
            factors->dx[row][lane] = (float)(first * (double)factors->second[row][lane]);
    }
    for (int i = 0; i < 3; i++)
        lane_sums[i] = sum_of_rows(terms[i]);
}

static const uint32_t infinity_bits = 0x7f800000;

INLINE vec usual_h(vec folded, vec dy) {
    return vec_mul(folded, dy);
}

/* h where weight times slope has left the range of normal floats. */
INLINE vec unusual_h(vec weight, vec folded, vec dy, const struct elementwise_call *call) {
    wide exact = wide_mul(wide_mul(vec_widen(weight), wide_set((double)call->slope)), vec_widen(dy));
    vec h = usual_h(folded, dy), magnitude = vec_abs(folded);
    h = vec_select_outside(magnitude, LEAST_NORMAL, folded_weight_limit, wide_narrow(exact), h);
    return vec_select_outside(magnitude, 0, infinity_bits - 1, wide_narrow(exact), h);
}

/* The sums of the lanes that need it in double. */
RARE void sum_rare_lanes(wide sums_in_double[3], struct rare_factors *factors, const struct elementwise_sums *sums,
                         const struct rare_step *step, const struct elementwise_call *call) {
    float in_float[3][LANES];
    double in_double[3][LANES];
    vec_store(in_float[0], sums->dweight);
    vec_store(in_float[1], sums->dbias);
    vec_store(in_float[2], sums->parameter);
    for (int lane = 0; lane < LANES; lane++) {
        double lane_sums[3] = {0, 0, 0};
        int exists = lane < step->place.count, any_far = 0;
        for (int row = 0; exists && row < step->rows; row++) {
            float x = load_float(step->block->given_x[row] + step->place.channel + lane);
            any_far |= is_far((double)x * (double)call->x_factor, call);
        }
        if (exists)
            sum_lane_in_double(lane_sums, factors, step, call, lane);
        for (int i = 0; i < 3; i++) {
            int holds = fabsf(in_float[i][lane]) <= FLT_MAX && !(i == 2 && any_far);
            in_double[i][lane] = !exists ? 0 : holds ? (double)in_float[i][lane] : lane_sums[i];
        }
    }
    for (int i = 0; i < 3; i++)
        sums_in_double[i] = wide_load(in_double[i]);
}

INLINE void rare_step(const struct rare_step *step, const struct elementwise_call *call,
                      const struct elementwise *operation) {
    const struct gradient_block *block = step->block;
    const struct place place = {step->place.channel, step->place.count, 0};
    const int rows = step->rows;
    vec zero = vec_set(0), dx[GROUP];
    vec weight = load_vector(block->weight, place, zero), folded = vec_mul(weight, vec_set(call->slope));
    int is_unusual = vec_any_bits_above(folded_weight_bits(folded), folded_weight_limit) ||
                     vec_any_bits_above(vec_abs(folded), infinity_bits - 1);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    vec dx_bits = zero, x_bits = zero, input_bits = vec_abs(weight);
    struct rare_factors kept;
    for (int row = 0; row < rows; row++) {
        vec x = load_vector(block->x[row], place, zero), dy = load_vector(block->dy[row], place, zero);
        vec h = is_unusual ? unusual_h(weight, folded, dy, call) : usual_h(folded, dy);
        struct gradient_factors factors;
        if (vec_any_bits_above(operation->rare_bits(x, call), call->rare_limit))
            operation->factors_of_all(&factors, x, call, operation);
        else {
            operation->factors(&factors, &x, call, operation, 1);
            if (!operation->has_first)
                factors.first = vec_set(1);
            if (!operation->has_second)
                factors.second = vec_set(1);
        }
        vec first = vec_mul(h, factors.first);
        dx[row] = vec_mul(first, factors.second);
        add_row_product(&dweight, dy, factors.f, row, rows);
        add_row(&dbias, dy, row, rows);
        add_row_product(&parameter, first, factors.term, row, rows);
        /* What is NaN because an input is stays so. */
        vec given_x = load_vector(block->given_x[row], place, zero);
        vec inputs = vec_max_bits(vec_abs(weight), vec_max_bits(vec_abs(given_x), vec_abs(dy)));
        dx_bits = vec_max_bits(dx_bits, vec_select_outside(inputs, 0, infinity_bits, zero, vec_abs(dx[row])));
        x_bits = vec_max_bits(x_bits, vec_select_outside(inputs, 0, infinity_bits - 1, zero, vec_abs(x)));
        input_bits = vec_max_bits(input_bits, inputs);
    }
    struct elementwise_sums sums = {dweight.sum, dbias.sum, parameter.sum};
    vec sum = vec_abs(vec_add(vec_add(sums.dweight, sums.dbias), sums.parameter));
    sum = vec_select_outside(input_bits, 0, infinity_bits, zero, sum);
    wide in_double[3] = {vec_widen(sums.dweight), vec_widen(sums.dbias), vec_widen(sums.parameter)};
    if (vec_any_bits_above(sum, infinity_bits - 1) || vec_any_bits_above(dx_bits, infinity_bits - 1) ||
        vec_any_bits_above(x_bits, call->far_bits)) {
        for (int row = 0; row < rows; row++) {
            struct gradient_factors factors;
            vec x = load_vector(block->x[row], place, zero);
            operation->factors_of_all(&factors, x, call, operation);
            vec_store(kept.f[row], factors.f);
            vec_store(kept.first[row], factors.first);
            vec_store(kept.second[row], factors.second);
            vec_store(kept.term[row], factors.term);
            vec_store(kept.dx[row], dx[row]);
        }
        sum_rare_lanes(in_double, &kept, &sums, step, call);
        for (int row = 0; row < rows; row++)
            dx[row] = vec_load(kept.dx[row]);
    }
    wide_store(block->dweight + place.channel,
               wide_add(wide_load(block->dweight_before + place.channel), in_double[0]));
    wide_store(block->dbias + place.channel, wide_add(wide_load(block->dbias_before + place.channel), in_double[1]));
    *step->parameter = wide_add(*step->parameter, in_double[2]);
    for (int row = 0; row < rows; row++)
        store_vector(block->dx[row], place, dx[row]);
}

/* Defines the structure of an operation's mode, NAME_elementwise, from its members but the rare step. */
#define DEFINE_ELEMENTWISE(name, ...)                                                                                  \
    static rare_step_function name##_rare_step;                                                                        \
    static const struct elementwise name##_elementwise = {__VA_ARGS__, .rare_step = name##_rare_step};                 \
    RARE void name##_rare_step(const struct rare_step *step, const struct elementwise_call *call) {                    \
        rare_step(step, call, &name##_elementwise);                                                                    \
    }

/* ---- A block of channels ---- */

/* The 16 lanes are taken together, so that each of the parameter's sums has a fixed place. Plain C has no vectors that
 * could be partial. */
enum { ELEMENTWISE_STRIDE = LANES == 1 ? 1 : 16 };

/* Writes the gradients of a single row from its sums. */
INLINE void finish_block_channels(const struct gradient_block *block, struct place place) {
    if (block->gradients[0].values)
        finish_sum(&block->gradients[0], place, wide_load(block->dweight + place.channel));
    if (block->gradients[1].values)
        finish_sum(&block->gradients[1], place, wide_load(block->dbias + place.channel));
}

/* One step of it, of all rows or of a single one that is all there is: the gradients are then written at once. */
INLINE void fast_block_step(const struct gradient_block *block, struct place place, int rows,
                            const struct elementwise_call *call, const struct elementwise *operation, wide *parameter) {
    struct elementwise_sums sums;
    if (!fast_step(block, place, rows, call, operation, &sums)) {
        wide rare = *parameter; /* a variable whose address is taken is not kept in a register */
        const struct rare_step step = {block, place, rows, &rare};
        operation->rare_step(&step, call);
        *parameter = rare;
        if (rows == 1)
            finish_block_channels(block, place);
        return;
    }
    if (rows == 1) {
        write_gradient(&block->gradients[0], place, sums.dweight);
        write_gradient(&block->gradients[1], place, sums.dbias);
    } else
        take_group_sums(block, place, &sums);
    *parameter = wide_add(*parameter, vec_widen(sums.parameter));
    MODEL_PASS("dx", 0, rows * LANES);
}

INLINE void fast_block(const struct gradient_block *block, size_t count, int rows, const struct elementwise_call *call,
                       const struct elementwise *operation, struct parameter_sum *parameter) {
    struct parameter_sum sum = *parameter;
    ptrdiff_t end = (ptrdiff_t)count, i = 0;
    for (; i + ELEMENTWISE_STRIDE <= end; i += ELEMENTWISE_STRIDE)
        for (int vector = 0; vector < ELEMENTWISE_STRIDE / LANES; vector++) {
            const struct place place = {i + LANES * vector, LANES, 1};
            fast_block_step(block, place, rows, call, operation, &sum.lanes[LANES == 1 ? i % PARTS : vector]);
        }
    for (int part = 0; LANES > 1 && i < end; part++, i += LANES) {
        const struct place place = {i, end - i, 0};
        fast_block_step(block, place, rows, call, operation, &sum.lanes[part]);
    }
    *parameter = sum;
}

/* Of any number of rows, with elements of any kind. */
INLINE void any_block(const struct gradient_block *block, size_t count, int rows, const struct elementwise_call *call,
                      const struct elementwise *operation, struct parameter_sum *parameter) {
    for (size_t i = 0; i < count; i += LANES) {
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        const struct rare_step step = {block, place, rows, &parameter->lanes[i / LANES % PARTS]};
        operation->rare_step(&step, call);
    }
}

/* ---- The driver ---- */

/* A kernel's memory. */
struct elementwise_work {
    _Alignas(64) float x[GROUP][BLOCK]; /* multiplied by x_factor */
    _Alignas(64) double zeros[BLOCK];
    _Alignas(64) double unwanted[BLOCK]; /* sums that nobody asks for */
    _Alignas(64) float weight[BLOCK];
    struct write_buffer buffers[GROUP];
};

/* Where a call's rows are read and written. */
struct elementwise_tensors {
    struct rows x;
    struct rows dy;
    struct output dx;
    struct reader weight;
};

/* to may be from. */
OUTLINED void multiply_floats(float *to, const float *from, size_t count, float factor) {
    for (size_t i = 0; i < count; i += LANES) {
        ptrdiff_t n = (ptrdiff_t)(count - i);
        vec_store_n(to + i, vec_mul(vec_load_n(from + i, n, vec_set(0)), vec_set(factor)), n);
    }
}

/* Some channels of a group of rows. */
struct elementwise_place {
    size_t first_row;
    int rows;
    int is_first; /* of its block of rows */
    struct block channels;
};

INLINE void find_elementwise_block(struct gradient_block *block, struct elementwise_work *work,
                                   const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                                   const struct partial_sums *sums, const struct elementwise_call *call) {
    const size_t first = place->channels.first;
    block->weight = read_block(&tensors->weight, place->channels);
    block->dweight = sums->dweight ? sums->dweight + first : work->unwanted;
    block->dbias = sums->dbias ? sums->dbias + first : work->unwanted;
    block->dweight_before = place->is_first || !sums->dweight ? work->zeros : block->dweight;
    block->dbias_before = place->is_first || !sums->dbias ? work->zeros : block->dbias;
    for (int i = 0; i < place->rows; i++) {
        const size_t row = place->first_row + (size_t)i;
        const struct reader x = read_row(&tensors->x, row), dy = read_row(&tensors->dy, row);
        block->x[i] = read_block(&x, place->channels);
        block->dy[i] = read_block(&dy, place->channels);
        block->given_x[i] = block->x[i];
        if (call->x_factor != 1) {
            multiply_floats(work->x[i], block->x[i], place->channels.count, call->x_factor);
            block->x[i] = work->x[i];
        }
        block->dx[i] = !tensors->dx.rows.data ? work->buffers[0].floats
                       : tensors->dx.is_buffered || call->dx_factor == 1
                           ? block_to_write(&tensors->dx, row, place->channels, &work->buffers[i])
                           : work->buffers[i].floats;
    }
}

INLINE void end_elementwise_block(const struct gradient_block *block, struct elementwise_work *work,
                                  const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                                  const struct elementwise_call *call) {
    const struct output *dx = &tensors->dx;
    if (!dx->rows.data || (call->dx_factor == 1 && !dx->is_buffered))
        return;
    for (int i = 0; i < place->rows; i++) {
        const size_t row = place->first_row + (size_t)i;
        if (call->dx_factor != 1) {
            float *to = dx->is_buffered ? block->dx[i] : row_of(&dx->rows, row) + place->channels.first;
            multiply_floats(to, block->dx[i], place->channels.count, call->dx_factor);
        }
        block_is_written(dx, row, place->channels, &work->buffers[i]);
    }
}

INLINE void backward_elementwise(const struct backward_arguments *arguments, size_t first, size_t rows,
                                 const struct partial_sums *partial_sums, const struct operation *operation) {
    const struct elementwise *elementwise = operation->elementwise;
    const struct elementwise_call call = elementwise->begin(arguments->parameter, arguments->scale);
    const struct partial_sums sums = {partial_sums->dweight, partial_sums->dbias, partial_sums->dparameter,
                                      partial_sums->gradients};
    const size_t channels = arguments->channels;
    struct elementwise_work work;
    struct elementwise_tensors tensors;
    struct gradient_block block;
    tensors.x = rows_of(&arguments->x);
    tensors.dy = rows_of(&arguments->dy);
    tensors.dx = write_tensor(&arguments->dx, channels, arguments->accumulate_dx, arguments->streams);
    tensors.weight = read_weight(arguments->weight, arguments->weight_offset, work.weight);
    for (int i = 0; i < GROUP; i++)
        work.buffers[i].held = 0;
    const struct token_gradient *gradients = rows == 1 && !call.all_are_rare ? direct_gradients(&sums) : NULL;
    memset(work.zeros, 0, PARTIAL_SUMS_CHANNELS(channels < BLOCK ? channels : BLOCK) * sizeof(double));
    struct parameter_sum parameter;
    for (int part = 0; part < PARTS; part++)
        parameter.lanes[part] = wide_set(0);
    begin_partial_sums(&sums, channels);
    for (size_t done = 0; done < rows; done += GROUP) {
        struct elementwise_place place = {
            first + done, rows - done < GROUP ? (int)(rows - done) : GROUP, done == 0, {0, 0}};
        for (size_t channel = 0; channel < channels; channel += BLOCK) {
            place.channels = block_at(channel, channels);
            find_elementwise_block(&block, &work, &tensors, &place, &sums, &call);
            if (place.rows == GROUP && !call.all_are_rare)
                fast_block(&block, place.channels.count, GROUP, &call, elementwise, &parameter);
            else if (gradients) {
                for (int i = 0; i < 2; i++) {
                    block.gradients[i] = gradients[i];
                    if (gradients[i].values)
                        block.gradients[i].values += channel;
                }
                fast_block(&block, place.channels.count, 1, &call, elementwise, &parameter);
            } else
                any_block(&block, place.channels.count, place.rows, &call, elementwise, &parameter);
            end_elementwise_block(&block, &work, &tensors, &place, &call);
        }
    }
    end_writing(&tensors.dx);
    finish_gradients(&sums, channels, gradients != NULL);
    if (sums.dparameter)
        *sums.dparameter = eight_sum(wide_fold(parameter.lanes)) * call.parameter_factor;
}

#endif
