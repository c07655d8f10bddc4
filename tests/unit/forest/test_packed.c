/* SPDX-License-Identifier: Apache-2.0
 * test_packed.c - the packed forest says to the last bit what the reference says: all kinds of forests, on
 * all levels of this CPU, for row counts around every block, with threads and without. */
#include "forest/packed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "grow.h"

#define ROWS_MOST 1100 /* more than one stretch of blocks */

/* What the reference says of the first ROWS_MOST rows: with the transform and without. */
typedef struct truth {
    const grow *g;
    const proa_forest *f;
    float *x, *want[2];
} truth;

static truth open_truth(const grow *g, const proa_forest *f, int64_t rows)
{
    truth t = {.g = g, .f = f, .x = grow_rows(g, rows)};
    for (int raw = 0; raw < 2; raw++) {
        t.want[raw] = proa_malloc((size_t)(rows * f->outputs) * sizeof(float));
        proa_forest_predict_plain(f, t.x, rows, raw, t.want[raw]);
    }
    return t;
}

static void close_truth(truth *t)
{
    free(t->x);
    free(t->want[0]);
    free(t->want[1]);
}

static void compare(const truth *t, const proa_packed *p, int64_t rows, proa_pool *pool)
{
    size_t bytes = (size_t)(rows * t->f->outputs) * sizeof(float);
    float *got = proa_malloc(bytes + 8);
    for (int raw = 0; raw < 2; raw++) {
        const float *want = t->want[raw];
        memset(got, 0x55, bytes + 8);
        proa_packed_predict(p, t->x, rows, raw, got, pool);
        for (int64_t i = 0; i < rows * t->f->outputs; i++)
            if (memcmp(&want[i], &got[i], sizeof *want) != 0 && !(isnan(want[i]) && isnan(got[i])))
                fail_msg("seed %d, %lld rows, element %lld: %.9g, not %.9g", (int)t->g->seed, (long long)rows,
                         (long long)i, (double)got[i], (double)want[i]);
        assert_int_equal(((unsigned char *)got)[bytes], 0x55); /* nothing is written behind the end */
    }
    free(got);
}

static void try_forest(const grow *g)
{
    static const int64_t counts[] = {0, 1, 2, 5, 6, 7, 15, 16, 17, 33, 63, 64, 65, 130};
    proa_forest *f = grow_forest(g);
    proa_packed *p = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_forest_check(f, &err) != PROA_OK) fail_msg("seed %d: %s", (int)g->seed, err.text);
    assert_int_equal(proa_packed_new(&p, f, &err), PROA_OK);
    truth t = open_truth(g, f, ROWS_MOST);
    proa_pool *pool = proa_pool_new(3);
    for (int level = 0; level <= (int)proa_isa_detect() && level <= PROA_ISA_AVX512; level++) {
        proa_packed_use(p, (proa_isa)level);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) compare(&t, p, counts[i], NULL);
        compare(&t, p, ROWS_MOST, level % 2 ? NULL : pool);
    }
    proa_pool_free(pool);
    close_truth(&t);
    proa_packed_free(p);
    proa_forest_free(f);
}

static void test_regression(void **state)
{
    (void)state;
    for (int32_t depth = 0; depth <= 9; depth++)
        try_forest(&(grow){.family = PROA_FOREST_OF_XGBOOST,
                           .features = 1 + 3 * depth,
                           .targets = 1,
                           .classes = 1,
                           .leaf_size = 1,
                           .trees = 1 + 17 * depth,
                           .depth = depth,
                           .stop_percent = depth > 6 ? 10 : 0,
                           .seed = 100 + (uint64_t)depth});
}

/* More than one row is walked through at once. */
static void test_many_trees(void **state)
{
    (void)state;
    try_forest(&(grow){.family = PROA_FOREST_OF_XGBOOST,
                       .features = 6,
                       .targets = 1,
                       .classes = 3,
                       .leaf_size = 1,
                       .trees = 700,
                       .depth = 3,
                       .stop_percent = 20,
                       .seed = 6});
}

static void test_deep_and_thin(void **state)
{
    (void)state;
    try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                       .features = 200,
                       .targets = 1,
                       .classes = 1,
                       .leaf_size = 1,
                       .trees = 20,
                       .depth = 12,
                       .stop_percent = 40,
                       .ops = true,
                       .divide = true,
                       .seed = 7});
}

static void test_classes(void **state)
{
    (void)state;
    try_forest(&(grow){.family = PROA_FOREST_OF_XGBOOST,
                       .transform = PROA_FOREST_SOFTMAX,
                       .features = 12,
                       .targets = 1,
                       .classes = 5,
                       .leaf_size = 1,
                       .trees = 65,
                       .depth = 4,
                       .stop_percent = 10,
                       .seed = 8});
    try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                       .transform = PROA_FOREST_SIGMOID,
                       .features = 12,
                       .targets = 3,
                       .classes = 4,
                       .leaf_size = 12,
                       .trees = 30,
                       .depth = 5,
                       .stop_percent = 10,
                       .divide = true,
                       .seed = 9});
}

static void test_linear_leaves(void **state)
{
    (void)state;
    grow g = {.family = PROA_FOREST_OF_LIGHTGBM,
              .features = 7,
              .targets = 1,
              .classes = 1,
              .leaf_size = 1,
              .trees = 40,
              .depth = 5,
              .stop_percent = 10,
              .f64 = true,
              .linear_leaves = true,
              .seed = 31};
    try_forest(&g);
    g.categories = g.zeros = g.divide = true; /* mixed ways and slow ones */
    g.classes = 3;
    g.trees = 61;
    g.transform = PROA_FOREST_SOFTMAX;
    g.seed = 32;
    try_forest(&g);
}

static void test_doubles(void **state)
{
    (void)state;
    try_forest(&(grow){.family = PROA_FOREST_OF_LIGHTGBM,
                       .transform = PROA_FOREST_SIGMOID,
                       .features = 9,
                       .targets = 1,
                       .classes = 1,
                       .leaf_size = 1,
                       .trees = 90,
                       .depth = 7,
                       .stop_percent = 20,
                       .f64 = true,
                       .zeros = true,
                       .seed = 10});
    try_forest(&(grow){.family = PROA_FOREST_OF_LIGHTGBM,
                       .transform = PROA_FOREST_SOFTMAX,
                       .features = 9,
                       .targets = 1,
                       .classes = 7,
                       .leaf_size = 1,
                       .trees = 63,
                       .depth = 6,
                       .stop_percent = 20,
                       .f64 = true,
                       .seed = 11});
    try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                       .features = 9,
                       .targets = 1,
                       .classes = 3,
                       .leaf_size = 3,
                       .trees = 40,
                       .depth = 6,
                       .stop_percent = 20,
                       .f64 = true,
                       .divide = true,
                       .seed = 12});
}

static void test_categories(void **state)
{
    (void)state;
    for (uint64_t seed = 20; seed < 26; seed++)
        try_forest(&(grow){.family = seed % 2 ? PROA_FOREST_OF_LIGHTGBM : PROA_FOREST_OF_XGBOOST,
                           .features = 5,
                           .targets = 1,
                           .classes = 1,
                           .leaf_size = 1,
                           .trees = 20,
                           .depth = seed < 22 ? 2 : 7,
                           .stop_percent = 20,
                           .f64 = seed % 2,
                           .categories = true,
                           .seed = seed});
}

/* All comparisons against all edges, in trees of one split. */
static void test_questions(void **state)
{
    (void)state;
    for (uint64_t seed = 30; seed < 42; seed++)
        try_forest(&(grow){.family = PROA_FOREST_OF_TREELITE,
                           .features = 2,
                           .targets = 1,
                           .classes = 1,
                           .leaf_size = 1,
                           .trees = 40,
                           .depth = 1,
                           .f64 = seed % 2,
                           .ops = true,
                           .zeros = seed % 3 == 0,
                           .seed = seed});
}

/* So many features that a tree has too few bits left for its children: it is walked as the reference does. */
static void test_many_features(void **state)
{
    (void)state;
    grow g = {.family = PROA_FOREST_OF_XGBOOST,
              .features = 1 << 22,
              .targets = 1,
              .classes = 1,
              .leaf_size = 1,
              .trees = 2,
              .depth = 9,
              .seed = 61};
    proa_forest *f = grow_forest(&g);
    proa_packed *p = NULL;
    proa_err err = {.status = PROA_OK};
    truth t = open_truth(&g, f, 2);
    assert_int_equal(proa_packed_new(&p, f, &err), PROA_OK);
    assert_int_equal(proa_packed_slow_trees(p), 2);
    compare(&t, p, 2, NULL);
    close_truth(&t);
    proa_packed_free(p);
    proa_forest_free(f);
}

static void test_which_are_slow(void **state)
{
    (void)state;
    grow g = {.family = PROA_FOREST_OF_LIGHTGBM,
              .features = 4,
              .targets = 1,
              .classes = 1,
              .leaf_size = 1,
              .trees = 10,
              .depth = 3,
              .f64 = true,
              .seed = 62};
    proa_err err = {.status = PROA_OK};
    for (int odd = 0; odd < 3; odd++) {
        proa_packed *p = NULL;
        g.categories = odd == 1;
        g.ops = odd == 2; /* among them x == threshold */
        proa_forest *f = grow_forest(&g);
        assert_int_equal(proa_packed_new(&p, f, &err), PROA_OK);
        assert_true(odd == 2 ? proa_packed_slow_trees(p) > 0 : proa_packed_slow_trees(p) == 0);
        assert_int_equal(proa_packed_steps(p), 30);
        proa_packed_free(p);
        proa_forest_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regression),    cmocka_unit_test(test_many_trees),
        cmocka_unit_test(test_deep_and_thin), cmocka_unit_test(test_classes),
        cmocka_unit_test(test_linear_leaves), cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_categories),    cmocka_unit_test(test_questions),
        cmocka_unit_test(test_many_features), cmocka_unit_test(test_which_are_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
