/* SPDX-License-Identifier: Apache-2.0
 * build.c - a forest that grows tree by tree: any order of nodes comes in, depth first goes out. */
#include "forest/readers.h"

#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

/* Grows an array of items of `bytes` so that `more` fit after `count`; doubles its size. */
static void *grow_array(void *ptr, int64_t *cap, int64_t count, int64_t more, size_t bytes)
{
    if (count + more <= *cap) return ptr;
    int64_t want = *cap * 2 > count + more ? *cap * 2 : count + more;
    *cap = want < 64 ? 64 : want;
    return proa_realloc(ptr, (size_t)*cap * bytes);
}

void proa_forest_begin(proa_forest_builder *b, proa_forest_format format, proa_forest_family family, proa_err *err)
{
    *b = (proa_forest_builder){.f = proa_calloc(1, sizeof(proa_forest)), .has_cover = true, .err = err};
    b->f->format = format;
    b->f->family = family;
    b->f->alpha = b->f->ratio = 1.0;
    b->f->leaf_size = 1;
}

void proa_forest_drop(proa_forest_builder *b)
{
    proa_forest_free(b->f);
    free(b->draft);
    free(b->draft_cover);
    *b = (proa_forest_builder){.f = NULL};
}

proa_status proa_forest_draft(proa_forest_builder *b, int64_t nodes)
{
    if (nodes < 1) return PROA_FAIL(b->err, CORRUPT, "a tree without nodes");
    if (nodes > PROA_FOREST_TREE_NODES_MAX)
        return PROA_FAIL(b->err, LIMIT, "a tree of %lld nodes, at most %d are read", (long long)nodes,
                         PROA_FOREST_TREE_NODES_MAX);
    if (nodes > b->draft_cap) {
        b->draft_cap = nodes;
        free(b->draft);
        free(b->draft_cover);
        b->draft = proa_malloc((size_t)nodes * sizeof *b->draft);
        b->draft_cover = proa_malloc((size_t)nodes * sizeof *b->draft_cover);
    }
    for (int64_t i = 0; i < nodes; i++) {
        b->draft[i] = (proa_forest_node){.feature = -1, .aux = -1};
        b->draft_cover[i] = -1;
    }
    return PROA_OK;
}

/* ---- from draft to forest ---- */

#define TAKEN 0x80u /* of a draft node's flags */

/* A node that is not yet visited. */
typedef struct unvisited_node {
    int32_t node;   /* of the draft */
    int32_t parent; /* index in the tree of the node whose right child it is; -1 for the root */
    int32_t depth;
} unvisited_node;

static void take_cover(proa_forest_builder *b, double cover)
{
    proa_forest *f = b->f;
    b->has_cover = b->has_cover && cover >= 0;
    if (!b->has_cover) return;
    f->cover = grow_array(f->cover, &b->cover_cap, f->node_count, 1, sizeof *f->cover);
    f->cover[f->node_count] = cover;
}

/* Appends draft node `from` to the forest; CORRUPT if it was appended before. */
static proa_status take_node(proa_forest_builder *b, int32_t from, int64_t count, proa_forest_node **taken)
{
    proa_forest *f = b->f;
    proa_forest_node *d = &b->draft[from];
    if (d->flags & TAKEN) return PROA_FAIL(b->err, CORRUPT, "node %d has two parents", from);
    if (d->feature >= 0 && (d->left < 0 || d->left >= count || d->right < 0 || d->right >= count))
        return PROA_FAIL(b->err, CORRUPT, "node %d has children %d and %d of %lld", from, d->left, d->right,
                         (long long)count);
    if (f->node_count >= PROA_FOREST_NODES_MAX)
        return PROA_FAIL(b->err, LIMIT, "more than %lld nodes in all trees", (long long)PROA_FOREST_NODES_MAX);
    f->nodes = grow_array(f->nodes, &b->node_cap, f->node_count, 1, sizeof *f->nodes);
    take_cover(b, b->draft_cover[from]);
    *taken = &f->nodes[f->node_count++];
    **taken = *d;
    d->flags |= TAKEN;
    return PROA_OK;
}

/* Follows the left children from `at` to a leaf, and queues the right ones. */
static proa_status take_path(proa_forest_builder *b, proa_forest_tree *t, int64_t count, unvisited_node at,
                             unvisited_node *stack, int32_t *waits)
{
    proa_forest_node *n = NULL;
    if (at.parent >= 0) b->f->nodes[t->first + at.parent].right = t->nodes;
    for (;; at.depth++) {
        PROA_TRY(take_node(b, at.node, count, &n));
        t->nodes++;
        if (n->feature < 0) break;
        if (at.depth >= PROA_FOREST_DEPTH_MAX)
            return PROA_FAIL(b->err, LIMIT, "a tree deeper than %d", PROA_FOREST_DEPTH_MAX);
        stack[(*waits)++] = (unvisited_node){n->right, t->nodes - 1, at.depth + 1};
        at.node = n->left;
        n->left = t->nodes;
    }
    n->left = n->right = 0;
    t->leaves++;
    if (at.depth > t->depth) t->depth = at.depth;
    return PROA_OK;
}

proa_status proa_forest_add(proa_forest_builder *b, int64_t nodes, int32_t output, int32_t stride)
{
    proa_forest *f = b->f;
    unvisited_node stack[PROA_FOREST_DEPTH_MAX + 1];
    int32_t waits = 1;
    proa_forest_tree t = {.first = f->node_count, .output = output, .stride = stride};
    if (f->tree_count >= PROA_FOREST_TREES_MAX)
        return PROA_FAIL(b->err, LIMIT, "more than %d trees", PROA_FOREST_TREES_MAX);
    stack[0] = (unvisited_node){0, -1, 0};
    while (waits > 0) {
        unvisited_node next = stack[--waits];
        PROA_TRY(take_path(b, &t, nodes, next, stack, &waits));
    }
    f->trees = grow_array(f->trees, &b->tree_cap, f->tree_count, 1, sizeof *f->trees);
    f->trees[f->tree_count++] = t;
    return PROA_OK;
}

/* ---- sets and vectors ---- */

proa_status proa_forest_add_set(proa_forest_builder *b, int64_t words, int32_t *set)
{
    proa_forest *f = b->f;
    if (words < 0 || words > PROA_FOREST_CATEGORIES_MAX / 32)
        return PROA_FAIL(b->err, LIMIT, "a category of %d or more", PROA_FOREST_CATEGORIES_MAX);
    if (f->word_count + words > PROA_FOREST_WORDS_MAX || f->set_count >= INT32_MAX)
        return PROA_FAIL(b->err, LIMIT, "category sets of more than %lld words",
                         (long long)PROA_FOREST_WORDS_MAX);
    f->sets = grow_array(f->sets, &b->set_cap, f->set_count, 1, sizeof *f->sets);
    f->words = grow_array(f->words, &b->word_cap, f->word_count, words, sizeof *f->words);
    if (words > 0) memset(f->words + f->word_count, 0, (size_t)words * sizeof *f->words);
    f->sets[f->set_count] = (proa_forest_set){f->word_count, (int32_t)words};
    f->word_count += words;
    *set = (int32_t)f->set_count++;
    return PROA_OK;
}

uint32_t *proa_forest_words(proa_forest_builder *b, int32_t set)
{
    return b->f->words ? b->f->words + b->f->sets[set].first : NULL; /* all sets so far are empty */
}

proa_status proa_forest_add_vector(proa_forest_builder *b, int32_t *vector, double **values)
{
    proa_forest *f = b->f;
    int64_t used = f->vector_count * f->leaf_size;
    if (used + f->leaf_size > PROA_FOREST_VECTORS_MAX || f->vector_count >= INT32_MAX)
        return PROA_FAIL(b->err, LIMIT, "more than %lld values in vector leaves",
                         (long long)PROA_FOREST_VECTORS_MAX);
    f->vectors = grow_array(f->vectors, &b->vector_cap, used, f->leaf_size, sizeof *f->vectors);
    *values = f->vectors + used;
    *vector = (int32_t)f->vector_count++;
    return PROA_OK;
}

proa_status proa_forest_add_linear_leaf(proa_forest_builder *b, double constant, int64_t terms, int32_t *line)
{
    proa_forest *f = b->f;
    if (terms < 0 || f->term_count + terms > PROA_FOREST_TERMS_MAX || f->linear_leaf_count >= INT32_MAX)
        return PROA_FAIL(b->err, LIMIT, "more than %lld terms in linear leaves",
                         (long long)PROA_FOREST_TERMS_MAX);
    f->linear_leaves = grow_array(f->linear_leaves, &b->linear_leaf_cap, f->linear_leaf_count, 1,
                                  sizeof *f->linear_leaves);
    f->terms = grow_array(f->terms, &b->term_cap, f->term_count, terms, sizeof *f->terms);
    f->slopes = grow_array(f->slopes, &b->slope_cap, f->term_count, terms, sizeof *f->slopes);
    f->linear_leaves[f->linear_leaf_count] = (proa_forest_linear_leaf){constant, f->term_count, (int32_t)terms};
    f->term_count += terms;
    *line = (int32_t)f->linear_leaf_count++;
    return PROA_OK;
}

/* ---- the whole ---- */

proa_status proa_forest_outputs(proa_forest_builder *b, int64_t targets, int64_t classes)
{
    proa_forest *f = b->f;
    if (targets < 1 || classes < 1 || targets > PROA_FOREST_OUTPUTS_MAX ||
        classes > PROA_FOREST_OUTPUTS_MAX / targets)
        return PROA_FAIL(b->err, LIMIT, "%lld targets of %lld classes, between 1 and %d outputs are read",
                         (long long)targets, (long long)classes, PROA_FOREST_OUTPUTS_MAX);
    f->targets = (int32_t)targets;
    f->classes = (int32_t)classes;
    f->outputs = (int32_t)(targets * classes);
    f->target_classes = proa_malloc((size_t)targets * sizeof *f->target_classes);
    f->base = proa_calloc((size_t)f->outputs, sizeof *f->base);
    f->divisor = proa_malloc((size_t)f->outputs * sizeof *f->divisor);
    for (int32_t i = 0; i < f->targets; i++) f->target_classes[i] = f->classes;
    for (int32_t i = 0; i < f->outputs; i++) f->divisor[i] = 1;
    return PROA_OK;
}

static void note_rules(proa_forest *f)
{
    for (int64_t i = 0; i < f->node_count; i++) {
        if (f->nodes[i].feature < 0) continue;
        f->has_category |= (f->nodes[i].flags & PROA_FOREST_CATEGORICAL) != 0;
        f->has_zero_missing |= (f->nodes[i].flags & PROA_FOREST_ZERO_MISSING) != 0;
    }
}

proa_status proa_forest_finish(proa_forest_builder *b, proa_forest **out)
{
    proa_forest *f = b->f;
    if (!b->has_cover || f->node_count == 0) {
        free(f->cover);
        f->cover = NULL;
    }
    note_rules(f);
    proa_status status = proa_forest_check(f, b->err);
    if (status == PROA_OK) {
        *out = f;
        b->f = NULL;
    }
    proa_forest_drop(b);
    return status;
}

void proa_forest_name(char *out, size_t size, proa_str from)
{
    size_t len = from.len < size - 1 ? from.len : size - 1;
    for (size_t i = 0; i < len; i++) out[i] = from.ptr[i] >= ' ' && from.ptr[i] <= '~' ? from.ptr[i] : '?';
    out[len] = '\0';
}
