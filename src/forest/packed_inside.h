/* SPDX-License-Identifier: Apache-2.0
 * packed_inside.h - what packed.c makes and packed_run.c walks. Private to src/forest.
 * Owner:   the packed forest owns all arrays. */
#ifndef PROA_FOREST_PACKED_INSIDE_H
#define PROA_FOREST_PACKED_INSIDE_H

#include "forest/packed.h"
#include "forest/walk.h"

typedef enum proa_packed_way {
    PROA_WAY_PLAIN, /* all nodes are questions of a cut */
    PROA_WAY_MIXED, /* or of a set */
    PROA_WAY_SLOW   /* some node is neither: walked as the reference walks */
} proa_packed_way;

struct proa_packed {
    const proa_forest *forest;
    const proa_walk *walk;
    char *memory; /* of all arrays below, from the kernel */
    int64_t memory_bytes;
    int64_t node_count; /* of all trees, and one more: a leaf of no tree */
    int32_t feature_bits;
    proa_walk_node *nodes; /* [node_count] */
    /* Of leaves, one of the three; a slow tree has its nodes in the forest's order. */
    float *value;          /* [node_count] */
    double *value64;       /* [node_count], f64 */
    int32_t *vector;       /* [node_count]: index of a leaf's values, leaf_size > 1 */
    int32_t *line;         /* [node_count], beside value64: a leaf's line or -1; NULL without linear leaves */
    proa_walk_tree *trees; /* [tree_count] */
    uint8_t *way;          /* [tree_count]: proa_packed_way */
    int64_t slow_count, mixed_count;
    int32_t *set_first, *set_words; /* [set_count] */
    proa_walk_sets sets;            /* these and the forest's words */
    int32_t *start,
        *depth; /* [tree_count rounded up to 64], for walking many trees: slow ones are the leaf of no tree */
    int64_t *block_end; /* [block_count]: trees that lie in the cache together are those before this one */
    int64_t block_count;
    int64_t steps;
};

#endif
