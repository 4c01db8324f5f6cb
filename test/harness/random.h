/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one source of random numbers in the tests: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", 2014). The same seed gives the same bits on every machine: only integers, and floating-point operations
 * that IEEE 754 rounds correctly, are used.
 */
#ifndef DYNNORM_TEST_RANDOM_H
#define DYNNORM_TEST_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

struct random {
    uint64_t state;
};

/* What a test starts from, and prints: the environment variable DYNNORM_TEST_SEED, or a fixed number. */
static inline uint64_t random_seed(void) {
    const char *given = getenv("DYNNORM_TEST_SEED");
    return given ? strtoull(given, NULL, 0) : 20250321;
}

static inline struct random random_start(uint64_t seed) {
    struct random random = {seed};
    return random;
}

static inline uint64_t random_bits(struct random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in {0, ..., count - 1}, as nearly as matters here. */
static inline size_t random_below(struct random *random, size_t count) {
    return (size_t)(random_bits(random) >> 11) % count;
}

/* Uniform in [low, high). */
static inline double random_between(struct random *random, double low, double high) {
    return low + (high - low) * (double)(random_bits(random) >> 11) * 0x1p-53;
}

/* Of mean 0 and deviation 1, shaped much like a normal distribution, between -2 sqrt(3) and 2 sqrt(3): the sum of four
 * uniform numbers. */
static inline float random_normal(struct random *random) {
    uint64_t a = random_bits(random);
    uint64_t b = random_bits(random);
    double sum = (double)(a & 0xffffffff) + (double)(a >> 32) + (double)(b & 0xffffffff) + (double)(b >> 32);
    return (float)((sum * 0x1p-32 - 2) * 1.7320508075688772);
}

#endif
