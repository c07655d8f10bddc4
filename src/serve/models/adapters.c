/* SPDX-License-Identifier: Apache-2.0
 * adapters.c - low-rank adapters of models: which version has one, loading and unloading by name. */
#include "serve/models/model.h"

#include <string.h>

void proa_served_model_adapters(proa_served_model *model,
                                void (*see)(void *arg, const char *name, const char *path), void *arg)
{
    if (model->backend && model->backend->adapters) model->backend->adapters(model->state, see, arg);
}

/* ---- which version ---- */

typedef struct search {
    const char *adapter; /* NULL: any version that takes adapters */
    bool has_it;         /* the version at hand */
    int count;           /* models found */
    proa_served_model *found;
} search;

static void compare_name(void *arg, const char *name, const char *path)
{
    search *s = arg;
    PROA_UNUSED(path);
    s->has_it = s->has_it || strcmp(name, s->adapter) == 0;
}

/* Versions come in order, so the newest of a model is the last. */
static void look_at(proa_served_model *model, void *arg)
{
    search *s = arg;
    if (!model->backend || !model->backend->load_adapter) return;
    s->has_it = !s->adapter;
    if (s->adapter) proa_served_model_adapters(model, compare_name, s);
    if (!s->has_it) return;
    if (!s->found || strcmp(s->found->name, model->name) != 0) s->count++;
    if (s->found) proa_served_model_drop(s->found);
    s->found = proa_served_model_hold(model);
}

proa_served_model *proa_server_find_adapter(proa_server *server, const char *adapter)
{
    search s = {.adapter = adapter};
    proa_server_each_model(server, look_at, &s);
    return s.found;
}

static proa_status find_model(proa_server *server, const char *name, proa_served_model **out, proa_err *err)
{
    search s = {.adapter = NULL};
    if (*name) {
        PROA_TRY(proa_server_find(server, name, -1, out, err));
        if ((*out)->backend && (*out)->backend->load_adapter) return PROA_OK;
        proa_served_model_drop(*out);
        return PROA_FAIL(err, UNSUPPORTED, "model '%s' takes no adapters", name);
    }
    proa_server_each_model(server, look_at, &s);
    if (s.count == 1) return *out = s.found, PROA_OK;
    if (s.found) proa_served_model_drop(s.found);
    if (!s.count) return PROA_FAIL(err, UNSUPPORTED, "no model takes adapters");
    return PROA_FAIL(err, INVALID, "%d models take adapters: 'base_model_name' must name one", s.count);
}

/* ---- loading and unloading ---- */

proa_status proa_server_load_adapter(proa_server *server, const char *model, const char *adapter,
                                     const char *path, proa_err *err)
{
    proa_served_model *m;
    PROA_TRY(find_model(server, model, &m, err));
    proa_status status = m->backend->load_adapter(m->state, adapter, path, err);
    proa_served_model_drop(m);
    return status;
}

proa_status proa_server_unload_adapter(proa_server *server, const char *model, const char *adapter, proa_err *err)
{
    proa_served_model *m = *model ? NULL : proa_server_find_adapter(server, adapter);
    if (!m && !*model) return PROA_FAIL(err, NOT_FOUND, "no adapter '%.64s' is loaded", adapter);
    if (!m) PROA_TRY(find_model(server, model, &m, err));
    proa_status status = m->backend->unload_adapter(m->state, adapter, err);
    proa_served_model_drop(m);
    return status;
}
