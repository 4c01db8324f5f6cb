/* SPDX-License-Identifier: BSD-2-Clause
 *
 * As much of Google Benchmark (https://github.com/google/benchmark) as the benchmarks need, for C.
 */
#ifndef DYNNORM_BENCH_GOOGLE_BENCHMARK_SHIM_H
#define DYNNORM_BENCH_GOOGLE_BENCHMARK_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One measurement in progress. */
struct benchmark_state;

/* Prepares a measurement, makes it by benchmark_measure, and says what it amounts to by benchmark_set_rate. Called
 * several times: while a suitable number of iterations is sought, and for every repetition. */
typedef void benchmark_function(struct benchmark_state *state, void *context);

/* Takes Google Benchmark's options from the arguments; 0 if others are left, which are then reported on stderr. */
int benchmark_initialize(int *argc, char **argv);

/* Adds a line to what the report says of the machine and the build. */
void benchmark_add_context(const char *key, const char *value);

/* The bytes of this machine's data cache of a level, 0 if there is none or it is not known. */
size_t benchmark_cache_bytes(int level);

enum benchmark_clock {
    BENCHMARK_CPU_TIME, /* of the thread that calls work */
    BENCHMARK_WALL_TIME /* the name that is reported then ends in /real_time */
};

/* Copies the name and the context, whose address identifies the benchmark from then on. */
void benchmark_register(const char *name, enum benchmark_clock clock, benchmark_function *function, const void *context,
                        size_t context_size);

/* Times work(context), as often as it takes. Once in each benchmark_function, unless it calls benchmark_fail. */
void benchmark_measure(struct benchmark_state *state, void (*work)(void *context), void *context);

/* Reports amount_per_iteration, times the iterations, divided by the time they took, under a name. Call it after
 * benchmark_measure. */
void benchmark_set_rate(struct benchmark_state *state, const char *name, double amount_per_iteration);

/* Reports a value as it is, under a name. */
void benchmark_set_value(struct benchmark_state *state, const char *name, double value);

/* Reports that there is nothing to measure, and why, in place of benchmark_measure. */
void benchmark_fail(struct benchmark_state *state, const char *why);

/* Runs, or lists, what the options select; gives back how many there are. */
size_t benchmark_run(void);

void benchmark_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
