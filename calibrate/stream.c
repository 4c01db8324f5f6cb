/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream.h"

#include "progress.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNK_VALUES = 1 << 18, OUTLIER_ARRAYS = 2 * INPUTS + 4 };

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "dynnorm-calibrate: out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

void stream_allocate(struct stream *stream) {
    stream->chunk_tokens = CHUNK_VALUES / stream->channels;
    if (stream->chunk_tokens == 0)
        stream->chunk_tokens = 1;
    if (stream->chunk_tokens > stream->tokens)
        stream->chunk_tokens = stream->tokens;
    size_t values = stream->chunk_tokens * stream->channels;
    for (int input = 0; input < INPUTS; input++) {
        stream->inputs[input] = allocate(values, sizeof(float));
        stream->scaled[input] = allocate(values, sizeof(float));
    }
    stream->normalized = allocate(values, sizeof(float));
    stream->y = stream->weight == NULL && stream->bias == NULL ? stream->normalized : allocate(values, sizeof(float));
    if (stream->outliers_wanted)
        stream->outliers = allocate(values, OUTLIER_ARRAYS * sizeof(float));
}

void stream_free(struct stream *stream) {
    free(stream->outliers);
    if (stream->y != stream->normalized)
        free(stream->y);
    free(stream->normalized);
    for (int input = 0; input < INPUTS; input++) {
        free(stream->scaled[input]);
        free(stream->inputs[input]);
    }
    free(stream->bias);
    free(stream->weight);
    npy_close(&stream->file);
}

void stream_begin(struct stream *stream) {
    npy_rewind(&stream->file);
}

static void normalize(const struct stream *stream, float *y, const float *weight, const float *bias, size_t tokens) {
    const float *x = stream->inputs[RECORDED];
    dynnorm_status status;
    if (stream->norm == LAYERNORM)
        status = dynnorm_layernorm_forward_f32(y, NULL, NULL, x, weight, bias, stream->eps, tokens, stream->channels);
    else
        status = dynnorm_rmsnorm_forward_f32(y, NULL, x, weight, stream->eps, tokens, stream->channels);
    if (status != DYNNORM_OK) {
        fprintf(stderr, "dynnorm-calibrate: %s\n", dynnorm_status_string(status));
        exit(EXIT_FAILURE);
    }
}

/* Subtracts from each token its mean, in double, so that nothing cancels. */
static void center(const struct stream *stream, size_t tokens) {
    for (size_t token = 0; token < tokens; token++) {
        const size_t begin = token * stream->channels, end = begin + stream->channels;
        double sum = 0;
        for (size_t i = begin; i < end; i++)
            sum += (double)stream->inputs[RECORDED][i];
        const double mean = sum / (double)stream->channels;
        for (size_t i = begin; i < end; i++) {
            double centered = (double)stream->inputs[RECORDED][i] - mean;
            stream->inputs[CENTERED][i] = (float)fmin(fmax(centered, -(double)FLT_MAX), (double)FLT_MAX);
            stream->scaled[CENTERED][i] = (float)(centered * (double)stream->unit);
        }
    }
}

/* A part whose tokens and channels are those of the points, for each input. */
static struct part make_part(float *const inputs[INPUTS], float *const scaled[INPUTS], const float *normalized,
                             struct points points) {
    struct part part = {.count = points.tokens * points.channels, .normalized = normalized};
    for (int input = 0; input < INPUTS; input++) {
        part.inputs[input] = inputs[input];
        part.points[input] = points;
        part.points[input].x = scaled[input];
    }
    return part;
}

/* The outliers of a chunk become one token. Each is a channel of it, with the weight and bias of the channel that it
 * comes from. */
static struct part gather_outliers(const struct stream *stream, size_t tokens) {
    const size_t values = stream->chunk_tokens * stream->channels;
    float *arrays[OUTLIER_ARRAYS];
    for (int i = 0; i < OUTLIER_ARRAYS; i++)
        arrays[i] = stream->outliers + (size_t)i * values;
    float *const *inputs = arrays, *const *scaled = arrays + INPUTS, *const *others = arrays + 2 * INPUTS;
    float *normalized = others[0], *y = others[1], *weight = others[2], *bias = others[3];
    size_t count = 0;
    for (size_t token = 0; token < tokens; token++)
        for (size_t channel = 0; channel < stream->channels; channel++) {
            size_t i = token * stream->channels + channel;
            if (fabsf(stream->normalized[i]) > stream->outliers_beyond) {
                for (int input = 0; input < INPUTS; input++) {
                    inputs[input][count] = stream->inputs[input][i];
                    scaled[input][count] = stream->scaled[input][i];
                }
                normalized[count] = stream->normalized[i];
                y[count] = stream->y[i];
                weight[count] = stream->weight != NULL ? stream->weight[channel] : 1;
                bias[count] = stream->bias != NULL ? stream->bias[channel] : 0;
                count++;
            }
        }
    struct points points = {.tokens = count > 0,
                            .channels = count,
                            .y = y,
                            .weight = stream->weight != NULL ? weight : NULL,
                            .bias = stream->bias != NULL ? bias : NULL};
    return make_part(inputs, scaled, normalized, points);
}

int stream_next(struct stream *stream) {
    progress_show((double)stream->file.position / (double)stream->file.count);
    float *x = stream->inputs[RECORDED];
    size_t values = npy_read(&stream->file, x, stream->chunk_tokens * stream->channels);
    if (values == 0)
        return 0;
    size_t tokens = values / stream->channels;
    normalize(stream, stream->normalized, NULL, NULL, tokens);
    if (stream->y != stream->normalized)
        normalize(stream, stream->y, stream->weight, stream->bias, tokens);
    for (size_t i = 0; i < values; i++)
        stream->scaled[RECORDED][i] = x[i] * stream->unit;
    center(stream, tokens);
    struct points all = {
        .tokens = tokens, .channels = stream->channels, .y = stream->y, .weight = stream->weight, .bias = stream->bias};
    stream->sets[ALL] = make_part(stream->inputs, stream->scaled, stream->normalized, all);
    if (stream->outliers_wanted)
        stream->sets[OUTLIERS] = gather_outliers(stream, tokens);
    return 1;
}
