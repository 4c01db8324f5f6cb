/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests the executors of libdynnorm_executors: that they run each task once, on several threads, and that calls on them
 * have the bits of calls without. Their pools are other libraries, which ThreadSanitizer does not see into.
 */
#include "dynnorm_executors.h"
#include "call.h"
#include "tap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#ifdef DYNNORM_HAVE_PTHREADPOOL
#include <pthreadpool.h>
#endif

enum { THREADS = 3, TASKS = 200 };

static atomic_int runs[TASKS];
static atomic_int waiting;
static atomic_int met; /* tasks that saw another one before their time was over */

static void count_run(void *context, size_t index) {
    int *added = context;
    runs[index] += *added;
}

/* Two tasks that only end, before a time that no busy machine exceeds, if they run at the same time. */
static void meet(void *context, size_t index) {
    const time_t begin = time(NULL);
    (void)context, (void)index;
    waiting++;
    while (waiting < 2 && time(NULL) - begin < 60)
        ;
    met += time(NULL) - begin < 60;
}

static void check_executor(const char *name, const dynnorm_executor *executor) {
    int one = 1, right = 1;
    tap_check(executor->threads == THREADS && executor->least_elements == 0, "%s: %zu threads", name,
              executor->threads);
    for (int i = 0; i < TASKS; i++)
        runs[i] = 0;
    executor->parallel_for(executor->pool, count_run, &one, TASKS);
    for (int i = 0; i < TASKS; i++)
        right = right && runs[i] == 1;
    tap_check(right, "%s runs each of %d tasks once", name, TASKS);
    waiting = met = 0;
    executor->parallel_for(executor->pool, meet, NULL, 2);
    tap_check(met == 2, "%s runs two tasks at the same time", name);

    for (size_t k = 0; k < listed_kernel_count; k++) {
        const struct listed_kernel *kernel = &listed_kernels[k];
        if (kernel->mode != DYNNORM_PORTABLE)
            continue;
        struct test_call expected = new_call(kernel, 333, 200, 1), shared = new_call(kernel, 333, 200, 1);
        struct difference difference = {""};
        dynnorm_status status = run_call(kernel->direction, &expected.call);
        shared.call.executor = *executor;
        shared.call.executor.least_elements = 1;
        if (!status)
            status = run_call(kernel->direction, &shared.call);
        int differ = outputs_differ(&shared.call, &expected.call, kernel->direction, &difference);
        tap_check(!status && !differ, "%s by %s: %s %s", kernel->name, name, dynnorm_status_string(status),
                  difference.text);
        free_call(&shared);
        free_call(&expected);
    }
}

/* A function that has nothing to make an executor of leaves it alone. */
__attribute__((unused)) static void check_absent(const char *name, dynnorm_status status,
                                                 const dynnorm_executor *executor) {
    tap_check(status == DYNNORM_ERROR_LEFT_OUT && !executor->parallel_for && !executor->threads, "without %s: %s", name,
              dynnorm_status_string(status));
}

int main(void) {
    dynnorm_executor executor = {NULL, NULL, 0, 0};
    tap_check(dynnorm_openmp_executor(NULL, 1) == DYNNORM_ERROR_NULL_POINTER, "OpenMP, no place for the executor");
    tap_check(dynnorm_pthreadpool_executor(NULL, NULL) == DYNNORM_ERROR_NULL_POINTER,
              "pthreadpool, no place for the executor");

    dynnorm_status status = dynnorm_openmp_executor(&executor, THREADS);
#ifdef DYNNORM_HAVE_OPENMP
    tap_check(!status, "dynnorm_openmp_executor: %s", dynnorm_status_string(status));
    check_executor("OpenMP", &executor);
    status = dynnorm_openmp_executor(&executor, 0);
    tap_check(!status && executor.threads > 0, "OpenMP's own number of threads: %zu", executor.threads);
#else
    check_absent("OpenMP", status, &executor);
#endif

    executor = (dynnorm_executor){NULL, NULL, 0, 0};
#ifdef DYNNORM_HAVE_PTHREADPOOL
    pthreadpool_t pool = pthreadpool_create(THREADS);
    status = dynnorm_pthreadpool_executor(&executor, pool);
    tap_check(pool && !status, "dynnorm_pthreadpool_executor: %s", dynnorm_status_string(status));
    check_executor("pthreadpool", &executor);
    pthreadpool_destroy(pool);
    status = dynnorm_pthreadpool_executor(&executor, NULL);
    tap_check(!status && executor.threads == 1, "pthreadpool without a pool: %zu threads", executor.threads);
#else
    status = dynnorm_pthreadpool_executor(&executor, NULL);
    check_absent("pthreadpool", status, &executor);
#endif
    return tap_done();
}
