/* SPDX-License-Identifier: Apache-2.0
 * cmd_client.c - `proa client`: one request to any server that speaks KServe v2 or OpenAI's API, and its answer. */
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/client/client.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "tensor/dtype.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct client_options {
    const char *model, *text, *url, *api, *api_key, *ca, *id;
    proa_arg_list inputs, params;
    int64_t timeout_s, max_tokens;
    bool stream, json;
} client_options;

#define AT(field) offsetof(client_options, field)
static const proa_arg client_rows[] = {
    {"MODEL", PROA_ARG_OPERAND, AT(model), .help = "name of the model on the server"},
    {"[TEXT]", PROA_ARG_OPERAND, AT(text), .help = "prompt"},
    {"url", PROA_ARG_TEXT, AT(url), 0, 0, "URL", "http://localhost:8000",
     "http://, https://, grpc://, grpcs:// host:port, or unix:PATH"},
    {"endpoint-type", PROA_ARG_CHOICE, AT(api), 0, 0, "auto|infer|generate|completions|chat", "auto",
     "endpoint to use; auto: generate for a TEXT, infer for --input"},
    {"input", PROA_ARG_LIST, AT(inputs), 0, 0, "NAME=TYPE[SHAPE]:VALUES", NULL,
     "input tensor: INPUT0=INT32[1,4]:1,2,3,4"},
    {"param", PROA_ARG_LIST, AT(params), 0, 0, "NAME=VALUE", NULL, "request parameter: temperature=0.7"},
    {"max-tokens", PROA_ARG_INT, AT(max_tokens), 0, INT32_MAX, "N", "0", "new tokens; 0: the model's default"},
    {"stream", PROA_ARG_FLAG, AT(stream), 0, 0, NULL, NULL, "print the text while it is generated"},
    {"request-id", PROA_ARG_TEXT, AT(id), 0, 0, "ID", NULL, "id that the response repeats"},
    {"api-key", PROA_ARG_TEXT, AT(api_key), 0, 0, "KEY", NULL, "sent as a bearer token"},
    {"ca", PROA_ARG_TEXT, AT(ca), 0, 0, "FILE", NULL, "PEM file of trusted CAs; default: those of the system"},
    {"timeout", PROA_ARG_INT, AT(timeout_s), 1, 86400, "S", "60", "seconds to wait for the next data"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print the response as the server sent it"},
};
#undef AT
static const proa_arg_table client_args = PROA_ARG_TABLE("options", client_rows);

typedef struct session {
    const client_options *o;
    proa_target target;
    proa_output out;
    proa_buf body;   /* the response body: complete, or the current incomplete event */
    bool text_shown; /* streamed text has no newline at its end yet */
    proa_buf *later; /* a stream of several texts: all but the first, which is printed as it arrives */
    int64_t later_count;
    int status;
} session;

/* ---- showing ---- */

/* How many texts an answer of generate or OpenAI has, whole or one event of a stream. */
static int64_t texts_in(proa_json *answer)
{
    proa_json *text = proa_json_get(answer, "text_output");
    if (!text) return proa_json_len(proa_json_get(answer, "choices"));
    return proa_json_kind(text) == PROA_JSON_ARRAY ? proa_json_len(text) : 1;
}

static proa_str text_at(proa_json *answer, int64_t i)
{
    proa_json *text = proa_json_get(answer, "text_output");
    proa_json *choice = proa_json_at(proa_json_get(answer, "choices"), i);
    if (proa_json_kind(text) == PROA_JSON_ARRAY) text = proa_json_at(text, i);
    if (!text) text = proa_json_get(choice, "text");
    if (!text) text = proa_json_get(proa_json_get(choice, "delta"), "content");
    if (!text) text = proa_json_get(proa_json_get(choice, "message"), "content");
    return proa_json_str(text);
}

/* The index of the text that an event of a stream continues. */
static int64_t index_at(proa_json *answer, int64_t i)
{
    proa_json *choice = proa_json_at(proa_json_get(answer, "choices"), i);
    proa_json *index = choice ? proa_json_get(choice, "index") : proa_json_get(answer, "sequence_index");
    return proa_json_kind(index) == PROA_JSON_INT ? proa_json_int(index) : 0;
}

static proa_status error_in(proa_json *answer, int status, proa_err *err)
{
    proa_json *error = proa_json_get(answer, "error");
    proa_json *message = proa_json_kind(error) == PROA_JSON_OBJECT ? proa_json_get(error, "message") : error;
    proa_str text = proa_json_str(message);
    if (!error && status < 400) return PROA_OK;
    if (!error) return PROA_FAIL(err, INVALID, "HTTP %d", status);
    return PROA_FAIL(err, INVALID, "HTTP %d: %.*s", status, (int)text.len, text.ptr);
}

/* Prints the i-th of several texts on its own line, as `proa run` does; a single text may be the next part
 * of a stream. */
static void show_text(session *s, proa_str text, int64_t i, int64_t count)
{
    if (count > 1) proa_output_printf(&s->out, "--- %lld ---\n", (long long)i + 1);
    proa_output_text(&s->out, text);
    if (count > 1) proa_output_str(&s->out, "\n");
    else s->text_shown |= text.len > 0;
}

/* The next piece of the index-th text. */
static proa_status show_piece(session *s, proa_str text, int64_t index, proa_err *err)
{
    if (index <= 0) {
        show_text(s, text, 0, 1);
        return PROA_OK;
    }
    if (index >= PROA_OPENAI_CHOICES_MAX)
        return PROA_FAIL(err, LIMIT, "the answer has more than %d texts", PROA_OPENAI_CHOICES_MAX);
    if (index > s->later_count) {
        s->later = proa_realloc(s->later, (size_t)index * sizeof *s->later);
        while (s->later_count < index)
            proa_buf_init(&s->later[s->later_count++], (size_t)4 * PROA_HTTP_BODY_MAX);
    }
    if (!proa_buf_append(&s->later[index - 1], text.ptr, text.len))
        return PROA_FAIL(err, LIMIT, "the answer is too large");
    return PROA_OK;
}

/* After a stream: ends its text and prints the other ones. */
static void show_rest(session *s)
{
    if (s->text_shown) proa_output_str(&s->out, "\n");
    for (int64_t i = 0; i < s->later_count; i++) {
        show_text(s, proa_buf_view(&s->later[i]), i + 1, s->later_count + 1);
        proa_buf_release(&s->later[i]);
    }
    free(s->later);
}

/* With nine digits if they are enough, as for any float32. */
static void show_double(proa_output *out, double d)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", d);
    proa_output_printf(out, strtod(digits, NULL) == d ? "%.9g" : "%.17g", d);
}

static void show_value(proa_output *out, proa_json *v)
{
    proa_output_str(out, " ");
    switch (proa_json_kind(v)) {
    case PROA_JSON_STRING: proa_output_json_str(out, proa_json_str(v)); break;
    case PROA_JSON_BOOL: proa_output_str(out, proa_json_bool(v) ? "true" : "false"); break;
    case PROA_JSON_DOUBLE: show_double(out, proa_json_double(v)); break;
    case PROA_JSON_INT:
        if (proa_json_int(v) < 0) proa_output_printf(out, "%lld", (long long)proa_json_int(v));
        else proa_output_printf(out, "%llu", (unsigned long long)proa_json_uint(v));
        break;
    default: proa_output_str(out, "null"); break;
    }
}

/* The response of generate for a model without text, such as an encoder: its outputs, one per line. */
static void show_members(proa_output *out, proa_json *answer)
{
    for (proa_json_iter it = proa_json_begin(answer); proa_json_next(&it);) {
        if (proa_str_is(it.key, "model_name") || proa_str_is(it.key, "model_version") ||
            proa_str_is(it.key, "id"))
            continue;
        bool list = proa_json_kind(it.value) == PROA_JSON_ARRAY;
        proa_output_text(out, it.key);
        proa_output_str(out, ":");
        for (int64_t i = 0; i < (list ? proa_json_len(it.value) : 1); i++)
            show_value(out, list ? proa_json_at(it.value, i) : it.value);
        proa_output_str(out, "\n");
    }
}

static void show_json_tensor(proa_output *out, proa_json *o)
{
    proa_str name = proa_json_str(proa_json_get(o, "name")),
             type = proa_json_str(proa_json_get(o, "datatype"));
    proa_output_text(out, name);
    proa_output_str(out, " ");
    proa_output_text(out, type);
    proa_output_str(out, " [");
    proa_json *shape = proa_json_get(o, "shape"), *data = proa_json_get(o, "data");
    for (int64_t i = 0; i < proa_json_len(shape); i++)
        proa_output_printf(out, "%s%lld", i ? "," : "", (long long)proa_json_int(proa_json_at(shape, i)));
    proa_output_str(out, "]:");
    for (int64_t i = 0; i < proa_json_len(data); i++) show_value(out, proa_json_at(data, i));
    proa_output_str(out, "\n");
}

static proa_status show_json(session *s, proa_json *answer, proa_err *err)
{
    proa_json *outputs = proa_json_get(answer, "outputs");
    int64_t texts = texts_in(answer);
    bool pieces = s->o->stream && texts == 1;
    if (pieces) PROA_TRY(show_piece(s, text_at(answer, 0), index_at(answer, 0), err));
    for (int64_t i = 0; i < texts && !pieces; i++) show_text(s, text_at(answer, i), i, texts);
    for (int64_t i = 0; i < proa_json_len(outputs); i++) show_json_tensor(&s->out, proa_json_at(outputs, i));
    if (!outputs && !texts && !proa_json_get(answer, "choices")) show_members(&s->out, answer);
    return PROA_OK;
}

static proa_status show_answer(session *s, proa_str body, bool event, proa_err *err)
{
    if (s->o->json) {
        proa_output_text(&s->out, body);
        proa_output_str(&s->out, "\n");
        if (event) return PROA_OK;
    }
    proa_json *answer = NULL;
    PROA_TRY(proa_json_parse(&answer, body, "the answer", err));
    proa_status status = error_in(answer, s->status, err);
    if (status == PROA_OK && !s->o->json) {
        status = show_json(s, answer, err);
        if (event) proa_output_flush(&s->out);
    }
    proa_json_free(answer);
    return status;
}

static proa_status show_event(void *arg, proa_str data, proa_err *err)
{
    return show_answer(arg, data, true, err);
}

static proa_status on_body(void *arg, int status, proa_str bytes, proa_err *err)
{
    session *s = arg;
    s->status = status;
    if (!proa_buf_append(&s->body, bytes.ptr, bytes.len))
        return PROA_FAIL(err, LIMIT, "the answer is too large");
    return s->o->stream && status < 400 ? proa_client_events(&s->body, show_event, s, err) : PROA_OK;
}

/* ---- asking ---- */

static void json_param(proa_buf *out, const proa_infer_param *p)
{
    switch (p->kind) {
    case PROA_PARAM_BOOL: proa_buf_printf(out, "%s", p->b ? "true" : "false"); break;
    case PROA_PARAM_INT:
    case PROA_PARAM_UINT: proa_buf_printf(out, "%lld", (long long)p->i); break;
    case PROA_PARAM_DOUBLE: proa_buf_printf(out, "%.17g", p->d); break;
    case PROA_PARAM_STRING: proa_buf_json_str(out, p->s); break;
    }
}

static void json_params(proa_buf *out, const proa_infer *r)
{
    for (int i = 0; i < r->params_count; i++) {
        proa_buf_char(out, ',');
        proa_buf_json_str(out, r->params[i].name);
        proa_buf_char(out, ':');
        json_param(out, &r->params[i]);
    }
}

static const char *generate_body(proa_buf *out, const session *s, const proa_infer *r, proa_arena *arena)
{
    proa_buf_printf(out, "{\"text_input\":");
    proa_buf_json_str(out, proa_str_c(s->o->text));
    if (s->o->stream) proa_buf_printf(out, ",\"stream\":true");
    json_params(out, r);
    proa_buf_char(out, '}');
    return proa_arena_printf(arena, "/v2/models/%s/generate%s", s->o->model, s->o->stream ? "_stream" : "");
}

static const char *openai_body(proa_buf *out, const session *s, const proa_infer *r, bool chat)
{
    proa_buf_printf(out, "{\"model\":");
    proa_buf_json_str(out, proa_str_c(s->o->model));
    proa_buf_printf(out, chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    proa_buf_json_str(out, proa_str_c(s->o->text));
    if (chat) proa_buf_printf(out, "}]");
    if (s->o->stream) proa_buf_printf(out, ",\"stream\":true");
    json_params(out, r);
    proa_buf_char(out, '}');
    return chat ? "/v1/chat/completions" : "/v1/completions";
}

/* JSON has no NaN and no infinities: they are texts, as in the JSON form of protobuf. */
static void json_float(proa_buf *out, double d, int digits)
{
    if (isfinite(d)) proa_buf_printf(out, "%.*g", digits, d);
    else proa_buf_printf(out, isnan(d) ? "\"NaN\"" : d > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

static void json_element(proa_buf *out, const proa_tensor *t, int64_t i)
{
    enum { DIGITS_32 = 9, DIGITS_64 = 17 }; /* give the same number back */
    const char *p = t->data + i * proa_type_bytes(t->type);
    union {
        uint16_t half;
        float f;
        double d;
        int8_t i8;
        int16_t i16;
        int32_t i32;
        uint64_t u;
    } v = {.u = 0};
    memcpy(&v, p, (size_t)proa_type_bytes(t->type));
    switch (t->type) {
    case PROA_TYPE_BOOL: proa_buf_printf(out, "%s", *p ? "true" : "false"); return;
    case PROA_TYPE_FP16: json_float(out, (double)proa_f16_to_f32(v.half), DIGITS_32); return;
    case PROA_TYPE_BF16: json_float(out, (double)proa_bf16_to_f32(v.half), DIGITS_32); return;
    case PROA_TYPE_FP32: json_float(out, (double)v.f, DIGITS_32); return;
    case PROA_TYPE_FP64: json_float(out, v.d, DIGITS_64); return;
    case PROA_TYPE_INT8: proa_buf_printf(out, "%d", v.i8); return;
    case PROA_TYPE_INT16: proa_buf_printf(out, "%d", v.i16); return;
    case PROA_TYPE_INT32: proa_buf_printf(out, "%d", v.i32); return;
    case PROA_TYPE_INT64: proa_buf_printf(out, "%lld", (long long)v.u); return;
    default: proa_buf_printf(out, "%llu", (unsigned long long)v.u); return;
    }
}

static void json_tensor(proa_buf *out, const proa_tensor *t)
{
    proa_buf_printf(out, "{\"name\":");
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ",\"datatype\":\"%s\",\"shape\":", proa_type_name(t->type));
    proa_shape_print(out, t->shape, t->rank);
    proa_buf_printf(out, ",\"data\":[");
    proa_str element;
    size_t at = 0;
    int64_t count = t->type == PROA_TYPE_BYTES ? 0 : (int64_t)t->bytes / proa_type_bytes(t->type);
    for (int64_t i = 0; i < count; i++) {
        if (i) proa_buf_char(out, ',');
        json_element(out, t, i);
    }
    while (t->type == PROA_TYPE_BYTES && proa_tensor_next_string(t, &at, &element)) {
        if (count++) proa_buf_char(out, ',');
        proa_buf_json_str(out, element);
    }
    proa_buf_printf(out, "]}");
}

static const char *infer_body(proa_buf *out, const session *s, const proa_infer *r, proa_arena *arena)
{
    proa_buf_printf(out, "{\"id\":");
    proa_buf_json_str(out, proa_str_c(r->id));
    proa_buf p;
    proa_buf_init(&p, (size_t)PROA_MIB);
    json_params(&p, r);
    if (p.len) proa_buf_printf(out, ",\"parameters\":{%s}", p.ptr + 1);
    proa_buf_release(&p);
    proa_buf_printf(out, ",\"inputs\":[");
    for (int i = 0; i < r->inputs_count; i++) {
        if (i) proa_buf_char(out, ',');
        json_tensor(out, &r->inputs[i]);
    }
    proa_buf_printf(out, "]}");
    return proa_arena_printf(arena, "/v2/models/%s/infer", s->o->model);
}

static const char *api_of(const client_options *o)
{
    if (strcmp(o->api, "auto") != 0) return o->api;
    return o->inputs.count ? "infer" : "generate";
}

static proa_status send_http(session *s, proa_infer *r, proa_err *err)
{
    proa_buf body;
    const char *api = api_of(s->o), *path;
    proa_buf_init(&body, (size_t)4 * PROA_HTTP_BODY_MAX);
    if (strcmp(api, "generate") == 0) path = generate_body(&body, s, r, &r->arena);
    else if (strcmp(api, "infer") == 0) path = infer_body(&body, s, r, &r->arena);
    else path = openai_body(&body, s, r, strcmp(api, "chat") == 0);
    proa_status status = proa_client_http(&s->target, "POST", path, proa_buf_view(&body), on_body, s, err);
    bool whole = !s->o->stream || s->status >= 400;
    if (status == PROA_OK && whole) status = show_answer(s, proa_buf_view(&s->body), false, err);
    proa_buf_release(&body);
    return status;
}

static int64_t index_of(const proa_reply *reply)
{
    const proa_tensor *t = proa_reply_output(reply, "sequence_index");
    int32_t index = 0;
    if (t && t->type == PROA_TYPE_INT32 && t->bytes == sizeof index) memcpy(&index, t->data, sizeof index);
    return index;
}

static proa_status show_texts(session *s, const proa_tensor *text, int64_t index, proa_err *err)
{
    proa_str element;
    size_t at = 0;
    int64_t shown = 0, count = 0;
    proa_status status = PROA_OK;
    while (proa_tensor_next_string(text, &at, &element)) count++;
    for (at = 0; status == PROA_OK && proa_tensor_next_string(text, &at, &element); shown++)
        if (s->o->stream && count == 1) status = show_piece(s, element, index, err);
        else show_text(s, element, shown, count);
    proa_output_flush(&s->out);
    return status;
}

static proa_status on_reply(void *arg, const proa_reply *reply, proa_err *err)
{
    session *s = arg;
    const proa_tensor *text = proa_reply_output(reply, "text_output");
    if (text && !s->o->json) return show_texts(s, text, index_of(reply), err);
    proa_buf line;
    proa_buf_init(&line, (size_t)4 * PROA_HTTP_BODY_MAX);
    proa_buf_printf(&line, "{\"outputs\":[");
    for (int i = 0; i < reply->outputs_count; i++) {
        if (i) proa_buf_char(&line, ',');
        json_tensor(&line, &reply->outputs[i]);
    }
    proa_buf_printf(&line, "]}");
    proa_status status = show_answer(s, proa_buf_view(&line), false, err);
    proa_buf_release(&line);
    return status;
}

static proa_status send_grpc(session *s, proa_infer *r, proa_err *err)
{
    if (s->o->text) {
        proa_buf typed;
        proa_buf_init(&typed, (size_t)PROA_TEXT_BYTES_MAX);
        proa_tensor *t = proa_infer_add_input(r, proa_str_c("text_input"));
        uint32_t len = (uint32_t)strlen(s->o->text);
        proa_buf_append(&typed, &len, 4);
        proa_buf_append(&typed, s->o->text, len);
        t->type = PROA_TYPE_BYTES, t->rank = 1, t->shape[0] = 1, t->bytes = typed.len;
        char *kept = proa_arena_alloc(&r->arena, typed.len);
        memcpy(kept, typed.ptr, typed.len);
        t->data = kept;
        proa_buf_release(&typed);
    }
    if (s->o->stream) PROA_TRY(proa_client_param(r, "stream=true", err));
    return proa_client_grpc(&s->target, r, s->o->stream, on_reply, s, err);
}

static proa_status fill_request(proa_infer *r, const client_options *o, proa_err *err)
{
    r->model_name = o->model;
    r->id = o->id ? o->id : "";
    if (!o->text && !o->inputs.count)
        return PROA_FAIL(err, INVALID, "nothing to ask: give a TEXT or --input");
    if (o->text && o->inputs.count) return PROA_FAIL(err, INVALID, "a TEXT and --input do not go together");
    for (int i = 0; i < o->inputs.count; i++) PROA_TRY(proa_client_input(r, o->inputs.items[i], err));
    for (int i = 0; i < o->params.count; i++) PROA_TRY(proa_client_param(r, o->params.items[i], err));
    if (o->max_tokens == 0) return PROA_OK;
    return proa_client_param(r, proa_arena_printf(&r->arena, "max_tokens=%lld", (long long)o->max_tokens), err);
}

/* Whether a stream has several texts; the first one is printed before the others are known. */
static bool asks_for_several(const proa_infer *r)
{
    for (int i = 0; i < r->params_count; i++)
        if (proa_str_is(r->params[i].name, "n"))
            return r->params[i].kind == PROA_PARAM_INT && r->params[i].i > 1;
    return false;
}

static proa_status send_request(session *s, proa_err *err)
{
    bool grpc = false;
    s->target = (proa_target){
        .api_key = s->o->api_key, .ca = s->o->ca, .timeout_ms = (int)(1000 * s->o->timeout_s)};
    PROA_TRY(proa_target_parse(&s->target, &grpc, s->o->url, err));
    PROA_TRY(proa_output_open(&s->out, NULL, err));
    proa_buf_init(&s->body, (size_t)4 * PROA_HTTP_BODY_MAX);
    proa_infer *r = proa_infer_new();
    proa_status status = fill_request(r, s->o, err);
    if (s->o->stream && !s->o->json && asks_for_several(r)) proa_output_str(&s->out, "--- 1 ---\n");
    if (status == PROA_OK) status = grpc ? send_grpc(s, r, err) : send_http(s, r, err);
    show_rest(s);
    proa_infer_drop(r);
    proa_buf_release(&s->body);
    proa_status closed = proa_output_close(&s->out, err);
    return status == PROA_OK ? closed : status;
}

static int client_command(const proa_command *self, int argc, char **argv)
{
    static client_options o;
    session s = {.o = &o};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    return send_request(&s, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const client_tables[] = {&client_args, NULL};
const proa_command proa_cmd_client = {
    .name = "client",
    .summary = "send one request to a running server and print the response",
    .examples = "  proa client classics-10m \"It was a dark night\" --max-tokens 32 --stream\n"
                "  proa client classics-10m \"It was\" --endpoint-type completions --param temperature=0.7\n"
                "  proa client classics-10m \"It was\" --url grpc://localhost:8001\n"
                "  proa client simple --input INPUT0=INT32[1,4]:1,2,3,4 --input INPUT1=INT32[1,4]:5,6,7,8\n",
    .tables = client_tables,
    .run = client_command,
};
