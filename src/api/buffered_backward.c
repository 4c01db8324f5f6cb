/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/buffered_backward.h"
#include "api/buffers.h"
#include "operations.h"
#include "rows/blocks.h"

#include <string.h>

static void add_row_to(float *floats, const struct passed_tensor *passed, size_t row) {
    passed->conversion.add(floats, floats, address_of_row(passed->tensor, row), passed->channels);
}

/* Whether dx is added to short rows of floats. Kernels do that themselves, but the usual loops of LayerNorm and
 * RMSNorm, which then add a copy of what is there, took 0.3 to 0.8 times as long on a Zen 3 with AVX2. */
static int is_added_to_short_rows(const dynnorm_descriptor *call) {
    const size_t most_channels = BLOCK - 1;
    return HAS_TYPES && call->accumulate_dx && call->dx.data && call->tokens > 1 && call->channels <= most_channels &&
           (unsigned)call->operation < OPERATIONS && dynnorm_operations[call->operation].has_rstd;
}

int dynnorm_backward_is_buffered(const dynnorm_descriptor *call) {
    return is_added_to_short_rows(call) || dynnorm_has_other_type(call->x.type, call->x.data) ||
           dynnorm_has_other_type(call->dy.type, call->dy.data) ||
           dynnorm_has_other_type(call->dx.type, call->dx.data) ||
           dynnorm_has_other_type(call->weight.type, call->weight.data) ||
           dynnorm_has_other_type(call->dweight.type, call->dweight.data) ||
           dynnorm_has_other_type(call->dbias.type, call->dbias.data) || (call->dsum.data && call->dx.data);
}

/* Where rows are passed to a kernel by pieces these have so many: whole groups, so that their sums are the same as
 * ever, but no more than the call has. */
static size_t rows_of_piece(const dynnorm_descriptor *call) {
    const size_t groups = FLOATS_AT_A_TIME / (GROUP * stride_of_whole_lines(call->channels));
    const size_t rows = GROUP * (groups ? groups : 1);
    return rows < call->tokens ? rows : call->tokens;
}

/* The kernel of the centered DyISRU does not know its tensors to be of other types: pieces of them are widened. */
static int runs_by_pieces(const struct backward_pass *pass) {
    return pass->call->operation == DYNNORM_CENTERED_DYISRU;
}

/* A piece of rows has to be in one place, even if the tensor lies on several axes. */
static int needs_buffer(const dynnorm_tensor *described, const struct tensor *tensor) {
    return described->data && (described->type != DYNNORM_F32 || tensor->axes > 1);
}

static int dx_needs_buffer(const struct backward_pass *pass) {
    return needs_buffer(&pass->call->dx, &pass->arguments.dx) || (pass->call->dx.data && pass->call->dsum.data);
}

/* A norm takes a row by itself at once, unless it is so long that its floats would leave the second-level cache. */
INLINE size_t typed_room(const dynnorm_descriptor *call) {
    const size_t most = 16384, stride = stride_of_whole_lines(call->channels);
    const int is_whole = dynnorm_backward_is_of_one_row(call) && dynnorm_operations[call->operation].has_rstd;
    return is_whole && stride > LEAST_TYPED_ROOM && stride <= most ? stride : LEAST_TYPED_ROOM;
}

/* It is added to, or takes the place of an input. */
static int dx_is_read(const dynnorm_descriptor *call) {
    return call->accumulate_dx || call->dx.data == call->x.data || call->dx.data == call->dy.data ||
           call->dx.data == call->dsum.data;
}

static int is_of_floats(const dynnorm_descriptor *call) {
    return call->x.type == DYNNORM_F32 && call->dy.type == DYNNORM_F32 &&
           !dynnorm_has_other_type(call->dx.type, call->dx.data);
}

/* Whether all is of floats, and the kernel adds to dx what there is to add. That of the centered DyISRU does not, nor
 * do those of DyT and DyISRU for a row by itself, or those for rows that are split. */
static int kernel_adds_dsum(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    return call->dsum.data && call->dx.data && is_of_floats(call) && call->dsum.type == DYNNORM_F32 &&
           !dx_is_read(call) && (call->tokens > 1 || dynnorm_operations[call->operation].has_rstd) &&
           !runs_by_pieces(pass) && !pass->arguments.split;
}

/* The type of 16 bits that x, dy, dx and dsum, if there is one, have in common. DYNNORM_F32: there is none, or dx is
 * not asked for, or is read. */
static dynnorm_type type_of_halves(const dynnorm_descriptor *call) {
    const int are_alike = call->x.type == call->dy.type && call->x.type == call->dx.type &&
                          (!call->dsum.data || call->x.type == call->dsum.type);
    return are_alike && call->dx.data && !dx_is_read(call) ? call->x.type : DYNNORM_F32;
}

/* Whether the kernel converts rows of 16 bits in registers, as far as the call tells, and gains by it. LayerNorm of up
 * to 256 channels took 1.1 times as long with copies, on a Zen 3 with AVX2. */
static int converts_in_registers(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const struct operation_facts *facts = &dynnorm_operations[call->operation];
    const size_t lanes = pass->kernels->lanes, channels = call->channels;
    if (lanes < 8)
        return 0;
    if (facts->has_scale)
        return channels % (2 * lanes) == 0;
    return channels % 64 == 0 && (channels > 256 || !facts->has_mean) && call->rstd && call->weight.data &&
           call->weight_offset == 0 && (lanes == 8 || call->dx.type == DYNNORM_BF16);
}

/* Whether the loops that add a copy take less time than those that add to what is there. */
static int gains_by_copies(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    if (!is_of_floats(call))
        return converts_in_registers(pass);
    return pass->kernels->lanes > 1 && dynnorm_operations[call->operation].has_rstd &&
           (call->dsum.data || is_added_to_short_rows(call));
}

/* Whether dx is added to what is there, or takes the place of the gradient of a residual, and the kernel adds a copy of
 * that, which it may need once more after it has written dx. A piece of the rows is copied at a time. */
FOR_SIZE OUTLINED int adds_copies(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const struct backward_arguments *of = &pass->arguments;
    const int is_in_place = call->dsum.data == call->dx.data && call->dsum.type == call->dx.type;
    const int adds_one = call->accumulate_dx ? !call->dsum.data : is_in_place;
    const int is_alike = call->x.type == call->dx.type && call->dy.type == call->dx.type;
    return call->dx.data && adds_one && call->dx.data != call->x.data && call->dx.data != call->dy.data && is_alike &&
           call->tokens > 1 && of->x.axes == 1 && of->dy.axes == 1 && of->dx.axes == 1 && !runs_by_pieces(pass) &&
           !of->split && gains_by_copies(pass);
}

/* The room that the copies of a piece take. */
static size_t floats_of_copies(const dynnorm_descriptor *call) {
    const size_t elements = rows_of_piece(call) * stride_of_whole_lines(call->channels);
    return elements * dynnorm_element_bytes(call->dx.type) / sizeof(float);
}

/* Whether the kernel has to know of other types than float, or is to add what it has no loops for. */
INLINE int has_typed_rows(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const int adds_floats = kernel_adds_dsum(pass) || adds_copies(pass);
    return !is_of_floats(call) || (call->dx.data && call->dsum.data && !adds_floats);
}

static size_t floats_of_backward(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const struct backward_arguments *arguments = &pass->arguments;
    size_t floats = dynnorm_floats_of_vector(&call->weight, call->channels);
    if (runs_by_pieces(pass)) {
        const int buffers =
            needs_buffer(&call->x, &arguments->x) + needs_buffer(&call->dy, &arguments->dy) + dx_needs_buffer(pass);
        floats += (size_t)buffers * rows_of_piece(call) * stride_of_whole_lines(call->channels);
        return floats;
    }
    if (adds_copies(pass))
        floats += floats_of_copies(call);
    if (has_typed_rows(pass))
        floats += TYPED_BUFFERS * typed_room(call);
    if (dynnorm_backward_is_of_one_row(call))
        floats += dynnorm_floats_of_vector(&call->dweight, call->channels) +
                  dynnorm_floats_of_vector(&call->dbias, call->channels);
    return floats;
}

FOR_SIZE size_t dynnorm_backward_buffer_bytes(const struct backward_pass *pass) {
    const size_t floats = floats_of_backward(pass);
    return floats <= FLOATS_AT_A_TIME ? 0 : floats * sizeof(float) + ALIGNMENT;
}

/* A block of rows, or the beginning of one. */
struct backward_rows {
    size_t first;
    size_t count;
    const struct partial_sums *sums;
};

FOR_SIZE OUTLINED void run_by_pieces(const struct backward_pass *pass, const struct backward_rows *rows,
                                     float *memory) {
    const dynnorm_descriptor *call = pass->call;
    const struct kernels *kernels = pass->kernels;
    const size_t piece = rows_of_piece(call), end = rows->first + rows->count;
    struct backward_arguments arguments = pass->arguments;
    struct partial_sums of_piece = *rows->sums;
    struct passed_tensor x = dynnorm_pass_tensor(&pass->arguments.x, call->x.type, call->channels, kernels);
    struct passed_tensor dy = dynnorm_pass_tensor(&pass->arguments.dy, call->dy.type, call->channels, kernels);
    struct passed_tensor dx = dynnorm_pass_tensor(&pass->arguments.dx, call->dx.type, call->channels, kernels);
    const struct passed_tensor dsum = dynnorm_pass_tensor(&pass->dsum, call->dsum.type, call->channels, kernels);
    arguments.weight = dynnorm_floats_of(&call->weight, call->channels, kernels, &memory);
    if (needs_buffer(&call->x, x.tensor))
        dynnorm_give_buffer(&x, piece, &memory);
    if (needs_buffer(&call->dy, dy.tensor))
        dynnorm_give_buffer(&dy, piece, &memory);
    if (dx_needs_buffer(pass)) {
        dynnorm_give_buffer(&dx, piece, &memory);
        arguments.streams = 0;
    }
    for (size_t row = rows->first, some; row < end; row += some) {
        some = end - row < piece ? end - row : piece;
        if (x.buffer)
            dynnorm_widen_rows(&x, row, some);
        if (dy.buffer)
            dynnorm_widen_rows(&dy, row, some);
        if (dx.buffer && call->accumulate_dx)
            dynnorm_widen_rows(&dx, row, some);
        arguments.x = dynnorm_seen_by_kernel(&x, row, some);
        arguments.dy = dynnorm_seen_by_kernel(&dy, row, some);
        arguments.dx = dynnorm_seen_by_kernel(&dx, row, some);
        arguments.mean = call->mean ? call->mean + row : NULL;
        of_piece.continues = row != rows->first;
        of_piece.is_unfinished = row + some != end;
        if (pass->arguments.streams) { /* the inputs come from memory, too */
            dynnorm_prefetch_rows(&x, row + some, piece, end);
            dynnorm_prefetch_rows(&dy, row + some, piece, end);
        }
        pass->kernel(&arguments, 0, some, &of_piece);
        for (size_t i = 0; dx.buffer && call->dsum.data && i < some; i++)
            add_row_to(dx.buffer + i * dx.stride, &dsum, row + i);
        if (dx.buffer)
            dynnorm_narrow_rows(&dx, row, some, pass->arguments.streams);
    }
}

/* Of rows that a kernel reads and writes by itself. */
static const struct conversion *conversion_if_typed(const dynnorm_tensor *tensor, const struct kernels *kernels) {
    return tensor->type == DYNNORM_F32 ? NULL : &kernels->conversions[tensor->type];
}

static void move_to_row(struct tensor *tensor, size_t row) {
    tensor->data = (float *)address_of_row(tensor, row);
}

/* Copies lie as close to one another as the rows do if these have no gaps, since some loops are for rows that are
 * equally far apart in all tensors. */
static void run_with_copies(const struct backward_pass *pass, struct backward_arguments *given,
                            struct typed_tensors *typed, const struct backward_rows *rows,
                            const struct partial_sums *sums, float *copies) {
    const size_t channels = pass->call->channels, piece = rows_of_piece(pass->call), end = rows->first + rows->count;
    const struct tensor *from = pass->call->dsum.data ? &pass->dsum : &pass->arguments.dx;
    struct partial_sums of_piece = *sums;
    const int have_no_gaps = dynnorm_has_no_gaps(from, channels);
    struct tensor to = {copies, from->element_bytes, 1, {piece}, {stride_of_whole_lines(channels)}};
    if (have_no_gaps)
        to.strides[0] = channels;
    if (given->typed)
        typed->dsum = to;
    else
        given->dsum = &to;
    given->accumulate_dx = 0;
    for (size_t row = rows->first, some; row < end; row += some) {
        struct backward_arguments arguments = *given;
        some = end - row < piece ? end - row : piece;
        for (size_t i = 0, at_once = have_no_gaps ? some : 1; i < some; i += at_once)
            memcpy(address_of_row(&to, i), address_of_row(from, row + i), at_once * channels * from->element_bytes);
        move_to_row(&arguments.x, row);
        move_to_row(&arguments.dy, row);
        move_to_row(&arguments.dx, row);
        arguments.mean = arguments.mean ? arguments.mean + row : NULL;
        arguments.rstd = arguments.rstd ? arguments.rstd + row : NULL;
        of_piece.continues = sums->continues || row != rows->first;
        of_piece.is_unfinished = sums->is_unfinished || row + some != end;
        pass->kernel(&arguments, 0, some, &of_piece);
    }
}

FOR_SIZE OUTLINED void run_typed(const struct backward_pass *pass, const struct backward_rows *rows, float *memory) {
    const dynnorm_descriptor *call = pass->call;
    struct backward_arguments arguments = pass->arguments;
    const int has_copies = adds_copies(pass);
    struct typed_tensors typed = {
        .x = conversion_if_typed(&call->x, pass->kernels),
        .dy = conversion_if_typed(&call->dy, pass->kernels),
        .dx = &pass->kernels->conversions[call->dx.type],
        .of_dsum = &pass->kernels->conversions[has_copies ? call->dx.type : call->dsum.type],
        .dsum = pass->dsum,
        .halves = has_copies ? call->dx.type : type_of_halves(call),
        .dx_is_read = dx_is_read(call) && !has_copies,
        .room = typed_room(call),
    };
    const dynnorm_vector *const vectors[2] = {&call->dweight, &call->dbias};
    struct token_gradient of_row[2]; /* as floats */
    struct partial_sums sums = *rows->sums;
    arguments.weight = dynnorm_floats_of(&call->weight, call->channels, pass->kernels, &memory);
    for (int i = 0; sums.gradients && i < 2; i++) {
        of_row[i] = sums.gradients[i];
        if (!dynnorm_has_other_type(vectors[i]->type, of_row[i].values))
            continue;
        of_row[i].values = memory;
        if (of_row[i].accumulate)
            pass->kernels->conversions[vectors[i]->type].widen(memory, vectors[i]->data, call->channels);
        memory += stride_of_whole_lines(call->channels);
    }
    if (sums.gradients)
        sums.gradients = of_row;
    typed.buffers = memory;
    if (has_typed_rows(pass)) {
        arguments.typed = &typed;
        memory += TYPED_BUFFERS * typed.room;
    } else if (kernel_adds_dsum(pass)) {
        arguments.dsum = &pass->dsum;
    }
    if (has_copies)
        run_with_copies(pass, &arguments, &typed, rows, &sums, memory);
    else
        pass->kernel(&arguments, rows->first, rows->count, &sums);
    for (int i = 0; sums.gradients && i < 2; i++)
        if (dynnorm_has_other_type(vectors[i]->type, of_row[i].values))
            pass->kernels->conversions[vectors[i]->type].narrow(vectors[i]->data, of_row[i].values, call->channels, 0);
}

OUTLINED void run_backward(const struct backward_pass *pass, const struct backward_rows *rows, float *memory) {
    if (runs_by_pieces(pass))
        run_by_pieces(pass, rows, memory);
    else
        run_typed(pass, rows, memory);
    if (pass->arguments.streams)
        pass->kernels->end_streaming();
}

static void run_backward_on_stack(const struct backward_pass *pass, const struct backward_rows *rows) {
    _Alignas(ALIGNMENT) float small[FLOATS_AT_A_TIME];
    run_backward(pass, rows, small);
}

void dynnorm_buffered_backward(const struct backward_pass *pass, void *buffers, size_t first, size_t rows,
                               const struct partial_sums *sums) {
    const struct backward_rows of_block = {first, rows, sums};
    if (buffers)
        run_backward(pass, &of_block, dynnorm_aligned(buffers));
    else
        run_backward_on_stack(pass, &of_block);
}
