/* SPDX-License-Identifier: BSD-2-Clause
 *
 * libdynnorm: LayerNorm, RMSNorm, Dynamic Tanh (DyT) and the Dynamic Inverse Square Root Unit (DyISRU), forward and
 * backward, over [tokens x channels] tensors of float.
 *
 * In this file x is one row (token) of C channels, w = weight, b = bias, h = w * dy; means and sums run over the
 * channels of the row unless they say "tokens"; u = 2^-24, half the distance from 1 to the next float.
 *
 * What holds for every function, unless its comment says otherwise:
 *
 *   shapes     x, y, dx, dy: [tokens x channels], row-major, float. weight, bias, dweight, dbias: [channels].
 *              mean, rstd: [tokens]. dalpha, dbeta: one float.
 *   order      Outputs come first, the shape last.
 *   NULL       An output that is NULL is not computed. A weight or bias that is NULL counts as 1 or 0.
 *   gradients  They overwrite what was there.
 *   aliasing   y == x, dx == dy and dx == x, exactly, are allowed: the operation is then done in place. No other two
 *              buffers of which one is an output may overlap. Inputs may overlap inputs.
 *   alignment  None is required. Large outputs are fastest at multiples of 64 bytes (see output_is_read_at_once).
 *   errors     Every argument is checked before anything is written: on an error all outputs are untouched.
 *              channels == 0 is an error, before all others. tokens == 0 succeeds: data pointers may then be NULL, and
 *              gradients that are sums over tokens are set to 0.
 *   threads    Every function may be called from any number of threads at once. The library starts no threads, prints
 *              nothing, leaves errno, the rounding mode and traps as they are; it may raise floating-point exception
 *              flags.
 *   bits       In the default mode the same input gives the same bits on every CPU, however the rows are split among
 *              calls or threads, at every alignment, in place or not. This assumes the default floating-point
 *              environment (round to nearest, no flush to zero), and leaves the payload of a NaN open.
 *   bounds     The error bounds hold for finite inputs. Added to each of them is what an underflow costs: 2^-149,
 *              times the factors that still multiply an intermediate result after it underflowed. dweight's is doubled
 *              for rows and dy made such that all roundings of a sum over tokens go the same way.
 */
#ifndef DYNNORM_H
#define DYNNORM_H

#include <stddef.h>

#define DYNNORM_VERSION_MAJOR 0
#define DYNNORM_VERSION_MINOR 2
#define DYNNORM_VERSION_PATCH 0
#define DYNNORM_VERSION_STRING "0.2.0"

#if defined _WIN32 && defined DYNNORM_SHARED
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

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------------------------------------ */

typedef enum {
    DYNNORM_OK = 0,
    DYNNORM_ERROR_ZERO_CHANNELS,       /* channels is 0 */
    DYNNORM_ERROR_DESCRIPTOR,          /* the descriptor is NULL, or its size is not one that this library knows */
    DYNNORM_ERROR_OPERATION,           /* an unknown operation, or one without an output or a bias that was given */
    DYNNORM_ERROR_MODE,                /* an unknown numerics mode */
    DYNNORM_ERROR_MODE_UNAVAILABLE,    /* a mode that this build or this CPU cannot run (SLEEF absent, say) */
    DYNNORM_ERROR_TYPE,                /* an unknown or unsupported element type */
    DYNNORM_ERROR_SIZE_OVERFLOW,       /* the tensor's bytes do not fit the address space */
    DYNNORM_ERROR_STRIDE,              /* a row stride smaller than the channels */
    DYNNORM_ERROR_EPS,                 /* eps is negative, infinite or NaN */
    DYNNORM_ERROR_ALPHA,               /* alpha is infinite or NaN */
    DYNNORM_ERROR_BETA,                /* beta is negative, infinite or NaN */
    DYNNORM_ERROR_SCALE,               /* scale, or the weight offset, is infinite or NaN */
    DYNNORM_ERROR_NULL_POINTER,        /* a required pointer is NULL */
    DYNNORM_ERROR_OVERLAP,             /* two buffers overlap that must not */
    DYNNORM_ERROR_ROW_RANGE,           /* a range of rows beyond the tokens, or not made of whole blocks */
    DYNNORM_ERROR_WORKSPACE_TOO_SMALL, /* the workspace is missing, or smaller than its query says */
    DYNNORM_ERROR_OUT_OF_MEMORY,       /* a plain call could not allocate its workspace */
    DYNNORM_ERROR_ISA_UNKNOWN,         /* no instruction set of that name */
    DYNNORM_ERROR_ISA_UNAVAILABLE      /* this build, CPU or operating system cannot run that instruction set */
} dynnorm_status;

/* A sentence in English for a status; never NULL. */
DYNNORM_API const char *dynnorm_status_string(dynnorm_status status);

/* ---- LayerNorm (Ba, Kiros, Hinton, arXiv 1607.06450) -------------------------------------------------------------
 *
 *   m = mean(x), v = mean((x - m)^2), r = 1 / sqrt(v + eps), n = (x - m) r, y = w n + b
 *   dx = r (h - mean(h) - n mean(h n)), dw = sum over tokens of dy n, db = sum over tokens of dy
 *
 * eps is finite and >= 0. With eps 0 a row whose variance is exactly 0 gives n = 0, rstd = 0 and dx = 0. A row that
 * holds an infinity or a NaN becomes NaN.
 *
 * Bounds, for 1 to 65536 channels and |mean| up to 10^6 deviations:
 *   y      4 u (|w| max(|n|, 1) + |b|)
 *   mean   2 u max(|mean|, deviation)          rstd   3 u rstd
 *   dx     8 u times the largest |r h| or |r n mean(h n)| of the row; with mean and rstd given, of |r h| or
 *          |r n| mean(|h n|)
 *   dw     4 u sum(|dy| max(|n|, 1))           db     4 u sum(|dy|), however many tokens
 */

/* mean and rstd receive m and r of each row. With y NULL only they are computed. */
DYNNORM_API dynnorm_status dynnorm_layernorm_forward_f32(float *y, float *mean, float *rstd, const float *x,
                                                         const float *weight, const float *bias, float eps,
                                                         size_t tokens, size_t channels);

/* mean and rstd are what the forward call gave, or NULL: then they are recomputed from x, which is more exact, since
 * one float cannot hold the mean of a row of mean 10^6, nor the rstd of a row of denormals. A given mean serves as a
 * shift whose residual is recomputed; a given rstd is used as it is. */
DYNNORM_API dynnorm_status dynnorm_layernorm_backward_f32(float *dx, float *dweight, float *dbias, const float *dy,
                                                          const float *x, const float *weight, const float *mean,
                                                          const float *rstd, float eps, size_t tokens, size_t channels);

/* ---- RMSNorm (Zhang, Sennrich, arXiv 1910.07467) -----------------------------------------------------------------
 *
 *   r = 1 / sqrt(mean(x^2) + eps), n = x r, y = w n
 *   dx = r (h - n mean(h n)), dw = sum over tokens of dy n
 *
 * eps is finite and >= 0. With eps 0 a row of zeros gives n = 0, rstd = 0 and dx = 0. A row that holds an infinity or a
 * NaN becomes NaN.
 *
 * Bounds, for 1 to 65536 channels:
 *   y      4 u |w n|                           rstd   3 u rstd
 *   dx     8 u times the largest |r h| or |r n mean(h n)| of the row; with rstd given, of |r h| or |r n| mean(|h n|)
 *   dw     4 u sum(|dy n|), however many tokens
 */

/* rstd receives r of each row. With y NULL only it is computed. */
DYNNORM_API dynnorm_status dynnorm_rmsnorm_forward_f32(float *y, float *rstd, const float *x, const float *weight,
                                                       float eps, size_t tokens, size_t channels);

/* rstd is what the forward call gave, and used as it is, or NULL: then it is recomputed from x. */
DYNNORM_API dynnorm_status dynnorm_rmsnorm_backward_f32(float *dx, float *dweight, const float *dy, const float *x,
                                                        const float *weight, const float *rstd, float eps,
                                                        size_t tokens, size_t channels);

/* ---- Dynamic Tanh (Zhu, Chen, He, LeCun, Liu, arXiv 2503.10622) --------------------------------------------------
 *
 *   t = tanh(alpha x), y = w s t + b, with s = scale (1 as published)
 *   dx = s alpha h (1 - t^2), dalpha = sum over tokens and channels of s h x (1 - t^2),
 *   dw = sum over tokens of dy s t, db = sum over tokens of dy
 *
 * alpha and scale are finite. An infinite alpha x gives t = +-1 and gradients of 0; alpha = 0 with an infinite x, NaN.
 *
 * Bounds:
 *   tanh   2.5 ULP, odd, monotone, never beyond +-1
 *   y      8 u (|w s t| + |b|)
 *   dx     8 u times the largest |s alpha h| of the row
 *   dw     4 u sum(|dy s t|)                   db     4 u sum(|dy|), however many tokens
 *   dalpha sum of (6 + 3 |alpha x|) u |s h x (1 - t^2)|
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
 * scale is sqrt(C) or sqrt(C - 1) in the derivations from RMSNorm and LayerNorm: see the two functions below. The
 * ISRU of Carlile et al. (arXiv 1710.09967), x / sqrt(1 + a x^2), is beta = 1 / a and scale = sqrt(beta).
 *
 * beta is finite and >= 0; beta = 0 means q = sign(x), and all gradients are 0 where x is 0. scale is finite. An
 * infinite x gives q = +-1 and gradients of 0.
 *
 * Bounds:
 *   q      2 ULP, odd, never beyond +-1
 *   y      8 u (|w s q| + |b|)
 *   dx     8 u times the largest |s h / sqrt(beta)| of the row
 *   dw     4 u sum(|dy s q|)                   db     4 u sum(|dy|), however many tokens
 *   dbeta  10 u sum of |s h x (beta + x^2)^(-3/2) / 2|
 *
 * The general form, on x - mean(x), is the operation DYNNORM_CENTERED_DYISRU of the descriptor below.
 */

DYNNORM_API dynnorm_status dynnorm_dyisru_forward_f32(float *y, const float *x, const float *weight, const float *bias,
                                                      float beta, float scale, size_t tokens, size_t channels);

DYNNORM_API dynnorm_status dynnorm_dyisru_backward_f32(float *dx, float *dweight, float *dbias, float *dbeta,
                                                       const float *dy, const float *x, const float *weight, float beta,
                                                       float scale, size_t tokens, size_t channels);

/* The scale that makes DyISRU stand in for RMSNorm, sqrt(channels), or for LayerNorm, sqrt(channels - 1); correctly
 * rounded. dynnorm_scale_layernorm(0) is 0. */
DYNNORM_API float dynnorm_scale_rmsnorm(size_t channels);
DYNNORM_API float dynnorm_scale_layernorm(size_t channels);

/* ---- Instruction sets --------------------------------------------------------------------------------------------
 *
 * The best one that this CPU and its operating system can run is chosen at first use, unless the environment variable
 * DYNNORM_ISA names another that they can run; a name that is unknown or cannot be run is ignored.
 */

/* The one in use: "scalar", "avx2", "avx512" or "neon". */
DYNNORM_API const char *dynnorm_isa(void);

/* Use the named one from now on, in every thread; NULL stands for the best one. Errors: ISA_UNKNOWN, ISA_UNAVAILABLE;
 * the one in use then stays. Calls in flight finish as they began. */
DYNNORM_API dynnorm_status dynnorm_set_isa(const char *name);

/* Writes the names of those that can run here, best first, at most capacity of them, to names unless it is NULL;
 * returns how many there are. */
DYNNORM_API size_t dynnorm_isas(const char **names, size_t capacity);

/* The version of the library in use, which may differ from DYNNORM_VERSION_STRING, that of this header. */
DYNNORM_API const char *dynnorm_version(void);

/* ---- The descriptor ----------------------------------------------------------------------------------------------
 *
 * What the plain calls above leave out: row strides, ranges of rows for the caller's own threads, a workspace owned by
 * the caller, a weight offset, accumulated gradients, numerics modes, the general DyISRU. The plain calls are thin
 * wrappers over it.
 *
 *     dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
 *     call.operation = DYNNORM_RMSNORM;
 *     call.tokens = 32, call.channels = 4096;
 *     call.x.data = x, call.y.data = y, call.weight.data = weight;
 *     call.weight_offset = 1, call.eps = 1e-6f;
 *     dynnorm_status status = dynnorm_forward(&call);
 *
 * Zero means the default in every field, so that a descriptor only names what it needs. The functions do not keep or
 * change the descriptor. Its pointers serve for inputs and outputs alike: a const input has its const cast away, and is
 * only read.
 */

typedef enum {
    DYNNORM_LAYERNORM = 0,
    DYNNORM_RMSNORM,
    DYNNORM_DYT,
    DYNNORM_DYISRU,
    DYNNORM_CENTERED_DYISRU /* the general DyISRU: DyISRU of x - mean(x); dx = du - mean(du), where du is DyISRU's dx.
                               Bounds: those of DyISRU, with 1 for |q|, and added to each what an error of
                               2^-46 max(|mean|, deviation) in x - mean(x) makes of the result */
} dynnorm_operation;

typedef enum {
    DYNNORM_PORTABLE = 0, /* the same bits on every CPU, and the bounds above */
    DYNNORM_NATIVE,       /* may use the CPU's estimate instructions, bits may differ between CPUs: tanh and q within
                             4 ULP; the other bounds of DyT and DyISRU, but dbias's, are doubled; the reduction norms
                             within the bounds above */
    DYNNORM_SLEEF         /* tanh is SLEEF's deterministic u10 function: 1 ULP, the same bits on every CPU that has
                             fused multiply-add; all else as DYNNORM_PORTABLE. MODE_UNAVAILABLE where the library was
                             built without SLEEF or the CPU has no fused multiply-add */
} dynnorm_mode;

typedef enum {
    DYNNORM_F32 = 0 /* IEEE 754 binary32 */
} dynnorm_type;

/* A tensor of [tokens x channels]. */
typedef struct {
    void *data;        /* an input's data is only read */
    size_t row_stride; /* in elements, from one row to the next; 0: channels (contiguous). Rows of one tensor may lie
                          between those of another with the same stride. */
    dynnorm_type type;
} dynnorm_tensor;

/* A vector of [channels], contiguous. */
typedef struct {
    void *data; /* an input's data is only read */
    dynnorm_type type;
} dynnorm_vector;

typedef struct {
    size_t size; /* sizeof(dynnorm_descriptor), set by DYNNORM_DESCRIPTOR_INIT: tells which fields there are */
    dynnorm_operation operation;
    dynnorm_mode mode;
    size_t tokens;
    size_t channels;

    dynnorm_tensor x;      /* input */
    dynnorm_tensor y;      /* output of forward */
    dynnorm_tensor dy;     /* input of backward */
    dynnorm_tensor dx;     /* output of backward */
    dynnorm_vector weight; /* input, optional */
    dynnorm_vector bias;   /* input of forward, optional; not for RMSNorm */
    float weight_offset;   /* added to every weight; Gemma's 1 + w is a weight_offset of 1. Finite. With no weight
                              given it is ignored. */

    float *mean; /* LayerNorm: output of forward, optional input of backward */
    float *rstd; /* LayerNorm, RMSNorm: output of forward, optional input of backward */
    float eps;   /* LayerNorm, RMSNorm */
    float alpha; /* DyT */
    float beta;  /* DyISRU, general DyISRU */
    float scale; /* DyT, DyISRU, general DyISRU: s of the formulas. The one field whose 0 is not a default: it is set
                    to 1 by DYNNORM_DESCRIPTOR_INIT. */

    dynnorm_vector dweight; /* outputs of backward */
    dynnorm_vector dbias;
    float *dalpha; /* DyT */
    float *dbeta;  /* DyISRU, general DyISRU */

    /* Nonzero: the gradient is added to what is there instead of overwriting it; a sum over tokens once, at the end,
       and rounded once; dx after it was rounded. An accumulated dx must not alias dy or x. */
    int accumulate_dx;
    int accumulate_dweight;
    int accumulate_dbias;
    int accumulate_dalpha;
    int accumulate_dbeta;

    void *workspace; /* caller-owned scratch memory of backward, of any alignment; forward needs none */
    size_t workspace_size;

    /* Nonzero: y or dx will be read at once, so keep it in the caches. By default a y or dx that together with its
       inputs is larger than one and a half times a core's second-level cache is written past the caches, where the CPU
       can do that. Not so if the operation is in place, or dx is accumulated; nor if rows do not begin at multiples of
       64 bytes, unless they are a y's, of 256 channels or more, and floats are aligned. The bits are the same. */
    int output_is_read_at_once;
} dynnorm_descriptor;

/* All defaults. */
#define DYNNORM_DESCRIPTOR_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(dynnorm_descriptor), DYNNORM_LAYERNORM, DYNNORM_PORTABLE, 0, 0, {0, 0, DYNNORM_F32},                    \
            {0, 0, DYNNORM_F32}, {0, 0, DYNNORM_F32}, {0, 0, DYNNORM_F32}, {0, DYNNORM_F32}, {0, DYNNORM_F32}, 0, 0,   \
            0, 0, 0, 0, 1, {0, DYNNORM_F32}, {0, DYNNORM_F32}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                            \
    }

/* The whole forward or backward pass. backward uses the workspace if one is given, which must then be as large as
 * dynnorm_workspace_size says, and else allocates what it needs for the duration of the call. */
DYNNORM_API dynnorm_status dynnorm_forward(const dynnorm_descriptor *call);
DYNNORM_API dynnorm_status dynnorm_backward(const dynnorm_descriptor *call);

/* The same work in pieces, for threads of the caller's own; the bits are those of the whole call, whoever computes
 * which range, in whatever order.
 *
 * Forward: any ranges of rows that together cover the tokens.
 *
 * Backward: ranges that begin at multiples of dynnorm_block_rows, and end at one or at the last row. Each range leaves
 * its partial sums in the workspace, which the ranges share; dx is finished with the range. Once all are done, and
 * seen to be done by the finishing thread, dynnorm_backward_finish combines the partial sums into dweight, dbias,
 * dalpha and dbeta, in an order of its own. The descriptor must be the same in all of these calls, and the workspace
 * must be given unless no sum over tokens is asked for.
 *
 * Ranges of no rows succeed and do nothing. */
DYNNORM_API dynnorm_status dynnorm_forward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows);
DYNNORM_API dynnorm_status dynnorm_backward_rows(const dynnorm_descriptor *call, size_t first_row, size_t rows);
DYNNORM_API dynnorm_status dynnorm_backward_finish(const dynnorm_descriptor *call);

/* The bytes of workspace that backward needs for this descriptor's operation, shape and outputs (its pointers to
 * dweight, dbias, dalpha, dbeta: NULL or not). 0 where no sum over tokens is asked for. */
DYNNORM_API dynnorm_status dynnorm_workspace_size(const dynnorm_descriptor *call, size_t *bytes);

/* The rows in a block of the backward sums; it depends on tokens and channels alone. */
DYNNORM_API dynnorm_status dynnorm_block_rows(const dynnorm_descriptor *call, size_t *rows);

#ifdef __cplusplus
}
#endif

#endif
