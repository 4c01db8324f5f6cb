/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The end of every kernels.c: the table of its instruction set, from kernels.def. DYNNORM_TABLE, from the build, is its
 * identifier; ISA_NAME its public name.
 */
#ifndef DYNNORM_TABLE_H
#define DYNNORM_TABLE_H

#ifndef VEC_HAVE_SLEEF
#define dyt_forward_sleef NULL
#define dyt_backward_sleef NULL
#endif

#define CONCATENATE_(a, b) a##b
#define CONCATENATE(a, b) CONCATENATE_(a, b)

const struct kernels CONCATENATE(dynnorm_kernels_, DYNNORM_TABLE) = {
    .isa = ISA_NAME,
    .add_sums = add_sums,
    .finish_sums = finish_sums,
#define FORWARD(operation, mode) .forward[operation_##operation][mode_##mode] = operation##_forward_##mode,
#define BACKWARD(operation, mode) .backward[operation_##operation][mode_##mode] = operation##_backward_##mode,
#include "kernels.def"
};

#endif
