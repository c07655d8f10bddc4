/* SPDX-License-Identifier: Apache-2.0
 * conn_inner.h - the inside of a connection, for conn.c (what a protocol asks of it), conn_out.c (writing), conn_tls.c,
 * conn_run.c (reading, the turn, the end) and listen.c.
 * Owner:   listen.c has it made, conn_run.c frees it.
 * Threads: the loop's. */
#ifndef PROA_NET_CONN_INNER_H
#define PROA_NET_CONN_INNER_H

#include "base/limits.h"
#include "net/conn.h"
#include "net/loop_inner.h"
#include "net/spare.h"
#include <event2/event.h>
#include <event2/event_struct.h>
#include <sys/socket.h>

typedef struct ssl_st SSL;
typedef struct proa_conn_out proa_conn_out;

/* The connections of a listener, on all its loops together. */
typedef struct proa_conn_counts {
    atomic_llong open;
    atomic_llong leaving; /* turned away, and still open to send the reason */
} proa_conn_counts;

/* The connections of a listener on one of its loops. */
typedef struct proa_conn_group {
    proa_loop *loop;
    const proa_listen_options *options; /* the listener's */
    proa_conn_counts *counts;           /* the listener's */
    proa_conn *first;                   /* the newest */
    proa_spare spare;
} proa_conn_group;

/* How bytes get to and from the socket. Both return a count, or 0 - errno; EAGAIN: not now. */
typedef struct proa_conn_io {
    /* 0: the end. Less than was requested: there is no more now (or conn->hup is set). -EPROTO: no more input can be
     * read, and an alert with the reason was sent to the peer. */
    int64_t (*recv)(proa_conn *conn, const struct iovec *iov, int count);
    int64_t (*send)(proa_conn *conn, const struct iovec *iov, int count);
} proa_conn_io;

typedef enum proa_conn_ending {
    PROA_CONN_OPEN,
    PROA_CONN_FLUSHING,  /* what is queued is written, then our side is shut */
    PROA_CONN_LINGERING, /* our side is shut and the protocol closed; input is thrown away */
    PROA_CONN_DEAD       /* freed at the end of this turn */
} proa_conn_ending;

struct proa_conn {
    proa_loop *loop;
    proa_conn_group *group;
    proa_conn *prev, *next; /* of the group */
    const proa_conn_io *io;
    const proa_protocol *protocol; /* NULL until it is known from the handshake or the first bytes */
    void *state;
    int fd;
    proa_conn_ending ending;
    bool inside; /* a function of the protocol runs, or is about to: settle_conn comes after it */
    bool late_queued;
    bool readable; /* the socket may have bytes */
    bool hup;      /* the peer has shut its side: read until the end */
    bool eof;      /* ... which was reached */
    bool blocked;  /* the socket takes no more for now */
    bool paused, again, want_drained;
    bool idle;        /* proa_conn_close_idle: it does not linger */
    bool reserved;    /* accepted with a spare descriptor of its group */
    bool turned_away; /* refused with a message: connections_max does not count it */
    proa_loop_task late;
    struct event event;
    struct event *write_event;     /* made when the socket blocks for the first time */
    proa_deadline deadline;        /* the earlier of the two */
    int64_t protocol_ns, write_ns; /* INT64_MAX: none */
    int64_t made_ns;               /* when it was accepted */
    int64_t last_send_ns;          /* when the socket last took bytes of ours; 0: never */
    int64_t protocol_ms;           /* of proa_conn_deadline; each piece of read_into starts it anew */
    /* What the protocol did not consume: in[in_at, in_at + in_len). */
    char *in;
    size_t in_at, in_len, in_cap;
    /* read_into */
    char *into;
    size_t into_len, into_got;
    void (*into_done)(void *arg, size_t got);
    void *into_arg;
    proa_conn_out *out, *out_last;
    size_t queued;
    SSL *ssl;
    bool tls_broken;  /* unusable from now on */
    bool raw_end;     /* the socket under ssl has ended */
    const char *peer; /* made at the first call */
};

/* conn.c */
void proa_conn_start(proa_conn *conn, const proa_protocol *protocol); /* it is known now */
void proa_conn_late(proa_conn *conn); /* queues conn->late unless it is queued or settle_conn will run anyway */
void proa_conn_fail(proa_conn *conn); /* ends at once: at the end of the turn */
void proa_conn_set_deadlines(proa_conn *conn);
bool proa_conn_is_quiet(const proa_conn *conn); /* no exchange has begun, and the last answer was taken */

/* conn_out.c */
void proa_conn_flush(proa_conn *conn);
void proa_conn_block(proa_conn *conn);    /* the socket takes no more: wait until it does */
void proa_conn_drop_out(proa_conn *conn); /* releases all that is queued */

/* conn_tls.c */
extern const proa_conn_io proa_conn_tls_io;
PROA_MUST_CHECK bool proa_conn_tls_attach(proa_conn *conn); /* puts conn->ssl on the socket */
bool proa_conn_tls_shut(proa_conn *conn); /* sends close_notify; false: not yet, the socket is full */
void proa_conn_tls_free(proa_conn *conn);

/* tls.c */
struct bio_method_st;
SSL *proa_tls_session(const proa_tls *shared, int64_t now_ns); /* NULL: out of memory */
const struct bio_method_st *proa_tls_bio(const proa_tls *tls);

/* conn_run.c. The connection is linked into the group, reads from the next turn on, and frees itself. */
void proa_conn_new(proa_conn_group *group, int fd, SSL *ssl, bool reserved);
/* The same for a connection beyond the limit: options->http1->turn_away answers it, then it ends. */
void proa_conn_turn_away(proa_conn_group *group, int fd);
void proa_conn_shutdown(proa_conn *conn); /* the listener drains; may free it */

#endif
