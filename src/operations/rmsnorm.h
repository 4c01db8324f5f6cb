/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RMSNorm: n = x rstd.
 */
#ifndef DYNNORM_RMSNORM_H
#define DYNNORM_RMSNORM_H

#include "operations/normalization.h"
#include "rows/forward/halves_loops.h"
#include "rows/forward/normalization.h"

INLINE vec rmsnorm_normalize(vec x, const struct row_vectors *row) {
    return vec_mul(x, row->rstd);
}

static const struct normalization rmsnorm_normalization;
static const struct operation rmsnorm_portable;

OUTLINED void rmsnorm_write_block(const struct forward_call *call, size_t row, struct block at,
                                  const struct eight_rows *rows, struct write_buffer *buffer) {
    write_block_of_row(call, row, at, rows, buffer, &rmsnorm_normalization);
}

SHARED_LINES(rmsnorm)
LONG_ROWS(rmsnorm)
ROWS_FROM_MEMORY(rmsnorm)
ROWS_ONE_BY_ONE(rmsnorm)
SHORT_GROUPS(rmsnorm)
ROWS_OF_HALVES(rmsnorm)

static const struct normalization rmsnorm_normalization = {
    .has_bias = rmsnorm_has_bias,
    .is_centered = 0,
    .sums_in = ROW_SQUARES_IN_FLOAT,
    .normalize = rmsnorm_normalize,
    .rows_one_by_one = rmsnorm_rows_one_by_one,
    .short_groups = SPECIAL_LOOP(rmsnorm_short_groups),
    .any_short_group = SPECIAL_LOOP(rmsnorm_any_short_group),
    .forward_parts = SPECIAL_LOOP(rmsnorm_forward_parts),
    .forward_rows_from_memory = SPECIAL_LOOP(rmsnorm_forward_rows_from_memory),
    .forward_plain_rows = HAS_PLAIN_SINGLE_ROWS(0) ? SPECIAL_LOOP(rmsnorm_forward_plain_rows) : NULL,
    .forward_plain_groups = SPECIAL_LOOP(rmsnorm_forward_plain_groups),
    .of_halves = FUNCTIONS_OF_HALVES(rmsnorm),
    .lines_of_row = VEC_CAN_STREAM ? SPECIAL_LOOP(rmsnorm_lines_of_row) : NULL,
    .write_block = rmsnorm_write_block,
};

static const struct elements rmsnorm_elements = {
    .has_bias = rmsnorm_has_bias,
};

static const struct operation rmsnorm_portable = {
    .begin_call = begin_normalization,
    .normalization = &rmsnorm_normalization,
    .elements = &rmsnorm_elements,
};

#endif
