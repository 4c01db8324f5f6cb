/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"
#include "arithmetic.h"

#define ISA_NAME "scalar"
#include "table.h"
