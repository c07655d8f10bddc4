/* SPDX-License-Identifier: Apache-2.0
 * plain.c - the reference: one row, one tree, one comparison after the other, in the order of each family's library.
 * The orders come from reading XGBoost 3.2 (cpu_predictor, math.h), LightGBM 4.6 (tree.h, gbdt_prediction.cpp) and
 *   treelite 4.8 (gtil/predict.cc, postprocessor.cc) and are held by tests/golden/forest. */
#include "forest/forest.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "base/limits.h"

/* ---- one split ---- */

/* The largest float at or below t, below it if `strict`; NaN if there is none. t is not NaN. */
static float float_below(double t, bool strict)
{
    if (t > (double)FLT_MAX) return strict || !isinf(t) ? FLT_MAX : INFINITY;
    if (t < -(double)FLT_MAX) return isinf(t) && strict ? NAN : -INFINITY;
    float f = (float)t;
    return (double)f > t || (strict && (double)f == t) ? nextafterf(f, -INFINITY) : f;
}

float proa_forest_cut(proa_forest_op op, double threshold, bool *swapped)
{
    *swapped = op == PROA_FOREST_GT || op == PROA_FOREST_GE;
    if (isnan(threshold)) return *swapped ? INFINITY : NAN; /* never true: always right */
    return float_below(threshold, op == PROA_FOREST_LT || op == PROA_FOREST_GE);
}

static bool compare_feature(proa_forest_op op, double x, double threshold)
{
    switch (op) {
    case PROA_FOREST_LT: return x < threshold;
    case PROA_FOREST_LE: return x <= threshold;
    case PROA_FOREST_GT: return x > threshold;
    case PROA_FOREST_GE: return x >= threshold;
    default: return x == threshold;
    }
}

static bool is_member(const proa_forest *f, const proa_forest_set *set, float x)
{
    if (x < 0.0f && !(f->truncate_negative && x > -1.0f)) return false;
    if (x >= (float)PROA_FOREST_CATEGORIES_MAX) return false;
    int32_t category = (int32_t)x;
    return category / 32 < set->words && (f->words[set->first + category / 32] >> (category % 32) & 1);
}

bool proa_forest_goes_left(const proa_forest *f, const proa_forest_node *n, float x)
{
    bool missing = isnan(x) || ((n->flags & PROA_FOREST_ZERO_MISSING) && fabs((double)x) <= PROA_FOREST_ZERO);
    if (missing) return n->flags & PROA_FOREST_DEFAULT_LEFT;
    if (n->flags & PROA_FOREST_CATEGORICAL)
        return is_member(f, &f->sets[n->aux], x) == !!(n->flags & PROA_FOREST_MEMBER_LEFT);
    return compare_feature((proa_forest_op)n->op, (double)x, n->value);
}

int32_t proa_forest_leaf(const proa_forest *f, const proa_forest_tree *tree, const float *row)
{
    const proa_forest_node *nodes = f->nodes + tree->first;
    int32_t at = 0;
    while (nodes[at].feature >= 0)
        at = proa_forest_goes_left(f, &nodes[at], row[nodes[at].feature]) ? nodes[at].left : nodes[at].right;
    return at;
}

/* ---- sums ---- */

static const double *leaf_values(const proa_forest *f, const proa_forest_tree *t, const float *row)
{
    const proa_forest_node *leaf = &f->nodes[t->first + proa_forest_leaf(f, t, row)];
    return f->leaf_size == 1 ? &leaf->value : &f->vectors[(int64_t)leaf->aux * f->leaf_size];
}

static void sum_f32(const proa_forest *f, const float *row, float *sums)
{
    bool base_first = f->family == PROA_FOREST_OF_XGBOOST;
    for (int32_t i = 0; i < f->outputs; i++) sums[i] = base_first ? (float)f->base[i] : 0.0f;
    for (int64_t i = 0; i < f->tree_count; i++) {
        const proa_forest_tree *t = &f->trees[i];
        const double *values = leaf_values(f, t, row);
        for (int32_t k = 0; k < f->leaf_size; k++) sums[t->output + k * t->stride] += (float)values[k];
    }
    if (base_first) return;
    for (int32_t i = 0; i < f->outputs; i++) {
        sums[i] /= (float)f->divisor[i];
        sums[i] = (float)((double)sums[i] + f->base[i]);
    }
}

double proa_forest_linear_leaf_value(const proa_forest *f, int32_t aux, double value, const float *row)
{
    if (aux < 0) return value;
    const proa_forest_linear_leaf *line = &f->linear_leaves[aux];
    double sum = line->constant;
    for (int64_t i = line->first; i < line->first + line->terms; i++) {
        double x = (double)row[f->terms[i]];
        if (isnan(x)) return value;
        sum += f->slopes[i] * (fabs(x) <= PROA_FOREST_ZERO ? 0.0 : x);
    }
    return sum;
}

static void sum_lines(const proa_forest *f, const float *row, double *sums)
{
    for (int64_t i = 0; i < f->tree_count; i++) {
        const proa_forest_tree *t = &f->trees[i];
        const proa_forest_node *leaf = &f->nodes[t->first + proa_forest_leaf(f, t, row)];
        sums[t->output] += proa_forest_linear_leaf_value(f, leaf->aux, leaf->value, row);
    }
}

static void sum_f64(const proa_forest *f, const float *row, double *sums)
{
    bool base_first = f->family == PROA_FOREST_OF_XGBOOST;
    for (int32_t i = 0; i < f->outputs; i++) sums[i] = base_first ? f->base[i] : 0.0;
    if (f->linear_leaf_count) sum_lines(f, row, sums);
    for (int64_t i = 0; !f->linear_leaf_count && i < f->tree_count; i++) {
        const proa_forest_tree *t = &f->trees[i];
        const double *values = leaf_values(f, t, row);
        for (int32_t k = 0; k < f->leaf_size; k++) sums[t->output + k * t->stride] += values[k];
    }
    if (base_first) return;
    for (int32_t i = 0; i < f->outputs; i++) sums[i] = sums[i] / f->divisor[i] + f->base[i];
}

/* ---- transforms ---- */

static float sigmoid_f32(const proa_forest *f, float x)
{
    float e = -(float)f->alpha * x;
    if (f->family == PROA_FOREST_OF_XGBOOST && e > 88.7f)
        e = 88.7f; /* XGBoost's guard: the score is never 0 */
    return 1.0f / (1.0f + expf(e));
}

static float one_f32(const proa_forest *f, float x)
{
    switch (f->transform) {
    case PROA_FOREST_SIGNED_SQUARE: return copysignf(x * x, x);
    case PROA_FOREST_HINGE: return x > 0.0f ? 1.0f : 0.0f;
    case PROA_FOREST_SIGMOID:
    case PROA_FOREST_OVA: return sigmoid_f32(f, x);
    case PROA_FOREST_EXPONENTIAL: return expf(x);
    case PROA_FOREST_EXP2_RATIO: return exp2f(-x / (float)f->ratio);
    case PROA_FOREST_LOG1P_EXP: return log1pf(expf(x));
    default: return x;
    }
}

static double one_f64(const proa_forest *f, double x)
{
    switch (f->transform) {
    case PROA_FOREST_SIGNED_SQUARE: return copysign(x * x, x);
    case PROA_FOREST_HINGE: return x > 0.0 ? 1.0 : 0.0;
    case PROA_FOREST_SIGMOID:
    case PROA_FOREST_OVA: return 1.0 / (1.0 + exp(-f->alpha * x));
    case PROA_FOREST_EXPONENTIAL: return exp(x);
    case PROA_FOREST_EXP2_RATIO: return exp2(-x / f->ratio);
    case PROA_FOREST_LOG1P_EXP: return log1p(exp(x));
    default: return x;
    }
}

static void softmax_f32(float *x, int32_t count)
{
    float top = x[0];
    double sum = 0;
    for (int32_t i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    for (int32_t i = 0; i < count; i++) {
        x[i] = expf(x[i] - top);
        sum += (double)x[i];
    }
    for (int32_t i = 0; i < count; i++) x[i] /= (float)sum;
}

/* treelite's softmax uses floats for intermediate values, LightGBM's does not: the last bits depend on it.
 * */
static void softmax_f64(const proa_forest *f, double *x, int32_t count)
{
    bool floats = f->family == PROA_FOREST_OF_TREELITE;
    double top = x[0], sum = 0;
    for (int32_t i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    if (floats) top = (double)(float)top;
    for (int32_t i = 0; i < count; i++) {
        x[i] = exp(x[i] - top);
        if (floats) x[i] = (double)(float)x[i];
        sum += x[i];
    }
    for (int32_t i = 0; i < count; i++) x[i] /= floats ? (double)(float)sum : sum;
}

void proa_forest_transform_f32(const proa_forest *f, float *sums)
{
    if (f->transform == PROA_FOREST_IDENTITY) return;
    for (int32_t t = 0; t < f->targets; t++, sums += f->classes) {
        int32_t count = f->target_classes[t];
        if (f->transform == PROA_FOREST_SOFTMAX) softmax_f32(sums, count);
        else
            for (int32_t i = 0; i < count; i++) sums[i] = one_f32(f, sums[i]);
    }
}

void proa_forest_transform_f64(const proa_forest *f, double *sums)
{
    if (f->transform == PROA_FOREST_IDENTITY) return;
    for (int32_t t = 0; t < f->targets; t++, sums += f->classes) {
        int32_t count = f->target_classes[t];
        if (f->transform == PROA_FOREST_SOFTMAX) softmax_f64(f, sums, count);
        else
            for (int32_t i = 0; i < count; i++) sums[i] = one_f64(f, sums[i]);
    }
}

/* ---- rows ---- */

static void predict_f64(const proa_forest *f, const float *row, bool raw, double *sums, float *out)
{
    sum_f64(f, row, sums);
    if (!raw) proa_forest_transform_f64(f, sums);
    for (int32_t i = 0; i < f->outputs; i++) out[i] = (float)sums[i];
}

void proa_forest_predict_plain(const proa_forest *f, const float *in, int64_t rows, bool raw, float *out)
{
    double *sums = f->f64 ? proa_malloc(sizeof(double) * (size_t)f->outputs) : NULL;
    for (int64_t i = 0; i < rows; i++, in += f->features, out += f->outputs) {
        if (sums) {
            predict_f64(f, in, raw, sums, out);
            continue;
        }
        sum_f32(f, in, out);
        if (!raw) proa_forest_transform_f32(f, out);
    }
    free(sums);
}
