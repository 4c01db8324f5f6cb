/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the rows of a tensor may look like: ordinary ones, and those that arithmetic of too few bits, or of too small a
 * range, gets wrong.
 */
#ifndef DYNNORM_TEST_ROW_PATTERNS_H
#define DYNNORM_TEST_ROW_PATTERNS_H

#include "random.h"

#include <stddef.h>

struct pattern {
    const char *name;
    void (*fill)(struct random *random, float *row, size_t channels, double argument);
    double argument;
    int without_eps; /* eps is to be 0: the values would vanish beside it */
};

/* The first one is "ordinary": mean 0, deviation 1. */
extern const struct pattern patterns[];
extern const size_t pattern_count;

#endif
