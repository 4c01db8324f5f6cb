/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests when a call uses its executor, and when it does not: small calls, empty ones, wrong ones, ranges of rows, calls
 * without memory; and calls of several threads with one executor. That the bits are right is tested in rows.c.
 */
#include "call.h"
#include "executors.h"
#include "tap.h"

#include <errno.h>
#include <math.h>

static const struct listed_kernel *kernel;

/* A call of the kernel on an executor. */
struct shared_call {
    struct test_call test;
    struct test_pool pool;
    unsigned char *before; /* the memory as it was */
};

static struct shared_call *new_shared_call(size_t tokens, size_t channels, size_t least_elements) {
    struct shared_call *made = calloc(1, sizeof *made);
    if (!made)
        exit(2);
    made->test = new_call(kernel, tokens, channels, 1);
    made->pool.threads = 4;
    made->test.call.executor = test_executor(&made->pool, least_elements);
    allow_gaps(&made->test.memory);
    made->before = malloc(made->test.memory.bytes);
    if (!made->before)
        exit(2);
    memcpy(made->before, made->test.memory.start, made->test.memory.bytes);
    return made;
}

static int is_untouched(const struct shared_call *shared) {
    return !memcmp(shared->before, shared->test.memory.start, shared->test.memory.bytes);
}

static void free_shared_call(struct shared_call *shared) {
    free(shared->before);
    free_call(&shared->test);
    free(shared);
}

/* ---- How many tasks there are ------------------------------------------------------------------------------------ */

static void expect_tasks(size_t tokens, size_t channels, size_t least_elements, size_t expected) {
    struct shared_call *shared = new_shared_call(tokens, channels, least_elements);
    dynnorm_status status = run_call(kernel->direction, &shared->test.call);
    tap_check(!status && shared->pool.calls == (expected > 1) && (expected == 1 || shared->pool.tasks == expected),
              "%s, %zu tokens, %zu channels, least_elements %zu: %zu tasks in %zu calls of parallel_for, expected %zu",
              kernel->name, tokens, channels, least_elements, (size_t)shared->pool.tasks, (size_t)shared->pool.calls,
              expected);
    free_shared_call(shared);
}

static void check_task_counts(void) {
    expect_tasks(511, 128, 0, 1);
    expect_tasks(512, 128, 0, 2);
    expect_tasks(4 * 256, 128, 0, 4);
    expect_tasks(7 * 256, 128, 0, 4); /* not 7, since one of four threads would then have one task, and three two */
    expect_tasks(8 * 256, 128, 0, 8);
    expect_tasks(8 * 256, 128, 8 * 256 * 128, 1);
    expect_tasks(8 * 256, 128, SIZE_MAX, 1);
    if (kernel->direction == FORWARD_PASS) {
        expect_tasks(2, 40000, 0, 2);
        expect_tasks(33, 7, 1, 16); /* four for each thread */
        expect_tasks(5, 7, 1, 5);
        expect_tasks(1, 100000, 0, 1);
    } else {
        expect_tasks(32, 40000, 0, 1); /* one block of rows */
    }
}

/* The sums of many channels are added by tasks as well. */
static void check_finishing(void) {
    struct shared_call *shared = new_shared_call(96, 4000, 0);
    dynnorm_status status = run_call(kernel->direction, &shared->test.call);
    size_t expected = kernel->direction == BACKWARD_PASS && dynnorm_operations[kernel->operation].has_bias ? 2 : 1;
    /* Three blocks of rows with two sums of 4000 channels are 24000 sums, which are too few. */
    tap_check(!status && shared->pool.calls == 1, "%s of 24000 sums: %zu calls of parallel_for", kernel->name,
              (size_t)shared->pool.calls);
    free_shared_call(shared);
    shared = new_shared_call(320, 4000, 0);
    status = run_call(kernel->direction, &shared->test.call);
    tap_check(!status && shared->pool.calls == expected && (expected == 1 || shared->pool.tasks == 2),
              "%s of 80000 sums: %zu calls of parallel_for, %zu tasks", kernel->name, (size_t)shared->pool.calls,
              (size_t)shared->pool.tasks);
    free_shared_call(shared);
}

/* ---- Calls that do not use it ------------------------------------------------------------------------------------ */

static void set_no_threads(dynnorm_descriptor *call) {
    call->executor.threads = 0;
}

static void set_no_parallel_for(dynnorm_descriptor *call) {
    call->executor.parallel_for = NULL;
}

static void set_no_x(dynnorm_descriptor *call) {
    call->x.data = NULL;
}

static void set_overlap(dynnorm_descriptor *call) {
    float *weight = call->weight.data;
    call->y.data = call->dx.data = weight + 1;
}

static void set_weight_offset(dynnorm_descriptor *call) {
    call->weight_offset = NAN;
}

static void check_errors(void) {
    static const struct {
        dynnorm_status status;
        void (*make)(dynnorm_descriptor *call);
    } errors[] = {
        {DYNNORM_ERROR_EXECUTOR, set_no_threads},         {DYNNORM_ERROR_EXECUTOR, set_no_parallel_for},
        {DYNNORM_ERROR_NULL_POINTER, set_no_x},           {DYNNORM_ERROR_OVERLAP, set_overlap},
        {DYNNORM_ERROR_WEIGHT_OFFSET, set_weight_offset},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct shared_call *shared = new_shared_call(100, 200, 1);
        errors[i].make(&shared->test.call);
        dynnorm_status status = run_call(kernel->direction, &shared->test.call);
        tap_check(status == errors[i].status && !shared->pool.calls && is_untouched(shared),
                  "%s, a wrong call: expected \"%s\", got \"%s\"; %zu calls of parallel_for; outputs %s", kernel->name,
                  dynnorm_status_string(errors[i].status), dynnorm_status_string(status), (size_t)shared->pool.calls,
                  is_untouched(shared) ? "untouched" : "written");
        free_shared_call(shared);
    }
}

/* Sums over no tokens are 0. */
static void check_no_tokens(void) {
    struct shared_call *shared = new_shared_call(0, 200, 1);
    dynnorm_descriptor *call = &shared->test.call;
    dynnorm_status status = run_call(kernel->direction, call);
    int right = !status && !shared->pool.calls;
    for (int i = 0; i < BUFFERS; i++)
        if (writes(kernel->operation, kernel->direction, &buffers[i]))
            for (size_t at = 0; at < buffer_bytes(call, &buffers[i]) / sizeof(float); at++)
                right = right && float_at(buffer_data(call, &buffers[i]), at) == 0;
    tap_check(right, "%s of no tokens: %s", kernel->name, dynnorm_status_string(status));
    free_shared_call(shared);
}

static void check_ranges(void) {
    struct shared_call *shared = new_shared_call(100, 200, 1);
    dynnorm_descriptor *call = &shared->test.call;
    dynnorm_status status = DYNNORM_OK;
    if (kernel->direction == FORWARD_PASS) {
        status = dynnorm_forward_rows(call, 0, 100);
    } else {
        dynnorm_workspace_size(call, &call->workspace_size);
        call->workspace = malloc(call->workspace_size);
        status = dynnorm_backward_rows(call, 0, 100);
        if (!status)
            status = dynnorm_backward_finish(call);
    }
    tap_check(!status && !shared->pool.calls, "%s of a range of rows ignores the executor: %s", kernel->name,
              dynnorm_status_string(status));
    free(call->workspace);
    free_shared_call(shared);
}

/* ---- Calls whose rows go through buffers, which each task has for itself ------------------------------------------
 */

/* Rows so long that their buffers are allocated. Zeros are added to x, or to dx. */
static struct shared_call *new_buffered_call(float *zeros) {
    struct shared_call *made = new_shared_call(40, 9000, 1);
    if (kernel->direction == FORWARD_PASS)
        made->test.call.residual.data = zeros;
    else
        made->test.call.dsum.data = zeros;
    return made;
}

static void check_buffers(void) {
    float *zeros = calloc(40 * 9000, sizeof *zeros);
    struct shared_call *shared = new_buffered_call(zeros);
    struct test_call expected = new_call(kernel, 40, 9000, 1);
    struct difference difference = {""};
    shared->pool.order = ON_THREADS;
    expected.call.residual = shared->test.call.residual;
    expected.call.dsum = shared->test.call.dsum;
    dynnorm_status status = run_call(kernel->direction, &expected.call);
    if (!status)
        status = run_call(kernel->direction, &shared->test.call);
    int differ = outputs_differ(&shared->test.call, &expected.call, kernel->direction, &difference);
    tap_check(!status && !differ && shared->pool.calls, "%s through buffers: %s %s", kernel->name,
              dynnorm_status_string(status), difference.text);
    free_call(&expected);
    free_shared_call(shared);
    free(zeros);
}

/* Sums over tokens that become elements of 16 bits, added to what is there. */
static void check_typed_sums(void) {
    enum { TOKENS = 100, CHANNELS = 2000, BYTES = CHANNELS * 2 };
    if (kernel->direction == FORWARD_PASS)
        return;
    struct shared_call *calls[2];
    int right = 1;
    for (int i = 0; i < 2; i++) {
        calls[i] = new_shared_call(TOKENS, CHANNELS, i ? 1 : SIZE_MAX);
        dynnorm_descriptor *call = &calls[i]->test.call;
        calls[i]->pool.order = ON_THREADS;
        call->dweight.type = call->dbias.type = DYNNORM_BF16;
        call->accumulate_dweight = call->accumulate_dbias = 1;
        memset(call->dweight.data, 0x3f, BYTES);
        if (call->dbias.data)
            memset(call->dbias.data, 0x3f, BYTES);
        right = right && run_call(kernel->direction, call) == DYNNORM_OK;
    }
    const dynnorm_descriptor *alone = &calls[0]->test.call, *shared = &calls[1]->test.call;
    right = right && !calls[0]->pool.calls && calls[1]->pool.calls == 2;
    right = right && !memcmp(alone->dweight.data, shared->dweight.data, BYTES);
    right = right && (!alone->dbias.data || !memcmp(alone->dbias.data, shared->dbias.data, BYTES));
    tap_check(right, "%s, sums of bfloat16: the bits of one thread", kernel->name);
    free_shared_call(calls[1]);
    free_shared_call(calls[0]);
}

/* ---- Without memory ---------------------------------------------------------------------------------------------- */

#ifdef DYNNORM_TEST_WRAP_MALLOC

/* The linker's --wrap=malloc sends every call of malloc to __wrap_malloc, and gives malloc the name __real_malloc. */
void *__wrap_malloc(size_t bytes);
void *__real_malloc(size_t bytes);

static int memory_is_out;

void *__wrap_malloc(size_t bytes) {
    return memory_is_out ? NULL : __real_malloc(bytes);
}

static void check_allocation(void) {
    struct shared_call *shared = new_shared_call(100, 2000, 1);
    dynnorm_descriptor *call = &shared->test.call;
    dynnorm_status expected = kernel->direction == BACKWARD_PASS ? DYNNORM_ERROR_OUT_OF_MEMORY : DYNNORM_OK;
    memory_is_out = 1;
    dynnorm_status status = run_call(kernel->direction, call);
    memory_is_out = 0;
    tap_check(status == expected && (status == DYNNORM_OK || (!shared->pool.calls && is_untouched(shared))),
              "%s, out of memory: %s", kernel->name, dynnorm_status_string(status));
    if (status) {
        dynnorm_workspace_size(call, &call->workspace_size);
        call->workspace = malloc(call->workspace_size);
        memory_is_out = 1;
        status = run_call(kernel->direction, call);
        memory_is_out = 0;
        tap_check(!status && shared->pool.calls, "%s, out of memory, with a workspace: %s", kernel->name,
                  dynnorm_status_string(status));
        free(call->workspace);
    }
    free_shared_call(shared);

    float *zeros = calloc(40 * 9000, sizeof *zeros);
    shared = new_buffered_call(zeros);
    memory_is_out = 1;
    status = run_call(kernel->direction, &shared->test.call);
    memory_is_out = 0;
    tap_check(status == DYNNORM_ERROR_OUT_OF_MEMORY && !shared->pool.calls && is_untouched(shared),
              "%s, out of memory for buffers: %s", kernel->name, dynnorm_status_string(status));
    free_shared_call(shared);
    free(zeros);
}

#else

static void check_allocation(void) {
    tap_skip(kernel->name, "this linker cannot redirect malloc");
}

#endif

/* ---- Several threads with one executor --------------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    struct test_pool *pool;
    const dynnorm_descriptor *expected;
    int wrong;
};

static void *call_on_pool(void *argument) {
    struct caller *caller = argument;
    struct test_call made = new_call(kernel, 100, 530, 1);
    struct difference difference;
    made.call.executor = test_executor(caller->pool, 1);
    caller->wrong = run_call(kernel->direction, &made.call) != DYNNORM_OK ||
                    outputs_differ(&made.call, caller->expected, kernel->direction, &difference);
    free_call(&made);
    return NULL;
}

static void check_several_callers(void) {
    enum { CALLERS = 3 };
    struct test_pool pool = {.order = ON_THREADS, .threads = 3};
    struct test_call expected = new_call(kernel, 100, 530, 1);
    struct caller callers[CALLERS];
    int wrong = run_call(kernel->direction, &expected.call) != DYNNORM_OK;
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.pool = &pool, .expected = &expected.call};
        if (pthread_create(&callers[i].thread, NULL, call_on_pool, &callers[i]))
            exit(2);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        wrong |= callers[i].wrong;
    }
    tap_check(!wrong && pool.calls >= CALLERS, "%s, %d callers of one executor", kernel->name, CALLERS);
    free_call(&expected);
}

int main(void) {
    for (size_t k = 0; k < listed_kernel_count; k++) {
        kernel = &listed_kernels[k];
        if (kernel->mode != DYNNORM_PORTABLE)
            continue;
        if (!thinned() || kernel->operation == DYNNORM_LAYERNORM) { /* these compute many elements */
            check_task_counts();
            check_finishing();
            check_buffers();
            check_allocation();
        }
        check_errors();
        check_no_tokens();
        check_ranges();
        check_typed_sums();
        check_several_callers();
    }
    return tap_done();
}
