/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What is wrong with a call, in words. The checks are those of the passes themselves.
 */
#include "api/passes.h"
#include "inlining.h"

#include <stdio.h>

size_t dynnorm_write_words(dynnorm_status status, const struct mistake *mistake, char *text, size_t capacity) {
    enum { LONGEST = 1 << 10 }; /* longer than any text; snprintf may refuse a capacity beyond INT_MAX */
    const char *words = status == DYNNORM_OK ? "the call is correct"
                        : mistake->words     ? mistake->words
                                             : dynnorm_status_string(status);
    int length = snprintf(text, capacity < LONGEST ? capacity : LONGEST, words, mistake->first, mistake->second);
    return length < 0 ? 0 : (size_t)length;
}

FOR_SIZE size_t dynnorm_explain_forward(const dynnorm_descriptor *call, char *text, size_t capacity) {
    struct forward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_forward(call, NULL, &pass, &mistake);
    return dynnorm_write_words(status, &mistake, text, capacity);
}

FOR_SIZE size_t dynnorm_explain_backward(const dynnorm_descriptor *call, char *text, size_t capacity) {
    struct backward_pass pass;
    struct mistake mistake;
    dynnorm_status status = dynnorm_begin_backward(call, NULL, &pass, &mistake);
    return dynnorm_write_words(status, &mistake, text, capacity);
}
