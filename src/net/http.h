/* SPDX-License-Identifier: Apache-2.0
 * http.h - an HTTP/1.1 server (RFC 9112): a handler gets whole requests and answers at once or piece by piece.
 * Owner:   an exchange belongs to the connection; it is valid until the handler has ended the answer or on_disconnect
 *          was called, whichever comes first, and must not be touched after that.
 * Threads: everything on the loop thread of the exchange; while on_request runs on a worker, on that worker, and
 *          `conn` is not touched. Work elsewhere, then proa_loop_post back.
 * Way in:  proa_http_protocol as proa_listen_options.http1 with a proa_http_server as http1_server. */
#ifndef PROA_NET_HTTP_H
#define PROA_NET_HTTP_H

#include "base/arena.h"
#include "net/conn.h"
#include "net/work.h"

typedef struct proa_http_header {
    proa_str name, value; /* as received, value without white space around */
} proa_http_header;

typedef struct proa_http_exchange {
    proa_str method;      /* "GET" */
    proa_str path, query; /* the target before and after '?', not decoded */
    const proa_http_header *headers;
    int headers_count;
    char *body; /* whole, NUL after it; chunks are joined; NULL if empty. 64-byte aligned */
    size_t body_len;
    proa_conn *conn;
    proa_arena *arena; /* lives as long as the exchange */
    int64_t start_ns;  /* when the first byte of the request arrived */
    void *user;        /* the handler's */
} proa_http_exchange;

typedef struct proa_http_server {
    /* A request is complete. */
    void (*on_request)(proa_http_exchange *x, void *arg);
    /* Does on_request of this request take longer than a loop may? Then it runs on one of `workers`: its calls that
     * answer are carried out when it has returned, and on_disconnect is called after that. workers NULL: all run on
     * the loop. */
    bool (*is_long)(const proa_http_exchange *x, void *arg);
    proa_workers *workers;
    /* The head is complete: is it a request for which the reserve of descriptors is kept (proa_conn_reserved)? Else it
     * is answered with 503 on such a connection. NULL: each is. */
    bool (*may_use_reserve)(const proa_http_exchange *x, void *arg);
    /* The head is complete, the body not yet read: the most bytes that the body may have. NULL: body_max. */
    int64_t (*body_limit)(const proa_http_exchange *x, void *arg);
    void *arg;
    int64_t body_max; /* 0: PROA_HTTP_BODY_MAX */
    /* Makes the body, in JSON, of an answer that the server gives itself (400, 408, 413, 414, 417, 431, 501, 503, 505);
     * NULL: plain text. */
    void (*error_body)(proa_buf *out, int status, const char *text, void *arg);
    /* An answer was made, by the handler or by the server itself; bytes of its body, 0 if it comes in pieces. For
     * counting; NULL: not counted. */
    void (*on_answer)(int status, size_t bytes, void *arg);
} proa_http_server;

extern const proa_protocol proa_http_protocol;

proa_loop *proa_http_loop(const proa_http_exchange *x); /* on which it will be answered; on a worker too */
size_t proa_http_queued(const proa_http_exchange *x); /* bytes that the client has not taken; 0 on a worker */
/* The value of a header (name in lower case), or the empty slice with ptr NULL. */
proa_str proa_http_get(const proa_http_exchange *x, const char *name);
/* Called when the client disconnects (or the connection fails) before the answer was ended: at once, not at the next
 * write. x may not be used after it. NULL: none. A client that only shuts its sending side while an answer is
 * outstanding counts as disconnected: closed browsers look like that, and other clients do not do it before they have
 * the answer. What is queued by then is still written. */
void proa_http_on_disconnect(proa_http_exchange *x, void (*on_disconnect)(proa_http_exchange *x));
/* Takes the body out of the exchange: the caller frees it with proa_http_body_free, on any thread. */
char *proa_http_take_body(proa_http_exchange *x);
void proa_http_body_free(void *body);

/* The body of a whole answer: pieces that follow each other; all 0: none. They are copied if release is NULL, else they
 * stay until release(arg), which may come before proa_http_respond returns. */
typedef struct proa_http_body {
    const struct iovec *iov;
    int count;
    void (*release)(void *arg);
    void *arg;
} proa_http_body;

/* A whole answer. `headers` is "Name: value\r\n..." or empty; Content-Length, Date-less, Connection are added here. A
 * request with HEAD is answered without the body, but with its length. Ends the exchange. */
void proa_http_respond(proa_http_exchange *x, int status, proa_str headers, proa_http_body body);
/* An answer in pieces: chunked for HTTP/1.1, until the end of the connection for 1.0. Bytes are copied. */
void proa_http_begin(proa_http_exchange *x, int status, proa_str headers);
void proa_http_send(proa_http_exchange *x, proa_str bytes);
void proa_http_end(proa_http_exchange *x); /* ends the exchange */
void proa_http_abort(proa_http_exchange *x); /* closes the connection without an end, so that the client sees it */
/* For an answer that takes longer to write than a loop may: runs handle(x, arg) on a worker, under the rules of
 * on_request there, and in any case, also if the client disconnects meanwhile. False, and nothing was done, where
 * there are no workers, x is on one already, or too many requests wait for them. */
PROA_MUST_CHECK bool proa_http_offload(proa_http_exchange *x,
                                       void (*handle)(proa_http_exchange *x, void *arg), void *arg);
/* Called once when less than PROA_CONN_LOW_BYTES are queued; for answers in pieces to slow readers. */
void proa_http_on_drained(proa_http_exchange *x, void (*drained)(proa_http_exchange *x));

#endif
