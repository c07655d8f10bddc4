/* SPDX-License-Identifier: Apache-2.0
 * vocab.c - the table of pieces: by id, and by bytes through a seeded hash. */
#include "text/models/vocab.h"

#include "base/checked.h"
#include "base/limits.h"
#include <string.h>
#include <sys/random.h>

uint64_t proa_hash_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) seed = (uintptr_t)&seed;
    return seed;
}

uint64_t proa_hash_pair(uint64_t pair, uint64_t seed)
{
    return proa_fold_multiply(pair ^ 0x9E3779B97F4A7C15u, seed | 1);
}

uint64_t proa_hash_bytes(proa_str s, uint64_t seed)
{
    uint64_t h = seed ^ (s.len * 0xD6E8FEB86659FD93u), word;
    size_t i = 0;
    for (; i + 8 <= s.len; i += 8) {
        memcpy(&word, s.ptr + i, 8);
        h = proa_fold_multiply(h ^ word, 0xA0761D6478BD642Fu);
    }
    word = 0;
    if (i < s.len) memcpy(&word, s.ptr + i, s.len - i);
    return proa_fold_multiply(h ^ word, 0xE7037ED1A0B428DBu);
}

proa_status proa_vocab_init(proa_vocab *v, proa_arena *arena, int32_t size, int64_t bytes, proa_err *err)
{
    if (size < 0 || size > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "vocabulary has %d ids, at most %d are allowed", size, PROA_VOCAB_MAX);
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)size) slots *= 2;
    *v = (proa_vocab){.arena = arena, .size = size, .cap = bytes, .mask = slots - 1, .seed = proa_hash_seed()};
    v->bytes = proa_arena_alloc(arena, (size_t)bytes);
    v->at = PROA_ARENA_NEW(arena, uint32_t, size);
    v->len = PROA_ARENA_NEW(arena, uint32_t, size);
    if (size) memset(v->at, 0xFF, (size_t)size * sizeof *v->at);
    v->slots = PROA_ARENA_NEW(arena, proa_vocab_slot, (int64_t)slots);
    memset(v->slots, 0xFF, slots * sizeof *v->slots);
    return PROA_OK;
}

bool proa_vocab_has(const proa_vocab *v, int32_t id)
{
    return id >= 0 && id < v->size && v->at[id] != UINT32_MAX;
}

proa_str proa_vocab_piece(const proa_vocab *v, int32_t id)
{
    if (!proa_vocab_has(v, id)) return (proa_str){"", 0};
    return (proa_str){v->bytes + v->at[id], v->len[id]};
}

/* The slot of the piece, or the free one where it would go. The table is never more than half full. */
static proa_vocab_slot *probe_slot(const proa_vocab *v, proa_str piece, uint64_t h)
{
    for (uint64_t i = h & v->mask;; i = (i + 1) & v->mask) {
        proa_vocab_slot *s = &v->slots[i];
        if (s->id < 0) return s;
        if (s->tag == (uint32_t)(h >> 32) && proa_str_eq(proa_vocab_piece(v, s->id), piece)) return s;
    }
}

proa_status proa_vocab_put_hidden(proa_vocab *v, proa_str piece, int64_t id, proa_err *err)
{
    int shown = piece.len > 40 ? 40 : (int)piece.len;
    if (id < 0 || id >= v->size)
        return PROA_FAIL(err, INVALID, "token '%.*s' has id %lld, allowed is 0..%d", shown, piece.ptr,
                         (long long)id, v->size - 1);
    if (proa_vocab_has(v, (int32_t)id))
        return PROA_FAIL(err, INVALID, "tokens '%.40s' and '%.*s' have the same id %lld",
                         v->bytes + v->at[id], shown, piece.ptr, (long long)id);
    if (piece.len > PROA_TOKEN_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "token %lld has %zu bytes, at most %d are allowed", (long long)id,
                         piece.len, PROA_TOKEN_BYTES_MAX);
    if (!proa_utf8_valid(piece)) return PROA_FAIL(err, INVALID, "token %lld is not UTF-8", (long long)id);
    PROA_ASSERT(v->used + (int64_t)piece.len < v->cap);
    memcpy(v->bytes + v->used, piece.ptr, piece.len);
    v->at[id] = (uint32_t)v->used;
    v->len[id] = (uint32_t)piece.len;
    v->used += (int64_t)piece.len + 1; /* a NUL: messages may print a piece as a C string */
    return PROA_OK;
}

proa_status proa_vocab_put(proa_vocab *v, proa_str piece, int64_t id, proa_err *err)
{
    PROA_TRY(proa_vocab_put_hidden(v, piece, id, err));
    uint64_t h = proa_hash_bytes(piece, v->seed);
    proa_vocab_slot *s = probe_slot(v, piece, h);
    v->twins |= s->id >= 0;
    *s = (proa_vocab_slot){.tag = (uint32_t)(h >> 32), .id = (int32_t)id};
    return PROA_OK;
}

int32_t proa_vocab_find(const proa_vocab *v, proa_str piece)
{
    if (!v->slots) return -1;
    return probe_slot(v, piece, proa_hash_bytes(piece, v->seed))->id;
}
