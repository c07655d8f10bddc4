/* SPDX-License-Identifier: Apache-2.0
 * peak_vnni.c - peak of vpdpbusd. */
#include "kernels/cpu/peak_loops.h"

#include "base/compiler.h"
#include <immintrin.h>

double proa_rate_loop_i8_vnni(int64_t rounds)
{
    __m512i sums[PROA_RATE_CHAINS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-1);
    for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_set1_epi32(i);
    for (int64_t r = 0; r < rounds; r++) {
        PROA_UNROLL
        for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
    }
    for (int i = 1; i < PROA_RATE_CHAINS; i++) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
    return (double)_mm_cvtsi128_si32(_mm512_castsi512_si128(sums[0]));
}
