/* SPDX-License-Identifier: Apache-2.0
 * stream.c - ModelStreamInfer: many requests and answers on one call. Answers of models that give exactly one come in
 * the order of their requests; those of decoupled models as they are made. */
#include "api/grpc/service.h"

#include "api/trace.h"
#include "base/limits.h"
#include <string.h>

typedef struct stream_request stream_request;

/* In the call's arena. */
typedef struct stream {
    proa_api *api;
    proa_grpc_call *call;
    stream_request *first, *last; /* in flight, in the order of their arrival */
    int count;
    bool half_closed;
    bool errors_end; /* metadata triton_grpc_error: a failure ends the stream with its code */
    bool reading;    /* a worker reads the newest request: later messages wait */
    bool many;       /* requests are in flight: later messages wait */
    bool unread;     /* answers wait for the client: later messages wait */
    bool inside;     /* on_message is on the stack: an end waits until it returns */
    bool ended;
    int end_code;
    const char *end_text;
} stream;

/* One request of a stream. It is in the arena of r, and holds a reference to r until it is retired. */
struct stream_request {
    proa_sink sink; /* first */
    proa_infer *r;
    stream *s; /* NULL: the stream has ended */
    stream_request *prev, *next;
    proa_infer_pb message;
    const char *version; /* as the client wrote it */
    proa_rpc_long large; /* of a large message: while a worker reads it */
    bool decoupled;
    bool refused;                /* it failed before it ran */
    proa_reply *waiting, **last; /* until all requests before it are retired */
    bool done, done_with_reply;  /* no more will come; the newest of waiting is the final one */
};

/* ---- life ---- */

static stream_request *stream_request_new(stream *s)
{
    proa_infer *r = proa_infer_new();
    stream_request *a = PROA_ARENA_NEW(&r->arena, stream_request, 1);
    r->client = proa_grpc_client(s->api, s->call, &r->arena);
    a->r = r;
    a->s = s;
    a->last = &a->waiting;
    a->prev = s->last;
    if (s->last) s->last->next = a;
    else s->first = a;
    s->last = a;
    s->count++;
    return a;
}

static void drop_waiting(stream_request *a)
{
    for (proa_reply *next; a->waiting; a->waiting = next) {
        next = a->waiting->next;
        proa_reply_free(a->waiting);
    }
    a->last = &a->waiting;
}

static void unlink_stream_request(stream_request *a)
{
    stream *s = a->s;
    if (a->prev) a->prev->next = a->next;
    else s->first = a->next;
    if (a->next) a->next->prev = a->prev;
    else s->last = a->prev;
    s->count--;
    a->s = NULL;
}

/* Its last answer was sent, or is not needed any more. */
static void retire_request(stream_request *a)
{
    if (a->s) unlink_stream_request(a);
    drop_waiting(a);
    proa_infer_pb_release(&a->message);
    proa_infer_drop(a->r);
}

/* The stream ends: running requests are cancelled, and each is retired by its final reply. */
static void abandon_all(stream *s)
{
    while (s->first) {
        stream_request *a = s->first;
        proa_infer *r = proa_infer_hold(a->r);
        bool done = a->done;
        unlink_stream_request(a);
        drop_waiting(a);
        if (done) retire_request(a);
        else proa_infer_cancel(r);
        proa_infer_drop(r);
    }
}

/* Afterwards s must not be touched, except by on_message. */
static void end_stream(stream *s, int code, const char *text)
{
    abandon_all(s);
    if (s->inside) {
        s->ended = true;
        s->end_code = code;
        s->end_text = proa_arena_strdup(s->call->arena, proa_str_c(text));
    } else proa_grpc_finish(s->call, code, proa_str_c(text), NULL, 0);
}

/* ---- how much the client may have on its way ---- */

/* The two limits have a lower bound each, below which the client may go on. A pause for a long message must not put
 * them in force: while fewer bytes than the upper bound are queued, on_drained does not come, and the stream would
 * stay paused. */
static void regulate_stream(stream *s)
{
    s->many = s->count >= (s->many ? PROA_GRPC_STREAM_REQUESTS_MAX / 2 : PROA_GRPC_STREAM_REQUESTS_MAX);
    s->unread = proa_grpc_queued(s->call) > (s->unread ? PROA_CONN_LOW_BYTES : PROA_CONN_HIGH_BYTES);
    proa_grpc_pause(s->call, s->reading || s->many || s->unread);
}

/* After anything that may have been the last thing to do. */
static void settle_stream(stream *s)
{
    if (s->inside) return;
    if (s->half_closed && !s->first) end_stream(s, PROA_GRPC_OK, "");
    else regulate_stream(s);
}

/* ---- answers ---- */

static void send_note(stream_request *a, const char *error, bool has_final, bool final)
{
    PROA_ALIGNED(16) char memory[1024];
    proa_arena arena;
    proa_arena_init_in(&arena, memory, sizeof memory);
    proa_stream_note note = {
        .error = proa_str_c(error), .id = proa_str_c(a->r->id), .has_final = has_final, .final = final};
    if (has_final) {
        note.model_name = proa_str_c(a->r->model_name);
        note.model_version = proa_str_c(a->version);
    }
    proa_str bytes = proa_stream_note_write(&arena, &note);
    proa_grpc_send(a->s->call, &(struct iovec){(void *)(uintptr_t)bytes.ptr, bytes.len}, 1, NULL, NULL);
    proa_arena_release(&arena);
}

static void send_error(stream_request *a, const proa_err *err, bool final)
{
    char *text = proa_err_whole_text(err);
    if (a->s->errors_end) end_stream(a->s, proa_grpc_code_of(err), text);
    else send_note(a, text, !a->refused, final);
    free(text);
}

static void free_reply(void *reply)
{
    proa_reply_free(reply);
}

static proa_status send_tensors(stream_request *a, proa_reply *reply, bool final, proa_err *err)
{
    proa_reply_pb out;
    PROA_TRY(proa_reply_pb_check(reply, err));
    PROA_TRY(proa_reply_pb_write(&out, reply, final ? PROA_PB_FINAL : PROA_PB_MORE, err));
    proa_grpc_send(a->s->call, out.iov, out.count, free_reply, reply);
    return PROA_OK;
}

/* A decoupled model makes answers at its own pace. A single answer may have any size; more are not held back. */
static bool reads_nothing(const stream_request *a)
{
    return a->decoupled && proa_grpc_queued(a->s->call) > (size_t)PROA_STREAM_QUEUED_MAX;
}

/* One answer to the client. Afterwards the stream may have ended: then a->s is NULL. */
static void send_reply(stream_request *a, proa_reply *reply, bool final)
{
    proa_err err;
    err.status = PROA_OK;
    if (!reply) {
        if (a->decoupled && a->message.empty_final) send_note(a, "", true, true);
        return;
    }
    if (reads_nothing(a)) {
        proa_reply_free(reply);
        end_stream(a->s, PROA_GRPC_RESOURCE_EXHAUSTED, "the client does not read its answers");
        return;
    }
    if (reply->error.status != PROA_OK) err = reply->error;
    else if (send_tensors(a, reply, final, &err) == PROA_OK) reply = NULL;
    if (err.status != PROA_OK) send_error(a, &err, final);
    proa_reply_free(reply);
}

/* A request whose answers keep the order waits while another such request is before it. */
static bool must_wait(const stream_request *a)
{
    if (a->decoupled) return false;
    for (const stream_request *before = a->prev; before; before = before->prev)
        if (!before->decoupled) return true;
    return false;
}

static void keep_waiting(stream_request *a, proa_reply *reply, bool final)
{
    a->done |= final;
    a->done_with_reply |= final && reply;
    if (!reply) return;
    reply->next = NULL;
    *a->last = reply;
    a->last = &reply->next;
}

/* Its turn in the order: its waiting replies are sent. False if that has ended the stream. */
static bool send_waiting(stream_request *a)
{
    proa_infer *r = proa_infer_hold(a->r);
    while (a->waiting && a->s) {
        proa_reply *reply = a->waiting;
        a->waiting = reply->next;
        if (!a->waiting) a->last = &a->waiting;
        reply->next = NULL;
        send_reply(a, reply, !a->waiting && a->done_with_reply);
    }
    bool lives = a->s != NULL;
    proa_infer_drop(r);
    return lives;
}

/* The first request that keeps the order was retired: sends the replies of those after it, up to one that has not
 * ended. False as above. */
static bool next_turns(stream *s)
{
    for (stream_request *a = s->first, *next; a; a = next) {
        next = a->next;
        if (a->decoupled) continue;
        if (!send_waiting(a)) return false;
        if (!a->done) return true;
        retire_request(a);
    }
    return true;
}

static void deliver_now(stream_request *a, proa_reply *reply, bool final)
{
    stream *s = a->s;
    a->done |= final;
    send_reply(a, reply, final);
    if (!a->s) return; /* the stream has ended with that */
    if (final) {
        bool ordered = !a->decoupled;
        retire_request(a);
        if (ordered && !next_turns(s)) return;
    }
    settle_stream(s);
}

static void deliver_reply(stream_request *a, proa_reply *reply, bool final)
{
    proa_infer *r = proa_infer_hold(a->r); /* a is in its arena */
    if (a->s && must_wait(a)) keep_waiting(a, reply, final);
    else if (a->s) deliver_now(a, reply, final);
    else { /* the stream has ended before */ proa_reply_free(reply);
        if (final) retire_request(a);
    }
    proa_infer_drop(r);
}

/* Called on the loop or on a worker. */
static void apply_wants(proa_sink *sink, proa_reply *reply)
{
    stream_request *a = (stream_request *)sink;
    if (reply->error.status == PROA_OK)
        (void)proa_reply_pb_apply(&a->message, sink->infer->model, reply, &reply->error);
}

static void on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    deliver_reply((stream_request *)sink, reply, final);
}

/* ---- requests ---- */

static void refuse_request(stream_request *a, const proa_err *err)
{
    proa_reply *reply = proa_reply_new(a->r);
    reply->error = *err;
    a->refused = true;
    deliver_reply(a, reply, true);
}

/* The message has been read by the worker. If it was accepted, its replies come after this. */
static void long_done(proa_rpc_long *l)
{
    stream_request *a = (stream_request *)l->sink;
    stream *s = a->s; /* NULL: it has ended meanwhile, and cancelled the request */
    proa_infer *r = l->read.r;
    a->decoupled = l->read.decoupled;
    a->version = a->message.version.len ? proa_arena_strdup(&r->arena, a->message.version) : "";
    if (s) s->reading = false;
    if (l->status != PROA_OK && s) refuse_request(a, &l->err);
    else if (l->status != PROA_OK) retire_request(a);
    if (a->s) regulate_stream(a->s); /* the next message may come */
}

static proa_status start_long(stream_request *a, proa_str bytes, proa_err *err)
{
    proa_rpc_long *l = &a->large;
    l->read = (proa_rpc_read){.api = a->s->api, .r = a->r, .m = &a->message};
    l->sink = &a->sink;
    l->on_reply = on_reply;
    l->prepare = apply_wants;
    l->done = long_done;
    PROA_TRY(proa_rpc_start_long(l, a->s->call, bytes, err));
    a->s->reading = true;
    return PROA_OK;
}

/* A message has come, which makes a request. Until end_message the stream does not end: replies may come meanwhile. */
static stream_request *begin_message(proa_grpc_call *call)
{
    stream *s = call->user;
    stream_request *a = stream_request_new(s);
    s->inside = true;
    a->version = "";
    a->r->times.received = proa_loop_now_ns(proa_conn_loop(call->conn));
    proa_trace_grpc(call, a->r->times.received, a->r);
    return a;
}

static void end_message(proa_grpc_call *call)
{
    stream *s = call->user;
    s->inside = false;
    if (s->ended) proa_grpc_finish(call, s->end_code, proa_str_c(s->end_text), NULL, 0);
    else settle_stream(s);
}

/* A long message is read by a worker (long_done). */
static void on_long_message(proa_grpc_call *call, proa_str bytes)
{
    stream_request *a = begin_message(call);
    proa_err err = {.status = PROA_OK};
    if (start_long(a, bytes, &err) != PROA_OK) refuse_request(a, &err);
    end_message(call);
}

/* To the server core. `a` may be freed afterwards. err is the caller's, so that it is not cleared twice. */
static void send_request(stream *s, stream_request *a, proa_infer *r, proa_err *err)
{
    proa_sink_init(&a->sink, proa_conn_loop(s->call->conn), proa_infer_hold(r), on_reply);
    if (a->message.wants_count) proa_sink_prepare_with(&a->sink, s->api->workers, apply_wants);
    if (proa_server_infer(s->api->server, r, err) == PROA_OK) return;
    proa_sink_abandon(&a->sink);
    refuse_request(a, err);
}

static void on_message(proa_grpc_call *call, proa_str bytes)
{
    if (PROA_UNLIKELY(proa_rpc_is_long(bytes))) {
        on_long_message(call, bytes);
        return;
    }
    stream *s = call->user;
    stream_request *a = begin_message(call);
    proa_infer *r = proa_infer_hold(a->r); /* its last reply may come, and free `a`, before it was sent */
    proa_err err;
    err.status = PROA_OK;
    proa_rpc_read read = {.api = s->api, .r = r, .m = &a->message};
    proa_status status = proa_rpc_request(&read, call, bytes, &err);
    a->decoupled = read.decoupled;
    a->version = a->message.version.len ? proa_arena_strdup(&r->arena, a->message.version) : "";
    if (status == PROA_OK) send_request(s, a, r, &err);
    else refuse_request(a, &err);
    proa_infer_drop(r);
    end_message(call);
}

static void on_half_close(proa_grpc_call *call)
{
    stream *s = call->user;
    s->half_closed = true;
    settle_stream(s);
}

static void on_drained(proa_grpc_call *call)
{
    settle_stream(call->user);
}

static void on_disconnect(proa_grpc_call *call)
{
    abandon_all(call->user);
}

void proa_rpc_stream(proa_api *api, proa_grpc_call *call)
{
    stream *s = PROA_ARENA_NEW(call->arena, stream, 1);
    *s = (stream){.api = api, .call = call};
    s->errors_end = proa_str_is(proa_grpc_get(call, "triton_grpc_error"), "true");
    call->user = s;
    call->on_message = on_message;
    call->on_half_close = on_half_close;
    call->on_drained = on_drained;
    call->on_disconnect = on_disconnect;
}
