/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the rows of a tensor may look like: ordinary rows, and rows that go wrong in arithmetic with too few bits or too
 * small a range.
 */
#ifndef DYNNORM_TEST_ROW_PATTERNS_H
#define DYNNORM_TEST_ROW_PATTERNS_H

#include "random.h"

#include <stddef.h>

struct pattern {
    const char *name;
    void (*fill)(struct random *random, float *row, size_t channels, double argument);
    double argument;
    int without_eps; /* use it with eps 0, because any other eps would outweigh the values */
};

/* The first one is "ordinary": mean 0, deviation 1. */
extern const struct pattern patterns[];
extern const size_t pattern_count;

#endif
