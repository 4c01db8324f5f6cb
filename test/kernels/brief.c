/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The brief mode: y of DyT and DyISRU for all numbers of 16 bits, within a quarter of a unit in the last place and the
 * rounding; the same bits by every table, known from a list, for any layout of the rows; and portable where it does not
 * apply.
 */
#include "each_kernel.h"
#include "elements.h"
#include "random.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1 << 16, ROW = 1 << 12 };

static const double u = 0x1p-24;
static const dynnorm_type types[] = {DYNNORM_BF16, DYNNORM_F16};
static const dynnorm_operation operations[] = {DYNNORM_DYT, DYNNORM_DYISRU};

/* A call over all numbers of a type, each as often as it has a weight and a bias, which all channels have. */
struct problem {
    float parameter; /* alpha or beta */
    float scale;
    float weight;
    float bias;
};

static const struct problem problems[2][12] = {
    {{1, 1, 1, 0},
     {0.7f, 1, 1, 0},
     {-1.9f, 1, 1, 0},
     {0x1p-20f, 1, 1, 0},
     {3e-39f, 1, 1, 0},
     {2e38f, 1, 1, 0},
     {1.1f, 1, 1, -1},
     {0.37f, 1.5f, -0.6f, 0.81f},
     {1, 0x1p-120f, 0x1p100f, 0},
     {1.3f, 0x1p100f, 0x1p100f, 0},
     {1, 3, INFINITY, 0},
     {0.5f, -2, 0.3f, (float)NAN}},
    {{1, 1, 1, 0},
     {1.3f, 1, 1, 0},
     {1e-5f, 1, 1, 0},
     {300, 1, 1, -1},
     {1e-30f, 1, 1, 0},
     {1e30f, 1, 1, 0},
     {0, 1, 1, 0},
     {0.37f, 11.3f, -0.6f, 5},
     {1, 0x1p-120f, 0x1p100f, 0},
     {1.3f, 0x1p100f, 0x1p100f, 0},
     {1, 3, INFINITY, 0},
     {0.5f, -2, 0.3f, (float)NAN}},
};
enum { PROBLEMS = sizeof problems[0] / sizeof *problems[0] };

/* What all y of these problems are, in their order: see hash_of. Every table and every CPU has to agree. */
static const uint64_t expected_hashes[2][2] = {
    {UINT64_C(0xf9ba34027a4c8f2b), UINT64_C(0x0917427e94659fea)}, /* DyT: bf16, f16 */
    {UINT64_C(0xa3eca0bf27651899), UINT64_C(0xcb02a5f01197a5e2)}, /* DyISRU */
};

static uint16_t numbers[NUMBERS];

static dynnorm_descriptor describe(dynnorm_operation operation, dynnorm_type type, size_t tokens, size_t channels) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = operation;
    call.mode = DYNNORM_BRIEF;
    call.tokens = tokens;
    call.channels = channels;
    call.x.type = call.y.type = type;
    call.alpha = 0.8f;
    call.beta = 1.3f;
    return call;
}

static int is_nan(dynnorm_type type, uint32_t bits) {
    return isnan(widened(type, bits));
}

/* Of FNV. All NaNs are alike. */
static uint64_t hash_of(uint64_t hash, dynnorm_type type, const uint16_t *y, size_t count) {
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (is_nan(type, y[i]) ? 0x7fff : y[i])) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- Errors ---- */

/* Half of the distance to the next number of the type beyond a value, as far as there is one. */
static double half_step(dynnorm_type type, double value) {
    const uint32_t bits = narrowed(type, fabs(value));
    const double here = widened(type, bits), next = widened(type, bits + 1),
                 before = bits ? widened(type, bits - 1) : 0;
    return isfinite(next) ? (next - here) / 2 : (here - before) / 2;
}

static double f_of(dynnorm_operation operation, double x, double parameter) {
    if (operation == DYNNORM_DYT)
        return tanh(parameter * x);
    if (isnan(x))
        return x;
    if (isinf(x) || (parameter == 0 && x != 0))
        return x > 0 ? 1 : -1;
    return x == 0 ? x : x / sqrt(parameter + x * x);
}

static int is_good(dynnorm_operation operation, dynnorm_type type, const struct problem *problem, uint32_t x,
                   uint32_t y) {
    const double value = widened(type, x), got = widened(type, y);
    const double f = f_of(operation, value, (double)problem->parameter);
    const double term = f * (double)problem->weight * (double)problem->scale, exact = term + (double)problem->bias;
    if (isnan(exact))
        return isnan(got);
    const double quarter = type == DYNNORM_BF16 ? 0x1p-10 : 0x1p-13;
    const double error = quarter * fabs(term) + 2 * u * fabs((double)problem->bias) +
                         0x1p-148 * fmax(1, fabs((double)problem->weight * (double)problem->scale));
    if (isinf(exact) || isinf(got)) /* one of them may have been rounded to the greatest number */
        return narrowed(type, exact - error) == y || narrowed(type, exact + error) == y;
    return fabs(got - exact) <= error + half_step(type, fabs(exact) + error);
}

/* Calls with rows of ROW numbers. */
static void compute(dynnorm_operation operation, dynnorm_type type, const struct problem *problem, uint16_t *y) {
    static float weight[ROW], bias[ROW];
    dynnorm_descriptor call = describe(operation, type, NUMBERS / ROW, ROW);
    for (int i = 0; i < ROW; i++)
        weight[i] = problem->weight, bias[i] = problem->bias;
    call.x.data = numbers;
    call.y.data = y;
    call.weight.data = problem->weight == 1 ? NULL : weight;
    call.bias.data = problem->bias == 0 ? NULL : bias;
    call.alpha = call.beta = problem->parameter;
    call.scale = problem->scale;
    if (operation != DYNNORM_DYT)
        call.alpha = 0;
    else
        call.beta = 0;
    tap_failures += dynnorm_forward(&call) != DYNNORM_OK;
}

static void check_errors(const struct isa *isa, int o, int t) {
    static uint16_t y[NUMBERS];
    const dynnorm_operation operation = operations[o];
    const dynnorm_type type = types[t];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    int good = 1, odd = 1, monotone = 1;
    for (int p = 0; p < PROBLEMS; p++) {
        const struct problem *problem = &problems[o][p];
        compute(operation, type, problem, y);
        hash = hash_of(hash, type, y, NUMBERS);
        for (uint32_t x = 0; x < NUMBERS; x++)
            if (good && !is_good(operation, type, problem, x, y[x])) {
                printf("# problem %d: x %a, y %a\n", p, widened(type, x), widened(type, y[x]));
                good = 0;
            }
        for (uint32_t x = 0; x < NUMBERS / 2; x++) {
            if (problem->bias == 0 && problem->weight == 1)
                odd = odd && same_element(type, y[x] ^ 0x8000u, y[x + NUMBERS / 2]);
            if (operation == DYNNORM_DYT && problem->bias == 0 && problem->weight == 1 && problem->parameter > 0 && x &&
                !is_nan(type, x))
                monotone = monotone && y[x] >= y[x - 1] && widened(type, y[x]) <= 1;
        }
    }
    tap_check(good, "%s %s, %s: within the bound for every x", isa->identifier, dynnorm_operations[operation].title,
              element_name(type));
    tap_check(odd && monotone, "%s %s, %s: odd%s", isa->identifier, dynnorm_operations[operation].title,
              element_name(type), operation == DYNNORM_DYT ? ", and never falls" : "");
    tap_check(hash == expected_hashes[o][t], "%s %s, %s: the bits of all tables and CPUs, %016llx", isa->identifier,
              dynnorm_operations[operation].title, element_name(type), (unsigned long long)hash);
}

/* ---- Layouts ---- */

struct layout {
    size_t tokens;
    size_t channels;
    size_t padding;
    size_t offset; /* bytes before the first element of y */
    int in_place;
    int streams;
    int by_rows;
    dynnorm_type vectors;
    int per_channel; /* alpha or beta */
};

static const struct layout layouts[] = {
    {1, 1, 0, 0, 0, 0, 0, DYNNORM_F32, 1},      {5, 33, 1, 1, 0, 0, 1, DYNNORM_BF16, 0},
    {37, 100, 0, 0, 1, 0, 0, DYNNORM_F32, 1},   {33, 64, 0, 2, 0, 1, 0, DYNNORM_F16, 0},
    {17, 1024, 0, 0, 0, 1, 0, DYNNORM_F32, 1},  {17, 1024, 0, 6, 0, 1, 1, DYNNORM_F32, 0},
    {35, 1111, 9, 0, 1, 0, 0, DYNNORM_BF16, 1}, {3, 5000, 0, 64, 0, 1, 0, DYNNORM_F32, 0},
    {40, 2048, 0, 0, 0, 1, 0, DYNNORM_F32, 1},
};

enum { MOST = 40 * 2048 + 4096 };

/* Each row by itself, in a place of its own. */
static void compute_rows(const dynnorm_descriptor *call, const uint16_t *x, size_t stride, uint16_t *y) {
    for (size_t row = 0; row < call->tokens; row++) {
        dynnorm_descriptor one = *call;
        one.tokens = 1;
        one.x.data = (void *)(uintptr_t)(x + row * stride);
        one.y.data = y + row * one.channels;
        one.x.row_stride = one.y.row_stride = 0;
        tap_failures += dynnorm_forward(&one) != DYNNORM_OK;
    }
}

static int check_layout(dynnorm_operation operation, dynnorm_type type, const struct layout *layout,
                        struct random *random) {
    static uint16_t x[MOST], apart[MOST];
    static _Alignas(64) unsigned char together[2 * MOST];
    static unsigned char weight[4 * 5000], bias[4 * 5000];
    dynnorm_descriptor call = describe(operation, type, layout->tokens, layout->channels);
    const size_t stride = layout->channels + layout->padding;
    for (size_t i = 0; i < layout->tokens * stride; i++)
        set_element_at((unsigned char *)x, type, i, (double)random_normal(random) * 2);
    for (size_t i = 0; i < layout->channels; i++) {
        set_element_at(weight, layout->vectors, i, fabs((double)random_normal(random)));
        set_element_at(bias, layout->vectors, i, (double)random_normal(random));
    }
    if (layout->per_channel) {
        dynnorm_vector *parameters = operation == DYNNORM_DYT ? &call.alphas : &call.betas;
        parameters->data = weight, parameters->type = layout->vectors;
        call.parameter_per_channel = 1;
    }
    call.weight.data = weight, call.bias.data = bias;
    call.weight.type = call.bias.type = layout->vectors;
    call.weight_offset = 0.5f;
    call.scale = 1.7f;
    compute_rows(&call, x, stride, apart);
    call.y.data = together + layout->offset;
    call.x.data = layout->in_place ? call.y.data : x;
    if (layout->in_place)
        memcpy(call.y.data, x, 2 * layout->tokens * stride);
    call.x.row_stride = call.y.row_stride = stride;
    if (layout->streams)
        pretend_caches(0, 0);
    if (layout->by_rows)
        for (size_t row = 0, some; row < layout->tokens; row += some) {
            some = layout->tokens - row < 3 ? layout->tokens - row : 3;
            tap_failures += dynnorm_forward_rows(&call, row, some) != DYNNORM_OK;
        }
    else
        tap_failures += dynnorm_forward(&call) != DYNNORM_OK;
    pretend_caches(SIZE_MAX, SIZE_MAX);
    for (size_t row = 0; row < layout->tokens; row++)
        if (memcmp(apart + row * layout->channels, (unsigned char *)call.y.data + 2 * row * stride,
                   2 * layout->channels))
            return 0;
    return 1;
}

static void check_layouts(const struct isa *isa) {
    struct random random = random_start(random_seed());
    int same = 1;
    for (int o = 0; o < 2; o++)
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
                if (!check_layout(operations[o], types[t], &layouts[i], &random)) {
                    printf("# %s, %s: layout %zu\n", dynnorm_operations[operations[o]].title, element_name(types[t]),
                           i);
                    same = 0;
                }
    tap_check(same, "%s: the bits of each row by itself", isa->identifier);
}

/* ---- Where the mode does not apply ---- */

static int is_as_portable(dynnorm_descriptor *call, size_t bytes) {
    static unsigned char y[2][1 << 14];
    dynnorm_status status = DYNNORM_OK;
    for (int brief = 0; brief < 2; brief++) {
        memset(y[brief], 0, bytes);
        call->mode = brief ? DYNNORM_BRIEF : DYNNORM_PORTABLE;
        call->y.data = y[brief];
        status = status ? status : dynnorm_forward(call);
    }
    return !status && !memcmp(y[0], y[1], bytes);
}

static void check_others(const struct isa *isa) {
    enum { TOKENS = 3, CHANNELS = 200, COUNT = TOKENS * CHANNELS };
    static float floats[COUNT];
    static uint16_t halves[COUNT], sums[COUNT];
    struct random random = random_start(random_seed());
    for (size_t i = 0; i < COUNT; i++) {
        floats[i] = random_normal(&random);
        set_element_at((unsigned char *)halves, DYNNORM_BF16, i, (double)floats[i]);
    }
    int same = 1;
    for (int o = 0; o < OPERATIONS; o++) {
        const dynnorm_operation operation = (dynnorm_operation)o;
        const int is_elementwise = operation == DYNNORM_DYT || operation == DYNNORM_DYISRU;
        dynnorm_descriptor call = describe(operation, DYNNORM_F32, TOKENS, CHANNELS);
        if (!dynnorm_operations[o].has_scale)
            call.alpha = call.beta = 0;
        call.eps = dynnorm_operations[o].has_eps ? 1e-5f : 0;
        call.x.data = floats;
        same = same && is_as_portable(&call, sizeof floats);
        call.y.type = DYNNORM_BF16;
        same = same && is_as_portable(&call, sizeof halves);
        call.y.type = DYNNORM_I8, call.y_scale = 0.01f;
        same = same && is_as_portable(&call, COUNT);
        call.y_scale = 0;
        call.x.data = halves, call.x.type = call.y.type = DYNNORM_BF16;
        same = same && is_as_portable(&call, sizeof halves) == !is_elementwise;
        call.weight.data = floats, call.round_before_weight = 1;
        same = same && is_as_portable(&call, sizeof halves);
        call.round_before_weight = 0;
        call.residual.data = halves, call.residual.type = DYNNORM_BF16;
        call.sum.data = sums, call.sum.type = DYNNORM_BF16;
        same = same && is_as_portable(&call, sizeof halves);
    }
    tap_check(same, "%s: other calls are as in the portable mode", isa->identifier);
}

int main(void) {
    for (uint32_t i = 0; i < NUMBERS; i++)
        numbers[i] = (uint16_t)i;
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (!table_is_wanted(isa) || !use_table(isa)) {
            tap_skip(isa->identifier, table_is_wanted(isa) ? TABLE_IS_UNAVAILABLE : TABLE_IS_NOT_WANTED);
            continue;
        }
        for (int o = 0; o < 2; o++)
            for (int t = 0; t < 2; t++)
                check_errors(isa, o, t);
        check_layouts(isa);
        check_others(isa);
    }
    use_table(NULL);
    return tap_done();
}
