/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What kernels know of types of 16 bits whose elements they read and write without buffers of floats: how many a vector
 * has, and what the functions of convert.h that widen and narrow them look like.
 */
#ifndef DYNNORM_HALVES_H
#define DYNNORM_HALVES_H

#include "convert.h"
#include "element_types.h"

enum { HALVES = 2 * LANES };

typedef vec load_halves(const void *p); /* LANES of them */
typedef void vecs_of_halves(vec *low, vec *high, halves a);
typedef halves halves_of_vecs(vec low, vec high);

#endif
