/* SPDX-License-Identifier: Apache-2.0
 * http_exchange.c - an exchange from its first byte until its answer is queued: its memory, its time limits, its end,
 * and what a handler may ask of it. */
#include "net/http.h"

#include "base/alloc.h"
#include "net/block.h"
#include "net/conn_inner.h"
#include "net/http_inner.h"
#include <stdlib.h>
#include <string.h>

#define SPARE_MAX (PROA_ASAN ? 0 : 64) /* spare exchanges of a loop, each 7 KB and the memory of its arena */

/* ---- memory ---- */

static void release_spare(void *list)
{
    for (proa_http_work *w = list, *next; w; w = next) {
        next = w->next;
        proa_arena_release(&w->arena);
        free(w);
    }
}

/* The codec and the headers are not cleared: they say themselves how much of them is valid. */
static proa_http_work *take_work(proa_loop *loop)
{
    proa_http_work *w = loop->spare;
    if (w) {
        loop->spare = w->next;
        loop->spare_count--;
        return w;
    }
    w = proa_malloc(sizeof *w);
    proa_arena_init(&w->arena);
    return w;
}

void proa_http_give_work(proa_http_work *w)
{
    proa_loop *loop = w->loop;
    proa_block_free(w->x.body);
    if (loop->spare_count >= SPARE_MAX) {
        proa_arena_release(&w->arena);
        free(w);
        return;
    }
    proa_arena_reset(&w->arena);
    w->next = loop->spare;
    loop->spare = w;
    loop->spare_count++;
    loop->release_spare = release_spare;
}

/* ---- the exchange of a connection ---- */

void proa_http_begin_exchange(proa_http_conn *h)
{
    proa_http_work *w = take_work(h->conn->loop);
    memset(w, 0, offsetof(proa_http_work, arena));
    w->on_disconnect = w->drained = NULL;
    w->body_cap = 0;
    w->is_head = w->begun = w->pieces = false;
    w->owner = h;
    w->offloaded = NULL;
    w->loop = h->conn->loop;
    w->x.conn = h->conn;
    w->x.arena = &w->arena;
    w->x.headers = w->headers;
    w->x.start_ns = proa_loop_now_ns(h->conn->loop);
    proa_http1_init(&w->codec);
    h->work = w;
    h->timing = PROA_HTTP_IDLE; /* so that each head has its own time */
}

/* Takes the exchange off the connection. */
static proa_http_work *detach_work(proa_http_conn *h)
{
    proa_http_work *w = h->work;
    h->work = NULL;
    h->dispatched = false;
    return w;
}

void proa_http_drop_exchange(proa_http_conn *h)
{
    proa_http_give_work(detach_work(h));
}

void proa_http_set_timing(proa_http_conn *h)
{
    const proa_listen_options *options = proa_conn_options(h->conn);
    int was = (int)h->timing;
    if (!h->work) h->timing = PROA_HTTP_IDLE;
    else if (h->dispatched) h->timing = PROA_HTTP_BUSY;
    else h->timing = h->work->x.method.len ? PROA_HTTP_BODY : PROA_HTTP_HEAD;
    switch (h->timing) {
    case PROA_HTTP_IDLE: proa_conn_deadline(h->conn, options->idle_ms); break;
    case PROA_HTTP_BODY: proa_conn_deadline(h->conn, options->stall_ms); break;
    case PROA_HTTP_HEAD:
        if (was != PROA_HTTP_HEAD) proa_conn_deadline(h->conn, options->head_ms);
        break;
    default: proa_conn_deadline(h->conn, 0); /* the handler has no time limit */
    }
}

void proa_http_end_conn(proa_http_conn *h)
{
    h->closing = true;
    proa_conn_deadline(h->conn, 0);
    proa_conn_close(h->conn, false);
}

void proa_http_finish(proa_http_conn *h)
{
    proa_http_drop_exchange(h);
    if (!h->keep || h->draining) h->closing = true;
    if (h->inside) return; /* parse_requests continues */
    if (h->closing) {
        proa_http_end_conn(h);
        return;
    }
    proa_http_set_timing(h);
    proa_conn_again(h->conn);
}

void proa_http_leave_handler(proa_http_conn *h)
{
    proa_http_work *w = detach_work(h);
    if (w->offloaded) { /* on_disconnect is called when it is back on the loop */
        w->owner = NULL;
        atomic_store(&w->offloaded->lost, true);
        return;
    }
    if (w->on_disconnect) w->on_disconnect(&w->x);
    proa_http_give_work(w);
}

/* ---- for handlers ---- */

proa_loop *proa_http_loop(const proa_http_exchange *x)
{
    return ((const proa_http_work *)x)->loop;
}

size_t proa_http_queued(const proa_http_exchange *x)
{
    return ((const proa_http_work *)x)->offloaded ? 0 : proa_conn_queued(x->conn);
}

proa_str proa_http_get(const proa_http_exchange *x, const char *name)
{
    size_t len = strlen(name);
    for (int i = 0; i < x->headers_count; i++) {
        const proa_http_header *header = &x->headers[i];
        if (header->name.len == len && proa_http1_is(header->name, name)) return header->value;
    }
    return (proa_str){0};
}

void proa_http_on_disconnect(proa_http_exchange *x, void (*on_disconnect)(proa_http_exchange *x))
{
    ((proa_http_work *)x)->on_disconnect = on_disconnect;
}

void proa_http_on_drained(proa_http_exchange *x, void (*drained)(proa_http_exchange *x))
{
    proa_http_work *w = (proa_http_work *)x;
    w->drained = drained;
    if (drained && !w->offloaded) proa_conn_want_drained(x->conn);
}

void proa_http_body_free(void *body)
{
    proa_block_free(body);
}

char *proa_http_take_body(proa_http_exchange *x)
{
    char *body = x->body;
    x->body = NULL;
    return body;
}
