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

/* Copies the name and the context. */
void benchmark_register(const char *name, benchmark_function *function, const void *context, size_t context_size);

/* Times work(context), as often as it takes. Once in each benchmark_function, unless it calls benchmark_fail. */
void benchmark_measure(struct benchmark_state *state, void (*work)(void *context), void *context);

/* Reports amount_per_iteration, times the iterations, divided by the time they took, under a name. Call it after
 * benchmark_measure. */
void benchmark_set_rate(struct benchmark_state *state, const char *name, double amount_per_iteration);

/* Reports that there is nothing to measure, and why, in place of benchmark_measure. */
void benchmark_fail(struct benchmark_state *state, const char *why);

/* Runs, or lists, what the options select; gives back how many there are. */
size_t benchmark_run(void);

void benchmark_shutdown(void);

#ifdef __cplusplus
}
#endif

#endif
