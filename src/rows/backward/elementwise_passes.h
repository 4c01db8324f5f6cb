/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of elementwise operations: the passes over the rows of a group. See backward/elementwise.h.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_PASSES_H
#define DYNNORM_BACKWARD_ELEMENTWISE_PASSES_H

#include "model_marks.h"
#include "rows/backward/elementwise_block.h"
#include "rows/blocks.h"

/* ---- Some rows of a group ---- */

/* Where a vector is half of a cache line, lines of four rows that lie a multiple of a page apart would leave the
 * nearest cache before their other half is read. For two rows there are enough registers to keep the pointers in them.
 */
enum { BY_PAIRS = LANES == 8, ROWS_OF_HALF = GROUP / 2, ROWS_OF_PASS = BY_PAIRS ? 2 : 4, HELD_SUMS = BY_PAIRS ? 2 : 1 };

/* A block of rows that are read and written where they lie has up to so many channels: with AVX2, where it was
 * measured, longer blocks pay, which have less to begin with. */
enum { LONG_BLOCK = BY_PAIRS ? 4 * BLOCK : BLOCK };

/* Which of the three sums over a group's rows. */
enum kind_of_sum { OF_DWEIGHT, OF_DBIAS, OF_PARAMETER, KINDS_OF_SUM };

/* Sums of a group's rows: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). The last pass adds two sets of them to its own:
 * the second set, which has the pair before it in the same half, and the first one, which has the first half. Where a
 * group has fewer rows, what was not made is 0. */
struct held_sums {
    _Alignas(64) float floats[KINDS_OF_SUM * LONG_BLOCK]; /* see place_of_held */
};

/* Room for them at any place in a page. */
struct room_for_held {
    _Alignas(64) float floats[HELD_SUMS * sizeof(struct held_sums) / sizeof(float) + FLOATS_OF_PAGE];
};

/* They lie away from x of every row, where rows are a multiple of 256 channels apart: next to it the loops took up to a
 * third more time. */
INLINE struct held_sums *find_held_sums(struct room_for_held *room, const float *x) {
    return (void *)(room->floats + place_behind(FLOATS_OF_PAGE * 3 / 8, x, room));
}

/* What there is of dx of the cache lines at hand. */
struct held_lines {
    _Alignas(64) float dx[ROWS_OF_PASS][FLOATS_OF_LINE];
};

/* Of 16 bits, where a vector is half of a cache line of dx: the first halves of the lines at hand, which wait for the
 * others. */
enum {
    HALVES_OF_LINE = 2 * FLOATS_OF_LINE,
    HALVES_CAN_WAIT = VEC_CAN_STREAM && 2 * (int)HALVES == (int)HALVES_OF_LINE
};
_Static_assert(!VEC_CAN_STREAM || HALVES_CAN_WAIT || (int)HALVES == (int)HALVES_OF_LINE,
               "a vector that can be stored past the caches is a line or half of one");
enum { NOTHING_WAITS = -1 };
struct waiting_line {
    _Alignas(64) unsigned char of_row[ROWS_OF_PASS][sizeof(halves)];
    ptrdiff_t channel; /* where it begins, or NOTHING_WAITS */
};

/* Which rows, and what is done with them. */
struct pass {
    const struct gradient_block *block;
    int first_row;
    struct held_sums *held;   /* HELD_SUMS of them */
    struct held_lines *lines; /* NULL, which is known when compiling, unless floats of dx are stored past the caches */
    struct waiting_line *waiting; /* where rows are of 16 bits */
    dynnorm_type type;            /* of x, dy, dx and dsum, which is known when compiling */
};

/* The compiler reads a block's pointers again after each store; copies stay in registers. */
struct copies_of_pointers {
    const float *x[ROWS_OF_PASS];
    const float *dy[ROWS_OF_PASS];
    float *dx[ROWS_OF_PASS];
    struct channels_of_block of_channels;
};

/* Where some of a group's rows and their channels lie. */
struct rows_at_hand {
    const float *const *x;
    const float *const *dy;
    float *const *dx;
    const struct channels_of_block *of_channels;
};

INLINE struct rows_at_hand rows_in_place(const struct gradient_block *block, int first_row) {
    return (struct rows_at_hand){block->x + first_row, block->dy + first_row, block->dx + first_row,
                                 &block->of_channels};
}

INLINE struct rows_at_hand rows_of_pass(const struct pass *pass, struct copies_of_pointers *copies) {
    const struct gradient_block *block = pass->block;
    if (!BY_PAIRS)
        return rows_in_place(block, pass->first_row);
    copies->of_channels = block->of_channels;
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        copies->x[row] = block->x[pass->first_row + row];
        copies->dy[row] = block->dy[pass->first_row + row];
        copies->dx[row] = block->dx[pass->first_row + row];
    }
    return (struct rows_at_hand){copies->x, copies->dy, copies->dx, &copies->of_channels};
}

/* Whether something is added to each vector of dx. */
INLINE int adds_dsum(const struct gradient_block *block) {
    return HAS_TYPES && block->dsum[0];
}

/* x, dy and dsum that come from memory later than those at a channel. */
INLINE void prefetch_pass_ahead(const struct pass *pass, const struct rows_at_hand *rows, ptrdiff_t channel) {
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        __builtin_prefetch(elements_after(rows->x[row], channel + pass->block->x_ahead, pass->type), 0, 2);
        __builtin_prefetch(elements_after(rows->dy[row], channel + pass->block->dy_ahead, pass->type), 0, 2);
    }
    if (adds_dsum(pass->block))
#pragma GCC unroll 4
        for (int row = 0; row < ROWS_OF_PASS; row++)
            __builtin_prefetch(
                elements_after(pass->block->dsum[pass->first_row + row], channel + pass->block->dsum_ahead, pass->type),
                0, 2);
}

/* Whole vectors of dx of a pass's rows. A cache line is stored past the caches when all of it is there, since the CPU
 * has few buffers for parts of lines. x and dy ahead are prefetched meanwhile: the CPU itself would fetch them too
 * late, as it waits for what is stored. */
INLINE void write_beyond_caches(const struct pass *pass, const struct rows_at_hand *rows, struct place place,
                                const vec *dx) {
    const struct gradient_block *block = pass->block;
    const ptrdiff_t in_line = place.channel % FLOATS_OF_LINE, line = place.channel - in_line;
    const int is_end = in_line + LANES == FLOATS_OF_LINE;
    vec sums[ROWS_OF_PASS];
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++)
        sums[row] = dx[row];
    if (adds_dsum(block))
#pragma GCC unroll 4
        for (int row = 0; row < ROWS_OF_PASS; row++)
            sums[row] = vec_add(dx[row], load_vector(block->dsum[pass->first_row + row], place, vec_set(0)));
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        float *held = pass->lines->dx[row], *to = block->dx[pass->first_row + row] + line;
        if (!is_end)
            vec_store(held + in_line, sums[row]);
        else {
            for (ptrdiff_t i = 0; i + LANES < FLOATS_OF_LINE; i += LANES)
                vec_stream(to + i, vec_load(held + i));
            vec_stream(to + FLOATS_OF_LINE - LANES, sums[row]);
        }
    }
    if (!is_end)
        return;
    prefetch_pass_ahead(pass, rows, line);
}

/* Begins to fetch what the next group reads and writes at the same place. The passes go from row to row, which no
 * prefetcher follows. */
INLINE void fetch_next_group(const struct gradient_block *block, int first_row, struct place place) {
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        __builtin_prefetch(block->x[first_row + row] + place.channel + block->x_ahead, 0, 3);
        __builtin_prefetch(block->dy[first_row + row] + place.channel + block->dy_ahead, 0, 3);
        fetch_to_write(block->dx[first_row + row] + place.channel, (size_t)block->dx_ahead);
    }
}

/* Some vectors of some rows: one of each row, and then perhaps the next one of each. */
struct vectors_of_rows {
    const struct rows_at_hand *at_hand;
    struct place place; /* of the first one in a row */
    int rows;
    int vectors; /* of a row, 1 or 2 */
    dynnorm_type type;
    int is_far;
    int side_by_side;     /* at most */
    vec folded_weight[2]; /* of each vector of a row */
    struct elementwise_lanes lanes[2];
};

/* dx and the sums of each. Where an element is rare the sum for the parameter is NaN, unless is_far. The caller stores
 * dx when all has been loaded: a load waits for a store before it whose address differs by a multiple of a page only.
 */
INLINE void compute_rows(struct elementwise_sums *sums, vec dx[][ROWS_OF_HALF], const struct vectors_of_rows *of_rows,
                         const struct elementwise *operation) {
    const int rows = of_rows->rows, all = rows * of_rows->vectors;
    const int count = of_rows->side_by_side < all ? of_rows->side_by_side : all;
    const int looks = !of_rows->is_far && !operation->sums_tell, are_floats = of_rows->type == DYNNORM_F32;
    vec zero = vec_set(0), rare_bits[2] = {zero, zero};
    struct group_sum dweight[2], dbias[2], parameter[2];
    UNROLL_UP_TO_4
    for (int i = 0; i < all; i += count) {
        const float *x[SIDE_BY_SIDE], *dy[SIDE_BY_SIDE];
        int parts[SIDE_BY_SIDE];
        vec weights[SIDE_BY_SIDE], bits[SIDE_BY_SIDE];
        struct elementwise_lanes lanes[SIDE_BY_SIDE];
        const struct vectors vectors = {x,    dy, weights, lanes, of_rows->place, count, of_rows->is_far, of_rows->type,
                                        parts};
        struct vector_gradients results[SIDE_BY_SIDE];
        EACH(parts[k] = (i + k) / rows);
        EACH(x[k] = of_rows->at_hand->x[(i + k) % rows] + (are_floats ? LANES * parts[k] : 0));
        EACH(dy[k] = of_rows->at_hand->dy[(i + k) % rows] + (are_floats ? LANES * parts[k] : 0));
        EACH(weights[k] = of_rows->folded_weight[(i + k) / rows]);
        EACH(lanes[k] = of_rows->lanes[(i + k) / rows]);
        if (looks) {
            rare_bits_of(bits, &vectors, operation);
            EACH(rare_bits[(i + k) / rows] = greater_rare_bits(rare_bits[(i + k) / rows], bits[k], operation));
        }
        compute_vectors(results, &vectors, operation);
        UNROLL_UP_TO_4
        for (int k = 0; k < count; k++) {
            const int row = (i + k) % rows, vector = (i + k) / rows;
            dx[vector][row] = results[k].dx;
            add_row_product(&dweight[vector], results[k].dy, results[k].f, row, rows);
            add_row(&dbias[vector], results[k].dy, row, rows);
            add_row_product(&parameter[vector], results[k].h, results[k].term, row, rows);
        }
    }
    UNROLL_UP_TO_4
    for (int i = 0; i < of_rows->vectors; i++) {
        sums[i].dweight = dweight[i].sum;
        sums[i].dbias = dbias[i].sum;
        sums[i].parameter =
            looks ? nan_if_rare(parameter[i].sum, rare_bits[i], of_rows->lanes[i].call) : parameter[i].sum;
    }
}

INLINE struct place next_place(struct place place, int vectors) {
    place.channel += vectors * LANES;
    return place;
}

INLINE void store_rows(const struct rows_at_hand *at_hand, int rows, struct place place, const vec *dx) {
#pragma GCC unroll 4
    for (int row = 0; row < rows; row++)
        store_vector(at_hand->dx[row], place, dx[row]);
}

/* A whole vector of halves of each row, past the caches. As with floats, a cache line is stored when all of it is
 * there. To store half lines as they come took 1.2 to 1.4 times as long on a Zen 3 where rows lie a multiple of a page
 * apart. Elsewhere it took as long, and on a Zen 5 0.96 times. */
INLINE void write_halves_beyond_caches(const struct pass *pass, const struct rows_at_hand *rows, ptrdiff_t channel,
                                       const halves dx[ROWS_OF_PASS]) {
    struct waiting_line *waiting = pass->waiting;
    KEEP_IN_REGISTER(channel); /* else gcc moves pointers to dx along in every step, also of those in the caches */
    if (HALVES_CAN_WAIT && channel % HALVES_OF_LINE == 0) {
#pragma GCC unroll 4
        for (int row = 0; row < ROWS_OF_PASS; row++)
            halves_store(waiting->of_row[row], dx[row]);
        waiting->channel = channel;
        prefetch_pass_ahead(pass, rows, channel);
        return;
    }
    if (HALVES_CAN_WAIT && waiting->channel == NOTHING_WAITS) { /* the pass began in the middle of a line */
#pragma GCC unroll 4
        for (int row = 0; row < ROWS_OF_PASS; row++)
            halves_store(elements_after(rows->dx[row], channel, pass->type), dx[row]);
        return;
    }
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        if (HALVES_CAN_WAIT)
            halves_stream(elements_after(rows->dx[row], channel - HALVES, pass->type),
                          halves_load(waiting->of_row[row]));
        halves_stream(elements_after(rows->dx[row], channel, pass->type), dx[row]);
    }
    if (HALVES_CAN_WAIT)
        waiting->channel = NOTHING_WAITS;
    else
        prefetch_pass_ahead(pass, rows, channel);
}

/* What still waits when a pass has ended in the middle of a line. */
OUTLINED void write_waiting_halves(struct waiting_line *waiting, float *const dx[ROWS_OF_PASS], dynnorm_type type) {
    for (int row = 0; row < ROWS_OF_PASS; row++)
        halves_store(elements_after(dx[row], waiting->channel, type), halves_load(waiting->of_row[row]));
    waiting->channel = NOTHING_WAITS;
}

/* A whole vector of halves of each row of a pass. For bfloat16, rounding may make a number of a NaN. With a NaN in x,
 * dy or the weight the group's sums are NaN, too, and dx is then computed anew; one of dsum has zeros where it would be
 * rounded. dx is rounded before it is known where it goes: DyT took 1.02 times as long if each way rounded by itself.
 */
INLINE void write_gradients_of_halves(const struct pass *pass, const struct rows_at_hand *rows, ptrdiff_t channel,
                                      vec dx[][ROWS_OF_HALF]) {
    const struct gradient_block *block = pass->block;
    const int is_bf16 = pass->type == DYNNORM_BF16;
    halves rounded[ROWS_OF_PASS];
    if (adds_dsum(block))
#pragma GCC unroll 4
        for (int row = 0; row < ROWS_OF_PASS; row++)
            for (int i = 0; i < 2; i++)
                dx[i][row] =
                    vec_add(dx[i][row], load_ordered(block->dsum[pass->first_row + row], channel, i, pass->type));
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++)
        rounded[row] = halves_in_order(dx[0][row], dx[1][row], is_bf16);
    if (VEC_CAN_STREAM && __builtin_expect(block->is_beyond_caches, 0)) {
        write_halves_beyond_caches(pass, rows, channel, rounded);
        return;
    }
#pragma GCC unroll 4
    for (int row = 0; row < ROWS_OF_PASS; row++) {
        float *const to = elements_after(rows->dx[row], channel, pass->type);
        if (is_bf16)
            halves_store(to, rounded[row]);
        else
            f16_write(to, dx[0][row], dx[1][row], 0);
    }
}

/* One or two vectors of each row of a pass. */
INLINE void write_rows(const struct pass *pass, const struct rows_at_hand *rows, struct place first, int vectors,
                       vec dx[][ROWS_OF_HALF]) {
    if (pass->type != DYNNORM_F32) {
        write_gradients_of_halves(pass, rows, first.channel, dx);
        return;
    }
    UNROLL_UP_TO_4
    for (int i = 0; i < vectors; i++) {
        if (pass->lines)
            write_beyond_caches(pass, rows, next_place(first, i), dx[i]);
        else
            store_rows(rows, ROWS_OF_PASS, next_place(first, i), dx[i]);
    }
}

INLINE void add_sums(struct elementwise_sums *sums, const struct elementwise_sums *others) {
    sums->dweight = vec_add(sums->dweight, others->dweight);
    sums->dbias = vec_add(sums->dbias, others->dbias);
    sums->parameter = vec_add(sums->parameter, others->parameter);
}

/* dx of four rows at a place, whose elements may be far out, and their sums. */
INLINE void far_rows(struct elementwise_sums *sums, const struct gradient_block *block, int first_row,
                     struct place place, vec folded, const struct elementwise_call *call,
                     const struct elementwise *operation) {
    const int at_once = operation->far_rows_at_once;
    const vec none = vec_set(-0.0f); /* to which the first sum can be added without being changed */
    int end = ROWS_OF_HALF;
    if (at_once < ROWS_OF_HALF) /* lest the loop is written out */
        KEEP_IN_REGISTER(end);
    *sums = (struct elementwise_sums){none, none, none};
    for (int row = 0; row < end; row += at_once) {
        const struct rows_at_hand rows = rows_in_place(block, first_row + row);
        const struct vectors_of_rows of_rows = {.at_hand = &rows,
                                                .place = place,
                                                .rows = at_once,
                                                .vectors = 1,
                                                .type = DYNNORM_F32,
                                                .is_far = 1,
                                                .side_by_side = operation->side_by_side,
                                                .folded_weight = {folded},
                                                .lanes = {lanes_at(block, place, call)}};
        struct elementwise_sums of_these;
        vec dx[1][ROWS_OF_HALF];
        compute_rows(&of_these, dx, &of_rows, operation);
        store_rows(&rows, at_once, place, dx[0]);
        add_sums(sums, &of_these);
    }
}

/* Takes the sums of a group to where they belong, but for the parameter's. Gives 0 instead if they, or dx, may be
 * wrong. */
INLINE int end_group(const struct channels_of_block *to, struct place place, const struct elementwise_sums *sums) {
    if (any_not_finite(sums))
        return 0;
    add_group_sum(to->dweight, to->dweight_before, place, sums->dweight);
    add_group_sum(to->dbias, to->dbias_before, place, sums->dbias);
    return 1;
}

/* Adds a group's sum for the parameter to that of the channels or, in lanes, to the one that they have in common. */
INLINE void add_parameter_sum(const struct gradient_block *block, struct place place, wide *lanes, wide sum) {
    if (block->dparameter)
        wide_store(block->dparameter + place.channel,
                   wide_add(wide_load(block->dparameter_before + place.channel), sum));
    else
        *lanes = wide_add(*lanes, sum);
}

INLINE int has_second_half(const struct gradient_block *block) {
    return block->rows > ROWS_OF_HALF;
}

/* ---- A block of channels ---- */

/* The 16 lanes are taken together, so that each of the parameter's sums has a fixed place. Plain C has no vectors that
 * could be partial. */
enum { ELEMENTWISE_STRIDE = LANES == 1 ? 1 : 16, VECTORS_OF_STRIDE_UNROLLED = LANES == 8 ? 2 : 1 };

/* The same where rows are of 16 bits, which these passes read and write where they lie. Plain C has no loops for them.
 */
enum { HAS_ELEMENTWISE_HALVES = HAS_TYPES && LANES > 1 };
enum { STRIDE_OF_HALVES = (int)HALVES > (int)ELEMENTWISE_STRIDE ? (int)HALVES : (int)ELEMENTWISE_STRIDE };

/* What is done with a pass's sums: they wait, alone or with those that have waited, or the group is complete. */
enum pass_kind { HOLDS, ADDS, ENDS };

INLINE enum pass_kind kind_of_pass(const struct pass *pass) {
    const int begins_half = !BY_PAIRS || pass->first_row % ROWS_OF_HALF == 0;
    return pass->first_row + ROWS_OF_PASS >= pass->block->rows ? ENDS : begins_half ? HOLDS : ADDS;
}

/* The three sums of a vector of channels lie LONG_BLOCK apart. With AVX2 that is a page: a load of one waits for the
 * store of another before it. Side by side, floats in the caches mostly took 0.94 to 0.98 times as long on a Zen 3;
 * from memory they took up to 1.07 times as long, and 16 bits as long. */
INLINE ptrdiff_t place_of_held(const struct pass *pass, struct place place, enum kind_of_sum kind) {
    if (BY_PAIRS && !pass->lines && pass->type == DYNNORM_F32)
        return KINDS_OF_SUM * place.channel + LANES * (ptrdiff_t)kind;
    return place.channel + LONG_BLOCK * (ptrdiff_t)kind;
}

INLINE struct elementwise_sums load_held_sums(const struct pass *pass, const struct held_sums *held,
                                              struct place place) {
    return (struct elementwise_sums){vec_load(held->floats + place_of_held(pass, place, OF_DWEIGHT)),
                                     vec_load(held->floats + place_of_held(pass, place, OF_DBIAS)),
                                     vec_load(held->floats + place_of_held(pass, place, OF_PARAMETER))};
}

INLINE void hold_sums(const struct pass *pass, struct held_sums *held, struct place place,
                      const struct elementwise_sums *sums) {
    vec_store(held->floats + place_of_held(pass, place, OF_DWEIGHT), sums->dweight);
    vec_store(held->floats + place_of_held(pass, place, OF_DBIAS), sums->dbias);
    vec_store(held->floats + place_of_held(pass, place, OF_PARAMETER), sums->parameter);
}

/* How many vectors a pass takes side by side: of floats from memory as many as it can, which keeps more loads on their
 * way. */
INLINE int side_by_side_in(const struct pass *pass, const struct elementwise *operation) {
    return pass->lines ? SIDE_BY_SIDE : operation->side_by_side;
}

/* How many of them are of each row. Two make a whole vector of halves. */
INLINE int vectors_of_pass(const struct pass *pass, const struct elementwise *operation) {
    return pass->type != DYNNORM_F32 || side_by_side_in(pass, operation) > ROWS_OF_PASS ? 2 : 1;
}

/* The channels that a pass takes together. */
INLINE ptrdiff_t stride_of_pass(const struct pass *pass) {
    return pass->type != DYNNORM_F32 ? STRIDE_OF_HALVES : ELEMENTWISE_STRIDE;
}

/* bfloat16 is widened by pairs: see convert.h. The sums of even and odd channels become those of channels in a row. */
INLINE void order_sums(struct elementwise_sums *even, struct elementwise_sums *odd) {
    vecs_of_pairs(&even->dweight, &odd->dweight, even->dweight, odd->dweight);
    vecs_of_pairs(&even->dbias, &odd->dbias, even->dbias, odd->dbias);
    vecs_of_pairs(&even->parameter, &odd->parameter, even->parameter, odd->parameter);
}

/* One or two vectors of a row from a place on. terms: what the last pass adds to the sum for the parameter. Returns how
 * many vectors are done; the last pass may find that one is for any_block. */
INLINE int pass_step(const struct pass *pass, const struct rows_at_hand *rows, enum pass_kind kind, struct place first,
                     int vectors, const struct elementwise_call *call, const struct elementwise *operation,
                     vec *terms) {
    const struct gradient_block *block = pass->block;
    struct held_sums *held = pass->held + (BY_PAIRS && (kind == ENDS || pass->first_row >= ROWS_OF_HALF));
    struct elementwise_sums sums[2], others;
    struct vectors_of_rows of_rows = {.at_hand = rows,
                                      .place = first,
                                      .rows = ROWS_OF_PASS,
                                      .vectors = vectors,
                                      .type = pass->type,
                                      .side_by_side = side_by_side_in(pass, operation)};
    vec dx[2][ROWS_OF_HALF];
    if (LANES >= 16 && first.whole && !pass->lines && pass->type == DYNNORM_F32 && block->fetches_ahead &&
        first.channel % FLOATS_OF_LINE == 0)
        fetch_next_group(block, pass->first_row, first);
    UNROLL_UP_TO_4
    for (int i = 0; i < vectors; i++) {
        const ptrdiff_t channel = next_place(first, i).channel;
        of_rows.folded_weight[i] = vec_load(rows->of_channels->folded_weight + channel);
        /* The passes need nothing else: the slope is in the weight, and x has its factor. */
        of_rows.lanes[i] =
            (struct elementwise_lanes){.parameter = vec_load(rows->of_channels->parameters + channel), .call = call};
    }
    compute_rows(sums, dx, &of_rows, operation);
    write_rows(pass, rows, first, vectors, dx);
    UNROLL_UP_TO_4
    for (int i = 0; i < vectors; i++) {
        const struct place place = next_place(first, i);
        if (BY_PAIRS && kind != HOLDS) {
            others = load_held_sums(pass, held, place);
            add_sums(&sums[i], &others);
        }
        if (kind != ENDS) {
            hold_sums(pass, held, place, &sums[i]);
            continue;
        }
        others = load_held_sums(pass, pass->held, place);
        add_sums(&sums[i], &others);
    }
    if (kind == ENDS && pass->type == DYNNORM_BF16)
        order_sums(&sums[0], &sums[1]);
    UNROLL_UP_TO_4
    for (int i = 0; kind == ENDS && i < vectors; i++) {
        if (!end_group(rows->of_channels, next_place(first, i), &sums[i]))
            return i;
        terms[i] = sums[i].parameter;
    }
    if (pass->lines || pass->type != DYNNORM_F32 || operation->loops == ONE_LOOP) /* bench/model does not model these */
        return vectors;
    /* The passes together compute a whole group, for which two hold their sums if others add theirs. */
    if (first.whole)
        MODEL_PASS("dx", kind, GROUP * LANES * vectors / (BY_PAIRS && kind == HOLDS ? 2 : 1));
    return vectors;
}

/* Whole strides from a channel on. Returns where they ended, which is earlier if that place is for any_block. */
INLINE size_t do_pass(const struct pass *pass, enum pass_kind kind, size_t begin, const struct elementwise_call *call,
                      const struct elementwise *operation, struct parameter_sum *parameter) {
    struct parameter_sum sum = *parameter; /* a variable whose address is taken is not kept in registers */
    struct copies_of_pointers copies;
    const struct rows_at_hand rows = rows_of_pass(pass, &copies);
    const int vectors = vectors_of_pass(pass, operation);
    const ptrdiff_t stride = stride_of_pass(pass);
    ptrdiff_t end = (ptrdiff_t)pass->block->channels / stride * stride;
    for (ptrdiff_t i = (ptrdiff_t)begin; i < end; i += stride)
#pragma GCC unroll VECTORS_OF_STRIDE_UNROLLED
        for (int vector = 0; vector < stride / LANES; vector += vectors) {
            const struct place place = {i + LANES * vector, LANES, 1};
            vec terms[2];
            const int done = pass_step(pass, &rows, kind, place, vectors, call, operation, terms);
            UNROLL_UP_TO_4
            for (int k = 0; k < vectors; k++) {
                if (k == done) {
                    end = next_place(place, k).channel;
                    goto end;
                }
                wide *lanes = &sum.lanes[LANES == 1 ? i % PARTS : (vector + k) % PARTS];
                if (kind == ENDS)
                    add_parameter_sum(pass->block, next_place(place, k), lanes, widen_group_sum(terms[k]));
            }
        }
end:
    if (HALVES_CAN_WAIT && pass->type != DYNNORM_F32 && pass->waiting->channel != NOTHING_WAITS)
        write_waiting_halves(pass->waiting, pass->block->dx + pass->first_row, pass->type);
    if (kind == ENDS)
        *parameter = sum;
    return (size_t)end;
}

/* What is left of a block after whole strides, or of a stride. */
INLINE size_t end_pass(const struct pass *pass, enum pass_kind kind, size_t begin, const struct elementwise_call *call,
                       const struct elementwise *operation, struct parameter_sum *parameter) {
    struct copies_of_pointers copies;
    const struct rows_at_hand rows = rows_of_pass(pass, &copies);
    const ptrdiff_t end = (ptrdiff_t)pass->block->channels;
    ptrdiff_t i = (ptrdiff_t)begin;
    for (; i < end; i += LANES) {
        const struct place place = {i, end - i, 0};
        vec term;
        if (!pass_step(pass, &rows, kind, place, 1, call, operation, &term))
            return (size_t)i;
        if (kind == ENDS)
            add_parameter_sum(pass->block, place, &parameter->lanes[place.channel / LANES % PARTS], vec_widen(term));
    }
    return (size_t)end;
}

INLINE int lacks_end_of_stride(const struct gradient_block *block, size_t i) {
    return i % ELEMENTWISE_STRIDE == 0 && i < block->channels && block->channels - i < ELEMENTWISE_STRIDE;
}

/* Sets to 0 the sums that the last pass adds to its own though no pass made them. */
INLINE void clear_missing_sums(const struct pass *pass) {
    const struct gradient_block *block = pass->block;
    const int is_alone = block->rows <= ROWS_OF_PASS, lacks_pass = block->rows <= GROUP - ROWS_OF_PASS;
    const struct elementwise_sums none = {vec_set(0), vec_set(0), vec_set(0)};
    for (int set = is_alone ? 0 : 1; lacks_pass && set < HELD_SUMS; set++)
        for (size_t i = 0; i < block->channels; i += LANES)
            hold_sums(pass, &pass->held[set], place_at(i, block->channels), &none);
}

/* What the passes leave. */
INLINE size_t any_block(const struct gradient_block *block, struct halves_in_floats *in_floats, size_t first,
                        const struct elementwise_call *call, const struct elementwise *operation,
                        struct parameter_sum *parameter, dynnorm_type type) {
    if (type == DYNNORM_F32)
        return ANY_ELEMENTWISE_BLOCK(block, first, call, operation->functions, parameter);
    return ANY_BLOCK_OF_HALVES(block, in_floats, first, call, operation->functions, parameter);
}

/* Returns whether it ended with elements far out, or with a tiny x or dy, and is told whether the block before did: the
 * passes would then be in vain. Each kind of pass has a loop of its own over whole strides; one loop serves all for
 * what is left. Rows of 16 bits have one loop, and nothing is left. */
INLINE int whole_group(const struct gradient_block *block, int was_far, const struct elementwise_call *call,
                       const struct elementwise *operation, struct parameter_sum *parameter, dynnorm_type type) {
    struct room_for_held room;
    struct held_sums *const held = find_held_sums(&room, block->x[0]);
    struct waiting_line waiting;
    struct pass pass = {block, 0, held, NULL, &waiting, type};
    /* Where there are two passes, the compiler knows which rows these are. */
    const struct pass first = pass, last = {block, GROUP - ROWS_OF_PASS, held, NULL, &waiting, type};
    const size_t end = block->channels;
    struct halves_in_floats in_floats;
    in_floats.channels = (struct block){0, 0};
    waiting.channel = NOTHING_WAITS;
    size_t i =
        was_far && end > ELEMENTWISE_STRIDE ? any_block(block, &in_floats, 0, call, operation, parameter, type) : 0;
    clear_missing_sums(&pass);
    while (i < end) {
        const enum pass_kind kind = kind_of_pass(&pass);
        size_t done = operation->loops == ONE_LOOP || type != DYNNORM_F32
                          ? do_pass(&pass, kind, i, call, operation, parameter)
                      : kind == ENDS ? do_pass(BY_PAIRS ? &pass : &last, ENDS, i, call, operation, parameter)
                      : kind == ADDS ? do_pass(&pass, ADDS, i, call, operation, parameter)
                                     : do_pass(BY_PAIRS ? &pass : &first, HOLDS, i, call, operation, parameter);
        if (LANES > 1 && type == DYNNORM_F32 && lacks_end_of_stride(block, done))
            done = end_pass(&pass, kind, done, call, operation, parameter);
        if (kind != ENDS) {
            pass.first_row += ROWS_OF_PASS;
            continue;
        }
        if (done == end)
            return 0;
        i = any_block(block, &in_floats, done, call, operation, parameter, type);
    }
    return 1;
}

/* The same of floats where dx is stored past the caches. What is left of a block after whole strides is for any_block.
 */
INLINE int group_beyond_caches(const struct gradient_block *block, int was_far, const struct elementwise_call *call,
                               const struct elementwise *operation, struct parameter_sum *parameter) {
    struct room_for_held room;
    struct held_sums *const held = find_held_sums(&room, block->x[0]);
    struct held_lines lines;
    struct pass pass = {block, 0, held, &lines, NULL, DYNNORM_F32};
    const size_t end = block->channels, whole = VEC_CAN_STREAM ? end / ELEMENTWISE_STRIDE * ELEMENTWISE_STRIDE : 0;
    size_t i = was_far && end > ELEMENTWISE_STRIDE
                   ? ANY_ELEMENTWISE_BLOCK(block, 0, call, operation->functions, parameter)
                   : 0;
    int ends_far = i == end;
    while (i < whole) {
        const enum pass_kind kind = kind_of_pass(&pass);
        const size_t done = do_pass(&pass, kind, i, call, operation, parameter);
        if (kind != ENDS) {
            pass.first_row += ROWS_OF_PASS;
            continue;
        }
        i = done;
        if (i < whole) {
            i = ANY_ELEMENTWISE_BLOCK(block, i, call, operation->functions, parameter);
            ends_far = i == end;
        }
    }
    if (i < end)
        ANY_ELEMENTWISE_BLOCK(block, i, call, operation->functions, parameter);
    return ends_far;
}

/* ---- Groups of rows ---- */

/* Blocks of whole groups that follow one another at the same channels, and how far apart their rows lie. */
struct following_groups {
    size_t count;
    size_t x;
    size_t dy;
    size_t dx;
    size_t dsum;
};

INLINE void move_rows(struct gradient_block *block, const struct following_groups *by, dynnorm_type type) {
    const ptrdiff_t x = (ptrdiff_t)by->x, dy = (ptrdiff_t)by->dy, dx = (ptrdiff_t)by->dx;
#pragma GCC unroll 8
    for (int i = 0; i < GROUP; i++) {
        block->x[i] = elements_after(block->x[i], x, type);
        block->given_x[i] = elements_after(block->given_x[i], x, type);
        block->dy[i] = elements_after(block->dy[i], dy, type);
        block->dx[i] = elements_after(block->dx[i], dx, type);
        if (type != DYNNORM_F32 && adds_dsum(block))
            block->dsum[i] = elements_after(block->dsum[i], (ptrdiff_t)by->dsum, type);
    }
}

/* What the group has added to is what the next one adds to. */
INLINE void continue_sums(struct gradient_block *block) {
    block->of_channels.dweight_before = block->of_channels.dweight;
    block->of_channels.dbias_before = block->of_channels.dbias;
    block->dparameter_before = block->dparameter;
}

INLINE int whole_groups(struct gradient_block *block, const struct following_groups *groups, int was_far,
                        const struct elementwise_call *call, const struct elementwise *operation,
                        struct parameter_sum *parameter, dynnorm_type type) {
    for (size_t left = groups->count;;) {
        was_far = whole_group(block, was_far, call, operation, parameter, type);
        if (!--left)
            return was_far;
        block->first_row += GROUP;
        move_rows(block, groups, type);
        continue_sums(block);
    }
}

#endif
