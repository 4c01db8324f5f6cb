/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The tasks that an executor runs.
 */
#ifndef DYNNORM_API_TASKS_H
#define DYNNORM_API_TASKS_H

#include "dynnorm.h"

#include <stddef.h>

/* How many tasks to make of work on so many elements that can be cut into so many units. 1 if the caller's thread is to
 * do it without the executor. */
enum { MOST_TASKS = 1 << 16 };
size_t dynnorm_tasks(const dynnorm_executor *executor, size_t elements, size_t units);

struct portion {
    size_t first;
    size_t count;
};

/* The portion of a task when units are shared among the tasks. No two portions differ by more than one unit, and larger
 * ones lie between smaller ones, since a pool may give neighbours to one thread. */
static inline struct portion dynnorm_portion(size_t units, size_t tasks, size_t task) {
    size_t each = units / tasks, more = units % tasks;
    size_t first = each * task + more * task / tasks, end = each * (task + 1) + more * (task + 1) / tasks;
    return (struct portion){first, end - first};
}

/* The same where a unit is made of several elements, such as a block of rows, and the last one of fewer. */
struct portion dynnorm_portion_of_elements(size_t elements, size_t unit, size_t tasks, size_t task);

static inline size_t dynnorm_units(size_t elements, size_t unit) {
    return elements / unit + (elements % unit != 0);
}

#endif
