/* SPDX-License-Identifier: Apache-2.0
 * host_cache.h - the levels of the prefix cache below the pool. The second level holds pages that the pool evicted, as
 * images in host memory. The third level, if there is one, holds pages as files of a folder (page_folder.h). A prompt
 * that begins with their tokens gets them back by a copy, which is cheaper than computing them.
 *
 *     pool      --- evicted --->  image  --- loaded --->  pool
 *     pool      --- kept ------>  image  --- written -->  file     whether it is evicted or not
 *     file      --- wanted ---->  image                            while the engine runs other requests
 *
 * Images are found by their key (page_key.h) alone; they have no nodes in the tree of the pool. When memory runs out,
 * the least valuable image is evicted: the least recently used one, where each use lets an image count as more
 * recently used. Of pages that were used at the same time, the one farthest from the beginning of its sequence goes
 * first, since it cannot be found without the pages before it. A page of an encoder's input that is not full saves
 * less work for its bytes and counts less. Images whose page is also in the folder are evicted before all others.
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
    double copy_ns; /* time of copying one page out of the pool or back, measured when the cache was opened */
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
    int32_t *copying;       /* [capacity] a ring of images that will be written when their copy has ended */
    int64_t copying_first, copying_count;
    int64_t reading, writing; /* images with such a job, including those that are still being copied */
    bool broken;              /* contents of the pool are no longer trusted: nothing is taken from it */
} proa_host_cache;

/* Bookkeeping memory of that many images, in bytes, without the images themselves. */
int64_t proa_host_cache_bytes(int64_t capacity);
/* NO_MEMORY if the images do not fit. A cache for 0 images stores and finds nothing. folder: the cache closes it, on
 * failure too; NULL: there is none. */
PROA_MUST_CHECK proa_status proa_host_cache_init(proa_host_cache *c, const proa_kv_pages *pages,
                                                 int64_t capacity, proa_page_folder *folder, proa_err *err);
/* Waits until pages that are to be written are written. Call it before proa_kv_pages_release. A zero cache is fine. */
void proa_host_cache_release(proa_host_cache *c);
/* From now on nothing is copied from the pool, and images that have not been written yet will not be written. */
void proa_host_cache_disable(proa_host_cache *c);

/* Starts to copy a page that is about to be evicted, unless the cache has it already. Passes that are submitted after
 * this call may overwrite the page. keeps: the image may also be written to the folder. */
void proa_host_cache_put(proa_host_cache *c, const proa_page_name *name, int32_t page, bool keeps);
/* Starts to write a complete page to the folder, unless the folder has it. False: too many writes are pending; call
 * again later. */
bool proa_host_cache_keep(proa_host_cache *c, const proa_page_name *name, int32_t page);

typedef enum proa_host_find {
    PROA_HOST_MISS,
    PROA_HOST_READY,   /* an image, held until proa_host_cache_load or _drop */
    PROA_HOST_READING, /* it is being read from the folder: call again later */
} proa_host_find;

/* Finds the image with the key and tokens of `name`; *image is set if READY. */
proa_host_find proa_host_cache_find(proa_host_cache *c, const proa_page_name *name, int32_t *image);
/* Whether the page is in the cache or in the folder. If it is in the folder, it is read, if there is room for it. */
bool proa_host_cache_fetch(proa_host_cache *c, const proa_page_name *name);
/* Starts to copy a held image into a page, and releases the image. Passes that are submitted after this call may read
 * the page. True: the image had been read from the folder for this. */
bool proa_host_cache_load(proa_host_cache *c, int32_t image, int32_t page);
void proa_host_cache_drop(proa_host_cache *c, int32_t image); /* releases it unused */

/* Whether images wait for their copy to be written: then check the device before proa_host_cache_poll, so that contents
 * of failed kernels are not written. */
bool proa_host_cache_copies(const proa_host_cache *c);
/* Takes up copies, reads and writes that have ended. Call it once a step. */
void proa_host_cache_poll(proa_host_cache *c);
/* Waits until a read or write has ended, at most ms milliseconds; returns at once if none is running. */
void proa_host_cache_wait(proa_host_cache *c, int64_t ms);

#endif
