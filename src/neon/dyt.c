/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/dyt.h"
#include "rows/one_row_elementwise.h"

ONE_ELEMENTWISE_ROW(dyt)

#define FAMILY_DYT
#include "define_kernels.h"
