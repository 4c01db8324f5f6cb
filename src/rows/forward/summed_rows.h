/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows that are made, as sums, where they are read first.
 */
#ifndef DYNNORM_FORWARD_SUMMED_ROWS_H
#define DYNNORM_FORWARD_SUMMED_ROWS_H

#include "kernels.h"
#include "rows/blocks.h"
#include "rows/tensor.h"

/* Makes some channels of a row, which begins at to. What comes after them is prefetched: between two blocks the CPU has
 * so much else to do that it would not look as far ahead by itself. */
OUTLINED void make_sums(const struct summed_rows *of, void *to, size_t row, struct block channels) {
    const size_t at = of->first + row, bytes = channels.first * of->a.element_bytes, ahead = 4096;
    const struct sum_of_elements sum = {
        .to = (unsigned char *)to + bytes,
        .past_caches = of->past_caches.data ? address_of_row(&of->past_caches, at) + bytes : NULL,
        .a = address_of_row(&of->a, at) + bytes,
        .b = address_of_row(&of->b, at) + bytes,
        .bias = of->bias ? of->bias + channels.first : NULL,
        .count = channels.count,
        .ahead = ahead,
    };
    of->sum(&sum);
}

#endif
