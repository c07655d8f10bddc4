/* SPDX-License-Identifier: Apache-2.0
 * host_cache.c - images of pages in memory of the host: a hash table of them, a heap for eviction, and the way of an
 * image to the folder and back. */
#include "kv/host_cache.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct proa_host_image {
    proa_page_key key;
    int32_t next;  /* in its chain, or in the list of unused images */
    int32_t count; /* of ids */
    int32_t depth; /* pages before it */
    int32_t uses;  /* how often it was loaded */
    int32_t holds; /* references; it is evicted only while there are none */
    bool staged;   /* it was made to be written, or was read and loaded: it is elsewhere, too */
    bool reading;  /* its job fills it */
    bool was_read; /* since it was loaded last */
    bool has_job;
    int64_t copy; /* number of the copy from the pool that fills it */
    proa_page_job job;
    int32_t ids[PROA_PAGE_TOKENS];
};

enum {
    USES_COUNTED = 8,   /* uses that keep an image, at most */
    USE_WORTH_PART = 8, /* each counts as a use that is later by that part of all images */
    DEPTH_BITS = 20     /* PROA_CONTEXT_MAX / PROA_PAGE_TOKENS has 18 */
};

/* ---- the table ---- */

static int32_t *bucket_of(const proa_host_cache *c, const proa_page_key *key)
{
    uint64_t hash; /* any bytes of a key are one */
    memcpy(&hash, key->bytes, sizeof hash);
    return &c->buckets[hash & (uint64_t)(c->buckets_count - 1)];
}

static int32_t find_image(const proa_host_cache *c, const proa_page_key *key)
{
    if (c->capacity == 0) return -1;
    int32_t i = *bucket_of(c, key);
    while (i >= 0 && !proa_page_key_equal(&c->image[i].key, key)) i = c->image[i].next;
    return i;
}

static void link_image(proa_host_cache *c, int32_t i)
{
    int32_t *bucket = bucket_of(c, &c->image[i].key);
    c->image[i].next = *bucket;
    *bucket = i;
    c->count++;
}

static void unlink_image(proa_host_cache *c, int32_t i)
{
    int32_t *link = bucket_of(c, &c->image[i].key);
    while (*link != i) link = &c->image[*link].next;
    *link = c->image[i].next;
    c->count--;
}

/* ---- what is kept ---- */

/* What keeps an image. Pages that were used by one request have the same clock, so the deeper ones go first. */
static uint64_t value_of(const proa_host_cache *c, const proa_host_image *image)
{
    uint64_t use = (uint64_t)(c->capacity / USE_WORTH_PART) * (uint64_t)image->count / PROA_PAGE_TOKENS;
    uint64_t when = c->clock + (uint64_t)image->uses * use;
    return image->staged ? 0 : ((when + 1) << DEPTH_BITS) - 1 - (uint64_t)image->depth;
}

static void let_go(proa_host_cache *c, int32_t i)
{
    proa_host_image *image = &c->image[i];
    PROA_ASSERT(image->holds > 0);
    if (--image->holds == 0) proa_value_heap_put(&c->heap, i, value_of(c, image));
}

static void hold_image(proa_host_cache *c, int32_t i)
{
    if (c->image[i].holds++ == 0) proa_value_heap_remove(&c->heap, i);
}

/* An unused image, or the least valuable one, which is evicted. -1: all are held. */
static int32_t free_image(proa_host_cache *c)
{
    int32_t i = c->free;
    if (i >= 0) {
        c->free = c->image[i].next;
        return i;
    }
    i = proa_value_heap_first(&c->heap);
    if (i < 0) return -1;
    proa_value_heap_remove(&c->heap, i);
    unlink_image(c, i);
    c->evicted++;
    return i;
}

/* An image for this page, in the table and held, without contents; -1: there is none. */
static int32_t make_image(proa_host_cache *c, const proa_page_name *name)
{
    int32_t i = c->capacity ? free_image(c) : -1;
    if (i < 0) return -1;
    proa_host_image *image = &c->image[i];
    *image = (proa_host_image){
        .key = name->key, .count = name->count, .depth = name->depth, .holds = 1, .copy = image->copy};
    memcpy(image->ids, name->ids, (size_t)name->count * sizeof *name->ids);
    link_image(c, i);
    return i;
}

static char *memory_of(const proa_host_cache *c, int32_t image)
{
    return c->memory + image * c->image_bytes;
}

/* ---- the folder ---- */

static void submit_job(proa_host_cache *c, int32_t i, bool writes)
{
    proa_host_image *image = &c->image[i];
    image->job = (proa_page_job){.name = {image->key, image->ids, image->count, image->depth},
                                 .image = memory_of(c, i),
                                 .writes = writes,
                                 .tag = i};
    proa_page_folder_submit(c->folder, &image->job);
}

/* Half of the images at most are on the way to the folder, and half on the way back: the others serve requests. */
static bool may_write(const proa_host_cache *c)
{
    return c->writing < c->capacity / 2;
}

static bool is_wanted(proa_host_cache *c, const proa_page_key *key)
{
    return c->folder && !c->broken && !proa_page_folder_has(c->folder, key);
}

/* The image, which the caller holds, is written once its copy has ended, and let go then. */
static void begin_write(proa_host_cache *c, int32_t i)
{
    c->image[i].has_job = true;
    c->writing++;
    c->copying[(c->copying_first + c->copying_count++) % c->capacity] = i;
    if (c->pages->device->host) proa_host_cache_poll(c);
}

static bool begin_read(proa_host_cache *c, const proa_page_name *name)
{
    if (!c->folder || c->reading >= (c->capacity + 1) / 2 || !proa_page_folder_has(c->folder, &name->key))
        return false;
    int32_t i = make_image(c, name);
    if (i < 0) return false;
    proa_host_image *image = &c->image[i];
    proa_kv_page_wait(c->pages, image->copy); /* an earlier copy into this image may still be running */
    image->reading = image->was_read = image->has_job = true;
    c->reading++;
    submit_job(c, i, false);
    return true;
}

/* An image whose read failed is removed. */
static void end_read(proa_host_cache *c, int32_t i, bool good)
{
    c->image[i].reading = c->image[i].has_job = false;
    c->reading--;
    if (good) {
        let_go(c, i);
        return;
    }
    unlink_image(c, i);
    c->image[i].next = c->free;
    c->free = i;
}

static void end_write(proa_host_cache *c, int32_t i)
{
    c->image[i].has_job = false;
    c->writing--;
    let_go(c, i);
}

bool proa_host_cache_copies(const proa_host_cache *c)
{
    return c->copying_count > 0;
}

void proa_host_cache_poll(proa_host_cache *c)
{
    proa_page_job *job;
    while (c->copying_count > 0) {
        int32_t i = c->copying[c->copying_first];
        if (c->image[i].copy > proa_kv_pages_copied(c->pages)) break;
        c->copying_first = (c->copying_first + 1) % c->capacity;
        c->copying_count--;
        if (c->broken) end_write(c, i);
        else submit_job(c, i, true);
    }
    while (c->folder && (job = proa_page_folder_finished(c->folder))) {
        if (job->writes) end_write(c, job->tag);
        else end_read(c, job->tag, job->status == PROA_OK);
    }
}

void proa_host_cache_wait(proa_host_cache *c, int64_t ms)
{
    if (c->folder && c->reading + c->writing - c->copying_count > 0) proa_page_folder_wait(c->folder, ms);
}

void proa_host_cache_disable(proa_host_cache *c)
{
    c->broken = true;
}

/* ---- the cache ---- */

static int64_t buckets_for(int64_t capacity)
{
    int64_t n = 16;
    while (n < 2 * capacity) n *= 2;
    return n;
}

int64_t proa_host_cache_bytes(int64_t capacity)
{
    return capacity * (int64_t)(sizeof(proa_host_image) + sizeof(int32_t)) + proa_value_heap_bytes(capacity) +
           buckets_for(capacity) * (int64_t)sizeof(int32_t);
}

/* The least time of a few copies out and back; the page keeps its contents. */
static double measure_copy(const proa_host_cache *c)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        int64_t begin = proa_clock_ns();
        proa_kv_page_wait(c->pages, proa_kv_page_save(c->pages, 0, c->memory));
        proa_kv_page_wait(c->pages, proa_kv_page_load(c->pages, 0, c->memory));
        least = proa_min64(least, (proa_clock_ns() - begin) / 2);
    }
    proa_kv_pages_wait_on_stream(c->pages);
    return (double)least;
}

proa_status proa_host_cache_init(proa_host_cache *c, const proa_kv_pages *pages, int64_t capacity,
                                 proa_page_folder *folder, proa_err *err)
{
    *c = (proa_host_cache){.pages = pages, .free = -1, .image_bytes = proa_kv_image_bytes(pages)};
    if (capacity > 0) c->memory = proa_kv_images_alloc(pages, capacity);
    if (!c->memory) proa_page_folder_close(folder);
    if (capacity == 0) return PROA_OK;
    if (!c->memory)
        return PROA_FAIL(err, NO_MEMORY,
                         "prefix cache: %lld pages of %lld bytes do not fit into memory of the host "
                         "(--prefix-host-memory)",
                         (long long)capacity, (long long)c->image_bytes);
    c->capacity = capacity;
    c->folder = folder;
    c->copying = proa_calloc((size_t)capacity, sizeof *c->copying);
    c->image = proa_calloc((size_t)capacity, sizeof *c->image);
    c->buckets_count = buckets_for(capacity);
    c->buckets = proa_malloc((size_t)c->buckets_count * sizeof *c->buckets);
    for (int64_t i = 0; i < c->buckets_count; i++) c->buckets[i] = -1;
    for (int64_t i = capacity; i-- > 0;) {
        c->image[i].next = c->free;
        c->free = (int32_t)i;
    }
    proa_value_heap_init(&c->heap, capacity);
    c->copy_ns = measure_copy(c);
    return PROA_OK;
}

void proa_host_cache_release(proa_host_cache *c)
{
    if (proa_host_cache_copies(c)) { /* copies keep their order: the last one ends after all others */
        int64_t last = c->copying_first + c->copying_count - 1;
        proa_kv_page_wait(c->pages, c->image[c->copying[last % c->capacity]].copy);
        proa_host_cache_poll(c);
    }
    proa_page_folder_close(c->folder);
    if (c->memory) proa_kv_images_free(c->pages, c->memory);
    free(c->image);
    free(c->copying);
    free(c->buckets);
    proa_value_heap_release(&c->heap);
    *c = (proa_host_cache){.count = 0};
}

/* If the image still exists from an earlier eviction, only its time is updated. */
void proa_host_cache_put(proa_host_cache *c, const proa_page_name *name, int32_t page, bool keeps)
{
    int32_t i = find_image(c, &name->key);
    if (c->broken) return;
    c->clock++;
    if (i >= 0) {
        c->image[i].staged = false;
        if (c->image[i].holds == 0) proa_value_heap_put(&c->heap, i, value_of(c, &c->image[i]));
        proa_kv_pages_wait_on_stream(c->pages); /* its copy may have begun just now */
        return;
    }
    i = make_image(c, name);
    if (i < 0) return;
    c->image[i].copy = proa_kv_page_save(c->pages, page, memory_of(c, i));
    proa_kv_pages_wait_on_stream(c->pages);
    if (keeps && is_wanted(c, &name->key) && may_write(c)) begin_write(c, i);
    else let_go(c, i);
}

/* If the pool evicts the page before the copy has ended, passes that follow wait for it (proa_host_cache_put). */
bool proa_host_cache_keep(proa_host_cache *c, const proa_page_name *name, int32_t page)
{
    if (!is_wanted(c, &name->key)) return true;
    int32_t i = find_image(c, &name->key);
    if (i >= 0 && c->image[i].has_job) return true;
    if (!may_write(c)) return false;
    if (i >= 0) {
        hold_image(c, i);
    } else {
        i = make_image(c, name);
        if (i < 0) return false;
        c->image[i].staged = true;
        c->image[i].copy = proa_kv_page_save(c->pages, page, memory_of(c, i));
    }
    begin_write(c, i);
    return true;
}

static bool has_tokens(const proa_host_image *image, const proa_page_name *name)
{
    size_t bytes = (size_t)name->count * sizeof *name->ids;
    return image->count == name->count && memcmp(image->ids, name->ids, bytes) == 0;
}

/* The folder has the page, and others are being read, whose images will be free soon. */
static bool waits_for_room(const proa_host_cache *c, const proa_page_key *key)
{
    return c->folder && c->reading > 0 && proa_page_folder_has(c->folder, key);
}

proa_host_find proa_host_cache_find(proa_host_cache *c, const proa_page_name *name, int32_t *image)
{
    int32_t i = find_image(c, &name->key);
    if (i < 0 && begin_read(c, name)) return PROA_HOST_READING;
    if (i < 0) return waits_for_room(c, &name->key) ? PROA_HOST_READING : PROA_HOST_MISS;
    if (!has_tokens(&c->image[i], name)) return PROA_HOST_MISS;
    if (c->image[i].reading) return PROA_HOST_READING;
    hold_image(c, i);
    *image = i;
    return PROA_HOST_READY;
}

bool proa_host_cache_fetch(proa_host_cache *c, const proa_page_name *name)
{
    if (find_image(c, &name->key) >= 0 || begin_read(c, name)) return true;
    return c->folder && proa_page_folder_has(c->folder, &name->key);
}

/* Copies keep their order, so the image may be overwritten by a later one at once; a job that fills it waits. */
bool proa_host_cache_load(proa_host_cache *c, int32_t image, int32_t page)
{
    proa_host_image *from = &c->image[image];
    bool was_read = from->was_read;
    if (from->uses < USES_COUNTED) from->uses++;
    from->staged = was_read; /* the pool has it now, and the folder, too */
    from->was_read = false;
    from->copy = proa_kv_page_load(c->pages, page, memory_of(c, image));
    proa_kv_pages_wait_on_stream(c->pages);
    let_go(c, image);
    return was_read;
}

void proa_host_cache_drop(proa_host_cache *c, int32_t image)
{
    let_go(c, image);
}
