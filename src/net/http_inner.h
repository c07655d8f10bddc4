/* SPDX-License-Identifier: Apache-2.0
 * http_inner.h - the inside of an exchange, for http.c (requests) and http_answer.c (answers).
 * Owner:   http.c.
 * Threads: the loop's. */
#ifndef PROA_NET_HTTP_INNER_H
#define PROA_NET_HTTP_INNER_H

#include "net/http.h"
#include "net/http1.h"

typedef struct proa_http_conn proa_http_conn;

/* A request from its first byte on, until its answer is queued. */
typedef struct proa_http_work {
    proa_http_exchange x; /* the first: what handlers see */
    proa_http_conn *owner;
    struct proa_http_work *next; /* among the loop's spare ones */
    proa_arena arena;
    void (*gone)(proa_http_exchange *x);
    void (*drained)(proa_http_exchange *x);
    size_t body_cap; /* of x.body, which has a NUL behind its bytes in the end */
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
    bool handed;          /* the handler has it */
    bool keep;            /* the connection stays after this answer */
    bool inside;          /* run is on the stack and will go on */
    bool held;            /* requests wait until the client has read some answers */
    bool draining, closing;
    enum { PROA_HTTP_IDLE, PROA_HTTP_HEAD, PROA_HTTP_BODY, PROA_HTTP_BUSY } timing;
};

/* http.c: the answer is queued. The work is gone after this. */
void proa_http_finish(proa_http_conn *h);
/* http_answer.c: the server's own answer to a request that no handler sees. */
void proa_http_refuse(proa_http_conn *h, int status, const char *why);
void proa_http_turn_away(proa_conn *conn, void *server); /* proa_protocol.turn_away */

#endif
