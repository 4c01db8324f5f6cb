/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the kernels are called: dynnorm_<table>_<operation>_<direction>_<mode>. The build defines DYNNORM_TABLE as the
 * table's identifier.
 */
#ifndef DYNNORM_KERNEL_NAMES_H
#define DYNNORM_KERNEL_NAMES_H

#include "vec.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define IN_TABLE(name) JOIN(JOIN(dynnorm_, DYNNORM_TABLE), name)

/* What hardly needs the instruction that scalar_fma has and scalar lacks is compiled once for both. Where all tables
 * are in one file each of them has structures of its own, so that only conversions between types can be shared. */
#define IS_SCALAR_WITH_FMA_scalar_fma 1
#define SHARES_CONVERSIONS JOIN(IS_SCALAR_WITH_FMA_, DYNNORM_TABLE)
#ifdef DYNNORM_ONE_FILE
#define SHARES_DRIVERS 0
#else
#define SHARES_DRIVERS SHARES_CONVERSIONS
#endif

#if SHARES_CONVERSIONS
#define CONVERSIONS dynnorm_scalar_conversions
#define QUANTIZE dynnorm_scalar_quantize
#else
#define CONVERSIONS IN_TABLE(_conversions)
#define QUANTIZE IN_TABLE(_quantize)
#endif

#if SHARES_DRIVERS
#define SHARED(name) dynnorm_scalar##name
#else
#define SHARED(name) IN_TABLE(name)
#endif

#define FORWARD_KERNEL(operation, mode) IN_TABLE(_##operation##_forward_##mode)
#define HALVES_KERNEL(operation, mode) IN_TABLE(_##operation##_forward_##mode##_halves)
#define BACKWARD_KERNEL(operation, mode) IN_TABLE(_##operation##_backward_##mode)
#define ONE_ROW_KERNEL(operation) IN_TABLE(_##operation##_one_row)
#define BACKWARD_ANY SHARED(_backward_any)
#define FIND_CENTERED_BLOCK SHARED(_find_centered_block)
#define DU_OF_SLOW_ROW SHARED(_du_of_slow_row)
#define FORWARD_ELEMENTWISE SHARED(_forward_elementwise)
#define FORWARD_REST_OF_ROW SHARED(_forward_rest_of_row)
#define FORWARD_UNUSUAL_ROWS IN_TABLE(_forward_unusual_rows)
#define FORWARD_TINY_ROW IN_TABLE(_forward_tiny_row)
#define DYISRU_CHANNEL_PARAMETERS IN_TABLE(_dyisru_channel_parameters)
#define DYISRU_TINY_VECTORS(mode) IN_TABLE(_dyisru_##mode##_tiny_vectors)
#define DYISRU_UNUSUAL_VECTORS(mode) IN_TABLE(_dyisru_##mode##_unusual_vectors)
#define BACKWARD_ELEMENTWISE SHARED(_backward_elementwise)
#define ANY_ELEMENTWISE_BLOCK SHARED(_any_elementwise_block)
#define ANY_BLOCK_OF_HALVES SHARED(_any_block_of_halves)
#define RARE_ELEMENTWISE_STEP SHARED(_rare_elementwise_step)
#define RARE_SINGLE_ROW_STEP SHARED(_rare_single_row_step)
#define ADD_FLOATS SHARED(_add_floats)
#define STREAM_BUFFER SHARED(_stream_buffer)
#ifndef DYNNORM_WITHOUT_TYPES
#define READ_TYPED_ROWS SHARED(_read_typed_rows)
#define WRITE_TYPED_ROWS SHARED(_write_typed_rows)
#endif
#define ORDER_VECTOR IN_TABLE(_order_vector)
#define ELEMENTWISE_ROWS_OF_HALVES IN_TABLE(_elementwise_rows_of_halves)
#define BEGIN_TINY_ROWS IN_TABLE(_begin_tiny_rows)
#define CAREFUL_BLOCK IN_TABLE(_careful_block)
#define CAREFUL_ROWS IN_TABLE(_careful_rows)
#define DX_IN_BUFFER IN_TABLE(_dx_in_buffer)
#define FIND_CONSTANTS IN_TABLE(_find_constants)
#define TELL_SPLIT_ROWS IN_TABLE(_tell_split_rows)

/* Expands to its arguments if this table has the mode, else to nothing. */
#define IF_TABLE_HAS_portable(...) __VA_ARGS__
#ifdef VEC_WITHOUT_NATIVE
#define IF_TABLE_HAS_native(...)
#else
#define IF_TABLE_HAS_native(...) __VA_ARGS__
#endif
#define IF_TABLE_HAS_brief(...) __VA_ARGS__
#ifdef VEC_HAVE_SLEEF
#define IF_TABLE_HAS_sleef(...) __VA_ARGS__
#else
#define IF_TABLE_HAS_sleef(...)
#endif

/* Without a fast way to look up coefficients the portable tanh is the fastest. */
#ifndef VEC_HAVE_FAST_LOOKUP
#define WITHOUT_DYT_NATIVE
#endif

#endif
