/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests rows whose channels are split: in whatever parts, with every table, forward and backward, they have the bits of
 * the rows in one piece, rows that float cannot hold among them, whatever types, layouts, workspaces and executors a
 * call has; parts of any length stay within the bounds; and errors, with the words for them.
 */
#include "each_kernel.h"
#include "elements.h"
#include "float_bits.h"
#include "random.h"
#include "row_patterns.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const struct isa *table;

enum { MOST_TOKENS = 20, MOST_PARTS = 8, MOST_CHANNELS = 9000, ELEMENTS = MOST_TOKENS * MOST_CHANNELS };

/* ---- A case ------------------------------------------------------------------------------------------------------ */

struct outputs {
    float y[ELEMENTS];
    float dx[ELEMENTS];
    float mean[MOST_TOKENS];
    float rstd[MOST_TOKENS];
    float dweight[MOST_CHANNELS];
    float dbias[MOST_CHANNELS];
};

static float x[ELEMENTS], dy[ELEMENTS], weight[MOST_CHANNELS], bias[MOST_CHANNELS];
static struct outputs whole, parts;
static double sums[MOST_TOKENS * 16 * 16], more_sums[MOST_TOKENS * 16 * 16];

struct test_case {
    dynnorm_descriptor call; /* of whole rows */
    size_t channels[MOST_PARTS];
    size_t parts;
    int in_place;
    int by_adding; /* the sums of all machines are added */
    dynnorm_status status;
};

/* The call of a part: rows of its tensors lie between those of the others. */
static dynnorm_descriptor call_of_part(const struct test_case *of, size_t part, size_t *first) {
    dynnorm_descriptor call = of->call;
    *first = 0;
    for (size_t i = 0; i < part; i++)
        *first += of->channels[i];
    call.channels = of->channels[part];
    call.x.row_stride = call.y.row_stride = call.dy.row_stride = call.dx.row_stride = of->call.channels;
    call.x.data = (float *)call.x.data + *first;
    call.y.data = (float *)call.y.data + *first;
    call.dy.data = (float *)call.dy.data + *first;
    call.dx.data = (float *)call.dx.data + *first;
    if (call.weight.data)
        call.weight.data = (float *)call.weight.data + *first;
    if (call.bias.data)
        call.bias.data = (float *)call.bias.data + *first;
    if (call.dweight.data)
        call.dweight.data = (float *)call.dweight.data + *first;
    if (call.dbias.data)
        call.dbias.data = (float *)call.dbias.data + *first;
    return call;
}

static void set_outputs(struct test_case *of, struct outputs *outputs) {
    dynnorm_descriptor *call = &of->call;
    const int has_mean = call->operation == DYNNORM_LAYERNORM, has_rstd = call->operation <= DYNNORM_RMSNORM;
    call->x.data = x;
    call->dy.data = dy;
    if (of->in_place) {
        memcpy(outputs->y, x, sizeof x);
        memcpy(outputs->dx, dy, sizeof dy);
        call->x.data = outputs->y;
        call->dy.data = outputs->dx;
    }
    call->y.data = outputs->y;
    call->dx.data = outputs->dx;
    call->mean = has_mean ? outputs->mean : NULL;
    call->rstd = has_rstd ? outputs->rstd : NULL;
    call->dweight.data = outputs->dweight;
    call->dbias.data = call->operation == DYNNORM_RMSNORM ? NULL : outputs->dbias;
}

/* Has all machines tell their sums, and then compute their parts. */
static void run_parts(struct test_case *of, int is_backward) {
    dynnorm_split split = DYNNORM_SPLIT_INIT;
    dynnorm_split_sums place = {0, 0, 0};
    size_t first, next = 0;
    split.parts = of->parts, split.channels = of->channels;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        sums[i] = 0;
    for (size_t part = 0; part < of->parts && !of->status; part++) {
        const dynnorm_descriptor call = call_of_part(of, part, &first);
        split.part = part;
        of->status = is_backward ? dynnorm_split_backward_size(&call, &split, &place)
                                 : dynnorm_split_forward_size(&call, &split, &place);
        if (!of->status && (place.first != next || place.total > sizeof sums / sizeof *sums))
            of->status = DYNNORM_ERROR_SPLIT;
        if (of->status)
            return;
        next += place.count;
        double *const told = of->by_adding ? more_sums : sums;
        for (size_t i = 0; i < place.total && of->by_adding; i++)
            more_sums[i] = 0;
        of->status = is_backward ? dynnorm_split_backward_sums(&call, &split, told)
                                 : dynnorm_split_forward_sums(&call, &split, told);
        for (size_t i = 0; i < place.total && of->by_adding; i++)
            sums[i] += more_sums[i];
    }
    for (size_t part = 0; part < of->parts && !of->status; part++) {
        const dynnorm_descriptor call = call_of_part(of, part, &first);
        split.part = part;
        of->status =
            is_backward ? dynnorm_split_backward(&call, &split, sums) : dynnorm_split_forward(&call, &split, sums);
    }
    if (next != place.total)
        of->status = DYNNORM_ERROR_SPLIT;
}

static void run_case(struct test_case *of) {
    of->status = DYNNORM_OK;
    set_outputs(of, &whole);
    of->status = dynnorm_forward(&of->call);
    if (of->in_place)
        of->call.x.data = x;
    if (!of->status)
        of->status = dynnorm_backward(&of->call);
    set_outputs(of, &parts);
    run_parts(of, 0);
    if (of->in_place)
        of->call.x.data = x;
    run_parts(of, 1);
}

/* ---- Comparisons ------------------------------------------------------------------------------------------------- */

static size_t differences(const float *a, const float *b, size_t count) {
    size_t different = 0;
    for (size_t i = 0; i < count; i++)
        different += bits_of_float(a[i]) != bits_of_float(b[i]) && !(isnan(a[i]) && isnan(b[i]));
    return different;
}

static size_t all_differences(const struct test_case *of) {
    const size_t channels = of->call.channels, tokens = of->call.tokens;
    size_t count = differences(whole.y, parts.y, tokens * channels) +
                   differences(whole.dx, parts.dx, tokens * channels) +
                   differences(whole.dweight, parts.dweight, channels);
    if (of->call.mean)
        count += differences(whole.mean, parts.mean, tokens);
    if (of->call.rstd)
        count += differences(whole.rstd, parts.rstd, tokens);
    if (of->call.dbias.data)
        count += differences(whole.dbias, parts.dbias, channels);
    return count;
}

/* A NaN is greater than all others. gcc 12 for AArch64 breaks down over fmax in these loops. */
static double greater(double a, double b) {
    return a > b || isnan(a) ? a : b;
}

/* The largest error of y and dx against a row in one piece, as a multiple of two bounds: both have an error. */
static double largest_excess(const struct test_case *of) {
    const double u = 0x1p-24;
    const size_t channels = of->call.channels;
    double excess = 0;
    for (size_t row = 0; row < of->call.tokens; row++) {
        const double r = (double)whole.rstd[row], m = of->call.mean ? (double)whole.mean[row] : 0;
        double largest = 0, hn = 0, greatest_n = 0;
        for (size_t i = 0; i < channels; i++) {
            const size_t at = row * channels + i;
            const double w = of->call.weight.data ? (double)weight[i] : 1, b = of->call.bias.data ? (double)bias[i] : 0;
            const double n = ((double)x[at] - m) * r, h = w * (double)dy[at];
            const double bound = of->call.operation == DYNNORM_LAYERNORM
                                     ? 4 * u * (fabs(w) * greater(fabs(n), 1) + fabs(b))
                                     : 5 * u * fabs(w * n);
            excess = greater(excess, fabs((double)parts.y[at] - (double)whole.y[at]) / (2 * bound + 0x1p-148));
            largest = greater(largest, fabs(r * h));
            greatest_n = greater(greatest_n, fabs(n));
            hn += fabs(h * n) / (double)channels;
        }
        largest = greater(largest, r * greatest_n * hn);
        for (size_t i = 0; i < channels; i++) {
            const size_t at = row * channels + i;
            excess = greater(excess, fabs((double)parts.dx[at] - (double)whole.dx[at]) / (16 * u * largest + 0x1p-148));
        }
    }
    return excess;
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* Parts of whole blocks, the last one of any length; or of any lengths. */
static void choose_parts(struct test_case *of, struct random *random, int are_blocks) {
    const size_t block = dynnorm_split_block();
    size_t left = of->call.channels;
    of->parts = 0;
    while (left) {
        size_t channels = are_blocks ? block * (1 + random_below(random, 3)) : 1 + random_below(random, 2 * block);
        if (channels > left || of->parts == MOST_PARTS - 1)
            channels = left;
        of->channels[of->parts++] = channels;
        left -= channels;
    }
}

/* One row in three is ordinary, the others are of any pattern. */
static void fill_case(struct test_case *of, struct random *random, int are_ordinary) {
    const size_t channels = of->call.channels;
    int without_eps = 0;
    for (size_t row = 0; row < of->call.tokens; row++) {
        const struct pattern *pattern =
            &patterns[are_ordinary || row % 3 == 0 ? 0 : random_below(random, pattern_count)];
        const int no_dy = !are_ordinary && random_below(random, 6) == 0;
        const float scale = are_ordinary || random_below(random, 4) ? 1
                            : random_below(random, 2)               ? 0x1p-100f
                                                                    : 0x1p100f;
        pattern->fill(random, x + row * channels, channels, pattern->argument);
        without_eps |= pattern->without_eps;
        for (size_t i = 0; i < channels; i++)
            dy[row * channels + i] = no_dy ? (i % 2 ? 0.0f : -0.0f) : random_normal(random) * scale;
        if (!are_ordinary && random_below(random, 8) == 0) {
            const float special[] = {NAN, INFINITY, -INFINITY, FLT_MAX, 0x1p-149f};
            x[row * channels + random_below(random, channels)] = special[random_below(random, 5)];
        }
        if (!are_ordinary && random_below(random, 8) == 0) /* a part of the row is far from the others */
            for (size_t i = random_below(random, channels); i < channels; i++)
                x[row * channels + i] = x[row * channels + i] * 0x1p-20f + 1000;
        if (!are_ordinary && random_below(random, 8) == 0) /* what parts of the row add cancels */
            for (size_t i = 0; i < channels; i++) {
                x[row * channels + i] = (float)(int)(i % 4) - 1.5f;
                dy[row * channels + i] = i < channels / 2 ? x[row * channels + i] : -x[row * channels + i];
            }
    }
    for (size_t i = 0; i < channels; i++) {
        weight[i] = random_normal(random);
        bias[i] = random_normal(random);
    }
    if (random_below(random, 4) == 0) { /* the mean of h is large */
        for (size_t i = 0; i < channels; i++)
            weight[i] = fabsf(weight[i]);
        for (size_t i = 0; i < of->call.tokens * channels; i++)
            dy[i] = fabsf(dy[i]);
    }
    if (!are_ordinary && random_below(random, 3) == 0) { /* a weight that every part must be told of */
        const size_t at = random_below(random, channels);
        weight[at] = 0x1p70f;
        for (size_t row = 0; row < of->call.tokens; row++)
            dy[row * channels + at] = 0;
    }
    of->call.eps = without_eps || random_below(random, 3) == 0 ? 0 : 1e-5f;
}

static struct test_case make_case(struct random *random, dynnorm_operation operation) {
    struct test_case made = {.call = DYNNORM_DESCRIPTOR_INIT};
    dynnorm_descriptor *call = &made.call;
    call->operation = operation;
    call->tokens = 1 + random_below(random, thinned_for(table) ? 9 : MOST_TOKENS);
    call->channels = random_below(random, 3) ? 1 + random_below(random, MOST_CHANNELS)
                                             : 1024 * (1 + random_below(random, MOST_CHANNELS / 1024));
    call->alpha = 0.5f, call->beta = 2;
    if (random_below(random, 4))
        call->weight.data = weight;
    if (operation != DYNNORM_RMSNORM && random_below(random, 4))
        call->bias.data = bias;
    if (call->weight.data && !random_below(random, 4))
        call->weight_offset = 1;
    made.in_place = random_below(random, 4) == 0;
    made.by_adding = (int)random_below(random, 2);
    return made;
}

static const char *const names[] = {"layernorm", "rmsnorm", "dyt", "dyisru"};

static void test_bits(dynnorm_operation operation) {
    const size_t cases = thinned_for(table) ? 12 : 200;
    struct random random = random_start(random_seed());
    size_t wrong = 0, tokens = 0, channels = 0, count = 0;
    dynnorm_status status = DYNNORM_OK;
    for (size_t i = 0; i < cases && !wrong && !status; i++) {
        struct test_case of = make_case(&random, operation);
        fill_case(&of, &random, i % 4 == 0);
        choose_parts(&of, &random, 1);
        run_case(&of);
        status = of.status;
        wrong = all_differences(&of);
        tokens = of.call.tokens, channels = of.call.channels, count = of.parts;
    }
    if (!tap_check(!wrong && !status, "%s %s: the bits of rows in one piece", table->identifier, names[operation]))
        printf("# %zu tokens, %zu channels in %zu parts: %zu values differ, %s\n", tokens, channels, count, wrong,
               dynnorm_status_string(status));
}

static void test_bounds(dynnorm_operation operation) {
    const size_t cases = thinned_for(table) ? 8 : 100;
    struct random random = random_start(random_seed() + 1);
    double excess = 0;
    dynnorm_status status = DYNNORM_OK;
    for (size_t i = 0; i < cases && !status; i++) {
        struct test_case of = make_case(&random, operation);
        of.in_place = 0;
        of.call.weight_offset = 0;
        fill_case(&of, &random, 1);
        if (i % 2) /* an offset, which no part alone may lose its digits to */
            for (size_t k = 0; k < of.call.tokens * of.call.channels; k++)
                x[k] += (float)(random_below(&random, 2) ? 3 : 4) * 1000;
        choose_parts(&of, &random, 0);
        run_case(&of);
        status = of.status;
        excess = greater(excess, largest_excess(&of));
    }
    if (!tap_check(excess <= 1 && !status, "%s %s: parts of any length", table->identifier, names[operation]))
        printf("# %g times the bound, %s\n", excess, dynnorm_status_string(status));
}

/* ---- Ways of calls: types, layouts, gradients that are added to, workspaces, executors --------------------------- */

enum { WAY_TOKENS = 12, WAY_CHANNELS = 3300, WAY_ELEMENTS = WAY_TOKENS * (WAY_CHANNELS + 4) };
enum way_tensor { OF_X, OF_DY, OF_DSUM, OF_Y, OF_DX, WAY_TENSORS };
enum way_vector { OF_WEIGHT, OF_BIAS, OF_PARAMETERS, OF_DWEIGHT, OF_DBIAS, WAY_VECTORS };

/* What a call reads and writes. That of the parts has the same inputs, and outputs that begin with the same bytes. */
struct way_memory {
    unsigned char tensors[WAY_TENSORS][WAY_ELEMENTS * sizeof(float)];
    unsigned char vectors[WAY_VECTORS][WAY_CHANNELS * sizeof(float)];
    float mean[WAY_TOKENS];
    float rstd[WAY_TOKENS];
    float dparameters[WAY_CHANNELS];
};

struct way {
    dynnorm_descriptor call; /* of whole rows */
    size_t axis_strides[WAY_TENSORS][3];
    int has_axis_strides[WAY_TENSORS];
    int has_workspace;
};

static struct way_memory of_whole, of_parts;

/* Runs tasks in another order than that of their numbers. */
static void run_backwards(void *pool, dynnorm_task *task, void *context, size_t tasks) {
    (void)pool;
    while (tasks--)
        task(context, tasks);
}

static void list_tensors(dynnorm_descriptor *call, dynnorm_tensor *tensors[WAY_TENSORS]) {
    dynnorm_tensor *const listed[] = {&call->x, &call->dy, &call->dsum, &call->y, &call->dx};
    memcpy(tensors, listed, sizeof listed);
}

static void list_vectors(dynnorm_descriptor *call, dynnorm_vector *vectors[WAY_VECTORS]) {
    dynnorm_vector *const parameters = call->operation == DYNNORM_DYT ? &call->alphas : &call->betas;
    dynnorm_vector *const listed[] = {&call->weight, &call->bias, parameters, &call->dweight, &call->dbias};
    memcpy(vectors, listed, sizeof listed);
}

/* The call of a part, or of whole rows, with this memory. */
static dynnorm_descriptor call_of_way(const struct way *way, struct way_memory *memory, size_t first, size_t channels) {
    dynnorm_descriptor call = way->call;
    dynnorm_tensor *tensors[WAY_TENSORS];
    dynnorm_vector *vectors[WAY_VECTORS];
    list_tensors(&call, tensors);
    list_vectors(&call, vectors);
    const size_t **const strides[] = {&call.x_axis_strides, &call.dy_axis_strides, &call.dsum_axis_strides,
                                      &call.y_axis_strides, &call.dx_axis_strides};
    for (int i = 0; i < WAY_TENSORS; i++) {
        *strides[i] = way->has_axis_strides[i] ? way->axis_strides[i] : NULL;
        if (tensors[i]->data)
            tensors[i]->data = memory->tensors[i] + first * dynnorm_element_bytes(tensors[i]->type);
    }
    for (int i = 0; i < WAY_VECTORS; i++)
        if (vectors[i]->data)
            vectors[i]->data = memory->vectors[i] + first * dynnorm_element_bytes(vectors[i]->type);
    call.mean = call.mean ? memory->mean : NULL;
    call.rstd = call.rstd ? memory->rstd : NULL;
    if (call.parameter_per_channel)
        *(call.operation == DYNNORM_DYT ? &call.dalpha : &call.dbeta) = memory->dparameters + first;
    call.channels = channels;
    return call;
}

/* Rows on some axes, which a tensor has in any order in memory. */
static void choose_layout(struct way *way, struct random *random) {
    static const size_t axis_rows[][3] = {{WAY_TOKENS, 1, 1}, {3, 4, 1}, {4, 3, 1}, {2, 3, 2}};
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
    dynnorm_tensor *tensors[WAY_TENSORS];
    list_tensors(&way->call, tensors);
    way->call.axes = random_below(random, 2) ? 3 : 0;
    memcpy(way->call.axis_rows, axis_rows[random_below(random, 4)], sizeof way->call.axis_rows);
    for (int i = 0; i < WAY_TENSORS; i++) {
        size_t stride = tensors[i]->row_stride = way->call.channels + random_below(random, 4);
        const int *order = orders[random_below(random, 4)];
        for (int axis = 0; axis < 3; axis++) {
            way->axis_strides[i][order[axis]] = stride;
            stride *= way->call.axis_rows[order[axis]];
        }
        way->has_axis_strides[i] = way->call.axes && random_below(random, 4);
    }
}

static struct way choose_way(struct random *random, dynnorm_operation operation) {
    const struct operation_facts *facts = &dynnorm_operations[operation];
    const int per_channel = facts->parameters != NO_FIELD && random_below(random, 2);
    const int has_types = random_below(random, 4) != 0;
    struct way way = {.call = DYNNORM_DESCRIPTOR_INIT};
    dynnorm_descriptor *call = &way.call;
    dynnorm_tensor *tensors[WAY_TENSORS];
    dynnorm_vector *vectors[WAY_VECTORS];
    call->operation = operation;
    list_tensors(call, tensors);
    list_vectors(call, vectors);
    call->tokens = WAY_TOKENS, call->channels = 1 + random_below(random, WAY_CHANNELS);
    call->eps = facts->has_eps ? 1e-5f : 0, call->alpha = 0.7f, call->beta = 1.3f;
    call->weight_offset = random_below(random, 2) ? 0.5f : 0;
    for (int i = 0; i < WAY_TENSORS; i++) {
        tensors[i]->type = (dynnorm_type)(has_types ? random_below(random, DYNNORM_F16 + 1) : DYNNORM_F32);
        tensors[i]->data = i == OF_DSUM && random_below(random, 2) ? NULL : &of_whole;
    }
    for (int i = 0; i < WAY_VECTORS; i++) {
        const int is_bias = i == OF_BIAS || i == OF_DBIAS, is_parameter = i == OF_PARAMETERS;
        vectors[i]->type = (dynnorm_type)(has_types ? random_below(random, DYNNORM_F16 + 1) : DYNNORM_F32);
        if ((is_bias && !facts->has_bias) || (is_parameter && !per_channel))
            continue;
        vectors[i]->data = is_parameter || random_below(random, 4) ? &of_whole : NULL;
    }
    call->parameter_per_channel = per_channel;
    call->mean = facts->has_mean ? of_whole.mean : NULL;
    call->rstd = facts->has_rstd ? of_whole.rstd : NULL;
    call->accumulate_dx = (int)random_below(random, 2), call->accumulate_dweight = (int)random_below(random, 2);
    call->accumulate_dbias = (int)random_below(random, 2);
    call->accumulate_dalpha = call->accumulate_dbeta = (int)random_below(random, 2);
    call->round_before_weight = random_below(random, 4) == 0;
    if (random_below(random, 4) == 0)
        call->y.type = DYNNORM_I8, call->y_scale = 0.03f;
    if (random_below(random, 2))
        call->executor = (dynnorm_executor){run_backwards, NULL, 3, 1};
    way.has_workspace = (int)random_below(random, 2);
    choose_layout(&way, random);
    return way;
}

/* Both memories with the same numbers, also where outputs will be. */
static void fill_way(const struct way *way, struct random *random) {
    dynnorm_descriptor call = way->call;
    dynnorm_tensor *tensors[WAY_TENSORS];
    dynnorm_vector *vectors[WAY_VECTORS];
    list_tensors(&call, tensors);
    list_vectors(&call, vectors);
    const float shift = random_below(random, 2) ? 0 : 30;
    for (int i = 0; i < WAY_TENSORS; i++)
        for (size_t k = 0; k < WAY_ELEMENTS; k++)
            set_element_at(of_whole.tensors[i], tensors[i]->type, k, (double)(random_normal(random) + shift));
    for (int i = 0; i < WAY_VECTORS; i++)
        for (size_t k = 0; k < WAY_CHANNELS; k++)
            set_element_at(of_whole.vectors[i], vectors[i]->type, k, fabs((double)random_normal(random)));
    for (size_t k = 0; k < WAY_CHANNELS; k++)
        of_whole.dparameters[k] = random_normal(random);
    memcpy(&of_parts, &of_whole, sizeof of_whole);
}

/* Of exactly the bytes that are asked for, at any alignment. */
static dynnorm_status with_workspace(dynnorm_descriptor *call, struct random *random) {
    static unsigned char workspace[1 << 20];
    const size_t offset = random_below(random, 16);
    dynnorm_status status = dynnorm_workspace_size(call, &call->workspace_size);
    call->workspace = workspace + offset;
    return !status && call->workspace_size + offset > sizeof workspace ? DYNNORM_ERROR_WORKSPACE_TOO_SMALL : status;
}

static dynnorm_status run_way(const struct way *way, const struct test_case *split_as, struct random *random) {
    const dynnorm_descriptor all = call_of_way(way, &of_whole, 0, way->call.channels);
    dynnorm_status status = dynnorm_forward(&all);
    if (!status)
        status = dynnorm_backward(&all);
    for (int step = 0; step < 4; step++)
        for (size_t part = 0, first = 0; part < split_as->parts; first += split_as->channels[part++]) {
            dynnorm_descriptor own = call_of_way(way, &of_parts, first, split_as->channels[part]);
            const dynnorm_split split = {sizeof split, split_as->parts, split_as->channels, part};
            if (way->has_workspace && !status)
                status = with_workspace(&own, random);
            if (!status)
                status = step == 0   ? dynnorm_split_forward_sums(&own, &split, sums)
                         : step == 1 ? dynnorm_split_forward(&own, &split, sums)
                         : step == 2 ? dynnorm_split_backward_sums(&own, &split, more_sums)
                                     : dynnorm_split_backward(&own, &split, more_sums);
        }
    return status;
}

/* are_far: as if no output stayed in the caches. */
static void test_ways(dynnorm_operation operation, int are_far) {
    const char *const name = are_far ? "types, layouts and the like, past the caches" : "types, layouts and the like";
    const size_t cases = thinned_for(table) ? 10 : 100;
    struct random random = random_start(random_seed() + 2 + (uint64_t)are_far);
    pretend_level2_cache(are_far ? 0 : SIZE_MAX);
    for (size_t i = 0; i < cases; i++) {
        const struct way way = choose_way(&random, operation);
        struct test_case split_as = {.call = way.call};
        choose_parts(&split_as, &random, 1);
        fill_way(&way, &random);
        const dynnorm_status status = run_way(&way, &split_as, &random);
        if (status == DYNNORM_ERROR_LEFT_OUT) /* this build leaves types out */
            continue;
        if (status || memcmp(&of_whole, &of_parts, sizeof of_whole)) {
            tap_check(0, "%s %s: %s", table->identifier, names[operation], name);
            printf("# case %zu, %zu channels in %zu parts: %s\n", i, way.call.channels, split_as.parts,
                   dynnorm_status_string(status));
            return;
        }
    }
    tap_check(1, "%s %s: %s", table->identifier, names[operation], name);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

struct attempt {
    dynnorm_descriptor call;
    dynnorm_split split;
    const dynnorm_split *given;
    double *sums;
};

static struct attempt correct_attempt(dynnorm_operation operation) {
    static const size_t channels[] = {1024, 100};
    struct attempt made = {.call = DYNNORM_DESCRIPTOR_INIT, .split = DYNNORM_SPLIT_INIT, .sums = sums};
    made.call.operation = operation;
    made.call.tokens = 2, made.call.channels = 100;
    made.call.x.data = x, made.call.dy.data = dy, made.call.y.data = parts.y, made.call.dx.data = parts.dx;
    made.call.mean = operation == DYNNORM_LAYERNORM ? parts.mean : NULL;
    made.call.rstd = operation <= DYNNORM_RMSNORM ? parts.rstd : NULL;
    made.split.parts = 2, made.split.channels = channels, made.split.part = 1;
    return made;
}

static int has_words(const struct attempt *attempt, dynnorm_status forward, const char *words) {
    char text[2][200];
    dynnorm_explain_split_forward(&attempt->call, attempt->given, attempt->sums, text[0], sizeof text[0]);
    dynnorm_explain_split_backward(&attempt->call, attempt->given, attempt->sums, text[1], sizeof text[1]);
    if (!strcmp(text[0], forward ? words : "the call is correct") && !strcmp(text[1], words))
        return 1;
    printf("# \"%s\", \"%s\"\n", text[0], text[1]);
    return 0;
}

/* Of all functions; the outputs of none of them may have changed. */
static void expect_error(const char *words, const struct attempt *attempt, dynnorm_status forward,
                         dynnorm_status backward) {
    static struct outputs before;
    static double sums_before[sizeof sums / sizeof *sums];
    memcpy(&before, &parts, sizeof before);
    memcpy(sums_before, sums, sizeof sums_before);
    const dynnorm_status statuses[] = {dynnorm_split_forward_sums(&attempt->call, attempt->given, attempt->sums),
                                       dynnorm_split_forward(&attempt->call, attempt->given, attempt->sums),
                                       dynnorm_split_backward_sums(&attempt->call, attempt->given, attempt->sums),
                                       dynnorm_split_backward(&attempt->call, attempt->given, attempt->sums)};
    const int are_right = (!forward || (statuses[0] == forward && statuses[1] == forward)) && statuses[2] == backward &&
                          statuses[3] == backward;
    const int are_untouched =
        forward ? !memcmp(&before, &parts, sizeof before) && !memcmp(sums_before, sums, sizeof sums_before)
                : !memcmp(before.dx, parts.dx, sizeof before.dx);
    if (!tap_check(has_words(attempt, forward, words) && are_right && are_untouched, "error: %s", words))
        printf("# %d %d %d %d\n", statuses[0], statuses[1], statuses[2], statuses[3]);
}

static void test_errors(void) {
    const size_t without_channels[] = {0, 100}, huge[] = {(size_t)-1, 100};
    for (int i = 0; i < 15; i++) {
        struct attempt attempt = correct_attempt(DYNNORM_LAYERNORM);
        attempt.given = &attempt.split;
        dynnorm_status forward = DYNNORM_ERROR_SPLIT, backward = DYNNORM_ERROR_SPLIT;
        const char *words = "";
        switch (i) {
        case 0:
            words = "the split is NULL", attempt.given = NULL;
            break;
        case 1:
            words = "the split's size is unknown to this version of the library; was it begun with DYNNORM_SPLIT_INIT?",
            attempt.split.size = 1;
            break;
        case 2:
            words = "split.part is not less than split.parts", attempt.split.parts = 0;
            break;
        case 3:
            words = "split.part is not less than split.parts", attempt.split.part = 2;
            break;
        case 4:
            words = "split.channels is NULL", attempt.split.channels = NULL;
            break;
        case 5:
            words = "split.channels of the part are not the call's channels", attempt.split.part = 0;
            break;
        case 6:
            words = "a part of the split has no channels", attempt.split.channels = without_channels;
            break;
        case 7:
            words = "residual is given, which rows that are split cannot have", attempt.call.residual.data = dy;
            break;
        case 8:
            words = "y_scales is given, which rows that are split cannot have", attempt.call.y.type = DYNNORM_I8,
            attempt.call.y_scales = bias;
            break;
        case 9:
            words = "the parts of a row exceed the address space", attempt.split.channels = huge;
            forward = backward = DYNNORM_ERROR_SIZE_OVERFLOW;
            break;
        case 10:
            words = "sums is NULL, and rows that are split need it", attempt.sums = NULL;
            forward = backward = DYNNORM_ERROR_NULL_POINTER;
            break;
        case 11:
            words = "centered DyISRU cannot be split", attempt.call.operation = DYNNORM_CENTERED_DYISRU;
            attempt.call.mean = attempt.call.rstd = NULL;
            forward = backward = DYNNORM_ERROR_OPERATION;
            break;
        case 12:
            words = "channels is 0", attempt.call.channels = 0;
            forward = backward = DYNNORM_ERROR_ZERO_CHANNELS;
            break;
        case 13:
            words = "eps is negative, infinite or NaN", attempt.call.eps = -1;
            forward = backward = DYNNORM_ERROR_EPS;
            break;
        default:
            words = "rstd is NULL, and rows that are split need it", attempt.call.rstd = NULL;
            forward = DYNNORM_OK, backward = DYNNORM_ERROR_NULL_POINTER;
            break;
        }
        expect_error(words, &attempt, forward, backward);
    }
    struct attempt attempt = correct_attempt(DYNNORM_RMSNORM);
    attempt.call.x.data = sums;
    tap_check(dynnorm_split_forward_sums(&attempt.call, &attempt.split, sums) == DYNNORM_ERROR_OVERLAP,
              "error: sums overlap x");
    attempt = correct_attempt(DYNNORM_RMSNORM);
    attempt.call.y.data = sums;
    tap_check(dynnorm_split_forward(&attempt.call, &attempt.split, sums) == DYNNORM_ERROR_OVERLAP,
              "error: y overlaps the sums");
    attempt = correct_attempt(DYNNORM_RMSNORM);
    tap_check(dynnorm_split_forward_size(&attempt.call, &attempt.split, NULL) == DYNNORM_ERROR_NULL_POINTER,
              "error: no place for the size");
    char text[100];
    attempt.call.y.data = sums;
    dynnorm_explain_split_forward(&attempt.call, &attempt.split, sums, text, sizeof text);
    tap_check(!strcmp(text, "y overlaps sums"), "error: \"%s\", in words", text);
    /* Without tokens there is nothing to exchange. */
    attempt = correct_attempt(DYNNORM_LAYERNORM);
    attempt.call.tokens = 0;
    attempt.call.x.data = attempt.call.dy.data = attempt.call.y.data = attempt.call.dx.data = NULL;
    attempt.call.dweight.data = parts.dweight;
    parts.dweight[0] = parts.dweight[99] = 1;
    tap_check(!dynnorm_split_forward_sums(&attempt.call, &attempt.split, NULL) &&
                  !dynnorm_split_forward(&attempt.call, &attempt.split, NULL) &&
                  !dynnorm_split_backward_sums(&attempt.call, &attempt.split, NULL) && parts.dweight[0] == 1 &&
                  !dynnorm_split_backward(&attempt.call, &attempt.split, NULL) && parts.dweight[0] == 0 &&
                  parts.dweight[99] == 0,
              "no tokens: nothing to exchange, and gradients of 0");
    attempt = correct_attempt(DYNNORM_DYT);
    dynnorm_split_sums place = {1, 1, 1};
    tap_check(!dynnorm_split_forward_size(&attempt.call, &attempt.split, &place) && !place.total &&
                  !dynnorm_split_forward_sums(&attempt.call, &attempt.split, NULL) &&
                  !dynnorm_split_forward(&attempt.call, &attempt.split, NULL),
              "an elementwise operation needs no sums");
}

int main(void) {
    dynnorm_split_sums place;
    struct attempt attempt = correct_attempt(DYNNORM_RMSNORM);
    printf("# seed %llu\n", (unsigned long long)random_seed());
    if (dynnorm_split_forward_size(&attempt.call, &attempt.split, &place) == DYNNORM_ERROR_LEFT_OUT) {
        tap_skip("all", "this build leaves split rows out");
        return tap_done();
    }
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        table = &dynnorm_isa_list[i];
        if (!use_table(table)) {
            tap_skip(table->identifier, TABLE_IS_UNAVAILABLE);
            continue;
        }
        for (int operation = DYNNORM_LAYERNORM; operation <= DYNNORM_DYISRU; operation++) {
            test_bits((dynnorm_operation)operation);
            for (int are_far = 1; are_far >= 0; are_far--)
                test_ways((dynnorm_operation)operation, are_far);
        }
        for (int operation = DYNNORM_LAYERNORM; operation <= DYNNORM_RMSNORM; operation++)
            test_bounds((dynnorm_operation)operation);
    }
    use_table(NULL);
    test_errors();
    return tap_done();
}
