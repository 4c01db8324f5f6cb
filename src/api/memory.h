/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Memory for the duration of a call. errno stays as it is.
 */
#ifndef DYNNORM_API_MEMORY_H
#define DYNNORM_API_MEMORY_H

#include <errno.h>
#include <stdlib.h>

static inline void *dynnorm_allocate(size_t bytes) {
    volatile int saved_errno = errno; /* clang assumes that malloc leaves errno alone */
    void *memory = malloc(bytes);
    errno = saved_errno;
    return memory;
}

static inline void dynnorm_release(void *memory) {
    int saved_errno = errno;
    free(memory);
    errno = saved_errno;
}

#endif
