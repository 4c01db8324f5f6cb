/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Repeats with the library the experiment that DyISRU's derivation rests on (Stollenwerk, arXiv 2503.21708): it pushes
 * one element of a row outwards step by step, normalizes the row, and fits DyT and DyISRU to what becomes of that
 * element. It prints the fits, writes them to outliers.json, and draws the papers' figures if gnuplot is installed.
 */
#define _POSIX_C_SOURCE 200809L
#include "../calibrate/gnuplot.h"
#include "outliers.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] = "usage: outlier_experiment [--out FOLDER]\n"
                            "\n"
                            "Fits DyT and DyISRU to what LayerNorm and RMSNorm do to outliers. Prints the fits, and\n"
                            "writes into FOLDER (which it makes; the current one if not given) outliers.json and, if\n"
                            "gnuplot is installed, the figures curves_*, panels_* and fits, as .svg and .png.\n";

/* In the order of the papers. */
static const char *const norm_names[NORMS] = {"LayerNorm", "RMSNorm"};
static const char *const file_names[NORMS] = {"layernorm", "rmsnorm"};
static const int scales_squared[NORMS] = {OUTLIER_CHANNELS - 1, OUTLIER_CHANNELS};

static struct outliers experiment[NORMS];
static const char *folder = ".";

static void stop(const char *what) {
    fprintf(stderr, "outlier_experiment: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

/* ---- The numbers ------------------------------------------------------------------------------------------------- */

static void print_fits(void) {
    printf("dynnorm %s on %s\n\n", dynnorm_version(), dynnorm_isa());
    printf("data from   scale      curve    parameter             mean |residual|\n");
    for (int norm = 0; norm < NORMS; norm++)
        for (int curve = 0; curve < CURVES; curve++)
            printf("%-11s sqrt(%3d)  %-8s %-5s = %-13.8g %.6g\n", norm_names[norm], scales_squared[norm],
                   curve_names[curve], parameter_names[curve], (double)experiment[norm].fits[curve].parameter,
                   experiment[norm].fits[curve].mean_abs_residual);
}

static char *path_of(char path[4096], const char *name, const char *ending) {
    if (snprintf(path, 4096, "%s/%s%s", folder, name, ending) >= 4096) {
        errno = ENAMETOOLONG;
        stop(folder);
    }
    return path;
}

static void write_json(void) {
    char path[4096];
    FILE *file = fopen(path_of(path, "outliers", ".json"), "w");
    if (file == NULL)
        stop(path);
    for (int norm = 0; norm < NORMS; norm++) {
        fprintf(file, "%s\"%s\": {", norm == 0 ? "{" : " ", file_names[norm]);
        for (int curve = 0; curve < CURVES; curve++)
            fprintf(file, "%s\"%s\": %.9g, \"%s_mean_abs_residual\": %.9g", curve == 0 ? "" : ", ",
                    parameter_names[curve], (double)experiment[norm].fits[curve].parameter, parameter_names[curve],
                    experiment[norm].fits[curve].mean_abs_residual);
        fprintf(file, norm + 1 < NORMS ? "},\n" : "}}\n");
    }
    if (ferror(file) | fclose(file))
        stop(path);
}

/* ---- The figures ------------------------------------------------------------------------------------------------- */

static FILE *begin_figure(void) {
    FILE *script = gnuplot_begin();
    if (script == NULL)
        stop("a temporary file");
    fputs("set samples 2\n", script); /* The curves are given as data; gnuplot computes only the bounds. */
    return script;
}

/* Draws the script as NAME.svg and NAME.png. */
static void draw_figure(FILE *script, const char *name, int width, int height) {
    static const char *const endings[] = {".svg", ".png"};
    for (int i = 0; i < 2; i++) {
        char path[4096];
        enum gnuplot_outcome outcome = gnuplot_draw(script, path_of(path, name, endings[i]), width, height);
        if (outcome == GNUPLOT_MISSING) {
            fprintf(stderr, "outlier_experiment: gnuplot is not installed, so there are no figures\n");
            exit(EXIT_SUCCESS);
        }
        if (outcome == GNUPLOT_FAILED)
            exit(EXIT_FAILURE);
    }
    fclose(script);
}

/* Writes a named block of data: a curve at equally spaced x. */
static void write_curve(FILE *script, const char *name, enum curve curve, float parameter, float scale, float end) {
    enum { HALF = 75, SAMPLES = 2 * HALF + 1 };
    float x[SAMPLES], y[SAMPLES], zeros[SAMPLES] = {0};
    for (int i = 0; i < SAMPLES; i++)
        x[i] = end * (float)(i - HALF) / HALF;
    curve_residuals(y, curve, parameter, scale, &(struct points){.tokens = 1, .channels = SAMPLES, .x = x, .y = zeros});
    fprintf(script, "$%s << END\n", name);
    for (int i = 0; i < SAMPLES; i++)
        fprintf(script, "%.6g %.6g\n", (double)x[i], (double)y[i]);
    fprintf(script, "END\n");
}

static void write_points(FILE *script, const char *name, const float *x, const float *y, int count, int stride) {
    fprintf(script, "$%s << END\n", name);
    for (int i = 0; i < count; i++)
        fprintf(script, "%.9g %.9g\n", (double)x[i * stride], (double)y[i * stride]);
    fprintf(script, "END\n");
}

/* Draws the two curves and their bounds for C = 50, as in the paper: with two parameters each as in its first version,
 * which starts from LayerNorm, and with one each as in its third version, which starts from RMSNorm. */
static void draw_curves(enum norm norm) {
    enum { C = 50 };
    static const float parameters[NORMS][CURVES][2] = {{{0.1f, 0.05f}, {100, 500}}, {{0.05f}, {400}}};
    static const char *const symbols[CURVES] = {"α", "β"};
    const int count = norm == LAYERNORM ? 2 : 1;
    const float scale = norm == LAYERNORM ? dynnorm_scale_layernorm(C) : dynnorm_scale_rmsnorm(C);
    FILE *script = begin_figure();
    for (int curve = 0; curve < CURVES; curve++)
        for (int i = 0; i < count; i++) {
            char name[] = {'c', (char)('0' + curve), (char)('0' + i), '\0'};
            write_curve(script, name, (enum curve)curve, parameters[norm][curve][i], scale, 100);
        }
    fprintf(script, "set xrange [-100:100]\nset yrange [-8.5:8.5]\nset xtics 50\nset xlabel 'x'\nset ylabel 'y'\n");
    fprintf(script, "set key at graph 0.98,0.40 right top\nbound = %.9g\n", (double)scale);
    if (norm == LAYERNORM)
        fprintf(script, "label = '±√(C − 1)'\nset multiplot layout 1,2\n");
    else
        fprintf(script, "label = '±√C'\n");
    for (int curve = 0; curve < CURVES; curve++) {
        if (norm == LAYERNORM)
            fprintf(script, "set title '%s'\n", curve_names[curve]);
        if (norm == LAYERNORM || curve == 0)
            fprintf(script, "plot bound with lines linestyle 5 title label, -bound with lines linestyle 5 notitle");
        for (int i = 0; i < count; i++)
            fprintf(script, ", $c%d%d with lines linestyle %d title '%s%s%s = %g'", curve, i, curve + 1 + 2 * i,
                    count == 1 ? curve_names[curve] : "", count == 1 ? ", " : "", symbols[curve],
                    (double)parameters[norm][curve][i]);
        if (norm == LAYERNORM || curve == 1)
            fprintf(script, "\n");
    }
    if (norm == LAYERNORM)
        fprintf(script, "unset multiplot\n");
    char name[64];
    snprintf(name, sizeof name, "curves_%s", file_names[norm]);
    draw_figure(script, name, norm == LAYERNORM ? 900 : 560, 380);
}

/* Draws the row before and after the norm at four of the steps. The line through the row gets flatter as the outlier
 * moves out, and the outlier follows a curve of its own. */
static void draw_panels(enum norm norm) {
    static const int steps[] = {0, 1, 2, 9};
    const struct outliers *data = &experiment[norm];
    FILE *script = begin_figure();
    fprintf(script, "bound = %.9g\n", (double)data->scale);
    fprintf(script, "set xrange [-8:54]\nset yrange [-4:11.5]\nset xlabel 'x'\nset ylabel 'y'\nset xtics 10\n"
                    "set ytics 2\nset key bottom right\nset multiplot layout 2,2\n");
    for (int i = 0; i < 4; i++) {
        int step = steps[i];
        const float *x = data->x[step], *y = data->y[step];
        write_points(script, "row", x, y, OUTLIER_CHANNELS - 1, 1);
        write_points(script, "outlier", &x[OUTLIER_CHANNELS - 1], &y[OUTLIER_CHANNELS - 1], 1, 1);
        write_points(script, "path", &data->x[0][OUTLIER_CHANNELS - 1], &data->y[0][OUTLIER_CHANNELS - 1], step + 1,
                     OUTLIER_CHANNELS);
        fprintf(script,
                "set title 'S = %d'\n"
                "plot bound with lines linestyle 5 title 'bound √%d', "
                "$path with linespoints linestyle 4 pointtype 6 pointsize 0.6 linewidth 1 %s, "
                "$row with points linestyle 7 pointsize 0.35 title 'the other 99', "
                "$outlier with points linestyle 8 pointsize 0.9 title 'the outlier'\n",
                step, scales_squared[norm], step == 0 ? "notitle" : "title 'the outlier before'");
    }
    fprintf(script, "unset multiplot\n");
    char name[64];
    snprintf(name, sizeof name, "panels_%s", file_names[norm]);
    draw_figure(script, name, 900, 640);
}

/* Draws the fits with the outliers, and the residuals below them. */
static void draw_fits(void) {
    FILE *script = begin_figure();
    fprintf(script, "set xrange [-55:55]\nset xtics 25\nset multiplot\nset rmargin 0\nset lmargin 0\n");
    for (int norm = 0; norm < NORMS; norm++) {
        const struct outliers *data = &experiment[norm];
        fprintf(script, "set lmargin at screen %g\nset rmargin at screen %g\n", norm == 0 ? 0.075 : 0.575,
                norm == 0 ? 0.485 : 0.985);
        write_points(script, "outliers", data->point_x, data->point_y, OUTLIER_POINTS, 1);
        for (int curve = 0; curve < CURVES; curve++) {
            char name[] = {'c', (char)('0' + curve), '\0'}, residuals[] = {'r', (char)('0' + curve), '\0'};
            write_curve(script, name, (enum curve)curve, data->fits[curve].parameter, data->scale, 55);
            write_points(script, residuals, data->point_x, data->fits[curve].residuals, OUTLIER_POINTS, 1);
        }
        fprintf(script,
                "bound = %.9g\nset tmargin at screen 0.92\nset bmargin at screen 0.44\n"
                "set yrange [-13:13]\nset ytics 5\nset format x ''\nunset xlabel\nset ylabel '%s' offset 1\n"
                "set title 'Outliers from %s'\nset key at graph 0.98,0.42 right top font ',11'\n"
                "set label 1 '√%d' at graph 0.02, first bound offset 0,-0.7 textcolor '#888888'\n"
                "plot bound with lines linestyle 5 notitle, -bound with lines linestyle 5 notitle, "
                "$c0 with lines linestyle 1 title 'DyT, α = %.4f', "
                "$c1 with lines linestyle 2 title 'DyISRU, β = %.1f', "
                "$outliers with points linestyle 6 title 'outliers'\n",
                (double)data->scale, norm == 0 ? "y" : "", norm_names[norm], scales_squared[norm],
                (double)data->fits[CURVE_DYT].parameter, (double)data->fits[CURVE_DYISRU].parameter);
        fprintf(script,
                "unset title\nunset key\nunset label 1\nset tmargin at screen 0.40\nset bmargin at screen 0.12\n"
                "set yrange [-0.9:0.9]\nset ytics 0.4\nset format x\nset xlabel 'x'\nset ylabel '%s' offset 1\n"
                "plot 0 with lines linestyle 5, $r0 with linespoints linestyle 7 pointsize 0.5 linewidth 1, "
                "$r1 with linespoints linestyle 8 pointsize 0.5 linewidth 1\n",
                norm == 0 ? "residual" : "");
    }
    fprintf(script, "unset multiplot\n");
    draw_figure(script, "fits", 900, 520);
}

int main(int count, char **arguments) {
    static const struct option options[] = {
        {"out", required_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
        switch (option) {
        case 'o':
            folder = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        default:
            fputs(usage, stderr);
            return 2;
        }
    if (optind < count) {
        fputs(usage, stderr);
        return 2;
    }

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        stop(folder);
    for (int norm = 0; norm < NORMS; norm++)
        compute_outliers(&experiment[norm], (enum norm)norm);
    print_fits();
    write_json();
    if (fflush(stdout) != 0)
        stop("the output");
    for (int norm = 0; norm < NORMS; norm++) {
        draw_curves((enum norm)norm);
        draw_panels((enum norm)norm);
    }
    draw_fits();
    return EXIT_SUCCESS;
}
