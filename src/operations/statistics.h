/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm know of a row whose sums cannot be trusted: its statistics in double. is_centered tells
 * whether the mean is taken out; RMSNorm is the case in which it is not.
 */
#ifndef DYNNORM_STATISTICS_H
#define DYNNORM_STATISTICS_H

#include "inlining.h"
#include "operations/operation.h"
#include "rows/blocks.h"
#include "rows/reader.h"

INLINE struct call_constants begin_normalization(size_t channels, float eps, float parameter, float scale) {
    (void)parameter, (void)scale;
    return (struct call_constants){
        .channels = channels, .divisor = (double)channels, .reciprocal = 1 / (double)channels, .eps = (double)eps};
}

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

#endif
