/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The sums over the channels of a row in the forward pass, and the one order in which every instruction set adds them.
 *
 * There are 16 lanes: lane k takes channels k, k + 16, k + 32 and so on. Channels beyond the end of a row count as
 * zeros.
 *
 * Sums of x and x^2 are doubles from the first term on; a lane adds its terms one after another. At the end lane k + 8
 * is added to lane k.
 *
 * Sums of x^2 alone may be made in float over spans of 64 channels, of which a lane has four: two pairs, which are then
 * added. Lane k + 8 is added to lane k in float as well, which makes four roundings of a sum of positive terms. The
 * eight sums of each span are then added to eight doubles.
 *
 * Either way the last eight lanes are added up in the order of eight_sum: k + 4 to k, then k + 2 and k + 1.
 */
#ifndef DYNNORM_ROW_SUMS_H
#define DYNNORM_ROW_SUMS_H

#include "model_marks.h"
#include "vec.h"

enum row_sums_in { ROW_SUMS_IN_DOUBLE, ROW_SQUARES_IN_FLOAT };

enum { ROW_SPAN = 64 };

/* The 16 lanes are held in vectors of LANES each. */
enum { VECTORS_OF_16 = 16 / LANES };

/* In a loop over these vectors, or over the vectors of a span. Plain C has so many that unrolling would only cost
   space. */
#define UNROLL_VECTORS _Pragma("GCC unroll 4")

struct row_sums {
    wide x[VECTORS_OF_16]; /* in double */
    wide xx[VECTORS_OF_16];
    eight squares; /* in float */
};

/* The last eight lanes of the sums. */
struct folded_sums {
    eight x;
    eight xx;
};

INLINE void clear_row_sums(struct row_sums *sums, enum row_sums_in in) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        sums->squares = eight_set(0);
        return;
    }
    UNROLL_VECTORS
    for (int i = 0; i < VECTORS_OF_16; i++)
        sums->x[i] = sums->xx[i] = wide_set(0);
}

/* Channels beyond count are 0; whole tells, when compiling, that there are none. */
INLINE vec load_channels(const float *x, ptrdiff_t first, ptrdiff_t count, int whole) {
    return whole ? vec_load(x + first) : vec_load_n(x + first, count - first, vec_set(0));
}

/* Adds a span of count <= 64 channels; only the last one of a row may have fewer. */
INLINE void add_squares_of_span(struct row_sums *sums, const float *x, ptrdiff_t count, int whole) {
    vec lanes[VECTORS_OF_16];
    UNROLL_VECTORS
    for (int i = 0; i < VECTORS_OF_16; i++) {
        ptrdiff_t k = LANES * i;
        vec a = load_channels(x, k, count, whole), b = load_channels(x, k + 16, count, whole);
        vec first = vec_fma(b, b, vec_mul(a, a));
        vec c = load_channels(x, k + 32, count, whole), d = load_channels(x, k + 48, count, whole);
        lanes[i] = vec_add(first, vec_fma(d, d, vec_mul(c, c)));
    }
    sums->squares = eight_add(sums->squares, vec_fold(lanes));
}

INLINE void add_sixteen(struct row_sums *sums, const float *x, ptrdiff_t count, int whole) {
    UNROLL_VECTORS
    for (int i = 0; i < VECTORS_OF_16; i++) {
        ptrdiff_t k = LANES * i;
        wide value = whole ? wide_load_floats(x + k) : vec_widen(vec_load_n(x + k, count - k, vec_set(0)));
        sums->x[i] = wide_add(sums->x[i], value);
        sums->xx[i] = wide_add_product(value, value, sums->xx[i]);
    }
}

INLINE void add_span(struct row_sums *sums, enum row_sums_in in, const float *x) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        add_squares_of_span(sums, x, ROW_SPAN, 1);
    } else {
#pragma GCC unroll 4
        for (int k = 0; k < ROW_SPAN; k += 16)
            add_sixteen(sums, x + k, 16, 1);
    }
    MODEL_PASS("sums", in, ROW_SPAN);
}

/* The last channels of a row, fewer than 64. */
INLINE void add_last_channels(struct row_sums *sums, enum row_sums_in in, const float *x, ptrdiff_t count) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        add_squares_of_span(sums, x, count, 0);
        return;
    }
    ptrdiff_t k = 0;
    for (; k + 16 <= count; k += 16)
        add_sixteen(sums, x + k, 16, 1);
    if (k < count)
        add_sixteen(sums, x + k, count - k, 0);
}

INLINE void add_channels(struct row_sums *sums, enum row_sums_in in, const float *x, ptrdiff_t count) {
    ptrdiff_t k = 0;
    for (; k + ROW_SPAN <= count; k += ROW_SPAN)
        add_span(sums, in, x + k);
    if (k < count)
        add_last_channels(sums, in, x + k, count - k);
}

INLINE void fold_row_sums(struct folded_sums *folded, const struct row_sums *sums, enum row_sums_in in) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        folded->xx = sums->squares;
        return;
    }
    folded->x = wide_fold(sums->x);
    folded->xx = wide_fold(sums->xx);
}

#endif
