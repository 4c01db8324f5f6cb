/* SPDX-License-Identifier: BSD-2-Clause
 *
 * dynnorm-bench's own options: which cases to measure.
 */
#ifndef DYNNORM_BENCH_SELECTION_H
#define DYNNORM_BENCH_SELECTION_H

#include "shapes.h"

enum { MOST_WORDS = 64 };

/* What an option lists, separated by commas or by giving it again. */
struct words {
    size_t count;
    char *word[MOST_WORDS];
};

struct selection {
    enum set set;
    size_t threads;
    double peer_tolerance;   /* how far a peer may be from the library */
    int digest;              /* report what each case leaves in its outputs */
    struct words isas;       /* none: all that run here, and the peers */
    struct words operations; /* with or without the direction; none: all */
    struct words shape_words;
    struct shape shapes[MOST_WORDS]; /* none: those of the set */
};

extern const char selection_help[];

/* Takes the options from the arguments, and leaves argv[0] and the unknown ones. 0 if one of them makes no sense, which
 * has then been said on stderr. It cannot know isas and operations: the caller checks those. */
int select_by_arguments(struct selection *selection, int *argc, char **argv);

/* Whether the words are none, or one of them is this. */
int lists(const struct words *words, const char *word);

#endif
