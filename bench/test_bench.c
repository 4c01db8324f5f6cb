/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Whether the limits do what they are named for, and dynnorm-bench, whose path is the argument, lists every limit and
 * every kernel of every instruction set that runs here, at every shape.
 */
#define _POSIX_C_SOURCE 200809L

#include "limits.h"
#include "shapes.h"

#include "cpu.h"
#include "dispatch.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

static void check_limits(const struct limit *limits, int vector_bytes) {
    enum { MOST = 150, BEYOND = 20 };
    static _Alignas(64) float x[MOST], y[MOST], z[MOST + BEYOND];
    for (int i = 0; i < MOST; i++) {
        x[i] = (float)(i + 1);
        y[i] = (float)(1000 * i);
    }
    for (const struct limit *limit = limits; limit->name; limit++) {
        int adds = strstr(limit->name, "add") != NULL;
        size_t count = 0, wrong = 0;
        for (; count <= MOST && !wrong; count++) {
            memset(z, 0, sizeof z);
            limit->loop(z, x, y, count);
            for (size_t i = 0; i < MOST + BEYOND && !wrong; i++) {
                float expected = i >= count ? 0 : adds ? x[i] + y[i] : x[i];
                if (z[i] < expected || z[i] > expected) {
                    printf("# %s, %zu floats: got z[%zu] = %g, expected %g\n", limit->name, count, i, (double)z[i],
                           (double)expected);
                    wrong = 1;
                }
            }
        }
        tap_check(!wrong, "%s with vectors of %d bytes, 0 to %d floats", limit->name, vector_bytes, MOST);
        tap_check(limit->tensors == (adds ? 3 : 2), "%s touches %zu tensors", limit->name, limit->tensors);
    }
}

static void check_all_limits(void) {
    check_limits(limits_16, 16);
#ifdef __x86_64__
    unsigned features = dynnorm_cpu_features();
    if (features & CPU_AVX2)
        check_limits(limits_32, 32);
    else
        tap_skip("limits with vectors of 32 bytes", "no AVX2 here");
    if (features & CPU_AVX512)
        check_limits(limits_64, 64);
    else
        tap_skip("limits with vectors of 64 bytes", "no AVX-512 here");
#endif
}

/* ---- The list of dynnorm-bench ----------------------------------------------------------------------------------- */

enum { LONGEST_LINE = 200 };

struct lines {
    size_t count;
    char (*text)[LONGEST_LINE];
};

static struct lines lines_printed_by(const char *command) {
    struct lines lines = {0, NULL};
    FILE *output = popen(command, "r");
    char line[LONGEST_LINE];
    while (output && fgets(line, sizeof line, output)) {
        line[strcspn(line, "\n")] = 0;
        lines.text = realloc(lines.text, (lines.count + 1) * sizeof *lines.text);
        if (!lines.text)
            abort();
        memcpy(lines.text[lines.count++], line, sizeof line);
    }
    tap_check(output && pclose(output) == 0, "%s succeeds", command);
    return lines;
}

static int times_listed(const struct lines *lines, const char *name) {
    int times = 0;
    for (size_t i = 0; i < lines->count; i++)
        times += !strcmp(lines->text[i], name);
    return times;
}

/* Checks that prefix/tokens:.../channels:... is listed once for every shape; gives back how many names that makes. */
static size_t check_listed(const struct lines *lines, const char *prefix) {
    size_t missing = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        char name[LONGEST_LINE];
        snprintf(name, sizeof name, "%s/tokens:%zu/channels:%zu", prefix, shapes[i].tokens, shapes[i].channels);
        int times = times_listed(lines, name);
        if (times != 1) {
            printf("# %s: listed %d times, expected once\n", name, times);
            missing++;
        }
    }
    tap_check(!missing, "%s is listed at every shape", prefix);
    return SHAPES;
}

static size_t check_kernel_listed(const struct lines *lines, const struct kernels *table, const char *operation,
                                  const char *mode, int present) {
    char prefix[LONGEST_LINE];
    snprintf(prefix, sizeof prefix, "%s/f32/%s/%s", operation, table->isa, mode);
    if (present)
        return check_listed(lines, prefix);
    tap_skip(prefix, "this table has no such kernel");
    return 0;
}

static size_t check_table_listed(const struct lines *lines, const struct kernels *table) {
    size_t names = 0;
#define FORWARD(operation, mode)                                                                                       \
    names += check_kernel_listed(lines, table, #operation "_forward", #mode,                                           \
                                 table->forward[operation_##operation][mode_##mode] != NULL);
#define BACKWARD(operation, mode)                                                                                      \
    names += check_kernel_listed(lines, table, #operation "_backward", #mode,                                          \
                                 table->backward[operation_##operation][mode_##mode] != NULL);
#include "kernels.def"
    return names;
}

static void check_list(const char *program) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' --benchmark_list_tests", program);
    struct lines lines = lines_printed_by(command);

    size_t names = check_listed(&lines, "limit_copy/f32") + check_listed(&lines, "limit_add/f32");
#if defined __x86_64__ || defined __aarch64__
    names += check_listed(&lines, "limit_copy_nontemporal/f32") + check_listed(&lines, "limit_add_nontemporal/f32");
#endif
    const char *isas[16];
    size_t isa_count = dynnorm_isas(isas, sizeof isas / sizeof *isas);
    for (size_t i = 0; i < isa_count; i++) {
        tap_check(dynnorm_set_isa(isas[i]) == DYNNORM_OK, "%s can be chosen", isas[i]);
        names += check_table_listed(&lines, dynnorm_active_kernels());
    }
    tap_check(lines.count == names, "%zu names are listed, expected %zu", lines.count, names);
    free(lines.text);
}

int main(int argc, char **argv) {
    check_all_limits();
    if (argc == 2)
        check_list(argv[1]);
    else
        tap_check(0, "usage: test_bench PATH-OF-DYNNORM-BENCH");
    return tap_done();
}
