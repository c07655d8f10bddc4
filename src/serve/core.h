/* SPDX-License-Identifier: Apache-2.0
 * core.h - inside serve: the server, its repositories, and what it knows of each model.
 * Owner:   a server owns entries (never freed before it), an entry its slots, a slot the serving version. Sources are
 *          shared by the entry and the versions made from them.
 * Threads: everything marked [lock] under server->lock. An entry that is busy belongs to the operation that made it so:
 *          its source, flags and reason change under the lock, but by that operation only. */
#ifndef PROA_SERVE_CORE_H
#define PROA_SERVE_CORE_H

#include "base/limits.h"
#include "base/log.h"
#include "proto/message.h"
#include "serve/config/config.h"
#include "serve/models/model.h"
#include "serve/stats/gpus.h"

typedef struct proa_entry proa_entry;
typedef struct proa_shm_region proa_shm_region;

/* One of the paths that the server was given. */
typedef struct proa_root {
    const char *path;
    const char *single; /* the path is one model of this name; NULL: a folder of model folders */
    void *remote;       /* the path is kept up to date by options.remote; NULL: a folder as it is */
} proa_root;

/* What versions are made from: a model's folder and its configuration as read at one moment. */
typedef struct proa_source {
    atomic_int refs;
    proa_arena arena;
    const char *name, *path;
    const char *origin; /* the folder in the repository, if an agent has moved the model to `path`; else NULL */
    const char *temporary;  /* a folder that is removed with the last reference; NULL: none */
    bool is_version_folder; /* the folder itself is version 1: no version folders */
    bool provided;          /* there was a configuration at all */
    bool overridden;        /* by a load's config or files: the next plain load reads the folder again */
    uint64_t fingerprint;   /* of all files' names, sizes and times */
    Inference__ModelConfig *config;
    struct proa_agent_runs *agents; /* models/agents.c; NULL: it has none */
    atomic_int serving;             /* versions in service, or about to be closed */
} proa_source;

/* A version that the entry knows: serving, loading, failed or unloaded. */
typedef struct proa_version_slot {
    int64_t version;
    proa_state state;
    char *reason;             /* or NULL */
    proa_served_model *model; /* the serving one, one reference; NULL: none */
    proa_model_stats *stats;  /* made with the slot, lives as long */
    uint64_t unloading;       /* number of the retired version that the state UNLOADING speaks of */
} proa_version_slot;

struct proa_entry {
    char *name;
    proa_source *source;      /* [lock] accepted; NULL: not wanted (any more), or never read well */
    char *problem;            /* [lock] why there is no version; or NULL */
    bool explicit_load;       /* loaded by name; else loaded because an ensemble uses it */
    bool busy;                /* [lock] */
    proa_version_slot *slots; /* [lock] by rising version */
    int slots_count;
    uint64_t seen_fingerprint; /* print of the folder at the last try */
    /* of the operation that has it busy */
    bool needs_load;  /* to be loaded anew */
    bool done;        /* this operation has tried */
    proa_err outcome; /* of the last try */
};

/* A version that no longer serves and waits for its last holder. */
typedef struct proa_retired {
    proa_served_model *model;
    proa_entry *entry;
    uint64_t number;
    struct proa_retired *next;
} proa_retired;

typedef enum proa_server_phase {
    PROA_SERVER_STARTING,
    PROA_SERVER_READY,
    PROA_SERVER_EXITING
} proa_server_phase;

typedef struct proa_name_table proa_name_table; /* models/table.c: the table in which requests look models up */

struct proa_server {
    proa_server_options options; /* strings in arena */
    proa_arena arena;
    proa_root *roots;
    int roots_count;
    _Atomic(proa_server_phase) phase;
    _Atomic(proa_name_table *) table;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* an operation ended, a version was retired or freed, threads must end */
    proa_entry **entries;   /* [lock] by name */
    int entries_count;
    int busy_count;          /* [lock] entries that operations have */
    bool exclusive;          /* [lock] one operation has all entries */
    bool poller_ends;        /* [lock] */
    proa_retired *retired;   /* [lock] */
    int unloading;           /* [lock] retired and not yet closed */
    uint64_t retired_so_far; /* [lock] */
    bool ending;             /* [lock] the reaper ends */
    pthread_t reapers[PROA_REAPERS], poller;
    int reapers_count;
    bool poller_runs;

    pthread_mutex_t shm_lock;
    proa_shm_region *regions; /* by name */
    int regions_count;

    proa_cache *cache;
    proa_rate *rate;
    proa_gpus *gpus; /* NULL: none, or not wanted */
};

/* ---- models/agents.c: the repository agents of a source's configuration ---- */

/* Asks them before a load. *folder: where the last one that moved the model has put it, else the source's own. INVALID
 * for an agent that is not there. */
PROA_MUST_CHECK proa_status proa_agents_ask(const char **folder, const proa_server *s, proa_source *source,
                                            proa_err *err);
void proa_agents_load_ended(proa_source *source, bool loaded);
void proa_agents_unload_begins(proa_source *source); /* before its last version is closed */
void proa_agents_end(proa_source *source);           /* of the last reference */

/* ---- models/source.c: folders ---- */

proa_status proa_roots_open(proa_server *s, proa_err *err);
void proa_roots_close(proa_server *s);
/* Brings remote roots up to date: the names of their models, the files of one model. The first failure. */
PROA_MUST_CHECK proa_status proa_roots_list(proa_server *s, proa_err *err);
PROA_MUST_CHECK proa_status proa_roots_fetch(proa_server *s, const char *name, bool relist, proa_err *err);
/* Calls fn for each model folder of all roots; false ends it. INTERNAL if a root cannot be read (the others are). */
typedef bool proa_folder_fn(void *arg, const char *name, const char *path);
proa_status proa_folders_each(const proa_server *s, proa_folder_fn *fn, void *arg, proa_err *err);
/* Folders of that name in all roots; *path of the first (malloc'd, or NULL). None of a name that proa_name_check
 * refuses. */
int proa_folder_find(const proa_server *s, const char *name, char **path);
uint64_t proa_folder_fingerprint(const char *path);
proa_config_options proa_server_config_options(const proa_server *s);
/* Reads and checks the configuration. config_json NULL: that of the folder. */
proa_status proa_source_new(proa_source **out, const proa_server *s, const char *name, const char *path,
                            const char *config_json, proa_err *err);
/* What a load brings in place of the repository's configuration and files. */
typedef struct proa_load_override {
    const char *config_json; /* NULL: the repository's */
    const proa_model_file *files;
    int files_count; /* 0: the repository's files */
} proa_load_override;
/* The same from the files of a load, which are written to a temporary folder. */
proa_status proa_source_from_files(proa_source **out, const proa_server *s, const char *name,
                                   const proa_load_override *load, proa_err *err);
proa_source *proa_source_hold(proa_source *source);
void proa_source_drop(proa_source *source); /* NULL is fine */
/* The versions that the policy wants, rising; malloc'd. INVALID if there is none. */
proa_status proa_source_versions(const proa_source *source, int64_t **versions, int *count, proa_err *err);
/* The folder of a version, in out[PROA_PATH_MAX]. */
proa_status proa_source_version_path(const proa_source *source, int64_t version, char *out, proa_err *err);
bool proa_source_is_ensemble(const proa_source *source);
bool proa_source_needs(const proa_source *source, const char *name); /* an ensemble with a step of that model */
/* Same folder, same configuration, and no ensemble: a version whose files are the same too need not be opened again. */
bool proa_source_same(const proa_source *a, const proa_source *b);
uint64_t proa_source_version_fingerprint(const proa_source *source, int64_t version);

/* ---- models/model.c: one version ---- */

/* A version with one reference, of which nothing is open. */
proa_served_model *proa_served_model_new(proa_server *s, proa_source *source, int64_t version);
/* Finds its backend and completes its configuration. */
PROA_MUST_CHECK proa_status proa_served_model_prepare(proa_served_model *m, const char *version_path,
                                                      proa_err *err);
/* Opens a version with one reference, through its warm-up. */
proa_status proa_served_model_open(proa_served_model **out, proa_server *s, proa_source *source,
                                   int64_t version, proa_model_stats *stats, proa_err *err);
void proa_served_model_close(proa_served_model *model);                             /* refs is 0 */
proa_status proa_served_model_warm(proa_served_model *model, proa_err *err);        /* models/warmup.c */
proa_status proa_served_model_read_labels(proa_served_model *model, proa_err *err); /* models/labels.c */

/* ---- models/table.c ---- */

/* A ready version with a reference, without a lock; NULL: none is ready (proa_server_find gives the reason). -1:
 * the newest. */
proa_served_model *proa_name_table_find(proa_server *s, const char *name, int64_t version);
/* Builds and publishes the table of the serving versions; returns when no reader uses the old one. Lock held. */
void proa_name_table_publish(proa_server *s);
void proa_name_table_free(proa_server *s);

/* ---- models/repository.c: entries, slots, operations' grip on them ---- */

proa_entry *proa_entry_find(const proa_server *s, const char *name); /* lock held; NULL if there is none */
/* Lock held; NULL if there are PROA_MODELS_MAX. */
proa_entry *proa_entry_add(proa_server *s, const char *name);
proa_version_slot *proa_entry_slot(proa_entry *e, int64_t version,
                                   bool add); /* lock held; pointers move when one is added */
void proa_version_slot_set(proa_version_slot *slot, proa_state state, const char *reason); /* lock held */
void proa_entry_problem(proa_entry *e, const char *problem); /* lock held; copied; NULL: none */
bool proa_entry_serves(const proa_entry *e);                 /* lock held */
void proa_entries_free(proa_server *s);
const char *proa_state_name(proa_state state);

/* ---- models/retire.c: versions that leave ---- */

proa_status proa_reaper_start(proa_server *s, proa_err *err);
/* Takes the serving version out of the slot; the caller publishes, then calls proa_retire_release. Lock held. */
proa_retired *proa_retire(proa_server *s, proa_entry *e, proa_version_slot *slot, proa_retired *list);
void proa_retire_release(proa_server *s, proa_retired *list); /* lock held: from now on the reaper waits for them */
bool proa_reaper_wait(proa_server *s, int64_t deadline_ns); /* until nothing is leaving */
void proa_reaper_stop(proa_server *s);

/* ---- models/lifecycle.c ---- */

/* A repository operation: the entries that it has locked, some of them with needs_load. models/operation.c */
typedef struct proa_repo_op {
    proa_server *server;
    proa_entry **list;
    int count, cap;
} proa_repo_op;
bool proa_repo_op_has(const proa_repo_op *op, const proa_entry *e);
void proa_repo_op_add(proa_repo_op *op, proa_entry *e); /* lock held; once is enough */
/* Adds the ensembles that use a model with needs_load (they need loading too), and the models they use. Lock held. */
void proa_repo_op_widen(proa_repo_op *op);
/* Takes the entries; false: another operation has one of them (wait for server->changed, look again). Lock held. */
bool proa_repo_op_take(proa_repo_op *op);
void proa_repo_op_take_all(proa_server *s, proa_repo_op *op); /* takes the lock itself */
void proa_repo_op_release(proa_repo_op *op);                  /* takes the lock itself; releases op */
/* Accept: the entry gets a new source (whose reference it takes) and needs_load. Remove: the entry is no longer wanted
 * and all its versions are retired. Lock held. */
void proa_entry_accept(proa_entry *e, proa_source *source);
void proa_entry_remove(proa_server *s, proa_entry *e);
/* Loads all entries with needs_load, models before the ensembles that use them. */
void proa_repo_op_run(proa_repo_op *op);
/* Opens all versions of these entries' sources, several at a time, and puts them in service. models/load.c */
void proa_load_entries(proa_server *s, proa_entry *const *entries, int count);

/* Loads the models that the control mode wants; INTERNAL "failed to load all models: ..." if one did not load. */
proa_status proa_lifecycle_start(proa_server *s, proa_err *err);
void proa_lifecycle_unload_all(proa_server *s);
void proa_poller_stop(proa_server *s);

#endif
