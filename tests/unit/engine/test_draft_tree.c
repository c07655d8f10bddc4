/* SPDX-License-Identifier: Apache-2.0
 * test_draft_tree.c - trees of draft tokens: the likeliest nodes against all of them, how many pay, masks, and the path
 *                     that is accepted. */
#include "engine_test.h"

#include "engine/decode/draft.h"
#include "engine/decode/draft_tree.h"

/* The n-th likeliest of all paths over the ranks of all heads. */
static float nth_likeliest(const proa_tree_rates *r, int n)
{
    enum { ALL = 10 + 100 + 1000 };
    static float all[ALL];
    int count = 0;
    for (int a = 0; a < PROA_TREE_RANKS; a++) {
        all[count++] = r->rate[0][a];
        for (int b = 0; b < PROA_TREE_RANKS && r->heads > 1; b++) {
            all[count++] = r->rate[0][a] * r->rate[1][b];
            for (int c = 0; c < PROA_TREE_RANKS && r->heads > 2; c++)
                all[count++] = r->rate[0][a] * r->rate[1][b] * r->rate[2][c];
        }
    }
    for (int i = 0; i <= n; i++)
        for (int k = i + 1; k < count; k++)
            if (all[k] > all[i]) {
                float swap = all[i];
                all[i] = all[k], all[k] = swap;
            }
    return all[n];
}

static void the_likeliest_nodes_come_first(void **state)
{
    PROA_UNUSED(state);
    for (int32_t heads = 1; heads <= 3; heads++) {
        proa_tree_rates r;
        proa_tree_shape shape;
        proa_tree_rates_init(&r, heads);
        r.rate[0][1] = 0.31F, r.rate[heads - 1][0] = 0.42F;
        proa_tree_shape_make(&shape, &r);
        assert_int_equal(shape.count, heads == 1 ? PROA_TREE_RANKS : PROA_TREE_MAX);
        for (int32_t j = 0; j < shape.count; j++) {
            const proa_tree_node *n = &shape.node[j];
            assert_true(n->parent < j && n->head == (n->parent < 0 ? 0 : shape.node[n->parent].head + 1));
            if (heads > 1 && j > 40) continue; /* equal products in another order of rounding */
            assert_true(fabsf(shape.likely[j] - nth_likeliest(&r, j)) < 1e-6F);
        }
    }
}

static void measured_shares_count(void **state)
{
    PROA_UNUSED(state);
    proa_tree_rates r;
    proa_tree_shape shape;
    const int32_t top[PROA_TREE_RANKS] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    proa_tree_rates_init(&r, 2);
    for (int i = 0; i < 1000; i++) proa_tree_rates_add(&r, 0, top, 6), proa_tree_rates_add(&r, 1, top, 99);
    assert_true(r.rate[0][1] > 0.99F && r.rate[0][0] < 0.01F && r.rate[1][0] < 0.01F);
    proa_tree_shape_make(&shape, &r);
    assert_true(shape.likely[0] < 0.01F); /* a lower rank is not taken to be likelier */
}

static void a_tree_is_as_large_as_pays(void **state)
{
    PROA_UNUSED(state);
    proa_tree_rates r;
    proa_tree_shape shape;
    proa_draft_times flat = PROA_DRAFT_TIMES, steep = PROA_DRAFT_TIMES;
    const proa_draft_state s = PROA_DRAFT_STATE;
    proa_tree_rates_init(&r, 3);
    proa_tree_shape_make(&shape, &r);
    for (int n = 1; n <= 64; n++) proa_draft_time(&flat, n, 1000), proa_draft_time(&steep, n, 1000.0 * n);
    proa_draft_offer o = {.state = &s, .chances = shape.likely, .limit = 7};
    assert_true(proa_draft_plan(&o, 1, &flat, 1, 0));
    assert_int_equal(o.size, 7);
    o.limit = PROA_TREE_MAX;
    assert_true(proa_draft_plan(&o, 1, &flat, 1, 0));
    assert_true(o.size > 7); /* more than a chain may have at first */
    o.first_ns = 5000;       /* the heads cost more than they gain */
    assert_false(proa_draft_plan(&o, 1, &flat, 1, 0));
    o.first_ns = 0;
    assert_false(proa_draft_plan(&o, 1, &steep, 1, 0));
    assert_int_equal(o.size, 0);
}

/* Tokens 10, 11, ... of head 0, 20, 21, ... of head 1, and so on. */
static void fill_top(proa_draft_tree *tree)
{
    for (int32_t d = 0; d < 3; d++)
        for (int32_t i = 0; i < PROA_TREE_RANKS; i++) tree->top[d][i] = 10 * (d + 1) + i;
}

static void a_path_is_accepted(void **state)
{
    PROA_UNUSED(state);
    static proa_draft_tree tree;
    const proa_tree_shape shape = {
        .count = 6, .node = {{-1, 0, 0}, {-1, 0, 1}, {0, 1, 0}, {1, 1, 0}, {1, 1, 1}, {4, 2, 0}}};
    const uint64_t seen[] = {1, 2, 4 | 1, 8 | 2, 16 | 2, 32 | 16 | 2};
    const int32_t depth[] = {1, 1, 2, 2, 2, 3}, path[] = {1, 4, 5};
    fill_top(&tree);
    proa_draft_tree_fill(&tree, &shape, 6, 100);
    assert_memory_equal(tree.seen, seen, sizeof seen);
    assert_memory_equal(tree.depth, depth, sizeof depth);
    assert_true(proa_draft_tree_next(&tree, 11));
    assert_int_equal(tree.tip, 2);
    assert_true(proa_draft_tree_next(&tree, 21));
    assert_true(proa_draft_tree_next(&tree, 30));
    assert_int_equal(tree.tip, 6);
    assert_false(proa_draft_tree_next(&tree, 30));
    assert_int_equal(tree.accepted, 3);
    assert_memory_equal(tree.path, path, sizeof path);
    proa_draft_tree_fill(&tree, &shape, 6, 100);
    assert_false(proa_draft_tree_next(&tree, 12)); /* guessed by no node */
    assert_true(proa_draft_tree_next(&tree, 10));
    assert_false(proa_draft_tree_next(&tree, 21)); /* by a node below another one */
    assert_int_equal(tree.accepted, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_nodes_come_first), cmocka_unit_test(measured_shares_count),
        cmocka_unit_test(a_tree_is_as_large_as_pays), cmocka_unit_test(a_path_is_accepted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
