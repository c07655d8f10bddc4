/* SPDX-License-Identifier: Apache-2.0
 * peak_avx2.c - peak of f32 multiply-adds with AVX2. */
#include "kernels/cpu/peak_loops.h"

#include "base/compiler.h"
#include <immintrin.h>

uint64_t proa_read_loop_avx2(const char *p, int64_t bytes)
{
    __m256i sums[8];
    for (int i = 0; i < 8; i++) sums[i] = _mm256_setzero_si256();
    for (int64_t at = 0; at < bytes; at += 256) {
        PROA_UNROLL
        for (int i = 0; i < 8; i++)
            sums[i] = _mm256_add_epi64(sums[i],
                                       _mm256_loadu_si256((const __m256i *)(const void *)(p + at + 32 * i)));
    }
    uint64_t parts[4], total = 0;
    for (int i = 1; i < 8; i++) sums[0] = _mm256_add_epi64(sums[0], sums[i]);
    _mm256_storeu_si256((__m256i *)(void *)parts, sums[0]);
    for (int i = 0; i < 4; i++) total += parts[i];
    return total;
}

double proa_rate_loop_f32_avx2(int64_t rounds)
{
    __m256 sums[PROA_RATE_CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
    for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm256_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        PROA_UNROLL
        for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
    }
    for (int i = 1; i < PROA_RATE_CHAINS; i++) sums[0] = _mm256_add_ps(sums[0], sums[i]);
    return (double)_mm256_cvtss_f32(sums[0]);
}
