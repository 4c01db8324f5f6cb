/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The backward pass of LayerNorm and RMSNorm for rows that float cannot hold, for sums over tokens that overflow, and
 * for rows whose statistics are not given: in vectors of doubles, in which nothing that is made of a few floats
 * overflows, underflows or cancels. It is compiled once for each table, for both operations.
 */
#ifndef DYNNORM_CAREFUL_REDUCTION_H
#define DYNNORM_CAREFUL_REDUCTION_H

#include "rows/backward_reduction.h"
#include "rows/floats.h"

#include <float.h>
#include <math.h>

/* ---- Rows ---- */

/* The sums of a row, of x less the shift. */
struct sums_in_double {
    double x;
    double xx;
    double h;
    double hx;
};

/* The 16 lanes of these sums. */
struct lanes_in_double {
    wide x[PARTS];
    wide xx[PARTS];
    wide h[PARTS];
    wide hx[PARTS];
};

/* Lane k takes channels k, k + 16, k + 32 and so on, each term exact or rounded once. */
INLINE void add_in_double(struct lanes_in_double *sums, const struct reduction_block *block, size_t count, wide shift,
                          int is_centered) {
#pragma GCC unroll UNROLLED_PARTS
    for (int part = 0; part < PARTS; part++) {
        wide x_sum = sums->x[part], xx = sums->xx[part], h_sum = sums->h[part], hx = sums->hx[part];
        ptrdiff_t i = LANES * part;
        for (; i + LANES <= (ptrdiff_t)count; i += 16) {
            const wide x = wide_sub(wide_load_floats(block->x + i), shift);
            const wide h = wide_mul(wide_load_floats(block->weight + i), wide_load_floats(block->dy + i));
            x_sum = is_centered ? wide_add(x_sum, x) : x_sum;
            xx = wide_fma(x, x, xx);
            h_sum = is_centered ? wide_add(h_sum, h) : h_sum;
            hx = wide_fma(h, x, hx);
        }
        const ptrdiff_t left = (ptrdiff_t)count - i;
        if (left > 0) {
            const struct place place = {i, left, 0};
            wide x = wide_sub(vec_widen(load_vector(block->x, place, vec_set(0))), shift);
            wide h = wide_mul(vec_widen(load_vector(block->weight, place, vec_set(0))),
                              vec_widen(load_vector(block->dy, place, vec_set(0))));
            double lanes[LANES];
            wide_store(lanes, x);
            for (ptrdiff_t k = left; k < LANES; k++)
                lanes[k] = 0;
            x = wide_load(lanes);
            x_sum = is_centered ? wide_add(x_sum, x) : x_sum;
            xx = wide_fma(x, x, xx);
            h_sum = is_centered ? wide_add(h_sum, h) : h_sum;
            hx = wide_fma(h, x, hx);
        }
        sums->x[part] = x_sum, sums->xx[part] = xx, sums->h[part] = h_sum, sums->hx[part] = hx;
    }
}

RARE void sum_in_double(struct sums_in_double *result, const struct reduction_work *work, int row, double shift) {
    const float *x = work->x_rows[row], *dy = work->dy_rows[row];
    const size_t channels = work->arguments->channels;
    struct lanes_in_double sums;
    for (int part = 0; part < PARTS; part++)
        sums.x[part] = sums.xx[part] = sums.h[part] = sums.hx[part] = wide_set(0);
    for (size_t channel = 0; channel < channels; channel += BLOCK) {
        struct block block = block_at(channel, channels);
        const struct reduction_block values = {x + channel, dy + channel, read_block(&work->weight, block), 0};
        if (work->is_centered)
            add_in_double(&sums, &values, block.count, wide_set(shift), 1);
        else
            add_in_double(&sums, &values, block.count, wide_set(0), 0);
    }
    result->x = eight_sum(wide_fold(sums.x));
    result->xx = eight_sum(wide_fold(sums.xx));
    result->h = eight_sum(wide_fold(sums.h));
    result->hx = eight_sum(wide_fold(sums.hx));
}

/* How many times the variance the mean square of x - shift may be, or its mean the deviation, lest too much cancels. */
#define MOST_SQUARE 0x1p22
#define MOST_RESIDUAL 0x1p11

RARE void find_careful_row(struct careful_row *result, const struct reduction_work *work, int row) {
    const struct backward_arguments *arguments = work->arguments;
    const size_t index = work->first_row + (size_t)row;
    const int is_centered = work->is_centered, is_given = work->statistics_are_given;
    double shift = 0, mean = 0, rstd = arguments->rstd ? (double)load_float(arguments->rstd + index) : 0;
    struct sums_in_double sums;
    /* With an element of the row as the shift, a constant row has exactly its own value as its mean. */
    if (is_centered)
        shift = (double)(is_given ? load_float(arguments->mean + index) : load_float(work->x_rows[row]));
    for (int again = 0; again < 2; again++) {
        sum_in_double(&sums, work, row, shift);
        mean = is_centered ? sums.x * work->reciprocal : 0;
        double square = sums.xx * work->reciprocal, under_root = square - mean * mean + work->eps;
        if (!arguments->rstd)
            rstd = under_root > 0 ? 1 / sqrt(under_root) : 0;
        int holds = is_given ? fabs(mean * rstd) <= MOST_RESIDUAL : square <= MOST_SQUARE * under_root;
        if (!(sums.xx <= 0x1p300)) { /* there is an infinity or a NaN in the row */
            mean = (double)NAN;
            rstd = arguments->rstd ? rstd : (double)NAN;
            break;
        }
        if (!is_centered || holds || again)
            break;
        shift += mean;
    }
    double h = sums.h * work->reciprocal, hx = sums.hx * work->reciprocal;
    result->statistics.mean = shift + mean;
    result->statistics.rstd = rstd;
    result->means.h = is_centered ? h : 0;
    result->means.hn = rstd * (hx - mean * h);
}

/* Whether float can hold a row's constants, found in double. */
INLINE int constants_hold(struct group_constants *constants, int row, const struct careful_row *careful) {
    const double rstd = careful->statistics.rstd, h = careful->means.h, hn = careful->means.hn;
    const double n_term = -(rstd * rstd * hn), term = hn;
    const double mean = (double)(float)careful->statistics.mean, residual = careful->statistics.mean - mean;
    const double h_term = -(rstd * h + residual * n_term);
    constants->mean[row] = (float)mean;
    constants->rstd[row] = (float)rstd;
    constants->n_term[row] = (float)n_term;
    constants->h_term[row] = (float)h_term;
    constants->residual[row] = fabs(residual * rstd) > 0x1p-24 ? (float)residual : 0;
    int are_zero = h == 0 && hn == 0;
    return fabs(rstd) >= 0x1p-40 && fabs(rstd) <= 0x1p100 && fabs(residual * rstd) <= 0x1p-20 &&
           (are_zero || (fabs(term) >= 0x1p-60 && fabs(n_term) >= 0x1p-100)) && fabs(term) <= 0x1p60 &&
           fabs(n_term) <= 0x1p60 && fabs(h_term) <= 0x1p60;
}

/* Whether the sums of a row in float hold, as find_constants tells of all rows at once. */
RARE int row_holds(struct reduction_work *work, int row, int first) {
    struct sums_of_rows sums;
    const int at = row - first;
    for (int i = 0; i < (LANES > (int)GROUP ? (int)LANES : (int)GROUP); i++) {
        sums.hv[i] = (double)work->arguments->channels;
        sums.h[i] = sums.x[i] = 0;
    }
    sums.h[0] = work->sums_of_rows.h[at];
    sums.hv[0] = work->sums_of_rows.hv[at];
    sums.x[0] = work->sums_of_rows.x[at];
    return find_constants(work, &sums, row, 1, work->is_centered);
}

void CAREFUL_ROWS(struct reduction_work *work, int first, int rows) {
    for (int i = 0; i < rows; i++) { /* in this order, since find_constants overwrites what comes behind its rows */
        int row = first + i;
        if (work->statistics_are_given && row_holds(work, row, first))
            continue;
        find_careful_row(&work->careful_rows[row], work, row);
        if (!constants_hold(work->constants, row, &work->careful_rows[row]))
            work->careful |= 1u << row;
        else if (work->constants->residual[row] != 0)
            work->has_residual = 1;
    }
}

/* ---- dx, and sums over tokens ---- */

/* A vector of a row. */
struct careful_vector {
    vec x;
    vec dy;
    vec weight;
    vec f; /* n; or what is to be multiplied to a term of dweight */
    vec g;
    vec dx;
};

INLINE void apply_in_double(struct careful_vector *at, const struct careful_row *row) {
    const wide rstd = wide_set(row->statistics.rstd);
    const wide n = wide_mul(wide_sub(vec_widen(at->x), wide_set(row->statistics.mean)), rstd);
    const wide h = wide_mul(vec_widen(at->weight), vec_widen(at->dy));
    const wide less = wide_sub(wide_sub(h, wide_set(row->means.h)), wide_mul(n, wide_set(row->means.hn)));
    at->f = wide_narrow(n);
    at->dx = wide_narrow(wide_mul(rstd, less));
}

/* As the driver does it, but for lanes in which dy rstd overflows. */
INLINE void apply_in_float(struct careful_vector *at, const struct group_constants *constants, int row,
                           int is_centered) {
    const vec rstd = vec_set(constants->rstd[row]), n_term = vec_set(constants->n_term[row]);
    vec v = is_centered ? vec_sub(at->x, vec_set(constants->mean[row])) : at->x;
    vec terms = is_centered ? vec_fma(v, n_term, vec_set(constants->h_term[row])) : vec_mul(v, n_term);
    at->g = vec_mul(at->dy, rstd);
    at->f = vec_sub(v, vec_set(constants->residual[row]));
    at->dx = vec_fma(at->g, at->weight, terms);
    if (vec_any_bits_above(vec_abs(at->g), BITS_OF_POWER(128) - 1)) {
        const wide h = wide_mul(vec_widen(at->weight), vec_widen(at->dy));
        vec dx = wide_narrow(wide_fma(h, vec_widen(rstd), vec_widen(terms)));
        at->dx = vec_select_outside(vec_abs(at->g), 0, BITS_OF_POWER(128) - 1, dx, at->dx);
    }
}

/* The sums over tokens of a group at one place: in float, but in the lanes in which that overflows in double. */
struct careful_sums {
    double dweight[LANES];
    double dbias[LANES];
};

RARE void sum_terms_in_double(struct careful_sums *sums, const struct careful_vector *rows,
                              const struct reduction_work *work, vec dweight, vec dbias) {
    float floats[2][LANES];
    wide dweight_sum = wide_set(0), dbias_sum = wide_set(0);
    vec_store(floats[0], dweight);
    vec_store(floats[1], dbias);
    for (int row = 0; row < work->rows; row++) {
        wide dy = vec_widen(rows[row].dy), f = vec_widen(rows[row].f);
        if (!work->careful)
            f = wide_mul(f, wide_set((double)work->constants->rstd[row]));
        dweight_sum = wide_fma(dy, f, dweight_sum);
        dbias_sum = wide_add(dbias_sum, dy);
    }
    wide_store(sums->dweight, dweight_sum);
    wide_store(sums->dbias, dbias_sum);
    for (int lane = 0; lane < LANES; lane++) {
        if (fabsf(floats[0][lane]) <= FLT_MAX)
            sums->dweight[lane] = (double)floats[0][lane];
        if (fabsf(floats[1][lane]) <= FLT_MAX)
            sums->dbias[lane] = (double)floats[1][lane];
    }
}

void CAREFUL_BLOCK(struct reduction_work *work, struct block block) {
    const float *weight = read_block(&work->weight, block), *x[GROUP], *dy[GROUP];
    float *dx[GROUP];
    const int rows = work->rows;
    for (int row = 0; row < rows; row++) {
        x[row] = work->x_rows[row] + block.first;
        dy[row] = work->dy_rows[row] + block.first;
        dx[row] = dx_to_write(work, row, block);
    }
    for (size_t i = 0; i < block.count; i += LANES) {
        const struct place place = {(ptrdiff_t)i, (ptrdiff_t)(block.count - i), 0};
        const struct place in_row = {(ptrdiff_t)(block.first + i), place.count, 0};
        struct careful_vector at[GROUP];
        vec zero = vec_set(0);
        struct group_sum dweight = {zero, zero, zero}, dbias = {zero, zero, zero};
        for (int row = 0; row < rows; row++) {
            at[row].x = load_vector(x[row], place, zero);
            at[row].dy = load_vector(dy[row], place, zero);
            at[row].weight = load_vector(weight, place, zero);
            if (work->careful >> row & 1) {
                apply_in_double(&at[row], &work->careful_rows[row]);
            } else {
                apply_in_float(&at[row], work->constants, row, work->is_centered);
                if (work->careful)
                    at[row].f = vec_mul(at[row].f, vec_set(work->constants->rstd[row]));
            }
            add_row_product(&dweight, work->careful ? at[row].dy : at[row].g, at[row].f, row, rows);
            add_row(&dbias, at[row].dy, row, rows);
        }
        for (int row = 0; row < rows; row++)
            store_vector(dx[row], place, at[row].dx);
        struct careful_sums sums;
        wide dweight_sum = vec_widen(dweight.sum), dbias_sum = vec_widen(dbias.sum);
        if (vec_any_nan(vec_fma(dweight.sum, zero, vec_mul(dbias.sum, zero)))) {
            sum_terms_in_double(&sums, at, work, dweight.sum, dbias.sum);
            dweight_sum = wide_load(sums.dweight);
            dbias_sum = wide_load(sums.dbias);
        }
        const struct token_gradient *gradients = work->gradients;
        if (gradients && gradients[0].values)
            finish_sum(&gradients[0], in_row, dweight_sum);
        if (gradients && gradients[1].values)
            finish_sum(&gradients[1], in_row, dbias_sum);
        if (!gradients && work->sums.dweight)
            add_to_partial_sum(work->sums.dweight, in_row, dweight_sum, work->is_first);
        if (!gradients && work->sums.dbias)
            add_to_partial_sum(work->sums.dbias, in_row, dbias_sum, work->is_first);
    }
}

#endif
