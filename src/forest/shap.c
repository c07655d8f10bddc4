/* SPDX-License-Identifier: Apache-2.0
 * shap.c - SHAP values by the path algorithm for trees. */
#include "forest/shap.h"

#include "base/alloc.h"
#include <string.h>

struct proa_shap {
    const proa_forest *forest;
    double *mean;  /* [outputs]: of the margin over the training rows, base score included */
    int32_t depth; /* of the deepest tree */
};

/* One feature on the path from the root, with all its splits together. The paper's names: z, o and w. */
typedef struct part {
    int32_t feature; /* -1: the root's part, without a feature */
    double zero;     /* share of the training rows that go this way when the feature is not known */
    double one;      /* 1 if the row goes this way, else 0 */
    double weight;   /* of the sets of known features with as many members as this part's place says */
} part;

/* The state of a walk of one row through a tree. */
typedef struct walk {
    const proa_forest *forest;
    const proa_forest_tree *tree;
    const float *row;
    double *phi; /* [outputs][features + 1] */
} walk;

/* ---- the weights of the sets ---- */

static void extend_path(part *path, int32_t count, double zero, double one, int32_t feature)
{
    path[count] = (part){feature, zero, one, count == 0 ? 1.0 : 0.0};
    for (int32_t i = count - 1; i >= 0; i--) {
        path[i + 1].weight += one * path[i].weight * (i + 1) / (count + 1);
        path[i].weight = zero * path[i].weight * (count - i) / (count + 1);
    }
}

/* Removes part `at` from path[0..last]: the result is the path without it. */
static void unwind_path(part *path, int32_t last, int32_t at)
{
    const double one = path[at].one, zero = path[at].zero;
    double next = path[last].weight;
    for (int32_t i = last - 1; i >= 0; i--) {
        if (one != 0.0) {
            double old = path[i].weight;
            path[i].weight = next * (last + 1) / ((i + 1) * one);
            next = old - path[i].weight * zero * (last - i) / (last + 1);
        } else {
            path[i].weight = zero == 0.0 ? 0.0 : path[i].weight * (last + 1) / (zero * (last - i));
        }
    }
    for (int32_t i = at; i < last; i++) {
        path[i].feature = path[i + 1].feature;
        path[i].zero = path[i + 1].zero;
        path[i].one = path[i + 1].one;
    }
}

/* The sum of the weights that unwind would leave. */
static double unwound_sum(const part *path, int32_t last, int32_t at)
{
    const double one = path[at].one, zero = path[at].zero;
    double next = path[last].weight, sum = 0;
    for (int32_t i = last - 1; i >= 0; i--) {
        if (one != 0.0) {
            double own = next * (last + 1) / ((i + 1) * one);
            sum += own;
            next = path[i].weight - own * zero * (last - i) / (last + 1);
        } else if (zero != 0.0) {
            sum += path[i].weight * (last + 1) / (zero * (last - i));
        }
    }
    return sum;
}

/* ---- one tree ---- */

static const double *leaf_values(const proa_forest *f, const proa_forest_node *leaf)
{
    return f->leaf_size == 1 ? &leaf->value : &f->vectors[(int64_t)leaf->aux * f->leaf_size];
}

static void add_leaf(const walk *w, const proa_forest_node *leaf, const part *path, int32_t last)
{
    const proa_forest *f = w->forest;
    const double *values = leaf_values(f, leaf);
    for (int32_t i = 1; i <= last; i++) {
        double share = unwound_sum(path, last, i) * (path[i].one - path[i].zero);
        for (int32_t k = 0; k < f->leaf_size; k++) {
            int64_t output = w->tree->output + (int64_t)k * w->tree->stride;
            w->phi[output * (f->features + 1) + path[i].feature] += share * values[k];
        }
    }
}

static double share_of(const walk *w, int32_t child, int32_t node)
{
    const double *cover = w->forest->cover + w->tree->first;
    return cover[node] > 0.0 ? cover[child] / cover[node] : 0.5; /* no training row reached it: both sides alike */
}

/* before[0..last) is the path so far; a copy is made after it, and the last step has zero, one and feature.
 * */
static void visit_node(const walk *w, int32_t node, part *before, int32_t last, double zero, double one,
                       int32_t feature)
{
    const proa_forest_node *n = &w->forest->nodes[w->tree->first + node];
    part *path = before + last;
    if (last) memcpy(path, before, (size_t)last * sizeof *path);
    extend_path(path, last, zero, one, feature);
    if (n->feature < 0) {
        add_leaf(w, n, path, last);
        return;
    }
    bool left = proa_forest_goes_left(w->forest, n, w->row[n->feature]);
    int32_t hot = left ? n->left : n->right, cold = left ? n->right : n->left, at = 1;
    double zero_before = 1, one_before = 1;
    while (at <= last && path[at].feature != n->feature) at++;
    if (at <= last) { /* this feature was split on before: both splits become one part */
        zero_before = path[at].zero;
        one_before = path[at].one;
        unwind_path(path, last, at);
        last--;
    }
    visit_node(w, hot, path, last + 1, zero_before * share_of(w, hot, node), one_before, n->feature);
    visit_node(w, cold, path, last + 1, zero_before * share_of(w, cold, node), 0, n->feature);
}

/* ---- means ---- */

/* Children come after their parents: going backwards, each node gets the mean of all below it. */
static void add_means(const proa_forest *f, const proa_forest_tree *t, double *own, double *mean)
{
    const proa_forest_node *nodes = f->nodes + t->first;
    walk w = {.forest = f, .tree = t};
    for (int32_t k = 0; k < f->leaf_size; k++) {
        for (int32_t i = t->nodes - 1; i >= 0; i--) {
            const proa_forest_node *n = &nodes[i];
            if (n->feature < 0) own[i] = leaf_values(f, n)[k];
            else own[i] = share_of(&w, n->left, i) * own[n->left] + share_of(&w, n->right, i) * own[n->right];
        }
        mean[t->output + k * t->stride] += own[0];
    }
}

static void find_means(proa_shap *s)
{
    const proa_forest *f = s->forest;
    int32_t most = 1;
    for (int64_t i = 0; i < f->tree_count; i++) most = f->trees[i].nodes > most ? f->trees[i].nodes : most;
    double *own = proa_calloc((size_t)most, sizeof *own);
    for (int64_t i = 0; i < f->tree_count; i++) add_means(f, &f->trees[i], own, s->mean);
    for (int32_t i = 0; i < f->outputs; i++) s->mean[i] = s->mean[i] / f->divisor[i] + f->base[i];
    free(own);
}

/* ---- the whole ---- */

proa_status proa_shap_new(proa_shap **out, const proa_forest *forest, proa_err *err)
{
    int32_t depth = 0;
    for (int64_t i = 0; i < forest->tree_count; i++)
        depth = forest->trees[i].depth > depth ? forest->trees[i].depth : depth;
    if (forest->linear_leaf_count)
        return PROA_FAIL(err, UNSUPPORTED,
                         "SHAP values of linear trees are not defined: leaves are no constants");
    if (!forest->cover) return PROA_FAIL(err, UNSUPPORTED, "Model does not have node statistics.");
    if (depth >= PROA_SHAP_DEPTH_MAX)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "Tree depths above 32 not supported. Shap cannot be considered accurate at this depth.");
    proa_shap *s = proa_calloc(1, sizeof *s);
    s->forest = forest;
    s->depth = depth;
    s->mean = proa_calloc((size_t)forest->outputs, sizeof *s->mean);
    find_means(s);
    *out = s;
    return PROA_OK;
}

void proa_shap_free(proa_shap *s)
{
    if (!s) return;
    free(s->mean);
    free(s);
}

typedef struct job {
    const proa_shap *shap;
    const float *in;
    float *out;
} job;

static void explain_row(const proa_shap *s, const float *row, double *phi, part *paths, float *out)
{
    const proa_forest *f = s->forest;
    const int64_t width = (int64_t)f->features + 1;
    memset(phi, 0, (size_t)(f->outputs * width) * sizeof *phi);
    for (int64_t i = 0; i < f->tree_count; i++) {
        walk w = {f, &f->trees[i], row, phi};
        visit_node(&w, 0, paths, 0, 1, 1, -1);
    }
    for (int64_t k = 0; k < f->outputs; k++) {
        for (int64_t i = 0; i < f->features; i++)
            out[k * width + i] = (float)(phi[k * width + i] / f->divisor[k]);
        out[k * width + f->features] = (float)s->mean[k];
    }
}

static void explain_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const proa_forest *f = j->shap->forest;
    const int64_t width = f->outputs * ((int64_t)f->features + 1), levels = j->shap->depth + 2;
    double *phi = proa_calloc((size_t)width, sizeof *phi);
    part *paths = proa_calloc((size_t)(levels * (levels + 1) / 2),
                              sizeof *paths); /* one for each level, each longer by 1 */
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++)
        explain_row(j->shap, j->in + i * f->features, phi, paths, j->out + i * width);
    free(paths);
    free(phi);
}

void proa_shap_values(const proa_shap *s, const float *in, int64_t rows, float *out, proa_pool *pool)
{
    job j = {s, in, out};
    if (pool && rows > 1) proa_pool_run(pool, rows, 1, explain_rows, &j);
    else explain_rows(&j, 0, rows, 0);
}
