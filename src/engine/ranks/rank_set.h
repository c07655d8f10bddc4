/* SPDX-License-Identifier: Apache-2.0
 * rank_set.h - what each rank of an engine's model has: a device, threads, and memory for the keys and values of its
 * heads. Page numbers belong to the scheduler and are the same in all ranks. Ranks 1 and up are threads of this
 * process, or processes of their own, which have all that themselves.
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_RANK_SET_H
#define PROA_ENGINE_RANK_SET_H

#include "engine/ranks/processes.h"
#include "kv/pages.h"
#include "kv/state_slots.h"
#include <stdatomic.h>

typedef struct proa_rank_set {
    int32_t count;           /* at least 1 */
    int32_t local;           /* those of this process: all, or rank 0 */
    int32_t threads;         /* of each rank */
    const char *device_name; /* of rank 0 */
    proa_device *device[PROA_RANKS_MAX];
    proa_pool *pool[PROA_RANKS_MAX];
    proa_kv_pages pages[PROA_RANKS_MAX];     /* of ranks 1 and up, beside those of rank 0 */
    proa_state_slots states[PROA_RANKS_MAX]; /* likewise */
    proa_rank_processes *processes;          /* NULL: threads */
    const proa_mpi *mpi;                     /* the processes are its; NULL: this one starts them */
    proa_rank_notify *notify;                /* the caller's, for processes that fail */
    void *notify_arg;
    proa_rank_open open; /* how the processes open the model; texts are in opened */
    proa_rank_message opened;
    uint64_t print;      /* proa_rank_model_print of rank 0: its files may not be mapped any more */
    bool joined;         /* the processes follow the calls of rank 0 */
    atomic_int restarts; /* of the processes: what they had in their pages is lost */
} proa_rank_set;

/* How many ranks a model has with so many that share each layer, and so many stages; 0 counts as 1. INVALID names the
 * option if it cannot have so many. */
PROA_MUST_CHECK proa_status proa_rank_count(int32_t *ranks, int32_t tensor_parallel,
                                            int32_t pipeline_parallel, proa_err *err);
/* Opens the devices: "cpu" for all ranks, or "cuda:N", "cuda:N+1", ... ("cuda": from 0). threads: of all ranks
 * together, 0: all; each has at least one. kind: "thread", "process" or "mpi"; NULL: mpi in a
 * process that mpirun has started, else thread. INVALID names the option. */
PROA_MUST_CHECK proa_status proa_rank_set_open(proa_rank_set *s, const char *device, int32_t ranks,
                                               int threads, const char *kind, proa_err *err);
/* Prepares the parts of the model, in all ranks: *m is that of rank 0. */
PROA_MUST_CHECK proa_status proa_rank_set_prepare(proa_rank_set *s, proa_model **m, const char *path,
                                                  const proa_model_options *options, proa_err *err);
/* Memory for the pages of ranks 1 and up; m: rank 0. */
PROA_MUST_CHECK proa_status proa_rank_set_pages(proa_rank_set *s, proa_kv_pages *pages, proa_model *m,
                                                proa_err *err);
/* Likewise for the recurrent states of a model that has some. */
PROA_MUST_CHECK proa_status proa_rank_set_states(proa_rank_set *s, proa_state_slots *states, proa_model *m,
                                                 proa_err *err);
/* The pages of each layer of each rank of this process: kv [local][kv_layers], which the ranks keep; rank 0's come
 * first. */
void proa_rank_set_layers(const proa_rank_set *s, const proa_kv_pages *pages, proa_model *m, proa_kv *kv);
/* As proa_device.failed, of all ranks: the first that has failed; UNAVAILABLE if a process has ended or hangs. */
proa_status proa_rank_set_failed(const proa_rank_set *s, proa_err *err);
/* What ranks have memory for: so many pages, and so many recurrent states. */
typedef struct proa_rank_memory {
    int64_t pages, states;
} proa_rank_memory;
/* Processes that have failed are started once more, and load their parts; the pages and states of ranks 1 and up are
 * empty then. UNAVAILABLE, or what a rank reports: they have failed again. */
PROA_MUST_CHECK proa_status proa_rank_set_restart(proa_rank_set *s, proa_model *m,
                                                  const proa_rank_memory *memory, proa_err *err);
/* Before the pages of rank 0 are released; after the model was freed, devices and processes. */
void proa_rank_set_release_pages(proa_rank_set *s);
void proa_rank_set_close(proa_rank_set *s);

#endif
