/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a kernel is: the two function types, their arguments, and the table of one instruction set.
 * Kernels check nothing; src/api.c has done so before it calls one.
 */
#ifndef DYNNORM_KERNELS_H
#define DYNNORM_KERNELS_H

#include "operations.h"
#include "rows/tensor.h"

enum { MODES = DYNNORM_SLEEF + 1 };

/* Every output may be NULL, and so may weight and bias. */
struct forward_arguments {
    struct tensor x;
    struct tensor y;
    float *mean;
    float *rstd;
    const float *weight;
    const float *bias;
    float weight_offset;
    float eps;
    float parameter; /* alpha or beta */
    float scale;
    size_t channels;
    int streams; /* y is to be stored past the caches; it is aligned as floats are */
};

struct backward_arguments {
    struct tensor dy;
    struct tensor x;
    struct tensor dx;
    const float *weight;
    float weight_offset;
    const float *mean; /* may be NULL, and so may rstd */
    const float *rstd;
    float eps;
    float parameter; /* alpha or beta */
    float scale;
    size_t channels;
    int accumulate_dx;
    int streams; /* so is dx; its rows begin at multiples of STREAM_ALIGNMENT */
};

enum { STREAM_ALIGNMENT = 64 }; /* bytes; of every instruction set's vectors */

/* A gradient that is a sum over tokens, as the caller is to have it: the sum times factor, or that added to what was
 * there. */
struct token_gradient {
    float *values; /* NULL: not asked for */
    double factor;
    int accumulate;
};

/* What a block of rows adds to the gradients that are sums over tokens, yet without their factors. A kernel overwrites
 * them. Each pointer may be NULL: then that sum is not computed. */
struct partial_sums {
    double *dweight; /* [PARTIAL_SUMS_CHANNELS(channels)], and so dbias */
    double *dbias;
    double *dparameter; /* [PARTIAL_SUMS_CHANNELS(1)] */
    /* Where the block is all there is, dweight's gradient and dbias's, which the kernel then writes itself: what is
       left in its own sums of these means nothing. Their factors are floats. Else NULL. */
    const struct token_gradient *gradients;
};

/* The length of each of them in memory: whole vectors of every instruction set. What lies beyond the channels means
 * nothing. */
#define PARTIAL_SUMS_CHANNELS(channels) (((channels) + 15) / 16 * 16)

/* Computes rows [first, first + rows). */
typedef void forward_kernel(const struct forward_arguments *arguments, size_t first, size_t rows);

/* Computes rows [first, first + rows), which are one block or the beginning of one, and its partial sums. */
typedef void backward_kernel(const struct backward_arguments *arguments, size_t first, size_t rows,
                             const struct partial_sums *sums);

/* total += sums, count doubles; count is a multiple of 16. */
typedef void add_sums_function(double *total, const double *sums, size_t count);

/* A gradient of count elements from the sums of slots, in order, which lie slot_size doubles apart, and may be read up
 * to a multiple of 16. */
typedef void finish_sums_function(const struct token_gradient *gradient, size_t count, const double *sums, size_t slots,
                                  size_t slot_size);

/* The kernels of one instruction set. NULL where a mode has no kernel of its own for an operation. */
struct kernels {
    const char *isa; /* its public name */
    forward_kernel *forward[OPERATIONS][MODES];
    backward_kernel *backward[OPERATIONS][MODES];
    add_sums_function *add_sums;
    finish_sums_function *finish_sums;
};

/* The modes of kernels.def as values of the public enumeration. */
enum { mode_portable = DYNNORM_PORTABLE, mode_native = DYNNORM_NATIVE, mode_sleef = DYNNORM_SLEEF };

#endif
