/* SPDX-License-Identifier: Apache-2.0
 * http_offload.c - requests that a worker handles: offloaded to it with their arena and body, and answered when they
 * are back. The connection waits for the answer as it does for one that the loop's thread makes, so the order of
 * pipelined requests holds. */
#include "net/http_inner.h"

#include "base/alloc.h"

/* ---- on the worker ---- */

static void run_offloaded(proa_work_item *work)
{
    proa_http_offloaded *l = (proa_http_offloaded *)work;
    if (l->is_request && atomic_load(&l->lost))
        return; /* the client has disconnected, and no handler knows of the request */
    l->begun = true;
    proa_handoff_enter(l->handoff);
    l->handle(&l->w->x, l->arg);
    proa_handoff_leave();
}

/* ---- back on the loop ---- */

/* After the last of these the exchange has ended. */
static void replay_call(proa_http_exchange *x, const proa_http_deferred *s)
{
    switch (s->kind) {
    case PROA_HTTP_RESPOND: proa_http_respond(x, s->status, s->headers, s->body); break;
    case PROA_HTTP_BEGIN: proa_http_begin(x, s->status, s->headers); break;
    case PROA_HTTP_SEND: proa_http_send(x, s->headers); break;
    case PROA_HTTP_END: proa_http_end(x); break;
    case PROA_HTTP_ABORT: proa_http_abort(x); break;
    }
}

static void replay_all(proa_http_work *w, const proa_http_deferred *deferred)
{
    if (w->drained) proa_conn_want_drained(w->x.conn);
    for (const proa_http_deferred *next; deferred; deferred = next) {
        next = deferred->next; /* the end of the exchange releases its arena */
        replay_call(&w->x, deferred);
    }
}

/* The client disconnected while the exchange was offloaded. */
static void end_lost(proa_http_work *w, const proa_http_offloaded *l)
{
    for (const proa_http_deferred *s = l->deferred; s; s = s->next)
        if (s->body.release) s->body.release(s->body.arg);
    if (l->begun && !l->ended && w->on_disconnect) w->on_disconnect(&w->x);
    proa_http_give_work(w);
}

static void on_worker_done(proa_work_item *work)
{
    proa_http_offloaded *l = (proa_http_offloaded *)work;
    proa_http_work *w = l->w;
    proa_handoff_finish(l->handoff);
    w->offloaded = NULL;
    if (w->owner) replay_all(w, l->deferred);
    else end_lost(w, l);
    proa_handoff_run_waiting(l->handoff);
    proa_handoff_drop(l->handoff);
    free(l);
}

static bool offload_exchange(proa_http_work *w, bool is_request,
                             void (*handle)(proa_http_exchange *x, void *arg), void *arg)
{
    proa_http_offloaded *l = proa_calloc(1, sizeof *l);
    l->work = (proa_work_item){.loop = w->loop, .run = run_offloaded, .done = on_worker_done};
    l->w = w;
    l->is_request = is_request;
    l->handle = handle;
    l->arg = arg;
    l->handoff = proa_handoff_new();
    l->last = &l->deferred;
    w->offloaded = l;
    if (proa_workers_start(w->owner->server->workers, &l->work)) return true;
    w->offloaded = NULL;
    proa_handoff_drop(l->handoff);
    free(l);
    return false;
}

bool proa_http_offload_request(proa_http_conn *h)
{
    return offload_exchange(h->work, true, h->server->on_request, h->server->arg);
}

bool proa_http_offload(proa_http_exchange *x, void (*handle)(proa_http_exchange *x, void *arg), void *arg)
{
    proa_http_work *w = (proa_http_work *)x;
    return !w->offloaded && w->owner->server->workers && offload_exchange(w, false, handle, arg);
}
