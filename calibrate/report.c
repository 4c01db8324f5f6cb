/* SPDX-License-Identifier: BSD-2-Clause */
#include "report.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *norm_name(const struct calibration *calibration) {
    return calibration->stream.norm == LAYERNORM ? "LayerNorm" : "RMSNorm";
}

static size_t scale_squared(const struct calibration *calibration) {
    return calibration->stream.channels - (calibration->stream.norm == LAYERNORM);
}

static double border(const struct deciles *deciles, int decile) {
    return (double)(decile < DECILE_BORDERS ? deciles->borders[decile] : deciles->largest);
}

/* If the values span many decades, or lie near the ends of float's range, no float may be near the best beta. */
static int is_normal_float(double value) {
    return value >= (double)FLT_MIN && value <= (double)FLT_MAX;
}

/* The initial value that a fit suggests: its best parameter to three digits. More digits would mean nothing, because
 * near the minimum the loss changes only with the square of the error. */
static const char *initial_value(char text[32], const struct fitted *fitted, const char *none) {
    snprintf(text, 32, "%.3g", fitted->best);
    return fitted->edge == 0 && is_normal_float(fitted->best) ? text : none;
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

static const char *r_squared_text(char text[32], const struct spread *spread, const struct residuals *residuals) {
    double value = r_squared(spread, residuals);
    snprintf(text, 32, isnan(value) ? "-" : value < -1e4 ? "%.3g" : "%.6f", value);
    return text;
}

static void print_fits(const struct calibration *calibration, int set) {
    const struct spread *spread = &calibration->sets[set].spreads[TOTAL];
    char text[32];
    printf("          best                     initial value   mean |residual|   max |residual|   R^2\n");
    for (int curve = 0; curve < CURVES; curve++) {
        const struct fitted *fitted = &calibration->sets[set].curves[curve];
        const struct residuals *residuals = &fitted->residuals[TOTAL];
        printf("  %-6s  %-5s = %-15.8g  %-13s   ", curve_names[curve], parameter_names[curve], fitted->best,
               initial_value(text, fitted, "-"));
        printf("%-15.6g   %-14.6g   %s\n", residuals->sum / (double)spread->count, residuals->largest,
               r_squared_text(text, spread, residuals));
    }
    for (int curve = 0; curve < CURVES; curve++) {
        const struct fitted *fitted = &calibration->sets[set].curves[curve];
        if (fitted->constant)
            printf("  The fit does not depend on %s, as where the weight is 0.\n", parameter_names[curve]);
        else if (fitted->edge != 0)
            printf("  No %s is best: the fit gets better all the way to %s.\n", parameter_names[curve],
                   (fitted->edge > 0) == (curve == CURVE_DYT) ? "0" : "infinity");
        else if (!is_normal_float(fitted->best))
            printf("  No initial value for %s: %.3g is outside the range of floats.\n", parameter_names[curve],
                   fitted->best);
    }
}

/* Prints a line if a curve is of little use. */
static void print_warning(const struct calibration *calibration, int set) {
    const struct stream *stream = &calibration->stream;
    const struct spread *spread = &calibration->sets[set].spreads[TOTAL];
    const struct fitted *curves = calibration->sets[set].curves;
    const int dyt = is_poor(spread, &curves[CURVE_DYT].residuals[TOTAL]);
    const int dyisru = is_poor(spread, &curves[CURVE_DYISRU].residuals[TOTAL]);
    if (!dyt && !dyisru)
        return;
    printf("  Warning: %s%s%s explain%s next to nothing of the norm's output.", dyt ? "DyT" : "",
           dyt && dyisru ? " and " : "", dyisru ? "DyISRU" : "", dyt && dyisru ? "" : "s");
    if (stream->norm == LAYERNORM && calibration->far_off_tokens > stream->tokens / 2)
        printf(" Most tokens' means exceed their deviations: see centered DyISRU, which takes the mean away.");
    printf("\n");
}

static void print_deciles(const struct calibration *calibration, int set) {
    char text[32];
    printf("\n  by tenths of |x|            %-38s%s\n", curve_names[CURVE_DYT], curve_names[CURVE_DYISRU]);
    printf("  |x| up to      elements    ");
    for (int curve = 0; curve < CURVES; curve++)
        printf("%s", curve + 1 < CURVES ? "mean |res.|  max |res.|  R^2           " : "mean |res.|  max |res.|  R^2\n");
    for (int decile = 0; decile < DECILES; decile++) {
        const struct spread *spread = &calibration->sets[set].spreads[decile];
        printf("  %-13.6g  %-10llu", border(calibration->sets[set].deciles, decile), (unsigned long long)spread->count);
        for (int curve = 0; curve < CURVES && spread->count > 0; curve++) {
            const struct residuals *residuals = &calibration->sets[set].curves[curve].residuals[decile];
            r_squared_text(text, spread, residuals);
            printf("  %-11.5g  %-10.5g  %*s", residuals->sum / (double)spread->count, residuals->largest,
                   curve + 1 < CURVES ? -12 : 0, text);
        }
        printf("\n");
    }
}

void print_text(const struct calibration *calibration) {
    const struct stream *stream = &calibration->stream;
    printf("%s: %zu tokens x %zu channels of float%zu\n", stream->file.path, stream->tokens, stream->channels,
           8 * stream->file.value_size);
    printf("%s with eps %g; DyT and DyISRU with scale s = sqrt(%zu) = %.8g\n", norm_name(calibration),
           (double)stream->eps, scale_squared(calibration), (double)calibration->scale);
    for (int set = 0; set < SETS; set++) {
        if (!calibration->sets[set].wanted)
            continue;
        unsigned long long count = calibration->sets[set].deciles->count;
        if (set == ALL)
            printf("\nFitted to all %llu elements\n\n", count);
        else
            printf("\nFitted to the %llu outliers, which %s puts beyond %g\n\n", count, norm_name(calibration),
                   (double)stream->outliers_beyond);
        if (calibration->sets[set].fitted) {
            print_fits(calibration, set);
            print_warning(calibration, set);
            print_deciles(calibration, set);
        } else {
            printf("  There is nothing to fit.\n");
        }
    }
    printf("\nIf the layer has no scale of its own, its weight is multiplied by s.\n");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static int json_comma; /* whether the next value needs a comma before it */

static void json_open(const char *bracket) {
    printf("%s%s", json_comma ? ", " : "", bracket);
    json_comma = 0;
}

static void json_close(const char *bracket) {
    printf("%s", bracket);
    json_comma = 1;
}

static void json_key(const char *name) {
    printf("%s\"%s\": ", json_comma ? ", " : "", name);
    json_comma = 0;
}

/* Writes a value that is JSON already. */
static void json_member(const char *name, const char *value) {
    json_key(name);
    json_close(value);
}

/* Writes null for infinity and NaN, which JSON does not have. */
static void json_number(const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, isfinite(value) ? "%.9g" : "null", value);
    json_member(name, text);
}

static void json_count(const char *name, uint64_t count) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)count);
    json_member(name, text);
}

static void json_residuals(const struct spread *spread, const struct residuals *residuals) {
    json_number("mean_abs_residual", residuals->sum / (double)spread->count);
    json_number("max_abs_residual", residuals->largest);
    json_number("r_squared", r_squared(spread, residuals));
}

static void json_set(const struct calibration *calibration, int set) {
    static const char *const keys[CURVES] = {"dyt", "dyisru"};
    const struct spread *spreads = calibration->sets[set].spreads;
    json_open("{");
    json_count("elements", calibration->sets[set].deciles->count);
    for (int curve = 0; curve < CURVES; curve++) {
        const struct fitted *fitted = &calibration->sets[set].curves[curve];
        if (!calibration->sets[set].fitted) {
            json_member(keys[curve], "null");
            continue;
        }
        char text[32];
        json_key(keys[curve]);
        json_open("\n    {");
        json_number(parameter_names[curve], fitted->best);
        json_member("initial", initial_value(text, fitted, "null"));
        json_member("at_edge", fitted->edge != 0 ? "true" : "false");
        json_member("constant", fitted->constant ? "true" : "false");
        json_member("poor", is_poor(&spreads[TOTAL], &fitted->residuals[TOTAL]) ? "true" : "false");
        json_residuals(&spreads[TOTAL], &fitted->residuals[TOTAL]);
        json_key("deciles");
        json_open("[");
        for (int decile = 0; decile < DECILES; decile++) {
            json_open("\n      {");
            json_number("abs_x_up_to", border(calibration->sets[set].deciles, decile));
            json_count("elements", spreads[decile].count);
            json_residuals(&spreads[decile], &fitted->residuals[decile]);
            json_close("}");
        }
        json_close("]");
        json_close("}");
    }
    json_close("}");
}

void print_json(const struct calibration *calibration) {
    static const char *const keys[SETS] = {"all", "outliers"};
    const struct stream *stream = &calibration->stream;
    json_open("{");
    json_count("tokens", stream->tokens);
    json_count("channels", stream->channels);
    json_member("norm", stream->norm == LAYERNORM ? "\"layernorm\"" : "\"rmsnorm\"");
    json_number("eps", (double)stream->eps);
    json_number("scale", (double)calibration->scale);
    json_number("outliers_beyond", (double)stream->outliers_beyond);
    for (int set = 0; set < SETS; set++)
        if (calibration->sets[set].wanted) {
            json_key(keys[set]);
            json_set(calibration, set);
        }
    json_close("}\n");
}

/* ---- Plot -------------------------------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of 10, about a third of the range. */
static double tics_step(double way) {
    double power = pow(10, floor(log10(way / 3))), steps = way / 3 / power;
    return power * (steps < 1.5 ? 1 : steps < 3.5 ? 2 : steps < 7.5 ? 5 : 10);
}

static double curve_at(const struct calibration *calibration, int set, int curve, double x) {
    double best = calibration->sets[set].curves[curve].best;
    return (double)calibration->scale * (curve == CURVE_DYT ? tanh(best * x) : x / sqrt(best + x * x));
}

/* Writes each point's x, the norm's output and both curves as data for gnuplot. Returns the largest residual. A sample
 * of all elements has few outliers, so the outliers' own sample is added to it. */
static double write_data(FILE *script, const struct calibration *calibration, int set) {
    double largest = 0;
    fprintf(script, "$data << END\n");
    for (int from = set; from < SETS; from++)
        for (size_t i = 0; i < calibration->sets[from].plotted; i++) {
            double x = (double)calibration->sets[from].x[i], y = (double)calibration->sets[from].normalized[i];
            double dyt = curve_at(calibration, set, CURVE_DYT, x), dyisru = curve_at(calibration, set, CURVE_DYISRU, x);
            fprintf(script, "%.9g %.9g %.9g %.9g\n", x, y, dyt, dyisru);
            largest = fmax(largest, fmax(fabs(dyt - y), fabs(dyisru - y)));
        }
    fprintf(script, "END\n");
    return largest;
}

/* Draws the data and both curves above, and the residuals below. */
static void plot_set(FILE *script, const struct calibration *calibration, int set, double left, double right) {
    enum { SAMPLES = 200 };
    const struct fitted *curves = calibration->sets[set].curves;
    const double reach = 1.04 * (double)calibration->sets[set].deciles->largest;
    const double residual = 1.15 * fmax(write_data(script, calibration, set), 1e-6);
    fprintf(script, "$curves << END\n");
    for (int i = -SAMPLES; i <= SAMPLES; i++)
        fprintf(script, "%.6g %.6g %.6g\n", reach * i / SAMPLES,
                curve_at(calibration, set, CURVE_DYT, reach * i / SAMPLES),
                curve_at(calibration, set, CURVE_DYISRU, reach * i / SAMPLES));
    fprintf(script, "END\n");
    fprintf(script,
            "bound = %.9g\nset lmargin at screen %g\nset rmargin at screen %g\nset xrange [%.9g:%.9g]\n"
            "set yrange [-1.15 * bound:1.15 * bound]\nset ytics %.9g\nset xtics %.9g\n"
            "set tmargin at screen 0.88\nset bmargin at screen 0.42\nset format x ''\nunset xlabel\n"
            "set ylabel '%s'\nset title 'Fitted to %s'\nset key at graph 0.98,0.38 right top\n",
            (double)calibration->scale, left, right, -reach, reach, tics_step((double)calibration->scale),
            tics_step(reach), norm_name(calibration), set == ALL ? "all elements" : "the outliers");
    fprintf(script,
            "plot bound with lines linestyle 5 notitle, -bound with lines linestyle 5 notitle, "
            "$data using 1:2 with points linestyle %d title 'data', "
            "$curves using 1:2 with lines linestyle 1 title 'DyT, α = %.4g', "
            "$curves using 1:3 with lines linestyle 2 title 'DyISRU, β = %.4g'\n",
            calibration->sets[set].plotted < 100 ? 6 : 9, curves[CURVE_DYT].best, curves[CURVE_DYISRU].best);
    fprintf(script,
            "unset title\nunset key\nset tmargin at screen 0.38\nset bmargin at screen 0.12\nset format x\n"
            "set xlabel 'x'\nset ylabel 'residual'\nset yrange [%.9g:%.9g]\nset ytics %.9g\n"
            "plot $data using 1:($3 - $2) with points linestyle 7 pointsize 0.3, "
            "$data using 1:($4 - $2) with points linestyle 8 pointsize 0.3, 0 with lines linestyle 5\n",
            -residual, residual, tics_step(residual));
}

enum gnuplot_outcome draw_plot(const struct calibration *calibration, const char *path) {
    int count = calibration->sets[ALL].fitted + calibration->sets[OUTLIERS].fitted;
    FILE *script = gnuplot_begin();
    if (script == NULL)
        return GNUPLOT_FAILED;
    fprintf(script, "set samples 2\nset multiplot title ");
    gnuplot_quote(script, calibration->stream.file.path);
    fprintf(script, " noenhanced\n");
    double width = 1.0 / count;
    for (int set = 0, column = 0; set < SETS; set++)
        if (calibration->sets[set].fitted) {
            plot_set(script, calibration, set, (column + 0.15 / sqrt(count)) * width + 0.01, (column + 0.97) * width);
            column++;
        }
    fprintf(script, "unset multiplot\n");
    enum gnuplot_outcome outcome = gnuplot_draw(script, path, 520 * count + 40, 560);
    fclose(script);
    return outcome;
}
