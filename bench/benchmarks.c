/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Times every kernel of src/kernels.def on every instruction set that runs here, at the shapes of shapes.c; and at the
 * same shapes the limits of limits.h and the peers of peers.h. These are names of cases:
 *
 *   rmsnorm_forward/f32/avx2/portable/tokens:64/channels:4096
 *   limit_copy/f32/tokens:64/channels:4096
 *   layernorm_forward/f32/peer/onednn/tokens:64/channels:4096
 *
 * The sets of what engines need around a norm have other types of elements and other ways to make a call than by
 * itself, those of engine_calls.h:
 *
 *   rmsnorm_forward/bf16-residual/avx2/portable/tokens:64/channels:4096
 *
 * Bytes per second count each element of x and y once (forward), or of dy, x and dx (backward), and so those of a
 * residual and its sum.
 *
 * With one thread, times are CPU times; with several, they are wall-clock times.
 */
#include "calls.h"
#include "engine_calls.h"
#include "google_benchmark_shim.h"
#include "limits.h"
#include "listed_kernels.h"
#include "peers.h"
#include "pool.h"
#include "selection.h"
#include "tensors.h"

#include "dispatch/cpu.h"
#include "dispatch/dispatch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct selection selection;
static int failed;

static const char *const type_names[TYPES] = {
#define ELEMENT_TYPE(name, ...) #name,
#include "element_types.def"
};

static void fail(struct benchmark_state *state, const char *why) {
    failed = 1;
    benchmark_fail(state, why);
}

static void set_rates(struct benchmark_state *state, struct shape shape, size_t bytes) {
    benchmark_set_rate(state, "bytes_per_second", (double)bytes);
    benchmark_set_rate(state, "tokens_per_second", (double)shape.tokens);
}

/* Reports how many threads have work, if there are several. */
static void set_busy_threads(struct benchmark_state *state, size_t threads, size_t busy) {
    if (threads > 1)
        benchmark_set_value(state, "busy_threads", (double)busy);
}

/* Google Benchmark runs a case several times while it looks for a suitable number of iterations. Returns whether this
 * is the first of these runs, which sets up the call and warms the caches for the others. */
static int is_new(const void *this) {
    static const void *last;
    int new = this != last;
    last = this;
    return new;
}

/* ---- What is left in the outputs --------------------------------------------------------------------------------- */

/* A byte of what no output has: NaN, or -128. */
static int forgotten(const struct output *output) {
    return output->type == DYNNORM_I8 ? 0x80 : 0xff;
}

/* Fills the outputs with what they do not have, so that the tests can see whether what is measured writes all of them.
 */
static void forget_outputs(const struct output *outputs, size_t count) {
    for (size_t i = 0; selection.digest && i < count; i++)
        if (outputs[i].data)
            memset(outputs[i].data, forgotten(&outputs[i]), output_bytes(&outputs[i]));
}

/* Reports how many elements are still unwritten, and a hash of all elements that is short enough for a double. */
static void report_outputs(struct benchmark_state *state, const struct output *outputs, size_t count) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a, over elements instead of bytes */
    size_t unwritten = 0;
    if (!selection.digest)
        return;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; outputs[i].data && j < outputs[i].count; j++) {
            const size_t bytes = dynnorm_element_bytes(outputs[i].type);
            uint32_t bits = 0, never = 0;
            memcpy(&bits, (const char *)outputs[i].data + j * bytes, bytes);
            memset(&never, forgotten(&outputs[i]), bytes);
            unwritten += bits == never;
            hash = (hash ^ bits) * 1099511628211u;
        }
    benchmark_set_value(state, "unwritten", (double)unwritten);
    benchmark_set_value(state, "digest", (double)(hash >> 12));
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* A limit moves as many bytes as tensors of the type have. */
struct limit_case {
    const struct limit *limit;
    dynnorm_type type;
    struct shape shape;
};

static size_t floats_of(const struct limit_case *this) {
    return this->shape.tokens * this->shape.channels * dynnorm_element_bytes(this->type) / sizeof(float);
}

static float *tensor(const struct limit_case *this, enum which_tensor which) {
    return tensor_of(this->shape, this->type, which);
}

enum { CACHE_LINE = 16 }; /* in floats */

static void run_limit_share(void *context, size_t thread) {
    const struct limit_case *this = context;
    struct share share = pool_share(floats_of(this), CACHE_LINE, thread);
    this->limit->loop(tensor(this, TENSOR_OUTPUT) + share.first, tensor(this, TENSOR_X) + share.first,
                      tensor(this, TENSOR_DY) + share.first, share.count);
}

static void run_limit(void *context) {
    pool_run(run_limit_share, context);
}

static void measure_limit(struct benchmark_state *state, void *context) {
    const struct limit_case *this = context;
    struct output output = {tensor(this, TENSOR_OUTPUT), floats_of(this), DYNNORM_F32};
    if (is_new(this))
        run_limit(context);
    forget_outputs(&output, 1);
    benchmark_measure(state, run_limit, context);
    set_rates(state, this->shape, this->limit->tensors * output_bytes(&output));
    set_busy_threads(state, selection.threads, pool_busy(output.count, CACHE_LINE));
    report_outputs(state, &output, 1);
}

static const struct limit *widest_limits(void) {
#ifdef __x86_64__
    unsigned features = dynnorm_cpu_features();
    if (features & CPU_AVX512)
        return limits_64;
    if (features & CPU_AVX2)
        return limits_32;
#endif
    return limits_16;
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* A kernel of an instruction set, or the same operation done by a peer. */
struct kernel_case {
    const struct listed_kernel *kernel;
    const char *isa;         /* NULL if a peer does it */
    const struct peer *peer; /* NULL if the library does it */
    dynnorm_type type;
    enum way way;
    struct shape shape;
};

/* The call of the current case, set up once for all of its runs. */
static struct {
    struct engine_call made;
    size_t threads;
    size_t busy;    /* how many threads have work */
    void *prepared; /* what the peer's prepare returned, or NULL */
    double deviation;
} current;

/* How many threads are compared with one; 1 if this process may run on no more than one processor. */
static size_t executor_threads(void) {
    static size_t processors; /* before any thread is pinned to one */
    if (!processors)
        processors = pool_processors();
    return selection.threads > 1 ? selection.threads : processors < 2 ? processors : 2;
}

/* Gives the call a workspace, as a program would keep one for all its steps. */
static dynnorm_status allocate_workspace(dynnorm_descriptor *call) {
    dynnorm_status status = dynnorm_workspace_size(call, &call->workspace_size);
    if (!status)
        call->workspace = allocate_pages(call->workspace_size);
    return status;
}

/* On how many threads a way to call is measured. */
static size_t threads_of(enum way way) {
    return way == WAY_THREADS ? executor_threads() : way == WAY_ONE_THREAD ? 1 : selection.threads;
}

/* Starts or ends the threads for the current case, if not all cases have the same. */
static int change_threads(enum way way) {
    if (selection.threads > 1)
        return 1;
    pool_stop();
    return pool_start(threads_of(way));
}

static dynnorm_status describe_current(const struct kernel_case *this) {
    dynnorm_descriptor *call = &current.made.whole;
    dynnorm_status status = dynnorm_set_isa(this->isa);
    *call = describe_call(this->kernel->operation, this->shape);
    call->mode = this->kernel->mode;
    use_type(call, this->type);
    if (status || !this->kernel->backward) {
        complete_forward(call);
        return status;
    }
    status = complete_backward(call);
    return status ? status : allocate_workspace(call);
}

static void set_up(const struct kernel_case *this) {
    static const struct peer *last_peer;
    int backward = this->kernel->backward;
    if (current.prepared)
        last_peer->release(current.prepared);
    current.prepared = NULL;
    last_peer = this->peer;
    free(current.made.whole.workspace);
    current.made.status = describe_current(this);
    current.threads = threads_of(this->way);
    current.busy = 1;
    if (!current.made.status && !change_threads(this->way))
        current.made.status = DYNNORM_ERROR_EXECUTOR;
    if (current.made.status)
        return;
    if (current.threads > 1 && !this->peer)
        current.made.whole.executor = pool_executor(&current.busy);
    if (this->peer) {
        current.prepared = this->peer->prepare(&current.made.whole, backward);
        if (current.prepared) {
            current.deviation = peer_deviation(this->peer, current.prepared, &current.made.whole, backward);
            /* That gave memory back to the system. On some virtual machines every page then takes microseconds when
               it is used for the first time after that, and the first run may be the only one that is measured. */
            this->peer->run(current.prepared);
        }
    } else { /* The threads that are measured run it, so that each has its share in its own caches. */
        engine_prepare(&current.made, this->way, backward);
        engine_run(&current.made);
    }
}

static void measure_kernel(struct benchmark_state *state, void *context) {
    const struct kernel_case *this = context;
    int backward = this->kernel->backward;
    if (is_new(this))
        set_up(this);
    if (current.made.status) {
        fail(state, dynnorm_status_string(current.made.status));
    } else {
        struct output outputs[OUTPUTS];
        list_outputs(outputs, &current.made.whole, backward);
        forget_outputs(outputs, OUTPUTS);
        benchmark_measure(state, engine_run, &current.made);
        set_rates(state, this->shape, way_bytes(this->way, this->type, backward, this->shape));
        set_busy_threads(state, current.threads, current.busy);
        report_outputs(state, outputs, OUTPUTS);
    }
}

/* If a peer fails or computes something else, that is a result and no failure of the benchmark. */
static void measure_peer(struct benchmark_state *state, void *context) {
    const struct kernel_case *this = context;
    if (is_new(this))
        set_up(this);
    if (current.made.status) {
        fail(state, dynnorm_status_string(current.made.status));
    } else if (!current.prepared) {
        benchmark_fail(state, "unable: the peer cannot do this call");
    } else if (current.deviation > selection.peer_tolerance + peer_roundings(this->type)) {
        char why[100];
        snprintf(why, sizeof why, "wrong: the results differ from the library's by %.2g of the largest",
                 current.deviation);
        benchmark_fail(state, why);
    } else {
        benchmark_measure(state, this->peer->run, current.prepared);
        set_rates(state, this->shape, way_bytes(WAY_CALL, this->type, this->kernel->backward, this->shape));
        benchmark_set_value(state, "deviation", current.deviation);
    }
}

/* ---- What is measured -------------------------------------------------------------------------------------------- */

struct measured_shape {
    struct shape shape;
    int in_set; /* whether the set has it */
    int whole;  /* whether everything of the set is measured here: also the other modes, the centered DyISRU and the
                   peers */
    unsigned engines; /* the ENGINE_ sets that have it */
};

enum { NAME_SIZE = 120, MOST_SHAPES = MOST_LISTED_SHAPES + MOST_WORDS };

static struct measured_shape measured[MOST_SHAPES];
static size_t measured_count;

static void add_shape(struct measured_shape added) {
    for (struct measured_shape *same = measured; same < measured + measured_count; same++)
        if (same->shape.tokens == added.shape.tokens && same->shape.channels == added.shape.channels) {
            same->in_set |= added.in_set;
            same->whole |= added.whole;
            same->engines |= added.engines;
            return;
        }
    measured[measured_count++] = added;
}

/* Tells the report which shapes are measured for this reason. */
static void add_shape_context(const char *reason, const struct shape *shapes, size_t count) {
    char key[NAME_SIZE], value[MOST_SHAPES * 24] = "";
    snprintf(key, sizeof key, "shapes, %s", reason);
    for (size_t i = 0; i < count; i++)
        snprintf(value + strlen(value), sizeof value - strlen(value), "%s%zux%zu", i ? " " : "", shapes[i].tokens,
                 shapes[i].channels);
    if (count)
        benchmark_add_context(key, value);
}

/* 0 where the system does not tell. */
static size_t memory_bytes(void) {
#ifdef _SC_PHYS_PAGES
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
#else
    return 0;
#endif
}

/* Chooses the shapes of the ENGINE_ sets. */
static void choose_engine_shapes(const struct machine *machine) {
    struct engine_shape list[MOST_ENGINE_SHAPES];
    const size_t count = list_engine_shapes(list, machine);
    for (int set = 0; set < ENGINE_SETS; set++) {
        struct shape shapes[MOST_SHAPES];
        size_t found = 0;
        if (!(selection.engines & 1u << set))
            continue;
        for (size_t i = 0; i < selection.shape_words.count; i++)
            shapes[found++] = selection.shapes[i];
        for (size_t i = 0; i < count && !selection.shape_words.count; i++)
            if (list[i].sets & 1u << set)
                shapes[found++] = list[i].shape;
        for (size_t i = 0; i < found; i++)
            add_shape((struct measured_shape){.shape = shapes[i], .engines = 1u << set});
        add_shape_context(engine_set_names[set], shapes, found);
    }
}

/* Chooses the shapes of the set, or those that the options name. */
static void choose_shapes(void) {
    struct listed_shape list[MOST_LISTED_SHAPES];
    struct machine machine = {.memory = memory_bytes()};
    for (int level = 1; level <= 3; level++)
        machine.cache[level] = benchmark_cache_bytes(level);
    /* Some virtual machines tell of no cache at all. */
    if (!machine.cache[1] && !machine.cache[2] && !machine.cache[3])
        for (int level = 1; level <= 3; level++)
            machine.cache[level] = dynnorm_cache_bytes(level);
    size_t count = list_shapes(list, &machine);

    choose_engine_shapes(&machine);
    if (selection.set == SET_NONE)
        return;
    for (size_t i = 0; i < selection.shape_words.count; i++)
        add_shape((struct measured_shape){selection.shapes[i], 1, 1, 0});
    add_shape_context(REASON_MAIN, selection.shapes, selection.shape_words.count);
    if (selection.shape_words.count)
        return;

    for (size_t i = 0; i < count; i++)
        if (list[i].set <= selection.set)
            add_shape((struct measured_shape){list[i].shape, 1,
                                              selection.set == SET_FULL || !strcmp(list[i].reason, REASON_MAIN), 0});
    for (size_t first = 0; first < count; first++) {
        struct shape shapes[MOST_LISTED_SHAPES];
        size_t found = 0;
        for (size_t i = 0; i < count; i++) {
            if (i < first && !strcmp(list[i].reason, list[first].reason))
                break; /* this reason has been told already */
            if (list[i].set <= selection.set && !strcmp(list[i].reason, list[first].reason))
                shapes[found++] = list[i].shape;
        }
        if (first == 0 || strcmp(list[first].reason, list[first - 1].reason))
            add_shape_context(list[first].reason, shapes, found);
    }
}

static int is_selected(const struct listed_kernel *kernel) {
    return lists(&selection.operations, kernel->name) || lists(&selection.operations, kernel->operation_name);
}

/* Whether this kernel is measured at a shape of the selected set. Plain C takes long for large tensors, so there it is
 * measured only at the main shapes and only in the portable mode. */
static int is_in_set(const struct listed_kernel *kernel, const char *isa, const struct measured_shape *at) {
    if (!at->in_set)
        return 0;
    if (selection.set == SET_FULL || selection.shape_words.count)
        return 1;
    int core = kernel->operation != DYNNORM_CENTERED_DYISRU && kernel->mode != DYNNORM_SLEEF;
    int slow = !strcmp(isa, "scalar") && tensor_bytes(at->shape) > (size_t)1 << 22;
    if (slow)
        return kernel->mode == DYNNORM_PORTABLE && at->whole;
    return core || at->whole;
}

/* Whether this machine measures an ENGINE_ set on an instruction set: the types on each, the others on the best one,
 * unless the options name some. Plain C takes long for large tensors. */
static int engines_measure(unsigned sets, const struct isa *isa, const struct measured_shape *at) {
    const int is_slow = !strcmp(isa->kernels->isa, "scalar") && tensor_bytes(at->shape) > (size_t)1 << 22;
    const struct isa *best = dynnorm_isa_list;
    while (!dynnorm_isa_is_reached_by_name(best))
        best++;
    return (selection.shape_words.count || !is_slow) && (sets & ENGINE_TYPES || selection.isas.count || isa == best);
}

/* Where the tensors are far beyond the caches, the centered DyISRU takes too long for its worth. */
static int engines_want(const struct listed_kernel *kernel, const struct measured_shape *at) {
    return kernel->mode == DYNNORM_PORTABLE && is_selected(kernel) &&
           (selection.shape_words.count || kernel->operation != DYNNORM_CENTERED_DYISRU ||
            tensor_bytes(at->shape) <= (size_t)1 << 28);
}

static void register_limits(struct shape shape, dynnorm_type type) {
    int directions = 0;
    for (const struct listed_kernel *kernel = listed_kernels; kernel < listed_kernels + listed_kernel_count; kernel++)
        if (is_selected(kernel))
            directions |= 1 << kernel->backward;
    for (const struct limit *limit = widest_limits(); limit->name; limit++) {
        if (!(directions & (limit->tensors == 3 ? 2 : 1)))
            continue;
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%s/%s/tokens:%zu/channels:%zu", limit->name, type_names[type], shape.tokens,
                 shape.channels);
        struct limit_case this = {limit, type, shape};
        benchmark_register(name, selection.threads > 1 ? BENCHMARK_WALL_TIME : BENCHMARK_CPU_TIME, measure_limit, &this,
                           sizeof this);
    }
}

static void register_case(const struct kernel_case *this, const char *isa, const char *mode) {
    const struct way_facts *way = &way_facts[this->way];
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s/%s%s%s/%s/%s/tokens:%zu/channels:%zu", this->kernel->name, type_names[this->type],
             *way->name ? "-" : "", way->name, isa, mode, this->shape.tokens, this->shape.channels);
    benchmark_register(name, selection.threads > 1 || way->is_by_wall_clock ? BENCHMARK_WALL_TIME : BENCHMARK_CPU_TIME,
                       this->peer ? measure_peer : measure_kernel, this, sizeof *this);
}

static void register_kernels(const struct kernels *table, const struct measured_shape *at) {
    if (!lists(&selection.isas, table->isa))
        return;
    for (const struct listed_kernel *kernel = listed_kernels; kernel < listed_kernels + listed_kernel_count; kernel++)
        if (has_own_kernel(table, kernel) && is_selected(kernel) && is_in_set(kernel, table->isa, at)) {
            struct kernel_case this = {kernel, table->isa, NULL, DYNNORM_F32, WAY_CALL, at->shape};
            register_case(&this, table->isa, kernel->mode_name);
        }
}

/* Whether an ENGINE_ set has this case at the shape, and no other set has it. */
static int is_in_engines(const struct kernel_case *this, const struct measured_shape *at) {
    const struct way_facts *facts = &way_facts[this->way];
    unsigned types = facts->types;
    if (this->way == WAY_CALL && !(at->engines & ENGINE_TYPES))
        types = way_facts[WAY_I8_ROWS].types; /* what they are compared with */
    if (this->way == WAY_CALL && this->type == DYNNORM_F32 && is_in_set(this->kernel, this->isa, at))
        return 0;
    return at->engines & facts->sets && types & 1u << this->type && facts->directions & 1u << this->kernel->backward &&
           way_exists(this->way, this->kernel->operation) && (this->way != WAY_THREADS || executor_threads() > 1);
}

/* Cases that are compared with one another lie side by side. */
static void register_engine_calls(const struct isa *isa, const struct measured_shape *at) {
    if (!lists(&selection.isas, isa->kernels->isa))
        return;
    for (const struct listed_kernel *kernel = listed_kernels; kernel < listed_kernels + listed_kernel_count; kernel++)
        for (int way = 0; way < WAYS && engines_want(kernel, at); way++)
            for (int type = 0; type < TYPES; type++) {
                struct kernel_case this = {kernel,        isa->kernels->isa, NULL, (dynnorm_type)type,
                                           (enum way)way, at->shape};
                if (is_in_engines(&this, at) && engines_measure(at->engines & way_facts[way].sets, isa, at))
                    register_case(&this, isa->kernels->isa, kernel->mode_name);
            }
    /* The portable mode has all types already, and the sleef mode takes none of 16 bits any faster. */
    for (const struct listed_halves *one = listed_halves; one < listed_halves + listed_halves_count; one++)
        if (one->kernel.mode > DYNNORM_SLEEF && at->engines & ENGINE_TYPES && is_selected(&one->kernel) &&
            engines_measure(ENGINE_TYPES, isa, at)) {
            struct kernel_case this = {&one->kernel, isa->kernels->isa, NULL, one->type, WAY_CALL, at->shape};
            register_case(&this, isa->kernels->isa, one->kernel.mode_name);
        }
}

/* Whether a peer computes an operation with elements of 16 bits. Beside the types only these are measured. */
static int has_halves(const struct peer *peer, const struct listed_kernel *kernel) {
    return peer->computes(kernel->operation, kernel->backward, DYNNORM_BF16) ||
           peer->computes(kernel->operation, kernel->backward, DYNNORM_F16);
}

/* Peers are measured in one thread only. */
static void register_peers(const struct measured_shape *at) {
    const int has_types = (at->engines & ENGINE_TYPES) != 0;
    if (!lists(&selection.isas, "peer") || selection.threads > 1 || !(at->whole || has_types))
        return;
    for (const struct peer *const *peer = peers(); *peer; peer++)
        for (const struct listed_kernel *kernel = listed_kernels; kernel < listed_kernels + listed_kernel_count;
             kernel++)
            for (int type = 0; type < TYPES; type++) {
                struct kernel_case this = {kernel, NULL, *peer, (dynnorm_type)type, WAY_CALL, at->shape};
                const int in_set = at->in_set && at->whole && type == DYNNORM_F32;
                const int in_types = has_types && (*peer)->computes && has_halves(*peer, kernel);
                if ((in_set || in_types) && (*peer)->computes && kernel->mode == DYNNORM_PORTABLE &&
                    is_selected(kernel) && (*peer)->computes(kernel->operation, kernel->backward, (dynnorm_type)type))
                    register_case(&this, "peer", (*peer)->name);
            }
}

/* ---- What the report says of the build and the run --------------------------------------------------------------- */

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#if defined __clang__
#define COMPILER "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__)
#elif defined __GNUC__
#define COMPILER "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__) "." TEXT(__GNUC_PATCHLEVEL__)
#else
#define COMPILER "an unknown compiler"
#endif

static void add_context(void) {
    char text[2 * NAME_SIZE] = "";
    benchmark_add_context("dynnorm version", dynnorm_version());
    benchmark_add_context("compiler", COMPILER);
    benchmark_add_context("compiler flags", LIBRARY_FLAGS);
    for (const struct isa *isa = dynnorm_isa_list; isa < dynnorm_isa_list + dynnorm_isa_count; isa++) {
        if (!dynnorm_isa_is_reached_by_name(isa))
            continue;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? " " : "", isa->kernels->isa);
        if (!strcmp(isa->kernels->isa, "scalar"))
            benchmark_add_context(
                "scalar", isa->needs & CPU_FMA
                              ? "plain C, vectorization off, with the instruction for fused multiply-add"
                              : "plain C, vectorization off, fused multiply-add as the compiler's target has it");
    }
    benchmark_add_context("isas", text);
    snprintf(text, sizeof text, "%zu %zu %zu", dynnorm_cache_bytes(1), dynnorm_cache_bytes(2), dynnorm_cache_bytes(3));
    benchmark_add_context("caches, as the library assumes", text);
    snprintf(text, sizeof text, "%zu", selection.threads);
    benchmark_add_context("threads", text);
    snprintf(text, sizeof text, "%zu", executor_threads());
    if (selection.engines & ENGINE_EXECUTOR)
        benchmark_add_context("threads of the executor", text);
    snprintf(text, sizeof text, "%g", selection.peer_tolerance);
    benchmark_add_context("peer tolerance", text);
    for (int type = DYNNORM_BF16; type < TYPES && selection.engines & ENGINE_TYPES; type++) {
        char key[NAME_SIZE];
        snprintf(key, sizeof key, "peer tolerance, %s", type_names[type]);
        snprintf(text, sizeof text, "%g", selection.peer_tolerance + peer_roundings((dynnorm_type)type));
        benchmark_add_context(key, text);
    }
    for (const struct peer *const *peer = peers(); *peer; peer++) {
        char key[NAME_SIZE];
        snprintf(key, sizeof key, "peer, %s", (*peer)->name);
        snprintf(text, sizeof text, "%s: %s", (*peer)->computes ? "present" : "absent", (*peer)->description);
        benchmark_add_context(key, text);
    }
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

static int complain(const char *option, const char *word, const char *why) {
    fprintf(stderr, "dynnorm-bench: %s: '%s': %s\n", option, word, why);
    return 0;
}

/* Says which operations there are. */
static int complain_about_operation(const char *word) {
    char why[200 + 40 * OPERATIONS] = "there is no such operation. With or without _forward or _backward, there are:";
    for (int i = 0; i < OPERATIONS; i++)
        snprintf(why + strlen(why), sizeof why - strlen(why), "%s %.39s", i ? "," : "", dynnorm_operations[i].name);
    return complain("--op", word, why);
}

/* Whether this machine can measure the instruction sets, operations and shapes that were selected. */
static int check_selection(void) {
    for (size_t i = 0; i < selection.isas.count; i++) {
        const char *word = selection.isas.word[i];
        dynnorm_status status = strcmp(word, "peer") ? dynnorm_set_isa(word) : DYNNORM_OK;
        if (status)
            return complain("--isa", word, dynnorm_status_string(status));
    }
    for (size_t i = 0; i < selection.operations.count; i++) {
        const char *word = selection.operations.word[i];
        int known = 0;
        for (const struct listed_kernel *kernel = listed_kernels; kernel < listed_kernels + listed_kernel_count;
             kernel++)
            known |= !strcmp(word, kernel->operation_name) || !strcmp(word, kernel->name);
        if (!known)
            return complain_about_operation(word);
    }
    size_t memory = memory_bytes();
    for (size_t i = 0; i < selection.shape_words.count; i++)
        if (memory && 4 * tensor_bytes(selection.shapes[i]) > memory)
            return complain("--shape", selection.shape_words.word[i], "too large for this machine's memory");
    return 1;
}

int main(int argc, char **argv) {
    enum { USAGE = 2 };
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help"))
            printf("%s", selection_help);
    if (!select_by_arguments(&selection, &argc, argv) || !check_selection())
        return USAGE;
    if (!benchmark_initialize(&argc, argv))
        return USAGE;
    if (!pool_start(selection.threads)) {
        fprintf(stderr, "dynnorm-bench: cannot start %zu threads\n", selection.threads);
        return EXIT_FAILURE;
    }
    add_context();
    choose_shapes();
    for (const struct measured_shape *at = measured; at < measured + measured_count; at++) {
        const unsigned limited = at->engines & (ENGINE_TYPES | ENGINE_RESIDUAL | ENGINE_INT8);
        if (at->in_set || limited)
            register_limits(at->shape, DYNNORM_F32);
        if (limited)
            register_limits(at->shape, DYNNORM_BF16);
        for (const struct isa *isa = dynnorm_isa_list; isa < dynnorm_isa_list + dynnorm_isa_count; isa++)
            if (dynnorm_isa_is_reached_by_name(isa)) {
                register_kernels(isa->kernels, at);
                register_engine_calls(isa, at);
            }
        register_peers(at);
    }
    int found = benchmark_run() > 0;
    benchmark_shutdown();
    pool_stop();
    return found && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
