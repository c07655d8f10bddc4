/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/decode/logits_processor.h"
#include "golden_logits.h"
#include "kernels/reference/reference.h"

enum { V = 12 };

static proa_logits_processor *make(const proa_options *o, int64_t vocab)
{
    proa_logits_processor *l;
    proa_err err = {0};
    if (proa_logits_processor_new(&l, o, vocab, &err) != PROA_OK) fail_msg("%s", err.text);
    return l;
}

/* -infinity at the same places, all else to 1e-5 (of 0.1 at least: the rows hold larger numbers that were
 * subtracted). */
static void expect_row(const float *got, const float *want, int n, int64_t at)
{
    for (int i = 0; i < n; i++) {
        if (got[i] == want[i]) continue;
        bool numbers = isfinite(got[i]) && isfinite(want[i]);
        if (!numbers || !(fabs((double)got[i] - (double)want[i]) <= 1e-5 * fmax(0.1, fabs((double)want[i]))))
            fail_msg("case %d, token %d: %.8g, want %.8g", (int)at, i, (double)got[i], (double)want[i]);
    }
}

static void check_case(const proa_json *c, int64_t at)
{
    golden_options g;
    float row[GOLDEN_ROW], again[GOLDEN_ROW], want[GOLDEN_ROW], before[GOLDEN_ROW] = {0};
    int32_t prompt[GOLDEN_IDS], generated[GOLDEN_IDS];
    golden_read(&g, c);
    int n = golden_row(row, proa_json_get(c, "logits"));
    assert_int_equal(golden_row(want, proa_json_get(c, "after")), n);
    memcpy(again, row, sizeof row);
    memcpy(before, row, (size_t)n * sizeof *row);
    proa_history h = {.prompt = prompt, .generated = generated};
    h.prompt_count = golden_ids(prompt, proa_json_get(c, "prompt"));
    h.generated_count = golden_ids(generated, proa_json_get(c, "generated"));
    proa_logits_processor *l = make(&g.o, n);
    memset(&g, 0x55, sizeof g); /* the lists were copied */
    uint64_t allocations = proa_alloc_count();
    proa_logits_processor_apply(l, row, &h);
    expect_row(row, want, n, at);
    proa_logits_processor_apply(l, again, &h); /* nothing is left of the row before */
    assert_memory_equal(row, again, (size_t)n * sizeof *row);
    assert_int_equal(proa_alloc_count(), allocations);
    golden_check_entries(l, before, row, n, h, at);
    proa_logits_processor_free(l);
}

static void test_goldens(void **state)
{
    (void)state;
    proa_json *root = golden_load("logits.json");
    const proa_json *cases = proa_json_get(root, "steps");
    assert_int_equal(proa_json_len(cases), 192);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_case(proa_json_at(cases, i), i);
    proa_json_free(root);
}

/* The token after a prompt of one, and the last new token; id 0 is one if it was given. The last wins, and no row is
 * changed between them. A longer prompt has its begin, as transformers sees it. */
static void test_forced(void **state)
{
    static const struct {
        proa_options o;
        int64_t prompt;
        int32_t forced[4]; /* after 0, 1, 2 and 3 tokens; -1: none */
    } cases[] = {
        {{.forced_bos_id = 3, .max_tokens = 3}, 1, {3, -1, -1, -1}},
        {{.forced_bos_id = 3, .max_tokens = 3}, 2, {-1, -1, -1, -1}},
        {{.forced_bos_id = 3, .forced_eos_id = 2, .max_tokens = 3}, 3, {-1, -1, 2, -1}},
        {{.forced_eos_id = 2, .max_tokens = 3}, 1, {-1, -1, 2, -1}},
        {{.forced_bos_id = 3, .forced_eos_id = 2, .max_tokens = 1}, 1, {2, -1, -1, -1}},
        {{.forced_bos_id = 3, .forced_eos_id = 2, .max_tokens = 2, .ignore_eos = true}, 1, {3, -1, -1, -1}},
        {{.forced_bos_id = 5, .given = {[PROA_OPTION_forced_eos_id] = true}, .max_tokens = 4}, 1, {5, -1, -1, 0}},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_logits_processor *l = make(&cases[i].o, V);
        const int32_t prompt[3] = {4, 5, 6}, generated[4] = {7, 8, 9, 10};
        for (int64_t n = 0; n < 4; n++) {
            float before[GOLDEN_ROW] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, row[GOLDEN_ROW];
            int32_t forced = cases[i].forced[n];
            proa_history h = {.prompt = prompt, .generated = generated, .generated_count = n};
            h.prompt_count = cases[i].prompt;
            memcpy(row, before, sizeof row);
            proa_logits_processor_apply(l, row, &h);
            for (int v = 0; v < V; v++)
                assert_true(row[v] == (forced < 0 ? before[v] : v == forced ? 0 : -INFINITY));
            assert_int_equal(proa_logits_processor_changes(l, cases[i].prompt, n), forced >= 0);
            golden_check_entries(l, before, row, V, h, (int64_t)i);
        }
        proa_logits_processor_free(l);
    }
}

/* What asks for nothing costs nothing. */
static void test_unused(void **state)
{
    (void)state;
    const int32_t end[] = {1};
    const proa_options unused[] = {
        {.temperature = 1},
        {.temperature = 0.5F, .top_k = 5, .top_p = 0.9F, .repetition_penalty = 1, .seed = 4},
        {.style = PROA_STYLE_FT, .temperature = 1, .repetition_penalty = 1, .top_k = 4},
        {.style = PROA_STYLE_FT},
        {.style = PROA_STYLE_TRTLLM, .temperature = 1},
        {.min_tokens = 5}, /* no end tokens */
        {.min_tokens = 5, .end_ids = {1}, .end_ids_count = 1, .ignore_eos = true},
        {.stop_words = {end, end, 1}},
    };
    for (size_t i = 0; i < PROA_COUNT(unused); i++) {
        char names[512];
        uint64_t allocations = proa_alloc_count();
        proa_logits_processor *l = make(&unused[i], V);
        assert_null(l);
        assert_int_equal(proa_alloc_count(), allocations);
        float row[V] = {1, 2, 3};
        proa_logits_processor_apply(l, row, &(proa_history){0});
        assert_true(row[1] == 2);
        proa_logits_processor_names(l, names);
        assert_string_equal(names, "");
        proa_logits_processor_free(l);
    }
}

static void test_order(void **state)
{
    (void)state;
    const int32_t ids[] = {3, 4}, ends[] = {2};
    const proa_bias bias[] = {{2, 1}};
    proa_options o = {.temperature = 0.5F,
                      .repetition_penalty = 2,
                      .frequency_penalty = 1,
                      .no_repeat_ngram = 2,
                      .min_tokens = 1,
                      .end_ids = {1},
                      .end_ids_count = 1,
                      .logit_bias = bias,
                      .logit_bias_count = 1,
                      .banned_words = {ids, ends, 1},
                      .allowed_words = {ids, ends, 1}};
    const char *const want[] = {
        "logit_bias repetition_penalty frequency_presence_penalty no_repeat_ngram banned_words min_tokens "
        "allowed_words",
        "banned_words no_repeat_ngram logit_bias temperature repetition_penalty presence_frequency_penalty "
        "min_tokens allowed_words",
        "logit_bias temperature repetition_penalty presence_frequency_penalty min_tokens no_repeat_ngram "
        "banned_words allowed_words"};
    for (int style = 0; style < 3; style++) {
        char names[512];
        o.style = (proa_style)style;
        proa_logits_processor *l = make(&o, V);
        proa_logits_processor_names(l, names);
        assert_string_equal(names, want[style]);
        proa_logits_processor_free(l);
    }
}

static void test_refused(void **state)
{
    (void)state;
    const int32_t ids[] = {3, 12}, ends[] = {1, 2}, flat[] = {1, 1};
    const proa_bias bias[] = {{-1, 1}};
    const struct {
        proa_options o;
        const char *text;
    } bad[] = {
        {{.banned_words = {ids, ends, 2}}, "banned_words has id 12, must lie in 0..11"},
        {{.allowed_words = {ids, ends, 2}}, "allowed_words has id 12, must lie in 0..11"},
        {{.banned_words = {ids, flat, 2}}, "banned_words: word 1 has no tokens"},
        {{.logit_bias = bias, .logit_bias_count = 1}, "logit_bias has id -1, must lie in 0..11"},
        {{.style = PROA_STYLE_FT, .repetition_penalty = 1.5F, .presence_penalty = 1},
         "presence_penalty is 1 with repetition_penalty 1.5, style ft takes one of them"},
    };
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_logits_processor *l = NULL;
        proa_err err = {0};
        assert_int_equal(proa_logits_processor_new(&l, &bad[i].o, V, &err), PROA_INVALID);
        assert_null(l);
        assert_string_equal(err.text, bad[i].text);
    }
}

/* Whether each token is still there, as a string of 0 and 1. */
static void expect_allowed(const proa_options *o, const int32_t *generated, int64_t count, const char *want)
{
    float row[V] = {0};
    char got[V + 1] = {0};
    proa_logits_processor *l = make(o, V);
    proa_logits_processor_apply(l, row, &(proa_history){.generated = generated, .generated_count = count});
    for (int i = 0; i < V; i++) got[i] = row[i] == 0 ? '1' : '0';
    assert_string_equal(got, want);
    proa_logits_processor_free(l);
}

static void test_allowed_words(void **state)
{
    (void)state;
    const int32_t ids[] = {2, 2, 3, 4, 5, 6, 2, 3, 2}, ends[] = {1, 4, 6, 9}; /* 2 | 2 3 4 | 5 6 | 2 3 2 */
    proa_options o = {.allowed_words = {ids, ends, 4}, .end_ids = {11, 0}, .end_ids_count = 2};
    const int32_t said[] = {2, 3, 2, 3, 4, 5, 6, 5, 7};
    expect_allowed(&o, said, 0, "101001000001");
    expect_allowed(&o, said, 1, "101101000001"); /* 2 is whole, or begins two others */
    expect_allowed(&o, said, 2, "001010000000"); /* inside 2 3 4 or 2 3 2 */
    expect_allowed(&o, said, 3, "101001000001"); /* 2 3 2; [2 3][2] is none */
    expect_allowed(&o, said, 6, "000000000000"); /* 2 3 2 | 3 is no word: lost */
    expect_allowed(&o, said + 5, 1, "000000100000");
    expect_allowed(&o, said + 5, 2, "101001000001");
    expect_allowed(&o, said + 7, 2, "000000000000");
    o.end_ids_count = 0;
    expect_allowed(&o, said, 1, "001101000000");
}

/* Ids that the row does not have are passed over: a model's head may be shorter than its tokenizer. */
static void test_strange_ids(void **state)
{
    (void)state;
    const int32_t prompt[] = {-1, 99, 3, 2000000000}, generated[] = {3, 99, 3, 99};
    proa_options o = {.repetition_penalty = 2,
                      .presence_penalty = 1,
                      .frequency_penalty = 0.5F,
                      .no_repeat_ngram = 2,
                      .min_tokens = 9,
                      .end_ids = {50, -3},
                      .end_ids_count = 2};
    float row[V] = {0};
    row[3] = 8;
    proa_logits_processor *l = make(&o, V);
    proa_logits_processor_apply(
        l, row,
        &(proa_history){.prompt = prompt, .prompt_count = 4, .generated = generated, .generated_count = 4});
    for (int i = 0; i < V; i++)
        if (i != 3) assert_true(row[i] == 0);
    assert_true(row[3] == -INFINITY); /* 99 3 stood there */
    proa_logits_processor_free(l);
}

/* Frequency counts, over a history much longer than the vocabulary, each token once. */
static void test_counts(void **state)
{
    (void)state;
    static int32_t generated[3000];
    int count[V] = {0};
    for (int i = 0; i < 3000; i++) count[generated[i] = (i * 7 + i / 13) % (V - 1)]++;
    for (int style = 0; style < 3; style++) {
        proa_options o = {
            .style = (proa_style)style, .frequency_penalty = 0.125F, .presence_penalty = 3, .temperature = 1};
        float row[V] = {0};
        proa_logits_processor *l = make(&o, V);
        proa_logits_processor_apply(l, row, &(proa_history){.generated = generated, .generated_count = 3000});
        for (int i = 0; i < V; i++) assert_true(row[i] == (count[i] ? -0.125F * (float)count[i] - 3 : 0));
        proa_logits_processor_free(l);
    }
}

static int32_t dice(uint64_t *state, int32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((*state >> 33) % (uint64_t)n);
}

/* Lists of a round. */
typedef struct random_lists {
    int32_t prompt[GOLDEN_IDS], generated[GOLDEN_IDS], words[24], ends[8];
    proa_bias bias[2];
} random_lists;

static void fill_lists(random_lists *x, uint64_t *r)
{
    for (int i = 0; i < GOLDEN_IDS; i++) x->prompt[i] = dice(r, 4), x->generated[i] = dice(r, i % 2 ? 4 : V);
    for (int i = 0; i < 24; i++) x->words[i] = dice(r, 5);
    for (int i = 0; i < 8; i++) x->ends[i] = (i ? x->ends[i - 1] : 0) + 1 + dice(r, 3);
    x->bias[0] = (proa_bias){dice(r, V / 2), 0.7F};
    x->bias[1] = (proa_bias){V / 2 + dice(r, V / 2), -1.3F};
}

/* Any of the steps that a device knows. */
static proa_options random_steps(const random_lists *x, uint64_t *r)
{
    proa_options o = {
        .style = (proa_style)dice(r, 3), .temperature = dice(r, 2) ? 0.7F : 1, .no_repeat_ngram = dice(r, 5)};
    bool one = o.style == PROA_STYLE_FT; /* penalty of the two */
    if (dice(r, 2)) o.banned_words = (proa_words){x->words, x->ends, 8};
    if (dice(r, 2)) o.repetition_penalty = 1.3F;
    if (dice(r, 2)) o.frequency_penalty = 0.3F;
    if (dice(r, 2) && !(one && o.repetition_penalty > 0)) o.presence_penalty = 0.4F;
    if (dice(r, 2)) o.logit_bias = x->bias, o.logit_bias_count = 1 + dice(r, 2);
    if (dice(r, 2)) o.min_tokens = dice(r, 14), o.end_ids_count = 2, o.end_ids[0] = 3, o.end_ids[1] = 7;
    return o;
}

/* Few tokens, so that n-grams, words and counts meet. */
static void test_pairs_of_random_histories(void **state)
{
    uint64_t r = 88172645463325252u;
    (void)state;
    for (int round = 0; round < 4000; round++) {
        random_lists x;
        float before[GOLDEN_ROW] = {0}, row[GOLDEN_ROW];
        fill_lists(&x, &r);
        proa_options o = random_steps(&x, &r);
        proa_history h = {.prompt = x.prompt, .generated = x.generated};
        h.prompt_count = 1 + dice(&r, 9), h.generated_count = dice(&r, 12);
        for (int i = 0; i < V; i++) before[i] = (float)(dice(&r, 2001) - 1000) * 0.0037F;
        proa_logits_processor *l = make(&o, V);
        memcpy(row, before, sizeof row);
        proa_logits_processor_apply(l, row, &h);
        golden_check_entries(l, before, row, V, h, round);
        proa_logits_processor_free(l);
    }
}

/* Rows of several requests mixed, some in place, with masks: each is what it is alone. */
static void test_rows_of_a_step(void **state)
{
    enum { ROWS = 60, REQUESTS = 7, WIDE = 75 };
    static const int32_t words[] = {3, 5, 70, 74}, ends[] = {1, 2, 3, 4};
    static float raw[ROWS][WIDE], row[ROWS][WIDE], alone[WIDE];
    static uint32_t mask[ROWS][(WIDE + 31) / 32], mask_alone[(WIDE + 31) / 32];
    static int32_t ids[ROWS][20];
    proa_logits_processor *l[REQUESTS];
    proa_logits_job jobs[ROWS];
    proa_pool *pool = proa_pool_new(3);
    PROA_UNUSED(state);
    for (int i = 0; i < REQUESTS; i++) {
        proa_options o = {.repetition_penalty = 1.5F, .frequency_penalty = 0.25F * (float)i};
        o.allowed_words = (proa_words){words, ends, 1 + i % 4};
        l[i] = make(&o, WIDE);
    }
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < WIDE; k++) raw[i][k] = row[i][k] = (float)((i * 31 + k * 17) % 41) - 20;
        for (int k = 0; k < 20; k++) ids[i][k] = (i * 7 + k * 3) % WIDE;
        jobs[i] = (proa_logits_job){.processor = l[i * i % REQUESTS],
                                    .history = {.prompt = ids[i], .prompt_count = 20},
                                    .raw = i % 2 ? raw[i] : row[i],
                                    .row = row[i],
                                    .mask = i % 3 ? mask[i] : NULL};
    }
    proa_logits_jobs_run(pool, jobs, ROWS);
    for (int i = 0; i < ROWS; i++) {
        memcpy(alone, raw[i], sizeof alone);
        proa_logits_processor_apply(jobs[i].processor, alone, &jobs[i].history);
        assert_memory_equal(row[i], alone, sizeof alone);
        if (!jobs[i].mask) continue;
        proa_logits_processor_mask(jobs[i].processor, &jobs[i].history, mask_alone);
        assert_memory_equal(mask[i], mask_alone, sizeof mask_alone);
    }
    for (int i = 0; i < REQUESTS; i++) proa_logits_processor_free(l[i]);
    proa_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_a_step), cmocka_unit_test(test_pairs_of_random_histories),
        cmocka_unit_test(test_goldens),        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_unused),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_allowed_words),
        cmocka_unit_test(test_strange_ids),    cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
