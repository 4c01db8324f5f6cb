/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Threads that share the rows of one call, each pinned to a core of its own. They wait actively, since a thread that
 * sleeps takes longer to wake than many a call takes.
 */
#ifndef DYNNORM_BENCH_POOL_H
#define DYNNORM_BENCH_POOL_H

#include <stddef.h>

/* How many processors this process may run on. */
size_t pool_processors(void);

/* Starts all but the first of so many threads, which is the caller's, and pins them. 0 if one cannot be started. One
 * thread is left unpinned, for the system to move it to where it is quiet. */
int pool_start(size_t threads);

/* Calls work(context, thread) in each of the threads at once, in the caller as thread 0; returns when all are done. */
void pool_run(void (*work)(void *context, size_t thread), void *context);

void pool_stop(void);

/* The pieces of a whole that a thread takes: [first, first + count), in units of so many elements. */
struct share {
    size_t first;
    size_t count;
};
struct share pool_share(size_t whole, size_t unit, size_t thread);

/* How many of the threads take a share of it that is not empty. */
size_t pool_busy(size_t whole, size_t unit);

#endif
