/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Norms of tensors whose channels lie on several machines, by MPI: LayerNorm and RMSNorm exchange a few numbers for
 * each token, DyT and DyISRU nothing. Every process computes its part of each row, forward and backward, and compares
 * it with the same rows in one piece, bit for bit. Then the program tells what this took, and what a simple model makes
 * of it for more machines.
 *
 *     mpirun -n 4 mpi_sharded --tokens 512 --channels 8192
 */
#include <dynnorm.h>

#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: mpirun -n PROCESSES mpi_sharded [OPTION NUMBER]...\n"
    "\n"
    "Computes LayerNorm, RMSNorm, DyT and DyISRU of tensors whose channels are split between the processes, of so "
    "many\n"
    "rows and of one.\n"
    "\n"
    "  --tokens N       rows of the tensor (256)\n"
    "  --channels N     channels of a row, all processes together (8192)\n"
    "  --rounds N       how often each call is timed; the median counts (99)\n"
    "  --latency US     of the model: microseconds that a message takes from node to node (2)\n"
    "  --bandwidth GBS  of the model: gigabytes a second that a node can receive (12.5)\n"
    "\n"
    "The model: nodes have as many channels each as a process has here, and take the time that a process takes here "
    "for\n"
    "its arithmetic. An exchange among n nodes takes ceil(log2(n)) times the latency, and the time in which a node\n"
    "receives what all others tell. This is a model: nothing of it has been measured.\n";

static int rank, processes;

static void stop(const char *what) {
    fprintf(stderr, "mpi_sharded: process %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    exit(EXIT_FAILURE);
}

static void require_ok(dynnorm_status status) {
    if (status != DYNNORM_OK)
        stop(dynnorm_status_string(status));
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        stop("out of memory");
    return memory;
}

/* ---- What is computed ---- */

struct options {
    size_t tokens;
    size_t channels;
    size_t rounds;
    double latency;   /* seconds */
    double bandwidth; /* bytes a second */
};

struct tensors {
    float *x;
    float *dy;
    float *y;
    float *dx;
    float *weight;
    float *bias;
    float *dweight;
    float *dbias;
    float *mean;
    float *rstd;
    float dparameter;
};

static struct tensors allocate_tensors(size_t tokens, size_t channels) {
    struct tensors made;
    made.x = allocate(tokens * channels, sizeof(float));
    made.dy = allocate(tokens * channels, sizeof(float));
    made.y = allocate(tokens * channels, sizeof(float));
    made.dx = allocate(tokens * channels, sizeof(float));
    made.weight = allocate(channels, sizeof(float));
    made.bias = allocate(channels, sizeof(float));
    made.dweight = allocate(channels, sizeof(float));
    made.dbias = allocate(channels, sizeof(float));
    made.mean = allocate(tokens, sizeof(float));
    made.rstd = allocate(tokens, sizeof(float));
    made.dparameter = 0;
    return made;
}

/* The same numbers in every process, between -1 and 1. */
static void fill(float *values, size_t count, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

static dynnorm_descriptor describe(dynnorm_operation operation, struct tensors *of, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation, call.tokens = tokens, call.channels = channels;
    call.eps = 1e-5f, call.alpha = 0.5f, call.beta = 1;
    call.x.data = of->x, call.y.data = of->y, call.dy.data = of->dy, call.dx.data = of->dx;
    call.weight.data = of->weight, call.dweight.data = of->dweight;
    if (operation != DYNNORM_RMSNORM)
        call.bias.data = of->bias, call.dbias.data = of->dbias;
    if (operation == DYNNORM_LAYERNORM)
        call.mean = of->mean;
    if (operation == DYNNORM_LAYERNORM || operation == DYNNORM_RMSNORM)
        call.rstd = of->rstd;
    if (operation == DYNNORM_DYT)
        call.dalpha = &of->dparameter;
    if (operation == DYNNORM_DYISRU)
        call.dbeta = &of->dparameter;
    return call;
}

/* ---- A call of all processes ---- */

enum pass { FORWARD, BACKWARD };

struct sharded_call {
    dynnorm_descriptor call; /* of this process's part */
    dynnorm_split split;
    dynnorm_split_sums place;
    double *sums;
    int *counts; /* of doubles, for MPI */
    int *places;
};

static void begin_sharded_call(struct sharded_call *sharded, enum pass pass) {
    const int own = rank;
    for (int i = 0; i < processes; i++) {
        dynnorm_descriptor call = sharded->call; /* every process knows the place of every part */
        sharded->split.part = (size_t)i;
        call.channels = sharded->split.channels[i];
        require_ok(pass == FORWARD ? dynnorm_split_forward_size(&call, &sharded->split, &sharded->place)
                                   : dynnorm_split_backward_size(&call, &sharded->split, &sharded->place));
        if (sharded->place.total > INT_MAX)
            stop("so many tokens need more sums than one call of MPI can exchange");
        sharded->counts[i] = (int)sharded->place.count;
        sharded->places[i] = (int)sharded->place.first;
    }
    sharded->split.part = (size_t)own;
    sharded->sums = allocate(sharded->place.total, sizeof(double));
}

/* Returns the seconds that went into the exchange. */
static double run_sharded_call(struct sharded_call *sharded, enum pass pass) {
    double seconds = 0;
    require_ok(pass == FORWARD ? dynnorm_split_forward_sums(&sharded->call, &sharded->split, sharded->sums)
                               : dynnorm_split_backward_sums(&sharded->call, &sharded->split, sharded->sums));
    if (sharded->place.total) {
        seconds = MPI_Wtime();
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sharded->sums, sharded->counts, sharded->places, MPI_DOUBLE,
                       MPI_COMM_WORLD);
        seconds = MPI_Wtime() - seconds;
    }
    require_ok(pass == FORWARD ? dynnorm_split_forward(&sharded->call, &sharded->split, sharded->sums)
                               : dynnorm_split_backward(&sharded->call, &sharded->split, sharded->sums));
    return seconds;
}

/* dalpha and dbeta are sums over all parts: one number for the whole call, added in the same order everywhere. */
static double add_parameter_gradients(double own) {
    double *all = allocate((size_t)processes, sizeof(double)), sum = 0;
    MPI_Allgather(&own, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < processes; i++)
        sum += all[i];
    free(all);
    return sum;
}

/* ---- Times ---- */

struct times {
    double arithmetic; /* seconds of a call without its exchange */
    double exchange;
    double bytes; /* that a process receives for each token */
};

static int compare(const void *a, const void *b) {
    const double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* The slowest process of each round counts. */
static struct times time_sharded_call(struct sharded_call *sharded, enum pass pass, const struct options *options) {
    const size_t rounds = options->rounds;
    double *arithmetic = allocate(rounds, sizeof(double));
    double *exchange = allocate(rounds, sizeof(double));
    for (size_t i = 0; i < rounds; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime(), of_exchange = run_sharded_call(sharded, pass);
        const double own[2] = {MPI_Wtime() - begin - of_exchange, of_exchange};
        double slowest[2];
        MPI_Allreduce(own, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        arithmetic[i] = slowest[0];
        exchange[i] = slowest[1];
    }
    const double received = (double)(sharded->place.total - sharded->place.count) * sizeof(double);
    const struct times times = {median(arithmetic, rounds), median(exchange, rounds),
                                received / (double)options->tokens};
    free(arithmetic);
    free(exchange);
    return times;
}

/* ---- Checks ---- */

/* Whether the part of each row is the same, bit for bit. */
static int are_same_rows(const float *part, const float *whole, const struct sharded_call *sharded, size_t first,
                         size_t row_channels) {
    const size_t channels = sharded->call.channels;
    for (size_t row = 0; row < sharded->call.tokens; row++)
        if (memcmp(part + row * channels, whole + row * row_channels + first, channels * sizeof(float)) != 0)
            return 0;
    return 1;
}

static void check(struct sharded_call *sharded, struct tensors *part, struct tensors *whole, size_t first,
                  const struct options *options) {
    const dynnorm_descriptor *call = &sharded->call;
    const size_t bytes = call->channels * sizeof(float), tokens = options->tokens;
    int are_same = are_same_rows(part->y, whole->y, sharded, first, options->channels) &&
                   are_same_rows(part->dx, whole->dx, sharded, first, options->channels) &&
                   !memcmp(part->dweight, whole->dweight + first, bytes) &&
                   (!call->bias.data || !memcmp(part->dbias, whole->dbias + first, bytes)) &&
                   (!call->mean || !memcmp(part->mean, whole->mean, tokens * sizeof(float))) &&
                   (!call->rstd || !memcmp(part->rstd, whole->rstd, tokens * sizeof(float)));
    if (call->dalpha || call->dbeta) {
        const double sum = add_parameter_gradients((double)part->dparameter), of_whole = (double)whole->dparameter;
        are_same = are_same && fabs(sum - of_whole) <= 1e-4 * fabs(of_whole) + 1e-3;
    }
    MPI_Allreduce(MPI_IN_PLACE, &are_same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!are_same)
        stop("the parts are not those of the rows in one piece");
}

/* ---- The report ---- */

enum { OPERATIONS = 4 };
static const char *const names[OPERATIONS] = {"LayerNorm", "RMSNorm", "DyT", "DyISRU"};

static void print_times(const char *pass, struct times times[OPERATIONS], const struct options *options) {
    printf("\n%s, %d processes, %zu token%s of %zu channels; microseconds a call, bytes received a token:\n\n", pass,
           processes, options->tokens, options->tokens == 1 ? "" : "s", options->channels);
    printf("  %-10s %12s %12s %12s %12s\n", "", "arithmetic", "exchange", "together", "bytes");
    for (int i = 0; i < OPERATIONS; i++)
        printf("  %-10s %12.1f %12.1f %12.1f %12.0f\n", names[i], times[i].arithmetic * 1e6, times[i].exchange * 1e6,
               (times[i].arithmetic + times[i].exchange) * 1e6, times[i].bytes);
}

/* Seconds of a call on so many nodes. */
static double model(const struct times *times, int nodes, const struct options *options) {
    const double bytes_of_part = processes > 1 ? times->bytes / (processes - 1) * (double)options->tokens : 0;
    return times->bytes > 0 ? times->arithmetic + ceil(log2(nodes)) * options->latency +
                                  bytes_of_part * (nodes - 1) / options->bandwidth
                            : times->arithmetic;
}

static void print_model(const char *pass, struct times times[OPERATIONS], const struct options *options) {
    static const int nodes[] = {8, 64, 512};
    printf("\nA model, %s, %zu token%s, each node with %zu channels, %.1f us a message, %.1f GB/s; microseconds:\n\n",
           pass, options->tokens, options->tokens == 1 ? "" : "s", options->channels / (size_t)processes,
           options->latency * 1e6, options->bandwidth * 1e-9);
    printf("  %-10s %12s %12s %12s\n", "nodes", "8", "64", "512");
    for (int i = 0; i < OPERATIONS; i++) {
        printf("  %-10s", names[i]);
        for (int k = 0; k < 3; k++)
            printf(" %12.1f", model(&times[i], nodes[k], options) * 1e6);
        printf("\n");
    }
}

static struct options read_options(int count, char **words) {
    struct options options = {256, 8192, 99, 2e-6, 12.5e9};
    for (int i = 1; i < count; i += 2) {
        char *end = NULL;
        const double value = i + 1 < count ? strtod(words[i + 1], &end) : 0;
        const int is_number = end && !*end && value > 0 && value <= 1e9, is_count = is_number && value == floor(value);
        if (is_count && !strcmp(words[i], "--tokens"))
            options.tokens = (size_t)value;
        else if (is_count && !strcmp(words[i], "--channels"))
            options.channels = (size_t)value;
        else if (is_count && !strcmp(words[i], "--rounds"))
            options.rounds = (size_t)value;
        else if (is_number && !strcmp(words[i], "--latency"))
            options.latency = value * 1e-6;
        else if (is_number && !strcmp(words[i], "--bandwidth"))
            options.bandwidth = value * 1e9;
        else {
            const int is_help = !strcmp(words[i], "--help");
            if (rank == 0)
                fputs(help, is_help ? stdout : stderr);
            MPI_Finalize();
            exit(is_help ? EXIT_SUCCESS : 2);
        }
    }
    return options;
}

/* Whole blocks, so that the bits are those of the rows in one piece; the last process has the rest. */
static void share_channels(size_t *channels, size_t all) {
    const size_t block = dynnorm_split_block(), blocks = (all + block - 1) / block, count = (size_t)processes;
    if (blocks < count)
        stop("there are fewer blocks of channels than processes; see dynnorm_split_block");
    for (size_t i = 0; i < count; i++)
        channels[i] = (blocks * (i + 1) / count - blocks * i / count) * block;
    channels[count - 1] -= blocks * block - all;
}

static void free_tensors(struct tensors *tensors) {
    float *const all[] = {tensors->x,    tensors->dy,      tensors->y,     tensors->dx,   tensors->weight,
                          tensors->bias, tensors->dweight, tensors->dbias, tensors->mean, tensors->rstd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* All norms, checked and timed, with so many tokens as the options say. */
static void run_all(struct times times[2][OPERATIONS], const size_t *channels, const struct options *options) {
    const size_t tokens = options->tokens, row_channels = options->channels, own = channels[rank];
    size_t first = 0;
    for (int i = 0; i < rank; i++)
        first += channels[i];
    struct tensors whole = allocate_tensors(tokens, row_channels), part = allocate_tensors(tokens, own);
    fill(whole.x, tokens * row_channels, 1);
    fill(whole.dy, tokens * row_channels, 2);
    fill(whole.weight, row_channels, 3);
    fill(whole.bias, row_channels, 4);
    for (size_t row = 0; row < tokens; row++) {
        memcpy(part.x + row * own, whole.x + row * row_channels + first, own * sizeof(float));
        memcpy(part.dy + row * own, whole.dy + row * row_channels + first, own * sizeof(float));
    }
    memcpy(part.weight, whole.weight + first, own * sizeof(float));
    memcpy(part.bias, whole.bias + first, own * sizeof(float));
    for (int operation = 0; operation < OPERATIONS; operation++) {
        const dynnorm_descriptor unsplit = describe((dynnorm_operation)operation, &whole, tokens, row_channels);
        require_ok(dynnorm_forward(&unsplit));
        require_ok(dynnorm_backward(&unsplit));
        struct sharded_call sharded = {.call = describe((dynnorm_operation)operation, &part, tokens, own),
                                       .split = DYNNORM_SPLIT_INIT,
                                       .counts = allocate((size_t)processes, sizeof(int)),
                                       .places = allocate((size_t)processes, sizeof(int))};
        sharded.split.parts = (size_t)processes, sharded.split.channels = channels;
        for (int pass = FORWARD; pass <= BACKWARD; pass++) {
            begin_sharded_call(&sharded, (enum pass)pass);
            times[pass][operation] = time_sharded_call(&sharded, (enum pass)pass, options);
            free(sharded.sums);
        }
        check(&sharded, &part, &whole, first, options);
        free(sharded.counts);
        free(sharded.places);
    }
    free_tensors(&whole);
    free_tensors(&part);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    const struct options options = read_options(count, words);
    struct options one_token = options;
    one_token.tokens = 1;
    size_t *channels = allocate((size_t)processes, sizeof *channels);
    share_channels(channels, options.channels);
    struct times times[2][OPERATIONS], of_one[2][OPERATIONS];
    run_all(times, channels, &options);
    run_all(of_one, channels, &one_token);
    if (rank == 0) {
        printf("All parts have the bits of the rows in one piece.\n");
        print_times("Forward", times[FORWARD], &options);
        print_times("Backward", times[BACKWARD], &options);
        print_times("Forward", of_one[FORWARD], &one_token);
        print_times("Backward", of_one[BACKWARD], &one_token);
        print_model("forward", times[FORWARD], &options);
        print_model("backward", times[BACKWARD], &options);
        print_model("forward", of_one[FORWARD], &one_token);
        print_model("backward", of_one[BACKWARD], &one_token);
    }
    free(channels);
    MPI_Finalize();
    return 0;
}
