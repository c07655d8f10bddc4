/* SPDX-License-Identifier: Apache-2.0
 * infer.c - ModelInfer: one request, one answer; and what it shares with the stream. */
#include "api/grpc/service.h"
#include "api/trace.h"

/* ---- the request ---- */

proa_buffer *proa_rpc_take(proa_grpc_call *call, size_t len)
{
    void *message = proa_grpc_take(call);
    return proa_buffer_wrap(message, len, proa_grpc_free, message);
}

static proa_status find_region(void *arg, const char *name, uint64_t offset, uint64_t bytes,
                               proa_buffer **out, proa_err *err)
{
    proa_api *api = arg;
    if (!api->options.allow_client_shm)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
            "enable.");
    return proa_shm_buffer(api->server, name, offset, bytes, out, err);
}

/* Finds the model, whose transaction policy must fit the call. */
static proa_status find_model(proa_rpc_read *read, proa_err *err)
{
    PROA_TRY(proa_server_find_model(read->api->server, read->r, err));
    bool answers_unary = proa_served_model_unary(read->r->model) && !read->api->options.strict_triton;
    read->decoupled = proa_served_model_decoupled(read->r->model);
    if (!read->unary || !read->decoupled || answers_unary) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "ModelInfer RPC doesn't support models with decoupled transaction policy");
}

static proa_status forward_metadata(const proa_api *api, const proa_grpc_header *metadata, int count,
                                    proa_infer *r, proa_err *err)
{
    if (PROA_LIKELY(!api->forward[PROA_FRONTEND_GRPC])) return PROA_OK;
    for (int i = 0; i < count; i++)
        PROA_TRY(proa_infer_forward(api, true, r, metadata[i].name, metadata[i].value, err));
    return PROA_OK;
}

/* The checks before the memory of the message is taken. */
static proa_status scan_request(proa_rpc_read *read, proa_err *err)
{
    read->decoupled = false;
    PROA_TRY(proa_infer_pb_scan(read->m, read->r, err));
    PROA_TRY(proa_version_parse(&read->r->model_version, read->m->version, err));
    return find_model(read, err);
}

proa_status proa_rpc_request(proa_rpc_read *read, proa_grpc_call *call, proa_str message, proa_err *err)
{
    proa_api *api = read->api;
    proa_infer *r = read->r;
    proa_infer_pb *m = read->m;
    *m = (proa_infer_pb){.bytes = message, .region = find_region, .region_arg = api};
    r->deadline_ns = call->deadline_ns;
    PROA_TRY(scan_request(read, err));
    m->body = proa_rpc_take(call, message.len);
    proa_status status = proa_infer_pb_fill(m, r, err);
    if (status == PROA_OK) status = forward_metadata(api, call->metadata, call->metadata_count, r, err);
    proa_buffer_drop(m->body); /* the inputs hold it now, if they need it */
    m->body = NULL;
    return status;
}

/* ---- large messages ---- */

bool proa_rpc_is_long(proa_str message)
{
    return message.len >= PROA_WORKER_MESSAGE_BYTES_MIN;
}

static proa_status read_long(proa_rpc_long *l)
{
    proa_status status = scan_request(&l->read, &l->err);
    if (status == PROA_OK) status = proa_infer_pb_fill(l->read.m, l->read.r, &l->err);
    if (status == PROA_OK)
        status = forward_metadata(l->read.api, l->metadata, l->metadata_count, l->read.r, &l->err);
    proa_buffer_drop(l->read.m->body);
    l->read.m->body = NULL;
    return status;
}

static void run_long(proa_work_item *work)
{
    proa_rpc_long *l = (proa_rpc_long *)work;
    proa_handoff_enter(l->handoff);
    l->status = read_long(l);
    if (l->status == PROA_OK) {
        proa_sink_init(l->sink, work->loop, proa_infer_hold(l->read.r), l->on_reply);
        if (l->read.m->wants_count) proa_sink_prepare_with(l->sink, l->read.api->workers, l->prepare);
        l->status = proa_server_infer(l->read.api->server, l->read.r, &l->err);
        if (l->status != PROA_OK) proa_sink_abandon(l->sink);
    }
    proa_handoff_leave();
}

static void end_long(proa_work_item *work)
{
    proa_rpc_long *l = (proa_rpc_long *)work;
    proa_handoff *handoff = l->handoff;
    proa_infer *r = l->read.r;
    proa_handoff_finish(handoff);
    l->done(l);
    proa_handoff_run_waiting(handoff);
    proa_handoff_drop(handoff);
    proa_infer_drop(r);
}

/* The call may end before the worker runs. */
static void copy_metadata(proa_rpc_long *l, const proa_grpc_call *call)
{
    proa_arena *arena = &l->read.r->arena;
    if (!l->read.api->forward[PROA_FRONTEND_GRPC]) return;
    proa_grpc_header *copy = PROA_ARENA_NEW(arena, proa_grpc_header, call->metadata_count);
    for (int i = 0; i < call->metadata_count; i++) {
        const proa_grpc_header *h = &call->metadata[i];
        copy[i].name = (proa_str){proa_arena_strdup(arena, h->name), h->name.len};
        copy[i].value = (proa_str){proa_arena_strdup(arena, h->value), h->value.len};
    }
    l->metadata = copy;
    l->metadata_count = call->metadata_count;
}

proa_status proa_rpc_start_long(proa_rpc_long *l, proa_grpc_call *call, proa_str message, proa_err *err)
{
    *l->read.m = (proa_infer_pb){.bytes = message, .region = find_region, .region_arg = l->read.api};
    l->read.r->deadline_ns = call->deadline_ns;
    copy_metadata(l, call);
    l->read.m->body = proa_rpc_take(call, message.len);
    l->work = (proa_work_item){.loop = proa_conn_loop(call->conn), .run = run_long, .done = end_long};
    l->err.status = PROA_OK;
    l->handoff = proa_handoff_new();
    proa_infer_hold(l->read.r);
    if (proa_workers_start(l->read.api->workers, &l->work)) return PROA_OK;
    proa_infer_drop(l->read.r);
    proa_handoff_drop(l->handoff);
    proa_buffer_drop(l->read.m->body);
    l->read.m->body = NULL;
    return PROA_FAIL(err, UNAVAILABLE, "Exceeds maximum queue size: %d large requests wait already",
                     PROA_WORKER_WAITING_MAX);
}

/* ---- unary calls ---- */

/* In the request's arena, which lives until the sink's last on_reply has returned. */
typedef struct unary {
    proa_sink sink; /* first */
    proa_api *api;
    proa_grpc_call *call; /* NULL: the client has disconnected */
    proa_infer *r;
    proa_infer_pb message;
    proa_reply *reply; /* the first one */
    int replies;
} unary;

static void free_reply(void *reply)
{
    proa_reply_free(reply);
}

static proa_status send_answer(unary *u, proa_err *err)
{
    proa_reply_pb out;
    if (u->replies != 1) return PROA_FAIL(err, INTERNAL, "expected a single response, got %d", u->replies);
    if (u->reply->error.status != PROA_OK) {
        *err = u->reply->error;
        return err->status;
    }
    PROA_TRY(proa_reply_pb_check(u->reply, err));
    PROA_TRY(proa_reply_pb_write(&out, u->reply, PROA_PB_UNARY, err));
    proa_grpc_send(u->call, out.iov, out.count, free_reply, u->reply);
    u->reply = NULL;
    return PROA_OK;
}

/* Called on the loop or on a worker. */
static void apply_wants(proa_sink *sink, proa_reply *reply)
{
    unary *u = (unary *)sink;
    if (reply->error.status == PROA_OK)
        (void)proa_reply_pb_apply(&u->message, sink->infer->model, reply, &reply->error);
}

static void on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    unary *u = (unary *)sink;
    proa_err err;
    err.status = PROA_OK;
    if (reply) u->replies++;
    if (!u->reply) u->reply = reply;
    else proa_reply_free(reply);
    if (!final) return;
    if (u->call && send_answer(u, &err) == PROA_OK)
        proa_grpc_finish(u->call, PROA_GRPC_OK, (proa_str){"", 0}, NULL, 0);
    else if (u->call) proa_grpc_fail(u->call, &err);
    proa_reply_free(u->reply);
    proa_infer_pb_release(&u->message);
}

static void on_disconnect(proa_grpc_call *call)
{
    unary *u = call->user;
    proa_infer *r = proa_infer_hold(u->r);
    u->call = NULL;
    proa_infer_cancel(r);
    proa_infer_drop(r);
}

static void refuse_request(unary *u, proa_infer *r, proa_grpc_call *call, const proa_err *err)
{
    if (call) call->on_disconnect = NULL;
    proa_infer_pb_release(&u->message);
    proa_infer_drop(r);
    if (call) proa_grpc_fail(call, err);
}

static void long_done(proa_rpc_long *l)
{
    unary *u = (unary *)l->sink;
    if (l->status != PROA_OK) refuse_request(u, l->read.r, u->call, &l->err);
    else proa_infer_drop(l->read.r); /* the sink has a reference of its own */
}

static proa_status start_long(unary *u, proa_str bytes, proa_err *err)
{
    proa_rpc_long *l = PROA_ARENA_NEW(&u->r->arena, proa_rpc_long, 1);
    l->read = (proa_rpc_read){.api = u->api, .r = u->r, .m = &u->message, .unary = true};
    l->sink = &u->sink;
    l->on_reply = on_reply;
    l->prepare = apply_wants;
    l->done = long_done;
    return proa_rpc_start_long(l, u->call, bytes, err);
}

static void on_message(proa_grpc_call *call, proa_str bytes)
{
    proa_api *api = call->user;
    proa_infer *r = proa_infer_new();
    unary *u = PROA_ARENA_NEW(&r->arena, unary, 1);
    proa_rpc_read read = {.api = api, .r = r, .m = &u->message, .unary = true};
    proa_err err;
    err.status = PROA_OK;
    r->times.received = call->start_ns;
    proa_trace_grpc(call, call->start_ns, r);
    r->client = proa_grpc_client(api, call, &r->arena);
    u->api = api;
    u->call = call;
    u->r = r;
    bool is_long = proa_rpc_is_long(bytes);
    if ((is_long ? start_long(u, bytes, &err) : proa_rpc_request(&read, call, bytes, &err)) != PROA_OK) {
        refuse_request(u, r, call, &err);
        return;
    }
    call->user = u;
    call->on_message = NULL; /* the first one counts */
    call->on_half_close = NULL;
    call->on_disconnect = on_disconnect;
    if (is_long) return;
    proa_infer_hold(r);
    proa_sink_init(&u->sink, proa_conn_loop(call->conn), r, on_reply);
    if (u->message.wants_count) proa_sink_prepare_with(&u->sink, api->workers, apply_wants);
    if (proa_server_infer(api->server, r, &err) == PROA_OK) proa_infer_drop(r); /* u may have been freed */
    else {
        proa_sink_abandon(&u->sink);
        refuse_request(u, r, call, &err);
    }
}

void proa_rpc_infer(proa_api *api, proa_grpc_call *call)
{
    call->user = api;
    call->on_message = on_message;
}
