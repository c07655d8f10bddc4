/* SPDX-License-Identifier: Apache-2.0
 * prefix_tree.c - the tree over full KV pages: a hash table of nodes, and a heap of the idle leaves for eviction. */
#include "kv/prefix_tree.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct proa_prefix_node {
    int32_t parent;   /* or a proa_prefix_root */
    int32_t next;     /* in its chain, or in the list of free nodes */
    int32_t page;     /* of the pool */
    int32_t children; /* nodes whose parent this one is */
    int32_t depth;    /* pages before it */
    int32_t count;    /* of ids: 64, or less in the last page of an encoder's input */
    int32_t uses;     /* how often it was matched */
    bool keeps;       /* of its namespace */
    bool left;        /* it is not worth a copy (proa_prefix_tree_leave) */
    uint64_t hash;
    uint64_t value;           /* of an idle leaf: the one with the lowest is evicted first */
    proa_kv_namespace *space; /* of a root node; NULL: the parent's */
    proa_page_key key;        /* of a tree with a lower level */
    int32_t ids[PROA_PAGE_TOKENS];
};

enum {
    USES_COUNTED = 8,  /* reuses that keep a page, at most */
    USE_WORTH_PART = 8 /* each counts as a use that is later by that part of the pool */
};

/* ---- namespaces ---- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t word;
    for (size_t i = 0; i < len; i += sizeof word) {
        word = 0;
        memcpy(&word, p + i, len - i < sizeof word ? len - i : sizeof word);
        hash = proa_fold_multiply(hash ^ word ^ 0x9e3779b97f4a7c15u, 0xd6e8feb86659fd93u);
    }
    return hash ^ len;
}

proa_kv_namespace *proa_kv_namespace_new(const void *bytes, size_t len, bool keeps)
{
    proa_kv_namespace *n = proa_malloc(sizeof *n + len);
    *n = (proa_kv_namespace){.refs = 1,
                             .hash = hash_bytes(1, bytes, len),
                             .key = proa_page_key_of(bytes, len),
                             .keeps = keeps,
                             .len = len};
    if (len) memcpy(n->bytes, bytes, len);
    return n;
}

void proa_kv_namespace_release(proa_kv_namespace *n)
{
    if (n && --n->refs == 0) free(n);
}

static bool same_namespace(const proa_kv_namespace *a, const proa_kv_namespace *b)
{
    return a == b || (a->hash == b->hash && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0);
}

/* ---- nodes ---- */

/* A root node has no parent: the hash of its namespace takes the parent's place. */
static uint64_t hash_of(const proa_prefix_tree *t, int32_t parent, const proa_prefix_key *key)
{
    uint64_t from = t->seed ^ (uint64_t)(uint32_t)parent ^ (parent < 0 ? key->space->hash : 0);
    return hash_bytes(from, key->ids, (size_t)key->count * sizeof *key->ids);
}

static bool has_key(const proa_prefix_node *n, int32_t parent, const proa_prefix_key *key)
{
    return n->parent == parent && n->count == key->count &&
           (parent >= 0 || same_namespace(n->space, key->space)) &&
           memcmp(n->ids, key->ids, (size_t)key->count * sizeof *key->ids) == 0;
}

/* The child of `parent` with the ids of a page, or -1. */
static int32_t find_node(const proa_prefix_tree *t, int32_t parent, const proa_prefix_key *page)
{
    uint64_t hash = hash_of(t, parent, page);
    for (int32_t i = t->buckets[hash & (uint64_t)(t->buckets_count - 1)]; i >= 0; i = t->node[i].next)
        if (t->node[i].hash == hash && has_key(&t->node[i], parent, page)) return i;
    return -1;
}

/* The name outside of the tree of the page with these tokens that follows the cursor. */
static proa_page_name name_of(const proa_prefix_tree *t, const proa_prefix_cursor *at, const proa_prefix_key *page)
{
    bool first = at->node < 0;
    const proa_page_key *before = first ? &page->space->key : &t->node[at->node].key;
    return (proa_page_name){.key = proa_page_key_next(before, first ? at->node : 0, page->ids, page->count),
                            .ids = page->ids,
                            .count = (int32_t)page->count,
                            .depth = at->pages};
}

static int32_t *bucket_of(const proa_prefix_tree *t, uint64_t hash)
{
    return &t->buckets[hash & (uint64_t)(t->buckets_count - 1)];
}

/* There are as many nodes as the pool has pages, and each holds a page of its own. */
static int32_t add_node(proa_prefix_tree *t, const proa_prefix_cursor *behind, const proa_prefix_key *key,
                        int32_t page)
{
    int32_t i = t->free_node, parent = behind->node;
    PROA_ASSERT(i >= 0 && t->node_of[page] < 0);
    proa_prefix_node *n = &t->node[i];
    pthread_mutex_lock(&t->lock);
    t->free_node = n->next;
    *n = (proa_prefix_node){.parent = parent, .page = page, .depth = behind->pages, .count = (int32_t)key->count};
    n->keeps = key->space->keeps;
    if (t->below) n->key = name_of(t, behind, key).key;
    n->hash = hash_of(t, parent, key);
    memcpy(n->ids, key->ids, (size_t)key->count * sizeof *key->ids);
    if (parent < 0) n->space = key->space, key->space->refs++;
    else t->node[parent].children++;
    n->next = *bucket_of(t, n->hash);
    *bucket_of(t, n->hash) = i;
    pthread_mutex_unlock(&t->lock);
    t->node_of[page] = i;
    t->nodes++;
    t->clock++;
    proa_kv_pages_hold(t->pages, page);
    return i;
}

/* What keeps an idle page: when it was used last, and how often. */
static uint64_t value_of(const proa_prefix_tree *t, const proa_prefix_node *n)
{
    uint64_t uses = (uint64_t)(n->uses < USES_COUNTED ? n->uses : USES_COUNTED);
    return t->clock + uses * (uint64_t)(t->pages->count / USE_WORTH_PART);
}

static void unlink_node(proa_prefix_tree *t, int32_t i)
{
    int32_t *link = bucket_of(t, t->node[i].hash);
    while (*link != i) link = &t->node[*link].next;
    *link = t->node[i].next;
}

/* Removes an idle leaf; its page becomes free. Its parent may become an idle leaf by that. */
static void remove_node(proa_prefix_tree *t, int32_t i)
{
    proa_prefix_node *n = &t->node[i];
    int32_t parent = n->parent, page = n->page;
    PROA_ASSERT(n->children == 0);
    proa_value_heap_remove(&t->leaves, i);
    pthread_mutex_lock(&t->lock);
    unlink_node(t, i);
    proa_kv_namespace_release(n->space);
    n->space = NULL;
    n->next = t->free_node;
    pthread_mutex_unlock(&t->lock);
    t->node_of[page] = -1;
    t->free_node = i;
    t->nodes--;
    if (t->states) proa_state_cache_drop(t->states, page);
    proa_kv_pages_unhold(t->pages, page);
    if (parent < 0) return;
    proa_prefix_node *up = &t->node[parent];
    if (--up->children == 0 && proa_kv_pages_is_idle(t->pages, up->page))
        proa_value_heap_put(&t->leaves, parent, up->value);
}

/* ---- the pool's calls ---- */

static proa_page_name node_name(const proa_prefix_node *n)
{
    return (proa_page_name){.key = n->key, .ids = n->ids, .count = n->count, .depth = n->depth};
}

static void page_turns_idle(void *arg, int32_t page, bool idle)
{
    proa_prefix_tree *t = arg;
    int32_t i = t->node_of[page];
    if (i < 0) return; /* it is being inserted or removed */
    if (!idle) {
        proa_value_heap_remove(&t->leaves, i);
        return;
    }
    proa_prefix_node *n = &t->node[i];
    n->value = value_of(t, n);
    if (n->children == 0) proa_value_heap_put(&t->leaves, i, n->value);
    if (!t->below || !t->below->folder || !n->keeps || t->is_unwritten[page]) return;
    t->is_unwritten[page] = true;
    t->unwritten[t->unwritten_count++] = page;
}

/* Tables hold whole paths, so below an idle node all nodes are idle: while there is an idle page there is an idle
 * leaf. */
static void evict_page(void *arg)
{
    proa_prefix_tree *t = arg;
    int32_t i = proa_value_heap_first(&t->leaves);
    PROA_ASSERT(i >= 0);
    proa_prefix_node *n = &t->node[i];
    proa_page_name name = node_name(n);
    if (t->below && !n->left) proa_host_cache_put(t->below, &name, n->page, n->keeps);
    t->evicted++;
    remove_node(t, i);
}

/* A sequence returns its last page first, so the newest on the list is nearest to its beginning. A page that was
 * evicted meanwhile may have another node, or none. */
bool proa_prefix_tree_write(proa_prefix_tree *t)
{
    while (t->unwritten_count > 0) {
        int32_t page = t->unwritten[t->unwritten_count - 1], i = t->node_of[page];
        proa_page_name name = {.count = 0};
        if (i >= 0) name = node_name(&t->node[i]);
        if (i >= 0 && t->node[i].keeps && !proa_host_cache_keep(t->below, &name, page)) break;
        t->is_unwritten[page] = false;
        t->unwritten_count--;
    }
    return t->unwritten_count > 0 || (t->below && t->below->writing > 0);
}

/* ---- the tree ---- */

static int64_t buckets_for(int64_t pages)
{
    int64_t n = 16;
    while (n < 2 * pages) n *= 2;
    return n;
}

int64_t proa_prefix_tree_bytes(int64_t pages)
{
    int64_t each = (int64_t)(sizeof(proa_prefix_node) + 2 * sizeof(int32_t) + sizeof(bool));
    return pages * each + buckets_for(pages) * (int64_t)sizeof(int32_t) + proa_value_heap_bytes(pages);
}

void proa_prefix_tree_init(proa_prefix_tree *t, proa_kv_pages *pages, proa_host_cache *below)
{
    int64_t n = pages->count;
    *t = (proa_prefix_tree){.pages = pages, .free_node = -1, .buckets_count = buckets_for(n), .below = below};
    pthread_mutex_init(&t->lock, NULL);
    PROA_ASSERT(getrandom(&t->seed, sizeof t->seed, 0) == sizeof t->seed);
    t->node = proa_calloc((size_t)n, sizeof *t->node);
    t->node_of = proa_calloc((size_t)n, sizeof *t->node_of);
    t->unwritten = proa_calloc((size_t)n, sizeof *t->unwritten);
    t->is_unwritten = proa_calloc((size_t)n, sizeof *t->is_unwritten);
    proa_value_heap_init(&t->leaves, n);
    t->buckets = proa_malloc((size_t)t->buckets_count * sizeof *t->buckets);
    for (int64_t i = 0; i < t->buckets_count; i++) t->buckets[i] = -1;
    for (int64_t i = n; i-- > 0;) {
        t->node_of[i] = -1;
        t->node[i].next = t->free_node;
        t->free_node = (int32_t)i;
    }
    proa_kv_pages_set_keeper(pages, (proa_kv_keeper){page_turns_idle, evict_page, t});
}

void proa_prefix_tree_clear(proa_prefix_tree *t)
{
    while (t->leaves.count > 0) remove_node(t, proa_value_heap_first(&t->leaves));
}

void proa_prefix_tree_release(proa_prefix_tree *t)
{
    for (int64_t i = 0; t->pages && i < t->pages->count; i++)
        if (t->node_of[i] >= 0) proa_kv_namespace_release(t->node[t->node_of[i]].space);
    if (t->pages) pthread_mutex_destroy(&t->lock);
    free(t->node);
    free(t->node_of);
    free(t->buckets);
    free(t->unwritten);
    free(t->is_unwritten);
    proa_value_heap_release(&t->leaves);
    *t = (proa_prefix_tree){0};
}

/* ---- sequences ---- */

/* The tokens of page number `page` of a sequence; count 0: the page is not full, so it does not count. */
static proa_prefix_key page_of(const proa_prefix_key *sequence, int64_t page, bool whole)
{
    int64_t first = page * PROA_PAGE_TOKENS, left = sequence->count - first, count = 0;
    if (left >= PROA_PAGE_TOKENS) count = PROA_PAGE_TOKENS;
    else if (whole && left > 0) count = left;
    return (proa_prefix_key){sequence->space, count ? sequence->ids + first : NULL, count};
}

/* Goes on to the page with these tokens, if the tree has it. */
static bool advance_to(const proa_prefix_tree *t, proa_prefix_cursor *at, const proa_prefix_key *page)
{
    int32_t i = page->count ? find_node(t, at->node, page) : -1;
    if (i < 0) return false;
    *at = (proa_prefix_cursor){i, at->pages + 1};
    return true;
}

/* Goes on to the next page of a sequence, if the tree has it. */
static bool advance_in(const proa_prefix_tree *t, proa_prefix_cursor *at, const proa_prefix_key *sequence,
                       bool whole)
{
    const proa_prefix_key page = page_of(sequence, at->pages, whole);
    return advance_to(t, at, &page);
}

/* Whether the lower levels have the pages of the `rest` of a sequence, its tokens after the cursor. Those that are in
 * the folder are read now, up to the first page that no level has. */
static bool fetch_pages(const proa_prefix_tree *t, proa_prefix_cursor at, const proa_prefix_key *rest)
{
    const proa_prefix_key first = {rest->space, rest->ids, proa_min64(rest->count, PROA_PAGE_TOKENS)};
    proa_page_name name = name_of(t, &at, &first);
    int64_t left = rest->count;
    while (proa_host_cache_fetch(t->below, &name)) {
        left -= name.count;
        if (left <= 0) return true;
        name.ids += name.count;
        name.count = (int32_t)proa_min64(left, PROA_PAGE_TOKENS);
        name.key = proa_page_key_next(&name.key, 0, name.ids, name.count);
        name.depth++;
    }
    return false;
}

void proa_prefix_tree_fetch(proa_prefix_tree *t, const proa_prefix_cursor *cursor, const proa_prefix_key *rest)
{
    const proa_prefix_key full = {rest->space, rest->ids, rest->count / PROA_PAGE_TOKENS * PROA_PAGE_TOKENS};
    if (t->below && full.count) fetch_pages(t, *cursor, &full);
}

static bool has_all(const proa_prefix_tree *t, proa_prefix_cursor at, const proa_prefix_key *sequence)
{
    while (advance_in(t, &at, sequence, true)) {
    }
    int64_t first = (int64_t)at.pages * PROA_PAGE_TOKENS;
    if (first >= sequence->count) return true;
    const proa_prefix_key rest = {sequence->space, sequence->ids + first, sequence->count - first};
    return t->below && fetch_pages(t, at, &rest);
}

/* Copies the next page of the table back from the lower levels. */
static proa_prefix_level restore_page(proa_prefix_tree *t, proa_prefix_cursor *cursor,
                                      const proa_prefix_key *page, proa_page_table *table)
{
    int32_t image;
    if (!t->below || page->count == 0) return PROA_PREFIX_NOWHERE;
    proa_page_name name = name_of(t, cursor, page);
    proa_host_find found = proa_host_cache_find(t->below, &name, &image);
    if (found != PROA_HOST_READY) return found == PROA_HOST_MISS ? PROA_PREFIX_NOWHERE : PROA_PREFIX_READING;
    if (!proa_page_table_grow(t->pages, table, (int64_t)cursor->pages * PROA_PAGE_TOKENS + page->count)) {
        proa_host_cache_drop(t->below, image);
        return PROA_PREFIX_NOWHERE;
    }
    bool was_read = proa_host_cache_load(t->below, image, table->page[cursor->pages]);
    proa_prefix_tree_add(t, cursor, page, table);
    t->restored++;
    return was_read ? PROA_PREFIX_FOLDER : PROA_PREFIX_HOST;
}

proa_prefix_level proa_prefix_tree_take(proa_prefix_tree *t, proa_prefix_cursor *cursor,
                                        const proa_prefix_key *page, bool lower, proa_page_table *table)
{
    PROA_ASSERT(table->count == cursor->pages);
    if (table->count == table->cap) return PROA_PREFIX_NOWHERE;
    if (!advance_to(t, cursor, page))
        return lower ? restore_page(t, cursor, page, table) : PROA_PREFIX_NOWHERE;
    proa_prefix_node *n = &t->node[cursor->node];
    n->left = false;
    if (n->uses < USES_COUNTED) n->uses++;
    proa_kv_pages_refer(t->pages, n->page);
    table->page[table->count++] = n->page;
    return PROA_PREFIX_DEVICE;
}

int32_t proa_prefix_tree_next(const proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *page)
{
    return advance_to(t, cursor, page) ? t->node[cursor->node].page : -1;
}

void proa_prefix_tree_leave(proa_prefix_tree *t, proa_prefix_cursor cursor)
{
    for (int32_t i = cursor.node; i >= 0; i = t->node[i].parent) {
        proa_prefix_node *n = &t->node[i];
        if (t->pages->refs[n->page] <= 2) n->left = true; /* the tree's reference and the table's */
    }
}

int64_t proa_prefix_tree_match(proa_prefix_tree *t, proa_prefix_cursor *cursor,
                               const proa_prefix_key *sequence, bool whole, proa_page_table *table)
{
    proa_prefix_level level = PROA_PREFIX_NOWHERE;
    if (whole && !has_all(t, *cursor, sequence)) return 0;
    for (proa_prefix_key page; (page = page_of(sequence, cursor->pages, whole)).count > 0;) {
        level = proa_prefix_tree_take(t, cursor, &page, true, table);
        if (level == PROA_PREFIX_NOWHERE || level == PROA_PREFIX_READING) break;
    }
    if (whole && table->count < proa_kv_pages_for(sequence->count)) {
        proa_page_table_release(t->pages, table);
        return level == PROA_PREFIX_READING ? -1 : 0;
    }
    return proa_min64(sequence->count, (int64_t)table->count * PROA_PAGE_TOKENS);
}

int64_t proa_prefix_tree_peek(proa_prefix_tree *t, const proa_prefix_key *sequence)
{
    proa_prefix_cursor at = {PROA_PREFIX_SELF, 0};
    if (!t->pages) return 0;
    pthread_mutex_lock(&t->lock);
    while (advance_in(t, &at, sequence, false)) {
    }
    pthread_mutex_unlock(&t->lock);
    return (int64_t)at.pages * PROA_PAGE_TOKENS;
}

int64_t proa_prefix_tree_pin(proa_prefix_tree *t, const proa_prefix_key *sequence, proa_page_table *table)
{
    proa_prefix_cursor at = {PROA_PREFIX_SELF, 0};
    PROA_ASSERT(table->count == 0);
    while (table->count < table->cap && advance_in(t, &at, sequence, false)) {
        int32_t page = t->node[at.node].page;
        proa_kv_pages_refer(t->pages, page);
        table->page[table->count++] = page;
    }
    return (int64_t)table->count * PROA_PAGE_TOKENS;
}

void proa_prefix_tree_add(proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *page,
                          proa_page_table *table)
{
    PROA_ASSERT(cursor->pages < table->count);
    int32_t *own = &table->page[cursor->pages];
    if (!advance_to(t, cursor, page)) {
        int32_t i = add_node(t, cursor, page, *own);
        *cursor = (proa_prefix_cursor){i, cursor->pages + 1};
        return;
    }
    int32_t cached = t->node[cursor->node].page;
    t->node[cursor->node].left = false;
    if (cached == *own) return;
    proa_kv_pages_refer(t->pages, cached);
    proa_kv_pages_drop(t->pages, *own);
    *own = cached;
}

void proa_prefix_tree_insert(proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *sequence,
                             bool whole, proa_page_table *table)
{
    for (proa_prefix_key page; (page = page_of(sequence, cursor->pages, whole)).count > 0;)
        proa_prefix_tree_add(t, cursor, &page, table);
}
