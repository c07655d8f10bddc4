/* SPDX-License-Identifier: Apache-2.0
 * message_in.c - messages of a gRPC call that arrive: out of the stream's bytes, unpacked, and given to the user one by
 * one. Those that come while the call is paused, or while a worker unpacks the one before, wait. */
#include "net/grpc/grpc.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "net/grpc/session.h"
#include <string.h>

#define COUNT_BYTES ((size_t)1 << 20) /* a message is counted in such steps, as it arrives */

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
    proa_grpc_call_count_partial(c, false);
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
    proa_grpc_call_count_partial(c, partial);
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
