/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What this CPU and its operating system can run.
 */
#ifndef DYNNORM_CPU_H
#define DYNNORM_CPU_H

#include <stddef.h>
#include <stdint.h>

enum {
    CPU_FMA = 1u << 0,    /* fused multiply-add, and the AVX state that its encoding needs */
    CPU_AVX2 = 1u << 1,   /* AVX2 and FMA */
    CPU_AVX512 = 1u << 2, /* AVX-512 F, BW, DQ, VL, and all of AVX2 */
    CPU_NEON = 1u << 3,
    CPU_BF16 = 1u << 4 /* AVX-512 with the instructions for bfloat16 */
};

/* The registers of an x86 CPU that say what it can run. Leaves that the CPU does not have, and xcr0 without OSXSAVE,
 * are 0. */
struct x86_registers {
    uint32_t leaf1_ecx;
    uint32_t leaf7_ebx; /* subleaf 0 */
    uint32_t leaf7_eax; /* subleaf 1 */
    uint64_t xcr0;
};

/* Translates the registers to CPU_ bits. It looks at nothing else, so that tests can pass the registers of other CPUs.
 */
unsigned dynnorm_decode_x86(struct x86_registers registers);

/* What cpuid says of the maker, in ebx of leaf 0, and of the model, in eax of leaf 1. */
struct x86_signature {
    uint32_t leaf0_ebx;
    uint32_t leaf1_eax;
};

/* The family of an AMD CPU, such as 25 of Zen 3 and Zen 4. 0: the CPU is of another maker. */
enum { FAMILY_OF_ZEN_4 = 25, FAMILY_OF_ZEN_5 = 26 };
unsigned dynnorm_amd_family(struct x86_signature signature);

/* What cpuid says of a cache: in a subleaf of leaf 4 or, on AMD's CPUs, of leaf 0x8000001d. */
struct x86_cache_registers {
    uint32_t eax;
    uint32_t ebx;
    uint32_t ecx;
};

/* Reads a subleaf. Gives 0 where the CPU does not have the leaf. */
typedef int read_x86_cache(unsigned leaf, unsigned subleaf, struct x86_cache_registers *registers);

/* The bytes of the caches of each level, for data, 0 for one that the CPU does not tell of. */
struct cpu_caches {
    size_t level1;
    size_t level2;
    size_t level3;
};
struct cpu_caches dynnorm_find_x86_caches(read_x86_cache *read);

/* What the system tells of the data cache of a level: its bytes, or 0 or less if it does not know. */
typedef long ask_for_cache(int level);

/* Adds what the CPU does not tell: the system is asked, and what it does not know is guessed. Of a third level no more
 * than 32 MB are believed, since the system may tell the sum of all of an AMD CPU's: glibc's sysconf told 508 MB on a
 * Zen 5 that has 32 for each core, in a virtual machine that hides leaves 4 and 0x8000001d. */
struct cpu_caches dynnorm_find_caches(struct cpu_caches of_cpu, ask_for_cache *ask);

/* The CPU_ bits of this machine. */
unsigned dynnorm_cpu_features(void);

/* The family of this machine's CPU, if it is an AMD CPU, or 0. */
unsigned dynnorm_cpu_amd_family(void);

/* A Zen 5, or what AMD made later. */
static inline int dynnorm_is_zen_5(void) {
    return dynnorm_cpu_amd_family() >= FAMILY_OF_ZEN_5;
}

/* Whether a subnormal product takes much time, as on Intel's CPUs: see rows/subnormals.h. */
static inline int dynnorm_subnormals_are_slow(void) {
    return dynnorm_cpu_amd_family() == 0;
}

/* Whether it has the instructions for bfloat16. */
int dynnorm_cpu_has_bf16(void);

/* The bytes of a core's cache of the first level, for data, or of the second, or of that of the third level which it
 * shares with the cores beside it, as dynnorm_find_caches has them. */
size_t dynnorm_cache_bytes(int level);

#endif
