/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/few_rows.h"
#include "api/halves.h"
#include "api/sums.h"
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

/* What is absent lies at 0, where it meets nothing that is there. */
struct extent {
    const void *data;
    size_t bytes;
};

INLINE int extents_meet(struct extent a, struct extent b) {
    return meet(a.data, a.bytes, b.data, b.bytes);
}

/* Two tensors share nothing, or all that they have. */
INLINE int are_apart_or_same(struct extent a, struct extent b) {
    return (int)(a.data == b.data) | (int)!extents_meet(a, b);
}

/* Statistics, of which one at least is there, may meet nothing. Training asks for them, which has many rows. */
RARE int has_usual_statistics(const dynnorm_descriptor *call, const struct extent *others, size_t count) {
    const size_t bytes = call->tokens * sizeof(float);
    const struct extent mean = {call->mean, bytes}, rstd = {call->rstd, bytes};
    int meets = mean.data && rstd.data && extents_meet(mean, rstd);
    for (size_t i = 0; i < count; i++)
        if (others[i].data)
            meets |= (mean.data && extents_meet(mean, others[i])) || (rstd.data && extents_meet(rstd, others[i]));
    return !meets;
}

/* Outputs may meet nothing, unless they are in the place of x or the residual. */
static int has_usual_buffers(const dynnorm_descriptor *call) {
    enum { X, Y, WEIGHT, BIAS, RESIDUAL, SUM, ALL };
    const size_t channels = call->channels, bytes = call->tokens * channels * dynnorm_element_bytes(call->x.type);
    const struct extent all[ALL] = {
        [X] = {call->x.data, bytes},
        [Y] = {call->y.data, bytes},
        [WEIGHT] = {call->weight.data, channels * dynnorm_element_bytes(call->weight.type)},
        [BIAS] = {call->bias.data, channels * dynnorm_element_bytes(call->bias.type)},
        [RESIDUAL] = {call->residual.data, bytes},
        [SUM] = {call->sum.data, bytes},
    };
    int are_usual = (int)(all[X].data != NULL) & (int)(all[Y].data != NULL) & are_apart_or_same(all[Y], all[X]) &
                    (int)!extents_meet(all[Y], all[WEIGHT]) & (int)!extents_meet(all[Y], all[BIAS]);
    if (all[SUM].data)
        are_usual &= are_apart_or_same(all[SUM], all[X]) & are_apart_or_same(all[SUM], all[RESIDUAL]) &
                     are_apart_or_same(all[Y], all[RESIDUAL]) & (int)!extents_meet(all[SUM], all[Y]) &
                     (int)!extents_meet(all[SUM], all[WEIGHT]) & (int)!extents_meet(all[SUM], all[BIAS]);
    if (call->mean || call->rstd)
        are_usual &= has_usual_statistics(call, all, ALL);
    return are_usual;
}

/* Either a residual of the same type as x, with a sum of that type that is asked for, or, for rows of 16 bits, neither.
 */
static int has_usual_sum(const dynnorm_descriptor *call) {
    if (call->residual.data)
        return call->sum.data && call->residual.type == call->x.type && call->sum.type == call->x.type &&
               !call->normalize_unrounded_sum;
    return !call->sum.data && !call->residual.type && !call->sum.type && call->x.type != DYNNORM_F32;
}

/* Whether rows of floats can be left to a plain call, which will not fail. */
static int is_for_plain_call(const dynnorm_descriptor *call, const struct kernels *kernels) {
    return !((size_t)call->weight.type | (size_t)call->bias.type | (size_t)call->mode |
             bits_of_float(call->weight_offset) | (size_t)call->round_before_weight) &&
           call->operation != DYNNORM_CENTERED_DYISRU && kernels->forward[call->operation][DYNNORM_PORTABLE];
}

enum what_is_done dynnorm_forward_few_rows(const dynnorm_descriptor *call) {
    const dynnorm_type type = call->x.type;
    if ((unsigned)type >= TYPES || call->y.type != type || (unsigned)call->weight.type >= TYPES ||
        (unsigned)call->bias.type >= TYPES || (unsigned)call->operation >= OPERATIONS ||
        (unsigned)call->mode >= MODES || call->mode == DYNNORM_SLEEF)
        return NOTHING_IS_DONE;
    const float parameter = dynnorm_parameter_of(call);
    const int are_in_one_piece =
        call->tokens == 1 || (is_in_one_piece(call, &call->x) && is_in_one_piece(call, &call->y) &&
                              is_in_one_piece(call, &call->residual) && is_in_one_piece(call, &call->sum));
    if (!call->tokens || !call->channels || !are_in_one_piece || !has_usual_sum(call) || !has_usual_buffers(call) ||
        !has_usual_parameters(call, &dynnorm_operations[call->operation], parameter))
        return NOTHING_IS_DONE;
    const struct kernels *kernels = dynnorm_active_kernels();
    const int is_of_floats = type == DYNNORM_F32;
    halves_kernel *kernel =
        is_of_floats ? NULL : dynnorm_halves_kernel(kernels, call->operation, dynnorm_mode_of_halves(call));
    const int is_possible =
        is_of_floats ? is_for_plain_call(call, kernels) : kernel && !dynnorm_halves_are_weighed_later(call);
    if (!is_possible)
        return NOTHING_IS_DONE;
    const void *x = call->x.data;
    if (call->residual.data) {
        const struct sum_of_elements sum = {
            .to = call->sum.data, .a = x, .b = call->residual.data, .count = call->tokens * call->channels};
        kernels->conversions[type].sum(&sum);
        x = call->sum.data;
    }
    if (is_of_floats)
        return SUM_IS_DONE;
    struct halves_call rows = dynnorm_halves_call(call);
    rows.x = x;
    rows.y = call->y.data;
    rows.mean = call->mean;
    rows.rstd = call->rstd;
    rows.parameters = (struct typed_vector){NULL, DYNNORM_F32, parameter};
    kernel(&rows, call->tokens);
    return ROWS_ARE_DONE;
}

/* ---- Backward ---- */

/* Types are among those that a tensor may have, and buffers that only some operations have are only there if this one
 * has them. Two different types of 16 bits are unusual, too. */
static int has_usual_fields_of_backward(const dynnorm_descriptor *call, const struct operation_facts *facts) {
    const unsigned types = (unsigned)call->x.type | (unsigned)call->y.type | (unsigned)call->dy.type |
                           (unsigned)call->dx.type | (unsigned)call->weight.type | (unsigned)call->bias.type |
                           (unsigned)call->dweight.type | (unsigned)call->dbias.type | (unsigned)call->residual.type |
                           (unsigned)call->residual_bias.type | (unsigned)call->sum.type | (unsigned)call->dsum.type |
                           (unsigned)call->alphas.type | (unsigned)call->betas.type;
    const size_t unusual =
        bits_of_address(call->residual.data) | bits_of_address(call->sum.data) | bits_of_unusual_fields(call);
    return (int)(types < TYPES) & (int)!unusual & (int)(facts->has_bias || !call->dbias.data) &
           (int)(facts->parameter_gradient == offsetof(dynnorm_descriptor, dalpha) || !call->dalpha) &
           (int)(facts->parameter_gradient == offsetof(dynnorm_descriptor, dbeta) || !call->dbeta);
}

/* An absent one has no bytes, and meets nothing. */
INLINE struct extent extent_of(const void *data, size_t bytes) {
    return (struct extent){data, data ? bytes : 0};
}

/* So many bytes are needed of a workspace that is given. */
static size_t bytes_of_workspace(const dynnorm_descriptor *call) {
    const struct sums_layout layout = dynnorm_sums_layout(call);
    return dynnorm_workspace_bytes(&layout, dynnorm_blocks(call));
}

/* Outputs may meet nothing, but dx may take the place of an input of the same type. */
static int has_usual_buffers_of_backward(const dynnorm_descriptor *call) {
    enum { DX, DWEIGHT, DBIAS, DPARAMETER, WORKSPACE, OUTPUTS };
    enum { DY, X, DSUM, WEIGHT, MEAN, RSTD, INPUTS };
    const size_t channels = call->channels, elements = call->tokens * channels;
    const size_t workspace_bytes = call->workspace ? bytes_of_workspace(call) : 0;
    const struct extent outputs[OUTPUTS] = {
        [DX] = extent_of(call->dx.data, elements * dynnorm_element_bytes(call->dx.type)),
        [DWEIGHT] = extent_of(call->dweight.data, channels * dynnorm_element_bytes(call->dweight.type)),
        [DBIAS] = extent_of(call->dbias.data, channels * dynnorm_element_bytes(call->dbias.type)),
        [DPARAMETER] = extent_of(call->dalpha ? call->dalpha : call->dbeta, sizeof(float)),
        [WORKSPACE] = extent_of(call->workspace, workspace_bytes),
    };
    const struct extent inputs[INPUTS] = {
        [DY] = extent_of(call->dy.data, elements * dynnorm_element_bytes(call->dy.type)),
        [X] = extent_of(call->x.data, elements * dynnorm_element_bytes(call->x.type)),
        [DSUM] = extent_of(call->dsum.data, elements * dynnorm_element_bytes(call->dsum.type)),
        [WEIGHT] = extent_of(call->weight.data, channels * dynnorm_element_bytes(call->weight.type)),
        [MEAN] = extent_of(call->mean, call->tokens * sizeof(float)),
        [RSTD] = extent_of(call->rstd, call->tokens * sizeof(float)),
    };
    if (!call->dy.data || !call->x.data || !(call->dx.data || (call->dweight.data && !call->dsum.data)) ||
        call->workspace_size < workspace_bytes)
        return 0;
    int meets = 0;
#pragma GCC unroll 8
    for (int j = 0; j < INPUTS; j++)
        meets |=
            extents_meet(outputs[DX], inputs[j]) && !(j < WEIGHT && outputs[DX].data == inputs[j].data &&
                                                      outputs[DX].bytes == inputs[j].bytes && !call->accumulate_dx);
#pragma GCC unroll 1
    for (int i = DWEIGHT; i < OUTPUTS; i++) {
        if (!outputs[i].data)
            continue;
#pragma GCC unroll 1
        for (int j = 0; j < i; j++)
            meets |= extents_meet(outputs[i], outputs[j]);
#pragma GCC unroll 8
        for (int j = 0; j < INPUTS; j++)
            meets |= extents_meet(outputs[i], inputs[j]);
    }
    return !meets;
}

int dynnorm_backward_is_usual(const dynnorm_descriptor *call) {
    if (!has_few_rows(call) || !call->tokens || !call->channels || (unsigned)call->operation >= OPERATIONS ||
        (unsigned)call->mode >= MODES)
        return 0;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    const int are_in_one_piece =
        call->tokens == 1 || (is_in_one_piece(call, &call->x) && is_in_one_piece(call, &call->dy) &&
                              is_in_one_piece(call, &call->dx) && is_in_one_piece(call, &call->dsum));
    return are_in_one_piece && has_usual_fields_of_backward(call, facts) &&
           has_usual_parameters(call, facts, dynnorm_parameter_of(call)) && has_usual_buffers_of_backward(call);
}
