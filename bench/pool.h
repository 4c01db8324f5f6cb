/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A pool of threads that share the rows of one call, each pinned to a core of its own. They wait in a loop instead of
 * sleeping, because waking a thread can take longer than a call.
 */
#ifndef DYNNORM_BENCH_POOL_H
#define DYNNORM_BENCH_POOL_H

#include "dynnorm.h"

#include <stddef.h>

/* How many processors this process may run on. */
size_t pool_processors(void);

/* Makes the pool one of so many threads: starts all except the first, which is the caller's, and pins them to cores.
 * Returns 0 if one cannot be started. A single thread is not pinned, so that the system can move it to a quiet core. */
int pool_start(size_t threads);

/* Calls work(context, thread) in every thread at once, with the caller as thread 0. Returns when all are done. */
void pool_run(void (*work)(void *context, size_t thread), void *context);

/* Ends all threads except the caller's, which may then run wherever it could before. */
void pool_stop(void);

/* The share of a thread when a whole is split among all: [first, first + count), in units of so many elements. */
struct share {
    size_t first;
    size_t count;
};
struct share pool_share(size_t whole, size_t unit, size_t thread);

/* How many of the threads get a share that is not empty. */
size_t pool_busy(size_t whole, size_t unit);

/* The pool for calls of the library. Every call that uses it sets *busy to the number of threads that get tasks. */
dynnorm_executor pool_executor(size_t *busy);

#endif
