/* SPDX-License-Identifier: BSD-2-Clause */
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
#include "inlining.h"
#include "kernels.h"
#include "operations.h"
#include "rows/blocks.h"

#include <stdint.h>

/* A store past the caches does not read what it overwrites, and leaves other data in the caches. But it is slower if
   the output would have stayed in them. So it pays only where the output and the inputs fill a good part of the
   last-level cache. What the system tells of that cache is wrong on some virtual machines, and several cores may share
   it. So this reckons in second-level caches, and asks for the last-level cache where the output is to be kept, or
   where second-level caches are small beside it: there the CPUs that were measured differ.

   On a Zen 4 with 1 MB of second-level and 32 MB of last-level cache, forward passes with such stores, over rows of 768
   to 4096 channels, took 0.9 to 1.2 times as long with an output of 4 MB, 0.7 to 1.1 times with 5.5 MB, and 0.6 to 1.05
   times with 8.5 MB. Together with a program that reads the output at once, from the caches or from memory, it was 1.2
   to 1.5 times with 4 MB, 0.9 to 1.4 times with 5.5 MB, 0.85 to 1.1 times with 7 MB, and 0.7 to 1.1 times with 8.5 MB.
   So an output that is to be kept in the caches is stored past them only from a larger size on, where it would not
   stay. RMSNorm and LayerNorm, measured once more in float, took 1.05 to 1.3 times as long with 7 MB, 0.95 to 1.25
   times with 8.4 MB, and 0.75 to 1.15 times with 9.5 to 10 MB, over rows of 256 to 4096 channels; over rows of 64 and
   128 channels it was 1.1 to 1.45 times with 6.5 MB, 1.0 to 1.25 times with 8 MB, and 0.4 to 0.8 times from 10 MB on.
   In bfloat16 they took 0.7 to 1.0 times with 7 to 8.4 MB over rows of 256 to 4096 channels. DyT and DyISRU took 0.8 to
   1.0 times with 7 to 8.4 MB in float, and 0.9 to 1.1 times in bfloat16.

   Backward passes over rows of 256 to 4096 channels also prefetched where they stored past the caches. LayerNorm and
   RMSNorm took 0.6 to 0.85 times as long with 4 MB, and 0.45 to 0.75 times with 5 to 7 MB; with the reader it was 0.8
   to 1.1 times with 4 MB, and 0.5 to 1 times with 5 to 7 MB. Shorter rows of these two, which have loops that do not
   store past the caches, took 2 to 2.3 times as long with any size over rows of 32 channels; over rows of 64 channels
   LayerNorm took 1.15 to 1.9 times as long, RMSNorm 1.1 to 1.9 times with 5 to 7 MB and 0.65 to 1.4 times from 10 MB
   on; over rows of 96 channels LayerNorm took 1.05 to 1.75 times as long, RMSNorm 1.2 to 1.5 times with 4.6 to 5.4 MB
   and 0.55 to 0.85 times from 7.7 MB on; over rows of 128 channels both took 0.85 to 1.4 times as long with 4.2 to 4.9
   MB, and 0.5 to 0.9 times from 5.1 MB on. DyT and DyISRU took 0.8 to 1.1 times as long with 4 MB, and 0.5 to 1 times
   with 5 to 7 MB; with the reader it was 0.9 to 1.2 times with 5 MB, 0.9 to 1.1 times with 6 MB, and 0.7 to 1.05 times
   with 7 MB.

   On an Emerald Rapids (Intel Xeon, family 6, model 207) with 2 MB of second-level and 300 MB of last-level cache, over
   rows of 4096 channels, RMSNorm's forward pass took 0.8 to 0.9 times as long from 10 MB on, DyT's 0.85 to 0.95 times;
   with the reader both took 1.15 to 1.45 times as long with 10 to 26 MB, and 0.95 to 1.1 times with 30 to 34 MB.
   RMSNorm's backward pass took 0.7 to 0.8 times as long; with the reader it was 1.1 times with 10 MB, 1.05 times with
   14 MB, and 0.8 to 0.95 times from 18 MB on. DyT's took 0.9 to 1.05 times as long; with the reader it was 1.05 to 1.2
   times with 10 to 22 MB, and 0.9 to 1 times from 26 MB on.

   On a Zen 3 with 512 KB of second-level and 32 MB of last-level cache, over rows of 4096 channels, RMSNorm's forward
   pass took 1.5 to 1.8 times as long with up to 4 MB, DyT's 1 to 1.1 times, and both 0.6 to 0.85 times from 8 MB on;
   with the reader they took 2 to 2.4 and 1.3 to 1.5 times with up to 4 MB, and 0.65 to 0.9 times from 8 MB on. In
   between, as measured before, it was 0.75 to 1.1 times with 5 MB, and 0.55 to 0.85 times with 7 MB. RMSNorm over rows
   of 64 channels took 0.7 to 0.9 times as long from 8 MB on, and 0.85 to 1.1 times with the reader. RMSNorm's backward
   pass, which prefetches no rows there, took 0.9 to 1.05 times as long with up to 2 MB, and 0.7 to 0.85 times from 4 MB
   on; with the reader it was 0.9 to 1.35 times with 4 MB, and 0.8 to 0.9 times from 8 MB on. DyT's took 1.25 to 1.4
   times as long with up to 2 MB, 1.15 to 1.2 times with 4 MB, and 0.95 to 1.05 times from 8 MB on; with the reader it
   was 1.5 to 2.1 times with up to 2 MB, 1.2 to 1.6 times with 4 MB, and 0.95 to 1.1 times from 8 MB on. */
struct least_size {
    unsigned char usual;          /* in second-level caches */
    unsigned char kept;           /* if it is to be kept in the caches */
    unsigned char kept_in_larger; /* the same, where the last-level cache is large: see above */
    /* Nor less than so many percent of the last-level cache. */
    unsigned char usual_share;
    unsigned char kept_in_larger_share;
};

/* In second-level caches. The last-level cache of the Zen 4 is 32 of them, that of the Zen 3 64, and that of the
 * Emerald Rapids 150. */
enum { LARGE_LAST_LEVEL = 48 };

/* Of a large last-level cache, which many cores share, a core counts on so much, and on no more than so many of its
 * second-level caches. */
enum { MOST_OF_LAST_LEVEL = 1 << 25, MOST_SECOND_LEVELS = 64 };

NOT_INLINED int dynnorm_has_large_last_level(void) {
    return dynnorm_cache_bytes(3) / LARGE_LAST_LEVEL > dynnorm_cache_bytes(2);
}

static const struct least_size least_of_y = {6, 7, 16, 15, 33};
static const struct least_size least_of_norms = {8, 8, 16, 15, 33}, least_of_short_rows = {6, 7, 16, 27, 33};
static const struct least_size least_of_dx_of_norms = {4, 4, 8, 0, 20}, least_of_dx_of_short_rows = {5, 5, 8, 0, 20};
static const struct least_size least_of_dx_of_elementwise = {5, 6, 12, 15, 66};

static size_t last_level_of_core(void) {
    const size_t level2 = dynnorm_cache_bytes(2), level3 = dynnorm_cache_bytes(3);
    const size_t last_level = level3 < MOST_OF_LAST_LEVEL ? level3 : MOST_OF_LAST_LEVEL;
    return last_level / MOST_SECOND_LEVELS > level2 ? level2 * MOST_SECOND_LEVELS : last_level;
}

OUTLINED int pays(const dynnorm_descriptor *call, const struct tensor *output, size_t rows,
                  const struct least_size *least) {
    const size_t level2 = dynnorm_cache_bytes(2), last_level = last_level_of_core();
    size_t caches = least->usual, share = least->usual_share;
    if (call->keep_output_in_cache) {
        const int is_large = dynnorm_has_large_last_level();
        caches = is_large ? least->kept_in_larger : least->kept;
        share = is_large ? least->kept_in_larger_share : share;
    }
    const size_t bytes = rows * call->channels * output->element_bytes;
    return bytes / caches > level2 && bytes > last_level / 100 * share;
}

enum { SHORT_ROW = 128 };

/* NULL: it never pays. */
static const struct least_size *least_size_of_dx(const dynnorm_descriptor *call, const struct tensor *dx) {
    enum { SHORTEST_OF_RMSNORM = 32, SHORT_OF_LAYERNORM = 96, SHORT_OF_RMSNORM = 64 };
    const size_t channels = call->channels;
    /* The sizes for dx were measured where it is stored while it is computed, in float. */
    if (call->operation == DYNNORM_CENTERED_DYISRU || dx->element_bytes != sizeof(float))
        return &least_of_y;
    if (!dynnorm_operations[call->operation].has_rstd)
        return &least_of_dx_of_elementwise;
    if (channels > SHORT_ROW)
        return &least_of_dx_of_norms;
    if (channels <= (dynnorm_operations[call->operation].has_mean ? SHORT_OF_LAYERNORM : SHORTEST_OF_RMSNORM))
        return NULL;
    return channels <= SHORT_OF_RMSNORM ? &least_of_short_rows : &least_of_dx_of_short_rows;
}

/* Those of y were measured apart for floats of norms. Rows that are so short have loops which do not store past the
   caches. Others stay in the caches longer where these were measured, on a Zen 4, if there is no residual, with which a
   call has twice as many tensors: then LayerNorm and RMSNorm took 1.0 to 1.35 times as long with 7 to 7.7 MB. */
static const struct least_size *least_size_of_y(const dynnorm_descriptor *call, const struct tensor *y) {
    if (!dynnorm_operations[call->operation].has_rstd || y->element_bytes != sizeof(float))
        return &least_of_y;
    if (call->channels <= SHORT_ROW)
        return &least_of_short_rows;
    return call->residual.data || dynnorm_has_large_last_level() ? &least_of_y : &least_of_norms;
}

/* Whether rows of y share their cache lines: see src/rows/forward/shared_lines.h. */
static int shares_lines(const dynnorm_descriptor *call, const struct tensor *y) {
    const size_t channels = call->channels;
    const size_t x_stride = call->axes && call->x_axis_strides ? call->x_axis_strides[0] : call->x.row_stride;
    const int has_plain_bias = call->bias.data || !dynnorm_operations[call->operation].has_bias;
    const int has_plain_weight = call->weight.data && call->weight_offset == 0;
    return y->axes == 1 && y->strides[0] == channels && (x_stride == 0 || x_stride == channels) &&
           channels <= MOST_CHANNELS_WITH_SHARED_LINES && ((has_plain_weight && has_plain_bias) || channels <= BLOCK);
}

/* A row that is not aligned begins and ends with part of a cache line, which is stored as usual. In a shorter row that
   is too much of it: on a Zen 4, with outputs from memory that are stored past the caches, floats took 1.6 to 3 times
   as long in rows of 300 to 511 channels, 1.2 to 1.7 times with 1000 and 1001, 1.0 to 1.2 times with 1500 to 2500, and
   0.85 to 1.0 times from 2700 on; bfloat16 took 1.1 to 4 times as long up to 1203 channels, and 0.65 to 0.9 times from
   1403 to 3001. Elements of 8 bits, which were not measured, are taken like it. LayerNorm and RMSNorm of floats ask for
   these lines before (src/rows/forward/rows_from_memory.h): with AVX-512 and AVX2 they took 1.0 to 1.15 times as long
   with 400 to 512 channels, 0.6 to 1.1 times with 576 to 704, and 0.5 to 1.0 times from 768 to 5001. Where rows share
   these lines they took 0.4 to 1.0 times as long with 128 to 512 channels; with 64 to 100 it was 0.8 to 1.4 times.
   Rows of 320 channels and more have become faster since. */
static int may_be_unaligned(const dynnorm_descriptor *call, const struct tensor *output) {
    enum { LEAST_FLOATS = 2560, LEAST_FLOATS_OF_NORMS = 640, LEAST_OF_SHARED_LINES = 128, LEAST_OTHERS = 1280 };
    const int is_norm =
        dynnorm_operations[call->operation].has_rstd && !call->residual.data && !call->round_before_weight;
    const size_t least = output->element_bytes != sizeof(float) ? LEAST_OTHERS
                         : !is_norm                             ? LEAST_FLOATS
                         : shares_lines(call, output)           ? LEAST_OF_SHARED_LINES
                                                                : LEAST_FLOATS_OF_NORMS;
    return call->channels >= least && (uintptr_t)output->data % output->element_bytes == 0;
}

/* An output in the place of an input is in the caches already. */
int dynnorm_streams(const dynnorm_descriptor *call, const struct tensor *output, size_t rows) {
    const int is_possible = rows_are_aligned(output, STREAM_ALIGNMENT) || may_be_unaligned(call, output);
    return output->data && is_possible && output->data != call->x.data && output->data != call->residual.data &&
           pays(call, output, rows, least_size_of_y(call, output));
}

int dynnorm_rows_are_far(const dynnorm_descriptor *call, const struct tensor *y, size_t rows) {
    return y->data && pays(call, y, rows, &least_of_y);
}

int dynnorm_streams_y(const dynnorm_descriptor *call, const struct tensor *y) {
    return dynnorm_streams(call, y, call->tokens);
}

/* The sum is read once more at once. On a Zen 5, where two outputs went past the caches, DyT and DyISRU took 1 to 1.15
   times as long as with y alone. */
int dynnorm_streams_sum(const dynnorm_descriptor *call, const struct tensor *sum, size_t rows) {
    const int is_alone = dynnorm_operations[call->operation].has_rstd || dynnorm_has_large_last_level();
    return is_alone && are_whole_lines(call->channels, sum->element_bytes) && dynnorm_streams(call, sum, rows);
}

/* Whether rows of dx need not be aligned, since LayerNorm and RMSNorm collect them: rows of floats without gaps. On a
   Zen 4, with AVX-512 and AVX2, those of 144 to 1024 channels took 0.5 to 0.85 times as long so, and those of 48 to 128
   channels 0.6 to 1.8 times. */
static int are_collected_rows(const dynnorm_descriptor *call, const struct tensor *dx) {
    return dynnorm_operations[call->operation].has_rstd && call->channels > SHORT_ROW &&
           call->channels <= MOST_COLLECTED_CHANNELS && dx->axes == 1 && dx->strides[0] == call->channels &&
           (uintptr_t)dx->data % sizeof(float) == 0 && call->x.type == DYNNORM_F32 && call->dy.type == DYNNORM_F32 &&
           call->dx.type == DYNNORM_F32 && call->weight.data && call->weight_offset == 0;
}

int dynnorm_streams_dx(const dynnorm_descriptor *call, const struct tensor *dx) {
    const int is_possible = rows_are_aligned(dx, STREAM_ALIGNMENT) || are_collected_rows(call, dx);
    const int in_place = dx->data == call->dy.data || dx->data == call->x.data || dx->data == call->dsum.data;
    const struct least_size *least = least_size_of_dx(call, dx);
    return least && dx->data && is_possible && !in_place && !call->accumulate_dx && pays(call, dx, call->tokens, least);
}

int dynnorm_nearest_cache_is_large(void) {
    return dynnorm_cache_bytes(1) >= 48u << 10;
}

/* A store waits for its line, which takes long where the last-level cache is large. On the Emerald Rapids, LayerNorm
   and RMSNorm took 0.8 to 1 times as long when they asked for each line of y and dx where they read x. On a Zen 4,
   whose last-level cache is nearer, the forward pass over rows of 128 channels and more took 1 to 1.05 times as long
   with that, and the backward pass over rows of 512 channels and more 1 to 1.03 times. With AVX2 the loops do not ask:
   see src/rows/writer.h. */
int dynnorm_fetches_to_write(void) {
    return dynnorm_has_large_last_level();
}

/* On the Emerald Rapids DyT's and DyISRU's backward pass over rows of 64 and 128 channels, fetched a group ahead, took
   0.85 to 0.96 times as long with x, dy and dx of 3 to 6 MB, and 1.09 times where these stayed in the second-level
   cache. */
int dynnorm_fetches_ahead(const dynnorm_descriptor *call) {
    return dynnorm_has_large_last_level() && 3 * call->tokens * call->channels * sizeof(float) > dynnorm_cache_bytes(2);
}

/* Whether x, dy and dx of floats take no more than so many eighths of what a core has of the last-level cache. */
FOR_SIZE OUTLINED int are_in_last_level(const dynnorm_descriptor *call, size_t eighths) {
    return 3 * call->tokens * call->channels * sizeof(float) <= last_level_of_core() / 8 * eighths;
}

/* On a Zen 4 the backward passes of LayerNorm and RMSNorm that make the sums of two rows at a time took 0.92 to 0.99
   times as long over rows of 512 to 1024, and of 3072 to 8192 channels, with x, dy and dx of 0.2 to 12 MB. From memory
   it was up to 1.15 times, with 24 MB or more 1.04 to 1.09 times for rows of 512 channels. Rows of 1280 to 2304
   channels took 0.98 to 1.06 times as long.

   On a Zen 5, with AVX-512, rows of 3072 to 4096 channels from the last-level cache took 1.03 to 1.05 times as long so,
   and those of 5120 to 8192 channels 0.94 to 0.99 times. With AVX2 RMSNorm took 1.01 to 1.02 times as long over
   3072 and 4096. */
FOR_SIZE int dynnorm_sums_two_rows(const dynnorm_descriptor *call) {
    const size_t channels = call->channels, least_long = dynnorm_is_zen_5() ? 4097 : 3072;
    const int has_measured_length = (channels >= 512 && channels <= 1024) || channels >= least_long;
    return has_measured_length && are_in_last_level(call, 4);
}

/* With AVX-512 rows of 64 channels took 0.79 to 0.98 times as long with this on a Zen 5, with x, dy and dx of up to 12
   MB, and 1.0 to 1.25 times with 24 MB and from memory. On a Zen 4 RMSNorm took 0.89 to 1.0 times as long with up to 12
   MB, and 0.94 to 1.28 times with 14 to 16 MB; LayerNorm took 0.96 to 1.06 times as long. Both have 32 MB of last-level
   cache. Other CPUs were not measured: they take the groups one after the other. */
FOR_SIZE int dynnorm_overlaps_groups(const dynnorm_descriptor *call) {
    const unsigned least = call->operation == DYNNORM_RMSNORM ? FAMILY_OF_ZEN_4 : FAMILY_OF_ZEN_5;
    return dynnorm_cpu_amd_family() >= least && are_in_last_level(call, 3);
}

/* On a Zen 4 RMSNorm took 0.80 to 0.90 times as long with it, and 0.82 to 0.96 times where some or half of x were 0,
   LayerNorm 0.92 to 0.99 times, and DyT and DyISRU 0.79 to 0.94 times; 16 rows of 100 channels took 1.02 to 1.07 times.
   CPUs of other makers were not measured. */
int dynnorm_rounds_by_instruction(void) {
    return dynnorm_cpu_amd_family() >= FAMILY_OF_ZEN_4 && dynnorm_cpu_has_bf16();
}

/* A Zen 5 fetches them by itself. With AVX-512, if nobody asked for them, it took 0.82 to 0.89 times as long over rows
   of 768 to 4096 channels where x, dy and dx began at the same place of a page, and 0.92 to 1.03 times where they did
   not; over rows of 128 and 256 channels it was 0.5 to 0.63 times. A Zen 4 took 1.0 to 1.16 times as long over rows of
   128 to 4096 channels. Other CPUs were not measured without, and ask. */
int dynnorm_prefetches_far_rows(void) {
    return !dynnorm_is_zen_5();
}

/* On a Zen 5 with 48 KB of first-level cache, LayerNorm's and RMSNorm's backward pass over rows of 1536 channels took
   0.76 to 0.93 times as long by pairs of rows as by groups of eight, and over rows of 2048 channels, whose pairs fill
   two thirds of that cache, 0.81 to 0.96 times. Caches of other sizes were not measured. */
size_t dynnorm_most_pair_channels(void) {
    enum { INPUTS_OF_PAIR = 4 };
    return dynnorm_cache_bytes(1) / 3 * 2 / (INPUTS_OF_PAIR * sizeof(float));
}
