/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the backward pass of elementwise operations does slowly, or once for a block: see backward/elementwise.h. It is
 * compiled once for each table, for all operations and modes, and calls their functions through pointers. What
 * takes the time is not cold, since the compiler would make it small instead of fast.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_ANY_H
#define DYNNORM_BACKWARD_ELEMENTWISE_ANY_H

#include "rows/backward/elementwise.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/typed_rows.h"

#include <math.h>

/* To dx at one place of all rows, which has been stored. */
OUTLINED void add_dsum_at(const struct gradient_block *block, struct place place) {
    const vec zero = vec_set(0);
    for (int row = 0; adds_dsum(block) && row < block->rows; row++)
        store_vector(block->dx[row], place,
                     vec_add(load_vector(block->dx[row], place, zero), load_vector(block->dsum[row], place, zero)));
}

/* ---- The far step ---- */

/* Unless it gives 1, what it has written of dx means nothing. */
INLINE int far_step(const struct step *step, const struct elementwise_call *call,
                    const struct elementwise_functions *operation) {
    struct elementwise_sums sums, others;
    const struct elementwise_lanes lanes = lanes_at(step->block, step->place, call);
    vec folded = folded_weight(step->block->weight, step->place, &lanes);
    operation->far_rows(&sums, step->block, 0, step->place, folded, call);
    if (has_second_half(step->block)) {
        operation->far_rows(&others, step->block, ROWS_OF_HALF, step->place, folded, call);
        add_sums(&sums, &others);
    }
    if (any_subnormal(&folded, 1) || !end_group(&step->block->of_channels, step->place, &sums))
        return 0;
    add_parameter_sum(step->block, step->place, step->parameter, vec_widen(sums.parameter));
    add_dsum_at(step->block, step->place);
    return 1;
}

/* ---- The rare step ---- */

/* Whether x of a row is tiny at a place, to judge by the first element. */
INLINE int is_tiny_x(const struct gradient_block *block, int row, struct place place,
                     const struct elementwise_functions *operation) {
    return block->avoids_subnormals &&
           is_tinier(bits_of_float(load_float(block->x[row] + place.channel)), operation->bits_of_tiny_x);
}

/* The terms of a step in double, for those sums that float does not hold. */
struct terms_in_double {
    wide dweight[GROUP];
    wide dbias[GROUP];
    wide parameter[GROUP];
};

/* |x| of finite elements, 0 of others: what is far is seen from it. */
INLINE vec finite_magnitude(vec given_x, vec x) {
    return vec_select_outside(vec_abs(given_x), 0, FLOAT_MAX_BITS, vec_set(0), vec_abs(x));
}

/* Of the two sums, the one in float where the magnitude is finite. There the other one is finite, too, so that 0 times
 * it is 0. */
INLINE wide choose_sum_of_step(vec in_float, const wide terms[GROUP], vec magnitude, int is_needed) {
    if (!is_needed)
        return vec_widen(in_float);
    const vec zero = vec_set(0), one = vec_set(1);
    const vec held = vec_select_outside(magnitude, 0, FLOAT_MAX_BITS, zero, in_float);
    const vec other = vec_select_outside(magnitude, 0, FLOAT_MAX_BITS, one, zero);
    return wide_add(vec_widen(held), wide_mul(sum_of_rows(terms), vec_widen(other)));
}

/* h where weight times slope has left the range of normal floats. */
INLINE vec unusual_h(vec weight, vec folded, vec dy, const struct elementwise_lanes *lanes) {
    wide exact = wide_mul(wide_mul(vec_widen(weight), vec_widen(lanes->slope)), vec_widen(dy));
    vec h = vec_mul(folded, dy), magnitude = vec_abs(folded);
    h = vec_select_outside(magnitude, LEAST_NORMAL, ZERO_MINUS_LEAST_NORMAL, wide_narrow(exact), h);
    return vec_select_outside(magnitude, 0, FLOAT_MAX_BITS, wide_narrow(exact), h);
}

/* What of a step is made in double. */
struct needs_in_double {
    int dweight;
    int dbias;
    int parameter;
    int dx;
    int has_far; /* elements */
};

/* The terms of a row that are needed, and dx where float did not hold a factor of it. The terms for the parameter of
 * elements that are far out are h / x / |x|: from 4 / given_x, which is a normal float. */
INLINE void add_terms_of_row(struct terms_in_double *terms, vec *dx, const struct needs_in_double *needs,
                             const struct step *step, const struct elementwise_call *call,
                             const struct gradient_factors *factors, wide slope, vec power, int row) {
    const struct gradient_block *block = step->block;
    const vec zero = vec_set(0), one = vec_set(1);
    const wide dy = vec_widen(load_vector(block->dy[row], step->place, zero));
    if (needs->dweight)
        terms->dweight[row] = wide_mul(dy, vec_widen(factors->f));
    if (needs->dbias)
        terms->dbias[row] = dy;
    const wide h = wide_mul(slope, dy);
    if (needs->dx) {
        const wide exact = wide_mul(wide_mul(h, vec_widen(factors->first)), vec_widen(factors->second));
        dx[row] = vec_select_outside(vec_abs(dx[row]), 0, FLOAT_MAX_BITS, wide_narrow(exact), dx[row]);
    }
    if (!needs->parameter)
        return;
    vec first = factors->first, term = factors->term, scale = one;
    if (needs->has_far) {
        const vec given_x = load_vector(block->given_x[row], step->place, zero);
        const vec far = finite_magnitude(given_x, load_vector(block->x[row], step->place, zero));
        const vec reciprocal = vec_div(vec_set(4), given_x);
        first = vec_select_outside(far, 0, call->far_bits, vec_abs(reciprocal), first);
        term = vec_select_outside(far, 0, call->far_bits, reciprocal, term);
        scale = vec_select_outside(far, 0, call->far_bits, power, scale);
    }
    terms->parameter[row] = wide_mul(wide_mul(wide_mul(h, vec_widen(first)), vec_widen(scale)),
                                     wide_mul(vec_widen(term), vec_widen(scale)));
}

/* Replaces the sums, and dx, where float does not hold them. The factors are those of the rows. */
OUTLINED void sum_step_in_double(wide sums_in_double[3], vec *dx, const struct elementwise_sums *sums,
                                 const struct step *step, const struct elementwise_call *call,
                                 const struct gradient_factors factors[GROUP]) {
    const struct gradient_block *block = step->block;
    const struct elementwise_lanes lanes = lanes_at(block, step->place, call);
    const vec power = vec_div(vec_set(1), vec_mul(vec_set(4), lanes.x_factor)), zero = vec_set(0);
    const vec weight = load_vector(block->weight, step->place, zero);
    const wide slope = wide_mul(vec_widen(weight), vec_widen(lanes.slope));
    struct terms_in_double terms;
    vec far = zero, dx_bits = zero;
    for (int row = 0; row < block->rows; row++) {
        const vec given_x = load_vector(block->given_x[row], step->place, zero);
        far = vec_max_bits(far, finite_magnitude(given_x, load_vector(block->x[row], step->place, zero)));
        dx_bits = vec_max_bits(dx_bits, vec_abs(dx[row]));
    }
    /* An infinity stands for what is far. */
    const vec dweight = vec_abs(sums->dweight), dbias = vec_abs(sums->dbias),
              parameter = vec_select_outside(far, 0, call->far_bits, vec_set(INFINITY), vec_abs(sums->parameter));
    const struct needs_in_double needs = {
        vec_any_bits_above(dweight, FLOAT_MAX_BITS), vec_any_bits_above(dbias, FLOAT_MAX_BITS),
        vec_any_bits_above(parameter, FLOAT_MAX_BITS), vec_any_bits_above(dx_bits, FLOAT_MAX_BITS),
        vec_any_bits_above(far, call->far_bits)};
    for (int row = block->rows; row < GROUP; row++)
        terms.dweight[row] = terms.dbias[row] = terms.parameter[row] = wide_set(0);
    for (int row = 0; row < block->rows; row++)
        add_terms_of_row(&terms, dx, &needs, step, call, &factors[row], slope, power, row);
    sums_in_double[0] = choose_sum_of_step(sums->dweight, terms.dweight, dweight, needs.dweight);
    sums_in_double[1] = choose_sum_of_step(sums->dbias, terms.dbias, dbias, needs.dbias);
    sums_in_double[2] = choose_sum_of_step(sums->parameter, terms.parameter, parameter, needs.parameter);
}

/* The bits of a sum where it is not finite though none of what it is made of is NaN, whose greatest bits are given. */
INLINE vec overflow_bits(vec sum, vec input_bits) {
    return vec_select_outside(input_bits, 0, INFINITY_BITS, vec_set(0), vec_abs(sum));
}

int RARE_ELEMENTWISE_STEP(const struct step *step, const struct elementwise_call *call,
                          const struct elementwise_functions *operation) {
    const struct gradient_block *block = step->block;
    const struct place place = {step->place.channel, step->place.count, 0};
    const int rows = step->block->rows;
    vec zero = vec_set(0), dx[GROUP];
    const struct elementwise_lanes lanes = lanes_at(block, place, call);
    vec weight = load_vector(block->weight, place, zero), folded = vec_mul(weight, lanes.slope);
    int is_unusual = any_subnormal(&folded, 1) || vec_any_bits_above(vec_abs(folded), FLOAT_MAX_BITS);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
    vec dx_bits = zero, far = zero, x_bits = zero, dy_bits = zero;
    struct gradient_factors factors[GROUP];
    int has_tiny = 0;
    for (int row = 0; row < rows; row++) { /* by itself, since calls leave no vectors in registers */
        const int is_tiny = is_tiny_x(block, row, place, operation);
        operation->vector_factors(&factors[row], load_vector(block->x[row], place, zero), &lanes, is_tiny);
        has_tiny |=
            is_tiny || (block->avoids_subnormals && is_tiny_element(block->dy[row] + place.channel, DYNNORM_F32));
    }
    for (int row = 0; row < rows; row++) {
        vec x = load_vector(block->x[row], place, zero), dy = load_vector(block->dy[row], place, zero);
        vec h = is_unusual ? unusual_h(weight, folded, dy, &lanes) : product_of(folded, dy, has_tiny);
        vec first = product_of(h, factors[row].first, has_tiny);
        dx[row] = operation->has_second ? product_of(first, factors[row].second, has_tiny) : first;
        add_row(&dbias, dy, row, rows);
        if (SUBNORMALS_ARE_SLOW && has_tiny) {
            add_row_product_by_doubles(&dweight, dy, factors[row].f, row, rows);
            add_row_product_by_doubles(&parameter, first, factors[row].term, row, rows);
        } else {
            add_row_product(&dweight, dy, factors[row].f, row, rows);
            add_row_product(&parameter, first, factors[row].term, row, rows);
        }
        /* What is NaN because an input is stays so. */
        vec given_x = load_vector(block->given_x[row], place, zero);
        vec inputs = vec_max_bits(vec_abs(weight), vec_max_bits(vec_abs(given_x), vec_abs(dy)));
        dx_bits = vec_max_bits(dx_bits, overflow_bits(dx[row], inputs));
        far = vec_max_bits(far, finite_magnitude(given_x, x));
        x_bits = vec_max_bits(x_bits, vec_abs(given_x));
        dy_bits = vec_max_bits(dy_bits, vec_abs(dy));
    }
    /* Of each sum its own inputs count: one that another needs must not hide that this one overflowed. */
    struct elementwise_sums sums = {dweight.sum, dbias.sum, parameter.sum};
    x_bits = vec_max_bits(x_bits, dy_bits);
    vec sum = vec_max_bits(overflow_bits(sums.dbias, dy_bits), overflow_bits(sums.dweight, x_bits));
    sum = vec_max_bits(sum, overflow_bits(sums.parameter, vec_max_bits(x_bits, vec_abs(weight))));
    wide in_double[3] = {vec_widen(sums.dweight), vec_widen(sums.dbias), vec_widen(sums.parameter)};
    const int dx_overflows = vec_any_bits_above(dx_bits, FLOAT_MAX_BITS);
    *block->dx_overflows |= dx_overflows;
    const int is_in_double =
        vec_any_bits_above(sum, FLOAT_MAX_BITS) || dx_overflows || vec_any_bits_above(far, call->far_bits);
    if (is_in_double)
        sum_step_in_double(in_double, dx, &sums, step, call, factors);
    wide_store(block->of_channels.dweight + place.channel,
               wide_add(wide_load(block->of_channels.dweight_before + place.channel), in_double[0]));
    wide_store(block->of_channels.dbias + place.channel,
               wide_add(wide_load(block->of_channels.dbias_before + place.channel), in_double[1]));
    add_parameter_sum(block, place, step->parameter, in_double[2]);
    for (int row = 0; row < rows; row++)
        store_vector(block->dx[row], place, dx[row]);
    add_dsum_at(block, place);
    return is_in_double || has_tiny;
}

/* ---- Nothing but NaN, as is left of data when one spreads in training ---- */

INLINE int all_are_nan(const float *values, struct place place) {
    const uint32_t least_nan = INFINITY_BITS + 1, greatest_nan = 0x7fffffff;
    const vec magnitude = vec_abs(load_vector(values, place, vec_set(NAN)));
    return !vec_any_bits_above(vec_bits_minus(magnitude, least_nan), greatest_nan - least_nan);
}

/* Where all of x or all of dy is NaN in each row, so are dx and the sums, but for those of dy. Gives 0, and has written
 * nothing, where they are not, or where a sum of dy overflows. */
FOR_SIZE OUTLINED int nan_step(const struct step *step) {
    const struct gradient_block *block = step->block;
    const struct place place = step->place;
    const int rows = block->rows;
    const vec zero = vec_set(0);
    vec sum = zero, dy_bits = zero, dx[GROUP];
    struct group_sum dbias = {zero, zero, zero};
    for (int row = 0; row < rows; row++) {
        if (!all_are_nan(block->x[row], place) && !all_are_nan(block->dy[row], place))
            return 0;
        const vec dy = load_vector(block->dy[row], place, zero);
        sum = dx[row] = vec_add(load_vector(block->x[row], place, zero), dy);
        dy_bits = vec_max_bits(dy_bits, vec_abs(dy));
        add_row(&dbias, dy, row, rows);
    }
    if (vec_any_bits_above(overflow_bits(dbias.sum, dy_bits), FLOAT_MAX_BITS))
        return 0;
    add_group_sum(block->of_channels.dweight, block->of_channels.dweight_before, place, sum);
    add_group_sum(block->of_channels.dbias, block->of_channels.dbias_before, place, dbias.sum);
    add_parameter_sum(block, place, step->parameter, vec_widen(sum));
    for (int row = 0; row < rows; row++)
        store_vector(block->dx[row], place, dx[row]); /* whatever is added, they stay NaN */
    return 1;
}

/* ---- A single row ---- */

FOR_SIZE void RARE_SINGLE_ROW_STEP(const struct gradient_block *block, struct place place, int count,
                                   const struct elementwise_call *call, const struct elementwise_functions *operation,
                                   struct parameter_sum *parameter) {
    for (int k = 0; k < count; k++) {
        const struct place here = {place.channel + LANES * k, place.count - LANES * k, 0};
        const struct step step = {block, here, &parameter->lanes[here.channel / LANES % PARTS]};
        double *dweight = block->of_channels.dweight + here.channel, *dbias = block->of_channels.dbias + here.channel;
        wide_store(dweight, wide_set(0)); /* which the step adds to */
        wide_store(dbias, wide_set(0));
        RARE_ELEMENTWISE_STEP(&step, call, operation);
        finish_sum(&block->gradients[0], here, wide_load(dweight));
        finish_sum(&block->gradients[1], here, wide_load(dbias));
    }
}

/* ---- A block of channels ---- */

/* Whether some elements are far out, and none is of another kind that is not for the far step. */
INLINE int is_far(const struct step *step, const struct elementwise_call *call,
                  const struct elementwise_functions *operation) {
    const struct elementwise_lanes lanes = lanes_at(step->block, step->place, call);
    vec bits = vec_set(0);
    for (int row = 0; row < step->block->rows; row++) {
        vec x = load_vector(step->block->x[row], step->place, vec_set(0));
        bits = vec_max_bits(bits, vec_abs(operation->rare_bits(x, &lanes)));
    }
    return vec_any_bits_above(bits, call->rare_limit) && !vec_any_bits_above(bits, call->far_step_limit);
}

size_t ANY_ELEMENTWISE_BLOCK(const struct gradient_block *block, size_t first, const struct elementwise_call *call,
                             const struct elementwise_functions *operation, struct parameter_sum *parameter) {
    const size_t next = first / ELEMENTWISE_STRIDE * ELEMENTWISE_STRIDE + ELEMENTWISE_STRIDE;
    enum { LEAST_IN_A_ROW = 16 }; /* channels that float does not hold; single ones may be rare */
    int is_far_block = call->all_are_rare, in_a_row = 0;
    size_t end = !is_far_block && next < block->channels ? next : block->channels;
    for (size_t i = first; i < end; i += LANES) {
        const struct place place = place_at(i, block->channels);
        const struct step step = {block, place, &parameter->lanes[i / LANES % PARTS]};
        const int is_nan = nan_step(&step);
        if (!is_nan && !is_far_block && !is_tiny_x(block, 0, place, operation) && is_far(&step, call, operation)) {
            is_far_block = 1;
            end = block->channels;
        }
        if (!is_nan && (!is_far_block || !far_step(&step, call, operation)))
            in_a_row = RARE_ELEMENTWISE_STEP(&step, call, operation) ? in_a_row + LANES : 0;
        if ((is_nan || in_a_row >= LEAST_IN_A_ROW) && i + LANES >= end) /* so is what follows, most likely */
            end = end + ELEMENTWISE_STRIDE < block->channels ? end + ELEMENTWISE_STRIDE : block->channels;
    }
    return end;
}

/* Widens the channels that have room in the buffers, first among them. */
INLINE void read_halves(struct halves_in_floats *in_floats, const struct gradient_block *block, size_t first) {
    struct gradient_block *const of_floats = &in_floats->of_floats;
    const struct channels_of_block *const of = &block->of_channels;
    in_floats->channels = block_at(first / BLOCK * BLOCK, block->channels);
    const size_t begin = in_floats->channels.first, count = in_floats->channels.count;
    const struct typed_place place = {block->first_row, block->rows, {block->first_channel + begin, count}, 0, 0, 0};
    *of_floats = *block;
    of_floats->dsum[0] = NULL; /* it is added when dx is written */
    of_floats->channels = count;
    of_floats->weight += begin;
    of_floats->of_channels = (struct channels_of_block){NULL,
                                                        of->parameters + begin,
                                                        of->dweight_before + begin,
                                                        of->dbias_before + begin,
                                                        of->dweight + begin,
                                                        of->dbias + begin};
    READ_TYPED_ROWS(block->typed, &place, of_floats->x, of_floats->dy, of_floats->dx);
    memcpy(of_floats->given_x, of_floats->x, sizeof of_floats->x);
}

/* From a channel on, to the end of those that are widened or to where the passes can go on, which store only whole
 * vectors of 16 bits. Returns where that is. */
INLINE size_t any_part_of_halves(const struct gradient_block *block, struct halves_in_floats *in_floats, size_t first,
                                 const struct elementwise_call *call, const struct elementwise_functions *operation,
                                 struct parameter_sum *parameter) {
    const struct block *const channels = &in_floats->channels;
    struct gradient_block *const of_floats = &in_floats->of_floats;
    float *dx[GROUP];
    if (first - channels->first >= channels->count)
        read_halves(in_floats, block, first);
    const size_t begin = first - channels->first;
    size_t end = begin;
    do
        end = ANY_ELEMENTWISE_BLOCK(of_floats, end, call, operation, parameter);
    while (end % STRIDE_OF_HALVES);
    for (int i = 0; i < block->rows; i++)
        dx[i] = of_floats->dx[i] + begin;
    const struct typed_place place = {
        block->first_row, block->rows, {block->first_channel + first, end - begin}, 0, 0, 0};
    WRITE_TYPED_ROWS(block->typed, &place, dx);
    return channels->first + end;
}

size_t ANY_BLOCK_OF_HALVES(const struct gradient_block *block, struct halves_in_floats *in_floats, size_t first,
                           const struct elementwise_call *call, const struct elementwise_functions *operation,
                           struct parameter_sum *parameter) {
    const struct block *const channels = &in_floats->channels;
    size_t end = HAS_ELEMENTWISE_HALVES ? first : block->channels;
    while (end < block->channels) {
        const size_t begin = end;
        end = any_part_of_halves(block, in_floats, begin, call, operation, parameter);
        /* More than a stride: there were elements far out, or nothing but NaN, and what follows is likely to be so. */
        const int goes_on = end == channels->first + channels->count && end - begin > STRIDE_OF_HALVES;
        if (!goes_on)
            break;
    }
    return end;
}

#endif
