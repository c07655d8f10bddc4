/* SPDX-License-Identifier: Apache-2.0
 * http.c - requests: from the codec's events to a handler, one at a time for each connection. Requests that a client
 * sends ahead wait as bytes, so answers come in order and cost nothing while they wait. */
#include "net/http.h"

#include "base/alloc.h"
#include "net/block.h"
#include "net/conn_inner.h"
#include "net/http_inner.h"
#include <stdlib.h>
#include <string.h>

#define COUNT_BYTES  ((size_t)1 << 20) /* a body is counted in such steps, as it arrives */
#define DIRECT_BYTES 4096              /* so much of a chunk is read straight to its place */

static int64_t parse_requests(proa_http_conn *h, const char *bytes, size_t len);

/* ---- the head ---- */

static proa_str span_str(const char *base, proa_http1_span span)
{
    return (proa_str){base + span.at, span.len};
}

/* Copies the head into the exchange, because its bytes are in the loop's scratch buffer. */
static void keep_head(proa_http_work *w, const char *bytes, size_t len)
{
    const proa_http1 *c = &w->codec;
    char *head = proa_arena_alloc(&w->arena, len);
    memcpy(head, bytes, len);
    for (int i = 0; i < c->fields_count; i++)
        w->headers[i] = (proa_http_header){span_str(head, c->fields[i].name), span_str(head, c->fields[i].value)};
    w->x.headers_count = c->fields_count;
    w->x.method = span_str(head, c->method);
    w->is_head = proa_str_is(w->x.method, "HEAD");
}

/* So many bytes of the body have arrived. Received bytes are counted, not announced ones: a false length takes nothing
 * from other clients. */
static bool count_body(proa_http_work *w, size_t bytes)
{
    if (bytes < PROA_INFLIGHT_COUNTED_MIN) return true;
    size_t step = (bytes / COUNT_BYTES + 1) * COUNT_BYTES;
    return proa_block_count(w->x.body, step < w->body_cap ? step : w->body_cap);
}

/* Makes room for that many bytes of the body in all; moves the received ones if necessary. */
static bool reserve_body(proa_http_work *w, size_t bytes)
{
    if (bytes < w->body_cap) return true;
    if (bytes >= PROA_INFLIGHT_BYTES_MAX) return false;
    /* A chunked body grows: its sum is not known. */
    char *body = proa_block_get(bytes < 2 * w->body_cap ? 2 * w->body_cap : bytes + 1), *old = w->x.body;
    if (!body) return false;
    if (w->x.body_len) memcpy(body, old, w->x.body_len);
    proa_block_free(old);
    w->x.body = body;
    w->body_cap = proa_block_bytes(body);
    return count_body(w, w->x.body_len);
}

static void refuse_memory(proa_http_conn *h)
{
    proa_http_refuse(h, 503, PROA_INFLIGHT_FULL);
}

static int64_t body_limit(const proa_http_conn *h)
{
    const proa_http_server *server = h->server;
    if (server->body_limit) return server->body_limit(&h->work->x, server->arg);
    return server->body_max > 0 ? server->body_max : PROA_HTTP_BODY_MAX;
}

static bool is_refused(const proa_http_conn *h)
{
    const proa_http_server *server = h->server;
    if (PROA_LIKELY(!proa_conn_reserved(h->conn))) return false;
    return server->may_use_reserve && !server->may_use_reserve(&h->work->x, server->arg);
}

static void on_head(proa_http_conn *h, const char *bytes, size_t head_len, size_t len)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    proa_http_work *w = h->work;
    proa_http1 *c = &w->codec;
    keep_head(w, bytes, head_len);
    if (!proa_http1_split((proa_str){w->x.method.ptr + (c->target.at - c->method.at), c->target.len},
                          &w->x.path, &w->x.query)) {
        proa_http_refuse(h, 400, "the request target is malformed");
        return;
    }
    if (is_refused(h)) {
        proa_http_refuse(h, 503, "too many connections: the server has no more file descriptors");
        return;
    }
    if (!c->chunked && c->content_length <= 0) return;
    c->body_max = body_limit(h);
    if (c->content_length > c->body_max) {
        proa_http_refuse(h, 413, "the request body is too large");
    } else if (c->content_length > 0 && !reserve_body(w, (size_t)c->content_length)) {
        refuse_memory(h);
    } else if (c->expect_continue && head_len == len) {
        struct iovec iov = {(void *)go_on, sizeof go_on - 1};
        proa_conn_write(h->conn, &iov, 1, NULL, NULL);
    }
}

/* ---- the body ---- */

static void on_data(proa_http_conn *h)
{
    proa_http_work *w = h->work;
    proa_str data = w->codec.data;
    if (!reserve_body(w, w->x.body_len + data.len) || !count_body(w, w->x.body_len + data.len)) {
        refuse_memory(h);
        return;
    }
    memcpy(w->x.body + w->x.body_len, data.ptr, data.len);
    w->x.body_len += data.len;
}

static void http_progress(void *state, size_t got)
{
    proa_http_conn *h = state;
    if (h->work && !count_body(h->work, h->work->x.body_len + got)) refuse_memory(h);
}

static void on_direct(void *arg, size_t got)
{
    proa_http_conn *h = arg;
    proa_http_work *w = h->work;
    if (!w || h->closing || (int64_t)got < proa_http1_wanted(&w->codec)) return; /* the connection ends */
    w->x.body_len += got;
    proa_http1_took(&w->codec, (int64_t)got);
    parse_requests(h, "", 0);
}

/* All received bytes are consumed and many are missing: from here on they are read straight into the body. */
static void read_direct(proa_http_conn *h)
{
    proa_http_work *w = h->work;
    int64_t wanted = proa_http1_wanted(&w->codec);
    if (wanted == 0 || (w->codec.chunked && wanted < DIRECT_BYTES)) return;
    if (!reserve_body(w, w->x.body_len + (size_t)wanted)) refuse_memory(h);
    else proa_conn_read_into(h->conn, w->x.body + w->x.body_len, (size_t)wanted, on_direct, h);
}

static bool is_long(const proa_http_conn *h)
{
    const proa_http_server *server = h->server;
    const proa_http_exchange *x = &h->work->x;
    return x->body_len >= PROA_WORKER_PACKED_BYTES_MIN && server->workers && server->is_long(x, server->arg);
}

static void on_end(proa_http_conn *h)
{
    proa_http_work *w = h->work;
    if (w->x.body) w->x.body[w->x.body_len] = '\0';
    h->keep = w->codec.keep_alive;
    h->dispatched = true;
    if (PROA_UNLIKELY(is_long(h))) {
        if (!proa_http_offload_request(h)) proa_http_busy(h);
    } else h->server->on_request(&w->x, h->server->arg); /* w may have been freed after this */
}

/* ---- the connection ---- */

static void on_event(proa_http_conn *h, proa_http1_event event, const char *bytes, size_t used, size_t len)
{
    switch (event) {
    case PROA_HTTP1_HEAD: on_head(h, bytes, used, len); break;
    case PROA_HTTP1_DATA: on_data(h); break;
    case PROA_HTTP1_END: on_end(h); break;
    case PROA_HTTP1_BAD: proa_http_refuse(h, h->work->codec.status, h->work->codec.why); break;
    default: break;
    }
}

/* May the next request be looked at? Not while the one before has no answer, and not while too many answers wait. */
static bool is_ready(proa_http_conn *h)
{
    h->reading_held = proa_conn_queued(h->conn) > PROA_CONN_HIGH_BYTES;
    return !h->dispatched && !h->closing && !h->reading_held;
}

/* Returns how many bytes are used, or -1 if the connection ends. */
static int64_t parse_requests(proa_http_conn *h, const char *bytes, size_t len)
{
    size_t at = 0;
    h->inside = true;
    while (is_ready(h)) {
        if (!h->work && at == len) break;
        if (!h->work) proa_http_begin_exchange(h);
        size_t used;
        proa_http1_event event = proa_http1_next(&h->work->codec, bytes + at, len - at, &used);
        on_event(h, event, bytes + at, used, len - at);
        at += used;
        if (event == PROA_HTTP1_MORE) {
            if (at == len) read_direct(h);
            break;
        }
    }
    h->inside = false;
    if (h->closing) proa_http_end_conn(h);
    else proa_http_set_timing(h);
    return h->closing ? -1 : (int64_t)at;
}

static void *http_open(proa_conn *conn, void *server)
{
    proa_http_conn *h = proa_malloc(sizeof *h);
    *h = (proa_http_conn){.conn = conn, .server = server};
    proa_http_set_timing(h);
    return h;
}

static int64_t http_input(void *state, const char *bytes, size_t len)
{
    return parse_requests(state, bytes, len);
}

/* Is neither a request nor a part of one buffered? */
static bool is_quiet(const proa_http_conn *h)
{
    return !h->work && h->conn->in_len == 0;
}

static void http_drained(void *state)
{
    proa_http_conn *h = state;
    if (h->reading_held) proa_conn_again(h->conn);
    if (h->draining && is_quiet(h)) proa_http_end_conn(h);
    proa_http_work *w = h->dispatched ? h->work : NULL;
    if (!w || w->offloaded || !w->drained) return;
    void (*drained)(proa_http_exchange * x) = w->drained;
    w->drained = NULL;
    drained(&w->x);
}

static bool http_eof(void *state)
{
    proa_http_conn *h = state;
    if (h->dispatched) proa_http_leave_handler(h);
    proa_http_end_conn(h);
    return true;
}

static void http_shutdown(void *state)
{
    proa_http_conn *h = state;
    h->draining = true;
    if (!is_quiet(h)) return;
    bool answered = proa_conn_queued(h->conn) == 0; /* a client that may still read the answer needs the linger */
    proa_http_end_conn(h);
    if (answered) proa_conn_close_idle(h->conn);
}

static bool http_expired(void *state)
{
    proa_http_conn *h = state;
    if (!h->work && proa_conn_queued(h->conn) > 0) { /* the client still reads the answer before: it is not idle */
        proa_http_set_timing(h);
        return true;
    }
    if (!h->work || h->dispatched) return false;
    proa_http_refuse(h, 408, "the request did not come in time");
    return true;
}

static void http_close(void *state)
{
    proa_http_conn *h = state;
    h->closing = true;
    if (h->dispatched) proa_http_leave_handler(h);
    else if (h->work) proa_http_drop_exchange(h);
    free(h);
}

static bool http_quiet(const void *state)
{
    const proa_http_conn *h = state;
    return !h->work || (!h->dispatched && h->work->x.method.len == 0);
}

const proa_protocol proa_http_protocol = {
    .alpn = "http/1.1",
    .open = http_open,
    .input = http_input,
    .drained = http_drained,
    .eof = http_eof,
    .shutdown = http_shutdown,
    .close = http_close,
    .expired = http_expired,
    .progress = http_progress,
    .quiet = http_quiet,
    .turn_away = proa_http_turn_away,
};
