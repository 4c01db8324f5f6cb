/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/channel_constants.h"
#include "element_types.h"
#include "inlining.h"
#include "operations/channel_constants.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PARAMETERS_AT_A_TIME = MOST_CHANNEL_FACTORS, CONSTANTS_ALIGNMENT = 64, ARRAYS = 5 };

/* Some alphas or betas as floats, and 1 up to the next multiple of 16. */
static void read_parameters(float parameters[PARAMETERS_AT_A_TIME], size_t first, size_t count,
                            const dynnorm_descriptor *call, const struct kernels *kernels) {
    const dynnorm_vector vector = dynnorm_parameters_of(call);
    const unsigned char *data = (const unsigned char *)vector.data + first * dynnorm_element_bytes(vector.type);
    if (HAS_TYPES)
        kernels->conversions[vector.type].widen(parameters, data, count);
    else
        memcpy(parameters, data, count * sizeof(float));
    for (size_t i = count; i < PARTIAL_SUMS_CHANNELS(count); i++)
        parameters[i] = 1;
}

/* Computes the slopes that dynnorm_dyt_constants and dynnorm_dyisru_constants give for usual parameters: no power of
 * two is taken out of any. Gives 0 if some are not usual. It is called for each call, so it must take little of the
 * time of few rows. */
static int make_usual_slopes(float *slopes, const float *parameters, size_t count, const dynnorm_descriptor *call) {
    enum { AT_ONCE = PARTIAL_SUMS_CHANNELS(1) };
    const float least = call->operation == DYNNORM_DYT ? 0x1p-8f : 0x1p-2f, most = 0x1p40f, least_slope = 0x1p-40f;
    int unusual = call->operation == DYNNORM_CENTERED_DYISRU;
    for (size_t i = 0; i < count; i += AT_ONCE)
        for (size_t k = i; k < i + AT_ONCE; k++) {
            const float slope = parameters[k] * call->scale, magnitude = fabsf(slope);
            slopes[k] = slope;
            unusual |= !(parameters[k] >= least) | !(parameters[k] <= most) | !(magnitude >= least_slope) |
                       !(magnitude <= most);
        }
    return !unusual;
}

static struct constants_of_parameter constants_of(const dynnorm_descriptor *call, float parameter) {
    struct constants_of_parameter constants;
    if (!isfinite(parameter) || (parameter < 0 && call->operation != DYNNORM_DYT))
        parameter = NAN;
    if (call->operation == DYNNORM_DYT)
        dynnorm_dyt_constants(&constants, parameter, call->scale);
    else if (call->operation == DYNNORM_DYISRU)
        dynnorm_dyisru_constants(&constants, parameter, call->scale);
    else
        dynnorm_centered_constants(&constants, parameter, call->scale);
    return constants;
}

size_t dynnorm_channel_constants_bytes(const dynnorm_descriptor *call) {
    if (!call->parameter_per_channel || !call->tokens)
        return 0;
    return ARRAYS * PARTIAL_SUMS_CHANNELS(call->channels) * sizeof(float) + CONSTANTS_ALIGNMENT;
}

/* One of them, of any kind. */
static void make_constants(struct channel_constants *made, float *const arrays[ARRAYS], size_t channel, float parameter,
                           const dynnorm_descriptor *call) {
    const struct constants_of_parameter constants = constants_of(call, parameter);
    const float values[ARRAYS] = {constants.parameter, constants.slope, constants.x_factor, constants.dx_factor,
                                  constants.given};
    for (int i = 0; i < ARRAYS; i++)
        arrays[i][channel] = values[i];
    made->has_x_factor |= constants.x_factor != 1;
    made->has_dx_factor |= constants.dx_factor != 1;
}

static void fill_with_1(float *to, size_t count) {
    for (size_t i = 0; i < count; i++)
        to[i] = 1;
}

FOR_SIZE void dynnorm_make_channel_constants(struct channel_constants *made, void *memory,
                                             const dynnorm_descriptor *call, const struct kernels *kernels) {
    const size_t padded = PARTIAL_SUMS_CHANNELS(call->channels);
    float *array = (float *)((char *)memory + (-(uintptr_t)memory & (CONSTANTS_ALIGNMENT - 1)));
    float *const arrays[ARRAYS] = {array, array + padded, array + 2 * padded, array + 3 * padded, array + 4 * padded};
    float parameters[PARAMETERS_AT_A_TIME];
    const float multiple = call->operation == DYNNORM_DYT ? DYT_PARAMETER_MULTIPLE : 1;
    *made = (struct channel_constants){arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], 0, 0};
    for (size_t first = 0; first < call->channels; first += PARAMETERS_AT_A_TIME) {
        const size_t left = call->channels - first, count = left < PARAMETERS_AT_A_TIME ? left : PARAMETERS_AT_A_TIME;
        const size_t with_padding = PARTIAL_SUMS_CHANNELS(count);
        read_parameters(parameters, first, count, call, kernels);
        if (make_usual_slopes(arrays[1] + first, parameters, count, call)) {
            for (size_t i = 0; i < with_padding; i++)
                arrays[0][first + i] = multiple * parameters[i];
            fill_with_1(arrays[2] + first, with_padding);
            fill_with_1(arrays[3] + first, with_padding);
        } else {
            for (size_t i = 0; i < with_padding; i++)
                make_constants(made, arrays, first + i, parameters[i], call);
        }
    }
}

void dynnorm_channel_factors(double factors[MOST_CHANNEL_FACTORS], size_t first, size_t count,
                             const dynnorm_descriptor *call, const struct kernels *kernels) {
    float parameters[PARAMETERS_AT_A_TIME], slopes[PARAMETERS_AT_A_TIME];
    const size_t with_padding = PARTIAL_SUMS_CHANNELS(count);
    read_parameters(parameters, first, count, call, kernels);
    const int is_centered = call->operation == DYNNORM_CENTERED_DYISRU;
    if (is_centered || make_usual_slopes(slopes, parameters, count, call)) {
        for (size_t i = 0; i < with_padding; i++)
            factors[i] = is_centered ? 1 : 1 / (double)slopes[i];
        return;
    }
    for (size_t i = 0; i < with_padding; i++) {
        const struct constants_of_parameter of = constants_of(call, parameters[i]);
        factors[i] = call->operation == DYNNORM_DYT ? dyt_parameter_factor(of.x_factor, of.slope)
                                                    : dyisru_parameter_factor(of.x_factor, of.slope);
    }
}
