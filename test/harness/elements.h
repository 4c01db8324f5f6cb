/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The element types by their definition: conversions in double, but for those of float by the compiler, which share no
 * code with the library, and arrays whose elements are of some type, at any address.
 */
#ifndef DYNNORM_TEST_ELEMENTS_H
#define DYNNORM_TEST_ELEMENTS_H

#include "element_types.h"

#include <stddef.h>
#include <stdint.h>

/* "bf16" and so on. */
const char *element_name(dynnorm_type type);

/* The value of an element's bits. */
double widened(dynnorm_type type, uint32_t bits);

/* The bits of the nearest element, of two equally near ones the even one. Beyond the greatest number there is infinity;
 * DYNNORM_I8 has none, and goes from -127 to 127; a NaN is 0 there. */
uint32_t narrowed(dynnorm_type type, double value);

/* The value of the nearest element. */
double rounded(dynnorm_type type, double value);

/* Whether these are the same bits, or both NaN. */
int same_element(dynnorm_type type, uint32_t a, uint32_t b);

/* The same of all elements of two arrays. */
int same_elements(dynnorm_type type, const void *a, const void *b, size_t count);

/* Elements of an array, which may lie at any address. */
uint32_t load_element(const unsigned char *array, dynnorm_type type, size_t i);
void store_element(unsigned char *array, dynnorm_type type, size_t i, uint32_t bits);

double element_at(const unsigned char *array, dynnorm_type type, size_t i);
void set_element_at(unsigned char *array, dynnorm_type type, size_t i, double value);

#endif
