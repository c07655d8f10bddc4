/* SPDX-License-Identifier: Apache-2.0
 * server.c - the server: start, stop, health, lookup of models, the entry of requests. */
#include "serve/server.h"

#include "base/alloc.h"
#include "base/reserve.h"
#include "base/clock.h"
#include "serve/cache.h"
#include "serve/core.h"
#include "serve/rate.h"
#include "serve/scheduler.h"
#include <errno.h>
#include <string.h>
#include <time.h>

/* ---- options ---- */

static const proa_setting *copy_settings(proa_arena *arena, const proa_setting *list, int count)
{
    proa_setting *out = PROA_ARENA_NEW(arena, proa_setting, count);
    for (int i = 0; i < count; i++)
        out[i] = (proa_setting){proa_arena_copy_text(arena, list[i].backend),
                                proa_arena_copy_text(arena, list[i].key),
                                proa_arena_copy_text(arena, list[i].value)};
    return out;
}

static void copy_options(proa_server *s, const proa_server_options *from)
{
    proa_server_options *o = &s->options;
    proa_arena *a = &s->arena;
    *o = *from;
    o->id = from->id && *from->id ? proa_arena_copy_text(a, from->id) : "triton";
    o->repositories = proa_arena_copy_list(a, from->repositories, from->repositories_count);
    o->load_models = proa_arena_copy_list(a, from->load_models, from->load_models_count);
    o->rate_resources = proa_arena_copy_list(a, from->rate_resources, from->rate_resources_count);
    o->settings = copy_settings(a, from->settings, from->settings_count);
    o->fills = copy_settings(a, from->fills, from->fills_count);
    o->config_name = proa_arena_copy_text(a, from->config_name);
    o->backend_directory = proa_arena_copy_text(a, from->backend_directory);
    o->repoagent_directory = proa_arena_copy_text(a, from->repoagent_directory);
    if (o->load_threads < 1) o->load_threads = 4;
    if (o->load_retries < 0) o->load_retries = 0;
    if (o->poll_secs < 1) o->poll_secs = 15;
}

static proa_status check_options(const proa_server_options *o, proa_err *err)
{
    for (int i = 0; i < o->load_models_count; i++)
        if (strcmp(o->load_models[i], "*") == 0 && o->load_models_count > 1)
            return PROA_FAIL(err, INVALID,
                             "Wildcard model name '*' must be the ONLY startup model if specified at all.");
    return PROA_OK;
}

/* ---- start and end ---- */

static proa_server *server_alloc(const proa_server_options *options)
{
    proa_server *s = proa_calloc(1, sizeof *s);
    pthread_condattr_t clock;
    proa_arena_init(&s->arena);
    atomic_init(&s->phase, PROA_SERVER_STARTING);
    atomic_init(&s->table, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->shm_lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &clock);
    pthread_condattr_destroy(&clock);
    s->entries = proa_calloc(PROA_MODELS_MAX, sizeof(proa_entry *));
    copy_options(s, options);
    return s;
}

static void server_release(proa_server *s)
{
    proa_poller_stop(s);
    proa_lifecycle_unload_all(s);
    proa_reaper_stop(s);
    proa_name_table_free(s);
    proa_entries_free(s);
    proa_roots_close(s);
    (void)proa_shm_unregister(s, "", NULL);
    (void)proa_shm_unregister_cuda(s, "", NULL);
    proa_rate_free(s->rate);
    proa_cache_free(s->cache);
    proa_gpus_stop(s->gpus);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->shm_lock);
    proa_arena_release(&s->arena);
    free(s);
}

static proa_status server_start(proa_server *s, proa_err *err)
{
    const proa_server_options *o = &s->options;
    proa_err load = {0};
    PROA_TRY(check_options(o, err));
    PROA_TRY(proa_roots_open(s, err));
    if (o->cache_bytes > 0) s->cache = proa_cache_new(o->cache_bytes);
    PROA_TRY(proa_rate_new(&s->rate, o->rate_resources, o->rate_resources_count, err));
    if (!o->rate_limit) { /* the values are checked all the same */
        proa_rate_free(s->rate);
        s->rate = NULL;
    }
    if (!o->no_gpu_metrics) s->gpus = proa_gpus_start(o->metrics_interval_ms ? o->metrics_interval_ms : 2000);
    PROA_TRY(proa_reaper_start(s, err));
    if (proa_lifecycle_start(s, &load) != PROA_OK) {
        PROA_LOG(ERROR, "%s", load.text);
        if (o->exit_on_error) {
            if (err) *err = load;
            return load.status;
        }
    }
    atomic_store(&s->phase, PROA_SERVER_READY);
    return PROA_OK;
}

proa_status proa_server_new(proa_server **out, const proa_server_options *options, proa_err *err)
{
    proa_server *s = server_alloc(options);
    proa_status status = server_start(s, err);
    *out = NULL;
    if (status != PROA_OK) server_release(s);
    else *out = s;
    return status;
}

static void stop_scheduler(proa_served_model *model, void *arg)
{
    (void)arg;
    proa_scheduler_stop(model->scheduler);
}

static void count_held(proa_served_model *model, void *arg)
{
    if (atomic_load(&model->refs) > 1 || proa_scheduler_pending(model->scheduler) > 0) ++*(int *)arg;
}

/* Lock not held. False: the time is over. */
static bool wait_idle(proa_server *s, int64_t deadline_ns)
{
    for (;;) {
        int held = 0;
        proa_server_each_model(s, count_held, &held);
        pthread_mutex_lock(&s->lock);
        bool working = s->exclusive || s->busy_count > 0;
        pthread_mutex_unlock(&s->lock);
        if (held == 0 && !working) return true;
        if (proa_clock_ns() >= deadline_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

bool proa_server_stop(proa_server *server, int64_t timeout_ms)
{
    int64_t deadline = proa_clock_ns() + timeout_ms * 1000000;
    atomic_store(&server->phase, PROA_SERVER_EXITING);
    PROA_LOG(INFO, "Waiting for in-flight requests to complete.");
    proa_poller_stop(server);
    proa_server_each_model(server, stop_scheduler, NULL);
    if (!wait_idle(server, deadline)) return false;
    PROA_LOG(INFO, "All models are stopped, unloading models");
    proa_lifecycle_unload_all(server);
    return proa_reaper_wait(server, deadline);
}

void proa_server_free(proa_server *server)
{
    if (server) server_release(server);
}

/* ---- looking up ---- */

const char *proa_backend_setting(const proa_server *server, const char *backend, const char *key)
{
    const char *value = NULL; /* the last one counts */
    for (int i = 0; i < server->options.settings_count; i++) {
        const proa_setting *set = &server->options.settings[i];
        if (set->backend && strcmp(set->backend, backend) == 0 && strcmp(set->key, key) == 0)
            value = set->value;
    }
    return value;
}

void proa_backend_each_setting(const proa_server *server, const char *backend,
                               void (*see)(void *arg, const char *key, const char *value), void *arg)
{
    for (int i = 0; i < server->options.settings_count; i++) {
        const proa_setting *set = &server->options.settings[i];
        if (set->backend && (!*set->backend || strcmp(set->backend, backend) == 0))
            see(arg, set->key, set->value);
    }
}

proa_status proa_server_model_decoupled(proa_server *server, const char *name, int64_t version,
                                        bool *decoupled, proa_err *err)
{
    proa_served_model *model;
    if (server->options.upstream) return server->options.upstream->find(name, version, decoupled, err);
    PROA_TRY(proa_server_find(server, name, version, &model, err));
    *decoupled = model->decoupled;
    proa_served_model_drop(model);
    return PROA_OK;
}

proa_status proa_server_find_model(proa_server *server, proa_infer *r, proa_err *err)
{
    const proa_upstream *up = server->options.upstream;
    bool decoupled;
    if (r->model) return PROA_OK;
    if (up) return up->find(r->model_name, r->model_version, &decoupled, err);
    return proa_server_find(server, r->model_name, r->model_version, &r->model, err);
}

proa_status proa_server_infer(proa_server *server, proa_infer *r, proa_err *err)
{
    if (!r->times.received) r->times.received = proa_clock_ns();
    PROA_TRY(proa_reserve_check(err));
    if (server->options.upstream) return server->options.upstream->infer(r, err);
    PROA_TRY(proa_server_find_model(server, r, err));
    proa_infer_hold(r); /* it may end, and the sink's reference be dropped, before enqueue returns */
    proa_status status = proa_infer_check(r->model, r, err);
    if (status == PROA_OK) status = proa_scheduler_enqueue(r->model->scheduler, r, err);
    if (status != PROA_OK) {
        proa_served_model_drop(r->model);
        r->model = NULL;
    }
    proa_infer_drop(r);
    return status;
}

proa_status proa_version_parse(int64_t *version, proa_str text, proa_err *err)
{
    char digits[24];
    char *end = digits;
    *version = -1;
    if (text.len == 0) return PROA_OK;
    if (text.len < sizeof digits) {
        memcpy(digits, text.ptr, text.len);
        digits[text.len] = 0;
        errno = 0;
        *version = strtoll(digits, &end, 10);
    }
    bool range = text.len >= sizeof digits || errno == ERANGE;
    if (range || end == digits || *end)
        return PROA_FAIL(
            err, INVALID,
            "failed to get model version from specified version string '%.*s' (details: %s), version "
            "should be an integral value > 0",
            text.len > 200 ? 200 : (int)text.len, text.ptr, range ? "out of range" : "stol");
    if (*version < 0)
        return PROA_FAIL(err, INVALID,
                         "invalid model version specified '%s' , version should be an integral value > 0",
                         digits);
    return PROA_OK;
}

/* ---- health ---- */

proa_control proa_server_control(const proa_server *server)
{
    return server->options.control;
}

bool proa_server_live(const proa_server *server)
{
    return atomic_load(&server->phase) == PROA_SERVER_READY;
}

static proa_status backend_ready(proa_served_model *model, proa_err *err)
{
    if (!model->backend || !model->backend->ready) return PROA_OK;
    proa_err why = {0};
    if (model->backend->ready(model->state, &why)) return PROA_OK;
    PROA_LOG(VERBOSE, "Model '%s' version %lld is not ready: %s", model->name, (long long)model->version,
             why.text);
    return PROA_FAIL(err, INVALID, "Model version not ready");
}

/* Lock held. An unloaded model does not count against readiness. */
static bool entry_ready(const proa_entry *e)
{
    if (e->slots_count == 0) return !e->problem && !e->source;
    for (int i = 0; i < e->slots_count; i++) {
        const proa_version_slot *slot = &e->slots[i];
        if (slot->state != PROA_STATE_READY && !(slot->reason && strcmp(slot->reason, "unloaded") == 0))
            return false;
    }
    return true;
}

typedef struct model_refs {
    proa_served_model **models;
    int count, cap;
} model_refs;

static void hold_one(proa_served_model *model, void *arg)
{
    model_refs *h = arg;
    if (!model->backend || !model->backend->ready) return;
    if (h->count == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 16;
        h->models = proa_realloc(h->models, (size_t)h->cap * sizeof(proa_served_model *));
    }
    h->models[h->count++] = proa_served_model_hold(model);
}

/* The backends are called without the lock: this may take a moment. */
static proa_status backends_ready(proa_server *s, proa_err *err)
{
    model_refs h = {0};
    proa_status status = PROA_OK;
    proa_server_each_model(s, hold_one, &h);
    for (int i = 0; i < h.count; i++) {
        if (status == PROA_OK) status = backend_ready(h.models[i], err);
        proa_served_model_drop(h.models[i]);
    }
    free(h.models);
    return status;
}

proa_status proa_server_ready(proa_server *server, proa_err *err)
{
    proa_server_phase phase = atomic_load(&server->phase);
    if (phase == PROA_SERVER_EXITING) return PROA_FAIL(err, UNAVAILABLE, "Server exiting");
    if (phase != PROA_SERVER_READY) return PROA_FAIL(err, UNAVAILABLE, "Server not ready");
    if (server->options.no_strict_readiness) return PROA_OK;
    proa_status status = PROA_OK;
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->entries_count && status == PROA_OK; i++)
        if (!entry_ready(server->entries[i]))
            status = PROA_FAIL(err, INVALID, "model '%s' is not ready", server->entries[i]->name);
    pthread_mutex_unlock(&server->lock);
    return status == PROA_OK ? backends_ready(server, err) : status;
}

proa_status proa_server_model_ready(proa_server *server, const char *name, int64_t version, proa_err *err)
{
    proa_served_model *model;
    if (server->options.upstream) return server->options.upstream->ready(name, version, err);
    PROA_TRY(proa_server_find(server, name, version, &model, err));
    proa_status status = backend_ready(model, err);
    proa_served_model_drop(model);
    return status;
}
