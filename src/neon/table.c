/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#define ISA_NAME "neon"
#include "define_table.h"
