/* SPDX-License-Identifier: BSD-2-Clause
 *
 * This file is compiled once for each size of vector. LIMITS is the name of its list, VECTOR_BYTES the size.
 *
 * The loops take two vectors at a time because AArch64's non-temporal store writes two.
 */
#include "limits.h"

#if defined __x86_64__
#include <immintrin.h>
#endif

typedef float vector __attribute__((vector_size(VECTOR_BYTES), may_alias));

enum { LANES = VECTOR_BYTES / sizeof(float) };

static inline vector load(const float *p) {
    return *(const vector *)p;
}

static inline void store(float *p, vector a) {
    *(vector *)p = a;
}

static void copy(float *z, const float *x, const float *y, size_t count) {
    (void)y;
    size_t i = 0;
#pragma GCC unroll 4
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        vector first = load(x + i);
        vector second = load(x + i + LANES);
        store(z + i, first);
        store(z + i + LANES, second);
    }
    for (; i < count; i++)
        z[i] = x[i];
}

static void add(float *z, const float *x, const float *y, size_t count) {
    size_t i = 0;
#pragma GCC unroll 4
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        vector first = load(x + i) + load(y + i);
        vector second = load(x + i + LANES) + load(y + i + LANES);
        store(z + i, first);
        store(z + i + LANES, second);
    }
    for (; i < count; i++)
        z[i] = x[i] + y[i];
}

#if defined __x86_64__ || defined __aarch64__
#define HAVE_NONTEMPORAL

static inline void store_pair_nontemporal(float *p, vector first, vector second) {
#if defined __aarch64__
    __asm__ volatile("stnp %q1, %q2, [%0]" : : "r"(p), "w"(first), "w"(second) : "memory");
#elif VECTOR_BYTES == 64
    _mm512_stream_ps(p, first);
    _mm512_stream_ps(p + LANES, second);
#elif VECTOR_BYTES == 32
    _mm256_stream_ps(p, first);
    _mm256_stream_ps(p + LANES, second);
#else
    _mm_stream_ps(p, first);
    _mm_stream_ps(p + LANES, second);
#endif
}

/* Waits until the stores have become visible in order. The caller needs that too, so it counts. */
static inline void end_nontemporal(void) {
#if defined __x86_64__
    _mm_sfence();
#endif
}

static void copy_nontemporal(float *z, const float *x, const float *y, size_t count) {
    (void)y;
    size_t i = 0;
#pragma GCC unroll 4
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        store_pair_nontemporal(z + i, load(x + i), load(x + i + LANES));
    for (; i < count; i++)
        z[i] = x[i];
    end_nontemporal();
}

static void add_nontemporal(float *z, const float *x, const float *y, size_t count) {
    size_t i = 0;
#pragma GCC unroll 4
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        store_pair_nontemporal(z + i, load(x + i) + load(y + i), load(x + i + LANES) + load(y + i + LANES));
    for (; i < count; i++)
        z[i] = x[i] + y[i];
    end_nontemporal();
}
#endif

const struct limit LIMITS[] = {
    {"limit_copy", 2, copy},
    {"limit_add", 3, add},
#ifdef HAVE_NONTEMPORAL
    {"limit_copy_nontemporal", 2, copy_nontemporal},
    {"limit_add_nontemporal", 3, add_nontemporal},
#endif
    {NULL, 0, NULL},
};
