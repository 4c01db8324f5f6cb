/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Executors for tests: one that starts threads for each call, and two that run all tasks in the caller's thread, the
 * last task first or the first one first.
 */
#ifndef DYNNORM_TEST_EXECUTORS_H
#define DYNNORM_TEST_EXECUTORS_H

#include "dynnorm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum task_order { FIRST_TASK_FIRST, LAST_TASK_FIRST, ON_THREADS, TASK_ORDERS };

struct test_pool {
    enum task_order order;
    size_t threads;
    atomic_size_t calls; /* of parallel_for */
    atomic_size_t tasks; /* of the last of these calls */
};

enum { MOST_POOL_THREADS = 16 };

struct running_tasks {
    dynnorm_task *task;
    void *context;
    size_t tasks;
    atomic_size_t next;
};

static void *take_tasks(void *argument) {
    struct running_tasks *running = argument;
    for (size_t index; (index = atomic_fetch_add(&running->next, 1)) < running->tasks;)
        running->task(running->context, index);
    return NULL;
}

static void run_on_threads(struct running_tasks *running, size_t count) {
    pthread_t threads[MOST_POOL_THREADS];
    for (size_t i = 1; i < count; i++)
        if (pthread_create(&threads[i], NULL, take_tasks, running)) {
            fputs("cannot start a thread\n", stderr);
            exit(2);
        }
    take_tasks(running);
    for (size_t i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void run_on_test_pool(void *argument, dynnorm_task *task, void *context, size_t tasks) {
    struct test_pool *pool = argument;
    struct running_tasks running = {task, context, tasks, 0};
    pool->calls++;
    pool->tasks = tasks;
    if (pool->order == ON_THREADS)
        run_on_threads(&running, pool->threads);
    else
        for (size_t i = 0; i < tasks; i++)
            task(context, pool->order == FIRST_TASK_FIRST ? i : tasks - 1 - i);
}

/* An executor whose tasks have at least so many elements. */
static inline dynnorm_executor test_executor(struct test_pool *pool, size_t least_elements) {
    return (dynnorm_executor){run_on_test_pool, pool, pool->threads, least_elements};
}

#endif
