/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The gradients that are sums over tokens: the blocks of rows that they are computed from, the workspace that holds
 * the sums of each block, and how the gradients are made from these.
 */
#ifndef DYNNORM_API_SUMS_H
#define DYNNORM_API_SUMS_H

#include "api/tasks.h"
#include "kernels.h"

#include <stddef.h>

/* Which sums a call asks for, and where they lie in a slot. The workspace has one slot of doubles per block of rows. */
struct sums_layout {
    size_t dweight; /* where in a slot the sum begins; SIZE_MAX if it is not asked for */
    size_t dbias;
    size_t dparameter;
    size_t slot; /* doubles in a slot; 0 if no sum is asked for */
};

struct sums_layout dynnorm_sums_layout(const dynnorm_descriptor *call);

/* Where the sums of a slot are. slot may be NULL if no sum is asked for. */
struct partial_sums dynnorm_sums_in_slot(const struct sums_layout *layout, double *slot);

/* The rows of a block, and how many blocks the tokens make. */
size_t dynnorm_rows_per_block(const dynnorm_descriptor *call);
size_t dynnorm_blocks(const dynnorm_descriptor *call);

/* The bytes that a workspace of so many slots needs at any alignment, and where its first slot begins. */
size_t dynnorm_workspace_bytes(const struct sums_layout *layout, size_t slots);
double *dynnorm_first_slot(void *workspace);

/* The gradients that are sums over tokens, with the factors that the kernels leave out. */
struct token_gradients {
    struct token_gradient of_channels[2]; /* dweight, dbias; their values may be elements of other types, ... */
    dynnorm_type types[2];                /* ... which these are */
    struct token_gradient parameter;
    const dynnorm_descriptor *call; /* has the factors of an alpha or beta for each channel */
};

struct token_gradients dynnorm_token_gradients(const dynnorm_descriptor *call);

/* The sums of all blocks, still to be added. */
struct slots {
    const struct sums_layout *layout;
    const double *first;
    size_t count;
};

/* These write the gradients of some channels, which are dweight and dbias and those of an alpha or beta for each
 * channel, and of a parameter that all channels have in common. The first of the channels is a multiple of
 * UNIT_OF_CHANNELS. */
enum { UNIT_OF_CHANNELS = PARTIAL_SUMS_CHANNELS(1) };
void dynnorm_finish_channels(const struct token_gradients *gradients, struct portion channels,
                             const struct kernels *kernels, const struct slots *slots);
void dynnorm_finish_parameter(const struct token_gradients *gradients, const struct kernels *kernels,
                              const struct slots *slots);

#endif
