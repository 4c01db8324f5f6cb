/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/layernorm.h"
#include "operations/rmsnorm.h"

#define FAMILY_NORMS
#include "define_kernels.h"
