/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the machine can do at best, to compare with: forward reads x and writes y, as a copy does; backward reads dy and
 * x and writes dx, as z = x + y does.
 */
#ifndef DYNNORM_BENCH_LIMITS_H
#define DYNNORM_BENCH_LIMITS_H

#include <stddef.h>

/* All three begin at a multiple of 64 bytes. A copy leaves y alone. */
typedef void limit_loop(float *z, const float *x, const float *y, size_t count);

struct limit {
    const char *name;
    size_t tensors; /* how many of x, y and z it reads or writes */
    limit_loop *loop;
};

/* By the bytes of the vectors that they use; a name of NULL ends the list. Without stores that bypass the caches the
 * non-temporal ones are missing. */
extern const struct limit limits_16[];
#ifdef __x86_64__
extern const struct limit limits_32[];
extern const struct limit limits_64[];
#endif

#endif
