/* SPDX-License-Identifier: BSD-2-Clause */
#include "dynnorm_executors.h"

#ifdef DYNNORM_HAVE_PTHREADPOOL

#include <pthreadpool.h>

/* No flags: above all not the one that lets the threads flush denormals to zero, which would change bits. */
static void run_in_pool(void *pool, dynnorm_task *task, void *context, size_t tasks) {
    pthreadpool_parallelize_1d(pool, task, context, tasks, 0);
}

dynnorm_status dynnorm_pthreadpool_executor(dynnorm_executor *executor, struct pthreadpool *pool) {
    if (!executor)
        return DYNNORM_ERROR_NULL_POINTER;
    *executor = (dynnorm_executor){run_in_pool, pool, pthreadpool_get_threads_count(pool), 0};
    return DYNNORM_OK;
}

#else

dynnorm_status dynnorm_pthreadpool_executor(dynnorm_executor *executor, struct pthreadpool *pool) {
    (void)pool;
    return executor ? DYNNORM_ERROR_LEFT_OUT : DYNNORM_ERROR_NULL_POINTER;
}

#endif
