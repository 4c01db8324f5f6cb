/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for rows that float cannot hold, for sums over tokens that overflow, and
 * for the sums of rows whose statistics are not given: in vectors of doubles, in which nothing that is made of a few
 * floats overflows, underflows or cancels. It is compiled once for each table, for both operations.
 */
#ifndef DYNNORM_BACKWARD_CAREFUL_REDUCTION_H
#define DYNNORM_BACKWARD_CAREFUL_REDUCTION_H

#include "rows/backward/reduction.h"
#include "rows/floats.h"
#include "rows/places.h"

#include <float.h>
#include <math.h>

/* ---- Rows ---- */

/* The sums of a row, of x less the shift. */
struct sums_in_double {
    double x;
    double xx;
    double h;
    double hx;
    double hh;
    double weight; /* of a row that is split: the largest abs(w) */
};

/* Lane k takes channels k, k + 16, k + 32 and so on, each term exact or rounded once. */
struct lanes_in_double {
    wide x[PARTS];
    wide xx[PARTS];
    wide h[PARTS];
    wide hx[PARTS];
    wide hh[PARTS];
};

INLINE void add_in_double(struct lanes_in_double *sums, const struct reduction_block *block, size_t count, wide shift,
                          int is_centered) {
    static const float one_each[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        wide x_sum = sums->x[part], xx = sums->xx[part], h_sum = sums->h[part], hx = sums->hx[part];
        wide hh = sums->hh[part];
        ptrdiff_t i = LANES * part;
        for (; i + LANES <= (ptrdiff_t)count; i += 16) {
            const wide x =
                is_centered ? wide_sub(wide_load_floats(block->x + i), shift) : wide_load_floats(block->x + i);
            const wide h = wide_mul(wide_load_floats(block->weight + i), wide_load_floats(block->dy + i));
            x_sum = is_centered ? wide_add(x_sum, x) : x_sum;
            xx = wide_fma(x, x, xx);
            h_sum = is_centered ? wide_add(h_sum, h) : h_sum;
            hx = wide_fma(h, x, hx);
            hh = wide_fma(h, h, hh);
        }
        const ptrdiff_t left = (ptrdiff_t)count - i;
        if (left > 0) {
            const struct place place = {i, left, 0};
            wide x = wide_sub(vec_widen(load_vector(block->x, place, vec_set(0))), shift);
            wide h = wide_mul(vec_widen(load_vector(block->weight, place, vec_set(0))),
                              vec_widen(load_vector(block->dy, place, vec_set(0))));
            /* Without channels x becomes 0 or -0; or NaN, if the shift is no number, as the row then is in any case. */
            x = wide_mul(x, vec_widen(vec_load_n(one_each, left, vec_set(0))));
            x_sum = is_centered ? wide_add(x_sum, x) : x_sum;
            xx = wide_fma(x, x, xx);
            h_sum = is_centered ? wide_add(h_sum, h) : h_sum;
            hx = wide_fma(h, x, hx);
            hh = wide_fma(h, h, hh);
        }
        sums->x[part] = x_sum, sums->xx[part] = xx, sums->h[part] = h_sum, sums->hx[part] = hx, sums->hh[part] = hh;
    }
}

/* Adds the sums of a block whose sums are finished by themselves. */
OUTLINED void add_block_in_double(struct sums_in_double *result, const struct reduction_work *work, int row,
                                  struct block of_row, double shift) {
    const float *x = work->x_rows[row], *dy = work->dy_rows[row];
    const size_t end = of_row.first + of_row.count;
    struct lanes_in_double sums;
    for (int part = 0; part < PARTS; part++)
        sums.x[part] = sums.xx[part] = sums.h[part] = sums.hx[part] = sums.hh[part] = wide_set(0);
    /* A weight that lies in memory as it is is one block. */
    const size_t most = work->weight.values && work->weight.offset == 0 ? of_row.count : BLOCK;
    for (size_t channel = of_row.first; channel < end; channel += most) {
        const struct block block = {channel, end - channel < most ? end - channel : most};
        const struct reduction_block values = {
            .x = x + channel, .dy = dy + channel, .weight = read_block(&work->weight, block), .type = DYNNORM_F32};
        if (work->is_centered)
            add_in_double(&sums, &values, block.count, wide_set(shift), 1);
        else
            add_in_double(&sums, &values, block.count, wide_set(0), 0);
    }
    result->x += eight_sum(wide_fold(sums.x));
    result->xx += eight_sum(wide_fold(sums.xx));
    result->h += eight_sum(wide_fold(sums.h));
    result->hx += eight_sum(wide_fold(sums.hx));
    result->hh += eight_sum(wide_fold(sums.hh));
}

/* The sum of x - mean over such a block, as the function above makes it. */
OUTLINED double sum_v_of_block(const struct reduction_work *work, int row, struct block block, float mean) {
    const float *x = work->x_rows[row] + block.first;
    const ptrdiff_t count = (ptrdiff_t)block.count;
    const wide shift = wide_set((double)mean);
    wide sums[PARTS];
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        wide sum = wide_set(0);
        ptrdiff_t i = LANES * part;
        for (; i + LANES <= count; i += 16)
            sum = wide_add(sum, wide_sub(wide_load_floats(x + i), shift));
        if (i < count)
            sum = wide_add(sum,
                           wide_sub(vec_widen(load_vector(x, (struct place){i, count - i, 0}, vec_set(mean))), shift));
        sums[part] = sum;
    }
    return eight_sum(wide_fold(sums));
}

/* Whether the sums of a block of a row with given statistics, one block of several, can be trusted by themselves. That
 * depends on these alone, so that the machines that share a row need not ask one another. The given mean must be near
 * the block's own: floats of x - mean would lose what a wrong mean makes of them. docs/bounds.md counts what is lost
 * within these limits. */
RARE int is_trusted_reduction(struct reduction_sums sums, size_t channels, double mean, double rstd, int is_centered) {
    const double share = fabs(rstd) / (double)channels, cov = fabs(sums.hv) * share;
    const double far = is_centered ? fabs(sums.v) * share : 0;
    return fabs(rstd) >= 0x1p-40 && fabs(rstd) <= 0x1p60 && fabs(mean * rstd) <= 16 && far <= 0x1p-2 &&
           cov >= 0x1p-50 && cov <= 0x1p90 && fabs(sums.h) * share <= 0x1p90;
}

/* Such a block's sums, less its mean; that of v is one of doubles. The sums of squares are not known then: that of h
 * becomes NaN, with which no row is taken to be one that float can hold. */
INLINE void add_trusted_block(struct sums_in_double *result, struct reduction_sums sums, double v) {
    result->x += v;
    result->h += sums.h;
    result->hx += sums.hv;
    result->hh = (double)NAN;
}

/* Of a row that is split. */
INLINE void sum_split_in_double(struct sums_in_double *result, const struct reduction_work *work, int row,
                                double shift) {
    const int is_centered = work->is_centered;
    const double rstd = (double)load_float(work->arguments->rstd + work->first_row + (size_t)row);
    struct split_block block = before_split_blocks();
    while (next_split_block(&block, work->split, number_in_split(work, row), BACKWARD_SPLIT_DOUBLES(is_centered))) {
        const struct reduction_sums sums = sums_of_split_block(block.sums, is_centered);
        const double weight = block.sums[SPLIT_GREATEST_WEIGHT];
        if (work->split->blocks > 1 && is_trusted_reduction(sums, block.channels, shift, rstd, is_centered)) {
            add_trusted_block(result, sums, is_centered ? block.sums[SPLIT_CAREFUL_X] : 0);
            continue;
        }
        result->hx += block.sums[SPLIT_CAREFUL_HX];
        result->xx += block.sums[SPLIT_CAREFUL_XX];
        result->hh += block.sums[SPLIT_CAREFUL_HH];
        result->weight = weight > result->weight || weight != weight ? weight : result->weight;
        if (is_centered) {
            result->x += block.sums[SPLIT_CAREFUL_X];
            result->h += block.sums[SPLIT_CAREFUL_H];
        }
    }
}

/* Where is_first, blocks are taken by themselves. */
RARE void sum_in_double(struct sums_in_double *result, struct reduction_work *work, int row, double shift,
                        int is_first) {
    const struct backward_arguments *arguments = work->arguments;
    const size_t channels = arguments->channels, index = work->first_row + (size_t)row;
    *result = (struct sums_in_double){0, 0, 0, 0, 0, 0};
    if (HAS_SPLIT_ROWS && work->split) {
        sum_split_in_double(result, work, row, shift);
        return;
    }
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        read_row_if_typed(work, row, block);
        if (is_first && work->statistics_are_given && channels > SUMMED_BLOCK && !work->are_tiny) {
            const struct reduction_sums sums = work->sum_row(work, row, block);
            if (is_trusted_reduction(sums, block.count, shift, (double)load_float(arguments->rstd + index),
                                     work->is_centered)) {
                add_trusted_block(result, sums, work->is_centered ? sum_v_of_block(work, row, block, (float)shift) : 0);
                continue;
            }
        }
        add_block_in_double(result, work, row, block, shift);
    }
}

/* How many times the variance the mean square of x - shift may be, or its mean the deviation, lest too much cancels. */
#define MOST_SQUARE 0x1p22
#define MOST_SHIFTED 0x1p11

RARE void find_careful_row(struct careful_row *result, struct sums_in_double *sums, struct reduction_work *work,
                           int row) {
    const struct backward_arguments *arguments = work->arguments;
    const size_t index = work->first_row + (size_t)row;
    const int is_centered = work->is_centered, is_given = work->statistics_are_given;
    double shift = 0, mean = 0, rstd = arguments->rstd ? (double)load_float(arguments->rstd + index) : 0;
    /* With an element of the row as the shift, a constant row has exactly its own value as its mean. */
    read_row_if_typed(work, row, (struct block){0, channels_of_summed_block(0, arguments->channels)});
    if (is_centered)
        shift = (double)(is_given ? load_float(arguments->mean + index) : load_float(work->x_rows[row]));
    for (int again = 0; again < 2; again++) {
        sum_in_double(sums, work, row, shift, again == 0);
        mean = is_centered ? sums->x * work->reciprocal : 0;
        double square = sums->xx * work->reciprocal, under_root = square - mean * mean + work->eps;
        if (!arguments->rstd)
            rstd = under_root > 0 ? 1 / sqrt(under_root) : 0;
        int holds = is_given ? fabs(mean * rstd) <= MOST_SHIFTED : square <= MOST_SQUARE * under_root;
        if (!(sums->xx <= 0x1p300)) { /* there is an infinity or a NaN in the row */
            mean = rstd = (double)NAN;
            break;
        }
        if (!is_centered || holds || again || (HAS_SPLIT_ROWS && work->split))
            break;
        shift += mean;
    }
    double h = is_centered ? sums->h * work->reciprocal : 0, hx = sums->hx * work->reciprocal;
    result->mean = shift + mean;
    result->rstd = rstd;
    result->hn = rstd * (hx - mean * (sums->h * work->reciprocal));
    result->n_term = -(rstd * rstd * result->hn);
    result->h_term = 0 - rstd * h; /* not -0, so that dx of a row whose dy is 0 is 0, whatever the signs of x - mean */
}

/* The largest abs(w) of the call. */
INLINE float find_greatest_weight(const struct reduction_work *work) {
    const size_t channels = work->arguments->channels;
    vec greatest = vec_set(0);
    float lanes[LANES], result = 0;
    for (size_t channel = 0; channel < channels; channel += BLOCK) {
        struct block block = block_at(channel, channels);
        const float *weight = read_block(&work->weight, block);
        for (size_t i = 0; i < block.count; i += LANES)
            greatest = vec_max_bits(greatest, vec_abs(load_vector(weight, place_at(i, block.count), vec_set(0))));
    }
    vec_store(lanes, greatest);
    for (int lane = 0; lane < LANES; lane++)
        result = result < lanes[lane] || lanes[lane] != lanes[lane] ? lanes[lane] : result;
    return result;
}

RARE float greatest_weight(struct reduction_work *work) {
    if (work->greatest_weight < 0)
        work->greatest_weight = find_greatest_weight(work);
    return work->greatest_weight;
}

/* What a mean of so many deviations may lack. With a larger one most rows lack more, and a group of which float takes
 * some rows takes more time than one of which it takes none. */
INLINE double most_residual(double mean) {
    return mean <= MOST_MEAN ? MOST_RESIDUAL : MOST_RESIDUAL_OF_LARGER_MEAN;
}

/* Whether dx can be computed in float with a row's constants, found in double. Gives 2 where only that can be.
 *
 * dx is known to be within a bound that is a multiple of rstd times the root of the mean of h^2, or of more. What dy
 * rstd loses to an underflow is multiplied by w, what n_term loses by x - mean: neither may count against that. For
 * the first one 2^-242 would do; from 2^-216 on hardly any product is subnormal, which would take much time: see
 * rows/subnormals.h. The mean square of x - mean has that limit for this reason alone. */
INLINE int constants_hold(struct reduction_work *work, int row, const struct careful_row *careful,
                          const struct sums_in_double *sums) {
    struct group_constants *constants = work->constants;
    const double rstd = careful->rstd, mean = (double)(float)careful->mean, residual = careful->mean - mean;
    const double n_term = careful->n_term, h_term = careful->h_term - residual * n_term;
    constants->minus_mean[row] = (float)-mean;
    constants->rstd[row] = (float)rstd;
    constants->n_term[row] = (float)n_term;
    constants->h_term[row] = (float)h_term;
    constants->residual[row] = fabs(residual * rstd) > 0x1p-24 ? (float)residual : 0;
    if (mean != mean || (careful->hn != careful->hn && fabs(rstd) >= 0x1p-40 && fabs(rstd) <= 0x1p100)) {
        constants->n_term[row] = NAN; /* as is all of dx */
        return 1;
    }
    const double weight = HAS_SPLIT_ROWS && work->split ? sums->weight : (double)greatest_weight(work);
    const double least = rstd * rstd * (sums->hh * work->reciprocal);
    const int is_zero = sums->hh == 0 || rstd == 0;
    if (!(fabs(rstd) <= 0x1p100 && fabs(residual * rstd) <= most_residual(fabs(mean * rstd)) && sums->xx <= 0x1p250 &&
          fabs(h_term) <= 0x1p120 && fabs(n_term) <= 0x1p120 && n_term * n_term * sums->xx <= 0x1p240))
        return 0;
    if (!is_zero && !(weight * weight * 0x1p-216 <= least))
        return 0;
    if (sums->xx != 0 && !(sums->xx * work->reciprocal >= 0x1p-216))
        return 0;
    if (n_term != 0 && !(fabs(n_term) >= (double)FLT_MIN) && !(sums->xx * 0x1p-242 <= least))
        return 0;
    return fabs(rstd) >= 0x1p-40 || rstd == 0 ? 1 : 2;
}

/* The sum of v of a row in double. Rows that are not of floats lie where they lay. */
INLINE double sum_v_of_row(struct reduction_work *work, int row) {
    const size_t channels = work->arguments->channels;
    const float mean = load_float(work->arguments->mean + work->first_row + (size_t)row);
    const float *const x = work->x_rows[row], *const dy = work->dy_rows[row];
    float *const dx = work->dx_rows[row];
    double sum = 0;
    if (HAS_SPLIT_ROWS && work->split) {
        struct split_block block = before_split_blocks();
        while (next_split_block(&block, work->split, number_in_split(work, row), BACKWARD_SPLIT_DOUBLES(1)))
            sum += block.sums[SPLIT_CAREFUL_X];
        return sum;
    }
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        read_row_if_typed(work, row, block);
        sum += sum_v_of_block(work, row, block, mean);
    }
    work->x_rows[row] = x, work->dy_rows[row] = dy, work->dx_rows[row] = dx;
    return sum;
}

/* Of rows whose sum of v in float may not be exact enough. */
RARE void sum_v_again(struct reduction_work *work, struct sums_of_rows *sums, int first, int rows) {
    for (int i = 0; i < rows; i++) {
        const double rstd = (double)load_float(work->arguments->rstd + work->first_row + (size_t)(first + i));
        if (v_is_exact(rstd, sums->h[i], sums->absolute_hv[i]))
            continue;
        sums->v[i] = sum_v_of_row(work, first + i);
        sums->absolute_hv[i] = (double)INFINITY; /* nothing is left to be tested */
    }
}

FOR_SIZE float *DX_IN_BUFFER(struct reduction_work *work, int row, struct block block) {
    if (work->is_held || !work->dx.rows.data) /* dx that is not asked for goes to a buffer, too */
        return work->buffers[row].floats;
    return block_to_write(&work->dx, work->first_row + (size_t)row, block, &work->buffers[row]);
}

/* Whether dy is 0 in all channels of a row, as that of a padded token is, and x is such that constants_hold would let
 * the row pass. Rows that are not of floats lie where they lay. */
RARE int is_zero_row(struct reduction_work *work, int row) {
    const size_t channels = work->arguments->channels;
    const float *const x = work->x_rows[row], *const dy = work->dy_rows[row];
    float *const dx = work->dx_rows[row];
    const vec zero = vec_set(0);
    int is_zero = 1;
    for (size_t first = 0; is_zero && first < channels; first += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        read_row_if_typed(work, row, block);
        for (ptrdiff_t i = 0; is_zero && i < (ptrdiff_t)block.count; i += LANES) {
            const struct place place = {i, (ptrdiff_t)block.count - i, 0};
            const vec of_dy = vec_abs(load_vector(work->dy_rows[row] + first, place, zero)),
                      of_x = vec_abs(load_vector(work->x_rows[row] + first, place, zero));
            const vec bits = vec_select_outside(of_dy, 0, 0, vec_set(INFINITY), of_x);
            is_zero = !vec_any_bits_above(bits, BITS_OF_POWER(100));
        }
    }
    work->x_rows[row] = x, work->dy_rows[row] = dy, work->dx_rows[row] = dx;
    return is_zero;
}

/* Sums of 0 could be what an underflow has left. Where they are not, others that are ordinary take their place. Gives a
 * bit for each such row. A part of a row that is split does not know of the others. Plain C leaves such rows to the
 * sums in double, which give the same constants, to save code. */
RARE unsigned replace_zero_sums(struct reduction_work *work, struct sums_of_rows *sums, int first, int rows) {
    unsigned zero_rows = 0;
    for (int i = 0; i < rows; i++)
        if (sums->hv[i] == 0 && (!work->is_centered || sums->h[i] == 0) && is_zero_row(work, first + i)) {
            zero_rows |= 1u << i;
            sums->hv[i] = (double)work->arguments->channels;
        }
    return zero_rows;
}

/* The constants of such rows, to the signs of zeros. Gives 0 if constants_hold, which knows a better mean, might not
 * let one of them pass. */
INLINE int set_constants_of_zero_rows(struct reduction_work *work, struct sums_of_rows *sums, int first,
                                      unsigned zero_rows) {
    struct group_constants *const constants = work->constants;
    int hold = 1;
    for (int row = first; zero_rows; row++, zero_rows >>= 1)
        if (zero_rows & 1) {
            const float rstd = constants->rstd[row];
            sums->hv[row - first] = 0;
            constants->n_term[row] = rstd * -0.0f;
            if (!work->is_centered)
                continue;
            constants->h_term[row] = 0;
            hold &= fabsf(constants->minus_mean[row] * rstd) <= (float)MOST_MEAN / 2 &&
                    fabsf(constants->residual[row] * rstd) <= (float)MOST_RESIDUAL / 2;
        }
    return hold;
}

INLINE int finds_zero_rows(const struct reduction_work *work) {
    return LANES > 1 && !(HAS_SPLIT_ROWS && work->split);
}

int FIND_CONSTANTS(struct reduction_work *work, struct sums_of_rows *sums, int first, int rows) {
    enum constants_found found;
    unsigned zero_rows = 0;
    int has_summed_v = 0, again;
    do {
        found = find_constants(work, sums, first, rows, work->is_centered);
        again = 0;
        if (found == V_MAY_BE_INEXACT && !has_summed_v) {
            sum_v_again(work, sums, first, rows);
            again = has_summed_v = 1;
        } else if (found == CONSTANTS_DO_NOT_HOLD && finds_zero_rows(work) && !zero_rows) {
            zero_rows = replace_zero_sums(work, sums, first, rows);
            again = zero_rows != 0;
        }
        KEEP_IN_REGISTER(again); /* lest the loop is written out, which would be code that is hardly ever needed */
    } while (again);
    if (zero_rows && !set_constants_of_zero_rows(work, sums, first, zero_rows))
        return 0;
    if (found == CONSTANTS_HOLD)
        work->zero_rows |= zero_rows << first;
    return found == CONSTANTS_HOLD;
}

/* Whether the sums of a row in float hold, as find_constants tells of all rows at once. It need not be asked about a
 * NaN, nor about sums that are too small for it, whatever a mean lacks that it would not refuse. */
RARE int row_holds(struct reduction_work *work, int row, int first) {
    struct sums_of_rows sums;
    const int at = row - first;
    const double rstd = (double)load_float(work->arguments->rstd + work->first_row + (size_t)row);
    const double hv = work->sums_of_rows.hv[at], h = work->is_centered ? work->sums_of_rows.h[at] : 0;
    const double most = (fabs(rstd * hv) + fabs(h)) * work->reciprocal;
    if (!(most >= LEAST_TERM_TO_ASK) && !(most == 0 && finds_zero_rows(work) && is_zero_row(work, row)))
        return 0;
    for (int i = 0; i < GROUP; i++) {
        sums.hv[i] = (double)work->arguments->channels;
        sums.h[i] = sums.v[i] = sums.absolute_hv[i] = 0;
    }
    sums.h[0] = work->sums_of_rows.h[at];
    sums.hv[0] = work->sums_of_rows.hv[at];
    sums.v[0] = work->sums_of_rows.v[at];
    sums.absolute_hv[0] = work->sums_of_rows.absolute_hv[at];
    return FIND_CONSTANTS(work, &sums, row, 1);
}

/* The sums of a group's rows in double, of x less a shift. A missing row has sums that give ordinary constants. */
struct sums_in_double_of_rows {
    _Alignas(64) double shift[GROUP];
    double x[GROUP];
    double xx[GROUP];
    double h[GROUP];
    double hx[GROUP];
    double hh[GROUP];
};

/* Finds the constants of rows whose statistics are not given, all at once, as find_careful_row and constants_hold do
 * for one: the formulas are theirs, operation by operation, since all tables give the same bits. Gives a bit for each
 * row whose constants hold. Its tests are simpler than theirs and let fewer rows pass; these two look at the others. */
INLINE unsigned find_constants_in_double(struct reduction_work *work, const struct sums_in_double_of_rows *sums,
                                         int first) {
    struct group_constants *const constants = work->constants;
    const int is_centered = work->is_centered;
    const eight share = eight_set(work->reciprocal), zero = eight_set(0), minus_one = eight_set(-1),
                xx = eight_load(sums->xx), hh = eight_load(sums->hh);
    const eight mean = is_centered ? eight_mul(eight_load(sums->x), share) : zero;
    const eight square = eight_mul(xx, share),
                under_root = eight_add(eight_sub(square, eight_mul(mean, mean)), eight_set(work->eps)),
                rstd = eight_div(eight_set(1), eight_sqrt(under_root));
    const eight h = eight_mul(eight_load(sums->h), share), hx = eight_mul(eight_load(sums->hx), share);
    const eight hn = eight_mul(rstd, eight_sub(hx, eight_mul(mean, h))),
                n_term = eight_mul(eight_mul(eight_mul(rstd, rstd), hn), minus_one), size_of_n_term = eight_abs(n_term);
    eight_store_floats(constants->rstd + first, rstd);
    eight_store_floats(constants->n_term + first, n_term);
    unsigned hold = eight_at_most(xx, eight_set(0x1p110)) & eight_at_most(rstd, eight_set(0x1p100)) &
                    eight_at_most(eight_set(0x1p-32), rstd) & eight_at_most(size_of_n_term, eight_set(0x1p60));
    hold &= eight_at_most(hh, zero) | eight_at_most(eight_set(0x1p-100), hh);
    hold &= eight_at_most(xx, zero) | eight_at_most(eight_set(0x1p-100), xx);
    hold &= eight_at_most(size_of_n_term, zero) | eight_at_most(eight_set((double)FLT_MIN), size_of_n_term);
    if (!is_centered)
        return hold;
    const eight mean_of_row = eight_add(eight_load(sums->shift), mean);
    eight_store_floats(constants->minus_mean + first, eight_mul(mean_of_row, minus_one));
    const eight residual = eight_add(mean_of_row, eight_load_floats(constants->minus_mean + first)),
                far = eight_abs(eight_mul(residual, rstd)),
                h_term = eight_sub(eight_sub(zero, eight_mul(rstd, h)), eight_mul(residual, n_term));
    eight_store_floats(constants->h_term + first, h_term);
    eight_store_floats(constants->residual + first, residual);
    const unsigned negligible = eight_at_most(far, eight_set(0x1p-24));
    for (int row = 0; row < GROUP; row++)
        if (negligible >> row & 1)
            constants->residual[first + row] = 0;
    const unsigned is_near = eight_at_most(eight_abs(eight_mul(eight_load_floats(constants->minus_mean + first), rstd)),
                                           eight_set(MOST_MEAN)) &
                             eight_at_most(far, eight_set(MOST_RESIDUAL));
    return hold & (is_near | eight_at_most(far, eight_set(MOST_RESIDUAL_OF_LARGER_MEAN))) &
           eight_at_most(eight_abs(h_term), eight_set(0x1p60)) &
           eight_at_most(square, eight_mul(eight_set(MOST_SQUARE), under_root));
}

/* Makes the sums of rows whose statistics are not given, and finds the constants that they give. Gives a bit for each
 * row that needs no further look. */
RARE unsigned recompute_rows(struct reduction_work *work, int first, int rows) {
    const struct block summed = {0, channels_of_summed_block(0, work->arguments->channels)};
    struct sums_in_double_of_rows all;
    if (!(greatest_weight(work) <= 0x1p10f)) /* the limits of find_constants_in_double would not be narrow enough */
        return 0;
    for (int i = 0; i < GROUP; i++) {
        struct sums_in_double sums = {0, 1, 0, 0, 1, 0};
        all.shift[i] = 0;
        if (i < rows) {
            read_row_if_typed(work, first + i, summed);
            all.shift[i] = work->is_centered ? (double)load_float(work->x_rows[first + i]) : 0;
            sum_in_double(&sums, work, first + i, all.shift[i], 1);
        }
        all.x[i] = sums.x, all.xx[i] = sums.xx;
        all.h[i] = sums.h, all.hx[i] = sums.hx, all.hh[i] = sums.hh;
    }
    const unsigned hold = find_constants_in_double(work, &all, first);
    for (int i = 0; i < rows; i++)
        if (work->is_centered && hold >> i & 1 && work->constants->residual[first + i] != 0)
            work->has_residual = 1;
    return hold;
}

RARE void use_careful_row(struct reduction_work *work, int row, const struct sums_in_double *sums) {
    const int holds = constants_hold(work, row, &work->careful_rows[row], sums);
    if (!holds)
        work->careful |= 1u << row;
    else if (holds == 2)
        work->careful |= SUMS_MAY_BE_LOST;
    if (holds && work->is_centered && work->constants->residual[row] != 0)
        work->has_residual = 1;
}

FOR_SIZE void CAREFUL_ROWS(struct reduction_work *work, int first, int rows) {
    /* Where vectors are short this would take much code, and save little. */
    const int recomputes = LANES >= 8 && !work->statistics_are_given && !work->arguments->rstd;
    const unsigned hold = recomputes ? recompute_rows(work, first, rows) : 0;
    for (int i = 0; i < rows; i++) { /* in this order, since find_constants overwrites what comes behind its rows */
        const int row = first + i;
        struct sums_in_double sums;
        if (hold >> i & 1 || (work->statistics_are_given && row_holds(work, row, first)))
            continue;
        find_careful_row(&work->careful_rows[row], &sums, work, row);
        use_careful_row(work, row, &sums);
    }
}

/* Whether find_constants would refuse a row whatever its sums in float are, for its rstd or its LEAST_TERM. What float
 * adds for h v is no more than twice the sum of abs(h v), each term of it rounded to a multiple of 2^-149; what is
 * taken from it for a residual is no more than that; and that sum is at most the root of the product of the sums of
 * squares. */
INLINE int is_surely_refused(const struct reduction_work *work, int row, const struct careful_row *careful,
                             const struct sums_in_double *sums) {
    const size_t index = work->first_row + (size_t)row;
    const float rstd = fabsf(load_float(work->arguments->rstd + index));
    double apart = 0;
    if (bits_of_float(rstd) - LEAST_RSTD > SPAN_OF_TERMS)
        return 1;
    if (work->is_centered)
        apart = careful->mean - (double)load_float(work->arguments->mean + index);
    const double vv = sums->xx * work->reciprocal + apart * apart, hh = sums->hh * work->reciprocal;
    return hh > 0 && (sqrt(hh * vv) + 0x1p-149) * (double)rstd < LEAST_TERM_TO_ASK / 2;
}

/* Where a row turns out to be another one, those that are not of floats lie where they lay. */
FOR_SIZE int BEGIN_TINY_ROWS(struct reduction_work *work, int first, int rows) {
    const unsigned careful = work->careful;
    const int has_residual = work->has_residual;
    work->were_tiny = work->are_tiny = SUBNORMALS_ARE_SLOW;
    for (int row = first; work->were_tiny && row < first + rows; row++) {
        const float *const x = work->x_rows[row], *const dy = work->dy_rows[row];
        float *const dx = work->dx_rows[row];
        struct sums_in_double sums;
        find_careful_row(&work->careful_rows[row], &sums, work, row);
        work->were_tiny = is_surely_refused(work, row, &work->careful_rows[row], &sums);
        if (work->were_tiny)
            use_careful_row(work, row, &sums);
        else
            work->x_rows[row] = x, work->dy_rows[row] = dy, work->dx_rows[row] = dx;
    }
    work->are_tiny = 0;
    if (!work->were_tiny) {
        work->careful = careful;
        work->has_residual = has_residual;
    }
    return work->were_tiny;
}

/* ---- Rows that are split ---- */

INLINE void tell_split_block(double *to, struct reduction_work *work, int row, struct block block) {
    const size_t index = work->first_row + (size_t)row;
    const double mean = work->is_centered ? (double)load_float(work->arguments->mean + index) : 0;
    const struct reduction_sums sums = work->sum_row(work, row, block);
    struct sums_in_double careful = {0, 0, 0, 0, 0, 0};
    if (work->split->blocks == 1 ||
        !is_trusted_reduction(sums, block.count, mean, (double)load_float(work->arguments->rstd + index),
                              work->is_centered)) {
        add_block_in_double(&careful, work, row, block, mean);
        careful.weight = (double)greatest_weight(work);
    } else if (work->is_centered) {
        careful.x = sum_v_of_block(work, row, block, (float)mean);
    }
    to[SPLIT_HV] = sums.hv;
    to[SPLIT_CAREFUL_HX] = careful.hx;
    to[SPLIT_CAREFUL_XX] = careful.xx;
    to[SPLIT_CAREFUL_HH] = careful.hh;
    to[SPLIT_GREATEST_WEIGHT] = careful.weight;
    if (!work->is_centered)
        return;
    to[SPLIT_H] = sums.h;
    to[SPLIT_V] = sums.v;
    to[SPLIT_ABSOLUTE_HV] = sums.absolute_hv;
    to[SPLIT_CAREFUL_X] = careful.x;
    to[SPLIT_CAREFUL_H] = careful.h;
}

void TELL_SPLIT_ROWS(struct reduction_work *work) {
    const size_t channels = work->arguments->channels, doubles = BACKWARD_SPLIT_DOUBLES(work->is_centered);
    for (int row = 0; HAS_SPLIT_ROWS && row < work->rows; row++) {
        double *to = split_sums_of_row(work->split, number_in_split(work, row), doubles);
        for (size_t first = 0; first < channels; first += SUMMED_BLOCK, to += doubles) {
            const struct block block = {first, channels_of_summed_block(first, channels)};
            read_row_if_typed(work, row, block);
            tell_split_block(to, work, row, block);
        }
    }
}

/* ---- dx, and sums over tokens ---- */

/* Some channels of a group. */
struct careful_group {
    const struct group_constants *constants;
    int is_centered;
    const float *weight;
    const float *x[GROUP];
    const float *dy[GROUP];
    float *dx[GROUP];
    unsigned in_double;    /* rows that are done in double: a bit for each */
    unsigned may_overflow; /* the product of dy and rstd */
    ptrdiff_t held;        /* where these channels begin in what is held */
    int keeps_dweight;     /* its sums in float are NaN, as rstd of a row is, or 0, as all of dy is */
    uint32_t least;        /* the bits of the least sum for dweight that float cannot have lost */
};

/* Where dy rstd of some rows, a bit for each, overflows, dx may still be a float. */
RARE void mend_overflows(const struct careful_group *group, unsigned rows, struct place place) {
    const struct group_constants *constants = group->constants;
    const vec zero = vec_set(0);
    vec greatest = zero;
    for (int row = 0; rows >> row; row++)
        if (rows >> row & 1)
            greatest = vec_max_bits(
                greatest, vec_abs(vec_mul(load_vector(group->dy[row], place, zero), vec_set(constants->rstd[row]))));
    if (!vec_any_bits_above(greatest, BITS_OF_POWER(128) - 1))
        return;
    const vec weight = load_vector(group->weight, place, zero);
    for (int row = 0; rows >> row; row++) {
        const vec rstd = vec_set(constants->rstd[row]), n_term = vec_set(constants->n_term[row]);
        const vec dy = load_vector(group->dy[row], place, zero), product = vec_abs(vec_mul(dy, rstd));
        if (!(rows >> row & 1))
            continue;
        const vec x = load_vector(group->x[row], place, zero);
        const vec v = group->is_centered ? vec_add(x, vec_set(constants->minus_mean[row])) : x;
        const vec terms = group->is_centered ? vec_fma(v, n_term, vec_set(constants->h_term[row])) : vec_mul(v, n_term);
        const wide h = wide_mul(vec_widen(weight), vec_widen(dy));
        const vec dx = wide_narrow(wide_fma(h, vec_widen(rstd), vec_widen(terms)));
        const vec before = load_vector(group->dx[row], place, zero);
        store_vector(group->dx[row], place, vec_select_outside(product, 0, BITS_OF_POWER(128) - 1, dx, before));
    }
}

struct sums_over_tokens {
    wide dweight;
    wide dbias;
};

INLINE wide load_in_double(const float *values, struct place place) {
    return place.whole ? wide_load_floats(values + place.channel)
                       : vec_widen(vec_load_n(values + place.channel, place.count, vec_set(0)));
}

/* The sums over tokens of some channels, row after row. */
struct held_in_double {
    double dweight[BLOCK];
    double dbias[BLOCK];
};

/* The terms of a row in the sums over tokens, and dx if it is done in double. */
INLINE void row_in_double(struct held_in_double *sums, const struct careful_group *group, const struct careful_row *row,
                          int index, struct place place) {
    const int is_centered = group->is_centered;
    wide v = load_in_double(group->x[index], place);
    const wide dy = load_in_double(group->dy[index], place), g = wide_mul(dy, wide_set(row->rstd));
    if (is_centered) {
        v = wide_sub(v, wide_set(row->mean));
        wide_store(sums->dbias + place.channel, wide_add(wide_load(sums->dbias + place.channel), dy));
    }
    wide_store(sums->dweight + place.channel, wide_fma(g, v, wide_load(sums->dweight + place.channel)));
    if (group->in_double >> index & 1) {
        const wide n_term = wide_set(row->n_term);
        const wide terms = is_centered ? wide_fma(v, n_term, wide_set(row->h_term)) : wide_mul(v, n_term);
        store_vector(group->dx[index], place, wide_narrow(wide_fma(g, load_in_double(group->weight, place), terms)));
    } else if (group->may_overflow >> index & 1) {
        mend_overflows(group, 1u << index, place);
    }
}

/* Where some channels of two rows that are both done in double lie, and their constants. */
struct careful_pair {
    struct careful_row rows[2];
    const float *weight;
    const float *x[2];
    const float *dy[2];
    float *dx[2];
};

/* The same of such a pair. Both rows are loaded before dx is stored: a load of one row would wait for a store to the
 * same place in another page. */
INLINE void pair_in_double(struct held_in_double *sums, const struct careful_pair *pair, struct place place,
                           int is_centered) {
    const wide weight = load_in_double(pair->weight, place);
    wide dweight = wide_load(sums->dweight + place.channel), dbias = weight;
    vec dx[2];
    if (is_centered)
        dbias = wide_load(sums->dbias + place.channel);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const struct careful_row *row = &pair->rows[i];
        const wide dy = load_in_double(pair->dy[i], place), g = wide_mul(dy, wide_set(row->rstd));
        wide v = load_in_double(pair->x[i], place), terms;
        if (is_centered) {
            v = wide_sub(v, wide_set(row->mean));
            dbias = wide_add(dbias, dy);
            terms = wide_fma(v, wide_set(row->n_term), wide_set(row->h_term));
        } else {
            terms = wide_mul(v, wide_set(row->n_term));
        }
        dweight = wide_fma(g, v, dweight);
        dx[i] = wide_narrow(wide_fma(g, weight, terms));
    }
    wide_store(sums->dweight + place.channel, dweight);
    if (is_centered)
        wide_store(sums->dbias + place.channel, dbias);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        store_vector(pair->dx[i], place, dx[i]);
}

INLINE void pair_of_rows_in_double(struct held_in_double *sums, const struct careful_group *group,
                                   const struct careful_row *rows, int first, ptrdiff_t count, int is_centered) {
    struct careful_pair pair;
    pair.weight = group->weight;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        pair.rows[i] = rows[first + i];
        pair.x[i] = group->x[first + i];
        pair.dy[i] = group->dy[first + i];
        pair.dx[i] = group->dx[first + i];
    }
    ptrdiff_t i = 0;
    for (; i + LANES <= count; i += LANES)
        pair_in_double(sums, &pair, (struct place){i, LANES, 1}, is_centered);
    if (LANES > 1 && i < count)
        pair_in_double(sums, &pair, (struct place){i, count - i, 0}, is_centered);
}

/* A group that has rows that are done in double. */
OUTLINED void rows_in_double(struct held_in_double *sums, const struct careful_group *group,
                             const struct reduction_work *work, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += LANES)
        wide_store(sums->dweight + i, wide_set(0));
    for (ptrdiff_t i = 0; i < count; i += LANES)
        wide_store(sums->dbias + i, wide_set(0));
    for (int row = 0; row < work->rows; row++) {
        if (row + 1 < work->rows && (group->in_double >> row & 3) == 3) {
            if (group->is_centered)
                pair_of_rows_in_double(sums, group, work->careful_rows, row, count, 1);
            else
                pair_of_rows_in_double(sums, group, work->careful_rows, row, count, 0);
            row++;
            continue;
        }
        const struct careful_row constants = work->careful_rows[row];
        for (ptrdiff_t i = 0; i < count; i += LANES)
            row_in_double(sums, group, &constants, row, (struct place){i, count - i, 0});
    }
}

/* The sums over tokens of all rows, at one place. */
INLINE void sum_rows_in_double(struct sums_over_tokens *sums, const struct careful_group *group,
                               const struct reduction_work *work, struct place place) {
    const int rows = work->rows, is_centered = work->is_centered;
    wide dweight = wide_set(0), dbias = wide_set(0);
#pragma GCC unroll 1
    for (int row = 0; row < rows; row++) {
        const struct careful_row *of_row = &work->careful_rows[row];
        wide v = load_in_double(group->x[row], place);
        const wide dy = load_in_double(group->dy[row], place);
        if (is_centered) {
            v = wide_sub(v, wide_set(of_row->mean));
            dbias = wide_add(dbias, dy);
        }
        dweight = wide_fma(wide_mul(dy, wide_set(of_row->rstd)), v, dweight);
    }
    sums->dweight = dweight;
    sums->dbias = dbias;
}

/* The sum in float, but in double in lanes in which float has lost it. */
INLINE wide choose_sum(vec sum, uint32_t least, wide in_double) {
    const vec magnitude = vec_abs(sum), zero = vec_set(0);
    const uint32_t span = BITS_OF_POWER(128) - 1 - least;
    const vec kept = vec_select_outside(magnitude, least, span, zero, sum);
    const vec chosen = vec_select_outside(magnitude, least, span, vec_set(1), zero);
    return wide_fma(in_double, vec_widen(chosen), vec_widen(kept));
}

INLINE int is_lost(vec sum, uint32_t least) {
    return vec_any_bits_above(vec_bits_minus(vec_abs(sum), least), BITS_OF_POWER(128) - 1 - least);
}

/* Whether float may have lost a sum for dweight. Where dy is 0 in all rows whose rstd is not, the sum of the products
 * is 0, and it has not. */
INLINE int is_dweight_lost(const struct careful_group *group, const struct reduction_work *work, struct place place,
                           vec dweight) {
    vec greatest = vec_set(0);
    if (group->keeps_dweight || !is_lost(dweight, group->least))
        return 0;
    for (int row = 0; row < work->rows; row++)
        if (work->careful_rows[row].rstd != 0)
            greatest = vec_max_bits(greatest, vec_abs(load_vector(group->dy[row], place, vec_set(0))));
    const vec of_terms = vec_select_outside(greatest, 0, 0, dweight, vec_set(1));
    return is_lost(dweight, 0) || is_lost(of_terms, group->least);
}

/* Adds the sum over tokens of a group at a place in the row to that of the block of rows, or writes the gradient. */
INLINE void deliver_sum(double *sums, const struct token_gradient *gradient, struct place place, wide sum,
                        int is_first) {
    if (!gradient) {
        add_to_partial_sum(sums, place, sum, is_first);
        return;
    }
    if (!is_first)
        sum = wide_add(wide_load(sums + place.channel), sum);
    finish_sum(gradient, place, sum);
}

INLINE void deliver_in_double(struct reduction_work *work, struct place in_row, const struct sums_over_tokens *sums) {
    const struct token_gradient *gradients = work->gradients;
    if (delivers(work, 0))
        deliver_sum(work->sums.dweight, gradients, in_row, sums->dweight, work->is_first);
    if (delivers(work, 1))
        deliver_sum(work->sums.dbias, gradients ? gradients + 1 : NULL, in_row, sums->dbias, work->is_first);
}

INLINE void careful_step(struct reduction_work *work, const struct careful_group *group, struct place in_row,
                         struct place place) {
    const vec dweight = vec_load(work->dweight[0] + group->held + place.channel);
    const vec dbias = work->is_centered ? vec_load(work->dbias[0] + group->held + place.channel) : vec_set(0);
    const int is_any_lost = is_dweight_lost(group, work, place, dweight) || is_lost(dbias, 0);
    struct sums_over_tokens sums = {vec_widen(dweight), vec_widen(dbias)};
    if (is_any_lost) {
        sum_rows_in_double(&sums, group, work, place);
        sums.dweight = group->keeps_dweight ? vec_widen(dweight) : choose_sum(dweight, group->least, sums.dweight);
        sums.dbias = choose_sum(dbias, 0, sums.dbias);
    }
    /* An overflow makes the sum for dweight infinite or NaN; one that is NaN anyway does not tell of it. */
    if ((is_any_lost || group->keeps_dweight) && group->may_overflow)
        mend_overflows(group, group->may_overflow, place);
    deliver_in_double(work, in_row, &sums);
}

/* What a group has in common. */
RARE void begin_careful_group(struct careful_group *group, struct reduction_work *work) {
    double least_rstd = 1;
    group->constants = work->constants;
    group->is_centered = work->is_centered;
    group->in_double = work->careful & (SUMS_MAY_BE_LOST - 1);
    group->keeps_dweight = 0;
    group->may_overflow = 0;
    for (int row = 0; row < work->rows; row++) {
        struct careful_row *of_row = &work->careful_rows[row];
        if (group->in_double >> row & 1)
            continue;
        of_row->mean = 0;
        if (work->is_centered)
            of_row->mean = (double)work->constants->residual[row] - (double)work->constants->minus_mean[row];
        of_row->rstd = (double)work->constants->rstd[row];
        double rstd = fabs(of_row->rstd);
        group->keeps_dweight |= rstd != rstd;
        group->may_overflow |= (unsigned)(rstd > 1) << row;
        if (rstd != 0 && rstd < least_rstd)
            least_rstd = rstd;
    }
    const float least = (float)(LEAST_SUM_OF_PRODUCTS / least_rstd);
    memcpy(&group->least, &least, sizeof least);
    if (LANES > 1 && is_zero_group(work)) { /* nothing overflows, and no sum is lost */
        group->keeps_dweight = 1;
        group->may_overflow = 0;
    }
}

void CAREFUL_BLOCK(struct reduction_work *work, struct block block) {
    struct careful_group group;
    struct held_in_double held;
    begin_careful_group(&group, work);
    for (size_t done = 0; done < block.count; done += BLOCK) {
        const struct block part = {block.first + done, block.count - done < BLOCK ? block.count - done : BLOCK};
        const ptrdiff_t count = (ptrdiff_t)part.count;
        group.weight = read_block(&work->weight, part);
        group.held = (ptrdiff_t)done;
        for (int row = 0; row < work->rows; row++) {
            group.x[row] = work->x_rows[row] + part.first;
            group.dy[row] = work->dy_rows[row] + part.first;
            group.dx[row] = dx_to_write(work, row, block) + done;
        }
        if (group.in_double)
            rows_in_double(&held, &group, work, count);
        for (ptrdiff_t i = 0; i < count; i += LANES) {
            const struct place place = {i, count - i, 0}, in_row = {(ptrdiff_t)part.first + i, count - i, 0};
            if (!group.in_double) {
                careful_step(work, &group, in_row, place);
                continue;
            }
            const struct sums_over_tokens sums = {wide_load(held.dweight + i), wide_load(held.dbias + i)};
            deliver_in_double(work, in_row, &sums);
        }
    }
}

#endif
