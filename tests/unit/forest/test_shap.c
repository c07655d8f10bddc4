/* SPDX-License-Identifier: Apache-2.0
 * test_shap.c - SHAP values are what their definition says, summed over all sets of features, add up to the margin, and
 * are the libraries' own. */
#include "forest/shap.h"

#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "grow.h"

/* ---- the definition: what a tree says when only the features in `known` are known ---- */

typedef struct truth {
    const proa_forest *f;
    const proa_forest_tree *t;
    const float *row;
    int32_t k;
} truth;

static double expected(const truth *w, int32_t node, uint32_t known)
{
    const proa_forest_node *n = &w->f->nodes[w->t->first + node];
    const double *cover = w->f->cover + w->t->first;
    if (n->feature < 0)
        return w->f->leaf_size == 1 ? n->value : w->f->vectors[n->aux * w->f->leaf_size + w->k];
    if (known >> n->feature & 1)
        return expected(w, proa_forest_goes_left(w->f, n, w->row[n->feature]) ? n->left : n->right, known);
    return (cover[n->left] * expected(w, n->left, known) + cover[n->right] * expected(w, n->right, known)) /
           cover[node];
}

static double factorial(int32_t n)
{
    return n < 2 ? 1.0 : n * factorial(n - 1);
}

/* Of one feature in one tree, for value k of its leaves. */
static double by_definition(const truth *w, int32_t feature)
{
    const int32_t all = w->f->features;
    double sum = 0;
    for (uint32_t set = 0; set < 1u << all; set++) {
        if (set >> feature & 1) continue;
        int32_t members = __builtin_popcount(set);
        double weight = factorial(members) * factorial(all - members - 1) / factorial(all);
        sum += weight * (expected(w, 0, set | 1u << feature) - expected(w, 0, set));
    }
    return sum;
}

static double forest_by_definition(const proa_forest *f, const float *row, int32_t output, int32_t feature)
{
    double sum = 0;
    for (int64_t i = 0; i < f->tree_count; i++)
        for (int32_t k = 0; k < f->leaf_size; k++) {
            truth w = {f, &f->trees[i], row, k};
            if (w.t->output + k * w.t->stride != output) continue;
            sum += feature < f->features ? by_definition(&w, feature) : expected(&w, 0, 0);
        }
    sum /= f->divisor[output];
    return feature < f->features ? sum : sum + f->base[output];
}

static void try_forest(const grow *g, int64_t rows)
{
    proa_forest *f = grow_forest(g);
    proa_shap *s = NULL;
    proa_err err = {.status = PROA_OK};
    const int32_t width = f->features + 1;
    float *x = grow_rows(g, rows), *margin = proa_malloc((size_t)(rows * f->outputs) * sizeof *margin);
    float *got = proa_malloc((size_t)(rows * f->outputs * width) * sizeof *got);
    assert_int_equal(proa_forest_check(f, &err), PROA_OK);
    assert_int_equal(proa_shap_new(&s, f, &err), PROA_OK);
    proa_pool *pool = proa_pool_new(2);
    proa_shap_values(s, x, rows, got, rows > 2 ? pool : NULL);
    proa_forest_predict_plain(f, x, rows, true, margin);
    for (int64_t i = 0; i < rows * f->outputs; i++) {
        double sum = 0;
        for (int32_t k = 0; k < width; k++) {
            double want = forest_by_definition(f, x + i / f->outputs * f->features, (int32_t)(i % f->outputs), k);
            if (fabs((double)got[i * width + k] - want) > 1e-5)
                fail_msg("seed %d, row %d, value %d: %.9g, not %.9g", (int)g->seed, (int)i, k,
                         (double)got[i * width + k], want);
            sum += (double)got[i * width + k];
        }
        if (fabs(sum - (double)margin[i]) > 1e-4)
            fail_msg("seed %d: %.9g, not %.9g", (int)g->seed, sum, (double)margin[i]);
    }
    proa_pool_free(pool);
    proa_shap_free(s);
    proa_forest_free(f);
    free(x);
    free(margin);
    free(got);
}

/* Few features and deep trees: most are asked several times on a way. */
static void test_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        try_forest(&(grow){.family = PROA_FOREST_OF_XGBOOST,
                           .features = 1 + (int32_t)seed,
                           .targets = 1,
                           .classes = 1,
                           .leaf_size = 1,
                           .trees = 4,
                           .depth = 6,
                           .stop_percent = 15,
                           .seed = seed},
                   6);
}

static void test_kinds(void **state)
{
    (void)state;
    try_forest(&(grow){.family = PROA_FOREST_OF_LIGHTGBM,
                       .features = 5,
                       .targets = 1,
                       .classes = 3,
                       .leaf_size = 1,
                       .trees = 7,
                       .depth = 4,
                       .stop_percent = 10,
                       .f64 = true,
                       .zeros = true,
                       .categories = true,
                       .seed = 7},
               5);
    try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                       .features = 4,
                       .targets = 1,
                       .classes = 3,
                       .leaf_size = 3,
                       .trees = 5,
                       .depth = 4,
                       .ops = true,
                       .divide = true,
                       .seed = 8},
               5);
    try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                       .features = 2,
                       .targets = 1,
                       .classes = 1,
                       .leaf_size = 1,
                       .trees = 3,
                       .depth = 0,
                       .seed = 9},
               2);
}

static void test_refused(void **state)
{
    (void)state;
    grow g = {.family = PROA_FOREST_OF_XGBOOST,
              .features = 4,
              .targets = 1,
              .classes = 1,
              .leaf_size = 1,
              .trees = 2,
              .depth = 3,
              .seed = 10};
    proa_err err = {.status = PROA_OK};
    proa_shap *s = NULL;
    proa_forest *f = grow_forest(&g);
    f->trees[1].depth = PROA_SHAP_DEPTH_MAX;
    assert_int_equal(proa_shap_new(&s, f, &err), PROA_UNSUPPORTED);
    assert_string_equal(
        err.text, "Tree depths above 32 not supported. Shap cannot be considered accurate at this depth.");
    proa_err_clear(&err);
    free(f->cover);
    f->cover = NULL;
    assert_int_equal(proa_shap_new(&s, f, &err), PROA_UNSUPPORTED);
    assert_string_equal(err.text, "Model does not have node statistics.");
    proa_err_clear(&err);
    f->linear_leaf_count = 1;
    assert_int_equal(proa_shap_new(&s, f, &err), PROA_UNSUPPORTED);
    assert_string_equal(err.text, "SHAP values of linear trees are not defined: leaves are no constants");
    assert_null(s);
    proa_forest_free(f);
}

/* ---- the libraries ---- */

static float *read_floats(const char *name, const char *ending, int64_t *count)
{
    char path[512];
    proa_buf buf;
    proa_err err = {.status = PROA_OK};
    int stem = (int)(strrchr(name, '.') - name);
    snprintf(path, sizeof path, "%s/tests/golden/forest/%.*s%s", PROA_SOURCE_DIR, stem, name, ending);
    if (proa_file_read(&buf, path, 1 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    *count = (int64_t)(buf.len / sizeof(float));
    return (float *)(void *)buf.ptr;
}

/* tools/golden_shap.py; XGBoost's are sums of floats. */
static void try_library(const char *name)
{
    char path[512];
    int64_t elements, wanted;
    proa_forest *f = NULL;
    proa_shap *s = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, "%s/tests/golden/forest/%s", PROA_SOURCE_DIR, name);
    if (proa_forest_open(&f, path, PROA_FOREST_AUTO, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_shap_new(&s, f, &err) != PROA_OK) fail_msg("%s: %s", name, err.text);
    float *x = read_floats("inputs.", ".f32", &elements), *want = read_floats(name, ".shap", &wanted);
    int64_t rows = elements / f->features, count = rows * f->outputs * (f->features + 1);
    float *got = proa_malloc((size_t)count * sizeof *got);
    assert_int_equal(wanted, count);
    proa_shap_values(s, x, rows, got, NULL);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 2e-5 * fmax(1.0, fabs((double)want[i]))))
            fail_msg("%s: value %d is %.9g, must be %.9g", name, (int)i, (double)got[i], (double)want[i]);
    proa_shap_free(s);
    proa_forest_free(f);
    free(x);
    free(want);
    free(got);
}

static void test_libraries(void **state)
{
    static const char *const names[] = {
        "xgb-binary-logistic.json",
        "xgb-multi-softprob.json",
        "xgb-reg-squarederror.json",
        "xgb-dart.json",
        "xgb-categories.json",
        "xgb-base.json",
        "xgb-pruned.json",
        "lgb-binary.txt",
        "lgb-multiclass.txt",
        "lgb-regression.txt",
        "lgb-zero.txt",
        "lgb-no-missing.txt",
        "lgb-dart.txt",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) try_library(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
