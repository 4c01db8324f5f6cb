/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The deciles of |x|, exactly, in two passes over values that need not fit in memory. The bits of floats without their
 * sign are ordered as the floats are: the first pass counts by their upper half, which tells the upper half of each
 * decile; the second counts, within those, by the lower half.
 *
 * The k-th decile is the smallest |x| that at least k tenths of all |x| do not exceed.
 */
#ifndef DYNNORM_CALIBRATE_DECILES_H
#define DYNNORM_CALIBRATE_DECILES_H

#include <stddef.h>
#include <stdint.h>

enum { DECILES = 10, DECILE_BORDERS = DECILES - 1 };

struct deciles {
    uint64_t count;
    float smallest; /* |x| but 0; infinite while there is none */
    float largest;
    uint64_t upper[1 << 15];
    uint64_t lower[DECILE_BORDERS][1 << 16];
    uint32_t border_upper[DECILE_BORDERS];
    uint64_t rank[DECILE_BORDERS]; /* within its upper half, from 0 */
    float borders[DECILE_BORDERS];
};

void deciles_begin(struct deciles *deciles);
void deciles_add_first(struct deciles *deciles, const float *x, size_t count);
void deciles_between(struct deciles *deciles);
void deciles_add_second(struct deciles *deciles, const float *x, size_t count);
void deciles_finish(struct deciles *deciles);

/* Which tenth an x belongs to, from 0: it is beyond that many deciles. */
int decile_of(const struct deciles *deciles, float x);

#endif
