/* SPDX-License-Identifier: Apache-2.0
 * linear_bf16.c - bf16 products by AVX-512 BF16: vdpbf16ps adds two products a lane to an f32. It takes the odd k of
 * a pair first and flushes denormals, so its last bits differ from the other levels' (weight.h: bf16dot). */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_width512.h"
#include "kernels/cpu/overlay.h"

#define DOT_I8(acc, x, w)   _mm512_dpbusd_epi32(acc, x, w)
#define DOT_BF16(acc, x, w) dot_bf16(acc, x, w)

static PROA_ALWAYS_INLINE __m512 dot_bf16(__m512 acc, __m512 x, __m512 w)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)x, (__m512bh)w);
}

#include "kernels/cpu/linear_tile.h"

DEFINE_TILE(tile_bf16dot, PROA_WFMT_BF16DOT)

void proa_linear_bf16_isa(proa_linear_isa *isa)
{
    proa_linear_vnni_isa(isa);
    isa->tile[PROA_WFMT_BF16DOT] = tile_bf16dot;
}

static proa_linear_isa bf16; /* written once, by the overlay */

static void linear_bf16(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    proa_linear_run(c, y, x, w, e, &bf16);
}

static void experts_bf16(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                         const proa_experts *e)
{
    proa_experts_run(c, y, x, weights, ids, e, &bf16, &bf16);
}

void proa_overlay_linear_bf16(proa_ops *ops)
{
    proa_linear_bf16_isa(&bf16);
    ops->linear = linear_bf16;
    ops->experts = experts_bf16;
}
