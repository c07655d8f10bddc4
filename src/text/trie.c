/* SPDX-License-Identifier: Apache-2.0
 * trie.c - builds a trie in breadth-first order and walks it. */
#include "text/trie.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

static int key_order(const void *x, const void *y)
{
    const proa_trie_key *a = x, *b = y;
    size_t n = a->bytes.len < b->bytes.len ? a->bytes.len : b->bytes.len;
    int c = memcmp(a->bytes.ptr, b->bytes.ptr, n);
    if (c) return c;
    if (a->bytes.len != b->bytes.len) return a->bytes.len < b->bytes.len ? -1 : 1;
    return a->value < b->value ? -1 : a->value > b->value;
}

/* Number of nodes for the sorted keys: each key adds the bytes that it does not share with the previous
 * one. */
static int64_t node_count(const proa_trie_key *keys, int64_t n)
{
    int64_t nodes = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t shared = 0;
        if (i > 0) {
            proa_str a = keys[i - 1].bytes, b = keys[i].bytes;
            while (shared < a.len && shared < b.len && a.ptr[shared] == b.ptr[shared]) shared++;
        }
        nodes += (int64_t)(keys[i].bytes.len - shared);
    }
    return nodes;
}

typedef struct range {
    uint32_t low, high, depth; /* a node: the keys [low, high), which share their first `depth` bytes */
} range;

/* Adds the children of the keys in r as new nodes at the end; breadth first, so that they lie side by side. */
static void add_children(proa_trie *t, const proa_trie_key *keys, range r, range *ranges, int32_t parent)
{
    uint32_t i = r.low;
    while (i < r.high && keys[i].bytes.len == r.depth)
        i++; /* equal keys: sorted first, and the last one counts */
    if (parent >= 0) {
        t->value[parent] = i > r.low ? keys[i - 1].value : -1;
        t->first[parent] = (uint32_t)t->nodes;
    }
    int count = 0;
    while (i < r.high) {
        unsigned char byte = (unsigned char)keys[i].bytes.ptr[r.depth];
        uint32_t end = i;
        while (end < r.high && (unsigned char)keys[end].bytes.ptr[r.depth] == byte) end++;
        if (parent < 0) t->root[byte] = (int32_t)t->nodes;
        t->label[t->nodes] = byte;
        ranges[t->nodes++] = (range){i, end, r.depth + 1};
        count++;
        i = end;
    }
    if (parent >= 0) t->count[parent] = (uint16_t)count;
}

proa_status proa_trie_build(proa_trie *t, proa_arena *arena, proa_trie_key *keys, int64_t n, proa_err *err)
{
    memset(t->root, 0xFF, sizeof t->root);
    t->nodes = 0;
    if (n == 0) return PROA_OK;
    qsort(keys, (size_t)n, sizeof *keys, key_order);
    int64_t nodes = node_count(keys, n);
    if (nodes > PROA_TRIE_NODES_MAX)
        return PROA_FAIL(err, LIMIT, "the vocabulary's prefix tree has %lld nodes, at most %d are allowed",
                         (long long)nodes, PROA_TRIE_NODES_MAX);
    t->first = PROA_ARENA_NEW(arena, uint32_t, nodes);
    t->value = PROA_ARENA_NEW(arena, int32_t, nodes);
    t->count = PROA_ARENA_NEW(arena, uint16_t, nodes);
    t->label = PROA_ARENA_NEW(arena, unsigned char, nodes);
    range *ranges = proa_calloc((size_t)nodes + 1, sizeof *ranges);
    add_children(t, keys, (range){0, (uint32_t)n, 0}, ranges, -1);
    for (int64_t i = 0; i < t->nodes; i++) add_children(t, keys, ranges[i], ranges, (int32_t)i);
    free(ranges);
    return PROA_OK;
}

int32_t proa_trie_step(const proa_trie *t, int32_t node, unsigned char byte)
{
    if (node == PROA_TRIE_ROOT) return t->root[byte];
    uint32_t low = t->first[node], high = low + t->count[node];
    while (high - low > 8) {
        uint32_t mid = low + (high - low) / 2;
        if (t->label[mid] <= byte) low = mid;
        else high = mid;
    }
    for (; low < high; low++)
        if (t->label[low] == byte) return (int32_t)low;
    return -1;
}

size_t proa_trie_longest(const proa_trie *t, proa_str s, int32_t *value)
{
    size_t best = 0;
    int32_t node = PROA_TRIE_ROOT;
    for (size_t i = 0; i < s.len; i++) {
        node = proa_trie_step(t, node, (unsigned char)s.ptr[i]);
        if (node < 0) break;
        if (t->value[node] >= 0) {
            best = i + 1;
            *value = t->value[node];
        }
    }
    return best;
}
