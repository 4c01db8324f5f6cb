/* SPDX-License-Identifier: BSD-2-Clause
 *
 * DyT with SLEEF's tanh in a loop. This file is compiled once for each number of lanes, LANES.
 */
#include "peers.h"

#include <sleef.h>

#include <string.h>

#if LANES == 16
#include <immintrin.h>
#define U10 Sleef_tanhf16_u10avx512f
#define U35 Sleef_tanhf16_u35avx512f
typedef __m512 vector;
#elif LANES == 8
#include <immintrin.h>
#define U10 Sleef_tanhf8_u10avx2
#define U35 Sleef_tanhf8_u35avx2
typedef __m256 vector;
#elif defined __x86_64__
#include <immintrin.h>
#define U10 Sleef_tanhf4_u10sse2
#define U35 Sleef_tanhf4_u35sse2
typedef __m128 vector;
#else
#include <arm_neon.h>
#define U10 Sleef_tanhf4_u10advsimd
#define U35 Sleef_tanhf4_u35advsimd
typedef float32x4_t vector;
#endif

/* SLEEF's functions have attributes that a function type cannot have, so these wrap them. */
static inline vector tanh_u10(vector a) {
    return U10(a);
}

static inline vector tanh_u35(vector a) {
    return U35(a);
}

typedef vector tanh_function(vector);

/* Loads count elements, fewer than LANES at the end of a row. */
static inline vector load(const float *p, size_t count) {
    vector a = {0};
    memcpy(&a, p, count * sizeof *p);
    return a;
}

static inline void store(float *p, vector a, size_t count) {
    memcpy(p, &a, count * sizeof *p);
}

static inline void forward_step(const dynnorm_descriptor *call, float *y, const float *x, size_t channel, size_t count,
                                tanh_function *tanh) {
    vector weight = load((const float *)call->weight.data + channel, count);
    vector bias = load((const float *)call->bias.data + channel, count);
    store(y + channel, weight * call->scale * tanh(call->alpha * load(x + channel, count)) + bias, count);
}

static inline void forward(const dynnorm_descriptor *call, tanh_function *tanh) {
    for (size_t t = 0; t < call->tokens; t++) {
        const float *x = (const float *)call->x.data + t * call->channels;
        float *y = (float *)call->y.data + t * call->channels;
        size_t c = 0;
        for (; c + LANES <= call->channels; c += LANES)
            forward_step(call, y, x, c, LANES, tanh);
        if (c < call->channels)
            forward_step(call, y, x, c, call->channels - c, tanh);
    }
}

/* Returns what it adds to dalpha, by lanes. */
static inline vector backward_step(const dynnorm_descriptor *call, size_t row, size_t channel, size_t count,
                                   tanh_function *tanh) {
    float *dweight = (float *)call->dweight.data + channel, *dbias = (float *)call->dbias.data + channel;
    vector x = load((const float *)call->x.data + row + channel, count);
    vector dy = load((const float *)call->dy.data + row + channel, count);
    vector weight = load((const float *)call->weight.data + channel, count);
    vector tangent = tanh(call->alpha * x);
    vector slope = call->scale * weight * dy * (1 - tangent * tangent);
    store((float *)call->dx.data + row + channel, call->alpha * slope, count);
    store(dweight, load(dweight, count) + dy * call->scale * tangent, count);
    store(dbias, load(dbias, count) + dy, count);
    return x * slope;
}

static inline void backward(const dynnorm_descriptor *call, tanh_function *tanh) {
    memset(call->dweight.data, 0, call->channels * sizeof(float));
    memset(call->dbias.data, 0, call->channels * sizeof(float));
    float dalpha = 0;
    for (size_t t = 0; t < call->tokens; t++) {
        vector sums = {0};
        size_t row = t * call->channels, c = 0;
        for (; c + LANES <= call->channels; c += LANES)
            sums += backward_step(call, row, c, LANES, tanh);
        if (c < call->channels)
            sums += backward_step(call, row, c, call->channels - c, tanh);
        for (int lane = 0; lane < LANES; lane++)
            dalpha += sums[lane];
    }
    *call->dalpha = dalpha;
}

static void forward_u10(const dynnorm_descriptor *call) {
    forward(call, tanh_u10);
}

static void backward_u10(const dynnorm_descriptor *call) {
    backward(call, tanh_u10);
}

static void forward_u35(const dynnorm_descriptor *call) {
    forward(call, tanh_u35);
}

static void backward_u35(const dynnorm_descriptor *call) {
    backward(call, tanh_u35);
}

#define JOIN(a, b) a##b
#define NAME(precision, lanes) JOIN(functions_of_sleef_##precision##_, lanes)
const peer_functions NAME(u10, LANES) = {[DYNNORM_DYT] = {forward_u10, backward_u10}};
const peer_functions NAME(u35, LANES) = {[DYNNORM_DYT] = {forward_u35, backward_u35}};
