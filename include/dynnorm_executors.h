/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Executors for dynnorm's descriptor, by OpenMP and by pthreadpool. They are a library of their own, dynnorm_executors,
 * so that libdynnorm itself needs neither.
 *
 *     dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
 *     ...
 *     dynnorm_openmp_executor(&call.executor, 0);
 *     dynnorm_forward(&call);
 *
 * Both functions write all of the executor, or leave it as it is if they return an error. The errors are NULL_POINTER
 * where executor is NULL, and LEFT_OUT where this library was built without OpenMP or without pthreadpool. They may be
 * called from any number of threads at once. An executor may be copied, and serves any number of calls.
 */
#ifndef DYNNORM_EXECUTORS_H
#define DYNNORM_EXECUTORS_H

#include "dynnorm.h"

#include <stddef.h>

#if defined _WIN32 && defined DYNNORM_SHARED
#ifdef DYNNORM_BUILDING_EXECUTORS
#define DYNNORM_EXECUTORS_API __declspec(dllexport)
#else
#define DYNNORM_EXECUTORS_API __declspec(dllimport)
#endif
#elif defined __GNUC__ && defined DYNNORM_BUILDING_EXECUTORS
#define DYNNORM_EXECUTORS_API __attribute__((visibility("default")))
#else
#define DYNNORM_EXECUTORS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The threads of OpenMP: so many, or as many as OpenMP would use by itself (OMP_NUM_THREADS) if threads is 0. A call
 * inside of a parallel region runs on the thread that makes it, unless the program allows nested regions. Each thread
 * takes the next task when it is done with one. Any number of threads may make calls at the same time, but each of them
 * has a team of its own. */
DYNNORM_EXECUTORS_API dynnorm_status dynnorm_openmp_executor(dynnorm_executor *executor, size_t threads);

/* The threads of a pool that pthreadpool_create made, which must exist as long as the executor is used. pthreadpool_t
 * is a pointer to this structure. NULL, as everywhere in pthreadpool, stands for no other thread than the caller's.
 * Calls of several threads with one pool wait for each other. */
struct pthreadpool;
DYNNORM_EXECUTORS_API dynnorm_status dynnorm_pthreadpool_executor(dynnorm_executor *executor, struct pthreadpool *pool);

#ifdef __cplusplus
}
#endif

#endif
