/* SPDX-License-Identifier: BSD-2-Clause */
#include "listed_kernels.h"
#include "element_types.h"

const struct listed_kernel listed_kernels[] = {
#define KERNEL(operation, direction, mode, backward)                                                                   \
    {#operation "_" #direction, #operation, #mode, (dynnorm_operation)operation_##operation,                           \
     (dynnorm_mode)mode_##mode, backward},
#define FORWARD(operation, mode, ...) KERNEL(operation, forward, mode, 0)
#define BACKWARD(operation, mode, ...) KERNEL(operation, backward, mode, 1)
#include "kernels.def"
};

const size_t listed_kernel_count = sizeof listed_kernels / sizeof *listed_kernels;

const struct listed_halves listed_halves[] = {
#define OF_TYPE(operation, mode, type)                                                                                 \
    {{#operation "_forward", #operation, #mode, (dynnorm_operation)operation_##operation, (dynnorm_mode)mode_##mode,   \
      0},                                                                                                              \
     (dynnorm_type)type_##type},
#define FORWARD_HALVES(operation, mode, driver) OF_TYPE(operation, mode, bf16) OF_TYPE(operation, mode, f16)
#include "kernels.def"
};

const size_t listed_halves_count = sizeof listed_halves / sizeof *listed_halves;

int has_own_kernel(const struct kernels *table, const struct listed_kernel *kernel) {
    return kernel->backward ? table->backward[kernel->operation][kernel->mode] != NULL
                            : table->forward[kernel->operation][kernel->mode] != NULL;
}
