/* SPDX-License-Identifier: Apache-2.0
 * conn.h - a connection: bytes in and out of a TCP or Unix socket, with or without TLS, under a protocol.
 * Owner:   the listener makes a connection when it accepts; it ends itself after proa_protocol.close has returned.
 * Threads: a connection belongs to one loop; every call on that loop's thread.
 * Way in:  proa_protocol, which HTTP/1.1 (http.c) and gRPC over HTTP/2 (grpc/http2.c) fill. */
#ifndef PROA_NET_CONN_H
#define PROA_NET_CONN_H

#include "base/str.h"
#include "net/loop.h"
#include <sys/uio.h>

typedef struct proa_conn proa_conn;

/* What speaks on a connection. The calls come in this order: open, any number of input, drained and eof, close. */
typedef struct proa_protocol {
    const char *alpn; /* "http/1.1", "h2" */
    /* Returns the state of this connection. `server` is what the listener was given for this protocol. */
    void *(*open)(proa_conn *conn, void *server);
    /* Bytes that were not consumed yet, oldest first. Returns how many are consumed now (the rest comes again together
     * with more), or -1: close when what is queued has been written. */
    int64_t (*input)(void *state, const char *bytes, size_t len);
    /* Less than PROA_CONN_LOW_BYTES are queued, after it had been more than PROA_CONN_HIGH_BYTES. NULL is fine. */
    void (*drained)(void *state);
    /* The peer has shut its sending side; it may still read. Returns false to close now. */
    bool (*eof)(void *state);
    /* The server drains: no new exchange; close when the last one has ended. */
    void (*shutdown)(void *state);
    /* The connection has ended, for whatever reason. The last call: frees the state. */
    void (*close)(void *state);
    /* The deadline has passed. Returns false to end the connection now; true if a last answer is queued and it is
     * closed by proa_conn_close, or a new deadline is set. NULL: false. */
    bool (*expired)(void *state);
    /* So many bytes of proa_conn_read_into have come, and more are to come. NULL is fine. */
    void (*progress)(void *state, size_t got);
    /* Has no exchange begun, so that the connection may end to make room for another? NULL: no. */
    bool (*quiet)(const void *state);
    /* Instead of open, when the listener has no room: writes the reason before the peer has sent anything; then the
     * connection ends. NULL: the protocol has no such message. */
    void (*turn_away)(proa_conn *conn, void *server);
} proa_protocol;

/* Queues bytes. What iov points to is copied if release is NULL, else it stays untouched until release(arg) is called,
 * exactly once, also when the connection ends first; perhaps before this returns (few bytes are copied all the same).
 * Writing happens when the protocol's function returns, or at the end of the loop's turn, all in one call. */
void proa_conn_write(proa_conn *conn, const struct iovec *iov, int count, void (*release)(void *arg), void *arg);
size_t proa_conn_queued(const proa_conn *conn); /* bytes that were not yet given to the kernel */
int64_t proa_conn_last_send_ns(const proa_conn *conn); /* when the kernel last took some; 0: never. For signs of life */
/* The next len bytes of the stream go straight into dst (what is buffered now is not part of them: copy it first).
 * Then, or if the connection ends, done(arg, bytes that arrived). Input is not called meanwhile. dst must stay until
 * done. */
void proa_conn_read_into(proa_conn *conn, void *dst, size_t len, void (*done)(void *arg, size_t got), void *arg);
void proa_conn_pause(proa_conn *conn, bool paused); /* stop and resume reading; a peer that resets is still noticed */
/* Input that was not consumed is passed again, from the loop, without waiting for more bytes. */
void proa_conn_again(proa_conn *conn);
/* drained is called once, from the loop, when less than PROA_CONN_LOW_BYTES are queued: also if they are now. */
void proa_conn_want_drained(proa_conn *conn);
/* Ends the connection: after what is queued has been written, or at once. close is called later, from the loop. */
void proa_conn_close(proa_conn *conn, bool at_once);
/* The same for a connection whose peer waits for no answer: the server does not wait until the peer closes its side. */
void proa_conn_close_idle(proa_conn *conn);
/* The connection ends (see expired) if that many ms pass before the next call; 0: no limit. For slow senders; while
 * bytes of proa_conn_read_into come, it starts anew with each. Peers that read no byte for stall_ms are closed by conn
 * itself. Late by up to 0.3 s. */
void proa_conn_deadline(proa_conn *conn, int64_t ms);

proa_loop *proa_conn_loop(const proa_conn *conn);
/* It uses one of the reserved descriptors, and there are still no others: only health and
 * metrics should use it. */
bool proa_conn_reserved(proa_conn *conn);
const char *proa_conn_peer(const proa_conn *conn);                          /* "127.0.0.1:50312", "unix" */
const struct proa_listen_options *proa_conn_options(const proa_conn *conn); /* with the defaults filled in */

/* ---- listening ---- */

typedef struct proa_tls proa_tls; /* a server's certificate and rules, shared by all loops: tls.h */

typedef struct proa_listen_options {
    const char *address; /* "0.0.0.0", "::", or "unix:/path" */
    int port;            /* 0: the kernel picks one, see proa_listener_port */
    bool reuse_port;     /* other processes may listen there too */
    const proa_tls *tls; /* NULL: none */
    /* The protocols of this port: one of them, or both; with both the first bytes (or ALPN) decide. */
    const proa_protocol *http1, *http2;
    void *http1_server, *http2_server;
    int connections_max; /* beyond that a new connection is turned away; 0: PROA_CONNECTIONS_MAX */
    /* Time-outs, 0: PROA_IDLE_MS, PROA_HEAD_MS, PROA_STALL_MS. A connection without an exchange; from the first byte to
     * the end of a request's head (or of TLS' handshake); a body or an answer of which no byte moves. */
    int64_t idle_ms, head_ms, stall_ms;
} proa_listen_options;

typedef struct proa_listener proa_listener;
/* Listens on all loops: each has a socket of its own with SO_REUSEPORT where there are several. On failure *out is
 * NULL: "cannot listen on 0.0.0.0:8000: address already in use". Options are copied, the address too. Before the loops
 * run or on loops[0]. */
PROA_MUST_CHECK proa_status proa_listener_open(proa_listener **out, proa_loop *const *loops, int loops_count,
                                               const proa_listen_options *options, proa_err *err);
/* Checks whether it could listen there now: address, port and rights, with the texts of proa_listener_open. Nothing
 * stays open. */
PROA_MUST_CHECK proa_status proa_listener_check(const proa_listen_options *options, proa_err *err);
int proa_listener_port(const proa_listener *listener);
int64_t proa_listener_connections(const proa_listener *listener); /* now open; any thread */
int64_t proa_listener_refused(const proa_listener *listener); /* beyond connections_max, so far; any thread */
/* Accepts no more and calls shutdown of each connection's protocol; any thread. */
void proa_listener_drain(proa_listener *listener);
/* After proa_listener_drain: no connection is open, and none will be; any thread. A count of 0 is not enough: a
 * connection may wait to be accepted, and the loops learn of the drain later. */
bool proa_listener_drained(const proa_listener *listener);
void proa_listener_close(proa_listener *listener); /* ends all connections; loops do not run any more */

#endif
