/* SPDX-License-Identifier: BSD-2-Clause
 *
 * LayerNorm: n = (x - mean) rstd.
 */
#ifndef DYNNORM_LAYERNORM_H
#define DYNNORM_LAYERNORM_H

#include "operations/normalization.h"
#include "rows/forward/halves_loops.h"
#include "rows/forward/normalization.h"

INLINE vec layernorm_normalize(vec x, const struct row_vectors *row) {
    return vec_fma(x, row->rstd, row->offset);
}

static const struct normalization layernorm_normalization;
static const struct operation layernorm_portable;

OUTLINED void layernorm_write_block(const struct forward_call *call, size_t row, struct block at,
                                    const struct eight_rows *rows, struct write_buffer *buffer) {
    write_block_of_row(call, row, at, rows, buffer, &layernorm_normalization);
}

SHARED_LINES(layernorm)
LONG_ROWS(layernorm)
ROWS_FROM_MEMORY(layernorm)
ROWS_ONE_BY_ONE(layernorm)
SHORT_GROUPS(layernorm)
ROWS_OF_HALVES(layernorm)

static const struct normalization layernorm_normalization = {
    .has_bias = layernorm_has_bias,
    .is_centered = 1,
    .sums_in = ROW_SUMS_IN_DOUBLE,
    .normalize = layernorm_normalize,
    .rows_one_by_one = layernorm_rows_one_by_one,
    .short_groups = SPECIAL_LOOP(layernorm_short_groups),
    .any_short_group = SPECIAL_LOOP(layernorm_any_short_group),
    .groups_of_spans = SPECIAL_LOOP(layernorm_short_groups_spans),
    .forward_parts = SPECIAL_LOOP(layernorm_forward_parts),
    .forward_rows_from_memory = SPECIAL_LOOP(layernorm_forward_rows_from_memory),
    .forward_plain_rows = HAS_PLAIN_SINGLE_ROWS(1) ? SPECIAL_LOOP(layernorm_forward_plain_rows) : NULL,
    .forward_plain_groups = SPECIAL_LOOP(layernorm_forward_plain_groups),
    .of_halves = FUNCTIONS_OF_HALVES(layernorm),
    .lines_of_row = VEC_CAN_STREAM ? SPECIAL_LOOP(layernorm_lines_of_row) : NULL,
    .write_block = layernorm_write_block,
};

static const struct elements layernorm_elements = {
    .has_bias = layernorm_has_bias,
};

static const struct operation layernorm_portable = {
    .begin_call = begin_normalization,
    .normalization = &layernorm_normalization,
    .elements = &layernorm_elements,
};

#endif
