/* SPDX-License-Identifier: Apache-2.0
 * wire.c - a blocking connection with time-outs, and HTTP/1.1 on it. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct proa_wire {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
};

enum { ANSWER_HEAD_MAX = 64 << 10, READ_BYTES = 64 << 10, INTERIM_MAX = 8 };

proa_status proa_target_parse(proa_target *t, bool *grpc, const char *url, proa_err *err)
{
    static const struct {
        const char *scheme;
        int port;
        bool tls, grpc;
    } schemes[] = {{"http://", 8000, false, false},
                   {"https://", 443, true, false},
                   {"grpc://", 8001, false, true},
                   {"grpcs://", 443, true, true}};
    *grpc = false;
    t->port = 8000, t->tls = false;
    if (strncmp(url, "unix:", 5) == 0)
        return t->port = 0, snprintf(t->host, sizeof t->host, "%s", url + 5), PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(schemes); i++)
        if (strncmp(url, schemes[i].scheme, strlen(schemes[i].scheme)) == 0) {
            t->port = schemes[i].port, t->tls = schemes[i].tls, *grpc = schemes[i].grpc;
            url += strlen(schemes[i].scheme);
            break;
        }
    if (strstr(url, "://"))
        return PROA_FAIL(err, INVALID, "'%s' is none of http://, https://, grpc://, grpcs:// and unix:PATH", url);
    const char *end = *url == '[' ? strchr(url, ']') : url + strcspn(url, ":/");
    size_t skip = *url == '[';
    if (!end || end == url + skip || (size_t)(end - url) >= sizeof t->host)
        return PROA_FAIL(err, INVALID, "'%s' names no host", url);
    snprintf(t->host, sizeof t->host, "%.*s", (int)(end - url - (ptrdiff_t)skip), url + skip);
    end += skip;
    if (*end == ':') {
        char *rest;
        long port = strtol(end + 1, &rest, 10);
        if (rest == end + 1 || (*rest && *rest != '/') || port < 1 || port > 65535)
            return PROA_FAIL(err, INVALID, "'%s' is not a port", end + 1);
        t->port = (int)port, t->port_given = true;
    }
    return PROA_OK;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) return errno = ENAMETOOLONG, -1;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void set_timeouts(int fd, int ms)
{
    struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static int connect_tcp(const proa_target *t, const char **why)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    snprintf(port, sizeof port, "%d", t->port);
    int failed = getaddrinfo(t->host, port, &hints, &list), fd = -1;
    if (failed) return *why = gai_strerror(failed), -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        set_timeouts(fd, t->timeout_ms);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        *why = strerror(errno);
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    return fd;
}

static proa_status start_tls(proa_wire *w, const proa_target *t, bool http2, proa_err *err)
{
    w->context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(w->context, TLS1_2_VERSION);
    if (t->ca ? !SSL_CTX_load_verify_locations(w->context, t->ca, NULL)
              : !SSL_CTX_set_default_verify_paths(w->context))
        return PROA_FAIL(err, INVALID, "cannot read the certificates of '%s'", t->ca ? t->ca : "the system");
    SSL_CTX_set_verify(w->context, SSL_VERIFY_PEER, NULL);
    w->ssl = SSL_new(w->context);
    SSL_set_tlsext_host_name(w->ssl, t->host);
    SSL_set1_host(w->ssl, t->host);
    if (http2) SSL_set_alpn_protos(w->ssl, (const unsigned char *)"\2h2", 3);
    SSL_set_fd(w->ssl, w->fd);
    if (SSL_connect(w->ssl) == 1) return PROA_OK;
    long verify = SSL_get_verify_result(w->ssl);
    return PROA_FAIL(err, UNAVAILABLE, "TLS with %s:%d: %s", t->host, t->port,
                     verify != X509_V_OK ? X509_verify_cert_error_string(verify)
                                         : ERR_reason_error_string(ERR_peek_last_error()));
}

proa_status proa_wire_open(proa_wire **out, const proa_target *t, bool http2, proa_err *err)
{
    const char *why = NULL;
    int fd = t->port ? connect_tcp(t, &why) : connect_unix(t->host);
    *out = NULL;
    if (fd < 0)
        return PROA_FAIL(err, UNAVAILABLE, "cannot connect to %s:%d: %s", t->host, t->port,
                         why ? why : strerror(errno));
    set_timeouts(fd, t->timeout_ms);
    proa_wire *w = proa_calloc(1, sizeof *w);
    w->fd = fd;
    proa_status status = t->tls ? start_tls(w, t, http2, err) : PROA_OK;
    if (status == PROA_OK) *out = w;
    else proa_wire_close(w);
    return status;
}

void proa_wire_close(proa_wire *w)
{
    if (!w) return;
    SSL_free(w->ssl);
    SSL_CTX_free(w->context);
    close(w->fd);
    free(w);
}

proa_status proa_wire_write(proa_wire *w, const char *bytes, size_t len, proa_err *err)
{
    while (len > 0) {
        int part = len > (1 << 30) ? 1 << 30 : (int)len;
        ssize_t n = w->ssl ? SSL_write(w->ssl, bytes, part) : send(w->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) return PROA_FAIL(err, UNAVAILABLE, "cannot send: %s", strerror(errno));
        bytes += n, len -= (size_t)n;
    }
    return PROA_OK;
}

proa_status proa_wire_read(proa_wire *w, char *bytes, size_t cap, size_t *got, proa_err *err)
{
    ssize_t n = w->ssl ? SSL_read(w->ssl, bytes, (int)cap) : recv(w->fd, bytes, cap, 0);
    if (w->ssl && n <= 0 && SSL_get_error(w->ssl, (int)n) == SSL_ERROR_ZERO_RETURN) n = 0;
    if (n < 0)
        return PROA_FAIL(err, UNAVAILABLE, "no answer: %s",
                         errno == EAGAIN ? "nothing came within the time-out" : strerror(errno));
    *got = (size_t)n;
    return PROA_OK;
}

/* ---- HTTP/1.1 ---- */

typedef struct answer {
    proa_wire *wire;
    proa_buf buf; /* read and not yet used: from `at` on */
    size_t at;
    int status;
    bool chunked;
    int64_t length; /* -1: until the end */
} answer;

static proa_status fill_buffer(answer *a, size_t *got, proa_err *err)
{
    char bytes[READ_BYTES];
    if (a->at == a->buf.len) proa_buf_clear(&a->buf), a->at = 0;
    PROA_TRY(proa_wire_read(a->wire, bytes, sizeof bytes, got, err));
    if (!proa_buf_append(&a->buf, bytes, *got))
        return PROA_FAIL(err, LIMIT, "a line of the answer is too long");
    return PROA_OK;
}

/* The line at `*at` of buf without its LF or CRLF, after which *at is then. False: it is not complete. */
static bool take_line(proa_str *line, const proa_buf *buf, size_t *at)
{
    const char *end = buf->len > *at ? memchr(buf->ptr + *at, '\n', buf->len - *at) : NULL;
    if (!end) return false;
    const char *start = buf->ptr + *at;
    size_t len = (size_t)(end - start);
    *at += len + 1;
    *line = (proa_str){start, len && start[len - 1] == '\r' ? len - 1 : len};
    return true;
}

/* Valid until the next fill. */
static proa_status next_line(answer *a, proa_str *line, proa_err *err)
{
    while (!take_line(line, &a->buf, &a->at)) {
        size_t got;
        PROA_TRY(fill_buffer(a, &got, err));
        if (got == 0) return PROA_FAIL(err, UNAVAILABLE, "the server closed the connection within an answer");
    }
    return PROA_OK;
}

static bool header_is(proa_str line, const char *name, proa_str *value)
{
    size_t n = strlen(name);
    if (line.len <= n || strncasecmp(line.ptr, name, n) != 0 || line.ptr[n] != ':') return false;
    *value = (proa_str){line.ptr + n + 1, line.len - n - 1};
    while (value->len && *value->ptr == ' ') value->ptr++, value->len--;
    return true;
}

static proa_status read_one_head(answer *a, proa_err *err)
{
    proa_str line, value;
    PROA_TRY(next_line(a, &line, err));
    if (line.len < 12 || strncmp(line.ptr, "HTTP/1.", 7) != 0)
        return PROA_FAIL(err, INVALID, "that is no HTTP server: '%.*s'",
                         (int)proa_min64((int64_t)line.len, 40), line.ptr);
    a->status = (int)strtol(line.ptr + 9, NULL, 10);
    a->length = -1;
    for (;;) {
        PROA_TRY(next_line(a, &line, err));
        if (line.len == 0) break;
        if (header_is(line, "content-length", &value)) a->length = strtoll(value.ptr, NULL, 10);
        if (header_is(line, "transfer-encoding", &value)) a->chunked = true;
    }
    return PROA_OK;
}

/* A server may send heads of status 1xx before that of the answer. */
static proa_status read_head(answer *a, proa_err *err)
{
    for (int i = 0; i <= INTERIM_MAX; i++) {
        PROA_TRY(read_one_head(a, err));
        if (a->status / 100 != 1) return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "the server sends more than %d interim answers", INTERIM_MAX);
}

/* `length` bytes of body, or all until the end if it is negative. */
static proa_status read_part(answer *a, int64_t length, proa_body_fn *on_body, void *arg, proa_err *err)
{
    while (length != 0) {
        size_t got = a->buf.len - a->at;
        if (got == 0) PROA_TRY(fill_buffer(a, &got, err));
        if (got == 0 && length < 0) return PROA_OK;
        if (got == 0) return PROA_FAIL(err, UNAVAILABLE, "the server closed the connection within an answer");
        if (length > 0 && (int64_t)got > length) got = (size_t)length;
        PROA_TRY(on_body(arg, a->status, (proa_str){a->buf.ptr + a->at, got}, err));
        a->at += got;
        if (length > 0) length -= (int64_t)got;
    }
    return PROA_OK;
}

static proa_status read_body(answer *a, proa_body_fn *on_body, void *arg, proa_err *err)
{
    if (!a->chunked) return read_part(a, a->length, on_body, arg, err);
    for (;;) {
        proa_str line;
        PROA_TRY(next_line(a, &line, err));
        int64_t length = strtoll(line.ptr, NULL, 16);
        if (length < 0) return PROA_FAIL(err, INVALID, "a chunk of the answer has no length");
        PROA_TRY(read_part(a, length, on_body, arg, err));
        PROA_TRY(next_line(a, &line, err)); /* its end, or that of the trailers */
        if (length == 0) return PROA_OK;
    }
}

proa_status proa_client_http(const proa_target *t, const char *method, const char *path, proa_str body,
                             proa_body_fn *on_body, void *arg, proa_err *err)
{
    proa_buf head;
    answer a = {.wire = NULL};
    proa_buf_init(&head, ANSWER_HEAD_MAX);
    proa_buf_init(&a.buf, (size_t)4 * ANSWER_HEAD_MAX);
    proa_buf_printf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, path,
                    t->port ? t->host : "localhost");
    if (t->api_key) proa_buf_printf(&head, "Authorization: Bearer %s\r\n", t->api_key);
    if (body.len)
        proa_buf_printf(&head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body.len);
    proa_buf_append(&head, "\r\n", 2);
    proa_status status = proa_wire_open(&a.wire, t, false, err);
    if (status == PROA_OK) status = proa_wire_write(a.wire, head.ptr, head.len, err);
    if (status == PROA_OK) status = proa_wire_write(a.wire, body.ptr, body.len, err);
    if (status == PROA_OK) status = read_head(&a, err);
    if (status == PROA_OK) status = read_body(&a, on_body, arg, err);
    proa_wire_close(a.wire);
    proa_buf_release(&a.buf);
    proa_buf_release(&head);
    return status;
}

/* ---- server-sent events (the HTML Standard, section 9.2): lines end in LF or CRLF, an empty one ends an event ---- */

/* The first event of buf: moves the values of its `data` lines to the front, a newline between two, and sets *used to
 * the bytes of the event. False: it is not complete, and nothing has moved. */
static bool take_event(proa_str *data, size_t *used, proa_buf *buf)
{
    proa_str line = {"", 0};
    size_t at = 0, len = 0;
    while (take_line(&line, buf, &at) && line.len) continue;
    bool complete = at > 0 && line.len == 0;
    *used = at;
    for (at = 0; complete && take_line(&line, buf, &at) && line.len;) {
        if (!proa_str_starts(line, proa_str_c("data:")))
            continue; /* a comment, or a field that is not used */
        size_t skip = line.len > 5 && line.ptr[5] == ' ' ? 6 : 5;
        if (len) buf->ptr[len++] = '\n';
        memmove(buf->ptr + len, line.ptr + skip, line.len - skip);
        len += line.len - skip;
    }
    *data = (proa_str){buf->ptr, len};
    return complete;
}

proa_status proa_client_events(proa_buf *buf, proa_data_fn *on_event, void *arg, proa_err *err)
{
    proa_str data;
    size_t used;
    while (take_event(&data, &used, buf)) {
        if (data.len && !proa_str_is(data, "[DONE]")) PROA_TRY(on_event(arg, data, err));
        memmove(buf->ptr, buf->ptr + used, buf->len - used);
        buf->len -= used;
    }
    return PROA_OK;
}
