/* SPDX-License-Identifier: Apache-2.0
 * test_http.c - the HTTP/1.1 server on real sockets: keep-alive, pipelining, bodies both ways, limits, slow and
 * vanishing clients, thousands of idle connections, drain. TLS: test_tls.c. */
#include "net_helper.h"
#include "http_client.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "net/block.h"
#include "net/http.h"
#include <sys/resource.h>

#if PROA_ASAN || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* memory is not what it costs otherwise */
#else
#define SANITIZED 0
#endif

typedef struct shop {
    house house;
    proa_http_server server;
    atomic_int gone, requests, released, stopped;
    atomic_llong most_queued;
} shop;

static shop *the_shop; /* a test has one at a time */

/* ---- what the server does ---- */

static void say(proa_http_exchange *x, int status, const char *text)
{
    struct iovec iov = {(void *)text, strlen(text)};
    proa_http_respond(x, status, proa_str_c("X-Test: 1\r\n"), (proa_http_body){.iov = &iov, .count = 1});
}

static void on_disconnect(proa_http_exchange *x)
{
    assert_ptr_equal(x->user, the_shop);
    atomic_fetch_add(&the_shop->gone, 1);
}

typedef struct later {
    proa_timer timer;
    proa_http_exchange *x;
    int number;
    int left; /* pieces of a stream */
} later;

static void free_later(void *arg)
{
    proa_timer_release(&((later *)arg)->timer);
    free(arg);
}

static later *new_later(proa_http_exchange *x, void (*fire)(void *arg))
{
    later *l = calloc(1, sizeof *l);
    *l = (later){.timer = {.loop = proa_conn_loop(x->conn), .fire = fire}, .x = x};
    l->timer.arg = l;
    proa_arena_defer(x->arena, free_later, l); /* ends with the exchange */
    return l;
}

static void answer_later(void *arg)
{
    later *l = arg;
    char text[64];
    snprintf(text, sizeof text, "later %d", l->number);
    say(l->x, 200, text);
}

static void release_count(void *arg)
{
    free(arg);
    atomic_fetch_add(&the_shop->released, 1);
}

static void respond_big(proa_http_exchange *x, size_t n)
{
    char *bytes = malloc(n);
    memset(bytes, 'b', n);
    struct iovec iov = {bytes, n};
    proa_http_respond(x, 200, proa_str_c(""),
                      (proa_http_body){.iov = &iov, .count = 1, .release = release_count, .arg = bytes});
}

/* 64 KiB a piece, as fast as the client takes them. */
static void stream_more(proa_http_exchange *x)
{
    static char piece[64 << 10];
    later *l = x->user;
    memset(piece, 's', sizeof piece);
    while (l->left > 0) {
        long long queued = (long long)proa_conn_queued(x->conn);
        if (queued > atomic_load(&the_shop->most_queued)) atomic_store(&the_shop->most_queued, queued);
        if (queued > PROA_CONN_HIGH_BYTES) {
            proa_http_on_drained(x, stream_more);
            return;
        }
        proa_http_send(x, (proa_str){piece, sizeof piece});
        l->left--;
    }
    proa_http_end(x);
}

static void stream_gone(proa_http_exchange *x)
{
    (void)x;
    atomic_fetch_add(&the_shop->gone, 1);
}

static void take_and_free(proa_http_exchange *x)
{
    assert_int_equal((uintptr_t)x->body % 64, 0);
    size_t len = x->body_len;
    unsigned long sum = 0;
    char *body = proa_http_take_body(x), text[64];
    for (size_t i = 0; i < len; i++) sum += (unsigned char)body[i];
    assert_int_equal(body[len], 0);
    proa_http_body_free(body);
    snprintf(text, sizeof text, "%zu %lu", len, sum);
    say(x, 200, text);
}

static void tell_request(proa_http_exchange *x)
{
    proa_str v = proa_http_get(x, "x-value"), none = proa_http_get(x, "x-valu");
    assert_null(none.ptr);
    assert_true(x->start_ns > 0 && x->start_ns <= proa_clock_ns());
    char *text = proa_arena_printf(x->arena, "%.*s|%.*s|%.*s|%d|%.*s", (int)x->method.len, x->method.ptr,
                                   (int)x->path.len, x->path.ptr, (int)x->query.len, x->query.ptr,
                                   x->headers_count, (int)v.len, v.ptr);
    say(x, 200, text);
}

static void start_stream(proa_http_exchange *x, long pieces)
{
    later *l = new_later(x, NULL);
    l->left = (int)pieces;
    x->user = l;
    proa_http_on_disconnect(x, stream_gone);
    proa_http_begin(x, 200, proa_str_c("Content-Type: text/plain\r\n"));
    proa_http_begin(x, 500, proa_str_c("")); /* too late: ignored */
    proa_http_send(x, proa_str_c(""));       /* nothing, and not the end */
    stream_more(x);
}

static void start_waiting(proa_http_exchange *x, long ms)
{
    later *l = new_later(x, answer_later);
    l->number = (int)ms;
    x->user = the_shop;
    proa_http_on_disconnect(x, on_disconnect);
    if (ms >= 0) proa_timer_start(&l->timer, ms);
}

static void on_request(proa_http_exchange *x, void *arg)
{
    atomic_fetch_add(&((shop *)arg)->requests, 1);
    char query[32] = "";
    if (x->query.len < sizeof query && x->query.len) memcpy(query, x->query.ptr, x->query.len);
    long n = strtol(query, NULL, 10);
    struct iovec body = {x->body, x->body_len};
    if (proa_str_is(x->path, "/echo"))
        proa_http_respond(x, 200, proa_str_c(""), (proa_http_body){.iov = &body, .count = 1});
    else if (proa_str_is(x->path, "/later")) start_waiting(x, n);
    else if (proa_str_is(x->path, "/hang")) start_waiting(x, -1);
    else if (proa_str_is(x->path, "/big")) respond_big(x, (size_t)n);
    else if (proa_str_is(x->path, "/stream")) start_stream(x, n);
    else if (proa_str_is(x->path, "/take")) take_and_free(x);
    else if (proa_str_is(x->path, "/tell")) tell_request(x);
    else if (proa_str_is(x->path, "/status")) say(x, (int)n, "text");
    else if (proa_str_is(x->path, "/abort")) {
        proa_http_begin(x, 200, proa_str_c(""));
        proa_http_send(x, proa_str_c("cut"));
        proa_http_abort(x);
    } else say(x, 200, "hello");
}

static int64_t body_limit(const proa_http_exchange *x, void *arg)
{
    assert_ptr_equal(arg, the_shop);
    return proa_str_is(x->path, "/small") ? 10 : proa_str_is(x->path, "/huge") ? INT64_MAX : 64 << 20;
}

static void error_body(proa_buf *out, int status, const char *text, void *arg)
{
    assert_ptr_equal(arg, the_shop);
    proa_buf_printf(out, "{\"error\":\"%d %s\"}", status, text);
}

static void shop_open(shop *s, proa_listen_options options)
{
    *s = (shop){
        .server = {.on_request = on_request, .body_limit = body_limit, .error_body = error_body, .arg = s}};
    the_shop = s;
    options.http1 = &proa_http_protocol;
    options.http1_server = &s->server;
    house_open(&s->house, options);
}

static void wait_connections(shop *s, int count)
{
    for (int i = 0; i < 60000 && proa_listener_connections(s->house.listener) != count; i++) sleep_ms(1);
    assert_int_equal(proa_listener_connections(s->house.listener), count);
}

/* ---- keep-alive and forms of answers ---- */

static void test_keep_alive(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    for (int i = 0; i < 3; i++) {
        client_send(&c, "GET /tell?a=b&c HTTP/1.1\r\nHost: x\r\nX-Other: 1\r\nX-VALUE:  some thing \r\n\r\n");
        client_expect(&c, 200, "GET|/tell|a=b&c|3|some thing");
        assert_non_null(strstr(c.head, "X-Test: 1\r\n"));
        assert_null(strstr(c.head, "Connection:"));
    }
    client_send(&c, "GET http://x/abs HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&c, 200, "hello");
    client_send(&c, "HEAD /tell HTTP/1.1\r\nHost: x\r\n\r\nGET /status?204 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect_head(&c, 200); /* its length, no body */
    assert_non_null(strstr(c.head, "Content-Length: 14\r\n"));
    client_expect_head(&c, 204);
    assert_null(strstr(c.head, "Content-Length"));
    client_send(&c, "HEAD /stream?3 HTTP/1.1\r\nHost: x\r\n\r\nGET /status?418 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect_head(&c, 200);
    client_expect(&c, 418, "text");
    assert_non_null(strstr(c.head, "HTTP/1.1 418 Unknown\r\n"));
    client_send(&c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_expect(&c, 200, "hello");
    assert_non_null(strstr(c.head, "Connection: keep-alive\r\n"));
    client_send(
        &c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /never HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&c, 200, "hello");
    assert_non_null(strstr(c.head, "Connection: close\r\n"));
    client_expect_end(&c);
    c = client_open(s.house.port);
    client_send(&c, "GET / HTTP/1.0\r\n\r\n");
    client_expect(&c, 200, "hello");
    client_expect_end(&c);
    assert_int_equal(s.requests, 11);
    house_close(&s.house);
    (void)state;
}

/* Requests that come together are answered one after the other, also those whose answer takes its time. */
static void test_pipelining(void **state)
{
    enum { COUNT = 600 };
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    proa_buf all;
    proa_buf_init(&all, 1 << 20);
    for (int i = 0; i < COUNT; i++) {
        if (i % 50 == 7) proa_buf_printf(&all, "GET /later?%d HTTP/1.1\r\nHost: x\r\n\r\n", i % 3);
        else proa_buf_printf(&all, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n%08d", i);
    }
    for (int round = 0; round < 2; round++) {
        if (round == 0) send_all(c.fd, all.ptr, all.len);
        else /* in odd portions */
            for (size_t at = 0; at < all.len; at += 997)
                send_all(c.fd, all.ptr + at, all.len - at < 997 ? all.len - at : 997);
        for (int i = 0; i < COUNT; i++) {
            char text[32];
            if (i % 50 == 7) snprintf(text, sizeof text, "later %d", i % 3);
            else snprintf(text, sizeof text, "%08d", i);
            client_expect(&c, 200, text);
        }
    }
    client_close(&c);
    proa_buf_release(&all);
    house_close(&s.house);
    (void)state;
}

/* So many answers that they pile up: the server stops to look at requests until some were read. */
static void test_pipelined_flood(void **state)
{
    enum { COUNT = 300, BYTES = 100000 };
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    for (int i = 0; i < COUNT; i++) client_send(&c, "GET /big?100000 HTTP/1.1\r\nHost: x\r\n\r\n");
    sleep_ms(100);
    assert_true(atomic_load(&s.requests) < COUNT);
    for (int i = 0; i < COUNT; i++) {
        client_read(&c);
        assert_int_equal(c.body_len, BYTES);
    }
    assert_int_equal(s.requests, COUNT);
    wait_int(&s.released, COUNT);
    client_close(&c);
    house_close(&s.house);
    (void)state;
}

/* ---- bodies ---- */

static void test_bodies(void **state)
{
    enum { BIG = 9 << 20 };
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    client_send(&c, "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    client_expect(&c, 200, "3 294");
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    client_expect(&c, 200, "");
    char *bytes = malloc(BIG);
    memset(bytes, 3, BIG);
    char text[128];
    snprintf(text, sizeof text, "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BIG);
    for (int i = 0; i < 3; i++) {
        client_send(&c, text);
        send_all(c.fd, bytes, BIG);
        client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); /* right behind it */
        client_expect(&c, 200, "9437184 28311552");
        client_expect(&c, 200, "hello");
    }
    client_send(&c, "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    static const int sizes[] = {1, 5, 4095, 4096, 70000, 1 << 20, 3, 2 << 20};
    long total = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++, total += sizes[i - 1]) {
        snprintf(text, sizeof text, "%x;n=%zu\r\n", (unsigned)sizes[i], i);
        client_send(&c, text);
        send_all(c.fd, bytes, (size_t)sizes[i]);
        if (i % 2) sleep_ms(2);
        client_send(&c, "\r\n");
    }
    client_send(&c, "0\r\nTrailer: x\r\n\r\n");
    snprintf(text, sizeof text, "%ld %ld", total, 3 * total);
    client_expect(&c, 200, text);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    client_expect(&c, 200, "");
    free(bytes);
    client_close(&c);
    house_close(&s.house);
    (void)state;
}

static void test_streams(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    client_send(&c, "GET /stream?40 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(&c);
    assert_int_equal(c.body_len, 40 * 65536);
    assert_non_null(strstr(c.head, "Transfer-Encoding: chunked\r\n"));
    client_expect(&c, 200, "hello");
    client_send(&c, "GET /abort HTTP/1.1\r\nHost: x\r\n\r\n");
    char rest[512];
    recv_end(c.fd, rest, sizeof rest);
    assert_non_null(strstr(rest, "3\r\ncut\r\n"));
    assert_null(strstr(rest, "0\r\n\r\n"));
    client_close(&c);
    c = client_open(s.house.port); /* an old client gets the same without chunks, until the end */
    client_send(&c, "GET /stream?3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_expect_head(&c, 200);
    assert_non_null(strstr(c.head, "Connection: close\r\n"));
    char *bytes = malloc(4 * 65536);
    assert_int_equal(client_rest(&c, bytes, 4 * 65536), 3 * 65536);
    free(bytes);
    client_close(&c);
    assert_int_equal(s.gone, 0);
    house_close(&s.house);
    (void)state;
}

static void test_continue(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client_expect_head(&c, 100);
    client_send(&c, "12345");
    client_expect(&c, 200, "12345");
    /* who sends the body at once needs no 100 */
    client_send(&c,
                "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n12345");
    client_expect(&c, 200, "12345");
    client_send(
        &c, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    client_expect_head(&c, 100);
    client_send(&c, "1\r\nq\r\n0\r\n\r\n");
    client_expect(&c, 200, "q");
    client_send(&c, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    client_expect(&c, 413, "{\"error\":\"413 the request body is too large\"}");
    client_expect_end(&c);
    c = client_open(s.house.port);
    client_send(&c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: coffee\r\n\r\n");
    client_expect(&c, 417, "{\"error\":\"417 the expectation cannot be met\"}");
    client_expect_end(&c);
    house_close(&s.house);
    (void)state;
}

/* ---- limits: an answer, the end, and no handler gets the request ---- */

static void expect_refusal(const shop *s, const char *request, size_t more, int status)
{
    client c = client_open(s->house.port);
    client_send(&c, request);
    char block[4096];
    memset(block, 'a', sizeof block);
    for (size_t at = 0; at < more; at += sizeof block) {
        /* the server may have ended the connection after its answer: that is no failure here */
        if (send(c.fd, block, sizeof block, MSG_NOSIGNAL) < 0) break;
    }
    client_read(&c);
    if (c.status != status) fail_msg("%d instead of %d for %.60s", c.status, status, request);
    assert_non_null(strstr(c.head, "Connection: close\r\n"));
    assert_non_null(strstr(c.head, "Content-Type: application/json\r\n"));
    client_expect_end(&c);
}

static void test_refusals(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    expect_refusal(&s, "nonsense\r\n\r\n", 0, 400);
    expect_refusal(&s, "GET / HTTP/1.1\r\n\r\n", 0, 400);
    expect_refusal(&s, "GET x HTTP/1.1\r\nHost: x\r\n\r\n", 0, 400);
    expect_refusal(&s, "GET / HTTP/3.0\r\n\r\n", 0, 505);
    expect_refusal(&s, "GET /", 1 << 20, 414);
    expect_refusal(&s, "GET / HTTP/1.1\r\nX: ", 1 << 20, 431);
    expect_refusal(&s, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 0, 501);
    expect_refusal(&s, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", 0, 413);
    /* a client that sends megabytes before it reads still finds the answer */
    expect_refusal(&s, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 33554432\r\n\r\n", 32 << 20, 413);
    expect_refusal(
        &s, "POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n6\r\n", 0, 413);
    expect_refusal(&s, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 0, 400);
    expect_refusal(&s, "POST /huge HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n", 0, 503);
    assert_int_equal(s.requests, 0);
    client c = client_open(s.house.port); /* a good request before a bad one is answered */
    client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\nbad\r\n");
    client_expect(&c, 200, "hello");
    client_read(&c);
    assert_int_equal(c.status, 400);
    client_expect_end(&c);
    s.server.error_body = NULL;
    c = client_open(s.house.port);
    client_send(&c, "bad\r\n");
    client_expect(&c, 400, "the request line is malformed\n");
    client_expect_end(&c);
    house_close(&s.house);
    (void)state;
}

static void test_chunk_flood(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    for (int more = 0; more < 2; more++) {
        client c = client_open(s.house.port);
        client_send(&c, "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        int chunks = PROA_HTTP_CHUNKS_MAX + more;
        char *all = malloc((size_t)chunks * 6 + 6);
        for (int i = 0; i < chunks; i++) memcpy(all + (size_t)i * 6, "1\r\n\1\r\n", 6);
        memcpy(all + (size_t)chunks * 6, "0\r\n\r\n", 5);
        send_all(c.fd, all, (size_t)chunks * 6 + 5);
        free(all);
        if (more) client_expect(&c, 400, "{\"error\":\"400 the request body has too many chunks\"}");
        else client_expect(&c, 200, "65536 65536");
        client_close(&c);
    }
    house_close(&s.house);
    (void)state;
}

/* Bodies of all connections together, as they come: who only announces takes nothing from the others. */
static void test_inflight(void **state)
{
    enum { BIG = 24 << 20 };
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client liars[5];
    for (int i = 0; i < 5; i++) {
        liars[i] = client_open(s.house.port);
        client_send(&liars[i], "POST /huge HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\nabc");
    }
    char *bytes = calloc(1, BIG), text[128];
    void *hog = proa_block_get(1000); /* counting touches nothing */
    for (int chunked = 0; chunked < 2; chunked++) {
        snprintf(text, sizeof text,
                 chunked ? "POST /take HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"
                         : "POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                 BIG);
        client c = client_open(s.house.port);
        client_send(&c, text);
        send_all(c.fd, bytes, BIG);
        if (chunked) client_send(&c, "\r\n0\r\n\r\n");
        client_expect(&c, 200, "25165824 0");
        assert_true(proa_block_count(hog, (size_t)(PROA_INFLIGHT_BYTES_MAX - 8 * PROA_MIB)));
        client_send(&c, text);
        for (int at = 0; at < BIG && send(c.fd, bytes, 65536, MSG_NOSIGNAL) > 0; at += 65536) continue;
        client_expect(&c, 503, "{\"error\":\"503 the server holds too many request bodies\"}");
        assert_non_null(strstr(c.head, "Retry-After: 1\r\n"));
        client_expect_end(&c);
        c = client_open(s.house.port); /* small ones pass */
        client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
        client_expect(&c, 200, "ok");
        client_close(&c);
        proa_block_free(hog);
        hog = proa_block_get(1000);
    }
    proa_block_free(hog);
    free(bytes);
    for (int i = 0; i < 5; i++) client_close(&liars[i]);
    house_close(&s.house);
    (void)state;
}

/* ---- slow clients ---- */

static void test_slow_sender(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){.head_ms = 1000, .stall_ms = 1000, .idle_ms = 1000});
    int64_t start = proa_clock_ns();
    client idle = client_open(s.house.port), head = client_open(s.house.port), body = client_open(s.house.port);
    client drip = client_open(s.house.port), busy = client_open(s.house.port);
    client_send(&head, "GET / HTTP/1.1\r\nHo");
    client_send(&body, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc");
    client_send(&drip, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
    client_send(&busy, "GET /later?2500 HTTP/1.1\r\nHost: x\r\n\r\n"); /* the handler may take its time */
    for (int i = 0; i < 100; i++) {
        client_send(&drip, "x"); /* slow, but it moves */
        sleep_ms(20);
    }
    client_expect(&head, 408, "{\"error\":\"408 the request did not come in time\"}");
    client_expect_end(&head);
    client_expect(&body, 408, "{\"error\":\"408 the request did not come in time\"}");
    client_expect_end(&body);
    client_expect_end(&idle);
    client_read(&drip);
    assert_int_equal(drip.status, 200);
    assert_int_equal(drip.body_len, 100);
    client_close(&drip);
    client_expect(&busy, 200, "later 2500");
    client_expect_end(&busy); /* idle after that */
    assert_true(seconds_since(start) > 3.4 && seconds_since(start) < 60);
    house_close(&s.house);
    (void)state;
}

static void test_slow_reader(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){.stall_ms = 1000});
    client c = client_open(s.house.port);
    client_send(&c, "GET /stream?800 HTTP/1.1\r\nHost: x\r\n\r\n"); /* 50 MB */
    sleep_ms(200);
    client_read(&c);
    assert_int_equal(c.body_len, 800 * 65536);
    /* back-pressure: no more than the mark and the piece that went over it */
    assert_true(atomic_load(&s.most_queued) <= PROA_CONN_HIGH_BYTES + 65536 + 64);
    assert_true(atomic_load(&s.most_queued) > PROA_CONN_LOW_BYTES);
    client_send(&c, "GET /stream?800 HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_int(&s.gone, 1); /* reads nothing */
    client_close(&c);
    c = client_open(s.house.port);
    client_send(&c, "GET /big?50000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_int(&s.released, 1);
    client_close(&c);
    house_close(&s.house);
    (void)state;
}

/* An answer of which bytes move is written to its end, however long that takes: no time but stall_ms is for readers. */
static void read_slowly(const shop *s, const char *first, const char *second, int next)
{
    enum { BIG = 50000000, PIECE = 1 << 20 };
    client c = client_open(s->house.port);
    client_send(&c, first);
    sleep_ms(20);
    client_send(&c, second);
    client_expect_head(&c, 200);
    for (c.body_len = 0; c.body_len < BIG; sleep_ms(40)) { /* two seconds */
        size_t before = c.body_len, left = BIG - before;
        client_body(&c, left < PIECE ? left : PIECE);
    }
    if (next) client_read(&c);
    if (next) assert_int_equal(c.status, next);
    client_expect_end(&c); /* closed, or idle for long enough */
}

static void test_steady_reader(void **state)
{
    shop s;
    /* less than the two seconds; but a busy machine sends a head's halves late */
    shop_open(&s, (proa_listen_options){.head_ms = 1500, .idle_ms = 1500});
    read_slowly(&s, "GET /big?50000000 HTTP/1.1\r\n", "Host: x\r\n\r\n", 0);
    read_slowly(&s, "GET /big?50000000 HTTP/1.1\r\nHost: x\r\n", "Connection: close\r\n\r\n", 0);
    read_slowly(&s, "GET /big?50000000 HTTP/1.0\r\n", "\r\n", 0);
    read_slowly(&s, "", "GET /big?50000000 HTTP/1.0\r\n\r\n", 0);
    read_slowly(&s, "", "GET /big?50000000 HTTP/1.1\r\nHost: x\r\n\r\nbad\r\n", 400);
    house_close(&s.house);
    (void)state;
}

/* ---- clients that go away ---- */

static void reset_client(client *c)
{
    struct linger hard = {1, 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    client_close(c);
}

static void test_gone(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    for (int i = 0; i < 4; i++) {
        client c = client_open(s.house.port);
        if (i == 2) client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); /* one before, which is answered */
        client_send(&c, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
        wait_int(&s.requests, i + 1 + (i >= 2));
        if (i == 3) client_send(&c, "GET /unseen HTTP/1.1\r\nHost: x\r\n\r\nGET /half");
        int64_t start = proa_clock_ns();
        if (i == 0) reset_client(&c);
        else client_close(&c);
        wait_int(&s.gone, i + 1);
        assert_true(seconds_since(start) < 20); /* at once, not at a time-out (30 s) */
    }
    client c = client_open(s.house.port); /* behind more bytes than the server takes ahead, and less than the kernel
                                             does */
    char *ahead = calloc(1, 4000);
    send_str(c.fd, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_int(&s.requests, 6);
    for (int at = 0; at < 180000 && send(c.fd, ahead, 4000, MSG_NOSIGNAL | MSG_DONTWAIT) > 0; at += 4000)
        continue;
    sleep_ms(50);
    client_close(&c);
    wait_int(&s.gone, 5);
    free(ahead);
    c = client_open(s.house.port); /* in the middle of a stream */
    client_send(&c, "GET /stream?100000 HTTP/1.1\r\nHost: x\r\n\r\n");
    char some[1000];
    recv_all(c.fd, some, sizeof some);
    client_close(&c);
    wait_int(&s.gone, 6);
    c = client_open(s.house.port); /* in the middle of a body: no handler knew of it, so none is notified */
    client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nabc");
    sleep_ms(20);
    reset_client(&c);
    c = client_open(s.house.port);
    client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&c, 200, "hello");
    client_close(&c);
    assert_int_equal(s.gone, 6);
    house_close(&s.house);
    (void)state;
}

/* Who shuts his side gets what is answered at once; an answer that is outstanding then is given up (see http.h). */
static void test_half_close(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client c = client_open(s.house.port);
    client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /big?3000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(c.fd, SHUT_WR);
    client_expect(&c, 200, "hello");
    client_read(&c);
    assert_int_equal(c.body_len, 3000000);
    client_expect_end(&c);
    c = client_open(s.house.port);
    client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(c.fd, SHUT_WR);
    client_expect(&c, 200, "hello");
    client_expect_end(&c);
    wait_int(&s.gone, 1);
    house_close(&s.house);
    (void)state;
}

/* ---- many ---- */

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0, resident = 0;
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void test_idle_connections(void **state)
{
    enum { COUNT = 5000 };
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 2 * COUNT + 100;
    if (limit.rlim_max < limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        print_message("          no %d descriptors: not tested\n", 2 * COUNT + 100);
        skip();
    }
    shop s;
    shop_open(&s, (proa_listen_options){0});
    static int all[COUNT];
    client one = client_open(s.house.port);
    client_send(&one, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&one, 200, "hello");
    long before = resident_kib();
    for (int i = 0; i < COUNT; i++) { /* each has had an exchange */
        client c = client_open(s.house.port);
        client_send(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab");
        client_expect(&c, 200, "ab");
        client_trim(&c);
        all[i] = c.fd;
    }
    long each = (resident_kib() - before) * 1024 / COUNT;
    print_message("          %d idle connections: %ld bytes each\n", COUNT, each);
    assert_int_equal(proa_listener_connections(s.house.listener), COUNT + 1);
    if (!SANITIZED) assert_true(each < 2048);
    for (int i = 0; i < COUNT; i += 50) {
        client c = {.fd = all[i]};
        client_send(&c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client_expect(&c, 200, "hello");
        client_trim(&c);
    }
    for (int i = 0; i < COUNT; i++) close(all[i]);
    wait_connections(&s, 1);
    client_close(&one);
    house_close(&s.house);
    (void)state;
}

/* A connection beyond the limit gets an answer with the reason, whether it has sent a request or not, and does not
 * count against the limit. Only a few at a time are answered; more are closed without an answer. */
static void test_connections_max(void **state)
{
    enum { REFUSED = PROA_LEAVING_MAX };
    shop s;
    shop_open(&s, (proa_listen_options){.connections_max = 1});
    client in = client_open(s.house.port), refused[REFUSED];
    client_send(&in, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&in, 200, "hello");
    for (int i = 0; i < REFUSED; i++) {
        refused[i] = client_open(s.house.port);
        if (i % 2) client_send(&refused[i], "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        client_expect(&refused[i], 503, "{\"error\":\"503 too many connections: at most 1 at once\"}");
        assert_non_null(strstr(refused[i].head, "Connection: close\r\n"));
        assert_non_null(strstr(refused[i].head, "Retry-After: 1\r\n"));
    }
    client beyond = client_open(s.house.port);
    client_expect_end(&beyond);
    assert_int_equal(proa_listener_refused(s.house.listener), REFUSED + 1);
    assert_int_equal(proa_listener_connections(s.house.listener), 1);
    client_close(&in);
    wait_connections(&s, 0);
    in = client_open(s.house.port); /* though the others have not gone yet */
    client_send(&in, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&in, 200, "hello");
    client_expect_end(&refused[0]);
    for (int i = 1; i < REFUSED; i++) client_close(&refused[i]);
    client_close(&in);
    house_close(&s.house);
    (void)state;
}

/* No request is lost, no new one begins, idle connections end at once. */
static void test_drain(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client idle = client_open(s.house.port), busy = client_open(s.house.port), half = client_open(s.house.port);
    client fresh = client_open(s.house.port);
    client_send(&idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&idle, 200, "hello");
    client_send(&busy, "GET /later?300 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_send(&half, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
    wait_int(&s.requests, 2);
    sleep_ms(20);
    proa_listener_drain(s.house.listener);
    client_expect_end(&idle);
    client_expect_end(&fresh);
    client_send(&half, "cd");
    client_expect(&half, 200, "abcd");
    assert_non_null(strstr(half.head, "Connection: close\r\n"));
    client_expect_end(&half);
    client_expect(&busy, 200, "later 300");
    assert_non_null(strstr(busy.head, "Connection: close\r\n"));
    client_expect_end(&busy);
    wait_connections(&s, 0);
    house_close(&s.house);
    (void)state;
}

/* Has the server closed the socket? One that lingers takes bytes and throws them away. */
static bool is_closed(const client *c)
{
    return send(c->fd, "x", 1, MSG_NOSIGNAL) < 0;
}

/* The drain does not wait until clients close idle connections; one whose last answer may be unread lingers. */
static void test_drain_of_idle_connections(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client last = client_open(s.house.port), idle = client_open(s.house.port), fresh = client_open(s.house.port);
    wait_connections(&s, 3);
    client_send(&last, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client_expect(&last, 200, "hello");
    client_send(&idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client_expect(&idle, 200, "hello");
    proa_listener_drain(s.house.listener);
    char byte;
    assert_int_equal(recv(idle.fd, &byte, 1, 0), 0);
    assert_int_equal(recv(fresh.fd, &byte, 1, 0), 0);
    /* in this order: however late this thread is, the one that lingers ends before another that would */
    for (; !is_closed(&idle) || !is_closed(&fresh); sleep_ms(1)) assert_false(is_closed(&last));
    client_close(&idle);
    client_close(&fresh);
    client_close(&last);
    wait_connections(&s, 0);
    house_close(&s.house);
    (void)state;
}

/* The same for connections that were made when the drain began but not yet accepted. */
static void test_drain_before_accept(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    proa_loop_stop(s.house.loop); /* busy with other things */
    pthread_join(s.house.thread, NULL);
    client all[100];
    for (int i = 0; i < 100; i++) {
        all[i] = client_open(s.house.port);
        if (i > 0) client_send(&all[i], "GET /later?10 HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    proa_listener_drain(s.house.listener);
    assert_int_equal(proa_listener_connections(s.house.listener), 0);
    assert_false(proa_listener_drained(s.house.listener)); /* a server that stopped its models now would lose them
                                                              all */
    pthread_create(&s.house.thread, NULL, house_thread, s.house.loop);
    client_expect_end(&all[0]); /* asked nothing */
    for (int i = 1; i < 100; i++) {
        client_expect(&all[i], 200, "later 10");
        client_expect_end(&all[i]);
    }
    for (int i = 0; i < 60000 && !proa_listener_drained(s.house.listener); i++) sleep_ms(1);
    assert_true(proa_listener_drained(s.house.listener));
    house_close(&s.house);
    (void)state;
}

/* The server ends while requests are outstanding: handlers are notified, nothing leaks. */
static void test_end(void **state)
{
    shop s;
    shop_open(&s, (proa_listen_options){0});
    client a = client_open(s.house.port), b = client_open(s.house.port), c = client_open(s.house.port);
    client_send(&a, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n");
    client_send(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\nab");
    client_send(&c, "GET /big?50000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_int(&s.requests, 2);
    sleep_ms(20);
    house_close(&s.house);
    assert_int_equal(s.gone, 1);
    assert_int_equal(s.released, 1);
    client_close(&a);
    client_close(&b);
    client_close(&c);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first, while the heap has no holes: it measures memory */
        cmocka_unit_test(test_idle_connections),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_pipelined_flood),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_continue),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_chunk_flood),
        cmocka_unit_test(test_inflight),
        cmocka_unit_test(test_slow_sender),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_steady_reader),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_connections_max),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_of_idle_connections),
        cmocka_unit_test(test_drain_before_accept),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests_name("net/http", tests, NULL, NULL);
}
