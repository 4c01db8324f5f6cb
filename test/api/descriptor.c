/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The descriptor across versions: one of an earlier version is completed, all other sizes are refused, and
 * dynnorm_descriptor_init writes the defaults. And what dynnorm_explain_forward and dynnorm_explain_backward say.
 */
#include "call.h"
#include "tap.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The descriptor of 0.1.0 ------------------------------------------------------------------------------------- */

struct descriptor_of_0_1_0 {
    size_t size;
    dynnorm_operation operation;
    dynnorm_mode mode;
    size_t tokens;
    size_t channels;
    dynnorm_tensor x, y, dy, dx;
    dynnorm_vector weight, bias;
    float weight_offset;
    float *mean;
    float *rstd;
    float eps, alpha, beta, scale;
    dynnorm_vector dweight, dbias;
    float *dalpha;
    float *dbeta;
    int accumulate_dx, accumulate_dweight, accumulate_dbias, accumulate_dalpha, accumulate_dbeta;
    void *workspace;
    size_t workspace_size;
    int output_is_read_at_once;
};

#define SAME_PLACE(field) offsetof(struct descriptor_of_0_1_0, field) == offsetof(dynnorm_descriptor, field)
_Static_assert(SAME_PLACE(size) && SAME_PLACE(operation) && SAME_PLACE(x) && SAME_PLACE(y) && SAME_PLACE(dy) &&
                   SAME_PLACE(dx) && SAME_PLACE(weight) && SAME_PLACE(bias) && SAME_PLACE(weight_offset) &&
                   SAME_PLACE(mean) && SAME_PLACE(scale) && SAME_PLACE(dweight) && SAME_PLACE(dbeta) &&
                   SAME_PLACE(accumulate_dbeta) && SAME_PLACE(workspace_size),
               "the fields of 0.1.0 stay where they were");
_Static_assert(offsetof(struct descriptor_of_0_1_0, output_is_read_at_once) ==
                   offsetof(dynnorm_descriptor, keep_output_in_cache),
               "a field may change its name, but not its place");
enum { OLD_SIZE = sizeof(struct descriptor_of_0_1_0) };

/* The call as a program for 0.1.0 makes it. What lies behind is none of the library's business. */
struct old_call {
    union {
        struct descriptor_of_0_1_0 old;
        dynnorm_descriptor call;
    } u;
};

static struct old_call make_old(const dynnorm_descriptor *call) {
    struct old_call made;
    memset(&made, UNTOUCHED, sizeof made);
    memcpy(&made, call, OLD_SIZE);
    made.u.old.size = OLD_SIZE;
    return made;
}

/* ---- Completion -------------------------------------------------------------------------------------------------- */

static dynnorm_status run_by_rows(enum direction direction, const dynnorm_descriptor *call, size_t tokens) {
    if (direction == FORWARD_PASS)
        return dynnorm_forward_rows(call, 0, tokens);
    dynnorm_status status = dynnorm_backward_rows(call, 0, tokens);
    return status ? status : dynnorm_backward_finish(call);
}

static void check_completion(const struct listed_kernel *kernel) {
    enum { TOKENS = 40, CHANNELS = 37 };
    struct test_call expected = new_call(kernel, TOKENS, CHANNELS, 1), made = new_call(kernel, TOKENS, CHANNELS, 1);
    size_t bytes = 0, old_bytes = 0, rows = 0, old_rows = 0;
    dynnorm_status status = run_call(kernel->direction, &expected.call);
    struct old_call old = make_old(&made.call);
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        struct difference difference;
        dynnorm_status old_status =
            by_rows ? run_by_rows(kernel->direction, &old.u.call, TOKENS) : run_call(kernel->direction, &old.u.call);
        int differ = outputs_differ(&made.call, &expected.call, kernel->direction, &difference);
        tap_check(!status && !old_status && !differ, "%s by a descriptor of 0.1.0%s: %s %s", kernel->name,
                  by_rows ? ", by rows" : "", dynnorm_status_string(old_status), differ ? difference.text : "");
        dynnorm_workspace_size(&expected.call, &bytes);
        dynnorm_block_rows(&expected.call, &rows);
        status = dynnorm_workspace_size(&old.u.call, &old_bytes);
        status = status ? status : dynnorm_block_rows(&old.u.call, &old_rows);
        tap_check(!status && bytes == old_bytes && rows == old_rows, "%s, queries by a descriptor of 0.1.0: %s",
                  kernel->name, dynnorm_status_string(status));
        if (!by_rows) {
            made.call.workspace = malloc(bytes + 1);
            made.call.workspace_size = bytes;
            old = make_old(&made.call);
        }
    }
    old.u.old.channels = 0;
    tap_check(run_call(kernel->direction, &old.u.call) == DYNNORM_ERROR_ZERO_CHANNELS, "%s, 0.1.0 without channels",
              kernel->name);
    free(made.call.workspace);
    free_call(&made);
    free_call(&expected);
}

/* ---- Defaults ---------------------------------------------------------------------------------------------------- */

static void check_init(void) {
    const dynnorm_descriptor defaults = DYNNORM_DESCRIPTOR_INIT;
    static const size_t known[] = {OLD_SIZE, sizeof(dynnorm_descriptor)};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned char *bytes = malloc(known[i]);
        if (!bytes)
            exit(2);
        memset(bytes, UNTOUCHED, known[i]);
        dynnorm_status status = dynnorm_descriptor_init((dynnorm_descriptor *)bytes, known[i]);
        size_t size;
        memcpy(&size, bytes, sizeof size);
        int same = !memcmp(bytes + sizeof size, (const unsigned char *)&defaults + sizeof size,
                           offsetof(dynnorm_descriptor, keep_output_in_cache) - sizeof size);
        tap_check(!status && size == known[i] && same, "dynnorm_descriptor_init of %zu bytes: %s, size %zu", known[i],
                  dynnorm_status_string(status), size);
        free(bytes);
    }
    dynnorm_descriptor call;
    memset(&call, UNTOUCHED, sizeof call);
    dynnorm_descriptor_init(&call, sizeof call);
    tap_check(call.axes == 0 && !call.axis_rows[0] && !call.axis_rows[2] && !call.x_axis_strides &&
                  !call.dx_axis_strides && call.scale == 1,
              "dynnorm_descriptor_init writes all fields");
    static const size_t unknown[] = {
        0, 1, sizeof(size_t), OLD_SIZE - 1, OLD_SIZE + 1, sizeof call - 1, sizeof call + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        memset(&call, UNTOUCHED, sizeof call);
        const dynnorm_descriptor before = call;
        dynnorm_status status = dynnorm_descriptor_init(&call, unknown[i]);
        tap_check(status == DYNNORM_ERROR_DESCRIPTOR && !memcmp(&call, &before, sizeof call),
                  "dynnorm_descriptor_init of %zu bytes, an unknown size: %s", unknown[i],
                  dynnorm_status_string(status));
    }
    tap_check(dynnorm_descriptor_init(NULL, sizeof call) == DYNNORM_ERROR_NULL_DESCRIPTOR,
              "dynnorm_descriptor_init of NULL");
}

/* ---- Explanations ------------------------------------------------------------------------------------------------ */

enum { TOKENS = 6, CHANNELS = 4 };
static float memory[16][2 * TOKENS * CHANNELS];
static float not_a_number = NAN;
static const size_t axis_strides[] = {CHANNELS, 2 * CHANNELS, CHANNELS};

static dynnorm_descriptor good_call(dynnorm_operation operation) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    const struct operation_facts *facts = &dynnorm_operations[operation];
    call.operation = operation;
    call.tokens = TOKENS;
    call.channels = CHANNELS;
    call.x.data = memory[0];
    call.y.data = memory[1];
    call.dy.data = memory[2];
    call.dx.data = memory[3];
    call.weight.data = memory[4];
    call.dweight.data = memory[5];
    call.mean = facts->has_mean ? memory[6] : NULL;
    call.rstd = facts->has_rstd ? memory[7] : NULL;
    call.bias.data = facts->has_bias ? memory[8] : NULL;
    return call;
}

static void run_no_tasks(void *pool, dynnorm_task *task, void *context, size_t tasks) {
    (void)pool, (void)task, (void)context, (void)tasks;
}

/* What is wrong with the call when this is done to it. */
struct mistake {
    const char *forward; /* NULL: it does not concern the pass */
    const char *backward;
    dynnorm_operation operation;
    void (*make)(dynnorm_descriptor *call);
};

#define MISTAKES                                                                                                       \
    BOTH("the descriptor's size is unknown: it was not begun with DYNNORM_DESCRIPTOR_INIT, or the program is for a "   \
         "later version of the library",                                                                               \
         LAYERNORM, size, call->size--)                                                                                \
    BOTH("channels is 0", LAYERNORM, channels, call->channels = 0)                                                     \
    BOTH("the operation is unknown, or not one for this function", LAYERNORM, operation,                               \
         call->operation = (dynnorm_operation)99)                                                                      \
    BOTH("mean is given, but DyT does not use it", DYT, mean, call->mean = memory[6])                                  \
    BOTH("rstd is given, but centered DyISRU does not use it", CENTERED_DYISRU, rstd, call->rstd = memory[6])          \
    BOTH("bias is given, but RMSNorm does not use it", RMSNORM, bias, call->bias.data = memory[6])                     \
    BOTH("dbias is given, but RMSNorm does not use it", RMSNORM, dbias, call->dbias.data = memory[6])                  \
    BOTH("dalpha is given, but DyISRU does not use it", DYISRU, dalpha, call->dalpha = memory[6])                      \
    BOTH("dbeta is given, but LayerNorm does not use it", LAYERNORM, dbeta, call->dbeta = memory[9])                   \
    BOTH("the numerics mode is unknown", LAYERNORM, mode, call->mode = (dynnorm_mode)99)                               \
    BOTH("dx.type is none of the types that it may have: see dynnorm_type", DYT, type,                                 \
         call->dx.type = (dynnorm_type)9)                                                                              \
    BOTH("weight.type is none of the types that it may have: see dynnorm_type", DYT, weight_type,                      \
         call->weight.type = (dynnorm_type)9)                                                                          \
    BOTH("a tensor of tokens x channels exceeds the address space", LAYERNORM, tokens, call->tokens = SIZE_MAX)        \
    BOTH("with its strides x exceeds the address space", LAYERNORM, stride, call->x.row_stride = SIZE_MAX)             \
    BOTH("axes is more than 3", LAYERNORM, axes, call->axes = 4)                                                       \
    BOTH("the product of axis_rows is not tokens", LAYERNORM, axis_rows, call->axes = 1)                               \
    BOTH("dy_axis_strides is given, but axes is 0", LAYERNORM, no_axes, call->dy_axis_strides = axis_strides)          \
    FORWARD("rows of y overlap one another", LAYERNORM, y_rows, call->y.row_stride = 3)                                \
    BACKWARD("rows of dx overlap one another", LAYERNORM, dx_rows, call->dx.row_stride = 3)                            \
    BOTH("eps is negative, infinite or NaN", LAYERNORM, eps, call->eps = -1)                                           \
    BOTH("alpha is infinite or NaN", DYT, alpha, call->alpha = NAN)                                                    \
    BOTH("beta is negative, infinite or NaN", DYISRU, beta, call->beta = -1)                                           \
    BOTH("scale is infinite or NaN", DYISRU, scale, call->scale = INFINITY)                                            \
    BOTH("weight_offset is infinite or NaN", DYISRU, weight_offset, call->weight_offset = INFINITY)                    \
    BOTH("executor.threads is 0", DYT, threads, call->executor.parallel_for = run_no_tasks)                            \
    BOTH("executor.pool is given, but executor.parallel_for is NULL", DYT, pool, call->executor.pool = memory)         \
    BOTH("executor.threads is given, but executor.parallel_for is NULL", DYT, no_pool, call->executor.threads = 1)     \
    BOTH("executor.least_elements is given, but executor.parallel_for is NULL", DYT, least,                            \
         call->executor.least_elements = 1)                                                                            \
    FORWARD("y is NULL, and so are all other outputs", DYT, no_y, call->y.data = NULL)                                 \
    BACKWARD("dx is NULL, and so are all other outputs", DYT, no_dx, call->dx.data = call->dweight.data = NULL)        \
    FORWARD("x is NULL, and a pass that computes y needs it", DYT, no_x, call->x.data = NULL)                          \
    FORWARD("x is NULL, and a pass that computes rstd needs it", RMSNORM, no_x_for_rstd,                               \
            call->x.data = call->y.data = NULL)                                                                        \
    BACKWARD("dy is NULL, and a pass that computes dx needs it", DYT, no_dy, call->dy.data = NULL)                     \
    BACKWARD("x is NULL, and a pass that computes dweight needs it", DYT, no_x_for_dweight,                            \
             call->x.data = call->dx.data = NULL)                                                                      \
    FORWARD("y overlaps x", DYT, y_x, call->y.data = &memory[0][1])                                                    \
    FORWARD("y begins where x does, but its rows lie elsewhere or its elements have another size", DYT, y_of_halves,   \
            (call->y.data = call->x.data, call->y.type = DYNNORM_BF16))                                                \
    FORWARD("y overlaps mean", LAYERNORM, y_mean, call->y.data = memory[6])                                            \
    FORWARD("rstd overlaps weight", RMSNORM, rstd_weight, call->rstd = memory[4])                                      \
    FORWARD("mean overlaps rstd", LAYERNORM, mean_rstd, call->mean = call->rstd + 1)                                   \
    BACKWARD("dx overlaps weight", DYT, dx_weight, call->dx.data = memory[4])                                          \
    BACKWARD("dx, which is added to, is in the place of dy", DYT, accumulated,                                         \
             (call->dx = call->dy, call->accumulate_dx = 1))                                                           \
    BACKWARD("dx overlaps workspace", DYT, dx_workspace,                                                               \
             (call->workspace = memory[3], call->workspace_size = sizeof memory))                                      \
    BACKWARD("dweight overlaps x", DYT, dweight_x, call->dweight.data = memory[0])                                     \
    FORWARD("residual is NULL, and sum needs it", DYT, sum, call->sum.data = memory[6])                                \
    FORWARD("residual is NULL, and residual_bias needs it", DYT, residual_bias, call->residual_bias.data = memory[6])  \
    BACKWARD("residual is given, but sum is NULL: have forward write it, and set x to it", DYT, residual_alone,        \
             call->residual.data = memory[6])                                                                          \
    BACKWARD("residual is given, but x is not the sum, which is what was normalized: set x to it, and its type and "   \
             "strides to those of sum",                                                                                \
             DYT, residual, (call->residual.data = memory[6], call->sum.data = memory[7]))                             \
    BACKWARD("sum is given, but x is not the sum, which is what was normalized: set x to it, and its type and "        \
             "strides to those of sum",                                                                                \
             DYT, only_sum, call->sum.data = memory[7])                                                                \
    BOTH("alphas is given, but DyISRU does not use it", DYISRU, other_alphas, call->alphas.data = memory[6])           \
    BOTH("parameter_per_channel is given, but LayerNorm does not use it", LAYERNORM, no_parameter,                     \
         call->parameter_per_channel = 1)                                                                              \
    BOTH("alphas is NULL, and parameter_per_channel needs it", DYT, no_alphas, call->parameter_per_channel = 1)        \
    BOTH("the element of alphas is infinite or NaN", DYT, bad_alphas, call->alphas.data = &not_a_number)               \
    BOTH("the element of betas is negative, infinite or NaN", DYISRU, bad_betas, call->betas.data = &not_a_number)     \
    FORWARD("y_scale is given, but y is not of DYNNORM_I8", DYT, y_scale, call->y_scale = 1)                           \
    FORWARD("y_scales is given, but y is not of DYNNORM_I8", DYT, y_scales, call->y_scales = memory[6])                \
    FORWARD("y is of DYNNORM_I8, which needs one of y_scale and y_scales, and not both", DYT, no_scale,                \
            call->y.type = DYNNORM_I8)                                                                                 \
    FORWARD("y is NULL, and y_scales needs it", LAYERNORM, scales_alone,                                               \
            (call->y.type = DYNNORM_I8, call->y_scales = memory[10], call->y.data = NULL))                             \
    FORWARD("y_scale is not a finite number of at least 2^-120", DYT, small_scale,                                     \
            (call->y.type = DYNNORM_I8, call->y_scale = 1e-40f))                                                       \
    BACKWARD("dx is NULL, and dsum needs it", DYT, dsum, (call->dsum.data = call->dx.data, call->dx.data = NULL))      \
    BACKWARD("the workspace is smaller than dynnorm_workspace_size says", DYT, workspace, call->workspace = memory[10])

#define BOTH(words, operation, name, change) MISTAKE(words, words, operation, name, change)
#define FORWARD(words, operation, name, change) MISTAKE(words, NULL, operation, name, change)
#define BACKWARD(words, operation, name, change) MISTAKE(NULL, words, operation, name, change)
#define MISTAKE(forward, backward, operation, name, change)                                                            \
    static void make_##name(dynnorm_descriptor *call) {                                                                \
        change;                                                                                                        \
    }
MISTAKES
#undef MISTAKE
#define MISTAKE(forward, backward, operation, name, change) {forward, backward, DYNNORM_##operation, make_##name},
static const struct mistake mistakes[] = {MISTAKES};
#undef MISTAKE

typedef size_t explain_function(const dynnorm_descriptor *call, char *text, size_t capacity);

static void expect_words(explain_function *explain, const dynnorm_descriptor *call, const char *expected,
                         const char *pass) {
    char text[200];
    memset(text, UNTOUCHED, sizeof text);
    errno = 4711;
    size_t length = explain(call, text, sizeof text);
    tap_check(length == strlen(expected) && !strcmp(text, expected) && errno == 4711, "%s: \"%s\", expected \"%s\"",
              pass, length < sizeof text ? text : "", expected);
}

static void check_words(void) {
    for (int operation = 0; operation < OPERATIONS; operation++) {
        dynnorm_descriptor call = good_call((dynnorm_operation)operation);
        expect_words(dynnorm_explain_forward, &call, "the call is correct", "forward");
        expect_words(dynnorm_explain_backward, &call, "the call is correct", "backward");
        struct old_call old = make_old(&call);
        expect_words(dynnorm_explain_forward, &old.u.call, "the call is correct", "forward, 0.1.0");
        expect_words(dynnorm_explain_backward, &old.u.call, "the call is correct", "backward, 0.1.0");
    }
    expect_words(dynnorm_explain_forward, NULL, "the descriptor is NULL", "forward");
    expect_words(dynnorm_explain_backward, NULL, "the descriptor is NULL", "backward");
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        dynnorm_descriptor call = good_call(mistakes[i].operation);
        mistakes[i].make(&call);
        if (mistakes[i].forward)
            expect_words(dynnorm_explain_forward, &call, mistakes[i].forward, "forward");
        if (mistakes[i].backward)
            expect_words(dynnorm_explain_backward, &call, mistakes[i].backward, "backward");
    }
}

static void check_capacity(void) {
    dynnorm_descriptor call = good_call(DYNNORM_DYT);
    call.y.data = call.weight.data;
    const char *words = "y overlaps weight";
    tap_check(dynnorm_explain_forward(&call, NULL, 0) == strlen(words),
              "the length of the words without room for them");
    static const size_t capacities[] = {1, 2, 11, 17, 18, 19};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        char text[32], expected[32];
        memset(text, UNTOUCHED, sizeof text);
        memset(expected, UNTOUCHED, sizeof expected);
        snprintf(expected, capacities[i], "%s", words);
        size_t length = dynnorm_explain_forward(&call, text, capacities[i]);
        tap_check(length == strlen(words) && !memcmp(text, expected, sizeof text), "the words in %zu characters",
                  capacities[i]);
    }
    char text[200];
    tap_check(dynnorm_explain_forward(&call, text, SIZE_MAX) == strlen(words) && !strcmp(text, words),
              "the words in all the room there is");
}

int main(void) {
    for (size_t k = 0; k < listed_kernel_count; k++)
        if (listed_kernels[k].mode == DYNNORM_PORTABLE)
            check_completion(&listed_kernels[k]);
    check_init();
    check_words();
    check_capacity();
    return tap_done();
}
