/* SPDX-License-Identifier: Apache-2.0
 * ranks.h - a model in several ranks (tensor and pipeline parallelism): each is a proa_model with a part of the
 * weights, on a device and in a thread or a process of its own. The engine has rank 0. What it calls of model.h becomes
 * a message (call.h), which all ranks follow side by side, and their programs meet in collective steps.
 *
 *   threads      proa_ranks_prepare: all ranks are models of this process; rank 0 owns the others
 *   processes    proa_ranks_join: this process has one rank of the group; rank 0 broadcasts its calls through
 *                `control`, the others run proa_ranks_follow
 *
 * Owner:   proa_model_free of rank 0 frees the other ranks of its process. Devices and pools are the caller's.
 * Threads: as model.h; the threads of the other ranks are this file's. */
#ifndef PROA_MODEL_RANKS_H
#define PROA_MODEL_RANKS_H

#include "model/ranks/call.h"

/* Rank i runs on device[i] with the threads of pool[i]. */
typedef struct proa_rank_places {
    proa_device *const *device;
    proa_pool *const *pool;
    int32_t count;
} proa_rank_places;

/* Prepares the parts of a model. With one rank this is proa_model_prepare. options: rank and ranks are set by this
 * function; places->count must be a multiple of options->stages. Errors as there; INVALID or UNSUPPORTED names what
 * cannot be divided among so many. */
PROA_MUST_CHECK proa_status proa_ranks_prepare(proa_model **out, const char *path,
                                               const proa_model_options *options,
                                               const proa_rank_places *places, proa_err *err);
/* Rank `rank` of the model whose rank 0 is m; NULL: it is in another process. */
proa_model *proa_ranks_model(const proa_model *m, int32_t rank);
/* Between the hosts of all ranks, in the order of their calls; NULL: they are threads, or there is one. */
proa_comm *proa_ranks_control(const proa_model *m);
/* The KV pages of a rank of this process: [kv_layers], the caller's. Rank 0 gets them with each pass. */
void proa_ranks_set_kv(proa_model *m, int32_t rank, const proa_kv *kv);
/* Likewise the memory of its recurrent states (proa_batch.states_memory). */
void proa_ranks_set_states(proa_model *m, int32_t rank, float *memory);

/* Of a rank in a process: INTERNAL or UNAVAILABLE if its device, or what connects it with others, has failed. A failure
 * is reported once. */
PROA_MUST_CHECK proa_status proa_ranks_check(const proa_model *m, proa_err *err);

/* Allocates the memory of messages, so that steps need not. Only while no call runs. pages: the number of KV pages. */
void proa_ranks_reserve(proa_model *m, int64_t pages);

/* What a rank of a group of processes exchanges with others. They may be the same, stay the caller's, and must be open
 * until the model was freed. */
typedef struct proa_rank_comms {
    proa_comm *control; /* all ranks: the calls */
    proa_comm *stage;   /* those of its stage: proa_model.comm; NULL: there are none */
    proa_comm *pipe;    /* proa_model.pipe; likewise */
    bool pipe_waits;    /* proa_model.pipe_waits */
    bool by_mpi;
} proa_rank_comms;

/* What the engine does in calls that are not functions of the model. NULL: nothing. */
typedef struct proa_rank_hooks {
    proa_status (*take_pages)(void *arg, int64_t count, proa_err *err); /* of ranks 1 and up; sets their KV pages */
    void (*copy)(void *arg, const proa_kv_copy *copy);                  /* likewise */
    /* The same of recurrent states. */
    proa_status (*take_states)(void *arg, int64_t count, proa_err *err);
    void (*copy_state)(void *arg, const proa_state_copy *copy);
    /* A rank above 0 has the result of a call that has one. In rank 0: returns when all others have, with the first
     * failure. */
    proa_status (*result)(void *arg, proa_status status, proa_err *err);
    /* Connects the devices of all ranks, which call it at the same time: *comms is what they exchange from now on. */
    proa_status (*connect)(void *arg, const proa_rank_comms **comms, proa_err *err);
    /* A rank begins a call of a step, or has ended it. */
    void (*steps)(void *arg, bool begins);
    void *arg;
} proa_rank_hooks;
/* m, prepared with its rank, becomes one of a group of processes. */
PROA_MUST_CHECK proa_status proa_ranks_join(proa_model *m, const proa_rank_comms *comms,
                                            const proa_rank_hooks *hooks, proa_err *err);
/* A rank above 0 runs what rank 0 calls, until that ends, or the group is stopped: UNAVAILABLE then. */
PROA_MUST_CHECK proa_status proa_ranks_follow(proa_model *m, proa_err *err);
/* A rank of a group of processes goes on with other collectives: rank 0 with those of restarted ranks, after the old
 * ones were stopped. These can then be closed. */
void proa_ranks_rejoin(proa_model *m, const proa_rank_comms *comms);

/* Runs a call in all ranks, in this thread for rank 0, which sets what other ranks must have of it (encoder_ticket,
 * hidden_wanted). Returns when the ranks of this process are done; those of others may still run, and so may later
 * stages on the host. Only calls that have a result fail. */
proa_status proa_ranks_run(proa_model *m, proa_rank_call *call, proa_err *err);
/* Returns when no rank of this process runs a call. */
void proa_ranks_wait(proa_model *m);
/* Ends the other ranks, and frees those of this process. */
void proa_ranks_free(proa_model *m);

#endif
