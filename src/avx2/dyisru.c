/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/dyisru.h"
#include "rows/one_row_elementwise.h"

ONE_ELEMENTWISE_ROW(dyisru)

#define FAMILY_DYISRU
#include "define_kernels.h"
