/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The inner loops of the kernels, for bench/model, which compiles this file to assembly and never runs it. A function
 * KERNEL__PART holds one loop, between two marks. The loops call the arithmetic of src/; only the walk over whole
 * blocks of channels is written again, without the cases that are not the usual one.
 */
#include "vec.h"

#include "arithmetic.h"

/* One pass of the loop that follows takes so many elements of x. Where the compiler leaves the loop over the parts of
 * 16 channels, so many passes of that one do. */
#define MARK(elements, passes) __asm__ volatile("# MODEL %c0 %c1" : : "i"(elements), "i"(passes))

#define PART static __attribute__((used, no_icf)) void

/* Tells the compiler. */
INLINE void surely(int condition) {
    if (!condition)
        __builtin_unreachable();
}

/* ---- The loops. Contexts come by value: a kernel has them where no store of its own reaches them, too. ---- */

struct forward_pointers {
    float *y;
    const float *x;
    const float *weight;
    const float *bias;
    size_t channels;
};

/* y of one row. */
INLINE void row_of_y(struct forward_pointers p, int has_bias, forward_function *function, const void *context) {
    const int step = FORWARD_VECTORS * LANES;
    surely(p.bias != NULL);
    MARK(FORWARD_VECTORS * LANES, 1);
    for (size_t i = 0; i + step <= p.channels; i += step)
        forward_vectors(p.y + i, p.x + i, p.weight + i, has_bias ? p.bias + i : NULL, FORWARD_VECTORS, 0, function,
                        context);
}

struct row_pointers {
    const float *x;
    const float *dy;
    const float *weight;
    size_t channels;
};

/* The sums of one row. */
INLINE void row_sums(struct sum_lanes *result, struct row_pointers p, int which, float shift, h_function *h) {
    const struct summed_row row = {.x = p.x, .shift = vec_set(shift), .h = h, .context = p.dy};
    struct sum_lanes lanes;
    clear_sums(&lanes);
    MARK(BLOCK, 16 / LANES);
    for (size_t first = 0; first + BLOCK <= p.channels; first += BLOCK)
        sum_channels(&lanes, which, &row, p.weight + first, first, BLOCK);
    *result = lanes;
}

struct backward_pointers {
    struct row_group group;
    const float *weight;
    struct partial_sums sums;
    size_t channels;
};

/* dx of four rows, and what they add to the sums over tokens. */
INLINE void group_of_dx(const struct backward_pointers *given, const struct backward_operation *operation,
                        const void *contexts) {
    struct backward_pointers p = *given;
    p.group.is_first = 0;
    p.sums.gradients = NULL;
    p.group.streams = 0;
    for (int i = 0; i < 4; i++) {
        surely(p.group.dx[i] != NULL);
        p.group.context[i] = (const char *)contexts + i * operation->context_size;
    }
    surely(p.sums.dweight && p.sums.dbias);
    wide p_sums[16 / LANES];
    for (int part = 0; part < 16 / LANES; part++)
        p_sums[part] = wide_set(0);
    MARK(4 * 16, 16 / LANES);
    for (size_t i = 0; i + 16 <= p.channels; i += 16)
        for (size_t part = 0; part < 16 / LANES; part++)
            backward_step(&p.group, 4, i + LANES * part, LANES, 1, p.weight + i + LANES * part, operation, 0, &p.sums,
                          p_sums + part, NULL);
    if (operation->has_p)
        *p.sums.dparameter = wide_sum(p_sums);
}

/* ---- LayerNorm and RMSNorm, backward with the statistics that forward gave ---- */

#define NORM(norm, centered, which_backward)                                                                           \
    PART norm##_forward_portable__sums(struct sum_lanes *result, struct row_pointers p) {                              \
        row_sums(result, p, norm_sums(centered), 0, NULL);                                                             \
    }                                                                                                                  \
    PART norm##_forward_portable__y(struct forward_pointers p, struct norm_row context) {                              \
        row_of_y(p, centered, norm##_normalize, &context);                                                             \
    }                                                                                                                  \
    PART norm##_backward_portable__sums(struct sum_lanes *result, struct row_pointers p, float shift) {                \
        row_sums(result, p, which_backward, (centered) ? shift : 0, weighted_dy);                                      \
    }                                                                                                                  \
    PART norm##_backward_portable__dx(struct backward_pointers p, const struct norm_row *given) {                      \
        const struct backward_operation operation = {.gradient = norm##_gradient, .context_size = sizeof *given};      \
        const struct norm_row contexts[4] = {given[0], given[1], given[2], given[3]};                                  \
        group_of_dx(&p, &operation, contexts);                                                                         \
    }

NORM(layernorm, 1, SUM_X | SUM_H | SUM_HX | IN_FLOATS)
NORM(rmsnorm, 0, SUM_HX | IN_FLOATS)

/* ---- DyT and DyISRU ---- */

#define ELEMENTWISE_FORWARD(operation, mode)                                                                           \
    PART operation##_forward_##mode##__y(struct forward_pointers p, struct operation context) {                        \
        row_of_y(p, 1, operation##_function_##mode, &context);                                                         \
    }

#define ELEMENTWISE_BACKWARD(name, mode, wide_factor_or_null)                                                          \
    PART name##_backward_##mode##__dx(struct backward_pointers p, struct name context) {                               \
        const struct backward_operation operation = {.gradient = name##_gradient_##mode,                               \
                                                     .wide_factor = wide_factor_or_null,                               \
                                                     .is_elementwise = 1,                                              \
                                                     .has_p = 1,                                                       \
                                                     .power = context.slope.power};                                    \
        group_of_dx(&p, &operation, &context);                                                                         \
    }

ELEMENTWISE_FORWARD(dyt, portable)
ELEMENTWISE_BACKWARD(dyt, portable, NULL)
ELEMENTWISE_BACKWARD(dyt, native, NULL)
ELEMENTWISE_FORWARD(dyisru, portable)
ELEMENTWISE_BACKWARD(dyisru, portable, dyisru_wide_factor)
ELEMENTWISE_FORWARD(dyisru, native)
ELEMENTWISE_BACKWARD(dyisru, native, dyisru_wide_factor)

/* ---- The general DyISRU ---- */

#define CENTERED(mode)                                                                                                 \
    PART centered_dyisru_forward_##mode##__statistics(struct sum_lanes *result, struct row_pointers p) {               \
        row_sums(result, p, norm_sums(1), 0, NULL);                                                                    \
    }                                                                                                                  \
    PART centered_dyisru_forward_##mode##__y(struct forward_pointers p, struct centered_row context) {                 \
        row_of_y(p, 1, centered_dyisru_function_##mode, &context);                                                     \
    }                                                                                                                  \
    PART centered_dyisru_backward_##mode##__statistics(struct sum_lanes *result, struct row_pointers p) {              \
        row_sums(result, p, norm_sums(1), 0, NULL);                                                                    \
    }                                                                                                                  \
    /* The kernel takes du in blocks, and looks before each vector whether the row ends in it. */                      \
    PART centered_dyisru_backward_##mode##__du(float *result, struct row_pointers p, struct centered_row row) {        \
        struct parameter weight;                                                                                       \
        weight.values = p.weight;                                                                                      \
        weight.offset = 0;                                                                                             \
        surely(weight.values != NULL);                                                                                 \
        struct centered_du du;                                                                                         \
        du.x = p.x, du.dy = p.dy, du.weight = &weight, du.row = &row;                                                  \
        MARK(LANES, 1);                                                                                                \
        for (size_t i = 0; i + LANES <= p.channels; i += LANES)                                                        \
            memcpy(result + i, centered_du_block_##mode(&du, i, LANES), LANES * sizeof *result);                       \
    }                                                                                                                  \
    PART centered_dyisru_backward_##mode##__sum(struct sum_lanes *result, struct row_pointers p) {                     \
        row_sums(result, p, SUM_H | IN_FLOATS, 0, centered_du_term);                                                   \
    }                                                                                                                  \
    PART centered_dyisru_backward_##mode##__dx(struct backward_pointers p, const struct centered_row *given) {         \
        const struct backward_operation operation = {.gradient = centered_gradient_##mode,                             \
                                                     .wide_factor = centered_wide_factor,                              \
                                                     .context_size = sizeof *given,                                    \
                                                     .has_p = 1};                                                      \
        const struct centered_row contexts[4] = {given[0], given[1], given[2], given[3]};                              \
        group_of_dx(&p, &operation, contexts);                                                                         \
    }

CENTERED(portable)
CENTERED(native)
