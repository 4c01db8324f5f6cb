/* SPDX-License-Identifier: BSD-2-Clause
 *
 * dynnorm-probe measures what the cases of dynnorm-bench do not show: calls with one token, data that are slow, and
 * where it pays to store past the caches.
 *
 *   dynnorm-probe calls|cliffs|streaming [ISA]
 */
#define _POSIX_C_SOURCE 200809L

#include "probe.h"

#include "dynnorm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double nanoseconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

double probe_now(void) {
    return nanoseconds(CLOCK_MONOTONIC);
}

static int compare(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

struct quartiles quartiles_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return (struct quartiles){values[count / 4], values[count / 2], values[count * 3 / 4]};
}

double probe_time(void (*work)(void *context), void *context, double at_least) {
    for (size_t calls = 1;; calls *= 2) {
        double begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < calls; i++)
            work(context);
        double time = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - begin;
        if (time >= at_least)
            return time / (double)calls;
    }
}

int main(int argc, char **argv) {
    enum { USAGE = 2 };
    static const struct {
        const char *name;
        void (*run)(void);
    } probes[] = {{"calls", probe_calls}, {"cliffs", probe_cliffs}, {"streaming", probe_streaming}};
    dynnorm_status status = argc == 3 ? dynnorm_set_isa(argv[2]) : DYNNORM_OK;
    if (status) {
        fprintf(stderr, "dynnorm-probe: '%s': %s\n", argv[2], dynnorm_status_string(status));
        return USAGE;
    }
    for (size_t i = 0; (argc == 2 || argc == 3) && i < sizeof probes / sizeof *probes; i++)
        if (!strcmp(argv[1], probes[i].name)) {
            probes[i].run();
            return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
        }
    fprintf(stderr, "usage: dynnorm-probe calls|cliffs|streaming [ISA]\n");
    return USAGE;
}
