/* SPDX-License-Identifier: Apache-2.0
 * vocab.h - the pieces of a model by id, and their ids by bytes.
 * Owner:   tables live in the arena given to proa_vocab_init; the pieces' bytes are copied into it.
 * Threads: many may find while none puts.  Limits: PROA_VOCAB_MAX ids, PROA_TOKEN_BYTES_MAX bytes a piece. */
#ifndef PROA_TEXT_MODELS_VOCAB_H
#define PROA_TEXT_MODELS_VOCAB_H

#include "base/arena.h"
#include "base/status.h"

typedef struct proa_vocab_slot {
    uint32_t tag; /* upper half of the hash: most misses are seen without touching the piece */
    int32_t id;   /* -1: free */
} proa_vocab_slot;

typedef struct proa_vocab {
    proa_arena *arena;
    char *bytes;            /* all pieces, one after the other */
    uint32_t *at, *len;     /* by id; len 0 and at UINT32_MAX: a hole */
    int32_t size;           /* ids are below this */
    int64_t used, cap;      /* of bytes */
    proa_vocab_slot *slots; /* open addressing, a power of two, at most half full */
    bool twins;             /* two ids have the same piece */
    uint64_t mask, seed;    /* seed: random, so that no file can aim at one chain */
} proa_vocab;

/* Room for ids below size and for pieces of `bytes` bytes in all; both are exact upper bounds. */
PROA_MUST_CHECK proa_status proa_vocab_init(proa_vocab *vocab, proa_arena *arena, int32_t size, int64_t bytes,
                                            proa_err *err);
/* INVALID when the id is outside or taken, or the piece is not UTF-8 or too long. A piece that is there already
 * keeps both ids, and finding it gives the later one (as a HashMap of the tokenizers library would). */
PROA_MUST_CHECK proa_status proa_vocab_put(proa_vocab *vocab, proa_str piece, int64_t id, proa_err *err);
/* The same without the way from bytes to id (SentencePiece's second name space). */
PROA_MUST_CHECK proa_status proa_vocab_put_hidden(proa_vocab *vocab, proa_str piece, int64_t id, proa_err *err);
int32_t proa_vocab_find(const proa_vocab *vocab, proa_str piece); /* -1 if there is none */
bool proa_vocab_has(const proa_vocab *vocab, int32_t id);
proa_str proa_vocab_piece(const proa_vocab *vocab, int32_t id); /* empty for a hole or outside */

/* Seeded hashes for tables that outside files fill. */
uint64_t proa_hash_seed(void);
uint64_t proa_hash_bytes(proa_str s, uint64_t seed);
uint64_t proa_hash_pair(uint64_t pair, uint64_t seed);

#endif
