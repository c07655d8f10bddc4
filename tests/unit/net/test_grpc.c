/* SPDX-License-Identifier: Apache-2.0
 * The gRPC server against an nghttp2 client, both in memory, with a clock of the test's. */
#include "grpc_peer.h"
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

static void on_gone(proa_grpc_call *call)
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

static void on_call(proa_grpc_call *call, void *arg)
{
    (void)arg;
    seen.calls++;
    call->on_gone = on_gone;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
    };
    (void)assert_status;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
