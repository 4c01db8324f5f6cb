/* SPDX-License-Identifier: BSD-2-Clause */
#include "selection.h"
#include "peers.h"
#include "pool.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char selection_help[] =
    "dynnorm-bench [--set=none|quick|standard|full]\n"
    "          [--engines=types|residual|int8|executor|prepared,...]\n"
    "          [--isa=NAME,...] [--op=OPERATION,...]\n"
    "          [--shape=TOKENSxCHANNELS,...] [--threads=N] [--peer_tolerance=FRACTION] [--digest]\n"
    "          [and Google Benchmark's own options:]\n\n";

static int complain(const char *what, const char *word) {
    fprintf(stderr, "dynnorm-bench: %s: '%s'\n", what, word);
    return 0;
}

/* Reads a positive whole number. Returns what follows it, or NULL if there is none. */
static const char *parse_count(const char *text, size_t *count) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return NULL;
    unsigned long long value = strtoull(text, &end, 10);
    *count = (size_t)value;
    return value > 0 && value <= (1ull << 40) ? end : NULL;
}

static int parse_shape(const char *text, struct shape *shape) {
    const char *rest = parse_count(text, &shape->tokens);
    rest = rest && *rest == 'x' ? parse_count(rest + 1, &shape->channels) : NULL;
    if (!rest || *rest)
        return complain("--shape takes TOKENSxCHANNELS, as in 64x4096, not", text);
    if (shape->channels > ((size_t)1 << 32) / shape->tokens)
        return complain("--shape: more than 2^32 elements", text);
    return 1;
}

static int parse_set(const char *text, enum set *set) {
    static const char *const names[] = {"none", "quick", "standard", "full"};
    for (int i = SET_NONE; i <= SET_FULL; i++)
        if (!strcmp(text, names[i])) {
            *set = (enum set)i;
            return 1;
        }
    return complain("--set takes none, quick, standard or full, not", text);
}

static int parse_threads(const char *text, size_t *threads) {
    const char *rest = parse_count(text, threads);
    if (!rest || *rest)
        return complain("--threads takes a positive number, not", text);
    if (*threads > pool_processors())
        return complain("--threads: this process may run on fewer processors than that", text);
    return 1;
}

static int parse_tolerance(const char *text, double *tolerance) {
    char *end;
    *tolerance = strtod(text, &end);
    return end != text && !*end ? 1 : complain("--peer_tolerance takes a number, not", text);
}

/* Adds the words of the text, which it cuts at its commas. */
static int add_words(struct words *words, char *text) {
    for (char *word = text, *comma; word; word = comma) {
        comma = strchr(word, ',');
        if (comma)
            *comma++ = 0;
        if (!*word)
            return complain("an empty word in a list", text);
        if (words->count == MOST_WORDS)
            return complain("too many words in a list", word);
        words->word[words->count++] = word;
    }
    return 1;
}

/* Adds the sets that the text lists. */
static int parse_engines(char *text, unsigned *engines) {
    struct words words = {0};
    if (!add_words(&words, text))
        return 0;
    for (size_t i = 0; i < words.count; i++) {
        int set = 0;
        while (set < ENGINE_SETS && strcmp(words.word[i], engine_set_names[set]) != 0)
            set++;
        if (set == ENGINE_SETS)
            return complain("--engines takes types, residual, int8, executor and prepared, not", words.word[i]);
        *engines |= 1u << set;
    }
    return 1;
}

/* Returns what follows "name=" in an argument, or NULL. */
static char *value_of(char *argument, const char *name) {
    size_t length = strlen(name);
    return !strncmp(argument, name, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

int select_by_arguments(struct selection *selection, int *argc, char **argv) {
    *selection = (struct selection){.set = SET_FULL, .threads = 1, .peer_tolerance = PEER_TOLERANCE};
    int left = 1, good = 1;
    for (int i = 1; i < *argc && good; i++) {
        char *value;
        if ((value = value_of(argv[i], "--set")))
            good = parse_set(value, &selection->set);
        else if ((value = value_of(argv[i], "--engines")))
            good = parse_engines(value, &selection->engines);
        else if ((value = value_of(argv[i], "--isa")))
            good = add_words(&selection->isas, value);
        else if ((value = value_of(argv[i], "--op")))
            good = add_words(&selection->operations, value);
        else if ((value = value_of(argv[i], "--shape")))
            good = add_words(&selection->shape_words, value);
        else if ((value = value_of(argv[i], "--threads")))
            good = parse_threads(value, &selection->threads);
        else if ((value = value_of(argv[i], "--peer_tolerance")))
            good = parse_tolerance(value, &selection->peer_tolerance);
        else if (!strcmp(argv[i], "--digest"))
            selection->digest = 1;
        else
            argv[left++] = argv[i];
    }
    for (size_t i = 0; i < selection->shape_words.count && good; i++)
        good = parse_shape(selection->shape_words.word[i], &selection->shapes[i]);
    *argc = left;
    argv[left] = NULL;
    return good;
}

int lists(const struct words *words, const char *word) {
    for (size_t i = 0; i < words->count; i++)
        if (!strcmp(words->word[i], word))
            return 1;
    return words->count == 0;
}
