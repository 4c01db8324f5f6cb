/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm: what a kernel knows of its call and of the group of rows at hand. See
 * backward/normalization.h.
 */
#ifndef DYNNORM_BACKWARD_REDUCTION_WORK_H
#define DYNNORM_BACKWARD_REDUCTION_WORK_H

#include "kernel_names.h"
#include "kernels.h"
#include "rows/backward/token_sums.h"
#include "rows/blocks.h"
#include "rows/reader.h"
#include "rows/split_rows.h"
#include "rows/tensor.h"
#include "rows/typed_rows.h"
#include "rows/writer.h"

#include <stdint.h>

/* The length of an array with a value for each row of a group. There is room for a vector that begins at any of the
 * rows, and every array begins with a cache line: if a vector were stored across two lines, loads from it would wait.
 */
enum { ROWS_IN_VECTORS = 2 * GROUP };

/* Groups of long rows are done by halves. */
enum { HALF = GROUP / 2 };

/* The constants of a group's rows. */
struct group_constants {
    _Alignas(64) float minus_mean[ROWS_IN_VECTORS]; /* to which x can be added where it lies in memory */
    float rstd[ROWS_IN_VECTORS];
    float n_term[ROWS_IN_VECTORS];   /* p */
    float h_term[ROWS_IN_VECTORS];   /* q */
    float residual[ROWS_IN_VECTORS]; /* what is to be subtracted from v besides, for dweight */
};

/* The sums of a group's rows. */
struct sums_of_rows {
    _Alignas(64) double h[GROUP];
    double hv[GROUP];
    double v[GROUP];
    double absolute_hv[GROUP]; /* what the sum of abs(h v) is at least; infinite where v needs no test */
};

/* What is known of the constants of some rows: whether they can be trusted, and if not, whether that may be because of
 * a sum of v alone. */
enum constants_found { CONSTANTS_HOLD, V_MAY_BE_INEXACT, CONSTANTS_DO_NOT_HOLD };

/* A row in double: dx = h rstd + ((x - mean) n_term + h_term). */
struct careful_row {
    double mean;
    double rstd;
    double hn; /* mean(h n) */
    double n_term;
    double h_term;
};

/* Float holds dx of a row, but may not hold its terms of dweight. */
#define SUMS_MAY_BE_LOST (1u << GROUP)

/* The channels whose sums over tokens a kernel holds as floats. */
enum { MOST_HELD_CHANNELS = 2048 };

/* dx of a pair of rows on its way past the caches, at some channels. Where rows follow one another in memory, the
 * floats at the end that are less than a cache line wait for the next pair. */
struct collected {
    float *floats; /* in the room, at a cache line */
    size_t held;   /* at the front, which wait */
    float *next;   /* where the float after these belongs */
    _Alignas(64) float room[2 * MOST_COLLECTED_CHANNELS + FLOATS_OF_LINE + FLOATS_OF_PAGE];
};

/* Where some channels of a pair of rows lie. */
struct pair_block {
    const float *weight;
    const float *x[2];
    const float *dy[2];
    float *dx[2];
    const float *dsum[2]; /* added to dx; NULL: nothing is; means nothing in common pairs */
    float *dweight;       /* the sums over tokens of up to four rows, from the first of these channels on */
    float *dbias;
    float *dweight_of_group; /* the same of the first four rows; after the last pair those of all */
    float *dbias_of_group;
    int is_beyond_caches;
    int fetches_to_write; /* dx, and sums that are written but not read */
    ptrdiff_t x_ahead;    /* from these rows to those that are to be prefetched; this and the next one mean something
                             only beyond the caches */
    ptrdiff_t dy_ahead;
};

/* Room for two sums twice, which may begin at any place in a page. */
enum { ROOM_FOR_HELD = 2 * (2 * MOST_HELD_CHANNELS + FLOATS_OF_PAGE) };

/* Sums of a row, or of some of its blocks, finished. */
struct reduction_sums {
    double h; /* means something only where the mean is taken out, as v and what follows do */
    double hv;
    double v;
    double absolute_hv; /* see sums_of_rows */
};

/* Makes those of a row of the group at some channels, which are whole blocks. */
struct reduction_work;
typedef struct reduction_sums sum_row_function(const struct reduction_work *work, int row, struct block channels);

/* Those of a row whose channels are not all at hand. */
typedef struct reduction_sums special_sum_function(struct reduction_work *work, int row);

/* Whether rows that come from memory may be prefetched while dx of the group before is computed, and before their sums
 * are made. AVX2 leaves that to the CPU, which notices the rows when their sums are made: on a Zen 3 this takes 8 to 25
 * percent less time than to prefetch them while dx is computed alone. Other loops ask prefetches_far_rows. Where
 * nothing is prefetched dx is computed for more channels of a row at a time: see FETCHED_BLOCK in
 * backward/normalization.h. */
enum { PREFETCHES_ROWS = LANES != 8 && LANES > 1 };

/* A kernel's work. */
struct reduction_work {
    const struct backward_arguments *arguments;
    struct rows x;
    struct rows dy;
    struct output dx;
    struct reader weight;
    struct partial_sums sums;
    sum_row_function *sum_row;
    const struct token_gradient *gradients; /* set only for the last group of a call, whose sums complete them */
    double eps;
    double reciprocal; /* 1 / channels of the row */
    const struct split_rows *split;
    special_sum_function *special_sum; /* of a row that is split, or not of floats; NULL: sum_row */
    int is_centered;
    int tests_v;       /* where the mean is taken out: see operations/backward_statistics.h */
    int sums_two_rows; /* at a time, if there is a loop for that: all rows are of floats, and whole blocks */
    int statistics_are_given;
    int is_beyond_caches; /* dx goes past the caches, and x and dy come from memory */
    int collects;      /* it goes there by way of a buffer; otherwise that of common pairs is stored there directly */
    ptrdiff_t x_ahead; /* from a row to the one to be prefetched; 0 where none is */
    ptrdiff_t dy_ahead;
    ptrdiff_t x_to_sum_ahead; /* from what is summed to what is prefetched meanwhile; 0 for both where nothing is */
    ptrdiff_t dy_to_sum_ahead;
    int is_held;      /* dx overwrites dy or x: it waits in the buffers */
    int has_buffers;  /* dx goes to the buffers first */
    int adds_dsum;    /* to dx of floats, while it is computed */
    int fetches_dsum; /* ahead: dsum_rows of each group are known before its sums, and it comes from memory */
    size_t first_row; /* of the group */
    int is_first;     /* group of the block of rows: what the sums over tokens were before means nothing */
    int rows;
    int has_residual;           /* one of the rows has one */
    int is_merged;              /* the sums over tokens of both halves are added up, in the first place */
    int sums_hold;              /* what is merged may be delivered */
    unsigned zero_rows;         /* a bit for each row whose dy is 0, where that was looked for */
    unsigned careful;           /* a bit for each row that float cannot hold, and SUMS_MAY_BE_LOST */
    float greatest_weight;      /* the largest abs(w) of the call; less than 0: not known yet */
    const float *x_rows[GROUP]; /* where channel 0 is or, if there are floats of others only, would be */
    const float *dy_rows[GROUP];
    float *dx_rows[GROUP];         /* where dx is written, but for buffers */
    const float *dsum_rows[GROUP]; /* what is added to dx where something is; of rows of 16 bits NULL if nothing is */
    const struct typed_tensors *typed;
    int typed_ahead;    /* from rows that are read to those that are prefetched, or 0 */
    int has_all_floats; /* of typed rows, which then need not be read once more */
    struct sums_of_rows sums_of_rows;
    struct group_constants *constants; /* of the group at hand */
    struct group_constants of_group;
    struct careful_row careful_rows[GROUP];
    union {
        struct write_buffer buffers[GROUP];
        struct collected collected;
    };
    float *dweight[2]; /* what is held: sums over up to four rows each */
    float *dbias[2];
    int are_tiny;  /* the rows at hand, which CAREFUL_ROWS looks at: see BEGIN_TINY_ROWS */
    int were_tiny; /* those that it was last asked about */
    int waits;     /* the sums over tokens of the group before wait to be delivered: see backward/even_pairs.h */
    int waiting_is_first;
    float *waiting[2]; /* where they are, or what they may take the place of, 0: for dweight, 1: for dbias */
    _Alignas(64) float held[ROOM_FOR_HELD];
};

/* Finds the constants of rows [first, first + rows), whose sums are these, and sums v in double where those in float
 * may not be exact enough. Gives 0 where one of them cannot be trusted. Short rows try find_constants first, inlined: a
 * call took up to 3 percent of their time with AVX2. */
DYNNORM_INTERNAL int FIND_CONSTANTS(struct reduction_work *work, struct sums_of_rows *sums, int first, int rows);

/* Looks at each of rows [first, first + rows). Where a row's sums cannot be trusted, or its statistics are not known,
 * its sums are made in double, which gives its constants. */
DYNNORM_INTERNAL void CAREFUL_ROWS(struct reduction_work *work, int first, int rows);

/* The same of rows whose dy or x is so small, or whose rstd is such, that their sums in float surely cannot be trusted:
 * these are neither made nor needed. Gives 0 if they are not such rows, and has found no constants then: see
 * rows/subnormals.h. */
DYNNORM_INTERNAL int BEGIN_TINY_ROWS(struct reduction_work *work, int first, int rows);

/* Whether a row looks like one of them, or comes after some. */
INLINE int may_be_tiny(const struct reduction_work *work, const float *x, const float *dy, dynnorm_type type) {
    return SUBNORMALS_ARE_SLOW && (work->were_tiny || is_tiny_element(dy, type) || is_tiny_element(x, type));
}

/* Computes dx of careful rows at some channels, and the sums over tokens of their group. Where there are no such rows,
 * it takes the sums that are held, but where float has lost them. */
DYNNORM_INTERNAL void CAREFUL_BLOCK(struct reduction_work *work, struct block block);

/* Where dx of a row is computed at some channels, if it does not go straight to where the caller wants it. */
DYNNORM_INTERNAL float *DX_IN_BUFFER(struct reduction_work *work, int row, struct block block);

/* Writes what is to be told of the group's rows: see split_rows.h. */
DYNNORM_INTERNAL void TELL_SPLIT_ROWS(struct reduction_work *work);

/* ---- Rows that are not of floats ---- */

INLINE int has_typed_rows(const struct reduction_work *work) {
    return HAS_TYPES && work->typed;
}

/* Where a row would begin that has its floats in a buffer from some channel on. Nothing need be there. */
INLINE float *floats_before(const float *floats, size_t channels) {
    return (float *)((uintptr_t)floats - channels * sizeof(float));
}

/* Some channels of rows of the group take the place of those that were read before. */
OUTLINED void read_typed_rows(struct reduction_work *work, int first, int rows, struct block channels) {
    const struct typed_place place = {
        work->first_row + (size_t)first, rows, channels, work->typed_ahead, 0, channels.count};
    READ_TYPED_ROWS(work->arguments, &place, work->x_rows + first, work->dy_rows + first, work->dx_rows + first);
    for (int row = first; channels.first && row < first + rows; row++) {
        work->x_rows[row] = floats_before(work->x_rows[row], channels.first);
        work->dy_rows[row] = floats_before(work->dy_rows[row], channels.first);
        work->dx_rows[row] = floats_before(work->dx_rows[row], channels.first);
    }
}

/* So many rows ahead are prefetched if they come from memory. */
INLINE int typed_rows_ahead(const struct reduction_work *work, int rows) {
    return work->arguments->streams ? rows : 0;
}

OUTLINED void write_typed_rows(const struct reduction_work *work, int first, int rows, struct block channels) {
    const struct typed_place place = {work->first_row + (size_t)first, rows, channels, 0, 0, 0};
    float *dx[GROUP];
    for (int row = 0; row < rows; row++)
        dx[row] = work->dx_rows[first + row] + channels.first;
    WRITE_TYPED_ROWS(work->arguments, &place, dx);
}

/* Before a row's channels are looked at, a block whose sums are finished by themselves at most. */
INLINE void read_row_if_typed(struct reduction_work *work, int row, struct block channels) {
    if (has_typed_rows(work) && !work->has_all_floats)
        read_typed_rows(work, row, 1, channels);
}

#endif
