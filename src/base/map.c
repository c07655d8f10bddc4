/* SPDX-License-Identifier: Apache-2.0
 * map.c - a hash map from byte strings to 32-bit numbers: open addressing, hashed with a secret. */
#include "base/map.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

struct proa_map_slot {
    const char *ptr;   /* NULL: empty */
    uint32_t len, tag; /* tag: high half of the hash, compared before the bytes */
    int32_t value;
};

static int64_t cap_for(int64_t count)
{
    int64_t cap = 16;
    while (cap / 2 < count) cap *= 2;
    return cap;
}

void proa_map_init(proa_map *map, int64_t expected)
{
    map->count = 0;
    map->cap = cap_for(expected);
    map->slots = proa_calloc((size_t)map->cap, sizeof *map->slots);
}

void proa_map_release(proa_map *map)
{
    free(map->slots);
    *map = (proa_map){0};
}

/* A random secret of this process. Names come from files, and with a known hash a file could choose names
 * that all collide. Nothing depends on the order of slots, so results are the same in each run. */
static uint64_t map_secret(void)
{
    static _Atomic uint64_t shared;
    uint64_t have = atomic_load_explicit(&shared, memory_order_relaxed), fresh = 0;
    if (PROA_LIKELY(have != 0)) return have;
    if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh) fresh = (uint64_t)(uintptr_t)&fresh;
    fresh |= 1;
    return atomic_compare_exchange_strong(&shared, &have, fresh) ? fresh : have;
}

static uint64_t hash_of(proa_str key)
{
    uint64_t h = map_secret() ^ key.len, word;
    const char *p = key.ptr;
    size_t left = key.len;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = proa_fold_multiply(h ^ word, 0x9e3779b97f4a7c15u);
    }
    word = 0;
    memcpy(&word, p, left);
    return proa_fold_multiply(proa_fold_multiply(h ^ word, 0x9e3779b97f4a7c15u), map_secret());
}

/* The slot of the key, or the empty one where it belongs (linear probing; at most half of the slots are full). */
static struct proa_map_slot *probe_slot(const proa_map *map, proa_str key, uint32_t *tag)
{
    uint64_t hash = hash_of(key);
    *tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash;; i++) {
        struct proa_map_slot *s = &map->slots[i & (uint64_t)(map->cap - 1)];
        if (!s->ptr) return s;
        if (s->tag == *tag && proa_str_eq((proa_str){s->ptr, s->len}, key)) return s;
    }
}

static void grow_map(proa_map *map)
{
    proa_map bigger;
    proa_map_init(&bigger, map->cap);
    for (int64_t i = 0; i < map->cap; i++)
        if (map->slots[i].ptr)
            proa_map_put(&bigger, (proa_str){map->slots[i].ptr, map->slots[i].len}, map->slots[i].value);
    proa_map_release(map);
    *map = bigger;
}

bool proa_map_put(proa_map *map, proa_str key, int32_t value)
{
    PROA_ASSERT(key.ptr && key.len <= UINT32_MAX);
    if (!map->slots) proa_map_init(map, 0);
    if (map->count >= map->cap / 2) grow_map(map);
    uint32_t tag;
    struct proa_map_slot *s = probe_slot(map, key, &tag);
    bool fresh = !s->ptr;
    *s = (struct proa_map_slot){key.ptr, (uint32_t)key.len, tag, value};
    map->count += fresh;
    return fresh;
}

bool proa_map_find(const proa_map *map, proa_str key, int32_t *value)
{
    uint32_t tag;
    if (!map->slots) return false;
    const struct proa_map_slot *s = probe_slot(map, key, &tag);
    if (!s->ptr) return false;
    *value = s->value;
    return true;
}
