/* SPDX-License-Identifier: Apache-2.0
 * test_ranks.c - a model in several ranks (tensor parallelism): requests of many kinds at one time give what one rank
 * gives, pages are divided, and what ranks do not share is refused. test_golden_arch with PROA_TEST_TP compares all
 * architectures with their goldens. */
#include "engine_test.h"

#define MODEL PROA_SOURCE_DIR "/models/classics-10m"

enum { REQUESTS = 12, TOKENS = 24 };

static proa_engine *open_ranks(int32_t ranks)
{
    return open_or_fail(MODEL,
                        &(proa_engine_options){.dtype = "f32", .tensor_parallel = ranks, .threads = ranks});
}

/* Greedy, sampled and beam requests, some with a shared beginning, run together. */
static void run_all(proa_engine *engine, outcome *out)
{
    static const int32_t prompt[] = {11, 57, 230, 8, 99, 41, 5, 17};
    for (int i = 0; i < REQUESTS; i++) {
        proa_options o = {.max_tokens = TOKENS, .ignore_eos = true, .logprobs = true};
        if (i % 3 == 1) o.temperature = 0.8F, o.top_k = 20, o.seed = (uint64_t)(i + 1);
        if (i % 3 == 2) o.beams = 3, o.logprobs = false;
        out[i] = (outcome){0};
        submit_or_fail(engine, (proa_request){.ids = prompt, .ids_count = 3 + i % 5, .options = o}, &out[i]);
    }
    proa_engine_run(engine);
}

static void compare(const outcome *a, const outcome *b)
{
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(a[i].finish, PROA_FINISH_LENGTH);
        assert_int_equal(a[i].finish, b[i].finish);
        if (i % 3 == 2) {
            assert_int_equal(a[i].beam_count[0], b[i].beam_count[0]);
            assert_memory_equal(a[i].beam_ids[0], b[i].beam_ids[0], (size_t)a[i].beam_count[0] * sizeof(int32_t));
            continue;
        }
        assert_int_equal(a[i].count, TOKENS);
        assert_memory_equal(a[i].ids, b[i].ids, TOKENS * sizeof(int32_t));
        for (int t = 0; t < TOKENS; t++) assert_true(fabsf(a[i].logprobs[t] - b[i].logprobs[t]) < 1e-3F);
    }
}

static void test_as_one_rank(void **state)
{
    PROA_UNUSED(state);
    outcome one[REQUESTS], many[REQUESTS];
    proa_engine *engine = open_ranks(1);
    run_all(engine, one);
    proa_engine_close(engine);
    for (int32_t ranks = 2; ranks <= 4; ranks++) {
        proa_stats stats;
        engine = open_ranks(ranks);
        run_all(engine, many);
        compare(one, many);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        proa_engine_close(engine);
        for (int i = 0; i < REQUESTS; i++) outcome_release(&many[i]);
    }
    for (int i = 0; i < REQUESTS; i++) outcome_release(&one[i]);
}

static proa_engine *open_drafted(int32_t ranks)
{
    return open_or_fail(MODEL,
                        &(proa_engine_options){
                            .dtype = "f32", .tensor_parallel = ranks, .threads = ranks, .draft_model = MODEL});
}

/* The draft model is not divided: its pages follow those of all ranks. */
static void test_draft_model(void **state)
{
    PROA_UNUSED(state);
    outcome one[REQUESTS], two[REQUESTS];
    proa_engine *engine = open_drafted(1);
    run_all(engine, one);
    proa_engine_close(engine);
    engine = open_drafted(2);
    run_all(engine, two);
    compare(one, two);
    proa_engine_close(engine);
    for (int i = 0; i < REQUESTS; i++) outcome_release(&one[i]), outcome_release(&two[i]);
}

/* Models that have layers of several shapes: rows of all positions, and a few tokens behind them. */
static void run_model(const char *name, int32_t ranks, outcome *rows, outcome *text)
{
    char path[PROA_PATH_MAX];
    int32_t prompt[20];
    for (int i = 0; i < (int)PROA_COUNT(prompt); i++) prompt[i] = 7 + 11 * i % 150;
    snprintf(path, sizeof path, GOLDEN "arch/%s", name);
    proa_engine *engine = open_or_fail(
        path, &(proa_engine_options){.dtype = "f32", .tensor_parallel = ranks, .threads = ranks});
    *rows = *text = (outcome){0};
    proa_request r = {.task = PROA_TASK_ROWS, .ids = prompt, .ids_count = (int64_t)PROA_COUNT(prompt)};
    run_request(engine, r, rows);
    r.task = PROA_TASK_GENERATE, r.options = (proa_options){.max_tokens = TOKENS, .ignore_eos = true};
    run_request(engine, r, text);
    proa_engine_close(engine);
}

/* None of them is refused, as test_golden_arch would take it. */
static void test_unlike_layers(void **state)
{
    PROA_UNUSED(state);
    static const char *const names[] = {"gemma4",       "gemma4_biased", "gemma4_moe",
                                        "gemma4_small", "gemma3n",       "nemotron_h_latent"};
    outcome one[2], many[2];
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        run_model(names[i], 1, &one[0], &one[1]);
        for (int32_t ranks = 2; ranks <= 3; ranks++) {
            run_model(names[i], ranks, &many[0], &many[1]);
            for (int64_t k = 0; k < one[0].rows_count * one[0].columns; k++)
                if (!(fabsf(one[0].rows[k] - many[0].rows[k]) < 1e-3F))
                    fail_msg("%s: %d ranks", names[i], ranks);
            assert_memory_equal(one[1].ids, many[1].ids, TOKENS * sizeof(int32_t));
            outcome_release(&many[0]), outcome_release(&many[1]);
        }
        outcome_release(&one[0]), outcome_release(&one[1]);
    }
}

/* Inputs of more rows together than one page has, so that an encoder's keys and values go through pages. */
static void run_inputs(const char *name, int32_t ranks, bool generates, outcome out[REQUESTS])
{
    char path[PROA_PATH_MAX];
    int32_t input[REQUESTS][20];
    snprintf(path, sizeof path, GOLDEN "arch/%s", name);
    proa_engine *engine = open_or_fail(
        path, &(proa_engine_options){.dtype = "f32", .tensor_parallel = ranks, .threads = ranks});
    for (int i = 0; i < REQUESTS; i++) {
        for (int k = 0; k < 20; k++) input[i][k] = 7 + (11 * k + 31 * i) % 150;
        input[i][19 - i % 4] = 2; /* the end token, whose row a classifier reads */
        proa_request r = {.task = generates ? PROA_TASK_GENERATE : PROA_TASK_ROWS, .ids = input[i]};
        r.ids_count = 20 - i % 4;
        if (generates) r.options = (proa_options){.max_tokens = TOKENS, .ignore_eos = true, .logprobs = true};
        out[i] = (outcome){0};
        submit_or_fail(engine, r, &out[i]);
    }
    proa_engine_run(engine);
    proa_engine_close(engine);
}

/* An encoder with other heads and another FFN than its decoder. */
static void test_unlike_stacks(void **state)
{
    PROA_UNUSED(state);
    static const char *const names[] = {"mbart_unlike", "bart_unlike_cls"};
    outcome one[REQUESTS], two[REQUESTS];
    for (int i = 0; i < 2; i++) {
        run_inputs(names[i], 1, i == 0, one);
        run_inputs(names[i], 2, i == 0, two);
        for (int k = 0; k < REQUESTS; k++) {
            assert_true(one[k].count == two[k].count && one[k].rows_count == two[k].rows_count);
            assert_true(one[k].count + one[k].rows_count > 0);
            for (int64_t n = 0; n < one[k].rows_count * one[k].columns; n++)
                if (!(fabsf(one[k].rows[n] - two[k].rows[n]) < 1e-3F))
                    fail_msg("%s: other outputs", names[i]);
            for (int64_t n = 0; n < one[k].count; n++) {
                assert_int_equal(one[k].ids[n], two[k].ids[n]);
                assert_true(fabsf(one[k].logprobs[n] - two[k].logprobs[n]) < 1e-3F);
            }
            outcome_release(&one[k]), outcome_release(&two[k]);
        }
    }
}

static void expect_refusal(proa_engine_options options, const char *text)
{
    proa_engine *engine;
    proa_err err = {.status = PROA_OK};
    assert_int_not_equal(proa_engine_open(&engine, MODEL, &options, &err), PROA_OK);
    if (!strstr(err.text, text)) fail_msg("'%s' lacks '%s'", err.text, text);
}

static void test_refusals(void **state)
{
    PROA_UNUSED(state);
    expect_refusal((proa_engine_options){.tensor_parallel = -1}, "option 'tp' is -1");
    expect_refusal((proa_engine_options){.tensor_parallel = 65}, "option 'tp' is 65");
    expect_refusal((proa_engine_options){.tensor_parallel = 64}, "among 64 ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_one_rank),   cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_unlike_layers), cmocka_unit_test(test_unlike_stacks),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
