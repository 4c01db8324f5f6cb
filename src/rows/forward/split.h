/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations for rows that are split (split_rows.h): what a part tells of each row, and, once
 * all parts have told that, its y.
 */
#ifndef DYNNORM_FORWARD_SPLIT_H
#define DYNNORM_FORWARD_SPLIT_H

#include "rows/forward/long_rows.h"
#include "rows/forward/one_row.h"
#include "rows/split_rows.h"

INLINE void tell_split_row(double *to, const float *x, size_t channels, int is_centered) {
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK, to += FORWARD_SPLIT_DOUBLES(is_centered)) {
        const size_t count = channels_of_summed_block(first, channels);
        const struct totals sums = is_centered ? sum_long_row_in_double(x + first, (ptrdiff_t)count, 1)
                                               : sum_long_row_of_squares(x + first, (ptrdiff_t)count, 1);
        struct totals trusted = sums;
        if (!is_trusted_block(sums, count, is_centered))
            trusted = sums_less_shift(x + first, count, sums, is_centered);
        to[SPLIT_XX] = sums.xx;
        to[SPLIT_TRUSTED_XX] = trusted.xx;
        if (!is_centered)
            continue;
        to[SPLIT_X] = sums.x;
        to[SPLIT_TRUSTED_X] = trusted.x;
    }
}

INLINE struct totals totals_of_split_row(const struct split_rows *split, size_t row, int is_centered) {
    struct totals sums = {0, 0};
    struct split_block block = before_split_blocks();
    while (next_split_block(&block, split, row, FORWARD_SPLIT_DOUBLES(is_centered)))
        add_totals(&sums, (struct totals){is_centered ? block.sums[SPLIT_X] : 0, block.sums[SPLIT_XX]});
    return sums;
}

FOR_SIZE OUTLINED void forward_split_rows(const struct forward_call *call) {
    const struct normalization *normalization = call->operation->normalization;
    const struct split_rows *split = call->split;
    const int is_centered = normalization->is_centered;
    const size_t channels = call->constants->channels, doubles = FORWARD_SPLIT_DOUBLES(is_centered);
    struct long_rows rows;
    begin_long_rows(&rows, call);
    for (size_t row = 0; row < call->rows; row++) {
        const size_t of_split = call->split_row + row;
        if (split->tells) {
            tell_split_row(split_sums_of_row(split, of_split, doubles), row_of(&call->x, row), channels, is_centered);
            continue;
        }
        finish_long_row(call, &rows, totals_of_split_row(split, of_split, is_centered), row, normalization);
        if (call->y.rows.data)
            write_row_by_blocks(call, &rows, row);
    }
}

#endif
