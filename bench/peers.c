/* SPDX-License-Identifier: BSD-2-Clause */
#include "peers.h"
#include "tensors.h"

#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"

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

static int has_function(const peer_functions *functions, dynnorm_operation operation, int backward) {
    return functions && (*functions)[operation][backward];
}

static void *prepare_function(const peer_functions *functions, const dynnorm_descriptor *call, int backward) {
    struct prepared_call *prepared = allocate_pages(sizeof *prepared);
    *prepared = (struct prepared_call){(*functions)[call->operation][backward], call};
    return prepared;
}

static void run_function(void *context) {
    const struct prepared_call *prepared = context;
    prepared->function(prepared->call);
}
#endif

/* Defines peer_NAME, whose functions are in a table for each type of elements, or NULL: an expression of type. */
#define PEER_OF_FUNCTIONS(name, description, functions)                                                                \
    static int name##_computes(dynnorm_operation operation, int backward, dynnorm_type type) {                         \
        return has_function(functions, operation, backward);                                                           \
    }                                                                                                                  \
    static void *name##_prepare(const dynnorm_descriptor *call, int backward) {                                        \
        const dynnorm_type type = call->x.type;                                                                        \
        return prepare_function(functions, call, backward);                                                            \
    }                                                                                                                  \
    static const struct peer peer_##name = {#name, description, name##_computes, name##_prepare, run_function, free};

#define ABSENT_PEER(name, why) static const struct peer peer_##name = {#name, why, NULL, NULL, NULL, NULL};

#define OF_FLOATS(functions) (type == DYNNORM_F32 ? &(functions) : NULL)

#ifdef HAVE_PEER_LOOPS
static const peer_functions *loops_of(dynnorm_type type) {
    return type == DYNNORM_F32 ? &functions_of_loops : type == DYNNORM_BF16 ? &functions_of_loops_bf16 : NULL;
}
PEER_OF_FUNCTIONS(loops, description_of_loops, loops_of(type))
#else
ABSENT_PEER(loops, PEER_LOOPS_ABSENT)
#endif
#ifdef HAVE_PEER_LOOPS_UNROLLED
PEER_OF_FUNCTIONS(loops_unrolled, description_of_loops_unrolled, OF_FLOATS(functions_of_loops_unrolled))
#endif
#ifdef HAVE_PEER_LOOPS_256
PEER_OF_FUNCTIONS(loops_256, description_of_loops_256, OF_FLOATS(functions_of_loops_256))
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
PEER_OF_FUNCTIONS(sleef_u10, sleef_u10_description, OF_FLOATS(SLEEF_WIDEST(u10)))
PEER_OF_FUNCTIONS(sleef_u35, sleef_u35_description, OF_FLOATS(SLEEF_WIDEST(u35)))

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
    const size_t elements = call->tokens * call->channels, channels = call->channels;
    float *parameter_gradient = call->dalpha ? call->dalpha : call->dbeta;
    const struct output forward_outputs[OUTPUTS] = {{call->y.data, elements, call->y.type},
                                                    {call->sum.data, elements, call->sum.type},
                                                    {call->y_scales, call->tokens, DYNNORM_F32}},
                        backward_outputs[OUTPUTS] = {{call->dx.data, elements, call->dx.type},
                                                     {call->dweight.data, channels, call->dweight.type},
                                                     {call->dbias.data, channels, call->dbias.type},
                                                     {parameter_gradient, 1, DYNNORM_F32}};
    memcpy(outputs, backward ? backward_outputs : forward_outputs, sizeof forward_outputs);
}

/* What is known of the elements of a tensor that two have computed. */
struct difference {
    double largest;    /* magnitude */
    double difference; /* the largest one */
    int is_finite;
};

static void compare(struct difference *so_far, const float *got, const float *expected, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double distance = fabs((double)got[i] - (double)expected[i]), size = fabs((double)expected[i]);
        so_far->is_finite &= distance <= DBL_MAX;
        so_far->difference = distance > so_far->difference ? distance : so_far->difference;
        so_far->largest = size > so_far->largest ? size : so_far->largest;
    }
}

static double deviation(const struct output *got, const void *expected) {
    enum { SOME = 4096 };
    static float one[SOME], other[SOME];
    const struct conversion *conversion = &dynnorm_active_kernels()->conversions[got->type];
    const size_t bytes = dynnorm_element_bytes(got->type);
    struct difference found = {0, 0, 1};
    for (size_t first = 0; first < got->count; first += SOME) {
        const size_t count = got->count - first < SOME ? got->count - first : SOME;
        conversion->widen(one, (const char *)got->data + first * bytes, count);
        conversion->widen(other, (const char *)expected + first * bytes, count);
        compare(&found, one, other, count);
    }
    if (!found.is_finite)
        return (double)INFINITY;
    return found.difference > 0 ? found.difference / found.largest : 0;
}

double peer_roundings(dynnorm_type type) {
    return type == DYNNORM_BF16 ? 4 * 0x1p-7 : type == DYNNORM_F16 ? 4 * 0x1p-10 : 0;
}

double peer_deviation(const struct peer *peer, void *prepared, const dynnorm_descriptor *call, int backward) {
    struct output outputs[OUTPUTS];
    void *expected[OUTPUTS] = {NULL};
    double largest = 0;
    list_outputs(outputs, call, backward);
    if (backward ? dynnorm_backward(call) : dynnorm_forward(call))
        return (double)INFINITY;
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].data) {
            size_t bytes = output_bytes(&outputs[i]);
            expected[i] = allocate_pages(bytes);
            memcpy(expected[i], outputs[i].data, bytes);
            memset(outputs[i].data, 0xff, bytes); /* NaN, so that what the peer does not write shows */
        }
    peer->run(prepared);
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].data) {
            largest = fmax(largest, deviation(&outputs[i], expected[i]));
            free(expected[i]);
        }
    return largest;
}
