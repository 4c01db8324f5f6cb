/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for whole groups of rows of any length whose x, dy and dx are of the same
 * type of 16 bits. They are widened and narrowed in registers, where other rows that are not of floats go through
 * buffers (rows/typed_rows.h). A row takes half the room of one of floats in the caches. So all sums of a group are
 * made first, and then dx, some columns at a time, as of short rows.
 *
 * AVX-512 has these loops for all such rows, but for short ones of LayerNorm: see are_even_halves. With AVX2, half of a
 * cache line is a vector of 16 bits, and rows that lie a multiple of a page apart throw the other halves out. So it has
 * them for rows that lie close together, those of RMSNorm alone, lest they take twice as much code; others are computed
 * by backward/halves_by_pairs.h, or in buffers.
 */
#ifndef DYNNORM_BACKWARD_HALVES_H
#define DYNNORM_BACKWARD_HALVES_H

#include "rows/backward/short_rows.h"

enum { HAS_BACKWARD_OF_HALVES = HAS_TYPES && LANES >= 8, ONLY_CLOSE_ROWS = LANES == 8 };

/* The most channels that a close row has, and the most elements from it to the next one. On a Zen 3 rows of 64 and 128
 * channels took 0.67 to 0.89 times as long as otherwise, and those of up to 512 0.82 to 0.94 times. */
enum { MOST_CHANNELS_OF_CLOSE_ROWS = 512 };
_Static_assert((int)MOST_CHANNELS_OF_CLOSE_ROWS <= (int)SUMMED_BLOCK, "their sums are finished by themselves");

/* The last eight lanes of the sums of a group's rows. */
struct lanes_of_halves {
    eight h[GROUP];
    eight hv[GROUP];
    eight v[GROUP];
};

/* The sums of a row: those of one block of channels stay lanes, which take less time to add up with those of the other
 * rows, and those of several are finished one after the other. known is 0 or, where it is known when
 * compiling, the number of channels: a multiple of CHANNELS_OF_SPAN, and no more than BLOCK. */
INLINE void sum_row_of_halves(struct reduction_work *work, struct lanes_of_halves *lanes, int row,
                              struct reduction_block block, size_t known, struct summing how) {
    const int is_centered = how.is_centered;
    const size_t channels = known ? known : work->arguments->channels;
    const struct span_kind last = known || ONLY_CLOSE_ROWS ? no_span : counted_span;
    struct reduction_sums sums = no_sums(work);
    struct lanes_of_row of_row;
    wide v_sum[PARTS];
    begin_lanes_of_row(&of_row, v_sum);
    for (size_t channel = 0; channel < channels; channel += BLOCK) {
        const struct block part = block_at(channel, channels);
        struct sums_of_lanes of_part;
        sum_lanes(&of_part, v_sum, &block, (ptrdiff_t)part.count, last, how);
        add_to_lanes_of_row(&of_row, &of_part, is_centered);
        block.x = elements_after(block.x, BLOCK, block.type);
        block.dy = elements_after(block.dy, BLOCK, block.type);
        block.weight = elements_after(block.weight, BLOCK, DYNNORM_F32);
        if (!ONLY_CLOSE_ROWS && channels > SUMMED_BLOCK && ends_summed_block(part, channels)) {
            add_lanes_of_row(&sums, &of_row, v_sum, is_centered);
            begin_lanes_of_row(&of_row, v_sum);
        }
    }
    lanes->hv[row] = of_row.hv;
    work->sums_of_rows.hv[row] = sums.hv;
    if (is_centered) {
        lanes->h[row] = of_row.h;
        lanes->v[row] = wide_fold(v_sum);
        work->sums_of_rows.h[row] = sums.h;
        work->sums_of_rows.v[row] = sums.v;
        work->sums_of_rows.absolute_hv[row] = sums.absolute_hv;
    }
}

/* Finishes the sums of a group's rows. One function for all loops that make such sums, which would be larger than some
 * of them. */
OUTLINED void finish_lanes_of_halves(struct reduction_work *work, const struct lanes_of_halves *lanes) {
    struct sums_of_rows *const sums = &work->sums_of_rows;
    eight_store(sums->hv, eight_sums(lanes->hv));
    if (!work->is_centered)
        return;
    eight_store(sums->h, eight_sums(lanes->h));
    eight_store(sums->v, eight_sums(lanes->v));
    if (work->tests_v)
        eight_store(sums->absolute_hv, absolute_sums_of_rows(lanes->hv));
}

/* Rows that come from memory are prefetched once more just before their sums are made: see backward/normalization.h. On
 * a Zen 4 with AVX-512 rows of 512 channels and more took 0.86 to 0.95 times as long, RMSNorm of 256 channels 0.90 to
 * 0.98 times, and LayerNorm of 256 channels 1.01 to 1.06 times. */
INLINE size_t least_halves_prefetched_to_sum(int is_centered) {
    return is_centered ? 2 * BLOCK : BLOCK;
}

INLINE void sum_group_of_halves(struct reduction_work *work, const struct even_rows *group, dynnorm_type type,
                                size_t known, struct summing how) {
    const int is_centered = how.is_centered;
    const float *const means = is_centered ? work->arguments->mean + work->first_row : NULL;
    const size_t channels = work->arguments->channels;
    const int looks_ahead = group->are_beyond_caches && work->arguments->prefetches_far_rows &&
                            channels >= least_halves_prefetched_to_sum(is_centered);
    const ptrdiff_t ahead = looks_ahead ? elements_to_sum_ahead(group->stride, channels, type) : 0;
    struct reduction_block block = {group->x, group->dy, work->weight.values, 0, type, ahead, ahead};
    struct lanes_of_halves lanes;
#pragma GCC unroll 1
    for (int row = 0; row < GROUP; row++) {
        block.mean = is_centered ? load_float(means + row) : 0;
        sum_row_of_halves(work, &lanes, row, block, known, how);
        block.x = elements_after(block.x, (ptrdiff_t)group->stride, type);
        block.dy = elements_after(block.dy, (ptrdiff_t)group->stride, type);
    }
    if (known || ONLY_CLOSE_ROWS || channels <= SUMMED_BLOCK)
        finish_lanes_of_halves(work, &lanes);
}

/* As in float, rows of 64 and 128 channels have loops of their own. In float16 they do without, since training uses
 * bfloat16, and the loops would take as much code again. With AVX2 only rows of 64 channels gain by one, of either
 * type. */
INLINE void sum_halves(struct reduction_work *work, const struct even_rows *group, dynnorm_type type, int is_centered) {
    _Static_assert(128 <= BLOCK, "what is known is no more than a block");
    const size_t channels = type == DYNNORM_BF16 || ONLY_CLOSE_ROWS ? work->arguments->channels : 0;
    const struct summing of_known = {.is_centered = is_centered, .begins_v = 1};
    if (channels == 64)
        sum_group_of_halves(work, group, type, 64, of_known);
    else if (channels == 128 && !ONLY_CLOSE_ROWS)
        sum_group_of_halves(work, group, type, 128, of_known);
    else
        sum_group_of_halves(work, group, type, 0,
                            (struct summing){.is_centered = is_centered, .prefetches = LANES == 16});
}

/* The two functions, which are compiled once for each operation and type. */
struct halves_functions {
    void (*sum)(struct reduction_work *work, const struct even_rows *group);
    void (*apply)(struct reduction_work *work, const struct even_rows *group, const float *weight);
};

#define BACKWARD_OF_HALVES(operation, name, NAME, is_centered)                                                         \
    OUTLINED void sum_##name##_of_##operation(struct reduction_work *work, const struct even_rows *group) {            \
        sum_halves(work, group, DYNNORM_##NAME, is_centered);                                                          \
    }                                                                                                                  \
    OUTLINED void apply_##name##_of_##operation(struct reduction_work *work, const struct even_rows *group,            \
                                                const float *weight) {                                                 \
        apply_any_short_rows(work, group, weight, DYNNORM_##NAME, is_centered, is_centered);                           \
    }
BACKWARD_OF_HALVES(layernorm, bf16, BF16, 1)
BACKWARD_OF_HALVES(layernorm, f16, F16, 1)
BACKWARD_OF_HALVES(rmsnorm, bf16, BF16, 0)
BACKWARD_OF_HALVES(rmsnorm, f16, F16, 0)
#undef BACKWARD_OF_HALVES

INLINE struct halves_functions halves_functions(dynnorm_type type, int is_centered) {
    is_centered = is_centered && !ONLY_CLOSE_ROWS;
    if (type == DYNNORM_BF16)
        return is_centered ? (struct halves_functions){sum_bf16_of_layernorm, apply_bf16_of_layernorm}
                           : (struct halves_functions){sum_bf16_of_rmsnorm, apply_bf16_of_rmsnorm};
    return is_centered ? (struct halves_functions){sum_f16_of_layernorm, apply_f16_of_layernorm}
                       : (struct halves_functions){sum_f16_of_rmsnorm, apply_f16_of_rmsnorm};
}

INLINE int are_close_rows(const struct reduction_work *work) {
    const struct backward_arguments *of = work->arguments;
    return !work->is_centered && of->channels % CHANNELS_OF_SPAN == 0 &&
           of->x.strides[0] <= MOST_CHANNELS_OF_CLOSE_ROWS && of->channels <= MOST_CHANNELS_OF_CLOSE_ROWS;
}

/* Whether these loops do it: all rows are equally far apart, and nothing is read from where dx goes. */
INLINE int are_even_halves(const struct reduction_work *work) {
    const struct backward_arguments *of = work->arguments;
    if (!HAS_BACKWARD_OF_HALVES || !work->typed || work->typed->halves == DYNNORM_F32)
        return 0;
    if (ONLY_CLOSE_ROWS && !are_close_rows(work))
        return 0;
    /* Short rows whose last span is not whole are faster in buffers: on a Zen 4 those of 100 channels took 0.84 to 0.90
       times as long there. */
    if (work->is_centered && !work->tests_v && of->channels % CHANNELS_OF_SPAN)
        return 0;
    const struct tensor *dsum = &work->typed->dsum;
    if (dsum->data && (!may_add_to(work->typed->halves) || of->channels % (COLUMNS * LANES) || dsum->axes != 1 ||
                       dsum->strides[0] != of->x.strides[0]))
        return 0;
    return of->x.axes == 1 && of->dy.axes == 1 && of->dx.axes == 1 && of->x.strides[0] == of->dy.strides[0] &&
           of->x.strides[0] == of->dx.strides[0] && work->statistics_are_given && !work->split;
}

/* Rows of so many channels are stored past the caches, and prefetched, if they come from memory. Shorter ones took 1.06
 * to 1.16 times as long on a Zen 4, and others 0.5 to 0.95 times. */
enum { LEAST_HALVES_BEYOND_CACHES = BLOCK };

/* Computes so many rows, in whole groups. */
INLINE void backward_halves(struct reduction_work *work, size_t first, size_t rows, int typed_by_pairs) {
    const struct backward_arguments *of = work->arguments;
    const dynnorm_type type = work->typed->halves;
    const struct halves_functions functions = halves_functions(type, work->is_centered);
    struct even_rows group = {
        .x = (const float *)address_of_row(&of->x, first),
        .dy = (const float *)address_of_row(&of->dy, first),
        .dx = (float *)address_of_row(&of->dx, first),
        .stride = of->x.strides[0],
        .dsum = work->typed->dsum.data ? (const float *)address_of_row(&work->typed->dsum, first) : NULL,
        .are_beyond_caches =
            of->streams && of->channels >= LEAST_HALVES_BEYOND_CACHES && are_whole_lines(of->channels, HALF_BYTES),
    };
    const ptrdiff_t next = GROUP * (ptrdiff_t)group.stride;
    work->rows = GROUP;
    work->is_first = !work->sums.continues;
    for (work->first_row = first; work->first_row < first + rows; work->first_row += GROUP) {
        begin_group(work);
        const int may_hold = !may_be_tiny(work, group.x, group.dy, type);
        if (may_hold)
            functions.sum(work, &group);
        if (!may_hold || !FIND_CONSTANTS(work, &work->sums_of_rows, 0, GROUP))
            backward_typed_group(work, typed_by_pairs);
        else
            functions.apply(work, &group, work->weight.values);
        work->is_first = 0;
        group.x = elements_after(group.x, next, type);
        group.dy = elements_after(group.dy, next, type);
        group.dx = elements_after(group.dx, next, type);
        group.dsum = group.dsum ? elements_after(group.dsum, next, type) : NULL;
    }
}

#endif
