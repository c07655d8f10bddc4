/* SPDX-License-Identifier: Apache-2.0
 * listen.c - sockets that listen, one for each loop, and the connections that come from them. */
#include "net/conn.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/conn_inner.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ACCEPTS_MAX 64       /* in a row, before the connections have their turn */
#define REST_MS     100      /* when the process is out of descriptors */
#define FRESH_NS    20000000 /* a connection that has come so lately does not have to make room for the next */
#define LOG_INTERVAL_NS                                                                                      \
    INT64_C(10000000000) /* between two log lines on refused connections, so that a flood does not fill the log */

typedef struct listen_part listen_part;

struct proa_listener {
    proa_listen_options options;
    char *address;
    int port;
    bool local;   /* a Unix socket: one for all loops */
    bool listens; /* the socket file is ours */
    atomic_bool draining;
    atomic_int accepting; /* parts that have not seen the drain yet */
    proa_conn_counts counts;
    atomic_llong refused;   /* so far */
    atomic_llong logged_ns; /* when that was last logged */
    int parts_count;
    listen_part *parts;
};

/* One loop's share of a listener. */
struct listen_part {
    proa_listener *listener;
    proa_loop *loop;
    int fd; /* -1: drained */
    struct event *event;
    proa_timer rest; /* out of descriptors: tries again later */
    proa_loop_task start, drain;
    bool draining;
    proa_conn_group conns;
};

typedef struct target {
    int family;
    socklen_t len;
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        struct sockaddr_un local;
    } at;
} target;

/* ---- sockets ---- */

static bool is_local(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

static proa_status parse_local(target *to, const char *path, proa_err *err)
{
    to->family = AF_UNIX;
    to->len = sizeof to->at.local;
    to->at.local.sun_family = AF_UNIX;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof to->at.local.sun_path)
        return PROA_FAIL(err, INVALID, "cannot listen on unix:%s: a path has 1 to %zu characters", path,
                         sizeof to->at.local.sun_path - 1);
    memcpy(to->at.local.sun_path, path, len + 1);
    return PROA_OK;
}

static proa_status parse_target(target *to, const char *address, int port, proa_err *err)
{
    *to = (target){0};
    if (is_local(address)) return parse_local(to, address + 5, err);
    if (port < 0 || port > 65535)
        return PROA_FAIL(err, INVALID, "cannot listen on %s: port %d is not within 0 and 65535", address, port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int rc = getaddrinfo(address, NULL, &hints, &found);
    if (rc != 0 || found->ai_addrlen > sizeof to->at.in6) {
        if (found) freeaddrinfo(found);
        return PROA_FAIL(err, INVALID, "cannot listen on %s: %s", address, gai_strerror(rc));
    }
    to->family = found->ai_family;
    to->len = found->ai_addrlen;
    memcpy(&to->at, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (to->family == AF_INET6) to->at.in6.sin6_port = htons((uint16_t)port);
    else to->at.in4.sin_port = htons((uint16_t)port);
    return PROA_OK;
}

static void set_option(int fd, int level, int name)
{
    int on = 1;
    if (setsockopt(fd, level, name, &on, sizeof on) != 0) return; /* a wish, not a need */
}

/* Returns -1 with errno. A bound socket keeps its port, but clients cannot connect yet. */
static int open_bound(const target *to, bool shared)
{
    int fd = socket(to->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    if (to->family != AF_UNIX) {
        set_option(fd, SOL_SOCKET, SO_REUSEADDR);
        set_option(fd, IPPROTO_TCP, TCP_NODELAY); /* what is accepted inherits it */
        if (shared) set_option(fd, SOL_SOCKET, SO_REUSEPORT);
    }
    if (bind(fd, &to->at.any, to->len) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Returns -1 with errno. */
static int open_socket(const target *to, bool shared)
{
    int fd = open_bound(to, shared);
    if (fd < 0 || listen(fd, PROA_LISTEN_BACKLOG) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int port_of(int fd)
{
    struct sockaddr_in6 at = {0}; /* the port is at the same place in sockaddr_in */
    socklen_t len = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &len) != 0) return 0;
    return at.sin6_family == AF_UNIX ? 0 : ntohs(at.sin6_port);
}

/* Removes the socket file of a dead process; one on which a process listens stays. */
static void remove_stale(const target *to)
{
    struct stat st;
    if (stat(to->at.local.sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    bool stale = connect(fd, &to->at.any, to->len) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (stale) unlink(to->at.local.sun_path);
}

static proa_status fail_listen(const proa_listen_options *o, proa_err *err)
{
    const char *why = errno == EADDRINUSE ? "address already in use" : strerror(errno);
    if (is_local(o->address)) return PROA_FAIL(err, UNAVAILABLE, "cannot listen on %s: %s", o->address, why);
    return PROA_FAIL(err, UNAVAILABLE, "cannot listen on %s:%d: %s", o->address, o->port, why);
}

/* Binding would make the file, so only its folder is looked at. */
static proa_status check_folder(const proa_listen_options *o, const target *to, proa_err *err)
{
    const char *path = to->at.local.sun_path, *slash = strrchr(path, '/');
    char folder[sizeof to->at.local.sun_path + 1];
    snprintf(folder, sizeof folder, "%.*s/", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return access(folder, W_OK | X_OK) == 0 ? PROA_OK : fail_listen(o, err);
}

proa_status proa_listener_check(const proa_listen_options *o, proa_err *err)
{
    target to;
    PROA_TRY(parse_target(&to, o->address, o->port, err));
    if (is_local(o->address)) return check_folder(o, &to, err);
    int fd = open_bound(&to, o->reuse_port);
    if (fd < 0) return fail_listen(o, err);
    close(fd);
    return PROA_OK;
}

/* SO_REUSEPORT, which our loops need, would also let another process of this user in and share its clients: so the
 * first socket is opened without it, and says whether the port is free. */
static proa_status claim_slot(proa_listener *listener, target *to, proa_err *err)
{
    if (listener->local) remove_stale(to);
    bool shared = listener->options.reuse_port && !listener->local;
    int fd = open_socket(to, shared);
    if (fd < 0) return fail_listen(&listener->options, err);
    listener->port = port_of(fd);
    if (to->family == AF_INET6) to->at.in6.sin6_port = htons((uint16_t)listener->port);
    else if (to->family == AF_INET) to->at.in4.sin_port = htons((uint16_t)listener->port);
    if (listener->local || shared || listener->parts_count == 1) listener->parts[0].fd = fd;
    else close(fd);
    return PROA_OK;
}

static proa_status open_sockets(proa_listener *listener, proa_err *err)
{
    target to;
    PROA_TRY(parse_target(&to, listener->address, listener->options.port, err));
    PROA_TRY(claim_slot(listener, &to, err));
    for (int i = 0; i < listener->parts_count; i++) {
        listen_part *part = &listener->parts[i];
        if (part->fd >= 0) continue;
        part->fd = listener->local ? dup(listener->parts[0].fd) : open_socket(&to, true);
        if (part->fd < 0) return fail_listen(&listener->options, err);
    }
    return PROA_OK;
}

/* ---- accepting ---- */

static void on_rested(void *arg)
{
    listen_part *part = arg;
    if (part->event && event_add(part->event, NULL) != 0) proa_timer_start(&part->rest, REST_MS);
}

/* Out of descriptors or memory: the listening socket stays readable, so looking again at once would spin. */
static void pause_listener(listen_part *part, int error)
{
    PROA_LOG(WARNING, "cannot accept a connection on port %d: %s", part->listener->port, strerror(error));
    event_del(part->event);
    proa_timer_start(&part->rest, REST_MS);
}

static void log_refused(proa_listener *listener, int64_t now_ns)
{
    long long refused = 1 + atomic_fetch_add(&listener->refused, 1), last_ns = atomic_load(&listener->logged_ns);
    if (refused > 1 && now_ns - last_ns < LOG_INTERVAL_NS) return;
    if (!atomic_compare_exchange_strong(&listener->logged_ns, &last_ns, now_ns)) return;
    PROA_LOG(WARNING, "port %d has its %d connections: %lld refused so far", listener->port,
             listener->options.connections_max, refused);
}

/* A few at a time get an answer with the reason. Through TLS that would take a handshake, which is expensive. */
static void refuse_conn(listen_part *part, int fd)
{
    proa_listener *listener = part->listener;
    const proa_listen_options *options = &listener->options;
    log_refused(listener, proa_loop_now_ns(part->loop));
    bool can = !options->tls && options->http1 && options->http1->turn_away;
    if (!can || atomic_load(&listener->counts.leaving) >= PROA_LEAVING_MAX) close(fd);
    else proa_conn_turn_away(&part->conns, fd);
}

static void accept_conn(listen_part *part, int fd, bool reserved)
{
    proa_listener *listener = part->listener;
    SSL *ssl = NULL;
    if (atomic_load(&listener->counts.open) >= listener->options.connections_max) {
        refuse_conn(part, fd);
        return;
    }
    if (listener->options.tls) ssl = proa_tls_session(listener->options.tls, proa_loop_now_ns(part->loop));
    if (listener->options.tls && !ssl) {
        close(fd);
        return;
    }
    proa_conn_new(&part->conns, fd, ssl, reserved);
}

/* ---- out of descriptors ---- */

/* The connection without an exchange whose time is over first: it has waited longest. NULL: all are busy, or so new
 * that their requests may not have been read yet. */
static proa_conn *find_quietest(const listen_part *part)
{
    proa_conn *found = NULL;
    int64_t before_ns = proa_loop_now_ns(part->loop) - FRESH_NS;
    for (proa_conn *conn = part->conns.first; conn; conn = conn->next)
        if (proa_conn_is_quiet(conn) && conn->made_ns < before_ns &&
            (!found || conn->protocol_ns <= found->protocol_ns))
            found = conn;
    return found;
}

static void log_starved(proa_listener *listener, int64_t now_ns)
{
    long long last_ns = atomic_load(&listener->logged_ns);
    if (last_ns && now_ns - last_ns < LOG_INTERVAL_NS) return;
    if (!atomic_compare_exchange_strong(&listener->logged_ns, &last_ns, now_ns)) return;
    PROA_LOG(WARNING,
             "port %d: no more file descriptors for connections: idle ones are closed, and only health and "
             "metrics use the reserve",
             listener->port);
}

/* Ends one quiet connection, so that the next turn can accept another, or else accepts one with a spare descriptor.
 * False: neither can be done. */
static bool make_room(listen_part *part)
{
    proa_conn *quiet = find_quietest(part);
    log_starved(part->listener, proa_loop_now_ns(part->loop));
    if (quiet) {
        proa_conn_close(quiet, true);
        return true;
    }
    if (part->conns.spare.count == 0) return false;
    int client = proa_spare_accept_instead(&part->conns.spare, part->fd);
    if (client >= 0) accept_conn(part, client, true);
    return client >= 0 || errno == EAGAIN; /* without descriptors accept does not look whether a connection waits */
}

/* Returns 0, or errno if there is nothing more to accept, or no room for it. */
static int accept_some(listen_part *part, int count)
{
    for (int i = 0; i < count; i++) {
        int client = proa_spare_accept(part->fd);
        if (client >= 0) accept_conn(part, client, false);
        else if (errno != ECONNABORTED && errno != EINTR) return errno;
    }
    return 0;
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(fd);
    PROA_UNUSED(what);
    listen_part *part = arg;
    proa_loop_awake(part->loop);
    int error = accept_some(part, ACCEPTS_MAX);
    if ((error == EMFILE || error == ENFILE) && make_room(part)) return;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
        pause_listener(part, error);
}

static void on_start(proa_loop_task *task)
{
    listen_part *part = (listen_part *)((char *)task - offsetof(listen_part, start));
    if (part->draining) return;
    part->event = event_new(part->loop->base, part->fd, EV_READ | EV_PERSIST, on_accept, part);
    PROA_ASSERT(part->event);
    proa_spare_open(&part->conns.spare);
    on_rested(part);
}

/* ---- the end ---- */

static void stop_accepting(listen_part *part)
{
    proa_timer_release(&part->rest);
    if (part->event) event_free(part->event);
    part->event = NULL;
    if (part->fd >= 0) close(part->fd);
    part->fd = -1;
    proa_spare_close(&part->conns.spare);
}

static void on_drain(proa_loop_task *task)
{
    listen_part *part = (listen_part *)((char *)task - offsetof(listen_part, drain));
    part->draining = true;
    /* connections made before the drain are served like accepted ones: the kernel would reset them */
    accept_some(part, PROA_LISTEN_BACKLOG);
    stop_accepting(part);
    for (proa_conn *conn = part->conns.first, *next; conn; conn = next) {
        next = conn->next; /* this one may be freed here, and no other */
        proa_conn_shutdown(conn);
    }
    atomic_fetch_sub(&part->listener->accepting, 1);
}

void proa_listener_drain(proa_listener *listener)
{
    if (atomic_exchange(&listener->draining, true)) return;
    for (int i = 0; i < listener->parts_count; i++)
        proa_loop_post(listener->parts[i].loop, &listener->parts[i].drain);
}

/* Tasks of the listener may still be posted, and the end of a connection may write to another one: run them here. */
static void end_part(listen_part *part)
{
    proa_loop_run_posted(part->loop);
    stop_accepting(part);
    while (part->conns.first) {
        for (proa_conn *conn = part->conns.first; conn; conn = conn->next) proa_conn_close(conn, true);
        proa_loop_run_late(part->loop);
    }
}

void proa_listener_close(proa_listener *listener)
{
    if (!listener) return;
    for (int i = 0; i < listener->parts_count; i++) end_part(&listener->parts[i]);
    if (listener->local && listener->listens) unlink(listener->address + 5);
    free(listener->parts);
    free(listener->address);
    free(listener);
}

/* ---- making ---- */

static void fill_defaults(proa_listen_options *options)
{
    if (options->connections_max <= 0) options->connections_max = PROA_CONNECTIONS_MAX;
    if (options->idle_ms <= 0) options->idle_ms = PROA_IDLE_MS;
    if (options->head_ms <= 0) options->head_ms = PROA_HEAD_MS;
    if (options->stall_ms <= 0) options->stall_ms = PROA_STALL_MS;
}

static proa_listener *new_listener(proa_loop *const *loops, int loops_count, const proa_listen_options *options)
{
    proa_listener *listener = proa_calloc(1, sizeof *listener);
    listener->options = *options;
    fill_defaults(&listener->options);
    listener->address = proa_strdup(options->address);
    listener->options.address = listener->address;
    listener->local = is_local(options->address);
    listener->parts_count = loops_count;
    atomic_init(&listener->accepting, loops_count);
    listener->parts = proa_calloc((size_t)loops_count, sizeof *listener->parts);
    for (int i = 0; i < loops_count; i++) {
        listen_part *part = &listener->parts[i];
        *part = (listen_part){.listener = listener, .loop = loops[i], .fd = -1};
        part->conns = (proa_conn_group){
            .loop = loops[i], .options = &listener->options, .counts = &listener->counts};
        part->rest = (proa_timer){.loop = loops[i], .fire = on_rested, .arg = part};
        part->start.run = on_start;
        part->drain.run = on_drain;
    }
    return listener;
}

proa_status proa_listener_open(proa_listener **out, proa_loop *const *loops, int loops_count,
                               const proa_listen_options *options, proa_err *err)
{
    PROA_ASSERT(loops_count > 0 && loops_count <= PROA_LOOPS_MAX && (options->http1 || options->http2));
    *out = NULL;
    proa_listener *listener = new_listener(loops, loops_count, options);
    proa_status status = open_sockets(listener, err);
    if (status != PROA_OK) {
        proa_listener_close(listener);
        return status;
    }
    listener->listens = true;
    for (int i = 0; i < loops_count; i++) proa_loop_post(loops[i], &listener->parts[i].start);
    *out = listener;
    return PROA_OK;
}

int proa_listener_port(const proa_listener *listener)
{
    return listener->port;
}

int64_t proa_listener_connections(const proa_listener *listener)
{
    return atomic_load(&listener->counts.open);
}

int64_t proa_listener_refused(const proa_listener *listener)
{
    return atomic_load(&listener->refused);
}

bool proa_listener_drained(const proa_listener *listener)
{
    return atomic_load(&listener->accepting) == 0 && atomic_load(&listener->counts.open) == 0;
}
