/* SPDX-License-Identifier: Apache-2.0
 * vec_position.h - rope_table, rope and kv_append, written in simd_*.h; included by vec_avx2.c and vec_avx512.c. */
#ifndef PROA_KERNELS_CPU_VEC_POSITION_H
#define PROA_KERNELS_CPU_VEC_POSITION_H

#include "kernels/cpu/vec_rows.h"

/* ---- rotary positions (Su et al. 2021) ---- */

typedef struct rope_job {
    proa_view x, table;
    const int32_t *pos, *length;
    const proa_rope_freqs *freqs;
    bool interleaved;
} rope_job;

/* In double: angles reach 1e7, where a reduction in f32 has no digit left. Once a step, so libm is fast enough. */
static void rope_table_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const rope_job *job = arg;
    const proa_rope_freqs *f = job->freqs;
    int64_t half = job->table.shape[1] / 2;
    for (int64_t t = begin; t < end; t++) {
        float *row = row_at(job->table, t);
        int32_t length = job->length ? job->length[t] : 0;
        float scale = f->long_inv_freq && proa_rope_is_long(f, length) ? f->long_scale : f->scale;
        for (int64_t i = 0; i < half; i++) {
            double sine, cosine;
            sincos((double)((float)job->pos[t] * proa_rope_freq(f, length, i, 2 * half)), &sine, &cosine);
            row[i] = (float)cosine * scale;
            row[half + i] = (float)sine * scale;
        }
    }
}

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const int32_t *length,
                       const proa_rope_freqs *freqs)
{
    rope_job job = {.table = table, .pos = pos, .length = length, .freqs = freqs};
    /* An angle costs as much as some 20 elements elsewhere. */
    proa_pool_run(c->pool, table.shape[0], proa_max64(1, VEC_SHARE / 20 / proa_max64(table.shape[1], 1)),
                  rope_table_rows, &job);
}

/* a cos - b sin, b cos + a sin, where a is x[0..half) and b is x[half..2 half). */
static void rotate_halves(float *x, const float *cosines, const float *sines, int64_t half)
{
    for (int64_t i = 0; i < half; i += V_WIDTH) {
        int64_t n = proa_min64(V_WIDTH, half - i);
        vf a = v_load_n(x + i, n), b = v_load_n(x + half + i, n);
        vf cosine = v_load_n(cosines + i, n), sine = v_load_n(sines + i, n);
        v_store_n(x + i, v_fnma(b, sine, v_mul(a, cosine)), n);
        v_store_n(x + half + i, v_fma(a, sine, v_mul(b, cosine)), n);
    }
}

/* The same with a and b in even and odd places. */
static void rotate_pairs(float *x, const float *cosines, const float *sines, int64_t half)
{
    for (int64_t i = 0; i < half; i += V_WIDTH / 2) {
        int64_t n = proa_min64(V_WIDTH / 2, half - i);
        vf v = v_load_n(x + 2 * i, 2 * n);
        vf cosine = v_twice_low(v_load_n(cosines + i, n)),
           sine = v_negate_even(v_twice_low(v_load_n(sines + i, n)));
        v_store_n(x + 2 * i, v_fma(v_swap_pairs(v), sine, v_mul(v, cosine)), 2 * n);
    }
}

static void rope_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const rope_job *job = arg;
    int64_t heads = job->x.shape[1], half = job->table.shape[1] / 2;
    for (int64_t t = begin; t < end; t++) {
        const float *cosines = row_at(job->table, t);
        for (int64_t h = 0; h < heads; h++) {
            float *x = row_at(job->x, t * heads + h);
            if (job->interleaved) rotate_pairs(x, cosines, cosines + half, half);
            else rotate_halves(x, cosines, cosines + half, half);
        }
    }
}

static void rope_op(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    rope_job job = {.x = x, .table = table, .interleaved = interleaved};
    int64_t cols = x.shape[1] * table.shape[1];
    proa_pool_run(c->pool, x.shape[0], proa_max64(1, VEC_SHARE / proa_max64(cols, 1)), rope_rows, &job);
}

/* ---- keys and values into their pages ---- */

typedef struct append_job {
    const proa_kv *kv;
    proa_view k, v;
    const proa_spans *spans;
} append_job;

V_INLINE void narrow_row(void *out, proa_dtype dtype, const float *x, int64_t d)
{
    for (int64_t j = 0; j < d; j += V_WIDTH) {
        int64_t n = proa_min64(V_WIDTH, d - j);
        v_store_as_n(out, dtype, j, v_load_n(x + j, n), n);
    }
}

static void append_row(void *out, proa_dtype dtype, const float *x, int64_t d)
{
    switch (dtype) {
    case PROA_DTYPE_F32: memcpy(out, x, (size_t)d * sizeof(float)); break;
    case PROA_DTYPE_BF16: narrow_row(out, PROA_DTYPE_BF16, x, d); break;
    default: narrow_row(out, PROA_DTYPE_F16, x, d); break;
    }
}

/* Heads [begin, end) of all rows: spans may have one row each or all of them. */
static void append_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const append_job *job = arg;
    const proa_kv *kv = job->kv;
    int64_t d = kv->head_dim, bytes = d * proa_dtype_bytes(kv->dtype);
    for (int64_t s = 0; s < job->spans->count; s++) {
        const proa_span *span = &job->spans->span[s];
        for (int64_t i = 0; i < span->rows; i++) {
            int64_t p = (int64_t)span->context - span->rows + i, t = span->row + i;
            int64_t page = job->spans->pages[span->table + p / PROA_PAGE_TOKENS];
            for (int64_t h = begin; h < end; h++) {
                int64_t at = ((page * kv->kv_heads + h) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) * bytes;
                append_row((char *)kv->k + at, kv->dtype, row_at(job->k, t * kv->kv_heads + h), d);
                append_row((char *)kv->v + at, kv->dtype, row_at(job->v, t * kv->kv_heads + h), d);
            }
        }
    }
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    append_job job = {kv, k, v, spans};
    int64_t rows = k.shape[0] * kv->head_dim;
    proa_pool_run(c->pool, kv->kv_heads, proa_max64(1, VEC_SHARE / proa_max64(rows, 1)), append_heads, &job);
}

#endif
