/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Descriptors of earlier versions of the library, which end before the fields that later versions added.
 */
#ifndef DYNNORM_API_DESCRIPTOR_H
#define DYNNORM_API_DESCRIPTOR_H

#include "dynnorm.h"

/* Fills completed with the fields that *call has and the defaults of those that it lacks, and makes *call point to it.
 * Fails if *call is NULL or its size is unknown. */
dynnorm_status dynnorm_complete_descriptor(const dynnorm_descriptor **call, dynnorm_descriptor *completed);

/* Makes *call point to a descriptor of this version. One that already is of this version is not copied, so that an
 * ordinary call only costs a comparison. */
static inline dynnorm_status dynnorm_read_descriptor(const dynnorm_descriptor **call, dynnorm_descriptor *completed) {
    if (*call && (*call)->size == sizeof **call)
        return DYNNORM_OK;
    return dynnorm_complete_descriptor(call, completed);
}

#endif
