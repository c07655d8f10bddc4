/* SPDX-License-Identifier: Apache-2.0
 * inflight.c - what was submitted and whose results have not arrived, and requests that leave it. */
#include "engine/sched/inflight.h"

#include "engine/engine.h"

bool proa_inflight_any(const proa_engine *e)
{
    return e->async.count || e->head.fetched.count || e->encoder.count;
}

static void detach_from_logits(proa_fetched_logits *host, const proa_engine_request *req)
{
    for (int64_t i = 0; i < host->count; i++)
        if (host->requests[i].seq && host->requests[i].seq->req == req) host->requests[i].seq = NULL;
}

static void detach_from_step(proa_inflight_step *f, const proa_engine_request *req)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->pending_tokens[i].seq && f->pending_tokens[i].seq->req == req) f->pending_tokens[i].seq = NULL;
    for (int64_t i = 0; i < f->searches; i++)
        if (f->search_owner[i] == req) f->search_owner[i] = NULL;
}

/* Places are the caller's again when the request has ended: a pass that writes to them is waited for. */
static void detach_from_encoder(proa_engine *e, proa_encoder_pass *pass, const proa_engine_request *req)
{
    for (int64_t i = 0; i < pass->count; i++) {
        if (pass->input[i].req != req) continue;
        if (proa_request_has_place(req)) proa_model_wait_encoder_outputs(e->model, pass->ticket);
        pass->input[i].req = NULL;
    }
}

void proa_inflight_detach(proa_engine *e, const proa_engine_request *req)
{
    detach_from_logits(&e->head.fetched, req);
    for (int32_t n = 0; n < e->async.count; n++) detach_from_step(&e->async.step[n], req);
    if (req->phase != PROA_PHASE_ENCODE_INFLIGHT) return;
    for (int32_t n = 0; n < e->encoder.count; n++) detach_from_encoder(e, &e->encoder.pass[n], req);
}
