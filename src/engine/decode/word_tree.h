/* SPDX-License-Identifier: Apache-2.0
 * word_tree.h - words as a prefix tree: which tokens may come next in a text that is a series of these words.
 * Owner:   its memory is in the caller's arena.
 * Threads: one at a time (proa_word_tree_mask uses working memory of the tree). */
#ifndef PROA_ENGINE_DECODE_WORD_TREE_H
#define PROA_ENGINE_DECODE_WORD_TREE_H

#include "base/arena.h"
#include "proa/proa.h"

/* Node 0 is the root; the children of a node form a list, and are found by (parent, token) in a hash table with open
 * addressing. */
typedef struct proa_word_node {
    int32_t token, parent, child, next; /* parent, first child, next sibling: nodes; 0: none */
    bool whole;                         /* a word ends here */
} proa_word_node;

typedef struct proa_word_tree {
    proa_word_node *node;
    int32_t count, depth; /* depth: tokens of the longest word */
    int32_t *slots;       /* nodes, 0: empty */
    uint32_t mask;        /* slots - 1, a power of two less one; at most half are taken */
    int32_t *begun[2];    /* [depth + 1] words begun so far, and those after one more token */
} proa_word_tree;

/* words: not empty, none of them empty. They are not needed any more afterwards. */
void proa_word_tree_make(proa_word_tree *t, const proa_words *words, proa_arena *arena);
/* Sets the bit of each token that may follow the text ids[count], among tokens 0 to columns - 1; other bits of mask
 * [(columns + 31) / 32] are cleared. Returns whether all words of the text are complete, so that it may end. */
bool proa_word_tree_mask(const proa_word_tree *t, const int32_t *ids, int64_t count, uint32_t *mask,
                         int64_t columns);

#endif
