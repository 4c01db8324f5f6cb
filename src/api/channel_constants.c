/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/channel_constants.h"
#include "api/buffered_rows.h"
#include "operations/channel_constants.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { PARAMETERS_AT_A_TIME = MOST_CHANNEL_FACTORS, CONSTANTS_ALIGNMENT = 64, ARRAYS = 5 };

/* Some alphas or betas as floats, NaN where they are none, and 1 up to the next multiple of 16. */
static void read_parameters(float parameters[PARAMETERS_AT_A_TIME], size_t first, size_t count,
                            const dynnorm_descriptor *call, const struct kernels *kernels) {
    const dynnorm_vector vector = dynnorm_parameters_of(call);
    const unsigned char *data = (const unsigned char *)vector.data + first * dynnorm_element_bytes(vector.type);
    const int is_dyt = call->operation == DYNNORM_DYT;
    if (HAS_BUFFERED_ROWS)
        kernels->conversions[vector.type].widen(parameters, data, count);
    else
        memcpy(parameters, data, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        parameters[i] = isfinite(parameters[i]) && (is_dyt || parameters[i] >= 0) ? parameters[i] : NAN;
    for (size_t i = count; i < PARTIAL_SUMS_CHANNELS(count); i++)
        parameters[i] = 1;
}

static struct constants_of_parameter constants_of(const dynnorm_descriptor *call, float parameter) {
    return call->operation == DYNNORM_DYT      ? dyt_constants(parameter, call->scale)
           : call->operation == DYNNORM_DYISRU ? dyisru_constants(parameter, call->scale)
                                               : centered_constants(parameter, call->scale);
}

size_t dynnorm_channel_constants_bytes(const dynnorm_descriptor *call) {
    if (!call->parameter_per_channel || !call->tokens)
        return 0;
    return ARRAYS * PARTIAL_SUMS_CHANNELS(call->channels) * sizeof(float) + CONSTANTS_ALIGNMENT;
}

void dynnorm_make_channel_constants(struct channel_constants *made, void *memory, const dynnorm_descriptor *call,
                                    const struct kernels *kernels) {
    const size_t channels = PARTIAL_SUMS_CHANNELS(call->channels);
    float *array = (float *)((char *)memory + (-(uintptr_t)memory & (CONSTANTS_ALIGNMENT - 1))),
          parameters[PARAMETERS_AT_A_TIME];
    float *parameter = array, *slope = array + channels, *x_factor = slope + channels, *dx_factor = x_factor + channels;
    float *given = dx_factor + channels;
    *made = (struct channel_constants){parameter, slope, x_factor, dx_factor, given, 0, 0};
    for (size_t first = 0; first < call->channels; first += PARAMETERS_AT_A_TIME) {
        const size_t left = call->channels - first, count = left < PARAMETERS_AT_A_TIME ? left : PARAMETERS_AT_A_TIME;
        read_parameters(parameters, first, count, call, kernels);
        for (size_t i = 0; i < PARTIAL_SUMS_CHANNELS(count); i++) {
            const struct constants_of_parameter constants = constants_of(call, parameters[i]);
            parameter[first + i] = constants.parameter;
            slope[first + i] = constants.slope;
            x_factor[first + i] = constants.x_factor;
            dx_factor[first + i] = constants.dx_factor;
            given[first + i] = parameters[i];
            made->has_x_factor |= constants.x_factor != 1;
            made->has_dx_factor |= constants.dx_factor != 1;
        }
    }
}

void dynnorm_channel_factors(double factors[MOST_CHANNEL_FACTORS], size_t first, size_t count,
                             const dynnorm_descriptor *call, const struct kernels *kernels) {
    float parameters[PARAMETERS_AT_A_TIME];
    read_parameters(parameters, first, count, call, kernels);
    for (size_t i = 0; i < PARTIAL_SUMS_CHANNELS(count); i++) {
        const struct constants_of_parameter constants = constants_of(call, parameters[i]);
        factors[i] = call->operation == DYNNORM_DYT      ? dyt_parameter_factor(constants.x_factor, constants.slope)
                     : call->operation == DYNNORM_DYISRU ? dyisru_parameter_factor(constants.x_factor, constants.slope)
                                                         : 1;
    }
}
