/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The arithmetic, written once. An instruction set's kernels.c includes its vec.h, then this file, then any kernel that
 * it does better by hand, then table.h.
 */
#ifndef DYNNORM_ARITHMETIC_H
#define DYNNORM_ARITHMETIC_H

#include "kernels.h"
#include "rows/floats.h"
#include "in_double/wide.h"

#include "rows/parameters.h"
#include "rows/row_sums.h"
#include "rows/rows.h"

#include "operations/norm.h"
#include "operations/layernorm.h"
#include "operations/rmsnorm.h"

#include "functions/tanh.h"
#include "operations/dyt.h"

#include "functions/inverse_square_root.h"
#include "operations/dyisru.h"

#endif
