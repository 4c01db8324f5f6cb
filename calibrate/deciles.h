/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Computes the deciles of |x| exactly, in two passes over values that need not fit in memory. Without their sign, the
 * bits of floats are ordered as the floats are. The first pass counts the values by the upper half of these bits, which
 * gives the upper half of each decile. The second pass counts the values with those upper halves by their lower half.
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
    float smallest; /* smallest |x| except 0; infinite if there is none */
    float largest;
    uint64_t upper[1 << 15];
    uint64_t lower[DECILE_BORDERS][1 << 16];
    uint32_t border_upper[DECILE_BORDERS];
    uint64_t rank[DECILE_BORDERS]; /* rank of the decile among the values with the same upper half, from 0 */
    float borders[DECILE_BORDERS];
};

void deciles_begin(struct deciles *deciles);
void deciles_add_first(struct deciles *deciles, const float *x, size_t count);
void deciles_between(struct deciles *deciles);
void deciles_add_second(struct deciles *deciles, const float *x, size_t count);
void deciles_finish(struct deciles *deciles);

/* The tenth that x belongs to, from 0: the number of deciles that |x| exceeds. */
int decile_of(const struct deciles *deciles, float x);

#endif
