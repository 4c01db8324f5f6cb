/* SPDX-License-Identifier: BSD-2-Clause
 *
 * 1 / sqrt(a), and x / sqrt(a), for a from 2^-60 to 2^60. The coefficients are derived in coefficients.sollya.
 */
#ifndef DYNNORM_INVERSE_SQUARE_ROOT_H
#define DYNNORM_INVERSE_SQUARE_ROOT_H

#include "vec.h"

struct inverse_square_root {
    vec root;    /* 1 / sqrt(a), within two roundings */
    vec product; /* x / sqrt(a) */
};

typedef struct inverse_square_root inverse_square_root_function(vec a, vec x);

/* A step of third order improves the first guess, with coefficients that are fitted to the errors of that guess; one of
 * Newton's steps follows. For each of the two results one fused operation at the end applies the correction of Newton's
 * step. So the product, too, suffers from little but the rounding of that operation, and is within 1.5 ULP. After the
 * first step the guess is slightly too small: the correction is then never negative, and a product of 0 keeps its sign.
 */
INLINE struct inverse_square_root inverse_square_root_portable(vec a, vec x) {
    vec half = vec_set(0.5f);
    vec guess = vec_rsqrt_guess(a);
    vec error = vec_fnma(vec_mul(a, guess), guess, vec_set(1));
    vec polynomial =
        vec_fma(vec_fma(vec_set(0x1.808962p-2f), error, vec_set(0x1.008e12p-1f)), error, vec_set(0x1.fffbd4p-1f));
    guess = vec_mul(guess, polynomial);
    vec correction = vec_fnma(vec_mul(a, guess), vec_mul(guess, half), half);
    vec product = vec_mul(x, guess);
    return (struct inverse_square_root){vec_fma(guess, correction, guess),
                                        vec_fma(x, guess, vec_mul(product, correction))};
}

/* The CPU's estimate with a correction of third order: (1 - error)^(-1/2) = 1 + error / 2 + 3 error^2 / 8 + ... */
INLINE struct inverse_square_root inverse_square_root_native(vec a, vec x) {
    vec guess = vec_rsqrt_estimate(a);
    vec error = vec_fnma(vec_mul(a, guess), guess, vec_set(1));
    vec correction = vec_mul(error, vec_fma(vec_set(0.375f), error, vec_set(0.5f)));
    vec root = vec_fma(guess, correction, guess);
    return (struct inverse_square_root){root, vec_mul(x, root)};
}

#endif
