/* SPDX-License-Identifier: Apache-2.0
 * grpc_control.c - loading and unloading models, on a thread that may wait. The message is read by hand: it may bring a
 * model's files, which stay where they are in it. */
#include "api/grpc/service.h"

#include "api/grpc/pb_wire.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

/* From the message until the model is there; outlives a call whose client goes away, as what was begun is ended. */
typedef struct control {
    proa_work work; /* first */
    proa_api *api;
    proa_grpc_call *call; /* NULL: the client has gone */
    proa_arena arena;
    proa_buffer *message;
    bool load, dependents;
    const char *model, *config;
    bool repository; /* a repository was named */
    proa_model_file *files;
    int files_count, files_cap;
    proa_status status;
    proa_err err;
} control;

static void control_free(control *c)
{
    proa_buffer_drop(c->message);
    proa_arena_release(&c->arena);
    free(c);
}

static void control_run(proa_work *work)
{
    control *c = (control *)work;
    if (c->load)
        c->status = proa_server_load(c->api->server, c->model, c->config, c->files, c->files_count, &c->err);
    else c->status = proa_server_unload(c->api->server, c->model, c->dependents, &c->err);
}

static void control_done(proa_work *work)
{
    control *c = (control *)work;
    proa_grpc_call *call = c->call;
    if (call && c->status == PROA_OK) {
        proa_grpc_send(call, NULL, 0, NULL, NULL); /* both answers have no fields */
        proa_grpc_finish(call, PROA_GRPC_OK, (proa_str){"", 0}, NULL, 0);
    } else if (call) proa_rpc_fail(call, &c->err);
    control_free(c);
}

static void control_gone(proa_grpc_call *call)
{
    control *c = call->user;
    c->call = NULL;
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

static proa_status add_file(control *c, const entry *e, proa_err *err)
{
    if (c->files_count == PROA_PARAMS_PER_REQUEST_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d files for model '%s'", PROA_PARAMS_PER_REQUEST_MAX, c->model);
    if (c->files_count == c->files_cap) {
        int cap = c->files_cap ? 2 * c->files_cap : 8;
        proa_model_file *files = PROA_ARENA_NEW(&c->arena, proa_model_file, cap);
        if (c->files_count) memcpy(files, c->files, (size_t)c->files_count * sizeof *files);
        c->files = files;
        c->files_cap = cap;
    }
    c->files[c->files_count++] = (proa_model_file){e->key, e->bytes};
    return PROA_OK;
}

static proa_status wrong_kind(const entry *e, const char *expected, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "invalid value type for load parameter '%.*s', expected %s.",
                     (int)e->key.len, e->key.ptr, expected);
}

static proa_status load_param(control *c, const entry *e, proa_err *err)
{
    if (proa_str_is(e->key, "config")) {
        if (e->kind != STRING_PARAM) return wrong_kind(e, "string_param", err);
        if (proa_str_has_nul(e->text)) return PROA_FAIL(err, INVALID, "the configuration has a NUL byte");
        c->config = proa_arena_strdup(&c->arena, e->text);
        return PROA_OK;
    }
    if (proa_str_starts(e->key, (proa_str){"file:", 5})) {
        if (e->kind != BYTES_PARAM) return wrong_kind(e, "bytes_param", err);
        return add_file(c, e, err);
    }
    return PROA_FAIL(err, INVALID, "unrecognized load parameter '%.*s'.", (int)e->key.len, e->key.ptr);
}

static proa_status unload_param(control *c, const entry *e, proa_err *err)
{
    if (!proa_str_is(e->key, "unload_dependents")) return PROA_OK;
    if (e->kind != BOOL_PARAM)
        return PROA_FAIL(err, INVALID,
                         "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    c->dependents = e->flag;
    return PROA_OK;
}

static proa_status read_message(control *c, proa_str bytes, proa_err *err)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    bool nul = false;
    while (pb_next(&in, &f)) {
        entry e;
        if (pb_is(&f, 1, PB_BYTES)) c->repository = f.bytes.len > 0;
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
    if (c->repository) return PROA_FAIL(err, UNSUPPORTED, "'repository_name' specification is not supported");
    return PROA_OK;
}

static void on_message(proa_grpc_call *call, proa_str bytes, bool load)
{
    proa_api *api = call->user;
    proa_err err = {.status = PROA_OK};
    control *c = proa_calloc(1, sizeof *c);
    c->api = api;
    c->load = load;
    c->model = "";
    proa_arena_init(&c->arena);
    proa_status status = read_message(c, bytes, &err);
    if (status == PROA_OK) {
        c->message = proa_rpc_take(call, bytes.len);
        c->call = call;
        c->work.loop = proa_conn_loop(call->conn);
        c->work.run = control_run;
        c->work.done = control_done; /* on this thread, so not before we return */
        status = proa_work_start(api, &c->work, &err);
    }
    if (status != PROA_OK) {
        control_free(c);
        proa_rpc_fail(call, &err);
        return;
    }
    call->user = c;
    call->on_message = NULL; /* the first one counts */
    call->on_half_close = NULL;
    call->on_gone = control_gone;
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
