/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/descriptor.h"
#include "inlining.h"

#include <string.h>

/* The sizes of the descriptors of all versions. A version that adds fields adds a row: the offset of its first new
   field is the size that its predecessor had. */
static const size_t known_sizes[] = {
    offsetof(dynnorm_descriptor, axes), /* 0.1.0 */
    sizeof(dynnorm_descriptor),         /* 0.2.0 */
};

static int is_known(size_t size) {
    for (size_t i = 0; i < sizeof known_sizes / sizeof *known_sizes; i++)
        if (size == known_sizes[i])
            return 1;
    return 0;
}

FOR_SIZE dynnorm_status dynnorm_complete_descriptor(const dynnorm_descriptor **call, dynnorm_descriptor *completed) {
    if (!*call)
        return DYNNORM_ERROR_NULL_DESCRIPTOR;
    size_t size = (*call)->size;
    if (!is_known(size))
        return DYNNORM_ERROR_DESCRIPTOR;
    *completed = (dynnorm_descriptor)DYNNORM_DESCRIPTOR_INIT;
    memcpy(completed, *call, size);
    completed->size = sizeof *completed;
    *call = completed;
    return DYNNORM_OK;
}

FOR_SIZE dynnorm_status dynnorm_descriptor_init(dynnorm_descriptor *call, size_t size) {
    if (!call)
        return DYNNORM_ERROR_NULL_DESCRIPTOR;
    if (!is_known(size))
        return DYNNORM_ERROR_DESCRIPTOR;
    const dynnorm_descriptor defaults = DYNNORM_DESCRIPTOR_INIT;
    memcpy(call, &defaults, size);
    call->size = size;
    return DYNNORM_OK;
}
