/* SPDX-License-Identifier: BSD-2-Clause */
#include "deciles.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of_size(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

void deciles_begin(struct deciles *deciles) {
    memset(deciles, 0, sizeof *deciles);
    deciles->smallest = INFINITY;
}

void deciles_add_first(struct deciles *deciles, const float *x, size_t count) {
    deciles->count += count;
    for (size_t i = 0; i < count; i++) {
        float size = fabsf(x[i]);
        deciles->upper[bits_of_size(x[i]) >> 16]++;
        deciles->smallest = size != 0 && size < deciles->smallest ? size : deciles->smallest;
        deciles->largest = size > deciles->largest ? size : deciles->largest;
    }
}

void deciles_between(struct deciles *deciles) {
    for (int k = 0; k < DECILE_BORDERS && deciles->count > 0; k++) {
        /* ceil((k + 1) count / DECILES) - 1, computed without overflow */
        uint64_t whole = deciles->count / DECILES, rest = deciles->count % DECILES, tenths = (uint64_t)k + 1;
        uint64_t rank = whole * tenths + (rest * tenths + DECILES - 1) / DECILES - 1;
        uint32_t upper = 0;
        while (rank >= deciles->upper[upper])
            rank -= deciles->upper[upper++];
        deciles->border_upper[k] = upper;
        deciles->rank[k] = rank;
    }
}

void deciles_add_second(struct deciles *deciles, const float *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = bits_of_size(x[i]);
        for (int k = 0; k < DECILE_BORDERS; k++)
            if (bits >> 16 == deciles->border_upper[k])
                deciles->lower[k][bits & 0xffff]++;
    }
}

void deciles_finish(struct deciles *deciles) {
    for (int k = 0; k < DECILE_BORDERS && deciles->count > 0; k++) {
        uint64_t rank = deciles->rank[k];
        uint32_t lower = 0;
        while (rank >= deciles->lower[k][lower])
            rank -= deciles->lower[k][lower++];
        uint32_t bits = deciles->border_upper[k] << 16 | lower;
        memcpy(&deciles->borders[k], &bits, sizeof bits);
    }
}

int decile_of(const struct deciles *deciles, float x) {
    int decile = 0;
    for (int k = 0; k < DECILE_BORDERS; k++)
        decile += fabsf(x) > deciles->borders[k];
    return decile;
}
