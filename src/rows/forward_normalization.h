/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The driver of the forward pass of operations that normalize a row by its own sums: y = w n + b.
 *
 * A row is read twice, for its sums and for y. What costs time is not so much the arithmetic as the end of a row, from
 * 16 lanes to one sum, a square root and a division, since each of these steps waits for the one before. So y is
 * computed some rows after the sums, side by side with the sums of later rows. Short rows go in groups of eight, which
 * end together: one square root and one division serve eight rows. Of long rows a single one, or eight where weight and
 * bias would not stay in the nearest cache together with a row.
 *
 * The loops differ only in the order in which rows and channels are walked: the bits are the same in all of them.
 */
#ifndef DYNNORM_FORWARD_NORMALIZATION_H
#define DYNNORM_FORWARD_NORMALIZATION_H

#include "kernels.h"
#include "operations/operation.h"
#include "rows/forward_long_rows.h"
#include "rows/forward_short_rows.h"
#include "rows/normalized_channels.h"

INLINE void forward_rows(const struct forward_call *call, const struct normalization *normalization) {
    struct long_rows long_rows;
    if (call->constants->channels <= MOST_SHORT_CHANNELS) {
        forward_short_rows(call, normalization);
        return;
    }
    begin_long_rows(&long_rows, call);
    if (call->constants->channels <= MOST_CHANNELS_OF_SINGLE_ROWS)
        forward_single_rows(call, &long_rows, normalization);
    else
        forward_groups_of_rows(call, &long_rows, normalization);
}

INLINE void forward_normalization(const struct forward_arguments *arguments, size_t first, size_t rows,
                                  const struct operation *operation) {
    const struct normalization *normalization = operation->normalization;
    const struct call_constants constants =
        operation->begin_call(arguments->channels, arguments->eps, arguments->parameter, arguments->scale);
    float weight_buffer[BLOCK], bias_buffer[BLOCK];
    struct forward_call call = {
        .y = write_tensor_directly(&arguments->y, constants.channels, arguments->streams),
        .weight = read_weight(arguments->weight, arguments->weight_offset, weight_buffer),
        .bias = read_bias(normalization->has_bias ? arguments->bias : NULL, bias_buffer),
        .constants = &constants,
        .operation = operation,
    };
    for (size_t row = first; row < first + rows; row += call.rows) {
        const size_t x_rows = rows_on_first_axis(&arguments->x, row), y_rows = rows_on_first_axis(&arguments->y, row);
        call.rows = first + rows - row;
        call.rows = call.rows < x_rows ? call.rows : x_rows;
        call.rows = call.rows < y_rows || !arguments->y.data ? call.rows : y_rows;
        call.x = rows_from(&arguments->x, row);
        call.y.rows = rows_from(&arguments->y, row);
        call.mean = arguments->mean ? arguments->mean + row : NULL;
        call.rstd = arguments->rstd ? arguments->rstd + row : NULL;
        forward_rows(&call, normalization);
    }
    end_writing(&call.y);
}

#endif
