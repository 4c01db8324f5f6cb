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

/* In the first channels x has nearly one magnitude, with mantissas such that all roundings of its sum in float go one
 * way, and h is 0. It is 1 where x is the mean. So the errors of mean(x) add up, one or two outliers have an n that
 * multiplies them, and mean(h n), which would hide them, is 0. In long rows these are whole spans of 64 channels, of
 * one sign each; where one outlier has to make up for them, each lane of sixteen has one sign, and some more have the
 * other. */
void fill_biased_sum(struct random *random, float *x, float *dy, size_t channels);

#endif
