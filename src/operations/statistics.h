/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm, RMSNorm and the centered DyISRU share: the statistics of a row from one pass over it, and the checks
 * that send a row to the functions in double where float cannot hold it. is_centered tells whether the mean is taken
 * out; RMSNorm is the case in which it is not.
 *
 * The variance comes from the sums of x and of its square, in double, as long as the mean is not too large against the
 * deviation: else from those of x - shift. With an element of the row as the shift, (shift - mean)^2 is at most
 * channels times the variance, so that what cancels is little against a double's precision.
 *
 * RMSNorm adds four squares in float before it goes on in double. That costs three roundings of the sum, 1.5 in rstd; y
 * adds two. The bound allows 4.
 */
#ifndef DYNNORM_STATISTICS_H
#define DYNNORM_STATISTICS_H

#include "kernel_names.h"
#include "model_marks.h"
#include "operations/operation.h"
#include "rows/floats.h"

#include <math.h>

INLINE struct call_constants begin_normalization(size_t channels, float eps, float parameter, float scale) {
    (void)parameter, (void)scale;
    return (struct call_constants){
        .channels = channels, .divisor = (double)channels, .reciprocal = 1 / (double)channels, .eps = (double)eps};
}

/* ---- Rows in double, block by block ---- */

RARE struct statistics statistics_in_double(struct reader x, size_t channels, double eps, int is_centered) {
    double mean = 0;
    if (is_centered) {
        /* The first value is the shift: a constant row then has its own value as its mean, exactly. */
        double shift = (double)read_value(&x, 0);
        struct double_lanes deviations = {{0}};
        for (size_t first = 0; first < channels; first += BLOCK) {
            struct block block = block_at(first, channels);
            dynnorm_add_deviations(&deviations, read_block(&x, block), block.count, shift);
        }
        mean = shift + dynnorm_total_of_lanes(&deviations) / (double)channels;
    }
    struct double_lanes squares = {{0}};
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        dynnorm_add_squares(&squares, read_block(&x, block), block.count, mean);
    }
    return dynnorm_statistics(mean, &squares, channels, eps);
}

RARE struct means means_in_double(struct backward_row inputs, struct statistics statistics, size_t channels,
                                  int is_centered) {
    struct mean_sums sums = {{{0}}, {{0}}};
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const struct block_in_double values = {.count = block.count,
                                               .x = read_block(&inputs.x, block),
                                               .weight = read_block(&inputs.weight, block),
                                               .dy = read_block(&inputs.dy, block)};
        dynnorm_add_to_means(&sums, &values, statistics);
    }
    return (struct means){is_centered ? dynnorm_total_of_lanes(&sums.h) / (double)channels : 0,
                          dynnorm_total_of_lanes(&sums.hn) / (double)channels};
}

RARE int all_equal(struct reader reader, size_t channels, float value) {
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const float *values = read_block(&reader, block);
        for (size_t i = 0; i < block.count; i++)
            if (!(load_float(values + i) == value))
                return 0;
    }
    return 1;
}

INLINE void normalize_in_double(const struct block_in_double *block, const struct row_constants *row,
                                const struct call_constants *call) {
    (void)call;
    dynnorm_normalize_in_double(block, row->statistics);
}

INLINE void normalize_gradient_in_double(const struct block_in_double *block, const struct row_constants *row,
                                         const struct call_constants *call) {
    (void)call;
    dynnorm_normalize_gradient_in_double(block, row->statistics, row->means);
}

/* ---- Statistics ---- */

/* The floats that the vector code uses, from the doubles. */
INLINE void round_statistics(struct row_constants *row) {
    double mean = row->statistics.mean, rstd = row->statistics.rstd;
    row->mean = (float)mean;
    row->rstd = (float)rstd;
    row->rstd_correction = (float)(rstd - (double)row->rstd);
    row->mean_correction = (float)(((double)row->mean - mean) * rstd);
}

/* The limits of what can be trusted: how many times the variance the mean square may be, lest too much cancels; and
 * what must be under the root at least, lest rstd leaves float's range or squares that underflowed matter. */
enum { SQUARE_LIMIT = 1 << 12, SHIFTED_SQUARE_LIMIT = 1 << 22 };
#define LEAST_OF_DOUBLES 0x1p-200
#define LEAST_OF_FLOATS 0x1p-110 /* where the squares are floats, each of which may lose 2^-150 */

/* Statistics, and whether they can be trusted. */
struct found_statistics {
    struct statistics statistics;
    int hold;
};

/* The sums of x - shift and of its square over a row, totalled. */
struct row_totals {
    double x;
    double xx;
    float shift;
};

INLINE struct found_statistics statistics_of(struct row_totals sums, const struct call_constants *call, int is_centered,
                                             double least, double square_limit) {
    double mean = is_centered ? sums.x / call->divisor : 0; /* less the shift; exact in a constant row */
    double square = sums.xx * call->reciprocal;
    double under_root = square - mean * mean + call->eps;
    struct found_statistics found = {{is_centered ? (double)sums.shift + mean : 0, 1 / sqrt(under_root)}, 0};
    found.hold = under_root >= least && under_root <= 0x1p200 && (!is_centered || square <= square_limit * under_root);
    return found;
}

/* With an element of the row as the shift. One for each table, in shifted_statistics.h. */
struct found_statistics SHIFTED_STATISTICS(struct reader x, struct call_constants call);

INLINE void add_statistics(struct channel_sums *sums, const float *x, size_t count) {
    const struct summed_block summed = {.wanted = SUM_X | SUM_XX, .x = x, .shift = 0};
    add_block_sums_fast(sums, SUMS_IN_DOUBLE, &summed, count);
}

/* The same, where a call costs little against what the operation does besides. */
OUTLINED void add_statistics_outlined(struct channel_sums *sums, const float *x, size_t count) {
    add_statistics(sums, x, count);
}

INLINE void begin_row(struct row_constants *row, const struct channel_sums *sums, const struct reader *x,
                      const struct call_constants *call, int is_centered) {
    const struct row_totals totals = {is_centered ? wide_sum(sums->x) : 0, wide_sum(sums->xx), 0};
    struct found_statistics found =
        statistics_of(totals, call, is_centered, is_centered ? LEAST_OF_DOUBLES : LEAST_OF_FLOATS, SQUARE_LIMIT);
    if (!found.hold && is_centered)
        found = SHIFTED_STATISTICS(*x, *call);
    row->is_in_double = !found.hold;
    if (!found.hold)
        found.statistics = statistics_in_double(*x, call->channels, call->eps, is_centered);
    row->statistics = found.statistics;
    round_statistics(row);
}

/* ---- Backward ---- */

/* The sums of a row in the backward pass, totalled. */
struct backward_sums {
    double x;
    double xx;
    double h;
    double hx;
};

INLINE struct backward_sums total_backward_sums(const struct channel_sums *sums) {
    return (struct backward_sums){wide_sum(sums->x), wide_sum(sums->xx), wide_sum(sums->h), wide_sum(sums->hx)};
}

INLINE struct backward_sums sum_backward(const struct backward_row *inputs, size_t channels, float shift,
                                         enum channel_sums_in in, int wanted) {
    struct channel_sums sums;
    clear_sums(&sums);
    for (size_t first = 0; first < channels; first += BLOCK) {
        struct block block = block_at(first, channels);
        const struct summed_block summed = {.wanted = wanted,
                                            .x = read_block(&inputs->x, block),
                                            .shift = shift,
                                            .a = read_block(&inputs->weight, block),
                                            .b = read_block(&inputs->dy, block)};
        if (in == SUMS_IN_FLOAT)
            add_block_sums_fast(&sums, in, &summed, block.count);
        else
            add_block_sums(&sums, in, &summed, block.count);
    }
    return total_backward_sums(&sums);
}

/* Whether the sums with h can be trusted: none overflowed, and products that underflowed, if any, do not matter. */
INLINE int h_sums_hold(const struct backward_sums *sums, double rstd, const struct backward_row *inputs,
                       size_t channels) {
    double h = fabs(sums->h), hx = fabs(sums->hx);
    if (!(h <= 0x1p200 && hx <= 0x1p200))
        return 0;
    if (hx >= 0x1p-80 || (h >= 0x1p-50 * (double)channels && rstd <= 0x1p50))
        return 1;
    return h == 0 && hx == 0 && (all_equal(inputs->dy, channels, 0) || all_equal(inputs->x, channels, 0));
}

/* A row's sums, its statistics, and whether they can be trusted. */
struct backward_statistics {
    struct backward_sums sums;
    float shift;
    struct found_statistics found;
};

/* With the statistics recomputed all sums are doubles. */
INLINE struct backward_statistics recompute_statistics(const struct backward_row *inputs,
                                                       const struct call_constants *call, int is_centered) {
    MODEL_UNUSUAL(); /* training keeps the statistics of the forward pass */
    struct backward_statistics result;
    result.shift = !is_centered ? 0 : inputs->mean ? load_float(inputs->mean) : read_value(&inputs->x, 0);
    const int wanted = is_centered ? SUM_X | SUM_XX | SUM_H | SUM_HX : SUM_XX | SUM_HX;
    result.sums = sum_backward(inputs, call->channels, result.shift, SUMS_IN_DOUBLE, wanted);
    result.found = statistics_of((struct row_totals){result.sums.x, result.sums.xx, result.shift}, call, is_centered,
                                 LEAST_OF_DOUBLES, SHIFTED_SQUARE_LIMIT);
    return result;
}

/* Given statistics are taken as they are, but for what rounding took from the mean: that is recomputed, and is so small
 * against the deviation that a sum of floats will do. */
INLINE struct backward_statistics take_statistics(const struct backward_row *inputs, float shift,
                                                  const struct call_constants *call, int is_centered) {
    struct backward_statistics result;
    result.shift = shift;
    const int wanted = is_centered ? SUM_X | SUM_H | SUM_HX : SUM_HX;
    result.sums = sum_backward(inputs, call->channels, shift, SUMS_IN_FLOAT, wanted);
    double rstd = (double)load_float(inputs->rstd);
    result.found.statistics =
        (struct statistics){is_centered ? (double)shift + result.sums.x / call->divisor : 0, rstd};
    result.found.hold = fabs(result.sums.x) <= 0x1p200 && fabs(rstd) >= 0x1p-100;
    return result;
}

INLINE void begin_backward_row(struct row_constants *row, const struct backward_row *inputs,
                               const struct call_constants *call, int is_centered,
                               const struct backward_statistics *known) {
    struct statistics statistics = known->found.statistics;
    double given_rstd = inputs->rstd ? (double)load_float(inputs->rstd) : 0;
    if (inputs->rstd)
        statistics.rstd = given_rstd;
    double rstd = statistics.rstd, residual = statistics.mean - (double)known->shift;
    double h_term = -rstd * (known->sums.h * call->reciprocal);
    double n_term = -rstd * (rstd * (known->sums.hx - (is_centered ? residual * known->sums.h : 0)) * call->reciprocal);
    row->is_in_double = !known->found.hold || !h_sums_hold(&known->sums, rstd, inputs, call->channels) ||
                        !(fabs(rstd) <= 0x1p100 && fabs(h_term) <= 0x1p100 && fabs(n_term) <= 0x1p100);
    row->h_term = (float)h_term;
    row->n_term = (float)n_term;
    if (row->is_in_double) {
        statistics = statistics_in_double(inputs->x, call->channels, call->eps, is_centered);
        if (inputs->rstd)
            statistics.rstd = given_rstd;
        row->means = means_in_double(*inputs, statistics, call->channels, is_centered);
    }
    row->statistics = statistics;
    round_statistics(row);
}

#endif
