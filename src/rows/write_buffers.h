/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What becomes of a buffer that is full: see writer.h. It is compiled once for each table.
 */
#ifndef DYNNORM_WRITE_BUFFERS_H
#define DYNNORM_WRITE_BUFFERS_H

#include "rows/writer.h"

#include <stdint.h>
#include <string.h>

void ADD_FLOATS(float *to, const float *a, const void *b, size_t count) {
    const float *p = b;
    size_t i = 0;
    for (; LANES > 1 && i + SIDE_BY_SIDE * LANES <= count; i += SIDE_BY_SIDE * LANES)
        UNROLL_UP_TO_4
    for (size_t k = i; k < i + SIDE_BY_SIDE * LANES; k += LANES)
        vec_store(to + k, vec_add(vec_load(a + k), vec_load(p + k)));
    for (; i + LANES <= count; i += LANES)
        vec_store(to + i, vec_add(vec_load(a + i), vec_load(p + i)));
    const ptrdiff_t left = (ptrdiff_t)(count - i);
    /* Behind the end there may be no page, where a load or store of no lanes takes a Zen 4 130 to 310 nanoseconds. */
    if (!left)
        return;
    vec_store_n(to + i, vec_add(vec_load_n(a + i, left, vec_set(0)), vec_load_n(p + i, left, vec_set(0))), left);
}

size_t STREAM_BUFFER(float *to, float *floats, size_t count, int are_last) {
    const size_t to_line = to_next_line(to);
    size_t done = to_line < count ? to_line : count;
    if (done)
        memcpy(to, floats, done * sizeof(float));
    for (; done + FLOATS_OF_LINE <= count; done += FLOATS_OF_LINE)
        for (size_t i = 0; i < FLOATS_OF_LINE; i += LANES)
            vec_stream(to + done + i, vec_load(floats + done + i));
    memcpy(are_last ? to + done : floats, floats + done, (count - done) * sizeof(float));
    return are_last ? 0 : count - done;
}

#endif
