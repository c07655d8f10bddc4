/* SPDX-License-Identifier: Apache-2.0
 * host_cache.h - the levels of the prefix cache below the pool. The second level has pages that the pool evicted, as
 * images in memory of the host. The third one has pages as files of a folder (page_folder.h), if there is one. A prompt
 * that begins with their tokens gets them back by a copy, which is cheaper than computing them.
 *
 *     pool      --- evicted --->  image  --- loaded --->  pool
 *     pool      --- kept ------>  image  --- written -->  file     whether it is evicted or not
 *     file      --- wanted ---->  image                            while the engine runs other requests
 *
 * Images are found by their key (page_key.h) alone; the tree of the pool knows nothing of them. When memory runs out,
 * the least valuable image goes: the one that was not used for the longest time, where each use counts as a later one,
 * and of pages used at one time the one farthest from the beginning, since without those before it nobody finds it. A
 * page of an encoder's input that is not full saves less work for its bytes and counts less. An image that is
 * elsewhere, too, since it was made to be written or was read, goes before all others.
 *
 * Owner:   one cache per engine; it lives as long as the pool.
 * Threads: the stepping thread. */
#ifndef PROA_KV_HOST_CACHE_H
#define PROA_KV_HOST_CACHE_H

#include "kv/page_copy.h"
#include "kv/page_folder.h"
#include "kv/page_key.h"
#include "kv/value_heap.h"

typedef struct proa_host_image proa_host_image;
typedef struct proa_host_cache {
    /* counters, for statistics */
    int64_t count;   /* images now */
    int64_t evicted; /* since the start */
    double copy_ns;  /* that a page takes out of the pool or back, as measured when the cache was opened */
    /* private */
    const proa_kv_pages *pages;
    proa_page_folder *folder; /* NULL: there is no third level */
    int64_t capacity;
    char *memory; /* [capacity] images */
    int64_t image_bytes;
    proa_host_image *image; /* [capacity] */
    int32_t free;           /* the first of a list of unused images; -1: none */
    int32_t *buckets;       /* [buckets_count] first image of each chain; -1: none */
    int64_t buckets_count;  /* a power of 2 */
    proa_value_heap heap;   /* of the images that may be evicted */
    uint64_t clock;         /* images put in so far: the unit of recency */
    int32_t *copying;       /* [capacity] a ring of images that are written once their copy has ended ... */
    int64_t copying_first, copying_count;
    int64_t reading, writing; /* images with such a job, those that are still copied included */
    bool broken;              /* contents of the pool are no longer trusted: nothing is taken from it */
} proa_host_cache;

/* Bookkeeping memory of that many images, in bytes, without the images themselves. */
int64_t proa_host_cache_bytes(int64_t capacity);
/* NO_MEMORY if the images do not fit. A cache for 0 images takes and finds nothing. folder: is closed with the cache,
 * and on failure; NULL: there is none. */
PROA_MUST_CHECK proa_status proa_host_cache_init(proa_host_cache *c, const proa_kv_pages *pages,
                                                 int64_t capacity, proa_page_folder *folder, proa_err *err);
/* What is to be written is written before. Call it before proa_kv_pages_release. A zero cache is fine. */
void proa_host_cache_release(proa_host_cache *c);
/* Nothing is taken from the pool any more, and what was taken and is not written yet is not written. */
void proa_host_cache_disable(proa_host_cache *c);

/* The page is about to be evicted: its contents are copied, unless they are here already. Passes that are submitted
 * from now on may overwrite it. keeps: it may be written to the folder. */
void proa_host_cache_put(proa_host_cache *c, const proa_page_name *name, int32_t page, bool keeps);
/* The page, which is complete, is written to the folder unless that has it. False: as much as may be is on its way
 * there already; ask again. */
bool proa_host_cache_keep(proa_host_cache *c, const proa_page_name *name, int32_t page);

typedef enum proa_host_find {
    PROA_HOST_MISS,
    PROA_HOST_READY,   /* an image, held until proa_host_cache_load or _drop */
    PROA_HOST_READING, /* it is read from the folder: ask again */
} proa_host_find;

/* The page with that key and these tokens. */
proa_host_find proa_host_cache_find(proa_host_cache *c, const proa_page_name *name, int32_t *image);
/* Whether it is here or in the folder; if in the folder, it is read now, as far as there is room. */
bool proa_host_cache_fetch(proa_host_cache *c, const proa_page_name *name);
/* Copies a held image into a page: passes that are submitted from now on may read it. The image is released. True: it
 * was read from the folder for this. */
bool proa_host_cache_load(proa_host_cache *c, int32_t image, int32_t page);
void proa_host_cache_drop(proa_host_cache *c, int32_t image); /* releases it unused */

/* Whether copies are to be followed by writing: then the device must be checked before proa_host_cache_poll. */
bool proa_host_cache_copies(const proa_host_cache *c);
/* Goes on with what has ended meanwhile. To be called once a step. */
void proa_host_cache_poll(proa_host_cache *c);
/* Returns when something was read or written, or after ms milliseconds; at once if nothing is under way. */
void proa_host_cache_wait(proa_host_cache *c, int64_t ms);

#endif
