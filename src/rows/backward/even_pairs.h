/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm: pairs of common rows that are equally far apart. See
 * backward/normalization.h.
 *
 * backward_by_pairs does the same for any rows. For each pair it looks up much, in places that have left the nearest
 * cache while the rows passed through it. Without that rows of 512 to 1024 channels took 0.93 to 0.98 times as long on
 * a Zen 4, with AVX-512 and AVX2.
 */
#ifndef DYNNORM_BACKWARD_EVEN_PAIRS_H
#define DYNNORM_BACKWARD_EVEN_PAIRS_H

#include "rows/backward/reduction.h"

/* Whether all rows of a call that goes by pairs are such rows, but for what their sums tell. */
FOR_SIZE OUTLINED int has_even_pairs(const struct reduction_work *work, size_t channels) {
    return !work->special_sum && work->statistics_are_given && !work->is_beyond_caches && !work->collects &&
           !work->x.tensor && !work->dy.tensor && !work->dx.rows.tensor && rows_summed_at_once(work, channels) == 2 &&
           !(HAS_TYPES && work->arguments->dsum);
}

/* Where the rows of a pair lie, for all that does not get it from the pair. */
INLINE void note_rows_of_pair(struct reduction_work *work, const struct pair_block *pair, int row) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        work->x_rows[row + i] = pair->x[i];
        work->dy_rows[row + i] = pair->dy[i];
        work->dx_rows[row + i] = pair->dx[i];
    }
}

/* The sums of a pair that begins with the given row of the group. */
INLINE void sum_even_pair(struct reduction_sums sums[2], const struct reduction_work *work,
                          const struct pair_block *pair, int row, size_t channels, int is_centered) {
    if (can_sum_two_rows(is_centered) && work->sums_two_rows) {
        sum_pair(sums, work, pair, row, channels, is_centered);
        return;
    }
    const struct block block = {0, channels};
#pragma GCC unroll 1
    for (int i = 0; i < 2; i++)
        sums[i] = is_centered ? sum_row_of_layernorm(work, row + i, block) : sum_row_of_rmsnorm(work, row + i, block);
}

/* dx of the first rows of a group of eight, up to a pair that is not common, and their sums over tokens, which are not
 * delivered. Returns the number of these rows. */
INLINE int apply_even_pairs(struct reduction_work *work, size_t channels, int is_centered) {
    struct pair_block pair;
    pair.weight = work->weight.values;
    pair.is_beyond_caches = 0;
    pair.fetches_to_write = work->arguments->fetches_to_write;
    pair.dweight_of_group = work->dweight[0];
    pair.dbias_of_group = work->dbias[0];
    pair.x[0] = row_of(&work->x, work->first_row);
    pair.dy[0] = row_of(&work->dy, work->first_row);
    pair.dx[0] = row_of(&work->dx.rows, work->first_row);
    int row = 0;
    begin_group(work);
#pragma GCC unroll 1
    for (; row < GROUP; row += 2) {
        struct sums_of_rows sums;
        struct reduction_sums of_two[2];
        if (row) {
            pair.x[0] = pair.x[1] + work->x.stride;
            pair.dy[0] = pair.dy[1] + work->dy.stride;
            pair.dx[0] = pair.dx[1] + work->dx.rows.stride;
        }
        pair.x[1] = pair.x[0] + work->x.stride;
        pair.dy[1] = pair.dy[0] + work->dy.stride;
        pair.dx[1] = pair.dx[0] + work->dx.rows.stride;
        pair.dweight = work->dweight[row / HALF];
        pair.dbias = work->dbias[row / HALF];
        note_rows_of_pair(work, &pair, row);
        if (may_be_tiny(work, pair.x[0], pair.dy[0], DYNNORM_F32) &&
            BEGIN_TINY_ROWS(work, row, 2)) /* which is done again by the caller */
            break;
        sum_even_pair(of_two, work, &pair, row, channels, is_centered);
        set_sums_of_pair(&sums, of_two, channels, is_centered);
        /* Inlining saves RMSNorm 1 to 2 percent, and LayerNorm hardly anything. AVX2 does without, to save code. */
        if (is_centered || LANES == 8 ? !FIND_CONSTANTS(work, &sums, row, 2)
                                      : find_constants(work, &sums, row, 2, 0) != CONSTANTS_HOLD)
            break;
        if (is_centered && work->has_residual)
            break;
        if (is_centered)
            apply_common_pair_of_layernorm(work, &pair, row, channels);
        else
            apply_common_pair_of_rmsnorm(work, &pair, row, channels);
    }
    return row;
}

/* This is compiled once for each operation. */
OUTLINED int apply_even_pairs_of_layernorm(struct reduction_work *work, size_t channels) {
    return apply_even_pairs(work, channels, 1);
}

OUTLINED int apply_even_pairs_of_rmsnorm(struct reduction_work *work, size_t channels) {
    return apply_even_pairs(work, channels, 0);
}

/* Lets the sums over tokens of a group wait until those of the next one are delivered, if that is possible. The doubles
 * that they are added to leave the nearest cache from one time to the next, and so are fetched half as often. With
 * rows of 512 to 1024 channels LayerNorm took 0.96 to 1.0 times as long on a Zen 4, and RMSNorm 0.98 to 1.0 times. */
OUTLINED int sums_wait(struct reduction_work *work, size_t channels, size_t rows_left) {
    if (!work->sums_hold || work->waits || channels > MOST_HELD_CHANNELS / 2 || rows_left < 2 * GROUP)
        return 0;
    for (int which = 0; which < 2; which++) { /* the next group has other places */
        float **const held = which ? work->dbias : work->dweight, *const other = work->waiting[which];
        work->waiting[which] = held[0];
        held[0] = held[1];
        held[1] = other;
    }
    work->waits = 1;
    work->waiting_is_first = work->is_first;
    work->is_merged = 0;
    return 1;
}

#endif
