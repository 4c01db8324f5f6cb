/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Marks that show bench/model where the time of a kernel is spent. They are comments in the assembly that it reads, and
 * nothing at all in the library.
 */
#ifndef DYNNORM_MODEL_MARKS_H
#define DYNNORM_MODEL_MARKS_H

#include "inlining.h"

#ifdef DYNNORM_MODEL
#define MODEL_MARK(text, a, b) __asm__ volatile inline("# MODEL " text " %c0 %c1" : : "i"(a), "i"(b))
#else
#define MODEL_MARK(text, a, b) ((void)0)
#endif

/* A function that serves several kernels, and calls the loops of each by pointers. bench/model follows no pointers: for
 * it each kernel has a copy of the function, where the compiler knows which loops are called. */
#ifdef DYNNORM_MODEL
#define SHARED_BY_KERNELS INLINE
#else
#define SHARED_BY_KERNELS OUTLINED
#endif

/* Stands at the end of an inner loop's body and says how many elements of x have just been computed, a constant. part
 * is a word in quotes that names the loop within the kernel. If a function is inlined into several loops of one kernel,
 * the constant variant tells these apart. Mark only the code for whole blocks of channels, not the code for the end of
 * a row: bench/model does not know that a condition which led to the mark must also hold elsewhere. */
#define MODEL_PASS(part, variant, elements) MODEL_MARK("PASS " part, variant, elements)

/* Stands in a branch inside of such a loop that the model is to follow. Without it the model takes the shortest way.
 * Use it where training takes a longer one: when a gradient is asked for. */
#define MODEL_USUAL() MODEL_MARK("USUAL", 0, 0)

/* Stands at the beginning of a branch or a function that the model is to leave out, with all the loops in it. */
#define MODEL_UNUSUAL() MODEL_MARK("UNUSUAL", 0, 0)

#endif
