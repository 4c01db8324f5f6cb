/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/sums.h"
#include "element_types.h"
#include "api/channel_constants.h"

#include <stdint.h>

enum { WORKSPACE_ALIGNMENT = 64 };

struct sums_layout dynnorm_sums_layout(const dynnorm_descriptor *call) {
    struct sums_layout layout = {SIZE_MAX, SIZE_MAX, SIZE_MAX, 0};
    if (call->dweight.data) {
        layout.dweight = layout.slot;
        layout.slot += PARTIAL_SUMS_CHANNELS(call->channels);
    }
    if (call->dbias.data) {
        layout.dbias = layout.slot;
        layout.slot += PARTIAL_SUMS_CHANNELS(call->channels);
    }
    if (dynnorm_parameter_gradient_of(call)) {
        layout.dparameter = layout.slot;
        layout.slot += PARTIAL_SUMS_CHANNELS(dynnorm_parameter_count(call));
    }
    return layout;
}

struct partial_sums dynnorm_sums_in_slot(const struct sums_layout *layout, double *slot) {
    return (struct partial_sums){
        .dweight = layout->dweight == SIZE_MAX ? NULL : slot + layout->dweight,
        .dbias = layout->dbias == SIZE_MAX ? NULL : slot + layout->dbias,
        .dparameter = layout->dparameter == SIZE_MAX ? NULL : slot + layout->dparameter,
    };
}

/* There are few enough blocks that the workspace stays small against the tensors, and enough to occupy many threads.
   Each block is large enough that its own sums cost little. */
enum { LEAST_ROWS = 32 };

size_t dynnorm_rows_per_block(const dynnorm_descriptor *call) {
    enum { MOST_BLOCKS = 128, LEAST_ELEMENTS = 16384 };
    size_t rows = LEAST_ROWS;
    if (rows < LEAST_ELEMENTS / call->channels)
        rows = LEAST_ELEMENTS / call->channels;
    if (rows < call->tokens / MOST_BLOCKS + 1)
        rows = call->tokens / MOST_BLOCKS + 1;
    return (rows + GROUP - 1) / GROUP * GROUP;
}

size_t dynnorm_blocks(const dynnorm_descriptor *call) {
    if (call->tokens <= LEAST_ROWS)
        return call->tokens != 0;
    size_t rows = dynnorm_rows_per_block(call);
    return call->tokens / rows + (call->tokens % rows != 0);
}

size_t dynnorm_workspace_bytes(const struct sums_layout *layout, size_t slots) {
    return slots && layout->slot ? slots * layout->slot * sizeof(double) + WORKSPACE_ALIGNMENT - 1 : 0;
}

double *dynnorm_first_slot(void *workspace) {
    uintptr_t address = (uintptr_t)workspace;
    return workspace ? (double *)((char *)workspace + (-address & (WORKSPACE_ALIGNMENT - 1))) : NULL;
}

struct token_gradients dynnorm_token_gradients(const dynnorm_descriptor *call) {
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    double scale = facts->has_scale ? (double)call->scale : 1;
    return (struct token_gradients){
        {{call->dweight.data, scale, call->accumulate_dweight, NULL},
         {call->dbias.data, 1, call->accumulate_dbias, NULL}},
        {call->dweight.type, call->dbias.type},
        {dynnorm_parameter_gradient_of(call), facts->parameter_gradient_factor * scale,
         dynnorm_parameter_accumulates(call), NULL},
        call,
    };
}

/* Of the sums that begin at part in each slot, those of the given portion. values are where the first of these goes. */
static void finish(const struct token_gradient *gradient, struct portion portion, size_t part,
                   const struct kernels *kernels, const struct slots *slots) {
    kernels->finish_sums(gradient, portion.count, slots->first ? slots->first + part + portion.first : NULL,
                         slots->count, slots->layout->slot);
}

static void finish_floats(const struct token_gradient *gradient, struct portion portion, size_t part,
                          const struct kernels *kernels, const struct slots *slots) {
    struct token_gradient some = *gradient;
    some.values += portion.first;
    finish(&some, portion, part, kernels, slots);
}

/* One whose elements are not floats, some channels at a time. */
static void finish_typed(const struct token_gradient *gradient, dynnorm_type type, struct portion portion, size_t part,
                         const struct kernels *kernels, const struct slots *slots) {
    enum { AT_A_TIME = 256 };
    float floats[AT_A_TIME];
    const struct token_gradient some = {floats, gradient->factor, gradient->accumulate, NULL};
    const struct conversion conversion = kernels->conversions[type];
    const size_t end = portion.first + portion.count;
    for (size_t i = portion.first; i < end; i += AT_A_TIME) {
        unsigned char *to = (unsigned char *)gradient->values + i * dynnorm_element_bytes(type);
        const struct portion piece = {i, end - i < AT_A_TIME ? end - i : AT_A_TIME};
        if (some.accumulate)
            conversion.widen(floats, to, piece.count);
        finish(&some, piece, part, kernels, slots);
        conversion.narrow(to, floats, piece.count, 0);
    }
}

/* That of an alpha or beta for each channel. */
static void finish_parameters(const struct token_gradients *gradients, struct portion portion,
                              const struct kernels *kernels, const struct slots *slots) {
    double factors[MOST_CHANNEL_FACTORS];
    struct token_gradient some = gradients->parameter;
    const size_t end = portion.first + portion.count;
    some.channel_factors = factors;
    for (size_t i = portion.first; i < end; i += MOST_CHANNEL_FACTORS) {
        const struct portion piece = {i, end - i < MOST_CHANNEL_FACTORS ? end - i : MOST_CHANNEL_FACTORS};
        if (slots->count)
            dynnorm_channel_factors(factors, i, piece.count, gradients->call, kernels);
        finish_floats(&some, piece, slots->layout->dparameter, kernels, slots);
    }
}

void dynnorm_finish_channels(const struct token_gradients *gradients, struct portion channels,
                             const struct kernels *kernels, const struct slots *slots) {
    const size_t parts[] = {slots->layout->dweight, slots->layout->dbias};
    for (int i = 0; i < 2; i++) {
        const struct token_gradient *gradient = &gradients->of_channels[i];
        if (gradient->values && gradients->types[i] == DYNNORM_F32)
            finish_floats(gradient, channels, parts[i], kernels, slots);
        else if (HAS_TYPES && gradient->values)
            finish_typed(gradient, gradients->types[i], channels, parts[i], kernels, slots);
    }
    if (gradients->parameter.values && gradients->call->parameter_per_channel)
        finish_parameters(gradients, channels, kernels, slots);
}

void dynnorm_finish_parameter(const struct token_gradients *gradients, const struct kernels *kernels,
                              const struct slots *slots) {
    if (gradients->parameter.values && !gradients->call->parameter_per_channel)
        finish_floats(&gradients->parameter, (struct portion){0, 1}, slots->layout->dparameter, kernels, slots);
}
