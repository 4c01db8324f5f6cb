/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Writing: every output row leaves the drivers as blocks of floats, in order. The driver asks where a block is to go,
 * writes the floats there, and says that they are written. They go straight to the caller's memory, or to a buffer from
 * which they are stored past the caches or added to what is there.
 *
 * Stores past the caches take whole, aligned cache lines. So the beginning and the end of a row that is not aligned are
 * stored as usual, and the part of a line at the end of a block waits in the buffer for the next block. Drivers that
 * store past the caches without a buffer say so: see write_tensor_directly.
 */
#ifndef DYNNORM_WRITER_H
#define DYNNORM_WRITER_H

#include "kernel_names.h"
#include "kernels.h"
#include "rows/blocks.h"
#include "rows/places.h"
#include "rows/tensor.h"
#include "vec.h"

struct output {
    struct rows rows; /* without data nothing is written */
    size_t channels;
    int accumulates; /* add to what is there */
    int streams;     /* store past the caches; rows are then aligned as floats are */
    int is_buffered;
    int is_direct; /* vectors may be stored past the caches without a buffer, at cache lines */
};

/* A block on its way. One buffer serves one row at a time. */
struct write_buffer {
    _Alignas(64) float floats[BLOCK + FLOATS_OF_LINE]; /* as cache lines, lest a vector crosses two of them */
    size_t held; /* floats at the front that wait for the rest of their cache line; begins as 0 */
};

INLINE struct output write_tensor(const struct tensor *tensor, size_t channels, int accumulates, int streams) {
    int is_buffered = tensor->data && (accumulates || (streams && VEC_CAN_STREAM));
    return (struct output){rows_of(tensor), channels, accumulates, streams, is_buffered, 0};
}

/* The same for a driver that stores vectors past the caches itself where it can. */
INLINE struct output write_tensor_directly(const struct tensor *tensor, size_t channels, int accumulates, int streams) {
    struct output output = write_tensor(tensor, channels, accumulates, streams);
    output.is_direct = output.is_buffered && !accumulates && rows_are_aligned(tensor, FLOATS_OF_LINE * sizeof(float));
    output.is_buffered = output.is_buffered && !output.is_direct;
    return output;
}

/* The same for a driver that stores vectors past the caches wherever they are whole: rows must be made of whole lines.
 */
INLINE struct output write_lines_directly(const struct tensor *tensor, size_t channels, int streams) {
    return are_whole_lines(channels, sizeof(float)) ? write_tensor_directly(tensor, channels, 0, streams)
                                                    : write_tensor(tensor, channels, 0, streams);
}

/* For a driver that stores whole cache lines past the caches itself, though rows need not begin or end with them. Gives
 * whether it has to: otherwise all vectors of the output may go there, or none. */
INLINE int takes_partial_lines(struct output *output) {
    const int has_partial_lines = output->is_buffered && !output->accumulates;
    if (has_partial_lines) {
        output->is_buffered = 0;
        output->is_direct = 1;
    }
    return has_partial_lines;
}

/* A store waits for its line, and holds up the stores behind it. The CPU can fetch lines out of order only if it is
 * asked for them, as here, when it reads what a store is computed from, or earlier. Nothing happens where there is no
 * such line. */
INLINE void fetch_to_write(const float *place, size_t floats_ahead) {
    __builtin_prefetch((const void *)((uintptr_t)place + floats_ahead * sizeof(float)), 1, 3);
}

/* Whether the loops of LayerNorm and RMSNorm fetch what they write, most of them if arguments say so. With AVX2 they do
 * not, but for partial lines. On a Zen 3, whose last-level cache counts as large, they took up to 1.1 times as long
 * when they looked and fetched, and up to 1.07 times when rows of 64 channels were fetched without a look. CPUs without
 * AVX-512 whose caches are farther away were not measured. */
enum { MAY_FETCH_WHAT_IS_WRITTEN = LANES > 1 && LANES != 8 };

INLINE float *block_to_write(const struct output *output, size_t row, struct block block, struct write_buffer *buffer) {
    return output->is_buffered ? buffer->floats + buffer->held + place_in_buffer(block)
                               : row_of(&output->rows, row) + block.first;
}

/* to = a + b, all of them floats; to may be a or b. */
DYNNORM_INTERNAL void ADD_FLOATS(float *to, const float *a, const void *b, size_t count);

/* Moves count floats at the front of a buffer to where they belong, whole cache lines past the caches and others as
 * usual. Unless they are the last ones, those of a line that is not complete stay in the buffer, at its front. Gives
 * how many do. */
DYNNORM_INTERNAL size_t STREAM_BUFFER(float *to, float *floats, size_t count, int are_last);

INLINE void block_is_written(const struct output *output, size_t row, struct block block, struct write_buffer *buffer) {
    if (!output->is_buffered)
        return;
    float *to = row_of(&output->rows, row) + block.first;
    if (output->accumulates)
        ADD_FLOATS(to, to, buffer->floats, block.count);
    else
        buffer->held = STREAM_BUFFER(to - buffer->held, buffer->floats, buffer->held + block.count,
                                     block.first + block.count == output->channels);
}

/* A vector of a row. past_caches tells, when compiling, that whole ones may go there, and then lie within a cache line.
 */
INLINE void write_vector(float *row, struct place place, vec a, int past_caches) {
    if (past_caches && place.whole)
        vec_stream(row + place.channel, a);
    else
        store_vector(row, place, a);
}

/* Whether a tensor of the output's size lies beyond the caches, so that its rows come from memory. */
INLINE int is_beyond_caches(const struct output *output) {
    return output->streams;
}

/* Once a kernel has written its last row. */
INLINE void end_writing(const struct output *output) {
    if (output->streams)
        vec_end_streaming();
}

#endif
