/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/tasks.h"

/* Handing two empty tasks to two threads of a Zen 4 took 0.2 us with threads that wait in a loop, 0.35 us with
   pthreadpool and 0.65 us with gcc's OpenMP; 0.8, 1.0 and 1.8 us where the two cores had no cache in common; and 28 us
   where OpenMP's threads had gone to sleep. (The medians of 2000 calls of parallel_for, by the clock of the calling
   thread.) The pass that takes the least time for an element is RMSNorm's forward pass in the caches: 2.9 us for
   33,000. Two tasks of 16,500 took 0.6 to 0.8 of that, but 0.9 to 1.2 without a cache in common; two tasks of 33,000
   took 0.6 to 0.9 of the time of one thread with either. */
enum { LEAST_ELEMENTS_OF_TASK = 32768, MOST_TASKS_OF_THREAD = 4 };

size_t dynnorm_tasks(const dynnorm_executor *executor, size_t elements, size_t units) {
    if (!executor->parallel_for || executor->threads < 2)
        return 1;
    size_t least = executor->least_elements ? executor->least_elements : LEAST_ELEMENTS_OF_TASK;
    size_t tasks = elements / least, threads = executor->threads;
    /* More tasks than threads are a multiple of them, or some threads would have one more task than the others. */
    if (tasks > threads)
        tasks = tasks / threads < MOST_TASKS_OF_THREAD ? tasks / threads * threads : MOST_TASKS_OF_THREAD * threads;
    tasks = tasks < units ? tasks : units;
    tasks = tasks < MOST_TASKS ? tasks : MOST_TASKS;
    return tasks ? tasks : 1;
}

struct portion dynnorm_portion_of_elements(size_t elements, size_t unit, size_t tasks, size_t task) {
    struct portion portion = dynnorm_portion(dynnorm_units(elements, unit), tasks, task);
    portion.first *= unit;
    size_t left = elements - portion.first;
    portion.count = portion.count > left / unit ? left : portion.count * unit;
    return portion;
}
