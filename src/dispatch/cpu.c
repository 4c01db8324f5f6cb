/* SPDX-License-Identifier: BSD-2-Clause */
#define _DEFAULT_SOURCE /* sysconf's names of caches */
#include "dispatch/cpu.h"
#include "inlining.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#if !defined _WIN32
#include <unistd.h>
#endif

unsigned dynnorm_decode_x86(struct x86_registers registers) {
    enum { FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28, F16C = 1u << 29 };          /* leaf 1, ecx */
    enum { AVX2 = 1u << 5, AVX512F = 1u << 16, AVX512DQ = 1u << 17, AVX512BW = 1u << 30 }; /* leaf 7, ebx */
    const uint32_t avx512vl = UINT32_C(1) << 31;                                           /* leaf 7, ebx */
    const uint32_t avx512_bf16 = 1u << 5;                                                  /* leaf 7, eax */
    const uint64_t xmm_ymm = 0x06, opmask_zmm = 0xe0;                                      /* xcr0 */

    const uint32_t avx_needs = FMA | OSXSAVE | AVX;
    const uint32_t avx512_needs = AVX512F | AVX512DQ | AVX512BW | avx512vl;

    unsigned features = 0;
    if ((registers.leaf1_ecx & avx_needs) == avx_needs && (registers.xcr0 & xmm_ymm) == xmm_ymm) {
        features |= CPU_FMA;
        if (registers.leaf7_ebx & AVX2 && registers.leaf1_ecx & F16C) {
            features |= CPU_AVX2;
            if ((registers.leaf7_ebx & avx512_needs) == avx512_needs && (registers.xcr0 & opmask_zmm) == opmask_zmm)
                features |= CPU_AVX512 | (registers.leaf7_eax & avx512_bf16 ? CPU_BF16 : 0);
        }
    }
    return features;
}

unsigned dynnorm_amd_family(struct x86_signature signature) {
    enum { AUTHENTIC_AMD = 0x68747541, EXTENDED = 15 }; /* the maker begins with "Auth" */
    const unsigned family = signature.leaf1_eax >> 8 & 15;
    if (signature.leaf0_ebx != AUTHENTIC_AMD)
        return 0;
    return family == EXTENDED ? family + (signature.leaf1_eax >> 20 & 255) : family;
}

/* Intel's manual has the formula with leaf 4, AMD's with leaf 0x8000001d. */
static size_t bytes_of_x86_cache(struct x86_cache_registers registers) {
    const size_t ways = (registers.ebx >> 22) + 1, partitions = (registers.ebx >> 12 & 1023) + 1,
                 line = (registers.ebx & 4095) + 1, sets = (size_t)registers.ecx + 1;
    return ways * partitions * line * sets;
}

FOR_SIZE struct cpu_caches dynnorm_find_x86_caches(read_x86_cache *read) {
    enum { NO_MORE = 0, OF_DATA = 1, OF_ALL = 3, MOST = 16 };
    static const unsigned leaves[] = {4, 0x8000001d};
    struct cpu_caches found = {0, 0, 0};
    for (int i = 0; i < 2 && !found.level2; i++)
        for (unsigned subleaf = 0; subleaf < MOST; subleaf++) {
            struct x86_cache_registers registers;
            if (!read(leaves[i], subleaf, &registers) || (registers.eax & 31) == NO_MORE)
                break;
            const uint32_t type = registers.eax & 31, level = registers.eax >> 5 & 7;
            if (type != OF_DATA && type != OF_ALL)
                continue;
            if (level == 1)
                found.level1 = bytes_of_x86_cache(registers);
            else if (level == 2)
                found.level2 = bytes_of_x86_cache(registers);
            else if (level == 3)
                found.level3 = bytes_of_x86_cache(registers);
        }
    return found;
}

#if defined __x86_64__

#include <cpuid.h>

static int read_this_cache(unsigned leaf, unsigned subleaf, struct x86_cache_registers *registers) {
    unsigned edx;
    if (subleaf == 0 && (unsigned)__get_cpuid_max(leaf & 0x80000000, NULL) < leaf)
        return 0;
    __cpuid_count(leaf, subleaf, registers->eax, registers->ebx, registers->ecx, edx);
    return 1;
}

/* What the CPU itself says, if a virtual machine does not hide it. */
static struct cpu_caches caches_of_cpu(void) {
    return dynnorm_find_x86_caches(read_this_cache);
}

static struct x86_signature read_signature(void) {
    struct x86_signature signature = {0, 0};
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx))
        signature.leaf0_ebx = ebx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        signature.leaf1_eax = eax;
    return signature;
}

FOR_SIZE unsigned dynnorm_cpu_features(void) {
    struct x86_registers registers = {0, 0, 0, 0};
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        registers.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        registers.leaf7_ebx = ebx;
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
        registers.leaf7_eax = eax;
    if (registers.leaf1_ecx & (1u << 27)) { /* OSXSAVE: xgetbv exists */
        uint32_t low, high;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        registers.xcr0 = (uint64_t)high << 32 | low;
    }
    return dynnorm_decode_x86(registers);
}

#elif defined __aarch64__

unsigned dynnorm_cpu_features(void) {
    return CPU_NEON; /* part of the architecture */
}

#else

unsigned dynnorm_cpu_features(void) {
    return 0;
}

#endif

#ifndef __x86_64__
static struct cpu_caches caches_of_cpu(void) {
    return (struct cpu_caches){0, 0, 0};
}

static struct x86_signature read_signature(void) {
    return (struct x86_signature){0, 0};
}
#endif

typedef unsigned ask_cpu(void);

/* The answer is kept: on a virtual machine each question to the CPU takes microseconds. */
static unsigned ask_once(atomic_uint *known, ask_cpu *ask) {
    const unsigned is_known = 1u << 31;
    unsigned answer = atomic_load_explicit(known, memory_order_relaxed);
    if (!answer) {
        answer = is_known | ask();
        atomic_store_explicit(known, answer, memory_order_relaxed);
    }
    return answer & ~is_known;
}

static unsigned ask_for_amd_family(void) {
    return dynnorm_amd_family(read_signature());
}

FOR_SIZE unsigned dynnorm_cpu_amd_family(void) {
    static atomic_uint known;
    return ask_once(&known, ask_for_amd_family);
}

FOR_SIZE int dynnorm_cpu_has_bf16(void) {
    static atomic_uint known;
    return (ask_once(&known, dynnorm_cpu_features) & CPU_BF16) != 0;
}

static size_t believed_cache(int level, long told) {
    static const size_t guesses[] = {1 << 15, 1 << 20, 1 << 25};
    const size_t guess = guesses[level - 1];
    return told <= 0 || (level == 3 && (size_t)told > guess) ? guess : (size_t)told;
}

struct cpu_caches dynnorm_find_caches(struct cpu_caches of_cpu, ask_for_cache *ask) {
    size_t *const levels[] = {&of_cpu.level1, &of_cpu.level2, &of_cpu.level3};
    for (int level = 1; level <= 3; level++)
        if (!*levels[level - 1])
            *levels[level - 1] = believed_cache(level, ask(level));
    return of_cpu;
}

static long ask_system(int level) {
    long told = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    int saved_errno = errno;
    told = sysconf(names[level - 1]);
    errno = saved_errno;
#endif
    return told;
}

/* Here, too, its answers are kept. */
RARE struct cpu_caches ask_for_caches(void) {
    return dynnorm_find_caches(caches_of_cpu(), ask_system);
}

size_t dynnorm_cache_bytes(int level) {
    static atomic_size_t known[3];
    size_t bytes = atomic_load_explicit(&known[level - 1], memory_order_relaxed);
    if (!bytes) {
        const struct cpu_caches caches = ask_for_caches();
        const size_t sizes[] = {caches.level1, caches.level2, caches.level3};
        for (int i = 0; i < 3; i++)
            atomic_store_explicit(&known[i], sizes[i], memory_order_relaxed);
        bytes = sizes[level - 1];
    }
    return bytes;
}
