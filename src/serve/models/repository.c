/* SPDX-License-Identifier: Apache-2.0
 * repository.c - the entries of the repository and their version slots. */
#include "base/alloc.h"
#include "base/limits.h"
#include "serve/core.h"
#include "serve/stats/stats.h"
#include <string.h>

/* Where an entry of that name is, or belongs. */
static int place_of(const proa_server *s, const char *name, bool *found)
{
    int low = 0, high = s->entries_count;
    *found = false;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(s->entries[middle]->name, name);
        if (order == 0) *found = true;
        if (order == 0) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

proa_entry *proa_entry_find(const proa_server *s, const char *name)
{
    bool found;
    int at = place_of(s, name, &found);
    return found ? s->entries[at] : NULL;
}

proa_entry *proa_entry_add(proa_server *s, const char *name)
{
    bool found;
    int at = place_of(s, name, &found);
    if (found) return s->entries[at];
    if (s->entries_count >= PROA_MODELS_MAX) return NULL;
    proa_entry *e = proa_calloc(1, sizeof *e);
    e->name = proa_strdup(name);
    memmove(&s->entries[at + 1], &s->entries[at], (size_t)(s->entries_count - at) * sizeof(proa_entry *));
    s->entries[at] = e;
    s->entries_count++;
    return e;
}

proa_version_slot *proa_entry_slot(proa_entry *e, int64_t version, bool add)
{
    int at = 0;
    while (at < e->slots_count && e->slots[at].version < version) at++;
    if (at < e->slots_count && e->slots[at].version == version) return &e->slots[at];
    if (!add) return NULL;
    e->slots = proa_realloc(e->slots, (size_t)(e->slots_count + 1) * sizeof *e->slots);
    memmove(&e->slots[at + 1], &e->slots[at], (size_t)(e->slots_count - at) * sizeof *e->slots);
    e->slots[at] = (proa_version_slot){.version = version, .stats = proa_stats_new()};
    e->slots_count++;
    return &e->slots[at];
}

void proa_version_slot_set(proa_version_slot *slot, proa_state state, const char *reason)
{
    free(slot->reason);
    slot->reason = reason ? proa_strdup(reason) : NULL;
    slot->state = state;
}

void proa_entry_problem(proa_entry *e, const char *problem)
{
    free(e->problem);
    e->problem = problem ? proa_strdup(problem) : NULL;
}

bool proa_entry_serves(const proa_entry *e)
{
    for (int i = 0; i < e->slots_count; i++)
        if (e->slots[i].model) return true;
    return false;
}

void proa_entries_free(proa_server *s)
{
    for (int i = 0; i < s->entries_count; i++) {
        proa_entry *e = s->entries[i];
        for (int k = 0; k < e->slots_count; k++) {
            free(e->slots[k].reason);
            proa_stats_free(e->slots[k].stats);
        }
        proa_source_drop(e->source);
        free(e->slots);
        free(e->problem);
        free(e->name);
        free(e);
    }
    free(s->entries);
    s->entries = NULL;
    s->entries_count = 0;
}

static proa_status why_not_ready(proa_entry *e, int64_t version, proa_err *err)
{
    if (version == -1)
        return PROA_FAIL(err, NOT_FOUND, "Request for unknown model: '%s' has no available versions", e->name);
    if (!proa_entry_slot(e, version, false))
        return PROA_FAIL(err, NOT_FOUND, "Request for unknown model: '%s' version %lld is not found", e->name,
                         (long long)version);
    return PROA_FAIL(err, UNAVAILABLE, "Request for unknown model: '%s' version %lld is not at ready state",
                     e->name, (long long)version);
}

/* Why no version is ready: Triton's texts. */
static proa_status explain_not_found(proa_server *s, const char *name, int64_t version, proa_err *err)
{
    if (atomic_load(&s->phase) == PROA_SERVER_STARTING)
        return PROA_FAIL(err, UNAVAILABLE, "Server not ready");
    pthread_mutex_lock(&s->lock);
    proa_entry *e = proa_entry_find(s, name);
    proa_status status;
    if (e && e->slots_count) status = why_not_ready(e, version, err);
    else if (s->options.namespacing)
        status = PROA_FAIL(err, INVALID, "Request for unknown model: '%s' is not found", name);
    else status = PROA_FAIL(err, NOT_FOUND, "Request for unknown model: '%s' is not found", name);
    pthread_mutex_unlock(&s->lock);
    return status;
}

proa_status proa_server_find(proa_server *server, const char *name, int64_t version, proa_served_model **out,
                             proa_err *err)
{
    *out = proa_name_table_find(server, name, version);
    return *out ? PROA_OK : explain_not_found(server, name, version, err);
}

void proa_server_each_model(proa_server *server, void (*fn)(proa_served_model *model, void *arg), void *arg)
{
    pthread_mutex_lock(&server->lock);
    for (int i = 0; i < server->entries_count; i++)
        for (int k = 0; k < server->entries[i]->slots_count; k++)
            if (server->entries[i]->slots[k].model) fn(server->entries[i]->slots[k].model, arg);
    pthread_mutex_unlock(&server->lock);
}

const char *proa_state_name(proa_state state)
{
    static const char *const names[] = {"UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"};
    return names[state];
}
