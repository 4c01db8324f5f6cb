/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Test results in the Test Anything Protocol, which meson reads: one line per case.
 */
#ifndef DYNNORM_TEST_TAP_H
#define DYNNORM_TEST_TAP_H

#include <stdarg.h>
#include <stdio.h>

static int tap_cases;
static int tap_failures;

/* Reports one case, named by a format; gives back whether it passed. */
__attribute__((format(printf, 2, 3))) static inline int tap_check(int passed, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("%sok %d - ", passed ? "" : "not ", ++tap_cases);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    tap_failures += !passed;
    return passed;
}

/* Reports one case that this machine or build cannot run. */
static inline void tap_skip(const char *name, const char *why) {
    printf("ok %d - %s # SKIP %s\n", ++tap_cases, name, why);
}

/* Closes the report; the program's exit status. */
static inline int tap_done(void) {
    printf("1..%d\n", tap_cases);
    return tap_failures != 0;
}

#endif
