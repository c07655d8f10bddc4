/* SPDX-License-Identifier: Apache-2.0
 * pick_page.h - the scores of pick_keys for a page of keys, written in simd_*.h; included by attend_avx2.c and
 * attend_avx512.c behind attend_page.h, whose products these are. */
#ifndef PROA_KERNELS_CPU_PICK_PAGE_H
#define PROA_KERNELS_CPU_PICK_PAGE_H

#include "kernels/pick_plan.h"

/* Adds what one head gives. NaN stays: max(0, NaN) is NaN where the second operand is it. */
static void add_head(float *score, const float *dot, float weight)
{
    for (int j = 0; j < PAGE; j += V_WIDTH) {
        vf above = v_max(v_zero(), v_load(dot + j));
        v_store(score + j, v_fma(v_set1(weight), above, v_load(score + j)));
    }
}

V_INLINE void score_heads(float *score, const float *q, int64_t pitch, const float *w, int64_t heads,
                          attend_mat k, proa_dtype dtype, int64_t dim)
{
    float dot[PROA_PICK_HEADS][PAGE];
    for (int64_t h = 0; h < heads; h += PROA_PICK_HEADS) {
        dot_rows(PROA_PICK_HEADS, q + h * pitch, pitch, k, dtype, 0, 0, PAGE, PAGE, dim, dot[0], PAGE);
        for (int i = 0; i < PROA_PICK_HEADS; i++) add_head(score, dot[i], w[h + i]);
    }
}

static void pick_page(float score[PROA_PAGE_TOKENS], const float *q, int64_t pitch, const float *w,
                      int64_t heads, const void *k, proa_dtype dtype, int64_t dim)
{
    attend_mat keys = {k, dim};
    memset(score, 0, PAGE * sizeof *score);
    switch (dtype) {
    case PROA_DTYPE_F32: score_heads(score, q, pitch, w, heads, keys, PROA_DTYPE_F32, dim); break;
    case PROA_DTYPE_BF16: score_heads(score, q, pitch, w, heads, keys, PROA_DTYPE_BF16, dim); break;
    default: score_heads(score, q, pitch, w, heads, keys, PROA_DTYPE_F16, dim); break;
    }
}

#endif
