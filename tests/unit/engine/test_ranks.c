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
        cmocka_unit_test(test_as_one_rank),
        cmocka_unit_test(test_draft_model),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
