/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the sizes of the caches decide: whether a pass stores its output tensor past them, whether it fetches its rows
 * ahead, and how long rows may be to stay in the nearest one.
 */
#ifndef DYNNORM_CACHES_H
#define DYNNORM_CACHES_H

#include "dynnorm.h"
#include "rows/tensor.h"

/* So many elements or fewer are never stored past the caches: no cache is that small. */
enum { FEW_ELEMENTS = 1 << 16 };

/* y and dx say where the rows of the call's tensors of these names lie. */
int dynnorm_streams_y(const dynnorm_descriptor *call, const struct tensor *y);
int dynnorm_streams_dx(const dynnorm_descriptor *call, const struct tensor *dx);

/* The same for so many rows of y, or of the sum. Of the sum ask dynnorm_sum_goes_past_caches of api/residual.h, which
 * knows more. */
int dynnorm_streams(const dynnorm_descriptor *call, const struct tensor *output, size_t rows);
int dynnorm_streams_sum(const dynnorm_descriptor *call, const struct tensor *sum, size_t rows);

/* Whether so many rows of y, if it is asked for, come from the last-level cache or from memory, and x with them. */
int dynnorm_rows_are_far(const dynnorm_descriptor *call, const struct tensor *y, size_t rows);

/* Whether the last-level cache has the size of many second-level caches: see caches.c. */
int dynnorm_has_large_last_level(void);

/* Whether the first-level cache has 48 KB or more. */
int dynnorm_nearest_cache_is_large(void);

/* Whether it pays for the loops of LayerNorm and RMSNorm to ask for the lines that they will write. */
int dynnorm_fetches_to_write(void);

/* Whether it pays to round to bfloat16 by the CPU's instruction, which takes denormals for 0, where there are none. */
int dynnorm_rounds_by_instruction(void);

/* Whether rows of a backward pass lie so far away that it pays to ask for them long before they are needed. */
int dynnorm_fetches_ahead(const dynnorm_descriptor *call);

/* Whether it pays for LayerNorm and RMSNorm to make the sums of two rows at a time, backward: if they may lie in the
 * caches. */
int dynnorm_sums_two_rows(const dynnorm_descriptor *call);

/* Whether it pays for LayerNorm and RMSNorm to make the sums of a group of rows of 64 channels while dx of the one
 * before is computed: if they may lie in the caches. */
int dynnorm_overlaps_groups(const dynnorm_descriptor *call);

/* Whether it pays for LayerNorm and RMSNorm to ask for rows of floats from memory, x and dy, before they are needed,
 * backward. */
int dynnorm_prefetches_far_rows(void);

/* The channels that two rows of a backward pass may have if x and dy, once read, are to be in the nearest cache when
 * they are read again. */
size_t dynnorm_most_pair_channels(void);

#endif
