/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/one_token.h"
#include "api/buffered_rows.h"
#include "dispatch/dispatch.h"
#include "element_types.h"
#include "kernels.h"
#include "operations.h"

/* What only some operations have. */
static int has_usual_parameters(const dynnorm_descriptor *call, const struct operation_facts *facts, float parameter) {
    const int is_beta = facts->parameter == offsetof(dynnorm_descriptor, beta);
    return ((int)!facts->has_eps | is_finite_and_not_negative(call->eps)) &
           ((int)!facts->has_scale | is_finite(call->scale)) &
           (is_beta ? is_finite_and_not_negative(parameter) : is_finite(parameter)) & is_finite(call->weight_offset) &
           (int)(facts->has_bias || !call->bias.data) & (int)(facts->has_mean || !call->mean) &
           (int)(facts->has_rstd || !call->rstd);
}

/* What is absent lies at 0, where no row does. */
static int has_usual_buffers(const dynnorm_descriptor *call) {
    const size_t channels = call->channels, bytes = HALF_BYTES * channels;
    const unsigned char *x = call->x.data, *y = call->y.data, *weight = call->weight.data, *bias = call->bias.data;
    const size_t weight_bytes = channels * dynnorm_element_bytes(call->weight.type);
    const size_t bias_bytes = channels * dynnorm_element_bytes(call->bias.type);
    const float *mean = call->mean, *rstd = call->rstd;
    return (int)(x != NULL) & (int)(y != NULL) & ((int)(y == x) | (int)!meet(y, bytes, x, bytes)) &
           (int)!meet(y, bytes, weight, weight_bytes) & (int)!meet(y, bytes, bias, bias_bytes) &
           (int)!float_meets(mean, y, bytes) & (int)!float_meets(rstd, y, bytes) & (int)!float_meets(mean, x, bytes) &
           (int)!float_meets(rstd, x, bytes) & ((int)(mean == NULL) | (int)!float_meets(mean, rstd, sizeof(float))) &
           ((int)(weight == NULL) |
            ((int)!float_meets(mean, weight, weight_bytes) & (int)!float_meets(rstd, weight, weight_bytes))) &
           ((int)(bias == NULL) |
            ((int)!float_meets(mean, bias, bias_bytes) & (int)!float_meets(rstd, bias, bias_bytes)));
}

int dynnorm_forward_row_of_halves(const dynnorm_descriptor *call) {
    const dynnorm_type type = call->x.type;
    if ((type != DYNNORM_BF16 && type != DYNNORM_F16) || call->y.type != type || (unsigned)call->weight.type >= TYPES ||
        (unsigned)call->bias.type >= TYPES || (unsigned)call->operation >= OPERATIONS ||
        (unsigned)call->mode >= MODES || call->mode == DYNNORM_SLEEF)
        return 0;
    const float parameter = dynnorm_parameter_of(call);
    if (!call->channels || !has_usual_buffers(call) ||
        !has_usual_parameters(call, &dynnorm_operations[call->operation], parameter))
        return 0;
    halves_kernel *kernel = dynnorm_halves_kernel(dynnorm_active_kernels(), call->operation, call->mode);
    if (!kernel)
        return 0;
    struct halves_call row = dynnorm_halves_call(call);
    row.x = call->x.data;
    row.y = call->y.data;
    row.mean = call->mean;
    row.rstd = call->rstd;
    row.parameters = (struct typed_vector){NULL, DYNNORM_F32, parameter};
    kernel(&row, 1);
    return 1;
}
