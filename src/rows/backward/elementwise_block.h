/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of elementwise operations: a block of channels of some rows, and what is computed of a few vectors
 * of it side by side. See backward/elementwise.h.
 */
#ifndef DYNNORM_BACKWARD_ELEMENTWISE_BLOCK_H
#define DYNNORM_BACKWARD_ELEMENTWISE_BLOCK_H

#include "inlining.h"
#include "kernel_names.h"
#include "kernels.h"
#include "operations/elementwise.h"
#include "rows/backward/token_sums.h"
#include "rows/elements.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/subnormals.h"

#include <math.h>

/* What the passes over a block's rows read and add to in each channel, beside the rows. */
struct channels_of_block {
    const float *folded_weight;   /* weight times slope; NaN where that is subnormal */
    const float *parameters;      /* see struct channel_constants; of each channel even where they are all the same */
    const double *dweight_before; /* what the group's sums are added to */
    const double *dbias_before;
    double *dweight;
    double *dbias;
};

/* Where a block of channels of a group of rows lies. */
struct gradient_block {
    int rows;
    size_t channels;
    const float *weight;
    const float *x[GROUP];       /* of rows that are missing, too: see find_missing_rows */
    const float *given_x[GROUP]; /* before it was multiplied by x_factor */
    const float *dy[GROUP];
    float *dx[GROUP];
    const float *dsum[GROUP]; /* added to dx; NULL: nothing is, or once the block is done */
    struct channels_of_block of_channels;
    double *dparameter; /* NULL: all channels have one sum in common */
    const double *dparameter_before;
    const float *slopes; /* see struct channel_constants */
    const float *x_factors;
    ptrdiff_t channel_mask; /* of a channel, to find its constants: 0 where all have those of the first vector */
    struct token_gradient gradients[2]; /* dweight and dbias, where they are written at once */
    float factor;                       /* of dweight, while that of dbias is 1 */
    int is_beyond_caches;               /* dx is stored there, while x and dy ahead are prefetched */
    int fetches_ahead;                  /* the rows of the next group are fetched while these are computed */
    int avoids_subnormals;              /* see struct backward_arguments */
    int *dx_overflows;                  /* set where a product for dx exceeds the floats, before dx_factor */
    ptrdiff_t x_ahead;                  /* from these rows to what is to be prefetched */
    ptrdiff_t dy_ahead;
    ptrdiff_t dsum_ahead;
    ptrdiff_t dx_ahead;
    /* For rows of 16 bits, which x, dy, dx and dsum then point to: see ANY_BLOCK_OF_HALVES. */
    const struct backward_arguments *typed;
    size_t first_row;
    size_t first_channel;
};

/* Where a step is done. */
struct step {
    const struct gradient_block *block;
    struct place place;
    wide *parameter; /* the sum for the parameter, part of it, to be added to */
};

/* ---- What a step consists of ---- */

INLINE struct elementwise_lanes lanes_at(const struct gradient_block *block, struct place place,
                                         const struct elementwise_call *call) {
    const ptrdiff_t channel = place.channel & block->channel_mask;
    return (struct elementwise_lanes){vec_load(block->of_channels.parameters + channel),
                                      vec_load(block->slopes + channel), vec_load(block->x_factors + channel), call};
}

/* Whether any of the sums is not finite. */
INLINE int any_not_finite(const struct elementwise_sums *sums) {
    return vec_any_not_finite(vec_add(vec_add(sums->dweight, sums->dbias), sums->parameter));
}

/* As vec_widen. On AVX2 and AVX-512 that takes shuffles; to store the vector and load its halves takes fewer
 * instructions, but longer until the result is there. */
INLINE wide widen_by_memory(vec a) {
    _Alignas(64) float floats[LANES];
    if (LANES < 8)
        return vec_widen(a);
    vec_store(floats, a);
    KEEP_IN_MEMORY(floats);
    return wide_load_floats(floats);
}

/* Widens a sum over a group's rows. By way of memory AVX2's loops take 1 to 2 % less time, and AVX-512's no less. */
INLINE wide widen_group_sum(vec sum) {
    return LANES == 8 ? widen_by_memory(sum) : vec_widen(sum);
}

INLINE void add_group_sum(double *sums, const double *before, struct place place, vec sum) {
    wide_store(sums + place.channel, wide_add(wide_load(before + place.channel), widen_group_sum(sum)));
}

/* ---- Some vectors side by side ---- */

/* Each of them has a row of its own, or what looks like one because it begins some vectors later in the same row. */
struct vectors {
    const float *const *x;
    const float *const *dy;
    const vec *weights; /* times the slope */
    const struct elementwise_lanes *lanes;
    struct place place;
    int count;
    int is_far;        /* takes the factors of all elements */
    dynnorm_type type; /* of x and dy */
    const int *parts;  /* of types of 16 bits: which of two vectors each of them is */
};

/* What came out of a vector. */
struct vector_gradients {
    vec dy;
    vec f;
    vec h; /* times first */
    vec term;
    vec dx;
};

/* The k-th of the vectors, of its row of x or dy. */
INLINE vec load_kth(const struct vectors *vectors, const float *row, int k) {
    if (vectors->type == DYNNORM_F32)
        return load_vector(row, vectors->place, vec_set(0));
    return load_ordered(row, vectors->place.channel, vectors->parts[k], vectors->type);
}

INLINE void compute_vectors(struct vector_gradients *results, const struct vectors *vectors,
                            const struct elementwise *operation) {
    const int count = vectors->count;
    struct gradient_factors factors[SIDE_BY_SIDE];
    vec x[SIDE_BY_SIDE];
    EACH(x[k] = load_kth(vectors, vectors->x[k], k));
    if (vectors->is_far)
        operation->far_factors(factors, x, vectors->lanes, count, 0);
    else
        operation->factors(factors, x, vectors->lanes, count);
    /* x is loaded again, lest each x occupies a register meanwhile, but for two vectors of floats, for which there are
       registers enough. */
    struct vectors again = *vectors;
    if (count > 2 || vectors->type != DYNNORM_F32)
        KEEP_IN_REGISTER(again.place.channel);
    UNROLL_UP_TO_4
    for (int k = 0; k < count; k++) {
        results[k].dy = load_kth(vectors, vectors->dy[k], k);
        results[k].h = vec_mul(vectors->weights[k], results[k].dy);
        if (!vectors->is_far)
            operation->end_factors(&factors[k], load_kth(&again, vectors->x[k], k));
        results[k].h = vec_mul(results[k].h, factors[k].first);
        results[k].dx = operation->has_second ? vec_mul(results[k].h, factors[k].second) : results[k].h;
        results[k].f = factors[k].f;
        results[k].term = factors[k].term;
    }
}

/* Their bits that tell what is rare. */
INLINE void rare_bits_of(vec *bits, const struct vectors *vectors, const struct elementwise *operation) {
    const int count = vectors->count;
    EACH(bits[k] = operation->rare_bits(load_kth(vectors, vectors->x[k], k), &vectors->lanes[k]));
}

INLINE vec greater_rare_bits(vec greatest, vec bits, const struct elementwise *operation) {
    return operation->bits_have_signs ? vec_greater_magnitude(greatest, bits) : vec_max_bits(greatest, bits);
}

/* a, or a NaN where an element is rare. */
INLINE vec nan_if_rare(vec a, vec rare_bits, const struct elementwise_call *call) {
    return vec_select_outside(rare_bits, 0, call->rare_limit, vec_set(NAN), a);
}

INLINE vec folded_weight(const float *weight, struct place place, const struct elementwise_lanes *lanes) {
    return vec_mul(load_vector(weight, place, vec_set(0)), lanes->slope);
}

/* ---- Whatever is not done by the fast step ---- */

/* Returns whether float did not hold all that is computed, or x or dy is tiny; what follows is likely to be so, too. */
DYNNORM_INTERNAL int RARE_ELEMENTWISE_STEP(const struct step *step, const struct elementwise_call *call,
                                           const struct elementwise_functions *operation);

/* A block from a channel on, of any number of rows with elements of any kind. Unless there are elements far out,
 * nothing but NaN, or what float does not hold, where others usually are, too, it ends after one stride if the passes
 * can do the rest. Returns where it ended. */
DYNNORM_INTERNAL size_t ANY_ELEMENTWISE_BLOCK(const struct gradient_block *block, size_t first,
                                              const struct elementwise_call *call,
                                              const struct elementwise_functions *operation,
                                              struct parameter_sum *parameter);

/* Some channels of a block of rows of 16 bits, widened into buffers. */
struct halves_in_floats {
    struct gradient_block of_floats;
    struct block channels; /* of the block; none at first */
};

/* As ANY_ELEMENTWISE_BLOCK, of a block of rows of 16 bits, of which in_floats may have channels already. */
DYNNORM_INTERNAL size_t ANY_BLOCK_OF_HALVES(const struct gradient_block *block, struct halves_in_floats *in_floats,
                                            size_t first, const struct elementwise_call *call,
                                            const struct elementwise_functions *operation,
                                            struct parameter_sum *parameter);

#endif
