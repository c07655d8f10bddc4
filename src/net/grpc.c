/* SPDX-License-Identifier: Apache-2.0
 * grpc.c - a gRPC call: its head, messages in and out, trailers. */
#include "net/grpc.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "net/grpc_session.h"
#include "net/grpc_wire.h"
#include <string.h>

#define COPY_BYTES_MAX                                                                                       \
    ((size_t)4096) /* so short a message is copied rather than kept: cheaper than its release */
#define GZIP_BYTES_MIN ((size_t)256)     /* below that gzip's own head eats the gain */
#define IOV_MAX_PIECES 32                /* of one write */
#define COUNT_BYTES    ((size_t)1 << 20) /* a message is counted in such steps, as it arrives */

/* A compressed message on a worker. */
struct grpc_unpacking {
    proa_work_item work; /* first */
    grpc_call *call;     /* NULL: it has ended. For the loop only */
    proa_coding coding;
    grpc_message packed;
    size_t most;
    char *bytes; /* a block; NULL: it failed, or there was no memory */
    size_t len;
    proa_status status;
    proa_err err;
};

/* A message out on a worker. */
struct grpc_packing {
    proa_work_item work; /* first */
    grpc_call *call;     /* NULL: it has ended. For the loop only */
    grpc_out *plain;     /* with a reference of its own */
    int level;
    proa_buf packed;
    bool shorter; /* packed is */
};

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

static void out_drop(grpc_out *out)
{
    if (--out->refs > 0) return;
    if (out->release) out->release(out->arg);
    proa_block_free(out);
}

static void drop_list(grpc_out *out)
{
    for (grpc_out *next; out; out = next) {
        next = out->next;
        out_drop(out);
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

static void count_partial(grpc_call *c, bool partial)
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
    count_partial(c, false);
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

/* :status and content-type, and grpc-encoding if messages are packed. Returns how many. */
static size_t head_fields(const grpc_call *c, nghttp2_nv fields[4])
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
    size_t head = head_fields(c, fields), count = head + c->trailers_count;
    nghttp2_nv *all = PROA_ARENA_NEW(&c->arena, nghttp2_nv, (int64_t)count);
    memcpy(all, fields, head * sizeof *all);
    memcpy(all + head, c->trailers, c->trailers_count * sizeof *all);
    c->answered = true;
    nghttp2_submit_response(c->session->h2, c->stream, all, count, NULL);
}

static void wake_stream(grpc_call *c)
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
    else wake_stream(c);
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

/* ---- messages in ---- */

static void give_waiting(grpc_call *c, char *bytes, size_t len)
{
    c->current = bytes;
    if (c->owned && c->pub.on_message) c->pub.on_message(&c->pub, (proa_str){bytes, len});
    proa_block_free(c->current);
    c->current = NULL;
}

void *proa_grpc_take(proa_grpc_call *call)
{
    grpc_call *c = (grpc_call *)call;
    void *message = c->current;
    PROA_ASSERT(message);
    c->current = NULL;
    return message;
}

void proa_grpc_free(void *message)
{
    proa_block_free(message);
}

static void too_large(grpc_call *c, size_t bytes)
{
    char text[96];
    snprintf(text, sizeof text, "Received message larger than max (%zu vs. %lld)", bytes,
             (long long)c->session->message_max);
    proa_grpc_call_fail(c, PROA_GRPC_RESOURCE_EXHAUSTED, text);
}

static void unpacks_too_large(grpc_call *c)
{
    char text[96];
    snprintf(text, sizeof text, "Received message larger than max once decompressed (more than %lld bytes)",
             (long long)c->session->unpacked_max);
    proa_grpc_call_fail(c, PROA_GRPC_RESOURCE_EXHAUSTED, text);
}

static void no_room(grpc_call *c)
{
    proa_grpc_call_fail(c, PROA_GRPC_UNAVAILABLE, PROA_INFLIGHT_FULL);
}

/* A block with these bytes, counted if it is large; NULL if there is no memory. */
static char *keep_bytes(const proa_buf *from)
{
    char *bytes = proa_block_get(from->len);
    if (bytes && from->len >= PROA_INFLIGHT_COUNTED_MIN && !proa_block_count(bytes, from->len)) {
        proa_block_free(bytes);
        bytes = NULL;
    }
    if (bytes && from->len) memcpy(bytes, from->ptr, from->len);
    return bytes;
}

static void unpack_bytes(grpc_unpacking *u)
{
    proa_buf out;
    proa_buf_init(&out, u->most);
    u->status = proa_decompress(&out, u->coding, u->packed.bytes, u->packed.len, u->most, &u->err);
    u->bytes = u->status == PROA_OK ? keep_bytes(&out) : NULL;
    u->len = out.len;
    proa_buf_release(&out);
    proa_block_free(u->packed.bytes);
}

static void give_unpacked(grpc_call *c, grpc_unpacking *u)
{
    if (u->status == PROA_LIMIT) unpacks_too_large(c);
    else if (u->status != PROA_OK) proa_grpc_call_fail(c, PROA_GRPC_INTERNAL, u->err.text);
    else if (!u->bytes) no_room(c);
    else give_waiting(c, u->bytes, u->len);
}

static void run_unpacking(proa_work_item *work)
{
    unpack_bytes((grpc_unpacking *)work);
}

/* The call was paused meanwhile: the message is the first of those that wait. */
static void wait_unpacked(grpc_call *c, const grpc_unpacking *u)
{
    grpc_in *in = proa_block_get(sizeof *in);
    PROA_ASSERT(in);
    *in = (grpc_in){.next = c->waiting, .message = {.bytes = u->bytes, .len = u->len}};
    if (!c->waiting) c->waiting_last = &in->next;
    c->waiting = in;
}

static void unpacking_done(proa_work_item *work)
{
    grpc_unpacking *u = (grpc_unpacking *)work;
    grpc_call *c = u->call;
    if (c && !c->finished) {
        c->unpacking = NULL;
        c->delivering = true;
        if (c->paused && u->bytes) wait_unpacked(c, u);
        else give_unpacked(c, u);
        c->delivering = false;
        c->resume_due = c->session->work_pending = true; /* what arrived meanwhile */
        proa_grpc_session_flush_soon(c->session);
    } else {
        if (c) c->unpacking = NULL;
        proa_block_free(u->bytes);
    }
    free(u);
}

static void unpack_elsewhere(grpc_call *c, const grpc_unpacking *from)
{
    grpc_unpacking *u = proa_malloc(sizeof *u);
    *u = *from;
    u->call = c;
    u->work = (proa_work_item){.loop = c->session->loop, .run = run_unpacking, .done = unpacking_done};
    if (proa_workers_start(c->session->server->workers, &u->work)) {
        c->unpacking = u;
        return;
    }
    proa_block_free(u->packed.bytes);
    free(u);
    proa_grpc_call_fail(c, PROA_GRPC_UNAVAILABLE, "too many large messages wait to be unpacked");
}

static void unpack_message(grpc_call *c, const grpc_message *message)
{
    grpc_unpacking u = {.coding = c->coding, .packed = *message, .most = (size_t)c->session->unpacked_max};
    u.err.status = PROA_OK;
    if (message->len >= PROA_WORKER_PACKED_BYTES_MIN && c->session->server->workers) unpack_elsewhere(c, &u);
    else {
        unpack_bytes(&u);
        give_unpacked(c, &u);
    }
}

static void handle_message(grpc_call *c, const grpc_message *message)
{
    if (message->packed) unpack_message(c, message);
    else give_waiting(c, message->bytes, message->len);
}

static void keep_waiting(grpc_call *c, const grpc_message *message)
{
    grpc_in *in = proa_block_get(sizeof *in);
    PROA_ASSERT(in);
    *in = (grpc_in){.message = *message};
    *c->waiting_last = in;
    c->waiting_last = &in->next;
}

/* Delivers the waiting messages, until the user pauses or ends the call. */
static void deliver_message(grpc_call *c)
{
    if (c->delivering || c->unpacking)
        return; /* a caller further down the stack, or the end of a worker, does it */
    c->delivering = true;
    while (c->waiting && !c->paused && !c->unpacking && c->owned) {
        grpc_in in = *c->waiting;
        proa_block_free(c->waiting);
        c->waiting = in.next;
        if (!in.next) c->waiting_last = &c->waiting;
        handle_message(c, &in.message);
    }
    c->delivering = false;
    if (!c->half_closed || c->half_close_reported || c->waiting || c->paused || c->unpacking || !c->owned)
        return;
    c->half_close_reported = true;
    if (c->pub.on_half_close) c->pub.on_half_close(&c->pub);
}

static void complete_message(grpc_call *c, const grpc_message *message)
{
    if (c->paused || c->waiting || c->delivering || c->unpacking) keep_waiting(c, message);
    else {
        c->delivering = true;
        handle_message(c, message);
        c->delivering = false;
    }
}

static void end_message(grpc_call *c)
{
    grpc_message message = {.bytes = c->message, .len = c->message_len, .packed = c->prefix[0]};
    c->message = NULL;
    c->prefix_len = 0;
    count_partial(c, false);
    complete_message(c, &message);
}

/* What has come of a message takes part in the count of all, in steps; small messages do not. */
static bool count_bytes(grpc_call *c)
{
    size_t bytes = (c->message_len / COUNT_BYTES + 1) * COUNT_BYTES;
    if (c->message_size < PROA_INFLIGHT_COUNTED_MIN) return true;
    return proa_block_count(c->message, bytes < c->message_size ? bytes : c->message_size);
}

/* The prefix is complete. */
static void begin_message(grpc_call *c)
{
    const unsigned char *p = c->prefix;
    size_t size = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    c->message_len = 0;
    c->message_size = size;
    if (p[0] > 1) proa_grpc_call_fail(c, PROA_GRPC_INTERNAL, "a message's first byte is neither 0 nor 1");
    else if (p[0] && c->coding == PROA_CODING_IDENTITY)
        proa_grpc_call_fail(c, PROA_GRPC_INTERNAL, "a compressed message without a grpc-encoding");
    else if (size > (size_t)c->session->message_max) too_large(c, size);
    else {
        c->message = proa_block_get(size);
        if (!c->message || !count_bytes(c)) no_room(c);
    }
}

static size_t take_prefix(grpc_call *c, const char *bytes, size_t len)
{
    size_t n = (size_t)(GRPC_PREFIX - c->prefix_len);
    if (n > len) n = len;
    memcpy(c->prefix + c->prefix_len, bytes, n);
    c->prefix_len += (int)n;
    if (c->prefix_len == GRPC_PREFIX) begin_message(c);
    if (c->message && c->message_size == 0) end_message(c);
    return n;
}

static size_t take_bytes(grpc_call *c, const char *bytes, size_t len)
{
    size_t n = c->message_size - c->message_len;
    if (n > len) n = len;
    memcpy(c->message + c->message_len, bytes, n);
    c->message_len += n;
    if (c->message_len == c->message_size) end_message(c);
    else if (!count_bytes(c)) no_room(c);
    return n;
}

/* Splits the received bytes into messages, until a failure or the user ends the call. */
static void take_data(grpc_call *c, const char *bytes, size_t len)
{
    while (len && !c->finished) {
        size_t n = c->message ? take_bytes(c, bytes, len) : take_prefix(c, bytes, len);
        bytes += n;
        len -= n;
    }
}

void proa_grpc_call_data(grpc_call *c, const char *bytes, size_t len)
{
    grpc_session *s = c->session;
    take_data(c, bytes, len);
    if ((c->paused || c->unpacking) && !c->finished) c->held += len;
    else nghttp2_session_consume_stream(s->h2, c->stream, len);
    bool partial = !c->finished && (c->prefix_len > 0 || c->message);
    count_partial(c, partial);
    if (!partial) return;
    c->progress_ns = proa_loop_now_ns(s->loop);
    proa_grpc_session_wake(s, c->progress_ns + (int64_t)PROA_STALL_MS * 1000000);
}

void proa_grpc_call_half_close(grpc_call *c)
{
    c->half_closed = true;
    if (c->finished) return;
    if (c->prefix_len > 0 || c->message)
        proa_grpc_call_fail(c, PROA_GRPC_INTERNAL, "the stream ends within a message");
    else deliver_message(c);
}

void proa_grpc_pause(proa_grpc_call *call, bool paused)
{
    grpc_call *c = (grpc_call *)call;
    if (c->paused == paused) return;
    c->paused = paused;
    if (paused) return;
    c->resume_due = c->session->work_pending = true;
    proa_grpc_session_flush_soon(c->session);
}

void proa_grpc_call_resume(grpc_call *c)
{
    if (c->paused) return;
    deliver_message(c);
    if (c->paused || c->unpacking || !c->held) return;
    nghttp2_session_consume_stream(c->session->h2, c->stream, c->held);
    c->held = 0;
}

/* ---- messages out ---- */

static void put_prefix(char *to, bool packed, size_t bytes)
{
    to[0] = (char)packed;
    for (int i = 0; i < 4; i++) to[1 + i] = (char)(bytes >> (24 - 8 * i));
}

static grpc_out *out_new(int pieces, size_t inline_bytes)
{
    size_t head = sizeof(grpc_out) + (size_t)pieces * sizeof(struct iovec);
    grpc_out *out = proa_block_get(head + inline_bytes);
    PROA_ASSERT(out);
    *out = (grpc_out){.refs = 1, .count = pieces};
    return out;
}

/* Prefix and bytes in one piece after the struct. */
static grpc_out *out_copy(const struct iovec *iov, int count, size_t bytes)
{
    grpc_out *out = out_new(1, GRPC_PREFIX + bytes);
    char *at = (char *)(out->iov + 1);
    out->bytes = GRPC_PREFIX + bytes;
    out->iov[0] = (struct iovec){at, out->bytes};
    put_prefix(at, false, bytes);
    at += GRPC_PREFIX;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len) memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    return out;
}

static grpc_out *out_keep(const struct iovec *iov, int count, size_t bytes, bool packed,
                          void (*release)(void *arg), void *arg)
{
    grpc_out *out = out_new(count + 1, GRPC_PREFIX);
    char *prefix = (char *)(out->iov + count + 1);
    put_prefix(prefix, packed, bytes);
    out->iov[0] = (struct iovec){prefix, GRPC_PREFIX};
    memcpy(out->iov + 1, iov, (size_t)count * sizeof *iov);
    out->bytes = GRPC_PREFIX + bytes;
    out->release = release;
    out->arg = arg;
    return out;
}

static int gzip_level(const grpc_call *c)
{
    static const int levels[] = {0, 1, 5, 9};
    int wanted = c->session->server->compression_level;
    return levels[wanted > 3 ? 3 : wanted];
}

/* Any thread. False: gzip does not make it shorter. */
static bool pack_message(proa_buf *packed, const grpc_out *plain, int level)
{
    size_t bytes = plain->bytes - GRPC_PREFIX;
    char *all = proa_malloc(plain->bytes), *at = all;
    for (int i = 0; i < plain->count; i++) {
        if (plain->iov[i].iov_len) memcpy(at, plain->iov[i].iov_base, plain->iov[i].iov_len);
        at += plain->iov[i].iov_len;
    }
    proa_buf_init(packed, bytes - 1);
    bool shorter = proa_compress(packed, PROA_CODING_GZIP, level, all + GRPC_PREFIX, bytes, NULL) == PROA_OK;
    free(all);
    if (!shorter) proa_buf_release(packed);
    return shorter;
}

/* The message in its packed form, which takes the place of the plain one. */
static grpc_out *replace_plain(grpc_out *plain, const proa_buf *packed)
{
    out_drop(plain);
    return out_keep(&(struct iovec){packed->ptr, packed->len}, 1, packed->len, true, free, packed->ptr);
}

static grpc_out *make_out(const grpc_call *c, const struct iovec *iov, int count, size_t bytes,
                          void (*release)(void *arg), void *arg)
{
    grpc_out *out;
    if (release && bytes > COPY_BYTES_MAX) out = out_keep(iov, count, bytes, false, release, arg);
    else {
        out = out_copy(iov, count, bytes);
        if (release) release(arg);
    }
    out->pack = c->gzip && bytes >= GZIP_BYTES_MIN;
    return out;
}

static void append_out(grpc_call *c, grpc_out *out)
{
    out->next = NULL;
    *c->out_last = out;
    c->out_last = &out->next;
    c->queued += out->bytes;
}

static void packing_done(proa_work_item *work);

static void run_packing(proa_work_item *work)
{
    grpc_packing *p = (grpc_packing *)work;
    p->shorter = pack_message(&p->packed, p->plain, p->level);
}

/* False: no worker takes it. */
static bool pack_elsewhere(grpc_call *c, grpc_out *out)
{
    proa_workers *workers = c->session->server->workers;
    if (out->bytes < PROA_WORKER_GZIP_BYTES_MIN || !workers) return false;
    grpc_packing *p = proa_calloc(1, sizeof *p);
    *p = (grpc_packing){.call = c, .plain = out, .level = gzip_level(c)};
    p->work = (proa_work_item){.loop = c->session->loop, .run = run_packing, .done = packing_done};
    if (proa_workers_start(workers, &p->work)) {
        c->packing = p;
        c->unready += out->bytes;
        return true;
    }
    free(p);
    return false;
}

/* Puts a message into the queue, or has it compressed first. */
static void queue_out(grpc_call *c, grpc_out *out)
{
    proa_buf packed;
    if (out->pack && pack_elsewhere(c, out)) return;
    if (out->pack && pack_message(&packed, out, gzip_level(c))) out = replace_plain(out, &packed);
    append_out(c, out);
}

static void wait_behind(grpc_call *c, grpc_out *out)
{
    out->next = NULL;
    *c->behind_last = out;
    c->behind_last = &out->next;
    c->unready += out->bytes;
}

/* Queues the messages that were sent after it, up to the next one that a worker compresses. */
static void queue_behind(grpc_call *c)
{
    while (c->behind && !c->packing) {
        grpc_out *out = c->behind;
        c->behind = out->next;
        if (!c->behind) c->behind_last = &c->behind;
        c->unready -= out->bytes;
        queue_out(c, out);
    }
}

static void packing_done(proa_work_item *work)
{
    grpc_packing *p = (grpc_packing *)work;
    grpc_call *c = p->call;
    size_t bytes = p->plain->bytes;
    grpc_out *out = p->shorter ? replace_plain(p->plain, &p->packed) : p->plain;
    if (c) {
        c->packing = NULL;
        c->unready -= bytes;
        append_out(c, out);
        queue_behind(c);
        wake_stream(c);
        proa_grpc_session_flush_soon(c->session);
    } else out_drop(out);
    free(p);
}

static void submit_head(grpc_call *c)
{
    nghttp2_nv fields[4];
    nghttp2_data_provider provider = {.source.ptr = c, .read_callback = proa_grpc_session_read};
    c->answered = true;
    nghttp2_submit_response(c->session->h2, c->stream, fields, head_fields(c, fields), &provider);
}

void proa_grpc_send(proa_grpc_call *call, const struct iovec *iov, int count, void (*release)(void *arg),
                    void *arg)
{
    grpc_call *c = (grpc_call *)call;
    size_t bytes = 0;
    PROA_ASSERT(c->owned);
    for (int i = 0; i < count; i++) bytes += iov[i].iov_len;
    PROA_ASSERT(bytes <= UINT32_MAX);
    grpc_out *out = make_out(c, iov, count, bytes, release, arg);
    if (c->packing) wait_behind(c, out);
    else queue_out(c, out);
    c->was_high |= proa_grpc_queued(call) > PROA_CONN_HIGH_BYTES;
    if (!c->answered) submit_head(c);
    else wake_stream(c);
    proa_grpc_session_flush_soon(c->session);
}

size_t proa_grpc_queued(const proa_grpc_call *call)
{
    const grpc_call *c = (const grpc_call *)call;
    return c->queued + c->unready;
}

/* The part [at, at + len) of a message as pieces; returns how many bytes the pieces have. */
static size_t str_of_vec(const grpc_out *out, size_t at, size_t len, struct iovec *pieces, int *count)
{
    size_t got = 0;
    *count = 0;
    for (int i = 0; i < out->count && got < len && *count < IOV_MAX_PIECES; i++) {
        const struct iovec *v = &out->iov[i];
        if (at >= v->iov_len) {
            at -= v->iov_len;
            continue;
        }
        size_t n = v->iov_len - at < len - got ? v->iov_len - at : len - got;
        pieces[(*count)++] = (struct iovec){(char *)v->iov_base + at, n};
        got += n;
        at = 0;
    }
    return got;
}

void proa_grpc_call_write(grpc_call *c, size_t len)
{
    while (len) {
        struct iovec pieces[IOV_MAX_PIECES];
        int count;
        grpc_out *out = c->out;
        size_t n = str_of_vec(out, c->out_at, len, pieces, &count);
        proa_grpc_session_write(c->session, pieces, count, out);
        c->out_at += n;
        c->queued -= n;
        len -= n;
        if (c->out_at < out->bytes) continue;
        c->out = out->next;
        if (!c->out) c->out_last = &c->out;
        c->out_at = 0;
        out_drop(out);
    }
    c->progress_ns = proa_loop_now_ns(c->session->loop);
    if (!c->was_high || proa_grpc_queued(&c->pub) >= PROA_CONN_LOW_BYTES) return;
    c->was_high = false;
    c->drained_due = c->session->work_pending = true;
}
