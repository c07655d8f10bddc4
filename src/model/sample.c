/* SPDX-License-Identifier: Apache-2.0
 * sample.c - tokens sampled where the model runs: the head over rows of a pass, logits processors, the sampler, beam
 *            steps and top-k. Only ids and a few numbers of each row come to the host (staging/sample.c). */
#include "model/model.h"

#include "base/checked.h"
#include "model/ranks/stage.h"
#include "model/run.h"
#include "model/staging/staging.h"

/* Rows to memory that was given with the request, one after the other; to NULL: nowhere. */
static void copy_rows(proa_model *m, float *to, proa_view rows)
{
    int64_t n = rows.shape[0], V = rows.shape[1], stride = rows.stride[0], at_once = stride == V ? n : 1;
    const proa_blocks piece = {.bytes = at_once * V * (int64_t)sizeof *to, .count = {1, 1}};
    for (int64_t i = 0; i < n && to; i += at_once)
        m->device->copy(m->device, to + i * V, proa_view_f32(rows) + i * stride, &piece);
}

/* Rows of logits; to: where each of them goes, or NULL. */
static void put_rows(proa_model *m, float *const *to, proa_view logits)
{
    int64_t rows = logits.shape[0], V = logits.shape[1];
    for (int64_t i = 0, n; i < rows && to; i += n) {
        for (n = 1; to[i] && i + n < rows && to[i + n] == to[i] + n * V;) n++;
        copy_rows(m, to[i], proa_view_rows(logits, i, i + n));
    }
}

/* Rows of a beam step to memory of their beams, from `beam` on. sums: their log_sum_exp. */
static void put_beam_rows(proa_model *m, const proa_beam_rows *to, int64_t beam, proa_view rows, const float *sums)
{
    int64_t n = rows.shape[0], V = rows.shape[1];
    if (to->logits) copy_rows(m, to->logits + beam * V, rows);
    if (!to->logprobs) return;
    proa_view y = proa_view_2d(to->logprobs + beam * V, PROA_DTYPE_F32, n, V);
    m->ctx.ops->decode->log_probs(&m->ctx, y, rows, sums);
}

/* Rows of beams as find_candidates has them, to the memory of their requests. The row after a prompt is that of all
 * beams. */
static void put_search_rows(proa_model *m, const proa_sample_request *r, const float *sums, proa_view logits,
                            int64_t first)
{
    for (int64_t i = 0; i < r->searches && r->search_to; i++) {
        const proa_beam_params *s = &r->search[i];
        int64_t from = proa_max64(first, s->row), to = proa_min64(first + logits.shape[0], s->row + s->rows);
        int32_t copies = s->rows == 1 ? s->beams : 1;
        for (int32_t k = 0; k < copies && from < to; k++)
            put_beam_rows(m, &r->search_to[i], from - s->row + k,
                          proa_view_rows(logits, from - first, to - first), sums + from);
    }
}

/* The best candidates of rows of beams. logits: their rows [first, first + n), counted from the first beam step's
 * first row. Neighbouring steps that keep the same number of candidates share one top-k. */
static void find_candidates(proa_model *m, const proa_sample_request *r, const proa_sampled *sampled,
                            proa_view logits, int64_t first)
{
    const proa_beam_params *s = r->search, *end = s + r->searches;
    int64_t n = logits.shape[0];
    m->ctx.ops->log_sum_exp(&m->ctx, sampled->lists.sums + first, logits);
    put_search_rows(m, r, sampled->lists.sums, logits, first);
    while (first >= s->row + s->rows) s++;
    for (int64_t i = 0, k; i < n; i = k) {
        int64_t M = s->each, at = s->at + (first + i - s->row) * M;
        for (k = i; k < n && s < end && s->each == M; s++) k = proa_min64(n, s->row + s->rows - first);
        proa_view values = proa_view_2d(sampled->lists.logits + at, PROA_DTYPE_F32, k - i, M);
        m->ctx.ops->top_k(&m->ctx, values, sampled->lists.ids + at, proa_view_rows(logits, i, k), M);
    }
}

/* Samples one token from each row; logits: rows [at, at + n) of the request. */
static void sample_tokens(proa_model *m, const proa_sample_request *r, const proa_sampled *sampled,
                          proa_view logits, const proa_sample_params *params, const proa_device_masks *masks,
                          const proa_device_processors *processors, int64_t at)
{
    proa_ctx *c = &m->ctx;
    int64_t n = logits.shape[0], top = r->top;
    put_rows(m, r->raw_to ? r->raw_to + at : NULL, logits);
    if (masks->mask_of) c->ops->decode->mask_logits(c, logits, masks->masks, masks->mask_of + at);
    if (processors->rows)
        c->ops->decode->process_logits(c, logits, processors->rows + at, processors->entries,
                                       processors->last + at);
    put_rows(m, r->processed_to ? r->processed_to + at : NULL, logits);
    c->ops->decode->sample(c, sampled->ids + at, sampled->sums + at, logits, params ? params + at : NULL);
    if (r->logits) c->ops->decode->gather_logprobs(c, sampled->logits + at, logits, sampled->ids + at);
    if (!top) return;
    proa_view values = proa_view_2d(sampled->top_logits + at * top, PROA_DTYPE_F32, n, top);
    c->ops->top_k(c, values, sampled->top_ids + at * top, logits, top);
}

/* Rows of all beam steps; their rows follow each other. */
static int64_t count_beam_rows(const proa_sample_request *r)
{
    if (!r->searches) return 0;
    const proa_beam_params *last = &r->search[r->searches - 1];
    return last->row + last->rows;
}

/* The head takes device_head_rows rows at a time; a piece can hold single rows, then rows of beams. */
static void sample_rows(proa_model *m, const proa_sample_request *r, int ticket)
{
    int64_t single = r->count, count = single + count_beam_rows(r);
    proa_device_processors processors = proa_staging_processors(m, r);
    proa_device_masks masks = proa_staging_masks(m, r);
    proa_sampled sampled = proa_staging_sampled(m, r, ticket);
    const int32_t *rows = proa_staging_rows(m, r->rows, count);
    const proa_sample_params *params = proa_staging_sample_params(m, r->sample_params, single);
    const proa_beam_params *beams = proa_staging_beam_params(m, r->search, r->searches);
    for (int64_t at = 0, n; at < count; at += n) {
        n = proa_min64(count - at, m->plan.device_head_rows);
        int64_t tokens = proa_max64(0, proa_min64(single - at, n));
        proa_view logits = proa_run_head(m, &m->plan.head, rows + at, n);
        if (tokens)
            sample_tokens(m, r, &sampled, proa_view_rows(logits, 0, tokens), params, &masks, &processors, at);
        if (tokens < n)
            find_candidates(m, r, &sampled, proa_view_rows(logits, tokens, n), proa_max64(0, at - single));
    }
    if (r->searches) m->ctx.ops->decode->beam_step(&m->ctx, beams, r->searches, &sampled.lists);
}

/* All ranks of the last stage choose the same tokens, since they have the same logits: none waits for another one's
 * choice. The other stages get them; or rank 0 alone, later. */
void proa_run_sample(proa_model *m, proa_rank_call *call)
{
    int ticket = call->ticket;
    if (proa_stage_is_last(m)) sample_rows(m, &call->sample, ticket);
    else proa_staging_sampled(m, &call->sample, ticket);
    if (call->sample.deferred && proa_staging_defer_sampled(m, ticket)) return;
    proa_stage_broadcast(m, proa_staging_sampled_block(m, ticket));
    proa_staging_send_sampled(m, ticket);
}

/* Rank 0 has all logits, or gets them. */
void proa_run_top_k(proa_model *m, proa_rank_call *call)
{
    int64_t count = call->count, k = call->k;
    proa_view out = proa_run_head(m, &m->plan.head, proa_staging_rows(m, call->rows, count), count);
    proa_stage_return(m, out);
    if (m->rank > 0) return;
    proa_top_k top = proa_staging_top_k(m, count, k);
    m->ctx.ops->log_sum_exp(&m->ctx, top.sums, out);
    m->ctx.ops->top_k(&m->ctx, proa_view_2d(top.logits, PROA_DTYPE_F32, count, k), top.ids, out, k);
    proa_staging_fetch_top_k(m, count, k, call->top_ids, call->top_logits, call->sums);
}
