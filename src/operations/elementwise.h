/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What DyT and DyISRU bring to the loops of their backward pass, rows/backward/elementwise.h.
 *
 * With h = weight slope dy, dx is h first second, and the sum for alpha or beta takes h first term. The slope is scale
 * alpha or scale beta as far as float holds it. Where it does not, x is multiplied by a power of two beforehand, and dx
 * by another one afterwards; both are rare.
 */
#ifndef DYNNORM_ELEMENTWISE_H
#define DYNNORM_ELEMENTWISE_H

#include "element_types.h"
#include "inlining.h"
#include "operations/channel_constants.h"
#include "rows/places.h"
#include "vec.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* What all rows of a call have in common. */
struct elementwise_call {
    struct constants_of_parameter constants; /* parameter: 2 alpha / x_factor, or beta x_factor^2 */
    double parameter_factor;                 /* of the sum for the parameter, to make it that of partial_sums */
    /* Elements whose bits, in the operation's own sense, exceed the limit as unsigned integers, without their sign,
       need the function for all elements; up to far_step_limit the far step does them as fast. The terms of those whose
       |x| has bits that exceed far_bits are summed in double. */
    uint32_t rare_limit;
    uint32_t far_step_limit;
    uint32_t far_bits;
    int all_are_rare;
    double least_sum; /* below which the sum for the parameter may have lost too much to underflow; 0: none is */
};

/* What is made of alpha or beta at a vector of channels, which need not have the same. */
struct elementwise_lanes {
    vec parameter;
    vec slope;
    vec x_factor;
    const struct elementwise_call *call;
};

/* Of one vector of elements. */
struct gradient_factors {
    vec f; /* dweight takes dy f */
    vec first;
    vec second;
    vec term;
};

/* Writes the call in its place: a copy would wait for what was just stored. */
typedef void begin_elementwise_function(struct elementwise_call *call, float parameter, float scale);
/* Computes the factors of a few vectors side by side, each with lanes of its own. */
typedef void factors_function(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                              int count);
/* With by_doubles there are no products of a tiny x: see rows/subnormals.h. */
typedef void any_factors_function(struct gradient_factors *factors, const vec *x, const struct elementwise_lanes *lanes,
                                  int count, int by_doubles);
/* Computes those that need x once more. */
typedef void end_factors_function(struct gradient_factors *factors, vec x);
typedef vec elementwise_bits_function(vec x, const struct elementwise_lanes *lanes);

/* The sums of a group at LANES channels. */
struct elementwise_sums {
    vec dweight;
    vec dbias;
    vec parameter;
};

/* What is compiled once for all operations and modes calls these functions of theirs: the driver, and slower ways than
 * the fast step. See rows/backward/elementwise.h. */
struct gradient_block;
struct parameter_sum;
struct following_groups;
typedef int groups_function(struct gradient_block *block, const struct following_groups *groups, int was_far,
                            const struct elementwise_call *call, struct parameter_sum *parameter);
typedef int group_function(const struct gradient_block *block, int was_far, const struct elementwise_call *call,
                           struct parameter_sum *parameter);
typedef void single_row_function(const struct gradient_block *block, const struct elementwise_call *call,
                                 struct parameter_sum *parameter);
typedef void vector_factors_function(struct gradient_factors *factors, vec x, const struct elementwise_lanes *lanes,
                                     int by_doubles);
typedef void far_rows_function(struct elementwise_sums *sums, const struct gradient_block *block, int first_row,
                               struct place place, vec folded, const struct elementwise_call *call);
struct elementwise_functions {
    begin_elementwise_function *begin;
    groups_function *groups[TYPES];      /* a block of channels of some groups of rows; those of 16 bits may be NULL */
    group_function *group_beyond_caches; /* the same of one of floats, with dx past the caches; may be NULL */
    single_row_function *single_row;
    elementwise_bits_function *rare_bits;
    vector_factors_function *vector_factors; /* of elements of any kind */
    far_rows_function *far_rows;             /* four of them at a place, whose elements may be far out */
    uint32_t bits_of_tiny_x; /* below which its products may be subnormal; 0: vector_factors cannot avoid them */
    int has_second;          /* else it is 1 */
};

/* Where factors take so long that more loops would gain nothing, one does both passes over rows of floats, and all of a
 * single row, and there are no others for rows of 16 bits, or past the caches. */
enum elementwise_loops { ONE_LOOP, ALL_LOOPS };

struct elementwise {
    factors_function *factors; /* but for what end_factors does */
    end_factors_function *end_factors;
    any_factors_function *any_factors; /* all, of elements of any kind: of an ordinary one, what these two give */
    any_factors_function *far_factors; /* all, of elements that the far step does */
    elementwise_bits_function *rare_bits;
    const struct elementwise_functions *functions;
    int bits_have_signs; /* rare_bits may be those of a negative number, of which the magnitude counts */
    int sums_tell;  /* where an element is rare a sum is not finite, so that the fast step need not look at rare_bits */
    int has_second; /* else it is 1 */
    enum elementwise_loops loops;
    int side_by_side;     /* how many vectors the passes over rows take together, 2 or 4, as measured in the caches */
    int far_rows_at_once; /* how many rows the far step takes at a time: 2, or 4 for twice as much code */
};

/* Sets the factor of the sum for the parameter; that which it is multiplied by later is given, too. Up to 2 they make
 * no more of a term's underflow, which costs half of 2^-149, than the result may lose anyway. More than that they may
 * only have where the sum is so large that all that underflows in a block of rows does not count beside it. */
INLINE void set_parameter_factor(struct elementwise_call *call, double factor, double later) {
    const double magnitude = fabs(later) > 1 ? fabs(later) : 1;
    call->parameter_factor = factor;
    call->least_sum = fabs(factor * later) > 2 * magnitude ? 0x1p-90 : 0;
}

#endif
