/* SPDX-License-Identifier: Apache-2.0
 * model.c - one loaded version of a model: its properties, for backends and protocols, and its references. */
#include "serve/core.h"
#include <string.h>

/* ---- properties ---- */

static const proa_io *find_io(const proa_io *ios, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(ios[i].name, name) == 0) return &ios[i];
    return NULL;
}

const proa_io *proa_served_model_input(const proa_served_model *model, const char *name)
{
    return find_io(model->inputs, model->inputs_count, name);
}

const proa_io *proa_served_model_output(const proa_served_model *model, const char *name)
{
    return find_io(model->outputs, model->outputs_count, name);
}

const Inference__ModelConfig *proa_served_model_config(const proa_served_model *model)
{
    return model->config;
}

const char *proa_served_model_name(const proa_served_model *model)
{
    return model->name;
}

int64_t proa_served_model_version(const proa_served_model *model)
{
    return model->version;
}

const char *proa_served_model_path(const proa_served_model *model)
{
    return model->path;
}

const char *proa_served_model_version_path(const proa_served_model *model)
{
    return model->version_path;
}

const char *proa_served_model_parameter(const proa_served_model *model, const char *key)
{
    proa_parameters_note(model, key);
    return proa_config_parameter(model->config, key);
}

proa_server *proa_served_model_server(const proa_served_model *model)
{
    return model->server;
}

const proa_backend *proa_served_model_backend(const proa_served_model *model)
{
    return model->backend;
}

void proa_served_model_set_long(proa_served_model *model)
{
    model->flags &= ~(unsigned)PROA_BACKEND_INLINE;
}

void proa_served_model_set_inline_rows(proa_served_model *model, int64_t rows)
{
    model->inline_rows_max = rows;
}

void proa_served_model_set_device_inputs(proa_served_model *model)
{
    model->device_inputs = true;
}

void proa_served_model_set_generations(proa_served_model *model, int64_t labels)
{
    model->generations = true;
    model->labels_count = labels;
}

int64_t proa_served_model_labels(const proa_served_model *model)
{
    return model->labels_count;
}

bool proa_served_model_uses_cache(const proa_served_model *model)
{
    return model->cache && model->config->response_cache && model->config->response_cache->enable;
}

bool proa_served_model_takes_generation(const proa_served_model *model)
{
    return model->generations && !proa_served_model_uses_cache(model);
}

const char *proa_instance_name(const proa_instance *instance)
{
    return instance->name;
}

int proa_instance_device(const proa_instance *instance)
{
    return instance->device;
}

Inference__ModelInstanceGroup__Kind proa_instance_kind(const proa_instance *instance)
{
    return instance->group->kind;
}

/* ---- references ---- */

bool proa_served_model_decoupled(const proa_served_model *model)
{
    return model->decoupled;
}

bool proa_served_model_unary(const proa_served_model *model)
{
    return model->unary;
}

proa_served_model *proa_served_model_hold(proa_served_model *model)
{
    atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

static void drop_last(proa_served_model *model)
{
    proa_server *s = model->server;
    /* Under the lock: the reaper, and with it the end of the server, waits for it. */
    pthread_mutex_lock(&s->lock);
    if (atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) == 1)
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void proa_served_model_drop(proa_served_model *model)
{
    int refs = atomic_load_explicit(&model->refs, memory_order_relaxed);
    while (refs > 1)
        if (atomic_compare_exchange_weak_explicit(&model->refs, &refs, refs - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return;
    drop_last(model); /* after this the reaper may free it */
}
