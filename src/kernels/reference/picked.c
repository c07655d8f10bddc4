/* SPDX-License-Identifier: Apache-2.0
 * picked.c - sparse attention: which keys a row sees, and a copy of them in pages of their own. */
#include "kernels/reference/reference.h"

#include "base/checked.h"
#include "kernels/pick_keys.h"
#include "kernels/reference/view_at.h"

/* Flat element index of (position p, head, 0) within the pages of a span. */
static int64_t page_index(const proa_kv *kv, const int32_t *pages, int64_t p, int64_t head)
{
    return ((pages[p / PROA_PAGE_TOKENS] * kv->kv_heads + head) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) *
           kv->head_dim;
}

/* ---- pick_keys ---- */

typedef struct pick_job {
    int32_t *picked;
    proa_view q, w;
    const proa_kv *kv;
    const proa_spans *spans;
    int64_t most, keys; /* keys: room for scores of a worker */
    float *scores;
} pick_job;

static float score_key(const pick_job *job, int64_t t, int64_t base)
{
    const proa_kv *kv = job->kv;
    float row[PROA_HEAD_DIM_MAX];
    const float *k = load_row(row, kv->k, kv->dtype, base, kv->head_dim);
    double sum = 0;
    for (int64_t h = 0; h < job->q.shape[1]; h++) {
        const float *q = at_plane(job->q, t, h, 0);
        double dot = 0;
        for (int64_t j = 0; j < kv->head_dim; j++) dot += (double)q[j] * (double)k[j];
        sum += (double)*at_row(job->w, t, h) * (dot < 0 ? 0 : dot);
    }
    return (float)sum;
}

static void pick_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const pick_job *job = arg;
    float *scores = job->scores + worker * job->keys;
    for (int64_t t = begin; t < end; t++) {
        const proa_span *span = proa_spans_find(job->spans, t);
        int64_t i = span ? t - span->row : 0, first = span ? proa_tree_first(span) : 0;
        int64_t n = span ? proa_tree_position(job->spans, span, i) + 1 : 0;
        uint64_t seen = span ? proa_tree_seen(job->spans, span, i) : 0;
        for (int64_t p = 0; p < n && n > job->most; p++)
            scores[p] = score_key(
                job, t, page_index(job->kv, job->spans->pages + span->table, proa_tree_slot(first, seen, p), 0));
        proa_pick_largest(job->picked + t * job->most, scores, n, job->most);
    }
}

/* Room for the scores of one row in each worker's part of the scratch. */
static int64_t scratch_keys(const proa_ctx *c)
{
    return c->scratch_bytes / proa_pool_threads(c->pool) / (int64_t)sizeof(float);
}

void proa_pick_keys_reference(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                              const proa_spans *spans, int64_t most)
{
    pick_job job = {picked, q, w, kv, spans, most, scratch_keys(c), c->scratch};
    for (int64_t s = 0; s < spans->count; s++) PROA_ASSERT(spans->span[s].context <= job.keys);
    proa_pool_run(c->pool, q.shape[0], 1, pick_rows, &job);
}

/* ---- gather_keys ---- */

typedef struct gather_job {
    const proa_picked_keys *to;
    const proa_kv *from;
    const proa_spans *spans;
    const int32_t *picked;
    int64_t most, first;
} gather_job;

/* Number j of row i: key and value of position p of the span. */
static void copy_key(const gather_job *job, const proa_span *span, int64_t i, int64_t j, int64_t p)
{
    const proa_kv *to = &job->to->kv, *from = job->from;
    int64_t pages = proa_ceil_div(job->most, PROA_PAGE_TOKENS), size = proa_dtype_bytes(from->dtype);
    uint64_t seen = proa_tree_seen(job->spans, span, job->first + i - span->row);
    int64_t slot = proa_tree_slot(proa_tree_first(span), seen, p);
    for (int64_t h = 0; h < from->kv_heads; h++) {
        int64_t at = page_index(from, job->spans->pages + span->table, slot, h) * size;
        int64_t put = page_index(to, job->to->pages + i * pages, j, h) * size;
        memcpy((char *)to->k + put, (const char *)from->k + at, (size_t)(from->head_dim * size));
        if (to->v != to->k)
            memcpy((char *)to->v + put, (const char *)from->v + at, (size_t)(from->head_dim * size));
    }
}

static void gather_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const gather_job *job = arg;
    int64_t pages = proa_ceil_div(job->most, PROA_PAGE_TOKENS);
    for (int64_t i = begin; i < end; i++) {
        const int32_t *picked = job->picked + (job->first + i) * job->most;
        const proa_span *span = proa_spans_find(job->spans, job->first + i);
        int64_t count = 0;
        for (int64_t n = 0; n < pages; n++) job->to->pages[i * pages + n] = (int32_t)(i * pages + n);
        for (; span && count < job->most && picked[count] >= 0; count++)
            copy_key(job, span, i, count, picked[count]);
        job->to->span[i] = (proa_span){(int32_t)i, 1, (int32_t)count, (int32_t)(i * pages), 0, 0, 0};
    }
}

void proa_gather_keys_reference(proa_ctx *c, const proa_picked_keys *to, const proa_kv *from,
                                const proa_spans *spans, const int32_t *picked, int64_t most, int64_t first)
{
    gather_job job = {to, from, spans, picked, most, first};
    proa_pool_run(c->pool, to->rows, 1, gather_rows, &job);
}
