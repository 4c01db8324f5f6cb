/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/layernorm.h"
#include "operations/rmsnorm.h"
#include "rows/one_row_normalization.h"

#define FAMILY_NORMS
#include "define_kernels.h"
