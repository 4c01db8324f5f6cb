/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations in a build without special loops (DYNNORM_WITHOUT_SPECIAL_LOOPS): each row is
 * summed, and then its y computed, in little code for any number of channels. The bits are the same as ever.
 */
#ifndef DYNNORM_FORWARD_WITHOUT_SPECIAL_LOOPS_H
#define DYNNORM_FORWARD_WITHOUT_SPECIAL_LOOPS_H

#include "rows/forward_long_rows.h"
#include "rows/normalized_channels.h"
#include "rows/row_sums.h"

#ifdef DYNNORM_WITHOUT_SPECIAL_LOOPS
enum { HAS_SPECIAL_LOOPS = 0 };
#else
enum { HAS_SPECIAL_LOOPS = 1 };
#endif

INLINE void forward_rows_simply(const struct forward_call *call, const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)call->constants->channels;
    struct long_rows rows;
    begin_long_rows(&rows, call);
    for (size_t row = 0; row < call->rows; row++) {
        struct row_sums sums;
        sum_channels(&sums, normalization->sums_in, row_of(&call->x, row), channels);
        finish_long_row(call, &rows, &sums, row, normalization);
        if (call->y.rows.data)
            write_unusual_channels(call, &rows, row, (struct block){0, (size_t)channels});
    }
}

#endif
