/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Calls that do what engines need around a norm, and what a program would do without them: the ways to make a call.
 */
#ifndef DYNNORM_BENCH_ENGINE_CALLS_H
#define DYNNORM_BENCH_ENGINE_CALLS_H

#include "dynnorm.h"
#include "shapes.h"

#include <stddef.h>

enum way {
    WAY_CALL,           /* nothing but the norm */
    WAY_RESIDUAL,       /* forward of x + residual, the sum kept; backward plus the gradient that arrives at the sum */
    WAY_RESIDUAL_APART, /* the same in two passes over memory: a plain loop that adds, and a call */
    WAY_RESIDUAL_BY_ROWS, /* the same as well as a program can do it: a loop and a prepared call for each row */
    WAY_I8_ROWS,          /* y of integers of 8 bits, with a scale for each row */
    WAY_I8_GIVEN,         /* the same with a scale that is given: by dynnorm_largest_output where that knows one */
    WAY_ONE_THREAD,       /* beside the next */
    WAY_THREADS,          /* on an executor */
    WAY_ROW_PLAIN,        /* one plain call for each row */
    WAY_ROW_DESCRIPTOR,   /* one call by the descriptor for each row */
    WAY_ROW_PREPARED,     /* the same, prepared */
    WAYS
};

struct way_facts {
    const char *name;    /* in the names of cases; "" for WAY_CALL */
    unsigned sets;       /* the ENGINE_ sets that have it */
    unsigned directions; /* bit 0: forward, bit 1: backward */
    unsigned types;      /* of x, as bits */
    int is_by_wall_clock;
};

extern const struct way_facts way_facts[WAYS];

/* Whether an operation can be called this way. Plain calls have none of their own for the centered DyISRU. */
int way_exists(enum way way, dynnorm_operation operation);

/* How many bytes the pass reads and writes at least, each tensor once. */
size_t way_bytes(enum way way, dynnorm_type type, int backward, struct shape shape);

/* A call that is made in one of these ways. Its memory is that of tensors_of and tensor_of. */
struct engine_call {
    dynnorm_descriptor whole; /* says all of it, and lists the outputs; what WAY_CALL runs */
    dynnorm_descriptor norm;  /* only the norm, where a loop does the rest */
    dynnorm_prepared prepared;
    enum way way;
    int backward;
    dynnorm_status status; /* of all that was called, the latest one that is not DYNNORM_OK */
};

/* Completes a call, whose operation, mode, types and tensors are those of WAY_CALL, for a way. It must stay where it is
 * from here on. */
void engine_prepare(struct engine_call *made, enum way way, int backward);

void engine_run(void *made);

#endif
