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
 *
 * All this is the sum of one block of channels. A longer row is the sum of its blocks, each finished to one double, in
 * their order. So a row whose channels are split between machines can keep its bits. This holds for every sum over the
 * channels of a row, those of the backward pass among them.
 */
#ifndef DYNNORM_ROW_SUMS_H
#define DYNNORM_ROW_SUMS_H

#include "model_marks.h"
#include "rows/blocks.h"
#include "rows/halves.h"
#include "rows/places.h"
#include "vec.h"

enum row_sums_in { ROW_SUMS_IN_DOUBLE, ROW_SQUARES_IN_FLOAT };

enum { ROW_SPAN = 64 };

/* In a loop over the parts of 16 lanes. Plain C has so many that unrolling all of them would only cost space. */
#define UNROLL_PARTS _Pragma("GCC unroll 4")

struct row_sums {
    wide x[PARTS]; /* in double */
    wide xx[PARTS];
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
    UNROLL_PARTS
    for (int i = 0; i < PARTS; i++)
        sums->x[i] = sums->xx[i] = wide_set(0);
}

INLINE void copy_row_sums(struct row_sums *to, const struct row_sums *from, enum row_sums_in in) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        to->squares = from->squares;
        return;
    }
    UNROLL_PARTS
    for (int i = 0; i < PARTS; i++)
        to->x[i] = from->x[i], to->xx[i] = from->xx[i];
}

/* Up to 64 channels. All but the first two members are constants, and so is whether a pointer is NULL. */
struct span {
    const float *x;
    ptrdiff_t count;
    int sixteens; /* the others count as zeros */
    int whole_sixteens;
    int is_first;      /* of a row: the sums were not cleared, which would cost an addition for each of them */
    const wide *one;   /* 1 in every lane, which the compiler must not know. x is then added as a product with it. */
    load_halves *load; /* NULL: x are floats; otherwise all channels are whole sixteens */
    load_wide_halves *load_wide; /* loads those in double */
    const size_t *ahead;         /* NULL, or how far ahead other channels are fetched; for squares in float alone */
};

INLINE vec load_channels(const struct span *span, int sixteen, int vector) {
    ptrdiff_t first = 16 * sixteen + LANES * vector;
    if (span->ahead && first % FLOATS_OF_LINE == 0)
        __builtin_prefetch((const void *)((uintptr_t)span->x + ((size_t)first + *span->ahead) * sizeof(float)));
    if (span->load)
        return span->load((const unsigned char *)span->x + 2 * first);
    return sixteen < span->whole_sixteens ? vec_load(span->x + first)
                                          : vec_load_n(span->x + first, span->count - first, vec_set(0));
}

INLINE void add_squares(struct row_sums *sums, const struct span *span) {
    vec lanes[PARTS];
    UNROLL_PARTS
    for (int i = 0; i < PARTS; i++) {
        vec x = load_channels(span, 0, i);
        lanes[i] = vec_mul(x, x);
        if (span->sixteens > 1) {
            x = load_channels(span, 1, i);
            lanes[i] = vec_fma(x, x, lanes[i]);
        }
        if (span->sixteens > 2) {
            x = load_channels(span, 2, i);
            vec pair = vec_mul(x, x);
            if (span->sixteens > 3) {
                x = load_channels(span, 3, i);
                pair = vec_fma(x, x, pair);
            }
            lanes[i] = vec_add(lanes[i], pair);
        }
    }
    sums->squares = span->is_first ? vec_fold(lanes) : eight_add(sums->squares, vec_fold(lanes));
}

INLINE void add_part_in_double(struct row_sums *sums, const struct span *span, int sixteen, int i) {
    const ptrdiff_t first = 16 * sixteen + LANES * i;
    wide x = span->load_wide                  ? span->load_wide((const unsigned char *)span->x + 2 * first)
             : sixteen < span->whole_sixteens ? wide_load_floats(span->x + first)
                                              : vec_widen(load_channels(span, sixteen, i));
    const int is_first = span->is_first && sixteen == 0;
    sums->x[i] = is_first ? x : span->one ? wide_add_product(x, *span->one, sums->x[i]) : wide_add(sums->x[i], x);
    sums->xx[i] = is_first ? wide_mul(x, x) : wide_add_product(x, x, sums->xx[i]);
    /* A single row of 768 channels, whose sums are made by products, took 1.17 times as long by this. */
    if (!span->one) /* lest gcc converts all x of a span first, for which there are too few registers */
        wides_in_registers(&sums->x[i], &sums->xx[i]);
}

/* Where registers cannot hold all lanes each of them takes its terms of the span at once. */
INLINE void add_doubles(struct row_sums *sums, const struct span *span) {
    if (LANES == 1) {
        for (int i = 0; i < PARTS; i++)
#pragma GCC unroll 4
            for (int sixteen = 0; sixteen < span->sixteens; sixteen++)
                add_part_in_double(sums, span, sixteen, i);
        return;
    }
#pragma GCC unroll 4
    for (int sixteen = 0; sixteen < span->sixteens; sixteen++)
        UNROLL_PARTS
    for (int i = 0; i < PARTS; i++)
        add_part_in_double(sums, span, sixteen, i);
}

/* Adds a span; only the last one of a row may have fewer than 64 channels. */
INLINE void add_span(struct row_sums *sums, enum row_sums_in in, const struct span *span) {
    if (in == ROW_SQUARES_IN_FLOAT)
        add_squares(sums, span);
    else
        add_doubles(sums, span);
}

INLINE void add_whole_span(struct row_sums *sums, enum row_sums_in in, const float *x) {
    const struct span span = {.x = x, .count = ROW_SPAN, .sixteens = 4, .whole_sixteens = 4};
    add_span(sums, in, &span);
    MODEL_PASS("sums", in, ROW_SPAN);
}

/* The last channels of a row, fewer than 64. */
INLINE void add_last_channels(struct row_sums *sums, enum row_sums_in in, const float *x, ptrdiff_t count) {
    const struct span span = {.x = x, .count = count, .sixteens = 4};
    if (count > 0)
        add_span(sums, in, &span);
}

/* The same, in as many steps as there are sixteens of them. */
INLINE void add_last_sixteens(struct row_sums *sums, enum row_sums_in in, const float *x, ptrdiff_t count) {
    if (in == ROW_SUMS_IN_DOUBLE) {
#pragma GCC unroll 1
        for (; count >= 16; x += 16, count -= 16)
            add_doubles(sums, &(const struct span){.x = x, .count = 16, .sixteens = 1, .whole_sixteens = 1});
        if (count > 0)
            add_doubles(sums, &(const struct span){.x = x, .count = count, .sixteens = 1});
    } else if (count <= 16) {
        add_squares(sums, &(const struct span){.x = x, .count = count, .sixteens = 1});
    } else if (count <= 32) {
        add_squares(sums, &(const struct span){.x = x, .count = count, .sixteens = 2, .whole_sixteens = 1});
    } else if (count <= 48) {
        add_squares(sums, &(const struct span){.x = x, .count = count, .sixteens = 3, .whole_sixteens = 2});
    } else {
        add_squares(sums, &(const struct span){.x = x, .count = count, .sixteens = 4, .whole_sixteens = 3});
    }
}

/* All of a block. */
INLINE void sum_channels(struct row_sums *sums, enum row_sums_in in, const float *x, ptrdiff_t channels) {
    ptrdiff_t i = 0;
    clear_row_sums(sums, in);
    for (; i + ROW_SPAN <= channels; i += ROW_SPAN)
        add_whole_span(sums, in, x + i);
    add_last_channels(sums, in, x + i, channels - i);
}

/* The sums of eight rows, made like eight_sum. Lane r is that of a[r]. */
INLINE eight eight_sums(const eight a[8]) {
    return merge_1(merge_2(merge_4(a[0], a[4]), merge_4(a[2], a[6])),
                   merge_2(merge_4(a[1], a[5]), merge_4(a[3], a[7])));
}

INLINE void fold_row_sums(struct folded_sums *folded, const struct row_sums *sums, enum row_sums_in in) {
    if (in == ROW_SQUARES_IN_FLOAT) {
        folded->xx = sums->squares;
        return;
    }
    folded->x = wide_fold(sums->x);
    folded->xx = wide_fold(sums->xx);
}

/* The sums of a block or of a row, finished. */
struct totals {
    double x; /* 0 in sums of squares alone */
    double xx;
};

/* How many times the variance the mean square may be, lest too much of the sums cancels. */
enum { SQUARE_LIMIT = 1 << 12 };

INLINE struct totals totals_of_block(const struct row_sums *sums, enum row_sums_in in) {
    struct folded_sums folded;
    folded.x = eight_set(0);
    fold_row_sums(&folded, sums, in);
    return (struct totals){in == ROW_SUMS_IN_DOUBLE ? eight_sum(folded.x) : 0, eight_sum(folded.xx)};
}

INLINE void add_totals(struct totals *sums, struct totals more) {
    sums->x += more.x;
    sums->xx += more.xx;
}

INLINE struct totals sum_block(const float *x, size_t channels, enum row_sums_in in) {
    struct row_sums sums;
    sum_channels(&sums, in, x, (ptrdiff_t)channels);
    return totals_of_block(&sums, in);
}

/* Whether a block of up to BLOCK channels is the last one of a block whose sums are finished by themselves. */
INLINE int ends_summed_block(struct block block, size_t channels) {
    const size_t end = block.first + block.count;
    return end % SUMMED_BLOCK == 0 || end == channels;
}

/* How many channels the block has that begins at the given one. */
INLINE size_t channels_of_summed_block(size_t first, size_t channels) {
    return channels - first < SUMMED_BLOCK ? channels - first : SUMMED_BLOCK;
}

#endif
