/* SPDX-License-Identifier: Apache-2.0
 * http_lent.c - requests that a worker handles: lent to it with their arena and body, and answered when they are back. The
 * connection waits for the answer as it does for one that the loop's thread makes, so the order of pipelined requests holds. */
#include "net/http_inner.h"

#include "base/alloc.h"
#include "net/conn_inner.h"
#include <string.h>

/* ---- on the worker ---- */

static void run_lent(proa_work *work)
{
    proa_http_lent *l = (proa_http_lent *)work;
    if (l->is_request && atomic_load(&l->lost)) return; /* nobody waits for it, and nobody knows of it */
    l->begun = true;
    proa_loan_enter(l->loan);
    l->handle(&l->w->x, l->arg);
    proa_loan_leave();
}

void proa_http_say(proa_http_lent *l, proa_http_said said)
{
    proa_arena *arena = &l->w->arena;
    if (l->ended) {
        if (said.release) said.release(said.arg);
        return;
    }
    l->ended = said.kind == PROA_HTTP_RESPOND || said.kind == PROA_HTTP_END || said.kind == PROA_HTTP_ABORT;
    if (said.headers.len) said.headers.ptr = proa_arena_strdup(arena, said.headers);
    proa_http_said *s = PROA_ARENA_NEW(arena, proa_http_said, 1);
    *s = said;
    *l->last = s;
    l->last = &s->next;
}

void proa_http_say_body(proa_http_lent *l, int status, proa_str headers, const struct iovec *body, int count,
                        void (*release)(void *arg), void *arg)
{
    proa_arena *arena = &l->w->arena;
    struct iovec *copy = PROA_ARENA_NEW(arena, struct iovec, count);
    for (int i = 0; i < count; i++) {
        copy[i] = body[i];
        if (release || !body[i].iov_len) continue;
        copy[i].iov_base = proa_arena_alloc(arena, body[i].iov_len);
        memcpy(copy[i].iov_base, body[i].iov_base, body[i].iov_len);
    }
    proa_http_say(l, (proa_http_said){.kind = PROA_HTTP_RESPOND,
                                      .status = status,
                                      .headers = headers,
                                      .body = copy,
                                      .count = count,
                                      .release = release,
                                      .arg = arg});
}

/* ---- back on the loop ---- */

/* The exchange is gone after the last of these. */
static void say(proa_http_exchange *x, const proa_http_said *s)
{
    switch (s->kind) {
    case PROA_HTTP_RESPOND:
        proa_http_respond(x, s->status, s->headers, s->body, s->count, s->release, s->arg);
        break;
    case PROA_HTTP_BEGIN: proa_http_begin(x, s->status, s->headers); break;
    case PROA_HTTP_SEND: proa_http_send(x, s->headers); break;
    case PROA_HTTP_END: proa_http_end(x); break;
    case PROA_HTTP_ABORT: proa_http_abort(x); break;
    }
}

static void say_all(proa_http_work *w, const proa_http_said *said)
{
    if (w->drained) proa_conn_want_drained(w->x.conn);
    for (const proa_http_said *next; said; said = next) {
        next = said->next; /* with the exchange goes its arena */
        say(&w->x, said);
    }
}

/* The client left while it was lent. */
static void end_lost(proa_http_work *w, const proa_http_lent *l)
{
    for (const proa_http_said *s = l->said; s; s = s->next)
        if (s->release) s->release(s->arg);
    if (l->begun && !l->ended && w->gone) w->gone(&w->x);
    proa_http_give_work(w);
}

static void come_back(proa_work *work)
{
    proa_http_lent *l = (proa_http_lent *)work;
    proa_http_work *w = l->w;
    proa_loan_back(l->loan);
    w->lent = NULL;
    if (w->owner) say_all(w, l->said);
    else end_lost(w, l);
    proa_loan_run_waiting(l->loan);
    proa_loan_drop(l->loan);
    free(l);
}

static bool lend(proa_http_work *w, bool is_request, void (*handle)(proa_http_exchange *x, void *arg), void *arg)
{
    proa_http_lent *l = proa_calloc(1, sizeof *l);
    l->work = (proa_work){.loop = w->loop, .run = run_lent, .done = come_back};
    l->w = w;
    l->is_request = is_request;
    l->handle = handle;
    l->arg = arg;
    l->loan = proa_loan_new();
    l->last = &l->said;
    w->lent = l;
    if (proa_workers_start(w->owner->server->workers, &l->work)) return true;
    w->lent = NULL;
    proa_loan_drop(l->loan);
    free(l);
    return false;
}

bool proa_http_lend_request(proa_http_conn *h)
{
    return lend(h->work, true, h->server->on_request, h->server->arg);
}

bool proa_http_lend(proa_http_exchange *x, void (*handle)(proa_http_exchange *x, void *arg), void *arg)
{
    proa_http_work *w = (proa_http_work *)x;
    return !w->lent && w->owner->server->workers && lend(w, false, handle, arg);
}
