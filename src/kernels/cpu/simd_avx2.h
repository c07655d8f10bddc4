/* SPDX-License-Identifier: Apache-2.0
 * simd_avx2.h - the vector of 8 floats that vec_*.h and attend_page.h are written in; see simd_avx512.h, which has
 * the same names with 16 and says what each one does. Sums over lanes fold halves: 4, 2, 1. */
#ifndef PROA_KERNELS_CPU_SIMD_AVX2_H
#define PROA_KERNELS_CPU_SIMD_AVX2_H

#include "base/compiler.h"
#include "kernels/cpu/vmath_avx2.h"
#include "tensor/dtype.h"
#include <immintrin.h>

/* Loops over registers must be unrolled, or the arrays of vf would live in memory. */
#define V_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 16")
#endif
#define V_WIDTH 8
/* Accumulators of V_WIDTH floats that fit the 16 registers beside what feeds them. */
#define V_TILE  8

typedef __m256 vf;
typedef __m256 vm; /* all bits of a lane set or none */

static inline vf v_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vf v_set1(float f)
{
    return _mm256_set1_ps(f);
}

static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline void v_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

static inline vm v_within(int base, int begin, int end)
{
    __m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
    __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), i);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), i)));
}

static inline vm v_first(int64_t n)
{
    return v_within(0, 0, (int)n);
}

static inline vf v_load_n(const float *p, int64_t n)
{
    return n >= V_WIDTH ? v_load(p) : _mm256_maskload_ps(p, _mm256_castps_si256(v_first(n)));
}

/* A masked store is microcode on AMD's cores, some twenty cycles: whole vectors go without. */
static inline void v_store_n(float *p, vf v, int64_t n)
{
    if (n >= V_WIDTH) v_store(p, v);
    else _mm256_maskstore_ps(p, _mm256_castps_si256(v_first(n)), v);
}

static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

static inline vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

static inline vm v_gt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

static inline vf v_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}

static inline unsigned v_bits(vm m)
{
    return (unsigned)_mm256_movemask_ps(m);
}

static inline float v_sum(vf v)
{
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

static inline float v_hmax(vf v)
{
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline vf v_sum_each(const vf a[V_WIDTH])
{
    vf b[4], c[2];
    for (int i = 0; i < 4; i++)
        b[i] = v_add(_mm256_blend_ps(a[i], a[i + 4], 0xf0), _mm256_permute2f128_ps(a[i], a[i + 4], 0x21));
    for (int i = 0; i < 2; i++) {
        __m256d far = _mm256_shuffle_pd(_mm256_castps_pd(b[i]), _mm256_castps_pd(b[i + 2]), 0x5);
        c[i] = v_add(_mm256_blend_ps(b[i], b[i + 2], 0xcc), _mm256_castpd_ps(far));
    }
    vf swapped = _mm256_permute_ps(_mm256_blend_ps(c[0], c[1], 0x55), 0xb1);
    return v_add(_mm256_blend_ps(c[0], c[1], 0xaa), swapped);
}

static inline vf v_exp(vf x)
{
    return proa_exp_ps256(x);
}

static inline vf v_tanh(vf x)
{
    return proa_tanh_ps256(x);
}

static inline vf v_soft_plus(vf x)
{
    return proa_soft_plus_ps256(x);
}

static inline vf v_exp_weight(vf x)
{
    vf r, n = proa_reduce_256(_mm256_max_ps(v_set1(-87.0f), x), &r);
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    vf e = v_mul(v_add(proa_expm1_small_256(r), v_set1(1.0f)), _mm256_castsi256_ps(power));
    return _mm256_and_ps(e, _mm256_cmp_ps(x, v_set1(-87.0f), _CMP_NLT_UQ));
}

static inline vf v_act(proa_act act, vf x)
{
    return proa_act_ps256(act, x);
}

/* ---- f16 and bf16 ---- */

static inline vf v_from_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline __m128i v_to_bf16(vf v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    r = _mm256_blendv_epi8(r, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}

static inline vf v_load_as(const void *p, proa_dtype dtype, int64_t i)
{
    if (dtype == PROA_DTYPE_F32) return v_load((const float *)p + i);
    __m128i h = _mm_loadu_si128((const __m128i_u *)((const char *)p + 2 * i));
    return dtype == PROA_DTYPE_BF16 ? v_from_bf16(h) : _mm256_cvtph_ps(h);
}

/* AVX2 masks no 16-bit loads or stores: the tail goes through memory. */
static inline vf v_load_as_n(const void *p, proa_dtype dtype, int64_t i, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) return v_load_n((const float *)p + i, n);
    uint16_t tail[V_WIDTH] = {0};
    memcpy(tail, (const char *)p + 2 * i, (size_t)n * 2);
    return v_load_as(tail, dtype, 0);
}

static inline void v_store_as_n(void *p, proa_dtype dtype, int64_t i, vf v, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) {
        v_store_n((float *)p + i, v, n);
        return;
    }
    uint16_t tail[V_WIDTH];
    _mm_storeu_si128((__m128i_u *)tail,
                     dtype == PROA_DTYPE_BF16 ? v_to_bf16(v) : _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    memcpy((char *)p + 2 * i, tail, (size_t)n * 2);
}

static inline vf v_twice_low(vf v)
{
    return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

static inline vf v_swap_pairs(vf v)
{
    return _mm256_permute_ps(v, 0xb1);
}

static inline vf v_negate_even(vf v)
{
    return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000)));
}

#endif
