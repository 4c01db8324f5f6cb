/* SPDX-License-Identifier: BSD-2-Clause */
#include "each_kernel.h"
#include "dispatch/cpu.h"

#include <stdint.h>
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
const struct kernels *__wrap_dynnorm_active_kernels(void);
const struct kernels *__real_dynnorm_active_kernels(void);

static const struct kernels *table_in_use;

const struct kernels *__wrap_dynnorm_active_kernels(void) {
    return table_in_use ? table_in_use : __real_dynnorm_active_kernels();
}

int use_table(const struct isa *isa) {
    if (isa && !dynnorm_isa_runs_here(isa))
        return 0;
    table_in_use = isa ? isa->kernels : NULL;
    return 1;
}

size_t __wrap_dynnorm_level2_cache_bytes(void);
size_t __real_dynnorm_level2_cache_bytes(void);

static size_t pretended_cache = SIZE_MAX;

size_t __wrap_dynnorm_level2_cache_bytes(void) {
    return pretended_cache == SIZE_MAX ? __real_dynnorm_level2_cache_bytes() : pretended_cache;
}

int pretend_level2_cache(size_t bytes) {
    pretended_cache = bytes;
    return 1;
}

#else

int pretend_level2_cache(size_t bytes) {
    (void)bytes;
    return 0;
}

int use_table(const struct isa *isa) {
    if (!isa)
        return dynnorm_set_isa(NULL) == DYNNORM_OK;
    if (!dynnorm_isa_runs_here(isa))
        return 0;
    for (const struct isa *other = dynnorm_isa_list; other < isa; other++)
        if (!strcmp(other->kernels->isa, isa->kernels->isa) && dynnorm_isa_runs_here(other))
            return 0;
    return dynnorm_set_isa(isa->kernels->isa) == DYNNORM_OK && dynnorm_active_kernels() == isa->kernels;
}

#endif

const char *why_table_is_unavailable(const struct isa *isa) {
    return dynnorm_isa_runs_here(isa) ? "dynnorm_set_isa reaches another table of this name"
                                      : "this machine cannot run it";
}

const char *why_kernel_is_unavailable(const struct isa *isa, const struct listed_kernel *kernel) {
    if (!use_table(isa))
        return why_table_is_unavailable(isa);
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
