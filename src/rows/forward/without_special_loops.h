/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations without special loops (HAS_SPECIAL_LOOPS): each row is summed, and then its y
 * computed, in little code for any number of channels. The bits are the same as ever.
 */
#ifndef DYNNORM_FORWARD_WITHOUT_SPECIAL_LOOPS_H
#define DYNNORM_FORWARD_WITHOUT_SPECIAL_LOOPS_H

#include "rows/forward/long_rows.h"
#include "rows/forward/normalized_channels.h"
#include "rows/row_sums.h"

/* As long as two rows stay in the nearest cache y waits until the next row is summed, since the CPU can do that while
 * the end of the row before is on its way. */
INLINE void forward_rows_simply(const struct forward_call *call, const struct normalization *normalization) {
    const size_t channels = call->constants->channels, has_y = call->y.rows.data != NULL;
    const size_t late = has_y && channels <= MOST_CHANNELS_OF_SINGLE_ROWS;
    struct long_rows rows;
    begin_long_rows(&rows, call);
    for (size_t row = 0; row < call->rows + late; row++) {
        if (row < call->rows) {
            const float *x = row_of(&call->x, row);
            struct totals sums = {0, 0};
            for (size_t first = 0; first < channels; first += SUMMED_BLOCK)
                add_totals(&sums,
                           sum_block(x + first, channels_of_summed_block(first, channels), normalization->sums_in));
            finish_long_row(call, &rows, sums, row, normalization);
        }
        if (has_y && row >= late)
            write_row_by_blocks(call, &rows, row - late);
    }
}

#endif
