/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The one list of shapes that are measured.
 */
#ifndef DYNNORM_BENCH_SHAPES_H
#define DYNNORM_BENCH_SHAPES_H

#include <stddef.h>

struct shape {
    size_t tokens;
    size_t channels;
};

static const struct shape shapes[] = {
    {1, 4096},    /* one token */
    {32, 1024},   /* 0.1 MB per tensor */
    {64, 4096},   /* 1 MB */
    {1000, 100},  /* short rows, not a whole number of vectors each */
    {4096, 64},   /* short rows: the heads of attention */
    {1024, 4096}, /* 17 MB */
    {4096, 4096}, /* 67 MB */
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

#endif
