/* SPDX-License-Identifier: Apache-2.0
 * arena.c - a bump allocator of chained blocks with deferred clean-ups. */
#include "base/arena.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdarg.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10)
#define ALIGN       ((size_t)16)

struct proa_arena_block {
    proa_arena_block *next;
    size_t used, size; /* of the bytes after this header */
    bool lent;         /* the caller's memory: not freed */
};
struct proa_arena_defer_item {
    proa_arena_defer_item *next;
    void (*fn)(void *);
    void *arg;
};

#define HEAD ((sizeof(proa_arena_block) + ALIGN - 1) / ALIGN * ALIGN)

void proa_arena_init(proa_arena *arena)
{
    *arena = (proa_arena){0};
}

void proa_arena_init_in(proa_arena *arena, void *memory, size_t bytes)
{
    PROA_ASSERT(bytes >= HEAD && (uintptr_t)memory % ALIGN == 0);
    *arena = (proa_arena){.block = memory};
    *arena->block = (proa_arena_block){.size = bytes - HEAD, .lent = true};
}

void proa_arena_release(proa_arena *arena)
{
    for (proa_arena_defer_item *d = arena->defer; d; d = d->next) d->fn(d->arg);
    for (proa_arena_block *b = arena->block, *next; b; b = next) {
        next = b->next;
        if (!b->lent) free(b);
    }
    *arena = (proa_arena){0};
}

/* Unlinks and returns the newest block of the standard size; NULL if there is none. */
static proa_arena_block *take_usual(proa_arena *arena)
{
    for (proa_arena_block **at = &arena->block; *at; at = &(*at)->next) {
        proa_arena_block *b = *at;
        if (b->size != BLOCK_BYTES) continue;
        *at = b->next;
        return b;
    }
    return NULL;
}

void proa_arena_reset(proa_arena *arena)
{
    for (proa_arena_defer_item *d = arena->defer; d; d = d->next) d->fn(d->arg);
    arena->defer = NULL;
    /* Under a sanitizer no block is kept, so that a use after the reset is reported. */
    proa_arena_block *kept = PROA_ASAN ? NULL : take_usual(arena);
    proa_arena_release(arena);
    if (!kept) return;
    *kept = (proa_arena_block){.size = BLOCK_BYTES};
    arena->block = kept;
}

void *proa_arena_alloc(proa_arena *arena, size_t bytes)
{
    PROA_ASSERT(bytes <= SIZE_MAX / 2);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    proa_arena_block *b = arena->block;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = proa_malloc(HEAD + size);
        *b = (proa_arena_block){.next = arena->block, .size = size};
        arena->block = b;
    }
    void *ptr = (char *)b + HEAD + b->used;
    b->used += bytes;
    arena->bytes += bytes;
    return memset(ptr, 0, bytes);
}

void *proa_arena_array(proa_arena *arena, int64_t count, size_t bytes)
{
    int64_t total = 0;
    PROA_ASSERT(proa_mul(count, (int64_t)bytes, &total));
    return proa_arena_alloc(arena, (size_t)total);
}

char *proa_arena_strdup(proa_arena *arena, proa_str s)
{
    char *copy = proa_arena_alloc(arena, s.len + 1);
    if (s.len) memcpy(copy, s.ptr, s.len);
    return copy;
}

const char *proa_arena_copy_text(proa_arena *arena, const char *text)
{
    return text ? proa_arena_strdup(arena, proa_str_c(text)) : NULL;
}

const char *const *proa_arena_copy_list(proa_arena *arena, const char *const *list, int count)
{
    const char **copy = PROA_ARENA_NEW(arena, const char *, count);
    for (int i = 0; i < count; i++) copy[i] = proa_arena_copy_text(arena, list[i]);
    return copy;
}

char *proa_arena_url_decode(proa_arena *arena, proa_str s)
{
    char *out = proa_arena_alloc(arena, s.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        bool escape = s.ptr[i] == '%' && i + 2 < s.len;
        int high = escape ? proa_hex_digit(s.ptr[i + 1]) : -1, low = escape ? proa_hex_digit(s.ptr[i + 2]) : -1;
        bool decoded = high >= 0 && low >= 0;
        out[n] = decoded ? (char)(high * 16 + low) : s.ptr[i];
        if (!out[n++]) return NULL;
        if (decoded) i += 2;
    }
    return out;
}

char *proa_arena_printf(proa_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = proa_arena_alloc(arena, (size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void proa_arena_defer(proa_arena *arena, void (*fn)(void *), void *arg)
{
    proa_arena_defer_item *d = proa_arena_alloc(arena, sizeof *d);
    *d = (proa_arena_defer_item){arena->defer, fn, arg};
    arena->defer = d;
}
