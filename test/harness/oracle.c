/* SPDX-License-Identifier: BSD-2-Clause */
#include "oracle.h"
#include "bounds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- Neumaier's sums: total + correction has twice the precision of a double ---- */

struct sum {
    double total;
    double correction;
};

static void add(struct sum *sum, double term) {
    double total = sum->total + term;
    sum->correction += fabs(sum->total) >= fabs(term) ? (sum->total - total) + term : (term - total) + sum->total;
    sum->total = total;
}

static double value(struct sum sum) {
    return sum.total + sum.correction;
}

/* A gradient that is a sum over tokens. */
struct expected_sum {
    struct sum exact;
    struct sum reference;
    struct sum native_reference;
    struct sum underflow;
    double largest; /* the sum of the terms' greatest intermediate results */
};

static void add_expected(struct expected_sum *sum, double exact, double reference, double underflow, double largest) {
    add(&sum->exact, exact);
    add(&sum->reference, reference);
    add(&sum->underflow, underflow);
    sum->largest += fabs(largest);
}

/* The reference of a result. If an intermediate result overflows, nothing is promised. */
static double unless_overflow(double reference, double largest) {
    return largest <= (double)FLT_MAX ? reference : BOUNDS_NONE;
}

static struct expected expected_value(const struct expected_sum *sum) {
    return (struct expected){
        .exact = value(sum->exact),
        .reference = unless_overflow(value(sum->reference), sum->largest),
        .native_reference = unless_overflow(value(sum->native_reference), sum->largest),
        .underflow = 1 + value(sum->underflow),
    };
}

/* How much a factor enlarges the error of an underflow. The underflow may also come after the factor was applied, so
 * the answer is at least 1. */
static double underflow_factor(double factor) {
    return fmax(1, fabs(factor));
}

/* ---- One token ---- */

struct token {
    const double *x;
    double mean;
    double deviation;
    double excess;               /* see mean_excess */
    double rstd;                 /* as given, or computed */
    double *centered;            /* x, or x - mean where the operation subtracts it */
    double *normalized;          /* n, s t or s q */
    double *normalized_error;    /* what its error is measured in */
    double *normalized_change;   /* what an error of x - mean(x) may add to that */
    double normalized_underflow; /* the factors that come after an underflow in it */
    double *weight;              /* 1 if there is none, its offset added */
    double *h;                   /* weight * dy */
};

static int is_constant(const double *x, size_t channels) {
    for (size_t c = 0; c < channels; c++)
        if (!isfinite(x[c]) || x[c] != x[0])
            return 0;
    return 1;
}

/* Computes mean, centered and deviation. Where the mean is 10^6 deviations, subtracting it takes more bits than a
 * double has: the mean is held in two of them, token->mean and rest. */
static void subtract_mean(struct token *token, size_t channels) {
    if (is_constant(token->x, channels)) {
        for (size_t c = 0; c < channels; c++)
            token->centered[c] = 0;
        token->mean = token->x[0];
        token->deviation = 0;
        return;
    }
    struct sum sum = {0, 0};
    for (size_t c = 0; c < channels; c++)
        add(&sum, token->x[c]);
    token->mean = value(sum) / (double)channels;
    double rest = (fma(-token->mean, (double)channels, sum.total) + sum.correction) / (double)channels;
    struct sum squares = {0, 0};
    for (size_t c = 0; c < channels; c++) {
        token->centered[c] = (token->x[c] - token->mean) - rest;
        add(&squares, token->centered[c] * token->centered[c]);
    }
    token->deviation = sqrt(value(squares) / (double)channels);
}

/* What the errors of a row may be multiplied by: 1, or more if the mean is so large that the bounds do not cover the
 * row any more. */
static double mean_excess(const struct token *token) {
    if (token->deviation == 0) /* constant: exact */
        return 1;
    return fmax(1, fabs(token->mean) / (BOUNDS_MEAN_LIMIT * token->deviation));
}

/* ---- DyISRU and its derivatives: q, dq/dx, dq/dbeta ---- */

static double isru(double x, double beta) {
    if (isinf(x))
        return copysign(1, x);
    return x == 0 ? x : x / sqrt(beta + x * x);
}

static double isru_slope(double x, double beta) {
    if (isinf(x) || beta == 0)
        return 0;
    return beta / ((beta + x * x) * sqrt(beta + x * x));
}

static double isru_slope_beta(double x, double beta) {
    if (isinf(x) || x == 0)
        return 0;
    return -x / ((beta + x * x) * sqrt(beta + x * x)) / 2;
}

/* In the centered DyISRU x - mean(x) has an error of its own: at most this, besides a relative error. */
static double centering_reach(const struct token *token) {
    return 0x1p-46 * fmax(fabs(token->mean), token->deviation) + UNDERFLOW_ERROR;
}

/* How much that error can change a function's value: the greatest change within that distance. The function may have
 * extrema at 0 and +-peak only. */
static double centering_error(double (*function)(double x, double beta), const struct token *token, double x,
                              double beta, double peak) {
    double reach = centering_reach(token);
    double nearby[] = {x - reach, x + reach, 0, peak, -peak};
    double change = 0;
    for (size_t i = 0; i < sizeof nearby / sizeof *nearby; i++)
        if (nearby[i] >= x - reach && nearby[i] <= x + reach)
            change = fmax(change, fabs(function(nearby[i], beta) - function(x, beta)));
    return change;
}

/* alpha or beta of a channel. */
static double parameter_of(const struct question *question, size_t channel) {
    return question->parameters ? question->parameters[channel] : question->parameter;
}

/* The sum of a channel for the gradient of the parameter: where all channels have the same, it is that of all. */
static struct expected_sum *sum_of_parameter(const struct question *question, struct expected_sum *sums,
                                             size_t channel) {
    return &sums[question->parameters ? channel : 0];
}

/* What bounds.h multiplies the reference by. */
static double unit_of(dynnorm_operation operation, enum buffer_index output) {
    return find_bound(operation, output)->portable * UNIT_ROUNDOFF;
}

/* ---- Forward: centered, normalized, their errors, and the statistics ---- */

static void normalize(const struct question *question, size_t t, struct token *token) {
    size_t channels = question->channels;
    dynnorm_operation operation = question->operation;
    int centers = operation == DYNNORM_LAYERNORM || operation == DYNNORM_CENTERED_DYISRU;
    token->x = question->x + t * channels;
    token->mean = token->deviation = token->rstd = 0;
    token->excess = token->normalized_underflow = 1;
    if (centers) {
        subtract_mean(token, channels);
        token->excess = mean_excess(token);
    } else {
        for (size_t c = 0; c < channels; c++)
            token->centered[c] = token->x[c];
    }

    switch (operation) {
    case DYNNORM_LAYERNORM:
    case DYNNORM_RMSNORM: {
        struct sum squares = {0, 0};
        for (size_t c = 0; c < channels; c++)
            add(&squares, token->centered[c] * token->centered[c]);
        double variance = value(squares) / (double)channels;
        if (question->rstd)
            token->rstd = question->rstd[t];
        else if (!isfinite(variance))
            token->rstd = (double)NAN;
        else
            token->rstd = variance + question->eps == 0 ? 0 : 1 / sqrt(variance + question->eps);
        break;
    }
    case DYNNORM_DYT: /* a subnormal tanh or q is within as many times 2^-149 as its bound has ULP */
        token->normalized_underflow =
            ulp_bounds[FUNCTION_TANH].ulp[DYNNORM_PORTABLE] * underflow_factor(question->scale);
        break;
    case DYNNORM_DYISRU:
    case DYNNORM_CENTERED_DYISRU:
        token->normalized_underflow =
            ulp_bounds[FUNCTION_ISRU].ulp[DYNNORM_PORTABLE] * underflow_factor(question->scale);
        break;
    }

    for (size_t c = 0; c < channels; c++) {
        double x = token->centered[c];
        double scale = question->scale;
        double parameter = parameter_of(question, c);
        switch (operation) {
        case DYNNORM_LAYERNORM:
            token->normalized[c] = x * token->rstd;
            token->normalized_error[c] = fmax(fabs(token->normalized[c]), 1) * token->excess;
            break;
        case DYNNORM_RMSNORM:
            token->normalized[c] = x * token->rstd;
            token->normalized_error[c] = fabs(token->normalized[c]);
            break;
        case DYNNORM_DYT:
            token->normalized[c] = scale * tanh(parameter * x);
            token->normalized_error[c] = fabs(token->normalized[c]);
            break;
        case DYNNORM_DYISRU:
            token->normalized[c] = scale * isru(x, parameter);
            token->normalized_error[c] = fabs(token->normalized[c]);
            break;
        case DYNNORM_CENTERED_DYISRU:
            token->normalized[c] = scale * isru(x, parameter);
            token->normalized_error[c] = fabs(scale);
            token->normalized_change[c] = fabs(scale) * centering_error(isru, token, x, parameter, 0);
            break;
        }
    }
}

/* ---- Backward: dx, and the token's part of the gradient of alpha or beta ---- */

static void layernorm_backward(const struct question *question, const struct token *token, struct expected *dx) {
    size_t channels = question->channels;
    double rstd = token->rstd;
    double largest_h = 0;
    struct sum sum_h = {0, 0};
    struct sum sum_hn = {0, 0};
    struct sum sum_abs_hn = {0, 0};
    for (size_t c = 0; c < channels; c++) {
        largest_h = fmax(largest_h, fabs(token->h[c]));
        add(&sum_h, token->h[c]);
        add(&sum_hn, token->h[c] * token->normalized[c]);
        add(&sum_abs_hn, fabs(token->h[c] * token->normalized[c]));
    }
    double mean_h = question->operation == DYNNORM_LAYERNORM ? value(sum_h) / (double)channels : 0;
    double mean_hn = value(sum_hn) / (double)channels;
    double largest = rstd * largest_h;
    double mean_abs_hn = value(sum_abs_hn) / (double)channels;
    for (size_t c = 0; c < channels; c++)
        largest = fmax(largest, fabs(rstd * token->normalized[c] * mean_abs_hn));
    for (size_t c = 0; c < channels; c++) {
        double n = token->normalized[c];
        dx[c].exact = rstd * (token->h[c] - mean_h - n * mean_hn);
        dx[c].reference = unless_overflow(largest * token->excess, largest_h);
        /* h, mean(h), mean(h n), its products and the result may have underflowed, by at most half of 2^-149 each,
           before or after they were multiplied by n and rstd. */
        dx[c].underflow = (1 + rstd) * (2 + 2 * fmax(1, fabs(n)));
    }
}

static void dyt_backward(const struct question *question, const struct token *token, struct expected *dx,
                         struct expected_sum *sums) {
    double scale = question->scale;
    double largest = 0;
    double largest_h = 0;
    for (size_t c = 0; c < question->channels; c++) {
        largest = fmax(largest, fabs(scale * parameter_of(question, c) * token->h[c]));
        largest_h = fmax(largest_h, fmax(1, fabs(scale)) * fabs(token->h[c]));
    }
    for (size_t c = 0; c < question->channels; c++) {
        struct expected_sum *dalpha = sum_of_parameter(question, sums, c);
        double alpha = parameter_of(question, c);
        double x = token->x[c];
        double h = token->h[c];
        double cosine = cosh(alpha * x);
        double slope = 1 / (cosine * cosine); /* 1 - tanh^2 without cancellation */
        double underflow = underflow_factor(scale) * underflow_factor(token->weight[c]) * underflow_factor(h);
        dx[c].exact = scale * alpha * h * slope;
        dx[c].reference = unless_overflow(largest, largest_h);
        dx[c].underflow = 1 + underflow * underflow_factor(alpha);
        if (isinf(x)) {
            add_expected(dalpha, 0, 0, 0, 0);
        } else {
            double magnitude = fabs(scale * h * x);
            add_expected(dalpha, scale * h * x * slope,
                         (12 + 4 * fabs(alpha * x)) * magnitude * slope + 0x1p-66 * magnitude,
                         underflow * underflow_factor(x), underflow_factor(scale) * h * underflow_factor(x));
            add(&dalpha->native_reference, magnitude);
        }
    }
}

static void dyisru_backward(const struct question *question, const struct token *token, struct expected *dx,
                            struct expected_sum *sums) {
    size_t channels = question->channels;
    int centers = question->operation == DYNNORM_CENTERED_DYISRU;
    double largest = 0;
    double largest_h = 0;
    double mean_underflow = 0;
    double unit_dx = unit_of(question->operation, BUFFER_DX);
    double unit_dbeta = unit_of(question->operation, BUFFER_DBETA);
    struct sum sum_du = {0, 0};
    for (size_t c = 0; c < channels; c++) {
        struct expected_sum *dbeta = sum_of_parameter(question, sums, c);
        double beta = parameter_of(question, c);
        double x = token->centered[c];
        double h = token->h[c];
        double outer = question->scale * h;
        double reciprocal_root = beta + x * x == 0 || isinf(x) ? 0 : 1 / sqrt(beta + x * x);
        double underflow = underflow_factor(question->scale) * underflow_factor(token->weight[c]) *
                           underflow_factor(h) * underflow_factor(reciprocal_root);
        largest_h = fmax(largest_h, underflow_factor(question->scale) * fabs(h));

        dx[c].exact = outer * isru_slope(x, beta);
        /* No intermediate result is multiplied by more than sqrt(beta) or 1 / sqrt(beta) here. */
        double dx_underflow = underflow * fmax(sqrt(beta), beta == 0 ? 1 : 1 / sqrt(beta));
        dx[c].underflow = 1 + dx_underflow;
        add(&sum_du, dx[c].exact);
        mean_underflow += dx_underflow / (double)channels;
        double slope_error = beta == 0 ? 0 : 1 / sqrt(beta);
        if (centers) /* in du, and in mean(du) */
            slope_error += 2 * centering_error(isru_slope, token, x, beta, 0) / unit_dx;
        largest = fmax(largest, fabs(outer) * slope_error);

        double slope = isru_slope_beta(x, beta);
        slope_error = fabs(slope);
        if (centers)
            slope_error += centering_error(isru_slope_beta, token, x, beta, sqrt(beta / 2)) / unit_dbeta;
        if (centers && beta == 0 && fabs(x) <= centering_reach(token)) /* the pole is near */
            slope_error = BOUNDS_NONE;
        add_expected(dbeta, outer * slope, fabs(outer) * slope_error,
                     underflow * underflow_factor(reciprocal_root) * underflow_factor(reciprocal_root),
                     underflow_factor(question->scale) * h * fmax(1, slope_error));
    }
    for (size_t c = 0; c < channels; c++) {
        if (centers) {
            dx[c].exact -= value(sum_du) / (double)channels;
            dx[c].underflow += mean_underflow;
        }
        dx[c].reference = unless_overflow(largest, largest_h);
    }
}

/* ---- All tokens ---- */

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

/* The bounds speak of weight + offset rounded to float. */
static double weight_of(const struct question *question, size_t channel) {
    double weight = question->weight[channel];
    return question->weight_offset == 0 ? weight : (double)(float)(weight + question->weight_offset);
}

void oracle(const struct question *question, const struct expectation *results) {
    size_t channels = question->channels;
    struct token token = {.normalized_underflow = 1};
    token.centered = allocate(channels, sizeof(double));
    token.normalized = allocate(channels, sizeof(double));
    token.normalized_error = allocate(channels, sizeof(double));
    token.normalized_change = allocate(channels, sizeof(double));
    token.weight = allocate(channels, sizeof(double));
    token.h = allocate(channels, sizeof(double));
    for (size_t c = 0; c < channels; c++)
        token.weight[c] = question->weight ? weight_of(question, c) : 1;
    struct expected *dx = allocate(channels, sizeof *dx);
    struct expected_sum *dweight = allocate(channels, sizeof *dweight);
    struct expected_sum *dbias = allocate(channels, sizeof *dbias);
    struct expected_sum *dparameter = allocate(channels, sizeof *dparameter);
    int backward = results->outputs[BUFFER_DX] || results->outputs[BUFFER_DWEIGHT] || results->outputs[BUFFER_DBIAS] ||
                   results->outputs[BUFFER_DALPHA] || results->outputs[BUFFER_DBETA];

    double unit_y = unit_of(question->operation, BUFFER_Y);
    double unit_dweight = unit_of(question->operation, BUFFER_DWEIGHT);
    for (size_t t = 0; t < question->tokens; t++) {
        normalize(question, t, &token);
        for (size_t c = 0; results->outputs[BUFFER_Y] && c < channels; c++) {
            double weight = token.weight[c];
            double bias = question->bias ? question->bias[c] : 0;
            struct expected *y = &results->outputs[BUFFER_Y][t * channels + c];
            y->exact = weight * token.normalized[c] + bias;
            y->reference =
                fabs(weight) * (token.normalized_error[c] + token.normalized_change[c] / unit_y) + fabs(bias);
            y->underflow = 1 + underflow_factor(weight) * token.normalized_underflow;
        }
        if (results->outputs[BUFFER_MEAN]) {
            double reference = fmax(fabs(token.mean), token.deviation);
            results->outputs[BUFFER_MEAN][t] =
                (struct expected){.exact = token.mean, .reference = reference, .underflow = 1};
        }
        if (results->outputs[BUFFER_RSTD]) {
            results->outputs[BUFFER_RSTD][t] =
                (struct expected){.exact = token.rstd, .reference = token.rstd * token.excess, .underflow = 1};
        }
        if (!backward)
            continue;

        const double *dy = question->dy + t * channels;
        for (size_t c = 0; c < channels; c++) {
            token.h[c] = token.weight[c] * dy[c];
            double error = token.normalized_error[c] + token.normalized_change[c] / unit_dweight;
            double underflow = underflow_factor(dy[c]) * token.normalized_underflow;
            add_expected(&dweight[c], dy[c] * token.normalized[c], fabs(dy[c]) * error, underflow,
                         dy[c] * fmax(1, fmax(fabs(token.normalized[c]), error)));
            add_expected(&dbias[c], dy[c], fabs(dy[c]), 0, dy[c]);
        }
        switch (question->operation) {
        case DYNNORM_LAYERNORM:
        case DYNNORM_RMSNORM:
            layernorm_backward(question, &token, dx);
            break;
        case DYNNORM_DYT:
            dyt_backward(question, &token, dx, dparameter);
            break;
        case DYNNORM_DYISRU:
        case DYNNORM_CENTERED_DYISRU:
            dyisru_backward(question, &token, dx, dparameter);
            break;
        }
        for (size_t c = 0; results->outputs[BUFFER_DX] && c < channels; c++)
            results->outputs[BUFFER_DX][t * channels + c] = dx[c];
    }
    for (size_t c = 0; results->outputs[BUFFER_DWEIGHT] && c < channels; c++)
        results->outputs[BUFFER_DWEIGHT][c] = expected_value(&dweight[c]);
    for (size_t c = 0; results->outputs[BUFFER_DBIAS] && c < channels; c++)
        results->outputs[BUFFER_DBIAS][c] = expected_value(&dbias[c]);
    for (int i = BUFFER_DALPHA; i <= BUFFER_DBETA; i++)
        for (size_t c = 0; results->outputs[i] && c < (question->parameters ? channels : 1); c++)
            results->outputs[i][c] = expected_value(&dparameter[c]);

    free(token.centered);
    free(token.normalized);
    free(token.normalized_error);
    free(token.normalized_change);
    free(token.weight);
    free(token.h);
    free(dx);
    free(dweight);
    free(dbias);
    free(dparameter);
}

/* ---- The question that a descriptor asks, and all of the answer ---- */

static double *doubles_of(const dynnorm_descriptor *call, enum buffer_index index) {
    const struct buffer *buffer = &buffers[index];
    if (!has_buffer(call->operation, buffer) || !buffer_data(call, buffer))
        return NULL;
    size_t columns = buffer_columns(call, buffer);
    double *doubles = allocate(buffer_rows(call, buffer) * columns, sizeof *doubles);
    for (size_t row = 0; row < buffer_rows(call, buffer); row++)
        for (size_t column = 0; column < columns; column++)
            doubles[row * columns + column] =
                element_at(buffer_row(call, buffer, row), buffer_type(call, buffer), column);
    return doubles;
}

struct question question_of(const dynnorm_descriptor *call) {
    enum buffer_index parameters = call->operation == DYNNORM_DYT ? BUFFER_ALPHAS : BUFFER_BETAS;
    return (struct question){
        .operation = call->operation,
        .tokens = call->tokens,
        .channels = call->channels,
        .x = doubles_of(call, BUFFER_X),
        .dy = doubles_of(call, BUFFER_DY),
        .weight = doubles_of(call, BUFFER_WEIGHT),
        .bias = doubles_of(call, BUFFER_BIAS),
        .rstd = doubles_of(call, BUFFER_RSTD),
        .weight_offset = (double)call->weight_offset,
        .eps = (double)call->eps,
        .parameter = (double)dynnorm_parameter_of(call),
        .parameters = call->parameter_per_channel ? doubles_of(call, parameters) : NULL,
        .scale = (double)call->scale,
    };
}

void free_question(struct question *question) {
    free(question->x);
    free(question->dy);
    free(question->weight);
    free(question->bias);
    free(question->rstd);
    free(question->parameters);
}

struct expectation expect(const dynnorm_descriptor *call) {
    struct question question = question_of(call);
    struct expectation forward = {{NULL}}, backward = {{NULL}}, both = {{NULL}};
    for (int i = 0; i < BUFFERS; i++) {
        int is_forward = writes(call->operation, FORWARD_PASS, &buffers[i]);
        int is_backward = question.dy && writes(call->operation, BACKWARD_PASS, &buffers[i]);
        if (is_forward || is_backward)
            both.outputs[i] =
                allocate(buffer_rows(call, &buffers[i]) * buffer_columns(call, &buffers[i]), sizeof *both.outputs[i]);
        (is_forward ? &forward : &backward)->outputs[i] = both.outputs[i];
    }
    double *given = question.rstd;
    if (given) {
        oracle(&question, &backward);
        question.rstd = NULL;
        oracle(&question, &forward);
        question.rstd = given;
    } else {
        oracle(&question, &both);
    }
    free_question(&question);
    return both;
}

void free_expectation(struct expectation *expectation) {
    for (int i = 0; i < BUFFERS; i++)
        free(expectation->outputs[i]);
}
