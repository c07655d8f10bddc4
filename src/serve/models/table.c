/* SPDX-License-Identifier: Apache-2.0
 * table.c - the table in which requests look up models without a lock. */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/map.h"
#include "serve/core.h"
#include "serve/rcu.h"
#include <string.h>

/* The versions that serve at one moment. Read-only once published: requests use it without a lock (rcu.h). */
typedef struct row {
    int first, count; /* in versions: rising */
} row;
typedef struct version {
    int64_t version;
    proa_served_model *model;
} version;

struct proa_name_table {
    proa_map names; /* the keys are in the entries, which live as long as the server */
    row *rows;
    version *versions;
};

static const version *find_version(const proa_name_table *t, const row *r, int64_t wanted)
{
    if (wanted == -1) return &t->versions[r->first + r->count - 1];
    for (int i = r->first; i < r->first + r->count; i++)
        if (t->versions[i].version == wanted) return &t->versions[i];
    return NULL;
}

proa_served_model *proa_name_table_find(proa_server *s, const char *name, int64_t version_wanted)
{
    proa_served_model *model = NULL;
    int32_t at;
    proa_rcu_enter();
    const proa_name_table *t = atomic_load(&s->table);
    if (t && proa_map_find(&t->names, proa_str_c(name), &at)) {
        const version *v = find_version(t, &t->rows[at], version_wanted);
        if (v) model = proa_served_model_hold(v->model);
    }
    proa_rcu_leave();
    return model;
}

proa_served_model *proa_server_find_repo(proa_server *server, const char *repo)
{
    char folder[PROA_HUB_NAME_MAX + 32];
    const char *slash = strchr(repo, '/');
    if (!slash) return NULL;
    int len = snprintf(folder, sizeof folder, "/models--%.*s--%s/snapshots/", (int)(slash - repo), repo,
                       slash + 1);
    if (len >= (int)sizeof folder) return NULL;
    proa_served_model *model = proa_name_table_find(server, slash + 1, -1);
    if (!model || strstr(model->path, folder)) return model;
    proa_served_model_drop(model);
    return NULL;
}

static void table_free(proa_name_table *t)
{
    if (!t) return;
    proa_map_release(&t->names);
    free(t->rows);
    free(t->versions);
    free(t);
}

static int count_ready(const proa_entry *e)
{
    int n = 0;
    for (int i = 0; i < e->slots_count; i++) n += e->slots[i].model != NULL;
    return n;
}

static proa_name_table *table_make(const proa_server *s)
{
    proa_name_table *t = proa_calloc(1, sizeof *t);
    int rows = 0, all = 0;
    for (int i = 0; i < s->entries_count; i++) all += count_ready(s->entries[i]);
    proa_map_init(&t->names, s->entries_count);
    t->rows = proa_calloc((size_t)s->entries_count, sizeof *t->rows);
    t->versions = proa_calloc((size_t)all, sizeof *t->versions);
    all = 0;
    for (int i = 0; i < s->entries_count; i++) {
        const proa_entry *e = s->entries[i];
        int first = all;
        for (int k = 0; k < e->slots_count; k++)
            if (e->slots[k].model) t->versions[all++] = (version){e->slots[k].version, e->slots[k].model};
        if (all == first) continue;
        t->rows[rows] = (row){first, all - first};
        proa_map_put(&t->names, proa_str_c(e->name), rows++);
    }
    return t;
}

void proa_name_table_publish(proa_server *s)
{
    proa_name_table *old = atomic_exchange(&s->table, table_make(s));
    proa_rcu_wait();
    table_free(old);
}

void proa_name_table_free(proa_server *s)
{
    table_free(atomic_exchange(&s->table, NULL));
}
