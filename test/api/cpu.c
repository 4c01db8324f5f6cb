/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Decodes the recorded CPUID registers of many CPUs with dynnorm_decode_x86.
 *
 * Leaf 1 ECX, leaf 7 EBX and, of subleaf 1, EAX are as read on the named CPU; XCR0 is what an operating system that
 * saves all of the CPU's vector state puts there. What CPUs say of their caches is decoded, too. Rows with a "but" in
 * their names change one register of the row above, the way an operating system or hypervisor does that saves less.
 */
#include "dispatch/cpu.h"
#include "tap.h"

#include <stddef.h>
#if defined __x86_64__
#include <cpuid.h>
#endif

enum {
    OSXSAVE = 1u << 27, /* of leaf 1 ECX: the operating system saves what XCR0 says */
    WITH_AVX512 = CPU_FMA | CPU_AVX2 | CPU_AVX512
};

static const struct {
    const char *name;
    struct x86_registers registers;
    unsigned expected;
} recorded[] = {
    {"no registers at all", {0, 0, 0, 0}, 0},
    {"Nehalem, Xeon E5520: no AVX", {0x009ce3bd, 0, 0, 0}, 0},
    {"Sandy Bridge, Core i7-2600K: AVX, no fused multiply-add", {0x1f9ae3bf, 0, 0, 0x7}, 0},
    {"Piledriver, FX-9590: AVX and fused multiply-add, no AVX2", {0x3e98320b, 0x00000008, 0, 0x7}, CPU_FMA},
    {"Piledriver, FX-9590, but no ymm state saved", {0x3e98320b, 0x00000008, 0, 0x3}, 0},
    {"Haswell, Core i7-4710MQ", {0x7fdafbbf, 0x000027ab, 0, 0x7}, CPU_FMA | CPU_AVX2},
    {"Haswell, Core i7-4710MQ, but no OSXSAVE", {0x7fdafbbf & ~OSXSAVE, 0x000027ab, 0, 0}, 0},
    {"Haswell, Core i7-4710MQ, but no OSXSAVE and a stale XCR0", {0x7fdafbbf & ~OSXSAVE, 0x000027ab, 0, 0x7}, 0},
    {"Haswell, Core i7-4710MQ, but only x87 and xmm state saved", {0x7fdafbbf, 0x000027ab, 0, 0x3}, 0},
    {"Haswell, Core i7-4710MQ, but ymm without xmm state saved", {0x7fdafbbf, 0x000027ab, 0, 0x5}, 0},
    {"Skylake-X, Core i7-7800X", {0x7ffefbbf, 0xd39ffffb, 0, 0xff}, WITH_AVX512},
    {"Skylake-X, Core i7-7800X, but no zmm state saved", {0x7ffefbbf, 0xd39ffffb, 0, 0x1f}, CPU_FMA | CPU_AVX2},
    {"Skylake-X, Core i7-7800X, but only mask registers saved", {0x7ffefbbf, 0xd39ffffb, 0, 0x3f}, CPU_FMA | CPU_AVX2},
    {"Skylake-X, Core i7-7800X, but no zmm16 to zmm31 saved", {0x7ffefbbf, 0xd39ffffb, 0, 0x7f}, CPU_FMA | CPU_AVX2},
    {"Skylake-X, Core i7-7800X, but no mask registers saved", {0x7ffefbbf, 0xd39ffffb, 0, 0xdf}, CPU_FMA | CPU_AVX2},
    {"Skylake-X, Core i7-7800X, but no ymm state saved", {0x7ffefbbf, 0xd39ffffb, 0, 0xfb}, 0},
    {"Skylake-X, Core i7-7800X, but no OSXSAVE", {0x7ffefbbf & ~OSXSAVE, 0xd39ffffb, 0, 0}, 0},
    {"Zen 4, Ryzen 9 7900X", {0x7ef8320b, 0xf1bf97a9, 0x20, 0x2e7}, WITH_AVX512 | CPU_BF16},
    {"Zen 4, Ryzen 9 7900X, but no bfloat16", {0x7ef8320b, 0xf1bf97a9, 0, 0x2e7}, WITH_AVX512},
    {"Zen 4, Ryzen 9 7900X, but no zmm state saved", {0x7ef8320b, 0xf1bf97a9, 0x20, 0x207}, CPU_FMA | CPU_AVX2},
    {"Knights Landing: AVX-512 F without BW, DQ and VL", {0x7ff8f3bf, 0x1c0d23ab, 0, 0xe7}, CPU_FMA | CPU_AVX2},
};

static const struct {
    const char *name;
    struct x86_signature signature;
    unsigned family;
} makers[] = {
    {"no registers at all", {0, 0}, 0},
    {"K6, a family of one digit", {0x68747541, 0x0000058c}, 5},
    {"Athlon 64, the last family without an extension", {0x68747541, 0x00000f48}, 15},
    {"Piledriver, FX-9590", {0x68747541, 0x00600f20}, 21},
    {"Zen 4, Ryzen 9 7900X", {0x68747541, 0x00a60f12}, 25},
    {"Zen 5, EPYC 9005", {0x68747541, 0x00b00f21}, 26},
    {"Skylake-X, Core i7-7800X: not of AMD", {0x756e6547, 0x00050654}, 0},
    {"Pentium 4: not of AMD", {0x756e6547, 0x00000f29}, 0},
};

/* Without any one of these bits, the features that build on it are gone. */
static const struct {
    const char *name;
    struct x86_registers absent;
    unsigned left;
} needed[] = {
    {"fused multiply-add", {1u << 12, 0, 0, 0}, 0},
    {"OSXSAVE", {OSXSAVE, 0, 0, 0}, 0},
    {"AVX", {1u << 28, 0, 0, 0}, 0},
    {"AVX2", {0, 1u << 5, 0, 0}, CPU_FMA},
    {"AVX-512 F", {0, 1u << 16, 0, 0}, CPU_FMA | CPU_AVX2},
    {"AVX-512 DQ", {0, 1u << 17, 0, 0}, CPU_FMA | CPU_AVX2},
    {"AVX-512 BW", {0, 1u << 30, 0, 0}, CPU_FMA | CPU_AVX2},
    {"AVX-512 VL", {0, 1u << 31, 0, 0}, CPU_FMA | CPU_AVX2},
    {"xmm state", {0, 0, 0, 1u << 1}, 0},
    {"ymm state", {0, 0, 0, 1u << 2}, 0},
    {"mask register state", {0, 0, 0, 1u << 5}, CPU_FMA | CPU_AVX2},
    {"zmm0 to zmm15 state", {0, 0, 0, 1u << 6}, CPU_FMA | CPU_AVX2},
    {"zmm16 to zmm31 state", {0, 0, 0, 1u << 7}, CPU_FMA | CPU_AVX2},
};

/* What leaf 4 and leaf 0x8000001d say of caches. */
struct recorded_caches {
    const char *name;
    int has_leaf4;
    int has_leaf1d;
    struct x86_cache_registers leaf4[4];
    struct x86_cache_registers leaf1d[4];
    struct cpu_caches expected;
};

/* Their formula is the same: ways, partitions, bytes of a line, sets. */
#define MADE_UP(type, level, ways, partitions, line, sets)                                                             \
    { (level) << 5 | (type), ((unsigned)(ways)-1) << 22 | ((partitions)-1) << 12 | ((line)-1), (sets)-1 }

static const struct recorded_caches recorded_caches[] = {
    {.name = "neither leaf", .has_leaf4 = 0},
    {.name = "no cache", .has_leaf4 = 1, .has_leaf1d = 1},
    {.name = "Zen 5, EPYC",
     .has_leaf4 = 1,
     .has_leaf1d = 1,
     .leaf1d = {{0x00000121, 0x02c0003f, 0x0000003f},
                {0x00000122, 0x01c0003f, 0x0000003f},
                {0x00000143, 0x03c0003f, 0x000003ff},
                {0x00004163, 0x03c0003f, 0x00007fff}},
     .expected = {48 << 10, 1 << 20, 32 << 20}},
    {.name = "made up: leaf 4 alone, instructions between the levels",
     .has_leaf4 = 1,
     .leaf4 = {MADE_UP(1, 1, 12, 1, 64, 64), MADE_UP(2, 2, 99, 1, 64, 64), MADE_UP(3, 2, 5, 3, 128, 7),
               MADE_UP(3, 3, 11, 1, 64, 2048)},
     .expected = {12 * 64 * 64, 5 * 3 * 128 * 7, 11 * 64 * 2048}},
    {.name = "made up: no third level, and nothing is read behind the last one",
     .has_leaf4 = 1,
     .leaf4 = {MADE_UP(1, 2, 16, 1, 64, 1024), {0, 0, 0}, MADE_UP(3, 3, 16, 1, 64, 1024)},
     .expected = {0, 1 << 20, 0}},
};

static const struct recorded_caches *read_from;

static int read_recorded(unsigned leaf, unsigned subleaf, struct x86_cache_registers *registers) {
    static const struct x86_cache_registers none = {0, 0, 0};
    const struct x86_cache_registers *of_leaf = leaf == 4 ? read_from->leaf4 : read_from->leaf1d;
    if (!(leaf == 4 ? read_from->has_leaf4 : leaf == 0x8000001d && read_from->has_leaf1d))
        return 0;
    *registers = subleaf < 4 ? of_leaf[subleaf] : none;
    return 1;
}

static void check_caches(const struct recorded_caches *recorded_here) {
    read_from = recorded_here;
    const struct cpu_caches got = dynnorm_find_x86_caches(read_recorded), expected = recorded_here->expected;
    tap_check(got.level1 == expected.level1 && got.level2 == expected.level2 && got.level3 == expected.level3,
              "%s: caches of %zu, %zu and %zu bytes, expected %zu, %zu and %zu", recorded_here->name, got.level1,
              got.level2, got.level3, expected.level1, expected.level2, expected.level3);
}

/* What the CPU and the system tell of caches, and what the library makes of it. */
static const struct told_caches {
    const char *name;
    struct cpu_caches of_cpu;
    long of_system[3];
    struct cpu_caches expected;
} told_caches[] = {
    {"Zen 5, EPYC, in a virtual machine that hides its caches",
     {0, 0, 0},
     {49152, 1048576, 532676608},
     {48 << 10, 1 << 20, 32 << 20}},
    {"nothing told", {0, 0, 0}, {0, -1, 0}, {32 << 10, 1 << 20, 32 << 20}},
    {"made up: all by the CPU", {1 << 14, 1 << 21, 1 << 28}, {49152, 1048576, 532676608}, {1 << 14, 1 << 21, 1 << 28}},
    {"made up: the third level by the system",
     {1 << 14, 1 << 21, 0},
     {49152, 1048576, 8 << 20},
     {1 << 14, 1 << 21, 8 << 20}},
    {"made up: a large second level", {0, 0, 0}, {1 << 16, 1 << 26, 32 << 20}, {1 << 16, 1 << 26, 32 << 20}},
};

static const struct told_caches *told_here;

static long tell(int level) {
    return told_here->of_system[level - 1];
}

static void check_told_caches(const struct told_caches *told) {
    told_here = told;
    const struct cpu_caches got = dynnorm_find_caches(told->of_cpu, tell), expected = told->expected;
    tap_check(got.level1 == expected.level1 && got.level2 == expected.level2 && got.level3 == expected.level3,
              "%s: caches of %zu, %zu and %zu bytes, expected %zu, %zu and %zu", told->name, got.level1, got.level2,
              got.level3, expected.level1, expected.level2, expected.level3);
}

static void check(const char *name, struct x86_registers registers, unsigned expected) {
    unsigned got = dynnorm_decode_x86(registers);
    tap_check(got == expected, "%s: leaf 1 ECX %08x, leaf 7 EBX %08x and EAX %x, XCR0 %x: got features %x, expected %x",
              name, (unsigned)registers.leaf1_ecx, (unsigned)registers.leaf7_ebx, (unsigned)registers.leaf7_eax,
              (unsigned)registers.xcr0, got, expected);
}

/* What the CPU itself says. */
static unsigned family_here(void) {
    struct x86_signature signature = {0, 0};
#if defined __x86_64__
    unsigned eax, ebx, ecx, edx;
    __cpuid(0, eax, ebx, ecx, edx);
    signature.leaf0_ebx = ebx;
    __cpuid(1, eax, ebx, ecx, edx);
    signature.leaf1_eax = eax;
#endif
    return dynnorm_amd_family(signature);
}

int main(void) {
    for (size_t i = 0; i < sizeof recorded_caches / sizeof *recorded_caches; i++)
        check_caches(&recorded_caches[i]);
    for (size_t i = 0; i < sizeof told_caches / sizeof *told_caches; i++)
        check_told_caches(&told_caches[i]);
    for (int level = 1; level <= 3; level++)
        tap_check(dynnorm_cache_bytes(level) >= 1 << 12 && dynnorm_cache_bytes(level) < (size_t)1 << 40,
                  "this machine's cache of level %d: %zu bytes", level, dynnorm_cache_bytes(level));
    tap_check(dynnorm_cache_bytes(1) <= dynnorm_cache_bytes(2), "the first level is no larger than the second");
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++)
        check(recorded[i].name, recorded[i].registers, recorded[i].expected);

    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        const unsigned family = dynnorm_amd_family(makers[i].signature);
        tap_check(family == makers[i].family, "%s: AMD's family %u, expected %u", makers[i].name, family,
                  makers[i].family);
    }
    const unsigned family = family_here();
    for (int i = 0; i < 2; i++)
        tap_check(dynnorm_cpu_amd_family() == family, "this machine: AMD's family %u, expected %u",
                  dynnorm_cpu_amd_family(), family);

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        struct x86_registers skylake = {0x7ffefbbf, 0xd39ffffb, 0, 0xff};
        struct x86_registers registers = {skylake.leaf1_ecx & ~needed[i].absent.leaf1_ecx,
                                          skylake.leaf7_ebx & ~needed[i].absent.leaf7_ebx, 0,
                                          skylake.xcr0 & ~needed[i].absent.xcr0};
        char name[80];
        snprintf(name, sizeof name, "Skylake-X without %s", needed[i].name);
        check(name, registers, needed[i].left);
    }

    unsigned here = dynnorm_cpu_features();
    tap_check(here == dynnorm_cpu_features(), "this machine: features %x, twice the same", here);
#if defined __aarch64__
    tap_check(here == CPU_NEON, "AArch64 always has NEON, and nothing of x86");
#else
    tap_check(!(here & CPU_NEON), "no NEON outside AArch64");
#endif
    tap_check(!(here & CPU_AVX2) || here & CPU_FMA, "AVX2 is reported only beside fused multiply-add");
    tap_check(!(here & CPU_BF16) || here & CPU_AVX512, "bfloat16 is reported only beside AVX-512");
    for (int i = 0; i < 2; i++)
        tap_check(dynnorm_cpu_has_bf16() == !!(here & CPU_BF16), "this machine: bfloat16, as the features have it");
    tap_check(!(here & CPU_AVX512) || here & CPU_AVX2, "AVX-512 is reported only beside AVX2");
    return tap_done();
}
