/* SPDX-License-Identifier: BSD-2-Clause */
#include "peers.h"
#include "tensors.h"

#include "dispatch/cpu.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Peers that are plain functions of a call -------------------------------------------------------------------- */

#if defined HAVE_PEER_LOOPS || defined HAVE_PEER_SLEEF
struct prepared_call {
    peer_function *function;
    const dynnorm_descriptor *call;
};

static void *prepare_function(const peer_functions functions, const dynnorm_descriptor *call, int backward) {
    struct prepared_call *prepared = allocate_pages(sizeof *prepared);
    *prepared = (struct prepared_call){functions[call->operation][backward], call};
    return prepared;
}

static void run_function(void *context) {
    const struct prepared_call *prepared = context;
    prepared->function(prepared->call);
}
#endif

/* Defines peer_NAME, whose functions are in a table. */
#define PEER_OF_FUNCTIONS(name, description, functions)                                                                \
    static int name##_computes(dynnorm_operation operation, int backward) {                                            \
        return (functions)[operation][backward] != NULL;                                                               \
    }                                                                                                                  \
    static void *name##_prepare(const dynnorm_descriptor *call, int backward) {                                        \
        return prepare_function(functions, call, backward);                                                            \
    }                                                                                                                  \
    static const struct peer peer_##name = {#name, description, name##_computes, name##_prepare, run_function, free};

#define ABSENT_PEER(name, why) static const struct peer peer_##name = {#name, why, NULL, NULL, NULL, NULL};

#ifdef HAVE_PEER_LOOPS
PEER_OF_FUNCTIONS(loops, description_of_loops, functions_of_loops)
#else
ABSENT_PEER(loops, PEER_LOOPS_ABSENT)
#endif
#ifdef HAVE_PEER_LOOPS_UNROLLED
PEER_OF_FUNCTIONS(loops_unrolled, description_of_loops_unrolled, functions_of_loops_unrolled)
#endif
#ifdef HAVE_PEER_LOOPS_256
PEER_OF_FUNCTIONS(loops_256, description_of_loops_256, functions_of_loops_256)
#endif

#ifdef HAVE_PEER_SLEEF
/* The lanes of the widest vectors that this CPU has. */
static int sleef_lanes(void) {
#ifdef __x86_64__
    unsigned features = dynnorm_cpu_features();
    return features & CPU_AVX512 ? 16 : features & CPU_AVX2 ? 8 : 4;
#else
    return 4;
#endif
}

#ifdef __x86_64__
#define SLEEF_WIDEST(precision)                                                                                        \
    (*(sleef_lanes() == 16  ? &functions_of_sleef_##precision##_16                                                     \
       : sleef_lanes() == 8 ? &functions_of_sleef_##precision##_8                                                      \
                            : &functions_of_sleef_##precision##_4))
#else
#define SLEEF_WIDEST(precision) functions_of_sleef_##precision##_4
#endif

static char sleef_u10_description[120], sleef_u35_description[120];
PEER_OF_FUNCTIONS(sleef_u10, sleef_u10_description, SLEEF_WIDEST(u10))
PEER_OF_FUNCTIONS(sleef_u35, sleef_u35_description, SLEEF_WIDEST(u35))

static void describe_sleef(char description[120], const char *ulps) {
    snprintf(description, 120, "SLEEF " PEER_SLEEF_VERSION ": its tanh of %d lanes, within %s ULP, in a loop",
             sleef_lanes(), ulps);
}
#else
ABSENT_PEER(sleef_u10, PEER_SLEEF_ABSENT)
ABSENT_PEER(sleef_u35, PEER_SLEEF_ABSENT)
#endif

#ifndef HAVE_PEER_ONEDNN
const struct peer peer_onednn = {"onednn", PEER_ONEDNN_ABSENT, NULL, NULL, NULL, NULL};
#endif

/* ---- The list ---------------------------------------------------------------------------------------------------- */

const struct peer *const *peers(void) {
    static const struct peer *const list[] = {&peer_loops,
#ifdef HAVE_PEER_LOOPS_UNROLLED
                                              &peer_loops_unrolled,
#endif
#ifdef HAVE_PEER_LOOPS_256
                                              &peer_loops_256,
#endif
                                              &peer_sleef_u10,      &peer_sleef_u35, &peer_onednn, NULL};
#ifdef HAVE_PEER_SLEEF
    describe_sleef(sleef_u10_description, "1.0");
    describe_sleef(sleef_u35_description, "3.5");
#endif
    return list;
}

/* ---- Whether a peer computes the same ---------------------------------------------------------------------------- */

void list_outputs(struct output outputs[OUTPUTS], const dynnorm_descriptor *call, int backward) {
    size_t elements = call->tokens * call->channels;
    outputs[0] = (struct output){backward ? call->dx.data : call->y.data, elements};
    outputs[1] = (struct output){backward ? call->dweight.data : NULL, call->channels};
    outputs[2] = (struct output){backward ? call->dbias.data : NULL, call->channels};
    outputs[3] = (struct output){!backward ? NULL : call->dalpha ? call->dalpha : call->dbeta, 1};
}

static double deviation(const float *got, const float *expected, size_t count) {
    double largest = 0, difference = 0;
    int is_finite = 1;
    for (size_t i = 0; i < count; i++) {
        double distance = fabs((double)got[i] - (double)expected[i]), size = fabs((double)expected[i]);
        is_finite &= distance <= DBL_MAX;
        difference = distance > difference ? distance : difference;
        largest = size > largest ? size : largest;
    }
    if (!is_finite)
        return (double)INFINITY;
    return difference > 0 ? difference / largest : 0;
}

double peer_deviation(const struct peer *peer, void *prepared, const dynnorm_descriptor *call, int backward) {
    struct output outputs[OUTPUTS];
    float *expected[OUTPUTS] = {NULL};
    double largest = 0;
    list_outputs(outputs, call, backward);
    if (backward ? dynnorm_backward(call) : dynnorm_forward(call))
        return (double)INFINITY;
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].data) {
            size_t bytes = outputs[i].count * sizeof(float);
            expected[i] = allocate_pages(bytes);
            memcpy(expected[i], outputs[i].data, bytes);
            memset(outputs[i].data, 0xff, bytes); /* NaN, so that what the peer does not write shows */
        }
    peer->run(prepared);
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].data) {
            largest = fmax(largest, deviation(outputs[i].data, expected[i], outputs[i].count));
            free(expected[i]);
        }
    return largest;
}
