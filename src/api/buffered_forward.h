/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Forward passes whose rows go through buffers of floats: because their elements are of another type, a residual is
 * added before, or something is rounded, scaled or added after. Some rows at a time are read into a buffer that stays
 * in the nearest caches, a kernel computes them there as ever, and the results are written as the caller wants them. So
 * the kernels know nothing of all this, and the bits are those of the same call in float, and what is done before and
 * after. Kernels of halves.h do without the buffers.
 */
#ifndef DYNNORM_API_BUFFERED_FORWARD_H
#define DYNNORM_API_BUFFERED_FORWARD_H

#include "api/passes.h"

/* Whether a pass needs this, which is left out without HAS_TYPES. */
int dynnorm_forward_is_buffered(const dynnorm_descriptor *call);

/* How many bytes of buffers a pass needs for so many of its rows, or fewer; of any alignment. A pass whose buffers are
 * small has them on the stack, and needs 0. */
size_t dynnorm_forward_buffer_bytes(const struct forward_pass *pass, size_t rows);

/* Computes rows [first, first + rows). */
void dynnorm_buffered_forward(const struct forward_pass *pass, void *buffers, size_t first, size_t rows);

#endif
