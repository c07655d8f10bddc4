/* SPDX-License-Identifier: Apache-2.0
 * linear_avx512.c - linear for AVX-512 without VNNI: tiles of 12 rows by 2 vectors of 16. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/overlay.h"
#include "kernels/cpu/vmath_avx512.h"

#include "kernels/cpu/linear_width512.h" /* after vmath, which undefines the same names */

#include <math.h>

#define PART(n)                ((__mmask16)((1u << (n)) - 1u))
#define PART_LOAD(p, n)        _mm512_maskz_loadu_ps(PART(n), p)
#define PART_STORE(p, n, v)    _mm512_mask_storeu_ps(p, PART(n), v)
#define PART_STORE_I8(p, n, q) _mm512_mask_cvtepi32_storeu_epi8(p, PART(n), q)
#define ANY_ABOVE(a, b)        (_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0)
#define ACT(act, v)            proa_act_ps512(act, v)
#define DOT_I8(acc, x, w)      dot_i8(acc, x, w)
#define DOT_BF16(acc, x, w)    dot_bf16_widened(acc, x, w)

/* Four products of int8 a lane without VNNI: |x| as uint8 times w with the sign of x. A pair is at most
 * 2 * 127 * 127 < 2^15, so nothing saturates. */
static PROA_ALWAYS_INLINE __m512i dot_i8(__m512i acc, __m512i x, __m512i w)
{
    __m512i same = _mm512_mask_sub_epi8(w, _mm512_movepi8_mask(x), _mm512_setzero_si512(), w);
    __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(x), same);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

#include "kernels/cpu/linear_tile.h"

#include "kernels/cpu/linear_rows.h"

DEFINE_TILE(tile_f32, PROA_WFMT_F32)
DEFINE_TILE(tile_bf16, PROA_WFMT_BF16)
DEFINE_TILE(tile_f16, PROA_WFMT_F16)
DEFINE_TILE(tile_bf16dot, PROA_WFMT_BF16DOT)
DEFINE_TILE(tile_i8, PROA_WFMT_I8)

/* Pairs of a step are at most 2 * 15 * 127, so eight steps fit into int16. */
#define DOT_Q4(acc, w, x)    _mm512_add_epi16(acc, _mm512_maddubs_epi16(w, x))
#define WIDEN_Q4(acc)        _mm512_madd_epi16(acc, _mm512_set1_epi16(1))
#define DOT_TABLE(acc, w, x) dot_i8(acc, x, w)
#define TABLE_OFFSET         0
#define TABLE_OF(p)          _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define DOT_Q8(acc, w, x)    dot_i8(acc, x, _mm512_xor_si512(w, _mm512_set1_epi8(-128)))

#include "kernels/cpu/linear_groups.h"

DEFINE_GROUPS_TILE(tile_q8_0, PROA_WFMT_Q8_0)
DEFINE_GROUPS_TILE(tile_q4_0, PROA_WFMT_Q4_0)
DEFINE_GROUPS_TILE(tile_q4_1, PROA_WFMT_Q4_1)
DEFINE_GROUPS_TILE(tile_mxfp4, PROA_WFMT_MXFP4)
DEFINE_GROUPS_TILE(tile_iq4_nl, PROA_WFMT_IQ4_NL)

static void quantise_values(int8_t *out, float *scale, const float *x, int64_t K)
{
    quantise_row(out, scale, x, K, 0);
}

void proa_quantise_biased_avx512(int8_t *out, float *scale, const float *x, int64_t K)
{
    quantise_row(out, scale, x, K, 128);
}

const proa_linear_isa proa_linear_avx512 = {
    .rows_max = ROWS_MAX,
    .rows_skinny = PROA_SKINNY_MAX,
    .panels_of = {0, 4, 2, 2, 2, 2, 2},
    .tile = {[PROA_WFMT_F32] = tile_f32,
             [PROA_WFMT_BF16] = tile_bf16,
             [PROA_WFMT_F16] = tile_f16,
             [PROA_WFMT_BF16DOT] = tile_bf16dot,
             [PROA_WFMT_I8] = tile_i8,
             [PROA_WFMT_Q8_0] = tile_q8_0,
             [PROA_WFMT_Q4_0] = tile_q4_0,
             [PROA_WFMT_Q4_1] = tile_q4_1,
             [PROA_WFMT_MXFP4] = tile_mxfp4,
             [PROA_WFMT_IQ4_NL] = tile_iq4_nl},
    .finish = finish_tile,
    .quantise = quantise_values,
    .round = round_row,
    .quantise_groups = quantise_groups,
};

static void linear_avx512(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    proa_linear_run(c, y, x, w, e, &proa_linear_avx512);
}

static void experts_avx512(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                           const proa_experts *e)
{
    proa_experts_run(c, y, x, weights, ids, e, &proa_linear_avx512, &proa_linear_avx512);
}

void proa_overlay_linear_avx512(proa_ops *ops)
{
    ops->linear = linear_avx512;
    ops->experts = experts_avx512;
    ops->pack = proa_panels_pack;
    ops->pack_bytes = proa_panels_pack_bytes;
}
