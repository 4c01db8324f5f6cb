/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm where one row is all there is: see backward/normalization.h. Its terms are
 * the gradients, which need no sums over tokens.
 */
#ifndef DYNNORM_BACKWARD_ONE_ROW_H
#define DYNNORM_BACKWARD_ONE_ROW_H

#include "rows/backward/reduction.h"

/* Where the row and its gradients lie. */
struct one_row_places {
    const float *weight;
    const float *x;
    const float *dy;
    float *dx;
    float *dweight;
    float *dbias;
};

/* The factor of a norm's gradients is 1. A gradient of -0 would have to be written as 0, but of such rows nothing is
 * kept: see sums_hold. */
INLINE void one_row_step(struct greatest_sums *greatest, const struct one_row_places *row,
                         const struct gradient_vectors *constants, struct place place, int is_centered) {
    const struct pair_kind kind = {1, 0, 0, 0, is_centered, 0, DYNNORM_F32, 0};
    const vec weight = load_vector(row->weight, place, vec_set(0));
    struct pair_terms terms;
    store_vector(row->dx, place, find_row_terms(&terms, row->x, row->dy, weight, constants, place, 0, &kind));
    store_vector(row->dweight, place, terms.dweight);
    add_greatest_dweight(greatest, place.whole ? terms.dweight
                                               : vec_load_n(row->dweight + place.channel, place.count, vec_set(1)));
    if (!is_centered)
        return;
    store_vector(row->dbias, place, terms.dbias);
    greatest->dbias = vec_max_bits(greatest->dbias, vec_abs(terms.dbias));
}

/* AVX-512 and AVX2 gain nothing by two steps at once, which take 400 bytes more. */
enum { STEPS_OF_ONE_ROW_AT_ONCE = LANES < 8 ? 2 : 1 };

/* Whole vectors. Returns where they end. */
INLINE ptrdiff_t one_row_steps(struct greatest_sums *greatest, const struct one_row_places *row,
                               const struct gradient_vectors *constants, ptrdiff_t count, int is_centered) {
    ptrdiff_t i = 0;
#pragma GCC unroll STEPS_OF_ONE_ROW_AT_ONCE
    for (; i + LANES <= count; i += LANES)
        one_row_step(greatest, row, constants, (struct place){i, LANES, 1}, is_centered);
    return i;
}

/* Gives 0 where there is no room for the floats of all of the row. */
INLINE int begin_one_row(struct reduction_work *work) {
    const size_t channels = work->arguments->channels;
    if (!has_typed_rows(work))
        return 1;
    work->has_all_floats = channels <= work->typed->room;
    if (work->has_all_floats)
        read_typed_rows(work, 0, 1, (struct block){0, channels});
    return work->has_all_floats;
}

/* Gives 0 where float does not hold the row or its gradients. What it has written then is to be written again; it has
 * not overwritten an input. */
INLINE int backward_one_row(struct reduction_work *work, size_t channels, int is_centered) {
    const float *const weight = work->weight.values, *const x = work->x_rows[0], *const dy = work->dy_rows[0];
    float *const dx = work->dx_rows[0], *const dweight = work->gradients[0].values;
    float *const dbias = is_centered ? work->gradients[1].values : NULL;
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    struct gradient_vectors constants;
    begin_rows(work, 0, 1, is_centered);
    if (work->careful || work->has_residual)
        return 0;
    set_gradient_vectors(&constants, work->constants, 0);
    const struct one_row_places row = {weight, x, dy, dx, dweight, dbias};
    const ptrdiff_t count = (ptrdiff_t)channels;
    /* Each norm has a loop of its own: one that asks in each step took 1.15 to 1.2 times as long with AVX2. */
    const ptrdiff_t i = is_centered ? one_row_steps(&greatest, &row, &constants, count, 1)
                                    : one_row_steps(&greatest, &row, &constants, count, 0);
    if (LANES > 1 && i < count)
        one_row_step(&greatest, &row, &constants, (struct place){i, count - i, 0}, is_centered);
    return sums_hold(&greatest, is_centered);
}

#endif
