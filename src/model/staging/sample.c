/* SPDX-License-Identifier: Apache-2.0
 * sample.c - what the model samples: parameters on their way to the device, tokens on their way to the host. */
#include "model/staging/state.h"

#include "base/checked.h"
#include "model/ranks/ranks.h"
#include "model/ranks/stage.h"
#include "model/run.h"
#include <string.h>

/* ---- results ---- */

/* Points *r at its lists, one behind the other in `memory`, and returns their bytes. The ids come first. */
static int64_t lay_out_sampled(proa_sampled *r, char *memory, const proa_sampled_counts *n)
{
    int64_t at = 0;
    r->ids = proa_staging_carve(memory, &at, n->tokens);
    r->sums = proa_staging_carve(memory, &at, n->tokens);
    r->logits = proa_staging_carve(memory, &at, n->logits);
    r->top_ids = proa_staging_carve(memory, &at, n->top);
    r->top_logits = proa_staging_carve(memory, &at, n->top);
    if (!n->rows) return at;
    proa_beam_lists *l = &r->lists;
    l->tokens = r->ids;
    l->parents = proa_staging_carve(memory, &at, n->tokens);
    l->ids = proa_staging_carve(memory, &at, n->entries);
    l->logits = proa_staging_carve(memory, &at, n->entries);
    l->sums = proa_staging_carve(memory, &at, n->rows);
    return at;
}

int64_t proa_sampled_bytes(const proa_model *m)
{
    int64_t rows = m->plan.sampled_rows;
    return 4 * 4 * rows + rows * (8 * PROA_TOP_MAX + 4) + 256;
}

static proa_sampled_counts count_sampled(const proa_sample_request *r)
{
    proa_sampled_counts n = {.tokens = r->count, .top = r->count * r->top};
    if (r->logits) n.logits = r->count;
    for (int64_t i = 0; i < r->searches; i++) {
        const proa_beam_params *beams = &r->search[i];
        n.tokens += beams->beams;
        n.rows += beams->rows;
        n.entries += (int64_t)beams->rows * beams->each;
    }
    return n;
}

proa_sampled proa_staging_sampled(proa_model *m, const proa_sample_request *r, int ticket)
{
    proa_staging *s = m->staging;
    proa_sampled sampled = {.lists = {.scores = s->beam_scores, .hyps = s->beam_hyps}};
    proa_sampled_counts n = s->received_counts[ticket] = count_sampled(r);
    s->deferred[ticket] = r->deferred;
    int64_t bytes = lay_out_sampled(&sampled, s->sampled, &n);
    PROA_ASSERT(n.tokens <= m->plan.sampled_rows && bytes <= proa_sampled_bytes(m));
    s->beam_parents = sampled.lists.parents;
    return sampled;
}

void proa_staging_send_sampled(proa_model *m, int ticket)
{
    proa_staging *s = m->staging;
    proa_sampled sampled = {.ids = NULL};
    int64_t bytes = lay_out_sampled(&sampled, s->sampled, &s->received_counts[ticket]);
    m->device->send(m->device, s->received[ticket], s->sampled, bytes, ticket);
}

proa_view proa_staging_sampled_block(proa_model *m, int ticket)
{
    proa_staging *s = m->staging;
    proa_sampled sampled = {.ids = NULL};
    int64_t bytes = lay_out_sampled(&sampled, s->sampled, &s->received_counts[ticket]);
    return proa_view_2d(s->sampled, PROA_DTYPE_I32, 1, proa_round_up(bytes, 16) / 4);
}

/* ---- tokens of the last stage that the first one does not wait for ---- */

_Static_assert(PROA_STEPS_MAX <= PROA_COMM_KEPT,
               "the last stage waits for rank 0, which may be waiting for the last stage");
_Static_assert(PROA_STEPS_MAX <= PROA_SEND_TICKETS, "each step in flight has a ticket of the device");

static int64_t deferred_stride(const proa_model *m)
{
    return proa_round_up(m->plan.sampled_rows, 4);
}

int64_t proa_deferred_bytes(const proa_model *m)
{
    bool receives = !m->device->host && m->plan.part.stages > 1 && m->plan.part.stage == 0;
    return receives ? PROA_STEPS_MAX * 4 * deferred_stride(m) : 0;
}

/* Of what was sampled with a ticket the first stage gets all words on the host, the ids on a device: the host of rank
 * 0 gets the rest from the last stage's device. */
static int64_t deferred_words(const proa_model *m, int ticket)
{
    const proa_sampled_counts *n = &m->staging->received_counts[ticket];
    proa_sampled unused = {.ids = NULL};
    if (!m->device->host) return proa_round_up(n->tokens, 4);
    return proa_round_up(lay_out_sampled(&unused, m->staging->sampled, n), 16) / 4;
}

bool proa_staging_defer_sampled(proa_model *m, int ticket)
{
    proa_staging *s = m->staging;
    int64_t words = deferred_words(m, ticket);
    if (m->device->host && 4 * words > PROA_COMM_KEPT_BYTES) return false;
    if (m->device->host && m->plan.part.tensor > 0) return true;
    if (m->plan.part.stage == 0) {
        if (!m->pipe_waits) s->awaited[s->awaited_count++] = ticket;
    } else if (proa_stage_is_last(m)) {
        if (!m->device->host) proa_staging_send_sampled(m, ticket);
        if (!m->pipe_waits) m->pipe->send(m->pipe, proa_view_2d(s->sampled, PROA_DTYPE_I32, 1, words), 0);
    }
    return true;
}

static void receive_first(proa_model *m)
{
    proa_staging *s = m->staging;
    int ticket = s->awaited[0];
    void *to = s->received[ticket];
    if (!m->device->host) to = s->deferred_ids + ticket * deferred_stride(m);
    s->awaited_count--;
    memmove(s->awaited, s->awaited + 1, (size_t)s->awaited_count * sizeof *s->awaited);
    m->pipe->recv(m->pipe, proa_view_2d(to, PROA_DTYPE_I32, 1, deferred_words(m, ticket)), m->pipe->ranks - 1);
}

void proa_staging_receive_sampled(proa_model *m)
{
    while (m->staging->awaited_count > 0) receive_first(m);
}

static bool is_awaited(const proa_staging *s, int ticket)
{
    bool awaited = false;
    for (int32_t i = 0; i < s->awaited_count; i++) awaited = awaited || s->awaited[i] == ticket;
    return awaited;
}

static void receive_until(proa_model *m, int ticket)
{
    while (is_awaited(m->staging, ticket)) receive_first(m);
}

const int32_t *proa_staging_deferred_ids(proa_model *m, int ticket)
{
    receive_until(m, ticket);
    return m->staging->deferred_ids + ticket * deferred_stride(m);
}

int32_t proa_staging_rank_with_results(const proa_model *m)
{
    return (m->plan.part.stages - 1) * m->plan.part.tensors;
}

/* The results of a ticket go to the host of rank 0, where ranks are processes. After a failure there are none: rank 0
 * waits until it learns that this rank has ended. */
static proa_status move_results(proa_model *m, int ticket, proa_err *err)
{
    proa_comm *control = proa_ranks_control(m);
    proa_staging *s = m->staging;
    proa_sampled unused = {.ids = NULL};
    if (!control) return PROA_OK;
    int64_t bytes = lay_out_sampled(&unused, s->received[ticket], &s->received_counts[ticket]);
    proa_view results = proa_view_2d(s->received[ticket], PROA_DTYPE_U8, 1, bytes);
    if (m->rank == 0) control->recv(control, results, proa_staging_rank_with_results(m));
    if (m->rank != proa_staging_rank_with_results(m)) return PROA_OK;
    PROA_TRY(proa_ranks_check(m, err));
    control->send(control, results, 0);
    return PROA_OK;
}

/* The first stage receives what is still awaited, so that the last one, which can be a few messages ahead, goes on. */
proa_status proa_run_sampled(proa_model *m, const proa_rank_call *call, proa_err *err)
{
    if (m->plan.part.stage == 0) receive_until(m, call->ticket);
    else if (proa_stage_is_last(m)) m->device->sent(m->device, call->ticket);
    return move_results(m, call->ticket, err);
}

bool proa_staging_is_deferred(const proa_model *m, int ticket)
{
    return !m->device->host && m->staging->deferred[ticket];
}

void proa_staging_wait_sampled(proa_model *m, int ticket)
{
    receive_until(m, ticket);
    m->device->sent(m->device, ticket);
}

proa_sampled proa_staging_received(const proa_model *m, const proa_model *from, int ticket)
{
    proa_sampled sampled = {.ids = NULL};
    lay_out_sampled(&sampled, from->staging->received[ticket], &m->staging->received_counts[ticket]);
    return sampled;
}

/* ---- parameters ---- */

const proa_sample_params *proa_staging_sample_params(proa_model *m, const proa_sample_params *params, int64_t count)
{
    if (!params || m->device->host) return params;
    m->device->upload(m->device, m->staging->sample_params, params, count * (int64_t)sizeof *params);
    return m->staging->sample_params;
}

/* The parameters rarely change from step to step, so they are uploaded only when they differ from the device's. */
const proa_beam_params *proa_staging_beam_params(proa_model *m, const proa_beam_params *params, int64_t count)
{
    proa_staging *s = m->staging;
    int64_t bytes = count * (int64_t)sizeof *params;
    if (!count || m->device->host) return params;
    if (count == s->uploaded_beams && memcmp(s->uploaded_beam_params, params, (size_t)bytes) == 0)
        return s->beam_params;
    memcpy(s->uploaded_beam_params, params, (size_t)bytes);
    s->uploaded_beams = count;
    m->device->upload(m->device, s->beam_params, params, bytes);
    return s->beam_params;
}

/* In pieces: longer uploads are spread over all cores, as for weights, and a step should not wake them. */
static void upload_pieces(proa_model *m, void *to, const void *from, int64_t bytes)
{
    enum { PIECE = 768 << 10 };
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = proa_min64(bytes - at, PIECE);
        m->device->upload(m->device, (char *)to + at, (const char *)from + at, n);
    }
}

proa_device_processors proa_staging_processors(proa_model *m, const proa_sample_request *r)
{
    proa_staging *s = m->staging;
    int64_t n = r->count;
    proa_device_processors p = {r->row_processors, r->entries, s->last_ids};
    const int32_t *sampled = (const int32_t *)(const void *)s->sampled;
    if (!r->row_processors || !n) return (proa_device_processors){NULL, NULL, NULL};
    m->device->upload(m->device, s->last_ids, r->last_sampled_at, n * 4); /* -1 stays where the host knows the token */
    m->device->upload(m->device, s->last_sampled_at, r->last_sampled_at, n * 4);
    m->ctx.ops->decode->gather_token_ids(&m->ctx, s->last_ids, sampled, s->last_sampled_at, n);
    if (m->device->host) return p;
    PROA_ASSERT(r->entries_count <= PROA_LOGITS_ENTRIES_MAX);
    m->device->upload(m->device, s->row_processors, r->row_processors, n * (int64_t)sizeof *r->row_processors);
    upload_pieces(m, s->entries, r->entries, r->entries_count * (int64_t)sizeof *r->entries);
    p.rows = s->row_processors, p.entries = s->entries;
    return p;
}

proa_device_masks proa_staging_masks(proa_model *m, const proa_sample_request *r)
{
    proa_staging *s = m->staging;
    int64_t words = proa_ceil_div(m->plan.width[PROA_REG_OUT], 32);
    if (!r->mask_of || m->device->host) return (proa_device_masks){r->masks, r->mask_of};
    PROA_ASSERT(r->masks_count <= m->plan.sampled_rows);
    m->device->upload(m->device, s->mask_of, r->mask_of, 4 * r->count);
    upload_pieces(m, s->masks, r->masks, 4 * r->masks_count * words);
    return (proa_device_masks){s->masks, s->mask_of};
}

/* ---- top-k ---- */

int64_t proa_top_k_bytes(const proa_model *m)
{
    return proa_max64(1, m->plan.head_rows) * (8 * PROA_TOP_MAX + 4);
}

proa_top_k proa_staging_top_k(proa_model *m, int64_t count, int64_t k)
{
    PROA_ASSERT(count <= m->plan.head_rows && k <= PROA_TOP_MAX);
    int32_t *ids = m->staging->top_k;
    float *logits = (float *)(void *)(ids + count * k);
    return (proa_top_k){ids, logits, logits + count * k};
}

/* Ticket 0 may be that of a step in flight: waiting for the later copy waits for both. */
void proa_staging_fetch_top_k(proa_model *m, int64_t count, int64_t k, int32_t *ids, float *logits, float *sums)
{
    char *received = m->staging->received_top_k;
    m->device->send(m->device, received, m->staging->top_k, 4 * (2 * count * k + count), 0);
    m->device->sent(m->device, 0);
    memcpy(ids, received, (size_t)(count * k) * sizeof *ids);
    memcpy(logits, received + 4 * count * k, (size_t)(count * k) * sizeof *logits);
    memcpy(sums, received + 8 * count * k, (size_t)count * sizeof *sums);
}
