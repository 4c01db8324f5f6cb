/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How a program lends its threads to the library: an executor made of a small pool of C11's threads. Where there is no
 * <threads.h> the pool is made of POSIX threads.
 *
 * The library needs one function of a pool: one that calls a task for each index of a range, on several threads at
 * once, and returns when all of these calls have returned. This pool has a thread less than it counts, since the thread
 * that makes the call takes tasks as well. The program checks that the results are those of one thread, bit for bit.
 */
#include <dynnorm.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef EXAMPLE_HAS_C11_THREADS
#include <threads.h>
#else
#include <pthread.h>
typedef pthread_t thrd_t;
typedef pthread_mutex_t mtx_t;
typedef pthread_cond_t cnd_t;
enum { thrd_success = 0, mtx_plain = 0 };
#define thrd_create(thread, function, argument) pthread_create(thread, NULL, function, argument)
#define thrd_join(thread, result) pthread_join(thread, result)
#define mtx_init(mutex, type) pthread_mutex_init(mutex, NULL)
#define mtx_lock pthread_mutex_lock
#define mtx_unlock pthread_mutex_unlock
#define mtx_destroy pthread_mutex_destroy
#define cnd_init(condition) pthread_cond_init(condition, NULL)
#define cnd_wait pthread_cond_wait
#define cnd_signal pthread_cond_signal
#define cnd_broadcast pthread_cond_broadcast
#define cnd_destroy pthread_cond_destroy
#endif

enum { THREADS = 4, TOKENS = 1000, CHANNELS = 768 };

/* ---- The pool ---------------------------------------------------------------------------------------------------- */

struct pool {
    thrd_t threads[THREADS - 1];
    mtx_t mutex;
    cnd_t begin, end;
    size_t work;    /* counts the calls of parallel_for; guarded by the mutex, as is all but next_task */
    size_t working; /* threads that have not finished the current one */
    int stops;
    dynnorm_task *task;
    void *context;
    size_t tasks;
    atomic_size_t next_task;
};

static void stop(const char *what) {
    fprintf(stderr, "executor: %s\n", what);
    exit(EXIT_FAILURE);
}

static void take_tasks(struct pool *pool) {
    size_t index;
    while ((index = atomic_fetch_add(&pool->next_task, 1)) < pool->tasks)
        pool->task(pool->context, index);
}

/* What each thread of the pool does. */
#ifdef EXAMPLE_HAS_C11_THREADS
static int run_thread(void *argument) {
#else
static void *run_thread(void *argument) {
#endif
    struct pool *pool = argument;
    size_t done = 0;
    mtx_lock(&pool->mutex);
    for (;;) {
        while (pool->work == done && !pool->stops)
            cnd_wait(&pool->begin, &pool->mutex);
        if (pool->stops)
            break;
        done = pool->work;
        mtx_unlock(&pool->mutex);
        take_tasks(pool);
        mtx_lock(&pool->mutex);
        if (--pool->working == 0)
            cnd_signal(&pool->end);
    }
    mtx_unlock(&pool->mutex);
    return 0;
}

/* The function that the library needs. */
static void parallel_for(void *argument, dynnorm_task *task, void *context, size_t tasks) {
    struct pool *pool = argument;
    mtx_lock(&pool->mutex);
    pool->task = task;
    pool->context = context;
    pool->tasks = tasks;
    atomic_store(&pool->next_task, 0);
    pool->working = THREADS - 1;
    pool->work++;
    cnd_broadcast(&pool->begin);
    mtx_unlock(&pool->mutex);
    take_tasks(pool);
    mtx_lock(&pool->mutex);
    while (pool->working)
        cnd_wait(&pool->end, &pool->mutex);
    mtx_unlock(&pool->mutex);
}

static void start_pool(struct pool *pool) {
    mtx_init(&pool->mutex, mtx_plain);
    cnd_init(&pool->begin);
    cnd_init(&pool->end);
    for (int i = 0; i < THREADS - 1; i++)
        if (thrd_create(&pool->threads[i], run_thread, pool) != thrd_success)
            stop("cannot start a thread");
}

static void stop_pool(struct pool *pool) {
    mtx_lock(&pool->mutex);
    pool->stops = 1;
    cnd_broadcast(&pool->begin);
    mtx_unlock(&pool->mutex);
    for (int i = 0; i < THREADS - 1; i++)
        thrd_join(pool->threads[i], NULL);
    cnd_destroy(&pool->end);
    cnd_destroy(&pool->begin);
    mtx_destroy(&pool->mutex);
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

/* What the two passes compute. */
struct results {
    float y[TOKENS * CHANNELS];
    float dx[TOKENS * CHANNELS];
    float dweight[CHANNELS];
    float dbias[CHANNELS];
};

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        stop("out of memory");
    return memory;
}

static void require_ok(dynnorm_status status) {
    if (status != DYNNORM_OK)
        stop(dynnorm_status_string(status));
}

/* Computes the forward and the backward pass as the call says, with or without an executor. */
static struct results *compute(dynnorm_descriptor call) {
    struct results *results = allocate(sizeof *results);
    call.y.data = results->y;
    call.dx.data = results->dx;
    call.dweight.data = results->dweight;
    call.dbias.data = results->dbias;
    require_ok(dynnorm_forward(&call));
    require_ok(dynnorm_backward(&call));
    return results;
}

int main(void) {
    float *x = allocate(sizeof(float) * TOKENS * CHANNELS);
    float *dy = allocate(sizeof(float) * TOKENS * CHANNELS);
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        x[i] = (float)(i % 1009) / 1009;
        dy[i] = (float)(i % 997) / 997;
    }

    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    call.tokens = TOKENS;
    call.channels = CHANNELS;
    call.x.data = x;
    call.dy.data = dy;
    call.eps = 1e-5f;
    struct results *alone = compute(call);

    struct pool *pool = allocate(sizeof *pool);
    start_pool(pool);
    call.executor.parallel_for = parallel_for;
    call.executor.pool = pool;
    call.executor.threads = THREADS;
    struct results *shared = compute(call);

    int same = memcmp(shared, alone, sizeof *alone) == 0;
    printf("%d rows of %d channels, in %zu calls of parallel_for on %d threads: %s\n", TOKENS, CHANNELS, pool->work,
           THREADS, same ? "bit for bit as on one thread" : "NOT the bits of one thread");

    stop_pool(pool);
    free(shared);
    free(pool);
    free(alone);
    free(dy);
    free(x);
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
