/* SPDX-License-Identifier: Apache-2.0
 * test_http1.c - the codec of HTTP/1.1: what it takes and what it refuses, each case whole, cut in two at every byte,
 * and byte by byte. */
#include "http1_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define BODY_MAX 1000

static char *traced(const char *bytes, size_t len, size_t cut)
{
    trace t;
    trace_open(&t);
    trace_feed(&t, bytes, cut, BODY_MAX);
    trace_feed(&t, bytes + cut, len - cut, BODY_MAX);
    char *text = strdup(t.text.ptr ? t.text.ptr : "");
    trace_close(&t);
    return text;
}

static char *traced_bytewise(const char *bytes, size_t len)
{
    trace t;
    trace_open(&t);
    for (size_t i = 0; i < len; i++) trace_feed(&t, bytes + i, 1, BODY_MAX);
    char *text = strdup(t.text.ptr ? t.text.ptr : "");
    trace_close(&t);
    return text;
}

static void check(const char *bytes, size_t len, const char *want)
{
    for (size_t cut = 0; cut <= len; cut++) {
        char *got = traced(bytes, len, cut);
        if (strcmp(got, want) != 0) fail_msg("cut at %zu of\n%s\ngave\n%s\nnot\n%s", cut, bytes, got, want);
        free(got);
    }
    char *got = traced_bytewise(bytes, len);
    if (strcmp(got, want) != 0) fail_msg("byte by byte\n%s\ngave\n%s\nnot\n%s", bytes, got, want);
    free(got);
}

typedef struct sample {
    const char *bytes, *want;
} sample;

static void check_all(const sample *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) check(samples[i].bytes, strlen(samples[i].bytes), samples[i].want);
}
#define CHECK_ALL(samples) check_all(samples, sizeof(samples) / sizeof *(samples))

static void test_heads(void **state)
{
    static const sample samples[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD GET / 1.1 keep {Host: a} END\n"},
        {"GET /a?b=c HTTP/1.1\r\nhost:a:80\r\nX:\t y z \t\r\nE:\r\n\r\n",
         "HEAD GET /a?b=c 1.1 keep {host: a:80} {X: y z} {E: } END\n"},
        {"\r\nGET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", "HEAD GET / 1.1 keep {Host: [::1]:8000} END\n"},
        {"M-SEARCH * HTTP/1.7\r\nHost:\r\n\r\n", "HEAD M-SEARCH * 1.1 keep {Host: } END\n"},
        {"GET / HTTP/1.0\r\n\r\n", "HEAD GET / 1.0 END\n"},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
         "HEAD GET / 1.0 keep {Connection: Keep-Alive} END\n"},
        {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
         "HEAD GET / 1.0 {Connection: keep-alive, close} END\n"},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x , CLOSE\r\n\r\n",
         "HEAD GET / 1.1 {Host: a} {Connection: x , CLOSE} END\n"},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n",
         "HEAD GET / 1.1 keep {Host: a} {Connection: closed} END\n"},
        {"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\nX: \xff\r\n\r\n",
         "HEAD GET /\xc3\xa9 1.1 keep {Host: a} {X: \xff} END\n"},
        /* two in a row, the second incomplete */
        {"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\nGET /3 HT",
         "HEAD GET /1 1.1 keep {Host: a} END\nHEAD GET /2 1.1 keep {Host: b} END\n"},
    };
    CHECK_ALL(samples);
    (void)state;
}

static void test_bodies(void **state)
{
    static const sample samples[] = {
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET",
         "HEAD POST / 1.1 keep cl=3 {Host: a} {Content-Length: 3} DATA[abc] END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\ncontent-length:0\r\n\r\n",
         "HEAD POST / 1.1 keep cl=0 {Host: a} {content-length: 0} END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 01\r\n\r\nx",
         "HEAD POST / 1.1 keep cl=1 {Host: a} {Content-Length: 1} {Content-Length: 01} DATA[x] END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
         "HEAD POST / 1.1 keep expect cl=1 {Host: a} {Expect: 100-Continue} {Content-Length: 1} DATA[x] "
         "END\n"},
        {"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
         "HEAD POST / 1.0 cl=1 {Expect: 100-continue} {Content-Length: 1} DATA[x] END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: "
         "Chunked\r\n\r\n3\r\nabc\r\n00a\r\n0123456789\r\n0\r\n\r\n",
         "HEAD POST / 1.1 keep chunked {Host: a} {Transfer-Encoding: Chunked} DATA[abc0123456789] END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
         "1;x=\"y\";z\r\na\r\n1 ;q\r\nb\r\n0;end\r\nTrailer: one\r\nT: two\r\n\r\nGET / HTTP/1.0\r\n\r\n",
         "HEAD POST / 1.1 keep chunked {Host: a} {Transfer-Encoding: chunked} DATA[ab] END\nHEAD GET / 1.0 "
         "END\n"},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
         "HEAD POST / 1.1 keep chunked {Host: a} {Transfer-Encoding: chunked} END\n"},
    };
    CHECK_ALL(samples);
    (void)state;
}

#define LINE_BAD  "BAD 400 the request line is malformed\n"
#define FIELD_BAD "BAD 400 a header line is malformed\n"
#define END_BAD   "BAD 400 a line does not end with CR LF\n"
#define GET       "GET / HTTP/1.1\r\nHost: a\r\n"
#define POST      "POST / HTTP/1.1\r\nHost: a\r\n"

static void test_bad_heads(void **state)
{
    static const sample samples[] = {
        {"GET /\r\n\r\n", LINE_BAD}, /* HTTP/0.9 */
        {"GET  / HTTP/1.1\r\n\r\n", LINE_BAD},
        {"GET / HTTP/1.1 \r\n\r\n", LINE_BAD},
        {" GET / HTTP/1.1\r\n\r\n", LINE_BAD},
        {"GET /a b HTTP/1.1\r\n\r\n", LINE_BAD},
        {"GET /\x7f HTTP/1.1\r\n\r\n", LINE_BAD},
        {"GET /\x01 HTTP/1.1\r\n\r\n", LINE_BAD},
        {"G(T / HTTP/1.1\r\n\r\n", LINE_BAD},
        {"GET / http/1.1\r\n\r\n", LINE_BAD},
        {"GET / HTTP/1.10\r\n\r\n", LINE_BAD},
        {"GET / HTTP/1,1\r\n\r\n", LINE_BAD},
        {"\r\n\r\nGET / HTTP/1.1\r\n\r\n", LINE_BAD}, /* one empty line is pardoned */
        {"\x16\x03\x01\x02", LINE_BAD},               /* TLS: at the first byte */
        {"GET / HTTP/2.0\r\n\r\n", "BAD 505 the HTTP version is not supported\n"},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "BAD 505 the HTTP version is not supported\n"},
        {"GET / HTTP/1.1\nHost: a\r\n\r\n", END_BAD},
        {"\nGET / HTTP/1.1\r\n\r\n", END_BAD},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", END_BAD},
        {GET "\n", END_BAD},
        {GET "A: b\rC: d\r\n\r\n", FIELD_BAD}, /* a bare CR */
        {GET "A: b\r\r\n\r\n", FIELD_BAD},
        {GET "A : b\r\n\r\n", FIELD_BAD},
        {GET " folded\r\n\r\n", FIELD_BAD},
        {GET "\tfolded\r\n\r\n", FIELD_BAD},
        {GET ": b\r\n\r\n", FIELD_BAD},
        {GET "no colon\r\n\r\n", FIELD_BAD},
        {GET "nocolon\r\n\r\n", FIELD_BAD},
        {GET "A\x80: b\r\n\r\n", FIELD_BAD},
        {GET "A: b\x01\r\n\r\n", FIELD_BAD},
        {GET "A: b\x7f\r\n\r\n", FIELD_BAD},
        {"GET / HTTP/1.1\r\n\r\n", "BAD 400 the Host header is missing\n"},
        {GET "Host: a\r\n\r\n", "BAD 400 there are several Host headers\n"},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "BAD 400 the Host header is malformed\n"},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "BAD 400 the Host header is malformed\n"},
        {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "BAD 400 the Host header is malformed\n"},
        {GET "Expect: 200-ok\r\n\r\n", "BAD 417 the expectation cannot be met\n"},
    };
    CHECK_ALL(samples);
    static const char nul[] = GET "A: b\0c\r\n\r\n";
    check(nul, sizeof nul - 1, FIELD_BAD);
    (void)state;
}

/* Where two parsers could disagree about the end of a request. */
static void test_bad_lengths(void **state)
{
    static const sample samples[] = {
        {POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
         "BAD 400 there are several Content-Lengths\n"},
        {POST "Content-Length: 1, 1\r\n\r\n", "BAD 400 Content-Length is not a number\n"},
        {POST "Content-Length: -1\r\n\r\n", "BAD 400 Content-Length is not a number\n"},
        {POST "Content-Length: +1\r\n\r\n", "BAD 400 Content-Length is not a number\n"},
        {POST "Content-Length: 0x1\r\n\r\n", "BAD 400 Content-Length is not a number\n"},
        {POST "Content-Length:\r\n\r\n", "BAD 400 Content-Length is not a number\n"},
        {POST "Content-Length: 9999999999999999999\r\n\r\n", "BAD 413 the request body is too large\n"},
        {POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         "BAD 400 Content-Length and Transfer-Encoding exclude each other\n"},
        {POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
         "BAD 400 Content-Length and Transfer-Encoding exclude each other\n"},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         "BAD 400 Transfer-Encoding is misused\n"},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "BAD 400 Transfer-Encoding is misused\n"},
        {POST "Transfer-Encoding: gzip, chunked\r\n\r\n",
         "BAD 501 only the transfer encoding chunked is supported\n"},
        {POST "Transfer-Encoding: chunked, identity\r\n\r\n",
         "BAD 501 only the transfer encoding chunked is supported\n"},
        {POST "Transfer-Encoding: xchunked\r\n\r\n",
         "BAD 501 only the transfer encoding chunked is supported\n"},
        {POST "Transfer-Encoding : chunked\r\n\r\n", FIELD_BAD},
    };
    CHECK_ALL(samples);
    (void)state;
}

#define CHUNKED   POST "Transfer-Encoding: chunked\r\n\r\n"
#define CHUNKED_H "HEAD POST / 1.1 keep chunked {Host: a} {Transfer-Encoding: chunked}"
#define SIZE_BAD  CHUNKED_H "BAD 400 a chunk's size is malformed\n"

static void test_bad_chunks(void **state)
{
    static const sample samples[] = {
        {CHUNKED "\r\n", SIZE_BAD},
        {CHUNKED "x\r\n", SIZE_BAD},
        {CHUNKED "-1\r\n", SIZE_BAD},
        {CHUNKED "+1\r\n", SIZE_BAD},
        {CHUNKED "0x1\r\n", SIZE_BAD},
        {CHUNKED " 1\r\n", SIZE_BAD},
        {CHUNKED "1 \r\n", SIZE_BAD},
        {CHUNKED "1 2\r\n", SIZE_BAD},
        {CHUNKED "1;a\rb\r\n", SIZE_BAD},
        {CHUNKED "1\n", SIZE_BAD},
        {CHUNKED "1;\x01\r\n", SIZE_BAD},
        {CHUNKED "1111111111111111\r\n", SIZE_BAD},
        {CHUNKED "fffffffffffffff\r\n", CHUNKED_H "BAD 413 the request body is too large\n"},
        {CHUNKED "3e9\r\n", CHUNKED_H "BAD 413 the request body is too large\n"}, /* 1001 */
        {CHUNKED "2\r\nab\r\n3e7\r\n", CHUNKED_H " DATA[ab]BAD 413 the request body is too large\n"},
        {CHUNKED "2\r\nabc\r\n", CHUNKED_H " DATA[ab]BAD 400 a chunk does not end where its size says\n"},
        {CHUNKED "2\r\nab\n0\r\n", CHUNKED_H " DATA[ab]BAD 400 a chunk does not end where its size says\n"},
        {CHUNKED "2\r\nab\rx", CHUNKED_H " DATA[ab]BAD 400 a chunk does not end where its size says\n"},
        {CHUNKED "0\r\nA b\r\n\r\n", CHUNKED_H "BAD 400 a trailer is malformed\n"},
        {CHUNKED "0\r\nA: b\n\r\n", CHUNKED_H "BAD 400 a line does not end with CR LF\n"},
        {CHUNKED "0\r\n\n", CHUNKED_H "BAD 400 a line does not end with CR LF\n"},
    };
    CHECK_ALL(samples);
    (void)state;
}

/* ---- limits: the last that is taken and the first that is not ---- */

static char *filled(const char *front, char with, size_t count, const char *back, size_t *len)
{
    size_t a = strlen(front), b = strlen(back);
    char *bytes = malloc(a + count + b + 1);
    memcpy(bytes, front, a);
    memset(bytes + a, with, count);
    memcpy(bytes + a + count, back, b + 1);
    *len = a + count + b;
    return bytes;
}

/* The status of a BAD at the end of the trace, or 0; whole and byte by byte. */
static int status_of(const char *bytes, size_t len)
{
    int status[2];
    for (int i = 0; i < 2; i++) {
        char *text = i ? traced_bytewise(bytes, len) : traced(bytes, len, len);
        const char *at = strstr(text, "BAD ");
        status[i] = at ? (int)strtol(at + 4, NULL, 10) : 0;
        free(text);
    }
    assert_int_equal(status[0], status[1]);
    return status[0];
}

static int status_filled(const char *front, size_t count, const char *back)
{
    size_t len;
    char *bytes = filled(front, 'a', count, back, &len);
    int status = status_of(bytes, len);
    free(bytes);
    return status;
}

static void test_limits(void **state)
{
    size_t line = PROA_HTTP_LINE_BYTES_MAX, head = PROA_HTTP_HEAD_BYTES_MAX;
    size_t frame = strlen("GET / HTTP/1.1\r\n"), rest = strlen(GET "X: \r\n\r\n");
    assert_int_equal(status_filled("GET /", line - frame, " HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
    assert_int_equal(status_filled("GET /", line - frame + 1, " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
    assert_int_equal(status_filled("", line, ""), 0); /* not yet */
    assert_int_equal(status_filled("", line + 1, ""), 414);
    assert_int_equal(status_filled(GET "X: ", head - rest, "\r\n\r\n"), 0);
    assert_int_equal(status_filled(GET "X: ", head - rest + 1, "\r\n\r\n"), 431);
    assert_int_equal(status_filled(GET "X: ", head, ""), 431);
    assert_int_equal(status_filled(CHUNKED "1;", PROA_HTTP_CHUNK_LINE_MAX - 4, "\r\na\r\n0\r\n\r\n"), 0);
    assert_int_equal(status_filled(CHUNKED "1;", PROA_HTTP_CHUNK_LINE_MAX - 3, "\r\na\r\n0\r\n\r\n"), 400);
    assert_int_equal(status_filled(CHUNKED "0\r\nX: ", head - 7, "\r\n\r\n"), 0);
    assert_int_equal(status_filled(CHUNKED "0\r\nX: ", head - 6, "\r\n\r\n"), 431);
    (void)state;
}

/* `times` copies of a text between two others. */
static int status_repeated(const char *front, const char *unit, int times, const char *back)
{
    proa_buf buf;
    proa_buf_init(&buf, 4 << 20);
    proa_buf_str(&buf, proa_str_c(front));
    for (int i = 0; i < times; i++) proa_buf_str(&buf, proa_str_c(unit));
    proa_buf_str(&buf, proa_str_c(back));
    char *text = traced(buf.ptr, buf.len, buf.len);
    const char *at = strstr(text, "BAD ");
    int status = at ? (int)strtol(at + 4, NULL, 10) : 0;
    free(text);
    proa_buf_release(&buf);
    return status;
}

static void test_counts(void **state)
{
    assert_int_equal(status_repeated(GET, "A: b\r\n", PROA_HTTP_HEADERS_MAX - 1, "\r\n"), 0);
    assert_int_equal(status_repeated(GET, "A: b\r\n", PROA_HTTP_HEADERS_MAX, "\r\n"), 431);
    trace t; /* chunks, without the test's own limit of bytes */
    for (int more = 0; more < 2; more++) {
        trace_open(&t);
        trace_feed(&t, CHUNKED, strlen(CHUNKED), INT64_MAX);
        for (int i = 0; i < PROA_HTTP_CHUNKS_MAX + more; i++) trace_feed(&t, "1\r\nx\r\n", 6, INT64_MAX);
        trace_feed(&t, "0\r\n\r\n", 5, INT64_MAX);
        assert_int_equal(t.broken, more);
        assert_int_equal(t.codec.status, more ? 400 : 0);
        trace_close(&t);
    }
    (void)state;
}

/* A head that comes byte by byte is scanned once, not once a byte: 64 KiB a thousand times within seconds. */
static void test_slow_head(void **state)
{
    size_t len;
    char *bytes = filled(GET "X: ", 'a', 60000, "\r\n\r\n", &len);
    for (int round = 0; round < 200; round++) {
        static proa_http1 codec;
        proa_http1_init(&codec);
        size_t used;
        for (size_t n = 1; n < len; n++)
            assert_int_equal(proa_http1_next(&codec, bytes, n, &used), PROA_HTTP1_MORE);
        assert_int_equal(proa_http1_next(&codec, bytes, len, &used), PROA_HTTP1_HEAD);
        assert_int_equal(used, len);
    }
    free(bytes);
    (void)state;
}

/* Body bytes that are read past the codec. */
static void test_took(void **state)
{
    static const char head[] = POST "Content-Length: 10\r\n\r\nabc", chunks[] = CHUNKED "a\r\nabc";
    for (int i = 0; i < 2; i++) {
        static proa_http1 codec;
        proa_http1_init(&codec);
        const char *bytes = i ? chunks : head;
        size_t len = strlen(bytes), used, at = 0;
        assert_int_equal(proa_http1_wanted(&codec), 0);
        assert_int_equal(proa_http1_next(&codec, bytes, len, &used), PROA_HTTP1_HEAD);
        at += used;
        assert_int_equal(proa_http1_next(&codec, bytes + at, len - at, &used), PROA_HTTP1_DATA);
        assert_int_equal(at + used, len);
        assert_int_equal(proa_http1_wanted(&codec), 7);
        proa_http1_took(&codec, 4);
        assert_int_equal(proa_http1_next(&codec, "", 0, &used), PROA_HTTP1_MORE);
        proa_http1_took(&codec, 3);
        assert_int_equal(proa_http1_wanted(&codec), 0);
        const char *end = i ? "\r\n0\r\n\r\n" : "";
        assert_int_equal(proa_http1_next(&codec, end, strlen(end), &used), PROA_HTTP1_END);
    }
    (void)state;
}

static void test_words(void **state)
{
    assert_true(proa_http1_is(proa_str_c("Content-TYPE"), "content-type"));
    assert_false(proa_http1_is(proa_str_c("content-typ"), "content-type"));
    assert_false(proa_http1_is(proa_str_c("content-types"), "content-type"));
    assert_true(proa_http1_is((proa_str){0}, ""));
    assert_true(proa_http1_has(proa_str_c(" a ,, B\t,c"), "b"));
    assert_true(proa_http1_has(proa_str_c("gzip"), "gzip"));
    assert_false(proa_http1_has(proa_str_c("a, bb"), "b"));
    assert_false(proa_http1_has((proa_str){0}, "b"));
    (void)state;
}

static void test_targets(void **state)
{
    static const char *cases[][3] = {
        {"/", "/", ""},
        {"/a/b?c?d", "/a/b", "c?d"},
        {"/?", "/", ""},
        {"*", "*", ""},
        {"http://host/x?y", "/x", "y"},
        {"HTTPS://host:1", "/", ""},
        {"http://host?q", "/", "q"},
        {"http://", NULL, NULL},
        {"http:///x", NULL, NULL},
        {"host:80", NULL, NULL},
        {"ftp://host/", NULL, NULL},
        {"a", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        proa_str path, query;
        bool good = proa_http1_split(proa_str_c(cases[i][0]), &path, &query);
        assert_int_equal(good, cases[i][1] != NULL);
        if (!good) continue;
        assert_true(proa_str_is(path, cases[i][1]));
        assert_true(proa_str_is(query, cases[i][2]));
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),      cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_bad_heads),  cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_bad_chunks), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_counts),     cmocka_unit_test(test_slow_head),
        cmocka_unit_test(test_took),       cmocka_unit_test(test_words),
        cmocka_unit_test(test_targets),
    };
    return cmocka_run_group_tests_name("net/http1", tests, NULL, NULL);
}
