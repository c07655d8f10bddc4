/* SPDX-License-Identifier: Apache-2.0
 * request.c - what all phases of a request and its sequences share, and its end. */
#include "engine/sched/request.h"

#include "engine/engine.h"
#include "engine/speculate/speculate.h"
#include <stdlib.h>

bool proa_request_wants_all_rows(const proa_engine_request *req)
{
    return req->task != PROA_TASK_GENERATE || req->options.prompt_logprobs || req->search.contrast;
}

bool proa_request_has_place(const proa_engine_request *req)
{
    return req->input.place.head || req->input.place.pooled || req->input.place.rows;
}

proa_history proa_request_history(const proa_engine_request *req, const int32_t *generated, int64_t count)
{
    proa_history h = {
        .prompt = req->prompt + req->virtual_count, .generated = generated, .generated_count = count};
    h.prompt_count = req->prompt_count - req->virtual_count;
    h.source = req->input.ids ? req->input.ids : h.prompt;
    h.source_count = req->input.ids ? req->input.count : h.prompt_count;
    return h;
}

/* Whether it waits for another sequence of its request to run the prompt for all. */
static bool waits_for_prompt(const proa_seq *seq)
{
    return seq->index != seq->req->leader && seq->length < seq->req->prompt_count;
}

/* Whether the host must receive its newest token first, which a later stage samples. The first stage on a device gets
 * the tokens of the oldest step by itself; logits processors and beams read them in the last stage, too. */
static bool is_behind(const proa_engine *e, const proa_seq *seq)
{
    const proa_async_steps *a = &e->async;
    if (seq->sampled_at < 0 || a->mode != PROA_SAMPLE_STAGES) return false;
    bool simple = !seq->req->search.beam && !seq->req->logits;
    return !(simple && a->follows && seq->sampled_ticket == a->step[0].ticket);
}

bool proa_seq_has_rows(const proa_engine *e, const proa_seq *seq)
{
    bool last = seq->sampled_at >= 0 && seq->known - seq->req->prompt_count >= seq->req->new_max;
    bool waits = waits_for_prompt(seq) || seq->verifying || is_behind(e, seq);
    return seq->finish == PROA_FINISH_NONE && seq->length < seq->known && !last && !waits;
}

/* Input vectors that the request has copied; NULL: the caller's, on a GPU, or none. */
static float *owned_vectors(const proa_engine_request *req)
{
    return req->input.memory.kind == PROA_MEMORY_CUDA ? NULL : req->input.embedded;
}

void proa_engine_request_free(proa_engine_request *req)
{
    if (!req) return;
    if (req->seq) proa_speculate_release(req);
    for (int32_t i = 0; i < req->width && req->seq; i++) {
        proa_detok_free(req->seq[i].detok);
        proa_stop_release(&req->seq[i].stop);
        proa_buf_release(&req->seq[i].piece);
        proa_buf_release(&req->seq[i].shown);
        free(req->seq[i].ids);
    }
    void *all[] = {req->seq,           req->top,
                   req->input.ids,     req->prompt,
                   req->search.ids,    req->search.logprobs,
                   req->search.parent, req->search.token,
                   req->search.path,   req->search.path_next,
                   req->input.types,   req->search.probs,
                   req->search.hidden, owned_vectors(req),
                   req->encoded,       req->search.scores_row,
                   req->search.numbers};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
    proa_adapters_unref(req->adapter);
    proa_adapters_unref(req->table);
    proa_beam_free(req->search.beam);
    proa_contrastive_free(req->search.contrast);
    proa_logits_processor_free(req->logits);
    if (req->session) proa_sessions_end(req->session, NULL, 0, NULL, 0);
    proa_kv_namespace_release(req->space);
    proa_arena_release(&req->arena);
    free(req);
}
