/* SPDX-License-Identifier: Apache-2.0
 * operation.c - one change of the repository: the entries it locks, and ensembles after the models that they use. */
#include "base/alloc.h"
#include "serve/core.h"
#include <string.h>

/* ---- which entries an operation has ---- */

bool proa_repo_op_has(const proa_repo_op *op, const proa_entry *e)
{
    for (int i = 0; i < op->count; i++)
        if (op->list[i] == e) return true;
    return false;
}

void proa_repo_op_add(proa_repo_op *op, proa_entry *e)
{
    if (proa_repo_op_has(op, e)) return;
    if (op->count == op->cap) {
        op->cap = op->cap ? 2 * op->cap : 8;
        op->list = proa_realloc(op->list, (size_t)op->cap * sizeof(proa_entry *));
    }
    op->list[op->count++] = e;
}

static bool uses_changed_model(const proa_repo_op *op, const proa_entry *e)
{
    for (int i = 0; i < op->count; i++)
        if (op->list[i]->needs_load && proa_source_needs(e->source, op->list[i]->name)) return true;
    return false;
}

static void add_members(proa_repo_op *op, const proa_entry *e)
{
    const Inference__ModelEnsembling *steps = e->source->config->ensemble_scheduling;
    for (size_t i = 0; i < steps->n_step; i++) {
        proa_entry *member = proa_entry_find(op->server, steps->step[i]->model_name);
        if (member) proa_repo_op_add(op, member);
    }
}

void proa_repo_op_widen(proa_repo_op *op)
{
    proa_server *s = op->server;
    bool more = true;
    while (more) {
        more = false;
        for (int i = 0; i < s->entries_count; i++) {
            proa_entry *e = s->entries[i];
            if (!e->source || !proa_source_is_ensemble(e->source) ||
                (e->needs_load && proa_repo_op_has(op, e)) || !uses_changed_model(op, e))
                continue;
            proa_repo_op_add(op, e);
            e->needs_load = true;
            more = true;
        }
    }
    for (int i = 0, n = op->count; i < n; i++)
        if (op->list[i]->needs_load && op->list[i]->source && proa_source_is_ensemble(op->list[i]->source))
            add_members(op, op->list[i]);
}

bool proa_repo_op_take(proa_repo_op *op)
{
    proa_server *s = op->server;
    if (s->exclusive) return false;
    for (int i = 0; i < op->count; i++)
        if (op->list[i]->busy) return false;
    for (int i = 0; i < op->count; i++) op->list[i]->busy = true;
    s->busy_count += op->count;
    return true;
}

void proa_repo_op_take_all(proa_server *s, proa_repo_op *op)
{
    *op = (proa_repo_op){.server = s};
    pthread_mutex_lock(&s->lock);
    while (s->exclusive || s->busy_count > 0) pthread_cond_wait(&s->changed, &s->lock);
    s->exclusive = true;
    pthread_mutex_unlock(&s->lock);
}

void proa_repo_op_release(proa_repo_op *op)
{
    proa_server *s = op->server;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < op->count; i++) {
        proa_entry *e = op->list[i];
        if (e->busy) s->busy_count--;
        e->busy = e->needs_load = e->done = false;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    free(op->list);
    *op = (proa_repo_op){.server = s};
}

/* ---- changes of an entry ---- */

void proa_entry_accept(proa_entry *e, proa_source *source)
{
    proa_source_drop(e->source);
    e->source = source;
    e->seen_fingerprint = source->fingerprint;
    e->needs_load = true;
    e->done = false;
    proa_err_clear(&e->outcome);
}

/* Retires all its versions. Lock held. */
static void retire_all(proa_server *s, proa_entry *e)
{
    proa_retired *list = NULL;
    for (int i = 0; i < e->slots_count; i++) {
        if (!e->slots[i].model) continue;
        list = proa_retire(s, e, &e->slots[i], list);
        proa_version_slot_set(&e->slots[i], PROA_STATE_UNLOADING, NULL);
    }
    if (!list) return;
    proa_name_table_publish(s);
    proa_retire_release(s, list);
}

void proa_entry_remove(proa_server *s, proa_entry *e)
{
    proa_source_drop(e->source);
    e->source = NULL;
    e->explicit_load = false;
    e->needs_load = e->done = true; /* ensembles that use it have to check again */
    e->seen_fingerprint = 0;
    proa_err_clear(&e->outcome);
    proa_entry_problem(e, NULL);
    retire_all(s, e);
}

/* ---- ensembles: may this one be loaded? ---- */

static const Inference__ModelConfig *configured_model(void *arg, const char *name)
{
    proa_server *s = arg;
    pthread_mutex_lock(&s->lock);
    const proa_entry *e = proa_entry_find(s, name);
    const Inference__ModelConfig *config = e && e->source ? e->source->config : NULL;
    pthread_mutex_unlock(&s->lock);
    return config;
}

/* The complete configuration of the newest version that serves. It stays: the operation has the entry. */
static const Inference__ModelConfig *loaded_model(void *arg, const char *name)
{
    proa_server *s = arg;
    const Inference__ModelConfig *config = NULL;
    pthread_mutex_lock(&s->lock);
    const proa_entry *e = proa_entry_find(s, name);
    for (int i = 0; e && i < e->slots_count; i++)
        if (e->slots[i].model) config = e->slots[i].model->config;
    pthread_mutex_unlock(&s->lock);
    return config;
}

static proa_status failed_member(const char *ensemble, const char *name, const proa_err *outcome, proa_err *err)
{
    char *why = proa_err_whole_text(outcome);
    proa_status status = PROA_FAIL(err, INVALID,
                                   "ensemble '%s' depends on '%s' which has no loaded version. Model '%s' "
                                   "loading failed with error: %s",
                                   ensemble, name, name, why);
    free(why);
    return status;
}

static proa_status check_member(proa_server *s, const char *ensemble, const char *name, int64_t version,
                                proa_err *err)
{
    proa_status status = PROA_OK;
    pthread_mutex_lock(&s->lock);
    proa_entry *m = proa_entry_find(s, name); /* it exists: all models were checked before */
    const proa_version_slot *slot = version == -1 ? NULL : proa_entry_slot(m, version, false);
    if (!proa_entry_serves(m) && m->outcome.status != PROA_OK)
        status = failed_member(ensemble, name, &m->outcome, err);
    else if (!proa_entry_serves(m))
        status = PROA_FAIL(err, INVALID, "ensemble '%s' depends on '%s' which has no loaded version.",
                           ensemble, name);
    else if (version != -1 && !(slot && slot->model))
        status = PROA_FAIL(err, INVALID,
                           "ensemble '%s' depends on '%s' whose required version %lld is not loaded.",
                           ensemble, name, (long long)version);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* An ensemble is decoupled if one of its outputs comes from a decoupled step, whatever its configuration says. */
static void set_decoupled(proa_source *source, bool decoupled)
{
    Inference__ModelConfig *config = source->config;
    if (!config->model_transaction_policy)
        proa_message_add(&config->base, "model_transaction_policy", &source->arena);
    config->model_transaction_policy->decoupled = decoupled;
}

static proa_status check_ensemble(proa_server *s, proa_entry *e, proa_err *err)
{
    const Inference__ModelConfig *config = e->source->config;
    const Inference__ModelEnsembling *steps = config->ensemble_scheduling;
    bool decoupled = false;
    PROA_TRY(proa_ensemble_check_models(config, configured_model, s, err));
    for (size_t i = 0; i < steps->n_step; i++)
        PROA_TRY(check_member(s, e->name, steps->step[i]->model_name, steps->step[i]->model_version, err));
    PROA_TRY(proa_ensemble_check_flow(config, loaded_model, s, &decoupled, err));
    set_decoupled(e->source, decoupled);
    return PROA_OK;
}

/* ---- running: each wave loads the entries whose models are loaded, until none is left ---- */

static void refuse_load(proa_server *s, proa_entry *e, const proa_err *err)
{
    char *why = proa_err_whole_text(err);
    PROA_LOG(ERROR, "%s", why);
    pthread_mutex_lock(&s->lock);
    e->done = true;
    e->outcome = *err;
    proa_entry_problem(e, why);
    retire_all(s, e);
    pthread_mutex_unlock(&s->lock);
    free(why);
}

static bool must_wait(const proa_repo_op *op, const proa_entry *e)
{
    for (int i = 0; i < op->count; i++) {
        const proa_entry *m = op->list[i];
        if (m != e && m->needs_load && !m->done && proa_source_needs(e->source, m->name)) return true;
    }
    return false;
}

/* Ensembles in a circle would wait for each other for ever. */
static void refuse_circles(proa_repo_op *op)
{
    for (int i = 0; i < op->count; i++) {
        proa_entry *e = op->list[i];
        proa_err err = {0};
        if (!e->needs_load || e->done || !proa_source_is_ensemble(e->source)) continue;
        if (proa_ensemble_check_cycle(e->source->config, configured_model, op->server, &err) != PROA_OK)
            refuse_load(op->server, e, &err);
    }
}

void proa_repo_op_run(proa_repo_op *op)
{
    proa_entry **wave = proa_calloc((size_t)op->count, sizeof(proa_entry *));
    refuse_circles(op);
    for (;;) {
        int count = 0, refused = 0;
        for (int i = 0; i < op->count; i++) {
            proa_entry *e = op->list[i];
            proa_err err = {0};
            if (!e->needs_load || e->done || must_wait(op, e)) continue;
            if (proa_source_is_ensemble(e->source) && check_ensemble(op->server, e, &err) != PROA_OK) {
                refuse_load(op->server, e, &err);
                refused++;
            } else {
                wave[count++] = e;
            }
        }
        if (count == 0 && refused == 0) break;
        proa_load_entries(op->server, wave, count);
    }
    free(wave);
}
