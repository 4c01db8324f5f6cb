/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm share: the statistics of a row in one pass over it, and the checks that send a row that
 * float cannot hold to wide.h. RMSNorm is the case without a mean (centered = 0).
 *
 * The variance comes from the sums, in double, of x - shift and of its square. With an element of the row as the shift,
 * (shift - mean)^2 is at most channels times the variance, so that what cancels is little against a double's precision.
 */
#ifndef DYNNORM_NORM_H
#define DYNNORM_NORM_H

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

/* Statistics from a row's sums. Gives 0 for a row whose y is to be computed in double: it is not finite; rstd is near
 * the ends of float's range; or the shift is so far from the mean that too much cancelled. */
INLINE int statistics_from_sums(struct wide_statistics *statistics, const struct row_sums *sums, float shift, float eps,
                                size_t channels, int centered) {
    double scale = 1 / (double)channels;
    double rest = centered ? sums->x * scale : 0;
    double square = sums->xx * scale;
    double under_root = square - rest * rest + (double)eps;
    statistics->mean = centered ? (double)shift + rest : 0;
    statistics->rstd = 1 / sqrt(under_root);
    return under_root >= 0x1p-200 && under_root <= 0x1p200 && square <= 0x1p22 * under_root;
}

/* A row whose sums are being taken. */
struct norm_sums {
    const float *x;
    float shift;
    struct sum_lanes lanes;
};

INLINE int forward_sums(int centered) {
    return centered ? SUM_X | SUM_XX : SUM_XX;
}

INLINE void begin_norm_sums(struct norm_sums *sums, const float *x, int centered) {
    sums->x = x;
    sums->shift = centered ? load_float(x) : 0;
    clear_sums(&sums->lanes);
}

INLINE void sum_norm_channels(struct norm_sums *sums, size_t first, size_t n, int centered) {
    const struct summed_row row = {.x = sums->x, .shift = vec_set(sums->shift)};
    sum_channels(&sums->lanes, forward_sums(centered), &row, NULL, first, n);
}

/* The row's statistics, and whether it is wide. */
INLINE void end_norm_sums(const struct norm_sums *sums, struct norm_row *row, size_t channels, float eps,
                          int centered) {
    struct row_sums total = total_sums(&sums->lanes, forward_sums(centered));
    row->is_wide = !statistics_from_sums(&row->statistics, &total, sums->shift, eps, channels, centered);
    if (row->is_wide)
        row->statistics = dynnorm_wide_statistics(sums->x, channels, (double)eps, centered);
    round_statistics(row);
}

INLINE void prepare_statistics(struct norm_row *row, const float *x, size_t channels, float eps, int centered) {
    struct norm_sums sums;
    begin_norm_sums(&sums, x, centered);
    for (size_t first = 0; first < channels; first += BLOCK)
        sum_norm_channels(&sums, first, channels - first < BLOCK ? channels - first : BLOCK, centered);
    end_norm_sums(&sums, row, channels, eps, centered);
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
                                    struct parameter *weight, float shift, int *holds, int centered, int is_given) {
    size_t channels = arguments->channels;
    const struct summed_row summed = {.x = arguments->x + index * arguments->x_stride,
                                      .shift = vec_set(shift),
                                      .h = weighted_dy,
                                      .context = arguments->dy + index * arguments->dy_stride};
    if (!is_given) {
        int which = centered ? SUM_X | SUM_XX | SUM_H | SUM_HX : SUM_XX | SUM_HX;
        struct row_sums sums = sum_row(which, &summed, weight_block, weight, channels);
        *holds = statistics_from_sums(&row->statistics, &sums, shift, arguments->eps, channels, centered);
        return sums;
    }
    int which = centered ? SUM_X | SUM_H | SUM_HX | IN_FLOATS : SUM_HX | IN_FLOATS;
    struct row_sums sums = sum_row(which, &summed, weight_block, weight, channels);
    row->statistics.mean = centered ? (double)shift + sums.x / (double)channels : 0;
    row->statistics.rstd = (double)load_float(arguments->rstd + index);
    *holds = fabs(sums.x) <= 0x1p200 && fabs(row->statistics.rstd) >= 0x1p-100;
    return sums;
}

INLINE void prepare_backward(struct norm_row *row, const struct backward_arguments *arguments, size_t index,
                             struct parameter *weight, int centered, int is_given) {
    size_t channels = arguments->channels;
    const float *x = arguments->x + index * arguments->x_stride;
    const float *dy = arguments->dy + index * arguments->dy_stride;
    float shift = !centered ? 0 : load_float(arguments->mean ? arguments->mean + index : x);
    int holds;
    struct row_sums sums = sum_backward(row, arguments, index, weight, shift, &holds, centered, is_given);
    double rest = row->statistics.mean - (double)shift;
    if (is_given && centered && holds && fabs(rest * row->statistics.rstd) > 4) {
        /* The sum of h (x - shift) is one of floats: with a shift that far from the mean it would lose digits. */
        shift = (float)row->statistics.mean;
        sums = sum_backward(row, arguments, index, weight, shift, &holds, centered, is_given);
        rest = row->statistics.mean - (double)shift;
    }
    int has_rstd = arguments->rstd != NULL;
    double given_rstd = has_rstd ? (double)load_float(arguments->rstd + index) : 0;
    if (has_rstd)
        row->statistics.rstd = given_rstd;
    double rstd = row->statistics.rstd, scale = 1 / (double)channels;
    double h_term = -rstd * (sums.h * scale);
    double n_term = -rstd * (rstd * (sums.hx - (centered ? rest * sums.h : 0)) * scale);
    row->is_wide = !holds || !h_sums_hold(&sums, rstd, x, dy, channels) ||
                   !(fabs(rstd) <= 0x1p100 && fabs(h_term) <= 0x1p100 && fabs(n_term) <= 0x1p100);
    row->h_term = (float)h_term;
    row->n_term = (float)n_term;
    if (row->is_wide) {
        row->statistics = dynnorm_wide_statistics(x, channels, (double)arguments->eps, centered);
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
    size_t channels = arguments->channels;
    struct norm_sums sums = {0};
    struct norm_row row = {0}; /* of the row before the one that sums is about */
    const float *x = NULL;
    float *y = NULL; /* NULL: there is nothing to compute of that row */
    for (size_t index = first;; index++) {
        int more = index < first + rows;
        if (more)
            begin_norm_sums(&sums, arguments->x + index * arguments->x_stride, centered);
        for (size_t c = 0; c < channels; c += BLOCK) {
            size_t n = channels - c < BLOCK ? channels - c : BLOCK;
            if (more)
                sum_norm_channels(&sums, c, n, centered);
            if (y)
                forward_channels(y + c, x + c, parameter_block(&weight, c, n),
                                 centered ? parameter_block(&bias, c, n) : NULL, n, arguments->streams, normalize,
                                 &row);
        }
        if (!more)
            break;
        end_norm_sums(&sums, &row, channels, arguments->eps, centered);
        if (arguments->mean)
            store_float(arguments->mean + index, row.mean);
        if (arguments->rstd)
            store_float(arguments->rstd + index, row.rstd);
        x = sums.x;
        y = arguments->y ? arguments->y + index * arguments->y_stride : NULL;
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
    wide p_sums[16 / LANES];
    begin_partial_sums(sums, arguments->channels, p_sums);
    for (size_t done = 0; done < rows; done += 4) {
        int group = rows - done < 4 ? (int)(rows - done) : 4;
        struct norm_row contexts[4];
        for (int i = 0; i < group; i++) {
            size_t row = first + done + (size_t)i;
            if (arguments->rstd && (arguments->mean || !centered))
                prepare_backward(&contexts[i], arguments, row, &weight, centered, 1);
            else
                prepare_backward(&contexts[i], arguments, row, &weight, centered, 0);
        }
        backward_rows_of_group(arguments, first + done, group, done == 0, contexts, &weight, &operation, sums, p_sums);
    }
    if (arguments->streams)
        vec_end_streaming();
}

#endif
