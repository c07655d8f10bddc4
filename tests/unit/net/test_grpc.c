/* SPDX-License-Identifier: Apache-2.0
 * test_grpc.c - the gRPC server against an nghttp2 client, both in memory, with a clock of the test's. */
#include "grpc_peer.h"
#include "net/block.h"
#include "net/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

/* ---- the service: what a call does is in its path ---- */

static struct {
    int calls, messages, half_closes, gone, drained, kept_freed;
    proa_grpc_call *held[PEER_STREAMS];
    int held_count;
    size_t last_len;
    char last[256], meta[256];
} seen;

static void on_disconnect(proa_grpc_call *call)
{
    seen.gone++;
    for (int i = 0; i < seen.held_count; i++)
        if (seen.held[i] == call) seen.held[i] = NULL;
}

static void note(proa_str bytes)
{
    seen.messages++;
    seen.last_len = bytes.len;
    snprintf(seen.last, sizeof seen.last, "%.*s", (int)(bytes.len < 200 ? bytes.len : 200), bytes.ptr);
}

static void echo_message(proa_grpc_call *call, proa_str bytes)
{
    note(bytes);
    assert_int_equal((uintptr_t)bytes.ptr % 64, 0);
    struct iovec iov = {(void *)(uintptr_t)bytes.ptr, bytes.len};
    proa_grpc_send(call, &iov, 1, NULL, NULL);
}

static void free_kept(void *message)
{
    seen.kept_freed++;
    proa_grpc_free(message);
}

/* Without a copy, in three pieces, one of them empty. */
static void keep_message(proa_grpc_call *call, proa_str bytes)
{
    note(bytes);
    char *message = proa_grpc_take(call);
    assert_ptr_equal(message, bytes.ptr);
    struct iovec iov[3] = {
        {message, bytes.len / 2}, {NULL, 0}, {message + bytes.len / 2, bytes.len - bytes.len / 2}};
    proa_grpc_send(call, iov, 3, free_kept, message);
}

static void hold_message(proa_grpc_call *call, proa_str bytes)
{
    (void)call;
    note(bytes);
}

static void pause_message(proa_grpc_call *call, proa_str bytes)
{
    note(bytes);
    proa_grpc_pause(call, true);
}

static void finish_message(proa_grpc_call *call, proa_str bytes)
{
    note(bytes);
    proa_grpc_finish(call, PROA_GRPC_ABORTED, proa_str_c("enough"), NULL, 0);
}

static void end_ok(proa_grpc_call *call)
{
    seen.half_closes++;
    proa_grpc_finish(call, PROA_GRPC_OK, proa_str_c(""), NULL, 0);
}

static void end_noted(proa_grpc_call *call)
{
    (void)call;
    seen.half_closes++;
}

static void on_drained(proa_grpc_call *call)
{
    (void)call;
    seen.drained++;
}

/* "/t/LongText" and "/t/LongTrailer". */
static void finish_long(proa_grpc_call *call)
{
    static char text[70001];
    for (size_t i = 0; i + 1 < sizeof text; i += 2) memcpy(text + i, "\xC3\xBC", 2);
    text[0] = text[1] = 'x'; /* from the second on, the limit lies within a character */
    if (proa_str_is(call->path, "/t/LongText"))
        proa_grpc_finish(call, PROA_GRPC_ABORTED, (proa_str){text + 1, sizeof text - 2}, NULL, 0);
    else {
        memset(text, 'v', sizeof text);
        proa_grpc_header more = {proa_str_c("x-extra"), {text, sizeof text - 1}};
        proa_grpc_finish(call, PROA_GRPC_ABORTED, proa_str_c(""), &more, 1);
    }
}

static void on_call(proa_grpc_call *call, void *arg)
{
    (void)arg;
    seen.calls++;
    call->on_disconnect = on_disconnect;
    call->on_half_close = end_noted;
    call->on_drained = on_drained;
    proa_str meta = proa_grpc_get(call, "x-meta");
    if (!meta.ptr) meta = proa_grpc_get(call, "x-meta-bin");
    snprintf(seen.meta, sizeof seen.meta, "%.*s", (int)meta.len, meta.len ? meta.ptr : "");
    if (proa_str_is(call->path, "/t/Echo") || proa_str_is(call->path, "/t/Keep")) {
        call->on_message = proa_str_is(call->path, "/t/Echo") ? echo_message : keep_message;
        call->on_half_close = end_ok;
    } else if (proa_str_is(call->path, "/t/Hold") || proa_str_is(call->path, "/t/Pause")) {
        call->on_message = proa_str_is(call->path, "/t/Hold") ? hold_message : pause_message;
        seen.held[seen.held_count++] = call;
    } else if (proa_str_is(call->path, "/t/Finish")) call->on_message = finish_message;
    else if (proa_str_starts(call->path, proa_str_c("/t/Long"))) finish_long(call);
    else {
        proa_grpc_header trailers[] = {{proa_str_c("x-extra"), meta},
                                       {proa_str_c("x-bytes-bin"), {"\x00\xff", 2}}};
        proa_grpc_finish(call, PROA_GRPC_UNIMPLEMENTED, proa_str_c("no 100% such\tmethod \xC3\xBC"), trailers, 2);
    }
}

static const proa_grpc_server plain = {.on_call = on_call};

static peer *start(const proa_grpc_server *server)
{
    memset(&seen, 0, sizeof seen);
    return peer_new(server);
}

static int32_t call_with(peer *p, const char *path, const void *bytes, size_t len)
{
    int32_t id = peer_call(p, path, NULL, 0);
    peer_message(p, id, bytes, len);
    peer_end(p, id);
    return id;
}

static void assert_status(peer *p, int32_t id, const char *code, const char *message)
{
    peer_stream *s = peer_of(p, id);
    assert_true(s->closed);
    assert_string_equal(s->status, "200");
    assert_string_equal(s->content_type, "application/grpc");
    assert_string_equal(s->grpc_status, code);
    assert_string_equal(s->message, message);
}

/* The client got these messages, one after the other, each len bytes of `bytes`. */
static void assert_body(peer *p, int32_t id, const char *bytes, size_t len, int messages)
{
    const proa_buf *body = &peer_of(p, id)->body;
    assert_int_equal(body->len, (5 + len) * (size_t)messages);
    for (int i = 0; i < messages; i++) {
        const unsigned char *at = (unsigned char *)body->ptr + (size_t)i * (5 + len);
        assert_int_equal(at[0], 0);
        assert_int_equal((size_t)at[1] << 24 | at[2] << 16 | at[3] << 8 | at[4], len);
        if (len) assert_memory_equal(at + 5, bytes, len);
    }
}

static char *pattern(size_t len)
{
    char *bytes = proa_malloc(len);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)(i * 7 + i / 251);
    return bytes;
}

/* ---- messages ---- */

static void test_unary(void **state)
{
    static const size_t chunks[] = {0, 1, 2, 3, 7, 100};
    char *bytes = pattern(70000);
    static const size_t lens[] = {0, 1, 100, 4096, 5000, 70000};
    (void)state;
    for (size_t k = 0; k < PROA_COUNT(chunks); k++)
        for (size_t i = 0; i < PROA_COUNT(lens); i++) {
            peer *p = start(&plain);
            p->chunk = chunks[k];
            int32_t echo = call_with(p, "/t/Echo", bytes, lens[i]),
                    keep = call_with(p, "/t/Keep", bytes, lens[i]);
            peer_run(p);
            assert_status(p, echo, "0", "");
            assert_status(p, keep, "0", "");
            assert_body(p, echo, bytes, lens[i], 1);
            assert_body(p, keep, bytes, lens[i], 1);
            assert_int_equal(seen.kept_freed, 1);
            assert_int_equal(seen.gone, 0);
            assert_int_equal(seen.half_closes, 2);
            peer_free(p);
        }
    free(bytes);
}

static void test_big(void **state)
{
    size_t len = (size_t)5 << 20; /* more than every window: they must open as it is read */
    char *bytes = pattern(len);
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        peer *p = start(&plain);
        int32_t a = call_with(p, kept ? "/t/Keep" : "/t/Echo", bytes, len);
        int32_t b = call_with(p, "/t/Echo", bytes, 100);
        peer_run(p);
        assert_status(p, a, "0", "");
        assert_body(p, a, bytes, len, 1);
        assert_body(p, b, bytes, 100, 1);
        assert_int_equal(seen.kept_freed, kept);
        peer_free(p);
    }
    free(bytes);
}

static void test_stream(void **state)
{
    char bytes[3000];
    (void)state;
    memset(bytes, 'm', sizeof bytes);
    for (size_t chunk = 0; chunk < 1200; chunk += 399) {
        peer *p = start(&plain);
        p->chunk = chunk;
        int32_t id = peer_call(p, "/t/Echo", NULL, 0);
        for (int i = 0; i < 500; i++) peer_message(p, id, bytes, sizeof bytes);
        peer_run(p);
        assert_int_equal(seen.messages, 500);
        assert_body(p, id, bytes, sizeof bytes, 500); /* answers come before the client has ended */
        assert_false(peer_of(p, id)->ended);
        peer_end(p, id);
        peer_run(p);
        assert_status(p, id, "0", "");
        peer_free(p);
    }
}

/* What a turn has to say goes out in one write. */
static void test_joined(void **state)
{
    peer *p = start(&plain);
    int32_t ids[100];
    (void)state;
    peer_run(p);
    for (int i = 0; i < 100; i++) ids[i] = call_with(p, "/t/Echo", "hello", 5);
    int before = p->conn.writes;
    assert_true(peer_send(p));
    assert_true(p->conn.writes - before <= 2); /* 100 answers; the stage has 16 KiB */
    peer_run(p);
    for (int i = 0; i < 100; i++) assert_status(p, ids[i], "0", "");
    peer_free(p);
}

static void test_too_large(void **state)
{
    proa_grpc_server server = plain;
    (void)state;
    server.message_max = 1000;
    peer *p = start(&server);
    char bytes[1001] = {0};
    int32_t fits = call_with(p, "/t/Echo", bytes, 1000), more = call_with(p, "/t/Echo", bytes, 1001);
    int32_t huge = peer_call(p, "/t/Echo", NULL, 0);
    proa_buf_append(&peer_of(p, huge)->sends, "\x00\xff\xff\xff\xff", 5);
    peer_run(p);
    assert_status(p, fits, "0", "");
    assert_status(p, more, "8", "Received message larger than max (1001 vs. 1000)");
    assert_status(p, huge, "8", "Received message larger than max (4294967295 vs. 1000)");
    assert_int_equal(seen.gone, 2);
    peer_free(p);
}

/* What all calls together may hold counts as it comes; who only claims takes nothing from the others. */
static void test_bodies_max(void **state)
{
    (void)state;
    peer *p = start(&plain);
    char *bytes = pattern(3000000);
    for (int i = 0; i < 10; i++) { /* each says 2 GiB and sends 1 byte */
        int32_t id = peer_call(p, "/t/Hold", NULL, 0);
        proa_buf_append(&peer_of(p, id)->sends, "\x00\x7f\xff\xff\xc0x", 6);
    }
    int32_t fits = call_with(p, "/t/Hold", bytes, 3000000);
    peer_run(p);
    assert_int_equal(seen.messages, 1);
    void *hog = proa_block_get(1000); /* counting does not touch */
    assert_true(proa_block_count(hog, (size_t)(PROA_INFLIGHT_BYTES_MAX - 12 * PROA_MIB)));
    int32_t late = call_with(p, "/t/Hold", bytes, 3000000), small = call_with(p, "/t/Hold", bytes, 60000);
    peer_run(p);
    assert_status(p, late, "14", "the server holds too many request bodies");
    assert_int_equal(seen.gone, 1);
    assert_int_equal(seen.messages, 2); /* a small one is not counted */
    proa_block_free(hog);
    call_with(p, "/t/Hold", bytes, 3000000);
    peer_run(p);
    assert_int_equal(seen.messages, 3);
    assert_false(peer_of(p, fits)->ended || peer_of(p, small)->ended);
    free(bytes);
    peer_free(p);
}

static void test_broken_messages(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t cut = peer_call(p, "/t/Hold", NULL, 0), flag = peer_call(p, "/t/Hold", NULL, 0);
    int32_t prefix = peer_call(p, "/t/Hold", NULL, 0), packed = peer_call(p, "/t/Hold", NULL, 0);
    proa_buf_append(&peer_of(p, cut)->sends, "\0\0\0\0\5abcd", 9);
    peer_end(p, cut);
    peer_message_as(p, flag, "abc", 3, 2);
    proa_buf_append(&peer_of(p, prefix)->sends, "\0\0\0", 3);
    peer_end(p, prefix);
    peer_message_as(p, packed, "abc", 3, 1);
    peer_run(p);
    assert_status(p, cut, "13", "the stream ends within a message");
    assert_status(p, prefix, "13", "the stream ends within a message");
    assert_status(p, flag, "13", "a message's first byte is neither 0 nor 1");
    assert_status(p, packed, "13", "a compressed message without a grpc-encoding");
    assert_int_equal(seen.messages, 0);
    assert_int_equal(seen.gone, 4);
    peer_free(p);
}

/* What was answered before the failure comes before it, also if all of it came in one read. */
static void test_answers_before_a_failure(void **state)
{
    (void)state;
    for (size_t chunk = 0; chunk < 2; chunk++) {
        peer *p = start(&plain);
        p->chunk = chunk; /* all at once, then byte by byte */
        int32_t id = peer_call(p, "/t/Echo", NULL, 0);
        for (int i = 0; i < 3; i++) peer_message(p, id, "hello", 5);
        peer_message_as(p, id, "hello", 5, 2);
        peer_end(p, id);
        peer_run(p);
        assert_status(p, id, "13", "a message's first byte is neither 0 nor 1");
        assert_body(p, id, "hello", 5, 3);
        assert_int_equal(seen.gone, 1);
        peer_free(p);
    }
}

/* ---- compression ---- */

static int32_t call_packed(peer *p, const char *name, proa_coding coding, const char *bytes, size_t len)
{
    const char *more[][2] = {{"grpc-encoding", name}, {"grpc-accept-encoding", "identity, deflate, gzip"}};
    proa_buf packed;
    proa_buf_init(&packed, 1 << 24);
    assert_int_equal(proa_compress(&packed, coding, 6, bytes, len, NULL), PROA_OK);
    int32_t id = peer_call(p, "/t/Echo", more, 2);
    peer_message_as(p, id, packed.ptr, packed.len, 1);
    peer_message(p, id, bytes, len); /* messages of one call may differ */
    peer_end(p, id);
    proa_buf_release(&packed);
    return id;
}

static void test_compressed_in(void **state)
{
    char bytes[5000];
    (void)state;
    memset(bytes, 'z', sizeof bytes);
    proa_grpc_server server = plain;
    server.unpacked_max = 5000;
    peer *p = start(&server);
    int32_t gzip = call_packed(p, "gzip", PROA_CODING_GZIP, bytes, 5000);
    int32_t deflate = call_packed(p, "deflate", PROA_CODING_DEFLATE, bytes, 4999);
    int32_t bomb = call_packed(p, "gzip", PROA_CODING_GZIP, (char[5001]){0}, 5001);
    int32_t other = call_packed(p, "snappy", PROA_CODING_GZIP, bytes, 100);
    int32_t broken = call_packed(p, "deflate", PROA_CODING_GZIP, bytes, 100);
    peer_run(p);
    assert_status(p, gzip, "0", "");
    assert_body(p, gzip, bytes, 5000, 2);
    assert_string_equal(peer_of(p, gzip)->encoding, "");
    assert_body(p, deflate, bytes, 4999, 2);
    assert_status(p, bomb, "8", "Received message larger than max once decompressed (more than 5000 bytes)");
    assert_status(p, other, "12", "unknown grpc-encoding");
    assert_string_equal(peer_of(p, other)->accept, "identity,deflate,gzip");
    assert_string_equal(peer_of(p, broken)->grpc_status, "13");
    peer_free(p);
}

static void test_compressed_out(void **state)
{
    char zeros[5000] = {0}, *noise = pattern(2000), back[6000];
    (void)state;
    (void)back;
    uint32_t x = 1;
    for (int i = 0; i < 2000; i++) noise[i] = (char)((x = x * 1664525 + 1013904223) >> 24);
    proa_grpc_server server = plain;
    server.compression_level = 3;
    peer *p = start(&server);
    int32_t id = call_packed(p, "gzip", PROA_CODING_GZIP, zeros, 5000),
            not_taken = call_with(p, "/t/Keep", zeros, 5000);
    int32_t no_gain = call_packed(p, "gzip", PROA_CODING_GZIP, noise, 2000);
    int32_t small = call_packed(p, "gzip", PROA_CODING_GZIP, zeros, 100);
    peer_run(p);
    const proa_buf *body = &peer_of(p, id)->body;
    assert_status(p, id, "0", "");
    assert_string_equal(peer_of(p, id)->encoding, "gzip");
    assert_int_equal(body->ptr[0], 1);
    size_t len = (size_t)(unsigned char)body->ptr[3] << 8 | (unsigned char)body->ptr[4];
    assert_int_equal(body->len, 2 * (5 + len));
    proa_buf plain_bytes;
    proa_buf_init(&plain_bytes, 6000);
    assert_int_equal(proa_decompress(&plain_bytes, PROA_CODING_GZIP, body->ptr + 5, len, 6000, NULL), PROA_OK);
    assert_int_equal(plain_bytes.len, 5000);
    assert_memory_equal(plain_bytes.ptr, zeros, 5000);
    proa_buf_release(&plain_bytes);
    assert_string_equal(peer_of(p, not_taken)->encoding, "");
    assert_body(p, not_taken, zeros, 5000, 1);
    assert_body(p, no_gain, noise, 2000, 2);
    assert_body(p, small, zeros, 100, 2);
    assert_int_equal(seen.kept_freed, 1);
    free(noise);
    peer_free(p);
}

/* ---- heads and trailers ---- */

static void test_trailers_only(void **state)
{
    peer *p = start(&plain);
    const char *more[][2] = {{"x-meta", "a value"}};
    (void)state;
    int32_t id = peer_call(p, "/no/Such", more, 1);
    peer_end(p, id);
    peer_run(p);
    assert_status(p, id, "12", "no 100%25 such%09method %C3%BC");
    assert_string_equal(peer_of(p, id)->extra, "AP8"); /* the last one: base64 without padding */
    assert_int_equal(peer_of(p, id)->body.len, 0);
    assert_string_equal(seen.meta, "a value");
    assert_int_equal(seen.gone, 0);
    peer_free(p);
}

static void test_binary_metadata(void **state)
{
    static const struct {
        const char *text, *bytes;
    } good[] = {{"aGVsbG8", "hello"}, {"aGVsbG8=", "hello"}, {"aGVsbA==", "hell"}, {"aGVsbA", "hell"}, {"", ""}};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(good); i++) {
        peer *p = start(&plain);
        const char *more[][2] = {{"x-meta-bin", good[i].text}};
        int32_t id = peer_call(p, "/no/Such", more, 1);
        peer_end(p, id);
        peer_run(p);
        assert_string_equal(peer_of(p, id)->grpc_status, "12");
        assert_string_equal(seen.meta, good[i].bytes);
        peer_free(p);
    }
    static const char *const bad[] = {"a", "aGVsbG8*", "=aGV", "aGVsb"};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        peer *p = start(&plain);
        const char *more[][2] = {{"x-meta-bin", bad[i]}};
        int32_t id = peer_call(p, "/no/Such", more, 1);
        peer_end(p, id);
        peer_run(p);
        assert_status(p, id, "13", "metadata with a name in -bin that is not base64");
        assert_int_equal(seen.calls, 0);
        peer_free(p);
    }
}

static void test_heads(void **state)
{
    static const struct {
        const char *name, *value, *status, *grpc;
    } cases[] = {
        {"content-type", "application/grpc+proto", "200", "12"},
        {"content-type", "application/grpc;x=y", "200", "12"},
        {"content-type", "application/grpc-web", "415", ""},
        {"content-type", "application/json", "415", ""},
        {"content-type", NULL, "415", ""},
        {":method", "GET", "405", ""},
        {"te", NULL, "200", "13"},
        {"grpc-timeout", "1x", "200", "13"},
        {"grpc-timeout", "S", "200", "13"},
        {"grpc-timeout", "123456789S", "200", "13"},
        {"grpc-timeout", "-1S", "200", "13"},
        {"grpc-timeout", "0n", "200", "4"},
        {"grpc-timeout", "99999999H", "200", "12"},
        {"grpc-encoding", "identity", "200", "12"},
        {"grpc-encoding", "zstd", "200", "12"},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        peer *p = start(&plain);
        const char *more[][2] = {{cases[i].name, cases[i].value}};
        int32_t id = peer_call(p, "/no/Such", more, 1);
        peer_message(p, id, "hello", 5);
        peer_end(p, id);
        peer_run(p);
        assert_true(peer_of(p, id)->closed);
        assert_string_equal(peer_of(p, id)->status, cases[i].status);
        assert_string_equal(peer_of(p, id)->grpc_status, cases[i].grpc);
        assert_int_equal(p->goaways, 0);
        peer_free(p);
    }
}

static void test_too_much_metadata(void **state)
{
    (void)state;
    for (int many = 0; many < 2; many++) {
        peer *p = start(&plain);
        char *value = proa_calloc(1, 70000);
        memset(value, 'v', 20000);
        static const char *more[2100][2];
        int count = many ? 2100 : 4;
        for (int i = 0; i < count; i++) more[i][0] = "x-more", more[i][1] = many ? "" : value;
        int32_t id = peer_call(p, "/no/Such", more, count);
        peer_end(p, id);
        int32_t next = call_with(p, "/t/Echo", "hello", 5);
        peer_run(p);
        assert_status(p, id, "8", "received metadata is larger than 64 KiB");
        assert_status(p, next, "0", "");
        free(value);
        peer_free(p);
    }
}

/* ---- ends ---- */

static void test_early_finish(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t id = peer_call(p, "/t/Finish", NULL, 0);
    for (int i = 0; i < 3; i++) peer_message(p, id, "hello", 5); /* and no end */
    peer_run(p);
    assert_status(p, id, "10", "enough");
    assert_int_equal(peer_of(p, id)->error_code, NGHTTP2_NO_ERROR);
    assert_int_equal(seen.messages, 1);
    assert_int_equal(seen.gone, 0);
    peer_free(p);
}

/* What does not fit into trailers is cut or ends the stream: no client waits for ever. */
static void test_long_trailers(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t text = call_with(p, "/t/LongText", "hello", 5), trailer = call_with(p, "/t/LongTrailer", "hello", 5);
    peer_run(p);
    assert_true(peer_of(p, text)->closed);
    assert_string_equal(peer_of(p, text)->grpc_status, "10");
    assert_int_equal(strncmp(peer_of(p, text)->message, "x%C3%BC%C3%BC", 13), 0);
    assert_int_equal(strlen(peer_of(p, text)->message), 1 + (PROA_GRPC_ESCAPED_BYTES_MAX - 1) / 6 * 6);
    assert_true(peer_of(p, trailer)->closed);
    assert_int_equal(peer_of(p, trailer)->error_code, NGHTTP2_INTERNAL_ERROR);
    int32_t next = call_with(p, "/t/Echo", "hello", 5);
    peer_run(p);
    assert_status(p, next, "0", "");
    peer_free(p);
}

static void test_cancel(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t a = peer_call(p, "/t/Hold", NULL, 0), b = peer_call(p, "/t/Hold", NULL, 0);
    peer_message(p, a, "hello", 5);
    proa_buf_append(&peer_of(p, b)->sends, "\0\0\0\0\5ab", 7);
    peer_run(p);
    assert_int_equal(seen.held_count, 2);
    nghttp2_submit_rst_stream(p->h2, NGHTTP2_FLAG_NONE, a, NGHTTP2_CANCEL);
    assert_true(peer_send(p));
    assert_int_equal(seen.gone, 1); /* at once */
    assert_null(seen.held[0]);
    assert_non_null(seen.held[1]);
    peer_close_server(p); /* the connection is lost */
    assert_int_equal(seen.gone, 2);
    peer_free(p);
}

/* Messages and answers that are still with the connection outlive it. */
static void test_lost_with_answers(void **state)
{
    char *bytes = pattern(200000);
    (void)state;
    peer *p = start(&plain);
    peer_run(p);
    p->lazy = true;
    call_with(p, "/t/Keep", bytes, 30000);
    call_with(p, "/t/Keep", bytes, 200000);
    peer_run(p);
    assert_int_equal(seen.messages, 2);
    proa_grpc_protocol.close(p->session);
    p->server_closed = true;
    assert_true(seen.kept_freed < 2);
    double_release_all(&p->conn);
    assert_int_equal(seen.kept_freed, 2);
    free(bytes);
    peer_free(p);
}

static void test_deadline(void **state)
{
    peer *p = start(&plain);
    const char *more[][2] = {{"grpc-timeout", "50m"}}, *later[][2] = {{"grpc-timeout", "3S"}};
    (void)state;
    int32_t late = peer_call(p, "/t/Hold", later, 1), soon = peer_call(p, "/t/Hold", more, 1);
    int32_t echo = peer_call(p, "/t/Echo", more, 1);
    peer_message(p, soon, "hello", 5);
    peer_message(p, echo, "hello", 5);
    peer_run(p);
    double_advance(&p->loop, 49);
    peer_run(p);
    assert_int_equal(seen.gone, 0);
    double_advance(&p->loop, 1);
    assert_int_equal(seen.gone, 2);
    peer_run(p);
    assert_status(p, soon, "4", "Deadline Exceeded");
    assert_status(p, echo, "4", "Deadline Exceeded"); /* after an answer of one message */
    assert_body(p, echo, "hello", 5, 1);
    assert_false(peer_of(p, late)->closed);
    double_advance(&p->loop, 2950);
    peer_run(p);
    assert_status(p, late, "4", "Deadline Exceeded");
    assert_int_equal(seen.gone, 3);
    peer_free(p);
}

/* A deadline within a message of which a part has left: only a reset can say that. */
static void test_deadline_within(void **state)
{
    peer *p = start(&plain);
    const char *more[][2] = {{"grpc-timeout", "50m"}};
    char *bytes = pattern(200000);
    (void)state;
    nghttp2_session_set_local_window_size(p->h2, NGHTTP2_FLAG_NONE, 0, 1000000);
    int32_t id = peer_call(p, "/t/Hold", more, 1);
    peer_run(p);
    proa_grpc_send(seen.held[0], &(struct iovec){bytes, 200000}, 1, NULL, NULL);
    p->lazy = true;
    peer_run(p);
    assert_true(proa_grpc_queued(seen.held[0]) > 100000);
    double_advance(&p->loop, 50);
    assert_int_equal(seen.gone, 1);
    p->lazy = false;
    peer_run(p);
    assert_true(peer_of(p, id)->closed);
    assert_int_equal(peer_of(p, id)->error_code, NGHTTP2_CANCEL);
    assert_string_equal(peer_of(p, id)->grpc_status, "");
    free(bytes);
    peer_free(p);
}

static void test_stalled_sender(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t idle = peer_call(p, "/t/Hold", NULL, 0), stalled = peer_call(p, "/t/Hold", NULL, 0);
    proa_buf_append(&peer_of(p, stalled)->sends, "\0\0\0\0\5ab", 7);
    peer_run(p);
    double_advance(&p->loop, PROA_STALL_MS - 1);
    proa_buf_append(&peer_of(p, stalled)->sends, "c", 1); /* it moves after all */
    peer_wake(p, stalled);
    peer_run(p);
    double_advance(&p->loop, 1);
    peer_run(p);
    assert_int_equal(seen.gone, 0);
    double_advance(&p->loop, PROA_STALL_MS);
    peer_run(p);
    assert_status(p, stalled, "4", "no byte of a message came for 30000 ms");
    assert_false(peer_of(p, idle)->closed); /* without a half message a client may take its time */
    peer_free(p);
}

/* ---- flow control ---- */

static void test_pause(void **state)
{
    size_t len = 100000;
    char *bytes = pattern(len);
    (void)state;
    peer *p = start(&plain);
    int32_t id = peer_call(p, "/t/Pause", NULL, 0), other = peer_call(p, "/t/Echo", NULL, 0);
    for (int i = 0; i < 40; i++) peer_message(p, id, bytes, len);
    peer_end(p, id);
    peer_run(p);
    assert_int_equal(seen.messages, 1);
    peer_stream *s = peer_of(p, id);
    assert_true(s->sent <= PROA_GRPC_WINDOW + len + 5 + 65535); /* what follows the first waits with the client */
    peer_message(p, other, bytes, 1000);
    peer_run(p);
    assert_body(p, other, bytes, 1000, 1); /* other calls are not held back */
    for (int i = 2; i <= 40; i++) {
        assert_int_equal(seen.half_closes, 0);
        proa_grpc_pause(seen.held[0], false);
        peer_run(p);
        assert_int_equal(seen.messages, i + 1);
        assert_int_equal(seen.last_len, len);
    }
    proa_grpc_pause(seen.held[0], false);
    proa_grpc_pause(seen.held[0], true); /* changed its mind before the turn's end */
    peer_run(p);
    assert_int_equal(seen.half_closes, 0);
    proa_grpc_pause(seen.held[0], false);
    peer_run(p);
    assert_int_equal(seen.half_closes, 1);
    free(bytes);
    peer_free(p);
}

static void test_finish_while_paused(void **state)
{
    char *bytes = pattern(100000);
    (void)state;
    peer *p = start(&plain);
    int32_t id = peer_call(p, "/t/Pause", NULL, 0), gone = peer_call(p, "/t/Pause", NULL, 0);
    for (int i = 0; i < 30; i++) peer_message(p, id, bytes, 100000), peer_message(p, gone, bytes, 100000);
    peer_run(p);
    proa_grpc_finish(seen.held[0], PROA_GRPC_OK, proa_str_c(""), NULL, 0);
    nghttp2_submit_rst_stream(p->h2, NGHTTP2_FLAG_NONE, gone, NGHTTP2_CANCEL);
    peer_run(p);
    assert_status(p, id, "0", "");
    assert_int_equal(seen.messages, 2);
    assert_int_equal(seen.gone, 1);
    int32_t next = call_with(p, "/t/Echo", bytes, 100000); /* the connection's window is whole again */
    peer_run(p);
    assert_body(p, next, bytes, 100000, 1);
    free(bytes);
    peer_free(p);
}

static void test_back_pressure(void **state)
{
    size_t len = (size_t)3 << 20;
    char *bytes = pattern(len);
    (void)state;
    peer *p = start(&plain);
    p->lazy = true;
    int32_t id = peer_call(p, "/t/Hold", NULL, 0);
    peer_run(p);
    proa_grpc_call *call = seen.held[0];
    proa_grpc_send(call, &(struct iovec){bytes, len}, 1, NULL, NULL);
    peer_run(p);
    assert_true(proa_grpc_queued(call) > len - 70000); /* the client's window is 64 KiB */
    assert_int_equal(seen.drained, 0);
    p->lazy = false;
    peer_run(p);
    assert_int_equal(proa_grpc_queued(call), 0);
    assert_int_equal(seen.drained, 1);
    assert_body(p, id, bytes, len, 1);
    proa_grpc_send(call, &(struct iovec){bytes, 100}, 1, NULL, NULL);
    peer_run(p);
    assert_int_equal(seen.drained, 1); /* it had not been high */
    free(bytes);
    peer_free(p);
}

/* Windows are wide open but the client's end of the socket is not read: bounded, and nothing is read meanwhile. */
static void test_slow_reader(void **state)
{
    size_t len = (size_t)8 << 20;
    char *bytes = pattern(len);
    (void)state;
    peer *p = start(&plain);
    const nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, INT32_MAX};
    nghttp2_submit_settings(p->h2, NGHTTP2_FLAG_NONE, &wide, 1);
    nghttp2_session_set_local_window_size(p->h2, NGHTTP2_FLAG_NONE, 0, INT32_MAX);
    int32_t id = peer_call(p, "/t/Hold", NULL, 0);
    peer_run(p);
    p->lazy = true;
    proa_grpc_send(seen.held[0], &(struct iovec){bytes, len}, 1, NULL, NULL);
    peer_run(p);
    assert_in_range(p->conn.out.len, PROA_CONN_HIGH_BYTES, PROA_CONN_HIGH_BYTES + 100000);
    assert_true(p->conn.paused);
    p->lazy = false;
    peer_run(p);
    assert_false(p->conn.paused);
    assert_body(p, id, bytes, len, 1);
    assert_int_equal(seen.drained, 1);
    free(bytes);
    peer_free(p);
}

/* A finished answer that the client's window holds back, for ever. */
static void test_unread(void **state)
{
    char *bytes = pattern(200000);
    (void)state;
    peer *p = start(&plain);
    peer_run(p);
    p->lazy = true;
    int32_t id = call_with(p, "/t/Keep", bytes, 200000);
    peer_run(p);
    double_advance(&p->loop, PROA_GRPC_UNREAD_MS - 1);
    peer_run(p);
    assert_int_equal(seen.kept_freed, 0);
    double_advance(&p->loop, 1);
    p->lazy = false;
    peer_run(p);
    assert_int_equal(seen.kept_freed, 1);
    assert_int_equal(peer_of(p, id)->error_code, NGHTTP2_CANCEL);
    assert_int_equal(seen.gone, 0);              /* it was finished */
    id = call_with(p, "/t/Keep", bytes, 200000); /* one that is read */
    peer_run(p);
    assert_body(p, id, bytes, 200000, 1);
    free(bytes);
    peer_free(p);
}

/* ---- good conduct ---- */

static void test_streams_max(void **state)
{
    proa_grpc_server server = plain;
    int refused = 0;
    (void)state;
    server.streams_max = 10;
    peer *p = start(&server);
    for (int i = 0; i < 12; i++) peer_call(p, "/t/Hold", NULL, 0); /* before the client knows the settings */
    peer_run(p);
    for (int i = 0; i < 12; i++) refused += peer_of(p, 2 * i + 1)->error_code == NGHTTP2_REFUSED_STREAM;
    assert_int_equal(seen.held_count, 10);
    assert_int_equal(refused, 2);
    peer_free(p);
}

/* Opens and cancels n calls; true if the connection lives. */
static bool reset_some(peer *p, const char *path, int n, uint32_t code)
{
    for (int i = 0; i < n && !p->server_closed; i++) {
        int32_t id = peer_call(p, path, NULL, 0);
        peer_run(p);
        nghttp2_submit_rst_stream(p->h2, NGHTTP2_FLAG_NONE, id, code);
        peer_run(p);
        seen.held_count = 0;
    }
    return !p->server_closed;
}

/* Whatever code the client gives: none is an excuse. */
static void test_rapid_reset(void **state)
{
    static const uint32_t codes[] = {NGHTTP2_CANCEL, NGHTTP2_NO_ERROR};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(codes); i++) {
        peer *p = start(&plain);
        assert_true(reset_some(p, "/t/Hold", PROA_GRPC_RESETS_MAX, codes[i]));
        double_advance(&p->loop, 10000); /* the next count */
        assert_true(reset_some(p, "/t/Hold", PROA_GRPC_RESETS_MAX, codes[i]));
        assert_false(reset_some(p, "/t/Hold", 1, codes[i]));
        assert_int_equal(p->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
        assert_string_equal(p->goaway_text, "too_many_resets");
        assert_int_equal(seen.gone, 2 * PROA_GRPC_RESETS_MAX + 1);
        peer_free(p);
    }
}

/* Calls that are answered before the client has sent all of them end by a reset without an error, and count as
 * nothing. */
static void test_early_answers(void **state)
{
    peer *p = start(&plain);
    (void)state;
    for (int i = 0; i < PROA_GRPC_RESETS_MAX + 100; i++) {
        int32_t id = peer_call(p, "/no/Such", NULL, 0);
        peer_run(p);
        assert_string_equal(peer_of(p, id)->grpc_status, "12");
        nghttp2_submit_rst_stream(p->h2, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR); /* as grpc-go does */
        peer_run(p);
    }
    assert_false(p->server_closed);
    assert_int_equal(p->goaways, 0);
    peer_free(p);
}

static void ping(peer *p, int times)
{
    for (int i = 0; i < times; i++) {
        nghttp2_submit_ping(p->h2, NGHTTP2_FLAG_NONE, NULL);
        peer_run(p);
    }
}

static void test_pings(void **state)
{
    peer *p = start(&plain);
    (void)state;
    for (int i = 0; i < 20; i++) { /* calm ones */
        ping(p, 1);
        double_advance(&p->loop, PROA_GRPC_PING_MS);
    }
    for (int i = 0; i < 20; i++) { /* many, but with calls between them */
        ping(p, 1 + PROA_GRPC_PING_STRIKES);
        call_with(p, "/t/Echo", "hello", 5);
        peer_run(p);
    }
    assert_int_equal(p->ping_acks, 20 + 20 * (1 + PROA_GRPC_PING_STRIKES));
    ping(p, 1 + PROA_GRPC_PING_STRIKES);
    assert_int_equal(p->goaways, 0);
    ping(p, 1);
    assert_int_equal(p->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_string_equal(p->goaway_text, "too_many_pings");
    assert_true(p->server_closed);
    peer_free(p);
}

static void test_control_flood(void **state)
{
    peer *p = start(&plain);
    (void)state;
    peer_run(p);
    for (int i = 0; i < PROA_GRPC_CONTROLS_MAX; i++) {
        nghttp2_submit_settings(p->h2, NGHTTP2_FLAG_NONE, NULL, 0);
        peer_run(p);
    }
    assert_true(p->server_closed);
    assert_int_equal(p->goaway_code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_string_equal(p->goaway_text, "too_many_control_frames");
    peer_free(p);
}

static void test_not_http2(void **state)
{
    static const char *const inputs[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                         "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(inputs); i++) {
        peer *p = start(&plain);
        assert_int_equal(proa_grpc_protocol.input(p->session, inputs[i], strlen(inputs[i])), -1);
        assert_int_equal(p->conn.deadline_ms, PROA_HEAD_MS); /* until a frame comes */
        peer_free(p);
    }
    peer *p = start(&plain);
    peer_run(p);
    assert_int_equal(p->conn.deadline_ms, 0);
    assert_false(proa_grpc_protocol.eof(p->session));
    peer_free(p);
}

/* ---- time ---- */

static void test_keepalive(void **state)
{
    proa_grpc_server server = plain;
    (void)state;
    server.keepalive_ms = 1000;
    server.keepalive_timeout_ms = 500;
    peer *p = start(&server);
    peer_run(p);
    for (int i = 1; i <= 5; i++) {
        double_advance(&p->loop, 1000);
        peer_run(p); /* the client answers by itself */
        assert_int_equal(p->pings, i);
    }
    double_advance(&p->loop, 900);
    call_with(p, "/t/Echo", "hello", 5);
    peer_run(p);
    double_advance(&p->loop, 900); /* since the call */
    peer_run(p);
    assert_int_equal(p->pings, 5);
    p->lazy = true;
    double_advance(&p->loop, 100);
    peer_run(p);
    double_advance(&p->loop, 499);
    assert_false(p->conn.closing);
    double_advance(&p->loop, 1);
    assert_true(p->conn.closing && p->conn.at_once);
    peer_free(p);
}

/* Who reads an answer slowly cannot answer a ping: that stands behind the answer, and while so much is queued nothing
 * that comes is read. What the socket takes is its sign of life. */
static void test_keepalive_of_a_slow_reader(void **state)
{
    enum { PIECE = 10000 };
    size_t len = (size_t)8 << 20;
    char *bytes = pattern(len);
    proa_grpc_server server = plain;
    (void)state;
    server.keepalive_ms = 1000;
    server.keepalive_timeout_ms = 500;
    peer *p = start(&server);
    const nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, INT32_MAX};
    nghttp2_submit_settings(p->h2, NGHTTP2_FLAG_NONE, &wide, 1);
    nghttp2_session_set_local_window_size(p->h2, NGHTTP2_FLAG_NONE, 0, INT32_MAX);
    peer_call(p, "/t/Hold", NULL, 0);
    peer_run(p);
    p->lazy = true;
    proa_grpc_send(seen.held[0], &(struct iovec){bytes, len}, 1, NULL, NULL);
    peer_run(p);
    assert_true(p->conn.paused);
    for (int i = 0; i < 50; i++) {
        double_advance(&p->loop, 400);
        double_take_some(&p->conn, PIECE);
        assert_false(p->conn.closing);
    }
    double_advance(&p->loop, 499); /* now it takes nothing more */
    assert_false(p->conn.closing);
    double_advance(&p->loop, 1);
    assert_true(p->conn.closing && p->conn.at_once);
    free(bytes);
    peer_free(p);
}

static void test_drain(void **state)
{
    peer *p = start(&plain);
    (void)state;
    int32_t held = peer_call(p, "/t/Hold", NULL, 0);
    peer_run(p);
    proa_grpc_protocol.shutdown(p->session);
    double_run_tasks(&p->loop);
    int32_t crossing = call_with(p, "/t/Echo", "hello", 5); /* it did not know yet */
    peer_send(p);
    peer_run(p);
    assert_int_equal(p->goaways, 2);
    assert_int_equal(p->goaway_code, NGHTTP2_NO_ERROR);
    assert_status(p, crossing, "0", "");
    assert_false(p->conn.closing);
    proa_grpc_send(seen.held[0], &(struct iovec){(char[]){"bye"}, 3}, 1, NULL, NULL);
    proa_grpc_finish(seen.held[0], PROA_GRPC_OK, proa_str_c(""), NULL, 0);
    peer_run(p);
    peer_end(p, held);
    peer_run(p);
    assert_status(p, held, "0", "");
    assert_body(p, held, "bye", 3, 1);
    assert_true(p->server_closed && !p->conn.at_once);
    peer_free(p);
}

static void test_drain_idle(void **state)
{
    (void)state;
    for (int deaf = 0; deaf < 2; deaf++) {
        peer *p = start(&plain);
        peer_run(p);
        p->lazy = deaf; /* answers no ping */
        proa_grpc_protocol.shutdown(p->session);
        peer_run(p);
        assert_int_equal(p->pings, !deaf);
        double_advance(&p->loop, 1000); /* nghttp2 does not answer pings when it has nothing more to say */
        double_run_tasks(&p->loop);
        assert_true(p->conn.closing && !p->conn.at_once);
        peer_free(p);
    }
}

static void test_age(void **state)
{
    proa_grpc_server server = plain;
    (void)state;
    server.connection_age_ms = 10000;
    server.connection_grace_ms = 5000;
    peer *p = start(&server);
    peer_call(p, "/t/Hold", NULL, 0);
    peer_run(p);
    double_advance(&p->loop, 8999);
    peer_run(p);
    assert_int_equal(p->goaways, 0);
    double_advance(&p->loop, 2002); /* a tenth up or down */
    peer_run(p);
    assert_int_equal(p->goaways, 2);
    assert_false(p->conn.closing);
    double_advance(&p->loop, 2900);
    peer_run(p);
    assert_false(p->conn.closing);
    double_advance(&p->loop, 2200);
    assert_true(p->conn.closing && p->conn.at_once);
    peer_run(p);
    assert_int_equal(seen.gone, 1);
    peer_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_big),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_bodies_max),
        cmocka_unit_test(test_broken_messages),
        cmocka_unit_test(test_answers_before_a_failure),
        cmocka_unit_test(test_compressed_in),
        cmocka_unit_test(test_compressed_out),
        cmocka_unit_test(test_trailers_only),
        cmocka_unit_test(test_binary_metadata),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_too_much_metadata),
        cmocka_unit_test(test_early_finish),
        cmocka_unit_test(test_long_trailers),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_lost_with_answers),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_deadline_within),
        cmocka_unit_test(test_stalled_sender),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_finish_while_paused),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_unread),
        cmocka_unit_test(test_streams_max),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_early_answers),
        cmocka_unit_test(test_pings),
        cmocka_unit_test(test_control_flood),
        cmocka_unit_test(test_not_http2),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_keepalive_of_a_slow_reader),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_idle),
        cmocka_unit_test(test_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
