/* SPDX-License-Identifier: Apache-2.0
 * attend_avx2.c - attend_page.h and pick_page.h compiled for this level. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/attend_page.h"
#include "kernels/cpu/pick_page.h"

void proa_attend_avx2(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                      const proa_attention *a)
{
    proa_attend_run(c, y, q, kv, spans, a, &attend_isa);
}

void proa_pick_keys_avx2(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                         const proa_spans *spans, int64_t most)
{
    proa_pick_run(c, picked, q, w, kv, spans, most, pick_page);
}
