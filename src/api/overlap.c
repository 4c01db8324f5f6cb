/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A tensor's bytes form a lattice: each is the sum of a byte's offset in its row and, for each axis, a multiple of that
 * axis's stride. Two tensors share a byte if the difference of two such sums can be 0. Where both have the same strides
 * these differences form a lattice themselves, on the same axes with about twice the count, so that one question
 * answers everything: is this number an element of that lattice?
 */
#include "api/overlap.h"
#include "inlining.h"

struct axis {
    size_t count;
    size_t stride; /* in bytes */
};

/* The numbers begin + i[0] axis[0].stride + i[1] axis[1].stride + ..., with each i[k] below axis[k].count. Strides
   ascend; axis[0] are the bytes of a row, so its stride is 1. */
struct lattice {
    size_t axes;
    struct axis axis[1 + MOST_AXES];
};

/* ---- Lattices ---- */

static size_t span(const struct lattice *lattice, size_t axes) {
    size_t sum = 0;
    for (size_t k = 0; k < axes; k++)
        sum += (lattice->axis[k].count - 1) * lattice->axis[k].stride;
    return sum;
}

/* Whether number is an element of the lattice made of the first axes. Of the last of them only those indices are tried
   from which the others can reach the number: few, unless rows of one axis lie among those of another. */
FOR_SIZE static int contains(const struct lattice *lattice, size_t axes, size_t number) {
    if (axes == 1)
        return number < lattice->axis[0].count;
    struct axis last = lattice->axis[axes - 1];
    size_t reach = span(lattice, axes - 1);
    size_t first_index = number > reach ? (number - reach - 1) / last.stride + 1 : 0;
    for (size_t i = first_index; i < last.count && i * last.stride <= number; i++)
        if (contains(lattice, axes - 1, number - i * last.stride))
            return 1;
    return 0;
}

/* Adds an axis whose stride is not smaller than those before. If it only continues or repeats what the last one
   reaches, it is merged with it. A tensor without gaps then has one axis, its bytes. */
static void add_axis(struct lattice *lattice, struct axis added) {
    struct axis *last = &lattice->axis[lattice->axes - 1];
    if (added.stride % last->stride == 0 && added.stride / last->stride <= last->count)
        last->count += added.stride / last->stride * (added.count - 1);
    else
        lattice->axis[lattice->axes++] = added;
}

/* The axes of a tensor, by ascending stride. */
static size_t sorted_axes(const struct tensor *tensor, struct axis axes[MOST_AXES]) {
    for (size_t k = 0; k < tensor->axes; k++) {
        struct axis axis = {tensor->rows[k], tensor->strides[k] * tensor->element_bytes};
        size_t place = k;
        for (; place > 0 && axes[place - 1].stride > axis.stride; place--)
            axes[place] = axes[place - 1];
        axes[place] = axis;
    }
    return tensor->axes;
}

static struct lattice lattice_of(const struct buffer *buffer) {
    struct lattice lattice = {1, {{buffer->row_bytes, 1}}};
    if (buffer->tensor) {
        struct axis axes[MOST_AXES];
        size_t count = sorted_axes(buffer->tensor, axes);
        for (size_t k = 0; k < count; k++)
            add_axis(&lattice, axes[k]);
    }
    return lattice;
}

/* Makes the lattice of the differences between elements of a and of b, shifted so that it begins at 0. Gives 0 unless
   the strides of one are among those of the other. */
static int subtract(const struct lattice *a, const struct lattice *b, struct lattice *differences) {
    size_t most = a->axes > b->axes ? a->axes : b->axes;
    differences->axes = 0;
    for (size_t i = 0, j = 0; i < a->axes || j < b->axes;) {
        if (differences->axes == most)
            return 0;
        struct axis *axis = &differences->axis[differences->axes++];
        if (j == b->axes || (i < a->axes && a->axis[i].stride < b->axis[j].stride)) {
            *axis = a->axis[i++];
        } else if (i == a->axes || b->axis[j].stride < a->axis[i].stride) {
            *axis = b->axis[j++];
        } else {
            *axis = a->axis[i++];
            axis->count += b->axis[j++].count - 1;
        }
    }
    return 1;
}

/* ---- Buffers ---- */

FOR_SIZE int dynnorm_share_bytes(const struct buffer *a, const struct buffer *b) {
    struct lattice of_a = lattice_of(a), of_b = lattice_of(b), differences;
    /* A byte of a minus a byte of b is 0 where a's offset minus b's is b->begin - a->begin. The least of the
       differences of offsets, which the lattice has at 0, is minus the span of b. */
    return !subtract(&of_a, &of_b, &differences) ||
           contains(&differences, differences.axes, b->begin - a->begin + span(&of_b, of_b.axes));
}

FOR_SIZE int dynnorm_rows_share_bytes(const struct buffer *buffer) {
    struct axis axes[MOST_AXES];
    size_t count = sorted_axes(buffer->tensor, axes);
    /* The differences between bytes of two rows whose indices agree on all axes from k on, shifted by their greatest
       value, which is reach. Two rows whose indices differ by i on axis k share a byte if one of them is i strides. */
    struct lattice differences = {1, {{2 * buffer->row_bytes - 1, 1}}};
    size_t reach = buffer->row_bytes - 1;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 1; i < axes[k].count && i * axes[k].stride <= reach; i++)
            if (contains(&differences, differences.axes, reach + i * axes[k].stride))
                return 1;
        differences.axis[differences.axes++] = (struct axis){2 * axes[k].count - 1, axes[k].stride};
        reach += (axes[k].count - 1) * axes[k].stride;
    }
    return 0;
}
