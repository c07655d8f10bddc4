/* SPDX-License-Identifier: Apache-2.0
 * arena.h - memory by life: allocate in sequence, release all at once.
 * Owner:   the caller of proa_arena_init; nothing taken from an arena is freed by itself.
 * Threads: one at a time.
 * Way in:  proa_arena_alloc; proa_arena_defer for what is not memory. */
#ifndef PROA_BASE_ARENA_H
#define PROA_BASE_ARENA_H

#include "base/str.h"

typedef struct proa_arena_block proa_arena_block;
typedef struct proa_arena_defer_item proa_arena_defer_item;
typedef struct proa_arena {
    proa_arena_block *block;      /* newest first */
    proa_arena_defer_item *defer; /* newest first: cleaned up in reverse */
    size_t bytes;                 /* handed out */
} proa_arena;

void proa_arena_init(proa_arena *arena);
/* Uses the caller's memory, aligned to 16 bytes, as the first block: what fits there needs no malloc. The
 * caller still owns it. After proa_arena_release the arena is as proa_arena_init leaves it. */
void proa_arena_init_in(proa_arena *arena, void *memory, size_t bytes);
void proa_arena_release(proa_arena *arena); /* runs the deferred clean-ups in reverse, frees all; usable again */

/* As release, but keeps one block for reuse: for work that is repeated. */
void proa_arena_reset(proa_arena *arena);

/* Zeroed, aligned to 16 bytes. Never NULL. */
void *proa_arena_alloc(proa_arena *arena, size_t bytes);
#define PROA_ARENA_NEW(arena, type, count) ((type *)proa_arena_array((arena), (count), sizeof(type)))
void *proa_arena_array(proa_arena *arena, int64_t count, size_t bytes); /* a product that overflows aborts */
char *proa_arena_strdup(proa_arena *arena, proa_str s);                 /* with a NUL */
const char *proa_arena_copy_text(proa_arena *arena, const char *text);  /* NULL stays NULL */
const char *const *proa_arena_copy_list(proa_arena *arena, const char *const *list, int count);
/* With a NUL; each %XX of a URL becomes its byte, what is no such escape stays. NULL if the result would hold a NUL. */
char *proa_arena_url_decode(proa_arena *arena, proa_str s);
char *proa_arena_printf(proa_arena *arena, const char *fmt, ...) PROA_PRINTF(2, 3);
void proa_arena_defer(proa_arena *arena, void (*fn)(void *), void *arg);

#endif
