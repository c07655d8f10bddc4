/* SPDX-License-Identifier: Apache-2.0
 * draft_tree.c - trees of draft tokens: measured shares, the likeliest nodes, their number, and the accepted path. */
#include "engine/decode/draft_tree.h"

#include "base/checked.h"
#include <math.h>

/* The first shares count as FIRST_COUNT measurements; the weight of a new one is never less than NEW_SHARE. */
#define FIRST_COUNT 4
#define NEW_SHARE   0.02F
/* About what trained heads reach on text (Cai et al. 2024, figure 5), until there are measurements. */
void proa_tree_rates_init(proa_tree_rates *r, int32_t heads)
{
    *r = (proa_tree_rates){.heads = heads};
    for (int32_t d = 0; d < heads; d++)
        for (int32_t i = 0; i < PROA_TREE_RANKS; i++)
            r->rate[d][i] = 0.5F * powf(0.8F, (float)d) * powf(0.4F, (float)i);
}

void proa_tree_rates_add(proa_tree_rates *r, int32_t d, const int32_t *top, int32_t id)
{
    float share = fmaxf(NEW_SHARE, 1.0F / (float)(FIRST_COUNT + ++r->count[d]));
    if (r->count[d] > 1000) r->count[d] = 1000;
    for (int32_t i = 0; i < PROA_TREE_RANKS; i++)
        r->rate[d][i] += share * ((top[i] == id ? 1.0F : 0.0F) - r->rate[d][i]);
}

/* ---- the likeliest nodes ---- */

/* Nodes that could be next: each has its parent in the shape. */
typedef struct frontier {
    const proa_tree_rates *rates;
    int32_t count;
    proa_tree_node node[2 * PROA_TREE_MAX + 1];
    float likely[2 * PROA_TREE_MAX + 1];
} frontier;

/* Ranks are in falling order: a lower one is not taken to be likelier, whatever was measured. */
static float share_of(const proa_tree_rates *r, int32_t head, int32_t rank)
{
    float share = 1;
    for (int32_t i = 0; i <= rank; i++) share = fminf(share, r->rate[head][i]);
    return share;
}

static void push_node(frontier *f, int32_t parent, float likely, int32_t head, int32_t rank)
{
    if (head >= f->rates->heads || rank >= PROA_TREE_RANKS) return;
    f->likely[f->count] = likely * share_of(f->rates, head, rank);
    f->node[f->count++] = (proa_tree_node){parent, head, rank};
}

/* Moves the likeliest node to the end of the shape. */
static void take_likeliest(proa_tree_shape *shape, frontier *f)
{
    int32_t best = 0;
    for (int32_t i = 1; i < f->count; i++)
        if (f->likely[i] > f->likely[best]) best = i;
    shape->node[shape->count] = f->node[best];
    shape->likely[shape->count++] = f->likely[best];
    f->count--;
    f->node[best] = f->node[f->count], f->likely[best] = f->likely[f->count];
}

void proa_tree_shape_make(proa_tree_shape *shape, const proa_tree_rates *r)
{
    frontier f = {.rates = r};
    shape->count = 0;
    push_node(&f, -1, 1, 0, 0);
    while (f.count > 0 && shape->count < PROA_TREE_MAX) {
        take_likeliest(shape, &f);
        const int32_t j = shape->count - 1;
        const proa_tree_node *node = &shape->node[j];
        float above = node->parent < 0 ? 1 : shape->likely[node->parent];
        push_node(&f, j, shape->likely[j], node->head + 1, 0);
        push_node(&f, node->parent, above, node->head, node->rank + 1);
    }
}

/* ---- the tree of a pass ---- */

void proa_draft_tree_begin(proa_draft_tree *tree, int64_t first)
{
    tree->count = tree->tip = tree->accepted = 0;
    tree->first = first;
}

void proa_draft_tree_add(proa_draft_tree *tree, int32_t id, int32_t parent)
{
    int32_t j = tree->count++;
    tree->id[j] = id;
    tree->parent[j] = parent;
    tree->depth[j] = parent < 0 ? 1 : tree->depth[parent] + 1;
    tree->seen[j] = (uint64_t)1 << j | (parent < 0 ? 0 : tree->seen[parent]);
}

void proa_draft_tree_fill(proa_draft_tree *tree, const proa_tree_shape *shape, int32_t count, int64_t first)
{
    proa_draft_tree_begin(tree, first);
    for (int32_t j = 0; j < count; j++) {
        const proa_tree_node *n = &shape->node[j];
        proa_draft_tree_add(tree, tree->top[n->head][n->rank], n->parent);
    }
}

bool proa_draft_tree_next(proa_draft_tree *tree, int32_t id)
{
    for (int32_t j = tree->tip; j < tree->count; j++) {
        if (tree->parent[j] != tree->tip - 1 || tree->id[j] != id) continue;
        tree->path[tree->accepted++] = j;
        tree->tip = j + 1;
        return true;
    }
    return false;
}
