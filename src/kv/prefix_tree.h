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
 * The tree holds one reference to each of its pages. A page without any other reference is idle: it keeps its contents
 * until the pool needs it. Only idle leaves are evicted, the least recently used one first; each earlier reuse lets a
 * page count as more recently used. What is evicted goes to the second level, if there is one (host_cache.h).
 *
 * Owner:   one tree per engine; it lives as long as the pool.
 * Threads: the stepping thread. proa_kv_namespace_new and proa_prefix_tree_peek may be called from any. */
#ifndef PROA_KV_PREFIX_TREE_H
#define PROA_KV_PREFIX_TREE_H

#include "kv/host_cache.h"
#include "kv/state_cache.h"

#include <pthread.h>

/* Everything except the tokens that determines the contents of pages (adapter, salt, ...), as bytes. Namespaces with
 * equal bytes are the same. References are counted without a lock: all of them belong to the stepping thread, once the
 * namespace has been used. */
typedef struct proa_kv_namespace {
    int32_t refs; /* the creator's, and one for each root node in the namespace */
    uint64_t hash;
    proa_page_key key; /* of the bytes, for the lower levels */
    bool keeps; /* the bytes mean the same to other processes, so its pages may be written to a folder */
    size_t len;
    unsigned char bytes[];
} proa_kv_namespace;

/* A copy of the bytes, with one reference, which is the caller's. Never NULL. */
proa_kv_namespace *proa_kv_namespace_new(const void *bytes, size_t len, bool keeps);
void proa_kv_namespace_release(proa_kv_namespace *n); /* drops one reference; NULL is fine */

/* What is looked up: tokens in a namespace, of one page or of a whole sequence. The tree copies the ids and takes a
 * reference to the namespace where it needs them, so both are the caller's. */
typedef struct proa_prefix_key {
    proa_kv_namespace *space;
    const int32_t *ids; /* [count] */
    int64_t count;      /* of one page: PROA_PAGE_TOKENS, or fewer as the last page of an encoder's input */
} proa_prefix_key;

/* The two trees of a namespace. What an encoder computes for a token depends on its whole input, so the namespace of an
 * input has all of its ids in its bytes. */
typedef enum proa_prefix_root {
    PROA_PREFIX_SELF = -1, /* a decoder's tokens */
    PROA_PREFIX_CROSS = -2 /* an encoder's */
} proa_prefix_root;

/* A sequence's place in the tree: the first `pages` pages of its table are those of the path that ends in `node`. While
 * the table refers to them none of these nodes is evicted. */
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
    /* set after init: recurrent states behind pages, which go with them; NULL: there are none */
    proa_state_cache *states;
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
/* Makes an empty tree, and makes it the keeper of the pool: when no page is free the pool asks the tree to evict an
 * idle one. A pool without pages is fine. below: takes evicted pages, and lives as long as the tree; NULL: they are
 * lost. */
void proa_prefix_tree_init(proa_prefix_tree *t, proa_kv_pages *pages, proa_host_cache *below);
/* Drops all nodes and the memory; before proa_kv_pages_release. A zero tree is fine. */
void proa_prefix_tree_release(proa_prefix_tree *t);
/* Drops all idle nodes, e.g. since their contents are no longer trusted. If no table refers to pages of the tree, the
 * tree is empty afterwards. */
void proa_prefix_tree_clear(proa_prefix_tree *t);
/* Starts to write pages that have turned idle to the folder of the lower levels, as many as it takes now, those at the
 * beginning of their sequence first. True: some are left or still being written, so call it again. */
bool proa_prefix_tree_write(proa_prefix_tree *t);

/* ---- single pages ---- */

/* Where a page was found. */
typedef enum proa_prefix_level {
    PROA_PREFIX_NOWHERE,
    PROA_PREFIX_DEVICE, /* in the pool */
    PROA_PREFIX_HOST,   /* in host memory; it was copied into a page of the pool */
    PROA_PREFIX_FOLDER, /* the same, and it had been read from the folder for this */
    PROA_PREFIX_READING /* in the folder; it is being read, so call again later */
} proa_prefix_level;

/* Appends to `table` the cached page that follows the cursor and holds the tokens `page`, and moves the cursor. The
 * table must have cursor->pages pages. lower: the lower levels are searched too. NOWHERE: there is no such page, the
 * table is full, or the page is in host memory and the pool has no page for it. NOWHERE and READING change nothing. */
proa_prefix_level proa_prefix_tree_take(proa_prefix_tree *t, proa_prefix_cursor *cursor,
                                        const proa_prefix_key *page, bool lower, proa_page_table *table);
/* The cached page of the pool that follows the cursor and holds these tokens, to which the cursor moves; -1: there is
 * none. It does not count as used. */
int32_t proa_prefix_tree_next(const proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *page);
/* Gives the next page of the table, number cursor->pages, to the tree, and moves the cursor. The page must be complete
 * and hold the tokens `page`. If the tree has an equal page already, the table refers to that one afterwards, and its
 * own is returned to the pool. */
void proa_prefix_tree_add(proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *page,
                          proa_page_table *table);

/* ---- sequences ---- */

/* Appends to `table` the cached pages of `sequence` after the cursor, as far as there are any in any level, and moves
 * the cursor. Returns how many tokens the table holds then. The table must have cursor->pages pages; the ids are those
 * of the whole sequence.
 * whole: all or nothing, for an encoder's input, whose last page counts although it is not full. Unless all pages are
 * cached the table stays empty; the result is then 0, or -1 if all are there but some are still being read. */
int64_t proa_prefix_tree_match(proa_prefix_tree *t, proa_prefix_cursor *cursor,
                               const proa_prefix_key *sequence, bool whole, proa_page_table *table);
/* Adds the full pages of `sequence` from the cursor on (proa_prefix_tree_add); with `whole` also a last page that is
 * not full. */
void proa_prefix_tree_insert(proa_prefix_tree *t, proa_prefix_cursor *cursor, const proa_prefix_key *sequence,
                             bool whole, proa_page_table *table);
/* Starts to read the full pages of `rest`, the tokens after the cursor, from the folder, up to the first one that it
 * does not have. For a sequence that waits for one of them. */
void proa_prefix_tree_fetch(proa_prefix_tree *t, const proa_prefix_cursor *cursor, const proa_prefix_key *rest);
/* How many tokens of `sequence` are in the pool from its beginning on, in full pages. The lower levels are not
 * searched, and nothing counts as used. Any thread, while the tree exists; the result may be out of date when it is
 * used. A zero tree is fine: 0. */
int64_t proa_prefix_tree_peek(proa_prefix_tree *t, const proa_prefix_key *sequence);
/* Appends these pages to the empty table, which then keeps them from being evicted. Returns their tokens. */
int64_t proa_prefix_tree_pin(proa_prefix_tree *t, const proa_prefix_key *sequence, proa_page_table *table);
/* Marks the pages of the path to `cursor` that no other table refers to: they are not worth a copy, so if they are
 * evicted before they are used again, they are lost. */
void proa_prefix_tree_leave(proa_prefix_tree *t, proa_prefix_cursor cursor);

#endif
