/* SPDX-License-Identifier: BSD-2-Clause */
#include "vec.h"

#include "operations/centered_dyisru.h"

#define FAMILY_CENTERED_DYISRU
#include "define_kernels.h"
