/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The data that all measurements of one shape share: the limits, the library, and whatever is compared with them run on
 * the same memory, since where it lies physically can decide how well a cache holds it.
 */
#ifndef DYNNORM_BENCH_TENSORS_H
#define DYNNORM_BENCH_TENSORS_H

#include "shapes.h"

/* All buffers begin at a page, and have been written. */
struct tensors {
    struct shape shape;
    float *x;      /* [tokens x channels], normally distributed */
    float *dy;     /* the same */
    float *output; /* [tokens x channels]: y or dx */
    float *weight; /* [channels], around 1 */
    float *bias;   /* [channels], around 0 */
    float *dweight;
    float *dbias;
    float *mean; /* [tokens] */
    float *rstd;
};

/* The tensors of a shape, until another one is asked for: those of one shape at a time are kept. Ends the program when
 * there is too little memory. */
const struct tensors *tensors_of(struct shape shape);

/* Memory that begins at a page, has been written, and is freed by free(). Ends the program when there is too little. */
void *allocate_pages(size_t bytes);

#endif
