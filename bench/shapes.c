/* SPDX-License-Identifier: BSD-2-Clause */
#include "shapes.h"

#include <string.h>

/* The models' tensors, and those of the sweep over channels, have as nearly as possible this many elements: 1 MB. */
#define SWEEP_ELEMENTS ((size_t)1 << 18)

/* The channels of the sweep over sizes, and of the shapes that are sized from the caches. */
enum { SWEEP_CHANNELS = 1024 };

static const struct listed_shape fixed[] = {
    {REASON_MAIN, {1, 4096}, SET_QUICK},    {REASON_MAIN, {32, 1024}, SET_QUICK},
    {REASON_MAIN, {64, 4096}, SET_QUICK},   {REASON_MAIN, {1024, 4096}, SET_QUICK},
    {REASON_MAIN, {1000, 100}, SET_QUICK}, /* short rows, not a whole number of vectors each */
    {REASON_MAIN, {4096, 4096}, SET_QUICK}, {REASON_MAIN, {4096, 64}, SET_STANDARD},
};

/* The widths of the norms in models that many know. */
static const struct {
    const char *name;
    size_t channels;
} models[] = {
    {"GPT-2", 768},      {"BERT-large", 1024}, {"LLaMA 7B", 4096},   {"LLaMA 13B", 5120},
    {"LLaMA 65B", 8192}, {"Gemma 2 2B", 2304}, {"a head of 64", 64}, {"a head of 128", 128},
};

/* As many rows of so many channels as come nearest to the elements from below, at least one. */
static struct shape shape_of(size_t elements, size_t channels) {
    return (struct shape){elements < channels ? 1 : elements / channels, channels};
}

/* A shape of which three tensors, as many as a backward pass moves, take so many bytes. */
static struct shape three_tensors(size_t bytes) {
    return shape_of(bytes / 3 / sizeof(float), SWEEP_CHANNELS);
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

size_t list_shapes(struct listed_shape list[MOST_LISTED_SHAPES], const struct machine *machine) {
    struct listed_shape *end = list;
    memcpy(list, fixed, sizeof fixed);
    end += sizeof fixed / sizeof *fixed;

    for (size_t tokens = 1; tokens <= 16384; tokens *= 2)
        *end++ = (struct listed_shape){
            REASON_SIZE, {tokens, SWEEP_CHANNELS}, tokens & 0x5555 ? SET_STANDARD : SET_FULL /* each fourfold */};

    for (size_t channels = 16; channels <= 65536; channels *= 2) {
        int often = channels >= 64 && channels != 32768;
        *end++ =
            (struct listed_shape){REASON_CHANNELS, shape_of(SWEEP_ELEMENTS, channels), often ? SET_STANDARD : SET_FULL};
        /* Not a whole number of vectors, whatever their length. */
        if (often)
            *end++ = (struct listed_shape){REASON_CHANNELS, shape_of(SWEEP_ELEMENTS, channels - 1), SET_FULL};
    }

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        *end++ = (struct listed_shape){models[i].name, shape_of(SWEEP_ELEMENTS, models[i].channels), SET_STANDARD};
        *end++ = (struct listed_shape){models[i].name, {1, models[i].channels}, SET_FULL}; /* as when generating */
    }

    /* Half of a cache leaves room for weight, bias, and what else runs. Where a virtual machine reports an L3 cache
     * that it shares with many neighbours, no more than a share of it is counted on; and beyond the caches, where even
     * twice the reported size must be moved, no more than is bearable. */
    static const char *const reasons[] = {REASON_L1, REASON_L2, REASON_L3};
    const size_t megabyte = 1000000;
    size_t last = 0;
    for (int level = 1; level <= 3; level++) {
        size_t bytes = machine->cache[level];
        if (!bytes)
            continue;
        last = bytes;
        *end++ =
            (struct listed_shape){reasons[level - 1], three_tensors(smaller(bytes, 64 * megabyte) / 2), SET_STANDARD};
    }
    size_t most = smaller(800 * megabyte, machine->memory ? machine->memory / 4 : 400 * megabyte);
    if (last)
        *end++ = (struct listed_shape){REASON_BEYOND, three_tensors(smaller(2 * last, most)), SET_STANDARD};
    return (size_t)(end - list);
}
