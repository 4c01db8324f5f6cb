/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the backward pass of LayerNorm and RMSNorm: dx of each row, and a block of rows' share of the sums over
 * tokens, dweight = sum of dy n, dbias = sum of dy.
 *
 * Rows are taken in groups of eight. Of each row sums are made first; from these follow the constants with which dx is
 * computed (operations/backward_statistics.h). While dx is computed, the terms of the sums over tokens are added in
 * float, those of dweight as (dy rstd) (x - mean). All this is for rows that float can hold. The others, and sums over
 * tokens that overflow, are computed in double: rows/backward/careful_reduction.h.
 */
#ifndef DYNNORM_BACKWARD_NORMALIZATION_H
#define DYNNORM_BACKWARD_NORMALIZATION_H

#include "kernels.h"
#include "model_marks.h"
#include "operations/normalization.h"
#include "operations/operation.h"
#include "rows/backward/even_pairs.h"
#include "rows/backward/halves.h"
#include "rows/backward/halves_by_pairs.h"
#include "rows/backward/one_row.h"
#include "rows/backward/reduction.h"
#include "rows/backward/short_rows.h"
#include "rows/backward/token_sums.h"
#include "rows/writer.h"

/* A group of rows that are not short, of up to so many channels, is computed pair by pair, since x, dy and dx of eight
 * such rows do not fit into the nearest cache. x and dy of two rows of up to SURELY_BY_PAIRS channels do; longer ones
 * may. Rows that are not of floats have buffers for no more than that. */
enum { LEAST_BY_PAIRS = MOST_SHORT_CHANNELS_BACKWARD + 1, SURELY_BY_PAIRS = 1024, MOST_BY_PAIRS = MOST_HELD_CHANNELS };

/* Rows that come from memory, and whose dx goes past the caches, are computed so if they have so many channels. On a
 * Zen 4, with AVX-512 and AVX2, those of 256 to 512 took 0.75 to 1.05 times as long as by groups, and those of 768 and
 * 1024 channels 1.05 to 1.2 times. */
enum { LEAST_FAR_BY_PAIRS = 129, MOST_FAR_BY_PAIRS = 512 };

INLINE int are_by_pairs(const struct reduction_work *work, size_t channels) {
    if (work->is_beyond_caches)
        return channels >= LEAST_FAR_BY_PAIRS && channels <= MOST_FAR_BY_PAIRS;
    const size_t fitting = work->arguments->most_pair_channels;
    const size_t most = fitting < SURELY_BY_PAIRS ? SURELY_BY_PAIRS : fitting < MOST_BY_PAIRS ? fitting : MOST_BY_PAIRS;
    return channels >= LEAST_BY_PAIRS && channels <= most;
}

/* Rows that come from memory are prefetched twice. While dx is computed each line of the next group, or the next pair,
 * is asked for; but the CPU drops what it has no buffer for, since dx on its way to memory takes these, too. So rows
 * are asked for once more shortly before their sums are made. On a Zen 4 with AVX-512 LayerNorm of 256 to 8192 channels
 * took 0.78 to 0.93 times as long as when one line in four or two was asked for, while dx was computed, and RMSNorm
 * 0.75 to 1.02 times. Each line then, but none before sums, took 0.96 to 1.07 times as long, and lines before sums, but
 * not each line then, 0.94 to 1.05 times. */
enum { LEAST_PREFETCHED_TO_SUM = 128 };

/* Shorter pairs took 1.0 to 1.1 times as long. */
enum { LEAST_PREFETCHED_PAIR = 192 };

INLINE int are_prefetched(size_t channels) {
    return channels < LEAST_FAR_BY_PAIRS || channels >= LEAST_PREFETCHED_PAIR;
}

/* The channels of a row that are computed at a time if the CPU is to fetch rows by itself, for which it has to see long
 * parts of them. As measured with AVX2 and AVX-512: on a Zen 4 twice as many took 1.0 to 1.06 times as long. On a Zen
 * 5, whose nearest cache has room for the sums over tokens of more channels, they took 0.97 to 1.04 times as long from
 * memory, and from the caches 0.83 to 1.0 times. Plain C, with 0.96 to 1.06 times, gains nothing. */
enum { FETCHED_BLOCK = 512, LONGER_FETCHED_BLOCK = 1024 };

INLINE size_t fetched_block(const struct reduction_work *work) {
    const int has_room = work->arguments->most_pair_channels >= MOST_BY_PAIRS;
    return has_room && !work->is_beyond_caches ? LONGER_FETCHED_BLOCK : FETCHED_BLOCK;
}

/* One function for all operations of a unit: the loops that take time are functions of their own. */
SHARED_BY_KERNELS void backward_rows_of_call(const struct backward_arguments *arguments, size_t first, size_t rows,
                                             const struct partial_sums *partial_sums, int is_centered) {
    const size_t channels = arguments->channels;
    float weight_buffer[BLOCK];
    struct reduction_work work;
    work.arguments = arguments;
    work.x = rows_of(&arguments->x);
    work.dy = rows_of(&arguments->dy);
    work.typed = HAS_TYPES ? arguments->typed : NULL;
    work.dx = write_tensor_directly(&arguments->dx, channels, arguments->accumulate_dx && !work.typed,
                                    arguments->streams && !work.typed);
    work.weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer, BLOCK);
    work.sums = *partial_sums;
    work.gradients = NULL;
    work.is_merged = 0;
    work.zero_rows = 0;
    work.are_tiny = work.were_tiny = 0;
    work.adds_dsum = work.fetches_dsum = 0;
    work.eps = (double)arguments->eps;
    work.split = HAS_SPLIT_ROWS ? arguments->split : NULL;
    const size_t row_channels = work.split ? work.split->row_channels : channels;
    work.reciprocal = 1 / (double)row_channels;
    work.tests_v = row_channels > MOST_UNTESTED_CHANNELS;
    eight_store(work.sums_of_rows.absolute_hv, eight_set((double)INFINITY));
    work.is_centered = is_centered;
    work.sum_row = is_centered ? sum_row_of_layernorm : sum_row_of_rmsnorm;
    work.special_sum = HAS_SPLIT_ROWS && work.split ? sum_split_row : has_typed_rows(&work) ? sum_typed_row : NULL;
    work.statistics_are_given = arguments->rstd && (arguments->mean || !is_centered);
    work.is_held = arguments->dx.data && !work.dx.is_buffered && !work.typed &&
                   (arguments->dx.data == arguments->x.data || arguments->dx.data == arguments->dy.data);
    for (int i = 0; i < GROUP; i++)
        work.buffers[i].held = 0;
    work.collects = takes_partial_lines(&work.dx);
    const int has_buffers = work.is_held || work.dx.is_buffered || !(arguments->dx.data || work.typed);
    work.is_beyond_caches = is_beyond_caches(&work.dx) && !has_buffers;
    if (work.collects)
        begin_collecting(&work, row_of(&work.x, first));
    const int has_plain_weight = arguments->weight && arguments->weight_offset == 0;
    const int prefetches = PREFETCHES_ROWS && work.is_beyond_caches && arguments->prefetches_far_rows;
    const int by_pairs =
        (ADDS_DSUM || !arguments->dsum) && are_by_pairs(&work, channels) && has_plain_weight && !has_buffers;
    const size_t most_of_block = work.collects                                     ? MOST_COLLECTED_CHANNELS
                                 : !prefetches && has_plain_weight && !has_buffers ? fetched_block(&work)
                                                                                   : BLOCK;
    const int typed_by_pairs = work.typed && channels > BLOCK && channels <= SURELY_BY_PAIRS && has_plain_weight &&
                               work.statistics_are_given && !work.typed->dx_is_read;
    work.sums_two_rows = arguments->sums_two_rows && channels % BLOCK == 0 && has_plain_weight && !work.special_sum;
    const int looks_ahead = prefetches && are_prefetched(channels) && !work.x.tensor && !work.dy.tensor;
    const int looks_ahead_to_sum = looks_ahead && channels >= LEAST_PREFETCHED_TO_SUM;
    work.x_to_sum_ahead = looks_ahead_to_sum ? elements_to_sum_ahead(work.x.stride, channels, DYNNORM_F32) : 0;
    work.dy_to_sum_ahead = looks_ahead_to_sum ? elements_to_sum_ahead(work.dy.stride, channels, DYNNORM_F32) : 0;
    const size_t rows_ahead = by_pairs ? 2 : GROUP;
    /* All that there is to write is asked for, and goes to where the caller wants it. */
    const struct token_gradient *direct = rows == 1 ? direct_gradients(partial_sums) : NULL;
    const int is_one_row =
        direct && direct[0].values && (direct[1].values || !is_centered) && has_plain_weight && !has_buffers;
    work.has_buffers = has_buffers;
    work.constants = &work.of_group;
    work.greatest_weight = -1;
    place_held_sums(&work, work.typed ? work.typed->buffers : row_of(&work.x, first));
    begin_partial_sums(&work.sums, channels);
    /* These loops take much code, and pay where vectors are long. */
    const int is_short = LANES >= 8 && are_short(channels, has_plain_weight && !work.typed) && !has_buffers &&
                         !work.is_beyond_caches && !work.x.tensor && !work.dy.tensor && !work.dx.rows.tensor &&
                         work.statistics_are_given && !work.split && may_be_even(&work);
    size_t done = 0;
    work.x_ahead = work.dy_ahead = 0;
    const int halves_by_pairs = has_plain_weight && are_halves_by_pairs(&work);
    /* By pairs, rows are stored past the caches. Those that are not take 1.34 to 1.44 times as long from memory. */
    if (has_plain_weight && are_even_halves(&work) && !(halves_by_pairs && arguments->streams)) {
        done = rows / GROUP * GROUP;
        backward_halves(&work, first, done, typed_by_pairs);
    } else if (halves_by_pairs) {
        done = rows / GROUP * GROUP;
        backward_halves_by_pairs(&work, first, done, typed_by_pairs);
    } else if (is_short && rows >= GROUP) {
        done = backward_short(&work, first, rows / GROUP * GROUP, is_centered);
    }
    int are_even_pairs = LANES >= 8 && by_pairs && has_even_pairs(&work, channels);
    for (; done < rows; done += GROUP) {
        work.first_row = first + done;
        work.is_first = done == 0 && !work.sums.continues;
        work.rows = rows - done < GROUP ? (int)(rows - done) : GROUP;
        if (rows - done <= GROUP)
            work.gradients = partial_sums->gradients;
        int begun = 0; /* so many rows of the group */
        if (LANES >= 8 && are_even_pairs && work.rows == GROUP)
            begun = is_centered ? apply_even_pairs_of_layernorm(&work, channels)
                                : apply_even_pairs_of_rmsnorm(&work, channels);
        are_even_pairs = begun == GROUP; /* what follows a row that is not common is unlikely to be, either */
        if (are_even_pairs && sums_wait(&work, channels, rows - done))
            continue;
        work.x_ahead = work.dy_ahead = 0;
        if (looks_ahead && rows - done >= 2 * GROUP) {
            work.x_ahead = (ptrdiff_t)(rows_ahead * work.x.stride);
            work.dy_ahead = (ptrdiff_t)(rows_ahead * work.dy.stride);
        }
        if (begun < GROUP) {
            find_rows(&work);
            begin_group(&work);
        }
        if (HAS_SPLIT_ROWS && work.split && work.split->tells) {
            TELL_SPLIT_ROWS(&work);
            continue;
        }
        if (is_one_row && begin_one_row(&work) && backward_one_row(&work, channels, is_centered)) {
            if (has_typed_rows(&work))
                write_typed_rows(&work, 0, 1, (struct block){0, channels});
            else if (HAS_TYPES && arguments->dsum)
                add_dsum_to_group(&work);
            break;
        }
        if (has_typed_rows(&work)) {
            backward_typed_group(&work, typed_by_pairs);
            continue;
        }
        if (by_pairs) {
            if (backward_by_pairs(&work, channels, begun, is_centered))
                continue;
            begin_group(&work);
        }
        backward_group(&work, channels, most_of_block, is_centered);
    }
    end_collecting(&work);
    end_writing(&work.dx);
    finish_gradients(&work.sums, channels, work.gradients != NULL);
}

INLINE void backward_normalization(const struct backward_arguments *arguments, size_t first, size_t rows,
                                   const struct partial_sums *partial_sums, const struct operation *operation) {
    backward_rows_of_call(arguments, first, rows, partial_sums, operation->normalization->is_centered);
}

#endif
