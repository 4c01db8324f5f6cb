/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"
#include "arithmetic.h"

#define ISA_NAME "avx512"
#include "table.h"
