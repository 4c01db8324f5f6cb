/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for whole groups of short rows: see backward/normalization.h.
 */
#ifndef DYNNORM_BACKWARD_SHORT_ROWS_H
#define DYNNORM_BACKWARD_SHORT_ROWS_H

#include "model_marks.h"
#include "operations/backward_statistics.h"
#include "rows/backward/reduction.h"
#include "rows/backward/token_sums.h"
#include "rows/blocks.h"
#include "rows/elements.h"
#include "rows/floats.h"
#include "rows/row_sums.h"
#include "vec.h"

/* Which rows are short: as far as that pays. AVX2 takes rows of more than 128 channels only if these are a multiple of
 * 16. Rows of more than a block are short as well, if they need no buffers, as long as x and dy of a group fit into 30
 * KB: on a Zen 4 with AVX-512, which has a first-level cache of 32 KB, they took 0.74 to 0.96 times as long as in the
 * loops for longer rows, and beyond that up to 1.3 times. On a Zen 3 with AVX2 it was 0.79 to 1, and up to 1.3. */
enum { SHORT_BLOCKS = 2, MOST_SHORT_CHANNELS_BACKWARD = 480 };

INLINE int are_short(size_t channels, int has_no_buffers) {
    return (channels <= BLOCK || (channels <= MOST_SHORT_CHANNELS_BACKWARD && has_no_buffers)) &&
           (channels <= 128 || channels % 16 == 0 || LANES > 8);
}

/* dx of a group is computed at so many vectors of channels at once, whose sums over tokens stay in registers. */
enum { COLUMNS = LANES > 8 ? 4 : 2 };

/* Where the rows of a group lie, all of which are equally far apart: with strides of their own there would be more
 * addresses to keep than there are registers. They need not be of floats: see elements.h. */
struct even_rows {
    const float *x;
    const float *dy;
    float *dx;
    size_t stride;
    /* Of rows of 16 bits alone. */
    const float *dsum;     /* added to dx; NULL: there is none; see may_have_dsum */
    int are_beyond_caches; /* they come from memory, and dx is stored past the caches */
};

/* The last eight lanes of the sums of a group's rows, row after row. Those of h and h v, of each block of channels, are
 * floats to the end. */
struct lanes_of_group {
    _Alignas(64) float h[SHORT_BLOCKS][8 * GROUP];
    float hv[SHORT_BLOCKS][8 * GROUP];
    eight v[GROUP];
};

/* What is summed: the rows of a group. */
struct rows_to_sum {
    const struct even_rows *group;
    const float *weight;
    const float *means;
    size_t channels;
};

/* What a loop for the sums of rows knows of their channels when compiling. If it knows how many sixteens there are, the
 * rows have no more than MOST_UNTESTED_CHANNELS; if it knows only that these are whole, they have more. */
struct known_channels {
    int sixteens; /* how many, the last of which may not be whole; 0: it is not known */
    int multiple; /* of which the channels are one: 1, 16 or CHANNELS_OF_SPAN */
};

/* The sums of one row of the group, computed in variables, lest the compiler begins with what it writes to memory. */
INLINE void sum_short_backward_row(struct lanes_of_group *sums, int row, const struct reduction_block *values,
                                   ptrdiff_t channels, struct known_channels known, int is_centered) {
    const int sixteens_of_last = (known.sixteens + 3) % 4 + 1, all_are_whole = known.multiple != 1;
    const struct span_kind last = known.multiple == CHANNELS_OF_SPAN ? no_span
                                  : known.sixteens
                                      ? (struct span_kind){sixteens_of_last, sixteens_of_last - !all_are_whole}
                                  : all_are_whole ? span_of_whole_sixteens
                                                  : counted_span;
    const struct summing how = {.is_centered = is_centered, .begins_v = known.sixteens != 0};
    struct reduction_block block = *values;
    wide v_sum[PARTS];
    for (int part = 0; part < PARTS; part++)
        v_sum[part] = wide_set(-0.0); /* to which the first term can be added without being changed */
    float *h = sums->h[0] + 8 * row, *hv = sums->hv[0] + 8 * row;
    for (;;) {
        struct sums_of_lanes lanes;
        sum_lanes(&lanes, v_sum, &block, known.sixteens || channels < BLOCK ? channels : BLOCK, last, how);
        vec_store_folded(hv, lanes.hv);
        if (is_centered)
            vec_store_folded(h, lanes.h);
        channels -= BLOCK;
        if (known.sixteens || channels <= 0)
            break;
        block.x += BLOCK;
        block.dy += BLOCK;
        block.weight += BLOCK;
        h += 8 * GROUP;
        hv += 8 * GROUP;
        KEEP_IN_REGISTER(hv);
    }
    if (is_centered)
        sums->v[row] = wide_fold(v_sum);
}

/* The lanes of all rows, of one block of channels or two. */
INLINE void load_lanes_of_rows(eight rows[GROUP], const float *lanes, int has_two_blocks) {
#pragma GCC unroll 8
    for (int row = 0; row < GROUP; row++)
        rows[row] = eight_load_floats(lanes + 8 * row);
    if (has_two_blocks) {
#pragma GCC unroll 8
        for (int row = 0; row < GROUP; row++)
            rows[row] = eight_add(rows[row], eight_load_floats(lanes + 8 * GROUP + 8 * row));
    }
}

/* The sums of the rows of a group. The rows are taken one after the other, as processors expect it that fetch memory
 * ahead. */
INLINE void sum_short_backward_rows(struct lanes_of_group *sums, const struct rows_to_sum *rows,
                                    struct known_channels known, int is_centered) {
    const float *x = rows->group->x, *dy = rows->group->dy;
    size_t channels = rows->channels;
    if (known.sixteens && known.multiple != 1)
        channels = 16 * (size_t)known.sixteens;
    else if (known.sixteens && (channels + 15) / 16 != (size_t)known.sixteens)
        __builtin_unreachable();
    else
        channels = channels / (size_t)known.multiple * (size_t)known.multiple;
    const size_t stride = rows->group->stride;
    /* Written out, the loop takes up to 7 percent more time on a Zen 5. */
#pragma GCC unroll 1
    for (int row = 0; row < GROUP; row++) {
        const float mean = is_centered ? load_float(rows->means + row) : 0;
        const struct reduction_block values = {
            .x = x, .dy = dy, .weight = rows->weight, .mean = mean, .type = DYNNORM_F32};
        sum_short_backward_row(sums, row, &values, (ptrdiff_t)channels, known, is_centered);
        x += stride;
        dy += stride;
        KEEP_IN_REGISTER(x);
        KEEP_IN_REGISTER(dy);
    }
}

/* The sums of a group's rows from their lanes. */
INLINE void sum_lanes_of_rows(struct sums_of_rows *of_rows, const struct lanes_of_group *sums, int has_two_blocks,
                              int tests_v, int is_centered) {
    eight rows_of[GROUP];
    load_lanes_of_rows(rows_of, sums->hv[0], has_two_blocks);
    eight_store(of_rows->hv, eight_sums(rows_of));
    if (!is_centered)
        return;
    if (tests_v)
        eight_store(of_rows->absolute_hv, absolute_sums_of_rows(rows_of));
    load_lanes_of_rows(rows_of, sums->h[0], has_two_blocks);
    eight_store(of_rows->h, eight_sums(rows_of));
    eight_store(of_rows->v, eight_sums(sums->v));
}

/* The sums of a group's rows, and the constants that they give.
 *
 * Up to 128 channels AVX2 has a loop for each number of sixteens, since a loop for any of them has more branches than a
 * row has vectors, and another one if all of these are whole. Rows of 112 channels, which are rare, do without that:
 * they take 1.02 to 1.03 times as long, on a Zen 4. AVX-512 has loops for 64 and 128 channels, which the heads of
 * attention have, for other whole spans, for 97 to 112 channels, and for all others. */
INLINE enum constants_found sum_any_short_rows(struct reduction_work *work, const struct even_rows *group,
                                               const float *weight, int is_centered) {
    const size_t channels = work->arguments->channels, sixteens = (channels + 15) / 16;
    const float *means = is_centered ? work->arguments->mean + work->first_row : NULL;
    const struct rows_to_sum rows = {group, weight, means, channels};
    struct lanes_of_group sums;
#define SUM_ROWS(number, multiple)                                                                                     \
    sum_short_backward_rows(&sums, &rows, (struct known_channels){number, multiple}, is_centered)
#define SUM_SIXTEENS(number)                                                                                           \
    case number:                                                                                                       \
        if (channels % 16 == 0 && number != 7)                                                                         \
            SUM_ROWS(number, number % 4 ? 16 : CHANNELS_OF_SPAN);                                                      \
        else                                                                                                           \
            SUM_ROWS(number, 1);                                                                                       \
        break;
    switch (LANES == 8 ? sixteens : 0) {
        SUM_SIXTEENS(1)
        SUM_SIXTEENS(2)
        SUM_SIXTEENS(3)
        SUM_SIXTEENS(4)
        SUM_SIXTEENS(5)
        SUM_SIXTEENS(6)
        SUM_SIXTEENS(7)
        SUM_SIXTEENS(8)
    default:
        if (LANES == 8)
            SUM_ROWS(0, 16);
        else if (channels == 64)
            SUM_ROWS(4, CHANNELS_OF_SPAN);
        else if (channels == 128)
            SUM_ROWS(8, CHANNELS_OF_SPAN);
        else if (channels % CHANNELS_OF_SPAN == 0)
            SUM_ROWS(0, CHANNELS_OF_SPAN);
        else if (sixteens == 7)
            SUM_ROWS(7, 1);
        else
            SUM_ROWS(0, 1);
    }
#undef SUM_ROWS
#undef SUM_SIXTEENS
    struct sums_of_rows *const of_rows = &work->sums_of_rows, at_hand;
    sum_lanes_of_rows(of_rows, &sums, channels > BLOCK, work->tests_v, is_centered);
    if (LANES == 16) /* so that they stay in registers: 0.95 to 1.0 times as long on a Zen 5 */
        at_hand = *of_rows;
    /* Rows whose v needs no test are refused if they have a residual, which takes others 1 to 2 percent less time. */
    return find_constants_of(work, LANES == 16 ? &at_hand : of_rows, 0, GROUP,
                             (struct constants_kind){is_centered, !work->tests_v});
}

/* This is compiled once for each operation. */
OUTLINED enum constants_found sum_short_rows_of_layernorm(struct reduction_work *work, const struct even_rows *group,
                                                          const float *weight) {
    return sum_any_short_rows(work, group, weight, 1);
}

OUTLINED enum constants_found sum_short_rows_of_rmsnorm(struct reduction_work *work, const struct even_rows *group,
                                                        const float *weight) {
    return sum_any_short_rows(work, group, weight, 0);
}

INLINE enum constants_found sum_short_rows(struct reduction_work *work, const struct even_rows *group,
                                           const float *weight, int is_centered) {
    return is_centered ? sum_short_rows_of_layernorm(work, group, weight)
                       : sum_short_rows_of_rmsnorm(work, group, weight);
}

/* Whether float has lost nothing of the sums over tokens of a group at some vectors of channels. */
INLINE int short_sums_hold(struct place first, const struct pair_terms *sums, int columns, int is_centered) {
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
    return sums_hold(&greatest, is_centered);
}

/* Adds such sums to those of the block of rows that are asked for. */
INLINE void add_short_sums(const struct partial_sums *to, struct place first, const struct pair_terms *sums,
                           int columns, int is_first, int is_centered) {
    double *const dweight = to->dweight, *const dbias = is_centered ? to->dbias : NULL;
#pragma GCC unroll 4
    for (int column = 0; dweight && column < columns; column++)
        add_to_partial_sum(dweight, (struct place){first.channel + LANES * column, 0, 1},
                           vec_widen(sums[column].dweight), is_first);
#pragma GCC unroll 4
    for (int column = 0; dbias && column < columns; column++)
        add_to_partial_sum(dbias, (struct place){first.channel + LANES * column, 0, 1}, vec_widen(sums[column].dbias),
                           is_first);
}

/* What is known of some columns when compiling. */
struct column_kind {
    int columns;
    dynnorm_type type; /* of x, dy, dx and dsum */
    int is_centered;
    int has_residual; /* rows may have one; otherwise none has */
};

/* The rows of the next group, of CHANNELS_OF_SPAN floats, which are summed one by one. */
struct row_ahead {
    struct lanes_of_group *sums;
    struct reduction_block values; /* of the row that is next */
    const float *means;            /* of that group */
    ptrdiff_t stride;
};

/* Sums a row, which is the given one of its group, and goes on to the next one. */
INLINE void sum_row_ahead(struct row_ahead *ahead, int row, int is_centered) {
    const struct known_channels known = {CHANNELS_OF_SPAN / 16, CHANNELS_OF_SPAN};
    ahead->values.mean = is_centered ? load_float(ahead->means + row) : 0;
    sum_short_backward_row(ahead->sums, row, &ahead->values, CHANNELS_OF_SPAN, known, is_centered);
    ahead->values.x += ahead->stride;
    ahead->values.dy += ahead->stride;
    KEEP_IN_REGISTER(ahead->values.x);
    KEEP_IN_REGISTER(ahead->values.dy);
}

/* Whether something may be added to dx of rows of a type. With AVX-512 code for it in both types would be twice as
 * large. */
INLINE int may_add_to(dynnorm_type type) {
    return type == DYNNORM_BF16 || (type == DYNNORM_F16 && LANES == 8);
}

INLINE int may_have_dsum(const struct column_kind *known) {
    return may_add_to(known->type) && known->columns == COLUMNS;
}

/* Some channels of a row. */
struct short_row {
    const float *x;
    const float *dy;
    float *dx;
    const float *dsum; /* NULL: there is none; see may_have_dsum */
};

/* The pointers are moved along, and gcc must not know by how much: else it keeps those of eight rows, most of them on
 * the stack. */
INLINE void move_to_next_row(struct short_row *row, ptrdiff_t stride, const struct column_kind *known) {
    row->x = elements_after(row->x, stride, known->type);
    row->dy = elements_after(row->dy, stride, known->type);
    row->dx = elements_after(row->dx, stride, known->type);
    KEEP_IN_REGISTER(row->x);
    KEEP_IN_REGISTER(row->dy);
    KEEP_IN_REGISTER(row->dx);
    if (may_have_dsum(known) && row->dsum)
        row->dsum = elements_after(row->dsum, stride, known->type);
}

/* What is fetched of the channels at hand while dx of a row is computed, unless rows are summed meanwhile. All of a
 * group at once would be slower.
 *
 * Where stores wait for lines that are far away, it is dx two rows later: on an Emerald Rapids this took 0.86 to 1
 * times as long, on a Zen 5 up to 1.06 times. Elsewhere it is x of the next group, with which RMSNorm took 0.9 to 0.97
 * times as long on a Zen 5 and a Zen 4. LayerNorm, which has more to compute, gained nothing by that. Rows of 256
 * channels or more took up to 1.1 times as long in the second-level cache; in the third one those of 256 channels took
 * 0.9 times as long on a Zen 5, and as long as without on a Zen 4.
 *
 * With AVX2, to ask which of them it is took RMSNorm 1.04 to 1.09 times as long on a Zen 3. So there RMSNorm always
 * fetches x, with which it took as long as with dx, or a little less, and LayerNorm nothing: with dx it took 0.99 to
 * 1.06 times as long. */
struct fetched {
    int dx;
    int x; /* if dx is not */
};

INLINE struct fetched what_is_fetched(const struct backward_arguments *arguments, int is_centered) {
    if (LANES == 8)
        return (struct fetched){0, !is_centered};
    return (struct fetched){arguments->fetches_to_write, !is_centered && arguments->channels < BLOCK};
}

/* With AVX-512 it is asked for two rows at once what is fetched, lest each row asks. With AVX2 that is known. */
enum { ROWS_OF_FETCH = LANES == 8 ? 1 : 2 };

INLINE void fetch_short_rows(const struct short_row *row, ptrdiff_t stride, struct fetched what,
                             const struct column_kind *known) {
#pragma GCC unroll 2
    for (int k = 0; k < ROWS_OF_FETCH; k++)
#pragma GCC unroll 4
        for (ptrdiff_t i = 0; i < LANES * known->columns; i += FLOATS_OF_LINE)
            if (what.dx)
                fetch_to_write(row->dx, (size_t)((2 + k) * stride + i));
            else if (what.x)
                __builtin_prefetch(elements_after(row->x, (GROUP + k) * stride + i, DYNNORM_F32), 0, 3);
}

/* The channels of a row that the next group has at the same place, if they come from memory. What is added to dx is
 * prefetched in a loop of its own: gcc 12 leaves out the prefetches that follow a condition in a loop that it writes
 * out. */
INLINE void prefetch_halves_of_next_group(const struct short_row *row, ptrdiff_t stride,
                                          const struct column_kind *known) {
#pragma GCC unroll 2
    for (int column = 0; column < known->columns; column += 2) {
        const ptrdiff_t ahead = GROUP * stride + LANES * column;
        __builtin_prefetch(elements_after(row->x, ahead, known->type), 0, 2);
        __builtin_prefetch(elements_after(row->dy, ahead, known->type), 0, 2);
    }
    if (!may_have_dsum(known) || !row->dsum)
        return;
#pragma GCC unroll 2
    for (int column = 0; column < known->columns; column += 2)
        __builtin_prefetch(elements_after(row->dsum, GROUP * stride + LANES * column, known->type), 0, 2);
}

/* Stores dx of a row at a column. Of 16 bits two columns are stored together: the first one waits. */
INLINE void write_column(const struct short_row *row, vec *waiting, vec dx, struct place place, int are_beyond_caches,
                         const struct column_kind *known) {
    vec two[2] = {*waiting, dx};
    if (known->type == DYNNORM_F32) {
        store_vector(row->dx, place, dx);
    } else if (known->columns == 1) {
        store_as_halves(row->dx, place, dx, known->type);
    } else if (place.channel / LANES % 2 == 0) {
        *waiting = dx;
    } else {
        if (may_have_dsum(known) && row->dsum)
            add_two_of_halves(two, row->dsum, place.channel - LANES, known->type);
        store_two_as_halves(row->dx, place.channel - LANES, two, known->type, are_beyond_caches);
    }
}

/* Adds the terms of a second pair to those of the first. Here and now, lest the compiler keeps them until later. */
INLINE void add_pair_terms(struct pair_terms *sum, const struct pair_terms *terms, int is_centered) {
    sum->dweight = vec_in_register(vec_add(sum->dweight, terms->dweight));
    if (is_centered)
        sum->dbias = vec_in_register(vec_add(sum->dbias, terms->dbias));
}

/* The terms of a group's rows in the sums over tokens: of a pair of rows, of a half, of all. */
struct short_terms {
    struct pair_terms pair[COLUMNS];
    struct pair_terms half[COLUMNS];
    struct pair_terms all[COLUMNS];
};

/* After the second row of a pair. */
INLINE void end_short_pair(struct short_terms *terms, int column, int row_of_half, int is_centered) {
    if (row_of_half == 1)
        terms->half[column] = terms->pair[column];
    else
        add_pair_terms(&terms->half[column], &terms->pair[column], is_centered);
}

/* dx of a row at some vectors of channels, from the first of these on, and its terms. If the loop over rows is rolled,
 * the compiler does not know which row it is: each pair begins with terms that change nothing when they are added to,
 * and it is asked for all columns at once whether it ends. */
INLINE void apply_short_row(struct short_terms *terms, const struct short_row *row, const float *weight,
                            const struct gradient_vectors *constants, struct place first, int row_of_half,
                            int are_beyond_caches, int is_rolled, const struct column_kind *known) {
    const int columns = known->columns, is_centered = known->is_centered, is_second = row_of_half % 2;
    const struct pair_kind kind = {2, 0, 0, known->has_residual, is_centered, 0, known->type, 0};
    const vec none = vec_set(-0.0f);
    vec waiting = none;
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++) {
        const struct place place = {LANES * column, first.count - LANES * column, first.whole || column < columns - 1};
        const vec of_weight = load_vector(weight, place, vec_set(0));
        struct pair_terms *const of_pair = &terms->pair[column];
        const vec dx =
            find_row_terms(of_pair, row->x, row->dy, of_weight, constants, place, is_rolled || is_second, &kind);
        of_pair->dweight = vec_in_register(of_pair->dweight);
        if (!is_rolled && is_second)
            end_short_pair(terms, column, row_of_half, is_centered);
        write_column(row, &waiting, dx, place, are_beyond_caches, known);
    }
    if (!is_rolled || !is_second)
        return;
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++) {
        end_short_pair(terms, column, row_of_half, is_centered);
        terms->pair[column] = (struct pair_terms){none, none};
    }
}

/* dx of a group's rows at some vectors of channels, and what they add to the sums over tokens, which stays in
 * registers. Rows are done one after the other, each at all of these vectors. Gives 0, and has added nothing, where
 * float may have lost some of it. ahead: NULL, or the rows that are summed meanwhile, one with each row. With these,
 * and in rows of 16 bits, AVX-512 has a loop over rows that is rolled: the code is a third as long. Floats with a
 * residual have such a loop with AVX2, too. */
INLINE int apply_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                               struct place first, struct column_kind known, struct row_ahead *ahead) {
    const int columns = known.columns, is_centered = known.is_centered, are_floats = known.type == DYNNORM_F32;
    const ptrdiff_t stride = (ptrdiff_t)rows->stride;
    const struct group_constants *const of_group = work->constants;
    const struct fetched fetched = what_is_fetched(work->arguments, is_centered);
    const int are_beyond_caches = LANES == 16 && rows->are_beyond_caches;
    const int is_rolled = ahead || (LANES == 16 && !are_floats) || (are_floats && known.has_residual);
    const vec none = vec_set(-0.0f); /* to which the first term can be added without being changed */
    struct gradient_vectors constants;
    struct short_terms terms;
    struct short_row row = {elements_after(rows->x, first.channel, known.type),
                            elements_after(rows->dy, first.channel, known.type),
                            elements_after(rows->dx, first.channel, known.type), NULL};
    if (may_have_dsum(&known) && rows->dsum)
        row.dsum = elements_after(rows->dsum, first.channel, known.type);
    weight += first.channel;
#pragma GCC unroll 4
    for (int column = 0; column < columns; column++)
        terms.all[column] = terms.half[column] = terms.pair[column] = (struct pair_terms){none, none};
    int end = GROUP;
    if (LANES == 16) /* lest the loop is written out, which would take more time here, and less with fewer columns */
        KEEP_IN_REGISTER(end);
#pragma GCC unroll 1
    for (int half = 0; half < end; half += HALF) {
        if (is_rolled) {
#pragma GCC unroll 1
            for (int i = 0; i < HALF; i++) {
                if (ahead)
                    sum_row_ahead(ahead, half + i, is_centered);
                if (!are_floats && are_beyond_caches)
                    prefetch_halves_of_next_group(&row, stride, &known);
                set_gradient_vectors(&constants, of_group, half + i);
                apply_short_row(&terms, &row, weight, &constants, first, i, are_beyond_caches, 1, &known);
                move_to_next_row(&row, stride, &known);
            }
        } else {
#pragma GCC unroll 4
            for (int i = 0; i < HALF; i++) {
                if (are_floats && i % ROWS_OF_FETCH == 0)
                    fetch_short_rows(&row, stride, fetched, &known);
                set_gradient_vectors(&constants, of_group, half + i);
                apply_short_row(&terms, &row, weight, &constants, first, i, are_beyond_caches, 0, &known);
                move_to_next_row(&row, stride, &known);
            }
        }
#pragma GCC unroll 4
        for (int column = 0; column < columns; column++) {
            terms.all[column].dweight = vec_add(terms.all[column].dweight, terms.half[column].dweight);
            if (is_centered)
                terms.all[column].dbias = vec_add(terms.all[column].dbias, terms.half[column].dbias);
        }
    }
    if (!short_sums_hold(first, terms.all, columns, is_centered))
        return 0;
    add_short_sums(&work->sums, first, terms.all, columns, work->is_first, is_centered);
    return 1;
}

/* The same of the channels that are left, which are up to COLUMNS vectors of floats. */
INLINE int apply_last_short_columns(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                                    struct place left, int is_centered) {
#define APPLY(columns)                                                                                                 \
    apply_short_columns(work, rows, weight, left, (struct column_kind){columns, DYNNORM_F32, is_centered, 0}, NULL)
    switch ((left.count - 1) / LANES) {
    case 0:
        return APPLY(1);
    case 1:
        return APPLY(2);
    case 2:
        return APPLY(3);
    default:
        return APPLY(4);
    }
#undef APPLY
}

/* Where the floats of a group are. */
INLINE void find_floats_of_group(struct reduction_work *work, const struct even_rows *group) {
    for (int row = 0; row < GROUP; row++) {
        work->x_rows[row] = group->x + (size_t)row * group->stride;
        work->dy_rows[row] = group->dy + (size_t)row * group->stride;
        work->dx_rows[row] = group->dx + (size_t)row * group->stride;
    }
}

/* What backward_slow_columns has of a group: sums of which float may not hold all rows; constants of rows that float
 * holds; or constants of any rows, and work->careful. */
enum slow_rows { NOT_BEGUN, ORDINARY, BEGUN };

/* dx of a group, and its sums over tokens, at some channels: where float may have lost one of these, or does not hold
 * all of the rows. The group is that of typed rows all of whose floats are there; else it means nothing, and may be
 * NULL. */
FOR_SIZE OUTLINED void backward_slow_columns(struct reduction_work *work, const struct even_rows *group,
                                             struct block block, enum slow_rows rows) {
    MODEL_UNUSUAL();
    const int is_centered = work->is_centered;
    if (rows == ORDINARY && is_zero_group(work) && !has_typed_rows(work)) { /* all of its sums come here */
        if (block.first)
            return;
        block.count = work->arguments->channels;
    }
    find_rows(work);
    if (rows != BEGUN)
        work->careful = 0;
    if (has_typed_rows(work) && work->has_all_floats)
        find_floats_of_group(work, group);
    else if (has_typed_rows(work))
        read_typed_rows(work, 0, GROUP, block);
    if (rows == NOT_BEGUN && !FIND_CONSTANTS(work, &work->sums_of_rows, 0, GROUP))
        CAREFUL_ROWS(work, 0, GROUP);
    if (!are_in_double(work, 0, GROUP))
        apply_rows(work, block, 0, GROUP);
    if (!deliver_held(work, block, is_centered))
        CAREFUL_BLOCK(work, block);
    if (has_typed_rows(work) && !work->has_all_floats)
        write_typed_rows(work, 0, GROUP, block);
}

/* dx of a group whose rows are all ordinary, and its sums over tokens. The last columns are taken one by one where
 * vectors have 8 floats, since storing a part of one is slow, and in rows of 16 bits, since loops for two to four of
 * them would take more code. With a residual, AVX-512 takes those of floats one by one, too, and AVX2 the slow way. Of
 * 16 bits a residual is always subtracted, though it may be 0. */
INLINE void apply_any_short_rows(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                                 dynnorm_type type, int is_centered, int has_residual) {
    const int are_floats = type == DYNNORM_F32;
    const struct column_kind of_most = {COLUMNS, type, is_centered, has_residual},
                             of_one = {1, type, is_centered, has_residual};
    const ptrdiff_t end = (ptrdiff_t)work->arguments->channels;
    const int all_are_whole = LANES == 8 && !are_floats; /* of a type of 16 bits AVX2 has no others here */
    ptrdiff_t step = COLUMNS * LANES;
#pragma GCC unroll 1
    for (ptrdiff_t i = 0; i < end; i += step) {
        const struct place left = {i, end - i, 0}, whole = {i, LANES, 1};
        int is_done;
        if (left.count >= COLUMNS * LANES || all_are_whole) {
            is_done = apply_short_columns(work, rows, weight, whole, of_most, NULL);
        } else if (are_floats && has_residual && LANES == 8) {
            is_done = 0;
        } else if (COLUMNS == 4 && are_floats && !has_residual) {
            is_done = apply_last_short_columns(work, rows, weight, left, is_centered);
        } else {
            step = LANES;
            is_done = are_floats && left.count >= LANES && LANES == 8
                          ? apply_short_columns(work, rows, weight, whole, of_one, NULL)
                          : apply_short_columns(work, rows, weight, left, of_one, NULL);
        }
        if (!is_done)
            backward_slow_columns(work, rows,
                                  (struct block){(size_t)i, (size_t)(left.count < step ? left.count : step)}, ORDINARY);
    }
}

/* This is compiled once for each operation. */
OUTLINED void apply_short_rows_of_layernorm(struct reduction_work *work, const struct even_rows *rows,
                                            const float *weight) {
    apply_any_short_rows(work, rows, weight, DYNNORM_F32, 1, 0);
}

OUTLINED void apply_short_rows_of_rmsnorm(struct reduction_work *work, const struct even_rows *rows,
                                          const float *weight) {
    apply_any_short_rows(work, rows, weight, DYNNORM_F32, 0, 0);
}

OUTLINED void apply_short_rows_with_residual(struct reduction_work *work, const struct even_rows *rows,
                                             const float *weight) {
    apply_any_short_rows(work, rows, weight, DYNNORM_F32, 1, 1);
}

INLINE void apply_short_rows(struct reduction_work *work, const struct even_rows *rows, const float *weight,
                             int is_centered) {
    if (is_centered && work->has_residual)
        apply_short_rows_with_residual(work, rows, weight);
    else if (is_centered)
        apply_short_rows_of_layernorm(work, rows, weight);
    else
        apply_short_rows_of_rmsnorm(work, rows, weight);
}

/* ---- Heads of attention: rows of 64 floats ---- */

/* With AVX-512 the rows of the next group are summed along with dx of this one, a row of each at a time: there is dx to
 * compute while the CPU waits for rows to be summed. Rows of 128 channels gained nothing by that: on a Zen 5 they took
 * 0.95 to 1.05 times as long. Neither did fewer rows of a block. See dispatch/caches.c. */
enum { LEAST_OVERLAPPED_ROWS = 6 * GROUP };
_Static_assert((int)CHANNELS_OF_SPAN <= (int)MOST_UNTESTED_CHANNELS, "the sum of v needs no test");

INLINE int are_overlapped(const struct reduction_work *work, size_t rows) {
    return LANES == 16 && work->arguments->overlaps_groups && work->arguments->channels == CHANNELS_OF_SPAN &&
           rows >= LEAST_OVERLAPPED_ROWS && !has_typed_rows(work) && !work->arguments->dsum;
}

/* Groups from the one at hand on, up to one with rows that are not ordinary, or have a residual. */
INLINE void overlap_groups(struct reduction_work *work, struct even_rows *group, struct lanes_of_group *sums,
                           const float *weight, size_t rows, int is_centered) {
    const struct column_kind columns = {COLUMNS, DYNNORM_F32, is_centered, 0};
    const size_t end = work->first_row + rows, stride = group->stride;
    work->has_residual = 0;
    int are_usual = sum_short_rows(work, group, weight, is_centered) == CONSTANTS_HOLD; /* and have no residual */
    while (are_usual) {
        /* The last group has no next one: it is summed once more, which does no harm. */
        const size_t next = work->first_row + GROUP < end ? GROUP : 0;
        struct row_ahead ahead = {
            sums,
            {.x = group->x + next * stride, .dy = group->dy + next * stride, .weight = weight, .type = DYNNORM_F32},
            is_centered ? work->arguments->mean + work->first_row + next : NULL,
            (ptrdiff_t)stride};
        struct sums_of_rows of_rows;
        if (!apply_short_columns(work, group, weight, (struct place){0, LANES, 1}, columns, &ahead))
            backward_slow_columns(work, group, (struct block){0, CHANNELS_OF_SPAN}, ORDINARY);
        work->is_first = 0;
        group->x += GROUP * stride;
        group->dy += GROUP * stride;
        group->dx += GROUP * stride;
        work->first_row += GROUP;
        if (work->first_row == end)
            break;
        sum_lanes_of_rows(&of_rows, sums, 0, 0, is_centered);
        are_usual =
            find_constants_of(work, &of_rows, 0, GROUP, (struct constants_kind){is_centered, 1}) == CONSTANTS_HOLD;
    }
}

OUTLINED void overlap_groups_of_layernorm(struct reduction_work *work, struct even_rows *group,
                                          struct lanes_of_group *sums, const float *weight, size_t rows) {
    overlap_groups(work, group, sums, weight, rows, 1);
}

OUTLINED void overlap_groups_of_rmsnorm(struct reduction_work *work, struct even_rows *group,
                                        struct lanes_of_group *sums, const float *weight, size_t rows) {
    overlap_groups(work, group, sums, weight, rows, 0);
}

/* ---- All short rows ---- */

/* Typed rows that are converted together, whole groups of them, and where their floats are. */
enum { MOST_TYPED_ROWS = 4 * GROUP };
struct converted_rows {
    struct typed_place place;
    const float *x[MOST_TYPED_ROWS];
    const float *dy[MOST_TYPED_ROWS];
    float *dx[MOST_TYPED_ROWS];
};

/* As many as fit into the buffers or, where rows come from memory, into half of each: on a Zen 3 those of 64 channels
 * took 1.1 to 1.16 times as long there with all of it, and in the caches 0.83 to 1.0 times. AVX-512 does the same,
 * unmeasured. */
INLINE size_t typed_rows_at_once(const struct reduction_work *work) {
    const size_t floats = work->arguments->streams ? LEAST_TYPED_ROOM / 2 : LEAST_TYPED_ROOM;
    const size_t rows = floats / stride_of_whole_lines(work->arguments->channels) / GROUP * GROUP;
    return rows < GROUP ? GROUP : rows < MOST_TYPED_ROWS ? rows : MOST_TYPED_ROWS;
}

/* Converts such rows, up to so many from work->first_row on, and finds the first group of them. Gives 0 if they are not
 * equally far apart. */
OUTLINED int convert_typed_rows(struct converted_rows *converted, struct even_rows *group,
                                const struct reduction_work *work, size_t rows) {
    const size_t channels = work->arguments->channels, most = typed_rows_at_once(work);
    const int count = (int)(rows < most ? rows : most);
    converted->place =
        (struct typed_place){work->first_row, count, {0, channels}, typed_rows_ahead(work, count), 0, channels};
    READ_TYPED_ROWS(work->arguments, &converted->place, converted->x, converted->dy, converted->dx);
    const ptrdiff_t stride = converted->x[1] - converted->x[0];
    *group = (struct even_rows){converted->x[0], converted->dy[0], converted->dx[0], (size_t)stride, NULL, 0};
    return converted->dy[1] - converted->dy[0] == stride && converted->dx[1] - converted->dx[0] == stride;
}

/* Rows that are not of floats become such, at distances of which nothing is known before. */
INLINE int may_be_even(const struct reduction_work *work) {
    return has_typed_rows(work) || (work->x.stride == work->dy.stride && work->x.stride == work->dx.rows.stride);
}

/* To rows of floats. */
OUTLINED void add_dsum_to_short_rows(struct reduction_work *work, const struct even_rows *group) {
    const struct tensor *dsum = work->arguments->dsum;
    const size_t channels = work->arguments->channels;
    if (dsum->axes == 1 && dsum->strides[0] == channels && group->stride == channels) {
        ADD_FLOATS(group->dx, group->dx, address_of_row(dsum, work->first_row), GROUP * channels);
        return;
    }
    find_rows(work);
    add_dsum_to_group(work);
}

/* Gives how many rows are done, in whole groups: none if they are not equally far apart. */
INLINE size_t backward_short(struct reduction_work *work, size_t first, size_t rows, int is_centered) {
    const size_t channels = work->arguments->channels;
    const float *weight = read_block(&work->weight, (struct block){0, channels});
    struct converted_rows converted;
    struct even_rows group = {NULL, NULL, NULL, work->x.stride, NULL, 0};
    if (!work->typed) {
        group.x = row_of(&work->x, first);
        group.dy = row_of(&work->dy, first);
        group.dx = row_of(&work->dx.rows, first);
    }
    work->rows = GROUP;
    work->has_all_floats = 1;
    work->is_first = !work->sums.continues;
    size_t end_of_converted = first;
    work->first_row = first;
    if (are_overlapped(work, rows) && !may_be_tiny(work, group.x, group.dy, DYNNORM_F32)) {
        struct lanes_of_group sums;
        if (is_centered)
            overlap_groups_of_layernorm(work, &group, &sums, weight, rows);
        else
            overlap_groups_of_rmsnorm(work, &group, &sums, weight, rows);
    }
    for (; work->first_row < first + rows; work->first_row += GROUP) {
        if (has_typed_rows(work) && work->first_row == end_of_converted) {
            if (!convert_typed_rows(&converted, &group, work, first + rows - work->first_row))
                break;
            end_of_converted += (size_t)converted.place.rows;
        }
        work->has_residual = 0;
        work->zero_rows = 0;
        int are_tiny = may_be_tiny(work, group.x, group.dy, DYNNORM_F32);
        if (are_tiny) {
            find_floats_of_group(work, &group);
            work->careful = 0;
            are_tiny = BEGIN_TINY_ROWS(work, 0, GROUP);
        }
        int hold = !are_tiny && sum_short_rows(work, &group, weight, is_centered) == CONSTANTS_HOLD;
        if (!hold && !are_tiny && is_centered) { /* which a residual may be the reason for, or a sum of v */
            find_floats_of_group(work, &group);
            hold = FIND_CONSTANTS(work, &work->sums_of_rows, 0, GROUP);
        }
        if (!hold)
            backward_slow_columns(work, &group, (struct block){0, channels}, are_tiny ? BEGUN : NOT_BEGUN);
        else
            apply_short_rows(work, &group, weight, is_centered);
        if (HAS_TYPES && work->arguments->dsum)
            add_dsum_to_short_rows(work, &group);
        if (has_typed_rows(work) && work->first_row + GROUP == end_of_converted)
            WRITE_TYPED_ROWS(work->arguments, &converted.place, converted.dx);
        work->is_first = 0;
        group.x += GROUP * group.stride;
        group.dy += GROUP * group.stride;
        group.dx += GROUP * group.stride;
    }
    return work->first_row - first;
}

#endif
