/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "table_model.h"

static void check_case(const proa_json *c)
{
    int32_t end_ids[PROA_EOS_MAX];
    const proa_json *ends = proa_json_get(c, "end_ids"), *ids = proa_json_get(c, "ids");
    for (int64_t i = 0; i < proa_json_len(ends); i++)
        end_ids[i] = (int32_t)proa_json_int(proa_json_at(ends, i));
    proa_str early = proa_json_str(proa_json_get(c, "early"));
    proa_beam_options o = {.beams = (int32_t)proa_json_int(proa_json_get(c, "beams")),
                           .vocab = proa_json_int(proa_json_get(c, "vocab")),
                           .max_new = proa_json_int(proa_json_get(c, "max_new")),
                           .length_penalty = (float)proa_json_double(proa_json_get(c, "length_penalty")),
                           .early = proa_str_is(early, "true")    ? PROA_EARLY_TRUE
                                    : proa_str_is(early, "never") ? PROA_EARLY_NEVER
                                                                  : PROA_EARLY_FALSE,
                           .end_ids = end_ids,
                           .end_ids_count = (int32_t)proa_json_len(ends),
                           .returned = (int32_t)proa_json_int(proa_json_get(c, "returned"))};
    model m = {.seed = (uint32_t)proa_json_int(proa_json_get(c, "seed")),
               .vocab = (int)o.vocab,
               .grain = (int)proa_json_int(proa_json_get(c, "grain")),
               .end_eighths = (int)proa_json_int(proa_json_get(c, "end_eighths")),
               .end_ids = end_ids,
               .end_ids_count = o.end_ids_count};
    proa_beam *b;
    proa_err err = {0};
    if (proa_beam_new(&b, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    memset(end_ids, 0xff, sizeof end_ids); /* they were copied */
    for (int64_t i = 0; i < proa_json_len(ends); i++)
        end_ids[i] = (int32_t)proa_json_int(proa_json_at(ends, i));
    assert_int_equal(run_search(b, &m, o.beams, o.max_new), proa_json_int(proa_json_get(c, "steps")));
    assert_int_equal(proa_beam_finish(b), proa_json_len(ids));
    for (int32_t i = 0; i < proa_json_len(ids); i++) {
        proa_beam_result got = proa_beam_get(b, i);
        double want = proa_json_double(proa_json_at(proa_json_get(c, "scores"), i));
        assert_true(fabs((double)got.score - want) <= 1e-5 * fmax(1, fabs(want)));
        assert_int_equal(got.count, proa_json_len(proa_json_at(ids, i)));
        for (int64_t j = 0; j < got.count; j++)
            assert_int_equal(got.ids[j], proa_json_int(proa_json_at(proa_json_at(ids, i), j)));
    }
    proa_beam_free(b);
}

static void test_goldens(void **state)
{
    (void)state;
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, PROA_SOURCE_DIR "/tests/golden/beam.json", PROA_MIB, &err))
        fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(root, "cases");
    assert_int_equal(proa_json_len(cases), 480);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_case(proa_json_at(cases, i));
    proa_json_free(root);
}

static void test_one_beam_is_greedy(void **state)
{
    (void)state;
    const int32_t end_ids[] = {3};
    for (uint32_t seed = 0; seed < 300; seed++) {
        model m = {
            .seed = seed, .vocab = 40, .grain = 16, .end_eighths = 2, .end_ids = end_ids, .end_ids_count = 1};
        proa_beam_options o = {
            .beams = 1, .vocab = 40, .max_new = 50, .length_penalty = 1, .end_ids = end_ids, .end_ids_count = 1};
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        run_search(b, &m, o.beams, o.max_new);
        assert_int_equal(proa_beam_finish(b), 1);
        proa_beam_result got = proa_beam_get(b, 0);
        uint32_t at = mix(seed);
        int64_t n = 0;
        double sum = 0;
        for (int32_t token = 0; n < o.max_new && !(n && token == 3); n++) {
            float value;
            top_row(&m, at, 1, &token, &value);
            assert_in_range(n, 0, got.count - 1);
            assert_int_equal(token, got.ids[n]);
            sum += (double)value;
            at = follow(at, token);
        }
        assert_int_equal(n, got.count);
        assert_true(fabs(sum / (double)n - (double)got.score) < 1e-5);
        proa_beam_free(b);
    }
}

/* All sequences that a model can make, by recursion. */
typedef struct listed {
    int32_t ids[4];
    int count;
    float score;
} listed;
typedef struct listing {
    listed item[256];
    int count, max_new;
    double penalty;
} listing;

static void list_all(listing *l, const model *m, uint32_t state, listed path, float sum)
{
    for (int32_t t = 0; t < m->vocab; t++) {
        listed next = path;
        next.ids[next.count++] = t;
        float total = logprob(m, state, t) + sum;
        if (is_end(m, t) || next.count == l->max_new) {
            next.score = total / (float)pow(next.count, l->penalty);
            int at = l->count++;
            for (; at > 0 && next.score > l->item[at - 1].score; at--) l->item[at] = l->item[at - 1];
            l->item[at] = next;
        } else {
            list_all(l, m, follow(state, t), next, total);
        }
    }
}

/* With as many beams as there are sequences the search is exhaustive: its results are all of them, in order. */
static void test_exhaustive(void **state)
{
    (void)state;
    const int32_t end_ids[] = {1, 2};
    const float penalties[] = {-1, 0, 0.6F, 1, 2};
    for (uint32_t seed = 0; seed < 60; seed++) {
        int ends = (int)(seed % 3);
        model m = {
            .seed = seed, .vocab = 4, .grain = 20, .end_eighths = -1, .end_ids = end_ids, .end_ids_count = ends};
        proa_beam_options o = {.beams = 64,
                               .vocab = 4,
                               .max_new = 3,
                               .length_penalty = penalties[seed % 5],
                               .end_ids = end_ids,
                               .end_ids_count = ends};
        listing *all = proa_calloc(1, sizeof *all);
        all->max_new = 3;
        all->penalty = (double)o.length_penalty;
        list_all(all, &m, mix(seed), (listed){0}, 0);
        assert_int_equal(all->count, ends == 0 ? 64 : ends == 1 ? 40 : 22);
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_int_equal(run_search(b, &m, o.beams, 9), 3);
        assert_true(proa_beam_finish(b) >= all->count); /* then such as come of beams that never lived */
        for (int i = 0; i < all->count; i++) {
            proa_beam_result got = proa_beam_get(b, i);
            assert_int_equal(got.count, all->item[i].count);
            assert_memory_equal(got.ids, all->item[i].ids, (size_t)got.count * sizeof *got.ids);
            assert_true(got.score == all->item[i].score);
        }
        proa_beam_free(b);
        free(all);
    }
}

/* Sums that rounding made equal: the lower token is first, though its list has it second. And between beams, the lower
 * beam. */
static void test_ties(void **state)
{
    (void)state;
    proa_beam_options o = {.beams = 2, .vocab = 30, .max_new = 3};
    proa_beam *b;
    bool more;
    int32_t parent[2], token[2];
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    const int32_t first[] = {4, 5, 6, 7}, tokens[] = {9, 8, 3, 2, 1, 0, 6, 5};
    const float far_down[] = {-1e6F, -1e6F, -3e6F, -3e6F};
    const float next[] = {-1, -1.0000001F, -1.0000002F, -9, -1, -9, -9, -9};
    assert_true(next[2] < next[1] && next[1] < next[0] && next[2] + -1e6F == next[0] + -1e6F);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){first, far_down, NULL}, NULL),
        PROA_OK);
    assert_true(token[0] == 4 && token[1] == 5 && more);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, next, NULL}, NULL),
        PROA_OK);
    assert_true(token[0] == 3 && token[1] == 8 && parent[0] == 0 && parent[1] == 0 && more);
    proa_beam_free(b);
    /* the same where only two of three equal ones are kept */
    const int32_t end_id = 6;
    o = (proa_beam_options){.beams = 2, .vocab = 30, .max_new = 3, .end_ids = &end_id, .end_ids_count = 1};
    const int32_t again[] = {6, 5, 2, 1, 9, 8, 3, 2};
    const float last[] = {-0.5F, -0.75F, -9, -9, -1, -1.0000001F, -1.0000002F, -9};
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){first, far_down, NULL}, NULL),
        PROA_OK);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){again, last, NULL}, NULL),
        PROA_OK);
    assert_true(token[0] == 5 && parent[0] == 0 && token[1] == 3 && parent[1] == 1);
    proa_beam_free(b);
}

static void test_no_allocation(void **state)
{
    (void)state;
    const int32_t end_ids[] = {5, 9};
    model m = {.seed = 4, .vocab = 50, .grain = 18, .end_eighths = 40, .end_ids = end_ids, .end_ids_count = 2};
    proa_beam_options o = {
        .beams = 8, .vocab = 50, .max_new = 300, .length_penalty = 1, .end_ids = end_ids, .end_ids_count = 2};
    proa_beam *b;
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(proa_beam_candidates(b), 24);
    uint64_t allocations = proa_alloc_count();
    assert_int_equal(run_search(b, &m, o.beams, 1000), 300);
    assert_int_equal(proa_beam_finish(b), 8);
    assert_int_equal(proa_alloc_count(), allocations);
    proa_beam_free(b);
}

/* The caller gives up: running beams stand in where nothing is finished. */
static void test_stopped_early(void **state)
{
    (void)state;
    model m = {.seed = 7, .vocab = 30, .grain = 18};
    proa_beam_options o = {.beams = 5, .vocab = 30, .max_new = 20, .length_penalty = 1, .returned = 3};
    proa_beam *b, *whole;
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(proa_beam_finish(b), 0);
    run_search(b, &m, o.beams, 4);
    o.max_new = 4;
    assert_int_equal(proa_beam_new(&whole, &o, NULL), PROA_OK);
    run_search(whole, &m, o.beams, 4);
    assert_int_equal(proa_beam_finish(b), 3);
    assert_int_equal(proa_beam_finish(whole), 3);
    for (int32_t i = 0; i < 3; i++) { /* as if four had been the limit */
        proa_beam_result x = proa_beam_get(b, i), y = proa_beam_get(whole, i);
        assert_int_equal(x.count, 4);
        assert_memory_equal(x.ids, y.ids, 4 * sizeof *x.ids);
        assert_true(x.score == y.score);
    }
    proa_beam_free(whole);
    proa_beam_free(b);
}

static void test_not_numbers(void **state)
{
    (void)state;
    const int32_t tokens[] = {4, 7, 1, 0};
    float bad[][4] = {{-1, NAN, -2, -3}, {INFINITY, -1, -2, -3}};
    for (int i = 0; i < 2; i++) {
        proa_beam_options o = {.beams = 2, .vocab = 30, .max_new = 20};
        proa_beam *b;
        proa_err err = {0};
        bool more = true;
        int32_t parent[2], token[2];
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_int_equal(proa_beam_advance(b, &more, parent, token,
                                           &(proa_beam_candidate_rows){tokens, bad[i], NULL}, &err),
                         PROA_INTERNAL);
        assert_false(more);
        assert_non_null(strstr(err.text, i ? "inf of id 4, beam 0, step 0" : "nan of id 7, beam 0"));
        proa_beam_free(b);
    }
    /* Tokens that cannot come (-inf) are no error; only two can here. */
    const float masked[] = {-1, -2, -HUGE_VALF, -HUGE_VALF};
    proa_beam_options o = {.beams = 2, .vocab = 30, .max_new = 1};
    proa_beam *b;
    bool more;
    int32_t parent[2], token[2];
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, masked, NULL}, NULL),
        PROA_OK);
    assert_false(more);
    assert_int_equal(proa_beam_finish(b), 2);
    assert_int_equal(proa_beam_get(b, 1).ids[0], 7);
    proa_beam_free(b);
}

static void test_refusals(void **state)
{
    (void)state;
    const int32_t end_ids[PROA_EOS_MAX + 1] = {0};
    const proa_beam_options good = {
        .beams = 4, .vocab = 100, .max_new = 10, .length_penalty = 1, .end_ids = end_ids};
    const struct {
        proa_beam_options o;
        const char *text;
    } bad[] = {{{.beams = 0, .vocab = 9, .max_new = 1}, "number of beams is 0, must lie in 1..256"},
               {{.beams = 257, .vocab = 9, .max_new = 1}, "number of beams is 257"},
               {{.beams = 2, .vocab = 1, .max_new = 1}, "size of the vocabulary is 1, must lie in 2.."},
               {{.beams = 2, .vocab = 3, .max_new = 1, .end_ids_count = 3, .end_ids = end_ids},
                "vocabulary is 3, must lie in 4.."},
               {{.beams = 2, .vocab = 9, .max_new = 0}, "number of new tokens is 0"},
               {{.beams = 2, .vocab = 9, .max_new = INT64_MAX}, "number of new tokens is 9223372036854775807"},
               {{.beams = 2, .vocab = 9, .max_new = 1, .returned = 3}, "returned is 3, must lie in 0..2"},
               {{.beams = 2, .vocab = 90, .max_new = 1, .end_ids_count = 17, .end_ids = end_ids}, "end ids is 17"},
               {{.beams = 2, .vocab = 9, .max_new = 1, .early = (proa_early)3}, "early stopping is 3"},
               {{.beams = 2, .vocab = 9, .max_new = 1, .length_penalty = NAN}, "length penalty is"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_beam *b = (proa_beam *)(void *)&state;
        proa_err err = {0};
        assert_int_equal(proa_beam_new(&b, &bad[i].o, &err), PROA_INVALID);
        assert_null(b);
        assert_non_null(strstr(err.text, bad[i].text));
        assert_int_equal(proa_beam_bytes(&bad[i].o), -1);
    }
    assert_true(proa_beam_bytes(&good) > 8 * 4 * 10 + 4 * 4 * 10);
    assert_true(proa_beam_bytes(&good) < 4096);
    proa_beam_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),       cmocka_unit_test(test_one_beam_is_greedy),
        cmocka_unit_test(test_exhaustive),    cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_stopped_early), cmocka_unit_test(test_not_numbers),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
