/* SPDX-License-Identifier: BSD-2-Clause
 *
 * 1 / sqrt(a), for a from 2^-60 to 2^60, within 1.5 roundings. The coefficients are derived in coefficients.sollya.
 */
#ifndef DYNNORM_INVERSE_SQUARE_ROOT_H
#define DYNNORM_INVERSE_SQUARE_ROOT_H

typedef vec inverse_square_root_function(vec a);

/* One step of third order, its coefficients fitted to the errors of the guess, then one of Newton's. */
INLINE vec inverse_square_root_portable(vec a) {
    vec guess = vec_rsqrt_guess(a);
    vec error = vec_fnma(vec_mul(a, guess), guess, vec_set(1));
    vec factor = vec_fma(vec_fma(vec_set(0x1.80878p-2f), error, vec_set(0x1.00902ap-1f)), error,
                         vec_set(0x1.000004p0f));
    guess = vec_mul(guess, factor);
    error = vec_fnma(vec_mul(a, guess), guess, vec_set(1));
    return vec_fma(vec_mul(guess, vec_set(0.5f)), error, guess);
}

/* One step of third order from the CPU's estimate: (1 - error)^(-1/2) = 1 + error / 2 + 3 error^2 / 8 + ... */
INLINE vec inverse_square_root_native(vec a) {
    vec guess = vec_rsqrt_estimate(a);
    vec error = vec_fnma(vec_mul(a, guess), guess, vec_set(1));
    vec factor = vec_mul(error, vec_fma(vec_set(0.375f), error, vec_set(0.5f)));
    return vec_fma(guess, factor, guess);
}

#endif
