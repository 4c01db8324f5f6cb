/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a program without a residual in the call would write: loops that add. They are compiled as the plain loops of
 * norms are.
 */
#ifndef DYNNORM_BENCH_PLAIN_ADDS_H
#define DYNNORM_BENCH_PLAIN_ADDS_H

#include "dynnorm.h"

#include <stddef.h>

/* to = a + b, and to += b, each rounded to the type: DYNNORM_F32 or DYNNORM_BF16. */
void plain_add(dynnorm_type type, void *to, const void *a, const void *b, size_t count);
void plain_add_to(dynnorm_type type, void *to, const void *b, size_t count);

#endif
