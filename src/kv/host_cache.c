/* SPDX-License-Identifier: Apache-2.0
 * host_cache.c - images of pages in memory of the host: a hash table of them, and a heap for eviction. */
#include "kv/host_cache.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

struct proa_host_image {
    proa_page_key key;
    int32_t next;  /* in its chain, or in the list of unused images */
    int32_t count; /* of ids */
    int32_t depth; /* pages before it */
    int32_t uses;  /* how often it was loaded */
    int32_t holds; /* it is not evicted while somebody holds it */
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
    return ((when + 1) << DEPTH_BITS) - 1 - (uint64_t)image->depth;
}

static void let_go(proa_host_cache *c, int32_t i)
{
    proa_host_image *image = &c->image[i];
    PROA_ASSERT(image->holds > 0);
    if (--image->holds == 0) proa_value_heap_put(&c->heap, i, value_of(c, image));
}

/* An image that is in no table, held by the caller: an unused one, or the least valuable. -1: all are held. */
static int32_t take_image(proa_host_cache *c)
{
    int32_t i = c->free;
    if (i >= 0) {
        c->free = c->image[i].next;
    } else {
        i = proa_value_heap_first(&c->heap);
        if (i < 0) return -1;
        proa_value_heap_remove(&c->heap, i);
        unlink_image(c, i);
        c->evicted++;
    }
    c->image[i].holds = 1;
    return i;
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
    return capacity * (int64_t)sizeof(proa_host_image) + proa_value_heap_bytes(capacity) +
           buckets_for(capacity) * (int64_t)sizeof(int32_t);
}

proa_status proa_host_cache_init(proa_host_cache *c, const proa_kv_pages *pages, int64_t capacity, proa_err *err)
{
    *c = (proa_host_cache){.pages = pages, .free = -1, .image_bytes = proa_kv_image_bytes(pages)};
    if (capacity == 0) return PROA_OK;
    c->memory = proa_kv_images_alloc(pages, capacity);
    if (!c->memory)
        return PROA_FAIL(err, NO_MEMORY,
                         "prefix cache: %lld pages of %lld bytes do not fit into memory of the host "
                         "(--prefix-host-memory)",
                         (long long)capacity, (long long)c->image_bytes);
    c->capacity = capacity;
    c->image = proa_calloc((size_t)capacity, sizeof *c->image);
    c->buckets_count = buckets_for(capacity);
    c->buckets = proa_malloc((size_t)c->buckets_count * sizeof *c->buckets);
    for (int64_t i = 0; i < c->buckets_count; i++) c->buckets[i] = -1;
    for (int64_t i = capacity; i-- > 0;) {
        c->image[i].next = c->free;
        c->free = (int32_t)i;
    }
    proa_value_heap_init(&c->heap, capacity);
    return PROA_OK;
}

void proa_host_cache_release(proa_host_cache *c)
{
    if (c->memory) proa_kv_images_free(c->pages, c->memory);
    free(c->image);
    free(c->buckets);
    proa_value_heap_release(&c->heap);
    *c = (proa_host_cache){.count = 0};
}

static char *memory_of(const proa_host_cache *c, int32_t image)
{
    return c->memory + image * c->image_bytes;
}

/* A page that comes back finds its image where it left it: only its time changes. */
void proa_host_cache_put(proa_host_cache *c, const proa_page_name *name, int32_t page)
{
    int32_t i = find_image(c, &name->key);
    c->clock++;
    if (i >= 0) {
        if (c->image[i].holds == 0) proa_value_heap_put(&c->heap, i, value_of(c, &c->image[i]));
        return;
    }
    i = c->capacity ? take_image(c) : -1;
    if (i < 0) return;
    proa_host_image *image = &c->image[i];
    *image = (proa_host_image){.key = name->key, .count = name->count, .depth = name->depth, .holds = 1};
    memcpy(image->ids, name->ids, (size_t)name->count * sizeof *name->ids);
    link_image(c, i);
    proa_kv_page_save(c->pages, page, memory_of(c, i));
    proa_kv_pages_wait_on_stream(c->pages);
    let_go(c, i);
}

bool proa_host_cache_has(const proa_host_cache *c, const proa_page_key *key)
{
    return find_image(c, key) >= 0;
}

int32_t proa_host_cache_find(proa_host_cache *c, const proa_page_name *name)
{
    int32_t i = find_image(c, &name->key);
    if (i < 0) return -1;
    proa_host_image *image = &c->image[i];
    if (image->count != name->count || memcmp(image->ids, name->ids, (size_t)name->count * sizeof *name->ids) != 0)
        return -1;
    if (image->holds++ == 0) proa_value_heap_remove(&c->heap, i);
    return i;
}

/* Copies keep their order, so the image may be overwritten by a later one at once. */
void proa_host_cache_load(proa_host_cache *c, int32_t image, int32_t page)
{
    if (c->image[image].uses < USES_COUNTED) c->image[image].uses++;
    proa_kv_page_load(c->pages, page, memory_of(c, image));
    proa_kv_pages_wait_on_stream(c->pages);
    let_go(c, image);
}

void proa_host_cache_drop(proa_host_cache *c, int32_t image)
{
    let_go(c, image);
}
