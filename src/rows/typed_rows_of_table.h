/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How rows of any type are read and written: see typed_rows.h. It is compiled once for each table.
 */
#ifndef DYNNORM_TYPED_ROWS_OF_TABLE_H
#define DYNNORM_TYPED_ROWS_OF_TABLE_H

#include "rows/typed_rows.h"

INLINE unsigned char *address_of_typed_row(const struct tensor *tensor, const struct typed_place *place, int row) {
    return address_of_row(tensor, place->first_row + (size_t)row) + place->channels.first * tensor->element_bytes;
}

/* Whether these channels of all rows lie in memory one after the other. */
INLINE int is_without_gaps(const struct tensor *tensor, const struct typed_place *place) {
    return tensor->axes == 1 && tensor->strides[0] == place->channels.count;
}

/* Rows without gaps have none in their buffer either, so that they are converted at once. Others begin a cache line. */
INLINE size_t stride_of_typed_rows(const struct tensor *tensor, const struct typed_place *place) {
    const size_t count = place->channels.count;
    return is_without_gaps(tensor, place) ? count : stride_of_whole_lines(count);
}

/* Nothing need be there. */
INLINE void prefetch_elements(const void *elements, size_t bytes) {
    for (size_t i = 0; i < bytes; i += FLOATS_OF_LINE * sizeof(float))
        __builtin_prefetch((const void *)((uintptr_t)elements + i), 0, 3);
}

/* Of a row, or of several that are one after the other. */
INLINE void widen_elements(float *floats, const struct conversion *conversion, const unsigned char *elements,
                           size_t rows, const struct tensor *tensor, const struct typed_place *place) {
    const ptrdiff_t ahead = place->rows_ahead * (ptrdiff_t)tensor->strides[0] + place->channels_ahead;
    conversion->widen(floats, elements, rows * place->channels.count);
    if (ahead)
        prefetch_elements((const void *)((uintptr_t)elements + (uintptr_t)ahead * tensor->element_bytes),
                          rows * place->count_ahead * tensor->element_bytes);
}

OUTLINED void read_typed_tensor(const float **floats, const struct tensor *tensor, const struct conversion *conversion,
                                float *buffer, const struct typed_place *place) {
    const size_t stride = stride_of_typed_rows(tensor, place);
    const int rows = place->rows;
    if (conversion && is_without_gaps(tensor, place))
        widen_elements(buffer, conversion, address_of_typed_row(tensor, place, 0), (size_t)rows, tensor, place);
    else
        for (int row = 0; row < rows; row++) {
            const unsigned char *const elements = address_of_typed_row(tensor, place, row);
            if (conversion)
                widen_elements(buffer + (size_t)row * stride, conversion, elements, 1, tensor, place);
            else
                floats[row] = (const float *)elements;
        }
    for (int row = 0; conversion && row < rows; row++)
        floats[row] = buffer + (size_t)row * stride;
}

void READ_TYPED_ROWS(const struct backward_arguments *arguments, const struct typed_place *place, const float **x,
                     const float **dy, float **dx) {
    const struct typed_tensors *typed = arguments->typed;
    const size_t stride = stride_of_typed_rows(&arguments->dx, place);
    read_typed_tensor(x, &arguments->x, typed->x, typed->buffers, place);
    read_typed_tensor(dy, &arguments->dy, typed->dy, typed->buffers + typed->room, place);
    float *const room = typed->buffers + 2 * typed->room;
    for (int row = 0; row < place->rows; row++)
        dx[row] = room + (size_t)row * stride;
    if (typed->dsum.data && arguments->streams && place->rows > 1) /* one row is read for its sums alone, mostly */
        for (int row = 0; row < place->rows; row++)
            prefetch_elements(address_of_typed_row(&typed->dsum, place, row),
                              place->channels.count * typed->dsum.element_bytes);
}

void WRITE_TYPED_ROWS(const struct backward_arguments *arguments, const struct typed_place *place, float *const *dx) {
    const struct typed_tensors *typed = arguments->typed;
    const struct conversion *conversion = typed->dx;
    const size_t count = place->channels.count;
    const int is_sum = arguments->accumulate_dx || typed->dsum.data;
    const int lies_alike = place->rows == 1 || dx[1] == dx[0] + count;
    if (!arguments->dx.data)
        return;
    if (!is_sum && lies_alike && is_without_gaps(&arguments->dx, place)) {
        conversion->narrow(address_of_typed_row(&arguments->dx, place, 0), dx[0], (size_t)place->rows * count,
                           arguments->streams);
        return;
    }
    for (int row = 0; row < place->rows; row++) {
        unsigned char *const to = address_of_typed_row(&arguments->dx, place, row);
        if (arguments->accumulate_dx)
            conversion->add(dx[row], dx[row], to, count);
        if (typed->dsum.data)
            typed->of_dsum->add(dx[row], dx[row], address_of_typed_row(&typed->dsum, place, row), count);
        conversion->narrow(to, dx[row], count, arguments->streams);
    }
}

#endif
