/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass of elementwise operations: which rows and channels make a block, where they are read
 * and written, and what becomes of the sums. It is compiled once for each table, for all operations and modes, and
 * calls their loops (backward/elementwise.h) through pointers.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_ROWS_H
#define DYNNORM_BACKWARD_ELEMENTWISE_ROWS_H

#include "rows/backward/elementwise.h"
#include "rows/backward/elementwise_any.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/typed_rows.h"
#include "rows/writer.h"

#include <math.h>
#include <string.h>

/* For the following groups the weight times the slope is kept of rows of up to so many channels. To make it anew for
 * each block of each group took 1.03 to 1.06 times as long in the caches, with AVX2 on a Zen 3. It is only kept where
 * rows are read and written in place, so that nothing else needs its memory. */
enum { MOST_KEPT_CHANNELS = 4096 };

/* A kernel's memory. */
struct elementwise_work {
    union {
        _Alignas(64) float folded_weight[MOST_KEPT_CHANNELS]; /* see place_of_folded_weight */
        struct {
            _Alignas(64) float folded_weight_of_block[LONG_BLOCK]; /* the beginning of what is above */
            _Alignas(64) float x[GROUP][BLOCK];                    /* multiplied by x_factor */
            struct write_buffer buffers[GROUP];
        };
    };
    _Alignas(64) double zeros[LONG_BLOCK];
    _Alignas(64) double unwanted[BLOCK]; /* sums that nobody asks for */
    _Alignas(64) float weight[BLOCK];
    _Alignas(64) float unwanted_row[LONG_BLOCK];
    _Alignas(64) float zero_row[LONG_BLOCK];
    _Alignas(64) float parameters[LONG_BLOCK]; /* where all channels have the same: see struct channel_constants */
    _Alignas(64) float constants[3][LANES];    /* likewise */
};

/* Where a call's rows are read and written. */
struct elementwise_tensors {
    struct rows x;
    struct rows dy;
    struct output dx;
    struct rows dsum; /* no data: nothing is added to dx, or only when it is written by typed_rows.h */
    struct reader weight;
    const struct backward_arguments *typed; /* NULL: rows are of floats */
    size_t most_channels;                   /* of a block of a group */
    /* Each vector of dx is stored where it belongs, or dx leaves a buffer once the block is done: it is multiplied by
       dx_factor, or in place of an input. */
    int dx_is_direct;
    int is_late;
    int keeps_folded_weight; /* of all channels; else there is that of the block at hand */
    dynnorm_type halves;     /* see halves_in_place */
    struct channel_constants constants;
    ptrdiff_t channel_mask; /* as in gradient_block */
};

/* The constants that all channels have in common. Of the parameter there is one for each channel: see
 * repeat_parameter. */
INLINE void set_constants(struct elementwise_tensors *tensors, struct elementwise_work *work,
                          const struct elementwise_call *call) {
    const struct constants_of_parameter *of = &call->constants;
    const float values[3] = {of->slope, of->x_factor, of->dx_factor};
    for (int i = 0; i < 3; i++)
        vec_store(work->constants[i], vec_set(values[i]));
    tensors->constants =
        (struct channel_constants){work->parameters,  work->constants[0], work->constants[1], work->constants[2], NULL,
                                   of->x_factor != 1, of->dx_factor != 1};
    tensors->channel_mask = 0;
}

INLINE void repeat_parameter(struct elementwise_work *work, size_t channels, const struct elementwise_call *call) {
    for (size_t i = 0; i < channels; i += LANES)
        vec_store(work->parameters + i, vec_set(call->constants.parameter));
}

/* Some channels of a group of rows. */
struct elementwise_place {
    size_t first_row;
    int rows;
    int is_first; /* of several groups' rows, or may be: what its sums are added to is 0 */
    int is_last;  /* no whole group follows */
    struct block channels;
};

/* Rows that are missing are zeros, and so is their dy. Up to four rows that take one pass are those of the second half,
 * too, where that pass finds them. */
INLINE void find_missing_rows(struct gradient_block *block, struct elementwise_work *work) {
    const int rows = block->rows;
    for (int i = rows; i < GROUP; i++) {
        const int again = !BY_PAIRS && !has_second_half(block) && i >= ROWS_OF_HALF && i - ROWS_OF_HALF < rows;
        block->x[i] = again ? block->x[i - ROWS_OF_HALF] : work->zero_row;
        block->dy[i] = again ? block->dy[i - ROWS_OF_HALF] : work->zero_row;
        block->dx[i] = again ? block->dx[i - ROWS_OF_HALF] : work->unwanted_row;
        if (adds_dsum(block))
            block->dsum[i] = again ? block->dsum[i - ROWS_OF_HALF] : work->zero_row;
    }
}

INLINE float *place_of_folded_weight(struct elementwise_work *work, const struct elementwise_tensors *tensors,
                                     size_t channel) {
    return work->folded_weight + (tensors->keeps_folded_weight ? channel : 0);
}

/* What a block has to do with its channels. */
OUTLINED void find_channels(struct gradient_block *block, struct elementwise_work *work,
                            const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                            const struct partial_sums *sums) {
    const size_t first = place->channels.first;
    block->channels = place->channels.count;
    block->weight = read_block(&tensors->weight, place->channels);
    const ptrdiff_t of_constants = (ptrdiff_t)first & tensors->channel_mask;
    double *const dweight = sums->dweight ? sums->dweight + first : work->unwanted;
    double *const dbias = sums->dbias ? sums->dbias + first : work->unwanted;
    block->of_channels = (struct channels_of_block){place_of_folded_weight(work, tensors, first),
                                                    tensors->constants.parameter + of_constants,
                                                    place->is_first || !sums->dweight ? work->zeros : dweight,
                                                    place->is_first || !sums->dbias ? work->zeros : dbias,
                                                    dweight,
                                                    dbias};
    block->dparameter = tensors->channel_mask && sums->dparameter ? sums->dparameter + first : NULL;
    block->dparameter_before = place->is_first ? work->zeros : block->dparameter;
    block->slopes = tensors->constants.slope + of_constants;
    block->x_factors = tensors->constants.x_factor + of_constants;
    block->channel_mask = tensors->channel_mask;
}

/* The weight of a vector of channels times the slope. A subnormal product has lost digits: a NaN in its place makes
 * sums that are not finite, so that the passes leave such channels to the rare step. */
INLINE void fold_weight_at(float *to, const struct gradient_block *block, struct place place) {
    const struct elementwise_lanes lanes = lanes_at(block, place, NULL);
    const vec folded = folded_weight(block->weight, place, &lanes);
    vec_store(to + place.channel, vec_select_outside(vec_abs(folded), 1, LEAST_NORMAL - 2, folded, vec_set(NAN)));
}

/* The same of all channels of a block, by pairs for rows of bfloat16. */
OUTLINED void fold_weight(float *to, const struct gradient_block *given, int is_bf16) {
    const struct gradient_block block = *given; /* which stores to memory do not change */
    const ptrdiff_t count = (ptrdiff_t)block.channels;
    ptrdiff_t i = 0;
    for (; i + LANES <= count; i += LANES)
        fold_weight_at(to, &block, (struct place){i, LANES, 1});
    if (LANES > 1 && i < count)
        fold_weight_at(to, &block, (struct place){i, count - i, 0});
    for (i = 0; is_bf16 && i < count; i += HALVES) {
        vec even, odd;
        pairs_of_vecs(&even, &odd, vec_load(to + i), vec_load(to + i + LANES));
        vec_store(to + i, even);
        vec_store(to + i + LANES, odd);
    }
}

/* ---- Before and after a block ---- */

/* to may be from. There is one factor for each float, or, with a mask of 0, a vector of them for all. */
OUTLINED void multiply_floats(float *to, const float *from, size_t count, const float *factors, ptrdiff_t mask) {
    for (size_t i = 0; i < count; i += LANES) {
        const struct place place = place_at(i, count);
        const vec factor = vec_load(factors + (place.channel & mask));
        store_vector(to, place, vec_mul(load_vector(from, place, vec_set(0)), factor));
    }
}

/* What is prefetched of short rows lies at the same channels of the next group, if there is one, whose rows are equally
 * far apart. Of others it lies BLOCK channels further in the row, and at the beginning of the next group while the last
 * block is computed. To prefetch LONG_BLOCK channels ahead took 1.5 times as long. Of groups that follow one another
 * the last one prefetches what lies behind its rows, which does no harm. */
INLINE void look_beyond_caches(struct gradient_block *block, const struct elementwise_tensors *tensors,
                               const struct elementwise_place *place) {
    enum { LONG_ROW = BY_PAIRS ? 4096 : 2048 };
    const size_t channels = tensors->dx.channels;
    const int has_next = !place->is_last && !tensors->x.tensor && !tensors->dy.tensor;
    const int is_short = has_next && channels < LONG_ROW;
    block->x_ahead = block->dy_ahead = block->dsum_ahead = BLOCK;
    if (is_short || place->channels.first + block->channels == channels) {
        const ptrdiff_t back = is_short ? 0 : (ptrdiff_t)place->channels.first;
        block->x_ahead = has_next ? (ptrdiff_t)(GROUP * tensors->x.stride) - back : 0;
        block->dy_ahead = has_next ? (ptrdiff_t)(GROUP * tensors->dy.stride) - back : 0;
        block->dsum_ahead = has_next && !tensors->dsum.tensor ? (ptrdiff_t)(GROUP * tensors->dsum.stride) - back : 0;
    }
}

/* The same of rows that are not of floats. */
INLINE void look_ahead_of_typed(struct typed_place *place, const struct elementwise_tensors *tensors) {
    size_t next = place->channels.first + place->channels.count;
    place->channels_ahead = BLOCK;
    if (next == tensors->dx.channels) {
        place->rows_ahead = GROUP;
        place->channels_ahead = -(ptrdiff_t)place->channels.first;
        next = 0;
    }
    place->count_ahead = block_at(next, tensors->dx.channels).count;
}

/* Elements of 16 bits. */
INLINE float *halves_at(const struct tensor *tensor, size_t row, size_t channel) {
    return elements_after((const float *)address_of_row(tensor, row), (ptrdiff_t)channel, DYNNORM_BF16);
}

OUTLINED void find_elementwise_block(struct gradient_block *block, struct elementwise_work *work,
                                     const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                                     const struct partial_sums *sums, const struct elementwise_call *call) {
    const size_t first = place->channels.first;
    find_channels(block, work, tensors, place, sums);
    block->rows = place->rows;
    block->typed = tensors->typed;
    block->first_row = place->first_row;
    block->first_channel = first;
    for (int i = 0; i < GROUP; i++)
        block->dsum[i] = NULL;
    if (HAS_TYPES && tensors->halves != DYNNORM_F32) {
        for (int i = 0; i < place->rows; i++) {
            const size_t row = place->first_row + (size_t)i;
            block->x[i] = block->given_x[i] = halves_at(&tensors->typed->x, row, first);
            block->dy[i] = halves_at(&tensors->typed->dy, row, first);
            block->dx[i] = halves_at(&tensors->typed->dx, row, first);
            if (tensors->dsum.data)
                block->dsum[i] = halves_at(&tensors->typed->typed->dsum, row, first);
        }
    } else if (HAS_TYPES && tensors->typed) {
        struct typed_place typed = {place->first_row, place->rows, place->channels, 0, 0, 0};
        if (tensors->typed->streams)
            look_ahead_of_typed(&typed, tensors);
        READ_TYPED_ROWS(tensors->typed, &typed, block->x, block->dy, block->dx);
        memcpy(block->given_x, block->x, (size_t)place->rows * sizeof *block->x);
    } else {
        for (int i = 0; i < place->rows; i++) {
            const size_t row = place->first_row + (size_t)i;
            block->x[i] = block->given_x[i] = row_of(&tensors->x, row) + first;
            block->dy[i] = row_of(&tensors->dy, row) + first;
            if (tensors->dx_is_direct)
                block->dx[i] = row_of(&tensors->dx.rows, row) + first;
        }
    }
    const int can_stream = tensors->halves == DYNNORM_F32
                               ? tensors->dx_is_direct && tensors->dx.is_direct
                               : tensors->typed->streams && are_whole_lines(tensors->dx.channels, HALF_BYTES);
    block->is_beyond_caches = can_stream && place->rows == GROUP && !call->all_are_rare;
    const int adds_floats = HAS_TYPES && tensors->halves == DYNNORM_F32 && tensors->dsum.data;
    for (int i = 0; adds_floats && block->is_beyond_caches && i < GROUP; i++)
        block->dsum[i] = row_of(&tensors->dsum, place->first_row + (size_t)i) + first;
    if (block->is_beyond_caches)
        look_beyond_caches(block, tensors, place);
    else if (is_beyond_caches(&tensors->dx)) /* rows come faster one by one than as the passes read them */
        for (int i = 0; i < place->rows; i++) {
            const struct block all = {0, block->channels};
            prefetch_block(block->x[i], all);
            prefetch_block(block->dy[i], all);
        }
    for (int i = 0; i < place->rows && !(tensors->dx_is_direct && !tensors->constants.has_x_factor); i++) {
        if (tensors->constants.has_x_factor) {
            multiply_floats(work->x[i], block->x[i], block->channels, block->x_factors, block->channel_mask);
            block->x[i] = work->x[i];
        }
        const size_t row = place->first_row + (size_t)i;
        if (tensors->typed)
            continue;
        if (!tensors->dx.rows.data)
            block->dx[i] = work->buffers[0].floats;
        else if (tensors->dx.is_buffered)
            block->dx[i] = block_to_write(&tensors->dx, row, place->channels, &work->buffers[i]);
        else if (tensors->is_late)
            block->dx[i] = work->buffers[i].floats;
    }
}

/* To dx of a block that is done. */
FOR_SIZE OUTLINED void add_dsum_to_rows(const struct elementwise_tensors *tensors,
                                        const struct elementwise_place *place) {
    for (int i = 0; i < place->rows; i++) {
        const size_t row = place->first_row + (size_t)i;
        float *const dx = row_of(&tensors->dx.rows, row) + place->channels.first;
        ADD_FLOATS(dx, dx, row_of(&tensors->dsum, row) + place->channels.first, place->channels.count);
    }
}

/* Multiplies dx of a row by dx_factor, in double where it is not finite: once it is multiplied, it may be. It may take
 * the place of x or dy. */
FOR_SIZE OUTLINED void multiply_overflowed_row(float *to, const struct gradient_block *block, int row,
                                               const float *dx_factors, const struct elementwise_call *call,
                                               const struct elementwise_functions *operation) {
    for (size_t first = 0; first < block->channels; first += LANES) {
        const struct place place = place_at(first, block->channels);
        const struct elementwise_lanes lanes = lanes_at(block, place, call);
        const vec x = load_vector(block->x[row], place, vec_set(0));
        struct gradient_factors factors;
        float firsts[LANES], seconds[LANES];
        operation->vector_factors(&factors, x, &lanes, block->avoids_subnormals);
        vec_store(firsts, factors.first);
        vec_store(seconds, factors.second);
        for (ptrdiff_t i = 0; i < LANES && i < place.count; i++) {
            const ptrdiff_t channel = place.channel + i, constant = (place.channel & block->channel_mask) + i;
            const float dx = block->dx[row][channel];
            const double slope = (double)block->weight[channel] * (double)block->slopes[constant],
                         h = slope * (double)block->dy[row][channel];
            const double product = isfinite(dx) ? (double)dx : h * (double)firsts[i] * (double)seconds[i];
            to[channel] = (float)(product * (double)dx_factors[constant]);
        }
    }
}

OUTLINED void end_elementwise_block(const struct gradient_block *block, struct elementwise_work *work,
                                    const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                                    const struct elementwise_call *call,
                                    const struct elementwise_functions *operation) {
    const struct output *dx = &tensors->dx;
    const float *factors = tensors->constants.dx_factor + ((ptrdiff_t)place->channels.first & tensors->channel_mask);
    if (!dx->rows.data || tensors->dx_is_direct || tensors->halves != DYNNORM_F32)
        return;
    for (int i = 0; i < place->rows; i++) {
        const size_t row = place->first_row + (size_t)i;
        if (tensors->is_late) {
            float *to =
                dx->is_buffered || tensors->typed ? block->dx[i] : row_of(&dx->rows, row) + place->channels.first;
            if (*block->dx_overflows)
                multiply_overflowed_row(to, block, i, factors, call, operation);
            else
                multiply_floats(to, block->dx[i], place->channels.count, factors, tensors->channel_mask);
        }
        block_is_written(dx, row, place->channels, &work->buffers[i]);
    }
    if (HAS_TYPES && tensors->typed) {
        const struct typed_place typed = {place->first_row, place->rows, place->channels, 0, 0, 0};
        WRITE_TYPED_ROWS(tensors->typed, &typed, block->dx);
    }
}

/* ---- A tiny x or dy: see rows/subnormals.h ---- */

/* Of groups that follow one another only the first is asked. They are no more than a block of rows has. */
FOR_SIZE OUTLINED int is_tiny_block(const struct gradient_block *block, dynnorm_type type,
                                    const struct elementwise_functions *operation) {
    return block->avoids_subnormals && (is_tiny_element(block->dy[0], type) ||
                                        is_tinier(bits_of_element(block->x[0], type), operation->bits_of_tiny_x));
}

/* ---- A sum that float may have lost ---- */

/* The sum for the parameter of a block, and what it was before the block, once more in double, where float may have
 * lost it: all lanes are so small that what underflowed counts. */
FOR_SIZE OUTLINED void mend_parameter_sum(struct parameter_sum *parameter, const struct parameter_sum *before,
                                          const struct gradient_block *block, dynnorm_type type,
                                          const struct elementwise_call *call,
                                          const struct elementwise_functions *operation) {
    const size_t count = block->channels;
    double lanes[LANES];
    struct halves_in_floats in_floats;
    for (int part = 0; part < PARTS; part++) {
        wide_store(lanes, parameter->lanes[part]);
        for (int lane = 0; lane < LANES; lane++)
            if (!(fabs(lanes[lane]) < call->least_sum))
                return;
    }
    if (HAS_ELEMENTWISE_HALVES && type != DYNNORM_F32) { /* all of the block: it is no long one */
        read_halves(&in_floats, block, 0);
        block = &in_floats.of_floats;
    }
    *parameter = *before;
    for (size_t i = 0; i < count; i += LANES) {
        const struct step step = {block, {(ptrdiff_t)i, (ptrdiff_t)(count - i), 0}, NULL};
        const vec zero = vec_set(0), weight = load_vector(block->weight, step.place, zero);
        const struct elementwise_sums sums = {zero, zero, vec_set(INFINITY)}; /* which float does not hold */
        wide *sum = &parameter->lanes[i / LANES % PARTS], in_double[3];
        const struct elementwise_lanes of_place = lanes_at(block, step.place, call);
        struct gradient_factors factors[GROUP];
        vec dx[GROUP], x = zero, dy = zero;
        for (int row = 0; row < block->rows; row++) {
            dx[row] = zero;
            x = vec_max_bits(x, vec_abs(load_vector(block->x[row], step.place, zero)));
            dy = vec_max_bits(dy, vec_abs(load_vector(block->dy[row], step.place, zero)));
        }
        if (!vec_any_bits_above(vec_abs(weight), 0) || !vec_any_bits_above(x, 0) || !vec_any_bits_above(dy, 0))
            continue; /* all terms are 0 */
        for (int row = 0; row < block->rows; row++)
            operation->vector_factors(&factors[row], load_vector(block->x[row], step.place, zero), &of_place,
                                      block->avoids_subnormals);
        sum_step_in_double(in_double, dx, &sums, &step, call, factors);
        *sum = wide_add(*sum, in_double[2]);
    }
}

/* ---- The driver ---- */

/* Whether those of each tensor lie equally far apart. */
INLINE int rows_are_on_one_axis(const struct elementwise_tensors *tensors) {
    return !tensors->x.tensor && !tensors->dy.tensor && !tensors->dx.rows.tensor && !tensors->dsum.tensor;
}

/* Whether the rows of whole groups are read and written where they lie, and lie equally far apart. */
INLINE int rows_are_plain(const struct elementwise_tensors *tensors) {
    return tensors->dx_is_direct && !tensors->constants.has_x_factor && !is_beyond_caches(&tensors->dx) &&
           rows_are_on_one_axis(tensors) && !tensors->dsum.data;
}

/* The type of 16 bits of x, dy, dx and dsum, if the passes read and write them where they lie; otherwise DYNNORM_F32.
 */
INLINE dynnorm_type halves_in_place(const struct elementwise_tensors *tensors, const struct elementwise_call *call,
                                    const struct elementwise_functions *functions) {
    const struct backward_arguments *typed = tensors->typed;
    if (!HAS_ELEMENTWISE_HALVES || !typed || !functions->groups[typed->typed->halves])
        return DYNNORM_F32;
    const int are_plain = typed->channels % STRIDE_OF_HALVES == 0;
    const int are_usual =
        !tensors->channel_mask && !tensors->constants.has_x_factor && !tensors->is_late && !call->all_are_rare;
    return are_plain && are_usual ? typed->typed->halves : DYNNORM_F32;
}

/* Whether such a row, if its gradients are written at once, is a single block, which may have more channels than other
 * blocks: it needs no buffers. */
INLINE int is_one_block(const struct elementwise_tensors *tensors, const struct token_gradient *gradients) {
    return gradients && gradients[0].values && gradients[1].values && tensors->weight.values &&
           tensors->weight.offset == 0;
}

/* Whether rows are read and written where they lie. */
INLINE int are_in_place(const struct elementwise_tensors *tensors) {
    return (tensors->dx_is_direct || tensors->halves != DYNNORM_F32) && !tensors->constants.has_x_factor;
}

/* Long blocks are for tensors and sums that are used where they lie, since buffers have room for BLOCK channels. They
 * are not for a call in which float may lose a sum: that is made in double for all channels of a block, and which these
 * are must not depend on the table. */
INLINE size_t most_channels_of_block(const struct elementwise_tensors *tensors, const struct partial_sums *sums,
                                     const struct elementwise_call *call) {
    const int is_long = are_in_place(tensors) && tensors->weight.values && tensors->weight.offset == 0 &&
                        sums->dweight && sums->dbias && call->least_sum == 0;
    return is_long ? LONG_BLOCK : BLOCK;
}

/* From a block of such a group to the next one: some channels further or, at the beginning of a row, from those of the
 * last block of the group before. Finding the rows of short blocks anew would take a tenth of the time. */
INLINE void move_plain_block(struct gradient_block *block, struct elementwise_work *work,
                             const struct elementwise_tensors *tensors, const struct elementwise_place *place,
                             const struct partial_sums *sums) {
    const size_t channels = tensors->dx.channels, most = tensors->most_channels, last = (channels - 1) / most * most;
    const size_t further = place->channels.first ? most : -last, rows = place->channels.first ? 0 : GROUP;
    const struct following_groups by = {1, rows * tensors->x.stride + further, rows * tensors->dy.stride + further,
                                        rows * tensors->dx.rows.stride + further, 0};
    if (channels > most)
        find_channels(block, work, tensors, place, sums);
    else
        continue_sums(block);
    move_rows(block, &by, DYNNORM_F32);
}

void BACKWARD_ELEMENTWISE(const struct backward_arguments *arguments, size_t first, size_t rows,
                          const struct partial_sums *partial_sums, const struct elementwise_functions *functions) {
    const struct channel_constants *constants = arguments->constants;
    struct elementwise_call call;
    const struct partial_sums sums = *partial_sums;
    const size_t channels = arguments->channels;
    struct elementwise_work work;
    struct elementwise_tensors tensors;
    struct gradient_block block;
    functions->begin(&call, constants ? 1 : arguments->parameter, arguments->scale);
    const struct token_gradient *gradients = rows == 1 && !call.all_are_rare ? direct_gradients(&sums) : NULL;
    set_constants(&tensors, &work, &call);
    if (constants) { /* what the sums of each channel lose to underflow is left so: docs/bounds.md */
        tensors.constants = *constants;
        tensors.channel_mask = -1;
        call.least_sum = 0;
        begin_channel_sums(&sums, channels);
    }
    tensors.x = rows_of(&arguments->x);
    tensors.dy = rows_of(&arguments->dy);
    tensors.dsum = arguments->dsum ? rows_of(arguments->dsum) : (struct rows){NULL, 0, NULL};
    const int is_typed = HAS_TYPES && arguments->typed;
    tensors.typed = is_typed ? arguments : NULL;
    tensors.dx = write_tensor_directly(&arguments->dx, channels, arguments->accumulate_dx && !is_typed,
                                       arguments->streams && !is_typed && functions->group_beyond_caches);
    tensors.is_late =
        tensors.constants.has_dx_factor ||
        (!is_typed && (arguments->dx.data == arguments->x.data || arguments->dx.data == arguments->dy.data));
    tensors.dx_is_direct = tensors.dx.rows.data && !tensors.dx.is_buffered && !tensors.is_late && !is_typed;
    tensors.halves = gradients ? DYNNORM_F32 : halves_in_place(&tensors, &call, functions);
    if (HAS_TYPES && tensors.halves != DYNNORM_F32 && arguments->typed->dsum.data)
        tensors.dsum = rows_of(&arguments->typed->dsum);
    tensors.weight = read_weight(arguments->weight, arguments->weight_offset, work.weight, BLOCK);
    for (int i = 0; i < GROUP && tensors.dx.is_buffered; i++)
        work.buffers[i].held = 0;
    struct parameter_sum parameter, before;
    begin_parameter_sum(&parameter, &sums);
    begin_partial_sums(&sums, channels);
    const int is_plain = rows_are_plain(&tensors);
    tensors.most_channels = most_channels_of_block(&tensors, &sums, &call);
    tensors.keeps_folded_weight = channels <= MOST_KEPT_CHANNELS && are_in_place(&tensors);
    const size_t most = PARTIAL_SUMS_CHANNELS(channels < tensors.most_channels ? channels : tensors.most_channels);
    if (!constants)
        repeat_parameter(&work, gradients ? 1 : most, &call);
    if (!gradients)
        memset(work.zeros, 0, most * sizeof *work.zeros);
    if (rows % GROUP && !gradients)
        memset(work.zero_row, 0, most * sizeof *work.zero_row);
    const int is_one = is_one_block(&tensors, gradients) && !tensors.constants.has_x_factor;
    const size_t most_of_one = is_typed ? arguments->typed->room : is_plain ? channels : BLOCK;
    const int can_follow = channels <= tensors.most_channels && call.least_sum == 0 &&
                           (is_plain || (tensors.halves != DYNNORM_F32 && rows_are_on_one_axis(&tensors)));
    struct following_groups groups = {1, GROUP * tensors.x.stride, GROUP * tensors.dy.stride,
                                      GROUP * tensors.dx.rows.stride, GROUP * tensors.dsum.stride};
    /* Longer rows would fill the nearest cache with what is fetched. */
    int dx_overflows = 0;
    block.avoids_subnormals = arguments->avoids_subnormals;
    block.dx_overflows = &dx_overflows;
    block.fetches_ahead = arguments->fetches_ahead && is_plain && channels <= BLOCK / 2;
    block.x_ahead = (ptrdiff_t)(GROUP * tensors.x.stride);
    block.dy_ahead = (ptrdiff_t)(GROUP * tensors.dy.stride);
    block.dx_ahead = (ptrdiff_t)(GROUP * tensors.dx.rows.stride);
    int was_far = 0; /* the block before, or its x or dy was tiny, or that of the block at hand is */
    for (size_t done = 0; done < rows; done += GROUP) {
        const int group_rows = rows - done < GROUP ? (int)(rows - done) : GROUP;
        /* From memory, all rows of the block of an incomplete group are prefetched at once. */
        const size_t most_channels =
            group_rows < GROUP && is_beyond_caches(&tensors.dx) ? BLOCK : tensors.most_channels;
        const int is_folded = tensors.keeps_folded_weight || channels <= most_channels;
        struct elementwise_place place = {
            first + done, group_rows, done == 0 && !sums.continues && !gradients, rows - done < 2 * GROUP, {0, 0}};
        for (size_t channel = 0; channel < channels; channel += place.channels.count) {
            const size_t most_of_block = is_one ? most_of_one : most_channels, left = channels - channel;
            place.channels = (struct block){channel, left < most_of_block ? left : most_of_block};
            if (call.least_sum != 0)
                before = parameter;
            if (is_plain && place.rows == GROUP && done + channel > 0)
                move_plain_block(&block, &work, &tensors, &place, &sums);
            else
                find_elementwise_block(&block, &work, &tensors, &place, &sums, &call);
            if (place.rows < GROUP && !gradients)
                find_missing_rows(&block, &work);
            if (!gradients && (done == 0 || !is_folded))
                fold_weight(place_of_folded_weight(&work, &tensors, channel), &block, tensors.halves == DYNNORM_BF16);
            if (SUBNORMALS_ARE_SLOW && !was_far)
                was_far = is_tiny_block(&block, tensors.halves, functions);
            if (gradients) {
                continue_sums(&block); /* which the rare step begins with 0 */
                block.factor = (float)gradients[0].factor;
                for (int i = 0; i < 2; i++) {
                    block.gradients[i] = gradients[i];
                    block.gradients[i].values = gradients[i].values ? gradients[i].values + channel : work.unwanted_row;
                }
                if (SUBNORMALS_ARE_SLOW && was_far)
                    RARE_SINGLE_ROW_STEP(&block, (struct place){0, (ptrdiff_t)block.channels, 0},
                                         (int)((block.channels + LANES - 1) / LANES), &call, functions, &parameter);
                else
                    functions->single_row(&block, &call, &parameter);
            } else if (VEC_CAN_STREAM && block.is_beyond_caches && tensors.halves == DYNNORM_F32)
                was_far = functions->group_beyond_caches(&block, was_far, &call, &parameter);
            else if (!call.all_are_rare) {
                if (can_follow && place.rows == GROUP)
                    groups.count = (rows - done) / GROUP;
                was_far = functions->groups[tensors.halves](&block, &groups, was_far, &call, &parameter);
                done += (groups.count - 1) * GROUP;
                groups.count = 1;
            } else
                ANY_ELEMENTWISE_BLOCK(&block, 0, &call, functions, &parameter);
            if (call.least_sum != 0)
                mend_parameter_sum(&parameter, &before, &block, tensors.halves, &call, functions);
            if (!is_plain)
                end_elementwise_block(&block, &work, &tensors, &place, &call, functions);
            dx_overflows = 0;
            if (HAS_TYPES && tensors.dsum.data && !block.dsum[0])
                add_dsum_to_rows(&tensors, &place);
        }
    }
    end_writing(&tensors.dx);
    finish_gradients(&sums, channels, gradients != NULL);
    if (!constants)
        end_parameter_sum(&parameter, &sums, call.parameter_factor);
}

#endif
