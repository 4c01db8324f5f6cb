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

enum { LANES = 4 };
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

/* One to three floats. It is a function of its own since it takes many branches, and channel_sums.h has many loads. */
OUTLINED vec load_part(const float *p, ptrdiff_t n, vec fill) {
    if (n == 1)
        return vld1q_lane_f32(p, fill, 0);
    vec two = vcombine_f32(vld1_f32(p), vget_high_f32(fill));
    return n == 2 ? two : vld1q_lane_f32(p + 2, two, 2);
}

INLINE vec vec_load_n(const float *p, ptrdiff_t n, vec fill) {
    return n >= LANES ? vld1q_f32(p) : n <= 0 ? fill : load_part(p, n, fill);
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

INLINE int vec_any_nan(vec a) {
    return vminvq_u32(vceqq_f32(a, a)) == 0;
}

INLINE vec vec_bits_minus(vec a, uint32_t low) {
    return as_floats(vsubq_u32(as_integers(a), vdupq_n_u32(low)));
}

INLINE vec vec_max_bits(vec a, vec b) {
    return as_floats(vmaxq_u32(as_integers(a), as_integers(b)));
}

INLINE int vec_any_bits_above(vec a, uint32_t limit) {
    return vmaxvq_u32(as_integers(a)) > limit;
}

INLINE uint32x4_t lanes_outside(vec a, uint32_t low, uint32_t span) {
    return vcgtq_u32(vsubq_u32(as_integers(a), vdupq_n_u32(low)), vdupq_n_u32(span));
}

INLINE vec vec_select_outside(vec a, uint32_t low, uint32_t span, vec x, vec y) {
    return vbslq_f32(lanes_outside(a, low, span), x, y);
}

INLINE vec vec_power_of_two(vec a) {
    return as_floats(vshlq_n_u32(as_integers(a), 23));
}

INLINE vec vec_rsqrt_guess(vec a) {
    return as_floats(vsubq_u32(vdupq_n_u32(0x5f3759df), vshrq_n_u32(as_integers(a), 1)));
}

/* ---- Estimate ---- */

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

INLINE wide wide_sub(wide a, wide b) {
    return (wide){vsubq_f64(a.low, b.low), vsubq_f64(a.high, b.high)};
}

INLINE wide wide_mul(wide a, wide b) {
    return (wide){vmulq_f64(a.low, b.low), vmulq_f64(a.high, b.high)};
}

INLINE wide wide_fma(wide a, wide b, wide c) {
    return (wide){vfmaq_f64(c.low, a.low, b.low), vfmaq_f64(c.high, a.high, b.high)};
}

INLINE double wide_sum(const wide lanes[16 / LANES]) {
    wide four = wide_add(wide_add(lanes[0], lanes[2]), wide_add(lanes[1], lanes[3]));
    return vpaddd_f64(vaddq_f64(four.low, four.high));
}

/* ---- Eight doubles ---- */

typedef struct {
    wide low;
    wide high;
} eight;

INLINE eight eight_zero(void) {
    return (eight){wide_set(0), wide_set(0)};
}

INLINE eight eight_add_floats(eight sum, const vec lanes[16 / LANES]) {
    return (eight){wide_add(sum.low, vec_widen(vaddq_f32(lanes[0], lanes[2]))),
                   wide_add(sum.high, vec_widen(vaddq_f32(lanes[1], lanes[3])))};
}

INLINE eight eight_fold(const wide lanes[16 / LANES]) {
    return (eight){wide_add(lanes[0], lanes[2]), wide_add(lanes[1], lanes[3])};
}

INLINE float64x2_t sum_to_two(eight a) {
    wide four = wide_add(a.low, a.high);
    return vaddq_f64(four.low, four.high);
}

INLINE void eight_sums(double sums[8], const eight rows[8]) {
    for (int row = 0; row < 8; row += 2)
        vst1q_f64(sums + row, vpaddq_f64(sum_to_two(rows[row]), sum_to_two(rows[row + 1])));
}

#endif
