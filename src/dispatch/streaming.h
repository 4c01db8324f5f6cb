/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Whether a call stores its largest output past the caches.
 */
#ifndef DYNNORM_STREAMING_H
#define DYNNORM_STREAMING_H

#include "dynnorm.h"

int dynnorm_streams_y(const dynnorm_descriptor *call);
int dynnorm_streams_dx(const dynnorm_descriptor *call);

#endif
