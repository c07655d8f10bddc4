/* SPDX-License-Identifier: Apache-2.0
 * http_answer.c - answers: whole, in pieces, and the server's own. */
#include "net/http.h"

#include "net/http_inner.h"
#include <string.h>

enum { PARTS = 16 }; /* of one write: three of the head, the others of a body that is copied */

/* Reason phrases of RFC 9110 and 6585, and nginx's of 499. In the order of the search: the usual ones first. */
static const char *reason_text(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
        {100, "Continue"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < PROA_COUNT(reasons); i++)
        if (reasons[i].status == status) return reasons[i].reason;
    return "Unknown";
}

/* ---- the head of an answer ---- */

/* The parts before and after the handler's own headers. */
typedef struct head {
    char front[64], back[112];
    size_t front_len, back_len;
} head;

static void add_text(char *text, size_t *len, const char *more, size_t more_len)
{
    memcpy(text + *len, more, more_len);
    *len += more_len;
}
#define ADD(text, len, literal) add_text((text), (len), (literal), sizeof(literal) - 1)

/* Backwards from the end of digits[20]; returns how many there are. */
static size_t to_digits(char digits[20], size_t n, unsigned base)
{
    size_t count = 0;
    do {
        digits[20 - ++count] = "0123456789abcdef"[n % base];
        n /= base;
    } while (n);
    return count;
}

static void put_status(head *out, int status)
{
    out->front_len = 0;
    if (status == 200) {
        ADD(out->front, &out->front_len, "HTTP/1.1 200 OK\r\n");
        return;
    }
    const char *reason = reason_text(status);
    char code[4] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10),
                    (char)('0' + status % 10), ' '};
    ADD(out->front, &out->front_len, "HTTP/1.1 ");
    add_text(out->front, &out->front_len, code, sizeof code);
    add_text(out->front, &out->front_len, reason, strlen(reason));
    ADD(out->front, &out->front_len, "\r\n");
}

static void put_length(head *out, size_t length)
{
    char digits[20];
    size_t count = to_digits(digits, length, 10);
    ADD(out->back, &out->back_len, "Content-Length: ");
    add_text(out->back, &out->back_len, digits + 20 - count, count);
    ADD(out->back, &out->back_len, "\r\n");
}

/* The connection's fate, and the end of the head. */
static void put_end(head *out, const proa_http_conn *h)
{
    bool keep = h->keep && !h->draining;
    if (!keep) ADD(out->back, &out->back_len, "Connection: close\r\n");
    else if (h->work->codec.minor == 0) ADD(out->back, &out->back_len, "Connection: keep-alive\r\n");
    ADD(out->back, &out->back_len, "\r\n");
}

static int put_parts(const head *out, proa_str headers, struct iovec iov[3])
{
    iov[0] = (struct iovec){(void *)out->front, out->front_len};
    iov[1] = (struct iovec){(void *)headers.ptr, headers.len};
    iov[2] = (struct iovec){(void *)out->back, out->back_len};
    return 3;
}

/* Answers that never have a body, whatever the handler passes (RFC 9110, 6.4.1). */
static bool has_no_body(int status)
{
    return status < 200 || status == 204 || status == 304;
}

/* Whose exchange it is, if it is still to be answered: on_disconnect may have been too late for a handler. */
static proa_http_conn *answering_conn(const proa_http_exchange *x)
{
    proa_http_conn *h = ((const proa_http_work *)x)->owner;
    return h && h->dispatched && &h->work->x == x ? h : NULL;
}

static void count_answer(const proa_http_conn *h, int status, size_t bytes)
{
    if (h->server->on_answer) h->server->on_answer(status, bytes, h->server->arg);
}

static void release_body(proa_http_body body)
{
    if (body.release) body.release(body.arg);
}

/* ---- on a worker ---- */

/* Where a worker's calls that answer are deferred; NULL: on the loop, where they act at once. */
static proa_http_offloaded *offloaded_of(const proa_http_exchange *x)
{
    return ((const proa_http_work *)x)->offloaded;
}

/* Records a call that answers: it acts when the request is back on its loop. */
static void defer_call(proa_http_offloaded *l, proa_http_deferred deferred)
{
    proa_arena *arena = &l->w->arena;
    if (l->ended) {
        release_body(deferred.body);
        return;
    }
    l->ended = deferred.kind == PROA_HTTP_RESPOND || deferred.kind == PROA_HTTP_END ||
               deferred.kind == PROA_HTTP_ABORT;
    if (deferred.headers.len) deferred.headers.ptr = proa_arena_strdup(arena, deferred.headers);
    proa_http_deferred *s = PROA_ARENA_NEW(arena, proa_http_deferred, 1);
    *s = deferred;
    *l->last = s;
    l->last = &s->next;
}

static void defer_respond(proa_http_offloaded *l, int status, proa_str headers, proa_http_body body)
{
    proa_arena *arena = &l->w->arena;
    struct iovec *copy = PROA_ARENA_NEW(arena, struct iovec, body.count);
    for (int i = 0; i < body.count; i++) {
        copy[i] = body.iov[i];
        if (body.release || !copy[i].iov_len) continue;
        copy[i].iov_base = proa_arena_alloc(arena, copy[i].iov_len);
        memcpy(copy[i].iov_base, body.iov[i].iov_base, copy[i].iov_len);
    }
    body.iov = copy;
    defer_call(
        l, (proa_http_deferred){.kind = PROA_HTTP_RESPOND, .status = status, .headers = headers, .body = body});
}

/* ---- whole answers ---- */

static void write_answer(proa_http_conn *h, int status, proa_str headers, proa_http_body body)
{
    size_t length = 0;
    for (int i = 0; i < body.count; i++) length += body.iov[i].iov_len;
    count_answer(h, status, length);
    head out = {.back_len = 0};
    put_status(&out, status);
    if (!has_no_body(status)) put_length(&out, length);
    put_end(&out, h);
    struct iovec iov[PARTS];
    int parts = put_parts(&out, headers, iov);
    bool without = h->work->is_head || has_no_body(status) || length == 0;
    bool joined = !without && !body.release && body.count <= PARTS - parts;
    for (int i = 0; joined && i < body.count; i++) iov[parts++] = body.iov[i];
    proa_conn_write(h->conn, iov, parts, NULL, NULL);
    if (!without && !joined) proa_conn_write(h->conn, body.iov, body.count, body.release, body.arg);
    else release_body(body);
}

void proa_http_respond(proa_http_exchange *x, int status, proa_str headers, proa_http_body body)
{
    if (PROA_UNLIKELY(offloaded_of(x) != NULL)) {
        defer_respond(offloaded_of(x), status, headers, body);
        return;
    }
    proa_http_conn *h = answering_conn(x);
    if (!h || h->work->begun) {
        release_body(body);
        return;
    }
    write_answer(h, status, headers, body);
    proa_http_finish(h);
}

/* The body of an answer of our own, and its headers, of which the length is returned. */
static size_t make_refusal(const proa_http_server *server, int status, const char *why, proa_buf *body,
                           char headers[128])
{
    proa_buf_init(body, 64 << 10);
    if (server->error_body) server->error_body(body, status, why, server->arg);
    else proa_buf_printf(body, "%s\n", why);
    int n = snprintf(headers, 128, "%sContent-Type: %s\r\n", status == 503 ? "Retry-After: 1\r\n" : "",
                     server->error_body ? "application/json" : "text/plain; charset=utf-8");
    return (size_t)n;
}

static void write_refusal(proa_http_conn *h, int status, const char *why)
{
    proa_buf body;
    char headers[128];
    size_t n = make_refusal(h->server, status, why, &body, headers);
    struct iovec iov = {body.ptr, body.len};
    write_answer(h, status, (proa_str){headers, n}, (proa_http_body){.iov = &iov, .count = 1});
    proa_buf_release(&body);
}

void proa_http_turn_away(proa_conn *conn, void *server)
{
    const proa_http_server *s = server;
    proa_buf body;
    char headers[128], why[80];
    snprintf(why, sizeof why, "too many connections: at most %d at once",
             proa_conn_options(conn)->connections_max);
    size_t n = make_refusal(s, 503, why, &body, headers);
    head out = {.back_len = 0};
    put_status(&out, 503);
    put_length(&out, body.len);
    ADD(out.back, &out.back_len, "Connection: close\r\n\r\n");
    struct iovec iov[PARTS];
    int parts = put_parts(&out, (proa_str){headers, n}, iov);
    iov[parts++] = (struct iovec){body.ptr, body.len};
    proa_conn_write(conn, iov, parts, NULL, NULL);
    if (s->on_answer) s->on_answer(503, body.len, s->arg);
    proa_buf_release(&body);
}

/* It is unknown where the next request would begin: the connection ends. */
void proa_http_refuse(proa_http_conn *h, int status, const char *why)
{
    h->keep = false;
    write_refusal(h, status, why);
    proa_http_finish(h);
}

void proa_http_busy(proa_http_conn *h)
{
    write_refusal(h, 503, "too many large requests wait: at most " PROA_STR(PROA_WORKER_WAITING_MAX));
    proa_http_finish(h);
}

/* ---- answers in pieces ---- */

void proa_http_begin(proa_http_exchange *x, int status, proa_str headers)
{
    if (PROA_UNLIKELY(offloaded_of(x) != NULL)) {
        defer_call(offloaded_of(x),
                   (proa_http_deferred){.kind = PROA_HTTP_BEGIN, .status = status, .headers = headers});
        return;
    }
    proa_http_conn *h = answering_conn(x);
    if (!h || h->work->begun) return;
    proa_http_work *w = h->work;
    w->begun = true;
    count_answer(h, status, 0);
    w->pieces = !w->is_head && !has_no_body(status);
    head out = {.back_len = 0};
    put_status(&out, status);
    if (w->codec.minor == 0) h->keep = false; /* the end of the connection is the end of the answer */
    else if (!has_no_body(status)) ADD(out.back, &out.back_len, "Transfer-Encoding: chunked\r\n");
    put_end(&out, h);
    struct iovec iov[3];
    proa_conn_write(h->conn, iov, put_parts(&out, headers, iov), NULL, NULL);
}

void proa_http_send(proa_http_exchange *x, proa_str bytes)
{
    if (PROA_UNLIKELY(offloaded_of(x) != NULL)) {
        defer_call(offloaded_of(x), (proa_http_deferred){.kind = PROA_HTTP_SEND, .headers = bytes});
        return;
    }
    proa_http_conn *h = answering_conn(x);
    if (!h || !h->work->pieces || bytes.len == 0) return;
    struct iovec iov[3] = {{0}, {(void *)bytes.ptr, bytes.len}, {(void *)"\r\n", 2}};
    char digits[22];
    size_t count = to_digits(digits, bytes.len, 16);
    digits[20] = '\r';
    digits[21] = '\n';
    iov[0] = (struct iovec){digits + 20 - count, count + 2};
    bool chunked = h->work->codec.minor == 1;
    proa_conn_write(h->conn, chunked ? iov : iov + 1, chunked ? 3 : 1, NULL, NULL);
}

void proa_http_end(proa_http_exchange *x)
{
    static const char last[] = "0\r\n\r\n";
    if (PROA_UNLIKELY(offloaded_of(x) != NULL)) {
        defer_call(offloaded_of(x), (proa_http_deferred){.kind = PROA_HTTP_END});
        return;
    }
    proa_http_conn *h = answering_conn(x);
    if (!h || !h->work->begun) return;
    struct iovec iov = {(void *)last, sizeof last - 1};
    if (h->work->pieces && h->work->codec.minor == 1) proa_conn_write(h->conn, &iov, 1, NULL, NULL);
    proa_http_finish(h);
}

void proa_http_abort(proa_http_exchange *x)
{
    if (PROA_UNLIKELY(offloaded_of(x) != NULL)) {
        defer_call(offloaded_of(x), (proa_http_deferred){.kind = PROA_HTTP_ABORT});
        return;
    }
    proa_http_conn *h = answering_conn(x);
    if (!h) return;
    h->keep = false;
    proa_http_finish(h);
}
