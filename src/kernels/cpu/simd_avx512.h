/* SPDX-License-Identifier: Apache-2.0
 * simd_avx512.h - the vector of 16 floats that vec_*.h and attend_page.h are written in. simd_avx2.h has the same
 * names with 8. Include one of them, in a file that is compiled for that level.
 * Every sum over lanes has one tree: halves are folded (8, 4, 2, 1), so v_sum and v_sum_each agree bit for bit. */
#ifndef PROA_KERNELS_CPU_SIMD_AVX512_H
#define PROA_KERNELS_CPU_SIMD_AVX512_H

#include "base/compiler.h"
#include "kernels/cpu/vmath_avx512.h"
#include "tensor/dtype.h"
#include <immintrin.h>

/* Loops over registers must be unrolled, or the arrays of vf would live in memory. */
#define V_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 16")
#endif
#define V_WIDTH 16
/* Accumulators of V_WIDTH floats that fit the 32 registers beside what feeds them. */
#define V_TILE  16

typedef __m512 vf;
typedef __mmask16 vm; /* one bit a lane */

static inline vf v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vf v_set1(float f)
{
    return _mm512_set1_ps(f);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}

/* The first n lanes, 0 <= n <= V_WIDTH. */
static inline vm v_first(int64_t n)
{
    return (vm)((1u << n) - 1);
}

/* n elements and zeros; nothing beyond them is read. */
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}

static inline void v_store_n(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), v);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

/* The nearest integer, of two the even one. */
static inline vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* a b + c, rounded once. */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a b, rounded once. */
static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* b where a is NaN. */
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

/* Ordered: false for NaN. */
static inline vm v_gt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

static inline vf v_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

static inline unsigned v_bits(vm m)
{
    return m;
}

/* Lanes i with begin <= base + i < end. */
static inline vm v_within(int base, int begin, int end)
{
    __m512i i = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                 _mm512_set1_epi32(base));
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmpge_epi32_mask(i, _mm512_set1_epi32(begin)), i,
                                        _mm512_set1_epi32(end));
}

static inline float v_sum(vf v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

static inline float v_hmax(vf v)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* Lane i of the result is v_sum(a[i]). Each step folds two vectors into one: one blend keeps their near halves,
 * one shuffle brings their far halves, one add; the blend does not need the shuffle port. */
static inline vf v_sum_each(const vf a[V_WIDTH])
{
    const __m512i quarter = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    const __m512i single = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    vf b[8], c[4], d[2];
    for (int i = 0; i < 8; i++)
        b[i] = v_add(_mm512_mask_blend_ps(0xff00, a[i], a[i + 8]), _mm512_shuffle_f32x4(a[i], a[i + 8], 0x4e));
    for (int i = 0; i < 4; i++)
        c[i] = v_add(_mm512_mask_blend_ps(0xf0f0, b[i], b[i + 4]),
                     _mm512_permutex2var_ps(b[i], quarter, b[i + 4]));
    for (int i = 0; i < 2; i++) {
        __m512d far = _mm512_shuffle_pd(_mm512_castps_pd(c[i]), _mm512_castps_pd(c[i + 2]), 0x55);
        d[i] = v_add(_mm512_mask_blend_ps(0xcccc, c[i], c[i + 2]), _mm512_castpd_ps(far));
    }
    return v_add(_mm512_mask_blend_ps(0xaaaa, d[0], d[1]), _mm512_permutex2var_ps(d[0], single, d[1]));
}

static inline vf v_exp(vf x)
{
    return proa_exp_ps512(x);
}

static inline vf v_tanh(vf x)
{
    return proa_tanh_ps512(x);
}

static inline vf v_soft_plus(vf x)
{
    return proa_soft_plus_ps512(x);
}

/* exp(x) for x <= 0, with 0 below -87: there results would be denormal, which multiplications make slowly. Attention
 * meets that in every masked lane, and next to its largest weight of 1 the difference is 0. NaN gives NaN. */
static inline vf v_exp_weight(vf x)
{
    vf r, n = proa_reduce_512(_mm512_max_ps(v_set1(-87.0f), x), &r);
    vf e = _mm512_scalef_ps(v_add(proa_expm1_small_512(r), v_set1(1.0f)), n);
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, v_set1(-87.0f), _CMP_NLT_UQ), e);
}

static inline vf v_act(proa_act act, vf x)
{
    return proa_act_ps512(act, x);
}

/* ---- f16 and bf16: widening is exact, narrowing rounds to nearest, ties to even ---- */

static inline vf v_from_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline __m256i v_to_bf16(vf v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet));
}

/* Elements [i, i + V_WIDTH) of an array of any of the three dtypes, which is a constant where this is used. */
static inline vf v_load_as(const void *p, proa_dtype dtype, int64_t i)
{
    if (dtype == PROA_DTYPE_F32) return v_load((const float *)p + i);
    __m256i h = _mm256_loadu_si256((const __m256i_u *)((const char *)p + 2 * i));
    return dtype == PROA_DTYPE_BF16 ? v_from_bf16(h) : _mm512_cvtph_ps(h);
}

static inline vf v_load_as_n(const void *p, proa_dtype dtype, int64_t i, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) return v_load_n((const float *)p + i, n);
    __m256i h = _mm256_maskz_loadu_epi16(v_first(n), (const char *)p + 2 * i);
    return dtype == PROA_DTYPE_BF16 ? v_from_bf16(h) : _mm512_cvtph_ps(h);
}

static inline void v_store_as_n(void *p, proa_dtype dtype, int64_t i, vf v, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) {
        v_store_n((float *)p + i, v, n);
        return;
    }
    __m256i h = dtype == PROA_DTYPE_BF16 ? v_to_bf16(v) : _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16((char *)p + 2 * i, v_first(n), h);
}

/* (a0 b0, a0 b0, ...): each of the low or high V_WIDTH/2 lanes twice; the pairs' neighbours swapped. */
static inline vf v_twice_low(vf v)
{
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), v);
}

static inline vf v_swap_pairs(vf v)
{
    return _mm512_permute_ps(v, 0xb1);
}

/* -v in even lanes, v in odd ones. */
static inline vf v_negate_even(vf v)
{
    return _mm512_xor_ps(v, _mm512_castsi512_ps(_mm512_set1_epi64(0x80000000)));
}

#endif
