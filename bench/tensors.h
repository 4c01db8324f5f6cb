/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The data that all measurements of one shape share. The limits, the library and the peers run on the same memory,
 * because its physical location can decide how well a cache holds it.
 */
#ifndef DYNNORM_BENCH_TENSORS_H
#define DYNNORM_BENCH_TENSORS_H

#include "dynnorm.h"
#include "shapes.h"

/* All buffers begin at a page boundary and have been written to. */
struct tensors {
    struct shape shape;
    float *x;      /* [tokens x channels], normally distributed */
    float *dy;     /* like x */
    float *output; /* [tokens x channels]: y or dx */
    float *weight; /* [channels], around 1 */
    float *bias;   /* [channels], around 0 */
    float *dweight;
    float *dbias;
    float *mean; /* [tokens] */
    float *rstd;
};

/* Returns the tensors of a shape. They stay valid until you ask for another shape. Ends the program if there is too
 * little memory. */
const struct tensors *tensors_of(struct shape shape);

/* What calls take in other types than float, or besides: a residual, which also serves as the gradient that arrives at
 * the sum, and the sum. */
enum which_tensor {
    TENSOR_X,
    TENSOR_DY,
    TENSOR_OUTPUT,
    TENSOR_WEIGHT,
    TENSOR_BIAS,
    TENSOR_RESIDUAL,
    TENSOR_SUM,
    TENSORS
};

/* A tensor or vector of the shape, its values rounded to the type. Those of float that tensors_of has are the same. It
 * is made when it is first asked for, and stays valid as long as they do. An output may be of DYNNORM_I8. */
void *tensor_of(struct shape shape, dynnorm_type type, enum which_tensor tensor);

/* Allocates zeroed memory that begins at a page boundary. Free it with free(). Ends the program if there is too little.
 */
void *allocate_pages(size_t bytes);

#endif
