/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What DyT and DyISRU share.
 */
#ifndef DYNNORM_ELEMENTWISE_H
#define DYNNORM_ELEMENTWISE_H

#include "operations/operation.h"

/* dx is h times the derivative of s f(x). The slope's power of two comes last: see functions/slope.h. */
INLINE vec elementwise_dx(vec h, const struct gradient *gradient, const struct row_constants *row,
                          const struct call_constants *call) {
    (void)row;
    return vec_mul(vec_mul(h, gradient->slope), vec_set(call->slope.power));
}

#endif
