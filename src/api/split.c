/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rows whose channels are split into parts.
 */
#include "api/descriptor.h"
#include "api/passes.h"
#include "inlining.h"
#include "rows/blocks.h"

#include <string.h>

size_t dynnorm_split_block(void) {
    return SUMMED_BLOCK;
}

/* What each of these functions begins with. */
struct split_call {
    dynnorm_descriptor own; /* the call, without what the sums do not need */
    struct split_rows rows;
    size_t doubles_of_block; /* 0: no exchange is needed */
};

static dynnorm_status count_channels(struct split_rows *rows, const dynnorm_split *split, struct mistake *mistake) {
    rows->row_channels = rows->blocks = rows->first_block = 0;
    for (size_t part = 0; part < split->parts; part++) {
        const size_t channels = split->channels[part];
        if (!channels)
            return found(mistake, DYNNORM_ERROR_SPLIT, "a part of the split has no channels", NULL, NULL);
        if (part == split->part)
            rows->first_block = rows->blocks;
        if (channels > MOST_FLOATS - rows->row_channels)
            return found(mistake, DYNNORM_ERROR_SIZE_OVERFLOW, "the parts of a row exceed the address space", NULL,
                         NULL);
        rows->row_channels += channels;
        rows->blocks += SUMMED_BLOCKS(channels);
    }
    /* A block has less doubles than this. */
    return rows->tokens && rows->blocks > MOST_FLOATS / BACKWARD_SPLIT_DOUBLES(1) / rows->tokens
               ? found(mistake, DYNNORM_ERROR_SIZE_OVERFLOW, "the sums of all parts exceed the address space", NULL,
                       NULL)
               : DYNNORM_OK;
}

static dynnorm_status check_split(const dynnorm_descriptor *call, const dynnorm_split *split, struct mistake *mistake) {
    const char *words =
        !split ? "the split is NULL"
        : split->size != sizeof *split
            ? "the split's size is unknown to this version of the library; was it begun with DYNNORM_SPLIT_INIT?"
        : !split->channels                               ? "split.channels is NULL"
        : split->part >= split->parts                    ? "split.part is not less than split.parts"
        : split->channels[split->part] != call->channels ? "split.channels of the part are not the call's channels"
        : call->residual.data                            ? "residual is given, which rows that are split cannot have"
        : call->y_scales                                 ? "y_scales is given, which rows that are split cannot have"
                                                         : NULL;
    return words ? found(mistake, DYNNORM_ERROR_SPLIT, words, NULL, NULL) : DYNNORM_OK;
}

static dynnorm_status begin(const dynnorm_descriptor *call, const dynnorm_split *split, int is_backward,
                            struct split_call *of, struct mistake *mistake) {
    dynnorm_descriptor completed;
    dynnorm_status status = dynnorm_check_query(&call, &completed, mistake);
    if (status)
        return status;
    if (!HAS_SPLIT_ROWS)
        return DYNNORM_ERROR_LEFT_OUT;
    /* Its backward pass would need a second exchange, of sums that are made with the mean of the first one. */
    if (call->operation == DYNNORM_CENTERED_DYISRU)
        return found(mistake, DYNNORM_ERROR_OPERATION, "centered DyISRU cannot be split", NULL, NULL);
    status = check_split(call, split, mistake);
    if (status)
        return status;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    of->doubles_of_block = !facts->has_rstd ? 0
                           : is_backward    ? BACKWARD_SPLIT_DOUBLES(facts->has_mean)
                                            : FORWARD_SPLIT_DOUBLES(facts->has_mean);
    of->own = *call;
    of->rows = (struct split_rows){
        .parts = split->parts, .channels = split->channels, .part = split->part, .tokens = call->tokens};
    return count_channels(&of->rows, split, mistake);
}

/* The same, with the sums. They are only written where the pass tells. */
static dynnorm_status begin_with_sums(const dynnorm_descriptor *call, const dynnorm_split *split, int is_backward,
                                      const double *sums, struct split_call *of, struct mistake *mistake) {
    dynnorm_status status = begin(call, split, is_backward, of, mistake);
    if (status || !of->doubles_of_block || !call->tokens)
        return status;
    memcpy(&of->rows.sums, &sums, sizeof sums);
    /* The statistics are not recomputed from a part of a row. */
    const char *missing = !sums                                                                            ? "sums"
                          : is_backward && !of->own.rstd                                                   ? "rstd"
                          : is_backward && !of->own.mean && dynnorm_operations[of->own.operation].has_mean ? "mean"
                                                                                                           : NULL;
    return missing ? found(mistake, DYNNORM_ERROR_NULL_POINTER, "%s is NULL, and rows that are split need it", missing,
                           NULL)
                   : DYNNORM_OK;
}

/* ---- How many sums there are ---- */

static dynnorm_status find_place(const dynnorm_descriptor *call, const dynnorm_split *split, int is_backward,
                                 dynnorm_split_sums *place) {
    struct split_call of;
    struct mistake mistake;
    dynnorm_status status = begin(call, split, is_backward, &of, &mistake);
    if (status)
        return status;
    if (!place)
        return DYNNORM_ERROR_NULL_POINTER;
    const size_t doubles = of.rows.tokens * of.doubles_of_block;
    *place = (dynnorm_split_sums){of.rows.first_block * doubles, SUMMED_BLOCKS(of.own.channels) * doubles,
                                  of.rows.blocks * doubles};
    return DYNNORM_OK;
}

dynnorm_status dynnorm_split_forward_size(const dynnorm_descriptor *call, const dynnorm_split *split,
                                          dynnorm_split_sums *place) {
    return find_place(call, split, 0, place);
}

dynnorm_status dynnorm_split_backward_size(const dynnorm_descriptor *call, const dynnorm_split *split,
                                           dynnorm_split_sums *place) {
    return find_place(call, split, 1, place);
}

/* ---- Forward ---- */

static dynnorm_status begin_forward(const struct split_call *of, struct forward_pass *pass, struct mistake *mistake) {
    if (!HAS_SPLIT_ROWS) /* so that the compiler leaves out what follows */
        return DYNNORM_ERROR_LEFT_OUT;
    return dynnorm_begin_forward(&of->own, of->doubles_of_block ? &of->rows : NULL, pass, mistake);
}

static dynnorm_status run_forward(const struct split_call *of) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = begin_forward(of, &pass, &mistake);
    return status || !HAS_SPLIT_ROWS ? status : dynnorm_run_whole_forward(&pass);
}

dynnorm_status dynnorm_split_forward_sums(const dynnorm_descriptor *call, const dynnorm_split *split, double *sums) {
    struct split_call of;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 0, sums, &of, &mistake);
    if (status || !of.doubles_of_block)
        return status;
    of.rows.tells = 1;
    of.own.y.data = NULL;
    of.own.mean = of.own.rstd = NULL;
    of.own.y_scale = 0;
    of.own.y.type = DYNNORM_F32;
    return run_forward(&of);
}

dynnorm_status dynnorm_split_forward(const dynnorm_descriptor *call, const dynnorm_split *split, const double *sums) {
    struct split_call of;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 0, sums, &of, &mistake);
    return status ? status : run_forward(&of);
}

FOR_SIZE size_t dynnorm_explain_split_forward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                              const double *sums, char *text, size_t capacity) {
    struct split_call of;
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 0, sums, &of, &mistake);
    return dynnorm_write_words(status ? status : begin_forward(&of, &pass, &mistake), &mistake, text, capacity);
}

/* ---- Backward ---- */

static dynnorm_status begin_backward(const struct split_call *of, struct backward_pass *pass, struct mistake *mistake) {
    if (!HAS_SPLIT_ROWS)
        return DYNNORM_ERROR_LEFT_OUT;
    return dynnorm_begin_backward(&of->own, of->doubles_of_block ? &of->rows : NULL, pass, mistake);
}

static dynnorm_status run_backward(const struct split_call *of) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = begin_backward(of, &pass, &mistake);
    return status || !HAS_SPLIT_ROWS ? status : dynnorm_run_whole_backward(&pass);
}

dynnorm_status dynnorm_split_backward_sums(const dynnorm_descriptor *call, const dynnorm_split *split, double *sums) {
    struct split_call of;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 1, sums, &of, &mistake);
    if (status || !of.doubles_of_block)
        return status;
    of.rows.tells = 1;
    of.own.dx.data = of.own.dsum.data = of.own.dweight.data = of.own.dbias.data = of.own.workspace = NULL;
    of.own.accumulate_dx = 0;
    return run_backward(&of);
}

dynnorm_status dynnorm_split_backward(const dynnorm_descriptor *call, const dynnorm_split *split, const double *sums) {
    struct split_call of;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 1, sums, &of, &mistake);
    return status ? status : run_backward(&of);
}

FOR_SIZE size_t dynnorm_explain_split_backward(const dynnorm_descriptor *call, const dynnorm_split *split,
                                               const double *sums, char *text, size_t capacity) {
    struct split_call of;
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = begin_with_sums(call, split, 1, sums, &of, &mistake);
    return dynnorm_write_words(status ? status : begin_backward(&of, &pass, &mistake), &mistake, text, capacity);
}
