/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums have 16 lanes on every instruction set, which are held in parts of one vector each. A place is one vector of
 * channels, of which only some may exist.
 */
#ifndef DYNNORM_PLACES_H
#define DYNNORM_PLACES_H

#include "vec.h"

/* Parts are unrolled to stay in registers: in memory, AVX2's would be cleared by stores too narrow to be forwarded to
   the loads that follow. Plain C has too many parts, and NEON too few registers: unrolled, its code would be more than
   twice as large and no faster. */
enum { PARTS = 16 / LANES, UNROLLED_PARTS = LANES < 8 ? 1 : 4 };

/* Whether elements are taken one by one where vectors are taken side by side: in plain C, if the compiler has been told
 * to make small code, as src/build.txt has it on x86-64. There this saves 34 KB, and DyT and DyISRU take 1.05 to 1.16
 * times as long where they are not backward passes over several rows. */
#ifdef __OPTIMIZE_SIZE__
enum { ONE_BY_ONE = LANES == 1 };
#else
enum { ONE_BY_ONE = 0 };
#endif

struct place {
    ptrdiff_t channel;
    ptrdiff_t count; /* channels that exist from there on */
    int whole;       /* tells, mostly when compiling, that a whole vector of them does */
};

/* The vector that begins at a channel of a row with so many of them. Only the last one may not be whole: a loop over
 * all channels would lose much time if it took each with a mask. */
INLINE struct place place_at(size_t channel, size_t channels) {
    return (struct place){(ptrdiff_t)channel, (ptrdiff_t)(channels - channel), channels - channel >= LANES};
}

INLINE vec load_vector(const float *values, struct place place, vec fill) {
    return place.whole ? vec_load(values + place.channel) : vec_load_n(values + place.channel, place.count, fill);
}

INLINE void store_vector(float *values, struct place place, vec a) {
    if (place.whole)
        vec_store(values + place.channel, a);
    else
        vec_store_n(values + place.channel, a, place.count);
}

#endif
