/* SPDX-License-Identifier: Apache-2.0
 * draft_tree.h - trees of draft tokens from heads that predict several positions ahead (Medusa, Cai et al. 2024): which
 *                predictions are worth a row of the pass.
 * Owner:   the caller owns all memory. Threads: any, one at a time on one object.
 * Way in:  proa_tree_shape_make before a pass, proa_draft_tree_fill with the tokens of the heads, proa_draft_tree_next
 *          after it.
 *
 * Head d ranks the tokens for position d + 1 after the newest token. A node of the tree is a path of ranks: (0, 2) is
 * the third token of head 1 after the first token of head 0, as in Medusa's lists of choices. The probability of a node
 * is the product, along its path, of how often a head's token of that rank was right, which is measured as text is
 * generated. A node is never more likely than its parent, so the n most likely nodes are a tree, and the best one of n
 * nodes. */
#ifndef PROA_ENGINE_DECODE_DRAFT_TREE_H
#define PROA_ENGINE_DECODE_DRAFT_TREE_H

#include "base/limits.h"
#include <stdbool.h>

enum { PROA_TREE_RANKS = 10 };

/* How often the token of each rank of each head was right: means, which decay once they have many measurements. */
typedef struct proa_tree_rates {
    int32_t heads;
    int32_t count[PROA_MEDUSA_HEADS_MAX]; /* measurements of each head */
    float rate[PROA_MEDUSA_HEADS_MAX][PROA_TREE_RANKS];
} proa_tree_rates;
void proa_tree_rates_init(proa_tree_rates *r, int32_t heads);
/* Records that the token predicted by head d was `id`. top [PROA_TREE_RANKS]: the predictions of the head. */
void proa_tree_rates_add(proa_tree_rates *r, int32_t d, const int32_t *top, int32_t id);

typedef struct proa_tree_node {
    int32_t parent; /* index of a node before it; -1: the newest token */
    int32_t head, rank;
} proa_tree_node;

/* The most likely nodes, in falling order, so that each prefix of the list is a tree. */
typedef struct proa_tree_shape {
    int32_t count;
    proa_tree_node node[PROA_TREE_MAX];
    float likely[PROA_TREE_MAX]; /* the probability that a node is accepted */
} proa_tree_shape;
void proa_tree_shape_make(proa_tree_shape *shape, const proa_tree_rates *r);

/* The draft of one sequence. Node j is row j + 1 of its span, the newest token row 0. */
typedef struct proa_draft_tree {
    int32_t count; /* nodes; 0: no tree is in the pass */
    int32_t id[PROA_TREE_MAX], parent[PROA_TREE_MAX], depth[PROA_TREE_MAX]; /* depth: 1, 2, ... */
    uint64_t seen[PROA_TREE_MAX];                                           /* proa_spans.seen */
    int32_t top[PROA_MEDUSA_HEADS_MAX][PROA_TREE_RANKS];
    /* while the pass is verified: */
    int32_t tip;      /* the row whose token is the sequence's next one */
    int32_t accepted; /* nodes of the path to it, */
    int32_t path[PROA_TREE_DEPTH_MAX];
    int64_t first; /* where the key of node 0 is in the sequence's pages */
} proa_draft_tree;
/* Makes the tree of the first `count` nodes of a shape from top. first: the position after the newest token. */
void proa_draft_tree_fill(proa_draft_tree *tree, const proa_tree_shape *shape, int32_t count, int64_t first);
/* The same node by node: a tree without nodes, and one more, below a node before it (-1: the newest token). A path has
 * at most PROA_TREE_DEPTH_MAX nodes. */
void proa_draft_tree_begin(proa_draft_tree *tree, int64_t first);
void proa_draft_tree_add(proa_draft_tree *tree, int32_t id, int32_t parent);
/* `id` is the token after the tip. True: a child of the tip has it, and is the tip now. */
bool proa_draft_tree_next(proa_draft_tree *tree, int32_t id);

#endif
