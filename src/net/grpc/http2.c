/* SPDX-License-Identifier: Apache-2.0
 * http2.c - an HTTP/2 connection that carries gRPC calls: nghttp2, flow control, keepalive, limits on abuse. */
#include "net/grpc/session.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

#define WINDOW_NS ((int64_t)10000000000) /* of the counts of resets and of control frames */
#define TOO_MANY_CONTINUATIONS                                                                               \
    (-905) /* NGHTTP2_ERR_TOO_MANY_CONTINUATIONS: older versions with the backported fix lack the name */
#define LAST_CALL_MS                                                                                         \
    1000 /* a client that does not answer the ping of a drain had enough time to read the GOAWAY */
static const uint8_t goaway_ping[8] = "goaway";

/* ---- writing ---- */

static int send_data(nghttp2_session *h2, nghttp2_frame *frame, const uint8_t *framehd, size_t length,
                     nghttp2_data_source *source, void *user)
{
    (void)h2, (void)frame; /* no padding: there is no callback that asks for it */
    proa_grpc_session_stage(user, framehd, 9);
    proa_grpc_call_write(source->ptr, length);
    return 0;
}

static void notify_calls(grpc_session *s)
{
    s->work_pending = false;
    for (grpc_call *c = s->calls, *next; c; c = next) {
        next = c->next; /* calls are freed by nghttp2's callbacks only, and none runs here */
        if (c->resume_due) {
            c->resume_due = false;
            proa_grpc_call_resume(c);
        }
        if (c->drained_due && c->owned) {
            c->drained_due = false;
            if (c->pub.on_drained) c->pub.on_drained(&c->pub);
        }
    }
}

/* What the callbacks send here is written in the next round. */
static void flush_staged(grpc_session *s)
{
    s->busy = true;
    do {
        if (s->work_pending) notify_calls(s);
        proa_grpc_session_pump(s);
    } while (s->work_pending);
    s->busy = false;
}

static void run_task(proa_loop_task *task)
{
    grpc_session *s = (grpc_session *)((char *)task - offsetof(grpc_session, task));
    s->posted = false;
    if (s->disconnected) free(s);
    else flush_staged(s);
}

/* ---- ends ---- */

/* The client abuses the connection (ENHANCE_YOUR_CALM): sends GOAWAY with the reason and ends it. */
static void end_abusive(grpc_session *s, const char *why)
{
    if (s->ending) return;
    s->ending = true;
    proa_conn_deadline(s->conn, PROA_STALL_MS);
    nghttp2_submit_goaway(s->h2, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(s->h2),
                          NGHTTP2_ENHANCE_YOUR_CALM, (const uint8_t *)why, strlen(why));
}

/* The client has seen the notice: streams that it has opened until now are served, later ones are not. */
static void name_last(grpc_session *s)
{
    if (s->last_named) return;
    s->last_named = true;
    nghttp2_submit_goaway(s->h2, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(s->h2),
                          NGHTTP2_NO_ERROR, NULL, 0);
    proa_grpc_session_flush_soon(s);
}

static void begin_drain(grpc_session *s)
{
    if (s->draining) return;
    s->draining = true;
    s->used_since = s->calls != NULL;
    s->drain_ns = proa_loop_now_ns(s->loop) + LAST_CALL_MS * NS_PER_MS;
    nghttp2_submit_shutdown_notice(s->h2);
    proa_grpc_session_wake(s, s->drain_ns);
    proa_grpc_session_flush_soon(s);
}

/* ---- good conduct ---- */

static void count_window(grpc_session *s)
{
    int64_t now = proa_loop_now_ns(s->loop);
    if (now - s->window_ns < WINDOW_NS) return;
    s->window_ns = now;
    s->resets = s->controls = 0;
}

static void count_reset(grpc_session *s)
{
    count_window(s);
    if (++s->resets > PROA_GRPC_RESETS_MAX) end_abusive(s, "too_many_resets");
}

static void count_control(grpc_session *s)
{
    count_window(s);
    if (++s->controls > PROA_GRPC_CONTROLS_MAX) end_abusive(s, "too_many_control_frames");
}

static int begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *user)
{
    grpc_session *s = user;
    (void)h2;
    bool useless = hd->type == NGHTTP2_SETTINGS || hd->type == NGHTTP2_PRIORITY ||
                   (hd->type == NGHTTP2_DATA && hd->length == 0 && !(hd->flags & NGHTTP2_FLAG_END_STREAM));
    if (!s->reading) {
        s->reading = true;
        proa_conn_deadline(s->conn, 0);
    }
    if (useless) count_control(s);
    return 0;
}

/* DATA that is padding and nothing else brings as little as an empty one, which begin_frame has counted. */
static bool is_padding(const nghttp2_frame *frame)
{
    return frame->hd.type == NGHTTP2_DATA && frame->hd.length > 0 && frame->data.padlen == frame->hd.length &&
           !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
}

/* gRPC's rule: pings measure, they must not be a load. What we send in between forgives (a client probes bandwidth). */
static void peer_pinged(grpc_session *s)
{
    int64_t now = proa_loop_now_ns(s->loop);
    bool early = s->peer_ping_ns && now - s->peer_ping_ns < PROA_GRPC_PING_MS * NS_PER_MS;
    s->peer_ping_ns = now;
    if (early && ++s->strikes > PROA_GRPC_PING_STRIKES) end_abusive(s, "too_many_pings");
}

static void frame_ping(grpc_session *s, const nghttp2_ping *ping)
{
    if (!(ping->hd.flags & NGHTTP2_FLAG_ACK)) peer_pinged(s);
    else if (s->draining && memcmp(ping->opaque_data, goaway_ping, sizeof goaway_ping) == 0) name_last(s);
    else s->ping_waits = false;
}

/* ---- nghttp2's calls ---- */

static grpc_call *call_of(nghttp2_session *h2, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(h2, stream);
}

static int begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    grpc_session *s = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST || s->ending)
        return 0;
    grpc_call *c = proa_grpc_call_new(s, frame->hd.stream_id);
    s->used_since = true;
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, c);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
    (void)flags, (void)user;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0; /* a client has no trailers in gRPC */
    grpc_call *c = call_of(h2, frame->hd.stream_id);
    if (c)
        proa_grpc_call_header(c, (proa_str){(const char *)name, name_len},
                              (proa_str){(const char *)value, value_len});
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    grpc_session *s = user;
    if (frame->hd.type == NGHTTP2_PING) frame_ping(s, &frame->ping);
    if (is_padding(frame)) count_control(s);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    grpc_call *c = call_of(h2, frame->hd.stream_id);
    if (!c || s->ending) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        proa_grpc_call_start(c);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) proa_grpc_call_half_close(c);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data, size_t len, void *user)
{
    grpc_session *s = user;
    (void)flags;
    nghttp2_session_consume_connection(h2, len); /* a call that is held back must not hold back the others */
    grpc_call *c = call_of(h2, stream);
    if (c && !c->finished && !s->ending) proa_grpc_call_data(c, (const char *)data, len);
    else nghttp2_session_consume_stream(h2, stream, len);
    return 0;
}

static int stream_closed(nghttp2_session *h2, int32_t stream, uint32_t error_code, void *user)
{
    grpc_session *s = user;
    grpc_call *c = call_of(h2, stream);
    if (!c) return 0;
    /* the client's, whatever code it gives, or nghttp2's for a frame that broke the rules */
    if (!c->cut && (error_code != NGHTTP2_NO_ERROR || !c->left)) count_reset(s);
    nghttp2_session_set_stream_user_data(h2, stream, NULL);
    proa_grpc_call_disconnected(c);
    proa_grpc_call_free(c);
    return 0;
}

/* Trailers were sent while the client still sends: the rest of the request is not needed. */
static int frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    grpc_session *s = user;
    /* the answer to this ping shows that the notice was read: nghttp2 would send it before the notice */
    if (frame->hd.type == NGHTTP2_GOAWAY && s->draining && !s->last_named)
        nghttp2_submit_ping(h2, NGHTTP2_FLAG_NONE, goaway_ping);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    s->strikes = 0;
    s->peer_ping_ns = 0;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    grpc_call *c = call_of(h2, frame->hd.stream_id);
    if (!c) return 0;
    c->left = true;
    if (!c->half_closed)
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

/* A head or trailers that nghttp2 does not send (it makes none of more than 64 KiB): without them the client would wait
 * for ever. */
static int frame_not_sent(nghttp2_session *h2, const nghttp2_frame *frame, int error, void *user)
{
    (void)error, (void)user;
    grpc_call *c = frame->hd.type == NGHTTP2_HEADERS ? call_of(h2, frame->hd.stream_id) : NULL;
    if (!c || c->cut) return 0;
    c->cut = true;
    nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

/* ---- time ---- */

/* When a ping of ours has waited for too long. A client that is still busy with an answer, and takes bytes of it, is
 * alive though the ping stands after them, and though nothing it says is read before most have gone. */
static int64_t ping_lost_ns(const grpc_session *s, int64_t timeout)
{
    int64_t took_ns = proa_conn_last_send_ns(s->conn);
    return (took_ns > s->ping_ns ? took_ns : s->ping_ns) + timeout;
}

static void tick_keepalive(grpc_session *s, int64_t now)
{
    const proa_grpc_server *server = s->server;
    if (server->keepalive_ms <= 0) return;
    int64_t timeout = (server->keepalive_timeout_ms > 0 ? server->keepalive_timeout_ms : 20000) * NS_PER_MS;
    if (s->read_ns > s->ping_ns) s->ping_waits = false; /* any input shows that the peer is alive */
    if (s->ping_waits && now >= ping_lost_ns(s, timeout)) {
        proa_conn_close(s->conn, true);
        return;
    }
    int64_t work_pending = s->read_ns + server->keepalive_ms * NS_PER_MS;
    if (!s->ping_waits && now >= work_pending) {
        nghttp2_submit_ping(s->h2, NGHTTP2_FLAG_NONE, NULL);
        s->ping_waits = true;
        s->ping_ns = now;
        proa_grpc_session_flush_soon(s);
    }
    proa_grpc_session_wake(s, s->ping_waits ? ping_lost_ns(s, timeout) : work_pending);
}

static void tick_age(grpc_session *s, int64_t now)
{
    if (!s->age_ns) return;
    int64_t grace = s->server->connection_grace_ms * NS_PER_MS;
    if (now < s->age_ns) proa_grpc_session_wake(s, s->age_ns);
    else if (grace > 0 && now >= s->age_ns + grace) proa_conn_close(s->conn, true);
    else {
        begin_drain(s);
        if (grace > 0) proa_grpc_session_wake(s, s->age_ns + grace);
    }
}

static void tick_drain(grpc_session *s, int64_t now)
{
    if (!s->draining || s->last_named) return;
    if (now >= s->drain_ns) name_last(s);
    else proa_grpc_session_wake(s, s->drain_ns);
}

/* The answer is complete, and the client does not take it. */
static void tick_unread(grpc_call *c, int64_t now)
{
    int64_t patience = c->progress_ns + (int64_t)PROA_GRPC_UNREAD_MS * NS_PER_MS;
    if (!c->queued) return;
    if (now < patience) {
        proa_grpc_session_wake(c->session, patience);
        return;
    }
    nghttp2_submit_rst_stream(c->session->h2, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
    c->cut = true;
    proa_grpc_session_flush_soon(c->session);
}

static void tick_call(grpc_call *c, int64_t now)
{
    int64_t stalled = c->progress_ns + (int64_t)PROA_STALL_MS * NS_PER_MS;
    if (c->finished) tick_unread(c, now);
    else if (c->pub.deadline_ns && now >= c->pub.deadline_ns) proa_grpc_call_expire(c);
    else if (c->counted && !c->paused && now >= stalled)
        proa_grpc_call_fail(c, PROA_GRPC_DEADLINE_EXCEEDED,
                            "no byte of a message came for " PROA_STR(PROA_STALL_MS) " ms");
    else {
        if (c->pub.deadline_ns) proa_grpc_session_wake(c->session, c->pub.deadline_ns);
        if (c->counted && !c->paused) proa_grpc_session_wake(c->session, stalled);
    }
}

static void timer_fired(void *arg)
{
    grpc_session *s = arg;
    int64_t now = proa_loop_now_ns(s->loop);
    s->timer_ns = 0;
    for (grpc_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        tick_call(c, now);
    }
    tick_drain(s, now);
    tick_age(s, now);
    tick_keepalive(s, now);
}

/* ---- the protocol ---- */

static void set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, stream_closed);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, frame_sent);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, frame_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
}

static nghttp2_session *new_h2(grpc_session *s)
{
    nghttp2_session *h2;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    if (nghttp2_session_callbacks_new(&callbacks) || nghttp2_option_new(&option))
        abort(); /* out of memory only */
    set_callbacks(callbacks);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, UINT64_MAX / 2, UINT64_MAX / 2); /* count_reset is kinder */
    if (nghttp2_session_server_new2(&h2, callbacks, s, option)) abort();
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return h2;
}

static void send_settings(grpc_session *s)
{
    int32_t streams = s->server->streams_max > 0 ? s->server->streams_max : PROA_GRPC_STREAMS_MAX;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, PROA_GRPC_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, PROA_GRPC_METADATA_BYTES_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_submit_settings(s->h2, NGHTTP2_FLAG_NONE, settings, PROA_COUNT(settings));
    nghttp2_session_set_local_window_size(s->h2, NGHTTP2_FLAG_NONE, 0, PROA_GRPC_CONNECTION_WINDOW);
}

/* The age of connections that were opened together is spread by a tenth, so that they do not all come back at once. */
static int64_t run_pending(const grpc_session *s, int64_t ms)
{
    uintptr_t at = (uintptr_t)s;
    uint64_t dice = proa_str_hash((proa_str){(const char *)&at, sizeof at}) ^ (uint64_t)s->opened_ns;
    int64_t tenth = ms / 10;
    return ms - tenth + (int64_t)(dice % (uint64_t)(2 * tenth + 1));
}

static void *session_open(proa_conn *conn, void *server)
{
    grpc_session *s = proa_calloc(1, sizeof *s);
    s->conn = conn;
    s->loop = proa_conn_loop(conn);
    s->server = server;
    s->pool = proa_block_pool_open();
    s->message_max = s->server->message_max > 0 ? s->server->message_max : PROA_GRPC_MESSAGE_MAX;
    s->unpacked_max = s->server->unpacked_max > 0 ? s->server->unpacked_max : PROA_UNPACKED_MAX;
    if (s->unpacked_max > s->message_max) s->unpacked_max = s->message_max;
    s->h2 = new_h2(s);
    s->task.run = run_task;
    s->timer = (proa_timer){.loop = s->loop, .fire = timer_fired, .arg = s};
    s->opened_ns = s->read_ns = s->window_ns = proa_loop_now_ns(s->loop);
    if (s->server->connection_age_ms > 0)
        s->age_ns = s->opened_ns + run_pending(s, s->server->connection_age_ms) * NS_PER_MS;
    send_settings(s);
    proa_conn_deadline(conn, PROA_HEAD_MS);
    tick_age(s, s->opened_ns);
    tick_keepalive(s, s->opened_ns);
    proa_grpc_session_flush_soon(s);
    return s;
}

static int64_t session_input(void *state, const char *bytes, size_t len)
{
    grpc_session *s = state;
    if (s->ending) return (int64_t)len;
    s->read_ns = proa_loop_now_ns(s->loop);
    s->busy = true;
    ssize_t n = nghttp2_session_mem_recv(s->h2, (const uint8_t *)bytes, len);
    s->busy = false;
    /* nghttp2 gives up by itself, and without a word, on the frame after a thousand answers that it could not send yet,
     * before begin_frame has counted it: so it is when the whole flood comes in one read. So it is too with a head that
     * goes on and on. */
    if (n == NGHTTP2_ERR_FLOODED) end_abusive(s, "too_many_control_frames");
    if (n == TOO_MANY_CONTINUATIONS) end_abusive(s, "too_many_continuations");
    if (n < 0) s->ending = true; /* otherwise a GOAWAY with the reason is queued */
    flush_staged(s);
    return s->ending ? -1 : (int64_t)len;
}

static void session_drained(void *state)
{
    flush_staged(state);
}

/* With its sending side closed a client can neither open windows nor cancel: it counts as disconnected. */
static bool session_eof(void *state)
{
    (void)state;
    return false;
}

static void session_shutdown(void *state)
{
    begin_drain(state);
}

static void session_close(void *state)
{
    grpc_session *s = state;
    s->busy = true; /* nothing is sent any more */
    while (s->calls) {
        proa_grpc_call_disconnected(s->calls);
        proa_grpc_call_free(s->calls);
    }
    nghttp2_session_del(s->h2);
    proa_timer_release(&s->timer);
    proa_block_pool_close(s->pool);
    s->disconnected = true;
    if (!s->posted) free(s);
}

static bool session_quiet(const void *state)
{
    const grpc_session *s = state;
    return !s->calls;
}

const proa_protocol proa_grpc_protocol = {
    .alpn = "h2",
    .open = session_open,
    .input = session_input,
    .drained = session_drained,
    .eof = session_eof,
    .shutdown = session_shutdown,
    .close = session_close,
    .quiet = session_quiet,
};
