/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Reads NumPy's .npy files (versions 1.0 to 3.0 of the format) of float16, float32 or float64, of either byte order, in
 * C order, as floats: float16 exactly, float64 rounded once. NumPy has no bfloat16; files carry its bits as uint16,
 * which are read exactly where they are expected.
 *
 * If anything is wrong with a file, these functions say so on stderr and end the program with EXIT_BAD_FILE.
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
    int is_bfloat16;
    int big_endian;
    size_t axes;
    size_t count;    /* number of all values */
    size_t channels; /* length of the last axis; 1 if there is none */
    size_t position; /* index of the next value to be read */
};

/* What may be in a file. */
enum npy_values { NPY_FLOATS, NPY_BFLOAT16, NPY_FLOATS_OR_BFLOAT16 };

/* Opens a file and checks that its values are of an expected type, that it has the length that its header promises,
 * and at least one value. The path must outlive npy. */
void npy_open(struct npy *npy, const char *path, enum npy_values expected);

/* Reads the next values, at most capacity. Returns how many; 0 at the end. All of them are finite. */
size_t npy_read(struct npy *npy, float *values, size_t capacity);

/* Goes back to the first value. */
void npy_rewind(struct npy *npy);

void npy_close(struct npy *npy);

/* Says on stderr what is wrong with the file, and ends the program. */
__attribute__((noreturn, format(printf, 2, 3))) void npy_bad(const char *path, const char *format, ...);

#endif
