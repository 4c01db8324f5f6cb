/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/tensors.h"
#include "element_types.h"

static int place_on_one_axis(const dynnorm_descriptor *call, const dynnorm_tensor *described, struct tensor *tensor) {
    size_t stride = described->row_stride ? described->row_stride : call->channels;
    tensor->axes = 1;
    tensor->rows[0] = call->tokens;
    tensor->strides[0] = call->tokens > 1 ? stride : call->channels;
    /* The tokens times the channels are known to fit. */
    return call->tokens < 2 || stride == call->channels ||
           stride <= (MOST_FLOATS - call->channels) / (call->tokens - 1);
}

/* Adds the next axis outwards. */
static void add_axis(struct tensor *tensor, size_t rows, size_t stride) {
    size_t last = tensor->axes - 1;
    if (tensor->axes && stride == tensor->rows[last] * tensor->strides[last]) {
        tensor->rows[last] *= rows;
    } else {
        tensor->rows[tensor->axes] = rows;
        tensor->strides[tensor->axes++] = stride;
    }
}

int dynnorm_place_rows(const dynnorm_descriptor *call, const dynnorm_tensor *described, const size_t *axis_strides,
                       struct tensor *tensor) {
    tensor->data = described->data;
    tensor->element_bytes = dynnorm_element_bytes(described->type);
    if (!axis_strides || !call->tokens)
        return place_on_one_axis(call, described, tensor);
    size_t room = MOST_FLOATS - call->channels;
    tensor->axes = 0;
    for (size_t axis = 0; axis < call->axes; axis++) {
        size_t rows = call->axis_rows[axis], stride = axis_strides[axis];
        if (rows == 1)
            continue;
        if (stride > room / (rows - 1))
            return 0;
        room -= stride * (rows - 1);
        add_axis(tensor, rows, stride);
    }
    if (!tensor->axes)
        add_axis(tensor, 1, call->channels);
    return 1;
}

int dynnorm_same_rows(const struct tensor *a, const struct tensor *b) {
    int same = a->data == b->data && a->element_bytes == b->element_bytes && a->axes == b->axes;
    for (size_t axis = 0; same && axis < a->axes; axis++)
        same = a->rows[axis] == b->rows[axis] && a->strides[axis] == b->strides[axis];
    return same;
}
