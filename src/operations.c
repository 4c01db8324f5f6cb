/* SPDX-License-Identifier: BSD-2-Clause */
#include "operations.h"

#include <string.h>

enum { NO_STATISTICS, RSTD, MEAN_AND_RSTD };

/* The fields of a parameter. */
#define FIELD_alpha offsetof(dynnorm_descriptor, alpha)
#define FIELD_beta offsetof(dynnorm_descriptor, beta)
#define FIELD_none NO_FIELD
#define VECTOR_FIELD_alpha offsetof(dynnorm_descriptor, alphas)
#define VECTOR_FIELD_beta offsetof(dynnorm_descriptor, betas)
#define VECTOR_FIELD_none NO_FIELD
#define GRADIENT_FIELD_alpha offsetof(dynnorm_descriptor, dalpha)
#define GRADIENT_FIELD_beta offsetof(dynnorm_descriptor, dbeta)
#define GRADIENT_FIELD_none NO_FIELD
#define ACCUMULATE_FIELD_alpha offsetof(dynnorm_descriptor, accumulate_dalpha)
#define ACCUMULATE_FIELD_beta offsetof(dynnorm_descriptor, accumulate_dbeta)
#define ACCUMULATE_FIELD_none NO_FIELD

const struct operation_facts dynnorm_operations[OPERATIONS] = {
#define OPERATION(name_, NAME, title_, statistics, has_bias_, has_scale_, parameter_, gradient_factor)                 \
    [DYNNORM_##NAME] = {                                                                                               \
        .name = #name_,                                                                                                \
        .title = title_,                                                                                               \
        .has_mean = (statistics) == MEAN_AND_RSTD,                                                                     \
        .has_rstd = (statistics) != NO_STATISTICS,                                                                     \
        .has_eps = (statistics) != NO_STATISTICS,                                                                      \
        .has_bias = has_bias_,                                                                                         \
        .has_scale = has_scale_,                                                                                       \
        .parameter = FIELD_##parameter_,                                                                               \
        .parameters = VECTOR_FIELD_##parameter_,                                                                       \
        .parameter_gradient = GRADIENT_FIELD_##parameter_,                                                             \
        .parameter_accumulate = ACCUMULATE_FIELD_##parameter_,                                                         \
        .parameter_gradient_factor = gradient_factor,                                                                  \
    },
#include "operations.def"
};

float dynnorm_parameter_of(const dynnorm_descriptor *call) {
    size_t field = dynnorm_operations[call->operation].parameter;
    float value = 0;
    if (field != NO_FIELD)
        memcpy(&value, (const char *)call + field, sizeof value);
    return value;
}

dynnorm_vector dynnorm_parameters_of(const dynnorm_descriptor *call) {
    size_t field = dynnorm_operations[call->operation].parameters;
    dynnorm_vector vector = {NULL, DYNNORM_F32};
    if (field != NO_FIELD)
        memcpy(&vector, (const char *)call + field, sizeof vector);
    return vector;
}

float *dynnorm_parameter_gradient_of(const dynnorm_descriptor *call) {
    size_t field = dynnorm_operations[call->operation].parameter_gradient;
    float *gradient = NULL;
    if (field != NO_FIELD)
        memcpy(&gradient, (const char *)call + field, sizeof gradient);
    return gradient;
}

int dynnorm_parameter_accumulates(const dynnorm_descriptor *call) {
    size_t field = dynnorm_operations[call->operation].parameter_accumulate;
    int accumulates = 0;
    if (field != NO_FIELD)
        memcpy(&accumulates, (const char *)call + field, sizeof accumulates);
    return accumulates;
}
