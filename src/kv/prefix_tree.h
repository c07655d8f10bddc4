/* SPDX-License-Identifier: Apache-2.0
 * prefix_tree.h - which pages hold which tokens: a tree over full KV pages, so that a sequence that begins with the
 * tokens of an earlier one starts with its pages and does not compute them again.
 *
 * A node is one page. Its key is its parent and the ids of its tokens, so the path from a root to a node is a prefix,
 * page by page (the radix tree of SGLang, Zheng et al. 2024, with edges of one page, as vLLM's blocks). A hash finds a
 * node, but the ids and the parent are compared, so equal hashes never give wrong pages. Prefixes of different
 * namespaces (salt, adapter, ...) have no node in common.
 *
 *     table of a sequence   [ 4 | 9 | 2 | 7 ]        the tree    root - 4 - 9 - 2
 *     tokens                0   64  128 192..200                         \- 5 (another sequence)
 *
 * The tree holds one reference to each of its pages. A page that nobody else refers to is idle: it keeps its contents
 * until the pool needs it. Idle leaves are evicted first; the least valuable is the one that has not been used for the
 * longest time, where each earlier reuse counts as a later use. What is evicted goes to the second level, if there is
 * one (host_cache.h).
 *
 * Owner:   one tree per engine; it lives as long as the pool.
 * Threads: the stepping thread. proa_kv_namespace_new and proa_prefix_tree_peek may be called from any. */
#ifndef PROA_KV_PREFIX_TREE_H
#define PROA_KV_PREFIX_TREE_H

#include "kv/host_cache.h"

#include <pthread.h>

/* What besides the tokens decides about the contents of pages, as bytes that are compared. */
typedef struct proa_kv_namespace {
    int32_t refs; /* its creator's, and one for each root node that uses it */
    uint64_t hash;
    proa_page_key key; /* of the bytes, for the lower levels */
    bool keeps;        /* its bytes mean the same to other processes: its pages may be written to a folder */
    size_t len;
    unsigned char bytes[];
} proa_kv_namespace;

/* With one reference, the caller's. */
proa_kv_namespace *proa_kv_namespace_new(const void *bytes, size_t len, bool keeps);
void proa_kv_namespace_release(proa_kv_namespace *n); /* drops one reference; NULL is fine */

/* The two trees of a namespace. Pages of an encoder's input hold what the whole input decides, so such a namespace has
 * the whole input in its bytes. */
typedef enum proa_prefix_root {
    PROA_PREFIX_SELF = -1, /* a decoder's tokens */
    PROA_PREFIX_CROSS = -2 /* an encoder's */
} proa_prefix_root;

/* How far a sequence's table and the tree agree: its first `pages` pages are those of the path that ends in `node`. As
 * long as the table refers to them none of these nodes is evicted. */
typedef struct proa_prefix_cursor {
    int32_t node; /* or a proa_prefix_root while pages is 0 */
    int32_t pages;
} proa_prefix_cursor;

typedef struct proa_prefix_node proa_prefix_node;
typedef struct proa_prefix_tree {
    /* counters, for statistics */
    int64_t nodes;    /* pages in the tree */
    int64_t evicted;  /* since the start */
    int64_t restored; /* pages that came back from the lower level */
    /* private */
    proa_kv_pages *pages;
    proa_prefix_node *node; /* [pages->count] */
    int32_t free_node;      /* the first of a list; -1: none */
    int32_t *node_of;       /* [pages->count] the node of a page; -1: none */
    int32_t *buckets;       /* [buckets_count] first node of each chain; -1: none */
    int64_t buckets_count;  /* a power of 2 */
    proa_value_heap leaves; /* nodes that are idle leaves: the one with the lowest value is evicted first */
    proa_host_cache *below; /* where evicted pages go; NULL: nowhere */
    int32_t *unwritten; /* [unwritten_count] pages that turned idle and may not be in the folder yet, newest last */
    int64_t unwritten_count;
    bool *is_unwritten;   /* [pages->count] */
    uint64_t seed;        /* of the hash: chosen anew by each process */
    uint64_t clock;       /* pages inserted so far: the unit of recency */
    pthread_mutex_t lock; /* held while nodes are added or removed, and by readers of other threads */
} proa_prefix_tree;

/* Bookkeeping memory of a tree over that many pages, in bytes. */
int64_t proa_prefix_tree_bytes(int64_t pages);
/* The pool evicts idle pages of the tree when it has no free one. A pool without pages is fine. below: takes evicted
 * pages, and lives as long as the tree; NULL: they are lost. */
void proa_prefix_tree_init(proa_prefix_tree *t, proa_kv_pages *pages, proa_host_cache *below);
/* Drops all nodes and the memory; before proa_kv_pages_release. A zero tree is fine. */
void proa_prefix_tree_release(proa_prefix_tree *t);
/* Writes pages that turned idle to the folder of the lower levels, as far as may be now: of a sequence those at its
 * beginning first. True: some are left, or on their way. */
bool proa_prefix_tree_write(proa_prefix_tree *t);
/* Drops all nodes that are idle, e.g. since their contents are no longer trusted. Call it when no table refers to
 * pages of the tree; then the tree is empty afterwards. */
void proa_prefix_tree_clear(proa_prefix_tree *t);

/* Where a page was found. */
typedef enum proa_prefix_level {
    PROA_PREFIX_NOWHERE,
    PROA_PREFIX_DEVICE, /* in the pool */
    PROA_PREFIX_HOST,   /* in memory of the host: it is copied into a page of the pool */
    PROA_PREFIX_FOLDER, /* the same, and it was read from the folder for this */
    PROA_PREFIX_READING /* it is being read from the folder: ask again */
} proa_prefix_level;

/* Appends the cached page that holds the next tokens of a sequence, those after the cursor: `count` ids (64, or fewer
 * as the last page of an encoder's input). The table must have cursor->pages pages. lower: the lower levels are looked
 * at. NOWHERE: there is no such page, the table is full, or a copy is in memory of the host and the pool has no page
 * for it. READING changes nothing. */
proa_prefix_level proa_prefix_tree_take(proa_prefix_tree *t, proa_prefix_cursor *cursor, proa_kv_namespace *space,
                                        const int32_t *ids, int64_t count, bool lower, proa_page_table *table);
/* The pages of the path that only this table has are not worth a copy: if they are evicted before they are used again,
 * they are lost. */
void proa_prefix_tree_leave(proa_prefix_tree *t, proa_prefix_cursor cursor);
/* A sequence waits for a page of the folder: the pages after it, those that have all of ids[0..tokens), are read
 * meanwhile. ids: the tokens from the cursor on. */
void proa_prefix_tree_fetch(proa_prefix_tree *t, const proa_prefix_cursor *cursor,
                            const proa_kv_namespace *space, const int32_t *ids, int64_t tokens);
/* Appends to `table` the cached pages that continue it: those of ids[0..tokens) that are full, as far as there are any.
 * Returns how many tokens the table holds then; -1 if all pages are there
 * (with `whole`) and some are still being read: ask again. The table must have cursor->pages pages; ids are those of
 * the whole sequence. whole: a last page that is not full counts, too, and the table stays empty unless all pages are
 * cached (of an encoder's input). */
int64_t proa_prefix_tree_match(proa_prefix_tree *t, proa_prefix_cursor *cursor, proa_kv_namespace *space,
                               const int32_t *ids, int64_t tokens, bool whole, proa_page_table *table);
/* How many of ids[0..tokens) the pool's pages hold from the beginning on, in full pages of 64; the lower levels are not
 * looked at, and nothing counts as used. Any thread, while the tree exists: what it returns may have changed by the
 * time that it is used. A zero tree is fine: 0. */
int64_t proa_prefix_tree_peek(proa_prefix_tree *t, const proa_kv_namespace *space, const int32_t *ids,
                              int64_t tokens);
/* Appends to the empty table the pages of ids[0..tokens) that are in the pool, full ones from the beginning on; the
 * lower levels are not looked at. Returns their tokens. */
int64_t proa_prefix_tree_pin(proa_prefix_tree *t, const proa_kv_namespace *space, const int32_t *ids,
                             int64_t tokens, proa_page_table *table);
/* Gives the next page of the table, number cursor->pages, to the tree. Its contents must be complete: these `count`
 * tokens (64; fewer only in the last page of an encoder's input). If the tree has such a page already, the table refers
 * to that one afterwards, and its own is returned to the pool. */
void proa_prefix_tree_add(proa_prefix_tree *t, proa_prefix_cursor *cursor, proa_kv_namespace *space,
                          const int32_t *ids, int64_t count, proa_page_table *table);
/* The same for all pages of ids[0..tokens) that are full, from the cursor on; with `whole` the last one, too. */
void proa_prefix_tree_insert(proa_prefix_tree *t, proa_prefix_cursor *cursor, proa_kv_namespace *space,
                             const int32_t *ids, int64_t tokens, bool whole, proa_page_table *table);
#endif
