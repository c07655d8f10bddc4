/* SPDX-License-Identifier: Apache-2.0
 * cpu.c - detects the instruction set level of the CPU and applies PROA_ISA; counts the CPUs that may be used. */
#include "base/cpu.h"

#include "base/checked.h"
#include "base/compiler.h"
#include "base/limits.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>

/* Read by cpuid: clang 14's builtin does not know these two names. */
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

/* Tiles for int8 and bf16. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 25 & 1) && (d >> 22 & 1);
}

/* The parts of the state that the system saves: tiles are bits 17 and 18. */
static bool saves_tiles(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a >> 17 & 3) == 3;
}

/* Tiles add 8 KB of state to each thread, so Linux grants them on request, once for all threads. */
static bool amx_allowed(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
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

static proa_isa detect_isa(void)
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
    if (!has_avx512_bf16()) return PROA_ISA_VNNI;
    return has_amx() && saves_tiles() && amx_allowed() ? PROA_ISA_AMX : PROA_ISA_BF16;
#else
    return PROA_ISA_GENERIC;
#endif
}

static proa_isa detected;

static void detect_once(void)
{
    detected = detect_isa();
}

proa_isa proa_isa_detect(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect_once);
    return detected;
}

proa_isa proa_isa_choose(void)
{
    static bool warned;
    proa_isa have = proa_isa_detect();
    const char *want = getenv("PROA_ISA");
    if (!want || !*want) return have;
    for (int i = 0; i <= (int)have; i++)
        if (strcmp(want, names[i]) == 0) return (proa_isa)i;
    if (!warned)
        fprintf(stderr, "proa: PROA_ISA=%s is not a level of this CPU, using %s\n", want, names[have]);
    warned = true;
    return have;
}

bool proa_cpu_bf16_dot_pays(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return proa_isa_choose() == PROA_ISA_AMX || (__builtin_cpu_is("amd") && proa_isa_detect() == PROA_ISA_BF16);
#else
    return false;
#endif
}

bool proa_cpu_prefers_one_stream(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") && proa_isa_detect() >= PROA_ISA_AVX512;
#else
    return false;
#endif
}

/* ---- caches ---- */

/* The first line of ROOT/cpuN/cache/indexM/NAME; false if there is none. */
static bool read_cache_line(char *line, size_t size, const char *root, int cpu, int index, const char *name)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/cpu%d/cache/index%d/%s", root, cpu, index, name);
    FILE *file = fopen(path, "re");
    bool ok = file && fgets(line, (int)size, file);
    if (file) fclose(file);
    return ok;
}

/* The index of the CPU's cache of the highest level; -1: none is listed. */
static int find_last_level(const char *root, int cpu)
{
    char line[256];
    int last = -1;
    for (long i = 0, level, highest = 0; read_cache_line(line, sizeof line, root, cpu, (int)i, "level"); i++)
        if ((level = strtol(line, NULL, 10)) > highest) last = (int)i, highest = level;
    return last;
}

/* Whether a list such as "0-7,16-23" has an allowed CPU before this one. */
static bool has_cpu_before(const char *list, int cpu, const cpu_set_t *allowed)
{
    for (const char *at = list;; at++) {
        char *end;
        long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (end == at || first < 0) return false;
        for (long other = first; other <= last && other < cpu; other++)
            if (CPU_ISSET((size_t)other, allowed)) return true;
        if (*end != ',') return false;
        at = end;
    }
}

/* The size of the CPU's last-level cache, if the CPU is the first of the allowed ones that share it; otherwise 0. */
static int64_t own_cache_bytes(const char *root, int cpu, const cpu_set_t *allowed)
{
    char line[256], *unit;
    int index = find_last_level(root, cpu);
    if (index < 0 || !read_cache_line(line, sizeof line, root, cpu, index, "shared_cpu_list")) return 0;
    if (has_cpu_before(line, cpu, allowed)) return 0;
    if (!read_cache_line(line, sizeof line, root, cpu, index, "size")) return 0;
    int64_t size = strtoll(line, &unit, 10);
    if (size < 0 || size > (int64_t)1 << 20) return 0;
    return size << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : 0);
}

int64_t proa_cpu_cache_bytes_of(const char *root, const cpu_set_t *allowed)
{
    int64_t bytes = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, allowed)) bytes += own_cache_bytes(root, cpu, allowed);
    return bytes;
}

int64_t proa_cpu_cache_bytes(void)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    int64_t bytes = proa_cpu_cache_bytes_of("/sys/devices/system/cpu", &allowed);
    if (bytes > 0) return bytes;
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (l3 <= 0) l3 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return l3 > 0 ? l3 : 0;
}

/* ---- how many CPUs ---- */

/* Reads up to two integers from the start of a file; returns how many there are. "max" in cpu.max counts as
 * none. */
static int read_numbers(const char *folder, const char *name, long long out[2])
{
    char path[PROA_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = n < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!f) return 0;
    n = fscanf(f, "%lld %lld", &out[0], &out[1]);
    fclose(f);
    return n;
}

int proa_cpu_quota(const char *folder)
{
    long long v[2] = {0, 0}, period[2] = {0, 0};
    if (read_numbers(folder, "cpu.max", v) != 2) { /* quota and period in microseconds */
        if (read_numbers(folder, "cpu/cpu.cfs_quota_us", v) < 1) return 0;
        if (read_numbers(folder, "cpu/cpu.cfs_period_us", period) < 1) return 0;
        v[1] = period[0];
    }
    if (v[0] < 1 || v[1] < 1) return 0; /* -1: no limit */
    return (int)proa_min64(PROA_THREADS_MAX, proa_ceil_div(v[0], v[1]));
}

/* With more threads than the quota allows, the threads would use it up while they wait for each other, and
 * all would then be throttled until the end of the period. */
int proa_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set), quota = proa_cpu_quota("/sys/fs/cgroup");
    if (quota > 0 && quota < n) n = quota;
    return n < 1 ? 1 : n > PROA_THREADS_MAX ? PROA_THREADS_MAX : n;
}
