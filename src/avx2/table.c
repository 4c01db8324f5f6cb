/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#define ISA_NAME "avx2"
#include "define_table.h"
