/* SPDX-License-Identifier: Apache-2.0
 * trees.h - forests of decision trees as the op `forest` (data.def) takes them, and what it does with a row. It is
 *           compiled for the op's reference (reference/trees.c) and for CUDA (trees.cu), so that both give the bits of
 *           the CPU's predictor (forest/forest.h). backends/fil makes a proa_trees of a forest.
 * Owner:   all arrays are the caller's, in the memory of the device of the call.
 * Threads: pure functions; a block of threads shares out rows and trees as its two phases below say.
 *
 * The order of a row's sum is that of the trees, and each addition is rounded to the type of the sums. So the trees of
 * a tile are walked in any order, by many threads, into a list of hits; one thread for each row and output then adds
 * the hits in order. */
#ifndef PROA_KERNELS_TREES_H
#define PROA_KERNELS_TREES_H

#include "base/limits.h"
#include "kernels/libm_exp.h"
#include <stdbool.h>

/* Flags of a node. */
#define PROA_TREE_DEFAULT_LEFT 1u /* where a missing x goes */
#define PROA_TREE_SET          2u /* the split asks whether x, truncated, is in set `cut` (the bits of an int32_t) */
#define PROA_TREE_MEMBER_LEFT  4u  /* members go left, else right */
#define PROA_TREE_ZERO_MISSING 8u  /* |x| <= 1e-35 is missing too */
#define PROA_TREE_SWAPPED      16u /* x <= cut goes right */
#define PROA_TREE_EQUAL        32u /* the split is x == cut */
#define PROA_TREE_LINE         64u /* a leaf: its value is line `cut` (the bits of an int32_t), unless x is missing */

typedef struct proa_trees_node {
    float cut;
    int32_t feature; /* -1: a leaf */
    int32_t child; /* left, counted from the tree's root; right is the next. A leaf: its place in `leaves` */
    uint32_t flags;
} proa_trees_node;

/* Value i of a leaf is added to output `output + i * stride`. */
typedef struct proa_tree {
    int64_t first; /* of its nodes */
    int32_t nodes, output, stride;
} proa_tree;

typedef struct proa_tree_set {
    int64_t first;
    int32_t words;
} proa_tree_set;

/* constant + the sum of slopes[first + i] * x of feature terms[first + i]; x within 1e-35 of 0 is 0 there. */
typedef struct proa_tree_line {
    double constant;
    int64_t first;
    int32_t terms;
} proa_tree_line;

/* How sums become scores: those of forest/forest.h that libm_exp.h can compute. */
typedef enum proa_trees_transform {
    PROA_TREES_IDENTITY,
    PROA_TREES_SIGNED_SQUARE,
    PROA_TREES_HINGE,
    PROA_TREES_SIGMOID, /* of each class too */
    PROA_TREES_EXPONENTIAL,
    PROA_TREES_EXP2_RATIO,
    PROA_TREES_SOFTMAX
} proa_trees_transform;

/* What becomes of a row's scores. */
typedef enum proa_trees_answer {
    PROA_TREES_SCORES,    /* [outputs] as they are */
    PROA_TREES_BEST,      /* [targets]: the class of the highest score above 0, else class 0 */
    PROA_TREES_THRESHOLD, /* [outputs]: 1 if the score is above the threshold, else 0 */
    PROA_TREES_BOTH       /* [2]: 1 - p and p */
} proa_trees_answer;

/* Consecutive trees that a block walks before it adds their leaves. */
typedef struct proa_trees_tile {
    int32_t tree, count; /* of the forest's tiles at most PROA_TREES_HITS / PROA_TREES_ROWS */
    int64_t node, nodes; /* their nodes; more than PROA_TREES_TILE_NODES only if count is 1 */
} proa_trees_tile;

#define PROA_TREES_ROWS       32   /* rows of a block, at most */
#define PROA_TREES_HITS       2048 /* rows times trees that are walked before their leaves are added: 16 KiB */
#define PROA_TREES_TILE_NODES 8192 /* 128 KiB of shared memory: 16 trees of depth 8 */

typedef struct proa_trees {
    const proa_trees_node *nodes; /* aligned to 16 */
    const proa_tree *trees;       /* in the order of the sum */
    const proa_trees_tile *tiles; /* all trees, in pieces that fit into shared memory */
    int32_t trees_count, tiles_count;
    int32_t features, outputs, leaf_size;
    const float *leaves;    /* [leaf][leaf_size] */
    const double *leaves64; /* the same if f64; one of the two is NULL */
    bool f64;               /* sums are doubles, else floats */
    bool base_first;        /* sums begin with the base; else divisor and base come last */
    bool truncate_negative; /* a category in (-1, 0) counts as 0 */
    bool guarded;           /* XGBoost: a sigmoid's exponent is at most 88.7 */
    bool float_softmax;     /* of doubles: largest, exponentials and sum are rounded to floats */
    const proa_tree_set *sets;
    const uint32_t *words;
    const proa_tree_line *lines;
    const int32_t *terms;
    const double *slopes;
    const double *base;     /* [outputs] */
    const int32_t *divisor; /* [outputs] */
    proa_trees_transform transform;
    double alpha, ratio;
    int32_t targets, classes;
    const int32_t *target_classes; /* [targets] */
    proa_trees_answer answer;
    float threshold;
} proa_trees;

/* Numbers of a row of the answer. */
static inline PROA_DEVICE_CODE int32_t proa_trees_width(const proa_trees *f)
{
    return f->answer == PROA_TREES_BEST ? f->targets : f->answer == PROA_TREES_BOTH ? 2 : f->outputs;
}

/* ---- from a row to a leaf ---- */

static inline PROA_DEVICE_CODE int32_t proa_tree_index(float bits)
{
    int32_t i;
    memcpy(&i, &bits, sizeof i);
    return i;
}

static inline PROA_DEVICE_CODE bool proa_tree_member(const proa_trees *f, int32_t set, float x)
{
    if (x < 0.0f && !(f->truncate_negative && x > -1.0f)) return false;
    if (x >= (float)PROA_FOREST_CATEGORIES_MAX) return false;
    int32_t category = (int32_t)x;
    if (category / 32 >= f->sets[set].words) return false;
    return f->words[f->sets[set].first + category / 32] >> (category % 32) & 1;
}

static inline PROA_DEVICE_CODE bool proa_tree_goes_left(const proa_trees *f, const proa_trees_node *n, float x)
{
    if (x != x || ((n->flags & PROA_TREE_ZERO_MISSING) && fabsf(x) <= 1e-35f))
        return n->flags & PROA_TREE_DEFAULT_LEFT;
    if (n->flags & PROA_TREE_SET)
        return proa_tree_member(f, proa_tree_index(n->cut), x) == !!(n->flags & PROA_TREE_MEMBER_LEFT);
    if (n->flags & PROA_TREE_EQUAL) return x == n->cut;
    return (x <= n->cut) != !!(n->flags & PROA_TREE_SWAPPED);
}

/* The leaf that a row reaches; nodes are those of the tree. */
static inline PROA_DEVICE_CODE proa_trees_node proa_tree_leaf(const proa_trees *f,
                                                              const proa_trees_node *nodes, const float *x)
{
    proa_trees_node n = nodes[0];
    while (n.feature >= 0) n = nodes[n.child + !proa_tree_goes_left(f, &n, x[n.feature])];
    return n;
}

/* What a row finds in a tree: the value of the leaf, or with leaf_size > 1 its place. */
typedef union proa_tree_hit {
    double value;
    int64_t place;
} proa_tree_hit;

static inline PROA_DEVICE_CODE double proa_tree_line_value(const proa_trees *f, int32_t line, double value,
                                                           const float *x)
{
    const proa_tree_line *l = &f->lines[line];
    double sum = l->constant;
    for (int64_t i = l->first; i < l->first + l->terms; i++) {
        float term = x[f->terms[i]];
        if (term != term) return value;
        sum += f->slopes[i] * (fabsf(term) <= 1e-35f ? 0.0 : (double)term);
    }
    return sum;
}

static inline PROA_DEVICE_CODE proa_tree_hit proa_tree_find(const proa_trees *f, const proa_trees_node *nodes,
                                                            const float *x)
{
    proa_trees_node leaf = proa_tree_leaf(f, nodes, x);
    proa_tree_hit hit;
    if (f->leaf_size > 1) {
        hit.place = leaf.child;
        return hit;
    }
    hit.value = f->f64 ? f->leaves64[leaf.child] : (double)f->leaves[leaf.child];
    if (leaf.flags & PROA_TREE_LINE)
        hit.value = proa_tree_line_value(f, proa_tree_index(leaf.cut), hit.value, x);
    return hit;
}

/* ---- sums ---- */

static inline PROA_DEVICE_CODE double proa_trees_begin(const proa_trees *f, int32_t output)
{
    double base = f->base_first ? f->base[output] : 0.0;
    return f->f64 ? base : (double)(float)base;
}

/* Sums of floats are rounded to a float each time. */
static inline PROA_DEVICE_CODE double proa_trees_plus(const proa_trees *f, double sum, double value)
{
    return f->f64 ? sum + value : (double)((float)sum + (float)value);
}

/* sum + what this tree adds to an output. */
static inline PROA_DEVICE_CODE double proa_tree_add(const proa_trees *f, const proa_tree *t,
                                                    proa_tree_hit hit, int32_t output, double sum)
{
    double value = hit.value;
    if (f->leaf_size > 1) {
        int32_t k = (output - t->output) / t->stride;
        if (output < t->output || k >= f->leaf_size || t->output + k * t->stride != output) return sum;
        int64_t at = hit.place * f->leaf_size + k;
        value = f->f64 ? f->leaves64[at] : (double)f->leaves[at];
    } else if (t->output != output) {
        return sum;
    }
    return proa_trees_plus(f, sum, value);
}

/* ---- from sums to the answer ---- */

static inline PROA_DEVICE_CODE double proa_trees_average(const proa_trees *f, int32_t output, double sum)
{
    if (f->base_first) return sum;
    if (f->f64) return sum / f->divisor[output] + f->base[output];
    return (double)(float)((double)((float)sum / (float)f->divisor[output]) + f->base[output]);
}

static inline PROA_DEVICE_CODE float proa_trees_score32(const proa_trees *f, float x)
{
    float e;
    switch (f->transform) {
    case PROA_TREES_SIGNED_SQUARE: return copysignf(x * x, x);
    case PROA_TREES_HINGE: return x > 0.0f ? 1.0f : 0.0f;
    case PROA_TREES_SIGMOID:
        e = -(float)f->alpha * x;
        return 1.0f / (1.0f + proa_expf(f->guarded && e > 88.7f ? 88.7f : e));
    case PROA_TREES_EXPONENTIAL: return proa_expf(x);
    case PROA_TREES_EXP2_RATIO: return proa_exp2f(-x / (float)f->ratio);
    default: return x;
    }
}

static inline PROA_DEVICE_CODE double proa_trees_score64(const proa_trees *f, double x)
{
    switch (f->transform) {
    case PROA_TREES_SIGNED_SQUARE: return copysign(x * x, x);
    case PROA_TREES_HINGE: return x > 0.0 ? 1.0 : 0.0;
    case PROA_TREES_SIGMOID: return 1.0 / (1.0 + proa_exp(-f->alpha * x));
    case PROA_TREES_EXPONENTIAL: return proa_exp(x);
    case PROA_TREES_EXP2_RATIO: return proa_exp2(-x / f->ratio);
    default: return x;
    }
}

static inline PROA_DEVICE_CODE void proa_trees_softmax32(double *x, int32_t count)
{
    float top = (float)x[0];
    double sum = 0;
    for (int32_t i = 1; i < count; i++) top = (float)x[i] > top ? (float)x[i] : top;
    for (int32_t i = 0; i < count; i++) {
        x[i] = (double)proa_expf((float)x[i] - top);
        sum += x[i];
    }
    for (int32_t i = 0; i < count; i++) x[i] = (double)((float)x[i] / (float)sum);
}

static inline PROA_DEVICE_CODE void proa_trees_softmax64(double *x, int32_t count, bool floats)
{
    double top = x[0], sum = 0;
    for (int32_t i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    if (floats) top = (double)(float)top;
    for (int32_t i = 0; i < count; i++) {
        x[i] = proa_exp(x[i] - top);
        if (floats) x[i] = (double)(float)x[i];
        sum += x[i];
    }
    for (int32_t i = 0; i < count; i++) x[i] /= floats ? (double)(float)sum : sum;
}

/* Sums to scores, in place. */
static inline PROA_DEVICE_CODE void proa_trees_transform_row(const proa_trees *f, double *sums)
{
    for (int32_t i = 0; i < f->outputs; i++) sums[i] = proa_trees_average(f, i, sums[i]);
    for (int32_t t = 0; t < f->targets && f->transform != PROA_TREES_IDENTITY; t++, sums += f->classes) {
        int32_t count = f->target_classes[t];
        if (f->transform != PROA_TREES_SOFTMAX)
            for (int32_t i = 0; i < count; i++)
                sums[i] = f->f64 ? proa_trees_score64(f, sums[i])
                                 : (double)proa_trees_score32(f, (float)sums[i]);
        else if (f->f64) proa_trees_softmax64(sums, count, f->float_softmax);
        else proa_trees_softmax32(sums, count);
    }
}

static inline PROA_DEVICE_CODE float proa_trees_best(const double *scores, int32_t count)
{
    float most = 0.0f;
    int32_t best = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!((float)scores[i] > most)) continue;
        most = (float)scores[i];
        best = i;
    }
    return (float)best;
}

/* The answer of a row, from its sums [outputs], which it overwrites. */
static inline PROA_DEVICE_CODE void proa_trees_finish(const proa_trees *f, double *sums, float *out)
{
    proa_trees_transform_row(f, sums);
    for (int32_t i = 0; i < proa_trees_width(f); i++) {
        switch (f->answer) {
        case PROA_TREES_BEST: out[i] = proa_trees_best(sums + (int64_t)i * f->classes, f->classes); break;
        case PROA_TREES_THRESHOLD: out[i] = (float)sums[i] > f->threshold ? 1.0f : 0.0f; break;
        case PROA_TREES_BOTH: out[i] = i ? (float)sums[0] : 1.0f - (float)sums[0]; break;
        default: out[i] = (float)sums[i];
        }
    }
}

/* ---- the two phases of a tile: what thread `at` of `threads` does for a block of rows ---- */

/* The trees from `tree` on whose hits there is room for, read where they are. */
static inline PROA_DEVICE_CODE proa_trees_tile proa_trees_direct(const proa_trees *f, int32_t tree, int32_t rows)
{
    int32_t most = PROA_TREES_HITS / rows, left = f->trees_count - tree;
    proa_trees_tile tile = {tree, left < most ? left : most, 0, 0};
    return tile;
}

/* Threads that follow each other have rows that do, in one tree. nodes: those of the tile, or a copy of them.
 * hits: [count][rows]. */
static inline PROA_DEVICE_CODE void proa_trees_walk(const proa_trees *f, const proa_trees_tile *tile,
                                                    const proa_trees_node *nodes, const float *x, int32_t rows,
                                                    proa_tree_hit *hits, int32_t at, int32_t threads)
{
    for (int32_t i = at; i < tile->count * rows; i += threads) {
        int32_t tree = i / rows, row = i % rows;
        int64_t first = f->trees[tile->tree + tree].first - tile->node;
        hits[i] = proa_tree_find(f, nodes + first, x + (int64_t)row * f->features);
    }
}

/* sums: [rows][outputs]. One thread adds a row's hits, so what it reads for each tree is on the way of them all: with
 * one output it reads the hits alone. */
static inline PROA_DEVICE_CODE void proa_trees_sum(const proa_trees *f, const proa_trees_tile *tile,
                                                   const proa_tree_hit *hits, int32_t rows, double *sums,
                                                   int32_t at, int32_t threads)
{
    const bool single = f->outputs == 1 && f->leaf_size == 1;
    for (int32_t i = at; i < f->outputs * rows; i += threads) {
        int32_t output = i / rows, row = i % rows;
        double *to = &sums[(int64_t)row * f->outputs + output];
        double sum = tile->tree == 0 ? proa_trees_begin(f, output) : *to;
        for (int32_t t = 0; single && t < tile->count; t++)
            sum = proa_trees_plus(f, sum, hits[t * rows + row].value);
        for (int32_t t = 0; !single && t < tile->count; t++)
            sum = proa_tree_add(f, &f->trees[tile->tree + t], hits[t * rows + row], output, sum);
        *to = sum;
    }
}

#endif
