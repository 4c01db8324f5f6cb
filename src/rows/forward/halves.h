/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of normalizations whose x and y are of the same type of 16 bits. It computes what
 * forward_normalization computes from the widened x, rounded to the type: to the last bit, since the sums have the same
 * order. But x is widened in registers, each of the two times that it is read, and y is rounded there, by the loops of
 * forward/halves_loops.h. A pass through buffers of floats would take longer.
 *
 * Rows go in groups, which end together. The sums of one group go along with y of the group before it. A few rows go
 * one by one: a single one is what programs that generate text have most.
 *
 * y of bfloat16 mostly is computed by pairs, which saves putting elements in another order twice. Weight and bias are
 * made floats in this order once for all rows, unless they are very long, and else once for a group of rows. Where they
 * are of the type of x, long ones need only be widened, as x is. If there are no more than two rows, a weight and bias
 * of floats stay as they are, and x is widened in their order; others are brought into that of x in registers.
 * Rows that float cannot hold go through buffers of floats.
 *
 * If n is rounded before the weight a loop of its own rounds it in registers, also of shifted rows. Those in double are
 * multiplied by the weight afterwards.
 */
#ifndef DYNNORM_FORWARD_HALVES_H
#define DYNNORM_FORWARD_HALVES_H

#include "rows/forward/halves_loops.h"
#include "rows/forward/summed_rows.h"
#include "rows/reader.h"

#ifndef DYNNORM_WITHOUT_TYPES

/* ---- Rows whose sums cannot be trusted, or that float cannot hold: see normalization.h ---- */

/* Channels from one on as floats. */
struct widened_block {
    _Alignas(64) float values[SUMMED_BLOCK];
};

RARE size_t widen_block(struct widened_block *block, const struct typed_vector *from, size_t first, size_t channels) {
    const size_t count = channels_of_summed_block(first, channels);
    const struct typed_vector rest = from_channel(from, first);
    ORDER_VECTOR(block->values, &rest, count, 1, 0);
    return count;
}

INLINE struct typed_vector row_as_vector(const unsigned char *x, const struct halves_step *step) {
    return (struct typed_vector){x, step->call->type, 0};
}

/* Makes the constants of a row whose sums, which are given, cannot be trusted. They tell of a NaN. */
RARE void finish_unusual_halves(struct eight_rows *rows, int lane, const unsigned char *row, struct totals of_row,
                                const struct halves_step *step, const struct call_constants *constants,
                                int is_centered) {
    const struct typed_vector x = row_as_vector(row, step);
    const size_t channels = step->call->channels;
    struct widened_block block;
    struct unusual_row found = {0, 0, 0, isnan(of_row.xx) ? of_row.xx : 0};
    for (size_t first = 0, count; first < channels && !isnan(of_row.xx); first += count) {
        count = widen_block(&block, &x, first, channels);
        struct totals sums = of_row;
        if (count < channels)
            sums = is_centered ? sum_long_row_in_double(block.values, (ptrdiff_t)count, 1)
                               : sum_long_row_of_squares(block.values, (ptrdiff_t)count, 1);
        const struct totals trusted =
            is_trusted_block(sums, count, is_centered) ? sums : sums_less_shift(block.values, count, sums, is_centered);
        add_block_to_unusual_row(&found, count, sums, trusted, is_centered);
    }
    finish_unusual_row(rows, lane, &found, constants, is_centered);
}

RARE void narrow_block(unsigned char *to, const struct widened_block *block, size_t count, int is_bf16) {
    for (size_t i = 0; i < count; i += HALVES, to += sizeof(halves)) {
        const vec low = vec_load(block->values + i), high = vec_load(block->values + i + LANES);
        const halves y = is_bf16 ? bf16_of_vecs(low, high) : f16_of_vecs(low, high);
        if (count - i >= HALVES)
            halves_store(to, y);
        else
            halves_store_n(to, y, (ptrdiff_t)(count - i));
    }
}

/* Weight and bias of rows in double. Where n is rounded before the weight the rows are first written without any, which
 * rounds n: these are absent ones. */
INLINE struct typed_vector weight_in_double(const struct halves_call *call) {
    return call->rounds_before_weight ? (struct typed_vector){NULL, DYNNORM_F32, 1} : call->weight;
}

INLINE struct typed_vector bias_in_double(const struct halves_call *call) {
    return call->rounds_before_weight ? (struct typed_vector){NULL, DYNNORM_F32, -0.0f} : call->bias;
}

/* Multiplies such a row by a weight, or adds a bias to it, and rounds it. */
RARE void weigh_row_in_double(unsigned char *y, const struct typed_vector *by, int is_bias,
                              const struct halves_step *step) {
    const size_t channels = step->call->channels;
    const struct typed_vector rounded = row_as_vector(y, step);
    struct widened_block row, vector;
    for (size_t first = 0, count; first < channels; first += count) {
        count = widen_block(&row, &rounded, first, channels);
        widen_block(&vector, by, first, channels);
        for (size_t i = 0; i < count; i++)
            row.values[i] = is_bias ? row.values[i] + vector.values[i] : row.values[i] * vector.values[i];
        narrow_block(y + HALF_BYTES * first, &row, count, step->is_bf16);
    }
}

/* y of the rows in double among those that are written, a block of channels at a time. */
RARE void write_halves_in_double(const struct halves_step *step, const struct operation *operation) {
    const size_t channels = step->call->channels;
    const struct typed_vector weights = weight_in_double(step->call), biases = bias_in_double(step->call);
    struct widened_block row, weight, bias;
    for (size_t i = 0; i < step->written_count; i++)
        for (size_t first = 0, count; first < channels && step->in_double >> i & 1; first += count) {
            const struct typed_vector x = row_as_vector(step->x + i * step->x_stride, step);
            count = widen_block(&row, &x, first, channels);
            widen_block(&weight, &weights, first, channels);
            widen_block(&bias, &biases, first, channels);
            const struct call_constants constants = {.channels = count};
            const struct rows place = {row.values, 0, NULL};
            const struct forward_call call = {
                .x = place,
                .y = {.rows = place, .channels = count},
                .weight = {weight.values, 0, NULL, NULL},
                .bias = {bias.values, 0, NULL, NULL},
                .constants = &constants,
                .operation = operation,
            };
            struct write_buffer buffer;
            buffer.held = 0;
            write_row_in_double(&call, &step->constants[i / 8], i % 8, &buffer);
            narrow_block(step->y + i * step->y_stride + HALF_BYTES * first, &row, count, step->is_bf16);
        }
    for (size_t i = 0; i < step->written_count && step->call->rounds_before_weight; i++) {
        if (!(step->in_double >> i & 1))
            continue;
        weigh_row_in_double(step->y + i * step->y_stride, &step->call->weight, 0, step);
        weigh_row_in_double(step->y + i * step->y_stride, &step->call->bias, 1, step);
    }
}

/* ---- Parts of rows ---- */

/* Short rows go many at a time, lest every eight of them wait for a square root and a division, and long ones so many
 * that weight and bias are put in order once for them. */
enum { MOST_ROWS_OF_STEP = 32, MOST_EIGHTS = MOST_ROWS_OF_STEP / 8, MOST_LONG_ROWS = 8 };

/* Room for weight and bias of some channels, as halves_step has them if they are ordered. */
struct ordered_vectors {
    float *weight;
    float *bias;
};

INLINE void take_ordered(struct halves_step *step, const struct ordered_vectors *made) {
    step->weight = (struct typed_vector){made->weight, DYNNORM_F32, 0};
    step->bias = (struct typed_vector){made->bias, DYNNORM_F32, 0};
    step->is_ordered = 1;
}

/* Makes those from a channel on. */
OUTLINED void order_vectors(struct halves_step *step, struct ordered_vectors *made, size_t first, size_t count,
                            const struct normalization *normalization) {
    const struct typed_vector weight = from_channel(&step->weight, first), bias = from_channel(&step->bias, first);
    ORDER_VECTOR(made->weight, &weight, count, 1, step->is_bf16);
    if (normalization->has_bias)
        ORDER_VECTOR(made->bias, &bias, count, 1, step->is_bf16);
    take_ordered(step, made);
}

/* Whether the loops are to read weight and bias as they are. To put them in order once takes less time for several
 * rows, but not for one; the loop that rounds before the weight cannot do it. */
INLINE int are_read_as_they_are(const struct halves_step *step, const struct normalization *normalization) {
    if (are_like_x(step, normalization))
        return 1;
    return step->written_count == 1 && !step->call->rounds_before_weight &&
           is_common_vector(&step->weight, step->is_bf16) && is_common_vector(&step->bias, step->is_bf16);
}

/* Channels [first, end) of the rows whose y is computed, at most SUMMED_BLOCK. What loops do not do by themselves is
 * put in order first. */
OUTLINED void write_part_of_halves(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end,
                                   struct ordered_vectors *vectors, const struct normalization *normalization) {
    struct halves_step rest = *step;
    ptrdiff_t whole = end;
    if (!step->is_ordered)
        whole = are_read_as_they_are(step, normalization) ? first + (end - first) / HALVES * HALVES : first;
    if (first < whole)
        normalization->of_halves.write(step, first, whole);
    if (whole == end)
        return;
    order_vectors(&rest, vectors, (size_t)whole, (size_t)(end - whole), normalization);
    rest.x += HALF_BYTES * whole;
    rest.y += HALF_BYTES * whole;
    rest.summed += HALF_BYTES * whole;
    normalization->of_halves.write(&rest, 0, end - whole);
}

/* y of the shifted rows among those that are written. They have a loop of their own, lest others pay for a subtraction,
 * and it is for ordered vectors alone. */
OUTLINED void write_shifted_halves(const struct halves_step *step, struct ordered_vectors *vectors,
                                   const struct normalization *normalization) {
    const size_t channels = step->call->channels;
    for (size_t first = 0, count; first < channels; first += count) {
        struct halves_step block = *step;
        count = channels_of_summed_block(first, channels);
        if (!step->is_ordered) {
            order_vectors(&block, vectors, first, count, normalization);
        } else {
            block.weight = from_channel(&step->weight, first);
            block.bias = from_channel(&step->bias, first);
        }
        block.x += HALF_BYTES * first;
        block.y += HALF_BYTES * first;
        block.summed += HALF_BYTES * first;
        normalization->of_halves.write_shifted(&block, 0, (ptrdiff_t)count);
    }
}

/* Makes some channels of the rows that are summed, the first of which is the given one. */
OUTLINED void make_sums_of_step(const struct halves_step *step, size_t row, struct block channels) {
    const struct summed_rows *of = step->call->summed;
    unsigned char *to = of->to + (step->summed - step->call->x);
    for (size_t i = 0; i < step->summed_count; i++)
        make_sums(of, to + i * step->x_stride, row + i, channels);
}

/* Rows that are longer than a block. The sums of a row's blocks are added. y of other rows goes along with them. */
OUTLINED void take_long_rows(struct totals totals[MOST_LONG_ROWS], const struct halves_step *step, size_t row,
                             struct ordered_vectors *vectors, const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)step->call->channels;
    struct sums_of_group sums;
    for (size_t i = 0; i < step->summed_count; i++)
        totals[i].x = totals[i].xx = 0;
    for (ptrdiff_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const ptrdiff_t end = channels - first < SUMMED_BLOCK ? channels : first + SUMMED_BLOCK;
        if (step->call->summed && step->summed_count)
            make_sums_of_step(step, row, (struct block){(size_t)first, (size_t)(end - first)});
        const int are_written = normalization->of_halves.sum_and_write(&sums, step, first, end);
        if (!are_written)
            normalization->of_halves.sum(&sums, step, first, end);
        for (size_t i = 0; i < step->summed_count; i++) {
            if (normalization->sums_in == ROW_SUMS_IN_DOUBLE)
                totals[i].x += eight_sum(sums.x[i]);
            totals[i].xx += eight_sum(sums.xx[i]);
        }
        if (step->written_count && !are_written)
            write_part_of_halves(step, first, end, vectors, normalization);
    }
}

INLINE eight in_first_lane(double a) {
    const double lanes[8] = {a};
    return eight_load(lanes);
}

/* ---- Rounding by the CPU's instruction ---- */

/* Of fewer rows it does not pay to look at weight or bias. */
enum { LEAST_ROWS_BY_INSTRUCTION = 16 };

/* The loops do whole spans so, or vectors where n is rounded before the weight. RMSNorm's, which look at x meanwhile,
 * gain nothing if these are not most of a row. */
INLINE int has_channels_by_instruction(const struct halves_call *call, const struct normalization *normalization) {
    const size_t together = call->rounds_before_weight ? HALVES : ROW_SPAN;
    const size_t channels = call->channels, whole = channels / together * together;
    return whole > 0 && (normalization->has_bias || 4 * whole >= 3 * channels);
}

/* Whether weight and bias do, as far as rstd and x have a say in it: see LEAST_BY_INSTRUCTION. */
INLINE int vectors_allow_instruction(const struct halves_call *call, const struct normalization *normalization) {
    const struct typed_vector *vector = normalization->has_bias ? &call->bias : &call->weight;
    const size_t channels = call->channels;
    return has_channels_by_instruction(call, normalization) &&
           (normalization->has_bias ? has_none_between(vector, channels, 0, LEAST_BIAS_BY_INSTRUCTION)
                                    : has_none_between(vector, channels, 1, LEAST_BY_INSTRUCTION));
}

INLINE int may_round_by_instruction(const struct halves_call *call, size_t rows,
                                    const struct normalization *normalization) {
    const int has_loop =
        HAS_BF16_INSTRUCTION && call->type == DYNNORM_BF16 && !(normalization->has_bias && call->rounds_before_weight);
    return has_loop && call->rounds_by_instruction && !call->streams && rows >= LEAST_ROWS_BY_INSTRUCTION &&
           vectors_allow_instruction(call, normalization);
}

/* Whether rstd of so many rows does. */
INLINE int rstd_allows_instruction(const struct eight_rows *rows, size_t count) {
    unsigned allowed = 0xff;
    for (size_t i = 0; i < count; i += 8)
        allowed &= eight_at_most(eight_set((double)LEAST_BY_INSTRUCTION), eight_load_floats(rows[i / 8].rstd));
    return allowed == 0xff;
}

/* ---- The driver ---- */

/* Rows whose sums have been made, how many of them, and which are not written with the others. */
struct halves_group {
    struct eight_rows constants[MOST_EIGHTS];
    size_t count;
    unsigned shifted;
    unsigned in_double;
};

INLINE struct halves_step begin_halves_step(const struct halves_call *call) {
    return (struct halves_step){.summed = call->x,
                                .x = call->x,
                                .y = call->y,
                                .weight = call->weight,
                                .bias = call->bias,
                                .x_stride = call->x_stride,
                                .y_stride = call->y_stride,
                                .past_caches = call->streams && are_whole_lines(call->channels, HALF_BYTES),
                                .is_bf16 = call->type == DYNNORM_BF16,
                                .call = call};
}

/* Rows one by one. They end in scalars, which takes less time than the vectors for eight rows do. */
INLINE void forward_halves_one_by_one(const struct halves_call *call, size_t rows, const struct operation *operation) {
    const struct normalization *normalization = operation->normalization;
    const struct call_constants constants = operation->begin_call(call->channels, call->eps, 0, 0);
    struct halves_step step = begin_halves_step(call);
    _Alignas(64) float weight[SUMMED_BLOCK], bias[SUMMED_BLOCK];
    struct ordered_vectors vectors = {weight, bias};
    struct eight_rows made;
    struct totals totals[MOST_LONG_ROWS];
    step.constants = &made;
    for (size_t row = 0; row < rows; row++) {
        made.shifted = made.in_double = 0;
        step.summed_count = 1;
        step.written_count = 0;
        take_long_rows(totals, &step, row, &vectors, normalization);
        if (finish_row(&made, 0, totals[0], &constants, normalization->is_centered))
            finish_unusual_halves(&made, 0, step.summed, totals[0], &step, &constants, normalization->is_centered);
        if (call->mean)
            store_float(call->mean + row, made.mean[0]);
        if (call->rstd)
            store_float(call->rstd + row, made.rstd[0]);
        step.shifted = made.shifted & ~made.in_double;
        step.in_double = made.in_double;
        step.written_count = 1;
        if (step.in_double)
            write_halves_in_double(&step, operation);
        else if (step.shifted && !call->rounds_before_weight)
            write_shifted_halves(&step, &vectors, normalization);
        else
            for (size_t channel = 0; channel < call->channels; channel += SUMMED_BLOCK)
                write_part_of_halves(&step, (ptrdiff_t)channel,
                                     (ptrdiff_t)(channel + channels_of_summed_block(channel, call->channels)), &vectors,
                                     normalization);
        step.summed += step.x_stride;
        step.x += step.x_stride;
        step.y += step.y_stride;
    }
}

/* Makes the constants of a group. */
INLINE void finish_halves_group(struct halves_group *group, const struct sums_of_group *sums,
                                const struct halves_step *step, const struct call_constants *constants,
                                const struct normalization *normalization) {
    group->shifted = group->in_double = 0;
#pragma GCC unroll 1
    for (size_t part = 0; 8 * part < group->count; part++) {
        struct eight_rows *rows = &group->constants[part];
        struct folded_sums totals;
        const unsigned all = group->count - 8 * part < 8 ? (1u << group->count % 8) - 1 : 0xff;
        rows->shifted = rows->in_double = 0;
        add_sums_of_group(&totals, &sums[part], normalization);
        const unsigned not_trusted = finish_rows_together(rows, &totals, constants, normalization->is_centered) & all;
        double x[8] = {0}, xx[8];
        if (normalization->is_centered)
            eight_store(x, totals.x);
        eight_store(xx, totals.xx);
        for (int lane = 0; not_trusted >> lane; lane++)
            if (not_trusted >> lane & 1)
                finish_unusual_halves(rows, lane, step->summed + (8 * part + (size_t)lane) * step->x_stride,
                                      (struct totals){x[lane], xx[lane]}, step, constants, normalization->is_centered);
        group->shifted |= (rows->shifted & ~rows->in_double & all) << 8 * part;
        group->in_double |= (rows->in_double & all) << 8 * part;
    }
}

INLINE void hand_out_statistics(const struct halves_call *call, const struct halves_group *group, size_t first) {
    for (size_t i = 0; i < group->count; i += 8) {
        const size_t count = group->count - i < 8 ? group->count - i : 8;
        hand_out(call->mean ? call->mean + first + i : NULL, group->constants[i / 8].mean, count);
        hand_out(call->rstd ? call->rstd + first + i : NULL, group->constants[i / 8].rstd, count);
    }
}

/* Short rows go so many together that they stay in the nearest cache from the first time they are read to the second.
 * So do long ones that are made here, one at a time; otherwise putting weight and bias in order once saves more. */
INLINE size_t rows_of_step(size_t channels, const struct halves_call *call) {
    if (channels > SUMMED_BLOCK)
        return call->summed ? 1 : MOST_LONG_ROWS;
    return call->streams || channels > BLOCK ? 8 : MOST_ROWS_OF_STEP;
}

/* Rows that come from memory are prefetched while y of the group before is computed, and once more shortly before they
 * are summed: see forward/rows_from_memory.h. On a Zen 4 rows of 128 channels and more took 0.82 to 1.02 times as long
 * so with AVX-512, and 0.79 to 1.10 times with AVX2, mostly less than 1; shorter ones took up to 1.1 times as long, and
 * rows with gaps, one of them ahead, 1.0 to 1.2 times. */
enum { LEAST_HALVES_PREFETCHED_TO_SUM = 128, BYTES_TO_SUM_AHEAD = 4096 };

/* Weight and bias of all channels may have been put in order. */
INLINE void forward_groups_of_halves(const struct halves_call *call, size_t rows, const struct operation *operation,
                                     const struct ordered_vectors *ordered) {
    const struct normalization *normalization = operation->normalization;
    const size_t channels = call->channels, most = rows_of_step(channels, call);
    const struct call_constants constants = operation->begin_call(channels, call->eps, 0, 0);
    _Alignas(64) float weight[SUMMED_BLOCK], bias[SUMMED_BLOCK];
    struct ordered_vectors vectors = {weight, bias};
    struct halves_group groups[2], *written = &groups[0], *summed = &groups[1], *other;
    struct halves_step step = begin_halves_step(call);
    struct sums_of_group sums[MOST_EIGHTS];
    size_t done = 0; /* rows whose constants have been made */
    const int by_instruction = may_round_by_instruction(call, rows, normalization);
    step.ahead = call->streams && !call->summed ? most * step.x_stride : 0;
    if (step.ahead && rows > most && channels >= LEAST_HALVES_PREFETCHED_TO_SUM &&
        step.x_stride == HALF_BYTES * channels)
        step.to_sum_ahead = BYTES_TO_SUM_AHEAD;
    if (ordered)
        take_ordered(&step, ordered);
    else if (channels <= SUMMED_BLOCK)
        order_vectors(&step, &vectors, 0, channels, normalization);
    for (size_t first = 0; first < rows && first < most; first += 8) /* rows that eight lack count for nothing */
        for (int i = 0; i < 8; i++)
            sums[first / 8].x[i] = sums[first / 8].xx[i] = eight_set(0);
    written->count = 0;
    written->shifted = written->in_double = 0;
    for (;;) {
        step.summed_count = summed->count = rows - done < most ? rows - done : most;
        step.written_count = written->count;
        step.constants = written->constants;
        step.shifted = written->shifted;
        step.in_double = written->in_double;
        step.by_instruction =
            by_instruction && (normalization->has_bias || rstd_allows_instruction(written->constants, written->count));
        if (!summed->count && !written->count)
            break;
        if (channels > SUMMED_BLOCK) {
            struct totals totals[MOST_LONG_ROWS];
            take_long_rows(totals, &step, done, &vectors, normalization);
            for (size_t i = 0; i < summed->count; i++) {
                sums->x[i] = in_first_lane(totals[i].x);
                sums->xx[i] = in_first_lane(totals[i].xx);
            }
        } else {
            if (call->summed)
                make_sums_of_step(&step, done, (struct block){0, channels});
            if (!normalization->of_halves.sum_and_write(sums, &step, 0, (ptrdiff_t)channels)) {
                normalization->of_halves.sum(sums, &step, 0, (ptrdiff_t)channels);
                normalization->of_halves.write(&step, 0, (ptrdiff_t)channels);
            }
        }
        if (step.shifted && !call->rounds_before_weight)
            write_shifted_halves(&step, &vectors, normalization);
        if (step.in_double)
            write_halves_in_double(&step, operation);
        if (summed->count) {
            finish_halves_group(summed, sums, &step, &constants, normalization);
            hand_out_statistics(call, summed, done);
            done += summed->count;
        }
        step.x = step.summed;
        step.y += written->count * step.y_stride;
        step.summed += summed->count * step.x_stride;
        if (call->summed && call->summed->is_ring) /* which has room for two such groups */
            step.summed = step.x == call->x ? call->x + most * step.x_stride : call->x;
        other = written, written = summed, summed = other;
    }
    if (call->streams)
        vec_end_streaming();
}

/* One function for all operations of a unit. */
OUTLINED void forward_rows_of_halves(const struct halves_call *call, size_t rows, const struct operation *operation,
                                     const struct ordered_vectors *ordered);

/* Weight and bias of up to so many channels are put in order once for all rows. This is what a kernel may take of the
 * stack for them. With AVX2 it took 0.83 to 0.91 times as long as for each group of rows, of 31 rows or more. */
enum { MOST_ORDERED_CHANNELS = 8 * SUMMED_BLOCK };

INLINE int are_ordered_once(const struct halves_call *call, const struct normalization *normalization) {
    const struct halves_step step = begin_halves_step(call);
    return call->channels > SUMMED_BLOCK && call->channels <= MOST_ORDERED_CHANNELS &&
           !are_like_x(&step, normalization);
}

/* This is a function by itself, since others shall not make room for so many channels. */
OUTLINED void forward_halves_ordered_once(const struct halves_call *call, size_t rows,
                                          const struct operation *operation) {
    float room[2 * MOST_ORDERED_CHANNELS + FLOATS_OF_LINE];
    float *const weight = room + to_next_line(room);
    struct ordered_vectors vectors = {weight, weight + MOST_ORDERED_CHANNELS};
    struct halves_step step = begin_halves_step(call);
    order_vectors(&step, &vectors, 0, call->channels, operation->normalization);
    forward_rows_of_halves(call, rows, operation, &vectors);
}

void forward_rows_of_halves(const struct halves_call *call, size_t rows, const struct operation *operation,
                            const struct ordered_vectors *ordered) {
    const size_t few = 2; /* as measured with AVX2 and AVX-512 */
    if (!HAS_SPECIAL_LOOPS)
        return;
    if (rows <= few && !call->streams)
        forward_halves_one_by_one(call, rows, operation);
    else if (!ordered && are_ordered_once(call, operation->normalization))
        forward_halves_ordered_once(call, rows, operation);
    else
        forward_groups_of_halves(call, rows, operation, ordered);
}

INLINE void forward_halves(const struct halves_call *call, size_t rows, const struct operation *operation) {
    forward_rows_of_halves(call, rows, operation, NULL);
}

#endif

#endif
