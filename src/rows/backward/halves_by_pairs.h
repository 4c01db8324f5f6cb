/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for whole groups of rows whose x, dy and dx are of the same type of 16
 * bits, with AVX2, where backward/halves.h does not do it. As there, these are widened and narrowed in registers. But
 * columns of all rows would be half of a cache line wide. So dx is computed pair by pair of rows, as that of floats is:
 * see backward/reduction_pairs.h.
 */
#ifndef DYNNORM_BACKWARD_HALVES_BY_PAIRS_H
#define DYNNORM_BACKWARD_HALVES_BY_PAIRS_H

#include "rows/backward/short_rows.h"

#include <math.h>

enum { HAS_HALVES_BY_PAIRS = HAS_TYPES && LANES == 8 };

/* Shorter rows go through buffers, since there are loops for short rows of floats: by pairs, on a Zen 3, LayerNorm of
 * 128 channels took 1.18 to 1.26 times as long, and RMSNorm of 64 1.13 to 1.23 times. LayerNorm of 256 channels and
 * RMSNorm of 128 take as long either way. RMSNorm has faster loops for rows of up to 512
 * channels that lie close together: see backward/halves.h. */
enum { LEAST_HALVES_OF_LAYERNORM = 256, LEAST_HALVES_OF_RMSNORM = 128 };

/* Whether these loops do it: rows are of whole spans, and nothing is read from where dx goes. */
INLINE int are_halves_by_pairs(const struct reduction_work *work) {
    const size_t channels = work->arguments->channels;
    if (!HAS_HALVES_BY_PAIRS || !work->typed || work->typed->halves == DYNNORM_F32)
        return 0;
    return channels >= (work->is_centered ? LEAST_HALVES_OF_LAYERNORM : LEAST_HALVES_OF_RMSNORM) &&
           channels % CHANNELS_OF_SPAN == 0 && work->statistics_are_given && !work->split;
}

/* ---- Sums ---- */

/* Those of rows [first, first + rows) of the group. */
INLINE void sum_halves_of_type(struct reduction_work *work, int first, int rows, dynnorm_type type, int is_centered) {
    const struct block all = {0, work->arguments->channels};
#pragma GCC unroll 1
    for (int i = 0; i < rows; i++)
        set_sums_of_row(&work->sums_of_rows, i,
                        sum_row_of(work, first + i, all, type, no_span, (struct summing){.is_centered = is_centered}),
                        is_centered);
}

/* ---- dx ---- */

/* The first halves of the cache lines of dx at hand. */
struct waiting_halves {
    _Alignas(64) unsigned char of_row[2][sizeof(halves)];
};

/* Past the caches a whole line is stored at once. The CPU has few buffers for parts of lines, and those of two rows
 * that lie a multiple of a page apart would throw each other out. */
INLINE void stream_halves_of_row(const struct pair_block *pair, struct waiting_halves *waiting, int row,
                                 ptrdiff_t channel, halves dx) {
    unsigned char *const to = (unsigned char *)pair->dx[row] + HALF_BYTES * channel;
    if (channel % (2 * HALVES) == 0) {
        halves_store(waiting->of_row[row], dx);
    } else {
        halves_stream(to - sizeof(halves), halves_load(waiting->of_row[row]));
        halves_stream(to, dx);
    }
}

/* What comes from memory next. */
INLINE void prefetch_halves(const struct pair_block *pair, ptrdiff_t channel, dynnorm_type type) {
    for (int row = 0; row < 2; row++) {
        __builtin_prefetch(elements_after(pair->x[row], pair->x_ahead + channel, type), 0, 2);
        __builtin_prefetch(elements_after(pair->dy[row], pair->dy_ahead + channel, type), 0, 2);
    }
}

/* What the terms of a pair of near rows are added to: those of the pair before it in its half of the group or, if it is
 * the first one, -0 at every place. So one loop does for both. */
struct sums_before {
    const float *dweight;
    const float *dbias;
    ptrdiff_t channel_mask; /* -1, or 0 where all channels have the same */
};

INLINE void hold_near_terms(const struct pair_block *pair, const struct sums_before *before, ptrdiff_t channel,
                            const struct pair_terms terms[2], int is_centered) {
    const ptrdiff_t added = channel & before->channel_mask;
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        const ptrdiff_t later = LANES * k;
        vec_store(pair->dweight + channel + later,
                  vec_add(vec_load(before->dweight + added + later), terms[k].dweight));
        if (is_centered)
            vec_store(pair->dbias + channel + later, vec_add(vec_load(before->dbias + added + later), terms[k].dbias));
    }
}

/* The same of any pair. Which one it is is asked at each place, unless it is known when compiling: from memory that
 * takes no time, and copies of the loop would take much code. */
INLINE void hold_any_terms(struct greatest_sums *greatest, const struct pair_block *pair, const struct place places[2],
                           const struct pair_terms terms[2], struct pair_kind kind) {
    struct pair_kind known = kind;
#define HOLD(second, last)                                                                                             \
    known.is_second = second, known.is_last = last;                                                                    \
    hold_terms(greatest, pair, terms[0], places[0], known);                                                            \
    hold_terms(greatest, pair, terms[1], places[1], known)
    if (kind.is_last) {
        HOLD(1, 1);
    } else if (kind.is_second) {
        HOLD(1, 0);
    } else {
        HOLD(0, 0);
    }
#undef HOLD
}

/* As apply_pair. A residual is always subtracted, though it may be 0. */
INLINE int apply_pair_of_halves(const struct pair_block *pair, const struct group_constants *of_group, int first,
                                size_t count, struct pair_kind kind) {
    _Alignas(64) float none[HALVES];
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    const struct pair_block block = *pair;
    struct sums_before before = {block.dweight, block.dbias, -1};
    struct waiting_halves waiting;
    struct gradient_vectors constants[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        set_gradient_vectors(&constants[i], of_group, first + i);
        vec_store(none + LANES * i, vec_set(-0.0f));
    }
    if (!kind.is_second)
        before = (struct sums_before){none, none, 0};
#pragma GCC unroll 1
    for (ptrdiff_t i = 0; i < (ptrdiff_t)count; i += HALVES) {
        const struct place places[2] = {{i, LANES, 1}, {i + LANES, LANES, 1}};
        struct pair_terms terms[2];
        vec dx[2][2]; /* of each row */
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            vec of_rows[2];
            find_pair_terms(&terms[k], of_rows, &block, constants, places[k], kind);
            dx[0][k] = of_rows[0], dx[1][k] = of_rows[1];
        }
        if (kind.may_have_dsum && block.dsum[0])
#pragma GCC unroll 2
            for (int row = 0; row < 2; row++)
                add_two_of_halves(dx[row], block.dsum[row], i, kind.type);
        if (kind.past_caches && i % (2 * HALVES) == 0)
            prefetch_halves(&block, i, kind.type);
#pragma GCC unroll 2
        for (int row = 0; row < 2; row++) {
            if (kind.past_caches)
                stream_halves_of_row(&block, &waiting, row, i, halves_of(dx[row][0], dx[row][1], kind.type));
            else
                store_two_as_halves(block.dx[row], i, dx[row], kind.type, 0);
        }
        if (kind.past_caches || kind.is_last)
            hold_any_terms(&greatest, &block, places, terms, kind);
        else
            hold_near_terms(&block, &before, i, terms, kind.is_centered);
    }
    return !kind.is_last || sums_hold(&greatest, kind.is_centered);
}

/* The pairs of rows [first, end) of the group, at some channels. */
INLINE void apply_halves_of_type(struct reduction_work *work, struct block block, int first, int end, dynnorm_type type,
                                 int is_centered) {
    const ptrdiff_t channel = (ptrdiff_t)block.first;
    const int are_far = VEC_CAN_STREAM && work->arguments->streams;
    struct pair_block pair;
    pair.weight = work->weight.values + channel;
    pair.x_ahead = (end - first) * (ptrdiff_t)(work->arguments->x.axes == 1 ? work->arguments->x.strides[0] : 0);
    pair.dy_ahead = (end - first) * (ptrdiff_t)(work->arguments->dy.axes == 1 ? work->arguments->dy.strides[0] : 0);
    pair.dweight_of_group = work->dweight[0];
    pair.dbias_of_group = work->dbias[0];
#pragma GCC unroll 1
    for (int row = first; row < end; row += 2) {
        struct pair_kind kind = {2, row % HALF != 0, 0, is_centered, is_centered, 0, type, 1};
        for (int i = 0; i < 2; i++) {
            pair.x[i] = elements_after(work->x_rows[row + i], channel, type);
            pair.dy[i] = elements_after(work->dy_rows[row + i], channel, type);
            pair.dx[i] = elements_after(work->dx_rows[row + i], channel, type);
            pair.dsum[i] = work->dsum_rows[row + i] ? elements_after(work->dsum_rows[row + i], channel, type) : NULL;
        }
        pair.dweight = work->dweight[row / HALF];
        pair.dbias = work->dbias[row / HALF];
        const int is_last = row == GROUP - 2;
        if (are_far) {
            kind.past_caches = 1;
            kind.is_last = work->is_merged = is_last;
            work->sums_hold = apply_pair_of_halves(&pair, work->constants, row, block.count, kind);
        } else if (is_last && !is_centered) { /* LayerNorm would gain half as much by twice the code */
            kind.is_second = kind.is_last = work->is_merged = 1;
            work->sums_hold = apply_pair_of_halves(&pair, work->constants, row, block.count, kind);
        } else { /* the sums of both halves are merged later */
            apply_pair_of_halves(&pair, work->constants, row, block.count, kind);
        }
    }
}

/* ---- The driver ---- */

/* This is compiled once for each operation, with a loop for each type. */
#define HALVES_BY_PAIRS(operation, is_centered)                                                                        \
    OUTLINED void sum_halves_of_##operation(struct reduction_work *work, int first, int rows) {                        \
        if (work->typed->halves == DYNNORM_BF16)                                                                       \
            sum_halves_of_type(work, first, rows, DYNNORM_BF16, is_centered);                                          \
        else                                                                                                           \
            sum_halves_of_type(work, first, rows, DYNNORM_F16, is_centered);                                           \
    }                                                                                                                  \
    OUTLINED void apply_halves_of_##operation(struct reduction_work *work, struct block block, int first, int end) {   \
        if (work->typed->halves == DYNNORM_BF16)                                                                       \
            apply_halves_of_type(work, block, first, end, DYNNORM_BF16, is_centered);                                  \
        else                                                                                                           \
            apply_halves_of_type(work, block, first, end, DYNNORM_F16, is_centered);                                   \
    }
HALVES_BY_PAIRS(layernorm, 1)
HALVES_BY_PAIRS(rmsnorm, 0)
#undef HALVES_BY_PAIRS

INLINE void sum_halves_of_rows(struct reduction_work *work, int first, int rows) {
    if (work->is_centered)
        sum_halves_of_layernorm(work, first, rows);
    else
        sum_halves_of_rmsnorm(work, first, rows);
}

INLINE void apply_halves_of_rows(struct reduction_work *work, struct block block, int first, int end) {
    if (work->is_centered)
        apply_halves_of_layernorm(work, block, first, end);
    else
        apply_halves_of_rmsnorm(work, block, first, end);
}

/* Where the group's rows lie. */
OUTLINED void find_rows_of_halves(struct reduction_work *work) {
    const struct backward_arguments *of = work->arguments;
    const struct tensor *dsum = &work->typed->dsum;
    for (int i = 0; i < GROUP; i++) {
        const size_t row = work->first_row + (size_t)i;
        work->x_rows[i] = (const float *)address_of_row(&of->x, row);
        work->dy_rows[i] = (const float *)address_of_row(&of->dy, row);
        work->dx_rows[i] = (float *)address_of_row(&of->dx, row);
        work->dsum_rows[i] = dsum->data ? (const float *)address_of_row(dsum, row) : NULL;
    }
}

/* Looks at rows one by one, through buffers: a row without a gradient, as of a token that does not count, can be
 * computed like others. Gives 0 where one of them cannot, or has a NaN, which halves_of might make a number of. */
INLINE int careful_rows_hold(struct reduction_work *work, int first, int rows) {
    CAREFUL_ROWS(work, first, rows);
    find_rows_of_halves(work);
    for (int row = first; row < first + rows; row++)
        if (isnan(work->constants->n_term[row]))
            return 0;
    return !work->careful;
}

/* The sums over tokens of a group at some channels whose dx is computed. Where float may have lost one of them, both
 * are computed once more, from buffers, as many channels at a time as these have room for. */
INLINE void deliver_halves(struct reduction_work *work, struct block block) {
    const size_t end = block.first + block.count;
    if (deliver_held(work, block, work->is_centered))
        return;
    for (size_t channel = block.first; channel < end; channel += BLOCK)
        backward_slow_columns(work, NULL, block_at(channel, end), ORDINARY);
    find_rows_of_halves(work);
}

/* A group by pairs of rows as far as their sums over tokens can be held, so that x and dy are still in the nearest
 * cache when dx is computed. Shorter rows, all of which are, and longer ones: all sums first. Gives 0 where a row
 * needs more care. */
INLINE int backward_group_of_halves(struct reduction_work *work) {
    enum { LEAST_BY_PAIRS_OF_ROWS = 512, MOST_AT_ONCE = 1024 };
    const size_t channels = work->arguments->channels;
    const int by_pairs = channels >= LEAST_BY_PAIRS_OF_ROWS && channels <= MOST_HELD_CHANNELS;
    const int at_once = by_pairs ? 2 : GROUP;
    const size_t most = by_pairs ? channels : MOST_AT_ONCE;
    find_rows_of_halves(work);
    if (may_be_tiny(work, work->x_rows[0], work->dy_rows[0], work->typed->halves))
        return 0;
    begin_sums_of_rows(&work->sums_of_rows, channels, work->is_centered);
    for (int first = 0; first < GROUP; first += at_once) {
        sum_halves_of_rows(work, first, at_once);
        if (!FIND_CONSTANTS(work, &work->sums_of_rows, first, at_once) && !careful_rows_hold(work, first, at_once))
            return 0;
        if (by_pairs)
            apply_halves_of_rows(work, (struct block){0, channels}, first, first + at_once);
    }
    for (size_t channel = 0; channel < channels; channel += most) {
        const size_t left = channels - channel;
        const struct block block = {channel, left < most ? left : most};
        if (!by_pairs)
            apply_halves_of_rows(work, block, 0, GROUP);
        deliver_halves(work, block);
    }
    return 1;
}

/* Computes so many rows, in whole groups. */
INLINE void backward_halves_by_pairs(struct reduction_work *work, size_t first, size_t rows, int typed_by_pairs) {
    work->rows = GROUP;
    work->is_first = !work->sums.continues;
    for (work->first_row = first; work->first_row < first + rows; work->first_row += GROUP) {
        begin_group(work);
        if (!backward_group_of_halves(work)) {
            begin_group(work);
            backward_typed_group(work, typed_by_pairs);
        }
        work->is_first = 0;
    }
}

#endif
