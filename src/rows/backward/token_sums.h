/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums over tokens. Rows are taken in groups of eight from the beginning of a block of rows on. The eight terms of a
 * channel are added pairwise in float, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), and that sum is added to a double, so
 * that the error does not grow with the number of rows. The last group may have one to seven rows; those that it lacks
 * count as nothing.
 */
#ifndef DYNNORM_BACKWARD_TOKEN_SUMS_H
#define DYNNORM_BACKWARD_TOKEN_SUMS_H

#include "kernels.h"
#include "model_marks.h"
#include "rows/places.h"
#include "rows/subnormals.h"
#include "vec.h"

#include <string.h>

/* ---- The terms of a group, row after row ---- */

struct group_sum {
    vec sum;
    vec four;
    vec pair;
};

INLINE void end_pair(struct group_sum *sum, int row, int rows) {
    int is_last = row == rows - 1;
    if (row % 2 || is_last)
        sum->four = row % 4 < 2 ? sum->pair : vec_add(sum->four, sum->pair);
    if (row % 4 == 3 || is_last)
        sum->sum = row < 4 ? sum->four : vec_add(sum->sum, sum->four);
}

INLINE void add_row(struct group_sum *sum, vec a, int row, int rows) {
    sum->pair = row % 2 ? vec_add(sum->pair, a) : a;
    end_pair(sum, row, rows);
}

INLINE void add_row_product(struct group_sum *sum, vec a, vec b, int row, int rows) {
    sum->pair = row % 2 ? vec_fma(a, b, sum->pair) : vec_mul(a, b);
    end_pair(sum, row, rows);
}

INLINE void add_row_product_by_doubles(struct group_sum *sum, vec a, vec b, int row, int rows) {
    sum->pair = row % 2 ? vec_fma_by_doubles(a, b, sum->pair) : vec_mul_by_doubles(a, b);
    end_pair(sum, row, rows);
}

/* The same order in double. The terms of rows that are missing are 0. */
INLINE wide sum_of_rows(const wide terms[GROUP]) {
    wide first = wide_add(wide_add(terms[0], terms[1]), wide_add(terms[2], terms[3]));
    return wide_add(first, wide_add(wide_add(terms[4], terms[5]), wide_add(terms[6], terms[7])));
}

/* ---- Where the sum of a group goes ---- */

/* Adds the sum of a group at a place in the row to the block's sums. Before the first group these mean nothing. */
INLINE void add_to_partial_sum(double *sums, struct place place, wide sum, int is_first) {
    if (!is_first) {
        MODEL_USUAL();
        sum = wide_add(wide_load(sums + place.channel), sum);
    }
    wide_store(sums + place.channel, sum);
}

/* A sum of -0 gives 0. */
INLINE wide finished_sum(wide sum, double factor) {
    return wide_mul(wide_add(wide_set(0), sum), wide_set(factor));
}

/* Writes a gradient at a place in the row, from its sum over all tokens. */
INLINE void finish_sum(const struct token_gradient *gradient, struct place place, wide sum) {
    sum = finished_sum(sum, gradient->factor);
    if (gradient->accumulate)
        sum = wide_add(vec_widen(load_vector(gradient->values, place, vec_set(0))), sum);
    store_vector(gradient->values, place, wide_narrow(sum));
}

/* The lanes of the sum for alpha or beta. */
struct parameter_sum {
    wide lanes[PARTS];
};

/* The first group sets the sums over tokens. What it leaves is their padding. */
INLINE void begin_partial_sums(const struct partial_sums *sums, size_t channels) {
    size_t padded = PARTIAL_SUMS_CHANNELS(channels) - PARTIAL_SUMS_CHANNELS(1);
    size_t bytes = PARTIAL_SUMS_CHANNELS(1) * sizeof(double);
    if (sums->continues)
        return;
    if (sums->dweight)
        memset(sums->dweight + padded, 0, bytes);
    if (sums->dbias)
        memset(sums->dbias + padded, 0, bytes);
}

/* The same for those of a parameter of each channel. */
INLINE void begin_channel_sums(const struct partial_sums *sums, size_t channels) {
    const size_t end = PARTIAL_SUMS_CHANNELS(channels);
    if (sums->dparameter && !sums->continues)
        for (size_t i = end - PARTIAL_SUMS_CHANNELS(1); i < end; i++)
            sums->dparameter[i] = 0;
}

/* Between the pieces of a block the lanes of the sum for the parameter wait in its place. */
INLINE void begin_parameter_sum(struct parameter_sum *parameter, const struct partial_sums *sums) {
    const int continues = sums->continues && sums->dparameter;
    for (int part = 0; part < PARTS; part++)
        parameter->lanes[part] = continues ? wide_load(sums->dparameter + LANES * part) : wide_set(0);
}

/* factor: see parameter_factor. */
INLINE void end_parameter_sum(const struct parameter_sum *parameter, const struct partial_sums *sums, double factor) {
    if (!sums->dparameter)
        return;
    if (sums->is_unfinished) {
        for (int part = 0; part < PARTS; part++)
            wide_store(sums->dparameter + LANES * part, parameter->lanes[part]);
        return;
    }
    memset(sums->dparameter, 0, PARTIAL_SUMS_CHANNELS(1) * sizeof(double));
    *sums->dparameter = eight_sum(wide_fold(parameter->lanes)) * factor;
}

/* ---- Blocks of rows ---- */

/* total += sums; count is a multiple of 16. */
OUTLINED void add_partial_sums(double *total, const double *sums, size_t count) {
    for (size_t i = 0; i < count; i += LANES)
        wide_store(total + i, wide_add(wide_load(total + i), wide_load(sums + i)));
}

OUTLINED void finish_partial_sums(const struct token_gradient *gradient, size_t count, const double *sums, size_t slots,
                                  size_t slot_size) {
    struct token_gradient result = *gradient;
    size_t i = 0;
    if (!slots)
        result.factor = 1; /* a negative one would make the 0 that there is to write -0 */
    if (slots == 1 && !result.accumulate && !result.channel_factors) /* which is usual */
        for (; i + LANES <= count; i += LANES)
            vec_store(result.values + i, wide_narrow(finished_sum(wide_load(sums + i), result.factor)));
    for (; i < count; i += LANES) {
        const struct place place = place_at(i, count);
        wide sum = wide_set(0);
        if (slots)
            sum = wide_add(sum, wide_load(sums + i));
        for (size_t slot = 1; slot < slots; slot++)
            sum = wide_add(sum, wide_load(sums + slot * slot_size + i));
        if (result.channel_factors && slots)
            sum = wide_mul(sum, wide_load(result.channel_factors + i));
        finish_sum(&result, place, sum);
    }
}

/* ---- A kernel that writes the gradients itself, since one block of rows covers the call ---- */

/* The gradients that can be written without sums: those of a single row, unless they are added to what is there, or
 * their factor is not positive. */
INLINE const struct token_gradient *direct_gradients(const struct partial_sums *sums) {
    const struct token_gradient *gradients = sums->gradients;
    return gradients && !gradients[0].accumulate && !gradients[1].accumulate && gradients[0].factor > 0 ? gradients
                                                                                                        : NULL;
}

/* Of that row: dweight or dbias. The product would be exact in double, and then rounded once; as a product of floats
 * is. A sum of -0 gives 0, as one that 0 is added to before: with a negative factor it would not. */
INLINE vec direct_gradient(vec sum, float factor) {
    if (LANES == 1) /* plain C may have to emulate it */
        return vec_mul(vec_add(vec_set(0), sum), vec_set(factor));
    return vec_fma(sum, vec_set(factor), vec_set(0));
}

/* The same at one place, if the gradient is asked for. */
INLINE void write_gradient(const struct token_gradient *gradient, struct place place, vec sum) {
    if (gradient->values)
        store_vector(gradient->values, place, direct_gradient(sum, (float)gradient->factor));
}

/* The same from sums that were made in double. */
INLINE void finish_channels(const struct partial_sums *sums, struct place place) {
    double *const parts[2] = {sums->dweight, sums->dbias};
    for (int i = 0; i < 2; i++)
        if (parts[i])
            finish_sum(&sums->gradients[i], place, wide_load(parts[i] + place.channel));
}

/* Of all channels. */
INLINE void finish_gradients(const struct partial_sums *sums, size_t channels, int are_written) {
    if (!sums->gradients || are_written)
        return;
    if (sums->dweight)
        finish_partial_sums(&sums->gradients[0], channels, sums->dweight, 1, 0);
    if (sums->dbias)
        finish_partial_sums(&sums->gradients[1], channels, sums->dbias, 1, 0);
}

#endif
