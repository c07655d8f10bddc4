/* SPDX-License-Identifier: Apache-2.0
 * peak_bf16.c - peak of vdpbf16ps. */
#include "kernels/cpu/peak_loops.h"

#include "base/compiler.h"
#include <immintrin.h>

double proa_rate_loop_bf16_bf16(int64_t rounds)
{
    __m512 sums[PROA_RATE_CHAINS];
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3c00);
    for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
        PROA_UNROLL
        for (int i = 0; i < PROA_RATE_CHAINS; i++) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
    }
    for (int i = 1; i < PROA_RATE_CHAINS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return (double)_mm512_cvtss_f32(sums[0]);
}
