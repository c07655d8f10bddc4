/* SPDX-License-Identifier: Apache-2.0
 * hosted.c - a version of a model that another process schedules: a server without repositories, and instances
 * without a scheduler. */
#include "serve/hosted.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "serve/core.h"
#include <string.h>

struct proa_hosted {
    proa_server *server;
    proa_served_model *model;
    proa_arena arena; /* of the server's options and the instances */
};

/* ---- the description ---- */

static void put_text(proa_buf *out, const char *name, const char *text)
{
    if (!text) return;
    proa_buf_printf(out, ",\"%s\":", name);
    proa_buf_json_str(out, proa_str_c(text));
}

static void put_settings(proa_buf *out, const proa_server_options *o)
{
    proa_buf_printf(out, ",\"settings\":[");
    for (int i = 0; i < o->settings_count; i++) {
        const char *const parts[] = {o->settings[i].backend, o->settings[i].key, o->settings[i].value};
        proa_buf_printf(out, i ? ",[" : "[");
        for (size_t k = 0; k < PROA_COUNT(parts); k++) {
            if (k) proa_buf_char(out, ',');
            if (parts[k]) proa_buf_json_str(out, proa_str_c(parts[k]));
            else proa_buf_printf(out, "null");
        }
        proa_buf_char(out, ']');
    }
    proa_buf_char(out, ']');
}

void proa_hosted_describe(proa_buf *out, const proa_served_model *model)
{
    const proa_server_options *o = &model->server->options;
    proa_buf_printf(out, "{\"version\":%lld,\"external\":%s,\"overridden\":%s", (long long)model->version,
                    o->allow_external_paths ? "true" : "false", model->source->overridden ? "true" : "false");
    put_text(out, "model", model->name);
    put_text(out, "path", model->path);
    put_text(out, "version_path", model->version_path);
    put_text(out, "server", o->id);
    put_text(out, "backend_directory", o->backend_directory);
    put_settings(out, o);
    proa_buf_char(out, '}');
}

static const char *get_text(proa_hosted *h, const proa_json *from, const char *name)
{
    const proa_json *text = proa_json_get(from, name);
    return text ? proa_arena_strdup(&h->arena, proa_json_str(text)) : NULL;
}

static void get_settings(proa_hosted *h, proa_server_options *o, const proa_json *list)
{
    int64_t count = proa_json_len(list);
    proa_setting *settings = PROA_ARENA_NEW(&h->arena, proa_setting, count);
    for (int64_t i = 0; i < count; i++) {
        const proa_json *one = proa_json_at(list, i), *backend = proa_json_at(one, 0);
        settings[i].backend = backend ? proa_arena_strdup(&h->arena, proa_json_str(backend)) : NULL;
        settings[i].key = proa_arena_strdup(&h->arena, proa_json_str(proa_json_at(one, 1)));
        settings[i].value = proa_arena_strdup(&h->arena, proa_json_str(proa_json_at(one, 2)));
    }
    o->settings = settings;
    o->settings_count = (int)count;
}

/* ---- opening ---- */

static proa_status open_server(proa_hosted *h, const proa_hosted_options *from, proa_err *err)
{
    const proa_json *d = from->description;
    proa_server_options o = {.upstream = from->upstream,
                             .backends = from->backends,
                             .find_backend = from->find_backend,
                             .id = get_text(h, d, "server"),
                             .backend_directory = get_text(h, d, "backend_directory"),
                             .control = PROA_CONTROL_EXPLICIT,
                             .no_auto_complete = !from->complete,
                             .allow_external_paths = proa_json_bool(proa_json_get(d, "external")),
                             .no_gpu_metrics = true};
    get_settings(h, &o, proa_json_get(d, "settings"));
    return proa_server_new(&h->server, &o, err);
}

static proa_status open_source(proa_hosted *h, const proa_hosted_options *o, proa_source **source, proa_err *err)
{
    const char *config = proa_arena_strdup(&h->arena, o->config);
    PROA_TRY(proa_source_new(source, h->server, get_text(h, o->description, "model"),
                             get_text(h, o->description, "path"), config, err));
    (*source)->overridden = proa_json_bool(proa_json_get(o->description, "overridden"));
    return PROA_OK;
}

static proa_status open_instance(proa_hosted *h, const proa_hosted_instance *from, proa_err *err)
{
    proa_served_model *m = h->model;
    proa_instance *i = &m->instances[m->instances_count];
    Inference__ModelInstanceGroup *group = PROA_ARENA_NEW(&h->arena, Inference__ModelInstanceGroup, 1);
    inference__model_instance_group__init(group);
    group->kind = from->kind;
    *i = (proa_instance){.model = m,
                         .name = proa_arena_strdup(&h->arena, proa_str_c(from->name)),
                         .device = from->device,
                         .index = m->instances_count,
                         .group = group};
    if (m->backend->instance_open) PROA_TRY(m->backend->instance_open(&i->state, m->state, i, err));
    m->instances_count++;
    return PROA_OK;
}

/* The version closes what is open (proa_served_model_close). */
static proa_status open_backend(proa_hosted *h, const proa_hosted_options *o, proa_err *err)
{
    proa_served_model *m = h->model;
    if (m->backend->model_open) PROA_TRY(m->backend->model_open(&m->state, m, err));
    m->opened = true;
    m->instances = PROA_ARENA_NEW(&h->arena, proa_instance, o->instances_count);
    for (int i = 0; i < o->instances_count; i++) PROA_TRY(open_instance(h, &o->instances[i], err));
    return m->backend->instances_opened ? m->backend->instances_opened(m->state, err) : PROA_OK;
}

static proa_status open_model(proa_hosted *h, const proa_hosted_options *o, proa_err *err)
{
    const proa_json *d = o->description;
    proa_source *source;
    PROA_TRY(open_source(h, o, &source, err));
    h->model = proa_served_model_new(h->server, source, proa_json_int(proa_json_get(d, "version")));
    proa_source_drop(source);
    PROA_TRY(proa_served_model_prepare(h->model, get_text(h, d, "version_path"), err));
    if (!h->model->backend) return PROA_FAIL(err, INVALID, "model '%s' is an ensemble", h->model->name);
    return o->complete ? PROA_OK : open_backend(h, o, err);
}

proa_status proa_hosted_open(proa_hosted **out, const proa_hosted_options *options, proa_err *err)
{
    proa_hosted *h = proa_calloc(1, sizeof *h);
    *out = NULL;
    proa_arena_init(&h->arena);
    proa_status status = open_server(h, options, err);
    if (status == PROA_OK) status = open_model(h, options, err);
    if (status == PROA_OK) *out = h;
    else proa_hosted_close(h);
    return status;
}

void proa_hosted_close(proa_hosted *h)
{
    if (!h) return;
    if (h->model) proa_served_model_close(h->model);
    if (h->server) proa_server_free(h->server);
    proa_arena_release(&h->arena);
    free(h);
}

bool proa_hosted_config(const proa_hosted *h, proa_buf *out)
{
    return proa_config_print_json(out, h->model->config);
}

/* ---- requests ---- */

bool proa_hosted_checks_ready(const proa_hosted *h)
{
    return h->model->backend->ready != NULL;
}

int proa_hosted_device_inputs(const proa_hosted *h, int instance)
{
    return h->model->device_inputs ? h->model->instances[instance].device : -1;
}

bool proa_hosted_ready(const proa_hosted *h, proa_err *reason)
{
    return !h->model->backend->ready || h->model->backend->ready(h->model->state, reason);
}

proa_infer *proa_hosted_request(const proa_hosted *h)
{
    proa_infer *r = proa_infer_new();
    r->model = proa_served_model_hold(h->model);
    r->model_name = h->model->name;
    r->model_version = h->model->version;
    return r;
}

void proa_hosted_execute(const proa_hosted *h, int instance, proa_infer *const *requests, int count)
{
    int64_t now = proa_clock_ns();
    for (int i = 0; i < count; i++) {
        proa_infer_hold(requests[i]);
        requests[i]->times.compute_start = now;
    }
    h->model->backend->execute(h->model->instances[instance].state, requests, count);
}
