/* SPDX-License-Identifier: Apache-2.0
 * grow.h - random forests of all that forest.h allows, and rows to try them on. */
#ifndef PROA_TESTS_GROW_H
#define PROA_TESTS_GROW_H

#include "base/alloc.h"
#include "forest/forest.h"
#include <math.h>
#include <string.h>

typedef struct grow {
    proa_forest_family family;
    proa_forest_transform transform;
    int32_t features, targets, classes, leaf_size, trees, depth;
    int stop_percent; /* a node above the depth is a leaf with this chance */
    bool f64, ops, categories, zeros, divide, linear_leaves;
    uint64_t seed;
} grow;

static inline uint64_t grow_bits(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int32_t grow_below(uint64_t *seed, int32_t n)
{
    return (int32_t)(grow_bits(seed) % (uint64_t)n);
}

/* In [-1, 1), a float's value unless f64. */
static inline double grow_number(uint64_t *seed, bool f64)
{
    double x = (double)(grow_bits(seed) >> 11) / 4503599627370496.0 - 1.0;
    return f64 ? x : (double)(float)x;
}

/* Values that sit on each other and on the edges: equal to thresholds, zeros of both signs, tiny, infinite. */
static inline double grow_edge(uint64_t *seed, bool f64)
{
    static const double edges[] = {
        0, -0.0, 1e-35, -1e-35, 2e-35, 1e-45, -1e-45, 0.5, -0.5, 3.4028234663852886e38, 1, 2};
    int32_t k = grow_below(seed, 20);
    double x = k < 12    ? edges[k]
               : k == 12 ? (double)INFINITY
               : k == 13 ? -(double)INFINITY
                         : grow_number(seed, f64);
    return f64 ? x : (double)(float)x;
}

static inline void grow_split(const grow *g, proa_forest *f, proa_forest_node *n, uint64_t *seed)
{
    n->feature = grow_below(seed, g->features);
    n->value = grow_below(seed, 4) ? grow_number(seed, g->f64) : grow_edge(seed, g->f64);
    n->op = (uint8_t)(g->ops                                ? grow_below(seed, 5)
                      : g->family == PROA_FOREST_OF_XGBOOST ? PROA_FOREST_LT
                                                            : PROA_FOREST_LE);
    n->flags = grow_below(seed, 2) ? PROA_FOREST_DEFAULT_LEFT : 0;
    n->aux = -1;
    if (g->zeros && grow_below(seed, 4) == 0) n->flags |= PROA_FOREST_ZERO_MISSING;
    if (!g->categories || grow_below(seed, 3)) return;
    n->flags = (uint8_t)((n->flags & PROA_FOREST_DEFAULT_LEFT) | PROA_FOREST_CATEGORICAL |
                         (grow_below(seed, 2) ? PROA_FOREST_MEMBER_LEFT : 0));
    n->aux = (int32_t)f->set_count;
    f->sets[f->set_count++] = (proa_forest_set){f->word_count, 2};
    f->words[f->word_count++] = (uint32_t)grow_bits(seed);
    f->words[f->word_count++] = (uint32_t)grow_bits(seed);
}

/* Two leaves of three: a line of up to two terms. */
static inline int32_t grow_line(const grow *g, proa_forest *f, uint64_t *seed)
{
    int32_t terms = grow_below(seed, 4) - 1;
    if (terms < 0) return -1;
    f->linear_leaves[f->linear_leaf_count] = (proa_forest_linear_leaf){grow_number(seed, true), f->term_count,
                                                                       terms};
    for (int32_t i = 0; i < terms; i++, f->term_count++) {
        f->terms[f->term_count] = grow_below(seed, g->features);
        f->slopes[f->term_count] = grow_number(seed, true);
    }
    return (int32_t)f->linear_leaf_count++;
}

/* Grows the node at f->node_count and all below it; returns the depth below it. */
static inline int32_t grow_node(const grow *g, proa_forest *f, proa_forest_tree *t, int32_t level,
                                double cover, uint64_t *seed)
{
    int32_t own = t->nodes++, below = 0;
    proa_forest_node *n = &f->nodes[t->first + own];
    f->node_count++;
    f->cover[t->first + own] = cover;
    *n = (proa_forest_node){.feature = -1, .left = -1, .right = -1, .aux = -1, .value = 0};
    if (level == g->depth || (level && grow_below(seed, 100) < g->stop_percent)) {
        t->leaves++;
        n->value = grow_number(seed, g->f64);
        if (g->linear_leaves) n->aux = grow_line(g, f, seed);
        if (g->leaf_size > 1) {
            n->aux = (int32_t)f->vector_count;
            for (int32_t i = 0; i < g->leaf_size; i++)
                f->vectors[f->vector_count * g->leaf_size + i] = grow_number(seed, g->f64);
            f->vector_count++;
        }
        return 0;
    }
    grow_split(g, f, n, seed);
    double share = (double)(1 + grow_below(seed, 9)) / 10;
    n->left = own + 1;
    below = grow_node(g, f, t, level + 1, cover * share, seed);
    n->right = t->nodes;
    int32_t right = grow_node(g, f, t, level + 1, cover * (1 - share), seed);
    return 1 + (right > below ? right : below);
}

static inline void grow_tree(const grow *g, proa_forest *f, uint64_t *seed)
{
    proa_forest_tree *t = &f->trees[f->tree_count];
    *t = (proa_forest_tree){.first = f->node_count, .stride = 1};
    t->depth = grow_node(g, f, t, 0, 100, seed);
    if (g->leaf_size == 1) t->output = (int32_t)(f->tree_count % f->outputs);
    f->tree_count++;
}

static inline proa_forest *grow_forest(const grow *g)
{
    proa_forest *f = proa_calloc(1, sizeof *f);
    int64_t most = (int64_t)g->trees * ((2 << g->depth) - 1);
    uint64_t seed = g->seed;
    f->format = PROA_FOREST_TREELITE;
    f->family = g->family;
    f->transform = g->transform;
    f->f64 = g->f64;
    f->task = g->classes > 1 ? PROA_FOREST_MULTICLASS : PROA_FOREST_REGRESSION;
    f->has_category = g->categories;
    f->has_zero_missing = g->zeros;
    f->truncate_negative = g->family == PROA_FOREST_OF_LIGHTGBM;
    f->alpha = f->ratio = 1;
    f->features = g->features;
    f->targets = g->targets;
    f->classes = g->classes;
    f->outputs = g->targets * g->classes;
    f->leaf_size = g->leaf_size;
    f->target_classes = proa_calloc((size_t)f->targets, sizeof *f->target_classes);
    f->base = proa_calloc((size_t)f->outputs, sizeof *f->base);
    f->divisor = proa_calloc((size_t)f->outputs, sizeof *f->divisor);
    for (int32_t i = 0; i < f->targets; i++) f->target_classes[i] = f->classes;
    for (int32_t i = 0; i < f->outputs; i++) {
        f->base[i] = grow_number(&seed, g->f64);
        f->divisor[i] = g->divide ? 1 + i % 7 : 1;
    }
    f->trees = proa_calloc((size_t)g->trees + 1, sizeof *f->trees);
    f->nodes = proa_calloc((size_t)most + 1, sizeof *f->nodes);
    f->cover = proa_calloc((size_t)most + 1, sizeof *f->cover);
    f->sets = proa_calloc((size_t)most + 1, sizeof *f->sets);
    f->words = proa_calloc((size_t)most * 2 + 1, sizeof *f->words);
    if (g->leaf_size > 1) f->vectors = proa_calloc((size_t)(most * g->leaf_size), sizeof *f->vectors);
    if (g->linear_leaves) {
        f->linear_leaves = proa_calloc((size_t)most, sizeof *f->linear_leaves);
        f->terms = proa_calloc((size_t)most * 2, sizeof *f->terms);
        f->slopes = proa_calloc((size_t)most * 2, sizeof *f->slopes);
    }
    for (int32_t i = 0; i < g->trees; i++) grow_tree(g, f, &seed);
    return f;
}

/* Rows near the thresholds, with missing values and, for categories, integers. */
static inline float *grow_rows(const grow *g, int64_t rows)
{
    uint64_t seed = g->seed + 1;
    float *x = proa_calloc((size_t)(rows * g->features) + 1, sizeof *x);
    for (int64_t i = 0; i < rows * g->features; i++) {
        int32_t kind = grow_below(&seed, 10);
        x[i] = kind == 0   ? NAN
               : kind == 1 ? (float)grow_edge(&seed, false)
               : kind < 4 && g->categories
                   ? (float)grow_below(&seed, 70) - 2.5f + 0.5f * (float)grow_below(&seed, 2)
                   : (float)grow_number(&seed, false);
    }
    return x;
}

#endif
