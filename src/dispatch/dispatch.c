/* SPDX-License-Identifier: BSD-2-Clause */
#include "dispatch/dispatch.h"
#include "dispatch/cpu.h"
#include "inlining.h"

#include <stdlib.h>
#include <string.h>

/* ---- The tables of this build, which defines DYNNORM_HAVE_ for each table that there is. ---- */

extern const struct kernels dynnorm_scalar_kernels;
#ifdef DYNNORM_HAVE_SCALAR_FMA
extern const struct kernels dynnorm_scalar_fma_kernels;
#endif
#ifdef DYNNORM_HAVE_AVX2
extern const struct kernels dynnorm_avx2_kernels;
#endif
#ifdef DYNNORM_HAVE_AVX512
extern const struct kernels dynnorm_avx512_kernels;
#endif
#ifdef DYNNORM_HAVE_NEON
extern const struct kernels dynnorm_neon_kernels;
#endif

const struct isa dynnorm_isa_list[] = {
#ifdef DYNNORM_HAVE_AVX512
    {"avx512", CPU_AVX512, &dynnorm_avx512_kernels},
#endif
#ifdef DYNNORM_HAVE_AVX2
    {"avx2", CPU_AVX2, &dynnorm_avx2_kernels},
#endif
#ifdef DYNNORM_HAVE_NEON
    {"neon", CPU_NEON, &dynnorm_neon_kernels},
#endif
#ifdef DYNNORM_HAVE_SCALAR_FMA
    {"scalar_fma", CPU_FMA, &dynnorm_scalar_fma_kernels},
#endif
    {"scalar", 0, &dynnorm_scalar_kernels},
};
const size_t dynnorm_isa_count = sizeof dynnorm_isa_list / sizeof *dynnorm_isa_list;

/* The public names of all instruction sets, whether they were compiled in or not. */
static const char *const known_names[] = {"scalar", "avx2", "avx512", "neon"};

static int runs(const struct isa *isa, unsigned features) {
    return (isa->needs & ~features) == 0 && !isa->kernels->changes_results();
}

int dynnorm_isa_runs_here(const struct isa *isa) {
    return runs(isa, dynnorm_cpu_features());
}

/* ---- The choice. All state is one pointer to an immutable table, which is NULL before first use, and four pointers
   out of that table. ---- */

static _Atomic(const struct kernels *) active;

struct rows_in_use dynnorm_rows_in_use = {dynnorm_layernorm_any, dynnorm_rmsnorm_any, dynnorm_dyt_any,
                                          dynnorm_dyisru_any};

/* An operation that is left out has no kernel. Then the call for any arguments says so. */
#define COPY_ROW(operation)                                                                                            \
    atomic_store(&dynnorm_rows_in_use.operation,                                                                       \
                 kernels->operation##_row ? kernels->operation##_row : dynnorm_##operation##_any)

/* Threads may race here, with different tables. Whoever copies last has then seen that its table is still in use. */
static void copy_rows_in_use(void) {
    const struct kernels *kernels;
    do {
        kernels = atomic_load(&active);
        COPY_ROW(layernorm);
        COPY_ROW(rmsnorm);
        COPY_ROW(dyt);
        COPY_ROW(dyisru);
    } while (atomic_load(&active) != kernels);
}

void dynnorm_use_kernels(const struct kernels *kernels) {
    atomic_store(&active, kernels);
    copy_rows_in_use();
}

/* The best table that runs here and has this public name, or any name if name is NULL. NULL if there is none. */
static const struct kernels *find_kernels(const char *name) {
    unsigned features = dynnorm_cpu_features();
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (runs(isa, features) && (!name || strcmp(name, isa->kernels->isa) == 0))
            return isa->kernels;
    }
    return NULL;
}

int dynnorm_isa_is_reached_by_name(const struct isa *isa) {
    return find_kernels(isa->kernels->isa) == isa->kernels;
}

/* What is in use if there is no table that gives the right bits: calls return DYNNORM_ERROR_LEFT_OUT. */
static const struct kernels no_kernels = {.isa = "none"};

static const struct kernels *best_kernels(void) {
    const struct kernels *kernels = find_kernels(NULL);
    return kernels ? kernels : &no_kernels;
}

static const struct kernels *first_choice(void) {
    const char *name = getenv("DYNNORM_ISA");
    const struct kernels *kernels = name ? find_kernels(name) : NULL;
    return kernels ? kernels : best_kernels();
}

/* Threads that race here make the same choice. If dynnorm_set_isa came in between, its choice stays. */
RARE const struct kernels *choose_first(void) {
    const struct kernels *in_use = NULL, *choice = first_choice();
    if (atomic_compare_exchange_strong(&active, &in_use, choice))
        in_use = choice;
    copy_rows_in_use();
    return in_use;
}

const struct kernels *dynnorm_active_kernels(void) {
    const struct kernels *kernels = atomic_load_explicit(&active, memory_order_acquire);
    return kernels ? kernels : choose_first();
}

FOR_SIZE dynnorm_status dynnorm_set_isa(const char *name) {
    const struct kernels *kernels = name ? find_kernels(name) : best_kernels();
    if (kernels) {
        dynnorm_use_kernels(kernels);
        return DYNNORM_OK;
    }
    for (size_t i = 0; i < sizeof known_names / sizeof *known_names; i++)
        if (strcmp(name, known_names[i]) == 0)
            return DYNNORM_ERROR_ISA_UNAVAILABLE;
    return DYNNORM_ERROR_ISA_UNKNOWN;
}

const char *dynnorm_isa(void) {
    return dynnorm_active_kernels()->isa;
}

FOR_SIZE size_t dynnorm_isas(const char **names, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < dynnorm_isa_count; i++) {
        const struct isa *isa = &dynnorm_isa_list[i];
        if (!dynnorm_isa_is_reached_by_name(isa))
            continue;
        if (names && count < capacity)
            names[count] = isa->kernels->isa;
        count++;
    }
    return count;
}

/* ---- The kernels of a table ---- */

forward_kernel *dynnorm_forward_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode) {
    if (mode == DYNNORM_SLEEF && !kernels->forward[DYNNORM_DYT][DYNNORM_SLEEF])
        return NULL;
    forward_kernel *kernel = kernels->forward[operation][mode];
    return kernel ? kernel : kernels->forward[operation][DYNNORM_PORTABLE];
}

halves_kernel *dynnorm_halves_kernel(const struct kernels *kernels, dynnorm_operation operation, dynnorm_mode mode) {
    const int has_own = kernels->forward[operation][mode] || kernels->halves[operation][mode];
    return kernels->halves[operation][has_own ? mode : DYNNORM_PORTABLE];
}

backward_kernel *dynnorm_backward_kernel(const struct kernels *kernels, dynnorm_operation operation,
                                         dynnorm_mode mode) {
    if (mode == DYNNORM_SLEEF && !kernels->backward[DYNNORM_DYT][DYNNORM_SLEEF])
        return NULL;
    backward_kernel *kernel = kernels->backward[operation][mode];
    return kernel ? kernel : kernels->backward[operation][DYNNORM_PORTABLE];
}
