/* SPDX-License-Identifier: Apache-2.0
 * vec_lora.h - low-rank adapters, written in simd_*.h; included by vec_avx2.c and vec_avx512.c. Two passes over the
 * segments: h = x A^T into scratch, then y += h B^T. Lanes are the columns of A and of B, so each sum is the chain over
 * k, or over the rank, that ops.def promises, and neither segments nor threads change a bit. A and B are read from
 * the first byte to the last, once for LORA_BLOCK rows: with an adapter for each row the time is that of reading. */
#ifndef PROA_KERNELS_CPU_VEC_LORA_H
#define PROA_KERNELS_CPU_VEC_LORA_H

#include "base/checked.h"
#include "kernels/ops.h"

#include <string.h>

#define LORA_WORK   65536 /* multiply-adds that are worth another thread */
#define LORA_BLOCK  4     /* rows at once */
#define LORA_CHAINS 4     /* vectors at once */
#define LORA_PANELS 16    /* of B: an item of the second pass */

typedef struct lora_job {
    proa_view y, x;
    const proa_lora *l;
    const proa_lora_rows *rows;
    float *h;       /* of the i-th row of `order` at h + i * columns */
    int64_t blocks; /* items of a segment */
} lora_job;

static int64_t lora_columns(const lora_job *job)
{
    return (int64_t)job->l->pieces * job->l->rank;
}

/* ---- h = x A^T ---- */

/* `rows` rows with `count` vectors of A's columns from `at` on. */
V_INLINE void lora_shrink_tile(const lora_job *job, const proa_lora_segment *s, int row, int rows, int64_t at,
                               int count, proa_dtype dtype)
{
    const proa_lora *l = job->l;
    const int32_t *order = job->rows->order + s->first + row;
    const float *x[LORA_BLOCK];
    int64_t columns = lora_columns(job);
    vf sum[LORA_BLOCK][LORA_CHAINS];
    for (int r = 0; r < rows; r++) x[r] = proa_view_f32(job->x) + order[r] * job->x.stride[0];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < count; v++) sum[r][v] = v_zero();
    for (int64_t k = 0; k < l->K; k++) {
        vf a[LORA_CHAINS];
        for (int v = 0; v < count; v++)
            a[v] = v_load_as(s->base + l->a, dtype, k * columns + at + v * V_WIDTH);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < count; v++) sum[r][v] = v_fma(v_set1(x[r][k]), a[v], sum[r][v]);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < count; v++)
            v_store(job->h + (s->first + row + r) * columns + at + v * V_WIDTH, sum[r][v]);
}

V_INLINE void lora_shrink_rows(const lora_job *job, const proa_lora_segment *s, int row, int rows, int64_t at,
                               int64_t end, proa_dtype dtype)
{
    for (; at + LORA_CHAINS * V_WIDTH <= end; at += LORA_CHAINS * V_WIDTH)
        lora_shrink_tile(job, s, row, rows, at, LORA_CHAINS, dtype);
    int left = (int)((end - at) / V_WIDTH);
    if (left == 3) lora_shrink_tile(job, s, row, rows, at, 3, dtype);
    else if (left == 2) lora_shrink_tile(job, s, row, rows, at, 2, dtype);
    else if (left == 1) lora_shrink_tile(job, s, row, rows, at, 1, dtype);
}

/* All rows of a segment with the columns [at, end) of A. */
V_INLINE void lora_shrink_range(const lora_job *job, const proa_lora_segment *s, int64_t at, int64_t end,
                                proa_dtype dtype)
{
    int row = 0;
    for (; row + LORA_BLOCK <= s->rows; row += LORA_BLOCK)
        lora_shrink_rows(job, s, row, LORA_BLOCK, at, end, dtype);
    int left = s->rows - row;
    if (left == 3) lora_shrink_rows(job, s, row, 3, at, end, dtype);
    else if (left == 2) lora_shrink_rows(job, s, row, 2, at, end, dtype);
    else if (left == 1) lora_shrink_rows(job, s, row, 1, at, end, dtype);
}

static void lora_shrink_f32(const lora_job *job, const proa_lora_segment *s, int64_t at, int64_t end)
{
    lora_shrink_range(job, s, at, end, PROA_DTYPE_F32);
}

static void lora_shrink_bf16(const lora_job *job, const proa_lora_segment *s, int64_t at, int64_t end)
{
    lora_shrink_range(job, s, at, end, PROA_DTYPE_BF16);
}

static void lora_shrink_f16(const lora_job *job, const proa_lora_segment *s, int64_t at, int64_t end)
{
    lora_shrink_range(job, s, at, end, PROA_DTYPE_F16);
}

/* Items are (segment, LORA_CHAINS vectors of columns). Neighbouring pieces that the adapter changes are one range. */
static void lora_shrink(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const lora_job *job = arg;
    const proa_lora *l = job->l;
    for (int64_t i = begin; i < end; i++) {
        const proa_lora_segment *s = &job->rows->segment[i / job->blocks];
        const proa_lora_use *use = proa_lora_use_of(l, s);
        int64_t first = i % job->blocks * LORA_CHAINS * V_WIDTH;
        int64_t last = proa_min64(lora_columns(job), first + LORA_CHAINS * V_WIDTH);
        while (first < last && s->rows > 0) { /* of one piece after the other */
            int64_t piece = first / l->rank, stop = proa_min64(last, (piece + 1) * l->rank), to = first;
            while (to < last && use[to / l->rank].rank > to % l->rank) to += V_WIDTH;
            if (l->dtype == PROA_DTYPE_F32) lora_shrink_f32(job, s, first, to);
            else if (l->dtype == PROA_DTYPE_BF16) lora_shrink_bf16(job, s, first, to);
            else lora_shrink_f16(job, s, first, to);
            first = proa_max64(to, to == first ? stop : first);
        }
    }
}

/* ---- y += h B^T ---- */

/* `rows` rows with one panel of B: `count` columns of y from n on. */
V_INLINE void lora_expand_tile(const lora_job *job, const proa_lora_segment *s, int row, int rows, const char *b,
                               int64_t h_at, int rank, float scale, int64_t n, int64_t count, proa_dtype dtype)
{
    enum { VECTORS = PROA_LORA_PANEL / V_WIDTH };
    const int32_t *order = job->rows->order + s->first + row;
    const float *h = job->h + (s->first + row) * lora_columns(job) + h_at;
    int64_t columns = lora_columns(job);
    vf sum[LORA_BLOCK][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = v_zero();
    for (int j = 0; j < rank; j++)
        for (int v = 0; v < VECTORS; v++) {
            vf weight = v_load_as(b, dtype, j * PROA_LORA_PANEL + v * V_WIDTH);
            for (int r = 0; r < rows; r++) sum[r][v] = v_fma(v_set1(h[r * columns + j]), weight, sum[r][v]);
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) {
            float *y = proa_view_f32(job->y) + order[r] * job->y.stride[0] + n + v * V_WIDTH;
            int64_t lanes = proa_min64(V_WIDTH, count - v * V_WIDTH);
            if (lanes > 0) v_store_n(y, v_fma(v_set1(scale), sum[r][v], v_load_n(y, lanes)), lanes);
        }
}

/* All rows of a segment with one panel. */
V_INLINE void lora_expand_panel(const lora_job *job, const proa_lora_segment *s, const char *b, int64_t h_at,
                                int rank, float scale, int64_t n, int64_t count, proa_dtype dtype)
{
    int row = 0;
    for (; row + LORA_BLOCK <= s->rows; row += LORA_BLOCK)
        lora_expand_tile(job, s, row, LORA_BLOCK, b, h_at, rank, scale, n, count, dtype);
    for (; row < s->rows; row++) lora_expand_tile(job, s, row, 1, b, h_at, rank, scale, n, count, dtype);
}

/* Panels [begin, end) of those of all pieces. */
V_INLINE void lora_expand_range(const lora_job *job, const proa_lora_segment *s, int64_t begin, int64_t end,
                                proa_dtype dtype)
{
    const proa_lora *l = job->l;
    const proa_lora_use *use = proa_lora_use_of(l, s);
    int64_t bytes = (int64_t)l->rank * PROA_LORA_PANEL * proa_dtype_bytes(dtype), before = 0;
    for (int32_t p = 0; p < l->pieces; before += proa_lora_panels(l, p), p++) {
        int64_t first = proa_max64(begin, before), last = proa_min64(end, before + proa_lora_panels(l, p));
        float scale = (l->alpha == 0 ? 1 : l->alpha) * use[p].scale;
        for (int64_t panel = first; panel < last && use[p].rank > 0; panel++) {
            int64_t n = proa_lora_first(l, p) + (panel - before) * PROA_LORA_PANEL;
            lora_expand_panel(job, s, s->base + l->b + panel * bytes, (int64_t)p * l->rank, use[p].rank,
                              scale, n, proa_min64(PROA_LORA_PANEL, l->end[p] - n), dtype);
        }
    }
}

/* Items are (segment, LORA_PANELS panels). */
static void lora_expand(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const lora_job *job = arg;
    while (begin < end) {
        const proa_lora_segment *s = &job->rows->segment[begin / job->blocks];
        int64_t first = begin % job->blocks, last = proa_min64(job->blocks, first + end - begin);
        int64_t from = first * LORA_PANELS, to = last * LORA_PANELS;
        if (s->rows == 0) { /* a segment may be empty */
        } else if (job->l->dtype == PROA_DTYPE_F32) lora_expand_range(job, s, from, to, PROA_DTYPE_F32);
        else if (job->l->dtype == PROA_DTYPE_BF16) lora_expand_range(job, s, from, to, PROA_DTYPE_BF16);
        else lora_expand_range(job, s, from, to, PROA_DTYPE_F16);
        begin += last - first;
    }
}

static void lora_op(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    lora_job job = {.y = y, .x = x, .l = l, .rows = rows, .h = c->scratch};
    int64_t most = 0, panels = 0, segment_rows = 1;
    for (int64_t t = 0; l->set && t < y.shape[0]; t++)
        memset(proa_view_f32(y) + t * y.stride[0], 0, (size_t)y.shape[1] * sizeof(float));
    for (int64_t i = 0; i < rows->count; i++) {
        most = proa_max64(most, rows->segment[i].first + rows->segment[i].rows);
        segment_rows = proa_max64(segment_rows, rows->segment[i].rows);
    }
    for (int32_t p = 0; p < l->pieces; p++) panels += proa_lora_panels(l, p);
    PROA_ASSERT(most * lora_columns(&job) * 4 <= c->scratch_bytes); /* proa_ctx_need was too small */
    job.blocks = proa_ceil_div(lora_columns(&job), LORA_CHAINS * V_WIDTH);
    int64_t work = segment_rows * LORA_CHAINS * V_WIDTH * l->K;
    proa_pool_run(c->pool, rows->count * job.blocks, proa_ceil_div(LORA_WORK, work), lora_shrink, &job);
    job.blocks = proa_ceil_div(panels, LORA_PANELS);
    work = segment_rows * LORA_PANELS * PROA_LORA_PANEL * l->rank;
    proa_pool_run(c->pool, rows->count * job.blocks, proa_ceil_div(LORA_WORK, work), lora_expand, &job);
}

#endif
