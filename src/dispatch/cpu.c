/* SPDX-License-Identifier: BSD-2-Clause */
#define _DEFAULT_SOURCE /* sysconf's names of caches */
#include "dispatch/cpu.h"
#include "inlining.h"

#include <errno.h>
#include <stdatomic.h>
#if !defined _WIN32
#include <unistd.h>
#endif

unsigned dynnorm_decode_x86(struct x86_registers registers) {
    enum { FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28, F16C = 1u << 29 };          /* leaf 1, ecx */
    enum { AVX2 = 1u << 5, AVX512F = 1u << 16, AVX512DQ = 1u << 17, AVX512BW = 1u << 30 }; /* leaf 7, ebx */
    const uint32_t avx512vl = UINT32_C(1) << 31;                                           /* leaf 7, ebx */
    const uint64_t xmm_ymm = 0x06, opmask_zmm = 0xe0;                                      /* xcr0 */

    const uint32_t avx_needs = FMA | OSXSAVE | AVX;
    const uint32_t avx512_needs = AVX512F | AVX512DQ | AVX512BW | avx512vl;

    unsigned features = 0;
    if ((registers.leaf1_ecx & avx_needs) == avx_needs && (registers.xcr0 & xmm_ymm) == xmm_ymm) {
        features |= CPU_FMA;
        if (registers.leaf7_ebx & AVX2 && registers.leaf1_ecx & F16C) {
            features |= CPU_AVX2;
            if ((registers.leaf7_ebx & avx512_needs) == avx512_needs && (registers.xcr0 & opmask_zmm) == opmask_zmm)
                features |= CPU_AVX512;
        }
    }
    return features;
}

/* Intel's manual has the formula with leaf 4, AMD's with leaf 0x8000001d. */
size_t dynnorm_decode_x86_cache(struct x86_cache_registers registers, int level) {
    enum { OF_DATA = 1, OF_ALL = 3 };
    const uint32_t type = registers.eax & 31, its_level = registers.eax >> 5 & 7;
    const size_t ways = (registers.ebx >> 22) + 1, partitions = (registers.ebx >> 12 & 1023) + 1,
                 line = (registers.ebx & 4095) + 1, sets = (size_t)registers.ecx + 1;
    return (type == OF_DATA || type == OF_ALL) && its_level == (uint32_t)level ? ways * partitions * line * sets : 0;
}

#if defined __x86_64__

#include <cpuid.h>

/* What the CPU itself says. glibc's sysconf adds up the last-level caches of all cores of an AMD CPU. */
static size_t cache_bytes_of_cpu(int level) {
    static const unsigned leaves[] = {4, 0x8000001d};
    for (int i = 0; i < 2; i++)
        for (unsigned subleaf = 0; subleaf < 8; subleaf++) {
            struct x86_cache_registers registers;
            unsigned edx;
            if (!__get_cpuid_count(leaves[i], subleaf, &registers.eax, &registers.ebx, &registers.ecx, &edx))
                break;
            const size_t bytes = dynnorm_decode_x86_cache(registers, level);
            if (bytes)
                return bytes;
        }
    return 0;
}

unsigned dynnorm_cpu_features(void) {
    struct x86_registers registers = {0, 0, 0};
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        registers.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        registers.leaf7_ebx = ebx;
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
static size_t cache_bytes_of_cpu(int level) {
    (void)level;
    return 0;
}
#endif

/* Takes microseconds. */
RARE size_t ask_cache_bytes(int level) {
    size_t bytes = cache_bytes_of_cpu(level);
    if (bytes)
        return bytes;
    bytes = (size_t)1 << (level == 2 ? 20 : 25);
#ifdef _SC_LEVEL2_CACHE_SIZE
    int saved_errno = errno;
    long size = sysconf(level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE);
    errno = saved_errno;
    if (size > 0)
        bytes = (size_t)size;
#endif
    return bytes;
}

size_t dynnorm_cache_bytes(int level) {
    static atomic_size_t known[2];
    atomic_size_t *const of_level = &known[level - 2];
    size_t bytes = atomic_load_explicit(of_level, memory_order_relaxed);
    if (!bytes) {
        bytes = ask_cache_bytes(level);
        atomic_store_explicit(of_level, bytes, memory_order_relaxed);
    }
    return bytes;
}
