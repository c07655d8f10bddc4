/* SPDX-License-Identifier: Apache-2.0
 * cache.h - inside serve: replies that are kept for equal requests, up to a number of bytes, the least used going
 * first. A key has 128 bits, of a keyed hash that outsiders cannot aim at: over the model, its version, the inputs,
 * the requested outputs and the parameters. Equal requests that arrive while one is executed are not executed: they
 * wait for its reply. The one that is executed is called their leader.
 * Owner:   the server's; it outlives the models. Kept tensors have buffers of their own size.
 * Threads: any; one short lock. Hashing and copying are outside of it. */
#ifndef PROA_SERVE_CACHE_H
#define PROA_SERVE_CACHE_H

#include "serve/models/model.h"

typedef enum proa_cache_result {
    PROA_CACHE_MISS,     /* r leads: proa_cache_store or proa_cache_abandon must follow */
    PROA_CACHE_HIT,      /* *reply is the caller's */
    PROA_CACHE_WAIT,     /* r is kept until its leader's end */
    PROA_CACHE_CANCELLED /* r was cancelled */
} proa_cache_result;

proa_cache *proa_cache_new(int64_t bytes_max);
void proa_cache_free(proa_cache *cache); /* no request is in flight; NULL is fine */
void proa_cache_forget(proa_cache *cache, const proa_served_model *model); /* it closes: its entries go */

proa_cache_result proa_cache_lookup(proa_cache *cache, proa_infer *r, proa_reply **reply);
/* Keeps the leader's reply, if it fits. Returns the requests that waited for it, linked by next. */
proa_infer *proa_cache_store(proa_cache *cache, proa_infer *leader, const proa_reply *reply);
/* The leader has no reply to keep. Returns the requests that waited; they try again, and one of them becomes leader. */
proa_infer *proa_cache_abandon(proa_cache *cache, proa_infer *leader);
/* A copy of a reply for another request: tensors are shared. */
proa_reply *proa_reply_copy(const proa_infer *r, const proa_reply *from);

int64_t proa_cache_bytes(proa_cache *cache); /* kept now */

/* Since the cache was made, over all models. A request that waits for an equal one is a hit once that has its reply. */
typedef struct proa_cache_stats {
    int64_t entries;
    double used; /* share of bytes_max, 0 to 1 */
    uint64_t lookups, hits, misses;
    uint64_t evictions; /* entries that left for newer ones */
    uint64_t lookup_ns, insertion_ns;
} proa_cache_stats;
void proa_cache_read(proa_cache *cache, proa_cache_stats *figures);

#endif
