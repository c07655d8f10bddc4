/* SPDX-License-Identifier: Apache-2.0
 * open.c - opens and closes one version of a model: configuration, backend, instances, scheduler, warm-up. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/core.h"
#include "serve/scheduler.h"
#include <sched.h>
#include <string.h>

/* A tensor's shape on the wire and as the backend sees it: both with the batch dimension, if the model has one. */
static proa_status set_shapes(proa_io *io, bool batched, const int64_t *dims, size_t n_dims,
                              const Inference__ModelTensorReshape *reshape, proa_err *err)
{
    size_t inner = reshape ? reshape->n_shape : n_dims;
    if (n_dims + batched > PROA_SERVE_RANK_MAX || inner + batched > PROA_SERVE_RANK_MAX)
        return PROA_FAIL(err, LIMIT, "tensor '%s' has more than %d dimensions", io->name, PROA_SERVE_RANK_MAX);
    io->shape[0] = io->inner[0] = -1;
    io->rank = (int32_t)(n_dims + batched);
    io->inner_rank = (int32_t)(inner + batched);
    io->reshaped = reshape != NULL;
    if (n_dims) memcpy(io->shape + batched, dims, n_dims * sizeof *dims);
    if (inner) memcpy(io->inner + batched, reshape ? reshape->shape : dims, inner * sizeof *dims);
    return PROA_OK;
}

static proa_status set_inputs(proa_served_model *m, proa_err *err)
{
    const Inference__ModelConfig *c = m->config;
    if (c->n_input > PROA_TENSORS_PER_REQUEST_MAX || c->n_output > PROA_TENSORS_PER_REQUEST_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d tensors", PROA_TENSORS_PER_REQUEST_MAX);
    m->inputs = PROA_ARENA_NEW(&m->arena, proa_io, (int64_t)c->n_input);
    m->inputs_count = (int)c->n_input;
    for (int i = 0; i < m->inputs_count; i++) {
        const Inference__ModelInput *in = c->input[i];
        proa_io *io = &m->inputs[i];
        *io = (proa_io){.name = in->name,
                        .type = (proa_type)in->data_type,
                        .optional = in->optional,
                        .ragged = in->allow_ragged_batch};
        m->required_count += !in->optional;
        PROA_TRY(set_shapes(io, m->batch_max > 0, in->dims, in->n_dims, in->reshape, err));
    }
    return PROA_OK;
}

static proa_status set_outputs(proa_served_model *m, proa_err *err)
{
    const Inference__ModelConfig *c = m->config;
    m->outputs = PROA_ARENA_NEW(&m->arena, proa_io, (int64_t)c->n_output);
    m->outputs_count = (int)c->n_output;
    for (int i = 0; i < m->outputs_count; i++) {
        const Inference__ModelOutput *out = c->output[i];
        proa_io *io = &m->outputs[i];
        *io = (proa_io){.name = out->name, .type = (proa_type)out->data_type};
        PROA_TRY(set_shapes(io, m->batch_max > 0, out->dims, out->n_dims, out->reshape, err));
    }
    return PROA_OK;
}

/* A built-in backend comes first, unless `runtime` names the file of a library. */
static proa_status find_backend(const proa_backend **out, const proa_server *s, const char *name,
                                const char *runtime, proa_err *err)
{
    const proa_server_options *o = &s->options;
    *out = NULL;
    if (o->find_backend && o->backend_directory && proa_str_ends(proa_str_c(runtime), proa_str_c(".so")))
        PROA_TRY(o->find_backend(out, o->backend_directory, name, runtime, err));
    for (const proa_backend *const *b = o->backends; !*out && b && *b; b++)
        if (strcmp((*b)->name, name) == 0) *out = *b;
    if (*out || !o->find_backend) return PROA_OK;
    return o->find_backend(out, o->backend_directory, name, "", err);
}

static proa_status set_backend(proa_served_model *m, proa_err *err)
{
    const Inference__ModelConfig *c = m->config;
    if (c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING)
        return PROA_OK;
    PROA_TRY(find_backend(&m->backend, m->server, c->backend, c->runtime, err));
    if (!m->backend)
        return PROA_FAIL(
            err, INVALID,
            "unable to find backend library for backend '%s', try specifying runtime on the model "
            "configuration.",
            c->backend);
    m->flags = m->backend->flags;
    return PROA_OK;
}

/* A decoupled ensemble answers a unary call if each of its models does. */
static bool steps_are_unary(const proa_served_model *m)
{
    const Inference__ModelEnsembling *e = m->config->ensemble_scheduling;
    bool unary = true;
    for (size_t i = 0; i < e->n_step && unary; i++) {
        proa_served_model *step = proa_name_table_find(m->server, e->step[i]->model_name,
                                                       e->step[i]->model_version);
        unary = step && step->unary;
        if (step) proa_served_model_drop(step);
    }
    return unary;
}

static _Thread_local const proa_served_model *completing;

const proa_served_model *proa_completing_model(void)
{
    return completing;
}

const proa_server *proa_completing_server(void)
{
    return completing ? completing->server : NULL;
}

static proa_status complete_config(proa_served_model *m, proa_err *err)
{
    completing = m;
    proa_status status = m->backend->complete(m->config, m->version_path, &m->arena, err);
    completing = NULL;
    return status;
}

static proa_status set_config(proa_served_model *m, const proa_source *source, proa_err *err)
{
    proa_config_options options = proa_server_config_options(m->server);
    m->config = (Inference__ModelConfig *)proa_message_copy(&source->config->base, &m->arena);
    PROA_TRY(set_backend(m, err));
    if (m->flags & PROA_BACKEND_GPU) options.gpus = PROA_GPUS_UNCOUNTED;
    if (m->backend && m->backend->complete && !options.no_auto_complete) PROA_TRY(complete_config(m, err));
    else if (!source->provided) return proa_config_not_provided(m->config, err);
    PROA_TRY(proa_config_finish(m->config, &options, &m->arena, err));
    m->batch_max = m->config->max_batch_size;
    m->decoupled = m->config->model_transaction_policy && m->config->model_transaction_policy->decoupled;
    m->unary = !m->decoupled || (m->flags & PROA_BACKEND_UNARY) || (!m->backend && steps_are_unary(m));
    PROA_TRY(set_inputs(m, err));
    return set_outputs(m, err);
}

static proa_status add_instance(proa_served_model *m, const Inference__ModelInstanceGroup *group, int number,
                                int device, proa_err *err)
{
    if (m->instances_count >= PROA_INSTANCES_MAX)
        return PROA_FAIL(err, LIMIT, "model '%s' has more than %d instances", m->name, PROA_INSTANCES_MAX);
    proa_instance *i = &m->instances[m->instances_count];
    *i = (proa_instance){.model = m, .device = device, .index = m->instances_count, .group = group};
    i->name = proa_arena_printf(&m->arena, "%s_%d", group->name, number);
    if (m->backend->instance_open) PROA_TRY(m->backend->instance_open(&i->state, m->state, i, err));
    m->instances_count++;
    return PROA_OK;
}

static proa_status open_group(proa_served_model *m, const Inference__ModelInstanceGroup *group, proa_err *err)
{
    bool gpu = group->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU;
    size_t devices = gpu ? group->n_gpus : 1;
    int number = 0;
    if (group->passive) return PROA_OK; /* never executes */
    for (size_t d = 0; d < devices; d++)
        for (int32_t i = 0; i < group->count; i++)
            PROA_TRY(add_instance(m, group, number++, gpu ? group->gpus[d] : -1, err));
    return PROA_OK;
}

/* Pointers to instances stay: room for all is taken first. */
static proa_status open_instances(proa_served_model *m, proa_err *err)
{
    int64_t most = 0;
    for (size_t g = 0; g < m->config->n_instance_group; g++) {
        const Inference__ModelInstanceGroup *group = m->config->instance_group[g];
        most += (int64_t)group->count * (group->n_gpus ? (int64_t)group->n_gpus : 1);
    }
    most = most > PROA_INSTANCES_MAX ? PROA_INSTANCES_MAX : most;
    m->instances = PROA_ARENA_NEW(&m->arena, proa_instance, most);
    for (size_t g = 0; g < m->config->n_instance_group; g++)
        PROA_TRY(open_group(m, m->config->instance_group[g], err));
    return PROA_OK;
}

proa_status proa_served_model_prepare(proa_served_model *m, const char *version_path, proa_err *err)
{
    m->version_path = proa_arena_strdup(&m->arena, proa_str_c(version_path));
    return set_config(m, m->source, err);
}

static proa_status open_backend(proa_served_model *m, proa_err *err)
{
    if (!m->backend->model_open) return PROA_OK;
    proa_parameters_watch(m);
    proa_status status = m->backend->model_open(&m->state, m, err);
    proa_parameters_report(m);
    return status;
}

static proa_status open_parts(proa_served_model *m, const proa_source *source, proa_err *err)
{
    char path[PROA_PATH_MAX];
    PROA_TRY(proa_source_version_path(source, m->version, path, err));
    PROA_TRY(proa_served_model_prepare(m, path, err));
    PROA_TRY(proa_served_model_read_labels(m, err));
    if (m->backend) {
        PROA_TRY(open_backend(m, err));
        m->opened = true;
        PROA_TRY(open_instances(m, err));
        if (m->backend->instances_opened) PROA_TRY(m->backend->instances_opened(m->state, err));
    }
    PROA_TRY(proa_scheduler_new(&m->scheduler, m, err));
    return proa_served_model_warm(m, err);
}

/* After the last reply of a warm-up the replying thread still drops its reference of the request. */
static void wait_alone(const proa_served_model *m)
{
    while (atomic_load_explicit(&m->refs, memory_order_acquire) > 1) sched_yield();
}

proa_served_model *proa_served_model_new(proa_server *s, proa_source *source, int64_t version)
{
    proa_served_model *m = proa_calloc(1, sizeof *m);
    proa_arena_init(&m->arena);
    atomic_init(&m->refs, 1);
    atomic_init(&m->state_now, PROA_STATE_LOADING);
    m->server = s;
    m->source = proa_source_hold(source);
    m->name = source->name;
    m->path = source->path;
    m->version = version;
    return m;
}

proa_status proa_served_model_open(proa_served_model **out, proa_server *s, proa_source *source,
                                   int64_t version, proa_model_stats *stats, proa_err *err)
{
    int64_t begin = proa_clock_ns();
    proa_served_model *m = proa_served_model_new(s, source, version);
    m->stats = stats;
    m->cache = s->cache;
    m->rate = s->rate;
    m->fingerprint = proa_source_version_fingerprint(source, version); /* before they are read */
    proa_status status = open_parts(m, source, err);
    wait_alone(m);
    m->load_ns = proa_clock_ns() - begin;
    if (status != PROA_OK) proa_served_model_close(m);
    else *out = m;
    return status;
}

void proa_served_model_close(proa_served_model *m)
{
    if (m->scheduler) proa_scheduler_stop(m->scheduler);
    proa_scheduler_free(m->scheduler);
    for (int i = 0; i < m->instances_count; i++)
        if (m->backend->instance_close) m->backend->instance_close(m->instances[i].state);
    if (m->opened && m->backend->model_close) m->backend->model_close(m->state);
    proa_arena_release(&m->arena);
    proa_source_drop(m->source);
    free(m);
}
