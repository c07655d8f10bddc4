/* SPDX-License-Identifier: Apache-2.0
 * host_cache.h - the second level of the prefix cache: pages that the pool evicted, as images in memory of the host. A
 * prompt that begins with their tokens gets them back by a copy, which is cheaper than computing them.
 *
 * Images are found by their key (page_key.h) alone; the tree of the pool knows nothing of them. When memory runs out,
 * the least valuable image goes: the one that was not used for the longest time, where each use counts as a later one,
 * and of pages used at one time the one farthest from the beginning, since without those before it nobody finds it. A
 * page of an encoder's input that is not full saves less work for its bytes and counts less.
 *
 * Owner:   one cache per engine; it lives as long as the pool.
 * Threads: the stepping thread. */
#ifndef PROA_KV_HOST_CACHE_H
#define PROA_KV_HOST_CACHE_H

#include "kv/page_copy.h"
#include "kv/page_key.h"
#include "kv/value_heap.h"

/* A page as the lower levels know it. */
typedef struct proa_page_name {
    proa_page_key key;
    const int32_t *ids; /* [count] its own tokens */
    int32_t count;
    int32_t depth; /* pages before it */
} proa_page_name;

typedef struct proa_host_image proa_host_image;
typedef struct proa_host_cache {
    /* counters, for statistics */
    int64_t count;   /* images now */
    int64_t evicted; /* since the start */
    /* private */
    const proa_kv_pages *pages;
    int64_t capacity;
    char *memory; /* [capacity] images */
    int64_t image_bytes;
    proa_host_image *image; /* [capacity] */
    int32_t free;           /* the first of a list of unused images; -1: none */
    int32_t *buckets;       /* [buckets_count] first image of each chain; -1: none */
    int64_t buckets_count;  /* a power of 2 */
    proa_value_heap heap;   /* of the images that may be evicted */
    uint64_t clock;         /* images put in so far: the unit of recency */
} proa_host_cache;

/* Bookkeeping memory of so many images, in bytes, without the images themselves. */
int64_t proa_host_cache_bytes(int64_t capacity);
/* NO_MEMORY if the images do not fit. A cache for 0 images takes and finds nothing. */
PROA_MUST_CHECK proa_status proa_host_cache_init(proa_host_cache *c, const proa_kv_pages *pages,
                                                 int64_t capacity, proa_err *err);
/* When no copy is under way; before proa_kv_pages_release. A zero cache is fine. */
void proa_host_cache_release(proa_host_cache *c);

/* The page is about to be evicted: its contents are copied, unless they are here already. Passes that are submitted
 * from now on may overwrite it. */
void proa_host_cache_put(proa_host_cache *c, const proa_page_name *name, int32_t page);
bool proa_host_cache_has(const proa_host_cache *c, const proa_page_key *key);
/* The image of the page with that key and these tokens, held until proa_host_cache_load or _drop; -1: it is not here.
 * */
int32_t proa_host_cache_find(proa_host_cache *c, const proa_page_name *name);
/* Copies a held image into a page: passes that are submitted from now on may read it. The image is let go. */
void proa_host_cache_load(proa_host_cache *c, int32_t image, int32_t page);
void proa_host_cache_drop(proa_host_cache *c, int32_t image); /* lets it go without a use */

#endif
