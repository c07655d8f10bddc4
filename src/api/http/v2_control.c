/* SPDX-License-Identifier: Apache-2.0
 * v2_control.c - the model repository routes: index, load, unload. */
#include "api/control.h"
#include "api/http/v2.h"
#include <string.h>

enum { JSON_BYTES_MAX = 256 << 20 };

/* ---- index ---- */

static proa_status read_index(proa_jread *j, bool *ready, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return proa_jread_finish(j, err);
        if (!proa_str_is(key, "ready")) {
            PROA_TRY(proa_jread_skip(j, err));
            continue;
        }
        if (proa_jread_peek(j) != PROA_JREAD_BOOL)
            return PROA_FAIL(err, INVALID, "Invalid value for 'ready': expected a boolean");
        PROA_TRY(proa_jread_bool(j, ready, err));
    }
}

static void put_optional(proa_buf *out, const char *name, const char *value)
{
    if (!value[0]) return;
    proa_buf_printf(out, ",\"%s\":", name);
    proa_buf_json_str(out, proa_str_c(value));
}

void proa_v2_index(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    proa_jread j;
    bool ready = false;
    Inference__RepositoryIndexResponse *reply;
    proa_buf out;
    PROA_UNUSED(path); /* the repository's name is passed over here, as in Triton */
    if ((proa_v2_body(api, x, &j) && read_index(&j, &ready, &err) != PROA_OK) ||
        proa_server_index(api->server, ready, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_char(&out, '[');
    for (size_t i = 0; i < reply->n_models; i++) {
        const Inference__RepositoryIndexResponse__ModelIndex *m = reply->models[i];
        proa_buf_printf(&out, i ? ",{\"name\":" : "{\"name\":");
        proa_buf_json_str(&out, proa_str_c(m->name));
        put_optional(&out, "version", m->version);
        put_optional(&out, "state", m->state);
        put_optional(&out, "reason", m->reason);
        proa_buf_char(&out, '}');
    }
    proa_buf_char(&out, ']');
    proa_http_json(x, 200, &out);
}

/* ---- load and unload: on a thread that may wait ---- */

static void answer_exchange(proa_model_control *c, const proa_err *err)
{
    proa_http_exchange *x = c->client;
    if (err->status == PROA_OK)
        proa_http_respond(x, 200, proa_str_c("Content-Type: application/json\r\n"), (proa_http_body){0});
    else proa_http_fail(c->api, x, err);
}

static void on_disconnect(proa_http_exchange *x)
{
    proa_model_control *c = x->user;
    c->client = NULL;
}

/* Line breaks are passed over; "=" ends it. */
static proa_status decode_base64(proa_arena *arena, proa_str in, proa_str *out, const char *name, proa_err *err)
{
    char *bytes = proa_arena_alloc(arena, in.len / 4 * 3 + 3);
    size_t n = 0;
    uint32_t bits = 0;
    int have = 0;
    for (size_t i = 0; i < in.len && in.ptr[i] != '='; i++) {
        if (in.ptr[i] == '\n' || in.ptr[i] == '\r') continue;
        int digit = proa_base64_digit(in.ptr[i]);
        if (digit < 0) return PROA_FAIL(err, INVALID, "'%s' must be a valid base64 encoded string", name);
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        bytes[n++] = (char)(bits >> have & 0xff);
    }
    *out = (proa_str){bytes, n};
    return PROA_OK;
}

static proa_status add_file(proa_model_control *c, const char *key, proa_str text, proa_err *err)
{
    proa_str bytes;
    PROA_TRY(decode_base64(&c->arena, text, &bytes, key, err));
    proa_model_control_add_file(c, proa_str_c(key), bytes);
    return PROA_OK;
}

static proa_status load_param(proa_model_control *c, proa_jread *j, proa_str name, proa_err *err)
{
    proa_str text;
    if (proa_str_has_nul(name)) return PROA_FAIL(err, INVALID, "the name of a parameter has a NUL byte");
    const char *key = proa_arena_strdup(&c->arena, name);
    PROA_TRY(proa_jread_name(j, "", &text, err));
    if (strcmp(key, "config") == 0) c->config = proa_arena_strdup(&c->arena, text);
    else if (strncmp(key, "file:", 5) == 0) return add_file(c, key, text, err);
    else return PROA_FAIL(err, INTERNAL, "unexpected error on creating Triton parameter");
    return PROA_OK;
}

static proa_status unload_param(proa_model_control *c, proa_jread *j, proa_str name, proa_err *err)
{
    if (!proa_str_is(name, "unload_dependents")) return proa_jread_skip(j, err);
    return proa_jread_flag(j, "Unable to parse 'unload_dependents'", &c->dependents, err);
}

static proa_status read_params(proa_model_control *c, proa_jread *j, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return PROA_OK;
        if (c->load) PROA_TRY(load_param(c, j, key, err));
        else PROA_TRY(unload_param(c, j, key, err));
    }
}

static proa_status read_control(proa_model_control *c, proa_jread *j, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return proa_jread_finish(j, err);
        if (proa_str_is(key, "parameters")) PROA_TRY(read_params(c, j, err));
        else PROA_TRY(proa_jread_skip(j, err));
    }
}

static proa_status begin_control(proa_model_control *c, proa_http_exchange *x, const proa_v2_path *path,
                                 proa_err *err)
{
    proa_jread j;
    if (path->repository[0])
        return PROA_FAIL(err, UNSUPPORTED, "'repository_name' specification is not supported");
    if (proa_v2_body(c->api, x, &j)) PROA_TRY(read_control(c, &j, err));
    return PROA_OK;
}

static void start_control(proa_api *api, proa_http_exchange *x, const proa_v2_path *path, bool load)
{
    proa_err err = {.status = PROA_OK};
    proa_model_control *c = proa_model_control_new(api, load);
    c->model = proa_arena_strdup(&c->arena, proa_str_c(path->model));
    c->client = x;
    c->answer = answer_exchange;
    if (begin_control(c, x, path, &err) != PROA_OK ||
        proa_model_control_start(c, proa_http_loop(x), &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        proa_model_control_free(c);
        return;
    }
    x->user = c;
    proa_http_on_disconnect(x, on_disconnect);
}

void proa_v2_load(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    start_control(api, x, path, true);
}

void proa_v2_unload(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    start_control(api, x, path, false);
}
