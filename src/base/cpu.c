/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include "base/compiler.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>

/* Asked for by number, since clang 14's builtin does not know these two names. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

static bool has_avx512_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
#endif

static const char *const names[PROA_ISA_COUNT] = {
#define ROW(name, text) text,
    PROA_ISA_LIST(ROW)
#undef ROW
};

const char *proa_isa_name(proa_isa isa)
{
    PROA_ASSERT((unsigned)isa < PROA_ISA_COUNT);
    return names[isa];
}

proa_isa proa_isa_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2") && has_f16c();
    if (!v3) return PROA_ISA_GENERIC;
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    if (!v4) return PROA_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512vnni")) return PROA_ISA_AVX512;
    return has_avx512_bf16() ? PROA_ISA_BF16 : PROA_ISA_VNNI;
#else
    return PROA_ISA_GENERIC;
#endif
}

proa_isa proa_isa_choose(void)
{
    static bool said;
    proa_isa have = proa_isa_detect();
    const char *want = getenv("PROA_ISA");
    if (!want || !*want) return have;
    for (int i = 0; i <= (int)have; i++)
        if (strcmp(want, names[i]) == 0) return (proa_isa)i;
    if (!said) fprintf(stderr, "proa: PROA_ISA=%s is not a level of this CPU, using %s\n", want, names[have]);
    said = true;
    return have;
}

bool proa_cpu_bf16_dot_pays(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") && proa_isa_detect() == PROA_ISA_BF16;
#else
    return false;
#endif
}
