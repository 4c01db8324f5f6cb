/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Vectors with a lane for each row of a group, for what rows have one of. They are those of the instruction set, but no
 * longer than a group: of a longer vector half is taken, since its other lanes would take time and stand for no row.
 */
#ifndef DYNNORM_GROUP_VECTORS_H
#define DYNNORM_GROUP_VECTORS_H

#include "vec.h"

#ifdef VEC_HAVE_HALVES
typedef half_vec group_vec;
typedef eight group_wide;
enum { GROUP_LANES = LANES / 2 };
#define GROUP_VEC(operation) half_vec_##operation
#define GROUP_WIDE(operation) eight_##operation
#else
typedef vec group_vec;
typedef wide group_wide;
enum { GROUP_LANES = LANES };
#define GROUP_VEC(operation) vec_##operation
#define GROUP_WIDE(operation) wide_##operation
#endif

/* The operations that are needed; there are no others of halves. */
#define group_vec_load_n GROUP_VEC(load_n)
#define group_vec_store GROUP_VEC(store)
#define group_vec_set GROUP_VEC(set)
#define group_vec_mul GROUP_VEC(mul)
#define group_vec_abs GROUP_VEC(abs)
#define group_vec_bits_minus GROUP_VEC(bits_minus)
#define group_vec_max_bits GROUP_VEC(max_bits)
#define group_vec_any_bits_above GROUP_VEC(any_bits_above)
#define group_vec_select_outside GROUP_VEC(select_outside)
#define group_vec_widen GROUP_VEC(widen)
#define group_wide_set GROUP_WIDE(set)
#define group_wide_load GROUP_WIDE(load)
#define group_wide_narrow GROUP_WIDE(narrow)
#define group_wide_add GROUP_WIDE(add)
#define group_wide_sub GROUP_WIDE(sub)
#define group_wide_mul GROUP_WIDE(mul)
#define group_wide_fma GROUP_WIDE(fma)

#endif
