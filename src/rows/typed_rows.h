/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows of any type in the backward pass: some channels of a few rows are widened into buffers of floats, where a driver
 * computes as ever, and what it leaves there of dx is narrowed. The floats stay in the nearest cache. Groups of rows of
 * 16 bits mostly do not go this way, where there are loops for them: see backward/halves.h, backward/halves_by_pairs.h,
 * and halves_in_place in backward/elementwise_rows.h.
 */
#ifndef DYNNORM_TYPED_ROWS_H
#define DYNNORM_TYPED_ROWS_H

#include "kernel_names.h"
#include "kernels.h"
#include "rows/blocks.h"

/* Some channels of some rows, as many as fit into a buffer. */
struct typed_place {
    size_t first_row;
    int rows;
    struct block channels;
    /* From these rows and channels to those that are prefetched meanwhile; 0 and 0: none are. The CPU does not fetch
       them by itself while others are computed in the buffers. */
    ptrdiff_t rows_ahead;
    ptrdiff_t channels_ahead;
    size_t count_ahead; /* channels of each row that are */
};
_Static_assert((int)LEAST_TYPED_ROOM == (int)GROUP * (int)BLOCK, "a block of channels of a group");

#ifdef DYNNORM_WITHOUT_TYPES
#define READ_TYPED_ROWS(arguments, place, x, dy, dx) ((void)(place))
#define WRITE_TYPED_ROWS(arguments, place, dx) ((void)(place), (void)(dx))
#else
/* Finds the floats of each row from the first of these channels on: of x and dy what there is, of dx room for it. */
DYNNORM_INTERNAL void READ_TYPED_ROWS(const struct backward_arguments *arguments, const struct typed_place *place,
                                      const float **x, const float **dy, float **dx);

/* Writes dx of these rows. The room that they have for it then means nothing. */
DYNNORM_INTERNAL void WRITE_TYPED_ROWS(const struct backward_arguments *arguments, const struct typed_place *place,
                                       float *const *dx);
#endif

#endif
