/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass with an alpha or beta for each channel: what the kernels and the sums need to know of these.
 */
#ifndef DYNNORM_API_CHANNEL_CONSTANTS_H
#define DYNNORM_API_CHANNEL_CONSTANTS_H

#include "dynnorm.h"
#include "kernels.h"

#include <stddef.h>

/* How many bytes of memory, of any alignment, the constants need. 0 if all channels have the same, or there are
 * no tokens. */
size_t dynnorm_channel_constants_bytes(const dynnorm_descriptor *call);

/* Makes them in that memory. */
void dynnorm_make_channel_constants(struct channel_constants *made, void *memory, const dynnorm_descriptor *call,
                                    const struct kernels *kernels);

/* What the sums for alpha or beta of some channels are multiplied by, up to the next multiple of 16. */
enum { MOST_CHANNEL_FACTORS = 256 };
void dynnorm_channel_factors(double factors[MOST_CHANNEL_FACTORS], size_t first, size_t count,
                             const dynnorm_descriptor *call, const struct kernels *kernels);

#endif
