/* SPDX-License-Identifier: Apache-2.0
 * cache.h - inside serve: replies that are kept for equal requests, up to a number of bytes, the least used going first.
 * A key has 128 bits, of a keyed hash that outsiders cannot aim at: over the model, its version, the inputs, the requested
 * outputs and the parameters. Of equal requests that come while one is executed, only that one is (a flight); the others
 * wait for its reply.
 * Owner:   the server's; it outlives the models. Kept tensors have buffers of their own size.
 * Threads: any; one short lock. Hashing and copying are outside of it. */
#ifndef PROA_SERVE_CACHE_H
#define PROA_SERVE_CACHE_H

#include "serve/models/model.h"

typedef enum proa_cache_answer {
    PROA_CACHE_MISS,     /* r leads: proa_cache_store or proa_cache_give_up must follow */
    PROA_CACHE_HIT,      /* *reply is the caller's */
    PROA_CACHE_WAIT,     /* r is kept until its leader's end */
    PROA_CACHE_CANCELLED /* r was cancelled */
} proa_cache_answer;

proa_cache *proa_cache_new(int64_t bytes_max);
void proa_cache_free(proa_cache *cache);                            /* no flight is left; NULL is fine */
void proa_cache_forget(proa_cache *cache, const proa_model *model); /* it closes: its entries go */

proa_cache_answer proa_cache_look(proa_cache *cache, proa_infer *r, proa_reply **reply);
/* The leader's reply is kept, if it fits. Returns those who waited, linked by next. */
proa_infer *proa_cache_store(proa_cache *cache, proa_infer *leader, const proa_reply *reply);
/* There is nothing to keep. Those who waited are to try again: one of them will lead. */
proa_infer *proa_cache_give_up(proa_cache *cache, proa_infer *leader);
/* A copy of a reply for another request: tensors are shared. */
proa_reply *proa_reply_copy(const proa_infer *r, const proa_reply *from);

int64_t proa_cache_bytes(proa_cache *cache); /* kept now */
int64_t proa_cache_entries(proa_cache *cache);

/* Since the cache was made, over all models. A request that waits for an equal one is a hit once that has its reply. */
typedef struct proa_cache_figures {
    int64_t entries;
    double used; /* share of bytes_max, 0 to 1 */
    uint64_t lookups, hits, misses;
    uint64_t evictions; /* entries that left for newer ones */
    uint64_t lookup_ns, insertion_ns;
} proa_cache_figures;
void proa_cache_read(proa_cache *cache, proa_cache_figures *figures);

#endif
