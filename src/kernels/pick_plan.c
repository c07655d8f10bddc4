/* SPDX-License-Identifier: Apache-2.0
 * pick_plan.c - pick_keys on the CPU: rounds of rows, their pages, and the choice. */
#include "kernels/pick_plan.h"

#include "base/checked.h"
#include "kernels/pick_keys.h"

enum {
    PAGE = PROA_PAGE_TOKENS,
    JOB_PAGES = 16, /* of one row: about 20 us of a wide indexer */
    QUERY_FLOATS = PROA_PICK_HEADS * (PROA_HEAD_DIM_MAX + 16)
};

typedef struct pick_call {
    int32_t *picked;
    proa_view q, w;
    const proa_kv *kv;
    const proa_spans *spans;
    int64_t most;
    proa_pick_page_fn *page;
    float *scores;       /* [rows of a round][keys] */
    int64_t keys, parts; /* parts: jobs of a row */
    int64_t first;       /* row of the round */
} pick_call;

/* How many keys a row sees. */
static int64_t seen_keys(const pick_call *call, int64_t t, const proa_span **span)
{
    *span = proa_spans_find(call->spans, t);
    return *span ? proa_tree_position(call->spans, *span, t - (*span)->row) + 1 : 0;
}

/* Rows of q and weights of the heads [h, h + PROA_PICK_HEADS), padded with zeros. */
static void load_heads(const pick_call *call, int64_t t, int64_t h, float *q, int64_t pitch, float *w)
{
    int64_t count = proa_min64(PROA_PICK_HEADS, call->q.shape[1] - h), dim = call->kv->head_dim;
    memset(q, 0, (size_t)(PROA_PICK_HEADS * pitch) * sizeof *q);
    memset(w, 0, PROA_PICK_HEADS * sizeof *w);
    for (int64_t i = 0; i < count; i++) {
        const float *from = (const float *)call->q.data + t * call->q.stride[0] + (h + i) * call->q.stride[1];
        memcpy(q + i * pitch, from, (size_t)dim * sizeof *q);
        w[i] = ((const float *)call->w.data)[t * call->w.stride[0] + h + i];
    }
}

/* Scores by place of the pages [begin, end) of row t. */
static void score_pages(const pick_call *call, int64_t t, const proa_span *span, int64_t begin, int64_t end,
                        float *scores)
{
    const proa_kv *kv = call->kv;
    int64_t pitch = proa_round_up(kv->head_dim, 16), bytes = PAGE * kv->head_dim * proa_dtype_bytes(kv->dtype);
    const int32_t *pages = call->spans->pages + span->table;
    PROA_ALIGNED(64) float q[QUERY_FLOATS], part[PAGE];
    float w[PROA_PICK_HEADS];
    memset(scores + begin * PAGE, 0, (size_t)((end - begin) * PAGE) * sizeof *scores);
    for (int64_t h = 0; h < call->q.shape[1]; h += PROA_PICK_HEADS) {
        load_heads(call, t, h, q, pitch, w);
        for (int64_t p = begin; p < end; p++) {
            const void *k = (const char *)kv->k + pages[p] * kv->kv_heads * bytes;
            call->page(part, q, pitch, w, PROA_PICK_HEADS, k, kv->dtype, kv->head_dim);
            for (int j = 0; j < PAGE; j++) scores[p * PAGE + j] += part[j];
        }
    }
}

static void score_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const pick_call *call = arg;
    for (int64_t job = begin; job < end; job++) {
        const proa_span *span;
        int64_t t = call->first + job / call->parts, page = job % call->parts * JOB_PAGES;
        if (seen_keys(call, t, &span) <= call->most) continue;
        int64_t last = proa_min64(page + JOB_PAGES, proa_ceil_div(span->context, PAGE));
        if (page < last)
            score_pages(call, t, span, page, last, call->scores + job / call->parts * call->keys);
    }
}

/* Scores of a tree's keys move from where they are stored to their positions. */
static void place_scores(const pick_call *call, int64_t t, const proa_span *span, float *scores, int64_t n)
{
    uint64_t seen = proa_tree_seen(call->spans, span, t - span->row);
    int64_t first = proa_tree_first(span);
    for (int64_t p = first; seen && p < n; p++) scores[p] = scores[proa_tree_slot(first, seen, p)];
}

static void pick_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const pick_call *call = arg;
    for (int64_t i = begin; i < end; i++) {
        const proa_span *span;
        int64_t t = call->first + i, n = seen_keys(call, t, &span);
        float *scores = call->scores + i * call->keys;
        if (n > call->most) place_scores(call, t, span, scores, n);
        proa_pick_largest(call->picked + t * call->most, scores, n, call->most);
    }
}

void proa_pick_run(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                   const proa_spans *spans, int64_t most, proa_pick_page_fn *page)
{
    pick_call call = {picked, q, w, kv, spans, most, page, c->scratch, 0, 0, 0};
    int64_t longest = 1;
    for (int64_t s = 0; s < spans->count; s++) longest = proa_max64(longest, spans->span[s].context);
    call.keys = proa_round_up(longest, PAGE);
    call.parts = proa_ceil_div(call.keys, JOB_PAGES * PAGE);
    int64_t round = c->scratch_bytes / (int64_t)sizeof(float) / call.keys;
    PROA_ASSERT(round > 0); /* proa_ctx_need was too small */
    for (int64_t rows; call.first < q.shape[0]; call.first += rows) {
        rows = proa_min64(round, q.shape[0] - call.first);
        proa_pool_run(c->pool, rows * call.parts, 1, score_jobs, &call);
        proa_pool_run(c->pool, rows, 1, pick_jobs, &call);
    }
}
