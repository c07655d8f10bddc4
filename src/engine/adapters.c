/* SPDX-License-Identifier: Apache-2.0
 * adapters.c - adapters by name, and which of them are in slots. */
#include "engine/adapters.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/access.h"
#include "engine/engine.h"
#include "model/lora/lora.h"
#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

static proa_status in_range(const char *name, int64_t value, int64_t max, proa_err *err)
{
    if (value >= 0 && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %lld, must be 0 to %lld", name, (long long)value,
                     (long long)max);
}

proa_status proa_adapters_sizes(proa_sizes *s, const proa_engine_options *o, proa_err *err)
{
    enum { RANK_DEFAULT = 16 };
    if (!o) return PROA_OK;
    PROA_TRY(in_range("lora-slots", o->adapter_slots, PROA_LORA_SLOTS_MAX, err));
    PROA_TRY(in_range("lora-max", o->adapters_max, PROA_LORA_ADAPTERS_MAX, err));
    PROA_TRY(in_range("lora-rank", o->adapter_rank, PROA_LORA_RANK_MAX, err));
    PROA_TRY(in_range("lora", o->adapters_count, PROA_LORA_ADAPTERS_MAX, err));
    int64_t rank = RANK_DEFAULT, low_rank = 0;
    for (int32_t i = 0; i < o->adapters_count; i++) {
        int64_t own;
        PROA_TRY(proa_adapter_rank(&own, o->adapters[i].path, err));
        rank = proa_max64(rank, own);
        low_rank += own > 0;
    }
    s->model.lora_rank = o->adapter_rank ? o->adapter_rank : (int32_t)rank;
    s->model.lora_slots = o->adapter_slots ? o->adapter_slots
                                           : (int32_t)proa_min64(low_rank, PROA_LORA_SLOTS_MAX);
    if (!s->model.lora_slots) s->model.lora_slots = (int32_t)proa_min64(o->adapters_max, PROA_LORA_SLOTS_MAX);
    const char *dtype = o->adapter_dtype ? o->adapter_dtype : "auto";
    static const char *const types[] = {
        [PROA_LORA_AUTO] = "auto", [PROA_LORA_EXACT] = "exact", [PROA_LORA_FP8] = "fp8"};
    const int count = (int)(sizeof types / sizeof types[0]);
    int type = 0;
    while (type < count && strcmp(dtype, types[type]) != 0) type++;
    if (type == count)
        return PROA_FAIL(err, INVALID, "option 'lora-dtype' is '%.40s', must be auto, exact or fp8", dtype);
    s->model.lora_type = (proa_lora_type)type;
    s->adapters_max = o->adapters_max ? o->adapters_max : s->model.lora_slots;
    if (s->adapters_max < o->adapters_count) s->adapters_max = o->adapters_count;
    return PROA_OK;
}

/* ---- life ---- */

void proa_adapters_init(proa_adapters *a, proa_model *m, int32_t max)
{
    *a = (proa_adapters){.model = m, .max = max};
    pthread_mutex_init(&a->lock, NULL);
    a->in_slot = proa_calloc((size_t)m->lora.slots + 1, sizeof(proa_adapter *));
}

static void free_adapter(proa_adapter *adapter)
{
    proa_adapter_free(adapter->owner->model, adapter->image);
    proa_prompt_table_free(adapter->table);
    free(adapter->name);
    free(adapter->path);
    free(adapter);
}

void proa_adapters_release_all(proa_adapters *a)
{
    if (!a->model) return;
    for (proa_adapter *next, *at = a->first; at; at = next) next = at->next, free_adapter(at);
    free(a->in_slot);
    proa_prompt_tasks_release(&a->tasks);
    pthread_mutex_destroy(&a->lock);
    *a = (proa_adapters){0};
}

/* ---- by name; the lock is held ---- */

static proa_adapter *find_loaded(const proa_adapters *a, const char *name)
{
    proa_adapter *at = a->first;
    while (at && !(at->loaded && strcmp(at->name, name) == 0)) at = at->next;
    return at;
}

/* Names of those that are loaded, as far as there is room. */
static void list_names(const proa_adapters *a, char *out, size_t size)
{
    size_t len = (size_t)snprintf(out, size, "%s", a->count ? "loaded:" : "none is loaded");
    for (const proa_adapter *at = a->first; at && len + 1 < size; at = at->next)
        if (at->loaded && at->name[0]) len += (size_t)snprintf(out + len, size - len, " %s", at->name);
}

/* Unlinks and frees an adapter that is neither loaded nor used. */
static void remove_unused(proa_adapters *a, proa_adapter *adapter)
{
    proa_adapter **link = &a->first;
    if (adapter->loaded || adapter->refs > 0) return;
    while (*link != adapter) link = &(*link)->next;
    *link = adapter->next;
    if (adapter->slot >= 0) a->in_slot[adapter->slot] = NULL;
    a->count -= adapter->name[0] != '\0';
    free_adapter(adapter);
}

static proa_status check_name(const char *name, proa_err *err)
{
    size_t len = name ? strlen(name) : 0;
    if (len == 0) return PROA_FAIL(err, INVALID, "an adapter needs a name");
    if (len >= PROA_LORA_NAME_MAX)
        return PROA_FAIL(err, LIMIT, "an adapter's name has at most %d bytes", PROA_LORA_NAME_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < ' ')
            return PROA_FAIL(err, INVALID, "an adapter's name has a control character");
    return PROA_OK;
}

/* Whether there is room for an adapter of that name. */
static proa_status check_room(const proa_adapters *a, const char *name, proa_err *err)
{
    if (find_loaded(a, name)) return PROA_FAIL(err, EXISTS, "an adapter '%s' is loaded already", name);
    if (a->count < a->max) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "there are %d adapters already, as many as this engine takes (--lora-max)",
                     a->max);
}

/* Appends an adapter; the lock is held. */
static proa_adapter *add_adapter(proa_adapters *a, const char *name, const char *path, char *image,
                                 proa_prompt_table *table)
{
    proa_adapter **last = &a->first, *adapter = proa_calloc(1, sizeof *adapter);
    *adapter = (proa_adapter){
        .owner = a, .image = image, .table = table, .loaded = true, .slot = -1, .id = ++a->next_id};
    adapter->name = proa_strdup(name), adapter->path = proa_strdup(path);
    while (*last) last = &(*last)->next;
    adapter->used = ++a->now;
    return *last = adapter;
}

/* ---- loading ---- */

proa_status proa_adapters_take(proa_adapters *a, const char *name, const char *path, char *image,
                               proa_prompt_table *table, proa_err *err)
{
    proa_status status = image || table ? check_name(name, err)
                                        : PROA_FAIL(err, NO_MEMORY, "no memory for an adapter");
    pthread_mutex_lock(&a->lock);
    if (status == PROA_OK) status = check_room(a, name, err);
    if (status == PROA_OK) add_adapter(a, name, path, image, table), a->count++;
    pthread_mutex_unlock(&a->lock);
    if (status != PROA_OK) proa_adapter_free(a->model, image), proa_prompt_table_free(table);
    return status;
}

proa_status proa_adapters_load(proa_adapters *a, const char *name, const char *path, proa_err *err)
{
    char *image;
    proa_prompt_table *table;
    PROA_TRY(check_name(name, err));
    if (!path || !*path) return PROA_FAIL(err, INVALID, "adapter '%s' needs a path", name);
    pthread_mutex_lock(&a->lock);
    proa_status status = check_room(a, name, err);
    pthread_mutex_unlock(&a->lock);
    if (status != PROA_OK) return status;
    PROA_TRY(proa_adapter_read(&image, &table, a->model, path, err));
    return proa_adapters_take(a, name, path, image, table, err);
}

proa_status proa_adapters_load_tasks(proa_adapters *a, const char *path, proa_err *err)
{
    PROA_TRY(proa_prompt_tasks_read(&a->tasks, a->model, path, err));
    for (int32_t i = 0; i < a->tasks.count; i++) {
        proa_prompt_table *table = a->tasks.task[i].table;
        if (!table) continue;
        a->tasks.task[i].table = NULL;
        a->max++;
        proa_status status = proa_adapters_take(a, a->tasks.task[i].name, path, NULL, table, err);
        if (status != PROA_OK) return proa_err_prefix(err, "%s/config.ini", path), status;
    }
    return PROA_OK;
}

proa_status proa_adapters_unload(proa_adapters *a, const char *name, proa_err *err)
{
    char names[256];
    proa_status status = PROA_OK;
    pthread_mutex_lock(&a->lock);
    proa_adapter *adapter = name ? find_loaded(a, name) : NULL;
    if (adapter) adapter->loaded = false, remove_unused(a, adapter);
    else {
        list_names(a, names, sizeof names);
        status = PROA_FAIL(err, NOT_FOUND, "no adapter '%.64s' is loaded (%s)", name ? name : "", names);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- requests ---- */

proa_status proa_adapters_ref(proa_adapters *a, const char *name, proa_adapter **out, proa_err *err)
{
    char names[256];
    *out = NULL;
    if (!name || !*name) return PROA_OK;
    pthread_mutex_lock(&a->lock);
    *out = find_loaded(a, name);
    if (*out) (*out)->refs++;
    else list_names(a, names, sizeof names);
    pthread_mutex_unlock(&a->lock);
    if (*out) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option 'adapter': there is no adapter '%.64s' (%s)", name, names);
}

static int64_t table_bytes(const proa_adapters *a, const proa_prompt_table *table)
{
    return proa_prompt_table_count(a->model, table) * (int64_t)sizeof *table->values;
}

/* The loaded table without a name that is equal; NULL: there is none. */
static proa_adapter *find_table(const proa_adapters *a, const proa_prompt_table *table)
{
    size_t bytes = (size_t)table_bytes(a, table);
    for (proa_adapter *at = a->first; at; at = at->next) {
        const proa_prompt_table *t = at->table;
        if (at->name[0] || t->tokens != table->tokens || t->keys != table->keys) continue;
        if (memcmp(t->values, table->values, bytes) == 0) return at;
    }
    return NULL;
}

/* Frees the oldest tables without a name that no request uses, until they take PROA_PROMPT_TABLES_KEPT bytes. */
static void drop_old_tables(proa_adapters *a)
{
    for (proa_adapter *oldest = NULL;; oldest = NULL) {
        int64_t bytes = 0;
        for (proa_adapter *at = a->first; at; at = at->next) {
            if (at->name[0] || at->refs > 0) continue;
            bytes += table_bytes(a, at->table);
            if (!oldest || at->used < oldest->used) oldest = at;
        }
        if (bytes <= PROA_PROMPT_TABLES_KEPT) return;
        oldest->loaded = false;
        remove_unused(a, oldest);
    }
}

proa_adapter *proa_adapters_ref_table(proa_adapters *a, proa_prompt_table *table)
{
    pthread_mutex_lock(&a->lock);
    proa_adapter *adapter = find_table(a, table);
    if (adapter) proa_prompt_table_free(table);
    else adapter = add_adapter(a, "", "", NULL, table);
    adapter->refs++;
    adapter->used = ++a->now;
    pthread_mutex_unlock(&a->lock);
    return adapter;
}

void proa_adapters_unref(proa_adapter *adapter)
{
    if (!adapter) return;
    proa_adapters *a = adapter->owner;
    pthread_mutex_lock(&a->lock);
    adapter->refs--;
    bool kept = !adapter->name[0];
    remove_unused(a, adapter);
    if (kept) drop_old_tables(a);
    pthread_mutex_unlock(&a->lock);
}

/* An empty slot, else that of the adapter which no running request uses and which was used least recently; -1: none. */
static int32_t find_slot(const proa_adapters *a)
{
    int32_t best = -1;
    for (int32_t i = 0; i < a->model->lora.slots; i++) {
        const proa_adapter *in = a->in_slot[i];
        if (!in) return i;
        if (in->running == 0 && (best < 0 || in->used < a->in_slot[best]->used)) best = i;
    }
    return best;
}

bool proa_adapters_admit(proa_adapter *adapter)
{
    if (!adapter || adapter->table) return true;
    proa_adapters *a = adapter->owner;
    pthread_mutex_lock(&a->lock);
    int32_t slot = adapter->slot >= 0 ? adapter->slot : find_slot(a);
    if (slot >= 0 && slot != adapter->slot) {
        if (a->in_slot[slot]) a->in_slot[slot]->slot = -1;
        a->in_slot[slot] = adapter, adapter->slot = slot;
        proa_model_set_adapter(a->model, slot, adapter->image);
    }
    if (slot >= 0) adapter->running++, adapter->used = ++a->now;
    pthread_mutex_unlock(&a->lock);
    return slot >= 0;
}

void proa_adapters_forget_slots(proa_adapters *a)
{
    pthread_mutex_lock(&a->lock);
    for (int32_t i = 0; i < a->model->lora.slots; i++) {
        if (a->in_slot[i]) a->in_slot[i]->slot = -1;
        a->in_slot[i] = NULL;
    }
    pthread_mutex_unlock(&a->lock);
}

void proa_adapters_release(proa_adapter *adapter)
{
    if (!adapter || adapter->table) return;
    pthread_mutex_lock(&adapter->owner->lock);
    adapter->running--;
    pthread_mutex_unlock(&adapter->owner->lock);
}

bool proa_engine_task(const proa_engine *engine, int64_t number, const char **adapter)
{
    const proa_prompt_tasks *tasks = &engine->adapters.tasks;
    if (number < 0 || number >= tasks->count) return false;
    *adapter = tasks->task[number].tokens ? tasks->task[number].name : NULL;
    return true;
}

int64_t proa_engine_task_ids(const proa_engine *engine, bool *named)
{
    const proa_prompt_tasks *tasks = &engine->adapters.tasks;
    *named = !tasks->keys;
    return tasks->start_id;
}

/* ---- the library's functions ---- */

proa_status proa_engine_load_adapter(proa_engine *engine, const char *name, const char *path, proa_err *err)
{
    return proa_adapters_load(&engine->adapters, name, path, err);
}

/* The adapter that was loaded from tensors and used least recently, by no request; the lock is held. NULL: none. */
static proa_adapter *find_oldest_rows(const proa_adapters *a)
{
    proa_adapter *oldest = NULL;
    for (proa_adapter *at = a->first; at; at = at->next)
        if (at->loaded && at->image && !at->path[0] && !at->refs && (!oldest || at->used < oldest->used))
            oldest = at;
    return oldest;
}

proa_status proa_engine_load_adapter_rows(proa_engine *engine, const char *name,
                                          const proa_adapter_rows *rows, proa_err *err)
{
    proa_adapters *a = &engine->adapters;
    char *image;
    PROA_TRY(check_name(name, err));
    pthread_mutex_lock(&a->lock);
    bool exists = find_loaded(a, name) != NULL;
    pthread_mutex_unlock(&a->lock);
    if (exists) return PROA_FAIL(err, EXISTS, "an adapter '%s' is loaded already", name);
    PROA_TRY(proa_adapter_read_rows(&image, a->model, rows, err));
    pthread_mutex_lock(&a->lock);
    proa_adapter *oldest = a->count >= a->max ? find_oldest_rows(a) : NULL;
    if (oldest) oldest->loaded = false, remove_unused(a, oldest);
    pthread_mutex_unlock(&a->lock);
    return proa_adapters_take(a, name, "", image, NULL, err);
}

proa_status proa_engine_unload_adapter(proa_engine *engine, const char *name, proa_err *err)
{
    return proa_adapters_unload(&engine->adapters, name, err);
}

int32_t proa_engine_adapters(const proa_engine *engine,
                             void (*see)(void *arg, const char *name, const char *path), void *arg)
{
    proa_adapters *a = (proa_adapters *)(uintptr_t)&engine->adapters;
    int32_t count = 0;
    pthread_mutex_lock(&a->lock);
    for (const proa_adapter *at = a->first; at; at = at->next)
        if (at->loaded && at->name[0]) {
            if (see) see(arg, at->name, at->path);
            count++;
        }
    pthread_mutex_unlock(&a->lock);
    return count;
}

proa_status proa_engine_random_adapters(proa_engine *engine, int32_t count, const char *modules, int32_t rank,
                                        proa_err *err)
{
    for (int32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "random-%d", i);
        char *image = proa_adapter_random(engine->model, modules, rank, (uint64_t)i + 1);
        PROA_TRY(proa_adapters_take(&engine->adapters, name, "", image, NULL, err));
    }
    return PROA_OK;
}
