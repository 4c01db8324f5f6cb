/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass of the centered DyISRU: dx of each row, and a block of rows' share of the sums over
 * tokens. dweight gets dy f, dbias gets dy, dbeta gets h parameter_term.
 *
 * Groups of eight rows, and single rows, are computed in the kernel. Everything else goes through backward_any: groups
 * of two to seven rows, rows and elements that float cannot hold, sums that overflow, and rows whose products are
 * subnormal, where that is slow.
 */
#ifndef DYNNORM_BACKWARD_CENTERED_H
#define DYNNORM_BACKWARD_CENTERED_H

#include "kernel_names.h"
#include "kernels.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/backward/token_sums.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/writer.h"

/* Where the rows of a call are read and written. */
struct backward_tensors {
    struct rows x;
    struct rows dy;
    struct output dx; /* without data where dx is not asked for */
    struct reader weight;
};

/* Some channels of a group of rows. */
struct group_place {
    size_t first_row;
    struct block channels;
    int is_first; /* of its block of rows: what the sums over tokens were before means nothing */
};

/* Where these channels lie. */
struct group_block {
    const float *weight;
    const float *x[GROUP];
    const float *dy[GROUP];
    float *dx[GROUP]; /* each NULL where dx is not asked for */
    size_t first;     /* of the channels */
};

enum { CENTERED_CONSTANTS = 5 };

/* A kernel's work on a block of rows, as backward_any needs it. It lives in memory: a kernel keeps in registers what
 * its own loops need. */
struct backward_work {
    struct backward_tensors tensors;
    struct call_constants call;
    struct partial_sums sums;
    const struct elements *elements;
    int writes_gradients;                  /* one row is all there is: the gradients are written at once */
    struct row_constants constants[GROUP]; /* of the rows of the group at hand */
    struct write_buffer buffers[GROUP];
    _Alignas(64) float common[CENTERED_CONSTANTS][LANES]; /* the constants that all channels have in common */
};

/* Up to LANES of the channels. */
INLINE struct group_place part_of_group(const struct group_place *group, struct place place) {
    struct group_place part = *group;
    part.channels.first += (size_t)place.channel;
    part.channels.count = place.count < LANES ? (size_t)place.count : LANES;
    return part;
}

/* Finds a block of channels of some rows of a group. There is one for each table, in rows/backward/centered_any.h. */
DYNNORM_INTERNAL void FIND_CENTERED_BLOCK(struct group_block *block, struct backward_work *work,
                                          const struct group_place *place, int rows);

/* The sums of a group at LANES channels. Those that are not asked for are 0. */
struct step_sums {
    vec dweight;
    vec dbias;
    vec parameter;
};

/* Adds the sums of a group at LANES channels to those of the block of rows. */
INLINE void deliver_sums(const struct partial_sums *sums, struct place place, struct step_sums step, int is_first,
                         int has_parameters) {
    if (sums->dweight)
        add_to_partial_sum(sums->dweight, place, vec_widen(step.dweight), is_first);
    if (sums->dbias)
        add_to_partial_sum(sums->dbias, place, vec_widen(step.dbias), is_first);
    if (has_parameters && sums->dparameter)
        add_to_partial_sum(sums->dparameter, place, vec_widen(step.parameter), is_first);
}

/* Whether a sum is not finite: 0 times such a sum is NaN. */
INLINE int any_overflow(struct step_sums sums) {
    vec zero = vec_set(0);
    return vec_any_nan(vec_fma(sums.parameter, zero, vec_fma(sums.dbias, zero, vec_mul(sums.dweight, zero))));
}

/* Does any rows of any kind: one to eight, among them rows and elements that float cannot hold, and sums that overflow.
 * Gives the new sum for the parameter. There is one for each table, in rows/backward/centered_any.h. */
DYNNORM_INTERNAL struct parameter_sum BACKWARD_ANY(struct backward_work *work, struct group_place place, int rows,
                                                   struct parameter_sum parameter);

/* The inputs of a block of a row. */
struct du_block {
    struct block channels;
    const float *x;
    const float *weight;
    const float *dy;
};

/* du of a block of a row that has subnormals, into a buffer. There is one for each table, too. */
DYNNORM_INTERNAL void DU_OF_SLOW_ROW(float du[BLOCK], const struct du_block *inputs, const struct row_constants *row,
                                     const struct call_constants *call, const struct elements *elements);

/* ---- Whole vectors of eight rows, or of one ---- */

/* What a kernel has at hand. */
struct kernel_state {
    struct backward_work *work;
    const struct call_constants *call; /* the kernel's own copies of the work's */
    const struct partial_sums *sums;
    const struct token_gradient *gradients; /* set only where one row is all there is: see direct_gradients */
};

/* Of LANES channels of the block, at the given place in it. The rows are a loop, which costs some hundredths of the
 * time: their code written out eight times would be half of this operation's. Gives 0, and has written nothing, where
 * that must be done by backward_any. */
INLINE int backward_step(const struct group_block *block, struct place place, int rows,
                         const struct kernel_state *kernel, const struct elements *elements, struct step_sums *step) {
    const struct call_constants *call = kernel->call;
    vec zero = vec_set(0), rare_bits = zero, dx[GROUP];
    vec weight = load_vector(block->weight, place, zero);
    const struct centered_lanes lanes = centered_lanes_at(call, block->first + (size_t)place.channel);
    struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero}, parameter = {zero, zero, zero};
#pragma GCC unroll 1
    for (int row = 0; row < rows; row++) {
        const struct row_constants *constants = &kernel->work->constants[row];
        vec x = load_vector(block->x[row], place, zero), dy = load_vector(block->dy[row], place, zero);
        vec h = vec_mul(weight, dy);
        struct gradient gradient = elements->gradient(x, constants, &lanes, 0);
        vec bits = elements->rare_gradient_bits(x, constants, &lanes, 0);
        rare_bits = row ? vec_max_bits(rare_bits, bits) : bits;
        dx[row] = elements->dx(h, &gradient, constants, &lanes, 0);
        add_row_product(&dweight, dy, gradient.f, row, rows);
        add_row(&dbias, dy, row, rows);
        add_row_product(&parameter, h, gradient.parameter_term, row, rows);
        MODEL_PASS("dx", 0, LANES);
    }
    /* All of them, asked for or not: the way that is taken must not depend on that. */
    step->dweight = dweight.sum;
    step->dbias = dbias.sum;
    step->parameter = parameter.sum;
    if (any_overflow(*step) || vec_any_bits_above(rare_bits, SPAN_OF_SQUARES))
        return 0;
#pragma GCC unroll 1
    for (int row = 0; row < rows; row++)
        if (block->dx[row]) {
            MODEL_USUAL();
            store_vector(block->dx[row], place, dx[row]);
            MODEL_PASS("dx", 1, LANES);
        }
    return 1;
}

/* Takes the sums of a step to where they belong. */
INLINE void take_sums(const struct kernel_state *kernel, const struct group_place *group, struct place place,
                      const struct step_sums *step) {
    const struct place in_row = {(ptrdiff_t)group->channels.first + place.channel, place.count, place.whole};
    if (kernel->gradients) {
        write_gradient(&kernel->gradients[0], in_row, step->dweight);
        write_gradient(&kernel->gradients[1], in_row, step->dbias);
    } else {
        deliver_sums(kernel->sums, in_row, *step, group->is_first, kernel->call->channel_mask != 0);
    }
}

/* One block of channels of a group of rows. */
INLINE struct parameter_sum backward_block(const struct kernel_state *kernel, const struct group_place *group, int rows,
                                           const struct elements *elements, struct parameter_sum parameter) {
    const ptrdiff_t count = (ptrdiff_t)group->channels.count;
    struct group_block block;
    struct step_sums step;
    FIND_CENTERED_BLOCK(&block, kernel->work, group, rows);
    /* The 16 lanes are taken together, so that each of the parameter's sums has a fixed place. */
    for (ptrdiff_t i = 0; i < count; i += LANES) {
        const struct place place = {i, count - i, LANES == 1 || i / 16 * 16 + 16 <= count};
        wide *parameter_sum = &parameter.lanes[i / LANES % PARTS];
        if ((rows == 1 && !place.whole) || !backward_step(&block, place, rows, kernel, elements, &step)) {
            parameter = BACKWARD_ANY(kernel->work, part_of_group(group, place), rows, parameter);
            continue;
        }
        take_sums(kernel, group, place, &step);
        *parameter_sum = wide_add(*parameter_sum, vec_widen(step.parameter));
        MODEL_PASS("dx", 2, GROUP * LANES);
    }
    return parameter;
}

/* ---- The driver ---- */

INLINE void begin_row_of_group(struct row_constants *constants, const struct backward_tensors *tensors, size_t row,
                               const struct call_constants *call, const struct operation *operation) {
    const struct backward_row inputs = {
        .x = read_row(&tensors->x, row), .dy = read_row(&tensors->dy, row), .weight = tensors->weight};
    operation->begin_backward_row(constants, &inputs, call, operation->elements);
}

/* The constants, and where those that all channels have in common lie. */
INLINE void set_centered_constants(struct call_constants *call, float common[CENTERED_CONSTANTS][LANES],
                                   const struct channel_constants *of_channels) {
    if (of_channels) {
        call->constants = *of_channels;
        call->channel_mask = -1;
        return;
    }
    struct constants_of_parameter of;
    dynnorm_centered_constants(&of, call->parameter, call->scale);
    const float values[CENTERED_CONSTANTS] = {of.parameter, of.slope, of.x_factor, of.dx_factor, of.given};
    for (int i = 0; i < CENTERED_CONSTANTS; i++)
        vec_store(common[i], vec_set(values[i]));
    call->constants = (struct channel_constants){common[0], common[1], common[2], common[3], common[4], 0, 0};
    call->channel_mask = 0;
}

INLINE void backward_centered_rows(const struct backward_arguments *arguments, size_t first, size_t rows,
                                   const struct partial_sums *partial_sums, const struct operation *operation,
                                   int is_native) {
    const struct elements *elements = operation->elements;
    const struct partial_sums sums = *partial_sums;
    float weight_buffer[BLOCK];
    struct backward_work work;
    struct call_constants call =
        operation->begin_call(arguments->channels, arguments->eps, arguments->parameter, arguments->scale);
    call.is_native = is_native;
    call.avoids_subnormals = SUBNORMALS_ARE_SLOW && arguments->avoids_subnormals;
    set_centered_constants(&call, work.common, arguments->constants);
    if (arguments->constants)
        begin_channel_sums(&sums, call.channels);
    const struct kernel_state kernel = {&work, &call, &sums, rows == 1 ? direct_gradients(&sums) : NULL};
    work.tensors.x = rows_of(&arguments->x);
    work.tensors.dy = rows_of(&arguments->dy);
    work.tensors.dx = write_tensor(&arguments->dx, call.channels, arguments->accumulate_dx, arguments->streams);
    work.tensors.weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer, BLOCK);
    work.call = call;
    work.sums = sums;
    work.elements = elements;
    work.writes_gradients = kernel.gradients != NULL;
    for (int i = 0; i < GROUP; i++)
        work.buffers[i].held = 0;
    struct parameter_sum parameter;
    begin_parameter_sum(&parameter, &sums);
    begin_partial_sums(&sums, call.channels);
    for (size_t done = 0; done < rows; done += GROUP) {
        int count = rows - done < GROUP ? (int)(rows - done) : GROUP, are_usual = 1;
        for (int i = 0; i < count; i++) {
            begin_row_of_group(&work.constants[i], &work.tensors, first + done + (size_t)i, &call, operation);
            are_usual &= work.constants[i].kind == ROW_IS_USUAL && !work.constants[i].has_subnormals;
        }
        struct group_place group = {first + done, {0, 0}, done == 0 && !sums.continues};
        for (size_t channel = 0; channel < call.channels; channel += BLOCK) {
            group.channels = block_at(channel, call.channels);
            if (are_usual && (count == GROUP || count == 1))
                parameter = backward_block(&kernel, &group, count, elements, parameter);
            else
                parameter = BACKWARD_ANY(&work, group, count, parameter);
            for (int i = 0; i < count && work.tensors.dx.is_buffered; i++)
                block_is_written(&work.tensors.dx, group.first_row + (size_t)i, group.channels, &work.buffers[i]);
        }
    }
    end_writing(&work.tensors.dx);
    finish_gradients(&sums, call.channels, kernel.gradients != NULL);
    if (!arguments->constants)
        end_parameter_sum(&parameter, &sums, 1);
}

#endif
