/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The parts of dynnorm-probe. Each prints one JSON object in a line for each thing that it measured. probes.py says
 * what they mean.
 */
#ifndef DYNNORM_BENCH_PROBE_H
#define DYNNORM_BENCH_PROBE_H

#include <stddef.h>

/* Single calls with one token, hot and cold, beside the same norm as a loop that is inlined in the program. */
void probe_calls(void);

/* The time that special data take, beside the time that ordinary data take. */
void probe_cliffs(void);

/* Outputs stored past the caches, beside outputs left in them. */
void probe_streaming(void);

/* The time in nanoseconds, since any moment. Its clock takes little time to read. */
double probe_now(void);

struct quartiles {
    double low;
    double median;
    double high;
};

/* Sorts the values. */
struct quartiles quartiles_of(double *values, size_t count);

/* Times work(context), repeated until it takes so many nanoseconds of CPU time. Returns those of one call. */
double probe_time(void (*work)(void *context), void *context, double at_least);

#endif
