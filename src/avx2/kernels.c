/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"
#include "arithmetic.h"

#define ISA_NAME "avx2"
#include "table.h"
