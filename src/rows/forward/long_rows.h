/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The forward pass of normalizations for long rows in the caches: see forward/normalization.h.
 */
#ifndef DYNNORM_FORWARD_LONG_ROWS_H
#define DYNNORM_FORWARD_LONG_ROWS_H

#include "rows/floats.h"
#include "rows/forward/normalized_channels.h"
#include "rows/forward/summed_rows.h"

/* ---- Sums and y side by side ---- */

/* What is to be done at once: the sums of one block, and y of another. Either may have no channels. */
struct long_step {
    const float *summed;
    ptrdiff_t summed_count;
    struct y_block y;
    ptrdiff_t y_count;
    struct row_vectors row;
};

/* As many spans as there are of both. Returns where they end. */
INLINE ptrdiff_t take_spans(struct row_sums *sums, const struct long_step *step,
                            const struct normalization *normalization, int how) {
    const ptrdiff_t both = step->summed_count < step->y_count ? step->summed_count : step->y_count;
    ptrdiff_t i = 0;
    for (; i + ROW_SPAN <= both; i += ROW_SPAN) {
        add_whole_span(sums, normalization->sums_in, step->summed + i);
        write_whole_span(&step->y, i, &step->row, normalization, how);
    }
    return i;
}

INLINE void take_step(struct row_sums *sums, const struct long_step *step, const struct normalization *normalization,
                      int how) {
    const ptrdiff_t i = take_spans(sums, step, normalization, how);
    ptrdiff_t summed = i;
    for (; summed + ROW_SPAN <= step->summed_count; summed += ROW_SPAN)
        add_whole_span(sums, normalization->sums_in, step->summed + summed);
    add_last_channels(sums, normalization->sums_in, step->summed + summed, step->summed_count - summed);
    const struct y_block rest = {step->y.y + i, step->y.x + i, step->y.weight + i, step->y.bias + i,
                                 step->y.fetches_to_write};
    write_y(&rest, step->y_count - i, &step->row, normalization, SHIFTED);
}

/* ---- Rows one by one, or eight of them ---- */

/* Where weight and bias would not stay in the nearest cache together with a row, eight rows share them. */
enum { MOST_CHANNELS_OF_SINGLE_ROWS = 1024 };

/* None of these is plain where short rows are as long. */
#define HAS_PLAIN_SINGLE_ROWS(has_bias) ((int)MOST_SHORT(has_bias) < (int)MOST_CHANNELS_OF_SINGLE_ROWS)

/* What is known of the rows at hand: eight whose sums are being made, and eight before them. */
struct long_rows {
    struct eight_rows constants[2];
    struct write_buffer buffer; /* of a row that is written by itself */
    int is_plain;               /* y is asked for, x is there, and weight and bias are read from the caller's memory */
    size_t most;                /* channels that are read at once, as a row of weight and bias */
};

INLINE struct eight_rows *constants_of(struct long_rows *rows, size_t row) {
    return &rows->constants[row / 8 % 2];
}

/* y of a row by itself. */
FOR_SIZE OUTLINED void write_row_by_blocks(const struct forward_call *call, struct long_rows *rows, size_t row) {
    const struct eight_rows *constants = constants_of(rows, row);
    const size_t channels = call->constants->channels;
    if (constants->in_double >> row % 8 & 1)
        write_row_in_double(call, constants, row, &rows->buffer);
    else
        for (size_t first = 0; first < channels; first += BLOCK)
            call->operation->normalization->write_block(call, row, block_at(first, channels), constants, &rows->buffer);
}

INLINE void begin_long_rows(struct long_rows *rows, const struct forward_call *call) {
    const int has_bias = call->operation->normalization->has_bias;
    const int is_buffered = !call->weight.values || call->weight.offset != 0 || (has_bias && !call->bias.values);
    rows->is_plain = call->y.rows.data && !is_buffered && !call->summed;
    rows->most = is_buffered ? BLOCK : call->constants->channels;
    rows->buffer.held = 0;
    for (int i = 0; i < 2; i++)
        rows->constants[i].shifted = rows->constants[i].in_double = 0;
}

INLINE size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Sets y of a step. */
INLINE void begin_y(struct long_step *step, const struct forward_call *call, struct long_rows *rows, size_t row,
                    struct block channels) {
    const struct eight_rows *constants = constants_of(rows, row);
    const size_t lane = row % 8;
    step->y_count = 0;
    if (constants->in_double >> lane & 1) {
        if (!channels.first) /* all of the row at once */
            write_row_in_double(call, constants, row, &rows->buffer);
        return;
    }
    step->y.y = row_of(&call->y.rows, row) + channels.first;
    step->y.x = row_of(&call->x, row) + channels.first;
    step->y.weight = read_block(&call->weight, channels);
    step->y.bias = read_block(&call->bias, channels);
    step->y.fetches_to_write = call->fetches_to_write;
    step->y_count = (ptrdiff_t)channels.count;
    step->row = vectors_of_row(constants, lane);
}

/* Sets the sums of a step. */
INLINE void begin_sums(struct long_step *step, const struct forward_call *call, size_t row, struct block channels) {
    float *x = row_of(&call->x, row);
    if (call->summed)
        make_sums(call->summed, x, row, channels);
    step->summed = x + channels.first;
    step->summed_count = (ptrdiff_t)channels.count;
}

INLINE void finish_long_row(const struct forward_call *call, struct long_rows *rows, struct totals sums, size_t row,
                            const struct normalization *normalization) {
    struct eight_rows *constants = constants_of(rows, row);
    const int lane = (int)(row % 8);
    constants->shifted &= ~(1u << lane);
    constants->in_double &= ~(1u << lane);
    if (finish_row(constants, lane, sums, call->constants, normalization->is_centered))
        finish_unusual_row_of(call, constants, row, sums);
    if (call->mean)
        store_float(call->mean + row, constants->mean[lane]);
    if (call->rstd)
        store_float(call->rstd + row, constants->rstd[lane]);
}

INLINE void clear_step(struct long_step *step) {
    step->summed = NULL;
    step->y = (struct y_block){NULL, NULL, NULL, NULL, 0};
    step->row = (struct row_vectors){vec_set(0), vec_set(0), NULL, 0};
    step->summed_count = step->y_count = 0;
}

/* The sums of some channels of a row, and y of some channels of another one, side by side, unless all of it is plain.
 * An operation makes a function of its own of this, which is not inlined. */
struct parts {
    size_t summed_row;
    size_t summed; /* from this channel on */
    size_t summed_count;
    size_t written_row;
    size_t written;
    size_t written_count; /* 0 if there is no such row */
};

INLINE void take_parts(struct row_sums *sums, const struct forward_call *call, struct long_rows *rows,
                       const struct parts *parts, const struct normalization *normalization) {
    struct long_step step;
    clear_step(&step);
    size_t summed = parts->summed, summed_left = parts->summed_count;
    size_t written = parts->written, written_left = parts->written_count;
    while (summed_left || written_left) {
        const size_t sums_now = smaller(summed_left, rows->most), y_now = smaller(written_left, rows->most);
        step.summed_count = step.y_count = 0;
        if (sums_now)
            begin_sums(&step, call, parts->summed_row, (struct block){summed, sums_now});
        if (y_now)
            begin_y(&step, call, rows, parts->written_row, (struct block){written, y_now});
        take_step(sums, &step, normalization, SHIFTED);
        summed += sums_now, summed_left -= sums_now;
        written += y_now, written_left -= y_now;
    }
}

/* Some of these, one after the other. */
INLINE void forward_parts(const struct forward_call *call, struct long_rows *rows, struct row_sums *sums,
                          const struct parts *parts, int count, const struct normalization *normalization) {
    struct row_sums so_far; /* a copy, since the compiler would store the others before each y */
    copy_row_sums(&so_far, sums, normalization->sums_in);
#pragma GCC unroll 1
    for (int i = 0; i < count; i++)
        take_parts(&so_far, call, rows, &parts[i], normalization);
    copy_row_sums(sums, &so_far, normalization->sums_in);
}

/* The channels of a row that wait for the next row begin here. */
INLINE size_t late_channel(size_t channels) {
    return (channels - 1) / BLOCK * BLOCK;
}

/* Whether a row needs nothing but the arithmetic of ordinary ones, or of shifted ones. */
INLINE int is_plain_row(struct long_rows *rows, size_t row) {
    const struct eight_rows *constants = constants_of(rows, row);
    return rows->is_plain && !(constants->in_double >> row % 8 & 1);
}

/* A row of forward_single_rows with two plain ones before it. */
INLINE void forward_plain_row(const struct forward_call *call, struct long_rows *rows, size_t row, size_t late,
                              const struct normalization *normalization) {
    const size_t channels = call->constants->channels;
    const float *weight = call->weight.values, *bias = call->bias.values, *x = row_of(&call->x, row);
    const float *before = row_of(&call->x, row - 1), *last = row_of(&call->x, row - 2) + late;
    float *y_before = row_of(&call->y.rows, row - 1), *y_last = row_of(&call->y.rows, row - 2) + late;
    const struct long_step first = {
        .summed = x,
        .summed_count = BLOCK,
        .y = {y_last, last, weight + late, normalization->has_bias ? bias + late : NULL, call->fetches_to_write},
        .y_count = (ptrdiff_t)(channels - late),
        .row = vectors_of_row(constants_of(rows, row - 2), (row - 2) % 8),
    };
    const struct long_step second = {
        .summed = x + BLOCK,
        .summed_count = (ptrdiff_t)channels - BLOCK,
        .y = {y_before, before, weight, bias, call->fetches_to_write},
        .y_count = (ptrdiff_t)late,
        .row = vectors_of_row(constants_of(rows, row - 1), (row - 1) % 8),
    };
    struct row_sums sums;
    clear_row_sums(&sums, normalization->sums_in);
    take_step(&sums, &first, normalization, MAY_BE_SHIFTED);
    take_step(&sums, &second, normalization, MAY_BE_SHIFTED);
    finish_long_row(call, rows, totals_of_block(&sums, normalization->sums_in), row, normalization);
}

/* Rows of forward_single_rows from a row on, as long as they have two plain ones before them. Returns the first row
 * that is left. */
INLINE size_t forward_plain_rows(const struct forward_call *call, struct long_rows *rows, size_t row,
                                 const struct normalization *normalization) {
    const size_t late = late_channel(call->constants->channels);
    for (; row < call->rows && is_plain_row(rows, row - 1) && is_plain_row(rows, row - 2); row++)
        forward_plain_row(call, rows, row, late, normalization);
    return row;
}

/* The sums of a row go along with y of the row before, but for the last channels of that, which wait for the next row:
   so the sums of some channels are made while the end of the row before is still on its way. */
INLINE void forward_single_rows(const struct forward_call *call, struct long_rows *rows,
                                const struct normalization *normalization) {
    const size_t channels = call->constants->channels, has_y = call->y.rows.data != NULL;
    const size_t late = late_channel(channels);
    struct parts parts[2], *const first = &parts[0], *const second = &parts[1];
    for (size_t row = 0; row < call->rows + (has_y ? 2 : 0); row++) {
        if (row >= 2 && normalization->forward_plain_rows)
            row = normalization->forward_plain_rows(call, rows, row);
        const size_t summed = row < call->rows;
        struct row_sums sums;
        clear_row_sums(&sums, normalization->sums_in);
        first->summed_row = second->summed_row = row;
        first->written_row = row - 2;
        second->written_row = row - 1;
        first->summed = second->written = 0;
        first->summed_count = summed ? BLOCK : 0;
        first->written = late;
        first->written_count = has_y && row >= 2 ? channels - late : 0;
        second->summed = BLOCK;
        second->summed_count = summed ? channels - BLOCK : 0;
        second->written_count = has_y && row >= 1 && row <= call->rows ? late : 0;
        normalization->forward_parts(call, rows, &sums, parts, 2);
        if (summed)
            finish_long_row(call, rows, totals_of_block(&sums, normalization->sums_in), row, normalization);
    }
}

/* A group of forward_groups_of_rows of eight rows, or of none, with eight plain ones before it. */
INLINE void forward_plain_group(const struct forward_call *call, struct long_rows *rows, size_t group,
                                const struct normalization *normalization) {
    const ptrdiff_t channels = (ptrdiff_t)call->constants->channels;
    const size_t x_stride = call->x.stride, y_stride = call->y.rows.stride;
    const float *weight = call->weight.values, *bias = call->bias.values;
    const ptrdiff_t summed_channels = group < call->rows ? channels : 0;
    const float *summed = row_of(&call->x, group), *first_x = row_of(&call->x, group - 8);
    float *first_y = row_of(&call->y.rows, group - 8);
    const struct eight_rows *constants = constants_of(rows, group - 8);
    ptrdiff_t channel = 0; /* where the sums are */
    struct totals totals = {0, 0};
    struct row_sums sums;
    clear_row_sums(&sums, normalization->sums_in);
    for (ptrdiff_t first = 0; first < channels; first += BLOCK) {
        const float *x = first_x + first;
        float *y = first_y + first;
        for (size_t i = 0; i < 8; i++, x += x_stride, y += y_stride) {
            const struct long_step step = {
                .summed = summed + channel,
                .summed_count = summed_channels - channel < BLOCK ? summed_channels - channel : BLOCK,
                .y = {y, x, weight + first, normalization->has_bias ? bias + first : NULL, call->fetches_to_write},
                .y_count = channels - first < BLOCK ? channels - first : BLOCK,
                .row = vectors_of_row(constants, i),
            };
            take_step(&sums, &step, normalization, MAY_BE_SHIFTED);
            if (!summed_channels)
                continue;
            channel += BLOCK;
            if (channel % SUMMED_BLOCK && channel < channels)
                continue;
            add_totals(&totals, totals_of_block(&sums, normalization->sums_in));
            clear_row_sums(&sums, normalization->sums_in);
            if (channel < channels)
                continue;
            finish_long_row(call, rows, totals, group++, normalization);
            totals = (struct totals){0, 0};
            channel = 0;
            summed += x_stride;
        }
    }
}

/* The same from a group on, as long as there are such groups. Returns the first one that is left. */
INLINE size_t forward_plain_groups(const struct forward_call *call, struct long_rows *rows, size_t group,
                                   const struct normalization *normalization) {
    const size_t end = call->rows % 8 ? call->rows / 8 * 8 : call->rows + 8;
    for (; group < end; group += 8) {
        const struct eight_rows *constants = constants_of(rows, group - 8);
        if (!rows->is_plain || constants->in_double)
            break;
        forward_plain_group(call, rows, group, normalization);
    }
    return group;
}

/* y of eight rows, block by block, along with the sums of the next eight, row by row. */
INLINE void forward_groups_of_rows(const struct forward_call *call, struct long_rows *rows,
                                   const struct normalization *normalization) {
    const size_t channels = call->constants->channels, end = call->rows;
    size_t written = 0; /* rows of the group before whose y is to be computed */
    for (size_t group = 0;; group += 8) {
        if (written == 8) {
            group = normalization->forward_plain_groups(call, rows, group);
            if (group > end) /* with y of the last one */
                break;
        }
        const size_t summed = group < end ? (end - group < 8 ? end - group : 8) : 0;
        const size_t most = written > summed ? written : summed;
        const size_t at_once = written ? BLOCK : SUMMED_BLOCK;
        size_t row = 0, channel = 0; /* where the sums are */
        struct totals totals = {0, 0};
        struct row_sums sums;
        if (!most)
            break;
        clear_row_sums(&sums, normalization->sums_in);
        for (size_t first = 0; first < channels; first += BLOCK)
            for (size_t i = 0; i < most; i++) {
                struct parts parts;
                parts.summed_row = group + row;
                parts.summed = channel;
                parts.summed_count = row < summed ? smaller(at_once, channels - channel) : 0;
                parts.written_row = group - 8 + i;
                parts.written = first;
                parts.written_count = i < written ? smaller(BLOCK, channels - first) : 0;
                normalization->forward_parts(call, rows, &sums, &parts, 1);
                channel += at_once;
                if (row >= summed || (channel % SUMMED_BLOCK && channel < channels))
                    continue;
                add_totals(&totals, totals_of_block(&sums, normalization->sums_in));
                clear_row_sums(&sums, normalization->sums_in);
                if (channel < channels)
                    continue;
                finish_long_row(call, rows, totals, group + row, normalization);
                totals = (struct totals){0, 0};
                channel = 0;
                row++;
            }
        written = call->y.rows.data ? summed : 0;
    }
}

/* An operation's own functions of this, which are not inlined: the compiler then has all registers for each of them. */
#define LONG_ROWS(operation)                                                                                           \
    OUTLINED void operation##_forward_parts(const struct forward_call *call, struct long_rows *rows,                   \
                                            struct row_sums *sums, const struct parts *parts, int count) {             \
        forward_parts(call, rows, sums, parts, count, &operation##_normalization);                                     \
    }                                                                                                                  \
    OUTLINED size_t operation##_forward_plain_rows(const struct forward_call *call, struct long_rows *rows,            \
                                                   size_t row) {                                                       \
        return forward_plain_rows(call, rows, row, &operation##_normalization);                                        \
    }                                                                                                                  \
    OUTLINED size_t operation##_forward_plain_groups(const struct forward_call *call, struct long_rows *rows,          \
                                                     size_t group) {                                                   \
        return forward_plain_groups(call, rows, group, &operation##_normalization);                                    \
    }

#endif
