/* SPDX-License-Identifier: Apache-2.0
 * state_cache.c - recurrent states behind pages of the prefix tree: which slot has which, and which one goes first. */
#include "kv/state_cache.h"

#include "base/alloc.h"
#include <stdlib.h>

int64_t proa_state_cache_bytes(int64_t count, int64_t pages)
{
    return count * (int64_t)(sizeof(int32_t) + sizeof(uint64_t)) + pages * (int64_t)sizeof(int32_t);
}

void proa_state_cache_init(proa_state_cache *c, proa_state_slots *slots, int64_t pages)
{
    *c = (proa_state_cache){.count = slots->kept, .slots = slots};
    if (c->count == 0) return;
    c->page_of = proa_calloc((size_t)c->count, sizeof *c->page_of);
    c->time = proa_calloc((size_t)c->count, sizeof *c->time);
    c->at_page = proa_calloc((size_t)pages, sizeof *c->at_page);
    for (int64_t i = 0; i < c->count; i++) c->page_of[i] = -1;
    for (int64_t i = 0; i < pages; i++) c->at_page[i] = -1;
}

void proa_state_cache_release(proa_state_cache *c)
{
    free(c->page_of);
    free(c->time);
    free(c->at_page);
    *c = (proa_state_cache){.count = 0};
}

bool proa_state_cache_has(const proa_state_cache *c, int32_t page)
{
    return c->count > 0 && c->at_page[page] >= 0;
}

void proa_state_cache_drop(proa_state_cache *c, int32_t page)
{
    if (!proa_state_cache_has(c, page)) return;
    int32_t i = c->at_page[page];
    c->page_of[i] = c->at_page[page] = -1;
    c->time[i] = 0;
    c->used--;
}

/* A free one, or the least recently used one, which is dropped. */
static int32_t take_slot(proa_state_cache *c)
{
    int32_t first = 0;
    for (int32_t i = 1; i < c->count; i++)
        if (c->time[i] < c->time[first]) first = i;
    if (c->page_of[first] >= 0) proa_state_cache_drop(c, c->page_of[first]);
    return first;
}

void proa_state_cache_save(proa_state_cache *c, int32_t page, int64_t sequence)
{
    if (c->count == 0) return;
    int32_t i = c->at_page[page];
    if (i < 0) {
        i = take_slot(c);
        proa_state_slots_save(c->slots, i, sequence);
        c->page_of[i] = page, c->at_page[page] = i;
        c->used++;
    }
    c->time[i] = ++c->clock;
}

void proa_state_cache_load(proa_state_cache *c, int32_t page, int64_t sequence)
{
    int32_t i = c->at_page[page];
    PROA_ASSERT(i >= 0);
    proa_state_slots_load(c->slots, sequence, i);
    c->time[i] = ++c->clock;
}
