/* SPDX-License-Identifier: BSD-2-Clause */
#include "shapes.h"

#include <string.h>

/* The tensors of the models and of the sweep over channels have this many elements, or as nearly as possible: 1 MB. */
#define SWEEP_ELEMENTS ((size_t)1 << 18)

/* The channels of the sweep over sizes, and of the shapes that are sized from the caches. */
enum { SWEEP_CHANNELS = 1024 };

static const struct listed_shape fixed[] = {
    {REASON_MAIN, {1, 4096}, SET_QUICK},
    {REASON_MAIN, {32, 1024}, SET_QUICK},
    {REASON_MAIN, {64, 4096}, SET_QUICK},
    {REASON_MAIN, {1024, 4096}, SET_QUICK},
    {REASON_MAIN, {4096, 4096}, SET_QUICK},
    /* short rows: two of attention heads, and one that is no whole number of vectors */
    {REASON_MAIN, {1000, 100}, SET_QUICK},
    {REASON_MAIN, {4096, 64}, SET_QUICK},
    {REASON_MAIN, {2048, 128}, SET_QUICK},
};

/* The widths of the norms in well-known models, and from which set on a batch of tokens is measured. */
static const struct {
    const char *name;
    size_t channels;
    enum set set;
} models[] = {
    {"GPT-2", 768, SET_QUICK},          {"BERT-large", 1024, SET_STANDARD},   {"LLaMA 7B", 4096, SET_QUICK},
    {"LLaMA 13B", 5120, SET_STANDARD},  {"LLaMA 65B", 8192, SET_STANDARD},    {"Gemma 2 2B", 2304, SET_QUICK},
    {"a head of 64", 64, SET_STANDARD}, {"a head of 128", 128, SET_STANDARD},
};

/* A shape with so many channels and at most so many elements, but at least one row. */
static struct shape shape_of(size_t elements, size_t channels) {
    return (struct shape){elements < channels ? 1 : elements / channels, channels};
}

/* A shape of which three tensors take so many bytes. A backward pass moves three tensors. */
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
            REASON_SIZE,
            {tokens, SWEEP_CHANNELS},
            tokens & 0x5555 ? SET_STANDARD
                            : SET_FULL /* every second one, so that each is four times the one before */};

    for (size_t channels = 16; channels <= 65536; channels *= 2) {
        int often = channels >= 64 && channels != 32768;
        *end++ =
            (struct listed_shape){REASON_CHANNELS, shape_of(SWEEP_ELEMENTS, channels), often ? SET_STANDARD : SET_FULL};
        /* No whole number of vectors, whatever their length. */
        if (often)
            *end++ = (struct listed_shape){REASON_CHANNELS, shape_of(SWEEP_ELEMENTS, channels - 1), SET_FULL};
    }

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        *end++ = (struct listed_shape){models[i].name, shape_of(SWEEP_ELEMENTS, models[i].channels), models[i].set};
        *end++ = (struct listed_shape){
            models[i].name, {1, models[i].channels}, SET_FULL}; /* one token, as in generating text */
    }

    /* Half of a cache leaves room for weight, bias, and whatever else runs. A virtual machine may report an L3 cache
     * that it shares with many neighbours, so no more than 64 MB of one are counted on. Beyond the caches, twice the
     * reported size would have to be moved; the limit keeps that bearable. */
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

/* ---- What engines need ------------------------------------------------------------------------------------------- */

const char *const engine_set_names[ENGINE_SETS] = {"types", "residual", "int8", "executor", "prepared"};

/* A shape of which x and y take twice the last cache in 16 bits, but three tensors of float no more than 1.6 GB and an
 * eighth of the memory. */
static struct shape far_beyond(const struct machine *machine) {
    enum { CHANNELS = 4096 };
    const size_t megabyte = 1000000;
    size_t last = 32 * megabyte, most = 1600 * megabyte;
    for (int level = 1; level <= 3; level++)
        last = machine->cache[level] ? machine->cache[level] : last;
    if (machine->memory)
        most = smaller(most, machine->memory / 8);
    return shape_of(smaller(2 * last / (2 * 2), most / 3 / sizeof(float)), CHANNELS);
}

size_t list_engine_shapes(struct engine_shape list[MOST_ENGINE_SHAPES], const struct machine *machine) {
    const struct engine_shape all[] = {
        /* in a second-level cache; short rows; a batch at a common width; in memory */
        {{32, 1024}, ENGINE_TYPES | ENGINE_RESIDUAL | ENGINE_INT8},
        {{4096, 64}, ENGINE_TYPES | ENGINE_INT8},
        {{64, 4096}, ENGINE_TYPES | ENGINE_RESIDUAL | ENGINE_INT8 | ENGINE_EXECUTOR},
        {{1024, 4096}, ENGINE_EXECUTOR},
        {far_beyond(machine), ENGINE_TYPES | ENGINE_RESIDUAL | ENGINE_INT8 | ENGINE_EXECUTOR},
        /* row by row, in the nearest caches */
        {{16, 288}, ENGINE_PREPARED},
        {{16, 768}, ENGINE_PREPARED},
    };
    memcpy(list, all, sizeof all);
    return sizeof all / sizeof *all;
}
