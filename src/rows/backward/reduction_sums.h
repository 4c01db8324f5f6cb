/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm: the sums of rows, and the constants that they give. See
 * backward/normalization.h.
 */
#ifndef DYNNORM_BACKWARD_REDUCTION_SUMS_H
#define DYNNORM_BACKWARD_REDUCTION_SUMS_H

#include "operations/backward_statistics.h"
#include "rows/backward/reduction_work.h"
#include "rows/floats.h"
#include "rows/group_vectors.h"

#include <math.h>

/* What float can hold: rstd, the products and constants that the sums give, and what they would lose to underflow. */
#define BITS_OF_INFINITY BITS_OF_POWER(128)
#define LEAST_RSTD BITS_OF_POWER(-40)
#define LEAST_TERM BITS_OF_POWER(-60)
#define LEAST_N_TERM BITS_OF_POWER(-100)
#define LEAST_TERM_TO_ASK 0x1p-61
#define SPAN_OF_TERMS (160u << 23)    /* from the bits of each of these to those of 2^160 times it */
#define MOST_SCALED BITS_OF_POWER(12) /* of mean rstd, a scaled residual rstd, and h_term 2^-88 */

/* A sum over the tokens of a group: the products of dy and rstd that it is made of may have lost 2^-150 each. What is
 * multiplied to that, x - mean, is not greater than 2^8 / rstd in up to 65536 channels. So eight terms lose less than a
 * tenth of a rounding of a sum of this size over rstd. The second one is the same for LEAST_RSTD. */
#define LEAST_SUM_OF_PRODUCTS 0x1p-112
#define LEAST_SUM BITS_OF_POWER(-72)
#define LEAST_SUM_AS_FLOAT 0x1p-72f /* the float with these bits */

/* In deviations: the largest mean, and how far the float that stands for it may be from it. Rounding a mean of this
 * size takes it no farther. x - mean is off by as much: docs/bounds.md counts what that does. A larger mean may lack
 * less, as that of a constant row does; the sums of such a row are made in double first. */
#define MOST_MEAN 0x1p12
#define MOST_RESIDUAL 0x1p-12
#define MOST_RESIDUAL_OF_LARGER_MEAN 0x1p-20

/* residual rstd: what it does to dweight is less than a rounding. */
#define NEGLIGIBLE_RESIDUAL BITS_OF_POWER(-24)

/* What it is multiplied with, so that MOST_RESIDUAL, or what is still negligible, becomes MOST_SCALED. */
#define SCALE_OF_RESIDUAL 0x1p24f
#define SCALE_OF_NEGLIGIBLE_RESIDUAL 0x1p36f

/* How many times what mean(abs(h n)) is at least mean(h) may be, squared, where v is summed in float. */
#define MOST_MEAN_SQUARED 4

/* Whether that is so of a row, as find_constants asks it of all rows at once. */
INLINE int v_is_exact(double rstd, double h, double absolute_hv) {
    const double hn = rstd * absolute_hv;
    return hn * MOST_MEAN_SQUARED * hn - h * h >= 0;
}

/* What is known of the rows when compiling. */
struct constants_kind {
    int is_centered;
    int refuses_residuals; /* the constants do not hold where a row has one, and v is not tested */
};

/* The constants of all rows of a group at once. */
INLINE enum constants_found find_constants_of(struct reduction_work *work, const struct sums_of_rows *sums, int first,
                                              int rows, struct constants_kind kind) {
    const int is_centered = kind.is_centered;
    const float *means = work->arguments->mean + work->first_row + first;
    const float *rstds = work->arguments->rstd + work->first_row + first;
    struct group_constants *constants = work->constants;
    const group_wide share = group_wide_set(work->reciprocal);
    group_vec least = group_vec_set(0), most = group_vec_set(0), room = group_vec_set(0);
#pragma GCC unroll 2
    for (int i = 0; i < GROUP; i += GROUP_LANES) {
        const group_vec rstd = group_vec_load_n(rstds + i, rows - i, group_vec_set(1));
        const group_vec mean = is_centered ? group_vec_load_n(means + i, rows - i, group_vec_set(0)) : group_vec_set(0);
        group_vec_store(constants->rstd + first + i, rstd);
        const group_wide r = group_vec_widen(rstd);
        const group_wide zero = group_wide_set(0); /* which makes 0 of -0, as the sum of several blocks may */
        group_wide cov = group_wide_fma(group_wide_load(sums->hv + i), share, zero);
        group_wide h = share, residual = share;
        if (is_centered) {
            const group_wide h_sum = group_wide_load(sums->h + i);
            if (!kind.refuses_residuals) {
                const group_wide hn = group_wide_mul(r, group_wide_load(sums->absolute_hv + i)),
                                 most_h = group_wide_mul(group_wide_mul(hn, group_wide_set(MOST_MEAN_SQUARED)), hn);
                /* Negative, or NaN, where there is none. */
                room =
                    group_vec_max_bits(room, group_wide_narrow(group_wide_sub(most_h, group_wide_mul(h_sum, h_sum))));
            }
            h = group_wide_fma(h_sum, share, zero);
            residual = group_wide_fma(group_wide_load(sums->v + i), share, zero);
            cov = group_wide_sub(cov, group_wide_mul(residual, h));
        }
        const group_wide term = group_wide_mul(r, cov),
                         n_term = group_wide_mul(group_wide_mul(group_wide_mul(r, r), term), group_wide_set(-1));
        group_vec n_terms = group_wide_narrow(n_term);
        group_vec_store(constants->n_term + first + i, n_terms);
        const group_vec terms[3] = {
            group_vec_bits_minus(group_vec_abs(rstd), LEAST_RSTD),
            group_vec_bits_minus(group_vec_abs(group_wide_narrow(term)), LEAST_TERM),
            group_vec_bits_minus(group_vec_abs(n_terms), LEAST_N_TERM),
        };
        for (int k = 0; k < 3; k++)
            least = group_vec_max_bits(least, terms[k]);
        if (!is_centered)
            continue;
        group_vec_store(constants->minus_mean + first + i, group_vec_mul(mean, group_vec_set(-1)));
        const group_wide h_term =
            group_wide_mul(group_wide_add(group_wide_mul(r, h), group_wide_mul(residual, n_term)), group_wide_set(-1));
        group_vec h_terms = group_wide_narrow(h_term);
        group_vec_store(constants->h_term + first + i, h_terms);
        most = group_vec_max_bits(most, group_vec_abs(group_vec_mul(mean, rstd)));
        const group_vec far = group_vec_abs(group_wide_narrow(group_wide_mul(residual, r)));
        group_vec residuals = group_vec_set(0);
        if (!kind.refuses_residuals) {
            work->has_residual |= group_vec_any_bits_above(far, NEGLIGIBLE_RESIDUAL);
            residuals = group_vec_select_outside(far, 0, NEGLIGIBLE_RESIDUAL, group_wide_narrow(residual), residuals);
        }
        group_vec_store(constants->residual + first + i, residuals);
        const float scale = kind.refuses_residuals ? SCALE_OF_NEGLIGIBLE_RESIDUAL : SCALE_OF_RESIDUAL;
        most = group_vec_max_bits(most, group_vec_mul(far, group_vec_set(scale)));
        most = group_vec_max_bits(most, group_vec_abs(group_vec_mul(h_terms, group_vec_set(0x1p-88f))));
    }
    if (group_vec_any_bits_above(least, SPAN_OF_TERMS) || (is_centered && group_vec_any_bits_above(most, MOST_SCALED)))
        return CONSTANTS_DO_NOT_HOLD;
    return is_centered && !kind.refuses_residuals && group_vec_any_bits_above(room, BITS_OF_INFINITY) ? V_MAY_BE_INEXACT
                                                                                                      : CONSTANTS_HOLD;
}

INLINE enum constants_found find_constants(struct reduction_work *work, const struct sums_of_rows *sums, int first,
                                           int rows, int is_centered) {
    return find_constants_of(work, sums, first, rows, (struct constants_kind){is_centered, 0});
}

/* What stands for the sums of rows that are missing. */
INLINE void begin_sums_of_rows(struct sums_of_rows *sums, size_t channels, int is_centered) {
    eight_store(sums->hv, eight_set((double)channels));
    if (is_centered) {
        eight_store(sums->h, eight_set(0));
        eight_store(sums->v, eight_set(0));
        eight_store(sums->absolute_hv, eight_set(0));
    }
}

INLINE void set_sums_of_row(struct sums_of_rows *sums, int row, struct reduction_sums of_row, int is_centered) {
    sums->hv[row] = of_row.hv;
    if (is_centered) {
        sums->h[row] = of_row.h;
        sums->v[row] = of_row.v;
        sums->absolute_hv[row] = of_row.absolute_hv;
    }
}

/* The sums of a pair of rows, stored as vectors: what is stored one by one cannot be loaded as a vector before it is in
 * the cache. */
INLINE void set_sums_of_pair(struct sums_of_rows *sums, const struct reduction_sums pair[2], size_t channels,
                             int is_centered) {
    eight_store(sums->hv, eight_of_two(pair[0].hv, pair[1].hv, (double)channels));
    if (is_centered) {
        eight_store(sums->h, eight_of_two(pair[0].h, pair[1].h, 0));
        eight_store(sums->v, eight_of_two(pair[0].v, pair[1].v, 0));
        eight_store(sums->absolute_hv, eight_of_two(pair[0].absolute_hv, pair[1].absolute_hv, 0));
    }
}

/* What the sums of abs(h v) of a group are at least. */
INLINE eight absolute_sums_of_rows(const eight hv[GROUP]) {
    eight absolute[GROUP];
#pragma GCC unroll 8
    for (int row = 0; row < GROUP; row++)
        absolute[row] = eight_abs(hv[row]);
    return eight_sums(absolute);
}

/* Finishes the sums of a block of channels. */
INLINE void add_lanes_of_row(struct reduction_sums *sums, const struct lanes_of_row *lanes, const wide v_sum[PARTS],
                             int is_centered) {
    sums->hv += eight_sum(lanes->hv);
    if (is_centered) {
        sums->h += eight_sum(lanes->h);
        sums->v += eight_sum(wide_fold(v_sum));
        sums->absolute_hv += eight_sum(eight_abs(lanes->hv));
    }
}

/* What the sums of a row begin with. */
INLINE struct reduction_sums no_sums(const struct reduction_work *work) {
    return (struct reduction_sums){0, 0, 0, work->tests_v ? 0 : (double)INFINITY};
}

INLINE void add_reduction_sums(struct reduction_sums *sums, struct reduction_sums more) {
    sums->h += more.h;
    sums->hv += more.hv;
    sums->v += more.v;
    sums->absolute_hv += more.absolute_hv;
}

/* How many elements ahead of those that are summed rows from memory are prefetched. */
INLINE ptrdiff_t elements_to_sum_ahead(size_t stride, size_t channels, dynnorm_type type) {
    enum { BYTES_AHEAD = 4096 };
    return (ptrdiff_t)prefetch_distance(BYTES_AHEAD / (type == DYNNORM_F32 ? sizeof(float) : HALF_BYTES), channels,
                                        stride);
}

/* Of rows of a type, at some channels whose last span is of the given kind. A weight that is made up in a buffer is
 * made up for each row; rows of 16 bits have one that is not. */
INLINE struct reduction_sums sum_row_of(const struct reduction_work *work, int row, struct block channels,
                                        dynnorm_type type, struct span_kind last, struct summing how) {
    const int is_centered = how.is_centered;
    const float *x = work->x_rows[row], *dy = work->dy_rows[row];
    const float mean = is_centered ? load_float(work->arguments->mean + work->first_row + row) : 0;
    const size_t end = channels.first + channels.count;
    struct reduction_sums sums = no_sums(work);
    struct lanes_of_row lanes;
    wide v_sum[PARTS];
    /* What is added to dx comes from memory, too. The CPU does not fetch it ahead when dx is computed, since few
       channels of each row are read then, and waits for it more than for anything else. A single row is added to as a
       whole, which the CPU does fetch. */
    const int fetches_dsum = HAS_TYPES && LANES > 1 && type == DYNNORM_F32 && work->fetches_dsum;
    begin_lanes_of_row(&lanes, v_sum);
    for (size_t channel = channels.first; channel < end; channel += BLOCK) {
        const struct block block = block_at(channel, end);
        ptrdiff_t count = (ptrdiff_t)block.count;
        struct reduction_block values = {x + channel, dy + channel,         work->weight.values + channel, mean,
                                         type,        work->x_to_sum_ahead, work->dy_to_sum_ahead};
        if (fetches_dsum)
            prefetch_block(work->dsum_rows[row], block);
        if (type == DYNNORM_F32) {
            values.weight = read_block(&work->weight, block);
        } else {
            values.x = elements_after(x, (ptrdiff_t)channel, type);
            values.dy = elements_after(dy, (ptrdiff_t)channel, type);
            KEEP_IN_REGISTER(count); /* lest there is another loop for whole blocks, which is code to save here */
        }
        add_spans_of_row(&lanes, v_sum, &values, count, last, how);
        if (!ends_summed_block(block, end))
            continue;
        add_lanes_of_row(&sums, &lanes, v_sum, is_centered);
        begin_lanes_of_row(&lanes, v_sum);
    }
    return sums;
}

/* This is compiled once for each operation. */
OUTLINED struct reduction_sums sum_row_of_layernorm(const struct reduction_work *work, int row, struct block channels) {
    return sum_row_of(work, row, channels, DYNNORM_F32, unknown_span,
                      (struct summing){.is_centered = 1, .prefetches = PREFETCHES_ROWS});
}

OUTLINED struct reduction_sums sum_row_of_rmsnorm(const struct reduction_work *work, int row, struct block channels) {
    return sum_row_of(work, row, channels, DYNNORM_F32, unknown_span, (struct summing){.prefetches = PREFETCHES_ROWS});
}

/* Of a row that is split. */
INLINE struct reduction_sums sums_of_split_block(const double *of_block, int is_centered) {
    return (struct reduction_sums){is_centered ? of_block[SPLIT_H] : 0, of_block[SPLIT_HV],
                                   is_centered ? of_block[SPLIT_V] : 0, is_centered ? of_block[SPLIT_ABSOLUTE_HV] : 0};
}

INLINE size_t number_in_split(const struct reduction_work *work, int row) {
    return work->arguments->split_row + work->first_row + (size_t)row;
}

OUTLINED struct reduction_sums sum_split_row(struct reduction_work *work, int row) {
    const int is_centered = work->is_centered;
    struct reduction_sums sums = no_sums(work);
    struct split_block block = before_split_blocks();
    while (next_split_block(&block, work->split, number_in_split(work, row), BACKWARD_SPLIT_DOUBLES(is_centered))) {
        add_reduction_sums(&sums, sums_of_split_block(block.sums, is_centered));
    }
    return sums;
}

/* Of a row that is not of floats. */
OUTLINED struct reduction_sums sum_typed_row(struct reduction_work *work, int row) {
    const size_t channels = work->arguments->channels;
    struct reduction_sums sums = no_sums(work);
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        read_row_if_typed(work, row, block);
        add_reduction_sums(&sums, work->sum_row(work, row, block));
    }
    return sums;
}

/* Whether there is a loop for two rows. For LayerNorm with AVX2 it would take 6 KB of code to gain 2 to 3 percent. */
INLINE int can_sum_two_rows(int is_centered) {
    return LANES == 16 || (LANES == 8 && !is_centered);
}

/* The sums of two rows of floats, which are whole blocks of channels, with a weight that is in its place. At the end of
 * a row's sums each step waits for the one before; this way both rows come to their ends together. Up to there one row
 * is summed after the other: where they took turns after each block, rows of 768 and 1024 channels took 1 to 1.06 times
 * as long with AVX-512 on a Zen 5. */
INLINE void sum_two_rows(struct reduction_sums sums[2], const struct pair_block *pair, const float *means,
                         size_t channels, int is_centered) {
    _Static_assert((int)BLOCK > (int)MOST_UNTESTED_CHANNELS, "rows of whole blocks are tested");
    const struct summing how = {.is_centered = is_centered, .is_whole_block = 1};
    struct reduction_block values[2];
    struct lanes_of_row lanes[2];
    wide v_sum[2][PARTS];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        values[i] = (struct reduction_block){.x = pair->x[i],
                                             .dy = pair->dy[i],
                                             .weight = pair->weight,
                                             .mean = is_centered ? load_float(means + i) : 0,
                                             .type = DYNNORM_F32};
        sums[i] = (struct reduction_sums){0, 0, 0, 0};
    }
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const size_t count = channels_of_summed_block(first, channels);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            begin_lanes_of_row(&lanes[i], v_sum[i]);
            for (size_t done = 0; done < count; done += BLOCK) {
                add_spans_of_row(&lanes[i], v_sum[i], &values[i], BLOCK, no_span, how);
                values[i].x += BLOCK;
                values[i].dy += BLOCK;
                values[i].weight += BLOCK;
            }
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            add_lanes_of_row(&sums[i], &lanes[i], v_sum[i], is_centered);
    }
}

/* This is compiled once for each operation. */
OUTLINED void sum_two_rows_of_layernorm(struct reduction_sums sums[2], const struct pair_block *pair,
                                        const float *means, size_t channels) {
    if (can_sum_two_rows(1))
        sum_two_rows(sums, pair, means, channels, 1);
}

/* These are returned in registers, but for Windows. */
struct hv_of_two {
    double hv[2];
};

OUTLINED struct hv_of_two sum_two_rows_of_rmsnorm(const struct pair_block *pair, size_t channels) {
    struct reduction_sums sums[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (can_sum_two_rows(0))
        sum_two_rows(sums, pair, NULL, channels, 0);
    return (struct hv_of_two){{sums[0].hv, sums[1].hv}};
}

/* The pair begins with the given row of the group. */
INLINE void sum_pair(struct reduction_sums sums[2], const struct reduction_work *work, const struct pair_block *pair,
                     int row, size_t channels, int is_centered) {
    if (is_centered) {
        sum_two_rows_of_layernorm(sums, pair, work->arguments->mean + work->first_row + row, channels);
    } else {
        const struct hv_of_two of_two = sum_two_rows_of_rmsnorm(pair, channels);
        sums[0] = (struct reduction_sums){0, of_two.hv[0], 0, 0};
        sums[1] = (struct reduction_sums){0, of_two.hv[1], 0, 0};
    }
}

/* Rows of 16 bits are looked at where they lie. */
INLINE int row_may_be_tiny(const struct reduction_work *work, int row) {
    if (!SUBNORMALS_ARE_SLOW || (HAS_SPLIT_ROWS && work->split))
        return 0;
    if (!has_typed_rows(work))
        return may_be_tiny(work, work->x_rows[row], work->dy_rows[row], DYNNORM_F32);
    const size_t index = work->first_row + (size_t)row;
    return work->typed->halves == DYNNORM_BF16 &&
           may_be_tiny(work, (const float *)address_of_row(&work->arguments->x, index),
                       (const float *)address_of_row(&work->arguments->dy, index), DYNNORM_BF16);
}

/* The sums of rows [first, first + rows) of the group, and their constants. Sums in float of a subnormal dy or x cannot
 * be trusted; where they were made first, such rows took 20 to 40 times as long as others, with AVX-512 on an Emerald
 * Rapids. */
INLINE void begin_rows_of(struct reduction_work *work, int first, int rows, size_t channels, int is_centered) {
    struct sums_of_rows *sums = &work->sums_of_rows;
    struct reduction_sums of_two[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (!work->statistics_are_given) {
        CAREFUL_ROWS(work, first, rows);
        return;
    }
    if (row_may_be_tiny(work, first) && BEGIN_TINY_ROWS(work, first, rows))
        return;
    begin_sums_of_rows(sums, channels, is_centered);
    const int by_twos = can_sum_two_rows(is_centered) && work->sums_two_rows ? rows / 2 * 2 : 0;
    int i = 0;
#pragma GCC unroll 1
    for (; i < by_twos; i += 2) {
        const int row = first + i;
        const struct pair_block pair = {.weight = work->weight.values,
                                        .x = {work->x_rows[row], work->x_rows[row + 1]},
                                        .dy = {work->dy_rows[row], work->dy_rows[row + 1]}};
        sum_pair(of_two, work, &pair, row, channels, is_centered);
        set_sums_of_row(sums, i, of_two[0], is_centered);
        set_sums_of_row(sums, i + 1, of_two[1], is_centered);
    }
#pragma GCC unroll 1
    for (; i < rows; i++) {
        const struct block row = {0, channels};
        const struct reduction_sums of_row = work->special_sum ? work->special_sum(work, first + i)
                                             : is_centered     ? sum_row_of_layernorm(work, first + i, row)
                                                               : sum_row_of_rmsnorm(work, first + i, row);
        set_sums_of_row(sums, i, of_row, is_centered);
    }
    if (!FIND_CONSTANTS(work, sums, first, rows))
        CAREFUL_ROWS(work, first, rows);
}

/* This is compiled once for each operation. */
OUTLINED void begin_rows_of_layernorm(struct reduction_work *work, int first, int rows) {
    begin_rows_of(work, first, rows, work->arguments->channels, 1);
}

OUTLINED void begin_rows_of_rmsnorm(struct reduction_work *work, int first, int rows) {
    begin_rows_of(work, first, rows, work->arguments->channels, 0);
}

INLINE void begin_rows(struct reduction_work *work, int first, int rows, int is_centered) {
    if (is_centered)
        begin_rows_of_layernorm(work, first, rows);
    else
        begin_rows_of_rmsnorm(work, first, rows);
}

#endif
