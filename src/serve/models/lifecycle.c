/* SPDX-License-Identifier: Apache-2.0
 * lifecycle.c - the model control modes (none, explicit, poll): which models to load and unload, and when. */
#include "base/alloc.h"
#include "base/reserve.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/core.h"
#include <errno.h>
#include <string.h>
#include <time.h>

/* ---- the plan of an operation, made without locking entries ---- */

typedef struct step {
    char *name;
    proa_source *source;  /* newly read; NULL: as it is */
    uint64_t fingerprint; /* of the folder, if there is one */
    bool requested;       /* by name, not as part of an ensemble */
    bool ambiguous;       /* in more than one repository */
    char *problem;        /* why it could not be read; or NULL */
} step;

typedef struct plan {
    proa_server *server;
    step *steps;
    int count, cap;
} plan;

static step *plan_find(const plan *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->steps[i].name, name) == 0) return &p->steps[i];
    return NULL;
}

static step *plan_add(plan *p, const char *name)
{
    if (p->count == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->steps = proa_realloc(p->steps, (size_t)p->cap * sizeof *p->steps);
    }
    p->steps[p->count] = (step){.name = proa_strdup(name)};
    return &p->steps[p->count++];
}

static void plan_release(plan *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->steps[i].name);
        free(p->steps[i].problem);
        proa_source_drop(p->steps[i].source);
    }
    free(p->steps);
    *p = (plan){.server = p->server};
}

static void set_problem(step *st, const char *text)
{
    free(st->problem);
    st->problem = proa_strdup(text);
}

static void set_failure(step *st, const proa_err *err)
{
    free(st->problem);
    st->problem = proa_err_whole_text(err);
}

/* What the server has of that name; the source is held for the caller. */
static proa_source *current_source(proa_server *s, const char *name, uint64_t *seen_fingerprint, bool *well)
{
    pthread_mutex_lock(&s->lock);
    const proa_entry *e = proa_entry_find(s, name);
    proa_source *source = e && e->source ? proa_source_hold(e->source) : NULL;
    *seen_fingerprint = e ? e->seen_fingerprint : 0;
    *well = e && proa_entry_serves(e) && e->outcome.status == PROA_OK && !e->problem;
    pthread_mutex_unlock(&s->lock);
    return source;
}

static void read_source(plan *p, step *st, const char *path, const char *config_json)
{
    proa_err err = {0};
    if (proa_source_new(&st->source, p->server, st->name, path, config_json, &err) == PROA_OK) return;
    set_failure(st, &err);
    PROA_LOG(ERROR, "Poll failed for model directory '%s': %s", st->name, st->problem);
}

/* Brings the files of a model of a remote repository. False: it failed, and the step says why. */
static bool fetch_folder(plan *p, step *st, bool relist)
{
    proa_err err = {0};
    if (proa_roots_fetch(p->server, st->name, relist, &err) == PROA_OK) return true;
    set_failure(st, &err);
    PROA_LOG(ERROR, "failed to poll model '%s': %s", st->name, st->problem);
    return false;
}

/* Reads a model's folder, unless it is unchanged and loaded successfully. `current` is the source in use. */
static void read_folder(plan *p, step *st, const proa_source *current, bool well, const char *config_json)
{
    char *path;
    if (!fetch_folder(p, st, true)) return;
    int folders = proa_folder_find(p->server, st->name, &path);
    if (folders == 1) {
        st->fingerprint = proa_folder_fingerprint(path);
        if (config_json || !current || current->overridden || current->fingerprint != st->fingerprint || !well)
            read_source(p, st, path, config_json);
    } else if (folders > 1) {
        PROA_LOG(ERROR, "failed to poll model '%s': not unique across all model repositories", st->name);
        set_problem(st, "model appears in two or more repositories");
    } else if (!current) {
        PROA_LOG(ERROR, "failed to poll model '%s': model not found in any model repository.", st->name);
        set_problem(st, "");
    }
    free(path);
}

static void add_members(plan *p, const proa_source *source)
{
    const Inference__ModelEnsembling *e = source->config->ensemble_scheduling;
    for (size_t i = 0; i < e->n_step; i++)
        if (!plan_find(p, e->step[i]->model_name)) plan_add(p, e->step[i]->model_name);
}

/* Completes the plan: each ensemble brings the models that it uses. */
static void plan_complete(plan *p, const char *config_json)
{
    for (int i = 0; i < p->count; i++) {
        step *st = &p->steps[i];
        uint64_t seen_fingerprint;
        bool well;
        proa_source *current = current_source(p->server, st->name, &seen_fingerprint, &well);
        if (!st->source && !st->problem)
            read_folder(p, st, current, well, st->requested ? config_json : NULL);
        const proa_source *now = p->steps[i].source ? p->steps[i].source : current;
        if (now && proa_source_is_ensemble(now)) add_members(p, now);
        proa_source_drop(current);
    }
}

/* ---- doing it ---- */

static proa_source *step_take(step *st)
{
    proa_source *source = st->source;
    st->source = NULL;
    return source;
}

/* Locks the entries of op and the ensembles that use them. False: another operation had one of them and we have
 * waited; then nothing is touched by us any more and op is empty. Lock held. */
static bool take_or_wait(proa_repo_op *op)
{
    proa_repo_op_widen(op);
    if (proa_repo_op_take(op)) return true;
    for (int i = 0; i < op->count; i++)
        if (!op->list[i]->busy) op->list[i]->needs_load = false;
    op->count = 0;
    pthread_cond_wait(&op->server->changed, &op->server->lock);
    return false;
}

static bool plan_take(plan *p, proa_repo_op *op)
{
    for (int i = 0; i < p->count; i++) {
        proa_entry *e = p->steps[i].source ? proa_entry_add(p->server, p->steps[i].name)
                                           : proa_entry_find(p->server, p->steps[i].name);
        if (!e && p->steps[i].source) set_problem(&p->steps[i], "too many models");
        if (e) proa_repo_op_add(op, e);
        if (e && p->steps[i].source && !e->busy) e->needs_load = true;
    }
    return take_or_wait(op);
}

/* Lock held, entries ours. */
static void plan_apply(plan *p)
{
    for (int i = 0; i < p->count; i++) {
        step *st = &p->steps[i];
        proa_entry *e = proa_entry_find(p->server, st->name);
        if (!e) continue;
        if (st->source) proa_entry_accept(e, step_take(st));
        if (st->requested) e->explicit_load = true;
    }
}

/* The outcome of the requested models: Triton's texts. */
static proa_status plan_outcome(plan *p, proa_err *err)
{
    proa_status status = PROA_OK;
    pthread_mutex_lock(&p->server->lock);
    for (int i = 0; i < p->count && status == PROA_OK; i++) {
        const proa_entry *e = proa_entry_find(p->server, p->steps[i].name);
        if (!p->steps[i].requested || !e || e->outcome.status == PROA_OK) continue;
        char *why = proa_err_whole_text(&e->outcome);
        status = PROA_FAIL(err, INVALID, "load failed for model '%s': %s", e->name, why);
        free(why);
    }
    for (int i = 0; i < p->count && status == PROA_OK; i++) {
        const char *problem = p->steps[i].problem; /* of the first step, which was requested, or of a model that it
                                                      uses */
        if (problem)
            status = PROA_FAIL(err, INTERNAL, "failed to load '%s', failed to poll from model repository%s%s",
                               p->steps[0].name, *problem ? ": " : "", problem);
    }
    pthread_mutex_unlock(&p->server->lock);
    return status;
}

static proa_status load_named(proa_server *s, const char *name, const proa_load_override *load, proa_err *err)
{
    plan p = {.server = s};
    proa_repo_op op = {.server = s};
    for (;;) {
        step *st = plan_add(&p, name);
        proa_err why = {0};
        st->requested = true;
        if (load->files_count && proa_source_from_files(&st->source, s, name, load, &why) != PROA_OK)
            set_failure(st, &why);
        plan_complete(&p, load->config_json);
        pthread_mutex_lock(&s->lock);
        if (plan_take(&p, &op)) break;
        pthread_mutex_unlock(&s->lock); /* another operation was at work there: read again */
        plan_release(&p);
    }
    plan_apply(&p);
    pthread_mutex_unlock(&s->lock);
    proa_repo_op_run(&op);
    proa_status status = plan_outcome(&p, err);
    proa_repo_op_release(&op);
    plan_release(&p);
    return status;
}

/* ---- the whole repository: at the start, and by polling ---- */

/* A name that occurs twice is ambiguous: no folder serves it. */
static bool collect_folders(void *arg, const char *name, const char *path)
{
    plan *p = arg;
    step *st = plan_find(p, name);
    (void)path;
    if (st) {
        st->ambiguous = true;
        set_problem(st, "model appears in two or more repositories");
    } else {
        plan_add(p, name)->requested = true;
    }
    return p->count < PROA_MODELS_MAX;
}

/* A folder that has not changed since the last poll is not read again, even if that poll failed. */
static void sweep_look(plan *p)
{
    for (int i = 0; i < p->count; i++) {
        step *st = &p->steps[i];
        uint64_t seen_fingerprint;
        bool well;
        if (st->ambiguous) {
            PROA_LOG(ERROR, "failed to poll model '%s': not unique across all model repositories", st->name);
            continue;
        }
        char *path;
        if (!fetch_folder(p, st, false)) continue;
        proa_folder_find(p->server, st->name, &path);
        proa_source_drop(current_source(p->server, st->name, &seen_fingerprint, &well));
        st->fingerprint = path ? proa_folder_fingerprint(path) : 0;
        if (path && st->fingerprint != seen_fingerprint) read_source(p, st, path, NULL);
        free(path);
    }
}

/* Lock held, all entries locked by us. Folders that were removed or are ambiguous stop serving. */
static void sweep_apply(plan *p, proa_repo_op *op)
{
    proa_server *s = p->server;
    for (int i = 0; i < s->entries_count; i++) {
        proa_entry *e = s->entries[i];
        const step *st = plan_find(p, e->name);
        if (!e->source || (st && !st->ambiguous)) continue;
        proa_repo_op_add(op, e);
        proa_entry_remove(s, e);
    }
    for (int i = 0; i < p->count; i++) {
        step *st = &p->steps[i];
        if (!st->source && !st->problem) continue;
        proa_entry *e = proa_entry_add(s, st->name);
        if (!e) continue;
        proa_repo_op_add(op, e);
        e->explicit_load = true;
        e->seen_fingerprint = st->fingerprint;
        if (st->source) proa_entry_accept(e, step_take(st));
        else proa_entry_problem(e, st->problem);
    }
    proa_repo_op_widen(op);
}

static void sweep_run(proa_server *s)
{
    plan p = {.server = s};
    proa_repo_op op;
    proa_err err = {0};
    proa_repo_op_take_all(s, &op);
    if (proa_roots_list(s, &err) != PROA_OK || proa_folders_each(s, collect_folders, &p, &err) != PROA_OK) {
        /* With an unreadable root, models in it would look removed and be unloaded. */
        PROA_LOG(ERROR, "failed to poll model repository: %s", err.text);
    } else {
        sweep_look(&p);
        pthread_mutex_lock(&s->lock);
        sweep_apply(&p, &op);
        pthread_mutex_unlock(&s->lock);
        proa_repo_op_run(&op);
    }
    pthread_mutex_lock(&s->lock);
    s->exclusive = false;
    pthread_mutex_unlock(&s->lock);
    proa_repo_op_release(&op);
    plan_release(&p);
}

void proa_server_poll(proa_server *server)
{
    if (atomic_load(&server->phase) == PROA_SERVER_READY) sweep_run(server);
}

static void *poll_for_ever(void *arg)
{
    proa_server *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->poller_ends) {
        int64_t ns = proa_clock_ns() + (int64_t)s->options.poll_secs * 1000000000;
        struct timespec until = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        while (!s->poller_ends && pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT)
            continue;
        if (s->poller_ends) break;
        pthread_mutex_unlock(&s->lock);
        proa_server_poll(s);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void proa_poller_stop(proa_server *s)
{
    if (!s->poller_runs) return;
    pthread_mutex_lock(&s->lock);
    s->poller_ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->poller, NULL);
    s->poller_runs = false;
}

/* ---- the start ---- */

/* What did not load: how much, and the first in words. */
typedef struct failures {
    int count;
    proa_err first;
} failures;

static void add_failure(failures *f, const char *name, const char *reason)
{
    if (f->count++ == 0)
        (void)PROA_FAIL(&f->first, INTERNAL, "'%s': %s", name, reason ? reason : "it is not ready");
}

/* Adds the models that do not serve. */
static void find_failures(failures *f, proa_server *s)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->entries_count; i++) {
        const proa_entry *e = s->entries[i];
        if (!e->source && !e->problem && e->slots_count == 0) continue;
        if (e->problem || e->slots_count == 0) add_failure(f, e->name, e->problem);
        for (int k = 0; k < e->slots_count; k++)
            if (e->slots[k].state != PROA_STATE_READY) add_failure(f, e->name, e->slots[k].reason);
    }
    pthread_mutex_unlock(&s->lock);
}

static void load_at_start(failures *f, proa_server *s)
{
    const proa_server_options *o = &s->options;
    for (int i = 0; i < o->load_models_count; i++) {
        proa_err err = {0};
        if (load_named(s, o->load_models[i], &(proa_load_override){0}, &err) == PROA_OK) continue;
        PROA_LOG(ERROR, "%s", err.text);
        if (f->count++ == 0) proa_err_copy(&f->first, &err);
    }
}

static proa_status start_poller(proa_server *s, proa_err *err)
{
    int failed = pthread_create(&s->poller, NULL, poll_for_ever, s);
    if (failed) return PROA_FAIL(err, NO_MEMORY, "cannot start a thread: error %d", failed);
    s->poller_runs = true;
    return PROA_OK;
}

proa_status proa_lifecycle_start(proa_server *s, proa_err *err)
{
    const proa_server_options *o = &s->options;
    failures f = {.count = 0};
    bool star = false;
    for (int i = 0; i < o->load_models_count; i++) star |= strcmp(o->load_models[i], "*") == 0;
    if (o->control != PROA_CONTROL_EXPLICIT || star) sweep_run(s);
    else load_at_start(&f, s);
    if (o->control == PROA_CONTROL_POLL && o->poll_secs > 0) PROA_TRY(start_poller(s, err));
    if (f.count == 0) find_failures(&f, s);
    if (f.count == 0) return PROA_OK;
    if (f.count == 1) return PROA_FAIL(err, INTERNAL, "failed to load all models: %s", f.first.text);
    return PROA_FAIL(err, INTERNAL, "failed to load all models: %s (and %d more)", f.first.text, f.count - 1);
}

/* ---- control by requests ---- */

static proa_status check_control(proa_server *s, proa_err *err)
{
    if (atomic_load(&s->phase) != PROA_SERVER_READY) return PROA_FAIL(err, UNAVAILABLE, "Server not ready");
    if (s->options.control != PROA_CONTROL_EXPLICIT)
        return PROA_FAIL(err, UNAVAILABLE, "explicit model load / unload is not allowed if polling is enabled");
    return PROA_OK;
}

proa_status proa_server_load(proa_server *server, const char *name, const char *config_json,
                             const proa_model_file *files, int files_count, proa_err *err)
{
    const proa_upstream *up = server->options.upstream;
    if (up) return up->load(name, config_json, files, files_count, err);
    PROA_TRY(check_control(server, err));
    PROA_TRY(proa_name_check(name, err));
    PROA_TRY(proa_reserve_check(err));
    return load_named(server, name, &(proa_load_override){config_json, files, files_count}, err);
}

/* Does a wanted ensemble other than those of the operation use it? */
static bool needed_by_others(const proa_server *s, const proa_entry *e, const proa_repo_op *unloading)
{
    for (int i = 0; i < s->entries_count; i++) {
        const proa_entry *other = s->entries[i];
        if (other->source && !proa_repo_op_has(unloading, other) && proa_source_needs(other->source, e->name))
            return true;
    }
    return false;
}

/* Unloading an ensemble also unloads the models that were loaded only for it. Lock held. */
static void add_dependents(proa_repo_op *unloading)
{
    const proa_server *s = unloading->server;
    for (int i = 0; i < unloading->count; i++) {
        const proa_source *source = unloading->list[i]->source;
        if (!source || !proa_source_is_ensemble(source)) continue;
        const Inference__ModelEnsembling *steps = source->config->ensemble_scheduling;
        for (size_t k = 0; k < steps->n_step; k++) {
            proa_entry *m = proa_entry_find(s, steps->step[k]->model_name);
            if (m && m->source && !m->explicit_load && !needed_by_others(s, m, unloading))
                proa_repo_op_add(unloading, m);
        }
    }
}

/* The entries that leave and, in op, all that must look again. Lock held; false: wait and try again. */
static bool take_leaving(proa_repo_op *unloading, proa_repo_op *op)
{
    for (int i = 0; i < unloading->count; i++) {
        proa_repo_op_add(op, unloading->list[i]);
        if (!unloading->list[i]->busy) unloading->list[i]->needs_load = true;
    }
    return take_or_wait(op);
}

/* All models, or the one of that name; waits until no other operation has them. */
static void unload_entry(proa_server *s, const char *name, bool dependents)
{
    proa_repo_op op = {.server = s}, unloading = {.server = s};
    pthread_mutex_lock(&s->lock);
    for (;;) {
        for (int i = 0; i < s->entries_count; i++) {
            proa_entry *e = s->entries[i];
            if ((!name || strcmp(name, e->name) == 0) && (e->source || proa_entry_serves(e)))
                proa_repo_op_add(&unloading, e);
        }
        if (dependents) add_dependents(&unloading);
        if (take_leaving(&unloading, &op)) break;
        unloading.count = 0;
    }
    for (int i = 0; i < unloading.count; i++) proa_entry_remove(s, unloading.list[i]);
    pthread_mutex_unlock(&s->lock);
    proa_repo_op_run(&op);
    proa_repo_op_release(&op);
    free(unloading.list);
}

proa_status proa_server_unload(proa_server *server, const char *name, bool unload_dependents, proa_err *err)
{
    if (server->options.upstream) return server->options.upstream->unload(name, unload_dependents, err);
    PROA_TRY(check_control(server, err));
    unload_entry(server, name, unload_dependents); /* a name that is not known is no error: Triton's way */
    return PROA_OK;
}

void proa_lifecycle_unload_all(proa_server *s)
{
    unload_entry(s, NULL, false);
}
