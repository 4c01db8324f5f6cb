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

/* What a loop for the sums of rows knows of them: nothing; that they are whole spans; or that they have so many
 * sixteens of channels, which is 97 to 112. */
enum known_channels { NOT_KNOWN, WHOLE_SPANS, SEVEN_SIXTEENS };
enum { KNOWN_SIXTEENS = 7 };

INLINE int has_known_sixteens(size_t channels) {
    return (channels + 15) / 16 == KNOWN_SIXTEENS;
}

/* dx of a group is computed at so many vectors of channels at once, whose sums over tokens stay in registers. */
enum { COLUMNS = LANES > 8 ? 4 : 2 };

/* Where the rows of a group lie, all of which are equally far apart: with strides of their own there would be more
 * addresses to keep than there are registers. */
struct even_rows {
    const float *x;
    const float *dy;
    float *dx;
    size_t stride;
};

/* The sums of a row, computed in variables, lest the compiler begins with what it writes to memory. In AVX2's loops,
 * which know nothing of the channels, rows of one span, or of so many sixteens, have code of their own: they have few
 * vectors for all the branches of any row. */
INLINE void sum_short_backward_row(struct lanes_of_row *sums, const struct reduction_block *values, ptrdiff_t channels,
                                   struct span_kind last, int is_centered) {
    struct lanes_of_row row;
    wide x_sum[PARTS];
    begin_lanes_of_row(&row, x_sum);
    if (LANES == 8 && channels == CHANNELS_OF_SPAN)
        add_spans_of_row(&row, x_sum, values, CHANNELS_OF_SPAN, no_span, is_centered);
    else if (LANES == 8 && has_known_sixteens((size_t)channels))
        add_spans_of_row(&row, x_sum, values, channels, (struct span_kind){3, 2}, is_centered);
    else
        add_spans_of_row(&row, x_sum, values, channels, last, is_centered);
    sums->hv = row.hv;
    if (is_centered) {
        sums->h = row.h;
        sums->x = wide_fold(x_sum);
    }
}

/* The sums of the rows of a group. The rows are taken one after the other, as processors expect it that fetch memory
 * ahead. A loop over them takes no more time than its code written out, but for rows whose number of sixteens is known
 * when compiling. */
INLINE void sum_short_rows(struct reduction_work *work, const struct even_rows *group, const float *weight,
                           size_t channels, enum known_channels known, int is_centered) {
    const float *x = group->x, *dy = group->dy;
    const struct span_kind last = known == WHOLE_SPANS ? no_span : counted_span;
    if (known == WHOLE_SPANS)
        channels = channels / CHANNELS_OF_SPAN * CHANNELS_OF_SPAN;
    else if (known == SEVEN_SIXTEENS && !has_known_sixteens(channels))
        __builtin_unreachable();
    const float *means = is_centered ? work->arguments->mean + work->first_row : NULL;
    const size_t stride = group->stride;
    const size_t unrolled = known == SEVEN_SIXTEENS ? 4 : 1;
    struct lanes_of_row before, merged;
#pragma GCC unroll 1
    for (size_t half = 0; half < 2; half++) {
        struct lanes_of_row rows[4];
        before = merged;
#pragma GCC unroll 1
        for (size_t first = 0; first < 4; first += unrolled)
#pragma GCC unroll 4
            for (size_t i = first; i < first + unrolled; i++) {
                const struct reduction_block values = {x, dy, weight,
                                                       is_centered ? load_float(means + HALF * half + i) : 0};
                sum_short_backward_row(&rows[i], &values, (ptrdiff_t)channels, last, is_centered);
                x += stride;
                dy += stride;
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

/* Adds the sums over tokens of a group at some vectors of channels to those of the block of rows. */
INLINE int add_short_sums(const struct reduction_work *work, struct place first, const struct pair_terms *sums,
                          int columns, int is_centered) {
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++) {
        vec dweight = sums[column].dweight;
        if (!first.whole && column == columns - 1) { /* what is 0 beyond the last channel does not count as lost */
            float last[LANES];
            vec_store(last, dweight);
            dweight = vec_load_n(last, first.count - LANES * column, vec_set(1));
        }
        add_greatest_dweight(&greatest, dweight);
        if (is_centered)
            greatest.dbias = vec_max_bits(greatest.dbias, vec_abs(sums[column].dbias));
    }
    if (!sums_hold(&greatest, is_centered))
        return 0;
    double *const dweight = work->sums.dweight, *const dbias = is_centered ? work->sums.dbias : NULL;
    const int is_first = work->is_first;
#pragma GCC unroll 4
    for (int column = 0; dweight && column < columns; column++)
        add_to_partial_sum(dweight, (struct place){first.channel + LANES * column, 0, 1},
                           vec_widen(sums[column].dweight), is_first);
#pragma GCC unroll 4
    for (int column = 0; dbias && column < columns; column++)
        add_to_partial_sum(dbias, (struct place){first.channel + LANES * column, 0, 1}, vec_widen(sums[column].dbias),
                           is_first);
    return 1;
}

/* dx of a group's rows at some vectors of channels, and what they add to the sums over tokens, which stays in
 * registers. Gives 0, and has added nothing, where float may have lost some of it. */
INLINE int apply_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                               struct place first, int columns, int is_centered) {
    const size_t stride = rows->stride;
    const float *x = rows->x + first.channel, *dy = rows->dy + first.channel;
    float *dx = rows->dx + first.channel;
    const vec none = vec_set(-0.0f); /* to which the first term can be added without being changed */
    struct pair_terms sums[COLUMNS];
    struct pair_block pair;
    pair.weight = weight + first.channel;
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++)
        sums[column].dweight = sums[column].dbias = none;
    int end = GROUP;
    if (LANES == 16) /* lest the loop is written out, which would take more time here, and less with fewer columns */
        KEEP_IN_REGISTER(end);
#pragma GCC unroll 1
    for (int half = 0; half < end; half += HALF) {
        struct pair_terms of_half[COLUMNS];
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            struct gradient_vectors constants[2];
            pair.x[0] = x, pair.x[1] = x + stride;
            pair.dy[0] = dy, pair.dy[1] = dy + stride;
            pair.dx[0] = dx, pair.dx[1] = dx + stride;
            x += 2 * stride, dy += 2 * stride, dx += 2 * stride;
            float *ahead[2] = {dx, dx + stride}; /* is fetched; all of a group at once would be slower */
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
                set_gradient_vectors(&constants[i], work->constants, half + 2 * k + i);
            KEEP_IN_REGISTER(x);
            KEEP_IN_REGISTER(dy);
            KEEP_IN_REGISTER(dx);
#pragma GCC unroll 4
            for (int column = 0; column < columns; column++) {
                const struct place place = {LANES * column, first.count - LANES * column,
                                            first.whole || column < columns - 1};
                struct pair_terms terms;
                if (place.channel % FLOATS_OF_LINE == 0)
                    for (int i = 0; i < 2; i++)
                        fetch_to_write(ahead[i] + place.channel, 0);
                find_pair_terms(&terms, &pair, constants, place, (struct pair_kind){2, k, 0, 0, is_centered, 0});
                /* Here and now, lest the compiler keeps the terms until later. */
                struct pair_terms *sum = &of_half[column];
                sum->dweight = vec_in_register(k ? vec_add(sum->dweight, terms.dweight) : terms.dweight);
                if (is_centered)
                    sum->dbias = vec_in_register(k ? vec_add(sum->dbias, terms.dbias) : terms.dbias);
            }
        }
#pragma GCC unroll 4
        for (int column = 0; column < columns; column++) {
            sums[column].dweight = vec_add(sums[column].dweight, of_half[column].dweight);
            if (is_centered)
                sums[column].dbias = vec_add(sums[column].dbias, of_half[column].dbias);
        }
    }
    return add_short_sums(work, first, sums, columns, is_centered);
}

/* The same of the channels that are left, which are up to COLUMNS vectors. */
INLINE int apply_last_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                                    struct place left, int is_centered) {
    switch ((left.count - 1) / LANES) {
    case 0:
        return apply_short_columns(work, rows, weight, left, 1, is_centered);
    case 1:
        return apply_short_columns(work, rows, weight, left, 2, is_centered);
    case 2:
        return apply_short_columns(work, rows, weight, left, 3, is_centered);
    default:
        return apply_short_columns(work, rows, weight, left, 4, is_centered);
    }
}

/* dx of a group, and its sums over tokens, at some channels: where float may have lost one of these, or where the rows,
 * whose sums are there, are not all ordinary. */
OUTLINED void backward_slow_columns(struct reduction_work *work, struct block block, int are_ordinary) {
    const int is_centered = work->is_centered;
    find_rows(work);
    work->careful = 0;
    if (!are_ordinary && !find_constants(work, &work->sums_of_rows, 0, GROUP, is_centered))
        CAREFUL_ROWS(work, 0, GROUP);
    if (!are_in_double(work, 0, GROUP))
        apply_rows(work, block, 0, GROUP, is_centered);
    if (!deliver_held(work, block, is_centered))
        CAREFUL_BLOCK(work, block);
}

/* dx of a group whose rows are all ordinary, and its sums over tokens. */
INLINE void apply_short_rows(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                             size_t channels, int is_centered) {
    const ptrdiff_t end = (ptrdiff_t)channels;
    ptrdiff_t step = COLUMNS * LANES;
#pragma GCC unroll 1
    for (ptrdiff_t i = 0; i < end; i += step) {
        const struct place left = {i, end - i, 0}, whole = {i, LANES, 1};
        int is_done;
        if (left.count >= step) {
            is_done = apply_short_columns(work, rows, weight, whole, COLUMNS, is_centered);
        } else if (COLUMNS == 4) {
            is_done = apply_last_short_columns(work, rows, weight, left, is_centered);
        } else { /* storing a part of a shorter vector is slow */
            step = LANES;
            is_done = left.count >= LANES ? apply_short_columns(work, rows, weight, whole, 1, is_centered)
                                          : apply_short_columns(work, rows, weight, left, 1, is_centered);
        }
        if (!is_done)
            backward_slow_columns(work, (struct block){(size_t)i, (size_t)(left.count < step ? left.count : step)}, 1);
    }
}

/* The floats of a group. Gives 0 if they are not equally far apart. */
OUTLINED int read_typed_group(struct reduction_work *work, struct even_rows *group) {
    read_typed_rows(work, 0, GROUP, (struct block){0, work->arguments->channels});
    const ptrdiff_t stride = work->x_rows[1] - work->x_rows[0];
    *group = (struct even_rows){work->x_rows[0], work->dy_rows[0], work->dx_rows[0], (size_t)stride};
    return work->dy_rows[1] - work->dy_rows[0] == stride && work->dx_rows[1] - work->dx_rows[0] == stride;
}

/* Rows that are not of floats become such, at distances of which nothing is known before. */
INLINE int may_be_even(const struct reduction_work *work) {
    return has_typed_rows(work) || (work->x.stride == work->dy.stride && work->x.stride == work->dx.rows.stride);
}

/* Gives how many rows are done, in whole groups: none if they are not equally far apart. */
INLINE size_t backward_short(struct reduction_work *work, size_t first, size_t rows, int is_centered) {
    const size_t channels = work->arguments->channels;
    const float *weight = read_block(&work->weight, (struct block){0, channels});
    struct even_rows group = {NULL, NULL, NULL, work->x.stride};
    if (!work->typed) {
        group.x = row_of(&work->x, first);
        group.dy = row_of(&work->dy, first);
        group.dx = row_of(&work->dx.rows, first);
    }
    work->rows = GROUP;
    work->has_all_floats = 1;
    work->typed_ahead = typed_rows_ahead(work, GROUP);
    work->is_first = !work->sums.continues;
    for (work->first_row = first; work->first_row < first + rows; work->first_row += GROUP) {
        if (has_typed_rows(work) && !read_typed_group(work, &group))
            break;
        if (LANES == 16 && channels % CHANNELS_OF_SPAN == 0)
            sum_short_rows(work, &group, weight, channels, WHOLE_SPANS, is_centered);
        else if (LANES == 16 && has_known_sixteens(channels))
            sum_short_rows(work, &group, weight, channels, SEVEN_SIXTEENS, is_centered);
        else
            sum_short_rows(work, &group, weight, channels, NOT_KNOWN, is_centered);
        work->has_residual = 0;
        if (find_constants(work, &work->sums_of_rows, 0, GROUP, is_centered) && !work->has_residual)
            apply_short_rows(work, &group, weight, channels, is_centered);
        else
            backward_slow_columns(work, (struct block){0, channels}, 0);
        if (has_typed_rows(work))
            write_typed_rows(work, 0, GROUP, (struct block){0, channels});
        work->is_first = 0;
        group.x += GROUP * group.stride;
        group.dy += GROUP * group.stride;
        group.dx += GROUP * group.stride;
    }
    return work->first_row - first;
}

#endif
