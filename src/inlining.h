/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which functions of the kernels are inlined, and which loops are unrolled.
 */
#ifndef DYNNORM_INLINING_H
#define DYNNORM_INLINING_H

/* Always. */
#define INLINE static inline __attribute__((always_inline))

/* Never, because the copies would cost more than the calls. */
#define NOT_INLINED __attribute__((noinline))
#define OUTLINED static __attribute__((noinline, unused))

/* Never, because it is hardly ever called. */
#define RARE static __attribute__((noinline, cold, unused))

/* What takes no time that counts beside the rest of a call is compiled for size. */
#define FOR_SIZE __attribute__((cold))

/* Stands before what other files of the library use of a table's code. scripts/amalgamate makes one file of all of
 * them, and this static. */
#ifndef DYNNORM_INTERNAL
#define DYNNORM_INTERNAL
#endif

/* Makes the compiler forget how a pointer or an index was computed. Otherwise it keeps the offsets of many rows from
 * each other in general registers, of which there are too few, or what it has loaded in vector registers. */
#define KEEP_IN_REGISTER(value) __asm__("" : "+r"(value))

/* Makes the compiler load an array's elements where they are used, though it knows what has been stored there. */
#define KEEP_IN_MEMORY(array) __asm__("" : "+m"(array))

/* Makes clang forget what it has loaded from a pointer. Otherwise it takes a narrow load for a part of a wide one from
 * the same place, moves the wide one through general registers, and puts the narrow one together float by float. */
#ifdef __clang__
#define FORGET_LOADS(pointer) KEEP_IN_REGISTER(pointer)
#else
#define FORGET_LOADS(pointer)
#endif

/* Before a loop that runs at most four times, often by a number that becomes constant when its function is inlined.
 * clang leaves a loop alone that it is asked to unroll more often than it runs. Where the number stays unknown it
 * cannot unroll it fully, and would warn. */
#ifdef __clang__
#define UNROLL_UP_TO_4 _Pragma("clang loop unroll(full)")
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define UNROLL_UP_TO_4 _Pragma("GCC unroll 4")
#endif

/* Does something for each k below count, a few vectors side by side: EACH(a[k] = vec_add(a[k], b[k])). Where count is
 * constant the loop disappears, and the vectors stay in registers. */
#define EACH(...)                                                                                                      \
    UNROLL_UP_TO_4 for (int k = 0; k < count; k++) {                                                                   \
        __VA_ARGS__;                                                                                                   \
    }
enum { SIDE_BY_SIDE = 4 };

/* The same of SIDE_BY_SIDE vectors, without copies of the code. */
#define ONE_AFTER_ANOTHER(k) _Pragma("GCC unroll 1") for (int k = 0; k < SIDE_BY_SIDE; k++)

/* gcc also compiles functions with EACH for a count that it does not know, though nothing calls these copies, and warns
 * of arrays to which a count of 0 would give no values. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

/* What a plain call with one token runs. After other work has been through the caches such a call takes as long as
 * fetching its code, so these functions lie side by side, on one page if the first of them begins one. */
#define OF_ONE_TOKEN __attribute__((hot, aligned(64)))
#define FIRST_OF_ONE_TOKEN __attribute__((hot, aligned(4096)))

#endif
