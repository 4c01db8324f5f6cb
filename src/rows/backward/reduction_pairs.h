/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm: dx of pairs of rows whose constants are known, and their terms of the
 * sums over tokens. See backward/normalization.h.
 */
#ifndef DYNNORM_BACKWARD_REDUCTION_PAIRS_H
#define DYNNORM_BACKWARD_REDUCTION_PAIRS_H

#include "model_marks.h"
#include "rows/backward/reduction_sums.h"
#include "rows/floats.h"

#include <string.h>

/* Whether something may be added to dx of floats while it is computed. Plain C adds it later, which takes less code. */
enum { ADDS_DSUM = HAS_TYPES && LANES > 1 };

/* What is known of the pair when compiling. */
struct pair_kind {
    int rows;      /* 1 where the second is missing */
    int is_second; /* of its four rows */
    int is_last;   /* of its eight rows: it merges the sums of both halves */
    int has_residual;
    int is_centered;
    int past_caches;   /* dx goes there */
    dynnorm_type type; /* of x, dy, dx and dsum */
    int may_have_dsum; /* something may be added to dx */
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

/* dx of a row of a pair at one place. Its terms become those of the pair or, if it is the second row, are added to
 * them. */
INLINE vec find_row_terms(struct pair_terms *terms, const float *x, const float *dy, vec weight,
                          const struct gradient_vectors *constants, struct place place, int is_second_row,
                          const struct pair_kind *kind) {
    vec v = load_elements(x, place, kind->type), d = load_elements(dy, place, kind->type), dx;
    if (!kind->is_centered) /* else it may come from memory when the mean is taken out */
        v = vec_in_register(v);
    vec g = vec_mul(d, constants->rstd);
    if (kind->is_centered) {
        v = vec_add(v, constants->minus_mean);
        dx = vec_fma(g, weight, vec_fma(v, constants->n_term, constants->h_term));
        terms->dbias = is_second_row ? vec_add(terms->dbias, d) : d;
    } else {
        dx = vec_fma(g, weight, vec_mul(v, constants->n_term));
    }
    if (kind->has_residual)
        v = vec_sub(v, constants->residual);
    terms->dweight = is_second_row ? vec_fma(g, v, terms->dweight) : vec_mul(g, v);
    return dx;
}

/* dx of a pair of rows at one place, and their terms. */
INLINE void find_pair_terms(struct pair_terms *terms, vec dx[2], const struct pair_block *pair,
                            const struct gradient_vectors constants[2], struct place place, struct pair_kind kind) {
    const vec zero = vec_set(0);
    vec weight = load_vector(pair->weight, place, zero);
    if (LANES != 8) /* AVX2 has too few registers to keep it for the second row */
        weight = vec_in_register(weight);
#pragma GCC unroll 2
    for (int i = 0; i < kind.rows; i++)
        dx[i] = find_row_terms(terms, pair->x[i], pair->dy[i], weight, &constants[i], place, i, &kind);
}

/* Finds the same, and stores dx, which is of floats. Both rows are loaded before that, since a load waits for a store
 * to the same place in another page. */
INLINE void write_pair(struct pair_terms *terms, const struct pair_block *pair,
                       const struct gradient_vectors constants[2], struct place place, struct pair_kind kind) {
    vec dx[2];
    find_pair_terms(terms, dx, pair, constants, place, kind);
    if (kind.may_have_dsum && pair->dsum[0])
#pragma GCC unroll 2
        for (int i = 0; i < kind.rows; i++)
            dx[i] = vec_add(dx[i], load_vector(pair->dsum[i], place, vec_set(0)));
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

/* Gives 0 if one is not finite, or one for dweight is too small. So 0 and -0 are, which are left to doubles. Where one
 * for dbias is -0, so is all of dy, and that for dweight is one of these. */
INLINE int sums_hold(const struct greatest_sums *greatest, int is_centered) {
    vec bits = greatest->dweight;
    if (is_centered) /* a small sum for dbias counts as LEAST_SUM, so that one test does for both */
        bits =
            vec_max_bits(bits, vec_bits_minus(vec_max_bits(greatest->dbias, vec_set(LEAST_SUM_AS_FLOAT)), LEAST_SUM));
    return !vec_any_bits_above(bits, BITS_OF_POWER(128) - 1 - LEAST_SUM);
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

/* Adds the terms of a pair at one place to those that are held, or begins to hold them. */
INLINE void hold_terms(struct greatest_sums *greatest, const struct pair_block *pair, struct pair_terms terms,
                       struct place place, struct pair_kind kind) {
    const ptrdiff_t channel = place.channel;
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

/* dx of a pair of rows at one place, and its terms of the sums over tokens. */
INLINE void apply_step(struct greatest_sums *greatest, const struct pair_block *pair,
                       const struct gradient_vectors constants[2], struct place place, struct pair_kind kind) {
    struct pair_terms terms;
    write_pair(&terms, pair, constants, place, kind);
    hold_terms(greatest, pair, terms, place, kind);
}

INLINE void set_gradient_vectors(struct gradient_vectors *vectors, const struct group_constants *constants, int row) {
    vectors->minus_mean = vec_set(constants->minus_mean[row]);
    vectors->rstd = vec_set(constants->rstd[row]);
    vectors->n_term = vec_set(constants->n_term[row]);
    vectors->h_term = vec_set(constants->h_term[row]);
    vectors->residual = vec_set(constants->residual[row]);
}

/* Of a common pair so many cache lines are done at once, and of each line so many vectors. With four lines instead of
 * two, rows of 1536 to 4096 channels took 0.94 to 1.0 times as long on a Zen 5. */
enum { LINES_AT_ONCE = (int)LANES == (int)FLOATS_OF_LINE ? 4 : 1, VECTORS_AT_ONCE = 2 };

INLINE void prefetch_ahead(const struct pair_block *pair, ptrdiff_t channel, int rows) {
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(pair->x[i] + pair->x_ahead + channel, 0, 2);
        __builtin_prefetch(pair->dy[i] + pair->dy_ahead + channel, 0, 2);
    }
}

/* dx of a common pair, and its sums over tokens where they are written but not read, and have left the nearest cache.
 */
INLINE void fetch_to_write_pair(const struct pair_block *pair, ptrdiff_t channel, struct pair_kind kind) {
    fetch_to_write(pair->dx[0] + channel, 0);
    fetch_to_write(pair->dx[1] + channel, 0);
    if (kind.is_second)
        return;
    fetch_to_write(pair->dweight + channel, 0);
    if (kind.is_centered)
        fetch_to_write(pair->dbias + channel, 0);
}

INLINE int is_common_pair(struct pair_kind kind) {
    return kind.rows == 2 && !kind.has_residual && !kind.may_have_dsum;
}

/* dx of a pair of rows at a cache line's channels. */
INLINE void apply_line(struct greatest_sums *greatest, const struct pair_block *pair,
                       const struct gradient_vectors constants[2], ptrdiff_t channel, struct pair_kind kind) {
    if (MAY_FETCH_WHAT_IS_WRITTEN && is_common_pair(kind) && pair->fetches_to_write)
        fetch_to_write_pair(pair, channel, kind);
#pragma GCC unroll VECTORS_AT_ONCE
    for (ptrdiff_t k = 0; k < FLOATS_OF_LINE; k += LANES)
        apply_step(greatest, pair, constants, (struct place){channel + k, LANES, 1}, kind);
    if (is_common_pair(kind))
        MODEL_PASS("dx", 0, 2 * FLOATS_OF_LINE);
}

/* The buffer is not where loads from x would wait for what was just stored there: see place_held_sums. */
INLINE void begin_collecting(struct reduction_work *work, const float *x) {
    struct collected *collected = &work->collected;
    collected->floats = collected->room + place_behind(FLOATS_OF_PAGE / 4, x, collected->room);
    collected->held = 0;
}

/* What waits goes where it belongs, before anything else is written there. */
OUTLINED void end_collecting(struct reduction_work *work) {
    struct collected *collected = &work->collected;
    if (VEC_CAN_STREAM && work->collects && collected->held) {
        memcpy(collected->next - collected->held, collected->floats, collected->held * sizeof(float));
        collected->held = 0;
    }
}

/* Where dx of a pair is to be computed, one row behind the other. */
INLINE float *collect_pair(struct reduction_work *work, int row) {
    if (work->collected.held && work->collected.next != work->dx_rows[row])
        end_collecting(work);
    return work->collected.floats + work->collected.held;
}

/* dx of a pair has been computed there. */
INLINE void pair_is_collected(struct reduction_work *work, int row, size_t floats) {
    struct collected *collected = &work->collected;
    float *const to = work->dx_rows[row];
    collected->held = STREAM_BUFFER(to - collected->held, collected->floats, collected->held + floats, 0);
    collected->next = to + floats;
}

/* dx of a pair of rows from the given one on, and its sums over tokens. Where these are merged, it is noted whether
 * float has lost one of them. */
INLINE void apply_pair(struct reduction_work *work, const struct pair_block *pair, int row, size_t count,
                       struct pair_kind kind) {
    struct greatest_sums greatest = {vec_set(0), vec_set(0)};
    const struct pair_block block = *pair;
    const ptrdiff_t end = (ptrdiff_t)count;
    const int is_common = is_common_pair(kind);
    struct gradient_vectors constants[2];
#pragma GCC unroll 2
    for (int i = 0; i < kind.rows; i++)
        set_gradient_vectors(&constants[i], work->constants, row + i);
    ptrdiff_t i = 0;
    /* dx of a pair that is not common is stored as usual, which takes less code; but not where this loop prefetches. */
    if (LANES > 1 && block.is_beyond_caches && kind.rows == 2 && (PREFETCHES_ROWS || is_common || kind.may_have_dsum)) {
        struct pair_kind beyond = kind;
        beyond.past_caches = VEC_CAN_STREAM;
        for (; i + FLOATS_OF_LINE <= end; i += FLOATS_OF_LINE) {
            if (PREFETCHES_ROWS && block.x_ahead)
                prefetch_ahead(&block, i, kind.rows);
            for (ptrdiff_t k = 0; k < FLOATS_OF_LINE; k += LANES)
                apply_step(&greatest, &block, constants, (struct place){i + k, LANES, 1}, beyond);
        }
    }
    const int lines = is_common ? LINES_AT_ONCE : 1;
    for (; i + lines * FLOATS_OF_LINE <= end; i += lines * FLOATS_OF_LINE)
#pragma GCC unroll LINES_AT_ONCE
        for (int line = 0; line < lines; line++)
            apply_line(&greatest, &block, constants, i + line * FLOATS_OF_LINE, kind);
    for (; lines > 1 && i + FLOATS_OF_LINE <= end; i += FLOATS_OF_LINE)
        apply_line(&greatest, &block, constants, i, kind);
#pragma GCC unroll 1
    for (; (int)LANES < (int)FLOATS_OF_LINE && i + LANES <= end; i += LANES)
        apply_step(&greatest, &block, constants, (struct place){i, LANES, 1}, kind);
    if (LANES > 1 && i < end)
        apply_step(&greatest, &block, constants, (struct place){i, end - i, 0}, kind);
    if (kind.is_last) {
        work->is_merged = 1;
        work->sums_hold = sums_hold(&greatest, kind.is_centered);
    }
}

INLINE float *dx_to_write(struct reduction_work *work, int row, struct block block) {
    return work->has_buffers ? DX_IN_BUFFER(work, row, block) : work->dx_rows[row] + block.first;
}

/* A function for one kind of pair of an operation. */
#define APPLY_PAIR(name, rows, is_second, is_last, may_be_rare, is_centered)                                           \
    OUTLINED void name(struct reduction_work *work, const struct pair_block *pair, int row, size_t count) {            \
        apply_pair(work, pair, row, count,                                                                             \
                   (struct pair_kind){rows, is_second, is_last, may_be_rare && is_centered, is_centered, 0,            \
                                      DYNNORM_F32, may_be_rare && ADDS_DSUM});                                         \
    }

/* The functions of an operation: for common pairs, the first and the second of each half, and the last of a group; for
 * pairs that have a residual, or something that is added to dx; and for a row without a second one. */
#define APPLY_PAIRS(operation, is_centered)                                                                            \
    APPLY_PAIR(apply_first_pair_of_##operation, 2, 0, 0, 0, is_centered)                                               \
    APPLY_PAIR(apply_second_pair_of_##operation, 2, 1, 0, 0, is_centered)                                              \
    APPLY_PAIR(apply_last_pair_of_##operation, 2, 1, 1, 0, is_centered)                                                \
    APPLY_PAIR(apply_any_pair_of_##operation, 2, row % HALF / 2, 0, 1, is_centered)                                    \
    APPLY_PAIR(apply_row_of_##operation, 1, row % HALF / 2, 0, 1, is_centered)                                         \
    INLINE void apply_common_pair_of_##operation(struct reduction_work *work, const struct pair_block *pair, int row,  \
                                                 size_t count) {                                                       \
        if (row == GROUP - 2)                                                                                          \
            apply_last_pair_of_##operation(work, pair, row, count);                                                    \
        else if (row % HALF)                                                                                           \
            apply_second_pair_of_##operation(work, pair, row, count);                                                  \
        else                                                                                                           \
            apply_first_pair_of_##operation(work, pair, row, count);                                                   \
    }                                                                                                                  \
    INLINE void apply_pair_of_##operation(struct reduction_work *work, const struct pair_block *pair, int row,         \
                                          int rows, size_t count) {                                                    \
        if (rows == 1)                                                                                                 \
            apply_row_of_##operation(work, pair, row, count);                                                          \
        else if ((ADDS_DSUM && pair->dsum[0]) || (is_centered && work->has_residual))                                  \
            apply_any_pair_of_##operation(work, pair, row, count);                                                     \
        else                                                                                                           \
            apply_common_pair_of_##operation(work, pair, row, count);                                                  \
    }

APPLY_PAIRS(layernorm, 1)
APPLY_PAIRS(rmsnorm, 0)

/* The pairs of rows [first, end) of the group, at some channels. */
OUTLINED void apply_rows(struct reduction_work *work, struct block block, int first, int end) {
    struct pair_block pair;
    pair.weight = read_block(&work->weight, block);
    pair.is_beyond_caches = work->is_beyond_caches && !work->collects;
    pair.fetches_to_write = work->arguments->fetches_to_write;
    pair.x_ahead = work->x_ahead;
    pair.dy_ahead = work->dy_ahead;
    pair.dweight_of_group = work->dweight[0];
    pair.dbias_of_group = work->dbias[0];
    pair.dsum[0] = NULL;
#pragma GCC unroll 1
    for (int row = first; row < end; row += 2) {
        const int rows = end - row < 2 ? 1 : 2;
        const int at[2] = {row, row + rows - 1}; /* the first row stands for a second one that is missing */
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            pair.x[i] = work->x_rows[at[i]] + block.first;
            pair.dy[i] = work->dy_rows[at[i]] + block.first;
            pair.dx[i] = dx_to_write(work, at[i], block);
            if (ADDS_DSUM && work->adds_dsum)
                pair.dsum[i] = work->dsum_rows[at[i]] + block.first;
        }
        if (VEC_CAN_STREAM && work->collects) {
            pair.dx[0] = collect_pair(work, row);
            pair.dx[1] = pair.dx[0] + block.count;
        }
        pair.dweight = work->dweight[row / HALF];
        pair.dbias = work->dbias[row / HALF];
        if (work->is_centered)
            apply_pair_of_layernorm(work, &pair, row, rows, block.count);
        else
            apply_pair_of_rmsnorm(work, &pair, row, rows, block.count);
        if (VEC_CAN_STREAM && work->collects)
            pair_is_collected(work, row, (size_t)rows * block.count);
    }
}

#endif
