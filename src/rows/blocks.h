/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A row is taken in blocks of channels: small enough to stay in the nearest cache together with the blocks
 * of other inputs and outputs.
 */
#ifndef DYNNORM_BLOCKS_H
#define DYNNORM_BLOCKS_H

#include "inlining.h"

#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 256 };

/* Longer blocks, of which fewer are begun, and whose factors and bias still stay in the nearest cache. They are for the
 * forward pass of elementwise operations: of rows of 16 bits, and of rows of floats that need no buffers. */
enum { ELEMENTWISE_BLOCK = 4 * BLOCK };

/* The channels of a block whose sums are finished by themselves, a whole number of BLOCK, and how many such blocks
 * there are in a row or a part of one. */
enum { SUMMED_BLOCK = 1024 };
#define SUMMED_BLOCKS(channels) (((channels)-1) / SUMMED_BLOCK + 1)

/* Of a cache line. */
enum { FLOATS_OF_LINE = 16 };

/* From one row of a buffer to the next, where every row begins a cache line. */
INLINE size_t stride_of_whole_lines(size_t channels) {
    return (channels + FLOATS_OF_LINE - 1) / FLOATS_OF_LINE * FLOATS_OF_LINE;
}

/* How many floats there are from the beginning of some room to the first one that begins a cache line. */
INLINE size_t to_next_line(const float *room) {
    return (0 - (uintptr_t)room) / sizeof(float) % FLOATS_OF_LINE;
}

/* Rows that lie so many floats apart, or a multiple of that, have their places in the same sets of the nearest cache.
 */
enum { FLOATS_OF_PAGE = 1024 };

/* A load waits for a store to the same place in another page that is still on its way, and x, dy and dx mostly lie at
 * the same places in their pages. So what loops write and read besides is to lie elsewhere. This is how many floats
 * after the beginning of some room there is a place that, in its page, is so many floats behind x. */
INLINE size_t place_behind(size_t floats, const float *x, const void *room) {
    const size_t distance = ((uintptr_t)x - (uintptr_t)room) / sizeof(float) / FLOATS_OF_LINE * FLOATS_OF_LINE;
    return (distance + floats) % FLOATS_OF_PAGE;
}

/* Channels [first, first + count) of a row. Whatever has a buffer for a block takes at most BLOCK of them at a time. */
struct block {
    size_t first;
    size_t count;
};

INLINE struct block block_of(size_t most, size_t first, size_t channels) {
    return (struct block){first, channels - first < most ? channels - first : most};
}

INLINE struct block block_at(size_t first, size_t channels) {
    return block_of(BLOCK, first, channels);
}

/* Where in a buffer of a whole block the channels of a part of it have their place. */
INLINE size_t place_in_buffer(struct block block) {
    return block.first % BLOCK;
}

#endif
