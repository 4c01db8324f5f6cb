/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The library calls that are measured, for any operation. Their memory is that of tensors_of, so that only the calls of
 * one shape can be in use at a time.
 */
#ifndef DYNNORM_BENCH_CALLS_H
#define DYNNORM_BENCH_CALLS_H

#include "dynnorm.h"
#include "shapes.h"

/* A call with all inputs of a forward pass except the bias, and without outputs. */
dynnorm_descriptor describe_call(dynnorm_operation operation, struct shape shape);

/* Gives x, weight and, when the call is completed, all other tensors and bias a type. Gradients of weight and bias,
 * which are sums over tokens, stay floats, as in trainers that add them up. */
void use_type(dynnorm_descriptor *call, dynnorm_type type);

/* Completes the call for a forward pass as in inference, which keeps no statistics. */
void complete_forward(dynnorm_descriptor *call);

/* Completes the call for a backward pass as in training: it asks for all gradients, and takes the statistics of a
 * forward pass, which is run here. Allocates no workspace. */
dynnorm_status complete_backward(dynnorm_descriptor *call);

#endif
