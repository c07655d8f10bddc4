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

typedef struct proa_entry proa_entry;
typedef struct proa_shm_region proa_shm_region;

/* One of the paths that the server was given. */
typedef struct proa_root {
    const char *path;
    const char *single; /* the path is one model of this name; NULL: a folder of model folders */
} proa_root;

/* What versions are made from: a model's folder and its configuration as read at one moment. */
typedef struct proa_source {
    atomic_int refs;
    proa_arena arena;
    const char *name, *path;
    const char *temporary; /* a folder that goes with the last holder; NULL: none */
    bool whole;            /* the folder itself is version 1: no version folders */
    bool provided;         /* there was a configuration at all */
    bool overridden;       /* by a load's config or files: the next plain load reads the folder again */
    uint64_t print;        /* of all files' names, sizes and times */
    Inference__ModelConfig *config;
} proa_source;

/* A version that the entry knows: serving, loading, failed or gone. */
typedef struct proa_slot {
    int64_t version;
    proa_state state;
    char *reason;            /* or NULL */
    proa_model *model;       /* the serving one, one reference; NULL: none */
    proa_model_stats *stats; /* made with the slot, lives as long */
    uint64_t leaving;        /* number of the retired version that the state UNLOADING speaks of */
} proa_slot;

struct proa_entry {
    char *name;
    proa_source *source; /* [lock] accepted; NULL: not wanted (any more), or never read well */
    char *problem;       /* [lock] why there is no version to speak of; or NULL */
    bool explicit_load;  /* asked for by name; else it came with an ensemble */
    bool busy;           /* [lock] */
    proa_slot *slots;    /* [lock] by rising version */
    int slots_count;
    uint64_t seen; /* print of the folder at the last try */
    /* of the operation that has it busy */
    bool touched;     /* to be loaded anew */
    bool done;        /* this operation has tried */
    proa_err outcome; /* of the last try */
};

/* A version that no longer serves and waits for its last holder. */
typedef struct proa_retired {
    proa_model *model;
    proa_entry *entry;
    uint64_t number;
    struct proa_retired *next;
} proa_retired;

typedef enum proa_phase { PROA_PHASE_STARTING, PROA_PHASE_READY, PROA_PHASE_EXITING } proa_phase;

typedef struct proa_table proa_table; /* table.c: what requests look names up in */

struct proa_server {
    proa_server_options options; /* strings in arena */
    proa_arena arena;
    proa_root *roots;
    int roots_count;
    _Atomic(proa_phase) phase;
    _Atomic(proa_table *) table;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* an operation ended, a version was retired or freed, threads must end */
    proa_entry **entries;   /* [lock] by name */
    int entries_count;
    int busy_count;          /* [lock] entries that operations have */
    bool exclusive;          /* [lock] one operation has all entries */
    bool poller_ends;        /* [lock] */
    proa_retired *retired;   /* [lock] */
    int leaving;             /* [lock] retired and not yet closed */
    uint64_t retired_so_far; /* [lock] */
    bool ending;             /* [lock] the reaper ends */
    pthread_t reaper, poller;
    bool reaper_runs, poller_runs;

    pthread_mutex_t shm_lock;
    proa_shm_region *regions; /* by name */
    int regions_count;

    proa_cache *cache;
    proa_rate *rate;
};

/* ---- source.c: folders ---- */

proa_status proa_roots_open(proa_server *s, proa_err *err);
/* Calls fn for each model folder of all roots; false ends it. INTERNAL if a root cannot be read (the others are). */
typedef bool proa_folder_fn(void *arg, const char *name, const char *path);
proa_status proa_folders_each(const proa_server *s, proa_folder_fn *fn, void *arg, proa_err *err);
/* Folders of that name in all roots; *path of the first (malloc'd, or NULL). None of a name that proa_name_check refuses. */
int proa_folder_find(const proa_server *s, const char *name, char **path);
bool proa_folder_is_model(const char *path); /* a Hugging Face folder, or one with config.pbtxt */
uint64_t proa_folder_print(const char *path);
proa_config_options proa_server_config_options(const proa_server *s);
/* Reads and checks the configuration. config_json NULL: that of the folder. */
proa_status proa_source_new(proa_source **out, const proa_server *s, const char *name, const char *path,
                            const char *config_json, proa_err *err);
/* The same from files that a load brought: they are written to a temporary folder. */
proa_status proa_source_from_files(proa_source **out, const proa_server *s, const char *name,
                                   const char *config_json, const proa_model_file *files, int files_count,
                                   proa_err *err);
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
uint64_t proa_source_version_print(const proa_source *source, int64_t version);

/* ---- model.c: one version ---- */

/* Opens a version with one reference, through its warm-up. */
proa_status proa_model_open(proa_model **out, proa_server *s, proa_source *source, int64_t version,
                            proa_model_stats *stats, proa_err *err);
void proa_model_close(proa_model *model);                             /* refs is 0 */
proa_status proa_model_warm(proa_model *model, proa_err *err);        /* warmup.c */
proa_status proa_model_read_labels(proa_model *model, proa_err *err); /* labels.c */

/* ---- table.c ---- */

/* A ready version with a reference, without a lock; NULL: none is ready (repository.c says why). -1: the newest. */
proa_model *proa_table_find(proa_server *s, const char *name, int64_t version);
/* Makes and publishes the table of what serves now; returns when nobody looks at the one before. Lock held. */
void proa_table_publish(proa_server *s);
void proa_table_free(proa_server *s);

/* ---- repository.c: entries, slots, operations' grip on them ---- */

proa_entry *proa_entry_find(const proa_server *s, const char *name); /* lock held; NULL if there is none */
/* Lock held; NULL if there are PROA_MODELS_MAX. */
proa_entry *proa_entry_add(proa_server *s, const char *name);
proa_slot *proa_entry_slot(proa_entry *e, int64_t version, bool add); /* lock held; pointers move when one is added */
void proa_slot_set(proa_slot *slot, proa_state state, const char *reason); /* lock held */
void proa_entry_problem(proa_entry *e, const char *problem);               /* lock held; copied; NULL: none */
bool proa_entry_serves(const proa_entry *e);                               /* lock held */
void proa_entries_free(proa_server *s);
/* Why no version is ready: Triton's texts. */
proa_status proa_why_not_found(proa_server *s, const char *name, int64_t version, proa_err *err);
const char *proa_state_name(proa_state state);

/* ---- retire.c: versions that leave ---- */

proa_status proa_reaper_start(proa_server *s, proa_err *err);
/* Takes the serving version out of the slot; the caller publishes, then calls proa_retire_release. Lock held. */
proa_retired *proa_retire(proa_server *s, proa_entry *e, proa_slot *slot, proa_retired *list);
void proa_retire_release(proa_server *s, proa_retired *list); /* lock held: from now on the reaper waits for them */
void proa_model_drained(proa_server *s, proa_model *model); /* the last reference but one goes: model.c */
bool proa_reaper_wait(proa_server *s, int64_t deadline_ns); /* until nothing is leaving */
void proa_reaper_stop(proa_server *s);

/* ---- lifecycle.c ---- */

/* An operation: entries that nobody else changes meanwhile, some of them touched. operation.c */
typedef struct proa_operation {
    proa_server *server;
    proa_entry **list;
    int count, cap;
} proa_operation;
bool proa_operation_has(const proa_operation *op, const proa_entry *e);
void proa_operation_add(proa_operation *op, proa_entry *e); /* lock held; once is enough */
/* Adds the ensembles that stand on what is touched (they are touched too), and the models they stand on. Lock held. */
void proa_operation_widen(proa_operation *op);
/* Takes the entries; false: another operation has one of them (wait for server->changed, look again). Lock held. */
bool proa_operation_take(proa_operation *op);
void proa_operation_take_all(proa_server *s, proa_operation *op); /* takes the lock itself */
void proa_operation_leave(proa_operation *op);                    /* takes the lock itself; releases op */
/* The entry gets a new source (taken) and is touched; or it is no longer wanted and all it serves leaves. Lock held. */
void proa_entry_accept(proa_entry *e, proa_source *source);
void proa_entry_remove(proa_server *s, proa_entry *e);
/* Loads what is touched, models before the ensembles that stand on them. */
void proa_operation_run(proa_operation *op);
/* Opens all versions of these entries' sources, several at a time, and puts them in service. load.c */
void proa_load_entries(proa_server *s, proa_entry *const *entries, int count);
/* "Invalid argument: text", as states of the index say it. */
char *proa_err_spell(const proa_err *err);

/* Loads what the control mode says; INTERNAL "failed to load all models" if one did not load. */
proa_status proa_lifecycle_start(proa_server *s, proa_err *err);
void proa_lifecycle_unload_all(proa_server *s);
void proa_poller_stop(proa_server *s);

#endif
