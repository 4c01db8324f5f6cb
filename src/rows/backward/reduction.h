/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm: groups of rows, and where their sums over tokens go. See
 * backward/normalization.h.
 */
#ifndef DYNNORM_BACKWARD_REDUCTION_H
#define DYNNORM_BACKWARD_REDUCTION_H

#include "model_marks.h"
#include "rows/backward/reduction_pairs.h"
#include "rows/backward/reduction_sums.h"

#include <string.h>

/* Chooses where the sums over tokens are held: neither near x, whichever block of channels is at hand, nor near each
 * other. */
INLINE void place_held_sums(struct reduction_work *work, const float *x) {
    float *const dweight = work->held + place_behind(FLOATS_OF_PAGE * 3 / 8, x, work->held);
    float *const dbias = work->held + ROOM_FOR_HELD / 2 + place_behind(FLOATS_OF_PAGE * 5 / 8, x, work->held);
    for (int half = 0; half < 2; half++) {
        work->dweight[half] = dweight + half * MOST_HELD_CHANNELS;
        work->dbias[half] = dbias + half * MOST_HELD_CHANNELS;
    }
    /* Of rows that are half as long there is room for another sum. */
    work->waiting[0] = dweight + MOST_HELD_CHANNELS / 2;
    work->waiting[1] = dbias + MOST_HELD_CHANNELS / 2;
    work->waits = 0;
}

/* The gradients that are asked for, 0: dweight, 1: dbias. */
INLINE int delivers(const struct reduction_work *work, int which) {
    return work->gradients ? work->gradients[which].values != NULL
                           : (which ? work->sums.dbias : work->sums.dweight) != NULL;
}

/* Delivers the sums of the group at hand at some channels, which are all in the first place, and before them those that
 * wait. */
OUTLINED void deliver_group_sums(struct reduction_work *work, struct block block) {
    const int waits = LANES >= 8 && work->waits, is_first = waits ? work->waiting_is_first : work->is_first;
    work->waits = 0;
    for (int which = 0; which < 2; which++) {
        const float *const of_group = which ? work->dbias[0] : work->dweight[0];
        const float *const begin = waits ? work->waiting[which] : of_group;
        double *const sums = which ? work->sums.dbias : work->sums.dweight;
        const struct token_gradient *const gradient = work->gradients ? &work->gradients[which] : NULL;
        size_t i = 0;
        if (!delivers(work, which))
            continue;
        if (gradient && is_first && !waits && !gradient->accumulate) /* its factor is 1, none of the sums is -0 */
            for (; i + LANES <= block.count; i += LANES)
                vec_store(gradient->values + block.first + i, vec_load(of_group + i));
#pragma GCC unroll 1
        for (; i < block.count; i += LANES) {
            const struct place in_block = place_at(i, block.count);
            const struct place place = {(ptrdiff_t)block.first + in_block.channel, in_block.count, in_block.whole};
            wide sum = wide_load_floats(begin + i);
            if (!is_first) {
                MODEL_USUAL();
                sum = wide_add(wide_load(sums + place.channel), sum);
            }
            if (waits)
                sum = wide_add(sum, wide_load_floats(of_group + i));
            if (gradient)
                finish_sum(gradient, place, sum);
            else
                wide_store(sums + place.channel, sum); /* there is room for whole vectors */
        }
    }
}

/* Delivers those that wait by themselves. */
OUTLINED void deliver_waiting(struct reduction_work *work, size_t channels) {
    for (int which = 0; which < 2; which++) {
        double *const sums = which ? work->sums.dbias : work->sums.dweight;
        for (size_t i = 0; sums && i < channels; i += LANES)
            add_to_partial_sum(sums, (struct place){(ptrdiff_t)i, LANES, 1}, wide_load_floats(work->waiting[which] + i),
                               work->waiting_is_first);
    }
    work->waits = 0;
}

/* Adds up the sums of both halves at one place in the block, if both have rows. */
INLINE void merge_halves_at(struct greatest_sums *greatest, struct reduction_work *work, struct place place,
                            int has_two, int is_centered) {
    float *const dweight = work->dweight[0] + place.channel, *const dbias = work->dbias[0] + place.channel;
    vec sum = vec_load(dweight);
    if (has_two)
        vec_store(dweight, sum = vec_add(sum, vec_load(work->dweight[1] + place.channel)));
    if (!place.whole)
        sum = vec_load_n(dweight, place.count, vec_set(1));
    add_greatest_dweight(greatest, sum);
    if (!is_centered)
        return;
    sum = vec_load(dbias);
    if (has_two)
        vec_store(dbias, sum = vec_add(sum, vec_load(work->dbias[1] + place.channel)));
    greatest->dbias = vec_max_bits(greatest->dbias, vec_abs(sum));
}

/* The same of a block, where that is not done yet. */
INLINE int merge_halves_of(struct reduction_work *work, struct block block, int is_centered) {
    const int has_two = work->rows > HALF;
    const ptrdiff_t count = (ptrdiff_t)block.count;
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    ptrdiff_t i = 0;
    if (has_two)
        for (; i + LANES <= count; i += LANES)
            merge_halves_at(&greatest, work, (struct place){i, LANES, 1}, 1, is_centered);
    for (; i + LANES <= count; i += LANES)
        merge_halves_at(&greatest, work, (struct place){i, LANES, 1}, 0, is_centered);
    if (LANES > 1 && i < count)
        merge_halves_at(&greatest, work, (struct place){i, count - i, 0}, has_two, is_centered);
    return sums_hold(&greatest, is_centered);
}

OUTLINED int merge_halves_of_layernorm(struct reduction_work *work, struct block block) {
    return merge_halves_of(work, block, 1);
}

OUTLINED int merge_halves_of_rmsnorm(struct reduction_work *work, struct block block) {
    return merge_halves_of(work, block, 0);
}

/* Whether rows [first, end) of the group are all done in double. */
INLINE int are_in_double(const struct reduction_work *work, int first, int end) {
    return !(~work->careful >> first & ((1u << (end - first)) - 1));
}

/* Whether dy of the group is known to be 0 in all rows, which then are held to be ordinary. Its sums over tokens are 0,
 * and not what an underflow has left of others. */
INLINE int is_zero_group(const struct reduction_work *work) {
    return work->zero_rows == (1u << work->rows) - 1;
}

/* Delivers the sums of a group, which then are in the first place. Gives 0, and has not delivered anything, where float
 * may have lost one of them. */
INLINE int deliver_held(struct reduction_work *work, struct block block, int is_centered) {
    if (are_in_double(work, 0, work->rows)) /* nothing is held */
        return 0;
    const int hold = work->is_merged ? work->sums_hold
                     : is_centered   ? merge_halves_of_layernorm(work, block)
                                     : merge_halves_of_rmsnorm(work, block);
    work->is_merged = 0;
    if (work->careful || !hold)
        return 0;
    deliver_group_sums(work, block);
    return 1;
}

/* Where dx of a row goes. What is held goes there once it is known that the inputs are not needed again. */
OUTLINED void end_block_of_rows(struct reduction_work *work, struct block block) {
    for (int i = 0; i < work->rows; i++) {
        size_t row = work->first_row + (size_t)i;
        if (!work->dx.rows.data)
            continue;
        if (work->is_held)
            memcpy(row_of(&work->dx.rows, row) + block.first, work->buffers[i].floats, block.count * sizeof(float));
        else
            block_is_written(&work->dx, row, block, &work->buffers[i]);
    }
}

/* Nothing is known of the rows of a group yet, whatever the group before has left. */
INLINE void begin_group(struct reduction_work *work) {
    work->careful = 0;
    work->zero_rows = 0;
    work->has_residual = 0;
    work->has_all_floats = 0;
    work->typed_ahead = 0;
}

/* Where the rows of floats lie that are added to dx. */
OUTLINED void find_dsum_of_group(struct reduction_work *work) {
    for (int row = 0; row < work->rows; row++)
        work->dsum_rows[row] = (const float *)address_of_row(work->arguments->dsum, work->first_row + (size_t)row);
    if (LANES > 1)
        work->fetches_dsum = work->is_beyond_caches;
}

/* Adds them to dx, which has been computed at some channels. */
OUTLINED void add_dsum_to_block(const struct reduction_work *work, struct block block) {
    for (int row = 0; row < work->rows; row++) {
        float *const dx = work->dx_rows[row] + block.first;
        ADD_FLOATS(dx, dx, work->dsum_rows[row] + block.first, block.count);
    }
}

/* The same at all channels. */
INLINE void add_dsum_to_group(struct reduction_work *work) {
    find_dsum_of_group(work);
    add_dsum_to_block(work, (struct block){0, work->arguments->channels});
}

/* A group whose rows are short, or very long: all sums first, then block by block of channels. What is added to dx is
 * added while it is computed, unless a row needs more care. Where float may have lost a sum over tokens, dx is computed
 * once more without that, as CAREFUL_BLOCK wants it. */
INLINE void backward_group(struct reduction_work *work, size_t channels, size_t most_of_block, int is_centered) {
    const int has_dsum = HAS_TYPES && work->arguments->dsum;
    if (has_dsum)
        find_dsum_of_group(work);
    begin_rows(work, 0, work->rows, is_centered);
    for (size_t channel = 0; channel < channels; channel += most_of_block) {
        const size_t left = channels - channel;
        const struct block block = {channel, left < most_of_block ? left : most_of_block};
        for (work->adds_dsum = ADDS_DSUM && has_dsum && !work->careful;; work->adds_dsum = 0) {
            if (!are_in_double(work, 0, work->rows))
                apply_rows(work, block, 0, work->rows);
            if (deliver_held(work, block, is_centered))
                break;
            end_collecting(work);
            if (!work->adds_dsum) {
                CAREFUL_BLOCK(work, block);
                break;
            }
        }
        if (work->has_buffers)
            end_block_of_rows(work, block);
        if (has_dsum && !work->adds_dsum) {
            end_collecting(work);
            add_dsum_to_block(work, block);
        }
    }
    work->adds_dsum = 0;
}

/* How many rows are summed before their dx is computed, so that their x and dy still are in the nearest cache then. Two
 * pairs take less time than two times one pair, since their sums are waited for once, if these x and dy fill up to
 * three eighths of it. With 48 KB that is up to 576 channels. On a Zen 5 it was 0.9 to 0.97 times with 512 and 576
 * channels, 0.98 to 1.01 with 640, and 1.02 to 1.1 with 768. Rows that are prefetched are asked for one pair ahead, and
 * go by pairs. */
INLINE int rows_summed_at_once(const struct reduction_work *work, size_t channels) {
    return !work->x_ahead && channels <= work->arguments->most_pair_channels / 32 * 9 ? 4 : 2;
}

/* A group by pairs of rows, whose x and dy then are still in the nearest cache when dx is computed. A loop that also
 * sums the next pair is slower: the rows of two pairs, and what is held, are more than that cache has room for. So many
 * rows at the beginning may have been done. Gives 0 where something is added to dx, and rows or sums over tokens need
 * more care: the group is to be done again then. */
INLINE int backward_by_pairs(struct reduction_work *work, size_t channels, int done, int is_centered) {
    const struct block row = {0, channels};
    const int at_once = rows_summed_at_once(work, channels);
    const int adds_dsum = ADDS_DSUM && HAS_TYPES && work->arguments->dsum;
    if (adds_dsum)
        find_dsum_of_group(work);
    work->adds_dsum = adds_dsum;
    for (int first = done; first < work->rows; first += at_once) {
        int end = work->rows < first + at_once ? work->rows : first + at_once;
        begin_rows(work, first, end - first, is_centered);
        if (adds_dsum && work->careful)
            break;
        if (!are_in_double(work, first, end))
            apply_rows(work, row, first, end);
    }
    work->adds_dsum = 0;
    if (!(adds_dsum && work->careful) && deliver_held(work, row, is_centered))
        return 1;
    end_collecting(work);
    if (LANES >= 8 && work->waits)
        deliver_waiting(work, channels);
    if (!adds_dsum)
        CAREFUL_BLOCK(work, row);
    return !adds_dsum;
}

/* ---- Rows that are not of floats ---- */

/* The same by pairs of such rows. Gives 0 where the group has careful rows or sums that float may have lost,
 * for which there would have to be floats of all rows: it is to be done again then. */
INLINE int typed_pairs(struct reduction_work *work, struct block row, int is_centered) {
    work->has_all_floats = 1;
    work->typed_ahead = typed_rows_ahead(work, 2);
    for (int first = 0; first < work->rows; first += 2) {
        const int rows = work->rows < first + 2 ? 1 : 2;
        read_typed_rows(work, first, rows, row);
        for (int i = first; work->typed->x && i < first + rows; i++) /* lest dx takes room in the cache, too */
            work->dx_rows[i] = floats_before(work->x_rows[i], 0);
        begin_rows(work, first, rows, is_centered);
        if (work->careful)
            return 0;
        apply_rows(work, row, first, first + rows);
        write_typed_rows(work, first, rows, row);
    }
    return deliver_held(work, row, is_centered);
}

/* A group of rows that are not of floats. Where it cannot be done by pairs, the rows of more than one block of channels
 * are read twice, which takes less time than floats of a whole group would outside of the nearest cache. */
FOR_SIZE OUTLINED void backward_typed_group(struct reduction_work *work, int by_pairs) {
    MODEL_UNUSUAL();
    const size_t channels = work->arguments->channels;
    const int is_centered = work->is_centered;
    if (by_pairs && typed_pairs(work, (struct block){0, channels}, is_centered))
        return;
    begin_group(work);
    work->has_all_floats = channels <= BLOCK;
    work->typed_ahead = typed_rows_ahead(work, work->has_all_floats ? GROUP : 1);
    if (work->has_all_floats)
        read_typed_rows(work, 0, work->rows, (struct block){0, channels});
    begin_rows(work, 0, work->rows, is_centered);
    work->typed_ahead = 0; /* to have the next group fetched meanwhile takes more time than it saves */
    for (size_t channel = 0; channel < channels; channel += BLOCK) {
        const struct block block = block_at(channel, channels);
        if (!work->has_all_floats)
            read_typed_rows(work, 0, work->rows, block);
        if (!are_in_double(work, 0, work->rows))
            apply_rows(work, block, 0, work->rows);
        if (!deliver_held(work, block, is_centered))
            CAREFUL_BLOCK(work, block);
        write_typed_rows(work, 0, work->rows, block);
    }
}

/* Typed rows are found when they are read. */
OUTLINED void find_rows(struct reduction_work *work) {
    if (has_typed_rows(work))
        return;
    const int are_even = !work->x.tensor && !work->dy.tensor && !work->has_buffers && !work->dx.rows.tensor;
    if (are_even) {
        const float *x = row_of(&work->x, work->first_row), *dy = row_of(&work->dy, work->first_row);
        float *dx = row_of(&work->dx.rows, work->first_row);
        const size_t x_stride = work->x.stride, dy_stride = work->dy.stride, dx_stride = work->dx.rows.stride;
        const int rows = work->rows;
        for (int i = 0; i < rows; i++) {
            work->x_rows[i] = x + (size_t)i * x_stride;
            work->dy_rows[i] = dy + (size_t)i * dy_stride;
            work->dx_rows[i] = dx + (size_t)i * dx_stride;
        }
        return;
    }
    for (int i = 0; i < work->rows; i++) {
        const size_t row = work->first_row + (size_t)i;
        work->x_rows[i] = row_of(&work->x, row);
        work->dy_rows[i] = row_of(&work->dy, row);
        work->dx_rows[i] = work->has_buffers ? NULL : row_of(&work->dx.rows, row);
    }
}

#endif
