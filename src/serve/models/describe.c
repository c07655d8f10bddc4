/* SPDX-License-Identifier: Apache-2.0
 * describe.c - what the server reports: metadata, configuration, statistics, the repository index. */
#include "base/alloc.h"
#include "serve/core.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include <string.h>

/* All messages are the protocol's; all memory is the arena's. */

static const char *const extensions[] = {"classification",
                                         "sequence",
                                         "model_repository",
                                         "model_repository(unload_dependents)",
                                         "schedule_policy",
                                         "model_configuration",
                                         "system_shared_memory",
                                         "cuda_shared_memory",
                                         "binary_tensor_data",
                                         "parameters",
                                         "statistics",
                                         "trace",
                                         "logging"};

static char *dup_text(proa_arena *arena, const char *s)
{
    return proa_arena_strdup(arena, proa_str_c(s));
}

void proa_server_metadata(proa_server *server, Inference__ServerMetadataResponse **out, proa_arena *arena)
{
    Inference__ServerMetadataResponse *m = (void *)proa_message_new(
        &inference__server_metadata_response__descriptor, arena);
    m->name = dup_text(arena, server->options.id);
    m->version = dup_text(arena, PROA_VERSION);
    m->n_extensions = PROA_COUNT(extensions);
    m->extensions = PROA_ARENA_NEW(arena, char *, PROA_COUNT(extensions));
    for (size_t i = 0; i < PROA_COUNT(extensions); i++) m->extensions[i] = dup_text(arena, extensions[i]);
    *out = m;
}

/* ---- a model ---- */

static Inference__ModelMetadataResponse__TensorMetadata **add_tensor_metadata(const proa_io *ios, int count,
                                                                              proa_arena *arena)
{
    Inference__ModelMetadataResponse__TensorMetadata **list = PROA_ARENA_NEW(
        arena, Inference__ModelMetadataResponse__TensorMetadata *, count);
    for (int i = 0; i < count; i++) {
        list[i] = (void *)proa_message_new(&inference__model_metadata_response__tensor_metadata__descriptor,
                                           arena);
        list[i]->name = dup_text(arena, ios[i].name);
        list[i]->datatype = dup_text(arena, proa_type_name(ios[i].type));
        list[i]->n_shape = (size_t)ios[i].rank;
        list[i]->shape = PROA_ARENA_NEW(arena, int64_t, ios[i].rank);
        if (ios[i].rank) memcpy(list[i]->shape, ios[i].shape, (size_t)ios[i].rank * sizeof(int64_t));
    }
    return list;
}

static char *version_text(proa_arena *arena, int64_t version)
{
    return proa_arena_printf(arena, "%lld", (long long)version);
}

/* The requested version, or all that are ready. */
static void set_versions(proa_server *s, Inference__ModelMetadataResponse *m, const char *name,
                         int64_t version, proa_arena *arena)
{
    pthread_mutex_lock(&s->lock);
    const proa_entry *e = proa_entry_find(s, name);
    int slots = e ? e->slots_count : 0;
    m->versions = PROA_ARENA_NEW(arena, char *, slots);
    for (int i = 0; i < slots; i++)
        if (e->slots[i].model && (version == -1 || version == e->slots[i].version))
            m->versions[m->n_versions++] = version_text(arena, e->slots[i].version);
    pthread_mutex_unlock(&s->lock);
}

proa_status proa_server_model_metadata(proa_server *server, const char *name, int64_t version,
                                       Inference__ModelMetadataResponse **out, proa_arena *arena, proa_err *err)
{
    proa_served_model *model;
    PROA_TRY(proa_server_find(server, name, version, &model, err));
    Inference__ModelMetadataResponse *m = (void *)proa_message_new(
        &inference__model_metadata_response__descriptor, arena);
    const char *platform = model->config->platform;
    m->name = dup_text(arena, model->name);
    m->platform = dup_text(arena, platform && *platform ? platform : model->config->backend);
    m->n_inputs = (size_t)model->inputs_count;
    m->inputs = add_tensor_metadata(model->inputs, model->inputs_count, arena);
    m->n_outputs = (size_t)model->outputs_count;
    m->outputs = add_tensor_metadata(model->outputs, model->outputs_count, arena);
    proa_served_model_drop(model);
    set_versions(server, m, name, version, arena);
    *out = m;
    return PROA_OK;
}

proa_status proa_server_model_config(proa_server *server, const char *name, int64_t version,
                                     Inference__ModelConfigResponse **out, proa_arena *arena, proa_err *err)
{
    proa_served_model *model;
    PROA_TRY(proa_server_find(server, name, version, &model, err));
    Inference__ModelConfigResponse *m = (void *)proa_message_new(&inference__model_config_response__descriptor,
                                                                 arena);
    m->config = (void *)proa_message_copy(&model->config->base, arena);
    proa_served_model_drop(model);
    *out = m;
    return PROA_OK;
}

/* ---- statistics ---- */

static void add_stats(Inference__ModelStatisticsResponse *m, const proa_entry *e, int64_t version,
                      proa_arena *arena)
{
    for (int i = 0; i < e->slots_count; i++) {
        const proa_version_slot *slot = &e->slots[i];
        if (slot->model && (version == -1 || version == slot->version))
            m->model_stats[m->n_model_stats++] = proa_stats_message(slot->stats, e->name, slot->version, arena);
    }
}

static int count_slots(const proa_server *s)
{
    int n = 0;
    for (int i = 0; i < s->entries_count; i++) n += s->entries[i]->slots_count;
    return n;
}

proa_status proa_server_statistics(proa_server *server, const char *name, int64_t version,
                                   Inference__ModelStatisticsResponse **out, proa_arena *arena, proa_err *err)
{
    Inference__ModelStatisticsResponse *m = (void *)proa_message_new(
        &inference__model_statistics_response__descriptor, arena);
    proa_status status = PROA_OK;
    if (atomic_load(&server->phase) == PROA_SERVER_STARTING)
        return PROA_FAIL(err, UNAVAILABLE, "Server not ready");
    pthread_mutex_lock(&server->lock);
    m->model_stats = PROA_ARENA_NEW(arena, Inference__ModelStatistics *, count_slots(server));
    const proa_entry *one = *name ? proa_entry_find(server, name) : NULL;
    if (*name && !(one && proa_entry_serves(one)))
        status = PROA_FAIL(err, INVALID, "requested model '%s' is not available", name);
    else if (one) add_stats(m, one, version, arena);
    else
        for (int i = 0; i < server->entries_count; i++) add_stats(m, server->entries[i], -1, arena);
    pthread_mutex_unlock(&server->lock);
    if (status == PROA_OK && one && m->n_model_stats == 0)
        status = PROA_FAIL(err, INVALID, "requested model version is not available for model '%s'", name);
    *out = m;
    return status;
}

/* ---- the index ---- */

typedef struct folder_names {
    char **names;
    int count, cap;
} folder_names;

static bool add_name(void *arg, const char *name, const char *path)
{
    folder_names *f = arg;
    (void)path;
    if (f->count == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 32;
        f->names = proa_realloc(f->names, (size_t)f->cap * sizeof *f->names);
    }
    f->names[f->count++] = proa_strdup(name);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_row(Inference__RepositoryIndexResponse *m, proa_arena *arena, const char *name,
                    const char *version, const char *state, const char *reason)
{
    Inference__RepositoryIndexResponse__ModelIndex *row = (void *)proa_message_add(&m->base, "models", arena);
    row->name = dup_text(arena, name);
    row->version = dup_text(arena, version);
    row->state = dup_text(arena, state);
    row->reason = dup_text(arena, reason ? reason : "");
}

/* The index rows of a model: one for each version, or one with the reason why there is none. Lock held. */
static void index_entry(Inference__RepositoryIndexResponse *m, const proa_entry *e, bool ready_only,
                        proa_arena *arena)
{
    for (int i = 0; i < e->slots_count; i++) {
        const proa_version_slot *slot = &e->slots[i];
        if (!ready_only || slot->state == PROA_STATE_READY)
            add_row(m, arena, e->name, version_text(arena, slot->version), proa_state_name(slot->state),
                    slot->reason);
    }
    if (e->slots_count || ready_only) return;
    if (e->problem) add_row(m, arena, e->name, "", proa_state_name(PROA_STATE_UNAVAILABLE), e->problem);
    else add_row(m, arena, e->name, "", "", NULL);
}

/* Is it worth a row: more than a name without a folder? Lock held. */
static bool worth_a_row(const proa_entry *e, bool in_folder)
{
    return in_folder || e->source || proa_entry_serves(e);
}

/* Folders and entries are both sorted: one walk over both. Lock held. */
static void index_all(Inference__RepositoryIndexResponse *m, const proa_server *s, const folder_names *f,
                      bool ready_only, proa_arena *arena)
{
    int i = 0, k = 0;
    while (i < f->count || k < s->entries_count) {
        int order = i == f->count ? 1 : k == s->entries_count ? -1 : strcmp(f->names[i], s->entries[k]->name);
        const proa_entry *e = order < 0 ? NULL : s->entries[k++];
        const char *name = e ? e->name : f->names[i];
        int first = i;
        while (i < f->count && strcmp(f->names[i], name) == 0) i++;
        if (i - first > 1) { /* Triton lists it among the ready ones too */
            add_row(m, arena, name, "", proa_state_name(PROA_STATE_UNAVAILABLE),
                    "model appears in two or more repositories");
        } else if (!e) {
            if (!ready_only) add_row(m, arena, name, "", "", NULL);
        } else if (worth_a_row(e, i > first)) {
            index_entry(m, e, ready_only, arena);
        }
    }
}

proa_status proa_server_index(proa_server *server, bool ready_only, Inference__RepositoryIndexResponse **out,
                              proa_arena *arena, proa_err *err)
{
    folder_names f = {0};
    if (atomic_load(&server->phase) != PROA_SERVER_READY)
        return PROA_FAIL(err, UNAVAILABLE, "Server not ready");
    Inference__RepositoryIndexResponse *m = (void *)proa_message_new(
        &inference__repository_index_response__descriptor, arena);
    proa_status status = proa_folders_each(server, add_name, &f, err);
    if (f.count) qsort(f.names, (size_t)f.count, sizeof *f.names, by_name);
    pthread_mutex_lock(&server->lock);
    if (status == PROA_OK) index_all(m, server, &f, ready_only, arena);
    pthread_mutex_unlock(&server->lock);
    for (int i = 0; i < f.count; i++) free(f.names[i]);
    free(f.names);
    *out = m;
    return status;
}

/* ---- figures for the page ---- */

static void put_comma(proa_buf *out)
{
    if (out->len && out->ptr[out->len - 1] == '}') proa_buf_char(out, ',');
}

static void figures_of(proa_served_model *model, void *arg)
{
    proa_buf *out = arg;
    proa_stats_sums sums;
    proa_stats_read(model->stats, &sums);
    put_comma(out);
    proa_buf_printf(out, "{\"name\":");
    proa_buf_json_str(out, proa_str_c(model->name));
    proa_buf_printf(out, ",\"version\":\"%lld\",\"state\":\"READY\",\"backend\":", (long long)model->version);
    proa_buf_json_str(out, proa_str_c(model->backend ? model->backend->name : "ensemble"));
    proa_buf_printf(out, ",\"requests\":%llu,\"failures\":%llu,\"executions\":%llu,\"queue\":%lld",
                    (unsigned long long)sums.success.count, (unsigned long long)sums.fail.count,
                    (unsigned long long)sums.executions, (long long)proa_scheduler_pending(model->scheduler));
    if (model->backend && model->backend->figures) {
        size_t before = out->len;
        proa_buf_char(out, ',');
        model->backend->figures(model->state, out);
        if (out->len == before + 1) out->ptr[--out->len] = 0; /* it had nothing to say */
    }
    proa_buf_char(out, '}');
}

static void figures_of_others(const proa_server *s, proa_buf *out)
{
    for (int i = 0; i < s->entries_count; i++) {
        const proa_entry *e = s->entries[i];
        if (proa_entry_serves(e) || (!e->source && !e->problem)) continue;
        const proa_version_slot *slot = e->slots_count ? &e->slots[e->slots_count - 1] : NULL;
        put_comma(out);
        proa_buf_printf(out, "{\"name\":");
        proa_buf_json_str(out, proa_str_c(e->name));
        proa_buf_printf(
            out, ",\"state\":\"%s\",\"reason\":", proa_state_name(slot ? slot->state : PROA_STATE_UNAVAILABLE));
        const char *reason = slot ? slot->reason : e->problem;
        proa_buf_json_str(out, proa_str_c(reason ? reason : ""));
        proa_buf_char(out, '}');
    }
}

void proa_server_figures(proa_server *server, proa_buf *out)
{
    proa_buf_char(out, '[');
    proa_server_each_model(server, figures_of, out);
    pthread_mutex_lock(&server->lock);
    figures_of_others(server, out);
    pthread_mutex_unlock(&server->lock);
    proa_buf_char(out, ']');
}
