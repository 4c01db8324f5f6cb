/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_THREADS = 1024 };

static struct {
    size_t threads;
    pthread_t handles[MOST_THREADS];
    void (*work)(void *context, size_t thread); /* NULL tells the threads to stop */
    void *context;
#ifdef __linux__
    cpu_set_t affinity; /* of the caller, before it was pinned */
#endif
    _Alignas(64) atomic_uint round; /* counts the calls of pool_run */
    _Alignas(64) atomic_size_t busy;
} pool = {.threads = 1};

/* ---- Processors -------------------------------------------------------------------------------------------------- */

#ifdef __linux__
/* Whether a processor is the first of the hardware threads of its core. */
static int is_first_of_core(int processor) {
    char path[120];
    int first = processor;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &first) != 1)
            first = processor;
        fclose(file);
    }
    return first == processor;
}

/* Lists the processors that this process may run on: first one of each core, then the others. Returns how many. */
static size_t list_processors(int *list) {
    cpu_set_t allowed;
    size_t count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return 0;
    for (int want_first = 1; want_first >= 0; want_first--)
        for (int processor = 0; processor < CPU_SETSIZE && count < MOST_THREADS; processor++)
            if (CPU_ISSET(processor, &allowed) && is_first_of_core(processor) == want_first)
                list[count++] = processor;
    return count;
}

static void pin(pthread_t thread, int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
}

size_t pool_processors(void) {
    int list[MOST_THREADS];
    return list_processors(list);
}
#else
size_t pool_processors(void) {
#ifdef _SC_NPROCESSORS_ONLN
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#else
    long count = pthread_num_processors_np(); /* mingw-w64 */
#endif
    return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : (size_t)count;
}
#endif

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

static inline void pause_briefly(unsigned *waited) {
    if (++*waited % 16384 == 0)
        sched_yield();
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void *thread_main(void *argument) {
    size_t thread = (size_t)argument;
    for (unsigned round = 0;; round++) {
        unsigned waited = 0;
        while (atomic_load_explicit(&pool.round, memory_order_acquire) == round)
            pause_briefly(&waited);
        if (!pool.work)
            return NULL;
        pool.work(pool.context, thread);
        atomic_fetch_sub_explicit(&pool.busy, 1, memory_order_release);
    }
}

int pool_start(size_t threads) {
    atomic_store(&pool.round, 0);
    pool.threads = 1;
#ifdef __linux__
    pool.handles[0] = pthread_self();
    pthread_getaffinity_np(pool.handles[0], sizeof pool.affinity, &pool.affinity);
#endif
    for (; pool.threads < threads; pool.threads++)
        if (pthread_create(&pool.handles[pool.threads], NULL, thread_main, (void *)pool.threads)) {
            pool_stop();
            return 0;
        }
#ifdef __linux__
    int list[MOST_THREADS];
    size_t count = list_processors(list);
    for (size_t i = 0; threads > 1 && i < threads && i < count; i++)
        pin(pool.handles[i], list[i]);
#endif
    return 1;
}

void pool_run(void (*work)(void *context, size_t thread), void *context) {
    if (pool.threads == 1) {
        work(context, 0);
        return;
    }
    pool.work = work;
    pool.context = context;
    atomic_store_explicit(&pool.busy, pool.threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool.round, 1, memory_order_release);
    work(context, 0);
    unsigned waited = 0;
    while (atomic_load_explicit(&pool.busy, memory_order_acquire))
        pause_briefly(&waited);
}

void pool_stop(void) {
    pool.work = NULL;
    atomic_fetch_add_explicit(&pool.round, 1, memory_order_release);
#ifdef __linux__
    if (pool.threads > 1)
        pthread_setaffinity_np(pool.handles[0], sizeof pool.affinity, &pool.affinity);
#endif
    for (; pool.threads > 1; pool.threads--)
        pthread_join(pool.handles[pool.threads - 1], NULL);
}

struct share pool_share(size_t whole, size_t unit, size_t thread) {
    size_t units = (whole + unit - 1) / unit;
    size_t first = units * thread / pool.threads * unit;
    size_t end = units * (thread + 1) / pool.threads * unit;
    end = end < whole ? end : whole;
    return (struct share){first, end - first};
}

size_t pool_busy(size_t whole, size_t unit) {
    size_t busy = 0;
    for (size_t thread = 0; thread < pool.threads; thread++)
        busy += pool_share(whole, unit, thread).count > 0;
    return busy;
}

/* ---- Executor ---------------------------------------------------------------------------------------------------- */

struct tasks {
    dynnorm_task *task;
    void *context;
    size_t count;
};

static void run_share_of_tasks(void *context, size_t thread) {
    const struct tasks *tasks = context;
    struct share share = pool_share(tasks->count, 1, thread);
    for (size_t i = share.first; i < share.first + share.count; i++)
        tasks->task(tasks->context, i);
}

static void run_tasks(void *busy, dynnorm_task *task, void *context, size_t count) {
    struct tasks tasks = {task, context, count};
    *(size_t *)busy = pool_busy(count, 1);
    pool_run(run_share_of_tasks, &tasks);
}

dynnorm_executor pool_executor(size_t *busy) {
    return (dynnorm_executor){run_tasks, busy, pool.threads, 0};
}
