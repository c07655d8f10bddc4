/* SPDX-License-Identifier: Apache-2.0
 * grpc.c - one call of inference.GRPCInferenceService: an nghttp2 client session over a blocking connection. */
#include "base/alloc.h"
#include "cli/client/client.h"
#include "proto/grpc_service.pb-c.h"
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 1 << 30, HEADER_BYTES = 5 };

typedef struct call {
    proa_wire *wire;
    nghttp2_session *session;
    proa_buf out; /* the message with its prefix */
    size_t sent;
    proa_buf in;
    bool stream, closed, failed;
    int grpc_status, http_status;
    char message[512];
    proa_grpc_reply_fn *on_reply;
    void *arg;
    proa_err *err;
} call;

/* ---- messages ---- */

typedef Inference__ModelInferRequest request_message;
typedef Inference__ModelInferRequest__InferInputTensor input_message;

static void pack_param(Inference__InferParameter *m, const proa_infer_param *p)
{
    *m = (Inference__InferParameter)INFERENCE__INFER_PARAMETER__INIT;
    switch (p->kind) {
    case PROA_PARAM_BOOL:
        m->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        m->bool_param = p->b;
        break;
    case PROA_PARAM_INT:
    case PROA_PARAM_UINT:
        m->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        m->int64_param = p->i;
        break;
    case PROA_PARAM_DOUBLE:
        m->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
        m->double_param = p->d;
        break;
    case PROA_PARAM_STRING:
        m->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        m->string_param = (char *)(uintptr_t)p->s.ptr;
        break;
    }
}

static void pack_inputs(request_message *m, const proa_infer *r, proa_arena *arena)
{
    size_t n = (size_t)r->inputs_count;
    m->n_inputs = m->n_raw_input_contents = n;
    m->inputs = PROA_ARENA_NEW(arena, input_message *, (int64_t)n);
    m->raw_input_contents = PROA_ARENA_NEW(arena, ProtobufCBinaryData, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        const proa_tensor *t = &r->inputs[i];
        input_message *in = m->inputs[i] = PROA_ARENA_NEW(arena, input_message, 1);
        *in = (input_message)INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
        in->name = (char *)(uintptr_t)t->name;
        in->datatype = (char *)(uintptr_t)proa_type_name(t->type);
        in->n_shape = (size_t)t->rank;
        in->shape = (int64_t *)(uintptr_t)t->shape;
        m->raw_input_contents[i] = (ProtobufCBinaryData){t->bytes, (uint8_t *)(uintptr_t)t->data};
    }
}

/* The request after gRPC's prefix: not compressed, 4 bytes of length. */
static void pack_request(proa_buf *out, const proa_infer *r)
{
    typedef Inference__ModelInferRequest__ParametersEntry entry;
    proa_arena arena;
    proa_arena_init(&arena);
    request_message m = INFERENCE__MODEL_INFER_REQUEST__INIT;
    m.model_name = (char *)(uintptr_t)r->model_name;
    m.id = (char *)(uintptr_t)(r->id ? r->id : "");
    pack_inputs(&m, r, &arena);
    m.n_parameters = (size_t)r->params_count;
    m.parameters = PROA_ARENA_NEW(&arena, entry *, r->params_count);
    for (int i = 0; i < r->params_count; i++) {
        entry *e = m.parameters[i] = PROA_ARENA_NEW(&arena, entry, 1);
        *e = (entry)INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
        e->key = proa_arena_strdup(&arena, r->params[i].name);
        e->value = PROA_ARENA_NEW(&arena, Inference__InferParameter, 1);
        pack_param(e->value, &r->params[i]);
    }
    size_t len = inference__model_infer_request__get_packed_size(&m);
    uint8_t prefix[HEADER_BYTES] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                                    (uint8_t)len};
    proa_buf_append(out, prefix, sizeof prefix);
    proa_buf_reserve(out, len);
    inference__model_infer_request__pack(&m, (uint8_t *)out->ptr + out->len);
    out->len += len;
    proa_arena_release(&arena);
}

/* The bytes of the output stay those of the message. */
static proa_status unpack_output(proa_tensor *t, const Inference__ModelInferResponse__InferOutputTensor *o,
                                 const ProtobufCBinaryData *raw, proa_err *err)
{
    t->type = proa_type_find(proa_str_c(o->datatype));
    if (t->type == PROA_TYPE_INVALID)
        return PROA_FAIL(err, CORRUPT, "output '%s' of the answer has the unknown datatype '%s'", o->name,
                         o->datatype);
    if (o->n_shape > PROA_COUNT(t->shape))
        return PROA_FAIL(err, LIMIT, "output '%s' of the answer has %zu dimensions, at most %zu are read",
                         o->name, o->n_shape, PROA_COUNT(t->shape));
    t->rank = (int32_t)o->n_shape;
    for (size_t d = 0; d < o->n_shape; d++) t->shape[d] = o->shape[d];
    if (!raw) return PROA_OK;
    t->data = (const char *)raw->data;
    t->bytes = raw->len;
    return PROA_OK;
}

static proa_status unpack_reply(call *c, const Inference__ModelInferResponse *m)
{
    proa_infer *r = proa_infer_new();
    proa_reply *reply = proa_reply_new(r);
    proa_status status = PROA_OK;
    reply->model_name = m->model_name;
    for (size_t i = 0; i < m->n_outputs && status == PROA_OK; i++) {
        const ProtobufCBinaryData *raw = i < m->n_raw_output_contents ? &m->raw_output_contents[i] : NULL;
        status = unpack_output(proa_reply_add(reply, m->outputs[i]->name), m->outputs[i], raw, c->err);
    }
    if (status == PROA_OK) status = c->on_reply(c->arg, reply, c->err);
    proa_reply_free(reply);
    proa_infer_drop(r);
    return status;
}

static proa_status unpack_message(call *c, const uint8_t *bytes, size_t len)
{
    proa_status status = PROA_OK;
    if (!c->stream) {
        Inference__ModelInferResponse *m = inference__model_infer_response__unpack(NULL, len, bytes);
        if (!m) return PROA_FAIL(c->err, CORRUPT, "the answer is no ModelInferResponse");
        status = unpack_reply(c, m);
        inference__model_infer_response__free_unpacked(m, NULL);
        return status;
    }
    Inference__ModelStreamInferResponse *m = inference__model_stream_infer_response__unpack(NULL, len, bytes);
    if (!m) return PROA_FAIL(c->err, CORRUPT, "the answer is no ModelStreamInferResponse");
    if (m->error_message[0]) status = PROA_FAIL(c->err, INVALID, "%s", m->error_message);
    else if (m->infer_response) status = unpack_reply(c, m->infer_response);
    inference__model_stream_infer_response__free_unpacked(m, NULL);
    return status;
}

/* Handles all complete messages. */
static proa_status take_messages(call *c)
{
    size_t at = 0;
    proa_status status = PROA_OK;
    while (status == PROA_OK && c->in.len - at >= HEADER_BYTES) {
        const uint8_t *p = (const uint8_t *)c->in.ptr + at;
        size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
        if (p[0]) return PROA_FAIL(c->err, UNSUPPORTED, "the answer is compressed, which was not requested");
        if (c->in.len - at - HEADER_BYTES < len) break;
        status = unpack_message(c, p + HEADER_BYTES, len);
        at += HEADER_BYTES + len;
    }
    memmove(c->in.ptr, c->in.ptr + at, c->in.len - at);
    c->in.len -= at;
    return status;
}

/* ---- nghttp2's callbacks ---- */

static ssize_t give_body(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    PROA_UNUSED(session), PROA_UNUSED(id), PROA_UNUSED(user);
    call *c = source->ptr;
    size_t n = c->out.len - c->sent < length ? c->out.len - c->sent : length;
    memcpy(buf, c->out.ptr + c->sent, n);
    c->sent += n;
    if (c->sent == c->out.len) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
    PROA_UNUSED(session), PROA_UNUSED(frame), PROA_UNUSED(flags);
    call *c = user;
    proa_str n = {(const char *)name, name_len};
    if (proa_str_is(n, ":status")) c->http_status = (int)strtol((const char *)value, NULL, 10);
    if (proa_str_is(n, "grpc-status")) c->grpc_status = (int)strtol((const char *)value, NULL, 10);
    if (proa_str_is(n, "grpc-message"))
        snprintf(c->message, sizeof c->message, "%.*s", (int)value_len, (const char *)value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user)
{
    PROA_UNUSED(session), PROA_UNUSED(flags), PROA_UNUSED(id);
    call *c = user;
    if (!c->failed && !proa_buf_append(&c->in, data, len))
        c->failed = (PROA_FAIL(c->err, LIMIT, "the answer is larger than %d bytes", MESSAGE_MAX), true);
    if (!c->failed) c->failed = take_messages(c) != PROA_OK;
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t error, void *user)
{
    PROA_UNUSED(session), PROA_UNUSED(id), PROA_UNUSED(error);
    ((call *)user)->closed = true;
    return 0;
}

static void start_session(call *c, const proa_target *t)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&c->session, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 24};
    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &window, 1);
    char key[512], authority[300];
    snprintf(key, sizeof key, "Bearer %s", t->api_key ? t->api_key : "");
    snprintf(authority, sizeof authority, "%s:%d", t->host, t->port);
    const char *path = c->stream ? "/inference.GRPCInferenceService/ModelStreamInfer"
                                 : "/inference.GRPCInferenceService/ModelInfer";
    const char *const pairs[][2] = {{":method", "POST"},   {":scheme", t->tls ? "https" : "http"},
                                    {":path", path},       {":authority", authority},
                                    {"te", "trailers"},    {"content-type", "application/grpc"},
                                    {"authorization", key}};
    nghttp2_nv headers[PROA_COUNT(pairs)];
    size_t count = PROA_COUNT(pairs) - (t->api_key == NULL);
    for (size_t i = 0; i < count; i++)
        headers[i] = (nghttp2_nv){(uint8_t *)(uintptr_t)pairs[i][0], (uint8_t *)(uintptr_t)pairs[i][1],
                                  strlen(pairs[i][0]), strlen(pairs[i][1]), NGHTTP2_NV_FLAG_NONE};
    nghttp2_data_provider body = {.source.ptr = c, .read_callback = give_body};
    nghttp2_submit_request(c->session, NULL, headers, count, &body, c);
}

static proa_status send_all(call *c)
{
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(c->session, &bytes)) > 0)
        PROA_TRY(proa_wire_write(c->wire, (const char *)bytes, (size_t)n, c->err));
    return n < 0 ? PROA_FAIL(c->err, INTERNAL, "HTTP/2: %s", nghttp2_strerror((int)n)) : PROA_OK;
}

static proa_status run_call(call *c)
{
    char bytes[64 << 10];
    while (!c->closed && !c->failed) {
        size_t got;
        PROA_TRY(send_all(c));
        PROA_TRY(proa_wire_read(c->wire, bytes, sizeof bytes, &got, c->err));
        if (got == 0)
            return PROA_FAIL(c->err, UNAVAILABLE, "the server closed the connection within an answer");
        ssize_t n = nghttp2_session_mem_recv(c->session, (const uint8_t *)bytes, got);
        if (n < 0) return PROA_FAIL(c->err, UNAVAILABLE, "HTTP/2: %s", nghttp2_strerror((int)n));
    }
    if (c->failed) return c->err ? c->err->status : PROA_INTERNAL;
    if (c->grpc_status > 0)
        return PROA_FAIL(c->err, INVALID, "gRPC status %d: %s", c->grpc_status, c->message);
    if (c->grpc_status < 0)
        return PROA_FAIL(c->err, UNAVAILABLE, "no gRPC status came (HTTP %d)", c->http_status);
    return PROA_OK;
}

proa_status proa_client_grpc(const proa_target *t, const proa_infer *request, bool stream,
                             proa_grpc_reply_fn *on_reply, void *arg, proa_err *err)
{
    call c = {.stream = stream, .grpc_status = -1, .on_reply = on_reply, .arg = arg, .err = err};
    proa_buf_init(&c.out, MESSAGE_MAX);
    proa_buf_init(&c.in, MESSAGE_MAX);
    pack_request(&c.out, request);
    proa_status status = proa_wire_open(&c.wire, t, true, err);
    if (status == PROA_OK) {
        start_session(&c, t);
        status = run_call(&c);
        nghttp2_session_del(c.session);
    }
    proa_wire_close(c.wire);
    proa_buf_release(&c.out);
    proa_buf_release(&c.in);
    return status;
}
