/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What an operation brings to the drivers of src/rows/: one constant structure of functions. A driver is inlined into
 * the kernel of each operation, and the operation's functions into it. Whatever is rare stays outside of the kernels
 * and calls the same functions through their pointers.
 */
#ifndef DYNNORM_OPERATION_H
#define DYNNORM_OPERATION_H

#include "functions/inverse_square_root.h"
#include "functions/tanh.h"
#include "in_double/in_double.h"
#include "kernels.h"
#include "operations/elementwise.h"
#include "rows/blocks.h"
#include "rows/floats.h"
#include "rows/places.h"
#include "rows/reader.h"
#include "rows/row_sums.h"
#include "rows/writer.h"
#include "vec.h"

/* Forward of elementwise operations: what they make of the alphas or betas of a block of channels. */
struct channel_parameters {
    _Alignas(64) float parameter[ELEMENTWISE_BLOCK]; /* NaN where it is none */
    _Alignas(64) float input_scale[ELEMENTWISE_BLOCK];
    int are_unusual; /* whether f must be computed by forward_unusual_vectors, ... */
    int are_ready;   /* ... and whether it can be */
    int has_zero;    /* for these: whether one of the parameters is 0, ... */
    int are_zero;    /* ... and whether all are the same one, which is 0 */
    float least;     /* of the parameters, for near_limit, unless they are unusual; it may also be 1 */
};

INLINE vec parameters_at(const float *parameters, size_t i, size_t count, int is_one) {
    return is_one ? vec_set(load_float(parameters)) : load_vector(parameters, place_at(i, count), vec_set(1));
}

/* Ordinary ones from a vector on, up to where forward_unusual_vectors reads, which takes some vectors together. */
INLINE void end_parameters(struct channel_parameters *made, size_t first) {
    for (size_t i = first; i % (SIDE_BY_SIDE * LANES); i += LANES) {
        vec_store(made->parameter + i, vec_set(1));
        vec_store(made->input_scale + i, vec_set(1));
    }
}

/* What all rows of a call have in common. */
struct call_constants {
    size_t channels;
    double divisor;    /* channels */
    double reciprocal; /* 1 / channels */
    double eps;
    float parameter; /* alpha or beta */
    float scale;
    /* Backward of the centered DyISRU: see centered_dyisru.h, and struct channel_constants. */
    struct channel_constants constants;
    ptrdiff_t channel_mask; /* of a channel, to find its constants: 0 where all have those of the first vector */
    int is_native;          /* the mode, for the kernel of the centered DyISRU's backward pass, which does both */
    int avoids_subnormals;  /* likewise: see struct backward_arguments */
    int is_unusual;         /* forward of elementwise operations: the parameter is; see channel_parameters */
};

/* Backward of the centered DyISRU: what is made of beta at a vector of channels, which need not have the same. */
struct centered_lanes {
    vec parameter;
    vec slope;
    vec power;
    vec rare_scale;
    vec beta;
    float scale;
    int is_native; /* as in call_constants */
};

enum { BITS_OF_LEAST_SQUARE = 0x17800000, BITS_OF_GREATEST_SQUARE = 0x7d800000 }; /* 2^-80 and 2^124 */
enum { SPAN_OF_SQUARES = BITS_OF_GREATEST_SQUARE - BITS_OF_LEAST_SQUARE };

INLINE struct centered_lanes centered_lanes_at(const struct call_constants *call, size_t channel) {
    const struct channel_constants *of = &call->constants;
    const ptrdiff_t i = (ptrdiff_t)channel & call->channel_mask;
    return (struct centered_lanes){vec_load(of->parameter + i),
                                   vec_load(of->slope + i),
                                   vec_load(of->dx_factor + i),
                                   vec_load(of->x_factor + i),
                                   vec_load(of->given + i),
                                   call->scale,
                                   call->is_native};
}

/* The betas of channels from one on. */
INLINE struct betas centered_betas_from(const struct call_constants *call, size_t channel) {
    return (struct betas){call->constants.given + ((ptrdiff_t)channel & call->channel_mask), call->channel_mask != 0};
}

/* Of a row in the backward pass of the centered DyISRU. */
enum row_kind {
    ROW_IS_USUAL,
    ROW_IS_NAN,    /* an element of x is infinite or NaN */
    ROW_OVERFLOWS, /* its du in float: the products of h are made in double */
    ROW_IS_FAR     /* its deviations from the mean may overflow in float: all of it is computed in double */
};

/* What an operation makes of a row. */
struct row_constants {
    enum row_kind kind;
    struct statistics statistics;
    float mean;
    float mean_correction; /* what rounding added to the mean: see row_means.h */
    float mean_du;         /* backward */
    int has_subnormals;    /* backward: products are subnormal, most likely: see rows/subnormals.h */
    double mean_du_in_double;
};

/* The inputs of a row in the backward pass. */
struct backward_row {
    struct reader x;
    struct reader dy;
    struct reader weight;
};

/* One vector of channels in the backward pass. */
struct gradient {
    vec f;              /* forward's f(x), without the scale */
    vec slope;          /* f'(x) times the slope of centered_lanes */
    vec parameter_term; /* h times this is a term of the parameter's gradient, but for constant factors */
};

/* ---- What it does to elements. Rare paths, which are not inlined, get this structure and call its functions through
   their pointers. ---- */

struct elements;

/* If is_one is nonzero all channels have the first of the parameters. */
typedef void channel_parameters_function(struct channel_parameters *made, const float *parameters, size_t count,
                                         int is_one);
/* f of up to SIDE_BY_SIDE vectors, which is computed in the usual way. */
typedef void forward_vectors_function(vec *f, const vec *x, const vec *parameter, int count);
/* The same with less work. Where the bits of a lane of what it returns exceed a limit as unsigned integers f may be
 * wrong. */
typedef vec near_vectors_function(vec *f, const vec *x, const vec *parameter, int count);
/* The limit for parameters of which this is the least. */
typedef uint32_t near_limit_function(float least, const struct elements *elements);
/* Up to SIDE_BY_SIDE vectors of a block, one after the other but for the last. */
struct far_vectors {
    const float *x;
    const float *parameters;
    int has_one_parameter;
    int count;
    size_t first;
    size_t last;
};
/* f of vectors of any x, as forward_vectors makes it. */
typedef void far_vectors_function(vec *f, const struct far_vectors *vectors);
/* SIDE_BY_SIDE vectors of any kind, from a channel of the block on. */
typedef void forward_unusual_function(vec *f, const vec *x, const struct channel_parameters *parameters,
                                      size_t channel);
/* by_doubles: without products of what is tiny, see rows/subnormals.h */
typedef struct gradient gradient_function(vec x, const struct row_constants *row, const struct centered_lanes *lanes,
                                          int by_doubles);
typedef struct gradient rare_gradient_function(vec x, const struct row_constants *row,
                                               const struct centered_lanes *lanes);
typedef vec dx_function(vec h, const struct gradient *gradient, const struct row_constants *row,
                        const struct centered_lanes *lanes, int by_doubles);
typedef vec dx_in_double_function(wide h, const struct gradient *gradient, const struct row_constants *row,
                                  const struct centered_lanes *lanes);
typedef vec rare_bits_function(vec x, const struct row_constants *row, const struct centered_lanes *lanes,
                               int by_doubles);
typedef void in_double_function(const struct block_in_double *block, const struct row_constants *row,
                                const struct call_constants *call);
typedef double term_in_double_function(float x, float beta, const struct row_constants *row);

struct elements {
    int is_centered; /* forward: elementwise but for the mean of a row, which is subtracted first */
    int has_bias;

    /* Forward of elementwise operations: y = (w scale forward_factor) f(x) + b. */
    channel_parameters_function *channel_parameters;
    near_limit_function *near_limit; /* NULL: there are no near_vectors, and the next one is not used */
    far_vectors_function *far_vectors;
    forward_unusual_function *forward_unusual_vectors;
    forward_unusual_function *forward_tiny_vectors; /* any x, most of which is tiny, and usual parameters */
    uint32_t bits_of_tiny_x;                        /* below which that is faster on some CPUs; 0: there is none */
    float forward_factor;
    int one_row_makes_factors; /* w scale forward_factor, for each vector, where this is faster than a buffer of them */

    /* Backward of the centered DyISRU: dx = dx(h, gradient), dweight = sum of dy f, dbias = sum of dy, and the sum of
       h parameter_term. That of the others is in backward_statistics.h and elementwise.h. */
    gradient_function *gradient;
    rare_gradient_function *rare_gradient;
    rare_bits_function *rare_gradient_bits;
    dx_function *dx;
    dx_in_double_function *dx_in_double; /* of a row that overflows */

    /* In double: blocks of rows that float cannot hold, and the terms of a sum that float cannot hold. */
    in_double_function *gradient_in_double;
    term_in_double_function *parameter_term_in_double;

    /* What a numerics mode chooses. */
    int is_native;         /* tells the kernel that does both modes of the centered DyISRU's backward pass */
    float quotients_limit; /* near_vectors hold where beta + x^2 is at most so many times beta; 0: up to 2^124 */
};

/* What the loops of the forward pass of an elementwise operation are made of. All of it is inlined into them: nothing
 * else may keep its address, or there would be copies of these functions that nobody calls. */
struct forward_loops {
    const struct elements *elements;
    forward_vectors_function *vectors;
    near_vectors_function *near_vectors; /* or NULL */
};

/* ---- How a call and its rows begin ---- */

typedef struct call_constants begin_call_function(size_t channels, float eps, float parameter, float scale);
typedef void begin_backward_row_function(struct row_constants *row, const struct backward_row *inputs,
                                         const struct call_constants *call, const struct elements *elements);

/* The forward pass of an elementwise operation, of which the driver is compiled once for all operations and modes. See
 * forward/elementwise.h: some channels of some rows; the means of rows, if they are taken out; a row by itself. */
struct rows_of_block;
typedef void rows_of_block_function(const struct rows_of_block *rows, const struct call_constants *call);
struct row_means;
typedef void find_means_function(struct row_means *means, const float *const *rows, size_t count, size_t channels);
struct one_elementwise_row;
typedef int one_row_function(const struct one_elementwise_row *row);
struct forward_functions {
    begin_call_function *begin_call;
    const struct elements *elements;
    rows_of_block_function *rows_of_block;
    find_means_function *find_means;
    one_row_function *one_row; /* may be NULL */
};

/* Elements of 16 bits: see forward/elementwise_halves.h. The function computes f(x) / factor. */
struct block_of_halves;
typedef size_t block_of_halves_function(const struct block_of_halves *block);
struct elementwise_halves {
    block_of_halves_function *block;
    float factor;
    int makes_factors; /* whether it can do so */
};

struct normalization;

struct operation {
    begin_call_function *begin_call;
    begin_backward_row_function *begin_backward_row; /* of the centered DyISRU: makes its own sums */
    const struct normalization *normalization;       /* see normalization.h; NULL: the operation is not one */
    const struct elements *elements;
    const struct forward_functions *forward;         /* of an elementwise operation */
    struct elementwise_halves of_halves[TYPES];      /* of an elementwise operation */
    const struct elementwise_functions *elementwise; /* the backward pass of an elementwise operation: elementwise.h */
};

#endif
