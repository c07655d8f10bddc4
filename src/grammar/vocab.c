/* SPDX-License-Identifier: Apache-2.0
 * vocab.c - sorts the tokens by their bytes and makes the prefix tree of them. */
#include "grammar/vocab.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const uint8_t *bytes;
    int32_t len, token;
} entry;

static int compare_entries(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    int order = memcmp(a->bytes, b->bytes, (size_t)(a->len < b->len ? a->len : b->len));
    if (order) return order;
    return a->len != b->len ? (a->len < b->len ? -1 : 1) : a->token < b->token ? -1 : 1;
}

static int32_t common_prefix(const entry *a, const entry *b)
{
    int32_t n = a->len < b->len ? a->len : b->len, i = 0;
    while (i < n && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

static void copy_bytes(proa_token_trie *v, const proa_str *bytes)
{
    size_t total = 0;
    v->begins = proa_malloc(((size_t)v->size + 1) * sizeof *v->begins);
    for (int32_t i = 0; i < v->size; i++)
        if (bytes[i].len <= PROA_GRAMMAR_TOKEN_MAX) total += bytes[i].len;
    v->bytes = proa_malloc(total + 1);
    total = 0;
    for (int32_t i = 0; i < v->size; i++) {
        size_t len = bytes[i].len <= PROA_GRAMMAR_TOKEN_MAX ? bytes[i].len : 0;
        v->begins[i] = (int32_t)total;
        if (len) memcpy(v->bytes + total, bytes[i].ptr, len);
        total += len;
        if ((int32_t)len > v->longest) v->longest = (int32_t)len;
    }
    v->begins[v->size] = (int32_t)total;
}

static int32_t add_node(proa_token_trie *v, uint8_t byte, int32_t depth)
{
    v->nodes[v->nodes_count] = (proa_token_node){.end = -1, .token = -1, .depth = (uint16_t)depth, .byte = byte};
    return v->nodes_count++;
}

/* entries are in order. open[d]: the node of the last token's first d bytes. */
static void make_nodes(proa_token_trie *v, const entry *entries, int32_t count)
{
    int32_t open[PROA_GRAMMAR_TOKEN_MAX + 1], depth = 0;
    open[0] = add_node(v, 0, 0);
    for (int32_t i = 0; i < count; i++) {
        int32_t shared = i ? common_prefix(&entries[i - 1], &entries[i]) : 0;
        while (depth > shared) v->nodes[open[depth--]].end = v->nodes_count;
        while (depth < entries[i].len) {
            uint8_t byte = entries[i].bytes[depth++];
            open[depth] = add_node(v, byte, depth);
        }
        v->same[entries[i].token] = v->nodes[open[depth]].token;
        v->nodes[open[depth]].token = entries[i].token;
    }
    for (; depth >= 0; depth--) v->nodes[open[depth]].end = v->nodes_count;
}

/* Backwards, so that the nodes below are done. */
static void find_deepest(proa_token_trie *v)
{
    for (int32_t i = v->nodes_count; i-- > 0;) {
        proa_token_node *n = &v->nodes[i];
        n->deepest = n->depth;
        for (int32_t k = i + 1; k < n->end; k = v->nodes[k].end)
            if (v->nodes[k].deepest > n->deepest) n->deepest = v->nodes[k].deepest;
    }
}

/* ---- what walks over the tree look up ---- */

enum { SET_NODES = 16 }; /* nodes below one that has a set: fewer are walked as quickly */

static void order_tokens(proa_token_trie *v)
{
    int32_t count = 0;
    v->order = proa_malloc(((size_t)v->size + 1) * sizeof *v->order);
    v->rank = proa_malloc(((size_t)v->nodes_count + 1) * sizeof *v->rank);
    for (int32_t i = 0; i < v->nodes_count; i++) {
        v->rank[i] = count;
        for (int32_t t = v->nodes[i].token; t >= 0; t = v->same[t]) v->order[count++] = t;
    }
    v->rank[v->nodes_count] = count;
}

static void order_by_byte(proa_token_trie *v)
{
    int32_t at[257] = {0}, path[PROA_GRAMMAR_TOKEN_MAX + 1] = {0};
    v->parent = proa_malloc((size_t)v->nodes_count * sizeof *v->parent);
    v->of_byte = proa_malloc((size_t)v->nodes_count * sizeof *v->of_byte);
    v->parent[0] = -1;
    for (int32_t i = 1; i < v->nodes_count; i++) at[v->nodes[i].byte + 1]++;
    for (int b = 0; b < 256; b++) at[b + 1] += at[b];
    memcpy(v->byte_begin, at, sizeof at);
    for (int32_t i = 1; i < v->nodes_count; i++) {
        const proa_token_node *n = &v->nodes[i];
        v->of_byte[at[n->byte]++] = i;
        v->parent[i] = path[n->depth - 1];
        path[n->depth] = i;
    }
}

/* UTF-8 as an automaton (RFC 3629): TEXT_WHOLE after a whole character, TEXT_BAD after what is none. */
enum { TEXT_WHOLE, TEXT_1, TEXT_2, TEXT_3, TEXT_E0, TEXT_ED, TEXT_F0, TEXT_F4, TEXT_BAD };

static uint8_t next_text(uint8_t state, uint8_t byte)
{
    static const struct {
        uint8_t lo, hi, to;
    } rest[] = {[TEXT_1] = {0x80, 0xBF, TEXT_WHOLE}, [TEXT_2] = {0x80, 0xBF, TEXT_1},
                [TEXT_3] = {0x80, 0xBF, TEXT_2},     [TEXT_E0] = {0xA0, 0xBF, TEXT_1},
                [TEXT_ED] = {0x80, 0x9F, TEXT_1},    [TEXT_F0] = {0x90, 0xBF, TEXT_2},
                [TEXT_F4] = {0x80, 0x8F, TEXT_2}};
    if (state == TEXT_BAD) return TEXT_BAD;
    if (state != TEXT_WHOLE)
        return rest[state].lo <= byte && byte <= rest[state].hi ? rest[state].to : TEXT_BAD;
    if (byte < 0x80) return TEXT_WHOLE;
    if (byte < 0xC2 || byte > 0xF4) return TEXT_BAD;
    if (byte < 0xE0) return TEXT_1;
    if (byte < 0xF0) return byte == 0xE0 ? TEXT_E0 : byte == 0xED ? TEXT_ED : TEXT_2;
    return byte == 0xF0 ? TEXT_F0 : byte == 0xF4 ? TEXT_F4 : TEXT_3;
}

static void add_below(proa_token_set *to, const proa_token_set *from, uint8_t byte)
{
    to->ascii[0] |= from->ascii[0], to->ascii[1] |= from->ascii[1];
    if (byte < 0x80) to->ascii[byte >> 6] |= (uint64_t)1 << (byte & 63);
    to->other = to->other || from->other || byte >= 0x80;
    to->text = to->text && from->text;
}

/* Forwards the state of each node's bytes, backwards what is below it. */
static void find_sets(proa_token_trie *v)
{
    size_t count = (size_t)v->nodes_count;
    int32_t sets = 0;
    uint8_t *state = proa_calloc(count, 1);
    proa_token_set *below = proa_calloc(count, sizeof *below);
    v->inner = proa_calloc(count / 32 + 1, sizeof *v->inner);
    v->set = proa_malloc(count * sizeof *v->set);
    for (int32_t i = 0; i < v->nodes_count; i++) {
        if (i) state[i] = next_text(state[v->parent[i]], v->nodes[i].byte);
        below[i].text = state[i] != TEXT_BAD;
        if (state[i] == TEXT_WHOLE && v->nodes[i].end > i + 1) v->inner[i >> 5] |= (uint32_t)1 << (i & 31);
        bool many = i > 0 && v->nodes[i].end - i > SET_NODES;
        v->set[i] = many ? sets++ : -1;
    }
    for (int32_t i = v->nodes_count; i-- > 1;) add_below(&below[v->parent[i]], &below[i], v->nodes[i].byte);
    v->sets = proa_calloc((size_t)sets + 1, sizeof *v->sets);
    for (int32_t i = 0; i < v->nodes_count; i++) {
        if (v->set[i] < 0) continue;
        v->sets[v->set[i]] = below[i];
        v->sets[v->set[i]].text = below[i].text && state[i] == TEXT_WHOLE;
    }
    free(state);
    free(below);
}

static int longer_first(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    if (a->len != b->len) return a->len > b->len ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

static void sort_by_length(proa_token_trie *v, entry *entries, int32_t count)
{
    qsort(entries, (size_t)count, sizeof *entries, longer_first);
    v->by_length = proa_malloc(((size_t)count + 1) * sizeof *v->by_length);
    v->by_length_count = count;
    for (int32_t i = 0; i < count; i++) v->by_length[i] = entries[i].token;
}

proa_str proa_token_special(char out[PROA_TOKEN_SPECIAL_BYTES], int32_t id)
{
    int n = snprintf(out, PROA_TOKEN_SPECIAL_BYTES, "\xFF%d\xFF", (int)id);
    return (proa_str){out, (size_t)n};
}

proa_token_trie *proa_token_trie_new(const proa_str *bytes, int32_t size)
{
    proa_token_trie *v = proa_calloc(1, sizeof *v);
    v->size = size;
    copy_bytes(v, bytes);
    entry *entries = proa_malloc(((size_t)size + 1) * sizeof *entries);
    int32_t count = 0;
    size_t nodes = 1;
    v->same = proa_malloc(((size_t)size + 1) * sizeof *v->same);
    for (int32_t i = 0; i < size; i++) {
        int32_t len = v->begins[i + 1] - v->begins[i];
        v->same[i] = -1;
        if (len) entries[count++] = (entry){(const uint8_t *)v->bytes + v->begins[i], len, i};
    }
    qsort(entries, (size_t)count, sizeof *entries, compare_entries);
    for (int32_t i = 0; i < count; i++)
        nodes += (size_t)(entries[i].len - (i ? common_prefix(&entries[i - 1], &entries[i]) : 0));
    v->nodes = proa_malloc(nodes * sizeof *v->nodes);
    make_nodes(v, entries, count);
    find_deepest(v);
    order_tokens(v);
    order_by_byte(v);
    find_sets(v);
    sort_by_length(v, entries, count);
    free(entries);
    return v;
}

void proa_token_trie_free(proa_token_trie *v)
{
    if (!v) return;
    free(v->nodes);
    free(v->same);
    free(v->by_length);
    free(v->parent);
    free(v->of_byte);
    free(v->order);
    free(v->rank);
    free(v->set);
    free(v->sets);
    free(v->inner);
    free(v->begins);
    free(v->bytes);
    free(v);
}

proa_str proa_token_trie_bytes(const proa_token_trie *v, int32_t token)
{
    if (token < 0 || token >= v->size) return (proa_str){"", 0};
    return (proa_str){v->bytes + v->begins[token], (size_t)(v->begins[token + 1] - v->begins[token])};
}
