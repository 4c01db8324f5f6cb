/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for whole groups of short rows: see backward_normalization.h.
 */
#ifndef DYNNORM_BACKWARD_SHORT_ROWS_H
#define DYNNORM_BACKWARD_SHORT_ROWS_H

#include "operations/backward_statistics.h"
#include "rows/backward_reduction.h"
#include "rows/blocks.h"
#include "rows/token_sums.h"
#include "vec.h"

/* Rows of at most so many channels: as far as that pays. Their sums are floats to the end. */
enum { MOST_OF_SHORT = LANES > 8 ? BLOCK : 128 };

/* Rows of so many sixteens of channels have a loop for their sums that knows this: 97 to 112 channels. */
enum { KNOWN_SIXTEENS = 7 };

/* dx is computed of four rows at so many vectors of channels at once, whose sums over tokens stay in registers. */
enum { COLUMNS = LANES > 8 ? 4 : 2 };

/* Where the rows of a group lie that are equally far apart. */
struct even_rows {
    const float *x;
    const float *dy;
    float *dx;
    size_t x_stride;
    size_t dy_stride;
    size_t dx_stride;
};

/* The lines of dx are fetched so many rows before they are written. All at once for a group would be slower. */
enum { ROWS_AHEAD = 2 };

/* The sums of the rows of a group. The rows are taken one after the other, as processors expect it that fetch memory
 * ahead. A loop over them takes no more time than its code written out, but for rows whose number of sixteens is known
 * when compiling; where it is not, it is 0. */
INLINE void sum_short_rows(struct reduction_work *work, const struct even_rows *group, const float *weight,
                           size_t channels, size_t sixteens, int is_centered) {
    const float *x = group->x, *dy = group->dy;
    if (sixteens && (channels <= (sixteens - 1) * 16 || channels > sixteens * 16))
        __builtin_unreachable();
    const float *means = is_centered ? work->arguments->mean + work->first_row : NULL;
    const size_t x_stride = group->x_stride, dy_stride = group->dy_stride;
    const size_t unrolled = sixteens ? 4 : 1;
    struct lanes_of_row before, merged;
#pragma GCC unroll 1
    for (size_t half = 0; half < 2; half++) {
        struct lanes_of_row rows[4];
        before = merged;
#pragma GCC unroll 1
        for (size_t first = 0; first < 4; first += unrolled)
#pragma GCC unroll 4
            for (size_t i = first; i < first + unrolled; i++) {
                wide x_sum[PARTS];
                const struct reduction_block values = {x, dy, weight,
                                                       is_centered ? load_float(means + HALF * half + i) : 0};
                begin_lanes_of_row(&rows[i], x_sum);
                add_spans_of_row(&rows[i], x_sum, &values, (ptrdiff_t)channels, counted_span, is_centered);
                if (is_centered)
                    rows[i].x = wide_fold(x_sum);
                x += x_stride;
                dy += dy_stride;
                KEEP_IN_REGISTER(x);
                KEEP_IN_REGISTER(dy);
            }
        merged.hv = merge_2(merge_4(rows[0].hv, rows[1].hv), merge_4(rows[2].hv, rows[3].hv));
        if (is_centered) {
            merged.h = merge_2(merge_4(rows[0].h, rows[1].h), merge_4(rows[2].h, rows[3].h));
            merged.x = merge_2(merge_4(rows[0].x, rows[1].x), merge_4(rows[2].x, rows[3].x));
        }
    }
    eight_store(work->sums_of_rows.hv, eight_in_order(merge_1(before.hv, merged.hv)));
    if (is_centered) {
        eight_store(work->sums_of_rows.h, eight_in_order(merge_1(before.h, merged.h)));
        eight_store(work->sums_of_rows.x, eight_in_order(merge_1(before.x, merged.x)));
    }
}

/* dx of four rows at some vectors, and the sums over tokens: of the first four rows they are stored, to these those of
 * the second four are added. */
INLINE void apply_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                                struct place first, int columns, int half, struct greatest_sums *greatest,
                                int is_centered) {
    struct pair_terms sums[COLUMNS];
    struct pair_block pair;
    pair.weight = weight;
    pair.x[0] = rows->x, pair.dy[0] = rows->dy, pair.dx[0] = rows->dx;
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        struct gradient_vectors constants[2];
        pair.x[1] = pair.x[0] + rows->x_stride;
        pair.dy[1] = pair.dy[0] + rows->dy_stride;
        pair.dx[1] = pair.dx[0] + rows->dx_stride;
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            set_gradient_vectors(&constants[i], work->constants, HALF * half + 2 * k + i);
#pragma GCC unroll 4
        for (int column = 0; column < columns; column++) {
            const struct place place = {first.channel + LANES * column, first.count - LANES * column,
                                        first.whole || column < columns - 1};
            struct pair_terms terms;
            if (LANES * column % FLOATS_OF_LINE == 0)
                for (int i = 0; i < 2; i++)
                    fetch_to_write(pair.dx[i] + place.channel, ROWS_AHEAD * rows->dx_stride);
            find_pair_terms(&terms, &pair, constants, place, (struct pair_kind){2, k, 0, 0, is_centered, 0});
            sums[column].dweight = k ? vec_add(sums[column].dweight, terms.dweight) : terms.dweight;
            if (is_centered)
                sums[column].dbias = k ? vec_add(sums[column].dbias, terms.dbias) : terms.dbias;
        }
        pair.x[0] = pair.x[1] + rows->x_stride;
        pair.dy[0] = pair.dy[1] + rows->dy_stride;
        pair.dx[0] = pair.dx[1] + rows->dx_stride;
    }
    float *dweight = work->dweight[0] + first.channel, *dbias = work->dbias[0] + first.channel;
    if (half) {
#pragma GCC unroll 4
        for (int column = 0; column < columns; column++) {
            sums[column].dweight = vec_add(vec_load(dweight + LANES * column), sums[column].dweight);
            if (first.whole || column < columns - 1)
                add_greatest_dweight(greatest, sums[column].dweight);
            if (is_centered) {
                sums[column].dbias = vec_add(vec_load(dbias + LANES * column), sums[column].dbias);
                greatest->dbias = vec_max_bits(greatest->dbias, vec_abs(sums[column].dbias));
            }
        }
    }
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++) {
        vec_store(dweight + LANES * column, sums[column].dweight);
        if (is_centered)
            vec_store(dbias + LANES * column, sums[column].dbias);
    }
    if (half && !first.whole) {
        const int last = LANES * (columns - 1);
        add_greatest_dweight(greatest, vec_load_n(dweight + last, first.count - last, vec_set(1)));
    }
}

/* The same of the channels that are left, which are up to COLUMNS vectors. */
INLINE void apply_last_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                                     struct place left, int half, struct greatest_sums *greatest, int is_centered) {
    switch ((left.count - 1) / LANES) {
    case 0:
        apply_short_columns(work, rows, weight, left, 1, half, greatest, is_centered);
        break;
    case 1:
        apply_short_columns(work, rows, weight, left, 2, half, greatest, is_centered);
        break;
    case 2:
        apply_short_columns(work, rows, weight, left, 3, half, greatest, is_centered);
        break;
    default:
        apply_short_columns(work, rows, weight, left, 4, half, greatest, is_centered);
    }
}

/* dx of a group whose rows are all ordinary. Gives 0 where float may have lost a sum over tokens. */
INLINE int apply_short_rows(struct reduction_work *work, const struct even_rows *group, const float *weight,
                            size_t channels, int is_centered) {
    struct even_rows rows = *group;
    const ptrdiff_t end = (ptrdiff_t)channels;
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
#pragma GCC unroll 1
    for (int half = 0; half < 2; half++) {
        ptrdiff_t i = 0;
#pragma GCC unroll 1
        for (; i + COLUMNS * LANES <= end; i += COLUMNS * LANES)
            apply_short_columns(work, &rows, weight, (struct place){i, LANES, 1}, COLUMNS, half, &greatest,
                                is_centered);
        if (COLUMNS == 4) {
            if (i < end)
                apply_last_short_columns(work, &rows, weight, (struct place){i, end - i, 0}, half, &greatest,
                                         is_centered);
        } else { /* storing a part of a shorter vector is slow */
#pragma GCC unroll 1
            for (; i + LANES <= end; i += LANES)
                apply_short_columns(work, &rows, weight, (struct place){i, LANES, 1}, 1, half, &greatest, is_centered);
            if (LANES > 1 && i < end)
                apply_short_columns(work, &rows, weight, (struct place){i, end - i, 0}, 1, half, &greatest,
                                    is_centered);
        }
        rows.x += HALF * rows.x_stride;
        rows.dy += HALF * rows.dy_stride;
        rows.dx += HALF * rows.dx_stride;
    }
    return sums_hold(&greatest, is_centered);
}

/* A group of which there are the sums, but whose rows are not all ordinary, or whose sums over tokens float may have
 * lost. */
OUTLINED void backward_slow_group(struct reduction_work *work) {
    const struct block block = {0, work->arguments->channels};
    const int is_centered = work->is_centered;
    find_rows(work);
    work->careful = 0;
    if (!find_constants(work, &work->sums_of_rows, 0, GROUP, is_centered))
        CAREFUL_ROWS(work, 0, GROUP);
    if (!are_in_double(work, 0, GROUP))
        apply_rows(work, block, 0, GROUP, is_centered);
    if (!deliver_held(work, block, is_centered))
        CAREFUL_BLOCK(work, block);
}

/* Adds the sums over tokens of a group to those of the block of rows. */
INLINE void add_short_sums(double *sums, const float *of_group, size_t channels, int is_first) {
    if (!sums)
        return;
    for (size_t i = 0; i < channels; i += LANES)
        add_to_partial_sum(sums, (struct place){(ptrdiff_t)i, 0, 1}, wide_load_floats(of_group + i), is_first);
}

/* The floats of a group. */
OUTLINED void read_typed_group(struct reduction_work *work, struct even_rows *group) {
    read_typed_rows(work, 0, GROUP, (struct block){0, work->arguments->channels});
    *group = (struct even_rows){work->x_rows[0],
                                work->dy_rows[0],
                                work->dx_rows[0],
                                (size_t)(work->x_rows[1] - work->x_rows[0]),
                                (size_t)(work->dy_rows[1] - work->dy_rows[0]),
                                (size_t)(work->dx_rows[1] - work->dx_rows[0])};
}

INLINE void backward_short(struct reduction_work *work, size_t first, size_t rows, int is_centered) {
    const size_t channels = work->arguments->channels;
    const float *weight = read_block(&work->weight, (struct block){0, channels});
    struct even_rows group = {NULL, NULL, NULL, work->x.stride, work->dy.stride, work->dx.rows.stride};
    if (!work->typed) {
        group.x = row_of(&work->x, first);
        group.dy = row_of(&work->dy, first);
        group.dx = row_of(&work->dx.rows, first);
    }
    work->rows = GROUP;
    work->has_all_floats = 1;
    work->is_first = !work->sums.continues;
    for (work->first_row = first; work->first_row < first + rows; work->first_row += GROUP) {
        if (has_typed_rows(work))
            read_typed_group(work, &group);
        if (LANES == 16 && (channels + 15) / 16 == KNOWN_SIXTEENS)
            sum_short_rows(work, &group, weight, channels, KNOWN_SIXTEENS, is_centered);
        else
            sum_short_rows(work, &group, weight, channels, 0, is_centered);
        work->has_residual = 0;
        if (find_constants(work, &work->sums_of_rows, 0, GROUP, is_centered) && !work->has_residual &&
            apply_short_rows(work, &group, weight, channels, is_centered)) {
            add_short_sums(work->sums.dweight, work->dweight[0], channels, work->is_first);
            if (is_centered)
                add_short_sums(work->sums.dbias, work->dbias[0], channels, work->is_first);
        } else {
            backward_slow_group(work);
        }
        if (has_typed_rows(work))
            write_typed_rows(work, 0, GROUP, (struct block){0, channels});
        work->is_first = 0;
        group.x += GROUP * group.x_stride;
        group.dy += GROUP * group.dy_stride;
        group.dx += GROUP * group.dx_stride;
    }
}

#endif
