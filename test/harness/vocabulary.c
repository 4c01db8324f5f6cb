/* SPDX-License-Identifier: BSD-2-Clause */
#include "vocabulary.h"
#include "rows/group_vectors.h"
#include "rows/subnormals.h"
#include "vec.h"

/* Arrays are copied to vectors and back by memcpy, so that each test runs the operation it tests and no other. */
static vec vec_of(const float *values) {
    vec a;
    memcpy(&a, values, sizeof a);
    return a;
}

static void put(float *values, vec a) {
    memcpy(values, &a, sizeof a);
}

/* Fills as many lanes as a vec has, by one vector or by two halves. */
#define DEFINE_BY(type, type_lanes, function, call)                                                                    \
    static void function(float *out, const float *p, const float *q, const float *r, const float *s) {                 \
        for (int i = 0; i < LANES; i += type_lanes) {                                                                  \
            type a, b, c, d, result;                                                                                   \
            memcpy(&a, p + i, sizeof a);                                                                               \
            memcpy(&b, q + i, sizeof b);                                                                               \
            memcpy(&c, r + i, sizeof c);                                                                               \
            memcpy(&d, s + i, sizeof d);                                                                               \
            (void)a, (void)b, (void)c, (void)d;                                                                        \
            result = call;                                                                                             \
            memcpy(out + i, &result, sizeof result);                                                                   \
        }                                                                                                              \
    }
#define DEFINE(name, call, plain) DEFINE_BY(vec, LANES, run_##name, call)
LANE_OPERATIONS(DEFINE)
#define DEFINE_IN_GROUP(name, call, plain) DEFINE_BY(group_vec, GROUP_LANES, run_##name, call)
GROUP_OPERATIONS(DEFINE_IN_GROUP)

static group_vec group_of(const float *values) {
    group_vec a;
    memcpy(&a, values, sizeof a);
    return a;
}

static void run_group_load_n(float *out, const float *p, ptrdiff_t n, float fill) {
    float fills[GROUP_LANES];
    for (int i = 0; i < GROUP_LANES; i++)
        fills[i] = fill;
    const group_vec a = group_vec_load_n(p, n, group_of(fills));
    memcpy(out, &a, sizeof a);
}

static void run_group_store(float *p, const float *a) {
    group_vec_store(p, group_of(a));
}

static int run_group_any_bits_above(const float *a, uint32_t limit) {
    return group_vec_any_bits_above(group_of(a), limit);
}

static void run_load(float *out, const float *p) {
    put(out, vec_load(p));
}

static void run_load_n(float *out, const float *p, ptrdiff_t n, float fill) {
    float fills[LANES];
    for (int i = 0; i < LANES; i++)
        fills[i] = fill;
    put(out, vec_load_n(p, n, vec_of(fills)));
}

static void run_store(float *p, const float *a) {
    vec_store(p, vec_of(a));
}

static void run_store_n(float *p, const float *a, ptrdiff_t n) {
    vec_store_n(p, vec_of(a), n);
}

static void run_stream(float *p, const float *a) {
    vec_stream(p, vec_of(a));
    vec_end_streaming();
}

static void run_set(float *out, float a) {
    put(out, vec_set(a));
}

static int run_any_nan(const float *a) {
    return vec_any_nan(vec_of(a));
}

static int run_any_not_finite(const float *a) {
    return vec_any_not_finite(vec_of(a));
}

static uint32_t run_greatest_bits(const float *a) {
    return vec_greatest_bits(vec_of(a));
}

static int run_any_bits_above(const float *a, uint32_t limit) {
    return vec_any_bits_above(vec_of(a), limit);
}

static void run_select_outside(float *out, const float *a, uint32_t low, uint32_t span, const float *x,
                               const float *y) {
    put(out, vec_select_outside(vec_of(a), low, span, vec_of(x), vec_of(y)));
}

static void run_rsqrt_estimate(float *out, const float *a) {
    put(out, vec_rsqrt_estimate(vec_of(a)));
}

#ifdef VEC_HAVE_SLEEF
static void run_tanh_sleef(float *out, const float *a) {
    put(out, vec_tanh_sleef(vec_of(a)));
}
#else
#define run_tanh_sleef NULL
#endif

static void run_wide_set(double *out, double a) {
    wide_store(out, wide_set(a));
}

static void run_widen(double *out, const float *a) {
    wide_store(out, vec_widen(vec_of(a)));
}

static void run_load_floats(double *out, const float *p) {
    wide_store(out, wide_load_floats(p));
}

static void run_narrow(float *out, const double *a) {
    put(out, wide_narrow(wide_load(a)));
}

static void run_wide_add(double *out, const double *a, const double *b) {
    wide first = wide_load(a), second = wide_load(b);
    wides_in_registers(&first, &second);
    wide_store(out, wide_add(first, second));
}

static void run_wide_accumulate(double *out, const double *a, const double *b) {
    wide_store(out, wide_accumulate(wide_load(a), wide_load(b)));
}

static void run_wide_sub(double *out, const double *a, const double *b) {
    wide_store(out, wide_sub(wide_load(a), wide_load(b)));
}

static void run_wide_mul(double *out, const double *a, const double *b) {
    wide_store(out, wide_mul(wide_load(a), wide_load(b)));
}

static void run_wide_fma(double *out, const double *a, const double *b, const double *c) {
    wide_store(out, wide_fma(wide_load(a), wide_load(b), wide_load(c)));
}

static void run_wide_add_product(double *out, const double *a, const double *b, const double *c) {
    wide_store(out, wide_add_product(wide_load(a), wide_load(b), wide_load(c)));
}

#define DEFINE_EIGHT(name, call, plain)                                                                                \
    static void run_##name(double out[8], const double p[8], const double q[8]) {                                      \
        eight a = eight_load(p), b = eight_load(q);                                                                    \
        (void)a, (void)b;                                                                                              \
        eight_store(out, call);                                                                                        \
    }
EIGHT_OPERATIONS(DEFINE_EIGHT)

static void run_eight_load_floats(double out[8], const float p[8]) {
    eight_store(out, eight_load_floats(p));
}

static void run_eight_store_floats(float p[8], const double a[8]) {
    eight_store_floats(p, eight_load(a));
}

static unsigned run_eight_at_most(const double a[8], const double b[8]) {
    return eight_at_most(eight_load(a), eight_load(b));
}

static void run_vec_fold(double out[8], const float sixteen[16]) {
    vec lanes[16 / LANES];
    memcpy(lanes, sixteen, sizeof lanes);
    eight_store(out, vec_fold(lanes));
}

static void run_vec_store_folded(float p[8], const float sixteen[16]) {
    vec lanes[16 / LANES];
    memcpy(lanes, sixteen, sizeof lanes);
    vec_store_folded(p, lanes);
}

static void run_wide_fold(double out[8], const double sixteen[16]) {
    wide lanes[16 / LANES];
    for (int i = 0; i < 16 / LANES; i++)
        lanes[i] = wide_load(sixteen + i * LANES);
    eight_store(out, wide_fold(lanes));
}

static double run_eight_sum(const double a[8]) {
    return eight_sum(eight_load(a));
}

static void run_merge(double out[8], double rows[8][8]) {
    eight fours[4], twos[2];
    for (int r = 0; r < 4; r++)
        fours[r] = merge_4(eight_load(rows[r]), eight_load(rows[r + 4]));
    for (int r = 0; r < 2; r++)
        twos[r] = merge_2(fours[r], fours[r + 2]);
    eight_store(out, merge_1(twos[0], twos[1]));
}

#define STRING_(text) #text
#define STRING(macro) STRING_(macro)

const struct vocabulary vocabulary = {
    .identifier = STRING(DYNNORM_TABLE),
    .lanes = LANES,
    .group_lanes = GROUP_LANES,
#define ENTER(name, call, plain) [OPERATION_##name] = run_##name,
    .lane_functions = {LANE_OPERATIONS(ENTER) GROUP_OPERATIONS(ENTER)},
    .group_load_n = run_group_load_n,
    .group_store = run_group_store,
    .group_any_bits_above = run_group_any_bits_above,
    .load = run_load,
    .load_n = run_load_n,
    .store = run_store,
    .store_n = run_store_n,
    .stream = run_stream,
    .set = run_set,
    .any_nan = run_any_nan,
    .any_not_finite = run_any_not_finite,
    .greatest_bits = run_greatest_bits,
    .any_bits_above = run_any_bits_above,
    .select_outside = run_select_outside,
    .rsqrt_estimate_bits = VEC_RSQRT_ESTIMATE_BITS,
    .rsqrt_estimate = run_rsqrt_estimate,
    .tanh_sleef = run_tanh_sleef,
    .wide_set = run_wide_set,
    .widen = run_widen,
    .load_floats = run_load_floats,
    .narrow = run_narrow,
    .wide_add = run_wide_add,
    .wide_accumulate = run_wide_accumulate,
    .wide_sub = run_wide_sub,
    .wide_mul = run_wide_mul,
    .wide_fma = run_wide_fma,
    .wide_add_product = run_wide_add_product,
    .eight_functions = {EIGHT_OPERATIONS(ENTER)},
    .eight_load_floats = run_eight_load_floats,
    .eight_store_floats = run_eight_store_floats,
    .eight_at_most = run_eight_at_most,
    .vec_fold = run_vec_fold,
    .vec_store_folded = run_vec_store_folded,
    .wide_fold = run_wide_fold,
    .eight_sum = run_eight_sum,
    .merge = run_merge,
};
