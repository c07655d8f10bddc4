/* SPDX-License-Identifier: Apache-2.0
 * conn.c - what a protocol asks of its connection: reading, deadlines, the end. It is noted here and done at the end of
 * the turn, by conn_run.c. */
#include "net/conn.h"

#include "base/alloc.h"
#include "net/conn_inner.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

void proa_conn_late(proa_conn *conn)
{
    if (conn->inside || conn->late_queued) return;
    conn->late_queued = true;
    proa_loop_late(conn->loop, &conn->late);
}

void proa_conn_close(proa_conn *conn, bool at_once)
{
    if (at_once) conn->ending = PROA_CONN_DEAD;
    else if (conn->ending == PROA_CONN_OPEN) conn->ending = PROA_CONN_FLUSHING;
    proa_conn_late(conn);
}

void proa_conn_close_idle(proa_conn *conn)
{
    conn->idle = true;
    proa_conn_close(conn, false);
}

void proa_conn_fail(proa_conn *conn)
{
    proa_conn_close(conn, true);
}

/* ---- deadlines ---- */

void proa_conn_set_deadlines(proa_conn *conn)
{
    int64_t at = conn->protocol_ns < conn->write_ns ? conn->protocol_ns : conn->write_ns;
    proa_loop_deadline(conn->loop, &conn->deadline, at);
}

void proa_conn_deadline(proa_conn *conn, int64_t ms)
{
    if (conn->ending != PROA_CONN_OPEN) return;
    conn->protocol_ms = ms;
    conn->protocol_ns = ms > 0 ? proa_loop_now_ns(conn->loop) + ms * 1000000 : INT64_MAX;
    proa_conn_set_deadlines(conn);
}

/* ---- the protocol ---- */

void proa_conn_start(proa_conn *conn, const proa_protocol *protocol)
{
    const proa_listen_options *options = conn->group->options;
    conn->protocol = protocol;
    conn->protocol_ns = INT64_MAX;
    void *server = protocol == options->http2 ? options->http2_server : options->http1_server;
    conn->state = protocol->open(conn, server);
    proa_conn_set_deadlines(conn);
}

void proa_conn_pause(proa_conn *conn, bool paused)
{
    conn->paused = paused;
    if (!paused) proa_conn_again(conn);
}

void proa_conn_again(proa_conn *conn)
{
    conn->again = true;
    proa_conn_late(conn);
}

void proa_conn_want_drained(proa_conn *conn)
{
    conn->want_drained = true;
    proa_conn_late(conn);
}

void proa_conn_read_into(proa_conn *conn, void *dst, size_t len, void (*done)(void *arg, size_t got), void *arg)
{
    PROA_ASSERT(len > 0 && !conn->into);
    if (conn->ending != PROA_CONN_OPEN) {
        done(arg, 0);
        return;
    }
    conn->into = dst;
    conn->into_len = len;
    conn->into_got = 0;
    conn->into_done = done;
    conn->into_arg = arg;
    if (conn->readable) proa_conn_late(conn);
}

/* ---- properties ---- */

proa_loop *proa_conn_loop(const proa_conn *conn)
{
    return conn->loop;
}

bool proa_conn_reserved(proa_conn *conn)
{
    if (conn->reserved && proa_spare_refill(&conn->group->spare)) conn->reserved = false;
    return conn->reserved;
}

bool proa_conn_is_quiet(const proa_conn *conn)
{
    const proa_protocol *protocol = conn->protocol;
    if (conn->ending != PROA_CONN_OPEN || conn->queued > 0) return false;
    return !protocol || (protocol->quiet && protocol->quiet(conn->state));
}

const proa_listen_options *proa_conn_options(const proa_conn *conn)
{
    return conn->group->options;
}

static char *peer_text(const proa_conn *conn)
{
    char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16];
    struct sockaddr_in6 in6 = {0};
    socklen_t len = sizeof in6;
    if (getpeername(conn->fd, (struct sockaddr *)&in6, &len) != 0) return proa_strdup("gone");
    struct sockaddr_in in4;
    memcpy(&in4, &in6, sizeof in4);
    if (in6.sin6_family == AF_INET) {
        inet_ntop(AF_INET, &in4.sin_addr, host, sizeof host);
        snprintf(text, sizeof text, "%s:%d", host, ntohs(in4.sin_port));
    } else if (in6.sin6_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof host);
        snprintf(text, sizeof text, "[%s]:%d", host, ntohs(in6.sin6_port));
    } else {
        snprintf(text, sizeof text, "unix");
    }
    return proa_strdup(text);
}

const char *proa_conn_peer(const proa_conn *conn)
{
    /* Made at the first call, which is rare: a cache behind a const interface. */
    if (!conn->peer) ((proa_conn *)conn)->peer = peer_text(conn);
    return conn->peer;
}
