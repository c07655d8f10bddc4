/* SPDX-License-Identifier: Apache-2.0
 * tree_search.h - dynamic trees of draft tokens (EAGLE-2, Li et al. 2024): which guesses are worth a row, by the
 *                 probabilities that the drafting model gives them.
 * Owner:   the caller owns all memory. Threads: any, one at a time on one object.
 * Way in:  proa_tree_search_begin, then in turns proa_tree_search_add with the guesses after a candidate and
 *          proa_tree_search_next for the candidates to be run next; proa_tree_search_finish makes the tree.
 *
 * A candidate is a guessed token after another one. Its chance is the product of the probabilities along its path,
 * which for trained heads is close to the probability that it is accepted. The best tree of n nodes has the n
 * candidates of the greatest chance; that is a tree, since none has more than the one that it hangs from. */
#ifndef PROA_ENGINE_DECODE_TREE_SEARCH_H
#define PROA_ENGINE_DECODE_TREE_SEARCH_H

#include "engine/decode/draft_tree.h"

enum {
    PROA_GUESSES = 8, /* after a candidate at most; published trees have 8 to 10 */
    PROA_TREE_CANDIDATES_MAX = (PROA_TREE_MAX + 1) * PROA_GUESSES
};

typedef struct proa_tree_candidate {
    int32_t id, parent; /* the token; the candidate that it hangs from, -1: the newest token */
    int32_t depth;      /* 1, 2, ... */
    int32_t row;        /* its number among the candidates that were run; -1: it was not */
    float chance;
} proa_tree_candidate;

typedef struct proa_tree_search {
    int32_t size, depth_max; /* of the tree */
    int32_t count;           /* candidates */
    proa_tree_candidate candidate[PROA_TREE_CANDIDATES_MAX];
    int32_t nodes, node[PROA_TREE_MAX]; /* the `size` likeliest of them, in falling order: the tree so far */
    int32_t rows;                       /* candidates that were run, */
    uint64_t seen[PROA_TREE_MAX];       /* and what each of them sees: proa_spans.seen */
} proa_tree_search;

/* A tree of at most `size` nodes, 1 to PROA_TREE_MAX, on paths of at most depth_max. */
void proa_tree_search_begin(proa_tree_search *t, int32_t size, int32_t depth_max);
/* The k likeliest tokens after candidate `parent`, which was run or is -1; k at most PROA_GUESSES. */
void proa_tree_search_add(proa_tree_search *t, int32_t parent, int32_t k, const int32_t *ids,
                          const float *logprobs);
/* Which candidates are run next: those of the tree that were not yet, the likeliest first, at most `most`, and none if
 * their chances are together less than `least`. Returns how many; they get the next rows. */
int32_t proa_tree_search_next(proa_tree_search *t, int32_t *chosen, int32_t most, float least);
/* The nodes in falling order of their chances. first: as in proa_draft_tree_fill. */
void proa_tree_search_finish(const proa_tree_search *t, proa_draft_tree *tree, int64_t first);
/* Where only the likeliest token was added each time: the candidates' ids. Returns how many. */
int32_t proa_tree_search_chain(const proa_tree_search *t, int32_t *ids);

#endif
