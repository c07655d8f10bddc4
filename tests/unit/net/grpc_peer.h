/* SPDX-License-Identifier: Apache-2.0
 * grpc_peer.h - a gRPC client (nghttp2) wired to a server session over the connection of conn_double.h. Include it
 * once. */
#ifndef PROA_TESTS_GRPC_PEER_H
#define PROA_TESTS_GRPC_PEER_H

#include "conn_double.h"
#include "net/grpc/grpc.h"
#include <nghttp2/nghttp2.h>
#include <stdio.h>

enum { PEER_STREAMS = 4096 };

typedef struct peer_stream { /* what the client knows of a call */
    proa_buf sends;          /* what is to be sent, prefixes and all */
    size_t sent;
    bool end, waits; /* the client sends no more; nghttp2 waits for more to send */
    proa_buf body;   /* what came */
    char status[8], content_type[64], encoding[16], accept[64], extra[64];
    char grpc_status[8], message[8192];
    bool ended, closed;
    uint32_t error_code;
} peer_stream;

typedef struct peer {
    proa_loop loop;
    proa_conn conn;
    void *session;
    nghttp2_session *h2;
    peer_stream *streams;     /* by id / 2 */
    size_t chunk;             /* bytes that the server gets at a time; 0: all */
    bool server_closed, lazy; /* lazy: the client reads nothing */
    int goaways, pings, ping_acks;
    uint32_t goaway_code;
    char goaway_text[64];
} peer;

static peer_stream *peer_of(peer *p, int32_t id)
{
    PROA_ASSERT(id / 2 < PEER_STREAMS);
    return &p->streams[id / 2];
}

static void peer_text(char *to, size_t size, const uint8_t *from, size_t len)
{
    if (len >= size) len = size - 1;
    if (len) memcpy(to, from, len);
    to[len] = 0;
}

static int peer_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                       const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    peer_stream *s = peer_of(user, frame->hd.stream_id);
    proa_str n = {(const char *)name, name_len};
    (void)h2, (void)flags;
    if (proa_str_is(n, ":status")) peer_text(s->status, sizeof s->status, value, len);
    else if (proa_str_is(n, "content-type")) peer_text(s->content_type, sizeof s->content_type, value, len);
    else if (proa_str_is(n, "grpc-encoding")) peer_text(s->encoding, sizeof s->encoding, value, len);
    else if (proa_str_is(n, "grpc-accept-encoding")) peer_text(s->accept, sizeof s->accept, value, len);
    else if (proa_str_is(n, "grpc-status")) peer_text(s->grpc_status, sizeof s->grpc_status, value, len);
    else if (proa_str_is(n, "grpc-message")) peer_text(s->message, sizeof s->message, value, len);
    else peer_text(s->extra, sizeof s->extra, value, len);
    return 0;
}

static int peer_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data, size_t len,
                     void *user)
{
    (void)h2, (void)flags;
    PROA_ASSERT(proa_buf_append(&peer_of(user, stream)->body, data, len));
    return 0;
}

static int peer_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    peer *p = user;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        p->goaways++;
        p->goaway_code = frame->goaway.error_code;
        peer_text(p->goaway_text, sizeof p->goaway_text, frame->goaway.opaque_data,
                  frame->goaway.opaque_data_len);
    }
    if (frame->hd.type == NGHTTP2_PING) {
        if (frame->hd.flags & NGHTTP2_FLAG_ACK) p->ping_acks++;
        else p->pings++;
    }
    if (frame->hd.stream_id && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        peer_of(p, frame->hd.stream_id)->ended = true;
    return 0;
}

static int peer_closed(nghttp2_session *h2, int32_t stream, uint32_t error_code, void *user)
{
    peer_stream *s = peer_of(user, stream);
    (void)h2;
    s->closed = true;
    s->error_code = error_code;
    return 0;
}

static void peer_greet(peer *p, const nghttp2_settings_entry *settings, size_t count)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    PROA_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, peer_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, peer_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, peer_closed);
    nghttp2_option_set_peer_max_concurrent_streams(option, PEER_STREAMS);
    nghttp2_option_set_max_send_header_block_length(option, (size_t)1 << 20);
    PROA_ASSERT(nghttp2_session_client_new2(&p->h2, callbacks, p, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(p->h2, NGHTTP2_FLAG_NONE, settings, count);
}

static inline peer *peer_new(const proa_grpc_server *server)
{
    peer *p = proa_calloc(1, sizeof *p);
    double_init(&p->loop, &p->conn);
    p->streams = proa_calloc(PEER_STREAMS, sizeof *p->streams);
    for (int i = 0; i < PEER_STREAMS; i++) {
        proa_buf_init(&p->streams[i].sends, (size_t)1 << 31);
        proa_buf_init(&p->streams[i].body, (size_t)1 << 31);
    }
    p->session = proa_grpc_protocol.open(&p->conn, (void *)(uintptr_t)server);
    peer_greet(p, NULL, 0);
    return p;
}

static void peer_close_server(peer *p)
{
    if (!p->server_closed) proa_grpc_protocol.close(p->session);
    p->server_closed = true;
    double_release_all(&p->conn);
    double_run_tasks(&p->loop);
}

static inline void peer_free(peer *p)
{
    peer_close_server(p);
    nghttp2_session_del(p->h2);
    for (int i = 0; i < PEER_STREAMS; i++) {
        proa_buf_release(&p->streams[i].sends);
        proa_buf_release(&p->streams[i].body);
    }
    for (int i = 0; i < DOUBLE_TIMERS; i++) PROA_ASSERT(!p->loop.timers[i]);
    double_free(&p->conn);
    free(p->streams);
    free(p);
}

/* Bytes to the server, in chunks if so set. */
static void peer_input(peer *p, const char *bytes, size_t len)
{
    while (len && !p->conn.closing) {
        size_t n = p->chunk && p->chunk < len ? p->chunk : len;
        int64_t took = proa_grpc_protocol.input(p->session, bytes, n);
        PROA_ASSERT(took == -1 || took == (int64_t)n);
        if (took < 0) proa_conn_close(&p->conn, false);
        bytes += n;
        len -= n;
    }
}

static bool peer_send(peer *p)
{
    const uint8_t *data;
    proa_buf all;
    proa_buf_init(&all, (size_t)1 << 31);
    if (p->conn.paused) return false;
    for (ssize_t n; (n = nghttp2_session_mem_send(p->h2, &data)) > 0;) proa_buf_append(&all, data, (size_t)n);
    bool any = all.len > 0;
    peer_input(p, all.ptr, all.len);
    proa_buf_release(&all);
    return any;
}

static bool peer_read(peer *p)
{
    size_t n = p->conn.out.len;
    if (p->lazy || (!n && !p->conn.releases_count)) return false;
    if (n) PROA_ASSERT(nghttp2_session_mem_recv(p->h2, (const uint8_t *)p->conn.out.ptr, n) == (ssize_t)n);
    bool drained = double_taken(&p->conn);
    if (drained && !p->conn.closing) proa_grpc_protocol.drained(p->session);
    return true;
}

/* Until nothing moves any more. A connection that is to be closed is, once the client has read all. */
static inline void peer_run(peer *p)
{
    bool moved = true;
    while (moved) {
        moved = double_run_tasks(&p->loop);
        moved |= !p->conn.closing && peer_send(p);
        moved |= peer_read(p);
    }
    if (p->conn.closing) peer_close_server(p);
}

static ssize_t peer_provide(nghttp2_session *h2, int32_t stream, uint8_t *buf, size_t length, uint32_t *flags,
                            nghttp2_data_source *source, void *user)
{
    peer_stream *s = source->ptr;
    (void)h2, (void)stream, (void)user;
    size_t n = s->sends.len - s->sent < length ? s->sends.len - s->sent : length;
    if (n) memcpy(buf, s->sends.ptr + s->sent, n);
    s->sent += n;
    if (s->end && s->sent == s->sends.len) *flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (!n) {
        s->waits = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

#define PEER_NV(n, v)                                                                                        \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v),                \
                  NGHTTP2_NV_FLAG_NONE})

/* Opens a call; more are headers beside the usual ones, a value NULL takes a usual one away. */
static inline int32_t peer_call(peer *p, const char *path, const char *(*more)[2], int count)
{
    const char *usual[][2] = {{":method", "POST"}, {":scheme", "http"}, {":authority", "test"},
                              {":path", path},     {"te", "trailers"},  {"content-type", "application/grpc"}};
    nghttp2_nv nv[2200];
    size_t n = 0;
    for (size_t i = 0; i < PROA_COUNT(usual); i++) {
        const char *value = usual[i][1];
        for (int k = 0; k < count; k++)
            if (strcmp(more[k][0], usual[i][0]) == 0) value = more[k][1];
        if (value) nv[n++] = PEER_NV(usual[i][0], value);
    }
    for (int k = 0; k < count; k++) {
        bool known = false;
        for (size_t i = 0; i < PROA_COUNT(usual); i++) known |= strcmp(more[k][0], usual[i][0]) == 0;
        if (!known && more[k][1]) nv[n++] = PEER_NV(more[k][0], more[k][1]);
    }
    int32_t next = nghttp2_session_get_next_stream_id(p->h2) == UINT32_MAX
                       ? 0
                       : (int32_t)nghttp2_session_get_next_stream_id(p->h2);
    nghttp2_data_provider provider = {.source.ptr = peer_of(p, next), .read_callback = peer_provide};
    int32_t id = nghttp2_submit_request(p->h2, NULL, nv, n, &provider, NULL);
    PROA_ASSERT(id == next);
    return id;
}

static inline void peer_wake(peer *p, int32_t id)
{
    peer_stream *s = peer_of(p, id);
    if (s->waits) nghttp2_session_resume_data(p->h2, id);
    s->waits = false;
}

static inline void peer_message_as(peer *p, int32_t id, const void *bytes, size_t len, char packed)
{
    peer_stream *s = peer_of(p, id);
    char prefix[5] = {packed, (char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len};
    proa_buf_append(&s->sends, prefix, 5);
    proa_buf_append(&s->sends, bytes, len);
    peer_wake(p, id);
}

static inline void peer_message(peer *p, int32_t id, const void *bytes, size_t len)
{
    peer_message_as(p, id, bytes, len, 0);
}

static inline void peer_end(peer *p, int32_t id)
{
    peer_of(p, id)->end = true;
    peer_wake(p, id);
}

#endif
