/* SPDX-License-Identifier: Apache-2.0
 * linear_vnni.c - int8 products by AVX-512 VNNI: vpdpbusd sums four products of uint8 x (int8 + 128) and int8 w into
 * an int32 without saturating; the epilogue takes 128 * sum(w) out again. All else is AVX-512's. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_width512.h"
#include "kernels/cpu/overlay.h"

#define DOT_I8(acc, x, w)   _mm512_dpbusd_epi32(acc, x, w)
#define DOT_BF16(acc, x, w) dot_bf16_widened(acc, x, w)
#include "kernels/cpu/linear_tile.h"

DEFINE_TILE(tile_i8, PROA_WFMT_I8)

#define DOT_Q4(acc, w, x)    _mm512_dpbusd_epi32(acc, w, x)
#define WIDEN_Q4(acc)        (acc)
#define DOT_TABLE(acc, w, x) _mm512_dpbusd_epi32(acc, w, x)
#define TABLE_OFFSET         -128 /* the numbers as uint8 */
#define TABLE_OF(p)          _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define DOT_Q8(acc, w, x)    _mm512_dpbusd_epi32(acc, w, x)

#include "kernels/cpu/linear_groups.h"

DEFINE_GROUPS_TILE(tile_q8_0, PROA_WFMT_Q8_0)
DEFINE_GROUPS_TILE(tile_q4_0, PROA_WFMT_Q4_0)
DEFINE_GROUPS_TILE(tile_q4_1, PROA_WFMT_Q4_1)
DEFINE_GROUPS_TILE(tile_mxfp4, PROA_WFMT_MXFP4)
DEFINE_GROUPS_TILE(tile_iq4_nl, PROA_WFMT_IQ4_NL)

void proa_linear_vnni_isa(proa_linear_isa *isa)
{
    *isa = proa_linear_avx512;
    isa->biased = true;
    isa->quantise = proa_quantise_biased_avx512;
    isa->tile[PROA_WFMT_I8] = tile_i8;
    isa->tile[PROA_WFMT_Q8_0] = tile_q8_0;
    isa->tile[PROA_WFMT_Q4_0] = tile_q4_0;
    isa->tile[PROA_WFMT_Q4_1] = tile_q4_1;
    isa->tile[PROA_WFMT_MXFP4] = tile_mxfp4;
    isa->tile[PROA_WFMT_IQ4_NL] = tile_iq4_nl;
}

static proa_linear_isa vnni; /* written once, by the overlay */

static void linear_vnni(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    proa_linear_run(c, y, x, w, e, &vnni);
}

static void experts_vnni(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                         const proa_experts *e)
{
    proa_experts_run(c, y, x, weights, ids, e, &vnni, &vnni);
}

void proa_overlay_linear_vnni(proa_ops *ops)
{
    proa_linear_vnni_isa(&vnni);
    ops->linear = linear_vnni;
    ops->experts = experts_vnni;
}
