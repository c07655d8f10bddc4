/* SPDX-License-Identifier: Apache-2.0
 * tree_search.c - candidates of a dynamic tree of draft tokens. */
#include "engine/decode/tree_search.h"

#include <math.h>
#include <stddef.h>

void proa_tree_search_begin(proa_tree_search *t, int32_t size, int32_t depth_max)
{
    t->size = size, t->depth_max = depth_max;
    t->count = t->rows = 0;
}

void proa_tree_search_add(proa_tree_search *t, int32_t parent, int32_t k, const int32_t *ids, const float *logprobs)
{
    const proa_tree_candidate *above = parent < 0 ? NULL : &t->candidate[parent];
    for (int32_t i = 0; i < k && t->count < PROA_TREE_CANDIDATES_MAX; i++) {
        float chance = expf(logprobs[i]) * (above ? above->chance : 1);
        if (!(chance > 0)) return; /* NaN too */
        t->candidate[t->count++] = (proa_tree_candidate){ids[i], parent, above ? above->depth + 1 : 1, -1,
                                                         chance};
    }
}

/* Whether a comes before b in the tree. */
static bool is_likelier(const proa_tree_search *t, int32_t a, int32_t b)
{
    float x = t->candidate[a].chance, y = t->candidate[b].chance;
    return x > y || (x == y && a < b);
}

/* Candidates that come before this one. */
static int32_t rank_of(const proa_tree_search *t, int32_t i)
{
    int32_t rank = 0;
    for (int32_t j = 0; j < t->count; j++) rank += is_likelier(t, j, i);
    return rank;
}

/* The likeliest candidate of the tree that can be run; -1: there is none. */
static int32_t find_next(const proa_tree_search *t)
{
    int32_t best = -1;
    for (int32_t i = 0; i < t->count; i++) {
        const proa_tree_candidate *c = &t->candidate[i];
        if (c->row < 0 && c->depth < t->depth_max && (best < 0 || is_likelier(t, i, best))) best = i;
    }
    return best >= 0 && rank_of(t, best) < t->size ? best : -1;
}

static void take_row(proa_tree_search *t, int32_t i)
{
    proa_tree_candidate *c = &t->candidate[i];
    c->row = t->rows++;
    t->seen[c->row] = (uint64_t)1 << c->row;
    if (c->parent >= 0) t->seen[c->row] |= t->seen[t->candidate[c->parent].row];
}

int32_t proa_tree_search_next(proa_tree_search *t, int32_t *chosen, int32_t most, float least)
{
    int32_t rows = t->rows, count = 0;
    float sum = 0;
    for (int32_t i; count < most && t->rows < t->size && (i = find_next(t)) >= 0; count++) {
        chosen[count] = i;
        sum += t->candidate[i].chance;
        take_row(t, i);
    }
    if (sum >= least) return count;
    for (int32_t i = 0; i < count; i++) t->candidate[chosen[i]].row = -1;
    t->rows = rows;
    return 0;
}

void proa_tree_search_finish(const proa_tree_search *t, proa_draft_tree *tree, int64_t first)
{
    int32_t order[PROA_TREE_MAX], node[PROA_TREE_CANDIDATES_MAX], count = 0;
    for (int32_t i = 0; i < t->count; i++) {
        int32_t rank = rank_of(t, i);
        node[i] = rank;
        if (rank < t->size) order[rank] = i, count++;
    }
    proa_draft_tree_begin(tree, first);
    for (int32_t j = 0; j < count; j++) {
        const proa_tree_candidate *c = &t->candidate[order[j]];
        proa_draft_tree_add(tree, c->id, c->parent < 0 ? -1 : node[c->parent]);
    }
}

int32_t proa_tree_search_chain(const proa_tree_search *t, int32_t *ids)
{
    int32_t count = t->count < t->size ? t->count : t->size;
    for (int32_t i = 0; i < count; i++) ids[i] = t->candidate[i].id;
    return count;
}
