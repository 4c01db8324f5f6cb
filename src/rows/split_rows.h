/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows whose channels are split into parts, of which a kernel has one: what the parts tell one another of each of their
 * blocks, in an array of doubles. It has what becomes the sums of a row, as an unsplit row has it, and what is needed
 * of rows whose sums cannot be trusted. Both depend on the block's own channels and the length of the row alone, so
 * that one exchange is enough.
 */
#ifndef DYNNORM_SPLIT_ROWS_H
#define DYNNORM_SPLIT_ROWS_H

#include "kernels.h"
#include "rows/row_sums.h"

/* The doubles of a block in the forward pass. Those behind the first two are of norms that take the mean out. */
enum { SPLIT_XX, SPLIT_TRUSTED_XX, SPLIT_X, SPLIT_TRUSTED_X };
_Static_assert(SPLIT_X == FORWARD_SPLIT_DOUBLES(0) && SPLIT_TRUSTED_X + 1 == FORWARD_SPLIT_DOUBLES(1), "doubles");

/* The same in the backward pass. Those called CAREFUL, and the largest abs(w) of the part, are 0 where the first sums
 * of the block can be trusted by themselves, but for the sum of x - mean in double, which is always there. */
enum {
    SPLIT_HV,
    SPLIT_CAREFUL_HX,
    SPLIT_CAREFUL_XX,
    SPLIT_CAREFUL_HH,
    SPLIT_GREATEST_WEIGHT,
    SPLIT_H,
    SPLIT_V,
    SPLIT_ABSOLUTE_HV,
    SPLIT_CAREFUL_X,
    SPLIT_CAREFUL_H
};
_Static_assert(SPLIT_H == BACKWARD_SPLIT_DOUBLES(0) && SPLIT_CAREFUL_H + 1 == BACKWARD_SPLIT_DOUBLES(1), "doubles");

/* Where a part keeps what it tells of a row. */
INLINE double *split_sums_of_row(const struct split_rows *split, size_t row, size_t doubles) {
    return split->sums +
           (split->first_block * split->tokens + row * SUMMED_BLOCKS(split->channels[split->part])) * doubles;
}

/* The blocks of a row, in the order of its channels. */
struct split_block {
    size_t channels;
    const double *sums;
    size_t part;   /* of the next block */
    size_t next;   /* its number in that part */
    size_t before; /* blocks of the parts before */
};

INLINE struct split_block before_split_blocks(void) {
    return (struct split_block){0, NULL, 0, 0, 0};
}

/* Goes on to the next block. Gives 0 if there is none. */
OUTLINED int next_split_block(struct split_block *at, const struct split_rows *split, size_t row, size_t doubles) {
    if (at->part == split->parts)
        return 0;
    const size_t channels = split->channels[at->part], blocks = SUMMED_BLOCKS(channels);
    at->channels = channels_of_summed_block(at->next * SUMMED_BLOCK, channels);
    at->sums = split->sums + (at->before * split->tokens + row * blocks + at->next) * doubles;
    if (++at->next == blocks) {
        at->before += blocks;
        at->next = 0;
        at->part++;
    }
    return 1;
}

#endif
