/* SPDX-License-Identifier: BSD-2-Clause */
#include "dispatch/streaming.h"
#include "dispatch/cpu.h"
#include "kernels.h"

#include <stdint.h>

/* A store past the caches does not read what it overwrites, and leaves other data in the caches. But it is slower if
   the output would have stayed in them. So it pays only if the tensors are far larger than a core's second-level cache.
   On a Zen 4 with 1 MB of that, RMSNorm's forward pass, the quickest of all, took 1.5 times as long with such stores at
   4096 x 64 (2 MB of x and y), as long at 256 x 4096 (8 MB), and 0.76 of the time at 512 x 4096 (16 MB). tensors says
   how many of the output's size there are. */
static int pays(const dynnorm_descriptor *call, size_t tensors) {
    enum { LEVEL2_CACHES = 8 };
    return tensors * call->tokens * call->channels * sizeof(float) / LEVEL2_CACHES > dynnorm_level2_cache_bytes();
}

/* Whether every row begins at a whole vector. */
static int rows_are_aligned(const struct tensor *tensor) {
    uintptr_t offsets = (uintptr_t)tensor->data;
    for (size_t axis = 0; axis < tensor->axes; axis++)
        offsets |= tensor->strides[axis] * sizeof(float);
    return offsets % STREAM_ALIGNMENT == 0;
}

/* A row that is not aligned begins and ends with part of a cache line, which is stored as usual. In a short row that
   would be too much of it. */
int dynnorm_streams_y(const dynnorm_descriptor *call, const struct tensor *y) {
    enum { LONG_ROW = 256 };
    int is_possible = rows_are_aligned(y) || (call->channels >= LONG_ROW && (uintptr_t)y->data % sizeof(float) == 0);
    return y->data && is_possible && y->data != call->x.data && !call->keep_output_in_cache && pays(call, 2);
}

int dynnorm_streams_dx(const dynnorm_descriptor *call, const struct tensor *dx) {
    int in_place = dx->data == call->dy.data || dx->data == call->x.data;
    return dx->data && rows_are_aligned(dx) && !in_place && !call->accumulate_dx && !call->keep_output_in_cache &&
           pays(call, 3);
}
