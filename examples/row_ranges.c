/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How a program shares one LayerNorm, forward and backward, among threads of its own.
 *
 * The descriptor says what the whole call computes. Each thread then computes ranges of its rows: any ranges in the
 * forward pass, and whole blocks of rows in the backward pass. Each block leaves its part of the gradients of weight
 * and bias in a workspace that the threads share. One call at the end adds those parts up. The results are those of the
 * whole call, bit for bit, whoever computes which rows; this program checks that.
 */
#include <dynnorm.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, TOKENS = 1000, CHANNELS = 768 };

typedef dynnorm_status rows_function(const dynnorm_descriptor *call, size_t first_row, size_t rows);

/* One thread's share of the rows. */
struct share {
    pthread_t thread;
    rows_function *compute;
    const dynnorm_descriptor *call;
    size_t first_row;
    size_t rows;
    dynnorm_status status;
};

static void *compute_share(void *argument) {
    struct share *share = argument;
    share->status = share->compute(share->call, share->first_row, share->rows);
    return NULL;
}

static void stop(const char *what) {
    fprintf(stderr, "row_ranges: %s\n", what);
    exit(EXIT_FAILURE);
}

static void require_ok(dynnorm_status status) {
    if (status != DYNNORM_OK)
        stop(dynnorm_status_string(status));
}

/* Computes all rows of the call. Each thread takes the same number of blocks of block_rows rows, except for the last
 * ones, which may take fewer or none. Joining the threads also lets this thread see what they wrote, as
 * dynnorm_backward_finish needs. */
static void compute_on_threads(rows_function *compute, const dynnorm_descriptor *call, size_t block_rows) {
    size_t blocks = (call->tokens + block_rows - 1) / block_rows;
    size_t rows_each = (blocks + THREADS - 1) / THREADS * block_rows;
    struct share shares[THREADS];
    size_t first_row = 0;
    for (int i = 0; i < THREADS; i++) {
        size_t rows_left = call->tokens - first_row;
        size_t rows = rows_left < rows_each ? rows_left : rows_each;
        shares[i] = (struct share){.compute = compute, .call = call, .first_row = first_row, .rows = rows};
        if (pthread_create(&shares[i].thread, NULL, compute_share, &shares[i]) != 0)
            stop("cannot start a thread");
        first_row += rows;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(shares[i].thread, NULL);
        require_ok(shares[i].status);
    }
}

/* What the two passes compute. */
struct results {
    float y[TOKENS * CHANNELS];
    float dx[TOKENS * CHANNELS];
    float dweight[CHANNELS];
    float dbias[CHANNELS];
};

static void point_outputs_at(dynnorm_descriptor *call, struct results *results) {
    call->y.data = results->y;
    call->dx.data = results->dx;
    call->dweight.data = results->dweight;
    call->dbias.data = results->dbias;
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL)
        stop("out of memory");
    return memory;
}

/* Fills values with numbers between -1 and 1, which are the same in every run. */
static void fill(float *values, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)(seed >> 8) / 8388608.0f - 1;
    }
}

int main(void) {
    float *x = allocate(sizeof(float) * TOKENS * CHANNELS);
    float *dy = allocate(sizeof(float) * TOKENS * CHANNELS);
    float weight[CHANNELS], bias[CHANNELS];
    fill(x, TOKENS * CHANNELS, 1);
    fill(dy, TOKENS * CHANNELS, 2);
    fill(weight, CHANNELS, 3);
    fill(bias, CHANNELS, 4);

    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    call.tokens = TOKENS;
    call.channels = CHANNELS;
    call.x.data = x;
    call.dy.data = dy;
    call.weight.data = weight;
    call.bias.data = bias;
    call.eps = 1e-5f;

    struct results *split = allocate(sizeof *split);
    point_outputs_at(&call, split);

    /* The forward pass takes any ranges of rows. */
    compute_on_threads(dynnorm_forward_rows, &call, 1);

    /* The backward pass takes whole blocks of rows, a workspace that the threads share, and one call to finish. */
    size_t block_rows;
    require_ok(dynnorm_block_rows(&call, &block_rows));
    require_ok(dynnorm_workspace_size(&call, &call.workspace_size));
    call.workspace = allocate(call.workspace_size);
    compute_on_threads(dynnorm_backward_rows, &call, block_rows);
    require_ok(dynnorm_backward_finish(&call));

    /* This thread alone computes the same in one call for each pass. */
    struct results *whole = allocate(sizeof *whole);
    point_outputs_at(&call, whole);
    require_ok(dynnorm_forward(&call));
    require_ok(dynnorm_backward(&call));

    int same = memcmp(split, whole, sizeof *whole) == 0;
    printf("%d rows of %d channels, split among %d threads in blocks of %zu rows: %s\n", TOKENS, CHANNELS, THREADS,
           block_rows, same ? "bit for bit as in one call" : "NOT the bits of the whole call");

    free(whole);
    free(call.workspace);
    free(split);
    free(dy);
    free(x);
    return same ? EXIT_SUCCESS : EXIT_FAILURE;
}
