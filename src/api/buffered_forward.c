/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/buffered_forward.h"
#include "api/buffers.h"
#include "api/halves.h"
#include "api/residual.h"
#include "dispatch/cpu.h"
#include "operations.h"
#include "rows/blocks.h"
#include "rows/floats.h"

#include <stdint.h>

static size_t floats_of_parameters(const dynnorm_descriptor *call) {
    const dynnorm_vector parameters = dynnorm_parameters_of_channels(call);
    return dynnorm_floats_of_vector(&parameters, call->channels);
}

int dynnorm_forward_is_buffered(const dynnorm_descriptor *call) {
    return floats_of_parameters(call) || dynnorm_has_other_type(call->x.type, call->x.data) ||
           dynnorm_has_other_type(call->y.type, call->y.data) ||
           dynnorm_has_other_type(call->weight.type, call->weight.data) ||
           dynnorm_has_other_type(call->bias.type, call->bias.data) || call->residual.data ||
           dynnorm_rounds_before_weight(call);
}

/* What is needed besides the arguments of a forward pass, and which way it goes. */
struct forward_room {
    size_t floats;  /* of all buffers */
    size_t rows;    /* that they have at a time */
    int of_halves;  /* by the halves_kernel */
    int makes_sums; /* see dynnorm_kernel_makes_sums */
};

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

static size_t floats_of_weight_and_bias(const dynnorm_descriptor *call) {
    return dynnorm_floats_of_vector(&call->bias, call->channels) +
           (dynnorm_rounds_before_weight(call) && call->weight.data
                ? stride_of_whole_lines(call->channels)
                : dynnorm_floats_of_vector(&call->weight, call->channels));
}

static struct forward_buffers buffers_of_forward(const struct forward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    struct forward_buffers buffers;
    buffers.vectors = floats_of_parameters(call) + dynnorm_floats_of_vector(&call->residual_bias, call->channels) +
                      floats_of_weight_and_bias(call);
    buffers.x = call->residual.data ? !sum_is_direct(pass) : dynnorm_has_other_type(call->x.type, call->x.data);
    buffers.y =
        dynnorm_has_other_type(call->y.type, call->y.data) || (call->y.data && dynnorm_rounds_before_weight(call));
    return buffers;
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
    const struct conversion *rounded_sum; /* the type that the sum is rounded to, or NULL */
    int y_is_of_halves;
};

/* The weight as floats with its offset, for which it may need a copy. NULL if there is none. */
static const float *weight_of(const struct forward_pass *pass, float **memory) {
    const dynnorm_vector *weight = &pass->call->weight;
    const size_t channels = pass->call->channels;
    const float offset = pass->call->weight_offset;
    float *copy = *memory;
    if (!weight->data || offset == 0)
        return dynnorm_floats_of(weight, channels, pass->kernels, memory);
    *memory += stride_of_whole_lines(channels);
    pass->kernels->conversions[weight->type].widen(copy, weight->data, channels);
    for (size_t i = 0; i < channels; i++)
        copy[i] += offset;
    return copy;
}

static void begin_forward_work(struct forward_work *work, struct forward_arguments *arguments, size_t rows_of_buffer,
                               float *memory) {
    const struct forward_pass *pass = work->pass;
    const dynnorm_descriptor *call = pass->call;
    const struct kernels *kernels = work->kernels = pass->kernels;
    const struct forward_buffers buffers = buffers_of_forward(pass);
    const size_t channels = call->channels;
    const dynnorm_vector parameters = dynnorm_parameters_of_channels(call);
    const dynnorm_type sum_type = call->sum.data ? call->sum.type : call->x.type;
    work->x = dynnorm_pass_tensor(&pass->arguments.x, call->x.type, channels, kernels);
    work->residual = dynnorm_pass_tensor(&pass->residual, call->residual.type, channels, kernels);
    work->sum = dynnorm_pass_tensor(&pass->sum, call->sum.type, channels, kernels);
    work->y = dynnorm_pass_tensor(&pass->arguments.y, call->y.type, channels, kernels);
    work->rounded_sum =
        sum_type == DYNNORM_F32 || call->normalize_unrounded_sum ? NULL : &kernels->conversions[sum_type];
    work->y_is_of_halves = call->y.type != DYNNORM_F32 && call->y.type != DYNNORM_I8;
    arguments->parameters = dynnorm_floats_of(&parameters, channels, kernels, &memory);
    work->residual_bias = dynnorm_floats_of(&call->residual_bias, channels, kernels, &memory);
    work->weight = work->bias = NULL;
    work->sum_is_of_floats = dynnorm_makes_sum_of_one_type(pass) && call->x.type == DYNNORM_F32;
    if (dynnorm_rounds_before_weight(call)) {
        work->weight = weight_of(pass, &memory);
        work->bias = dynnorm_floats_of(&call->bias, channels, kernels, &memory);
        arguments->weight = arguments->bias = NULL;
    } else {
        arguments->weight = dynnorm_floats_of(&call->weight, channels, kernels, &memory);
        arguments->bias = dynnorm_floats_of(&call->bias, channels, kernels, &memory);
    }
    work->sum_is_direct = sum_is_direct(pass);
    work->seen = work->sum_is_direct ? work->sum : work->x;
    if (buffers.x)
        dynnorm_give_buffer(&work->seen, rows_of_buffer, &memory);
    if (buffers.y) {
        arguments->streams = 0;
        if (buffers.x) /* y takes the place of what is read */
            work->y.buffer = work->seen.buffer;
        else
            dynnorm_give_buffer(&work->y, rows_of_buffer, &memory);
    }
}

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

enum { SUMMED_AT_A_TIME = 4 * BLOCK };

/* Whether x, residual and sum are of one type of 16 bits, to which the sum is rounded before anything else. */
static int sum_is_of_halves(const struct forward_work *work) {
    const dynnorm_descriptor *call = work->pass->call;
    return work->rounded_sum && call->x.type == call->residual.type && !work->pass->streams_sum &&
           (call->sum.data ? call->sum.type : call->x.type) == call->x.type;
}

/* Some channels of x + residual, which stay in the nearest cache. */
static void sum_channels(const struct forward_work *work, size_t row, struct block block, float *floats) {
    const struct conversion *of_floats = &work->kernels->conversions[DYNNORM_F32];
    const struct tensor *x = work->x.tensor, *residual = work->residual.tensor, *sum = work->sum.tensor;
    const unsigned char *x_terms = address_of_row(x, row) + block.first * x->element_bytes;
    const unsigned char *residual_terms = address_of_row(residual, row) + block.first * residual->element_bytes;
    if (sum_is_of_halves(work)) {
        float elements[SUMMED_AT_A_TIME / 2];
        void *to = elements;
        if (sum->data)
            to = address_of_row(sum, row) + block.first * sum->element_bytes;
        const float *bias = work->residual_bias ? work->residual_bias + block.first : NULL;
        work->x.conversion.sum(&(const struct sum_of_elements){
            .to = to, .a = x_terms, .b = residual_terms, .bias = bias, .count = block.count});
        work->x.conversion.widen(floats, to, block.count);
        return;
    }
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

static void read_sums(const struct forward_work *work, size_t first, size_t rows) {
    const size_t channels = work->x.channels;
    const struct tensor sums = dynnorm_seen_by_kernel(&work->seen, first, rows);
    if (work->sum_is_of_floats) {
        dynnorm_sum_rows(work->pass, first, rows, &sums, 0, work->residual_bias);
        return;
    }
    for (size_t row = first; row < first + rows; row++) {
        float *floats = (float *)address_of_row(&sums, row - first);
        for (size_t i = 0; i < channels; i += SUMMED_AT_A_TIME) {
            const struct block block = block_of(SUMMED_AT_A_TIME, i, channels);
            sum_channels(work, row, block, floats + i);
        }
    }
}

/* As integers of 8 bits. */
static void quantize_row(const struct forward_work *work, size_t row, const float *floats) {
    const dynnorm_descriptor *call = work->pass->call;
    float *const row_scale = call->y_scales ? call->y_scales + row : NULL;
    work->kernels->quantize(address_of_row(work->y.tensor, row), floats, work->y.channels, call->y_scale, row_scale);
}

/* With round_before_weight kernels of floats, and those of elementwise operations, know of no weight and no bias. */
static void weigh(const struct conversion *conversion, void *elements, const float *weight, const float *bias,
                  size_t channels) {
    if (weight)
        conversion->weigh(elements, weight, NULL, channels);
    if (bias)
        conversion->weigh(elements, NULL, bias, channels);
}

/* What the kernel has computed. */
static void write_row_of_pass(const struct forward_work *work, size_t row, float *floats) {
    const dynnorm_descriptor *call = work->pass->call;
    const int is_weighed = work->weight || work->bias;
    if (!work->y_is_of_halves)
        weigh(&work->kernels->conversions[DYNNORM_F32], floats, work->weight, work->bias, work->y.channels);
    if (call->y.type == DYNNORM_I8)
        quantize_row(work, row, floats);
    else
        dynnorm_narrow_row(&work->y, row, floats, work->pass->arguments.streams && !is_weighed);
    if (work->y_is_of_halves)
        weigh(&work->y.conversion, address_of_row(work->y.tensor, row), work->weight, work->bias, work->y.channels);
}

RARE void run_along_with_sums(const struct forward_work *work, struct forward_arguments *arguments, size_t first,
                              size_t rows) {
    const struct forward_pass *pass = work->pass;
    const struct tensor ring = {work->seen.buffer, sizeof(float), 2, {ROWS_OF_RING, SIZE_MAX}, {work->seen.stride, 0}};
    const struct summed_rows summed = dynnorm_summed_rows(pass, first, work->residual_bias);
    arguments->x = work->seen.buffer ? ring : dynnorm_seen_by_kernel(&work->seen, first, rows);
    arguments->y = dynnorm_seen_by_kernel(&work->y, first, rows);
    arguments->mean = pass->call->mean ? pass->call->mean + first : NULL;
    arguments->rstd = pass->call->rstd ? pass->call->rstd + first : NULL;
    arguments->summed = &summed;
    pass->kernel(arguments, 0, rows);
}

/* The same, or in a buffer. */
static size_t rows_at_once(const struct passed_tensor *passed, size_t first, size_t most) {
    return passed->buffer || !passed->tensor->data ? most : dynnorm_rows_on_one_axis(passed->tensor, first, most);
}

/* Whether the kernel itself has rows of x fetched that come from memory. Those of elementwise operations can do so
   where rows are not short: see forward/elementwise_rows.h. */
static int kernel_fetches(const struct forward_work *work) {
    const dynnorm_descriptor *call = work->pass->call;
    return !work->seen.buffer && dynnorm_operations[call->operation].has_scale && call->channels >= BLOCK;
}

/* Of what the kernel has computed. As many later rows are fetched meanwhile: all of them at once would be more than the
   CPU can wait for without being held up. */
static void write_rows_of_pass(const struct forward_work *work, size_t first, size_t rows, size_t end) {
    const struct passed_tensor *y = &work->y;
    for (size_t row = first; row < first + rows; row++) {
        write_row_of_pass(work, row, y->buffer + (row - first) * y->stride);
        if (row + rows < end)
            dynnorm_prefetch_row(&work->x, row + rows);
    }
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
    const int x_is_far = pass->arguments.rows_are_far && !call->residual.data;
    const int fetches = x_is_far && !kernel_fetches(&work);
    const int is_narrowed = !work.weight && !work.bias && call->y.type != DYNNORM_I8;
    for (size_t row = first, end = first + rows, some; row < end; row += some) {
        some = end - row < room->rows ? end - row : room->rows;
        some = rows_at_once(&work.seen, row, some);
        some = rows_at_once(&work.y, row, some);
        if (call->residual.data) {
            read_sums(&work, row, some);
        } else if (work.seen.buffer) {
            dynnorm_widen_rows(&work.seen, row, some);
        }
        if (fetches && !work.y.buffer)
            dynnorm_prefetch_rows(&work.x, row + some, some, end);
        arguments.x = dynnorm_seen_by_kernel(&work.seen, row, some);
        arguments.y = dynnorm_seen_by_kernel(&work.y, row, some);
        arguments.rows_behind =
            x_is_far && !fetches ? dynnorm_rows_on_one_axis(work.x.tensor, row, end - row) - some : 0;
        arguments.mean = call->mean ? call->mean + row : NULL;
        arguments.rstd = call->rstd ? call->rstd + row : NULL;
        arguments.split_row = row;
        if (arguments.y.data || arguments.mean || arguments.rstd || arguments.split)
            pass->kernel(&arguments, 0, some);
        if (work.y.buffer && (fetches || !is_narrowed))
            write_rows_of_pass(&work, row, some, fetches ? end : 0);
        else if (work.y.buffer)
            dynnorm_narrow_rows(&work.y, row, some, pass->arguments.streams);
    }
    if (pass->arguments.streams || pass->streams_sum)
        pass->kernels->end_streaming();
}

/* ---- By a kernel for 16 bits, with a residual, or a rounding that the kernel does not know of ---- */

/* Whether the rows need nothing before the kernel or after it. */
static int are_halves_alone(const dynnorm_descriptor *call) {
    return !call->residual.data && !dynnorm_halves_are_weighed_later(call);
}

/* The weight and the bias of a call whose kernel does not know of them; otherwise NULL. */
struct later_vectors {
    const float *weight;
    const float *bias;
};

static struct later_vectors later_vectors(const struct forward_pass *pass, float **memory) {
    const dynnorm_descriptor *call = pass->call;
    struct later_vectors later = {NULL, NULL};
    if (dynnorm_halves_are_weighed_later(call)) {
        later.weight = weight_of(pass, memory);
        later.bias = dynnorm_floats_of(&call->bias, call->channels, pass->kernels, memory);
    }
    return later;
}

/* Applied to rows of y that the kernel has written without them. */
static void apply_later(const struct forward_pass *pass, size_t first, size_t rows, const struct later_vectors *later) {
    const struct conversion *conversion = &pass->kernels->conversions[pass->call->y.type];
    for (size_t row = first; (later->weight || later->bias) && row < first + rows; row++)
        weigh(conversion, address_of_row(&pass->arguments.y, row), later->weight, later->bias, pass->call->channels);
}

/* Some rows at a time, which stay in the nearest caches. */
static void run_halves(const struct forward_pass *pass, size_t first, size_t rows, const struct forward_room *room,
                       float *memory) {
    const size_t channels = pass->call->channels;
    const int has_residual = pass->call->residual.data != NULL;
    const float *bias = dynnorm_floats_of(&pass->call->residual_bias, channels, pass->kernels, &memory);
    const struct later_vectors later = later_vectors(pass, &memory);
    const int has_buffer = dynnorm_sums_need_buffer(pass);
    struct tensor seen = has_residual ? pass->sum : pass->arguments.x;
    if (has_buffer)
        seen = (struct tensor){memory, HALF_BYTES, 1, {room->rows}, {stride_of_whole_lines(channels)}};
    if (room->makes_sums) {
        struct summed_rows summed = dynnorm_summed_rows(pass, first, bias);
        const size_t place = has_buffer ? 0 : first;
        summed.to = address_of_row(&seen, place);
        dynnorm_run_halves_kernel(pass, &seen, place, first, first + rows, &summed);
        rows = 0;
    }
    for (size_t row = first, end = first + rows, some; row < end; row += some) {
        const size_t place = has_buffer ? 0 : row;
        some = end - row < room->rows ? end - row : room->rows;
        if (has_residual)
            dynnorm_sum_rows(pass, row, some, &seen, place, bias);
        dynnorm_run_halves_kernel(pass, &seen, place, row, row + some, NULL);
        apply_later(pass, row, some, &later);
    }
    if (pass->streams_sum)
        pass->kernels->end_streaming();
}

/* ---- Either ---- */

/* Rows that are read, or whose sums are made, without a buffer have only to stay in the second-level cache, with those
   of x, the residual and y: all rows if they do, else some that take half of it. Of long rows so few do that LayerNorm
   takes them one by one. On a Zen 4 with AVX-512 it took 0.8 to 0.95 times as long with 32 rows of 2048 to 16384 floats
   at a time, though these leave that cache. Longer rows take as many as fill eight such caches: nobody measured it. */
static size_t rows_in_place(const dynnorm_descriptor *call, size_t rows) {
    enum { ROWS_OF_GROUPS = 32, MOST_CACHES = 8 };
    const size_t cache = dynnorm_cache_bytes(2);
    const size_t of_row = 4 * call->channels * dynnorm_element_bytes(call->x.type);
    const size_t some = cache / 2 / of_row, most = MOST_CACHES * cache / of_row;
    const int go_in_groups = call->x.type == DYNNORM_F32 && dynnorm_operations[call->operation].has_mean;
    const size_t least = !go_in_groups || most < 1 ? 1 : most < ROWS_OF_GROUPS ? most : ROWS_OF_GROUPS;
    return rows <= cache / of_row ? rows : some < least ? least : some;
}

/* For so many rows, or fewer. */
FOR_SIZE OUTLINED struct forward_room room_of_forward(const struct forward_pass *pass, size_t rows) {
    const size_t stride = stride_of_whole_lines(pass->call->channels);
    struct forward_room room = {.of_halves = dynnorm_can_run_halves_kernel(pass)};
    if (room.of_halves && are_halves_alone(pass->call))
        return room;
    const struct forward_buffers buffers = buffers_of_forward(pass);
    size_t vectors = buffers.vectors;
    if (room.of_halves) {
        vectors = dynnorm_floats_of_vector(&pass->call->residual_bias, pass->call->channels);
        if (dynnorm_halves_are_weighed_later(pass->call))
            vectors += floats_of_weight_and_bias(pass->call);
    }
    const int has_buffer = room.of_halves ? dynnorm_sums_need_buffer(pass) : buffers.x || buffers.y;
    const size_t of_row = !has_buffer ? 0 : room.of_halves ? stride / 2 : stride;
    room.makes_sums = dynnorm_kernel_makes_sums(pass, rows, room.of_halves);
    room.rows = stride < FLOATS_AT_A_TIME ? FLOATS_AT_A_TIME / stride : 1;
    if (room.makes_sums)
        room.rows = ROWS_OF_RING;
    else if (has_buffer && vectors + of_row <= FLOATS_AT_A_TIME) /* all of it fits on the stack */
        room.rows = (FLOATS_AT_A_TIME - vectors) / of_row;
    else if (!has_buffer && (room.of_halves || pass->call->residual.data))
        room.rows = rows_in_place(pass->call, rows);
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
        run_halves(pass, first, rows, room, memory);
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
    if (room.of_halves && are_halves_alone(pass->call))
        dynnorm_run_halves_kernel(pass, &pass->arguments.x, first, first, first + rows, NULL);
    else if (room.floats > FLOATS_AT_A_TIME)
        run_with_buffers(pass, first, rows, &room, dynnorm_aligned(buffers));
    else
        run_with_buffers_on_stack(pass, first, rows, &room);
}
