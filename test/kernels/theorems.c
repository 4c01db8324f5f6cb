/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Checks numerically, with every table, the theorems that lead from LayerNorm and RMSNorm to DyT and DyISRU
 * (Stollenwerk, arXiv 2503.21708). Closed forms are computed in double. A tolerance is the sum of the library's bounds
 * (include/dynnorm.h) for its results, and of u times each value that must be rounded to float on the way.
 */
#include "each_kernel.h"
#include "random.h"
#include "tap.h"

#include <math.h>

enum { CHANNELS_AT_MOST = 300 };

static const double u = 0x1p-24;

/* The largest error so far, in units of its tolerance. */
struct errors {
    double largest;
};

static void compare(struct errors *errors, float got, double expected, double tolerance) {
    double error = fabs((double)got - expected) / (tolerance + 0x1p-149);
    if (!(error <= errors->largest))
        errors->largest = error;
}

static void report(const struct errors *errors, const struct isa *isa, size_t channels, const char *what) {
    tap_check(errors->largest <= 1, "%s: %zu channels: %s (%.3f of the tolerance)", isa->identifier, channels, what,
              errors->largest);
}

/* A row and its norm, computed in double by the definition, with eps 0. */
struct row {
    size_t channels;
    float x[CHANNELS_AT_MOST];
    int centered;               /* LayerNorm, not RMSNorm */
    double c[CHANNELS_AT_MOST]; /* x, less its mean if centered */
    double squares;             /* of c, summed */
    double rstd;
    double n[CHANNELS_AT_MOST];
};

static void normalize(struct row *row, int centered) {
    double sum = 0;
    for (size_t i = 0; i < row->channels; i++)
        sum += (double)row->x[i];
    row->centered = centered;
    row->squares = 0;
    for (size_t i = 0; i < row->channels; i++) {
        row->c[i] = (double)row->x[i] - (centered ? sum / (double)row->channels : 0);
        row->squares += row->c[i] * row->c[i];
    }
    row->rstd = sqrt((double)row->channels / row->squares);
    for (size_t i = 0; i < row->channels; i++)
        row->n[i] = row->c[i] * row->rstd;
}

static void forward(const struct row *row, float *y) {
    if (row->centered)
        dynnorm_layernorm_forward_f32(y, NULL, NULL, row->x, NULL, NULL, 0, 1, row->channels);
    else
        dynnorm_rmsnorm_forward_f32(y, NULL, row->x, NULL, 0, 1, row->channels);
}

static void backward(const struct row *row, float *dx, const float *dy) {
    if (row->centered)
        dynnorm_layernorm_backward_f32(dx, NULL, NULL, dy, row->x, NULL, NULL, NULL, 0, 1, row->channels);
    else
        dynnorm_rmsnorm_backward_f32(dx, NULL, dy, row->x, NULL, NULL, 0, 1, row->channels);
}

/* The backward pass of the i-th unit vector is the i-th row of the Jacobian. LayerNorm's Jacobian is
 * (C - 1 - y^2) / (C sigma) on the diagonal. RMSNorm's is sqrt(C) / norm(x) (delta_ij - y_i y_j / C) everywhere. */
static void test_jacobian(const struct isa *isa, const struct row *row) {
    struct errors diagonal = {0}, others = {0};
    const double channels = (double)row->channels;
    double largest_n = 0;
    for (size_t i = 0; i < row->channels; i++)
        largest_n = fmax(largest_n, fabs(row->n[i]));
    for (size_t i = 0; i < row->channels; i++) {
        float dy[CHANNELS_AT_MOST] = {0}, dx[CHANNELS_AT_MOST];
        dy[i] = 1;
        backward(row, dx, dy);
        /* 8 u times the largest |r h| or |r n mean(h n)| of the row: nothing is given here that would cost
           more. */
        double bound = 8 * u * row->rstd * fmax(1, largest_n * fabs(row->n[i]) / channels);
        for (size_t j = 0; j < row->channels; j++) {
            double n_i = row->n[i], n_j = row->n[j], expected;
            if (row->centered && i == j)
                expected = (channels - 1 - n_i * n_i) * row->rstd / channels;
            else if (row->centered)
                expected = -(1 + n_i * n_j) * row->rstd / channels;
            else
                expected = sqrt(channels / row->squares) * ((i == j) - n_i * n_j / channels);
            compare(i == j ? &diagonal : &others, dx[j], expected, bound);
        }
    }
    report(&diagonal, isa, row->channels, row->centered ? "LayerNorm's Jacobian, diagonal" : "RMSNorm's, diagonal");
    report(&others, isa, row->channels, row->centered ? "LayerNorm's Jacobian, the rest" : "RMSNorm's, the rest");
}

/* Each element of a norm is a DyISRU of that element, with a beta that depends on the others alone: for RMSNorm, the
 * sum of their squares; for LayerNorm (C - 1) var_without_i - var, with scale sqrt(C - 1), on x - mean(x). */
static void test_reproduced_by_dyisru(const struct isa *isa, const struct row *row) {
    float y[CHANNELS_AT_MOST];
    forward(row, y);
    const float scale = (row->centered ? dynnorm_scale_layernorm : dynnorm_scale_rmsnorm)(row->channels);
    struct errors errors = {0};
    for (size_t i = 0; i < row->channels; i++) {
        double squares_without_i = 0;
        for (size_t k = 0; k < row->channels; k++)
            squares_without_i += k == i ? 0 : row->c[k] * row->c[k];
        double variance = row->squares / (double)row->channels;
        float beta = (float)(squares_without_i - (row->centered ? variance : 0));
        float c = (float)row->c[i], dyisru;
        if (beta < 0) /* one element makes up the whole variance, as with two channels: rounding moved beta below 0 */
            beta = 0;
        dynnorm_dyisru_forward_f32(&dyisru, &c, NULL, NULL, beta, scale, 1, 1);
        /* The bounds of both results, and one u for each of three values that are rounded to float: c, beta, scale. */
        double norm_bound = 4 * u * (row->centered ? fmax(fabs(row->n[i]), 1) : fabs(row->n[i]));
        compare(&errors, y[i], (double)dyisru, norm_bound + (8 + 3) * u * fabs(row->n[i]));
    }
    report(&errors, isa, row->channels,
           row->centered ? "LayerNorm is a DyISRU in every channel" : "RMSNorm is a DyISRU in every channel");
}

/* An elementwise norm and its differential equation, which gives the slope at y, with t = y / s. */
struct equation {
    const char *name;
    double (*slope)(double t, double parameter, double scale);
    void (*forward)(float *y, const float *x, float parameter, float scale);
    void (*backward)(float *dx, const float *dy, const float *x, float parameter, float scale);
    float parameter;
    double steepest; /* the power of 1 - t^2 */
};

/* DyT: RMSNorm's dy / dx = sqrt(C) / norm(x) (1 - y^2 / C), with 1 / norm(x) replaced by a constant, alpha. */
static double dyt_slope(double t, double alpha, double scale) {
    return scale * alpha * (1 - t * t);
}

static void dyt_forward(float *y, const float *x, float alpha, float scale) {
    dynnorm_dyt_forward_f32(y, x, NULL, NULL, alpha, scale, 1, 1);
}

static void dyt_backward(float *dx, const float *dy, const float *x, float alpha, float scale) {
    dynnorm_dyt_backward_f32(dx, NULL, NULL, NULL, dy, x, NULL, alpha, scale, 1, 1);
}

/* DyISRU: the norm of the other elements is what stays constant, so that norm(x) = sqrt(beta / (1 - t^2)). */
static double dyisru_slope(double t, double beta, double scale) {
    return scale / sqrt(beta) * pow(1 - t * t, 1.5);
}

static void dyisru_forward(float *y, const float *x, float beta, float scale) {
    dynnorm_dyisru_forward_f32(y, x, NULL, NULL, beta, scale, 1, 1);
}

static void dyisru_backward(float *dx, const float *dy, const float *x, float beta, float scale) {
    dynnorm_dyisru_backward_f32(dx, NULL, NULL, NULL, dy, x, NULL, beta, scale, 1, 1);
}

static const struct equation equations[] = {
    {"DyT", dyt_slope, dyt_forward, dyt_backward, 0.05f, 1},
    {"DyISRU", dyisru_slope, dyisru_forward, dyisru_backward, 400, 1.5},
};

/* Integrates y from y(0) = 0 by the classical Runge-Kutta method, and compares y and the slope with the library's at
 * each step. The method's error is of the order of (width of a step / width of the curve)^4 = 2^-32 of the curve's
 * height. */
static void test_differential_equation(const struct isa *isa, const struct equation *equation) {
    const double parameter = (double)equation->parameter, step = 20 * 0x1p-8;
    const float scale = 10;
    const double s = (double)scale, steepest = equation->slope(0, parameter, s);
    struct errors slopes = {0}, values = {0};
    double y = 0;
    for (int i = 0; i <= 2000; i++) {
        float x = (float)(i * step), got, dx, one = 1;
        equation->forward(&got, &x, equation->parameter, scale);
        equation->backward(&dx, &one, &x, equation->parameter, scale);
        compare(&values, got, y, 8 * u * fabs(y) + s * 0x1p-32);
        /* The bound of dx, and the change of the slope that an error of 8 u |y| in y makes. */
        double t = (double)got / s;
        double by_t = 2 * equation->steepest * fabs(t) * pow(1 - t * t, equation->steepest - 1);
        compare(&slopes, dx, equation->slope(t, parameter, s), (8 + by_t * 8 * fabs(t)) * u * steepest);

        double k1 = equation->slope(y / s, parameter, s);
        double k2 = equation->slope((y + step / 2 * k1) / s, parameter, s);
        double k3 = equation->slope((y + step / 2 * k2) / s, parameter, s);
        double k4 = equation->slope((y + step * k3) / s, parameter, s);
        y += step / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
    }
    tap_check(values.largest <= 1, "%s: %s solves its differential equation (%.3f of the tolerance)", isa->identifier,
              equation->name, values.largest);
    tap_check(slopes.largest <= 1, "%s: %s has the slope of its differential equation (%.3f of the tolerance)",
              isa->identifier, equation->name, slopes.largest);
}

int main(void) {
    static const size_t channel_counts[] = {2, 3, 16, 100, 300};
    const uint64_t seed = random_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        struct random random = random_start(seed);
        if (!use_table(isa)) {
            tap_skip(isa->identifier, TABLE_IS_UNAVAILABLE);
            continue;
        }
        for (size_t k = 0; k < sizeof channel_counts / sizeof *channel_counts; k++) {
            static struct row row;
            row.channels = channel_counts[k];
            for (size_t c = 0; c < row.channels; c++)
                row.x[c] = 3 + 2 * random_normal(&random);
            row.x[row.channels / 2] += 20; /* an outlier */
            for (int centered = 0; centered < 2; centered++) {
                normalize(&row, centered);
                test_jacobian(isa, &row);
                test_reproduced_by_dyisru(isa, &row);
            }
        }
        for (size_t k = 0; k < sizeof equations / sizeof *equations; k++)
            test_differential_equation(isa, &equations[k]);
    }
    return tap_done();
}
