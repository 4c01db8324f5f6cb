/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reads recorded activations in chunks and applies the norm to them. You can do so as often as you like:
 *
 *     stream_begin(&stream);
 *     while (stream_next(&stream))
 *         ... stream.sets[ALL] ... stream.sets[OUTLIERS] ...
 *
 * Memory is bounded by the size of a chunk: about a megabyte of each array, and at least one token.
 */
#ifndef DYNNORM_CALIBRATE_STREAM_H
#define DYNNORM_CALIBRATE_STREAM_H

#include "fit.h"
#include "npy.h"

#include <stddef.h>

enum norm { LAYERNORM, RMSNORM };

/* All elements; or the outliers alone, which the papers fit to. Outliers are elements that the norm, before weight and
 * bias, puts beyond outliers_beyond: more than so many standard deviations (LayerNorm) or root mean squares (RMSNorm)
 * from 0. */
enum set { ALL, OUTLIERS, SETS };

/* What a curve that replaces the norm is applied to: x as it was recorded; or x - mean(x), with the mean of the token.
 */
enum input { RECORDED, CENTERED, INPUTS };

struct part {
    size_t count;
    const float *inputs[INPUTS];  /* an x - mean(x) beyond float is the largest float */
    struct points points[INPUTS]; /* the same inputs multiplied by the stream's unit; small ones may underflow */
    const float *normalized;      /* y before weight and bias */
};

struct stream {
    /* What to stream. weight and bias may be NULL. */
    struct npy file;
    enum norm norm;
    float eps;
    int outliers_wanted; /* if not set, the set of outliers is empty */
    float outliers_beyond;
    float *weight;
    float *bias;
    size_t tokens;
    size_t channels;
    float unit; /* a power of 2 */

    /* The current chunk. */
    struct part sets[SETS];

    size_t chunk_tokens;
    float *inputs[INPUTS];
    float *scaled[INPUTS]; /* the inputs times unit */
    float *normalized;
    float *y;        /* the same array as normalized if there is neither weight nor bias */
    float *outliers; /* of the outliers: the inputs, the scaled inputs, normalized, y, weight and bias, each as long as
                        a chunk; NULL if not wanted */
};

/* Call this when the fields that say what to stream are set. Ends the program if there is too little memory. */
void stream_allocate(struct stream *stream);
void stream_free(struct stream *stream);

void stream_begin(struct stream *stream);
int stream_next(struct stream *stream);

/* Allocates zeroed memory. Ends the program if there is too little. */
void *allocate(size_t count, size_t size);

#endif
