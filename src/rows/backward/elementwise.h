/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The loops of the backward pass of elementwise operations: dx of each row, and a block of rows' share of the sums over
 * tokens. Their driver is in backward/elementwise_rows.h. Rows are taken in groups of eight, and a step does LANES
 * channels of a group.
 *
 * A whole group is done in passes over a block of channels, of two or four rows each. The sums of the rows before wait
 * in memory for those of the others. Where rows lie a multiple of a page apart eight rows of x, dy and dx at once would
 * be more than the nearest cache holds.
 *
 * Each result is the same whichever way it is computed. The last pass finds whether there was something in a step
 * that the fast arithmetic does not cover. Elements far out, where a function is saturated, are left to the far step,
 * which is the same with arithmetic for all elements. Anything else, as a weight that underflows or a sum that is not
 * finite, is left to the rare step, where each element and each sum is decided upon by itself.
 *
 * Rows that the last group lacks are rows of zeros to these passes: a sum to which 0 is added stays what it is. Passes
 * that have none of its rows are left out.
 *
 * Rows of 16 bits are read and written by passes of their own, which convert in registers. Steps that are not fast take
 * such rows from buffers of floats.
 *
 * A block, and what a step computes of some vectors, are in backward/elementwise_block.h, the passes in
 * backward/elementwise_passes.h, a single row in backward/elementwise_one_row.h, the far and the rare step in
 * backward/elementwise_any.h. Here these become the functions of each operation.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_H
#define DYNNORM_BACKWARD_ELEMENTWISE_H

#include "operations/operation.h"
#include "rows/backward/elementwise_one_row.h"
#include "rows/backward/elementwise_passes.h"

/* Defines the structures of an operation's mode: OPERATION_MODE_elementwise from its members, and
 * OPERATION_MODE_functions from what is made of them here and from what comes before them: the function that begins a
 * call, one of elementwise_loops, the far step, which DEFINE_FAR_ROWS makes afterwards, the bits of a tiny x, and
 * whether there is a factor second. bench/model knows the first of these functions by its name. */
#define DEFINE_ELEMENTWISE(operation, mode, begin, which_loops, far_step, tiny, with_second, ...)                      \
    static const struct elementwise_functions operation##_##mode##_functions;                                          \
    static const struct elementwise operation##_##mode##_elementwise = {                                               \
        __VA_ARGS__, .loops = which_loops, .has_second = with_second, .functions = &operation##_##mode##_functions};   \
    OUTLINED int groups_of_##operation##_backward_##mode(                                                              \
        struct gradient_block *block, const struct following_groups *groups, int was_far,                              \
        const struct elementwise_call *call, struct parameter_sum *parameter) {                                        \
        return whole_groups(block, groups, was_far, call, &operation##_##mode##_elementwise, parameter, DYNNORM_F32);  \
    }                                                                                                                  \
    OUTLINED int operation##_##mode##_groups_of_bf16(                                                                  \
        struct gradient_block *block, const struct following_groups *groups, int was_far,                              \
        const struct elementwise_call *call, struct parameter_sum *parameter) {                                        \
        return whole_groups(block, groups, was_far, call, &operation##_##mode##_elementwise, parameter, DYNNORM_BF16); \
    }                                                                                                                  \
    OUTLINED int operation##_##mode##_groups_of_f16(                                                                   \
        struct gradient_block *block, const struct following_groups *groups, int was_far,                              \
        const struct elementwise_call *call, struct parameter_sum *parameter) {                                        \
        return whole_groups(block, groups, was_far, call, &operation##_##mode##_elementwise, parameter, DYNNORM_F16);  \
    }                                                                                                                  \
    OUTLINED int operation##_##mode##_group_beyond_caches(const struct gradient_block *block, int was_far,             \
                                                          const struct elementwise_call *call,                         \
                                                          struct parameter_sum *parameter) {                           \
        return group_beyond_caches(block, was_far, call, &operation##_##mode##_elementwise, parameter);                \
    }                                                                                                                  \
    OUTLINED void operation##_##mode##_single_row(                                                                     \
        const struct gradient_block *block, const struct elementwise_call *call, struct parameter_sum *parameter) {    \
        single_row(block, call, &operation##_##mode##_elementwise, parameter);                                         \
    }                                                                                                                  \
    OUTLINED vec operation##_##mode##_rare_bits(vec x, const struct elementwise_lanes *lanes) {                        \
        return operation##_##mode##_elementwise.rare_bits(x, lanes);                                                   \
    }                                                                                                                  \
    OUTLINED void operation##_##mode##_vector_factors(struct gradient_factors *factors, vec x,                         \
                                                      const struct elementwise_lanes *lanes, int by_doubles) {         \
        operation##_##mode##_elementwise.any_factors(factors, &x, lanes, 1, by_doubles);                               \
    }                                                                                                                  \
    OUTLINED far_rows_function far_step;                                                                               \
    static const struct elementwise_functions operation##_##mode##_functions = {                                       \
        begin,                                                                                                         \
        {groups_of_##operation##_backward_##mode,                                                                      \
         HAS_ELEMENTWISE_HALVES && which_loops == ALL_LOOPS ? operation##_##mode##_groups_of_bf16 : NULL,              \
         HAS_ELEMENTWISE_HALVES && which_loops == ALL_LOOPS ? operation##_##mode##_groups_of_f16 : NULL},              \
        which_loops == ALL_LOOPS ? operation##_##mode##_group_beyond_caches : NULL,                                    \
        operation##_##mode##_single_row,                                                                               \
        operation##_##mode##_rare_bits,                                                                                \
        operation##_##mode##_vector_factors,                                                                           \
        far_step,                                                                                                      \
        SUBNORMALS_ARE_SLOW ? tiny : 0,                                                                                \
        with_second};

/* The far step of a mode, which may serve others. */
#define DEFINE_FAR_ROWS(operation, mode)                                                                               \
    OUTLINED void operation##_##mode##_far_rows(struct elementwise_sums *sums, const struct gradient_block *block,     \
                                                int first_row, struct place place, vec folded,                         \
                                                const struct elementwise_call *call) {                                 \
        far_rows(sums, block, first_row, place, folded, call, &operation##_##mode##_elementwise);                      \
    }

/* ---- The driver ---- */

/* Compiled once for each table: see backward/elementwise_rows.h. */
DYNNORM_INTERNAL void BACKWARD_ELEMENTWISE(const struct backward_arguments *arguments, size_t first, size_t rows,
                                           const struct partial_sums *partial_sums,
                                           const struct elementwise_functions *functions);

INLINE void backward_elementwise(const struct backward_arguments *arguments, size_t first, size_t rows,
                                 const struct partial_sums *partial_sums, const struct operation *operation) {
    BACKWARD_ELEMENTWISE(arguments, first, rows, partial_sums, operation->elementwise);
}

#endif
