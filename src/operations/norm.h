/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm share: the statistics of a row in one pass over it, and the checks that send a row that
 * float cannot hold to wide.h. RMSNorm is the case without a mean (centered = 0).
 *
 * The variance comes from the sums of x and of its square, in double, as long as the mean is not too large against the
 * deviation: else from those of x - shift. With an element of the row as the shift, (shift - mean)^2 is at most
 * channels times the variance, so that what cancels is little against a double's precision.
 *
 * RMSNorm's sum of squares is one of floats over four terms: three roundings, all alike at worst, make one and a half
 * in rstd, and y = weight n adds two more, of its four.
 */
#ifndef DYNNORM_NORM_H
#define DYNNORM_NORM_H

/* What all rows of a call have in common. */
struct norm {
    size_t channels;
    double divisor; /* channels */
    double factor;  /* 1 / channels */
    double eps;
};

INLINE struct norm norm_of(size_t channels, float eps) {
    return (struct norm){channels, (double)channels, 1 / (double)channels, (double)eps};
}

struct norm_row {
    int is_wide;
    struct wide_statistics statistics;
    struct wide_means means; /* backward */
    float mean;              /* rounded */
    float rstd;              /* rounded */
    float rstd_rest;         /* what rounding took from rstd */
    float mean_rest;         /* minus what rounding took from the mean, times rstd */
    float h_term;            /* backward: -rstd mean(h) */
    float n_term;            /* backward: -rstd mean(h n) */
};

/* The float's share of the constants, from the double's. */
INLINE void round_statistics(struct norm_row *row) {
    double mean = row->statistics.mean, rstd = row->statistics.rstd;
    row->mean = (float)mean;
    row->rstd = (float)rstd;
    row->rstd_rest = (float)(rstd - (double)row->rstd);
    row->mean_rest = (float)(((double)row->mean - mean) * rstd);
}

/* Limits of what can be trusted: how many times the variance the mean square may be, lest too much cancel; and what
 * must be under the root at least, lest rstd leave float's range or squares that underflowed matter. */
enum { SQUARE_LIMIT = 1 << 18, SHIFTED_SQUARE_LIMIT = 1 << 22 };
#define LEAST_OF_DOUBLES 0x1p-200
#define LEAST_OF_FLOATS 0x1p-110 /* where the squares are floats, of which each may lose 2^-150 */

/* Statistics, and whether they hold: the row is finite, and within the limits. */
struct statistics_of_sums {
    struct wide_statistics statistics;
    int holds;
};

INLINE struct statistics_of_sums statistics_from_sums(struct row_sums sums, float shift, const struct norm *norm,
                                                      int centered, double least, double square_limit) {
    double rest = centered ? sums.x / norm->divisor : 0; /* exact in a constant row */
    double square = sums.xx * norm->factor;
    double under_root = square - rest * rest + norm->eps;
    struct statistics_of_sums result = {{centered ? (double)shift + rest : 0, 1 / sqrt(under_root)}, 0};
    result.holds = under_root >= least && under_root <= 0x1p200 && (!centered || square <= square_limit * under_root);
    return result;
}

/* What the statistics of a row take. */
INLINE int norm_sums(int centered) {
    return centered ? SUM_X | SUM_XX : SUM_XX | IN_FOURS;
}

INLINE void sum_norm_channels(struct sum_lanes *lanes, const float *x, size_t first, size_t n, int centered) {
    const struct summed_row row = {.x = x, .shift = vec_set(0)};
    sum_channels(lanes, norm_sums(centered), &row, NULL, first, n);
}

INLINE const float *no_block(void *provider, size_t first, size_t n) {
    (void)provider, (void)first, (void)n;
    return NULL;
}

/* With an element of the row as the shift. */
RARE struct statistics_of_sums shifted_statistics(const float *x, const struct norm *norm) {
    float shift = load_float(x);
    const struct summed_row row = {.x = x, .shift = vec_set(shift)};
    struct row_sums sums = sum_row(norm_sums(1), &row, no_block, NULL, norm->channels);
    return statistics_from_sums(sums, shift, norm, 1, LEAST_OF_DOUBLES, SHIFTED_SQUARE_LIMIT);
}

/* The row's statistics, from its sums, and whether it is wide. */
INLINE void end_norm_sums(const struct sum_lanes *lanes, const float *x, struct norm_row *row, const struct norm *norm,
                          int centered) {
    struct statistics_of_sums found = statistics_from_sums(total_sums(lanes, norm_sums(centered)), 0, norm, centered,
                                                           centered ? LEAST_OF_DOUBLES : LEAST_OF_FLOATS, SQUARE_LIMIT);
    if (!found.holds && centered)
        found = shifted_statistics(x, norm);
    row->is_wide = !found.holds;
    row->statistics = found.holds ? found.statistics : dynnorm_wide_statistics(x, norm->channels, norm->eps, centered);
    round_statistics(row);
}

INLINE void prepare_statistics(struct norm_row *row, const float *x, const struct norm *norm, int centered) {
    struct sum_lanes lanes;
    clear_sums(&lanes);
    for (size_t first = 0; first < norm->channels; first += BLOCK)
        sum_norm_channels(&lanes, x, first, norm->channels - first < BLOCK ? norm->channels - first : BLOCK, centered);
    end_norm_sums(&lanes, x, row, norm, centered);
}

/* Whether the sums with h can be trusted: none overflowed, and products that underflowed, if any, do not matter. */
INLINE int h_sums_hold(const struct row_sums *sums, double rstd, const float *x, const float *dy, size_t channels) {
    double h = fabs(sums->h), hx = fabs(sums->hx);
    if (!(h <= 0x1p200 && hx <= 0x1p200))
        return 0;
    if (hx >= 0x1p-80 || (h >= 0x1p-50 * (double)channels && rstd <= 0x1p50))
        return 1;
    return h == 0 && hx == 0 && (dynnorm_all_equal(dy, channels, 0) || dynnorm_all_equal(x, channels, 0));
}

INLINE vec weighted_dy(const void *dy, const float *weight, size_t first, size_t i, ptrdiff_t n, int whole) {
    vec zero = vec_set(0);
    return vec_mul(load_terms(weight + i, n, zero, whole), load_terms((const float *)dy + first + i, n, zero, whole));
}

/* The sums of a row, and its statistics: recomputed; or, given both (is_given), as they are, but for the mean's rest.
 * That rest is small against the deviation, so that a sum of floats will do. */
INLINE struct row_sums sum_backward(struct norm_row *row, const struct backward_arguments *arguments, size_t index,
                                    const struct norm *norm, struct parameter *weight, float shift, int *holds,
                                    int centered, int is_given) {
    size_t channels = norm->channels;
    const struct summed_row summed = {.x = row_of(&arguments->x, index),
                                      .shift = vec_set(shift),
                                      .h = weighted_dy,
                                      .context = row_of(&arguments->dy, index)};
    if (!is_given) {
        MODEL_UNUSUAL();
        int which = centered ? SUM_X | SUM_XX | SUM_H | SUM_HX : SUM_XX | SUM_HX;
        struct row_sums sums = sum_row(which, &summed, weight_block, weight, channels);
        struct statistics_of_sums found =
            statistics_from_sums(sums, shift, norm, centered, LEAST_OF_DOUBLES, SHIFTED_SQUARE_LIMIT);
        row->statistics = found.statistics;
        *holds = found.holds;
        return sums;
    }
    int which = centered ? SUM_X | SUM_H | SUM_HX | IN_FLOATS : SUM_HX | IN_FLOATS;
    struct row_sums sums = sum_row(which, &summed, weight_block, weight, channels);
    row->statistics.mean = centered ? (double)shift + sums.x / norm->divisor : 0;
    row->statistics.rstd = (double)load_float(arguments->rstd + index);
    *holds = fabs(sums.x) <= 0x1p200 && fabs(row->statistics.rstd) >= 0x1p-100;
    return sums;
}

INLINE void prepare_backward(struct norm_row *row, const struct backward_arguments *arguments, size_t index,
                             const struct norm *norm, struct parameter *weight, int centered, int is_given) {
    size_t channels = norm->channels;
    const float *x = row_of(&arguments->x, index);
    const float *dy = row_of(&arguments->dy, index);
    float shift = !centered ? 0 : load_float(arguments->mean ? arguments->mean + index : x);
    int holds;
    struct row_sums sums = sum_backward(row, arguments, index, norm, weight, shift, &holds, centered, is_given);
    double rest = row->statistics.mean - (double)shift;
    if (is_given && centered && holds && fabs(rest * row->statistics.rstd) > 4) {
        /* The sum of h (x - shift) is one of floats: with a shift that far from the mean it would lose digits. */
        shift = (float)row->statistics.mean;
        sums = sum_backward(row, arguments, index, norm, weight, shift, &holds, centered, is_given);
        rest = row->statistics.mean - (double)shift;
    }
    int has_rstd = arguments->rstd != NULL;
    double given_rstd = has_rstd ? (double)load_float(arguments->rstd + index) : 0;
    if (has_rstd)
        row->statistics.rstd = given_rstd;
    double rstd = row->statistics.rstd, scale = norm->factor;
    double h_term = -rstd * (sums.h * scale);
    double n_term = -rstd * (rstd * (sums.hx - (centered ? rest * sums.h : 0)) * scale);
    row->is_wide = !holds || !h_sums_hold(&sums, rstd, x, dy, channels) ||
                   !(fabs(rstd) <= 0x1p100 && fabs(h_term) <= 0x1p100 && fabs(n_term) <= 0x1p100);
    row->h_term = (float)h_term;
    row->n_term = (float)n_term;
    if (row->is_wide) {
        row->statistics = dynnorm_wide_statistics(x, channels, norm->eps, centered);
        if (has_rstd)
            row->statistics.rstd = given_rstd;
        row->means =
            dynnorm_wide_means(x, dy, arguments->weight, arguments->weight_offset, channels, row->statistics, centered);
    }
    round_statistics(row);
}

/* y of a wide row, in blocks. */
INLINE void forward_row_wide(float *y, const float *x, struct parameter *weight, struct parameter *bias,
                             size_t channels, struct wide_statistics statistics) {
    for (size_t first = 0; first < channels; first += BLOCK) {
        size_t n = channels - first < BLOCK ? channels - first : BLOCK;
        dynnorm_wide_norm(y + first, x + first, parameter_block(weight, first, n),
                          bias ? parameter_block(bias, first, n) : NULL, n, statistics);
    }
}

/* A whole forward kernel. While the sums of one row are taken, y of the row before it is computed: the loads of the one
 * go along with the arithmetic of the other. */
INLINE void norm_forward(const struct forward_arguments *arguments, size_t first, size_t rows, int centered,
                         forward_function *normalize) {
    struct parameter weight, bias;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    if (centered)
        bias_init(&bias, arguments->bias);
    size_t channels = arguments->channels, end = first + rows;
    struct norm norm = norm_of(channels, arguments->eps);
    const float *summed = NULL, *x = NULL; /* the row whose sums are taken, and the row before it */
    struct sum_lanes lanes;
    clear_sums(&lanes);
    struct norm_row row = {0};
    float *y = NULL; /* of the row before; NULL: there is nothing to compute */
    for (size_t index = first;; index++) {
        if (index < end)
            summed = row_of(&arguments->x, index);
        size_t shift = floats_past_boundary(y, arguments->streams);
        for (size_t c = 0; c < channels + shift; c += BLOCK) {
            if (c < channels) {
                size_t n = channels - c < BLOCK ? channels - c : BLOCK;
                if (arguments->streams && index + 1 < end)
                    prefetch_block(row_of(&arguments->x, index + 1) + c, n);
                if (index < end)
                    sum_norm_channels(&lanes, summed, c, n, centered);
            }
            if (!y)
                continue;
            struct channel_block block = block_of_y(c, shift, channels);
            forward_channels(y + block.first, x + block.first, parameter_block(&weight, block.first, block.n),
                             centered ? parameter_block(&bias, block.first, block.n) : NULL, block.n,
                             arguments->streams, normalize, &row);
        }
        if (index >= end)
            break;
        end_norm_sums(&lanes, summed, &row, &norm, centered);
        clear_sums(&lanes);
        if (arguments->mean)
            store_float(arguments->mean + index, row.mean);
        if (arguments->rstd)
            store_float(arguments->rstd + index, row.rstd);
        x = summed;
        y = arguments->y.data ? row_of(&arguments->y, index) : NULL;
        if (y && row.is_wide) {
            forward_row_wide(y, x, &weight, centered ? &bias : NULL, channels, row.statistics);
            y = NULL;
        }
    }
    if (arguments->streams)
        vec_end_streaming();
}

INLINE int norm_is_wide(const void *context) {
    return ((const struct norm_row *)context)->is_wide;
}

INLINE void norm_wide_gradient(float *f, float *dx, float *factor, const float *x, const float *dy, const float *weight,
                               size_t n, const void *context) {
    const struct norm_row *row = context;
    (void)factor;
    dynnorm_wide_norm_gradient(f, dx, x, dy, weight, n, row->statistics, row->means);
}

/* A whole backward kernel. */
INLINE void norm_backward(const struct backward_arguments *arguments, size_t first, size_t rows,
                          const struct partial_sums *sums, int centered, gradient_function *gradient) {
    const struct backward_operation operation = {.gradient = gradient,
                                                 .is_wide = norm_is_wide,
                                                 .wide_gradient = norm_wide_gradient,
                                                 .context_size = sizeof(struct norm_row)};
    struct parameter weight;
    weight_init(&weight, arguments->weight, arguments->weight_offset);
    struct norm norm = norm_of(arguments->channels, arguments->eps);
    wide p_sums[16 / LANES];
    begin_partial_sums(sums, arguments->channels, p_sums);
    for (size_t done = 0; done < rows; done += 4) {
        int group = rows - done < 4 ? (int)(rows - done) : 4;
        struct norm_row contexts[4];
        for (int i = 0; i < group; i++) {
            size_t row = first + done + (size_t)i;
            if (arguments->rstd && (arguments->mean || !centered))
                prepare_backward(&contexts[i], arguments, row, &norm, &weight, centered, 1);
            else
                prepare_backward(&contexts[i], arguments, row, &norm, &weight, centered, 0);
        }
        backward_rows_of_group(arguments, first + done, group, done == 0, done + 4 >= rows, contexts, &weight,
                               &operation, sums, p_sums);
    }
    if (arguments->streams)
        vec_end_streaming();
}

#endif
