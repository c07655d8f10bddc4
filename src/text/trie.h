/* SPDX-License-Identifier: Apache-2.0
 * trie.h - byte strings to numbers, walked byte by byte: Viterbi, WordPiece and added tokens search with it.
 * Owner:   tables live in the arena given to proa_trie_build.
 * Threads: read-only after the build.  Limits: PROA_TRIE_NODES_MAX. */
#ifndef PROA_TEXT_TRIE_H
#define PROA_TEXT_TRIE_H

#include "base/arena.h"
#include "base/status.h"

typedef struct proa_trie_key {
    proa_str bytes; /* not empty */
    int32_t value;  /* >= 0; of two equal keys the later in the list wins */
} proa_trie_key;

typedef struct proa_trie {
    int32_t root[256]; /* the first step by table: -1, or a node */
    uint32_t *first;   /* of each node: its children are nodes first..first+count-1, by rising label */
    int32_t *value;    /* -1: no key ends here */
    uint16_t *count;
    unsigned char *label;
    int64_t nodes;
} proa_trie;

/* Sorts keys in place. The keys' bytes are not needed afterwards. */
PROA_MUST_CHECK proa_status proa_trie_build(proa_trie *trie, proa_arena *arena, proa_trie_key *keys,
                                            int64_t n, proa_err *err);
#define PROA_TRIE_ROOT (-2)
int32_t proa_trie_step(const proa_trie *trie, int32_t node, unsigned char byte); /* -1: no such path */
/* The longest key that s begins with: its length, 0 if there is none. */
size_t proa_trie_longest(const proa_trie *trie, proa_str s, int32_t *value);

#endif
