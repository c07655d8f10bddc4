/* SPDX-License-Identifier: Apache-2.0
 * map.h - byte strings to 32-bit numbers: vocabularies, tensor names.
 * Owner:   the map owns its slots; the keys' bytes belong to the caller and must outlive it.
 * Threads: many may find while none puts. */
#ifndef PROA_BASE_MAP_H
#define PROA_BASE_MAP_H

#include "base/str.h"

typedef struct proa_map {
    struct proa_map_slot *slots;
    int64_t count, cap; /* cap is a power of two, or 0 */
} proa_map;

void proa_map_init(proa_map *map, int64_t expected); /* room for that many without growing */
void proa_map_release(proa_map *map);
/* Adds or overwrites. Returns true if the key was new. */
bool proa_map_put(proa_map *map, proa_str key, int32_t value);
bool proa_map_find(const proa_map *map, proa_str key, int32_t *value);

#endif
