/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Checks that nothing is read or written outside the buffers. Every buffer ends or begins at a page that cannot be
 * touched, inputs lie in pages that cannot be written, and the memory around the outputs must stay as it was.
 */
#define _DEFAULT_SOURCE
#include "call.h"
#include "dispatch/cpu.h"
#include "random.h"
#include "tap.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Regions: pages between two pages that cannot be touched ----------------------------------------------------- */

struct region {
    unsigned char *start;
    size_t bytes;
};

static size_t page_bytes;

static struct region map_region(size_t least_bytes) {
    size_t bytes = (least_bytes + page_bytes - 1) / page_bytes * page_bytes;
    unsigned char *start = mmap(NULL, bytes + 2 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + page_bytes, bytes, PROT_READ | PROT_WRITE)) {
        perror("mmap");
        exit(2);
    }
    return (struct region){start + page_bytes, bytes};
}

/* A region for each buffer, and after them one for the workspace. */
enum { WORKSPACE = EVERY_BUFFER, REGIONS };
static struct region regions[REGIONS];

/* ---- Crashes ----------------------------------------------------------------------------------------------------- */

static sigjmp_buf before_call;
static void *volatile fault_address;

static void on_fault(int signal, siginfo_t *information, void *context) {
    (void)context;
    fault_address = information->si_addr;
    siglongjmp(before_call, signal);
}

static void catch_faults(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* Says where the fault lies. */
static void describe_fault(const dynnorm_descriptor *call, enum direction direction, char *text, size_t size) {
    snprintf(text, size, "fault at an address of no buffer");
    uintptr_t address = (uintptr_t)fault_address;
    for (int i = 0; i < REGIONS; i++) {
        uintptr_t start = (uintptr_t)regions[i].start;
        if (address < start - page_bytes || address >= start + regions[i].bytes + page_bytes)
            continue;
        int is_workspace = i == WORKSPACE;
        uintptr_t data = (uintptr_t)(is_workspace ? call->workspace : buffer_data(call, &buffers[i]));
        size_t bytes = is_workspace ? call->workspace_size : buffer_bytes(call, &buffers[i]);
        int is_input = !is_workspace && reads(call->operation, direction, &buffers[i]);
        int inside = address >= data && address < data + bytes;
        snprintf(text, size, "%s at byte %td of %s, which has %zu bytes", inside && is_input ? "written" : "touched",
                 (ptrdiff_t)(address - data), is_workspace ? "workspace" : buffers[i].name, bytes);
    }
}

/* ---- Ways to compute a call --------------------------------------------------------------------------------------
 */

static struct way {
    const char *how;   /* is added to the kernel's name in the report */
    dynnorm_type type; /* of all buffers that have one */
    int has_residual;  /* and what else may stand around a norm */
    int streams;
    size_t step; /* in the shapes */
} way;

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

/* Rows of calls that end where a group of eight does, and whose rows are all ordinary. */
enum { WHOLE_GROUPS = 48 };

enum placement { AT_END, AT_BEGIN };

/* Where a buffer begins if it ends where its region ends, or if it begins offset bytes after its region does. */
static unsigned char *place(int region, size_t bytes, enum placement placement, size_t offset) {
    if (placement == AT_BEGIN)
        return regions[region].start + offset;
    return regions[region].start + regions[region].bytes - bytes;
}

/* The first byte is untouched, and every other byte equals the one before it. */
static int is_untouched(const unsigned char *begin, const unsigned char *end) {
    return begin == end || (*begin == UNTOUCHED && !memcmp(begin, begin + 1, (size_t)(end - begin) - 1));
}

/* Whether all bytes are untouched between the buffer's rows, and for a page before and after it. If so, makes the rows
 * untouched again. */
static int surroundings_kept(const dynnorm_descriptor *call, int index) {
    const struct buffer *buffer = &buffers[index];
    const unsigned char *region_end = regions[index].start + regions[index].bytes;
    const unsigned char *data = buffer_data(call, buffer);
    const unsigned char *at =
        data - regions[index].start < (ptrdiff_t)page_bytes ? regions[index].start : data - page_bytes;
    size_t row_bytes = buffer_row_bytes(call, buffer);
    for (size_t i = 0; i < buffer_rows(call, buffer); i++) {
        unsigned char *row = buffer_row(call, buffer, i);
        if (!is_untouched(at, row))
            return 0;
        memset(row, UNTOUCHED, row_bytes);
        at = row + row_bytes;
    }
    return is_untouched(at, region_end - at < (ptrdiff_t)page_bytes ? region_end : at + page_bytes);
}

/* Gives the call the mean and rstd of its own x, so that all of its rows are ordinary ones. */
static void make_rows_ordinary(const dynnorm_descriptor *call) {
    static const enum buffer_index statistics[] = {BUFFER_MEAN, BUFFER_RSTD};
    for (int i = 0; i < 2; i++)
        mprotect(regions[statistics[i]].start, regions[statistics[i]].bytes, PROT_READ | PROT_WRITE);
    compute_statistics(call);
    for (int i = 0; i < 2; i++)
        mprotect(regions[statistics[i]].start, regions[statistics[i]].bytes, PROT_READ);
}

/* Runs the call with its buffers placed in their regions. If it touched anything else, returns 0 and says in text what.
 */
static int stays_inside(const struct listed_kernel *kernel, dynnorm_descriptor *call, enum placement placement,
                        size_t offset, char *text, size_t size) {
    enum direction direction = kernel->direction;
    for (int i = 0; i < (way.has_residual ? EVERY_BUFFER : BUFFERS); i++)
        if (uses(call->operation, direction, &buffers[i]))
            set_buffer_data(call, &buffers[i], place(i, buffer_bytes(call, &buffers[i]), placement, offset));
    if (direction == BACKWARD_PASS) {
        if (call->tokens % 2) /* these calls recompute the statistics */
            call->mean = call->rstd = NULL;
        else if (call->tokens == WHOLE_GROUPS && call->rstd && call->x.type == DYNNORM_F32)
            make_rows_ordinary(call);
        dynnorm_workspace_size(call, &call->workspace_size);
        if (call->workspace_size > regions[WORKSPACE].bytes) {
            snprintf(text, size, "the workspace's region is too small: %zu bytes", call->workspace_size);
            return 0;
        }
        call->workspace = place(WORKSPACE, call->workspace_size, placement, offset);
    }
    int signal = sigsetjmp(before_call, 1);
    if (signal == 0) {
        dynnorm_status status = run_call(direction, call);
        if (status != DYNNORM_OK) {
            snprintf(text, size, "%s", dynnorm_status_string(status));
            return 0;
        }
    } else {
        describe_fault(call, direction, text, size);
        return 0;
    }
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (writes(call->operation, direction, &buffers[i]) && buffer_data(call, &buffers[i]) &&
            !surroundings_kept(call, i)) {
            snprintf(text, size, "written outside of %s", buffers[i].name);
            return 0;
        }
    return 1;
}

/* Numbers for all regions. Region i has them from the i-th on. */
static float *numbers;

static void make_numbers(size_t count) {
    struct random random = random_start(random_seed());
    numbers = malloc(count * sizeof *numbers);
    if (!numbers)
        exit(2);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_normal(&random);
}

/* Fills the regions of the kernel's inputs, x and dy with numbers of the given size, and makes them read-only; makes
 * those of its outputs untouched. An input that has these numbers already keeps them. */
static void prepare_regions(const struct listed_kernel *kernel, float size) {
    static float held[EVERY_BUFFER]; /* by what factor the numbers were multiplied; 0 if there are none */
    for (int i = 0; i < EVERY_BUFFER; i++) {
        const int is_output = writes(kernel->operation, kernel->direction, &buffers[i]);
        const float factor = is_output ? 0 : i == BUFFER_X || i == BUFFER_DY ? size : 1;
        if (!is_output && held[i] == factor)
            continue;
        mprotect(regions[i].start, regions[i].bytes, PROT_READ | PROT_WRITE);
        held[i] = factor;
        if (is_output) {
            memset(regions[i].start, UNTOUCHED, regions[i].bytes);
            continue;
        }
        for (size_t at = 0; at < regions[i].bytes / sizeof(float); at++)
            set_float_at(regions[i].start, at, factor * numbers[at + (size_t)i]);
        mprotect(regions[i].start, regions[i].bytes, PROT_READ);
    }
}

struct shape {
    size_t tokens;
    size_t channels;
    size_t extra_stride; /* beyond the channels */
    enum placement placement;
    size_t offset; /* bytes from the region's beginning */
};

static int check_shape(const struct isa *table, const struct listed_kernel *kernel, struct shape shape) {
    dynnorm_descriptor call = describe(kernel, shape.tokens, shape.channels);
    call.weight_offset = (float)(shape.channels % 2); /* weights are read differently with an offset */
    call.parameter_per_channel = way.has_residual && dynnorm_operations[call.operation].parameters != NO_FIELD;
    for (int i = 0; i < EVERY_BUFFER; i++)
        if (buffers[i].type_field)
            set_buffer_type(&call, &buffers[i], way.type);
    if (shape.extra_stride)
        for (int i = 0; i < EVERY_BUFFER; i++)
            if (buffers[i].stride_field)
                set_buffer_stride(&call, &buffers[i], shape.channels + shape.extra_stride);
    char text[200];
    if (stays_inside(kernel, &call, shape.placement, shape.offset, text, sizeof text))
        return 1;
    return tap_check(0, "%s %s, %zu tokens, %zu channels, stride %zu, buffers %s a guard page, misaligned by %zu: %s",
                     table->identifier, kernel->name, shape.tokens, shape.channels, shape.channels + shape.extra_stride,
                     shape.placement == AT_END ? "end at" : "begin after", shape.offset, text);
}

static const size_t token_counts[] = {1, 2, 3, 4, 5, 8, 9};
enum { TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts, EVERY_TAIL = 130, MOST_TOKENS = 9 };

/* Rows of which backward passes convert several groups of eight together, or sum a group before dx of the one before is
 * done: MANY_TOKENS of them, or WHOLE_GROUPS. */
static const size_t short_channels[] = {31, 33, 64, 100};
enum { SHORT_CHANNELS = sizeof short_channels / sizeof *short_channels, MANY_TOKENS = 41 };

/* Longer rows: up to 256 channels some are short to AVX2, and up to 480 to AVX-512; up to 2048 they may be taken by
 * pairs; the others are summed in blocks. Those of more than 256 channels are only short or taken by pairs if weights
 * are read as they are, which they are where channels are even. */
static const size_t long_channels[] = {144, 160, 176, 191, 192, 193,  208,  224,  240,  255,  256,  257,  258,
                                       273, 300, 320, 511, 513, 1000, 1023, 1026, 1366, 2046, 2048, 2561, 4097};
enum { LONG_CHANNELS = sizeof long_channels / sizeof *long_channels, MOST_CHANNELS = 4097, EXTRA_STRIDE = 3 };

static void check_shapes(const struct isa *table, const struct listed_kernel *kernel, size_t step) {
    const char *how = way.how;
    const int thin = thinned_for(table);
    int right = 1;
    for (int i = 0; i < 2 && right; i++) { /* such rows leave the usual path */
        prepare_regions(kernel, i ? 1e-39f : 1e30f);
        pretend_amd_family(i ? 0 : REAL_FAMILY); /* for AMD's CPUs tiny numbers are nothing special */
        for (size_t channels = 1; channels <= EVERY_TAIL && right; channels += 3 * step)
            for (int t = 0; t < TOKEN_COUNTS && right; t += i ? 1 : 2)
                right = check_shape(table, kernel, (struct shape){token_counts[t], channels, 0, AT_END, 0}) &&
                        check_shape(table, kernel, (struct shape){token_counts[t], channels, 0, AT_BEGIN, 0});
        if (right)
            tap_check(1, "%s %s%s: rows of %s numbers", table->identifier, kernel->name, how, i ? "tiny" : "large");
    }
    pretend_amd_family(REAL_FAMILY);

    prepare_regions(kernel, 1);
    for (size_t channels = 1; channels <= EVERY_TAIL && right; channels += step)
        for (int t = thin ? (int)((channels / step + 1) % 3) : 0; t < TOKEN_COUNTS && right; t += thin ? 3 : 1)
            for (size_t extra = 0; extra <= EXTRA_STRIDE && right; extra += EXTRA_STRIDE)
                right = check_shape(table, kernel, (struct shape){token_counts[t], channels, extra, AT_END, 0}) &&
                        check_shape(table, kernel, (struct shape){token_counts[t], channels, extra, AT_BEGIN, 0});
    if (right)
        tap_check(1, "%s %s%s: rows of 1 to %d channels", table->identifier, kernel->name, how, EVERY_TAIL);

    for (size_t channels = 1; channels <= EVERY_TAIL && right; channels += 7 * step)
        for (size_t offset = 0; offset < 64 && right; offset += thin ? 4 : 1)
            right = check_shape(table, kernel, (struct shape){5, channels, 0, AT_BEGIN, offset});
    if (right)
        tap_check(1, "%s %s%s: every misalignment", table->identifier, kernel->name, how);

    pretend_amd_family(FAMILY_OF_ZEN_5); /* which sums groups of heads ahead */
    for (int c = 0; c < SHORT_CHANNELS && right; c++)
        right = check_shape(table, kernel, (struct shape){MANY_TOKENS, short_channels[c], 0, AT_END, 0}) &&
                check_shape(table, kernel, (struct shape){MANY_TOKENS, short_channels[c], 0, AT_BEGIN, 0}) &&
                check_shape(table, kernel, (struct shape){WHOLE_GROUPS, short_channels[c], 0, AT_END, 0});
    if (right)
        tap_check(1, "%s %s%s: many rows", table->identifier, kernel->name, how);
    pretend_amd_family(REAL_FAMILY);

    for (int c = 0; c < LONG_CHANNELS && right; c += thin ? 3 : 1)
        for (int t = thin ? c / 3 % 3 : 0; t < TOKEN_COUNTS && right; t += thin ? 3 : 1)
            right = check_shape(table, kernel, (struct shape){token_counts[t], long_channels[c], 0, AT_END, 0}) &&
                    check_shape(table, kernel, (struct shape){token_counts[t], long_channels[c], 3, AT_BEGIN, 0});
    if (right)
        tap_check(1, "%s %s%s: rows of %zu to %d channels", table->identifier, kernel->name, how, long_channels[0],
                  MOST_CHANNELS);
}

static void check_kernel(const struct isa *table, const struct listed_kernel *kernel) {
    static const struct way ways[] = {
        {"", DYNNORM_F32, 0, 0, 1},
        {", past the caches", DYNNORM_F32, 0, 1, 3},
        {", of bf16", DYNNORM_BF16, 0, 0, 5},
        {", of bf16, past the caches", DYNNORM_BF16, 0, 1, 5},
        {", of f16", DYNNORM_F16, 0, 0, 5},
        {", with a residual", DYNNORM_F32, 1, 0, 5},
        {", of f16, with a residual, past the caches", DYNNORM_F16, 1, 1, 5},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way = ways[i];
        if (!way.streams || pretend_level2_cache(0))
            check_shapes(table, kernel, thinned_for(table) ? 13 : way.step);
        pretend_level2_cache(SIZE_MAX);
    }
}

int main(void) {
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < REGIONS; i++)
        regions[i] = map_region(((MOST_CHANNELS + EXTRA_STRIDE) * MOST_TOKENS + 64) *
                                (i == WORKSPACE ? sizeof(double) : sizeof(float)));
    make_numbers(regions[0].bytes / sizeof(float) + EVERY_BUFFER);
    catch_faults();
    check_each_kernel(check_kernel);
    return tap_done();
}
