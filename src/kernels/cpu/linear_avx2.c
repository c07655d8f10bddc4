/* SPDX-License-Identifier: Apache-2.0
 * linear_avx2.c - linear for AVX2 with FMA and F16C: tiles of 6 rows by 2 vectors of 8. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/overlay.h"
#include "kernels/cpu/vmath_avx2.h"

#include <math.h>

#define V                      __m256
#define VI                     __m256i
#define OP(name)               _mm256_##name
#define AND_INT(a, b)          _mm256_and_si256(a, b)
#define TO_V(i)                _mm256_castsi256_ps(i)
#define TO_I(v)                _mm256_castps_si256(v)
#define LANES                  8
#define HALVES                 2
#define ROWS_MAX               6
#define PREFETCH_FEW           2048 /* bytes ahead, see README.md */
#define PREFETCH_TALL          4096
#define PART_LOAD(p, n)        load_part(p, n)
#define PART_STORE(p, n, v)    store_part(p, n, v)
#define F16(p)                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define PART_STORE_I8(p, n, q) store_i8(p, n, q)
#define ANY_ABOVE(a, b)        (_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0)
#define ACT(act, v)            proa_act_ps256(act, v)
#define DOT_I8(acc, x, w)      dot_i8(acc, x, w)
#define DOT_BF16(acc, x, w)    dot_bf16_widened(acc, x, w)

static PROA_ALWAYS_INLINE __m256i part_mask(int64_t n)
{
    static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(lanes + 8 - n));
}

static PROA_ALWAYS_INLINE __m256 load_part(const float *p, int64_t n)
{
    return n >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, part_mask(n));
}

/* A masked store is microcode on AMD's cores, some twenty cycles: whole vectors go without. */
static PROA_ALWAYS_INLINE void store_part(float *p, int64_t n, __m256 v)
{
    if (n >= LANES) _mm256_storeu_ps(p, v);
    else _mm256_maskstore_ps(p, part_mask(n), v);
}

static PROA_ALWAYS_INLINE void store_i8(int8_t *out, int64_t n, __m256i q)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    int64_t bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    memcpy(out, &bytes, (size_t)n);
}

/* |x| as uint8 times w with the sign of x: a pair is at most 2 * 127 * 127 < 2^15, so nothing saturates. */
static PROA_ALWAYS_INLINE __m256i dot_i8(__m256i acc, __m256i x, __m256i w)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#define SKINNY_CASES(format)                                                                                 \
    SKINNY_CASE(format, 2);                                                                                  \
    SKINNY_CASE(format, 3)
#define TALL_CASES(format)                                                                                   \
    TALL_CASE(format, 4);                                                                                    \
    TALL_CASE(format, 5);                                                                                    \
    TALL_CASE(format, 6)

#include "kernels/cpu/linear_tile.h"

#include "kernels/cpu/linear_rows.h"

DEFINE_TILE(tile_f32, PROA_WFMT_F32)
DEFINE_TILE(tile_bf16, PROA_WFMT_BF16)
DEFINE_TILE(tile_f16, PROA_WFMT_F16)
DEFINE_TILE(tile_bf16dot, PROA_WFMT_BF16DOT)
DEFINE_TILE(tile_i8, PROA_WFMT_I8)

#define GROUP_ROWS           3
#define PREFETCH_GROUPS      2048
/* Pairs of a step are at most 2 * 15 * 127, so eight steps fit into int16. */
#define DOT_Q4(acc, w, x)    _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x))
#define WIDEN_Q4(acc)        _mm256_madd_epi16(acc, _mm256_set1_epi16(1))
#define DOT_TABLE(acc, w, x) dot_i8(acc, x, w)
#define TABLE_OFFSET         0
#define TABLE_OF(p)          _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define DOT_Q8(acc, w, x)    dot_i8(acc, x, _mm256_xor_si256(w, _mm256_set1_epi8(-128)))
#define GROUPS_CASES(format)                                                                                 \
    GROUPS_CASE(format, 1);                                                                                  \
    GROUPS_CASE(format, 2);                                                                                  \
    GROUPS_CASE(format, 3)

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

static const proa_linear_isa isa = {
    .rows_max = ROWS_MAX,
    .rows_skinny = 3,
    .panels_of = {0, 2, 1, 1},
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

static void linear_avx2(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    proa_linear_run(c, y, x, w, e, &isa);
}

static void experts_avx2(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                         const proa_experts *e)
{
    proa_experts_run(c, y, x, weights, ids, e, &isa, &isa);
}

void proa_overlay_linear_avx2(proa_ops *ops)
{
    ops->linear = linear_avx2;
    ops->experts = experts_avx2;
    ops->pack = proa_panels_pack;
    ops->layout = PROA_PANELS_LAYOUT;
    ops->pack_bytes = proa_panels_pack_bytes;
}
