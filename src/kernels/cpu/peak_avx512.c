/* SPDX-License-Identifier: Apache-2.0
 * peak_avx512.c - peak of f32 multiply-adds with AVX-512. */
#include "kernels/cpu/peak_loops.h"

#include "base/compiler.h"
#include <immintrin.h>

uint64_t proa_read_loop_avx512(const char *p, int64_t bytes)
{
    __m512i sums[8];
    for (int i = 0; i < 8; i++) sums[i] = _mm512_setzero_si512();
    for (int64_t at = 0; at < bytes; at += 512) {
        PROA_UNROLL
        for (int i = 0; i < 8; i++) sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(p + at + 64 * i));
    }
    for (int i = 1; i < 8; i++) sums[0] = _mm512_add_epi64(sums[0], sums[i]);
    /* not _mm512_reduce_add_epi64: gcc's adds the lanes as signed numbers, and these wrap */
    uint64_t parts[8], total = 0;
    _mm512_storeu_si512(parts, sums[0]);
    for (int i = 0; i < 8; i++) total += parts[i];
    return total;
}

double proa_rate_loop_f32_avx512(int64_t rounds)
{
    __m512 sums[PROA_RATE_CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
    for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        PROA_UNROLL
        for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
    }
    for (int i = 1; i < PROA_RATE_CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return (double)_mm512_cvtss_f32(sums[0]);
}
