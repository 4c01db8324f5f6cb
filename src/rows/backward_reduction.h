/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Groups of rows in the backward pass of LayerNorm and RMSNorm: see backward_normalization.h.
 */
#ifndef DYNNORM_BACKWARD_REDUCTION_H
#define DYNNORM_BACKWARD_REDUCTION_H

#include "kernel_names.h"
#include "model_marks.h"
#include "operations/backward_statistics.h"
#include "operations/normalization.h"
#include "operations/operation.h"
#include "rows/blocks.h"
#include "rows/floats.h"
#include "rows/split_rows.h"
#include "rows/token_sums.h"
#include "rows/typed_rows.h"
#include "rows/writer.h"

#include <stdint.h>
#include <string.h>

/* The length of an array with a value for each row of a group. There is room for a vector that begins at any of the
 * rows, and every array begins with a cache line: if a vector were stored across two lines, loads from it would wait.
 */
enum { ROWS_IN_VECTORS = 32 };

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
    _Alignas(64) double h[ROWS_IN_VECTORS];
    double hv[ROWS_IN_VECTORS];
    double x[ROWS_IN_VECTORS];
};

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
enum { MOST_HELD_CHANNELS = 1024 };

/* Room for two sums twice, which may begin at any place in a page. */
enum { ROOM_FOR_HELD = 2 * (2 * MOST_HELD_CHANNELS + FLOATS_OF_PAGE) };

/* Sums of a row, or of some of its blocks, finished. */
struct reduction_sums {
    double h; /* only where the mean is taken out, and so is x */
    double hv;
    double x;
};

/* Makes those of a row of the group at some channels, which are whole blocks. */
struct reduction_work;
typedef struct reduction_sums sum_row_function(const struct reduction_work *work, int row, struct block channels);

/* Those of a row whose channels are not all at hand. */
typedef struct reduction_sums special_sum_function(struct reduction_work *work, int row);

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
    int statistics_are_given;
    int is_beyond_caches; /* dx of common pairs is stored past the caches, and x and dy come from memory */
    ptrdiff_t x_ahead;    /* from a row to the one to be prefetched; 0 where none is */
    ptrdiff_t dy_ahead;
    int is_held;      /* dx overwrites dy or x: it waits in the buffers */
    int has_buffers;  /* dx goes to the buffers first */
    size_t first_row; /* of the group */
    int is_first;     /* group of the block of rows: what the sums over tokens were before means nothing */
    int rows;
    int has_residual;           /* one of the rows has one */
    int is_merged;              /* the sums over tokens of both halves are added up, in the first place */
    int sums_hold;              /* what is merged may be delivered */
    unsigned careful;           /* a bit for each row that float cannot hold, and SUMS_MAY_BE_LOST */
    float greatest_weight;      /* the largest abs(w) of the call; less than 0: not known yet */
    const float *x_rows[GROUP]; /* where channel 0 is or, if there are floats of others only, would be */
    const float *dy_rows[GROUP];
    float *dx_rows[GROUP]; /* where dx is written, but for buffers */
    const struct typed_tensors *typed;
    int typed_ahead;    /* from rows that are read to those that are prefetched, or 0 */
    int has_all_floats; /* of typed rows, which then need not be read once more */
    struct sums_of_rows sums_of_rows;
    struct group_constants *constants; /* of the group at hand */
    struct group_constants of_group;
    struct careful_row careful_rows[GROUP];
    struct write_buffer buffers[GROUP];
    float *dweight[2]; /* what is held: sums over up to four rows each */
    float *dbias[2];
    _Alignas(64) float held[ROOM_FOR_HELD];
};

/* Looks at rows [first, first + rows) one by one. Where a row's sums cannot be trusted, or its statistics are not
 * known, its sums are made in double, which gives its constants. */
DYNNORM_INTERNAL void CAREFUL_ROWS(struct reduction_work *work, int first, int rows);

/* Computes dx of careful rows at some channels, and the sums over tokens of their group. Where there are no such rows,
 * it takes the sums that are held, but where float has lost them. */
DYNNORM_INTERNAL void CAREFUL_BLOCK(struct reduction_work *work, struct block block);

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

/* ---- Sums of rows, and their constants ---- */

/* What float can hold: rstd, the products and constants that the sums give, and what they would lose to underflow. */
#define BITS_OF_POWER(exponent) ((uint32_t)(127 + (exponent)) << 23) /* of 2^exponent as a float */
#define LEAST_RSTD BITS_OF_POWER(-40)
#define LEAST_TERM BITS_OF_POWER(-60)
#define LEAST_N_TERM BITS_OF_POWER(-100)
#define SPAN_OF_TERMS (160u << 23)   /* from the bits of each of these to those of 2^160 times it */
#define MOST_SCALED BITS_OF_POWER(4) /* of mean rstd, residual rstd 2^24, and h_term 2^-96 */

/* A sum over the tokens of a group: the products of dy and rstd that it is made of may have lost 2^-150 each. What is
 * multiplied to that, x - mean, is not greater than 2^8 / rstd in up to 65536 channels. So eight terms lose less than a
 * tenth of a rounding of a sum of this size over rstd. The second one is the same for LEAST_RSTD. */
#define LEAST_SUM_OF_PRODUCTS 0x1p-112
#define LEAST_SUM BITS_OF_POWER(-72)

/* residual rstd: what it does to dweight is less than a rounding. */
#define NEGLIGIBLE_RESIDUAL BITS_OF_POWER(-24)

/* The constants of all rows of a group at once. Gives 0 where one of them cannot be trusted. */
INLINE int find_constants(struct reduction_work *work, const struct sums_of_rows *sums, int first, int rows,
                          int is_centered) {
    const float *means = work->arguments->mean + work->first_row + first;
    const float *rstds = work->arguments->rstd + work->first_row + first;
    struct group_constants *constants = work->constants;
    const wide share = wide_set(work->reciprocal);
    vec least = vec_set(0), most = vec_set(0);
#pragma GCC unroll 2
    for (int i = 0; i < GROUP; i += LANES) {
        const vec rstd = vec_load_n(rstds + i, rows - i, vec_set(1));
        const vec mean = is_centered ? vec_load_n(means + i, rows - i, vec_set(0)) : vec_set(0);
        vec_store(constants->rstd + first + i, rstd);
        const wide r = vec_widen(rstd);
        const wide zero = wide_set(0); /* which makes 0 of -0, as the sum of several blocks may */
        wide cov = wide_fma(wide_load(sums->hv + i), share, zero);
        wide h = share, residual = share;
        if (is_centered) {
            h = wide_fma(wide_load(sums->h + i), share, zero);
            residual = wide_sub(wide_fma(wide_load(sums->x + i), share, zero), vec_widen(mean));
            cov = wide_sub(cov, wide_mul(residual, h));
        }
        const wide term = wide_mul(r, cov), n_term = wide_mul(wide_mul(wide_mul(r, r), term), wide_set(-1));
        vec n_terms = wide_narrow(n_term);
        vec_store(constants->n_term + first + i, n_terms);
        const vec terms[3] = {
            vec_bits_minus(vec_abs(rstd), LEAST_RSTD),
            vec_bits_minus(vec_abs(wide_narrow(term)), LEAST_TERM),
            vec_bits_minus(vec_abs(n_terms), LEAST_N_TERM),
        };
        for (int k = 0; k < 3; k++)
            least = vec_max_bits(least, terms[k]);
        if (!is_centered)
            continue;
        vec_store(constants->minus_mean + first + i, vec_mul(mean, vec_set(-1)));
        const wide h_term = wide_mul(wide_add(wide_mul(r, h), wide_mul(residual, n_term)), wide_set(-1));
        vec h_terms = wide_narrow(h_term);
        vec_store(constants->h_term + first + i, h_terms);
        most = vec_max_bits(most, vec_abs(vec_mul(mean, rstd)));
        const vec residuals = wide_narrow(residual), far = vec_abs(wide_narrow(wide_mul(residual, r)));
        work->has_residual |= vec_any_bits_above(far, NEGLIGIBLE_RESIDUAL);
        vec_store(constants->residual + first + i,
                  vec_select_outside(far, 0, NEGLIGIBLE_RESIDUAL, residuals, vec_set(0)));
        most = vec_max_bits(most, vec_mul(far, vec_set(0x1p24f)));
        most = vec_max_bits(most, vec_abs(vec_mul(h_terms, vec_set(0x1p-96f))));
    }
    return !vec_any_bits_above(least, SPAN_OF_TERMS) && !(is_centered && vec_any_bits_above(most, MOST_SCALED));
}

/* A weight that is made up in a buffer is made up for each row. */
INLINE struct reduction_sums sum_row_of(const struct reduction_work *work, int row, struct block channels,
                                        int is_centered) {
    const float *x = work->x_rows[row], *dy = work->dy_rows[row];
    const float mean = is_centered ? load_float(work->arguments->mean + work->first_row + row) : 0;
    const size_t end = channels.first + channels.count;
    struct reduction_sums sums = {0, 0, 0};
    struct lanes_of_row lanes;
    wide x_sum[PARTS];
    begin_lanes_of_row(&lanes, x_sum);
    for (size_t channel = channels.first; channel < end; channel += BLOCK) {
        struct block block = block_at(channel, end);
        const struct reduction_block values = {x + channel, dy + channel, read_block(&work->weight, block), mean};
        add_spans_of_row(&lanes, x_sum, &values, (ptrdiff_t)block.count, unknown_span, is_centered);
        if (!ends_summed_block(block, end))
            continue;
        sums.hv += eight_sum(lanes.hv);
        if (is_centered) {
            sums.h += eight_sum(lanes.h);
            sums.x += eight_sum(wide_fold(x_sum));
        }
        begin_lanes_of_row(&lanes, x_sum);
    }
    return sums;
}

/* This is compiled once for each operation. */
OUTLINED struct reduction_sums sum_row_of_layernorm(const struct reduction_work *work, int row, struct block channels) {
    return sum_row_of(work, row, channels, 1);
}

OUTLINED struct reduction_sums sum_row_of_rmsnorm(const struct reduction_work *work, int row, struct block channels) {
    return sum_row_of(work, row, channels, 0);
}

/* Of a row that is split. */
INLINE struct reduction_sums sums_of_split_block(const double *of_block, int is_centered) {
    return (struct reduction_sums){is_centered ? of_block[SPLIT_H] : 0, of_block[SPLIT_HV],
                                   is_centered ? of_block[SPLIT_SUM_OF_X] : 0};
}

INLINE size_t number_in_split(const struct reduction_work *work, int row) {
    return work->arguments->split_row + work->first_row + (size_t)row;
}

OUTLINED struct reduction_sums sum_split_row(struct reduction_work *work, int row) {
    const int is_centered = work->is_centered;
    struct reduction_sums sums = {0, 0, 0};
    struct split_block block = before_split_blocks();
    while (next_split_block(&block, work->split, number_in_split(work, row), BACKWARD_SPLIT_DOUBLES(is_centered))) {
        const struct reduction_sums more = sums_of_split_block(block.sums, is_centered);
        sums.h += more.h;
        sums.hv += more.hv;
        sums.x += more.x;
    }
    return sums;
}

/* Of a row that is not of floats. */
OUTLINED struct reduction_sums sum_typed_row(struct reduction_work *work, int row) {
    const size_t channels = work->arguments->channels;
    struct reduction_sums sums = {0, 0, 0};
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const struct block block = {first, channels_of_summed_block(first, channels)};
        read_row_if_typed(work, row, block);
        const struct reduction_sums more = work->sum_row(work, row, block);
        sums.h += more.h;
        sums.hv += more.hv;
        sums.x += more.x;
    }
    return sums;
}

/* The sums of rows [first, first + rows) of the group, and their constants. */
INLINE void begin_rows_of(struct reduction_work *work, int first, int rows, size_t channels, int is_centered) {
    struct sums_of_rows *sums = &work->sums_of_rows;
    if (!work->statistics_are_given) {
        CAREFUL_ROWS(work, first, rows);
        return;
    }
    eight_store(sums->hv, eight_set((double)channels)); /* for rows that are missing */
    if (is_centered) {
        eight_store(sums->h, eight_set(0));
        eight_store(sums->x, eight_set(0));
    }
#pragma GCC unroll 1
    for (int i = 0; i < rows; i++) {
        const struct block row = {0, channels};
        const struct reduction_sums of_row = work->special_sum ? work->special_sum(work, first + i)
                                             : is_centered     ? sum_row_of_layernorm(work, first + i, row)
                                                               : sum_row_of_rmsnorm(work, first + i, row);
        sums->hv[i] = of_row.hv;
        if (is_centered) {
            sums->h[i] = of_row.h;
            sums->x[i] = of_row.x;
        }
    }
    if (!find_constants(work, sums, first, rows, is_centered))
        CAREFUL_ROWS(work, first, rows);
}

/* This is compiled once for each operation. */
OUTLINED void begin_rows_of_layernorm(struct reduction_work *work, int first, int rows) {
    begin_rows_of(work, first, rows, work->arguments->channels, 1);
}

OUTLINED void begin_rows_of_rmsnorm(struct reduction_work *work, int first, int rows) {
    begin_rows_of(work, first, rows, work->arguments->channels, 0);
}

INLINE void begin_rows(struct reduction_work *work, int first, int rows, int is_centered) {
    if (is_centered)
        begin_rows_of_layernorm(work, first, rows);
    else
        begin_rows_of_rmsnorm(work, first, rows);
}

/* ---- dx, and sums over tokens ---- */

/* Where some channels of a pair of rows lie. */
struct pair_block {
    const float *weight;
    const float *x[2];
    const float *dy[2];
    float *dx[2];
    float *dweight; /* the sums over tokens of up to four rows, from the first of these channels on */
    float *dbias;
    float *dweight_of_group; /* the same of the first four rows; after the last pair those of all */
    float *dbias_of_group;
    int is_beyond_caches;
    ptrdiff_t x_ahead; /* from these rows to those that are to be prefetched */
    ptrdiff_t dy_ahead;
    ptrdiff_t not_prefetched; /* the line of a channel with one of these bits is not */
};

/* What is known of the pair when compiling. */
struct pair_kind {
    int rows;      /* 1 where the second is missing */
    int is_second; /* of its four rows */
    int is_last;   /* of its eight rows: it merges the sums of both halves */
    int has_residual;
    int is_centered;
    int past_caches; /* dx goes there */
};

/* The constants of a row in all lanes. */
struct gradient_vectors {
    vec minus_mean;
    vec rstd;
    vec n_term;
    vec h_term;
    vec residual;
};

/* The terms of a pair of rows in the sums over tokens. */
struct pair_terms {
    vec dweight;
    vec dbias;
};

/* dx of a pair of rows at one place, and their terms. Both rows are loaded before dx is stored, since a load waits for
 * a store to the same place in another page. */
INLINE void find_pair_terms(struct pair_terms *terms, const struct pair_block *pair,
                            const struct gradient_vectors constants[2], struct place place, struct pair_kind kind) {
    const vec zero = vec_set(0), weight = vec_in_register(load_vector(pair->weight, place, zero));
    vec dx[2] = {zero, zero};
#pragma GCC unroll 2
    for (int i = 0; i < kind.rows; i++) {
        vec v = load_vector(pair->x[i], place, zero), dy = load_vector(pair->dy[i], place, zero);
        if (!kind.is_centered) /* else it may come from memory when the mean is taken out */
            v = vec_in_register(v);
        vec g = vec_mul(dy, constants[i].rstd);
        if (kind.is_centered) {
            v = vec_add(v, constants[i].minus_mean);
            dx[i] = vec_fma(g, weight, vec_fma(v, constants[i].n_term, constants[i].h_term));
            terms->dbias = i ? vec_add(terms->dbias, dy) : dy;
        } else {
            dx[i] = vec_fma(g, weight, vec_mul(v, constants[i].n_term));
        }
        if (kind.has_residual)
            v = vec_sub(v, constants[i].residual);
        terms->dweight = i ? vec_fma(g, v, terms->dweight) : vec_mul(g, v);
    }
#pragma GCC unroll 2
    for (int i = 0; i < kind.rows; i++)
        write_vector(pair->dx[i], place, dx[i], kind.past_caches);
}

/* What the sums over tokens of a group have in common: the greatest bits of those for dweight, less LEAST_SUM, and of
 * those for dbias. */
struct greatest_sums {
    vec dweight;
    vec dbias;
};

INLINE void add_greatest_dweight(struct greatest_sums *greatest, vec dweight) {
    greatest->dweight = vec_max_bits(greatest->dweight, vec_bits_minus(vec_abs(dweight), LEAST_SUM));
}

INLINE int sums_hold(const struct greatest_sums *greatest, int is_centered) {
    return !vec_any_bits_above(greatest->dweight, BITS_OF_POWER(128) - 1 - LEAST_SUM) &&
           !(is_centered && vec_any_bits_above(greatest->dbias, BITS_OF_POWER(128) - 1));
}

/* Stores terms of the sums over tokens at one place, or adds them to what is there; also to what the first half has
 * left, if the pair is the last one. */
INLINE vec add_terms(float *of_half, float *of_group, vec terms, struct pair_kind kind) {
    if (kind.is_second)
        terms = vec_add(vec_load(of_half), terms);
    if (kind.is_last)
        terms = vec_add(vec_load(of_group), terms);
    vec_store(kind.is_last ? of_group : of_half, terms);
    return terms;
}

/* dx of a pair of rows at one place, and its terms of the sums over tokens. */
INLINE void apply_step(struct greatest_sums *greatest, const struct pair_block *pair,
                       const struct gradient_vectors constants[2], struct place place, struct pair_kind kind) {
    const ptrdiff_t channel = place.channel;
    struct pair_terms terms;
    find_pair_terms(&terms, pair, constants, place, kind);
    terms.dweight = add_terms(pair->dweight + channel, pair->dweight_of_group + channel, terms.dweight, kind);
    if (kind.is_centered)
        terms.dbias = add_terms(pair->dbias + channel, pair->dbias_of_group + channel, terms.dbias, kind);
    if (!kind.is_last)
        return;
    add_greatest_dweight(greatest, place.whole ? terms.dweight
                                               : vec_load_n(pair->dweight_of_group + channel, place.count, vec_set(1)));
    if (kind.is_centered)
        greatest->dbias = vec_max_bits(greatest->dbias, vec_abs(terms.dbias));
}

INLINE void set_gradient_vectors(struct gradient_vectors *vectors, const struct group_constants *constants, int row) {
    vectors->minus_mean = vec_set(constants->minus_mean[row]);
    vectors->rstd = vec_set(constants->rstd[row]);
    vectors->n_term = vec_set(constants->n_term[row]);
    vectors->h_term = vec_set(constants->h_term[row]);
    vectors->residual = vec_set(constants->residual[row]);
}

/* Whether rows that come from memory are prefetched while dx of the group before is computed. AVX2 leaves that to the
 * CPU, which notices the rows when their sums are made: on a Zen 3 this takes 8 to 25 percent less time. dx is then
 * computed for more channels of a row at a time: see most_of_block in backward_normalization.h. */
enum { PREFETCHES_ROWS = LANES != 8 };

/* Of long rows one line in four is prefetched, and the CPU fetches those in between by itself. It has few buffers for
 * lines that a program asks for, and waits while they are all in use, as they also are by dx on its way to memory. A
 * shorter row ends before the CPU has noticed it. So each of its lines is prefetched. */
enum { PREFETCHED_APART = 4 * FLOATS_OF_LINE, MOST_FETCHED_EVENLY = 512 };

/* Two vectors of channels are done at once, be they long or short. */
enum { LINES_AT_ONCE = (int)LANES == (int)FLOATS_OF_LINE ? 2 : 1, VECTORS_AT_ONCE = 2 };

INLINE void prefetch_ahead(const struct pair_block *pair, ptrdiff_t channel, int rows) {
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(pair->x[i] + pair->x_ahead + channel, 0, 2);
        __builtin_prefetch(pair->dy[i] + pair->dy_ahead + channel, 0, 2);
    }
}

/* Gives 0 where the sums over tokens are merged, and float may have lost one of them. */
INLINE int apply_pair(const struct pair_block *pair, const struct group_constants *of_group, int first, size_t count,
                      struct pair_kind kind) {
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    const struct pair_block block = *pair;
    const ptrdiff_t end = (ptrdiff_t)count;
    struct gradient_vectors constants[2];
#pragma GCC unroll 2
    for (int i = 0; i < kind.rows; i++)
        set_gradient_vectors(&constants[i], of_group, first + i);
    ptrdiff_t i = 0;
    /* dx of a pair that is not common is stored as usual, which takes less code; but not where this loop prefetches. */
    if (block.is_beyond_caches && kind.rows == 2 && (PREFETCHES_ROWS || !kind.has_residual)) {
        struct pair_kind beyond = kind;
        beyond.past_caches = VEC_CAN_STREAM;
        for (; i + FLOATS_OF_LINE <= end; i += FLOATS_OF_LINE) {
            if (PREFETCHES_ROWS && (i & block.not_prefetched) == 0)
                prefetch_ahead(&block, i, kind.rows);
            for (ptrdiff_t k = 0; k < FLOATS_OF_LINE; k += LANES)
                apply_step(&greatest, &block, constants, (struct place){i + k, LANES, 1}, beyond);
        }
    }
#pragma GCC unroll LINES_AT_ONCE
    for (; i + FLOATS_OF_LINE <= end; i += FLOATS_OF_LINE) {
#pragma GCC unroll 2
        for (int row = 0; row < kind.rows; row++)
            fetch_to_write(block.dx[row] + i, 0);
        if (!kind.is_second) { /* where these sums are written, but not read; they have left the nearest cache */
            fetch_to_write(block.dweight + i, 0);
            if (kind.is_centered)
                fetch_to_write(block.dbias + i, 0);
        }
#pragma GCC unroll VECTORS_AT_ONCE
        for (ptrdiff_t k = 0; k < FLOATS_OF_LINE; k += LANES)
            apply_step(&greatest, &block, constants, (struct place){i + k, LANES, 1}, kind);
        if (kind.rows == 2 && !kind.has_residual)
            MODEL_PASS("dx", 0, 2 * FLOATS_OF_LINE);
    }
#pragma GCC unroll 1
    for (; (int)LANES < (int)FLOATS_OF_LINE && i + LANES <= end; i += LANES)
        apply_step(&greatest, &block, constants, (struct place){i, LANES, 1}, kind);
    if (LANES > 1 && i < end)
        apply_step(&greatest, &block, constants, (struct place){i, end - i, 0}, kind);
    return !kind.is_last || sums_hold(&greatest, kind.is_centered);
}

/* dx that is not asked for goes to a buffer, too. */
INLINE float *dx_to_write(struct reduction_work *work, int row, struct block block) {
    if (!work->has_buffers)
        return work->dx_rows[row] + block.first;
    if (work->is_held || !work->dx.rows.data)
        return work->buffers[row].floats;
    return block_to_write(&work->dx, work->first_row + (size_t)row, block, &work->buffers[row]);
}

/* The pairs of rows [first, end) of the group, at some channels. A pair that lacks its second row, or has a residual,
 * is not common. */
INLINE void apply_rows_of(struct reduction_work *work, struct block block, int first, int end, int is_centered) {
    struct pair_block pair;
    pair.weight = read_block(&work->weight, block);
    pair.is_beyond_caches = work->is_beyond_caches;
    pair.x_ahead = work->x_ahead;
    pair.dy_ahead = work->dy_ahead;
    pair.not_prefetched = work->arguments->channels <= MOST_FETCHED_EVENLY ? 0 : PREFETCHED_APART - 1;
    pair.dweight_of_group = work->dweight[0];
    pair.dbias_of_group = work->dbias[0];
#pragma GCC unroll 1
    for (int row = first; row < end; row += 2) {
        const int rows = end - row < 2 ? 1 : 2, is_second = row % 4 / 2;
        for (int i = 0; i < rows; i++) {
            pair.x[i] = work->x_rows[row + i] + block.first;
            pair.dy[i] = work->dy_rows[row + i] + block.first;
            pair.dx[i] = dx_to_write(work, row + i, block);
        }
        pair.dweight = work->dweight[row / HALF];
        pair.dbias = work->dbias[row / HALF];
        if (rows == 1) {
            apply_pair(&pair, work->constants, row, block.count,
                       (struct pair_kind){1, is_second, 0, is_centered, is_centered, 0});
        } else if (is_centered && work->has_residual) {
            apply_pair(&pair, work->constants, row, block.count, (struct pair_kind){2, is_second, 0, 1, 1, 0});
        } else if (row == GROUP - 2) {
            work->is_merged = 1;
            work->sums_hold =
                apply_pair(&pair, work->constants, row, block.count, (struct pair_kind){2, 1, 1, 0, is_centered, 0});
        } else if (is_second) {
            apply_pair(&pair, work->constants, row, block.count, (struct pair_kind){2, 1, 0, 0, is_centered, 0});
        } else {
            apply_pair(&pair, work->constants, row, block.count, (struct pair_kind){2, 0, 0, 0, is_centered, 0});
        }
    }
}

/* This is compiled once for each operation, too. */
OUTLINED void apply_rows_of_layernorm(struct reduction_work *work, struct block block, int first, int end) {
    apply_rows_of(work, block, first, end, 1);
}

OUTLINED void apply_rows_of_rmsnorm(struct reduction_work *work, struct block block, int first, int end) {
    apply_rows_of(work, block, first, end, 0);
}

INLINE void apply_rows(struct reduction_work *work, struct block block, int first, int end, int is_centered) {
    if (is_centered)
        apply_rows_of_layernorm(work, block, first, end);
    else
        apply_rows_of_rmsnorm(work, block, first, end);
}

/* Chooses where the sums over tokens are held: neither near x, whichever block of channels is at hand, nor near each
 * other. */
INLINE void place_held_sums(struct reduction_work *work, const float *x) {
    float *const dweight = work->held + place_behind(FLOATS_OF_PAGE * 3 / 8, x, work->held);
    float *const dbias = work->held + ROOM_FOR_HELD / 2 + place_behind(FLOATS_OF_PAGE * 5 / 8, x, work->held);
    for (int half = 0; half < 2; half++) {
        work->dweight[half] = dweight + half * MOST_HELD_CHANNELS;
        work->dbias[half] = dbias + half * MOST_HELD_CHANNELS;
    }
}

/* Adds the sum over tokens of a group at a place in the row to that of the block of rows, or writes the gradient. */
INLINE void deliver_sum(double *sums, const struct token_gradient *gradient, struct place place, wide sum,
                        int is_first) {
    if (!gradient) {
        add_to_partial_sum(sums, place, sum, is_first);
        return;
    }
    if (!is_first)
        sum = wide_add(wide_load(sums + place.channel), sum);
    finish_sum(gradient, place, sum);
}

/* The gradients that are asked for, 0: dweight, 1: dbias. */
INLINE int delivers(const struct reduction_work *work, int which) {
    return work->gradients ? work->gradients[which].values != NULL
                           : (which ? work->sums.dbias : work->sums.dweight) != NULL;
}

/* The same with the sums of the group at hand at some channels, which are all in the first place. */
OUTLINED void deliver_group_sums(const struct reduction_work *work, struct block block) {
    const int is_first = work->is_first;
    for (int which = 0; which < 2; which++) {
        const float *const of_group = which ? work->dbias[0] : work->dweight[0];
        double *const sums = which ? work->sums.dbias : work->sums.dweight;
        const struct token_gradient *const gradient = work->gradients ? &work->gradients[which] : NULL;
        if (!delivers(work, which))
            continue;
        /* The sums in double have room for whole vectors. */
        const size_t whole = gradient ? block.count / LANES * LANES : block.count;
        for (size_t i = 0; i < whole; i += LANES)
            deliver_sum(sums, gradient, (struct place){(ptrdiff_t)(block.first + i), LANES, 1},
                        wide_load_floats(of_group + i), is_first);
        if (whole < block.count)
            deliver_sum(sums, gradient,
                        (struct place){(ptrdiff_t)(block.first + whole), (ptrdiff_t)(block.count - whole), 0},
                        wide_load_floats(of_group + whole), is_first);
    }
}

/* Adds up the sums of both halves where that is not done yet. */
INLINE int merge_halves_of(struct reduction_work *work, struct block block, int is_centered) {
    float *const dweight[2] = {work->dweight[0], work->dweight[1]}, *const dbias[2] = {work->dbias[0], work->dbias[1]};
    const int has_two = work->rows > HALF;
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    for (size_t i = 0; i < block.count; i += LANES) {
        vec sum = vec_load(dweight[0] + i);
        if (has_two)
            vec_store(dweight[0] + i, sum = vec_add(sum, vec_load(dweight[1] + i)));
        if (i + LANES > block.count)
            sum = vec_load_n(dweight[0] + i, (ptrdiff_t)(block.count - i), vec_set(1));
        add_greatest_dweight(&greatest, sum);
        if (!is_centered)
            continue;
        sum = vec_load(dbias[0] + i);
        if (has_two)
            vec_store(dbias[0] + i, sum = vec_add(sum, vec_load(dbias[1] + i)));
        greatest.dbias = vec_max_bits(greatest.dbias, vec_abs(sum));
    }
    return sums_hold(&greatest, is_centered);
}

OUTLINED int merge_halves_of_layernorm(struct reduction_work *work, struct block block) {
    return merge_halves_of(work, block, 1);
}

OUTLINED int merge_halves_of_rmsnorm(struct reduction_work *work, struct block block) {
    return merge_halves_of(work, block, 0);
}

/* Whether rows [first, end) of the group are all done in double. */
INLINE int are_in_double(const struct reduction_work *work, int first, int end) {
    return !(~work->careful >> first & ((1u << (end - first)) - 1));
}

/* Delivers the sums of a group, which then are in the first place. Gives 0, and has not delivered anything, where float
 * may have lost one of them. */
INLINE int deliver_held(struct reduction_work *work, struct block block, int is_centered) {
    if (are_in_double(work, 0, work->rows)) /* nothing is held */
        return 0;
    const int hold = work->is_merged ? work->sums_hold
                     : is_centered   ? merge_halves_of_layernorm(work, block)
                                     : merge_halves_of_rmsnorm(work, block);
    work->is_merged = 0;
    if (work->careful || !hold)
        return 0;
    deliver_group_sums(work, block);
    return 1;
}

/* Where dx of a row goes. What is held goes there once it is known that the inputs are not needed again. */
OUTLINED void end_block_of_rows(struct reduction_work *work, struct block block) {
    for (int i = 0; i < work->rows; i++) {
        size_t row = work->first_row + (size_t)i;
        if (!work->dx.rows.data)
            continue;
        if (work->is_held)
            memcpy(row_of(&work->dx.rows, row) + block.first, work->buffers[i].floats, block.count * sizeof(float));
        else
            block_is_written(&work->dx, row, block, &work->buffers[i]);
    }
}

/* A group whose rows are short, or very long: all sums first, then block by block of channels. */
INLINE void backward_group(struct reduction_work *work, size_t channels, size_t most_of_block, int is_centered) {
    begin_rows(work, 0, work->rows, is_centered);
    for (size_t channel = 0; channel < channels; channel += most_of_block) {
        const size_t left = channels - channel;
        const struct block block = {channel, left < most_of_block ? left : most_of_block};
        if (!are_in_double(work, 0, work->rows))
            apply_rows(work, block, 0, work->rows, is_centered);
        if (!deliver_held(work, block, is_centered))
            CAREFUL_BLOCK(work, block);
        if (work->has_buffers)
            end_block_of_rows(work, block);
    }
}

/* A group by pairs of rows, whose x and dy then are still in the nearest cache when dx is computed. A loop that also
 * sums the next pair is slower: the rows of two pairs, and what is held, are more than that cache has room for. */
INLINE void backward_by_pairs(struct reduction_work *work, size_t channels, int is_centered) {
    const struct block row = {0, channels};
    for (int first = 0; first < work->rows; first += 2) {
        int end = work->rows < first + 2 ? work->rows : first + 2;
        begin_rows(work, first, end - first, is_centered);
        if (!are_in_double(work, first, end))
            apply_rows(work, row, first, end, is_centered);
    }
    if (!deliver_held(work, row, is_centered))
        CAREFUL_BLOCK(work, row);
}

/* The same of rows that are not of floats. Gives 0 where the group has careful rows or sums that float may have lost,
 * for which there would have to be floats of all rows: it is to be done again then. */
INLINE int typed_pairs(struct reduction_work *work, struct block row, int is_centered) {
    work->has_all_floats = 1;
    work->typed_ahead = typed_rows_ahead(work, 2);
    for (int first = 0; first < work->rows; first += 2) {
        const int rows = work->rows < first + 2 ? 1 : 2;
        read_typed_rows(work, first, rows, row);
        for (int i = first; work->typed->x && i < first + rows; i++) /* lest dx takes room in the cache, too */
            work->dx_rows[i] = floats_before(work->x_rows[i], 0);
        begin_rows(work, first, rows, is_centered);
        if (work->careful)
            return 0;
        apply_rows(work, row, first, first + rows, is_centered);
        write_typed_rows(work, first, rows, row);
    }
    return deliver_held(work, row, is_centered);
}

/* A group of rows that are not of floats. Where it cannot be done by pairs, the rows of more than one block of channels
 * are read twice, which takes less time than floats of a whole group would outside of the nearest cache. */
OUTLINED void backward_typed_group(struct reduction_work *work, int by_pairs) {
    const size_t channels = work->arguments->channels;
    const int is_centered = work->is_centered;
    if (by_pairs && typed_pairs(work, (struct block){0, channels}, is_centered))
        return;
    work->careful = 0;
    work->has_residual = 0;
    work->has_all_floats = channels <= BLOCK;
    work->typed_ahead = typed_rows_ahead(work, work->has_all_floats ? GROUP : 1);
    if (work->has_all_floats)
        read_typed_rows(work, 0, work->rows, (struct block){0, channels});
    begin_rows(work, 0, work->rows, is_centered);
    work->typed_ahead = 0; /* to have the next group fetched meanwhile takes more time than it saves */
    for (size_t channel = 0; channel < channels; channel += BLOCK) {
        const struct block block = block_at(channel, channels);
        if (!work->has_all_floats)
            read_typed_rows(work, 0, work->rows, block);
        if (!are_in_double(work, 0, work->rows))
            apply_rows(work, block, 0, work->rows, is_centered);
        if (!deliver_held(work, block, is_centered))
            CAREFUL_BLOCK(work, block);
        write_typed_rows(work, 0, work->rows, block);
    }
}

/* The lanes of vectors that stand for no row of a group. */
INLINE void begin_missing_rows(struct reduction_work *work) {
    for (int i = GROUP; i < LANES; i++) {
        work->sums_of_rows.hv[i] = (double)work->arguments->channels;
        work->sums_of_rows.h[i] = work->sums_of_rows.x[i] = 0;
    }
}

/* Typed rows are found when they are read. */
OUTLINED void find_rows(struct reduction_work *work) {
    if (has_typed_rows(work))
        return;
    const int are_even = !work->x.tensor && !work->dy.tensor && !work->has_buffers && !work->dx.rows.tensor;
    if (are_even) {
        const float *x = row_of(&work->x, work->first_row), *dy = row_of(&work->dy, work->first_row);
        float *dx = row_of(&work->dx.rows, work->first_row);
        const size_t x_stride = work->x.stride, dy_stride = work->dy.stride, dx_stride = work->dx.rows.stride;
        const int rows = work->rows;
        for (int i = 0; i < rows; i++) {
            work->x_rows[i] = x + (size_t)i * x_stride;
            work->dy_rows[i] = dy + (size_t)i * dy_stride;
            work->dx_rows[i] = dx + (size_t)i * dx_stride;
        }
        return;
    }
    for (int i = 0; i < work->rows; i++) {
        const size_t row = work->first_row + (size_t)i;
        work->x_rows[i] = row_of(&work->x, row);
        work->dy_rows[i] = row_of(&work->dy, row);
        work->dx_rows[i] = work->has_buffers ? NULL : row_of(&work->dx.rows, row);
    }
}

#endif
