/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/dyt.h"

#define FAMILY_DYT
#include "define_kernels.h"
