/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tests that the limits do what their names say, that the shapes suit the machine, that threads share the work without
 * gap or overlap, that a peer that computes something else is found, and that what is compared of what engines need
 * computes the same. Tests that dynnorm-bench, whose path is the
 * argument, lists every limit, every kernel of every instruction set that runs here and every peer, each in the sets
 * where it belongs.
 */
#define _POSIX_C_SOURCE 200809L

#include "calls.h"
#include "engine_calls.h"
#include "limits.h"
#include "peers.h"
#include "pool.h"
#include "selection.h"
#include "tensors.h"

#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"
#include "elements.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

static void check_limits(const struct limit *limits, int vector_bytes) {
    enum { MOST = 150, BEYOND = 20 };
    static _Alignas(64) float x[MOST], y[MOST], z[MOST + BEYOND];
    for (int i = 0; i < MOST; i++) {
        x[i] = (float)(i + 1);
        y[i] = (float)(1000 * i);
    }
    for (const struct limit *limit = limits; limit->name; limit++) {
        int adds = strstr(limit->name, "add") != NULL;
        size_t count = 0, wrong = 0;
        for (; count <= MOST && !wrong; count++) {
            memset(z, 0, sizeof z);
            limit->loop(z, x, y, count);
            for (size_t i = 0; i < MOST + BEYOND && !wrong; i++) {
                float expected = i >= count ? 0 : adds ? x[i] + y[i] : x[i];
                if (z[i] < expected || z[i] > expected) {
                    printf("# %s, %zu floats: got z[%zu] = %g, expected %g\n", limit->name, count, i, (double)z[i],
                           (double)expected);
                    wrong = 1;
                }
            }
        }
        tap_check(!wrong, "%s with vectors of %d bytes, 0 to %d floats", limit->name, vector_bytes, MOST);
        tap_check(limit->tensors == (adds ? 3 : 2), "%s touches %zu tensors", limit->name, limit->tensors);
    }
}

static void check_all_limits(void) {
    check_limits(limits_16, 16);
#ifdef __x86_64__
    unsigned features = dynnorm_cpu_features();
    if (features & CPU_AVX2)
        check_limits(limits_32, 32);
    else
        tap_skip("limits with vectors of 32 bytes", "no AVX2 here");
    if (features & CPU_AVX512)
        check_limits(limits_64, 64);
    else
        tap_skip("limits with vectors of 64 bytes", "no AVX-512 here");
#endif
}

/* ---- Shapes ------------------------------------------------------------------------------------------------------ */

/* The size in bytes of three tensors of the shape that is listed for this reason; 0 if there is none. */
static size_t three_tensors_for(const char *reason, const struct machine *machine) {
    struct listed_shape list[MOST_LISTED_SHAPES];
    size_t count = list_shapes(list, machine);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].reason, reason))
            return 3 * tensor_bytes(list[i].shape);
    return 0;
}

/* Whether got is at most expected, and less than one row below it. */
static int is_about(size_t got, size_t expected) {
    size_t row = 3 * 1024 * sizeof(float);
    return got <= expected && got + row > expected;
}

static void check_shapes(void) {
    const size_t gigabyte = 1000000000;
    struct machine desktop = {{0, 32768, 1 << 20, 32 << 20}, 64 * gigabyte};
    tap_check(is_about(three_tensors_for(REASON_L1, &desktop), 16384), "three tensors take half of L1");
    tap_check(is_about(three_tensors_for(REASON_L2, &desktop), 1 << 19), "three tensors take half of L2");
    tap_check(is_about(three_tensors_for(REASON_L3, &desktop), 16 << 20), "three tensors take half of L3");
    tap_check(is_about(three_tensors_for(REASON_BEYOND, &desktop), 64 << 20), "and twice L3 beyond");

    struct machine virtual = {{0, 32768, 1 << 20, 512 << 20}, 64 * gigabyte};
    tap_check(is_about(three_tensors_for(REASON_L3, &virtual), 32000000), "of a vast L3 a share is counted on");
    tap_check(is_about(three_tensors_for(REASON_BEYOND, &virtual), 800000000), "and beyond it is bearable");
    struct machine small = {{0, 32768, 1 << 20, 0}, gigabyte / 500};
    tap_check(three_tensors_for(REASON_L3, &small) == 0, "no L3, no shape for it");
    tap_check(is_about(three_tensors_for(REASON_BEYOND, &small), gigabyte / 2000),
              "no more than a quarter of the memory");

    struct machine unknown = {{0, 0, 0, 0}, 0};
    struct listed_shape list[MOST_LISTED_SHAPES];
    size_t count = list_shapes(list, &unknown), bad = 0;
    for (size_t i = 0; i < count; i++)
        bad += !list[i].shape.tokens || !list[i].shape.channels || !list[i].reason;
    tap_check(count > 20 && count <= MOST_LISTED_SHAPES && !bad, "%zu shapes of a machine that tells nothing", count);
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Parses one or two options; NULL ends them. */
static int select_by(struct selection *selection, const char *first, const char *second) {
    static char texts[3][80];
    char *arguments[] = {texts[0], texts[1], texts[2], NULL};
    int count = 1 + (first != NULL) + (second != NULL);
    snprintf(texts[1], sizeof texts[1], "%.79s", first ? first : "");
    snprintf(texts[2], sizeof texts[2], "%.79s", second ? second : "");
    arguments[count] = NULL;
    return select_by_arguments(selection, &count, arguments);
}

static void check_selection(void) {
    struct selection selection;
    tap_check(select_by(&selection, NULL, NULL) && selection.set == SET_FULL && selection.threads == 1 &&
                  lists(&selection.isas, "any") && selection.peer_tolerance <= PEER_TOLERANCE,
              "no options select all, in one thread");
    tap_check(select_by(&selection, "--isa=avx2,scalar", "--isa=peer") && selection.isas.count == 3 &&
                  lists(&selection.isas, "scalar") && lists(&selection.isas, "peer") &&
                  !lists(&selection.isas, "avx512"),
              "a list with commas, and given again");
    tap_check(select_by(&selection, "--shape=3x5,7x11", "--set=quick") && selection.shape_words.count == 2 &&
                  selection.shapes[1].tokens == 7 && selection.shapes[1].channels == 11 && selection.set == SET_QUICK,
              "shapes and a set");
    static const char wrong[][40] = {
        "--shape=3",         "--shape=3x",         "--shape=0x5",   "--shape=3x5x7",
        "--shape=-3x5",      "--shape=",           "--shape=3x5,",  "--shape=99999999x99999999",
        "--set=fast",        "--threads=0",        "--threads=two", "--threads=9999999999",
        "--peer_tolerance=", "--peer_tolerance=1x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        tap_check(!select_by(&selection, wrong[i], NULL), "%s is refused", wrong[i]);
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 3, ELEMENTS = 1000, UNIT = 7 };

static void mark_share(void *context, size_t thread) {
    unsigned char *marks = context;
    struct share share = pool_share(ELEMENTS, UNIT, thread);
    for (size_t i = share.first; i < share.first + share.count; i++)
        marks[i]++;
    if (share.first % UNIT)
        marks[0] = 99;
}

static void mark_task(void *context, size_t index) {
    unsigned char *marks = context;
    marks[index]++;
}

static void check_pool(void) {
    static unsigned char marks[ELEMENTS];
    tap_check(pool_start(THREADS), "%d threads start", THREADS);
    enum { ROUNDS = 100 };
    for (int round = 0; round < ROUNDS; round++)
        pool_run(mark_share, marks);
    size_t wrong = 0;
    for (size_t i = 0; i < ELEMENTS; i++)
        wrong += marks[i] != ROUNDS;
    tap_check(pool_busy(ELEMENTS, UNIT) == THREADS && pool_busy(2 * UNIT, UNIT) == 2 && pool_busy(UNIT, UNIT) == 1 &&
                  pool_busy(1, UNIT) == 1,
              "no more threads are busy than there are units");
    tap_check(!wrong, "each element is taken once in each of %d rounds, in whole units", ROUNDS);

    size_t busy = 0;
    const dynnorm_executor executor = pool_executor(&busy);
    memset(marks, 0, sizeof marks);
    executor.parallel_for(executor.pool, mark_task, marks, ELEMENTS);
    for (size_t i = 0; i < ELEMENTS; i++)
        wrong += marks[i] != 1;
    tap_check(executor.threads == THREADS && busy == THREADS && !wrong, "the executor runs each task once");
    executor.parallel_for(executor.pool, mark_task, marks, 2);
    tap_check(busy == 2 && marks[1] == 2 && marks[2] == 1, "two tasks are the work of two threads");
    pool_stop();
    memset(marks, 0, sizeof marks);
    pool_run(mark_share, marks);
    tap_check(marks[0] == 1 && marks[ELEMENTS - 1] == 1, "without threads the caller takes all");
}

/* ---- Peers ------------------------------------------------------------------------------------------------------- */

/* In the place of a deviation: the peer cannot do the call. */
#define UNABLE (-1.0)

static int is_unable(double deviation) {
    return deviation < 0;
}

/* A peer that computes the same as the library, except for the last element of y and the first of dweight. */
static float added_to_y, factor_of_dweight;

static int fake_computes(dynnorm_operation operation, int backward, dynnorm_type type) {
    (void)operation, (void)backward, (void)type;
    return 1;
}

struct fake {
    const dynnorm_descriptor *call;
    int backward;
};

static void *fake_prepare(const dynnorm_descriptor *call, int backward) {
    struct fake *fake = allocate_pages(sizeof *fake);
    *fake = (struct fake){call, backward};
    return fake;
}

static void fake_run(void *prepared) {
    const struct fake *fake = prepared;
    if (fake->backward) {
        dynnorm_backward(fake->call);
        *(float *)fake->call->dweight.data *= factor_of_dweight;
    } else {
        dynnorm_forward(fake->call);
        const size_t last = fake->call->tokens * fake->call->channels - 1;
        unsigned char *y = fake->call->y.data;
        const dynnorm_type type = fake->call->y.type;
        set_element_at(y, type, last, element_at(y, type, last) + (double)added_to_y);
    }
}

static void leave_unwritten(void *prepared) {
    (void)prepared;
}

static const struct peer fake_peer = {"fake", "", fake_computes, fake_prepare, fake_run, free};
static const struct peer idle_peer = {"idle", "", fake_computes, fake_prepare, leave_unwritten, free};

static double deviation_in(const struct peer *peer, dynnorm_operation operation, int backward, dynnorm_type type) {
    const struct shape shape = {37, 101};
    dynnorm_descriptor call = describe_call(operation, shape);
    use_type(&call, type);
    call.alpha = 0.7f;
    call.beta = 3;
    call.scale = 2;
    if (!backward)
        complete_forward(&call);
    else if (complete_backward(&call))
        return UNABLE;
    void *prepared = peer->prepare(&call, backward);
    double deviation = prepared ? peer_deviation(peer, prepared, &call, backward) : UNABLE;
    if (prepared)
        peer->release(prepared);
    return deviation;
}

static double deviation_of(const struct peer *peer, dynnorm_operation operation, int backward) {
    return deviation_in(peer, operation, backward, DYNNORM_F32);
}

/* A peer may also find that it cannot do a call, as oneDNN does on some CPUs. */
static void check_peer_in_halves(const struct peer *peer, dynnorm_operation operation, int backward) {
    for (int type = DYNNORM_BF16; type < TYPES; type++)
        if (peer->computes(operation, backward, (dynnorm_type)type)) {
            char what[80];
            double deviation = deviation_in(peer, operation, backward, (dynnorm_type)type);
            snprintf(what, sizeof what, "%s computes %s %s in %s", peer->name, dynnorm_operations[operation].title,
                     backward ? "backward" : "forward", element_name((dynnorm_type)type));
            if (is_unable(deviation))
                tap_skip(what, "it cannot do this call");
            else
                tap_check(deviation < PEER_TOLERANCE + peer_roundings((dynnorm_type)type), "%s, within %.1g", what,
                          deviation);
        }
}

static void check_peers(void) {
    added_to_y = 0;
    factor_of_dweight = 1;
    tap_check(deviation_of(&fake_peer, DYNNORM_DYT, 0) == 0, "a peer that computes the same, forward");
    tap_check(deviation_of(&fake_peer, DYNNORM_DYT, 1) == 0, "a peer that computes the same, backward");
    added_to_y = 1e-2f;
    factor_of_dweight = 0.9f;
    tap_check(deviation_of(&fake_peer, DYNNORM_DYT, 0) > PEER_TOLERANCE, "one wrong element of y is found");
    tap_check(deviation_of(&fake_peer, DYNNORM_RMSNORM, 1) > PEER_TOLERANCE, "a wrong dweight is found");
    tap_check(isinf(deviation_of(&idle_peer, DYNNORM_DYT, 0)), "what is not written is found");
    for (int type = DYNNORM_BF16; type < TYPES; type++) {
        const double roundings = peer_roundings((dynnorm_type)type);
        tap_check(isinf(deviation_in(&idle_peer, DYNNORM_DYT, 1, (dynnorm_type)type)), "nor in %s",
                  element_name((dynnorm_type)type));
        added_to_y = 0;
        tap_check(deviation_in(&fake_peer, DYNNORM_DYT, 0, (dynnorm_type)type) == 0, "a peer that does the same");
        added_to_y = 0.25f;
        tap_check(deviation_in(&fake_peer, DYNNORM_DYT, 0, (dynnorm_type)type) > PEER_TOLERANCE + roundings,
                  "one wrong element of y");
    }

    for (const struct peer *const *peer = peers(); *peer; peer++) {
        tap_check(strlen((*peer)->description) > 10, "%s: %s", (*peer)->name, (*peer)->description);
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int backward = 0; backward < 2 && (*peer)->computes; backward++)
                if ((*peer)->computes((dynnorm_operation)operation, backward, DYNNORM_F32)) {
                    double deviation = deviation_of(*peer, (dynnorm_operation)operation, backward);
                    tap_check(!is_unable(deviation) && deviation < PEER_TOLERANCE, "%s computes %s %s, within %.1g",
                              (*peer)->name, dynnorm_operations[operation].title, backward ? "backward" : "forward",
                              deviation);
                    check_peer_in_halves(*peer, (dynnorm_operation)operation, backward);
                }
    }
}

/* ---- What engines need ------------------------------------------------------------------------------------------- */

/* The shape that has most elements of those that are far beyond the caches. */
static struct shape far_beyond(const struct machine *machine) {
    struct engine_shape list[MOST_ENGINE_SHAPES];
    size_t count = list_engine_shapes(list, machine);
    struct shape largest = {0, 0};
    for (size_t i = 0; i < count; i++)
        if (tensor_bytes(list[i].shape) > tensor_bytes(largest))
            largest = list[i].shape;
    return largest;
}

static void check_engine_shapes(void) {
    const size_t gigabyte = 1000000000, row = 4096 * sizeof(float);
    struct machine desktop = {{0, 32768, 1 << 20, 96 << 20}, 64 * gigabyte};
    size_t bytes = tensor_bytes(far_beyond(&desktop));
    tap_check(bytes <= 192u << 20 && bytes + row > 192u << 20, "two tensors of 16 bits take twice the last cache");
    struct machine virtual = {{0, 32768, 1 << 20, 512 << 20}, 64 * gigabyte};
    tap_check(3 * tensor_bytes(far_beyond(&virtual)) <= 1600000000, "but they are bearable");
    struct machine small = {{0, 32768, 1 << 20, 512 << 20}, gigabyte};
    tap_check(3 * tensor_bytes(far_beyond(&small)) <= gigabyte / 8, "and leave most of the memory free");
    struct machine unknown = {{0, 0, 0, 0}, 0};
    struct engine_shape list[MOST_ENGINE_SHAPES];
    size_t count = list_engine_shapes(list, &unknown);
    unsigned sets = 0;
    for (size_t i = 0; i < count; i++)
        sets |= list[i].shape.tokens && list[i].shape.channels ? list[i].sets : 0;
    tap_check(count <= MOST_ENGINE_SHAPES && sets == (1u << ENGINE_SETS) - 1,
              "each set has shapes on a machine that tells nothing");
}

enum { LARGEST = 1 << 16 };

/* Makes a call one way, in an array of its own the outputs one after the other. Returns their bytes; 0 if it failed. */
static size_t made_in(enum way way, dynnorm_operation operation, int backward, dynnorm_type type,
                      unsigned char bytes[LARGEST]) {
    static struct engine_call made;
    size_t size = 0;
    made = (struct engine_call){.whole = describe_call(operation, (struct shape){7, 101})};
    use_type(&made.whole, type);
    complete_forward(&made.whole);
    if (backward)
        made.status = complete_backward(&made.whole);
    engine_prepare(&made, way, backward);
    struct output outputs[OUTPUTS];
    list_outputs(outputs, &made.whole, backward);
    for (int i = 0; i < OUTPUTS; i++)
        if (outputs[i].data)
            memset(outputs[i].data, 0xff, output_bytes(&outputs[i]));
    engine_run(&made);
    for (int i = 0; i < OUTPUTS && !made.status; i++)
        if (outputs[i].data) {
            memcpy(bytes + size, outputs[i].data, output_bytes(&outputs[i]));
            size += output_bytes(&outputs[i]);
        }
    return size;
}

/* Whether two ways give the same bits, and some. */
static int agree(enum way one, enum way other, dynnorm_operation operation, int backward, dynnorm_type type) {
    static unsigned char bytes[2][LARGEST];
    const size_t size = made_in(one, operation, backward, type, bytes[0]);
    return size > 0 && size == made_in(other, operation, backward, type, bytes[1]) && !memcmp(bytes[0], bytes[1], size);
}

static void check_ways(dynnorm_operation operation) {
    const char *title = dynnorm_operations[operation].title;
    const dynnorm_type f32 = DYNNORM_F32, bf16 = DYNNORM_BF16;
    tap_check(agree(WAY_RESIDUAL, WAY_RESIDUAL_APART, operation, 0, f32) &&
                  agree(WAY_RESIDUAL, WAY_RESIDUAL_BY_ROWS, operation, 0, f32) &&
                  agree(WAY_RESIDUAL, WAY_RESIDUAL_APART, operation, 0, bf16) &&
                  agree(WAY_RESIDUAL, WAY_RESIDUAL_BY_ROWS, operation, 0, bf16),
              "%s of a residual: the same bits in one call, in two and by rows", title);
    tap_check(agree(WAY_RESIDUAL, WAY_RESIDUAL_APART, operation, 1, f32), "%s backward of floats, too", title);
    tap_check(!agree(WAY_RESIDUAL, WAY_CALL, operation, 0, f32) && !agree(WAY_RESIDUAL, WAY_CALL, operation, 1, f32),
              "%s: a residual makes a difference", title);
    tap_check(agree(WAY_CALL, WAY_ROW_DESCRIPTOR, operation, 0, f32) &&
                  agree(WAY_CALL, WAY_ROW_PREPARED, operation, 0, f32) &&
                  agree(WAY_CALL, WAY_ROW_DESCRIPTOR, operation, 0, bf16) &&
                  agree(WAY_CALL, WAY_ROW_PREPARED, operation, 0, bf16) &&
                  agree(WAY_CALL, WAY_ROW_PLAIN, operation, 0, f32) == way_exists(WAY_ROW_PLAIN, operation),
              "%s row by row: the same bits", title);

    static unsigned char bytes[LARGEST];
    const int has_bound = operation >= DYNNORM_DYT;
    int most = 0;
    for (int type = 0; type <= DYNNORM_BF16; type++)
        for (size_t i = made_in(WAY_I8_GIVEN, operation, 0, (dynnorm_type)type, bytes); i-- > 0;)
            most = abs((signed char)bytes[i]) > most ? abs((signed char)bytes[i]) : most;
    tap_check(has_bound ? most > 10 && most <= 127 : most == 127,
              "%s: a scale that is given uses the integers, up to %d", title, most);
    const size_t with_scales = made_in(WAY_I8_ROWS, operation, 0, f32, bytes);
    tap_check(with_scales == 7 * 101 + 7 * sizeof(float), "%s: scales of rows are outputs", title);
}

static void check_engines(void) {
    const struct shape shape = {3, 5};
    check_engine_shapes();
    for (int operation = 0; operation < OPERATIONS; operation++)
        check_ways((dynnorm_operation)operation);
    tap_check(way_bytes(WAY_CALL, DYNNORM_F32, 0, shape) == 2 * 4 * 15 &&
                  way_bytes(WAY_CALL, DYNNORM_BF16, 1, shape) == 3 * 2 * 15 &&
                  way_bytes(WAY_RESIDUAL_APART, DYNNORM_BF16, 0, shape) == 4 * 2 * 15 &&
                  way_bytes(WAY_I8_ROWS, DYNNORM_F32, 0, shape) == 5 * 15,
              "bytes are counted once");
    struct selection selection;
    tap_check(select_by(&selection, "--engines=types,int8", "--set=none") && selection.set == SET_NONE &&
                  selection.engines == (ENGINE_TYPES | ENGINE_INT8),
              "sets of what engines need");
    tap_check(!select_by(&selection, "--engines=", NULL) && !select_by(&selection, "--engines=types,all", NULL),
              "others are refused");
    tap_check(select_by(&selection, NULL, NULL) && !selection.engines, "they are measured if one asks for them");
}

/* ---- The list of dynnorm-bench ----------------------------------------------------------------------------------- */

enum { LONGEST_LINE = 200 };

struct lines {
    size_t count;
    char (*text)[LONGEST_LINE];
};

static struct lines lines_printed_by(const char *command) {
    struct lines lines = {0, NULL};
    FILE *output = popen(command, "r");
    char line[LONGEST_LINE];
    while (output && fgets(line, sizeof line, output)) {
        line[strcspn(line, "\n")] = 0;
        lines.text = realloc(lines.text, (lines.count + 1) * sizeof *lines.text);
        if (!lines.text)
            abort();
        memcpy(lines.text[lines.count++], line, sizeof line);
    }
    tap_check(output && pclose(output) == 0, "%s succeeds", command);
    return lines;
}

static int times_listed(const struct lines *lines, const char *name) {
    int times = 0;
    for (size_t i = 0; i < lines->count; i++)
        times += !strcmp(lines->text[i], name);
    return times;
}

/* The shapes for a machine that tells nothing of its caches. The full set has them on every machine. */
static struct listed_shape shapes[MOST_LISTED_SHAPES];
static size_t shape_count;

/* Checks that prefix/tokens:.../channels:... is listed once for every shape. */
static void check_listed(const struct lines *lines, const char *prefix) {
    size_t missing = 0;
    for (size_t i = 0; i < shape_count; i++) {
        char name[LONGEST_LINE];
        snprintf(name, sizeof name, "%s/tokens:%zu/channels:%zu", prefix, shapes[i].shape.tokens,
                 shapes[i].shape.channels);
        int times = times_listed(lines, name);
        if (times != 1) {
            printf("# %s: listed %d times, expected once\n", name, times);
            missing++;
        }
    }
    tap_check(!missing, "%s is listed at every shape", prefix);
}

static void check_kernel_listed(const struct lines *lines, const struct kernels *table, const char *operation,
                                const char *mode, int present) {
    char prefix[LONGEST_LINE];
    snprintf(prefix, sizeof prefix, "%s/f32/%s/%s", operation, table->isa, mode);
    if (present)
        check_listed(lines, prefix);
    else
        tap_skip(prefix, "this table has no such kernel");
}

static void check_table_listed(const struct lines *lines, const struct kernels *table) {
#define FORWARD(operation, mode, ...)                                                                                  \
    check_kernel_listed(lines, table, #operation "_forward", #mode,                                                    \
                        table->forward[operation_##operation][mode_##mode] != NULL);
#define BACKWARD(operation, mode, ...)                                                                                 \
    check_kernel_listed(lines, table, #operation "_backward", #mode,                                                   \
                        table->backward[operation_##operation][mode_##mode] != NULL);
#include "kernels.def"
}

static struct lines list_cases(const char *program, const char *set) {
    char command[4096];
    snprintf(command, sizeof command, "'%s' --benchmark_list_tests --set=%s", program, set);
    return lines_printed_by(command);
}

/* Checks the sets of what engines need, at a shape that is in none of them. */
static void check_engine_lists(const char *program) {
    struct lines lines = list_cases(program, "none --engines=types,residual,int8,prepared --shape=3x5");
    const char *isa = dynnorm_isa_list[0].kernels->isa;
    for (const struct isa *best = dynnorm_isa_list; !dynnorm_isa_runs_here(best);)
        isa = (++best)->kernels->isa;
    static const struct {
        const char *of; /* between the operation's name and the instruction set */
        int times, times_scalar;
    } expected[] = {
        {"forward/f32", 1, 1},
        {"forward/bf16", 1, 1},
        {"backward/f16", 1, 1},
        {"forward/f32-residual", 1, 0},
        {"backward/bf16-residual", 1, 0},
        {"forward/f16-residual", 0, 0},
        {"forward/bf16-i8_rows", 1, 0},
        {"backward/f32-i8_rows", 0, 0},
        {"forward/f32-row_plain", 1, 0},
        {"forward/bf16-row_plain", 0, 0},
        {"forward/f32-threads", 0, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (int scalar = 0; scalar < 2; scalar++) {
            char name[LONGEST_LINE];
            const int is_best = !scalar || !strcmp(isa, "scalar");
            snprintf(name, sizeof name, "rmsnorm_%s/%s/portable/tokens:3/channels:5", expected[i].of,
                     scalar ? "scalar" : isa);
            const int times = is_best ? expected[i].times : expected[i].times_scalar;
            tap_check(times_listed(&lines, name) == times, "%s: listed %d times", name, times);
        }
    tap_check(times_listed(&lines, "limit_copy/f32/tokens:3/channels:5") == 1 &&
                  times_listed(&lines, "limit_add/bf16/tokens:3/channels:5") == 1,
              "with limits of 32 and of 16 bits");
    free(lines.text);

    lines = list_cases(program, "quick --engines=types,int8 --shape=3x5");
    size_t repeated = 0;
    for (size_t i = 0; i < lines.count; i++)
        repeated += times_listed(&lines, lines.text[i]) != 1;
    tap_check(!repeated, "no case of several sets is measured twice");
    free(lines.text);
}

static void check_part_of(const struct lines *part, const struct lines *whole, const char *name) {
    size_t missing = 0;
    for (size_t i = 0; i < part->count; i++)
        missing += times_listed(whole, part->text[i]) != 1;
    tap_check(!missing && part->count < whole->count, "%s: %zu of %zu cases", name, part->count, whole->count);
}

static void check_lists(const char *program) {
    struct machine unknown = {{0, 0, 0, 0}, 0};
    shape_count = list_shapes(shapes, &unknown);
    struct lines quick = list_cases(program, "quick"), standard = list_cases(program, "standard"),
                 full = list_cases(program, "full");
    check_part_of(&quick, &standard, "the quick set is a part of the standard one");
    check_part_of(&standard, &full, "the standard set is a part of the full one");

    check_listed(&full, "limit_copy/f32");
    check_listed(&full, "limit_add/f32");
#if defined __x86_64__ || defined __aarch64__
    check_listed(&full, "limit_copy_nontemporal/f32");
    check_listed(&full, "limit_add_nontemporal/f32");
#endif
    const char *isas[16];
    size_t isa_count = dynnorm_isas(isas, sizeof isas / sizeof *isas);
    for (size_t i = 0; i < isa_count; i++) {
        tap_check(dynnorm_set_isa(isas[i]) == DYNNORM_OK, "%s can be chosen", isas[i]);
        check_table_listed(&full, dynnorm_active_kernels());
        char name[LONGEST_LINE];
        static const char *const main_shapes[] = {"tokens:1/channels:4096",    "tokens:1024/channels:4096",
                                                  "tokens:4096/channels:4096", "tokens:1000/channels:100",
                                                  "tokens:4096/channels:64",   "tokens:2048/channels:128"};
        for (size_t j = 0; j < sizeof main_shapes / sizeof *main_shapes; j++) {
            snprintf(name, sizeof name, "centered_dyisru_backward/f32/%s/portable/%s", isas[i], main_shapes[j]);
            tap_check(times_listed(&quick, name) == 1, "the quick set has %s", name);
        }
    }
    for (const struct peer *const *peer = peers(); *peer; peer++)
        for (int operation = 0; operation < OPERATIONS; operation++) {
            char name[LONGEST_LINE];
            snprintf(name, sizeof name, "%s_forward/f32/peer/%s/tokens:32/channels:1024",
                     dynnorm_operations[operation].name, (*peer)->name);
            int computes = (*peer)->computes && (*peer)->computes((dynnorm_operation)operation, 0, DYNNORM_F32);
            tap_check(times_listed(&quick, name) == computes, "%s: listed %d times in the quick set", name, computes);
        }
    size_t engines = 0;
    for (size_t i = 0; i < full.count; i++)
        engines += strstr(full.text[i], "/f32/") == NULL;
    tap_check(engines == 0, "no set but their own has what engines need");
    check_engine_lists(program);
    free(quick.text);
    free(standard.text);
    free(full.text);
}

int main(int argc, char **argv) {
    check_all_limits();
    check_shapes();
    check_selection();
    check_pool();
    check_peers();
    check_engines();
    if (argc == 2)
        check_lists(argv[1]);
    else
        tap_check(0, "usage: test_bench PATH-OF-DYNNORM-BENCH");
    return tap_done();
}
