/* SPDX-License-Identifier: BSD-2-Clause */
#include "each_kernel.h"
#include "dispatch/cpu.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

const struct listed_kernel listed_kernels[] = {
#define FORWARD(operation, mode, driver)                                                                               \
    {#operation "_forward_" #mode, #mode, FORWARD_PASS, (dynnorm_operation)operation_##operation,                      \
     (dynnorm_mode)mode_##mode},
#define BACKWARD(operation, mode, driver)                                                                              \
    {#operation "_backward_" #mode, #mode, BACKWARD_PASS, (dynnorm_operation)operation_##operation,                    \
     (dynnorm_mode)mode_##mode},
#include "kernels.def"
};
const size_t listed_kernel_count = sizeof listed_kernels / sizeof *listed_kernels;

int kernel_available(const struct isa *isa, const struct listed_kernel *kernel) {
    return kernel->direction == FORWARD_PASS
               ? dynnorm_forward_kernel(isa->kernels, kernel->operation, kernel->mode) != NULL
               : dynnorm_backward_kernel(isa->kernels, kernel->operation, kernel->mode) != NULL;
}

#ifdef DYNNORM_TEST_WRAP

/* The linker's --wrap=FUNCTION sends the library's calls of that function to __wrap_FUNCTION, and gives the function
 * itself the name __real_FUNCTION. */
size_t __wrap_dynnorm_cache_bytes(int level);
size_t __real_dynnorm_cache_bytes(int level);

static size_t pretended_level1 = SIZE_MAX, pretended_level2 = SIZE_MAX, pretended_level3 = SIZE_MAX;

size_t __wrap_dynnorm_cache_bytes(int level) {
    const size_t pretended = level == 1 ? pretended_level1 : level == 2 ? pretended_level2 : pretended_level3;
    return pretended == SIZE_MAX ? __real_dynnorm_cache_bytes(level) : pretended;
}

unsigned __wrap_dynnorm_cpu_amd_family(void);
unsigned __real_dynnorm_cpu_amd_family(void);

static int pretended_family = REAL_FAMILY;

unsigned __wrap_dynnorm_cpu_amd_family(void) {
    return pretended_family == REAL_FAMILY ? __real_dynnorm_cpu_amd_family() : (unsigned)pretended_family;
}

int pretend_amd_family(int family) {
    pretended_family = family;
    return 1;
}

int pretend_level1_cache(size_t bytes) {
    pretended_level1 = bytes;
    return 1;
}

int pretend_caches(size_t level2, size_t level3) {
    pretended_level2 = level2;
    pretended_level3 = level3;
    return 1;
}

int pretend_level2_cache(size_t bytes) {
    return pretend_caches(bytes, bytes);
}

#else

int pretend_caches(size_t level2, size_t level3) {
    (void)level2, (void)level3;
    return 0;
}

int pretend_amd_family(int family) {
    (void)family;
    return 0;
}

int pretend_level1_cache(size_t bytes) {
    (void)bytes;
    return 0;
}

int pretend_level2_cache(size_t bytes) {
    (void)bytes;
    return 0;
}

#endif

int use_table(const struct isa *isa) {
    if (!isa)
        return dynnorm_set_isa(NULL) == DYNNORM_OK;
    if (!dynnorm_isa_runs_here(isa))
        return 0;
    dynnorm_use_kernels(isa->kernels);
    return 1;
}

int table_is_wanted(const struct isa *isa) {
    const char *wanted = getenv("DYNNORM_TEST_TABLE");
    return !wanted || !strcmp(wanted, isa->identifier);
}

int thinned(void) {
    const char *thin = getenv("DYNNORM_TEST_THIN");
    return thin && strcmp(thin, "0") != 0;
}

int thinned_for(const struct isa *isa) {
    return thinned() || !dynnorm_isa_is_reached_by_name(isa);
}

const char *why_kernel_is_unavailable(const struct isa *isa, const struct listed_kernel *kernel) {
    if (!use_table(isa))
        return TABLE_IS_UNAVAILABLE;
    if (kernel_available(isa, kernel))
        return NULL;
    if (kernel->mode != DYNNORM_SLEEF)
        return "this table runs the portable kernel instead";
#if defined(DYNNORM_HAVE_SLEEF) && (defined(__x86_64__) || defined(__i386__))
    if (isa->needs == 0)
        return "SLEEF's deterministic functions need hardware fused multiply-add, which this table does without";
#endif
    return "the library was built without SLEEF";
}
