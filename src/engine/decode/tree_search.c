/* SPDX-License-Identifier: Apache-2.0
 * tree_search.c - candidates of a dynamic tree of draft tokens. */
#include "engine/decode/tree_search.h"

#include <math.h>
#include <stddef.h>

void proa_tree_search_begin(proa_tree_search *t, int32_t size, int32_t depth_max)
{
    t->size = size, t->depth_max = depth_max;
    t->count = t->nodes = t->rows = 0;
}

/* The newest candidate becomes a node if it is likelier than one of those, or if there is room. Among equals the older
 * one comes first. */
static void enter_tree(proa_tree_search *t)
{
    int32_t candidate = t->count - 1, at = t->nodes;
    float chance = t->candidate[candidate].chance;
    if (at < t->size) t->nodes++;
    else if (!(chance > t->candidate[t->node[--at]].chance)) return;
    for (; at > 0 && chance > t->candidate[t->node[at - 1]].chance; at--) t->node[at] = t->node[at - 1];
    t->node[at] = candidate;
}

void proa_tree_search_add(proa_tree_search *t, int32_t parent, int32_t k, const int32_t *ids, const float *logprobs)
{
    const proa_tree_candidate *above = parent < 0 ? NULL : &t->candidate[parent];
    for (int32_t i = 0; i < k && t->count < PROA_TREE_CANDIDATES_MAX; i++) {
        float chance = expf(logprobs[i]) * (above ? above->chance : 1);
        if (!(chance > 0)) return; /* NaN too */
        t->candidate[t->count++] = (proa_tree_candidate){ids[i], parent, above ? above->depth + 1 : 1, -1,
                                                         chance};
        enter_tree(t);
    }
}

/* The likeliest node that can be run; -1: there is none. */
static int32_t find_next(const proa_tree_search *t)
{
    for (int32_t j = 0; j < t->nodes; j++) {
        const proa_tree_candidate *c = &t->candidate[t->node[j]];
        if (c->row < 0 && c->depth < t->depth_max) return t->node[j];
    }
    return -1;
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
    int32_t at[PROA_TREE_CANDIDATES_MAX];
    proa_draft_tree_begin(tree, first);
    for (int32_t j = 0; j < t->nodes; j++) {
        const proa_tree_candidate *c = &t->candidate[t->node[j]];
        at[t->node[j]] = j;
        proa_draft_tree_add(tree, c->id, c->parent < 0 ? -1 : at[c->parent]);
    }
}

int32_t proa_tree_search_chain(const proa_tree_search *t, int32_t *ids)
{
    int32_t count = t->count < t->size ? t->count : t->size;
    for (int32_t i = 0; i < count; i++) ids[i] = t->candidate[i].id;
    return count;
}
