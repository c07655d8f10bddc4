/* SPDX-License-Identifier: Apache-2.0
 * conn_run.c - runs a connection: reading, input for the protocol, deadlines that pass, the end of a turn and of the
 * connection. Events come as edges: `readable` stays set until the socket has given less than was requested, so most
 * requests cost one read. */
#include "net/conn_inner.h"

#include "base/limits.h"
#include "net/block.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READS_MAX 16 /* in a row, before the other connections have their turn */

static const char preface[] = "PRI * HTTP/2.0\r\n"; /* how a client of HTTP/2 begins */

static void settle_conn(proa_conn *conn);
static void free_conn(proa_conn *conn);

/* ---- the socket without TLS ---- */

static int64_t plain_recv(proa_conn *conn, const struct iovec *iov, int count)
{
    for (;;) {
        ssize_t n = count == 1 ? recv(conn->fd, iov->iov_base, iov->iov_len, 0) : readv(conn->fd, iov, count);
        if (n >= 0) return n;
        if (errno != EINTR) return -errno;
    }
}

static int64_t plain_send(proa_conn *conn, const struct iovec *iov, int count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
    for (;;) {
        ssize_t n = count == 1 ? send(conn->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL)
                               : sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        if (n >= 0) return n;
        if (errno != EINTR) return -errno;
    }
}

static const proa_conn_io plain_io = {plain_recv, plain_send};

/* ---- deadlines ---- */

static void on_deadline(proa_deadline *deadline)
{
    proa_conn *conn = (proa_conn *)((char *)deadline - offsetof(proa_conn, deadline));
    bool open = conn->ending == PROA_CONN_OPEN && conn->write_ns > proa_loop_now_ns(conn->loop);
    conn->protocol_ns = INT64_MAX;
    if (!open || !conn->protocol || !conn->protocol->expired || !conn->protocol->expired(conn->state))
        proa_conn_fail(conn);
    proa_conn_set_deadlines(conn);
}

/* ---- input of the protocol ---- */

/* Chooses by the first bytes. NULL: there are too few of them. */
static const proa_protocol *choose_protocol(const proa_conn *conn, const char *bytes, size_t len)
{
    const proa_listen_options *options = conn->group->options;
    if (!options->http2) return options->http1;
    if (!options->http1) return options->http2;
    size_t whole = sizeof preface - 1;
    if (memcmp(bytes, preface, len < whole ? len : whole) != 0) return options->http1;
    return len < whole ? NULL : options->http2;
}

static void finish_into(proa_conn *conn)
{
    void (*done)(void *arg, size_t got) = conn->into_done;
    conn->into = NULL;
    if (done) done(conn->into_arg, conn->into_got);
}

/* So many bytes of read_into have arrived. */
static void into_arrived(proa_conn *conn, size_t n)
{
    conn->into_got += n;
    if (conn->protocol_ms > 0) proa_conn_deadline(conn, conn->protocol_ms);
    if (conn->into_got == conn->into_len) finish_into(conn);
    else if (conn->protocol->progress) conn->protocol->progress(conn->state, conn->into_got);
}

static bool takes_input(const proa_conn *conn)
{
    return conn->ending == PROA_CONN_OPEN && !conn->paused;
}

/* Returns how many of the bytes are done with. */
static size_t give_bytes(proa_conn *conn, const char *bytes, size_t len)
{
    size_t at = 0;
    while (conn->into && at < len && conn->ending == PROA_CONN_OPEN) {
        size_t rest = conn->into_len - conn->into_got, n = rest < len - at ? rest : len - at;
        memcpy(conn->into + conn->into_got, bytes + at, n);
        at += n;
        into_arrived(conn, n);
    }
    if (conn->ending != PROA_CONN_OPEN) return len;
    if (!conn->protocol) {
        const proa_protocol *protocol = choose_protocol(conn, bytes, len);
        if (!protocol) return at;
        proa_conn_start(conn, protocol);
    }
    if (at == len || !takes_input(conn)) return at;
    int64_t n = conn->protocol->input(conn->state, bytes + at, len - at);
    if (n < 0) proa_conn_close(conn, false);
    if (conn->ending != PROA_CONN_OPEN) return len;
    PROA_ASSERT((size_t)n == len - at || !conn->into);
    return at + (size_t)n;
}

/* ---- the bytes that were not consumed ---- */

static void drop_in(proa_conn *conn)
{
    proa_block_free(conn->in);
    conn->in = NULL;
    conn->in_at = conn->in_len = conn->in_cap = 0;
}

/* Makes room for at least that many bytes after the buffered ones. */
static void reserve_in(proa_conn *conn, size_t more)
{
    if (conn->in_cap - conn->in_at - conn->in_len >= more) return;
    size_t cap = conn->in_len + more < 2 * conn->in_len ? 2 * conn->in_len : conn->in_len + more;
    char *in = proa_block_get(cap);
    PROA_ASSERT(in);
    if (conn->in_len) memcpy(in, conn->in + conn->in_at, conn->in_len);
    size_t len = conn->in_len;
    drop_in(conn);
    conn->in = in;
    conn->in_len = len;
    conn->in_cap = proa_block_bytes(in);
}

static void give_buffered(proa_conn *conn)
{
    if (conn->in_len == 0 || !takes_input(conn)) return;
    size_t n = give_bytes(conn, conn->in + conn->in_at, conn->in_len);
    conn->in_at += n;
    conn->in_len -= n;
    if (conn->in_len == 0) drop_in(conn);
}

static void give_scratch(proa_conn *conn, size_t len)
{
    const char *bytes = conn->loop->scratch;
    size_t n = give_bytes(conn, bytes, len);
    if (n == len) return;
    reserve_in(conn, len - n);
    memcpy(conn->in + conn->in_at + conn->in_len, bytes + n, len - n);
    conn->in_len += len - n;
}

/* ---- reading ---- */

static bool wants_bytes(const proa_conn *conn)
{
    if (conn->eof || conn->ending == PROA_CONN_DEAD) return false;
    return conn->ending != PROA_CONN_OPEN || (!conn->paused && conn->in_len < PROA_CONN_INPUT_BYTES_MAX);
}

static void on_eof(proa_conn *conn)
{
    conn->eof = true;
    if (conn->ending == PROA_CONN_FLUSHING) return;
    bool open = conn->ending == PROA_CONN_OPEN && conn->protocol && conn->protocol->eof;
    if (!open || !conn->protocol->eof(conn->state)) proa_conn_fail(conn);
}

static void bytes_arrived(proa_conn *conn, size_t n)
{
    if (conn->ending != PROA_CONN_OPEN) return; /* dropped */
    if (conn->in_len > 0) {
        conn->in_len += n;
        give_buffered(conn);
        return;
    }
    size_t rest = conn->into ? conn->into_len - conn->into_got : 0, direct = rest < n ? rest : n;
    if (direct) into_arrived(conn, direct);
    if (n > direct) give_scratch(conn, n - direct);
}

/* Where the next bytes are read to: the target of read_into, after the buffered bytes, or the loop's scratch. */
static int read_targets(proa_conn *conn, struct iovec iov[2])
{
    int count = 0;
    bool open = conn->ending == PROA_CONN_OPEN;
    if (open && conn->in_len > 0) {
        reserve_in(conn, PROA_LOOP_SCRATCH / 16);
        size_t used = conn->in_at + conn->in_len;
        iov[0] = (struct iovec){conn->in + used, conn->in_cap - used};
        return 1;
    }
    if (open && conn->into)
        iov[count++] = (struct iovec){conn->into + conn->into_got, conn->into_len - conn->into_got};
    iov[count++] = (struct iovec){conn->loop->scratch, PROA_LOOP_SCRATCH};
    return count;
}

/* TLS has failed, and an alert with the reason was written. If we closed with bytes unread, the kernel's reset would
 * keep the alert from the client, so input is read and thrown away. */
static void abandon_tls(proa_conn *conn)
{
    proa_conn_drop_out(conn);
    conn->tls_broken = true;
    conn->io = &plain_io;
    proa_conn_close(conn, false);
}

/* False when the socket is empty, or has nothing for us. */
static bool read_once(proa_conn *conn)
{
    struct iovec iov[2];
    int count = read_targets(conn, iov);
    size_t room = iov[0].iov_len + (count > 1 ? iov[1].iov_len : 0);
    int64_t n = conn->io->recv(conn, iov, count);
    if (n > 0) {
        bytes_arrived(conn, (size_t)n);
        return (size_t)n == room || conn->hup;
    }
    if (n == -EPROTO) abandon_tls(conn);
    else if (n == 0) on_eof(conn);
    else if (n != -EAGAIN) proa_conn_fail(conn);
    return n == -EPROTO;
}

static void read_some(proa_conn *conn)
{
    for (int i = 0; i < READS_MAX && conn->readable && wants_bytes(conn); i++) {
        if (!read_once(conn)) conn->readable = false;
    }
}

/* A connection that is not read from still sees that its peer has reset it; and so does one whose reset came together
 * with its last bytes, which is one edge: reading them did not report it. If only too much input waits, it also
 * learns that the peer has shut its side after that. */
static void check_peer(proa_conn *conn)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) proa_conn_fail(conn);
    else if (conn->hup && !conn->eof && !conn->paused) on_eof(conn);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(fd);
    proa_conn *conn = arg;
    proa_loop_awake(conn->loop);
    conn->readable = true;
    if (what & EV_CLOSED) conn->hup = true;
    conn->inside = true;
    if (wants_bytes(conn)) read_some(conn);
    /* If an answer was queued at once, writing it shows the reset. */
    bool waits = conn->ending == PROA_CONN_OPEN && !conn->hup && conn->queued == 0;
    if (!wants_bytes(conn) || waits) check_peer(conn);
    settle_conn(conn);
}

/* ---- the end of a turn ---- */

static bool is_drained(const proa_conn *conn)
{
    return conn->want_drained && conn->queued < PROA_CONN_LOW_BYTES && conn->ending == PROA_CONN_OPEN;
}

/* Closes the protocol first, then releases what it left behind. */
static void end_protocol(proa_conn *conn)
{
    if (conn->into) finish_into(conn);
    const proa_protocol *protocol = conn->protocol;
    conn->protocol = NULL;
    if (protocol) protocol->close(conn->state);
    proa_conn_drop_out(conn);
    drop_in(conn);
}

/* All is written. A client that still sends would lose our last words if we closed now: the kernel would reset. */
static void linger_conn(proa_conn *conn)
{
    conn->ending = PROA_CONN_LINGERING;
    end_protocol(conn);
    if (conn->eof || conn->idle || conn->reserved || conn->ending == PROA_CONN_DEAD) { /* reserved: the next needs it */
        conn->ending = PROA_CONN_DEAD;
        return;
    }
    shutdown(conn->fd, SHUT_WR);
    conn->write_ns = INT64_MAX;
    conn->protocol_ns = proa_loop_now_ns(conn->loop) + PROA_LINGER_MS * INT64_C(1000000);
    proa_conn_set_deadlines(conn);
}

/* All is written but the close_notify of TLS, from which a client knows that nothing is missing. False: the socket has
 * no room for it; it waits for at most stall_ms. Input is thrown away from here on, so TLS does not read it (at the
 * end of the stream OpenSSL would forget that it has an alert to send). */
static bool tls_close_sent(proa_conn *conn)
{
    if (!conn->ssl || conn->tls_broken) return true;
    conn->io = &plain_io;
    if (proa_conn_tls_shut(conn)) return true;
    if (conn->protocol_ns != INT64_MAX) return false;
    conn->protocol_ns = proa_loop_now_ns(conn->loop) + conn->group->options->stall_ms * INT64_C(1000000);
    proa_conn_set_deadlines(conn);
    return false;
}

/* Runs once after every function of the protocol, as the last user of the connection: it may be freed here. */
static void settle_conn(proa_conn *conn)
{
    conn->inside = true;
    proa_conn_flush(conn);
    if (is_drained(conn)) {
        conn->want_drained = false;
        if (conn->protocol && conn->protocol->drained) conn->protocol->drained(conn->state);
        proa_conn_flush(conn);
    }
    if (conn->ending == PROA_CONN_FLUSHING && !conn->out && tls_close_sent(conn)) linger_conn(conn);
    conn->inside = false;
    if (conn->ending == PROA_CONN_DEAD) {
        if (!conn->late_queued) free_conn(conn);
        return;
    }
    if (conn->again || is_drained(conn) || (conn->readable && wants_bytes(conn))) proa_conn_late(conn);
}

static void on_late(proa_loop_task *task)
{
    proa_conn *conn = (proa_conn *)((char *)task - offsetof(proa_conn, late));
    conn->late_queued = false;
    conn->inside = true;
    if (conn->again) {
        conn->again = false;
        give_buffered(conn);
    }
    read_some(conn);
    settle_conn(conn);
}

void proa_conn_shutdown(proa_conn *conn)
{
    if (conn->ending != PROA_CONN_OPEN) return;
    conn->inside = true;
    conn->readable = true; /* a request may wait in the kernel: it arrived before the drain */
    read_some(conn);
    if (!conn->protocol) proa_conn_fail(conn);
    else if (conn->ending == PROA_CONN_OPEN && conn->protocol->shutdown)
        conn->protocol->shutdown(conn->state);
    settle_conn(conn);
}

/* ---- making and freeing ---- */

static void link_in(proa_conn *conn)
{
    conn->next = conn->group->first;
    if (conn->next) conn->next->prev = conn;
    conn->group->first = conn;
}

static void link_out(proa_conn *conn)
{
    if (conn->next) conn->next->prev = conn->prev;
    if (conn->prev) conn->prev->next = conn->next;
    else conn->group->first = conn->next;
}

static void count_conn(const proa_conn *conn, int by)
{
    proa_conn_counts *counts = conn->group->counts;
    atomic_fetch_add(conn->turned_away ? &counts->leaving : &counts->open, by);
}

static proa_conn *make_conn(proa_conn_group *group, int fd, SSL *ssl)
{
    proa_loop *loop = group->loop;
    proa_conn *conn = proa_block_get(sizeof *conn);
    PROA_ASSERT(conn);
    *conn = (proa_conn){
        .loop = loop, .group = group, .fd = fd, .ssl = ssl, .late.run = on_late, .deadline.pass = on_deadline};
    conn->io = ssl ? &proa_conn_tls_io : &plain_io;
    link_in(conn);
    const proa_listen_options *options = conn->group->options;
    conn->write_ns = INT64_MAX;
    conn->made_ns = proa_loop_now_ns(loop);
    proa_conn_deadline(conn, ssl ? options->head_ms : options->idle_ms);
    event_assign(&conn->event, loop->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_event, conn);
    return conn;
}

void proa_conn_new(proa_conn_group *group, int fd, SSL *ssl, bool reserved)
{
    proa_conn *conn = make_conn(group, fd, ssl);
    conn->reserved = reserved;
    count_conn(conn, 1);
    const proa_listen_options *options = conn->group->options;
    if ((ssl && !proa_conn_tls_attach(conn)) || event_add(&conn->event, NULL) != 0) proa_conn_fail(conn);
    else if (!ssl && !(options->http1 && options->http2))
        proa_conn_start(conn, options->http1 ? options->http1 : options->http2);
}

void proa_conn_turn_away(proa_conn_group *group, int fd)
{
    proa_conn *conn = make_conn(group, fd, NULL);
    const proa_listen_options *options = conn->group->options;
    conn->turned_away = true;
    count_conn(conn, 1);
    if (event_add(&conn->event, NULL) != 0) proa_conn_fail(conn);
    options->http1->turn_away(conn, options->http1_server);
    proa_conn_close(conn, false);
}

static void free_conn(proa_conn *conn)
{
    conn->inside = true; /* from now on the protocol can queue nothing */
    end_protocol(conn);
    event_del(&conn->event);
    if (conn->write_event) event_free(conn->write_event);
    proa_deadline_remove(&conn->loop->wheel, &conn->deadline);
    if (conn->ssl) proa_conn_tls_free(conn);
    link_out(conn);
    proa_spare_end(&conn->group->spare, conn->fd);
    count_conn(conn, -1);
    free((char *)conn->peer);
    proa_block_free(conn);
}
