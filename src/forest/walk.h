/* SPDX-License-Identifier: Apache-2.0
 * walk.h - from rows to leaves: the loops of packed forests, one table of them for each level of CPU.
 * Owner:   all arrays belong to the packed forest (packed.h), which lays them out; private to src/forest.
 * Threads: pure functions.
 *
 * A node is one test, `(flip ? -x : x) <= cut`, which is false where x is NaN: the packer chooses flip
 * and the order of the two children so that false is also where a missing x goes. Children lie side by side:
 * the next node is `child + answer`. A leaf is its own child and its cut is NaN, so walking on from there
 * does nothing. */
#ifndef PROA_FOREST_WALK_H
#define PROA_FOREST_WALK_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

/* Rows that walk through a tree together; the vector levels take them by 16 or by 8. */
#define PROA_WALK_ROWS      64
/* Levels of a tree that have a copy in arrays of a vector register's size, as a heap: node i has children 2i,
 * 2i + 1. */
#define PROA_WALK_TOP       5
#define PROA_WALK_TOP_NODES (1 << PROA_WALK_TOP)

/* 8 bytes, read as one: cut in the low half. */
typedef struct proa_walk_node {
    float cut;
    uint32_t link; /* from the top: flip (1 bit), child (counted from the tree's root), feature (feature_bits) */
} proa_walk_node;
#define PROA_WALK_FLIP 0x80000000u
/* In trees with categories, whose links have one bit less for the child: x, truncated to an integer, is in
 * set `cut` (the bits of an int32_t). A missing x is in it if flip is set. */
#define PROA_WALK_SET  0x40000000u

/* Bits of categories: words[first[i]], count[i] of them. */
typedef struct proa_walk_sets {
    const int32_t *first, *count;
    const uint32_t *words;
    bool truncate; /* what is above -1 counts as 0; else nothing below 0 is in a set */
} proa_walk_sets;

typedef struct proa_walk_tree {
    const proa_walk_node *nodes; /* breadth first: the root is node 0 */
    /* 1..31: the heap, 0 unused. Entries below a leaf are filled so that the path is kept. */
    PROA_ALIGNED(64) float top_cut[PROA_WALK_TOP_NODES];
    uint32_t top_link[PROA_WALK_TOP_NODES]; /* flip and feature, no child */
    int32_t top_exit[PROA_WALK_TOP_NODES];  /* the node below top_levels, by the heap's index modulo 32 */
    int32_t top_levels;                     /* at most PROA_WALK_TOP: min(depth, that) */
    int32_t depth;                          /* edges to the deepest leaf */
    int32_t even;  /* no leaf is above this level, so an early end need not be checked */
    int32_t start; /* of `nodes`, in the forest's */
    int32_t feature_bits;
} proa_walk_tree;

typedef struct proa_walk {
    const char *name;
    /* The leaves that `groups` (1..4) times 16 rows reach in one tree: leaf[i] is a node of the tree. Row i begins at
     * x[offset[i]]; offset and leaf have room for 64 rows. */
    void (*rows)(const proa_walk_tree *tree, const float *x, const int32_t *offset, int groups, int32_t *leaf);
    /* The leaves that one row reaches in `count` trees, of which each starts at node start[i] and is depth[i] deep:
     * leaf[i] is a node of the forest. Arrays are readable up to the next multiple of 64. */
    void (*trees)(const proa_walk_node *nodes, int32_t feature_bits, const int32_t *start,
                  const int32_t *depth, int64_t count, const float *x, int32_t *leaf);
    /* As rows, of a tree with categories; `top` is not used. */
    void (*mixed)(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x,
                  const int32_t *offset, int groups, int32_t *leaf);
    /* sum[i] += value[leaf[i]] of 16 * groups rows. */
    void (*add)(float *sum, const float *value, const int32_t *leaf, int groups);
} proa_walk;

/* The leaf that one row reaches in a tree with categories; and `mixed` without vectors. */
int32_t proa_walk_one(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x);
void proa_walk_mixed(const proa_walk_tree *tree, const proa_walk_sets *sets, const float *x,
                     const int32_t *offset, int groups, int32_t *leaf);

extern const proa_walk proa_walk_generic, proa_walk_avx2, proa_walk_avx512;

#endif
