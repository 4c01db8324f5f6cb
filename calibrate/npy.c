/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L
#include "npy.h"

#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void npy_bad(const char *path, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    progress_remove();
    fprintf(stderr, "dynnorm-calibrate: %s: ", path);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_BAD_FILE);
}

/* ---- The header: a Python dictionary, such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } -------- */

struct header {
    const char *path;
    const char *next; /* what has not been read yet; ends in '\0' */
};

static void skip_spaces(struct header *header) {
    header->next += strspn(header->next, " \t\r\n");
}

/* Returns whether the text comes next, and if so skips it. */
static int comes(struct header *header, const char *text) {
    skip_spaces(header);
    size_t length = strlen(text);
    if (strncmp(header->next, text, length) != 0)
        return 0;
    header->next += length;
    return 1;
}

static void expect(struct header *header, const char *text) {
    if (!comes(header, text))
        npy_bad(header->path, "bad header: '%s' expected at \"%.20s\"", text, header->next);
}

/* Reads a string in quotes of either kind, without escapes. */
static void read_string(struct header *header, char *text, size_t capacity) {
    skip_spaces(header);
    char quote = *header->next;
    if (quote != '\'' && quote != '"')
        npy_bad(header->path, "bad header: a string expected at \"%.20s\"", header->next);
    const char *begin = header->next + 1, *end = strchr(begin, quote);
    if (end == NULL || (size_t)(end - begin) >= capacity || memchr(begin, '\\', (size_t)(end - begin)) != NULL)
        npy_bad(header->path, "bad header: not a string of this format at \"%.20s\"", header->next);
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    header->next = end + 1;
}

static void read_type(struct header *header, struct npy *npy, enum npy_values expected) {
    const char *wanted =
        expected == NPY_BFLOAT16 ? "uint16 ('<u2')" : "float16, float32 or float64 ('<f2', '<f4', '<f8')";
    if (comes(header, "["))
        npy_bad(npy->path, "it holds records of several fields, not %s", wanted);
    char text[64];
    read_string(header, text, sizeof text);
    int has_order = text[0] == '<' || text[0] == '>', is_uint16 = has_order && strcmp(text + 1, "u2") == 0;
    npy->big_endian = text[0] == '>';
    if (is_uint16 && expected == NPY_FLOATS)
        npy_bad(npy->path, "its values are of type '%s'; if they are the bits of bfloat16, use --bfloat16", text);
    /* V2 is what NumPy makes of the bfloat16 of other packages, and i2 what PyTorch has for 16 bits. */
    if (strlen(text) == 3 && (strcmp(text + 1, "V2") == 0 || strcmp(text + 1, "i2") == 0))
        npy_bad(npy->path,
                "its values are of type '%s'; if they are bfloat16, save x.view('uint16') and use --bfloat16", text);
    if (expected == NPY_BFLOAT16 && !is_uint16)
        npy_bad(npy->path, "its values are of type '%s', not %s, as --bfloat16 expects", text, wanted);
    if (!is_uint16 && (!has_order || text[1] != 'f' || strchr("248", text[2]) == NULL || strlen(text) != 3))
        npy_bad(npy->path, "its values are of type '%s', not %s", text, wanted);
    npy->value_size = (size_t)(text[2] - '0');
    npy->is_bfloat16 = is_uint16;
}

static void read_shape(struct header *header, struct npy *npy) {
    expect(header, "(");
    npy->axes = 0;
    npy->count = npy->channels = 1;
    int empty = 0;
    while (!comes(header, ")")) {
        skip_spaces(header);
        char *end;
        errno = 0;
        unsigned long long length = strtoull(header->next, &end, 10);
        if (header->next[0] < '0' || header->next[0] > '9' || errno != 0 || length > SIZE_MAX)
            npy_bad(npy->path, "bad header: the length of an axis expected at \"%.20s\"", header->next);
        header->next = end + (*end == 'L'); /* NumPy on Python 2 wrote lengths as long integers: (2L, 3L) */
        empty |= length == 0;
        if (length != 0 && npy->count > SIZE_MAX / (size_t)length)
            npy_bad(npy->path, "bad header: a shape of more values than can be counted");
        npy->channels = (size_t)length;
        npy->count *= length != 0 ? (size_t)length : 1;
        npy->axes++;
        if (!comes(header, ",")) {
            if (npy->axes == 1)
                npy_bad(npy->path, "bad header: the shape is not a tuple");
            expect(header, ")");
            break;
        }
    }
    if (empty)
        npy->count = 0;
    if (npy->count > SIZE_MAX / 8)
        npy_bad(npy->path, "bad header: a shape of more values than can be counted");
}

static void read_dictionary(struct header *header, struct npy *npy, enum npy_values expected) {
    enum { TYPE = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    expect(header, "{");
    while (!comes(header, "}")) {
        char key[32];
        read_string(header, key, sizeof key);
        int known = strcmp(key, "descr") == 0           ? TYPE
                    : strcmp(key, "fortran_order") == 0 ? ORDER
                    : strcmp(key, "shape") == 0         ? SHAPE
                                                        : 0;
        if (known == 0 || (seen & known) != 0)
            npy_bad(npy->path, "bad header: the key '%s' is %s", key, known == 0 ? "unknown" : "there twice");
        seen |= known;
        expect(header, ":");
        if (known == TYPE)
            read_type(header, npy, expected);
        else if (known == SHAPE)
            read_shape(header, npy);
        else if (comes(header, "True"))
            npy_bad(npy->path, "it is in Fortran order, not in C order; numpy.ascontiguousarray converts it");
        else
            expect(header, "False");
        if (!comes(header, ",")) {
            expect(header, "}");
            break;
        }
    }
    skip_spaces(header);
    if (*header->next != '\0')
        npy_bad(npy->path, "bad header: something follows the dictionary: \"%.20s\"", header->next);
    if (seen != (TYPE | ORDER | SHAPE))
        npy_bad(npy->path, "bad header: '%s' is missing",
                !(seen & TYPE)    ? "descr"
                : !(seen & ORDER) ? "fortran_order"
                                  : "shape");
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static void read_bytes(const struct npy *npy, unsigned char *bytes, size_t count) {
    if (fread(bytes, 1, count, npy->file) != count)
        npy_bad(npy->path, "%s", ferror(npy->file) ? strerror(errno) : "truncated: it ends inside its header");
}

static void read_header(struct npy *npy, enum npy_values expected) {
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    unsigned char start[12];
    if (fread(start, 1, 8, npy->file) != 8 || memcmp(start, magic, sizeof magic) != 0)
        npy_bad(npy->path, "not a .npy file");
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        npy_bad(npy->path, "version %d.%d of the .npy format is not known", start[6], start[7]);
    size_t length_size = start[6] == 1 ? 2 : 4;
    read_bytes(npy, start + 8, length_size);
    size_t length = 0;
    for (size_t i = length_size; i-- > 0;)
        length = length << 8 | start[8 + i];
    if (length > 1 << 20)
        npy_bad(npy->path, "bad header: it claims to be %zu bytes long", length);

    char *text = malloc(length + 1);
    if (text == NULL) {
        fprintf(stderr, "dynnorm-calibrate: out of memory\n");
        exit(EXIT_FAILURE);
    }
    read_bytes(npy, (unsigned char *)text, length);
    text[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' && strchr("\t\r\n", text[i] != '\0' ? text[i] : '?') == NULL)
            text[i] = '?'; /* leads to an error below, whose message a terminal can show */
    read_dictionary(&(struct header){npy->path, text}, npy, expected);
    free(text);
    npy->data_offset = (long)(8 + length_size + length);
}

void npy_open(struct npy *npy, const char *path, enum npy_values expected) {
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK); /* which does not wait for a pipe's other end */
    *npy = (struct npy){.path = path, .file = descriptor < 0 ? NULL : fdopen(descriptor, "rb")};
    struct stat status;
    if (npy->file == NULL || fstat(descriptor, &status) != 0)
        npy_bad(path, "%s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        npy_bad(path, "not a regular file; it is read several times");
    read_header(npy, expected);

    if (npy->axes > 0 && npy->channels == 0)
        npy_bad(path, "it has 0 channels (the length of its last axis)");
    if (npy->count == 0)
        npy_bad(path, "it has 0 tokens");
    unsigned long long there = (unsigned long long)status.st_size - (unsigned long long)npy->data_offset;
    unsigned long long promised = (unsigned long long)npy->count * npy->value_size;
    if (there < promised)
        npy_bad(path, "truncated: its header promises %llu bytes of values, there are %llu", promised, there);
    if (there > promised)
        npy_bad(path, "its header promises %llu bytes of values, there are %llu", promised, there);
}

void npy_rewind(struct npy *npy) {
    if (fseek(npy->file, npy->data_offset, SEEK_SET) != 0)
        npy_bad(npy->path, "%s", strerror(errno));
    npy->position = 0;
}

void npy_close(struct npy *npy) {
    fclose(npy->file);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_float16(uint64_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, size = (uint32_t)bits & 0x7fff;
    if (size < 0x0400) /* subnormal: a multiple of 2^-24 */
        return (sign != 0 ? -1.0f : 1.0f) * (float)size * 0x1p-24f;
    if (size >= 0x7c00) /* infinity or NaN */
        return float_of_bits(sign | 0x7f800000 | (size & 0x03ff) << 13);
    return float_of_bits(sign | ((size << 13) + ((127 - 15) << 23)));
}

static float from_bfloat16(uint64_t bits) {
    return float_of_bits((uint32_t)bits << 16);
}

static float from_float32(uint64_t bits) {
    return float_of_bits((uint32_t)bits);
}

static float from_float64(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static uint64_t bits_of_bytes(const unsigned char *bytes, size_t count, int big_endian) {
    uint64_t bits = 0;
    for (size_t i = 0; i < count; i++)
        bits |= (uint64_t)bytes[i] << 8 * (big_endian ? count - 1 - i : i);
    return bits;
}

/* Inlined for each type and byte order, so that the compiler can turn the loop over the bytes into a load. */
static inline void convert(float *values, const unsigned char *bytes, size_t count, size_t size, int big_endian,
                           float from(uint64_t)) {
    for (size_t i = 0; i < count; i++)
        values[i] = from(bits_of_bytes(bytes + i * size, size, big_endian));
}

static void convert_values(const struct npy *npy, float *values, const unsigned char *bytes, size_t count) {
    if (npy->is_bfloat16 && !npy->big_endian)
        convert(values, bytes, count, 2, 0, from_bfloat16);
    else if (npy->value_size == 2 && !npy->big_endian)
        convert(values, bytes, count, 2, 0, from_float16);
    else if (npy->value_size == 4 && !npy->big_endian)
        convert(values, bytes, count, 4, 0, from_float32);
    else if (npy->value_size == 8 && !npy->big_endian)
        convert(values, bytes, count, 8, 0, from_float64);
    else
        convert(values, bytes, count, npy->value_size, 1,
                npy->is_bfloat16       ? from_bfloat16
                : npy->value_size == 2 ? from_float16
                : npy->value_size == 4 ? from_float32
                                       : from_float64);
}

static void require_finite(const struct npy *npy, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) {
            size_t position = npy->position + i;
            npy_bad(npy->path, "%s at token %zu, channel %zu, counted from 0",
                    isnan(values[i])       ? "NaN"
                    : npy->value_size == 8 ? "infinity, or a value beyond float,"
                                           : "infinity",
                    position / npy->channels, position % npy->channels);
        }
}

size_t npy_read(struct npy *npy, float *values, size_t capacity) {
    enum { VALUES = 8192 };
    unsigned char bytes[8 * VALUES];
    size_t read = 0;
    while (read < capacity && npy->position < npy->count) {
        size_t count = npy->count - npy->position;
        count = count < capacity - read ? count : capacity - read;
        count = count < VALUES ? count : VALUES;
        if (fread(bytes, npy->value_size, count, npy->file) != count)
            npy_bad(npy->path, "%s", ferror(npy->file) ? strerror(errno) : "truncated while it was read");
        convert_values(npy, values + read, bytes, count);
        require_finite(npy, values + read, count);
        npy->position += count;
        read += count;
    }
    return read;
}
