/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Recorded activations and what the norm makes of them, in chunks, as often as they are wanted:
 *
 *     stream_begin(&stream, "what is being done");
 *     while (stream_next(&stream))
 *         ... stream.sets[ALL] ... stream.sets[OUTLIERS] ...
 *
 * Memory is bounded by the size of a chunk: about a megabyte of each array, and at least one token.
 */
#ifndef DYNNORM_CALIBRATE_STREAM_H
#define DYNNORM_CALIBRATE_STREAM_H

#include "fit.h"
#include "npy.h"

enum norm { LAYERNORM, RMSNORM };

/* All elements, and those that the papers fit to: the outliers, elements that the norm puts more than so many standard
 * deviations (LayerNorm) or root mean squares (RMSNorm) out, before weight and bias. */
enum set { ALL, OUTLIERS, SETS };

struct part {
    struct points points;    /* their x is multiplied by the stream's unit, by which small ones underflow */
    const float *x;          /* as it is */
    const float *normalized; /* y before weight and bias */
};

struct stream {
    /* What to stream; weight and bias may be NULL. */
    struct npy file;
    enum norm norm;
    float eps;
    int outliers_wanted; /* else there are none */
    float outliers_beyond;
    float *weight;
    float *bias;
    size_t tokens;
    size_t channels;
    float unit; /* a power of 2 */

    /* The current chunk. */
    struct part sets[SETS];

    size_t chunk_tokens;
    float *x;
    float *scaled; /* x in the stream's unit */
    float *normalized;
    float *y;        /* normalized, where there is neither weight nor bias */
    float *outliers; /* x, scaled, normalized, y, weight and bias, each as long as a chunk; NULL where not wanted */

    const char *doing;
    int percent_shown;
};

/* What to stream has been set. Ends the program where memory is short. */
void stream_allocate(struct stream *stream);
void stream_free(struct stream *stream);

void stream_begin(struct stream *stream, const char *doing);
int stream_next(struct stream *stream);

/* Ends the program where there is none. */
void *allocate(size_t count, size_t size);

#endif
