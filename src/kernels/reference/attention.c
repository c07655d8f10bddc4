/* SPDX-License-Identifier: Apache-2.0
 * attention.c - rotary positions, KV pages and attention. Scores and sums are double, rounded once at the end. */
#include "kernels/reference/reference.h"

#include "base/checked.h"
#include "kernels/reference/view_at.h"
#include <math.h>

/* ---- rotary positions ---- */

void proa_rope_table_reference(proa_ctx *c, proa_view table, const int32_t *pos, const int32_t *length,
                               const proa_rope_freqs *freqs)
{
    PROA_UNUSED(c);
    int64_t half = table.shape[1] / 2;
    for (int64_t t = 0; t < table.shape[0]; t++) {
        int32_t n = length ? length[t] : 0;
        float scale = freqs->long_inv_freq && proa_rope_is_long(freqs, n) ? freqs->long_scale : freqs->scale;
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)pos[t] * proa_rope_freq(freqs, n, i, 2 * half);
            *at_row(table, t, i) = (float)cos((double)angle) * scale;
            *at_row(table, t, half + i) = (float)sin((double)angle) * scale;
        }
    }
}

static void rope_head(float *x, const float *cosines, const float *sines, int64_t half, bool interleaved)
{
    for (int64_t i = 0; i < half; i++) {
        float *p = x + (interleaved ? 2 * i : i), *q = interleaved ? p + 1 : p + half;
        double a = (double)*p, b = (double)*q, cosine = (double)cosines[i], sine = (double)sines[i];
        *p = (float)(a * cosine - b * sine);
        *q = (float)(b * cosine + a * sine);
    }
}

void proa_rope_reference(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    PROA_UNUSED(c);
    int64_t half = table.shape[1] / 2;
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            rope_head(at_plane(x, t, h, 0), at_row(table, t, 0), at_row(table, t, half), half, interleaved);
}

typedef struct query_scale_job {
    proa_view x;
    const int32_t *pos;
    const proa_query_scale *s;
} query_scale_job;

static double query_factor(const proa_query_scale *s, int32_t position)
{
    int64_t at = (int64_t)position + s->offset, whole = at / s->length;
    if (!s->smooth) return 1 + (double)s->beta * log1p((double)whole);
    return at <= s->length ? 1 : fmax(1, (double)s->beta * log((double)at));
}

static void query_scale_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const query_scale_job *job = arg;
    for (int64_t t = begin; t < end; t++) {
        float factor = (float)query_factor(job->s, job->pos[t]);
        for (int64_t j = 0; factor != 1 && j < job->x.shape[1]; j++) *at_row(job->x, t, j) *= factor;
    }
}

void proa_query_scale_reference(proa_ctx *c, proa_view x, const int32_t *pos, const proa_query_scale *s)
{
    query_scale_job job = {x, pos, s};
    proa_pool_run(c->pool, x.shape[0], 8, query_scale_rows, &job);
}

/* ---- keys, values and attention ---- */

/* Flat element index of (position p, head, 0) within the pages of a span, or within its rows. */
static int64_t kv_index(const proa_kv *kv, const proa_spans *spans, const proa_span *span, int64_t p, int64_t head)
{
    if (kv->row) return (span->row + p) * kv->row + head * kv->head_dim;
    int64_t page = spans->pages[span->table + p / PROA_PAGE_TOKENS];
    return ((page * kv->kv_heads + head) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) * kv->head_dim;
}

void proa_kv_append_reference(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    PROA_UNUSED(c);
    for (int64_t s = 0; s < spans->count; s++) {
        const proa_span *span = &spans->span[s];
        for (int64_t i = 0; i < span->rows; i++)
            for (int64_t h = 0; h < kv->kv_heads; h++) {
                int64_t at = kv_index(kv, spans, span, span->context - span->rows + i, h) *
                             proa_dtype_bytes(kv->dtype);
                proa_from_f32((char *)kv->k + at, kv->dtype, at_plane(k, span->row + i, h, 0), kv->head_dim);
                proa_from_f32((char *)kv->v + at, kv->dtype, at_plane(v, span->row + i, h, 0), kv->head_dim);
            }
    }
}

/* Through the context's own table, so that its rope and kv_append are used. */
void proa_rope_append_reference(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved,
                                const proa_kv *kv, const proa_spans *spans)
{
    proa_view k = x;
    int64_t heads = x.shape[1] - kv->kv_heads;
    k.data = proa_view_f32(x) + heads * x.stride[1];
    k.shape[1] = kv->kv_heads;
    c->ops->rope(c, x, table, interleaved);
    c->ops->kv_append(c, kv, k, v, spans);
}

typedef struct attend_job {
    proa_view y, q;
    const proa_kv *kv;
    const proa_spans *spans;
    const proa_attention *a;
} attend_job;

/* What proa_relative adds to q.k. from: the head's first number in tables and biases. */
static double relative_terms(const attend_job *job, const float *q, const float *k, int64_t from, int64_t distance)
{
    const proa_relative *r = job->a->relative;
    int64_t at = proa_relative_row(r, distance) * r->stride + from;
    double sum = 0;
    for (int64_t j = 0; j < job->kv->head_dim; j++) {
        double key = (double)k[j], query = (double)q[j];
        if (r->content_bias) sum += (double)r->content_bias[from + j] * key;
        if (r->position_bias) query += (double)r->position_bias[from + j];
        if (r->keys) sum += query * (double)r->keys[at + j];
        if (r->queries) sum += key * (double)r->queries[at + j];
    }
    return sum;
}

/* What proa_relative adds for a key of another segment. */
static double segment_term(const attend_job *job, const float *q, int64_t from)
{
    const proa_relative *r = job->a->relative;
    const float *same = r->segments + from, *other = same + job->q.shape[1] * job->kv->head_dim;
    double sum = 0;
    for (int64_t j = 0; j < job->kv->head_dim; j++)
        sum += ((double)q[j] + (double)r->segment_bias[from + j]) * ((double)other[j] - (double)same[j]);
    return sum;
}

/* The score of the key at position p, stored at `slot`, for the query of head h that stands at position `at`. */
static double score_row(const attend_job *job, const proa_span *span, const float *q, int64_t h, int64_t at,
                        int64_t p, int64_t slot)
{
    const proa_kv *kv = job->kv;
    const proa_attention *a = job->a;
    int64_t heads = job->q.shape[1], base = kv_index(kv, job->spans, span, slot, h / (heads / kv->kv_heads));
    float row[PROA_HEAD_DIM_MAX];
    const float *k = load_row(row, kv->k, kv->dtype, base, kv->head_dim);
    double dot = 0;
    for (int64_t j = 0; j < kv->head_dim; j++) dot += (double)q[j] * (double)k[j];
    if (a->relative) dot += relative_terms(job, q, k, h * kv->head_dim, at - p);
    const int32_t *types = a->relative ? a->relative->types : NULL;
    if (types && types[span->row + at] != types[span->row + p]) dot += segment_term(job, q, h * kv->head_dim);
    double bias = 0;
    if (a->rel_bias) {
        int32_t bucket = proa_rel_bucket((int32_t)(p - at), a->rel_buckets, a->rel_distance,
                                         a->rel_bidirectional);
        bias = (double)a->rel_bias[bucket * heads + h];
    }
    if (a->alibi) bias -= (double)a->alibi[h] * fabs((double)(p - at));
    dot *= (double)a->scale;
    if (a->soft_cap > 0) dot = (double)a->soft_cap * tanh(dot / (double)a->soft_cap);
    return dot + bias;
}

/* Scores of a row; those beyond are computed again, since the reference has no scratch. */
enum { SCORES_KEPT = 512 };

/* What row i of the span sees: the keys at the positions [begin, end), and then `side` side keys. */
typedef struct seen_keys {
    const proa_span *span;
    int64_t i, h, at, begin, end, side;
    int64_t first; /* where the tree begins */
    uint64_t mask;
} seen_keys;

static seen_keys find_keys(const attend_job *job, const proa_span *span, int64_t i, int64_t h)
{
    const proa_attention *a = job->a;
    seen_keys k = {span, i, h, proa_tree_position(job->spans, span, i), 0, span->context, 0, 0, 0};
    k.first = proa_tree_first(span), k.mask = proa_tree_seen(job->spans, span, i);
    if (a->causal) k.end = k.at + 1;
    if (a->window > 0)
        k.begin = proa_max64(0, k.at + 1 - a->window), k.end = proa_min64(k.end, k.at + a->window);
    if (a->window > 0 && a->chunked) k.begin = k.at / a->window * a->window;
    k.begin = proa_max64(k.begin, proa_side_skipped(a->side, span));
    k.end = proa_max64(k.end, k.begin);
    if (a->side) k.side = proa_side_count(a->side, span);
    return k;
}

/* Side key, or value, j of a row. */
static const float *side_row(const attend_job *job, const seen_keys *k, const void *rows, int64_t j)
{
    const proa_side_keys *s = job->a->side;
    int64_t head = k->h / (job->q.shape[1] / job->kv->kv_heads);
    return (const float *)rows + (proa_side_first(s, k->span) + j) * s->row + head * job->kv->head_dim;
}

static double score_side(const attend_job *job, const seen_keys *k, const float *q, int64_t j)
{
    const proa_attention *a = job->a;
    const float *key = side_row(job, k, a->side->k, j);
    double dot = 0, bias = 0;
    for (int64_t n = 0; n < job->kv->head_dim; n++) dot += (double)q[n] * (double)key[n];
    if (a->side->rel_bias) {
        int32_t distance = (int32_t)(j - proa_side_at(a->side, k->span, k->i));
        int32_t bucket = proa_rel_bucket(distance, a->rel_buckets, a->rel_distance, a->rel_bidirectional);
        bias = (double)a->side->rel_bias[bucket * job->q.shape[1] + k->h];
    }
    dot *= (double)a->scale;
    if (a->soft_cap > 0) dot = (double)a->soft_cap * tanh(dot / (double)a->soft_cap);
    return dot + bias;
}

/* The score of the n-th key that the row sees. */
static double score_nth(const attend_job *job, const seen_keys *k, const float *q, int64_t n)
{
    int64_t p = k->begin + n;
    if (p >= k->end) return score_side(job, k, q, p - k->end);
    return score_row(job, k->span, q, k->h, k->at, p, proa_tree_slot(k->first, k->mask, p));
}

static const float *value_nth(const attend_job *job, const seen_keys *k, float row[PROA_HEAD_DIM_MAX], int64_t n)
{
    const proa_kv *kv = job->kv;
    int64_t p = k->begin + n, kv_head = k->h / (job->q.shape[1] / kv->kv_heads);
    if (p >= k->end) return side_row(job, k, job->a->side->v, p - k->end);
    int64_t slot = proa_tree_slot(k->first, k->mask, p);
    return load_row(row, kv->v, kv->dtype, kv_index(kv, job->spans, k->span, slot, kv_head), kv->head_dim);
}

/* y = sum_n softmax_n(score_n) v_n over the keys that row i of the span sees, for head h. The first walk finds the
 * largest score, so that no exp overflows. A sink adds exp(sink) to the denominator. */
static void attend_head(const attend_job *job, const proa_span *span, int64_t i, int64_t h)
{
    const float *q = at_plane(job->q, span->row + i, h, 0);
    float *y = at_plane(job->y, span->row + i, h, 0);
    seen_keys k = find_keys(job, span, i, h);
    int64_t count = k.end - k.begin + k.side, dh = job->kv->head_dim;
    double largest = (double)-INFINITY, sum = 0, out[PROA_HEAD_DIM_MAX] = {0}, kept[SCORES_KEPT];
    for (int64_t n = 0; n < count; n++) {
        double s = score_nth(job, &k, q, n);
        if (n < SCORES_KEPT) kept[n] = s;
        if (s > largest || isnan(s)) largest = s;
    }
    for (int64_t n = 0; n < count; n++) {
        double weight = exp((n < SCORES_KEPT ? kept[n] : score_nth(job, &k, q, n)) - largest);
        float row[PROA_HEAD_DIM_MAX];
        const float *v = value_nth(job, &k, row, n);
        sum += weight;
        for (int64_t j = 0; j < dh; j++) out[j] += weight * (double)v[j];
    }
    if (job->a->sinks) sum += exp((double)job->a->sinks[h] - largest);
    for (int64_t j = 0; j < dh; j++) y[j] = count > 0 ? (float)(out[j] / sum) : 0.0f;
}

static void attend_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const attend_job *job = arg;
    for (int64_t h = begin; h < end; h++)
        for (int64_t s = 0; s < job->spans->count; s++)
            for (int64_t i = 0; i < proa_attention_rows(job->a, &job->spans->span[s]); i++)
                attend_head(job, &job->spans->span[s], i, h);
}

void proa_attend_reference(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                           const proa_attention *a)
{
    attend_job job = {y, q, kv, spans, a};
    proa_pool_run(c->pool, q.shape[1], 1, attend_heads, &job);
}
