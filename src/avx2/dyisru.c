/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/dyisru.h"

#define FAMILY_DYISRU
#include "define_kernels.h"
