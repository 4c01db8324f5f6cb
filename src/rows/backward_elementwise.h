/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass of elementwise operations: dx of each row, and a block of rows' share of the sums
 * over tokens. Rows are taken in groups of eight, and a step does LANES channels of a group.
 *
 * Each result is the same whichever way it is computed. The fast step finds in the end whether there was something in
 * it that its arithmetic does not cover. Elements far out, where a function is saturated, are left to the far step,
 * which is the fast step with arithmetic for all elements. Anything else, as a weight that underflows or a sum that is
 * not finite, is left to the rare step, where each element and each sum is decided upon by itself. The rare step also
 * does groups of two to seven rows.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_H
#define DYNNORM_BACKWARD_ELEMENTWISE_H

#include "inlining.h"
#include "kernels.h"
#include "model_marks.h"
#include "operations/elementwise.h"
#include "operations/operation.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/token_sums.h"
#include "rows/writer.h"

#include <float.h>
#include <math.h>

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

/* Where a step is done. */
struct step {
    const struct gradient_block *block;
    struct place place;
    int rows;
    int is_far;      /* takes the factors of all elements */
    wide *parameter; /* for the rare step: the sum for the parameter, part of it, to be added to */
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

/* Unless it gives STEP_DONE, what it has written of dx means nothing. dx must not lie where x and dy are read. Each row
 * ends before the next one: there are too few registers to have all of their factors at once. */
INLINE enum step_result fast_step(const struct step *step, const struct elementwise_call *call,
                                  const struct elementwise *operation, struct elementwise_sums *sums) {
    const struct gradient_block *block = step->block;
    const struct place place = step->place;
    const int rows = step->rows, has_first = operation->has_first || step->is_far;
    const int has_second = operation->has_second || step->is_far;
    const int count = rows < operation->rows_side_by_side ? rows : operation->rows_side_by_side;
    vec zero = vec_set(0), rare_bits = zero;
    vec weight = vec_mul(load_vector(block->weight, place, zero), vec_set(call->slope));
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
#pragma GCC unroll 8
    for (int row = 0; row < rows; row += count) {
        vec x[SIDE_BY_SIDE];
        struct gradient_factors factors[SIDE_BY_SIDE];
        EACH(x[k] = load_vector(block->x[row + k], place, zero));
        EACH(if (!operation->sums_tell) rare_bits = vec_max_bits(rare_bits, operation->rare_bits(x[k], call)));
        if (step->is_far)
            operation->factors_of_all(factors, x, call, operation, count);
        else
            operation->factors(factors, x, call, operation, count);
#pragma GCC unroll 4
        for (int k = 0; k < count; k++) {
            const float *again = block->x[row + k]; /* lest each x occupies a register meanwhile */
            KEEP_IN_REGISTER(again);
            vec dy = load_vector(block->dy[row + k], place, zero), h = vec_mul(weight, dy);
            if (!step->is_far)
                operation->end_factors(&factors[k], load_vector(again, place, zero));
            if (has_first)
                h = vec_mul(h, factors[k].first);
            store_vector(block->dx[row + k], place, has_second ? vec_mul(h, factors[k].second) : h);
            add_row_product(&dweight, dy, factors[k].f, row + k, rows);
            add_row(&dbias, dy, row + k, rows);
            add_row_product(&parameter, h, factors[k].term, row + k, rows);
        }
    }
    sums->dweight = dweight.sum;
    sums->dbias = dbias.sum;
    sums->parameter = parameter.sum;
    /* The sums are looked at first: the compiler would postpone them until after the first condition, and keep all that
       they are made of on the stack. */
    if (any_not_finite(sums) || (!step->is_far && vec_any_bits_above(rare_bits, call->rare_limit)) ||
        vec_any_bits_above(folded_weight_bits(weight), folded_weight_limit)) {
        int is_far = !step->is_far && vec_any_bits_above(rare_bits, call->rare_limit) &&
                     !vec_any_bits_above(rare_bits, call->far_step_limit);
        return is_far ? STEP_IS_FAR : STEP_IS_RARE;
    }
    return STEP_DONE;
}

/* ---- The rare step ---- */

/* The terms of a step in double, for those sums that float does not hold. */
struct terms_in_double {
    wide dweight[GROUP];
    wide dbias[GROUP];
    wide parameter[GROUP];
};

/* |x| of finite elements, 0 of others: what is far is seen from it. */
INLINE vec finite_magnitude(vec given_x, vec x) {
    return vec_select_outside(vec_abs(given_x), 0, INFINITY_BITS - 1, vec_set(0), vec_abs(x));
}

/* The terms of a row, and dx where float did not hold a factor of it. The terms for the parameter of elements that are
 * far out are h / x / |x|: from 4 / given_x, which is a normal float. */
INLINE vec row_in_double(struct terms_in_double *terms, const struct step *step, const struct elementwise_call *call,
                         const struct elementwise *operation, int row, vec dx) {
    const struct gradient_block *block = step->block;
    vec zero = vec_set(0), one = vec_set(1);
    vec given_x = load_vector(block->given_x[row], step->place, zero);
    vec x = load_vector(block->x[row], step->place, zero);
    vec weight = load_vector(block->weight, step->place, zero), far = finite_magnitude(given_x, x);
    struct gradient_factors factors;
    operation->factors_of_all(&factors, &x, call, operation, 1);
    vec reciprocal = vec_div(vec_set(4), given_x), power = vec_set(1 / (4 * call->x_factor));
    vec first = vec_select_outside(far, 0, call->far_bits, vec_abs(reciprocal), factors.first);
    vec term = vec_select_outside(far, 0, call->far_bits, reciprocal, factors.term);
    wide scale = vec_widen(vec_select_outside(far, 0, call->far_bits, power, one));
    wide dy = vec_widen(load_vector(block->dy[row], step->place, zero));
    wide h = wide_mul(wide_mul(vec_widen(weight), wide_set((double)call->slope)), dy);
    terms->dweight[row] = wide_mul(dy, vec_widen(factors.f));
    terms->dbias[row] = dy;
    terms->parameter[row] = wide_mul(wide_mul(wide_mul(h, vec_widen(first)), scale), wide_mul(vec_widen(term), scale));
    wide exact = wide_mul(wide_mul(h, vec_widen(factors.first)), vec_widen(factors.second));
    return vec_select_outside(vec_abs(dx), 0, INFINITY_BITS - 1, wide_narrow(exact), dx);
}

/* Of the two sums, the one in float where it is finite and does not have to be the other one. Then that one is finite,
 * too, so that 0 times it is 0. */
INLINE wide choose_sum(vec in_float, wide in_double, vec magnitude, uint32_t limit) {
    vec zero = vec_set(0), one = vec_set(1);
    vec held = vec_select_outside(magnitude, 0, limit, zero, in_float);
    return wide_add(vec_widen(held),
                    wide_mul(in_double, vec_widen(vec_select_outside(magnitude, 0, limit, one, zero))));
}

INLINE vec usual_h(vec folded, vec dy) {
    return vec_mul(folded, dy);
}

/* h where weight times slope has left the range of normal floats. */
INLINE vec unusual_h(vec weight, vec folded, vec dy, const struct elementwise_call *call) {
    wide exact = wide_mul(wide_mul(vec_widen(weight), wide_set((double)call->slope)), vec_widen(dy));
    vec h = usual_h(folded, dy), magnitude = vec_abs(folded);
    h = vec_select_outside(magnitude, LEAST_NORMAL, folded_weight_limit, wide_narrow(exact), h);
    return vec_select_outside(magnitude, 0, INFINITY_BITS - 1, wide_narrow(exact), h);
}

/* Replaces the sums, and dx, where float does not hold them. */
INLINE void sum_in_double(wide sums_in_double[3], vec *dx, const struct elementwise_sums *sums, const struct step *step,
                          const struct elementwise_call *call, const struct elementwise *operation) {
    struct terms_in_double terms;
    vec zero = vec_set(0), far = zero;
    for (int row = 0; row < GROUP; row++)
        terms.dweight[row] = terms.dbias[row] = terms.parameter[row] = wide_set(0);
    for (int row = 0; row < step->rows; row++) {
        dx[row] = row_in_double(&terms, step, call, operation, row, dx[row]);
        vec given_x = load_vector(step->block->given_x[row], step->place, zero);
        far = vec_max_bits(far, finite_magnitude(given_x, load_vector(step->block->x[row], step->place, zero)));
    }
    /* An infinity stands for what is far. */
    vec parameter = vec_select_outside(far, 0, call->far_bits, vec_set(INFINITY), vec_abs(sums->parameter));
    sums_in_double[0] =
        choose_sum(sums->dweight, sum_of_rows(terms.dweight), vec_abs(sums->dweight), INFINITY_BITS - 1);
    sums_in_double[1] = choose_sum(sums->dbias, sum_of_rows(terms.dbias), vec_abs(sums->dbias), INFINITY_BITS - 1);
    sums_in_double[2] = choose_sum(sums->parameter, sum_of_rows(terms.parameter), parameter, INFINITY_BITS - 1);
}

INLINE void rare_step(const struct step *step, const struct elementwise_call *call,
                      const struct elementwise *operation) {
    const struct gradient_block *block = step->block;
    const struct place place = {step->place.channel, step->place.count, 0};
    const int rows = step->rows;
    vec zero = vec_set(0), dx[GROUP];
    vec weight = load_vector(block->weight, place, zero), folded = vec_mul(weight, vec_set(call->slope));
    int is_unusual = vec_any_bits_above(folded_weight_bits(folded), folded_weight_limit) ||
                     vec_any_bits_above(vec_abs(folded), INFINITY_BITS - 1);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    vec dx_bits = zero, far = zero, input_bits = vec_abs(weight);
    for (int row = 0; row < rows; row++) {
        vec x = load_vector(block->x[row], place, zero), dy = load_vector(block->dy[row], place, zero);
        vec h = is_unusual ? unusual_h(weight, folded, dy, call) : usual_h(folded, dy);
        struct gradient_factors factors;
        if (vec_any_bits_above(operation->rare_bits(x, call), call->rare_limit))
            operation->factors_of_all(&factors, &x, call, operation, 1);
        else {
            operation->factors(&factors, &x, call, operation, 1);
            operation->end_factors(&factors, x);
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
        dx_bits = vec_max_bits(dx_bits, vec_select_outside(inputs, 0, INFINITY_BITS, zero, vec_abs(dx[row])));
        far = vec_max_bits(far, finite_magnitude(given_x, x));
        input_bits = vec_max_bits(input_bits, inputs);
    }
    struct elementwise_sums sums = {dweight.sum, dbias.sum, parameter.sum};
    vec sum = vec_abs(vec_add(vec_add(sums.dweight, sums.dbias), sums.parameter));
    sum = vec_select_outside(input_bits, 0, INFINITY_BITS, zero, sum);
    wide in_double[3] = {vec_widen(sums.dweight), vec_widen(sums.dbias), vec_widen(sums.parameter)};
    if (vec_any_bits_above(sum, INFINITY_BITS - 1) || vec_any_bits_above(dx_bits, INFINITY_BITS - 1) ||
        vec_any_bits_above(far, call->far_bits))
        operation->sum_in_double(in_double, dx, &sums, step, call);
    wide_store(block->dweight + place.channel,
               wide_add(wide_load(block->dweight_before + place.channel), in_double[0]));
    wide_store(block->dbias + place.channel, wide_add(wide_load(block->dbias_before + place.channel), in_double[1]));
    *step->parameter = wide_add(*step->parameter, in_double[2]);
    for (int row = 0; row < rows; row++)
        store_vector(block->dx[row], place, dx[row]);
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

/* The rest of a block from a step on, of any number of rows with elements of any kind. Where one is far out others
 * usually are, too. */
INLINE void any_block(const struct step *first, size_t count, const struct elementwise_call *call,
                      const struct elementwise *operation, struct parameter_sum *parameter) {
    struct elementwise_sums sums;
    for (size_t i = (size_t)first->place.channel; i < count; i += LANES) {
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0};
        wide *sum = &parameter->lanes[i / LANES % PARTS];
        const struct step far_step = {first->block, place, GROUP, 1, NULL};
        const struct step rare_step = {first->block, place, first->rows, 0, sum};
        if (first->rows == GROUP && fast_step(&far_step, call, operation, &sums) == STEP_DONE) {
            take_group_sums(first->block, place, &sums);
            *sum = wide_add(*sum, vec_widen(sums.parameter));
        } else
            operation->rare_step(&rare_step, call);
    }
}

/* The sum for the parameter of a block, and what it was before the block, once more in double, where float may have
 * lost it: all lanes are so small that what underflowed counts. */
RARE void mend_parameter_sum(struct parameter_sum *parameter, const struct parameter_sum *before,
                             const struct step *first, size_t count, const struct elementwise_call *call,
                             const struct elementwise *operation) {
    const struct gradient_block *block = first->block;
    double lanes[LANES];
    for (int part = 0; part < PARTS; part++) {
        wide_store(lanes, parameter->lanes[part]);
        for (int lane = 0; lane < LANES; lane++)
            if (!(fabs(lanes[lane]) < call->least_sum))
                return;
    }
    *parameter = *before;
    for (size_t i = 0; i < count; i += LANES) {
        const struct step step = {block, {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0}, first->rows, 0, NULL};
        const vec zero = vec_set(0), weight = load_vector(block->weight, step.place, zero);
        const struct elementwise_sums sums = {zero, zero, vec_set(INFINITY)}; /* which float does not hold */
        wide *sum = &parameter->lanes[i / LANES % PARTS], in_double[3];
        vec dx[GROUP], x = zero, dy = zero;
        for (int row = 0; row < step.rows; row++) {
            dx[row] = zero;
            x = vec_max_bits(x, vec_abs(load_vector(block->x[row], step.place, zero)));
            dy = vec_max_bits(dy, vec_abs(load_vector(block->dy[row], step.place, zero)));
        }
        if (!vec_any_bits_above(vec_abs(weight), 0) || !vec_any_bits_above(x, 0) || !vec_any_bits_above(dy, 0))
            continue; /* all terms are 0 */
        operation->sum_in_double(in_double, dx, &sums, &step, call);
        *sum = wide_add(*sum, in_double[2]);
    }
}

/* Defines the structure of an operation's mode, NAME_elementwise, from its members but for the functions that are made
 * here. They are not cold, since the compiler would make those small instead of fast. */
#define DEFINE_ELEMENTWISE(name, ...)                                                                                  \
    static rare_step_function name##_rare_step;                                                                        \
    static sum_in_double_function name##_sum_in_double;                                                                \
    static any_block_function name##_any_block;                                                                        \
    static const struct elementwise name##_elementwise = {__VA_ARGS__, .rare_step = name##_rare_step,                  \
                                                          .sum_in_double = name##_sum_in_double,                       \
                                                          .any_block = name##_any_block};                              \
    OUTLINED void name##_rare_step(const struct step *step, const struct elementwise_call *call) {                     \
        rare_step(step, call, &name##_elementwise);                                                                    \
    }                                                                                                                  \
    OUTLINED void name##_sum_in_double(wide *in_double, vec *dx, const struct elementwise_sums *sums,                  \
                                       const struct step *step, const struct elementwise_call *call) {                 \
        sum_in_double(in_double, dx, sums, step, call, &name##_elementwise);                                           \
    }                                                                                                                  \
    OUTLINED void name##_any_block(const struct step *first, size_t count, const struct elementwise_call *call,        \
                                   struct parameter_sum *parameter) {                                                  \
        any_block(first, count, call, &name##_elementwise, parameter);                                                 \
    }

/* One step of it, of all rows or of a single one that is all there is: the gradients are then written at once. Gives 0
 * if the rest of the block, this step included, is for any_block. */
INLINE int fast_block_step(const struct gradient_block *block, struct place place, int rows,
                           const struct elementwise_call *call, const struct elementwise *operation, wide *parameter) {
    const struct step step = {block, place, rows, 0, NULL};
    struct elementwise_sums sums;
    enum step_result result = fast_step(&step, call, operation, &sums);
    if (result == STEP_IS_FAR && rows == GROUP)
        return 0;
    if (result != STEP_DONE) {
        wide rare = *parameter; /* a variable whose address is taken is not kept in a register */
        const struct step rare_step = {block, {place.channel, place.count, 0}, rows, 0, &rare};
        operation->rare_step(&rare_step, call);
        *parameter = rare;
        if (rows == 1)
            finish_block_channels(block, place);
        return 1;
    }
    if (rows == 1) {
        write_gradient(&block->gradients[0], place, sums.dweight);
        write_gradient(&block->gradients[1], place, sums.dbias);
    } else
        take_group_sums(block, place, &sums);
    *parameter = wide_add(*parameter, vec_widen(sums.parameter));
    MODEL_PASS("dx", 0, rows * LANES);
    return 1;
}

INLINE void fast_block(const struct gradient_block *block, size_t count, int rows, const struct elementwise_call *call,
                       const struct elementwise *operation, struct parameter_sum *parameter) {
    struct parameter_sum sum = *parameter;
    ptrdiff_t end = (ptrdiff_t)count, i = 0;
    struct step any = {block, {end, 0, 0}, rows, 0, NULL};
    for (; i + ELEMENTWISE_STRIDE <= end; i += ELEMENTWISE_STRIDE)
        for (int vector = 0; vector < ELEMENTWISE_STRIDE / LANES; vector++) {
            const struct place place = {i + LANES * vector, LANES, 1};
            if (!fast_block_step(block, place, rows, call, operation, &sum.lanes[LANES == 1 ? i % PARTS : vector])) {
                any.place = place;
                goto end;
            }
        }
    for (int part = 0; LANES > 1 && i < end; part++, i += LANES) {
        const struct place place = {i, end - i, 0};
        if (!fast_block_step(block, place, rows, call, operation, &sum.lanes[part])) {
            any.place = place;
            goto end;
        }
    }
end:
    *parameter = sum;
    if (any.place.channel < end)
        operation->any_block(&any, count, call, parameter);
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
    /* dx leaves a buffer once the block is done: it is multiplied by dx_factor, or is in place of an input, or its rows
       and those of x and dy would throw one another out of the nearest cache. */
    int is_late;
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
                       : tensors->dx.is_buffered || !tensors->is_late
                           ? block_to_write(&tensors->dx, row, place->channels, &work->buffers[i])
                           : work->buffers[i].floats;
    }
}

INLINE void end_elementwise_block(const struct gradient_block *block, struct elementwise_work *work,
                                  const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                                  const struct elementwise_call *call) {
    const struct output *dx = &tensors->dx;
    if (!dx->rows.data || !(tensors->is_late || dx->is_buffered))
        return;
    for (int i = 0; i < place->rows; i++) {
        const size_t row = place->first_row + (size_t)i;
        if (tensors->is_late) {
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
    tensors.is_late = call.dx_factor != 1 || arguments->dx.data == arguments->x.data ||
                      arguments->dx.data == arguments->dy.data || tensors.x.stride % FLOATS_OF_PAGE == 0;
    tensors.weight = read_weight(arguments->weight, arguments->weight_offset, work.weight);
    for (int i = 0; i < GROUP; i++)
        work.buffers[i].held = 0;
    const struct token_gradient *gradients = rows == 1 && !call.all_are_rare ? direct_gradients(&sums) : NULL;
    memset(work.zeros, 0, PARTIAL_SUMS_CHANNELS(channels < BLOCK ? channels : BLOCK) * sizeof(double));
    struct parameter_sum parameter, before;
    for (int part = 0; part < PARTS; part++)
        parameter.lanes[part] = wide_set(0);
    begin_partial_sums(&sums, channels);
    for (size_t done = 0; done < rows; done += GROUP) {
        struct elementwise_place place = {
            first + done, rows - done < GROUP ? (int)(rows - done) : GROUP, done == 0, {0, 0}};
        for (size_t channel = 0; channel < channels; channel += BLOCK) {
            place.channels = block_at(channel, channels);
            if (call.least_sum != 0)
                before = parameter;
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
            } else {
                const struct step step = {&block, {0, 0, 0}, place.rows, 0, NULL};
                elementwise->any_block(&step, place.channels.count, &call, &parameter);
            }
            if (call.least_sum != 0) {
                const struct step step = {&block, {0, 0, 0}, place.rows, 0, NULL};
                mend_parameter_sum(&parameter, &before, &step, place.channels.count, &call, elementwise);
            }
            end_elementwise_block(&block, &work, &tensors, &place, &call);
        }
    }
    end_writing(&tensors.dx);
    finish_gradients(&sums, channels, gradients != NULL);
    if (sums.dparameter)
        *sums.dparameter = eight_sum(wide_fold(parameter.lanes)) * call.parameter_factor;
}

#endif
