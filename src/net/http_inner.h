/* SPDX-License-Identifier: Apache-2.0
 * http_inner.h - the inside of an exchange, for http_exchange.c (its life), http_answer.c (answers), http_offload.c
 * (workers) and http.c (requests).
 * Owner:   http_exchange.c makes and frees an exchange, http.c what a connection has.
 * Threads: the loop's. */
#ifndef PROA_NET_HTTP_INNER_H
#define PROA_NET_HTTP_INNER_H

#include "net/http.h"
#include "net/http1.h"
#include <stdatomic.h>

typedef struct proa_http_conn proa_http_conn;

/* A call by which a handler on a worker answers: it acts when the request is back on its loop. In the exchange's
 * arena. */
typedef struct proa_http_deferred {
    struct proa_http_deferred *next;
    enum { PROA_HTTP_RESPOND, PROA_HTTP_BEGIN, PROA_HTTP_SEND, PROA_HTTP_END, PROA_HTTP_ABORT } kind;
    int status;
    proa_str headers; /* of SEND: the bytes */
    proa_http_body body;
} proa_http_deferred;

/* A request on a worker. The loop's thread makes and frees it. */
typedef struct proa_http_offloaded {
    proa_work_item work; /* first */
    struct proa_http_work *w;
    bool is_request; /* it is on_request that runs */
    void (*handle)(proa_http_exchange *x, void *arg);
    void *arg;
    proa_handoff *handoff;
    atomic_bool lost; /* the client has disconnected meanwhile: w has no connection any more */
    proa_http_deferred *deferred, **last; /* the worker's until it is back */
    bool begun;                           /* the handler has seen it */
    bool ended;                           /* the answer is complete, or given up */
} proa_http_offloaded;

/* A request from its first byte on, until its answer is queued. */
typedef struct proa_http_work {
    proa_http_exchange x;           /* first; what handlers see */
    proa_http_conn *owner;          /* NULL: offloaded, and the client has disconnected */
    proa_http_offloaded *offloaded; /* NULL: on its loop */
    proa_loop *loop;
    struct proa_http_work *next; /* among the loop's spare ones */
    proa_arena arena;
    void (*on_disconnect)(proa_http_exchange *x);
    void (*drained)(proa_http_exchange *x);
    size_t body_cap; /* of x.body, which has a NUL after its bytes in the end */
    bool is_head;    /* the method is HEAD: answers have no body */
    bool begun;      /* an answer in pieces */
    bool pieces;     /* ... which has a body */
    proa_http1 codec;
    proa_http_header headers[PROA_HTTP_HEADERS_MAX];
} proa_http_work;

struct proa_http_conn {
    proa_conn *conn;
    const proa_http_server *server;
    proa_http_work *work; /* NULL: no byte of a next request is here */
    bool dispatched;      /* the handler has it */
    bool keep;            /* the connection stays after this answer */
    bool inside;          /* parse_requests is on the stack and will continue */
    bool reading_held;    /* requests wait until the client has read some answers */
    bool draining, closing;
    enum { PROA_HTTP_IDLE, PROA_HTTP_HEAD, PROA_HTTP_BODY, PROA_HTTP_BUSY } timing;
};

/* http_exchange.c */
void proa_http_begin_exchange(proa_http_conn *h); /* the first byte of a request has come */
void proa_http_drop_exchange(proa_http_conn *h);  /* takes it off the connection and frees it */
void proa_http_finish(proa_http_conn *h); /* the answer is queued: frees the exchange, goes on to the next */
void proa_http_give_work(proa_http_work *w);     /* frees it, or keeps it for the next request */
void proa_http_leave_handler(proa_http_conn *h); /* the client has disconnected while the handler was at work */
void proa_http_set_timing(proa_http_conn *h);    /* the deadline for what the connection waits for now */
/* No further request is read, so its deadline ends; queued output keeps the limit for readers (stall_ms). */
void proa_http_end_conn(proa_http_conn *h);

/* http_answer.c: the server's own answer to a request that no handler sees. */
void proa_http_refuse(proa_http_conn *h, int status, const char *why);
void proa_http_turn_away(proa_conn *conn, void *server); /* proa_protocol.turn_away */
void proa_http_busy(proa_http_conn *h);                  /* 503: too many requests wait for the workers */

/* http_offload.c. False: too many wait. */
PROA_MUST_CHECK bool proa_http_offload_request(proa_http_conn *h);

#endif
