/* SPDX-License-Identifier: BSD-2-Clause
 *
 * dynnorm-bench's own options, which select the cases to measure.
 */
#ifndef DYNNORM_BENCH_SELECTION_H
#define DYNNORM_BENCH_SELECTION_H

#include "shapes.h"

#include <stddef.h>

enum { MOST_WORDS = 64 };

/* The words of an option, separated by commas or given by repeating the option. */
struct words {
    size_t count;
    char *word[MOST_WORDS];
};

struct selection {
    enum set set;
    unsigned engines; /* the ENGINE_ sets that are measured besides */
    size_t threads;
    double peer_tolerance;   /* how far a peer may be from the library */
    int digest;              /* report a hash of the outputs of each case */
    struct words isas;       /* if empty, all that run here, and the peers */
    struct words operations; /* with or without the direction; if empty, all */
    struct words shape_words;
    struct shape shapes[MOST_WORDS]; /* if there are no shape_words, the shapes of the set are measured */
};

extern const char selection_help[];

/* Takes these options from the arguments and leaves argv[0] and the unknown ones. If an option makes no sense, says so
 * on stderr and returns 0. The caller must check isas and operations, which only it knows. */
int select_by_arguments(struct selection *selection, int *argc, char **argv);

/* Whether the word is among the words, or there are no words. */
int lists(const struct words *words, const char *word);

#endif
