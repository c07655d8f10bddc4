/* SPDX-License-Identifier: Apache-2.0
 * generate.c - the generate extension: a JSON object in, one JSON answer or a stream of server-sent events out. */
#include "api/http/generate.h"

#include "api/trace.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <inttypes.h>
#include <string.h>

/* One call of generate or generate_stream, from its arrival to the final reply. */
typedef struct generate_call {
    proa_sink sink; /* first */
    proa_api *api;
    proa_http_exchange *x; /* NULL: answered, or the client has disconnected */
    bool streaming, began;
    int replies;
    proa_reply *reply;    /* generate: the only one, until the final has come */
    proa_buf event;       /* generate_stream: the reply in turn, as it is sent ... */
    proa_err event_error; /* ... or why it cannot be written */
} generate_call;

/* ---- the answer: flat JSON ---- */

static proa_status reply_json(proa_buf *out, const proa_reply *reply, proa_err *err)
{
    proa_buf_char(out, '{');
    if (reply->id && reply->id[0]) {
        proa_buf_printf(out, "\"id\":");
        proa_buf_json_str(out, proa_str_c(reply->id));
        proa_buf_char(out, ',');
    }
    proa_buf_printf(out, "\"model_name\":");
    proa_buf_json_str(out, proa_str_c(reply->model_name));
    proa_buf_printf(out, ",\"model_version\":\"%" PRId64 "\"", reply->model_version);
    for (int32_t i = 0; i < reply->outputs_count; i++) {
        proa_buf_char(out, ',');
        proa_buf_json_str(out, proa_str_c(reply->outputs[i].name));
        proa_buf_char(out, ':');
        PROA_TRY(proa_tensor_json(out, &reply->outputs[i], true, err));
    }
    if (reply->generated) PROA_TRY(proa_generated_json(out, reply->generated, err));
    for (int32_t i = 0; i < reply->params_count; i++) {
        proa_buf_char(out, ',');
        proa_param_json(out, &reply->params[i]);
    }
    proa_buf_char(out, '}');
    return PROA_OK;
}

static void fail_call(generate_call *c, const proa_err *err)
{
    proa_http_exchange *x = c->x;
    c->x = NULL;
    proa_http_on_disconnect(x, NULL);
    proa_http_fail_request(c->api, x, err);
    proa_infer_cancel(c->sink.infer); /* the client does not read what would follow */
}

static proa_str head_lines(generate_call *c, const char *type)
{
    char *load = proa_v2_load_header(c->api->server, proa_http_get(c->x, "endpoint-load-metrics-format"),
                                     c->x->arena);
    return proa_str_c(proa_arena_printf(c->x->arena, "Content-Type: %s\r\n%s", type, load));
}

static void answer_once(generate_call *c)
{
    proa_err err = {.status = PROA_OK};
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_ANSWER_BYTES_MAX);
    if (c->replies != 1)
        PROA_FAIL(&err, INTERNAL,
                  "generate expects model to produce exactly 1 response, use generate stream for model that "
                  "generates various "
                  "number of responses");
    else if (c->reply->error.status != PROA_OK) err = c->reply->error;
    else if (reply_json(&out, c->reply, &err) == PROA_OK) {
        struct iovec iov = {out.ptr, out.len};
        proa_http_respond(c->x, 200, head_lines(c, "application/json"),
                          (proa_http_body){.iov = &iov, .count = 1, .release = free, .arg = out.ptr});
        c->x = NULL;
        return;
    }
    proa_buf_release(&out);
    fail_call(c, &err);
}

static void send_error(generate_call *c, const proa_err *err)
{
    proa_buf out;
    proa_buf_init(&out, PROA_ERR_JSON_MAX);
    proa_buf_printf(&out, "data: {\"error\":");
    proa_err_json(&out, err);
    proa_buf_append(&out, "}\n\n", 3);
    proa_http_send(c->x, proa_buf_view(&out));
    proa_buf_release(&out);
}

/* The last event carries the error; the client reads the earlier events first. */
static void give_up(generate_call *c)
{
    proa_err err = {.status = PROA_OK};
    proa_http_exchange *x = c->x;
    PROA_FAIL(&err, LIMIT, "the client does not read its answers");
    send_error(c, &err);
    c->x = NULL;
    proa_http_on_disconnect(x, NULL);
    proa_http_end(x);
    proa_infer_cancel(c->sink.infer);
}

/* Called on the loop or on a worker. */
static void write_event(proa_sink *sink, proa_reply *reply)
{
    generate_call *c = (generate_call *)sink;
    c->event_error = reply->error;
    proa_buf_init(&c->event, (size_t)PROA_ANSWER_BYTES_MAX);
    proa_buf_append(&c->event, "data: ", 6);
    if (reply->error.status == PROA_OK) reply_json(&c->event, reply, &c->event_error);
    proa_buf_append(&c->event, "\n\n", 2);
}

/* Until something was sent, an error has a status of its own; after that it is an event. */
static void stream_event(generate_call *c)
{
    const proa_err *err = &c->event_error;
    if (c->began && proa_http_queued(c->x) > (size_t)PROA_STREAM_QUEUED_MAX) give_up(c);
    else if (err->status != PROA_OK && !c->began) fail_call(c, err);
    else {
        if (!c->began) proa_http_begin(c->x, 200, head_lines(c, "text/event-stream; charset=utf-8"));
        c->began = true;
        if (err->status != PROA_OK) send_error(c, err);
        else proa_http_send(c->x, proa_buf_view(&c->event));
    }
}

static void stream_end(generate_call *c)
{
    if (!c->began) proa_http_begin(c->x, 200, head_lines(c, "text/event-stream; charset=utf-8"));
    proa_http_end(c->x);
}

static void end_once(generate_call *c)
{
    if (c->x) answer_once(c);
    proa_reply_free(c->reply);
    free(c);
}

static void end_on_worker(proa_http_exchange *x, void *call)
{
    proa_infer *r = ((generate_call *)call)->sink.infer;
    PROA_UNUSED(x);
    end_once(call);
    proa_infer_drop(r);
}

/* A long answer is written by a worker. */
static bool end_elsewhere(generate_call *c)
{
    proa_infer *r = c->sink.infer;
    if (!c->x || !c->reply || proa_reply_bytes(c->reply) < PROA_WORKER_BYTES_MIN) return false;
    proa_infer_hold(r);
    if (proa_http_offload(c->x, end_on_worker, c)) return true;
    proa_infer_drop(r);
    return false;
}

/* Each reply of a stream is written at once. Otherwise the first one is kept until the final call, and a large answer
 * is then written by a worker. */
static void on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    generate_call *c = (generate_call *)sink;
    bool keep = reply && !c->streaming && !c->reply;
    if (reply) c->replies++;
    if (keep) c->reply = reply;
    else if (reply && c->streaming) {
        if (c->x) stream_event(c);
        proa_buf_release(&c->event);
    }
    if (!keep) proa_reply_free(reply);
    if (!final) return;
    if (!c->streaming && end_elsewhere(c)) return;
    if (c->x && c->streaming) {
        stream_end(c);
        c->x = NULL;
    }
    end_once(c);
}

static void on_disconnect(proa_http_exchange *x)
{
    generate_call *c = x->user;
    c->x = NULL;
    proa_infer_cancel(c->sink.infer);
}

static proa_status start_generate(proa_api *api, proa_http_exchange *x, proa_infer *r, bool streaming,
                                  proa_err *err)
{
    generate_call *c = proa_calloc(1, sizeof *c);
    c->api = api;
    c->x = x;
    c->streaming = streaming;
    x->user = c;
    proa_sink_init(&c->sink, proa_http_loop(x), r, on_reply);
    if (streaming) proa_sink_prepare_with(&c->sink, api->workers, write_event);
    proa_http_on_disconnect(x, on_disconnect);
    proa_status status = proa_server_infer(api->server, r, err);
    if (status == PROA_OK) return PROA_OK; /* c may have been freed */
    proa_http_on_disconnect(x, NULL);
    proa_sink_abandon(&c->sink);
    free(c);
    return status;
}

static void generate_request(proa_api *api, proa_http_exchange *x, const proa_v2_path *path, bool streaming)
{
    proa_err err = {.status = PROA_OK};
    int64_t version;
    if (proa_version_parse(&version, path->version, &err) != PROA_OK) {
        proa_http_fail_request(api, x, &err);
        return;
    }
    proa_infer *r = proa_infer_new();
    r->model_name = proa_arena_strdup(&r->arena, proa_str_c(path->model));
    r->model_version = version;
    r->client = proa_http_client(api, x, &r->arena);
    r->times.received = x->start_ns;
    proa_trace_http(x, "text_completion", r);
    if (proa_generate_read(api, x, r, &err) != PROA_OK) {
        proa_infer_drop(r);
        proa_http_fail_request(api, x, &err);
    } else if (start_generate(api, x, r, streaming, &err) != PROA_OK) proa_http_fail_request(api, x, &err);
}

void proa_v2_generate(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    generate_request(api, x, path, false);
}

void proa_v2_generate_stream(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    generate_request(api, x, path, true);
}
