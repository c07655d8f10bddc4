/* SPDX-License-Identifier: Apache-2.0
 * session.c - what calls ask of their HTTP/2 connection: to write bytes, to be flushed, to be woken at a time. */
#include "net/grpc/session.h"

#include "base/limits.h"
#include <string.h>

#define STAGE_BYTES 16384 /* small frames of a flush are gathered here and written at once */

/* ---- writing ---- */

void proa_grpc_out_drop(grpc_out *out)
{
    if (--out->refs > 0) return;
    if (out->release) out->release(out->arg);
    proa_block_free(out);
}

static void write_stage(grpc_session *s)
{
    if (s->staged) proa_conn_write(s->conn, &(struct iovec){s->stage, s->staged}, 1, NULL, NULL);
    s->staged = 0;
}

void proa_grpc_session_stage(grpc_session *s, const void *bytes, size_t len)
{
    if (len > STAGE_BYTES - s->staged) write_stage(s);
    if (len > STAGE_BYTES) {
        proa_conn_write(s->conn, &(struct iovec){(void *)(uintptr_t)bytes, len}, 1, NULL, NULL);
        return;
    }
    memcpy(s->stage + s->staged, bytes, len);
    s->staged += len;
}

static void out_release(void *arg)
{
    proa_grpc_out_drop(arg);
}

void proa_grpc_session_write(grpc_session *s, const struct iovec *iov, int count, grpc_out *holder)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += iov[i].iov_len;
    if (bytes <= STAGE_BYTES / 4) {
        for (int i = 0; i < count; i++) proa_grpc_session_stage(s, iov[i].iov_base, iov[i].iov_len);
        return;
    }
    write_stage(s);
    holder->refs++;
    proa_conn_write(s->conn, iov, count, out_release, holder);
}

/* GOAWAY is written and no stream is left. */
static void close_drained(grpc_session *s)
{
    if (s->draining && !s->used_since) proa_conn_close_idle(s->conn);
    else proa_conn_close(s->conn, false);
}

void proa_grpc_session_pump(grpc_session *s)
{
    char bytes[STAGE_BYTES];
    const uint8_t *data;
    ssize_t n;
    s->stage = bytes;
    s->staged = 0;
    while ((n = nghttp2_session_mem_send(s->h2, &data)) > 0) proa_grpc_session_stage(s, data, (size_t)n);
    write_stage(s);
    s->stage = NULL;
    if (n < 0) proa_conn_close(s->conn, true);
    else if (s->ending) proa_conn_close(s->conn, false);
    else if (!nghttp2_session_want_read(s->h2) && !nghttp2_session_want_write(s->h2)) close_drained(s);
    /* a client that does not read answers may not send more requests */
    bool hold = proa_conn_queued(s->conn) > PROA_CONN_HIGH_BYTES;
    if (hold != s->held) proa_conn_pause(s->conn, hold);
    s->held = hold;
}

/* ---- later ---- */

void proa_grpc_session_flush_soon(grpc_session *s)
{
    if (s->busy || s->posted) return;
    s->posted = true;
    proa_loop_late(s->loop, &s->task);
}

void proa_grpc_session_wake(grpc_session *s, int64_t ns)
{
    if (s->timer_ns && s->timer_ns <= ns) return;
    int64_t left = ns - proa_loop_now_ns(s->loop);
    s->timer_ns = ns;
    proa_timer_start(&s->timer, left > 0 ? (left + NS_PER_MS - 1) / NS_PER_MS : 0);
}
