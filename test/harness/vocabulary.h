/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary of one instruction set (src/<isa>/vec.h) as functions over arrays. vocabulary.c, built once for
 * each table with that table's flags, fills it in; kernels/vocabulary.c, built for any CPU, tests it.
 */
#ifndef DYNNORM_TEST_VOCABULARY_H
#define DYNNORM_TEST_VOCABULARY_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* Its floats differ. */
_Alignas(64) static const float lookup_table[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

static inline float lesser(float a, float b) {
    return copysignf(fabsf(b) < fabsf(a) ? fabsf(b) : fabsf(a), b);
}

/* -2 in place of NaN */
#define OR_MINUS_TWO(a) vec_select_outside(vec_abs(a), 0, 0x7f800000, vec_set(-2), a)

/* The operations that work lane by lane: how to call one on a, b, c and d, and the same in plain C. */
#define LANE_OPERATIONS(OPERATION)                                                                                     \
    OPERATION(vec_in_register, vec_in_register(a), a)                                                                  \
    OPERATION(vec_add, vec_add(a, b), a + b)                                                                           \
    OPERATION(vec_accumulate, vec_accumulate(a, b), a + b)                                                             \
    OPERATION(vec_sub, vec_sub(a, b), a - b)                                                                           \
    OPERATION(vec_mul, vec_mul(a, b), (a) * (b))                                                                       \
    OPERATION(vec_div, vec_div(a, b), a / b)                                                                           \
    OPERATION(vec_fma, vec_fma(a, b, c), fmaf(a, b, c))                                                                \
    OPERATION(vec_mul_by_doubles, vec_mul_by_doubles(a, b), a *b)                                                      \
    OPERATION(vec_fma_by_doubles, vec_fma_by_doubles(a, b, c), fmaf(a, b, c))                                          \
    OPERATION(vec_fms, vec_fms(a, b, c), fmaf(a, b, -c))                                                               \
    OPERATION(vec_fnma, vec_fnma(a, b, c), fmaf(-a, b, c))                                                             \
    OPERATION(vec_min, vec_min(vec_set(1.5f), b), 1.5f < b ? 1.5f : b)                                                 \
    OPERATION(vec_max, vec_max(vec_set(-1.5f), b), -1.5f > b ? -1.5f : b)                                              \
    OPERATION(vec_abs, vec_abs(a), fabsf(a))                                                                           \
    OPERATION(vec_with_sign, vec_with_sign(vec_abs(a), b), copysignf(a, b))                                            \
    OPERATION(vec_lesser_with_sign, vec_lesser_with_sign(vec_abs(vec_add(b, vec_set(0.75f))), b),                      \
              lesser(b + 0.75f, b))                                                                                    \
    OPERATION(vec_bits_minus, vec_bits_minus(a, 0x21800000), float_of_bits(bits_of_float(a) - 0x21800000))             \
    OPERATION(vec_max_bits, vec_max_bits(a, b), bits_of_float(a) > bits_of_float(b) ? a : b)                           \
    OPERATION(vec_greater_magnitude, vec_greater_magnitude(vec_abs(OR_MINUS_TWO(a)), OR_MINUS_TWO(b)),                 \
              fmaxf(isnan(a) ? 2 : fabsf(a), isnan(b) ? 2 : fabsf(b)))                                                 \
    OPERATION(vec_power_of_two, vec_power_of_two(a), float_of_bits(bits_of_float(a) << 23))                            \
    OPERATION(vec_lookup, vec_lookup(lookup_table, vec_place(a)), lookup_table[bits_of_float(a) >> 20 & 31])           \
    OPERATION(vec_rsqrt_guess, vec_rsqrt_guess(a, 0x5f30c000), float_of_bits(0x5f30c000 - (bits_of_float(a) >> 1)))

/* The same of vectors with a lane for each row of a group (src/rows/group_vectors.h). What is wide comes from floats,
 * and is compared as a float. */
#define WIDE(a) group_vec_widen(a)
#define THIRD(a) group_wide_mul(group_wide_mul(WIDE(a), group_wide_set(1.0 / 3)), group_wide_set(-1)) /* rounded */
#define GROUP_OPERATIONS(OPERATION)                                                                                    \
    OPERATION(group_vec_set, group_vec_set(-2.5f), -2.5f)                                                              \
    OPERATION(group_vec_mul, group_vec_mul(a, b), (a) * (b))                                                           \
    OPERATION(group_vec_abs, group_vec_abs(a), fabsf(a))                                                               \
    OPERATION(group_vec_bits_minus, group_vec_bits_minus(a, 0x21800000), float_of_bits(bits_of_float(a) - 0x21800000)) \
    OPERATION(group_vec_max_bits, group_vec_max_bits(a, b), bits_of_float(a) > bits_of_float(b) ? a : b)               \
    OPERATION(group_vec_select_outside, group_vec_select_outside(a, 0x21800000, 0x3c000000, b, c),                     \
              bits_of_float(a) - 0x21800000 > 0x3c000000 ? b : c)                                                      \
    OPERATION(group_vec_select_at_end, group_vec_select_outside(group_vec_set(1.5f), 0x3f000000, 0xc00000, b, c), c)   \
    OPERATION(group_vec_select_at_beginning, group_vec_select_outside(group_vec_set(1), 0x3f800000, 0, b, c), c)       \
    OPERATION(group_wide_set, group_wide_narrow(group_wide_set(-2.5)), -2.5f)                                          \
    OPERATION(group_wide_narrow, group_wide_narrow(WIDE(a)), a)                                                        \
    OPERATION(group_wide_add, group_wide_narrow(group_wide_add(WIDE(a), WIDE(b))), (float)((double)a + (double)b))     \
    OPERATION(group_wide_sub, group_wide_narrow(group_wide_sub(WIDE(a), WIDE(b))), (float)((double)a - (double)b))     \
    OPERATION(group_wide_mul, group_wide_narrow(group_wide_mul(WIDE(a), WIDE(b))), (float)((double)a * (double)b))     \
    OPERATION(group_wide_fma, group_wide_narrow(group_wide_fma(WIDE(a), WIDE(b), WIDE(c))),                            \
              (float)fma((double)a, (double)b, (double)c))                                                             \
    OPERATION(group_wide_fma_of_third, group_wide_narrow(group_wide_fma(WIDE(a), group_wide_set(1.0 / 3), THIRD(a))),  \
              (float)fma((double)a, 1.0 / 3, -((double)a * (1.0 / 3))))

enum lane_operation {
#define NUMBER(name, call, plain) OPERATION_##name,
    LANE_OPERATIONS(NUMBER) GROUP_OPERATIONS(NUMBER)
#undef NUMBER
        LANE_OPERATION_COUNT
};

enum { MOST_LANES = 16 };

/* Each array holds one vector: as many floats or doubles as the table has lanes. */
typedef void lane_function(float *out, const float *a, const float *b, const float *c, const float *d);
typedef void wide_function(double *out, const double *a, const double *b);

/* The operations on eight doubles whose lanes are easy to say in plain C. */
#define EIGHT_OPERATIONS(OPERATION)                                                                                    \
    OPERATION(eight_set, eight_set(p[0]), p[0])                                                                        \
    OPERATION(eight_abs, eight_abs(a), fabs(p[k]))                                                                     \
    OPERATION(eight_of_two, eight_of_two(p[0], p[1], p[2]), p[k < 2 ? k : 2])                                          \
    OPERATION(eight_load, a, p[k])                                                                                     \
    OPERATION(eight_add, eight_add(a, b), p[k] + q[k])                                                                 \
    OPERATION(eight_sub, eight_sub(a, b), p[k] - q[k])                                                                 \
    OPERATION(eight_mul, eight_mul(a, b), p[k] * q[k])                                                                 \
    OPERATION(eight_div, eight_div(a, b), p[k] / q[k])                                                                 \
    OPERATION(eight_sqrt, eight_sqrt(a), sqrt(p[k]))

enum eight_operation {
#define NUMBER(name, call, plain) OPERATION_##name,
    EIGHT_OPERATIONS(NUMBER)
#undef NUMBER
        EIGHT_OPERATION_COUNT
};

typedef void eight_function(double out[8], const double a[8], const double b[8]);

struct vocabulary {
    const char *identifier; /* of the table */
    int lanes;
    int group_lanes;
    lane_function *lane_functions[LANE_OPERATION_COUNT];

    void (*load)(float *out, const float *p);
    void (*load_n)(float *out, const float *p, ptrdiff_t n, float fill);
    void (*store)(float *p, const float *a);
    void (*store_n)(float *p, const float *a, ptrdiff_t n);
    void (*stream)(float *p, const float *a);
    void (*set)(float *out, float a);

    int (*any_nan)(const float *a);
    int (*any_not_finite)(const float *a);
    uint32_t (*greatest_bits)(const float *a);
    int (*any_bits_above)(const float *a, uint32_t limit);
    void (*select_outside)(float *out, const float *a, uint32_t low, uint32_t span, const float *x, const float *y);

    void (*group_load_n)(float *out, const float *p, ptrdiff_t n, float fill);
    void (*group_store)(float *p, const float *a);
    int (*group_any_bits_above)(const float *a, uint32_t limit);

    int rsqrt_estimate_bits;
    void (*rsqrt_estimate)(float *out, const float *a);
    void (*tanh_sleef)(float *out, const float *a); /* NULL if the table lacks it */

    void (*wide_set)(double *out, double a);
    void (*widen)(double *out, const float *a);
    void (*load_floats)(double *out, const float *p);
    void (*narrow)(float *out, const double *a);
    wide_function *wide_add;
    wide_function *wide_accumulate;
    wide_function *wide_sub;
    wide_function *wide_mul;
    void (*wide_fma)(double *out, const double *a, const double *b, const double *c);
    void (*wide_add_product)(double *out, const double *a, const double *b, const double *c);

    eight_function *eight_functions[EIGHT_OPERATION_COUNT];
    void (*eight_load_floats)(double out[8], const float p[8]);
    void (*eight_store_floats)(float p[8], const double a[8]);
    unsigned (*eight_at_most)(const double a[8], const double b[8]);
    void (*vec_fold)(double out[8], const float lanes[16]);
    void (*vec_store_folded)(float p[8], const float lanes[16]);
    void (*wide_fold)(double out[8], const double lanes[16]);
    double (*eight_sum)(const double a[8]);
    void (*merge)(double out[8], double rows[8][8]); /* by merge_4, merge_2 and merge_1 */
};

extern const struct vocabulary vocabulary;

#endif
