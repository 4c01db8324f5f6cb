/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a kernel is: the types of its functions, their arguments, and the table of one instruction set. A kernel checks
 * nothing, since the functions of src/api/ have checked the call before.
 */
#ifndef DYNNORM_KERNELS_H
#define DYNNORM_KERNELS_H

#include "element_types.h"
#include "inlining.h"
#include "operations.h"
#include "rows/tensor.h"

enum { MODES = DYNNORM_BRIEF + 1 };

/* The rows that a backward kernel takes together. Blocks of rows are made of whole groups. */
enum { GROUP = 8 };

/* Where it is 0, rows cannot be split, and the compiler leaves out what follows. */
#ifdef DYNNORM_WITHOUT_SPLIT
enum { HAS_SPLIT_ROWS = 0 };
#else
enum { HAS_SPLIT_ROWS = 1 };
#endif

/* Where it is 0, all elements are floats, nothing is done to rows but the norm, calls that need more return
 * DYNNORM_ERROR_LEFT_OUT, and the compiler leaves out what follows. */
#ifdef DYNNORM_WITHOUT_TYPES
enum { HAS_TYPES = 0 };
#else
enum { HAS_TYPES = 1 };
#endif

/* A loop for LayerNorm and RMSNorm, forward, that goes row by row. It is left out with the special loops. */
#ifdef DYNNORM_WITHOUT_SPECIAL_LOOPS
enum { HAS_ROWS_ONE_BY_ONE = 0 };
#else
enum { HAS_ROWS_ONE_BY_ONE = 1 };
#endif

/* Rows whose channels are split into parts (dynnorm_split): rows/split_rows.h. */
struct split_rows {
    size_t parts;
    const size_t *channels; /* of each part */
    size_t part;            /* the one that the tensors of the call have */
    size_t first_block;     /* of this part: how many the parts before have together */
    size_t blocks;          /* of all parts */
    size_t row_channels;    /* of all parts */
    size_t tokens;
    double *sums; /* of all parts, one after the other: [tokens x blocks of the part x doubles] */
    int tells;    /* the sums of this part are written, and nothing else; otherwise those of all parts are read */
};

/* The doubles that are told of a block (rows/blocks.h). */
#define FORWARD_SPLIT_DOUBLES(is_centered) ((is_centered) ? 4 : 2)
#define BACKWARD_SPLIT_DOUBLES(is_centered) ((is_centered) ? 10 : 5)

/* Every output may be NULL, and so may weight and bias. */
struct forward_arguments {
    struct tensor x;
    struct tensor y;
    float *mean;
    float *rstd;
    const float *weight;
    const float *bias;
    float weight_offset;
    float eps;
    float parameter;         /* alpha or beta */
    const float *parameters; /* [channels], those of each channel; NULL: all have the one above */
    float scale;
    size_t channels;
    int streams;           /* store y past the caches; set only if y is aligned as floats are */
    int rows_are_far;      /* x and y of the call are more than the nearer caches hold */
    int fetches_to_write;  /* a store takes long if its line is not in the nearest cache */
    int nearest_is_large;  /* the nearest cache: see dispatch/caches.h */
    int avoids_subnormals; /* products of a tiny x, in DyT and DyISRU: see rows/subnormals.h */
    size_t rows_behind;    /* of x, which follow and come from memory: an elementwise kernel has them prefetched */
    const struct split_rows *split;   /* NULL: rows are whole */
    size_t split_row;                 /* which of its rows the kernel's row 0 is */
    const struct summed_rows *summed; /* NULL: x is there */
};

/* What an operation makes of an alpha or beta for each channel in its backward pass, which means what it does where all
 * have the same: see operations/elementwise.h. Arrays of [PARTIAL_SUMS_CHANNELS(channels)]. */
struct channel_constants {
    const float *parameter;
    const float *slope;
    const float *x_factor;
    const float *dx_factor;
    const float *given; /* beta itself; for the centered DyISRU only */
    int has_x_factor;   /* one that is not 1 */
    int has_dx_factor;
};

/* An elementwise kernel, or that of a norm, takes rows that are not of floats by itself. If it has no loops for
 * their types, rows/typed_rows.h widens some at a time into buffers that stay in the nearest cache, and narrows what
 * becomes dx. */
struct typed_tensors {
    const struct conversion *x; /* NULL: it is of floats, which are read where they lie */
    const struct conversion *dy;
    const struct conversion *dx; /* also of floats */
    const struct conversion *of_dsum;
    struct tensor dsum;  /* added to dx */
    float *buffers;      /* [TYPED_BUFFERS x room], of x, dy and dx, at the beginning of a cache line */
    size_t room;         /* floats of a buffer, in whole cache lines: at least LEAST_TYPED_ROOM */
    dynnorm_type halves; /* the type of 16 bits that all have, if dx is written and not read; otherwise DYNNORM_F32 */
    int dx_is_read; /* it is added to, or takes the place of an input: rows cannot be done again once it is written */
};
enum { TYPED_BUFFERS = 3, LEAST_TYPED_ROOM = GROUP * 256 };

struct backward_arguments {
    struct tensor dy;
    struct tensor x;
    struct tensor dx;
    const float *weight;
    float weight_offset;
    const float *mean; /* may be NULL, and so may rstd */
    const float *rstd;
    float eps;
    float parameter;                           /* alpha or beta */
    const struct channel_constants *constants; /* of each channel; NULL: all have the parameter above */
    float scale;
    size_t channels;
    int accumulate_dx;
    const struct tensor *dsum; /* added to dx, which is none of the others; NULL: there is none, or it is in typed */
    size_t most_pair_channels; /* that two rows may have whose x and dy are to stay in the nearest cache */
    int sums_two_rows;         /* at a time, of LayerNorm and RMSNorm, if there is a loop for it */
    int overlaps_groups;       /* of 64 channels, LayerNorm and RMSNorm, if there is a loop for it */
    int streams;               /* store dx past the caches; for rows that are not aligned see dispatch/caches.c */
    int prefetches_far_rows;   /* of LayerNorm and RMSNorm, if dx is stored so, and there is a loop for it */
    int fetches_ahead;         /* short rows lie in a last-level cache that is far away */
    int fetches_to_write;      /* a store takes long if its line is not in the nearest cache */
    int avoids_subnormals;     /* products of a tiny x or dy, in DyT and DyISRU: see rows/subnormals.h */
    const struct typed_tensors *typed; /* NULL: dy, x and dx are of floats; for the centered DyISRU they always are */
    const struct split_rows *split;    /* NULL: rows are whole; otherwise the statistics are given */
    size_t split_row;
};

/* In bytes, a cache line: a whole number of vectors of every instruction set. */
enum { STREAM_ALIGNMENT = 64 };

/* The channels of a row of which LayerNorm and RMSNorm, backward, collect dx of two rows before they store it past the
 * caches. */
enum { MOST_COLLECTED_CHANNELS = 1024 };

/* The most channels of rows whose cache lines, where two of them meet, go past the caches in the forward pass of
 * LayerNorm and RMSNorm: see rows/forward/shared_lines.h. Of longer rows that gains nothing. */
enum { MOST_CHANNELS_WITH_SHARED_LINES = 1024 };

/* Only whole lines are stored past the caches. Where a part of a line was, and the rest of it was stored as usual, rows
 * took up to 25 times as long. */
INLINE int are_whole_lines(size_t elements, size_t element_bytes) {
    return elements * element_bytes % STREAM_ALIGNMENT == 0;
}

/* How the caller wants a gradient that is a sum over tokens: the sum times factor, which is added to what is there if
 * accumulate is nonzero. */
struct token_gradient {
    float *values; /* NULL: not asked for */
    double factor;
    int accumulate;
    const double *channel_factors; /* of each channel besides, up to the next multiple of 16; NULL: 1 */
};

/* A block of rows' part of the sums over tokens, without the factors of the gradients. The kernel overwrites it. A sum
 * whose pointer is NULL is not computed. */
struct partial_sums {
    double *dweight;    /* [PARTIAL_SUMS_CHANNELS(channels)] */
    double *dbias;      /* [PARTIAL_SUMS_CHANNELS(channels)] */
    double *dparameter; /* [PARTIAL_SUMS_CHANNELS(1)]; with channel_constants as long as the others, and without the
                           factors of each channel */
    /* Set only when one block covers the call: the kernel then writes the final dweight, gradients[0], and dbias,
       gradients[1], and what it leaves in its sums of them means nothing. The factors of both are floats. */
    const struct token_gradient *gradients;
    /* A block may be computed in pieces of whole groups, one after the other. What a piece leaves for the next one may
       be unfinished. Without gradients. */
    int continues;     /* an earlier piece of the block has left its sums here */
    int is_unfinished; /* the next piece will continue them */
};

/* The length of such a sum in memory, which is a whole number of vectors of every instruction set. What lies beyond the
 * channels means nothing. */
#define PARTIAL_SUMS_CHANNELS(channels) (((channels) + 15) / 16 * 16)

/* Computes rows [first, first + rows). */
typedef void forward_kernel(const struct forward_arguments *arguments, size_t first, size_t rows);

/* A vector of channels of any type. */
struct typed_vector {
    const void *data; /* NULL: all elements are the offset */
    dynnorm_type type;
    float offset; /* which else is added to each element, unless it is 0 */
};

/* Rows of x and y of the same type of 16 bits. Both are there, and lie on one axis. */
struct halves_call {
    const unsigned char *x;
    unsigned char *y;
    size_t x_stride; /* bytes */
    size_t y_stride;
    float *mean; /* may be NULL, and so may rstd */
    float *rstd;
    struct typed_vector weight; /* absent ones are 1 and -0: see reader.h */
    struct typed_vector bias;
    struct typed_vector parameters; /* alpha or beta */
    float eps;
    float scale;
    size_t channels;
    dynnorm_type type;         /* of x and y */
    int rounds_before_weight;  /* for normalizations; other kernels then get no weight and no bias */
    int rounds_by_instruction; /* to bfloat16, where there are no denormals: see dispatch/caches.h */
    int streams; /* store y past the caches; for normalizations only if y is aligned at STREAM_ALIGNMENT */
    const struct summed_rows *summed; /* NULL: x is there */
};

/* Computes so many rows. The bits are those of a forward_kernel between conversions, but for those of the brief mode.
 */
typedef void halves_kernel(const struct halves_call *call, size_t rows);

/* Computes rows [first, first + rows) and their partial sums. They are one block, or the beginning of one. */
typedef void backward_kernel(const struct backward_arguments *arguments, size_t first, size_t rows,
                             const struct partial_sums *sums);

/* Adds count doubles of sums to those of total. count is a multiple of 16. */
typedef void add_sums_function(double *total, const double *sums, size_t count);

/* Writes the count elements of a gradient. Each of the slots, which lie slot_size doubles apart, holds the sums of one
 * block; they are added in this order. A slot may be read up to the next multiple of 16 elements. */
typedef void finish_sums_function(const struct token_gradient *gradient, size_t count, const double *sums, size_t slots,
                                  size_t slot_size);

/* Some channels of a sum of elements of a type, at any address. */
struct sum_of_elements {
    void *to;          /* may be a or b; of floats also NULL, if they only go past the caches */
    void *past_caches; /* where the sum goes besides, or NULL; a multiple of STREAM_ALIGNMENT */
    const void *a;
    const void *b;
    const float *bias; /* added to the sum before it is rounded, or NULL */
    size_t count;
    size_t ahead; /* so many bytes after a and b others are prefetched, or 0: none are */
};

/* Rows that a normalization with more than BLOCK channels makes where it reads x first, so that their y and, perhaps,
 * they themselves go past the caches. x is then where the sums go: rows on one axis, or a ring of ROWS_OF_RING rows. A
 * tensor of floats that is such a ring has two axes, the second with a stride of 0. */
struct summed_rows {
    struct tensor a;
    struct tensor b;
    struct tensor past_caches; /* where the sums go besides, if it has data */
    size_t first;              /* which of these rows the kernel's row 0 is, with which it begins */
    int is_ring;
    unsigned char *to; /* x of a halves_kernel */
    const float *bias; /* as in sum_of_elements */
    void (*sum)(const struct sum_of_elements *sum);
};
enum { ROWS_OF_RING = 2 * GROUP };

/* Elements of a type, at any address, and floats. Conversion to float is exact; that from float is rounded to nearest,
 * and stores past the caches if streams is nonzero. */
struct conversion {
    void (*widen)(float *to, const void *from, size_t count);
    void (*add)(float *to, const float *a, const void *b, size_t count); /* to = a + b; to may be a */
    void (*narrow)(void *to, const float *from, size_t count, int streams);
    void (*sum)(const struct sum_of_elements *sum);
    /* elements *= weight or, if that is NULL, elements += bias; rounded to the type. */
    void (*weigh)(void *elements, const float *weight, const float *bias, size_t count);
};

/* Writes each float times 1 / scale as the nearest integer from -127 to 127, and 0 for a NaN. If row_scale is not NULL,
 * the factor is 127 / greatest absolute value instead, and greatest / 127 is written there. Both are 0 if all values
 * are below 2^-120. A NaN counts as greater than an infinity, and that as greater than all others. */
typedef void quantize_function(void *to, const float *from, size_t count, float scale, float *row_scale);

#ifndef DYNNORM_WITHOUT_TYPES
/* Plain C has them once: its table for CPUs that have a fused multiply-add takes those of the other one. */
extern const struct conversion dynnorm_scalar_conversions[TYPES];
extern quantize_function dynnorm_scalar_quantize;
#endif

/* A plain call. Those with one token and nothing unusual about them take less time than filling in the arguments above,
 * so there are kernels that take the plain call's own arguments. */
typedef dynnorm_status layernorm_call(float *y, float *mean, float *rstd, const float *x, const float *weight,
                                      const float *bias, float eps, size_t tokens, size_t channels);
typedef dynnorm_status rmsnorm_call(float *y, float *rstd, const float *x, const float *weight, float eps,
                                    size_t tokens, size_t channels);
typedef dynnorm_status dyt_call(float *y, const float *x, const float *weight, const float *bias, float alpha,
                                float scale, size_t tokens, size_t channels);
typedef dynnorm_status dyisru_call(float *y, const float *x, const float *weight, const float *bias, float beta,
                                   float scale, size_t tokens, size_t channels);

/* The plain calls for any arguments. The kernels for one token end with them if it turns out that the row is unusual.
 */
layernorm_call dynnorm_layernorm_any;
rmsnorm_call dynnorm_rmsnorm_any;
dyt_call dynnorm_dyt_any;
dyisru_call dynnorm_dyisru_any;

/* The table of one instruction set. A kernel is NULL if the mode has none of its own for the operation,
 * or the build leaves it out. */
struct kernels {
    const char *isa;               /* its public name */
    size_t lanes;                  /* floats of a vector */
    layernorm_call *layernorm_row; /* for one token, if nothing but mean and rstd is NULL */
    rmsnorm_call *rmsnorm_row;
    dyt_call *dyt_row;
    dyisru_call *dyisru_row;
    forward_kernel *forward[OPERATIONS][MODES];
    halves_kernel *halves[OPERATIONS][MODES];
    backward_kernel *backward[OPERATIONS][MODES];
    add_sums_function *add_sums;
    finish_sums_function *finish_sums;
    const struct conversion *conversions; /* of each type */
    void (*end_streaming)(void);          /* call it after the last conversion that stores past the caches */
    quantize_function *quantize;
    int (*changes_results)(void); /* whether it was compiled such that it gives other bits: see define_table.h */
};

/* The modes of kernels.def as values of the public enumeration. */
enum {
    mode_portable = DYNNORM_PORTABLE,
    mode_native = DYNNORM_NATIVE,
    mode_sleef = DYNNORM_SLEEF,
    mode_brief = DYNNORM_BRIEF
};

#endif
