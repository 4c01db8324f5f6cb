/* SPDX-License-Identifier: BSD-2-Clause
 *
 * libdynnorm: LayerNorm, RMSNorm, Dynamic Tanh (DyT) and the Dynamic Inverse Square Root Unit (DyISRU), forward and
 * backward, over [tokens x channels] tensors of float; by the descriptor of bfloat16 and float16, too.
 *
 * In this file x is one row of C channels; a row is also called a token. w is the weight (with a weight_offset, their
 * sum rounded to float), b the bias, and h = w * dy. Means and sums run over the channels of the row unless they say
 * "tokens". u = 2^-24 is half the distance from 1 to the next float.
 *
 * The following holds for every function, unless its comment says otherwise:
 *
 *   shapes     x, y, dx and dy are [tokens x channels], row-major, of float. weight, bias, dweight and dbias are
 *              [channels]. mean and rstd are [tokens]. dalpha and dbeta are one float (see parameter_per_channel).
 *   order      Outputs come first, the shape comes last.
 *   NULL       An output that is NULL is not computed. A weight that is NULL counts as 1, a bias that is NULL as 0. At
 *              least one output must be given, unless there are no tokens.
 *   gradients  They overwrite what was there.
 *   aliasing   y may be x, dx may be dy, and dx may be x: the operation is then done in place. This needs the same data
 *              and the same place for every row. Otherwise an output must not overlap any other buffer. Inputs may
 *              overlap inputs.
 *   alignment  None is required. Large outputs are written fastest at multiples of 64 bytes (see
 *              keep_output_in_cache).
 *   errors     Every argument is checked before anything is written: after an error all outputs are untouched. If
 *              several things are wrong, a missing or unknown descriptor is reported first, then channels == 0, then
 *              any of the others.
 *   no tokens  A call with tokens == 0 succeeds. Its data pointers may be NULL, and gradients that are sums over tokens
 *              are set to 0.
 *   threads    Every function may be called from any number of threads at once. The library starts no threads, but a
 *              call may use a pool of the caller's own: see dynnorm_executor. The library prints nothing, and leaves
 *              errno, the rounding mode and the traps as they are. It may raise floating-point exception flags.
 *   bits       In the default mode the same input gives the same bits on every CPU, however the rows are split among
 *              calls or threads, at every alignment, in place or not. This assumes the default floating-point
 *              environment (round to nearest, no flush to zero), and leaves the sign and the payload of a NaN open.
 *   bounds     The error bounds say how far a result may be from the exact one. They hold for finite inputs, and
 *              docs/bounds.md derives them. Those with an asterisk are proven there only with a larger factor, but no
 *              search has found an error beyond them. If an intermediate result underflows, add 2^-149 times the
 *              factors that multiply it afterwards; for tanh and q, add as many 2^-149 as their bound has ULP. Where a
 *              bound reaches beyond the largest float, the result may be an infinity.
 */
#ifndef DYNNORM_H
#define DYNNORM_H

#include <stddef.h>

#define DYNNORM_VERSION_MAJOR 0
#define DYNNORM_VERSION_MINOR 2
#define DYNNORM_VERSION_PATCH 0
#define DYNNORM_VERSION_STRING "0.2.0"

#ifdef DYNNORM_STATIC
#define DYNNORM_API static
#elif defined _WIN32 && defined DYNNORM_SHARED
#ifdef DYNNORM_BUILDING
#define DYNNORM_API __declspec(dllexport)
#else
#define DYNNORM_API __declspec(dllimport)
#endif
#elif defined __GNUC__ && defined DYNNORM_BUILDING
#define DYNNORM_API __attribute__((visibility("default")))
#else
#define DYNNORM_API
#endif

/* The null pointer in this header's macros: some compilers warn of 0 or NULL in C++. */
#if defined __cplusplus && __cplusplus >= 201103L
#define DYNNORM_NULL nullptr
#else
#define DYNNORM_NULL NULL
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum {
    DYNNORM_OK = 0,
    DYNNORM_ERROR_NULL_DESCRIPTOR,     /* the descriptor is NULL */
    DYNNORM_ERROR_DESCRIPTOR,          /* the descriptor's size is not one that this library knows */
    DYNNORM_ERROR_ZERO_CHANNELS,       /* channels is 0 */
    DYNNORM_ERROR_OPERATION,           /* the operation is unknown, or not one for this function */
    DYNNORM_ERROR_UNUSED_BUFFER,       /* a buffer is given that the operation does not use, such as a mean to DyT; or
                                          parameter_per_channel to a norm without alpha or beta */
    DYNNORM_ERROR_MODE,                /* the numerics mode is unknown */
    DYNNORM_ERROR_MODE_UNAVAILABLE,    /* this build or this CPU cannot run the mode, as where SLEEF is absent */
    DYNNORM_ERROR_TYPE,                /* an element type is unknown or not supported */
    DYNNORM_ERROR_SIZE_OVERFLOW,       /* a tensor, with its strides, exceeds the address space */
    DYNNORM_ERROR_AXES,                /* more than 3 axes, or the product of their rows is not tokens, or axis strides
                                          are given while axes is 0 */
    DYNNORM_ERROR_STRIDE,              /* rows of an output overlap one another */
    DYNNORM_ERROR_EPS,                 /* eps is negative, infinite or NaN */
    DYNNORM_ERROR_ALPHA,               /* alpha is infinite or NaN */
    DYNNORM_ERROR_BETA,                /* beta is negative, infinite or NaN */
    DYNNORM_ERROR_SCALE,               /* scale is infinite or NaN */
    DYNNORM_ERROR_WEIGHT_OFFSET,       /* weight_offset is infinite or NaN */
    DYNNORM_ERROR_NO_OUTPUT,           /* all outputs are NULL, so that there is nothing to compute */
    DYNNORM_ERROR_NULL_POINTER,        /* an input that an output needs is NULL, or the place for an answer is */
    DYNNORM_ERROR_OVERLAP,             /* two buffers overlap that must not */
    DYNNORM_ERROR_ROW_RANGE,           /* the range of rows goes beyond the tokens, or its step is 0 */
    DYNNORM_ERROR_ROW_BLOCK,           /* the range of rows does not begin and end with a block */
    DYNNORM_ERROR_WORKSPACE_MISSING,   /* ranges of rows need a workspace, and workspace is NULL */
    DYNNORM_ERROR_WORKSPACE_TOO_SMALL, /* workspace_size is smaller than dynnorm_workspace_size says */
    DYNNORM_ERROR_OUT_OF_MEMORY,       /* memory for the duration of the call could not be allocated: a workspace that
                                          was not given, buffers, or constants made of alphas or betas */
    DYNNORM_ERROR_ISA_UNKNOWN,         /* no instruction set has that name */
    DYNNORM_ERROR_ISA_UNAVAILABLE,     /* this build, CPU or operating system cannot run that instruction set */
    DYNNORM_ERROR_LEFT_OUT,     /* this build leaves out the operation, this pass of it, the executor, or types; or
                                   flags changed the results of all its kernels, so that none is used */
    DYNNORM_ERROR_OUTPUT_SCALE, /* y_scale is out of its range; or y is of DYNNORM_I8 and there is
                                   neither y_scale nor y_scales, or both; or y is of another type and there is
                                   one of them */
    DYNNORM_ERROR_EXECUTOR,     /* the executor has a parallel_for but no threads, or no parallel_for although
                                   another of its fields is set */
    DYNNORM_ERROR_PREPARED,     /* the prepared call is NULL, was not prepared, or its size is unknown */
    DYNNORM_ERROR_SPLIT,        /* a dynnorm_split is NULL, its size is unknown, it has no parts, or a part without
                                   channels, or not the call's channels for its part; or the call has a residual or
                                   y_scales */
    DYNNORM_ERROR_RESIDUAL      /* a backward call has a residual, a residual_bias or a sum, and its x is not in the
                                   place of the sum, which is what was normalized */
} dynnorm_status;

/* A description of a status in English; never NULL. dynnorm_explain_forward and its kin, below, also name the fields of
 * a descriptor that are wrong. For a plain call, explain a descriptor with the same arguments. */
DYNNORM_API const char *dynnorm_status_string(dynnorm_status status);

/* ---- LayerNorm (Ba, Kiros, Hinton, arXiv 1607.06450) -------------------------------------------------------------
 *
 *   m = mean(x), v = mean((x - m)^2), r = 1 / sqrt(v + eps), n = (x - m) r, y = w n + b
 *   dx = r (h - mean(h) - n mean(h n)), dw = sum over tokens of dy n, db = sum over tokens of dy
 *
 * eps is finite and >= 0. If eps is 0, a row whose variance is exactly 0 gives n = 0, rstd = 0 and dx = 0. A row that
 * holds an infinity or a NaN becomes NaN.
 *
 * Bounds, for 1 to 65536 channels and |mean| up to 10^6 deviations:
 *   y      4 u (|w| max(|n|, 1) + |b|)
 *   mean   1.1 u max(|mean|, deviation)        rstd   3 u rstd
 *   dx     16 u times the largest |r h| or |r n| mean(|h n|) of the row *
 *   dw     11 u sum(|dy| max(|n|, 1))          db     4 u sum(|dy|), however many tokens
 * The deviation is sqrt(v). Those of dx and dw assume that a given rstd is no more than 1 / deviation, as forward
 * computes it; r is that rstd then.
 */

/* mean and rstd receive m and r of each row. Pass NULL for y to compute only them. */
DYNNORM_API dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x,
                                                         const float *weight, const float *bias, float eps,
                                                         size_t tokens, size_t channels);

/* Pass the mean and rstd that the forward call gave, or NULL to recompute them from x. Recomputing is more exact, since
 * one float cannot hold the mean of a row of mean 10^6, nor the rstd of a row of denormals. A given mean is only used
 * as a shift, and what it is off by is recomputed; a given rstd is used as it is. If you pass one of them alone, the
 * other one is recomputed. */
DYNNORM_API dynnorm_status dynnorm_layernorm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                          const float *x, const float *weight, const float *mean,
                                                          const float *rstd, float eps, size_t tokens, size_t channels);

/* ---- RMSNorm (Zhang, Sennrich, arXiv 1910.07467) -----------------------------------------------------------------
 *
 *   r = 1 / sqrt(mean(x^2) + eps), n = x r, y = w n
 *   dx = r (h - n mean(h n)), dw = sum over tokens of dy n
 *
 * eps is finite and >= 0. If eps is 0, a row of zeros gives n = 0, rstd = 0 and dx = 0. A row that holds an infinity or
 * a NaN becomes NaN.
 *
 * Bounds, for 1 to 65536 channels:
 *   y      5 u |w n|                           rstd   3 u rstd
 *   dx     12 u times the largest |r h| or |r n| mean(|h n|) of the row
 *   dw     7 u sum(|dy n|), however many tokens
 * If rstd is given, r is that rstd.
 */

/* rstd receives r of each row. Pass NULL for y to compute only it. */
DYNNORM_API dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight,
                                                       float eps, size_t tokens, size_t channels);

/* Pass the rstd that the forward call gave, which is used as it is, or NULL to recompute it from x. */
DYNNORM_API dynnorm_status dynnorm_rmsnorm_backward_f32(float *dx, float *dweight, const float *dy, const float *x,
                                                        const float *weight, const float *rstd, float eps,
                                                        size_t tokens, size_t channels);

/* ---- Dynamic Tanh (Zhu, Chen, He, LeCun, Liu, arXiv 2503.10622) --------------------------------------------------
 *
 *   t = tanh(alpha x), y = w s t + b, with s = scale (1 as published)
 *   dx = s alpha h (1 - t^2), dalpha = sum over tokens and channels of s h x (1 - t^2),
 *   dw = sum over tokens of dy s t, db = sum over tokens of dy
 *
 * alpha and scale are finite. An infinite alpha x gives t = +-1 and gradients of 0. If alpha is 0, an infinite x gives
 * NaN.
 *
 * Bounds:
 *   tanh   in y 2.5 ULP; odd, monotone, never beyond +-1
 *   y      6 u (|w s t| + |b|)
 *   dx     10 u times the largest |s alpha h| of the row
 *   dw     10 u sum(|dy s t|)                  db     4 u sum(|dy|), however many tokens
 *   dalpha sum of (12 + 4 |alpha x|) u |s h x (1 - t^2)|, plus 2^-90 sum(|s h x|): beyond an |alpha x| of 32, where
 *          1 - t^2 is less than 2^-90, it counts as 0
 */

DYNNORM_API dynnorm_status dynnorm_dyt_forward_f32(float *y, const float *x, const float *weight, const float *bias,
                                                   float alpha, float scale, size_t tokens, size_t channels);

DYNNORM_API dynnorm_status dynnorm_dyt_backward_f32(float *dx, float *dweight, float *dbias, float *dalpha,
                                                    const float *dy, const float *x, const float *weight, float alpha,
                                                    float scale, size_t tokens, size_t channels);

/* ---- Dynamic Inverse Square Root Unit (Stollenwerk, arXiv 2503.21708) ---------------------------------------------
 *
 *   q = x / sqrt(beta + x^2), y = w s q + b, with s = scale
 *   dx = s h beta (beta + x^2)^(-3/2), dbeta = sum over tokens and channels of -s h x (beta + x^2)^(-3/2) / 2,
 *   dw = sum over tokens of dy s q, db = sum over tokens of dy
 *
 * In the derivations from RMSNorm and LayerNorm scale is sqrt(C) and sqrt(C - 1): the two functions below compute it.
 * The ISRU of Carlile et al. (arXiv 1710.09967), x / sqrt(1 + a x^2), has beta = 1 / a and scale = sqrt(beta).
 *
 * beta is finite and >= 0. If beta is 0, q is sign(x), and all gradients are 0 where x is 0. scale is finite. An
 * infinite x gives q = +-1 and gradients of 0.
 *
 * Bounds:
 *   q      2 ULP; odd, never beyond +-1
 *   y      5 u (|w s q| + |b|)
 *   dx     10 u times the largest |s h / sqrt(beta)| of the row
 *   dw     8 u sum(|dy s q|)                   db     4 u sum(|dy|), however many tokens
 *   dbeta  13 u sum of |s h x (beta + x^2)^(-3/2) / 2|
 *
 * Centered DyISRU, which is DyISRU of x - mean(x), is the operation DYNNORM_CENTERED_DYISRU of the descriptor below.
 */

DYNNORM_API dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias,
                                                      float beta, float scale, size_t tokens, size_t channels);

DYNNORM_API dynnorm_status dynnorm_dyisru_backward_f32(float *dx, float *dweight, float *dbias, float *dbeta,
                                                       const float *dy, const float *x, const float *weight, float beta,
                                                       float scale, size_t tokens, size_t channels);

/* The scale with which DyISRU stands in for RMSNorm, sqrt(channels), and for LayerNorm, sqrt(channels - 1). Both are
 * correctly rounded for up to 2^52 channels. dynnorm_scale_layernorm(0) is 0. */
DYNNORM_API float dynnorm_scale_rmsnorm(size_t channels);
DYNNORM_API float dynnorm_scale_layernorm(size_t channels);

/* ---- Instruction sets --------------------------------------------------------------------------------------------
 *
 * At first use the library chooses the best instruction set that this CPU and its operating system can run. If the
 * environment variable DYNNORM_ISA names another one that they can run, it chooses that one instead. It ignores a name
 * that is unknown or cannot be run.
 */

/* The name of the instruction set in use: "scalar", "avx2", "avx512" or "neon". It is "none" if the library was
 * compiled with flags that change the results of all its kernels. */
DYNNORM_API const char *dynnorm_isa(void);

/* Uses the named instruction set from now on, in every thread; NULL stands for the best one. The errors are ISA_UNKNOWN
 * and ISA_UNAVAILABLE; after an error the one in use stays. Calls that are running finish as they began. */
DYNNORM_API dynnorm_status dynnorm_set_isa(const char *name);

/* Returns how many instruction sets can run here. Unless names is NULL, writes their names to it, the best one first,
 * at most capacity of them. */
DYNNORM_API size_t dynnorm_isas(const char **names, size_t capacity);

/* The version of the library in use. DYNNORM_VERSION_STRING is the version of this header, which may be another one. */
DYNNORM_API const char *dynnorm_version(void);

/* ---- The descriptor ----------------------------------------------------------------------------------------------
 *
 * The descriptor adds what the plain calls above leave out: row strides and rows on several axes, ranges of rows for
 * the caller's own threads, a workspace that the caller owns, a weight offset, accumulated gradients, numerics modes,
 * centered DyISRU, other element types than float, a residual that is added before the norm, and integers of 8 bits as
 * outputs. A plain call computes what a descriptor with the same arguments does that has defaults for everything else.
 *
 *     dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
 *     call.operation = DYNNORM_RMSNORM;
 *     call.tokens = 32, call.channels = 4096;
 *     call.x.data = x, call.y.data = y, call.weight.data = weight;
 *     call.weight_offset = 1, call.eps = 1e-6f;
 *     dynnorm_status status = dynnorm_forward(&call);
 *
 * Elements of other types than float are converted to float, which is exact; everything is computed as in float; and
 * the results are rounded once more, to nearest, ties to even. Denormals are kept, what is too large becomes an
 * infinity, and a NaN stays one. This adds half of a unit in the last place of the stored type to the bounds above. The
 * statistics, the gradients of alpha and beta, and everything in between are of float. Three things are computed in
 * another way: DYNNORM_BRIEF, round_before_weight, and the sum with a residual, which is rounded before it is
 * normalized.
 *
 * DYNNORM_DESCRIPTOR_INIT sets size and scale, and all other fields to 0, which is the default of each. So a
 * program only sets what it needs. But tokens, eps, alpha and beta have no useful default: a 0 is taken literally and
 * is no error, so set them. The operation is DYNNORM_LAYERNORM unless it is set, and the type of every tensor and
 * vector is float, each by itself. The library cannot see how large a buffer is: if you forget to set dweight.type, it
 * writes floats.
 *
 * The functions neither keep nor change the descriptor. Its pointers serve for inputs and outputs alike: cast away the
 * const of an input, which is only read.
 *
 * One descriptor may serve both passes, as in a training step:
 *
 *     call.dy.data = dy, call.dx.data = dx, call.dweight.data = dweight;
 *     status = dynnorm_backward(&call);
 *
 * But not after a forward pass in place: where y is x, x is gone, and no check can see it.
 *
 * Each pass ignores what only the other one reads or writes. Forward ignores dy, dx, dsum, the gradients, the flags
 * that accumulate them, and the workspace. Backward ignores y, its scales, the bias, and the flags of rounding: its
 * gradients are those of the operation without rounding. Backward does not ignore the residual: see there. Both passes
 * check that every type is known, that nothing is given which the operation does not have, and that there are no axis
 * strides without axes.
 *
 * A later version may add fields at the end. The library tells from size which fields a descriptor has, and takes the
 * defaults for the others. A program for a later version does not run with an earlier library: that returns
 * DYNNORM_ERROR_DESCRIPTOR. docs/descriptor.md lists the offsets of the fields, for callers from other languages.
 */

typedef enum {
    DYNNORM_LAYERNORM = 0,
    DYNNORM_RMSNORM,
    DYNNORM_DYT,
    DYNNORM_DYISRU,
    DYNNORM_CENTERED_DYISRU /* centered DyISRU: DyISRU of x - mean(x). dx = du - mean(du), where du is the dx of DyISRU.
                               A row that holds an infinity or a NaN becomes NaN. The bounds are those of DyISRU with
                               two changes: |q| counts as 1, and dx has 20 u (with an asterisk) instead of 10. Besides,
                               x - mean(x) may be off by 2^-46 max(|mean|, deviation): add to each bound what that makes
                               of the result. */
} dynnorm_operation;

typedef enum {
    DYNNORM_PORTABLE = 0, /* The same bits on every CPU, and the bounds above. */
    DYNNORM_NATIVE,       /* May use what this CPU does fast, so bits may differ between CPUs: estimates of 1 / sqrt for
                             DyISRU and centered DyISRU with AVX-512, AVX2 and NEON, and tables of coefficients for
                             DyT with AVX-512. All else is as in DYNNORM_PORTABLE. tanh and q are within 4
                             ULP, and q of -0 may be 0. The bound of dalpha is 16 u times the sum of |s h x|, and that
                             of dbias is the one above. All other bounds of DyT, DyISRU and centered DyISRU are
                             doubled. */
    DYNNORM_SLEEF,        /* tanh is SLEEF's deterministic u10 function: it is within 1 ULP, and gives the same bits on
                             every CPU that has fused multiply-add. All else is as in DYNNORM_PORTABLE. The error is
                             MODE_UNAVAILABLE where the library was built without SLEEF or the CPU has no fused
                             multiply-add. */
    DYNNORM_BRIEF         /* No more exact than 16 bits show, with the same bits on every CPU. This mode is for forward
                             calls of DyT and DyISRU whose x and y are both of DYNNORM_BF16, or both of DYNNORM_F16,
                             without a residual. Their round_before_weight must be 0, unless weight and bias are absent,
                             where it has no effect. Every other call is computed as in DYNNORM_PORTABLE. tanh and q are
                             within a quarter of a unit in the last place of the type: e = 2^-10 of the result for
                             bfloat16, e = 2^-13 for float16. The bound of y before it is rounded is e |w s t| or e |w s
                             q|, and 2 u |b|. tanh and q are odd. tanh is never beyond +-1. q may be beyond it by e; if
                             w = s = 1 and there is no bias, y never is.
                             The bits of an element depend on its own x, w, b and alpha or beta, and on scale. */
} dynnorm_mode;

typedef enum {
    DYNNORM_F32 = 0, /* IEEE 754 binary32 */
    DYNNORM_BF16,    /* bfloat16: the upper 16 bits of a binary32 */
    DYNNORM_F16,     /* IEEE 754 binary16 */
    DYNNORM_I8       /* integers from -127 to 127, which stand for themselves times a scale; y only */
} dynnorm_type;

/* A tensor of [tokens x channels]. The channels of a row are contiguous. */
typedef struct {
    void *data;        /* an input's data is only read */
    size_t row_stride; /* in elements, from one row to the next; 0 means channels, so that the tensor is contiguous.
                          Rows of an input may overlap one another, rows of an output may not. Rows of one tensor may
                          lie between those of another. Ignored where the descriptor has axis strides for the tensor. */
    dynnorm_type type;
} dynnorm_tensor;

/* A vector of [channels], contiguous. */
typedef struct {
    void *data; /* an input's data is only read */
    dynnorm_type type;
} dynnorm_vector;

/* Functions of an executor. A task is a function of the library: it computes a part of a call. */
typedef void dynnorm_task(void *context, size_t index);
typedef void dynnorm_parallel_for(void *pool, dynnorm_task *task, void *context, size_t tasks);

/* A pool of threads that belongs to the caller, as the field executor of a descriptor. dynnorm_forward and
 * dynnorm_backward then share their rows among these threads. The bits are the same as without an executor, whatever
 * the number of threads, and whichever of them runs which task.
 *
 *     static void run_on_my_pool(void *pool, dynnorm_task *task, void *context, size_t tasks) {
 *         my_pool_for_each(pool, tasks, task, context);
 *     }
 *     call.executor.parallel_for = run_on_my_pool, call.executor.pool = pool, call.executor.threads = 8;
 *
 * dynnorm_executors.h has executors for OpenMP and pthreadpool; they are a library of their own.
 *
 * The call is checked before anything runs: after an error parallel_for has not been called. A call for which the
 * threads would gain nothing is computed by the thread that makes it, and parallel_for is not called either. Otherwise
 * that thread calls it once; a backward pass whose gradients have many sums to add calls it a second time, after the
 * first time returned. The tasks share no output, wait for nothing, and never call parallel_for themselves. Several
 * threads may make calls with one executor at the same time if its pool allows that.
 *
 * The threads must have the default floating-point environment: a pool may be told to flush denormals to zero, which
 * changes bits. */
typedef struct {
    /* Calls task(context, index) once for each index from 0 to tasks - 1, in any order, on any threads, the caller's
       own among them, and returns after the last of these calls has returned. The tasks must see what was written
       before parallel_for was called, and its caller must see what the tasks wrote, as with every pool's own such
       function. It cannot fail: if it has fewer threads than it should have, these run all of the tasks. NULL: there is
       no executor. */
    dynnorm_parallel_for *parallel_for;
    void *pool;            /* is passed to parallel_for, for which alone it means something */
    size_t threads;        /* how many tasks the pool can run at the same time. There may be up to four times as many
                              tasks as threads, so that a thread that is done early can take another one. */
    size_t least_elements; /* the elements of [tokens x channels] for which a task is worth its while. A call has at
                              most its elements / least_elements tasks; if that is less than two, the calling thread
                              computes it alone. 0 is 32768. */
} dynnorm_executor;

typedef struct {
    size_t size; /* sizeof(dynnorm_descriptor), which DYNNORM_DESCRIPTOR_INIT sets. It tells which fields there are. */
    dynnorm_operation operation;
    dynnorm_mode mode;
    size_t tokens;
    size_t channels;

    dynnorm_tensor x;      /* input */
    dynnorm_tensor y;      /* output of forward */
    dynnorm_tensor dy;     /* input of backward */
    dynnorm_tensor dx;     /* output of backward */
    dynnorm_vector weight; /* optional input */
    dynnorm_vector bias;   /* optional input of forward; RMSNorm has none */
    float weight_offset;   /* is added to every weight, and is finite. Gemma's 1 + w is a weight_offset of 1. Ignored
                              where no weight is given. */

    float *mean; /* LayerNorm: output of forward, optional input of backward */
    float *rstd; /* LayerNorm, RMSNorm: output of forward, optional input of backward */
    float eps;   /* LayerNorm, RMSNorm */
    float alpha; /* DyT. If it is 0, y is the bias. */
    float beta;  /* DyISRU, centered DyISRU. If it is 0, q is a sign. */
    float scale; /* DyT, DyISRU, centered DyISRU: s of the formulas; 1 by default */

    dynnorm_vector dweight; /* outputs of backward */
    dynnorm_vector dbias;
    float *dalpha; /* DyT */
    float *dbeta;  /* DyISRU, centered DyISRU */

    /* Set these to nonzero to add a gradient to what is there instead of overwriting it. A sum over tokens is added
       once, at the end, and the result is rounded once; dx is rounded to float before it is added, and dsum comes last:
       (what was there + dx) + dsum. An accumulated dx must not alias dy, x or dsum. A field is ignored if its
       gradient is not asked for. */
    int accumulate_dx;
    int accumulate_dweight;
    int accumulate_dbias;
    int accumulate_dalpha;
    int accumulate_dbeta;

    void *workspace; /* scratch memory of backward, owned by the caller, of any alignment; forward needs none */
    size_t workspace_size;

    /* Set this to nonzero if the program reads y, sum or dx right after the call. The bits are the same.

       A large output would not stay in the caches. So it is written past them where the CPU can do that: this takes
       less time. If the program reads the output at once, that mostly pays only for a still larger one: a nonzero value
       raises the limit. docs/past-the-caches.md says where the limits are, and which outputs are left in the caches.
       The limits depend on the CPU's caches, and may change in any version. */
    int keep_output_in_cache;

    /* Rows on several axes, as with heads or batches. axes is 0 or up to 3. If it is 0, the rows of every tensor lie
       its row_stride apart. Otherwise axis_rows tells how many rows lie on each axis, the innermost one first; their
       product must be tokens. Row r is at index r % axis_rows[0] of the first axis, r / axis_rows[0] % axis_rows[1] of
       the second, and so on; mean and rstd have their rows in this order, and ranges of rows count in it. */
    size_t axes;
    size_t axis_rows[3];

    /* For each tensor the distance from one row to the next on each of the axes, in elements, or NULL if its rows lie
       row_stride apart in spite of the axes. A stride is taken literally: 0 repeats the rows of an input along that
       axis, as in a broadcast. The rows of an output must not overlap. The arrays must last as long as the call.

       This normalizes the heads of q in place, inside a packed qkv of [tokens x 3 x heads x 128]; those of k begin at
       qkv + heads * 128:

           const size_t strides[] = {128, 3 * heads * 128};
           call.channels = 128;
           call.tokens = tokens * heads;
           call.axes = 2;
           call.axis_rows[0] = heads, call.axis_rows[1] = tokens;
           call.x.data = call.y.data = qkv;
           call.x_axis_strides = call.y_axis_strides = strides;

       A tensor of ggml has the channels ne[0], the axis_rows ne[1], ne[2], ne[3], and the strides nb[1] / nb[0], nb[2]
       / nb[0], nb[3] / nb[0], since nb counts bytes; its nb[0] must be the size of an element.

       Whether two tensors overlap is decided exactly if they have equal strides in bytes, or if one of them has no gaps
       between its rows. Other tensors are taken to overlap if the memory from the first to the last element of one
       meets that of the other. */
    const size_t *x_axis_strides;
    const size_t *y_axis_strides;
    const size_t *dy_axis_strides;
    const size_t *dx_axis_strides;

    /* Forward: the residual connection before a norm, in one pass. With a residual what is normalized is

           r = (x + residual) + residual_bias

       in place of x, where each sum is one of floats and residual_bias may be absent. sum receives r, rounded to its
       type; the norm then is that of the rounded r, as if a call of its own had added. If normalize_unrounded_sum is
       nonzero, it is that of r before rounding. Without sum, r is rounded to the type of x. In float both are the same.
       Without a residual, sum and residual_bias must be NULL; the error is NULL_POINTER. sum and y may each be in the
       place of x or residual: the same data, the same place for every row, and elements of the same size.

       Backward takes as x what was normalized, the sum. So a program that trains must ask for sum. Where the sum did
       not replace x, set x to it before the backward pass. A residual, residual_bias or sum is an error of backward,
       RESIDUAL, unless x has the data, the type and the rows of sum; then they are ignored. After
       normalize_unrounded_sum the gradients are those at the rounded sum; with a sum of float both are the same. */
    dynnorm_tensor residual;
    dynnorm_vector residual_bias;
    dynnorm_tensor sum; /* output */
    const size_t *residual_axis_strides;
    const size_t *sum_axis_strides;
    int normalize_unrounded_sum;

    /* Backward: the gradient that arrives at sum from elsewhere. It is added to dx, which must be given. dx then is the
       gradient of x and of residual alike; x stands for the sum of forward. dx may be in the place of dsum. */
    dynnorm_tensor dsum; /* optional input */
    const size_t *dsum_axis_strides;

    /* Forward: set this to nonzero to round n (of DyT and DyISRU: s t or s q) to the type of y before it is multiplied
       by the weight, the product once more, and so the sum with the bias: y = round(round(round(n) w) + b). Where y is
       of float or of DYNNORM_I8, these are roundings to float. In other types the product and the sum are rounded to
       float first, as a float operation does, and then to the type of y. Otherwise y = round(w n + b) is rounded once,
       after the arithmetic in float. */
    int round_before_weight;

    /* Forward, where y is of DYNNORM_I8: y = round(v / y_scale), where v is what y would be in float, but at least -127
       and at most 127. A NaN becomes 0. If y_scale is 0, each row has a scale of its own, the greatest |v| of the row
       divided by 127, which y_scales receives: the row times its scale is close to v. A row whose greatest |v| is less
       than 2^-120 has the scale 0, and y is 0. A row with an infinity or a NaN has that as its scale (NaN, if it has
       both), and y is 0. y_scales is only computed together with y. To be exact: a row v is multiplied by 127 / max, or
       by 1 / y_scale, rounded to float, and the product, a float, is rounded to nearest, ties to even.
       dynnorm_largest_output tells a y_scale for DyT and DyISRU without looking at x. */
    float y_scale;   /* 0, or finite and at least 2^-120 */
    float *y_scales; /* output: [tokens] */

    dynnorm_executor executor; /* a pool of threads for dynnorm_forward, dynnorm_backward and the functions for split
                                  rows. The others check it, but do not use it. By default there is none. */

    /* alpha or beta in memory, which each call reads anew: alphas for DyT, betas for DyISRU and centered DyISRU. Where
       one of them is given, the field alpha or beta is ignored. By default it points to a single element, which all
       channels have in common: the bits are those of a call that has its value in the field, and it is checked alike,
       but not where there are no tokens.

       If parameter_per_channel is nonzero, alphas or betas must be given, and are [channels]: c after c, alpha_c or
       beta_c takes the place of alpha or beta in the formulas above. dalpha and dbeta then receive [channels] floats,
       each of which is the sum over tokens of the terms of its channel. If all elements are equal, y, dx, dweight and
       dbias have the bits of the call with one of them. The bounds are the same, that of dalpha_c or dbeta_c with the
       sum over the tokens of its channel. These elements are not checked: one that is infinite, and a negative one of
       betas, count as NaN. A NaN makes its channel of y, dx, dweight and dalpha or dbeta NaN; with centered DyISRU all
       of dx. */
    dynnorm_vector alphas; /* optional input of both passes */
    dynnorm_vector betas;
    int parameter_per_channel;
} dynnorm_descriptor;

/* A descriptor with all defaults. */
#define DYNNORM_DESCRIPTOR_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(dynnorm_descriptor), DYNNORM_LAYERNORM, DYNNORM_PORTABLE, 0, 0, {DYNNORM_NULL, 0, DYNNORM_F32},         \
            {DYNNORM_NULL, 0, DYNNORM_F32}, {DYNNORM_NULL, 0, DYNNORM_F32}, {DYNNORM_NULL, 0, DYNNORM_F32},            \
            {DYNNORM_NULL, DYNNORM_F32}, {DYNNORM_NULL, DYNNORM_F32}, 0, DYNNORM_NULL, DYNNORM_NULL, 0, 0, 0, 1,       \
            {DYNNORM_NULL, DYNNORM_F32}, {DYNNORM_NULL, DYNNORM_F32}, DYNNORM_NULL, DYNNORM_NULL, 0, 0, 0, 0, 0,       \
            DYNNORM_NULL, 0, 0, 0, {0, 0, 0}, DYNNORM_NULL, DYNNORM_NULL, DYNNORM_NULL, DYNNORM_NULL,                  \
            {DYNNORM_NULL, 0, DYNNORM_F32}, {DYNNORM_NULL, DYNNORM_F32}, {DYNNORM_NULL, 0, DYNNORM_F32}, DYNNORM_NULL, \
            DYNNORM_NULL, 0, {DYNNORM_NULL, 0, DYNNORM_F32}, DYNNORM_NULL, 0, 0, DYNNORM_NULL,                         \
            {DYNNORM_NULL, DYNNORM_NULL, 0, 0}, {DYNNORM_NULL, DYNNORM_F32}, {DYNNORM_NULL, DYNNORM_F32}, 0            \
    }

/* Writes the defaults to a descriptor of size bytes, for callers that cannot use the macro. size is that of the
 * dynnorm_descriptor that the caller was written for: this version's or that of an earlier one. */
DYNNORM_API dynnorm_status dynnorm_descriptor_init(dynnorm_descriptor *call, size_t size);

/* These compute the whole forward or backward pass, on the threads of the executor if there is one.
 *
 * If workspace is given, it must be as large as dynnorm_workspace_size says. A program that trains can give one to all
 * calls that do not run at the same time. If workspace is NULL, backward allocates memory for the duration of the call:
 * the sums of two blocks of rows without an executor, or dynnorm_workspace_size bytes with one. That is at most 128
 * blocks, and 63 bytes in all. Each block has 16 bytes for a channel, or 24 with parameter_per_channel, the channels
 * rounded up to a multiple of 16, and another 128 bytes for a dalpha or dbeta that is one number. For LayerNorm over
 * 4096 channels that is up to 128 KB without an executor, and up to 8 MB with one. Sums of no more than 16 KB lie on
 * the stack. With parameter_per_channel dynnorm_backward and dynnorm_backward_rows allocate another 20 bytes for each
 * channel.
 *
 * A call may take up to about 150 KB of the stack.
 *
 * A call with other types than float, a residual, dsum, round_before_weight or DYNNORM_I8 passes some rows at a time
 * through buffers. Forward with x and y of one 16-bit type, and backward of DyT and DyISRU in float or in one 16-bit
 * type, mostly need none. Small buffers lie on the stack. Larger ones are allocated once by the call, for all of its
 * tasks, before anything is written:
 *   - forward, for rows of about 2000 channels or more; with a residual, also for 32 rows or more of about 500 channels
 *     that are larger than the caches;
 *   - backward, for a single row of about 2000 channels or more, for a weight of 16 bits with as many, for centered
 *     DyISRU, and where dx is in the place of dsum, or is of 16 bits and added to what is there, if it has more than
 *     about 4000 elements. */
DYNNORM_API dynnorm_status dynnorm_forward(const dynnorm_descriptor *call);
DYNNORM_API dynnorm_status dynnorm_backward(const dynnorm_descriptor *call);

/* These do the same work in pieces, for callers that share it among threads themselves. The bits are those of the whole
 * call, whoever computes which range, and in whatever order.
 *
 * Forward takes any ranges of rows that together cover the tokens.
 *
 * Backward takes any ranges too if no sum over tokens is asked for. Otherwise its ranges begin at multiples of
 * dynnorm_block_rows, and end at one or at the last row, and the workspace must be given. Each range leaves its partial
 * sums in the workspace, which the ranges share; dx is finished with the range. Once the finishing thread has seen that
 * all ranges are done, it calls dynnorm_backward_finish, which combines the partial sums into dweight, dbias, dalpha
 * and dbeta, always in the order of the rows. The descriptor must be the same in all of these calls.
 *
 * A range of no rows succeeds and does nothing. */
DYNNORM_API dynnorm_status dynnorm_forward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows);
DYNNORM_API dynnorm_status dynnorm_backward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows);
DYNNORM_API dynnorm_status dynnorm_backward_finish(const dynnorm_descriptor *call);

/* The bytes of workspace that backward needs for the descriptor's operation, shape and outputs; of the pointers to
 * dweight, dbias, dalpha and dbeta it only counts which are NULL. It is 0 if no sum over tokens is asked for. */
DYNNORM_API dynnorm_status dynnorm_workspace_size(const dynnorm_descriptor *call, size_t *bytes);

/* DyT, DyISRU and centered DyISRU: an upper bound for |y|, computed from weight, bias and scale alone: the greatest
 * |w s| + |b| over the channels, a little more than that for the roundings. bound / 127 is a y_scale with which no y
 * exceeds the range of DYNNORM_I8. The rounding of a y of 16 bits may exceed the bound. The bound is an infinity or a
 * NaN if |w s| + |b| exceeds the floats or is a NaN. The error is OPERATION for the norms with statistics. */
DYNNORM_API dynnorm_status dynnorm_largest_output(const dynnorm_descriptor *call, float *bound);

/* How many rows make a block of the backward sums. This depends on tokens and channels alone. */
DYNNORM_API dynnorm_status dynnorm_block_rows(const dynnorm_descriptor *call, size_t *rows);

/* A forward call that has been checked once, for programs that compute row by row, or the same rows many times over:
 * running it takes hardly longer than its arithmetic. It belongs to the caller, and nothing is allocated. It keeps what
 * the descriptor said, the pointers to all tensors and vectors but x and y, and the instruction set in use; what these
 * point to must last as long as it is run, but may change. The descriptor itself, its strides and its executor are no
 * longer needed. It may be copied, and needs no cleaning up.
 *
 *     dynnorm_prepared prepared = DYNNORM_PREPARED_INIT;
 *     dynnorm_status status = dynnorm_prepare_forward(&call, &prepared);
 *     ...
 *     dynnorm_forward_prepared(&prepared, y, x, row, 1, 1);
 *
 * There is none for backward: its sums over tokens are made of blocks of rows, beside whose time that of the checks
 * does not count. */
typedef struct {
    size_t size;        /* sizeof(dynnorm_prepared), which DYNNORM_PREPARED_INIT sets */
    size_t hidden[255]; /* the library's own, with room to spare for later versions */
} dynnorm_prepared;

#define DYNNORM_PREPARED_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(dynnorm_prepared), {                                                                                    \
            0                                                                                                          \
        }                                                                                                              \
    }

/* Checks the call as dynnorm_forward does, except that x.data and y.data are not looked at, and may be NULL. tokens
 * is the most that will be run. After an error prepared is as it was; dynnorm_explain_forward says what is wrong with
 * the call, once x.data and y.data are set. */
DYNNORM_API dynnorm_status dynnorm_prepare_forward(const dynnorm_descriptor *call, dynnorm_prepared *prepared);

/* Computes the given number of rows: first_row, first_row + step, first_row + 2 step and so on. A thread that does
 * every eighth row passes a step of 8. x and y are where row 0 would lie, with the layout that the descriptor gave
 * them, and the rows of all other tensors, and the statistics, have their places in those of the descriptor. With one
 * row step does not matter. y may be NULL if the call asks for mean, rstd or sum. Whether y is stored past the caches
 * is decided by the number of rows.
 *
 * y may be x if both have the same layout, and so may the sum, if it has elements of the same size; y may be the
 * residual likewise. That nothing else overlaps x or y is not checked here: the caller must see to it. The errors are
 * PREPARED, ROW_RANGE, NULL_POINTER, NO_OUTPUT; where the call needs buffers, OUT_OF_MEMORY; and where alphas or betas
 * point to one element, which is read here, ALPHA or BETA. No rows succeed and do nothing.
 *
 * A call that needs buffers, as with y of another type than x, converts weight and bias in each run: give it several
 * rows at a time.
 *
 * Any number of threads may run one prepared call at the same time, for rows and data of their own. */
DYNNORM_API dynnorm_status dynnorm_forward_prepared(const dynnorm_prepared *prepared, void *y, const void *x,
                                                    size_t first_row, size_t rows, size_t step);

/* ---- Rows whose channels are split -------------------------------------------------------------------------------
 *
 * A row may be split into parts, each of which lies on another machine, as in models whose activations are sharded by
 * channels. The descriptor of each machine's call then describes its own part: its channels, x, y, weight and so on.
 *
 *     dynnorm_split split = DYNNORM_SPLIT_INIT;
 *     split.parts = machines, split.channels = channels_of_each, split.part = this_machine;
 *     dynnorm_split_sums place;
 *     dynnorm_split_forward_size(&call, &split, &place);       // sums is an array of place.total doubles
 *     dynnorm_split_forward_sums(&call, &split, sums);         // writes place.count of them from place.first on
 *     MPI_Allgatherv(...);                                     // now all machines have all of them
 *     dynnorm_split_forward(&call, &split, sums);              // writes y, mean and rstd
 *
 * Each machine tells the others a few numbers about its part of each row, in one exchange: an all-gather, or an
 * all-reduce that adds arrays which are 0 outside of the machine's own place, since adding zeros changes nothing. The
 * sums pass reads the part once, the other pass reads it once more. mean and rstd are those of the row, the same on all
 * machines. Backward is split alike; it needs the statistics that the forward pass gave, and has its own sums. All
 * machines must have the same split, tokens, operation and eps.
 *
 * The numbers of a part are those of its blocks of dynnorm_split_block channels, the last block of fewer: 4 doubles for
 * LayerNorm (backward: 10), 2 for RMSNorm (5). They are enough even for rows that float cannot hold. Where
 * every part but the last has a whole number of blocks, the bits are those of the same rows in one piece, in every row;
 * if a part begins elsewhere, the error bounds hold. One thing is less exact than in one piece: the backward pass does
 * not recompute a given mean that is more than 2000 deviations off.
 *
 * The elementwise operations DyT and DyISRU need no exchange: they have no sums, and dynnorm_split_forward and
 * dynnorm_split_backward are dynnorm_forward and dynnorm_backward for them. So are the gradients that belong to
 * channels. dalpha and dbeta are sums over the parts: add those of all machines, in double and in one order, to have
 * the same everywhere. The centered DyISRU cannot be split; the error is OPERATION.
 *
 * Strides, axes, in-place calls, types, executors and workspaces are as ever. A residual and y_scales are errors,
 * SPLIT: add the residual first, and give y_scale. */

typedef struct {
    size_t size;            /* sizeof(dynnorm_split), which DYNNORM_SPLIT_INIT sets */
    size_t parts;           /* how many parts a row has */
    const size_t *channels; /* of each part, in the order of the row: [parts] */
    size_t part;            /* which of them the call computes, counted from 0; the call has as many channels */
} dynnorm_split;

#define DYNNORM_SPLIT_INIT                                                                                             \
    { sizeof(dynnorm_split), 0, DYNNORM_NULL, 0 }

/* Where a part has its place in the array of sums, which all parts share, in doubles. The places of the parts follow
 * one another. All are 0 where no exchange is needed. */
typedef struct {
    size_t first;
    size_t count;
    size_t total; /* of all parts */
} dynnorm_split_sums;

/* The channels of a block. */
DYNNORM_API size_t dynnorm_split_block(void);

DYNNORM_API dynnorm_status dynnorm_split_forward_size(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                      dynnorm_split_sums *place);
DYNNORM_API dynnorm_status dynnorm_split_backward_size(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                       dynnorm_split_sums *place);

/* Write the numbers of the part to its place in sums. The descriptor's outputs are not written, and may be NULL. Here
 * and below, sums may be NULL where no exchange is needed. */
DYNNORM_API dynnorm_status dynnorm_split_forward_sums(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                      double *sums);
DYNNORM_API dynnorm_status dynnorm_split_backward_sums(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                       double *sums);

/* Compute the part, once sums is there for all parts. */
DYNNORM_API dynnorm_status dynnorm_split_forward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                 const double *sums);
DYNNORM_API dynnorm_status dynnorm_split_backward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                  const double *sums);

/* ---- Mistakes in words -------------------------------------------------------------------------------------------
 *
 * These say in words what dynnorm_forward or dynnorm_backward would find wrong with the call, naming the fields: "dx
 * overlaps weight", "dy is NULL, and a pass that computes dx needs it", "mean is given, but DyT does not use it". Of a
 * call that would succeed they say "the call is correct", also if some rows of it, with dynnorm_forward_rows or
 * dynnorm_backward_rows, would fail for a reason of their own. Nothing is computed. Like snprintf they write at most
 * capacity characters to text, of which the last one is a 0, and return the length of the whole sentence without it;
 * text may be NULL if capacity is 0. */
DYNNORM_API size_t dynnorm_explain_forward(const dynnorm_descriptor *call, char *text, size_t capacity);
DYNNORM_API size_t dynnorm_explain_backward(const dynnorm_descriptor *call, char *text, size_t capacity);

/* The same for dynnorm_split_forward and dynnorm_split_backward. */
DYNNORM_API size_t dynnorm_explain_split_forward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                 const double *sums, char *text, size_t capacity);
DYNNORM_API size_t dynnorm_explain_split_backward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                                  const double *sums, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
