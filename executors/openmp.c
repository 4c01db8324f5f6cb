/* SPDX-License-Identifier: BSD-2-Clause */
#include "dynnorm_executors.h"

#ifdef DYNNORM_HAVE_OPENMP

#include <limits.h>
#include <omp.h>
#include <stdint.h>

/* The pool is the number of threads. */
static void run_in_team(void *pool, dynnorm_task *task, void *context, size_t tasks) {
    const uintptr_t most = (uintptr_t)pool;
    const int threads = (int)(tasks < most ? tasks : most);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t i = 0; i < tasks; i++)
        task(context, i);
}

dynnorm_status dynnorm_openmp_executor(dynnorm_executor *executor, size_t threads) {
    if (!executor)
        return DYNNORM_ERROR_NULL_POINTER;
    if (!threads)
        threads = (size_t)omp_get_max_threads();
    threads = threads < INT_MAX ? threads : INT_MAX;
    *executor = (dynnorm_executor){run_in_team, (void *)(uintptr_t)threads, threads, 0};
    return DYNNORM_OK;
}

#else

dynnorm_status dynnorm_openmp_executor(dynnorm_executor *executor, size_t threads) {
    (void)threads;
    return executor ? DYNNORM_ERROR_LEFT_OUT : DYNNORM_ERROR_NULL_POINTER;
}

#endif
