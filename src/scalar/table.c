/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#define ISA_NAME "scalar"
#include "define_table.h"
