/* SPDX-License-Identifier: BSD-2-Clause
 *
 * First use from 64 threads at once, and calls that run while another thread changes the instruction set. Meant to be
 * run under ThreadSanitizer as well (meson setup -Db_sanitize=thread).
 */
#define _POSIX_C_SOURCE 200809L
#include "call.h"
#include "tap.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64, ISA_CAPACITY = 8, TOKENS = 33, CHANNELS = 100 };

/* A gate that opens for all threads at once. */
static struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    int waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void wait_for_all_threads(void) {
    pthread_mutex_lock(&gate.mutex);
    if (++gate.waiting == THREADS)
        pthread_cond_broadcast(&gate.opened);
    while (gate.waiting < THREADS)
        pthread_cond_wait(&gate.opened, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* What a thread is told, and computes, at first use. */
struct first_use {
    pthread_t thread;
    int index; /* threads call different functions first, each of which has to make the choice */
    const char *isa;
    size_t isas;
    float y[CHANNELS];
    dynnorm_status status;
};

static void *use_first(void *argument) {
    struct first_use *use = argument;
    float x[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        x[i] = (float)(i % 17 - 8);
    wait_for_all_threads();
    if (use->index % 3 == 0)
        use->isa = dynnorm_isa();
    else if (use->index % 3 == 1)
        use->isas = dynnorm_isas(NULL, 0);
    use->status = dynnorm_rmsnorm_forward_f32(use->y, NULL, x, NULL, 1e-6f, 1, CHANNELS);
    use->isa = dynnorm_isa();
    use->isas = dynnorm_isas(NULL, 0);
    return NULL;
}

/* Whether 64 threads that use the library for the first time, all at once, are told the same. */
static int first_use_agrees(void) {
    static struct first_use uses[THREADS];
    for (int i = 0; i < THREADS; i++) {
        uses[i].index = i;
        if (pthread_create(&uses[i].thread, NULL, use_first, &uses[i]))
            return 0;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(uses[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        if (uses[i].status != DYNNORM_OK || strcmp(uses[i].isa, dynnorm_isa()) ||
            uses[i].isas != dynnorm_isas(NULL, 0) || memcmp(uses[i].y, uses[0].y, sizeof uses[i].y))
            return 0;
    return 1;
}

/* In a process of its own, which has not used the library before. */
static void check_first_use(const char *variable) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (variable)
            setenv("DYNNORM_ISA", variable, 1);
        else
            unsetenv("DYNNORM_ISA");
        _exit(first_use_agrees() && (!variable || !strcmp(dynnorm_isa(), variable)) ? 0 : 1);
    }
    int status = -1;
    int exited = child > 0 && waitpid(child, &status, 0) == child;
    tap_check(exited && status == 0, "first use from %d threads at once, DYNNORM_ISA %s: exit status %d", THREADS,
              variable ? variable : "not set", status);
}

/* ---- Calls while the instruction set changes --------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    const struct listed_kernel *kernel;
    const dynnorm_descriptor *expected;
    int calls;
    int wrong;
    struct difference difference;
};

static void *call_repeatedly(void *argument) {
    struct caller *caller = argument;
    enum direction direction = caller->kernel->direction;
    dynnorm_descriptor call = describe(caller->kernel, TOKENS, CHANNELS);
    struct memory memory = allocate_buffers(&call, direction, 0);
    fill_inputs(&call, direction, 1);
    for (int i = 0; i < caller->calls && !caller->wrong; i++)
        caller->wrong = run_call(direction, &call) != DYNNORM_OK ||
                        outputs_differ(&call, caller->expected, direction, &caller->difference);
    free(memory.start);
    return NULL;
}

static void *change_isa(void *argument) {
    const int *changes = argument;
    const char *names[ISA_CAPACITY];
    size_t count = dynnorm_isas(names, ISA_CAPACITY);
    for (int i = 0; i < *changes; i++) {
        size_t choice = (size_t)i % (count + 1);
        dynnorm_set_isa(choice == count ? NULL : names[choice]);
        dynnorm_isa();
    }
    return NULL;
}

static void check_changing_isa(void) {
    /* The portable kernels give the same bits with any table; so the answers may not change with it. */
    for (size_t k = 0; k < listed_kernel_count; k++) {
        const struct listed_kernel *kernel = &listed_kernels[k];
        if (kernel->mode != DYNNORM_PORTABLE)
            continue;
        dynnorm_descriptor expected = describe(kernel, TOKENS, CHANNELS);
        struct memory memory = allocate_buffers(&expected, kernel->direction, 0);
        fill_inputs(&expected, kernel->direction, 1);
        dynnorm_status status = run_call(kernel->direction, &expected);

        enum { CALLERS = 3 };
        struct caller callers[CALLERS];
        int changes = thinned() ? 50 : 1000;
        pthread_t changer;
        int started = pthread_create(&changer, NULL, change_isa, &changes) == 0;
        for (int i = 0; i < CALLERS; i++) {
            callers[i] = (struct caller){.kernel = kernel, .expected = &expected, .calls = thinned() ? 10 : 200};
            started = started && pthread_create(&callers[i].thread, NULL, call_repeatedly, &callers[i]) == 0;
        }
        if (!started) {
            fputs("cannot start a thread\n", stderr);
            exit(2);
        }
        pthread_join(changer, NULL);
        const struct caller *wrong = NULL;
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(callers[i].thread, NULL);
            if (callers[i].wrong)
                wrong = &callers[i];
        }
        tap_check(status == DYNNORM_OK && !wrong, "%s while the instruction set changes: %s", kernel->name,
                  wrong ? wrong->difference.text : "one answer");
        free(memory.start);
    }
    dynnorm_set_isa(NULL);
}

int main(void) {
    int repeats = thinned() ? 2 : 20;
    for (int i = 0; i < repeats; i++)
        check_first_use(NULL);
    check_first_use("scalar");
    check_changing_isa();
    return tap_done();
}
