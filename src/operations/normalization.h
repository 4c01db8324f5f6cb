/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What LayerNorm and RMSNorm share in the forward pass: from the sums of a row to the constants with which n is
 * computed. is_centered tells whether the mean is taken out; RMSNorm is the case in which it is not.
 *
 * Nearly every row is done with two constants: n = x rstd + offset, one fused operation, where offset = -mean rstd. Its
 * rounding counts as often as the mean is larger than the deviation. So where it is larger, the row is shifted:
 * n = (x - shift) rstd + offset, where shift is the mean rounded to float and offset what that rounding took away.
 * Where the mean is so large that digits of the variance cancel even in double, and where squares left the range of the
 * sums, the sums are taken once more.
 *
 * The end of a row stands here twice, for one row in scalars and for eight rows in vectors, since a single row must not
 * wait for vectors. rows/forward/one_row.h has it a third time, for rows that float holds, in as little code as can be:
 * there every row is shifted, most by 0. The results are the same to the last bit.
 */
#ifndef DYNNORM_NORMALIZATION_H
#define DYNNORM_NORMALIZATION_H

#include "operations/operation.h"
#include "rows/floats.h"
#include "rows/forward/one_row.h"
#include "rows/row_sums.h"

#include <math.h>

/* ---- What such an operation brings to its driver ---- */

/* What the sums of eight rows become. Of a row that is not shifted n = x rstd + offset, of one that is
   n = (x - shift) rstd + offset. shift is 0 in the former, so that a loop may shift all rows. Where the mean is not
   taken out there is neither an offset nor a shift. */
struct eight_rows {
    _Alignas(64) float rstd[8];
    float offset[8];
    float shift[8];
    float mean[8];
    unsigned shifted;         /* one bit for each row */
    unsigned in_double;       /* rows that float cannot hold: rstd and mean are right, offset and shift mean nothing */
    double mean_in_double[8]; /* of these rows alone, and so below */
    double rstd_in_double[8];
};

/* The constants of a row: two in every lane, and one that hardly any row needs, which then is loaded for each vector.
 */
struct row_vectors {
    vec rstd;
    vec offset;
    const float *shift;
    unsigned shifted; /* of its eight rows; 0 if no shift need be taken from x */
};

/* n of a row that is not shifted, or from whose x the shift has been taken */
typedef vec normalize_function(vec x, const struct row_vectors *row);

struct forward_call;
typedef void write_block_function(const struct forward_call *call, size_t row, struct block at,
                                  const struct eight_rows *rows, struct write_buffer *buffer);

/* Short rows in groups of eight, the sums of one along with y of another: one such group; and all from group `done` on
   that a function made for a number of channels can do. */
struct short_work;
typedef void any_short_group_function(struct short_work *work, size_t done);
typedef size_t short_groups_function(struct short_work *work, size_t done);
/* NULL if there is none. fetches_y: as fetches_to_write in forward_arguments. */
typedef short_groups_function *choose_short_groups_function(size_t channels, int fetches_y);

/* Rows one by one, as far as they are usual ones. Returns how many that are. */
typedef size_t rows_one_by_one_function(const struct forward_arguments *arguments, size_t first, size_t rows);

/* Long rows: the sums of some channels and y of others; and rows, or groups of eight, from a row on, as long as they
   are plain. Returns the first row that is left. */
struct long_rows;
struct parts;
typedef void forward_parts_function(const struct forward_call *call, struct long_rows *rows, struct row_sums *sums,
                                    const struct parts *parts, int count);
typedef void forward_rows_from_memory_function(const struct forward_call *call, struct long_rows *rows);
typedef size_t forward_plain_rows_function(const struct forward_call *call, struct long_rows *rows, size_t row);

/* Rows of 16 bits: the sums of some, y of others, both together if that takes less time, which otherwise gives 0, and y
 * of those that are shifted. See forward/halves_loops.h. */
struct halves_step;
struct sums_of_group;
struct functions_of_halves {
    void (*sum)(struct sums_of_group *sums, const struct halves_step *step, ptrdiff_t first, ptrdiff_t end);
    void (*write)(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end);
    int (*sum_and_write)(struct sums_of_group *sums, const struct halves_step *step, ptrdiff_t first, ptrdiff_t end);
    void (*write_shifted)(const struct halves_step *step, ptrdiff_t first, ptrdiff_t end);
};

/* Which channels of a row go past the caches, where that begins or ends within a cache line: see
   rows/forward/shared_lines.h. */
typedef struct block lines_of_row_function(const struct forward_call *call, size_t row,
                                           const struct eight_rows *constants);

struct normalization {
    int has_bias;
    int is_centered; /* the mean is taken out */
    enum row_sums_in sums_in;
    normalize_function *normalize;
    rows_one_by_one_function *rows_one_by_one;
    choose_short_groups_function *short_groups;
    any_short_group_function *any_short_group;
    forward_parts_function *forward_parts;
    forward_rows_from_memory_function *forward_rows_from_memory;
    short_groups_function *groups_of_spans; /* for shifted rows; needed where the mean is taken out */
    forward_plain_rows_function *forward_plain_rows;
    forward_plain_rows_function *forward_plain_groups;
    struct functions_of_halves of_halves;
    lines_of_row_function *lines_of_row;
    write_block_function *write_block; /* a block of a row that float can hold; not inlined */
};

/* ---- The limits ---- */

/* The limits of the number under the root. Floats hold rstd and all of n's intermediate values if it is within
   LEAST_OF_NORMAL_RSTD and GREATEST; squares that were added in float may have underflowed below LEAST_OF_FLOATS. */
#define LEAST_OF_FLOATS 0x1p-110
#define LEAST_OF_NORMAL_RSTD 0x1p-250
#define GREATEST 0x1p220

INLINE double least_under_root(int is_centered) {
    return is_centered ? LEAST_OF_NORMAL_RSTD : LEAST_OF_FLOATS;
}

INLINE struct call_constants begin_normalization(size_t channels, float eps, float parameter, float scale) {
    (void)parameter, (void)scale;
    return (struct call_constants){
        .channels = channels, .divisor = (double)channels, .reciprocal = 1 / (double)channels, .eps = (double)eps};
}

/* ---- One row ---- */

INLINE void shift_row(struct eight_rows *rows, int row, double mean) {
    float shift = (float)mean;
    rows->shifted |= 1u << row;
    rows->shift[row] = rows->mean[row] = shift;
    rows->offset[row] = (float)(((double)shift - mean) * (double)rows->rstd[row]);
}

/* Makes the constants of a row from its totals. Nonzero if they cannot be trusted. */
INLINE unsigned finish_row(struct eight_rows *rows, int row, struct totals sums, const struct call_constants *call,
                           int is_centered) {
    double mean = sums.x * call->reciprocal, square = sums.xx * call->reciprocal;
    double variance = is_centered ? square - mean * mean : square;
    double under_root = variance + call->eps;
    float rstd = (float)(1 / sqrt(under_root));
    int holds = under_root >= least_under_root(is_centered) && under_root <= GREATEST;
    rows->rstd[row] = rstd;
    if (is_centered) {
        holds &= square <= SQUARE_LIMIT * under_root;
        if (square <= 2 * variance) {
            rows->offset[row] = (float)(0 - mean * (double)rstd);
            rows->mean[row] = (float)mean;
            rows->shift[row] = 0;
        } else {
            shift_row(rows, row, sums.x / call->divisor); /* the quotient is exact in a constant row */
        }
    }
    return !holds;
}

/* ---- Eight rows ---- */

OUTLINED void shift_rows(struct eight_rows *rows, const struct folded_sums *sums, const struct call_constants *call) {
    double x[8];
    eight_store(x, sums->x);
    for (int row = 0; row < 8; row++)
        if (rows->shifted >> row & 1)
            shift_row(rows, row, x[row] / call->divisor);
}

/* The same from the sums of the rows, with a bit for each row that cannot be trusted. */
INLINE unsigned finish_rows_together(struct eight_rows *rows, const struct folded_sums *sums,
                                     const struct call_constants *call, int is_centered) {
    const eight reciprocal = eight_set(call->reciprocal);
    /* The sum of a row of zeros may be -0, if it did not begin with a zero that was not negative. */
    eight mean = eight_add(eight_mul(sums->x, reciprocal), eight_set(0)), square = eight_mul(sums->xx, reciprocal);
    eight variance = is_centered ? eight_sub(square, eight_mul(mean, mean)) : square;
    eight under_root = eight_add(variance, eight_set(call->eps));
    eight rstd = eight_div(eight_set(1), eight_sqrt(under_root));
    unsigned hold = eight_at_most(eight_set(least_under_root(is_centered)), under_root) &
                    eight_at_most(under_root, eight_set(GREATEST));
    eight_store_floats(rows->rstd, rstd);
    if (is_centered) {
        hold &= eight_at_most(square, eight_mul(eight_set(SQUARE_LIMIT), under_root));
        eight rounded = eight_load_floats(rows->rstd);
        eight_store_floats(rows->offset, eight_sub(eight_set(0), eight_mul(mean, rounded)));
        eight_store_floats(rows->mean, mean);
        eight_store_floats(rows->shift, eight_set(0));
        rows->shifted = ~eight_at_most(square, eight_mul(eight_set(2), variance)) & 0xff;
        if (rows->shifted)
            shift_rows(rows, sums, call);
    }
    return ~hold & 0xff;
}

/* ---- Rows whose sums cannot be trusted ----
 *
 * Such a row is put together from what is known of its blocks: the mean of each, and the sum of the squares of its
 * deviations from that. Where the sums of a block cannot be trusted by themselves, they are made once more, of x less
 * the block's mean rounded to float: little of them cancels. So a block's part in this depends on its own channels
 * alone, and the machines that share a row need not ask one another twice. */

/* How many times its variance a block's mean square may be. */
enum { BLOCK_SQUARE_LIMIT = 1 << 6 };

INLINE int is_trusted_block(struct totals sums, size_t channels, int is_centered) {
    const double mean = sums.x / (double)channels, square = sums.xx / (double)channels;
    if (is_centered)
        return square <= BLOCK_SQUARE_LIMIT * (square - mean * mean);
    return square >= LEAST_OF_FLOATS && square <= GREATEST;
}

/* What is taken from x where sums are made once more and the mean is taken out. */
INLINE float shift_of_block(struct totals sums, size_t channels) {
    return (float)(sums.x / (double)channels);
}

/* The sums of a block, which are given and cannot be trusted, once more: in double, of x less a shift, or of x^2 alone.
 */
RARE struct totals sums_less_shift(const float *x, size_t channels, struct totals sums, int is_centered) {
    const float shift = is_centered ? shift_of_block(sums, channels) : 0;
    const wide shifts = wide_set((double)shift);
    const vec none = vec_set(shift);
    struct row_sums made;
    clear_row_sums(&made, ROW_SUMS_IN_DOUBLE);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)channels; i += 16)
        UNROLL_PARTS
    for (int part = 0; part < PARTS; part++) {
        const ptrdiff_t first = i + LANES * part, left = (ptrdiff_t)channels - first;
        wide values = left >= LANES ? wide_load_floats(x + first) : vec_widen(vec_load_n(x + first, left, none));
        if (is_centered) {
            values = wide_sub(values, shifts);
            made.x[part] = wide_accumulate(made.x[part], values);
        }
        made.xx[part] = wide_fma(values, values, made.xx[part]);
    }
    return totals_of_block(&made, ROW_SUMS_IN_DOUBLE);
}

/* Blocks of a row put together. Of each, its sums, and those that can be trusted. */
struct unusual_row {
    double channels;
    double reference; /* near the mean */
    double mean;      /* less the reference */
    double squares;   /* of deviations from the mean */
};

RARE void add_block_to_unusual_row(struct unusual_row *row, size_t channels, struct totals sums, struct totals trusted,
                                   int is_centered) {
    const double count = (double)channels, all = row->channels + count, share = count / all;
    if (!is_centered) {
        row->squares += trusted.xx;
        return;
    }
    const float shift = is_trusted_block(sums, channels, is_centered) ? 0 : shift_of_block(sums, channels);
    if (row->channels == 0)
        row->reference = (double)shift;
    const double mean = trusted.x / count;
    const double apart = ((double)shift - row->reference) + mean - row->mean;
    row->squares += (trusted.xx - trusted.x * mean) + apart * apart * (row->channels * share);
    row->mean += apart * share;
    row->channels = all;
}

/* From the values of such a row, and the sums that it has. These tell of a NaN without another look at the values. */
RARE void sum_unusual_row(struct unusual_row *row, const float *x, size_t channels, struct totals sums,
                          int is_centered) {
    *row = (struct unusual_row){0, 0, 0, 0};
    if (isnan(sums.xx)) {
        row->squares = sums.xx;
        return;
    }
    for (size_t first = 0; first < channels; first += SUMMED_BLOCK) {
        const size_t count = channels_of_summed_block(first, channels);
        if (channels > SUMMED_BLOCK)
            sums = is_centered ? sum_long_row_in_double(x + first, (ptrdiff_t)count, 1)
                               : sum_long_row_of_squares(x + first, (ptrdiff_t)count, 1);
        const struct totals trusted =
            is_trusted_block(sums, count, is_centered) ? sums : sums_less_shift(x + first, count, sums, is_centered);
        add_block_to_unusual_row(row, count, sums, trusted, is_centered);
    }
}

/* Makes the constants of such a row. */
RARE void finish_unusual_row(struct eight_rows *rows, int row, const struct unusual_row *found,
                             const struct call_constants *call, int is_centered) {
    const double under_root = found->squares * call->reciprocal + call->eps;
    struct statistics statistics = {found->reference + found->mean, 1 / sqrt(under_root)};
    rows->in_double &= ~(1u << row);
    if (!(found->squares - found->squares == 0)) { /* an infinity or a NaN makes all of the row NaN */
        statistics = (struct statistics){(double)NAN, (double)NAN};
    } else if (under_root <= 0) { /* a row without deviations, and eps is 0 */
        statistics.rstd = 0;
    } else if (under_root < LEAST_OF_NORMAL_RSTD || under_root > GREATEST) {
        rows->in_double |= 1u << row;
        rows->mean_in_double[row] = statistics.mean;
        rows->rstd_in_double[row] = statistics.rstd;
    }
    rows->rstd[row] = (float)statistics.rstd;
    if (is_centered)
        shift_row(rows, row, statistics.mean);
}

#endif
