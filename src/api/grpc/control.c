/* SPDX-License-Identifier: Apache-2.0
 * control.c - loading and unloading models, on a thread that may wait. The message is read by hand: it may bring a
 * model's files, which stay where they are in it. */
#include "api/control.h"
#include "api/grpc/pb_wire.h"
#include "api/grpc/service.h"

static void answer_call(proa_model_control *c, const proa_err *err)
{
    proa_grpc_call *call = c->client;
    if (err->status != PROA_OK) {
        proa_grpc_fail(call, err);
        return;
    }
    proa_grpc_send(call, NULL, 0, NULL, NULL); /* both answers have no fields */
    proa_grpc_finish(call, PROA_GRPC_OK, (proa_str){"", 0}, NULL, 0);
}

static void on_disconnect(proa_grpc_call *call)
{
    proa_model_control *c = call->user;
    c->client = NULL;
}

/* ---- the message ---- */

typedef struct entry { /* of the map of parameters */
    proa_str key, text, bytes;
    bool flag;
    int kind; /* number of the field of ModelRepositoryParameter; 0: none */
} entry;

enum { BOOL_PARAM = 1, STRING_PARAM = 3, BYTES_PARAM = 4 };

static bool read_choice(entry *e, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    while (pb_next(&in, &f)) {
        if (f.number > BYTES_PARAM) continue;
        e->kind = (int)f.number;
        if (pb_is(&f, BOOL_PARAM, PB_VARINT)) e->flag = f.u != 0;
        else if (pb_is(&f, STRING_PARAM, PB_BYTES)) e->text = f.bytes;
        else if (pb_is(&f, BYTES_PARAM, PB_BYTES)) e->bytes = f.bytes;
    }
    return !in.bad;
}

static bool read_entry(entry *e, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    bool ok = true;
    *e = (entry){.key = {"", 0}};
    while (ok && pb_next(&in, &f)) {
        if (pb_is(&f, 1, PB_BYTES)) e->key = f.bytes;
        else if (pb_is(&f, 2, PB_BYTES)) ok = read_choice(e, f.bytes);
    }
    return ok && !in.bad;
}

static proa_status wrong_kind(const entry *e, const char *expected, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "invalid value type for load parameter '%.*s', expected %s.",
                     (int)e->key.len, e->key.ptr, expected);
}

static proa_status load_param(proa_model_control *c, const entry *e, proa_err *err)
{
    if (proa_str_is(e->key, "config")) {
        if (e->kind != STRING_PARAM) return wrong_kind(e, "string_param", err);
        if (proa_str_has_nul(e->text)) return PROA_FAIL(err, INVALID, "the configuration has a NUL byte");
        c->config = proa_arena_strdup(&c->arena, e->text);
        return PROA_OK;
    }
    if (proa_str_starts(e->key, (proa_str){"file:", 5})) {
        if (e->kind != BYTES_PARAM) return wrong_kind(e, "bytes_param", err);
        if (c->files_count == PROA_PARAMS_PER_REQUEST_MAX)
            return PROA_FAIL(err, LIMIT, "more than %d files for model '%s'", PROA_PARAMS_PER_REQUEST_MAX,
                             c->model);
        proa_model_control_add_file(c, e->key, e->bytes);
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "unrecognized load parameter '%.*s'.", (int)e->key.len, e->key.ptr);
}

static proa_status unload_param(proa_model_control *c, const entry *e, proa_err *err)
{
    if (!proa_str_is(e->key, "unload_dependents")) return PROA_OK;
    if (e->kind != BOOL_PARAM)
        return PROA_FAIL(err, INVALID,
                         "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    c->dependents = e->flag;
    return PROA_OK;
}

static proa_status read_message(proa_model_control *c, proa_str bytes, proa_err *err)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    bool nul = false, repository = false;
    while (pb_next(&in, &f)) {
        entry e;
        if (pb_is(&f, 1, PB_BYTES)) repository = f.bytes.len > 0;
        else if (pb_is(&f, 2, PB_BYTES)) {
            c->model = proa_arena_strdup(&c->arena, f.bytes);
            nul |= proa_str_has_nul(f.bytes);
        }
        if (!pb_is(&f, 3, PB_BYTES)) continue;
        if (!read_entry(&e, f.bytes)) return PROA_FAIL(err, INVALID, "malformed parameter");
        PROA_TRY(c->load ? load_param(c, &e, err) : unload_param(c, &e, err));
    }
    if (in.bad) return PROA_FAIL(err, INVALID, "malformed message");
    if (nul) return PROA_FAIL(err, INVALID, "the model's name has a NUL byte");
    if (repository) return PROA_FAIL(err, UNSUPPORTED, "'repository_name' specification is not supported");
    return PROA_OK;
}

static void on_message(proa_grpc_call *call, proa_str bytes, bool load)
{
    proa_api *api = call->user;
    proa_err err = {.status = PROA_OK};
    proa_model_control *c = proa_model_control_new(api, load);
    proa_status status = read_message(c, bytes, &err);
    if (status == PROA_OK) {
        c->message = proa_rpc_take(call, bytes.len);
        c->client = call;
        c->answer = answer_call;
        status = proa_model_control_start(c, proa_conn_loop(call->conn), &err);
    }
    if (status != PROA_OK) {
        proa_model_control_free(c);
        proa_grpc_fail(call, &err);
        return;
    }
    call->user = c;
    call->on_message = NULL; /* the first one counts */
    call->on_half_close = NULL;
    call->on_disconnect = on_disconnect;
}

static void on_load(proa_grpc_call *call, proa_str bytes)
{
    on_message(call, bytes, true);
}

static void on_unload(proa_grpc_call *call, proa_str bytes)
{
    on_message(call, bytes, false);
}

static void start_load(proa_api *api, proa_grpc_call *call)
{
    call->user = api;
    call->on_message = on_load;
}

static void start_unload(proa_api *api, proa_grpc_call *call)
{
    call->user = api;
    call->on_message = on_unload;
}

const proa_rpc proa_rpc_control[] = {
    {.path = "/inference.GRPCInferenceService/RepositoryModelLoad",
     .category = PROA_CATEGORY_MODEL_REPOSITORY,
     .start = start_load},
    {.path = "/inference.GRPCInferenceService/RepositoryModelUnload",
     .category = PROA_CATEGORY_MODEL_REPOSITORY,
     .start = start_unload},
    {.path = NULL},
};
