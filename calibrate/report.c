/* SPDX-License-Identifier: BSD-2-Clause */
#include "report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *norm_name(const struct calibration *calibration) {
    return calibration->stream.norm == LAYERNORM ? "LayerNorm" : "RMSNorm";
}

static size_t scale_squared(const struct calibration *calibration) {
    return calibration->stream.channels - (calibration->stream.norm == LAYERNORM);
}

static float border(const struct deciles *deciles, int decile) {
    return decile < DECILE_BORDERS ? deciles->borders[decile] : deciles->largest;
}

/* If the values span many decades, or lie near the ends of float's range, no float may be near the best beta. */
static int is_normal_float(double value) {
    return value >= (double)FLT_MIN && value <= (double)FLT_MAX;
}

enum { NUMBER = 32, SENTENCE = 120 }; /* characters that a number and a sentence can take */

/* The shortest text that reads as this float: what the user gave, where the user gave it. */
static const char *float_text(char text[NUMBER], float value) {
    for (int digits = 1; digits <= FLT_DECIMAL_DIG; digits++) {
        snprintf(text, NUMBER, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return text;
}

static const char *symbol_of(int replacement) {
    return parameter_names[replacements[replacement].curve];
}

/* The initial value that a fit suggests: its best parameter to three digits. More digits would mean nothing, because
 * near the minimum the loss changes only with the square of the error. */
static const char *initial_value(char text[NUMBER], const struct fitted *fitted, const char *none) {
    snprintf(text, NUMBER, "%.3g", fitted->best);
    snprintf(text, NUMBER, "%g", strtod(text, NULL)); /* 8570, not 8.57e+03 */
    return fitted->edge == 0 && is_normal_float(fitted->best) ? text : none;
}

/* ---- Text, in 80 columns ----------------------------------------------------------------------------------------- */

/* At most nine characters. */
static const char *r_squared_text(char text[NUMBER], const struct spread *spread, const struct residuals *residuals) {
    double value = r_squared(spread, residuals);
    snprintf(text, NUMBER, isnan(value) ? "-" : value < -1 ? "%.3g" : value < 0 ? "%.5f" : "%.6f", value);
    return text;
}

/* Why a fit suggests no initial value. NULL if it does. */
static const char *why_none(char text[SENTENCE], const struct fitted *fitted, int replacement) {
    const char *symbol = symbol_of(replacement);
    if (fitted->constant)
        snprintf(text, SENTENCE, "the fit does not depend on %s", symbol);
    else if (fitted->edge != 0)
        snprintf(text, SENTENCE, "no %s is best: the fit gets better all the way to %s", symbol,
                 (fitted->edge > 0) == (replacements[replacement].curve == CURVE_DYT) ? "0" : "infinity");
    else if (!is_normal_float(fitted->best))
        snprintf(text, SENTENCE, "no initial %s: %.3g is outside the range of floats", symbol, fitted->best);
    else
        return NULL;
    return text;
}

static void print_use(const struct calibration *calibration, int set, int replacement) {
    static const char *const formulas[REPLACEMENTS] = {
        [DYT] = "tanh(alpha * x)", [DYISRU] = "x / sqrt(beta + x^2)", [CENTERED_DYISRU] = "u / sqrt(beta + u^2)"};
    const struct fitted *fitted = &calibration->sets[set].fits[replacement];
    const struct spread *spread = &calibration->sets[set].spreads[RECORDED][TOTAL];
    const struct residuals *residuals = &fitted->residuals[TOTAL];
    char number[NUMBER], sentence[SENTENCE];
    const char *name = replacements[replacement].name;
    printf("%c%s (R^2 %s): ", name[0] == 'c' ? 'C' : name[0], name + 1, r_squared_text(number, spread, residuals));
    if (why_none(sentence, fitted, replacement) != NULL) {
        printf("nothing to use, since\n    %s.\n", sentence);
    } else if (is_poor(spread, residuals)) {
        printf("do not use it.\n    It explains next to nothing of what %s does.\n", norm_name(calibration));
    } else {
        printf("use %s = %s with scale ", symbol_of(replacement), initial_value(number, fitted, ""));
        printf("%.6g:\n    y = weight * s * %s%s%s\n", (double)calibration->scale, formulas[replacement],
               calibration->stream.norm == LAYERNORM ? " + bias" : "",
               replacement == CENTERED_DYISRU ? ", where u = x - mean(x)" : "");
    }
}

/* What to use instead of the norm, the nearest replacement first. */
static void print_uses(const struct calibration *calibration, int set) {
    const struct stream *stream = &calibration->stream;
    const struct fitted *fits = calibration->sets[set].fits;
    int order[REPLACEMENTS], usable = 0, poor = 0;
    for (int i = 0; i < REPLACEMENTS; i++) {
        int at = i;
        for (; at > 0 && fits[order[at - 1]].residuals[TOTAL].squares > fits[i].residuals[TOTAL].squares; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    printf("In place of %s, the nearest first (R^2 is 1 where nothing differs):\n\n", norm_name(calibration));
    for (int i = 0; i < REPLACEMENTS; i++) {
        char text[SENTENCE];
        const int is_useless = is_poor(&calibration->sets[set].spreads[RECORDED][TOTAL], &fits[i].residuals[TOTAL]);
        print_use(calibration, set, order[i]);
        usable |= !is_useless && why_none(text, &fits[i], i) == NULL;
        poor |= is_useless;
    }
    if (poor && stream->norm == LAYERNORM && calibration->far_off_tokens > stream->tokens / 2)
        printf("\nMost tokens' means exceed their deviations: only centered DyISRU removes them.\n");
    if (usable)
        printf("\nIf your layer has no scale, multiply its initial weight by %.6g.\n", (double)calibration->scale);
    printf("\n");
}

static void print_fits(const struct calibration *calibration, int set) {
    const struct spread *spread = &calibration->sets[set].spreads[RECORDED][TOTAL];
    char text[NUMBER], sentence[SENTENCE];
    printf("                 best                mean |residual|  max |residual|  R^2\n");
    for (int i = 0; i < REPLACEMENTS; i++) {
        const struct fitted *fitted = &calibration->sets[set].fits[i];
        const struct residuals *residuals = &fitted->residuals[TOTAL];
        snprintf(text, sizeof text, "%s = %.6g", symbol_of(i), fitted->best);
        printf("%-15s  %-18s  %-15.6g  %-14.6g  ", replacements[i].name, text, residuals->sum / (double)spread->count,
               residuals->largest);
        printf("%s\n", r_squared_text(text, spread, residuals));
    }
    for (int i = 0; i < REPLACEMENTS; i++)
        if (why_none(sentence, &calibration->sets[set].fits[i], i) != NULL)
            printf("%s: %s.\n", replacements[i].name, sentence);
}

/* One table for all replacements that have the same input. */
static void print_deciles(const struct calibration *calibration, int set, enum input input) {
    char text[NUMBER];
    printf("\nBy tenths of |%s|", input == RECORDED ? "x" : "x - mean(x)");
    if (input == RECORDED)
        printf("%*s%-29s%s", 6, "", replacements[DYT].name, replacements[DYISRU].name);
    printf("\n%-9s  %-10s", input == RECORDED ? "|x| up to" : "up to", "elements");
    int padding = 1;
    for (int i = 0; i < REPLACEMENTS; i++)
        if (replacements[i].input == input) {
            printf("%*s%-8s %-8s %s", padding, "", "mean", "max", "R^2");
            padding = 8;
        }
    printf("\n");
    for (int decile = 0; decile < DECILES; decile++) {
        const struct spread *spread = &calibration->sets[set].spreads[input][decile];
        int length = printf("%-9.4g  %llu", (double)border(calibration->sets[set].deciles[input], decile),
                            (unsigned long long)spread->count);
        padding = length < 21 ? 22 - length : 1;
        for (int i = 0; i < REPLACEMENTS && spread->count > 0; i++) {
            const struct residuals *residuals = &calibration->sets[set].fits[i].residuals[decile];
            if (replacements[i].input != input)
                continue;
            r_squared_text(text, spread, residuals);
            printf("%*s%-8.3g %-8.3g %s", padding, "", residuals->sum / (double)spread->count, residuals->largest,
                   text);
            padding = 11 - (int)strlen(text);
        }
        printf("\n");
    }
}

static void print_set(const struct calibration *calibration, int set) {
    char text[NUMBER];
    unsigned long long count = calibration->sets[set].deciles[RECORDED]->count;
    if (set == ALL)
        printf("\nFitted to all %llu elements\n\n", count);
    else
        printf("\nFitted to the %llu outliers, which %s puts beyond %s\n\n", count, norm_name(calibration),
               float_text(text, calibration->stream.outliers_beyond));
    if (!calibration->sets[set].fitted) {
        printf("There is nothing to fit.\n");
        return;
    }
    print_fits(calibration, set);
    for (int input = 0; input < INPUTS; input++)
        print_deciles(calibration, set, (enum input)input);
}

void print_text(const struct calibration *calibration) {
    const struct stream *stream = &calibration->stream;
    const int advising = calibration->sets[ALL].wanted ? ALL : OUTLIERS;
    char text[NUMBER];
    if (calibration->sets[advising].fitted)
        print_uses(calibration, advising);
    printf("Measured on %s:\n%zu tokens x %zu channels of %s%zu, %s with eps %s,\n", stream->file.path, stream->tokens,
           stream->channels, stream->file.is_bfloat16 ? "bfloat" : "float", 8 * stream->file.value_size,
           norm_name(calibration), float_text(text, stream->eps));
    printf("scale s = sqrt(%zu) = %.8g; residuals are those of the norm's output.\n", scale_squared(calibration),
           (double)calibration->scale);
    for (int set = 0; set < SETS; set++)
        if (calibration->sets[set].wanted)
            print_set(calibration, set);
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
    char text[NUMBER];
    snprintf(text, sizeof text, isfinite(value) ? "%.9g" : "null", value);
    json_member(name, text);
}

static void json_float(const char *name, float value) {
    char text[NUMBER];
    json_member(name, float_text(text, value));
}

static void json_count(const char *name, uint64_t count) {
    char text[NUMBER];
    snprintf(text, sizeof text, "%llu", (unsigned long long)count);
    json_member(name, text);
}

static void json_residuals(const struct spread *spread, const struct residuals *residuals) {
    json_number("mean_abs_residual", residuals->sum / (double)spread->count);
    json_number("max_abs_residual", residuals->largest);
    json_number("r_squared", r_squared(spread, residuals));
}

static void json_deciles(const struct calibration *calibration, int set, int replacement) {
    const enum input input = replacements[replacement].input;
    json_key("deciles");
    json_open("[");
    for (int decile = 0; decile < DECILES; decile++) {
        const struct spread *spread = &calibration->sets[set].spreads[input][decile];
        json_open("\n      {");
        json_float(input == RECORDED ? "abs_x_up_to" : "abs_x_minus_mean_up_to",
                   border(calibration->sets[set].deciles[input], decile));
        json_count("elements", spread->count);
        json_residuals(spread, &calibration->sets[set].fits[replacement].residuals[decile]);
        json_close("}");
    }
    json_close("]");
}

static void json_set(const struct calibration *calibration, int set) {
    const struct spread *spread = &calibration->sets[set].spreads[RECORDED][TOTAL];
    json_open("{");
    json_count("elements", calibration->sets[set].deciles[RECORDED]->count);
    for (int i = 0; i < REPLACEMENTS; i++) {
        const struct fitted *fitted = &calibration->sets[set].fits[i];
        if (!calibration->sets[set].fitted) {
            json_member(replacements[i].key, "null");
            continue;
        }
        char text[NUMBER];
        json_key(replacements[i].key);
        json_open("\n    {");
        json_number(symbol_of(i), fitted->best);
        json_member("initial", initial_value(text, fitted, "null"));
        json_member("at_edge", fitted->edge != 0 ? "true" : "false");
        json_member("constant", fitted->constant ? "true" : "false");
        json_member("poor", is_poor(spread, &fitted->residuals[TOTAL]) ? "true" : "false");
        json_residuals(spread, &fitted->residuals[TOTAL]);
        json_deciles(calibration, set, i);
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
    json_float("eps", stream->eps);
    json_float("scale", calibration->scale);
    json_float("outliers_beyond", stream->outliers_beyond);
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

static double value_at(const struct calibration *calibration, int set, int replacement, double input) {
    double best = calibration->sets[set].fits[replacement].best;
    double value =
        replacements[replacement].curve == CURVE_DYT ? tanh(best * input) : input / sqrt(best + input * input);
    return (double)calibration->scale * value;
}

/* Writes each point's x, the norm's output and the replacements' as data for gnuplot. Returns the largest residual. A
 * sample of all elements has few outliers, so the outliers' own sample is added to it. */
static double write_data(FILE *script, const struct calibration *calibration, int set) {
    double largest = 0;
    fprintf(script, "$data << END\n");
    for (int from = set; from < SETS; from++)
        for (size_t k = 0; k < calibration->sets[from].plotted; k++) {
            double y = (double)calibration->sets[from].normalized[k];
            fprintf(script, "%.9g %.9g", (double)calibration->sets[from].inputs[RECORDED][k], y);
            for (int i = 0; i < REPLACEMENTS; i++) {
                double input = (double)calibration->sets[from].inputs[replacements[i].input][k];
                double value = value_at(calibration, set, i, input);
                fprintf(script, " %.9g", value);
                largest = fmax(largest, fabs(value - y));
            }
            fprintf(script, "\n");
        }
    fprintf(script, "END\n");
    return largest;
}

/* Draws the data and both curves of x above, and all residuals below. */
static void plot_set(FILE *script, const struct calibration *calibration, int set, double left, double right) {
    enum { SAMPLES = 200 };
    const struct fitted *fits = calibration->sets[set].fits;
    const double reach = 1.04 * (double)calibration->sets[set].deciles[RECORDED]->largest;
    const double residual = 1.4 * fmax(write_data(script, calibration, set), 1e-6);
    fprintf(script, "$curves << END\n");
    for (int i = -SAMPLES; i <= SAMPLES; i++)
        fprintf(script, "%.6g %.6g %.6g\n", reach * i / SAMPLES, value_at(calibration, set, DYT, reach * i / SAMPLES),
                value_at(calibration, set, DYISRU, reach * i / SAMPLES));
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
            calibration->sets[set].plotted < 100 ? 6 : 9, fits[DYT].best, fits[DYISRU].best);
    fprintf(script,
            "unset title\nset key at graph 0.98,0.98 right top\nset tmargin at screen 0.38\n"
            "set bmargin at screen 0.12\nset format x\n"
            "set xlabel 'x'\nset ylabel 'residual'\nset yrange [%.9g:%.9g]\nset ytics %.9g\n"
            "plot $data using 1:($3 - $2) with points linestyle 7 pointsize 0.3 notitle, "
            "$data using 1:($4 - $2) with points linestyle 8 pointsize 0.3 notitle, "
            "$data using 1:($5 - $2) with points linestyle 10 pointsize 0.3 title 'centered DyISRU, β = %.4g', "
            "0 with lines linestyle 5 notitle\n",
            -residual, residual, tics_step(residual), fits[CENTERED_DYISRU].best);
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
