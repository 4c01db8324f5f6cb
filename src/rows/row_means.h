/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The means of some rows: what the centered DyISRU needs to know of a row.
 *
 * The sums are made in double, so that the mean of a constant row is exactly its value. There are 16 lanes: lane k
 * takes channels k, k + 16, k + 32 and so on. In each span of 64 channels it has two pairs of terms, which are added
 * first. Of a last span that is not whole it takes the terms one by one. The lanes are added up like those of
 * row_sums.h, and so are the blocks of long rows.
 */
#ifndef DYNNORM_ROW_MEANS_H
#define DYNNORM_ROW_MEANS_H

#include "model_marks.h"
#include "rows/row_sums.h"
#include "vec.h"

enum { ROWS_OF_MEANS = 8 };

struct row_means {
    _Alignas(64) float mean[ROWS_OF_MEANS];
    float correction[ROWS_OF_MEANS]; /* the float less the mean: what rounding added */
};

/* In every lane. */
struct mean_vectors {
    vec mean;
    vec correction;
};

INLINE struct mean_vectors mean_vectors(float mean, float correction) {
    return (struct mean_vectors){vec_set(mean), vec_set(correction)};
}

INLINE vec take_mean_from(vec x, const struct mean_vectors *mean) {
    return vec_add(vec_sub(x, mean->mean), mean->correction);
}

/* The last eight lanes of the sum of a block. */
INLINE eight lanes_of_block(const float *x, ptrdiff_t channels) {
    wide lanes[PARTS];
    ptrdiff_t i = 0;
    UNROLL_PARTS
    for (int part = 0; part < PARTS; part++)
        lanes[part] = wide_set(0);
    for (; i + ROW_SPAN <= channels; i += ROW_SPAN) {
        UNROLL_PARTS
        for (int part = 0; part < PARTS; part++) {
            wide terms[4];
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++)
                terms[k] = wide_load_floats(x + i + 16 * k + LANES * part);
            lanes[part] = wide_add(lanes[part], wide_add(wide_add(terms[0], terms[1]), wide_add(terms[2], terms[3])));
        }
        MODEL_PASS("sums", ROW_SUMS_IN_DOUBLE, ROW_SPAN);
    }
    for (; i < channels; i += 16)
        UNROLL_PARTS
    for (int part = 0; part < PARTS; part++) {
        const ptrdiff_t first = i + LANES * part;
        lanes[part] = wide_add(lanes[part], vec_widen(vec_load_n(x + first, channels - first, vec_set(0))));
    }
    return wide_fold(lanes);
}

/* The same of a row; of a long one, where all has been added, in the first lane. */
INLINE eight sum_of_row(const float *x, size_t channels) {
    _Alignas(64) double sum[8] = {0};
    size_t first = 0;
    for (;; first += SUMMED_BLOCK) {
        const eight lanes = lanes_of_block(x + first, (ptrdiff_t)channels_of_summed_block(first, channels));
        if (channels <= SUMMED_BLOCK)
            return lanes;
        sum[0] += eight_sum(lanes);
        if (channels - first <= SUMMED_BLOCK)
            return eight_load(sum);
    }
}

/* Of count rows, at most eight. An infinity or a NaN makes the mean NaN, and so all of its row. */
OUTLINED void find_row_means(struct row_means *means, const float *const *rows, size_t count, size_t channels) {
    eight sums[ROWS_OF_MEANS];
    for (size_t row = 0; row < ROWS_OF_MEANS; row++)
        sums[row] = row < count ? sum_of_row(rows[row], channels) : eight_set(0);
    const eight mean = eight_div(eight_sums(sums), eight_set((double)channels));
    const eight nothing = eight_mul(mean, eight_set(0)); /* or NaN */
    eight_store_floats(means->mean, eight_add(mean, nothing));
    eight_store_floats(means->correction, eight_sub(eight_load_floats(means->mean), mean));
}

#endif
