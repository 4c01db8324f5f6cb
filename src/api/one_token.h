/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Conditions under which a call with one token goes straight to a kernel. They are joined bit by bit, so that there is
 * one branch for all of them; casts to int tell clang that this is meant. They may send a correct call the general way,
 * which then finds nothing wrong with it.
 */
#ifndef DYNNORM_API_ONE_TOKEN_H
#define DYNNORM_API_ONE_TOKEN_H

#include "dynnorm.h"
#include "inlining.h"
#include "rows/floats.h"

#include <math.h>
#include <stdint.h>

/* Whether a and b, which have bytes each and at least one, share any; or one of them wraps around the address space. */
INLINE int meet(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (uintptr_t)a - (uintptr_t)b + (a_bytes - 1) < a_bytes + b_bytes - 1;
}

/* A float that may be absent, and a row. */
INLINE int float_meets(const float *a, const void *row, size_t row_bytes) {
    return meet(a, sizeof(float), row, row_bytes);
}

/* Whether a parameter is finite and its sign bit is 0. */
INLINE int is_finite_and_not_negative(float parameter) {
    return bits_of_float(parameter) < INFINITY_BITS;
}

INLINE int is_finite(float parameter) {
    return is_finite_and_not_negative(fabsf(parameter));
}

/* Computes a row of 16 bits and returns 1. Returns 0, and has done nothing, if anything about the call is unusual. It
 * has one token, and fields besides those of a plain call are 0 but for types, the mode and the weight's offset. */
int dynnorm_forward_row_of_halves(const dynnorm_descriptor *call);

#endif
