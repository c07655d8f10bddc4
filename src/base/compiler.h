/* SPDX-License-Identifier: Apache-2.0
 * compiler.h - every extension to C17 that the code uses, each behind one macro. */
#ifndef PROA_BASE_COMPILER_H
#define PROA_BASE_COMPILER_H

#include <stdio.h>
#include <stdlib.h>

#define PROA_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define PROA_MUST_CHECK              __attribute__((warn_unused_result))
#define PROA_COLD                    __attribute__((cold))
#define PROA_ALIGNED(n)              __attribute__((aligned(n)))
/* For kernels written once with sizes that are constants only after inlining. */
#define PROA_ALWAYS_INLINE           inline __attribute__((always_inline))
#define PROA_NO_INLINE               __attribute__((noinline))
#define PROA_LIKELY(x)               __builtin_expect(!!(x), 1)
#define PROA_UNLIKELY(x)             __builtin_expect(!!(x), 0)
#define PROA_POPCOUNT32(x)           __builtin_popcount(x)
#define PROA_LOWEST_BIT32(x)         __builtin_ctz(x) /* x is not 0 */
#define PROA_POPCOUNT64(x)           __builtin_popcountll(x)
#define PROA_LOWEST_BIT64(x)         __builtin_ctzll(x) /* x is not 0 */
#ifdef __cplusplus
#define PROA_RESTRICT __restrict__
#else
#define PROA_RESTRICT restrict
#endif
/* Tells the CPU that the thread spins. */
#if defined(__x86_64__)
#define PROA_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PROA_PAUSE() __asm__ volatile("yield")
#else
#define PROA_PAUSE() ((void)0)
#endif
/* For functions of headers that nvcc compiles for the host and for the GPU. */
#ifdef __CUDACC__
#define PROA_HOST_DEVICE __host__ __device__
#else
#define PROA_HOST_DEVICE
#endif
#define PROA_UNUSED(x)    ((void)(x))
#define PROA_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PROA_CAT_(a, b)   a##b
#define PROA_CAT(a, b)    PROA_CAT_(a, b)
#define PROA_STR_(a)      #a
#define PROA_STR(a)       PROA_STR_(a)

/* 1 under the address sanitiser, which must see each use of memory that is about to be reused. */
#if defined(__SANITIZE_ADDRESS__)
#define PROA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PROA_ASAN 1
#endif
#endif
#ifndef PROA_ASAN
#define PROA_ASAN 0
#endif

/* 1 under a sanitiser that makes code many times slower. */
#if PROA_ASAN || defined(__SANITIZE_THREAD__)
#define PROA_SANITIZED 1
#else
#define PROA_SANITIZED 0
#endif

/* Before a loop: unroll it (completely, if its count is a constant up to 16). */
#if defined(__clang__)
#define PROA_UNROLL _Pragma("unroll")
#else
#define PROA_UNROLL _Pragma("GCC unroll 16")
#endif

/* A programmer's error: says where and stops. On in release too, except inside kernels' loops (PROA_DASSERT). */
#define PROA_ASSERT(cond)                                                                                    \
    do {                                                                                                     \
        if (PROA_UNLIKELY(!(cond))) {                                                                        \
            fprintf(stderr, "proa: %s:%d: assertion failed: %s\n", __FILE__, __LINE__, #cond);               \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)
#ifdef NDEBUG
#define PROA_DASSERT(cond) ((void)0)
#else
#define PROA_DASSERT(cond) PROA_ASSERT(cond)
#endif

/* Sets of more than 64 bits. */
__extension__ typedef unsigned __int128 proa_uint128;

#endif
