/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/residual.h"
#include "api/buffers.h"
#include "dispatch/caches.h"
#include "dispatch/cpu.h"
#include "operations.h"
#include "rows/blocks.h"
#include "rows/tensor.h"

#include <string.h>

int dynnorm_makes_sum_of_one_type(const struct forward_pass *pass) {
    return pass->call->residual.data && dynnorm_has_sum_of_one_type(pass->call) &&
           (!pass->streams_sum || rows_are_aligned(&pass->sum, STREAM_ALIGNMENT));
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
    const int are_one = !of->bias && dynnorm_has_no_gaps(of->x, channels) &&
                        dynnorm_has_no_gaps(of->residual, channels) && dynnorm_has_no_gaps(of->to, channels) &&
                        (!of->past_caches || dynnorm_has_no_gaps(of->past_caches, channels));
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

void dynnorm_sum_rows(const struct forward_pass *pass, size_t first, size_t rows, const struct tensor *to,
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

int dynnorm_sum_few_rows(const struct forward_pass *pass, const void *x, const struct prepared_rows *rows) {
    const dynnorm_descriptor *call = &pass->completed;
    struct tensor given = pass->arguments.x;
    if (!pass->sum.data || call->residual_bias.data || !dynnorm_has_sum_of_one_type(call) || given.axes != 1 ||
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

/* Of floats there are four tensors at a time then, which AVX-512 may ask for faster than they come: on a Zen 5 it took
   1 to 1.45 times as long with rows of 1024 to 8192 channels, and AVX2 0.7 to 0.9 times. On a Zen 4 such rows took
   0.68 to 0.84 times as long with AVX-512 where the sum was in the place of x or the residual, and elsewhere 0.84 to
   0.97 times; on an Emerald Rapids AVX-512 and AVX2 took 0.82 to 0.86 times as long. */
static int kernel_should_sum_floats(const struct forward_pass *pass) {
    enum { LANES_OF_LINE = 16, MOST_CHANNELS = 1000 };
    return pass->kernels->lanes < LANES_OF_LINE || pass->call->channels <= MOST_CHANNELS || !dynnorm_is_zen_5();
}

/* The ring of longer rows would not stay in the second-level cache; rows of up to so many channels were measured. */
enum { MOST_CHANNELS_OF_RING = 8192 };

/* Whether rows are so long that the kernel makes their sums if they come from memory. */
static int are_rows_for_kernel(const struct forward_pass *pass) {
    const dynnorm_descriptor *call = pass->call;
    return dynnorm_operations[call->operation].has_rstd && call->channels > BLOCK &&
           call->channels <= MOST_CHANNELS_OF_RING && (call->x.type != DYNNORM_F32 || kernel_should_sum_floats(pass));
}

/* From memory that takes less time: otherwise nothing is read while y is computed. Plain C has no loops for it, and
   takes longer for the arithmetic: it is told by its lack of kernels for 16 bits. */
int dynnorm_kernel_makes_sums(const struct forward_pass *pass, size_t rows, int of_halves) {
    const dynnorm_descriptor *call = pass->call;
    const size_t least_rows = 2 * ROWS_OF_RING;
    const int is_of_floats = call->x.type == DYNNORM_F32 && call->y.type == DYNNORM_F32;
    return rows >= least_rows && pass->kernels->halves[call->operation][DYNNORM_PORTABLE] && pass->arguments.streams &&
           (of_halves || (is_of_floats && !dynnorm_rounds_before_weight(call))) &&
           dynnorm_makes_sum_of_one_type(pass) && are_rows_for_kernel(pass) && !pass->arguments.split &&
           pass->arguments.y.axes == 1 && (dynnorm_sums_need_buffer(pass) || pass->sum.axes == 1);
}

/* Where the kernel does not make the sums, they are made first, and read from the caches after that. A Zen 5 takes less
   time if they are only stored there, as usual, and not past the caches as well. As measured with LayerNorm and RMSNorm
   in float: with AVX-512 0.83 to 1.0 times over rows of 64 to 256 and of 1024 to 8192 channels, and 1.02 over rows of
   16384; with AVX2 0.86 to 0.93 times over rows of 128 and 256. Other CPUs, and other types, are as they were. */
int dynnorm_sum_goes_past_caches(const struct forward_pass *pass, size_t rows) {
    enum { MOST_CHANNELS_MEASURED = 8192 };
    const dynnorm_descriptor *call = pass->call;
    const int is_of_floats = call->x.type == DYNNORM_F32 && call->y.type == DYNNORM_F32;
    const int is_made_first = dynnorm_operations[call->operation].has_rstd && !are_rows_for_kernel(pass);
    if (is_made_first && is_of_floats && call->channels <= MOST_CHANNELS_MEASURED && dynnorm_is_zen_5())
        return 0;
    return dynnorm_streams_sum(call, &pass->sum, rows);
}

struct summed_rows dynnorm_summed_rows(const struct forward_pass *pass, size_t first, const float *bias) {
    struct summed_rows summed = {.a = pass->arguments.x,
                                 .b = pass->residual,
                                 .first = first,
                                 .is_ring = dynnorm_sums_need_buffer(pass),
                                 .bias = bias,
                                 .sum = pass->kernels->conversions[pass->call->x.type].sum};
    if (pass->streams_sum)
        summed.past_caches = pass->sum;
    return summed;
}
