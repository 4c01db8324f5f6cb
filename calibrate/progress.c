/* SPDX-License-Identifier: BSD-2-Clause */
#define _POSIX_C_SOURCE 200809L
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
    double done; /* by the passes before this one */
    double pass;
    double after;
    double begun;       /* the time of the first pass; 0 before it */
    double next_second; /* when the time left is shown anew */
    int percent;        /* as shown */
    int is_shown;
} progress;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void progress_pass(double work, double work_after) {
    if (progress.begun == 0)
        progress.begun = seconds();
    progress.done += progress.pass;
    progress.pass = work;
    progress.after = work_after;
}

/* In words: "9 s", "3 min", "2 h 5 min". */
static const char *time_text(char text[32], double time) {
    double minutes = ceil(time / 60), hours = floor(minutes / 60);
    if (time < 100)
        snprintf(text, 32, "%.0f s", fmax(ceil(time), 1));
    else if (hours < 1)
        snprintf(text, 32, "%.0f min", minutes);
    else
        snprintf(text, 32, "%.0f h %.0f min", hours, minutes - 60 * hours);
    return text;
}

void progress_show(double part) {
    enum { WIDTH = 40 };
    static const char bar[WIDTH + 1] = "########################################";
    const double enough = 0.01; /* the part of the work from which the time left can be told */
    if (!isatty(STDERR_FILENO))
        return;
    double done = progress.done + part * progress.pass;
    double fraction = done / (progress.done + progress.pass + progress.after);
    double now = seconds();
    int percent = (int)(100 * fraction);
    if (percent < progress.percent)
        percent = progress.percent;
    if (progress.is_shown && percent == progress.percent && now < progress.next_second)
        return;
    progress.percent = percent;
    progress.is_shown = 1;
    progress.next_second = now + 1;
    char left[32], time_left[64] = "";
    if (fraction >= enough)
        snprintf(time_left, sizeof time_left, "  about %s left",
                 time_text(left, (now - progress.begun) * (1 - fraction) / fraction));
    /* In one piece, so that it does not flicker. */
    fprintf(stderr, "\r[%-*.*s] %3d %%%s\033[K", WIDTH, WIDTH * percent / 100, bar, percent, time_left);
}

void progress_remove(void) {
    if (progress.is_shown)
        fprintf(stderr, "\r\033[K");
    progress.is_shown = 0;
}
