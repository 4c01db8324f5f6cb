/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The best that the machine can do, to compare the kernels with. A forward pass reads x and writes y, as a copy does. A
 * backward pass reads dy and x and writes dx, as z = x + y does.
 */
#ifndef DYNNORM_BENCH_LIMITS_H
#define DYNNORM_BENCH_LIMITS_H

#include <stddef.h>

/* All three pointers are multiples of 64 bytes. A copy does not read y. */
typedef void limit_loop(float *z, const float *x, const float *y, size_t count);

struct limit {
    const char *name;
    size_t tensors; /* how many of x, y and z the loop reads or writes */
    limit_loop *loop;
};

/* One list for each size of vector in bytes; a name of NULL ends it. If the CPU has no stores that bypass the caches,
 * there are no non-temporal limits. */
extern const struct limit limits_16[];
#ifdef __x86_64__
extern const struct limit limits_32[];
extern const struct limit limits_64[];
#endif

#endif
