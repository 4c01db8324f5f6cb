/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What element_types.def says, as constants. The library and its tests index arrays by them.
 */
#ifndef DYNNORM_ELEMENT_TYPES_H
#define DYNNORM_ELEMENT_TYPES_H

#include "dynnorm.h"

#include <stddef.h>

enum {
#define ELEMENT_TYPE(name, NAME, bytes, digits) type_##name = DYNNORM_##NAME,
#include "element_types.def"
    TYPES
};
enum { HALF_BYTES = 2 }; /* of an element of bfloat16 or float16 */
_Static_assert((int)TYPES == (int)DYNNORM_I8, "only y has a type that is not in the list");

static inline size_t dynnorm_element_bytes(dynnorm_type type) {
    static const unsigned char bytes_of[] = {
#define ELEMENT_TYPE(name, NAME, bytes, digits) bytes,
#include "element_types.def"
        1 /* DYNNORM_I8 */
    };
    return bytes_of[type];
}

#endif
