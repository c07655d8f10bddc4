/* SPDX-License-Identifier: Apache-2.0
 * state_cache.h - recurrent states as they were behind the last token of pages of the prefix tree, so that a sequence
 * that begins with the tokens of an earlier one goes on from there.
 *
 * Keys and values serve a sequence that leaves a path of the tree at any page; a state is that of one place. So states
 * are kept behind few pages, in slots of their own, and go when their page leaves the tree, or when their slot is
 * needed for another one: the least recently used first.
 *
 * Owner:   one per engine, beside its state slots, which it borrows.
 * Threads: the stepping thread only.
 * Way in:  proa_state_cache_save, proa_state_cache_load. */
#ifndef PROA_KV_STATE_CACHE_H
#define PROA_KV_STATE_CACHE_H

#include "kv/state_slots.h"

typedef struct proa_state_cache {
    int64_t count, used; /* states that there is room for, 0: none are kept; states that are kept */
    /* private */
    proa_state_slots *slots;
    int32_t *page_of; /* [count] the page behind which a state is; -1: its slot is free */
    uint64_t *time;   /* [count] of its last use */
    int32_t *at_page; /* [pages] the state behind a page; -1: none */
    uint64_t clock;
} proa_state_cache;

/* Bookkeeping memory, in bytes. */
int64_t proa_state_cache_bytes(int64_t count, int64_t pages);
/* Keeps states in those slots that no sequence has. */
void proa_state_cache_init(proa_state_cache *c, proa_state_slots *slots, int64_t pages);
void proa_state_cache_release(proa_state_cache *c); /* a zero cache is fine */
/* Whether the state behind a page is kept. */
bool proa_state_cache_has(const proa_state_cache *c, int32_t page);
/* The sequence's state, which is that behind the page, is kept, too. */
void proa_state_cache_save(proa_state_cache *c, int32_t page, int64_t sequence);
/* The sequence goes on from a copy of the state behind the page, which is kept. */
void proa_state_cache_load(proa_state_cache *c, int32_t page, int64_t sequence);
/* The page leaves the tree. */
void proa_state_cache_drop(proa_state_cache *c, int32_t page);

#endif
