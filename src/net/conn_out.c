/* SPDX-License-Identifier: Apache-2.0
 * conn_out.c - the output queue of a connection: pieces, copied or referenced, that are written with one system
 * call. */
#include "net/conn_inner.h"

#include "base/limits.h"
#include "net/block.h"
#include <errno.h>
#include <string.h>

#define CHUNK_BYTES 4096 /* of copied bytes at least, with the head of the piece */
#define COPY_BYTES  2048 /* so few are copied though they could be kept: a piece of its own costs more */
#define IOV_COUNT   64

struct proa_conn_out {
    proa_conn_out *next;
    const char *ptr;
    size_t len;
    size_t room; /* bytes of a copy, 0: kept ones of the caller */
    void (*release)(void *arg);
    void *arg;
    char bytes[];
};

static proa_conn_out *push_block(proa_conn *conn, size_t room)
{
    proa_conn_out *out = proa_block_get(sizeof *out + room);
    PROA_ASSERT(out);
    if (room) room = proa_block_bytes(out) - sizeof *out;
    *out = (proa_conn_out){.ptr = out->bytes, .room = room};
    if (conn->out) conn->out_last->next = out;
    else conn->out = out;
    conn->out_last = out;
    return out;
}

static void copy_out(proa_conn *conn, const struct iovec *iov)
{
    const char *bytes = iov->iov_base;
    size_t len = iov->iov_len;
    while (len > 0) {
        proa_conn_out *out = conn->out ? conn->out_last : NULL;
        size_t used = out && out->room ? (size_t)(out->ptr - out->bytes) + out->len : 0;
        if (!out || out->room == used) {
            out = push_block(conn, len > CHUNK_BYTES - sizeof *out ? len : CHUNK_BYTES - sizeof *out);
            used = 0;
        }
        size_t n = out->room - used < len ? out->room - used : len;
        memcpy(out->bytes + used, bytes, n);
        out->len += n;
        conn->queued += n;
        bytes += n;
        len -= n;
    }
}

/* The last piece releases all. */
static void keep_buffers(proa_conn *conn, const struct iovec *iov, int count, void (*release)(void *arg),
                         void *arg)
{
    proa_conn_out *out = NULL;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len == 0) continue;
        out = push_block(conn, 0);
        out->ptr = iov[i].iov_base;
        out->len = iov[i].iov_len;
        conn->queued += out->len;
    }
    out->release = release;
    out->arg = arg;
}

void proa_conn_write(proa_conn *conn, const struct iovec *iov, int count, void (*release)(void *arg), void *arg)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += iov[i].iov_len;
    bool open = conn->ending == PROA_CONN_OPEN;
    if (open && bytes > 0) {
        if (release && bytes > COPY_BYTES) {
            keep_buffers(conn, iov, count, release, arg);
            release = NULL;
        } else {
            for (int i = 0; i < count; i++) copy_out(conn, &iov[i]);
        }
        if (conn->queued > PROA_CONN_HIGH_BYTES) conn->want_drained = true;
        proa_conn_late(conn);
    }
    if (release) release(arg);
}

size_t proa_conn_queued(const proa_conn *conn)
{
    return conn->queued;
}

int64_t proa_conn_last_send_ns(const proa_conn *conn)
{
    return conn->last_send_ns;
}

static void pop_block(proa_conn *conn)
{
    proa_conn_out *out = conn->out;
    conn->out = out->next;
    void (*release)(void *arg) = out->release;
    void *arg = out->arg;
    proa_block_free(out);
    if (release) release(arg);
}

void proa_conn_drop_out(proa_conn *conn)
{
    while (conn->out) pop_block(conn);
    conn->queued = 0;
}

static void mark_written(proa_conn *conn, size_t n)
{
    conn->queued -= n;
    while (conn->out && n >= conn->out->len) {
        n -= conn->out->len;
        pop_block(conn);
    }
    if (n == 0) return;
    conn->out->ptr += n;
    conn->out->len -= n;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(fd);
    PROA_UNUSED(what);
    proa_conn *conn = arg;
    proa_loop_awake(conn->loop);
    if (!conn->blocked) return;
    conn->blocked = false;
    if (conn->ssl) conn->readable = true; /* a handshake may have waited to write */
    proa_conn_late(conn);
}

/* The event stays registered: edge-triggered, it costs nothing while nothing waits. */
void proa_conn_block(proa_conn *conn)
{
    conn->blocked = true;
    if (conn->write_event) return;
    conn->write_event = event_new(conn->loop->base, conn->fd, EV_WRITE | EV_ET | EV_PERSIST, on_writable, conn);
    if (!conn->write_event || event_add(conn->write_event, NULL) != 0) proa_conn_fail(conn);
}

static size_t gather_iov(const proa_conn *conn, struct iovec *iov, int *count)
{
    size_t bytes = 0;
    *count = 0;
    for (const proa_conn_out *out = conn->out; out && *count < IOV_COUNT; out = out->next) {
        iov[(*count)++] = (struct iovec){(void *)out->ptr, out->len};
        bytes += out->len;
    }
    return bytes;
}

/* After a write: a peer that reads nothing is closed stall_ms after the last byte that it took. */
static void expect_progress(proa_conn *conn, bool progress)
{
    int64_t at = INT64_MAX;
    if (conn->out) {
        if (!progress && conn->write_ns != INT64_MAX) return;
        at = proa_loop_now_ns(conn->loop) + conn->group->options->stall_ms * 1000000;
    }
    if (at == conn->write_ns) return;
    conn->write_ns = at;
    proa_conn_set_deadlines(conn);
}

void proa_conn_flush(proa_conn *conn)
{
    bool progress = false;
    while (conn->out && !conn->blocked && conn->ending < PROA_CONN_LINGERING) {
        struct iovec iov[IOV_COUNT];
        int count;
        size_t bytes = gather_iov(conn, iov, &count);
        int64_t n = conn->io->send(conn, iov, count);
        if (n < 0 && n != -EAGAIN) {
            proa_conn_fail(conn);
            return;
        }
        if (n > 0) {
            mark_written(conn, (size_t)n);
            progress = true;
        }
        if (n < (int64_t)bytes) proa_conn_block(conn);
    }
    if (progress) conn->last_send_ns = proa_loop_now_ns(conn->loop);
    if (conn->ending < PROA_CONN_LINGERING) expect_progress(conn, progress);
}
