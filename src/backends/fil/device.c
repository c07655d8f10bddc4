/* SPDX-License-Identifier: Apache-2.0
 * device.c - makes a proa_trees (kernels/trees.h) of a forest, in the memory of a GPU. Trees become breadth first, so
 * that the two children of a node follow each other; thresholds become cuts, as in forest/packed.c. */
#include "backends/fil/device.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <string.h>

enum { ARRAYS = 13 };

struct proa_fil_device {
    proa_trees trees;
    proa_buffer *arrays[ARRAYS];
    int arrays_count;
};

/* ---- nodes ---- */

static float bits_of_index(int32_t i)
{
    float f;
    memcpy(&f, &i, sizeof f);
    return f;
}

static proa_trees_node leaf_node(const proa_forest *f, const proa_forest_node *n, int32_t value)
{
    bool line = f->leaf_size == 1 && n->aux >= 0;
    return (proa_trees_node){.cut = line ? bits_of_index(n->aux) : 0,
                             .feature = -1,
                             .child = f->leaf_size > 1 ? n->aux : value,
                             .flags = line ? PROA_TREE_LINE : 0};
}

static proa_trees_node split_node(const proa_forest_node *n, int32_t child)
{
    bool swapped = false;
    proa_trees_node to = {.feature = n->feature, .child = child};
    if (n->flags & PROA_FOREST_DEFAULT_LEFT) to.flags |= PROA_TREE_DEFAULT_LEFT;
    if (n->flags & PROA_FOREST_ZERO_MISSING) to.flags |= PROA_TREE_ZERO_MISSING;
    if (n->flags & PROA_FOREST_CATEGORICAL) {
        to.flags |= PROA_TREE_SET;
        if (n->flags & PROA_FOREST_MEMBER_LEFT) to.flags |= PROA_TREE_MEMBER_LEFT;
        to.cut = bits_of_index(n->aux);
    } else if (n->op == PROA_FOREST_EQ) {
        to.flags |= PROA_TREE_EQUAL;
        to.cut = (double)(float)n->value == n->value ? (float)n->value : NAN;
    } else {
        to.cut = proa_forest_cut((proa_forest_op)n->op, n->value, &swapped);
        if (swapped) to.flags |= PROA_TREE_SWAPPED;
    }
    return to;
}

/* order: room for the tree's nodes. value: of its first leaf that has one value; moves on. */
static void put_tree(const proa_forest *f, const proa_forest_tree *tree, proa_trees_node *to, int32_t *order,
                     double *values, int32_t *value)
{
    const proa_forest_node *nodes = f->nodes + tree->first;
    int32_t used = 1;
    order[0] = 0;
    for (int32_t i = 0; i < tree->nodes; i++) {
        const proa_forest_node *n = &nodes[order[i]];
        if (n->feature < 0) {
            to[i] = leaf_node(f, n, *value);
            if (f->leaf_size == 1) values[(*value)++] = n->value;
            continue;
        }
        to[i] = split_node(n, used);
        order[used++] = n->left;
        order[used++] = n->right;
    }
}

/* ---- arrays ---- */

typedef struct host_arrays {
    proa_trees_node *nodes;
    proa_tree *trees;
    proa_trees_tile *tiles;
    double *values; /* of leaves with one value */
    float *narrow;  /* the same, or the vectors, as floats; NULL with f64 */
    proa_tree_set *sets;
    proa_tree_line *lines;
    int64_t nodes_count, values_count;
    int32_t tiles_count;
} host_arrays;

static void free_arrays(host_arrays *a)
{
    free(a->nodes), free(a->trees), free(a->tiles), free(a->values), free(a->narrow), free(a->sets),
        free(a->lines);
}

static void add_to_tiles(host_arrays *a, int32_t tree, int64_t first, int64_t nodes)
{
    proa_trees_tile *last = a->tiles_count ? &a->tiles[a->tiles_count - 1] : NULL;
    if (last && last->count < PROA_TREES_HITS / PROA_TREES_ROWS && last->nodes + nodes <= PROA_TREES_TILE_NODES) {
        last->count++;
        last->nodes += nodes;
        return;
    }
    a->tiles[a->tiles_count++] = (proa_trees_tile){tree, 1, first, nodes};
}

static void put_trees(const proa_forest *f, host_arrays *a)
{
    int32_t most = 1, value = 0;
    for (int64_t i = 0; i < f->tree_count; i++) most = f->trees[i].nodes > most ? f->trees[i].nodes : most;
    int32_t *order = proa_calloc((size_t)most, sizeof *order);
    int64_t first = 0;
    for (int32_t i = 0; i < (int32_t)f->tree_count; i++) {
        const proa_forest_tree *t = &f->trees[i];
        put_tree(f, t, a->nodes + first, order, a->values, &value);
        a->trees[i] = (proa_tree){first, t->nodes, t->output, t->stride};
        add_to_tiles(a, i, first, t->nodes);
        first += t->nodes;
    }
    free(order);
}

static void make_arrays(const proa_forest *f, host_arrays *a)
{
    for (int64_t i = 0; i < f->tree_count; i++) {
        a->nodes_count += f->trees[i].nodes;
        a->values_count += f->leaf_size == 1 ? f->trees[i].leaves : 0;
    }
    a->nodes = proa_calloc((size_t)a->nodes_count + 1, sizeof *a->nodes);
    a->trees = proa_calloc((size_t)f->tree_count + 1, sizeof *a->trees);
    a->tiles = proa_calloc((size_t)f->tree_count + 1, sizeof *a->tiles);
    a->values = proa_calloc((size_t)a->values_count + 1, sizeof *a->values);
    put_trees(f, a);
    a->sets = proa_calloc((size_t)f->set_count + 1, sizeof *a->sets);
    for (int64_t i = 0; i < f->set_count; i++)
        a->sets[i] = (proa_tree_set){f->sets[i].first, f->sets[i].words};
    a->lines = proa_calloc((size_t)f->linear_leaf_count + 1, sizeof *a->lines);
    for (int64_t i = 0; i < f->linear_leaf_count; i++)
        a->lines[i] = (proa_tree_line){f->linear_leaves[i].constant, f->linear_leaves[i].first,
                                       f->linear_leaves[i].terms};
    if (f->leaf_size > 1) a->values_count = f->vector_count * f->leaf_size;
    const double *values = f->leaf_size > 1 ? f->vectors : a->values;
    if (!f->f64) a->narrow = proa_calloc((size_t)a->values_count + 1, sizeof *a->narrow);
    for (int64_t i = 0; !f->f64 && i < a->values_count; i++) a->narrow[i] = (float)values[i];
}

/* ---- to the device ---- */

/* *at: the copy of count elements; NULL if there are none. */
static proa_status put_array(proa_fil_device *d, proa_gpu_stream *s, const void **at, const void *from,
                             int64_t count, size_t size, proa_err *err)
{
    *at = NULL;
    if (count == 0 || !from) return PROA_OK;
    PROA_ASSERT(d->arrays_count < ARRAYS);
    PROA_TRY(proa_gpu_upload(s, &d->arrays[d->arrays_count], from, (size_t)count * size, err));
    *at = d->arrays[d->arrays_count++]->data;
    return PROA_OK;
}

#define PUT(field, from, count)                                                                              \
    do {                                                                                                     \
        const void *at;                                                                                      \
        PROA_TRY(put_array(d, s, &at, from, count, sizeof *d->trees.field, err));                            \
        d->trees.field = at;                                                                                 \
    } while (0)

static proa_status put_arrays(proa_fil_device *d, proa_gpu_stream *s, const proa_forest *f,
                              const host_arrays *a, proa_err *err)
{
    PUT(nodes, a->nodes, a->nodes_count);
    PUT(trees, a->trees, f->tree_count);
    PUT(tiles, a->tiles, a->tiles_count);
    PUT(leaves, a->narrow, a->values_count);
    PUT(leaves64, !f->f64 ? NULL : f->leaf_size > 1 ? f->vectors : a->values, a->values_count);
    PUT(sets, a->sets, f->set_count);
    PUT(words, f->words, f->word_count);
    PUT(lines, a->lines, f->linear_leaf_count);
    PUT(terms, f->terms, f->term_count);
    PUT(slopes, f->slopes, f->term_count);
    PUT(base, f->base, f->outputs);
    PUT(divisor, f->divisor, f->outputs);
    PUT(target_classes, f->target_classes, f->targets);
    return proa_gpu_stream_wait(s, err);
}

/* -1: the device has it not. */
static int transform_of(proa_forest_transform transform)
{
    switch (transform) {
    case PROA_FOREST_IDENTITY: return PROA_TREES_IDENTITY;
    case PROA_FOREST_SIGNED_SQUARE: return PROA_TREES_SIGNED_SQUARE;
    case PROA_FOREST_HINGE: return PROA_TREES_HINGE;
    case PROA_FOREST_SIGMOID:
    case PROA_FOREST_OVA: return PROA_TREES_SIGMOID;
    case PROA_FOREST_EXPONENTIAL: return PROA_TREES_EXPONENTIAL;
    case PROA_FOREST_EXP2_RATIO: return PROA_TREES_EXP2_RATIO;
    case PROA_FOREST_SOFTMAX: return PROA_TREES_SOFTMAX;
    default: return -1;
    }
}

const char *proa_fil_device_refuses(const proa_forest *forest)
{
    return transform_of(forest->transform) < 0 ? proa_forest_transform_name(forest->transform) : NULL;
}

static proa_trees_answer answer_of(proa_fil_answer answer)
{
    switch (answer) {
    case PROA_FIL_BEST: return PROA_TREES_BEST;
    case PROA_FIL_THRESHOLD: return PROA_TREES_THRESHOLD;
    case PROA_FIL_BOTH: return PROA_TREES_BOTH;
    default: return PROA_TREES_SCORES;
    }
}

static proa_trees describe_forest(const proa_forest *f, int32_t tiles, proa_fil_answer answer, float threshold)
{
    return (proa_trees){.trees_count = (int32_t)f->tree_count,
                        .tiles_count = tiles,
                        .features = f->features,
                        .outputs = f->outputs,
                        .leaf_size = f->leaf_size,
                        .f64 = f->f64,
                        .base_first = f->family == PROA_FOREST_OF_XGBOOST,
                        .truncate_negative = f->truncate_negative,
                        .guarded = f->family == PROA_FOREST_OF_XGBOOST,
                        .float_softmax = f->family == PROA_FOREST_OF_TREELITE,
                        .transform = (proa_trees_transform)transform_of(f->transform),
                        .alpha = f->alpha,
                        .ratio = f->ratio,
                        .targets = f->targets,
                        .classes = f->classes,
                        .answer = answer_of(answer),
                        .threshold = threshold};
}

proa_status proa_fil_device_new(proa_fil_device **out, proa_gpu_stream *s, const proa_forest *forest,
                                proa_fil_answer answer, float threshold, proa_err *err)
{
    proa_fil_device *d = proa_calloc(1, sizeof *d);
    host_arrays a = {.nodes = NULL};
    *out = NULL;
    make_arrays(forest, &a);
    d->trees = describe_forest(forest, a.tiles_count, answer, threshold);
    proa_status status = put_arrays(d, s, forest, &a, err);
    free_arrays(&a);
    if (status != PROA_OK) return proa_fil_device_free(d), status;
    *out = d;
    return PROA_OK;
}

void proa_fil_device_free(proa_fil_device *d)
{
    if (!d) return;
    for (int i = 0; i < d->arrays_count; i++) proa_buffer_drop(d->arrays[i]);
    free(d);
}

/* ---- rows ---- */

proa_status proa_fil_device_run(const proa_fil_device *d, proa_gpu_stream *s, const proa_tensor *in,
                                int64_t rows, proa_fil_pass *pass, proa_err *err)
{
    const void *x;
    int64_t width = proa_trees_width(&d->trees), outputs = d->trees.outputs;
    *pass = (proa_fil_pass){.in = NULL};
    if (rows > INT64_MAX / 16 / proa_max64(width, outputs))
        return PROA_FAIL(err, LIMIT, "%lld rows are too many for a GPU", (long long)rows);
    PROA_TRY(proa_gpu_input(s, in, &pass->in, &x, err));
    PROA_TRY(proa_gpu_buffer(s, &pass->sums, (size_t)(rows * outputs) * sizeof(double), err));
    PROA_TRY(proa_gpu_buffer(s, &pass->out, (size_t)(rows * width) * sizeof(float), err));
    if (rows)
        s->ops->forest(&s->ctx, (float *)(void *)pass->out->data, (double *)(void *)pass->sums->data, x, rows,
                       &d->trees);
    return PROA_OK;
}

void proa_fil_pass_release(proa_fil_pass *pass)
{
    proa_buffer_drop(pass->in);
    proa_buffer_drop(pass->sums);
    proa_buffer_drop(pass->out);
    *pass = (proa_fil_pass){.in = NULL};
}
