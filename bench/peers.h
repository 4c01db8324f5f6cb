/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Peers are other ways to compute the same results, for comparison. They take the library's descriptor of a call.
 */
#ifndef DYNNORM_BENCH_PEERS_H
#define DYNNORM_BENCH_PEERS_H

#include "dynnorm.h"
#include "element_types.h"
#include "operations.h"

#include <stddef.h>

/* A peer computes with its own accuracy. It may ignore strides, offsets and accumulation, which the benchmarks' calls
 * do not use. */
struct peer {
    const char *name;
    const char *description; /* what it is and how it was built; for an absent peer, why it is absent */
    /* Whether it can compute an operation with elements of a type. NULL if the peer is absent. */
    int (*computes)(dynnorm_operation operation, int backward, dynnorm_type type);
    /* Does what a call needs only once. Returns NULL if the peer cannot do this call. The call outlives the result. */
    void *(*prepare)(const dynnorm_descriptor *call, int backward);
    void (*run)(void *prepared);
    void (*release)(void *prepared);
};

/* All peers, also the absent ones; NULL ends the list. */
const struct peer *const *peers(void);

/* How far a peer's results may be from the library's. Loops that sum in float stay within this; other formulas do not.
 */
#define PEER_TOLERANCE 1e-4

/* What is added to the tolerance if outputs are rounded to a type of 16 bits, and intermediate results perhaps, too:
 * four times the largest relative distance between two neighbours. */
double peer_roundings(dynnorm_type type);

/* The tensors that a call computes. If there are fewer than OUTPUTS, data is NULL in the others. */
enum { OUTPUTS = 4 };

struct output {
    void *data;
    size_t count;
    dynnorm_type type;
};

static inline size_t output_bytes(const struct output *output) {
    return output->count * dynnorm_element_bytes(output->type);
}

void list_outputs(struct output outputs[OUTPUTS], const dynnorm_descriptor *call, int backward);

/* Runs the library and the peer. Returns the largest difference between their results, as a fraction of the largest
 * magnitude in the tensor where it occurs. If there is a NaN anywhere, returns infinity. */
double peer_deviation(const struct peer *peer, void *prepared, const dynnorm_descriptor *call, int backward);

/* The functions of a peer that is plain functions of a call, by operation and direction; NULL if it has none. */
typedef void peer_function(const dynnorm_descriptor *call);
typedef peer_function *peer_functions[OPERATIONS][2];
extern const peer_functions functions_of_loops, functions_of_loops_unrolled, functions_of_loops_256;
extern const peer_functions functions_of_loops_bf16;
extern const char description_of_loops[], description_of_loops_unrolled[], description_of_loops_256[];
extern const peer_functions functions_of_sleef_u10_4, functions_of_sleef_u35_4;
extern const peer_functions functions_of_sleef_u10_8, functions_of_sleef_u35_8;
extern const peer_functions functions_of_sleef_u10_16, functions_of_sleef_u35_16;

extern const struct peer peer_onednn;

#endif
