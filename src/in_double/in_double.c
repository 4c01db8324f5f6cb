/* SPDX-License-Identifier: BSD-2-Clause */
#include "in_double/in_double.h"
#include "rows/floats.h"

#include <math.h>

static double load_double(const float *p) {
    return (double)load_float(p);
}

double dynnorm_total_of_lanes(const struct double_lanes *sum) {
    struct double_lanes tree = *sum;
    for (int half = DOUBLE_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            tree.lanes[k] += tree.lanes[k + half];
    return tree.lanes[0];
}

static double h_of(const struct block_in_double *block, size_t i) {
    return load_double(block->weight + i) * load_double(block->dy + i);
}

struct isru dynnorm_isru(double x, double beta) {
    double square = beta + x * x;
    if (square == 0)
        return (struct isru){x, 0, 0}; /* keeps the sign of zero */
    if (!(square > 0))                 /* a NaN, for which some C libraries' sqrt sets errno */
        return (struct isru){square, square, square};
    if (isinf(x))
        return (struct isru){x > 0 ? 1 : -1, 0, 0};
    double root = sqrt(square);
    return (struct isru){x / root, beta / (square * root), x / (square * root)};
}

static struct isru isru_of(const struct block_in_double *block, size_t i, struct centered_isru isru) {
    return dynnorm_isru(load_double(block->x + i) - isru.mean,
                        load_double(block->betas.values + i * block->betas.step));
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
