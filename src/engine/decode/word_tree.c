/* SPDX-License-Identifier: Apache-2.0
 * word_tree.c - words as a prefix tree. */
#include "engine/decode/word_tree.h"

#include "base/checked.h"
#include <string.h>

/* The slot of parent's child by that token, or the empty slot where it belongs. Multiplicative hashing (Knuth). */
static int32_t *slot_of(const proa_word_tree *t, int32_t parent, int32_t token)
{
    uint64_t key = (uint64_t)(uint32_t)parent << 32 | (uint32_t)token;
    uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & t->mask;
    while (t->slots[at] && (t->node[t->slots[at]].parent != parent || t->node[t->slots[at]].token != token))
        at = (at + 1) & t->mask;
    return &t->slots[at];
}

static void add_word(proa_word_tree *t, const int32_t *ids, int32_t n)
{
    int32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t *slot = slot_of(t, at, ids[i]);
        if (!*slot) {
            *slot = t->count++;
            t->node[*slot] = (proa_word_node){.token = ids[i], .parent = at, .next = t->node[at].child};
            t->node[at].child = *slot;
        }
        at = *slot;
    }
    t->node[at].whole = true;
    if (n > t->depth) t->depth = n;
}

void proa_word_tree_make(proa_word_tree *t, const proa_words *words, proa_arena *arena)
{
    int64_t nodes = (int64_t)words->ends[words->count - 1] + 1, slots = 2;
    while (slots < 2 * nodes) slots *= 2;
    *t = (proa_word_tree){.node = PROA_ARENA_NEW(arena, proa_word_node, nodes), .count = 1};
    t->slots = PROA_ARENA_NEW(arena, int32_t, slots);
    t->mask = (uint32_t)(slots - 1);
    memset(t->slots, 0, (size_t)slots * sizeof *t->slots);
    t->node[0] = (proa_word_node){0};
    for (int32_t i = 0, begin = 0; i < words->count; begin = words->ends[i++])
        add_word(t, words->ids + begin, words->ends[i] - begin);
    for (int i = 0; i < 2; i++) t->begun[i] = PROA_ARENA_NEW(arena, int32_t, (int64_t)t->depth + 1);
}

/* The words that may have begun by the end of the text, as nodes; the root means that all words are complete. There are
 * several if words begin alike: at most one for each position where a word may have begun, so at most depth + 1.
 * Returns how many, and where they are. */
static int32_t find_begun(const proa_word_tree *t, const int32_t *ids, int64_t count, const int32_t **out)
{
    int32_t *now = t->begun[0], *then = t->begun[1], begun = 1;
    now[0] = 0;
    for (int64_t i = 0; i < count && begun; i++) {
        int32_t after = 0;
        bool whole = false;
        for (int32_t k = 0; k < begun; k++) {
            int32_t at = *slot_of(t, now[k], ids[i]);
            if (!at) continue;
            if (t->node[at].child) then[after++] = at;
            whole = whole || t->node[at].whole;
        }
        if (whole) then[after++] = 0;
        begun = after;
        int32_t *swap = now;
        now = then;
        then = swap;
    }
    *out = now;
    return begun;
}

bool proa_word_tree_mask(const proa_word_tree *t, const int32_t *ids, int64_t count, uint32_t *mask,
                         int64_t columns)
{
    const int32_t *begun;
    int32_t n = find_begun(t, ids, count, &begun);
    bool complete = false;
    memset(mask, 0, (size_t)proa_ceil_div(columns, 32) * sizeof *mask);
    for (int32_t k = 0; k < n; k++) {
        complete = complete || begun[k] == 0;
        for (int32_t c = t->node[begun[k]].child; c; c = t->node[c].next) {
            int32_t id = t->node[c].token;
            if (id >= 0 && id < columns) mask[id >> 5] |= (uint32_t)1 << (id & 31);
        }
    }
    return complete;
}
