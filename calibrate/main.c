/* SPDX-License-Identifier: BSD-2-Clause
 *
 * dynnorm-calibrate: reads and checks the options, and runs the calibration.
 */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: dynnorm-calibrate [OPTION]... ACTIVATIONS.npy\n"
                            "\n"
                            "Finds what replaces LayerNorm or RMSNorm best on recorded activations, the\n"
                            "norm's input, by least squares: the alpha of DyT, s tanh(alpha x), the beta of\n"
                            "DyISRU, s x / sqrt(beta + x^2), and that of centered DyISRU, which is DyISRU of\n"
                            "x - mean(x). The scale s is sqrt(channels - 1) for LayerNorm and sqrt(channels)\n"
                            "for RMSNorm. ACTIVATIONS.npy is an array [tokens x channels], or of more axes,\n"
                            "channels last, of float16, float32 or float64, in C order.\n"
                            "\n"
                            "  --norm layernorm|rmsnorm  the norm that the activations went through\n"
                            "                            (layernorm)\n"
                            "  --eps NUMBER              its eps (1e-5)\n"
                            "  --weight FILE.npy         its weight, one value for each channel (1)\n"
                            "  --bias FILE.npy           its bias, one value for each channel (0); LayerNorm\n"
                            "                            only\n"
                            "  --bfloat16                the activations are bfloat16, whose bits the file\n"
                            "                            holds as uint16; weight and bias may be so, too\n"
                            "  --fit all|outliers        fit to all elements, or to the outliers alone, as\n"
                            "                            the papers do; both if not given\n"
                            "  --outliers-beyond NUMBER  how far out outliers are after the norm, before\n"
                            "                            weight and bias (3)\n"
                            "  --json                    print the results as JSON\n"
                            "  --plot FILE.svg|FILE.png  draw data, curves and residuals; needs gnuplot\n"
                            "  --help                    this text\n"
                            "  --version                 the library's version\n"
                            "\n"
                            "First it says what to use: each parameter to three digits, which is enough for\n"
                            "an initial value. Then, for each fit, come the best parameters, the mean and the\n"
                            "largest absolute residual of the norm's output, and R^2; and the same for each\n"
                            "tenth of the elements by |x| (by |x - mean(x)| for centered DyISRU). In the\n"
                            "JSON, \"initial\" is null where there is no such value, \"constant\" is true where\n"
                            "the fit does not depend on the parameter, and \"poor\" where R^2 is below 0.1.\n"
                            "\n"
                            "Exit status: 0, 2 for bad usage or a bad file, else 1.\n";

static struct calibration calibration;
static const char *weight_path, *bias_path, *plot_path;
static int json, bfloat16;

__attribute__((noreturn, format(printf, 1, 2))) static void bad_usage(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "dynnorm-calibrate: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nTry dynnorm-calibrate --help.\n");
    va_end(arguments);
    exit(2);
}

/* Ends the program if what it has printed cannot be written. */
static void require_output(void) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "dynnorm-calibrate: the output: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
}

static float read_number(const char *option, const char *text) {
    char *end;
    float number = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(number) || number < 0)
        bad_usage("%s takes a number that is not negative, not '%s'", option, text);
    return number;
}

/* Returns 0 for the first of two words and 1 for the second. */
static int read_word(const char *option, const char *text, const char *first, const char *second) {
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        bad_usage("%s takes '%s' or '%s', not '%s'", option, first, second, text);
    return strcmp(text, second) == 0;
}

/* The path of a figure. It must not hold control characters, because messages show it on terminals. */
static const char *read_plot_path(const char *path) {
    for (const char *character = path; *character != '\0'; character++)
        if (is_control(*character))
            bad_usage("--plot takes the name of a file without control characters, such as line ends");
    if (!gnuplot_draws(path))
        bad_usage("--plot draws FILE.svg or FILE.png, not '%s'", path);
    return path;
}

/* Returns the path of the file of activations. */
static const char *read_options(int count, char **arguments) {
    static const struct option options[] = {
        {"norm", required_argument, NULL, 'n'},   {"eps", required_argument, NULL, 'e'},
        {"weight", required_argument, NULL, 'w'}, {"bias", required_argument, NULL, 'b'},
        {"fit", required_argument, NULL, 'f'},    {"outliers-beyond", required_argument, NULL, 'o'},
        {"bfloat16", no_argument, NULL, '1'},     {"json", no_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},   {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0}};
    struct stream *stream = &calibration.stream;
    stream->eps = 1e-5f;
    stream->outliers_beyond = 3;
    calibration.sets[ALL].wanted = calibration.sets[OUTLIERS].wanted = 1;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;)
        switch (option) {
        case 'n':
            stream->norm = read_word("--norm", optarg, "layernorm", "rmsnorm") ? RMSNORM : LAYERNORM;
            break;
        case 'e':
            stream->eps = read_number("--eps", optarg);
            break;
        case 'w':
            weight_path = optarg;
            break;
        case 'b':
            bias_path = optarg;
            break;
        case 'f':
            calibration.sets[OUTLIERS].wanted = read_word("--fit", optarg, "all", "outliers");
            calibration.sets[ALL].wanted = !calibration.sets[OUTLIERS].wanted;
            break;
        case 'o':
            stream->outliers_beyond = read_number("--outliers-beyond", optarg);
            break;
        case '1':
            bfloat16 = 1;
            break;
        case 'j':
            json = 1;
            break;
        case 'p':
            plot_path = read_plot_path(optarg);
            break;
        case 'h':
            fputs(usage, stdout);
            require_output();
            exit(EXIT_SUCCESS);
        case 'v':
            printf("dynnorm-calibrate %s\n", dynnorm_version());
            require_output();
            exit(EXIT_SUCCESS);
        default: /* getopt_long has printed what is wrong */
            fprintf(stderr, "Try dynnorm-calibrate --help.\n");
            exit(2);
        }
    if (optind + 1 != count)
        bad_usage(optind == count ? "a file of activations is missing" : "more than one file of activations");
    if (bias_path != NULL && stream->norm == RMSNORM)
        bad_usage("RMSNorm has no bias");
    return arguments[optind];
}

static void open_activations(const char *path) {
    struct stream *stream = &calibration.stream;
    npy_open(&stream->file, path, bfloat16 ? NPY_BFLOAT16 : NPY_FLOATS);
    if (stream->file.axes < 2)
        npy_bad(path, "it has %zu ax%s; tokens and channels are needed", stream->file.axes,
                stream->file.axes == 1 ? "is" : "es");
    stream->channels = stream->file.channels;
    stream->tokens = stream->file.count / stream->channels;
    if (stream->norm == LAYERNORM && stream->channels == 1)
        npy_bad(path, "it has 1 channel, of which LayerNorm makes 0");
}

/* Reads a weight or bias. Returns NULL if there is no path. */
static float *read_vector(const char *path, const char *what) {
    if (path == NULL)
        return NULL;
    struct npy file;
    npy_open(&file, path, bfloat16 ? NPY_FLOATS_OR_BFLOAT16 : NPY_FLOATS);
    if (file.count != calibration.stream.channels)
        npy_bad(path, "a %s of %zu values, for %zu channels", what, file.count, calibration.stream.channels);
    float *values = allocate(file.count, sizeof *values);
    npy_rewind(&file);
    npy_read(&file, values, file.count);
    npy_close(&file);
    return values;
}

/* Ends the program if a figure was not, or could not be, drawn. */
static void require_figure(enum gnuplot_outcome outcome) {
    if (outcome == GNUPLOT_MISSING)
        fprintf(stderr, "dynnorm-calibrate: gnuplot is not installed, and --plot needs it\n");
    if (outcome != GNUPLOT_DREW)
        exit(EXIT_FAILURE);
}

int main(int count, char **arguments) {
    struct stream *stream = &calibration.stream;
    const char *path = read_options(count, arguments);
    open_activations(path);
    stream->weight = read_vector(weight_path, "weight");
    stream->bias = read_vector(bias_path, "bias");
    stream->outliers_wanted = calibration.sets[OUTLIERS].wanted;
    if (plot_path != NULL)
        require_figure(gnuplot_try(plot_path));
    stream_allocate(stream);
    calibrate(&calibration);
    if (calibration.sets[ALL].deciles[RECORDED]->largest == 0)
        npy_bad(path, "all of its values are 0");

    if (json)
        print_json(&calibration);
    else
        print_text(&calibration);
    require_output();
    int plottable = calibration.sets[ALL].fitted || calibration.sets[OUTLIERS].fitted;
    if (plot_path != NULL && plottable)
        require_figure(draw_plot(&calibration, plot_path));
    else if (plot_path != NULL)
        fprintf(stderr, "dynnorm-calibrate: there is nothing to plot, so there is no %s\n", plot_path);
    calibration_free(&calibration);
    return EXIT_SUCCESS;
}
