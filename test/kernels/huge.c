/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tensors of more than 2^31 and 2^32 elements, in far less memory than they seem to take: in sparse mappings of which
 * only a few rows are touched, and in mappings that show the same pages again and again.
 */
#define _GNU_SOURCE
#include "call.h"
#include "tap.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Address space for so many floats, all 0 until written; NULL if there is none to be had. */
static float *map_sparse(size_t count) {
    void *memory =
        mmap(NULL, count * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(float *memory, size_t count) {
    if (memory)
        munmap(memory, count * sizeof(float));
}

/* Gives back the memory of what was touched; it reads as 0 again. */
static void clear_sparse(float *memory, size_t count) {
    madvise(memory, count * sizeof(float), MADV_DONTNEED);
}

static void fill(float *values, size_t count, struct random *random) {
    for (size_t i = 0; i < count; i++)
        values[i] = random_normal(random);
}

/* ---- Few rows, far apart ----------------------------------------------------------------------------------------- */

static const char *const tensor_names[] = {"x", "y", "dy", "dx"};
enum { TENSORS = 4 };

/* Every tensor with a row stride that takes it beyond 2^32 elements: the bits of the same rows side by side. */
static void check_long_strides(const struct isa *table, const struct listed_kernel *kernel,
                               float *const sparse[TENSORS], size_t stride, size_t tokens) {
    enum { CHANNELS = 83 };
    dynnorm_descriptor expected = describe(kernel, tokens, CHANNELS), call = expected;
    struct memory expected_memory = allocate_buffers(&expected, kernel->direction, 0);
    struct memory memory = allocate_buffers(&call, kernel->direction, 0);
    for (int i = 0; i < TENSORS; i++) {
        const struct buffer *tensor = buffer_named(tensor_names[i]);
        if (uses(kernel->operation, kernel->direction, tensor)) {
            set_buffer_data(&call, tensor, sparse[i]);
            set_buffer_stride(&call, tensor, stride);
        }
    }
    fill_inputs(&expected, kernel->direction, 1);
    fill_inputs(&call, kernel->direction, 1);
    struct difference difference = {"a call failed"};
    int right = run_call(kernel->direction, &expected) == DYNNORM_OK &&
                run_call(kernel->direction, &call) == DYNNORM_OK &&
                !outputs_differ(&call, &expected, kernel->direction, &difference);
    tap_check(right, "%s %s, %zu rows of %d channels, a stride of %zu: %s", table->identifier, kernel->name, tokens,
              CHANNELS, stride, right ? "as side by side" : difference.text);
    free(memory.start);
    free(expected_memory.start);
}

/* ---- Many short rows --------------------------------------------------------------------------------------------- */

/* A range of rows across each of the elements 2^31 and 2^32, and the last rows: what the same rows give in a small
 * call. Of a backward pass only dx, since its sums would need all rows. */
static void check_many_rows(const struct isa *table, const struct listed_kernel *kernel, float *const sparse[TENSORS],
                            size_t tokens, size_t channels) {
    enum direction direction = kernel->direction;
    enum { CHECKED = 7 };
    dynnorm_descriptor call = describe(kernel, tokens, channels);
    dynnorm_descriptor small = describe(kernel, CHECKED, channels);
    struct memory memory = allocate_buffers(&small, direction, 0);
    fill_inputs(&small, direction, 1);
    small.dweight.data = small.dbias.data = small.dalpha = small.dbeta = NULL;
    float *mean = NULL, *rstd = NULL;
    if (direction == FORWARD_PASS) {
        mean = small.mean ? map_sparse(tokens) : NULL;
        rstd = small.rstd ? map_sparse(tokens) : NULL;
    } else {
        small.mean = small.rstd = NULL;
    }
    for (int i = 0; i < TENSORS; i++)
        if (uses(kernel->operation, direction, buffer_named(tensor_names[i])))
            set_buffer_data(&call, buffer_named(tensor_names[i]), sparse[i]);
    call.weight = small.weight;
    call.bias = small.bias;
    call.mean = mean;
    call.rstd = rstd;
    size_t block = 1;
    int right = run_call(direction, &small) == DYNNORM_OK;
    if (direction == BACKWARD_PASS)
        right = right && dynnorm_block_rows(&call, &block) == DYNNORM_OK;

    const size_t first_rows[] = {((size_t)1 << 31) / channels - 3, ((size_t)1 << 32) / channels - 3, tokens - CHECKED};
    struct difference difference = {"a call failed"};
    for (size_t i = 0; i < sizeof first_rows / sizeof *first_rows && right; i++) {
        size_t first = first_rows[i], begin = first / block * block;
        size_t end = (first + CHECKED + block - 1) / block * block;
        end = end < tokens ? end : tokens;
        for (int t = 0; t < TENSORS; t++)
            if (reads(kernel->operation, direction, buffer_named(tensor_names[t])))
                memcpy(sparse[t] + first * channels, buffer_data(&small, buffer_named(tensor_names[t])),
                       CHECKED * channels * sizeof(float));
        right = direction == FORWARD_PASS ? dynnorm_forward_rows(&call, begin, end - begin) == DYNNORM_OK
                                          : dynnorm_backward_rows(&call, begin, end - begin) == DYNNORM_OK;
        dynnorm_descriptor rows = small; /* the same rows of the large call */
        rows.y.data = sparse[1] + first * channels;
        rows.dx.data = sparse[3] + first * channels;
        rows.mean = mean ? mean + first : NULL;
        rows.rstd = rstd ? rstd + first : NULL;
        right = right && !outputs_differ(&rows, &small, direction, &difference);
    }
    tap_check(right, "%s %s, %zu rows of %zu channels: %s", table->identifier, kernel->name, tokens, channels,
              right ? "as in a small call" : difference.text);
    unmap(mean, tokens);
    unmap(rstd, tokens);
    free(memory.start);
}

static void check_sparse(void) {
    enum { FAR_ROWS = 21, CHANNELS = 64 };
    const size_t count = ((size_t)1 << 32) + 5 * ((size_t)1 << 28);
    float *sparse[TENSORS];
    int mapped = 1;
    for (int i = 0; i < TENSORS; i++) {
        sparse[i] = map_sparse(count);
        mapped = mapped && sparse[i];
    }
    const struct isa *best = NULL;
    for (size_t i = 0; i < dynnorm_isa_count && mapped; i++) {
        const struct isa *table = &dynnorm_isa_list[i];
        if (!use_table(table))
            continue;
        best = best ? best : table;
        for (size_t k = 0; k < listed_kernel_count; k++) {
            if (!kernel_available(table, &listed_kernels[k]))
                continue;
            check_long_strides(table, &listed_kernels[k], sparse, ((size_t)1 << 28) - 5, FAR_ROWS);
            /* A range of a backward pass is millions of elements here: the best table has to stand for all. */
            if (listed_kernels[k].direction == FORWARD_PASS ||
                (table == best && listed_kernels[k].mode == DYNNORM_PORTABLE))
                check_many_rows(table, &listed_kernels[k], sparse, (((size_t)1 << 32) + (1 << 20)) / CHANNELS,
                                CHANNELS);
            for (int t = 0; t < TENSORS; t++)
                clear_sparse(sparse[t], count);
        }
    }
    if (!mapped)
        tap_skip("many rows", "no address space to be had");
    for (int i = 0; i < TENSORS; i++)
        unmap(sparse[i], count);
}

/* ---- One long row ------------------------------------------------------------------------------------------------ */

enum { PERIOD = 1 << 19 }; /* floats in the pages that are shown again and again */
static const size_t long_row = ((size_t)1 << 31) + PERIOD + 77;

/* The row's beginning shows the same pages again and again, its end, from own on, is memory of its own. */
static float *map_row(size_t own) {
    size_t bytes = PERIOD * sizeof(float);
    int file = memfd_create("huge", 0);
    if (file < 0 || ftruncate(file, (off_t)bytes)) {
        if (file >= 0)
            close(file);
        return NULL;
    }
    float *row = map_sparse(long_row);
    for (size_t at = 0; at < own && row; at += PERIOD)
        if (mmap(row + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0) ==
            MAP_FAILED) {
            unmap(row, long_row);
            row = NULL;
        }
    close(file);
    return row;
}

/* Runs the kernel over the long row; weights, biases and dy are the row itself. An element of its end must be what that
 * element gives in a row of one period, times factor: exactly for an elementwise kernel, whose factor is 1. */
static void check_long_row(const struct isa *table, const struct listed_kernel *kernel, float *x, float *out) {
    enum direction direction = kernel->direction;
    const size_t own = ((size_t)1 << 31) - PERIOD;
    dynnorm_descriptor call = describe(kernel, 1, long_row);
    call.x.data = call.dy.data = call.weight.data = x;
    call.y.data = call.dx.data = out;
    if (reads(kernel->operation, direction, buffer_named("bias")))
        call.bias.data = x;
    dynnorm_descriptor small = call;
    small.channels = PERIOD;
    float *expected = malloc(PERIOD * sizeof *expected);
    small.y.data = small.dx.data = expected;
    memset(out + own, UNTOUCHED, (long_row - own) * sizeof(float));
    int right = expected && run_call(direction, &small) == DYNNORM_OK && run_call(direction, &call) == DYNNORM_OK;

    /* RMSNorm's factor: how much the mean of squares of the long row differs from that of one period. */
    double factor = 1, tolerance = 0;
    if (kernel->operation == DYNNORM_RMSNORM) {
        double period = 0, rest = 0;
        for (size_t i = 0; i < PERIOD; i++) {
            period += (double)x[i] * (double)x[i];
            rest += i < long_row % PERIOD ? (double)x[i] * (double)x[i] : 0;
        }
        double mean = (period * (double)(long_row / PERIOD) + rest) / (double)long_row;
        factor = sqrt(period / PERIOD + (double)call.eps) / sqrt(mean + (double)call.eps);
        tolerance = 2 * 4 * 0x1p-24; /* both of them within the bound of RMSNorm's y */
    }
    size_t wrong = long_row;
    for (size_t i = own; i < long_row && right && wrong == long_row; i++) {
        double value = (double)expected[i % PERIOD] * factor;
        if (!(fabs((double)out[i] - value) <= tolerance * fabs(value)))
            wrong = i;
    }
    if (wrong < long_row)
        tap_check(0, "%s %s, one row of %zu channels: channel %zu: got %a, expected %a", table->identifier,
                  kernel->name, long_row, wrong, (double)out[wrong], (double)expected[wrong % PERIOD] * factor);
    else
        tap_check(right, "%s %s, one row of %zu channels: as in a row of %d", table->identifier, kernel->name, long_row,
                  PERIOD);
    free(expected);
}

static void check_long_rows(void) {
    float *x = map_row(long_row / PERIOD * PERIOD), *out = map_row(((size_t)1 << 31) - PERIOD);
    const struct isa *table = dynnorm_isa_list;
    while (!use_table(table))
        table++;
    if (!x || !out) {
        tap_skip("one long row", "no memory file or address space to be had");
        unmap(x, long_row);
        unmap(out, long_row);
        return;
    }
    struct random random = random_start(1);
    fill(x, PERIOD, &random);
    memcpy(x + long_row / PERIOD * PERIOD, x, (long_row % PERIOD) * sizeof(float));
    for (size_t k = 0; k < listed_kernel_count; k++) {
        const struct listed_kernel *kernel = &listed_kernels[k];
        int elementwise = kernel->operation == DYNNORM_DYT || kernel->operation == DYNNORM_DYISRU;
        if (kernel->mode == DYNNORM_PORTABLE &&
            (elementwise || (kernel->operation == DYNNORM_RMSNORM && kernel->direction == FORWARD_PASS)))
            check_long_row(table, kernel, x, out);
    }
    unmap(x, long_row);
    unmap(out, long_row);
}

int main(void) {
    if (thinned() || SANITIZED || sizeof(size_t) < 8) {
        tap_skip("more than 2^31 elements", "only natively, with 64-bit addresses, without sanitizers");
        return tap_done();
    }
    check_sparse();
    check_long_rows();
    return tap_done();
}
