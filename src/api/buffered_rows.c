/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/buffered_rows.h"
#include "rows/blocks.h"
#include "rows/floats.h"

#include <float.h>
#include <stdint.h>

/* As many rows are in the buffers at a time as have so many floats together, but at least one, or, in the backward
   pass, a group. */
enum { FLOATS_AT_A_TIME = 8192 };

enum { ALIGNMENT = 64 };

static float *aligned(void *memory) {
    return (float *)((char *)memory + (-(uintptr_t)memory & (ALIGNMENT - 1)));
}

/* From one row of a buffer to the next: every row begins a cache line. */
static size_t stride_in_buffer(size_t channels) {
    return (channels + FLOATS_OF_LINE - 1) / FLOATS_OF_LINE * FLOATS_OF_LINE;
}

static unsigned char *address_of_row(const struct tensor *tensor, size_t row) {
    size_t elements = tensor->axes == 1 ? row * tensor->strides[0] : offset_on_axes(tensor, row);
    return (unsigned char *)tensor->data + elements * tensor->element_bytes;
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
    return (struct passed_tensor){tensor, kernels->conversions[known], NULL, stride_in_buffer(channels), channels};
}

/* Takes rows of a buffer from the memory that is left. */
static void give_buffer(struct passed_tensor *passed, size_t rows, float **memory) {
    passed->buffer = *memory;
    *memory += rows * passed->stride;
}

/* Rows [first, first + rows) as the kernels are to see them, counted from 0. They lie on one axis. */
static struct tensor seen_by_kernel(const struct passed_tensor *passed, size_t first, size_t rows) {
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

/* Whether rows lie in memory as they do in the buffer, one after the other. */
static int is_contiguous(const struct passed_tensor *passed) {
    return passed->stride == passed->channels && passed->tensor->axes == 1 &&
           passed->tensor->strides[0] == passed->channels;
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
static void prefetch_rows(const struct passed_tensor *passed, size_t first, size_t rows, size_t end) {
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
    return has_other_type(vector->type, vector->data) ? stride_in_buffer(channels) : 0;
}

/* A vector as floats. */
static const float *floats_of(const dynnorm_vector *vector, size_t channels, const struct kernels *kernels,
                              float **memory) {
    if (!has_other_type(vector->type, vector->data))
        return vector->data;
    float *floats = *memory;
    kernels->conversions[vector->type].widen(floats, vector->data, channels);
    *memory += stride_in_buffer(channels);
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
    halves_kernel *halves_kernel; /* for ordinary rows, or NULL */
    struct passed_tensor x;
    struct passed_tensor residual;
    struct passed_tensor sum;
    struct passed_tensor y;
    struct passed_tensor seen; /* what the kernel reads: x, or the sum */
    struct tensor summed;      /* the sum as the halves_kernel reads it, from the row on that is first_summed */
    size_t first_summed;
    size_t end_summed;
    size_t rows_at_a_time;
    float *summed_buffer;    /* NULL: summed is where the caller wants it */
    int has_sum_of_one_type; /* which is made by one function */
    int sum_is_direct;       /* it is computed where the caller wants it, and read from there */
    const float *residual_bias;
    const float *weight; /* with round_before_weight these two are not left to the kernel */
    const float *bias;
    const struct conversion *rounded_sum; /* the type that something is rounded to, or NULL */
    const struct conversion *rounded_y;
};

/* Rounds floats to a type. */
static void round_floats(float *floats, size_t count, const struct conversion *to) {
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

/* All of a row at once. */
static void sum_row(const struct forward_work *work, size_t row, void *to) {
    const struct tensor *sum = work->sum.tensor;
    const struct sum_of_elements elements = {
        .to = to,
        .past_caches = work->pass->streams_sum ? address_of_row(sum, row) : NULL,
        .a = address_of_row(work->x.tensor, row),
        .b = address_of_row(work->residual.tensor, row),
        .bias = work->residual_bias,
        .count = work->x.channels,
    };
    work->x.conversion.sum(&elements);
}

static void read_sums(const struct forward_work *work, size_t first, size_t rows) {
    enum { AT_A_TIME = 4 * BLOCK };
    const size_t channels = work->x.channels;
    for (size_t row = first; row < first + rows; row++) {
        float *floats = work->sum_is_direct ? (float *)address_of_row(work->sum.tensor, row)
                                            : work->seen.buffer + (row - first) * work->seen.stride;
        if (work->has_sum_of_one_type && work->x.tensor->element_bytes == sizeof(float)) {
            sum_row(work, row, floats);
            continue;
        }
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

/* Their kernels take any weight, any bias and any alignment. */
static int is_elementwise(const dynnorm_descriptor *call) {
    return dynnorm_operations[call->operation].has_scale;
}

/* Whether a sum of one type can be made by one function: past the caches, it stores whole vectors. */
static int makes_sum_of_one_type(const struct forward_pass *pass) {
    return pass->call->residual.data && has_sum_of_one_type(pass->call) &&
           (!pass->streams_sum || rows_are_aligned(&pass->sum, STREAM_ALIGNMENT));
}

/* Rows may be stored past the caches if they are aligned. */
static int can_run_halves_kernel(const struct forward_pass *pass) {
    const struct tensor *y = &pass->arguments.y;
    return pass->halves_kernel && y->data &&
           (!pass->arguments.streams || is_elementwise(pass->call) || rows_are_aligned(y, STREAM_ALIGNMENT)) &&
           (!pass->call->residual.data || makes_sum_of_one_type(pass));
}

/* Whether the halves_kernel reads sums from a buffer. */
static int sums_need_buffer(const struct forward_pass *pass) {
    return pass->call->residual.data && can_run_halves_kernel(pass) && (!pass->sum.data || pass->streams_sum);
}

/* Sums some rows that are to stay in the nearest caches, and tells where the sums are. */
static void sum_some_rows(struct forward_work *work, size_t row, size_t end) {
    const size_t rows = end - row < work->rows_at_a_time ? end - row : work->rows_at_a_time;
    work->end_summed = row + rows;
    if (work->summed_buffer) {
        work->first_summed = row;
        work->summed = (struct tensor){
            work->summed_buffer, work->x.tensor->element_bytes, 1, {rows}, {stride_in_buffer(work->x.channels)}};
    } else {
        work->summed = *work->sum.tensor;
    }
    for (; row < work->end_summed; row++)
        sum_row(work, row, address_of_row(&work->summed, row - work->first_summed));
}

static struct tensor rows_of_halves(const struct tensor *tensor, size_t row, size_t rows) {
    struct tensor seen = {NULL, tensor->element_bytes, 1, {rows}, {tensor->strides[0]}};
    seen.data = (float *)address_of_row(tensor, row);
    return seen;
}

/* As many rows from *row on as are ordinary ones, and lie on one axis. Returns whether the next one is not ordinary. */
static int run_halves_kernel(struct forward_work *work, const struct forward_arguments *vectors, size_t *row,
                             size_t end) {
    const dynnorm_descriptor *call = work->pass->call;
    struct forward_arguments arguments = *vectors;
    const struct tensor *x = work->x.tensor;
    if (call->residual.data) {
        if (*row >= work->end_summed)
            sum_some_rows(work, *row, end);
        x = &work->summed;
        end = work->end_summed;
    }
    const size_t row_of_x = *row - work->first_summed;
    const size_t rows = rows_on_one_axis(work->y.tensor, *row, rows_on_one_axis(x, row_of_x, end - *row));
    arguments.streams = work->pass->arguments.streams;
    arguments.x = rows_of_halves(x, row_of_x, rows);
    arguments.y = rows_of_halves(work->y.tensor, *row, rows);
    arguments.mean = call->mean ? call->mean + *row : NULL;
    arguments.rstd = call->rstd ? call->rstd + *row : NULL;
    const size_t done = work->halves_kernel(&arguments, 0, rows);
    *row += done;
    return done < rows;
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
    buffers.vectors = floats_of_parameters(call) + floats_of_vector(&call->residual_bias, call->channels);
    if (can_run_halves_kernel(pass))
        buffers.vectors += 2 * stride_in_buffer(call->channels);
    else
        buffers.vectors +=
            floats_of_vector(&call->bias, call->channels) + (rounds_before_weight(call) && call->weight.data
                                                                 ? stride_in_buffer(call->channels)
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
    *memory += stride_in_buffer(channels);
    work->kernels->conversions[vector->type].widen(floats, vector->data, channels);
    for (size_t i = 0; offset != 0 && i < channels; i++)
        floats[i] += offset;
    return floats;
}

/* The same, or what counts as a vector that is absent. */
static const float *vector_or(float absent, const struct forward_work *work, const dynnorm_vector *vector, float offset,
                              float **memory) {
    float *floats = copy_vector(work, vector, offset, memory);
    if (floats)
        return floats;
    floats = *memory;
    *memory += stride_in_buffer(work->pass->call->channels);
    for (size_t i = 0; i < work->pass->call->channels; i++)
        floats[i] = absent;
    return floats;
}

static int are_finite(const struct forward_work *work, const float *vector) {
    return work->kernels->greatest(vector, work->pass->call->channels) <= FLT_MAX;
}

/* The weight and bias of a halves_kernel, which then serve the other rows, too. See reader.h for absent ones. */
static void begin_halves_kernel(struct forward_work *work, struct forward_arguments *arguments, float **memory) {
    const dynnorm_descriptor *call = work->pass->call;
    arguments->weight = vector_or(1, work, &call->weight, call->weight_offset, memory);
    arguments->weight_offset = 0;
    arguments->bias = vector_or(-0.0f, work, &call->bias, 0, memory);
    if (is_elementwise(call) || (are_finite(work, arguments->weight) && are_finite(work, arguments->bias)))
        work->halves_kernel = work->pass->halves_kernel;
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
    work->halves_kernel = NULL;
    work->first_summed = work->end_summed = 0;
    work->has_sum_of_one_type = makes_sum_of_one_type(pass);
    if (can_run_halves_kernel(pass)) {
        begin_halves_kernel(work, arguments, &memory);
    } else if (rounds_before_weight(call)) {
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
    work->rows_at_a_time = rows_of_buffer;
    work->summed_buffer = sums_need_buffer(pass) ? memory : NULL;
    if (buffers.y) {
        arguments->streams = 0;
        if (buffers.x) /* y takes the place of what is read */
            work->y.buffer = work->seen.buffer;
        else
            give_buffer(&work->y, rows_of_buffer, &memory);
    }
}

static void run_forward(const struct forward_pass *pass, size_t first, size_t rows, size_t rows_of_buffer,
                        float *memory) {
    const dynnorm_descriptor *call = pass->call;
    struct forward_arguments arguments = pass->arguments;
    struct forward_work work;
    work.pass = pass;
    begin_forward_work(&work, &arguments, rows_of_buffer, memory);
    for (size_t row = first, end = first + rows, some; row < end; row += some) {
        some = end - row < rows_of_buffer ? end - row : rows_of_buffer;
        if (work.halves_kernel) {
            some = 0;
            if (!run_halves_kernel(&work, &arguments, &row, end))
                continue;
            some = end - row < GROUP ? end - row : GROUP;
            some = some < rows_of_buffer ? some : rows_of_buffer;
        }
        some = rows_at_once(&work.seen, row, some);
        some = rows_at_once(&work.y, row, some);
        if (work.halves_kernel && call->residual.data) {
            some = work.end_summed - row < some ? work.end_summed - row : some;
            work.seen.tensor = &work.summed;
            widen_rows(&work.seen, row - work.first_summed, some);
        } else if (call->residual.data) {
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

/* Floats for each row of the buffer, how many rows it has, and the floats of the vectors besides. */
struct forward_room {
    size_t stride;
    size_t rows;
    size_t vectors;
    int is_small; /* it has its place on the stack */
};

static struct forward_room room_of_forward(const struct forward_pass *pass) {
    const size_t vectors = buffers_of_forward(pass).vectors,
                 stride = stride_in_buffer(pass->call->channels) * (sums_need_buffer(pass) ? 2 : 1);
    if (vectors + stride <= FLOATS_AT_A_TIME)
        return (struct forward_room){stride, (FLOATS_AT_A_TIME - vectors) / stride, vectors, 1};
    return (struct forward_room){stride, stride < FLOATS_AT_A_TIME ? FLOATS_AT_A_TIME / stride : 1, vectors, 0};
}

size_t dynnorm_forward_buffer_bytes(const struct forward_pass *pass) {
    const struct forward_room room = room_of_forward(pass);
    return room.is_small ? 0 : (room.vectors + room.rows * room.stride) * sizeof(float) + ALIGNMENT;
}

static void run_forward_on_stack(const struct forward_pass *pass, size_t first, size_t rows, size_t rows_of_buffer) {
    _Alignas(ALIGNMENT) float small[FLOATS_AT_A_TIME];
    run_forward(pass, first, rows, rows_of_buffer, small);
}

void dynnorm_buffered_forward(const struct forward_pass *pass, void *buffers, size_t first, size_t rows) {
    const struct forward_room room = room_of_forward(pass);
    if (room.is_small)
        run_forward_on_stack(pass, first, rows, room.rows);
    else
        run_forward(pass, first, rows, room.rows, aligned(buffers));
}

/* ---- Backward ---- */

int dynnorm_backward_is_buffered(const dynnorm_descriptor *call) {
    return has_other_type(call->x.type, call->x.data) || has_other_type(call->dy.type, call->dy.data) ||
           has_other_type(call->dx.type, call->dx.data) || has_other_type(call->weight.type, call->weight.data) ||
           has_other_type(call->dweight.type, call->dweight.data) ||
           has_other_type(call->dbias.type, call->dbias.data) || (call->dsum.data && call->dx.data);
}

/* Whole groups, so that their sums are the same as ever. */
static size_t rows_of_piece(size_t channels) {
    const size_t groups = FLOATS_AT_A_TIME / (GROUP * stride_in_buffer(channels));
    return GROUP * (groups ? groups : 1);
}

/* A piece of rows has to be in one place, even if the tensor lies on several axes. */
static int needs_buffer(const dynnorm_tensor *described, const struct tensor *tensor) {
    return described->data && (described->type != DYNNORM_F32 || tensor->axes > 1);
}

static int dx_needs_buffer(const struct backward_pass *pass) {
    return needs_buffer(&pass->call->dx, &pass->arguments.dx) || (pass->call->dx.data && pass->call->dsum.data);
}

size_t dynnorm_backward_buffer_bytes(const struct backward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    const struct backward_arguments *arguments = &pass->arguments;
    const int buffers =
        needs_buffer(&call->x, &arguments->x) + needs_buffer(&call->dy, &arguments->dy) + dx_needs_buffer(pass);
    const size_t rows = (size_t)buffers * rows_of_piece(call->channels);
    const size_t floats = rows * stride_in_buffer(call->channels) + floats_of_vector(&call->weight, call->channels);
    return floats * sizeof(float) + ALIGNMENT;
}

void dynnorm_buffered_backward(const struct backward_pass *pass, void *buffers, size_t first, size_t rows,
                               const struct partial_sums *sums) {
    const dynnorm_descriptor *call = pass->call;
    const struct kernels *kernels = pass->kernels;
    const size_t piece = rows_of_piece(call->channels), end = first + rows;
    struct backward_arguments arguments = pass->arguments;
    struct partial_sums of_piece = *sums;
    float *memory = aligned(buffers);
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
    arguments.fetches_ahead = 0; /* buffers are in the nearest caches */
    for (size_t row = first, some; row < end; row += some) {
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
        arguments.rstd = call->rstd ? call->rstd + row : NULL;
        arguments.split_row = row;
        of_piece.continues = row != first;
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
    if (pass->arguments.streams)
        kernels->end_streaming();
}
