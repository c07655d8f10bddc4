/* SPDX-License-Identifier: Apache-2.0
 * test_recurrent_drafts.c - draft tokens of models whose layers have recurrent states: after a wrong one the state is
 * that from before the pass, and no bit of the output changes. */
#include "engine_test.h"
#include "draft_runs.h"

#include "engine/engine.h"

static const char *const models[] = {GOLDEN "arch/qwen3_next",  GOLDEN "arch/lfm2",
                                     GOLDEN "arch/falcon_h1",   GOLDEN "arch/granitemoehybrid",
                                     GOLDEN "arch/nemotron_h",  GOLDEN "arch/mamba2",
                                     GOLDEN "arch/mamba",       GOLDEN "arch/jamba",
                                     GOLDEN "arch/olmo_hybrid", GOLDEN "arch/kimi_linear",
                                     GOLDEN "arch/minimax",     GOLDEN "arch/zamba2"};
enum { TOKENS_MAX = 64 };

static void predict_tokens(proa_request *r, const outcome *plain, int32_t *guess, int every)
{
    if (r->options.beams || r->options.n) return;
    for (int64_t k = 0; k < plain->count; k++) guess[k] = every && k % every == every - 1 ? 4 : plain->ids[k];
    r->options.draft_ids = (proa_tokens){guess, (int32_t)plain->count};
}

/* All kinds of requests, without drafts, or with what they gave then as the prediction, of which one token in `every`
 * is another one (0: none is). */
static proa_stats run_kinds(const char *model, proa_engine_options options, const outcome *plain,
                            outcome *out, int every)
{
    static int32_t ids[RUN_REQUESTS][RUN_PROMPT], guess[RUN_REQUESTS][TOKENS_MAX];
    proa_stats stats;
    proa_engine *e = open_or_fail(model, &options);
    for (int i = 0; i < RUN_REQUESTS; i++) {
        proa_request r = run_request_of(i, ids[i]);
        if (plain) predict_tokens(&r, &plain[i], guess[i], every);
        submit_or_fail(e, r, &out[i]);
    }
    run_drafting(e);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(e);
    return stats;
}

static proa_stats compare_kinds(const char *model, proa_engine_options options, int every)
{
    static outcome with[RUN_REQUESTS], without[RUN_REQUESTS];
    memset(with, 0, sizeof with), memset(without, 0, sizeof without); /* of a test that failed */
    const proa_engine_options plain = {.threads = 1, .dtype = "f32", .sequences_max = 16};
    run_kinds(model, plain, NULL, without, 0);
    proa_stats stats = run_kinds(model, options, without, with, every);
    assert_same_runs(with, without, RUN_REQUESTS);
    for (int i = 0; i < RUN_REQUESTS; i++) outcome_release(&with[i]), outcome_release(&without[i]);
    assert_true(stats.drafted > 0 && stats.accepted > 0);
    return stats;
}

static void compare_all(proa_engine_options options)
{
    static const char *const modes[] = {"host", "0", "1"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        setenv("PROA_AHEAD", modes[m % 3], 1);
        proa_stats some = compare_kinds(models[m], options, 6);
        unsetenv("PROA_AHEAD");
        assert_true(some.accepted < some.drafted);
    }
}

static void wrong_drafts_are_undone(void **state)
{
    (void)state;
    compare_all((proa_engine_options){
        .threads = 2, .dtype = "f32", .sequences_max = 16, .speculation = "ngram", .draft_tokens = 5});
}

/* Rows that are run again do not fit beside all others, so they are chunks. */
static void undone_rows_wait_for_room(void **state)
{
    (void)state;
    compare_all((proa_engine_options){
        .dtype = "f32", .sequences_max = 12, .step_tokens = 14, .speculation = "ngram", .draft_tokens = 5});
}

enum { LONG = 4, LONG_PROMPT = 60 };

/* Requests whose text fills a second page each. */
static proa_stats run_long(int64_t kv_tokens, const outcome *plain, outcome *out)
{
    static int32_t ids[LONG][LONG_PROMPT], guess[LONG][TOKENS_MAX];
    proa_stats stats;
    const proa_engine_options o = {
        .dtype = "f32", .sequences_max = LONG, .kv_tokens = kv_tokens, .speculation = "ngram", .draft_tokens = 5};
    proa_engine *e = open_or_fail(models[0], &o);
    for (int i = 0; i < LONG; i++) {
        for (int k = 0; k < LONG_PROMPT; k++) ids[i][k] = 3 + (i * 37 + k * (11 + i)) % 190;
        proa_request r = {.ids = ids[i], .ids_count = LONG_PROMPT};
        r.options = (proa_options){.max_tokens = 50, .ignore_eos = true, .logprobs = true};
        if (plain) predict_tokens(&r, &plain[i], guess[i], 6);
        else r.options.speculation = "none";
        submit_or_fail(e, r, &out[i]);
    }
    run_drafting(e);
    proa_engine_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    proa_engine_close(e);
    return stats;
}

static void preempted_sequences_draft_again(void **state)
{
    (void)state;
    static outcome with[LONG], without[LONG];
    memset(with, 0, sizeof with), memset(without, 0, sizeof without); /* of a test that failed */
    run_long(8192, NULL, without);
    proa_stats stats = run_long(64 * 6, without, with);
    assert_same_runs(with, without, LONG);
    for (int i = 0; i < LONG; i++) outcome_release(&with[i]), outcome_release(&without[i]);
    assert_true(stats.preemptions > 0 && stats.accepted > 0 && stats.accepted < stats.drafted);
}

static void right_drafts_are_accepted(void **state)
{
    (void)state;
    const proa_engine_options o = {.dtype = "f32", .sequences_max = 16, .speculation = "ngram", .draft_tokens = 5};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        proa_stats stats = compare_kinds(models[m], o, 0);
        assert_true(10 * stats.accepted > 9 * stats.drafted);
    }
}

/* A model that knows nothing of the other one's texts. Mamba-2 has no keys and values of its own beside its. */
static void a_draft_model_is_undone(void **state)
{
    (void)state;
    static const char *const targets[] = {GOLDEN "arch/qwen3_next", GOLDEN "arch/mamba2"};
    static outcome with[RUN_REQUESTS], without[RUN_REQUESTS];
    for (int m = 0; m < 2; m++) {
        memset(with, 0, sizeof with), memset(without, 0, sizeof without); /* of a test that failed */
        /* with a draft model on the host, tokens are drawn in a way of their own */
        proa_engine_options o = {
            .dtype = "f32", .sequences_max = 16, .draft_model = GOLDEN "arch/qwen3", .speculation = "none"};
        run_kinds(targets[m], o, NULL, without, 0);
        o.speculation = "draft", o.draft_tokens = 4;
        proa_stats stats = run_kinds(targets[m], o, NULL, with, 0);
        assert_same_runs(with, without, RUN_REQUESTS);
        for (int i = 0; i < RUN_REQUESTS; i++) outcome_release(&with[i]), outcome_release(&without[i]);
        assert_true(stats.drafted > 100 && stats.accepted < stats.drafted);
    }
}

/* The second states are in the plan. */
static void memory_is_planned(void **state)
{
    (void)state;
    proa_engine *plain = open_or_fail(models[0],
                                      &(proa_engine_options){.sequences_max = 8, .prefix_cache = "off"});
    proa_engine *drafts = open_or_fail(
        models[0], &(proa_engine_options){.sequences_max = 8, .prefix_cache = "off", .speculation = "ngram"});
    if (plain->ranks.count == 1) /* else those of all ranks are counted */
        assert_int_equal(plain->memory.states, 8 * (int64_t)sizeof(float) * plain->states.numbers);
    assert_int_equal(drafts->memory.states, 2 * plain->memory.states);
    proa_engine_close(plain);
    proa_engine_close(drafts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_drafts_are_undone),         cmocka_unit_test(undone_rows_wait_for_room),
        cmocka_unit_test(preempted_sequences_draft_again), cmocka_unit_test(right_drafts_are_accepted),
        cmocka_unit_test(a_draft_model_is_undone),         cmocka_unit_test(memory_is_planned),
    };
    return cmocka_run_group_tests_name("recurrent drafts", tests, NULL, NULL);
}
