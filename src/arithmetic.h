/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The arithmetic, written once. An instruction set's kernels.c includes its vec.h, then this file, then any kernel that
 * it does better by hand, then table.h.
 */
#ifndef DYNNORM_ARITHMETIC_H
#define DYNNORM_ARITHMETIC_H

#include "kernels.h"
#include "floats.h"
#include "wide.h"

#include "parameters.h"
#include "row_sums.h"
#include "rows.h"

#include "norm.h"
#include "layernorm.h"
#include "rmsnorm.h"

#include "tanh.h"
#include "dyt.h"

#include "inverse_square_root.h"
#include "dyisru.h"

#endif
