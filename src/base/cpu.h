/* SPDX-License-Identifier: Apache-2.0
 * cpu.h - the instruction set level, caches and CPUs of this machine, and how many of them this process may use.
 * Threads: any; what is detected is detected once. */
#ifndef PROA_BASE_CPU_H
#define PROA_BASE_CPU_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Levels in increasing order: each includes all before it on the CPUs that have it. */
#define PROA_ISA_LIST(X)                                                                                     \
    X(GENERIC, "generic")                                                                                    \
    X(AVX2, "avx2")        /* x86-64-v3: AVX2, FMA, F16C, BMI2 */                                            \
    X(AVX512, "avx512")    /* x86-64-v4: AVX-512 F, BW, CD, DQ, VL */                                        \
    X(VNNI, "avx512_vnni") /* and AVX-512 VNNI: int8 dot products */                                         \
    X(BF16, "avx512_bf16") /* and AVX-512 BF16: bf16 dot products */                                         \
    X(AMX, "amx")          /* and AMX: tiles of int8 and of bf16, allowed by the kernel */

typedef enum proa_isa {
#define PROA_ISA_ENUM(name, text) PROA_ISA_##name,
    PROA_ISA_LIST(PROA_ISA_ENUM)
#undef PROA_ISA_ENUM
        PROA_ISA_COUNT
} proa_isa;

const char *proa_isa_name(proa_isa isa);
/* The highest level that this CPU has. Detected once; for AMX the kernel must give permission. */
proa_isa proa_isa_detect(void);
/* The level to use: the detected one, or a lower one named by the environment variable PROA_ISA. If that
 * name is unknown or above the CPU, one warning goes to standard error and the detected level is used. */
proa_isa proa_isa_choose(void);

/* Whether a bf16 dot product does more work per cycle than an f32 multiply-add: true on AMD since Zen 4 and
 * for AMX tiles; Intel's AVX-512 units do half as much (measured: 90 GFLOP/s a core against 190). */
bool proa_cpu_bf16_dot_pays(void);

/* Whether a core reads memory fastest as one stream of addresses without prefetch instructions: true on AMD since
 * Zen 4 (measured: 34 GB/s a core, 28 with four streams); Intel's cores want several streams and instructions. */
bool proa_cpu_prefers_one_stream(void);

/* Bytes of the last-level caches of the CPUs that this process may use, each counted once; 0: unknown. The kernel's
 * list says which CPUs share one. cpuid, which sysconf reads, is right for a machine but not for a part of it: a
 * virtual machine with 2 CPUs of one complex (32 MB) gets the 320 MB of all complexes. */
int64_t proa_cpu_cache_bytes(void);
/* The same from a folder of the form of /sys/devices/system/cpu, for CPUs of the set. */
int64_t proa_cpu_cache_bytes_of(const char *root, const cpu_set_t *allowed);

/* CPUs that this process may use: those of the affinity mask, or fewer where its container has a smaller CPU
 * quota (docker run --cpus 2). 1..PROA_THREADS_MAX. */
int proa_cpu_count(void);
/* The CPU quota of the control group whose files are in this folder, in CPUs, rounded up: cpu.max of version 2, or
 * cpu/cpu.cfs_quota_us of version 1. 0: no limit, or no readable file. */
int proa_cpu_quota(const char *folder);

#endif
