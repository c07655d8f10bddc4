/* SPDX-License-Identifier: Apache-2.0
 * control.c - runs a load or an unload on a worker and answers its client on the loop. */
#include "api/control.h"

#include "base/alloc.h"
#include <string.h>

proa_model_control *proa_model_control_new(proa_api *api, bool load)
{
    proa_model_control *c = proa_calloc(1, sizeof *c);
    proa_arena_init(&c->arena);
    c->api = api;
    c->load = load;
    c->model = "";
    return c;
}

void proa_model_control_free(proa_model_control *c)
{
    proa_buffer_drop(c->message);
    proa_arena_release(&c->arena);
    free(c);
}

void proa_model_control_add_file(proa_model_control *c, proa_str path, proa_str bytes)
{
    if (c->files_count == c->files_cap) {
        int cap = c->files_cap ? 2 * c->files_cap : 8;
        proa_model_file *files = PROA_ARENA_NEW(&c->arena, proa_model_file, cap);
        if (c->files_count) memcpy(files, c->files, (size_t)c->files_count * sizeof *files);
        c->files = files;
        c->files_cap = cap;
    }
    c->files[c->files_count++] = (proa_model_file){path, bytes};
}

/* On a worker. The status is that of c->err. */
static void run_control(proa_work_item *work)
{
    proa_model_control *c = (proa_model_control *)work;
    proa_server *server = c->api->server;
    proa_status status;
    if (c->adapter)
        status = c->load ? proa_server_load_adapter(server, c->model, c->adapter, c->path, &c->err)
                         : proa_server_unload_adapter(server, c->model, c->adapter, &c->err);
    else
        status = c->load ? proa_server_load(server, c->model, c->config, c->files, c->files_count, &c->err)
                         : proa_server_unload(server, c->model, c->dependents, &c->err);
    if (status == PROA_OK) c->err.status = PROA_OK; /* a step of a success may have failed */
}

static void finish_control(proa_work_item *work)
{
    proa_model_control *c = (proa_model_control *)work;
    if (c->client) c->answer(c, &c->err);
    proa_model_control_free(c);
}

proa_status proa_model_control_start(proa_model_control *c, proa_loop *loop, proa_err *err)
{
    c->work.loop = loop;
    c->work.run = run_control;
    c->work.done = finish_control; /* on this thread, so not before the caller has returned */
    return proa_work_start(c->api, &c->work, err);
}
