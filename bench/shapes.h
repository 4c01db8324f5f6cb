/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The list of the shapes that are measured, with the reason and the set of each.
 */
#ifndef DYNNORM_BENCH_SHAPES_H
#define DYNNORM_BENCH_SHAPES_H

#include <stddef.h>

struct shape {
    size_t tokens;
    size_t channels;
};

/* Each set contains the ones before it. */
enum set { SET_QUICK, SET_STANDARD, SET_FULL };

/* A shape may be in the list for several reasons; it is measured once. */
struct listed_shape {
    const char *reason; /* one of the REASON_ names, or the name of a model */
    struct shape shape;
    enum set set;
};

#define REASON_MAIN "main"         /* the tables of the report */
#define REASON_SIZE "size"         /* a sweep over sizes at one number of channels */
#define REASON_CHANNELS "channels" /* a sweep over channels at one size */
#define REASON_L1 "L1"             /* sized from this machine's caches */
#define REASON_L2 "L2"
#define REASON_L3 "L3"
#define REASON_BEYOND "beyond the caches"

/* Sizes in bytes; 0 if there is no such cache or it is not known. */
struct machine {
    size_t cache[4]; /* by level, from 1 */
    size_t memory;
};

enum { MOST_LISTED_SHAPES = 100 };

/* Writes the list for a machine. Returns its length. */
size_t list_shapes(struct listed_shape list[MOST_LISTED_SHAPES], const struct machine *machine);

/* The size of one tensor in bytes. */
static inline size_t tensor_bytes(struct shape shape) {
    return shape.tokens * shape.channels * sizeof(float);
}

#endif
