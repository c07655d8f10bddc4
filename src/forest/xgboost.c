/* SPDX-License-Identifier: Apache-2.0
 * xgboost.c - models that XGBoost saves as JSON or UBJSON, versions 1.0 to 3.x: one reader, two notations.
 *   {"learner": {"gradient_booster": {"model": {"trees": [...], "tree_info": [...]}, "name": "gbtree"} or, of DART,
 *    {"gbtree": {"model": ...}, "weight_drop": [...], "name": "dart"}, "learner_model_param": {...},
 *    "objective": {...}}, "version": [3, 2, 0]}
 * Keys are sorted, so the trees come before what says how many features and outputs there are. */
#include "forest/readers.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/limits.h"

/* How a base score becomes a margin. */
typedef enum link { LINK_NONE, LINK_LOGIT, LINK_LOG } link;

typedef struct objective {
    const char *name;
    proa_forest_task task;
    proa_forest_transform transform;
    link link;
} objective;

static const objective OBJECTIVES[] = {
    {"reg:squarederror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:linear", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:squaredlogerror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:pseudohubererror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:absoluteerror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:quantileerror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:expectileerror", PROA_FOREST_REGRESSION, PROA_FOREST_IDENTITY, LINK_NONE},
    {"reg:logistic", PROA_FOREST_REGRESSION, PROA_FOREST_SIGMOID, LINK_LOGIT},
    {"reg:gamma", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, LINK_LOG},
    {"reg:tweedie", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, LINK_LOG},
    {"count:poisson", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, LINK_LOG},
    {"survival:cox", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, LINK_LOG},
    {"survival:aft", PROA_FOREST_REGRESSION, PROA_FOREST_EXPONENTIAL, LINK_LOG},
    {"binary:logistic", PROA_FOREST_BINARY, PROA_FOREST_SIGMOID, LINK_LOGIT},
    {"binary:logitraw", PROA_FOREST_BINARY, PROA_FOREST_IDENTITY, LINK_NONE},
    {"binary:hinge", PROA_FOREST_BINARY, PROA_FOREST_HINGE, LINK_NONE},
    {"multi:softmax", PROA_FOREST_MULTICLASS, PROA_FOREST_SOFTMAX, LINK_NONE},
    {"multi:softprob", PROA_FOREST_MULTICLASS, PROA_FOREST_SOFTMAX, LINK_NONE},
    {"rank:pairwise", PROA_FOREST_RANKING, PROA_FOREST_IDENTITY, LINK_NONE},
    {"rank:ndcg", PROA_FOREST_RANKING, PROA_FOREST_IDENTITY, LINK_NONE},
    {"rank:map", PROA_FOREST_RANKING, PROA_FOREST_IDENTITY, LINK_NONE},
};

/* The arrays of one tree. They stay allocated for the next. */
typedef struct tree_arrays {
    proa_forest_numbers left, right, feature, condition, default_left, cover;
    proa_forest_numbers weights; /* vector leaves: [nodes][size] up to 3.0, then [leaves][size] */
    proa_forest_numbers split_type, category_nodes, segments, sizes, categories;
    const char *base_weights; /* where in the file; read only where they are the leaves */
    double leaf_size, id;
} tree_arrays;

typedef struct reader {
    proa_doc d;
    proa_forest_builder b;
    tree_arrays tree;
    proa_forest_numbers ids; /* of the trees in the file's order */
    proa_forest_numbers tree_info, weight_drop, base, version;
    proa_str objective, booster;
    double features, classes, targets;
    bool learner;
} reader;

/* A member to read: `read` gets the reader's field at that offset. Other members are skipped. */
typedef struct field {
    const char *key;
    proa_status (*read)(reader *r, void *to);
    size_t at;
} field;

static proa_status read_fields(reader *r, const field *fields, size_t count)
{
    proa_doc_scope scope;
    proa_str key;
    bool more;
    PROA_TRY(proa_doc_object(&r->d, &scope));
    for (;;) {
        PROA_TRY(proa_doc_next(&r->d, &scope, &key, &more));
        if (!more) return PROA_OK;
        size_t i = 0;
        while (i < count && !proa_str_is(key, fields[i].key)) i++;
        PROA_TRY(i < count ? fields[i].read(r, (char *)r + fields[i].at) : proa_doc_skip(&r->d));
    }
}

#define READ_FIELDS(r, fields) read_fields((r), (fields), PROA_COUNT(fields))

static proa_status read_floats(reader *r, void *to)
{
    return proa_doc_nums(&r->d, true, to);
}

static proa_status read_integers(reader *r, void *to)
{
    return proa_doc_nums(&r->d, false, to);
}

static proa_status read_str(reader *r, void *to)
{
    return proa_doc_str(&r->d, to);
}

static proa_status read_num(reader *r, void *to)
{
    return proa_doc_num(&r->d, false, to);
}

/* XGBoost writes parameters as strings: "num_class": "3". */
static proa_status read_param(reader *r, void *to)
{
    proa_str text;
    PROA_TRY(proa_doc_str(&r->d, &text));
    const char *p = text.ptr, *end = text.ptr + text.len;
    if (!proa_forest_number(&p, end, false, to) || p != end)
        return PROA_FAIL(r->b.err, CORRUPT, "a parameter is not a number");
    return PROA_OK;
}

/* "5E-1", since 3.1 "[5E-1]" or "[1E0,2E0]"; parentheses are Python's tuples. */
static proa_status read_base_score(reader *r, void *to)
{
    proa_str text;
    double v;
    proa_forest_numbers *base = to;
    base->count = 0;
    PROA_TRY(proa_doc_str(&r->d, &text));
    const char *p = text.ptr, *end = text.ptr + text.len;
    while (p < end) {
        if (strchr("[]() ,", *p)) {
            p++;
            continue;
        }
        if (!proa_forest_number(&p, end, true, &v))
            return PROA_FAIL(r->b.err, CORRUPT, "base_score is not numbers");
        proa_forest_numbers_push(base, v);
    }
    return PROA_OK;
}

static proa_status note_base_weights(reader *r, void *to)
{
    *(const char **)to = r->d.ptr;
    return proa_doc_skip(&r->d);
}

/* ---- a tree ---- */

static proa_status check_count(const reader *r, const proa_forest_numbers *n, int64_t count, const char *what)
{
    if (n->count == count) return PROA_OK;
    return PROA_FAIL(r->b.err, CORRUPT, "%s has %lld values, left_children has %lld", what,
                     (long long)n->count, (long long)count);
}

static proa_status check_arrays(const reader *r, int64_t nodes)
{
    const tree_arrays *t = &r->tree;
    PROA_TRY(check_count(r, &t->right, nodes, "right_children"));
    PROA_TRY(check_count(r, &t->feature, nodes, "split_indices"));
    PROA_TRY(check_count(r, &t->condition, nodes, "split_conditions"));
    PROA_TRY(check_count(r, &t->default_left, nodes, "default_left"));
    if (t->cover.count > 0) PROA_TRY(check_count(r, &t->cover, nodes, "sum_hessian"));
    if (t->split_type.count > 0) PROA_TRY(check_count(r, &t->split_type, nodes, "split_type"));
    PROA_TRY(check_count(r, &t->segments, t->category_nodes.count, "categories_segments"));
    return check_count(r, &t->sizes, t->category_nodes.count, "categories_sizes");
}

static proa_status fill_split(reader *r, int64_t i)
{
    const tree_arrays *t = &r->tree;
    proa_forest_node *n = &r->b.draft[i];
    int64_t feature, left, right;
    PROA_TRY(proa_forest_integer(t->feature.v[i], 0, PROA_FOREST_FEATURES_MAX - 1, "split_indices", &feature,
                                 r->b.err));
    PROA_TRY(proa_forest_integer(t->left.v[i], 0, t->left.count - 1, "left_children", &left, r->b.err));
    PROA_TRY(proa_forest_integer(t->right.v[i], 0, t->left.count - 1, "right_children", &right, r->b.err));
    bool category = t->split_type.count > 0 && t->split_type.v[i] == 1;
    *n = (proa_forest_node){.value = category ? 0 : t->condition.v[i],
                            .feature = (int32_t)feature,
                            .left = (int32_t)left,
                            .right = (int32_t)right,
                            .aux = -1,
                            .op = PROA_FOREST_LT,
                            .flags = (uint8_t)((t->default_left.v[i] != 0 ? PROA_FOREST_DEFAULT_LEFT : 0) |
                                               (category ? PROA_FOREST_CATEGORICAL : 0))};
    return PROA_OK;
}

static proa_status fill_nodes(reader *r)
{
    const tree_arrays *t = &r->tree;
    for (int64_t i = 0; i < t->left.count; i++) {
        if (t->cover.count > 0) r->b.draft_cover[i] = t->cover.v[i];
        /* pruned nodes: no number of a feature; nothing reaches them */
        if (t->left.v[i] != -1 && t->feature.v[i] != 4294967295.0 && t->feature.v[i] != -1)
            PROA_TRY(fill_split(r, i));
        else r->b.draft[i].value = t->condition.v[i];
    }
    return PROA_OK;
}

/* The categories of one split, which go right. */
static proa_status fill_set(reader *r, const double *categories, int64_t count, int32_t *set)
{
    double most = -1;
    int64_t c;
    for (int64_t i = 0; i < count; i++) {
        PROA_TRY(proa_forest_integer(categories[i], 0, PROA_FOREST_CATEGORIES_MAX - 1, "a category", &c,
                                     r->b.err));
        most = categories[i] > most ? categories[i] : most;
    }
    PROA_TRY(proa_forest_add_set(&r->b, ((int64_t)most + 32) / 32, set));
    uint32_t *words = proa_forest_words(&r->b, *set);
    for (int64_t i = 0; i < count; i++) {
        c = (int64_t)categories[i];
        words[c / 32] |= UINT32_C(1) << (c % 32);
    }
    return PROA_OK;
}

static proa_status fill_sets(reader *r)
{
    const tree_arrays *t = &r->tree;
    int64_t node, first, size, taken = 0;
    for (int64_t i = 0; i < t->category_nodes.count; i++) {
        PROA_TRY(proa_forest_integer(t->category_nodes.v[i], 0, t->left.count - 1, "categories_nodes", &node,
                                     r->b.err));
        PROA_TRY(proa_forest_integer(t->segments.v[i], 0, t->categories.count, "categories_segments", &first,
                                     r->b.err));
        PROA_TRY(proa_forest_integer(t->sizes.v[i], 0, t->categories.count - first, "categories_sizes", &size,
                                     r->b.err));
        taken += size; /* no two nodes share them: otherwise small files could describe large forests */
        if (taken > t->categories.count) return PROA_FAIL(r->b.err, CORRUPT, "categories of several nodes");
        if (r->b.draft[node].flags & PROA_FOREST_CATEGORICAL)
            PROA_TRY(fill_set(r, t->categories.v + first, size, &r->b.draft[node].aux));
    }
    for (int64_t i = 0; i < t->left.count; i++) {
        proa_forest_node *n = &r->b.draft[i];
        if (n->feature >= 0 && (n->flags & PROA_FOREST_CATEGORICAL) && n->aux < 0)
            PROA_TRY(proa_forest_add_set(&r->b, 0, &n->aux)); /* no category: all go left */
    }
    return PROA_OK;
}

/* Leaves with a vector: since 3.1 right_children says which of leaf_weights, before base_weights has one a node. */
static proa_status fill_vectors(reader *r, int64_t size)
{
    tree_arrays *t = &r->tree;
    bool by_leaf = t->weights.count > 0;
    double *values;
    int64_t row, taken = 0;
    if (!by_leaf && t->base_weights) {
        proa_doc d = r->d;
        d.ptr = t->base_weights;
        PROA_TRY(proa_doc_nums(&d, true, &t->weights));
    }
    for (int64_t i = 0; i < t->left.count; i++) {
        proa_forest_node *n = &r->b.draft[i];
        if (n->feature >= 0) continue;
        PROA_TRY(proa_forest_integer(by_leaf ? t->right.v[i] : (double)i, 0, t->weights.count / size - 1,
                                     "the number of a leaf's vector", &row, r->b.err));
        taken += size;
        if (taken > t->weights.count) return PROA_FAIL(r->b.err, CORRUPT, "vectors of several leaves");
        PROA_TRY(proa_forest_add_vector(&r->b, &n->aux, &values));
        memcpy(values, t->weights.v + row * size, (size_t)size * sizeof *values);
        n->value = 0;
    }
    return PROA_OK;
}

static proa_status add_tree(reader *r)
{
    tree_arrays *t = &r->tree;
    proa_forest *f = r->b.f;
    int64_t size;
    PROA_TRY(check_arrays(r, t->left.count));
    PROA_TRY(proa_forest_integer(t->leaf_size, 0, PROA_FOREST_OUTPUTS_MAX, "size_leaf_vector", &size, r->b.err));
    if (size < 1) size = 1; /* before 2.0 */
    if (f->tree_count == 0) f->leaf_size = (int32_t)size;
    if (size != f->leaf_size)
        return PROA_FAIL(r->b.err, CORRUPT, "leaves of %lld values after such of %d", (long long)size,
                         f->leaf_size);
    PROA_TRY(proa_forest_draft(&r->b, t->left.count));
    PROA_TRY(fill_nodes(r));
    PROA_TRY(fill_sets(r));
    if (size > 1) PROA_TRY(fill_vectors(r, size));
    PROA_TRY(proa_forest_add(&r->b, t->left.count, 0, 1));
    proa_forest_numbers_push(&r->ids, t->id < 0 ? (double)r->ids.count : t->id);
    return PROA_OK;
}

static const field TREE_PARAM[] = {
    {"size_leaf_vector", read_param, offsetof(reader, tree.leaf_size)},
};

static proa_status read_tree_param(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, TREE_PARAM);
}

static const field TREE[] = {
    {"left_children", read_integers, offsetof(reader, tree.left)},
    {"right_children", read_integers, offsetof(reader, tree.right)},
    {"split_indices", read_integers, offsetof(reader, tree.feature)},
    {"split_conditions", read_floats, offsetof(reader, tree.condition)},
    {"default_left", read_integers, offsetof(reader, tree.default_left)},
    {"sum_hessian", read_floats, offsetof(reader, tree.cover)},
    {"base_weights", note_base_weights, offsetof(reader, tree.base_weights)},
    {"leaf_weights", read_floats, offsetof(reader, tree.weights)},
    {"split_type", read_integers, offsetof(reader, tree.split_type)},
    {"categories_nodes", read_integers, offsetof(reader, tree.category_nodes)},
    {"categories_segments", read_integers, offsetof(reader, tree.segments)},
    {"categories_sizes", read_integers, offsetof(reader, tree.sizes)},
    {"categories", read_integers, offsetof(reader, tree.categories)},
    {"id", read_num, offsetof(reader, tree.id)},
    {"tree_param", read_tree_param, 0},
};

/* All arrays of numbers in t, for what must be done to each. */
#define EACH_ARRAY(t, list)                                                                                  \
    proa_forest_numbers *list[] = {&(t)->left,           &(t)->right,    &(t)->feature, &(t)->condition,     \
                                   &(t)->default_left,   &(t)->cover,    &(t)->weights, &(t)->split_type,    \
                                   &(t)->category_nodes, &(t)->segments, &(t)->sizes,   &(t)->categories}

static proa_status read_trees(reader *r, void *to)
{
    (void)to;
    proa_doc_scope scope;
    bool more;
    EACH_ARRAY(&r->tree, arrays);
    PROA_TRY(proa_doc_array(&r->d, &scope));
    for (;;) {
        PROA_TRY(proa_doc_next(&r->d, &scope, NULL, &more));
        if (!more) return PROA_OK;
        for (size_t i = 0; i < PROA_COUNT(arrays); i++) arrays[i]->count = 0;
        r->tree.base_weights = NULL;
        r->tree.leaf_size = 1;
        r->tree.id = -1;
        proa_status status = READ_FIELDS(r, TREE);
        if (status == PROA_OK) status = add_tree(r);
        if (status != PROA_OK) {
            proa_err_prefix(r->b.err, "tree %lld", (long long)r->b.f->tree_count);
            return status;
        }
    }
}

/* ---- the model around the trees ---- */

static const field MODEL[] = {
    {"trees", read_trees, 0},
    {"tree_info", read_integers, offsetof(reader, tree_info)},
};

static proa_status read_model(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, MODEL);
}

static const field GBTREE[] = {
    {"model", read_model, 0},
};

static proa_status read_gbtree(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, GBTREE);
}

static const field BOOSTER[] = {
    {"model", read_model, 0},
    {"gbtree", read_gbtree, 0},
    {"weight_drop", read_floats, offsetof(reader, weight_drop)},
    {"name", read_str, offsetof(reader, booster)},
};

static proa_status read_booster(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, BOOSTER);
}

static const field MODEL_PARAM[] = {
    {"base_score", read_base_score, offsetof(reader, base)},
    {"num_class", read_param, offsetof(reader, classes)},
    {"num_feature", read_param, offsetof(reader, features)},
    {"num_target", read_param, offsetof(reader, targets)},
};

static proa_status read_model_param(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, MODEL_PARAM);
}

static const field OBJECTIVE[] = {
    {"name", read_str, offsetof(reader, objective)},
};

static proa_status read_objective(reader *r, void *to)
{
    (void)to;
    return READ_FIELDS(r, OBJECTIVE);
}

static const field LEARNER[] = {
    {"gradient_booster", read_booster, 0},
    {"learner_model_param", read_model_param, 0},
    {"objective", read_objective, 0},
};

static proa_status read_learner(reader *r, void *to)
{
    *(bool *)to = true;
    return READ_FIELDS(r, LEARNER);
}

static const field FILE_FIELDS[] = {
    {"learner", read_learner, offsetof(reader, learner)},
    {"version", read_integers, offsetof(reader, version)},
};

/* ---- what only the end of the file decides ---- */

static const objective *find_objective(proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(OBJECTIVES); i++)
        if (proa_str_is(name, OBJECTIVES[i].name)) return &OBJECTIVES[i];
    return NULL;
}

/* Before 1.4 the base score of binary:logitraw was a probability too. */
static link link_of(const reader *r, const objective *o)
{
    bool old = r->version.count == 3 && r->version.v[0] == 1 && r->version.v[1] < 4;
    return old && strcmp(o->name, "binary:logitraw") == 0 ? LINK_LOGIT : o->link;
}

static double to_margin(link how, double base)
{
    float v = (float)base;
    if (how == LINK_LOG) return (double)logf(v);
    if (how == LINK_NONE) return (double)v;
    v = v < 1e-6f ? 1e-6f : v;
    v = v > 1.0f - 1e-6f ? 1.0f - 1e-6f : v;
    return (double)-logf(1.0f / v - 1.0f);
}

static proa_status set_outputs(reader *r, const objective *o)
{
    proa_forest *f = r->b.f;
    int64_t classes, targets, features;
    PROA_TRY(proa_forest_integer(r->features, 1, PROA_FOREST_FEATURES_MAX, "num_feature", &features, r->b.err));
    PROA_TRY(proa_forest_integer(r->classes, 0, PROA_FOREST_OUTPUTS_MAX, "num_class", &classes, r->b.err));
    PROA_TRY(proa_forest_integer(r->targets, 0, PROA_FOREST_OUTPUTS_MAX, "num_target", &targets, r->b.err));
    if (classes > 1 && targets > 1)
        return PROA_FAIL(r->b.err, UNSUPPORTED, "%lld classes of %lld targets", (long long)classes,
                         (long long)targets);
    PROA_TRY(proa_forest_outputs(&r->b, targets > 1 ? targets : 1, classes > 1 ? classes : 1));
    f->features = (int32_t)features;
    f->transform = o->transform;
    f->task = classes > 1 ? PROA_FOREST_MULTICLASS : o->task;
    if (r->base.count != 1 && r->base.count != f->outputs)
        return PROA_FAIL(r->b.err, CORRUPT, "%lld base scores for %d outputs", (long long)r->base.count,
                         f->outputs);
    for (int32_t i = 0; i < f->outputs; i++) {
        f->base[i] = to_margin(link_of(r, o), r->base.v[r->base.count == 1 ? 0 : i]);
        if (!isfinite(f->base[i])) return PROA_FAIL(r->b.err, INVALID, "base_score %d has no margin", i);
    }
    return PROA_OK;
}

/* DART: the leaves of a tree are multiplied by its weight. XGBoost rounds the product before it adds. */
static void weigh_tree(proa_forest *f, const proa_forest_tree *t, float weight)
{
    for (int64_t i = t->first; i < t->first + t->nodes; i++) {
        const proa_forest_node *n = &f->nodes[i];
        if (n->feature >= 0) continue;
        double *values = f->leaf_size == 1 ? &f->nodes[i].value : f->vectors + (int64_t)n->aux * f->leaf_size;
        for (int32_t k = 0; k < f->leaf_size; k++) values[k] = (double)((float)values[k] * weight);
    }
}

static proa_status set_trees(reader *r)
{
    proa_forest *f = r->b.f;
    int64_t output;
    if (r->tree_info.count != f->tree_count)
        return PROA_FAIL(r->b.err, CORRUPT, "tree_info has %lld values for %lld trees",
                         (long long)r->tree_info.count, (long long)f->tree_count);
    if (r->weight_drop.count > 0 && r->weight_drop.count != f->tree_count)
        return PROA_FAIL(r->b.err, CORRUPT, "weight_drop has %lld values for %lld trees",
                         (long long)r->weight_drop.count, (long long)f->tree_count);
    if (f->leaf_size > 1 && f->leaf_size != f->outputs)
        return PROA_FAIL(r->b.err, CORRUPT, "leaves of %d values for %d outputs", f->leaf_size, f->outputs);
    for (int64_t i = 0; i < f->tree_count; i++) {
        PROA_TRY(proa_forest_integer(r->tree_info.v[i], 0, f->outputs - 1, "tree_info", &output, r->b.err));
        f->trees[i].output = f->leaf_size > 1 ? 0 : (int32_t)output;
        if (r->weight_drop.count > 0) weigh_tree(f, &f->trees[i], (float)r->weight_drop.v[i]);
    }
    return PROA_OK;
}

/* XGBoost orders trees by their ids; its files already have this order, edited files may not. */
static proa_status order_trees(reader *r)
{
    proa_forest *f = r->b.f;
    for (int64_t i = 0; i < f->tree_count; i++) {
        while (r->ids.v[i] != (double)i) {
            int64_t id;
            PROA_TRY(proa_forest_integer(r->ids.v[i], 0, f->tree_count - 1, "a tree's id", &id, r->b.err));
            if (r->ids.v[id] == (double)id)
                return PROA_FAIL(r->b.err, CORRUPT, "two trees have the id %lld", (long long)id);
            proa_forest_tree t = f->trees[i];
            f->trees[i] = f->trees[id];
            f->trees[id] = t;
            r->ids.v[i] = r->ids.v[id];
            r->ids.v[id] = (double)id;
        }
    }
    return PROA_OK;
}

static void set_names(reader *r)
{
    proa_forest *f = r->b.f;
    proa_forest_name(f->objective, sizeof f->objective, r->objective);
    if (r->version.count == 3)
        snprintf(f->version, sizeof f->version, "%.0f.%.0f.%.0f", r->version.v[0], r->version.v[1],
                 r->version.v[2]);
}

static proa_status read_file(reader *r)
{
    char name[40];
    PROA_TRY(READ_FIELDS(r, FILE_FIELDS));
    PROA_TRY(proa_doc_end(&r->d));
    if (!r->learner) return PROA_FAIL(r->b.err, CORRUPT, "no \"learner\": not a model of XGBoost");
    if (!proa_str_is(r->booster, "gbtree") && !proa_str_is(r->booster, "dart")) {
        proa_forest_name(name, sizeof name, r->booster);
        return PROA_FAIL(r->b.err, UNSUPPORTED, "booster '%s', must be gbtree or dart", name);
    }
    const objective *o = find_objective(r->objective);
    if (!o) {
        proa_forest_name(name, sizeof name, r->objective);
        return PROA_FAIL(r->b.err, UNSUPPORTED, "objective '%s' is not known", name);
    }
    PROA_TRY(set_outputs(r, o));
    PROA_TRY(order_trees(r));
    PROA_TRY(set_trees(r));
    set_names(r);
    return PROA_OK;
}

proa_status proa_forest_read_xgboost(proa_forest **out, proa_str bytes, bool ubj, proa_err *err)
{
    reader r = {.targets = 1};
    EACH_ARRAY(&r.tree, arrays);
    proa_doc_init(&r.d, bytes, ubj, err);
    proa_forest_begin(&r.b, ubj ? PROA_FOREST_XGBOOST_UBJ : PROA_FOREST_XGBOOST_JSON, PROA_FOREST_OF_XGBOOST,
                      err);
    proa_status status = read_file(&r);
    if (status == PROA_OK) status = proa_forest_finish(&r.b, out);
    else proa_forest_drop(&r.b);
    for (size_t i = 0; i < PROA_COUNT(arrays); i++) proa_forest_numbers_release(arrays[i]);
    proa_forest_numbers_release(&r.ids);
    proa_forest_numbers_release(&r.tree_info);
    proa_forest_numbers_release(&r.weight_drop);
    proa_forest_numbers_release(&r.base);
    proa_forest_numbers_release(&r.version);
    return status;
}
