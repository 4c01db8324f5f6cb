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
enum set { SET_NONE, SET_QUICK, SET_STANDARD, SET_FULL };

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

/* The sets of what engines need around a norm, as bits. Their cases are those of engine_calls.h. */
enum { ENGINE_TYPES = 1, ENGINE_RESIDUAL = 2, ENGINE_INT8 = 4, ENGINE_EXECUTOR = 8, ENGINE_PREPARED = 16 };
enum { ENGINE_SETS = 5 };
extern const char *const engine_set_names[ENGINE_SETS]; /* in the order of the bits */

struct engine_shape {
    struct shape shape;
    unsigned sets; /* where it is measured */
};

enum { MOST_ENGINE_SHAPES = 8 };

/* Writes the shapes of these sets for a machine. Returns how many. */
size_t list_engine_shapes(struct engine_shape list[MOST_ENGINE_SHAPES], const struct machine *machine);

/* The size of one tensor of floats in bytes. */
static inline size_t tensor_bytes(struct shape shape) {
    return shape.tokens * shape.channels * sizeof(float);
}

#endif
