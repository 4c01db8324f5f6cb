/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The part of Google Benchmark (https://github.com/google/benchmark) that the benchmarks need, callable from C.
 */
#ifndef DYNNORM_BENCH_GOOGLE_BENCHMARK_SHIM_H
#define DYNNORM_BENCH_GOOGLE_BENCHMARK_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A measurement in progress. */
struct benchmark_state;

/* Prepares a measurement, makes it with benchmark_measure, and reports the result with benchmark_set_rate. It is called
 * several times: while Google Benchmark looks for a suitable number of iterations, and for every repetition. */
typedef void benchmark_function(struct benchmark_state *state, void *context);

/* Takes Google Benchmark's options from the arguments. If others are left, reports them on stderr and returns 0. */
int benchmark_initialize(int *argc, char **argv);

/* Adds a line to the description of the machine and the build. */
void benchmark_add_context(const char *key, const char *value);

/* The size in bytes of this machine's data cache of a level; 0 if there is none or it is not known. */
size_t benchmark_cache_bytes(int level);

enum benchmark_clock {
    BENCHMARK_CPU_TIME, /* CPU time of the thread that calls work */
    BENCHMARK_WALL_TIME /* the reported name then ends in /real_time */
};

/* Copies the name and the context. The function is called with the address of the copied context, which is the same
 * each time and differs between benchmarks. */
void benchmark_register(const char *name, enum benchmark_clock clock, benchmark_function *function, const void *context,
                        size_t context_size);

/* Times work(context), called as often as Google Benchmark wants. Call it once in each benchmark_function, or call
 * benchmark_fail instead. */
void benchmark_measure(struct benchmark_state *state, void (*work)(void *context), void *context);

/* Reports amount_per_iteration per second under a name. Call it after benchmark_measure. */
void benchmark_set_rate(struct benchmark_state *state, const char *name, double amount_per_iteration);

/* Reports a value as it is, under a name. */
void benchmark_set_value(struct benchmark_state *state, const char *name, double value);

/* Reports that there is nothing to measure, and why. Call it instead of benchmark_measure. */
void benchmark_fail(struct benchmark_state *state, const char *why);

/* Runs or lists the benchmarks that the options select. Returns how many there are. */
size_t benchmark_run(void);

void benchmark_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
