/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/buffered_rows.h"
#include "dispatch/cpu.h"
#include "dispatch/streaming.h"
#include "rows/blocks.h"
#include "rows/floats.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

/* As many rows are in the buffers at a time as have so many floats together, but at least one, or, in the backward
   pass, a group. */
enum { FLOATS_AT_A_TIME = 8192 };

enum { ALIGNMENT = 64 };

static float *aligned(void *memory) {
    return (float *)((char *)memory + (-(uintptr_t)memory & (ALIGNMENT - 1)));
}

/* ---- Tensors ---- */

/* A tensor of a pass. Kernels compute on the caller's own memory if that serves, else in a buffer. */
struct passed_tensor {
    const struct tensor *tensor;
    struct conversion conversion;
    float *buffer; /* NULL: there is none */
    size_t stride;
    size_t channels;
};

static struct passed_tensor pass_tensor(const struct tensor *tensor, dynnorm_type type, size_t channels,
                                        const struct kernels *kernels) {
    const dynnorm_type known = type == DYNNORM_I8 ? DYNNORM_F32 : type; /* that is not converted, but quantized */
    return (struct passed_tensor){tensor, kernels->conversions[known], NULL, stride_of_whole_lines(channels), channels};
}

/* Takes rows of a buffer from the memory that is left. */
static void give_buffer(struct passed_tensor *passed, size_t rows, float **memory) {
    passed->buffer = *memory;
    *memory += rows * passed->stride;
}

/* Rows [first, first + rows) as the kernels are to see them, counted from 0. They lie on one axis. */
OUTLINED struct tensor seen_by_kernel(const struct passed_tensor *passed, size_t first, size_t rows) {
    struct tensor seen = {passed->buffer, sizeof(float), 1, {rows}, {passed->stride}};
    if (!passed->buffer) {
        const struct rows there = rows_from(passed->tensor, first);
        seen.data = there.data;
        seen.strides[0] = there.stride;
    }
    return seen;
}

/* How many rows from the given one on, at most that many, are equally far apart. */
static size_t rows_on_one_axis(const struct tensor *tensor, size_t first, size_t most) {
    const size_t rows = rows_on_first_axis(tensor, first);
    return rows < most ? rows : most;
}

/* The same, or in a buffer. */
static size_t rows_at_once(const struct passed_tensor *passed, size_t first, size_t most) {
    return passed->buffer || !passed->tensor->data ? most : rows_on_one_axis(passed->tensor, first, most);
}

static void widen_row(const struct passed_tensor *passed, size_t row, float *floats) {
    passed->conversion.widen(floats, address_of_row(passed->tensor, row), passed->channels);
}

static void add_row_to(float *floats, const struct passed_tensor *passed, size_t row) {
    passed->conversion.add(floats, floats, address_of_row(passed->tensor, row), passed->channels);
}

static void narrow_row(const struct passed_tensor *passed, size_t row, const float *floats, int streams) {
    passed->conversion.narrow(address_of_row(passed->tensor, row), floats, passed->channels, streams);
}

static int has_no_gaps(const struct tensor *tensor, size_t channels) {
    return tensor->axes == 1 && tensor->strides[0] == channels;
}

/* Whether rows lie in memory as they do in the buffer, one after the other. */
static int is_contiguous(const struct passed_tensor *passed) {
    return passed->stride == passed->channels && has_no_gaps(passed->tensor, passed->channels);
}

static void widen_rows(const struct passed_tensor *passed, size_t first, size_t rows) {
    if (is_contiguous(passed)) {
        passed->conversion.widen(passed->buffer, address_of_row(passed->tensor, first), rows * passed->channels);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        widen_row(passed, first + i, passed->buffer + i * passed->stride);
}

static void narrow_rows(const struct passed_tensor *passed, size_t first, size_t rows, int streams) {
    if (is_contiguous(passed)) {
        passed->conversion.narrow(address_of_row(passed->tensor, first), passed->buffer, rows * passed->channels,
                                  streams);
        return;
    }
    for (size_t i = 0; i < rows; i++)
        narrow_row(passed, first + i, passed->buffer + i * passed->stride, streams);
}

/* Has rows fetched while others are computed. */
OUTLINED void prefetch_rows(const struct passed_tensor *passed, size_t first, size_t rows, size_t end) {
    const size_t last = end - first < rows ? end : first + rows,
                 bytes = passed->channels * passed->tensor->element_bytes;
    for (size_t row = first; row < last; row++)
        for (size_t i = 0; i < bytes; i += FLOATS_OF_LINE * sizeof(float))
            __builtin_prefetch(address_of_row(passed->tensor, row) + i, 0, 2);
}

/* ---- Vectors of channels ---- */

static int has_other_type(dynnorm_type type, const void *data) {
    return data && type != DYNNORM_F32;
}

static size_t floats_of_vector(const dynnorm_vector *vector, size_t channels) {
    return has_other_type(vector->type, vector->data) ? stride_of_whole_lines(channels) : 0;
}

/* A vector as floats. */
static const float *floats_of(const dynnorm_vector *vector, size_t channels, const struct kernels *kernels,
                              float **memory) {
    if (!has_other_type(vector->type, vector->data))
        return vector->data;
    float *floats = *memory;
    kernels->conversions[vector->type].widen(floats, vector->data, channels);
    *memory += stride_of_whole_lines(channels);
    return floats;
}

/* ---- Forward ---- */

static int rounds_before_weight(const dynnorm_descriptor *call) {
    return call->round_before_weight && (call->weight.data || call->bias.data);
}

/* alpha or beta of each channel, which only these calls have. */
static dynnorm_vector parameters_of_channels(const dynnorm_descriptor *call) {
    return call->parameter_per_channel ? dynnorm_parameters_of(call) : (dynnorm_vector){NULL, DYNNORM_F32};
}

static size_t floats_of_parameters(const dynnorm_descriptor *call) {
    const dynnorm_vector parameters = parameters_of_channels(call);
    return floats_of_vector(&parameters, call->channels);
}

int dynnorm_forward_is_buffered(const dynnorm_descriptor *call) {
    return floats_of_parameters(call) || has_other_type(call->x.type, call->x.data) ||
           has_other_type(call->y.type, call->y.data) || has_other_type(call->weight.type, call->weight.data) ||
           has_other_type(call->bias.type, call->bias.data) || call->residual.data || rounds_before_weight(call);
}

/* Whether x, the residual and their rounded sum, which is what is normalized, have one type. */
static int has_sum_of_one_type(const dynnorm_descriptor *call) {
    return call->x.type == call->residual.type && (!call->sum.data || call->x.type == call->sum.type) &&
           (call->x.type == DYNNORM_F32 || !call->normalize_unrounded_sum);
}

int dynnorm_forward_is_fused(const dynnorm_descriptor *call) {
    return call->x.type == call->y.type && (call->x.type == DYNNORM_BF16 || call->x.type == DYNNORM_F16) &&
           (!call->residual.data || has_sum_of_one_type(call)) && !rounds_before_weight(call);
}

/* A forward pass over some rows at a time. */
struct forward_work {
    const struct forward_pass *pass;
    const struct kernels *kernels;
    struct passed_tensor x;
    struct passed_tensor residual;
    struct passed_tensor sum;
    struct passed_tensor y;
    struct passed_tensor seen; /* what the kernel reads: x, or the sum */
    int sum_is_of_floats;      /* and so are both terms: it is made by one function */
    int sum_is_direct;         /* it is computed where the caller wants it, and read from there */
    const float *residual_bias;
    const float *weight; /* with round_before_weight these two are not left to the kernel */
    const float *bias;
    const struct conversion *rounded_sum; /* the type that something is rounded to, or NULL */
    const struct conversion *rounded_y;
};

/* Rounds floats to a type. */
OUTLINED void round_floats(float *floats, size_t count, const struct conversion *to) {
    enum { AT_A_TIME = 256 };
    float elements[AT_A_TIME];
    for (size_t i = 0, some; i < count; i += some) {
        some = count - i < AT_A_TIME ? count - i : AT_A_TIME;
        to->narrow(elements, floats + i, some, 0);
        to->widen(floats + i, elements, some);
    }
}

/* Some channels of x + residual, which stay in the nearest cache. */
static void sum_channels(const struct forward_work *work, size_t row, struct block block, float *floats) {
    const struct conversion *of_floats = &work->kernels->conversions[DYNNORM_F32];
    const struct tensor *x = work->x.tensor, *residual = work->residual.tensor, *sum = work->sum.tensor;
    const unsigned char *x_terms = address_of_row(x, row) + block.first * x->element_bytes;
    const unsigned char *residual_terms = address_of_row(residual, row) + block.first * residual->element_bytes;
    if (x->element_bytes == sizeof(float)) {
        work->residual.conversion.add(floats, (const float *)x_terms, residual_terms, block.count);
    } else if (residual->element_bytes == sizeof(float)) { /* floats may be in the place of the residual */
        work->x.conversion.add(floats, (const float *)residual_terms, x_terms, block.count);
    } else {
        work->x.conversion.widen(floats, x_terms, block.count);
        work->residual.conversion.add(floats, floats, residual_terms, block.count);
    }
    if (work->residual_bias)
        of_floats->add(floats, floats, work->residual_bias + block.first, block.count);
    if (work->rounded_sum)
        round_floats(floats, block.count, work->rounded_sum);
    if (sum->data && !work->sum_is_direct)
        work->sum.conversion.narrow(address_of_row(sum, row) + block.first * sum->element_bytes, floats, block.count,
                                    work->pass->streams_sum);
}

struct sum_tensors {
    const struct tensor *x;
    const struct tensor *residual;
    const struct tensor *to;
    const struct tensor *past_caches; /* where the sum goes besides, or NULL */
    const float *bias;
    size_t channels;
    const struct conversion *conversion;
};

/* From the given row of to on. Where there are no gaps between rows all of them are one. */
OUTLINED void make_sums_of_rows(const struct sum_tensors *of, size_t first, size_t rows, size_t row_of_to) {
    const size_t channels = of->channels;
    const int are_one = !of->bias && has_no_gaps(of->x, channels) && has_no_gaps(of->residual, channels) &&
                        has_no_gaps(of->to, channels) && (!of->past_caches || has_no_gaps(of->past_caches, channels));
    const size_t at_once = are_one ? rows : 1;
    for (size_t i = 0; i < rows; i += at_once) {
        const struct sum_of_elements elements = {
            .to = address_of_row(of->to, row_of_to + i),
            .past_caches = of->past_caches ? address_of_row(of->past_caches, first + i) : NULL,
            .a = address_of_row(of->x, first + i),
            .b = address_of_row(of->residual, first + i),
            .bias = of->bias,
            .count = at_once * channels,
        };
        of->conversion->sum(&elements);
    }
}

static void sum_rows(const struct forward_pass *pass, size_t first, size_t rows, const struct tensor *to,
                     size_t row_of_to, const float *bias) {
    const struct sum_tensors of = {&pass->arguments.x,
                                   &pass->residual,
                                   to,
                                   pass->streams_sum ? &pass->sum : NULL,
                                   bias,
                                   pass->call->channels,
                                   &pass->kernels->conversions[pass->call->x.type]};
    make_sums_of_rows(&of, first, rows, row_of_to);
}

static void read_sums(const struct forward_work *work, size_t first, size_t rows) {
    enum { AT_A_TIME = 4 * BLOCK };
    const size_t channels = work->x.channels;
    const struct tensor sums = seen_by_kernel(&work->seen, first, rows);
    if (work->sum_is_of_floats) {
        sum_rows(work->pass, first, rows, &sums, 0, work->residual_bias);
        return;
    }
    for (size_t row = first; row < first + rows; row++) {
        float *floats = (float *)address_of_row(&sums, row - first);
        for (size_t i = 0; i < channels; i += AT_A_TIME) {
            const struct block block = {i, channels - i < AT_A_TIME ? channels - i : AT_A_TIME};
            sum_channels(work, row, block, floats + i);
        }
    }
}

/* As integers of 8 bits. */
static void quantize_row(const struct forward_work *work, size_t row, const float *floats) {
    const dynnorm_descriptor *call = work->pass->call;
    float factor = 1 / call->y_scale;
    if (call->y_scales) {
        const float greatest = work->kernels->greatest(floats, work->y.channels), least = 0x1p-120f;
        store_float(call->y_scales + row, greatest < least ? 0 : greatest / 127);
        factor = greatest < least ? 0 : 127 / greatest;
    }
    work->kernels->quantize(address_of_row(work->y.tensor, row), floats, work->y.channels, factor);
}

/* What the kernel has computed. */
static void write_row_of_pass(const struct forward_work *work, size_t row, float *floats) {
    const dynnorm_descriptor *call = work->pass->call;
    const size_t channels = work->y.channels;
    if (work->weight) {
        if (work->rounded_y)
            round_floats(floats, channels, work->rounded_y);
        work->kernels->multiply(floats, work->weight, channels);
    }
    if (work->bias) {
        if (work->rounded_y)
            round_floats(floats, channels, work->rounded_y);
        work->kernels->conversions[DYNNORM_F32].add(floats, floats, work->bias, channels);
    }
    if (call->y.type == DYNNORM_I8)
        quantize_row(work, row, floats);
    else
        narrow_row(&work->y, row, floats, work->pass->arguments.streams);
}

/* ---- Without buffers ---- */

/* Their kernels take rows of any alignment, also where they store past the caches. */
static int is_elementwise(const dynnorm_descriptor *call) {
    return dynnorm_operations[call->operation].has_scale;
}

/* Whether a sum of one type can be made by one function: past the caches, it stores whole vectors. */
OUTLINED int makes_sum_of_one_type(const struct forward_pass *pass) {
    return pass->call->residual.data && has_sum_of_one_type(pass->call) &&
           (!pass->streams_sum || rows_are_aligned(&pass->sum, STREAM_ALIGNMENT));
}

OUTLINED int can_run_halves_kernel(const struct forward_pass *pass) {
    const struct tensor *y = &pass->arguments.y;
    return pass->halves_kernel && y->data &&
           (!pass->arguments.streams || is_elementwise(pass->call) || rows_are_aligned(y, STREAM_ALIGNMENT)) &&
           (!pass->call->residual.data || makes_sum_of_one_type(pass));
}

/* Without x, y and statistics. */
static struct halves_call begin_halves_call(const struct forward_pass *pass, const dynnorm_descriptor *call) {
    const dynnorm_vector parameters = parameters_of_channels(call);
    struct halves_call made = dynnorm_halves_call(call);
    made.x_stride = HALF_BYTES * pass->arguments.x.strides[0];
    made.y_stride = HALF_BYTES * pass->arguments.y.strides[0];
    made.parameters = (struct typed_vector){parameters.data, parameters.type, 0};
    made.parameters.offset = parameters.data ? 0 : pass->arguments.parameter;
    made.streams = pass->arguments.streams;
    return made;
}

/* Rows [row, end), on as many axes as they lie. x has them from row_of_x on; if they are summed, it is where their sums
   go. */
static void run_halves_kernel(const struct forward_pass *pass, const struct tensor *x, size_t row_of_x, size_t row,
                              size_t end, const struct summed_rows *summed) {
    struct halves_call call = begin_halves_call(pass, pass->call);
    call.summed = summed;
    call.x_stride = HALF_BYTES * x->strides[0];
    for (size_t some; row < end; row += some, row_of_x += some) {
        some = rows_on_one_axis(&pass->arguments.y, row, rows_on_one_axis(x, row_of_x, end - row));
        call.x = address_of_row(x, row_of_x);
        call.y = address_of_row(&pass->arguments.y, row);
        call.mean = pass->call->mean ? pass->call->mean + row : NULL;
        call.rstd = pass->call->rstd ? pass->call->rstd + row : NULL;
        pass->halves_kernel(&call, some);
    }
}

int dynnorm_sum_few_rows(const struct forward_pass *pass, const void *x, const struct prepared_rows *rows) {
    const dynnorm_descriptor *call = &pass->completed;
    struct tensor given = pass->arguments.x;
    if (!pass->sum.data || call->residual_bias.data || !has_sum_of_one_type(call) || given.axes != 1 ||
        pass->residual.axes != 1 || pass->sum.axes != 1 || rows->count * call->channels > FEW_ELEMENTS)
        return 0;
    memcpy(&given.data, &x, sizeof x); /* which is only read */
    const struct sum_tensors of = {
        &given, &pass->residual, &pass->sum, NULL, NULL, call->channels, &pass->kernels->conversions[call->x.type]};
    const size_t at_once = rows->step == 1 ? rows->count : 1;
    for (size_t i = 0, row = rows->first; i < rows->count; i += at_once, row += rows->step)
        make_sums_of_rows(&of, row, at_once, row);
    return 1;
}

int dynnorm_run_prepared_halves(const struct forward_pass *pass, void *y, const void *x,
                                const struct prepared_rows *rows) {
    struct tensor to = pass->arguments.y;
    struct halves_call call = begin_halves_call(pass, &pass->completed);
    const size_t step = rows->count == 1 ? 1 : rows->step, first_y = rows->first * call.y_stride;
    const int has_statistics = pass->arguments.mean || pass->arguments.rstd;
    to.data = y;
    if (!pass->halves_kernel || !y || to.axes != 1 || pass->arguments.x.axes != 1 || (step != 1 && has_statistics) ||
        (rows->count * call.channels > FEW_ELEMENTS && dynnorm_streams(&pass->completed, &to, rows->count)))
        return 0;
    if (pass->residual.data) {
        if (!dynnorm_sum_few_rows(pass, x, rows))
            return 0;
        x = pass->sum.data;
        call.x_stride = HALF_BYTES * pass->sum.strides[0];
    }
    call.x = (const unsigned char *)x + rows->first * call.x_stride;
    call.y = (unsigned char *)y + first_y;
    call.x_stride *= step;
    call.y_stride *= step;
    call.mean = pass->arguments.mean ? pass->arguments.mean + rows->first : NULL;
    call.rstd = pass->arguments.rstd ? pass->arguments.rstd + rows->first : NULL;
    call.streams = 0;
    pass->halves_kernel(&call, rows->count);
    return 1;
}

/* ---- The same with a residual, whose sum is made before ---- */

/* Whether it has a buffer. Otherwise it is where the caller wants it. */
static int sums_need_buffer(const struct forward_pass *pass) {
    return pass->call->residual.data && (!pass->sum.data || pass->streams_sum);
}

/* Whether the kernel itself makes the sums of so many rows, along with y of others. From memory that takes less time:
   otherwise nothing is read while y is computed. As measured with rows of up to 8192 channels; their ring stays in the
   second-level cache. Plain C has no loops for it, and takes longer for the arithmetic: it is told by its lack of
   kernels for 16 bits. */
RARE int kernel_makes_sums(const struct forward_pass *pass, size_t rows, int of_halves) {
    const dynnorm_descriptor *call = pass->call;
    const size_t least_rows = 2 * ROWS_OF_RING, most_channels = 8192;
    const int is_of_floats = call->x.type == DYNNORM_F32 && call->y.type == DYNNORM_F32 && !rounds_before_weight(call);
    return rows >= least_rows && pass->kernels->halves[call->operation][DYNNORM_PORTABLE] && pass->arguments.streams &&
           makes_sum_of_one_type(pass) && (is_of_floats || of_halves) && dynnorm_operations[call->operation].has_rstd &&
           call->channels > BLOCK && call->channels <= most_channels && !pass->arguments.split &&
           pass->arguments.y.axes == 1 && (sums_need_buffer(pass) || pass->sum.axes == 1);
}

/* The sums from a row on. */
RARE struct summed_rows summed_rows(const struct forward_pass *pass, size_t first, const float *bias) {
    struct summed_rows summed = {.a = pass->arguments.x,
                                 .b = pass->residual,
                                 .first = first,
                                 .is_ring = sums_need_buffer(pass),
                                 .bias = bias,
                                 .sum = pass->kernels->conversions[pass->call->x.type].sum};
    if (pass->streams_sum)
        summed.past_caches = pass->sum;
    return summed;
}

/* What is needed besides the arguments of a forward pass, and which way it goes. */
struct forward_room {
    size_t floats;  /* of all buffers */
    size_t rows;    /* that they have at a time */
    int of_halves;  /* by the halves_kernel */
    int makes_sums; /* see kernel_makes_sums */
};

/* Some rows at a time, which stay in the nearest caches. */
static void run_sums_of_halves(const struct forward_pass *pass, size_t first, size_t rows,
                               const struct forward_room *room, float *memory) {
    const size_t channels = pass->call->channels;
    const float *bias = floats_of(&pass->call->residual_bias, channels, pass->kernels, &memory);
    const int has_buffer = sums_need_buffer(pass);
    struct tensor sums = pass->sum;
    if (has_buffer)
        sums = (struct tensor){memory, HALF_BYTES, 1, {room->rows}, {stride_of_whole_lines(channels)}};
    if (room->makes_sums) {
        struct summed_rows summed = summed_rows(pass, first, bias);
        const size_t place = has_buffer ? 0 : first;
        summed.to = address_of_row(&sums, place);
        run_halves_kernel(pass, &sums, place, first, first + rows, &summed);
        rows = 0;
    }
    for (size_t row = first, end = first + rows, some; row < end; row += some) {
        const size_t place = has_buffer ? 0 : row;
        some = end - row < room->rows ? end - row : room->rows;
        sum_rows(pass, row, some, &sums, place, bias);
        run_halves_kernel(pass, &sums, place, row, row + some, NULL);
    }
    if (pass->streams_sum)
        pass->kernels->end_streaming();
}

/* ---- With buffers ---- */

/* What the buffers of a forward pass have to hold. */
struct forward_buffers {
    size_t vectors; /* floats */
    int x;          /* whether what the kernel reads has a buffer */
    int y;          /* and y */
};

static int sum_is_direct(const struct forward_pass *pass) {
    return pass->sum.data && pass->call->sum.type == DYNNORM_F32 && !pass->streams_sum;
}

static struct forward_buffers buffers_of_forward(const struct forward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    struct forward_buffers buffers;
    buffers.vectors =
        floats_of_parameters(call) + floats_of_vector(&call->residual_bias, call->channels) +
        floats_of_vector(&call->bias, call->channels) +
        (rounds_before_weight(call) && call->weight.data ? stride_of_whole_lines(call->channels)
                                                         : floats_of_vector(&call->weight, call->channels));
    buffers.x = call->residual.data ? !sum_is_direct(pass) : has_other_type(call->x.type, call->x.data);
    buffers.y = has_other_type(call->y.type, call->y.data) || (call->y.data && rounds_before_weight(call));
    return buffers;
}

/* A vector's own copy, with an offset. NULL if there is no such vector. */
static float *copy_vector(const struct forward_work *work, const dynnorm_vector *vector, float offset, float **memory) {
    const size_t channels = work->pass->call->channels;
    float *floats = *memory;
    if (!vector->data)
        return NULL;
    *memory += stride_of_whole_lines(channels);
    work->kernels->conversions[vector->type].widen(floats, vector->data, channels);
    for (size_t i = 0; offset != 0 && i < channels; i++)
        floats[i] += offset;
    return floats;
}

static void begin_forward_work(struct forward_work *work, struct forward_arguments *arguments, size_t rows_of_buffer,
                               float *memory) {
    const struct forward_pass *pass = work->pass;
    const dynnorm_descriptor *call = pass->call;
    const struct kernels *kernels = work->kernels = pass->kernels;
    const struct forward_buffers buffers = buffers_of_forward(pass);
    const size_t channels = call->channels;
    const dynnorm_vector parameters = parameters_of_channels(call);
    const dynnorm_type sum_type = call->sum.data ? call->sum.type : call->x.type;
    work->x = pass_tensor(&pass->arguments.x, call->x.type, channels, kernels);
    work->residual = pass_tensor(&pass->residual, call->residual.type, channels, kernels);
    work->sum = pass_tensor(&pass->sum, call->sum.type, channels, kernels);
    work->y = pass_tensor(&pass->arguments.y, call->y.type, channels, kernels);
    work->rounded_sum =
        sum_type == DYNNORM_F32 || call->normalize_unrounded_sum ? NULL : &kernels->conversions[sum_type];
    work->rounded_y =
        call->y.type == DYNNORM_F32 || call->y.type == DYNNORM_I8 ? NULL : &kernels->conversions[call->y.type];
    arguments->parameters = floats_of(&parameters, channels, kernels, &memory);
    work->residual_bias = floats_of(&call->residual_bias, channels, kernels, &memory);
    work->weight = work->bias = NULL;
    work->sum_is_of_floats = makes_sum_of_one_type(pass) && call->x.type == DYNNORM_F32;
    if (rounds_before_weight(call)) {
        work->weight = copy_vector(work, &call->weight, call->weight_offset, &memory);
        work->bias = floats_of(&call->bias, channels, kernels, &memory);
        arguments->weight = arguments->bias = NULL;
    } else {
        arguments->weight = floats_of(&call->weight, channels, kernels, &memory);
        arguments->bias = floats_of(&call->bias, channels, kernels, &memory);
    }
    work->sum_is_direct = sum_is_direct(pass);
    work->seen = work->sum_is_direct ? work->sum : work->x;
    if (buffers.x)
        give_buffer(&work->seen, rows_of_buffer, &memory);
    if (buffers.y) {
        arguments->streams = 0;
        if (buffers.x) /* y takes the place of what is read */
            work->y.buffer = work->seen.buffer;
        else
            give_buffer(&work->y, rows_of_buffer, &memory);
    }
}

RARE void run_along_with_sums(const struct forward_work *work, struct forward_arguments *arguments, size_t first,
                              size_t rows) {
    const struct forward_pass *pass = work->pass;
    const struct tensor ring = {work->seen.buffer, sizeof(float), 2, {ROWS_OF_RING, SIZE_MAX}, {work->seen.stride, 0}};
    const struct summed_rows summed = summed_rows(pass, first, work->residual_bias);
    arguments->x = work->seen.buffer ? ring : seen_by_kernel(&work->seen, first, rows);
    arguments->y = seen_by_kernel(&work->y, first, rows);
    arguments->mean = pass->call->mean ? pass->call->mean + first : NULL;
    arguments->rstd = pass->call->rstd ? pass->call->rstd + first : NULL;
    arguments->summed = &summed;
    pass->kernel(arguments, 0, rows);
}

static void run_forward(const struct forward_pass *pass, size_t first, size_t rows, const struct forward_room *room,
                        float *memory) {
    const dynnorm_descriptor *call = pass->call;
    struct forward_arguments arguments = pass->arguments;
    struct forward_work work;
    work.pass = pass;
    begin_forward_work(&work, &arguments, room->rows, memory);
    if (room->makes_sums) {
        run_along_with_sums(&work, &arguments, first, rows);
        rows = 0;
    }
    for (size_t row = first, end = first + rows, some; row < end; row += some) {
        some = end - row < room->rows ? end - row : room->rows;
        some = rows_at_once(&work.seen, row, some);
        some = rows_at_once(&work.y, row, some);
        if (call->residual.data) {
            read_sums(&work, row, some);
        } else if (work.seen.buffer) {
            widen_rows(&work.seen, row, some);
        }
        if (pass->arguments.streams && !call->residual.data) /* x comes from memory, too */
            prefetch_rows(&work.x, row + some, some, end);
        arguments.x = seen_by_kernel(&work.seen, row, some);
        arguments.y = seen_by_kernel(&work.y, row, some);
        arguments.mean = call->mean ? call->mean + row : NULL;
        arguments.rstd = call->rstd ? call->rstd + row : NULL;
        arguments.split_row = row;
        if (arguments.y.data || arguments.mean || arguments.rstd || arguments.split)
            pass->kernel(&arguments, 0, some);
        if (work.weight || work.bias || call->y.type == DYNNORM_I8)
            for (size_t i = 0; work.y.buffer && i < some; i++)
                write_row_of_pass(&work, row + i, work.y.buffer + i * work.y.stride);
        else if (work.y.buffer)
            narrow_rows(&work.y, row, some, pass->arguments.streams);
    }
    if (pass->arguments.streams || pass->streams_sum)
        pass->kernels->end_streaming();
}

/* Rows whose sums are where the caller wants them have only to stay in the second-level cache, with those of x, the
   residual and y: all rows if they do, else some that take half of it. */
static size_t rows_of_sums(const dynnorm_descriptor *call, size_t rows) {
    const size_t cache = dynnorm_cache_bytes(2);
    const size_t of_row = 4 * call->channels * dynnorm_element_bytes(call->x.type);
    const size_t some = cache / 2 / of_row;
    return rows <= cache / of_row ? rows : some ? some : 1;
}

/* For so many rows, or fewer. */
OUTLINED struct forward_room room_of_forward(const struct forward_pass *pass, size_t rows) {
    const size_t stride = stride_of_whole_lines(pass->call->channels);
    struct forward_room room = {.of_halves = can_run_halves_kernel(pass)};
    if (room.of_halves && !pass->call->residual.data)
        return room;
    const struct forward_buffers buffers = buffers_of_forward(pass);
    const size_t vectors =
        room.of_halves ? floats_of_vector(&pass->call->residual_bias, pass->call->channels) : buffers.vectors;
    const int has_buffer = room.of_halves ? sums_need_buffer(pass) : buffers.x || buffers.y;
    const size_t of_row = !has_buffer ? 0 : room.of_halves ? stride / 2 : stride;
    room.makes_sums = kernel_makes_sums(pass, rows, room.of_halves);
    room.rows = stride < FLOATS_AT_A_TIME ? FLOATS_AT_A_TIME / stride : 1;
    if (room.makes_sums)
        room.rows = ROWS_OF_RING;
    else if (has_buffer && vectors + of_row <= FLOATS_AT_A_TIME) /* all of it fits on the stack */
        room.rows = (FLOATS_AT_A_TIME - vectors) / of_row;
    else if (!has_buffer && pass->call->residual.data)
        room.rows = rows_of_sums(pass->call, rows);
    room.floats = vectors + room.rows * of_row;
    return room;
}

size_t dynnorm_forward_buffer_bytes(const struct forward_pass *pass, size_t rows) {
    const struct forward_room room = room_of_forward(pass, rows);
    return room.floats <= FLOATS_AT_A_TIME ? 0 : room.floats * sizeof(float) + ALIGNMENT;
}

static void run_with_buffers(const struct forward_pass *pass, size_t first, size_t rows,
                             const struct forward_room *room, float *memory) {
    if (room->of_halves)
        run_sums_of_halves(pass, first, rows, room, memory);
    else
        run_forward(pass, first, rows, room, memory);
}

OUTLINED void run_with_buffers_on_stack(const struct forward_pass *pass, size_t first, size_t rows,
                                        const struct forward_room *room) {
    _Alignas(ALIGNMENT) float small[FLOATS_AT_A_TIME];
    run_with_buffers(pass, first, rows, room, small);
}

void dynnorm_buffered_forward(const struct forward_pass *pass, void *buffers, size_t first, size_t rows) {
    const struct forward_room room = room_of_forward(pass, rows);
    if (room.of_halves && !pass->call->residual.data)
        run_halves_kernel(pass, &pass->arguments.x, first, first, first + rows, NULL);
    else if (room.floats > FLOATS_AT_A_TIME)
        run_with_buffers(pass, first, rows, &room, aligned(buffers));
    else
        run_with_buffers_on_stack(pass, first, rows, &room);
}

/* ---- Backward ---- */

int dynnorm_backward_is_buffered(const dynnorm_descriptor *call) {
    return has_other_type(call->x.type, call->x.data) || has_other_type(call->dy.type, call->dy.data) ||
           has_other_type(call->dx.type, call->dx.data) || has_other_type(call->weight.type, call->weight.data) ||
           has_other_type(call->dweight.type, call->dweight.data) ||
           has_other_type(call->dbias.type, call->dbias.data) || (call->dsum.data && call->dx.data);
}

/* The buffers of a centered DyISRU's tensors, which its kernel does not know to be of other types, have so many rows:
 * whole groups, so that their sums are the same as ever. */
static size_t rows_of_piece(size_t channels) {
    const size_t groups = FLOATS_AT_A_TIME / (GROUP * stride_of_whole_lines(channels));
    return GROUP * (groups ? groups : 1);
}

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

/* A row by itself needs no sums over tokens. */
int dynnorm_backward_is_of_one_row(const dynnorm_descriptor *call) {
    return call->tokens == 1 && call->operation != DYNNORM_CENTERED_DYISRU;
}

/* A norm takes a row by itself at once, unless it is so long that its floats would leave the second-level cache. */
static size_t typed_room(const dynnorm_descriptor *call) {
    const size_t most = 16384, stride = stride_of_whole_lines(call->channels);
    const int is_whole = dynnorm_backward_is_of_one_row(call) && dynnorm_operations[call->operation].has_rstd;
    return is_whole && stride > LEAST_TYPED_ROOM && stride <= most ? stride : LEAST_TYPED_ROOM;
}

static size_t floats_of_backward(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const struct backward_arguments *arguments = &pass->arguments;
    size_t floats = floats_of_vector(&call->weight, call->channels);
    if (runs_by_pieces(pass)) {
        const int buffers =
            needs_buffer(&call->x, &arguments->x) + needs_buffer(&call->dy, &arguments->dy) + dx_needs_buffer(pass);
        floats += (size_t)buffers * rows_of_piece(call->channels) * stride_of_whole_lines(call->channels);
    } else {
        floats += TYPED_BUFFERS * typed_room(call);
        if (dynnorm_backward_is_of_one_row(call))
            floats += floats_of_vector(&call->dweight, call->channels) + floats_of_vector(&call->dbias, call->channels);
    }
    return floats;
}

size_t dynnorm_backward_buffer_bytes(const struct backward_pass *pass) {
    const size_t floats = floats_of_backward(pass);
    return floats <= FLOATS_AT_A_TIME ? 0 : floats * sizeof(float) + ALIGNMENT;
}

/* A block of rows, or the beginning of one. */
struct backward_rows {
    size_t first;
    size_t count;
    const struct partial_sums *sums;
};

static void run_by_pieces(const struct backward_pass *pass, const struct backward_rows *rows, float *memory) {
    const dynnorm_descriptor *call = pass->call;
    const struct kernels *kernels = pass->kernels;
    const size_t piece = rows_of_piece(call->channels), end = rows->first + rows->count;
    struct backward_arguments arguments = pass->arguments;
    struct partial_sums of_piece = *rows->sums;
    struct passed_tensor x = pass_tensor(&pass->arguments.x, call->x.type, call->channels, kernels);
    struct passed_tensor dy = pass_tensor(&pass->arguments.dy, call->dy.type, call->channels, kernels);
    struct passed_tensor dx = pass_tensor(&pass->arguments.dx, call->dx.type, call->channels, kernels);
    const struct passed_tensor dsum = pass_tensor(&pass->dsum, call->dsum.type, call->channels, kernels);
    arguments.weight = floats_of(&call->weight, call->channels, kernels, &memory);
    if (needs_buffer(&call->x, x.tensor))
        give_buffer(&x, piece, &memory);
    if (needs_buffer(&call->dy, dy.tensor))
        give_buffer(&dy, piece, &memory);
    if (dx_needs_buffer(pass)) {
        give_buffer(&dx, piece, &memory);
        arguments.streams = 0;
    }
    for (size_t row = rows->first, some; row < end; row += some) {
        some = end - row < piece ? end - row : piece;
        if (x.buffer)
            widen_rows(&x, row, some);
        if (dy.buffer)
            widen_rows(&dy, row, some);
        if (dx.buffer && call->accumulate_dx)
            widen_rows(&dx, row, some);
        arguments.x = seen_by_kernel(&x, row, some);
        arguments.dy = seen_by_kernel(&dy, row, some);
        arguments.dx = seen_by_kernel(&dx, row, some);
        arguments.mean = call->mean ? call->mean + row : NULL;
        of_piece.continues = row != rows->first;
        of_piece.is_unfinished = row + some != end;
        if (pass->arguments.streams) { /* the inputs come from memory, too */
            prefetch_rows(&x, row + some, piece, end);
            prefetch_rows(&dy, row + some, piece, end);
        }
        pass->kernel(&arguments, 0, some, &of_piece);
        for (size_t i = 0; dx.buffer && call->dsum.data && i < some; i++)
            add_row_to(dx.buffer + i * dx.stride, &dsum, row + i);
        if (dx.buffer)
            narrow_rows(&dx, row, some, pass->arguments.streams);
    }
}

/* Of rows that a kernel reads and writes by itself. */
static const struct conversion *conversion_if_typed(const dynnorm_tensor *tensor, const struct kernels *kernels) {
    return tensor->type == DYNNORM_F32 ? NULL : &kernels->conversions[tensor->type];
}

static void run_typed(const struct backward_pass *pass, const struct backward_rows *rows, float *memory) {
    const dynnorm_descriptor *call = pass->call;
    struct backward_arguments arguments = pass->arguments;
    struct typed_tensors typed = {
        .x = conversion_if_typed(&call->x, pass->kernels),
        .dy = conversion_if_typed(&call->dy, pass->kernels),
        .dx = &pass->kernels->conversions[call->dx.type],
        .of_dsum = &pass->kernels->conversions[call->dsum.type],
        .dsum = pass->dsum,
        .dx_is_read = call->accumulate_dx || call->dx.data == call->x.data || call->dx.data == call->dy.data ||
                      call->dx.data == call->dsum.data,
        .room = typed_room(call),
    };
    const dynnorm_vector *const vectors[2] = {&call->dweight, &call->dbias};
    struct token_gradient of_row[2]; /* as floats */
    struct partial_sums sums = *rows->sums;
    arguments.weight = floats_of(&call->weight, call->channels, pass->kernels, &memory);
    for (int i = 0; sums.gradients && i < 2; i++) {
        of_row[i] = sums.gradients[i];
        if (!has_other_type(vectors[i]->type, of_row[i].values))
            continue;
        of_row[i].values = memory;
        if (of_row[i].accumulate)
            pass->kernels->conversions[vectors[i]->type].widen(memory, vectors[i]->data, call->channels);
        memory += stride_of_whole_lines(call->channels);
    }
    if (sums.gradients)
        sums.gradients = of_row;
    typed.buffers = memory;
    if (typed.x || typed.dy || has_other_type(call->dx.type, call->dx.data) || call->dsum.data)
        arguments.typed = &typed;
    pass->kernel(&arguments, rows->first, rows->count, &sums);
    for (int i = 0; sums.gradients && i < 2; i++)
        if (has_other_type(vectors[i]->type, of_row[i].values))
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
        run_backward(pass, &of_block, aligned(buffers));
    else
        run_backward_on_stack(pass, &of_block);
}
