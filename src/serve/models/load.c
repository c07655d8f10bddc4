/* SPDX-License-Identifier: Apache-2.0
 * load.c - opens the versions of models, several at a time, and puts them in service together or not at all. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/core.h"
#include <string.h>

/* One entry that loads: its versions go in service together, when the last of them is open, or none does. */
typedef struct load {
    proa_entry *entry;
    proa_source *source;
    int64_t *versions;
    int count, left;
    struct job *jobs; /* count of them */
} load;

typedef struct job {
    load *load;
    int64_t version;
    proa_model_stats *stats;
    bool keep;                /* the serving one is the same: nothing to do */
    proa_served_model *model; /* opened */
    proa_err err;
} job;

typedef struct load_workers {
    proa_server *server;
    job **jobs;
    int count;
    atomic_int next;
} load_workers;

/* "Invalid argument: text", the form of a reason in the repository index. malloc'd. */
static char *error_text(const proa_err *err)
{
    static const struct {
        proa_status status;
        const char *name;
    } names[] = {{PROA_INVALID, "Invalid argument"}, {PROA_NOT_FOUND, "Not found"},
                 {PROA_UNAVAILABLE, "Unavailable"},  {PROA_UNSUPPORTED, "Unsupported"},
                 {PROA_EXISTS, "Already exists"},    {PROA_CANCELLED, "Cancelled"}};
    const char *name = "Internal";
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (names[i].status == err->status) name = names[i].name;
    char *why = proa_err_whole_text(err);
    size_t bytes = strlen(name) + strlen(why) + 3;
    char *text = proa_malloc(bytes);
    snprintf(text, bytes, "%s: %s", name, why);
    free(why);
    return text;
}

/* ---- before ---- */

/* The source of the folder that an agent has made takes the place of the entry's, and its agents. A configuration that
 * came with the load request stays; else the folder's is read. */
static proa_status move_source(proa_server *s, proa_entry *e, const char *folder, proa_err *err)
{
    proa_source *old = e->source, *fresh = NULL;
    proa_buf json;
    proa_buf_init(&json, (size_t)PROA_BACKEND_CONFIG_MAX);
    if (old->overridden && !proa_config_print_json(&json, old->config)) {
        proa_buf_release(&json);
        return PROA_FAIL(err, INTERNAL, "the configuration of model '%s' is too long", old->name);
    }
    proa_status status = proa_source_new(&fresh, s, old->name, folder, old->overridden ? json.ptr : NULL, err);
    proa_buf_release(&json);
    if (status != PROA_OK) return status;
    fresh->fingerprint = old->fingerprint; /* a change of the repository's folder is one of the model */
    fresh->origin = proa_arena_copy_text(&fresh->arena, old->origin ? old->origin : old->path);
    fresh->agents = old->agents;
    old->agents = NULL;
    pthread_mutex_lock(&s->lock);
    e->source = fresh;
    pthread_mutex_unlock(&s->lock);
    proa_source_drop(old);
    return PROA_OK;
}

/* Asks the agents of the entry's configuration, who may move the model to another folder. */
static proa_status ask_agents(proa_server *s, proa_entry *e, proa_err *err)
{
    const char *folder;
    PROA_TRY(proa_agents_ask(&folder, s, e->source, err));
    return strcmp(folder, e->source->path) == 0 ? PROA_OK : move_source(s, e, folder, err);
}

/* The serving version was made from the same configuration and files. Lock held. */
static bool same_as_serving(const proa_version_slot *slot, const proa_source *source)
{
    return slot->model && proa_source_same(slot->model->source, source) &&
           slot->model->fingerprint == proa_source_version_fingerprint(source, slot->version);
}

static void load_begin(proa_server *s, load *l)
{
    l->jobs = proa_calloc((size_t)l->count, sizeof *l->jobs);
    l->left = l->count;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < l->count; i++) {
        proa_version_slot *slot = proa_entry_slot(l->entry, l->versions[i], true);
        l->jobs[i] = (job){.load = l, .version = l->versions[i], .stats = slot->stats};
        l->jobs[i].keep = same_as_serving(slot, l->source);
        if (!slot->model)
            proa_version_slot_set(slot, PROA_STATE_LOADING, NULL); /* else it serves on meanwhile */
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- after the last version ---- */

static const job *failed_job(const load *l)
{
    for (int i = 0; i < l->count; i++)
        if (l->jobs[i].err.status != PROA_OK) return &l->jobs[i];
    return NULL;
}

/* Closes the versions that were opened; what served before goes on serving. Lock held. */
static void give_up(load *l)
{
    proa_entry *e = l->entry;
    proa_buf text;
    proa_buf_init(&text, (size_t)l->count * (PROA_ERR_TEXT_MAX + 128));
    for (int i = 0; i < l->count; i++) {
        job *j = &l->jobs[i];
        proa_version_slot *slot = proa_entry_slot(e, j->version, false);
        char *reason = j->err.status == PROA_OK ? NULL : error_text(&j->err);
        if (reason)
            proa_buf_printf(&text, "version %lld is at UNAVAILABLE state: %s;\n", (long long)j->version, reason);
        if (!slot->model) proa_version_slot_set(slot, PROA_STATE_UNAVAILABLE, reason ? reason : "unloaded");
        free(reason);
    }
    proa_err_clear(&e->outcome);
    (void)PROA_FAIL(&e->outcome, INVALID, "%s", text.ptr ? text.ptr : failed_job(l)->err.text);
    proa_buf_release(&text);
}

static bool is_wanted(const load *l, int64_t version)
{
    for (int i = 0; i < l->count; i++)
        if (l->versions[i] == version) return true;
    return false;
}

/* New versions replace old ones; versions that the policy no longer wants are retired. Lock held. */
static void put_in_service(proa_server *s, load *l)
{
    proa_entry *e = l->entry;
    proa_retired *gone = NULL;
    for (int i = 0; i < e->slots_count; i++) {
        if (!e->slots[i].model || is_wanted(l, e->slots[i].version)) continue;
        gone = proa_retire(s, e, &e->slots[i], gone);
        proa_version_slot_set(&e->slots[i], PROA_STATE_UNLOADING, NULL);
    }
    for (int i = 0; i < l->count; i++) {
        proa_version_slot *slot = proa_entry_slot(e, l->jobs[i].version, false);
        if (l->jobs[i].keep) continue;
        if (slot->model) gone = proa_retire(s, e, slot, gone);
        slot->model = l->jobs[i].model;
        l->jobs[i].model = NULL;
        atomic_fetch_add(&l->source->serving, 1);
        atomic_store(&slot->model->state_now, PROA_STATE_READY);
        proa_version_slot_set(slot, PROA_STATE_READY, NULL);
    }
    proa_entry_problem(e, NULL);
    proa_err_clear(&e->outcome);
    proa_name_table_publish(s);
    proa_retire_release(s, gone);
}

static void load_end(proa_server *s, load *l)
{
    const job *bad = failed_job(l);
    proa_source *source = proa_source_hold(l->source); /* the entry may get another one as soon as this one is done */
    pthread_mutex_lock(&s->lock);
    if (bad) give_up(l);
    else put_in_service(s, l);
    l->entry->done = true;
    pthread_mutex_unlock(&s->lock);
    if (bad) PROA_LOG(INFO, "failed to load '%s'", l->entry->name);
    else PROA_LOG(INFO, "successfully loaded '%s'", l->entry->name);
    for (int i = 0; i < l->count; i++) {
        if (!l->jobs[i].model) continue;
        atomic_fetch_sub(&l->jobs[i].model->refs, 1); /* it was never published */
        proa_served_model_close(l->jobs[i].model);
    }
    proa_agents_load_ended(source, !bad);
    proa_source_drop(source);
}

/* ---- the threads that open versions ---- */

static void open_version(proa_server *s, job *j)
{
    load *l = j->load;
    PROA_LOG(INFO, "loading: %s:%lld", l->entry->name, (long long)j->version);
    for (int i = 0; i <= s->options.load_retries; i++) {
        proa_err_clear(&j->err);
        if (proa_served_model_open(&j->model, s, l->source, j->version, j->stats, &j->err) == PROA_OK) return;
        char *why = proa_err_whole_text(&j->err);
        PROA_LOG(ERROR, "failed to load '%s' version %lld: %s", l->entry->name, (long long)j->version, why);
        free(why);
    }
}

static void job_ends(proa_server *s, load *l)
{
    pthread_mutex_lock(&s->lock);
    bool last = --l->left == 0;
    pthread_mutex_unlock(&s->lock);
    if (last) load_end(s, l);
}

static void *loader_thread(void *arg)
{
    load_workers *c = arg;
    for (int i; (i = atomic_fetch_add(&c->next, 1)) < c->count;) {
        job *j = c->jobs[i];
        if (!j->keep) open_version(c->server, j);
        job_ends(c->server, j->load);
    }
    return NULL;
}

static void run_loaders(load_workers *c, int threads)
{
    pthread_t extra[PROA_THREADS_MAX];
    int started = 0, most = threads < c->count ? threads : c->count;
    while (started < most - 1 && started < PROA_THREADS_MAX &&
           pthread_create(&extra[started], NULL, loader_thread, c) == 0)
        started++; /* with fewer it only takes longer */
    loader_thread(c);
    for (int i = 0; i < started; i++) pthread_join(extra[i], NULL);
}

/* No version to load, or an agent refuses: what serves goes on serving, as in Triton. */
static void nothing_to_load(proa_server *s, proa_entry *e, const proa_err *err)
{
    char *why = proa_err_whole_text(err);
    PROA_LOG(ERROR, "failed to load model '%s': %s", e->name, why);
    pthread_mutex_lock(&s->lock);
    e->outcome = *err;
    e->done = true;
    proa_entry_problem(e, why);
    pthread_mutex_unlock(&s->lock);
    free(why);
}

/* Finds the versions of an entry that are to be loaded. False: there is nothing to load, which the entry says. */
static bool begin_entry(proa_server *s, load *l, proa_entry *e)
{
    proa_err err = {0};
    proa_status status = ask_agents(s, e, &err);
    *l = (load){.entry = e, .source = e->source};
    if (status == PROA_OK) status = proa_source_versions(l->source, &l->versions, &l->count, &err);
    if (status == PROA_OK) {
        load_begin(s, l);
        return true;
    }
    proa_agents_load_ended(l->source, false);
    nothing_to_load(s, e, &err);
    return false;
}

void proa_load_entries(proa_server *s, proa_entry *const *entries, int count)
{
    load *loads = proa_calloc((size_t)count, sizeof *loads);
    load_workers c = {.server = s};
    int used = 0, total = 0;
    for (int i = 0; i < count; i++) {
        if (!begin_entry(s, &loads[used], entries[i])) continue;
        total += loads[used].count;
        used++;
    }
    c.jobs = proa_calloc((size_t)total, sizeof(job *));
    for (int i = 0; i < used; i++)
        for (int k = 0; k < loads[i].count; k++) c.jobs[c.count++] = &loads[i].jobs[k];
    run_loaders(&c, s->options.load_threads);
    for (int i = 0; i < used; i++) {
        free(loads[i].versions);
        free(loads[i].jobs);
    }
    free(c.jobs);
    free(loads);
}
