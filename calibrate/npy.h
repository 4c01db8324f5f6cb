/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reads NumPy's .npy files (versions 1.0 to 3.0 of the format) of float16, float32 or float64, of either byte order, in
 * C order, as floats: float16 exactly, float64 rounded once.
 *
 * What is wrong with a file is said on stderr, and ends the program with EXIT_BAD_FILE.
 */
#ifndef DYNNORM_CALIBRATE_NPY_H
#define DYNNORM_CALIBRATE_NPY_H

#include <stddef.h>
#include <stdio.h>

enum { EXIT_BAD_FILE = 2 };

struct npy {
    const char *path;
    FILE *file;
    long data_offset;
    size_t value_size; /* in bytes */
    int big_endian;
    size_t axes;
    size_t count;    /* of all values */
    size_t channels; /* the length of the last axis; 1 if there is none */
    size_t position; /* of the next value to be read */
};

/* Opens a file of the right length with at least one value. The path must outlive npy. */
void npy_open(struct npy *npy, const char *path);

/* Reads the next values, at most capacity; gives how many, 0 at the end. All are finite. */
size_t npy_read(struct npy *npy, float *values, size_t capacity);

/* Back to the first value. */
void npy_rewind(struct npy *npy);

void npy_close(struct npy *npy);

/* Says what is wrong with the file, and ends the program. */
__attribute__((noreturn, format(printf, 2, 3))) void npy_bad(const char *path, const char *format, ...);

#endif
