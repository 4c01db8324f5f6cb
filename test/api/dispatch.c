/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The choice of instruction set: what dynnorm_isas, dynnorm_isa, dynnorm_set_isa and DYNNORM_ISA do, and whether the
 * library really runs the table of the name that it reports.
 *
 * The choice is made at first use, so each case about it runs in a process of its own, forked before this one has used
 * the library.
 */
#define _POSIX_C_SOURCE 200809L
#include "dispatch/dispatch.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CAPACITY = 16 };

static const char *const public_names[] = {"scalar", "avx2", "avx512", "neon"};
enum { PUBLIC_NAMES = sizeof public_names / sizeof *public_names };

/* The table that a name stands for: the best of that name which runs here. With NULL, the best of all. */
static const struct isa *best_table(const char *name) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        if ((!name || !strcmp(dynnorm_isa_list[i].kernels->isa, name)) && dynnorm_isa_runs_here(&dynnorm_isa_list[i]))
            return &dynnorm_isa_list[i];
    return NULL;
}

static int in_use(const struct isa *table) {
    return dynnorm_active_kernels() == table->kernels && !strcmp(dynnorm_isa(), table->kernels->isa);
}

/* Starts a new process in which DYNNORM_ISA has this value, or none for NULL. Returns the index of the table that it
 * then uses, or -1. */
static int table_chosen_with(const char *variable) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (variable)
            setenv("DYNNORM_ISA", variable, 1);
        else
            unsetenv("DYNNORM_ISA");
        for (size_t i = 0; i < dynnorm_isa_count; i++)
            if (in_use(&dynnorm_isa_list[i]))
                _exit((int)i);
        _exit(255);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 255)
        return -1;
    return WEXITSTATUS(status);
}

static void check_choice(const char *what, const char *variable, const struct isa *expected) {
    int chosen = table_chosen_with(variable);
    tap_check(chosen == expected - dynnorm_isa_list, "%s: expected table %s, got %s", what, expected->identifier,
              chosen < 0 ? "none" : dynnorm_isa_list[chosen].identifier);
}

static void check_variable(void) {
    check_choice("no DYNNORM_ISA", NULL, best_table(NULL));
    for (int i = 0; i < PUBLIC_NAMES; i++) {
        const struct isa *table = best_table(public_names[i]);
        char what[80];
        snprintf(what, sizeof what, "DYNNORM_ISA=%s, which %s", public_names[i],
                 table ? "runs here" : "cannot run here");
        check_choice(what, public_names[i], table ? table : best_table(NULL));
    }
    static const char *const unknown[] = {"", "sse9", "avx", "avx5120", "scalar ", "avx2,scalar"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char what[80];
        snprintf(what, sizeof what, "DYNNORM_ISA=\"%s\", unknown", unknown[i]);
        check_choice(what, unknown[i], best_table(NULL));
    }
}

static void check_names(void) {
    const char *names[CAPACITY] = {0};
    size_t count = dynnorm_isas(names, CAPACITY);
    tap_check(count >= 1 && count <= PUBLIC_NAMES, "dynnorm_isas counts %zu", count);
    tap_check(dynnorm_isas(NULL, 0) == count, "dynnorm_isas counts the same without room for names");
    tap_check(dynnorm_isas(NULL, CAPACITY) == count, "dynnorm_isas counts the same with nowhere to write names");

    size_t expected = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        if (best_table(dynnorm_isa_list[i].kernels->isa) == &dynnorm_isa_list[i]) {
            tap_check(expected < count && !strcmp(names[expected], dynnorm_isa_list[i].kernels->isa),
                      "dynnorm_isas, place %zu: %s", expected, dynnorm_isa_list[i].kernels->isa);
            expected++;
        }
    tap_check(expected == count, "dynnorm_isas has each name that runs here once");
    tap_check(count && !strcmp(names[count - 1], "scalar"), "plain C comes last");

    for (size_t capacity = 0; capacity <= count; capacity++) {
        const char *some[CAPACITY + 1];
        for (int i = 0; i <= CAPACITY; i++)
            some[i] = "untouched";
        size_t counted = dynnorm_isas(some, capacity);
        int same = counted == count && !strcmp(some[capacity], "untouched");
        for (size_t i = 0; i < capacity; i++)
            same = same && !strcmp(some[i], names[i]);
        tap_check(same, "dynnorm_isas with room for %zu of %zu", capacity, count);
    }
}

/* Each table has kernels of its own. If two tables shared them, a comparison of the two would prove nothing. */
static void check_tables_differ(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct kernels *a = dynnorm_isa_list[i].kernels, *b = dynnorm_isa_list[j].kernels;
            int shared = a == b;
#define FORWARD(operation, mode, ...)                                                                                  \
    shared += a->forward[operation_##operation][mode_##mode] &&                                                        \
              a->forward[operation_##operation][mode_##mode] == b->forward[operation_##operation][mode_##mode];
#define BACKWARD(operation, mode, ...)                                                                                 \
    shared += a->backward[operation_##operation][mode_##mode] &&                                                       \
              a->backward[operation_##operation][mode_##mode] == b->backward[operation_##operation][mode_##mode];
#define ONE_ROW(operation, define) shared += a->operation##_row == b->operation##_row;
#include "kernels.def"
            tap_check(shared == 0, "tables %s and %s share no function", dynnorm_isa_list[i].identifier,
                      dynnorm_isa_list[j].identifier);
        }
}

static void check_set_isa(void) {
    const struct isa *first = best_table(NULL);
    tap_check(in_use(first), "at first %s is in use", first->identifier);
    for (int i = 0; i < PUBLIC_NAMES; i++) {
        const struct isa *table = best_table(public_names[i]);
        dynnorm_status status = dynnorm_set_isa(public_names[i]);
        if (table)
            tap_check(status == DYNNORM_OK && in_use(table), "dynnorm_set_isa(\"%s\"): table %s runs: status %d",
                      public_names[i], table->identifier, (int)status);
        else
            tap_check(status == DYNNORM_ERROR_ISA_UNAVAILABLE, "dynnorm_set_isa(\"%s\") is unavailable: status %d",
                      public_names[i], (int)status);

        const struct kernels *before = dynnorm_active_kernels();
        static const char *const unknown[] = {"", "sse9", "avx", "scalar "};
        for (size_t u = 0; u < sizeof unknown / sizeof *unknown; u++) {
            status = dynnorm_set_isa(unknown[u]);
            tap_check(status == DYNNORM_ERROR_ISA_UNKNOWN && dynnorm_active_kernels() == before,
                      "dynnorm_set_isa(\"%s\") is unknown, and changes nothing: status %d", unknown[u], (int)status);
        }
        for (int other = 0; other < PUBLIC_NAMES; other++)
            if (!best_table(public_names[other])) {
                dynnorm_set_isa(public_names[other]);
                tap_check(dynnorm_active_kernels() == before, "dynnorm_set_isa(\"%s\"), unavailable, changes nothing",
                          public_names[other]);
            }
    }
    tap_check(dynnorm_set_isa("scalar") == DYNNORM_OK && dynnorm_set_isa(NULL) == DYNNORM_OK && in_use(first),
              "dynnorm_set_isa(NULL) means the best one, %s", first->identifier);
}

/* In a new process in which DYNNORM_ISA chose plain C, dynnorm_set_isa(NULL) still chooses the best one. */
static void check_best_despite_variable(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("DYNNORM_ISA", "scalar", 1);
        int right = in_use(best_table("scalar"));
        right = right && dynnorm_set_isa(NULL) == DYNNORM_OK && in_use(best_table(NULL));
        _exit(right ? 0 : 1);
    }
    int status = -1;
    tap_check(child > 0 && waitpid(child, &status, 0) == child && status == 0,
              "dynnorm_set_isa(NULL) means the best one, whatever DYNNORM_ISA names");
}

/* In a new process, dynnorm_set_isa overrides DYNNORM_ISA even as the very first call. */
static void check_set_before_first_use(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("DYNNORM_ISA", best_table(NULL)->kernels->isa, 1);
        int right = dynnorm_set_isa("scalar") == DYNNORM_OK && in_use(best_table("scalar"));
        right = right && dynnorm_set_isa(NULL) == DYNNORM_OK && in_use(best_table(NULL));
        _exit(right ? 0 : 1);
    }
    int status = -1;
    tap_check(child > 0 && waitpid(child, &status, 0) == child && status == 0,
              "dynnorm_set_isa as the first call of all");
}

int main(void) {
    unsetenv("DYNNORM_ISA");
    check_variable();
    check_best_despite_variable();
    check_set_before_first_use();
    check_names();
    check_tables_differ();
    check_set_isa();
    tap_check(!strcmp(dynnorm_version(), DYNNORM_VERSION_STRING), "dynnorm_version is the header's");
    return tap_done();
}
