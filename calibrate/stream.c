/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L
#include "stream.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK_VALUES = 1 << 18 };

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
    stream->x = allocate(values, sizeof(float));
    stream->scaled = allocate(values, sizeof(float));
    stream->normalized = allocate(values, sizeof(float));
    stream->y = stream->weight == NULL && stream->bias == NULL ? stream->normalized : allocate(values, sizeof(float));
    if (stream->outliers_wanted)
        stream->outliers = allocate(values, 6 * sizeof(float));
}

void stream_free(struct stream *stream) {
    free(stream->outliers);
    if (stream->y != stream->normalized)
        free(stream->y);
    free(stream->normalized);
    free(stream->scaled);
    free(stream->x);
    free(stream->bias);
    free(stream->weight);
    npy_close(&stream->file);
}

/* Shows the progress on stderr if that is a terminal. */
static void show_progress(struct stream *stream) {
    enum { WIDTH = 40 };
    static const char bar[WIDTH + 1] = "########################################";
    int percent = (int)(100.0 * (double)stream->file.position / (double)stream->file.count);
    if (percent == stream->percent_shown || !isatty(STDERR_FILENO))
        return;
    stream->percent_shown = percent;
    if (stream->file.position < stream->file.count)
        fprintf(stderr, "\r[%-*.*s] %3d %%  %s \033[K", WIDTH, WIDTH * percent / 100, bar, percent, stream->doing);
    else
        fprintf(stderr, "\r\033[K");
}

void stream_begin(struct stream *stream, const char *doing) {
    npy_rewind(&stream->file);
    stream->doing = doing;
    stream->percent_shown = -1;
}

static void normalize(const struct stream *stream, float *y, const float *weight, const float *bias, size_t tokens) {
    dynnorm_status status;
    if (stream->norm == LAYERNORM)
        status = dynnorm_layernorm_forward_f32(y, NULL, NULL, stream->x, weight, bias, stream->eps, tokens,
                                               stream->channels);
    else
        status = dynnorm_rmsnorm_forward_f32(y, NULL, stream->x, weight, stream->eps, tokens, stream->channels);
    if (status != DYNNORM_OK) {
        fprintf(stderr, "dynnorm-calibrate: %s\n", dynnorm_status_string(status));
        exit(EXIT_FAILURE);
    }
}

/* The outliers of a chunk become one token. Each is a channel of it, with the weight and bias of the channel that it
 * comes from. */
static struct part gather_outliers(const struct stream *stream, size_t tokens) {
    const size_t values = stream->chunk_tokens * stream->channels;
    float *x = stream->outliers, *scaled = x + values, *normalized = scaled + values, *y = normalized + values;
    float *weight = y + values, *bias = weight + values;
    size_t count = 0;
    for (size_t token = 0; token < tokens; token++)
        for (size_t channel = 0; channel < stream->channels; channel++) {
            size_t i = token * stream->channels + channel;
            if (fabsf(stream->normalized[i]) > stream->outliers_beyond) {
                x[count] = stream->x[i];
                scaled[count] = stream->scaled[i];
                normalized[count] = stream->normalized[i];
                y[count] = stream->y[i];
                weight[count] = stream->weight != NULL ? stream->weight[channel] : 1;
                bias[count] = stream->bias != NULL ? stream->bias[channel] : 0;
                count++;
            }
        }
    struct points points = {
        count > 0, count, scaled, y, stream->weight != NULL ? weight : NULL, stream->bias != NULL ? bias : NULL};
    return (struct part){points, x, normalized};
}

int stream_next(struct stream *stream) {
    show_progress(stream);
    size_t values = npy_read(&stream->file, stream->x, stream->chunk_tokens * stream->channels);
    if (values == 0)
        return 0;
    size_t tokens = values / stream->channels;
    normalize(stream, stream->normalized, NULL, NULL, tokens);
    if (stream->y != stream->normalized)
        normalize(stream, stream->y, stream->weight, stream->bias, tokens);
    for (size_t i = 0; i < values; i++)
        stream->scaled[i] = stream->x[i] * stream->unit;
    struct points all = {tokens, stream->channels, stream->scaled, stream->y, stream->weight, stream->bias};
    stream->sets[ALL] = (struct part){all, stream->x, stream->normalized};
    if (stream->outliers_wanted)
        stream->sets[OUTLIERS] = gather_outliers(stream, tokens);
    return 1;
}
