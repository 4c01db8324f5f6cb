/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Statistics of a row whose mean is large against its deviation. Compiled once for each table.
 */
#ifndef DYNNORM_SHIFTED_STATISTICS_H
#define DYNNORM_SHIFTED_STATISTICS_H

#include "operations/statistics.h"

struct found_statistics SHIFTED_STATISTICS(struct reader x, struct call_constants call) {
    float shift = read_value(&x, 0);
    struct channel_sums sums;
    clear_sums(&sums);
    for (size_t first = 0; first < call.channels; first += BLOCK) {
        struct block block = block_at(first, call.channels);
        const struct summed_block summed = {.wanted = SUM_X | SUM_XX, .x = read_block(&x, block), .shift = shift};
        add_block_sums(&sums, SUMS_IN_DOUBLE, &summed, block.count);
    }
    return statistics_of((struct total_sums){wide_sum(sums.x), wide_sum(sums.xx), shift}, &call, 1, LEAST_OF_DOUBLES,
                         SHIFTED_SQUARE_LIMIT);
}

#endif
