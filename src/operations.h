/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What distinguishes the operations from one another, as a table made from operations.def.
 */
#ifndef DYNNORM_OPERATIONS_H
#define DYNNORM_OPERATIONS_H

#include "dynnorm.h"

#include <stddef.h>
#include <stdint.h>

/* The operations under the names of operations.def, and how many there are. */
enum {
#define OPERATION(name, NAME, ...) operation_##name = DYNNORM_##NAME,
#include "operations.def"
#define OPERATION(name, NAME, ...) +1
    OPERATIONS = 0
#include "operations.def"
};

/* The same facts for the kernels, as constants: layernorm_has_bias, and so on. */
enum {
#define OPERATION(name, NAME, title, statistics, has_bias, ...) name##_has_bias = has_bias,
#include "operations.def"
};

/* The offset of a field that an operation does not have. */
#define NO_FIELD SIZE_MAX

struct operation_facts {
    char name[16];  /* as in "centered_dyisru"; no pointer, which a loader would have to relocate */
    char title[16]; /* as in "centered DyISRU" */
    int has_mean;
    int has_rstd;
    int has_eps;
    int has_bias;
    int has_scale;
    size_t parameter;                 /* offset of alpha or beta in the descriptor, or NO_FIELD */
    size_t parameters;                /* offset of alphas or betas, or NO_FIELD */
    size_t parameter_gradient;        /* offset of dalpha or dbeta, or NO_FIELD */
    size_t parameter_accumulate;      /* offset of accumulate_dalpha or accumulate_dbeta, or NO_FIELD */
    double parameter_gradient_factor; /* besides scale */
};

extern const struct operation_facts dynnorm_operations[OPERATIONS];

/* The field alpha or beta; 0 for an operation without a parameter. */
float dynnorm_parameter_of(const dynnorm_descriptor *call);

/* alphas or betas; without data for an operation without a parameter. */
dynnorm_vector dynnorm_parameters_of(const dynnorm_descriptor *call);

/* How many elements of these a call has, and of their gradient. */
static inline size_t dynnorm_parameter_count(const dynnorm_descriptor *call) {
    return call->parameter_per_channel ? call->channels : 1;
}

/* alphas or betas if each channel has its own, which only some calls have. */
static inline dynnorm_vector dynnorm_parameters_of_channels(const dynnorm_descriptor *call) {
    return call->parameter_per_channel ? dynnorm_parameters_of(call) : (dynnorm_vector){NULL, DYNNORM_F32};
}

/* dalpha or dbeta, whichever the operation has; NULL for an operation without a parameter. */
float *dynnorm_parameter_gradient_of(const dynnorm_descriptor *call);

/* Whether that gradient is to be added to what is there. */
int dynnorm_parameter_accumulates(const dynnorm_descriptor *call);

/* Whether the weight and the bias meet a result that has been rounded. Of the kernels only those of normalizations in
 * 16 bits do that. */
static inline int dynnorm_rounds_before_weight(const dynnorm_descriptor *call) {
    return call->round_before_weight && (call->weight.data || call->bias.data);
}

#endif
