/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The vector vocabulary, NEON of AArch64; src/scalar/vec.h says what each operation does.
 */
#ifndef DYNNORM_VEC_H
#define DYNNORM_VEC_H

#include "../inlining.h"

#include <arm_neon.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef DYNNORM_HAVE_SLEEF
#include <sleef.h>
#endif

enum { LANES = 4, VEC_REGISTERS = 32 };
typedef float32x4_t vec;
typedef struct {
    float64x2_t low;
    float64x2_t high;
} wide;

INLINE uint32x4_t as_integers(vec a) {
    return vreinterpretq_u32_f32(a);
}

INLINE vec as_floats(uint32x4_t a) {
    return vreinterpretq_f32_u32(a);
}

/* ---- Memory ---- */

INLINE vec vec_load(const float *p) {
    return vld1q_f32(p);
}

/* One to three floats. It is a function of its own since it takes many branches, and the sums of rows have many loads.
 */
OUTLINED vec load_part(const float *p, ptrdiff_t n, vec fill) {
    if (n == 1)
        return vld1q_lane_f32(p, fill, 0);
    vec two = vcombine_f32(vld1_f32(p), vget_high_f32(fill));
    return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}

INLINE vec vec_load_n(const float *p, ptrdiff_t n, vec fill) {
    return n >= LANES ? vld1q_f32(p) : n <= 0 ? fill : load_part(p, n, fill);
}

INLINE vec vec_in_register(vec a) {
    return a;
}

INLINE void vec_store(float *p, vec a) {
    vst1q_f32(p, a);
}

INLINE void vec_store_n(float *p, vec a, ptrdiff_t n) {
    if (n >= LANES) {
        vst1q_f32(p, a);
    } else if (n == 1) {
        vst1q_lane_f32(p, a, 0);
    } else if (n > 1) {
        vst1_f32(p, vget_low_f32(a));
        if (n == 3)
            vst1q_lane_f32(p + 2, a, 2);
    }
}

/* AArch64 only has a hint, in a store of two registers. */
enum { VEC_CAN_STREAM = 0 };

INLINE void vec_stream(float *p, vec a) {
    vst1q_f32(p, a);
}

INLINE void vec_end_streaming(void) {
}

INLINE vec vec_set(float a) {
    return vdupq_n_f32(a);
}

/* ---- Arithmetic ---- */

INLINE vec vec_add(vec a, vec b) {
    return vaddq_f32(a, b);
}

INLINE vec vec_accumulate(vec sum, vec a) {
    return vec_add(sum, a);
}

INLINE vec vec_sub(vec a, vec b) {
    return vsubq_f32(a, b);
}

INLINE vec vec_mul(vec a, vec b) {
    return vmulq_f32(a, b);
}

INLINE vec vec_div(vec a, vec b) {
    return vdivq_f32(a, b);
}

INLINE vec vec_fma(vec a, vec b, vec c) {
    return vfmaq_f32(c, a, b);
}

INLINE vec vec_fms(vec a, vec b, vec c) {
    return vfmaq_f32(vnegq_f32(c), a, b);
}

INLINE vec vec_fnma(vec a, vec b, vec c) {
    return vfmsq_f32(c, a, b);
}

/* ---- Comparison, sign, bits. If a is neither NaN nor 0, vminq and vmaxq do what plain C does. ---- */

INLINE vec vec_min(vec a, vec b) {
    return vminq_f32(a, b);
}

INLINE vec vec_max(vec a, vec b) {
    return vmaxq_f32(a, b);
}

INLINE vec vec_abs(vec a) {
    return vabsq_f32(a);
}

INLINE vec vec_with_sign(vec magnitude, vec sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000), sign, magnitude);
}

INLINE vec vec_lesser_with_sign(vec magnitude, vec sign) {
    return vec_with_sign(vminq_f32(vec_abs(sign), magnitude), sign);
}

INLINE int vec_any_nan(vec a) {
    return vminvq_u32(vceqq_f32(a, a)) == 0;
}

INLINE int vec_any_not_finite(vec a) {
    return vec_any_nan(vec_sub(a, a));
}

INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return as_floats(vsubq_u32(as_integers(a), vdupq_n_u32(low)));
}

INLINE vec vec_max_bits(vec a, vec b) {
    return as_floats(vmaxq_u32(as_integers(a), as_integers(b)));
}

INLINE vec vec_greater_magnitude(vec a, vec b) {
    return vec_max_bits(a, vec_abs(b));
}

INLINE uint32_t vec_greatest_bits(vec a) {
    return vmaxvq_u32(as_integers(a));
}

INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    return vec_greatest_bits(a) > limit;
}

INLINE uint32x4_t lanes_outside(vec a, uint32_t low, uint32_t span) {
    return vcgtq_u32(vsubq_u32(as_integers(a), vdupq_n_u32(low)), vdupq_n_u32(span));
}

INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return vbslq_f32(lanes_outside(a, low, span), x, y);
}

INLINE vec vec_join(ptrdiff_t n, vec a, vec b) {
    static const int32_t lanes[LANES] = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n < LANES ? (int)n : LANES)), a, b);
}

INLINE vec vec_power_of_two(vec a) {
    return as_floats(vshlq_n_u32(as_integers(a), 23));
}

INLINE vec vec_place(vec a) {
    return as_floats(vandq_u32(vshrq_n_u32(as_integers(a), 20), vdupq_n_u32(31)));
}

INLINE vec vec_lookup(const float table[32], vec place) {
    uint32x4_t places = as_integers(place);
    vec result = vdupq_n_f32(table[vgetq_lane_u32(places, 0)]);
    result = vsetq_lane_f32(table[vgetq_lane_u32(places, 1)], result, 1);
    result = vsetq_lane_f32(table[vgetq_lane_u32(places, 2)], result, 2);
    return vsetq_lane_f32(table[vgetq_lane_u32(places, 3)], result, 3);
}

INLINE vec vec_rsqrt_guess(vec a, uint32_t magic) {
    return as_floats(vsubq_u32(vdupq_n_u32(magic), vshrq_n_u32(as_integers(a), 1)));
}

/* ---- Estimate ---- */

enum { VEC_RSQRT_ESTIMATE_BITS = 8 };

INLINE vec vec_rsqrt_estimate(vec a) {
    return vrsqrteq_f32(a);
}

/* ---- SLEEF ---- */

#ifdef DYNNORM_HAVE_SLEEF
#define VEC_HAVE_SLEEF
INLINE vec vec_tanh_sleef(vec a) {
    return Sleef_finz_tanhf4_u10advsimd(a);
}
#endif

/* ---- Doubles ---- */

INLINE wide wide_set(double a) {
    return (wide){vdupq_n_f64(a), vdupq_n_f64(a)};
}

INLINE wide wide_load(const double *p) {
    return (wide){vld1q_f64(p), vld1q_f64(p + 2)};
}

INLINE void wides_in_registers(wide *a, wide *b) {
    (void)a, (void)b;
}

INLINE void wide_store(double *p, wide a) {
    vst1q_f64(p, a.low);
    vst1q_f64(p + 2, a.high);
}

INLINE wide vec_widen(vec a) {
    return (wide){vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)};
}

INLINE wide wide_load_floats(const float *p) {
    return vec_widen(vec_load(p));
}

INLINE vec wide_narrow(wide a) {
    return vcvt_high_f32_f64(vcvt_f32_f64(a.low), a.high);
}

INLINE wide wide_add(wide a, wide b) {
    return (wide){vaddq_f64(a.low, b.low), vaddq_f64(a.high, b.high)};
}

INLINE wide wide_accumulate(wide sum, wide a) {
    return wide_add(sum, a);
}

INLINE wide wide_sub(wide a, wide b) {
    return (wide){vsubq_f64(a.low, b.low), vsubq_f64(a.high, b.high)};
}

INLINE wide wide_mul(wide a, wide b) {
    return (wide){vmulq_f64(a.low, b.low), vmulq_f64(a.high, b.high)};
}

INLINE wide wide_fma(wide a, wide b, wide c) {
    return (wide){vfmaq_f64(c.low, a.low, b.low), vfmaq_f64(c.high, a.high, b.high)};
}

INLINE wide wide_add_product(wide a, wide b, wide c) {
    return wide_fma(a, b, c);
}

/* ---- Eight doubles ---- */

typedef struct {
    wide first;
    wide second;
} eight;

INLINE eight eight_set(double a) {
    return (eight){wide_set(a), wide_set(a)};
}

INLINE eight eight_of_two(double first, double second, double others) {
    eight a = eight_set(others);
    a.first.low = vsetq_lane_f64(second, vdupq_n_f64(first), 1);
    return a;
}

INLINE eight eight_load(const double *p) {
    return (eight){wide_load(p), wide_load(p + 4)};
}

INLINE void eight_store(double *p, eight a) {
    wide_store(p, a.first);
    wide_store(p + 4, a.second);
}

INLINE eight eight_load_floats(const float *p) {
    return (eight){wide_load_floats(p), wide_load_floats(p + 4)};
}

INLINE void eight_store_floats(float *p, eight a) {
    vec_store(p, wide_narrow(a.first));
    vec_store(p + 4, wide_narrow(a.second));
}

INLINE eight eight_abs(eight a) {
    return (eight){{vabsq_f64(a.first.low), vabsq_f64(a.first.high)},
                   {vabsq_f64(a.second.low), vabsq_f64(a.second.high)}};
}

INLINE eight eight_add(eight a, eight b) {
    return (eight){wide_add(a.first, b.first), wide_add(a.second, b.second)};
}

INLINE eight eight_sub(eight a, eight b) {
    return (eight){wide_sub(a.first, b.first), wide_sub(a.second, b.second)};
}

INLINE eight eight_mul(eight a, eight b) {
    return (eight){wide_mul(a.first, b.first), wide_mul(a.second, b.second)};
}

INLINE wide wide_div(wide a, wide b) {
    return (wide){vdivq_f64(a.low, b.low), vdivq_f64(a.high, b.high)};
}

INLINE eight eight_div(eight a, eight b) {
    return (eight){wide_div(a.first, b.first), wide_div(a.second, b.second)};
}

INLINE eight eight_sqrt(eight a) {
    return (eight){{vsqrtq_f64(a.first.low), vsqrtq_f64(a.first.high)},
                   {vsqrtq_f64(a.second.low), vsqrtq_f64(a.second.high)}};
}

INLINE unsigned two_at_most(float64x2_t a, float64x2_t b) {
    uint64x2_t is_at_most = vcleq_f64(a, b);
    return (unsigned)((vgetq_lane_u64(is_at_most, 0) & 1) | (vgetq_lane_u64(is_at_most, 1) & 2));
}

INLINE unsigned eight_at_most(eight a, eight b) {
    return two_at_most(a.first.low, b.first.low) | two_at_most(a.first.high, b.first.high) << 2 |
           two_at_most(a.second.low, b.second.low) << 4 | two_at_most(a.second.high, b.second.high) << 6;
}

INLINE eight vec_fold(const vec lanes[16 / LANES]) {
    return (eight){vec_widen(vec_add(lanes[0], lanes[2])), vec_widen(vec_add(lanes[1], lanes[3]))};
}

INLINE void vec_store_folded(float p[8], const vec lanes[16 / LANES]) {
    vec_store(p, vec_add(lanes[0], lanes[2]));
    vec_store(p + LANES, vec_add(lanes[1], lanes[3]));
}

INLINE eight wide_fold(const wide lanes[16 / LANES]) {
    return (eight){wide_add(lanes[0], lanes[2]), wide_add(lanes[1], lanes[3])};
}

/* What is left after lane k + 4 is added to lane k, and then k + 2. */
INLINE float64x2_t last_two(eight a) {
    wide four = wide_add(a.first, a.second);
    return vaddq_f64(four.low, four.high);
}

INLINE double eight_sum(eight a) {
    return vpaddd_f64(last_two(a));
}

/* Two lanes are left of each row. */
INLINE eight merge_4(eight a, eight b) {
    eight merged = a;
    merged.first.low = last_two(a);
    merged.second.low = last_two(b);
    return merged;
}

INLINE eight merge_2(eight a, eight b) {
    return (eight){{a.first.low, b.first.low}, {a.second.low, b.second.low}};
}

INLINE eight merge_1(eight a, eight b) {
    return (eight){{vpaddq_f64(a.first.low, b.first.low), vpaddq_f64(a.first.high, b.first.high)},
                   {vpaddq_f64(a.second.low, b.second.low), vpaddq_f64(a.second.high, b.second.high)}};
}

INLINE eight eight_reordered(eight a) {
    return (eight){{vzip1q_f64(a.first.low, a.second.low), vzip1q_f64(a.first.high, a.second.high)},
                   {vzip2q_f64(a.first.low, a.second.low), vzip2q_f64(a.first.high, a.second.high)}};
}

#endif
