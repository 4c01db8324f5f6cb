/* SPDX-License-Identifier: BSD-2-Clause */
#include "in_double/in_double.h"
#include "rows/floats.h"

#include <math.h>

static double load_double(const float *p) {
    return (double)load_float(p);
}

void dynnorm_add_deviations(struct double_lanes *sum, const float *x, size_t count, double shift) {
    for (size_t i = 0; i < count; i++)
        sum->lanes[i % DOUBLE_LANES] += load_double(x + i) - shift;
}

void dynnorm_add_squares(struct double_lanes *sum, const float *x, size_t count, double shift) {
    for (size_t i = 0; i < count; i++) {
        double deviation = load_double(x + i) - shift;
        sum->lanes[i % DOUBLE_LANES] += deviation * deviation;
    }
}

double dynnorm_total_of_lanes(const struct double_lanes *sum) {
    struct double_lanes tree = *sum;
    for (int half = DOUBLE_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            tree.lanes[k] += tree.lanes[k + half];
    return tree.lanes[0];
}

struct statistics dynnorm_statistics(double mean, const struct double_lanes *squares, size_t channels, double eps) {
    double variance = dynnorm_total_of_lanes(squares) / (double)channels;
    if (!(variance <= 1e100)) /* there is an infinity or a NaN in the row */
        return (struct statistics){(double)NAN, (double)NAN};
    return (struct statistics){mean, variance + eps > 0 ? 1 / sqrt(variance + eps) : 0};
}

void dynnorm_normalize_in_double(const struct block_in_double *block, struct statistics statistics) {
    for (size_t i = 0; i < block->count; i++) {
        double n = (load_double(block->x + i) - statistics.mean) * statistics.rstd;
        double y = load_double(block->weight + i) * n;
        store_float(block->y + i, (float)(block->bias ? y + load_double(block->bias + i) : y));
    }
}

static double h_of(const struct block_in_double *block, size_t i) {
    return load_double(block->weight + i) * load_double(block->dy + i);
}

void dynnorm_add_to_means(struct mean_sums *sums, const struct block_in_double *block, struct statistics statistics) {
    for (size_t i = 0; i < block->count; i++) {
        double h = h_of(block, i);
        sums->h.lanes[i % DOUBLE_LANES] += h;
        sums->hn.lanes[i % DOUBLE_LANES] += h * ((load_double(block->x + i) - statistics.mean) * statistics.rstd);
    }
}

void dynnorm_normalize_gradient_in_double(const struct block_in_double *block, struct statistics statistics,
                                          struct means means) {
    for (size_t i = 0; i < block->count; i++) {
        double h = h_of(block, i);
        double n = (load_double(block->x + i) - statistics.mean) * statistics.rstd;
        store_float(block->dx + i, (float)(statistics.rstd * (h - means.h - n * means.hn)));
        store_float(block->f + i, (float)n);
        store_float(block->parameter_term + i, 0);
    }
}

double dynnorm_exponential(double x) {
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

struct isru dynnorm_isru(double x, double beta) {
    double square = beta + x * x;
    if (square == 0)
        return (struct isru){x, 0, 0}; /* keeps the sign of zero */
    if (isinf(x))
        return (struct isru){x > 0 ? 1 : -1, 0, 0};
    double root = sqrt(square);
    return (struct isru){x / root, beta / (square * root), x / (square * root)};
}

static struct isru isru_of(const struct block_in_double *block, size_t i, struct centered_isru isru) {
    return dynnorm_isru(load_double(block->x + i) - isru.mean, isru.beta);
}

void dynnorm_add_centered_isru_du(struct double_lanes *sum, const struct block_in_double *block,
                                  struct centered_isru isru) {
    for (size_t i = 0; i < block->count; i++)
        sum->lanes[i % DOUBLE_LANES] += isru.scale * (h_of(block, i) * isru_of(block, i, isru).derivative);
}

void dynnorm_centered_isru_gradient_in_double(const struct block_in_double *block, struct centered_isru isru) {
    for (size_t i = 0; i < block->count; i++) {
        double h = h_of(block, i);
        struct isru parts = isru_of(block, i, isru);
        store_float(block->dx + i, (float)(isru.scale * (h * parts.derivative) - isru.mean_du));
        store_float(block->f + i, (float)parts.q);
        store_float(block->parameter_term + i, (float)parts.parameter_term);
    }
}
