/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L
#include "gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

FILE *gnuplot_begin(void) {
    FILE *script = tmpfile();
    if (script != NULL)
        fputs("set encoding utf8\n"
              "set border 3 linecolor '#555555'\n"
              "set tics nomirror textcolor '#333333'\n"
              "set grid linecolor '#e4e4e4' linetype 1 linewidth 0.5\n"
              "set key samplen 2 spacing 1.15 textcolor '#333333'\n"
              "set style line 1 linecolor '#1f77b4' linewidth 2\n"                /* DyT */
              "set style line 2 linecolor '#d1571b' linewidth 2\n"                /* DyISRU */
              "set style line 3 linecolor '#7fb3dc' linewidth 2\n"                /* DyT, another parameter */
              "set style line 4 linecolor '#f0a878' linewidth 2\n"                /* DyISRU, another parameter */
              "set style line 5 linecolor '#888888' linewidth 1 dashtype (6,4)\n" /* bounds */
              "set style line 6 linecolor '#222222' pointtype 6 pointsize 0.7 linewidth 1.2\n"
              "set style line 7 linecolor '#1f77b4' pointtype 7 pointsize 0.4\n"
              "set style line 8 linecolor '#d1571b' pointtype 7 pointsize 0.4\n"
              "set style line 9 linecolor '#999999' pointtype 7 pointsize 0.35\n"
              "set style line 10 linecolor '#00836a' pointtype 7 pointsize 0.4\n", /* centered DyISRU */
              script);
    return script;
}

int is_control(char character) {
    return (unsigned char)character < 0x20 || character == 0x7f;
}

void gnuplot_quote(FILE *script, const char *text) {
    fputc('\'', script);
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fputs("''", script);
        else
            fputc(is_control(*text) ? '?' : *text, script);
    fputc('\'', script);
}

/* Runs gnuplot from one file into another. */
static enum gnuplot_outcome run(FILE *script, FILE *figure) {
    if (fflush(script) != 0 || lseek(fileno(script), 0, SEEK_SET) != 0)
        return GNUPLOT_FAILED;
    char *arguments[] = {"gnuplot", NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return GNUPLOT_FAILED;
    pid_t child;
    int error = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, fileno(figure), STDOUT_FILENO);
    if (error == 0)
        error = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return error == ENOENT || error == EACCES || error == ENOTDIR ? GNUPLOT_MISSING : GNUPLOT_FAILED;
    int status;
    while (waitpid(child, &status, 0) == -1)
        if (errno != EINTR)
            return GNUPLOT_FAILED;
    errno = 0;
    /* Some systems find out only in the child that there is no such program. It then exits with 127. */
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return GNUPLOT_MISSING;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? GNUPLOT_DREW : GNUPLOT_FAILED;
}

/* Appends all of one file to another. Returns 0 on failure. */
static int append(FILE *to, FILE *from) {
    char buffer[4096];
    size_t bytes;
    if (fseek(from, 0, SEEK_SET) != 0)
        return 0;
    while ((bytes = fread(buffer, 1, sizeof buffer, from)) > 0)
        if (fwrite(buffer, 1, bytes, to) != bytes)
            return 0;
    return !ferror(from) && fflush(to) == 0;
}

static int ends_in(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

int gnuplot_draws(const char *path) {
    return ends_in(path, ".svg") || ends_in(path, ".png");
}

/* Draws into a temporary file, so that no incomplete figure is left behind. */
static enum gnuplot_outcome draw(FILE *script, FILE *whole, FILE *figure, const char *path, int width, int height) {
    if (ends_in(path, ".png")) /* twice the resolution of the SVG */
        fprintf(whole, "set terminal pngcairo size %d,%d fontscale 2 linewidth 2 pointscale 2 background '#ffffff'\n",
                2 * width, 2 * height);
    else
        fprintf(whole, "set terminal svg size %d,%d dynamic font 'Helvetica,Arial,sans-serif' background '#ffffff'\n",
                width, height);
    return append(whole, script) ? run(whole, figure) : GNUPLOT_FAILED;
}

static int save(FILE *figure, const char *path) {
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return 0;
    int written = append(file, figure);
    return fclose(file) == 0 && written;
}

/* Whether a file can be written. A file that is there stays as it is; no file is left that was not there. A link to a
 * file that is not there is refused, for only the link could be removed again. */
static int can_be_written(const char *path) {
    struct stat status;
    if (stat(path, &status) == 0) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL; /* a pipe would be waited for */
        return S_ISREG(status.st_mode) && access(path, W_OK) == 0;
    }
    const int error = errno, file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file < 0) {
        errno = errno == EEXIST ? error : errno; /* that of the link's end */
        return 0;
    }
    close(file);
    return remove(path) == 0;
}

/* Draws a script, and saves the figure unless it is only a trial. */
static enum gnuplot_outcome draw_or_try(FILE *script, const char *path, int width, int height, int is_trial) {
    errno = 0;
    FILE *whole = tmpfile(), *figure = tmpfile();
    enum gnuplot_outcome outcome =
        whole == NULL || figure == NULL ? GNUPLOT_FAILED : draw(script, whole, figure, path, width, height);
    if (outcome == GNUPLOT_DREW && !(is_trial ? can_be_written(path) : save(figure, path)))
        outcome = GNUPLOT_FAILED;
    if (outcome == GNUPLOT_FAILED)
        fprintf(stderr, "dynnorm-calibrate: %s: %s\n", path,
                errno != 0 ? strerror(errno) : "gnuplot could not draw it");
    if (whole != NULL)
        fclose(whole);
    if (figure != NULL)
        fclose(figure);
    return outcome;
}

enum gnuplot_outcome gnuplot_draw(FILE *script, const char *path, int width, int height) {
    return draw_or_try(script, path, width, height, 0);
}

enum gnuplot_outcome gnuplot_try(const char *path) {
    FILE *script = gnuplot_begin();
    if (script == NULL)
        return GNUPLOT_FAILED;
    fputs("plot [0:1] x\n", script);
    enum gnuplot_outcome outcome = draw_or_try(script, path, 100, 100, 1);
    fclose(script);
    return outcome;
}
