/* SPDX-License-Identifier: Apache-2.0
 * call.c - a gRPC call: its life, its head, the end of its answer. Its messages: message_in.c, message_out.c. */
#include "net/grpc/grpc.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "net/grpc/session.h"
#include "net/grpc/wire.h"
#include <string.h>

/* ---- life ---- */

grpc_call *proa_grpc_call_new(grpc_session *s, int32_t stream)
{
    grpc_call *c = proa_block_get(sizeof *c);
    PROA_ASSERT(c);
    memset(c, 0, offsetof(grpc_call, memory));
    proa_arena_init_in(&c->arena, c->memory, sizeof c->memory);
    c->session = s;
    c->stream = stream;
    c->waiting_last = &c->waiting;
    c->out_last = &c->out;
    c->behind_last = &c->behind;
    c->pub.arena = &c->arena;
    c->pub.conn = s->conn;
    c->pub.start_ns = proa_loop_now_ns(s->loop);
    c->next = s->calls;
    if (s->calls) s->calls->prev = c;
    s->calls = c;
    return c;
}

static void drop_list(grpc_out *out)
{
    for (grpc_out *next; out; out = next) {
        next = out->next;
        proa_grpc_out_drop(out);
    }
}

static void drop_out(grpc_call *c)
{
    drop_list(c->out);
    drop_list(c->behind);
    c->out = c->behind = NULL;
    c->out_last = &c->out;
    c->behind_last = &c->behind;
    c->out_at = c->queued = c->unready = 0;
    if (c->packing) c->packing->call = NULL;
    c->packing = NULL;
}

void proa_grpc_call_count_partial(grpc_call *c, bool partial)
{
    c->session->partial += partial - c->counted;
    c->counted = partial;
}

static void drop_in(grpc_call *c)
{
    for (grpc_in *next; c->waiting; c->waiting = next) {
        next = c->waiting->next;
        proa_block_free(c->waiting->message.bytes);
        proa_block_free(c->waiting);
    }
    c->waiting_last = &c->waiting;
    proa_block_free(c->message);
    c->message = NULL;
    c->prefix_len = 0;
    proa_grpc_call_count_partial(c, false);
}

void proa_grpc_call_free(grpc_call *c)
{
    if (c->prev) c->prev->next = c->next;
    else c->session->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    drop_in(c);
    drop_out(c);
    if (c->unpacking) c->unpacking->call = NULL; /* its result will be dropped */
    proa_arena_release(&c->arena);
    proa_block_free(c);
}

void proa_grpc_call_disconnected(grpc_call *c)
{
    if (!c->owned) return;
    c->owned = false;
    if (c->pub.on_disconnect) c->pub.on_disconnect(&c->pub);
}

/* ---- the head ---- */

static void refuse_call(grpc_call *c, int code, const char *why)
{
    if (c->refused) return; /* the first reason wins */
    c->refused = code;
    c->refusal = why;
}

static void read_coding(grpc_call *c, proa_str value)
{
    if (!proa_coding_find(&c->coding, value))
        refuse_call(c, PROA_GRPC_UNIMPLEMENTED, "unknown grpc-encoding");
}

static void read_timeout(grpc_call *c, proa_str value)
{
    int64_t ns = 0;
    if (!proa_grpc_timeout_parse(value, &ns)) refuse_call(c, PROA_GRPC_INTERNAL, "malformed grpc-timeout");
    else c->pub.deadline_ns = c->pub.start_ns + ns;
}

/* A list without q-values: gzip anywhere in it will do. */
static void read_accept(grpc_call *c, proa_str value)
{
    for (size_t i = 0; i + 4 <= value.len && !c->takes_gzip; i++)
        c->takes_gzip = memcmp(value.ptr + i, "gzip", 4) == 0;
}

/* Headers that the protocol itself uses; all of them stay in the metadata as well. */
static void read_known(grpc_call *c, proa_str name, proa_str value)
{
    switch (name.len) {
    case 2:
        if (proa_str_is(name, "te")) c->te = proa_str_is(value, "trailers");
        break;
    case 12:
        if (proa_str_is(name, "content-type")) c->grpc = proa_grpc_content_type(value);
        else if (proa_str_is(name, "grpc-timeout")) read_timeout(c, value);
        break;
    case 13:
        if (proa_str_is(name, "grpc-encoding")) read_coding(c, value);
        break;
    case 20:
        if (proa_str_is(name, "grpc-accept-encoding")) read_accept(c, value);
        break;
    default: break;
    }
}

static void keep_header(grpc_call *c, proa_str name, proa_str value)
{
    int n = c->pub.metadata_count;
    if (n == c->headers_cap) {
        int cap = n ? 2 * n : 12;
        proa_grpc_header *headers = PROA_ARENA_NEW(&c->arena, proa_grpc_header, cap);
        if (n) memcpy(headers, c->headers, (size_t)n * sizeof *headers);
        c->headers = headers;
        c->headers_cap = cap;
        c->pub.metadata = headers;
    }
    proa_grpc_header *h = &c->headers[n];
    h->name = (proa_str){proa_arena_strdup(&c->arena, name), name.len};
    if (!proa_str_ends(name, (proa_str){"-bin", 4}))
        h->value = (proa_str){proa_arena_strdup(&c->arena, value), value.len};
    else if (!proa_base64_decode(&c->arena, value, &h->value)) {
        refuse_call(c, PROA_GRPC_INTERNAL, "metadata with a name in -bin that is not base64");
        return;
    }
    c->pub.metadata_count++;
}

void proa_grpc_call_header(grpc_call *c, proa_str name, proa_str value)
{
    c->headers_bytes += name.len + value.len + 32;
    if (c->headers_bytes > PROA_GRPC_METADATA_BYTES_MAX) {
        refuse_call(c, PROA_GRPC_RESOURCE_EXHAUSTED, "received metadata is larger than 64 KiB");
        return;
    }
    if (name.len == 0 || name.ptr[0] != ':') {
        read_known(c, name, value);
        keep_header(c, name, value);
    } else if (proa_str_is(name, ":path"))
        c->pub.path = (proa_str){proa_arena_strdup(&c->arena, value), value.len};
    else if (proa_str_is(name, ":method")) c->post = proa_str_is(value, "POST");
}

proa_str proa_grpc_get(const proa_grpc_call *call, const char *name)
{
    for (int i = 0; i < call->metadata_count; i++)
        if (proa_str_is(call->metadata[i].name, name)) return call->metadata[i].value;
    return (proa_str){NULL, 0};
}

/* ---- the end of an answer ---- */

#define NV(name, value, len)                                                                                 \
    ((nghttp2_nv){(uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1, (len),      \
                  NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE})
#define NV_TEXT(name, value) NV(name, value, sizeof(value) - 1)

/* :status and content-type, and grpc-encoding if messages are packed. */
size_t proa_grpc_call_head_fields(const grpc_call *c, nghttp2_nv fields[4])
{
    size_t n = 0;
    fields[n++] = NV_TEXT(":status", "200");
    fields[n++] = NV_TEXT("content-type", "application/grpc");
    if (c->gzip) fields[n++] = NV_TEXT("grpc-encoding", "gzip");
    if (c->coding != PROA_CODING_IDENTITY || c->refused == PROA_GRPC_UNIMPLEMENTED)
        fields[n++] = NV_TEXT("grpc-accept-encoding", "identity,deflate,gzip");
    return n;
}

static nghttp2_nv status_field(int code)
{
    static const char *const codes[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
    PROA_ASSERT(code >= 0 && code < (int)PROA_COUNT(codes));
    return NV("grpc-status", codes[code], code < 10 ? 1 : 2);
}

static nghttp2_nv trailer_field(proa_arena *arena, const proa_grpc_header *h)
{
    bool binary = proa_str_ends(h->name, (proa_str){"-bin", 4});
    proa_str value = binary ? proa_base64_encode(arena, h->value)
                            : (proa_str){proa_arena_strdup(arena, h->value), h->value.len};
    return (nghttp2_nv){(uint8_t *)proa_arena_strdup(arena, h->name), (uint8_t *)(uintptr_t)value.ptr,
                        h->name.len, value.len, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

static void make_trailers(grpc_call *c, int code, proa_str message, const proa_grpc_header *trailers, int count)
{
    size_t n = 0;
    nghttp2_nv *fields = PROA_ARENA_NEW(&c->arena, nghttp2_nv, count + 2);
    fields[n++] = status_field(code);
    message = proa_grpc_cut(message);
    if (message.len) {
        proa_str text = proa_grpc_percent_encode(&c->arena, message);
        if (text.ptr == message.ptr) text.ptr = proa_arena_strdup(&c->arena, message);
        fields[n++] = NV("grpc-message", text.ptr, text.len);
    }
    for (int i = 0; i < count; i++) fields[n++] = trailer_field(&c->arena, &trailers[i]);
    c->trailers = fields;
    c->trailers_count = n;
}

static void submit_trailers_only(grpc_call *c)
{
    nghttp2_nv fields[4];
    size_t head = proa_grpc_call_head_fields(c, fields), count = head + c->trailers_count;
    nghttp2_nv *all = PROA_ARENA_NEW(&c->arena, nghttp2_nv, (int64_t)count);
    memcpy(all, fields, head * sizeof *all);
    memcpy(all + head, c->trailers, c->trailers_count * sizeof *all);
    c->answered = true;
    nghttp2_submit_response(c->session->h2, c->stream, all, count, NULL);
}

void proa_grpc_call_wake(grpc_call *c)
{
    if (!c->deferred) return;
    c->deferred = false;
    nghttp2_session_resume_data(c->session->h2, c->stream);
}

static void finish_call(grpc_call *c, int code, proa_str message, const proa_grpc_header *trailers, int count)
{
    c->finished = true;
    drop_in(c);
    make_trailers(c, code, message, trailers, count);
    if (!c->answered) submit_trailers_only(c);
    else proa_grpc_call_wake(c);
    if (c->held) nghttp2_session_consume_stream(c->session->h2, c->stream, c->held);
    c->held = 0;
    c->paused = false;
    c->progress_ns = proa_loop_now_ns(c->session->loop);
    if (c->queued)
        proa_grpc_session_wake(c->session, c->progress_ns + (int64_t)PROA_GRPC_UNREAD_MS * 1000000);
    proa_grpc_session_flush_soon(c->session);
}

void proa_grpc_finish(proa_grpc_call *call, int code, proa_str message, const proa_grpc_header *trailers, int count)
{
    grpc_call *c = (grpc_call *)call;
    PROA_ASSERT(c->owned);
    c->owned = false;
    finish_call(c, code, message, trailers, count);
}

void proa_grpc_call_fail(grpc_call *c, int code, const char *text)
{
    proa_grpc_call_disconnected(c);
    if (!c->finished) finish_call(c, code, proa_str_c(text), NULL, 0);
}

void proa_grpc_call_expire(grpc_call *c)
{
    bool cut = c->out_at > 0; /* a message is half sent: only a reset shows that it is incomplete */
    if (c->finished) return;
    proa_grpc_call_disconnected(c);
    drop_out(c);
    if (cut) {
        c->finished = c->cut = true;
        drop_in(c);
        nghttp2_submit_rst_stream(c->session->h2, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL);
        proa_grpc_session_flush_soon(c->session);
    } else finish_call(c, PROA_GRPC_DEADLINE_EXCEEDED, proa_str_c("Deadline Exceeded"), NULL, 0);
}

/* ---- the beginning ---- */

/* An HTTP answer to a request that is not gRPC. */
static void answer_http(grpc_call *c, const char status[3])
{
    nghttp2_nv field = NV(":status", status, 3);
    c->finished = c->answered = true;
    nghttp2_submit_response(c->session->h2, c->stream, &field, 1, NULL);
}

static bool head_is_right(grpc_call *c)
{
    if (!c->post) return answer_http(c, "405"), false;
    if (!c->grpc) return answer_http(c, "415"), false;
    if (!c->te)
        refuse_call(c, PROA_GRPC_INTERNAL,
                    "no 'te: trailers': the client or a proxy before it does not pass trailers on");
    if (c->refused) proa_grpc_call_fail(c, c->refused, c->refusal);
    else if (c->pub.deadline_ns && c->pub.deadline_ns <= c->pub.start_ns) proa_grpc_call_expire(c);
    return !c->finished;
}

void proa_grpc_call_start(grpc_call *c)
{
    const proa_grpc_server *server = c->session->server;
    if (!head_is_right(c)) return;
    c->gzip = server->compression_level > 0 && c->takes_gzip;
    if (c->pub.deadline_ns) proa_grpc_session_wake(c->session, c->pub.deadline_ns);
    c->owned = true;
    server->on_call(&c->pub, server->arg);
}
