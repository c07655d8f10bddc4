/* SPDX-License-Identifier: Apache-2.0
 * adapters.h - the adapters of an engine by name: loaded and unloaded while it runs, and kept in host memory.
 * A low-rank adapter is put into one of the model's slots (model/lora/lora.h) when a request that uses it is admitted.
 * With more of them than slots the one that was used least recently, and by no running request, gives its slot.
 * A prompt table (model/lora/prompt_table.h) needs no slot. Tables that requests bring have no name; the last ones are
 * kept, so that a request with an equal table has the same one and finds its cached pages.
 * Owner:   the engine. An adapter that was unloaded lives until the last request that uses it is done.
 * Threads: load, unload, list, ref and unref: any. admit and release: the stepping thread. */
#ifndef PROA_ENGINE_ADAPTERS_H
#define PROA_ENGINE_ADAPTERS_H

#include "engine/memory.h"
#include "model/lora/prompt_table.h"
#include <pthread.h>

typedef struct proa_adapters proa_adapters;

typedef struct proa_adapter {
    struct proa_adapter *next;
    proa_adapters *owner;
    char *name, *path; /* path: as it was given; "": a table that a request brought */
    uint64_t id;       /* of this load, never used again: keys and values made with it are its own */
    char *image;       /* low-rank; NULL: it has a table */
    proa_prompt_table *table;
    int32_t refs; /* requests that use it */
    bool loaded;  /* false: unloaded while requests still use it */
    int32_t slot; /* -1: in none */
    int32_t running;
    uint64_t used; /* when it was admitted last */
} proa_adapter;

struct proa_adapters {
    pthread_mutex_t lock;
    proa_model *model;
    proa_adapter *first;
    proa_adapter **in_slot; /* [slots] NULL: empty */
    int32_t count, max;     /* in memory, with a name */
    uint64_t next_id, now;
    proa_prompt_tasks tasks; /* of the model's own folder; their tables are adapters of these names, and not here */
};

/* Fills options of the model and the number of adapters; reads the ranks of those that are given. */
PROA_MUST_CHECK proa_status proa_adapters_sizes(proa_sizes *s, const proa_engine_options *o, proa_err *err);
void proa_adapters_init(proa_adapters *a, proa_model *m, int32_t max);
void proa_adapters_release_all(proa_adapters *a);
/* Reads a folder. EXISTS if the name is taken; LIMIT if there are `max` already. */
PROA_MUST_CHECK proa_status proa_adapters_load(proa_adapters *a, const char *name, const char *path,
                                               proa_err *err);
/* Loads the tables that the model's own folder has. They do not count against `max`. */
PROA_MUST_CHECK proa_status proa_adapters_load_tasks(proa_adapters *a, const char *path, proa_err *err);
/* Takes an image that was made otherwise (proa_adapter_random), or a table; it is freed if that fails. */
PROA_MUST_CHECK proa_status proa_adapters_take(proa_adapters *a, const char *name, const char *path,
                                               char *image, proa_prompt_table *table, proa_err *err);
PROA_MUST_CHECK proa_status proa_adapters_unload(proa_adapters *a, const char *name, proa_err *err);
/* The adapter of a request: *out NULL without a name. INVALID names those that are loaded. */
PROA_MUST_CHECK proa_status proa_adapters_ref(proa_adapters *a, const char *name, proa_adapter **out,
                                              proa_err *err);
/* The table that a request brings, or an equal one of an earlier request. Takes ownership of it. */
proa_adapter *proa_adapters_ref_table(proa_adapters *a, proa_prompt_table *table);
void proa_adapters_unref(proa_adapter *adapter); /* NULL is fine */
/* A request begins to run: its adapter is in a slot until release. False: all slots are in use. NULL is fine. */
bool proa_adapters_admit(proa_adapter *adapter);
void proa_adapters_release(proa_adapter *adapter);
/* Ranks were restarted, whose slots are empty; no request runs. */
void proa_adapters_forget_slots(proa_adapters *a);

#endif
