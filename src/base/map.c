/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/alloc.h"

struct proa_map_slot {
    const char *ptr; /* NULL: empty */
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

/* The slot of the key, or the empty one where it belongs (linear probing; at most half of the slots are full). */
static struct proa_map_slot *probe(const proa_map *map, proa_str key, uint32_t *tag)
{
    uint64_t hash = proa_str_hash(key);
    *tag = (uint32_t)(hash >> 32);
    for (uint64_t i = hash;; i++) {
        struct proa_map_slot *s = &map->slots[i & (uint64_t)(map->cap - 1)];
        if (!s->ptr) return s;
        if (s->tag == *tag && proa_str_eq((proa_str){s->ptr, s->len}, key)) return s;
    }
}

static void grow(proa_map *map)
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
    if (map->count >= map->cap / 2) grow(map);
    uint32_t tag;
    struct proa_map_slot *s = probe(map, key, &tag);
    bool fresh = !s->ptr;
    *s = (struct proa_map_slot){key.ptr, (uint32_t)key.len, tag, value};
    map->count += fresh;
    return fresh;
}

bool proa_map_find(const proa_map *map, proa_str key, int32_t *value)
{
    uint32_t tag;
    if (!map->slots) return false;
    const struct proa_map_slot *s = probe(map, key, &tag);
    if (!s->ptr) return false;
    *value = s->value;
    return true;
}
