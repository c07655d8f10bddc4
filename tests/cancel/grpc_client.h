/* SPDX-License-Identifier: Apache-2.0
 * grpc_client.h - a gRPC client with one call on a socket of its own (nghttp2), which can be cancelled or dropped at
 * any time. One thread uses it. */
#ifndef PROA_TEST_GRPC_CLIENT_H
#define PROA_TEST_GRPC_CLIENT_H

#include "base/str.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

typedef struct grpc_client {
    int fd;
    nghttp2_session *h2;
    int32_t stream;
    proa_buf sends; /* the messages, with their prefixes */
    size_t sent, received;
    bool ended;      /* the call has, or the connection */
    char status[16]; /* grpc-status; "" before the trailers */
    char message[512];
} grpc_client;

static inline void grpc_copy(char *to, size_t size, const uint8_t *from, size_t len)
{
    if (len >= size) len = size - 1;
    if (len) memcpy(to, from, len);
    to[len] = '\0';
}

static inline int grpc_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                              size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    grpc_client *c = user;
    proa_str n = {(const char *)name, name_len};
    (void)h2, (void)frame, (void)flags;
    if (proa_str_is(n, "grpc-status")) grpc_copy(c->status, sizeof c->status, value, len);
    if (proa_str_is(n, "grpc-message")) grpc_copy(c->message, sizeof c->message, value, len);
    return 0;
}

static inline int grpc_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data,
                            size_t len, void *user)
{
    (void)h2, (void)flags, (void)stream, (void)data;
    ((grpc_client *)user)->received += len;
    return 0;
}

static inline int grpc_closed(nghttp2_session *h2, int32_t stream, uint32_t code, void *user)
{
    (void)h2, (void)stream, (void)code;
    ((grpc_client *)user)->ended = true;
    return 0;
}

static inline ssize_t grpc_provide(nghttp2_session *h2, int32_t stream, uint8_t *to, size_t room,
                                   uint32_t *flags, nghttp2_data_source *source, void *user)
{
    grpc_client *c = source->ptr;
    size_t n = c->sends.len - c->sent < room ? c->sends.len - c->sent : room;
    (void)h2, (void)stream, (void)user;
    if (n) memcpy(to, c->sends.ptr + c->sent, n);
    c->sent += n;
    if (c->sent == c->sends.len) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static inline void grpc_flush(grpc_client *c)
{
    const uint8_t *data;
    for (ssize_t n; (n = nghttp2_session_mem_send(c->h2, &data)) > 0;)
        for (ssize_t at = 0, k; at < n; at += k)
            if ((k = send(c->fd, data + at, (size_t)(n - at), MSG_NOSIGNAL)) <= 0) {
                c->ended = true;
                return;
            }
}

/* Appends a message of the call, before grpc_call. */
static inline void grpc_message(grpc_client *c, const void *bytes, size_t len)
{
    const char prefix[5] = {0, (char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len};
    proa_buf_append(&c->sends, prefix, sizeof prefix);
    proa_buf_append(&c->sends, bytes, len);
}

/* fd is the client's from now on. */
static inline void grpc_open(grpc_client *c, int fd)
{
    nghttp2_session_callbacks *callbacks;
    *c = (grpc_client){.fd = fd};
    proa_buf_init(&c->sends, 1 << 20);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, grpc_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, grpc_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, grpc_closed);
    nghttp2_session_client_new(&c->h2, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(c->h2, NGHTTP2_FLAG_NONE, NULL, 0);
}

#define GRPC_NV(n, v)                                                                                        \
    {                                                                                                        \
        (uint8_t *)(uintptr_t)(n), (uint8_t *)(uintptr_t)(v), strlen(n), strlen(v), NGHTTP2_NV_FLAG_NONE     \
    }

/* Sends the request with all its messages; the client's side of the stream is closed then. */
static inline void grpc_call(grpc_client *c, const char *path)
{
    nghttp2_nv headers[] = {GRPC_NV(":method", "POST"),    GRPC_NV(":scheme", "http"),
                            GRPC_NV(":authority", "test"), GRPC_NV(":path", path),
                            GRPC_NV("te", "trailers"),     GRPC_NV("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = grpc_provide};
    c->stream = nghttp2_submit_request(c->h2, NULL, headers, PROA_COUNT(headers), &provider, NULL);
    grpc_flush(c);
}

/* Waits at most so long for bytes, and takes them. */
static inline void grpc_read(grpc_client *c, int timeout_ms)
{
    uint8_t bytes[8192];
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (c->ended || poll(&p, 1, timeout_ms) <= 0) return;
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n <= 0 || nghttp2_session_mem_recv(c->h2, bytes, (size_t)n) < 0) c->ended = true;
    grpc_flush(c);
}

static inline void grpc_cancel(grpc_client *c)
{
    nghttp2_submit_rst_stream(c->h2, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
    grpc_flush(c);
}

/* Does not close the socket. */
static inline void grpc_close(grpc_client *c)
{
    nghttp2_session_del(c->h2);
    proa_buf_release(&c->sends);
}

#endif
