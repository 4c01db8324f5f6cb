/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Makes the kernels' tensors from those of the descriptor.
 */
#ifndef DYNNORM_API_TENSORS_H
#define DYNNORM_API_TENSORS_H

#include "dynnorm.h"
#include "element_types.h"
#include "rows/tensor.h"

#include <stdint.h>

/* Fills in where the rows of one of the call's tensors lie, on as few axes as possible: axes of one row are left out,
 * and axes that continue one another are merged. axis_strides is the descriptor's field for this tensor. Gives 0 if the
 * tensor extends over more than MOST_FLOATS. The call's tokens, channels and axes have been checked before. */
int dynnorm_place_rows(const dynnorm_descriptor *call, const dynnorm_tensor *described, const size_t *axis_strides,
                       struct tensor *tensor);

/* The same where it is known that the rows lie on one axis, without gaps. */
static inline void dynnorm_place_close_rows(const dynnorm_descriptor *call, const dynnorm_tensor *described,
                                            struct tensor *tensor) {
    tensor->data = described->data;
    tensor->element_bytes = dynnorm_element_bytes(described->type);
    tensor->axes = 1;
    tensor->rows[0] = call->tokens;
    tensor->strides[0] = call->channels;
}

/* Whether two tensors are the same data, with every row at the same place. */
int dynnorm_same_rows(const struct tensor *a, const struct tensor *b);

/* Elements from the beginning of the first row in memory to that of the last. The tensor has rows. */
static inline size_t dynnorm_last_row(const struct tensor *tensor) {
    size_t offset = 0;
    for (size_t axis = 0; axis < tensor->axes; axis++)
        offset += (tensor->rows[axis] - 1) * tensor->strides[axis];
    return offset;
}

#endif
