/* SPDX-License-Identifier: Apache-2.0
 * test_prefix_tree.c - the tree of cached prefixes against a naive model: sequences with few different tokens come,
 * grow, fork and end in a small pool; the contents of every matched page are what was written for those tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "kv/prefix_tree.h"

#include <stdlib.h>
#include <string.h>

enum { PAGES = 24, CAP = 8, TABLES = 5, TOKENS = CAP * PROA_PAGE_TOKENS };

static proa_device *host(void)
{
    static proa_device *d;
    if (!d && proa_device_open(&d, "cpu", NULL) != PROA_OK) abort();
    return d;
}

typedef struct fixture {
    proa_kv_pages pool;
    proa_prefix_tree tree;
    proa_host_cache below;
    proa_kv_namespace *space[3];
    int32_t page[TABLES][CAP];
    proa_page_table table[TABLES];
    proa_prefix_cursor cursor[TABLES];
    int32_t ids[TABLES][TOKENS];
    int64_t tokens[TABLES];
    int of_space[TABLES];
} fixture;

/* images: of the second level; 0: there is none. */
static void make_levels(fixture *f, int64_t pages, int64_t images)
{
    static const char *const names[] = {"", "salt a", "salt b"};
    memset(f, 0, sizeof *f);
    assert_int_equal(
        proa_kv_pages_init(&f->pool, host(), pages, proa_kv_one_shape(1, 1, 1, PROA_DTYPE_F32), NULL), PROA_OK);
    assert_int_equal(proa_host_cache_init(&f->below, &f->pool, images, NULL, NULL), PROA_OK);
    proa_prefix_tree_init(&f->tree, &f->pool, images ? &f->below : NULL);
    for (int i = 0; i < 3; i++) f->space[i] = proa_kv_namespace_new(names[i], strlen(names[i]), true);
    for (int i = 0; i < TABLES; i++) f->table[i] = (proa_page_table){.page = f->page[i], .cap = CAP};
}

static void make(fixture *f, int64_t pages)
{
    make_levels(f, pages, 0);
}

static void start(fixture *f, int t, int space)
{
    f->cursor[t] = (proa_prefix_cursor){PROA_PREFIX_SELF, 0};
    f->of_space[t] = space;
    f->tokens[t] = 0;
}

static void end(fixture *f, int t)
{
    proa_page_table_release(&f->pool, &f->table[t]);
    f->tokens[t] = 0;
}

static void break_up(fixture *f)
{
    for (int i = 0; i < TABLES; i++) end(f, i);
    assert_int_equal(f->pool.used, f->pool.idle);
    assert_int_equal(f->pool.used, f->tree.nodes);
    proa_prefix_tree_clear(&f->tree);
    assert_int_equal(f->pool.used, 0);
    assert_int_equal(f->tree.nodes, 0);
    assert_int_equal(f->pool.free, f->pool.count);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f->space[i]->refs, 1);
        proa_kv_namespace_release(f->space[i]);
    }
    proa_prefix_tree_release(&f->tree);
    proa_host_cache_release(&f->below);
    proa_kv_pages_release(&f->pool);
}

/* What the model "computes" for a token: a number that depends on everything before it and on the namespace. */
static float key_of(const int32_t *ids, int64_t at, int space)
{
    uint64_t hash = (uint64_t)space + 7;
    for (int64_t i = 0; i <= at; i++) hash = hash * 6364136223846793005u + (uint64_t)ids[i] + 1;
    return (float)(hash >> 40);
}

static float *key(const fixture *f, int t, int64_t token)
{
    float *keys = proa_kv_pages_layer(&f->pool, 0).k;
    return &keys[(int64_t)f->table[t].page[token / PROA_PAGE_TOKENS] * PROA_PAGE_TOKENS + token % PROA_PAGE_TOKENS];
}

static void check(const fixture *f, int t)
{
    for (int64_t i = 0; i < f->tokens[t]; i++)
        if (*key(f, t, i) != key_of(f->ids[t], i, f->of_space[t]))
            fail_msg("table %d has a wrong token %d", t, (int)i);
}

/* Counters agree with the references of the tables and the tree. */
static void check_counts(const fixture *f)
{
    int32_t refs[PAGES] = {0};
    int64_t idle = 0, used = 0, held = 0;
    for (int t = 0; t < TABLES; t++)
        for (int32_t i = 0; i < f->table[t].count; i++) refs[f->table[t].page[i]]++;
    for (int64_t i = 0; i < f->pool.count; i++) {
        idle += f->pool.held[i] && refs[i] == 0;
        held += f->pool.held[i];
        used += refs[i] > 0 || f->pool.held[i];
        assert_int_equal(f->pool.refs[i], refs[i] + f->pool.held[i]);
    }
    assert_int_equal(f->pool.idle, idle);
    assert_int_equal(f->pool.used, used);
    assert_int_equal(f->tree.nodes, held);
    assert_int_equal(f->pool.used + f->pool.free, f->pool.count);
    assert_true(idle == 0 || f->tree.leaves.count > 0);
}

/* Runs tokens up to `tokens`. False: there are too few pages. */
static bool run(fixture *f, int t, int64_t tokens)
{
    if (!proa_page_table_own(&f->pool, &f->table[t], f->tokens[t]) ||
        !proa_page_table_grow(&f->pool, &f->table[t], tokens))
        return false;
    for (int64_t i = f->tokens[t]; i < tokens; i++) *key(f, t, i) = key_of(f->ids[t], i, f->of_space[t]);
    f->tokens[t] = tokens;
    return true;
}

static int64_t match(fixture *f, int t, int64_t tokens)
{
    f->tokens[t] = proa_prefix_tree_match(&f->tree, &f->cursor[t],
                                          &(proa_prefix_key){f->space[f->of_space[t]], f->ids[t], tokens},
                                          false, &f->table[t]);
    return f->tokens[t];
}

static void insert(fixture *f, int t)
{
    proa_prefix_tree_insert(&f->tree, &f->cursor[t],
                            &(proa_prefix_key){f->space[f->of_space[t]], f->ids[t], f->tokens[t]}, false,
                            &f->table[t]);
}

static void number(fixture *f, int t, int32_t from)
{
    for (int i = 0; i < TOKENS; i++) f->ids[t][i] = from + i;
}

static void full_pages_are_found_again(void **state)
{
    fixture f;
    (void)state;
    make(&f, PAGES);
    start(&f, 0, 0), number(&f, 0, 5);
    assert_int_equal(match(&f, 0, 300), 0);
    assert_true(run(&f, 0, 200));
    insert(&f, 0);
    assert_int_equal(f.tree.nodes, 3); /* 192 tokens; the last page is not full */
    check_counts(&f);
    start(&f, 1, 0), number(&f, 1, 5);
    assert_int_equal(match(&f, 1, 191), 128); /* whole pages within the given tokens */
    assert_int_equal(f.table[1].page[1], f.table[0].page[1]);
    start(&f, 2, 1), number(&f, 2, 5);
    assert_int_equal(match(&f, 2, 300), 0); /* another salt */
    start(&f, 3, 0), number(&f, 3, 5);
    f.ids[3][70] = 0;
    assert_int_equal(match(&f, 3, 300), 64); /* another token in the second page */
    end(&f, 0), end(&f, 1);
    assert_int_equal(f.pool.idle, 2);
    assert_int_equal(match(&f, 3, 300), 64);
    check_counts(&f);
    break_up(&f);
}

/* Two sequences compute the same tokens side by side: the second one gives its own pages back. */
static void equal_pages_become_one(void **state)
{
    fixture f;
    (void)state;
    make(&f, PAGES);
    for (int t = 0; t < 2; t++) {
        start(&f, t, 0), number(&f, t, 9);
        assert_true(run(&f, t, 130));
    }
    assert_int_equal(f.pool.used, 6);
    insert(&f, 0), insert(&f, 1);
    assert_int_equal(f.pool.used, 4);
    assert_int_equal(f.table[0].page[1], f.table[1].page[1]);
    assert_int_not_equal(f.table[0].page[2], f.table[1].page[2]);
    assert_true(run(&f, 1, 192));
    insert(&f, 1); /* goes on where the cursor is */
    check(&f, 0), check(&f, 1), check_counts(&f);
    assert_int_equal(f.tree.nodes, 3);
    break_up(&f);
}

/* The page that has not been used for the longest time goes first, leaves before their parents; a prefix that was
 * reused outlives newer ones that were not. */
static void eviction_takes_old_leaves(void **state)
{
    fixture f;
    (void)state;
    make(&f, 8);
    for (int t = 0; t < 3; t++) {
        start(&f, t, 0), number(&f, t, 1000 * t);
        assert_true(run(&f, t, 128));
        insert(&f, t);
        end(&f, t);
    }
    start(&f, 0, 0), number(&f, 0, 0); /* the oldest is reused */
    assert_int_equal(match(&f, 0, 128), 128);
    end(&f, 0);
    start(&f, 3, 0), number(&f, 3, 5000);
    assert_true(run(&f, 3, 4 * 64)); /* two pages are free, two are evicted */
    assert_int_equal(f.tree.evicted, 2);
    check_counts(&f);
    start(&f, 1, 0), number(&f, 1, 1000);
    assert_int_equal(match(&f, 1, 128), 0);
    start(&f, 2, 0), number(&f, 2, 2000);
    assert_int_equal(match(&f, 2, 128), 128);
    assert_false(run(&f, 3, 7 * 64)); /* only two are idle, and nothing is changed */
    assert_int_equal(f.table[3].count, 4);
    assert_true(run(&f, 3, 6 * 64));
    start(&f, 0, 0);
    assert_int_equal(match(&f, 0, 128), 0);
    break_up(&f);
}

/* Of an encoder's input all pages are needed, the last one included, and its length counts. */
static void whole_inputs(void **state)
{
    fixture f;
    (void)state;
    make(&f, PAGES);
    number(&f, 0, 3);
    proa_prefix_cursor at = {PROA_PREFIX_CROSS, 0};
    assert_true(proa_page_table_grow(&f.pool, &f.table[0], 100));
    proa_prefix_tree_insert(&f.tree, &at, &(proa_prefix_key){f.space[1], f.ids[0], 100}, true, &f.table[0]);
    assert_int_equal(f.tree.nodes, 2);
    const struct {
        int64_t tokens, found;
        int space, root;
    } asks[] = {{100, 100, 1, PROA_PREFIX_CROSS}, {99, 0, 1, PROA_PREFIX_CROSS},
                {101, 0, 1, PROA_PREFIX_CROSS},   {64, 64, 1, PROA_PREFIX_CROSS},
                {100, 0, 0, PROA_PREFIX_CROSS},   {100, 0, 1, PROA_PREFIX_SELF}};
    for (size_t i = 0; i < PROA_COUNT(asks); i++) {
        at = (proa_prefix_cursor){asks[i].root, 0};
        const proa_prefix_key input = {f.space[asks[i].space], f.ids[0], asks[i].tokens};
        int64_t found = proa_prefix_tree_match(&f.tree, &at, &input, true, &f.table[1]);
        assert_int_equal(found, asks[i].found);
        assert_int_equal(f.table[1].count, proa_kv_pages_for(found));
        end(&f, 1);
    }
    break_up(&f);
}

static uint32_t dice(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*state >> 4) * below) >> 28);
}

/* Pages are mostly of one token, so that many sequences begin alike. */
static void random_ids(fixture *f, int t, uint32_t *random)
{
    for (int p = 0; p < CAP; p++) {
        int32_t id = (int32_t)dice(random, 3);
        for (int i = 0; i < PROA_PAGE_TOKENS; i++) f->ids[t][p * PROA_PAGE_TOKENS + i] = id;
        if (dice(random, 4) == 0) f->ids[t][p * PROA_PAGE_TOKENS + (int)dice(random, 64)] = 2;
    }
}

/* One sequence takes the place of table t, as a request does it: match, run the rest, insert. */
static void play(fixture *f, int t, uint32_t *random, int64_t *hits)
{
    if (f->table[t].count && dice(random, 3) > 0) {
        int64_t more = proa_min64(f->tokens[t] + 1 + dice(random, 90), TOKENS);
        if (more > f->tokens[t] && !run(f, t, more)) end(f, t);
        if (f->table[t].count && dice(random, 2)) insert(f, t);
        return;
    }
    end(f, t);
    start(f, t, (int)dice(random, 3) % 2);
    random_ids(f, t, random);
    int64_t tokens = 1 + dice(random, TOKENS - 1);
    int64_t found = match(f, t, tokens - 1);
    *hits += found > 0;
    check(f, t);
    if (!run(f, t, tokens)) end(f, t);
    else if (dice(random, 4)) insert(f, t);
}

static void play_sequences(int64_t images, int steps)
{
    fixture f;
    uint32_t random = 3;
    int64_t hits = 0;
    make_levels(&f, PAGES, images);
    uint64_t allocations = proa_alloc_count();
    for (int step = 0; step < steps; step++) {
        int t = (int)dice(&random, TABLES), from = (int)dice(&random, TABLES);
        if (dice(&random, 20) == 0 && t != from) { /* a fork, as of n > 1: full pages are in the tree by then */
            end(&f, t);
            start(&f, t, f.of_space[from]);
            if (f.tokens[from]) insert(&f, from);
            f.cursor[t] = f.tokens[from] ? f.cursor[from] : f.cursor[t];
            memcpy(f.ids[t], f.ids[from], sizeof f.ids[t]);
            proa_page_table_share(&f.pool, &f.table[t], &f.table[from], f.tokens[from]);
            f.tokens[t] = f.tokens[from];
        } else {
            play(&f, t, &random, &hits);
        }
        check_counts(&f);
        if (step % 20 == 0)
            for (int i = 0; i < TABLES; i++) check(&f, i);
    }
    assert_int_equal(proa_alloc_count(), allocations);
    assert_true(hits > steps / 20 && f.tree.evicted > steps / 20);
    assert_true(images ? f.tree.restored > 5 : f.tree.restored == 0);
    assert_true(f.below.count <= images && (images == 0 || images > 50 || f.below.evicted > 100));
    break_up(&f);
}

static void random_sequences(void **state)
{
    (void)state;
    play_sequences(0, 20000);
}

static void random_sequences_with_a_second_level(void **state)
{
    (void)state;
    play_sequences(3, 4000);
    play_sequences(30, 4000);
    play_sequences(2000, 4000);
}

/* A page that was evicted comes back into another one, with those behind it as far as they are there. */
static void evicted_pages_come_back(void **state)
{
    fixture f;
    (void)state;
    make_levels(&f, 4, 8);
    start(&f, 0, 1), number(&f, 0, 5);
    assert_true(run(&f, 0, 200));
    insert(&f, 0), end(&f, 0);
    start(&f, 1, 1), number(&f, 1, 900);
    assert_true(run(&f, 1, 256)); /* takes all pages */
    assert_int_equal(f.below.count, 3);
    end(&f, 1);
    start(&f, 2, 0), number(&f, 2, 5);
    assert_int_equal(match(&f, 2, 200), 0); /* of another namespace */
    start(&f, 0, 1);
    assert_int_equal(match(&f, 0, 150), 128);
    assert_int_equal(f.tree.restored, 2);
    check(&f, 0), check_counts(&f);
    start(&f, 3, 1), number(&f, 3, 5);
    assert_int_equal(match(&f, 3, 200), 192); /* two from the tree, one from below */
    assert_int_equal(f.tree.restored, 3);
    check(&f, 3), check_counts(&f);
    end(&f, 0);
    start(&f, 0, 1), number(&f, 0, 5);
    f.ids[0][130] = 1;
    assert_int_equal(match(&f, 0, 200), 128);
    assert_true(run(&f, 0, 129));
    start(&f, 4, 1), number(&f, 4, 5);
    assert_false(run(&f, 4, 64)); /* all pages are in use: nothing changes */
    assert_int_equal(match(&f, 4, 200), 192);
    break_up(&f);
}

/* Of an encoder's input all pages must be somewhere. */
static void whole_inputs_come_back(void **state)
{
    fixture f;
    (void)state;
    make_levels(&f, 4, 2);
    number(&f, 0, 3);
    proa_prefix_cursor at = {PROA_PREFIX_CROSS, 0};
    assert_true(proa_page_table_grow(&f.pool, &f.table[0], 100));
    proa_prefix_tree_insert(&f.tree, &at, &(proa_prefix_key){f.space[1], f.ids[0], 100}, true, &f.table[0]);
    end(&f, 0);
    number(&f, 1, 7);
    assert_true(proa_page_table_grow(&f.pool, &f.table[1], 192)); /* evicts the last page */
    end(&f, 1);
    at = (proa_prefix_cursor){PROA_PREFIX_CROSS, 0};
    assert_int_equal(proa_prefix_tree_match(&f.tree, &at, &(proa_prefix_key){f.space[1], f.ids[0], 101}, true,
                                            &f.table[0]),
                     0);
    assert_int_equal(f.table[0].count, 0);
    assert_int_equal(proa_prefix_tree_match(&f.tree, &at, &(proa_prefix_key){f.space[1], f.ids[0], 100}, true,
                                            &f.table[0]),
                     100);
    assert_int_equal(f.tree.restored, 1);
    end(&f, 0);
    assert_true(proa_page_table_grow(&f.pool, &f.table[1], 256)); /* evicts both */
    end(&f, 1);
    at = (proa_prefix_cursor){PROA_PREFIX_CROSS, 0};
    assert_int_equal(proa_prefix_tree_match(&f.tree, &at, &(proa_prefix_key){f.space[1], f.ids[0], 100}, true,
                                            &f.table[0]),
                     100);
    assert_int_equal(f.tree.restored, 3);
    end(&f, 0);
    break_up(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_pages_are_found_again), cmocka_unit_test(equal_pages_become_one),
        cmocka_unit_test(eviction_takes_old_leaves),  cmocka_unit_test(whole_inputs),
        cmocka_unit_test(random_sequences),           cmocka_unit_test(evicted_pages_come_back),
        cmocka_unit_test(whole_inputs_come_back),     cmocka_unit_test(random_sequences_with_a_second_level)};
    return cmocka_run_group_tests_name("prefix_tree", tests, NULL, NULL);
}
