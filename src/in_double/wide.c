/* SPDX-License-Identifier: BSD-2-Clause */
#include "in_double/wide.h"
#include "rows/floats.h"

#include <math.h>

enum { WIDE_LANES = 64 };

static double load_double(const float *p) {
    return (double)load_float(p);
}

/* In the lanes' fixed tree. */
static double sum_lanes(double lanes[WIDE_LANES]) {
    for (int half = WIDE_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            lanes[k] += lanes[k + half];
    return lanes[0];
}

struct wide_statistics dynnorm_wide_statistics(const float *x, size_t channels, double eps, int centered) {
    double mean = 0;
    if (centered) {
        /* The first value as a shift: a constant row then has its own value as its mean, exactly. */
        double lanes[WIDE_LANES] = {0};
        for (size_t i = 0; i < channels; i++)
            lanes[i % WIDE_LANES] += load_double(x + i) - load_double(x);
        mean = load_double(x) + sum_lanes(lanes) / (double)channels;
    }
    double lanes[WIDE_LANES] = {0};
    for (size_t i = 0; i < channels; i++) {
        double deviation = load_double(x + i) - mean;
        lanes[i % WIDE_LANES] += deviation * deviation;
    }
    double variance = sum_lanes(lanes) / (double)channels;
    if (!(variance <= 1e100)) /* an infinity or a NaN in the row */
        return (struct wide_statistics){(double)NAN, (double)NAN};
    return (struct wide_statistics){mean, variance + eps > 0 ? 1 / sqrt(variance + eps) : 0};
}

struct wide_means dynnorm_wide_means(const float *x, const float *dy, const float *weight, float weight_offset,
                                     size_t channels, struct wide_statistics statistics, int centered) {
    double h_lanes[WIDE_LANES] = {0}, hn_lanes[WIDE_LANES] = {0};
    for (size_t i = 0; i < channels; i++) {
        float w = weight ? load_float(weight + i) + weight_offset : 1;
        double h = (double)w * load_double(dy + i);
        h_lanes[i % WIDE_LANES] += h;
        hn_lanes[i % WIDE_LANES] += h * ((load_double(x + i) - statistics.mean) * statistics.rstd);
    }
    return (struct wide_means){centered ? sum_lanes(h_lanes) / (double)channels : 0,
                               sum_lanes(hn_lanes) / (double)channels};
}

void dynnorm_wide_norm(float *y, const float *x, const float *weight, const float *bias, size_t n,
                       struct wide_statistics statistics) {
    for (size_t i = 0; i < n; i++) {
        double value = load_double(weight + i) * ((load_double(x + i) - statistics.mean) * statistics.rstd);
        store_float(y + i, (float)(bias ? value + load_double(bias + i) : value));
    }
}

void dynnorm_wide_norm_gradient(float *normalized, float *dx, const float *x, const float *dy, const float *weight,
                                size_t n, struct wide_statistics statistics, struct wide_means means) {
    for (size_t i = 0; i < n; i++) {
        double h = load_double(weight + i) * load_double(dy + i);
        double value = (load_double(x + i) - statistics.mean) * statistics.rstd;
        store_float(dx + i, (float)(statistics.rstd * (h - means.h - value * means.hn)));
        store_float(normalized + i, (float)value);
    }
}

int dynnorm_all_equal(const float *values, size_t count, float value) {
    for (size_t i = 0; i < count; i++)
        if (!(load_float(values + i) == value))
            return 0;
    return 1;
}

double dynnorm_wide_exponential(double x) {
    if (x < -600)
        return 0;
    /* exp(x) = 2^n exp(r), |r| <= ln(2) / 2, by its series. libm's exp may differ between systems. */
    double n = floor(x * 0x1.71547652b82fep0 + 0.5);
    double r = x - n * 0x1.62e42fefa39efp-1;
    double sum = 1;
    for (int k = 10; k > 0; k--)
        sum = 1 + sum * r / k;
    return ldexp(sum, (int)n);
}

struct wide_isru dynnorm_wide_isru(double x, double beta) {
    double square = beta + x * x;
    if (square == 0)
        return (struct wide_isru){x, 0, 0}; /* keeps the sign of zero */
    if (isinf(x))
        return (struct wide_isru){x > 0 ? 1 : -1, 0, 0};
    double root = sqrt(square);
    return (struct wide_isru){x / root, beta / (square * root), x / (square * root)};
}

void dynnorm_wide_centered_isru(float *y, const float *x, const float *weight, const float *bias, size_t n, double mean,
                                double beta, double scale) {
    for (size_t i = 0; i < n; i++)
        store_float(y + i,
                    (float)(load_double(weight + i) * (scale * dynnorm_wide_isru(load_double(x + i) - mean, beta).q) +
                            load_double(bias + i)));
}

double dynnorm_wide_centered_isru_mean(const float *x, const float *dy, const float *weight, float weight_offset,
                                       size_t channels, double mean, double beta, double scale) {
    double lanes[WIDE_LANES] = {0};
    for (size_t i = 0; i < channels; i++) {
        float w = weight ? load_float(weight + i) + weight_offset : 1;
        double h = (double)w * load_double(dy + i);
        lanes[i % WIDE_LANES] += scale * (h * dynnorm_wide_isru(load_double(x + i) - mean, beta).derivative);
    }
    return sum_lanes(lanes) / (double)channels;
}

void dynnorm_wide_centered_isru_gradient(float *q, float *dx, float *factor, const float *x, const float *dy,
                                         const float *weight, size_t n, double mean, double beta, double scale,
                                         double mean_du) {
    for (size_t i = 0; i < n; i++) {
        double h = load_double(weight + i) * load_double(dy + i);
        struct wide_isru isru = dynnorm_wide_isru(load_double(x + i) - mean, beta);
        store_float(dx + i, (float)(scale * (h * isru.derivative) - mean_du));
        store_float(q + i, (float)isru.q);
        store_float(factor + i, (float)isru.p);
    }
}
