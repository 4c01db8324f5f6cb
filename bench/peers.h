/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Other ways to the same results, for comparison. They compute a call that is described as one of the library's.
 */
#ifndef DYNNORM_BENCH_PEERS_H
#define DYNNORM_BENCH_PEERS_H

#include "dynnorm.h"
#include "operations.h"

#include <stddef.h>

/* In the numerics of the peer. Without stride, offset or accumulation: the benchmarks' calls have none. */
struct peer {
    const char *name;
    const char *description; /* what it is, and how it was built; for an absent one, why it is absent */
    /* Whether it computes an operation; NULL in an absent one. */
    int (*computes)(dynnorm_operation operation, int backward);
    /* What need be done once for a call; NULL if it cannot be done. The call outlives what is prepared. */
    void *(*prepare)(const dynnorm_descriptor *call, int backward);
    void (*run)(void *prepared);
    void (*release)(void *prepared);
};

/* All, the absent ones among them; NULL ends the list. */
const struct peer *const *peers(void);

/* How far a peer may be from the library: loops that sum in float are within it, other formulas are not. */
#define PEER_TOLERANCE 1e-4

/* What a call computes; data of NULL where it computes less than that many tensors. */
enum { OUTPUTS = 4 };

struct output {
    float *data;
    size_t count;
};

void list_outputs(struct output outputs[OUTPUTS], const dynnorm_descriptor *call, int backward);

/* Runs both; gives back the largest difference, over all tensors that the call computes, as a fraction of the largest
 * magnitude in the tensor. NaN anywhere counts as infinitely far. */
double peer_deviation(const struct peer *peer, void *prepared, const dynnorm_descriptor *call, int backward);

/* For peers that are plain functions of a call: by operation and direction, NULL where there is none. */
typedef void peer_function(const dynnorm_descriptor *call);
typedef peer_function *peer_functions[OPERATIONS][2];
extern const peer_functions functions_of_loops;
extern const char peer_loops_description[];
extern const peer_functions functions_of_sleef_u10_4, functions_of_sleef_u35_4;
extern const peer_functions functions_of_sleef_u10_8, functions_of_sleef_u35_8;
extern const peer_functions functions_of_sleef_u10_16, functions_of_sleef_u35_16;

extern const struct peer peer_onednn;

#endif
