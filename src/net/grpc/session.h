/* SPDX-License-Identifier: Apache-2.0
 * session.h - inside net/grpc: a connection (http2.c; session.c is what its calls ask of it), its calls (call.c) and
 * their messages (message_in.c, message_out.c).
 * Owner:   the connection owns the session, the session its calls, a call its messages in and out.
 * Threads: the loop's. */
#ifndef PROA_NET_GRPC_SESSION_H
#define PROA_NET_GRPC_SESSION_H

#include "net/block.h"
#include "net/compress.h"
#include "net/grpc/grpc.h"
#include <nghttp2/nghttp2.h>

#define NS_PER_MS ((int64_t)1000000)

enum { GRPC_PREFIX = 5 }; /* before each message: is it compressed?, its length, big-endian */

/* A message on its way out: the prefix and pieces, all in iov. */
typedef struct grpc_out {
    struct grpc_out *next;
    void (*release)(void *arg); /* NULL: the bytes are stored after iov */
    void *arg;
    size_t bytes; /* with the prefix */
    int refs;     /* the queue's, and one for each write that the connection has not finished */
    int count;
    bool pack; /* to be compressed before it is sent */
    struct iovec iov[];
} grpc_out;

/* A message that has come: as it is, or still compressed. */
typedef struct grpc_message {
    char *bytes; /* a block */
    size_t len;
    bool packed;
} grpc_message;

/* One that arrived while its call was paused, or while the one before it was unpacked. */
typedef struct grpc_in {
    struct grpc_in *next;
    grpc_message message;
} grpc_in;

/* A compressed message on a worker. */
typedef struct grpc_unpacking {
    proa_work_item work;    /* first */
    struct grpc_call *call; /* NULL: it has ended. For the loop only */
    proa_coding coding;
    grpc_message packed;
    size_t most;
    char *bytes; /* a block; NULL: it failed, or there was no memory */
    size_t len;
    proa_status status;
    proa_err err;
} grpc_unpacking;

/* A message out on a worker. */
typedef struct grpc_packing {
    proa_work_item work;    /* first */
    struct grpc_call *call; /* NULL: it has ended. For the loop only */
    grpc_out *plain;        /* with a reference of its own */
    int level;
    proa_buf packed;
    bool shorter; /* packed is */
} grpc_packing;

typedef struct grpc_call grpc_call;
typedef struct grpc_session {
    proa_conn *conn;
    proa_loop *loop;
    const proa_grpc_server *server;
    nghttp2_session *h2;
    proa_block_pool *pool;
    grpc_call *calls; /* newest first */
    int64_t message_max, unpacked_max;
    char *stage; /* of a flush: small frames that are written together */
    size_t staged;
    bool busy;         /* inside nghttp2: what is submitted now is written after it has returned */
    bool work_pending; /* a call must be resumed, or its on_drained called */
    bool posted;       /* task is in the loop's queue */
    bool disconnected; /* the connection has ended; the posted task frees the session */
    bool reading;      /* the client's first frame has come */
    bool held;         /* reading from the connection is paused: the client does not read what we send */
    bool draining, last_named; /* GOAWAY: the notice was sent; the last stream was named */
    bool used_since; /* a stream was open when the notice was sent, or later: its client may still read */
    bool ending;     /* nothing more is read */
    bool ping_waits; /* a ping of ours is not answered */
    proa_loop_task task;
    proa_timer timer;
    int64_t timer_ns; /* when it fires; 0: not running */
    int64_t opened_ns, read_ns, ping_ns, drain_ns, age_ns;
    int64_t window_ns; /* of the next two counts */
    int resets, controls;
    int64_t peer_ping_ns;
    int strikes;
    int partial; /* calls with a message of which a part has come */
} grpc_session;

struct grpc_call {
    proa_grpc_call pub; /* first */
    grpc_session *session;
    grpc_call *prev, *next;
    int32_t stream;
    proa_arena arena;
    /* the head */
    proa_grpc_header *headers; /* pub.metadata, growing */
    int headers_cap;
    size_t headers_bytes;
    int refused; /* gRPC code of a head that is not right, and why */
    const char *refusal;
    int http_status;    /* of an answer that is not gRPC; 0: none */
    bool post, te;      /* :method POST; te: trailers */
    bool grpc;          /* content-type */
    proa_coding coding; /* of messages in */
    bool takes_gzip;
    /* state */
    bool owned;               /* on_call was called, finish and on_disconnect were not */
    bool half_closed;         /* END_STREAM arrived ... */
    bool half_close_reported; /* ... and on_half_close was called */
    bool answered;            /* response headers are submitted */
    bool deferred;            /* nghttp2 waits for nghttp2_session_resume_data */
    bool finished;            /* trailers are known */
    bool left;                /* the end of the answer has been sent */
    bool cut;                 /* reset by us, within a message */
    bool paused, delivering, resume_due, drained_due;
    bool was_high; /* queued was above PROA_CONN_HIGH_BYTES */
    bool gzip;     /* of messages out */
    /* in */
    unsigned char prefix[GRPC_PREFIX];
    int prefix_len;
    char *message; /* a block; NULL between messages */
    size_t message_len, message_size;
    bool counted;        /* in session->partial */
    int64_t progress_ns; /* when a byte of a message arrived, or of a finished answer was sent */
    char *current;       /* the message that on_message looks at */
    grpc_in *waiting, **waiting_last;
    grpc_unpacking *unpacking; /* its message comes next; NULL: none */
    size_t held; /* bytes that arrived while paused or unpacking: their window is not opened yet */
    /* out */
    grpc_out *out, **out_last;
    size_t out_at; /* bytes of the first message that have left */
    size_t queued;
    grpc_packing *packing; /* its message comes next, and then those in `behind`; NULL: none */
    grpc_out *behind, **behind_last;
    size_t unready; /* bytes of these */
    nghttp2_nv *trailers;
    size_t trailers_count;
    PROA_ALIGNED(16) char memory[2048]; /* the arena's first block */
};

/* session.c */
void proa_grpc_session_stage(grpc_session *s, const void *bytes, size_t len); /* gathered, and written when pumped */
void proa_grpc_session_write(grpc_session *s, const struct iovec *iov, int count, grpc_out *holder);
void proa_grpc_session_pump(grpc_session *s); /* writes everything that nghttp2 has ready to the connection */
void proa_grpc_session_flush_soon(grpc_session *s);
void proa_grpc_session_wake(grpc_session *s, int64_t ns); /* the timer fires then at the latest */
void proa_grpc_out_drop(grpc_out *out);

/* call.c: the life of a call, called by the connection */
grpc_call *proa_grpc_call_new(grpc_session *s, int32_t stream);
void proa_grpc_call_free(grpc_call *c);
void proa_grpc_call_header(grpc_call *c, proa_str name, proa_str value);
void proa_grpc_call_start(grpc_call *c);        /* the head is complete */
void proa_grpc_call_disconnected(grpc_call *c); /* calls on_disconnect, once */
/* Calls on_disconnect, then answers, after the messages that are queued: whether those were sent by now is chance. */
void proa_grpc_call_fail(grpc_call *c, int code, const char *text);
void proa_grpc_call_expire(grpc_call *c); /* the deadline has passed: what is still queued is dropped */
/* call.c: for messages */
void proa_grpc_call_count_partial(grpc_call *c, bool partial); /* a part of a message has come, or no longer */
size_t proa_grpc_call_head_fields(const grpc_call *c, nghttp2_nv fields[4]); /* of the answer; returns how many */
void proa_grpc_call_wake(grpc_call *c); /* there is something to send: nghttp2 reads the stream again */
/* message_in.c */
void proa_grpc_call_data(grpc_call *c, const char *bytes, size_t len);
void proa_grpc_call_half_close(grpc_call *c);
void proa_grpc_call_resume(grpc_call *c); /* not paused any more: delivers the waiting messages */
/* message_out.c. Writes exactly len bytes of the queue, which are in it, to the connection. */
void proa_grpc_call_write(grpc_call *c, size_t len);

#endif
