/* SPDX-License-Identifier: Apache-2.0
 * packed_inside.h - what packed.c makes and packed_run.c walks. Private to src/forest.
 * Owner:   the packed forest owns all arrays. */
#ifndef PROA_FOREST_PACKED_INSIDE_H
#define PROA_FOREST_PACKED_INSIDE_H

#include "forest/packed.h"
#include "forest/walk.h"

typedef enum proa_packed_kind {
    PROA_PACKED_NUMERIC,     /* all splits compare with a cut */
    PROA_PACKED_CATEGORICAL, /* some splits test a set */
    PROA_PACKED_REFERENCE    /* some split is neither: walked like the reference */
} proa_packed_kind;

struct proa_packed {
    const proa_forest *forest;
    const proa_walk *walk;
    char *memory; /* memory of all arrays below, from the kernel */
    int64_t memory_bytes;
    int64_t node_count; /* of all trees, and one more: an extra leaf */
    int32_t feature_bits;
    proa_walk_node *nodes; /* [node_count] */
    /* Values of leaves, one of the three; a tree of kind REFERENCE has its nodes in the forest's order. */
    float *value;    /* [node_count] */
    double *value64; /* [node_count], f64 */
    int32_t *vector; /* [node_count]: index of a leaf's values, leaf_size > 1 */
    int32_t *line; /* [node_count], with value64: index of a linear leaf or -1; NULL without linear leaves */
    proa_walk_tree *trees; /* [tree_count] */
    uint8_t *kind;         /* [tree_count]: proa_packed_kind */
    int64_t slow_count, mixed_count;
    int32_t *set_first, *set_words; /* [set_count] */
    proa_walk_sets sets;            /* these and the forest's words */
    int32_t *start,
        *depth; /* [tree_count rounded up to 64], for walking many trees: REFERENCE trees use the extra leaf */
    int64_t *block_end; /* [block_count]: end of each group of trees that fit into the cache together */
    int64_t block_count;
    int64_t steps;
};

#endif
