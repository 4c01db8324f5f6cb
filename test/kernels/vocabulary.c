/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compares each operation of a table's vec.h with plain C, on special values and on random bits, in every lane.
 */
#include "vocabulary.h"

#include "dispatch/dispatch.h"
#include "float_bits.h"
#include "random.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 20000 };

/* ---- The operations in plain C ----------------------------------------------------------------------------------- */

typedef float plain_function(float a, float b, float c, float d);

#define DEFINE(name, call, plain)                                                                                      \
    static float plain_##name(float a, float b, float c, float d) {                                                    \
        (void)a, (void)b, (void)c, (void)d;                                                                            \
        return plain;                                                                                                  \
    }
LANE_OPERATIONS(DEFINE)
GROUP_OPERATIONS(DEFINE)

static const struct {
    const char *name;
    plain_function *function;
} plain_operations[] = {
#define ENTER(name, call, plain) {#name, plain_##name},
    LANE_OPERATIONS(ENTER) GROUP_OPERATIONS(ENTER)};

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static const float special_values[] = {
    0,
    -0.0f,
    1,
    -1,
    0.5f,
    2,
    3,
    INFINITY,
    -INFINITY,
    NAN,
    -NAN,
    FLT_MAX,
    -FLT_MAX,
    FLT_MIN,
    -FLT_MIN,
    0x1p-149f,
    -0x1p-149f,
    0x1.fffffcp-127f,
    0x1p-75f,
    0x1p75f,
    0x1p-100f,
    0x1p100f,
    -0x1p100f,
    0x1p127f,
    0x1p24f,
    0x1.000002p0f,
    0x1.fffffep-1f,
    0x1.8p-149f,
    0x1.000002p12f,
    -0x1.fffffep63f,
    0x1.000004p-63f,
};
enum { SPECIAL_VALUES = sizeof special_values / sizeof *special_values };

/* A special value, random bits, or a number near 1, where sums cancel. */
static float random_value(struct random *random) {
    switch (random_below(random, 3)) {
    case 0:
        return special_values[random_below(random, SPECIAL_VALUES)];
    case 1:
        return float_of_bits((uint32_t)random_bits(random));
    default:
        return random_normal(random);
    }
}

static void random_values(float values[MOST_LANES], struct random *random) {
    for (int i = 0; i < MOST_LANES; i++)
        values[i] = random_value(random);
}

/* The same bits, or both NaN. */
static int same(float a, float b) {
    return bits_of_float(a) == bits_of_float(b) || (isnan(a) && isnan(b));
}

static int same_double(double a, double b) {
    return !memcmp(&a, &b, sizeof a) || (isnan(a) && isnan(b));
}

/* Reports one operation. lane is the first wrong one, or negative if all are right. */
static void report(const char *operation, int lane, double got, double expected) {
    if (lane < 0)
        tap_check(1, "%s %s", vocabulary.identifier, operation);
    else
        tap_check(0, "%s %s, lane %d: got %a, expected %a", vocabulary.identifier, operation, lane, got, expected);
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Whether the C library's fma and fmaf can be compared with. Those of mingw-w64 round twice, and the fma of musl 1.2.3
 * forgets the sign of a product that underflows to 0. */
static int library_fma_is_right(void) {
    volatile float a = -0x1.f9f25ap-93f, b = -0x1.84f336p-2f, c = 0x1.fffffcp-127f;
    volatile double near_one = 1 + 0x1p-52, square = -1 - 0x1p-51, tiny = 0x1p-600, zero = 0;
    return fmaf(a, b, c) == 0x1.8059fep-94f && fma(near_one, near_one, square) == 0x1p-104 &&
           signbit(fma(tiny, -tiny, zero));
}

/* Whether an operation is compared with fma or fmaf, and these cannot be relied on. Reports it as skipped then. */
static int cannot_be_compared(const char *operation) {
    static const char *const fused[] = {"vec_fma",  "vec_fma_by_doubles", "vec_fms",        "vec_fnma",
                                        "wide_fma", "wide_add_product",   "group_wide_fma", "group_wide_fma_of_third"};
    for (size_t i = 0; i < sizeof fused / sizeof *fused && !library_fma_is_right(); i++)
        if (!strcmp(operation, fused[i])) {
            tap_skip(operation, "the C library's fma, to compare with, is wrong");
            return 1;
        }
    return 0;
}

static void check_lane_operation(int operation) {
    if (cannot_be_compared(plain_operations[operation].name))
        return;
    struct random random = random_start(random_seed());
    for (int round = 0; round < ROUNDS; round++) {
        float a[MOST_LANES], b[MOST_LANES], c[MOST_LANES], d[MOST_LANES], out[MOST_LANES];
        random_values(a, &random);
        random_values(b, &random);
        random_values(c, &random);
        random_values(d, &random);
        switch (random_below(&random, 8)) {
        case 0: /* equal operands: differences and comparisons */
            memcpy(b, a, sizeof b);
            break;
        case 1: /* a b + c cancels to the rounding error of the product */
            for (int i = 0; i < MOST_LANES; i++)
                c[i] = -(a[i] * b[i]);
            break;
        case 2: /* a b is close to half a unit in the last place of c, where rounding twice goes wrong */
            for (int i = 0; i < MOST_LANES; i++) {
                c[i] = 1 + (float)random_below(&random, 1 << 23) * 0x1p-23f;
                a[i] = 1 + (float)random_below(&random, 3) * 0x1p-23f;
                b[i] = ldexpf(1 - (float)random_below(&random, 5) * 0x1p-24f, -24);
            }
            break;
        }
        vocabulary.lane_functions[operation](out, a, b, c, d);
        for (int i = 0; i < vocabulary.lanes; i++) {
            float expected = plain_operations[operation].function(a[i], b[i], c[i], d[i]);
            if (!same(out[i], expected)) {
                tap_check(0, "%s %s(%a, %a, %a, %a), lane %d, seed %llu: got %a, expected %a", vocabulary.identifier,
                          plain_operations[operation].name, (double)a[i], (double)b[i], (double)c[i], (double)d[i], i,
                          (unsigned long long)random_seed(), (double)out[i], (double)expected);
                return;
            }
        }
    }
    report(plain_operations[operation].name, -1, 0, 0);
}

static void check_memory(void) {
    enum { MARGIN = 4, SIZE = MOST_LANES + 2 * MARGIN };
    float source[SIZE], target[SIZE], out[MOST_LANES];
    for (int i = 0; i < SIZE; i++)
        source[i] = (float)(100 + i);

    int wrong = -1;
    vocabulary.load(out, source + 1);
    for (int i = 0; i < vocabulary.lanes; i++)
        wrong = wrong < 0 && out[i] != source[1 + i] ? i : wrong;
    report("vec_load", wrong, wrong < 0 ? 0 : (double)out[wrong], wrong < 0 ? 0 : (double)source[1 + wrong]);

    vocabulary.set(out, -2.5f);
    wrong = -1;
    for (int i = 0; i < vocabulary.lanes; i++)
        wrong = wrong < 0 && out[i] != -2.5f ? i : wrong;
    report("vec_set", wrong, wrong < 0 ? 0 : (double)out[wrong], -2.5);

    for (ptrdiff_t n = -2; n <= vocabulary.lanes + 2; n++) {
        ptrdiff_t count = n < 0 ? 0 : n > vocabulary.lanes ? vocabulary.lanes : n;
        char name[48];
        vocabulary.load_n(out, source + 1, n, -7);
        wrong = -1;
        for (int i = 0; i < vocabulary.lanes; i++)
            wrong = wrong < 0 && out[i] != (i < count ? source[1 + i] : -7) ? i : wrong;
        snprintf(name, sizeof name, "vec_load_n of %td lanes", n);
        report(name, wrong, wrong < 0 ? 0 : (double)out[wrong], wrong < count ? (double)source[1 + wrong] : -7);

        for (int whole = 0; whole <= (n == vocabulary.lanes); whole++) {
            for (int i = 0; i < SIZE; i++)
                target[i] = -9;
            if (whole)
                vocabulary.store(target + MARGIN, source);
            else
                vocabulary.store_n(target + MARGIN, source, n);
            wrong = -1;
            for (int i = 0; i < SIZE; i++) {
                int stored = i >= MARGIN && i < MARGIN + count;
                wrong = wrong < 0 && target[i] != (stored ? source[i - MARGIN] : -9) ? i : wrong;
            }
            snprintf(name, sizeof name, whole ? "vec_store" : "vec_store_n of %td lanes", n);
            report(name, wrong < 0 ? -1 : wrong - MARGIN + vocabulary.lanes, wrong < 0 ? 0 : (double)target[wrong], -9);
        }
    }
}

/* Loading, storing and finding of vectors with a lane for each row of a group. */
static void check_group(void) {
    float source[MOST_LANES], target[MOST_LANES + 1], out[MOST_LANES];
    int wrong = -1, wrong_store = -1, wrong_any = -1;
    for (int i = 0; i < MOST_LANES; i++)
        source[i] = (float)(100 + i);
    for (ptrdiff_t n = -2; n <= vocabulary.group_lanes + 2; n++) {
        vocabulary.group_load_n(out, source, n, -7);
        for (int i = 0; i < vocabulary.group_lanes; i++)
            wrong = wrong < 0 && out[i] != (i < n ? source[i] : -7) ? i : wrong;
    }
    for (int i = 0; i <= MOST_LANES; i++)
        target[i] = -9;
    vocabulary.group_store(target, source);
    for (int i = 0; i <= MOST_LANES; i++)
        wrong_store = wrong_store < 0 && target[i] != (i < vocabulary.group_lanes ? source[i] : -9) ? i : wrong_store;
    for (int lane = 0; lane < MOST_LANES; lane++) {
        for (int i = 0; i < MOST_LANES; i++)
            out[i] = float_of_bits(i == lane ? 0x80000001 : 0x80000000);
        if (vocabulary.group_any_bits_above(out, 0x80000000) != (lane < vocabulary.group_lanes) ||
            !vocabulary.group_any_bits_above(out, 0x7fffffff))
            wrong_any = lane;
    }
    report("group_vec_load_n", wrong, 0, 0);
    report("group_vec_store", wrong_store, 0, 0);
    report("group_vec_any_bits_above", wrong_any, 0, 0);
}

static void check_outside(void) {
    static const uint32_t ranges[][2] = {
        {0, 0},
        {0, 0x7fffffff},
        {0x00800000, 0x7effffff},
        {0x3f800000, 0x00800000},
        {0x80000000, 0},
        {0x7f000000, 0x7f000000},
        {0x22000000, 0x3c000000},
        {0, 0xffffffff},
        {0xfffffff0, 0xf},
        {1, 0xfffffffe},
    };
    struct random random = random_start(random_seed());
    for (size_t range = 0; range < sizeof ranges / sizeof *ranges; range++) {
        uint32_t low = ranges[range][0], span = ranges[range][1];
        int wrong = -1, wrong_any = 0;
        float a[MOST_LANES], x[MOST_LANES], y[MOST_LANES], out[MOST_LANES] = {0};
        for (int round = 0; round < ROUNDS && wrong < 0 && !wrong_any; round++) {
            /* Mostly inside the range, so that a single lane outside has to be noticed, and often at its edges. */
            for (int i = 0; i < MOST_LANES; i++) {
                uint32_t bits = low + (span == UINT32_MAX ? (uint32_t)random_bits(&random)
                                                          : (uint32_t)random_below(&random, (size_t)span + 1));
                switch (random_below(&random, 24)) {
                case 0:
                    bits = low;
                    break;
                case 1:
                    bits = low + span;
                    break;
                case 2:
                    bits = low - 1;
                    break;
                case 3:
                    bits = low + span + 1;
                    break;
                case 4:
                    bits = (uint32_t)random_bits(&random);
                    break;
                }
                if (round % 2 && (bits < low || bits - low > span))
                    bits = low;
                a[i] = float_of_bits(bits);
            }
            random_values(x, &random);
            random_values(y, &random);
            int any_above = 0; /* the bits of low + span */
            vocabulary.select_outside(out, a, low, span, x, y);
            for (int i = 0; i < vocabulary.lanes; i++) {
                uint32_t bits = bits_of_float(a[i]);
                int outside = bits < low || bits - low > span;
                any_above |= bits > low + span;
                if (!same(out[i], outside ? x[i] : y[i]))
                    wrong = i;
            }
            wrong_any = !vocabulary.any_bits_above(a, low + span) != !any_above;
        }
        tap_check(wrong < 0 && !wrong_any, "%s vec_select_outside and vec_any_bits_above of %08x + %08x, lane %d%s",
                  vocabulary.identifier, (unsigned)low, (unsigned)span, wrong, wrong_any ? ", any" : "");
    }
}

/* The greatest in each lane, once with and once without the highest bit, among lesser ones. */
static void check_greatest_bits(void) {
    float a[MOST_LANES];
    struct random random = random_start(random_seed());
    int wrong = -1;
    for (int round = 0; round < 2 * vocabulary.lanes; round++) {
        const int lane = round / 2;
        const uint32_t greatest = (uint32_t)random_bits(&random) >> 1 | (round % 2 ? 0x80000000 : 1);
        for (int i = 0; i < MOST_LANES; i++)
            a[i] = float_of_bits(i == lane ? greatest : (uint32_t)random_bits(&random) % greatest);
        if (vocabulary.greatest_bits(a) != greatest)
            wrong = lane;
    }
    tap_check(wrong < 0, "%s vec_greatest_bits, lane %d", vocabulary.identifier, wrong);
}

/* One NaN in any lane, and none. */
static void check_any_nan(void) {
    float a[MOST_LANES];
    int wrong = 0;
    for (int lane = -1; lane < vocabulary.lanes; lane++) {
        for (int i = 0; i < MOST_LANES; i++)
            a[i] = i == lane ? NAN : i % 2 ? INFINITY : 0;
        wrong |= !vocabulary.any_nan(a) != (lane < 0);
    }
    tap_check(!wrong, "%s vec_any_nan", vocabulary.identifier);
}

/* The same of what is not finite, among the least and the greatest floats. */
static void check_any_not_finite(void) {
    const float kinds[] = {NAN, -NAN, INFINITY, -INFINITY, float_of_bits(0x7f800001), float_of_bits(0xff800001)};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    float a[MOST_LANES];
    int wrong = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int lane = -1; lane < vocabulary.lanes; lane++) {
            for (int i = 0; i < MOST_LANES; i++)
                a[i] = i == lane ? kinds[kind] : i % 3 ? (i % 2 ? FLT_MAX : -FLT_MAX) : 0x1p-149f;
            wrong |= !vocabulary.any_not_finite(a) != (lane < 0);
        }
    tap_check(!wrong, "%s vec_any_not_finite", vocabulary.identifier);
}

static void check_stream(void) {
    _Alignas(64) float target[3 * MOST_LANES];
    float source[MOST_LANES];
    for (int i = 0; i < MOST_LANES; i++)
        source[i] = (float)(i + 1);
    for (int i = 0; i < 3 * MOST_LANES; i++)
        target[i] = -9;
    vocabulary.stream(target + MOST_LANES, source);
    int wrong = 0;
    for (int i = 0; i < 3 * MOST_LANES; i++) {
        int at = i - MOST_LANES;
        wrong |= target[i] != (at >= 0 && at < vocabulary.lanes ? source[at] : -9);
    }
    tap_check(!wrong, "%s vec_stream", vocabulary.identifier);
}

/* The largest error of an estimate, relative to exact(a), for a from 2^-100 to 2^100. */
static double largest_error(void (*estimate)(float *out, const float *a), double (*exact)(double a), float *where) {
    struct random random = random_start(random_seed());
    double largest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        float a[MOST_LANES], out[MOST_LANES];
        for (int i = 0; i < MOST_LANES; i++)
            a[i] = ldexpf((float)random_between(&random, 1, 2), (int)random_below(&random, 200) - 100);
        estimate(out, a);
        for (int i = 0; i < vocabulary.lanes; i++) {
            double error = fabs((double)out[i] / exact((double)a[i]) - 1);
            if (!(error <= largest)) {
                largest = error;
                *where = a[i];
            }
        }
    }
    return largest;
}

static double exact_rsqrt(double a) {
    return 1 / sqrt(a);
}

static void guess_rsqrt(float *out, const float *a) {
    vocabulary.lane_functions[OPERATION_vec_rsqrt_guess](out, a, a, a, a);
}

static void check_estimates(void) {
    const double bound = fmin(0x1p-8, ldexp(1, -vocabulary.rsqrt_estimate_bits));
    float where = 0;
    double error = largest_error(vocabulary.rsqrt_estimate, exact_rsqrt, &where);
    tap_check(error <= bound, "%s vec_rsqrt_estimate: relative error up to %.3g, at %a", vocabulary.identifier, error,
              (double)where);
    error = largest_error(guess_rsqrt, exact_rsqrt, &where);
    tap_check(error <= 0.062, "%s vec_rsqrt_guess: relative error up to %.3g, at %a", vocabulary.identifier, error,
              (double)where);
}

/* SLEEF promises 1.0 ULP. The test "bits" checks that all tables agree. */
static void check_tanh_sleef(void) {
    if (!vocabulary.tanh_sleef) {
        tap_skip("vec_tanh_sleef", "this instruction set or build has no SLEEF");
        return;
    }
    struct random random = random_start(random_seed());
    double largest = 0;
    float where = 0;
    int odd = 1;
    for (int round = 0; round < ROUNDS; round++) {
        float a[MOST_LANES], out[MOST_LANES], negated[MOST_LANES], out_negated[MOST_LANES];
        for (int i = 0; i < MOST_LANES; i++) {
            a[i] = (float)random_between(&random, -12, 12);
            negated[i] = -a[i];
        }
        vocabulary.tanh_sleef(out, a);
        vocabulary.tanh_sleef(out_negated, negated);
        for (int i = 0; i < vocabulary.lanes; i++) {
            double exact = tanh((double)a[i]);
            float rounded = fabsf((float)exact);
            double ulp = (double)(rounded - nextafterf(rounded, 0));
            double error = fabs((double)out[i] - exact) / ulp;
            if (!(error <= largest)) {
                largest = error;
                where = a[i];
            }
            odd = odd && out[i] == -out_negated[i];
        }
    }
    tap_check(largest <= 1 && odd, "%s vec_tanh_sleef: up to %.3f ULP, at %a; %sodd", vocabulary.identifier, largest,
              (double)where, odd ? "" : "not ");
}

static double random_double(struct random *random) {
    if (random_below(random, 2))
        return (double)random_value(random);
    uint64_t bits = random_bits(random);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void check_wide(void) {
    struct random random = random_start(random_seed());
    int wrong_widen = -1, wrong_add = -1, wrong_accumulate = -1, wrong_sub = -1, wrong_mul = -1, wrong_fma = -1,
        wrong_product = -1, wrong_set = -1, wrong_narrow = -1, wrong_load = -1;
    for (int round = 0; round < ROUNDS; round++) {
        float values[MOST_LANES];
        double a[MOST_LANES], b[MOST_LANES], c[MOST_LANES], widened[MOST_LANES], loaded[MOST_LANES], sum[MOST_LANES],
            difference[MOST_LANES], accumulated[MOST_LANES], product[MOST_LANES], fused[MOST_LANES], set[MOST_LANES],
            floats[3][MOST_LANES], with_product[MOST_LANES];
        float narrowed[MOST_LANES];
        random_values(values, &random);
        for (int i = 0; i < MOST_LANES; i++) {
            a[i] = random_double(&random);
            b[i] = random_double(&random);
            c[i] = i % 2 ? random_double(&random)
                         : -a[i] * b[i]; /* what would be lost if the product were rounded first */
        }
        vocabulary.widen(widened, values);
        vocabulary.load_floats(loaded, values);
        vocabulary.wide_add(sum, a, b);
        vocabulary.wide_accumulate(accumulated, a, b);
        vocabulary.wide_sub(difference, a, b);
        vocabulary.wide_mul(product, a, b);
        vocabulary.wide_fma(fused, a, b, c);
        vocabulary.wide_set(set, a[0]);
        for (int i = 0; i < MOST_LANES; i++) { /* products of floats, which double holds */
            floats[0][i] = (double)values[i];
            floats[1][i] = (double)random_value(&random);
            floats[2][i] = i % 2 ? b[i] : -floats[0][i] * floats[1][i] * (1 + 0x1p-52);
        }
        vocabulary.wide_add_product(with_product, floats[0], floats[1], floats[2]);
        vocabulary.narrow(narrowed, b);
        for (int i = 0; i < vocabulary.lanes; i++) {
            wrong_widen = same_double(widened[i], (double)values[i]) ? wrong_widen : i;
            wrong_add = same_double(sum[i], a[i] + b[i]) ? wrong_add : i;
            wrong_accumulate = same_double(accumulated[i], a[i] + b[i]) ? wrong_accumulate : i;
            wrong_sub = same_double(difference[i], a[i] - b[i]) ? wrong_sub : i;
            wrong_mul = same_double(product[i], a[i] * b[i]) ? wrong_mul : i;
            wrong_load = same_double(loaded[i], (double)values[i]) ? wrong_load : i;
            wrong_fma = same_double(fused[i], fma(a[i], b[i], c[i])) ? wrong_fma : i;
            wrong_product =
                same_double(with_product[i], fma(floats[0][i], floats[1][i], floats[2][i])) ? wrong_product : i;
            wrong_set = same_double(set[i], a[0]) ? wrong_set : i;
            wrong_narrow = same_double((double)narrowed[i], (double)(float)b[i]) ? wrong_narrow : i;
        }
    }
    tap_check(wrong_widen < 0, "%s vec_widen, lane %d", vocabulary.identifier, wrong_widen);
    tap_check(wrong_add < 0, "%s wide_add, lane %d", vocabulary.identifier, wrong_add);
    tap_check(wrong_accumulate < 0, "%s wide_accumulate, lane %d", vocabulary.identifier, wrong_accumulate);
    tap_check(wrong_sub < 0, "%s wide_sub, lane %d", vocabulary.identifier, wrong_sub);
    tap_check(wrong_mul < 0, "%s wide_mul, lane %d", vocabulary.identifier, wrong_mul);
    tap_check(wrong_load < 0, "%s wide_load_floats, lane %d", vocabulary.identifier, wrong_load);
    if (!cannot_be_compared("wide_fma"))
        tap_check(wrong_fma < 0, "%s wide_fma, lane %d", vocabulary.identifier, wrong_fma);
    tap_check(wrong_set < 0, "%s wide_set, lane %d", vocabulary.identifier, wrong_set);
    tap_check(wrong_narrow < 0, "%s wide_narrow, lane %d", vocabulary.identifier, wrong_narrow);
    if (!cannot_be_compared("wide_add_product"))
        tap_check(wrong_product < 0, "%s wide_add_product, lane %d", vocabulary.identifier, wrong_product);
}

/* ---- Eight doubles ----------------------------------------------------------------------------------------------- */

#define DEFINE_EIGHT(name, call, plain)                                                                                \
    static double plain_##name(const double p[8], const double q[8], int k) {                                          \
        (void)p, (void)q, (void)k;                                                                                     \
        return plain;                                                                                                  \
    }
EIGHT_OPERATIONS(DEFINE_EIGHT)

static const struct {
    const char *name;
    double (*function)(const double p[8], const double q[8], int k);
} plain_eight_operations[] = {EIGHT_OPERATIONS(ENTER)};

static void random_doubles(double *values, int count, struct random *random) {
    for (int i = 0; i < count; i++)
        values[i] = random_double(random);
}

static void check_eight_operation(int operation) {
    struct random random = random_start(random_seed());
    int wrong = -1;
    for (int round = 0; round < ROUNDS && wrong < 0; round++) {
        double a[8], b[8], out[8];
        random_doubles(a, 8, &random);
        random_doubles(b, 8, &random);
        vocabulary.eight_functions[operation](out, a, b);
        for (int k = 0; k < 8; k++)
            wrong = same_double(out[k], plain_eight_operations[operation].function(a, b, k)) ? wrong : k;
    }
    report(plain_eight_operations[operation].name, wrong, 0, 0);
}

static void check_eight(void) {
    struct random random = random_start(random_seed());
    int wrong_load = -1, wrong_store = -1, wrong_compare = -1;
    for (int round = 0; round < ROUNDS; round++) {
        double a[8], b[8], loaded[8];
        float values[MOST_LANES], stored[8];
        random_doubles(a, 8, &random);
        random_doubles(b, 8, &random);
        random_values(values, &random);
        for (int k = 0; k < 8; k++)
            b[k] = random_below(&random, 3) ? b[k] : a[k];
        vocabulary.eight_load_floats(loaded, values);
        vocabulary.eight_store_floats(stored, a);
        unsigned at_most = vocabulary.eight_at_most(a, b);
        wrong_compare = at_most >> 8 ? 8 : wrong_compare;
        for (int k = 0; k < 8; k++) {
            wrong_load = same_double(loaded[k], (double)values[k]) ? wrong_load : k;
            wrong_store = same(stored[k], (float)a[k]) ? wrong_store : k;
            wrong_compare = (at_most >> k & 1) == (a[k] <= b[k]) ? wrong_compare : k;
        }
    }
    report("eight_load_floats", wrong_load, 0, 0);
    report("eight_store_floats", wrong_store, 0, 0);
    report("eight_at_most", wrong_compare, 0, 0);
}

static double tree_sum(const double a[8]) {
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* Numbers for which the order of additions matters. */
static double random_term(struct random *random) {
    return random_below(random, 8) ? random_between(random, -1, 1) : random_double(random);
}

static void check_sums(void) {
    struct random random = random_start(random_seed());
    int wrong_vec = -1, wrong_stored = -1, wrong_wide = -1, wrong_sum = -1, wrong_merge = -1;
    for (int round = 0; round < ROUNDS; round++) {
        float floats[16], stored[9];
        double doubles[16], rows[8][8], folded[8], folded_floats[8], sums[8];
        for (int i = 0; i < 16; i++) {
            floats[i] = (float)random_term(&random);
            doubles[i] = random_term(&random);
        }
        for (int i = 0; i < 64; i++)
            rows[i / 8][i % 8] = random_term(&random);
        vocabulary.vec_fold(folded_floats, floats);
        stored[8] = -9;
        vocabulary.vec_store_folded(stored, floats);
        wrong_stored = stored[8] == -9 ? wrong_stored : 8;
        vocabulary.wide_fold(folded, doubles);
        vocabulary.merge(sums, rows);
        for (int k = 0; k < 8; k++) {
            wrong_vec = same_double(folded_floats[k], (double)(floats[k] + floats[k + 8])) ? wrong_vec : k;
            wrong_stored = same_double((double)stored[k], (double)(floats[k] + floats[k + 8])) ? wrong_stored : k;
            wrong_wide = same_double(folded[k], doubles[k] + doubles[k + 8]) ? wrong_wide : k;
            wrong_sum = same_double(vocabulary.eight_sum(rows[k]), tree_sum(rows[k])) ? wrong_sum : k;
            wrong_merge = same_double(sums[k], tree_sum(rows[k])) ? wrong_merge : k;
        }
    }
    report("vec_fold", wrong_vec, 0, 0);
    report("vec_store_folded", wrong_stored, 0, 0);
    report("wide_fold", wrong_wide, 0, 0);
    report("eight_sum", wrong_sum, 0, 0);
    report("merge_4, merge_2 and merge_1", wrong_merge, 0, 0);
}

int main(void) {
    const struct isa *table = dynnorm_isa_list;
    while (table < dynnorm_isa_list + dynnorm_isa_count && strcmp(table->identifier, vocabulary.identifier))
        table++;
    if (table == dynnorm_isa_list + dynnorm_isa_count) {
        fprintf(stderr, "the library has no table %s\n", vocabulary.identifier);
        return 2;
    }
    if (!dynnorm_isa_runs_here(table)) {
        tap_skip(vocabulary.identifier, "this machine cannot run it");
        return tap_done();
    }
    for (int operation = 0; operation < LANE_OPERATION_COUNT; operation++)
        check_lane_operation(operation);
    check_memory();
    check_group();
    check_outside();
    check_estimates();
    check_tanh_sleef();
    check_greatest_bits();
    check_any_nan();
    check_any_not_finite();
    check_stream();
    check_wide();
    for (int operation = 0; operation < EIGHT_OPERATION_COUNT; operation++)
        check_eight_operation(operation);
    check_eight();
    check_sums();
    return tap_done();
}
