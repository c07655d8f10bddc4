/* SPDX-License-Identifier: Apache-2.0
 * model.h - inside serve: a loaded version of a model, its instances and its scheduler.
 * Owner:   the repository (repository.c) makes and frees versions; references (find, requests) keep one alive while it
 *          drains.
 * Threads: fields are set before the version is ready and read-only after that, unless the comment says otherwise. */
#ifndef PROA_SERVE_MODELS_MODEL_H
#define PROA_SERVE_MODELS_MODEL_H

#include "serve/server.h"
#include <pthread.h>

typedef struct proa_scheduler proa_scheduler;             /* scheduler.h */
typedef struct proa_model_stats proa_model_stats;         /* stats/stats.h */
typedef struct proa_cache proa_cache;                     /* cache.h */
typedef struct proa_rate proa_rate;                       /* rate.h */
typedef struct proa_parameter_reads proa_parameter_reads; /* parameters.c */

typedef enum proa_state {
    PROA_STATE_UNKNOWN,
    PROA_STATE_LOADING,
    PROA_STATE_READY,
    PROA_STATE_UNLOADING,
    PROA_STATE_UNAVAILABLE
} proa_state;

struct proa_instance {
    proa_served_model *model;
    char *name;
    int device;  /* CUDA device, -1: CPU */
    void *state; /* the backend's */
    int index;
    const Inference__ModelInstanceGroup *group;
};

/* One tensor of the configuration, ready to be checked against. */
typedef struct proa_io {
    const char *name;
    proa_type type;
    int32_t rank;
    int64_t shape[16];  /* as on the wire: with a leading -1 if the model has a batch dimension */
    int32_t inner_rank; /* after reshape, as the backend sees it (with the batch dimension) */
    int64_t inner[16];
    bool reshaped, optional, ragged;
    const char *const *labels; /* outputs */
    int64_t labels_count;
} proa_io;

struct proa_served_model {
    proa_server *server;
    struct proa_source *source;  /* core.h: holds the strings below */
    const proa_backend *backend; /* NULL: an ensemble */
    const char *name, *path, *version_path;
    int64_t version;
    Inference__ModelConfig *config; /* complete */
    proa_arena arena;               /* of all that is read only */
    proa_io *inputs, *outputs;
    int inputs_count, outputs_count, required_count;
    int64_t batch_max; /* 0: no batch dimension */
    bool decoupled, unary;
    unsigned flags; /* the backend's, without those that model_open has cleared; used by schedulers */
    int64_t inline_rows_max; /* INLINE: more rows do not run on a caller's thread; 0: all do */
    bool device_inputs;      /* takes inputs in the memory of a device: proa_served_model_set_device_inputs */
    bool generations;        /* takes typed ones: proa_served_model_takes_generation */
    int64_t labels_count;    /* of its head: proa_served_model_labels */
    void *state;             /* the backend's */
    bool opened;             /* model_open succeeded */
    proa_parameter_reads *parameter_reads; /* those that model_open reads; NULL when it has ended */
    proa_instance *instances;
    int instances_count;
    proa_scheduler *scheduler;
    /* The scheduler's: sees each reply before the sink; false: it keeps the reply and delivers it later. */
    bool (*replied)(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final);
    proa_cache *cache;       /* the server's, set before proa_scheduler_new; NULL: none */
    proa_rate *rate;         /* the server's rate limiter; NULL: off */
    proa_model_stats *stats; /* belongs to the version slot: a reload goes on counting */
    atomic_int refs;         /* find, requests, ensembles; 0 with state UNLOADING: freed by the repository */
    _Atomic(proa_state) state_now;
    int64_t load_ns;
    uint64_t fingerprint; /* of the files that it was made from */
};

bool proa_served_model_uses_cache(const proa_served_model *model); /* its replies may come from the response cache */
const proa_io *proa_served_model_input(const proa_served_model *model, const char *name);  /* or NULL */
const proa_io *proa_served_model_output(const proa_served_model *model, const char *name); /* or NULL */
/* repository.c: calls fn for each loaded version, ordered by name and version, with the repository locked: fn must be
 * brief and must not call the repository. For the metrics. */
void proa_server_each_model(proa_server *server, void (*fn)(proa_served_model *model, void *arg), void *arg);

/* parameters.c: notes the parameters that a backend asks for from watch to report, which logs what has no effect:
 * misspelt parameters, and those that still are "${...}". */
void proa_parameters_watch(proa_served_model *m);
void proa_parameters_note(const proa_served_model *m, const char *key);
void proa_parameters_report(proa_served_model *m);

/* check.c: names, types, shapes, batch and byte sizes of a request against the configuration, with Triton's texts;
 * fills r->batch and applies reshape to the inputs. */
proa_status proa_infer_check(const proa_served_model *model, proa_infer *r, proa_err *err);

#endif
