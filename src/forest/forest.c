/* SPDX-License-Identifier: Apache-2.0
 * forest.c - names, release, and the check that a forest is what forest.h says.
 * Way in:  every reader ends with proa_forest_check, so code that walks trees needs no checks. */
#include "forest/forest.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"

static const char *const TRANSFORMS[PROA_FOREST_TRANSFORMS] = {"identity",
                                                               "signed_square",
                                                               "hinge",
                                                               "sigmoid",
                                                               "exponential",
                                                               "exponential_standard_ratio",
                                                               "logarithm_one_plus_exp",
                                                               "softmax",
                                                               "multiclass_ova"};

const char *proa_forest_transform_name(proa_forest_transform transform)
{
    return (unsigned)transform < PROA_FOREST_TRANSFORMS ? TRANSFORMS[transform] : "unknown";
}

void proa_forest_free(proa_forest *f)
{
    if (!f) return;
    free(f->target_classes);
    free(f->base);
    free(f->divisor);
    free(f->trees);
    free(f->nodes);
    free(f->cover);
    free(f->vectors);
    free(f->linear_leaves);
    free(f->terms);
    free(f->slopes);
    free(f->sets);
    free(f->words);
    free(f);
}

/* ---- the check ---- */

static proa_status check_head(const proa_forest *f, proa_err *err)
{
    if (f->features < 1 || f->features > PROA_FOREST_FEATURES_MAX)
        return PROA_FAIL(err, LIMIT, "%d features, between 1 and %d are read", f->features,
                         PROA_FOREST_FEATURES_MAX);
    if (f->targets < 1 || f->classes < 1 || (int64_t)f->targets * f->classes > PROA_FOREST_OUTPUTS_MAX)
        return PROA_FAIL(err, LIMIT, "%d targets of %d classes, at most %d outputs are read", f->targets,
                         f->classes, PROA_FOREST_OUTPUTS_MAX);
    if (f->outputs != f->targets * f->classes || (f->classes > 1 && f->task != PROA_FOREST_MULTICLASS))
        return PROA_FAIL(err, CORRUPT, "%d outputs of %d targets and %d classes", f->outputs, f->targets,
                         f->classes);
    if (f->leaf_size < 1 || f->leaf_size > f->outputs)
        return PROA_FAIL(err, CORRUPT, "leaves of %d values for %d outputs", f->leaf_size, f->outputs);
    return PROA_OK;
}

static proa_status check_kind(const proa_forest *f, proa_err *err)
{
    if (f->format <= PROA_FOREST_AUTO || f->format >= PROA_FOREST_FORMATS ||
        (unsigned)f->transform >= PROA_FOREST_TRANSFORMS)
        return PROA_FAIL(err, CORRUPT, "format or transform is not one that we know");
    if (!isfinite(f->alpha) || !isfinite(f->ratio))
        return PROA_FAIL(err, CORRUPT, "the transform's parameters are not finite");
    return PROA_OK;
}

static proa_status check_outputs(const proa_forest *f, proa_err *err)
{
    for (int32_t i = 0; i < f->targets; i++)
        if (f->target_classes[i] < 1 || f->target_classes[i] > f->classes)
            return PROA_FAIL(err, CORRUPT, "target %d has %d classes, the most are %d", i,
                             f->target_classes[i], f->classes);
    for (int32_t i = 0; i < f->outputs; i++) {
        if (f->divisor[i] < 1) return PROA_FAIL(err, CORRUPT, "output %d is divided by %d", i, f->divisor[i]);
        if (isnan(f->base[i]))
            return PROA_FAIL(err, CORRUPT, "the base score of output %d is not a number", i);
    }
    return PROA_OK;
}

static proa_status check_sets(const proa_forest *f, proa_err *err)
{
    for (int64_t i = 0; i < f->set_count; i++) {
        const proa_forest_set *s = &f->sets[i];
        if (s->words < 0 || s->words > PROA_FOREST_CATEGORIES_MAX / 32 || s->first < 0 ||
            s->first > f->word_count - s->words)
            return PROA_FAIL(err, CORRUPT, "category set %lld lies outside", (long long)i);
    }
    return PROA_OK;
}

static proa_status check_lines(const proa_forest *f, proa_err *err)
{
    if (f->linear_leaf_count > 0 && (f->leaf_size != 1 || !f->f64))
        return PROA_FAIL(err, CORRUPT, "linear leaves of %d values", f->leaf_size);
    for (int64_t i = 0; i < f->linear_leaf_count; i++) {
        const proa_forest_linear_leaf *l = &f->linear_leaves[i];
        if (l->terms < 0 || l->first < 0 || l->first > f->term_count - l->terms)
            return PROA_FAIL(err, CORRUPT, "linear leaf %lld lies outside", (long long)i);
    }
    for (int64_t i = 0; i < f->term_count; i++)
        if (f->terms[i] < 0 || f->terms[i] >= f->features)
            return PROA_FAIL(err, CORRUPT, "a linear leaf asks for feature %d of %d", f->terms[i], f->features);
    return PROA_OK;
}

static bool split_ok(const proa_forest *f, const proa_forest_node *n)
{
    if (n->feature >= f->features || n->op > PROA_FOREST_EQ) return false;
    if (!(n->flags & PROA_FOREST_CATEGORICAL)) return n->aux == -1;
    return !(n->flags & PROA_FOREST_ZERO_MISSING) && n->aux >= 0 && n->aux < f->set_count;
}

static bool leaf_ok(const proa_forest *f, const proa_forest_node *n)
{
    return f->leaf_size == 1 ? n->aux >= -1 && n->aux < f->linear_leaf_count
                             : n->aux >= 0 && n->aux < f->vector_count;
}

/* The nodes must be stored depth first: a node's left child follows it, and its right child follows the
 * subtree of the left one. `open` holds the right children that are still expected, which determines the
 * shape of the whole tree. */
static bool shape_ok(const proa_forest *f, const proa_forest_tree *t, int32_t *leaves, int32_t *deepest)
{
    int32_t open[PROA_FOREST_DEPTH_MAX + 1];
    int32_t at_depth[PROA_FOREST_DEPTH_MAX + 1];
    int32_t count = 0, depth = 0;
    const proa_forest_node *nodes = f->nodes + t->first;
    *leaves = *deepest = 0;
    for (int32_t i = 0; i < t->nodes; i++) {
        if (nodes[i].feature >= 0) {
            if (depth >= PROA_FOREST_DEPTH_MAX || nodes[i].left != i + 1 || !split_ok(f, &nodes[i]))
                return false;
            open[count] = nodes[i].right;
            at_depth[count++] = ++depth;
            continue;
        }
        if (!leaf_ok(f, &nodes[i])) return false;
        ++*leaves;
        if (depth > *deepest) *deepest = depth;
        if (count == 0) return i == t->nodes - 1;
        if (open[--count] != i + 1) return false;
        depth = at_depth[count];
    }
    return false;
}

static proa_status check_tree(const proa_forest *f, int64_t number, proa_err *err)
{
    const proa_forest_tree *t = &f->trees[number];
    int32_t leaves, deepest;
    if (t->nodes < 1 || t->first < 0 || t->first > f->node_count - t->nodes)
        return PROA_FAIL(err, CORRUPT, "tree %lld: nodes lie outside", (long long)number);
    if (t->output < 0 || t->stride < 1 || t->output + (int64_t)t->stride * (f->leaf_size - 1) >= f->outputs)
        return PROA_FAIL(err, CORRUPT, "tree %lld: its outputs lie outside the %d", (long long)number,
                         f->outputs);
    if (!shape_ok(f, t, &leaves, &deepest) || leaves != t->leaves || deepest != t->depth)
        return PROA_FAIL(err, CORRUPT, "tree %lld: not a tree in the order of its nodes", (long long)number);
    return PROA_OK;
}

proa_status proa_forest_check(const proa_forest *f, proa_err *err)
{
    PROA_TRY(check_head(f, err));
    PROA_TRY(check_kind(f, err));
    PROA_TRY(check_outputs(f, err));
    PROA_TRY(check_sets(f, err));
    PROA_TRY(check_lines(f, err));
    for (int64_t i = 0; i < f->tree_count; i++) PROA_TRY(check_tree(f, i, err));
    return PROA_OK;
}
