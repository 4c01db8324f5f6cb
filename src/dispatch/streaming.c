/* SPDX-License-Identifier: BSD-2-Clause */
#include "dispatch/streaming.h"
#include "dispatch/cpu.h"
#include "kernels.h"

#include <stdint.h>

/* A store past the caches saves reading what is overwritten, and what it would push out of them; it costs twice the
   time where all fits into the second level, and was the faster one from one and a half of that on (a copy: Xeon,
   family 6, model 207). tensors: how many of the output's size there are. */
static int pays(const dynnorm_descriptor *call, size_t tensors) {
    return tensors * call->tokens * call->channels * sizeof(float) / 3 > dynnorm_level2_cache_bytes() / 2;
}

static int rows_are_aligned(const dynnorm_descriptor *call, dynnorm_tensor output) {
    size_t stride = (output.row_stride ? output.row_stride : call->channels) * sizeof(float);
    return ((uintptr_t)output.data | stride) % STREAM_ALIGNMENT == 0;
}

/* A row that is not aligned begins and ends with part of a cache line, which is stored as ever: too much of a short
   row. */
int dynnorm_streams_y(const dynnorm_descriptor *call) {
    enum { LONG_ROW = 256 };
    int in_place = call->y.data == call->x.data;
    int is_possible =
        rows_are_aligned(call, call->y) || (call->channels >= LONG_ROW && (uintptr_t)call->y.data % sizeof(float) == 0);
    return call->y.data && is_possible && !in_place && !call->output_is_read_at_once && pays(call, 2);
}

int dynnorm_streams_dx(const dynnorm_descriptor *call) {
    int in_place = call->dx.data == call->dy.data || call->dx.data == call->x.data;
    return call->dx.data && rows_are_aligned(call, call->dx) && !in_place && !call->accumulate_dx &&
           !call->output_is_read_at_once && pays(call, 3);
}
